/* Guards of rules with eigenvectors that no graph can contain, at some of their steps: the host waits at those steps
 * only, and the results are those of a caller that skips steps by itself. */
#include "tests/gpu/stagger_side.h"

#include "runtime/core/matrix/gpu_calls.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* X: as SPlus. M: a product at other steps. Y, in the last rule: as SOAP. The entry `turn` has neither products nor a
 * step count. */
#define BASES(how, state, also)                                                                                        \
    "return optimizer { name = 'bases', hyper = { lr = 0.125 }, state = { L = zeros 'rows', X = eye(1, 'rows'), "      \
    "M = zeros 'rows', n = zeros 'tensor'" state " },\n"                                                               \
    " step = function() n = n + 1  p = p - lr * g / t end,\n"                                                          \
    " matrix = function() L = 0.5 * L + gram(g)\n"                                                                     \
    "  every(12, { first = true" how " }, function() X = select(2, eigh(L, { last = X })) end)\n"                      \
    "  every(2, { first = false" how " }, function() M = M + mm(L, L) / (1 + slice.norm(L)) end)\n"                    \
    also                                                                                                               \
    "  p = p - lr * mm(X.T, g) / (1 + slice.norm(M)) - 1e-3 * lr * p / t end,\n"                                       \
    " turn = function() p = -p end }"
#define ONCE                                                                                                           \
    "  every(1000000000, { offset = 1 }, function() Y = select(2, eigh(L, { last = Y })) end)  M = M + 1e-3 * Y\n"
static const char *const bases[] = {BASES("", "", ""), BASES(", stagger = true", "", ""),
                                    BASES("", ", Y = eye(1, 'rows')", ONCE)};
enum { BASES_RULES = sizeof bases / sizeof *bases };

/* Binds the tensors again, in two groups. */
static void bind_groups(Side *s)
{
    optc_tensor t[NSHAPES];
    memset(t, 0, sizeof t);
    for (int k = 0; k < NSHAPES; k++)
        t[k] = (optc_tensor){.param = (void *)(uintptr_t)s->p[k], .grad = (void *)(uintptr_t)s->g[k],
                             .rank = stagger_few[k].rank, .shape = stagger_few[k].dim};
    optc_group of[] = {{.tensors = t, .ntensors = 4}, {.tensors = t + 4, .ntensors = NSHAPES - 4}};
    OK(optc_unbind(s->b));
    OK(optc_bind(s->r, of, 2, &s->b));
    OK(optc_set_hyper(s->b, 1, "lr", 0.0625));
}

/* Side a has the guard, b does not. Their eigenvectors count as those of large matrices. */
static void open_bases(Side *a, Side *b, const char *text)
{
    side_method = EIGEN_F64;
    open_kept(a, b, text);
    side_method = EIGEN_BY_SIZE;
    for (int k = 0; k < 2; k++) {
        Side *s = k ? b : a;
        bind_groups(s);
        no_captures(s);
        phases_bind(s->b);
        ck_assert(!s->b->conditional);
    }
}

static void same_sides(Side *a, Side *b, int step)
{
    optc_state_info info;
    optc_state_view v;
    same_params(a, b, format("step %d", step));
    for (int k = 0; k < NSHAPES; k++) {
        int64_t ta, tb;
        OK(optc_get_t(a->b, k, &ta));
        OK(optc_get_t(b->b, k, &tb));
        ck_assert_msg(ta == tb, "step %d: t of tensor %d is %d, not %d", step, k, (int)ta, (int)tb);
        for (int i = 0; i < optc_rule_states(a->r); i++) {
            OK(optc_rule_state(a->r, i, &info));
            if (optc_state(a->b, k, info.name, &v) != OPTC_OK)
                continue;
            double *x = malloc(8 * (size_t)(v.count + 1)), *y = malloc(8 * (size_t)(v.count + 1));
            OK(optc_state_read(a->b, k, info.name, x, v.count));
            OK(optc_state_read(b->b, k, info.name, y, v.count));
            ck_assert_msg(!memcmp(x, y, 8 * (size_t)v.count), "step %d: state %s of tensor %d", step, info.name, k);
            free(x);
            free(y);
        }
    }
    int64_t x = factors_of(a).computed, y = factors_of(b).computed;
    ck_assert_msg(x == y, "step %d: %d factors, not %d", step, (int)x, (int)y);
}

