/* Finding CUDA's libraries: what the process has mapped already, then the toolkit, then Python's packages, then the bare name. */
#include "cuda.h"

#include "util.h"

#include <dirent.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct { const char *name; size_t at; } Wanted;
#define OFFSET_D(name, args) {#name, offsetof(Driver, name)},
#define OFFSET_N(name, args) {#name, offsetof(Nvrtc, name)},
static const Wanted driver_wants[] = {DRIVER_FUNCTIONS(OFFSET_D)};
static const Wanted nvrtc_wants[] = {NVRTC_FUNCTIONS(OFFSET_N)};

static bool fill(void *h, void *table, const Wanted *w, size_t n, char *why, size_t nwhy)
{
    for (size_t i = 0; i < n; i++) {
        void *f = dlsym(h, w[i].name);
        if (!f) {
            snprintf(why, nwhy, "it lacks %s: too old", w[i].name);
            return false;
        }
        memcpy((char *)table + w[i].at, &f, sizeof f);
    }
    return true;
}

/* ---- the driver ---- */
static Driver driver;
static char driver_why[200];
static bool driver_ok;
static pthread_once_t driver_once = PTHREAD_ONCE_INIT;

static void driver_load(void)
{
    void *h = getenv("OPTC_NO_CUDA") ? NULL : dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
    if (!h) {
        snprintf(driver_why, sizeof driver_why, "no CUDA driver (libcuda.so.1) on this machine");
        return;
    }
    if (!fill(h, &driver, driver_wants, sizeof driver_wants / sizeof *driver_wants, driver_why, sizeof driver_why))
        return;
    int rc = driver.cuInit(0);
    const char *name = "?";
    if (rc)
        driver.cuGetErrorName(rc, &name);
    snprintf(driver_why, sizeof driver_why, "the CUDA driver does not start: cuInit: %s", name);
    driver_ok = rc == 0;
}

const Driver *driver_get(const char **why)
{
    pthread_once(&driver_once, driver_load);
    if (why)
        *why = driver_ok ? "" : driver_why;
    return driver_ok ? &driver : NULL;
}

/* ---- NVRTC ---- */
static Nvrtc nvrtc;
static char nvrtc_why[300];
static bool nvrtc_ok;
static pthread_once_t nvrtc_once = PTHREAD_ONCE_INIT;
static const char *const nvrtc_names[] = {"libnvrtc.so.13", "libnvrtc.so.12", NULL};

/* libnvrtc opens its builtins by bare name, which finds nothing in a folder of its own: open them first by their full path. */
static void *open_in(const char *dir)
{
    for (const char *const *n = nvrtc_names; *n; n++) {
        char path[600];
        snprintf(path, sizeof path, "%s/%s", dir, *n);
        DIR *d = opendir(dir);
        for (struct dirent *e; d && (e = readdir(d));)
            if (!strncmp(e->d_name, "libnvrtc-builtins.so.", 21)) {
                char b[600];
                snprintf(b, sizeof b, "%s/%.200s", dir, e->d_name);
                dlopen(b, RTLD_NOW | RTLD_GLOBAL);
            }
        if (d)
            closedir(d);
        void *h = dlopen(path, RTLD_NOW | RTLD_LOCAL);
        if (h) {
            snprintf(nvrtc.path, sizeof nvrtc.path, "%.500s", path);
            return h;
        }
    }
    return NULL;
}

static void *nvrtc_open(void)
{
    void *h = NULL;
    for (const char *const *n = nvrtc_names; *n && !h; n++)
        if ((h = dlopen(*n, RTLD_NOW | RTLD_NOLOAD)))
            snprintf(nvrtc.path, sizeof nvrtc.path, "%s (already loaded)", *n);
    char dir[512];
    const char *home = getenv("CUDA_HOME"), *own = getenv("OPTC_NVRTC");
    if (!h && own && *own)
        h = open_in(own);
    if (!h && home) {
        snprintf(dir, sizeof dir, "%.400s/lib64", home);
        h = open_in(dir);
    }
    static const char *const usual[] = {"/usr/local/cuda/lib64", "/usr/local/cuda/targets/x86_64-linux/lib", "/usr/local/cuda/targets/sbsa-linux/lib", NULL};
    for (const char *const *u = usual; *u && !h; u++)
        h = open_in(*u);
    for (const char *const *n = nvrtc_names; *n && !h; n++)
        if ((h = dlopen(*n, RTLD_NOW | RTLD_LOCAL)))
            snprintf(nvrtc.path, sizeof nvrtc.path, "%s", *n);
    return h;
}

