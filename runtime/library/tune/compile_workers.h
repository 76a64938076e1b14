/* NVRTC in processes of its own. Threads of one process wait for each other inside it: sixteen of them do the work of
 * four. Only for programs that are ours (a library does not fork its caller), and to be started before a context is
 * made, which a child could not use. */
#ifndef OPTC_WORKERS_H
#define OPTC_WORKERS_H
#include <stdbool.h>
#include <stddef.h>

typedef struct Workers Workers;
Workers *workers_start(int n);                     /* NULL: there is no NVRTC, or no process to be had */
void workers_end(Workers *w);
/* now, whatever they are at; what was asked of them is still to be dropped */
void workers_kill(Workers *w);
int workers_alive(Workers *w);

/* Jobs for nvrtc_build, done in the order they were begun in, each by whichever process is idle. Where w is NULL or all
 * have died, by the one who asks for the result; not what two of them died of. All jobs are asked for or dropped before
 * the end. */
typedef struct Job Job;
Job *workers_begin(Workers *w, const char *source, const char *name, int arch, bool ptx);      /* NULL: no memory */
/* before all that wait; j may be NULL */
void workers_hurry(Job *j);
/* true: workers_result would not wait for a process */
bool workers_wait(Job *j, double seconds);
/* waits for it and frees the job; NULL: *log says why. j may be NULL */
char *workers_result(Job *j, size_t *size, char **log);
/* without waiting: what no process has begun is not begun; j may be NULL */
void workers_drop(Job *j);
#endif