static float *guard;
static void put_guard(float x) { device_put(guard, &x, sizeof x); }

/* A step of a that must not be taken has gradients that are no numbers, as a GradScaler finds them. */
static void spoil_grads(const Side *s)
{
    for (int k = 0; k < NSHAPES; k++)
        if (s->n[k])
            ck_assert(!d->cuMemsetD8Async(s->g[k], 0xff, (size_t)s->n[k] * s->wg, NULL));
    ck_assert(!d->cuStreamSynchronize(NULL));
}

/* One step of both; the guard skips that of a, and the caller that of b. */
static void guarded_step(Side *a, Side *b, int step, float skips)
{
    put_guard(skips);
    set_grads(a, step);
    set_grads(b, step);
    if (!(skips == 0))
        spoil_grads(a);
    counted_step(a);
    if (skips == 0)
        OK(optc_step(b->b));
    same_sides(a, b, step);
}

/* Waits of a step: its own eigenvectors need one, and so does the first one that would have them if none had been
 * skipped. All others need none. */
START_TEST(hybrid_waits)
{
    SHARED();
    enum { STEPS_OF = 40 };
    Side a, b;
    int waited = 0, apart = 0, skipped = 0;
    bool built = false;
    open_bases(&a, &b, bases[_i % BASES_RULES]);
    bool skips = _i >= BASES_RULES;
    guard = device_take(sizeof *guard);
    OK(optc_set_guard(a.b, guard, OPTC_F32));
    for (int step = 1; step <= STEPS_OF; step++) {
        int64_t was = factors_of(&b).computed;
        bool skip = skips && step % 9 == 5, first = !a.b->hybrid;
        guarded_step(&a, &b, step, skip);
        bool has = factors_of(&b).computed != was, builds = first && a.b->hybrid;
        apart += has;
        skipped += skip;
        waited += waits && !builds;                        /* making the graph waits for a stream of its own */
        built = built || builds;
        ck_assert_msg(skips || builds || (waits > 0) == has, "step %d: %d waits, %d factors", step, waits, has);
        ck_assert_msg(skips || !has || step <= 26 || !uploads, "step %d: %d uploads; lists are not kept", step,
                      uploads);
        ck_assert_msg(has || builds || waits || (graphs == 1 && launches == 1 && !uploads),
                      "step %d: %d graphs, %d launches, %d uploads", step, graphs, launches, uploads);
    }
    ck_assert_msg(built && waited <= apart + skipped && apart < STEPS_OF - 10,
                  "the host waited at %d of %d steps, %d have eigenvectors, %d were skipped", waited, STEPS_OF, apart,
                  skipped);
    close_side(&a, 0);
    close_side(&b, 0);
    device_give(guard);
}
END_TEST

/* ---- what happens between steps ---- */
static optc_checkpoint save_side(Side *s)
{
    optc_checkpoint to = {.params = 1};
    OK(optc_save_bytes(&s->b, 1, &to, &to.size));
    to.memory = malloc((size_t)to.size);
    ck_assert(to.memory != NULL);
    OK(optc_save(&s->b, 1, &to));
    return to;
}

static void set_both(Side *a, Side *b, int tensor, int64_t t)
{
    OK(optc_set_t(a->b, tensor, t));
    OK(optc_set_t(b->b, tensor, t));
}

/* More step counts than a binding has room for at first: memory is allocated, and all lists are built again. */
static void more_counts(Side *a, Side *b)
{
    for (int k = 0; k < NSHAPES; k++)
        set_both(a, b, k, 2 + k);
}

static void give_both(Side *a, Side *b, int k, bool has)
{
    Side *s[] = {a, b};
    for (int i = 0; i < 2; i++)
        OK(optc_set_grad(s[i]->b, k, has ? (void *)(uintptr_t)s[i]->g[k] : NULL, has ? s[i]->n[k] : 0));
}

