/* The text of tuned results: reader and printer. The reader checks everything: users edit these
 * files. */
#include "runtime/library/tuned/tuned.h"

#include "runtime/library/base/line_reader.h"
#include "gen/gen.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TUNED_HEAD "optc-tune 1"
enum { MOST_UNITS = 1 << 20, MOST_THREADS = 4096, MOST_ITEMS = 1 << 20, MOST_BUCKET = 40 };

/* A search takes at most 75 samples of a launch at a time and then confirms it; live tuning stops
 * after a few hundred. */
enum { MOST_RUN_SAMPLES = 100000 };

typedef struct Line { Tuned result; int line; } Line;

typedef struct Reader {
    LineReader in;
    TunedKey device;           /* the section's device; units 0: none yet */
    Line *v;
    int n, cap;
} Reader;

static bool unknown(const Reader *r, const char *what, const Near *near)
{
    char text[128] = "";
    size_t len = 0;
    for (int i = 0; i < near->n && len < sizeof text; i++)
        len += (size_t)snprintf(text + len, sizeof text - len, "%s'%s'%s",
                                i == 0            ? "; did you mean "
                                : i < near->n - 1 ? ", "
                                                  : " or ",
                                near->best[i], i == near->n - 1 ? "?" : "");
    return line_bad(&r->in, "unknown %s '%.40s'%s", what, near->want, text);
}

/* ---- values ---- */
enum { FIELD_MS, FIELD_MODEL, FIELD_N, NFIELD };
static const struct { const char *name, *want;
} fields[NFIELD] = {{"ms", "a time in milliseconds above 0"},
                    {"model", "a time in milliseconds above 0"},
                    {"n", "a whole number from 1 to 100000"}};

static bool take_value(Tuned *e, int field, const char *s)
{
    double *ms = field == FIELD_MS ? &e->ms : &e->model_ms;
    return field == FIELD_N ? line_int(s, 1, MOST_RUN_SAMPLES, &e->samples)
                            : line_real(s, ms) && *ms > 0;
}

static bool take_knob(const Reader *r, Tuned *e, int k, const char *s)
{
    int allowed[MOST_VALUES], n = knob_values(e->key.form, (Knob)k, allowed), x, i = 0;
    if (!line_int(s, 0, INT_MAX, &x))
        return line_bad(&r->in, "%s=%.40s is not a whole number", knob_text(e->key.form, (Knob)k),
                        s);
    e->launch.v[k] = x;
    /* any value that a machine may have: the table lists only the values that are tried */
    if (e->key.form == FORM_CPU && (k == KNOB_THREADS || k == KNOB_ITEMS)) {
        int most = k == KNOB_THREADS ? MOST_THREADS : MOST_ITEMS;
        return x <= most || line_bad(&r->in, "%s=%d: at most %d", knob_name[k], x, most);
    }
    while (i < n && allowed[i] != x)
        i++;
    if (i < n)
        return true;
    char text[96];
    size_t len = 0;
    for (i = 0; i < n; i++)
        len += (size_t)snprintf(text + len, sizeof text - len, "%s%d",
                                i ? i == n - 1 ? " or " : ", " : "", allowed[i]);
    return line_bad(&r->in, "%s=%d: for %s it is %s", knob_text(e->key.form, (Knob)k), x,
                    form_name[e->key.form], text);
}

/* name=value */
static bool take_field(const Reader *r, Tuned *e, char *word, unsigned *seen)
{
    char *value = line_value(word);
    Near near = {.want = word};
    if (!value)
        return line_bad(&r->in, "'%.40s' is not name=value", word);
    if (!strncmp(word, "x-", 2))               /* optional fields of later versions */
        return true;
    for (int i = 0; i < NKNOB + NFIELD; i++) {
        const char *name = i < NKNOB ? knob_text(e->key.form, (Knob)i) : fields[i - NKNOB].name;
        if (!name)
            continue;
        near_try(&near, name);
        if (strcmp(word, name))
            continue;
        if (*seen & 1u << i)
            return line_bad(&r->in, "%s= stands here twice", name);
        *seen |= 1u << i;
        if (i < NKNOB)
            return take_knob(r, e, i, value);
        return take_value(e, i - NKNOB, value) ||
               line_bad(&r->in, "%s=%.40s must be %s", name, value, fields[i - NKNOB].want);
    }
    return unknown(r, "knob", &near);
}

/* ---- the key ---- */
static bool take_form(const Reader *r, Tuned *e, const char *word)
{
    Near near = {.want = word};
    near_try(&near, "device");
    for (int i = 0; i < NFORM; i++) {
        if (!strcmp(form_name[i], word)) {
            e->key.form = (LaunchForm)i;
            return true;
        }
        near_try(&near, form_name[i]);
    }
    return unknown(r, "kind of stage", &near);
}

