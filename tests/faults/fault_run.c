#include "tests/faults/faults.h"

#include <dirent.h>
#include <dlfcn.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SAMPLES = 40, QUICK = 5, SECONDS = 60 };        /* quick: a fifth of the samples */
/* instead of a call's number: runs the scene once */
enum { PREPARE = -1 };
char scratch[PATH_MAX / 2];

/* The result that a trial's process passes back. */
typedef struct Trial { Outcome out; int calls; char wrong[1200]; } Trial;
static Trial *trial;

uint64_t mix(uint64_t h, const void *data, size_t n)
{
    for (size_t i = 0; i < n; i++)
        h = (h ^ ((const unsigned char *)data)[i]) * 0x100000001b3u;
    return h ^ h >> 29;
}

const char *below(const char *name)
{
    static char path[4][PATH_MAX];
    static int next;
    char *p = path[next++ % 4];
    snprintf(p, PATH_MAX, "%s/%s", scratch, name);
    return p;
}

static uint64_t mix_one(uint64_t h, const char *path)
{
    char buf[4096];
    size_t n;
    FILE *f = fopen(path, "rb");
    while (f && (n = fread(buf, 1, sizeof buf, f)) > 0)
        h = mix(h, buf, n);
    if (f)
        fclose(f);
    return h;
}

uint64_t mix_files(uint64_t h, const char *path)
{
    struct stat st;
    struct dirent **e;
    if (stat(path, &st) != 0)
        return 0;
    if (!S_ISDIR(st.st_mode))
        return mix_one(h, path);
    int n = scandir(path, &e, NULL, alphasort);
    for (int i = 0; i < n; i++) {
        char inner[PATH_MAX];
        snprintf(inner, sizeof inner, "%s/%s", path, e[i]->d_name);
        const char *end = strrchr(e[i]->d_name, '.');      /* locks are never removed */
        if (strcmp(e[i]->d_name, ".") && strcmp(e[i]->d_name, "..") &&
            !(end && !strcmp(end, ".lock")))
            h = mix_files(mix(h, e[i]->d_name, strlen(e[i]->d_name)), inner);
        free(e[i]);
    }
    if (n >= 0)
        free(e);
    return h;
}

static void remove_below(const char *dir)
{
    DIR *d = opendir(dir);
    for (struct dirent *e; d && (e = readdir(d));) {
        char path[PATH_MAX];
        snprintf(path, sizeof path, "%s/%s", dir, e->d_name);
        if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, "..") || unlink(path) == 0)
            continue;
        remove_below(path);
        rmdir(path);
    }
    if (d)
        closedir(d);
}

void fresh_folder(const char *name)
{
    inject_rest(true);
    remove_below(below(name));
    mkdir(below(name), 0700);
    inject_rest(false);
}

/* ---- one trial ---- */
static int open_files(void)
{
    DIR *d = opendir("/proc/self/fd");
    int n = -1;                                /* the folder itself */
    for (struct dirent *e; d && (e = readdir(d));) {
        char path[PATH_MAX], to[PATH_MAX] = "";
        snprintf(path, sizeof path, "/proc/self/fd/%s", e->d_name);
        /* files of the emulated GPU */
        n += readlink(path, to, sizeof to - 1) < 0 || !strstr(to, "memfd:kernel");
    }
    if (d)
        closedir(d);
    return n;
}

static bool empty(const char *dir)
{
    DIR *d = opendir(dir);
    int n = 0;
    while (d && readdir(d))
        n++;
    if (d)
        closedir(d);
    return n <= 2;
}

static bool honest(optc_status s)
{
    return s == OPTC_ERROR_MEMORY || s == OPTC_ERROR_IO || s == OPTC_ERROR_UNAVAILABLE ||
           s == OPTC_ERROR_DEVICE;
}

