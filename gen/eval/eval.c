/* Runs an entry of a rule node by node: leaves, operations, reductions and writes, with interval
 * bounds if asked for. Must not use the planner or the emitters: it is the oracle of their
 * tests. */
#include "gen/eval/eval_internal.h"

#define OPTC_FN static inline __attribute__((unused))
#include "templates/math.h"
#include "templates/math_f32.h"
#include "templates/math_f64.h"
#include "templates/random.h"

/* ---- bounds ---- */
/* The hull of f over the corners of the intervals. Correct for operations that are monotone in each
 * operand there. A NaN at a corner gives the interval of all numbers. */
static Iv corners(Op op, const Iv *a, int arity, double v)
{
    Iv r = {INFINITY, v, -INFINITY};
    for (int m = 0; m < 1 << arity; m++) {
        double x[3] = {0};
        for (int k = 0; k < arity; k++)
            x[k] = m >> k & 1 ? a[k].hi : a[k].lo;
        double y = op_eval(op, x[0], x[1], x[2]);
        if (isnan(y))
            return anything(v);
        r.lo = fmin(r.lo, y);
        r.hi = fmax(r.hi, y);
    }
    return r;
}

static Iv around(double v, double r) { return (Iv){v - r, v, v + r}; }

static Iv op_bounds(Op op, const Iv *a, double v)
{
    switch (op) {
    case OP_DIV:
        return a[1].lo <= 0 && a[1].hi >= 0 ? anything(v) : corners(op, a, 2, v);
    case OP_ABS: {
        Iv r = corners(op, a, 1, v);
        if (a[0].lo <= 0 && a[0].hi >= 0)
            r.lo = 0;
        return r;
    }
    case OP_SQRT: case OP_LOG:
        if (a[0].lo < 0 && a[0].hi >= 0)
            return anything(v);
        return corners(op, a, 1, v);
    case OP_LOG1P:
        return a[0].lo < -1 && a[0].hi >= -1 ? anything(v) : corners(op, a, 1, v);
    case OP_SIN: case OP_COS: {
        Iv r = around(v, fmax(a[0].hi - a[0].v, a[0].v - a[0].lo));
        return (Iv){fmax(r.lo, -1), v, fmin(r.hi, 1)};
    }
    case OP_ATAN2:
        return a[1].lo <= 0 && a[0].lo <= 0 && a[0].hi >= 0 ? anything(v) : corners(op, a, 2, v);
    case OP_POW: case OP_POWI:
        return a[0].lo <= 0
                   ? (a[0].lo == a[0].hi && a[1].lo == a[1].hi ? corners(op, a, 2, v) : anything(v))
                   : corners(op, a, 2, v);
    case OP_LOW16: return a[0].lo == a[0].hi ? corners(op, a, 1, v) : (Iv){-32768, v, 32767};
    case OP_HALF_STEP: {
        Iv r = corners(op, a, 1, v);
        if (a[0].lo <= 0 && a[0].hi >= 0)
            r.lo = 0x1p-134;
        return r;
    }
    case OP_LT: case OP_LE: {
        bool strict = op == OP_LT;
        double sure = strict ? a[0].hi < a[1].lo : a[0].hi <= a[1].lo,
               may = strict ? a[0].lo < a[1].hi : a[0].lo <= a[1].hi;
        return (Iv){sure, v, may};
    }
    case OP_EQ: case OP_NE: {
        bool same = a[0].lo == a[0].hi && a[1].lo == a[1].hi && a[0].lo == a[1].lo,
             apart = a[0].hi < a[1].lo || a[1].hi < a[0].lo;
        return op == OP_EQ ? (Iv){same, v, !apart} : (Iv){apart, v, !same};
    }
    case OP_ISNT: return (Iv){1 - a[0].hi, v, 1 - a[0].lo};
    case OP_WHERE:
        if (a[0].lo != 0)
            return (Iv){a[1].lo, v, a[1].hi};
        if (a[0].hi == 0)
            return (Iv){a[2].lo, v, a[2].hi};
        return (Iv){fmin(a[1].lo, a[2].lo), v, fmax(a[1].hi, a[2].hi)};
    default:
        return corners(op, a, op_info[op].arity, v);
    }
}

