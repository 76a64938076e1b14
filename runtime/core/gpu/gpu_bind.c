/* A binding on a GPU: memory, tables on the device, initial states, additional cohorts, checks of
 * pointers. */
#include "runtime/core/gpu/gpu_device.h"
#include "runtime/core/memory/layout.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- tables ---- */
typedef struct Packer { char *host; size_t at; } Packer;         /* host NULL: only counts bytes */

static size_t pack_end(Packer *p, size_t bytes)
{
    size_t at = p->at;
    p->at = (p->at + bytes + 255) & ~(size_t)255;
    return at;
}

/* Whether a tile or band at the edge of its matrix has at most half of the elements of the matrix's
 * first one. */
static bool is_edge(int k, Shape s, int64_t unit)
{
    const StageInfo *x = &stage_info[k];
    if (x->walk != WALK_TILED)
        return false;
    int64_t across = count_up(s.cols, x->cols), down = count_up(s.rows, x->rows);
    int64_t cols = s.cols - unit % across * x->cols, rows = s.rows - unit / across % down * x->rows;
    int64_t most = (across > 1 ? x->cols : s.cols) * (down > 1 ? x->rows : s.rows);
    return 2 * (cols < x->cols ? cols : x->cols) * (rows < x->rows ? rows : x->rows) <= most;
}

/* Lists the units of tiled stages: half of the small edges come first, the others last. A GPU
 * starts units in this order or, in every other pass, from the end. With long units last, most
 * multiprocessors would wait for a few of
 * them: GPT-2 has 2242 long tiles and 144 edges, and two tiles run on each of 132
 * multiprocessors. */
static void list_tiles(Unit *to, const optc_binding *b, const Units *u, int k)
{
    int64_t edges = 0, seen = 0, next = 0;
    for (int pass = 0; pass < 2; pass++) {
        /* index of edge 0 if all came last */
        int64_t after = u->prefix[k][u->n] - edges;
        next = edges / 2;
        for (int i = 0; i < u->n; i++)
            for (int64_t x = 0; x < u->prefix[k][i + 1] - u->prefix[k][i]; x++) {
                bool edge = is_edge(k, b->tensor[u->tensor[i]].shape, x);
                if (!pass) {
                    edges += edge;
                    continue;
                }
                Unit *at = &to[!edge ? next++ : seen < edges / 2 ? seen : after + seen];
                seen += edge;
                at->tensor = u->tensor[i];
                at->unit = (int)x;
            }
    }
}

/* Lists the units of a kind of stage. Flat stages: the short units come first, sorted by length. */
static size_t pack_units(Packer *p, const optc_binding *b, const Units *u, int k)
{
    Unit *to = p->host ? (Unit *)(void *)(p->host + p->at) : NULL;
    /* by length - 1: index of the next unit */
    int64_t place[BRIEF + 1], *brief = k == S_FLAT ? place : NULL;
    int64_t next = brief ? u->shorter[BRIEF] : 0;
    if (to && brief)
        memcpy(brief, u->shorter, sizeof *brief * (BRIEF + 1));
    if (to && stage_info[k].walk == WALK_TILED) {
        list_tiles(to, b, u, k);
        to = NULL;
    }
    for (int i = 0; to && i < u->n; i++) {
        int64_t n = u->prefix[k][i + 1] - u->prefix[k][i];
        int length = brief ? brief_length(b->tensor[u->tensor[i]].shape) : 0;
        for (int64_t x = 0; x < n; x++) {
            Unit *at = &to[length && x == n - 1 ? brief[length - 1]++ : next++];
            at->tensor = u->tensor[i];
            at->unit = (int)(x + (k == S_FLAT ? b->tensor[u->tensor[i]].first_unit : 0));
        }
    }
    return pack_end(p, (size_t)u->prefix[k][u->n] * sizeof(Unit));
}

static bool has_stage(const Program *p, int variant, int kind)
{
    for (int i = 0; i < p->nstage && kind != S_CALL; i++)
        if (p->stage[i].variant == variant && (int)p->stage[i].kind == kind)
            return true;
    return false;
}

