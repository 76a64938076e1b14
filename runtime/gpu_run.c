/* A binding on the device: its tables, and the launches of its steps. */
#include "gpu.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- tables ---- */
typedef struct { char *host; size_t at; } Packer;         /* host NULL: only measures */

static void round_up(Packer *p) { p->at = (p->at + 255) & ~(size_t)255; }

typedef struct { int tensor, unit; } Unit;

static size_t pack_units(Packer *p, const Units *u, StageKind k)
{
    size_t at = p->at;
    int64_t n = u->prefix[k][u->n];
    for (int i = 0; p->host && i < u->n; i++)
        for (int64_t x = u->prefix[k][i]; x < u->prefix[k][i + 1]; x++)
            ((Unit *)(p->host + at))[x] = (Unit){u->tensor[i], (int)(x - u->prefix[k][i])};
    p->at += (size_t)n * sizeof(Unit);
    round_up(p);
    return at;
}

static void pack_mem(Packer *p, const optc_binding *b, GpuTables *t)
{
    int nmem = b->rule->plan->nmem;
    size_t row = sizeof(void *) * (size_t)nmem, at = p->at;
    for (int i = 0; p->host && i < b->ntensor + b->ngroup; i++)
        memcpy(p->host + at + row * (size_t)i, i < b->ntensor ? b->tensor[i].mem : b->group[i - b->ntensor].mem, row);
    t->mem = at;
    t->group_mem = at + row * (size_t)b->ntensor;
    p->at += row * (size_t)(b->ntensor + b->ngroup);
    round_up(p);
}

/* Views as the device sees them: the same struct, with device addresses inside. */
static void pack_views(Packer *p, const optc_binding *b, GpuTables *t, CUdeviceptr base)
{
    int nmem = b->rule->plan->nmem, nh = b->rule->rule->nhyper + 1;
    size_t at = p->at, row = sizeof(void *) * (size_t)nmem;
    for (int i = 0; p->host && i < b->ntensor + b->ngroup; i++) {
        optc_view v = i < b->ntensor ? b->tensor[i].view : b->group[i - b->ntensor].view;
        int group = i < b->ntensor ? b->tensor[i].group : i - b->ntensor;
        v.mem = (void *const *)(uintptr_t)(base + t->mem + row * (size_t)i);
        v.hyper = (const double *)(uintptr_t)(base + t->hyper + sizeof(double) * (size_t)(group * nh));
        memcpy(p->host + at + sizeof v * (size_t)i, &v, sizeof v);
    }
    t->views = at;
    t->groups = at + sizeof(optc_view) * (size_t)b->ntensor;
    p->at += sizeof(optc_view) * (size_t)(b->ntensor + b->ngroup);
    round_up(p);
}

static bool has_stage(const Plan *p, int variant, int kind)
{
    for (int f = 0; f < p->nfn; f++) {
        const Stage *s = plan_at(p, f).stage;
        if (s && s->variant == variant && s->kind == (StageKind)kind)
            return true;
    }
    return false;
}

static void pack_all(Packer *p, const optc_binding *b, GpuTables *t, CUdeviceptr base)
{
    size_t row = sizeof(double) * (size_t)(b->rule->rule->nhyper + 1);
    t->hyper = 0;
    for (int i = 0; p->host && i < b->ngroup; i++)
        memcpy(p->host + row * (size_t)i, b->group[i].hyper, row);
    p->at = row * (size_t)b->ngroup;
    round_up(p);
    pack_mem(p, b, t);
    pack_views(p, b, t, base);
    for (int v = 0; v < b->rule->rule->nvariant; v++)
        for (int k = 0; k < NSTAGEKIND; k++)
            if (has_stage(b->rule->plan, v, k))
                t->units[v][k] = pack_units(p, &b->units[v], (StageKind)k);
}

static optc_status send_tables(optc_binding *b, const char *host, size_t bytes)
{
    GpuEngine *g = b->rule->engine->gpu;
    TRY(g, cuMemcpyHtoDAsync_v2(b->gpu->all, host, bytes, b->gpu->stream), "tables");
    TRY(g, cuStreamSynchronize(b->gpu->stream), "tables");
    return OPTC_OK;
}

