/* optc tune show: results as a table or as JSON. */
#include "tools/page/json.h"
#include "tools/tune/tune.h"

#include <stdlib.h>
#include <string.h>

typedef struct Row { const Tuned *t; const char *from; } Row;
typedef struct Show {
    const char *stage, *device, *file;
    bool json;
    TunedSet set;              /* with FILE: only the user's list is filled */
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

static void add_rows(Show *s, const TunedList *l, const TunedList *before, const char *from)
{
    for (int i = 0; i < l->n; i++) {
        const Tuned *t = &l->v[i], *same = before ? tuned_find(before, &t->key) : NULL;
        bool hidden = same && same->key.bucket == t->key.bucket;
        if (!hidden && wanted(s, &t->key, t->label))
            s->row[s->n++] = (Row){t, from};
    }
}

/* Collects, for every key, the entry of the first list that has it. */
static bool gather(Show *s)
{
    s->row = calloc((size_t)(s->set.user.n + s->set.builtin.n) + 1, sizeof *s->row);
    if (!s->row)
        return false;
    add_rows(s, &s->set.user, NULL, s->file ? "file" : "user");
    add_rows(s, &s->set.builtin, &s->set.user, "built-in");
    qsort(s->row, (size_t)s->n, sizeof *s->row, by_key);
    return true;
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

static double gain(const Tuned *t) { return 100 * (t->model_ms / t->ms - 1); }

static void put_row(const Row *r, int width)
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
    const char *between = "";
    for (int k = 0, values[MOST_VALUES]; k < NKNOB; k++)
        if (knob_values(t->key.form, (Knob)k, values) > 1) {
            printf("%s%s=%d", between, knob_text(t->key.form, (Knob)k), t->launch.v[k]);
            between = " ";
        }
    puts(*between ? "" : "nothing to choose");
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
        put_row(&s->row[i], width);
    }
    if (s->n)
        printf("\n%d result%s\n", s->n, s->n == 1 ? "" : "s");
    else
        puts("no results yet: 'optc tune' measures, 'optc tune merge' takes in what others "
             "measured");
}

/* Adds a label, and the rule's name at its beginning. */
static void name_near(Near *near, Arena *a, const char *label)
{
    near_try(near, label);
    near_try(near, arena_strndup(a, label, strcspn(label, " ")));
}

static int no_stage(const Show *s)
{
    const TunedList *l[] = {&s->set.user, &s->set.builtin};
    Near near = {.want = s->stage};
    Arena a = {0};
    for (int k = 0; k < 2; k++)
        for (int i = 0; i < l[k]->n; i++)
            name_near(&near, &a, l[k]->v[i].label);
    int rc = cli_fail("tune: unknown stage '%s'%s%s\na stage is named by the beginning of its rule "
                      "and kernel, or of "
                      "its hash; 'optc tune show' lists them",
                      s->stage, s->device ? " of such a device" : "", near_text(&near, &a));
    arena_free(&a);
    return rc;
}

static void show_json(const Show *s)
{
    Buf b = {0};
    JsonText j = {.b = &b};
    json_object(&j, NULL, true);
    json_list(&j, "results", true);
    for (int i = 0; i < s->n; i++) {
        const Tuned *t = s->row[i].t;
        const TunedKey *k = &t->key;
        json_object(&j, NULL, false);
        json_string(&j, "device", k->device);
        json_int(&j, "units", k->units);
        json_int(&j, "driver", k->driver);
        json_string(&j, "form", form_name[k->form]);
        json_string(&j, "types", k->types);
        json_string(&j, "stage", k->stage);
        json_int(&j, "bucket", k->bucket);
        json_string(&j, "label", t->label);
        json_object(&j, "launch", false);
        for (int knob = 0; knob < NKNOB; knob++)
            if (knob_text(k->form, (Knob)knob))
                json_int(&j, knob_text(k->form, (Knob)knob), t->launch.v[knob]);
        json_end(&j);
        json_real(&j, "ms", t->ms);
        json_real(&j, "model_ms", t->model_ms);
        json_int(&j, "samples", t->samples);
        json_string(&j, "from", s->row[i].from);
        json_end(&j);
    }
    json_end(&j);
    json_end(&j);
    json_print(&j);
}

/* ---- the command ---- */
/* A FILE argument must be readable. Of the default files those that can be read are shown. */
static int load(Show *s)
{
    char why[600];
    if (!s->file) {
        tuned_open(&s->set);
        if (*s->set.why)
            cli_warning("not used: %s", s->set.why);
        return CLI_GO;
    }
    FILE *f = fopen(s->file, "r");                 /* tuned_read treats a missing file as empty */
    if (!f)
        return cli_fail("tune: %s: No such file, or unreadable", s->file);
    fclose(f);
    return tuned_read(&s->set.user, s->file, why, sizeof why) ? CLI_GO : cli_fail("%s", why);
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
    if (!s->n && s->stage)
        return no_stage(s);
    if (!s->n && s->device)
        return tune_no_device(s->device, s->set.user.n ? &s->set.user : &s->set.builtin);
    return show_table(s), CLI_OK;
}

int tune_show(const Command *self, int argc, char **argv)
{
    Show s = {0};
    const Opt opts[] = {
        {"stage", 0, OPT_TEXT, &s.stage, "STAGE",
         "only this one: the beginning of its rule and kernel, or of its hash"},
        {"device", 0, OPT_TEXT, &s.device, "NAME", "only of devices with this in their name"},
        {"json", 0, OPT_FLAG, &s.json, NULL, "print one JSON object"},
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
    tuned_close(&s.set);
    return rc;
}
