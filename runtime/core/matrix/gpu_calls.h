/* Calls on a GPU: what a rule's products take, made ready when binding.
 *
 *   CallGroup    tensors of a batch that have one shape: their matrices are one call
 *   PointerSet   where the matrices of an array, or blocks of them, lie: one for each of a group's, in the order of its
 *                tensors. Arrays on the device that a kernel of ours fills from the binding's table of pointers, anew
 *                when one has moved; equal sets are one
 *   CallStep     one call of the library or launch of ours over a group
 *   GpuCall      the steps of a stage over a batch
 *
 * Row by row our C = A B is, column by column as cuBLAS has matrices, its C^T = B^T A^T: operands change places. */
#ifndef OPTC_CORE_GPU_CALLS_H
#define OPTC_CORE_GPU_CALLS_H
#include "runtime/core/matrix/cpu_calls.h"
#include "runtime/core/gpu/gpu_device.h"
#include "runtime/core/matrix/cuda_library.h"

/* Arrays that are no rule's: areas of a matrix' record, and what is said of a factor (FactorStats). */
enum { AREAS = 5, RECORD_NUMBERS = 32 };
#define AREA(k) (-1 - (k))
enum { OWN_STATS = -6, OWN_EIGEN = -7 };
OPTC_COUNT bool is_area(int array) { return array < 0 && array > OWN_STATS; }

/* optc_call and optc_matrix_address of the kernels */
typedef struct CallArgs { CUdeviceptr a, b, c; int m, n, k, flags; double alpha, beta; } CallArgs;
typedef struct MatrixAddress { long long slot, offset; } MatrixAddress;

/* sets: the first, or -1; apart: of elements, from row to row; now: matrices of the tensors that take part; turns: of
 * those alone that have their turn (ProgStage.turns); again: of those alone whose roots by that stage want f64 */
typedef struct CallGroup {
    const int *tensor; int n, sets;
    Shape shape;
    int64_t row_stride, now;
    unsigned stagger;
    const ProgStage *again;
} CallGroup;

typedef struct PointerSet {
    /* blocks 0: one pointer a matrix, `offset` values into it; else one for each block (i, j), j <= i < blocks,
     * i * down + j * across values into it */
    int array, group, blocks;
    int64_t offset, down, across;
    int next;                              /* of its group; -1: none */
    int bytes;                             /* of a value */
    int64_t each, at;                      /* pointers of a matrix; where they begin among all */
    /* rows lie so far apart; 0: as many values as one has. For kernels of ours it stands ahead of the pointers */
    int64_t row_stride;
    /* of areas: bytes of the matrix' record, and values ahead of it there. They are there for as many matrices as fit */
    int64_t record, base;
    int64_t most;                          /* of eigenvectors', which lie in memory of their own, base bytes into it */
    /* they never move and lie `stride` values apart: no array of pointers is needed */
    bool even;
    CUdeviceptr first;
    long long stride;
} PointerSet;

/* A precision of products as cuBLAS and our kernels have it (products.def). */
typedef struct CallType {
    Product product;
    Type type;
    cudaDataType cuda;
    cublasComputeType_t compute;
    int bytes;
    CallKernel mm, over, mirror;
    const char *name;
} CallType;

typedef struct CallStep {
    CallKernel kernel;                     /* of a product, and EIGEN_ROTATE, a library may be asked instead (own) */
    const CallType *type;
    int group, a, b, c;                    /* sets */
    int64_t m, n, k, lda, ldb, ldc;
    unsigned flags;                        /* ProductFlag */
    double alpha, beta;
    bool own;                              /* a kernel of ours though there is a library */
    unsigned blocks;                       /* ours: of one matrix */
    int64_t at_once;                       /* matrices; such steps of a group go round together. 0: all of them */
    /* of eigenvectors: the library's workspace; the step that asks the library, -1: none; whether a capture takes that;
     * in whose place this one is while it does not */
    int64_t work_at;
    size_t work, host;
    int solver;
    bool captured, instead;
} CallStep;
/* The matrices of a group that a step goes over. */
typedef struct Matrices { int64_t from, n; } Matrices;
/* stagger_first, stagger_n: the steps of a stage with turns, over those alone that have theirs */
typedef struct GpuCall { const ProgStage *stage; int batch, first, n, stagger_first, stagger_n; } GpuCall;

