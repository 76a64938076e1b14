/* Factors of the evaluator, in f64 and by other algorithms than the runtime's: eigenvectors by
 * Jacobi rotations, Cholesky factors entry by entry, orthonormal columns by Gram-Schmidt. Bounds
 * are of first order in the error of the matrix. */
#include "gen/eval/eval_internal.h"

#include <float.h>

/* Makes a (n x n, both triangles) diagonal by sweeps of Jacobi rotations over all pairs. Row k of
 * v: the eigenvector of the k-th diagonal entry. */
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
                       t = (h < 0 ? -1 : 1) / (fabs(h) + sqrt(h * h + 1)), c = 1 / sqrt(t * t + 1),
                       s = t * c;
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

typedef struct { double least, most; } Extent;          /* smallest and largest eigenvalue */

static Extent extent_of(const double *a, int64_t n)
{
    Extent x = {INFINITY, -INFINITY};
    for (int64_t i = 0; i < n; i++) {
        x.least = fmin(x.least, a[i * n + i]);
        x.most = fmax(x.most, a[i * n + i]);
    }
    return x;
}

/* a: m x n; b, v: scratch, n x n each. off: error of the matrix (Frobenius norm); least: the floor
 * of its eigenvalues;
 * err: by column of the result, its error. */
typedef struct { double *a, *b, *v, *err; int64_t m, n; double off; Iv least; } Work;
/* The functions below return the error of a result. INFINITY: it may be anything, or not exist.
 * Negative: NONE_THERE: it does not exist; NO_MATRIX: it was not computed, because the matrix is
 * not finite or a pivot is not positive, but the target may compute it, whose rounding differs. */
enum { NONE_THERE = -1, NO_MATRIX = -2 };

/* out = A^r. A change of a symmetric matrix changes a function of its eigenvalues by at most the
 * function's slope times the change. */
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
            out[i] += f.v[k * n + i / n] * pow(ev_least(f.b[k * n + k], f.least.v), r) *
                      f.v[k * n + i % n];
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
    bool positive = true;                                  /* all pivots */
    for (int64_t j = 0; j < n; j++)
        for (int64_t i = 0; i < n; i++) {
            double s = f.a[i * n + j];
            for (int64_t k = 0; k < j; k++)
                s -= out[i * n + k] * out[j * n + k];
            out[i * n + j] = i < j ? 0 : i == j ? sqrt(s) : s / out[j * n + j];
            positive = positive && (i != j || s > 0);
        }
    double all = f.off + 32 * (double)n * 0x1p-53 * fmax(fabs(x.least), fabs(x.most));
    bool perhaps = x.least >= -4 * all && (x.most > 0 || (all > 0 && x.most + all > 0));
    return x.least > 4 * all && x.most > 0 ? 2 * sqrt(x.most * (double)n) * all / x.least
           : !perhaps                      ? NONE_THERE
           : positive                      ? INFINITY
                                           : NO_MATRIX;
}

/* Subtracts from column j its components along the columns before it, twice. Returns its length; 0:
 * nothing is left. */
static double apart(const Work *f, double *out, int64_t j)
{
    int64_t m = f->m, n = f->n;
    double was = 0, norm = 0;
    for (int64_t i = 0; i < m; i++)
        was += out[i * n + j] * out[i * n + j];
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
    return norm > was * 1e-28 ? sqrt(norm) : 0;
}

