/* Matrix calls on a GPU: what a binding prepares for the products and factors of its rule.
 *
 *   CallGroup    tensors of a batch that have one shape: one library call computes all of their
 *                matrices
 *   Area         memory of a call for each of its matrices
 *   PointerSet   addresses of the matrices of one array or area, or of blocks of them, for a group,
 *                in the order of its tensors. The kernel optc_gather fills the device array from
 *                the binding's table of pointers, again when a pointer has changed. Equal sets are
 *                shared. Sets of staggered groups are in the memory of the current combination of
 *                slots (gpu_call_slots.c)
 *   CallStep     one library call, or one launch of our kernels, over a group
 *   GpuCall      the steps of a stage over a batch
 *   MethodAt     a call over a group whose steps are being added
 *
 * gpu_gemm.h has the products that cuBLAS computes. */
#ifndef OPTC_CORE_GPU_CALLS_H
#define OPTC_CORE_GPU_CALLS_H
#include "gen/abi/methods.h"
#include "runtime/core/matrix/cpu_calls.h"
#include "runtime/core/matrix/gpu_gemm.h"

/* Array numbers below 0 are no arrays of the rule: OWN_STATS the factor statistics, AREA(k) area k
 * of the binding. */
enum { OWN_STATS = -1 };
#define AREA(k) (-2 - (k))
OPTC_COUNT bool is_area(int array) { return array < OWN_STATS; }

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

/* Memory of a call for `count` matrices, those of a round: matrix i has `values` values from byte
 * `at` + i * `apart` on, in records of all areas of a matrix (GpuCalls.scratch), or (eigen) in
 * arrays of an area of all matrices (Eigen.scratch). name: in texts. bytes: of a value. ld: the row
 * stride; 0: rows have no gaps. */
typedef struct Area {
    const char *name;
    int eigen, bytes;
    int64_t at, apart, values, ld, count;
} Area;

/* Equal sets have equal fields up to `next`. */
typedef struct PointerSet {
    /* A pointer for each block (i, j), j <= i < blocks, at offset + i * down + j * across values;
     * these once for each of `parts`, which are `apart` values apart. Of both, 0 means 1. */
    int array, group, blocks, parts;
    int64_t offset, down, across, apart;
    /* Distance of rows in values; 0: rows have no gaps. For our kernels it is stored ahead of the
     * first pointer. */
    int64_t row_stride;
    int64_t next;                          /* next set of the group; -1: none */
    int64_t each, at;                      /* pointers per matrix; index of the first pointer among
                                            * those of all sets */
} PointerSet;

typedef enum {
#define CALL_STEP(ID, ...) STEP_##ID,
#include "gen/abi/call_steps.def"
    NCALLSTEP
} StepKind;
typedef struct CallStep {
    StepKind kind;
    CallKernel kernel;
    const CallType *type;
    int a, b, c;                           /* indices of sets */
    /* The set of a product's addend that is not its result, or -1. Without an algorithm of cuBLASLt
     * a step before has copied it into c. */
    int d;
    /* BODY: the n steps behind it run only if a matrix is not settled; a and k lead to the
     * matrices' numbers, as of the step that settles them. flags 1: they run only if one more round
     * will settle such a matrix */
    int64_t m, n, k, lda, ldb, ldc;
    unsigned flags;                        /* ProductFlag */
    double alpha, beta;
    unsigned blocks;                       /* our kernels: thread blocks per matrix */
    int task; double diagonal;             /* SYMMETRIC: its number; added to the diagonal */
    GemmAlgorithm algorithm;               /* of products whose bits would depend on the number of
                                            * matrices */
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
    /* Lists grow by list_more. out: there was no memory for one of them. near: where the next
     * search for a group starts */
    GpuCall *call; CallGroup *group; Area *area; PointerSet *set; CallStep *step;
    int ncall, ngroup, narea, nset, nstep, near; bool out;
    bool *present;                         /* by tensor: takes part according to the pointers on the
                                            * device */
    bool sent;                             /* the pointers on the device are current */
    bool moves;                            /* a parameter, gradient or input is an operand: its
                                            * address may change */
    CUdeviceptr scratch; int64_t room_bytes;  /* for records of roots and factors */
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
} GpuCalls;

CORE const CallType *call_type_f64(void);
CORE const CallType *call_type_f32(void);
/* The precision of a call; NULL: the type of its result is not in products.def. */
CORE const CallType *call_type(const Program *p, const ProgCall *c);
/* Describes a call for messages: "the product of 3 x 4 by 4 x 3 in bf16 (…)". */
CORE void call_label(const optc_binding *b, const ProgStage *s, const CallGroup *g, char *buf,
                     size_t n);

