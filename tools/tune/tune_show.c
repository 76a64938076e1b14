/* optc tune show: results as a table, and for a stage the best time of any trial by the value of
 * each parameter. */
#include "tools/tune/tune.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_SHOWN = 64 };

typedef struct Row { const Tuned *t; const char *from; } Row;
typedef struct Show {
    const char *stage, *device, *file;
    bool json;
    TunedSet set;              /* with FILE: only the user's list is filled */
    TrialList trials;          /* sorted by key; those of one key keep their order */
    char trials_file[TUNE_PATH];
    Row *row;
    int n;
} Show;

/* ---- entries ---- */
const char *tune_launch_text(char buf[120], LaunchForm f, const Launch *l)
{
    size_t at = 0;
    buf[0] = 0;
    for (int k = 0; k < NKNOB; k++) {
        int v[MOST_VALUES];
        if (knob_values(f, (Knob)k, v) > 1)
            at += (size_t)snprintf(buf + at, 120 - at, "%s%s %d", at ? ", " : "",
                                   knob_text(f, (Knob)k), l->v[k]);
    }
    return buf;
}

static bool is_hash(const char *s) { return strlen(s) >= 4 && !s[strspn(s, "0123456789abcdef")]; }

static bool wanted(const Show *s, const TunedKey *k, const char *label)
{
    if (!tune_device_is(k, s->device))
        return false;
    return !s->stage || !strncmp(label, s->stage, strlen(s->stage)) ||
           (is_hash(s->stage) && !strncmp(k->stage, s->stage, strlen(s->stage)));
}

static int by_key(const void *a, const void *b)
{
    return tuned_compare(&((const Row *)a)->t->key, &((const Row *)b)->t->key);
}

static const Tuned *exact(const TunedList *l, const TunedKey *k)
{
    const Tuned *t = tuned_find(l, k);
    return t && t->key.bucket == k->bucket ? t : NULL;
}

/* Collects, for every key, the entry of the first list that has it. */
static bool gather(Show *s)
{
    const struct {
        const TunedList *l;
        const char *name;
    } from[] = {{&s->set.user, "user"}, {&s->set.site, "site"}, {&s->set.builtin, "built-in"}};
    s->row = calloc((size_t)(from[0].l->n + from[1].l->n + from[2].l->n) + 1, sizeof *s->row);
    if (!s->row)
        return false;
    for (int k = 0; k < 3; k++)
        for (int i = 0; i < from[k].l->n; i++) {
            const Tuned *t = &from[k].l->v[i];
            bool hidden = false;
            for (int j = 0; j < k; j++)
                hidden = hidden || exact(from[j].l, &t->key);
            if (!hidden && wanted(s, &t->key, t->label))
                s->row[s->n++] = (Row){t, s->file ? "file" : from[k].name};
        }
    qsort(s->row, (size_t)s->n, sizeof *s->row, by_key);
    return true;
}

static const Tuned *result_of(const Show *s, const TunedKey *k)
{
    for (int i = 0; i < s->n; i++)
        if (!tuned_compare(&s->row[i].t->key, k))
            return s->row[i].t;
    return NULL;
}

static int by_trial(const void *a, const void *b)
{
    const Trial *x = *(const Trial *const *)a, *y = *(const Trial *const *)b;
    int c = tuned_compare(&x->key, &y->key);
    return c ? c : (x > y) - (x < y);
}

static bool sort_trials(TrialList *l)
{
    const Trial **at = malloc(((size_t)l->n + 1) * sizeof *at);
    Trial *v = malloc(((size_t)l->n + 1) * sizeof *v);
    for (int i = 0; at && v && i < l->n; i++)
        at[i] = &l->v[i];
    if (at && v) {
        qsort(at, (size_t)l->n, sizeof *at, by_trial);
        for (int i = 0; i < l->n; i++)
            v[i] = *at[i];
        free(l->v);
        l->v = v;
    } else {
        free(v);
    }
    free(at);
    return l->v == v;
}

