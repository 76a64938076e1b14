/* optc cache: lists, verifies and removes compiled code on disk. Removes only files with names of
 * cache entries. */
#include "tools/page/json.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct Job {
    const Command *self;
    const char *dir, *older;
    int64_t max;
    bool json, delete;
    char place[CACHE_DIR];
    int64_t cap;
} Job;

static const char *plural(int n) { return n == 1 ? "y" : "ies"; }

static const char *age_text(char buf[32], double s)
{
    static const struct {
        double seconds;
        const char *name;
    } unit[] = {{86400, "d"}, {3600, "h"}, {60, "min"}, {1, "s"}};
    int i = 0;
    while (i < 3 && s < unit[i].seconds)
        i++;
    snprintf(buf, 32, "%.0f %s", s > 0 ? floor(s / unit[i].seconds) : 0, unit[i].name);
    return buf;
}

/* Seconds of "30d", "12h", "90m", "45s" or "2w"; a plain number is days. Negative: not a
 * duration. */
static double parse_age(const char *s)
{
    static const struct {
        char letter;
        double seconds;
    } unit[] = {{0, 86400}, {'d', 86400}, {'h', 3600}, {'m', 60}, {'s', 1}, {'w', 604800}};
    char *end;
    errno = 0;
    unsigned long x = strtoul(s, &end, 10);
    if (*s < '0' || *s > '9' || errno || (*end && end[1]))
        return -1;
    for (size_t i = 0; i < sizeof unit / sizeof *unit; i++)
        if (unit[i].letter == *end)
            return (double)x * unit[i].seconds;
    return -1;
}

/* ---- ls ---- */
static void holds(Buf *b, const CacheNote *n)
{
    buf_puts(b, *n->rule ? n->rule : "?");
    if (*n->with)
        buf_printf(b, " with %s", n->with);
    if (*n->options)
        buf_printf(b, ", %s", n->options);
    if (*n->types)
        buf_printf(b, ", %s", n->types);
    if (*n->target)
        buf_printf(b, " for %s", n->target);
    if (*n->compiler)
        buf_printf(b, " by %s", n->compiler);
}

static void ls_row(const Job *j, const CacheEntry *e, int64_t now)
{
    char size[32], age[32];
    CacheNote note;
    Buf b = {0};
    if (cache_read_note(j->place, e->name, &note))
        holds(&b, &note);
    else
        buf_puts(&b, "damaged, or of another version");
    printf("  %.8s  %-6s %9s  ", e->name, e->kind, cli_bytes(size, (double)e->bytes));
    cli_cell(age_text(age, (double)(now - e->used_ns) * 1e-9), 8);
    cli_put_clean(stdout, cli_text(&b), false);
    puts("");
    buf_free(&b);
}

static void ls_text(const Job *j, const CacheList *l, int64_t now)
{
    char size[32], cap[32];
    if (l->entries)
        cli_heading("  key       kind        size  used    holds");
    for (int i = l->n; i-- > 0;)
        if (l->entry[i].kind)
            ls_row(j, &l->entry[i], now);
    printf("%s%d entr%s, %s%s%s in ", l->entries ? "\n" : "", l->entries, plural(l->entries),
           cli_bytes(size, (double)l->bytes), j->cap >= 0 ? " of at most " : "",
           j->cap >= 0 ? cli_bytes(cap, (double)j->cap) : "");
    cli_put_clean(stdout, j->place, false);
    if (l->n > l->entries)
        printf(", and %d unfinished", l->n - l->entries);
    puts("");
}

