/* Finds specs and wrappers by name or path, reads them, and lists the rules that the build compiles
 * in. */
#include "runtime/library/rule/spec_find.h"

#include "gen/abi/embedded.h"
#include "runtime/library/rule/other_names.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The most used rules are compiled into the library for every vector level. All others are compiled
 * at their first
 * use: a built-in rule costs a second of build time and 10 kB. */
const BuiltinName library_builtin[] = {
    {"adabelief"}, {"adadelta"},
    {"adafactor"}, {"adagrad"},
    {"adam"},      {"adamax"},
    {"adamw"},     {"adan"},
    {"ademamix"},  {"adopt"},
    {"came"},      {"lamb"},
    {"lars"},      {"lion"},
    {"mars"},      {"muon"},
    {"nadam"},     {"normuon"},
    {"prodigy"},   {"radam"},
    {"rmsprop"},   {"schedulefree_adamw"},
    {"sgd"},       {"shampoo"},
    {"soap"},      {NULL},
};

const Composition library_compositions[] = {
    {"sgd", "clip(1)", "sgd_clip"},
    {"adam", "clip(1)", "adam_clip"},
    {"adamw", "clip(1)", "adamw_clip"},
    {"lion", "clip(1)", "lion_clip"},
    {NULL, NULL, NULL},
};

const Configuration library_variants[] = {
    {"sgd", "momentum_buffer=false", "sgd_plain"},
    {"adafactor", "torch=true", "adafactor_torch"},
    {"muon", "eps=1e-07", "muon_torch"},
    {NULL, NULL, NULL},
};

/* 24 rows take 20 s of CPU time to compile for three vector levels, and 0.7 MB of the library. */
const TypedRule library_types[] = {
    {"adamw", "", "param=bf16", "adamw_bf16"},
    {"adamw", "", "param=bf16,state=bf16", "adamw_all_bf16"},
    {"adamw", "", "state=q8", "adamw_q8"},
    {"adamw", "", "param=bf16,state=q8", "adamw_bf16_q8"},
    {"adamw", "clip(1)", "param=bf16", "adamw_clip_bf16"},
    {"adamw", "clip(1)", "param=bf16,state=bf16", "adamw_clip_all_bf16"},
    {"adamw", "clip(1)", "state=q8", "adamw_clip_q8"},
    {"adamw", "clip(1)", "param=bf16,state=q8", "adamw_clip_bf16_q8"},
    {"adam", "", "param=bf16", "adam_bf16"},
    {"adam", "", "param=bf16,state=bf16", "adam_all_bf16"},
    {"adam", "", "state=q8", "adam_q8"},
    {"adam", "", "param=bf16,state=q8", "adam_bf16_q8"},
    {"sgd", "", "param=bf16", "sgd_bf16"},
    {"sgd", "", "param=bf16,state=bf16", "sgd_all_bf16"},
    {"sgd", "", "state=q8", "sgd_q8"},
    {"sgd", "", "param=bf16,state=q8", "sgd_bf16_q8"},
    {"lion", "", "param=bf16", "lion_bf16"},
    {"lion", "", "param=bf16,state=bf16", "lion_all_bf16"},
    {"lion", "", "state=q8", "lion_q8"},
    {"lion", "", "param=bf16,state=q8", "lion_bf16_q8"},
    {"muon", "", "param=bf16", "muon_bf16"},
    {"muon", "", "param=bf16,state=bf16", "muon_all_bf16"},
    {"muon", "", "state=q8", "muon_q8"},
    {"muon", "", "param=bf16,state=q8", "muon_bf16_q8"},
    {NULL, NULL, NULL, NULL},
};

/* One byte more than a spec may have, so that the compiler reports a spec that is too long. */
enum { MOST = (1 << 20) + 1 };

/* A path that names no file is the caller's mistake (DIAG_SPEC); any other failure to read is
 * DIAG_FILE. */
static bool unreadable(const char *path, Diag *d, int err)
{
    diag_set(d, path, 0, NULL, "cannot read the spec: %s",
             err == EINVAL ? "not a plain file" : strerror(err));
    static const int mistakes[] = {EINVAL, ENOENT, ENOTDIR, EISDIR, EACCES, ENAMETOOLONG, ELOOP};
    bool mistaken = false;
    for (size_t i = 0; i < sizeof mistakes / sizeof *mistakes; i++)
        mistaken = mistaken || err == mistakes[i];
    if (!mistaken && d && d->kind == DIAG_SPEC)
        d->kind = DIAG_FILE;
    return false;
}

bool read_text(const char *path, Arena *arena, Source *out, Diag *d)
{
    /* before open: it may not return if memory runs out */
    char *buf = arena_alloc(arena, MOST + 1);
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    struct stat st;
    int err = fd < 0 || fstat(fd, &st) != 0 ? errno
              : S_ISDIR(st.st_mode)         ? EISDIR
              : S_ISREG(st.st_mode)         ? 0
                                            : EINVAL;
    size_t n = 0;
    ssize_t got = 1;
    while (!err && n < MOST && got > 0) {
        got = read(fd, buf + n, MOST - n);
        err = got < 0 && errno != EINTR ? errno : 0;
        n += got > 0 ? (size_t)got : 0;
        got = got < 0 && !err ? 1 : got;
    }
    if (fd >= 0)
        close(fd);
    if (err)
        return unreadable(path, d, err);
    *out = (Source){arena_strdup(arena, path), buf, n};
    return true;
}

