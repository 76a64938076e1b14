/* Turns a plan into loaded kernels: chooses launches, emits the source, compiles it or finds it in the cache or a
 * package, and looks up its kernels. */
#include "runtime/library/rule/gpu_code.h"

#include "gen/gen.h"
#include "runtime/library/package/package.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- launches: tuned results, otherwise the model's ---- */
void gpu_tuned_key(const optc_rule *r, int fn, int64_t elements, TunedKey *k)
{
    const Plan *p = r->library->plan;
    const GpuEngine *g = r->engine->gpu;
    memset(k, 0, sizeof *k);
    tuned_set_device(k, g->name, g->sms, g->driver);
    k->form = stage_form(plan_at(p, fn).stage);
    plan_types_key(p, k->types);
    memcpy(k->stage, r->library->gpu->hash[fn], sizeof k->stage);
    k->bucket = tuned_bucket(elements);
}

const Tuned *gpu_tuned(const optc_rule *r, int fn, int64_t elements, const char **from)
{
    const Stage *s = plan_at(r->library->plan, fn).stage;
    TunedKey k;
    int lo, hi;
    if (!stage_tunes(s))
        return NULL;                           /* nothing to choose */
    gpu_tuned_key(r, fn, elements, &k);
    launch_range(r->library->plan, s, elements, &lo, &hi);
    tuned_reach(&k, &lo, &hi);
    const Tuned *t = tuned_look(&r->engine->library->tuned, &k, lo, hi, from);
    return t && launch_valid(r->library->plan, s, &t->launch) ? t : NULL;
}

static void choose_launches(optc_rule *r, int64_t elements, Launch *l)
{
    bool other = false;                        /* some launch differs from the model's */
    r->library->tuned[0] = 0;
    for (int f = 0; f < r->library->plan->nfn; f++) {
        StageAt at = plan_at(r->library->plan, f);
        if (!at.stage)
            continue;
        l[f] = launch_model(r->library->plan, at.stage, elements);
        const char *from;
        const Tuned *t = gpu_tuned(r, f, elements, &from);
        if (!t)
            continue;
        other = other || memcmp(&l[f], &t->launch, sizeof l[f]);
        l[f] = t->launch;
        snprintf(r->library->tuned, sizeof r->library->tuned,
                 t->key.bucket == tuned_bucket(elements) ? "; launches tuned (%s)"
                                                         : "; launches tuned (%s, nearest size 2^%d)",
                 from, t->key.bucket);
    }
    size_t n = strlen(r->library->tuned);
    if (n && !other)
        snprintf(r->library->tuned + n, sizeof r->library->tuned - n, ", all as the model has them");
}

/* ---- one kernel alone ---- */
char *gpu_stage_source(const optc_rule *r, const Stage *s, const Launch *l)
{
    Launch *all = calloc((size_t)r->library->plan->nfn + 1, sizeof *all);
    if (!all)
        return NULL;
    all[s->fn] = *l;
    char *source = gen_emit(&r->library->gen, &(EmitOptions){.command = "", .launch = all, .only = s},
                            NULL);
    free(all);
    return source;
}

/* Whether kernels set conditions of conditional graph nodes. A driver without such nodes would not load that code. */
static bool conditions(const optc_rule *r)
{
    return r->engine->gpu->d->version >= CONDITIONS_NEEDED && call_conditions(r->program);
}

/* ---- compiling: the kernels are split into several programs that are compiled in parallel. One cache entry holds all:
 * a length and a cubin each ---- */
typedef struct Part {
    const Nvrtc *n;
    char *source, *cubin, *log;
    const char *name;
    size_t size;
    int arch;
    pthread_t thread;
    bool started;
} Part;

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