static void ls_json(const Job *j, const CacheList *l, int64_t now)
{
    Buf b = {0};
    JsonText t = {.b = &b};
    json_object(&t, NULL, true);
    json_string(&t, "dir", j->place);
    json_int(&t, "count", l->entries);
    json_int(&t, "bytes", l->bytes);
    json_real(&t, "max", j->cap >= 0 ? (double)j->cap : NAN);
    json_int(&t, "unfinished", l->n - l->entries);
    json_list(&t, "entries", true);
    for (int i = l->n; i-- > 0;) {
        const CacheEntry *e = &l->entry[i];
        CacheNote n;
        char key[CACHE_PATH];
        if (!e->kind)
            continue;
        bool ok = cache_read_note(j->place, e->name, &n);
        snprintf(key, sizeof key, "%.*s", (int)strcspn(e->name, "."), e->name);
        json_object(&t, NULL, false);
        json_string(&t, "key", key);
        json_string(&t, "kind", e->kind);
        json_int(&t, "bytes", e->bytes);
        json_int(&t, "used_seconds_ago", (now - e->used_ns) / 1000000000);
        json_bool(&t, "readable", ok);
        const struct { const char *name, *text;
        } field[] = {{"rule", n.rule},   {"with", n.with},     {"options", n.options},
                     {"types", n.types}, {"target", n.target}, {"compiler", n.compiler}};
        for (size_t k = 0; ok && k < sizeof field / sizeof *field; k++)
            json_string(&t, field[k].name, field[k].text);
        json_end(&t);
    }
    json_end(&t);
    json_end(&t);
    json_print(&t);
}

static int do_ls(const Job *j)
{
    CacheList l;
    char why[512];
    if (!cache_list(j->place, &l))
        return cli_fail("cache: %s: %s", j->place, strerror(errno));
    (j->json ? ls_json : ls_text)(j, &l, cache_now_ns());
    free(l.entry);
    if (!j->dir && !cache_trusted(j->place, false, why, sizeof why))
        cli_warning("this folder is not used: %s", why);
    if (limit_wrong(LIMIT_CACHE_MAX, why, sizeof why))
        cli_warning("%s; the limit shown is the default", why);
    return CLI_OK;
}

/* ---- verify ---- */
static int do_verify(const Job *j)
{
    CacheList l;
    int bad = 0, removed = 0;
    if (!cache_list(j->place, &l))
        return cli_fail("cache: %s: %s", j->place, strerror(errno));
    for (int i = 0; i < l.n; i++) {
        const CacheEntry *e = &l.entry[i];
        char path[CACHE_PATH];
        size_t n;
        const char *why;
        char *data = e->kind ? cache_read(j->place, e->name, CACHE_LOOK, &n, &why) : NULL;
        snprintf(path, sizeof path, "%s/%s", j->place, e->name);
        /* another process may have removed it meanwhile */
        if (e->kind && !data && access(path, F_OK) == 0) {
            bool can = access(path, R_OK) == 0;
            bool gone = j->delete && can && remove(path) == 0;
            cli_print("%s: %s%s\n", e->name, why,
                      gone        ? "; removed"
                      : j->delete ? "; not removed"
                                  : "");
            bad++;
            removed += gone;
        }
        free(data);
    }
    printf("%d entr%s, %d damaged%s", l.entries, plural(l.entries), bad,
           bad && j->delete ? "" : "\n");
    if (bad && j->delete)
        printf(", %d removed\n", removed);
    free(l.entry);
    return bad ? CLI_FAILED : CLI_OK;
}

/* ---- prune, clear ---- */
static int say_swept(const Job *j, CacheSwept s)
{
    char size[32];
    if (s.unread)
        return cli_fail("cache: cannot list %s: %s", j->place, strerror(s.unread));
    printf("%d entr%s removed, %s", s.entries, plural(s.entries), cli_bytes(size, (double)s.bytes));
    if (s.leftovers)
        printf(" with %d unfinished", s.leftovers);
    puts("");
    return s.failed ? cli_fail("cache: %d file%s in %s could not be removed", s.failed,
                               s.failed == 1 ? "" : "s", j->place)
                    : CLI_OK;
}

static int do_prune(const Job *j)
{
    double older = j->older ? parse_age(j->older) : -1;
    if (j->older && older < 0)
        return cli_misuse(j->self, "--older '%s' must be a time such as 30d, 12h, 90m or 2w",
                          j->older);
    char why[200];
    if (!j->max && !j->older && limit_wrong(LIMIT_CACHE_MAX, why, sizeof why))
        return cli_fail("cache: %s", why);
    int64_t max = j->max ? j->max : j->older ? -1 : j->cap;
    return say_swept(j, cache_sweep(j->place, max, older, 3600, NULL));
}