static bool any_nan(const Iv *a, int n)
{
    for (int k = 0; k < n; k++)
        if (isnan(a[k].v) || isnan(a[k].lo) || isnan(a[k].hi))
            return true;
    return false;
}

/* ---- nodes ---- */
/* Rounds to a storage type: to nearest, ties to even. */
static double in_type(Type t, double x)
{
    int e;
    if (isnan(x) || x == 0)
        return x;
    if (isinf(x))
        return copysign(type_info[t].beyond, x);
    (void)frexp(x, &e);
    double q = fmax(ldexp(1, e - type_info[t].digits), type_info[t].least), y = rint(x / q) * q;
    return fabs(y) > type_info[t].most ? copysign(type_info[t].beyond, x) : y;
}

static Iv as_stored(const Ev *e, const Node *n, Iv x)
{
    const EvalJob *j = e->j;
    Type t = n->sym == TO_P ? j->p : type_of_state(&j->rule->state[n->sym], j->p, j->state);
    if (dom_wide((Dom)n->dom) || t == j->real)
        return x;
    return (Iv){in_type(t, x.lo), in_type(t, x.v), in_type(t, x.hi)};
}

static Shape group_shape(void) { return (Shape){1, 1, 1, 1, 0, 0}; }

static void eval_op_part(Ev *e, Ref r, int i, Part p, const int64_t *from)
{
    const Node *n = &e->g->n[r];
    Vals *out = slot(e, r, i);
    int arity = op_info[n->op].arity, group = per_group(n) ? i : e->j->tensor[i].group;
    int64_t count = per_group(n) ? 1 : dom_len((Dom)n->dom, p.s);
    for (int64_t own = 0, x = from[3]; own < count; own++, x++) {
        Iv a[3] = {{0}};
        for (int k = 0; k < arity; k++) {
            const Node *m = &e->g->n[n->arg[k]];
            const Vals *in = slot(e, n->arg[k], per_group(m) ? group : i);
            int64_t at = from[k] + dom_index((Dom)n->dom, (Dom)m->dom, own, p.s);
            a[k] = val_at(in, at);
            /* the target rounds wide values to the precision of elements */
            if (in->lo && dom_wide((Dom)m->dom) && !dom_wide((Dom)n->dom) && m->ty == NUM)
                a[k] = widen(e, a[k], ELEM, 0.5);
        }
        if (n->op == OP_STORED)
            a[0] = as_stored(e, n, a[0]);
        out->v[x] = op_eval(n->op, a[0].v, a[1].v, a[2].v);
        if (!out->lo)
            continue;
        Iv b = any_nan(a, arity) && n->op != OP_WHERE ? anything(out->v[x])
                                                      : op_bounds(n->op, a, out->v[x]);
        bool exact = n->ty == BOOL || n->op == OP_STORED ||
                     (n->whole && dom_wide((Dom)n->dom) && fabs(out->v[x]) < 0x1p53);
        b = exact ? b : widen(e, b, (Dom)n->dom, op_info[n->op].ulp);
        out->lo[x] = b.lo;
        out->hi[x] = b.hi;
    }
}

static void eval_op(Ev *e, Ref r, int i, Shape s)
{
    const Node *n = &e->g->n[r];
    /* offsets of operands, and of the value */
    int64_t parts = eval_parts(e, (Dom)n->dom, s), from[4] = {0};
    for (int64_t q = 0; q < parts; q++) {
        Part p = eval_part(e, (Dom)n->dom, s, q);
        eval_op_part(e, r, i, p, from);
        for (int k = 0; k < op_info[n->op].arity; k++)
            from[k] += part_length((Dom)e->g->n[n->arg[k]].dom, p);
        from[3] += part_length((Dom)n->dom, p);
    }
}

/* The depth of additions of a reduction (plan.h): at most 32 in a lane, 7 in the tree, 7 more over
 * the rows of a tile, and rounding. */
enum { FOLD_DEPTH = 48 };

/* Sums are computed in long double: the rounding of the oracle must be far smaller than its bounds,
 * in f64 too. */
