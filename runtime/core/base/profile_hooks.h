/* Hooks of the profiler (runtime/library/profile). A run tests one pointer, which is NULL while
 * nothing is recorded. Packages of `optc ship` contain the hooks, and no profiler that sets
 * them. */
#ifndef OPTC_PROFILE_HOOKS_H
#define OPTC_PROFILE_HOOKS_H
#include "gen/abi/stage_abi.h"
#include "runtime/optc.h"

#include <stddef.h>

struct LaunchList;
/* Nanoseconds of one task of a run on the CPU. begin 0: the run did not mark it. */
typedef struct ProfileMark { int64_t begin, end; } ProfileMark;
typedef struct ProfileBinding {
    int64_t (*clock)(void);                    /* nanoseconds */
    /* by task, then of the start of threads; on the CPU only */
    ProfileMark *mark;
    /* GPU: the launches of items [first, first + n) of the list are in the stream. n 0: before the
     * first launch; -1: a graph in which the device selects the phase, and list NULL. Inside
     * gpu_enter, never in a capture */
    void (*launched)(optc_binding *b, const struct LaunchList *list, int first, int n);
} ProfileBinding;
typedef struct ProfileHooks {
    /* NULL: this run is not recorded */
    ProfileBinding *(*begin)(optc_binding *b, int entry, int phase);
    /* the run of b that began is a graph that contains this entry of `other` too
     * (gpu_joint_graph.c) */
    void (*adds)(optc_binding *b, optc_binding *other, int entry, int phase);
    void (*end)(optc_binding *b, optc_status s);
} ProfileHooks;

#ifdef HOST                                    /* a package */
#define PROFILE_HOOKS() ((const ProfileHooks *)NULL)
#else
extern const ProfileHooks *profile_hooks;      /* atomic; NULL: nothing is recorded */
#define PROFILE_HOOKS() __atomic_load_n(&profile_hooks, __ATOMIC_ACQUIRE)
#endif

/* x: optc_binding.profile */
static inline __attribute__((unused)) int64_t profile_clock(const ProfileBinding *x)
{
    return x ? x->clock() : 0;
}

/* Task i ran from `begin` until now. Returns now: the begin of the next task of this thread. */
static inline __attribute__((unused)) int64_t profile_task(ProfileBinding *x, int i, int64_t begin)
{
    if (!x)
        return 0;
    x->mark[i].begin = begin;
    return x->mark[i].end = x->clock();
}

/* All threads have finished task i, which the calling thread has marked. */
static inline __attribute__((unused)) void profile_joined(ProfileBinding *x, int i)
{
    if (x)
        x->mark[i].end = x->clock();
}
#endif
