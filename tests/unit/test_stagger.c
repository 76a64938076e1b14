/* every(k, { stagger = true }, …): each tensor runs at its own slot of k steps. The reference is
 * the same rule with every(k, { offset = slot }, …) on one tensor alone, without slots. The
 * assignment of slots is checked against an independent one. Blocks, folds over tensors and
 * wrappers are compared with the evaluator. */
#include "tests/harness/product_program.h"
#include "tests/harness/suites.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- rules: %1$s and %2$s stand for the options of two blocks of every() ---- */
static const char *const rules[] = {
    /* roots of one side, in states */
    "return optimizer { name = 'x', hyper = { lr = 0.1, b = 0.9 }, state = { L = eye(0.1, 'rows'), "
    "X = eye(1, 'rows') "
    "}, products = 'f64',\n"
    "  matrix = function() L = b * L + (1 - b) * gram(g)  every(%1$s, function() X = power(L, "
    "-1/4, { ridge = 1e-2 }) "
    "end)\n"
    "    p = p - lr * mm(X, g) end,\n"
    "  step = function() p = p - lr * g end }",
    /* two sides, one with products only; a state of each kind, and p itself */
    "return optimizer { name = 'x', hyper = { lr = 0.1 }, state = { L = zeros 'rows', X = zeros "
    "'rows', Y = zeros "
    "'cols', m = zeros, r = zeros 'row', s = zeros 'tensor' }, products = 'f64',\n"
    "  matrix = function() L = 0.5 * L + gram(g)\n"
    "    every(%1$s, function() X = chol(L + eye(1, 'rows'))  s = s + norm(X) + t  r = "
    "rowsum(abs(g)) + s  p = p - "
    "0.125 * lr * r * p end)\n"
    "    every(%2$s, function() Y = 0.5 * Y + gram(g.T)  m = mm(g, Y) end)\n"
    "    p = p - lr * mm(X.T, g) / (1 + s) - lr * m end,\n"
    "  step = function() every(%2$s, function() m = m + g end) p = p - lr * (g + m) end }",
    /* no products: the staggered work is elementwise */
    ("return optimizer { name = 'x', hyper = { lr = 0.1 }, state = { m = zeros, v = zeros 'row', n "
     "= zeros 'tensor' "
     "},\n"
     "  step = function() every(%1$s, function() v = v + rowsum(g * g)  n = n + 1  m = m + v * g "
     "end) every(%2$s, "
     "function() p = p - lr * m end) p = p - lr * g / (1 + n) end }"),
};
enum { NRULES = sizeof rules / sizeof *rules, STEPS = 14, NTENSORS = 9 };
static const TestShape tensor[NTENSORS] = {{2, {6, 5}}, {1, {7}},    {2, {5, 12}},
                                           {2, {1, 4}}, {2, {4, 1}}, {3, {2, 4, 6}},
                                           {2, {0, 3}}, {2, {6, 5}}, {2, {9, 4}}};

static void fill_grads(Fixture *f, const int *which, int step)
{
    for (int i = 0; i < f->n; i++)
        for (int64_t x = 0; x < f->count[i]; x++)
            type_store(f->type, f->g[i], x, ref_value(which ? which[i] : i, step, x));
}

static void fill_params(Fixture *f, const int *which)
{
    for (int i = 0; i < f->n; i++)
        for (int64_t x = 0; x < f->count[i]; x++)
            type_store(f->type, f->p[i], x, ref_value(which ? which[i] : i, 0, x));
}

static void open_rule(Fixture *f, const char *text, int threads, const char *with,
                      const TestShape *shape, int n)
{
    setenv("OPTC_CFLAGS", "-O1", 0);
    use_blas(false);
    fix_open(f, &(optc_engine_options){.threads = threads, .cache_dir = getenv("OPTC_TEST_CACHE")},
             &(optc_rule_options){.text = text, .with = with, .param = OPTC_F64}, shape, n, NULL,
             0);
}