typedef struct { long double v, lo, hi, mag; int64_t count; } Acc;

static long double with(Op op, long double a, double b)
{
    if (op == OP_SUM || op == OP_GSUM)
        return a + b;
    return op_eval(op == OP_RMAX || op == OP_GMAX ? OP_MAX : OP_MIN, (double)a, b, 0);
}

/* Adds the square of a value and of its interval. */
static void add_square(Acc *acc, const Vals *in, int64_t x)
{
    long double v = in->v[x];
    acc->v += v * v;
    acc->count++;
    if (!in->lo)
        return;
    long double lo = in->lo[x], hi = in->hi[x], most = fmaxl(lo * lo, hi * hi);
    acc->lo += lo <= 0 && hi >= 0 ? 0 : fminl(lo * lo, hi * hi);
    acc->hi += isnan(in->lo[x]) || isnan(in->hi[x]) ? NAN : most;
    acc->mag += most;
}

static void fold_into(Op op, Acc *acc, const Vals *in, int64_t x)
{
    if (op == OP_NORM || op == OP_RMS) {
        add_square(acc, in, x);
        return;
    }
    acc->v = with(op, acc->v, in->v[x]);
    if (!in->lo)
        return;
    acc->lo = with(op, acc->lo, in->lo[x]);
    acc->hi = with(op, acc->hi, in->hi[x]);
    acc->mag += fmax(fabs(in->lo[x]), fabs(in->hi[x]));
}

/* Targets compute sums of squares in f64 and round the root to the precision of the domain. */
static void finish_norm(const Ev *e, const Node *n, const Acc *acc, Vals *out, int64_t o)
{
    long double count = n->op == OP_RMS ? (long double)acc->count : 1;
    out->v[o] = (double)sqrtl(acc->v / count);
    if (!out->lo)
        return;
    long double w = FOLD_DEPTH * 0x1p-53L * acc->mag + 0x1p-1074L;
    Iv b = {(double)sqrtl(fmaxl(acc->lo - w, 0) / count), out->v[o],
            (double)sqrtl((acc->hi + w) / count)};
    b = widen(e, b, TENSOR, 2);
    if (!dom_wide((Dom)n->dom))
        b = widen(e, b, (Dom)n->dom, 0.5);
    if (isnan(b.lo) || isnan(b.hi) || acc->mag > 0x1p1020L)
        b = anything(out->v[o]);
    out->lo[o] = b.lo;
    out->hi[o] = b.hi;
}

static void finish_fold(const Ev *e, const Node *n, const Acc *acc, Vals *out, int64_t o)
{
    if (is_norm(n)) {
        finish_norm(e, n, acc, out, o);
        return;
    }
    out->v[o] = (double)acc->v;
    if (!out->lo)
        return;
    Dom from = (Dom)n->from, to = (Dom)n->dom;
    double w = n->op == OP_SUM || n->op == OP_GSUM
                   ? FOLD_DEPTH * unit(e, from) * (double)acc->mag + least(e, from)
                   : 0;
    Iv b = widen(e, (Iv){(double)acc->lo - w, out->v[o], (double)acc->hi + w},
                 dom_wide(to) && !dom_wide(from) ? ELEM : to, 0);
    if (!dom_wide(to))
        b = widen(e, b, to, 0.5);
    if (isnan(b.lo) || isnan(b.hi) || (double)acc->mag > most(e, from))
        b = anything(out->v[o]);
    out->lo[o] = b.lo;
    out->hi[o] = b.hi;
}

