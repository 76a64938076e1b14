/* The reference evaluator: a rule's entry run in f64, node by node over whole tensors, with no plan at all. It is the
 * oracle of the tests and what runs where no compiler is found.
 *
 * With bounds it also carries an interval for every value: where any correctly built target's result must lie, by the
 * op table's error bounds in the precision of the value's domain. */
#ifndef OPTC_EVAL_H
#define OPTC_EVAL_H
#include "gen/plan/plan.h"

typedef struct Vals { double *v, *lo, *hi; int64_t n; } Vals;      /* lo, hi: NULL without bounds */

typedef struct EvalTensor {
    Shape shape, whole;            /* whole: of what it is a piece of, or its own */
    int64_t before[NDOM];          /* by domain: values of the whole before its own */
    int variant, group;
    bool absent;                   /* it takes no part: nothing of it changes, and no fold over tensors sees it */
    Vals p, g;
    Vals *input, *state;           /* by number; group ones are in EvalGroup and NULL here */
} EvalTensor;

/* lag: how many steps its t is behind the job's */
typedef struct EvalGroup { const double *hyper; Vals *input, *state; double lag; } EvalGroup;

typedef struct EvalJob {
    const Rule *rule;
    int entry;
    double t;                      /* periods go by it, and groups that do not lag */
    EvalTensor *tensor; int ntensor;
    EvalGroup *group; int ngroup;
    bool bounds;
    Type real;                     /* what elements are computed in, for the bounds */
    Type p, state;                 /* storage types, for what the rule calls stored */
    Product product;               /* what products are computed in, for the bounds … */
    const Target *target;          /* … and where; NULL: target_c */
} EvalJob;

bool eval_entry(EvalJob *j);       /* false: out of memory, nothing changed */
#endif
