/* optc_bind: checks everything that the caller passes, fills groups and tensors, then lets the device allocate. A
 * failed call leaves nothing behind. */
#include "runtime/core/api/core.h"

#include "gen/abi/near_names.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

CORE void *binding_alloc(optc_binding *b, size_t n, size_t size)
{
    BindAlloc *p = (BindAlloc *)calloc(1, sizeof *p + (n + 1) * size + 64);
    if (!p)
        return NULL;
    p->next = b->allocs;
    b->allocs = p;
    return p + 1;
}

CORE const char *tensor_label(const optc_binding *b, int i, char buf[96])
{
    i = b->nheld > b->ntensor ? b->tensor[i].source : i;
    if (b->tensor[i].name)
        snprintf(buf, 96, "tensor '%.60s' (number %d)", b->tensor[i].name, i);
    else
        snprintf(buf, 96, "tensor number %d", i);
    return buf;
}

/* Collects the facts that a spec may ask about a tensor. For a piece they are those of the whole tensor. */
static TensorFacts tensor_facts(const optc_tensor *t)
{
    TensorFacts a;
    a.name = t->name, a.tags = t->tags;
    a.rank = t->rank, a.dim = t->global_shape ? t->global_shape : t->shape;
    a.flat = (t->flags & OPTC_AS_VECTOR) != 0;
    a.matrix = t->rank >= 2 && !a.flat && !(t->flags & OPTC_USE_STEP);
    a.split = t->split;
    return a;
}

/* The matrix view of a tensor, from its variant. A variant without row or column values uses the views of the others:
 * inputs per row or per column have one length for all variants. */
static int view_of(const Program *p, const TensorFacts *a)
{
    int all = 0, own = p->variant[variant_of(p->variant, p->nvariant, a)].view;
    for (int v = 0; v < p->nvariant; v++)
        all |= p->variant[v].view;
    return own ? own : all;
}

/* ---- strides ---- */
static bool row_major(const optc_tensor *t, const int64_t *stride)
{
    int64_t want = 1;
    for (int k = t->rank - 1; stride && k >= 0; want *= t->shape[k--])
        if (t->shape[k] != 1 && stride[k] != want)
            return false;
    return true;
}

/* The elements fill their range of memory without gaps or overlap: a row-major tensor with permuted dimensions. */
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
        at += (size_t)snprintf(buf + at, 200 - at, "%s%lld", k ? ", " : "", (long long)(stride ? stride[k] : 0));
    if (!stride)
        snprintf(buf, 200, "row-major");
    return buf;
}

/* An elementwise rule accepts any dense layout that parameter and gradient share: it steps the tensor in memory order,
 * and the states follow that order. Rules that use rows and columns need row-major tensors. Parameters and gradients
 * with different layouts are refused. */
static optc_status check_strides(const optc_binding *b, const optc_tensor *t, const char *label)
{
    char x[200], y[200];
    TensorFacts facts = tensor_facts(t);
    bool flat =
        !b->program->variant[variant_of(b->program->variant, b->program->nvariant, &facts)].view;
    if (row_major(t, t->param_strides) && row_major(t, t->grad_strides))
        return OPTC_OK;
    if (!t->param_strides || !t->grad_strides || !same_strides(t))
        return fail(OPTC_ERROR_ARGUMENT,
                    "optc_bind: %s: its gradient's strides (%s) are not its parameter's (%s): copy the gradient into "
                    "the parameter's layout first",
                    label, strides_text(t, t->grad_strides, x), strides_text(t, t->param_strides, y));
    if (!dense(t, t->param_strides))
        return fail(OPTC_ERROR_ARGUMENT,
                    "optc_bind: %s: strides (%s) leave gaps or overlap: only dense layouts can be stepped in place",
                    label, strides_text(t, t->param_strides, x));
    if (!flat)
        return fail(OPTC_ERROR_ARGUMENT,
                    "optc_bind: %s: rule '%s' works on rows and columns, and strides (%s) are not row-major: make it "
                    "contiguous, or bind it with OPTC_AS_VECTOR if the rule allows",
                    label, b->program->name, strides_text(t, t->param_strides, x));
    return OPTC_OK;
}

