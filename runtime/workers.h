/* NVRTC in processes of its own. Threads of one process wait for each other inside it: sixteen of them do the work of four. Only for programs that are ours
 * (a library does not fork its caller), and to be started before a context is made, which a child could not use. */
#ifndef OPTC_WORKERS_H
#define OPTC_WORKERS_H
#include <stddef.h>

typedef struct Workers Workers;
Workers *workers_start(int n);                     /* NULL: there is no NVRTC, or no process to be had */
void workers_end(Workers *w);
int workers_alive(Workers *w);

/* nvrtc_build in whichever is idle, from any thread; waits for one. In this process where w is NULL or all have died; not
 * what two of them died of. */
char *workers_build(Workers *w, const char *source, const char *name, int arch, size_t *size, char **log);
#endif