static bool kind_blocked(int k) { return dom_of_block(stage_info[k].dom); }

/* The device's copy of a view: the same struct, with device addresses. */
static optc_view device_view(const optc_binding *b, const GpuTables *t, int i)
{
    size_t row = sizeof(void *) * (size_t)b->program->narray;
    bool tensor = i < b->nall;
    int at = tensor ? b->tensor[i].cohort : i - b->nall;
    optc_view v = tensor ? b->tensor[i].view : b->group[at].view;
    CUdeviceptr mem = tensor ? t->mem + row * (size_t)i : t->group_mem + row * (size_t)at;
    v.mem = (void *const *)(uintptr_t)mem;
    v.hyper = (const double *)(uintptr_t)(t->hyper + gpu_hyper_bytes(b) * (size_t)at);
    return v;
}

static CUdeviceptr pack_views(Packer *p, const optc_binding *b, const GpuTables *t,
                              CUdeviceptr base, int first, int n)
{
    for (int i = 0; p->host && i < n; i++) {
        optc_view v = device_view(b, t, first + i);
        memcpy(p->host + p->at + sizeof v * (size_t)i, &v, sizeof v);
    }
    return base + pack_end(p, sizeof(optc_view) * (size_t)n);
}

/* Hyperparameters, pointers and views of groups and cohorts. */
static void pack_rows(Packer *p, const optc_binding *b, GpuTables *t, CUdeviceptr base)
{
    size_t hyper = gpu_hyper_bytes(b), row = sizeof(void *) * (size_t)b->program->narray;
    for (int i = 0; p->host && i < b->ncohort; i++)
        memcpy(p->host + p->at + hyper * (size_t)i, b->group[i].hyper, hyper);
    t->hyper = base + pack_end(p, hyper * (size_t)b->ncohort);
    for (int i = 0; p->host && i < b->ncohort; i++)
        memcpy(p->host + p->at + row * (size_t)i, b->group[i].mem, row);
    t->group_mem = base + pack_end(p, row * (size_t)b->ncohort);
    t->groups = pack_views(p, b, t, base, b->nall, b->ncohort);
}

static void pack_all(Packer *p, const optc_binding *b, GpuTables *t, CUdeviceptr base)
{
    const Program *pr = b->program;
    size_t row = sizeof(void *) * (size_t)pr->narray;
    pack_rows(p, b, t, base);
    for (int i = 0; p->host && i < b->nall; i++)
        memcpy(p->host + p->at + row * (size_t)i, b->tensor[i].mem, row);
    t->mem = base + pack_end(p, row * (size_t)b->nall);
    t->views = pack_views(p, b, t, base, 0, b->nall);
    for (int v = 0; v < pr->nvariant; v++)
        for (int k = 0; k < NSTAGEKIND; k++)
            if (has_stage(pr, v, k))
                t->units[v][k] =
                    base + pack_units(p, b, kind_blocked(k) ? &b->blocks[v] : &b->units[v], k);
    for (int i = 0; i < b->nbatch; i++)
        for (int k = 0; k < NSTAGEKIND; k++)
            if (has_stage(pr, b->batch[i].variant, k))
                t->batch_units[i * NSTAGEKIND + k] =
                    base +
                    pack_units(p, b, kind_blocked(k) ? &b->batch[i].blocks : &b->batch[i].units, k);
}

static optc_status make_tables(optc_binding *b)
{
    GpuTables *t = b->gpu;
    Packer p = {NULL, 0};
    t->batch_units = TAKE(b, CUdeviceptr, b->nbatch * NSTAGEKIND);
    if (!t->batch_units)
        return no_memory("optc_bind");
    for (int i = 0; i < b->ncohort; i++)
        b->group[i].hyper[0] = 0;                 /* on the device t counts the steps begun */
    pack_all(&p, b, t, 0);
    t->bytes = p.at;
    optc_status s = gpu_alloc(b->rule->engine, t->bytes, t->stream, "tables", &t->all);
    if (s != OPTC_OK)
        return s;
    p.host = (char *)calloc(1, t->bytes + 1);
    p.at = 0;
    if (!p.host)
        return no_memory("optc_bind");
    pack_all(&p, b, t, t->all);
    s = gpu_write(b, (void *)(uintptr_t)t->all, p.host, t->bytes, true, "optc_bind");
    free(p.host);
    return s;
}

