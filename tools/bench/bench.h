/* Shared by the files of `optc bench`. */
#ifndef OPTC_BENCH_H
#define OPTC_BENCH_H
#include "tools/tools.h"

#include "optc.h"

/* ---- bench_device.c: where tensors lie and how time is taken ---- */
/* bytes per second; scale and read are 0 where only copying is measured */
typedef struct Rates { double copy, scale, read, best; } Rates;
typedef struct BenchDevice BenchDevice;
typedef struct BenchDeviceOps {                     /* all bool: false means that it has said why */
    bool async;                                /* a step returns before it is done: its host time is worth a column */
    double least_sample;                       /* seconds that a sample takes at least … */
    /* … and steps in it, so that what a start from idle costs is a small part */
    int least_steps;
    void *(*alloc)(BenchDevice *d, size_t bytes);   /* NULL: it has said why */
    void (*free)(BenchDevice *d, void *p);
    bool (*fill)(BenchDevice *d, void *p, Type t, int64_t n, float scale);
    bool (*set)(BenchDevice *d, void *p, unsigned char byte, size_t bytes);
    double (*room)(BenchDevice *d);                 /* bytes that may be asked for */
    /* nothing of a step before is left in the cache; NULL: it stays there, as it would anyway */
    bool (*forget)(BenchDevice *d);
    bool (*begin)(BenchDevice *d);                  /* waits for what runs, starts the clock */
    bool (*end)(BenchDevice *d, double *seconds);   /* of all that was begun since */
    /* notes the time as the k-th, of what is begun until then; nothing waits for it … */
    bool (*lap)(BenchDevice *d, int k);
    bool (*laps)(BenchDevice *d, int n, double *seconds);       /* … until here: the n times between n + 1 of them */
    bool (*sync)(BenchDevice *d);
    bool (*yard_open)(BenchDevice *d, int64_t n);   /* two arrays of about n floats to copy between */
    bool (*yard_time)(BenchDevice *d, Rates *out);
    void (*yard_close)(BenchDevice *d);
    void (*close)(BenchDevice *d);
} BenchDeviceOps;
struct BenchDevice {
    const BenchDeviceOps *ops;
    int threads;                               /* of the CPU */
    /* a step is timed from an idle device, as a single one would take; else several behind one another */
    bool alone;
    struct Cuda *cuda;                         /* NULL: the CPU */
    char *state;                               /* "driver 580.95, CUDA 13.0, …"; NULL: nothing to say */
    double t0;
    double *lap; int nlap;                     /* the CPU's */
    float *a, *b; int64_t n; int reps;         /* the yardstick's */
};
bool bench_device_open(BenchDevice *d, const optc_engine *e);
void bench_device_close(BenchDevice *d);
void bench_device_number(Type t, void *p, int64_t i, float scale);                /* stores the i-th number to step */
/* steps in a sample, of one that takes this long */
int bench_device_reps(const BenchDevice *d, double seconds);
extern const BenchDeviceOps bench_device_cpu, bench_device_cuda;
/* steps in a sample, where each is timed alone; bytes beyond which a step leaves nothing in a GPU's cache for the
 * next */
enum { ALONE = 5, CACHE = 1 << 29 };
bool bench_device_cuda_open(BenchDevice *d, int ordinal);

/* ---- bench_work.c ---- */
typedef struct Work Work;
const Work *work_find(const char *name);                                    /* NULL: none */
void work_unknown(const char *name, Buf *b);
void work_list(void);
const char *work_name(const Work *w);
int work_shapes(const Work *w, Dims *out);                                  /* how many; out NULL: only counts */
/* all dimensions by one factor, to at most that many elements */
bool work_scale(Dims *shape, int n, int64_t elements);

/* ---- bench_bars.c ---- */
/* 0: none asked. share: of copying; eager, graph: times torch's best and its CUDA graph; host: microseconds; slowest: a
 * period's slowest step over its mean; cold, warm: milliseconds to the end of the first step; suite: a row of it */
typedef struct Bar { const char *work, *rule; double share, eager, graph, host, slowest, cold, warm, suite; } Bar;
enum { MOST_BARS = 100 };
typedef struct Bars { char *text; Bar v[MOST_BARS]; int n; } Bars;
/* path NULL: that of the source tree, and none where there is no tree. false: it has said why */
bool bars_read(Bars *t, const char *path);
const Bar *bars_find(const Bars *t, const char *work, const char *rule);    /* NULL: none */
void bars_list(Bars *t);
char *bench_tree_file(const char *path);       /* a file of the source tree; malloc'ed; NULL: none */

typedef struct Peer Peer;
/* seconds a step; graph 0: there is none */
typedef struct PeerTimes { double seconds, host, graph, graph_host; } PeerTimes;

