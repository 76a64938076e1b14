/* Threads that stand for the ranks of a sharded binding. */
#ifndef OPTC_RANK_THREADS_H
#define OPTC_RANK_THREADS_H

/* Calls fn(rank, arg) for the ranks 0 … ranks - 1, each in its own thread, and waits for all of
 * them. fn must not use
 * ck_assert: it stores its result, and the caller checks it. */
void run_ranks(int ranks, void (*fn)(int rank, void *arg), void *arg);
#endif
