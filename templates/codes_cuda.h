/* codes_cuda.h: blocks of codes on a GPU. The V values of a thread belong to one block, which 128 / V neighbouring
 * lanes share; V is 4 at least. Pasted after codes.h and cuda_helpers.h. */

struct optc_yes { static const bool value = true; };

struct optc_no { static const bool value = false; };

//@ types
struct optc_code_{{name}} {
    static const bool is_signed = {{store}}_signed;
    static const int shift = {{store}}_shift;
    static OPTC_FN_MEMBER float one() { return {{store}}_one; }
    static OPTC_FN_MEMBER float from({{c}} code) { return {{load}}(code); }
    static OPTC_FN_MEMBER float scale(unsigned most)
    {
        return optc_code_scale(most, {{store}}_least, {{store}}_floor, {{store}}_per_top);
    }
};

/* A byte of four, at bit 16 of the result; the bytes of four numbers as one word; the sign bits of four numbers, each
 * in the highest bit of its byte (other bits are undefined). */
OPTC_FN unsigned optc_byte(unsigned word, int i)
{
#ifdef __CUDA_ARCH__
    return __byte_perm(word, 0, 0x4044 | i << 8);
#else
    return (word >> (8 * i) & 255u) << 16;
#endif
}

OPTC_FN unsigned optc_bytes(unsigned a, unsigned b, unsigned c, unsigned d)
{
#ifdef __CUDA_ARCH__
    return __byte_perm(__byte_perm(a, b, 0x0040), __byte_perm(c, d, 0x0040), 0x5410);
#else
    return a | b << 8 | c << 16 | d << 24;
#endif
}

OPTC_FN unsigned optc_signs(const float *x)
{
#ifdef __CUDA_ARCH__
    return __byte_perm(__byte_perm(optc_bitsf(x[0]), optc_bitsf(x[1]), 0x0073),
                       __byte_perm(optc_bitsf(x[2]), optc_bitsf(x[3]), 0x0073), 0x5410);
#else
    return optc_bytes(optc_bitsf(x[0]) >> 24, optc_bitsf(x[1]) >> 24, optc_bitsf(x[2]) >> 24, optc_bitsf(x[3]) >> 24);
#endif
}

/* V values of a state as loaded, four codes per word. Decoding waits until they are used. CODED is false for tensors
 * that store f32. */
template <typename CODE, int V, bool CODED> struct optc_coded {
    unsigned word[V / 4];
    float scale;
    OPTC_FN_MEMBER float operator[](int i) const
    {
        const unsigned w = word[i / 4], k = optc_byte(CODE::is_signed ? w & 0x7f7f7f7fu : w, i % 4);
        const float size = optc_frombitsf(optc_bitsf(CODE::one()) + k * (1u << (CODE::shift - 16))) - CODE::one();
        return CODE::is_signed ? optc_frombitsf(optc_bitsf(size) ^ (w << (24 - i % 4 * 8) & 0x80000000u)) * scale
                               : size * scale;
    }
};

//@ if optc_coded
template <typename CODE, int V> struct optc_coded<CODE, V, false> {
    float x[V];
    OPTC_FN_MEMBER float operator[](int i) const { return x[i]; }
};

/* Codes of complete vectors are loaded and stored as words; the last ones of a tensor byte by byte. */
template <int H, int N, typename W>
OPTC_FN void optc_get_bytes(unsigned (&word)[N], const unsigned char *p, int left, W)
{
    if (optc_is_full<W>::value || left == 4 * N) {
        optc_get<H>(word, (const unsigned *)p, N, true);
        return;
    }
    for (int i = 0; i < N; i++)
        word[i] = 0;
    for (int i = 0; i < 4 * N; i++)
        word[i / 4] |= i < left ? (unsigned)p[i] << (8 * (i % 4)) : 0u;
}

template <int H, int N, typename W>
OPTC_FN void optc_put_bytes(unsigned char *p, const unsigned (&word)[N], int left, W)
{
    if (optc_is_full<W>::value || left == 4 * N) {
        optc_put<H>((unsigned *)p, word, N, true);
        return;
    }
    for (int i = 0; i < 4 * N; i++)
        if (i < left)
            p[i] = (unsigned char)(word[i / 4] >> (8 * (i % 4)));
}

