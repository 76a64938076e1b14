/* CUDA's libraries, found at run time.
 *
 * The driver is libcuda.so.1, by that name alone: it belongs to the system. NVRTC may lie in many places; the first of
 * these that has it: what the process has mapped already (a framework's own), $OPTC_NVRTC, $CUDA_HOME and $CUDA_PATH,
 * the toolkit's usual folders, Python's packages ($VIRTUAL_ENV, $CONDA_PREFIX, the user's, those of the python3 on the
 * PATH), the loader's own search. No program is run. */
#include "cuda.h"

#include "core/gpu.h"

#include "files.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define COUNT(a) (sizeof(a) / sizeof *(a))

typedef struct { const char *name; size_t at; } Function;
#define WANT_NVRTC(name, args) {#name, offsetof(Nvrtc, name)},
static const Function nvrtc_wants[] = {NVRTC_FUNCTIONS(WANT_NVRTC)};

/* ---- the driver, once for all that is not an engine's ---- */
static Driver driver;
static char driver_why[256];
static bool driver_ok;
static pthread_once_t driver_once = PTHREAD_ONCE_INIT;

static void driver_load(void) { driver_ok = driver_open(&driver, 0, driver_why, sizeof driver_why); }

const Driver *driver_get(const char **why)
{
    pthread_once(&driver_once, driver_load);
    if (why)
        *why = driver_ok ? "" : driver_why;
    return driver_ok ? &driver : NULL;
}

/* ---- where NVRTC may lie ---- */
static const char *const nvrtc_names[] = {"libnvrtc.so.13", "libnvrtc.so.12"};
/* of CUDA 13's package and of CUDA 12's */
static const char *const pip_folders[] = {"nvidia/cu13/lib", "nvidia/cuda_nvrtc/lib"};
static const char *const toolkit_folders[] = {"lib64", "lib", "targets/x86_64-linux/lib", "targets/sbsa-linux/lib"};

const char *cuda_toolkit(size_t i)
{
    static const char *const given[] = {"CUDA_HOME", "CUDA_PATH"}, *const usual[] = {"/usr/local/cuda", "/opt/cuda",
                                                                                     "/usr/lib/cuda"};
    if (i >= COUNT(given))
        return i - COUNT(given) < COUNT(usual) ? usual[i - COUNT(given)] : NULL;
    const char *s = getenv(given[i]);
    return s ? s : "";
}

/* refused: the first file that is there and does not load; again: for a reason that may have gone when asked again */
typedef struct { void *library; char refused[512]; bool again; } Search;
static bool try_folder(Search *s, const char *folder)
{
    for (size_t i = 0; i < COUNT(nvrtc_names) && !s->library; i++) {
        Path p;
        if (!path_print(p, "%s/%s", folder, nvrtc_names[i]))
            continue;
        if (access(p, F_OK) != 0) {
            s->again |= errno == ENOMEM || errno == EIO;
            continue;
        }
        s->library = dlopen(p, RTLD_NOW | RTLD_LOCAL);
        const char *why = s->library ? NULL : dlerror();
        s->again |= !s->library && (!why || strstr(why, strerror(ENOMEM)));
        if (why && !*s->refused)
            snprintf(s->refused, sizeof s->refused, "%s", why);
    }
    return s->library != NULL;
}

static bool try_below(Search *s, const char *root, const char *const *folder, size_t n)
{
    Path p;
    for (size_t i = 0; i < n && !s->library; i++)
        if (path_print(p, "%s/%s", root, folder[i]))
            try_folder(s, p);
    return s->library != NULL;
}

static int is_python(const struct dirent *e) { return !strncmp(e->d_name, "python3", 7); }

