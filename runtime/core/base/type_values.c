/* Storage types: what optc.h tells about them, and their values, which may be block codes. */
#include "runtime/core/base/core.h"

#include "runtime/core/base/conversions.h"

#include <stdlib.h>

static const optc_type_info public_types[] = {
#define TYPE(ID, name, bits, block, planes, draws, c, load, store, compute, digits, least, most, \
             beyond, dtype, dlpack, ...) \
    {name, dtype, bits, dlpack},
#include "gen/abi/types.def"
};

int optc_types(void) { return NTYPES; }

optc_status optc_type_about_sized(optc_type t, optc_type_info *out, size_t size)
{
    const StructVersion as =
        STRUCT_VERSION("optc_type_about_sized", optc_type_info, "optc_type_about", dlpack);
    if (!out)
        return fail(OPTC_ERROR_ARGUMENT, "optc_type_about: the result pointer is NULL");
    if ((int)t < 1 || (int)t > NTYPES)
        return fail(OPTC_ERROR_ARGUMENT, "optc_type_about: there is no type %d (1 to %d)", (int)t,
                    (int)NTYPES);
    return struct_write(&as, out, size, &public_types[(int)t - 1]);
}

CORE double type_load(int t, const void *p, int64_t i)
{
    switch (t) {
#define TYPE(ID, name, bits, block, planes, draws, c, load, store, ...) \
    case T_##ID: return (double)load(((const c *)p)[i]);
#define CODED(...)
#include "gen/abi/types.def"
    /* types are checked when a rule is compiled */
    default: abort();
    }
}

CORE void type_store(int t, void *p, int64_t i, double x)
{
    switch (t) {
#define AS_F32(x) ((float)(x))
#define AS_F64(x) (x)
#define TYPE(ID, name, bits, block, planes, draws, c, load, store, compute, ...) \
    case T_##ID: ((c *)p)[i] = store(AS_##compute(x)); break;
#define CODED(...)
#include "gen/abi/types.def"
#undef AS_F32
#undef AS_F64
    default: abort();
    }
}

static double code_load(int t, unsigned char code)              /* relative to the scale */
{
    switch (t) {
#define TYPE(...)
#define CODED(ID, name, bits, block, planes, draws, c, load, ...) \
    case T_##ID: return (double)load(code);
#include "gen/abi/types.def"
    default: abort();
    }
}

static float code_scale(int t, unsigned most)
{
    switch (t) {
#define TYPE(...)
#define CODED(ID, name, bits, block, planes, draws, c, load, store, ...) \
    case T_##ID: return optc_code_scale(most, store##_least, store##_floor, store##_per_top);
#include "gen/abi/types.def"
    default: abort();
    }
}

static unsigned char code_store(int t, float x, float scale, unsigned dither)
{
    switch (t) {
#define TYPE(...)
#define CODED(ID, name, bits, block, planes, draws, c, load, store, ...) \
    case T_##ID: return store(x, optc_code_inverse(scale), dither);
#include "gen/abi/types.def"
    default: abort();
    }
}

CORE bool type_is_coded(int t)
{
    switch (t) {
#define TYPE(...)
#define CODED(ID, ...) case T_##ID:
#include "gen/abi/types.def"
        return true;
    default: return false;
    }
}

/* a code for values that are never negative */
CORE bool type_is_unsigned(int t)
{
    switch (t) {
#define TYPE(...)
#define CODED(ID, name, bits, block, planes, draws, c, load, store, ...) \
    case T_##ID: return !store##_signed;
#include "gen/abi/types.def"
    default: return false;
    }
}

CORE void values_load(int t, const void *p, int64_t n, double *out)
{
    const float *scale = type_is_coded(t) ? optc_scales(p, n) : NULL;
    for (int64_t i = 0; i < n; i++)
        out[i] = scale ? (float)code_load(t, ((const unsigned char *)p)[i]) * scale[i / OPTC_CODED]
                       : type_load(t, p, i);
}

/* dither: that of the step and of the block's first value; NULL: to nearest. */
static void store_block(int t, unsigned char *code, float *scale, const double *in, int64_t n,
                        const unsigned *dither)
{
    unsigned most = 0;
    for (int64_t i = 0; i < n; i++) {
        unsigned u = optc_bitsf((float)in[i]) & 0x7fffffffu;
        most = u > most ? u : most;
    }
    *scale = code_scale(t, most);
    for (int64_t i = 0; i < n; i++)
        code[i] = code_store(t, (float)in[i], *scale,
                             dither ? optc_dither_at(*dither, i) : OPTC_NEAREST) &
                  optc_code_mask(*scale);
}

CORE void values_store(int t, void *p, int64_t n, const double *in, const unsigned *dither)
{
    for (int64_t i = 0; !type_is_coded(t) && i < n; i++)
        type_store(t, p, i, in[i]);
    for (int64_t i = 0; type_is_coded(t) && i < n; i += OPTC_CODED) {
        const unsigned here = dither ? *dither + (unsigned)(i >> 3) * OPTC_DITHER : 0;
        store_block(t, (unsigned char *)p + i, optc_scales(p, n) + i / OPTC_CODED, in + i,
                    n - i < OPTC_CODED ? n - i : OPTC_CODED, dither ? &here : NULL);
    }
}

CORE void number_store(int t, void *p, int64_t n, double value)
{
    const bool coded = type_is_coded(t);
    double same[OPTC_CODED];
    for (int i = 0; i < OPTC_CODED; i++)
        same[i] = value;
    for (int64_t i = 0; !coded && i < n; i++)
        type_store(t, p, i, value);
    for (int64_t i = 0; coded && i < n; i += OPTC_CODED)
        store_block(t, (unsigned char *)p + i, optc_scales(p, n) + i / OPTC_CODED, same,
                    n - i < OPTC_CODED ? n - i : OPTC_CODED, NULL);
}