/* cuSOLVER, and what eigenvectors are found in; largest: the call that needs most of it */
typedef struct Eigen {
    bool asked, library;
    Cusolver f;
    char why[400], largest[400];
    cusolverDnHandle_t handle;
    cusolverDnParams_t params;
    CUstream on; bool is_on;
    CUdeviceptr scratch; int64_t bytes;
    void *host; size_t host_bytes;
} Eigen;

enum { TRIED_MOST = 128 };
typedef struct GpuCalls {
    bool library;
    Cublas blas;
    char why[400];                         /* there is no library */
    cublasHandle_t handle;
    CUstream own, inner, on; bool is_on;   /* to capture in; on: the handle's stream, and its workspace is set */
    GpuCall *call; int ncall;
    CallGroup *group; int ngroup, near;    /* near: where the next one asked for is looked for first */
    PointerSet *set; int nset;
    CallStep *step; int nstep;
    int *alike;                            /* by tensor: those of its shape, in all batches */
    bool *present;                         /* by tensor: it takes part in what the arrays hold now */
    bool sent;                             /* the device knows of them */
    bool moves;                            /* a gradient or input is an operand */
    CUdeviceptr scratch; int64_t room_bytes;  /* for records of roots */
    /* of the root or factor whose steps are being made: bytes of its record, values ahead of the areas and of the numbers;
     * of areas that are no squares, of a row */
    int64_t record, area[AREAS], area_ld[AREAS], numbers;
    int value_bytes;                       /* of the areas' */
    bool *wide;                            /* by number of what is said: in f64, since f32 did not do */
    struct RootsF32 *roots_f32;                 /* NULL: there are no roots in f32 */
    int64_t npointer, stagger_from;           /* from there on of groups with turns, anew at every step */
    CUdeviceptr memory, places, pointers, periods; size_t bytes;
    Eigen eigen;
    unsigned long long tried[TRIED_MOST]; unsigned ntried;     /* calls_probe: plays, with numbers of matrices */
    CUgraphExec *whole;                    /* by entry: all phases, each where the device says so */
} GpuCalls;

CORE const CallType *call_type_f64(void);
CORE const CallType *call_type_f32(void);
CORE const CallType *call_type(const Program *p);          /* NULL: its products are in a type that is none of these */
/* "the product of 3 x 4 by 4 x 3 in bf16 (…)" */
CORE void call_label(const optc_binding *b, const ProgStage *s, const CallGroup *g, char *buf, size_t n);

/* ---- gpu_call_build.c ---- */
CORE optc_status count_alike(optc_binding *b, GpuCalls *x);
/* Matrices of a group's shape, in all batches: what is chosen by their number is not to follow from how many of them a
 * workspace holds at a time */
CORE int64_t all_matrices(const GpuCalls *x, int group);
CORE int add_set(GpuCalls *x, const PointerSet *want);     /* or one that is equal */
CORE int whole_set(GpuCalls *x, int array, int group, int64_t offset);
/* blocks of a launch over one matrix of m x n (KernelGrid); lower: of a symmetric product */
CORE int64_t kernel_blocks(CallKernel k, int64_t m, int64_t n, bool lower);
CORE CallStep *add_step(GpuCalls *x, CallKernel kernel, const CallType *t, int group);
CORE bool product_steps(const optc_binding *b, GpuCalls *x, const CallType *t, const ProgCall *c, int group,
                        ProductShape z, bool own);
CORE optc_status add_product(const optc_binding *b, GpuCalls *x, const ProgStage *stage, int group);
CORE optc_status too_long(const optc_binding *b, const ProgStage *s, const CallGroup *g, const char *why);
CORE bool step_long(const CallStep *s);                    /* lengths beyond 32 bits */
/* ---- gpu_roots.c ---- */
CORE bool is_root(const ProgStage *s);
CORE int64_t root_side(const Program *p, const ProgCall *c, Shape s);
CORE int64_t roots_bytes(const optc_binding *b);
CORE int root_step_count(const ProgStage *stage);          /* at most */
CORE optc_status add_root(const optc_binding *b, GpuCalls *x, const ProgStage *stage, int group);
CORE int factor_stats_set(GpuCalls *x, const optc_binding *b, const ProgStage *stage, int group);
CORE int64_t root_pointers(const GpuCalls *x, const PointerSet *s);
CORE void root_addresses(const optc_binding *b, const GpuCalls *x, PointerSet *s, MatrixAddress *to);

