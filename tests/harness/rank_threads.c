#include "tests/harness/rank_threads.h"

#include <check.h>
#include <pthread.h>

enum { MOST_RANKS = 64 };
typedef struct RankThread {
    pthread_t thread; void (*fn)(int rank, void *arg); void *arg; int rank;
} RankThread;

static void *rank_main(void *at)
{
    const RankThread *t = at;
    t->fn(t->rank, t->arg);
    return NULL;
}

void run_ranks(int ranks, void (*fn)(int rank, void *arg), void *arg)
{
    RankThread t[MOST_RANKS];
    ck_assert_int_le(ranks, MOST_RANKS);
    for (int i = 0; i < ranks; i++) {
        t[i] = (RankThread){.fn = fn, .arg = arg, .rank = i};
        ck_assert_int_eq(pthread_create(&t[i].thread, NULL, rank_main, &t[i]), 0);
    }
    for (int i = 0; i < ranks; i++)
        ck_assert_int_eq(pthread_join(t[i].thread, NULL), 0);
}
