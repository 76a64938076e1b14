/* The emitters' interface: source text for a target, and hashes that identify it. */
#ifndef OPTC_EMIT_API_H
#define OPTC_EMIT_API_H
#include "gen/base/diag.h"
#include "gen/base/digest.h"
#include "gen/plan/launch.h"
#include "gen/plan/plan.h"

/* A compiled rule. One thread makes it; then it is only read, by any number of threads. */
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

/* Owned by the caller; NULL: d says why (no text: out of memory). */
char *gen_emit(const Gen *g, const EmitOptions *o, Diag *d);
/* Hash of the code alone: a comment at its head and #line do not count; false: out of memory. */
bool emit_key(const char *source, char hex[DIGEST_HEX]);
/* The hash by which tuning results identify a stage; false: out of memory. */
bool emit_cuda_stage_hash(const Gen *g, int fn, char hex[33]);
/* Kernels that belong to no rule, a section of templates/kron_cuda.txt; malloc'ed, NULL: out of memory. */
char *emit_cuda_alone(const char *section);
/* Into how many programs it pays to cut a rule, to compile them side by side; which of them holds a stage. The kernel that
 * advances t is in the first. */
int emit_parts(const Plan *p);
int emit_part_of(const Plan *p, int fn, int nparts);
enum { MOST_STAGE_NAME = 128 };
const char *emit_stage_name(char buf[MOST_STAGE_NAME], const Plan *p, const char *entry, int mask, const Stage *s);
#endif