static bool eval_red(Ev *e, Ref r)
{
    const Node *n = &e->g->n[r];
    bool global = is_global(n), sum = n->op == OP_SUM || n->op == OP_GSUM || is_norm(n);
    double first = sum ? 0 : n->op == OP_RMAX || n->op == OP_GMAX ? -INFINITY : INFINITY;
    for (int i = 0; i < (global ? 1 : e->j->ntensor); i++) {
        Vals *out = slot(e, r, i);
        if (!out->v)
            continue;
        Acc *acc = malloc(sizeof *acc * (size_t)(out->n + 1));
        if (!acc)
            return false;
        for (int64_t o = 0; o < out->n; o++)
            acc[o] = (Acc){first, first, first, 0, 0};
        for (int t = global ? 0 : i; t < (global ? e->j->ntensor : i + 1); t++) {
            if (e->j->tensor[t].absent)
                continue;
            Ref a = n->arg[global ? e->j->tensor[t].variant : 0];
            const Vals *in = slot(e, a, t);
            Shape s = e->j->tensor[t].shape;
            int64_t parts = eval_parts(e, (Dom)n->from, s), x = 0, to = 0;
            for (int64_t q = 0; q < parts; q++) {
                Part p = eval_part(e, (Dom)n->from, s, q);
                int64_t end = global ? in->n : x + dom_len((Dom)n->from, p.s), first = x;
                for (; x < end; x++)
                    fold_into(
                        n->op,
                        &acc[global ? 0
                                    : to + dom_index((Dom)n->from, (Dom)n->dom, x - first, p.s)],
                        in, x);
                to += part_length((Dom)n->dom, p);
            }
        }
        for (int64_t o = 0; o < out->n; o++)
            finish_fold(e, n, &acc[o], out, o);
        free(acc);
    }
    for (int i = 1; global && i < e->j->ngroup; i++) {
        Vals *out = slot(e, r, i), *one = slot(e, r, 0);
        out->v[0] = one->v[0];
        if (out->lo)
            out->lo[0] = one->lo[0], out->hi[0] = one->hi[0];
    }
    return true;
}

static double count_of(const Ev *e, const Node *n, Shape s)
{
    if (n->dom == GROUP) {
        double total = 0;
        for (int i = 0; i < e->j->ntensor; i++)
            if (!e->j->tensor[i].absent)
                total += n->from == ELEM ? (double)e->j->tensor[i].whole.n
                                         : (double)dom_len((Dom)n->from, e->j->tensor[i].whole);
        return total;
    }
    /* nrows: of the matrix */
    Dom per = n->dom == BLOCK && !dom_of_block((Dom)n->from) ? SLICE : (Dom)n->dom;
    double up = (double)dom_len((Dom)n->from, s), down = (double)dom_len(per, s);
    return down > 0 ? up / down : 0;
}

static double slot_now(const Stagger *s, double t)
{
    double count = floor((t + s->ahead) / s->of);
    return s->first && count == 1 ? -1 : fmod(count, s->every);
}

/* Values [from, to) of a leaf are those of one part. size: the first value of blocks of this size;
 * draws count from it. */
typedef struct { int64_t from, to, size; } Span;
static void eval_leaf_part(Ev *e, Ref r, int i, Part p, Span at)
{
    Shape s = p.s;
    const Node *n = &e->g->n[r];
    Vals *out = slot(e, r, i);
    const EvalJob *j = e->j;
    int group = per_group(n) ? i : j->tensor[i].group;
    double now = j->t - j->group[group].lag;
    int64_t across = axis_len(dom_info[n->dom].axis[1], s);
    for (int64_t x = at.from; x < at.to; x++) {
        double v = 0, slack = 0;
        switch (n->op) {
        case OP_CONST: v = n->imm; break;
        case OP_HYPER: v = j->group[group].hyper[n->sym]; break;
        case OP_STEP: v = now; break;
        case OP_SLOT: v = slot_now(&j->rule->state[n->sym].slots, j->t); break;
        case OP_EVERY: v = fmod(j->t, n->imm) == n->sym; break;
        case OP_COUNT:
            v = dom_of_block((Dom)n->from) && n->dom == TENSOR
                    ? (double)eval_length(e, (Dom)n->from, s)
                    : count_of(e, n,
                               per_group(n) || dom_of_block((Dom)n->from) ? s : j->tensor[i].whole);
            break;
        case OP_DOWN:
            v = (double)((x - at.from) / across % axis_len(dom_info[n->dom].axis[0], s));
            break;
        case OP_ACROSS: v = (double)((x - at.from) % across); break;
        case OP_RANDOM: case OP_NORMAL: {
            double seed = j->group[group].hyper[n->sym];
            bool narrow = !dom_wide((Dom)n->dom) && (j->real == T_F32 || j->f32_draws);
            unsigned id = (unsigned)i, stream = (unsigned)n->imm + 256u * (unsigned)p.size;
            int64_t nth = j->tensor[i].before[n->dom] + x - at.size;
            if (n->op == OP_RANDOM)
                v = narrow ? (double)optc_uniformf(seed, now, id, stream, nth)
                           : optc_uniform(seed, now, id, stream, nth);
            else
                v = narrow ? (double)optc_normalf(seed, now, id, stream, nth)
                           : optc_normal(seed, now, id, stream, nth);
            break;
        }
        default: break;
        }
        out->v[x] = v;
        if (out->lo) {
            out->lo[x] = v - slack;
            out->hi[x] = v + slack;
        }
    }
}

