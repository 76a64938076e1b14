/* Facts of a rule or wrapper for list, show, explain and check: its texts, what it declares, and
 * the counts of its plan; as lines of text or as JSON. Texts come from the spec's fields, numbers
 * from its plan. */
#include "tools/explain/explain.h"

#include <string.h>

RuleFacts facts_read(const Spec *s)
{
    const Rule *r = s->gen.rule;
    Arena *a = s->gen.plan->arena;
    RuleFacts f = {.spec = s, .text = {.kind = "", .name = r->name, .doc = r->doc, .cite = r->cite,
                                       .use = "", .family = "", .follows = ""}};
    if (!s->is_ir)
        fields_read(a, s->src.text, s->src.len, &f.text);
    f.title = s->wrapper ? arena_printf(a, "%s, a wrapper: --with '%s'", f.text.name,
                                        fields_call(a, &f.text))
              : *r->with ? arena_printf(a, "%s with %s", r->name, r->with)
                         : r->name;
    return f;
}

/* ---- lines of text ---- */
void facts_hypers(const RuleFacts *f)
{
    const Rule *r = f->spec->gen.rule;
    const char *key = "hyper";
    for (int i = 0; i < r->nhyper; i++) {
        Hyper h = r->hyper[i];
        Buf b = {0};
        if (!(h.name = fields_own(h.name, f->spec->wrapper)))
            continue;
        cli_hyper(&b, &h);
        cli_line(key, cli_text(&b));
        buf_free(&b);
        key = "";
    }
}

void facts_options(const RuleFacts *f)
{
    const Rule *r = f->spec->gen.rule;
    const char *key = "options", *name;
    for (int i = 0; i < r->noption; i++)
        if ((name = fields_own(r->option[i].name, f->spec->wrapper))) {
            cli_line(key, arena_printf(f->spec->gen.plan->arena, "%s = %s", name,
                                       r->option[i].value));
            key = "";
        }
}

/* Prints a key and its text; nothing if the text is empty. */
void facts_text(const char *key, const char *text)
{
    if (!*text)
        return;
    printf("  %-*s ", FACTS_KEY, key);
    cli_wrapped(text, FACTS_KEY + 3);
}

const char *facts_hyper_list(const RuleFacts *f)
{
    const Rule *r = f->spec->gen.rule;
    Buf b = {.arena = f->spec->gen.plan->arena};
    for (int i = 0; i < r->nhyper; i++)
        if (fields_own(r->hyper[i].name, f->spec->wrapper))
            buf_printf(&b, "%s%s = %g", b.len ? ", " : "",
                       fields_own(r->hyper[i].name, f->spec->wrapper), r->hyper[i].def);
    return b.len ? buf_text(&b) : "";
}

/* ---- JSON ---- */
static void json_hypers(JsonText *t, const RuleFacts *f)
{
    const Rule *r = f->spec->gen.rule;
    json_list(t, "hyperparameters", true);
    for (int i = 0; i < r->nhyper; i++) {
        const Hyper *h = &r->hyper[i];
        if (!fields_own(h->name, f->spec->wrapper))
            continue;
        json_object(t, NULL, false);
        json_string(t, "name", fields_own(h->name, f->spec->wrapper));
        json_real(t, "default", h->def);
        json_real(t, "least", h->lo);
        json_real(t, "most", h->hi);
        json_bool(t, "least_open", h->lo_open);
        json_bool(t, "most_open", h->hi_open);
        json_end(t);
    }
    json_end(t);
    json_object(t, "options", false);
    for (int i = 0; i < r->noption; i++)
        if (fields_own(r->option[i].name, f->spec->wrapper))
            json_string(t, fields_own(r->option[i].name, f->spec->wrapper), r->option[i].value);
    json_end(t);
    json_object(t, "inputs", false);
    for (int i = 0; i < r->ninput; i++)
        if (fields_own(r->input[i].name, f->spec->wrapper))
            json_string(t, fields_own(r->input[i].name, f->spec->wrapper),
                        dom_info[r->input[i].dom].name);
    json_end(t);
}

static void json_states(JsonText *t, const RuleFacts *f)
{
    const Plan *p = f->spec->gen.plan;
    json_list(t, "states", true);
    for (int i = 0; i < p->rule->nstate; i++) {
        const State *s = &p->rule->state[i];
        Type type = p->mem[plan_mem_of_state(p, i)].type;
        if (!fields_own(s->name, f->spec->wrapper))
            continue;
        json_object(t, NULL, false);
        json_string(t, "name", fields_own(s->name, f->spec->wrapper));
        json_string(t, "per", dom_info[s->dom].name);
        json_string(t, "type", type_info[type].name);
        json_real(t, "bytes", explain_bytes(type));
        json_bool(t, "report", s->report);
        json_bool(t, "used", plan_keeps(p, i));
        json_end(t);
    }
    json_end(t);
}

/* The stages of a phase that run for a variant: passes over the elements, bytes of an element … */
static void json_counts(JsonText *t, const Phase *ph, int variant, const char *name)
{
    StageCounts c = explain_counts(ph, variant);
    json_object(t, NULL, false);
    json_string(t, "variant", name);
    json_int(t, "passes", c.passes);
    json_int(t, "bytes_per_element", c.bytes);
    json_int(t, "launches", c.launches);
    json_int(t, "calls", c.calls);
    json_end(t);
}

static void json_entries(JsonText *t, const RuleFacts *f)
{
    const Plan *p = f->spec->gen.plan;
    const Rule *r = p->rule;
    json_list(t, "variants", true);
    for (int v = 0; v < r->nvariant; v++) {
        json_object(t, NULL, false);
        json_string(t, "name", r->variant[v].name);
        json_string(t, "tensors",
                    r->nvariant > 1 ? explain_tests(p->arena, &r->variant[v]) : "all tensors");
        json_string(t, "states", explain_states(p->arena, p, v, f->spec->wrapper));
        json_end(t);
    }
    json_end(t);
    json_list(t, "entries", true);
    for (int e = 0; e < p->nentry; e++)
        for (int m = 0; m < p->entry[e].nphase; m++) {
            json_object(t, NULL, true);
            json_string(t, "name", p->entry[e].name);
            json_string(t, "when", explain_phase(p->arena, p, e, m));
            json_list(t, "variants", true);
            for (int v = 0; v < r->nvariant; v++)
                json_counts(t, &p->entry[e].phase[m], v, r->variant[v].name);
            json_end(t);
            json_end(t);
        }
    json_end(t);
}

void facts_json(JsonText *t, const RuleFacts *f)
{
    const Spec *s = f->spec;
    json_string(t, "name", f->text.name);
    json_string(t, "kind", s->wrapper ? "wrapper" : "rule");
    json_string(t, "with", s->wrapper ? "" : s->gen.rule->with);
    const struct { const char *name, *text;
    } texts[] = {{"what", f->text.doc},
                 {"use", f->text.use},
                 {"paper", f->text.cite},
                 {"family", f->text.family},
                 {"compared_with", f->text.follows},
                 {"param", type_info[s->types.p].name},
                 {"grad", type_info[s->types.g].name},
                 {"computed_in", type_info[s->gen.plan->real].name},
                 {"products", plan_calls(s->gen.plan)
                                  ? explain_products(s->gen.plan->arena, s->gen.plan)
                                  : ""}};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        json_string(t, texts[i].name, texts[i].text);
    json_hypers(t, f);
    json_states(t, f);
    json_entries(t, f);
    json_list(t, "warnings", true);
    for (int i = 0; i < s->gen.rule->nwarning; i++)
        json_string(t, NULL, s->gen.rule->warning[i].text);
    json_end(t);
}