static void same_tensor(const Fixture *all, int i, const Fixture *one, int step)
{
    optc_state_info info;
    ck_assert_msg(!memcmp(all->p[i], one->p[0], (size_t)all->count[i] * 8),
                  "step %d: tensor %d is not what it is alone", step, i);
    for (int k = 0; k < optc_rule_states(all->rule); k++) {
        optc_state_view x, y;
        int has;
        OK(optc_rule_state(all->rule, k, &info));
        OK(optc_has_state(all->binding, i, info.name, &has));
        if (!has)
            continue;
        OK(optc_state(all->binding, i, info.name, &x));
        OK(optc_state(one->binding, 0, info.name, &y));
        ck_assert_msg(!x.count || !memcmp(x.data, y.data, (size_t)x.count * 8),
                      "step %d: state '%s' of tensor %d is not what it is alone", step, info.name,
                      i);
    }
}

static int slot_of(const optc_binding *b, int i, int every)
{
    int slot = 0;
    optc_status s = every > 1 ? optc_get_slot(b, i, -1, every, &slot) : OPTC_OK;
    bool none = s == OPTC_ERROR_ABSENT ||
                (s == OPTC_ERROR_ARGUMENT && strstr(optc_message(), "has no every"));
    ck_assert_msg(s == OPTC_OK || none, "%s", optc_message());
    return slot;
}

/* periods: 1, fewer and more than tensors, one that divides the other */
static const struct { int k[2]; bool first; } periods[] =
    {{{3, 4}, true}, {{1, 2}, false}, {{12, 3}, true}, {{2, 30}, false}};
enum { NPERIODS = 4 };

START_TEST(as_alone)
{
    int k0 = periods[_i % NPERIODS].k[0], k1 = periods[_i % NPERIODS].k[1];
    if (_i / NPERIODS != 1 && _i % NPERIODS)
        /* the rule with everything runs with all periods */
        return;
    const char *text = rules[_i / NPERIODS],
               *first = periods[_i % NPERIODS].first ? ", first = true" : "";
    char *turns[2] = {format("%d, { stagger = true%s }", k0, first),
                      format("%d, { stagger = true }", k1)},
         *all_text = format(text, turns[0], turns[1]);
    Fixture all, one[NTENSORS];
    open_rule(&all, all_text, 1 + _i % 3, "", tensor, NTENSORS);
    fill_params(&all, NULL);
    for (int i = 0; i < NTENSORS; i++) {
        char *own[2] = {format("%d, { offset = %d%s }", k0, slot_of(all.binding, i, k0), first),
                        format("%d, { offset = %d }", k1, slot_of(all.binding, i, k1))};
        char *own_text = format(text, own[0], own[1]);
        open_rule(&one[i], own_text, 1, "", &tensor[i], 1);
        fill_params(&one[i], &i);
        free(own[0]), free(own[1]), free(own_text);
    }
    for (int step = 1; step <= STEPS; step++) {
        fill_grads(&all, NULL, step);
        OK(optc_step(all.binding));
        for (int i = 0; i < NTENSORS; i++) {
            fill_grads(&one[i], &i, step);
            OK(optc_step(one[i].binding));
            same_tensor(&all, i, &one[i], step);
        }
    }
    for (int i = 0; i < NTENSORS; i++)
        fix_close(&one[i]);
    fix_close(&all);
    free(turns[0]), free(turns[1]), free(all_text);
}
END_TEST