/* ---- gpu_methods.c ---- */
/* A call over a group: what the choice of its method depends on, then what its steps are made of.
 * m: rows of the matrix. n: columns of the result; SOLVE: right-hand sides. library: cuBLAS can be
 * used; for eigenvectors cuSOLVER. f64: the operand is stored in f64. exact: the result must be as
 * exact as by f64. z, type, parts: of products (sum_parts). way: of the chosen method.
 * areas: the first of the call's areas. work: precision in them. fits: numbers of
 * blocks and lengths are within what a launch takes. reach: the largest offset, in values, that a
 * kernel gets: an int */
typedef struct MethodAt {
    const optc_binding *b;
    GpuCalls *x;
    const GpuEngine *gpu;
    const ProgStage *stage;
    const ProgCall *call;
    int group;
    int64_t m, n;
    bool library, f64, exact;
    ProductShape z;
    const CallType *type;
    int parts;
    EigenMethod way;
    int areas;
    const CallType *work;
    bool fits;
    int64_t reach;
} MethodAt;
/* A row of methods.def. record: bytes of scratch for a matrix; NULL: 0 */
typedef struct GpuMethod {
    EigenMethod way;
    unsigned use;
    int64_t (*record)(const optc_binding *b, const ProgStage *s, Shape shape);
    optc_status (*steps)(MethodAt *f);
} GpuMethod;
/* rows of any group */
CORE MethodAt method_facts(const optc_binding *b, const ProgStage *s, int64_t n);
CORE MethodAt method_at(const optc_binding *b, GpuCalls *x, const ProgStage *s, int group);
CORE const GpuMethod *method_choose(const MethodAt *f);
/* Adds the steps of the chosen method. f->fits false: an error, launches would have too many
 * blocks */
CORE optc_status method_steps(const MethodAt *f);
CORE optc_status too_long(const MethodAt *f, const char *why);     /* why: it does not fit */
/* the way of the method with the highest rate */
CORE EigenMethod method_model(const MethodAt *f);
/* a method of this way can compute the matrices as exactly as the model's */
CORE bool method_fits(const MethodAt *f, EigenMethod way);
/* the way computes in f32 what need not be exact */
CORE bool way_in_f32(EigenMethod way, bool exact);
/* any row of a call: all of them have the same record */
CORE const GpuMethod *method_room(const ProgCall *c);
/* The measured method, or EIGEN_BY_SIZE. rows 0: EIGEN_F32 if it was the best for any size. */
CORE EigenMethod method_known(const optc_engine *e, bool roots, bool f64, int64_t rows);
/* The same from a package's tuned results. */
CORE EigenMethod method_packed(const KnownMethod *w, int n, bool roots, bool f64, int power,
                               int bucket);

/* ---- gpu_call_build.c ---- */
/* No choice that changes bits may depend on the number of matrices: workspaces and ranks divide
 * them differently. */
/* A list of the binding with one more element, which is all 0. Without memory the last one is used
 * again. */
CORE void *list_more(GpuCalls *x, void *list, int *n, size_t size);
/* AREAS areas of a record, and its numbers, which are the last area */
enum { AREAS = 5, NUMBERS = AREAS, RECORD_NUMBERS = 32 };
CORE int64_t record_bytes(const int64_t values[AREAS], int bytes);
/* ld NULL: rows have no gaps */
CORE optc_status add_record(MethodAt *f, const int64_t values[AREAS], const int64_t *ld, int bytes);
CORE optc_status add_areas(MethodAt *f, const Area *area, int n);  /* the call's areas */
CORE const Area *area_of(const GpuCalls *x, int array);            /* NULL: an array of the rule */
CORE PointerSet set_in(const MethodAt *f, int array);
CORE int add_set(const MethodAt *f, const PointerSet *want);       /* or returns an equal one */
CORE int whole_set(const MethodAt *f, int array);
/* A place in area `area` of the call; the set of the matrices there, or of `parts` of them, which
 * are `apart` values apart. */
typedef struct Part { int area; int64_t row, col; } Part;
OPTC_COUNT Part at(int area, int64_t row, int64_t col)
{
    Part p = {area, row, col};
    return p;
}
CORE int part_set(const MethodAt *f, Part p);
CORE int parts_set(const MethodAt *f, Part p, int64_t parts, int64_t apart);
CORE int stats_set(const MethodAt *f);                             /* the factor's statistics */
/* Thread blocks of a launch over one m x n matrix (KernelGrid). lower: of a symmetric product. */
CORE int64_t kernel_blocks(CallKernel k, int64_t m, int64_t n, bool lower);
/* a, b, c: sets */
CORE CallStep *add_step(MethodAt *f, StepKind kind, CallKernel kernel, int a, int b, int c);
/* one of our kernels over m x n, or with that many blocks */
CORE CallStep *add_launch_of(MethodAt *f, CallKernel kernel, int a, int b, int c, int64_t m,
                             int64_t n, int64_t blocks);
