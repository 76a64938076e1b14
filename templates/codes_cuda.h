/* codes_cuda.h: blocks of codes on a GPU. The V values of a thread belong to one block, which 128 / V neighbouring
 * lanes share; V is 4 at least. Pasted after codes.h and cuda_helpers.h. */

struct optc_yes { static const bool value = true; };

struct optc_no { static const bool value = false; };

//@ types
struct optc_code_{{name}} {
    static OPTC_FN_MEMBER float from({{c}} code) { return {{load}}(code); }
    static OPTC_FN_MEMBER {{c}} to(float x, float inverse, unsigned dither) { return {{store}}(x, inverse, dither); }
    static OPTC_FN_MEMBER float scale(unsigned most)
    {
        return optc_code_scale(most, {{store}}_least, {{store}}_floor, {{store}}_per_top);
    }
};

/* V values of a state as loaded. Decoding waits until they are used. CODED is false for tensors that store f32. */
template <typename CODE, int V, bool CODED> struct optc_coded {
    unsigned char code[V];
    float scale;
    OPTC_FN_MEMBER float operator[](int i) const { return CODE::from(code[i]) * scale; }
};

//@ if optc_coded
template <typename CODE, int V> struct optc_coded<CODE, V, false> {
    float x[V];
    OPTC_FN_MEMBER float operator[](int i) const { return x[i]; }
};

template <int H, typename CODE, int V, typename W>
OPTC_FN void optc_get_coded(optc_coded<CODE, V, true> &to, const void *state, const optc_view *self, long long offset,
                            int left, W wide)
{
    optc_get<H>(to.code, (const unsigned char *)state + offset, left, wide);
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

/* All lanes of a warp call this together. */
template <int H, typename CODE, int V, typename W>
OPTC_FN void optc_put_coded(void *state, const float (&x)[V], const optc_view *self, long long offset, int left, W wide,
                            unsigned dither, optc_yes)
{
    unsigned most = 0;
    unsigned char code[V];
#pragma unroll
    for (int i = 0; i < V; i++) {
        const unsigned u = i < left ? optc_bitsf(x[i]) & 0x7fffffffu : 0u;
        most = u > most ? u : most;
    }
#pragma unroll
    for (int lanes = OPTC_CODED / V / 2; lanes > 0; lanes /= 2) {
        const unsigned u = __shfl_xor_sync(0xffffffffu, most, lanes);
        most = u > most ? u : most;
    }
    const float scale = CODE::scale(most), inverse = optc_code_inverse(scale);
    const unsigned first = dither + (unsigned)(self->first + offset) * OPTC_DITHER;
#pragma unroll
    for (int i = 0; i < V; i++)
        code[i] = CODE::to(x[i], inverse, first + (unsigned)i * OPTC_DITHER);
    if (optc_code_mask(scale) == 0)
        for (int i = 0; i < V; i++)
            code[i] = 0;
    optc_put<H>((unsigned char *)state + offset, code, left, wide);
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
