/* Loads the CUDA driver, libcuda.so.1, when a GPU is first requested, and fills the table of its
 * functions. No other name or path is tried: the driver belongs to the system. */
#include "runtime/core/cuda/gpu_engine.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A function to look up: symbol, name without suffix, version of its interface, offset in the
 * table. */
typedef struct Wanted { const char *symbol, *name; int since; size_t at; } Wanted;
#define WANT_DRIVER(name, suffix, since, args) \
    {#name #suffix, #name, since, offsetof(Driver, name##suffix)},
static const Wanted driver_wants[] = {DRIVER_FUNCTIONS(WANT_DRIVER)};
static const Wanted driver_later[] = {DRIVER_LATER(WANT_DRIVER)};
#undef WANT_DRIVER

/* Ways to look up a function: by name and version if the driver supports that, because a plain
 * symbol may be an older interface. */
typedef struct Asker {
    void *library;
    /* cuGetProcAddress since 12.0 */
    int (*versioned)(const char *, void **, int, unsigned long long, int *);
    int (*versioned_11)(const char *, void **, int, unsigned long long);           /* since 11.3 */
} Asker;

static void find_symbol(void *library, const char *name, void *to)
{
    void *f = dlsym(library, name);
    memcpy(to, &f, sizeof f);
}

static void *ask(const Asker *a, const Wanted *w)
{
    void *f = NULL;
    int found = 0;
    if (a->versioned)
        return a->versioned(w->name, &f, w->since, CU_GET_PROC_ADDRESS_LEGACY_STREAM, &found) ? NULL
                                                                                              : f;
    if (a->versioned_11)
        return a->versioned_11(w->name, &f, w->since, CU_GET_PROC_ADDRESS_LEGACY_STREAM) ? NULL : f;
    return dlsym(a->library, w->symbol);
}

/* Checks the version first, by symbol: the message for an old driver names its version, not a
 * missing function. CUDA guarantees that drivers load machine code of their own major version and
 * of earlier ones. */
static bool driver_recent(Driver *d, void *library, int cuda, char *why, size_t n)
{
    int (*version)(int *) = NULL, needed = cuda / 1000 * 1000 > DRIVER_NEEDED ? cuda / 1000 * 1000
                                                                              : DRIVER_NEEDED;
    find_symbol(library, "cuDriverGetVersion", (void *)&version);
    if (!version || version(&d->version)) {
        snprintf(why, n,
                 "libcuda.so.1 does not report its version, so it cannot be used as a CUDA driver");
        return false;
    }
    if (d->version >= needed)
        return true;
    snprintf(why, n,
             "the CUDA driver is too old: it is for CUDA %d.%d, and %d.%d or newer is needed",
             d->version / 1000, d->version % 1000 / 10, needed / 1000, needed % 1000 / 10);
    return false;
}

static bool driver_fill(Driver *d, void *library, char *why, size_t n)
{
    Asker a = {library, NULL, NULL};
    find_symbol(library, "cuGetProcAddress_v2", (void *)&a.versioned);
    find_symbol(library, "cuGetProcAddress", (void *)&a.versioned_11);
    for (size_t i = 0; i < sizeof driver_wants / sizeof *driver_wants; i++) {
        const Wanted *w = &driver_wants[i];
        void *f = ask(&a, w);
        if (!f) {
            snprintf(why, n, "the CUDA driver (for CUDA %d.%d) lacks %s, which CUDA %d.%d has",
                     d->version / 1000, d->version % 1000 / 10, w->name, w->since / 1000,
                     w->since % 1000 / 10);
            return false;
        }
        memcpy((char *)d + w->at, &f, sizeof f);
    }
    for (size_t i = 0; i < sizeof driver_later / sizeof *driver_later; i++) {
        void *f = d->version >= driver_later[i].since ? ask(&a, &driver_later[i]) : NULL;
        memcpy((char *)d + driver_later[i].at, &f, sizeof f);
    }
    return true;
}

CORE bool driver_open(Driver *d, int cuda, char *why, size_t n)
{
    void *library = getenv("OPTC_NO_CUDA") ? NULL : dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
    if (!library) {
        snprintf(why, n, "no CUDA driver (libcuda.so.1) on this machine");
        return false;
    }
    if (!driver_recent(d, library, cuda, why, n) || !driver_fill(d, library, why, n))
        return false;
    int rc = d->cuInit(0);
    const char *name = NULL;
    if (rc && d->cuGetErrorName(rc, &name))
        name = NULL;
    snprintf(why, n, "%s: cuInit: %s",
             rc == CUDA_ERROR_NO_DEVICE ? "the CUDA driver sees no GPU"
                                        : "the CUDA driver does not start",
             name ? name : "an error it has no name for");
    return rc == 0;
}
