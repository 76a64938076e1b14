/* Programs of a rule's kernels: emits them, finds them in the engine or the cache, or compiles them
 * by NVRTC in parallel, and loads them. */
#include "runtime/library/rule/gpu_modules.h"

#include "gen/abi/methods.h"
#include "gen/gen.h"
#include "runtime/core/matrix/cuda_library.h"
#include "runtime/core/matrix/gpu_gemm.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* NVRTC before 12.3 does not have cudaGraphSetConditional ("Unresolved extern function"). */
enum { CONDITIONS_COMPILED = 12030 };

bool modules_conditions(const optc_rule *r)
{
    const Nvrtc *n = nvrtc_get(NULL);
    return r->engine->gpu->d->version >= CONDITIONS_NEEDED && call_conditions(r->program) &&
           (!n || n->version >= CONDITIONS_COMPILED);
}

int modules_count(const optc_rule *r) { return r->library->gpu->nprogram + NFIXED; }

/* One program to load. found: the engine has it already; cached: the cubin is from the cache. A
 * program without any of found, cubin and log was not in the cache, and there is no NVRTC, or
 * memory ran out. */
typedef struct ProgramJob {
    int program;
    char *source, *cubin, *log;
    char key[DIGEST_HEX];
    size_t length, size;
    LoadedProgram *found;
    bool cached;
    CacheSlot slot;
} ProgramJob;
typedef struct ProgramJobs {
    const optc_rule *r;
    const Nvrtc *n;
    const KernelNeeds *need;               /* of a binding; NULL: none */
    ProgramJob *job; int count;
    atomic_int next, compiled;
} ProgramJobs;

/* ---- the engine's programs ---- */
static LoadedProgram *find_loaded(LibraryEngine *e, const char *key)
{
    LoadedProgram *p = e->programs;
    while (p && strcmp(p->key, key))
        p = p->next;
    if (p)
        p->uses++;
    return p;
}

static void drop_loaded(optc_engine *e, LoadedProgram *p)
{
    LoadedProgram **at = &e->library->programs;
    pthread_mutex_lock(&e->library->lock);
    if (--p->uses == 0) {
        while (*at != p)
            at = &(*at)->next;
        *at = p->next;
        e->gpu->d->cuModuleUnload(p->module);
        free(p);
    }
    pthread_mutex_unlock(&e->library->lock);
}

void modules_drop(optc_rule *r, BuiltKernels *c)
{
    for (int i = 0; c->program && i < modules_count(r); i++)
        if (c->program[i])
            drop_loaded(r->engine, c->program[i]);
}

/* ---- source and key ---- */
static char *program_source(const optc_rule *r, const BuiltKernels *c, int program)
{
    const GpuRule *g = r->library->gpu;
    const Plan *p = r->library->plan;
    if (program >= g->nprogram)
        return emit_cuda_fixed(program - g->nprogram, plan_needs(p).f64);
    bool *select = calloc((size_t)p->nfn + 1, sizeof *select);
    if (!select)
        return NULL;
    for (int f = 0; f < p->nfn; f++)
        select[f] = g->program_of[f] == program;
    EmitOptions o = {
        .command = "", .launch = c->code.launch, .select = select, .cite = true, .runs = c->runs};
    char *text = gen_emit(&r->library->gen, &o, NULL);
    free(select);
    return text;
}

/* The key contains everything that determines the machine code: source with its launches, options,
 * architecture, NVRTC's version, ABI. */
static bool program_key(const ProgramJobs *x, ProgramJob *j)
{
    char all[1024], code[DIGEST_HEX];
    if (!emit_key(j->source, code))
        return false;
    int len =
        snprintf(all, sizeof all, "%s|%s|sm_%d|nvrtc %d|abi %d|program", code, nvrtc_options(),
                 x->r->engine->gpu->arch, x->n ? x->n->version : 0, OPTC_ABI);
    digest_hex(all, (size_t)len, j->key);
    return true;
}

/* ---- one program ---- */
static void compile_job(ProgramJobs *x, ProgramJob *j)
{
    const optc_rule *r = x->r;
    CacheNote note;
    char target[32], compiler[32];
    j->cubin = nvrtc_build(x->n, j->source, r->library->rule->name, r->engine->gpu->arch, false,
                           &j->size, &j->log);
    j->cached = false;
    atomic_fetch_add(&x->compiled, 1);
    snprintf(target, sizeof target, "sm_%d", r->engine->gpu->arch);
    snprintf(compiler, sizeof compiler, "NVRTC %d.%d", x->n->version / 1000,
             x->n->version % 1000 / 10);
    rule_note(r, target, compiler, &note);
    if (j->program >= r->library->gpu->nprogram) {
        memset(&note, 0, sizeof note);
        snprintf(note.rule, sizeof note.rule, "(all rules)");
        snprintf(note.target, sizeof note.target, "%s", target);
        snprintf(note.compiler, sizeof note.compiler, "%s", compiler);
    }
    cache_end(&j->slot, j->cubin, j->size, &note);
}

