/* optc show: one rule or wrapper on two screens: its texts, its code, its states, its cost, and
 * what it combines with. Texts come from the spec's fields, numbers from its plan. */
#include "tools/catalogue/catalogue.h"
#include "tools/explain/explain.h"

#include "optc.h"

#include <string.h>

enum { MOST_CODE = 23, MOST_ROWS = 6 };

/* ---- the code ---- */
/* The length of the field `hyper = { … }` at the start of a line, with its comma and the rest of
 * its last line; 0: there is none. Its values are printed in the head. */
static size_t hyper_length(const char *line)
{
    const char *s = line + strspn(line, " ");
    if (strncmp(s, "hyper", 5) || s[5 + strspn(s + 5, " ")] != '=')
        return 0;
    int depth = 0;
    for (s += strcspn(s, "{"); *s; s++) {
        depth += (*s == '{') - (*s == '}');
        if (!depth)
            return (size_t)(s - line) + strcspn(s, "\n");
    }
    return 0;
}

/* The spec's text without comments, without the fields that the head shows, and without empty
 * lines. A comment starts at two dashes outside of a string. */
static const char *code_text(Arena *a, const Source *src, const Fields *f)
{
    Buf all = {.arena = a}, out = {.arena = a};
    const char *s = src->text, *end = s + src->len;
    char quote = 0;
    while (s < end) {
        const char *skip = NULL;
        for (int i = 0; i < NFIELD_TEXT; i++)
            skip = f->text_at[i] == s ? f->text_end[i] : skip;
        if (skip) {
            s = skip + strspn(skip, " ");
            s += *s == ',' || *s == ';';
            s += strspn(s, " ");
        } else if (!quote && end - s > 1 && s[0] == '-' && s[1] == '-') {
            const char *block = s[2] == '[' && s[3] == '[' ? strstr(s, "]]") : NULL;
            s = block ? block + 2 : s + strcspn(s, "\n");
        } else {
            quote = quote                     ? (*s == quote || *s == '\n' ? 0 : quote)
                    : *s == '"' || *s == '\'' ? *s
                                              : 0;
            buf_add(&all, s++, 1);
        }
    }
    for (const char *line = buf_text(&all); *line;) {
        size_t n = strcspn(line, "\n"), hyper = hyper_length(line), used = hyper ? 0 : n;
        n = hyper ? hyper : n;
        while (used && (line[used - 1] == ' ' || line[used - 1] == '\r'))
            used--;
        if (used)
            buf_printf(&out, "%.*s\n", (int)used, line);
        line += n + (line[n] == '\n');
    }
    return out.len ? buf_text(&out) : "";
}

/* Prints the lines of code, up to row MOST_CODE; rows: those printed before. Long lines continue on
 * the next row, indented by four more. rest: where the other lines are. Returns the number of
 * rows. */
static int put_code(Arena *a, const char *code, int rows, const char *rest)
{
    int left = 0;
    for (const char *line = code; *line; line += strcspn(line, "\n") + 1) {
        const char *s = line, *end = line + strcspn(line, "\n");
        size_t indent = strspn(line, " ");
        for (bool first = true; s < end; first = false) {
            size_t room = CLI_WIDTH - 2 - (first ? 0 : indent + 4), n = (size_t)(end - s);
            if (n > room) {
                size_t at = room, least = room / 2;            /* after a comma, else at a blank */
                while (at > least && (s[at] != ' ' || s[at - 1] != ','))
                    at--;
                for (at = at > least ? at : room; at > least && s[at] != ' ';)
                    at--;
                n = at > least ? at : room;
            }
            if (rows < MOST_CODE) {
                const char *part = arena_strndup(a, s, n);
                printf("  %*s", first ? 0 : (int)indent + 4, "");
                cli_print("%s\n", part);
                rows++;
            } else {
                left++;
            }
            s += n;
            while (s < end && *s == ' ')
                s++;
        }
    }
    if (left)
        cli_print("  … and %d more lines: %s\n", left, rest);
    return rows;
}

/* ---- states and cost ---- */
static void put_states(Arena *a, const Plan *p, const char *wrapper)
{
    const Rule *r = p->rule;
    const char *of[MAX_VARIANTS];
    int rows = 0;
    cli_heading(arena_printf(a, "\nstates, with parameters in %s", type_info[p->real].name));
    for (int v = 0; v < r->nvariant; v++)
        of[v] = explain_states(a, p, v, wrapper);
    for (int v = 0; v < r->nvariant; v++) {
        Buf names = {.arena = a};
        for (int k = v; of[v] && k < r->nvariant; k++) {
            if (!of[k] || strcmp(of[k], of[v]))
                continue;
            buf_printf(&names, "%s%s", names.len ? ", " : "", r->variant[k].name);
            of[k] = k > v ? NULL : of[k];
        }
        if (!of[v])
            continue;
        if (++rows > MOST_ROWS) {
            puts("  … and more variants: optc explain shows them");
            return;
        }
        const char *key = r->nvariant > 1 ? buf_text(&names) : "all tensors";
        if (cli_width(key) > FACTS_KEY) {
            printf("  ");
            cli_wrapped(key, 2);
            key = "";
        }
        facts_text(key, of[v]);
    }
}

