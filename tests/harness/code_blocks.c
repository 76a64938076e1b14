#include "tests/harness/code_blocks.h"

#include <math.h>
#include <string.h>

#define ROW(ID, name, sign, bits) \
    {#name, \
     OPTC_##ID, \
     sign, \
     bits, \
     optc_to_##name##_per_top, \
     optc_to_##name##_one, \
     optc_to_##name##_floor, \
     optc_to_##name##_least, \
     optc_from_##name, \
     optc_to_##name}
const CodeType code_types[NCODES] = {ROW(Q8, q8, true, 5), ROW(Q8U, q8u, false, 5),
                                     ROW(F8, f8, true, 3), ROW(F8U, f8u, false, 3)};

float code_encode(const CodeType *c, const float *x, int n, unsigned dither, bool each,
                  unsigned char *code)
{
    float most = 0;
    for (int i = 0; i < n; i++)
        most = isfinite(x[i]) && !isnan(most) ? fmaxf(most, fabsf(x[i])) : NAN;
    float scale = (isnan(most) || most >= c->floor ? most
                   : most < c->least               ? 0
                                                   : c->floor) *
                  c->per_top;
    for (int i = 0; i < n; i++)
        code[i] = isnan(scale) ? 0
                               : c->to(x[i], optc_code_inverse(scale),
                                       each ? optc_dither_at(dither, i) : dither);
    return scale;
}

void code_decode(const CodeType *c, const unsigned char *code, float scale, float *x, int n)
{
    for (int i = 0; i < n; i++)
        x[i] = c->from(code[i]) * scale;
}

double code_bound(const CodeType *c, float x, float scale)
{
    double step = ldexp(fabs((double)x) + (double)c->one * (double)scale, -c->bits);
    /* decoding rounds in f32 */
    return scale > 0 ? step * (1 + 0x1p-20) : (double)c->least;
}

size_t state_size(int64_t n) { return (size_t)(n < CODE_LEAST ? 4 * n : (n + 127) / 128 * 132); }

static unsigned char *scale_at(const unsigned char *state, int64_t n, int64_t block)
{
    return (unsigned char *)(uintptr_t)state + (n + 127) / 128 * 128 + 4 * block;
}

float state_scale(const unsigned char *state, int64_t n, int64_t i)
{
    float scale;
    memcpy(&scale, scale_at(state, n, i / 128), sizeof scale);
    return scale;
}

void state_decode(const CodeType *c, const unsigned char *state, int64_t n, float *x)
{
    if (n < CODE_LEAST)
        memcpy(x, state, 4 * (size_t)n);
    for (int64_t at = 0; n >= CODE_LEAST && at < n; at += 128) {
        code_decode(c, state + at, state_scale(state, n, at), x + at,
                    n - at < 128 ? (int)(n - at) : 128);
    }
}

void state_encode(const CodeType *c, unsigned char *state, int64_t n, const float *x, int step)
{
    if (n < CODE_LEAST)
        memcpy(state, x, 4 * (size_t)n);
    for (int64_t at = 0; n >= CODE_LEAST && at < n; at += 128) {
        unsigned dither = (unsigned)step * 0x9e3779b9u + (unsigned)(at / 8) * OPTC_DITHER;
        float scale =
            code_encode(c, x + at, n - at < 128 ? (int)(n - at) : 128, dither, true, state + at);
        memcpy(scale_at(state, n, at / 128), &scale, sizeof scale);
    }
}
