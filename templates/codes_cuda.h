/* codes_cuda.h: blocks of codes on a GPU. A thread has N vectors of V values of a block, which 128
 * / (V * N) neighbouring lanes share: the first vectors of these lanes are the first 128 / N
 * values, and so on. V is 4 at least. Pasted after codes.h and cuda_helpers.h. */

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

/* A byte of four, at bit 16 of the result. */
OPTC_FN unsigned optc_byte(unsigned word, int i)
{
#ifdef __CUDA_ARCH__
    return __byte_perm(word, 0, 0x4044 | i << 8);
#else
    return (word >> (8 * i) & 255u) << 16;
#endif
}

/* Bits SHIFT to SHIFT + 7 of four numbers as one word. SHIFT is 16 at least, so two of them are
 * shifted at once. */
template <int SHIFT>
OPTC_FN unsigned optc_code_bytes(unsigned a, unsigned b, unsigned c, unsigned d)
{
#ifdef __CUDA_ARCH__
    return __byte_perm(__byte_perm(a, b, 0x7632) << (24 - SHIFT),
                       __byte_perm(c, d, 0x7632) << (24 - SHIFT), 0x7531);
#else
    return (a >> SHIFT & 255u) | (b >> SHIFT & 255u) << 8 | (c >> SHIFT & 255u) << 16 |
           (d >> SHIFT & 255u) << 24;
#endif
}

/* The sign bits of four numbers, each in the highest bit of its byte; other bits are undefined. */
OPTC_FN unsigned optc_signs(const float *x)
{
#ifdef __CUDA_ARCH__
    return __byte_perm(__byte_perm(optc_bitsf(x[0]), optc_bitsf(x[1]), 0x0073),
                       __byte_perm(optc_bitsf(x[2]), optc_bitsf(x[3]), 0x0073), 0x5410);
#else
    return optc_bitsf(x[0]) >> 24 | optc_bitsf(x[1]) >> 24 << 8 | optc_bitsf(x[2]) >> 24 << 16 |
           optc_bitsf(x[3]) >> 24 << 24;
#endif
}

/* Where the first vector of a thread begins. */
template <int V, int N> OPTC_FN int optc_code_lane(int id)
{
    const int lanes = OPTC_CODED / (V * N);
    return (int)((unsigned)id / lanes * OPTC_CODED + (unsigned)id % lanes * V);
}

/* Values of a state as loaded, four codes per word. Decoding waits until they are used. CODED is
 * false for tensors that store f32. */
template <typename CODE, int V, int N, bool CODED> struct optc_coded {
    unsigned word[N][V / 4];
    float scale;
    OPTC_FN_MEMBER float at(int k, int i) const
    {
        const unsigned w = word[k][i / 4],
                       code = optc_byte(CODE::is_signed ? w & 0x7f7f7f7fu : w, i % 4);
        const float size =
            optc_frombitsf(optc_bitsf(CODE::one()) + code * (1u << (CODE::shift - 16))) -
            CODE::one();
        return CODE::is_signed
                   ? optc_frombitsf(optc_bitsf(size) ^ (w << (24 - i % 4 * 8) & 0x80000000u)) *
                         scale
                   : size * scale;
    }
};

//@ if optc_coded
template <typename CODE, int V, int N> struct optc_coded<CODE, V, N, false> {
    float x[N][V];
    OPTC_FN_MEMBER float at(int k, int i) const { return x[k][i]; }
};

/* Codes of complete vectors are loaded and stored as words; the last ones of a tensor byte by
 * byte. */
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

/* Vector k of a thread. The first one brings the scale. */
template <int H, typename CODE, int V, int N, typename W>
OPTC_FN void optc_get_coded(optc_coded<CODE, V, N, true> &to, int k, const void *state,
                            const optc_view *self, long long offset, int left, W wide)
{
    optc_get_bytes<H>(to.word[k], (const unsigned char *)state + offset, left, wide);
    if (k == 0)
        to.scale =
            left > 0 ? optc_scales(state, self->n)[(unsigned long long)offset / OPTC_CODED] : 0.0f;
}

//@ if optc_get_coded
template <int H, typename CODE, int V, int N, typename W>
OPTC_FN void optc_get_coded(optc_coded<CODE, V, N, false> &to, int k, const void *state,
                            const optc_view *, long long offset, int left, W wide)
{
    optc_get<H>(to.x[k], (const float *)state + offset, left, wide);
}

/* Decoded at once, at any offset: for passes by rows, where a vector may lie in two blocks. */
template <typename CODE, int V>
OPTC_FN void optc_get_decoded(float (&to)[V], const void *state, const optc_view *self,
                              long long offset, int left)
{
    const bool coded = self->whole_n >= OPTC_LEAST_CODED;
    const float *scale = optc_scales(state, self->n);
    for (int i = 0; i < V; i++) {
        const long long at = offset + i;
        to[i] = i >= left ? 0.0f
                : coded   ? CODE::from(((const unsigned char *)state)[at]) * scale[at / OPTC_CODED]
                          : ((const float *)state)[at];
    }
}