static double state_bytes(const Plan *p, int variant, Shape s)
{
    double bytes = 0;
    for (int i = 0; i < p->rule->nstate; i++) {
        const Mem *m = &p->mem[plan_mem_of_state(p, i)];
        if (p->state_used[variant * p->rule->nstate + i] && m->dom != GROUP &&
            !p->rule->state[i].report)
            bytes += (double)stored_bytes(program_types, (int)m->type, dom_len(m->dom, s), s.n);
    }
    return bytes;
}

typedef struct Ends { double least, most; } Ends;

static void ends_add(Ends *e, double x, bool first)
{
    e->least = first || x < e->least ? x : e->least;
    e->most = first || x > e->most ? x : e->most;
}

/* A cell of the table: one value, or the least and the most over the conditions of a step. */
static const char *ends_text(Arena *a, Ends e, const char *(*text)(char buf[32], double x))
{
    char lo[32], hi[32];
    text(lo, e.least);
    text(hi, e.most);
    return strcmp(lo, hi) ? arena_printf(a, "%s - %s", lo, hi) : arena_strdup(a, lo);
}

static const char *plain(char buf[32], double x)
{
    snprintf(buf, 32, "%.0f", x);
    return buf;
}

static const char *flops(char buf[32], double x)
{
    return x > 0 ? cli_flops(buf, x) : strcpy(buf, "none");
}

typedef struct CostRow { const char *of, *passes, *bytes, *flops, *states; } CostRow;

/* The cost of one step for a tensor of this shape: the entry "step", least and most over its
 * phases. */
static CostRow cost_row(Arena *a, const Plan *p, const Dims *d)
{
    static const Bandwidth none;
    char dims[160], held[32];
    int e = spec_entry(p, "step"), v = variant_taken(p->rule, d);
    Shape s = explain_shape(p->rule, v, d, false);
    Ends passes = {0}, bytes = {0}, work = {0};
    e = e < 0 ? 0 : e;
    for (int m = 0; m < p->entry[e].nphase; m++) {
        const Phase *ph = &p->entry[e].phase[m];
        StageCounts c = explain_counts(ph, v);
        bool stagger = has_stagger(ph, v);
        ends_add(&passes, c.passes, !m);
        for (int turn = !stagger; turn < 2; turn++) {
            bool first = !m && turn == !stagger;
            Cost cost = phase_cost(p, ph, v, s, &none, turn);
            ends_add(&bytes, cost.bytes / (double)s.n, first);
            ends_add(&work, cost.flops, first);
        }
    }
    return (CostRow){arena_strdup(a, cli_dims(dims, d)), ends_text(a, passes, plain),
                     ends_text(a, bytes, plain), ends_text(a, work, flops),
                     arena_strdup(a, cli_bytes(held, state_bytes(p, v, s)))};
}

static void put_cost_row(const CostRow *r)
{
    fputs("  ", stdout);
    cli_cell(r->of, 18);
    cli_cell(r->passes, 10);
    cli_cell(r->bytes, 22);
    cli_cell(r->flops, 28);
    printf("%s\n", r->states);
}

static const Dims shapes[] = {{2, {4096, 4096}}, {2, {1024, 4096}}, {1, {4096}}};

static void put_cost(Arena *a, const Spec *s, const CompileOpts *c)
{
    const Plan *p = s->gen.plan;
    cli_heading(arena_printf(a, "\ncost of a step%s", s->wrapper ? ", around sgd" : ""));
    fputs(cli_paint(PAINT_DIM), stdout);
    put_cost_row(
        &(CostRow){"shape", "passes", "bytes per parameter", "flops of products", "states"});
    fputs(cli_paint(PAINT_NONE), stdout);
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        CostRow row = cost_row(a, p, &shapes[i]);
        put_cost_row(&row);
    }
    if (s->wrapper) {
        Spec bare;
        CompileOpts plain_opts = *c;
        plain_opts.with = plain_opts.options = NULL;
        if (spec_open(&bare, "sgd", &plain_opts, false, NULL)) {
            CostRow row = cost_row(a, bare.gen.plan, &shapes[0]);
            row.of = "sgd alone";
            put_cost_row(&row);
        }
        spec_close(&bare);
    }
    Buf b = {.arena = a};
    for (int e = 0; e < p->nentry && p->nentry > 1; e++) {
        buf_printf(&b, "%s%s (", b.len ? ", " : "", p->entry[e].name);
        spec_bytes_text(&b, p, e);
        buf_puts(&b, " bytes)");
    }
    facts_text("entries", b.len ? buf_text(&b) : "");
}

