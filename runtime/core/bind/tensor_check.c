/* Checks of one tensor that optc_bind receives: shape, types, strides, and the piece of a larger
 * tensor that it is. */
#include "runtime/core/bind/bind.h"

#include <stdio.h>
#include <string.h>

/* Collects the facts that a spec may ask about a tensor. For a piece they are those of the whole
 * tensor. */
CORE TensorFacts tensor_facts(const optc_tensor *t)
{
    TensorFacts a;
    a.name = t->name, a.tags = t->tags;
    a.rank = t->rank, a.dim = t->global_shape ? t->global_shape : t->shape;
    a.flat = (t->flags & OPTC_AS_VECTOR) != 0;
    a.matrix = !a.flat && !(t->flags & OPTC_USE_STEP);
    a.split = t->split;
    return a;
}

/* The matrix view of a tensor, from its variant. A variant without row or column values uses the
 * views of the others: inputs per row or per column have one length for all variants. */
CORE int view_of(const Program *p, const TensorFacts *a)
{
    int all = 0, own = p->variant[variant_of(p->variant, p->nvariant, a)].view;
    for (int v = 0; v < p->nvariant; v++)
        all |= p->variant[v].view;
    return own ? own : all;
}

/* ---- strides ---- */
CORE bool is_row_major(const optc_tensor *t, const int64_t *stride)
{
    int64_t want = 1;
    for (int k = t->rank - 1; stride && k >= 0; want *= t->shape[k--])
        if (t->shape[k] != 1 && stride[k] != want)
            return false;
    return true;
}

/* The elements fill their range of memory without gaps or overlap: a row-major tensor with permuted
 * dimensions. */
static bool dense(const optc_tensor *t, const int64_t *stride)
{
    bool used[32];
    memset(used, 0, sizeof used);
    int64_t want = 1;
    for (int round = 0; round < t->rank; round++) {
        int at = -1;
        for (int k = 0; k < t->rank; k++)
            if (!used[k] && (t->shape[k] == 1 || stride[k] == want) && (at < 0 || t->shape[k] == 1))
                at = k;
        if (at < 0)
            return false;
        used[at] = true;
        want *= t->shape[at];
    }
    return true;
}

static bool same_strides(const optc_tensor *t)
{
    for (int k = 0; k < t->rank; k++)
        if (t->shape[k] != 1 && t->param_strides[k] != t->grad_strides[k])
            return false;
    return true;
}

static const char *strides_text(const optc_tensor *t, const int64_t *stride, char buf[200])
{
    size_t at = 0;
    for (int k = 0; k < t->rank && at < 180; k++)
        at += (size_t)snprintf(buf + at, 200 - at, "%s%lld", k ? ", " : "",
                               (long long)(stride ? stride[k] : 0));
    if (!stride)
        snprintf(buf, 200, "row-major");
    return buf;
}

/* An elementwise rule accepts any dense layout that parameter and gradient share: it steps the
 * tensor in memory order, and the states follow that order. Rules that use rows and columns need
 * row-major tensors. Parameters and gradients with different layouts are refused. */
static optc_status check_strides(const optc_binding *b, const optc_tensor *t, const char *label)
{
    char x[200], y[200];
    TensorFacts facts = tensor_facts(t);
    bool flat =
        !b->program->variant[variant_of(b->program->variant, b->program->nvariant, &facts)].view;
    if (is_row_major(t, t->param_strides) && is_row_major(t, t->grad_strides))
        return OPTC_OK;
    if (!t->param_strides || !t->grad_strides || !same_strides(t))
        return fail(OPTC_ERROR_ARGUMENT,
                    "optc_bind: %s: its gradient's strides (%s) are not its parameter's (%s): copy "
                    "the gradient into "
                    "the parameter's layout first",
                    label, strides_text(t, t->grad_strides, x),
                    strides_text(t, t->param_strides, y));
    if (!dense(t, t->param_strides))
        return fail(OPTC_ERROR_ARGUMENT,
                    "optc_bind: %s: strides (%s) leave gaps or overlap: only dense layouts can be "
                    "stepped in place",
                    label, strides_text(t, t->param_strides, x));
    if (!flat)
        return fail(OPTC_ERROR_ARGUMENT,
                    "optc_bind: %s: rule '%s' works on rows and columns, and strides (%s) are not "
                    "row-major: make it "
                    "contiguous, or bind it with OPTC_AS_VECTOR if the rule allows",
                    label, b->program->name, strides_text(t, t->param_strides, x));
    return OPTC_OK;
}

