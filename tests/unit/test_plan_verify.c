/* The plan verifier: valid plans are damaged in one place after another, and the verifier must
 * detect each damage. Also passes that are marked as computing a symmetric half and do not, or do
 * and are not marked. */
#include "runtime/library/rule/spec_find.h"
#include "gen/gen.h"
#include "tests/harness/help.h"
#include "tests/harness/suites.h"

#include <stdlib.h>
#include <string.h>

#define COUNT(a) ((int)(sizeof(a) / sizeof *(a)))

typedef struct { const char *spec, *with; } Victim;
static const Victim victims[] = {{"adamw", NULL},
                                 {"lamb", NULL},
                                 {"adafactor", NULL},
                                 {"came", NULL},
                                 {"adamp", NULL},
                                 {"adamw", "clip(1),cautious,ema(0.999)"},
                                 {"sgd", "lookahead(5,0.5),centralize"},
                                 {"adafactor", "clip(1),sam(0.05)"}};

static int damages;

static void seen(const Plan *p, const char *what, int stage, int k, const char *part)
{
    Diag d = {0};
    bool ok = plan_verify(p, &d);
    ck_assert_msg(!ok, "%s: %s, stage %d, number %d: not seen", p->rule->name, what, stage, k);
    bool said =
        strstr(d.text, "internal error: ") && strstr(d.text, "stage ") && strstr(d.text, part);
    ck_assert_msg(said, "%s: %s: '%s' lacks '%s'", p->rule->name, what, d.text, part);
    diag_free(&d);
    damages++;
}

/* Drops each item of a list in turn. The last item takes its place. */
#define DROP(v, n, what) \
    for (int k_ = (n) - 1; k_ >= 0; k_--) { \
        __typeof__(*(v)) was_ = (v)[k_]; \
        (v)[k_] = (v)[--(n)]; \
        seen(p, what, i, k_, ""); \
        (v)[(n)++] = (v)[k_]; \
        (v)[k_] = was_; \
    }

static void drop(const Plan *p, Stage *s, int i)
{
    DROP(s->store, s->nstore, "a store dropped")
    DROP(s->load, s->nload, "a load dropped")
    DROP(s->fold, s->nfold, "a fold dropped")
    DROP(s->fin, s->nfin, "the end of a reduction dropped")
    for (int k = 0; k < s->nbody; k++) {
        Ref was = s->body[k];
        memmove(s->body + k, s->body + k + 1, sizeof *s->body * (size_t)(s->nbody-- - k - 1));
        seen(p, "an operation dropped", i, k, "");
        memmove(s->body + k + 1, s->body + k, sizeof *s->body * (size_t)(s->nbody++ - k));
        s->body[k] = was;
    }
}

static bool stored_in(const Phase *ph, Ref val, int mem)
{
    for (int i = 0; i < ph->nstage; i++)
        for (int k = 0; k < ph->stage[i].nstore; k++)
            if (ph->stage[i].store[k].val == val && ph->stage[i].store[k].mem == mem)
                return true;
    return false;
}

/* Replaces the array of each access in turn by every other array, including those with the same
 * properties. */
static void mislead(const Plan *p, const Phase *ph, Access *v, int n, int i, const char *what,
                    bool load)
{
    for (int k = 0; k < n; k++) {
        int was = v[k].mem;
        for (int m = 0; m < p->nmem; m++) {
            if (m == was || (load && stored_in(ph, v[k].val, m)))
                continue;                                  /* that array holds the same value */
            v[k].mem = m;
            seen(p, what, i, k, "");
        }
        v[k].mem = was;
    }
}

static void misread(const Plan *p, Access *v, int n, int i)
{
    for (int k = 0; k < n; k++) {
        v[k].val++;
        seen(p, "another value", i, k, "");
        v[k].val--;
    }
}

/* a writes what b reads or writes */
static bool touches(const Plan *p, const Stage *a, const Stage *b)
{
    for (int i = 0; i < a->nstore + a->nfold; i++) {
        int m = i < a->nstore ? a->store[i].mem : a->fold[i - a->nstore].mem;
        for (int k = 0; k < b->nload + b->nfin + b->nstore; k++) {
            int x = k < b->nload             ? b->load[k].mem
                    : k < b->nload + b->nfin ? b->fin[k - b->nload].mem
                                             : b->store[k - b->nload - b->nfin].mem;
            if (x == m && (a->variant == b->variant || p->mem[m].dom == GROUP))
                return true;
        }
    }
    return false;
}