/* Gram-Schmidt. */
static void orthonormalise(const Work *f, double *out)
{
    int64_t m = f->m, n = f->n;
    memcpy(out, f->a, sizeof *out * (size_t)(m * n));
    for (int64_t j = 0; j < n; j++) {
        double norm = apart(f, out, j);
        /* any other direction: unit vectors, beginning with j */
        for (int64_t e = 0; e < m && !(norm > 0); e++) {
            for (int64_t i = 0; i < m; i++)
                out[i * n + j] = i == (j + e) % m;
            norm = apart(f, out, j);
            norm = norm > 1e-3 / (double)m ? norm : 0;
        }
        for (int64_t i = 0; i < m; i++)
            out[i * n + j] /= norm;
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
    return least > 4 * all && x.least > 1e-13 * x.most ? 4 * sqrt((double)n) * all / least
                                                       : INFINITY;
}

/* ---- eigenvectors ---- */
/* The error of an eigenvector: the error of the matrix over the gap to the other eigenvalues. If
 * within this error another entry of the other sign may be the largest, the sign of the vector is
 * not known: INFINITY. */
static double vector_off(Work f, const double *value, const double *x, int64_t k, double all)
{
    double gap = INFINITY, most = 0;
    int64_t at = 0;
    for (int64_t j = 0; j < f.n; j++) {
        gap = j != k ? fmin(gap, fabs(value[j] - value[k])) : gap;
        if (fabs(x[j]) > most)
            most = fabs(x[j]), at = j;
    }
    double err = f.n > 1 ? 4 * all / gap + 32 * (double)f.n * 0x1p-53 : 0x1p-50;
    for (int64_t j = 0; j < f.n; j++)
        if (x[j] * x[at] < 0 && fabs(x[j]) + 2 * err >= most)
            return INFINITY;
    return gap > 8 * all ? err : INFINITY;
}

/* The first `some` eigenvectors become columns of out, largest eigenvalue first. Errors are in
 * f.err. */
static double eigh_of(Work f, int64_t some, double *out)
{
    int64_t n = f.n;
    double *value = f.err + n;
    memcpy(f.b, f.a, sizeof *f.b * (size_t)(n * n));
    jacobi(f.b, f.v, n);
    Extent e = extent_of(f.b, n);
    double all = f.off + 32 * (double)n * 0x1p-53 * fmax(fabs(e.least), fabs(e.most));
    for (int64_t i = 0; i < n; i++)
        value[i] = f.b[i * n + i];
    for (int64_t k = 0; k < some; k++) {
        int64_t best = 0, at = 0;
        /* NaN in f.b marks vectors that were taken */
        for (int64_t i = 0; i < n; i++)
            best = !isnan(f.b[i]) && (isnan(f.b[best]) || value[i] > value[best]) ? i : best;
        const double *x = f.v + best * n;
        for (int64_t i = 0; i < n; i++)
            at = fabs(x[i]) > fabs(x[at]) ? i : at;
        for (int64_t i = 0; i < n; i++)
            out[i * some + k] = x[at] < 0 ? -x[i] : x[i];
        f.err[k] = vector_off(f, value, x, best, all);
        f.b[best] = NAN;
    }
    return 0;
}

/* ---- solutions ---- */
/* T X = B by the inverse of T. t: n x n, lower triangle; b, x: n x m; dt, db, err: errors of t, b
 * and x by entry. */
typedef struct { double *t, *dt, *inverse, *b, *db, *x, *err; int64_t n, m; } Solve;

/* Computes the inverse. Returns a bound of the relative change of it that dt causes. */
static double invert(const Solve *s)
{
    double most = 0;
    int64_t n = s->n;
    for (int64_t k = 0; k < n; k++)
        for (int64_t i = 0; i < n; i++) {
            double r = i == k;
            for (int64_t j = k; j < i; j++)
                r -= s->t[i * n + j] * s->inverse[j * n + k];
            s->inverse[i * n + k] = i < k ? 0 : r / s->t[i * n + i];
        }
    for (int64_t i = 0; i < n; i++)
        for (int64_t k = 0, j; k <= i; k++) {
            double moved = 0;
            for (j = k; j <= i; j++)
                moved += fabs(s->inverse[i * n + j]) * s->dt[j * n + k];
            most = fmax(most, moved * (double)n);
        }
    return most;
}

/* Solves with T, or with T transposed, and bounds the error of every entry to first order. */
static double solution(Solve *s, bool transposed)
{
    int64_t n = s->n, m = s->m;
    for (int64_t i = 0; i < n; i++) {
        if (s->t[i * n + i] == 0 && s->dt[i * n + i] == 0)
            return NONE_THERE;
        if (fabs(s->t[i * n + i]) <= s->dt[i * n + i])
            return INFINITY;
    }
    double moved = invert(s);
#define AT(M, i, j) (transposed ? (M)[(j) * n + (i)] : (M)[(i) * n + (j)])
    for (int64_t i = 0; i < n; i++)
        for (int64_t k = 0; k < m; k++) {
            s->x[i * m + k] = 0;
            for (int64_t j = 0; j < n; j++)
                s->x[i * m + k] += AT(s->inverse, i, j) * s->b[j * m + k];
        }
    for (int64_t i = 0; i < n; i++)
        for (int64_t k = 0; k < m; k++) {
            double err = 0;
            for (int64_t j = 0; j < n; j++) {
                double by = s->db[j * m + k];
                for (int64_t l = 0; l < n; l++)
                    by += (AT(s->dt, j, l) + 16 * (double)n * 0x1p-53 * fabs(AT(s->t, j, l))) *
                          fabs(s->x[l * m + k]);
                err += fabs(AT(s->inverse, i, j)) * by;
            }
            s->err[i * m + k] = 2 * err + fabs(s->x[i * m + k]) * 0x1p-50;
        }
#undef AT
    return moved < 0.25 ? 0 : INFINITY;
}

/* ---- operands and results ---- */
/* layouts of one matrix; nth: its number */
typedef struct { MatrixLayout a, b, out; int64_t nth; } Site;
static int64_t layout_at(const MatrixLayout *x, int64_t i, int64_t j)
{
    return x->first + i * x->step[0] + j * x->step[1];
}

/* Reads a matrix; of a symmetric one only the lower triangle. f->off: the Frobenius norm of the
 * entries' errors. false: an entry is not finite. */
static bool read_matrix(const Vals *in, const MatrixLayout *at, Work *f, bool symmetric)
{
    double off = 0;
    bool finite = true;
    for (int64_t i = 0; i < f->m; i++)
        for (int64_t j = 0; j < f->n; j++) {
            bool transposed = symmetric && j > i;
            Iv x = val_at(in, transposed ? layout_at(at, j, i) : layout_at(at, i, j));
            double r = fmax(x.hi - x.v, x.v - x.lo);
            f->a[i * f->n + j] = x.v;
            off += r * r;
            finite = finite && isfinite(x.v);
        }
    f->off = sqrt(off);
    return finite;
}

/* Stores an entry of a result. If the factor does not exist: the entry of `last`, or NaN. If that
 * is not certain: the interval of all numbers. */
static void put_factor(const Ev *e, const Node *n, const Vals *last, Vals *out, int64_t at,
                       double v, double err)
{
    Iv y = {v - err, v, v + err};
    if (err == NONE_THERE)
        y = last ? val_at(last, at) : anything(NAN);
    else if (err == NO_MATRIX)                             /* the target's matrix may be finite */
        y = anything(last ? last->v[at] : NAN);
    else if (out->lo)
        y = isfinite(err) && !isnan(v) ? widen(e, eval_rounded(e, y, n), (Dom)n->dom, 0.5)
                                       : anything(v);
    val_put(out, at, y);
}

/* in: the matrix; the floor of eigenvalues or NULL; the result if the factor does not exist, or
 * NULL. */
static bool factor_one(const Ev *e, const Node *n, const Vals *const *in, Vals *out, const Site *s)
{
    int64_t m = s->a.down, k = s->a.across, some = s->out.across, all = m * k, square = k * k;
    double *room = malloc(sizeof *room * (size_t)(2 * all + 2 * square + 2 * k + 1)),
           err = NO_MATRIX;
    if (!room)
        return false;
    Work f = {.a = room, .b = room + all, .m = m, .n = k};
    f.v = f.b + square;
    f.err = f.v + square;
    f.least = in[1] ? val_at(in[1], s->nth) : (Iv){-INFINITY, -INFINITY, -INFINITY};
    double *made = f.err + 2 * k;
    if (read_matrix(in[0], &s->a, &f, n->op != OP_QR))
        err = n->op == OP_POWER  ? power_of(f, n->imm, made)
              : n->op == OP_CHOL ? chol_of(f, made)
              : n->op == OP_QR   ? qr_of(f, made)
                                 : eigh_of(f, some, made);
    if (err != NONE_THERE && err != NO_MATRIX && !eval_fits(e, n, made, m * some))
        err = NO_MATRIX;
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < some; j++)
            put_factor(e, n, in[2], out, layout_at(&s->out, i, j), made[i * some + j],
                       n->op == OP_EIGH && err == 0 ? f.err[j] : err);
    free(room);
    return true;
}

