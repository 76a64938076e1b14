#include "gpu.h"

#include "emit.h"
#include "package.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static optc_status device_error(const Driver *d, const char *call, int rc, const char *what)
{
    const char *name = "?", *text = "";
    d->cuGetErrorName(rc, &name);
    d->cuGetErrorString(rc, &text);
    return fail(rc == CUDA_ERROR_OUT_OF_MEMORY ? OPTC_ERROR_MEMORY : OPTC_ERROR_DEVICE, "%s: %s (%s)%s%s", call, name, text, *what ? ": " : "", what);
}

#define TRY(d, call, what)                                          \
    do {                                                            \
        int rc_ = (d)->call;                                        \
        if (rc_)                                                    \
            return device_error((d), #call, rc_, (what));           \
    } while (0)

static const Driver *enter(const GpuEngine *g)
{
    g->d->cuCtxPushCurrent_v2(g->ctx);
    return g->d;
}

static optc_status leave(const GpuEngine *g, optc_status s)
{
    CUcontext c;
    g->d->cuCtxPopCurrent_v2(&c);
    return s;
}

/* ---- engines ---- */
int gpu_count(void)
{
    const Driver *d = driver_get(NULL);
    int n = 0;
    return d && d->cuDeviceGetCount(&n) == 0 ? n : 0;
}

static optc_status open_device(optc_engine *e, GpuEngine *g, int ordinal)
{
    const Driver *d = g->d;
    int major, minor;
    g->ordinal = ordinal;
    TRY(d, cuDeviceGet(&g->device, ordinal), "");
    TRY(d, cuDeviceGetName(g->name, sizeof g->name, g->device), "");
    TRY(d, cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, g->device), "");
    TRY(d, cuDeviceGetAttribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, g->device), "");
    TRY(d, cuDeviceGetAttribute(&g->sms, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, g->device), "");
    g->arch = major * 10 + minor;
    TRY(d, cuDevicePrimaryCtxRetain(&g->ctx, g->device), "");
    char name[256];
    snprintf(name, sizeof name, "cuda:%d: %s, %d multiprocessors, sm_%d", ordinal, g->name, g->sms, g->arch);
    free(e->name);
    e->name = strdup(name);
    return e->name ? OPTC_OK : fail(OPTC_ERROR_MEMORY, "optc_open: out of memory");
}

optc_status gpu_open(optc_engine *e, int ordinal)
{
    const char *why;
    const Driver *d = driver_get(&why);
    if (!d)
        return fail(OPTC_ERROR_UNAVAILABLE, "optc_open: cuda:%d: %s", ordinal, why);
    if (ordinal >= gpu_count())
        return fail(OPTC_ERROR_UNAVAILABLE, "optc_open: there is no cuda:%d (there are %d)", ordinal, gpu_count());
    GpuEngine *g = calloc(1, sizeof *g);
    if (!g)
        return fail(OPTC_ERROR_MEMORY, "optc_open: out of memory");
    g->d = d;
    e->gpu = g;
    return open_device(e, g, ordinal);
}

void gpu_close(optc_engine *e)
{
    if (e->gpu && e->gpu->ctx)
        e->gpu->d->cuDevicePrimaryCtxRelease_v2(e->gpu->device);
    free(e->gpu);
}

bool gpu_arch(int ordinal, int *arch, int *driver)
{
    const Driver *d = driver_get(NULL);
    CUdevice device;
    int major, minor;
    if (!d || d->cuDeviceGet(&device, ordinal) || d->cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device) ||
        d->cuDeviceGetAttribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device))
        return false;
    *arch = major * 10 + minor;
    *driver = d->version;
    return true;
}

/* ---- rules ---- */
static optc_status find_kernel(optc_rule *r, const char *name, CUfunction *out)
{
    const Driver *d = r->engine->gpu->d;
    int rc = 0;
    for (int i = 0; i < r->gpu->nmodule; i++)
        if ((rc = d->cuModuleGetFunction(out, r->gpu->module[i], name)) != CUDA_ERROR_NOT_FOUND)
            break;
    return rc || !*out ? device_error(d, "cuModuleGetFunction", rc ? rc : CUDA_ERROR_NOT_FOUND, name) : OPTC_OK;
}