/* A Python's packages: site-packages, and dist-packages where Debian's own lie. The newest of several Pythons first. */
static bool try_prefix(Search *s, const char *prefix)
{
    static const char *const libs[] = {"lib", "lib64", "local/lib"}, *const packages[] = {"site-packages",
                                                                                          "dist-packages"};
    for (size_t i = 0; i < COUNT(libs); i++) {
        struct dirent **python;
        Path p;
        int n = path_print(p, "%s/%s", prefix, libs[i]) ? scandir(p, &python, is_python, versionsort) : -1;
        for (int k = n - 1; k >= 0; k--) {
            for (size_t j = 0; j < COUNT(packages) && !s->library; j++)
                if (path_print(p, "%s/%s/%s/%s", prefix, libs[i], python[k]->d_name, packages[j]))
                    try_below(s, p, pip_folders, COUNT(pip_folders));
            free(python[k]);
        }
        if (n >= 0)
            free(python);
    }
    return s->library != NULL;
}

/* /opt/x/bin/python3 has its packages under /opt/x; where that is a link, also under what it leads to. */
static bool try_python(Search *s, const char *program)
{
    Path p, real;
    const char *const name[] = {program, realpath(program, real)};
    for (size_t i = 0; i < COUNT(name) && !s->library; i++) {
        if (!name[i] || !path_print(p, "%s", name[i]))
            continue;
        for (int up = 0; up < 2 && strrchr(p, '/'); up++)
            *strrchr(p, '/') = 0;
        try_prefix(s, p);
    }
    return s->library != NULL;
}

/* The first python3 only: another one further down the PATH is not the one that 'pip install' meant. */
static bool try_path(Search *s)
{
    for (const char *at = getenv("PATH"); at && *at; at += strspn(at, ":")) {
        int n = (int)strcspn(at, ":");
        Path p;
        if (*at == '/' && path_print(p, "%.*s/python3", n, at) && access(p, X_OK) == 0)
            return try_python(s, p);
        at += n;
    }
    return false;
}

static bool try_mapped(Search *s)
{
    for (size_t i = 0; i < COUNT(nvrtc_names) && !s->library; i++)
        s->library = dlopen(nvrtc_names[i], RTLD_NOW | RTLD_NOLOAD);
    return s->library != NULL;
}

static bool try_toolkits(Search *s)
{
    const char *home;
    for (size_t i = 0; (home = cuda_toolkit(i)) && !s->library; i++)
        if (*home)
            try_below(s, home, toolkit_folders, COUNT(toolkit_folders));
    return s->library != NULL;
}

static bool try_packages(Search *s)
{
    static const char *const given[] = {"VIRTUAL_ENV", "CONDA_PREFIX"};
    Path p;
    for (size_t i = 0; i < COUNT(given) && !s->library; i++)
        if (getenv(given[i]) && *getenv(given[i]))
            try_prefix(s, getenv(given[i]));
    if (!s->library && getenv("HOME") && path_print(p, "%s/.local", getenv("HOME")))
        try_prefix(s, p);
    return s->library || try_path(s);
}

static bool try_loader(Search *s)
{
    for (size_t i = 0; i < COUNT(nvrtc_names) && !s->library; i++)
        s->library = dlopen(nvrtc_names[i], RTLD_NOW | RTLD_LOCAL);
    return s->library != NULL;
}

/* ---- NVRTC ---- */
/* Looked for once, and again after what may have been for want of memory. Once that is decided no text is written any
 * more: who has it may read it without the lock. */
static Nvrtc nvrtc;
static char nvrtc_why[1024];
static const char *nvrtc_again = "";           /* a constant: what failed, and may not the next time; NULL: decided */
static bool nvrtc_ok;
static pthread_mutex_t nvrtc_lock = PTHREAD_MUTEX_INITIALIZER;

/* A folder that was named is meant: another NVRTC is not taken in its place. */
static void *nvrtc_find(void)
{
    Search s = {0};
    const char *own = getenv("OPTC_NVRTC");
    bool named = own && *own;
    if (try_mapped(&s) || (named ? try_folder(&s, own) : try_toolkits(&s) || try_packages(&s) || try_loader(&s)))
        return s.library;
    if (s.again)
        nvrtc_again = "NVRTC could not be looked for or loaded: out of memory";
    else if (*s.refused)
        snprintf(nvrtc_why, sizeof nvrtc_why, "NVRTC does not load: %s", s.refused);
    else if (named)
        snprintf(nvrtc_why, sizeof nvrtc_why,
                 "NVRTC was not found: OPTC_NVRTC names %.500s, which holds neither %s nor %s", own, nvrtc_names[0],
                 nvrtc_names[1]);
    else {
        const Driver *d = driver_get(NULL);
        snprintf(nvrtc_why, sizeof nvrtc_why,
                 "NVRTC was not found: 'python3 -m pip install %s' brings it; or name the folder of %s in OPTC_NVRTC",
                 nvrtc_package(d ? d->version : 0), nvrtc_names[0]);
    }
    return NULL;
}

