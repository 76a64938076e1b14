/* Turns a plan into loaded kernels: chooses launches, emits the source, compiles it or finds it in the cache or a
 * package, and looks up its kernels. */
#include "runtime/library/rule/gpu_code.h"

#include "gen/gen.h"
#include "runtime/library/package/package.h"
#include "runtime/library/rule/gpu_modules.h"

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

/* ---- programs that other choices of launches have too ---- */
static bool same_part(const Plan *p, const BuiltKernels *a, const BuiltKernels *b, int part)
{
    for (int f = 0; f < p->nfn; f++)
        if (plan_at(p, f).stage && emit_part_of(p, f, a->nparts) == part &&
            memcmp(&a->code.launch[f], &b->code.launch[f], sizeof *a->code.launch))
            return false;
    return true;
}

/* Takes the modules that c has in common with the rule's other choices. Returns the others as bits; all are set and
 * c->nparts is 0 if no other choice was compiled. */
static unsigned share_modules(const optc_rule *r, BuiltKernels *c)
{
    const BuiltKernels *like = r->library->gpu->codes;
    unsigned need = ~0u;
    while (like && (like->package || like->runs != c->runs))
        like = like->next;
    for (const BuiltKernels *d = like; d; d = d->next) {
        if (d->package || d->runs != c->runs || d->nparts != like->nparts)
            continue;
        c->nparts = d->nparts;
        c->nmodule = d->nmodule;
        need &= (1u << c->nmodule) - 1;
        for (int i = 0; i < c->nmodule; i++)
            if (need >> i & 1 && (i >= c->nparts || same_part(r->library->plan, c, d, i))) {
                c->module[i] = d->module[i];
                need &= ~(1u << i);
            }
    }
    return need;
}

static void code_unload(optc_rule *r, BuiltKernels *c)
{
    for (int i = 0; i < MOST_MODULES; i++)
        if (c->own >> i & 1)
            r->engine->gpu->d->cuModuleUnload(c->module[i]);
    c->own = 0;
}

/* An entry with all programs of a rule may be from a machine with more or fewer cores, which divided it otherwise. */
static optc_status load_parts(optc_rule *r, BuiltKernels *c, unsigned need, bool whole, const char *all, size_t size)
{
    GpuEngine *g = r->engine->gpu;
    size_t at = 0;
    int rc = 0;
    for (int i = 0; i < MOST_MODULES && need >> i; i++)
        if (need >> i & 1) {
            if (!modules_load_next(g, all, size, &at, &c->module[i], &rc))
                break;
            c->own |= 1u << i;
        }
    if (rc)
        return gpu_error(g, "cuModuleLoadData", rc, r->library->rule->name);
    if (whole) {
        int calls = program_calls(r->program) ? 1 : 0;
        for (c->nmodule = 0; c->own >> c->nmodule & 1;)
            c->nmodule++;
        c->nparts = c->nmodule - calls;
    }
    return c->nparts < 1 || (!whole && c->own != need)
               ? fail(OPTC_ERROR_IO, "optc_compile: the cache's kernels of rule '%s' are incomplete",
                      r->library->rule->name)
               : OPTC_OK;
}

