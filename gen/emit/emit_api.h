/* Public interface of the emitters: source text for a target, and hashes that identify it. */
#ifndef OPTC_EMIT_API_H
#define OPTC_EMIT_API_H
#include "gen/base/diag.h"
#include "gen/base/digest.h"
#include "gen/plan/launch.h"
#include "gen/plan/plan.h"

/* A compiled rule. One thread makes it; afterwards any number of threads may read it. */
typedef struct Gen {
    Arena arena;
    Rule *rule;
    Plan *plan;
    Diag diag;
} Gen;

/* PART_CALLS: the kernels of calls except products. PART_PRODUCTS: products where no library computes them; they take
 * longest to compile, and most bindings launch none. */
enum EmitPart { PART_CALLS = -1, PART_PRODUCTS = -2 };
typedef struct EmitOptions {
    const Target *target;       /* NULL: the target of the plan */
    const char *command;        /* printed in the head of the file, to generate it again; NULL: `optc emit` … */
    const char *prefix;         /* of the names of stages, if several rules share a file; NULL: none */
    const Launch *launch;       /* by Stage.fn, for targets that have launches; NULL: the model's */
    const Stage *only;          /* CUDA: only this kernel; NULL: all */
    /* CUDA: only this part of the kernels: part below nparts of the stages, or one of EmitPart; nparts 0: all */
    int part, nparts;
    bool conditions;            /* CUDA: adds KERNEL_PHASE, which finds the phase of a step on the device */
    /* Random draws, stochastic rounding and dithers follow pieces that consist of runs (templates/runs.h). Other code
     * is the same. */
    bool runs;
    bool cite;                  /* CUDA: #line directives, so that compiler messages name lines of the spec */
} EmitOptions;

/* Returns source text that the caller must free. NULL: d contains the error (no text: out of memory). */
char *gen_emit(const Gen *g, const EmitOptions *o, Diag *d);
/* Hash of the code without the comment at its head and without #line; false: out of memory. */
bool emit_key(const char *source, char hex[DIGEST_HEX]);
/* The hash by which tuning results identify a stage; false: out of memory. */
bool emit_cuda_stage_hash(const Gen *g, int fn, char hex[33]);
/* Kernels that belong to no rule: section NAME of templates/NAME_cuda.txt. The caller frees the text; NULL: out of
 * memory. */
char *emit_cuda_alone(const char *section);
/* emit_parts: the number of programs that a rule's stages may be divided into, to compile them in parallel.
 * emit_part_of: the program that contains a stage. The kernel that advances t is in program 0. */
int emit_parts(const Plan *p);
int emit_part_of(const Plan *p, int fn, int nparts);
enum { MOST_STAGE_NAME = 128 };
const char *emit_stage_name(char buf[MOST_STAGE_NAME], const Plan *p, const char *entry, int mask, const Stage *s);
#endif