static void capture_refused(Side *a, const char *why)
{
    CUstream st;
    CUgraph graph = NULL;
    ck_assert(!d->cuStreamCreate(&st, 1));
    OK(optc_sync(a->b));
    OK(optc_set_stream(a->b, st));
    ck_assert(!d->cuStreamBeginCapture_v2(st, 0));
    FAILS(optc_step(a->b), OPTC_ERROR_ARGUMENT, why);
    ck_assert(!d->cuStreamEndCapture(st, &graph));
    d->cuGraphDestroy(graph);
    OK(optc_set_stream(a->b, NULL));
    d->cuStreamDestroy_v2(st);
}

static void turn_both(Side *a, Side *b, float skips)
{
    put_guard(skips);
    OK(optc_run(a->b, "turn"));
    if (skips == 0)
        OK(optc_run(b->b, "turn"));
}

static void rate_both(Side *a, Side *b, int group, double lr)
{
    OK(optc_set_hyper(a->b, group, "lr", lr));
    OK(optc_set_hyper(b->b, group, "lr", lr));
}

static void load_both(Side *a, Side *b, const optc_checkpoint *from)
{
    OK(optc_load(&a->b, 1, from));
    OK(optc_load(&b->b, 1, from));
}

START_TEST(hybrid_events)
{
    SHARED();
    static const float skip_at[] = {0, 0, 1, 0, 0, 0, NAN, 0, 0, 1, 1, 0, 0, 0, 1, 0, 0};
    Side a, b;
    optc_checkpoint later = {0};
    open_bases(&a, &b, bases[_i]);
    guard = device_take(sizeof *guard);
    OK(optc_set_guard(a.b, guard, OPTC_F32));
    for (int step = 1; step <= 64; step++) {
        bool marks = step == 43 || step == 49;             /* the last step before the guard is removed */
        float skips = marks ? 1 : skip_at[step * 7 % (sizeof skip_at / sizeof *skip_at)];
        switch (step) {
        case 6: rate_both(&a, &b, 1, 0.03); break;
        case 9: later = save_side(&b); break;
        case 15: set_both(&a, &b, -1, 3); break;
        case 19: give_both(&a, &b, 2, false); break;
        case 24: give_both(&a, &b, 2, true); break;
        case 29: load_both(&a, &b, &later); break;
        case 33: set_both(&a, &b, 3, 2); break;
        case 37: capture_refused(&a, "the host must read the guard"); break;
        case 39:
            set_both(&a, &b, 2, 5);
            capture_refused(&a, "remove the guard and run one step before capturing");
            break;
        case 40: turn_both(&a, &b, skips); break;
        case 41: turn_both(&a, &b, 1); break;
        case 44: OK(optc_set_guard(a.b, NULL, OPTC_F32)); break;
        case 45: OK(optc_set_guard(a.b, guard, OPTC_F32)); break;
        case 48: rate_both(&a, &b, -1, 0.05); break;
        case 50:
            OK(optc_set_guard(a.b, NULL, OPTC_F32));
            capture_refused(&a, "the guard was removed");
            break;
        case 53: OK(optc_set_guard(a.b, guard, OPTC_F32)); break;
        case 56: set_both(&a, &b, -1, 0); break;
        default: break;
        }
        guarded_step(&a, &b, step, a.b->guard.from ? skips : 0);
        if (step == 14 || step == 28)
            ck_assert_msg(a.b->hybrid, "step %d: the host reads all guards", step);
        if (marks)
            ck_assert_msg(a.b->hybrid && a.b->gpu->calls->guard.by_device, "step %d: read by the host", step);
        ck_assert(step != 44 || !a.b->hybrid);
    }
    free(later.memory);
    close_side(&a, 0);
    close_side(&b, 0);
    device_give(guard);
}
END_TEST

/* The next step computes the tensor's eigenvectors. */
static bool is_due(const Side *s, int tensor)
{
    const optc_binding *b = s->b;
    const StaggerNow now = stagger_now(b, b->steps + 1);
    bool due = false;
    for (int i = 0; i < b->nslots; i++)
        due = due || (b->program->array[b->slots[i].array].slots.every == 12 && b->slots[i].slot[tensor] == now.now[i]);
    return due;
}