/* ---- pieces ---- */
CORE int64_t whole_dim(const optc_tensor *t, int k)
{
    return t->global_shape ? t->global_shape[k] : t->shape[k];
}

CORE int64_t begins_at(const optc_tensor *t, int k) { return t->offset ? t->offset[k] : 0; }

static bool folds(const Program *p, const ProgStage *s)
{
    bool any = false;
    for (int k = 0; k < s->nreads + s->nwrites; k++)
        any = any ||
              p->array[k < s->nreads ? s->reads[k] : s->writes[k - s->nreads]].kind == MEM_PART;
    return any;
}

/* An element's new value depends only on the element, the tensor's sizes and the group's values.
 * There are no values per row and no folds, which would see only the piece. */
static bool elementwise(const Program *p, int variant)
{
    bool is = !p->variant[variant].view;
    for (int i = 0; i < p->nstage; i++) {
        const ProgStage *s = &p->stage[i];
        if (s->kind != S_GROUP && s->variant == variant)
            is = is && (s->kind == S_FLAT || s->kind == S_TENSOR) && !folds(p, s);
    }
    return is;
}

/* A state in block codes that tensors of this variant have; NULL: none. */
static const ProgArray *coded_state(const Program *p, int variant)
{
    for (int k = 0; k < p->narray; k++)
        if (p->array[k].kind == MEM_STATE && p->type[p->array[k].type].block > 1 &&
            p->array[k].held_by >> variant & 1)
            return &p->array[k];
    return NULL;
}

/* The piece as a range of the whole tensor's elements in row-major order. false: it is no such
 * range. */
static bool piece_range(const optc_tensor *t, int64_t *first, int64_t *end, int64_t *all)
{
    bool one_range = is_row_major(t, t->param_strides), cut = false;
    int64_t n = 1;
    *first = 0;
    *all = 1;
    for (int k = t->rank - 1; k >= 0; k--) {
        one_range = one_range && (!cut || t->shape[k] == 1);
        cut = cut || t->shape[k] != whole_dim(t, k);
        *first += begins_at(t, k) * *all;
        *all *= whole_dim(t, k);
        n *= t->shape[k];
    }
    *end = *first + n;
    return one_range || !n;
}

CORE bool box_runs(int rank, const int64_t *shape, const int64_t *whole, int64_t *run,
                   int64_t *apart)
{
    int last = rank - 1;
    int64_t stride = 1, next = 0;
    *run = 1;
    *apart = 0;
    for (; last > 0 && shape[last] == whole[last]; last--)
        stride *= whole[last];
    for (int k = last > 0 ? last : 0; k < rank; k++)
        *run *= shape[k];
    /* stride: of dimension k - 1, in the whole tensor */
    for (int k = last; k > 0 && *run; k--) {
        stride *= whole[k];
        if (shape[k - 1] == 1)
            continue;
        if (*apart && stride != next)
            return false;
        *apart = *apart ? *apart : stride;
        next = stride * shape[k - 1];
    }
    return true;
}

CORE bool piece_runs(const optc_binding *b, const optc_tensor *t, int64_t *run, int64_t *apart)
{
    bool native = HOST()->runs && (b->rule->fn || b->rule->engine->gpu);
    return native && t->global_shape && is_row_major(t, t->param_strides) &&
           box_runs(t->rank, t->shape, t->global_shape, run, apart) && *apart;
}

/* Block codes have one scale per block of the whole tensor: a piece must consist of whole
 * blocks. */
