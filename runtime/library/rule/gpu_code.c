/* Turns a plan into loaded kernels: chooses launches, loads a package or the programs that are
 * needed (gpu_modules.c), and looks up their kernels. */
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
                 t->key.bucket == tuned_bucket(elements)
                     ? "; launches tuned (%s)"
                     : "; launches tuned (%s, nearest size 2^%d)",
                 from, t->key.bucket);
    }
    size_t n = strlen(r->library->tuned);
    if (n && !other)
        snprintf(r->library->tuned + n, sizeof r->library->tuned - n,
                 ", all as the model has them");
}

/* ---- one kernel alone ---- */
char *gpu_stage_source(const optc_rule *r, const Stage *s, const Launch *l)
{
    Launch *all = calloc((size_t)r->library->plan->nfn + 1, sizeof *all);
    if (!all)
        return NULL;
    all[s->fn] = *l;
    char *source =
        gen_emit(&r->library->gen, &(EmitOptions){.command = "", .launch = all, .only = s}, NULL);
    free(all);
    return source;
}

/* ---- kernels of loaded programs ---- */
static bool has_program(const BuiltKernels *c, int program)
{
    return c->package || c->program[program];
}

static CUmodule module_of(const BuiltKernels *c, int program)
{
    return c->package ? c->package : c->program[program]->module;
}

static optc_status find_calls(optc_rule *r, BuiltKernels *c)
{
    const Program *p = r->program;
    GpuEngine *g = r->engine->gpu;
    for (int k = 0; k < NCALLKERNEL; k++) {
        int program = r->library->gpu->nprogram + FIXED_CALLS + (int)kernel_info[k].program;
        CUfunction phase = NULL;
        if (!call_kernel(p, k) || c->code.call[k] || !has_program(c, program))
            continue;
        if (k != KERNEL_PHASE)
            TRY(g, cuModuleGetFunction(&c->code.call[k], module_of(c, program), call_kernel(p, k)),
                call_kernel(p, k));
        else if (g->d->version >= CONDITIONS_NEEDED &&
                 !g->d->cuModuleGetFunction(&phase, module_of(c, program), call_kernel(p, k)))
            c->code.call[k] = phase;
    }
    return OPTC_OK;
}

/* A package may lack these kernels. */
static void find_optional(const GpuEngine *g, CUmodule in, const char *name, CUfunction *out)
{
    CUfunction f = NULL;
    if (!*out && !g->d->cuModuleGetFunction(&f, in, name))
        *out = f;
}

/* Looks up the kernels of all programs that are loaded. prefix: of the kernels' names in a package;
 * "" otherwise. */
static optc_status find_kernels(optc_rule *r, BuiltKernels *c, const char *prefix)
{
    const Program *p = r->program;
    const GpuRule *x = r->library->gpu;
    GpuEngine *g = r->engine->gpu;
    CUmodule step = module_of(c, x->nprogram + FIXED_STEP);
    if (!c->code.advance_t)
        TRY(g, cuModuleGetFunction(&c->code.advance_t, step, p->advance_t), p->advance_t);
    find_optional(g, step, GUARD_KERNEL, &c->code.read_ahead);
    if (has_program(c, x->nprogram + FIXED_SHARDS)) {
        find_optional(g, module_of(c, x->nprogram + FIXED_SHARDS), MOVE_KERNEL, &c->code.move);
        find_optional(g, module_of(c, x->nprogram + FIXED_SHARDS), AGREE_KERNEL, &c->code.agree);
    }
    for (int i = 0; i < p->nstage; i++) {
        int fn = p->stage[i].fn;
        char name[400];
        /* a call, or not loaded */
        if (fn < 0 || c->code.fn[fn] || !has_program(c, x->program_of[fn]))
            continue;
        snprintf(name, sizeof name, "%s%s", prefix, p->stage[i].kernel);
        TRY(g, cuModuleGetFunction(&c->code.fn[fn], module_of(c, x->program_of[fn]), name), name);
    }
    return find_calls(r, c);
}

/* Unloading needs a current context: without one the driver refuses, and the modules stay in the
 * GPU's memory. */
static void code_free(optc_rule *r, BuiltKernels *c)
{
    if (!c)
        return;
    gpu_enter(r->engine->gpu);
    modules_drop(r, c);
    if (c->package)
        r->engine->gpu->d->cuModuleUnload(c->package);
    gpu_leave(r->engine->gpu, OPTC_OK);
    free(c->program);
    free(c->asked);
    free(c->code.launch);
    free(c->code.fn);
    free(c);
}

/* ---- from a shipped package ---- */
/* A package's key of a rule is the hash of its source with the model's launches, which needs no
 * compiler and no tuned results. */
static bool in_package(optc_rule *r, Package *out, char *why, size_t nwhy)
{
    char key[DIGEST_HEX];
    char *source = r->engine->library->cache.base
                       ? gen_emit(&r->library->gen, &(EmitOptions){.command = ""}, NULL)
                       : NULL;
    bool known = source && emit_key(source, key);
    free(source);
    return known && package_find(&r->engine->library->cache, key, r->engine->gpu->arch,
                                 r->engine->gpu->d->version, out, why, nwhy);
}

static optc_status load_package(optc_rule *r, BuiltKernels *c, const Package *p)
{
    GpuEngine *g = r->engine->gpu;
    for (int i = 0; i < r->library->plan->nfn; i++)
        if (plan_at(r->library->plan, i).stage &&
            (!package_launch(p, i, &c->code.launch[i]) ||
             !launch_valid(r->library->plan, plan_at(r->library->plan, i).stage,
                           &c->code.launch[i])))
            return fail(
                OPTC_ERROR_IO,
                "optc_compile: the package '%s' has no usable launch for rule '%s'; make the "
                "package again",
                p->m.name, r->library->rule->name);
    TRY(g, cuModuleLoadData(&c->package, p->fatbin), p->m.name);
    return find_kernels(r, c, p->rule->prefix);
}

