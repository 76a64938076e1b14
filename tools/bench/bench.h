/* Shared by the files of `optc bench`. */
#ifndef OPTC_BENCH_H
#define OPTC_BENCH_H
#include "tools/tools.h"

#include "optc.h"

#include <signal.h>

/* ---- bench_device.c: memory and clocks of a device ---- */
/* Bytes per second; scale and read are 0 if only copying is measured. */
typedef struct Rates { double copy, scale, read, best; } Rates;
typedef struct BenchDevice BenchDevice;
/* functions that return false have printed the reason */
typedef struct BenchDeviceOps {
    /* a step returns before it is done: the host's time gets a column */
    bool async;
    double least_sample;                       /* least seconds of a sample */
    /* least steps of a sample, so that the cost of starting from idle is a small part */
    int least_steps;
    void *(*alloc)(BenchDevice *d, size_t bytes);   /* NULL: it has printed the reason */
    void (*free)(BenchDevice *d, void *p);
    bool (*fill)(BenchDevice *d, void *p, Type t, int64_t n, float scale);
    bool (*set)(BenchDevice *d, void *p, unsigned char byte, size_t bytes);
    double (*room)(BenchDevice *d);                 /* bytes that can be allocated */
    /* removes the data of earlier steps from the cache; NULL: the device does not need it */
    bool (*forget)(BenchDevice *d);
    /* waits for running work, then starts the clock */
    bool (*begin)(BenchDevice *d);
    bool (*end)(BenchDevice *d, double *seconds);   /* waits; the time of all work since begin */
    /* records the k-th time stamp after the work that was started so far; does not wait */
    bool (*lap)(BenchDevice *d, int k);
    /* waits; the n times between n + 1 time stamps */
    bool (*laps)(BenchDevice *d, int n, double *seconds);
    bool (*sync)(BenchDevice *d);
    /* starts or stops profilers that wait for it, such as `ncu --profile-from-start off`; NULL: the
     * device has none */
    void (*record)(BenchDevice *d, bool on);
    /* two arrays of about n floats to copy between */
    bool (*yard_open)(BenchDevice *d, int64_t n);
    bool (*yard_time)(BenchDevice *d, Rates *out);
    void (*yard_close)(BenchDevice *d);
    void (*close)(BenchDevice *d);
} BenchDeviceOps;
struct BenchDevice {
    const BenchDeviceOps *ops;
    int threads;                               /* on the CPU */
    /* each step is timed alone from an idle device; otherwise several steps are queued one after
     * another */
    bool alone;
    struct Cuda *cuda;                         /* NULL: the CPU */
    char *state;                               /* "driver 580.95, CUDA 13.0, …"; NULL: none */
    double t0;
    double *lap; int nlap;                     /* time stamps of the CPU */
    /* arrays of the copy benchmark, and its repetitions */
    float *a, *b; int64_t n; int reps;
};
bool bench_device_open(BenchDevice *d, const optc_engine *e);
void bench_device_close(BenchDevice *d);
/* stores the i-th number of a test array */
void bench_device_number(Type t, void *p, int64_t i, float scale);
/* The number of steps in a sample if one step takes that long. */
int bench_device_reps(const BenchDevice *d, double seconds);
extern const BenchDeviceOps bench_device_cpu, bench_device_cuda;
/* ALONE: steps in a sample if each is timed alone. CACHE: a step that moves more bytes leaves
 * nothing useful in a GPU's cache for the next one. */
enum { ALONE = 5, CACHE = 1 << 29 };
bool bench_device_cuda_open(BenchDevice *d, int ordinal);

/* ---- bench_work.c ---- */
typedef struct Work Work;
struct Bench;
struct JsonText;
const Work *work_find(const char *name);                                    /* NULL: none */
void work_unknown(const char *name, Buf *b);
void work_list(void);
const char *work_name(const Work *w);
/* their number; out may be NULL */
int work_shapes(const Work *w, Dims *out);
/* The tensors of --work or --shape, without memory; the caller frees them and *dims. NULL: the
 * reason is printed. */
optc_tensor *work_tensors(const char *command, const DimsList *shapes, const char *work,
                          Dims **dims, int *n);
/* Scales all dimensions by one factor, to at most that many elements. */
bool work_scale(Dims *shape, int n, int64_t elements);

/* path of a file in the source tree, malloc'ed; NULL: not found */
char *bench_tree_file(const char *path);

typedef struct Peer Peer;
/* Seconds per step; graph 0: the peer has no CUDA graph. */
typedef struct PeerTimes { double seconds, host, graph, graph_host; } PeerTimes;

/* -o FILE: the operations and bytes of one value of a stage, by the stage's name in emitted
 * code. */
typedef struct StageOps { char name[MOST_STAGE_NAME]; double ops, bytes; } StageOps;
/* A stage of a step. All numbers are per step. call: a product or factor; each: seconds of each
 * recording. */
enum { RECORDINGS = 5 };                       /* an odd number */
typedef struct BenchStage {
    char name[200];
    bool call;
    double launches, bytes, flops, seconds, each[RECORDINGS];
} BenchStage;

