/* Products and transposes of the evaluator, in f64 by plain loops. */
#include "gen/eval/eval_internal.h"

static MatrixLayout layout_of(Dom d, bool transposed, Shape s)
{
    MatrixAxes m = dom_matrix(d, false);
    int64_t down = axis_len(m.down, s), across = axis_len(m.across, s);
    return transposed ? (MatrixLayout){across, down, {1, across}, 0}
                      : (MatrixLayout){down, across, {across, 1}, 0};
}

void eval_transpose(Ev *e, Ref r, int i, Shape s)
{
    const Node *n = &e->g->n[r];
    const Vals *in = slot(e, n->arg[0], i);
    Vals *out = slot(e, r, i);
    int64_t parts = eval_parts(e, (Dom)n->dom, s), first = 0;
    for (int64_t q = 0; q < parts; q++) {
        Part p = eval_part(e, (Dom)n->dom, s, q);
        int64_t down = axis_len(dom_info[n->dom].axis[0], p.s),
                across = axis_len(dom_info[n->dom].axis[1], p.s);
        int64_t count = p.s.slices * down * across;
        for (int64_t x = 0; x < count; x++) {
            int64_t m = x / (down * across), at = x % (down * across);
            val_put(out, first + x,
                    val_at(in, first + m * down * across + at % across * down + at / across));
        }
        first += count;
    }
}

static Product precision_of(const Ev *e, const Node *n)
{
    return product_precision(e->j->product, (unsigned)n->sym);
}

/* The type that operands and results of a call are rounded to. A product rounds to its own type,
 * tf32 to ten bits. */
static const TypeInfo *kept_in(const Ev *e, const Node *call)
{
    return &type_info[call->op == OP_MM ? target_product(eval_target(e), precision_of(e, call))
                                        : e->factor];
}

bool eval_fits(const Ev *e, const Node *call, const double *x, int64_t n)
{
    double most = kept_in(e, call)->most;
    for (int64_t i = 0; i < n; i++)
        if (!(fabs(x[i]) <= most))
            return false;
    return true;
}

Iv eval_rounded(const Ev *e, Iv x, const Node *call)
{
    bool product = call->op == OP_MM;
    const TypeInfo *t = kept_in(e, call);
    bool tf32 = product && eval_target(e)->gpu && precision_of(e, call) == PRODUCT_TF32;
    double rel = tf32 ? 0x1p-10 : ldexp(1, -t->digits);
    if (t == &type_info[T_F64])
        return x;
    x.lo -= fabs(x.lo) * rel + t->least;
    x.hi += fabs(x.hi) * rel + t->least;
    return (Iv){x.lo < -t->most ? -INFINITY : x.lo, x.v, x.hi > t->most ? INFINITY : x.hi};
}

/* A sum of k products in any order. Its error is at most k roundings of the sum of magnitudes, on
 * the target and here. */
typedef struct { double v, lo, hi, mag; } Dot;

static Dot dot_of(const Vals *a, int64_t at, int64_t astep, const Vals *b, int64_t bt,
                  int64_t bstep, int64_t k)
{
    Dot d = {0};
    for (int64_t x = 0; x < k; x++, at += astep, bt += bstep) {
        d.v += a->v[at] * b->v[bt];
        if (!a->lo)
            continue;
        double c[4] = {a->lo[at] * b->lo[bt], a->lo[at] * b->hi[bt], a->hi[at] * b->lo[bt],
                       a->hi[at] * b->hi[bt]};
        double lo = c[0], hi = c[0];
        for (int i = 1; i < 4; i++) {
            lo = c[i] < lo || isnan(c[i]) ? c[i] : lo;
            hi = c[i] > hi || isnan(c[i]) ? c[i] : hi;
        }
        d.lo += lo;
        d.hi += hi;
        d.mag += fmax(fabs(lo), fabs(hi));
    }
    return d;
}

