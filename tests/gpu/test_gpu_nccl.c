/* Sharded bindings whose ranks communicate by NCCL. On a GPU: the real library with one rank, since
 * NCCL wants one GPU per rank. On the emulated GPU: a library whose ranks are threads
 * (tests/cuda/fake_nccl.c), with several.
 *   OPTC_NCCL   the path of libnccl.so.2; without it the loader searches. Without the library the
 *               case is skipped. */
#include "tests/gpu/device_side.h"
#include "tests/harness/shard_world.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct NcclId { char bytes[128]; } NcclId;
typedef struct Nccl {
    const char *path;
    int (*get_id)(NcclId *);
    int (*init)(void **comm, int ranks, NcclId id, int rank);
    int (*destroy)(void *comm);
} Nccl;
static Nccl nccl;
static bool fake;                              /* several ranks in one process are possible */

static bool find_nccl(void)
{
    nccl.path = getenv("OPTC_NCCL");
    void *library = dlopen(nccl.path ? nccl.path : "libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        printf("skipped: NCCL (%s)\n", dlerror());
        ck_assert_msg(!nccl.path, "OPTC_NCCL names no library: %s", nccl.path);
        return false;
    }
    *(void **)&nccl.get_id = dlsym(library, "ncclGetUniqueId");
    *(void **)&nccl.init = dlsym(library, "ncclCommInitRank");
    *(void **)&nccl.destroy = dlsym(library, "ncclCommDestroy");
    fake = getenv("OPTC_TEST_SMALL") != NULL;
    ck_assert(nccl.get_id && nccl.init && nccl.destroy);
    return true;
}

/* The communicators of a world. */
typedef struct World { NcclId id; void *comm[WORLD_RANKS]; optc_nccl *nccl[WORLD_RANKS]; } World;

static optc_status rank_comm(void *with, int rank, int ranks, optc_comm *out)
{
    World *w = with;
    if (nccl.init(&w->comm[rank], ranks, w->id, rank))
        return OPTC_ERROR_DEVICE;
    optc_status s = optc_nccl_open(w->comm[rank], nccl.path, &w->nccl[rank]);
    return s == OPTC_OK ? optc_nccl_comm(w->nccl[rank], out) : s;
}

static void world_close(World *w)
{
    for (int i = 0; i < WORLD_RANKS; i++) {
        optc_nccl_close(w->nccl[i]);
        if (w->comm[i])
            nccl.destroy(w->comm[i]);
    }
    memset(w, 0, sizeof *w);
}

static const struct { const char *spec, *with; } rules[] = {{"adamw", "clip(1)"}, {"muon", ""}};
static const WorldTensor tensors[] = {
    {.name = "up", .shape = {2, {24, 16}}},
    {.name = "odd", .shape = {2, {130, 33}}},
    {.name = "short", .shape = {2, {2, 9}}},
    {.name = "bias", .shape = {1, {33}}, .group = 1, .pauses = true},
    {.name = "long", .shape = {1, {5000}}, .group = 1},
};
enum { NTENSORS = sizeof tensors / sizeof *tensors };

typedef struct Bound { optc_engine *e; optc_rule *r; WorldCase c; World w; RankData d; } Bound;

static void compile_rule(Bound *x, int rule)
{
    memset(x, 0, sizeof *x);
    OK(optc_open(&(optc_engine_options){.device = "cuda", .cache_dir = getenv("OPTC_TEST_CACHE")},
                 &x->e));
    OK(optc_compile(x->e, &(optc_rule_options){.spec = rules[rule].spec, .with = rules[rule].with},
                    &x->r));
    bool small = getenv("OPTC_TEST_SMALL") != NULL;
    x->c = (WorldCase){.rule = x->r,
                       .tensor = small ? tensors : world_tensors,
                       .n = small ? (int)NTENSORS : world_ntensors,
                       .steps = 3,
                       .comm = rank_comm,
                       .with = &x->w};
}

static void bind_rank(Bound *x, int rule, bool sharded)
{
    optc_comm comm;
    compile_rule(x, rule);
    rank_fill(&x->d, &x->c, CUT_even, 0, 1);
    if (sharded) {
        ck_assert_int_eq(nccl.get_id(&x->w.id), 0);
        OK(rank_comm(&x->w, 0, 1, &comm));
        ck_assert(comm.rank == 0 && comm.ranks == 1);
    }
    OK(rank_bind(&x->d, &x->c, sharded ? &comm : NULL));
    rank_grads(&x->d, &x->c, 1);
}

static void release_rank(Bound *x)
{
    OK(optc_sync(x->d.binding));
    rank_free(&x->d, &x->c);
    world_close(&x->w);
    OK(optc_release(x->r));
    OK(optc_close(x->e));
}

/* Parameters, states and step counts against a plain binding. */
START_TEST(worlds)
{
    if (!find_nccl())
        return;
    static const struct { int ranks; ShardCut cut; } pairs[] = {
        {1, CUT_even}, {2, CUT_uneven}, {3, CUT_even}};
    Bound x;
    compile_rule(&x, _i);
    Reference *plain = reference_run(&x.c, false);
    for (int i = 0; i < (fake ? 3 : 1); i++) {
        ck_assert_int_eq(nccl.get_id(&x.w.id), 0);
        char *m = world_run(plain, pairs[i].cut, pairs[i].ranks);
        ck_assert_msg(!m, "%s, %d ranks, %s: %s", optc_rule_name(x.r), pairs[i].ranks,
                      shard_cut_name[pairs[i].cut], m);
        world_close(&x.w);
    }
    reference_free(plain);
    OK(optc_release(x.r));
    OK(optc_close(x.e));
}
END_TEST

