/* optc list: the specs of the library, or the declarations of one spec. */
#include "tools/catalogue/catalogue.h"
#include "tools/explain/explain.h"

#include "optc.h"

#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct Row { const char *name, *bytes, *states, *doc; } Row;

static int longest(const Row *v, int n, size_t field)
{
    int w = 0;
    for (int i = 0; i < n; i++) {
        int x = cli_width(*(const char *const *)((const char *)&v[i] + field));
        w = x > w ? x : w;
    }
    return w;
}

static void print_rows(const Row *v, int n)
{
    Row head = {"name", "moves", "state",
                "what it is (bytes per element that a step moves and that states take)"};
    int name = longest(v, n, offsetof(Row, name)) + 2,
        bytes = longest(v, n, offsetof(Row, bytes)) + 2,
        states = longest(v, n, offsetof(Row, states)) + 2;
    bytes = bytes < 7 ? 7 : bytes;
    states = states < 7 ? 7 : states;
    for (int i = -1; i < n; i++) {
        const Row *r = i < 0 ? &head : &v[i];
        fputs(cli_paint(i < 0 ? PAINT_DIM : PAINT_HEAD), stdout);
        fputs("  ", stdout);
        cli_cell(r->name, name);
        fputs(cli_paint(PAINT_NONE), stdout);
        fputs(i < 0 ? cli_paint(PAINT_DIM) : "", stdout);
        cli_cell(r->bytes, bytes);
        cli_cell(r->states, states);
        cli_wrapped(r->doc, 2 + name + bytes + states);
    }
}

static void rows_json(JsonText *t, const Row *v, int n)
{
    for (int i = 0; i < n; i++) {
        json_object(t, NULL, false);
        json_string(t, "name", v[i].name);
        if (*v[i].bytes) {                         /* of wrappers the plan depends on the rule */
            json_string(t, "moves", v[i].bytes);
            json_string(t, "state", v[i].states);
        }
        json_string(t, "what", v[i].doc);
        json_end(t);
    }
}

/* Whether a list has this name: all have, or those that fit a pattern such as *muon*. */
static bool listed(const char *name, const char *pattern)
{
    return !pattern || !fnmatch(pattern, name, 0);
}

/* Returns how many are listed, or -1: one has failed. */
static int list_rules(Arena *a, const CompileOpts *c, const char *pattern, JsonText *json)
{
    Row *v = NEWS(a, Row, optc_library_size() + 1);
    int n = 0;
    bool failed = false;
    for (int i = 0; i < optc_library_size(); i++)
        if (!catalogue_wrapper(optc_library_name(i)) && listed(optc_library_name(i), pattern)) {
            CatalogueEntry e;
            if (catalogue_entry(a, optc_library_name(i), c, &e))
                v[n++] = (Row){e.fields.name, e.moved, e.states, e.fields.doc};
            else
                failed = true;
        }
    char head[64];
    snprintf(head, sizeof head, "rules (%d)", n);
    if (json) {
        rows_json(json, v, n);
    } else if (n) {
        cli_heading(head);
        print_rows(v, n);
    }
    return failed ? -1 : n;
}

static int list_wrappers(Arena *a, const char *pattern, JsonText *json)
{
    Row *v = NEWS(a, Row, optc_library_size() + 1);
    int n = 0;
    for (int i = 0; i < optc_library_size(); i++)
        if (catalogue_wrapper(optc_library_name(i)) &&
            listed(catalogue_wrapper(optc_library_name(i)), pattern)) {
            Fields f;
            const char *text = optc_library_text(optc_library_name(i));
            fields_read(a, text, strlen(text), &f);
            v[n++] = (Row){fields_call(a, &f), "", "", f.doc};
        }
    if (json)
        return rows_json(json, v, n), n;
    char head[64];
    snprintf(head, sizeof head, "wrappers (%d), for --with", n);
    if (n)
        cli_heading(head);
    int name = longest(v, n, offsetof(Row, name));
    for (int i = 0; i < n; i++) {
        printf("  %s", cli_paint(PAINT_HEAD));
        cli_cell(v[i].name, name + 2);
        fputs(cli_paint(PAINT_NONE), stdout);
        cli_wrapped(v[i].doc, name + 4);
    }
    return n;
}