static int do_clear(const Job *j) { return say_swept(j, cache_sweep(j->place, 0, 0, 0, NULL)); }

/* ---- the command ---- */
static const struct { const char *name; int (*run)(const Job *j); bool json, delete, prune;
} actions[] = {{"ls", do_ls, true, false, false},
               {"verify", do_verify, false, true, false},
               {"prune", do_prune, false, false, true},
               {"clear", do_clear, false, false, false}};
enum { NACTION = sizeof actions / sizeof *actions };

/* Finds the cache folder. A folder of --dir must exist; the default one need not. */
static int find_place(Job *j, bool *empty)
{
    char why[512];
    struct stat st;
    Cache c;
    if (j->dir && !*j->dir)
        return cli_misuse(j->self, "--dir names no folder");
    if (!cache_location(j->dir, j->place, why, sizeof why))
        return cli_fail("cache: no folder: %s", why);
    if (!*j->place)
        return cli_fail("cache: OPTC_CACHE is empty, so there is no cache; unset it, or name a "
                        "folder with --dir");
    cache_open(&c, "", "", 0);
    j->cap = c.max;
    cache_close(&c);
    bool there = stat(j->place, &st) == 0;
    *empty = !there && errno == ENOENT && !j->dir;
    if (!there && !*empty)
        return cli_fail("cache: %s: %s", j->place, strerror(errno));
    if (there && !S_ISDIR(st.st_mode))
        return cli_fail("cache: %s is not a folder", j->place);
    return there && access(j->place, R_OK | X_OK) != 0
               ? cli_fail("cache: %s: %s", j->place, strerror(errno))
               : CLI_GO;
}

static int pick_action(const Command *self, int n, char **argv)
{
    const char *names[NACTION + 1] = {NULL};
    for (int i = 0; i < NACTION; i++) {
        names[i] = actions[i].name;
        if (n == 1 && !strcmp(argv[0], names[i]))
            return i;
    }
    Buf b = {0};
    if (n == 1)
        cli_near("action", argv[0], names, &b);
    cli_misuse(self, "%s: ls, verify, prune or clear",
               n == 1 ? cli_text(&b)
               : n    ? "it takes one action"
                      : "no action is given");
    buf_free(&b);
    return -1;
}

int cmd_cache(const Command *self, int argc, char **argv)
{
    Job j = {.self = self};
    const Opt opts[] = {
        {"dir", 0, OPT_TEXT, &j.dir, "DIR",
         "the folder (default: $OPTC_CACHE, $XDG_CACHE_HOME/optc or ~/.cache/optc)"},
        {"json", 0, OPT_FLAG, &j.json, NULL, "ls: print one JSON object"},
        {"delete", 0, OPT_FLAG, &j.delete, NULL, "verify: remove damaged entries"},
        {"max", 0, OPT_SIZE, &j.max, "SIZE",
         "prune: the bytes to keep (default: $OPTC_CACHE_MAX, or 1G)"},
        {"older", 0, OPT_TEXT, &j.older, "TIME",
         "prune: remove entries that were not used for 30d, 12h, 90m or 2w"},
        {NULL, 0, OPT_FLAG, NULL, NULL, NULL}};
    int n, rc = cli_parse(self, opts, argc, argv, &n);
    if (rc != CLI_GO)
        return rc;
    int a = pick_action(self, n, argv);
    if (a < 0)
        return CLI_USAGE;
    if ((j.json && !actions[a].json) || (j.delete &&!actions[a].delete) ||
        ((j.max || j.older) && !actions[a].prune))
        return cli_misuse(self, "%s does not take --%s", actions[a].name,
                          j.json && !actions[a].json      ? "json"
                          : j.delete &&!actions[a].delete ? "delete"
                          : j.max                         ? "max"
                                                          : "older");
    bool empty;
    if ((rc = find_place(&j, &empty)) != CLI_GO)
        return rc;
    if (empty && !j.json) {
        cli_print("the cache is empty: there is no folder %s\n", j.place);
        return CLI_OK;
    }
    if (empty)
        return ls_json(&j, &(CacheList){0}, 0), CLI_OK;
    return actions[a].run(&j);
}