/* Holds one lock of the cache at a time: processes that need the same programs in another order do
 * not block. */
static void do_job(ProgramJobs *x, ProgramJob *j)
{
    LibraryEngine *e = x->r->engine->library;
    pthread_mutex_lock(&e->lock);
    j->found = find_loaded(e, j->key);
    pthread_mutex_unlock(&e->lock);
    if (j->found)
        return;
    j->cubin = cache_begin(&j->slot, &e->cache, j->key, "cubin", x->n != NULL, &j->size);
    j->cached = j->cubin != NULL;
    if (!j->cubin && x->n)
        compile_job(x, j);
}

static void *do_jobs(void *arg)
{
    ProgramJobs *x = arg;
    for (int i; (i = atomic_fetch_add(&x->next, 1)) < x->count;)
        do_job(x, &x->job[i]);
    return NULL;
}

/* ---- all of them ---- */
/* Bindings open cuBLAS and create a handle, and open cuSOLVER for eigenvectors. The libraries stay
 * loaded, the handle waits for the first binding, and both take as long as some programs: here
 * other threads compile. Failures are reported by the binding, which tries again. */
static void open_libraries(const optc_rule *r)
{
    GpuEngine *g = r->engine->gpu;
    Cublas blas;
    Cusolver solver;
    cublasHandle_t handle;
    char why[400];
    bool eigen = false;
    if (cublas_open(&blas, g->d->version, NULL, why, sizeof why)) {
        gpu_enter(g);
        (void)cublas_handle_take(&blas, g, &handle);
        if (handle)
            spare_keep(g, handle, blas.cublasDestroy_v2);
        gpu_leave(g, OPTC_OK);
    }
    for (int i = 0; i < r->program->nstage; i++)
        eigen = eigen || stage_takes(&r->program->stage[i], FOR_EIGEN);
    if (eigen)
        (void)cusolver_open(&solver, g->d->version, NULL, why, sizeof why);
}

static int longest_first(const void *a, const void *b)
{
    size_t x = ((const ProgramJob *)a)->length, y = ((const ProgramJob *)b)->length;
    return (x < y) - (x > y);
}

/* NVRTC compiles programs of one kernel in parallel: Shampoo's 36 stages take 8.4 s with one
 * thread, 2.6 with 4, 1.8 with 8 and 1.5 with 16 (H200's host, CUDA 13.0). */
enum { MOST_THREADS = 16 };

static void run_jobs(ProgramJobs *x)
{
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    int most = cores < 1 ? 1 : cores > MOST_THREADS ? (int)MOST_THREADS : (int)cores, n = 0;
    pthread_t thread[MOST_THREADS];
    bool opens = program_calls(x->r->program) && !x->r->library->gpu->codes;
    /* this thread does something else first */
    bool busy = opens || (x->need && x->need->meanwhile);
    while (n + !busy < x->count && n + 1 < most &&
           pthread_create(&thread[n], NULL, do_jobs, x) == 0)
        n++;
    if (n && opens)
        open_libraries(x->r);
    if (n && x->need && x->need->meanwhile)
        x->need->meanwhile(x->need->b);
    do_jobs(x);
    for (int i = 0; i < n; i++)
        pthread_join(thread[i], NULL);
}

/* The driver may refuse a cubin of the cache: it is compiled again, like a damaged one. */
static optc_status load_job(ProgramJobs *x, ProgramJob *j, const char *call)
{
    const optc_rule *r = x->r;
    GpuEngine *g = r->engine->gpu;
    CUmodule module = NULL;
    int rc = j->cubin ? g->d->cuModuleLoadData(&module, j->cubin) : 0;
    if (rc && j->cached && x->n && gpu_alive(g) == OPTC_OK) {
        free(j->cubin);
        compile_job(x, j);
        rc = j->cubin ? g->d->cuModuleLoadData(&module, j->cubin) : 0;
    }
    if (rc)
        return gpu_error(g, "cuModuleLoadData", rc, r->library->rule->name);
    if (!j->cubin)
        return OPTC_ERROR_UNAVAILABLE;                     /* refuse_job has the message */
    LoadedProgram *p = calloc(1, sizeof *p);
    if (!p) {
        g->d->cuModuleUnload(module);
        return no_memory(call);
    }
    memcpy(p->key, j->key, sizeof p->key);
    p->module = module;
    p->uses = 1;
    pthread_mutex_lock(&r->engine->library->lock);
    p->next = r->engine->library->programs;
    r->engine->library->programs = p;
    pthread_mutex_unlock(&r->engine->library->lock);
    j->found = p;
    return OPTC_OK;
}

