/* Stages that share one function. This test computes a hash of a stage's work from its loads to its
 * stores: stages of one function must have equal hashes, and stages with equal hashes must share a
 * function. (gen/plan/merge_stages.c compares two stages at a time, from the results back.) */
#include "runtime/library/rule/spec_find.h"
#include "gen/gen.h"
#include "tests/harness/help.h"
#include "optc.h"
#include "tests/harness/suites.h"

#include <stdlib.h>
#include <string.h>

#define COUNT(a) ((int)(sizeof(a) / sizeof *(a)))

static uint64_t mixed(uint64_t h, uint64_t x) { return hash64(h, &x, sizeof x); }

/* An array: its properties, and its number among the stage's arrays. */
static uint64_t of_array(const Plan *p, const int *met, int n, Access a)
{
    const Mem *m = &p->mem[a.mem];
    int nth = 0;
    while (nth < n && met[nth] != a.mem)
        nth++;
    const uint64_t x[] = {(uint64_t)m->kind, (uint64_t)m->dom, (uint64_t)m->from, (uint64_t)m->by,
                          (uint64_t)m->type, (uint64_t)nth,    a.transposed};
    return hash64(5, x, sizeof x);
}

static uint64_t of_node(const Node *n)
{
    uint64_t imm;
    memcpy(&imm, &n->imm, sizeof imm);
    const uint64_t x[] = {n->op, n->dom, n->ty, n->from, (uint64_t)n->sym, imm};
    return hash64(7, x, sizeof x);
}

static uint64_t of_value(const Graph *g, const uint64_t *known, Ref r)
{
    return known[r] ? known[r] : of_node(&g->n[r]);
}

static uint64_t of_stage(const Plan *p, const Graph *g, const Stage *s)
{
    uint64_t *known = calloc((size_t)g->len + 1, sizeof *known),
        h = mixed(3, (uint64_t)s->kind * 4 + (uint64_t)(s->time % 2) * 2 + s->half);
    int *met = calloc((size_t)(s->nload + s->nfin + s->nstore + s->nfold) + 1, sizeof *met), n = 0;
    const Access *const list[] = {s->load, s->fin, s->store, s->fold};
    const int len[] = {s->nload, s->nfin, s->nstore, s->nfold};
    for (int k = 0; k < 4; k++)
        for (int i = 0; i < len[k]; i++)
            met[n++] = list[k][i].mem;
    for (int i = 0; i < s->nload; i++)
        h = mixed(h, known[s->load[i].val] = mixed(of_array(p, met, n, s->load[i]), (uint64_t)i));
    for (int i = 0; i < s->nfin; i++)
        h = mixed(h, known[s->fin[i].val] = mixed(of_array(p, met, n, s->fin[i]),
                                                  g->n[s->fin[i].val].op * 1000u + (uint64_t)i));
    for (int i = 0; i < s->nbody; i++) {
        const Node *x = &g->n[s->body[i]];
        uint64_t made = of_node(x);
        for (int k = 0; k < x->nargs; k++)
            made = mixed(made, of_value(g, known, x->arg[k]));
        known[s->body[i]] = made;
    }
    for (int i = 0; i < s->nstore; i++)
        h = mixed(mixed(h, of_array(p, met, n, s->store[i])), of_value(g, known, s->store[i].val));
    for (int i = 0; i < s->nfold; i++) {
        const Node *x = &g->n[s->fold[i].val];
        h = mixed(mixed(h, of_array(p, met, n, s->fold[i])),
                  of_value(g, known, x->arg[is_global(x) ? s->variant : 0]) + x->op);
    }
    free(known);
    free(met);
    return h;
}

/* Compares all pairs of stages of an entry, across phases. Returns the number of stages without
 * their own function. */
static int look_through(const Plan *p, const PlanEntry *en)
{
    typedef struct { const Stage *s; uint64_t h; } One;
    One *v = calloc((size_t)p->nstage + 1, sizeof *v);
    int n = 0, others = 0;
    for (int m = 0; m < en->nphase; m++)
        for (int i = 0; i < en->phase[m].nstage; i++)
            if (!is_called(en->phase[m].stage[i].kind))
                v[n++] = (One){&en->phase[m].stage[i],
                               of_stage(p, en->phase[m].g, &en->phase[m].stage[i])};
    for (int i = 0; i < n; i++) {
        bool shared = false;
        for (int k = 0; k < n; k++) {
            ck_assert_msg((v[i].s->fn == v[k].s->fn) == (v[i].h == v[k].h),
                          "%s: %s and %s, numbers %d and %d", p->rule->name,
                          stage_info[v[i].s->kind].name, stage_info[v[k].s->kind].name, v[i].s->fn,
                          v[k].s->fn);
            shared = shared || (k != i && v[i].s->fn == v[k].s->fn);
        }
        ck_assert_int_eq(v[i].s->shared, shared);
        others += plan_at(p, v[i].s->fn).stage != v[i].s;
    }
    free(v);
    return others;
}

static int look_at_plan(const Plan *p)
{
    int others = 0;
    for (int e = 0; e < p->nentry; e++)
        others += look_through(p, &p->entry[e]);
    ck_assert_int_eq(p->nstage - others, p->nfn);
    return others;
}

