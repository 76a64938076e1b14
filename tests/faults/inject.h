/* Lets one call fail: its kind, and its number among the calls of that kind since inject_begin. */
#ifndef OPTC_INJECT_H
#define OPTC_INJECT_H
#include <stdbool.h>

typedef enum {
    NO_CALLS, ALLOCATIONS, MEMORY_ENDS, FILES, DRIVER, NVRTC, FATBIN, CUBLAS, CUSOLVER, NKIND
} Kind;
/* MEMORY_ENDS: that allocation and all later ones fail */
extern const char *const kind_names[NKIND];

/* at = 0: none fails, calls are only counted. DRIVER and later kinds fail in the emulated
 * libraries, counted from when they are loaded. */
void inject_begin(Kind k, int at);
int inject_end(void);              /* Returns the number of calls of that kind; none fails any
                                    * more. */
long inject_held(void);            /* allocations that are held by this process */
void inject_rest(bool rest);        /* rest = true: this thread's calls are not counted and do not
                                    * fail, but those of DRIVER and later kinds */
void inject_say_where(bool say);   /* prints the stack of the failing call to stderr */
#endif
