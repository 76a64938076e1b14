/* Staggered steps whose slots the device selects: captured in a graph, and with a guard. */
#include "tests/gpu/stagger_side.h"

#include "runtime/core/matrix/gpu_calls.h"

#include <stdlib.h>
#include <string.h>

/* A step of side g, captured in a stream of its own. */
typedef struct Captured { CUstream stream; CUgraph graph; CUgraphExec exec; } Captured;

static void capture_step(Side *g, Captured *c)
{
    ck_assert(!d->cuStreamCreate(&c->stream, 1));
    OK(optc_sync(g->b));
    OK(optc_set_stream(g->b, c->stream));
    ck_assert(!d->cuStreamBeginCapture_v2(c->stream, 0));
    OK(optc_step(g->b));
    ck_assert(!d->cuStreamEndCapture(c->stream, &c->graph));
    ck_assert(!d->cuGraphInstantiateWithFlags(&c->exec, c->graph, 0));
}

static void replay(const Captured *c)
{
    ck_assert(!d->cuGraphLaunch(c->exec, c->stream) && !d->cuStreamSynchronize(c->stream));
}

static void drop_captured(Side *g, const Captured *c)
{
    OK(optc_sync(g->b));
    OK(optc_set_stream(g->b, NULL));
    d->cuGraphExecDestroy(c->exec);
    d->cuGraphDestroy(c->graph);
    d->cuStreamDestroy_v2(c->stream);
}

enum { LONG = 9 };

START_TEST(captured)
{
    SHARED();
    Side c, g;
    Captured x;
    int last = getenv("OPTC_TEST_SMALL") ? 6 : LONG;       /* the last replay */
    if (last < LONG && _i == 2)
        return;
    open_both(&c, &g, _i);
    for (int step = 1; step <= last + 1; step++) {
        set_grads(&c, step);
        set_grads(&g, step);
        OK(optc_step(c.b));
        if (step < 3 || step > last) {
            OK(optc_step(g.b));
            OK(optc_sync(g.b));
        } else if (step == 3) {
            capture_step(&g, &x);
        }
        if (step >= 3 && step <= last)
            replay(&x);
        OK(optc_sync(g.b));
        fetch_params(&g);
        compare_within(stagger_rules[_i], &c, &g, _i < STAGGER_RULES - 1 ? 1e-7 : 0);
    }
    drop_captured(&g, &x);
    close_both(&c, &g);
}
END_TEST

/* Captures a step with a driver of this version, and counts its conditional nodes and their
 * bodies. */
static const Driver *real;
static int conditions, bodies;
static int count_condition(CUgraphNode *out, CUgraph g, const CUgraphNode *after,
                           const CUgraphEdgeData *edge, size_t n, CUgraphNodeParams *p)
{
    conditions++;
    bodies += (int)p->of.conditional.size;
    return real->cuGraphAddNode_v2(out, g, after, edge, n, p);
}

static void capture_counted(Side *g, Captured *c, int version)
{
    Driver counting = *(real = g->e->gpu->d);
    counting.cuGraphAddNode_v2 = count_condition;
    counting.version = version ? version : real->version;
    conditions = bodies = 0;
    g->e->gpu->d = &counting;
    capture_step(g, c);
    g->e->gpu->d = real;
}

/* Drivers from CUDA 12.8 on select the body by one switch node, older ones by an IF node for each.
 * The steps of a rule with slots, with slots and periods, and with periods alone have the bits of
 * steps one by one, and compute as many factors. */
static const char periods[] =
    "return optimizer { name = 'periods', hyper = { lr = 0.125 }, state = { L = eye(0.5, 'rows') "
    "},\n"
    " step = function() p = p - lr * g end,\n"
    " matrix = function() L = 0.5 * L + gram(g)  every(2, function() L = L + mm(L, L) / (1 + "
    "slice.norm(L)) end)\n"
    "  every(3, function() p = p - lr * g end)  p = p - lr * mm(L, g) / (1 + slice.norm(L)) end }";

