/* Names for values that the spec did not name: `1 - beta1 ^ t` becomes one_minus_beta1_pow_t, and
 * `rowmean(g * g)` becomes rowmean_g_squared. A column of ops.def has the name of each operation. A
 * name that would be too long, or name two calls, omits inner operands, down to the name of the
 * operation alone: the products of an iteration are mm, mm_2, mm_3. */
#include "gen/plan/value_names.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { DEEPEST = 4 };

typedef struct Words {
    const Rule *rule;
    const Phase *phase;
    const Graph *g;
    char s[LONGEST_NAME + 1];
    size_t n;
    int calls;                         /* in the name so far */
    bool cut;
} Words;

static void put(Words *w, const char *s)
{
    for (; *s && w->n < LONGEST_NAME; s++)
        w->s[w->n++] = *s == '.' ? '_' : *s;
    w->cut = w->cut || *s;
    w->s[w->n] = 0;
}

static void put_number(Words *w, double x)
{
    static const char *const small[] = {"zero", "one",   "two",   "three", "four", "five",
                                        "six",  "seven", "eight", "nine",  "ten"};
    char text[40];
    if (signbit(x))
        put(w, "minus_");
    x = fabs(x);
    if (x == 0.5 || !isfinite(x))
        put(w, x == 0.5 ? "half" : isnan(x) ? "nan" : "inf");
    else if (x <= 10 && x == floor(x))
        put(w, small[(int)x]);
    else {
        snprintf(text, sizeof text, "%.6g", x);
        for (char *c = text; *c; c++)
            *c = (char)(*c == '.' ? 'p' : *c == '-' ? 'm' : *c == '+' ? '_' : *c);
        put(w, w->n ? "" : "n");                              /* no name begins with a digit */
        put(w, text);
    }
}

/* A count: numel, nrows and ncols as in specs; others as "rows_per_tensor". */
static void put_count(Words *w, const Node *n)
{
    const char *own = n->from == ELEM && n->dom == TENSOR ? "numel"
                      : n->from == ROW && (n->dom == SLICE || n->dom == BLOCK) ? "nrows"
                      : n->from == COL && (n->dom == SLICE || n->dom == BLOCK) ? "ncols"
                                                          : NULL;
    if (!own)
        put(w, dom_info[n->from].name);
    put(w, own ? own : "s_per_");
    if (!own)
        put(w, dom_info[n->dom].name);
}

static bool put_leaf(Words *w, const Node *n)
{
    switch (n->op) {
    case OP_P: put(w, "p"); return true;
    case OP_G: put(w, "g"); return true;
    case OP_STEP: put(w, "t"); return true;
    case OP_SLOT: put(w, "slot"); return true;
    case OP_HYPER: put(w, w->rule->hyper[n->sym].name); return true;
    case OP_STATE: put(w, w->rule->state[n->sym].name); return true;
    case OP_INPUT: put(w, w->rule->input[n->sym].name); return true;
    case OP_COUNT: put_count(w, n); return true;
    case OP_CONST: put_number(w, n->imm); return true;
    default: return false;
    }
}

/* The prefix of a reduction, as in specs: sum, rowsum, colmax … */
static void put_where(Words *w, const Node *n)
{
    put(w, n->dom == ROW || n->dom == COL       ? dom_info[n->dom].name
           : n->dom == SLICE || n->dom == BLOCK ? "slice_"
                                                : "");
}

static const Node *arg_of(const Words *w, const Node *n, int k) { return &w->g->n[n->arg[k]]; }
static bool is_square(const Node *n) { return n->op == OP_MUL && n->arg[0] == n->arg[1]; }

static bool is_mean(const Words *w, const Node *n)
{
    return n->op == OP_DIV && arg_of(w, n, 0)->op == OP_SUM && !arg_of(w, n, 0)->name &&
           arg_of(w, n, 1)->op == OP_COUNT;
}

static void put_value(Words *w, Ref v, int depth);

/* Names patterns that have a common shorter name: global sums, squares, means, norms; false: n is
 * none. */
static bool put_known(Words *w, const Node *n, int depth)
{
    const Node *a = n->nargs ? arg_of(w, n, 0) : NULL;
    /* per tensor, then over all tensors */
    if (is_global(n) && is_red(a) && !a->name) {
        put(w, n->op == OP_GSUM && a->op == OP_SUM    ? "global_sum_"
               : n->op == OP_GMAX && a->op == OP_RMAX ? "global_max_"
               : n->op == OP_GMIN && a->op == OP_RMIN ? "global_min_"
                                                      : "global_");
        put_value(w, a->arg[0], depth - 1);
        return true;
    }
    if (is_square(n)) {
        put_value(w, n->arg[0], depth - 1);
        put(w, "_squared");
        return true;
    }
    if (is_mean(w, n)) {
        put_where(w, a);
        put(w, "mean_");
        put_value(w, a->arg[0], depth - 1);
        return true;
    }
    if (n->op == OP_SQRT && a->op == OP_SUM && !a->name && is_square(arg_of(w, a, 0))) {
        put_where(w, a);
        put(w, "norm_");
        put_value(w, arg_of(w, a, 0)->arg[0], depth - 1);
        return true;
    }
    return false;
}

/* The state that takes this value, TO_P for p; -2: none. */
static int32_t becomes(const Words *w, Ref v)
{
    for (int k = 0; k < w->rule->nvariant; k++)
        for (int i = 0; i < w->phase->body[k].n; i++)
            if (w->phase->body[k].w[i].val == v)
                return w->phase->body[k].w[i].state;
    return -2;
}