/* ---- blocks, folds over tensors, wrappers ---- */
static const struct { const char *with, *text;
} whole[] = {
    {"",
     "return optimizer { name = 'x', block = 4, hyper = { lr = 0.1 }, state = { L = zeros 'rows', "
     "X = eye(1, "
     "'rows'), R = zeros 'cols', d = zeros 'block', s = zeros 'tensor', m = zeros }, products = "
     "'f64',\n"
     "  matrix = function() L = 0.5 * L + gram(g)  R = lerp(R, gram(g.T), 0.5)\n"
     "    every(3, { stagger = true, first = true }, function() X = power(L, -0.5, { ridge = 0.5 "
     "})  d = d + "
     "trace(X) end)\n"
     "    every(3, { stagger = true, first = true }, function() s = s + sum(d)  m = mm(X, g) end)\n"
     "    every(2, { stagger = true }, function() R = R + diag(diag(mm(R, R))) / (1 + sum(R * R)) "
     "end)\n"
     "    p = p - lr * mm(mm(X, g), R) / (1 + s) - lr * m end,\n"
     "  step = function() p = p - lr * g end }"},
    {"clip_norm(0.5)",
     "return optimizer { name = 'x', hyper = { lr = 0.1 }, state = { L = zeros 'rows', X = zeros "
     "'rows', a = zeros "
     "'tensor', n = zeros 'group' }, values = { most = 'group' }, products = 'f64',\n"
     "  matrix = function() L = 0.5 * L + gram(g)  every(3, { stagger = true, first = true }, "
     "function() X = "
     "power(L, -0.5, { ridge = 0.5 })  a = global.sum(mean(X * X)) + a end)\n"
     "    p = p - lr * a * p  n = n + global.max(max(abs(X)))  most = n  p = p - lr * mm(X, g) / "
     "(1 + n) end,\n"
     "  step = function() p = p - lr * g / (1 + global.sum(mean(g * g)))  n = n + "
     "global.max(max(abs(g)))  most = "
     "n end }"},
    {"ema,lookahead(3)",
     "return optimizer { name = 'x', hyper = { lr = 0.1 }, state = { L = zeros 'rows', X = zeros "
     "'rows' }, products = "
     "'f64',\n"
     "  matrix = function() L = 0.5 * L + gram(g)  every(4, { stagger = true, first = true }, "
     "function() X = "
     "power(L, -0.5, { ridge = 0.5 }) end)\n"
     "    every(2, function() L = L + eye(0.1, 'rows') end)  p = p - lr * mm(X, g) end,\n"
     "  step = function() p = p - lr * g end }"},
};
enum { NWHOLE = sizeof whole / sizeof *whole };

START_TEST(in_bounds)
{
    uint64_t hash[2];
    for (int threads = 1; threads <= 3; threads += 2) {
        Fixture f;
        open_rule(&f, whole[_i].text, threads, whole[_i].with, tensor, NTENSORS);
        for (int step = 1; step <= 9; step++) {
            fill_grads(&f, NULL, step);
            char *why = step_in_bounds(&f, "step");
            ck_assert_msg(!why, "rule %d, step %d: %s", _i, step, why);
        }
        hash[threads / 2] = fix_hash(&f);
        fix_close(&f);
    }
    ck_assert(hash[0] == hash[1]);
}
END_TEST

/* Staggered work is done only in a tensor's slot: that many roots at each step, and all at the
 * first. */
START_TEST(only_in_slot)
{
    Fixture f;
    open_rule(&f, whole[0].text, 1, "", tensor, NTENSORS);
    double most = 0;
    int64_t blocks = 0;
    for (int i = 0; i < NTENSORS; i++)
        for (int slot; optc_get_slot(f.binding, i, blocks, 3, &slot) == OPTC_OK; blocks++)
            ck_assert(slot >= 0 && slot < 3);
    for (int64_t t = 1; t <= 7; t++) {
        optc_bytes x;
        OK(optc_plan_bytes(f.binding, "step", t, &x));
        most = t == 1 ? x.written : most;
        ck_assert_msg(t == 1 || x.written < most, "step %d writes %g, the first %g", (int)t,
                      x.written, most);
    }
    fix_close(&f);
}
END_TEST

/* ---- dealt ---- */
/* Slots for rule 0: cost is 12 n^3 for a root plus the elements; the most expensive tensor first,
 * to the slot with the least work. Those of equal cost, which have one shape, follow into the same
 * slot up to 1.15 times its share. */