static optc_status find_kernels(optc_rule *r)
{
    Plan *p = r->plan;
    optc_status s = find_kernel(r, "optc_tick", &r->gpu->tick);
    for (int e = 0; e < p->nentry; e++)
        for (int m = 0; m < p->entry[e].nphase; m++)
            for (int i = 0; i < p->entry[e].phase[m].nstage && s == OPTC_OK; i++) {
                const Stage *st = &p->entry[e].phase[m].stage[i];
                s = find_kernel(r, emit_prefixed(&r->gen, p->entry[e].name, m, st), &r->gpu->fn[st->fn]);
            }
    return s;
}

static void each_stage(const optc_rule *r, void (*f)(const optc_rule *r, const Stage *s))
{
    const Plan *p = r->plan;
    for (int e = 0; e < p->nentry; e++)
        for (int m = 0; m < p->entry[e].nphase; m++)
            for (int i = 0; i < p->entry[e].phase[m].nstage; i++)
                f(r, &p->entry[e].phase[m].stage[i]);
}

static void choose_launch(const optc_rule *r, const Stage *s)
{
    r->gpu->launch[s->fn] = launch_model(r->plan, s);
}

/* ---- compiling: the kernels in several programs side by side, their machine code in one cache entry: a length and a cubin each ---- */
typedef struct Part { const Nvrtc *n; char *source, *cubin, *log; const char *name; size_t size; int arch; pthread_t thread; bool started; } Part;
enum { MOST_PARTS = 8 };

static void *build_part(void *arg)
{
    Part *p = arg;
    p->cubin = nvrtc_build(p->n, p->source, p->name, p->arch, false, &p->size, &p->log);
    return NULL;
}

static char *join_parts(const Part *p, int n, size_t *size)
{
    *size = 0;
    for (int i = 0; i < n; i++)
        *size += sizeof(uint64_t) + ((p[i].size + 7) & ~(size_t)7);
    char *all = calloc(1, *size + 1), *at = all;
    for (int i = 0; all && i < n; i++) {
        uint64_t len = p[i].size;
        memcpy(at, &len, sizeof len);
        memcpy(at + sizeof len, p[i].cubin, p[i].size);
        at += sizeof len + ((p[i].size + 7) & ~(size_t)7);
    }
    return all;
}

/* NULL: *why says what NVRTC said. */
static char *compile_parts(optc_rule *r, const Nvrtc *n, size_t *size, char **why)
{
    Part part[MOST_PARTS] = {{0}};
    int count = emit_cuda_parts(r->plan), cores = (int)sysconf(_SC_NPROCESSORS_ONLN);
    count = count > cores ? cores : count;
    count = count > MOST_PARTS ? MOST_PARTS : count < 1 ? 1 : count;
    bool ok = true;
    for (int i = 0; i < count && ok; i++) {
        r->gen.part = i;
        r->gen.nparts = count;
        part[i] = (Part){.n = n, .source = gen_emit(&r->gen, "cuda", ""), .name = r->rule->name, .arch = r->engine->gpu->arch};
        ok = part[i].source != NULL;
        part[i].started = ok && i < count - 1 && pthread_create(&part[i].thread, NULL, build_part, &part[i]) == 0;
        if (ok && !part[i].started)
            build_part(&part[i]);                   /* the last one here; the others too where threads cannot be had */
    }
    r->gen.part = r->gen.nparts = 0;
    *why = NULL;
    for (int i = 0; i < count; i++) {
        if (part[i].started)
            pthread_join(part[i].thread, NULL);
        ok = ok && part[i].cubin;
        if (part[i].log && !*why) {
            *why = part[i].log;
            part[i].log = NULL;
        }
    }
    char *all = ok ? join_parts(part, count, size) : NULL;
    for (int i = 0; i < count; i++) {
        free(part[i].source);
        free(part[i].cubin);
        free(part[i].log);
    }
    return all;
}

static optc_status load_parts(optc_rule *r, const char *all, size_t size)
{
    const Driver *d = r->engine->gpu->d;
    GpuRule *g = r->gpu;
    for (size_t at = 0; at + sizeof(uint64_t) < size && g->nmodule < MOST_PARTS;) {
        uint64_t len;
        memcpy(&len, all + at, sizeof len);
        if (len > size - at - sizeof len)
            break;
        TRY(d, cuModuleLoadData(&g->module[g->nmodule], all + at + sizeof len), r->rule->name);
        g->nmodule++;
        at += sizeof len + ((len + 7) & ~(uint64_t)7);
    }
    return find_kernels(r);
}