static optc_status make_tables(optc_binding *b)
{
    GpuTables *t = b->gpu;
    Packer p = {NULL, 0};
    for (int i = 0; i < b->ngroup; i++)
        b->group[i].hyper[0] = 0;                 /* on the device t counts the steps begun */
    pack_all(&p, b, t, 0);
    t->bytes = p.at;
    optc_status s = gpu_alloc(b->rule->engine, t->bytes, t->stream, "tables", &t->all);
    p.host = s == OPTC_OK ? calloc(1, t->bytes + 1) : NULL;
    if (s == OPTC_OK && !p.host)
        s = fail(OPTC_ERROR_MEMORY, "optc_bind: out of memory");
    if (s == OPTC_OK) {
        pack_all(&p, b, t, t->all);
        s = send_tables(b, p.host, t->bytes);
        CUdeviceptr *all[] = {&t->hyper, &t->mem, &t->group_mem, &t->views, &t->groups};
        for (int i = 0; i < 5; i++)
            *all[i] += t->all;
        for (int i = 0; i < MAX_VARIANTS * NSTAGEKIND; i++)
            t->units[i / NSTAGEKIND][i % NSTAGEKIND] += t->all;
    }
    free(p.host);
    return s;
}

/* ---- states ---- */
/* Another type, or a constant other than zero: made on the host in pieces. */
static optc_status fill_one(optc_binding *b, const Mem *m, const State *s, void *dst, const void *param, int64_t n)
{
    GpuEngine *g = b->rule->engine->gpu;
    CUdeviceptr to = (CUdeviceptr)(uintptr_t)dst;
    Type pt = b->rule->plan->p;
    int64_t piece = n < 1 << 20 ? n : 1 << 20;
    if (!dst || !n)
        return OPTC_OK;
    if (s->init == INIT_COPY_P && m->type == pt) {
        TRY(g, cuMemcpyDtoDAsync_v2(to, (CUdeviceptr)(uintptr_t)param, (size_t)n * (size_t)type_info[m->type].bytes, b->gpu->stream), m->name);
        return OPTC_OK;
    }
    char *buf = malloc((size_t)piece * 16), *src = buf ? buf + piece * 8 : NULL;
    optc_status rc = buf ? OPTC_OK : fail(OPTC_ERROR_MEMORY, "optc_bind: out of memory");
    for (int64_t at = 0; rc == OPTC_OK && at < n; at += piece) {
        int64_t k = n - at < piece ? n - at : piece;
        if (s->init == INIT_COPY_P)
            rc = gpu_read(b, src, (const char *)param + at * type_info[pt].bytes, (size_t)(k * type_info[pt].bytes));
        for (int64_t i = 0; i < k; i++)
            type_store(m->type, buf, i, s->init == INIT_COPY_P ? type_load(pt, src, i) : s->value);
        if (rc == OPTC_OK)
            rc = gpu_write(b, (char *)dst + at * type_info[m->type].bytes, buf, (size_t)(k * type_info[m->type].bytes));
    }
    free(buf);
    return rc;
}

/* A constant of four bytes: the state's arrays lie behind one another, so one call fills them all, gaps included. */
static optc_status fill_range(optc_binding *b, int mem, const Mem *m, const State *s, bool *done)
{
    GpuEngine *g = b->rule->engine->gpu;
    char *lo = NULL, *hi = NULL;
    *done = s->init == INIT_FILL && type_info[m->type].bytes == 4 && m->dom != GROUP;
    for (int i = 0; *done && i < b->ntensor; i++) {
        char *at = b->tensor[i].mem[mem];
        if (!at)
            continue;
        lo = lo ? lo : at;
        hi = at + dom_len(m->dom, b->tensor[i].shape) * 4;
    }
    unsigned bits = 0;
    type_store(m->type, &bits, 0, s->value);
    if (*done && lo)
        TRY(g, cuMemsetD32Async((CUdeviceptr)(uintptr_t)lo, bits, (size_t)(hi - lo) / 4, b->gpu->stream), m->name);
    return OPTC_OK;
}