/* exchanges two stages and their times */
static void trade(Plan *p, Stage *a, Stage *b)
{
    Stage x = *a, y = *b;
    *a = y, *b = x;
    a->time = x.time, a->level = x.level, b->time = y.time, b->level = y.level;
    p->at[a->fn].stage = a;
    p->at[b->fn].stage = b;
}

static void reorder(Plan *p, Phase *ph, int i)
{
    Stage *s = &ph->stage[i];
    for (int j = i + 1; j < ph->nstage; j++)
        if (touches(p, s, &ph->stage[j]) || touches(p, &ph->stage[j], s)) {
            trade(p, s, &ph->stage[j]);
            seen(p, "two stages traded", i, j, "");
            trade(p, s, &ph->stage[j]);
            int time = ph->stage[j].time, level = ph->stage[j].level;
            if (j == i + 1) {
                ph->stage[j].time = s->time;
                ph->stage[j].level = s->level;
                seen(p, "two stages side by side", i, j, "");
                ph->stage[j].time = time;
                ph->stage[j].level = level;
            }
        }
    int variant = s->variant, fn = s->fn;
    /* of a rule with one variant: a variant that does not exist */
    s->variant = variant + 1;
    seen(p, "another variant", i, variant, "");
    s->variant = variant;
    s->fn = fn ? 0 : p->nfn;
    seen(p, "another number", i, fn, "number");
    s->fn = fn;
}

static Ref leaf_of(const Graph *g, const Mem *m)
{
    for (Ref r = 0; r < g->len; r++)
        if (m->kind == MEM_P ? g->n[r].op == OP_P : g->n[r].op == OP_STATE && g->n[r].sym == m->sym)
            return r;
    return NONE;
}

/* The last stage reads an array that this stage has overwritten; this stage stores twice. */
static void read_late(const Plan *p, Phase *ph, Stage *s, int i)
{
    Stage *last = &ph->stage[ph->nstage - 1];
    for (int k = 0; k < s->nstore; k++) {
        const Mem *m = &p->mem[s->store[k].mem];
        Ref leaf = m->kind == MEM_TEMP ? NONE : leaf_of(ph->g, m);
        Access more[300], *was;
        int room = s == last ? s->nstore : last->nload;
        ck_assert_int_lt(room, COUNT(more));
        if (leaf != NONE && s != last && (last->variant == s->variant || m->dom == GROUP)) {
            was = last->load;
            memcpy(more, was, sizeof *was * (size_t)last->nload);
            more[last->nload++] = (Access){.val = leaf, .mem = s->store[k].mem};
            last->load = more;
            seen(p, "a state read late", i, k, "overwritten");
            last->load = was;
            last->nload--;
        }
        was = s->store;
        memcpy(more, was, sizeof *was * (size_t)s->nstore);
        more[s->nstore++] = was[k];
        s->store = more;
        seen(p, "a store twice", i, k, "twice");
        s->store = was;
        s->nstore--;
    }
}

static void reshape(Plan *p, int m)                        /* an array that is used */
{
    Mem was = p->mem[m];
    p->mem[m].dom = was.dom == ROW ? COL : ROW;
    seen(p, "another domain", 0, m, "");
    p->mem[m] = was;
    if (was.kind == MEM_TEMP || was.kind == MEM_PART) {
        p->mem[m].type = was.type == T_F64 ? T_F32 : T_BF16;
        seen(p, "another type", 0, m, "");
        p->mem[m] = was;
    }
    if (was.kind == MEM_PART) {
        p->mem[m].by = was.by == S_TILE ? S_BAND : S_TILE;
        seen(p, "folded by another kind of stage", 0, m, "");
        p->mem[m] = was;
        p->mem[m].from = was.from == ELEM ? ROW : ELEM;
        seen(p, "folded from another domain", 0, m, "");
        p->mem[m] = was;
    }
}

static void damage(Plan *p, Phase *ph)
{
    for (int i = 0; i < ph->nstage; i++) {
        Stage *s = &ph->stage[i];
        drop(p, s, i);
        mislead(p, ph, s->load, s->nload, i, "a load from another array", true);
        mislead(p, ph, s->store, s->nstore, i, "a store to another array", false);
        mislead(p, ph, s->fold, s->nfold, i, "a fold into other partials", false);
        mislead(p, ph, s->fin, s->nfin, i, "the end of other partials", false);
        misread(p, s->load, s->nload, i);
        misread(p, s->store, s->nstore, i);
        misread(p, s->fold, s->nfold, i);
        misread(p, s->fin, s->nfin, i);
        reorder(p, ph, i);
        read_late(p, ph, s, i);
        if (s->uses_rows && s->kind == S_FLAT) {
            s->uses_rows = false;
            seen(p, "rows not walked", i, 0, "rows");
            s->uses_rows = true;
        }
        for (int k = 0; k < s->nload; k++)
            reshape(p, s->load[k].mem);
        for (int k = 0; k < s->nfin; k++)
            reshape(p, s->fin[k].mem);
    }
}