START_TEST(captured_factors)
{
    SHARED();
    const struct { const char *text; int bodies; } of[] = {
        {stagger_rules[2], 4}, {stagger_rules[0], 7}, {periods, 4}};
    Side a, b;
    Captured c;
    int rule = _i / 2, older = _i % 2 ? SWITCH_NEEDED - 10 : 0,
        most = getenv("OPTC_TEST_SMALL") && rule ? 5 : 9;
    optc_rule_options o = {.text = of[rule].text, .param = OPTC_F64, .products = "f64"};
    if (thinned(_i))
        return;
    use_shapes(stagger_few);
    open_side(&a, "cuda", o, 0);
    open_side(&b, "cuda", o, 0);
    for (int step = 1; step <= most; step++) {
        set_grads(&a, step);
        set_grads(&b, step);
        OK(optc_step(b.b));
        if (step < 2 || step > most - 2) {                 /* before and after the replays */
            OK(optc_step(a.b));
        } else if (step == 2) {
            capture_counted(&a, &c, older);
            bool one = a.e->gpu->d->version >= SWITCH_NEEDED && !older;
            ck_assert_msg(bodies == of[rule].bodies && conditions == (one ? 1 : bodies),
                          "%d bodies in %d nodes", bodies, conditions);
        }
        if (step >= 2 && step <= most - 2)
            replay(&c);
        same_params(&a, &b, format("step %d", step));
        int64_t x = factors_of(&a).computed, y = factors_of(&b).computed;
        ck_assert_msg(x == y, "step %d: %d factors, not %d", step, (int)x, (int)y);
    }
    drop_captured(&a, &c);
    close_side(&a, 0);
    close_side(&b, 0);
}
END_TEST

/* Two periods above 4096 whose common steps are far apart: those at multiples of 175000 have all
 * slots in turn. The captured step has a body for each of them. */
START_TEST(captured_rarely)
{
    SHARED();
    static const char text[] = "return optimizer { name = 'rarely', hyper = { lr = 0.125 }, state "
                               "= { L = eye(0.5, 'rows'), X = eye(1, "
                               "'rows'), n = zeros 'tensor' },\n"
                               " step = function() p = p - lr * g end,\n"
                               " matrix = function() L = 0.5 * L + gram(g) / ncols\n"
                               "  every(3, { stagger = true }, function() X = (mm(L, L) + eye(1, "
                               "'rows')) / (1 + slice.norm(L)) end)\n"
                               "  every(25000, function() L = L + eye(0.125, 'rows') end)  "
                               "every(35000, function() n = n + 1 end)\n"
                               "  p = p - lr * mm(X, g) / (1 + n) end }";
    Side a, b;
    Captured c;
    optc_rule_options o = {.text = text, .param = OPTC_F64, .products = "f64"};
    use_shapes(stagger_few);
    open_side(&a, "cuda", o, 0);
    open_side(&b, "cuda", o, 0);
    const int64_t at = 175000 * (int64_t)(1 + _i);
    for (int64_t t = at - 1; t <= at + 1; t++) {
        set_grads(&a, (int)(t - at + 2));
        set_grads(&b, (int)(t - at + 2));
        /* the step before runs outside of the capture */
        if (t == at - 1) {
            OK(optc_set_t(a.b, -1, t - 1));
            OK(optc_set_t(b.b, -1, t - 1));
            OK(optc_step(a.b));
            capture_step(&a, &c);
        } else {
            replay(&c);
        }
        OK(optc_step(b.b));
        same_params(&a, &b, format("step %d", (int)t));
    }
    drop_captured(&a, &c);
    close_side(&a, 0);
    close_side(&b, 0);
}
END_TEST

/* A guard (such as a GradScaler's found_inf) is read on the device: the host launches the kernel
 * that reads it and one graph, and waits for nothing. The graph selects the slots of the steps that
 * were not skipped. */
START_TEST(guarded_lists)
{
    SHARED();
    Side a, b;
    CUdeviceptr guard;
    open_kept(&a, &b, stagger_rules[2]);
    ck_assert(!d->cuMemAlloc_v2(&guard, sizeof(float)));
    OK(optc_set_guard(a.b, (void *)(uintptr_t)guard, OPTC_F32));
    for (int step = 1; step <= 9; step++) {
        float skips = step % 4 == 3;
        ck_assert(!d->cuMemcpyHtoDAsync_v2(guard, &skips, sizeof skips, NULL) &&
                  !d->cuStreamSynchronize(NULL));
        set_grads(&a, step);
        set_grads(&b, step);
        counted_step(&a);
        if (!(step % 4 == 3))
            step_without_lists(&b);
        same_params(&a, &b, format("step %d", step));
        ck_assert_msg(step == 1 || (graphs == 1 && !uploads && launches == 1 && !waits),
                      "step %d: %d graphs, %d uploads, %d launches, %d waits", step, graphs,
                      uploads, launches, waits);
    }
    int64_t x = factors_of(&a).computed, y = factors_of(&b).computed;
    ck_assert_msg(x == y, "%d factors, not %d", (int)x, (int)y);
    close_side(&a, 0);
    close_side(&b, 0);
    ck_assert(!d->cuMemFree_v2(guard));
}
END_TEST

