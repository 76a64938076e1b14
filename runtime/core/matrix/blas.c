/* Opens a BLAS by dlopen and limits its calls to one thread each: our own threads share the panels
 * of a product, so the number of threads changes no bit.
 *
 * A library that the process uses itself must not be reconfigured. It is used as it is if calls can
 * be limited to one thread for the calling thread alone: a sequential OpenBLAS, an OpenBLAS with
 * OpenMP, MKL. An OpenBLAS with its own threads has one setting for the whole process (also its
 * local setter): we load a private copy from the same file. A library that we loaded is set to one
 * thread at once, and never unloaded.
 *
 * $OPTC_BLAS names a library; "none" selects gemm_fallback.c, which is also used if no library is
 * found. */
#include "runtime/core/matrix/cpu_calls.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

/* The library that we loaded, and the process's library that it is a copy of (NULL: no copy). Weak
 * symbols: all copies of this file in a program share them, since they share the library. */
#ifdef __cplusplus
extern "C" {
#endif
__attribute__((weak, visibility("default"))) void *optc_blas_loaded = NULL;
__attribute__((weak, visibility("default"))) void *optc_blas_copied = NULL;
__attribute__((weak, visibility("default"))) pthread_mutex_t optc_blas_lock =
    PTHREAD_MUTEX_INITIALIZER;
__attribute__((weak, visibility("default"))) bool optc_blas_forks = false;
#ifdef __cplusplus
}
#endif

/* constants of CBLAS: row-major, not transposed, transposed, lower */
enum { CBLAS_ROWS = 101, CBLAS_PLAIN = 111, CBLAS_TRANS = 112, CBLAS_LOWER = 122 };

/* ---- symbols ---- */
typedef struct Affix { const char *before, *behind; bool wide; } Affix;
static const Affix affixes[] = {
    {"", "", false}, {"", "64_", true}, {"scipy_", "", false}, {"scipy_", "64_", true}};

static void *blas_symbol(void *library, const Affix *a, const char *name)
{
    char all[80];
    snprintf(all, sizeof all, "%s%s%s", a->before, name, a->behind);
    return dlsym(library, all);
}

#define BLAS_FIND(to, library, affix, name) \
    do { \
        void *f_ = blas_symbol((library), (affix), (name)); \
        memcpy(&(to), &f_, sizeof f_); \
    } while (0)

/* All LAPACK functions that we need, or none. */
static void lapack_functions(void *library, const Affix *a, Blas *x)
{
#define LAPACK_NAME(ID, name) name,
    static const char *const names[LAPACK_COUNT] = {LAPACK_FUNCTIONS(LAPACK_NAME)};
    bool all = true;
    for (int i = 0; i < LAPACK_COUNT; i++) {
        x->lapack[i] = blas_symbol(library, a, names[i]);
        all = all && (x->lapack[i] || i >= LAPACK_GEQRT);
    }
    if (!all)
        memset(x->lapack, 0, sizeof x->lapack);
}

static const Affix *blas_functions(void *library, Blas *x)
{
    static const char *const gemm[] = {"cblas_sgemm", "cblas_dgemm"}, *const syrk[] = {
                                                                          "cblas_ssyrk",
                                                                          "cblas_dsyrk"};
    for (size_t i = 0; i < sizeof affixes / sizeof *affixes; i++) {
        bool all = true;
        for (int k = 0; k < 2; k++) {
            x->gemm[k] = blas_symbol(library, &affixes[i], gemm[k]);
            x->syrk[k] = blas_symbol(library, &affixes[i], syrk[k]);
            all = all && x->gemm[k] && x->syrk[k];
        }
        x->wide = affixes[i].wide;
        if (all) {
            lapack_functions(library, &affixes[i], x);
            return &affixes[i];
        }
    }
    return NULL;
}

/* ---- one thread a call ---- */
enum { OPENBLAS_SEQUENTIAL, OPENBLAS_THREADS, OPENBLAS_OPENMP };      /* openblas_get_parallel */

static void hold_openmp(void *library, Blas *x)
{
    const Affix none = {"", "", false};
    BLAS_FIND(x->get, library, &none, "omp_get_max_threads");
    BLAS_FIND(x->set, library, &none, "omp_set_num_threads");
}