CORE CallStep *add_launch(MethodAt *f, CallKernel kernel, int a, int b, int c, int64_t m,
                          int64_t n);
/* A product in areas, in the precision f->work: c = alpha a b + beta c. transpose: the ProductFlag
 * of a transposed operand */
typedef struct ProductSize { int64_t m, n, k; } ProductSize;
typedef struct Operand { int set; int64_t ld; } Operand;
OPTC_COUNT Operand operand(int set, int64_t ld)
{
    Operand x = {set, ld};
    return x;
}
CORE CallStep *add_product(MethodAt *f, Operand a, Operand b, Operand c, ProductSize z,
                           unsigned transpose, double alpha, double beta);
CORE CallStep *part_product(MethodAt *f, Part a, Part b, Part c, ProductSize z, unsigned transpose,
                            double alpha, double beta);
/* Area c = alpha a b, which is symmetric: n x n, of `terms` terms; flags: ProductFlag */
CORE void symmetric_product(MethodAt *f, int a, int b, int c, int64_t n, int64_t terms,
                            double alpha, unsigned flags);
/* The step stores the call's result, or keeps the previous one. */
CORE void store_result(const MethodAt *f, CallStep *s);
CORE bool stores_f64(const MethodAt *f);
CORE double result_most(const MethodAt *f);                        /* the largest value in it */
CORE optc_status build_product(MethodAt *f);
CORE optc_status build_long_sum(MethodAt *f);
CORE int64_t product_record(const optc_binding *b, const ProgStage *s, Shape shape);
/* the number of parts of a long sum, or 0 */
CORE int sum_parts(const CallType *t, const ProgCall *c, ProductShape z);
/* tensor cores would read addresses that they must not read */
CORE bool misaligned(const optc_binding *b, const CallGroup *g, const ProgCall *c, int64_t k);
CORE CallStep *add_product_step(MethodAt *f, const CallType *t, const ProgCall *c, ProductShape z);
/* its sizes, transposes and factors; no matrices */
CORE GpuGemm step_gemm(const GpuCalls *x, const CallStep *s);
/* ---- gpu_symmetric.c ---- */
enum { SYMMETRIC_TASK_BYTES = 448 };
CORE bool symmetric_fits(const MethodAt *f);
CORE optc_status build_symmetric(MethodAt *f);
/* sends the tasks of all steps */
CORE optc_status symmetric_bind(optc_binding *b, const GpuCalls *x);
CORE optc_status launch_symmetric(optc_binding *b, const GpuCall *c, const CallStep *s,
                                  Matrices of);
/* ---- gpu_lower_product.c ---- */
/* Adds the steps of a product with a triangle, in panels; false: it is one product, as are those
 * with an addend in another array. */
CORE bool add_lower_product(MethodAt *f, const CallType *t, const ProgCall *c, ProductShape z);
/* ---- gpu_roots.c ---- */
/* Large matrices are checked with PROBES random vectors of signs instead of a whole product. A
 * product with so many vectors takes a tenth of one with 4096 x 4096 values, or less. */
enum { PROBES = 32 };
/* rows from which matrices are checked so */
CORE int64_t probed_rows(const optc_binding *b);
CORE int64_t roots_bytes(const optc_binding *b);
CORE int64_t root_side(const Program *p, const ProgCall *c, Shape s);
CORE int64_t root_record(const optc_binding *b, const ProgStage *s, Shape shape);
CORE optc_status build_root(MethodAt *f);

/* ---- gpu_roots_f32.c ---- */
CORE bool f32_suffices(int p, double share, int64_t rows);   /* f32 is exact enough */
/* Whether roots of matrices with `rows` rows are first computed in f32; rows 0: of any matrices. */
CORE bool root_in_f32(const optc_binding *b, const ProgStage *stage, int64_t rows);
/* after the factor statistics are allocated */
CORE optc_status roots_f32_bind(optc_binding *b);
CORE void roots_f32_unbind(optc_binding *b);