/* ---- pieces ---- */
static int64_t whole_dim(const optc_tensor *t, int k) { return t->global_shape ? t->global_shape[k] : t->shape[k]; }

static int64_t begins_at(const optc_tensor *t, int k) { return t->offset ? t->offset[k] : 0; }

static bool folds(const Program *p, const ProgStage *s)
{
    bool any = false;
    for (int k = 0; k < s->nreads + s->nwrites; k++)
        any = any || p->array[k < s->nreads ? s->reads[k] : s->writes[k - s->nreads]].kind == MEM_PART;
    return any;
}

/* An element's new value depends only on the element, the tensor's sizes and the group's values. There are no values
 * per row and no folds, which would see only the piece. */
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
        if (p->array[k].kind == MEM_STATE && p->type[p->array[k].type].block > 1 && p->array[k].held_by >> variant & 1)
            return &p->array[k];
    return NULL;
}

/* The piece as a range of the whole tensor's elements in row-major order. false: it is no such range. */
static bool piece_range(const optc_tensor *t, int64_t *first, int64_t *end, int64_t *all)
{
    bool one_range = row_major(t, t->param_strides), cut = false;
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

/* Block codes have one scale per block of the whole tensor: a piece must consist of whole blocks. */
static optc_status check_piece_blocks(const optc_binding *b, const optc_tensor *t, int variant, const char *label)
{
    const Program *p = b->program;
    const ProgArray *m = coded_state(p, variant);
    int64_t first, end, all;
    if (!m || !t->global_shape)
        return OPTC_OK;
    int block = p->type[m->type].block;
    bool range = piece_range(t, &first, &end, &all);
    bool fits = range && (first == end || (first % block == 0 && (end % block == 0 || end == all)));
    if (fits || all < OPTC_LEAST_CODED)
        return OPTC_OK;
    return fail(OPTC_ERROR_ARGUMENT,
                "optc_bind: %s is a piece of a larger tensor (%s %lld to %lld of %lld), and the state '%.60s' is "
                "stored as %s in blocks of %d elements: cut the tensor between rows, at a multiple of %d elements, "
                "or store the state as f32",
                label, range ? "elements" : "separate runs of elements from", (long long)first, (long long)end,
                (long long)all, m->name, p->type[m->type].name, block, block);
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
                        "optc_bind: %s is a piece of a larger tensor (dimension %d: %lld of %lld, from %lld on): "
                        "%s%.60s%s",
                        label, k, (long long)t->shape[k], (long long)all, (long long)at,
                        inside ? "rule '" : "the piece does not fit into global_shape; check offset",
                        inside ? p->name : "",
                        inside ? "' uses values per row or per tensor, which span the pieces of all processes; bind "
                                 "with optc_bind_sharded"
                               : "");
    }
    return check_piece_blocks(b, t, variant, label);
}

/* The number of the piece's first element, for random draws: its offset in the whole tensor if the tensor is cut along
 * the first dimension, else a number such that no two pieces have elements of the same number. */
static int64_t elements_before(const optc_tensor *t)
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

/* Counts the elements of a shape. A dimension of 0 does not hide others: the product of the rest must be in range
 * too. */
static optc_status check_shape(const optc_tensor *t, const int64_t *dim, const char *what, const char *label,
                               int64_t *n)
{
    int64_t all = 1;
    *n = 1;
    for (int k = 0; k < t->rank; k++) {
        if (dim[k] < 0 || __builtin_mul_overflow(all, dim[k] ? dim[k] : 1, &all) || all > MOST_ELEMENTS)
            return fail(OPTC_ERROR_ARGUMENT,
                        "optc_bind: %s: dimension %d of its %s is negative or too large (%lld; a tensor has at most "
                        "2^46 elements)", label, k, what, (long long)dim[k]);
        *n *= dim[k];
    }
    return OPTC_OK;
}

