/* The front end: the text of a spec and its wrappers becomes a Rule. */
#ifndef OPTC_FRONT_H
#define OPTC_FRONT_H
#include "gen/ir/rule_passes.h"
#include "gen/ir/target.h"

struct PlanLimits;

/* Finds the text of a wrapper named in `with`, of a rule, or of a shared text: then the name begins
 * with RULE_NAMED or SHARED_NAMED. Returns false with the Diag set. */
#define RULE_NAMED "rule:"
#define SHARED_NAMED "shared:"
typedef bool (*FindSpec)(void *ctx, const char *name, Arena *arena, Source *out, Diag *d);

typedef struct GenOptions {
    const char *with;           /* "clip(1),ema(0.999)", last one outermost; NULL or "" for none */
    const char *options;        /* "nesterov=true,k=5" */
    Types types;
    FindSpec find;
    void *find_ctx;
    int bindings;               /* bindings that share the reductions over all tensors; 0: one */
    int product;                /* 1 + the Product that products are computed in; 0: as in the
                                 * rule */
    const Target *target;       /* target of the plan; NULL: target_c */
    const struct PlanLimits *limits;   /* of planning; NULL: the defaults */
    const char *dump;           /* name of a pass whose result is appended to dump_to; "all": of
                                 * every pass */
    Buf *dump_to;
    bool time_passes;           /* appends one line per pass to dump_to */
    bool rule_only;             /* makes no plan: Gen.plan stays NULL */
} GenOptions;

/* The index, among the names that a spec's text declares (`name = …`), of this one, from 0; -1: not
 * declared, or out of memory. */
int spec_position(const char *text, const char *name);
/* Whether no entry reads hyperparameter h with the chosen options; then appends a warning. Call it
 * after all passes. */
bool rule_unread(Buf *b, const Rule *r, int h);
/* NULL: the Diag is set */
Rule *pass_trace(Arena *a, Source spec, const GenOptions *o, Diag *d);
#endif
