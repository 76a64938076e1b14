/* Every call fails once: scenarios of the use of optc run again and again, each time with another
 * failing call.
 *    inject.c        calls that fail
 *    fault_run.c     trials, each in its own process, and the checks below
 *    fault_api.c     scenarios that use optc.h
 *    fault_ranks.c   a step of two ranks
 *    fault_tools.c   scenarios of the command
 * Every trial must hold: no crash and no hang. It succeeds with exactly the result of an
 * undisturbed run, or fails with the right status (never with an error about the spec or an
 * argument). No file is left behind. Later calls in the same process work and hold no more memory
 * than without the failure. */
#ifndef OPTC_FAULTS_H
#define OPTC_FAULTS_H
#include "tests/faults/inject.h"
#include "optc.h"

#include <stddef.h>
#include <stdint.h>

typedef struct Outcome {
    optc_status status;
    char message[600];
    uint64_t result;               /* hash of the results; 0: none */
    bool left;                     /* it failed and left unfinished files */
    int calls;                     /* calls counted in the command's process */
    bool evaluator;                /* it ran on the reference evaluator, which has other bits, and
                                    * reported that */
} Outcome;

typedef struct Scene {
    const char *name;
    void (*run)(const struct Scene *s, Outcome *out);
    unsigned kinds;                /* 1 << Kind */
    const char *spec, *with;       /* for scenarios that use optc.h */
    const char *const *argv;       /* for the command: arguments from argv[1] on */
    bool loose;                    /* the result may differ; only its status must be right */
    /* trials per kind in a quick run; 0: the default; negative: none, and a few hundred with
     * `all` */
    int samples;
    int more;                      /* calls in child processes, which are not counted here */
    bool gpu;                      /* needs the emulated GPU */
    bool sharded;                  /* a sharded binding of one rank */
    bool connected;                /* two connected bindings that run together */
    bool two_ranks;                /* a sharded binding of two ranks, which are threads */
    bool guarded;                  /* a guard skips the third step */
    bool captured;                 /* then a step is captured and replayed (only on a GPU) */
    bool saves;                    /* also saves a checkpoint and loads it */
    bool wide;                     /* matrices of 2 x 27, so that one side is large enough for a
                                    * library */
    bool other_functions;          /* the second half of the functions of matrices */
} Scene;
extern const Scene api_scenes[], tool_scenes[];          /* the last entry has a NULL name */

/* ---- fault_run.c ---- */
extern char scratch[];             /* folder of the scenarios: TMPDIR, caches, results */
uint64_t mix(uint64_t h, const void *data, size_t n);
/* mixes names and contents of a file or folder into h; 0 if there is none */
uint64_t mix_files(uint64_t h, const char *path);
void fresh_folder(const char *name);                     /* makes an empty folder below scratch */
/* the path below scratch; only the last few results stay valid */
const char *below(const char *name);

/* fault_ranks.c */
optc_status step_two_ranks(const Scene *scene, optc_engine *e, optc_rule *r, float *p, float *g,
                           Outcome *out);

/* fault_tools.c: makes scratch/shipped with adamw and clip(1) */
void make_package(void);

/* main() of tools/main.c, renamed */
int optc_main(int argc, char **argv);
#endif