START_TEST(damage_is_seen)
{
    Arena arena = {0};
    Source s;
    Gen g = {0};
    GenOptions o = {.find = find_wrapper, .with = victims[_i].with};
    ck_assert_msg(find_spec(NULL, victims[_i].spec, &arena, &s, &g.diag) && gen_compile(&g, s, &o),
                  "%s", g.diag.text);
    damages = 0;
    for (int e = 0; e < g.plan->nentry; e++)
        for (int m = 0; m < g.plan->entry[e].nphase; m++)
            damage(g.plan, &g.plan->entry[e].phase[m]);
    ck_assert_int_gt(damages, 15);
    ck_assert_msg(plan_verify(g.plan, &g.diag), "whole again: %s", g.diag.text);
    gen_free(&g);
    arena_free(&arena);
}
END_TEST

/* ---- halves ---- */
/* On a GPU, passes over symmetric values compute a half, and products that only such passes read
 * are not mirrored. */
typedef struct { const char *body; int passes, calls; const char *what; } Halves;
static const Halves halves[] = {
    {"local A = gram(g) p = p - mm(max(A, mm(A, A)), g)", 1, 1,
     "the square of A is read by a pass alone, A by a product too"},
    {"local A = gram(g) p = p - mm(max(A, eye(1, 'rows')), g)", 1, 1, "a diagonal is symmetric"},
    {"local A = gram(g) p = p - mm(A, g)", 0, 0, "a product reads it"},
    {"L = lerp(L, gram(g), 0.1) p = p - mm(L, g)", 0, 0, "a state may be anything"},
    {"L = 2 * gram(g) p = p - mm(L, g)", 1, 1, "a state may be written"},
    {"local A = gram(g) L = A p = p - mm(3 * A, g)", 1, 0, "it lies in a state"},
    {"p = p - mm(2 * triu(gram(g)), g)", 0, 0, "a triangle is not symmetric"},
    {"local A = gram(g) p = p - mm(2 * A, g) * rowsum(A)", 1, 0,
     "a fold along an axis reads all of it"},
    {"local A = gram(g) p = p - mm(2 * A, g) / trace(A)", 0, 0, "so does one to a scalar"},
    {"local A = gram(g) p = p - mm(2 * A + outer(rowsum(g), rowsum(g)), g)", 1, 1,
     "a row value by itself turned is symmetric"},
    {"local A = gram(g) p = p - mm(2 * A + rowsum(g), g)", 0, 0, "a row value alone is not"},
    {"L = triu(mm(L, L)) p = p - mm(L + L.T + gram(g), g)", 1, 1,
     "nor what is added to itself turned, of which all is read"},
};

static int count_halves(const Phase *ph, bool calls)
{
    int n = 0;
    for (int i = 0; i < ph->nstage; i++)
        n += ph->stage[i].half && is_called(ph->stage[i].kind) == calls;
    return n;
}

START_TEST(halves_are_found)
{
    char *text = format("return optimizer { name = 'x', %s matrix = function() %s end, step = "
                        "function() p = p - g end }",
                        strstr(halves[_i].body, "L = ") ? "state = { L = zeros 'rows' }," : "",
                        halves[_i].body);
    for (int gpu = 0; gpu < 2; gpu++) {
        Gen g = {0};
        GenOptions o = {.find = find_wrapper, .target = gpu ? &target_cuda : &target_c};
        ck_assert_msg(gen_compile(&g, (Source){"made", text, strlen(text)}, &o), "%s: %s",
                      halves[_i].what, g.diag.text);
        Phase *ph = &g.plan->entry[0].phase[0];
        int passes = count_halves(ph, false), calls = count_halves(ph, true);
        Buf b = {0};
        plan_print(&b, g.plan, false);
        ck_assert_msg(passes == gpu * halves[_i].passes && calls == gpu * halves[_i].calls,
                      "%s, gpu %d: %d passes, %d products:\n%s", halves[_i].what, gpu, passes,
                      calls, b.s);
        buf_free(&b);
        /* marked where it must not be, or unmarked where it must be */
        for (int i = 0; gpu && i < ph->nstage; i++) {
            Stage *s = &ph->stage[i];
            bool pass = s->half && !is_called(s->kind);
            if ((pass && !calls) || (s->half && is_called(s->kind)))
                continue;
            s->half = !s->half;
            seen(g.plan, pass ? "a whole pass" : "a half", i, 0, pass ? "upper triangle" : "");
            s->half = !s->half;
        }
        gen_free(&g);
    }
    free(text);
}
END_TEST

