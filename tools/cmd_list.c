/* optc list: the specs of the library, or the declarations of one spec. */
#include "tools/tools.h"

#include "optc.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

static const char folder[] = "wrappers/";

static bool is_wrapper_name(const char *name) { return !strncmp(name, folder, strlen(folder)); }

static const char *range_text(Arena *a, int least, int most)
{
    return most > least ? arena_printf(a, "%d-%d", least, most) : arena_printf(a, "%d", least);
}

/* Bytes per element that a step moves, least and most over variants and phases. */
static const char *moved_text(Arena *a, const Plan *p, int entry)
{
    int least = INT_MAX, most = 0;
    for (int v = 0; v < p->rule->nvariant; v++) {
        int lo, hi;
        spec_bytes(p, entry, v, &lo, &hi);
        least = lo < least ? lo : least;
        most = hi > most ? hi : most;
    }
    return range_text(a, least, most);
}

/* Bytes per element of the states, with a + if some state is a matrix or a list. */
static const char *state_text(Arena *a, const Plan *p)
{
    const Rule *r = p->rule;
    int least = INT_MAX, most = 0;
    bool more = false;
    for (int v = 0; v < r->nvariant; v++) {
        int bytes = 0;
        for (int i = 0; i < r->nstate; i++) {
            const Mem *m = &p->mem[plan_mem_of_state(p, i)];
            bool used = p->state_used[v * r->nstate + i] && !r->state[i].report;
            bytes += used && m->dom == ELEM ? type_info[m->type].bytes : 0;
            more = more || (used && m->dom != ELEM);
        }
        least = bytes < least ? bytes : least;
        most = bytes > most ? bytes : most;
    }
    return arena_printf(a, "%s%s", range_text(a, least, most), more ? "+" : "");
}

typedef struct Row { const char *name, *bytes, *states, *doc; } Row;

static bool rule_row(Arena *a, const char *name, const CompileOpts *c, Row *row)
{
    Spec s;
    bool ok = spec_open(&s, name, c, false, NULL);
    if (ok) {
        int step = spec_entry(s.gen.plan, "step");
        *row = (Row){name, moved_text(a, s.gen.plan, step < 0 ? 0 : step), state_text(a, s.gen.plan),
                     arena_strdup(a, s.gen.rule->doc)};
    } else {
        spec_fail(&s);
    }
    spec_close(&s);
    return ok;
}

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
    Row head = {"name", "moves", "state", "what it is (bytes per element that a step moves and that states take)"};
    int name = longest(v, n, offsetof(Row, name)) + 2, bytes = longest(v, n, offsetof(Row, bytes)) + 2,
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

static int list_rules(Arena *a, const CompileOpts *c)
{
    Row *v = NEWS(a, Row, optc_library_size() + 1);
    int n = 0, rc = CLI_OK;
    for (int i = 0; i < optc_library_size(); i++)
        if (!is_wrapper_name(optc_library_name(i))) {
            const char *name = optc_library_name(i);
            if (rule_row(a, name, c, &v[n]))
                n++;
            else
                rc = CLI_FAILED;
        }
    char head[64];
    snprintf(head, sizeof head, "rules (%d)", n);
    cli_heading(head);
    print_rows(v, n);
    return rc;
}

static const char *call_text(Arena *a, const Fields *f)
{
    Buf b = {0};
    buf_puts(&b, f->name);
    for (int i = 0; i < f->narg; i++)
        buf_printf(&b, "%s%s%s", i ? ", " : "(", f->arg[i], i == f->narg - 1 ? ")" : "");
    const char *s = arena_strdup(a, cli_text(&b));
    buf_free(&b);
    return s;
}

static void list_wrappers(Arena *a)
{
    Row *v = NEWS(a, Row, optc_library_size() + 1);
    int n = 0;
    for (int i = 0; i < optc_library_size(); i++)
        if (is_wrapper_name(optc_library_name(i))) {
            Fields f;
            const char *text = optc_library_text(optc_library_name(i));
            fields_read(a, text, strlen(text), &f);
            v[n++] = (Row){call_text(a, &f), "", "", f.doc};
        }
    char head[64];
    snprintf(head, sizeof head, "wrappers (%d), for --with", n);
    cli_heading(head);
    int name = longest(v, n, offsetof(Row, name));
    for (int i = 0; i < n; i++) {
        printf("  %s", cli_paint(PAINT_HEAD));
        cli_cell(v[i].name, name + 2);
        fputs(cli_paint(PAINT_NONE), stdout);
        cli_wrapped(v[i].doc, name + 4);
    }
}

/* ---- one spec ---- */
/* The name without the wrapper's prefix; NULL if it belongs to the rule inside, whose names have no prefix. */
static const char *own(const char *name, const char *wrapper)
{
    size_t n = wrapper ? strlen(wrapper) : 0;
    return !wrapper ? name : !strncmp(name, wrapper, n) && name[n] == '.' ? name + n + 1 : NULL;
}

