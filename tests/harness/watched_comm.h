/* A comm that passes calls on to another one, counts them, and can let one of them fail. */
#ifndef OPTC_WATCHED_COMM_H
#define OPTC_WATCHED_COMM_H
#include "optc.h"

#include <stdbool.h>

typedef struct WatchedComm {
    optc_comm real;
    int calls;
    size_t bytes;              /* sent to other ranks */
    int fail_at;               /* the number of the call that fails; 0: none */
    bool after;                /* it exchanges its data first */
} WatchedComm;
/* Returns the comm to bind with. w must live as long as the binding. */
optc_comm watched_comm(WatchedComm *w, const optc_comm *real);
#endif