/* ---- gpu_factors.c: chol, solve, inverses in f64; gpu_qr.c ---- */
CORE int64_t factor_record(const optc_binding *b, const ProgStage *s, Shape shape);
CORE bool solves_by_inverse(const MethodAt *f);
CORE optc_status build_chol(MethodAt *f);
CORE optc_status build_solve(MethodAt *f);
CORE optc_status build_solve_inverse(MethodAt *f);
CORE optc_status build_inverse(MethodAt *f);
CORE optc_status build_qr(MethodAt *f);
/* ---- gpu_order.c ---- */
CORE optc_status build_sort(MethodAt *f);
CORE optc_status build_take(MethodAt *f);

/* ---- gpu_eigen.c ---- */
/* appends to buf if the rule has such calls */
CORE void eigen_path(const optc_rule *r, char *buf, size_t n);
/* LIBRARY_MOST: rows that a library computes: divide and conquer is faster beyond (gpu_divide.c).
 * ALONE_MOST: rows up to which one block per matrix is faster than divide and conquer; beyond
 * ALONE_LIMIT it would take hours, so it is refused */
enum { EIGEN_LIBRARY_MOST = 256, EIGEN_ALONE_MOST = 96, EIGEN_ALONE_LIMIT = 2048 };
CORE optc_status build_eigen(MethodAt *f);     /* eigenvectors, or a function of eigenvalues */
CORE bool divide_possible(int64_t n);                      /* gpu_divide.c: for n rows */
CORE optc_status launch_teams(optc_binding *b, const GpuCall *c, const CallStep *s, Matrices of);
/* the first matrix of an area, and its i-th one */
CORE CUdeviceptr area_at(const GpuCalls *x, const Area *area);
CORE CUdeviceptr set_matrix(const GpuCalls *x, int set, int64_t i);
CORE int64_t solver_per_call(int64_t rows);                /* matrices of a call of the library */
CORE optc_status launch_solver(optc_binding *b, const GpuCall *c, const CallStep *s, Matrices of);

/* ---- gpu_eigen_bind.c ---- */
CORE optc_status eigen_bind(optc_binding *b, GpuCalls *x);         /* after all steps are added */
CORE void eigen_warm(optc_binding *b, GpuCalls *x);        /* once, after eigen_bind */
CORE void eigen_unbind(optc_binding *b, GpuCalls *x);
CORE int solver_open(const optc_binding *b, Eigen *e);     /* returns the library's status */
/* Computes solver_per_call matrices of a round, from matrix `from` on. Returns the library's
 * status; call: which failed. */
CORE int solver_call(optc_binding *b, const CallStep *s, int64_t from, const char **call);

/* ---- gpu_slot_switch.c: the bodies of a region ---- */
CORE void slot_switch_bind(optc_binding *b);               /* sets GpuTables.switches */
/* finds an entry's region, or makes it, without a graph; in a capture too */
CORE optc_status region_make(optc_binding *b, int entry, LaunchList **out);

/* ---- gpu_condition.c ---- */
/* A body that the device runs only if a matrix is not settled. condition_begin sends b's launches
 * into it, and condition_end sends them behind it. s: the status of the launches. */
typedef struct ConditionBody { CUstream was, inner; CUgraph graph; } ConditionBody;
/* It has conditional nodes, as every GPU that is only planned. */
CORE bool driver_conditions(const optc_binding *b);
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
/* Makes groups and steps of all calls in the schedules. x: knows the libraries */
CORE optc_status calls_make(optc_binding *b, GpuCalls *x);
CORE void calls_free(GpuCalls *x);                         /* their lists */
CORE optc_status calls_choose_algorithms(GpuCalls *x);      /* after all steps are added */
/* The tensor takes part, and the matrix is scheduled for this step. */
CORE bool calls_participate(const optc_binding *b, const CallGroup *g, int tensor, int64_t matrix);
/* The functions of the rows CALL_STEP that other files do not have. */
CORE optc_status launch_kernel(optc_binding *b, const GpuCall *c, const CallStep *s, Matrices of);
CORE optc_status launch_product(optc_binding *b, const GpuCall *c, const CallStep *s, Matrices of);
CORE optc_status launch_body(optc_binding *b, const GpuCall *c, const CallStep *s, Matrices of);
/* the driver's function `call` returned rc */
CORE optc_status step_failed(optc_binding *b, const GpuCall *c, const CallStep *s, const char *call,
                             int rc);
CORE CallGroup *step_group(const GpuCalls *x, const CallStep *s);
/* A round: consecutive steps of a group with areas. Returns how many matrices they have memory
 * for; 0: the step has no areas, so all matrices */
CORE int64_t step_at_once(const GpuCalls *x, const CallStep *s);
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
