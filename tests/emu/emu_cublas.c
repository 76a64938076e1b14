/* A libcublas.so.13 for the emulated driver: plain loops, run in the order of their stream, or
 * recorded into its graph during a capture. It refuses what the real library refuses or might
 * refuse: sizes and leading dimensions that do not fit, memory outside of the device, overlapping
 * results of a batch, a stream or workspace that was not set again. Where the real library's
 * roundings depend on the number of matrices, sums of several matrices run backwards. EMU_LT=none:
 * cuBLASLt without arrays of pointers, as in old versions. Its algorithms sum forwards or backwards
 * by the number of matrices that they are selected for, never by that of a call.
 * EMU_FAIL: the call that fails (emu_fail.h). emu_products: number of products, and of matrices, so
 * far. */
#define _GNU_SOURCE
#include "runtime/library/compile/nvrtc.h"
#include <stdint.h>
#include "runtime/core/matrix/cublas.h"

#include "tests/emu/emu_fail.h"
enum { EMU_INTERNAL = 14 };
#define CALL \
    do { \
        if (told_to_fail("libcublas.so.13")) return CUBLAS_STATUS_EXECUTION_FAILED; \
    } while (0)

#include <dlfcn.h>
#include <math.h>
#include <stdlib.h>

typedef struct Handle { CUstream stream; bool has_stream; void *workspace; size_t bytes; } Handle;
typedef struct Product {
    cublasOperation_t ta, tb;
    int64_t m, n, k, lda, ldb, ldc, count;
    long long sa, sb, sc;                              /* strides; otherwise arrays of pointers */
    /* add: cuBLASLt's addend, pointers; NULL: c */
    const void *a, *b, *add;
    void *c;
    bool strided;
    cudaDataType type, result;
    cublasComputeType_t compute;
    double alpha, beta;
    Handle *h;
    /* of cuBLASLt: 1 forwards, 2 backwards; bytes, or 0 */
    int algorithm, aligned;
} Product;

static long long products, matrices, broken;
void emu_products(long long out[3]);
void emu_products(long long out[3]) { out[0] = products, out[1] = matrices, out[2] = broken; }
static int refuse(const char *why)
{
    return broken++, fprintf(stderr, "emulated cuBLAS: %s\n", why), CUBLAS_STATUS_INVALID_VALUE;
}

/* ---- numbers ---- */
static int width(cudaDataType t)
{
    switch (t) {
    case CUDA_R_64F: return 8;
    case CUDA_R_32F: return 4;
    case CUDA_R_16BF: case CUDA_R_16F: return 2;
    default: fprintf(stderr, "emulated cuBLAS: no data type %d\n", (int)t), abort();
    }
}

static double from_bits(unsigned u) { float x; return memcpy(&x, &u, 4), x; }
static unsigned bits_of(float x) { unsigned u; return memcpy(&u, &x, 4), u; }

static double load(cudaDataType t, const void *p, int64_t i)
{
    if (t == CUDA_R_64F)
        return ((const double *)p)[i];
    if (t == CUDA_R_32F)
        return ((const float *)p)[i];
    unsigned x = ((const unsigned short *)p)[i], mag = x & 0x7fff;
    if (t == CUDA_R_16BF)
        return from_bits(x << 16);
    double v = mag >> 10 == 31 ? (mag & 1023 ? NAN : INFINITY) : mag >> 10
        ? ldexp(1024 + (mag & 1023), (int)(mag >> 10) - 25) : ldexp(mag, -24);
    return x & 0x8000 ? -v : v;
}

