/* C files: the stages of a rule, the code that they share, and the head. */
#include "gen/emit/emit.h"
#include "gen/emit/prelude.h"

/* Stages with at most one value per row or column take a small part of a step at any vector level.
 * gcc took 8 of 20 s for the levels of a package of muon, shampoo and soap, and a third of that for
 * these stages. */
static bool few_values(const Stage *s)
{
    const DomInfo *d = &dom_info[stage_info[s->kind].dom];
    return d->axis[0] == AXIS_ONE || d->axis[1] == AXIS_ONE;
}

bool emit_c_stages(const Gen *g, const EmitOptions *o, Arena *a, Buf *code, Buf *table)
{
    const Plan *p = g->plan;
    bool ok = true;
    size_t was = table->len;
    emit_array_numbers(code, p, o);
    for (int f = 0; f < p->nfn; f++) {
        StageAt at = plan_at(p, f);
        if (!at.stage)
            continue;
        const char *fn = emit_prefixed(a, o->prefix, p, at.entry->name, at.phase, at.stage);
        bool clones = o->prefix && !few_values(at.stage);
        const CFunction as = {o->prefix, clones ? arena_printf(a, "OPTC_CLONES %s", fn) : fn,
                              o->runs};
        ok = emit_c_function(code, a, p, at, as) && ok;
        buf_puts(code, "\n");
        buf_printf(table, "%s%s%s", table->len > was ? ", " : "",
                   at.stage->shared ? "(optc_stage_fn)(void (*)(void))" : "", fn);
    }
    if (table->len == was)
        buf_puts(table, "0");
    return ok;
}

void emit_c_shared(Buf *b, const char *code)
{
    prelude_put(b, b->arena, target_c.prelude, target_c.name, code);
}

const char *emit_c_abi(Arena *a)
{
    static const char *const files[] = {"gen/abi/stage_abi.h", NULL};
    Buf b = {.arena = a};
    prelude_put(&b, a, files, target_c.name, "OPTC_ABI optc_view optc_stage_fn optc_module");
    return buf_text(&b);
}

bool emit_c(const Gen *g, const EmitOptions *o, Arena *a, Buf *out)
{
    Buf code = {.arena = a}, table = {.arena = a}, shared = {.arena = a};
    char hex[33];
    if (!emit_c_stages(g, o, a, &code, &table))
        return false;
    /* Declared instead of included: macros of a header could clash with names of the spec. */
    buf_puts(&shared, "float sqrtf(float), fabsf(float), fmaf(float, float, float);\n"
                      "double sqrt(double), fabs(double), fma(double, double, double);\n\n");
    emit_c_shared(&shared, buf_text(&code));
    hash_hex(hash128(buf_text(&code), code.len), hex);
    const Hole h[] = {{"title", emit_title(a, g->rule)},
                      {"about", emit_about(a, g)},
                      {"command", emit_comment_text(a, o->command)},
                      {"hash", hex},
                      {"name", g->rule->name},
                      {"abi", emit_c_abi(a)},
                      {"math", buf_text(&shared)},
                      {"stages", buf_text(&code)},
                      {"table", buf_text(&table)}};
    Buf text = {.arena = a};
    if (!template_fill(&text, target_c.templates, "file", h, sizeof h / sizeof *h))
        return false;
    emit_wrap(out, buf_text(&text));
    return true;
}
