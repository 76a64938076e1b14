/* optc tune export, merge: write tuned results to files, and merge files into the user's
 * results. */
#include "tools/tune/tune.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

bool tune_device_is(const TunedKey *k, const char *part)
{
    return !part || strcasestr(k->device, part);
}

int tune_no_device(const char *part, const TunedList *l)
{
    Buf b = {0};
    for (int i = 0; i < l->n; i++)
        if (!i || strcmp(l->v[i - 1].key.device, l->v[i].key.device))
            buf_printf(&b, "%s%s", b.len ? ", " : "", l->v[i].key.device);
    int rc = cli_fail("tune: no results of a device '%s' (there are: %s)", part,
                      b.len ? cli_text(&b) : "none");
    buf_free(&b);
    return rc;
}

int tune_user_path(char out[TUNE_PATH])
{
    if (tuned_path(out, TUNE_PATH))
        return CLI_GO;
    return cli_fail("tune: there is no file for your results: %s",
                    getenv("OPTC_TUNE") ? "OPTC_TUNE is empty, or too long"
                                        : "none of OPTC_TUNE, XDG_CONFIG_HOME and HOME is set");
}

/* ---- export ---- */
static int out_of_memory(void) { return cli_fail("tune: out of memory"); }

/* Collects the user's results, or with `all` those of every list; of two with the same key, the
 * first list's. */
static int gather(TunedList *out, bool all)
{
    char path[TUNE_PATH], why[600];
    TunedSet s;
    if (!all) {
        int rc = tune_user_path(path);
        if (rc != CLI_GO)
            return rc;
        return tuned_read(out, path, why, sizeof why) ? CLI_GO : cli_fail("%s", why);
    }
    tuned_open(&s);
    const TunedList *lists[] = {&s.builtin, &s.user};
    bool ok = true;
    for (int k = 0; k < 2; k++)
        for (int i = 0; ok && i < lists[k]->n; i++)
            ok = tuned_put(out, &lists[k]->v[i]);
    int rc = *s.why ? cli_fail("%s", s.why) : ok ? CLI_GO : out_of_memory();
    tuned_close(&s);
    return rc;
}

static void keep_device(TunedList *l, const char *part)
{
    int n = 0;
    for (int i = 0; i < l->n; i++)
        if (tune_device_is(&l->v[i].key, part))
            l->v[n++] = l->v[i];
    l->n = n;
}

