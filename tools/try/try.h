/* optc try: steps a rule a few times on small tensors of every rank, with ordinary and with
 * degenerate gradients.
 *
 * Data and owners
 *   Try       one command: two compiled rules (native in f32; the reference evaluator in f64) and
 *             the findings. cmd_try owns it.
 *   TryRun    tensors of one kind of gradient in one precision, their binding and what was seen.
 *             The caller of try_run owns it. */
#ifndef OPTC_TRY_H
#define OPTC_TRY_H
#include "tools/tools.h"

#include "optc.h"

/* TRY_COMPARED: steps against f64 */
enum { TRY_TENSORS = 8, TRY_MOST = 64, TRY_STATES = 256, TRY_COMPARED = 8,
       /* longest period of a rule that is covered */
       TRY_PERIOD = 200 };

typedef enum {
    GRAD_ORDINARY, GRAD_ZERO, GRAD_RANK_ONE, GRAD_HUGE, GRAD_TINY, GRAD_NAN, GRADS
} TryGrad;
typedef struct TryShape { const char *name; int rank; int64_t dim[4]; } TryShape;
extern const TryShape try_shapes[TRY_TENSORS];
extern const char *const try_grad_names[GRADS];
int64_t try_count(const TryShape *s);
double try_start(int tensor, int64_t k);                               /* the initial parameter */

typedef struct TryRun {
    TryGrad kind;
    bool f64;
    optc_binding *binding;
    double p[TRY_TENSORS][TRY_MOST];                   /* parameters after the last step */
    double compared[TRY_TENSORS][TRY_MOST];            /* parameters after step TRY_COMPARED */
    /* largest distance of a parameter from its start, at any step */
    double moved[TRY_TENSORS];
    /* values that are not finite; a state's number, or -1 */
    int bad_params[TRY_TENSORS], bad_state[TRY_TENSORS];
    /* the last step that changed a state; -1: the tensor has none */
    int changed[TRY_STATES][TRY_TENSORS];
    optc_factors factors;
    int steps;
} TryRun;
/* Steps a rule. flat: tensors to bind as vectors, because the rule refuses their rank. Prints the
 * reason of a failure. */
bool try_run(TryRun *r, optc_rule *rule, const bool *flat, TryGrad kind, bool f64, int steps);
/* false: the rule refuses it; optc_message() has the reason */
bool try_binds(optc_rule *rule, int tensor);
#endif
