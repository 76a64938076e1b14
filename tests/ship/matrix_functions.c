/* Compares the functions of matrices of a package (optc ship … --functions all) with the library's,
 * bit for bit: results, statuses and messages. The package is called `pf`. Usage: matrix_functions
 * cpu|cuda [NAME…]. The package must have the named functions (call_name) in all forms, and may
 * lack the others; without names it must have all. */
#include "optc.h"
#include "pf.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SIDE = 6, WIDE = 8, BATCH = 2, VALUES = BATCH * WIDE * WIDE, ARRAYS = 4 };
typedef enum {
    POWER,
    EIGH,
    CHOLESKY,
    SOLVE,
    POLAR,
    QR,
    PRODUCT,
    CHAIN,
    KRON,
    KRON_APPLY,
    NORMS,
    SUM,
    KFAC,
    NCALL
} Call;
static const char *const call_name[NCALL] = {
    "matrix_power", "eigh", "cholesky",   "solve",        "polar",       "qr",          "multiply",
    "chain",        "kron", "kron_apply", "sample_norms", "clipped_sum", "kfac_factors"};

static optc_engine *lib;
static pf_engine *pack;
static int tried, succeeded, wrong, some, named[NCALL], works[NCALL];

/* The structs of both have the same members. */
static int run(int packed, Call c, const optc_function *f, const optc_product *p,
               const optc_kronecker *k, const optc_kron_vector *v, const optc_linear *l)
{
#define BOTH(CALL, x) \
    (packed ? (int)pf_##CALL(pack, (const void *)(x)) : (int)optc_##CALL(lib, (x)))
    switch (c) {
    case POWER: return BOTH(matrix_power, f);
    case EIGH: return BOTH(eigh, f);
    case CHOLESKY: return BOTH(cholesky, f);
    case SOLVE: return BOTH(solve, f);
    case POLAR: return BOTH(polar, f);
    case QR: return BOTH(qr, f);
    case PRODUCT:
    case CHAIN: return BOTH(multiply, p);
    case KRON: return BOTH(kron, k);
    case KRON_APPLY: return BOTH(kron_apply, v);
    case NORMS: return BOTH(sample_norms, l);
    case SUM: return BOTH(clipped_sum, l);
    default: return BOTH(kfac_factors, l);
    }
}

static void need(int status, const char *why)
{
    if (!status)
        return;
    fprintf(stderr, "%s\n", why);
    exit(1);
}

static size_t width(optc_type t) { return t == OPTC_F64 ? 8 : t == OPTC_F32 ? 4 : 2; }

/* Symmetric positive definite matrices of `side` rows, in f32, f64 or bf16. */
static void fill(void *to, optc_type t, int side, double shift)
{
    for (int i = 0; i < VALUES; i++) {
        int r = i % (side * side) / side, c = i % side;
        double x = (r == c ? shift : 0) + 0.5 / (1 + abs(r - c));
        float y = (float)x;
        unsigned bits;
        memcpy(&bits, &y, 4);
        if (t == OPTC_F64)
            ((double *)to)[i] = x;
        else if (t == OPTC_F32)
            ((float *)to)[i] = y;
        else
            ((unsigned short *)to)[i] = (unsigned short)(bits >> 16);
    }
}

/* "optc_eigh: …" and "pf_eigh: …" are the same message. */
static int same_message(const char *a, const char *b)
{
    while (*a && *b) {
        if (!strncmp(a, "optc_", 5) && !strncmp(b, "pf_", 3))
            a += 5, b += 3;
        else if (*a++ != *b++)
            return 0;
    }
    return *a == *b;
}

/* spoil: a value of a that is changed, and to what. missing: the package does not have this
 * form. */
typedef struct Case {
    Call call;
    optc_function f;
    optc_product p;
    double bad;
    int spoil, missing, other_a;
} Case;

static void compare(const Case *x)
{
    optc_type t = x->f.type ? x->f.type : OPTC_F32;
    size_t bytes = VALUES * width(t) * 2;
    char *host = calloc(1, bytes), *got[2][2];
    int status[2];
    char message[2][2048];
    for (int k = 0; k < 2; k++) {
        void *at[ARRAYS] = {0};
        for (int i = 0; i < ARRAYS; i++) {
            need(k ? (int)pf_alloc(pack, (int64_t)bytes, NULL, &at[i])
                   : (int)optc_alloc(lib, (int64_t)bytes, NULL, &at[i]),
                 k ? pf_message() : optc_message());
            fill(host, t, x->call == QR && x->f.n > x->f.m ? 1 : SIDE, 2 + i);
            if (x->bad != 0 && i == 0) {
                if (t == OPTC_F64)
                    ((double *)(void *)host)[x->spoil] = x->bad;
                else
                    ((float *)(void *)host)[x->spoil] = (float)x->bad;
            }
            need(k ? (int)pf_copy(pack, at[i], host, (int64_t)bytes, NULL)
                   : (int)optc_copy(lib, at[i], host, (int64_t)bytes, NULL),
                 k ? pf_message() : optc_message());
        }
        optc_function f = x->f;
        optc_product p = x->p;
        optc_kronecker kr = {.a = at[0],
                             .b = at[1],
                             .c = at[2],
                             .type = t,
                             .m = 2,
                             .n = 3,
                             .p = 2,
                             .q = 2,
                             .batch = 2};
        optc_kron_vector v = {.a = at[0],
                              .b = at[1],
                              .x = at[3],
                              .y = at[2],
                              .type = t,
                              .m = 3,
                              .n = 2,
                              .p = 4,
                              .q = 3};
        optc_linear l = {.act = at[0],
                         .out = at[1],
                         .type = t,
                         .batch = 3,
                         .rows = 2,
                         .in = 4,
                         .outs = 3,
                         .norm = at[3],
                         .sum = at[2],
                         .clip = 0.7,
                         .a = at[2],
                         .g = at[3],
                         .decay = 0.25};
        double residual = -1;
        f.a.data = x->other_a ? NULL : at[0], f.b.data = at[1], f.x.data = at[2], f.y.data = at[3];
        f.residual = x->call <= QR && !f.unchecked ? &residual : NULL;
        p.a = at[0], p.b = p.n ? at[1] : NULL, p.c = at[2], p.d = x->call == CHAIN ? at[3] : NULL,
        p.type = t;
        status[k] = run(k, x->call, &f, &p, &kr, &v, &l);
        snprintf(message[k], sizeof message[k], "%s",
                 status[k] ? k ? pf_message() : optc_message() : "");
        for (int i = 0; i < 2; i++) {
            got[k][i] = calloc(1, bytes + sizeof residual);
            need(k ? (int)pf_copy(pack, got[k][i], at[2 + i], (int64_t)bytes, NULL)
                   : (int)optc_copy(lib, got[k][i], at[2 + i], (int64_t)bytes, NULL),
                 k ? pf_message() : optc_message());
            memcpy(got[k][i] + bytes, &residual, sizeof residual);
        }
        for (int i = 0; i < ARRAYS; i++)
            need(k ? (int)pf_free(pack, at[i], NULL) : (int)optc_free(lib, at[i], NULL),
                 "a free failed");
    }
    int same = status[0] == status[1] && same_message(message[0], message[1]) &&
               !memcmp(got[0][0], got[1][0], bytes + sizeof(double)) &&
               !memcmp(got[0][1], got[1][1], bytes);
    if (x->missing || (!named[x->call] && status[1] == PF_ERROR_UNAVAILABLE))
        same = status[1] == PF_ERROR_UNAVAILABLE && strstr(message[1], "--functions");
    tried++;
    succeeded += status[1] == PF_OK;
    works[x->call] += status[1] == PF_OK;
    wrong += !same;
    if (!same)
        printf("%s, type %d, exponent %g: the library says %d '%s', the package %d '%s'%s\n",
               call_name[x->call], (int)t, x->f.exponent, status[0], message[0], status[1],
               message[1], status[0] == status[1] ? "; the results differ" : "");
    for (int i = 0; i < 4; i++)
        free(got[i / 2][i % 2]);
    free(host);
}

static void read_names(int argc, char **argv)
{
    some = argc > 2;
    for (int c = 0; c < NCALL && !some; c++)
        named[c] = 1;
    for (int i = 2; i < argc; i++) {
        int c = 0;
        while (c < NCALL && strcmp(argv[i], call_name[c]))
            c++;
        need(c == NCALL, "the name of a function is unknown");
        named[c] = 1;
    }
}

int main(int argc, char **argv)
{
    const char *device = argc > 1 ? argv[1] : "cpu";
    read_names(argc, argv);
    static const double exponents[] = {-0.25, -1, 0.3, 2, -0.5, -1.0 / 3};
    need((int)optc_open(&(optc_engine_options){.device = device}, &lib), optc_message());
    need((int)pf_open(&(pf_engine_options){.device = device}, &pack), pf_message());
    for (optc_type t = OPTC_F32; t <= OPTC_BF16; t++) {
        const optc_function f = {.type = t, .m = SIDE, .n = SIDE, .batch = BATCH};
        const optc_product p = {
            .m = SIDE, .n = SIDE, .k = SIDE, .p = SIDE, .batch = BATCH, .scale = 0.5, .add = 2};
        for (int i = 0; i < 6; i++)
            for (int lift = 0; lift < 8; lift += i ? 7 : 1) {
                Case x = {.call = POWER, .f = f};
                x.f.exponent = exponents[i];
                x.f.ridge = lift & 1 ? 0.125 : 0, x.f.relative = lift & 2 ? 0.01 : 0,
                x.f.floor = lift & 4 ? 0.5 : 0;
                compare(&x);
            }
        for (Call c = EIGH; c < NCALL; c++) {
            Case x = {.call = c, .f = f, .p = p};
            compare(&x);
            if (c == PRODUCT)
                x.p.n = 0, compare(&x);                    /* a Gram matrix */
            for (int k = 1; c == SOLVE && k < 5; k++) {
                x.f.upper = k < 4 && k & 1, x.f.right = k < 4 && k >> 1, x.f.positive = k == 4;
                compare(&x);
            }
            x.f.n = c == QR ? WIDE : x.f.n, x.f.unchecked = 1;
            compare(&x);
        }
    }
    /* refused: not a number, not symmetric, not positive, a NULL, sizes, types, exponents */
    const optc_function f = {
        .type = OPTC_F64, .m = SIDE, .n = SIDE, .batch = BATCH, .exponent = -0.5};
    for (Call c = POWER; c <= QR; c++) {
        compare(&(Case){.call = c, .f = f, .bad = NAN, .spoil = 3});
        compare(&(Case){.call = c, .f = f, .bad = 70, .spoil = 1});
        compare(&(Case){.call = c, .f = f, .bad = -50, .spoil = SIDE * SIDE});
        compare(&(Case){.call = c, .f = f, .other_a = 1});
        Case x = {.call = c, .f = f};
        x.f.n = -1;
        compare(&x);
        x.f.n = SIDE, x.f.type = OPTC_Q8;
        compare(&x);
        x.f.type = OPTC_F64, x.f.exponent = 0;
        compare(&x);
    }
    compare(
        &(Case){.call = POLAR,
                .f = {.type = OPTC_F32, .m = SIDE, .n = SIDE, .steps = 5, .coefficients = "jordan"},
                .missing = 1});
    for (int c = 0; c < NCALL; c++)
        if (named[c] && !works[c]) {
            printf("%s: no call of the package's function succeeds\n", call_name[c]);
            wrong++;
        }
    need((int)pf_functions_drop(pack), pf_message());
    need((int)pf_close(pack), pf_message());
    need((int)optc_close(lib), optc_message());
    printf("%s: %d calls of functions of matrices, %d succeed, %d differ from the library's\n",
           device, tried, succeeded, wrong);
    return wrong || succeeded < (some ? 10 : 100) || tried - succeeded < 20;
}
