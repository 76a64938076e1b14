/* The short form of `optc explain`: what a rule declares, and one table with the passes, bytes,
 * launches, products, state memory and least time of each kind of tensor. At most 60 lines of 100
 * columns; --full has the rest. */
#include "tools/explain/explain.h"

#include <string.h>

enum { MOST_ROWS = 14, MOST_PASSES = 11 };

static void put_head(const RuleFacts *f)
{
    const Spec *s = f->spec;
    const Rule *r = s->gen.rule;
    const Plan *p = s->gen.plan;
    Arena *a = p->arena;
    Buf option = {.arena = a}, input = {.arena = a};
    cli_heading(f->title);
    for (int i = 0; i < r->noption; i++)
        buf_printf(&option, "%s%s=%s", i ? ", " : "", r->option[i].name, r->option[i].value);
    for (int i = 0; i < r->ninput; i++)
        buf_printf(&input, "%s%s (one per %s)", i ? ", " : "", r->input[i].name,
                   dom_info[r->input[i].dom].name);
    facts_text("what it does", r->doc);
    facts_text("paper", r->cite);
    facts_text("hyperparameters", facts_hyper_list(f));
    facts_text("options", buf_text(&option));
    facts_text("inputs", buf_text(&input));
    const char *products =
        plan_calls(p) ? arena_printf(a, "; products in %s", explain_products(a, p)) : "";
    const char *lost =
        s->types.lost ? "; updates that round away are counted in the value lost_updates" : "";
    facts_text("storage", arena_printf(a, "parameters %s, gradients %s, %s; computed in %s%s%s",
                                       type_info[s->types.p].name, type_info[s->types.g].name,
                                       explain_types(a, s), type_info[p->real].name, products,
                                       lost));
    facts_text("block codes", explain_codes(a, p));
}

/* ---- which tensors take which variant ---- */
static const char *size_text(Arena *a, Size size, double factor)
{
    static const char *const name[NSIZE] = {"1", "numel", "nrows", "ncols", "dimensions"};
    return size == SIZE_ONE ? arena_printf(a, "%g", factor)
           : factor == 1    ? name[size]
                            : arena_printf(a, "%g * %s", factor, name[size]);
}

static const char *test_text(Arena *a, const Test *t)
{
    static const char *const relation[NRELATION][2] = {
        {">=", "<"}, {">", "<="}, {"!=", "=="}, {"no multiple of", "a multiple of"}};
    const char *not = t->yes ? "" : "not ";
    switch (t->kind) {
    case TEST_MATRIX:
        return t->factor[0] == 1 ? t->yes ? "matrices and vectors" : "scalars"
               : t->yes          ? "matrices"
                                 : "vectors and scalars";
    case TEST_SIZES:
        return arena_printf(a, "%s %s %s", size_text(a, t->size[0], t->factor[0]),
                            relation[t->relation][t->yes], size_text(a, t->size[1], t->factor[1]));
    case TEST_NAMED: return arena_printf(a, "%snamed '%s'", not, t->word);
    default: return arena_printf(a, "%stagged '%s'", not, t->word);
    }
}

const char *explain_tests(Arena *a, const Variant *v)
{
    Buf b = {.arena = a};
    for (int i = 0; i < v->ntest; i++)
        buf_printf(&b, "%s%s", i ? ", " : "", test_text(a, &v->test[i]));
    return b.len ? buf_text(&b) : "all other tensors";
}

static void put_variants(Arena *a, const Rule *r, unsigned variants)
{
    if (r->nvariant < 2)
        return;
    cli_heading("\nvariants: the shape, name and tags of a tensor decide which one steps it");
    for (int v = 0; v < r->nvariant; v++)
        if (variants >> v & 1)
            facts_text(r->variant[v].name, explain_tests(a, &r->variant[v]));
}

/* ---- the table ---- */
StageCounts explain_counts(const Phase *ph, int variant)
{
    StageCounts c = {0};
    for (int i = 0; i < ph->nstage; i++) {
        const Stage *st = &ph->stage[i];
        if (!explain_runs(st, variant))
            continue;
        c.launches += !is_called(st->kind);
        c.calls += is_called(st->kind);
        c.passes += is_elem(st->kind);
        c.bytes += is_elem(st->kind) ? st->bytes_read + st->bytes_written : 0;
    }
    return c;
}

typedef struct Table {
    const Plan *plan;
    Arena *arena;
    const Bandwidth *rates;
    int width, rows, left_out;
    bool same;                 /* a row was left out because it equals that of the first phase */
} Table;

