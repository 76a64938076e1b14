/* Loopback communication (runtime/library/shard/loopback.c): ranks that are threads of this
 * program. */
#include "tests/harness/help.h"
#include "tests/harness/rank_threads.h"
#include "tests/harness/suites.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { RANKS = 8, ROUNDS = 20, MOST = 97 };
static char byte_of(int from, int to, int round, size_t i)
{
    return (char)splitmix((uint64_t)from << 48 | (uint64_t)to << 32 | (uint64_t)round << 16 | i);
}

/* One loopback. The functions below run in threads of the ranks and count errors by rank. */
typedef struct Ring {
    optc_loopback *loopback;
    int ranks, mode;
    optc_comm comm[RANKS];
    int wrong[RANKS], failed[RANKS];           /* wrong results; calls that returned a failure */
} Ring;

static void ring_open(Ring *r, int ranks, int mode)
{
    memset(r, 0, sizeof *r);
    r->ranks = ranks;
    r->mode = mode;
    OK(optc_loopback_open(ranks, NULL, &r->loopback));
    for (int i = 0; i < ranks; i++) {
        OK(optc_loopback_comm(r->loopback, i, &r->comm[i]));
        ck_assert_int_eq(r->comm[i].rank, i);
        ck_assert_int_eq(r->comm[i].ranks, ranks);
        ck_assert(r->comm[i].all_gather && r->comm[i].all_to_all);
    }
}

/* ---- all_gather ---- */
static void gather_rank(int rank, void *arg)
{
    Ring *r = arg;
    const optc_comm *c = &r->comm[rank];
    for (int round = 0; round < ROUNDS; round++) {
        size_t bytes = round % 5 == 0 ? 0 : (size_t)(round * 7 % MOST);
        char send[MOST + 1], recv[RANKS * MOST + 1];
        memset(recv, 0x5a, sizeof recv);
        for (size_t i = 0; i < bytes; i++)
            send[i] = byte_of(rank, 0, round, i);
        r->failed[rank] +=
            c->all_gather(c->context, bytes ? send : NULL, bytes ? recv : NULL, bytes, NULL) != 0;
        memset(send, 0, sizeof send);                      /* the others have copied it */
        for (int from = 0; from < r->ranks; from++)
            for (size_t i = 0; i < bytes; i++)
                r->wrong[rank] += recv[bytes * (size_t)from + i] != byte_of(from, 0, round, i);
        r->wrong[rank] += recv[bytes * (size_t)r->ranks] != 0x5a;
    }
}

START_TEST(gathers)
{
    Ring r;
    ring_open(&r, _i, 0);
    run_ranks(r.ranks, gather_rank, &r);
    for (int i = 0; i < r.ranks; i++)
        ck_assert_msg(!r.wrong[i] && !r.failed[i], "rank %d of %d: %d wrong bytes, %d failures", i,
                      r.ranks, r.wrong[i], r.failed[i]);
    optc_loopback_close(r.loopback);
}
END_TEST

/* ---- all_to_all ---- */
/* Uneven counts. About a third are 0; in some rounds a rank sends or receives nothing, or none
 * does. */
static size_t count_of(int from, int to, int round)
{
    size_t n = (size_t)(splitmix((uint64_t)(from * 131 + to * 17 + round * 1009)) % (3 * MOST / 2));
    return round % 7 == 3 || from == round % 11 || to == round % 13 || n >= MOST ? 0 : n;
}

static void exchange_rank(int rank, void *arg)
{
    Ring *r = arg;
    const optc_comm *c = &r->comm[rank];
    for (int round = 0; round < ROUNDS; round++) {
        char send[RANKS * MOST + 1], recv[RANKS * MOST + 1];
        size_t out[RANKS], in[RANKS], at = 0;
        memset(recv, 0x5a, sizeof recv);
        for (int to = 0; to < r->ranks; to++) {
            out[to] = count_of(rank, to, round);
            in[to] = count_of(to, rank, round);
            for (size_t i = 0; i < out[to]; i++)
                send[at++] = byte_of(rank, to, round, i);
        }
        r->failed[rank] += c->all_to_all(c->context, send, out, recv, in, NULL) != 0;
        memset(send, 0, sizeof send);
        memset(out, 0, sizeof out);
        at = 0;
        for (int from = 0; from < r->ranks; from++)
            for (size_t i = 0; i < in[from]; i++)
                r->wrong[rank] += recv[at++] != byte_of(from, rank, round, i);
        r->wrong[rank] += recv[at] != 0x5a;
    }
}

