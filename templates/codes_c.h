/* codes_c.h: blocks of codes in C, for generated loops over OPTC_LANES values. Pasted after codes.h. */

//@ types
/* The values of a state from number `at` on. */
OPTC_FN void optc_decode_{{name}}(float *restrict to, const void *restrict state, const optc_view *self, long long at,
                                  int len)
{
    const {{c}} *restrict code = (const {{c}} *)state + at;
    if (self->whole_n < OPTC_LEAST_CODED) {
        for (int i = 0; i < len; i++)
            to[i] = ((const float *)state)[at + i];
        return;
    }
    for (int i = 0, end; i < len; i = end) {
        const long long block = (at + i) / OPTC_CODED;
        const float scale = optc_scales(state, self->n)[block];
        end = optc_least((block + 1) * OPTC_CODED - at, len);
        for (int k = i; k < end; k++)
            to[k] = {{load}}(code[k]) * scale;
    }
}

//@ types
/* Stores a block, or the rest of the tensor; `at` is a multiple of OPTC_CODED. */
OPTC_FN void optc_encode_{{name}}(void *restrict state, const float *restrict from, const optc_view *self,
                                  long long at, int len, unsigned dither)
{
    {{c}} *restrict code = ({{c}} *)state + at;
    unsigned most = 0;
    if (self->whole_n < OPTC_LEAST_CODED) {
        for (int i = 0; i < len; i++)
            ((float *)state)[at + i] = from[i];
        return;
    }
    for (int i = 0; i < len; i++) {
        const unsigned u = optc_bitsf(from[i]) & 0x7fffffffu;
        most = u > most ? u : most;
    }
    const float scale = optc_code_scale(most, {{store}}_least, {{store}}_floor, {{store}}_per_top);
    const float inverse = optc_code_inverse(scale);
    const {{c}} mask = optc_code_mask(scale);
    const unsigned first = dither + (unsigned)((self->first + at) >> 3) * OPTC_DITHER;
    for (int i = 0; i < len; i++)
        code[i] = {{store}}(from[i], inverse, optc_dither_at(first, i)) & mask;
    optc_scales(state, self->n)[at / OPTC_CODED] = scale;
}