static unsigned short to_half(float f)
{
    unsigned sign = bits_of(f) >> 16 & 0x8000;
    double x = fabs((double)f);
    if (isnan(x))
        return 0x7fff;
    int e;
    frexp(x, &e);
    double unit = x < ldexp(1, -14) ? ldexp(1, -24) : ldexp(1, e - 11),
           r = nearbyint(x / unit) * unit;
    if (r >= 65520)
        return (unsigned short)(sign | 0x7c00);
    if (r < ldexp(1, -14))
        return (unsigned short)(sign | (unsigned)ldexp(r, 24));
    frexp(r, &e);
    return (unsigned short)(sign | (unsigned)(e + 14) << 10 | ((unsigned)ldexp(r, 11 - e) & 1023));
}

static void store(cudaDataType t, void *p, int64_t i, double x)
{
    unsigned u = bits_of((float)x);
    if (t == CUDA_R_64F)
        ((double *)p)[i] = x;
    else if (t == CUDA_R_32F)
        ((float *)p)[i] = (float)x;
    else
        ((unsigned short *)p)[i] = t == CUDA_R_16F ? to_half((float)x) : isnan(x) ? 0x7fff
        : (unsigned short)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

/* tf32 has 10 bits of mantissa. */
static double operand(const Product *p, const void *x, int64_t i)
{
    double v = load(p->type, x, i);
    if (p->compute != CUBLAS_COMPUTE_32F_FAST_TF32 || !isfinite(v))
        return v;
    unsigned u = bits_of((float)v);
    return from_bits((u + 0xfff + (u >> 13 & 1)) & ~0x1fffu);
}

/* Copies an operand: n vectors of length k, over which the product sums. by_term: value l of all
 * vectors, then value l + 1 of all. along: the vectors of x are contiguous; otherwise each is a
 * row. */
static double *unpack(const Product *p, const void *x, int64_t n, int64_t ld, bool along,
                      bool by_term)
{
    double *out = malloc(sizeof *out * (size_t)(n * p->k) + 1);
    for (int64_t i = 0; out && i < n; i++)
        for (int64_t l = 0; l < p->k; l++)
            out[by_term ? l * n + i : i * p->k + l] =
                operand(p, x, along ? l + i * ld : i + l * ld);
    return out;
}

static bool on_tensor_cores(const Product *p)
{
    return p->type == CUDA_R_16F || p->type == CUDA_R_16BF ||
           p->compute == CUBLAS_COMPUTE_32F_FAST_TF32;
}

/* Seen on an H200 (gpu_products.c has the figures). p->n are the caller's rows. */
static bool sums_backwards(const Product *p)
{
    bool few = p->m <= 16 || p->n <= 16 || p->k <= 16,
         rows = (p->lda | p->ldb | p->ldc) * width(p->type) % 16 == 0;
    bool odd = (p->m | p->n | p->k) * width(p->type) % 16 != 0 || !rows;
    if (p->algorithm)
        return p->algorithm == 2;
    bool selects = p->compute == CUBLAS_COMPUTE_32F_FAST_TF32 ||
        (on_tensor_cores(p) ? odd && (few || !rows) : p->n <= 16);
    return p->count > 1 && (p->strided || selects);
}

/* Column-major, as in cuBLAS. The values of a column are summed side by side, so that the compiler
 * can use vectors. */
static void multiply(const Product *p, const void *a, const void *b, const void *add, void *c)
{
    const bool f64 = p->compute == CUBLAS_COMPUTE_64F, backwards = sums_backwards(p);
    const size_t m = (size_t)p->m;
    double *rows = unpack(p, a, p->m, p->lda, p->ta, true),
           *cols = unpack(p, b, p->n, p->ldb, !p->tb, false);
    double *wide = malloc(m * sizeof *wide + 1);
    float *sum = malloc(m * sizeof *sum + 1);
    const bool room = rows && cols && wide && sum;
    if (!room)
        refuse("out of memory");
    for (int64_t j = 0; room && j < p->n; j++) {
        memset(wide, 0, m * sizeof *wide);
        memset(sum, 0, m * sizeof *sum);
        for (int64_t t = 0; t < p->k; t++) {
            const int64_t l = backwards ? p->k - 1 - t : t;
            const double *x = rows + l * p->m, y = cols[j * p->k + l];
            if (f64)
                for (size_t i = 0; i < m; i++)
                    wide[i] += x[i] * y;
            else
                for (size_t i = 0; i < m; i++)
                    sum[i] += (float)x[i] * (float)y;
        }
        for (int64_t i = 0; i < p->m; i++) {
            double was = p->beta == 0 ? 0 : load(p->result, add, i + j * p->ldc);
            store(p->result, c, i + j * p->ldc,
                  f64 ? p->alpha * wide[i] + p->beta * was
                      : (float)p->alpha * sum[i] + (float)p->beta * (float)was);
        }
    }
    free(rows);
    free(cols);
    free(wide);
    free(sum);
}

/* ---- what happens in the stream ---- */
static int (*in_stream)(CUstream, void (*)(const void *), const void *, size_t);
static int (*reaches)(const void *, size_t);

static const void *nth(const Product *p, const void *base, long long stride, int64_t i)
{
    return p->strided ? (const char *)base + i * stride * width(p->type)
                      : ((const void *const *)base)[i];
}

static size_t extent(cudaDataType t, int64_t rows, int64_t cols, int64_t ld)
{
    return rows && cols ? (size_t)((cols - 1) * ld + rows) * (size_t)width(t) : 0;
}

/* Alignment for tensor cores with arrays of pointers: cuBLAS requires it and does not check it. */
static bool lies_ill(const Product *p, const void *x)
{
    unsigned by = p->k % 8 == 0 ? 16 : p->k % 2 == 0 ? 4 : 1;
    if (p->aligned)
        return (uintptr_t)x % (unsigned)p->aligned;
    return on_tensor_cores(p) && !p->strided && p->k && (uintptr_t)x % by;
}

static bool overlap(const void *x, size_t nx, const void *y, size_t ny)
{
    return (uintptr_t)x < (uintptr_t)y + ny && (uintptr_t)y < (uintptr_t)x + nx;
}

/* A line of the driver's log (emu_log.h). */
static void log_product(const Product *p)
{
    static int (*log_library)(const char *, const void *const *const *, int, int);
    const void **list[4];
    const int lists = p->add ? 4 : 3;
    char what[200];
    if (!log_library)
        *(void **)&log_library = dlsym(RTLD_DEFAULT, "emu_log_library");
    if (!log_library)
        return;
    snprintf(what, sizeof what, "product %s%s %lldx%lldx%lld types %d %d compute %d ld %lld %lld "
             "%lld alpha %g beta %g algorithm %d %s", p->ta ? "t" : "n", p->tb ? "t" : "n",
             (long long)p->m, (long long)p->n, (long long)p->k, (int)p->type, (int)p->result,
             (int)p->compute, (long long)p->lda, (long long)p->ldb, (long long)p->ldc, p->alpha,
             p->beta, p->algorithm, p->strided ? "strided" : "pointers");
    for (int i = 0; i < lists; i++) {
        const void *const base = i == 0 ? p->a : i == 1 ? p->b : i == 2 ? p->c : p->add;
        list[i] = malloc(sizeof *list[i] * (size_t)(p->count + 1));
        for (int64_t k = 0; k < p->count; k++)
            list[i][k] = nth(p, base, i == 0 ? p->sa : i == 1 ? p->sb : i == 2 ? p->sc : 0, k);
    }
    log_library(what, (const void *const *const *)list, lists, (int)p->count);
    for (int i = 0; i < lists; i++)
        free(list[i]);
}

static void run(const void *data)
{
    const Product *p = data;
    if (!p->strided &&
        !(reaches(p->a, (size_t)p->count * 8) && reaches(p->b, (size_t)p->count * 8) &&
          reaches(p->c, (size_t)p->count * 8) &&
          (!p->add || reaches(p->add, (size_t)p->count * 8)))) {
        refuse("an array of pointers does not lie in the device's memory");
        return;
    }
    log_product(p);
    size_t na = extent(p->type, p->ta ? p->k : p->m, p->ta ? p->m : p->k, p->lda),
        nb = extent(p->type, p->tb ? p->n : p->k, p->tb ? p->k : p->n, p->ldb),
        nc = extent(p->result, p->m, p->n, p->ldc);
    for (int64_t i = 0; i < p->count; i++) {
        const void *a = nth(p, p->a, p->sa, i), *b = nth(p, p->b, p->sb, i);
        void *c = (void *)(uintptr_t)nth(p, p->c, p->sc, i);
        const void *add = p->add ? nth(p, p->add, 0, i) : c;
        bool twice = i && nth(p, p->c, p->sc, i - 1) == c;
        if (!reaches(a, na) || !reaches(b, nb) || !reaches(c, nc) || !reaches(add, nc) ||
            (uintptr_t)a % (unsigned)width(p->type) || (uintptr_t)b % (unsigned)width(p->type) ||
            (uintptr_t)c % (unsigned)width(p->result) || twice)
            refuse(twice ? "two matrices of a batch are written to one place"
                   : "a matrix does not lie in the device's memory, or not by its type");
        else if (lies_ill(p, a) || lies_ill(p, b) || lies_ill(p, c) || lies_ill(p, add))
            refuse("a matrix of a batch that tensor cores take is not aligned to 16 bytes, or by "
                   "odd lengths to 4");
        else if (overlap(a, na, c, nc) || overlap(b, nb, c, nc) ||
                 (add != c && overlap(add, nc, c, nc)))
            refuse("a result is written over an operand");
        else
            multiply(p, a, b, add, c);
    }
}

static int enqueue(Product *p, const void *alpha, const void *beta, cudaDataType b, cudaDataType c,
                   cublasGemmAlgo_t algo)
{
    Handle *h = p->h;
    bool f64 = p->type == CUDA_R_64F;
    if (!in_stream) {
        *(void **)&in_stream = dlsym(RTLD_DEFAULT, "emu_in_stream");
        *(void **)&reaches = dlsym(RTLD_DEFAULT, "emu_reaches");
    }
    if (!h || !in_stream || !reaches)
        return CUBLAS_STATUS_NOT_INITIALIZED;
    if (!h->has_stream || !h->workspace)
        return refuse("a product before a stream and behind it a workspace were set");
    if (p->m < 0 || p->n < 0 || p->k < 0 || p->count < 0 || p->ta > 1 || p->tb > 1 ||
        algo != CUBLAS_GEMM_DEFAULT)
        return refuse("a size below 0, or an operation it does not know");
    if (p->lda < 1 || p->ldb < 1 || p->ldc < 1 || p->lda < (p->ta ? p->k : p->m) ||
        p->ldb < (p->tb ? p->n : p->k) || p->ldc < p->m)
        return refuse("a leading dimension is less than a column is long");
    p->result = c;
    if (p->type != b || (p->type != c && (c != CUDA_R_32F || f64)) ||
        f64 != (p->compute == CUBLAS_COMPUTE_64F) ||
        (p->compute == CUBLAS_COMPUTE_32F_FAST_TF32 && p->type != CUDA_R_32F))
        return refuse("types that do not go together");
    p->alpha = f64 ? *(const double *)alpha : *(const float *)alpha;
    p->beta = f64 ? *(const double *)beta : *(const float *)beta;
    products++;
    matrices += p->count;
    return in_stream(h->stream, run, p, sizeof *p) ? EMU_INTERNAL : 0;
}

#define BATCHED(name, I) \
    int name(cublasHandle_t h, cublasOperation_t ta, cublasOperation_t tb, I m, I n, I k, \
             const void *alpha, const void *const *a, cudaDataType at, I lda, \
             const void *const *b, cudaDataType bt, I ldb, const void *beta, void *const *c, \
             cudaDataType ct, I ldc, I count, cublasComputeType_t compute, cublasGemmAlgo_t algo); \
    int name(cublasHandle_t h, cublasOperation_t ta, cublasOperation_t tb, I m, I n, I k, \
             const void *alpha, const void *const *a, cudaDataType at, I lda, \
             const void *const *b, cudaDataType bt, I ldb, const void *beta, void *const *c, \
             cudaDataType ct, I ldc, I count, cublasComputeType_t compute, cublasGemmAlgo_t algo) \
    { \
        CALL; \
        Product p = {.ta = ta, \
                     .tb = tb, \
                     .m = m, \
                     .n = n, \
                     .k = k, \
                     .lda = lda, \
                     .ldb = ldb, \
                     .ldc = ldc, \
                     .count = count, \
                     .a = a, \
                     .b = b, \
                     .c = (void *)(uintptr_t)c, \
                     .type = at, \
                     .compute = compute, \
                     .h = h}; \
        return enqueue(&p, alpha, beta, bt, ct, algo); \
    }
BATCHED(cublasGemmBatchedEx, int)
BATCHED(cublasGemmBatchedEx_64, int64_t)

#define STRIDED(name, I) \
    int name(cublasHandle_t h, cublasOperation_t ta, cublasOperation_t tb, I m, I n, I k, \
             const void *alpha, const void *a, cudaDataType at, I lda, long long sa, \
             const void *b, cudaDataType bt, I ldb, long long sb, const void *beta, void *c, \
             cudaDataType ct, I ldc, long long sc, I count, cublasComputeType_t compute, \
             cublasGemmAlgo_t algo); \
    int name(cublasHandle_t h, cublasOperation_t ta, cublasOperation_t tb, I m, I n, I k, \
             const void *alpha, const void *a, cudaDataType at, I lda, long long sa, \
             const void *b, cudaDataType bt, I ldb, long long sb, const void *beta, void *c, \
             cudaDataType ct, I ldc, long long sc, I count, cublasComputeType_t compute, \
             cublasGemmAlgo_t algo) \
    { \
        CALL; \
        Product p = {.ta = ta, \
                     .tb = tb, \
                     .m = m, \
                     .n = n, \
                     .k = k, \
                     .lda = lda, \
                     .ldb = ldb, \
                     .ldc = ldc, \
                     .count = count, \
                     .sa = sa, \
                     .sb = sb, \
                     .sc = sc, \
                     .a = a, \
                     .b = b, \
                     .c = c, \
                     .strided = true, \
                     .type = at, \
                     .compute = compute, \
                     .h = h}; \
        return enqueue(&p, alpha, beta, bt, ct, algo); \
    }
STRIDED(cublasGemmStridedBatchedEx, int)
STRIDED(cublasGemmStridedBatchedEx_64, int64_t)

/* ---- cuBLASLt ---- */
typedef struct Layout {
    cudaDataType type; uint64_t rows, cols; int64_t ld; int mode, count;
} Layout;
typedef struct Desc { cublasComputeType_t compute; cudaDataType scale; int trans[2]; } Desc;
typedef struct Preference { uint64_t bytes; uint32_t reduction, aligned[4]; } Preference;
#define DECLARED(name, suffix, args) int name args;
CUBLASLT_FUNCTIONS(DECLARED)

/* Descriptors are structs in memory of their own. */
static int describe(void **out, const void *from, size_t n)
{
    CALL;
    void *x = malloc(n);
    return *out = memcpy(x, from, n), 0;
}
int cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *out, cudaDataType t, uint64_t rows,
                               uint64_t cols, int64_t ld)
{
    return describe(out, &(Layout){t, rows, cols, ld, 0, 1}, sizeof(Layout));
}
int cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *out, cublasComputeType_t compute,
                             cudaDataType scale)
{
    return describe(out, &(Desc){compute, scale, {0, 0}}, sizeof(Desc));
}
int cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *out)
{
    return describe(out, &(Preference){0}, sizeof(Preference));
}
int cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t x) { return free(x), 0; }
int cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t x) { return free(x), 0; }
int cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t x) { return free(x), 0; }
int cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t to,
                                     cublasLtMatrixLayoutAttribute_t what, const void *from,
                                     size_t n)
{
    CALL;
    Layout *x = to;
    const char *lt = getenv("EMU_LT");
    bool mode = what == CUBLASLT_MATRIX_LAYOUT_BATCH_MODE;
    bool known = mode ? !lt || strcmp(lt, "none") : what == CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT;
    if (n != sizeof(int) || !known)
        return CUBLAS_STATUS_INVALID_VALUE;
    return memcpy(mode ? &x->mode : &x->count, from, n), 0;
}
int cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t to, cublasLtMatmulDescAttributes_t what,
                                   const void *from, size_t n)
{
    CALL;
    Desc *x = to;
    bool b = what == CUBLASLT_MATMUL_DESC_TRANSB;
    if (n != sizeof(int) || (!b && what != CUBLASLT_MATMUL_DESC_TRANSA))
        return refuse("an attribute of a product that it does not know");
    return memcpy(&x->trans[b], from, n), 0;
}
int cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t to,
                                         cublasLtMatmulPreferenceAttributes_t what,
                                         const void *from, size_t n)
{
    CALL;
    Preference *x = to;
    int side = what - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES;
    void *at = what == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES     ? (void *)&x->bytes
               : what == CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK ? &x->reduction
               : side >= 0 && side < 4                              ? &x->aligned[side] : NULL;
    if (!at || n != (at == (void *)&x->bytes ? 8 : 4))
        return refuse("a preference that it does not know");
    return memcpy(at, from, n), 0;
}

