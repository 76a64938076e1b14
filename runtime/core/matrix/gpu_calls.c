/* Prepares a rule's calls on a GPU: groups of equal matrices, their addresses, and the kernel steps
 * of each call. */
#include "runtime/core/matrix/gpu_calls.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- facts about a program ---- */
static const CallType call_types[NPRODUCT] = {
#define PRODUCT(ID, name, gpu, cpu, cuda, compute, mm, over, mirror, symmetric, what) \
    {PRODUCT_##ID, gpu,           CUDA_R_##cuda,   CUBLAS_COMPUTE_##compute, gpu##_BYTES, \
     KERNEL_##mm,  KERNEL_##over, KERNEL_##mirror, KERNEL_##symmetric,       name},
#include "gen/abi/products.def"
};

CORE const CallType *call_type_of(Product in) { return in < NPRODUCT ? &call_types[in] : NULL; }

/* All operands of a rule's products have one type; tf32 rounds f32 operands when they are read. */
CORE const CallType *call_type(const Program *p, const ProgCall *c)
{
    return call_type_of(
        product_of_type(product_precision(p->product, c->flags), p->array[c->out].type));
}

CORE const CallType *call_type_f64(void) { return &call_types[PRODUCT_F64]; }
CORE const CallType *call_type_f32(void) { return &call_types[PRODUCT_F32]; }

CORE bool call_conditions(const Program *p) { return program_calls(p); }

/* The precisions of a program's products, a bit each. A rule without products has one, that of its
 * first factor. */
static unsigned products_of(const Program *p)
{
    unsigned products = 0, first = 0;
    for (int i = 0; i < p->nstage; i++)
        if (p->stage[i].kind == S_CALL) {
            const CallType *t = call_type(p, p->stage[i].call);
            unsigned bit = t ? 1u << t->product : 0;
            first = first ? first : bit;
            products |= stage_of_kind(&p->stage[i], CALLEE_PRODUCT) ? bit : 0;
        }
    return products ? products : first;
}

static CallNeeds call_needs(const Program *p)
{
    CallNeeds n = {FOR_ANY, products_of(p), false};
    for (int i = 0; i < p->nstage; i++)
        if (p->stage[i].kind == S_CALL && !stage_of_kind(&p->stage[i], CALLEE_PRODUCT)) {
            n.sets |= call_kernels(p->stage[i].call);
            n.f64 = p->array[p->stage[i].call->a].type == (int)T_F64;
        }
    return n;
}

CORE const char *call_kernel(const Program *p, int k)
{
    return program_calls(p) ? call_kernel_name((CallKernel)k, call_needs(p)) : NULL;
}

CORE void gpu_call_path(const optc_rule *r, char *buf, size_t n)
{
    Cublas c;
    char why[400];
    *buf = 0;
    if (!r->engine->gpu || !program_calls(r->program))
        return;
    if (cublas_open(&c, r->engine->gpu->d->version, NULL, why, sizeof why))
        snprintf(buf, n, "; products by cuBLAS %d.%d", c.version / 1000, c.version % 1000 / 10);
    else
        snprintf(buf, n, "; products by a plain kernel, slower (%.200s)", why);
    eigen_path(r, buf + strlen(buf), n - strlen(buf));
}

/* ---- sizes ---- */
CORE void call_label(const optc_binding *b, const ProgStage *s, const CallGroup *g, char *buf,
                     size_t n)
{
    const Program *p = b->program;
    const CallType *t = call_type(p, s->call);
    const char *others = g->n > 1 ? " and others of its shape" : "";
    char label[96];
    if (s->call->callee != CALL_MM) {                      /* not a product */
        MatrixAxes m = dom_matrix(p->array[s->call->out].dom, false);
        char what[200];
        stage_label(p, s, what, sizeof what);
        snprintf(buf, n, "%s, of %lld x %lld, for %s%s", what,
                 (long long)axis_len(m.down, g->shape), (long long)axis_len(m.across, g->shape),
                 tensor_label(b, b->tensor[g->tensor[0]].of, label), others);
        return;
    }
    ProductShape x = product_shape(p, s->call, g->shape, g->row_stride);
    snprintf(buf, n,
             "the product of %lld x %lld by %lld x %lld in %s%s%.90s, for %s%s, of rule '%.40s'",
             (long long)x.m, (long long)x.k, (long long)x.k, (long long)x.n, t ? t->name : "?",
             *s->where ? " at " : "", s->where, tensor_label(b, b->tensor[g->tensor[0]].of, label),
             others, p->name);
}

/* cuBLAS recommends 32 MB on Hopper and 4 MB before. At most an eighth of the workspace, so that
 * matrices fit too. */
CORE int64_t blas_bytes(const optc_binding *b)
{
    int64_t full = b->rule->engine->gpu->arch >= 90 ? 32 << 20 : 4 << 20,
            share = b->rule->engine->workspace / 8;
    return (share < full ? share : full) / 256 * 256;
}

CORE int64_t gpu_call_bytes(const optc_binding *b) { return 256 + blas_bytes(b) + roots_bytes(b); }

/* ---- groups ---- */
static bool same_shape(Shape a, Shape b)
{
    return a.slices == b.slices && a.rows == b.rows && a.cols == b.cols && a.rank == b.rank;
}

static int group_of(GpuCalls *x, const optc_binding *b, const int *tensor, int n, unsigned stagger,
                    const ProgStage *again)
{
    for (int k = 0; k < x->ngroup; k++) {
        int i = (x->near + k) % x->ngroup;                 /* callers repeat the same order */
        if (x->group[i].tensor == tensor && x->group[i].n == n && x->group[i].stagger == stagger &&
            x->group[i].again == again) {
            x->near = i + 1;
            return i;
        }
    }
    x->group = (CallGroup *)list_more(x, x->group, &x->ngroup, sizeof *x->group);
    CallGroup *g = &x->group[x->ngroup - 1];
    g->tensor = tensor;
    g->n = n;
    g->stagger = stagger;
    g->again = again;
    g->shape = b->tensor[tensor[0]].shape;
    g->row_stride = row_stride(b, &b->tensor[tensor[0]]);
    g->most = dom_times(n, g->shape.slices);
    g->sets = -1;
    return x->ngroup - 1;
}

/* Units are sorted by shape: the number of tensors from `from` on that have the same shape. */
static int alike(const optc_binding *b, const Units *u, int from)
{
    const Tensor *first = &b->tensor[u->tensor[from]];
    int n = 1;
    while (from + n < u->n && same_shape(first->shape, b->tensor[u->tensor[from + n]].shape) &&
           row_stride(b, first) == row_stride(b, &b->tensor[u->tensor[from + n]]) &&
           first->even == b->tensor[u->tensor[from + n]].even)
        n++;
    return n;
}

/* ---- calls ---- */
/* Roots in f32 follow those of the same matrices that need f64, and skip them. */
static optc_status add_steps(const optc_binding *b, GpuCalls *x, const ProgStage *stage,
                             const Units *u, unsigned stagger)
{
    optc_status s = OPTC_OK;
    for (int i = 0, n; i < u->n && s == OPTC_OK; i += n) {
        n = alike(b, u, i);
        const Shape shape = b->tensor[u->tensor[i]].shape;
        for (int again = root_in_f32(b, stage, root_side(b->program, stage->call, shape));
             again >= 0 && s == OPTC_OK; again--) {
            MethodAt f = method_at(b, x, stage, group_of(x, b, u->tensor + i, n, stagger,
                                                         again ? stage : NULL));
            s = method_steps(&f);
        }
    }
    return s;
}

static optc_status add_call(optc_binding *b, GpuCalls *x, const ScheduleOp *op)
{
    const ProgStage *stage = op->stage;
    x->call = (GpuCall *)list_more(x, x->call, &x->ncall, sizeof *x->call);
    GpuCall *c = &x->call[x->ncall - 1];
    c->stage = stage;
    c->batch = op->batch;
    c->first = x->nstep;
    optc_status s = add_steps(b, x, stage, op->units, 0);
    c->n = x->nstep - c->first;
    c->stagger_first = x->nstep;
    if (stage->stagger && s == OPTC_OK)
        s = add_steps(b, x, stage, op->units, stage->stagger);
    c->stagger_n = x->nstep - c->stagger_first;
    return s;
}

CORE const GpuCall *calls_of(const optc_binding *b, const ProgStage *s, int batch)
{
    const GpuCalls *x = b->gpu->calls;
    for (int i = 0; i < x->ncall; i++)
        if (x->call[i].stage == s && x->call[i].batch == batch)
            return x->call[i].n ? &x->call[i] : NULL;
    return NULL;
}

/* ---- sizes of the tables ---- */
CORE int64_t set_length(const GpuCalls *x, const PointerSet *s)
{
    const int64_t all = x->group[s->group].most;
    const Area *area = area_of(x, s->array);
    return dom_times(s->each, area && area->count < all ? area->count : all);
}

/* Counts the addresses of the groups with or without stagger. Each set of groups without stagger
 * gets its place in the array; for groups with stagger only the largest number is checked. */
static optc_status count_pointers(GpuCalls *x, bool stagger)
{
    int64_t n = 0;
    for (int i = 0; i < x->nset; i++) {
        PointerSet *s = &x->set[i];
        if ((x->group[s->group].stagger != 0) != stagger)
            continue;
        n += s->row_stride ? 1 : 0;
        s->at = n;
        n += set_length(x, s);
        if (n > INT_MAX)
            return fail(OPTC_ERROR_ARGUMENT,
                        "optc_bind: more than 2^31 - 1 matrices; bind fewer tensors at a time");
    }
    x->npointer = stagger ? x->npointer : n;
    return OPTC_OK;
}

/* The first list_more of each list, so that all of them have a last element. */
static bool lists_begin(GpuCalls *x)
{
    x->call = (GpuCall *)list_more(x, NULL, &x->ncall, sizeof *x->call);
    x->group = (CallGroup *)list_more(x, NULL, &x->ngroup, sizeof *x->group);
    x->set = (PointerSet *)list_more(x, NULL, &x->nset, sizeof *x->set);
    x->step = (CallStep *)list_more(x, NULL, &x->nstep, sizeof *x->step);
    x->ncall = x->ngroup = x->nset = x->nstep = 0;
    return !x->out;
}

CORE optc_status calls_make(optc_binding *b, GpuCalls *x)
{
    const Program *p = b->program;
    const int phases = p->nentry * program_phases(p);
    optc_status s = factor_stats_make(b);
    if (s != OPTC_OK)
        return s;
    b->gpu->calls = x;
    x->room_bytes = b->call_bytes - 256 - blas_bytes(b);
    x->scratch =
        ((CUdeviceptr)(uintptr_t)call_space(b) + 255) / 256 * 256 + (CUdeviceptr)blas_bytes(b);
    x->present = TAKE(b, bool, b->nall);
    x->wide = TAKE(b, bool, factor_stats_count(b));
    if (!x->present || !x->wide || !lists_begin(x))
        return no_memory("optc_bind");
    for (int m = 0; m < phases; m++)
        for (int i = 0; i < b->schedule[m].n && s == OPTC_OK; i++)
            if (b->schedule[m].op[i].kind == SCHEDULE_CALL)
                s = add_call(b, x, &b->schedule[m].op[i]);
    if (s == OPTC_OK && x->out)
        s = no_memory("optc_bind");
    if (s == OPTC_OK)
        s = count_pointers(x, false);
    return s == OPTC_OK ? count_pointers(x, true) : s;
}

/* ---- the arrays of pointers ---- */
/* bytes: of a value */
typedef struct PointerList { MatrixAddress *to; int64_t n, bytes; } PointerList;

/* Pointers of a matrix that begins `from` bytes into a slot of the table; slot -1: an address */
static void put_matrix(PointerList *l, const PointerSet *s, long long slot, int64_t from)
{
    for (int64_t part = 0; part < (s->parts ? s->parts : 1); part++)
        for (int64_t i = 0; i < (s->blocks ? s->blocks : 1); i++)
            for (int64_t j = 0; j <= i; j++) {
                MatrixAddress *to = &l->to[l->n++];
                to->slot = slot;
                to->offset = from + l->bytes * (s->offset + part * s->apart + i * s->down +
                                                j * s->across);
            }
}

CORE CUdeviceptr area_at(const GpuCalls *x, const Area *area)
{
    return (area->eigen ? x->eigen.scratch : x->scratch) + (CUdeviceptr)area->at;
}

CORE CUdeviceptr set_matrix(const GpuCalls *x, int set, int64_t i)
{
    const Area *area = area_of(x, x->set[set].array);
    return area_at(x, area) + (CUdeviceptr)(i * area->apart);
}

/* Matrices of an area are those of a round. */
static void put_area(const GpuCalls *x, const PointerSet *s, PointerList *l)
{
    for (int64_t i = 0, n = set_length(x, s) / s->each; i < n; i++)
        put_matrix(l, s, -1, (int64_t)set_matrix(x, (int)(s - x->set), i));
}

/* The statistics of a matrix have a fixed address, whichever other matrices take part. The set's
 * offset is the stage. */
static void put_tensor(const optc_binding *b, const GpuCalls *x, const PointerSet *s, int tensor,
                       PointerList *l)
{
    const Program *p = b->program;
    const CallGroup *g = &x->group[s->group];
    for (int64_t k = 0; k < g->shape.slices; k++) {
        if (!calls_participate(b, g, tensor, k))
            continue;
        if (s->array >= 0) {
            put_matrix(l, s, (long long)tensor * p->narray + s->array,
                       matrix_at(b, &b->tensor[tensor], s->array, k) * l->bytes);
            continue;
        }
        const int64_t first = factor_stats_first(b, &p->stage[s->offset], tensor);
        l->to[l->n].slot = -1;
        l->to[l->n++].offset = (long long)(uintptr_t)((const FactorStats *)b->stats + first + k);
    }
}

/* Fills the addresses of all sets of groups that are staggered, or are not. */
CORE void fill_addresses(const optc_binding *b, GpuCalls *x, MatrixAddress *all, bool stagger)
{
    for (int i = 0; i < x->nset; i++) {
        const PointerSet *s = &x->set[i];
        const CallGroup *g = &x->group[s->group];
        const Area *area = area_of(x, s->array);
        PointerList l = {all + s->at, 0, area ? area->bytes : 0};
        if ((g->stagger != 0) != stagger)
            continue;
        if (s->row_stride)
            l.to[-1].slot = -1, l.to[-1].offset = s->row_stride;
        if (s->array >= 0)
            l.bytes = b->program->type[b->program->array[s->array].type].bytes;
        if (area)
            put_area(x, s, &l);
        for (int k = 0; k < g->n && !area; k++)
            if (x->present[g->tensor[k]])
                put_tensor(b, x, s, g->tensor[k], &l);
    }
}

/* Areas have pointers for one round. */
CORE CUdeviceptr set_pointers(const GpuCalls *x, int set, int64_t from)
{
    const PointerSet *s = &x->set[set];
    CUdeviceptr base = x->group[s->group].stagger ? x->slot_pointers : x->pointers;
    return base + sizeof(void *) * (size_t)(s->at + (is_area(s->array) ? 0 : from) * s->each);
}

CORE bool calls_participate(const optc_binding *b, const CallGroup *g, int tensor, int64_t matrix)
{
    return b->gpu->calls->present[tensor] &&
           stagger_active(b, &b->stagger, g->stagger, &b->tensor[tensor], matrix) &&
           (!g->again || b->gpu->calls->wide[factor_stats_first(b, g->again, tensor) + matrix]);
}

CORE void calls_count_now(const optc_binding *b, CallGroup *g)
{
    g->now = 0;
    for (int k = 0; k < g->n; k++)
        for (int64_t q = 0; q < g->shape.slices; q++)
            g->now += calls_participate(b, g, g->tensor[k], q);
}

static optc_status gather_again(optc_binding *b, GpuCalls *x)
{
    x->nmoved++;
    return calls_gather(b, x->addresses, x->pointers, x->npointer);
}

/* Sends the addresses of groups that are not staggered. */
static optc_status send_addresses(optc_binding *b, GpuCalls *x)
{
    GpuEngine *g = b->rule->engine->gpu;
    size_t bytes = sizeof(MatrixAddress) * (size_t)x->npointer;
    MatrixAddress *all = (MatrixAddress *)calloc(1, bytes + 1);
    if (!all)
        return no_memory("optc_run");
    for (int i = 0; i < b->nall; i++)
        x->present[i] = b->tensor[i].view.n >= 0;
    for (int i = 0; i < x->ngroup; i++)
        if (!x->group[i].stagger)
            calls_count_now(b, &x->group[i]);
    fill_addresses(b, x, all, false);
    /* pageable memory: the driver has copied it when the call returns */
    int rc = bytes ? g->d->cuMemcpyHtoDAsync_v2(x->addresses, all, bytes, b->gpu->stream) : 0;
    free(all);
    optc_status s =
        rc ? gpu_error(g, "cuMemcpyHtoDAsync", rc, "addresses of matrices") : gather_again(b, x);
    x->sent = s == OPTC_OK;
    return s;
}

static bool arranged_otherwise(const optc_binding *b, const GpuCalls *x)
{
    for (int i = 0; i < b->nall; i++)
        if (x->present[i] != (b->tensor[i].view.n >= 0))
            return true;
    return !x->sent;
}

/* Graphs contain the old numbers of matrices, and so does the candidate of the library's tuning. */
static void forget_graphs(optc_binding *b)
{
    GpuTables *t = b->gpu;
    gpu_drop_lists(b);
    for (int i = 0; t->launch_list && i < b->program->nentry * t->nphase; i++)
        t->launch_list[i].runs = 0;
    if (t->forget)
        t->forget(b);
}

CORE optc_status calls_rebuild(optc_binding *b)
{
    forget_graphs(b);
    return send_addresses(b, b->gpu->calls);
}

CORE optc_status calls_update(optc_binding *b)
{
    GpuCalls *x = b->gpu->calls;
    if (arranged_otherwise(b, x))
        return calls_rebuild(b);
    return x->moves ? gather_again(b, x) : OPTC_OK;
}

/* ---- binding ---- */
static optc_status open_library(optc_binding *b, GpuCalls *x)
{
    GpuEngine *g = b->rule->engine->gpu;
    bool again;
    x->library = cublas_open(&x->blas, g->d->version, &again, x->why, sizeof x->why);
    if (!x->library)                               /* a lack of memory must not change results */
        return again ? fail(OPTC_ERROR_MEMORY, "optc_bind: %s", x->why) : OPTC_OK;
    int rc = cublas_handle_take(&x->blas, g, &x->handle);
    return rc ? fail(
                    rc == CUBLAS_STATUS_ALLOC_FAILED ? OPTC_ERROR_MEMORY : OPTC_ERROR_DEVICE,
                    "optc_bind: cublasCreate of %.300s: %s (OPTC_CUBLAS=none uses our own kernels)",
                    x->blas.path, x->blas.cublasGetStatusString(rc))
              : OPTC_OK;
}

/* Products that cuBLAS computes need no kernel of ours. */
CORE void calls_need(const optc_binding *b, bool *need)
{
    const GpuCalls *x = b->gpu->calls;
    for (int i = 0; x && i < x->nstep; i++)
        if (x->step[i].kind <= STEP_SYMMETRIC)
            need[x->step[i].kernel] = true;
    if (x)
        need[KERNEL_GATHER] = need[KERNEL_PHASE] = true;
}

CORE void calls_warm(optc_binding *b)
{
    if (b->gpu->calls)
        eigen_warm(b, b->gpu->calls);
}

CORE optc_status calls_bind(optc_binding *b)
{
    GpuEngine *g = b->rule->engine->gpu;
    const Program *p = b->program;
    if (!program_calls(p))
        return OPTC_OK;
    for (int i = 0; i < p->nstage; i++)
        if (stage_of_kind(&p->stage[i], CALLEE_PRODUCT) && !call_type(p, p->stage[i].call))
            return fail(OPTC_ERROR_ARGUMENT,
                        "optc_bind: rule '%s' has products in a type that no GPU supports; "
                        "compile it with products = \"f32\"",
                        p->name);
    GpuCalls *x = TAKE(b, GpuCalls, 1);
    if (!x)
        return no_memory("optc_bind");
    b->gpu->calls = x;
    optc_status s = calls_check(p);
    if (s == OPTC_OK)
        s = open_library(b, x);
    if (s == OPTC_OK)
        s = calls_make(b, x);
    if (s == OPTC_OK)
        s = calls_choose_algorithms(x);
    if (s == OPTC_OK)
        s = eigen_bind(b, x);
    if (s != OPTC_OK)
        return s;
    TRY(g, cuStreamCreate(&x->own, 1), "a stream to capture products in");
    TRY(g, cuStreamCreate(&x->inner, 1), "a stream to capture products in");
    TRY(g, cuStreamCreate(&x->innermost, 1), "a stream to capture products in");
    size_t n = (size_t)x->npointer, stats = sizeof(FactorStats) * (size_t)factor_stats_count(b);
    size_t before = (n * (sizeof(MatrixAddress) + sizeof(void *)) + stats + 63) / 64 * 64;
    x->bytes = before + SYMMETRIC_TASK_BYTES * (size_t)x->ntask;
    s = gpu_alloc(b->rule->engine, x->bytes, b->gpu->stream, "addresses of matrices", &x->memory);
    x->addresses = x->memory;
    x->pointers = x->memory + n * sizeof(MatrixAddress);
    CUdeviceptr stats_at = x->pointers + n * sizeof(void *);
    x->tasks = x->memory + before;
    b->stats = (void *)(uintptr_t)stats_at;
    if (s == OPTC_OK && stats)
        TRY(g, cuMemsetD8Async(stats_at, 0, stats, b->gpu->stream), "factor statistics");
    if (s == OPTC_OK)
        s = symmetric_bind(b, x);
    if (s == OPTC_OK)
        s = roots_f32_bind(b);
    if (s == OPTC_OK)
        s = gpu_load_kernels(b);
    if (s == OPTC_OK)
        s = send_addresses(b, x);
    if (s == OPTC_OK)
        eigen_warm(b, x);
    return s;
}

CORE void calls_free(GpuCalls *x)
{
    free(x->call), free(x->group), free(x->area), free(x->set), free(x->step);
}

CORE void calls_unbind(optc_binding *b)
{
    GpuCalls *x = b->gpu->calls;
    if (!x)
        return;
    roots_f32_unbind(b);
    calls_free(x);
    gpu_give(b->rule->engine, x->memory, x->bytes, b->gpu->stream);
    eigen_unbind(b, x);
    if (x->handle)
        spare_keep(b->rule->engine->gpu, x->handle, x->blas.cublasDestroy_v2);
    if (x->own)
        b->rule->engine->gpu->d->cuStreamDestroy_v2(x->own);
    if (x->inner)
        b->rule->engine->gpu->d->cuStreamDestroy_v2(x->inner);
    if (x->innermost)
        b->rule->engine->gpu->d->cuStreamDestroy_v2(x->innermost);
    b->gpu->calls = NULL;
}

CORE CUstream calls_stream(const optc_binding *b) { return b->gpu->calls->own; }

CORE int64_t calls_body_nodes(const optc_binding *b)
{
    return b->gpu->calls ? b->gpu->calls->body_nodes : 0;
}
