/* Blocks: a rule with `block` sees a larger matrix as blocks of at most that many rows and columns.
 *
 * The layout of elements does not change. Values per block (domains of SCOPE_BLOCK) are one array
 * per tensor: first the whole blocks, then those at the right edge, at the bottom edge and in the
 * corner. Blocks of one size are ordered by matrix, then row-major within the matrix. All blocks of
 * one size form a view: a Tensor after the bound tensors, with one matrix per block and pointers
 * into the tensor's arrays. Stages over blocks and products iterate over views; a product finds a
 * block's elements by their offset in the matrix and the matrix's row stride. A tensor that is not
 * larger than a block has one view, of the whole tensor. */
#include "runtime/core/bind/bind.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

/* ---- making views ---- */
static bool array_blocked(const ProgArray *m)
{
    return dom_of_block(m->kind == MEM_PART ? m->from : m->dom);
}

static unsigned variants_blocked(const Program *p)
{
    unsigned mask = 0;
    for (int i = 0; i < p->nstage; i++)
        mask |= stage_of_blocks(&p->stage[i]) ? 1u << p->stage[i].variant : 0;
    for (int k = 0; k < p->narray; k++)
        mask |= array_blocked(&p->array[k]) ? p->array[k].held_by : 0;
    return mask;
}

static optc_status check_blocks(const optc_binding *b, int tensor)
{
    const Shape s = b->tensor[tensor].shape;
    int64_t n = dom_len(BLOCK, s);
    char label[96];
    if (n <= INT_MAX)
        return OPTC_OK;
    return fail(OPTC_ERROR_ARGUMENT,
                "optc_bind: %s (%lld x %lld x %lld) would have %s%lld blocks of at most %lld x "
                "%lld; the limit is "
                "2^31 - 1: give rule '%s' a larger block",
                tensor_label(b, tensor, label), (long long)s.slices, (long long)s.rows,
                (long long)s.cols, n >= (int64_t)1 << 58 ? "over " : "", (long long)n,
                (long long)s.block, (long long)s.block, b->program->name);
}

static optc_status add_views(optc_binding *b, int tensor)
{
    Tensor *t = &b->tensor[tensor];
    t->first_view = b->nall;
    for (int k = 0; k < BLOCK_SIZES; k++) {
        BlockSize size = block_size(t->shape, k);
        Tensor *v = &b->tensor[b->nall];
        if (!size.shape.slices)
            continue;
        *v = *t;
        v->of = tensor;
        v->nview = 0;
        v->blocks = size;
        v->shape = v->whole = size.shape;
        if (!(v->mem = TAKE(b, void *, b->program->narray)))
            return no_memory("optc_bind");
        b->nall++;
        t->nview++;
    }
    return OPTC_OK;
}

CORE optc_status blocks_make(optc_binding *b)
{
    const Program *p = b->program;
    unsigned mask = variants_blocked(p);
    Tensor *was = b->tensor;
    int64_t n = 0;
    b->nall = b->nheld;
    for (int i = 0; i < b->nheld; i++) {
        was[i].of = i;
        was[i].even = true;
        for (int k = 0; mask >> was[i].variant & 1 && k < BLOCK_SIZES; k++)
            n += block_size(was[i].shape, k).shape.slices > 0;
    }
    if (!n)
        return OPTC_OK;
    if (n + b->nheld > INT_MAX / 2 || !(b->tensor = TAKE(b, Tensor, n + b->nheld))) {
        b->tensor = was;
        return no_memory("optc_bind");
    }
    memcpy(b->tensor, was, sizeof *was * (size_t)b->nheld);
    optc_status s = OPTC_OK;
    for (int i = 0; i < b->nheld && s == OPTC_OK; i++)
        if (mask >> was[i].variant & 1) {
            s = check_blocks(b, i);
            s = s == OPTC_OK ? add_views(b, i) : s;
        }
    return s;
}

/* ---- a block's elements ---- */
CORE int64_t row_stride(const optc_binding *b, const Tensor *t)
{
    return b->tensor[t->of].shape.cols;
}

CORE int64_t matrix_at(const optc_binding *b, const Tensor *t, int array, int64_t nth)
{
    const Program *p = b->program;
    const Tensor *all = &b->tensor[t->of];
    const BlockSize *z = &t->blocks;
    if (p->array[array].dom != ELEM || all == t)
        return dom_inside(p->array[array].dom) ? nth * dom_len_inside(p->array[array].dom, t->shape)
                                               : 0;
    int64_t each = z->down * z->across, i = nth % each / z->across, j = nth % z->across;
    int64_t row = nth / each * all->shape.rows + z->row + i * p->block;
    return row * all->shape.cols + z->col + j * p->block;
}

/* ---- pointers ---- */
/* Pointer of a view: into the tensor's array of values per block, or (before 0) the tensor's own
 * pointer. */
static void point_view(const optc_binding *b, const Tensor *v, int array, int64_t before)
{
    const Program *p = b->program;
    char *base = (char *)b->tensor[v->of].mem[array];
    v->mem[array] = base ? base + before * p->type[p->array[array].type].bytes : NULL;
}