/* ---- additional cohorts ---- */
typedef struct GpuCohortMemory {
    struct GpuCohortMemory *next; CUdeviceptr at; size_t bytes;
} GpuCohortMemory;

static optc_status more_memory(optc_binding *b, size_t bytes, CUdeviceptr *out)
{
    GpuCohortMemory *m = TAKE(b, GpuCohortMemory, 1);
    if (!m)
        return no_memory("optc_run");
    optc_status s =
        gpu_alloc(b->rule->engine, bytes, b->gpu->stream, "tensors with other step counts", out);
    if (s != OPTC_OK)
        return s;
    m->at = *out;
    m->bytes = bytes;
    m->next = b->gpu->cohort_memory;
    b->gpu->cohort_memory = m;
    return OPTC_OK;
}

static void give_last(optc_binding *b)
{
    GpuCohortMemory *m = b->gpu->cohort_memory;
    gpu_give(b->rule->engine, m->at, m->bytes, b->gpu->stream);
    b->gpu->cohort_memory = m->next;
}

CORE optc_status gpu_alloc_cohorts(optc_binding *b, size_t bytes, void **out)
{
    CUdeviceptr at = 0;
    gpu_enter(b->rule->engine->gpu);
    optc_status s = gpu_leave(b->rule->engine->gpu, more_memory(b, bytes, &at));
    *out = (void *)(uintptr_t)at;
    return s;
}

/* New tables for more cohorts, and new launch lists. (A graph of the caller would use the old
 * tables: gpu_may_change_participation refuses that.) */
static optc_status grown_inside(optc_binding *b)
{
    GpuTables was = *b->gpu, *t = b->gpu;
    Packer p = {NULL, 0};
    CUdeviceptr at = 0;
    for (int i = 0; i < b->ncohort; i++)
        b->group[i].hyper[0] = (double)(b->steps - b->group[i].lag);
    pack_rows(&p, b, t, 0);
    size_t bytes = p.at;
    p.host = (char *)calloc(1, bytes + 1);
    p.at = 0;
    optc_status s = p.host ? more_memory(b, bytes, &at) : no_memory("optc_run");
    if (s == OPTC_OK) {
        pack_rows(&p, b, t, at);
        s = gpu_write(b, (void *)(uintptr_t)at, p.host, bytes, true, "optc_run");
    }
    free(p.host);
    if (s == OPTC_OK)
        s = gpu_build_lists(b);
    /* tuning still has launch lists with the old tables: end it */
    if (s == OPTC_OK && t->close) {
        t->close(b);
        t->begin = NULL, t->end = NULL, t->close = NULL;
    }
    if (s != OPTC_OK) {
        t->hyper = was.hyper, t->group_mem = was.group_mem, t->groups = was.groups;
        while (t->cohort_memory != was.cohort_memory)
            give_last(b);
        give_last(b);                              /* what gpu_alloc_cohorts returned */
    }
    return s;
}

CORE optc_status gpu_cohorts_grown(optc_binding *b)
{
    gpu_enter(b->rule->engine->gpu);
    return gpu_leave(b->rule->engine->gpu, grown_inside(b));
}

CORE void gpu_participation_changed(optc_binding *b, bool moved)
{
    b->gpu->dirty = true;
    b->gpu->moved = b->gpu->moved || moved;
}

/* Inside gpu_enter, not in a capture. Cohorts that are not stale keep the t that they have on the
 * device. */