static const Driver *real;
static bool fails_once;
static int fail_upload(CUdeviceptr to, const void *from, size_t n, CUstream s)
{
    bool fails = fails_once;
    fails_once = false;
    return fails ? CUDA_ERROR_OUT_OF_MEMORY : real->cuMemcpyHtoDAsync_v2(to, from, n, s);
}

/* A gradient that comes or goes changes which steps the host must run. It comes when its tensor is due: the graph has a
 * body for that step, which is not valid any more, also if the step is tried again after a failure. */
START_TEST(hybrid_returns)
{
    SHARED();
    static const int of[] = {0, 2, 6};
    Side a, b;
    int step = 1;
    open_bases(&a, &b, bases[1]);
    guard = device_take(sizeof *guard);
    OK(optc_set_guard(a.b, guard, OPTC_F32));
    Driver failing = *(real = a.e->gpu->d);
    failing.cuMemcpyHtoDAsync_v2 = fail_upload;
    guarded_step(&a, &b, step++, 0);
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        give_both(&a, &b, of[i], false);
        for (int k = 0; k < 2 || !is_due(&b, of[i]); k++)
            guarded_step(&a, &b, step++, k == 1);
        give_both(&a, &b, of[i], true);
        ck_assert(a.b->hybrid);
        put_guard(0);
        fails_once = true;
        a.e->gpu->d = &failing;
        FAILS(optc_step(a.b), OPTC_ERROR_MEMORY, "views of the tensors");
        a.e->gpu->d = real;
        for (int k = 0; k < 3; k++)
            guarded_step(&a, &b, step++, k == 1);
    }
    close_side(&a, 0);
    close_side(&b, 0);
    device_give(guard);
}
END_TEST

/* Nothing runs before the host waits for it: the emulated GPU is late. The guards of all steps are on the device. */
START_TEST(hybrid_late)
{
    SHARED();
    enum { STEPS_OF = 30 };
    int (*late)(int) = find_late();
    CUstream st;
    Side a, b;
    float skip[STEPS_OF + 1];
    open_bases(&a, &b, bases[_i / 2]);
    guard = device_take(sizeof skip);
    for (int step = 0; step <= STEPS_OF; step++)
        skip[step] = step % 5 == 3 || step % 7 == 4;
    device_put(guard, skip, sizeof skip);
    ck_assert(!d->cuStreamCreate(&st, 1));
    OK(optc_set_stream(a.b, st));
    set_grads(&a, 1);
    set_grads(&b, 1);
    if (late)
        late(1 + _i % 2);
    for (int step = 1; step <= STEPS_OF; step++) {
        OK(optc_set_guard(a.b, guard + step, OPTC_F32));
        OK(optc_step(a.b));
    }
    OK(optc_sync(a.b));
    if (late)
        late(0);
    for (int step = 1; step <= STEPS_OF; step++)
        if (skip[step] == 0)
            OK(optc_step(b.b));
    ck_assert(a.b->hybrid);
    same_sides(&a, &b, STEPS_OF);
    OK(optc_set_stream(a.b, NULL));
    close_side(&a, 0);
    close_side(&b, 0);
    d->cuStreamDestroy_v2(st);
    device_give(guard);
}
END_TEST

