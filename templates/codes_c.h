/* codes_c.h: blocks of codes in C, for generated loops over OPTC_LANES values. Pasted after
 * codes.h. */

/* The bits of the largest magnitude so far. */
OPTC_FN unsigned optc_code_most(unsigned most, float x)
{
    const unsigned u = optc_bitsf(x) & 0x7fffffffu;
    return u > most ? u : most;
}

/* The dither of a block whose first value has the number `at`. All states of an element share
 * it. */
OPTC_FN void optc_dithers(unsigned *restrict to, unsigned dither, long long at)
{
    const unsigned first = dither + (unsigned)(at >> 3) * OPTC_DITHER;
    for (int i = 0; i < OPTC_CODED; i++)
        to[i] = optc_dither_at(first, i);
}

//@ types
/* The values of a state from number `at` on. A whole block has a loop of its own: its count is a
 * constant, so that no values remain after the last vector. */
OPTC_FN void optc_decode_{{name}}(float *restrict to, const void *restrict state,
                                  const optc_view *self, long long at, int len)
{
    const {{c}} *restrict code = (const {{c}} *)state + at;
    if (self->whole_n < OPTC_LEAST_CODED) {
        for (int i = 0; i < len; i++)
            to[i] = ((const float *)state)[at + i];
        return;
    }
    if (len == OPTC_CODED && at % OPTC_CODED == 0) {
        const float scale = optc_scales(state, self->n)[at / OPTC_CODED];
        for (int k = 0; k < OPTC_CODED; k++)
            to[k] = {{load}}(code[k]) * scale;
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
/* Stores a block, or the rest of the tensor; `at` is a multiple of OPTC_CODED. most: the bits of
 * its largest magnitude. */
OPTC_FN void optc_encode_{{name}}(void *restrict state, const float *restrict from,
                                  const optc_view *self, long long at, int len,
                                  const unsigned *restrict dithers, unsigned most)
{
    {{c}} *restrict code = ({{c}} *)state + at;
    if (self->whole_n < OPTC_LEAST_CODED) {
        for (int i = 0; i < len; i++)
            ((float *)state)[at + i] = from[i];
        return;
    }
    const float scale = optc_code_scale(most, {{store}}_least, {{store}}_floor, {{store}}_per_top);
    const float inverse = optc_code_inverse(scale);
    const {{c}} mask = optc_code_mask(scale);
    if (len == OPTC_CODED)
        for (int i = 0; i < OPTC_CODED; i++)
            code[i] = {{store}}(from[i], inverse, dithers[i]) & mask;
    else
        for (int i = 0; i < len; i++)
            code[i] = {{store}}(from[i], inverse, dithers[i]) & mask;
    optc_scales(state, self->n)[at / OPTC_CODED] = scale;
}