static bool read_near(const Vals *in, const MatrixLayout *at, bool lower, double *v, double *off)
{
    bool finite = true;
    for (int64_t i = 0; i < at->down; i++)
        for (int64_t j = 0; j < at->across; j++) {
            Iv x = val_at(in, layout_at(at, i, j));
            bool read = !lower || j <= i;
            v[i * at->across + j] = read ? x.v : 0;
            off[i * at->across + j] = read ? fmax(x.hi - x.v, x.v - x.lo) : 0;
            finite = finite && (!read || isfinite(x.v));
        }
    return finite;
}

/* A solution from the right is computed transposed. */
static bool solve_one(const Ev *e, const Node *n, const Vals *const *in, Vals *out, const Site *s)
{
    bool right = n->sym & FROM_RIGHT, transposed = (n->sym & TRANS_A) != 0;
    MatrixLayout b = s->b, to = s->out;
    if (right) {
        b = (MatrixLayout){b.across, b.down, {b.step[1], b.step[0]}, b.first};
        to = (MatrixLayout){to.across, to.down, {to.step[1], to.step[0]}, to.first};
    }
    int64_t k = s->a.down, m = b.across;
    double *room = malloc(sizeof *room * (size_t)(3 * k * k + 4 * k * m + 1)), *t = room,
           *y = room + 3 * k * k;
    if (!room)
        return false;
    Solve x = {t, t + k * k, t + 2 * k * k, y, y + k * m, y + 2 * k * m, y + 3 * k * m, k, m};
    bool finite = read_near(in[0], &s->a, true, x.t, x.dt);
    finite = read_near(in[1], &b, false, x.b, x.db) && finite;
    double err = finite ? solution(&x, transposed != right) : NO_MATRIX;
    if (err != NONE_THERE && err != NO_MATRIX && !eval_fits(e, n, x.x, k * m))
        err = NO_MATRIX;
    for (int64_t i = 0; i < k; i++)
        for (int64_t j = 0; j < m; j++)
            put_factor(e, n, in[2], out, layout_at(&to, i, j), x.x[i * m + j],
                       err == 0 ? x.err[i * m + j] : err);
    free(room);
    return true;
}