/* data: the algorithm, the alignment, and the shape that it is for */
static cublasLtMatmulAlgo_t algorithm_for(const Desc *d, const Layout *a, const Layout *c,
                                          int algorithm, int aligned)
{
    uint64_t k = d->trans[0] ? a->rows : a->cols;
    return (cublasLtMatmulAlgo_t){{(uint64_t)algorithm, (uint64_t)aligned, c->rows, c->cols, k,
                                   (uint64_t)d->compute, (uint64_t)c->type, 0}};
}
int cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t h, cublasLtMatmulDesc_t desc,
                                   cublasLtMatrixLayout_t al, cublasLtMatrixLayout_t bl,
                                   cublasLtMatrixLayout_t cl, cublasLtMatrixLayout_t dl,
                                   cublasLtMatmulPreference_t preference, int wanted,
                                   cublasLtMatmulHeuristicResult_t *out, int *n)
{
    CALL;
    const Layout *a = al, *b = bl, *c = cl;
    const Preference *x = preference;
    if (!h || cl != dl || wanted != 1 || a->mode != 1 || b->mode != 1 || c->mode != 1 || x->bytes ||
        x->reduction)
        return refuse("a preference or an array that is not as our products need it");
    *out = (cublasLtMatmulHeuristicResult_t){.algo = algorithm_for(desc, a, c, c->count > 1 ? 2 : 1,
                                                                   (int)x->aligned[0])};
    return *n = 1, 0;
}
int cublasLtMatmul(cublasLtHandle_t h, cublasLtMatmulDesc_t desc, const void *alpha, const void *a,
                   cublasLtMatrixLayout_t al, const void *b, cublasLtMatrixLayout_t bl,
                   const void *beta, const void *c, cublasLtMatrixLayout_t cl, void *to,
                   cublasLtMatrixLayout_t dl, const cublasLtMatmulAlgo_t *algo, void *space,
                   size_t bytes, cudaStream_t stream)
{
    CALL;
    const Layout *x = al, *y = bl, *z = cl;
    const Desc *d = desc;
    cublasLtMatmulAlgo_t own = algorithm_for(d, x, z, (int)algo->data[0], (int)algo->data[1]);
    Handle on = {stream, true, (void *)&on, 0};
    if (!h || cl != dl || x->count != y->count || x->count != z->count || space || bytes ||
        memcmp(&own, algo, sizeof own) || x->mode != 1 || y->mode != 1 || z->mode != 1)
        return refuse("an algorithm of another product, or arrays that do not go together");
    Product p = {.ta = d->trans[0],
                 .tb = d->trans[1],
                 .m = (int64_t)z->rows,
                 .n = (int64_t)z->cols,
                 .k = (int64_t)(d->trans[0] ? x->rows : x->cols),
                 .lda = x->ld,
                 .ldb = y->ld,
                 .ldc = z->ld,
                 .count = z->count,
                 .a = a,
                 .b = b,
                 .add = c,
                 .c = to,
                 .type = x->type,
                 .compute = d->compute,
                 .h = &on,
                 .algorithm = (int)algo->data[0],
                 .aligned = (int)algo->data[1]};
    return enqueue(&p, alpha, beta, y->type, z->type, CUBLAS_GEMM_DEFAULT);
}