static optc_status init_states(optc_binding *b)
{
    const Plan *p = b->rule->plan;
    GpuEngine *g = b->rule->engine->gpu;
    optc_status s = OPTC_OK;
    TRY(g, cuMemsetD8Async((CUdeviceptr)(uintptr_t)b->block, 0, b->block_bytes, b->gpu->stream), "states");
    for (int k = 0; k < p->nmem && s == OPTC_OK; k++) {
        const Mem *m = &p->mem[k];
        const State *st = m->kind == MEM_STATE ? &p->rule->state[m->sym] : NULL;
        bool done = false;
        if (!st || (st->init == INIT_FILL && st->value == 0 && !signbit(st->value)))
            continue;
        s = fill_range(b, k, m, st, &done);
        for (int i = 0; m->dom == GROUP && i < b->ngroup && s == OPTC_OK; i++)
            s = fill_one(b, m, st, b->group[i].mem[k], NULL, 1);
        for (int i = 0; m->dom != GROUP && !done && i < b->ntensor && s == OPTC_OK; i++)
            s = fill_one(b, m, st, b->tensor[i].mem[k], b->tensor[i].mem[0], dom_len(m->dom, b->tensor[i].shape));
    }
    return s;
}

/* ---- launches ---- */
Shot gpu_shot(const optc_binding *b, const Stage *s, const Launch *l, CUfunction fn)
{
    const GpuTables *t = b->gpu;
    const Units *u = &b->units[s->variant];
    bool group = s->kind == S_GROUP;
    Shot x = {.fn = fn, .stage = s};
    x.args = (Args){group ? t->groups : t->views, group ? t->group_mem : t->mem, t->units[s->variant][s->kind], group ? b->ngroup : u->prefix[s->kind][u->n], 0, 0};
    int64_t grid;
    int threads;
    launch_grid(s, l, x.args.count, u->longest[s->kind], b->rule->engine->gpu->sms, &grid, &threads);
    x.blocks = grid > MOST_BLOCKS ? 0 : (unsigned)grid;          /* 0: more than a launch can have; refused when binding */
    x.threads = (unsigned)threads;
    return x;
}

/* A step begins with t moving on: in its first stage where that is the groups' own, else in a launch of its own. A captured step of a rule with periods
 * launches the stages of all phases, so there it is always a launch of its own. */
static void make_play(const optc_binding *b, Play *p, const Phase *ph, bool tick)
{
    const GpuTables *t = b->gpu;
    *p = (Play){.shot = p->shot ? p->shot : NEWS((Arena *)&b->arena, Shot, ph->nstage + 2)};
    bool inside = tick && !b->rule->plan->nperiod && ph->nstage && ph->stage[0].kind == S_GROUP;
    if (tick && !inside)
        p->shot[p->n++] = (Shot){t->code->tick, 1, 128, {t->groups, t->group_mem, 0, b->ngroup, 0, 0}, NULL};
    for (int i = 0; i < ph->nstage; i++) {
        Shot x = gpu_shot(b, &ph->stage[i], &t->code->launch[ph->stage[i].fn], t->code->fn[ph->stage[i].fn]);
        x.args.tick = inside && i == 0;
        if (x.args.count)
            p->shot[p->n++] = x;
    }
}

static void drop_graphs(optc_binding *b)
{
    GpuTables *t = b->gpu;
    for (int i = 0; t->play && i < b->rule->plan->nentry * t->nphase; i++)
        if (t->play[i].exec)
            b->rule->engine->gpu->d->cuGraphExecDestroy(t->play[i].exec);
}

static void make_plays(optc_binding *b)
{
    const Plan *p = b->rule->plan;
    GpuTables *t = b->gpu;
    t->nphase = 1 << p->nperiod;
    if (!t->play)
        t->play = NEWS(&b->arena, Play, p->nentry * t->nphase + 1);
    for (int e = 0; e < p->nentry; e++)
        if (!strcmp(p->entry[e].name, "step"))
            t->step = e;
    for (int e = 0; e < p->nentry; e++)
        for (int m = 0; m < p->entry[e].nphase; m++)
            make_play(b, &t->play[e * t->nphase + m], &p->entry[e].phase[m], !strcmp(p->entry[e].name, "step") && b->rule->gpu->needs_t);
}