static bool take_types(const Reader *r, Tuned *e, const char *word)
{
    int n = 0;
    const char *s = word;
    for (;; n++) {
        char name[16];
        Near near = {.want = name};
        size_t len = strcspn(s, ",+");
        snprintf(name, sizeof name, "%.*s", (int)(len < 15 ? len : 15), s);
        if (len >= sizeof name || type_by_name(name) < 0) {
            for (int i = 0; i < NTYPES; i++)
                near_try(&near, type_info[i].name);
            return unknown(r, "storage type", &near);
        }
        s += len;
        if (*s != ',')
            break;
        s++;
    }
    if (n != 2 || (*s == '+' && (strspn(s + 1, "0123456789abcdef") != 8 || s[9])))
        return line_bad(&r->in,
                        "'%.40s' must be three storage types: of parameters, gradients and states",
                        word);
    snprintf(e->key.types, sizeof e->key.types, "%s", word);
    return true;
}

static bool take_key(const Reader *r, Tuned *e, char **s)
{
    static const char *const names[] = {"the kind of stage", "the storage types",
                                        "the stage's hash", "the size"};
    char *word[4];
    for (int i = 0; i < 4; i++)
        if (!(word[i] = line_word(s)))
            return line_bad(&r->in, "it ends before %s", names[i]);
    if (!take_form(r, e, word[0]) || !take_types(r, e, word[1]))
        return false;
    if (strspn(word[2], "0123456789abcdef") != 32 || word[2][32])
        return line_bad(&r->in, "'%.40s' is no stage's hash: 32 digits of 0-9 and a-f", word[2]);
    memcpy(e->key.stage, word[2], 33);
    if (strncmp(word[3], "2^", 2) || !line_int(word[3] + 2, 0, MOST_BUCKET, &e->key.bucket) ||
        e->key.bucket % 2)
        return line_bad(&r->in, "'%.40s' is no size: 2^0, 2^2, … 2^%d", word[3], MOST_BUCKET);
    return true;
}

/* ---- lines ---- */
/* "name NUMBER" */
static bool named_int(const char *s, const char *name, int lo, int *out)
{
    size_t n = strlen(name);
    return !strncmp(s, name, n) && s[n] == ' ' &&
           line_int(s + n + strspn(s + n, " \t"), lo, MOST_UNITS, out);
}

/* Parses the text after "device": NAME | units N | driver N. */
static bool take_device(Reader *r, char *s)
{
    char *part[3] = {line_trim(s)};
    int n = 1;
    for (char *at; n < 3 && (at = strchr(part[n - 1], '|')); n++) {
        *at = 0;
        part[n - 1] = line_trim(part[n - 1]);
        part[n] = line_trim(at + 1);
    }
    if (n < 3 || !named_int(part[1], "units", 1, &r->device.units) ||
        !named_int(part[2], "driver", 0, &r->device.driver)) {
        r->device.units = 0;
        return line_bad(&r->in, "a device is 'device NAME | units N | driver N'");
    }
    if (!*part[0] || strlen(part[0]) >= sizeof r->device.device)
        return line_bad(&r->in, "a device's name has 1 to %d bytes",
                        (int)sizeof r->device.device - 1);
    strcpy(r->device.device, part[0]);
    return true;
}

static bool take_entry(Reader *r, char *s)
{
    Tuned e = {.key = r->device};
    unsigned seen = 0;
    if (!take_key(r, &e, &s))
        return false;
    for (char *word; s += strspn(s, " \t"), *s && *s != '#' && (word = line_word(&s));)
        if (!take_field(r, &e, word, &seen))
            return false;
    for (int i = 0; i < NKNOB + NFIELD; i++) {
        const char *name = i < NKNOB ? knob_text(e.key.form, (Knob)i) : fields[i - NKNOB].name;
        if (name && !(seen & 1u << i))
            return line_bad(&r->in, "%s= is missing", name);
    }
    /* each thread of a CPU is one of its units */
    if (e.key.form == FORM_CPU && e.launch.v[KNOB_THREADS] > e.key.units)
        return line_bad(&r->in, "threads=%d: no run on %d units has that many",
                        e.launch.v[KNOB_THREADS], e.key.units);
    if (*s == '#') {
        s = line_trim(s + 1);
        if (strlen(s) >= sizeof e.label)
            return line_bad(&r->in, "what stands behind '#' has %d bytes; at most %d",
                            (int)strlen(s), (int)sizeof e.label - 1);
        strcpy(e.label, s);
    }
    if (r->n == r->cap) {
        int cap = r->cap ? 2 * r->cap : 64;
        Line *v = realloc(r->v, (size_t)cap * sizeof *v);
        if (!v)
            return line_bad(&r->in, "out of memory");
        r->v = v;
        r->cap = cap;
    }
    r->v[r->n++] = (Line){e, r->in.line};
    return true;
}