/* ---- from a shipped package ---- */
/* Packages know a rule by its source with the model's launches: that takes no compiler and no tuning. */
static bool in_package(optc_rule *r, Package *out)
{
    char key[33];
    const Launch *was = r->gen.launch;
    r->gen.launch = NULL;
    char *source = r->engine->cache.base ? gen_emit(&r->gen, "cuda", "") : NULL;
    r->gen.launch = was;
    hash_hex(source ? emit_key(source) : (Hash128){0, 0}, key);
    free(source);
    return source && package_find(&r->engine->cache, key, r->engine->gpu->arch, r->engine->gpu->d->version, out);
}

static optc_status load_package(optc_rule *r, const Package *p)
{
    const Driver *d = r->engine->gpu->d;
    for (int i = 0; i < r->plan->nfn; i++)
        if (!package_launch(p, i, &r->gpu->launch[i]))
            return fail(OPTC_ERROR_IO, "optc_compile: the package '%s' lacks a launch of rule '%s'", p->m.name, r->rule->name);
    TRY(d, cuModuleLoadData(&r->gpu->module[0], p->fatbin), p->m.name);
    r->gpu->nmodule = 1;
    r->gen.prefix = arena_strdup(&r->gen.arena, p->rule->prefix);
    snprintf(r->path, sizeof r->path, "from the package %.60s (%s_%d)", p->m.name, p->m.image[p->image].ptx ? "compute" : "sm", p->m.image[p->image].arch);
    return find_kernels(r);
}

/* false: nothing there, or it does not load; the rule is as it was. */
static bool use_package(optc_rule *r)
{
    Package p;
    if (!in_package(r, &p))
        return false;
    enter(r->engine->gpu);
    optc_status s = load_package(r, &p);
    if (s != OPTC_OK && r->gpu->nmodule) {
        r->engine->gpu->d->cuModuleUnload(r->gpu->module[0]);
        r->gpu->nmodule = 0;
    }
    leave(r->engine->gpu, s);
    package_free(&p);
    if (s != OPTC_OK) {
        r->gen.prefix = NULL;
        each_stage(r, choose_launch);
    }
    return s == OPTC_OK;
}

static optc_status out_of_memory(void) { return fail(OPTC_ERROR_MEMORY, "optc_compile: out of memory"); }

optc_status gpu_build(optc_rule *r)
{
    GpuEngine *e = r->engine->gpu;
    const char *why = "";
    char key[33], all[256], code[33], *log = NULL;
    size_t size = 0;
    GpuRule *g = r->gpu = calloc(1, sizeof *r->gpu);
    if (!g || !(g->fn = calloc((size_t)r->plan->nfn + 1, sizeof *g->fn)) || !(g->launch = calloc((size_t)r->plan->nfn + 1, sizeof *g->launch)))
        return out_of_memory();
    g->needs_t = plan_uses_t(r->plan);
    each_stage(r, choose_launch);
    r->gen.launch = g->launch;
    char *source = gen_emit(&r->gen, "cuda", "");
    if (!source)
        return out_of_memory();
    const Nvrtc *n = nvrtc_get(&why);
    int major = 0, minor = 0;
    if (n)
        n->nvrtcVersion(&major, &minor);
    hash_hex(emit_key(source), code);
    free(source);
    int len = snprintf(all, sizeof all, "%s|%s|sm_%d|nvrtc %d.%d|abi %d", code, nvrtc_options(), e->arch, major, minor, OPTC_ABI);
    hash_hex(hash128(all, (size_t)len), key);
    CacheSlot slot;
    CacheNote note;
    char *cubins = cache_begin(&slot, &r->engine->cache, key, "cubin", n != NULL, &size);
    snprintf(r->path, sizeof r->path, "%s", cubins ? "cubin from the cache" : "");
    if (!cubins && use_package(r)) {
        cache_end(&slot, NULL, 0, NULL);
        return OPTC_OK;
    }
    if (!cubins && !n)
        return fail(OPTC_ERROR_UNAVAILABLE, "optc_compile: rule '%s' on %s: %s", r->rule->name, r->engine->name, why);
    if (!cubins) {
        double t0 = now_ms();
        cubins = compile_parts(r, n, &size, &log);
        snprintf(all, sizeof all, "sm_%d", e->arch);
        snprintf(code, sizeof code, "NVRTC %d.%d", major, minor);
        rule_note(r, all, code, &note);
        cache_end(&slot, cubins, size, &note);
        if (!cubins) {
            optc_status s = log ? fail(OPTC_ERROR_SPEC, "optc_compile: NVRTC refused rule '%s' for sm_%d: %s", r->rule->name, e->arch, log) : out_of_memory();
            free(log);
            return s;
        }
        snprintf(r->path, sizeof r->path, "compiled by NVRTC %d.%d in %.0f ms (sm_%d)", major, minor, now_ms() - t0, e->arch);
    }
    enter(e);
    optc_status s = leave(e, load_parts(r, cubins, size));
    free(cubins);
    return s;
}