static optc_status check_grids(const optc_binding *b)
{
    for (int i = 0; i < b->rule->plan->nentry * b->gpu->nphase; i++)
        for (int k = 0; k < b->gpu->play[i].n; k++)
            if (!b->gpu->play[i].shot[k].blocks) {
                char what[200];
                stage_label(b->rule, b->gpu->play[i].shot[k].stage, what, sizeof what);
                return fail(OPTC_ERROR_ARGUMENT, "optc_bind: %s would take more than 2^31 - 1 blocks on these tensors (%lld units): bind fewer, or matrices that are less small, at a time", what,
                            b->gpu->play[i].shot[k].args.count);
            }
    return OPTC_OK;
}

void gpu_use(optc_binding *b, const GpuCode *c)
{
    if (c == b->gpu->code)
        return;
    gpu_enter(b->rule->engine->gpu);
    drop_graphs(b);
    gpu_leave(b->rule->engine->gpu, OPTC_OK);
    b->gpu->code = c;
    make_plays(b);
}

/* ---- binding ---- */
optc_status gpu_check_pointer(optc_binding *b, int tensor, const void *p, const char *what)
{
    GpuEngine *g = b->rule->engine->gpu;
    int type = 0, ordinal = g->ordinal, managed = 0;
    char label[96];
    if (!p)
        return OPTC_OK;
    const Driver *d = gpu_enter(g);
    CUdeviceptr at = (CUdeviceptr)(uintptr_t)p;
    int rc = d->cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, at);
    if (!rc && !d->cuPointerGetAttribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, at) && !managed)
        d->cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, at);
    gpu_leave(g, OPTC_OK);
    optc_status s = gpu_alive(g);
    if (s == OPTC_OK && (rc || type == CU_MEMORYTYPE_HOST || ordinal != g->ordinal))
        return fail(OPTC_ERROR_ARGUMENT, "%s of %s does not lie in the memory of %s", what, tensor_label(b, tensor, label), b->rule->engine->name);
    return s;
}

static optc_status bind_inside(optc_binding *b)
{
    char what[100];
    CUdeviceptr block;
    snprintf(what, sizeof what, "the states and temporaries of '%.40s' on %d tensors", b->rule->rule->name, b->ntensor);
    b->block_bytes += 256;
    optc_status s = gpu_alloc(b->rule->engine, b->block_bytes, b->gpu->stream, what, &block);
    b->block = (void *)(uintptr_t)block;
    if (s != OPTC_OK)
        return s;
    place_binding(b);
    s = make_tables(b);
    if (s == OPTC_OK) {
        make_plays(b);
        s = check_grids(b);
    }
    if (s == OPTC_OK)
        s = init_states(b);
    if (s != OPTC_OK)
        return s;
    GpuEngine *g = b->rule->engine->gpu;
    TRY(g, cuStreamSynchronize(b->gpu->stream), what);      /* the first step may run in another stream */
    live_open(b);
    return OPTC_OK;
}

static optc_status bind_all(optc_binding *b)
{
    GpuEngine *g = b->rule->engine->gpu;
    optc_status s = gpu_alive(g);
    for (int i = 0; i < b->ntensor && s == OPTC_OK; i++) {
        s = gpu_check_pointer(b, i, b->tensor[i].mem[0], "optc_bind: the parameter");
        if (s == OPTC_OK)
            s = gpu_check_pointer(b, i, b->tensor[i].mem[1], "optc_bind: the gradient");
    }
    if (s != OPTC_OK)
        return s;
    b->gpu = calloc(1, sizeof *b->gpu);
    if (!b->gpu)
        return fail(OPTC_ERROR_MEMORY, "optc_bind: out of memory");
    s = gpu_code_for(b->rule, b->elems, &b->gpu->code);
    if (s != OPTC_OK)
        return s;
    return bind_inside(b);
}

optc_status gpu_bind(optc_binding *b)
{
    gpu_enter_aside(b->rule->engine->gpu);
    return gpu_leave(b->rule->engine->gpu, bind_all(b));
}