/* Rules without products have one function per stage. */
START_TEST(library_shares)
{
    const char *name = optc_library_name(_i);
    if (!strncmp(name, "wrappers/", 9))
        return;
    for (int gpu = 0; gpu < 2; gpu++) {
        Arena arena = {0};
        Source s;
        Gen g = {0};
        GenOptions o = {.find = find_wrapper, .target = gpu ? &target_cuda : &target_c};
        ck_assert_msg(find_spec(NULL, name, &arena, &s, &g.diag) && gen_compile(&g, s, &o), "%s",
                      g.diag.text);
        if (plan_calls(g.plan))
            look_at_plan(g.plan);
        else
            ck_assert_int_eq(g.plan->nfn, g.plan->nstage);
        if (!strcmp(name, "muon"))
            ck_assert_msg(g.plan->nstage > 20 && g.plan->nfn < 10, "%d functions for %d stages",
                          g.plan->nfn, g.plan->nstage);
        gen_free(&g);
        arena_free(&arena);
    }
}
END_TEST

/* others: number of stages that use another stage's function */
typedef struct { const char *head, *body; int others; const char *what; } ProductProgram;
static const ProductProgram made[] = {
    {"", "for i = 1, 4 do A = max(mm(A, A), B) end", 3, "the same four times"},
    {"", "for i = 1, 4 do A = max(mm(A, A), i * B) end", 0, "other constants"},
    {"", "A = max(mm(A, A), lr * B) A = max(mm(A, A), mu * B)", 0, "other hyperparameters"},
    {"", "A = max(mm(A, A), B) A = min(mm(A, A), B)", 0, "other operations"},
    {"", "A = max(mm(A, A), B * B - B) A = max(mm(A, A), B - B * B)", 0,
     "operands the other way round"},
    {"", "A = max(mm(A, A), A) A = max(mm(A, A), A)", 1, "the same, of other arrays"},
    {"", "A = mm(A, A) * random('rows') A = mm(A, A) * random('rows')", 0,
     "draws are of streams of their own"},
    {"state = { s = zeros 'rows', u = zeros 'rows' },",
     "s = max(mm(A, s), B) A = mm(s, A) u = max(mm(A, u), B)", 1, "two states"},
    {"state = { s = zeros 'rows' },", "s = max(mm(A, s), B) A = mm(s, A) A = max(mm(A, A), B)", 0,
     "a state, and what is none"},
    {"state = { s = zeros 'rows' },", "A = max(mm(A, A), B) every(3, function() s = mm(A, s) end)",
     3, "the stages of two phases"},
    {"",
     "A = max(mm(A, A), B) local C = gram(g.T) C = max(mm(C, C), gram(g.T)) A = A + mm(mm(g, C), "
     "g.T)",
     0, "rows, and columns"},
    {"", "x = max(mm(A, g), g) x = max(mm(A, x), g)", 0,
     "passes over the elements go forth and back"},
    {"", "x = max(mm(A, g), g) x = max(mm(A, x), g) x = max(mm(A, x), g)", 1,
     "every second one goes forth"},
};

START_TEST(made_share)
{
    const ProductProgram *x = &made[_i];
    char *text = format("return optimizer { name = 'made', %s hyper = { lr = 0.1, mu = 0.2 }, "
                        "matrix = function() local B, x = "
                        "gram(g), g local A = B %s p = p - lr * mm(A, x) end, step = function() p "
                        "= p - lr * g end }",
                        x->head, x->body);
    for (int gpu = 0; gpu < 2; gpu++) {
        Gen g = {0};
        ck_assert_msg(gen_compile(&g, (Source){"made", text, strlen(text)},
                                  &(GenOptions){.find = find_wrapper,
                                                .target = gpu ? &target_cuda : &target_c}),
                      "%s: %s", x->what, g.diag.text);
        int others = look_at_plan(g.plan);
        Buf b = {0};
        plan_print(&b, g.plan, false);
        ck_assert_msg(others == x->others, "%s: %d stages have another's function:\n%s", x->what,
                      others, b.s);
        buf_free(&b);
        gen_free(&g);
    }
    free(text);
}
END_TEST

/* The verifier refuses a plan with another stage's function, or with an array of a different
 * kind. */
START_TEST(damage_is_seen)
{
    static const char text[] = "return optimizer { name = 'x', matrix = function() local A, B = "
                               "gram(g), gram(g) for i = 1, 3 do A = "
                               "max(mm(A, A), B) end for i = 1, 3 do A = min(mm(A, A), B) end p = "
                               "p - mm(A, g) end, step = function() p = p - "
                               "g end }";
    Gen g = {0};
    ck_assert_msg(
        gen_compile(&g, (Source){"made", text, strlen(text)}, &(GenOptions){.find = find_wrapper}),
        "%s", g.diag.text);
    Phase *ph = &g.plan->entry[0].phase[0];
    int seen = 0;
    for (int i = 0; i < ph->nstage; i++)
        for (int k = 0; k < ph->nstage; k++) {
            Stage *s = &ph->stage[i];
            int was = s->fn, other = ph->stage[k].fn;
            if (!s->shared || !ph->stage[k].shared || was == other ||
                plan_at(g.plan, was).stage == s)
                continue;
            Diag d = {0};
            s->fn = other;
            ck_assert(!plan_verify(g.plan, &d));
            ck_assert_msg(strstr(d.text, "its function is of a stage that differs") != NULL, "%s",
                          d.text);
            diag_free(&d);
            s->fn = was;
            seen++;
        }
    ck_assert_int_gt(seen, 3);
    ck_assert(plan_verify(g.plan, &g.diag));
    gen_free(&g);
}
END_TEST

Suite *merge_stages_suite(void)
{
    Suite *s = suite_create("merge_stages");
    TCase *t = tcase_create("merge_stages");
    tcase_add_loop_test(t, library_shares, 0, optc_library_size());
    tcase_add_loop_test(t, made_share, 0, COUNT(made));
    tcase_add_test(t, damage_is_seen);
    suite_add_tcase(s, t);
    return s;
}