/* prefix: of the kernels' names in a package; "" otherwise. */
static optc_status find_kernels(optc_rule *r, BuiltKernels *c, const char *prefix)
{
    const Program *p = r->program;
    GpuEngine *g = r->engine->gpu;
    CUmodule calls = c->module[c->nmodule > c->nparts ? c->nparts : 0];
    TRY(g, cuModuleGetFunction(&c->code.advance_t, c->module[0], p->advance_t), p->advance_t);
    for (int k = 0; k < NCALLKERNEL; k++) {
        CUmodule in = c->package || !kernel_multiplies((CallKernel)k) ? calls : r->library->gpu->products;
        if (k != KERNEL_PHASE && call_kernel(p, k) && in)
            TRY(g, cuModuleGetFunction(&c->code.call[k], in, call_kernel(p, k)), call_kernel(p, k));
    }
    CUfunction phase = NULL, read_ahead = NULL, move = NULL, agree = NULL;
    if (!g->d->cuModuleGetFunction(&read_ahead, c->module[0], GUARD_KERNEL))
        c->code.read_ahead = read_ahead;                       /* a package may lack these kernels */
    if (!g->d->cuModuleGetFunction(&move, c->module[0], MOVE_KERNEL))
        c->code.move = move;
    if (!g->d->cuModuleGetFunction(&agree, c->module[0], AGREE_KERNEL))
        c->code.agree = agree;
    if (modules_conditions(r) && !g->d->cuModuleGetFunction(&phase, calls, call_kernel(p, KERNEL_PHASE)))
        c->code.call[KERNEL_PHASE] = phase;
    for (int i = 0; i < p->nstage; i++) {
        char name[400];
        if (p->stage[i].fn < 0)                                /* a call */
            continue;
        snprintf(name, sizeof name, "%s%s", prefix, p->stage[i].kernel);
        TRY(g,
            cuModuleGetFunction(&c->code.fn[p->stage[i].fn],
                                c->module[emit_part_of(r->library->plan, p->stage[i].fn, c->nparts)], name),
            name);
    }
    return OPTC_OK;
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

static optc_status load_code(optc_rule *r, BuiltKernels *c, unsigned need, bool whole, const char *cubins, size_t size)
{
    gpu_enter_aside(r->engine->gpu);
    optc_status s = load_parts(r, c, need, whole, cubins, size);
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
    c->nmodule = c->nparts = 1;
    c->own = 1;
    c->package = true;
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
        c->nmodule = c->nparts = 0;
        c->package = false;
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
 * NVRTC's version, ABI. what: which of the kernels. */
static bool code_key(const optc_rule *r, const EmitOptions *o, const char *what, const Nvrtc *n, char key[DIGEST_HEX])
{
    char all[1024], code[DIGEST_HEX];
    char *source = gen_emit(&r->library->gen, o, NULL);
    bool known = source && emit_key(source, code);
    free(source);
    if (!known)
        return false;
    int len = snprintf(all, sizeof all, "%s|%s|sm_%d|nvrtc %d|abi %d|%s", code, nvrtc_options(), r->engine->gpu->arch,
                       n ? n->version : 0, OPTC_ABI, what);
    digest_hex(all, (size_t)len, key);
    return true;
}

/* what: the function that failed. */
static optc_status refused_by_nvrtc(const optc_rule *r, const char *what, const char *log)
{
    const char *name = r->library->rule->name;
    int arch = r->engine->gpu->arch;
    if (!log)
        return fail(OPTC_ERROR_MEMORY, "%s: out of memory", what);
    return !strncmp(log, NVRTC_FAILED, strlen(NVRTC_FAILED))
               ? fail(OPTC_ERROR_UNAVAILABLE, "%s: rule '%s' for sm_%d: %s", what, name, arch, log)
               : fail(OPTC_ERROR_SPEC, "%s: NVRTC refused rule '%s' for sm_%d: %s", what, name, arch, log);
}

static void end_slot(const optc_rule *r, const Nvrtc *n, CacheSlot *slot, const char *cubins, size_t size)
{
    CacheNote note;
    char target[32], compiler[32];
    snprintf(target, sizeof target, "sm_%d", r->engine->gpu->arch);
    snprintf(compiler, sizeof compiler, "NVRTC %d.%d", n->version / 1000, n->version % 1000 / 10);
    rule_note(r, target, compiler, &note);
    cache_end(slot, cubins, size, &note);
}

/* A rule may be compiled in several builds; the path names the time of all. */
static void note_time(optc_rule *r, const Nvrtc *n, double ms)
{
    r->library->gpu->compile_ms += ms;
    snprintf(r->library->path, sizeof r->library->path, "compiled by NVRTC %d.%d in %.0f ms (sm_%d)", n->version / 1000,
             n->version % 1000 / 10, r->library->gpu->compile_ms, r->engine->gpu->arch);
}

static optc_status compile_code(optc_rule *r, BuiltKernels *c, const Nvrtc *n, unsigned need, CacheSlot *slot)
{
    size_t size = 0;
    char *log = NULL;
    double t0 = now_ms();
    char *cubins = modules_compile(r, c, n, need, &size, &log);
    end_slot(r, n, slot, cubins, size);
    optc_status s =
        cubins ? load_code(r, c, need, false, cubins, size) : refused_by_nvrtc(r, "optc_compile", log);
    note_time(r, n, now_ms() - t0);
    free(log);
    free(cubins);
    return s;
}

static optc_status no_nvrtc(const optc_rule *r, const char *what, const char *unfit, const char *why)
{
    return fail(OPTC_ERROR_UNAVAILABLE, "%s: rule '%s' on %s: %s%s%s", what, r->library->rule->name, r->engine->name,
                unfit, *unfit ? "; and " : "", why);
}

/* Builds the modules that are bits of `need`; whole: all of the rule, nothing is compiled yet. A cache entry that the
 * driver refuses is compiled again, like a damaged one. */
static optc_status build_modules(optc_rule *r, BuiltKernels *c, unsigned need, bool whole)
{
    const char *why = "";
    const Nvrtc *n = nvrtc_get(&why);
    char key[DIGEST_HEX], unfit[1024] = "", what[64] = "modules";
    size_t size = 0;
    CacheSlot slot;
    EmitOptions o = {
        .command = "", .launch = c->code.launch, .conditions = modules_conditions(r), .runs = c->runs};
    if (!whole)
        snprintf(what, sizeof what, "modules %x of %d", need, c->nmodule);
    if (!code_key(r, &o, what, n, key))
        return out_of_memory();
    char *cubins = cache_begin(&slot, &r->engine->library->cache, key, "cubin", n != NULL, &size);
    if (cubins && load_code(r, c, need, whole, cubins, size) == OPTC_OK) {
        if (!r->library->gpu->compile_ms)
            snprintf(r->library->path, sizeof r->library->path, "cubin from the cache (sm_%d)", r->engine->gpu->arch);
        free(cubins);
        return OPTC_OK;
    }
    free(cubins);
    optc_status s = gpu_alive(r->engine->gpu);
    if (s == OPTC_OK && whole && !c->runs && use_package(r, c, unfit, sizeof unfit)) {
        cache_end(&slot, NULL, 0, NULL);
        return OPTC_OK;
    }
    if (s != OPTC_OK) {
        cache_end(&slot, NULL, 0, NULL);
        return s;
    }
    if (!n)
        return no_nvrtc(r, "optc_compile", unfit, why);
    return compile_code(r, c, n, whole ? modules_divide(r, c) : need, &slot);
}

static optc_status build_code(optc_rule *r, BuiltKernels *c)
{
    unsigned need = share_modules(r, c);
    if (!c->nparts)
        return build_modules(r, c, (1u << MOST_MODULES) - 1, true);
    if (need)
        return build_modules(r, c, need, false);
    gpu_enter_aside(r->engine->gpu);
    return gpu_leave(r->engine->gpu, find_kernels(r, c, ""));
}

/* ---- products without a library ---- */
static optc_status load_products(optc_rule *r, const char *cubin, size_t size)
{
    GpuEngine *g = r->engine->gpu;
    size_t at = 0;
    int rc = 0;
    gpu_enter_aside(g);
    bool ok = modules_load_next(g, cubin, size, &at, &r->library->gpu->products, &rc);
    return gpu_leave(g, ok ? OPTC_OK
                        : rc ? gpu_error(g, "cuModuleLoadData", rc, r->library->rule->name)
                             : fail(OPTC_ERROR_IO, "optc_bind: the cache's kernels of products are incomplete"));
}

static optc_status build_products(optc_rule *r, const Launch *launch)
{
    const char *why = "";
    const Nvrtc *n = nvrtc_get(&why);
    char key[DIGEST_HEX];
    size_t size = 0;
    CacheSlot slot;
    EmitOptions o = {.command = "", .launch = launch, .part = PART_PRODUCTS, .nparts = 1};
    if (!code_key(r, &o, "products", n, key))
        return no_memory("optc_bind");
    char *cubin = cache_begin(&slot, &r->engine->library->cache, key, "cubin", n != NULL, &size);
    optc_status s = cubin ? load_products(r, cubin, size) : OPTC_ERROR_IO;
    free(cubin);
    if (s == OPTC_OK)
        return s;
    if (!n)
        return no_nvrtc(r, "optc_bind", "", why);
    double t0 = now_ms();
    char *log = NULL;
    cubin = modules_compile_one(r, n, &o, &size, &log);
    end_slot(r, n, &slot, cubin, size);
    s = cubin ? load_products(r, cubin, size) : refused_by_nvrtc(r, "optc_bind", log);
    note_time(r, n, now_ms() - t0);
    free(cubin);
    free(log);
    return s;
}

static optc_status find_products(optc_rule *r, BuiltKernels *c)
{
    GpuEngine *g = r->engine->gpu;
    for (int k = 0; k < NCALLKERNEL; k++)
        if (kernel_multiplies((CallKernel)k) && call_kernel(r->program, k))
            TRY(g, cuModuleGetFunction(&c->code.call[k], r->library->gpu->products, call_kernel(r->program, k)),
                call_kernel(r->program, k));
    return OPTC_OK;
}

optc_status gpu_code_products(optc_rule *r, const GpuCode *code)
{
    GpuRule *g = r->library->gpu;
    optc_status s = OPTC_OK;
    bool missing = false;
    pthread_mutex_lock(&g->lock);
    for (int k = 0; k < NCALLKERNEL; k++)
        missing = missing || (kernel_multiplies((CallKernel)k) && call_kernel(r->program, k) && !code->call[k]);
    if (missing && !g->products)
        s = build_products(r, code->launch);
    gpu_enter_aside(r->engine->gpu);
    for (BuiltKernels *c = g->codes; c && s == OPTC_OK && missing; c = c->next)
        s = c->package ? s : find_products(r, c);
    s = gpu_leave(r->engine->gpu, s);
    pthread_mutex_unlock(&g->lock);
    return s;
}

static BuiltKernels *code_with(const GpuRule *g, const Launch *l, int n, bool runs)
{
    for (BuiltKernels *c = g->codes; c; c = c->next)
        if (c->runs == runs && !memcmp(c->asked, l, sizeof *l * (size_t)n))
            return c;
    return NULL;
}

/* Returns the kernels with these launches, and builds them at the first request. */
static optc_status built_with(optc_rule *r, const Launch *launch, bool runs, const GpuCode **out)
{
    GpuRule *g = r->library->gpu;
    int n = r->library->plan->nfn + 1;
    pthread_mutex_lock(&g->lock);
    BuiltKernels *c = code_with(g, launch, n, runs);
    optc_status s = OPTC_OK;
    if (!c) {
        c = calloc(1, sizeof *c);
        bool ok = c && (c->code.launch = malloc(sizeof *c->code.launch * (size_t)n)) &&
                  (c->asked = malloc(sizeof *c->asked * (size_t)n)) &&
                  (c->code.fn = calloc((size_t)n, sizeof *c->code.fn));
        if (ok) {
            c->runs = runs;
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

optc_status gpu_code_with(optc_rule *r, const Launch *launch, const GpuCode **out)
{
    return built_with(r, launch, false, out);
}

static optc_status built_for(optc_rule *r, int64_t elements, bool runs, const GpuCode **out)
{
    Launch *l = calloc((size_t)r->library->plan->nfn + 1, sizeof *l);
    if (!l)
        return out_of_memory();
    pthread_mutex_lock(&r->library->gpu->lock);
    choose_launches(r, elements, l);
    pthread_mutex_unlock(&r->library->gpu->lock);
    optc_status s = built_with(r, l, runs, out);
    free(l);
    return s;
}

optc_status gpu_code_for(optc_rule *r, int64_t elements, const GpuCode **out)
{
    return built_for(r, elements, false, out);
}

optc_status gpu_code_runs(optc_rule *r, int64_t elements, const GpuCode **out)
{
    return built_for(r, elements, true, out);
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
    if (r->library->gpu->products)
        r->engine->gpu->d->cuModuleUnload(r->library->gpu->products);
    gpu_leave(r->engine->gpu, OPTC_OK);
    pthread_mutex_destroy(&r->library->gpu->lock);
    free(r->library->gpu->hash);
    free(r->library->gpu);
    r->library->gpu = NULL;
}
