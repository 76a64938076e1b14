/* The library's part of an engine: compiler, cache, tuned results, specs. */
#include "runtime/library/rule/gpu_code.h"

#include "runtime/core/functions/function.h"
#include "runtime/library/matrix/matrix_kernels.h"
#include "runtime/library/package/package.h"
#include "runtime/library/profile/profile.h"
#include "gen/abi/embedded.h"
#include "gen/abi/near_names.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void engine_drop(optc_engine *e)
{
    LibraryEngine *m = e->library;
    profile_engine_close(e);
    functions_close(e);
    matrices_close(e);
    if (!m)
        return;
    pthread_mutex_destroy(&m->lock);
    compiler_free(&m->compiler);
    free(m->spec_path);
    cache_close(&m->cache);
    tuned_close(&m->tuned);
    free(m);
    e->library = NULL;
}

static optc_status pick_isa(LibraryEngine *m, const char *wanted)
{
    m->isa = isa_best();
    if (!wanted)
        return OPTC_OK;
    int i = isa_by_name(wanted);
    if (i < 0) {
        Near near = {.want = wanted};
        char text[256];
        for (int k = 0; isas[k].name; k++)
            near_try(&near, isas[k].name);
        return fail(OPTC_ERROR_UNAVAILABLE, "optc_open: vector level '%s' is not known here%s",
                    wanted, near_print(&near, text, sizeof text));
    }
    if (!isas[i].usable())
        return fail(OPTC_ERROR_UNAVAILABLE, "optc_open: vector level '%s' is beyond this CPU",
                    wanted);
    m->isa = i;
    return OPTC_OK;
}

static bool gpu_arch(int ordinal, int *arch, int *version)
{
    const Driver *d = driver_get(NULL);
    CUdevice device;
    int major, minor;
    if (!d || d->cuDeviceGet(&device, ordinal) ||
        d->cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device) ||
        d->cuDeviceGetAttribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device))
        return false;
    *arch = major * 10 + minor;
    *version = d->version;
    return true;
}

/* Resolves "best": a GPU if NVRTC or a package can provide its code, otherwise the CPU. */
static int best_device(const optc_engine_options *o)
{
    int n = gpu_best(), arch, version;
    return n >= 0 && (nvrtc_get(NULL) || (gpu_arch(n, &arch, &version) &&
                                          package_any(o ? o->cache_base : NULL, arch, version)))
               ? n
               : -1;
}

/* "cpu: 2 threads (why)" becomes "cpu: Intel(R) …, 2 threads, x86-64-v4 (why)". */
static void name_cpu_model(optc_engine *e)
{
    char model[128], was[sizeof e->name];
    snprintf(was, sizeof was, "%s", e->name);
    const char *why = strstr(was, " (");
    snprintf(e->name, sizeof e->name, "cpu: %.100s, %d thread%s, %s%.200s",
             cpu_model(model, sizeof model), e->threads, e->threads == 1 ? "" : "s",
             isas[e->library->isa].name, why ? why : "");
}

/* A variable that an option replaces is not read. */
static optc_status check_limits(const optc_engine_options *o)
{
    char why[200];
    for (int v = 0; v < LIMIT_VARIABLES; v++)
        if (!(v == LIMIT_CACHE_MAX && o->cache_max) &&
            limit_wrong((LimitVariable)v, why, sizeof why))
            return fail(OPTC_ERROR_ARGUMENT, "optc_open: %s", why);
    return OPTC_OK;
}

static optc_status engine_open(optc_engine *e, const optc_engine_options *o)
{
    LibraryEngine *m = e->library = calloc(1, sizeof *m);
    if (!m)
        return no_memory("optc_open");
    pthread_mutex_init(&m->lock, NULL);
    optc_status s = check_limits(o);
    if (s == OPTC_OK)
        s = matrices_open(e);
    if (s == OPTC_OK)
        s = pick_isa(m, o->isa);
    if (s != OPTC_OK)
        return s;
    m->no_builtin = o->no_builtin;
    errno = 0;
    if (!compiler_find(o->compiler, &m->compiler) && errno == ENOMEM)
        return no_memory("optc_open");
    m->compiler_off = o->compiler && !*o->compiler;
    const char *path = o->spec_path ? o->spec_path : getenv("OPTC_PATH");
    m->spec_path = strdup(path ? path : "");
    cache_open(&m->cache, o->cache_dir, o->cache_base, o->cache_max);
    m->untuned = o->untuned;
    if (!m->untuned) {
        tuned_open(&m->tuned);
        if (e->gpu)
            e->gpu->measured = method_measured;
    }
    if (!m->spec_path)
        return no_memory("optc_open");
    if (!e->gpu)
        name_cpu_model(e);
    profile_environment();
    return OPTC_OK;
}

static void bound(optc_binding *b)
{
    /* Live tuning compiles kernels without runs. Steps of sharded bindings wait for other ranks, so
     * their times do not show which launch is faster. */
    if (b->gpu && !b->runs && !b->shards)
        live_open(b);
    else if (!b->gpu)
        rule_use_measured(b);
}

static const char *spec_name(int i) { return embedded_specs[i].name; }

const Host *library_host(void)
{
    static const Host host = {.pooled = true,
                              .best = best_device,
                              .open = engine_open,
                              .close = engine_drop,
                              .make = rule_make,
                              .drop = rule_make_free,
                              .path = rule_path,
                              .code = gpu_code_for,
                              .runs = rule_runs,
                              .load = gpu_code_load,
                              .share = tuning_share,
                              .bound = bound,
                              .rule_name = spec_name,
                              .function = library_function,
                              .kernels = library_kernels};
    return &host;
}

const char *optc_library_text(const char *name)
{
    const Embedded *const tables[] = {embedded_specs, embedded_shared};
    for (int k = 0; k < 2; k++)
        for (const Embedded *e = tables[k]; name && e->name; e++)
            if (!strcmp(e->name, name))
                return e->text;
    return NULL;
}
