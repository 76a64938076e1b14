/* Opens cuBLAS by dlopen, and calls its products. $OPTC_CUBLAS names its folder, or is "none". */
#include "runtime/core/matrix/gpu_gemm.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

typedef struct CublasWanted { const char *symbol; size_t at; } CublasWanted;
#define CUBLAS_WANT(name, suffix, args) {#name #suffix, offsetof(Cublas, name##suffix)},
static const CublasWanted cublas_wants[] = {CUBLAS_FUNCTIONS(CUBLAS_WANT){
    "cublasGetStatusString", offsetof(Cublas, cublasGetStatusString)}};
static const CublasWanted cublas_long[] = {CUBLAS_LONG_FUNCTIONS(CUBLAS_WANT)};
static const CublasWanted cublas_lt[] = {CUBLASLT_FUNCTIONS(CUBLAS_WANT)};
#undef CUBLAS_WANT

static bool cublas_take(Cublas *c, void *library, const CublasWanted *w)
{
    void *f = dlsym(library, w->symbol);
    memcpy((char *)c + w->at, &f, sizeof f);
    return f != NULL;
}

static bool cublas_use(Cublas *c, void *library, bool *again, char *why, size_t n)
{
    Dl_info at;
    int major = 0, minor = 0;
    memset(c, 0, sizeof *c);
    for (size_t i = 0; i < sizeof cublas_wants / sizeof *cublas_wants; i++)
        if (!cublas_take(c, library, &cublas_wants[i])) {
            snprintf(why, n, "cuBLAS lacks %s: it is older than CUDA 12.0", cublas_wants[i].symbol);
            return false;
        }
    for (size_t i = 0; i < sizeof cublas_long / sizeof *cublas_long; i++)
        (void)cublas_take(c, library, &cublas_long[i]);
    c->lt = true;                      /* libcublas needs libcublasLt: dlsym finds its functions
                                        * through libcublas */
    for (size_t i = 0; i < sizeof cublas_lt / sizeof *cublas_lt; i++)
        c->lt = cublas_take(c, library, &cublas_lt[i]) && c->lt;
    if (c->cublasGetProperty(MAJOR_VERSION, &major) ||
        c->cublasGetProperty(MINOR_VERSION, &minor)) {
        snprintf(why, n, "cuBLAS was found, but its version cannot be read");
        *again = true;
        return false;
    }
    c->version = major * 1000 + minor * 10;
    void *create = NULL;
    memcpy(&create, (void *)&c->cublasCreate_v2, sizeof create);
    snprintf(c->path, sizeof c->path, "%s",
             dladdr(create, &at) && at.dli_fname ? at.dli_fname : "libcublas.so");
    return true;
}

CORE bool cublas_open(Cublas *c, int driver, bool *again, char *why, size_t n)
{
    static const char *const names[] = {"libcublas.so.13", "libcublas.so.12", NULL};
    static const char *const folders[] = {"nvidia/cu13/lib", "nvidia/cublas/lib", NULL};
    static const CudaLibrary blas = {"cuBLAS", "OPTC_CUBLAS", names, folders, "nvidia-cublas"};
    bool ignored;
    again = again ? again : &ignored;
    void *library = cuda_library(&blas, driver, again, why, n);
    /* never unloaded, like the driver */
    return library && cublas_use(c, library, again, why, n);
}

/* ---- handles ---- */
CORE int cublas_handle_take(const Cublas *c, GpuEngine *g, cublasHandle_t *out)
{
    cublasHandle_t h = (cublasHandle_t)spare_take(g, c->cublasDestroy_v2);
    int rc = h ? 0 : c->cublasCreate_v2(&h);
    *out = rc ? NULL : h;
    if (!rc)
        rc = c->cublasSetPointerMode_v2(h, CUBLAS_POINTER_MODE_HOST);
    if (!rc)            /* sums that several blocks share stay in f32 */
        rc = c->cublasSetMathMode(h, CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION);
    return rc;
}

CORE int cublas_handle_use(const Cublas *c, cublasHandle_t h, CUstream stream, void *space,
                           size_t bytes)
{
    int rc = c->cublasSetStream_v2(h, stream);
    /* cublasSetStream resets the workspace */
    return rc ? rc : c->cublasSetWorkspace_v2(h, space, bytes);
}

CORE optc_status cublas_refused(const Cublas *c, const char *call, int rc, const char *what)
{
    return fail(rc == CUBLAS_STATUS_ALLOC_FAILED ? OPTC_ERROR_MEMORY : OPTC_ERROR_DEVICE,
                "%s: %s%s%s", call, c->cublasGetStatusString(rc), *what ? ": " : "", what);
}

/* ---- products ---- */
CORE bool gemm_is_long(const GpuGemm *x)
{
    return x->m > INT_MAX || x->n > INT_MAX || x->k > INT_MAX || x->lda > INT_MAX ||
           x->ldb > INT_MAX || x->ldc > INT_MAX;
}

static void *gemm_pointer(CUdeviceptr p) { return (void *)(uintptr_t)p; }

CORE int cublas_gemm(const Cublas *f, cublasHandle_t h, const GpuGemm *x)
{
    float small[2] = {(float)x->alpha, (float)x->beta};
    bool f64 = x->type->bytes == 8, far = gemm_is_long(x);
    const void *alpha = f64 ? (const void *)&x->alpha : (const void *)&small[0];
    const void *beta = f64 ? (const void *)&x->beta : (const void *)&small[1];
    cublasOperation_t ta = x->trans_a ? CUBLAS_OP_T : CUBLAS_OP_N,
                      tb = x->trans_b ? CUBLAS_OP_T : CUBLAS_OP_N;
    cudaDataType t = x->type->cuda, tc = x->f32 ? CUDA_R_32F : t;
    cublasComputeType_t in = x->type->compute;
    int m = (int)x->m, n = (int)x->n, k = (int)x->k, lda = (int)x->lda, ldb = (int)x->ldb,
        ldc = (int)x->ldc, count = (int)x->count;
    const void *a = gemm_pointer(x->a.at), *b = gemm_pointer(x->b.at);
    void *c = gemm_pointer(x->c.at);
    if (x->strided && !far)
        return f->cublasGemmStridedBatchedEx(h, tb, ta, n, m, k, alpha, b, t, ldb, x->b.stride, a,
                                             t, lda, x->a.stride, beta, c, tc, ldc, x->c.stride,
                                             count, in, CUBLAS_GEMM_DEFAULT);
    if (x->strided)
        return f->cublasGemmStridedBatchedEx_64(
            h, tb, ta, x->n, x->m, x->k, alpha, b, t, x->ldb, x->b.stride, a, t, x->lda,
            x->a.stride, beta, c, tc, x->ldc, x->c.stride, x->count, in, CUBLAS_GEMM_DEFAULT);
    const void *const *pa = (const void *const *)a, *const *pb = (const void *const *)b;
    void *const *pc = (void *const *)c;
    if (!far)
        return f->cublasGemmBatchedEx(h, tb, ta, n, m, k, alpha, pb, t, ldb, pa, t, lda, beta, pc,
                                      tc, ldc, count, in, CUBLAS_GEMM_DEFAULT);
    return f->cublasGemmBatchedEx_64(h, tb, ta, x->n, x->m, x->k, alpha, pb, t, x->ldb, pa, t,
                                     x->lda, beta, pc, tc, x->ldc, x->count, in,
                                     CUBLAS_GEMM_DEFAULT);
}