/* ---- what it combines with ---- */
static bool compiles(Arena *a, const char *spec, const char *with, const CompileOpts *c)
{
    Spec s;
    CompileOpts o = *c;
    o.with = c->with && *c->with ? arena_printf(a, "%s,%s", c->with, with) : with;
    bool ok = spec_open(&s, spec, &o, false, NULL);
    spec_close(&s);
    return ok;
}

static void add_name(Buf *b, const char *name) { buf_printf(b, "%s%s", b->len ? ", " : "", name); }

/* "all 27", "25 of 27: all but fira, galore", "2 of 27: clip, ema" */
static const char *accepted_text(Arena *a, const Buf *yes, int nyes, const Buf *no, int n)
{
    if (nyes == n || !nyes)
        return nyes ? arena_printf(a, "all %d", n) : "none";
    bool most = 2 * nyes > n;
    return arena_printf(a, "%d of %d: %s%s", nyes, n, most ? "all but " : "",
                        buf_text(most ? no : yes));
}

/* Compiles the rule in each wrapper of the library. */
static void put_wrappers(Arena *a, const char *spec, const CompileOpts *c)
{
    Buf yes = {.arena = a}, no = {.arena = a}, apart = {.arena = a};
    const char *refused = NULL;
    int n = 0, nyes = 0;
    for (int i = 0; i < optc_library_size(); i++) {
        const char *library = optc_library_name(i), *name = catalogue_wrapper(library);
        if (!name)
            continue;
        bool ok = compiles(a, spec, name, c);
        n++;
        nyes += ok;
        add_name(ok ? &yes : &no, name);
        refused = ok ? refused : name;
        if (strstr(optc_library_text(library), "apart = { \"auto\"") &&
            compiles(a, spec, arena_printf(a, "%s(apart=true)", name), c))
            add_name(&apart, name);
    }
    cli_heading("\nwrappers (optc list --wrappers names them)");
    facts_text("accept it", accepted_text(a, &yes, nyes, &no, n));
    facts_text("with apart=true",
             apart.len ? buf_text(&apart) : "none: the rule does not step by shrink and descend");
    if (refused)
        facts_text("the reason", arena_printf(a, "optc check %s --with %s", spec, refused));
}

/* Compiles every rule of the library in the wrapper. */
static void put_rules(Arena *a, const char *wrapper, const CompileOpts *c)
{
    Buf yes = {.arena = a}, no = {.arena = a};
    int nyes = 0, n = 0;
    for (int i = 0; i < optc_library_size(); i++) {
        const char *name = optc_library_name(i);
        if (catalogue_wrapper(name))
            continue;
        bool ok = compiles(a, name, wrapper, c);
        n++;
        nyes += ok;
        add_name(ok ? &yes : &no, name);
    }
    cli_heading("\nrules (optc list names them)");
    facts_text("it accepts", accepted_text(a, &yes, nyes, &no, n));
}

/* Whether a text includes the shared text of a file: include "NAME", include 'NAME' or
 * include("NAME"). */
static bool includes(const char *text, const char *file)
{
    size_t n = strcspn(file, ".");
    for (const char *s = text; (s = strstr(s, "include")) != NULL;) {
        s += strlen("include");
        s += strspn(s, " (");
        if ((*s == '"' || *s == '\'') && !strncmp(s + 1, file, n) && s[1 + n] == *s)
            return true;
    }
    return false;
}

/* The index of the next text from i on that the spec includes, also through another one; -1: there
 * is none. seen holds the texts read so far. */
static int next_shared(const Rule *r, int i, Buf *seen)
{
    for (; i < r->ntext && i < r->nfile; i++)
        if (includes(buf_text(seen), r->file[i])) {
            buf_puts(seen, r->text[i]);
            return i;
        }
    return -1;
}

static void put_shared(Arena *a, const Spec *s, int rows, const char *rest)
{
    const Rule *r = s->gen.rule;
    Buf seen = {.arena = a};
    buf_add(&seen, s->src.text, s->src.len);
    for (int i = -1; (i = next_shared(r, i + 1, &seen)) >= 0;) {
        cli_heading(arena_printf(a, "code of the shared %s", r->file[i]));
        const Source src = {r->file[i], r->text[i], strlen(r->text[i])};
        rows = put_code(a, code_text(a, &src, &(Fields){0}), rows, rest);
    }
}