static void detail_hyper(const Rule *r, const char *wrapper)
{
    const char *key = "hyper";
    for (int i = 0; i < r->nhyper; i++) {
        Hyper h = r->hyper[i];
        if (!own(h.name, wrapper))
            continue;
        h.name = own(h.name, wrapper);
        Buf b = {0};
        cli_hyper(&b, &h);
        cli_line(key, cli_text(&b));
        buf_free(&b);
        key = "";
    }
}

static void detail_values(const Plan *p, const char *wrapper)
{
    const char *key = "values";
    for (int i = 0; i < p->rule->nstate; i++) {
        const State *s = &p->rule->state[i];
        const char *name = own(s->name, wrapper);
        if (name && s->report) {
            printf("  %-9s %s: one per %s, to read after a step\n", key, name, dom_info[s->dom].name);
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
        const char *name = own(s->name, wrapper);
        if (!name || s->report)
            continue;
        bool used = plan_keeps(p, i);
        printf("  %-9s %s: one per %s, %s, from ", key, name, dom_info[s->dom].name,
               type_info[p->mem[plan_mem_of_state(p, i)].type].name);
        if (s->init == INIT_COPY_P)
            printf("a copy of p");
        else if (s->init == INIT_HYPER)
            printf("the hyperparameter %s", own(r->hyper[s->hyper].name, wrapper));
        else
            printf("%g", s->value);
        if (s->eye)
            printf(" on the diagonal");
        puts(used ? "" : " (not used with these options)");
        key = "";
    }
}

static void detail_options(Arena *a, const Rule *r, const char *wrapper)
{
    const char *key = "options";
    for (int i = 0; i < r->noption; i++)
        if (own(r->option[i].name, wrapper)) {
            cli_line(key, arena_printf(a, "%s = %s", own(r->option[i].name, wrapper), r->option[i].value));
            key = "";
        }
}

static void detail_entries(Arena *a, const Plan *p, const char *around)
{
    for (int e = 0; e < p->nentry; e++) {
        Buf b = {0};
        spec_bytes_text(&b, p, e);
        cli_line(e ? "" : "entries", arena_printf(a, "%s: %s bytes per element%s%s", p->entry[e].name, cli_text(&b),
                                                  p->rule->nvariant > 1 ? " (vectors/matrices)" : "", around));
        buf_free(&b);
    }
}

static int detail(const char *name, const CompileOpts *c)
{
    Spec s;
    if (!spec_open(&s, name, c, true, NULL)) {
        int rc = spec_fail(&s);
        spec_close(&s);
        return rc;
    }
    Arena *a = &s.gen.arena;
    const Rule *r = s.gen.rule;
    Fields f = {.kind = "", .name = r->name, .doc = r->doc, .cite = r->cite};
    if (s.wrapper)
        fields_read(a, s.src.text, s.src.len, &f);
    cli_heading(s.wrapper ? arena_printf(a, "%s, a wrapper: --with '%s'", f.name, call_text(a, &f))
                          : *r->with ? arena_printf(a, "%s with %s", r->name, r->with) : r->name);
    if (*f.doc)
        cli_line("", f.doc);
    if (*f.cite)
        cli_line("cite", f.cite);
    detail_hyper(r, s.wrapper);
    detail_options(a, r, s.wrapper);
    for (int i = 0; i < r->ninput; i++)
        if (own(r->input[i].name, s.wrapper))
            cli_line("input", arena_printf(a, "%s: one per %s, set by the caller", own(r->input[i].name, s.wrapper),
                                           dom_info[r->input[i].dom].name));
    detail_states(s.gen.plan, s.wrapper);
    detail_values(s.gen.plan, s.wrapper);
    detail_entries(a, s.gen.plan, s.wrapper ? " around sgd" : "");
    spec_close(&s);
    return CLI_OK;
}

int cmd_list(const Command *self, int argc, char **argv)
{
    bool names = false, wrappers = false;
    CompileOpts c = COMPILE_OPTS_INIT;
    const Opt opts[] = {
        {"names", 0, OPT_FLAG, &names, NULL, "plain names, one per line"},
        {"wrappers", 0, OPT_FLAG, &wrappers, NULL, "only the wrappers"},
        COMPILE_OPTS(c),
        {NULL, 0, OPT_FLAG, NULL, NULL, NULL}};
    int n, rc = cli_parse(self, opts, argc, argv, &n);
    if (rc != CLI_GO)
        return rc;
    if (n && (names || wrappers))
        return cli_misuse(self, "--names and --wrappers list all specs and cannot be used with NAME");
    if (!n && ((c.with && *c.with) || (c.options && *c.options)))
        return cli_misuse(self, "--with and --options belong to one rule: optc list NAME --with …");
    rc = CLI_OK;
    for (int i = 0; i < n; i++) {
        if (i)
            puts("");
        int one = detail(argv[i], &c);
        rc = one > rc ? one : rc;
    }
    if (n)
        return rc;
    if (names) {
        for (int i = 0; i < optc_library_size(); i++)
            if (is_wrapper_name(optc_library_name(i)) == wrappers)
                puts(optc_library_name(i) + (wrappers ? strlen(folder) : 0));
        return CLI_OK;
    }
    Arena a = {0};
    if (!wrappers) {
        rc = list_rules(&a, &c);
        puts("");
    }
    list_wrappers(&a);
    arena_free(&a);
    return rc;
}