void gpu_unbind(optc_binding *b)
{
    GpuTables *t = b->gpu;
    if (!t)
        return;
    const Driver *d = gpu_enter_aside(b->rule->engine->gpu);
    live_close(b);
    for (int i = 0; i < t->nowned; i++)
        d->cuModuleUnload(t->owned[i]);
    free(t->owned);
    drop_graphs(b);
    gpu_give(b->rule->engine, (CUdeviceptr)(uintptr_t)b->block, b->block_bytes, t->stream);
    gpu_give(b->rule->engine, t->all, t->bytes, t->stream);
    gpu_leave(b->rule->engine->gpu, OPTC_OK);
    free(t);
    b->gpu = NULL;
    b->block = NULL;
}

/* ---- running ---- */
optc_status gpu_fire(optc_binding *b, const Shot *x, int guard)
{
    GpuEngine *g = b->rule->engine->gpu;
    int rc = shot_fire(g->d, x, guard, b->gpu->stream);
    if (!rc)
        return OPTC_OK;
    char what[200];
    stage_label(b->rule, x->stage, what, sizeof what);
    return gpu_error(g, "cuLaunchKernel", rc, what);
}

static optc_status send_moved(optc_binding *b)
{
    GpuEngine *g = b->rule->engine->gpu;
    size_t row = sizeof(void *) * (size_t)b->rule->plan->nmem;
    char *host = malloc(row * (size_t)b->ntensor + 1);
    if (!host)
        return fail(OPTC_ERROR_MEMORY, "optc_run: out of memory");
    for (int i = 0; i < b->ntensor; i++)
        memcpy(host + row * (size_t)i, b->tensor[i].mem, row);
    int rc = g->d->cuMemcpyHtoDAsync_v2(b->gpu->mem, host, row * (size_t)b->ntensor, b->gpu->stream);    /* pageable: copied before it returns */
    free(host);
    if (rc)
        return gpu_error(g, "cuMemcpyHtoDAsync", rc, "moved pointers");
    b->gpu->moved = false;
    return OPTC_OK;
}

/* All phases into a graph of the caller's: at each replay the stages of the phase that t then has do their work, the others return at once. */
static optc_status capture(optc_binding *b, int entry)
{
    optc_status s = OPTC_OK;
    for (int m = 0; m < b->gpu->nphase && s == OPTC_OK; m++) {
        const Play *p = &b->gpu->play[entry * b->gpu->nphase + m];
        for (int i = 0; i < p->n && s == OPTC_OK; i++)
            if (p->shot[i].stage || m == 0)
                s = gpu_fire(b, &p->shot[i], p->shot[i].stage && b->rule->plan->nperiod > 0);
    }
    return s;
}

static optc_status play(optc_binding *b, Play *p)
{
    GpuEngine *g = b->rule->engine->gpu;
    optc_status s = OPTC_OK;
    if (p->exec) {
        TRY(g, cuGraphLaunch(p->exec, b->gpu->stream), b->rule->rule->name);
        return OPTC_OK;
    }
    for (int i = 0; i < p->n && s == OPTC_OK; i++)
        s = gpu_fire(b, &p->shot[i], 0);
    return s;
}

static optc_status run_inside(optc_binding *b, int entry, int now)
{
    GpuEngine *g = b->rule->engine->gpu;
    Play *p = &b->gpu->play[entry * b->gpu->nphase + now];
    int capturing = 0;
    TRY(g, cuStreamIsCapturing(b->gpu->stream, &capturing), "");
    if (b->gpu->moved && capturing)
        return fail(OPTC_ERROR_ARGUMENT, "optc_run: a pointer was set since the last step: run one step before capturing");
    optc_status s = b->gpu->moved ? send_moved(b) : OPTC_OK;
    b->gpu->recorded = capturing != 0;
    b->gpu->captured = b->gpu->captured || capturing;
    if (s != OPTC_OK)
        return s;
    /* Once captured steps may have been replayed, the host no longer knows which phase is next: the device decides, as in a graph. */
    if (capturing || (b->gpu->captured && b->rule->plan->nperiod))
        return capture(b, entry);
    if (p->runs < 2 && ++p->runs == 2 && p->n > 1 && !g->no_graphs)
        play_graph(g->d, p);
    bool live = b->gpu->live && p->runs == 2 && p == &b->gpu->play[b->gpu->step * b->gpu->nphase];
    if (live)
        p = live_begin(b, p);
    s = play(b, p);
    if (live && s == OPTC_OK)
        live_end(b);
    return s;
}

