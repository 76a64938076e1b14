/* A round of eigenvectors on a GPU: the matrices that are computed at a time, and the memory for
 * them. gpu_eigen.c starts and ends it, and gpu_divide.c adds the steps of divide and conquer. */
#ifndef OPTC_CORE_GPU_EIGEN_H
#define OPTC_CORE_GPU_EIGEN_H
#include "runtime/core/matrix/gpu_calls.h"

/* Arrays of a round. SQUARES: the matrices, and their eigenvectors in the end. MORE: scratch, as
 * large, and the power's factor; PRODUCT: the power. PARTS, BASES: scratch of divide and conquer.
 * VALUES: the eigenvalues, first. */
enum {
    EIGEN_SQUARES,
    EIGEN_MORE,
    EIGEN_PARTS,
    EIGEN_BASES,
    EIGEN_PRODUCT,
    EIGEN_VALUES,
    EIGEN_NUMBERS,
    EIGEN_INFO,
    EIGEN_WORK,
    EIGEN_ARRAYS,
    EIGEN_NUMBERS_BYTES = 64
};
/* flags of the kernels */
enum {
    EIGEN_ODD = 1, EIGEN_VECTORS = 128, EIGEN_IN_F32 = 256, EIGEN_LIFTED = 512,
    EIGEN_MIRRORED = 1024
};

/* ---- gpu_eigen.c ---- */
CORE int eigen_array(const MethodAt *f, int array);        /* the set of an array */
CORE bool eigen_f32(const MethodAt *f);                    /* the type of the solver */
/* Over one array: a kernel's alpha leads from that to the numbers. */
CORE CallStep *eigen_blocks(MethodAt *f, CallKernel kernel, int from, int64_t m, int64_t n,
                            int64_t blocks);

/* ---- gpu_divide.c ---- */
CORE void divide_sizes(const MethodAt *f, int64_t each[EIGEN_ARRAYS]);
CORE void add_divide(MethodAt *f);
#endif
