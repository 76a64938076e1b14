/* Factors of the evaluator, in f64 by other ways than the library's: eigenvectors by rotations, triangles entry by
 * entry, orthonormal columns one after another. Bounds are of first order in how far the matrix may be off. */
#include "eval_in.h"

#include <float.h>

/* a of n x n, both triangles, becomes diagonal by rotations of all pairs again and again; row k of v: the vector of a's
 * k-th entry there. */
static void jacobi(double *a, double *v, int64_t n)
{
    enum { SWEEPS = 60 };
    for (int64_t i = 0; i < n * n; i++)
        v[i] = i / n == i % n;
    for (int sweep = 0; sweep < SWEEPS; sweep++) {
        double off = 0, all = 0;
        for (int64_t i = 0; i < n * n; i++) {
            all += a[i] * a[i];
            off += i / n == i % n ? 0 : a[i] * a[i];
        }
        if (!(off > all * 1e-34))
            return;
        for (int64_t p = 0; p < n; p++)
            for (int64_t q = p + 1; q < n; q++) {
                double apq = a[p * n + q];
                if (apq == 0)
                    continue;
                double h = (a[q * n + q] - a[p * n + p]) / (2 * apq),
                       t = (h < 0 ? -1 : 1) / (fabs(h) + sqrt(h * h + 1)), c = 1 / sqrt(t * t + 1), s = t * c;
                for (int64_t k = 0; k < n; k++) {
                    double x = a[k * n + p], y = a[k * n + q];
                    a[k * n + p] = c * x - s * y, a[k * n + q] = s * x + c * y;
                }
                for (int64_t k = 0; k < n; k++) {
                    double x = a[p * n + k], y = a[q * n + k];
                    a[p * n + k] = c * x - s * y, a[q * n + k] = s * x + c * y;
                    x = v[p * n + k], y = v[q * n + k];
                    v[p * n + k] = c * x - s * y, v[q * n + k] = s * x + c * y;
                }
            }
    }
}

static double ev_least(double x, double least) { return x < least ? least : x; }

typedef struct { double least, most; } Extent;          /* of eigenvalues */

static Extent extent_of(const double *a, int64_t n)
{
    Extent x = {INFINITY, -INFINITY};
    for (int64_t i = 0; i < n; i++) {
        x.least = fmin(x.least, a[i * n + i]);
        x.most = fmax(x.most, a[i * n + i]);
    }
    return x;
}

/* room: of three matrices of n x n. off: how far the matrix may be off; least: what its eigenvalues are lifted to. */
typedef struct { double *a, *b, *v; int64_t m, n; double off; Iv least; } Work;
/* How far off a result may be; INFINITY: there may be none, or any. Below 0: there surely is none; its matrix is not
 * finite. */
enum { NONE_THERE = -1, NO_MATRIX = -2 };

/* out = A^r. A function of eigenvalues moves a symmetric matrix by its slope times what moved it, at most. */
static double power_of(Work f, double r, double *out)
{
    int64_t n = f.n;
    bool any = r > 0 && r == floor(r);
    memcpy(f.b, f.a, sizeof *f.b * (size_t)(n * n));
    jacobi(f.b, f.v, n);
    Extent x = extent_of(f.b, n);
    for (int64_t i = 0; i < n * n; i++) {
        out[i] = 0;
        for (int64_t k = 0; k < n; k++)
            out[i] += f.v[k * n + i / n] * pow(ev_least(f.b[k * n + k], f.least.v), r) * f.v[k * n + i % n];
    }
    double size = fmax(fabs(x.least), fabs(x.most)), all = f.off + 32 * (double)n * 0x1p-53 * size;
    double low = fmax(x.least - all, f.least.lo), high = fmax(x.most + all, f.least.hi);
    if (isnan(f.least.v) || (!any && !(x.least + all > 0) && !(f.least.hi > 0)))
        return NONE_THERE;
    if (!(low > 0) && !any)
        return INFINITY;
    if (isfinite(f.least.hi))
        all += (double)n * (f.least.hi - f.least.lo);
    double from = fmin(fabs(low), fabs(high)), to = fmax(fabs(low), fabs(high));
    double slope = fabs(r) * fmax(pow(any ? to : from, r - 1), pow(to, r - 1));
    return slope * all + 32 * (double)n * 0x1p-53 * fmax(pow(any ? to : from, r), pow(to, r));
}

static double chol_of(Work f, double *out)
{
    int64_t n = f.n;
    memcpy(f.b, f.a, sizeof *f.b * (size_t)(n * n));
    jacobi(f.b, f.v, n);
    Extent x = extent_of(f.b, n);
    for (int64_t j = 0; j < n; j++)
        for (int64_t i = 0; i < n; i++) {
            double s = f.a[i * n + j];
            for (int64_t k = 0; k < j; k++)
                s -= out[i * n + k] * out[j * n + k];
            out[i * n + j] = i < j ? 0 : i == j ? sqrt(s) : s / out[j * n + j];
        }
    double all = f.off + 32 * (double)n * 0x1p-53 * fmax(fabs(x.least), fabs(x.most));
    if (x.least < -4 * all || x.most <= 0)
        return x.most <= 0 && x.most + all > 0 && x.least >= -4 * all && all > 0 ? INFINITY : NONE_THERE;
    return x.least > 4 * all ? 2 * sqrt(x.most * (double)n) * all / x.least : INFINITY;
}

