/* A rule on one device, over tensors of odd shapes: what the tests of tests/gpu open two of and compare. */
#ifndef OPTC_TESTS_SIDE_H
#define OPTC_TESTS_SIDE_H
#include "tests/harness/help.h"

#include "runtime/library/rule/gpu_code.h"

enum { NSHAPES = 12, STEPS = 4 };
typedef struct Side {
    optc_engine *e;
    optc_rule *r;
    optc_binding *b;
    CUdeviceptr p[NSHAPES], g[NSHAPES];        /* 0 on the CPU */
    void *hp[NSHAPES], *hg[NSHAPES];
    Type tp, tg;                               /* of parameters and gradients … */
    size_t wp, wg;                             /* … and their bytes */
    int64_t n[NSHAPES];
} Side;

extern const Driver *d;
extern int untuned;                            /* of the next side that is opened */
extern int64_t side_workspace;                 /* likewise */
extern EigenMethod side_method;                      /* likewise: whatever the model and results say */

void gpu_setup(void);
/* from then on, in this test: shapes of a few values, for rules that square them */
void use_tiny_shapes(void);
void use_shapes(const TestShape *s);           /* NSHAPES of them, for the sides that this test opens */
void use_cublas(bool library);                 /* from then on: the one that is found, or none */
/* off: elements that pointers are misaligned by */
void open_side(Side *s, const char *device, optc_rule_options rule, int off);
void close_side(Side *s, int off);
void free_arrays(Side *s, int off);            /* of one that is closed */
void set_grads(Side *s, int step);
void fetch_params(Side *s);                    /* from the GPU into hp */
/* hp of c and all its states against those of g, which is on the GPU */
void compare(const char *rule, Side *c, Side *g);
/* … of rules with products, whose sums have no order that both share: within so much of 1 + the value */
void compare_within(const char *rule, Side *c, Side *g, double bound);
void same_params(Side *a, Side *b, const char *what);     /* two sides on the GPU, bit for bit */
/* from now on: for every stage any that is valid, or (not all) one near the model's */
void use_random_launches(Side *g, uint64_t *dice, bool all);

/* OPTC_TEST_SHARE=K/N: of tests that take long, this process's share: all.sh runs the shares side by side. */
bool others(int i, int line);
#define SHARED() do { if (others(_i, __LINE__)) return; } while (0)

/* What each file adds to its case. */
void add_apart(TCase *t);
void add_blocks(TCase *t);
void add_eigenvectors(TCase *t);
void add_eigen_fails(TCase *t);
void add_eigen_times(TCase *t);
void add_factors(TCase *t);
void add_root_times(TCase *t);
void add_guard(TCase *t);
void add_graphs(TCase *t);
void add_launches(TCase *t);
void add_live(TCase *t);
void add_matrices(TCase *t);
void add_memory(TCase *t);
void add_products(TCase *t);
void add_product_times(TCase *t);
void add_random(TCase *t);
void add_polar(TCase *t);
void add_network(TCase *t);
void add_roots_f32(TCase *t);
void add_methods(TCase *t);
void add_small(TCase *t);
void add_squares(TCase *t);
void add_stagger(TCase *t);
void add_sticky(TCase *t);                     /* it kills its context: a process of its own */
#endif