static optc_status check_tensor(const optc_binding *b, const optc_tensor *t, int i)
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
        return fail(OPTC_ERROR_ARGUMENT, "optc_bind: %s has %lld elements but its gradient has %lld", label,
                    (long long)n, (long long)t->grad_count);
    const optc_type got[] = {t->param_type, t->grad_type};
    const int want[] = {p->p, p->g};
    const void *const ptr[] = {t->param, t->grad};
    static const char *const what[] = {"parameter", "gradient"};
    for (int k = 0; k < 2; k++) {
        if (got[k] && (int)got[k] - 1 != want[k] && (int)got[k] - 1 != plain_type(want[k]))
            return fail(OPTC_ERROR_ARGUMENT, "optc_bind: %s: its %s is not of the type the rule was compiled for (%s)",
                        label, what[k], p->type[want[k]].name);
        if ((uintptr_t)ptr[k] % (uintptr_t)p->type[want[k]].bytes)
            return fail(OPTC_ERROR_ARGUMENT, "optc_bind: %s: its %s pointer is not aligned to its element", label,
                        what[k]);
    }
    s = n ? check_strides(b, t, label) : OPTC_OK;
    if (s == OPTC_OK)
        s = check_piece(b, t, label);
    if (s != OPTC_OK)
        return s;
    TensorFacts facts = tensor_facts(t);
    int view = p->variant[variant_of(p->variant, p->nvariant, &facts)].view;
    Shape all = count_shape(view_of(p, &facts), t->rank, facts.dim, facts.flat);
    if (t->split < 0 || (t->split > 1 && (t->rank < 2 || facts.flat || all.rows % t->split)))
        return fail(OPTC_ERROR_ARGUMENT, "optc_bind: %s cannot be split into %lld: %s", label, (long long)t->split,
                    t->split < 0              ? "the number is negative"
                    : t->rank < 2 || facts.flat ? "it is no matrix"
                                              : "that does not divide its rows");
    if (view & VIEW_PLAIN && t->rank > 2 && !facts.flat && facts.dim[0] * facts.dim[1] != all.n)
        return fail(OPTC_ERROR_ARGUMENT,
                    "optc_bind: %s has %d dimensions, and rule '%s' takes only matrices of rank 2 (its scale depends "
                    "on a convolution's kernel size, which it cannot see); step it with another rule, or bind it "
                    "with its shape as rows x cols",
                    label, t->rank, p->name);
    if ((view & (VIEW_FIRST | VIEW_LAST)) == (VIEW_FIRST | VIEW_LAST) && t->rank > 2 && !facts.flat)
        return fail(OPTC_ERROR_ARGUMENT,
                    "optc_bind: %s has %d dimensions, and the rule and a wrapper see it as different matrices (view "
                    "\"first\" and \"last\"): "
                    "bind it with OPTC_AS_VECTOR or leave one of them out",
                    label, t->rank);
    return OPTC_OK;
}

/* ---- overlap ---- */
static optc_status check_grads_apart(const optc_binding *b)
{
    const Program *p = b->program;
    optc_status s = OPTC_OK;
    for (int i = 0; i < b->ntensor && s == OPTC_OK; i++)
        s = check_overlap(b, i, b->tensor[i].mem[1], b->tensor[i].shape.n * p->type[p->g].bytes,
                          "optc_bind: the gradient");
    return s;
}

/* ---- hyperparameters ---- */
static optc_status no_hyper(const Program *p, const char *call, const char *name)
{
    Near near;
    char text[256] = "";
    memset(&near, 0, sizeof near);
    near.want = name ? name : "";
    for (int i = 0; i < p->nhyper && name; i++)
        near_try(&near, p->hyper[i].name);
    return fail(OPTC_ERROR_ARGUMENT, "%s: rule '%s' has no hyperparameter '%s'%s", call, p->name,
                name ? name : "(null)", near_print(&near, text, sizeof text));
}

CORE optc_status find_hyper(const Program *p, const char *call, const char *name, int *out)
{
    int i = 0;
    while (name && i < p->nhyper && strcmp(p->hyper[i].name, name))
        i++;
    *out = i;
    return !name || i == p->nhyper ? no_hyper(p, call, name) : OPTC_OK;
}

