/* Products on a GPU with an operand that is a lower triangle (LOWER_A, LOWER_B): panels of the
 * result, each with the terms that are not zero.
 *
 * Measured on an H200 in f32, us, one product and panels of 128 / 256 rows or columns:
 *   12 x 768 x 768 by 2304    639, 520 / 554         3072 x 768 by 768 x 768, 12    948, 662 / 713
 *   12 x 768 x 768 by 3072    892, 656 / 710        50257 x 768 by 768 x 768, 1    1226, 786 / 836
 *   12 x 768 x 768 by  768    273, 233 / 223          768 x 1024 by 1024, 1          52, 576 / 312
 * Panels of few tiles leave multiprocessors idle. Panels may change bits, so the choice follows
 * from the shape alone, as if there were one matrix. Of 3783 random products in f32 and f64 with
 * panels of 128 to 384, 123 had other bits than the whole product. All of those that were examined
 * had a last panel of at most 16 rows, so panels have at least PANEL_LEAST rows. Operands must be
 * finite: a whole product gives NaN where infinity meets a zero of the triangle. */
#include "runtime/core/matrix/gpu_calls.h"

#include <string.h>

enum {
    PANEL_TILE = 128,
    PANEL_TILES = 16,
    PANELS_MOST = 8,
    PANELS_FEW = 3,
    PANEL_SIDE = 512,
    PANEL_LEAST = 17,
    ZERO_TERMS = 32
};

/* Rows (columns) of a panel; 0: one product. other: columns (rows) of the result. */
static int64_t lower_panel(const optc_binding *b, int64_t side, int64_t other, bool both)
{
    int block = b->rule->engine->gpu->block;
    if (block)
        return block < side && side <= PANELS_MOST * (int64_t)block ? block : 0;
    if (side < PANEL_SIDE || count_up(other, PANEL_TILE) < PANEL_TILES)
        return 0;
    return count_up(side, PANEL_TILE * (both ? PANELS_FEW : PANELS_MOST)) * PANEL_TILE;
}

/* The corner of a step's operands and result: its first row and column, and its first term. */
typedef struct PanelCorner { int64_t row, col, term; } PanelCorner;

static void add_panel(MethodAt *f, const CallType *t, const ProgCall *c, ProductShape z,
                      PanelCorner at)
{
    CallStep *s = add_product_step(f, t, c, z);
    PointerSet x = set_in(f, c->a), y = set_in(f, c->b), to = set_in(f, c->out);
    x.offset = c->flags & TRANS_A ? at.term * s->lda + at.row : at.row * s->lda + at.term;
    y.offset = c->flags & TRANS_B ? at.col * s->ldb + at.term : at.term * s->ldb + at.col;
    to.offset = at.row * s->ldc + at.col;
    s->a = add_set(f, &x);
    s->b = add_set(f, &y);
    s->c = add_set(f, &to);
}

/* The rest of a panel's rows of a product of two triangles, which is a triangle too: few terms give
 * its zeros. */
static void add_zeros(MethodAt *f, const CallType *t, const ProgCall *c, ProductShape z,
                      PanelCorner at)
{
    at.col = z.k;
    z.n -= z.k;
    z.k = z.k < ZERO_TERMS ? z.k : (int64_t)ZERO_TERMS;
    if (z.n)
        add_panel(f, t, c, z, at);
}

CORE bool add_lower_product(MethodAt *f, const CallType *t, const ProgCall *c, ProductShape z)
{
    bool left = c->flags & LOWER_A, right = c->flags & LOWER_B, ta = c->flags & TRANS_A,
         tb = c->flags & TRANS_B;
    /* forward: terms from 0 to the diagonal */
    bool both = left && right && !ta && !tb, forward = left ? !ta : tb;
    bool plain = t->bytes >= 4 && t->compute != CUBLAS_COMPUTE_32F_FAST_TF32;
    int64_t side = left ? z.m : z.n, w, least = f->gpu->block ? 1 : PANEL_LEAST;
    if (!(left || right) || !plain || z.k != side || z.m < least || z.n < least ||
        (c->c >= 0 && c->c != c->out))
        return false;
    w = lower_panel(f->b, side, left ? z.n : z.m, both);
    for (int64_t k = 0, rows; w && k < side; k += rows) {
        rows = side - k < w + least ? side - k : w;
        PanelCorner at = {left ? k : 0, left ? 0 : k, forward ? 0 : k};
        ProductShape part = z;
        *(left ? &part.m : &part.n) = rows;
        part.k = forward ? k + rows : side - k;
        if (both) {
            add_zeros(f, t, c, part, at);
            part.n = part.k;
        }
        add_panel(f, t, c, part, at);
    }
    return w != 0;
}