static void judge(const Outcome *o, const Outcome *right, Kind k, const char *when)
{
    char *w = trial->wrong;
    size_t at = strlen(w);
    if (o->status == OPTC_OK && o->result != right->result && !o->evaluator)
        snprintf(w + at, sizeof trial->wrong - at, "%s: success, and another result; ", when);
    else if (o->left)
        snprintf(w + at, sizeof trial->wrong - at, "%s: it failed and left something behind; ",
                 when);
    else if (o->status != OPTC_OK && (!honest(o->status) || !*o->message ||
                                      (k <= MEMORY_ENDS && o->status != OPTC_ERROR_MEMORY)))
        snprintf(w + at, sizeof trial->wrong - at, "%s: it says '%s': %.700s; ", when,
                 optc_status_name(o->status), o->message);
}

static void run_trial(const Scene *s, Kind k, int at, const Trial *right)
{
    Outcome again = {.status = OPTC_OK};
    int files;
    alarm(SECONDS);
    memset(trial, 0, sizeof *trial);
    inject_begin(k, at == PREPARE ? 0 : at);
    s->run(s, &trial->out);
    trial->calls = inject_end();
    if (at == PREPARE)
        return;
    if (s->argv)
        trial->calls = trial->out.calls;
    if (right)
        judge(&trial->out, &right->out, k, "with the fault");
    if (!empty(below("tmp")))
        snprintf(trial->wrong + strlen(trial->wrong), sizeof trial->wrong - strlen(trial->wrong),
                 "something is left in TMPDIR; ");
    if (s->argv)
        return;
    /* memory that is allocated once and kept exists after this */
    for (int i = 0; i < 2; i++)
        s->run(s, &again);
    if (again.status != OPTC_OK || again.result != (right ? right->out.result : trial->out.result))
        snprintf(trial->wrong + strlen(trial->wrong), sizeof trial->wrong - strlen(trial->wrong),
                 "afterwards: %s %.600s; ", optc_status_name(again.status), again.message);
    files = open_files();
    long held = inject_held();
    /* once more, now that nothing is initialised for the first time */
    inject_begin(k, at);
    s->run(s, &again);
    inject_end();
    held = inject_held() - held;
    files = open_files() - files;
    if (held > 0)
        snprintf(trial->wrong + strlen(trial->wrong), sizeof trial->wrong - strlen(trial->wrong),
                 "%ld pieces of memory are left; ", held);
    if (files > 0)
        snprintf(trial->wrong + strlen(trial->wrong), sizeof trial->wrong - strlen(trial->wrong),
                 "%d files are left open; ", files);
}

static void in_a_process(const Scene *s, Kind k, int at, const Trial *right)
{
    fresh_folder("tmp");
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        if (!freopen("/dev/null", "r", stdin))
            _exit(2);
        run_trial(s, k, at, right);
        _exit(0);
    }
    int status = 0;
    waitpid(pid, &status, 0);
    if (WIFSIGNALED(status))
        snprintf(trial->wrong, sizeof trial->wrong,
                 WTERMSIG(status) == SIGALRM ? "it hangs" : "it dies: %s",
                 strsignal(WTERMSIG(status)));
    else if (WEXITSTATUS(status))
        snprintf(trial->wrong, sizeof trial->wrong, "it ends the program with %d",
                 WEXITSTATUS(status));
    fresh_folder("tmp");
}