void gpu_drop(optc_rule *r)
{
    if (!r->gpu)
        return;
    const Driver *d = enter(r->engine->gpu);
    for (int i = 0; i < r->gpu->nmodule; i++)
        d->cuModuleUnload(r->gpu->module[i]);
    leave(r->engine->gpu, OPTC_OK);
    free(r->gpu->fn);
    free(r->gpu->launch);
    free(r->gpu);
}

/* ---- bindings ---- */
static optc_status alloc_inside(optc_binding *b, size_t bytes, CUdeviceptr *out)
{
    const Driver *d = b->rule->engine->gpu->d;
    char what[80];
    snprintf(what, sizeof what, "%zu bytes for '%.40s'", bytes, b->rule->rule->name);
    TRY(d, cuMemAllocAsync(out, bytes ? bytes : 64, b->gpu->stream), what);
    return OPTC_OK;
}

optc_status gpu_alloc(optc_binding *b, size_t bytes, void **out)
{
    CUdeviceptr p = 0;
    b->gpu = calloc(1, sizeof *b->gpu);
    if (!b->gpu)
        return fail(OPTC_ERROR_MEMORY, "optc_bind: out of memory");
    enter(b->rule->engine->gpu);
    optc_status s = leave(b->rule->engine->gpu, alloc_inside(b, bytes, &p));
    *out = (void *)(uintptr_t)p;
    return s;
}

void gpu_free(optc_binding *b)
{
    if (!b->gpu)
        return;
    const Driver *d = enter(b->rule->engine->gpu);
    if (b->block)
        d->cuMemFreeAsync((CUdeviceptr)(uintptr_t)b->block, b->gpu->stream);
    if (b->gpu->all)
        d->cuMemFreeAsync(b->gpu->all, b->gpu->stream);
    leave(b->rule->engine->gpu, OPTC_OK);
    free(b->gpu);
    b->gpu = NULL;
    b->block = NULL;
}

optc_status gpu_check_pointer(optc_binding *b, int tensor, const void *p, const char *what)
{
    const GpuEngine *g = b->rule->engine->gpu;
    int type = 0;
    char label[96];
    if (!p)
        return OPTC_OK;
    int rc = enter(g)->cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, (CUdeviceptr)(uintptr_t)p);
    leave(g, OPTC_OK);
    if (rc || type == CU_MEMORYTYPE_HOST)
        return fail(OPTC_ERROR_ARGUMENT, "%s of %s does not lie in the memory of %s", what, tensor_label(b, tensor, label), b->rule->engine->name);
    return OPTC_OK;
}

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
    for (int v = 0; v < NVARIANT; v++)
        for (int k = 0; k < NSTAGEKIND; k++)
            t->units[v][k] = pack_units(p, &b->units[v], (StageKind)k);
}

static optc_status send_tables(optc_binding *b, const char *host, size_t bytes)
{
    const Driver *d = b->rule->engine->gpu->d;
    TRY(d, cuMemcpyHtoDAsync_v2(b->gpu->all, host, bytes, b->gpu->stream), "");
    TRY(d, cuStreamSynchronize(b->gpu->stream), "");
    return OPTC_OK;
}

optc_status gpu_tables(optc_binding *b)
{
    GpuTables *t = b->gpu;
    Packer p = {NULL, 0};
    for (int i = 0; i < b->ngroup; i++)
        b->group[i].hyper[0] = 0;                 /* on the device t counts the steps begun */
    pack_all(&p, b, t, 0);
    size_t bytes = p.at;
    enter(b->rule->engine->gpu);
    optc_status s = alloc_inside(b, bytes, &t->all);
    p.host = s == OPTC_OK ? calloc(1, bytes + 1) : NULL;
    if (s == OPTC_OK && !p.host)
        s = fail(OPTC_ERROR_MEMORY, "optc_bind: out of memory");
    if (s == OPTC_OK) {
        pack_all(&p, b, t, t->all);
        s = send_tables(b, p.host, bytes);
        CUdeviceptr *all[] = {&t->hyper, &t->mem, &t->group_mem, &t->views, &t->groups};
        for (int i = 0; i < 5; i++)
            *all[i] += t->all;
        for (int i = 0; i < NVARIANT * NSTAGEKIND; i++)
            t->units[i / NSTAGEKIND][i % NSTAGEKIND] += t->all;
    }
    free(p.host);
    return leave(b->rule->engine->gpu, s);
}