static optc_status check_piece_blocks(const optc_binding *b, const optc_tensor *t, int variant,
                                      const char *label)
{
    const Program *p = b->program;
    const ProgArray *m = coded_state(p, variant);
    int64_t first, end, all, run = 0, apart = 0;
    if (!m || !t->global_shape)
        return OPTC_OK;
    int block = p->type[m->type].block;
    bool range = piece_range(t, &first, &end, &all);
    bool fits = range && (first == end || (first % block == 0 && (end % block == 0 || end == all)));
    if (!range && piece_runs(b, t, &run, &apart))
        fits = first % block == 0 && run % block == 0 && apart % block == 0;
    if (fits || all < OPTC_LEAST_CODED)
        return OPTC_OK;
    return fail(
        OPTC_ERROR_ARGUMENT,
        "optc_bind: %s is a piece of a larger tensor (%s %lld to %lld of %lld), and the state "
        "'%.60s' is "
        "stored as %s in blocks of %d elements: cut the tensor at multiples of %d elements, "
        "or store the state as f32",
        label, range ? "elements" : "separate runs of elements from", (long long)first,
        (long long)end, (long long)all, m->name, p->type[m->type].name, block, block);
}

/* Checks global_shape and offset of a piece, and that the rule can step pieces. */
static optc_status check_piece(const optc_binding *b, const optc_tensor *t, const char *label)
{
    const Program *p = b->program;
    TensorFacts facts = tensor_facts(t);
    int variant = variant_of(p->variant, p->nvariant, &facts);
    bool takes = b->sharded || elementwise(p, variant);
    for (int k = 0; k < t->rank; k++) {
        int64_t all = whole_dim(t, k), at = begins_at(t, k);
        bool inside = at >= 0 && at <= all && t->shape[k] <= all - at;
        if (!inside || (all != t->shape[k] && !takes))
            return fail(OPTC_ERROR_ARGUMENT,
                        "optc_bind: %s is a piece of a larger tensor (dimension %d: %lld of %lld, "
                        "from %lld on): "
                        "%s%.60s%s",
                        label, k, (long long)t->shape[k], (long long)all, (long long)at,
                        inside ? "rule '"
                               : "the piece does not fit into global_shape; check offset",
                        inside ? p->name : "",
                        inside ? "' uses values per row or per tensor, which span the pieces of "
                                 "all processes; bind "
                                 "with optc_bind_sharded"
                               : "");
    }
    return check_piece_blocks(b, t, variant, label);
}

/* The number of the piece's first element, for random draws: its offset in the whole tensor if the
 * piece is a range of elements, else a number such that no two pieces have elements of the same
 * number. Bindings with code for runs replace it (number_runs). */
CORE int64_t elements_before(const optc_tensor *t)
{
    int64_t before = 0, inside = 1;
    for (int k = 0; k < t->rank; k++) {
        int64_t behind = inside;
        for (int i = k + 1; i < t->rank; i++)
            behind *= whole_dim(t, i);
        before += begins_at(t, k) * behind;
        inside *= t->shape[k];
    }
    return before;
}

#define MOST_ELEMENTS ((int64_t)1 << 46)

/* Counts the elements of a shape. A dimension of 0 does not hide others: the product of the rest
 * must be in range too. */
static optc_status check_shape(const optc_tensor *t, const int64_t *dim, const char *what,
                               const char *label, int64_t *n)
{
    int64_t all = 1;
    *n = 1;
    for (int k = 0; k < t->rank; k++) {
        if (dim[k] < 0 || __builtin_mul_overflow(all, dim[k] ? dim[k] : 1, &all) ||
            all > MOST_ELEMENTS)
            return fail(OPTC_ERROR_ARGUMENT,
                        "optc_bind: %s: dimension %d of its %s is negative or too large (%lld; a "
                        "tensor has at most "
                        "2^46 elements)",
                        label, k, what, (long long)dim[k]);
        *n *= dim[k];
    }
    return OPTC_OK;
}

