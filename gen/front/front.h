/* From the text of a spec and its wrappers to a Rule. */
#ifndef OPTC_FRONT_H
#define OPTC_FRONT_H
#include "gen/ir/rule_passes.h"
#include "gen/ir/target.h"

struct PlanLimits;

/* How names in `with` become text, and those of rules, which begin with RULE_NAMED. Returns false with the Diag set. */
#define RULE_NAMED "rule:"
typedef bool (*FindSpec)(void *ctx, const char *name, Arena *arena, Source *out, Diag *d);

typedef struct Types { Type p, g, state; } Types;

typedef struct GenOptions {
    const char *with;           /* "clip(1),ema(0.999)", last one outermost; NULL or "" for none */
    const char *options;        /* "nesterov=true,k=5" */
    Types types;
    FindSpec find;
    void *find_ctx;
    int product;                /* 1 + what products are computed in (a Product); 0: as the rule says */
    const Target *target;       /* what is planned for; NULL: target_c */
    const struct PlanLimits *limits;   /* of planning; NULL: the usual ones */
    const char *dump;           /* name of a pass: its result goes to dump_to; "all": every one */
    Buf *dump_to;
    bool time_passes;           /* adds a line a pass to dump_to */
    bool rule_only;             /* no plan is asked for: Gen.plan stays NULL */
} GenOptions;

/* At which of its names a spec's text declares this one (`name = …`), from 0; -1: nowhere, or out of memory. */
int spec_position(const char *text, const char *name);
/* Whether no entry reads hyperparameter h with the chosen options; then appends a warning. Call it after all passes. */
bool rule_unread(Buf *b, const Rule *r, int h);
Rule *pass_trace(Arena *a, Source spec, const GenOptions *o, Diag *d);         /* NULL: the Diag is set */
#endif
