/* Shared by the files of `optc explain`. */
#ifndef OPTC_EXPLAIN_H
#define OPTC_EXPLAIN_H
#include "tools/page/json.h"
#include "tools/tools.h"

#include "optc.h"

/* ---- rule_facts.c ---- */
enum { FACTS_KEY = 15 };                               /* width of the keys of facts_text */
/* text: the fields of the spec; of IR text, those that the rule has. title: "adamw with clip(1)" */
typedef struct RuleFacts { const Spec *spec; Fields text; const char *title; } RuleFacts;
RuleFacts facts_read(const Spec *s);
void facts_hypers(const RuleFacts *f);                 /* lines of `list` and of explain --full */
void facts_options(const RuleFacts *f);
void facts_text(const char *key, const char *text);    /* a line of `show` and `explain` */
const char *facts_hyper_list(const RuleFacts *f);      /* "lr = 0.001, beta1 = 0.9" */
void facts_json(JsonText *t, const RuleFacts *f);      /* members of an object */

/* variants: bit v: print variant v */
void explain_plan(Arena *a, const Plan *p, unsigned variants);
/* "step, t divisible by 5" */
const char *explain_phase(Arena *a, const Plan *p, int entry, int mask);
/* the stage runs for that variant */
bool explain_runs(const Stage *st, int variant);


/* The rates from which the least time is computed. */
typedef struct Bandwidth {
    /* bytes per second, 0: unknown; the source of that number */
    double rate; const char *whence;
    const char *device; const Target *target;  /* device NULL: the rate is from --bandwidth */
    /* operations per second, by callee, 0: unknown; see flop_rate */
    double flops[NCALLEE], growth[NCALLEE];
    /* operations per second of symmetric products; 0: as others */
    double gram;
    /* of products with a precision of their own; 0: as others */
    double own[NPRODUCT];
    bool busy;                                 /* some rates were measured on a busy machine */
    int threads;                               /* threads that compute factors, one matrix each */
} Bandwidth;

/* ---- explain_calls.c ---- */
/* Cost of a product or factor, for one stage and tensor; flops 0: the stage is neither. Factors:
 * `one` is the seconds of the largest matrix, which one thread computes; `all` those of all
 * matrices on one thread. Products: `all` is the time with all threads. */
typedef struct CallCost { double flops, one, all; bool factor; } CallCost;
CallCost explain_call_cost(const Phase *ph, const Stage *st, Shape s, const Bandwidth *f);
/* the callees of a plan */
void plan_callees(const Plan *p, bool any[NCALLEE]);
/* "product, rows x rows over cols …, in tf32" */
const char *explain_call(Arena *a, const Plan *p, const Phase *ph, const Stage *st);
/* their precisions: "f32 and tf32" */
const char *explain_products(Arena *a, const Plan *p);
/* Appends the rates of products with a precision of their own: ", those in tf32 at 380 TFLOP/s". */
const char *explain_own_rates(Arena *a, const Plan *p, const Bandwidth *f, const char *text);
/* Most bytes of temporaries that a tensor of this shape needs at the same time. */
double explain_room(Arena *a, const Plan *p, const Phase *ph, int variant, Shape s);
/* operations per second; 0: unknown */
double explain_rate(const char *device, Product product);

/* The rates of a device by name (NULL: the best one), from the cache folder, or measured and stored
 * there; anew: always measures. The rate is 0 if there is no memory to measure it. false: no such
 * device; the reason is printed. */
bool bandwidth_of(Arena *a, const char *device, bool anew, Bandwidth *out);

/* Measures another rate of the engine's device, which is stored likewise; 0: it cannot be measured.
 * *alone: no other process disturbed the measurement; otherwise *busy of the call below becomes
 * true. */
typedef double (*Measure)(optc_engine *e, const void *ctx, bool *alone);
double rate_of(Arena *a, optc_engine *e, const char *what, bool anew, Measure measure,
               const void *ctx, bool *busy);

/* ---- explain_types.c ---- */
/* "states f32"; "states m q8, v q8u" */
const char *explain_types(Arena *a, const Spec *s);
/* what block codes take; "": the rule has none */
const char *explain_codes(Arena *a, const Plan *p);
/* of one value, with its share of a block's scale */
double explain_bytes(Type t);
const char *explain_amount(Arena *a, double bytes);          /* "8", "2.06" */
/* The pass that a tensor of this variant has only because its states are block codes; NULL:
 * none. */
const Stage *explain_code_pass(const Phase *ph, int variant);

/* ---- explain_ranks.c ---- */
int explain_ranks(const char *spec, const CompileOpts *o, const TensorOpts *of);

/* ---- flop_rates.c ---- */
/* Rates of this CPU for the products and factors of a plan. */
bool flop_rates(Arena *a, const Plan *p, bool anew, Bandwidth *f);
/* The rate for matrices of that many rows; 0: unknown. */
double flop_rate(const Bandwidth *f, Callee c, double side);

/* ---- cmd_explain.c: what stages cost ---- */
/* Bytes and operations of stages, and their least time. Stages run one after another; each takes
 * the longer of moving and computing. seconds: stages other than factors. Threads share the factors
 * of several matrices, one matrix each.
 * factors: seconds of all factors on one thread; largest: of the largest one of each stage. */
typedef struct Cost { double bytes, flops, moving, computing, seconds, factors, largest; } Cost;
Cost phase_cost(const Plan *p, const Phase *ph, int variant, Shape shape, const Bandwidth *f,
                bool turn);
/* it has stages that run only for scheduled tensors */
bool has_stagger(const Phase *ph, int variant);
/* Adds the cost of another tensor. Its factors run in parallel with those of the first. */
void add_tensor(Cost *to, Cost c);
double cost_time(Cost c, const Bandwidth *f);
/* "memory 4.3 ms, products 62 ms: products limit it"; "" if there is nothing to compare. */
const char *limit_text(Arena *a, Cost c, const Bandwidth *f);
/* "products at 98.7 GFLOP/s, eigh at 17.9 (256 rows)"; "" if no rate is known. */
const char *flops_text(Arena *a, const Plan *p, const Bandwidth *f);
/* a matrix or vector of about n elements, as the variant takes it */
Dims explain_usual(const Rule *r, int variant, int64_t n);
/* d as the variant views it; flat: d is from explain_usual */
Shape explain_shape(const Rule *r, int variant, const Dims *d, bool flat);
/* the variant of a tensor of this shape, without tags */
int variant_taken(const Rule *r, const Dims *d);

/* ---- explain_summary.c ---- */
/* Counts over the stages of a variant: passes over the elements, bytes per element, launches, calls
 * of products and factors. */
typedef struct StageCounts { int passes, bytes, launches, calls; } StageCounts;
StageCounts explain_counts(const Phase *ph, int variant);
/* "8 bytes per element: m, v; r: 4 per row". wrapper: only the states of this wrapper; NULL:
 * all. */
const char *explain_states(Arena *a, const Plan *p, int variant, const char *wrapper);
/* "matrices, nrows >= ncols"; "all other tensors" */
const char *explain_tests(Arena *a, const Variant *v);
void explain_summary(const RuleFacts *f, unsigned variants, const DimsList *shapes, int64_t size,
                     const Bandwidth *rates);
#endif