optc_status gpu_run(optc_binding *b, int entry, double t)
{
    GpuEngine *g = b->rule->engine->gpu;
    optc_status s = gpu_alive(g);
    if (s != OPTC_OK)
        return s;
    gpu_enter(g);
    return gpu_leave(g, run_inside(b, entry, plan_phase(b->rule->plan, t)));
}

static optc_status copy(const optc_binding *b, void *host, CUdeviceptr device, size_t bytes, bool up, bool wait, const char *what)
{
    GpuEngine *g = b->rule->engine->gpu;
    optc_status s = gpu_alive(g);
    if (s != OPTC_OK)
        return s;
    const Driver *d = gpu_enter(g);
    int capturing = 0;
    if (d->cuStreamIsCapturing(b->gpu->stream, &capturing) == 0 && capturing)
        return gpu_leave(g, fail(OPTC_ERROR_ARGUMENT, "%s: not while the binding's stream is being captured", what));
    int rc = up ? d->cuMemcpyHtoDAsync_v2(device, host, bytes, b->gpu->stream) : d->cuMemcpyDtoHAsync_v2(host, device, bytes, b->gpu->stream);
    if (!rc && wait)
        rc = d->cuStreamSynchronize(b->gpu->stream);
    return gpu_leave(g, rc ? gpu_error(g, up ? "cuMemcpyHtoDAsync" : "cuMemcpyDtoHAsync", rc, what) : OPTC_OK);
}

optc_status gpu_send_hyper(optc_binding *b, int group, int first, int count)
{
    int nh = b->rule->rule->nhyper + 1;
    return copy(b, b->group[group].hyper + first, b->gpu->hyper + sizeof(double) * (size_t)(group * nh + first), sizeof(double) * (size_t)count, true, false, "hyperparameters");
}

optc_status gpu_send(const optc_binding *b, void *device, const void *host, size_t bytes, const char *what)
{
    return copy(b, (void *)(uintptr_t)host, (CUdeviceptr)(uintptr_t)device, bytes, true, false, what);
}

optc_status gpu_read_t(const optc_binding *b, int64_t *steps)
{
    double t = 0;
    optc_status s = copy(b, &t, b->gpu->hyper, sizeof t, false, true, "reading t");
    if (s == OPTC_OK)
        *steps = (int64_t)t;
    return s;
}

optc_status gpu_read(const optc_binding *b, void *host, const void *device, size_t bytes)
{
    return copy(b, host, (CUdeviceptr)(uintptr_t)device, bytes, false, true, "reading state");
}

optc_status gpu_write(const optc_binding *b, void *device, const void *host, size_t bytes)
{
    return copy(b, (void *)(uintptr_t)host, (CUdeviceptr)(uintptr_t)device, bytes, true, true, "writing state");
}

optc_status optc_set_stream(optc_binding *b, void *stream)
{
    if (!b)
        return fail(OPTC_ERROR_ARGUMENT, "optc_set_stream: the binding is NULL");
    if (b->gpu)
        b->gpu->stream = stream;
    return OPTC_OK;
}

optc_status optc_sync(optc_binding *b)
{
    if (!b)
        return fail(OPTC_ERROR_ARGUMENT, "optc_sync: the binding is NULL");
    if (!b->gpu)
        return OPTC_OK;
    GpuEngine *g = b->rule->engine->gpu;
    optc_status s = gpu_alive(g);
    if (s != OPTC_OK)
        return s;
    int rc = gpu_enter(g)->cuStreamSynchronize(b->gpu->stream);
    return gpu_leave(g, rc ? gpu_error(g, "cuStreamSynchronize", rc, b->rule->rule->name) : OPTC_OK);
}
