/* Binding: checks everything the caller hands in, then lays out one block for all states, temporaries and partials. */
#include "gpu.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

const char *tensor_label(const optc_binding *b, int i, char buf[96])
{
    if (b->tensor[i].name)
        snprintf(buf, 96, "tensor '%.60s' (number %d)", b->tensor[i].name, i);
    else
        snprintf(buf, 96, "tensor number %d", i);
    return buf;
}

Shape shape_of(const Rule *r, int rank, const int64_t *dim, bool vector) { return count_shape(rule_view(r), rank, dim, vector); }

/* What a rule may ask about a tensor, to choose how it is stepped. */
static AboutTensor asked(const optc_tensor *t)
{
    bool flat = t->flags & OPTC_AS_VECTOR;
    return (AboutTensor){t->name, t->tags, t->rank, t->shape, t->rank >= 2 && !flat && !(t->flags & OPTC_USE_STEP), flat};
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

/* Every place from the first to the last is an element's, and one element's only: a row-major tensor with its dimensions in another order. */
static bool dense(const optc_tensor *t, const int64_t *stride)
{
    bool used[32] = {false};
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

/* An elementwise rule does not care where in memory an element lies as long as its gradient lies alike: such a tensor is stepped in the order of
 * memory, and its states follow that order. Where rows and columns count, or the two differ, nothing is guessed. */
static optc_status check_strides(const optc_binding *b, const optc_tensor *t, const char *label)
{
    char x[200], y[200];
    AboutTensor ask = asked(t);
    bool flat = !b->rule->rule->variant[variant_of(b->rule->rule->variant, b->rule->rule->nvariant, &ask)].view;
    if (row_major(t, t->param_strides) && row_major(t, t->grad_strides))
        return OPTC_OK;
    if (!t->param_strides || !t->grad_strides || !same_strides(t))
        return fail(OPTC_ERROR_ARGUMENT, "optc_bind: %s: its gradient's strides (%s) are not its parameter's (%s): copy the gradient into the parameter's layout first", label,
                    strides_text(t, t->grad_strides, x), strides_text(t, t->param_strides, y));
    if (!dense(t, t->param_strides))
        return fail(OPTC_ERROR_ARGUMENT, "optc_bind: %s: strides (%s) leave gaps or overlap: only dense layouts can be stepped in place", label, strides_text(t, t->param_strides, x));
    if (!flat)
        return fail(OPTC_ERROR_ARGUMENT, "optc_bind: %s: rule '%s' works on rows and columns, and strides (%s) are not row-major: make it contiguous, or bind it with OPTC_AS_VECTOR if the rule allows", label,
                    b->rule->rule->name, strides_text(t, t->param_strides, x));
    return OPTC_OK;
}

static optc_status check_tensor(const optc_binding *b, const optc_tensor *t, int i)
{
    char label[96];
    const Plan *p = b->rule->plan;
    tensor_label(b, i, label);
    if (t->rank < 0 || t->rank > 32 || (t->rank && !t->shape))
        return fail(OPTC_ERROR_ARGUMENT, "optc_bind: %s: %s", label, t->rank && !t->shape ? "its shape is NULL" : "its rank is not in 0..32");
    int64_t n = 1;
    for (int k = 0; k < t->rank; k++)
        if (t->shape[k] < 0 || __builtin_mul_overflow(n, t->shape[k], &n) || n > ((int64_t)1 << 46))
            return fail(OPTC_ERROR_ARGUMENT, "optc_bind: %s: dimension %d of its shape is negative or too large", label, k);
    if (!t->param && n)
        return fail(OPTC_ERROR_ARGUMENT, "optc_bind: %s: its parameter pointer is NULL", label);
    if (t->grad_count && t->grad_count != n)
        return fail(OPTC_ERROR_ARGUMENT, "optc_bind: %s has %lld elements but its gradient has %lld", label, (long long)n, (long long)t->grad_count);
    const struct { optc_type got; Type want; const char *what; const void *ptr; } ty[] = {{t->param_type, p->p, "parameter", t->param}, {t->grad_type, p->g, "gradient", t->grad}};
    for (int k = 0; k < 2; k++) {
        if (ty[k].got && inner_type(ty[k].got) != (int)ty[k].want)
            return fail(OPTC_ERROR_ARGUMENT, "optc_bind: %s: its %s is not of the type the rule was compiled for (%s)", label, ty[k].what, type_info[ty[k].want].name);
        if ((uintptr_t)ty[k].ptr % (uintptr_t)type_info[ty[k].want].bytes)
            return fail(OPTC_ERROR_ARGUMENT, "optc_bind: %s: its %s pointer is not aligned to its element", label, ty[k].what);
    }
    optc_status s = n ? check_strides(b, t, label) : OPTC_OK;
    if (s != OPTC_OK)
        return s;
    if (rule_view(b->rule->rule) == (VIEW_FIRST | VIEW_LAST) && t->rank > 2 && !(t->flags & OPTC_AS_VECTOR))
        return fail(OPTC_ERROR_ARGUMENT, "optc_bind: %s has %d dimensions, and the rule and a wrapper see it as different matrices (view \"first\" and \"last\"): "
                    "bind it with OPTC_AS_VECTOR or leave one of them out", label, t->rank);
    return OPTC_OK;
}

/* ---- overlap ---- */
typedef struct { uintptr_t lo, hi; int tensor; } Span;

static int by_start(const void *a, const void *b)
{
    uintptr_t x = ((const Span *)a)->lo, y = ((const Span *)b)->lo;
    return x < y ? -1 : x > y;
}

static Span param_span(const optc_binding *b, int i)
{
    uintptr_t lo = (uintptr_t)b->tensor[i].mem[0];
    return (Span){lo, lo + (uintptr_t)b->tensor[i].shape.n * (uintptr_t)type_info[b->rule->plan->p].bytes, i};
}

static optc_status check_params_apart(const optc_binding *b)
{
    Span *s = malloc(sizeof *s * (size_t)(b->ntensor + 1));
    optc_status st = s ? OPTC_OK : fail(OPTC_ERROR_MEMORY, "optc_bind: out of memory");
    int n = 0;
    for (int i = 0; s && i < b->ntensor; i++)
        if (b->tensor[i].shape.n)
            s[n++] = param_span(b, i);
    if (s)
        qsort(s, (size_t)n, sizeof *s, by_start);
    for (int i = 1; i < n && st == OPTC_OK; i++)
        if (s[i].lo < s[i - 1].hi) {
            char x[96], y[96];
            st = fail(OPTC_ERROR_ARGUMENT, "optc_bind: the parameters of %s and %s overlap in memory", tensor_label(b, s[i - 1].tensor, x), tensor_label(b, s[i].tensor, y));
        }
    free(s);
    return st;
}

/* Something that is read must not lie in a parameter, which is written. */
optc_status check_overlap(const optc_binding *b, int tensor, const void *data, int64_t bytes, const char *what)
{
    uintptr_t lo = (uintptr_t)data, hi = lo + (uintptr_t)bytes;
    for (int i = 0; data && bytes && i < b->ntensor; i++) {
        Span s = param_span(b, i);
        if (lo < s.hi && s.lo < hi && s.lo < s.hi) {
            char x[96], y[96];
            return fail(OPTC_ERROR_ARGUMENT, "%s of %s overlaps the parameter of %s in memory", what, tensor_label(b, tensor, x), tensor_label(b, i, y));
        }
    }
    return OPTC_OK;
}

/* All gradients against all parameters in one sweep: binding thousands of tensors stays quick. */
static optc_status check_grads_apart(const optc_binding *b)
{
    Span *s = malloc(sizeof *s * (size_t)(b->ntensor + 1));
    if (!s)
        return fail(OPTC_ERROR_MEMORY, "optc_bind: out of memory");
    int n = 0;
    for (int i = 0; i < b->ntensor; i++)
        if (b->tensor[i].shape.n)
            s[n++] = param_span(b, i);
    qsort(s, (size_t)n, sizeof *s, by_start);
    optc_status st = OPTC_OK;
    for (int i = 0; i < b->ntensor && st == OPTC_OK; i++) {
        uintptr_t lo = (uintptr_t)b->tensor[i].mem[1], hi = lo + (uintptr_t)b->tensor[i].shape.n * (uintptr_t)type_info[b->rule->plan->g].bytes;
        int from = 0, to = n;                    /* the first parameter that ends behind lo: they do not overlap each other */
        while (from < to) {
            int mid = (from + to) / 2;
            if (s[mid].hi <= lo)
                from = mid + 1;
            else
                to = mid;
        }
        if (lo && from < n && s[from].lo < hi) {
            char x[96], y[96];
            st = fail(OPTC_ERROR_ARGUMENT, "optc_bind: the gradient of %s overlaps the parameter of %s in memory", tensor_label(b, i, x), tensor_label(b, s[from].tensor, y));
        }
    }
    free(s);
    return st;
}

/* ---- layout ---- */
static int64_t mem_bytes(const optc_binding *b, const Mem *m, int variant, Shape s)
{
    const Plan *p = b->rule->plan;
    if (m->kind == MEM_STATE && !p->state_used[variant * p->rule->nstate + m->sym])
        return 0;
    int64_t n = m->kind == MEM_PART ? part_len(m, s, b->ntensor) : dom_len(m->dom, s);
    return n * type_info[m->type].bytes;
}

static bool ours(const Mem *m) { return m->kind == MEM_STATE || m->kind == MEM_TEMP || m->kind == MEM_PART || (m->kind == MEM_INPUT && m->dom == GROUP); }

/* One walk measures (base NULL) and one places. Group arrays belong to groups; the fold over tensors is one array for all. */
static size_t layout(optc_binding *b, char *base)
{
    const Plan *p = b->rule->plan;
    size_t at = 0;
    for (int k = 0; k < p->nmem; k++) {
        const Mem *m = &p->mem[k];
        if (!ours(m))
            continue;
        bool grouped = m->dom == GROUP;
        int64_t shared = grouped && m->kind == MEM_PART ? (int64_t)8 * b->ntensor : 0;
        for (int i = 0; i < (shared ? 1 : grouped ? b->ngroup : b->ntensor); i++) {
            int64_t bytes = shared ? shared : grouped ? type_info[m->type].bytes : mem_bytes(b, m, b->tensor[i].variant, b->tensor[i].shape);
            void *ptr = base && bytes ? base + at : NULL;
            at += ((size_t)bytes + 63) & ~(size_t)63;
            if (!base)
                continue;
            int g0 = shared ? 0 : i, g1 = shared ? b->ngroup : i + 1;
            for (int g = g0; g < g1 && grouped; g++) {
                b->group[g].mem[k] = ptr;
                for (int j = b->group[g].first; j < b->group[g].first + b->group[g].count; j++)
                    b->tensor[j].mem[k] = ptr;
            }
            if (!grouped)
                b->tensor[i].mem[k] = ptr;
        }
    }
    return at;
}

/* Tensors of each variant, and how many units of each kind of stage lie before each. */
static void count_units(optc_binding *b)
{
    for (int v = 0; v < b->rule->rule->nvariant; v++) {
        Units *u = &b->units[v];
        u->tensor = NEWS(&b->arena, int, b->ntensor + 1);
        for (int i = 0; i < b->ntensor; i++)
            if (b->tensor[i].variant == v) {
                u->tensor[u->n++] = i;
                u->elems += b->tensor[i].shape.n;
            }
        for (int k = 0; k < NSTAGEKIND; k++) {
            u->prefix[k] = NEWS(&b->arena, int64_t, u->n + 1);
            for (int i = 0; i < u->n; i++) {
                Shape s = b->tensor[u->tensor[i]].shape;
                u->prefix[k][i + 1] = u->prefix[k][i] + stage_units((StageKind)k, s);
                u->longest[k] = list_length((StageKind)k, s) > u->longest[k] ? list_length((StageKind)k, s) : u->longest[k];
            }
        }
    }
}

static optc_status check_hyper(const Rule *r, const char *call, const char *name, double value, int *out)
{
    Arena scratch = {0};
    Near near = {.want = name ? name : ""};
    for (int i = 0; name && i < r->nhyper; i++) {
        const Hyper *h = &r->hyper[i];
        near_try(&near, h->name);
        if (strcmp(h->name, name))
            continue;
        *out = i;
        if (hyper_allows(h, value))
            return OPTC_OK;
        return fail(OPTC_ERROR_RANGE, "%s: %s = %g lies outside its range %s", call, name, value, hyper_range(h, (char[64]){0}));
    }
    optc_status s = fail(OPTC_ERROR_ARGUMENT, "%s: rule '%s' has no hyperparameter '%s'%s", call, r->name, name ? name : "(null)", near_text(&near, &scratch));
    arena_free(&scratch);
    return s;
}

static optc_status fill_groups(optc_binding *b, const optc_group *groups)
{
    const Rule *r = b->rule->rule;
    for (int i = 0; i < b->ngroup; i++) {
        Group *g = &b->group[i];
        g->hyper = NEWS(&b->arena, double, r->nhyper + 1);
        g->mem = NEWS(&b->arena, void *, b->rule->plan->nmem + 1);
        for (int k = 0; k < r->nhyper; k++)
            g->hyper[k + 1] = r->hyper[k].def;
        for (int k = 0; k < groups[i].nhyper; k++) {
            int at;
            optc_status s = check_hyper(r, "optc_bind", groups[i].hyper[k].name, groups[i].hyper[k].value, &at);
            if (s != OPTC_OK)
                return s;
            g->hyper[at + 1] = groups[i].hyper[k].value;
        }
    }
    return OPTC_OK;
}

static optc_status fill_tensors(optc_binding *b, const optc_group *groups)
{
    int at = 0;
    for (int i = 0; i < b->ngroup; i++) {
        b->group[i].first = at;
        b->group[i].count = groups[i].ntensors;
        for (int k = 0; k < groups[i].ntensors; k++, at++) {
            const optc_tensor *t = &groups[i].tensors[k];
            Tensor *x = &b->tensor[at];
            x->name = t->name ? arena_strdup(&b->arena, t->name) : NULL;
            optc_status s = check_tensor(b, t, at);
            if (s != OPTC_OK)
                return s;
            bool vector = t->flags & OPTC_AS_VECTOR;
            x->shape = shape_of(b->rule->rule, t->rank, t->shape, vector);
            AboutTensor ask = asked(t);
            x->variant = variant_of(b->rule->rule->variant, b->rule->rule->nvariant, &ask);
            x->group = i;
            x->mem = NEWS(&b->arena, void *, b->rule->plan->nmem + 1);
            x->mem[0] = t->param;
            x->mem[1] = (void *)t->grad;
            b->elems += x->shape.n;
        }
    }
    return OPTC_OK;
}

static void fill_views(optc_binding *b)
{
    for (int i = 0; i < b->ntensor; i++) {
        Tensor *t = &b->tensor[i];
        t->view = (optc_view){t->mem, b->group[t->group].hyper, t->shape.n, t->shape.slices, t->shape.rows, t->shape.cols, i, b->ntensor, b->elems};
    }
    for (int i = 0; i < b->ngroup; i++)
        b->group[i].view = (optc_view){b->group[i].mem, b->group[i].hyper, 1, 1, 1, 1, i, b->ntensor, b->elems};
}

/* Large blocks on large pages: a step walks several arrays at once and would miss the TLB on small ones. */
static void *block_alloc(size_t bytes)
{
    size_t page = 2 << 20, align = bytes >= 4 * page ? page : 64;
    void *p = aligned_alloc(align, (bytes + align - 1) / align * align);
    if (p && align == page)
        (void)madvise(p, bytes, MADV_HUGEPAGE);
    return p;
}

/* Once the block is there: where everything lies in it, and what stages see of it. */
void place_binding(optc_binding *b)
{
    layout(b, b->block);
    fill_views(b);
    count_units(b);
}

static void use_measured(optc_binding *b)
{
    TunedKey k;
    const char *from = NULL;
    cpu_tuned_key(b->rule, b->elems, &k);
    int lo = 0, hi = INT_MAX;
    tuned_reach(&k, &lo, &hi);
    const Tuned *t = tuned_look(&b->rule->engine->tuned, &k, lo, hi, &from);
    if (t) {
        b->threads = t->launch.v[KNOB_THREADS];
        b->grain = t->launch.v[KNOB_ITEMS];
    }
    rule_launches(b->rule, b->rule->module ? t : NULL, from, k.bucket, !b->threads && !b->grain);
}

static optc_status bind_cpu(optc_binding *b)
{
    optc_engine *e = b->rule->engine;
    b->block_bytes += 64;
    b->block = e->memory.alloc ? e->memory.alloc(e->memory.context, b->block_bytes, NULL) : block_alloc(b->block_bytes);
    if (!b->block)
        return fail(OPTC_ERROR_MEMORY, "optc_bind: out of memory: the states and temporaries of '%s' on %d tensors take %zu bytes", b->rule->rule->name, b->ntensor, b->block_bytes);
    memory_took(e, (int64_t)b->block_bytes);
    if ((uintptr_t)b->block % 64)
        return fail(OPTC_ERROR_ARGUMENT, "optc_bind: the caller's allocator gave memory that is not aligned to 64 bytes");
    place_binding(b);
    init_state(b);
    use_measured(b);
    return OPTC_OK;
}

static void unbind_cpu(optc_binding *b)
{
    optc_engine *e = b->rule->engine;
    if (!b->block)
        return;
    if (e->memory.alloc)
        e->memory.release(e->memory.context, b->block, b->block_bytes, NULL);
    else
        free(b->block);
    memory_took(e, -(int64_t)b->block_bytes);
}

static optc_status bind(optc_binding *b, const optc_group *groups)
{
    optc_status s = fill_groups(b, groups);
    if (s == OPTC_OK)
        s = fill_tensors(b, groups);
    if (s == OPTC_OK)
        s = check_params_apart(b);
    if (s == OPTC_OK)
        s = check_grads_apart(b);
    if (s != OPTC_OK)
        return s;
    b->block_bytes = layout(b, NULL);
    return b->rule->engine->gpu ? gpu_bind(b) : bind_cpu(b);
}

static void binding_free(optc_binding *b)
{
    if (b->gpu)
        gpu_unbind(b);
    else if (!b->rule->engine->gpu)
        unbind_cpu(b);
    arena_free(&b->arena);
    free(b);
}

optc_status optc_bind(optc_rule *r, const optc_group *groups, int ngroups, optc_binding **out)
{
    if (out)
        *out = NULL;
    if (!r || !groups || !out || ngroups < 1)
        return fail(OPTC_ERROR_ARGUMENT, "optc_bind: %s", !r ? "the rule is NULL" : !groups ? "the groups are NULL" : !out ? "the place for the binding is NULL" : "there is no group");
    int64_t n = 0;
    for (int i = 0; i < ngroups; i++) {
        if (groups[i].ntensors < 0 || (groups[i].ntensors && !groups[i].tensors) || groups[i].nhyper < 0 || (groups[i].nhyper && !groups[i].hyper))
            return fail(OPTC_ERROR_ARGUMENT, "optc_bind: group %d: a NULL list or a negative count", i);
        n += groups[i].ntensors;
    }
    if (n > (1 << 24))
        return fail(OPTC_ERROR_ARGUMENT, "optc_bind: over 2^24 tensors");
    optc_binding *b = calloc(1, sizeof *b);
    jmp_buf oom;
    int depth = gpu_depth();
    if (!b)
        return fail(OPTC_ERROR_MEMORY, "optc_bind: out of memory");
    b->rule = r;
    if (setjmp(oom)) {
        b->arena.out = NULL;
        if (r->engine->gpu)
            gpu_unwind(r->engine->gpu, depth);
        binding_free(b);
        return fail(OPTC_ERROR_MEMORY, "optc_bind: out of memory");
    }
    b->arena.out = &oom;
    b->ngroup = ngroups;
    b->ntensor = (int)n;
    b->group = NEWS(&b->arena, Group, ngroups);
    b->tensor = NEWS(&b->arena, Tensor, n + 1);
    optc_status s = bind(b, groups);
    b->arena.out = NULL;
    if (s != OPTC_OK) {
        char why[1024];                           /* giving back must not lose the message */
        snprintf(why, sizeof why, "%s", optc_message());
        binding_free(b);
        return fail(s, "%s", why);
    }
    atomic_fetch_add(&r->bindings, 1);
    *out = b;
    return OPTC_OK;
}

optc_status optc_unbind(optc_binding *b)
{
    if (!b)
        return OPTC_OK;
    atomic_fetch_sub(&b->rule->bindings, 1);
    binding_free(b);
    return OPTC_OK;
}

int optc_tensors(const optc_binding *b) { return b ? b->ntensor : 0; }

optc_status optc_set_hyper(optc_binding *b, int group, const char *name, double value)
{
    int at;
    if (!b || group < -1 || group >= b->ngroup)
        return fail(OPTC_ERROR_ARGUMENT, !b ? "optc_set_hyper: the binding is NULL" : "optc_set_hyper: there is no group %d", group);
    optc_status s = check_hyper(b->rule->rule, "optc_set_hyper", name, value, &at);
    for (int i = 0; s == OPTC_OK && i < b->ngroup; i++)
        if (group == -1 || group == i) {
            double was = b->group[i].hyper[at + 1];
            b->group[i].hyper[at + 1] = value;
            if (b->gpu && (s = gpu_send_hyper(b, i, at + 1, 1)) != OPTC_OK)
                b->group[i].hyper[at + 1] = was;
        }
    return s;
}

optc_status optc_get_hyper(const optc_binding *b, int group, const char *name, double *value)
{
    if (!b || !value || group < 0 || group >= b->ngroup)
        return fail(OPTC_ERROR_ARGUMENT, !b || !value ? "optc_get_hyper: NULL" : "optc_get_hyper: there is no group %d", group);
    for (int i = 0; name && i < b->rule->rule->nhyper; i++)
        if (!strcmp(b->rule->rule->hyper[i].name, name)) {
            *value = b->group[group].hyper[i + 1];
            return OPTC_OK;
        }
    return fail(OPTC_ERROR_ARGUMENT, "optc_get_hyper: rule '%s' has no hyperparameter '%s'", b->rule->rule->name, name ? name : "(null)");
}