/* ---- gpu_roots_f32.c ---- */
CORE bool f64_fast(int arch);                              /* its f64 products run at half the rate of f32 or more */
CORE bool f32_suffices(int p, double share, int64_t rows);   /* it is exact enough */
CORE bool root_in_f32(const optc_binding *b, const ProgStage *stage, int64_t rows);     /* in f32, where that does */
CORE optc_status roots_f32_bind(optc_binding *b);             /* what is said of factors has its place */
CORE void roots_f32_unbind(optc_binding *b);

/* ---- gpu_factors.c ---- */
CORE bool is_factor(const ProgStage *s);                   /* chol, qr, solve */
CORE int64_t factor_record(const optc_binding *b, const ProgStage *s, Shape shape);
CORE void factor_most(const optc_binding *b, const ProgStage *s, Shape shape, int *steps, int *sets);
CORE optc_status add_factor(const optc_binding *b, GpuCalls *x, const ProgStage *stage, int group);
CORE bool is_order(const ProgStage *s);                    /* sort, take */
CORE optc_status add_order(const optc_binding *b, GpuCalls *x, const ProgStage *stage, int group);

/* ---- gpu_eigen.c ---- */
enum { STEPS_EIGEN = 2 * 14, SETS_EIGEN = 2 * 11 };        /* of a group, at most */
CORE bool is_eigen(const ProgStage *s);                    /* eigh, and powers that are no roots by products */
CORE void eigen_path(const optc_rule *r, char *buf, size_t n);     /* of rules that have such */
/* what was measured; rows 0: whether any such matrices are in f32 */
CORE EigenMethod method_known(const optc_engine *e, bool roots, bool f64, int64_t rows, int64_t matrices);
/* of a package's results */
CORE EigenMethod method_packed(const KnownMethod *w, int n, bool roots, bool f64, int power, int bucket);
/* where nobody measured, and there is a library */
CORE EigenMethod eigen_model(const GpuEngine *g, bool f64, int64_t n);
CORE EigenMethod eigen_rotation_method(const GpuEngine *g, int64_t n, int64_t matrices);       /* without one */
CORE optc_status add_eigen(const optc_binding *b, GpuCalls *x, const ProgStage *stage, int group);
CORE optc_status eigen_bind(optc_binding *b, GpuCalls *x);         /* all steps are there */
CORE void eigen_probe(optc_binding *b, GpuCalls *x);                 /* and all places are known */
CORE void eigen_unbind(optc_binding *b, GpuCalls *x);
CORE void eigen_addresses(const GpuCalls *x, PointerSet *s, MatrixAddress *to);
CORE bool eigen_launches(const CallStep *s);                          /* by eigen_launch */
CORE optc_status eigen_launch(optc_binding *b, const GpuCall *c, const CallStep *s, Matrices of);
CORE optc_status eigen_skips(const optc_binding *b, const CallStep *s, bool *skips);

/* ---- gpu_calls.c, gpu_products.c ---- */
/* the tensor takes part, and the matrix has its turn */
CORE bool calls_participate(const optc_binding *b, const CallGroup *g, int tensor, int64_t matrix);
CORE int launch_own_kernel(const optc_binding *b, const CallStep *s, Matrices of);      /* a launch of ours */
CORE int64_t blas_bytes(const optc_binding *b);            /* of call_space, for the library */
CORE optc_status calls_rebuild(optc_binding *b);             /* others take part: where matrices lie, and no graphs */
CORE optc_status calls_gather(optc_binding *b, int64_t from);      /* pointers from that number on */
CORE CUdeviceptr set_pointers(const GpuCalls *x, int set, int64_t from);      /* from that matrix on */
#endif
