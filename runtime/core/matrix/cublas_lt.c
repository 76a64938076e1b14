/* Products of any number of matrices by one algorithm, which depends on their shape and type only.
 * cuBLAS selects its kernel by the number of matrices too, and kernels sum in different orders.
 * cuBLASLt runs the algorithm that it is
 * given: the same one, and the same bits, for one matrix and for thousands.
 *
 * Measured on an H200 (cuBLAS 13.1): 0 of 2913 random shapes in tf32, f32, f64, f16 and bf16 differ
 * for 2 to 180 matrices with a workspace of 32 MB (1515 of them with algorithms for 12 matrices,
 * the others for 1), and 0 of 333 without one. TFLOP/s in tf32, 12 matrices, by one call of cuBLAS
 * each and by one call of cuBLASLt:
 *   768 x 768 x 768     65, 248 768 x 2304 x 2304 266, 352 768 x 3072 x 3072 230, 350 */
#include "runtime/core/matrix/gpu_gemm.h"

#include <string.h>

/* The number of matrices that the algorithm is selected for. TFLOP/s of 12 matrices in tf32 with 1
 * instead, and with
 * 12: 217, 248; 314, 297; 354, 352; 147, 195; 263, 350; 155, 195; 289, 333; 272, 266. One matrix
 * alone is up to a third slower with 12. A matrix may have several products, its blocks and parts:
 * 252 of a Gram matrix of 50257 x 768 in f16 took 116 us by an algorithm for 12 products, and 63 by
 * one for 12 matrices. */
enum { LT_COUNT = 12 };

/* The operands of a product, in cuBLAS's order: C^T = B^T A^T. */
typedef struct LtProduct {
    cublasLtMatmulDesc_t desc;
    cublasLtMatrixLayout_t left, right, result;
} LtProduct;

static int lt_layout(const Cublas *f, const GpuGemm *x, cudaDataType type, int64_t rows,
                     int64_t cols, int64_t ld, cublasLtMatrixLayout_t *out)
{
    int32_t mode = CUBLASLT_BATCH_MODE_POINTER_ARRAY, count = (int32_t)x->count;
    int rc = f->cublasLtMatrixLayoutCreate(out, type, (uint64_t)rows, (uint64_t)cols, ld);
    if (rc)
        return *out = NULL, rc;
    rc = f->cublasLtMatrixLayoutSetAttribute(*out, CUBLASLT_MATRIX_LAYOUT_BATCH_MODE, &mode,
                                             sizeof mode);
    if (!rc)
        rc = f->cublasLtMatrixLayoutSetAttribute(*out, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count,
                                                 sizeof count);
    return rc;
}

static int lt_open(const Cublas *f, const GpuGemm *x, LtProduct *y)
{
    int32_t ta = x->trans_a ? CUBLAS_OP_T : CUBLAS_OP_N,
            tb = x->trans_b ? CUBLAS_OP_T : CUBLAS_OP_N;
    cudaDataType t = x->type->cuda;
    memset(y, 0, sizeof *y);
    int rc = f->cublasLtMatmulDescCreate(&y->desc, x->type->compute,
                                         x->type->bytes == 8 ? CUDA_R_64F : CUDA_R_32F);
    if (rc)
        return y->desc = NULL, rc;
    rc = f->cublasLtMatmulDescSetAttribute(y->desc, CUBLASLT_MATMUL_DESC_TRANSA, &tb, sizeof tb);
    if (!rc)
        rc =
            f->cublasLtMatmulDescSetAttribute(y->desc, CUBLASLT_MATMUL_DESC_TRANSB, &ta, sizeof ta);
    if (!rc)
        rc = lt_layout(f, x, t, x->trans_b ? x->k : x->n, x->trans_b ? x->n : x->k, x->ldb,
                       &y->left);
    if (!rc)
        rc = lt_layout(f, x, t, x->trans_a ? x->m : x->k, x->trans_a ? x->k : x->m, x->lda,
                       &y->right);
    return rc ? rc : lt_layout(f, x, x->f32 ? CUDA_R_32F : t, x->n, x->m, x->ldc, &y->result);
}

