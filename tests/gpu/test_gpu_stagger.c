/* every(k, { stagger = true }, …) on the GPU against the CPU, with cuBLAS and with optc's products:
 * single steps, tensors that are excluded and come back, and lists and graphs that are kept. */
#include "tests/gpu/stagger_side.h"

#include "runtime/core/matrix/gpu_calls.h"

#include <stdlib.h>

START_TEST(staggered_steps)
{
    SHARED();
    Side c, g;
    int rule = _i / 2, small = getenv("OPTC_TEST_SMALL") != NULL;
    if ((small && _i % 2 != rule % 2) || thinned(rule))
        /* the emulated GPU takes seconds for each */
        return;
    use_cublas(_i % 2 == 0);
    open_both(&c, &g, rule);
    for (int step = 1; step <= (small ? 6 : 9); step++) {
        set_grads(&c, step);
        set_grads(&g, step);
        if (step == 3 || step == 5) {
            OK(optc_set_grad(c.b, 6, step == 3 ? NULL : c.hg[6], 0));
            OK(optc_set_grad(g.b, 6, step == 3 ? NULL : (void *)(uintptr_t)g.g[6], 0));
        }
        OK(optc_step(c.b));
        OK(optc_step(g.b));
        fetch_params(&g);
        compare_within(stagger_rules[rule], &c, &g, rule < STAGGER_RULES - 1 ? 1e-7 : 0);
    }
    close_both(&c, &g);
}
END_TEST

/* Counts the matrices that the second rule's first staggered block steps at t, by their slots and
 * by the calls' lists. */
static int64_t having(const Side *g, int t)
{
    int64_t n = 0;
    int slot = 0;
    for (int k = 0; k < NSHAPES; k++)
        for (int64_t block = 0; optc_get_slot(g->b, k, block, 4, &slot) == OPTC_OK; block++)
            n += t == 1 || slot == t % 4;
    return n;
}

static int64_t gone_over(const Side *g, unsigned turns)
{
    const GpuCalls *x = g->b->gpu->calls;
    int64_t n = 0;
    for (int i = 0; i < x->ngroup; i++)
        n += x->group[i].stagger == turns ? x->group[i].now : 0;
    return n;
}

START_TEST(only_scheduled_tensors)
{
    SHARED();
    Side g;
    use_shapes(stagger_shapes);
    open_side(&g, "cuda",
              (optc_rule_options){.text = stagger_rules[1], .param = OPTC_F64, .products = "f64"},
              0);
    for (int t = 1; t <= 6; t++) {
        set_grads(&g, t);
        OK(optc_step(g.b));
        ck_assert_msg(gone_over(&g, 1) == having(&g, t) && having(&g, t) > 0,
                      "step %d: products of %d matrices, and %d have their turn", t,
                      (int)gone_over(&g, 1), (int)having(&g, t));
    }
    close_side(&g, 0);
}
END_TEST

/* ---- lists and graphs that are kept ---- */
/* From the second cycle of slots on a step is one graph. It sends no lists, and keeps doing so if a
 * gradient moves. A change of participation drops all lists, and they are built again. */
START_TEST(kept_lists)
{
    SHARED();
    static const struct { int rule, cycle; } of[] = {{2, 3}, {3, 15}};
    int cycle = of[_i].cycle, step = 1;
    Side a, b;
    open_kept(&a, &b, stagger_rules[of[_i].rule]);
    step_kept(&a, &b, step);
    ck_assert_msg(!graphs && launches && !list_of(&a, LIST_SLOTS),
                  "the first step runs a graph, or keeps its list");
    ck_assert_msg(held_graphs(&a) > (int64_t)list_of(&a, LIST_ONCE)->bytes,
                  "the first step's list is not counted");
    for (step = 2; step <= cycle + 1; step++) {
        int64_t before = held_graphs(&a) - (step == 2 ? list_of(&a, LIST_ONCE)->held : 0);
        step_kept(&a, &b, step);
        ck_assert_msg(graphs == 1 && held_graphs(&a) > before && !list_of(&a, LIST_ONCE),
                      "step %d: %d graphs, %d bytes", step, graphs, (int)held_graphs(&a));
    }
    int64_t all = held_graphs(&a);
    for (; step <= 2 * cycle + 1; step++) {
        step_kept(&a, &b, step);
        ck_assert_msg(graphs == 1 && !uploads && !launches && held_graphs(&a) == all,
                      "step %d: %d graphs, %d uploads, %d launches, %d bytes of %d", step, graphs,
                      uploads, launches, (int)held_graphs(&a), (int)all);
    }
    ck_assert(all <= a.e->workspace / 4);
    /* the gradient of another tensor of the same shape */
    for (int k = 0; k < 2; k++, step++) {
        CUdeviceptr other = a.g[k ? 3 : 7];
        OK(optc_set_grad(a.b, 3, (void *)(uintptr_t)other, 0));
        OK(optc_set_grad(b.b, 3, (void *)(uintptr_t)b.g[k ? 3 : 7], 0));
        step_kept(&a, &b, step);
        ck_assert_msg(graphs == 1 && uploads == 1 && launches <= 2,
                      "a moved gradient: %d graphs, %d uploads, %d "
                      "launches",
                      graphs, uploads, launches);
    }
    for (int k = 0; k < 2; k++) {
        OK(optc_set_grad(a.b, 6, k ? (void *)(uintptr_t)a.g[6] : NULL, 0));
        OK(optc_set_grad(b.b, 6, k ? (void *)(uintptr_t)b.g[6] : NULL, 0));
        step_kept(&a, &b, step++);
        ck_assert_msg(!graphs && !list_of(&a, LIST_SLOTS), "a list of other tensors is kept");
        for (int i = 0; i < cycle; i++)
            step_kept(&a, &b, step++);
        step_kept(&a, &b, step++);
        ck_assert_msg(graphs == 1 && !uploads && !launches, "the lists are not built again");
    }
    close_side(&a, 0);
    close_side(&b, 0);
}
END_TEST