static bool is_users(const char *path)
{
    char own[TUNE_PATH];
    struct stat a, b;
    return tuned_path(own, sizeof own) && stat(own, &a) == 0 && stat(path, &b) == 0 &&
           a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

static int put_results(const TunedList *l, const char *to)
{
    char why[600];
    if (to && strcmp(to, "-")) {
        if (is_users(to))
            return cli_fail("tune: %s has your own results: an export would take their place", to);
        if (!tuned_write(l, to, why, sizeof why))
            return cli_fail("tune: %s", why);
        cli_print("%d result%s written to %s\n", l->n, l->n == 1 ? "" : "s", to);
        return CLI_OK;
    }
    char *text = tuned_text(l);
    if (!text)
        return out_of_memory();
    fputs(text, stdout);
    free(text);
    return CLI_OK;
}

int tune_export(const Command *self, int argc, char **argv)
{
    const char *to = NULL, *device = NULL;
    bool all = false;
    const Opt opts[] = {
        {"output", 'o', OPT_TEXT, &to, "FILE", "where to (default: standard output)"},
        {"device", 0, OPT_TEXT, &device, "NAME", "only of devices with this in their name"},
        {"all", 0, OPT_FLAG, &all, NULL,
         "the built-in results too; of one stage and size yours"},
        {NULL, 0, OPT_FLAG, NULL, NULL, NULL}};
    int n, rc = cli_parse(self, opts, argc, argv, &n);
    if (rc != CLI_GO)
        return rc;
    if (n)
        return cli_misuse(self, "it takes no arguments; a file to write is -o FILE");
    if (to && !*to)
        return cli_misuse(self, "-o names no file");
    TunedList l = {0};
    if ((rc = gather(&l, all)) == CLI_GO) {
        TunedList kept = l;
        if (!l.n) {
            rc = cli_fail("tune: there are no results to export yet%s",
                          all ? "" : "; --all takes the built-in ones too");
        } else {
            bool any = false;
            for (int i = 0; i < l.n; i++)
                any |= tune_device_is(&l.v[i].key, device);
            keep_device(&kept, any ? device : NULL);
            rc = any ? put_results(&kept, to) : tune_no_device(device, &l);
        }
    }
    tuned_free(&l);
    return rc;
}

/* ---- merge ---- */
/* Reads each file into its own list, because two files may have results of the same stage. */
static int read_one(TunedList *l, const char *path)
{
    char why[600];
    bool ok;
    if (!strcmp(path, "-")) {
        size_t len, most = 16 << 20;
        char *text = cli_read_all(stdin, most + 1, &len);
        if (!text || len > most)
            return free(text), cli_fail("tune: standard input is unreadable or larger than 16 MiB");
        ok = tuned_parse(l, "standard input", text, len, why, sizeof why);
        free(text);
    } else {
        /* tuned_read treats a missing file as empty */
        if (access(path, F_OK) != 0)
            return cli_fail("tune: %s: No such file or directory", path);
        ok = tuned_read(l, path, why, sizeof why);
    }
    return ok ? CLI_GO : cli_fail("%s", why);
}

static int read_files(TunedList *all, int n, char **paths)
{
    int rc = CLI_GO;
    /* reads all files, to report all errors at once */
    for (int i = 0; i < n; i++) {
        TunedList one = {0};
        TunedMerge m;
        int k = read_one(&one, paths[i]);
        if (k == CLI_GO && !tuned_merge(all, &one, TUNED_BY_GAIN, &m))
            k = out_of_memory();
        rc = k == CLI_GO ? rc : k;
        tuned_free(&one);
    }
    return rc;
}

int tune_merge(const Command *self, int argc, char **argv)
{
    const char *into = NULL;
    bool dry = false;
    const Opt opts[] = {{"into", 0, OPT_TEXT, &into, "FILE",
                         "the file that takes them (default: your own results)"},
                        {"dry-run", 0, OPT_FLAG, &dry, NULL, "only say what would happen"},
                        {NULL, 0, OPT_FLAG, NULL, NULL, NULL}};
    int n, rc = cli_parse(self, opts, argc, argv, &n);
    if (rc != CLI_GO)
        return rc;
    if (!n)
        return cli_misuse(self, "no file is given: name the files to merge");
    if (into && (!*into || strlen(into) >= TUNE_PATH))
        return cli_misuse(self, "--into names no file");
    char path[TUNE_PATH], why[600];
    if (into)
        strcpy(path, into);
    else if ((rc = tune_user_path(path)) != CLI_GO)
        return rc;
    TunedList all = {0};
    TunedMerge m = {0};
    if ((rc = read_files(&all, n, argv)) != CLI_GO) {
        cli_error("tune: nothing was merged");
    } else if (!tuned_update(path, &all, TUNED_BY_GAIN, dry, TUNE_WAIT_MS, &m, why, sizeof why)) {
        rc = cli_fail("%s\noptc: tune: nothing was merged", why);
    } else {
        cli_print("%s%d added, %d replaced, %d kept as they were in %s\n", dry ? "would be: " : "",
                  m.added, m.replaced, m.kept, path);
        rc = CLI_OK;
    }
    tuned_free(&all);
    return rc;
}

bool tune_budget(const char *s, double *out)
{
    char *end;
    double v = strtod(s, &end);
    double unit = !*end || !strcmp(end, "s")                 ? 1
                  : !strcmp(end, "m") || !strcmp(end, "min") ? 60
                  : !strcmp(end, "h")                        ? 3600
                                                             : 0;
    *out = v * unit;
    return end != s && v > 0 && unit > 0 && isfinite(v);
}
