/* Matrix calls on a GPU: what a binding prepares for the products and factors of its rule.
 *
 *   CallGroup    tensors of a batch that have one shape: one library call computes all of their
 *                matrices
 *   PointerSet   addresses of the matrices of one array, or of blocks of them, for a group, in the
 *                order of its tensors. The kernel optc_gather fills the device array from the
 *                binding's table of pointers, again when a pointer has changed. Equal sets are
 *                shared. Sets of staggered groups are in the memory of the current combination of
 *                slots (gpu_call_slots.c)
 *   CallStep     one library call, or one launch of our kernels, over a group
 *   GpuCall      the steps of a stage over a batch
 *
 * gpu_gemm.h has the products that cuBLAS computes. */
#ifndef OPTC_CORE_GPU_CALLS_H
#define OPTC_CORE_GPU_CALLS_H
#include "gen/abi/methods.h"
#include "runtime/core/matrix/cpu_calls.h"
#include "runtime/core/matrix/gpu_gemm.h"

/* Array numbers below 0 are no arrays of the rule: AREA(k) is area k of a matrix' record, OWN_STATS
 * the factor statistics, OWN_EIGEN the memory that eigenvectors are computed in. */
enum { AREAS = 5, RECORD_NUMBERS = 32 };
#define AREA(k) (-1 - (k))
enum { OWN_STATS = -6, OWN_EIGEN = -7 };
OPTC_COUNT bool is_area(int array) { return array < 0 && array > OWN_STATS; }

/* Flags of a mirror or a copy: it adds the parts of a long sum; 16-bit values are bf16. Beyond
 * ProductFlags and row strides. */
enum { SUM_OF_PARTS = 64, VALUES_BF16 = 128 };

/* Must match optc_call and optc_matrix_address of templates/products_cuda.txt. */
typedef struct CallArgs { CUdeviceptr a, b, c; int m, n, k, flags; double alpha, beta; } CallArgs;
typedef struct MatrixAddress { long long slot, offset; } MatrixAddress;

/* sets: the first set, or -1. row_stride: of arrays over all elements. now: matrices of the tensors
 * that take part.
 * most: matrices that its sets have pointers for.
 * stagger: unless 0, only matrices that are scheduled for this step (ProgStage.stagger). again:
 * unless NULL, only matrices whose roots by that stage were refused in f32 and need f64. */
typedef struct CallGroup {
    const int *tensor; int n, sets;
    Shape shape;
    int64_t row_stride, now, most;
    unsigned stagger;
    const ProgStage *again;
} CallGroup;

typedef struct PointerSet {
    /* blocks 0: one pointer per matrix, `offset` values into it. Else one pointer per block (i, j),
     * j <= i < blocks, at offset + i * down + j * across values; these once for each of `parts`,
     * which are `apart` values apart. */
    int array, group, blocks, parts;
    int64_t offset, down, across, apart;
    int next;                              /* next set of the group; -1: none */
    int bytes;                             /* bytes of a value */
    int64_t each, at;                      /* pointers per matrix; index of the first pointer among
                                            * those of all sets */
    /* Distance of rows in values; 0: rows have no gaps. For our kernels it is stored ahead of the
     * first pointer. */
    int64_t row_stride;
    /* Areas: bytes of a matrix' record, and the area's offset in it, in values. There are pointers
     * for as many matrices as the workspace holds. */
    int64_t record, base;
    int64_t most;                          /* OWN_EIGEN: matrices of a round; base and apart are in
                                            * bytes */
} PointerSet;