static bool take_line(Reader *r, char *s)
{
    s = line_trim(s);
    if (!*s || *s == '#')
        return true;
    if (!strncmp(s, "device", 6) && (s[6] == ' ' || s[6] == '\t'))
        return take_device(r, s + 6);
    if (!r->device.units)
        return line_bad(&r->in,
                        "a result before the first line 'device NAME | units N | driver N'");
    return take_entry(r, s);
}

static bool take_head(const Reader *r, const char *s)
{
    if (!strcmp(s, TUNED_HEAD))
        return true;
    if (!strncmp(s, TUNED_HEAD, strcspn(TUNED_HEAD, " ") + 1))
        return line_bad(&r->in, "of another version: '%.40s'; this optc reads '%s'", s, TUNED_HEAD);
    if (!strncmp(s, "optc-trials ", 12))
        return line_bad(&r->in, "these are trials, not results; no version reads them any more");
    return line_bad(&r->in, "not a file of tuning results: it should begin with '%s'", TUNED_HEAD);
}

static bool read_lines(Reader *r)
{
    char *line;
    int got;
    bool ok = true;
    while (ok && (got = line_next(&r->in, &line)))
        ok = got > 0 && (r->in.line == 1 ? take_head(r, line) : take_line(r, line));
    if (r->in.line)
        return ok;
    r->in.line = 1;
    return line_bad(&r->in, "empty: it should begin with '%s'", TUNED_HEAD);
}

/* Lines are cut in a copy, so that the text does not change. */
static bool parse(Reader *r, const char *text, size_t len)
{
    char *copy = malloc(len + 1);
    if (!copy)
        return line_bad(&r->in, "out of memory");
    memcpy(copy, text, len);
    r->in.at = copy;
    r->in.end = copy + len;
    LocaleMark mark = locale_plain();
    bool ok = read_lines(r);
    locale_back(mark);
    free(copy);
    return ok;
}

static int by_key(const void *a, const void *b)
{
    const Line *x = a, *y = b;
    int c = tuned_compare(&x->result.key, &y->result.key);
    return c ? c : x->line - y->line;
}

/* Refuses a text with two lines of one key, and names the earliest such line. */
static bool no_key_twice(Reader *r)
{
    int again = INT_MAX, first = 0;
    for (int i = 1; i < r->n; i++)
        if (!tuned_compare(&r->v[i - 1].result.key, &r->v[i].result.key) && r->v[i].line < again) {
            again = r->v[i].line;
            first = r->v[i - 1].line;
        }
    r->in.line = again;
    return again == INT_MAX || line_bad(&r->in, "the same stage and size as line %d", first);
}

/* Adds the results to the list; they replace entries of the same key. */
static bool move_results(TunedList *l, const Reader *r)
{
    TunedList got = {.v = malloc((size_t)r->n * sizeof *got.v), .n = r->n, .cap = r->n};
    for (int i = 0; got.v && i < r->n; i++)
        got.v[i] = r->v[i].result;
    bool ok = got.v && tuned_merge(l, &got, TUNED_NEWEST, NULL);
    tuned_free(&got);
    return ok;
}

bool tuned_parse(TunedList *l, const char *name, const char *text, size_t len, char *why,
                 size_t nwhy)
{
    Reader r = {.in = {.name = name, .strict = true, .why = why, .nwhy = nwhy}};
    bool ok = parse(&r, text, len);
    if (ok && r.n) {
        qsort(r.v, (size_t)r.n, sizeof *r.v, by_key);
        ok = no_key_twice(&r) && (move_results(l, &r) || line_bad(&r.in, "out of memory"));
    }
    free(r.v);
    return ok;
}

/* ---- printing ---- */
char *tuned_text(const TunedList *l)
{
    Buf b = {0};
    LocaleMark mark = locale_plain();
    buf_puts(&b, TUNED_HEAD "\n");
    for (int i = 0; i < l->n; i++) {
        const Tuned *t = &l->v[i];
        const TunedKey *k = &t->key, *was = i ? &t[-1].key : NULL;
        if (!was || strcmp(was->device, k->device) || was->units != k->units ||
            was->driver != k->driver)
            buf_printf(&b, "%sdevice %s | units %d | driver %d\n", i ? "\n" : "", k->device,
                       k->units, k->driver);
        buf_printf(&b, "%s %s %s 2^%d", form_name[k->form], k->types, k->stage, k->bucket);
        for (int knob = 0; knob < NKNOB; knob++)
            if (knob_text(k->form, (Knob)knob))
                buf_printf(&b, " %s=%d", knob_text(k->form, (Knob)knob), t->launch.v[knob]);
        buf_puts(&b, " ms=");
        buf_double(&b, t->ms);
        buf_puts(&b, " model=");
        buf_double(&b, t->model_ms);
        buf_printf(&b, " n=%d%s%s\n", t->samples, *t->label ? " # " : "", t->label);
    }
    locale_back(mark);
    return buf_take(&b);
}