optc_status modules_no_nvrtc(const optc_rule *r, const char *call, const char *unfit,
                             const char *why)
{
    return fail(OPTC_ERROR_UNAVAILABLE, "%s: rule '%s' on %s: %s%s%s", call, r->library->rule->name,
                r->engine->name, unfit, *unfit ? "; and " : "", why);
}

static optc_status refuse_job(const ProgramJobs *x, const ProgramJob *j, const char *call)
{
    const char *name = x->r->library->rule->name, *why = "";
    int arch = x->r->engine->gpu->arch;
    if (!x->n && !nvrtc_get(&why))
        return modules_no_nvrtc(x->r, call, "", why);
    if (!j->log)
        return no_memory(call);
    return !strncmp(j->log, NVRTC_FAILED, strlen(NVRTC_FAILED))
               ? fail(OPTC_ERROR_UNAVAILABLE, "%s: rule '%s' for sm_%d: %s", call, name, arch,
                      j->log)
               : fail(OPTC_ERROR_SPEC, "%s: NVRTC refused rule '%s' for sm_%d: %s", call, name,
                      arch, j->log);
}

/* A rule may be compiled in several builds; the path names the time of all. */
static void modules_note_time(optc_rule *r, const Nvrtc *n, double ms)
{
    r->library->gpu->compile_ms += ms;
    snprintf(r->library->path, sizeof r->library->path,
             "compiled by NVRTC %d.%d in %.0f ms (sm_%d)", n->version / 1000,
             n->version % 1000 / 10, r->library->gpu->compile_ms, r->engine->gpu->arch);
}

/* Makes the list of jobs: the programs with their sources and keys, the longest sources first. */
static optc_status list_jobs(ProgramJobs *x, const BuiltKernels *c, const bool *want,
                             const char *call)
{
    for (int i = 0; i < modules_count(x->r); i++) {
        if (!want[i] || c->program[i])
            continue;
        ProgramJob *j = &x->job[x->count++];
        j->program = i;
        j->source = program_source(x->r, c, i);
        if (!j->source || !program_key(x, j))
            return no_memory(call);
        j->length = strlen(j->source);
    }
    qsort(x->job, (size_t)x->count, sizeof *x->job, longest_first);
    return OPTC_OK;
}

static optc_status load_jobs(ProgramJobs *x, BuiltKernels *c, const char *call)
{
    optc_status s = OPTC_OK;
    gpu_enter(x->r->engine->gpu);
    for (int i = 0; i < x->count && s == OPTC_OK; i++) {
        ProgramJob *j = &x->job[i];
        s = j->found ? OPTC_OK : load_job(x, j, call);
        if (s == OPTC_ERROR_UNAVAILABLE && !j->cubin)
            s = refuse_job(x, j, call);
    }
    for (int i = 0; i < x->count; i++) {
        if (x->job[i].found && s == OPTC_OK)
            c->program[x->job[i].program] = x->job[i].found;
        else if (x->job[i].found)
            drop_loaded(x->r->engine, x->job[i].found);
    }
    return gpu_leave(x->r->engine->gpu, s);
}

optc_status modules_load(optc_rule *r, BuiltKernels *c, const bool *want, const KernelNeeds *need,
                         const char *call)
{
    ProgramJobs x = {.r = r, .n = nvrtc_get(NULL), .need = need,
                     .job = calloc((size_t)modules_count(r), sizeof *x.job)};
    double t0 = now_ms();
    if (!x.job)
        return no_memory(call);
    optc_status s = list_jobs(&x, c, want, call);
    if (s == OPTC_OK)
        s = gpu_alive(r->engine->gpu);
    if (s == OPTC_OK && x.count) {
        run_jobs(&x);
        s = load_jobs(&x, c, call);
    }
    if (s == OPTC_OK && atomic_load(&x.compiled))
        modules_note_time(r, x.n, now_ms() - t0);
    else if (s == OPTC_OK && !r->library->gpu->compile_ms)
        snprintf(r->library->path, sizeof r->library->path, "cubin from the cache (sm_%d)",
                 r->engine->gpu->arch);
    for (int i = 0; i < x.count; i++) {
        free(x.job[i].source);
        free(x.job[i].cubin);
        free(x.job[i].log);
    }
    free(x.job);
    return s;
}
