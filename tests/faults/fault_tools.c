/* Scenarios of the command: the result is its output and the files it writes. */
#include "tests/faults/faults.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- one run of the command ---- */
/* in shared memory: the number of calls, written by the command's process when it ends */
static int *calls;
static void tell_calls(void) { *calls = inject_end(); }

static void redirect(const char *name, int to)
{
    int fd = open(below(name), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    dup2(fd, to);
    close(fd);
}

/* @ is replaced by the scratch folder. */
static int arguments(const Scene *s, char **argv, char text[20][600])
{
    int n = 1;
    argv[0] = "optc";
    for (; s->argv[n - 1] && n < 20; n++) {
        const char *a = s->argv[n - 1];
        snprintf(text[n], 600, "%s%s", *a == '@' ? scratch : "", *a == '@' ? a + 1 : a);
        argv[n] = text[n];
    }
    argv[n] = NULL;
    return n;
}

static int run_command(const Scene *s)
{
    char *argv[24], text[20][600];
    int n = arguments(s, argv, text), status = 0;
    fflush(NULL);
    inject_rest(true);
    pid_t pid = fork();
    if (pid == 0) {
        redirect("stdout", 1);
        redirect("stderr", 2);
        atexit(tell_calls);
        alarm(50);
        inject_rest(false);
        exit(optc_main(n, argv));
    }
    waitpid(pid, &status, 0);
    inject_rest(false);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

static void read_start(const char *name, char *to, size_t most)
{
    FILE *f = fopen(below(name), "r");
    size_t n = f ? fread(to, 1, most - 1, f) : 0;
    to[n] = 0;
    if (f)
        fclose(f);
}

static bool at_a_line(const char *said)
{
    const char *s = strstr(said, ".lua:");
    return s && s[5] >= '0' && s[5] <= '9';
}

static optc_status status_of(int rc, const char *said)
{
    if (rc == 0)
        return OPTC_OK;
    /* it died, reported misuse, or printed nothing */
    if (rc != 1 || strncmp(said, "optc: ", 6))
        return OPTC_ERROR_ARGUMENT;
    return strstr(said, "memory") ? OPTC_ERROR_MEMORY
           : at_a_line(said)      ? OPTC_ERROR_SPEC
                                  : OPTC_ERROR_IO;
}

static void run_tool(const Scene *s, Outcome *out)
{
    int rc = run_command(s);
    char said[500];
    inject_rest(true);
    read_start("stderr", said, sizeof said);
    *out = (Outcome){.status = status_of(rc, said), .calls = *calls};
    snprintf(out->message, sizeof out->message, "%s%s", rc < 0 ? strsignal(-rc) : "", said);
    if (rc == 0)
        out->result = s->loose ? 1 : mix_files(mix_files(1, below("stdout")), below("made"));
    /* the output is lost, but the files are complete */
    bool silent = strstr(said, "the output could not be written") != NULL;
    out->left = rc != 0 && !s->loose && !silent && mix_files(1, below("made")) != 1;
    inject_rest(false);
}

static void tool(const Scene *s, Outcome *out)
{
    if (!calls)
        calls =
            mmap(NULL, sizeof *calls, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    fresh_folder("made");
    run_tool(s, out);
}

/* ---- with things that were made before ---- */
static void undisturbed(const char *const *argv)
{
    Scene s = {.argv = argv};
    inject_rest(true);
    int rc = run_command(&s);
    if (rc)
        fprintf(stderr, "a scene could not be prepared: optc %s: %d\n", argv[0], rc);
    inject_rest(false);
}

void make_package(void)
{
    static const char *const ship[] =
        {"ship", "adamw", "--with", "clip(1)", "--arch", "sm_90", "-o", "@/shipped", NULL};
    if (!calls)
        calls =
            mmap(NULL, sizeof *calls, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (mix_files(1, below("shipped/manifest")) == 0)
        undisturbed(ship);
}

static void with_package(const Scene *s, Outcome *out)
{
    make_package();
    tool(s, out);
}

static const char results[] = "optc-tune 1\ndevice Emulated GPU | units 8 | driver 0\nmap "
                              "f32,f32,f32 0123456789abcdef0123456789abcdef 2^28 "
                              "threads=512 vector=4 items=1 blocks=0 "
                              "load=0 store=1 grid=4 ms=1 model=2 n=9 # sgd step_1_map\n";

static void with_results(const Scene *s, Outcome *out)
{
    inject_rest(true);
    FILE *f = fopen(below("results"), "w");
    if (f && fputs(results, f) >= 0)
        fclose(f);
    inject_rest(false);
    tool(s, out);
}

/* A cache with an entry, a damaged entry, and leftovers of a build. */
static void with_cache(const Scene *s, Outcome *out)
{
    static const char *const names[] = {
        "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef.so",
        ".0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef.abcdef"};
    fresh_folder("entries");
    inject_rest(true);
    for (int i = 0; i < 2; i++) {
        char path[200];
        snprintf(path, sizeof path, "entries/%s", names[i]);
        FILE *f = fopen(below(path), "w");
        if (f && fputs("damaged", f) >= 0)
            fclose(f);
    }
    inject_rest(false);
    tool(s, out);
}

static optc_status save_checkpoint(const char *path)
{
    float p[6] = {1, 2, 3, 4, 5, 6}, g[6] = {1, 1, 1, 1, 1, 1};
    int64_t shape[2] = {2, 3};
    optc_engine *e = NULL;
    optc_rule *r = NULL;
    optc_binding *b = NULL;
    optc_tensor w = {.name = "w", .param = p, .grad = g, .rank = 2, .shape = shape};
    optc_status s = optc_open(NULL, &e);
    s = s == OPTC_OK ? optc_compile(e, &(optc_rule_options){.spec = "adamw"}, &r) : s;
    s = s == OPTC_OK ? optc_bind(r, &(optc_group){.tensors = &w, .ntensors = 1}, 1, &b) : s;
    s = s == OPTC_OK ? optc_save(&b, 1, &(optc_checkpoint){.path = path}) : s;
    optc_unbind(b);
    optc_release(r);
    optc_close(e);
    return s;
}

static void with_checkpoint(const Scene *s, Outcome *out)
{
    inject_rest(true);
    if (save_checkpoint(below("shown")) != OPTC_OK)
        fprintf(stderr, "a scene could not be prepared: %s\n", optc_message());
    inject_rest(false);
    tool(s, out);
}

#define ARGS(...) (const char *const[]){__VA_ARGS__, NULL}
enum {
    HOST = 1 << ALLOCATIONS | 1 << MEMORY_ENDS | 1 << FILES, SHIP = HOST | 1 << NVRTC | 1 << FATBIN
};
const Scene tool_scenes[] = {
    {.name = "emit c",
     .run = tool,
     .kinds = HOST,
     .argv = ARGS("emit", "adafactor", "--target", "c"),
     .samples = 25},
    {.name = "emit cuda",
     .run = tool,
     .kinds = HOST,
     .argv = ARGS("emit", "adafactor", "--target", "cuda", "-o", "@/made/out.cu"),
     .samples = 25},
    {.name = "dump",
     .run = tool,
     .kinds = HOST,
     .argv = ARGS("dump", "adamw", "--with", "clip(1)", "--pass", "all"),
     .samples = 25},
    {.name = "check",
     .run = tool,
     .kinds = HOST,
     .argv = ARGS("check", "adamw", "lamb", "ema"),
     .samples = 25},
    {.name = "explain",
     .run = tool,
     .kinds = HOST,
     .argv = ARGS("explain", "lamb", "--bandwidth", "100"),
     .samples = 25},
    {.name = "list", .run = tool, .kinds = HOST, .argv = ARGS("list", "adamw"), .samples = 25},
    {.name = "ship",
     .run = tool,
     .kinds = SHIP,
     .argv = ARGS("ship", "adamw+clip(1)", "--arch", "sm_90", "-o", "@/made/mine"),
     .samples = 12,
     .gpu = true,
     .more = 8},
    {.name = "ship for the CPU",
     .run = tool,
     .kinds = HOST,
     .argv = ARGS("ship", "adamw+clip(1)", "-o", "@/made/mine"),
     .samples = 25},
    {.name = "check a package",
     .run = with_package,
     .kinds = HOST,
     .argv = ARGS("ship", "--check", "@/shipped"),
     .samples = 12,
     .gpu = true,
     .loose = true},
    {.name = "tune",
     .run = tool,
     .kinds = HOST,
     .argv = ARGS("tune", "sgd", "--device", "cuda", "--sizes", "2^10", "--trials", "2", "--into",
                  "@/made/tune"),
     .samples = -1,
     .gpu = true,
     .loose = true},
    {.name = "tune the CPU",
     .run = tool,
     .kinds = HOST,
     .argv = ARGS("tune", "sgd", "--device", "cpu", "--sizes", "2^6", "--trials", "2", "--busy",
                  "--into", "@/made/tune"),
     .samples = 2,
     .loose = true},
    {.name = "tune show",
     .run = with_results,
     .kinds = HOST,
     .argv = ARGS("tune", "show", "@/results"),
     .samples = 12},
    {.name = "tune merge",
     .run = with_results,
     .kinds = HOST,
     .argv = ARGS("tune", "merge", "@/results", "--into", "@/made/tune"),
     .samples = 12},
    {.name = "cache ls",
     .run = with_cache,
     .kinds = HOST,
     .argv = ARGS("cache", "ls", "--dir", "@/entries"),
     .samples = 12},
    {.name = "cache clear",
     .run = with_cache,
     .kinds = HOST,
     .argv = ARGS("cache", "clear", "--dir", "@/entries"),
     .samples = 12},
    {.name = "checkpoint show",
     .run = with_checkpoint,
     .kinds = HOST,
     .argv = ARGS("checkpoint", "show", "@/shown"),
     .samples = 12},
    {.name = "new",
     .run = tool,
     .kinds = HOST,
     .argv = ARGS("new", "mine", "-o", "@/made/mine.lua"),
     .samples = 12},
    {.name = NULL},
};