/* Copies the operands of a call, in[k] by role; NULL: the call has none of this role. false: out of
 * memory. */
static bool read_operands(Ev *e, const Node *n, int i, Vals *own, const Vals **in)
{
    bool ok = true;
    for (int k = 0; k < 3; k++) {
        int at = call_operand(n, k);
        in[k] = at < 0 ? NULL : &own[k];
        if (at < 0 || !ok)
            continue;
        /* f64, whatever the precision of products */
        bool plain = dom_wide((Dom)e->g->n[n->arg[at]].dom);
        ok = plain ? vals_new(&own[k], slot(e, n->arg[at], i)->n, e->j->bounds)
                   : eval_read(e, n->arg[at], i, &own[k], n);
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
    Dom over = n->sym & BLOCKED ? BLOCK : SLICE, of = (Dom)n->from, d = (Dom)n->dom;
    bool ok = read_operands(e, n, i, own, in);
    int64_t parts = ok ? eval_parts(e, over, s) : 0, before[2] = {0};
    Site at = {.nth = 0};
    for (int64_t q = 0; q < parts && ok; q++) {
        Part p = eval_part(e, over, s, q);
        for (int64_t m = 0; m < p.s.slices && ok; m++, at.nth++) {
            at.a = layout_of_part(of, false, &p, s, before[0], m);
            at.b = at.out = layout_of_part(d, false, &p, s, before[1], m);
            ok = (n->op == OP_SOLVE ? solve_one : factor_one)(e, n, in, out, &at);
        }
        before[0] += part_length(of, p);
        before[1] += part_length(d, p);
    }
    for (int k = 0; k < 3; k++)
        vals_free(&own[k]);
    return ok;
}
