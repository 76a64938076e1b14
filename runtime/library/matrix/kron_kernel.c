/* Loads kernels that belong to no rule, one per storage type: from the cache, or compiled by NVRTC. */
#include "runtime/core/functions/multiply.h"

#include "runtime/library/rule/nvrtc.h"
#include "gen/gen.h"

#include <stdlib.h>
#include <string.h>

/* The kernels optc_NAME_of_TYPE that are loaded from the template NAME_cuda.txt; second: more of them, or NULL. */
typedef struct Kernels {
    const char *name, *call;
    CUmodule *module;
    CUfunction *fn;
    const char *second;
    CUfunction *more;
} Kernels;

static optc_status load(optc_engine *e, const Kernels *k, const char *cubin)
{
    GpuEngine *g = e->gpu;
    CUmodule module;
    TRY(g, cuModuleLoadData(&module, cubin), "kernels of matrices with no rule");
    for (int t = 0; t < NTYPES; t++) {
        char name[64];
        if (!type_number((Type)t))
            continue;
        snprintf(name, sizeof name, "optc_%s_of_%s", k->name, type_info[t].name);
        int rc = g->d->cuModuleGetFunction(&k->fn[t], module, name);
        if (!rc && k->second) {
            snprintf(name, sizeof name, "optc_%s_of_%s", k->second, type_info[t].name);
            rc = g->d->cuModuleGetFunction(&k->more[t], module, name);
        }
        if (rc) {
            g->d->cuModuleUnload(module);
            return gpu_error(g, "cuModuleGetFunction", rc, name);
        }
    }
    *k->module = module;
    return OPTC_OK;
}

static optc_status compiled(optc_engine *e, const Kernels *k, const Nvrtc *n, const char *source, CacheSlot *slot)
{
    size_t size = 0;
    char *log = NULL, *cubin = nvrtc_build(n, source, "matrices", e->gpu->arch, false, &size, &log);
    CacheNote note;
    memset(&note, 0, sizeof note);
    snprintf(note.rule, sizeof note.rule, "(matrices with no rule)");
    snprintf(note.target, sizeof note.target, "sm_%d", e->gpu->arch);
    snprintf(note.compiler, sizeof note.compiler, "NVRTC %d.%d", n->version / 1000, n->version % 1000 / 10);
    cache_end(slot, cubin, size, &note);
    optc_status s = cubin ? load(e, k, cubin)
                    : log ? fail(OPTC_ERROR_UNAVAILABLE, "%s: for sm_%d: %.1500s", k->call, e->gpu->arch, log)
                          : no_memory(k->call);
    free(cubin);
    free(log);
    return s;
}

static optc_status load_kernels(optc_engine *e, const Kernels *k)
{
    const char *why = "";
    const Nvrtc *n = nvrtc_get(&why);
    char *source = emit_cuda_alone(k->name), code[DIGEST_HEX], key[DIGEST_HEX], all[512];
    if (!source)
        return no_memory(k->call);
    digest_hex(source, strlen(source), code);
    int len = snprintf(all, sizeof all, "%s|%.300s|sm_%d|nvrtc %d|alone", code, nvrtc_options(), e->gpu->arch,
                       n ? n->version : 0);
    digest_hex(all, (size_t)len, key);
    size_t size = 0;
    CacheSlot slot;
    char *cubin = cache_begin(&slot, &e->library->cache, key, "cubin", n != NULL, &size);
    bool found = cubin && load(e, k, cubin) == OPTC_OK;
    free(cubin);
    optc_status s = OPTC_OK;
    if (!found && !n)
        s = fail(OPTC_ERROR_UNAVAILABLE, "%s on %s: %s", k->call, e->name, why);
    else if (!found)
        s = compiled(e, k, n, source, &slot);
    free(source);
    return s;
}

optc_status kron_code(optc_engine *e, MatrixKit *k)
{
    return load_kernels(e, &(Kernels){"kron", "optc_kron", &k->module, k->kron, NULL, NULL});
}

optc_status copy_code(optc_engine *e, MatrixKit *k)
{
    return load_kernels(e, &(Kernels){"copy", "functions of matrices", &k->copy_module, k->copy, NULL, NULL});
}

optc_status gram_code(optc_engine *e, MatrixKit *k)
{
    return load_kernels(e, &(Kernels){"gram", "optc_multiply", &k->gram_module, k->gram, "blocks", k->blocks});
}