static void nvrtc_load(void)
{
    void *h = getenv("OPTC_NO_NVRTC") ? NULL : nvrtc_open();
    if (!h) {
        snprintf(nvrtc_why, sizeof nvrtc_why, "NVRTC was not found: 'pip install nvidia-cuda-nvrtc' brings it; name the folder of libnvrtc.so.13 in OPTC_NVRTC");
        return;
    }
    nvrtc_ok = fill(h, &nvrtc, nvrtc_wants, sizeof nvrtc_wants / sizeof *nvrtc_wants, nvrtc_why, sizeof nvrtc_why);
}

const Nvrtc *nvrtc_get(const char **why)
{
    pthread_once(&nvrtc_once, nvrtc_load);
    if (why)
        *why = nvrtc_ok ? "" : nvrtc_why;
    return nvrtc_ok ? &nvrtc : NULL;
}

int nvrtc_archs(const Nvrtc *n, int *out, int most)
{
    int count = 0, all[64];
    if (n->nvrtcGetNumSupportedArchs(&count) || count < 1 || count > 64 || n->nvrtcGetSupportedArchs(all))
        return 0;
    for (int i = 0; i < count && i < most; i++)
        out[i] = all[i];
    return count < most ? count : most;
}

/* No contraction, no flushing, IEEE division and root: the bits of the CPU. No cache of NVRTC's own, no touching of the stack limit. */
static const char *const options[] = {"--std=c++17", "--fmad=false", "--ftz=false", "--prec-div=true", "--prec-sqrt=true", "-diag-suppress=177,550", "-no-cache"};
enum { NOPTIONS = sizeof options / sizeof *options };

const char *nvrtc_options(void) { return "--std=c++17 --fmad=false --ftz=false --prec-div=true --prec-sqrt=true"; }

char *nvrtc_build(const Nvrtc *n, const char *source, const char *name, int arch, bool ptx, size_t *size, char **log)
{
    nvrtcProgram p = NULL;
    char target[40];
    const char *opt[NOPTIONS + 1];
    *log = NULL;
    snprintf(target, sizeof target, "--gpu-architecture=%s_%d", ptx ? "compute" : "sm", arch);
    if (n->nvrtcCreateProgram(&p, source, name, 0, NULL, NULL)) {
        *log = strdup("NVRTC: a program could not be created");
        return NULL;
    }
    opt[0] = target;
    int major = 0, minor = 0, count = 1;
    n->nvrtcVersion(&major, &minor);
    for (int i = 0; i < NOPTIONS; i++)
        if (strcmp(options[i], "-no-cache") || major > 12 || (major == 12 && minor >= 9))
            opt[count++] = options[i];
    char *out = NULL;
    int rc = n->nvrtcCompileProgram(p, count, opt);
    size_t bytes = 0;
    if (rc == 0 && (ptx ? n->nvrtcGetPTXSize : n->nvrtcGetCUBINSize)(p, &bytes) == 0 && (out = malloc(bytes + 1))
        && (ptx ? n->nvrtcGetPTX : n->nvrtcGetCUBIN)(p, out) == 0) {
        *size = bytes;
    } else {
        size_t len = 0;
        n->nvrtcGetProgramLogSize(p, &len);
        *log = calloc(1, len + 64);
        if (*log && len)
            n->nvrtcGetProgramLog(p, *log);
        free(out);
        out = NULL;
    }
    n->nvrtcDestroyProgram(&p);
    return out;
}