START_TEST(exchanges)
{
    Ring r;
    ring_open(&r, _i, 0);
    run_ranks(r.ranks, exchange_rank, &r);
    for (int i = 0; i < r.ranks; i++)
        ck_assert_msg(!r.wrong[i] && !r.failed[i], "rank %d of %d: %d wrong bytes, %d failures", i,
                      r.ranks, r.wrong[i], r.failed[i]);
    optc_loopback_close(r.loopback);
}
END_TEST

/* ---- calls that do not match ---- */
enum { OTHER_BYTES, MORE_SENT, MORE_WANTED, OTHER_CALL, NMISMATCH };

/* Rank 1 differs. Rank 2 and above have the right counts among themselves and with rank 1, except
 * in all_gather. */
static void mismatch_rank(int rank, void *arg)
{
    Ring *r = arg;
    const optc_comm *c = &r->comm[rank];
    char send[RANKS * 8] = {0}, recv[RANKS * 8];
    size_t out[RANKS], in[RANKS];
    for (int i = 0; i < r->ranks; i++)
        out[i] = in[i] = 4;
    if (rank == 1 && r->mode == MORE_SENT)
        out[0] = 5;
    if (rank == 1 && r->mode == MORE_WANTED)
        in[0] = 5;
    if (r->mode == OTHER_BYTES || (rank == 1 && r->mode == OTHER_CALL))
        r->failed[rank] += c->all_gather(c->context, send, recv, rank == 1 ? 5 : 4, NULL) != 0;
    else
        r->failed[rank] += c->all_to_all(c->context, send, out, recv, in, NULL) != 0;
}

START_TEST(mismatches)
{
    for (int ranks = 2; ranks <= RANKS; ranks += 3) {
        Ring r;
        ring_open(&r, ranks, _i);
        run_ranks(ranks, mismatch_rank, &r);
        for (int i = 0; i < ranks; i++)
            ck_assert_msg(r.failed[i] == 1, "mismatch %d: rank %d of %d does not fail", _i, i,
                          ranks);
        /* later calls that match work */
        memset(r.failed, 0, sizeof r.failed);
        run_ranks(ranks, gather_rank, &r);
        for (int i = 0; i < ranks; i++)
            ck_assert_msg(!r.wrong[i] && !r.failed[i], "after mismatch %d: rank %d of %d", _i, i,
                          ranks);
        optc_loopback_close(r.loopback);
    }
}
END_TEST

/* ---- failures ---- */
/* The last rank never calls; it makes the loopback fail after the others have had time to wait. */
static void waiting_rank(int rank, void *arg)
{
    Ring *r = arg;
    const optc_comm *c = &r->comm[rank];
    char send[8] = {0}, recv[RANKS * 8];
    size_t n[RANKS] = {0};
    if (rank == r->ranks - 1) {
        usleep(r->mode ? 20000 : 0);
        optc_loopback_fail(r->loopback);
    }
    for (int i = 0; i < 3; i++)                            /* and so do later calls */
        r->failed[rank] += i % 2 ? c->all_to_all(c->context, send, n, recv, n, NULL) != 0
                                 : c->all_gather(c->context, send, recv, 8, NULL) != 0;
}

START_TEST(failure_ends_waiting)
{
    for (int ranks = 1; ranks <= RANKS; ranks++) {
        Ring r;
        ring_open(&r, ranks, _i);
        run_ranks(ranks, waiting_rank, &r);
        for (int i = 0; i < ranks; i++)
            ck_assert_msg(r.failed[i] == 3, "rank %d of %d: %d of 3 calls fail", i, ranks,
                          r.failed[i]);
        optc_loopback_close(r.loopback);
    }
}
END_TEST

/* A call that failed returns after the others have read its buffer: the rank may free the
 * buffer. */
