/* bench-release: `optc bench` with rows that have bars, all rules of the library, and rivals of
 * other kinds. Exit code 1: a case failed, or a bar of --bar was missed. A missed bar of the table
 * is no failure. */
#include "tests/bench/release/release.h"

#include "tools/catalogue/catalogue.h"
#include "tools/page/json.h"

#include "optc.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

static const char *bars_path, *given;              /* --bars, --bar */
static bool suite, all;
static Bars bars;
static Bar asked;                                  /* those of --bar */
static const Bar none;
static Bar *own;                                   /* by case: the row's bars and those of --bar */

static int check(const Command *self, Bench *b, bool work, int n)
{
    if (given && !bars_add(&asked, given))
        return CLI_USAGE;
    if ((asked.eager > 0 || asked.graph > 0) && (!b->against || strcmp(b->against, "torch")))
        return cli_misuse(self, "the bars torch and graph need --against torch");
    if (suite && (b->shapes->n || b->tensors > 1))
        return cli_misuse(self, "--suite has its own tensors: --shape and --tensors do not apply "
                                "(--size scales it down)");
    if (all && (suite || n))
        return cli_misuse(self,
                          "--all runs every rule of the library: --suite and SPEC do not apply");
    if (suite && (work || n))
        return cli_misuse(self,
                          "--suite has its own workloads and rules ('--work list' shows them)");
    if ((b->rival == &rival_types) != !!rival_other_types && b->rival != &rival_mixed)
        return cli_misuse(self, "--against types and --other-types belong together");
    b->apart = suite || all;
    b->sustain = given != NULL;
    return bars_read(&bars, bars_path) ? CLI_GO : CLI_FAILED;
}

static bool list(void)
{
    bool ok = bars_read(&bars, bars_path);
    if (ok)
        bars_list(&bars);
    return ok;
}

/* ---- cases ---- */
static void set_bar(Case *c, const Bar *bar)
{
    c->bar = bar;
    c->graph = c->graph && (!bar || bar->graph > 0 || asked.graph > 0);
}

static int by_kind(const void *x, const void *y)
{
    const Case *a = x, *b = y;
    int d = a->calls - b->calls;               /* products last: they take longest */
    d = d ? d : strcmp(a->kind, b->kind);
    return d ? d : strcmp(a->label, b->label);
}

/* --all: every rule of the library; rules that these options do not fit are named and left out. */
static bool add_library(Bench *b)
{
    int left_out = 0;
    for (int i = 0; i < optc_library_size(); i++) {
        const char *name = optc_library_name(i);
        if (catalogue_wrapper(name))
            continue;
        if (!bench_add_case(b, name, b->work)) {
            bench_drop_case(b);
            fprintf(stderr, "bench: %s is left out, for the reason above\n", name);
            left_out++;
        }
    }
    qsort(b->cases, (size_t)b->ncase, sizeof *b->cases, by_kind);
    if (left_out)
        fprintf(stderr, "bench: %d rules are left out, %d are timed\n", left_out, b->ncase);
    return b->ncase > 0;
}

static bool add_suite(Bench *b)
{
    if (!bars.n)
        return cli_error("bench: --suite runs the rows of a table of bars, and "
                         "tests/bench/bars.txt was not found: run optc from its source tree, or "
                         "name a table with --bars"),
               false;
    bool ok = true;
    for (const Bar *x = bars.v; ok && x < bars.v + bars.n; x++)
        if (x->suite > 0 && (ok = bench_add_case(b, x->rule, work_find(x->work))))
            set_bar(&b->cases[b->ncase - 1], x);
    return ok;
}

static bool cases(Bench *b, bool *are_own)
{
    *are_own = suite || all;
    if (!*are_own)
        return true;
    b->cases = calloc((size_t)(all ? optc_library_size() : bars.n) + 1, sizeof *b->cases);
    if (!b->cases)
        return cli_error("out of memory"), false;
    return all ? add_library(b) : add_suite(b);
}

/* Bars of the table apply only to complete workloads, in f32, on a GPU. Rows of the suite also need
 * the default options and workspace; other rows allow any, because the peer has them too. Bars of
 * --bar always apply. A row of its own in the table goes before that of its kind. */
static void chosen(Bench *b)
{
    const CompileOpts *o = &b->compile;
    bool plain = b->device.ops->async && !b->rival && !b->size && o->p < 0 && o->g < 0 &&
                 o->state < 0 && !o->types && !o->product && !o->with && !o->path,
         usual = !b->workspace && !o->options;
    own = calloc((size_t)b->ncase + 1, sizeof *own);
    for (int i = 0; i < b->ncase; i++) {
        Case *c = &b->cases[i];
        char kind[32];
        snprintf(kind, sizeof kind, "*%s", c->kind);
        if (!suite && b->work) {
            const Bar *row = bars_find(&bars, work_name(b->work), c->label);
            set_bar(c, row || !all ? row : bars_find(&bars, work_name(b->work), kind));
        }
        if (c->bar && (!plain || (!usual && c->bar->suite > 0)))
            c->bar = NULL;
        if (!given || !own)
            continue;
        own[i] = c->bar ? *c->bar : none;
        bars_over(&own[i], &asked);
        c->bar = &own[i];
    }
}