CORE optc_status check_hyper(const Program *p, const char *call, const char *name, double value, int *out)
{
    optc_status s = find_hyper(p, call, name, out);
    if (s != OPTC_OK)
        return s;
    const ProgHyper *h = &p->hyper[*out];
    if ((h->lo_open ? value > h->lo : value >= h->lo) && (h->hi_open ? value < h->hi : value <= h->hi))
        return OPTC_OK;
    return fail(OPTC_ERROR_RANGE, "%s: %s = %g is outside its range %c%g, %g%c%s", call, name, value,
                h->lo_open ? '(' : '[', h->lo, h->hi, h->hi_open ? ')' : ']',
                h->lo == 0 && h->hi == 0 ? "; a wrapper decays the weights in place of the rule, which does not see "
                                           "them: set galore.decay or fira.decay to lr * weight decay"
                                         : "");
}

/* ---- groups and tensors ---- */
static optc_status fill_group(optc_binding *b, const optc_group *group, Group *g)
{
    const Program *p = b->program;
    optc_status made = cohort_make(b, g, (int)(g - b->group), false);
    if (made != OPTC_OK)
        return made;
    for (int k = 0; k < p->nhyper; k++)
        g->hyper[k + 1] = p->hyper[k].def;
    for (int k = 0; k < group->nhyper; k++) {
        int at = 0;
        optc_status s = check_hyper(p, "optc_bind", group->hyper[k].name, group->hyper[k].value, &at);
        if (s != OPTC_OK)
            return s;
        g->hyper[at + 1] = group->hyper[k].value;
    }
    return OPTC_OK;
}

static int64_t directions(const Program *p, Shape s)
{
    int64_t most = s.rows < s.cols ? s.rows : s.cols;
    return p->rank < most ? p->rank : most;
}

static uint64_t hash_number(uint64_t h, uint64_t x) { return (h ^ x) * 1099511628211u; }

static uint64_t tensor_identity(const optc_tensor *t, int group)
{
    uint64_t h = hash_number(1469598103934665603u, (uint64_t)group);
    for (const char *s = t->name; s && *s; s++)
        h = hash_number(h, (unsigned char)*s);
    for (const char *s = t->tags; s && *s; s++)
        h = hash_number(h, (unsigned char)*s);
    for (int k = 0; k < t->rank; k++)
        h = hash_number(h, (uint64_t)whole_dim(t, k));
    return hash_number(hash_number(hash_number(h, (uint64_t)t->rank), t->flags), (uint64_t)t->split);
}

static optc_status fill_tensor(optc_binding *b, const optc_tensor *t, int at, int group)
{
    const Program *p = b->program;
    Tensor *x = &b->tensor[at];
    x->mem = TAKE(b, void *, p->narray);
    x->name = t->name ? TAKE(b, char, strlen(t->name) + 1) : NULL;
    if (!x->mem || (t->name && !x->name))
        return no_memory("optc_bind");
    if (t->name)
        strcpy(x->name, t->name);
    optc_status s = check_tensor(b, t, at);
    if (s != OPTC_OK)
        return s;
    x->rank = t->rank;
    if (!(x->dim = TAKE(b, int64_t, 3 * t->rank)))
        return no_memory("optc_bind");
    x->whole_dim = x->dim + t->rank;
    x->offset = x->whole_dim + t->rank;
    for (int k = 0; k < t->rank; k++) {
        x->dim[k] = t->shape[k];
        x->whole_dim[k] = whole_dim(t, k);
        x->offset[k] = begins_at(t, k);
    }
    TensorFacts facts = tensor_facts(t);
    TensorFacts piece = facts;
    piece.dim = t->shape;
    x->whole = facts_shape(&facts, view_of(p, &facts));
    x->whole.rank = directions(p, x->whole);
    x->whole.block = p->block;
    x->shape = facts_shape(&piece, view_of(p, &facts));
    x->shape.rank = x->whole.rank;
    x->shape.block = p->block;
    x->before[ELEM] = elements_before(t);
    x->variant = variant_of(p->variant, p->nvariant, &facts);
    x->group = x->cohort = group;
    x->source = at;
    x->identity = tensor_identity(t, group);
    x->needs_grad = (b->sharded ? x->whole.n : x->shape.n) > 0;
    x->mem[0] = t->param;
    x->mem[1] = (void *)(uintptr_t)t->grad;
    if (__builtin_add_overflow(b->elems, x->whole.n, &b->elems))
        return fail(OPTC_ERROR_ARGUMENT, "optc_bind: the tensors have more than 2^63 elements together");
    return bind_caller_states(b, at, t->states);
}