static void put_row(Table *t, const char *what, StageCounts c, Cost cost)
{
    char bytes[32], flops[32], time[32];
    if (t->rows++ >= MOST_ROWS) {
        t->left_out++;
        return;
    }
    fputs("  ", stdout);
    cli_cell(what, t->width);
    printf(" %6d %8d %9d %9d %10s %12s %10s\n", c.passes, c.bytes, c.launches, c.calls,
           cli_bytes(bytes, cost.bytes), cost.flops > 0 ? cli_flops(flops, cost.flops) : "-",
           t->rates->rate > 0 ? cli_time(time, cost_time(cost, t->rates)) : "-");
}

/* first: the phase that was printed first, or NULL. Rows that equal its rows are left out. */
static void put_rows(Table *t, const char *what, const Phase *ph, const Phase *first, int variant,
                     Shape s)
{
    bool stagger = has_stagger(ph, variant);
    StageCounts c = explain_counts(ph, variant), was = first ? explain_counts(first, variant) : c;
    if (first && !stagger && !memcmp(&c, &was, sizeof c) &&
        phase_cost(t->plan, ph, variant, s, t->rates, true).bytes ==
            phase_cost(t->plan, first, variant, s, t->rates, true).bytes) {
        t->same = true;
        return;
    }
    put_row(t, what, c, phase_cost(t->plan, ph, variant, s, t->rates, !stagger));
    if (stagger)
        put_row(t, "  when scheduled", c, phase_cost(t->plan, ph, variant, s, t->rates, true));
}

/* One row for each variant with a tensor of `size` elements, or for each shape with its variant. */
static void put_phase(Table *t, const Phase *ph, const Phase *first, const DimsList *shapes,
                      int64_t size)
{
    const Rule *r = t->plan->rule;
    int n = shapes->n ? shapes->n : r->nvariant;
    for (int k = 0; k < n; k++) {
        char dims[160];
        int v = shapes->n ? variant_taken(r, &shapes->v[k]) : k;
        Dims d = shapes->n ? shapes->v[k] : explain_usual(r, v, size);
        Shape s = explain_shape(r, v, &d, !shapes->n);
        put_rows(t, shapes->n ? cli_dims(dims, &d) : r->variant[v].name, ph, first, v, s);
    }
}

static void put_table(const Plan *p, Arena *a, const DimsList *shapes, int64_t size,
                      const Bandwidth *f)
{
    Table t = {.plan = p, .arena = a, .rates = f, .width = 24};
    char n[32], rate[32];
    const char *of =
        shapes->n ? "each shape" : arena_printf(a, "a tensor of %s elements", cli_size(n, size));
    cli_heading(arena_printf(a, "\none step of %s", of));
    printf("%s  %-*s %6s %8s %9s %9s %10s %12s %10s%s\n", cli_paint(PAINT_DIM), t.width, "",
           "passes", "B/elem", "launches", "products", "bytes", "flops", "least time",
           cli_paint(PAINT_NONE));
    for (int e = 0; e < p->nentry; e++)
        for (int m = 0; m < p->entry[e].nphase; m++) {
            if (p->nentry * p->entry[e].nphase > 1 && t.rows < MOST_ROWS)
                cli_print("  %s\n", explain_phase(a, p, e, m));
            put_phase(&t, &p->entry[e].phase[m], m ? &p->entry[e].phase[0] : NULL, shapes, size);
        }
    if (t.same)
        puts("  rows that equal those of the first condition are left out");
    if (t.left_out)
        printf("  … and %d more rows: --full shows them\n", t.left_out);
    const char *flops = flops_text(a, p, f);
    const char *at =
        f->rate > 0 ? arena_printf(a, "%s/s of memory (%s)", cli_bytes(rate, f->rate), f->whence)
                    : f->whence;
    facts_text("predicted with", *flops ? arena_printf(a, "%s, %s", at, flops) : at);
    const char *products = !plan_calls(p)   ? ""
                           : p->target->gpu ? "; products: one call per shape (before cuBLAS 13 "
                                              "some are one per matrix: SHARDING.md)"
                                            : "; products: one call per shape";
    facts_text("launches",
             arena_printf(a, "shared by all tensors, for any number of them%s", products));
}

/* ---- state and passes ---- */
const char *explain_states(Arena *a, const Plan *p, int v, const char *wrapper)
{
    const Rule *r = p->rule;
    double bytes = 0;
    Buf each = {.arena = a}, rest = {.arena = a};
    for (int i = 0; i < r->nstate; i++) {
        const Mem *m = &p->mem[plan_mem_of_state(p, i)];
        if (!p->state_used[v * r->nstate + i] || r->state[i].report ||
            !fields_own(r->state[i].name, wrapper))
            continue;
        /* a ring has one line */
        int n = r->state[i].ring && r->state[i].rotates ? r->state[i].ring : 1;
        const char *name = n > 1 ? arena_printf(a, "%s to %d", m->name, n - 1) : m->name;
        bytes += m->dom == ELEM ? n * explain_bytes(m->type) : 0;
        if (m->dom == ELEM)
            buf_printf(&each, "%s%s", each.len ? ", " : ": ", name);
        else
            buf_printf(&rest, "; %s: %d per %s", name, n * type_info[m->type].bytes,
                       dom_info[m->dom].per);
        i += n - 1;
    }
    return arena_printf(a, "%s bytes per element%s%s", explain_amount(a, bytes),
                        each.len ? buf_text(&each) : "", rest.len ? buf_text(&rest) : "");
}