typedef struct CallStep {
    CallKernel kernel;                     /* for products and EIGEN_ROTATE a library may be called
                                            * instead (own) */
    const CallType *type;
    int group, a, b, c;                    /* indices of sets */
    /* Products of a library: the set of the addend, which cuBLASLt reads where it is, or -1.
     * Without an algorithm of cuBLASLt the addend is in c: a step before has copied it. */
    int d;
    int reader;                            /* of a copy: the product that needs none if it has an
                                            * algorithm, or -1 */
    double diagonal;                       /* mirrors and gpu_symmetric.c: added to the diagonal */
    int task;                              /* gpu_symmetric.c: its number; -1: another step */
    int64_t m, n, k, lda, ldb, ldc;
    unsigned flags;                        /* ProductFlag */
    double alpha, beta;
    bool own;                              /* our kernel, though there is a library */
    bool f32;                              /* the result is f32, whatever `type` is: a part of a
                                            * long sum */
    unsigned blocks;                       /* our kernels: thread blocks per matrix */
    GemmAlgorithm algorithm;               /* of products whose bits would depend on the number of
                                            * matrices */
    /* body: unless 0, this many steps from this one on run only if a matrix is not settled
     * (gpu_qr.c). judge: the step that settles; its a and k lead to the matrices' numbers.
     * continues: they run only if one more round will settle such a matrix */
    int body, judge; bool continues;
    int64_t at_once;  /* matrices per round; steps of a group that have it form a round. 0: all
                       * matrices at once */
    /* Eigenvectors. per_call: matrices of each call of the library. work_at, work, host: the
     * library's workspace: offset and bytes on the device, bytes on the host. in_f32: the library's
     * type. */
    int64_t per_call, work_at;
    size_t work, host;
    bool in_f32;
} CallStep;
/* The matrices of a group that a step works on. */
typedef struct Matrices { int64_t from, n; } Matrices;
/* stagger_first, stagger_n: the steps over only those matrices that are scheduled for this step */
typedef struct GpuCall {
    const ProgStage *stage; int batch, first, n, stagger_first, stagger_n;
} GpuCall;

/* cuSOLVER and the memory that eigenvectors are computed in. asked: cusolver_open was called. warm:
 * eigen_warm was called. why: the reason if there is no library. largest: description of the call
 * that needs the most memory. on: the handle's stream, if is_on. host: the library's workspace
 * there. */
typedef struct Eigen {
    bool asked, library, warm;
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
    char why[400];                         /* why there is no library */
    cublasHandle_t handle;
    /* own, inner, innermost: for captures, of bodies, and of bodies inside of them. on: the
     * handle's stream, with its workspace set, if is_on */
    CUstream own, inner, innermost, on; bool is_on;
    int64_t body_nodes;                    /* of all bodies that were captured for steps
                                            * (CallStep.body) */
    GpuCall *call; int ncall;
    CallGroup *group; int ngroup, near;    /* near: where the next search starts */
    PointerSet *set; int nset;
    CallStep *step; int nstep;
    bool *present;                         /* by tensor: takes part according to the pointers on the
                                            * device */
    bool sent;                             /* the pointers on the device are current */
    bool moves;                            /* a parameter, gradient or input is an operand: its
                                            * address may change */
    CUdeviceptr scratch; int64_t room_bytes;  /* for records of roots and factors */
    /* Of the root or factor whose steps are being added: bytes of a record; offsets of its areas
     * and of its numbers, in values; row strides of areas that are not square. */
    int64_t record, area[AREAS], area_ld[AREAS], numbers;
    int value_bytes;                       /* bytes of a value in the areas */
    bool *wide;                            /* by index of the statistics: computed in f64, since f32
                                            * was refused */
    struct RootsF32 *roots_f32;            /* NULL: no root is computed in f32 */
    int64_t npointer;                      /* of groups that are not staggered */
    CUdeviceptr memory, addresses, pointers; size_t bytes;
    CUdeviceptr slot_pointers;             /* of staggered groups: those of the current combination
                                            * of slots */
    CUdeviceptr tasks; int ntask;          /* of gpu_symmetric.c */
    unsigned nmoved;                       /* how often pointers were gathered again */
    Eigen eigen;
    /* calls_probe: hashes of launch lists and their numbers of matrices */
    unsigned long long tried[TRIED_MOST]; unsigned ntried;
    bool probing;                          /* the capture that calls_probe makes and drops */
    CUgraphExec *whole;                    /* by entry: a graph of all phases, which are bodies of
                                            * conditional nodes */
    struct BodyTable *bodies;              /* by entry */
    /* switches: the device can select among slot lists in captured and guarded steps */
    bool switches;
    struct SlotSwitch *slot_switch;
} GpuCalls;

/* The slot lists of a launch list, one for each combination of slots that its steps can have. n 0:
 * there are too many, or they exceed the limit, and one body covers all units. bodies: bytes of
 * their graphs */
typedef struct SlotSwitch {
    struct SlotSwitch *next;
    const LaunchList *of;
    SlotList **list; int n;
    int64_t bodies;
} SlotSwitch;
/* The bodies of an entry's conditional nodes, by phase and combination of slots, for the kernel
 * that selects one (optc_phase). at 0: not made yet */
