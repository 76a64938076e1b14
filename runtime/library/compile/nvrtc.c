/* Loads CUDA's libraries at run time.
 *
 * The driver is a part of the system and is found by its name, libcuda.so.1. NVRTC may be in many
 * folders (runtime/core/matrix/cuda_library.c); $OPTC_NVRTC names one. */
#include "runtime/library/compile/nvrtc.h"

#include "runtime/core/gpu/gpu_device.h"
#include "runtime/core/matrix/cuda_library.h"
#include "runtime/library/cache/files.h"
#include "runtime/library/profile/profile.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define COUNT(a) (sizeof(a) / sizeof *(a))

typedef struct { const char *name; size_t at; } Function;
#define WANT_NVRTC(name, args) {#name, offsetof(Nvrtc, name)},
static const Function nvrtc_wants[] = {NVRTC_FUNCTIONS(WANT_NVRTC)};

/* ---- the driver, for callers without an engine ---- */
static Driver driver;
static char driver_why[256];
static bool driver_ok;
static pthread_once_t driver_once = PTHREAD_ONCE_INIT;

static void driver_load(void)
{
    driver_ok = driver_open(&driver, 0, driver_why, sizeof driver_why);
}

const Driver *driver_get(const char **why)
{
    pthread_once(&driver_once, driver_load);
    if (why)
        *why = driver_ok ? "" : driver_why;
    return driver_ok ? &driver : NULL;
}

/* ---- names and folders of NVRTC ---- */
static const char *const nvrtc_names[] = {"libnvrtc.so.13", "libnvrtc.so.12", NULL};
/* in the Python packages of CUDA 13 and CUDA 12 */
static const char *const nvrtc_folders[] = {"nvidia/cu13/lib", "nvidia/cuda_nvrtc/lib", NULL};

/* ---- NVRTC ---- */
/* The search runs once, and again after a failure that may be for lack of memory. Once the outcome
 * is final, no text changes any more, and callers may read it without the lock. */
static Nvrtc nvrtc;
static char nvrtc_why[1024];
/* a failure that may not happen again, as a constant; NULL: final */
static const char *nvrtc_again = "";
static bool nvrtc_ok;
static pthread_mutex_t nvrtc_lock = PTHREAD_MUTEX_INITIALIZER;

/* If $OPTC_NVRTC names a folder, only that folder is searched. */
static void *nvrtc_find(void)
{
    const char *own = getenv("OPTC_NVRTC");
    bool named = own && *own;
    LibrarySearch s = {.names = nvrtc_names, .folders = nvrtc_folders, .own = named ? own : NULL};
    if (library_find(&s))
        return s.library;
    if (s.again)
        nvrtc_again = "NVRTC could not be looked for or loaded: out of memory";
    else if (*s.refused)
        snprintf(nvrtc_why, sizeof nvrtc_why, "NVRTC does not load: %s", s.refused);
    else if (named)
        snprintf(nvrtc_why, sizeof nvrtc_why,
                 "NVRTC was not found: OPTC_NVRTC names %.500s, which holds neither %s nor %s", own,
                 nvrtc_names[0], nvrtc_names[1]);
    else {
        const Driver *d = driver_get(NULL);
        snprintf(nvrtc_why, sizeof nvrtc_why,
                 "NVRTC was not found: 'python3 -m pip install %s' brings it; or name the folder "
                 "of %s in OPTC_NVRTC",
                 nvrtc_package(d ? d->version : 0), nvrtc_names[0]);
    }
    return NULL;
}

/* At its first compilation libnvrtc opens its builtins by bare name. That fails if both are in a
 * folder that the loader does not search. Opening the builtins here by their full path makes it
 * succeed. */
static void open_builtins(void)
{
    Path p;
    const char *slash = strrchr(nvrtc.path, '/');
    if (slash && path_print(p, "%.*s/libnvrtc-builtins.so.%d.%d", (int)(slash - nvrtc.path),
                            nvrtc.path, nvrtc.version / 1000, nvrtc.version % 1000 / 10))
        dlopen(p, RTLD_NOW | RTLD_GLOBAL);
}