template <int H, typename CODE, int V, typename W>
OPTC_FN void optc_get_coded(optc_coded<CODE, V, true> &to, const void *state, const optc_view *self, long long offset,
                            int left, W wide)
{
    optc_get_bytes<H>(to.word, (const unsigned char *)state + offset, left, wide);
    to.scale = left > 0 ? optc_scales(state, self->n)[offset / OPTC_CODED] : 0.0f;
}

//@ if optc_get_coded
template <int H, typename CODE, int V, typename W>
OPTC_FN void optc_get_coded(optc_coded<CODE, V, false> &to, const void *state, const optc_view *, long long offset,
                            int left, W wide)
{
    optc_get<H>(to.x, (const float *)state + offset, left, wide);
}

/* Decoded at once, at any offset: for passes by rows, where a vector may lie in two blocks. */
template <typename CODE, int V>
OPTC_FN void optc_get_decoded(float (&to)[V], const void *state, const optc_view *self, long long offset, int left)
{
    const bool coded = self->whole_n >= OPTC_LEAST_CODED;
    const float *scale = optc_scales(state, self->n);
    for (int i = 0; i < V; i++) {
        const long long at = offset + i;
        to[i] = i >= left ? 0.0f : coded ? CODE::from(((const unsigned char *)state)[at]) * scale[at / OPTC_CODED]
                                         : ((const float *)state)[at];
    }
}

/* The larger magnitude; NaN if one of them is. */
OPTC_FN float optc_larger(float a, float b)
{
#if defined __CUDA_ARCH__ && __CUDA_ARCH__ >= 800
    float r;
    asm("{\n\t.reg .f32 t;\n\tabs.f32 t, %2;\n\tmax.NaN.f32 %0, %1, t;\n\t}" : "=f"(r) : "f"(a), "f"(b));
    return r;
#else
    const unsigned u = optc_bitsf(a) & 0x7fffffffu, v = optc_bitsf(b) & 0x7fffffffu;
    return optc_frombitsf(u > v ? u : v);
#endif
}

/* All lanes of a warp call this together. */
template <int H, typename CODE, int V, typename W>
OPTC_FN void optc_put_coded(void *state, const float (&x)[V], const optc_view *self, long long offset, int left, W wide,
                            unsigned dither, optc_yes)
{
    float most = 0.0f;
    unsigned word[V / 4];
#pragma unroll
    for (int i = 0; i < V; i++)
        most = optc_larger(most, i < left ? x[i] : 0.0f);
#pragma unroll
    for (int lanes = OPTC_CODED / V / 2; lanes > 0; lanes /= 2)
        most = optc_larger(most, __shfl_xor_sync(0xffffffffu, most, lanes));
    const float scale = CODE::scale(optc_bitsf(most) & 0x7fffffffu), inverse = optc_code_inverse(scale);
    const unsigned first = optc_dither_at(dither, self->first + offset);
#pragma unroll
    for (int i = 0; i < V; i += 4) {
        unsigned k[4];
#pragma unroll
        for (int j = 0; j < 4; j++) {
            const unsigned draw = first ^ (unsigned)(i + j) << 29;
            k[j] = CODE::is_signed ? optc_code_signed(x[i + j], inverse, draw, CODE::shift, CODE::one())
                                   : optc_code_unsigned(x[i + j], inverse, draw, CODE::shift, CODE::one());
        }
        const unsigned codes = optc_bytes(k[0], k[1], k[2], k[3]);
        word[i / 4] = CODE::is_signed ? codes | (optc_signs(x + i) & 0x80808080u) : codes;
        word[i / 4] = scale == scale ? word[i / 4] : 0u;
    }
    optc_put_bytes<H>((unsigned char *)state + offset, word, left, wide);
    if (offset % OPTC_CODED == 0 && left > 0)
        optc_scales(state, self->n)[offset / OPTC_CODED] = scale;
}

//@ if optc_put_coded
template <int H, typename CODE, int V, typename W>
OPTC_FN void optc_put_coded(void *state, const float (&x)[V], const optc_view *, long long offset, int left, W wide,
                            unsigned, optc_no)
{
    optc_put<H>((float *)state + offset, x, left, wide);
}