/* Eigenvectors of step 1 only, as in SOAP. */
static const char starts[] =
    "return optimizer { name = 'starts', hyper = { lr = 0.125 }, state = { L = zeros 'rows', X = "
    "eye(1, 'rows') },\n"
    " step = function() p = p - lr * g end,\n"
    " matrix = function() L = 0.5 * L + gram(g)\n"
    "  every(2, { stagger = true }, function() L = L + mm(L, L) / (1 + slice.norm(L)) end)\n"
    "  every(1e9, { offset = 1 }, function() X = select(2, eigh(L, { last = X })) end)\n"
    "  p = p - lr * mm(X.T, g) / (1 + slice.norm(L)) end }";

static void open_starts(Side *a, Side *b)
{
    side_method = EIGEN_F64;
    open_kept(a, b, starts);
    side_method = EIGEN_BY_SIZE;
}

/* States and parameters of a side, in memory that the caller frees. */
static optc_checkpoint saved(Side *s)
{
    optc_checkpoint to = {.params = 1};
    OK(optc_save_bytes(&s->b, 1, &to, &to.size));
    to.memory = malloc((size_t)to.size);
    ck_assert(to.memory != NULL);
    OK(optc_save(&s->b, 1, &to));
    return to;
}

/* A captured step has bodies for the slots of all steps, step 1 too: replays continue from a file
 * of any step. */
START_TEST(captured_start)
{
    SHARED();
    Side a, b;
    Captured c;
    open_starts(&a, &b);
    optc_checkpoint first = saved(&a), later = first;
    for (int step = 1; step <= 5; step++) {
        set_grads(&a, step);
        set_grads(&b, step);
        OK(optc_step(b.b));
        if (step == 1)
            OK(optc_step(a.b));
        if (step == 2) {
            capture_counted(&a, &c, 0);
            ck_assert_msg(bodies == 3, "%d bodies", bodies);
        }
        if (step > 1)
            replay(&c);
        same_params(&a, &b, format("step %d", step));
        later = step == 3 ? saved(&b) : later;
    }
    for (int round = 0; round < 2; round++) {
        const int from = round ? 1 : 4;
        OK(optc_load(&a.b, 1, round ? &first : &later));
        OK(optc_load(&b.b, 1, round ? &first : &later));
        for (int step = from; step < from + 3; step++) {
            set_grads(&a, step);
            set_grads(&b, step);
            OK(optc_step(b.b));
            replay(&c);
            same_params(&a, &b, format("step %d after a load", step));
        }
    }
    free(first.memory);
    free(later.memory);
    drop_captured(&a, &c);
    close_side(&a, 0);
    close_side(&b, 0);
}
END_TEST

/* If the lists of a captured step cannot be made, nothing is freed in the stream that is captured:
 * the driver would refuse it, or add it to the caller's graph. */
static CUstream captured_stream;
static int uploads_left, frees_inside;
static int fail_upload(CUdeviceptr to, const void *from, size_t n, CUstream s)
{
    return uploads_left-- > 0 ? real->cuMemcpyHtoDAsync_v2(to, from, n, s)
                              : CUDA_ERROR_OUT_OF_MEMORY;
}
static int watch_free(CUdeviceptr p, CUstream s)
{
    frees_inside += s == captured_stream;
    return real->cuMemFreeAsync(p, s);
}

START_TEST(captured_failure)
{
    SHARED();
    Side a, b;
    CUgraph graph = NULL;
    optc_memory before, after;
    open_kept(&a, &b, stagger_rules[2]);
    step_kept(&a, &b, 1);
    step_kept(&a, &b, 2);
    ck_assert(!d->cuStreamCreate(&captured_stream, 1));
    OK(optc_sync(a.b));
    OK(optc_set_stream(a.b, captured_stream));
    OK(optc_memory_info(a.e, &before));
    Driver failing = *(real = a.e->gpu->d);
    failing.cuMemcpyHtoDAsync_v2 = fail_upload;
    failing.cuMemFreeAsync = watch_free;
    a.e->gpu->d = &failing;
    for (int n = 0; n < 4; n++) {                          /* the first list, or a later one */
        uploads_left = n;
        frees_inside = 0;
        ck_assert(!d->cuStreamBeginCapture_v2(captured_stream, 0));
        FAILS(optc_step(a.b), OPTC_ERROR_MEMORY, "cuMemcpyHtoDAsync");
        d->cuStreamEndCapture(captured_stream, &graph);
        if (graph)
            d->cuGraphDestroy(graph);
        OK(optc_memory_info(a.e, &after));
        ck_assert_msg(!frees_inside && after.ours == before.ours,
                      "%d uploads: %d frees in the capture, %d bytes left", n, frees_inside,
                      (int)(after.ours - before.ours));
    }
    a.e->gpu->d = real;
    step_kept(&a, &b, 3);
    OK(optc_set_stream(a.b, NULL));
    close_side(&a, 0);
    close_side(&b, 0);
    d->cuStreamDestroy_v2(captured_stream);
}
END_TEST