/* diagonal: added to this value, which may be rounded before and after the addition */
static Iv dot_bounds(const Ev *e, const Node *n, Dot d, const Iv *c, double diagonal, int64_t k)
{
    const TypeInfo *sums = &type_info[type_info[product_info[precision_of(e, n)].gpu].compute];
    double u = ldexp(1, -sums->digits), most = sums->most;
    double v = n->imm * d.v + (c ? n->beta * c->v : 0) + diagonal,
           own = (double)(k + 2) * (u + 0x1p-53);
    double lo = n->imm * (n->imm < 0 ? d.hi : d.lo), hi = n->imm * (n->imm < 0 ? d.lo : d.hi),
           mag = fabs(n->imm) * d.mag;
    if (c) {
        lo += n->beta * (n->beta < 0 ? c->hi : c->lo);
        hi += n->beta * (n->beta < 0 ? c->lo : c->hi);
        mag += fabs(n->beta) * fmax(fabs(c->lo), fabs(c->hi));
    }
    Iv b = {lo - own * mag - least(e, ELEM), v, hi + own * mag + least(e, ELEM)};
    if (isnan(v) || isnan(b.lo) || isnan(b.hi) || !(d.mag <= most))
        return anything(v);
    b = widen(e, eval_rounded(e, b, n), (Dom)n->dom, 0.5);
    if (diagonal == 0)
        return b;
    b.lo += diagonal, b.hi += diagonal;
    return widen(e, eval_rounded(e, b, n), (Dom)n->dom, 0.5);
}

bool eval_read(Ev *e, Ref r, int i, Vals *out, const Node *call)
{
    const Vals *in = slot(e, r, i);
    if (!vals_new(out, in->n, e->j->bounds))
        return false;
    copy_vals(out, in);
    for (int64_t k = 0; out->lo && k < out->n; k++)
        val_put(out, k, eval_rounded(e, val_at(out, k), call));
    return true;
}

/* The product of one matrix or one block. a, b, c: layouts of the operands and the result. */
static void eval_one(const Ev *e, const Node *n, const Vals *in, Vals *out, MatrixLayout a,
                     MatrixLayout b, MatrixLayout c)
{
    for (int64_t x = 0; x < a.down * b.across; x++) {
        int64_t row = x / b.across, col = x % b.across,
                at = c.first + row * c.step[0] + col * c.step[1];
        if (n->sym & SYMMETRIC && col > row)
            continue;
        Dot d = dot_of(&in[0], a.first + row * a.step[0], a.step[1], &in[1],
                       b.first + col * b.step[1], b.step[0], a.across);
        Iv z = n->nargs > 2 ? val_at(&in[2], at) : (Iv){0};
        double diagonal = row == col ? n->diagonal : 0;
        Iv y = out->lo ? dot_bounds(e, n, d, n->nargs > 2 ? &z : NULL, diagonal, a.across)
                       : (Iv){0, n->imm * d.v + (n->nargs > 2 ? n->beta * z.v : 0) + diagonal, 0};
        val_put(out, at, y);
        if (n->sym & SYMMETRIC)
            val_put(out, c.first + col * c.step[0] + row * c.step[1], y);
    }
}

MatrixLayout layout_of_part(Dom d, bool transposed, const Part *p, Shape all, int64_t before,
                            int64_t m)
{
    MatrixLayout x = layout_of(d, transposed, p->s);
    if (d != ELEM) {
        x.first = before + m * x.down * x.across;
        return x;
    }
    x.step[transposed ? 1 : 0] = all.cols;
    x.first = ((p->slice + m) * all.rows + p->row) * all.cols + p->col;
    return x;
}

bool eval_mm(Ev *e, Ref r, int i, Shape s)
{
    const Node *n = &e->g->n[r];
    Vals *out = slot(e, r, i), in[3] = {{0}};
    bool ok = true;
    for (int k = 0; k < n->nargs && ok; k++)
        ok = eval_read(e, n->arg[k], i, &in[k], n);
    Dom over = n->sym & BLOCKED ? BLOCK : SLICE;
    const Dom d[3] = {(Dom)e->g->n[n->arg[0]].dom, (Dom)e->g->n[n->arg[1]].dom, (Dom)n->dom};
    int64_t before[3] = {0}, parts = ok ? eval_parts(e, over, s) : 0;
    for (int64_t q = 0; q < parts; q++) {
        Part p = eval_part(e, over, s, q);
        for (int64_t m = 0; m < p.s.slices; m++)
            eval_one(e, n, in, out, layout_of_part(d[0], n->sym & TRANS_A, &p, s, before[0], m),
                     layout_of_part(d[1], n->sym & TRANS_B, &p, s, before[1], m),
                     layout_of_part(d[2], false, &p, s, before[2], m));
        for (int k = 0; k < 3; k++)
            before[k] += part_length(d[k], p);
    }
    for (int k = 0; k < 3; k++)
        vals_free(&in[k]);
    return ok;
}