static void put_value(Words *w, Ref v, int depth)
{
    const Node *n = &w->g->n[v];
    const OpInfo *o = &op_info[n->op];
    if (!n->name && put_leaf(w, n))
        return;
    int32_t state = is_leaf(n) ? -2 : becomes(w, v);
    /* even if the spec has a local of it */
    if (state >= TO_P) {
        put(w, state == TO_P ? "p" : w->rule->state[state].name);
        put(w, "_new");
        return;
    }
    if (n->name) {
        put(w, n->name);
        return;
    }
    w->calls += is_call(n);
    w->cut = w->cut || w->calls > 1;
    if (depth <= 0) {
        put(w, is_mean(w, n) ? "mean" : is_square(n) ? "square" : o->name);
        return;
    }
    if (put_known(w, n, depth))
        return;
    if (is_red(n))
        put_where(w, n);
    for (const char *s = o->name_form; *s; s++) {
        if (*s == '%' && s[1] >= 'a' && s[1] <= 'c' && s[1] - 'a' < n->nargs)
            put_value(w, n->arg[*++s - 'a'], depth - 1);
        else
            put(w, (char[2]){*s, 0});
    }
}

static const char *plain(Arena *a, const char *name)
{
    char *s = arena_strdup(a, name);
    for (char *c = s; *c; c++)
        *c = *c == '.' ? '_' : *c;
    return s;
}

const char *value_name(Arena *a, const Rule *r, const Phase *ph, Ref v)
{
    Words w = {.rule = r, .phase = ph, .g = ph->g};
    if (ph->g->n[v].name && (is_leaf(&ph->g->n[v]) || becomes(&w, v) < TO_P))
        return plain(a, ph->g->n[v].name);
    for (int depth = DEEPEST; depth >= 0; depth--) {
        w.n = 0;
        w.calls = 0;
        w.cut = false;
        put_value(&w, v, depth);
        if (!w.cut)
            break;
    }
    return arena_strdup(a, w.s);
}

/* ---- arrays ---- */
/* A hash table from text to text: a plan may have thousands of arrays. */
typedef struct { const char *key, *value; int next; } Pair;
typedef struct { Arena *arena; Pair *v; int n, cap; } Map;

static Pair *map_at(Map *m, const char *key)
{
    if (m->n * 2 >= m->cap) {
        Map old = *m;
        m->cap = old.cap ? old.cap * 2 : 64;
        m->v = NEWS(m->arena, Pair, m->cap);
        m->n = 0;
        for (int i = 0; i < old.cap; i++)
            if (old.v[i].key)
                *map_at(m, old.v[i].key) = old.v[i];
    }
    uint64_t h = hash64(7, key, strlen(key)), mask = (uint64_t)(m->cap - 1);
    while (m->v[h & mask].key && strcmp(m->v[h & mask].key, key))
        h++;
    Pair *p = &m->v[h & mask];
    if (!p->key) {
        p->key = arena_strdup(m->arena, key);
        m->n++;
    }
    return p;
}

/* of: by "3 w", the name of array 3 while it holds w; taken: names in use, with the next suffix to
 * try */
typedef struct {
    Plan *plan;
    Map of, taken;
} Naming;

/* An array that holds values of different names in different phases has a name for each. No two
 * arrays share a name. */
static const char *array_name(Naming *x, int mem, const char *want)
{
    Pair *known = map_at(&x->of, arena_printf(x->of.arena, "%d %s", mem, want));
    if (known->value)
        return known->value;
    const char *base = plain(x->of.arena, want), *name = want;
    bool free = !map_at(&x->taken, base)->value;
    int n = map_at(&x->taken, base)->next;
    for (n = n < 2 ? 2 : n; !free; n++) {
        name = arena_printf(x->of.arena, "%s_%d", base, n);
        free = !map_at(&x->taken, name)->value;
    }
    map_at(&x->taken, plain(x->of.arena, name))->value = name;
    map_at(&x->taken, base)->next = n;
    known->value = arena_strdup(x->plan->arena, name);
    return known->value;
}

static void name_list(Naming *x, const Phase *ph, Access *v, int n)
{
    for (int i = 0; i < n; i++) {
        const Mem *m = &x->plan->mem[v[i].mem];
        bool ours = m->kind == MEM_TEMP || m->kind == MEM_PART;
        v[i].name = array_name(
            x, v[i].mem, ours ? value_name(x->of.arena, x->plan->rule, ph, v[i].val) : m->name);
    }
}

static void name_all(void *ctx, Arena *scratch)
{
    Plan *p = ctx;
    Naming x = {.plan = p, .of.arena = scratch, .taken.arena = scratch};
    /* p, g, inputs and states keep their names */
    for (int k = 0; k < p->nmem; k++)
        if (p->mem[k].kind != MEM_TEMP && p->mem[k].kind != MEM_PART)
            array_name(&x, k, p->mem[k].name);
    for (int e = 0; e < p->nentry; e++)
        for (int m = 0; m < p->entry[e].nphase; m++)
            for (int i = 0; i < p->entry[e].phase[m].nstage; i++) {
                const Phase *ph = &p->entry[e].phase[m];
                const Stage *s = &ph->stage[i];
                name_list(&x, ph, s->load, s->nload);
                name_list(&x, ph, s->fin, s->nfin);
                name_list(&x, ph, s->store, s->nstore);
                name_list(&x, ph, s->fold, s->nfold);
            }
}

void plan_name_arrays(Plan *p) { arena_scratch(p->arena, name_all, p); }
