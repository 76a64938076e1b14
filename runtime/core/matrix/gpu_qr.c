/* Orthonormal columns (QR) on a GPU, in f64 whatever type the matrices are stored in.
 *
 * The method is Cholesky QR: each round divides the columns by the Cholesky triangle of their Gram
 * matrix. A matrix is settled if it is not stored in f64 and a check after a round finds |Q.T Q -
 * 1| <= settled_off: the result of that round is then stored. The check of a large matrix estimates
 * the norm with random vectors. A graph runs further rounds only if a matrix is not settled
 * (gpu_conditional.c); elsewhere they run too, and do not change settled matrices. The rounds, in
 * order:
 *   1. Rules whose graphs have conditional nodes first try one round, then a second one, with the
 *      diagonal of the Gram matrix as it is (add_short_rounds). Columns of most bases of a power
 *      iteration have very different lengths, but are not nearly parallel; Cholesky's errors do not
 *      depend on lengths. Only a matrix that the first check finds within 0.1 can be settled by the
 *      second round.
 *   2. Two rounds that start again from the matrix: the first with the diagonal slightly raised,
 *      the second as it is. If a column is zero or depends on earlier ones, only rounding errors
 *      are left of it in the second round. Its row of the triangle is zero, so any column may
 *      replace it: random numbers do, which the third round makes orthogonal to the others.
 *   3. A third round for matrices that are not settled. The norm for its result, by the whole Gram
 *      matrix, must be at most columns_off.
 * If the third round fails (huge and tiny values, nothing but zeros), one thread block computes
 * Householder reflections from the original matrix; blocks of other matrices return at once. That
 * block reads the matrix once per column: by its bytes a tenth of a second at 1024 and minutes at
 * 3000. So larger matrices keep the previous result if the call names one. If reflections fail too,
 * the result is NaN, or the previous one. */
#include "runtime/core/matrix/gpu_factor.h"

#include <float.h>
#include <math.h>

static const double columns_off = 1e-6, reflected_most = 0x1p30;
/* Rounding a result of m x n to f32 moves its Gram matrix by about 2^-25 n / sqrt(m): 1e-6 at 1024
 * x 1024. A quarter of that adds 3 % to the error. The estimate by 32 random vectors is below half
 * of the norm with a probability of 5e-6 (chi-squared, for an error of rank 1, the worst case). Of
 * 200 bases of a small transformer under SOAP (ten matrices, every tenth of 200 steps, emulated)
 * two rounds settled 197 within 1e-7, most at 1e-14. One round leaves 1e-13 to 1e-9 where each step
 * has a new gradient (NumPy, 768 columns, spectrum over 4 decades), and 2e-9 to 1e-7 for the fixed
 * gradient of 768 x 3072 that `optc bench` has, whose Gram matrix has rank 768. */
static double settled_off(int64_t m, int64_t n)
{
    return fmin(columns_off, 0x1p-27 * (double)n / sqrt((double)m));
}
/* Flags of steps that skip matrices: only settled ones are computed, or only the others. */
static const unsigned for_settled = 1024, for_open = 2048;

/* Area 3 = sums of squares of Q.T Q - 1, by the Gram matrix Q.T Q in area 2 */
static void add_gram_error(MethodAt *f)
{
    CallStep *s = add_area_step(f, KERNEL_FACTOR_ONE, at(2, 0, 0), f->n, f->n);
    s->c = part_set(f, at(3, 0, 0));
    s->flags = 64;
}

/* Whether the sums are estimated by random vectors v, with v, Q v and Q.T Q v in area 2. Our own
 * product would need row strides for them. */
static bool qr_probed(const MethodAt *f)
{
    return f->x->library && f->n >= probed_rows(f->b) &&
           dom_times(2 * f->n + f->m, PROBES) <= dom_times(f->n, f->n);
}

static void add_probe_error(MethodAt *f, int x)
{
    const int64_t at_q = f->n * PROBES, at_out = at_q + f->m * PROBES;
    const ProductSize forth = {f->m, PROBES, f->n}, back = {f->n, PROBES, f->m};
    const Operand q = operand(part_set(f, at(x, 0, 0)), f->n),
                  v = operand(part_set(f, at(2, 0, 0)), PROBES),
                  qv = operand(part_set(f, at(2, 0, at_q)), PROBES),
                  out = operand(part_set(f, at(2, 0, at_out)), PROBES);
    add_launch(f, KERNEL_FACTOR_SIGNS, v.set, v.set, v.set, f->n, PROBES);
    add_product(f, q, v, qv, forth, 0, 1, 0);
    add_product(f, q, qv, out, back, TRANS_A, 1, 0);
    CallStep *s = add_launch(f, KERNEL_FACTOR_ONE, out.set, out.set, part_set(f, at(3, 0, 0)), f->n,
                             PROBES);
    s->flags = 256;
}

/* The check with this number: settles matrices whose columns in area x are orthonormal, and stores
 * them. Without random vectors, area 2 then has the Gram matrix. */
static void add_settle(MethodAt *f, int x, unsigned number)
{
    bool probed = qr_probed(f);
    if (probed)
        add_probe_error(f, x);
    else
        add_gram(f, x, false), add_gram_error(f);
    CallStep *s =
        add_area_step(f, KERNEL_FACTOR_JUDGE, at(3, 0, 0), f->n, probed ? (int64_t)PROBES : f->n);
    s->alpha = settled_off(f->m, f->n);
    s->flags = 64 | number << 12;
    add_result(f, x, f->m, f->n, for_settled | number << 12);
}

