#include "gpu.h"

#include "package.h"
#include "template.h"

#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void engine_free(optc_engine *e)
{
    if (!e)
        return;
    gpu_close(e);
    free(e->compiler);
    free(e->spec_path);
    free(e->name);
    cache_close(&e->cache);
    tuned_close(&e->tuned);
    free(e);
}

static optc_status pick_isa(optc_engine *e, const char *wanted)
{
    e->isa = isa_best();
    if (!wanted)
        return OPTC_OK;
    int i = isa_by_name(wanted);
    if (i < 0 || !isas[i].usable())
        return fail(OPTC_ERROR_UNAVAILABLE, "optc_open: vector level '%s' is %s", wanted, i < 0 ? "not known here" : "beyond this CPU");
    e->isa = i;
    return OPTC_OK;
}

int optc_device_count(void) { return gpu_count(); }

/* Rules need a compiler or a package that has them: a GPU without either is of no use, and the CPU is better. */
static int best_device(const char *bases)
{
    int n = gpu_best(), arch, driver;
    return n >= 0 && (nvrtc_get(NULL) || (gpu_arch(n, &arch, &driver) && package_any(bases, arch, driver))) ? n : -1;
}

const char *optc_best_device(void)
{
    static _Thread_local char name[24];
    int n = best_device(NULL);
    snprintf(name, sizeof name, n < 0 ? "cpu" : "cuda:%d", n);
    return name;
}

void memory_took(optc_engine *e, int64_t bytes)
{
    long long now = atomic_fetch_add(&e->ours, bytes) + bytes, peak = atomic_load(&e->peak);
    while (now > peak && !atomic_compare_exchange_weak(&e->peak, &peak, now))
        ;
}

static int64_t available(void)
{
    FILE *f = fopen("/proc/meminfo", "r");
    char line[200];
    long long kib = -1;
    while (f && kib < 0 && fgets(line, sizeof line, f))
        if (sscanf(line, "MemAvailable: %lld", &kib) != 1)
            kib = -1;
    if (f)
        fclose(f);
    return kib < 0 ? (int64_t)sysconf(_SC_AVPHYS_PAGES) * sysconf(_SC_PAGESIZE) : (int64_t)kib * 1024;
}

optc_status optc_memory_info(optc_engine *e, optc_memory *out)
{
    if (!e || !out)
        return fail(OPTC_ERROR_ARGUMENT, "optc_memory_info: %s is NULL", !e ? "the engine" : "the place for the answer");
    *out = (optc_memory){(int64_t)sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE), 0, atomic_load(&e->ours), atomic_load(&e->peak)};
    if (e->gpu)
        return gpu_memory(e, &out->total, &out->free);
    out->free = available();
    return OPTC_OK;
}

/* "cuda:1" is GPU 1; -1 stands for the CPU. */
static bool pick_device(const char *name, const char *base, int *ordinal)
{
    int end = 0;
    *ordinal = -1;
    if (!name || !strcmp(name, "cpu"))
        return true;
    if (!strcmp(name, "best")) {
        *ordinal = best_device(base);
        return true;
    }
    if (!strcmp(name, "cuda"))
        return *ordinal = 0, true;
    return sscanf(name, "cuda:%6d%n", ordinal, &end) == 1 && !name[end] && *ordinal >= 0;
}

optc_status optc_open(const optc_engine_options *o, optc_engine **out)
{
    static const optc_engine_options defaults;
    if (!out)
        return fail(OPTC_ERROR_ARGUMENT, "optc_open: the place for the engine is NULL");
    *out = NULL;
    if (!o)
        o = &defaults;
    int ordinal;
    if (!pick_device(o->device, o->cache_base, &ordinal))
        return fail(OPTC_ERROR_UNAVAILABLE, "optc_open: there is no device '%s' (known: cpu, cuda, cuda:N, best)", o->device);
    if (o->threads < 0 || o->threads > 4096)
        return fail(OPTC_ERROR_ARGUMENT, "optc_open: %d threads", o->threads);
    if (o->allocator && (!o->allocator->alloc || !o->allocator->release))
        return fail(OPTC_ERROR_ARGUMENT, "optc_open: the allocator lacks %s", o->allocator->alloc ? "release" : "alloc");
    optc_engine *e = calloc(1, sizeof *e);
    if (!e)
        return fail(OPTC_ERROR_MEMORY, "optc_open: out of memory");
    if (o->allocator)
        e->memory = *o->allocator;
    optc_status s = pick_isa(e, o->isa);
    if (s != OPTC_OK) {
        engine_free(e);
        return s;
    }
    e->threads = o->threads ? o->threads : omp_get_max_threads();
    e->no_builtin = o->no_builtin;
    e->compiler = compiler_find(o->compiler);
    e->compiler_off = o->compiler && !*o->compiler;
    const char *path = o->spec_path ? o->spec_path : getenv("OPTC_PATH");
    e->spec_path = strdup(path ? path : "");
    cache_open(&e->cache, o->cache_dir, o->cache_base, o->cache_max);
    e->untuned = o->untuned;
    if (!e->untuned)
        tuned_open(&e->tuned);
    char model[128], name[256];
    snprintf(name, sizeof name, "cpu: %s, %d thread%s, %s", cpu_model(model, sizeof model), e->threads, e->threads == 1 ? "" : "s", isas[e->isa].name);
    e->name = strdup(name);
    if (!e->spec_path || !e->name) {
        engine_free(e);
        return fail(OPTC_ERROR_MEMORY, "optc_open: out of memory");
    }
    if (ordinal >= 0 && (s = gpu_open(e, ordinal)) != OPTC_OK) {
        engine_free(e);
        return s;
    }
    *out = e;
    return OPTC_OK;
}

optc_status optc_close(optc_engine *e)
{
    if (e && atomic_load(&e->rules) > 0)
        return fail(OPTC_ERROR_BUSY, "optc_close: %d rule%s of this engine not released", atomic_load(&e->rules), atomic_load(&e->rules) == 1 ? " is" : "s are");
    engine_free(e);
    return OPTC_OK;
}

const char *optc_device_name(const optc_engine *e) { return e ? e->name : ""; }
int optc_threads(const optc_engine *e) { return e ? e->threads : 0; }

/* ---- the library's own specs ---- */
static int library_count(void)
{
    int n = 0;
    while (embedded_specs[n].name)
        n++;
    return n;
}

int optc_library_size(void) { return library_count(); }

const char *optc_library_name(int i)
{
    return i >= 0 && i < library_count() ? embedded_specs[i].name : NULL;
}

const char *optc_library_text(const char *name)
{
    for (const Embedded *e = embedded_specs; name && e->name; e++)
        if (!strcmp(e->name, name))
            return e->text;
    return NULL;
}