enum { LARGE = 1 << 20 };
static void overwriting_rank(int rank, void *arg)
{
    Ring *r = arg;
    const optc_comm *c = &r->comm[rank];
    unsigned char *send = malloc(LARGE), *recv = malloc((size_t)LARGE * RANKS);
    if (rank == r->ranks) {
        usleep((unsigned)(300 * r->mode));
        optc_loopback_fail(r->loopback);
    } else {
        int failed = 0;
        for (int k = 0; k < 100 && !failed; k++) {
            memset(send, 1, LARGE);
            memset(recv, 1, (size_t)LARGE * (size_t)r->ranks);
            failed = c->all_gather(c->context, send, recv, LARGE, NULL);
            memset(send, 0, LARGE);
            r->wrong[rank] += memchr(recv, 0, (size_t)LARGE * (size_t)r->ranks) != NULL;
        }
        r->failed[rank] = failed != 0;
    }
    free(send);
    free(recv);
}

START_TEST(failure_waits_for_readers)
{
    for (int i = 0; i < 10; i++) {
        Ring r;
        ring_open(&r, 3, _i * 10 + i);
        run_ranks(4, overwriting_rank, &r);                /* the fourth thread makes it fail */
        for (int k = 0; k < 3; k++)
            ck_assert_msg(!r.wrong[k], "rank %d read a buffer whose owner had returned (%d)", k,
                          r.mode);
        optc_loopback_close(r.loopback);
    }
}
END_TEST

START_TEST(bad_arguments)
{
    optc_loopback *l = (optc_loopback *)&l;
    optc_comm c;
    FAILS(optc_loopback_open(2, NULL, NULL), OPTC_ERROR_ARGUMENT, "NULL");
    FAILS(optc_loopback_open(0, NULL, &l), OPTC_ERROR_ARGUMENT, "ranks");
    ck_assert_ptr_null(l);
    FAILS(optc_loopback_open(-1, NULL, &l), OPTC_ERROR_ARGUMENT, "ranks");
    FAILS(optc_loopback_open(4097, NULL, &l), OPTC_ERROR_ARGUMENT, "ranks");
    OK(optc_loopback_open(4096, NULL, &l));
    OK(optc_loopback_comm(l, 4095, &c));
    ck_assert_int_eq(c.rank, 4095);
    FAILS(optc_loopback_comm(NULL, 0, &c), OPTC_ERROR_ARGUMENT, "NULL");
    FAILS(optc_loopback_comm(l, 0, NULL), OPTC_ERROR_ARGUMENT, "NULL");
    FAILS(optc_loopback_comm(l, -1, &c), OPTC_ERROR_ARGUMENT, "rank");
    FAILS(optc_loopback_comm(l, 4096, &c), OPTC_ERROR_ARGUMENT, "rank");
    optc_loopback_close(l);
    optc_loopback_fail(NULL);
    optc_loopback_close(NULL);
}
END_TEST

START_TEST(no_memory_to_open)
{
    optc_loopback *l;
    optc_status s = OPTC_ERROR_MEMORY;
    int n = 0;
    while (s != OPTC_OK) {
        int held = memory_held();                          /* ck_assert changes it */
        memory_fails(++n);
        s = optc_loopback_open(3, NULL, &l);
        memory_fails(0);
        bool empty = !l;
        optc_loopback_close(l);
        held -= memory_held();
        ck_assert_msg(s == OPTC_OK || (s == OPTC_ERROR_MEMORY && empty), "allocation %d: %s", n,
                      optc_status_name(s));
        ck_assert_msg(!held, "allocation %d: %d blocks are lost", n, -held);
    }
    ck_assert_int_gt(n, 1);
}
END_TEST

Suite *loopback_suite(void)
{
    Suite *s = suite_create("loopback");
    TCase *t = tcase_create("loopback");
    tcase_add_loop_test(t, gathers, 1, RANKS + 1);
    tcase_add_loop_test(t, exchanges, 1, RANKS + 1);
    tcase_add_loop_test(t, mismatches, 0, NMISMATCH);
    tcase_add_loop_test(t, failure_ends_waiting, 0, 2);
    tcase_add_loop_test(t, failure_waits_for_readers, 0, 2);
    tcase_add_test(t, bad_arguments);
    tcase_add_test(t, no_memory_to_open);
    suite_add_tcase(s, t);
    return s;
}