static Vals *tensor_state(const EvalJob *j, int i, int state)
{
    const EvalTensor *x = &j->tensor[i];
    return &x->state[state_array(j->rule->state, state, j->t - j->group[x->group].lag)];
}

static void eval_leaf(Ev *e, Ref r, int i, Shape s)
{
    const Node *n = &e->g->n[r];
    Vals *out = slot(e, r, i);
    const EvalJob *j = e->j;
    switch (n->op) {
    case OP_P: copy_vals(out, &j->tensor[i].p); return;
    case OP_G: copy_vals(out, &j->tensor[i].g); return;
    case OP_STATE:
        copy_vals(out, n->dom == GROUP ? &j->group[i].state[n->sym] : tensor_state(j, i, n->sym));
        return;
    case OP_INPUT:
        copy_vals(out, n->dom == GROUP ? &j->group[i].input[n->sym] : &j->tensor[i].input[n->sym]);
        return;
    default: break;
    }
    int64_t parts = eval_parts(e, (Dom)n->dom, s), x = 0, begins = 0;
    for (int64_t q = 0, end, last = 0; q < parts; q++, x = end) {
        Part p = eval_part(e, (Dom)n->dom, s, q);
        end = x + (per_group(n) ? 1 : dom_len((Dom)n->dom, p.s));
        begins = p.size != last ? x : begins;
        last = p.size;
        eval_leaf_part(e, r, i, p, (Span){x, end, begins});
    }
}

/* Which values each variant needs. Users come after operands, so one walk backwards sees every user
 * first. All variants contribute to a global reduction. */
static void mark_all(const Graph *g, bool *const *need, int nvariant)
{
    for (Ref r = g->len - 1; r >= 0; r--) {
        const Node *n = &g->n[r];
        bool any = need[nvariant][r];
        for (int v = 0; v < nvariant; v++)
            for (int k = 0; k < n->nargs; k++)
                if (is_global(n) ? any && k == v : need[v][r])
                    need[v][n->arg[k]] = need[nvariant][n->arg[k]] = true;
    }
}

static bool (*const eval_call[])(Ev *, Ref, int, Shape) = {
    [CALLEE_PRODUCT] = eval_mm, [CALLEE_FACTOR] = eval_factor, [CALLEE_ORDER] = eval_sort_take};

static bool eval_node(Ev *e, Ref r, bool *const *need)
{
    const Node *n = &e->g->n[r];
    int count = per_group(n) ? e->j->ngroup : e->j->ntensor;
    for (int i = 0; i < count; i++) {
        bool wanted = need[per_group(n) ? e->j->rule->nvariant : e->j->tensor[i].variant][r];
        Shape s = per_group(n) ? group_shape() : e->j->tensor[i].shape;
        if (!wanted || (!per_group(n) && e->j->tensor[i].absent))
            continue;
        if (!vals_new(slot(e, r, i), per_group(n) ? 1 : eval_length(e, (Dom)n->dom, s),
                      e->j->bounds))
            return false;
        if (is_leaf(n))
            eval_leaf(e, r, i, s);
        else if (n->op == OP_TRANSPOSE)
            eval_transpose(e, r, i, s);
        else if (is_call(n) && !eval_call[facts_of(n)->kind](e, r, i, s))
            return false;
        else if (!is_red(n) && !is_call(n))
            eval_op(e, r, i, s);
    }
    return !is_red(n) || eval_red(e, r);
}