static void lt_close(const Cublas *f, LtProduct *y)
{
    if (y->desc)
        f->cublasLtMatmulDescDestroy(y->desc);
    if (y->left)
        f->cublasLtMatrixLayoutDestroy(y->left);
    if (y->right)
        f->cublasLtMatrixLayoutDestroy(y->right);
    if (y->result)
        f->cublasLtMatrixLayoutDestroy(y->result);
}

/* No workspace, and no sums that several blocks share: their number may depend on the number of
 * matrices. */
static int lt_preference(const Cublas *f, const GpuGemm *x, cublasLtMatmulPreference_t *out)
{
    uint64_t bytes = 0;
    uint32_t reduction = CUBLASLT_REDUCTION_SCHEME_NONE;
    uint32_t aligned = (uint32_t)x->aligned;
    int rc = f->cublasLtMatmulPreferenceCreate(out);
    if (rc)
        return *out = NULL, rc;
    rc = f->cublasLtMatmulPreferenceSetAttribute(*out, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                                 &bytes, sizeof bytes);
    if (!rc)
        rc = f->cublasLtMatmulPreferenceSetAttribute(
            *out, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &reduction, sizeof reduction);
    const int first = CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES,
              last = CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES;
    for (int i = first; i <= last && !rc; i++)
        rc = f->cublasLtMatmulPreferenceSetAttribute(*out, i, &aligned, sizeof aligned);
    return rc;
}

CORE int cublas_lt_choose(const Cublas *f, cublasHandle_t h, const GpuGemm *x, GemmAlgorithm *out)
{
    GpuGemm twelve = *x;
    LtProduct y;
    cublasLtMatmulPreference_t preference = NULL;
    cublasLtMatmulHeuristicResult_t result;
    int n = 0;
    memset(out, 0, sizeof *out);
    memset(&result, 0, sizeof result);
    if (!f->lt)
        return 0;
    twelve.count *= LT_COUNT;
    int rc = lt_open(f, &twelve, &y);
    if (!rc)
        rc = lt_preference(f, x, &preference);
    if (!rc)
        rc = f->cublasLtMatmulAlgoGetHeuristic(h, y.desc, y.left, y.right, y.result, y.result,
                                               preference, 1, &result, &n);
    if (preference)
        f->cublasLtMatmulPreferenceDestroy(preference);
    lt_close(f, &y);
    if (rc == CUBLAS_STATUS_NOT_SUPPORTED || rc == CUBLAS_STATUS_INVALID_VALUE)
        /* an older library, or sizes that it cannot multiply */
        return 0;
    out->known = !rc && n > 0 && !result.state;
    out->algo = result.algo;
    return rc;
}

CORE int cublas_lt_gemm(const Cublas *f, cublasHandle_t h, const GpuGemm *x,
                        const GemmAlgorithm *algorithm, CUstream stream)
{
    float small[2] = {(float)x->alpha, (float)x->beta};
    bool f64 = x->type->bytes == 8;
    const void *a = (const void *)(uintptr_t)x->a.at, *b = (const void *)(uintptr_t)x->b.at;
    const void *d = (const void *)(uintptr_t)x->d.at;
    void *c = (void *)(uintptr_t)x->c.at;
    LtProduct y;
    int rc = lt_open(f, x, &y);
    if (!rc)
        rc = f->cublasLtMatmul(h, y.desc, f64 ? (const void *)&x->alpha : (const void *)&small[0],
                               b, y.left, a, y.right,
                               f64 ? (const void *)&x->beta : (const void *)&small[1], d, y.result,
                               c, y.result, &algorithm->algo, NULL, 0, stream);
    lt_close(f, &y);
    return rc;
}