static void deal(const TestShape *s, int n, int k, int *slot, double *load)
{
    double cost[64], share = 0, last = -1;
    int same = -1;
    bool done[64] = {false};
    memset(load, 0, sizeof *load * (size_t)k);
    for (int i = 0; i < n; i++) {
        double all = 1;
        for (int d = 0; d < s[i].rank; d++)
            all *= (double)s[i].dim[d];
        slot[i] = -1;
        cost[i] = s[i].rank < 2
                      ? -1
                      : 12 * (double)(s[i].dim[0] * s[i].dim[0] * s[i].dim[0]) * (all > 0) + all;
    }
    for (int i = 0; i < n; i++)
        share += cost[i] > 0 ? cost[i] / k : 0;
    for (int turn = 0; turn < n; turn++) {
        int best = -1, least = 0;
        for (int i = 0; i < n; i++)
            if (!done[i] && cost[i] >= 0 && (best < 0 || cost[i] > cost[best]))
                best = i;
        if (best < 0)
            return;
        for (int j = 1; j < k; j++)
            least = load[j] < load[least] ? j : least;
        if (cost[best] == last && load[same] + last <= 1.15 * share)
            least = same;
        last = cost[best];
        same = least;
        done[best] = true;
        slot[best] = least;
        load[least] += cost[best];
    }
}

START_TEST(balanced)
{
    static const int every[] = {2, 7, 100, 3};
    enum { MOST = 12 };
    int k = every[_i], slot[64], n = MOST;
    double load[100], most = 0, least = 1e300;
    TestShape s[MOST];
    for (int i = 0; i < n; i++)
        s[i] = (TestShape){i % 5 == 3 ? 1 : 2, {_i == 3 ? 6 : 2 + (i * 7) % 9, i % 5 == 3 ? 0 : 3}};
    char *turns = format("%d, { stagger = true }", k), *text = format(rules[0], turns, "");
    Fixture f;
    open_rule(&f, text, 1, "", s, n);
    deal(s, n, k, slot, load);
    for (int i = 0; i < n; i++) {
        int got = -1;
        if (s[i].rank == 2)
            OK(optc_get_slot(f.binding, i, -1, k, &got));
        else
            FAILS(optc_get_slot(f.binding, i, -1, k, &got), OPTC_ERROR_ABSENT, "has no slot");
        ck_assert_msg(got == slot[i], "tensor %d has slot %d, not %d", i, got, slot[i]);
    }
    ck_assert_msg(_i != 3 || (slot[0] == slot[1] && slot[1] == slot[2] && slot[2] != slot[4]),
                  "matrices of one shape are in different slots");
    for (int j = 0; j < k; j++)
        most = load[j] > most ? load[j] : most, least = load[j] < least ? load[j] : least;
    ck_assert(most - least <= 12 * 10 * 10 * 10 + 30);
    FAILS(optc_get_slot(f.binding, 0, -1, k + 1, slot), OPTC_ERROR_ARGUMENT, "has no every");
    FAILS(optc_get_slot(f.binding, n, -1, k, slot), OPTC_ERROR_ARGUMENT, "no tensor");
    FAILS(optc_get_slot(f.binding, 0, 0, k, slot), OPTC_ERROR_ABSENT, "a block");
    ck_assert_int_eq(optc_rule_states(f.rule), 2);
    FAILS(optc_state_read(f.binding, 0, "slot_2", load, 1), OPTC_ERROR_ARGUMENT, "has no state");
    fix_close(&f);
    free(turns);
    free(text);
}
END_TEST

/* The time of eigenvectors grows more slowly than their operations: by those, four matrices of 520
 * rows would cost half of one of 1040 rows, and share a slot. */
START_TEST(balanced_eigenvectors)
{
    enum { N = 9, SLOTS = 4 };
    static const char text[] =
        "return optimizer { name = 'bases', state = { X = eye(1, 'rows') }, step = function() p "
        "= p - g end, matrix = function() every(4, { stagger = true }, function() X = select(2, "
        "eigh(gram(g), { last = X })) end)  p = p - mm(X, g) end }";
    TestShape s[N];
    int have[SLOTS] = {0};
    for (int i = 0; i < N; i++)
        s[i] = (TestShape){2, {i ? 520 : 1040, 1}};
    Fixture f;
    open_rule(&f, text, 1, "", s, N);
    for (int i = 0; i < N; i++)
        have[slot_of(f.binding, i, SLOTS)]++;
    ck_assert_msg(have[slot_of(f.binding, 0, SLOTS)] == 1, "the largest matrix shares its slot");
    for (int i = 0; i < SLOTS; i++)
        ck_assert_msg(have[i] >= 1 && have[i] <= 3, "slot %d has %d matrices", i, have[i]);
    fix_close(&f);
}
END_TEST

