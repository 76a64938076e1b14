/* Guards of rules with eigenvectors: the device reads them, the host never waits, and the results
 * are those of a caller that skips steps by itself. */
#include "tests/gpu/stagger_side.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* X: as SPlus. M: a product at other steps. Y, in the last rule: as SOAP. The entry `turn` has
 * neither products nor a step count. */
#define BASES(how, state, also) \
    "return optimizer { name = 'bases', hyper = { lr = 0.125 }, state = { L = zeros 'rows', X = " \
    "eye(1, 'rows'), " \
    "M = zeros 'rows', n = zeros 'tensor'" state " },\n" \
    " step = function() n = n + 1  p = p - lr * g / t end,\n" \
    " matrix = function() L = 0.5 * L + gram(g)\n" \
    "  every(12, { first = true" how " }, function() X = select(2, eigh(L, { last = X })) end)\n" \
    "  every(2, { first = false" how \
    " }, function() M = M + mm(L, L) / (1 + slice.norm(L)) end)\n" also \
    "  p = p - lr * mm(X.T, g) / (1 + slice.norm(M)) - 1e-3 * lr * p / t end,\n" \
    " turn = function() p = -p end }"
#define ONCE \
    "  every(1000000000, { offset = 1 }, function() Y = select(2, eigh(L, { last = Y })) end)  M " \
    "= M + 1e-3 * Y\n"
static const char *const bases[] = {BASES("", "", ""), BASES(", stagger = true", "", ""),
                                    BASES("", ", Y = eye(1, 'rows')", ONCE)};
enum { BASES_RULES = sizeof bases / sizeof *bases };

/* Binds the tensors again, in two groups. */
static void bind_groups(Side *s)
{
    optc_tensor t[NSHAPES];
    memset(t, 0, sizeof t);
    for (int k = 0; k < NSHAPES; k++)
        t[k] = (optc_tensor){.param = (void *)(uintptr_t)s->p[k],
                             .grad = (void *)(uintptr_t)s->g[k],
                             .rank = stagger_few[k].rank,
                             .shape = stagger_few[k].dim};
    optc_group of[] = {{.tensors = t, .ntensors = 4}, {.tensors = t + 4, .ntensors = NSHAPES - 4}};
    OK(optc_unbind(s->b));
    OK(optc_bind(s->r, of, 2, &s->b));
    OK(optc_set_hyper(s->b, 1, "lr", 0.0625));
}

/* Side a has a guard on the device, b has none. divided: as for matrices above 256 rows. */
static float *guard;
static void open_bases(Side *a, Side *b, int rule, bool divided)
{
    side_method = divided ? EIGEN_DIVIDED : EIGEN_F64;
    open_kept(a, b, bases[rule]);
    bind_groups(a);
    bind_groups(b);
    side_method = EIGEN_BY_SIZE;
    ck_assert(a->b->conditional);
    guard = device_take(sizeof *guard);
    OK(optc_set_guard(a->b, guard, OPTC_F32));
}

static void close_bases(Side *a, Side *b)
{
    close_side(a, 0);
    close_side(b, 0);
    device_give(guard);
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
            ck_assert_msg(!memcmp(x, y, 8 * (size_t)v.count), "step %d: state %s of tensor %d",
                          step, info.name, k);
            free(x);
            free(y);
        }
    }
    int64_t x = factors_of(a).computed, y = factors_of(b).computed;
    ck_assert_msg(x == y, "step %d: %d factors, not %d", step, (int)x, (int)y);
}

static void put_guard(float x) { device_put(guard, &x, sizeof x); }

/* A step of a that must not be taken has gradients that are no numbers, as a GradScaler finds
 * them. */
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

START_TEST(skipped_steps)
{
    SHARED();
    Side a, b;
    int skipped = 0;
    open_bases(&a, &b, _i % BASES_RULES, _i >= BASES_RULES);
    for (int step = 1; step <= 27; step++) {
        guarded_step(&a, &b, step, step % 9 == 5);
        skipped += step % 9 == 5;
        ck_assert_msg(step == 1 || (graphs == 1 && launches == 1 && !uploads && !waits),
                      "step %d: %d graphs, %d launches, %d uploads, %d waits", step, graphs,
                      launches, uploads, waits);
    }
    ck_assert(skipped && factors_of(&b).computed);
    close_bases(&a, &b);
}
END_TEST