/* pattern: NULL lists all. */
static int list_all(const CompileOpts *c, bool wrappers, const char *pattern, JsonText *json)
{
    Arena a = {0};
    int rules = wrappers ? 0 : list_rules(&a, c, pattern, json);
    if (rules && !json)
        puts("");
    bool none = !list_wrappers(&a, pattern, json) && !rules;
    arena_free(&a);
    return none ? cli_fail("list: no name fits '%s'", pattern) : rules < 0 ? CLI_FAILED : CLI_OK;
}

/* ---- one spec ---- */
static void detail_values(const Plan *p, const char *wrapper)
{
    const char *key = "values";
    for (int i = 0; i < p->rule->nstate; i++) {
        const State *s = &p->rule->state[i];
        const char *name = fields_own(s->name, wrapper);
        if (name && s->report) {
            printf("  %-9s %s: one per %s, to read after a step\n", key, name,
                   dom_info[s->dom].name);
            key = "";
        }
    }
}

static void detail_states(const Plan *p, const char *wrapper)
{
    const Rule *r = p->rule;
    const char *key = "states";
    for (int i = 0; i < r->nstate; i++) {
        const State *s = &r->state[i];
        const char *name = fields_own(s->name, wrapper);
        if (!name || s->report)
            continue;
        bool used = plan_keeps(p, i);
        printf("  %-9s %s: one per %s, %s, from ", key, name, dom_info[s->dom].name,
               type_info[p->mem[plan_mem_of_state(p, i)].type].name);
        if (s->init == INIT_COPY_P)
            printf("a copy of p");
        else if (s->init == INIT_HYPER)
            printf("the hyperparameter %s", fields_own(r->hyper[s->hyper].name, wrapper));
        else if (s->init == INIT_NORMAL)
            printf("standard normal draws");
        else
            printf("%g", s->value);
        if (s->eye)
            printf(" on the diagonal");
        puts(used ? "" : " (not used with these options)");
        key = "";
    }
}

static void detail_entries(Arena *a, const Plan *p, const char *around)
{
    for (int e = 0; e < p->nentry; e++) {
        Buf b = {0};
        spec_bytes_text(&b, p, e);
        cli_line(e ? "" : "entries",
                 arena_printf(a, "%s: %s bytes per element%s%s", p->entry[e].name, cli_text(&b),
                              p->rule->nvariant > 1 ? " (vectors/matrices)" : "", around));
        buf_free(&b);
    }
}

static int detail(const char *name, const CompileOpts *c, JsonText *json)
{
    Spec s;
    if (!spec_open(&s, name, c, true, NULL)) {
        int rc = spec_fail(&s);
        spec_close(&s);
        return rc;
    }
    Arena *a = &s.gen.arena;
    const Rule *r = s.gen.rule;
    RuleFacts f = facts_read(&s);
    if (json) {
        json_object(json, NULL, true);
        facts_json(json, &f);
        json_end(json);
        spec_close(&s);
        return CLI_OK;
    }
    cli_heading(f.title);
    if (*f.text.doc)
        cli_line("", f.text.doc);
    if (*f.text.cite)
        cli_line("cite", f.text.cite);
    facts_hypers(&f);
    facts_options(&f);
    for (int i = 0; i < r->ninput; i++)
        if (fields_own(r->input[i].name, s.wrapper))
            cli_line("input", arena_printf(a, "%s: one per %s, set by the caller",
                                           fields_own(r->input[i].name, s.wrapper),
                                           dom_info[r->input[i].dom].name));
    detail_states(s.gen.plan, s.wrapper);
    detail_values(s.gen.plan, s.wrapper);
    detail_entries(a, s.gen.plan, s.wrapper ? " around sgd" : "");
    spec_close(&s);
    return CLI_OK;
}

