/* The parts of `optc bench`: cmd_bench.c reads what is asked, bench_run.c steps and times, bench_peer.c talks to another
 * implementation in a process of its own, bench_report.c prints. */
#ifndef OPTC_BENCH_H
#define OPTC_BENCH_H
#include "tools.h"

#include "optc.h"

typedef struct Peer Peer;

typedef struct Case {
    char *label, *spec, *with;     /* with: NULL or "" for none */
    Dims *shape; int ntensor;
    int64_t n;                     /* elements of all tensors */
    int64_t place;                 /* … and where the last one ends in the shared buffers */
    bool periodic;                 /* its steps do not all move the same bytes */
    bool matrix;                   /* it sees rows and columns */
    double state_bytes;            /* about what its states take */
    optc_rule *rule;
    optc_binding *binding;
    int64_t t;                     /* steps done */
    int reps;                      /* steps in one sample: short ones are timed together */
    optc_bytes bytes;              /* per step, of the last sample */
    double *seconds, *rate, *share;    /* by round: per step; bytes per second; of the better streaming rate just before */
    double *mix;                       /* by round: of the time its own mix of reading and writing takes at the rates just before */
    double *peer_seconds, *ahead;      /* by round: the peer's time, and over ours */
    char *peer;                    /* what the peer runs; NULL: it cannot */
} Case;

typedef struct Bench {
    CompileOpts compile;
    int64_t size;
    DimsList *shapes;              /* n = 0: by size */
    int tensors, rounds, threads;
    bool json, progress;
    Type type;
    optc_engine *engine;
    Case *cases; int ncase;
    void *p, *g, *input;           /* every rule steps the same parameters: states are its own */
    float *a, *b; int64_t stream_n; int stream_reps;
    double *copy, *scale, *read, *best; int nstream;       /* bytes per second, in the order measured */
    Peer *peer;
    char *peer_name;               /* "torch 2.13.0"; NULL: none */
} Bench;

bool bench_prepare(Bench *b);      /* all false: it has said why */
bool bench_rounds(Bench *b);
void bench_free(Bench *b);
void bench_report(const Bench *b);

/* A peer answers each line with a line. */
Peer *peer_start(const char *name, const Bench *b, char **version);       /* NULL: it has said why */
char *peer_open(Peer *p, const Case *c, const char *options);             /* what it runs, to be freed; NULL: nothing of the kind */
double peer_step(Peer *p, const Case *c, int reps);                       /* seconds per step; < 0: it is gone */
void peer_stop(Peer *p);
#endif
