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

typedef struct EmitOptions {
    const Target *target;       /* NULL: the target of the plan */
    const char *command;        /* printed in the head of the file, to generate it again; NULL:
                                 * `optc emit` … */
    const char *prefix;         /* of the names of stages, if several rules share a file; NULL:
                                 * none */
    const Launch *launch;       /* by Stage.fn, for targets that have launches; NULL: the model's */
    const Stage *only;          /* CUDA: only this kernel; NULL: all */
    const bool *select;         /* CUDA: by Stage.fn, only these stages and no other kernels; NULL:
                                 * all */
    /* Random draws, stochastic rounding and dithers follow pieces that consist of runs
     * (templates/runs.h). Other code is the same. */
    bool runs;
    bool cite;                  /* CUDA: #line directives, so that compiler messages name lines of
                                 * the spec */
} EmitOptions;

/* Returns source text that the caller must free. NULL: d contains the error (no text: out of
 * memory). */
char *gen_emit(const Gen *g, const EmitOptions *o, Diag *d);
/* Hash of the code without the comment at its head and without #line; false: out of memory. */
bool emit_key(const char *source, char hex[DIGEST_HEX]);
/* The hash by which tuning results identify a stage; false: out of memory. */
bool emit_cuda_stage_hash(const Gen *g, int fn, char hex[33]);
/* Kernels that belong to no rule: section NAME of templates/NAME_cuda.txt. The caller frees the
 * text; NULL: out of memory. */
char *emit_cuda_alone(const char *section);
/* Divides a rule's stages into programs that are compiled when a binding needs them. of: by
 * Stage.fn, the program of each stage, or -1; returns their number. */
int emit_divide(const Plan *p, int *of);
/* Programs that all rules share. FIXED_STEP: the kernels before a step. FIXED_SHARDS: exchanges
 * between ranks. FIXED_CALLS + a KernelProgram: kernels of calls, for operands in f32 or f64. The
 * caller frees the text; NULL: out of memory. */
enum { FIXED_STEP, FIXED_SHARDS, FIXED_CALLS, NFIXED = FIXED_CALLS + NKERNELPROGRAM };
char *emit_cuda_fixed(int program, bool f64);
enum { MOST_STAGE_NAME = 128 };
const char *emit_stage_name(char buf[MOST_STAGE_NAME], const Plan *p, const char *entry, int mask,
                            const Stage *s);
#endif