START_TEST(captured_collectives)
{
    if (!find_nccl())
        return;
    Bound a, b;
    CUgraph graph;
    CUgraphExec exec;
    bind_rank(&a, _i, false);
    bind_rank(&b, _i, true);
    for (int i = 0; i < 8; i++)
        OK(optc_step(a.d.binding));
    CUstream st = rank_stream(&b.d);
    for (int i = 0; i < 3; i++)
        OK(optc_step(b.d.binding));
    OK(optc_sync(b.d.binding));
    /* thread-local: NCCL has threads of its own */
    ck_assert(!d->cuStreamBeginCapture_v2(st, 1));
    OK(optc_step(b.d.binding));
    ck_assert(!d->cuStreamEndCapture(st, &graph) &&
              !d->cuGraphInstantiateWithFlags(&exec, graph, 0));
    for (int i = 0; i < 4; i++)
        ck_assert(!d->cuGraphLaunch(exec, st));
    OK(optc_step(b.d.binding));
    OK(optc_sync(b.d.binding));
    for (int k = 0; k < a.c.n; k++) {
        rank_fetch(&a.d, k);
        rank_fetch(&b.d, k);
        ck_assert_msg(!memcmp(a.d.p[k], b.d.p[k], (size_t)a.d.piece[k].count * 4),
                      "%s: %s has other bits", optc_rule_name(a.r), a.c.tensor[k].name);
    }
    /* before the communicator: it waits for its graphs */
    d->cuGraphExecDestroy(exec);
    d->cuGraphDestroy(graph);
    release_rank(&a);
    release_rank(&b);
}
END_TEST

START_TEST(open_errors)
{
    if (!find_nccl())
        return;
    optc_nccl *n = (optc_nccl *)&n;
    optc_comm comm;
    void *any = &comm;
    FAILS(optc_nccl_open(NULL, NULL, &n), OPTC_ERROR_ARGUMENT, "the communicator is NULL");
    ck_assert_ptr_null(n);
    FAILS(optc_nccl_open(any, NULL, NULL), OPTC_ERROR_ARGUMENT, "the result pointer is NULL");
    FAILS(optc_nccl_open(any, "/no/libnccl.so.2", &n), OPTC_ERROR_UNAVAILABLE, "/no/libnccl.so.2");
    FAILS(optc_nccl_open(any, "libm.so.6", &n), OPTC_ERROR_UNAVAILABLE,
          "libm.so.6 has no function ncclCommCount");
    FAILS(optc_nccl_comm(NULL, &comm), OPTC_ERROR_ARGUMENT, "NULL");
    ck_assert_ptr_null(n);
    optc_nccl_close(NULL);
    if (!fake)
        return;
    World w = {.comm = {NULL}};
    static const char *const opening[] = {"ncclCommCount", "ncclCommUserRank"};
    ck_assert_int_eq(nccl.get_id(&w.id), 0);
    ck_assert_int_eq(nccl.init(&w.comm[0], 1, w.id, 0), 0);
    for (int i = 0; i < 2; i++) {
        setenv("FAKE_NCCL_FAIL", opening[i], 1);
        FAILS(optc_nccl_open(w.comm[0], nccl.path, &n), OPTC_ERROR_DEVICE, opening[i]);
        ck_assert(strstr(optc_message(), "unhandled system error") && !n);
    }
    unsetenv("FAKE_NCCL_FAIL");
    world_close(&w);
}
END_TEST

/* A call that fails in the middle of a step: the message has NCCL's text, and the binding refuses
 * to go on. */
START_TEST(failing_calls)
{
    static const struct { int rule; const char *call;
    } fails[] = {{0, "ncclAllGather"},
                 {1, "ncclGroupStart"},
                 {1, "ncclSend"},
                 {1, "ncclRecv"},
                 {1, "ncclGroupEnd"}};
    if (!find_nccl() || !fake)
        return;
    Bound x;
    bind_rank(&x, fails[_i].rule, true);
    OK(optc_step(x.d.binding));
    setenv("FAKE_NCCL_FAIL", fails[_i].call, 1);
    FAILS(optc_step(x.d.binding), OPTC_ERROR_DEVICE, fails[_i].call);
    ck_assert_msg(strstr(optc_message(), "unhandled system error; bind again"), "%s",
                  optc_message());
    unsetenv("FAKE_NCCL_FAIL");
    FAILS(optc_step(x.d.binding), OPTC_ERROR_DEVICE, "an earlier exchange");
    release_rank(&x);
}
END_TEST

void add_nccl(TCase *t)
{
    tcase_add_loop_test(t, worlds, 0, 2);
    tcase_add_loop_test(t, captured_collectives, 0, 2);
    tcase_add_test(t, open_errors);
    tcase_add_loop_test(t, failing_calls, 0, 5);
}