/* The matrices that a tensor is seen as. */
static optc_status check_matrices(const Program *p, const optc_tensor *t, const char *label)
{
    TensorFacts facts = tensor_facts(t);
    int view = p->variant[variant_of(p->variant, p->nvariant, &facts)].view;
    Shape all = count_shape(view_of(p, &facts), t->rank, facts.dim, facts.flat);
    if (t->split < 0 || (t->split > 1 && (t->rank < 2 || facts.flat || all.rows % t->split)))
        return fail(OPTC_ERROR_ARGUMENT, "optc_bind: %s cannot be split into %lld: %s", label,
                    (long long)t->split,
                    t->split < 0                ? "the number is negative"
                    : t->rank < 2 || facts.flat ? "it is no matrix"
                                                : "that does not divide its rows");
    if (view & VIEW_PLAIN && t->rank > 2 && !facts.flat && facts.dim[0] * facts.dim[1] != all.n)
        return fail(OPTC_ERROR_ARGUMENT,
                    "optc_bind: %s has %d dimensions, and rule '%s' takes only matrices of rank 2 "
                    "(view = \"plain\"); "
                    "step it with another rule, or bind it with its shape as rows x cols",
                    label, t->rank, p->name);
    if ((view & (VIEW_FIRST | VIEW_LAST)) == (VIEW_FIRST | VIEW_LAST) && t->rank > 2 && !facts.flat)
        return fail(OPTC_ERROR_ARGUMENT,
                    "optc_bind: %s has %d dimensions, and the rule and a wrapper see it as "
                    "different matrices (view "
                    "\"first\" and \"last\"): "
                    "bind it with OPTC_AS_VECTOR or leave one of them out",
                    label, t->rank);
    return OPTC_OK;
}

CORE optc_status check_tensor(const optc_binding *b, const optc_tensor *t, int i)
{
    char label[96];
    const Program *p = b->program;
    tensor_label(b, i, label);
    if (t->rank < 0 || t->rank > 32 || (t->rank && !t->shape))
        return fail(OPTC_ERROR_ARGUMENT, "optc_bind: %s: %s", label,
                    t->rank && !t->shape ? "its shape is NULL" : "its rank is not in 0..32");
    int64_t n, whole;
    optc_status s = check_shape(t, t->shape, "shape", label, &n);
    if (s == OPTC_OK && t->global_shape)
        s = check_shape(t, t->global_shape, "global shape", label, &whole);
    if (s != OPTC_OK)
        return s;
    if (!t->param && n)
        return fail(OPTC_ERROR_ARGUMENT, "optc_bind: %s: its parameter pointer is NULL", label);
    if (t->grad_count && t->grad_count != n)
        return fail(OPTC_ERROR_ARGUMENT,
                    "optc_bind: %s has %lld elements but its gradient has %lld", label,
                    (long long)n, (long long)t->grad_count);
    const optc_type got[] = {t->param_type, t->grad_type};
    const int want[] = {p->p, p->g};
    const void *const ptr[] = {t->param, t->grad};
    static const char *const what[] = {"parameter", "gradient"};
    for (int k = 0; k < 2; k++) {
        if (got[k] && (int)got[k] - 1 != want[k] && (int)got[k] - 1 != plain_type(want[k]))
            return fail(OPTC_ERROR_ARGUMENT,
                        "optc_bind: %s: its %s is not of the type the rule was compiled for (%s)",
                        label, what[k], p->type[want[k]].name);
        if ((uintptr_t)ptr[k] % (uintptr_t)p->type[want[k]].bytes)
            return fail(OPTC_ERROR_ARGUMENT,
                        "optc_bind: %s: its %s pointer is not aligned to its element", label,
                        what[k]);
    }
    s = n ? check_strides(b, t, label) : OPTC_OK;
    if (s == OPTC_OK)
        s = check_piece(b, t, label);
    return s == OPTC_OK ? check_matrices(p, t, label) : s;
}
