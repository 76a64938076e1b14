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
    EIGEN_ARRAYS,
    EIGEN_NUMBERS_BYTES = 64
};
/* flags of the kernels */
enum {
    EIGEN_ODD = 1, EIGEN_VECTORS = 128, EIGEN_IN_F32 = 256, EIGEN_LIFTED = 512,
    EIGEN_MIRRORED = 1024
};

typedef struct EigenRound {
    const optc_binding *b;
    GpuCalls *x;
    const ProgStage *stage;
    int group;
    int64_t n, wanted;
    EigenMethod method;
    bool f32, spectral;    /* f32: the type of the solver. spectral: as build_eigen */
    /* matrices of a round: a multiple of per_call */
    int64_t count;
    int64_t per_call;                                      /* matrices of a call of the library */
    /* bytes per matrix; offsets of the arrays; bytes of all */
    int64_t each[EIGEN_ARRAYS], at[EIGEN_ARRAYS], bytes;
    int64_t work_at;
    size_t work, host;                                     /* the library's workspace */
    bool fits;
} EigenRound;

/* ---- gpu_eigen.c ---- */
/* a pointer for each matrix in an array; not added yet */
CORE PointerSet eigen_set(const EigenRound *r, int array);
CORE int eigen_array(const EigenRound *r, int array);      /* the same, added: its index */
/* a step of `blocks` blocks for each matrix, over one array; its alpha leads from that to the
 * numbers */
CORE CallStep *eigen_blocks(EigenRound *r, CallKernel kernel, int from, int64_t m, int64_t n,
                            int64_t blocks);

/* ---- gpu_divide.c ---- */
CORE void divide_sizes(const EigenRound *r, int64_t each[EIGEN_ARRAYS]);
CORE void divide_bounds(int64_t n, int *steps, int *sets);           /* upper bounds */
CORE void add_divide(EigenRound *r);
CORE bool divide_launches(const CallStep *s);                      /* divide_launch launches it */
/* Returns the driver's status. *call: the driver's function that returned it */
CORE int divide_launch(const optc_binding *b, const CallStep *s, Matrices of, const char **call);
#endif
