#include "tests/harness/watched_comm.h"

enum { FAILURE = 7 };

static int watched_gather(void *context, const void *send, void *recv, size_t bytes, void *stream)
{
    WatchedComm *w = context;
    bool now = ++w->calls == w->fail_at;
    w->bytes += bytes * (size_t)(w->real.ranks - 1);
    if (now && !w->after)
        return FAILURE;
    int failed = w->real.all_gather(w->real.context, send, recv, bytes, stream);
    return now ? FAILURE : failed;
}

static int watched_exchange(void *context, const void *send, const size_t *send_bytes, void *recv,
                            const size_t *recv_bytes, void *stream)
{
    WatchedComm *w = context;
    bool now = ++w->calls == w->fail_at;
    for (int i = 0; i < w->real.ranks; i++)
        w->bytes += i == w->real.rank ? 0 : send_bytes[i];
    if (now && !w->after)
        return FAILURE;
    int failed = w->real.all_to_all(w->real.context, send, send_bytes, recv, recv_bytes, stream);
    return now ? FAILURE : failed;
}

optc_comm watched_comm(WatchedComm *w, const optc_comm *real)
{
    w->real = *real;
    return (optc_comm){.rank = real->rank,
                       .ranks = real->ranks,
                       .context = w,
                       .all_gather = watched_gather,
                       .all_to_all = watched_exchange};
}
