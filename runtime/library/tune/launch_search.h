/* Searches for better launches of a stage.
 *
 * The search (launch_search.c) is independent of the device: it proposes launches, and a Meter
 * prepares them and races them against the best one so far. It compares by the ratio of two medians
 * whose samples alternate, so that a device that slows down meanwhile affects both sides.
 *
 *   seeds      the model's launch; the best one of an earlier run; the rival: the model's launch
 *              on the other side of its size limit, which is a guess; both with each single knob
 *              changed; and the launches with about 64 KiB of loads in flight per multiprocessor
 *   halving    all seeds with few samples, the best third with three times as many, and so on until
 *              four are left
 *   climbing   from the winner, every untried launch that differs in one or two knobs, until none
 *              is better or the budget is used up
 *   duel       before a launch becomes the best one, and at the end against the model: many samples
 *              on each layout alone. A launch that is slower than the model on one layout is
 *              rejected, whatever it gains on others. So is one that is slower at a neighbouring
 *              size, because that size would use the result too
 *
 * Exhaustive: all launches, then halving among the best.
 *
 * Long steps get fewer samples, down to one; the budget and `stop` are checked between samples, and
 * a win by few samples must be clearer. */
#ifndef OPTC_SEARCH_H
#define OPTC_SEARCH_H
#include "runtime/library/tuned/tuned.h"
#include "runtime/library/tune/compile_workers.h"

/* The launches that may be tried. */
typedef struct Space {
    LaunchForm form;
    /* rival: the model's beyond its size limit, or equal to model */
    Launch model, rival;
    /* NULL: every combination of knobs is valid, and no seed is preferred */
    const Plan *plan; const Stage *stage;
} Space;
Space search_stage_space(const Plan *p, const Stage *st, int64_t elements);

enum { MOST_LAYOUTS = 6 };
typedef struct Tried {
    Launch launch;
    double ms;                         /* relative to the model's time, model_ms */
    double to_model[MOST_LAYOUTS];     /* from duels: its time over the model's on each layout; 0:
                                        * no duel yet */
    int samples;
    bool looked;                       /* the neighbouring sizes were measured */
    /* uneven: the model is faster on some layout or at a neighbouring size; ms is then the time
     * there */
    bool failed, uneven;
} Tried;

/* Most launches in one call of Meter.ready, and of Meter.prepare. */
enum { SEARCH_BATCH = 16, SEARCH_AHEAD = 64 };
typedef struct Meter {
    void *ctx;
    /* Layouts of the work that is timed: races use all in turn, duels each alone. */
    int layouts;
    /* One sample is enough to find launches that are far behind: it contains many runs, and they
     * are short. */
    bool steady;
    /* Prepares the neighbouring sizes and returns the number of layouts with them; may be NULL. */
    int (*widen)(void *ctx);
    /* Announces the launches that `ready` gets next, in this order, at most SEARCH_AHEAD; a launch
     * may be announced more than once. NULL: preparing several launches at once saves nothing. */
    void (*prepare)(void *ctx, const Launch *l, int n);
    /* Prepares n launches for races. ok[i] false: launch i does not compile, or gives other
     * bits. */
    void (*ready)(void *ctx, const Launch *l, int n, bool *ok);
    /* Medians of alternating runs. layout -1: all layouts. false: the device failed. */
    bool (*race)(void *ctx, int layout, const Launch *a, const Launch *b, int samples, double *ms_a,
                 double *ms_b);
    /* seconds */
    double (*now)(void *ctx);
    /* false: the launch need not be tried on this device; may be NULL: try all. */
    bool (*worth)(void *ctx, const Launch *l);
    /* The share of its threads' time that they waited for a core during races; may be NULL. */
    double (*busy)(void *ctx);
} Meter;

typedef struct Search {
    double budget;                     /* seconds; INFINITY: no time limit */
    int trials;                        /* most launches that are timed or fail; 0: as many as the
                                        * budget allows */
    bool exhaustive;
    const Launch *known;               /* the best launch of an earlier run: tried first; or NULL */
    const Launch *used;                /* the launch that steps use now; NULL: the model's */
    volatile const int *stop;          /* not 0: end now with the results so far; may be NULL */
    /* may be NULL */
    void (*progress)(void *ctx, const struct Search *s, int tried, int of, double left);
    void *progress_ctx;
    /* results */
    Tried *trial; int n, cap;          /* all launches that were proposed; search_free frees them */
    int best, model;                   /* indices into trial */
    double model_ms;
    double used_ms;                    /* time of `used`, raced against the best at the end; 0: it
                                        * was not timed */
    /* The search was complete: neither the budget, the number of trials nor `stop` ended it. */
    bool finished;
    double spent;
} Search;

/* false: the device failed, or out of memory */
bool search_run(const Space *space, const Meter *m, Search *s);
void search_free(Search *s);
bool search_valid(const Space *space, const Launch *l);
/* Lists all valid launches, malloc'ed; returns their number, or -1 if memory ran out. */
int search_space(const Space *space, Launch **out);

/* ---- tune_gpu.c: a rule on a GPU, with tensors that the tuner allocates ---- */
typedef struct GpuTuner GpuTuner;
struct optc_engine;
struct optc_rule;
/* w: workers that compile the candidates; may be NULL. This call and the next two return an
 * optc_status. */
int gpu_tuner_open(struct optc_rule *r, Workers *w, GpuTuner **out);
/* Selects the stage to measure. Its compiled kernels are used for all sizes. */
int gpu_tuner_stage(GpuTuner *t, int fn);
/* Selects the size: the total number of elements of the tensors. */
int gpu_tuner_size(GpuTuner *t, int64_t elements);
Meter gpu_tuner_meter(GpuTuner *t);
/* bytes that the stage moves, by the plan */
double gpu_tuner_bytes(const GpuTuner *t);
void gpu_tuner_close(GpuTuner *t);

/* ---- tune_methods.c: methods for eigenvectors and roots of matrices on a GPU ---- */
typedef struct MethodWork { bool roots; int64_t rows, matrices; } MethodWork;
struct GpuEngine;
struct Program;
void method_key(const struct GpuEngine *g, MethodWork w, bool f64, TunedKey *k);
/* the next size to measure, from rows 0; false: no more sizes */
bool method_next(MethodWork *w);
void method_label(MethodWork w, char out[64]);      /* eigenvectors_64x256 */
/* The program computes roots (or eigenvectors) and has a choice of methods. method_f64: it has
 * eigenvectors in f64. */
bool method_for(const struct Program *p, bool roots);
bool method_f64(const struct Program *p);
typedef struct MethodTuner MethodTuner;
int method_tuner_open(struct optc_engine *e, MethodWork w, bool f64, MethodTuner **out);
bool method_tuner_choice(const MethodTuner *u);    /* there is more than one method */
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