bool spec_embedded(const char *text)
{
    for (const Embedded *e = embedded_specs; e->name; e++)
        if (e->text == text)
            return true;
    return false;
}

static bool embedded(const Embedded *e, const char *key, Arena *arena, Source *out)
{
    for (; e->name; e++)
        if (!strcmp(e->name, key)) {
            *out = (Source){arena_printf(arena, "specs/%s.lua", key), e->text, strlen(e->text)};
            return true;
        }
    return false;
}

static bool in_folders(const char *path, const char *file, Arena *arena, Source *out, Diag *d,
                       bool *failed)
{
    while (path && *path) {
        size_t n = strcspn(path, ":");
        const char *full = arena_printf(arena, "%.*s/%s", (int)n, path, file);
        if (n && access(full, F_OK) == 0) {
            *failed = !read_text(full, arena, out, d);
            return true;
        }
        path += n + (path[n] == ':');
    }
    return false;
}

/* A kind of text that a name can refer to. flat: the search includes files directly in a folder of
 * the path. */
typedef struct Kind {
    const char *what, *folder; bool flat; const Embedded *library; const char *own;
} Kind;
static const char own_path[] = "a file of your own is named by its path: ./mine.lua";
static const Kind a_rule = {"optimizer", "", false, embedded_specs, own_path};
static const Kind a_wrapper = {"wrapper", "wrappers/", true, embedded_specs, own_path};
static const Kind a_shared = {
    "shared text", "shared/", false, embedded_shared,
    "a file of your own is shared/NAME.lua in a folder of --path or $OPTC_PATH"};

static bool find(const char *spec_path, const char *name, const Kind *k, Arena *arena, Source *out,
                 Diag *d)
{
    bool failed = false;
    const char *path = spec_path ? spec_path : getenv("OPTC_PATH"), *folder = k->folder;
    const char *key = arena_printf(arena, "%s%s.lua", folder, name),
               *flat = arena_printf(arena, "%s.lua", name);
    if (in_folders(path, key, arena, out, d, &failed) ||
        (k->flat && in_folders(path, flat, arena, out, d, &failed)))
        return !failed;
    if (embedded(k->library, arena_printf(arena, "%s%s", folder, name), arena, out))
        return true;
    Near near = {.want = name};
    size_t skip = strlen(folder);
    for (const Embedded *e = k->library; e->name; e++) {
        bool same = *folder ? !strncmp(e->name, folder, skip) : !strchr(e->name, '/');
        if (same)
            near_try(&near, e->name + skip);
    }
    const char *here = k == &a_rule ? other_name(name, arena) : NULL;
    const char *ends = here ? arena_printf(arena, "; %s", here)
                            : arena_printf(arena, "%s (%s)", near_text(&near, arena), k->own);
    diag_set(d, NULL, 0, NULL, "there is no %s '%s' in the library%s", k->what, name, ends);
    return false;
}

static bool is_path(const char *name)
{
    size_t n = strlen(name);
    return strchr(name, '/') || (n > 4 && !strcmp(name + n - 4, ".lua"));
}

const char *spec_split(Arena *arena, const char *arg, const char *around, const char **with)
{
    const char *plus = access(arg, F_OK) == 0 ? NULL : strchr(arg, '+'), *spec = arg;
    for (; plus; plus = strchr(plus + 1, '+')) {
        spec = arena_strndup(arena, arg, (size_t)(plus - arg));
        if (is_ident(spec) || access(spec, F_OK) == 0 || !strcmp(spec, "-") ||
            (is_path(spec) && !strchr(plus, '/')))
            break;
    }
    /* a + at the end: a wrapper is missing; the + is kept, so that the wrapper parser reports it */
    const char *part[] = {!plus ? "" : plus[1] ? plus + 1 : plus, around ? around : ""};
    Buf w = {.arena = arena};
    for (int i = 0; i < 2; i++) {
        if (*part[i] && w.len)
            buf_puts(&w, ",");
        buf_puts(&w, part[i]);
    }
    *with = w.len ? buf_text(&w) : "";
    return plus ? spec : arg;
}

bool find_wrapper(void *spec_path, const char *name, Arena *arena, Source *out, Diag *d)
{
    if (!strncmp(name, RULE_NAMED, strlen(RULE_NAMED)))
        return find_spec(spec_path, name + strlen(RULE_NAMED), arena, out, d);
    if (!strncmp(name, SHARED_NAMED, strlen(SHARED_NAMED)))
        return find(spec_path, name + strlen(SHARED_NAMED), &a_shared, arena, out, d);
    return is_path(name) ? read_text(name, arena, out, d)
                         : find(spec_path, name, &a_wrapper, arena, out, d);
}

bool find_spec(const char *spec_path, const char *name, Arena *arena, Source *out, Diag *d)
{
    if (is_path(name)) {
        if (!strncmp(name, "wrappers/", 9) && access(name, F_OK) != 0)
            return find(spec_path, name + 9, &a_wrapper, arena, out, d);
        return read_text(name, arena, out, d);
    }
    return find(spec_path, name, &a_rule, arena, out, d);
}