/* No more is kept than the limit allows. A list in use stays, one that a whole cycle did not use
 * makes room. */
START_TEST(bounded_lists)
{
    SHARED();
    Side a, b;
    open_kept(&a, &b, stagger_rules[3]);
    int64_t usual = a.e->workspace;
    step_kept(&a, &b, 1);
    step_kept(&a, &b, 2);
    int64_t one = held_graphs(&a);
    const LaunchList *first = list_of(&a, LIST_SLOTS);
    a.e->workspace = 4 * (one + one / 2);
    for (int step = 3; step <= 18; step++) {
        step_kept(&a, &b, step);
        int64_t last = list_of(&a, LIST_ONCE) ? list_of(&a, LIST_ONCE)->held : 0;
        ck_assert_msg(held_graphs(&a) == one + last && graphs == (step == 17) &&
                          (step == 17 ? !uploads : uploads == 1),
                      "step %d: %d graphs, %d uploads, %d bytes", step, graphs, uploads,
                      (int)held_graphs(&a));
    }
    int kept = 0;
    for (const LaunchList *x = a.b->gpu->lists; x; x = x->next)
        kept += x->key.use == LIST_SLOTS;
    ck_assert(list_of(&a, LIST_SLOTS) == first && kept == 1);
    for (int k = 0; k < 2; k++)
        OK(optc_set_t((k ? &b : &a)->b, -1, 1000));
    step_kept(&a, &b, 1001);
    ck_assert_msg(graphs == 1 && held_graphs(&a) <= one + one / 2 &&
                      list_of(&a, LIST_SLOTS)->used == 1000,
                  "an old list does not make room");
    a.e->workspace = usual;
    close_side(&a, 0);
    close_side(&b, 0);
}
END_TEST

/* Steps with eigenvectors and steps without them are one graph each. */
static const char bases[] = "return optimizer { name = 'bases', hyper = { lr = 0.125 }, state = { "
                            "L = zeros 'rows', X = eye(1, 'rows') },\n"
                            " step = function() p = p - lr * g end,\n"
                            " matrix = function() L = 0.5 * L + gram(g)  every(9, { stagger = true "
                            "}, function() X = select(2, eigh(L, { last ="
                            " X })) end)\n"
                            "  p = p - lr * mm(X.T, g) end }";

START_TEST(eigen_lists)
{
    SHARED();
    Side a, b;
    int with = 0, without = 0, slot;
    side_method = _i ? EIGEN_DIVIDED : EIGEN_F64;
    open_kept(&a, &b, bases);
    for (int step = 1; step <= 19; step++) {
        bool any = false;
        for (int k = 0; k < NSHAPES; k++)
            any = any || (optc_get_slot(a.b, k, -1, 9, &slot) == OPTC_OK && slot == step % 9);
        step_kept(&a, &b, step);
        if (step < 11)
            continue;
        ck_assert_msg(!uploads && graphs == 1 && !launches,
                      "step %d%s: %d graphs, %d uploads, %d launches", step,
                      any ? " with eigenvectors" : "", graphs, uploads, launches);
        with += any, without += !any;
    }
    ck_assert(with && without);
    side_method = EIGEN_BY_SIZE;
    close_side(&a, 0);
    close_side(&b, 0);
}
END_TEST

void add_stagger(TCase *t)
{
    tcase_add_loop_test(t, staggered_steps, 0, 2 * STAGGER_RULES - 1);
    tcase_add_test(t, only_scheduled_tensors);
    tcase_add_loop_test(t, kept_lists, 0, 2);
    tcase_add_test(t, bounded_lists);
    tcase_add_loop_test(t, eigen_lists, 0, 2);
}
