/* A Side is a rule bound to tensors of odd shapes on one device. Tests of tests/gpu open two sides
 * and compare them. */
#ifndef OPTC_TESTS_SIDE_H
#define OPTC_TESTS_SIDE_H
#include "tests/harness/help.h"
#include "tests/harness/reference_product.h"

#include "runtime/library/rule/gpu_code.h"

enum { NSHAPES = 12, STEPS = 4 };
typedef struct Side {
    optc_engine *e;
    optc_rule *r;
    optc_binding *b;
    CUdeviceptr p[NSHAPES], g[NSHAPES];        /* 0 on the CPU */
    void *hp[NSHAPES], *hg[NSHAPES];
    Type tp, tg;                               /* storage types of parameters and gradients */
    size_t wp, wg;                             /* their sizes in bytes */
    int64_t n[NSHAPES];
} Side;

extern const Driver *d;
/* option of the next side that is opened: without tuning results */
extern int untuned;
extern int64_t side_workspace;                 /* the next side's workspace in bytes */
/* the next side's method for eigenvectors, overriding model and results */
extern EigenMethod side_method;
/* the next side's driver claims this version of CUDA; 0: its own */
extern int side_driver;
/* rows from which the next side checks roots by probes; 0: the default */
extern int side_probed;

/* Memory of the GPU for tests without a side. Copies wait. */
void *device_take(size_t bytes);
void device_give(void *p);
void device_put(void *to, const void *from, size_t bytes);
void device_get(void *to, const void *from, size_t bytes);
extern const Where device_where;               /* the four functions */

void gpu_setup(void);
void gpu_teardown(void);
/* For the rest of this test: shapes of a few values, for rules that square the sizes. */
void use_tiny_shapes(void);
/* NSHAPES shapes for the sides that this test opens */
void use_shapes(const TestShape *s);
/* from now on: with cuBLAS if it is found, or without */
void use_cublas(bool library);
/* off: number of elements by which pointers are misaligned */
void open_side(Side *s, const char *device, optc_rule_options rule, int off);
void close_side(Side *s, int off);
void free_arrays(Side *s, int off);            /* of a closed side */
void set_grads(Side *s, int step);
void fetch_params(Side *s);                    /* copies parameters from the GPU to hp */
/* also for products that cuBLASLt would compute; other bits */
void use_cublas_alone(optc_binding *b);
/* Compares hp and all states of c with those of g, which is on the GPU, bit for bit. */
void compare(const char *rule, Side *c, Side *g);
/* For rules with products, whose summation order differs: differences are at most bound * (1 +
 * |value|). */
void compare_within(const char *rule, Side *c, Side *g, double bound);
void same_params(Side *a, Side *b, const char *what);     /* two sides on the GPU, bit for bit */
/* From now on every stage gets a random valid launch; if not `all`, one near the model's. */
void use_random_launches(Side *g, uint64_t *dice, bool all);

/* OPTC_TEST_SHARE=K/N: this process runs share K of the long tests. all.sh runs the shares in
 * parallel. */
bool others(int i, int line);
#define SHARED() do { if (others(_i, __LINE__)) return; } while (0)

/* Each file adds its tests to a case. */
void add_agree(TCase *t);
void add_alike(TCase *t);
void add_codes(TCase *t);
void add_connect(TCase *t);
void add_cohorts(TCase *t);
void add_joint(TCase *t);
void add_blocks(TCase *t);
void add_eigenvectors(TCase *t);
void add_eigen_fails(TCase *t);
void add_eigen_times(TCase *t);
void add_factors(TCase *t);
void add_columns(TCase *t);
void add_functions(TCase *t);
void add_root_times(TCase *t);
void add_guard(TCase *t);
void add_graphs(TCase *t);
void add_guarded_eigen(TCase *t);
void add_launches(TCase *t);
void add_modules(TCase *t);
void add_live(TCase *t);
void add_master(TCase *t);
void add_matrices(TCase *t);
void add_memory(TCase *t);
void add_nccl(TCase *t);
void add_overlap(TCase *t);
void add_products(TCase *t);
void add_halves(TCase *t);              /* of symmetric products, and products with a triangle */
void add_triangles(TCase *t);
void add_product_rules(TCase *t);
void add_profile(TCase *t);
void add_product_precision(TCase *t);
void add_product_times(TCase *t);
void add_random(TCase *t);
void add_rounding(TCase *t);
/* emu_late of the emulated GPU (tests/emu): work of streams runs later, in one of two orders; 0: at
 * once. NULL: a real GPU */
int (*find_late(void))(int order);
void add_polar(TCase *t);
void add_network(TCase *t);
void add_roots_f32(TCase *t);
void add_methods(TCase *t);
void add_shards(TCase *t);
void add_small(TCase *t);
void add_squares(TCase *t);
void add_stagger(TCase *t);
void add_stagger_graphs(TCase *t);
void add_types(TCase *t);
/* destroys its context, so it runs in its own process */
void add_sticky(TCase *t);
#endif