static void forget_kernels(const optc_rule *r, BuiltKernels *c)
{
    CUfunction *fn = c->code.fn;
    Launch *launch = c->code.launch;
    memset(fn, 0, sizeof *fn * (size_t)(r->library->plan->nfn + 1));
    memset(&c->code, 0, sizeof c->code);
    c->code.fn = fn;
    c->code.launch = launch;
}

/* Loads the kernels from a package. false: no package has the rule, or it does not load; c is
 * unchanged, and why says what is wrong with the package, if there is one. */
static bool use_package(optc_rule *r, BuiltKernels *c, char *why, size_t nwhy)
{
    Package p;
    *why = 0;
    if (!in_package(r, &p, why, nwhy))
        return false;
    gpu_enter(r->engine->gpu);
    optc_status s = load_package(r, c, &p);
    if (s != OPTC_OK) {
        snprintf(why, nwhy, "the package '%.60s': %s", p.m.name, optc_message());
        if (c->package)
            r->engine->gpu->d->cuModuleUnload(c->package);
        c->package = NULL;
        forget_kernels(r, c);
        memcpy(c->code.launch, c->asked,
               sizeof *c->code.launch * (size_t)(r->library->plan->nfn + 1));
    }
    gpu_leave(r->engine->gpu, s);
    if (s == OPTC_OK) {
        snprintf(r->library->path, sizeof r->library->path, "from the package %.60s (%s_%d)",
                 p.m.name, p.m.image[p.image].ptx ? "compute" : "sm", p.m.image[p.image].arch);
        r->library->tuned[0] = 0;
        c->code.empty_symmetric = p.m.image[p.image].ptx || p.m.cuda < HALVES_NEEDED;
    }
    package_free(&p);
    return s == OPTC_OK;
}

static optc_status out_of_memory(void)
{
    return fail(OPTC_ERROR_MEMORY, "optc_compile: out of memory");
}

/* ---- programs ---- */
static optc_status load_programs(optc_rule *r, BuiltKernels *c, const bool *want,
                                 const KernelNeeds *need, const char *call)
{
    optc_status s = modules_load(r, c, want, need, call);
    if (s != OPTC_OK)
        return s;
    gpu_enter(r->engine->gpu);
    return gpu_leave(r->engine->gpu, find_kernels(r, c, ""));
}

/* Loads the kernels before a step and the program of the first stage: they show whether the rule
 * can be compiled. A rule of a package needs no other program. */
static optc_status build_code(optc_rule *r, BuiltKernels *c)
{
    const GpuRule *g = r->library->gpu;
    const char *why = "";
    char unfit[1024] = "";
    if (!c->runs && use_package(r, c, unfit, sizeof unfit))
        return OPTC_OK;
    bool *want = calloc((size_t)modules_count(r), sizeof *want);
    if (!want)
        return out_of_memory();
    want[g->nprogram + FIXED_STEP] = true;
    if (g->nprogram)
        want[0] = true;
    const Nvrtc *n = nvrtc_get(NULL);
    c->code.empty_symmetric = n && n->version < HALVES_NEEDED;
    optc_status s = load_programs(r, c, want, NULL, "optc_compile");
    free(want);
    return s == OPTC_ERROR_UNAVAILABLE && *unfit && !nvrtc_get(&why)
               ? modules_no_nvrtc(r, "optc_compile", unfit, why)
               : s;
}

optc_status gpu_code_load(optc_rule *r, const GpuCode *code, const KernelNeeds *need,
                          const char *call)
{
    GpuRule *g = r->library->gpu;
    bool *want = calloc((size_t)modules_count(r), sizeof *want);
    optc_status s = want ? OPTC_OK : no_memory(call);
    pthread_mutex_lock(&g->lock);
    BuiltKernels *c = g->codes;
    while (&c->code != code)
        c = c->next;
    for (int f = 0; want && f < need->nfn; f++)
        if (need->fn[f] && g->program_of[f] >= 0)
            want[g->program_of[f]] = true;
    for (int k = 0; want && !c->package && k < NCALLKERNEL; k++)
        if (need->call[k] && call_kernel(r->program, k) &&
            (k != KERNEL_PHASE || modules_conditions(r)))
            want[g->nprogram + FIXED_CALLS + (int)kernel_info[k].program] = true;
    if (want)
        want[g->nprogram + FIXED_SHARDS] = need->shards;
    if (s == OPTC_OK && !c->package)
        s = load_programs(r, c, want, need, call);
    pthread_mutex_unlock(&g->lock);
    free(want);
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
                  (c->code.fn = calloc((size_t)n, sizeof *c->code.fn)) &&
                  (c->program = calloc((size_t)modules_count(r), sizeof *c->program));
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
    r->library->gpu->hash =
        calloc((size_t)r->library->plan->nfn + 1, sizeof *r->library->gpu->hash);
    r->library->gpu->program_of =
        calloc((size_t)r->library->plan->nfn + 1, sizeof *r->library->gpu->program_of);
    if (!r->library->gpu->hash || !r->library->gpu->program_of)
        return out_of_memory();
    r->library->gpu->nprogram = emit_divide(r->library->plan, r->library->gpu->program_of);
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
    for (BuiltKernels *c = r->library->gpu->codes, *next; c; c = next) {
        next = c->next;
        code_free(r, c);
    }
    pthread_mutex_destroy(&r->library->gpu->lock);
    free(r->library->gpu->hash);
    free(r->library->gpu->program_of);
    free(r->library->gpu);
    r->library->gpu = NULL;
}
