/* Bars: figures that rows must reach, from the text file tests/bench/bars.txt of the source tree,
 * from --bars FILE, or from --bar. */
#include "tests/bench/release/release.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define BARS_HEAD "optc-bars 1"
#define FIELD(name, f) {name, offsetof(Bar, f)}
static const struct { const char *name; size_t at;
} fields[] = {FIELD("ms", ms),        FIELD("share", share),
              FIELD("torch", eager),  FIELD("graph", graph),
              FIELD("host_us", host), FIELD("slowest", slowest),
              FIELD("cold_ms", cold), FIELD("warm_ms", warm),
              FIELD("suite", suite)}; /* the last one: no figure, and only in tables */
enum { NFIELD = sizeof fields / sizeof *fields };

static double *field(Bar *x, int i) { return (double *)(void *)((char *)x + fields[i].at); }

/* row: of a table, where 0 means that there is no such bar. false: `why` has the reason. */
static bool take_field(Bar *x, char *word, bool row, char why[200])
{
    const char *value = line_value(word);
    for (int i = 0; value && i < NFIELD - !row; i++)
        if (!strcmp(word, fields[i].name)) {
            snprintf(why, 200, "%s=%.40s must be a number %s 0", word, value,
                     row ? "from" : "above");
            return line_real(value, field(x, i)) && (row || *field(x, i) > 0);
        }
    snprintf(why, 200,
             "unknown bar '%.40s': use ms, share, torch, graph, host_us, slowest, cold_ms%s, then "
             "'=' and a "
             "number",
             word, row ? ", warm_ms or suite" : " or warm_ms");
    return false;
}

bool bars_add(Bar *x, const char *list)
{
    char why[200] = "out of memory", *copy = strdup(list), *at = copy;
    bool ok = copy != NULL;
    for (char *c = copy; c && *c; c++)
        *c = *c == ',' ? ' ' : *c;
    int n = 0;
    for (char *word; ok && (word = line_word(&at)); n++)
        ok = take_field(x, word, false, why);
    if (ok && !n)
        ok = (snprintf(why, sizeof why, "no bar is given; use for example ms=45,host_us=200"),
              false);
    free(copy);
    return ok || (cli_error("bench: --bar: %s", why), false);
}

void bars_over(Bar *x, const Bar *y)
{
    Bar from = *y;
    for (int i = 0; i < NFIELD; i++)
        *field(x, i) = *field(&from, i) > 0 ? *field(&from, i) : *field(x, i);
}

void bars_print(const Bar *x)
{
    Bar of = *x;
    for (int i = 0; i < NFIELD - 1; i++)
        if (*field(&of, i) > 0)
            printf(" %s=%g", fields[i].name, *field(&of, i));
}

/* WORK RULE NAME=VALUE…; blank lines and lines that begin with '#' are skipped. */
static bool take_line(Bars *t, const LineReader *r, char *s)
{
    Bar x = {.suite = 1};
    char why[200];
    if (r->line == 1)
        return !strcmp(s, BARS_HEAD) || line_bad(r, "a table of bars begins with '%s'", BARS_HEAD);
    if (!*(s = line_trim(s)) || *s == '#')
        return true;
    x.work = line_word(&s);
    x.rule = line_word(&s);
    if (!work_find(x.work))
        return line_bad(
            r, "a row is WORK RULE NAME=VALUE…, and WORK one of '--work list', not '%.40s'",
            x.work);
    char *word = x.rule ? line_word(&s) : NULL;
    if (!word)
        return line_bad(r, "a row is WORK RULE NAME=VALUE…, and this one has no bar");
    for (; word; word = line_word(&s))
        if (!take_field(&x, word, true, why))
            return line_bad(r, "%s", why);
    if (t->n == MOST_BARS)
        return line_bad(r, "more than %d rows", MOST_BARS);
    t->v[t->n++] = x;
    return true;
}

bool bars_read(Bars *t, const char *path)
{
    char why[600], *own = path ? NULL : bench_tree_file("tests/bench/bars.txt"), *line;
    size_t len;
    int got = 1;
    if (!path && !own)
        return true;
    LineReader r = {.name = path ? path : own, .strict = true, .why = why, .nwhy = sizeof why};
    bool ok = file_load(r.name, 1 << 20, 0, &t->text, &len, why, sizeof why);
    LocaleMark mark = locale_plain();
    r.at = t->text;
    r.end = ok ? t->text + len : NULL;
    while (ok && (got = line_next(&r, &line)))
        ok = got > 0 && take_line(t, &r, line);
    locale_back(mark);
    if (!ok)
        cli_error("bench: %s", why);
    free(own);
    return ok;
}

const Bar *bars_find(const Bars *t, const char *work, const char *rule)
{
    for (int i = 0; i < t->n; i++)
        if (!strcmp(t->v[i].work, work) && !strcmp(t->v[i].rule, rule))
            return &t->v[i];
    return NULL;
}

void bars_list(Bars *t)
{
    if (t->n)
        printf("\nrows with bars for a GPU: least share of the copy rate, least speedup over "
               "torch's best and over "
               "its CUDA graph,\nand the most that a step, host, slowest, cold and warm may be\n");
    for (int i = 0; i < t->n; i++) {
        printf("  ");
        cli_cell(t->v[i].work, 12);
        cli_cell(t->v[i].rule, 15);
        bars_print(&t->v[i]);
        puts(t->v[i].suite > 0 ? "" : "   (not in --suite)");
    }
}

/* Compares the rounded figures that are printed: a share of 99.96 % is printed as 100.0 % and
 * reaches 100. A figure that is not a number misses its bar. */
static bool below(double x, double bar, double unit)
{
    return bar > 0 && !(round(x * unit) >= round(bar * unit));
}

void bars_missed(const Case *c, const Medians *m, const Bar *bar, const Bar *asked, Buf *names)
{
    const struct { const char *name; bool measured; double asked; bool missed;
    } each[] = {
        {"step", true, 0, bar->ms > 0 && !(m->seconds * 1e3 < bar->ms)},
        {"share", true, 0, below(m->share, bar->share, 1000)},
        {"torch", c->peer, asked->eager, below(m->ahead, bar->eager, 100)},
        {"graph", c->peer_graph, asked->graph, below(m->graph_ahead, bar->graph, 100)},
        {"host", m->host != 0, asked->host, bar->host > 0 && !(m->host * 1e6 < bar->host)},
        {"slowest", true, 0,
         bar->slowest > 0 && !(round(m->slowest * 100) <= round(bar->slowest * 100))},
        {"cold", c->cold != 0, asked->cold, bar->cold > 0 && !(c->cold * 1e3 < bar->cold)},
        {"warm", c->warm != 0, asked->warm, bar->warm > 0 && !(c->warm * 1e3 < bar->warm)},
    };
    for (size_t i = 0; i < sizeof each / sizeof *each; i++)
        if (each[i].measured ? each[i].missed : each[i].asked > 0)
            buf_printf(names, "%s%s%s", names->len ? ", " : "", each[i].name,
                       each[i].measured ? "" : " (not measured)");
}