/* Each column less what it has of those before, twice. */
static void orthonormalise(const Work *f, double *out)
{
    int64_t m = f->m, n = f->n;
    memcpy(out, f->a, sizeof *out * (size_t)(m * n));
    for (int64_t j = 0; j < n; j++) {
        double norm = 0;
        for (int twice = 0; twice < 2; twice++)
            for (int64_t k = 0; k < j; k++) {
                double s = 0;
                for (int64_t i = 0; i < m; i++)
                    s += out[i * n + k] * out[i * n + j];
                for (int64_t i = 0; i < m; i++)
                    out[i * n + j] -= s * out[i * n + k];
            }
        for (int64_t i = 0; i < m; i++)
            norm += out[i * n + j] * out[i * n + j];
        for (int64_t i = 0; i < m; i++)
            out[i * n + j] /= sqrt(norm);
    }
}

static double qr_of(Work f, double *out)
{
    int64_t n = f.n;
    for (int64_t i = 0; i < n * n; i++) {
        f.b[i] = 0;
        for (int64_t k = 0; k < f.m; k++)
            f.b[i] += f.a[k * n + i / n] * f.a[k * n + i % n];
    }
    jacobi(f.b, f.v, n);
    Extent x = extent_of(f.b, n);
    orthonormalise(&f, out);
    double least = sqrt(fmax(x.least, 0)), all = f.off + 32 * (double)f.m * 0x1p-53 * sqrt(x.most);
    return least > 4 * all && x.least > 1e-13 * x.most ? 4 * sqrt((double)n) * all / least : INFINITY;
}

/* The lower triangle says all of what is symmetric; false: something is not finite. f->off: the length of all that
 * each entry may be off by. */
static bool read_matrix(const Vals *in, int64_t first, Work *f, bool symmetric)
{
    double off = 0;
    bool finite = true;
    for (int64_t i = 0; i < f->m * f->n; i++) {
        bool turned = symmetric && i % f->n > i / f->n;
        Iv x = val_at(in, first + (turned ? i % f->n * f->n + i / f->n : i));
        double r = fmax(x.hi - x.v, x.v - x.lo);
        f->a[i] = x.v;
        off += r * r;
        finite = finite && isfinite(x.v);
    }
    f->off = sqrt(off);
    return finite;
}

/* Where there is no factor, what is there in its place; where that is not sure, anything. */
static void put_factor(const Ev *e, const Node *n, const Vals *last, Vals *out, int64_t at, double v, double err)
{
    Iv y = {v - err, v, v + err};
    if (err == NONE_THERE)
        y = last ? val_at(last, at) : anything(NAN);
    else if (err == NO_MATRIX)                             /* here: a bound of it may be finite elsewhere */
        y = anything(last ? last->v[at] : NAN);
    else if (out->lo)
        y = isfinite(err) && !isnan(v) ? widen(e, eval_kept(e, y), (Dom)n->dom, 0.5) : anything(v);
    val_put(out, at, y);
}

/* in: the matrix, what eigenvalues are lifted to, what there is where there is no result; the latter two or NULL. */
static void factor_one(const Ev *e, const Node *n, const Vals *const *in, Vals *out, int64_t first, Work f, double *made)
{
    double err = NO_MATRIX;
    if (read_matrix(in[0], first, &f, n->op != OP_QR))
        err = n->op == OP_POWER ? power_of(f, n->imm, made) : n->op == OP_CHOL ? chol_of(f, made) : qr_of(f, made);
    for (int64_t i = 0; i < f.m * f.n; i++)
        put_factor(e, n, in[2], out, first + i, made[i], err);
}

/* Operands by what they are to the call; false: out of memory. */
static bool read_operands(Ev *e, const Node *n, int i, Vals *own, const Vals **in)
{
    bool ok = true;
    for (int k = 0; k < 3; k++) {
        int at = call_operand(n, k);
        in[k] = at < 0 ? NULL : &own[k];
        if (at < 0 || !ok)
            continue;
        bool plain = dom_wide((Dom)e->g->n[n->arg[at]].dom);       /* f64, whatever products are */
        ok = plain ? vals_new(&own[k], slot(e, n->arg[at], i)->n, e->j->bounds) : eval_read(e, n->arg[at], i, &own[k]);
        if (ok && plain)
            copy_vals(&own[k], slot(e, n->arg[at], i));
    }
    return ok;
}

bool eval_factor(Ev *e, Ref r, int i, Shape s)
{
    const Node *n = &e->g->n[r];
    Vals *out = slot(e, r, i), own[3] = {{0}};
    const Vals *in[3];
    Dom d = (Dom)n->dom, over = n->sym & BLOCKED ? BLOCK : SLICE;
    bool ok = read_operands(e, n, i, own, in);
    int64_t parts = ok ? eval_parts(e, over, s) : 0, before = 0, nth = 0;
    for (int64_t q = 0; q < parts && ok; q++) {
        Part p = eval_part(e, over, s, q);
        int64_t down = axis_len(dom_info[d].axis[0], p.s), across = axis_len(dom_info[d].axis[1], p.s);
        int64_t all = down * across, square = across * across;
        double *room = malloc(sizeof *room * (size_t)(2 * all + 2 * square + 1));
        Work f = {room, room + all, room + all + square, down, across, 0, {-INFINITY, -INFINITY, -INFINITY}};
        ok = room != NULL;
        for (int64_t m = 0; m < p.s.slices && ok && all; m++, nth++) {
            f.least = in[1] ? val_at(in[1], nth) : f.least;
            factor_one(e, n, in, out, before + m * all, f, room + all + 2 * square);
        }
        free(room);
        before += n->sym & BLOCKED ? part_length(d, p) : p.s.slices * all;
    }
    for (int k = 0; k < 3; k++)
        vals_free(&own[k]);
    return ok;
}