CORE optc_status gpu_send_views(optc_binding *b)
{
    GpuEngine *g = b->rule->engine->gpu;
    GpuTables *t = b->gpu;
    size_t hyper = gpu_hyper_bytes(b), row = sizeof(void *) * (size_t)b->program->narray;
    optc_view *v = (optc_view *)malloc(sizeof *v * (size_t)(b->nall + b->ncohort));
    if (!v)
        return no_memory("optc_run");
    for (int i = 0; i < b->nall + b->ncohort; i++)
        v[i] = device_view(b, t, i);
    /* pageable: copied before it returns */
    int rc = b->nall
                 ? g->d->cuMemcpyHtoDAsync_v2(t->views, v, sizeof *v * (size_t)b->nall, t->stream)
                 : 0;
    if (!rc)
        rc = g->d->cuMemcpyHtoDAsync_v2(t->groups, v + b->nall, sizeof *v * (size_t)b->ncohort,
                                        t->stream);
    free(v);
    char *mem = (char *)malloc(row * (size_t)b->ncohort);
    for (int i = 0; i < b->ncohort && mem; i++)
        memcpy(mem + row * (size_t)i, b->group[i].mem, row);
    if (!rc && mem)
        rc = g->d->cuMemcpyHtoDAsync_v2(t->group_mem, mem, row * (size_t)b->ncohort, t->stream);
    free(mem);
    if (!mem)
        return no_memory("optc_run");
    for (int i = b->ngroup; i < b->ncohort && !rc; i++) {
        Group *x = &b->group[i];
        if (!x->stale)
            continue;
        x->hyper[0] = (double)(b->steps - x->lag);
        rc = g->d->cuMemcpyHtoDAsync_v2(t->hyper + hyper * (size_t)i, x->hyper, hyper, t->stream);
        x->stale = rc != 0;
    }
    if (rc)
        return gpu_error(g, "cuMemcpyHtoDAsync", rc, "views of the tensors");
    t->dirty = false;
    return gpu_agree_send(b);
}

/* ---- states ---- */
static bool is_zero(const ProgArray *m)
{
    return !m->copies_p && !m->hyper && !m->kernel && m->value == 0 && !signbit(m->value);
}

/* A copy of p of the same type is a device copy. Other initial values are made on the host, in
 * parts. A copy without p belongs to a ghost of a sharded binding: an exchange fills it. */
static optc_status fill_one(optc_binding *b, const ProgArray *m, int group, void *dst,
                            const void *param, StateSpan x)
{
    GpuEngine *g = b->rule->engine->gpu;
    const Program *p = b->program;
    int64_t n = x.n, piece = n < 1 << 20 ? n : 1 << 20, size = p->type[m->type].bytes,
            psize = p->type[p->p].bytes;
    if (!dst || !n || (m->copies_p && !param))
        return OPTC_OK;
    if (m->copies_p && m->type == p->p) {
        TRY(g,
            cuMemcpyDtoDAsync_v2((CUdeviceptr)(uintptr_t)dst, (CUdeviceptr)(uintptr_t)param,
                                 (size_t)(n * size), b->gpu->stream),
            m->name);
        return OPTC_OK;
    }
    char *buf = (char *)malloc((size_t)piece * 16), *src = buf ? buf + piece * 8 : NULL;
    optc_status s = buf ? OPTC_OK : no_memory("optc_bind");
    for (int64_t at = 0; s == OPTC_OK && at < n; at += piece) {
        int64_t k = n - at < piece ? n - at : piece;
        if (m->copies_p)
            s = gpu_read(b, src, (const char *)param + at * psize, (size_t)(k * psize),
                         "optc_bind");
        if (s == OPTC_OK) {
            state_fill(b, m, group, buf, src, state_span(x.of, at, k, x.side));
            s = gpu_write(b, (char *)dst + at * size, buf, (size_t)(k * size), true, "optc_bind");
        }
    }
    free(buf);
    return s;
}

/* A constant of a 4-byte type: the state's arrays follow each other in the block, so one call fills
 * them all, including the gaps. */
