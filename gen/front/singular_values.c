/* svd, spectral_norm and nuclear_norm: by eigenvectors of the smaller Gram matrix, in f64 unless
 * the user chooses the precision of all products. They add no operation.
 *
 *   wide x:  w, U = eigh(x x.T), V = x.T U / s; tall x: w, V = eigh(x.T x), U = x V / s; s =
 *            sqrt(w)
 *
 * Squares lose half of the digits: singular values below the square root of the precision, times
 * the largest one, are rounding noise. In f64 that is f32's precision, so nothing is lost of f32
 * elements. Columns that are divided by noise have any norm, so svd sets them to 0
 * (noise_share). */
#include "gen/front/matrix_values.h"

#include <string.h>

static Dom dom_at(lua_State *L, Ref r) { return (Dom)trace_of(L)->rule->g.n[r].dom; }
static Ref zero(lua_State *L) { return node_const(&trace_of(L)->rule->g, 0); }

/* x without its transpose, as the first argument; wide: no more rows than columns. */
typedef struct Matrix { Ref x; bool transposed, wide; } Matrix;

static Matrix read_matrix(lua_State *L, const char *what, int most)
{
    Trace *t = trace_of(L);
    inside_entry(L, what);
    lang_count(L, what, 1, most);
    Ref x = lang_num(L, 1, what, most);
    Matrix m = {x, t->rule->g.n[x].op == OP_TRANSPOSE, false};
    if (m.transposed)
        m.x = t->rule->g.n[x].arg[0];
    if (!dom_square(dom_at(L, m.x)))
        spec_error(L, "%s takes a matrix; it got %s", what, describe(t, x));
    t->spec[t->at].uses_view = true;
    m.wide = matrix_is_wide(L, dom_at(L, m.x));
    return m;
}

static MatrixEigen eigen_of(lua_State *L, const char *what, Matrix m, bool first)
{
    Ref turned = matrix_transpose(L, m.x);
    Ref square =
        matrix_product(L, what, m.wide ? m.x : turned, m.wide ? turned : m.x, SYMMETRIC | IN_F64);
    return matrix_eigh(L, square, first, NONE);
}

/* of eigenvalues; rounding may leave some below 0 */
static Ref roots(lua_State *L, Ref w)
{
    return trace_op(L, OP_SQRT, trace_op(L, OP_MAX, w, zero(L)), NONE);
}

/* Singular values of at most this share of the largest one are noise. eps: the spacing of products
 * at 1, 2^-52 for f64. The noise of eigenvalues is about eps * s_max^2, so that of s is about
 * sqrt(eps) * s_max. Measured in those units, for 3x10 to 300x300 matrices with singular values of
 * 0, of equal size and in geometric sequences. f64 and f32: with optc_eigh on a CPU; the others:
 * with their rounding emulated on a CPU, not on a GPU.
 *
 *   f64, f32   the noise is up to 1.6 (sums add errors). Columns with s above 4 have norms within
 *              1% of 1, and all of them together a spectral norm of at most 1.1; with s above 1,
 *              some are noise
 *   f16, bf16  the noise is up to 0.5 (only the result is rounded). Columns with s above 1 have
 *              norms within 11% of 1
 *   tf32       the noise is up to 0.03 (only operands are rounded, both equally). 1/4 gives norms
 *              within 1% of 1 */
static double noise_share(const Trace *t)
{
    static const double share[NPRODUCT] = {
        /* 4 * 2^-26, 4 * 2^-11.5 */
        [PRODUCT_F64] = 0x1p-24, [PRODUCT_F32] = 1.381067932004975e-3,
        [PRODUCT_TF32] = 0x1p-7, [PRODUCT_BF16] = 0.08838834764831845, [PRODUCT_F16] = 0x1p-5};
    return share[t->product ? (Product)(t->product - 1) : PRODUCT_F64];
}

int l_svd(lua_State *L)
{
    bool first = lua_type(L, 2) == LUA_TSTRING && !strcmp(lua_tostring(L, 2), "rank");
    if (!lua_isnoneornil(L, 2) && !first)
        return spec_error(L, "svd(x) gives singular vectors and values, and svd(x, \"rank\") the "
                             "first `rank` of them: "
                             "local U, s, V = svd(x)");
    Matrix m = read_matrix(L, "svd", 2);
    MatrixEigen e = eigen_of(L, "svd", m, first);
    Ref s = roots(L, e.w), by = m.wide ? matrix_transpose(L, m.x) : m.x;
    Ref other = trace_op(L, OP_DIV, matrix_product(L, "svd", by, e.v, IN_F64), s);
    Ref share = node_const(&trace_of(L)->rule->g, noise_share(trace_of(L)));
    Ref noise = trace_op(L, OP_MUL, roots(L, trace_fold(L, OP_RMAX, e.w, SLICE)), share);
    other = trace_op3(L, OP_WHERE, trace_op(L, OP_LT, noise, s), other, zero(L));
    bool own_first = m.wide != m.transposed;               /* of x.T the two sides are exchanged */
    push_value(L, own_first ? e.v : other);
    push_value(L, matrix_transpose(L, s));
    push_value(L, own_first ? other : e.v);
    return 3;
}

static int l_spectral_norm(lua_State *L)
{
    Matrix m = read_matrix(L, "spectral_norm", 1);
    push_value(L,
               roots(L, trace_fold(L, OP_RMAX, eigen_of(L, "spectral_norm", m, false).w, SLICE)));
    return 1;
}

static int l_nuclear_norm(lua_State *L)
{
    Matrix m = read_matrix(L, "nuclear_norm", 1);
    push_value(L, trace_fold(L, OP_SUM, roots(L, eigen_of(L, "nuclear_norm", m, false).w), SLICE));
    return 1;
}

void singular_open(lua_State *L)
{
    static const luaL_Reg own[] = {{"svd", l_svd}, {"spectral_norm", l_spectral_norm},
                                   {"nuclear_norm", l_nuclear_norm}, {NULL, NULL}};
    luaL_setfuncs(L, own, 0);
}