typedef struct BodyTable { CUdeviceptr at; size_t bytes; int n; } BodyTable;
/* The i-th body of a launch list: its slot list, or NULL for all units. */
CORE int bodies_count(const optc_binding *b, const LaunchList *p);
CORE SlotList *body_slots(const optc_binding *b, const LaunchList *p, int i);

CORE const CallType *call_type_f64(void);
CORE const CallType *call_type_f32(void);
/* The precision of a call; NULL: the type of its result is not in products.def. */
CORE const CallType *call_type(const Program *p, const ProgCall *c);
/* Describes a call for messages: "the product of 3 x 4 by 4 x 3 in bf16 (…)". */
CORE void call_label(const optc_binding *b, const ProgStage *s, const CallGroup *g, char *buf,
                     size_t n);

/* ---- gpu_methods.c ---- */
/* A call over a group, and what the choice of its method depends on. n: rows of the matrix. cols:
 * of the result; SOLVE: right-hand sides. library: cuBLAS can be used; for eigenvectors cuSOLVER.
 * f64: the operand is stored in f64. exact: the result must be as exact as by f64. z, type, parts:
 * of products (sum_parts). way: of the chosen method */
typedef struct MethodAt {
    const optc_binding *b;
    GpuCalls *x;
    const GpuEngine *gpu;
    const ProgStage *stage;
    const ProgCall *call;
    int group;
    int64_t n, cols;
    bool library, f64, exact;
    ProductShape z;
    const CallType *type;
    int parts;
    EigenMethod way;
} MethodAt;
/* A row of methods.def. record: bytes of scratch for a matrix; NULL: 0 */
typedef struct GpuMethod {
    EigenMethod way;
    unsigned use;
    int64_t (*record)(const optc_binding *b, const ProgStage *s, Shape shape);
    void (*most)(const optc_binding *b, const ProgStage *s, Shape shape, int *steps, int *sets);
    optc_status (*steps)(const MethodAt *f);
} GpuMethod;
/* rows of any group */
CORE MethodAt method_facts(const optc_binding *b, const ProgStage *s, int64_t n);
CORE MethodAt method_at(const optc_binding *b, GpuCalls *x, const ProgStage *s, int group);
CORE const GpuMethod *method_choose(const MethodAt *f);
CORE optc_status method_steps(const MethodAt *f);          /* adds those of the chosen method */
/* fits false: an error, launches would have too many blocks */
CORE optc_status steps_fit(const MethodAt *f, bool fits);
/* the way of the method with the highest rate */
CORE EigenMethod method_model(const MethodAt *f);
/* a method of this way can compute the matrices as exactly as the model's */
CORE bool method_fits(const MethodAt *f, EigenMethod way);
/* the way computes in f32 what need not be exact */
CORE bool way_in_f32(EigenMethod way, bool exact);
/* any row of a call: all of them have the same record and bounds */
CORE const GpuMethod *method_room(const ProgCall *c);
/* The measured method, or EIGEN_BY_SIZE. rows 0: EIGEN_F32 if it was the best for any size. */
CORE EigenMethod method_known(const optc_engine *e, bool roots, bool f64, int64_t rows);
/* The same from a package's tuned results. */
CORE EigenMethod method_packed(const KnownMethod *w, int n, bool roots, bool f64, int power,
                               int bucket);

/* ---- gpu_call_build.c ---- */
/* No choice that changes bits may depend on the number of matrices: workspaces and ranks divide
 * them differently. */
CORE int add_set(GpuCalls *x, const PointerSet *want);     /* or returns an equal one */
CORE int whole_set(GpuCalls *x, int array, int group, int64_t offset);
/* `parts` pointers per matrix, `apart` values apart */
CORE int parts_set(GpuCalls *x, int array, int group, int64_t offset, int parts, int64_t apart);
/* Thread blocks of a launch over one m x n matrix (KernelGrid). lower: of a symmetric product. */
CORE int64_t kernel_blocks(CallKernel k, int64_t m, int64_t n, bool lower);
CORE CallStep *add_step(GpuCalls *x, CallKernel kernel, const CallType *t, int group);
CORE bool product_steps(const optc_binding *b, GpuCalls *x, const CallType *t, const ProgCall *c,
                        int group, ProductShape z, bool own);
