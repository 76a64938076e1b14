/* GPU code for a package. NVRTC lets the threads of a process compile one at a time, so architectures go to processes of their own; what they make comes
 * back through files of the folder that is being written. */
#include "ship.h"

#include "fatbin.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

typedef struct { atomic_int next, done, failed; } Shared;
enum { MOST_WORKERS = 64 };

static void file_of(const Ship *s, const char *what, int i, char path[PATH_MAX + 32]) { snprintf(path, PATH_MAX + 32, "%s/%s%d", s->dir, what, i); }

static bool put(const char *path, const char *data, size_t n)
{
    FILE *f = fopen(path, "wb");
    bool ok = f && fwrite(data, 1, n, f) == n;
    if (f)
        ok = fclose(f) == 0 && ok;
    return ok;
}

static char *get(const char *path, size_t *n)
{
    FILE *f = fopen(path, "rb");
    char *data = f ? cli_read_all(f, (size_t)1 << 30, n) : NULL;
    if (f)
        fclose(f);
    unlink(path);
    return data;
}

static bool compile_one(const Ship *s, int i, const char *source)
{
    const PackArch *a = &s->pack.arch[i];
    char path[PATH_MAX + 32], *log = NULL;
    size_t size = 0;
    char *code = nvrtc_build(s->nvrtc, source, s->pack.name, a->arch, a->ptx, &size, &log);
    file_of(s, code ? ".code" : ".log", i, path);
    const char *text = log ? log : "out of memory";
    bool ok = code ? put(path, code, size) : (put(path, text, strlen(text)), false);
    free(code);
    free(log);
    return ok;
}

static void worker(const Ship *s, char *const *source, Shared *sh)
{
    for (int i; (i = atomic_fetch_add(&sh->next, 1)) < s->pack.narch;)
        if (compile_one(s, i, source[i]))
            atomic_fetch_add(&sh->done, 1);
        else
            atomic_fetch_add(&sh->failed, 1);
}

static pid_t start_worker(const Ship *s, char *const *source, Shared *sh)
{
    fflush(NULL);
    pid_t parent = getpid(), id = fork();
    if (id)
        return id;
    signal(SIGINT, SIG_DFL);
    signal(SIGTERM, SIG_DFL);
    signal(SIGHUP, SIG_DFL);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() == parent)
        worker(s, source, sh);
    _exit(0);
}

/* One line that a terminal sees change; done -1 takes it away. */
static void progress(const Ship *s, int done)
{
    if (!isatty(2))
        return;
    fprintf(stderr, "\r\033[K");
    if (done >= 0)
        fprintf(stderr, "optc: ship: %d of %d architectures compiled, %d rule%s each", done, s->pack.narch, s->pack.nrule, s->pack.nrule == 1 ? "" : "s");
    fflush(stderr);
}

/* false: a signal came. */
static bool wait_all(const Ship *s, const Shared *sh, pid_t *id, int n)
{
    int left = n, shown = -1;
    while (left) {
        if (atomic_load(&sh->done) != shown)
            progress(s, shown = atomic_load(&sh->done));
        for (int i = 0; i < n; i++)
            if (id[i] > 0 && (waitpid(id[i], NULL, WNOHANG) > 0 || (ship_stopped && kill(id[i], SIGKILL) == 0 && waitpid(id[i], NULL, 0) > 0))) {
                id[i] = 0;
                left--;
            }
        if (left)
            nanosleep(&(struct timespec){0, 20000000}, NULL);
    }
    progress(s, -1);
    return !ship_stopped;
}

static bool run_workers(const Ship *s, char *const *source, Shared *sh)
{
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    int n = cores < 1 ? 1 : cores > MOST_WORKERS ? MOST_WORKERS : (int)cores, started = 0;
    pid_t id[MOST_WORKERS];
    for (int i = 0; i < n && i < s->pack.narch; i++) {
        id[started] = start_worker(s, source, sh);
        started += id[started] > 0;
    }
    if (!started)                                  /* no process can be had: here, one after another */
        worker(s, source, sh);
    return wait_all(s, sh, id, started);
}

static int collect(Ship *s)
{
    int rc = CLI_GO;
    for (int i = 0; i < s->pack.narch; i++) {
        PackArch *a = &s->pack.arch[i];
        char path[PATH_MAX + 32];
        size_t n;
        file_of(s, ".code", i, path);
        a->code = get(path, &a->size);
        file_of(s, ".log", i, path);
        char *log = get(path, &n);
        if (!a->code && rc == CLI_GO)
            rc = cli_fail("ship: NVRTC refused '%s' for sm_%d: %s", s->pack.name, a->arch, log ? log : "its process ended");
        free(log);
    }
    return rc;
}

/* Every image must be in it, whole: what is packed is looked at again. */
static int check_fatbin(const Ship *s)
{
    FatEntry e[80];
    int n = fatbin_list(s->pack.fatbin, s->pack.fatbin_size, e, 80);
    bool ok = n == s->pack.narch;
    for (int i = 0; i < n && ok; i++)
        ok = fatbin_entry_is(&e[i], s->pack.arch[i].arch, s->pack.arch[i].ptx, s->pack.arch[i].size);
    return ok ? CLI_GO : cli_fail("ship: the fatbin that %s made does not hold what was put in", s->packer);
}

static int pack(Ship *s)
{
    FatImage image[80];
    char why[700];
    for (int i = 0; i < s->pack.narch; i++)
        image[i] = (FatImage){s->pack.arch[i].arch, s->pack.arch[i].ptx, s->pack.arch[i].code, s->pack.arch[i].size};
    s->pack.fatbin = fatbin_make(image, s->pack.narch, s->pack.name, s->dir, &s->pack.fatbin_size, why, sizeof why);
    return s->pack.fatbin ? check_fatbin(s) : cli_fail("ship: %s", why);
}

int ship_build(Ship *s)
{
    char *source[80] = {NULL};
    Shared *sh = mmap(NULL, sizeof *sh, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    bool ok = sh != MAP_FAILED;
    for (int i = 0; i < s->pack.narch && ok; i++)
        ok = (source[i] = pack_cuda(&s->pack, i)) != NULL;
    int rc = !ok ? cli_fail("ship: out of memory") : run_workers(s, source, sh) ? collect(s) : CLI_FAILED;
    for (int i = 0; i < s->pack.narch; i++)
        free(source[i]);
    if (sh != MAP_FAILED)
        munmap(sh, sizeof *sh);
    return rc == CLI_GO ? pack(s) : rc;
}