static optc_status fill_range(optc_binding *b, int array, const ProgArray *m)
{
    GpuEngine *g = b->rule->engine->gpu;
    char *lo = NULL, *hi = NULL;
    for (int i = 0; i < b->nheld; i++) {
        char *at = (char *)b->tensor[i].mem[array];
        if (!state_starts(b, i, array))
            continue;
        char *end = at + dom_len(m->dom, b->tensor[i].shape) * 4;
        lo = lo && lo < at ? lo : at;
        hi = hi > end ? hi : end;
    }
    double room = 0;                              /* holds a value of any type */
    unsigned bits;
    type_store(m->type, &room, 0, m->value);
    memcpy(&bits, &room, sizeof bits);
    if (lo)
        TRY(g,
            cuMemsetD32Async((CUdeviceptr)(uintptr_t)lo, bits, (size_t)(hi - lo) / 4,
                             b->gpu->stream),
            m->name);
    return OPTC_OK;
}

static optc_status init_states(optc_binding *b)
{
    const Program *p = b->program;
    GpuEngine *g = b->rule->engine->gpu;
    optc_status s = OPTC_OK;
    TRY(g, cuMemsetD8Async((CUdeviceptr)(uintptr_t)b->block, 0, b->storage_bytes, b->gpu->stream),
        "states");
    s = shards_send_params(b);
    for (int k = 0; k < p->narray && s == OPTC_OK; k++) {
        const ProgArray *m = &p->array[k];
        if (m->kind != MEM_STATE || is_zero(m))
            continue;
        if (!m->copies_p && !m->hyper && !m->eye && p->type[m->type].bytes == 4 &&
            m->dom != GROUP) {
            s = fill_range(b, k, m);
            continue;
        }
        for (int i = 0; m->dom == GROUP && i < b->ngroup && s == OPTC_OK; i++)
            s = fill_one(b, m, i, b->group[i].mem[k], NULL, state_span(NULL, 0, 1, 1));
        int from = dom_of_block(m->dom) ? b->nheld : 0, to = m->dom == GROUP ? 0
                                                             : from          ? b->nall
                                                                             : b->nheld;
        for (int i = from; i < to && s == OPTC_OK; i++)
            s = fill_one(b, m, b->tensor[i].group,
                         state_starts(b, i, k) ? b->tensor[i].mem[k] : NULL,
                         b->tensor[i].mem[0],
                         state_span(&b->tensor[i], 0, dom_len(m->dom, b->tensor[i].shape),
                                    axis_len(dom_info[m->dom].axis[0], b->tensor[i].shape)));
    }
    return s;
}

/* ---- binding ---- */
CORE optc_status gpu_pointer_place(GpuEngine *g, const void *p, const char *what,
                                   MemoryPlace *place)
{
    int type = 0, ordinal = g->ordinal, managed = 0;
    const Driver *d = gpu_enter(g);
    CUdeviceptr at = (CUdeviceptr)(uintptr_t)p;
    int rc = d->cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, at);
    if (!rc)
        rc = d->cuPointerGetAttribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, at);
    if (!rc && !managed)
        rc = d->cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, at);
    gpu_leave(g, OPTC_OK);
    optc_status s = gpu_alive(g);
    /* INVALID_VALUE: not CUDA memory */
    if (s == OPTC_OK && rc && rc != CUDA_ERROR_INVALID_VALUE)
        return gpu_error(g, "cuPointerGetAttribute", rc, what);
    *place = rc                           ? PLACE_HOST
             : type == CU_MEMORYTYPE_HOST ? PLACE_PINNED
             : ordinal == g->ordinal      ? PLACE_HERE
                                          : PLACE_OTHER_GPU;
    return s;
}

CORE optc_status gpu_owns_pointer(GpuEngine *g, const void *p, const char *what, bool *here)
{
    MemoryPlace place = PLACE_HOST;
    optc_status s = gpu_pointer_place(g, p, what, &place);
    *here = s == OPTC_OK && place == PLACE_HERE;
    return s;
}

static optc_status check_pointer(optc_binding *b, int tensor, const void *p, const char *what)
{
    bool here = true;
    char label[96];
    optc_status s = p ? gpu_owns_pointer(b->rule->engine->gpu, p, what, &here) : OPTC_OK;
    if (s == OPTC_OK && !here)
        return fail(OPTC_ERROR_ARGUMENT, "%s of %s is not in the memory of %s; move it there", what,
                    tensor_label(b, tensor, label), b->rule->engine->name);
    return s;
}