/* ---- turns ---- */
/* How many stages skip tensors outside of their slot; no other stage may. */
static const struct { const char *head, *body; int stages; const char *what;
} turns[] = {
    {"",
     "L = lerp(L, gram(g), 0.1) every(3, { stagger = true }, function() X = power(L, -1, { ridge = "
     "0.1 }) end) p = "
     "p - mm(X, g)",
     3, "what power reads, power, and what takes it"},
    {"",
     "every(3, { stagger = true }, function() X = mm(X, L) end) L = gram(g) p = p - mm(X, g) / "
     "trace(L)",
     2, "operands that lie there"},
    {"",
     "L = gram(g) every(3, { stagger = true }, function() X = mm(L, L) p = p - g end) p = p - "
     "mm(X, g)",
     2, "p is everybody's"},
    {"",
     "every(3, { stagger = true }, function() X = mm(X, L) end) L = gram(g) / global.sum(trace(X)) "
     "p = p - mm(L, "
     "g)",
     1, "a fold over all tensors reads what each of them keeps"},
    {"",
     "every(3, { stagger = true }, function() X = mm(X, L) s = global.sum(trace(X)) * numel end) L "
     "= gram(g) p = p "
     "- s * mm(L, g)",
     2, "in the block it reads what each of them would have"},
    {"block = 4,",
     "L = gram(g) every(3, { stagger = true }, function() X = mm(L, L) / trace(L) end) p = p - "
     "mm(X, g)",
     4, "a trace is the block's"},
    {"block = 4,",
     "L = gram(g) every(3, { stagger = true }, function() X = mm(L, L) / sum(mm(L, X)) end) p = p "
     "- mm(X, g)",
     3, "a sum is of all blocks"},
    {"block = 4,",
     "L = gram(g) every(3, { stagger = true }, function() s = sum(mm(L, L)) X = L end) p = p - s * "
     "mm(X, g)",
     4, "and the tensor has a turn of its own"},
};

START_TEST(staggered_stages_are_found)
{
    char *text = format("return optimizer { name = 'x', %s state = { L = zeros 'rows', X = zeros "
                        "'rows', s = zeros 'tensor' }, "
                        "matrix = function() s = s %s end, step = function() p = p - g%s end }",
                        turns[_i].head, turns[_i].body,
                        strstr(turns[_i].body, "global") ? " / global.sum(mean(g))" : "");
    for (int gpu = 0; gpu < 2; gpu++) {
        Gen g = {0};
        GenOptions o = {.find = find_wrapper, .target = gpu ? &target_cuda : &target_c};
        ck_assert_msg(gen_compile(&g, (Source){"made", text, strlen(text)}, &o), "%s: %s",
                      turns[_i].what, g.diag.text);
        Phase *ph = &g.plan->entry[0].phase[0];
        int n = 0, more = 0;
        for (int i = 0; i < ph->nstage; i++)
            n += ph->stage[i].stagger != 0;
        Buf b = {0};
        plan_print(&b, g.plan, false);
        ck_assert_msg(n == turns[_i].stages, "%s, gpu %d: %d stages:\n%s", turns[_i].what, gpu, n,
                      b.s);
        buf_free(&b);
        for (int i = 0; i < ph->nstage; i++) {                 /* a stage may run for all tensors */
            Stage *s = &ph->stage[i];
            if (s->stagger || is_single(s->kind) || s->kind == S_BLOCK)
                continue;
            s->stagger = 1;
            seen(g.plan, "somebody left out", i, 0, "left out");
            s->stagger = 0;
            more++;
        }
        ck_assert_int_gt(more, 1);
        gen_free(&g);
    }
    free(text);
}
END_TEST

Suite *plan_verify_suite(void)
{
    Suite *s = suite_create("plan_verify");
    TCase *v = tcase_create("verifier");
    tcase_set_timeout(v, 60);
    tcase_add_loop_test(v, damage_is_seen, 0, COUNT(victims));
    tcase_add_loop_test(v, halves_are_found, 0, COUNT(halves));
    tcase_add_loop_test(v, staggered_stages_are_found, 0, COUNT(turns));
    suite_add_tcase(s, v);
    return s;
}