/* Version and kernels of an OpenBLAS. */
static bool about_openblas(void *library, const Affix *a, Blas *x)
{
    char *(*config)(void) = NULL, *(*core)(void) = NULL;
    BLAS_FIND(config, library, a, "openblas_get_config");
    BLAS_FIND(core, library, a, "openblas_get_corename");
    if (!config)
        return false;
    x->wide = x->wide || strstr(config(), "USE64BITINT");
    x->chooses = strstr(config(), "DYNAMIC_ARCH") != NULL;
    snprintf(x->core, sizeof x->core, "%s", core ? core() : "");
    snprintf(x->about, sizeof x->about, "%.60s",
             strncmp(config(), "OpenBLAS", 8) ? "OpenBLAS" : config());
    x->about[strcspn(x->about, " ")] = ' ';
    /* "OpenBLAS 0.3.21" */
    char *end = strchr(x->about, ' ') ? strchr(strchr(x->about, ' ') + 1, ' ') : NULL;
    if (end)
        *end = 0;
    return true;
}

/* Whether its calls can be limited to one thread. ours: it may be set to one thread permanently. */
static bool hold_openblas(void *library, const Affix *a, bool ours, Blas *x)
{
    int (*parallel)(void) = NULL;
    void (*set)(int) = NULL;
    BLAS_FIND(parallel, library, a, "openblas_get_parallel");
    BLAS_FIND(set, library, a, "openblas_set_num_threads");
    if (!parallel || !set || !about_openblas(library, a, x))
        return false;
    int how = parallel();
    if (how == OPENBLAS_OPENMP)
        hold_openmp(library, x);
    if (how == OPENBLAS_THREADS && ours)
        set(1);
    return how == OPENBLAS_SEQUENTIAL || (how == OPENBLAS_THREADS && ours) ||
           (how == OPENBLAS_OPENMP && x->get && x->set);
}

static bool hold_mkl(void *library, Blas *x)
{
    const Affix none = {"", "", false};
    const char *layer = getenv("MKL_INTERFACE_LAYER");
    BLAS_FIND(x->local, library, &none, "MKL_Set_Num_Threads_Local");
    if (x->local)
        snprintf(x->about, sizeof x->about, "MKL");
    return x->local && !(layer && strstr(layer, "ILP64"));
}

static bool hold_blis(void *library, bool ours, Blas *x)
{
    void (*set)(int64_t) = NULL;
    const Affix none = {"", "", false};
    BLAS_FIND(set, library, &none, "bli_thread_set_num_threads");
    if (!set || !ours)
        return false;
    set(1);
    snprintf(x->about, sizeof x->about, "BLIS");
    return true;
}

CORE bool blas_about(void *library, Blas *x)
{
    memset(x, 0, sizeof *x);
    const Affix *a = blas_functions(library, x);
    return a && about_openblas(library, a, x);
}

/* named: the user named this library; it is accepted even if its kind is unknown. */
static bool blas_take(void *library, bool ours, bool named, Blas *x)
{
    memset(x, 0, sizeof *x);
    const Affix *a = blas_functions(library, x);
    if (!a)
        return false;
    if (hold_openblas(library, a, ours, x) || hold_mkl(library, x) || hold_blis(library, ours, x))
        return true;
    if (*x->about || !named)
        return false;
    snprintf(x->about, sizeof x->about, "a BLAS");
    return true;
}

/* ---- a private copy ---- */
#ifndef RTLD_DEEPBIND
#define RTLD_DEEPBIND 0
#endif
#if defined(__SANITIZE_ADDRESS__)
#define NO_COPIES 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define NO_COPIES 1
#endif
#endif

#ifdef NO_COPIES                               /* the sanitizer does not support RTLD_DEEPBIND */
static void *blas_copy(const char *path)
{
    (void)path;
    return NULL;
}
#else
static bool copy_file(int from, int to)
{
    char buf[1 << 14];
    ssize_t n;
    struct stat st;
    /* writing beyond this limit raises SIGXFSZ, which ends the process */
    struct rlimit most;
    if (fstat(from, &st) || getrlimit(RLIMIT_FSIZE, &most) || (rlim_t)st.st_size > most.rlim_cur)
        return false;
    while ((n = read(from, buf, sizeof buf)) > 0)
        if (write(to, buf, (size_t)n) != n)
            return false;
    return n == 0;
}

/* The file stays open: otherwise a later library could be opened under the same /proc path, and be
 * taken for this one. */