CORE optc_status gpu_use_pointer(optc_binding *b, int tensor, const void *was, const void *p,
                                 const char *what)
{
    if (p == was)
        return OPTC_OK;
    optc_status s = check_pointer(b, tensor, p, what);
    b->gpu->moved = b->gpu->moved || s == OPTC_OK;
    return s;
}

static optc_status bind_inside(optc_binding *b)
{
    GpuEngine *g = b->rule->engine->gpu;
    char what[100];
    CUdeviceptr block;
    snprintf(what, sizeof what, "the states and temporaries of '%.40s' on %d tensors",
             b->program->name, b->ntensor);
    b->storage_bytes += 256;
    optc_status s = gpu_alloc(b->rule->engine, b->storage_bytes, b->gpu->stream, what, &block);
    s = workspace_fails(b, s, b->pool_bytes);
    b->block = (void *)(uintptr_t)block;
    if (s == OPTC_OK)
        s = layout_place(b);
    if (s == OPTC_OK)
        s = make_tables(b);
    if (s == OPTC_OK)
        s = calls_bind(b);
    if (s == OPTC_OK)
        s = gpu_build_lists(b);
    if (s == OPTC_OK)
        s = gpu_agree_bind(b);
    if (s == OPTC_OK)
        s = gpu_exchanges_bind(b);
    if (s == OPTC_OK)
        s = gpu_overlap_bind(b);
    gpu_stagger_bind(b);
    if (s == OPTC_OK)
        phases_bind(b);
    if (s == OPTC_OK)
        s = init_states(b);
    if (s == OPTC_OK)
        s = gpu_agree_send(b);
    if (s == OPTC_OK)
        /* the first step may run in another stream */
        TRY(g, cuStreamSynchronize(b->gpu->stream), what);
    return s;
}

static optc_status bind_checked(optc_binding *b)
{
    optc_status s = gpu_alive(b->rule->engine->gpu);
    for (int i = 0; i < b->ntensor && s == OPTC_OK; i++) {
        s = check_pointer(b, i, b->tensor[i].mem[0], "optc_bind: the parameter");
        if (s == OPTC_OK)
            s = check_pointer(b, i, b->tensor[i].mem[1], "optc_bind: the gradient");
        for (int k = 0; b->tensor[i].caller_owned && k < b->program->narray && s == OPTC_OK; k++)
            s = check_pointer(b, i, state_caller_owned(b, i, k) ? b->tensor[i].mem[k] : NULL,
                              "optc_bind: a state");
    }
    if (s != OPTC_OK)
        return s;
    b->gpu = (GpuTables *)calloc(1, sizeof *b->gpu);
    if (!b->gpu)
        return no_memory("optc_bind");
    s = b->runs ? HOST()->runs(b, &b->gpu->code, &b->fn)
                : HOST()->code(b->rule, b->elems, &b->gpu->code);
    return s == OPTC_OK ? bind_inside(b) : s;
}

CORE optc_status gpu_bind(optc_binding *b)
{
    gpu_enter(b->rule->engine->gpu);
    return gpu_leave(b->rule->engine->gpu, bind_checked(b));
}

CORE void gpu_unbind(optc_binding *b)
{
    GpuTables *t = b->gpu;
    if (!t)
        return;
    gpu_enter(b->rule->engine->gpu);
    if (t->close)
        t->close(b);
    gpu_drop_lists(b);
    lists_drop(b, ~0u);
    calls_unbind(b);
    gpu_exchanges_unbind(b);
    gpu_overlap_unbind(b);
    gpu_agree_unbind(b);
    gpu_beside_unbind(b);
    tables_drop(b);
    gpu_give(b->rule->engine, (CUdeviceptr)(uintptr_t)b->block, b->storage_bytes, t->stream);
    gpu_give(b->rule->engine, t->all, t->bytes, t->stream);
    for (const GpuCohortMemory *m = t->cohort_memory; m; m = m->next)
        gpu_give(b->rule->engine, m->at, m->bytes, t->stream);
    gpu_leave(b->rule->engine->gpu, OPTC_OK);
    free(t);
    b->gpu = NULL;
    b->block = NULL;
}