/* libnvrtc opens its builtins by bare name when it first compiles, which finds nothing where both lie in a folder of
 * their own; once they are open under that name, by their full path, it does. */
static void open_builtins(void)
{
    Path p;
    const char *slash = strrchr(nvrtc.path, '/');
    if (slash && path_print(p, "%.*s/libnvrtc-builtins.so.%d.%d", (int)(slash - nvrtc.path), nvrtc.path,
                            nvrtc.version / 1000, nvrtc.version % 1000 / 10))
        dlopen(p, RTLD_NOW | RTLD_GLOBAL);
}

static bool nvrtc_use(void *library)
{
    for (size_t i = 0; i < COUNT(nvrtc_wants); i++) {
        void *f = dlsym(library, nvrtc_wants[i].name);
        if (!f) {
            snprintf(nvrtc_why, sizeof nvrtc_why, "NVRTC lacks %s: it is older than CUDA 12.0", nvrtc_wants[i].name);
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
             dladdr(dlsym(library, "nvrtcVersion"), &at) && at.dli_fname ? at.dli_fname : nvrtc_names[0]);
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

/* CUDA promises that machine code made by any release of a major version loads with any driver of that major version,
 * and with later drivers. */
bool nvrtc_fits(int version, int driver_version) { return version / 1000 <= driver_version / 1000; }

const char *nvrtc_package(int driver_version)
{
    return driver_version / 1000 == 12 ? "nvidia-cuda-nvrtc-cu12" : "nvidia-cuda-nvrtc";
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

/* ---- compiling ---- */
/* Each option with the version it came with (0: older than any we open). No contraction, no flushing, IEEE division and
 * root: the bits of the CPU. No cache of NVRTC's own, which would open the driver; no change of the process's stack
 * limit. */
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

/* What NVRTC says of a failure; its log is empty where the failure is not the source's. */
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

/* NULL: rc is what NVRTC said of it; 0: there is no memory */
static char *take_code(const Nvrtc *n, nvrtcProgram p, bool ptx, size_t *size, int *rc)
{
    size_t bytes = 0;
    *rc = (ptx ? n->nvrtcGetPTXSize : n->nvrtcGetCUBINSize)(p, &bytes);
    char *out = *rc ? NULL : malloc(bytes + 1);
    if (out && (*rc = (ptx ? n->nvrtcGetPTX : n->nvrtcGetCUBIN)(p, out))) {
        free(out);
        out = NULL;
    }
    /* PTX comes with its closing zero, which is no part of a file. */
    *size = out ? bytes - (ptx && bytes && !out[bytes - 1]) : 0;
    return out;
}

char *nvrtc_build(const Nvrtc *n, const char *source, const char *name, int arch, bool ptx, size_t *size, char **log)
{
    nvrtcProgram p = NULL;
    char target[40];
    const char *given[COUNT(options) + 1] = {target};
    int count = 1;
    *log = NULL;
    if (n->nvrtcCreateProgram(&p, source, name, 0, NULL, NULL)) {
        *log = strdup(NVRTC_FAILED ": a program could not be created");
        return NULL;
    }
    snprintf(target, sizeof target, "--gpu-architecture=%s_%d", ptx ? "compute" : "sm", arch);
    for (size_t i = 0; i < COUNT(options); i++)
        if (n->version >= options[i].since)
            given[count++] = options[i].text;
    int rc = n->nvrtcCompileProgram(p, count, given);
    char *out = rc ? NULL : take_code(n, p, ptx, size, &rc);
    if (!out && rc)
        *log = take_log(n, p, rc);
    n->nvrtcDestroyProgram(&p);
    return out;
}