/* Another stream of the program is captured during each call, in the mode that ends its capture if memory is freed. */
START_TEST(hybrid_beside)
{
    SHARED();
    enum { STEPS_OF = 24 };
    CUstream other;
    CUgraph graph;
    Side a, b;
    ck_assert(!d->cuStreamCreate(&other, 1));
    open_bases(&a, &b, bases[_i]);
    guard = device_take(sizeof *guard);
    for (int step = 1; step <= STEPS_OF; step++) {
        const bool guarded = step > 3 && step != 12, changes = step == 15 || step == 18;
        put_guard(guarded && step % 5 == 0);
        set_grads(&a, step);
        set_grads(&b, step);
        if (changes)
            give_both(&a, &b, 2, step == 18);
        if (step == 21)
            more_counts(&a, &b);
        ck_assert(!d->cuStreamBeginCapture_v2(other, 0));
        OK(optc_set_guard(a.b, guarded ? guard : NULL, OPTC_F32));
        OK(optc_step(a.b));
        ck_assert_msg(!d->cuStreamEndCapture(other, &graph), "step %d ended the capture of another stream", step);
        d->cuGraphDestroy(graph);
        if (!guarded || step % 5)
            OK(optc_step(b.b));
        same_sides(&a, &b, step);
    }
    close_side(&a, 0);
    close_side(&b, 0);
    d->cuStreamDestroy_v2(other);
    device_give(guard);
}
END_TEST

/* ---- questions to the driver ---- */
static bool began;                                         /* the run has launched something */
static int begin_launch(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                        unsigned shared, CUstream s, void **args, void **more)
{
    return began = true, real->cuLaunchKernel(f, gx, gy, gz, bx, by, bz, shared, s, args, more);
}
static int begin_graph(CUgraphExec e, CUstream s) { return began = true, real->cuGraphLaunch(e, s); }
static int fail_later(CUstream s, CUstreamCaptureStatus *x) { return began ? 1 : real->cuStreamIsCapturing(s, x); }

/* A step with such eigenvectors asks whether its stream is captured ahead of its first launch only: an error in the
 * middle would leave the step half done. */
START_TEST(asks_first)
{
    SHARED();
    Side a, b;
    open_bases(&a, &b, bases[_i]);
    Driver failing = *(real = a.e->gpu->d);
    failing.cuLaunchKernel = begin_launch;
    failing.cuGraphLaunch = begin_graph;
    failing.cuStreamIsCapturing = fail_later;
    for (int step = 1; step <= 13; step++) {
        set_grads(&a, step);
        set_grads(&b, step);
        began = false;
        a.e->gpu->d = &failing;
        optc_status s = optc_step(a.b);
        a.e->gpu->d = real;
        ck_assert_msg(s == OPTC_OK && began, "step %d: %s", step, optc_message());
        OK(optc_step(b.b));
        same_sides(&a, &b, step);
    }
    close_side(&a, 0);
    close_side(&b, 0);
}
END_TEST

/* ---- memory ---- */
static bool fails_always;
static int fail_instantiate(CUgraphExec *e, CUgraph g, unsigned long long flags)
{
    return fails_always ? CUDA_ERROR_OUT_OF_MEMORY : real->cuGraphInstantiateWithFlags(e, g, flags);
}

/* The next step has no eigenvectors that the host must run. */
static bool is_free(const Side *s)
{
    const GpuTables *t = s->b->gpu;
    const StaggerNow now = stagger_now(s->b, s->b->steps + 1);
    int phase = program_phase(s->b->program, s->b->steps + 1);
    return list_captures(s->b, &t->launch_list[t->step * t->nphase + phase], &now);
}

/* New launch lists need a new graph. Slot lists that steps of the host have kept by then are freed: they would take
 * memory beside the bodies of the same combinations. */
START_TEST(hybrid_rebuilt)
{
    SHARED();
    Side a, b;
    int step = 1;
    open_bases(&a, &b, bases[1]);
    guard = device_take(sizeof *guard);
    OK(optc_set_guard(a.b, guard, OPTC_F32));
    const GpuTables *t = a.b->gpu;
    while (step < 20 && !t->calls->whole[t->step])
        guarded_step(&a, &b, step++, 0);
    ck_assert(a.b->hybrid && t->calls->whole[t->step]);
    more_counts(&a, &b);
    for (int k = 0; k < 4 || !is_free(&b); k++) {
        guarded_step(&a, &b, step++, 0);
        set_both(&a, &b, -1, b.b->steps);                  /* the host runs the next step too */
    }
    guarded_step(&a, &b, step++, 0);
    ck_assert(!t->calls->whole[t->step] && t->slot_lists);
    while (!is_free(&b))
        guarded_step(&a, &b, step++, 0);
    guarded_step(&a, &b, step++, 0);
    ck_assert(a.b->hybrid && t->calls->whole[t->step] && !t->slot_lists);
    guarded_step(&a, &b, step++, 1);
    close_side(&a, 0);
    close_side(&b, 0);
    device_give(guard);
}
END_TEST

