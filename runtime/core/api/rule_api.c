/* Rules: compiling and releasing (the host makes the Program and its code), and queries about what
 * a rule declares. */
#include "runtime/core/api/api.h"
#include "runtime/core/base/callees.h"
#include "runtime/core/gpu/gpu_device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static optc_status make_rule(optc_engine *e, const optc_rule_options *o, optc_rule **out)
{
    if (!o->spec && !o->text)
        return fail(OPTC_ERROR_ARGUMENT, "optc_compile: the spec is NULL");
    optc_rule *r = (optc_rule *)calloc(1, sizeof *r);
    if (!r)
        return no_memory("optc_compile");
    r->engine = e;
    r->device = e->device;
    optc_status s = HOST()->make(r, o);
    if (s != OPTC_OK) {
        HOST()->drop(r);
        free(r);
        return s;
    }
    cpu_calls_load(r);                             /* now: during training memory may be short */
    __atomic_add_fetch(&e->rules, 1, __ATOMIC_SEQ_CST);
    *out = r;
    return OPTC_OK;
}

optc_status optc_compile_sized(optc_engine *e, const optc_rule_options *o, size_t size,
                               optc_rule **out)
{
    const StructVersion as =
        STRUCT_VERSION("optc_compile_sized", optc_rule_options, "optc_compile", state);
    optc_rule_options all;
    if (out)
        *out = NULL;
    if (!e || !o || !out)
        return fail(OPTC_ERROR_ARGUMENT, "optc_compile: %s is NULL",
                    !e   ? "the engine"
                    : !o ? "the options"
                         : "the pointer for the rule");
    optc_status s = struct_read(&as, &all, o, size);
    return s == OPTC_OK ? make_rule(e, &all, out) : s;
}

optc_status optc_release(optc_rule *r)
{
    if (!r)
        return OPTC_OK;
    int bound = __atomic_load_n(&r->bindings, __ATOMIC_SEQ_CST);
    if (bound > 0)
        return fail(OPTC_ERROR_BUSY, "optc_release: rule '%s' is still bound %d time%s",
                    r->program->name, bound, bound == 1 ? "" : "s");
    __atomic_sub_fetch(&r->engine->rules, 1, __ATOMIC_SEQ_CST);
    HOST()->drop(r);
    free(r);
    return OPTC_OK;
}

/* ---- declarations ---- */
/* The i-th array of a kind. MEM_STATE: the i-th state, or (report) the i-th report. */
static const ProgArray *nth_array(const optc_rule *r, MemKind kind, bool report, int i)
{
    for (int k = 0; r && i >= 0 && k < r->program->narray; k++)
        if ((kind == MEM_STATE ? array_visible(&r->program->array[k], report)
                               : r->program->array[k].kind == kind) &&
            i-- == 0)
            return &r->program->array[k];
    return NULL;
}

static int count_arrays(const optc_rule *r, MemKind kind, bool report)
{
    int n = 0;
    while (nth_array(r, kind, report, n))
        n++;
    return n;
}

const char *optc_rule_name(const optc_rule *r) { return r ? r->program->name : ""; }
int optc_rule_native(const optc_rule *r) { return r && (r->fn || r->engine->gpu); }
int optc_rule_hypers(const optc_rule *r) { return r ? r->program->nhyper : 0; }
int optc_rule_states(const optc_rule *r) { return count_arrays(r, MEM_STATE, false); }
int optc_rule_entries(const optc_rule *r) { return r ? r->program->nentry : 0; }
int optc_rule_inputs(const optc_rule *r) { return count_arrays(r, MEM_INPUT, false); }
const char *optc_rule_entry(const optc_rule *r, int i)
{
    return r && i >= 0 && i < r->program->nentry ? r->program->entry[i].name : NULL;
}

int optc_rule_reads_gradient(const optc_rule *r, int i)
{
    return optc_rule_entry(r, i) && gradient_variants(r->program, i);
}

