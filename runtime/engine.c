#include "gpu.h"

#include "package.h"
#include "template.h"

#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void engine_free(optc_engine *e)
{
    if (!e)
        return;
    gpu_close(e);
    free(e->compiler);
    free(e->spec_path);
    free(e->name);
    cache_close(&e->cache);
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

/* Rules need a compiler or a package that has them. */
static bool gpu_usable(const char *bases)
{
    int arch, driver;
    return gpu_count() > 0 && (nvrtc_get(NULL) || (gpu_arch(0, &arch, &driver) && package_any(bases, arch, driver)));
}

/* "cuda:1" is GPU 1; -1 stands for the CPU. */
static bool pick_device(const char *name, const char *bases, int *ordinal)
{
    int end = 0;
    *ordinal = -1;
    if (!name || !strcmp(name, "cpu"))
        return true;
    if (!strcmp(name, "best")) {
        *ordinal = gpu_usable(bases) ? 0 : -1;
        return true;
    }
    if (!strcmp(name, "cuda"))
        return *ordinal = 0, true;
    return sscanf(name, "cuda:%d%n", ordinal, &end) == 1 && !name[end] && *ordinal >= 0;
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
    optc_engine *e = calloc(1, sizeof *e);
    if (!e)
        return fail(OPTC_ERROR_MEMORY, "optc_open: out of memory");
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