/* Drivers before CUDA 12.8 have no switch nodes: with stagger the host reads the guard at each step. */
START_TEST(hybrid_drivers)
{
    SHARED();
    Side a, b;
    int by_device = 0;
    open_bases(&a, &b, bases[_i]);
    Driver older = *(real = a.e->gpu->d);
    older.version = 12040;
    a.e->gpu->d = &older;
    phases_bind(a.b);
    guard = device_take(sizeof *guard);
    OK(optc_set_guard(a.b, guard, OPTC_F32));
    for (int step = 1; step <= 14; step++) {
        guarded_step(&a, &b, step, step % 5 == 3);
        by_device += a.b->gpu->calls->guard.by_device;
    }
    ck_assert_msg(_i == 1 ? !by_device : by_device > 8, "the device read %d guards", by_device);
    a.e->gpu->d = real;
    close_side(&a, 0);
    close_side(&b, 0);
    device_give(guard);
}
END_TEST

/* Without memory for the graph the host reads the guard at each step. Another participation is another try. */
START_TEST(hybrid_memory)
{
    SHARED();
    Side a, b;
    int how = _i / BASES_RULES;                            /* a graph, its lists, or (2) the limit of lists */
    bool tried = false, limited = how == 2 && _i % BASES_RULES == 1;
    open_bases(&a, &b, bases[_i % BASES_RULES]);
    guard = device_take(sizeof *guard);
    OK(optc_set_guard(a.b, guard, OPTC_F32));
    Driver failing = *(real = a.e->gpu->d);
    failing.cuGraphInstantiateWithFlags = how ? real->cuGraphInstantiateWithFlags : fail_instantiate;
    failing.cuMemcpyHtoDAsync_v2 = how == 1 ? fail_upload : real->cuMemcpyHtoDAsync_v2;
    int64_t usual = a.e->workspace;
    for (int step = 1; step <= 26; step++) {
        float skips = step % 5 == 3;
        put_guard(skips);
        if (step == 14)
            give_both(&a, &b, 3, false);
        set_grads(&a, step);
        set_grads(&b, step);
        bool begins = step > 1 && !tried && is_free(&a);
        tried = tried || begins;
        fails_always = begins;
        fails_once = begins && how == 1;
        a.e->workspace = how == 2 && step < 14 ? 1 : usual;
        a.e->gpu->d = &failing;
        optc_status s = optc_step(a.b);
        a.e->gpu->d = real;
        ck_assert_msg(s == OPTC_OK && !fails_once, "step %d: %s", step, optc_message());
        if (skips == 0)
            OK(optc_step(b.b));
        same_sides(&a, &b, step);
        if (tried && step < 14 && (how < 2 || limited))
            ck_assert_msg(!a.b->hybrid && a.b->gpu->calls->guard.refused, "step %d: there was memory", step);
    }
    ck_assert(tried && a.b->hybrid);
    close_side(&a, 0);
    close_side(&b, 0);
    device_give(guard);
}
END_TEST

void add_hybrid_guard(TCase *t)
{
    tcase_add_loop_test(t, hybrid_waits, 0, 2 * BASES_RULES);
    tcase_add_loop_test(t, hybrid_events, 0, BASES_RULES);
    tcase_add_test(t, hybrid_returns);
    tcase_add_test(t, hybrid_rebuilt);
    tcase_add_loop_test(t, asks_first, 0, BASES_RULES);
    tcase_add_loop_test(t, hybrid_beside, 0, BASES_RULES);
    tcase_add_loop_test(t, hybrid_late, 0, 2 * BASES_RULES);
    tcase_add_loop_test(t, hybrid_drivers, 0, BASES_RULES);
    tcase_add_loop_test(t, hybrid_memory, 0, 3 * BASES_RULES);
}