/* The steps up to close_body run only if a matrix is not settled. continues: only if one more round
 * will settle such a matrix. Returns the body's index. */
static int open_body(MethodAt *f, bool continues)
{
    const int set = part_set(f, at(3, 0, 0));
    CallStep *s = add_step(f, STEP_BODY, KERNEL_PHASE, set, set, set);
    s->k = area_to_numbers(f, at(3, 0, 0));
    s->flags = continues;
    return f->x->nstep - 1;
}

static void close_body(MethodAt *f, int body)
{
    f->x->step[body].n = f->x->nstep - 1 - body;
}

/* Few large matrices wait for launches: 48 panels of one matrix of 3072 columns are 95 products, a
 * third of which take 5 us. Panels of 256, by the inverses of blocks on the diagonal in area 2, are
 * 23 products and 5 steps for the inverses. Errors grow with the condition number of a block
 * instead of that of its tiles. They change the space that the first columns span, not
 * orthogonality, and only results in f64 would show it. Our own product takes no pairs. */
static bool qr_by_blocks(const MethodAt *f)
{
    return f->x->library && !stores_f64(f) && f->n > 2 * FACTOR_PANEL && f->m >= f->n;
}

static void add_block_solve(MethodAt *f, TriangleSolve z)
{
    InverseAreas blocks = {z.t, 2, z.to};
    /* the products read zeros above the inverses */
    add_load(f, f->call->a, 2, z.n, z.n, 256);
    add_inverse(f, blocks, z.n, INVERSE_PANEL);
    for (int64_t k = 0, w; k < z.n; k += w) {
        w = z.n - k < INVERSE_PANEL ? z.n - k : (int64_t)INVERSE_PANEL;
        ProductSize size = {z.other, w, w};
        add_off(f, z, k, w, 0, k);
        part_product(f, at(z.from, 0, k), at(2, k, k), at(z.to, 0, k), size, TRANS_B, 1, 0);
    }
}

/* A round from area x to area 1 - x. gram: computes the Gram matrix, which area 2 has otherwise.
 * lift: the share of the trace that is added to the diagonal. flags: of add_chol */
static void add_round(MethodAt *f, int x, bool gram, double lift, unsigned flags)
{
    TriangleSolve z = {3, x, 1 - x, true, true, f->n, f->m};
    if (gram)
        add_gram(f, x, false);
    CallStep *s = add_area_step(f, KERNEL_FACTOR_LIFT, at(2, 0, 0), f->n, f->n);
    s->b = part_set(f, at(4, 0, 0));
    s->alpha = lift;
    add_chol(f, f->n, flags);
    if (qr_by_blocks(f))
        add_block_solve(f, z);
    else
        add_solve(f, z);
}

/* Whether rounds without a raised diagonal are tried. The device decides which rounds follow, so
 * captures of the rule must have conditional nodes: a caller's graph of a rule without periods has
 * none, and would run all rounds. */
static bool qr_short(const MethodAt *f)
{
    return !stores_f64(f) && driver_conditions(f->b) &&
           (f->b->program->nperiod || f->stage->stagger);
}

static void add_short_rounds(MethodAt *f)
{
    add_round(f, 0, true, 0, 2);
    add_settle(f, 1, 1);
    const int body = open_body(f, true);
    add_round(f, 1, qr_probed(f), 0, 2);
    add_settle(f, 0, 2);
    close_body(f, body);
}

CORE void qr_steps(MethodAt *f)
{
    double hair =
        11 * ((double)f->m * (double)f->n + (double)f->n * (double)(f->n + 1)) * DBL_EPSILON / 2;
    bool settles = !stores_f64(f), tries_short = qr_short(f);
    int body = 0;
    add_load(f, f->call->a, 0, f->m, f->n, 0);
    if (tries_short) {
        add_short_rounds(f);
        body = open_body(f, false);
        add_area_step(f, KERNEL_FACTOR_START, at(4, 0, 0), 1, 1)->flags = for_open;
        add_load(f, f->call->a, 0, f->m, f->n, 0);
    }
    add_round(f, 0, true, hair, 0);
    add_round(f, 1, true, 0, 2);
    add_area_step(f, KERNEL_FACTOR_FILL, at(0, 0, 0), f->m, f->n)->a = part_set(f, at(3, 0, 0));
    if (settles)
        add_settle(f, 0, ROUNDS);
    if (tries_short)
        close_body(f, body);
    if (settles)
        body = open_body(f, false);
    add_round(f, 0, !settles || qr_probed(f), 0, 0);
    add_gram(f, 1, true);
    add_area_step(f, KERNEL_FACTOR_ONE, at(2, 0, 0), f->n, f->n)->c = part_set(f, at(3, 0, 0));
    add_area_step(f, KERNEL_FACTOR_JUDGE, at(3, 0, 0), f->n, f->n)->alpha = columns_off;
    /* tests exclude it by that method */
    bool may_reflect = f->gpu->eigen != EIGEN_DIVIDED;
    if (f->call->c < 0 ||
        (may_reflect && (double)f->m * (double)f->n * (double)f->n <= reflected_most)) {
        CallStep *s = add_area_step(f, KERNEL_FACTOR_HOUSE, at(0, 0, 0), f->m, f->n);
        s->a = whole_set(f, f->call->a);
        s->b = part_set(f, at(1, 0, 0));
        s->alpha = columns_off;
    }
    add_store(f, 1, f->m, f->n, settles ? for_open : 0);
    if (settles)
        close_body(f, body);
}