/* Writes the catalogue of the whole library. */
static int write_page(const CompileOpts *c, const char *path, bool html, const char *curves)
{
    Arena a = {0};
    int n, ncurve = 0;
    const CatalogueCurve *curve = curves ? catalogue_curves(&a, curves, &ncurve) : NULL;
    const CatalogueEntry *v = curves && !curve ? NULL : catalogue_read(&a, c, &n);
    Buf b = {.arena = &a};
    if (v && html)
        catalogue_html(v, n, curve, ncurve, &b);
    else if (v)
        catalogue_markdown(v, n, &b);
    int rc = v && cli_write_file(path, buf_text(&b)) ? CLI_OK : CLI_FAILED;
    arena_free(&a);
    return rc;
}

static int list_names(bool wrappers)
{
    for (int i = 0; i < optc_library_size(); i++)
        if (!catalogue_wrapper(optc_library_name(i)) == !wrappers)
            puts(wrappers ? catalogue_wrapper(optc_library_name(i)) : optc_library_name(i));
    return CLI_OK;
}

int cmd_list(const Command *self, int argc, char **argv)
{
    bool names = false, wrappers = false, markdown = false, html = false, as_json = false;
    const char *output = NULL, *curves = NULL;
    CompileOpts c = COMPILE_OPTS_INIT;
    const Opt opts[] = {{"names", 0, OPT_FLAG, &names, NULL, "plain names, one per line"},
                        {"wrappers", 0, OPT_FLAG, &wrappers, NULL, "only the wrappers"},
                        {"json", 0, OPT_FLAG, &as_json, NULL, "print one JSON list"},
                        {"markdown", 0, OPT_FLAG, &markdown, NULL,
                         "the catalogue by family as a Markdown page: specs/CATALOGUE.md"},
                        {"output", 'o', OPT_TEXT, &output, "FILE",
                         "the file of --markdown or --html (default: standard output)"},
                        {"html", 0, OPT_FLAG, &html, NULL, "the catalogue as one HTML page"},
                        {"curves", 0, OPT_TEXT, &curves, "FILE",
                         "curves for --html, by optc race --curves: specs/curves.jsonl"},
                        COMPILE_OPTS(c),
                        {NULL, 0, OPT_FLAG, NULL, NULL, NULL}};
    int n, rc = cli_parse(self, opts, argc, argv, &n);
    if (rc != CLI_GO)
        return rc;
    if (n && (names || wrappers))
        return cli_misuse(self,
                          "--names and --wrappers list all specs and cannot be used with NAME");
    if (!n && ((c.with && *c.with) || (c.options && *c.options)))
        return cli_misuse(self, "--with and --options belong to one rule: optc list NAME --with …");
    if (as_json && (names || markdown || html))
        return cli_misuse(self, "--json excludes --names, --markdown and --html");
    if (markdown && html)
        return cli_misuse(self, "--markdown and --html exclude each other");
    bool page = markdown || html;
    if (page && (n || names || wrappers))
        return cli_misuse(
            self, "--%s lists all specs and cannot be used with NAME, --names or --wrappers",
            html ? "html" : "markdown");
    if ((output && !page) || (curves && !html))
        return cli_misuse(self, output && !page ? "--output needs --markdown or --html"
                                                : "--curves needs --html");
    if (page)
        return write_page(&c, output ? output : "-", html, curves);
    if (names)
        return list_names(wrappers);
    Buf text = {0};
    JsonText t = {.b = &text}, *json = as_json ? &t : NULL;
    if (json)
        json_list(json, NULL, true);
    rc = n ? CLI_OK : list_all(&c, wrappers, NULL, json);
    for (int i = 0; i < n; i++) {
        if (i && !json)
            puts("");
        bool pattern = strpbrk(argv[i], "*?") && access(argv[i], F_OK) != 0;
        int one = pattern ? list_all(&c, false, argv[i], json) : detail(argv[i], &c, json);
        rc = one > rc ? one : rc;
    }
    if (json) {
        json_end(json);
        json_print(json);
    }
    return rc;
}