static void *blas_copy(const char *path)
{
    char name[40];
    void *library = NULL;
    int from = open(path, O_RDONLY | O_CLOEXEC),
        to = from >= 0 ? memfd_create("optc-blas", MFD_CLOEXEC) : -1;
    if (to >= 0 && copy_file(from, to)) {
        snprintf(name, sizeof name, "/proc/self/fd/%d", to);
        library = blas_dlopen(name, RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
    }
    if (from >= 0)
        close(from);
    if (to >= 0 && !library)
        close(to);
    return library;
}
#endif

/* ---- selection ---- */
static const char *path_of(void *library, const char *name)
{
    struct link_map *map = NULL;
    return dlinfo(library, RTLD_DI_LINKMAP, &map) == 0 && map && map->l_name && *map->l_name
               ? map->l_name
               : name;
}

static void append_file(Blas *x, const char *path, const char *how)
{
    const char *file = strrchr(path, '/');
    size_t at = strlen(x->about);
    snprintf(x->about + at, sizeof x->about - at, " (%.80s%s%s%s%s)", file ? file + 1 : path, how,
             *x->core ? "; " : "", x->core, *x->core ? " kernels" : "");
}

static void append_shared(Blas *x, const char *path)
{
    x->shared = true;
    append_file(x, path, ", the process's");
}

/* BLAS libraries that the process has loaded, by file name. */
enum { MOST_LOADED = 8 };
typedef struct Loaded { char name[MOST_LOADED][512]; int n; } Loaded;

static int note_loaded(struct dl_phdr_info *info, size_t size, void *to)
{
    Loaded *l = (Loaded *)to;
    const char *file = info->dlpi_name ? strrchr(info->dlpi_name, '/') : NULL;
    (void)size;
    if (file && l->n < MOST_LOADED && strlen(info->dlpi_name) < sizeof *l->name &&
        (strstr(file, "blas") || strstr(file, "libmkl_rt") || strstr(file, "libblis")))
        strcpy(l->name[l->n++], info->dlpi_name);
    return 0;
}

/* A library may depend on one that the process uses, such as libblas.so.3 on libopenblas.so.0. Its
 * number of threads is then the process's setting. */
static bool sets_another(void *library, const Loaded *before)
{
    Dl_info info;
    for (size_t k = 0; before && k < sizeof affixes / sizeof *affixes; k++) {
        void *f = blas_symbol(library, &affixes[k], "openblas_set_num_threads");
        for (int i = 0; f && i < before->n; i++)
            if (dladdr(f, &info) && info.dli_fname && !strcmp(info.dli_fname, before->name[i]))
                return true;
    }
    return false;
}

/* of: the process's library, if this is a copy of it. before: libraries that the process had loaded
 * before. */
static bool blas_ours(void *library, void *of, const Loaded *before, const char *name, bool named,
                      Blas *x)
{
    if (!library || sets_another(library, before) || !blas_take(library, true, named, x))
        return false;
    __atomic_store_n(&optc_blas_copied, of, __ATOMIC_SEQ_CST);
    __atomic_store_n(&optc_blas_loaded, library, __ATOMIC_SEQ_CST);
    append_file(x, name, of ? ", a copy of the process's" : "");
    return true;
}

/* Opens a library by name: the process's own if possible, else a copy of it, else a new one. */
static bool blas_named(const char *name, bool named, Blas *x)
{
    Loaded before;
    before.n = 0;
    dl_iterate_phdr(note_loaded, &before);
    void *library = dlopen(name, RTLD_LAZY | RTLD_NOLOAD);
    if (!library)
        return blas_ours(blas_dlopen(name, RTLD_LAZY | RTLD_LOCAL), NULL, &before, name, named, x);
    void *loaded = __atomic_load_n(&optc_blas_loaded, __ATOMIC_SEQ_CST);
    if (blas_take(library, library == loaded, named, x)) {
        if (library == loaded)
            append_file(x, name, "");
        else
            append_shared(x, name);
        return true;
    }
    if (!x->gemm[0])
        return false;
    bool copied = loaded && library == __atomic_load_n(&optc_blas_copied, __ATOMIC_SEQ_CST);
    return blas_ours(copied ? loaded : blas_copy(path_of(library, name)), library,
                     copied ? NULL : &before, name, named, x);
}

static bool blas_in_process(Blas *x, bool copies)
{
    Loaded l;
    l.n = 0;
    dl_iterate_phdr(note_loaded, &l);
    for (int i = 0; i < l.n; i++) {
        void *library = dlopen(l.name[i], RTLD_LAZY | RTLD_NOLOAD);
        if (!library)
            continue;
        if (copies ? blas_named(l.name[i], false, x) : blas_take(library, false, false, x)) {
            if (!copies)
                append_shared(x, l.name[i]);
            return true;
        }
    }
    return false;
}

static bool blas_find(Blas *x)
{
    static const char *const names[] = {"libopenblas.so.0", "libopenblas.so", "libopenblaso.so.0",
                                        "libmkl_rt.so.2",   "libblis.so.4",   "libblas.so.3"};
    void *loaded = __atomic_load_n(&optc_blas_loaded, __ATOMIC_SEQ_CST),
         *copied = __atomic_load_n(&optc_blas_copied, __ATOMIC_SEQ_CST);
    if (loaded && blas_take(loaded, true, false, x)) {
        append_file(x, path_of(copied ? copied : loaded, "?"),
                    copied ? ", a copy of the process's" : "");
        return true;
    }
    bool found = blas_in_process(x, false);
    for (size_t i = 0; !found && i < sizeof names / sizeof *names; i++)
        found = blas_named(names[i], false, x);
    return found || blas_in_process(x, true);
}

#if defined(__x86_64__)
enum { BLAS_BUFFER = 27 };                     /* 128 MB */
#else
enum { BLAS_BUFFER = 25 };
#endif

/* OpenBLAS maps a buffer for each of its threads when it is loaded, and one per caller. Without
 * address space it retries forever, so an address space limit must leave room for all buffers. */
static bool blas_has_room(void)
{
    const char *own = getenv("OPENBLAS_NUM_THREADS");
    long callers = sysconf(_SC_NPROCESSORS_ONLN),
         threads = own && atoi(own) > 0 ? atoi(own) : callers;
    size_t bytes = (size_t)(callers + threads) << BLAS_BUFFER;
    struct rlimit limit;
    if (getrlimit(RLIMIT_AS, &limit) || limit.rlim_cur == RLIM_INFINITY ||
        __atomic_load_n(&optc_blas_loaded, __ATOMIC_SEQ_CST))
        return true;
    void *space = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return space != MAP_FAILED && munmap(space, bytes) == 0;
}

/* Whether there are as many descriptors as opening a BLAS needs at once (a copy: its file, the copy
 * and a library that it depends on). */
static bool blas_has_files(void)
{
    int fd[3], n = 0;
    while (n < 3 && (fd[n] = open("/dev/null", O_RDONLY | O_CLOEXEC)) >= 0)
        n++;
    bool lack = n < 3 && (errno == EMFILE || errno == ENFILE);
    while (n)
        close(fd[--n]);
    return !lack;
}

/* The error for an OPTC_BLAS that cannot be used. */
static optc_status bad_library(const char *call, const char *name)
{
    void *library = dlopen(name, RTLD_LAZY | RTLD_LOCAL);
    const char *why = library ? NULL : dlerror();
    return fail(OPTC_ERROR_UNAVAILABLE, "%s: OPTC_BLAS is '%.200s', which %s%.300s", call, name,
                library ? "has no cblas_sgemm, or cannot be limited to one thread"
                        : "cannot be opened: ",
                why ? why : "");
}

static optc_status open_alone(Blas *x, const char *call)
{
    const char *name = getenv("OPTC_BLAS");
    bool none = name && !strcmp(name, "none"), named = name && *name && !none,
         scratch = none || blas_has_room();
    if (!none && scratch && (named ? blas_named(name, true, x) : blas_find(x)))
        return OPTC_OK;
    memset(x, 0, sizeof *x);
    bool files = none || blas_has_files();
    snprintf(x->about, sizeof x->about, "our own, slower than a BLAS (%s)",
             none     ? "OPTC_BLAS is none"
             : !scratch  ? "the address space limit leaves no room for one"
             : !files ? "too few file descriptors are left to open one"
             : named  ? "the library that OPTC_BLAS names cannot be used"
                      : "none was found; install OpenBLAS, or name one in OPTC_BLAS");
    if (!scratch)
        return fail(
            OPTC_ERROR_MEMORY,
            "%s: a BLAS maps buffers for each of its threads, and the address space limit (ulimit "
            "-v) leaves "
            "no room for them; raise it, or set OPTC_BLAS=none for slower products of our own",
            call);
    if (!files)
        return fail(OPTC_ERROR_IO,
                    "%s: no BLAS can be opened: too few file descriptors are left (ulimit -n); "
                    "raise the limit, close "
                    "some, or set OPTC_BLAS=none for slower products of our own",
                    call);
    return named ? bad_library(call, name) : OPTC_OK;
}

static void lock_blas(void) { pthread_mutex_lock(&optc_blas_lock); }
static void unlock_blas(void) { pthread_mutex_unlock(&optc_blas_lock); }

/* One thread at a time: another one must not find a library that is about to be opened again, or to
 * be set to one thread. fork waits for it too: in a child no thread would unlock it. */
CORE optc_status blas_open(Blas *x, const char *call)
{
    lock_blas();
    if (!optc_blas_forks)
        optc_blas_forks = pthread_atfork(lock_blas, unlock_blas, unlock_blas) == 0;
    optc_status s = open_alone(x, call);
    unlock_blas();
    return s;
}

/* ---- calls ---- */
typedef void (*Sgemm32)(int, int, int, int, int, int, float, const float *, int, const float *, int,
                        float, float *, int);
typedef void (*Dgemm32)(int, int, int, int, int, int, double, const double *, int, const double *,
                        int, double, double *, int);
typedef void (*Sgemm64)(int, int, int, int64_t, int64_t, int64_t, float, const float *, int64_t,
                        const float *, int64_t, float, float *, int64_t);
typedef void (*Dgemm64)(int, int, int, int64_t, int64_t, int64_t, double, const double *, int64_t,
                        const double *, int64_t, double, double *, int64_t);
typedef void (*Ssyrk32)(int, int, int, int, int, float, const float *, int, float, float *, int);
typedef void (*Dsyrk32)(int, int, int, int, int, double, const double *, int, double, double *,
                        int);
typedef void (*Ssyrk64)(int, int, int, int64_t, int64_t, float, const float *, int64_t, float,
                        float *, int64_t);
typedef void (*Dsyrk64)(int, int, int, int64_t, int64_t, double, const double *, int64_t, double,
                        double *, int64_t);

/* f: the function's address in a data pointer, as dlsym returns it */
#define GEMM(F, T, I) \
    do { \
        F f_; \
        memcpy(&f_, &f, sizeof f_); \
        f_(CBLAS_ROWS, ta, tb, (I)g->m, (I)g->n, (I)g->k, (T)g->alpha, (const T *)g->a, (I)g->lda, \
           (const T *)g->b, (I)g->ldb, (T)g->beta, (T *)g->c, (I)g->ldc); \
    } while (0)
#define SYRK(F, T, I) \
    do { \
        F f_; \
        memcpy(&f_, &f, sizeof f_); \
        f_(CBLAS_ROWS, CBLAS_LOWER, ta, (I)g->n, (I)g->k, (T)g->alpha, (const T *)g->a, (I)g->lda, \
           (T)g->beta, (T *)g->c, (I)g->ldc); \
    } while (0)

static void call_blas(const Blas *x, const Gemm *g)
{
    int ta = g->trans_a ? CBLAS_TRANS : CBLAS_PLAIN, tb = g->trans_b ? CBLAS_TRANS : CBLAS_PLAIN;
    void *f = g->lower ? x->syrk[g->f64] : x->gemm[g->f64];
    switch (4 * g->lower + 2 * x->wide + g->f64) {
    case 0: GEMM(Sgemm32, float, int); break;
    case 1: GEMM(Dgemm32, double, int); break;
    case 2: GEMM(Sgemm64, float, int64_t); break;
    case 3: GEMM(Dgemm64, double, int64_t); break;
    case 4: SYRK(Ssyrk32, float, int); break;
    case 5: SYRK(Dsyrk32, double, int); break;
    case 6: SYRK(Ssyrk64, float, int64_t); break;
    default: SYRK(Dsyrk64, double, int64_t); break;
    }
}

CORE int blas_hold(const Blas *x)
{
    int was = x->local ? x->local(1) : x->set ? x->get() : 0;
    if (!x->local && x->set && was != 1)
        x->set(1);
    return was;
}

CORE void blas_release(const Blas *x, int was)
{
    if (x->local)
        x->local(was);
    else if (x->set && was != 1)
        x->set(was);
}

CORE void blas_gemm(const Blas *x, const Gemm *g)
{
    /* with alpha 0 or k 0 a BLAS does not read the operands, so NaN would be lost, and it rejects a
     * row stride of 0 */
    if (!x->gemm[0] || g->alpha == 0 || g->k == 0) {
        gemm_fallback(g);
        return;
    }
    int was = blas_hold(x);
    call_blas(x, g);
    blas_release(x, was);
}
