/* What the compiler offers: text in, text and tables out. It opens no file, starts no process, knows no device.
 *
 *   gen_rule     spec (and wrappers) -> Rule, after all passes on rules
 *   gen_plan     Rule + storage types -> Plan (plan.h)
 *   gen_emit     Plan -> source text for a target
 *
 * What the first two make lives in the Gen, which one thread uses at a time; two Gens share nothing. From then on it is
 * only read: any number of threads may emit from one, and emitting leaves nothing behind. */
#ifndef OPTC_GEN_H
#define OPTC_GEN_H
#include "gen/base/diag.h"
#include "gen/base/digest.h"
#include "gen/ir/ir.h"
#include "gen/plan/launch.h"
#include "gen/plan/plan.h"

typedef struct Source { const char *path, *text; size_t len; } Source;

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
    const PlanLimits *limits;   /* of planning; NULL: the usual ones */
    const char *dump;           /* name of a pass: its result goes to dump_to; "all": every one */
    Buf *dump_to;
    bool time_passes;           /* adds a line a pass to dump_to */
    bool rule_only;             /* no plan is asked for: Gen.plan stays NULL */
} GenOptions;

typedef struct Gen {
    Arena arena;
    Rule *rule;
    Plan *plan;
    Diag diag;
} Gen;

typedef struct EmitOptions {
    const Target *target;       /* NULL: the one that was planned for */
    const char *command;        /* that makes the file again, for its head; NULL: `optc emit` of this rule */
    const char *prefix;         /* ahead of the names of stages, where several rules share a file; NULL: none */
    const Launch *launch;       /* by Stage.fn, for targets that have launches; NULL: as the model says */
    const Stage *only;          /* CUDA: this kernel alone; NULL: all */
    int part, nparts;           /* CUDA: only this part of the kernels; nparts 0: all */
    bool conditions;            /* CUDA: where there are products, what asks on the device which phase a step is of */
    bool cite;                  /* CUDA: #line directives, so that messages of the compiler name the spec's lines */
} EmitOptions;

bool gen_compile(Gen *g, Source spec, const GenOptions *o);       /* trace, passes, plan; false: g->diag */
bool gen_read_ir(Gen *g, Source text, const GenOptions *o);       /* IR text in place of a spec */
/* Owned by the caller; NULL: d says why (no text: out of memory). */
char *gen_emit(const Gen *g, const EmitOptions *o, Diag *d);
void gen_free(Gen *g);
/* Hash of the code alone: a comment at its head and #line do not count; false: out of memory. */
bool emit_key(const char *source, char hex[DIGEST_HEX]);

const char *const *gen_passes(void);                              /* names, NULL-terminated */

/* ir_text.c */
void rule_print(Buf *b, const Rule *r);
Rule *rule_parse(Arena *a, Source text, Diag *d);
void plan_print(Buf *b, const Plan *p, bool terse);

/* passes on rules, each a file; false: the Diag is set */
Rule *pass_trace(Arena *a, Source spec, const GenOptions *o, Diag *d);
bool pass_verify(Rule *r, Diag *d);
bool pass_constant_fold(Rule *r, Diag *d);
bool pass_product_fuse(Rule *r, Diag *d);
#endif
