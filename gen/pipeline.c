/* The list of compiler passes, from text to plan. This file verifies, times and dumps the result of
 * every pass; passes do not. */
#include "gen/gen.h"

#include <setjmp.h>
#include <string.h>
#include <time.h>

/* run: a pass over the rule alone; typed: one that also takes the user's choice of types and the
 * path of the spec;
 * chosen: one that takes other choices of the user */
typedef struct {
    const char *name;
    bool (*run)(Rule *, Diag *), (*typed)(Rule *, const Types *, const char *path, Diag *),
        (*chosen)(Rule *, const GenOptions *, Diag *);
} RulePass;

static bool share_reductions(Rule *r, const GenOptions *o, Diag *d)
{
    return pass_share(r, o->bindings, d);
}

static bool override_products(Rule *r, const GenOptions *o, Diag *d)
{
    return pass_product_override(r, o->product, o->types.p, d);
}

static bool warn_of_types(Rule *r, const Types *t, const char *path, Diag *d)
{
    return pass_precision(r, t, path, d) && pass_exchange(r, t, path, d);
}

static const RulePass rule_passes[] = {
    /* a spec or IR text becomes a rule */
    {.name = "trace"},
    /* a state with what p's type rounds away; a copy of p */
    {.name = "master", .typed = pass_master},
    /* reductions over all tensors span several bindings */
    {.name = "share", .chosen = share_reductions},
    /* the user's precision replaces that of single calls */
    {.name = "products", .chosen = override_products},
    /* exact; merges equal values, drops dead ones */
    {.name = "fold", .run = pass_constant_fold},
    /* fuses products with constant factors and sums */
    {.name = "calls", .run = pass_product_fuse},
    /* the types that states are stored in */
    {.name = "storage", .typed = pass_storage},
    /* the seed of types that round stochastically */
    {.name = "rounding", .typed = pass_stochastic_rounding},
    /* warnings about types; changes nothing */
    {.name = "precision", .typed = warn_of_types},
};
enum { NRULE_PASSES = sizeof rule_passes / sizeof *rule_passes };

const char *const *gen_passes(void)
{
    static const char *names[NRULE_PASSES + 2];
    for (int i = 0; i < NRULE_PASSES; i++)
        names[i] = rule_passes[i].name;
    names[NRULE_PASSES] = "plan";
    return names;
}

static double now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

static void report(const GenOptions *o, const char *name, double ms, const char *text,
                   bool unchanged)
{
    if (!o->dump_to)
        return;
    if (o->time_passes)
        buf_printf(o->dump_to, "; %-7s %.3f ms%s\n", name, ms, unchanged ? ", unchanged" : "");
    if (o->dump && (!strcmp(o->dump, name) || !strcmp(o->dump, "all"))) {
        bool all = !strcmp(o->dump, "all");
        if (all)
            buf_printf(o->dump_to, "; after %s%s\n", name, unchanged ? ": unchanged" : "");
        if (!all || !unchanged)
            buf_puts(o->dump_to, text);
    }
}

static bool make_plan(Gen *g, Source src, const GenOptions *o)
{
    const Phases *phases = phases_make(&g->arena, g->rule, &g->diag);
    if (!phases)
        return false;
    const PlanLimits *limits = o->limits ? o->limits : &plan_limits;
    int calls = 0;
    for (int i = 0; i < g->rule->nentry * phases->nphase; i++)
        calls += graph_calls(phases->phase[i].g);
    if (calls > limits->calls) {
        diag_set(&g->diag, src.path, 0, NULL,
                 "the rule takes %d products over all its entries and phases; at most %d "
                 "are possible: use fewer periods or fewer products",
                 calls, limits->calls);
        return false;
    }
    Product product = o->product ? (Product)(o->product - 1) : rule_product(g->rule, o->types.p);
    PlanTypes types = {o->types.p, o->types.g, o->types.state, product,
                       o->target ? o->target : &target_c};
    g->plan = plan_make(&g->arena, g->rule, phases, types, limits);
    if (g->plan->nstage > limits->stages) {
        diag_set(&g->diag, src.path, 0, NULL,
                 "the rule takes %d stages, over %d: too many values depend on "
                 "reductions; use fewer, or split the rule",
                 g->plan->nstage, limits->stages);
        return false;
    }
    return plan_verify(g->plan, &g->diag);
}

static bool run_passes(Gen *g, Source src, const GenOptions *o, bool is_ir, Arena *scratch)
{
    Buf was = {.arena = scratch}, is = {.arena = scratch};
    bool ok = true, dumping = o->dump_to && (o->dump || o->time_passes);
    for (int i = 0; ok && i < NRULE_PASSES; i++) {
        double t0 = now_ms();
        if (i == 0) {
            g->rule = is_ir ? rule_parse(&g->arena, src, &g->diag)
                            : pass_trace(&g->arena, src, o, &g->diag);
            ok = g->rule != NULL;
        } else if (rule_passes[i].run) {
            ok = rule_passes[i].run(g->rule, &g->diag);
        } else if (rule_passes[i].chosen) {
            ok = rule_passes[i].chosen(g->rule, o, &g->diag);
        } else {
            ok = rule_passes[i].typed(g->rule, &o->types, src.path, &g->diag);
        }
        ok = ok && pass_verify(g->rule, &g->diag);
        if (ok && dumping) {
            double ms = now_ms() - t0;
            rule_print(&is, g->rule);
            report(o, rule_passes[i].name, ms, buf_text(&is),
                   !strcmp(buf_text(&was), buf_text(&is)));
            was = is;
            is = (Buf){.arena = scratch};
        }
    }
    if (!ok || o->rule_only)
        return ok;
    double t0 = now_ms();
    if (!make_plan(g, src, o))
        return false;
    if (dumping) {
        double ms = now_ms() - t0;
        plan_print(&is, g->plan, false);
        report(o, "plan", ms, buf_text(&is), false);
    }
    return true;
}

static bool guarded(Gen *g, Source src, const GenOptions *o, bool is_ir)
{
    jmp_buf out;
    Arena scratch = {.out = &out};
    jmp_buf *before = g->arena.out;
    g->arena.out = &out;
    volatile bool ok = false;
    LocaleMark was = locale_plain();
    if (setjmp(out))
        diag_memory(&g->diag);
    else
        ok = run_passes(g, src, o, is_ir, &scratch);
    arena_free(&scratch);
    locale_back(was);
    g->arena.out = before;
    return ok;
}

bool gen_compile(Gen *g, Source spec, const GenOptions *o) { return guarded(g, spec, o, false); }
bool gen_read_ir(Gen *g, Source text, const GenOptions *o) { return guarded(g, text, o, true); }

void gen_free(Gen *g)
{
    arena_free(&g->arena);
    diag_free(&g->diag);
    g->rule = NULL;
    g->plan = NULL;
}