/* All blocks of a view start at multiples of 8 elements (array 0 is p). */
static bool begin_even(const optc_binding *b, const Tensor *v)
{
    for (int64_t k = 0; k < v->shape.slices; k++)
        if (matrix_at(b, v, 0, k) % 8)
            return false;
    return true;
}

CORE void blocks_point(optc_binding *b)
{
    const Program *p = b->program;
    for (int i = b->nheld; i < b->nall; i++)
        b->tensor[i].even = begin_even(b, &b->tensor[i]);
    for (int k = 0; k < p->narray; k++) {
        int64_t before = 0;
        for (int i = b->nheld; i < b->nall; i++) {
            Tensor *v = &b->tensor[i];
            before = i == b->tensor[v->of].first_view ? 0 : before;
            point_view(b, v, k, array_blocked(&p->array[k]) ? before : 0);
            v->even = v->even && (!array_blocked(&p->array[k]) || before % 8 == 0);
            before += array_length(&p->array[k], v->shape, v->whole, b->ntensor);
        }
    }
}

/* Copies the tensor's optc_view and sets what differs. first: index among the tensor's views; each
 * view has its own random draws. */
CORE void blocks_views(optc_binding *b)
{
    for (int i = b->nheld; i < b->nall; i++) {
        Tensor *v = &b->tensor[i];
        v->view = b->tensor[v->of].view;
        v->view.mem = v->mem;
        v->view.n = v->shape.n, v->view.slices = v->shape.slices;
        v->view.rows = v->shape.rows, v->view.cols = v->shape.cols, v->view.rank = v->shape.rank;
        v->view.first = i - b->tensor[v->of].first_view;
        v->view.first_row = v->view.first_col = v->view.first_slice = 0;
    }
}

CORE void tensor_follow(const optc_binding *b, Tensor *x, const Tensor *t)
{
    const Program *p = b->program;
    x->cohort = t->cohort;
    x->view.hyper = t->view.hyper;
    x->view.n = t->view.n < 0 ? -1 : x->shape.n;
    x->view.present = t->view.present;
    x->view.total = t->view.total;
    for (int k = 0; k < p->narray; k++)
        if (p->array[k].dom == GROUP)
            x->mem[k] = t->mem[k];
}

CORE void blocks_update(optc_binding *b)
{
    for (int i = b->nheld; i < b->nall; i++)
        tensor_follow(b, &b->tensor[i], &b->tensor[b->tensor[i].of]);
}

CORE void blocks_moved(optc_binding *b, int tensor, int array)
{
    const Tensor *t = &b->tensor[tensor];
    for (int i = t->first_view; i < t->first_view + t->nview; i++)
        b->tensor[i].mem[array] = t->mem[array];
}

/* ---- units of work ---- */
CORE const Units *stage_tensors(const optc_binding *b, const ProgStage *s, int batch)
{
    if (stage_of_blocks(s))
        return batch < 0 ? &b->blocks[s->variant] : &b->batch[batch].blocks;
    return batch < 0 ? &b->units[s->variant] : &b->batch[batch].units;
}

typedef struct SortedView { Shape shape; int64_t apart; bool even; int view; } SortedView;

static int compare_numbers(int64_t a, int64_t b) { return (a > b) - (a < b); }

static int by_size(const void *a, const void *b)
{
    const SortedView *x = (const SortedView *)a, *y = (const SortedView *)b;
    int by = compare_numbers(x->shape.slices, y->shape.slices);
    by = by ? by : compare_numbers(x->shape.rows, y->shape.rows);
    by = by ? by : compare_numbers(x->shape.cols, y->shape.cols);
    by = by ? by : compare_numbers(x->apart, y->apart);
    by = by ? by : compare_numbers(x->even, y->even);
    return by ? by : x->view - y->view;
}

/* Lists the views of some tensors, sorted so that views which can share one call are neighbours. */
CORE optc_status blocks_units(optc_binding *b, const Units *of, Units *out)
{
    int n = 0, k = 0;
    if (!b->program->block)
        return OPTC_OK;
    for (int i = 0; i < of->n; i++)
        n += b->tensor[of->tensor[i]].nview;
    SortedView *x = (SortedView *)calloc((size_t)n + 1, sizeof *x);
    out->tensor = TAKE(b, int, n);
    if (!x || !out->tensor) {
        free(x);
        return no_memory("optc_bind");
    }
    for (int i = 0; i < of->n; i++) {
        const Tensor *t = &b->tensor[of->tensor[i]];
        for (int v = t->first_view; v < t->first_view + t->nview; v++, k++) {
            x[k].shape = b->tensor[v].shape;
            x[k].apart = row_stride(b, &b->tensor[v]);
            x[k].even = b->tensor[v].even;
            x[k].view = v;
        }
    }
    qsort(x, (size_t)n, sizeof *x, by_size);
    for (int i = 0; i < n; i++)
        out->tensor[i] = x[i].view;
    out->n = n;
    free(x);
    return units_count(b, out);
}