/* The spec's text, complete. The texts that it includes follow in comments: what is printed is
 * still a spec. */
static void put_texts(Arena *a, const Spec *s)
{
    const Rule *r = s->gen.rule;
    Buf seen = {.arena = a};
    buf_add(&seen, s->src.text, s->src.len);
    cli_put_clean(stdout, s->src.text, true);
    for (int i = -1; !s->is_ir && (i = next_shared(r, i + 1, &seen)) >= 0;) {
        printf("\n--[==[ the shared %s:\n", r->file[i]);
        cli_put_clean(stdout, r->text[i], true);
        printf("]==]\n");
    }
}

/* ---- the command ---- */
static void put_head(const RuleFacts *facts)
{
    const Fields *f = &facts->text;
    cli_heading(facts->title);
    facts_text("what it does", f->doc);
    facts_text("when to use it", f->use);
    facts_text("paper", f->cite);
    facts_text("family", f->family);
    facts_text("compared with",
             *f->follows ? f->follows : "nothing: the spec has no field 'follows'");
    facts_text("hyperparameters", facts_hyper_list(facts));
}

static int show(Spec *s, const char *arg, const CompileOpts *c)
{
    Arena *a = &s->gen.arena;
    RuleFacts facts = facts_read(s);
    put_head(&facts);
    if (!s->is_ir) {
        cli_heading("\ncode");
        const char *rest = arena_printf(a, "optc show %s --code", arg);
        put_shared(a, s, put_code(a, code_text(a, &s->src, &facts.text), 0, rest), rest);
    }
    put_states(a, s->gen.plan, s->wrapper);
    put_cost(a, s, c);
    if (s->wrapper && optc_library_text(arena_printf(a, "wrappers/%s", s->wrapper)))
        put_rules(a, s->wrapper, c);
    else if (!s->wrapper && !s->is_ir && strcmp(arg, "-"))
        put_wrappers(a, arg, c);
    return CLI_OK;
}

static int show_json(const Spec *s)
{
    Buf b = {0};
    JsonText t = {.b = &b};
    RuleFacts f = facts_read(s);
    json_object(&t, NULL, true);
    facts_json(&t, &f);
    json_string(&t, "code", s->src.text);
    json_end(&t);
    json_print(&t);
    return CLI_OK;
}

/* Prints the nearest names of rules and wrappers if the library has neither. */
static int not_found(const Spec *s, const char *arg)
{
    Arena a = {0};
    const char **name = NEWS(&a, const char *, optc_library_size() + 1);
    bool known = !is_ident(arg);
    for (int i = 0; i < optc_library_size(); i++) {
        const char *library = optc_library_name(i), *wrapper = catalogue_wrapper(library);
        name[i] = wrapper ? wrapper : library;
        known = known || !strcmp(arg, name[i]);
    }
    name[optc_library_size()] = NULL;
    if (known || s->src.text) {
        arena_free(&a);
        return spec_fail(s);
    }
    Buf b = {.arena = &a};
    const char *here = other_name(arg, &a);
    if (here)
        buf_printf(&b, "unknown rule or wrapper '%s'; %s", arg, here);
    else {
        cli_near("rule or wrapper", arg, name, &b);
        buf_puts(&b, " (a file of your own is named by its path: ./mine.lua)");
    }
    int rc = cli_fail("show: %s", buf_text(&b));
    arena_free(&a);
    return rc;
}

int cmd_show(const Command *self, int argc, char **argv)
{
    bool code = false, json = false;
    CompileOpts c = COMPILE_OPTS_INIT;
    const Opt opts[] = {{"code", 0, OPT_FLAG, &code, NULL,
                         "only the spec's text, complete, with those it includes"},
                        {"json", 0, OPT_FLAG, &json, NULL, "print one JSON object"},
                        COMPILE_OPTS(c),
                        {NULL, 0, OPT_FLAG, NULL, NULL, NULL}};
    int n, rc = cli_parse(self, opts, argc, argv, &n);
    if (rc != CLI_GO)
        return rc;
    if (n != 1)
        return cli_one_spec(self, n);
    if (code && json)
        return cli_misuse(self, "--code and --json exclude each other");
    Spec s;
    jmp_buf out;
    bool ok = spec_open(&s, argv[0], &c, true, NULL);
    s.gen.arena.out = &out;
    rc = CLI_OK;
    if (!ok)
        rc = not_found(&s, argv[0]);
    else if (setjmp(out))
        rc = cli_fail("show: out of memory");
    else if (json)
        rc = show_json(&s);
    else if (code)
        put_texts(&s.gen.arena, &s);
    else
        rc = show(&s, argv[0], &c);
    spec_close(&s);
    return rc;
}