/* ---- handles ---- */
int cublasCreate_v2(cublasHandle_t *h);
int cublasDestroy_v2(cublasHandle_t h);
int cublasGetProperty(libraryPropertyType what, int *out);
int cublasSetStream_v2(cublasHandle_t h, cudaStream_t s);
int cublasSetWorkspace_v2(cublasHandle_t h, void *p, size_t n);
int cublasSetMathMode(cublasHandle_t h, cublasMath_t mode);
int cublasSetPointerMode_v2(cublasHandle_t h, cublasPointerMode_t mode);
const char *cublasGetStatusString(cublasStatus_t rc);
int cublasCreate_v2(cublasHandle_t *h)
{
    int (*allocates)(void);
    CALL;
    *(void **)&allocates = dlsym(RTLD_DEFAULT, "emu_library_allocates");
    if (allocates && allocates())
        return CUBLAS_STATUS_ALLOC_FAILED;
    return *h = calloc(1, sizeof(Handle)), 0;
}
int cublasDestroy_v2(cublasHandle_t h) 
{
    int (*all_wait)(void);
    *(void **)&all_wait = dlsym(RTLD_DEFAULT, "emu_all_wait");
    return free(h), all_wait ? (all_wait(), 0) : 0;
}
int cublasGetProperty(libraryPropertyType what, int *out)
{
    CALL;
    return *out = what == MAJOR_VERSION ? 13 : 1, 0;
}
int cublasSetStream_v2(cublasHandle_t h, cudaStream_t s)
{
    CALL;
    Handle *x = h;
    *x = (Handle){s, true, NULL, 0};                   /* setting the stream resets the workspace */
    return 0;
}
int cublasSetWorkspace_v2(cublasHandle_t h, void *p, size_t n)
{
    CALL;
    Handle *x = h;
    if ((uintptr_t)p % 256)
        return refuse("a workspace that is not aligned to 256 bytes");
    x->workspace = p;
    x->bytes = n;
    return 0;
}
int cublasSetMathMode(cublasHandle_t h, cublasMath_t mode)
{
    CALL; return h && mode >= 0 ? 0 : CUBLAS_STATUS_INVALID_VALUE;
}
int cublasSetPointerMode_v2(cublasHandle_t h, cublasPointerMode_t mode)
{
    CALL; return h && mode == CUBLAS_POINTER_MODE_HOST ? 0 : CUBLAS_STATUS_INVALID_VALUE;
}
const char *cublasGetStatusString(cublasStatus_t rc)
{
    return rc == CUBLAS_STATUS_INVALID_VALUE ? "CUBLAS_STATUS_INVALID_VALUE"
                                             : "CUBLAS_STATUS_EMULATED";
}