static void store(Ev *e, Write w, int i, Vals *target)
{
    const Node *n = &e->g->n[w.val];
    Dom to = w.state == TO_P ? ELEM : e->j->rule->state[w.state].dom;
    Shape s = to == GROUP ? group_shape() : e->j->tensor[i].shape;
    const Vals *in = slot(e, w.val, per_group(n) && to != GROUP ? e->j->tensor[i].group : i);
    bool same = (Dom)n->dom == to;                         /* same layout: no index computation */
    for (int64_t x = 0; x < target->n; x++) {
        int64_t at = same ? x : dom_of_block(to) ? 0 : dom_index(to, (Dom)n->dom, x, s);
        target->v[x] = in->v[at];
        if (target->lo) {
            target->lo[x] = in->lo[at];
            target->hi[x] = in->hi[at];
        }
    }
}

static void write_back(Ev *e, const Entry *en)
{
    EvalJob *j = e->j;
    for (int v = 0; v < j->rule->nvariant; v++)
        for (int k = 0; k < en->body[v].n; k++) {
            Write w = en->body[v].w[k];
            if (w.state != TO_P && j->rule->state[w.state].dom == GROUP) {
                for (int i = 0; i < j->ngroup && (v == 0 || !en->body[0].n); i++)
                    store(e, w, i, &j->group[i].state[w.state]);
                continue;
            }
            for (int i = 0; i < j->ntensor; i++)
                if (j->tensor[i].variant == v && !j->tensor[i].absent)
                    store(e, w, i, w.state == TO_P ? &j->tensor[i].p : tensor_state(j, i, w.state));
        }
}

/* Sets need[v] to the values that variant v's writes need, need[nvariant] to their union, and
 * e->last. */
static void find_need(Ev *e, const Entry *en, bool *const *need)
{
    const Graph *g = e->g;
    int nvariant = e->j->rule->nvariant;
    for (int v = 0; v < nvariant; v++)
        for (int k = 0; k < en->body[v].n; k++) {
            Ref r = en->body[v].w[k].val;
            need[v][r] = need[nvariant][r] = true;
            e->last[r] = g->len;
        }
    mark_all(g, need, nvariant);
    for (Ref r = 0; r < g->len; r++)
        for (int k = 0; k < g->n[r].nargs && need[nvariant][r]; k++)
            if (e->last[g->n[r].arg[k]] < r)
                e->last[g->n[r].arg[k]] = r;
}

static bool eval_nodes(Ev *e, bool *const *need)
{
    const Graph *g = e->g;
    for (Ref r = 0; r < g->len; r++) {
        if (!need[e->j->rule->nvariant][r])
            continue;
        if (!eval_node(e, r, need))
            return false;
        for (int k = 0; k < g->n[r].nargs; k++)            /* frees values after their last use */
            for (int i = 0; e->last[g->n[r].arg[k]] == r && i < e->width; i++)
                vals_free(slot(e, g->n[r].arg[k], i));
    }
    return true;
}

bool eval_entry(EvalJob *j)
{
    const Graph *g = &j->rule->g;
    const Entry *en = &j->rule->entry[j->entry];
    Ev e = {j, g, NULL, NULL, j->ntensor > j->ngroup ? j->ntensor : j->ngroup, j->real};
    e.factor = rule_factor_type(j->rule, target_product(eval_target(&e), j->product), j->real);
    bool *need[MAX_VARIANTS + 1], *all = calloc((size_t)g->len + 1, (size_t)j->rule->nvariant + 1);
    for (int v = 0; all && v <= j->rule->nvariant; v++)
        need[v] = all + v * (g->len + 1);
    e.val = calloc((size_t)(g->len + 1) * (size_t)(e.width + 1), sizeof *e.val);
    e.last = calloc((size_t)g->len + 1, sizeof *e.last);
    bool ok = all && e.val && e.last;
    if (ok)
        find_need(&e, en, need);
    ok = ok && eval_nodes(&e, need);
    if (ok)
        write_back(&e, en);
    for (int64_t i = 0; e.val && i < (int64_t)(g->len + 1) * e.width; i++)
        vals_free(&e.val[i]);
    free(e.val);
    free(e.last);
    free(all);
    return ok;
}