static const char *state_text(Arena *a, const Plan *p, const Phase *ph, int v)
{
    (void)ph;
    return explain_states(a, p, v, NULL);
}

static void put_arrays(Buf *b, const Plan *p, const Access *v, int n, const char *what)
{
    bool temporary = false, any = false;
    for (int i = 0; i < n; i++) {
        const Mem *m = &p->mem[v[i].mem];
        bool ours = m->kind == MEM_TEMP || m->kind == MEM_PART;
        temporary = temporary || (ours && m->dom == ELEM);
        if (ours || m->dom != ELEM)
            continue;
        buf_printf(b, "%s %s", any ? "," : what, m->name);
        any = true;
    }
    if (temporary)
        buf_printf(b, "%s a temporary", any ? "," : what);
}

/* One line per element pass. Equal texts of several variants are printed once. */
static const char *passes_text(Arena *a, const Plan *p, const Phase *ph, int variant)
{
    Buf b = {.arena = a};
    int pass = 0;
    for (int i = 0; i < ph->nstage; i++) {
        const Stage *st = &ph->stage[i];
        if (!explain_runs(st, variant) || !is_elem(st->kind))
            continue;
        buf_printf(&b, "%spass %d:", pass ? "\n" : "", pass + 1);
        put_arrays(&b, p, st->load, st->nload, " reads");
        put_arrays(&b, p, st->store, st->nstore, "; writes");
        buf_printf(&b, "%s (%d + %d B%s)", st->nfold ? "; reduces" : "", st->bytes_read,
                   st->bytes_written,
                   st == explain_code_pass(ph, variant) ? ", added for block codes" : "");
        pass++;
    }
    return b.len ? buf_text(&b) : "no pass over the elements";
}

/* Prints the text of every variant, after the names of all variants that share it. Returns the
 * number of lines. */
typedef const char *(*TextOf)(Arena *a, const Plan *p, const Phase *ph, int variant);

static int put_shared(Arena *a, const Plan *p, const Phase *ph, unsigned variants, TextOf text,
                      int most)
{
    const Rule *r = p->rule;
    const char *of[MAX_VARIANTS] = {NULL};
    int lines = 0;
    for (int v = 0; v < r->nvariant; v++)
        of[v] = variants >> v & 1 ? text(a, p, ph, v) : NULL;
    for (int v = 0; v < r->nvariant; v++) {
        Buf names = {.arena = a};
        for (int k = v; of[v] && k < r->nvariant; k++) {
            if (!of[k] || strcmp(of[k], of[v]))
                continue;
            buf_printf(&names, "%s%s", names.len ? ", " : "",
                       r->nvariant > 1 ? r->variant[k].name : "");
            of[k] = k > v ? NULL : of[k];
        }
        bool beside = cli_width(names.len ? buf_text(&names) : "") <= FACTS_KEY;
        if (of[v] && !beside && lines < most)
            cli_print("  %s\n", buf_text(&names));
        const char *key = beside && names.len ? buf_text(&names) : "";
        for (const char *s = of[v]; s && *s && lines < most; key = "", lines++) {
            size_t n = strcspn(s, "\n");
            facts_text(key, arena_printf(a, "%.*s", (int)n, s));
            s += n + (s[n] == '\n');
        }
    }
    return lines;
}

void explain_summary(const RuleFacts *f, unsigned variants, const DimsList *shapes, int64_t size,
                     const Bandwidth *rates)
{
    const Plan *p = f->spec->gen.plan;
    Arena *a = p->arena;
    put_head(f);
    put_variants(a, p->rule, variants);
    put_table(p, a, shapes, size, rates);
    cli_heading("\nstate memory");
    put_shared(a, p, NULL, variants, state_text, MOST_ROWS);
    int step = spec_entry(p, "step");
    step = step < 0 ? 0 : step;
    cli_heading(
        arena_printf(a, "\npasses over memory: arrays, and bytes per element read + written (%s)",
                     explain_phase(a, p, step, 0)));
    if (put_shared(a, p, &p->entry[step].phase[0], variants, passes_text, MOST_PASSES) ==
        MOST_PASSES)
        puts("  …");
    puts("\n--full shows every stage, with its lines of the spec and the reason for each pass");
}