/* A graph that cannot be made is found before the guard is read on the device, which decrements t
 * of a skipped step. */
static bool graphs_fail;
static int fail_instantiate(CUgraphExec *e, CUgraph g, unsigned long long flags)
{
    return graphs_fail ? CUDA_ERROR_OUT_OF_MEMORY : real->cuGraphInstantiateWithFlags(e, g, flags);
}

START_TEST(guarded_failure)
{
    SHARED();
    Side a, b;
    float *guard = device_take(sizeof *guard);
    int64_t t;
    open_kept(&a, &b, stagger_rules[2]);
    OK(optc_set_guard(a.b, guard, OPTC_F32));
    Driver failing = *(real = a.e->gpu->d);
    failing.cuGraphInstantiateWithFlags = fail_instantiate;
    a.e->gpu->d = &failing;
    for (int step = 1; step <= 4; step++) {
        float skips = step % 2;
        device_put(guard, &skips, sizeof skips);
        set_grads(&a, step);
        set_grads(&b, step);
        graphs_fail = step == 1;
        if (graphs_fail)
            FAILS(optc_step(a.b), OPTC_ERROR_MEMORY, "cuGraphInstantiate");
        else
            OK(optc_step(a.b));
        if (skips == 0)
            OK(optc_step(b.b));
        same_params(&a, &b, format("step %d", step));
        OK(optc_get_t(a.b, -1, &t));
        ck_assert_msg(t == step / 2, "t is %d after step %d", (int)t, step);
    }
    a.e->gpu->d = real;
    close_side(&a, 0);
    close_side(&b, 0);
    device_give(guard);
}
END_TEST

static void capture_only(Side *g)
{
    Captured c;
    capture_step(g, &c);
    drop_captured(g, &c);
}

/* Steps before a capture keep lists. They do not use up the limit of the captured step, and are
 * freed after it. */
START_TEST(captured_after_lists)
{
    SHARED();
    Side a, b;
    open_kept(&a, &b, stagger_rules[2]);
    for (int step = 1; step <= 4; step++)
        step_kept(&a, &b, step);
    capture_only(&b);
    int64_t usual = a.e->workspace, kept = held_graphs(&a),
            needed = held_graphs(&b) - list_of(&b, LIST_ONCE)->held;
    const LaunchList *w = list_of(&b, LIST_REGION);
    ck_assert(kept && w && w->nbody > 1);
    int64_t memory = (int64_t)w->bytes;
    for (int i = 0; i < w->nbody; i++)
        memory += (int64_t)w->body[i]->bytes;
    ck_assert_msg(w->bytes && needed > memory, "%d bytes are counted, %d are held", (int)needed,
                  (int)memory);
    a.e->workspace = 4 * needed;
    capture_only(&a);
    ck_assert_msg(list_of(&a, LIST_REGION)->body[0]->key.use == LIST_BODY &&
                      held_graphs(&a) == kept + needed,
                  "the kept lists leave no room: %d of %d bytes", (int)held_graphs(&a),
                  (int)(kept + needed));
    OK(optc_step(a.b));
    OK(optc_step(b.b));
    same_params(&a, &b, "after the capture");
    ck_assert_msg(held_graphs(&a) == needed, "%d bytes are held, %d are used", (int)held_graphs(&a),
                  (int)needed);
    a.e->workspace = usual;
    close_side(&a, 0);
    close_side(&b, 0);
}
END_TEST

void add_stagger_graphs(TCase *t)
{
    tcase_add_loop_test(t, captured, 0, STAGGER_RULES);
    tcase_add_loop_test(t, captured_factors, 0, 6);
    tcase_add_loop_test(t, captured_rarely, 1, 3);
    tcase_add_test(t, captured_start);
    tcase_add_test(t, captured_failure);
    tcase_add_test(t, captured_after_lists);
    tcase_add_test(t, guarded_lists);
    tcase_add_test(t, guarded_failure);
}