static optc_status fill_all(optc_binding *b, const optc_group *groups)
{
    optc_status s = OPTC_OK;
    int at = 0;
    for (int i = 0; i < b->ngroup && s == OPTC_OK; i++)
        s = fill_group(b, &groups[i], &b->group[i]);
    for (int i = b->ngroup; i < b->ncohort && s == OPTC_OK; i++)
        s = cohort_make(b, &b->group[i], 0, true);
    for (int i = 0; i < b->ngroup && s == OPTC_OK; i++) {
        b->group[i].first = at;
        b->group[i].count = groups[i].ntensors;
        for (int k = 0; k < groups[i].ntensors && s == OPTC_OK; k++)
            s = fill_tensor(b, &groups[i].tensors[k], at++, i);
    }
    return s;
}

/* ---- bindings ---- */
static optc_status bind_all(optc_binding *b, const optc_group *groups, const optc_comm *comm)
{
    b->ncohort = b->ngroup + b->rule->device->spare_cohorts;
    b->group = TAKE(b, Group, b->ncohort);
    b->tensor = TAKE(b, Tensor, b->ntensor);
    optc_status s = b->group && b->tensor ? fill_all(b, groups) : no_memory("optc_bind");
    b->nheld = b->ntensor;
    if (s == OPTC_OK)
        warn_stacks(b);
    if (s == OPTC_OK)
        s = check_params_apart(b);
    if (comm)                                     /* also after a failure: the other ranks must learn of it */
        s = shards_make(b, comm, s);
    else if (s == OPTC_OK)
        s = blocks_make(b);
    if (s == OPTC_OK && !comm)
        s = stagger_make(b);
    if (s == OPTC_OK)
        s = check_states_apart(b);
    if (s == OPTC_OK)
        s = check_grads_apart(b);
    if (s == OPTC_OK)
        s = cohorts_prepare(b);
    if (s == OPTC_OK)
        s = layout_measure(b);
    if (b->plan)
        return s;
    if (s == OPTC_OK)
        s = b->rule->device->bind(b);
    if (s == OPTC_OK)
        s = stagger_write(b);
    if (comm)
        s = shards_agree(b, s);
    if (s == OPTC_OK && HOST()->bound)
        HOST()->bound(b);
    return s;
}

static void binding_free(optc_binding *b)
{
    b->rule->device->unbind(b);
    for (BindAlloc *p = b->allocs, *next; p; p = next) {
        next = p->next;
        free(p);
    }
    free(b);
}

static optc_status bind_groups(optc_rule *r, const optc_group *groups, int ngroups, const optc_comm *comm, bool plan,
                               optc_binding **out)
{
    int64_t n = 0;
    for (int i = 0; i < ngroups; i++) {
        if (groups[i].ntensors < 0 || (groups[i].ntensors && !groups[i].tensors) || groups[i].nhyper < 0 ||
            (groups[i].nhyper && !groups[i].hyper))
            return fail(OPTC_ERROR_ARGUMENT, "optc_bind: group %d: tensors or hyper is NULL with a count above 0, or "
                                             "a count is negative", i);
        n += groups[i].ntensors;
    }
    if (n > (1 << 24))
        return fail(OPTC_ERROR_ARGUMENT, "optc_bind: there are %lld tensors; a binding has at most 2^24", (long long)n);
    optc_binding *b = (optc_binding *)calloc(1, sizeof *b);
    if (!b)
        return no_memory("optc_bind");
    b->rule = r;
    b->program = r->program;
    b->ngroup = ngroups;
    b->ntensor = (int)n;
    b->sharded = comm != NULL;
    b->plan = plan;
    optc_status s = bind_all(b, groups, comm);
    if (s != OPTC_OK) {
        char why[MOST_MESSAGE];                           /* binding_free may replace the message */
        memcpy(why, optc_message(), sizeof why);
        binding_free(b);
        return fail(s, "%s", why);
    }
    __atomic_add_fetch(&r->bindings, 1, __ATOMIC_SEQ_CST);
    *out = b;
    return OPTC_OK;
}