static bool nvrtc_use(void *library)
{
    for (size_t i = 0; i < COUNT(nvrtc_wants); i++) {
        void *f = dlsym(library, nvrtc_wants[i].name);
        if (!f) {
            snprintf(nvrtc_why, sizeof nvrtc_why, "NVRTC lacks %s: it is older than CUDA 12.0",
                     nvrtc_wants[i].name);
            return false;
        }
        memcpy((char *)&nvrtc + nvrtc_wants[i].at, &f, sizeof f);
    }
    Dl_info at;
    int major = 0, minor = 0;
    if (nvrtc.nvrtcVersion(&major, &minor)) {
        nvrtc_again = "NVRTC was found, and fails when it is asked for its version";
        return false;
    }
    nvrtc.version = major * 1000 + minor * 10;
    snprintf(nvrtc.path, sizeof nvrtc.path, "%s",
             dladdr(dlsym(library, "nvrtcVersion"), &at) && at.dli_fname ? at.dli_fname
                                                                         : nvrtc_names[0]);
    open_builtins();
    return true;
}

static void nvrtc_load(void)
{
    bool off = getenv("OPTC_NO_NVRTC") != NULL;
    nvrtc_again = NULL;
    if (off)
        snprintf(nvrtc_why, sizeof nvrtc_why, "NVRTC was not found: OPTC_NO_NVRTC is set");
    void *library = off ? NULL : nvrtc_find();
    nvrtc_ok = library && nvrtc_use(library);
    if (library && !nvrtc_ok)
        dlclose(library);
}

const Nvrtc *nvrtc_get(const char **why)
{
    pthread_mutex_lock(&nvrtc_lock);
    if (nvrtc_again)
        nvrtc_load();
    const char *no = nvrtc_ok ? "" : nvrtc_again ? nvrtc_again : nvrtc_why;
    bool ok = nvrtc_ok;
    pthread_mutex_unlock(&nvrtc_lock);
    if (why)
        *why = no;
    return ok ? &nvrtc : NULL;
}

/* CUDA guarantees that machine code of any release of a major version loads with any driver of that
 * major version, and with later drivers. */
bool nvrtc_fits(int version, int driver_version) { return version / 1000 <= driver_version / 1000; }

const char *nvrtc_package(int driver_version)
{
    return driver_version / 1000 == 12 ? "nvidia-cuda-nvrtc-cu12" : "nvidia-cuda-nvrtc";
}

int nvrtc_archs(const Nvrtc *n, int *out, int most)
{
    int count = 0, all[64];
    if (n->nvrtcGetNumSupportedArchs(&count) || count < 1 || count > 64 ||
        n->nvrtcGetSupportedArchs(all))
        return 0;
    for (int i = 0; i < count && i < most; i++)
        out[i] = all[i];
    return count < most ? count : most;
}

/* ---- compiling ---- */
/* Each option with the NVRTC version that introduced it (0: before 12.0). No contraction, no
 * flushing, IEEE division and square root: the bits are those of the CPU. NVRTC's own cache is off
 * because it would open the driver. The process's stack limit stays as it is. */
#define OPTIONS(F)                       \
    F("--std=c++17", 0)                  \
    F("-default-device", 0)              \
    F("--fmad=false", 0)                 \
    F("--ftz=false", 0)                  \
    F("--prec-div=true", 0)              \
    F("--prec-sqrt=true", 0)             \
    F("-diag-suppress=177,550", 0)       \
    F("-modify-stack-limit=false", 0)    \
    F("-no-cache", 12090)
#define OPTION(text, since) {text, since},
#define TEXT(text, since) text " "
static const struct { const char *text; int since; } options[] = {OPTIONS(OPTION)};

const char *nvrtc_options(void) { return OPTIONS(TEXT); }

/* NVRTC's log, or the name of the error if the log is empty: the source is then not the cause. */
static char *take_log(const Nvrtc *n, nvrtcProgram p, int rc)
{
    size_t len = 0;
    bool said = n->nvrtcGetProgramLogSize(p, &len) == 0 && len > 1;
    len = said ? len : 0;
    char *log = calloc(1, len + 64);
    if (log && (!said || n->nvrtcGetProgramLog(p, log)))
        snprintf(log, len + 64, NVRTC_FAILED " without a log (error %d)", rc);
    return log;
}

/* NVRTC's own message for an architecture that it does not know names neither the versions nor a
 * remedy. NULL: it knows the architecture, or memory ran out. */