START_TEST(of_nothing)
{
    Fixture f;
    open_rule(&f, whole[0].text, 2, "", tensor, 0);
    for (int i = 0; i < 4; i++)
        OK(optc_step(f.binding));
    fix_close(&f);
}
END_TEST

/* ---- gone on with ---- */
/* A binding of the same tensors that takes over parameters, states and counts continues bit for
 * bit. */
START_TEST(resumed)
{
    Fixture a, b;
    optc_state_info info;
    open_rule(&a, whole[_i].text, 2, whole[_i].with, tensor, NTENSORS);
    open_rule(&b, whole[_i].text, 1, whole[_i].with, tensor, NTENSORS);
    for (int step = 1; step <= 12; step++) {
        fill_grads(&a, NULL, step);
        fill_grads(&b, NULL, step);
        OK(optc_step(a.binding));
        if (step > 5)
            OK(optc_step(b.binding));
        for (int i = 0; step == 5 && i < NTENSORS; i++) {
            memcpy(b.p[i], a.p[i], (size_t)a.count[i] * 8);
            for (int k = 0; k < optc_rule_states(a.rule); k++) {
                optc_state_view x, y;
                int has;
                OK(optc_rule_state(a.rule, k, &info));
                OK(optc_has_state(a.binding, strcmp(info.domain, "group") ? i : 0, info.name,
                                  &has));
                if (!has)
                    continue;
                OK(optc_state(a.binding, strcmp(info.domain, "group") ? i : 0, info.name, &x));
                OK(optc_state(b.binding, strcmp(info.domain, "group") ? i : 0, info.name, &y));
                if (x.count)
                    memcpy(y.data, x.data, (size_t)x.count * 8);
            }
        }
        if (step == 5)
            OK(optc_set_t(b.binding, -1, 5));
    }
    ck_assert(fix_hash(&a) == fix_hash(&b));
    fix_close(&a);
    fix_close(&b);
}
END_TEST

/* A tensor without a gradient misses its slot; the others do not. */
START_TEST(slot_missed)
{
    char *text = format(rules[0], "3, { stagger = true }", "");
    Fixture f;
    double was[81], is[81];
    open_rule(&f, text, 1, "", tensor, NTENSORS);
    int slot = slot_of(f.binding, 8, 3), other = slot_of(f.binding, 7, 3), turn = slot ? slot : 3;
    for (int step = 1; step <= turn + 3; step++) {
        fill_grads(&f, NULL, step);
        OK(optc_set_grad(f.binding, 8, step == turn ? NULL : f.g[8], 0));
        OK(optc_state_read(f.binding, 8, "X", was, 81));
        OK(optc_step(f.binding));
        OK(optc_state_read(f.binding, 8, "X", is, 81));
        ck_assert_msg(!memcmp(was, is, sizeof was) == (step != turn + 3), "step %d", step);
        OK(optc_state_read(f.binding, 7, "X", is, 36));
        ck_assert((is[0] != 1) == (step >= (other ? other : 3)));
    }
    fix_close(&f);
    free(text);
}
END_TEST

/* A NaN in one tensor stays there, also while others run in their slots. */
START_TEST(nan_stays)
{
    char *text = format(rules[0], "3, { stagger = true, first = true }", "");
    Fixture f;
    open_rule(&f, text, 2, "", tensor, NTENSORS);
    for (int step = 1; step <= 6; step++) {
        fill_grads(&f, NULL, step);
        type_store(f.type, f.g[2], 3, step == 2 ? NAN : 1);
        OK(optc_step(f.binding));
    }
    for (int i = 0; i < f.n; i++)
        for (int64_t x = 0; x < f.count[i]; x++)
            ck_assert(isnan(type_load(f.type, f.p[i], x)) == (i == 2));
    fix_close(&f);
    free(text);
}
END_TEST

