/* The rows of methods.def for the compiler and the runtime: which of them a call can use on a GPU,
 * and the kernels that they launch. Packages without calls do not contain it. */
#ifndef OPTC_METHODS_H
#define OPTC_METHODS_H
#include "gen/abi/program.h"

/* Whether a GPU computes a power by products (inverse_root.h): A^(-1/p) without a floor and with
 * eigenvalues that are large enough for the iteration. Returns p, or 0. The steps of an inverse
 * (p = 1) leave an error of some thousand roundings, which is below the precision of f32. */
OPTC_COUNT int root_by_products(double exponent, double low, unsigned flags)
{
    for (int p = 1; p <= 16 && !(flags & FLOORED); p++) {
        double off = exponent * p + 1;
        if (off < 1e-9 && off > -1e-9)
            return low >= (p == 1 && flags & EXACT ? 1e-6 : 1e-14) ? p : 0;
    }
    return 0;
}
OPTC_COUNT int call_root(const ProgCall *c)
{
    return root_by_products(c->alpha, call_low(c), c->flags);
}

/* Whether a GPU computes a power by a triangle: inverses in f64 that products do not compute
 * (gpu_factors.c). */
OPTC_COUNT bool inverse_by_triangle(double exponent, double low, unsigned flags)
{
    bool inverse = exponent + 1 < 1e-9 && exponent + 1 > -1e-9;
    return inverse && flags & EXACT && !(flags & FLOORED) &&
           !root_by_products(exponent, low, flags);
}

enum {
    NGPUMETHOD = 0
#define GPU_METHOD(...) +1
#include "gen/abi/methods.def"
};

/* The rows that a call can use on a GPU, a bit each. */
OPTC_COUNT unsigned callee_methods(Callee c, double exponent, double low, unsigned flags)
{
    bool power = (callee_facts[c].traits & EXPONENT) != 0,
         inverse = power && inverse_by_triangle(exponent, low, flags);
    int root = power ? root_by_products(exponent, low, flags) : 0;
    unsigned rows = 0, row = 1;
#define GPU_METHOD(callee, name, way, when, ...) \
    rows |= c == CALL_##callee && (when) ? row : 0; \
    row *= 2;
#include "gen/abi/methods.def"
    return rows;
}

/* The kernel sets that a call needs on a GPU. */
OPTC_COUNT unsigned callee_kernels(Callee c, double exponent, double low, unsigned flags)
{
    unsigned rows = callee_methods(c, exponent, low, flags), sets = 0;
#define GPU_METHOD(callee, name, way, when, use, ...) \
    sets |= rows & 1 ? (unsigned)(use) : 0; \
    rows /= 2;
#include "gen/abi/methods.def"
    return sets;
}
OPTC_COUNT unsigned call_kernels(const ProgCall *c)
{
    return callee_kernels(c->callee, c->alpha, call_low(c), c->flags);
}
/* The number of a function among those of eigenvalues. */
OPTC_COUNT int spectral_number(Callee c)
{
    int n = 0;
    for (int i = 0; i < (int)c; i++)
        n += callee_spectral((Callee)i);
    return n;
}
OPTC_COUNT bool stage_takes(const ProgStage *s, unsigned kernels)
{
    return s->kind == S_CALL && (call_kernels(s->call) & kernels) != 0;
}
#endif
