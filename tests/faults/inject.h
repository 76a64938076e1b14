/* Calls that fail once: which kind, and the how-manieth of that kind since inject_begin. */
#ifndef OPTC_INJECT_H
#define OPTC_INJECT_H
#include <stdbool.h>

typedef enum { NO_CALLS, ALLOCATIONS, MEMORY_ENDS, FILES, DRIVER, NVRTC, FATBIN, CUBLAS, CUSOLVER, NKIND } Kind;
/* MEMORY_ENDS: that allocation and every one after it */
extern const char *const kind_names[NKIND];

/* at 0: none fails, they are counted. DRIVER and later: by the emulated libraries, from when they are loaded */
void inject_begin(Kind k, int at);
int inject_end(void);              /* how many of that kind there were; none fails any more */
long inject_held(void);            /* pieces of memory that are held, by everyone in this process */
void inject_rest(bool rest);        /* a scene's own calls in between are neither counted nor fail */
void inject_say_where(bool say);   /* who made the call that fails is written to stderr */
#endif