/* Every allocation of binding fails once: an error, and no memory is leaked. */
static double room[1 << 14];
static void *one_alloc(void *context, size_t bytes, void *stream)
{
    (void)context, (void)stream;
    return bytes <= sizeof room ? (void *)(((uintptr_t)room + 63) / 64 * 64) : NULL;
}
static void no_release(void *context, void *p, size_t bytes, void *stream)
{
    (void)context, (void)p, (void)bytes, (void)stream;
}

START_TEST(memory_ends)
{
    static const optc_allocator one = {one_alloc, no_release, NULL};
    static double p[2][64], g[2][64];
    static const int64_t side[2] = {8, 8}, odd[2] = {5, 7};
    const optc_tensor t[2] = {{.param = p[0], .grad = g[0], .rank = 2, .shape = side},
                              {.param = p[1], .grad = g[1], .rank = 2, .shape = odd}};
    const optc_group group = {.tensors = t, .ntensors = 2};
    optc_engine *e;
    optc_rule *r;
    optc_binding *b;
    use_blas(false);
    OK(optc_open(&(optc_engine_options){.threads = 1,
                                        .cache_dir = getenv("OPTC_TEST_CACHE"),
                                        .allocator = &one},
                 &e));
    OK(optc_compile(e, &(optc_rule_options){.text = whole[0].text, .param = OPTC_F64}, &r));
    int n = 0, asked = 0;
    do {
        int held = memory_held();
        memory_fails(++n);
        optc_status s = optc_bind(r, &group, 1, &b);
        asked = memory_asked();
        memory_fails(0);
        bool right = asked < n ? s == OPTC_OK && optc_unbind(b) == OPTC_OK : s == OPTC_ERROR_MEMORY;
        held = memory_held() - held;                           /* before Check allocates */
        ck_assert_msg(right && !held, "allocation %d of %d: %s, %d left", n, asked,
                      optc_status_name(s), held);
    } while (asked >= n);
    ck_assert_int_gt(n, 50);
    OK(optc_release(r));
    OK(optc_close(e));
}
END_TEST

START_TEST(as_text)
{
    static const Damage bad[] = {
        {"slots slot_4 tensor 4 1 0 first", "slots slot_4 tensor 1 1 0 first",
         "slots that do not belong to an every"},
        {"slots slot_4 tensor 4 1 0", "slots slot_4 rows 4 1 0",
         "slots that do not belong to an every"},
        {"slots slot_4 tensor 4 1 0", "slots slot_4 tensor 4 1 1",
         "slots that do not belong to an every"},
        {"slots slot_4 tensor 4 1 0", "slots slot_4 tensor x 1 0", "how many slots"},
        {"= slot group slot_4", "= slot group X", "a state that has no slots"},
        {"= slot group slot_4", "= slot tensor slot_4", "outside its own domain"},
        {"matrix X = ", "matrix slot_4 = ", "does not fit its target"}};
    char *text = format(rules[0], "4, { stagger = true, first = true }", "");
    reads_back(text, bad, (int)(sizeof bad / sizeof *bad));
    free(text);
}
END_TEST

Suite *stagger_suite(void)
{
    Suite *s = suite_create("stagger");
    TCase *t = tcase_create("stagger");
    tcase_set_timeout(t, 60);
    tcase_add_loop_test(t, as_alone, 0, NRULES * NPERIODS);
    tcase_add_loop_test(t, in_bounds, 0, NWHOLE);
    tcase_add_test(t, only_in_slot);
    tcase_add_test(t, balanced_eigenvectors);
    tcase_add_loop_test(t, balanced, 0, 4);
    tcase_add_test(t, of_nothing);
    tcase_add_loop_test(t, resumed, 0, NWHOLE);
    tcase_add_test(t, slot_missed);
    tcase_add_test(t, nan_stays);
    tcase_add_test(t, memory_ends);
    tcase_add_test(t, as_text);
    suite_add_tcase(s, t);
    return s;
}