static char *unknown_arch(const Nvrtc *n, int arch)
{
    int known[64] = {0}, count = nvrtc_archs(n, known, COUNT(known)), low = known[0], high = low;
    char *log = NULL;
    for (int i = 0; i < count; i++) {
        low = known[i] < low ? known[i] : low;
        high = known[i] > high ? known[i] : high;
        if (known[i] == arch)
            return NULL;
    }
    bool older = arch < low;
    if (count &&
        asprintf(&log,
                 NVRTC_FAILED ": version %d.%d compiles for sm_%d to sm_%d, and not for sm_%d; "
                              "%s version does: 'python3 -m pip install %s%s'",
                 n->version / 1000, n->version % 1000 / 10, low, high, arch,
                 older ? "an older" : "a newer", older ? "" : "--upgrade ",
                 nvrtc_package(older ? (n->version / 1000 - 1) * 1000 : 0)) < 0)
        log = NULL;
    return log;
}

/* NULL: *rc is NVRTC's error, or 0 if memory ran out. */
static char *take_code(const Nvrtc *n, nvrtcProgram p, bool ptx, size_t *size, int *rc)
{
    size_t bytes = 0;
    *rc = (ptx ? n->nvrtcGetPTXSize : n->nvrtcGetCUBINSize)(p, &bytes);
    char *out = *rc ? NULL : malloc(bytes + 1);
    if (out && (*rc = (ptx ? n->nvrtcGetPTX : n->nvrtcGetCUBIN)(p, out))) {
        free(out);
        out = NULL;
    }
    /* NVRTC's PTX ends with a 0, which does not belong into a file */
    *size = out ? bytes - (ptx && bytes && !out[bytes - 1]) : 0;
    return out;
}

/* NVRTC can compile the kernels of one program in parallel. Shampoo's 58 kernels, as `optc emit`
 * prints them, then take 3.3 s instead of 9.6 s; the first step of Shampoo on an H200 with an empty
 * cache takes 5.5 s instead of 8.1 s (CUDA 13.0, 16 cores). The same number of threads gives the
 * same code. Not used with fewer than SPLIT_CORES cores. NVRTC 12.4 accepts the option, but does
 * not implement it.
 *
 * With the option ptxas writes its remarks to stderr, into the terminal of the user's program;
 * without it they are in the log. The only remarks seen are about multiplications of Hopper's
 * tensor cores (C7519): NVRTC 13.0 had some for earlier forms of our kernels, and has none for
 * today's. Programs for them have one kernel, and are compiled without the option: there is nothing
 * to split, and the code is the same (NVRTC 13.0). Code of other kernels differs a little with it,
 * even of programs with one kernel. */
enum { SPLIT_SINCE = 12060, SPLIT_CORES = 4 };
static const char side_by_side[] = "--split-compile=4";

static bool splits(const Nvrtc *n, const char *source)
{
    static const char kernel[] = "__global__ ";
    const char *first = strstr(source, kernel);
    bool several = first && strstr(first + 1, kernel);
    return first && n->version >= SPLIT_SINCE && sysconf(_SC_NPROCESSORS_ONLN) >= SPLIT_CORES &&
           (several || !strstr(source, "wgmma."));
}

char *nvrtc_build(const Nvrtc *n, const char *source, const char *name, int arch, bool ptx,
                  size_t *size, char **log)
{
    nvrtcProgram p = NULL;
    char target[40];
    const char *given[COUNT(options) + 2] = {target};
    int count = 1;
    *log = NULL;
    if (n->nvrtcCreateProgram(&p, source, name, 0, NULL, NULL)) {
        *log = strdup(NVRTC_FAILED ": a program could not be created");
        return NULL;
    }
    /* sm_90a runs where sm_90 does, and has the instructions of templates/hopper_cuda.txt */
    snprintf(target, sizeof target, "--gpu-architecture=%s_%d%s", ptx ? "compute" : "sm", arch,
             arch == 90 && !ptx ? "a" : "");
    for (size_t i = 0; i < COUNT(options); i++)
        if (n->version >= options[i].since)
            given[count++] = options[i].text;
    if (splits(n, source))
        given[count++] = side_by_side;
    int64_t begun = profile_clock_on();
    int rc = n->nvrtcCompileProgram(p, count, given);
    profile_work("NVRTC:", name, begun);
    char *out = rc ? NULL : take_code(n, p, ptx, size, &rc);
    if (!out && rc && !(*log = unknown_arch(n, arch)))
        *log = take_log(n, p, rc);
    n->nvrtcDestroyProgram(&p);
    return out;
}