typedef struct Case {
    char *label, *spec, *with;     /* with: NULL or "": no wrappers */
    const char *work;              /* the workload's name; NULL: tensors by size or shape */
    const struct Bar *bar;         /* of the release figures; NULL: none */
    Dims *shape; int ntensor;
    int64_t n;                     /* elements of all tensors */
    int64_t place;                 /* end of the last tensor in the shared buffers, in elements */
    /* steps after which the work repeats; means are over whole periods; 1: all steps do the same */
    int period;
    double *lap;                   /* seconds of the last sample, by step of the period; NULL if
                                    * period is 1 */
    bool matrix;                   /* the rule works on rows and columns */
    bool calls;                    /* the rule has products */
    const char *kind;              /* "elementwise", "reductions" or "products" */
    Product precision;             /* of these */
    StageOps *ops; int nops;
    BenchStage *stage; int nstage; /* n = 0: not measured */
    double profiled;               /* seconds of a step in the profile */
    int rounds;                    /* rounds that were timed: fewer than Bench.rounds after an
                                    * interruption */
    double state_bytes;            /* estimated bytes of the states */
    optc_engine *engine;           /* the case's own engine; NULL: Bench.engine */
    optc_rule *rule;
    optc_binding *binding;
    char *runs;                    /* optc_rule_path; with an empty cache if that was measured */
    bool native, failed, timed;
    double cold, warm;             /* seconds from optc_compile to the end of the first step; 0: not
                                    * measured */
    int64_t t;                     /* steps done */
    int reps;                      /* steps in one sample: short steps are timed together */
    optc_bytes bytes;              /* per step, of the last sample */
    /* by round: seconds per step; bytes per second; share of `best`; the best streaming rate
     * measured just before */
    double *seconds, *rate, *share, *best;
    /* by round: time that the step's reads and writes take at the rates measured just before, over
     * the step's time */
    double *mix;
    double *host;                              /* by round: seconds that optc_step itself takes */
    double *slowest;                           /* by round: a period's slowest step over its mean */
    /* the same in the first period, from step 2 on; 0: not measured */
    double first_slowest;
    /* by round: the peer's time, its host time, and its time over ours */
    double *peer_seconds, *peer_host, *ahead;
    double *graph_seconds, *graph_host, *graph_ahead;
    char *peer, *peer_graph;       /* description of what the peer runs; NULL: it cannot */
    char *peer_why;                /* why the peer cannot run it */
    bool graph;                    /* the peer runs a CUDA graph too */
    bool same;                     /* --against untuned: both sides launch the same kernels */
    /* the same rule, bound in another way, instead of a peer; of that case: the way, and what it
     * keeps */
    struct Case *rival;
    const struct RivalKind *as;
    void *part;
} Case;

/* A way to bind the same rule, for --against NAME. NULL functions: as without it. */
typedef struct RivalKind {
    const char *name, *about;      /* "untuned"; "without tuning results" */
    bool untuned;
    bool (*check)(const struct Bench *b);              /* prints the reason */
    void (*options)(const struct Bench *b, optc_rule_options *r);
    /* sets c->binding; the caller calls unbind also after a failure */
    bool (*bind)(struct Bench *b, Case *c, optc_engine *e, const optc_rule_options *rule,
                 optc_tensor *t);
    optc_status (*step)(const Case *c);
    void (*unbind)(Case *c);
    void (*describe)(const Case *r, Buf *text);
} RivalKind;

struct Medians;
/* Hooks by which the program of the release figures (tests/bench/release) extends `optc bench`. */
typedef struct BenchExtra {
    const Opt *opts;
    const RivalKind *const *rivals;                    /* NULL-terminated */
    int (*check)(const Command *self, struct Bench *b, bool work, int n);      /* options */
    bool (*list)(void);                                /* after `--work list` */
    /* Adds all cases. *own false: it has none, the SPECs are timed. */
    bool (*cases)(struct Bench *b, bool *own);
    void (*chosen)(struct Bench *b);                   /* after the cases are known */
    /* a line below a row of the table, and one below the table */
    void (*row)(const struct Bench *b, const Case *c, const struct Medians *m, int indent,
                int label);
    void (*foot)(const struct Bench *b);
    void (*json)(struct JsonText *t, const struct Bench *b, const Case *c, const struct Medians *m);
    bool (*reached)(const struct Bench *b);
} BenchExtra;
int bench_command(const Command *self, int argc, char **argv, const BenchExtra *extra);
bool bench_add_case(struct Bench *b, const char *arg, const Work *work);

