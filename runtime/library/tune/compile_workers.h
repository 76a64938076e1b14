/* Runs NVRTC in worker processes. Threads of one process wait for each other inside NVRTC: sixteen
 * threads do the work of four. Only optc's own programs use this, because a library must not fork
 * its caller. Start the workers before a CUDA context is created: a child could not use it. */
#ifndef OPTC_WORKERS_H
#define OPTC_WORKERS_H
#include <stdbool.h>
#include <stddef.h>

typedef struct Workers Workers;
/* NULL: there is no NVRTC, or no process could be started */
Workers *workers_start(int n);
void workers_end(Workers *w);
/* Kills all workers at once. The caller must still drop its jobs. */
void workers_kill(Workers *w);
int workers_alive(Workers *w);

/* Jobs for nvrtc_build. Idle workers take them in the order of workers_begin. If w is NULL or all
 * workers have died, workers_result compiles the job itself. A job that two workers died of is not
 * compiled again and fails. The caller requests the result of every job, or drops it, before
 * workers_end. */
typedef struct Job Job;
/* NULL: out of memory */
Job *workers_begin(Workers *w, const char *source, const char *name, int arch, bool ptx);
/* Moves the job to the front of the queue; j may be NULL. */
void workers_hurry(Job *j);
/* Waits up to `seconds`. true: workers_result would not wait for a worker. */
bool workers_wait(Job *j, double seconds);
/* Waits for the job, frees it and returns the code. NULL: *log has the reason. j may be NULL. */
char *workers_result(Job *j, size_t *size, char **log);
/* Frees the job without waiting; a job that has not started is never compiled. j may be NULL. */
void workers_drop(Job *j);
#endif
