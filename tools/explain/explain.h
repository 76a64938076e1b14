/* Shared by the files of `optc explain`. */
#ifndef OPTC_EXPLAIN_H
#define OPTC_EXPLAIN_H
#include "tools/tools.h"

#include "optc.h"

void explain_plan(Arena *a, const Plan *p, unsigned variants);                 /* variants: bit v, those to print */
const char *explain_phase(Arena *a, const Plan *p, int entry, int mask);       /* "step, t divisible by 5" */
bool explain_runs(const Stage *st, int variant);                               /* a tensor of that variant meets it */

/* What the floor is worked out from. */
typedef struct Bandwidth {
    double rate; const char *whence;           /* bytes per second, 0: unknown; where that is known from */
    const char *device; const Target *target;  /* NULL: as given */
    double flops[NCALLEE], growth[NCALLEE];    /* operations per second, by callee, 0: unknown; see flop_rate */
    double gram;                               /* those of symmetric products; 0: as of others */
    bool busy;                                 /* some of them were measured on a busy machine */
    int threads;                               /* share the factors of several matrices, one each */
} Bandwidth;

/* ---- explain_calls.c ---- */
/* Products and factors of one stage and tensor; flops 0: it is none of them. one: seconds of the largest matrix of
 * factors, which one thread does; all: of all of them, on one thread. Of products all is the time of all threads. */
typedef struct CallCost { double flops, one, all; bool factor; } CallCost;
CallCost explain_call_cost(const Phase *ph, const Stage *st, Shape s, const Bandwidth *f);
void plan_callees(const Plan *p, bool any[NCALLEE]);                           /* those that it calls */
const char *explain_call(Arena *a, const Phase *ph, const Stage *st);          /* "product, rows x rows over cols …" */
/* bytes of temporaries that a tensor of this shape needs at a time */
double explain_room(Arena *a, const Plan *p, const Phase *ph, int variant, Shape s);
double explain_rate(const char *device, Product product);                      /* operations per second; 0: unknown */

/* Of the device that a name stands for (NULL: the best here), from the cache folder, or measured and kept there; anew:
 * measured in any case. Where there is no room to measure the rate is 0. false: no such device, and it has said so. */
bool bandwidth_of(Arena *a, const char *device, bool anew, Bandwidth *out);

/* Another rate of the engine's device, likewise kept; 0: it cannot be measured. alone: nothing else was in the way;
 * *busy becomes true where something was. */
typedef double (*Measure)(optc_engine *e, const void *ctx, bool *alone);
double rate_of(Arena *a, optc_engine *e, const char *what, bool anew, Measure measure, const void *ctx,
               bool *busy);

/* ---- explain_types.c ---- */
const char *explain_types(Arena *a, const Spec *s);          /* "states f32"; "states m q8, v q8u" */
const char *explain_codes(Arena *a, const Plan *p);          /* what block codes take; "": the rule has none */
double explain_bytes(Type t);                                /* of one value, with its share of a block's scale */
const char *explain_amount(Arena *a, double bytes);          /* "8", "2.06" */
/* The pass that a tensor of this variant has only because its states are block codes; NULL: none. */
const Stage *explain_code_pass(const Phase *ph, int variant);

/* ---- flop_rates.c ---- */
/* What this CPU reaches in the products and factors that the plan has. */
bool flop_rates(Arena *a, const Plan *p, bool anew, Bandwidth *f);
/* of a matrix of so many rows; 0: unknown */
double flop_rate(const Bandwidth *f, Callee c, double side);

/* ---- cmd_explain.c: what stages cost ---- */
/* What stages move and compute, and what that takes at the least. Stages follow one another, and each takes the longer
 * of moving and computing. seconds: of stages other than factors. Threads share the factors of several matrices, and
 * one thread does one matrix. factors: seconds of all of them on one thread; largest: of the largest one of each stage.
 * */
typedef struct Cost { double bytes, flops, moving, computing, seconds, factors, largest; } Cost;
Cost phase_cost(const Plan *p, const Phase *ph, int variant, Shape shape, const Bandwidth *f, bool turn);
bool has_stagger(const Phase *ph, int variant); /* stages that run for some tensors of a step; cost with turn: for it */
/* of another tensor, whose factors run beside those of the first */
void add_tensor(Cost *to, Cost c);
double cost_time(Cost c, const Bandwidth *f);
/* "memory 4.3 ms, products 62 ms: products limit it"; "": there is nothing to compare */
const char *limit_text(Arena *a, Cost c, const Bandwidth *f);
/* "products at 98.7 GFLOP/s, eigh at 17.9 (256 rows)"; "": no rate is known */
const char *flops_text(Arena *a, const Plan *p, const Bandwidth *f);
Shape rule_shape(const Rule *r, Shape s);               /* with the rank and the blocks that the rule gives it */
Dims square(int64_t n);                                 /* a matrix of about n elements that is about square */
int variant_taken(const Rule *r, const Dims *d);        /* by a tensor of this shape, without name and tags */

/* ---- explain_summary.c ---- */
void explain_summary(const Spec *s, unsigned variants, const DimsList *shapes, int64_t size, const Bandwidth *f);
#endif