/* ---- all trials of a scene ---- */
static int run_scene(const Scene *s, Kind k, bool first, bool quick, int only)
{
    if (first)                                 /* fills the caches as the scene needs them */
        in_a_process(s, k, PREPARE, NULL);
    in_a_process(s, k, 0, NULL);
    Trial right = *trial;
    if (right.out.status != OPTC_OK || *right.wrong) {
        printf("%s, undisturbed: %s %s %s\n", s->name, optc_status_name(right.out.status),
               right.out.message, right.wrong);
        return 1;
    }
    int bad = 0, failed = 0, tried = 0, most = s->samples ? s->samples : SAMPLES;
    /* a long scenario: not every call is tried even with `all` */
    if (most < 0)
        most = 200;
    most = quick ? (most + QUICK - 1) / QUICK : most;
    int step = (quick || s->samples < 0) && right.calls > most ? right.calls / most + 1 : 1;
    int last = right.calls + (k >= DRIVER ? s->more : 0);
    for (int at = only ? only : 1; at <= (only ? only : last); at += step) {
        in_a_process(s, k, at, &right);
        tried++;
        failed += trial->out.status != OPTC_OK;
        if (*trial->wrong && ++bad <= 20)
            printf("%s, %s %d of %d: %s\n", s->name, kind_names[k], at, last, trial->wrong);
    }
    printf("%s: %d of %d %s failed once: %d times success and the right result, %d times an error, "
           "%d wrong\n",
           s->name, tried, last, kind_names[k], tried - failed - bad, failed, bad);
    return bad;
}

static bool wanted(const char *name, const char *given) { return !given || !strcmp(name, given); }

static int run_all(const Scene *s, bool quick, const char *scene, const char *kind, int only)
{
    int bad = 0;
    /* nothing that would compile for a GPU */
    bool no_gpu = getenv("FAULTS_NO_GPU") != NULL;
    for (; s->name; s++) {
        if ((no_gpu && s->gpu) || (quick && s->samples < 0))
            continue;
        bool first = true;
        for (int k = ALLOCATIONS; k < NKIND; k++)
            if ((s->kinds >> k & 1) && wanted(s->name, scene) && wanted(kind_names[k], kind)) {
                bad += run_scene(s, (Kind)k, first, quick, only);
                first = false;
            }
    }
    return bad;
}

static void settings(void)
{
    static const char *const unset[] = {"OPTC_CACHE_BASE", "OPTC_CACHE_MAX", "OPTC_PATH",
                                        "OPTC_CC",         "OPTC_CFLAGS",    "OPTC_FATBIN",
                                        "OPTC_TUNE_LIVE",  "XDG_CACHE_HOME"};
    for (size_t i = 0; i < sizeof unset / sizeof *unset; i++)
        unsetenv(unset[i]);
    setenv("OPTC_TUNE", "", 1);
    setenv("OMP_NUM_THREADS", "1", 1);
    setenv("TMPDIR", below("tmp"), 1);
    setenv("OPTC_CACHE", below("cache"), 1);
    setenv("EMU_KEPT", below("kept"), 1);
    static const char *const folders[] = {"tmp", "cache", "kept", "made"};
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++)
        fresh_folder(folders[i]);
    /* Memory of the emulated GPU is exempt: its libraries are known from the start. */
    static const char *const libraries[] = {"libcuda.so.1", "libnvrtc.so.13", "libnvfatbin.so.13",
                                            "libcublas.so.13", "libcusolver.so.12"};
    for (size_t i = 0; i < sizeof libraries / sizeof *libraries; i++)
        (void)dlopen(libraries[i], RTLD_NOW | RTLD_GLOBAL);
}

/* faults FOLDER quick|all [SCENE [KIND [NUMBER]]] */
int main(int argc, char **argv)
{
    char *folder = argc < 3 ? NULL : realpath(argv[1], NULL);
    if (!folder || snprintf(scratch, sizeof scratch, "%s", folder) >= (int)sizeof scratch)
        return 2;
    free(folder);
    trial = mmap(NULL, sizeof *trial, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    settings();
    const char *scene = argc > 3 ? argv[3] : NULL, *kind = argc > 4 ? argv[4] : NULL;
    int only = argc > 5 ? atoi(argv[5]) : 0;
    inject_say_where(only != 0);
    int bad = run_all(api_scenes, !strcmp(argv[2], "quick"), scene, kind, only);
    bad += run_all(tool_scenes, !strcmp(argv[2], "quick"), scene, kind, only);
    if (bad)
        printf("%d calls that fail are not dealt with\n", bad);
    return bad != 0;
}
