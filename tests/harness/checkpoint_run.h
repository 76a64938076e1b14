/* A run for tests of checkpoints: a rule on four tensors in two groups. */
#ifndef OPTC_CHECKPOINT_RUN_H
#define OPTC_CHECKPOINT_RUN_H
#include "tests/harness/help.h"
#include "runtime/core/checkpoint/checkpoint.h"

enum { TENSORS = 4 };
extern const TestShape run_shapes[TENSORS];
extern const char *const run_names[TENSORS];   /* one needs escapes in JSON, one is NULL */

typedef struct Run {
    optc_engine *e;
    optc_rule *r;
    optc_binding *b;
    void *p[TENSORS], *g[TENSORS];
    int64_t n[TENSORS];
} Run;
void run_open_as(Run *x, const optc_engine_options *eo, const optc_rule_options *ro,
                 const char *const *called);
void run_open(Run *x, const char *spec, const char *types, int threads);
/* Steps from..to. Tensor 1 misses step 2. The learning rate of group 0 changes at step 2, that of
 * group 1 at step 3. */
void run_steps(Run *x, int from, int to);
/* of all parameters, states, step counts and hyperparameters */
uint64_t run_hash(const Run *x);
void run_copy_params(Run *to, const Run *from);
void run_close(Run *x);
/* A checkpoint in memory; the caller frees c.memory. */
optc_checkpoint run_saved(optc_binding *const *b, int n, const char *const *prefix);
#endif