typedef struct Bench {
    CompileOpts compile;
    const BenchExtra *extra;                       /* NULL: the command alone */
    const char *device_name, *against;             /* --device; --against, NULL: no peer */
    const RivalKind *rival;                        /* instead of a process; NULL: none */
    int64_t size;                  /* 0: the default */
    DimsList *shapes;              /* n = 0: tensors by size */
    const Work *work;
    int tensors, rounds, threads;
    int steps;                     /* steps of a period to run; 0: all */
    int64_t workspace;             /* 0: the default */
    bool json, progress, queued;
    bool apart;                    /* each rule runs alone, also after one that fails */
    bool sustain;                  /* also measure roofs after a second of work */
    const char *out, *command;     /* -o, and the command that was typed */
    bool interrupted;
    /* -o: operations per second of products; 0: not measured. sustained: after a second of work */
    double roof[NPRODUCT], sustained[NPRODUCT];
    int64_t roof_side[NPRODUCT];   /* rows and columns of these */
    Type type, grad;
    optc_engine *engine;
    BenchDevice device;
    Case *cases; int ncase;
    void *p, *g, *input;           /* shared by the rules of a batch; each has its own states */
    int64_t most, place;           /* elements of the largest case of the batch; length of p and
                                    * g */
    /* bytes per second, in the order of measurement */
    double *copy, *scale, *read, *best; int nstream;
    double timed, waited;          /* on the CPU: seconds of rounds, and those that threads waited
                                    * for a core in them */
    Peer *peer;
    bool peer_tried;
    char *peer_name;               /* "torch 2.13.0"; NULL: none */
} Bench;

extern volatile sig_atomic_t bench_stopped;    /* set by Ctrl-C if there is a report to write */
/* functions that return false have printed the reason */
bool bench_open(Bench *b);
/* times n cases in the same rounds, then frees their memory */
bool bench_batch(Bench *b, int from, int n);
void bench_drop_case(Bench *b);            /* frees the last case */
void bench_free(Bench *b);
bool bench_start(Bench *b, Case *c, optc_engine *e);       /* compiles and binds */
void bench_stop(Case *c);                                  /* unbinds and releases */
bool bench_steps(Case *c, int n);
/* Seconds per step, and a period's slowest step over its mean. Sets c->bytes. */
bool bench_sample(Bench *b, Case *c, double *seconds, double *slowest);
bool bench_inputs(Bench *b, Case *c);                      /* sets the inputs of a new binding */
/* false and prints optc_message unless OPTC_OK */
bool bench_lib(optc_status s);
/* bench_period.c: steps after which the work repeats. Periods above 1000 steps are ignored. */
int period_of(const Plan *p);
/* Steps of a sample: whole periods, at least `least` steps. */
int period_steps(const Bench *b, const Case *c, int least);
/* Runs n steps one after another. seconds: the mean; slowest: the slowest step of a period over the
 * mean. */
bool period_sample(Bench *b, Case *c, int n, double *seconds, double *slowest);
/* mean time of optc_step over a period */
bool period_host(Bench *b, Case *c, double *seconds);
/* Times bench_start and a step, with an empty cache and with a full one. */
bool bench_first(Bench *b, Case *c);

/* ---- bench_stages.c ---- */
bool bench_plan_ops(Case *c, const Plan *p);
/* profiles some steps; the case is bound */
bool bench_stages(Bench *b, Case *c);
/* the sum of the stages; it has no time */
BenchStage bench_whole(const Case *c);

/* ---- bench_roof.c ---- */
void bench_roofs(Bench *b);
/* whose roof applies to calls of c; NULL: to other stages */
Product bench_product(const Bench *b, const Case *c);
/* the share that the stage reaches */
double bench_of_roof(const Bench *b, const Case *c, const BenchStage *s);

/* ---- bench_roofline.c, bench_page.c ---- */
struct Plot;
bool bench_drawn(const Case *c, const BenchStage *s);
/* of a drawn stage, from 1 */
int bench_number(const Bench *b, const Case *c, const BenchStage *s);
bool bench_graphs(const Bench *b);                         /* some peer ran a CUDA graph */
/* false: there is nothing to draw */
bool bench_svg_roofline(const Bench *b, const struct Plot *box, Buf *out);
void bench_picture(const Bench *b, Buf *out);              /* an SVG file */
void bench_page(const Bench *b, Buf *out);                 /* an HTML file */

void bench_report_head(const Bench *b);
void bench_report_cases(const Bench *b, int from, int n);
void bench_report_foot(const Bench *b);
void bench_json(const Bench *b);
/* "64M", "100 of 8192x8192", "148 tensors" */
const char *bench_shape(char buf[200], const Case *c);
typedef struct Medians {
    double seconds, spread, rate, share, best, mix, host, host_least;
    double peer, peer_host, ahead, graph, graph_host, graph_ahead, slowest;
} Medians;
/* the share of the threads' time that they waited for a core */
double bench_busy(const Bench *b);
Medians bench_medians(const Case *c);

/* A peer process answers each line with a line (bench_peer.c). */
/* NULL: it has printed the reason */
Peer *peer_start(const char *name, const Bench *b, char **version);
/* sets peer, peer_graph or peer_why of c */
void peer_open(Peer *p, const Bench *b, Case *c);
/* 1: timed; 0: the peer cannot run it any more, and c->peer_why has the reason; -1: the process has
 * ended */
int peer_step(Peer *p, const Bench *b, Case *c, PeerTimes *out);
void peer_close(Peer *p, const Bench *b, const Case *c);
void peer_stop(Peer *p);
#endif