/* Converts groups and tensors to this version's structs, in one allocation. */
static optc_status read_groups(const optc_group *in, size_t size, size_t tensor_size, int n, optc_group **out)
{
    const StructVersion as = {"optc_bind_sized", "optc_group", "optc_bind", sizeof(optc_group)},
                  at = {"optc_bind_sized", "optc_tensor", "optc_bind", sizeof(optc_tensor)};
    size_t all = 0;
    optc_group one;
    optc_status s = OPTC_OK;
    for (int i = 0; i < n && s == OPTC_OK; i++) {
        s = struct_read(&as, &one, (const char *)in + size * (size_t)i, size);
        all += s == OPTC_OK && one.tensors && one.ntensors > 0 ? (size_t)one.ntensors : 0;
    }
    if (s != OPTC_OK)
        return s;
    optc_group *g = *out = (optc_group *)malloc(sizeof *g * (size_t)n + sizeof(optc_tensor) * (all + 1));
    if (!g)
        return no_memory("optc_bind");
    optc_tensor *t = (optc_tensor *)(void *)(g + n);
    s = struct_read_array(&as, g, in, size, n);
    for (int i = 0; i < n && s == OPTC_OK; i++)
        if (g[i].tensors && g[i].ntensors > 0) {
            s = struct_read_array(&at, t, g[i].tensors, tensor_size, g[i].ntensors);
            g[i].tensors = t;
            t += g[i].ntensors;
        }
    return s;
}

static optc_status bind_sized(optc_rule *r, const optc_group *groups, int ngroups, size_t group_size,
                              size_t tensor_size, const optc_comm *comm, optc_binding **out)
{
    if (out)
        *out = NULL;
    if (!r || !groups || !out || ngroups < 1)
        return fail(OPTC_ERROR_ARGUMENT, "optc_bind: %s",
                    !r        ? "the rule is NULL"
                    : !groups ? "the groups are NULL"
                    : !out    ? "the pointer for the binding is NULL"
                              : "ngroups must be 1 or more");
    if (group_size == sizeof(optc_group) && tensor_size == sizeof(optc_tensor))
        return bind_groups(r, groups, ngroups, comm, false, out);
    optc_group *g = NULL;
    optc_status s = read_groups(groups, group_size, tensor_size, ngroups, &g);
    if (s == OPTC_OK)
        s = bind_groups(r, g, ngroups, comm, false, out);
    free(g);
    return s;
}

CORE optc_status bind_plan(optc_rule *r, const optc_group *groups, int ngroups, const optc_comm *comm,
                           optc_binding **out)
{
    return bind_groups(r, groups, ngroups, comm, true, out);
}

optc_status optc_bind_sized(optc_rule *r, const optc_group *groups, int ngroups, size_t group_size, size_t tensor_size,
                            optc_binding **out)
{
    return bind_sized(r, groups, ngroups, group_size, tensor_size, NULL, out);
}

optc_status optc_bind_sharded_sized(optc_rule *r, const optc_group *groups, int ngroups, size_t group_size,
                                    size_t tensor_size, const optc_comm *comm, optc_binding **out)
{
    if (out)
        *out = NULL;
    if (!comm || !comm->all_gather || !comm->all_to_all || comm->ranks < 1 || comm->rank < 0 ||
        comm->rank >= comm->ranks)
        return fail(OPTC_ERROR_ARGUMENT, "optc_bind_sharded: %s",
                    !comm                                     ? "the communication table is NULL"
                    : !comm->all_gather || !comm->all_to_all ? "a function of the communication table is NULL"
                                                              : "rank is not in 0..ranks - 1");
    return bind_sized(r, groups, ngroups, group_size, tensor_size, comm, out);
}

optc_status optc_unbind(optc_binding *b)
{
    if (!b)
        return OPTC_OK;
    __atomic_sub_fetch(&b->rule->bindings, 1, __ATOMIC_SEQ_CST);
    binding_free(b);
    return OPTC_OK;
}
