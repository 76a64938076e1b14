/* Matrices without a rule in the library: compiles the specs of functions, and loads kernels that
 * belong to no rule, one per storage type, from the cache, from a package, or compiled by NVRTC. */
#include "runtime/library/matrix/matrix_kernels.h"

#include "runtime/core/functions/function.h"
#include "runtime/library/package/package.h"
#include "runtime/library/compile/nvrtc.h"
#include "gen/gen.h"

#include <stdlib.h>
#include <string.h>

optc_status library_function(optc_engine *e, const FunctionForm *f, optc_rule **out)
{
    return optc_compile(e, &(optc_rule_options){.spec = f->call + 5, .text = f->spec,
                                                .param = (optc_type)(f->compute + 1)}, out);
}

/* The kernels optc_NAME_of_TYPE that are loaded from the template NAME_cuda.txt. call: in
 * messages. */
typedef struct Kernels { const char *name, *call; MatrixKernel which; MatrixKit *kit; } Kernels;

static optc_status load(optc_engine *e, const Kernels *k, const char *cubin)
{
    GpuEngine *g = e->gpu;
    CUmodule module;
    TRY(g, cuModuleLoadData(&module, cubin), "kernels of matrices with no rule");
    optc_status s = matrices_find(e, k->kit, k->which, module);
    if (s == OPTC_OK)
        k->kit->module[k->which] = module;
    else
        g->d->cuModuleUnload(module);
    return s;
}

static optc_status compiled(optc_engine *e, const Kernels *k, const Nvrtc *n, const char *source,
                            CacheSlot *slot)
{
    size_t size = 0;
    char *log = NULL, *cubin = nvrtc_build(n, source, "matrices", e->gpu->arch, false, &size, &log);
    CacheNote note;
    memset(&note, 0, sizeof note);
    snprintf(note.rule, sizeof note.rule, "(matrices with no rule)");
    snprintf(note.target, sizeof note.target, "sm_%d", e->gpu->arch);
    snprintf(note.compiler, sizeof note.compiler, "NVRTC %d.%d", n->version / 1000,
             n->version % 1000 / 10);
    cache_end(slot, cubin, size, &note);
    optc_status s =
        cubin ? load(e, k, cubin)
        : log ? fail(OPTC_ERROR_UNAVAILABLE, "%s: for sm_%d: %.1500s", k->call, e->gpu->arch, log)
              : no_memory(k->call);
    free(cubin);
    free(log);
    return s;
}

/* The package's fatbin has the kernels under the same names. code: emit_key of their program. */
static bool use_package(optc_engine *e, const Kernels *k, const char *code, char *why, size_t nwhy)
{
    Package p;
    if (!package_find(&e->library->cache, code, e->gpu->arch, e->gpu->d->version, &p, why, nwhy))
        return false;
    bool ok = load(e, k, p.fatbin) == OPTC_OK;
    if (!ok)
        snprintf(why, nwhy, "the package '%.60s': %s", p.m.name, optc_message());
    package_free(&p);
    return ok;
}

static optc_status load_kernels(optc_engine *e, const Kernels *k)
{
    const char *why = "";
    const Nvrtc *n = nvrtc_get(&why);
    char *source = emit_cuda_alone(k->name), code[DIGEST_HEX], key[DIGEST_HEX], all[512],
         unfit[1024] = "";
    if (!source || !emit_key(source, code)) {
        free(source);
        return no_memory(k->call);
    }
    int len = snprintf(all, sizeof all, "%s|%.300s|sm_%d|nvrtc %d|alone", code, nvrtc_options(),
                       e->gpu->arch, n ? n->version : 0);
    digest_hex(all, (size_t)len, key);
    size_t size = 0;
    CacheSlot slot;
    char *cubin = cache_begin(&slot, &e->library->cache, key, "cubin", n != NULL, &size);
    bool found = cubin && load(e, k, cubin) == OPTC_OK;
    free(cubin);
    optc_status s = OPTC_OK;
    bool packed = !found && use_package(e, k, code, unfit, sizeof unfit);
    if (packed)
        cache_end(&slot, NULL, 0, NULL);
    else if (!found && !n)
        s = fail(OPTC_ERROR_UNAVAILABLE, "%s on %s: %s%s%s", k->call, e->name, unfit,
                 *unfit ? "; and " : "", why);
    else if (!found)
        s = compiled(e, k, n, source, &slot);
    free(source);
    return s;
}

optc_status library_kernels(optc_engine *e, MatrixKit *k, int which)
{
    static const char *const calls[] = {[MATRIX_COPY] = "functions of matrices",
                                        [MATRIX_GRAM] = "optc_multiply",
                                        [MATRIX_KRON] = "optc_kron"};
    return load_kernels(e, &(Kernels){matrix_kernel_name[which], calls[which], (MatrixKernel)which,
                                      k});
}
