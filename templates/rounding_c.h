/* rounding_c.h: stochastic rounding in C, of up to OPTC_LANES values. Pasted after rounding.h. */

//@ types
/* first: the number of the first value in the whole tensor */
OPTC_FN void optc_round_{{name}}({{c}} *restrict to, const float *restrict from, optc_draws draws,
                                 long long first, int len)
{
    unsigned word[OPTC_LANES / 2 + 4];
    unsigned short bits[OPTC_LANES + 8];
    const int skip = (int)(first & 7), calls = (skip + len + 7) / 8;
    for (int k = 0; k < calls; k++) {
        const optc_u4 w = optc_draw8(draws, (first >> 3) + k);
        word[4 * k] = w.a;
        word[4 * k + 1] = w.b;
        word[4 * k + 2] = w.c;
        word[4 * k + 3] = w.d;
    }
    /* apart from the calls, which then vectorise better */
    for (int k = 0; k < 4 * calls; k++) {
        bits[2 * k] = (unsigned short)word[k];
        bits[2 * k + 1] = (unsigned short)(word[k] >> 16);
    }
    for (int i = 0; i < len; i++)
        to[i] = optc_to_{{name}}(from[i], bits[skip + i]);
}
