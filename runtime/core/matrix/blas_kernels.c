/* Kernels of an OpenBLAS. The library chooses them by the CPU's model, and a model that it does not
 * know gets those of the oldest one: SSE3 on a CPU with AVX-512, where products take 4 to 8 times
 * as long. So a library that we open and whose kernels are below the CPU's vector level is closed
 * and opened again, with $OPENBLAS_CORETYPE set while it loads. The user's own value wins. A
 * library that the process uses itself is not changed: there we only warn. */
#include "runtime/core/matrix/cpu_calls.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

/* By cpu_level: the vectors of its kernels, the core type to ask for, which all versions of
 * OpenBLAS have that have such kernels, and the core types without better ones. Core types in no
 * row are of the last level. */
typedef struct KernelLevel { const char *vectors, *ask; const char *const *cores; } KernelLevel;
#if defined(__x86_64__)
static const char *const sse_cores[] = {
    "Katmai", "Coppermine", "Northwood", "Prescott", "Banias", "Atom", "Core2", "Penryn",
    "Dunnington", "Nehalem", "Athlon", "Opteron", "Opteron_SSE3", "Barcelona", "Nano", "Bobcat",
    "Sandybridge", "Bulldozer", "Piledriver", "Steamroller", "Excavator",  /* AVX, without AVX2 */
    NULL};
static const char *const avx2_cores[] = {"Haswell", "Zen", NULL};
static const KernelLevel kernel_levels[] = {
    {"SSE", "Prescott", sse_cores}, {"AVX2", "Haswell", avx2_cores}, {"AVX-512", "SkylakeX", NULL}};
#elif defined(__aarch64__)
/* Later versions of OpenBLAS take ARMV8SVE themselves for an unknown model with SVE. Named models
 * may have reasons not to use it. Not measured: we had no CPU with SVE. */
static const char *const neon_cores[] = {"armv8", NULL};
static const KernelLevel kernel_levels[] = {
    {"NEON", "ARMV8", neon_cores}, {"SVE", "ARMV8SVE", NULL}};
#else
static const KernelLevel kernel_levels[] = {{"", "", NULL}};
#endif

static const char core_variable[] = "OPENBLAS_CORETYPE";

/* The level of an OpenBLAS's kernels, if that is below the CPU's; otherwise -1. */
static int level_below(const char *core)
{
    for (int level = 0; level < cpu_level(); level++)
        for (const char *const *c = kernel_levels[level].cores; *c; c++)
            if (!strcasecmp(core, *c))
                return level;
    return -1;
}

static char **volatile environ_copy;               /* a leak checker finds the copy here */

/* Other threads may call getenv meanwhile, for which setenv is a race: it may move the array of
 * variables and free the old one. So `environ` points to a copy, which is never freed. It stays
 * there: other threads, and constructors of the library, may have set variables in it. */
static void *open_with_core(const char *name, int how)
{
    static char setting[48];
    char **before = environ, **copy;
    size_t n = 0;
    while (before && before[n])
        n++;
    copy = (char **)malloc((n + 2) * sizeof *copy);
    if (!copy)
        return NULL;
    if (n)
        memcpy(copy, before, n * sizeof *copy);
    snprintf(setting, sizeof setting, "%s=%s", core_variable, kernel_levels[cpu_level()].ask);
    copy[n] = setting;
    copy[n + 1] = NULL;
    environ_copy = copy;
    __atomic_store_n(&environ, copy, __ATOMIC_SEQ_CST);
    void *library = dlopen(name, how);
    unsetenv(core_variable);               /* the last one, so that no other one moves */
    return library;
}

/* A library could not be unloaded: it asks for that, or the C library never unloads (musl). */
static bool blas_stays;

CORE void *blas_dlopen(const char *name, int how)
{
    void *library = dlopen(name, how), *again;
    Blas x;
    if (!library || getenv(core_variable) || !blas_about(library, &x) || !x.chooses ||
        level_below(x.core) < 0)
        return library;
    dlclose(library);
    library = dlopen(name, how | RTLD_NOLOAD);
    blas_stays = library != NULL;
    if (blas_stays)
        return library;
    again = open_with_core(name, how);
    return again ? again : dlopen(name, how);
}

CORE void blas_warning(const Blas *x, char *text, size_t n)
{
    int level = level_below(x->core);
    const char *ask = kernel_levels[cpu_level()].ask;
    *text = 0;
    if (level < 0)
        return;
    int at = snprintf(text, n, "its %s kernels (%s) are slower than this CPU's %s: ", x->core,
                      kernel_levels[level].vectors, kernel_levels[cpu_level()].vectors);
    if (at < 0 || (size_t)at >= n)
        return;
    if (getenv(core_variable))
        snprintf(text + at, n - (size_t)at, "%s chooses them; unset it", core_variable);
    else if (x->shared && x->chooses)
        snprintf(text + at, n - (size_t)at, "the process loaded this library before optc; set "
                 "%s=%s before it starts", core_variable, ask);
    else if (blas_stays && x->chooses)
        snprintf(text + at, n - (size_t)at, "it could not be loaded again with others; set "
                 "%s=%s before the process starts", core_variable, ask);
    else
        snprintf(text + at, n - (size_t)at, "this OpenBLAS has no others; install one that is "
                 "built with DYNAMIC_ARCH and knows %s, or name another library in OPTC_BLAS", ask);
}