typedef struct Case {
    char *label, *spec, *with;     /* with: NULL or "" for none */
    const char *work;              /* a workload's name; NULL: by size or shape */
    const Bar *bar;                /* NULL: none */
    Dims *shape; int ntensor;
    int64_t n;                     /* elements of all tensors */
    int64_t place;                 /* … and where the last one ends in the shared buffers */
    /* steps until they are alike again, where they are not all: means are over whole periods; else 1 */
    int period;
    double *lap;                   /* by step of a period, seconds of the last sample; NULL where steps are alike */
    bool matrix;                   /* it sees rows and columns */
    bool calls;                    /* it has products */
    double state_bytes;            /* about what its states take */
    optc_engine *engine;           /* its own; NULL: the bench's */
    optc_rule *rule;
    optc_binding *binding;
    char *runs;                    /* optc_rule_path; from where the code came when the cache was empty */
    bool native, failed, timed;
    double cold, warm;             /* seconds from optc_compile to the end of the first step; 0: not measured */
    int64_t t;                     /* steps done */
    int reps;                      /* steps in one sample: short ones are timed together */
    optc_bytes bytes;              /* per step, of the last sample */
    /* by round: per step; bytes per second; of the better streaming rate just before; that rate */
    double *seconds, *rate, *share, *best;
    /* by round: of the time its own mix of reading and writing takes at the rates just before */
    double *mix;
    double *host;                              /* by round: seconds that optc_step itself takes */
    double *slowest;                           /* by round: a period's slowest step over its mean … */
    double first_slowest;                      /* … and in the first period, from step 2 on; 0: not looked at */
    double *peer_seconds, *peer_host, *ahead;  /* by round: the peer's time, its host time, and its time over ours */
    double *graph_seconds, *graph_host, *graph_ahead;
    char *peer, *peer_graph;       /* what the peer runs; NULL: it cannot */
    char *peer_why;                /* … because */
    bool graph;                    /* the peer is asked for a CUDA graph too */
    bool same;                     /* --against untuned: both sides launch the same kernels */
    struct Case *rival;            /* --against untuned: the same rule without tuning results, in place of a peer */
} Case;

typedef struct Bench {
    CompileOpts compile;
    /* as asked for; against NULL: no peer; "untuned": no process, a rival of each case */
    const char *device_name, *against;
    int64_t size;                  /* 0: the usual */
    DimsList *shapes;              /* n = 0: by size */
    const Work *work;
    Bars *bars;
    int tensors, rounds, threads;
    int steps;                     /* of a period, in place of all; 0: all */
    int64_t workspace;             /* 0: the usual */
    bool json, progress, suite, queued;
    Type type;
    optc_engine *engine;
    BenchDevice device;
    Case *cases; int ncase;
    void *p, *g, *input;           /* every rule of a batch steps the same parameters: states are its own */
    int64_t most, place;           /* elements of the largest case of the batch; length of p and g */
    double *copy, *scale, *read, *best; int nstream;       /* bytes per second, in the order measured */
    double timed, waited;          /* on the CPU, seconds of rounds, and of its threads waiting for a core in them */
    Peer *peer;
    bool peer_tried;
    char *peer_name;               /* "torch 2.13.0"; NULL: none */
} Bench;

bool bench_open(Bench *b);                     /* all false: it has said why */
bool bench_batch(Bench *b, int from, int n);   /* cases that are timed in turn; their memory is given back */
void bench_free(Bench *b);
bool bench_start(Bench *b, Case *c, optc_engine *e);       /* compiles and binds */
void bench_stop(Case *c);                                  /* unbinds and releases */
bool bench_steps(Case *c, int n);
bool bench_rivals(const Bench *b);                         /* asked for --against untuned */
bool bench_lib(optc_status s);                             /* says the library's message */
/* bench_period.c: steps until they are alike again; what is done more seldom than at every thousandth is left out */
int period_of(const Plan *p);
/* in a sample, whole periods, of at least so many */
int period_steps(const Bench *b, const Case *c, int least);
/* n steps behind one another: the mean, and the slowest of a period over it */
bool period_sample(Bench *b, Case *c, int n, double *seconds, double *slowest);
bool period_host(Bench *b, Case *c, double *seconds);      /* what optc_step takes, over a period */
/* bench_start twice, timed, with a cache that is empty and one that is not */
bool bench_first(Bench *b, Case *c);

void bench_report_head(const Bench *b);
void bench_report_cases(const Bench *b, int from, int n);
void bench_report_foot(const Bench *b);
void bench_json(const Bench *b);
const char *bench_shape(char buf[200], const Case *c);     /* "64M", "100 of 8192x8192", "148 tensors" */
typedef struct Medians {
    double seconds, spread, rate, share, best, mix, host, host_least;
    double peer, peer_host, ahead, graph, graph_host, graph_ahead, slowest;
} Medians;
double bench_busy(const Bench *b);             /* the share of its threads' time that they waited for a core */
Medians bench_medians(const Bench *b, const Case *c);
/* which bars it misses: nothing where all hold */
void bench_missed(const Case *c, const Medians *m, Buf *names);

/* A peer answers each line with a line. */
Peer *peer_start(const char *name, const Bench *b, char **version);       /* NULL: it has said why */
void peer_open(Peer *p, const Bench *b, Case *c);                         /* fills what the case says of its peer */
/* 1: timed; 0: it cannot any more, and c->peer_why says why; -1: it is gone */
int peer_step(Peer *p, const Bench *b, Case *c, PeerTimes *out);
void peer_close(Peer *p, const Bench *b, const Case *c);
void peer_stop(Peer *p);
#endif