/* The larger magnitude; NaN if one of them is. */
OPTC_FN float optc_larger(float a, float b)
{
#if defined __CUDA_ARCH__ && __CUDA_ARCH__ >= 800
    float r;
    asm("{\n\t.reg .f32 t;\n\tabs.f32 t, %2;\n\tmax.NaN.f32 %0, %1, t;\n\t}"
        : "=f"(r)
        : "f"(a), "f"(b));
    return r;
#else
    const unsigned u = optc_bitsf(a) & 0x7fffffffu, v = optc_bitsf(b) & 0x7fffffffu;
    return optc_frombitsf(u > v ? u : v);
#endif
}

OPTC_FN float optc_code_size(float x)
{
#ifdef __CUDA_ARCH__
    return fabsf(x);                           /* takes no instruction of its own */
#else
    return optc_absf(x);
#endif
}

/* The four codes from value i on. `draw`: the dither of the first of eight values, in the bits
 * below the code. Codes of unsigned types are 1 at least here. */
template <typename CODE>
OPTC_FN unsigned optc_code_four(const float *x, int i, float inverse, unsigned draw)
{
    const unsigned middle = 1u << (CODE::shift - 13), one = optc_bitsf(CODE::one());
    unsigned u[4];
#pragma unroll
    for (int j = 0; j < 4; j++) {
        const unsigned own = draw ^ (unsigned)((i + j) % 8) << (CODE::shift - 3);
        if (CODE::is_signed) {
            u[j] =
                optc_bitsf(optc_code_size(x[i + j]) * inverse + CODE::one()) + own + (middle - one);
        } else {
            u[j] = optc_bitsf(x[i + j] * inverse + CODE::one()) - own +
                   ((1u << CODE::shift) - middle - one);
            u[j] = u[j] > 1u << CODE::shift ? u[j] : 1u << CODE::shift;
        }
    }
    const unsigned codes = optc_code_bytes<CODE::shift>(u[0], u[1], u[2], u[3]);
    return CODE::is_signed ? codes | (optc_signs(x + i) & 0x80808080u) : codes;
}

/* Stores the vectors of a thread; `room` values are left from the first one on. All lanes of a warp
 * call this together.
 * ROOT: the caller took the root of each value, and `odd` is true if one of them was 0. */
template <int H, typename CODE, bool ROOT, int V, int N, typename W>
OPTC_FN void optc_put_coded(void *state, const float (&x)[N][V], const optc_view *self,
                            long long offset, int room, W wide, unsigned dither, bool odd, optc_yes)
{
    float most = 0.0f;
    unsigned least = 1;
#pragma unroll
    for (int k = 0; k < N; k++)
#pragma unroll
        for (int i = 0; i < V; i++) {
            most = optc_larger(most, i < optc_left<V>(wide, room - k * (OPTC_CODED / N)) ? x[k][i]
                                                                                         : 0.0f);
            if (!CODE::is_signed && !ROOT)
                least = optc_bitsf(x[k][i]) < least ? optc_bitsf(x[k][i]) : least;
        }
#pragma unroll
    for (int lanes = OPTC_CODED / (V * N) / 2; lanes > 0; lanes /= 2)
        most = optc_larger(most, __shfl_xor_sync(0xffffffffu, most, lanes));
    const float scale = CODE::scale(optc_bitsf(most) & 0x7fffffffu),
                inverse = optc_code_inverse(scale);
    const unsigned eight = (unsigned)((unsigned long long)(self->first + offset) / 8);
#pragma unroll
    for (int k = 0; k < N; k++) {
        const unsigned first =
            ((dither + (eight + k * (OPTC_CODED / N / 8)) * OPTC_DITHER) & 0xfff00000u) ^
            (V % 8 ? (unsigned)(offset & 7) << 29 : 0u);
        unsigned word[V / 4];
#pragma unroll
        for (int i = 0; i < V; i += 4) {
            word[i / 4] = optc_code_four<CODE>(x[k], i, inverse, first >> (32 - CODE::shift));
            word[i / 4] = scale == scale ? word[i / 4] : 0u;
        }
        if (!CODE::is_signed && (ROOT ? odd : least == 0))
            for (int i = 0; i < V; i++)
                word[i / 4] &= x[k][i] == 0.0f ? ~(255u << (8 * (i % 4))) : ~0u;
        optc_put_bytes<H>((unsigned char *)state + offset + k * (OPTC_CODED / N), word,
                          optc_left<V>(wide, room - k * (OPTC_CODED / N)), wide);
    }
    if (offset % OPTC_CODED == 0 && room > 0)
        optc_scales(state, self->n)[(unsigned long long)offset / OPTC_CODED] = scale;
}

//@ if optc_put_coded
template <int H, typename CODE, bool ROOT, int V, int N, typename W>
OPTC_FN void optc_put_coded(void *state, const float (&x)[N][V], const optc_view *,
                            long long offset, int room, W wide, unsigned, bool, optc_no)
{
#pragma unroll
    for (int k = 0; k < N; k++)
        optc_put<H>((float *)state + offset + k * (OPTC_CODED / N), x[k],
                    optc_left<V>(wide, room - k * (OPTC_CODED / N)), wide);
}