/* NULL: *why has NVRTC's log. */
static char *compile_parts(const optc_rule *r, const BuiltKernels *c, const Nvrtc *n, size_t *size, char **why)
{
    Part part[MOST_PARTS] = {{0}};
    int count = emit_parts(r->library->plan), cores = (int)sysconf(_SC_NPROCESSORS_ONLN);
    count = count > cores ? cores : count;
    count = count > MOST_PARTS ? MOST_PARTS : count < 1 ? 1 : count;
    bool ok = true;
    for (int i = 0; i < count && ok; i++) {
        EmitOptions o = {
            .command = "", .launch = c->code.launch, .part = i, .nparts = count, .cite = true,
            .conditions = conditions(r)};
        part[i] = (Part){.n = n,
                         .source = gen_emit(&r->library->gen, &o, NULL),
                         .name = r->library->rule->name,
                         .arch = r->engine->gpu->arch};
        ok = part[i].source != NULL;
        part[i].started = ok && i < count - 1 && pthread_create(&part[i].thread, NULL, build_part, &part[i]) == 0;
        if (ok && !part[i].started)
            build_part(&part[i]);                   /* the last part, or no thread could be started */
    }
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

static optc_status load_parts(optc_rule *r, BuiltKernels *c, const char *all, size_t size)
{
    GpuEngine *g = r->engine->gpu;
    for (size_t at = 0; at + sizeof(uint64_t) < size && c->nmodule < MOST_PARTS;) {
        uint64_t len;
        memcpy(&len, all + at, sizeof len);
        if (len > size - at - sizeof len)
            break;
        TRY(g, cuModuleLoadData(&c->module[c->nmodule], all + at + sizeof len), r->library->rule->name);
        c->nmodule++;
        at += sizeof len + ((len + 7) & ~(uint64_t)7);
    }
    return OPTC_OK;
}

/* prefix: of the kernels' names in a package; "" otherwise. */
static optc_status find_kernels(optc_rule *r, BuiltKernels *c, const char *prefix)
{
    const Program *p = r->program;
    GpuEngine *g = r->engine->gpu;
    TRY(g, cuModuleGetFunction(&c->code.advance_t, c->module[0], p->advance_t), p->advance_t);
    for (int k = 0; k < NCALLKERNEL; k++)
        if (k != KERNEL_PHASE && call_kernel(p, k))
            TRY(g, cuModuleGetFunction(&c->code.call[k], c->module[0], call_kernel(p, k)), call_kernel(p, k));
    CUfunction phase = NULL, read_ahead = NULL, move = NULL;
    if (!g->d->cuModuleGetFunction(&read_ahead, c->module[0], GUARD_KERNEL))
        c->code.read_ahead = read_ahead;                       /* a package may lack these kernels */
    if (!g->d->cuModuleGetFunction(&move, c->module[0], MOVE_KERNEL))
        c->code.move = move;
    if (conditions(r) && !g->d->cuModuleGetFunction(&phase, c->module[0], call_kernel(p, KERNEL_PHASE)))
        c->code.call[KERNEL_PHASE] = phase;
    for (int i = 0; i < p->nstage; i++) {
        char name[400];
        if (p->stage[i].fn < 0)                                /* a call */
            continue;
        snprintf(name, sizeof name, "%s%s", prefix, p->stage[i].kernel);
        TRY(g,
            cuModuleGetFunction(&c->code.fn[p->stage[i].fn],
                                c->module[emit_part_of(r->library->plan, p->stage[i].fn, c->nmodule)], name),
            name);
    }
    return OPTC_OK;
}

static void code_unload(optc_rule *r, BuiltKernels *c)
{
    for (int i = 0; i < c->nmodule; i++)
        r->engine->gpu->d->cuModuleUnload(c->module[i]);
    c->nmodule = 0;
}

static void code_free(optc_rule *r, BuiltKernels *c)
{
    if (!c)
        return;
    code_unload(r, c);
    free(c->asked);
    free(c->code.launch);
    free(c->code.fn);
    free(c);
}

static optc_status load_code(optc_rule *r, BuiltKernels *c, const char *cubins, size_t size)
{
    gpu_enter_aside(r->engine->gpu);
    optc_status s = load_parts(r, c, cubins, size);
    if (s == OPTC_OK)
        s = find_kernels(r, c, "");
    if (s != OPTC_OK)
        code_unload(r, c);
    return gpu_leave(r->engine->gpu, s);
}

/* ---- from a shipped package ---- */
/* A package's key of a rule is the hash of its source with the model's launches, which needs no compiler and no tuned
 * results. */
static bool in_package(optc_rule *r, Package *out, char *why, size_t nwhy)
{
    char key[DIGEST_HEX];
    char *source = r->engine->library->cache.base
                       ? gen_emit(&r->library->gen, &(EmitOptions){.command = ""}, NULL)
                       : NULL;
    bool known = source && emit_key(source, key);
    free(source);
    return known &&
           package_find(&r->engine->library->cache, key, r->engine->gpu->arch, r->engine->gpu->d->version, out, why,
                        nwhy);
}

static optc_status load_package(optc_rule *r, BuiltKernels *c, const Package *p)
{
    GpuEngine *g = r->engine->gpu;
    for (int i = 0; i < r->library->plan->nfn; i++)
        if (plan_at(r->library->plan, i).stage &&
            (!package_launch(p, i, &c->code.launch[i]) ||
             !launch_valid(r->library->plan, plan_at(r->library->plan, i).stage, &c->code.launch[i])))
            return fail(OPTC_ERROR_IO, "optc_compile: the package '%s' has no usable launch for rule '%s'; make the "
                                       "package again", p->m.name,
                        r->library->rule->name);
    TRY(g, cuModuleLoadData(&c->module[0], p->fatbin), p->m.name);
    c->nmodule = 1;
    return find_kernels(r, c, p->rule->prefix);
}

/* Loads the kernels from a package. false: no package has the rule, or it does not load; c is unchanged, and why says
 * what is wrong with the package, if there is one. */
static bool use_package(optc_rule *r, BuiltKernels *c, char *why, size_t nwhy)
{
    Package p;
    *why = 0;
    if (!in_package(r, &p, why, nwhy))
        return false;
    gpu_enter_aside(r->engine->gpu);
    optc_status s = load_package(r, c, &p);
    if (s != OPTC_OK) {
        snprintf(why, nwhy, "the package '%.60s': %s", p.m.name, optc_message());
        code_unload(r, c);
        memcpy(c->code.launch, c->asked, sizeof *c->code.launch * (size_t)(r->library->plan->nfn + 1));
    }
    gpu_leave(r->engine->gpu, s);
    if (s == OPTC_OK) {
        snprintf(r->library->path, sizeof r->library->path, "from the package %.60s (%s_%d)", p.m.name,
                 p.m.image[p.image].ptx ? "compute" : "sm", p.m.image[p.image].arch);
        r->library->tuned[0] = 0;
    }
    package_free(&p);
    return s == OPTC_OK;
}

static optc_status out_of_memory(void) { return fail(OPTC_ERROR_MEMORY, "optc_compile: out of memory"); }

/* The key contains everything that determines the machine code: source with its launches, options, architecture,
 * NVRTC's version, ABI. */
static bool code_key(const optc_rule *r, const BuiltKernels *c, const Nvrtc *n, char key[DIGEST_HEX])
{
    char all[1024], code[DIGEST_HEX];
    EmitOptions o = {.command = "", .launch = c->code.launch, .conditions = conditions(r)};
    char *source = gen_emit(&r->library->gen, &o, NULL);
    bool known = source && emit_key(source, code);
    free(source);
    if (!known)
        return false;
    int len = snprintf(all, sizeof all, "%s|%s|sm_%d|nvrtc %d|abi %d|parts", code, nvrtc_options(),
                       r->engine->gpu->arch, n ? n->version : 0, OPTC_ABI);
    digest_hex(all, (size_t)len, key);
    return true;
}

static optc_status compile_code(optc_rule *r, BuiltKernels *c, const Nvrtc *n, CacheSlot *slot)
{
    GpuEngine *e = r->engine->gpu;
    CacheNote note;
    size_t size = 0;
    char target[32], compiler[32], *log = NULL;
    double t0 = now_ms();
    char *cubins = compile_parts(r, c, n, &size, &log);
    snprintf(target, sizeof target, "sm_%d", e->arch);
    snprintf(compiler, sizeof compiler, "NVRTC %d.%d", n->version / 1000, n->version % 1000 / 10);
    rule_note(r, target, compiler, &note);
    cache_end(slot, cubins, size, &note);
    optc_status s;
    if (!cubins)
        s = log && !strncmp(log, NVRTC_FAILED, strlen(NVRTC_FAILED))
                ? fail(OPTC_ERROR_UNAVAILABLE, "optc_compile: rule '%s' for sm_%d: %s", r->library->rule->name, e->arch,
                       log)
            : log
                ? fail(OPTC_ERROR_SPEC, "optc_compile: NVRTC refused rule '%s' for sm_%d: %s", r->library->rule->name,
                       e->arch, log)
                : out_of_memory();
    else
        s = load_code(r, c, cubins, size);
    snprintf(r->library->path, sizeof r->library->path, "compiled by %s in %.0f ms (%s)", compiler, now_ms() - t0,
             target);
    free(log);
    free(cubins);
    return s;
}

/* A cache entry that the driver refuses is compiled again, like a damaged one. */
static optc_status build_code(optc_rule *r, BuiltKernels *c)
{
    const char *why = "";
    const Nvrtc *n = nvrtc_get(&why);
    char key[DIGEST_HEX], unfit[1024] = "";
    size_t size = 0;
    CacheSlot slot;
    if (!code_key(r, c, n, key))
        return out_of_memory();
    char *cubins = cache_begin(&slot, &r->engine->library->cache, key, "cubin", n != NULL, &size);
    if (cubins && load_code(r, c, cubins, size) == OPTC_OK) {
        snprintf(r->library->path, sizeof r->library->path, "cubin from the cache (sm_%d)", r->engine->gpu->arch);
        free(cubins);
        return OPTC_OK;
    }
    free(cubins);
    optc_status s = gpu_alive(r->engine->gpu);
    if (s == OPTC_OK && use_package(r, c, unfit, sizeof unfit)) {
        cache_end(&slot, NULL, 0, NULL);
        return OPTC_OK;
    }
    if (s != OPTC_OK) {
        cache_end(&slot, NULL, 0, NULL);
        return s;
    }
    if (!n)
        return fail(OPTC_ERROR_UNAVAILABLE, "optc_compile: rule '%s' on %s: %s%s%s", r->library->rule->name,
                    r->engine->name, *unfit ? unfit : "", *unfit ? "; and " : "", why);
    return compile_code(r, c, n, &slot);
}

static BuiltKernels *code_with(const GpuRule *g, const Launch *l, int n)
{
    for (BuiltKernels *c = g->codes; c; c = c->next)
        if (!memcmp(c->asked, l, sizeof *l * (size_t)n))
            return c;
    return NULL;
}

/* Returns the kernels with these launches, and builds them at the first request. */
optc_status gpu_code_with(optc_rule *r, const Launch *launch, const GpuCode **out)
{
    GpuRule *g = r->library->gpu;
    int n = r->library->plan->nfn + 1;
    pthread_mutex_lock(&g->lock);
    BuiltKernels *c = code_with(g, launch, n);
    optc_status s = OPTC_OK;
    if (!c) {
        c = calloc(1, sizeof *c);
        bool ok = c && (c->code.launch = malloc(sizeof *c->code.launch * (size_t)n)) &&
                  (c->asked = malloc(sizeof *c->asked * (size_t)n)) &&
                  (c->code.fn = calloc((size_t)n, sizeof *c->code.fn));
        if (ok) {
            memcpy(c->code.launch, launch, sizeof *launch * (size_t)n);
            memcpy(c->asked, launch, sizeof *launch * (size_t)n);
        }
        s = ok ? build_code(r, c) : out_of_memory();
        if (s == OPTC_OK) {
            c->next = g->codes;
            g->codes = c;
        } else {
            code_free(r, c);
        }
    }
    pthread_mutex_unlock(&g->lock);
    *out = s == OPTC_OK ? &c->code : NULL;
    return s;
}

optc_status gpu_code_for(optc_rule *r, int64_t elements, const GpuCode **out)
{
    Launch *l = calloc((size_t)r->library->plan->nfn + 1, sizeof *l);
    if (!l)
        return out_of_memory();
    pthread_mutex_lock(&r->library->gpu->lock);
    choose_launches(r, elements, l);
    pthread_mutex_unlock(&r->library->gpu->lock);
    optc_status s = gpu_code_with(r, l, out);
    free(l);
    return s;
}

optc_status gpu_compile(optc_rule *r)
{
    const GpuCode *c;
    optc_status s = gpu_alive(r->engine->gpu);
    if (s != OPTC_OK)
        return s;
    r->library->gpu = calloc(1, sizeof *r->library->gpu);
    if (!r->library->gpu)
        return out_of_memory();
    pthread_mutex_init(&r->library->gpu->lock, NULL);
    r->library->gpu->hash = calloc((size_t)r->library->plan->nfn + 1, sizeof *r->library->gpu->hash);
    if (!r->library->gpu->hash)
        return out_of_memory();
    for (int f = 0; f < r->library->plan->nfn; f++) {
        StageAt at = plan_at(r->library->plan, f);
        if (at.stage && stage_tunes(at.stage) &&
            !emit_cuda_stage_hash(&r->library->gen, f, r->library->gpu->hash[f]))
            return out_of_memory();
    }
    /* the launches for a large model; bindings of other sizes may request others */
    return gpu_code_for(r, (int64_t)1 << 28, &c);
}

void gpu_drop(optc_rule *r)
{
    if (!r->library->gpu)
        return;
    gpu_enter_aside(r->engine->gpu);
    for (BuiltKernels *c = r->library->gpu->codes, *next; c; c = next) {
        next = c->next;
        code_free(r, c);
    }
    gpu_leave(r->engine->gpu, OPTC_OK);
    pthread_mutex_destroy(&r->library->gpu->lock);
    free(r->library->gpu->hash);
    free(r->library->gpu);
    r->library->gpu = NULL;
}
