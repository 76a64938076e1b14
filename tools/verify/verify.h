/* optc verify: what the emitted code of a rule stores is what its plan says, for all values of the
 * floats.
 *
 *   verify_rule.c    for each stage: emits it, compiles it by NVRTC, reads the PTX, runs all cases
 *   verify_case.c    a case: tensors of given sizes and alignment, their memory, and the launch
 *                    that optc would make
 *   ptx_*.c          executes the launch; floats are terms (terms.c, term_equal.c)
 *   plan_terms.c     what the plan's stage stores at each index, as terms of the same leaves
 *   plan_folds.c     the same for reductions, in the order that gen/plan/plan.h fixes
 *   verify_mutate.c  changes the PTX in one place at a time: each change must be refused, or be
 *                    equivalent
 *
 * Data. A leaf is what an array of a tensor holds at an index before the stage runs. Both sides
 * make their terms from the same leaves in one TermPool per case; the machine's memory then holds
 * what the kernel stored. A Verify owns everything and lives for one rule; a VerifyCase lives in
 * its arena until the next one.
 *
 * Sound for: all floats, and the shapes, alignments and step numbers of the cases. Trusted: ptxas,
 * the GPU, this code, and the shared functions (exp, …), which are only compared with their own
 * code compiled alone. */
#ifndef OPTC_VERIFY_VERIFY_H
#define OPTC_VERIFY_VERIFY_H
#include "tools/tools.h"
#include "tools/verify/ptx.h"

enum { MOST_CASE_TENSORS = 40, CASE_GROUPS = 2 };
/* shift: 1: all arrays begin one value later; 2 + k: array k of the stage does. absent: the tensor
 * takes no part in the step */
typedef struct CaseTensor { Shape shape; int shift; bool absent; } CaseTensor;
typedef struct CasePlan {
    const char *name;
    /* stages of groups: one for each group */
    CaseTensor tensor[MOST_CASE_TENSORS]; int n;
    double t;
    bool advance, symbolic_t;
} CasePlan;

typedef struct Verify {
    const Gen *gen;
    const Plan *plan;
    const Nvrtc *nvrtc;
    int arch;
    TermProofs proofs;
    /* of the current stage */
    Arena arena;
    const Phase *phase;
    StageAt at;
    Launch launch;
    const char *kernel_name;
    char *ptx;                                             /* the PTX text */
    PtxKernel kernel;
    PtxKernel ref[NOPS]; bool has_ref[NOPS];               /* shared functions, compiled alone */
    /* of the current case */
    Arena scratch;
    TermPool pool;
    /* proved stores, cases and instructions so far */
    int64_t most_steps;                                    /* of a case; 0: the default */
    int64_t values, cases, steps;
    char why[4000];                                        /* the first difference */
} Verify;

typedef struct VerifyCase {
    Verify *v;
    const CasePlan *plan;
    PtxMemory memory;
    PtxMachine machine;
    /* by tensor * nmem + mem; -1. arrays so far */
    int *area, placed;
    int hyper[CASE_GROUPS];                                /* tensors belong to them in turn */
    Term t[CASE_GROUPS];                                   /* the step, as f64 */
    uint8_t param[256];
} VerifyCase;

/* ---- verify_case.c ---- */
int verify_cases(const Verify *v, CasePlan *out);
void case_start(VerifyCase *c, Verify *v, const CasePlan *plan);
bool case_run(VerifyCase *c);                              /* false: c->machine.error */
static inline int case_group(int tensor) { return tensor % CASE_GROUPS; }
int case_area(const VerifyCase *c, int tensor, int mem);
int64_t case_length(const VerifyCase *c, int tensor, int mem);
/* with rings resolved for the case's step */
int access_mem(const VerifyCase *c, Access a);

/* ---- plan_terms.c ---- */
typedef struct PlanSide {
    VerifyCase *c;
    const Graph *g;
    const Stage *s;
    /* real: bytes of the type that the stage computes in */
    int tensor, real;
    Term *memo; int *when; int now;
    int *load_of, *fin_of;                                 /* by value: index + 1 */
    /* 1 / sqrt(x) by templates/exact_cuda.h */
    bool approximate_root;
    /* what is not supported; NULL: nothing */
    const char *missing;
} PlanSide;
void side_start(PlanSide *s, VerifyCase *c, int tensor);
/* in the type that the stage computes in */
Term side_value(PlanSide *s, Ref r, int64_t index);
Term side_stored(PlanSide *s, Type t, Ref r, int64_t index);
/* values of n->from per value of n->dom, in f64 */
Term side_count(PlanSide *s, const Node *n);
int64_t side_mirrored(Dom d, int64_t index, Shape h);
Term side_cast(PlanSide *s, int width, Term x);
Term side_loaded(PlanSide *s, Type t, Term leaf);          /* in its compute type */
Term side_less(PlanSide *s, bool max, Term a, Term b);     /* optc_min, optc_max */

/* ---- plan_folds.c ---- */
Term side_finished(PlanSide *s, Access f, int64_t index);
/* 0: not a partial that this stage writes */
Term side_partial(PlanSide *s, Access f, int64_t index);

/* ---- verify_rule.c ---- */
typedef enum { VERIFY_PROVED, VERIFY_WRONG, VERIFY_SKIPPED } VerifyResult;
bool verify_begin(Verify *v, const Gen *g, const Nvrtc *n, int arch);
void verify_end(Verify *v);
VerifyResult verify_compile(Verify *v, int fn);            /* emits and compiles a stage */
/* runs all cases of the compiled stage */
VerifyResult verify_stage(Verify *v);

/* ---- verify_mutate.c ---- */
typedef struct MutantCount { int made, refused, equal; } MutantCount;
void verify_mutants(Verify *v, int most, MutantCount *out);
#endif
