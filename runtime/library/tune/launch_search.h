/* Looking for better launches of a stage.
 *
 * The search (launch_search.c) knows no device: it proposes launches, a Meter makes them ready and races them against
 * the best so far. What it goes by is the ratio of two medians taken in turn, so that a device that slows
 * down meanwhile slows down both.
 *
 *   seeds      the model's launch, what is known from before, its rival's (the model's for sizes beyond its border,
 *              which lies where it lies by a guess), of both each knob turned alone, and the launches that keep most
 *              bytes under way
 *   halving    all seeds with few samples, the best third with three times as many, and so on until four are left
 *   climbing   from the winner, every launch one or two knobs away that has not been tried, until nothing is better or
 *              the budget is spent
 *   a duel     before one takes the place of the best, and at the end against the model: many samples on each layout of
 *              the work alone; who is worse than the model on one of them is out, whatever it gains on the others, and
 *              who is worse at a size beside, which would take the result
 *
 * Exhaustive: everything, then halving among the best.
 *
 * Where steps are long there are fewer samples, down to one, and the budget and stop are looked at between them; what
 * few samples say must be clearer. */
#ifndef OPTC_SEARCH_H
#define OPTC_SEARCH_H
#include "runtime/library/tune/tuned.h"
#include "runtime/library/tune/compile_workers.h"

/* What may be tried. */
typedef struct Space {
    LaunchForm form;
    Launch model, rival;                       /* rival: the model's for sizes beyond its border, or the same */
    const Plan *plan; const Stage *stage;      /* NULL: every combination is valid and none better than another */
} Space;
Space search_stage_space(const Plan *p, const Stage *st, int64_t elements);

enum { MOST_LAYOUTS = 6 };
typedef struct Tried {
    Launch launch;
    double ms;                         /* on the scale of the model's time */
    double to_model[MOST_LAYOUTS];     /* by duels: its time over the model's on each layout; 0: it has had none */
    int samples;
    bool looked;                       /* at the sizes beside */
    /* uneven: the model is better on some layout or at a size beside, and that is its time */
    bool failed, uneven;
} Tried;

/* launches that are made ready at once, at most; that may be named ahead */
enum { SEARCH_BATCH = 16, SEARCH_AHEAD = 64 };
typedef struct Meter {
    void *ctx;
    /* of the work that is timed: all in turn, or (in duels) each alone */
    int layouts;
    /* a sample is so many runs that one shows who is far behind, and short all the same */
    bool steady;
    /* makes ready the sizes beside this one: how many layouts there are then; may be NULL */
    int (*widen)(void *ctx);
    /* these are asked for next, in this order, at most SEARCH_AHEAD; more than once; NULL: nothing is gained by
     * making several ready at once */
    void (*prepare)(void *ctx, const Launch *l, int n);
    /* makes n launches ready; ok[i] false: it does not build, or other bits come out */
    void (*ready)(void *ctx, const Launch *l, int n, bool *ok);
    /* medians of alternating runs; layout -1: all; false: the device failed */
    bool (*race)(void *ctx, int layout, const Launch *a, const Launch *b, int samples, double *ms_a, double *ms_b);
    double (*now)(void *ctx);                                                             /* seconds */
    /* false: not of the space here; may be NULL, as they all are */
    bool (*worth)(void *ctx, const Launch *l);
    /* the share of its threads' time that they waited for a core during races */
    double (*busy)(void *ctx);
} Meter;

typedef struct Search {
    double budget;                     /* seconds; INFINITY: the clock decides nothing */
    int trials;                        /* launches that are timed or fail, at most; 0: as many as the budget allows */
    bool exhaustive;
    const Launch *known; int nknown;   /* found before: tried first (the first few) */
    const Launch *used;                /* what steps use now; NULL: the model's */
    volatile const int *stop;          /* not 0: end now with what there is; may be NULL */
    void (*progress)(void *ctx, const struct Search *s, int tried, int of, double left);     /* progress; may be NULL */
    void *progress_ctx;
    /* results */
    Tried *trial; int n, cap;          /* everything tried; owned here */
    int best, model;                   /* indices into trial */
    double model_ms;
    double used_ms;                    /* what steps use now, raced against the best at the end; 0: it does not build */
    /* the search ended by itself: not by the budget or the number of trials, not by stop */
    bool finished;
    double spent;
} Search;

bool search_run(const Space *space, const Meter *m, Search *s);      /* false: the device failed, or no memory */
void search_free(Search *s);
bool search_valid(const Space *space, const Launch *l);
/* all valid launches, the count; malloc'ed */
int search_space(const Space *space, Launch **out);

/* ---- tune_gpu.c: a rule on tensors of our own ---- */
typedef struct GpuTuner GpuTuner;
struct optc_engine;
struct optc_rule;
/* an optc_status, as the next two; w: compile the candidates, may be NULL */
int gpu_tuner_open(struct optc_rule *r, Workers *w, GpuTuner **out);
/* the stage that is measured from now on; its kernels serve all sizes */
int gpu_tuner_stage(GpuTuner *t, int fn);
/* on tensors of so many elements in all */
int gpu_tuner_size(GpuTuner *t, int64_t elements);
Meter gpu_tuner_meter(GpuTuner *t);
double gpu_tuner_bytes(const GpuTuner *t);                                        /* that the stage moves by the plan */
void gpu_tuner_close(GpuTuner *t);

/* ---- tune_methods.c: which way eigenvectors and roots of matrices are found in on a GPU ---- */
typedef struct MethodWork { bool roots; int64_t rows, matrices; } MethodWork;
struct GpuEngine;
struct Program;
void method_key(const struct GpuEngine *g, MethodWork w, bool f64, TunedKey *k);
bool method_next(MethodWork *w);                    /* from rows 0; false: that was the last */
void method_label(MethodWork w, char out[64]);      /* eigenvectors_64x256 */
/* a program has such with something to choose; has them in f64 */
bool method_for(const struct Program *p, bool roots);
bool method_f64(const struct Program *p);
typedef struct MethodTuner MethodTuner;
int method_tuner_open(struct optc_engine *e, MethodWork w, bool f64, MethodTuner **out);
bool method_tuner_choice(const MethodTuner *u);    /* there is more than one way */
Space method_tuner_space(const MethodTuner *u);
Meter method_tuner_meter(MethodTuner *u);
double method_tuner_bytes(const MethodTuner *u);
void method_tuner_close(MethodTuner *u);

/* ---- tune_cpu.c: a whole step of a rule on the CPU ---- */
typedef struct CpuTuner CpuTuner;
int cpu_tuner_open(struct optc_rule *r, int64_t elements, CpuTuner **out);
Space cpu_tuner_space(void);
Meter cpu_tuner_meter(CpuTuner *t);
double cpu_tuner_bytes(const CpuTuner *t);
void cpu_tuner_close(CpuTuner *t);
#endif
