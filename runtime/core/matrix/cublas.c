/* Opens cuBLAS by dlopen. $OPTC_CUBLAS names its folder, or is "none". */
#include "runtime/core/gpu/gpu_device.h"
#include "runtime/core/matrix/cuda_library.h"

#include <dlfcn.h>
#include <stdio.h>
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
        snprintf(why, n, "cuBLAS was found, but its version cannot be read");
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

CORE bool cublas_open(Cublas *c, int driver, bool *again, char *why, size_t n)
{
    static const char *const names[] = {"libcublas.so.13", "libcublas.so.12", NULL};
    static const char *const folders[] = {"nvidia/cu13/lib", "nvidia/cublas/lib", NULL};
    static const CudaLibrary blas = {"cuBLAS", "OPTC_CUBLAS", names, folders, "nvidia-cublas"};
    bool ignored;
    again = again ? again : &ignored;
    void *library = cuda_library(&blas, driver, again, why, n);
    return library && cublas_use(c, library, again, why, n);      /* never unloaded, like the driver */
}