/* ---- reports ---- */
static bool reaches(const Case *c)
{
    Buf missed = {0};
    Medians m = bench_medians(c);
    if (c->bar)
        bars_missed(c, &m, c->bar, given ? &asked : &none, &missed);
    bool reached = !missed.len;
    buf_free(&missed);
    return reached;
}

static void row(const Bench *b, const Case *c, const Medians *m, int indent, int label)
{
    Buf missed = {0};
    (void)b;
    if (!c->bar)
        return;
    bars_missed(c, m, c->bar, given ? &asked : &none, &missed);
    printf("%*s%s", indent, "", cli_paint(PAINT_DIM));
    cli_cell("bars", label);
    fputs(cli_paint(PAINT_NONE), stdout);
    bars_print(c->bar);
    printf("  %s%s%s%s\n", cli_paint(missed.len ? PAINT_BAD : PAINT_GOOD),
           missed.len ? "misses " : "reached", cli_text(&missed), cli_paint(PAINT_NONE));
    buf_free(&missed);
}

static void foot(const Bench *b)
{
    int rows = 0, reached = 0;
    for (int i = 0; i < b->ncase; i++)
        if (b->cases[i].bar) {
            rows++;
            reached += b->cases[i].timed && reaches(&b->cases[i]);
        }
    if (rows)
        printf("  %d of %d rows reach their bars%s\n", reached, rows,
               b->peer_name ? "" : " (not compared with torch: it was not timed)");
}

static void json(JsonText *t, const Bench *b, const Case *c, const Medians *m)
{
#define FIGURE(name, member) {name, FIELD_REAL, offsetof(Bar, member), 0, 0, 1}
    static const JsonField fields[] = {FIGURE("ms", ms),
                                       FIGURE("slowest_over_mean", slowest),
                                       FIGURE("share_of_copy", share),
                                       FIGURE("ratio", eager),
                                       FIGURE("graph_ratio", graph),
                                       FIGURE("host_us", host),
                                       FIGURE("first_ms_cold", cold),
                                       FIGURE("first_ms_warm", warm),
                                       {NULL, FIELD_INT, 0, 0, 0, 0}};
    Buf missed = {0};
    (void)b;
    if (!c->bar)
        return;
    bars_missed(c, m, c->bar, given ? &asked : &none, &missed);
    json_object(t, "bar", false);
    json_fields(t, fields, c->bar);
    json_string(t, "missed", cli_text(&missed));
    json_end(t);
    buf_free(&missed);
}

static bool reached(const Bench *b)
{
    bool ok = true;
    for (int i = 0; i < b->ncase && given && !b->interrupted; i++)
        ok = ok && reaches(&b->cases[i]);
    return ok;
}

int main(int argc, char **argv)
{
    static const Opt opts[] = {
        {"suite", 0, OPT_FLAG, &suite, NULL,
         "every workload and rule that has a bar, one after another"},
        {"all", 0, OPT_FLAG, &all, NULL,
         "every rule of the library, one after another, sorted by kind: elementwise, reductions, "
         "products of matrices"},
        {"bars", 0, OPT_TEXT, &bars_path, "FILE",
         "the table of bars (default: tests/bench/bars.txt of the source tree)"},
        {"bar", 0, OPT_TEXT, &given, "LIST",
         "bars for each SPEC, such as ms=45,host_us=200 (also share, torch, graph, slowest, "
         "cold_ms, warm_ms): fails if one is missed or not measured. Also measures the rate of "
         "products, for rules that have some"},
        {"other-types", 0, OPT_TEXT, &rival_other_types, "LIST",
         "for --against types: its types; for --against mixed: those of tensors with one dimension "
         "(default: param=f32)"},
        {NULL, 0, OPT_FLAG, NULL, NULL, NULL}};
    static const RivalKind *const rivals[] = {&rival_sharded, &rival_mixed, &rival_types, NULL};
    static const BenchExtra extra = {opts, rivals, check, list, cases, chosen,
                                     row,  foot,   json,  reached};
    const Command self = {
        "bench", "[SPEC…]", "release figures",
        "optc bench, and rows with bars. --against also knows sharded (over one rank; $OPTC_NCCL "
        "names a libnccl.so.2),\nmixed (two sets of types, as two connected bindings) and types "
        "(in other types).",
        "bench-release --device cuda --suite --against torch\n"
        "bench-release --device cuda --work gpt2-124m --all\n"
        "bench-release --work gpt2-124m adamw --types param=bf16 --against mixed",
        NULL};
    signal(SIGPIPE, SIG_IGN);
    int rc = bench_command(&self, argc - 1, argv + 1, &extra);
    free(own);
    free(bars.text);
    return fflush(stdout) == 0 ? rc : CLI_FAILED;
}