static optc_status fill_one(optc_binding *b, const Mem *m, const State *s, void *dst, const void *param, int64_t n)
{
    const Driver *d = b->rule->engine->gpu->d;
    CUstream st = b->gpu->stream;
    CUdeviceptr to = (CUdeviceptr)(uintptr_t)dst;
    size_t bytes = (size_t)n * (size_t)type_info[m->type].bytes;
    if (!dst || !n)
        return OPTC_OK;
    if (s->init == INIT_FILL && s->value == 0) {
        TRY(d, cuMemsetD8Async(to, 0, bytes, st), m->name);
        return OPTC_OK;
    }
    if (s->init == INIT_COPY_P && m->type == b->rule->plan->p) {
        TRY(d, cuMemcpyDtoDAsync_v2(to, (CUdeviceptr)(uintptr_t)param, bytes, st), m->name);
        return OPTC_OK;
    }
    /* Rare: another type, or a constant. Made on the host in pieces. */
    Type pt = b->rule->plan->p;
    int64_t piece = 1 << 20;
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

optc_status gpu_init_state(optc_binding *b)
{
    const Plan *p = b->rule->plan;
    enter(b->rule->engine->gpu);
    optc_status s = OPTC_OK;
    for (int k = 0; k < p->nmem && s == OPTC_OK; k++) {
        const Mem *m = &p->mem[k];
        static const State zero = {.name = "input"};
        if (m->kind != MEM_STATE && !(m->kind == MEM_INPUT && m->dom == GROUP))
            continue;
        const State *st = m->kind == MEM_STATE ? &p->rule->state[m->sym] : &zero;
        for (int i = 0; m->dom == GROUP && i < b->ngroup && s == OPTC_OK; i++)
            s = fill_one(b, m, st, b->group[i].mem[k], NULL, 1);
        for (int i = 0; m->dom != GROUP && i < b->ntensor && s == OPTC_OK; i++)
            s = fill_one(b, m, st, b->tensor[i].mem[k], b->tensor[i].mem[0], dom_len(m->dom, b->tensor[i].shape));
    }
    return leave(b->rule->engine->gpu, s);
}

/* ---- running ---- */
typedef struct { CUdeviceptr views, mem, units; long long count; int guard, tick; } Args;      /* optc_launch of templates/cuda.h */

static optc_status launch(optc_binding *b, const Stage *s, int guard, int tick)
{
    const Driver *d = b->rule->engine->gpu->d;
    const Units *u = &b->units[s->variant];
    bool group = s->kind == S_GROUP;
    Args a = {group ? b->gpu->groups : b->gpu->views, group ? b->gpu->group_mem : b->gpu->mem, b->gpu->units[s->variant][s->kind], group ? b->ngroup : u->prefix[s->kind][u->n], guard, tick};
    void *args[] = {&a};
    if (!a.count)
        return OPTC_OK;
    int64_t grid;
    int threads;
    launch_grid(s, &b->rule->gpu->launch[s->fn], a.count, b->rule->engine->gpu->sms, &grid, &threads);
    int rc = d->cuLaunchKernel(b->rule->gpu->fn[s->fn], (unsigned)grid, 1, 1, (unsigned)threads, 1, 1, 0, b->gpu->stream, args, NULL);
    if (!rc)
        return OPTC_OK;
    char what[80];
    snprintf(what, sizeof what, "stage %s of rule '%.40s'", stage_name[s->kind], b->rule->rule->name);
    return device_error(d, "cuLaunchKernel", rc, what);
}

static optc_status send_moved(optc_binding *b)
{
    const Driver *d = b->rule->engine->gpu->d;
    size_t row = sizeof(void *) * (size_t)b->rule->plan->nmem;
    char *host = malloc(row * (size_t)b->ntensor + 1);
    if (!host)
        return fail(OPTC_ERROR_MEMORY, "optc_run: out of memory");
    for (int i = 0; i < b->ntensor; i++)
        memcpy(host + row * (size_t)i, b->tensor[i].mem, row);
    int rc = d->cuMemcpyHtoDAsync_v2(b->gpu->mem, host, row * (size_t)b->ntensor, b->gpu->stream);    /* pageable: copied before it returns */
    free(host);
    if (rc)
        return device_error(d, "cuMemcpyHtoDAsync", rc, "moved pointers");
    b->gpu->moved = false;
    return OPTC_OK;
}

static optc_status run_inside(optc_binding *b, int entry, double t)
{
    const Driver *d = b->rule->engine->gpu->d;
    const Plan *p = b->rule->plan;
    bool step = !strcmp(p->entry[entry].name, "step");
    int capturing = 0;
    if (b->gpu->moved || p->nperiod)
        TRY(d, cuStreamIsCapturing(b->gpu->stream, &capturing), "");
    if (b->gpu->moved && capturing)
        return fail(OPTC_ERROR_ARGUMENT, "optc_run: a pointer was set since the last step: run one step before capturing");
    if (b->gpu->moved) {
        optc_status s = send_moved(b);
        if (s != OPTC_OK)
            return s;
    }
    bool first_is_group = !p->nperiod && p->entry[entry].phase[0].nstage && p->entry[entry].phase[0].stage[0].kind == S_GROUP;
    bool tick = step && b->rule->gpu->needs_t;
    if (tick && !first_is_group) {
        Args a = {b->gpu->groups, b->gpu->group_mem, 0, b->ngroup, 0, 0};
        void *args[] = {&a};
        TRY(d, cuLaunchKernel(b->rule->gpu->tick, 1, 1, 1, 128, 1, 1, 0, b->gpu->stream, args, NULL), "tick");
    }
    int now = plan_phase(p, t);
    for (int m = 0; m < p->entry[entry].nphase; m++)
        for (int i = 0; i < p->entry[entry].phase[m].nstage && (capturing || m == now); i++) {
            optc_status s = launch(b, &p->entry[entry].phase[m].stage[i], capturing != 0, tick && first_is_group && i == 0);
            if (s != OPTC_OK)
                return s;
        }
    return OPTC_OK;
}

optc_status gpu_run(optc_binding *b, int entry, double t)
{
    enter(b->rule->engine->gpu);
    return leave(b->rule->engine->gpu, run_inside(b, entry, t));
}

optc_status gpu_send_hyper(optc_binding *b, int group, int first, int count)
{
    const GpuEngine *g = b->rule->engine->gpu;
    int nh = b->rule->rule->nhyper + 1;
    int rc = enter(g)->cuMemcpyHtoDAsync_v2(b->gpu->hyper + sizeof(double) * (size_t)(group * nh + first), b->group[group].hyper + first, sizeof(double) * (size_t)count, b->gpu->stream);
    return leave(g, rc ? device_error(g->d, "cuMemcpyHtoDAsync", rc, "hyperparameters") : OPTC_OK);
}

optc_status gpu_read(const optc_binding *b, void *host, const void *device, size_t bytes)
{
    const GpuEngine *g = b->rule->engine->gpu;
    const Driver *d = enter(g);
    int rc = d->cuMemcpyDtoHAsync_v2(host, (CUdeviceptr)(uintptr_t)device, bytes, b->gpu->stream);
    if (!rc)
        rc = d->cuStreamSynchronize(b->gpu->stream);
    return leave(g, rc ? device_error(d, "cuMemcpyDtoHAsync", rc, "reading state") : OPTC_OK);
}

optc_status gpu_write(const optc_binding *b, void *device, const void *host, size_t bytes)
{
    const GpuEngine *g = b->rule->engine->gpu;
    const Driver *d = enter(g);
    int rc = d->cuMemcpyHtoDAsync_v2((CUdeviceptr)(uintptr_t)device, host, bytes, b->gpu->stream);
    if (!rc)
        rc = d->cuStreamSynchronize(b->gpu->stream);
    return leave(g, rc ? device_error(d, "cuMemcpyHtoDAsync", rc, "writing state") : OPTC_OK);
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
    const GpuEngine *g = b->rule->engine->gpu;
    int rc = enter(g)->cuStreamSynchronize(b->gpu->stream);
    return leave(g, rc ? device_error(g->d, "cuStreamSynchronize", rc, b->rule->rule->name) : OPTC_OK);
}
