/* cuBLAS by dlopen. $OPTC_CUBLAS names its folder, or says "none". */
#include "gpu.h"
#include "library.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct CublasWanted { const char *symbol; size_t at; } CublasWanted;
#define CUBLAS_WANT(name, suffix, args) {#name #suffix, offsetof(Cublas, name##suffix)},
static const CublasWanted cublas_wants[] = {CUBLAS_FUNCTIONS(CUBLAS_WANT)
                                            {"cublasGetStatusString", offsetof(Cublas, cublasGetStatusString)}};
static const CublasWanted cublas_long[] = {CUBLAS_LONG_FUNCTIONS(CUBLAS_WANT)};
#undef CUBLAS_WANT

static bool cublas_take(Cublas *c, void *library, const CublasWanted *w)
{
    void *f = dlsym(library, w->symbol);
    memcpy((char *)c + w->at, &f, sizeof f);
    return f != NULL;
}

static bool cublas_use(Cublas *c, void *library, bool *again, char *why, size_t n)
{
    Dl_info at;
    int major = 0, minor = 0;
    memset(c, 0, sizeof *c);
    for (size_t i = 0; i < sizeof cublas_wants / sizeof *cublas_wants; i++)
        if (!cublas_take(c, library, &cublas_wants[i])) {
            snprintf(why, n, "cuBLAS lacks %s: it is older than CUDA 12.0", cublas_wants[i].symbol);
            return false;
        }
    for (size_t i = 0; i < sizeof cublas_long / sizeof *cublas_long; i++)
        (void)cublas_take(c, library, &cublas_long[i]);
    if (c->cublasGetProperty(MAJOR_VERSION, &major) || c->cublasGetProperty(MINOR_VERSION, &minor)) {
        snprintf(why, n, "cuBLAS was found, and fails when it is asked for its version");
        *again = true;
        return false;
    }
    c->version = major * 1000 + minor * 10;
    void *create = NULL;
    memcpy(&create, (void *)&c->cublasCreate_v2, sizeof create);
    snprintf(c->path, sizeof c->path, "%s",
             dladdr(create, &at) && at.dli_fname ? at.dli_fname : "libcublas.so");
    return true;
}

/* One that is newer than the driver is not promised to run with it. */
CORE bool cublas_open(Cublas *c, int driver, bool *again, char *why, size_t n)
{
    bool nobody;
    static const char *const names[] = {"libcublas.so.13", "libcublas.so.12", NULL};
    static const char *const folders[] = {"nvidia/cu13/lib", "nvidia/cublas/lib", NULL};
    const char *own = getenv("OPTC_CUBLAS");
    bool named = own && *own;
    LibrarySearch s;
    memset(&s, 0, sizeof s);
    s.names = driver / 1000 < 13 ? names + 1 : names;
    s.folders = folders;
    s.own = named ? own : NULL;
    *why = 0;
    again = again ? again : &nobody;
    *again = false;
    if (named && !strcmp(own, "none")) {
        snprintf(why, n, "OPTC_CUBLAS says none");
        return false;
    }
    if (!library_find(&s)) {
        *again = s.again;
        if (s.again)
            snprintf(why, n, "cuBLAS could not be looked for or loaded: out of memory");
        else if (*s.refused)
            snprintf(why, n, "cuBLAS does not load: %.300s", s.refused);
        else if (named)
            snprintf(why, n, "cuBLAS was not found: OPTC_CUBLAS names %.300s, which does not hold %s", own, s.names[0]);
        else
            snprintf(why, n,
                     "cuBLAS was not found: 'python3 -m pip install %s' brings it; or name the folder of %s in "
                     "OPTC_CUBLAS",
                     driver / 1000 < 13 ? "nvidia-cublas-cu12" : "nvidia-cublas", s.names[0]);
        return false;
    }
    return cublas_use(c, s.library, again, why, n);               /* never unloaded, as the driver */
}