/* A captured step reads the guard at each replay. */
START_TEST(skipped_replays)
{
    SHARED();
    CUstream st;
    CUgraph graph;
    CUgraphExec exec;
    Side a, b;
    open_bases(&a, &b, _i % BASES_RULES, _i >= BASES_RULES);
    ck_assert(!d->cuStreamCreate(&st, 1));
    guarded_step(&a, &b, 1, 0);
    OK(optc_sync(a.b));
    OK(optc_set_stream(a.b, st));
    ck_assert(!d->cuStreamBeginCapture_v2(st, 0));
    OK(optc_step(a.b));
    ck_assert(!d->cuStreamEndCapture(st, &graph) &&
              !d->cuGraphInstantiateWithFlags(&exec, graph, 0));
    for (int step = 2; step <= 15; step++) {
        bool skips = step % 4 == 1;
        put_guard(skips);
        set_grads(&a, step);
        set_grads(&b, step);
        if (skips)
            spoil_grads(&a);
        ck_assert(!d->cuGraphLaunch(exec, st) && !d->cuStreamSynchronize(st));
        if (!skips)
            OK(optc_step(b.b));
        same_sides(&a, &b, step);
    }
    d->cuGraphExecDestroy(exec);
    d->cuGraphDestroy(graph);
    OK(optc_set_stream(a.b, NULL));
    close_bases(&a, &b);
    d->cuStreamDestroy_v2(st);
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

static void give_both(Side *a, Side *b, int k, bool has)
{
    Side *s[] = {a, b};
    for (int i = 0; i < 2; i++)
        OK(optc_set_grad(s[i]->b, k, has ? (void *)(uintptr_t)s[i]->g[k] : NULL,
                         has ? s[i]->n[k] : 0));
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

START_TEST(skips_and_changes)
{
    SHARED();
    static const float skip_at[] = {0, 0, 1, 0, 0, 0, NAN, 0, 0, 1, 1, 0, 0, 0, 1, 0, 0};
    Side a, b;
    optc_checkpoint later = {0};
    open_bases(&a, &b, _i, false);
    for (int step = 1; step <= 48; step++) {
        float skips = skip_at[step * 7 % (sizeof skip_at / sizeof *skip_at)];
        switch (step) {
        case 6: rate_both(&a, &b, 1, 0.03); break;
        case 9: later = save_side(&b); break;
        case 15: set_both(&a, &b, -1, 3); break;
        case 19: give_both(&a, &b, 2, false); break;
        case 24: give_both(&a, &b, 2, true); break;
        case 27: load_both(&a, &b, &later); break;
        case 30: set_both(&a, &b, 3, 2); break;
        case 33: turn_both(&a, &b, skips); break;
        case 34: turn_both(&a, &b, 1); break;
        case 36: OK(optc_set_guard(a.b, NULL, OPTC_F32)); break;
        case 38: OK(optc_set_guard(a.b, guard, OPTC_F32)); break;
        case 40: rate_both(&a, &b, -1, 0.05); break;
        case 44: set_both(&a, &b, -1, 0); break;
        default: break;
        }
        guarded_step(&a, &b, step, a.b->guard.from ? skips : 0);
    }
    free(later.memory);
    close_bases(&a, &b);
}
END_TEST

/* Nothing runs before the host waits for it: the emulated GPU is late. The guards of all steps are
 * on the device. */
START_TEST(skips_late)
{
    SHARED();
    enum { STEPS_OF = 26 };
    int (*late)(int) = find_late();
    CUstream st;
    Side a, b;
    float skip[STEPS_OF + 1];
    open_bases(&a, &b, _i / 2, false);
    float *all = device_take(sizeof skip);
    for (int step = 0; step <= STEPS_OF; step++)
        skip[step] = step % 5 == 3 || step % 7 == 4;
    device_put(all, skip, sizeof skip);
    ck_assert(!d->cuStreamCreate(&st, 1));
    OK(optc_set_stream(a.b, st));
    set_grads(&a, 1);
    set_grads(&b, 1);
    if (late)
        late(1 + _i % 2);
    for (int step = 1; step <= STEPS_OF; step++) {
        OK(optc_set_guard(a.b, all + step, OPTC_F32));
        OK(optc_step(a.b));
    }
    OK(optc_sync(a.b));
    if (late)
        late(0);
    for (int step = 1; step <= STEPS_OF; step++)
        if (skip[step] == 0)
            OK(optc_step(b.b));
    same_sides(&a, &b, STEPS_OF);
    OK(optc_set_stream(a.b, NULL));
    close_bases(&a, &b);
    d->cuStreamDestroy_v2(st);
    device_give(all);
}
END_TEST

/* Another stream of the program is captured during each call, in the mode that ends its capture if
 * memory is freed. */
START_TEST(skips_beside)
{
    SHARED();
    CUstream other;
    CUgraph graph;
    Side a, b;
    ck_assert(!d->cuStreamCreate(&other, 1));
    open_bases(&a, &b, _i, _i == 1);
    for (int step = 1; step <= 16; step++) {
        const bool guarded = step > 3 && step != 12, skips = guarded && step % 5 == 0;
        put_guard(skips);
        set_grads(&a, step);
        set_grads(&b, step);
        if (step == 8 || step == 11)
            give_both(&a, &b, 2, step == 11);
        ck_assert(!d->cuStreamBeginCapture_v2(other, 0));
        OK(optc_set_guard(a.b, guarded ? guard : NULL, OPTC_F32));
        OK(optc_step(a.b));
        ck_assert_msg(!d->cuStreamEndCapture(other, &graph),
                      "step %d ended the capture of another stream", step);
        d->cuGraphDestroy(graph);
        if (!skips)
            OK(optc_step(b.b));
        same_sides(&a, &b, step);
    }
    close_bases(&a, &b);
    d->cuStreamDestroy_v2(other);
}
END_TEST

/* Under MPS, bodies of conditional nodes cannot contain cooperative launches: a captured step
 * computes each matrix by one block, with the same bits. The host reads the guard, since that is
 * slow. The emulated driver refuses such a launch; a real GPU that is not shared computes by one
 * block here too. */
START_TEST(shared_device)
{
    SHARED();
    CUstream st;
    CUgraph graph;
    CUgraphExec exec;
    Side a, b;
    setenv("EMU_MPS", "1", 1);
    side_method = EIGEN_DIVIDED;
    open_kept(&a, &b, bases[_i]);
    unsetenv("EMU_MPS");
    ck_assert(!getenv("EMU_DIR") || !a.e->gpu->bodies_cooperate);
    a.e->gpu->bodies_cooperate = b.e->gpu->bodies_cooperate = false;
    bind_groups(&a);
    bind_groups(&b);
    side_method = EIGEN_BY_SIZE;
    ck_assert(!a.b->conditional);
    guard = device_take(sizeof *guard);
    OK(optc_set_guard(a.b, guard, OPTC_F32));
    for (int step = 1; step <= 3; step++)
        guarded_step(&a, &b, step, step == 2);
    OK(optc_set_guard(a.b, NULL, OPTC_F32));
    guarded_step(&a, &b, 4, 0);
    ck_assert(!d->cuStreamCreate(&st, 1));
    OK(optc_sync(a.b));
    OK(optc_set_stream(a.b, st));
    setenv("EMU_MPS", "1", 1);
    ck_assert(!d->cuStreamBeginCapture_v2(st, 0));
    OK(optc_step(a.b));
    ck_assert(!d->cuStreamEndCapture(st, &graph) &&
              !d->cuGraphInstantiateWithFlags(&exec, graph, 0));
    unsetenv("EMU_MPS");
    /* eigenvectors of step 12, or of slots */
    for (int step = 5; step <= 14; step++) {
        set_grads(&a, step);
        set_grads(&b, step);
        ck_assert(!d->cuGraphLaunch(exec, st) && !d->cuStreamSynchronize(st));
        OK(optc_step(b.b));
        same_sides(&a, &b, step);
    }
    d->cuGraphExecDestroy(exec);
    d->cuGraphDestroy(graph);
    OK(optc_set_stream(a.b, NULL));
    close_bases(&a, &b);
    d->cuStreamDestroy_v2(st);
}
END_TEST

void add_guarded_eigen(TCase *t)
{
    tcase_add_loop_test(t, shared_device, 0, BASES_RULES);
    tcase_add_loop_test(t, skipped_steps, 0, 2 * BASES_RULES);
    tcase_add_loop_test(t, skipped_replays, 0, 2 * BASES_RULES);
    tcase_add_loop_test(t, skips_and_changes, 0, BASES_RULES);
    tcase_add_loop_test(t, skips_beside, 0, BASES_RULES);
    tcase_add_loop_test(t, skips_late, 0, 2 * BASES_RULES);
}