/* The trials of a key: the first one and their number. */
static const Trial *trials_at(const Show *s, const TunedKey *k, int *n)
{
    int lo = 0, hi = s->trials.n;
    while (lo < hi) {
        int mid = lo + (hi - lo) / 2;
        if (tuned_compare(&s->trials.v[mid].key, k) < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    for (*n = 0; lo + *n < s->trials.n && !tuned_compare(&s->trials.v[lo + *n].key, k);)
        ++*n;
    return s->trials.n ? s->trials.v + lo : NULL;
}

static const Trial *model_of(const Show *s, const TunedKey *k)
{
    int n;
    const Trial *t = s->trials.n ? trials_at(s, k, &n) : NULL, *found = NULL;
    for (int i = 0; t && i < n; i++)
        found = t[i].model ? &t[i] : found;
    return found;
}

static bool same_device(const TunedKey *a, const TunedKey *b)
{
    return !strcmp(a->device, b->device) && a->units == b->units && a->driver == b->driver;
}

/* ---- the table ---- */
static const char *short_types(char out[TYPES_KEY], const char *types)
{
    size_t n = strcspn(types, ",");
    const char *second = types + n + (types[n] == ',');
    size_t m = strcspn(second, ",");
    const char *third = second + m + (second[m] == ',');
    bool alike = n == m && !strncmp(types, second, n) && !strncmp(types, third, n) && !third[n];
    snprintf(out, TYPES_KEY, "%.*s", alike ? (int)n : TYPES_KEY - 1, types);
    return out;
}

/* Prints the knobs that differ from the model's launch if that is among the trials, otherwise all
 * that have a choice.
 * */
static void put_knobs(const Show *s, const Tuned *t)
{
    const Trial *model = model_of(s, &t->key);
    int shown = 0, values[MOST_VALUES];
    for (int k = 0; k < NKNOB; k++)
        if (model ? model->launch.v[k] != t->launch.v[k]
                  : knob_values(t->key.form, (Knob)k, values) > 1)
            printf("%s%s=%d", shown++ ? " " : "", knob_text(t->key.form, (Knob)k), t->launch.v[k]);
    printf("%s\n", shown ? "" : model ? "as the model" : "nothing to choose");
}

static double gain(const Tuned *t) { return 100 * (t->model_ms / t->ms - 1); }

static void put_row(const Show *s, const Row *r, int width)
{
    const Tuned *t = r->t;
    char types[TYPES_KEY], size[8], ms[32], more[32], n[16];
    snprintf(size, sizeof size, "2^%d", t->key.bucket);
    snprintf(ms, sizeof ms, "%.4g", t->ms);
    snprintf(more, sizeof more, "%+.1f %%", gain(t));
    snprintf(n, sizeof n, "%d", t->samples);
    printf("  %.8s  %-6s  ", t->key.stage, form_name[t->key.form]);
    cli_put_clean(stdout, t->label, false);
    printf("%*s  %-5s  %-4s  %9s  %8s  %4s  %-8s  ", width - cli_width(t->label), "",
           short_types(types, t->key.types), size, ms, more, n, r->from);
    put_knobs(s, t);
}

static void put_device(const TunedKey *k)
{
    printf("%s", cli_paint(PAINT_HEAD));
    cli_put_clean(stdout, k->device, false);
    printf("%s, %d units%s", cli_paint(PAINT_NONE), k->units, k->driver ? "" : "\n");
    if (k->driver)
        printf(", driver %d\n", k->driver);
}

static void show_table(const Show *s)
{
    static const char head[] = "rule and kernel";
    int width = (int)sizeof head - 1;
    for (int i = 0; i < s->n; i++)
        width = cli_width(s->row[i].t->label) > width ? cli_width(s->row[i].t->label) : width;
    for (int i = 0; i < s->n; i++) {
        const TunedKey *k = &s->row[i].t->key;
        if (!i || !same_device(k, &s->row[i - 1].t->key)) {
            printf("%s", i ? "\n" : "");
            put_device(k);
            printf("%s  %-8s  %-6s  %-*s  %-5s  %-4s  %9s  %8s  %4s  %-8s  %s%s\n",
                   cli_paint(PAINT_DIM), "stage", "kind", width, head, "types", "size", "ms",
                   "gain", "n", "from", "parameters", cli_paint(PAINT_NONE));
        }
        put_row(s, &s->row[i], width);
    }
    if (s->n)
        printf("\n%d result%s\n", s->n, s->n == 1 ? "" : "s");
    else
        puts("no results yet: 'optc tune' measures, 'optc tune merge' takes in what others "
             "measured");
}

/* ---- trials of a stage ---- */
typedef struct Value { int v, ok, failed; double ms; } Value;

static int by_value(const void *a, const void *b)
{
    int x = ((const Value *)a)->v, y = ((const Value *)b)->v;
    return (x > y) - (x < y);
}

/* The values of one knob that were tried, with the best time of each. */
static int values_of(const Trial *t, int trials, int knob, Value out[MOST_SHOWN])
{
    int n = 0;
    for (const Trial *end = t + trials; t < end; t++) {
        int i = 0;
        while (i < n && out[i].v != t->launch.v[knob])
            i++;
        if (i == MOST_SHOWN)
            continue;
        if (i == n)
            out[n++] = (Value){.v = t->launch.v[knob], .ms = INFINITY};
        bool ok = isfinite(t->ms);
        out[i].ok += ok;
        out[i].failed += !ok;
        out[i].ms = t->ms < out[i].ms ? t->ms : out[i].ms;
    }
    qsort(out, (size_t)n, sizeof *out, by_value);
    return n;
}

static void put_value(const Value *v, double best, bool winner, bool model)
{
    char more[32];
    printf("  %c%c %-8d ", winner ? '>' : ' ', model ? 'm' : ' ', v->v);
    snprintf(more, sizeof more, "+%.1f %%", 100 * (v->ms / best - 1));
    if (isfinite(v->ms))
        printf("%9.4g ms %9s %4d\n", v->ms, more, v->ok + v->failed);
    else
        printf("%12s %9s %4d  none of them worked\n", "-", "", v->failed);
}

/* best: milliseconds of the fastest trial; wins: a label for the winner's values */
static void put_values(const Trial *t, int trials, double best, const Launch *winner,
                       const char *wins, const Trial *model)
{
    Buf fixed = {0};
    for (int k = 0; k < NKNOB; k++) {
        Value v[MOST_SHOWN];
        int n = values_of(t, trials, k, v);
        const char *name = knob_text(t->key.form, (Knob)k);
        if (n == 1 && name)
            buf_printf(&fixed, "%s%s=%d", fixed.len ? " " : "", name, v[0].v);
        if (n < 2)
            continue;
        printf("\n  %s%s%s\n", cli_paint(PAINT_HEAD), name, cli_paint(PAINT_NONE));
        for (int i = 0; i < n; i++)
            put_value(&v[i], best, winner && winner->v[k] == v[i].v,
                      model && model->launch.v[k] == v[i].v);
    }
    if (fixed.len)
        printf("\n  the same in every trial: %s\n", cli_text(&fixed));
    printf("  > the %s%s\n", wins, model ? ", m the model's" : "");
    buf_free(&fixed);
}

static void put_stage(const Show *s, const TunedKey *key, const char *label)
{
    const Tuned *result = result_of(s, key);
    const Trial *best = NULL;
    int n, failed = 0;
    const Trial *t = trials_at(s, key, &n);
    for (int i = 0; i < n; i++) {
        failed += !isfinite(t[i].ms);
        best = isfinite(t[i].ms) && (!best || t[i].ms < best->ms) ? &t[i] : best;
    }
    printf("%s", cli_paint(PAINT_HEAD));
    cli_put_clean(stdout, *label ? label : key->stage, false);
    printf("%s: %s %s at 2^%d\n  stage %s on ", cli_paint(PAINT_NONE), form_name[key->form],
           key->types, key->bucket, key->stage);
    cli_put_clean(stdout, key->device, false);
    printf("\n  %d trial%s", n, n == 1 ? "" : "s");
    if (failed)
        printf(", %d failed", failed);
    if (result)
        printf("; the result takes %.4g ms, the model's launch %.4g ms (%+.1f %%), n=%d",
               result->ms, result->model_ms, gain(result), result->samples);
    puts("");
    if (n)
        put_values(t, n, best ? best->ms : INFINITY,
                   result ? &result->launch
                   : best ? &best->launch
                          : NULL,
                   result ? "result" : "best", model_of(s, key));
}

typedef struct ShownStage { const TunedKey *key; const char *label; } ShownStage;

static int by_stage(const void *a, const void *b)
{
    return tuned_compare(((const ShownStage *)a)->key, ((const ShownStage *)b)->key);
}

/* Every key that has a result or a trial, once. */
static ShownStage *stages_of(const Show *s, int *n)
{
    ShownStage *v = calloc((size_t)s->n + (size_t)s->trials.n + 1, sizeof *v);
    int m = 0;
    *n = 0;
    for (int i = 0; v && i < s->n; i++)
        v[m++] = (ShownStage){&s->row[i].t->key, s->row[i].t->label};
    for (int i = 0; v && i < s->trials.n; i++)
        if (wanted(s, &s->trials.v[i].key, s->trials.v[i].label))
            v[m++] = (ShownStage){&s->trials.v[i].key, s->trials.v[i].label};
    if (m)
        qsort(v, (size_t)m, sizeof *v, by_stage);
    for (int i = 0; i < m; i++)
        if (!*n || tuned_compare(v[*n - 1].key, v[i].key))
            v[(*n)++] = v[i];
    return v;
}

/* Adds a label, and the rule's name at its beginning. */
static void name_near(Near *near, Arena *a, const char *label)
{
    near_try(near, label);
    near_try(near, arena_strndup(a, label, strcspn(label, " ")));
}

static int no_stage(const Show *s)
{
    const TunedList *l[] = {&s->set.user, &s->set.site, &s->set.builtin};
    Near near = {.want = s->stage};
    Arena a = {0};
    for (int k = 0; k < 3; k++)
        for (int i = 0; i < l[k]->n; i++)
            name_near(&near, &a, l[k]->v[i].label);
    for (int i = 0; i < s->trials.n; i++)
        name_near(&near, &a, s->trials.v[i].label);
    int rc = cli_fail("tune: unknown stage '%s'%s%s\na stage is named by the beginning of its rule "
                      "and kernel, or of "
                      "its hash; 'optc tune show' lists them",
                      s->stage, s->device ? " of such a device" : "", near_text(&near, &a));
    arena_free(&a);
    return rc;
}

static int show_stages(const Show *s)
{
    int n;
    ShownStage *v = stages_of(s, &n);
    if (!v)
        return cli_fail("tune: out of memory");
    for (int i = 0; i < n; i++) {
        printf("%s", i ? "\n" : "");
        put_stage(s, v[i].key, v[i].label);
    }
    free(v);
    return n ? CLI_OK : no_stage(s);
}

/* ---- JSON ---- */
static void put_number(const char *name, double x)
{
    Buf b = {0};
    if (isfinite(x))
        buf_double(&b, x);
    printf(", \"%s\": %s", name, isfinite(x) ? cli_text(&b) : "null");
    buf_free(&b);
}

static void json_key(const TunedKey *k, const Launch *l, const char *label, const char *comma)
{
    printf("%s\n    {\"device\": ", comma);
    cli_json(k->device);
    printf(", \"units\": %d, \"driver\": %d, \"form\": \"%s\", \"types\": \"%s\", \"stage\": "
           "\"%s\", \"bucket\": %d, "
           "\"label\": ",
           k->units, k->driver, form_name[k->form], k->types, k->stage, k->bucket);
    cli_json(label);
    printf(", \"launch\": {");
    for (int i = 0; i < NKNOB; i++)
        if (knob_text(k->form, (Knob)i))
            printf("%s\"%s\": %d", i ? ", " : "", knob_text(k->form, (Knob)i), l->v[i]);
    printf("}");
}

static void show_json(const Show *s)
{
    const char *comma = "";
    printf("{\n  \"results\": [");
    for (int i = 0; i < s->n; i++, comma = ",") {
        const Tuned *t = s->row[i].t;
        json_key(&t->key, &t->launch, t->label, comma);
        put_number("ms", t->ms);
        put_number("model_ms", t->model_ms);
        printf(", \"samples\": %d, \"from\": \"%s\"}", t->samples, s->row[i].from);
    }
    printf("%s],\n  \"trials\": [", s->n ? "\n  " : "");
    comma = "";
    for (int i = 0; i < s->trials.n; i++) {
        const Trial *t = &s->trials.v[i];
        if (!wanted(s, &t->key, t->label))
            continue;
        json_key(&t->key, &t->launch, t->label, comma);
        put_number("ms", t->ms);
        printf(", \"samples\": %d, \"model\": %s}", t->samples, t->model ? "true" : "false");
        comma = ",";
    }
    printf("%s]\n}\n", *comma ? "\n  " : "");
}

/* ---- the command ---- */
/* A FILE argument must be readable. Of the default files those that can be read are shown. */
static int load(Show *s)
{
    char why[600], path[TUNE_PATH];
    bool have = true;
    if (s->file) {
        if (strlen(s->file) >= TUNE_PATH)
            return cli_fail("tune: the name is too long");
        FILE *f = fopen(s->file, "r");
        if (!f)
            return cli_fail("tune: %s: No such file, or unreadable", s->file);
        fclose(f);
        strcpy(path, s->file);
        if (!tuned_read(&s->set.user, path, why, sizeof why))
            return cli_fail("%s", why);
    } else {
        tuned_open(&s->set);
        if (*s->set.why)
            cli_warning("not used: %s", s->set.why);
        have = tuned_path(path, sizeof path);
    }
    if (have && trials_path(path, s->trials_file, sizeof s->trials_file) &&
        !trials_read(&s->trials, s->trials_file, why, sizeof why)) {
        if (s->stage)
            return cli_fail("%s", why);
        cli_warning("not used: %s", why);
    }
    if (s->trials.n && !sort_trials(&s->trials))
        return cli_fail("tune: out of memory");
    return CLI_GO;
}

static int show(Show *s)
{
    int rc = load(s);
    if (rc != CLI_GO)
        return rc;
    if (!gather(s))
        return cli_fail("tune: out of memory");
    if (s->json)
        return show_json(s), CLI_OK;
    if (s->stage)
        return show_stages(s);
    if (!s->n && s->device)
        return tune_no_device(s->device, s->set.user.n   ? &s->set.user
                                         : s->set.site.n ? &s->set.site
                                                         : &s->set.builtin);
    return show_table(s), CLI_OK;
}

int tune_show(const Command *self, int argc, char **argv)
{
    Show s = {0};
    const Opt opts[] = {
        {"stage", 0, OPT_TEXT, &s.stage, "STAGE",
         "its trials by parameter: the beginning of its rule and kernel, or of its hash"},
        {"device", 0, OPT_TEXT, &s.device, "NAME", "only of devices with this in their name"},
        {"json", 0, OPT_FLAG, &s.json, NULL, "print one JSON object: results and trials"},
        {NULL, 0, OPT_FLAG, NULL, NULL, NULL}};
    int n, rc = cli_parse(self, opts, argc, argv, &n);
    if (rc != CLI_GO)
        return rc;
    if (n > 1)
        return cli_misuse(self, "several files are given: it takes one");
    if (s.stage && !*s.stage)
        return cli_misuse(self, "--stage names no stage");
    s.file = n ? argv[0] : NULL;
    rc = show(&s);
    free(s.row);
    trials_free(&s.trials);
    tuned_close(&s.set);
    return rc;
}
