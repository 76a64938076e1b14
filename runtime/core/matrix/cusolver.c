/* Opens cuSOLVER by dlopen. $OPTC_CUSOLVER names its folder, or is "none".
 *
 * Only that of CUDA 13.0 or newer is used: its batched eigenvectors can be captured in a graph
 * (measured with version 12.0 at 64, 256 and 512 rows; not at 1024), so a captured step runs the
 * same code as any other. */
#include "runtime/core/gpu/gpu_device.h"
#include "runtime/core/matrix/cuda_library.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

enum { CUSOLVER_NEEDED = 13000 };          /* CUDA version of the driver */

typedef struct CusolverWanted { const char *symbol; size_t at; } CusolverWanted;
#define CUSOLVER_WANT(name, args) {#name, offsetof(Cusolver, name)},
static const CusolverWanted cusolver_wants[] = {CUSOLVER_FUNCTIONS(CUSOLVER_WANT)};
#undef CUSOLVER_WANT

CORE const char *cusolver_status(int rc)
{
#define CUSOLVER_CASE(name, value) case value: return #name;
    switch (rc) {
    CUSOLVER_STATUSES(CUSOLVER_CASE)
    default: return "an unknown status";
    }
#undef CUSOLVER_CASE
}

static bool cusolver_use(Cusolver *c, void *library, bool *again, char *why, size_t n)
{
    Dl_info at;
    int major = 0, minor = 0;
    void *f = NULL;
    memset(c, 0, sizeof *c);
    for (size_t i = 0; i < sizeof cusolver_wants / sizeof *cusolver_wants; i++) {
        f = dlsym(library, cusolver_wants[i].symbol);
        memcpy((char *)c + cusolver_wants[i].at, &f, sizeof f);
        if (!f) {
            snprintf(why, n, "cuSOLVER lacks %s", cusolver_wants[i].symbol);
            return false;
        }
    }
    if (c->cusolverGetProperty(MAJOR_VERSION, &major) ||
        c->cusolverGetProperty(MINOR_VERSION, &minor)) {
        snprintf(why, n, "cuSOLVER was found, but its version cannot be read");
        *again = true;
        return false;
    }
    c->version = major * 1000 + minor * 10;
    snprintf(c->path, sizeof c->path, "%s",
             dladdr(f, &at) && at.dli_fname ? at.dli_fname : "libcusolver.so");
    return true;
}

CORE bool cusolver_open(Cusolver *c, int driver, bool *again, char *why, size_t n)
{
    static const char *const names[] = {"libcusolver.so.12", NULL}, *const folders[] = {
                                                                        "nvidia/cu13/lib", NULL};
    static const CudaLibrary solver = {"cuSOLVER", "OPTC_CUSOLVER", names, folders,
                                       "nvidia-cusolver"};
    bool ignored;
    again = again ? again : &ignored;
    *again = false;
    if (driver < CUSOLVER_NEEDED) {
        snprintf(why, n,
                 "cuSOLVER needs a driver for CUDA 13.0 or newer, and this one is for CUDA %d.%d",
                 driver / 1000, driver % 1000 / 10);
        return false;
    }
    void *library = cuda_library(&solver, driver, again, why, n);
    /* never unloaded, like the driver */
    return library && cusolver_use(c, library, again, why, n);
}