CORE optc_status build_product(const MethodAt *f);
CORE optc_status build_long_sum(const MethodAt *f);
CORE int64_t product_record(const optc_binding *b, const ProgStage *s, Shape shape);
CORE void product_most(const optc_binding *b, const ProgStage *s, Shape shape, int *steps,
                       int *sets);
/* the number of parts of a long sum, or 0 */
CORE int sum_parts(const CallType *t, const ProgCall *c, ProductShape z);
/* tensor cores would read addresses that they must not read */
CORE bool misaligned(const optc_binding *b, const CallGroup *g, const ProgCall *c, int64_t k);
CORE optc_status too_long(const optc_binding *b, const ProgStage *s, const CallGroup *g,
                          const char *why);
/* its sizes, transposes and factors; no matrices */
CORE GpuGemm step_gemm(const CallStep *s);
/* ---- gpu_symmetric.c ---- */
enum { SYMMETRIC_TASK_BYTES = 448 };
CORE bool symmetric_fits(const MethodAt *f);
CORE optc_status build_symmetric(const MethodAt *f);
/* sends the tasks of all steps */
CORE optc_status symmetric_bind(optc_binding *b, const GpuCalls *x);
/* Returns the driver's status. *call: the driver's function that returned it */
CORE int symmetric_launch(const optc_binding *b, const CallStep *s, Matrices of, const char **call);
/* ---- gpu_lower_product.c ---- */
enum { STEPS_LOWER = 16, SETS_LOWER = 48 };                /* upper bounds */
/* Adds the steps of a product with a triangle, in panels; false: it is one product, as are those
 * with an addend in another array. */
CORE bool add_lower_product(const optc_binding *b, GpuCalls *x, const CallType *t,
                            const ProgCall *c, int group, ProductShape z);
/* ---- gpu_roots.c ---- */
/* Large matrices are checked with PROBES random vectors of signs instead of a whole product. A
 * product with so many vectors takes a tenth of one with 4096 x 4096 values, or less. */
enum { PROBES = 32 };
/* rows from which matrices are checked so */
CORE int64_t probed_rows(const optc_binding *b);
CORE int64_t roots_bytes(const optc_binding *b);
CORE int64_t root_side(const Program *p, const ProgCall *c, Shape s);
CORE int64_t root_record(const optc_binding *b, const ProgStage *s, Shape shape);
CORE void root_most(const optc_binding *b, const ProgStage *s, Shape shape, int *steps, int *sets);
CORE optc_status build_root(const MethodAt *f);
CORE int factor_stats_set(GpuCalls *x, const optc_binding *b, const ProgStage *stage, int group);
CORE int64_t root_pointers(const GpuCalls *x, const PointerSet *s);
CORE void root_addresses(const optc_binding *b, const GpuCalls *x, PointerSet *s,
                         MatrixAddress *to);

/* ---- gpu_roots_f32.c ---- */
CORE bool f32_suffices(int p, double share, int64_t rows);   /* f32 is exact enough */
/* Whether roots of matrices with `rows` rows are first computed in f32; rows 0: of any matrices. */
CORE bool root_in_f32(const optc_binding *b, const ProgStage *stage, int64_t rows);
/* after the factor statistics are allocated */
CORE optc_status roots_f32_bind(optc_binding *b);
CORE void roots_f32_unbind(optc_binding *b);

/* ---- gpu_factors.c: chol, solve, inverses in f64; gpu_qr.c ---- */
CORE int64_t factor_record(const optc_binding *b, const ProgStage *s, Shape shape);
CORE void factor_most(const optc_binding *b, const ProgStage *s, Shape shape, int *steps,
                      int *sets);
CORE bool solves_by_inverse(const MethodAt *f);
CORE optc_status build_chol(const MethodAt *f);
CORE optc_status build_solve(const MethodAt *f);
CORE optc_status build_solve_inverse(const MethodAt *f);
CORE optc_status build_inverse(const MethodAt *f);
CORE optc_status build_qr(const MethodAt *f);
/* ---- gpu_order.c ---- */
CORE optc_status build_sort(const MethodAt *f);
CORE optc_status build_take(const MethodAt *f);

/* ---- gpu_eigen.c ---- */
CORE void eigen_most(const optc_binding *b, const ProgStage *s, Shape shape, int *steps, int *sets);
/* appends to buf if the rule has such calls */
CORE void eigen_path(const optc_rule *r, char *buf, size_t n);
/* LIBRARY_MOST: rows that a library computes: divide and conquer is faster beyond (gpu_divide.c).
 * ALONE_MOST: rows up to which one block per matrix is faster than divide and conquer; beyond
 * ALONE_LIMIT it would take hours, so it is refused */
