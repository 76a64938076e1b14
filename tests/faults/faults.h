/* Every call fails once: scenes of what people do with optc, run again and again with another call failing each time.
 *
 *   inject.c  calls that fail             fault_run.c     trials, each in a process of its own, and what is wrong about
 * them
 *   fault_api.c     scenes through optc.h       fault_tools.c   scenes of the command
 *
 * What must hold of every trial: no crash and no hang; success with the very result of an undisturbed run, or a failure
 * that is named for what it is (never a false error of the spec or of an argument); no file left behind; and what comes
 * after it in the same process works and holds no more memory than if nothing had failed. */
#ifndef OPTC_FAULTS_H
#define OPTC_FAULTS_H
#include "tests/faults/inject.h"
#include "optc.h"

#include <stddef.h>
#include <stdint.h>

typedef struct Outcome {
    optc_status status;
    char message[600];
    uint64_t result;               /* of all bits that came out; 0: none */
    bool left;                     /* it failed, and something of what it was making is there */
    int calls;                     /* of the command: counted in its process */
    bool evaluator;                /* it ran on the reference evaluator, whose bits are its own, and said so */
} Outcome;

typedef struct Scene {
    const char *name;
    void (*run)(const struct Scene *s, Outcome *out);
    unsigned kinds;                /* 1 << Kind */
    const char *spec, *with;       /* of scenes of the interface */
    const char *const *argv;       /* of the command: from argv[1] on */
    bool loose;                    /* what it makes may differ: it only has to be honest */
    /* trials of a kind in a quick run; 0: the usual number; negative: none, and a few hundred else */
    int samples;
    int more;                      /* calls in processes that it starts, which are not counted here */
    bool gpu;                      /* it needs the emulated GPU */
    bool wide;                     /* its matrices are of 2 x 27: a side is large enough for a library */
} Scene;
extern const Scene api_scenes[], tool_scenes[];          /* end with a NULL name */

/* ---- fault_run.c ---- */
extern char scratch[];             /* a folder for the scenes: TMPDIR, caches, what they make */
uint64_t mix(uint64_t h, const void *data, size_t n);
/* names and contents of a file or folder, 0 where it is none */
uint64_t mix_files(uint64_t h, const char *path);
void fresh_folder(const char *name);                     /* below scratch, empty */
const char *below(const char *name);                     /* its path; a few are good at once */

void make_package(void);                                 /* fault_tools.c: scratch/shipped, with adamw and clip(1) */

/* tools/main.c, by another name */
int optc_main(int argc, char **argv);
#endif
