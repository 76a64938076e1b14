/* The CPU as a device, and its threads. */
#ifndef OPTC_CORE_CPU_H
#define OPTC_CORE_CPU_H
#include "runtime/core/base/core.h"

/* ---- thread_barrier.c ---- */
/* begins as zeros */
typedef struct Barrier { int arrived, asleep; unsigned generation; } Barrier;
#ifdef _OPENMP
/* returns after `threads` threads have called it */
CORE void barrier_wait(Barrier *t, int threads);
#endif

/* ---- cpu_device.c ---- */
/* `threads`, or 1 where this process must not start any */
CORE int threads_allowed(int threads);
/* Calls each(with, i) for i in [0, n), divided among the threads of a team. A team of one does not
 * enter OpenMP, whose runtime ends the process when memory runs out. */
CORE void parallel_for(int team, int64_t n, void (*each)(void *with, int64_t i), void *with);
/* cohorts_copy_states, in the host's memory */
CORE void cpu_follow(optc_binding *b);
#endif
