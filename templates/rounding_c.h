/* rounding_c.h: stochastic rounding in C, of up to OPTC_LANES values. Pasted after rounding.h. */

//@ types
/* first: the number of the first value in the whole tensor */
OPTC_FN void optc_round_{{name}}({{c}} *restrict to, const float *restrict from, optc_draws draws, long long first,
                                 int len)
{
    unsigned short bits[OPTC_LANES + 8];
    const int skip = (int)(first & 7), calls = (skip + len + 7) / 8;
    for (int k = 0; k < calls; k++) {
        const optc_u4 w = optc_draw8(draws, (first >> 3) + k);
        bits[8 * k] = (unsigned short)w.a;
        bits[8 * k + 1] = (unsigned short)(w.a >> 16);
        bits[8 * k + 2] = (unsigned short)w.b;
        bits[8 * k + 3] = (unsigned short)(w.b >> 16);
        bits[8 * k + 4] = (unsigned short)w.c;
        bits[8 * k + 5] = (unsigned short)(w.c >> 16);
        bits[8 * k + 6] = (unsigned short)w.d;
        bits[8 * k + 7] = (unsigned short)(w.d >> 16);
    }
    for (int i = 0; i < len; i++)
        to[i] = optc_to_{{name}}(from[i], bits[skip + i]);
}