/* The at-th test for a tag, over all variants; NULL: there is none. */
static const char *nth_tag_test(const Program *p, int at)
{
    for (int v = 0; v < p->nvariant; v++)
        for (int k = 0; k < p->variant[v].ntest; k++)
            if (p->variant[v].test[k].kind == TEST_TAGGED && at-- == 0)
                return p->variant[v].test[k].word;
    return NULL;
}

const char *optc_rule_tag(const optc_rule *r, int i)
{
    const char *word = NULL;
    for (int at = 0; r && i >= 0 && (word = nth_tag_test(r->program, at)); at++) {
        int before = 0;
        while (before < at && strcmp(nth_tag_test(r->program, before), word))
            before++;
        if (before == at && i-- == 0)
            return word;
    }
    return NULL;
}

int optc_rule_has_periods(const optc_rule *r)
{
    const Program *p = r ? r->program : NULL;
    bool found = p && p->nperiod;
    for (int k = 0; p && k < p->narray && !found; k++)
        found = p->array[k].slots.every != 0;
    return found;
}

const char *optc_rule_gradient(const optc_rule *r, int64_t step, int i)
{
    return r && step >= 0 && i >= 0 ? program_gradient(r->program, step, i) : NULL;
}

const char *optc_rule_input(const optc_rule *r, int i)
{
    const ProgArray *m = nth_array(r, MEM_INPUT, false, i);
    return m ? m->name : NULL;
}

static optc_status numbered(const optc_rule *r, int i, int n, const void *out, const char *call)
{
    if (!r || !out)
        return fail(OPTC_ERROR_ARGUMENT, "%s: %s is NULL", call,
                    !r ? "the rule" : "the result pointer");
    if (i < 0 || i >= n)
        return fail(OPTC_ERROR_ARGUMENT, "%s: there is no number %d (there are %d)", call, i, n);
    return OPTC_OK;
}

optc_status optc_rule_hyper(const optc_rule *r, int i, optc_hyper *out)
{
    optc_status s = numbered(r, i, optc_rule_hypers(r), out, "optc_rule_hyper");
    if (s != OPTC_OK)
        return s;
    const ProgHyper *h = &r->program->hyper[i];
    out->name = h->name;
    out->value = h->def, out->lo = h->lo, out->hi = h->hi;
    out->lo_open = h->lo_open, out->hi_open = h->hi_open;
    return OPTC_OK;
}

static void describe_state(const ProgArray *m, optc_state_info *out)
{
    out->name = m->name;
    out->domain = dom_info[m->dom].name;
    out->type = (optc_type)(m->type + 1);
}

optc_status optc_rule_state(const optc_rule *r, int i, optc_state_info *out)
{
    optc_status s = numbered(r, i, optc_rule_states(r), out, "optc_rule_state");
    if (s == OPTC_OK)
        describe_state(nth_array(r, MEM_STATE, false, i), out);
    return s;
}

optc_status optc_rule_input_info(const optc_rule *r, int i, optc_state_info *out)
{
    optc_status s = numbered(r, i, optc_rule_inputs(r), out, "optc_rule_input_info");
    if (s == OPTC_OK)
        describe_state(nth_array(r, MEM_INPUT, false, i), out);
    return s;
}

int optc_rule_values(const optc_rule *r) { return count_arrays(r, MEM_STATE, true); }

optc_status optc_rule_value(const optc_rule *r, int i, optc_state_info *out)
{
    optc_status s = numbered(r, i, optc_rule_values(r), out, "optc_rule_value");
    if (s == OPTC_OK)
        describe_state(nth_array(r, MEM_STATE, true, i), out);
    return s;
}

const char *optc_rule_path(const optc_rule *r)
{
    static __thread char text[1024];
    if (!r)
        return "";
    HOST()->path(r, text, sizeof text);
    cpu_call_path(r, text, sizeof text);
    size_t n = strlen(text);
    gpu_call_path(r, text + n, sizeof text - n);
    return text;
}
