/* Profiles on a GPU: stages of eager steps, graphs as one range, captures, results that stay the
 * same. */
#include "tests/gpu/device_side.h"

#include "runtime/library/profile/profile.h"

#include <stdlib.h>
#include <string.h>

/* NULL: there is none. Nothing records */
static const ProfileRow *row_named(const char *part)
{
    const Recording *r = profile_lock();
    profile_unlock();
    for (int i = 0; i < r->nrow; i++)
        if (strstr(r->row[i].name, part))
            return &r->row[i];
    return NULL;
}

/* The sum of the entry's stages is its time within 5 %: both are differences of the same events. */
static void stages_add_up(const ProfileRow *all)
{
    const Recording *r = profile_lock();
    profile_unlock();
    int64_t sum = 0, count = 0;
    for (int i = 0; i < r->nrow; i++) {
        bool stage = r->row[i].kind == ROW_STAGE && &r->row[r->row[i].of] == all;
        sum += stage ? r->row[i].ns : 0;
        count += stage ? r->row[i].timed : 0;
    }
    ck_assert_msg(count >= all->timed && sum >= all->ns * 95 / 100 - 1000 &&
                      sum <= all->ns * 105 / 100 + 1000,
                  "%s: stages take %lld ns of %lld", all->name, (long long)sum, (long long)all->ns);
}

START_TEST(profiled_steps)
{
    SHARED();
    static const char *const spec[] = {"adamw", "lamb", "muon"};
    optc_rule_options o = {.spec = spec[_i]};
    Side a, b;
    use_tiny_shapes();
    open_side(&a, "cuda", o, 0);
    open_side(&b, "cuda", o, 0);
    a.e->gpu->no_graphs = true;
    set_grads(&a, 1);
    set_grads(&b, 1);
    OK(optc_profile_start());
    for (int k = 0; k < 4; k++)
        OK(optc_step(a.b));
    OK(optc_profile_stop());
    for (int k = 0; k < 4; k++)
        OK(optc_step(b.b));                    /* the same steps, as graphs and without a profile */
    OK(optc_sync(b.b));
    const ProfileRow *all = row_named(" step"), *host = row_named("enqueued by the host");
    optc_bytes plan;
    OK(optc_plan_bytes(a.b, "step", 1, &plan));
    ck_assert(all && all->count == 4 && all->timed == 4 && host && host->count == 4 &&
              !row_named("graph of"));
    ck_assert_msg(all->bytes == 4 * (plan.read + plan.written), "%.0f bytes instead of %.0f",
                  all->bytes, 4 * (plan.read + plan.written));
    ck_assert((row_named("mm (") != NULL) == !strcmp(spec[_i], "muon"));
    stages_add_up(all);
    same_params(&a, &b, "a profile changes results");
    close_side(&a, 0);
    close_side(&b, 0);
}
END_TEST

/* The first step is eager; from the second one on the steps are a graph, which is one range. A
 * capture runs nothing. */
START_TEST(profiled_graphs)
{
    SHARED();
    Side a;
    CUstream st;
    void *graph, *exec;
    open_side(&a, "cuda", (optc_rule_options){.spec = "lamb"}, 0);
    set_grads(&a, 1);
    OK(optc_profile_start());
    for (int k = 0; k < 5; k++)
        OK(optc_step(a.b));
    ck_assert(!d->cuStreamCreate(&st, 1));
    OK(optc_sync(a.b));
    OK(optc_set_stream(a.b, st));
    ck_assert(!d->cuStreamBeginCapture_v2(st, 0));
    OK(optc_step(a.b));
    ck_assert(!d->cuStreamEndCapture(st, &graph) &&
              !d->cuGraphInstantiateWithFlags(&exec, graph, 0));
    ck_assert(!d->cuGraphLaunch(exec, st));
    /* after a capture: lamb has no periods, so it is the same graph */
    OK(optc_step(a.b));
    OK(optc_profile_stop());
    const ProfileRow *all = row_named("lamb step"), *replay = row_named("graph of"),
                     *host = row_named("enqueued by the host");
    ck_assert_msg(all && all->count == 6 && all->timed == 6 && replay && replay->count == 5 &&
                      host->count == 7,
                  "%d steps, %d replays, %d enqueued", all ? (int)all->count : 0,
                  replay ? (int)replay->count : 0, host ? (int)host->count : 0);
    stages_add_up(all);
    d->cuGraphExecDestroy(exec);
    d->cuGraphDestroy(graph);
    OK(optc_set_stream(a.b, NULL));
    d->cuStreamDestroy_v2(st);
    close_side(&a, 0);
}
END_TEST

/* The engine closes before the recording ends: its times are read first, and its events are
 * freed. */
START_TEST(closed_engine)
{
    SHARED();
    Side a;
    OK(optc_profile_start());
    use_tiny_shapes();
    open_side(&a, "cuda", (optc_rule_options){.spec = "sgd"}, 0);
    set_grads(&a, 1);
    for (int k = 0; k < 3; k++)
        OK(optc_step(a.b));
    close_side(&a, 0);
    OK(optc_profile_stop());
    const ProfileRow *all = row_named("sgd step");
    ck_assert(all && all->count == 3 && all->timed == 3);
    char *table = optc_profile_text(0), *trace = optc_profile_text(1);
    ck_assert(table && strstr(table, "optc_compile sgd") && trace && strstr(trace, "\"GPU 0\""));
    free(table);
    free(trace);
}
END_TEST

void add_profile(TCase *t)
{
    tcase_add_loop_test(t, profiled_steps, 0, 3);
    tcase_add_test(t, profiled_graphs);
    tcase_add_test(t, closed_engine);
}