enum { EIGEN_LIBRARY_MOST = 256, EIGEN_ALONE_MOST = 96, EIGEN_ALONE_LIMIT = 2048 };
CORE optc_status build_vectors(const MethodAt *f);           /* eigh */
CORE optc_status build_spectral(const MethodAt *f);          /* a function of the eigenvalues */
CORE bool divide_possible(int64_t n);                      /* gpu_divide.c: for n rows */
CORE void eigen_addresses(const GpuCalls *x, const PointerSet *s, MatrixAddress *to);
/* matrix i of a round in one of its arrays */
CORE CUdeviceptr eigen_at(const GpuCalls *x, int set, int64_t i);
CORE bool eigen_launches(const CallStep *s);                          /* eigen_launch launches it */
CORE optc_status eigen_launch(optc_binding *b, const GpuCall *c, const CallStep *s, Matrices of);

/* ---- gpu_eigen_bind.c ---- */
CORE optc_status eigen_bind(optc_binding *b, GpuCalls *x);         /* after all steps are added */
CORE void eigen_warm(optc_binding *b, GpuCalls *x);        /* once, after eigen_bind */
CORE void eigen_unbind(optc_binding *b, GpuCalls *x);
CORE bool eigen_uses_library(const CallStep *s);
CORE int solver_open(const optc_binding *b, Eigen *e);     /* returns the library's status */
/* Computes s->per_call matrices of a round, from matrix `from` on. Returns the library's status;
 * call: which failed. */
CORE int solver_call(optc_binding *b, const CallStep *s, int64_t from, const char **call);

/* ---- gpu_condition.c ---- */
/* A body that the device runs only if a matrix is not settled. condition_begin sends b's launches
 * into it, and condition_end sends them behind it. s: the status of the launches. */
typedef struct ConditionBody { CUstream was, inner; CUgraph graph; } ConditionBody;
CORE bool driver_conditions(const optc_binding *b);        /* it has conditional nodes */
enum { PHASE_THREADS = 128 };              /* of optc_phase */
/* Adds a kernel to the captured stream that sets a new condition: optc_phase with these arguments.
 * usual: the node's value if the kernel does not set it. */
CORE optc_status condition_kernel(optc_binding *b, CallArgs a, unsigned usual, unsigned threads,
                                  CUgraphConditionalHandle *handle);
/* Adds the conditional node; the captured stream continues behind it. bodies: one graph (IF) or
 * several (switch). */
CORE optc_status condition_node(optc_binding *b, CUgraphConditionalHandle handle, int type, int n,
                                CUgraph **bodies);
CORE bool condition_possible(const optc_binding *b);       /* the stream captures a graph of ours */
CORE bool condition_inside(const optc_binding *b);         /* it captures the body of a node */
CORE optc_status condition_begin(optc_binding *b, const CallArgs *args, ConditionBody *x);
CORE optc_status condition_end(optc_binding *b, const ConditionBody *x, optc_status s);

/* ---- gpu_calls.c, gpu_products.c ---- */
CORE optc_status calls_choose_algorithms(GpuCalls *x);      /* after all steps are added */
/* The tensor takes part, and the matrix is scheduled for this step. */
CORE bool calls_participate(const optc_binding *b, const CallGroup *g, int tensor, int64_t matrix);
/* returns the driver's status */
CORE int launch_own_kernel(const optc_binding *b, const CallStep *s, Matrices of);
CORE int64_t blas_bytes(const optc_binding *b);            /* the library's part of call_space */
/* participation has changed: sends addresses, drops graphs */
CORE optc_status calls_rebuild(optc_binding *b);
CORE optc_status calls_gather(optc_binding *b, CUdeviceptr addresses, CUdeviceptr pointers,
                              int64_t n);
CORE void calls_count_now(const optc_binding *b, CallGroup *g);
CORE int64_t set_length(const GpuCalls *x, const PointerSet *s);   /* pointers of a set */
CORE void fill_addresses(const optc_binding *b, GpuCalls *x, MatrixAddress *all, bool stagger);
/* the set's pointers, from that matrix on */
CORE CUdeviceptr set_pointers(const GpuCalls *x, int set, int64_t from);
#endif
