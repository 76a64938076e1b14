/* The reference evaluator: runs an entry of a rule in f64, node by node over whole tensors, without
 * a plan. It is the oracle of the tests, and the fallback if no compiler is found.
 *
 * With bounds it also computes an interval for every value. The result of a correct target must be
 * inside. The intervals follow from the error bounds of ops.def in the precision of the value's
 * domain. */
#ifndef OPTC_EVAL_H
#define OPTC_EVAL_H
#include "gen/plan/plan.h"

typedef struct Vals { double *v, *lo, *hi; int64_t n; } Vals;      /* lo, hi: NULL without bounds */

typedef struct EvalTensor {
    Shape shape, whole;            /* whole: of the tensor that it is a shard of, or the same as
                                    * shape */
    int64_t before[NDOM];          /* by domain: values of the whole tensor before the shard's */
    int variant, group;
    bool absent;                   /* it takes no part: it does not change, and folds over tensors
                                    * omit it */
    Vals p, g;
    Vals *input, *state;           /* by number; those of groups are empty here and in EvalGroup */
} EvalTensor;

/* lag: the number of steps that its t is behind EvalJob.t */
typedef struct EvalGroup { const double *hyper; Vals *input, *state; double lag; } EvalGroup;

typedef struct EvalJob {
    const Rule *rule;
    int entry;
    double t;                      /* the step: of periods, and of groups without a lag */
    EvalTensor *tensor; int ntensor;
    EvalGroup *group; int ngroup;
    bool bounds;
    bool f32_draws;                /* draws are those of f32, whatever the type */
    Type real;                     /* the type that the target computes elements in, for bounds and
                                    * draws */
    Type p, state;                 /* storage types, for OP_STORED */
    Product product;               /* the precision of products, for bounds */
    const Target *target;          /* of products, for bounds; NULL: target_c */
} EvalJob;

bool eval_entry(EvalJob *j);       /* updates p and the states; false: out of memory, nothing
                                    * changed */
#endif
