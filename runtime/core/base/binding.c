/* Bindings, for everything that works on them: their small memory, labels of tensors and stages,
 * hyperparameters by name, the engine's account of memory. */
#include "runtime/core/base/core.h"

#include "gen/abi/near_names.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

CORE void *binding_alloc(optc_binding *b, size_t n, size_t size)
{
    BindAlloc *p = (BindAlloc *)calloc(1, sizeof *p + (n + 1) * size + 64);
    if (!p)
        return NULL;
    p->next = b->allocs;
    b->allocs = p;
    return p + 1;
}

CORE const char *tensor_label(const optc_binding *b, int i, char buf[96])
{
    i = b->nheld > b->ntensor ? b->tensor[i].source : i;
    if (b->tensor[i].name)
        snprintf(buf, 96, "tensor '%.60s' (number %d)", b->tensor[i].name, i);
    else
        snprintf(buf, 96, "tensor number %d", i);
    return buf;
}

CORE void stage_label(const Program *p, const ProgStage *s, char *buf, size_t n)
{
    bool known = s && s->call && s->call->callee >= 0 && s->call->callee < NCALLEE;
    if (s && s->kind == S_CALL)
        snprintf(buf, n, "%s of rule '%.40s'%s%.90s%s",
                 known ? callee_facts[s->call->callee].what : "a product", p->name,
                 *s->where ? " (" : "", s->where, *s->where ? ")" : "");
    else if (!s)
        snprintf(buf, n, "the step counter of rule '%.40s'", p->name);
    else
        snprintf(buf, n, "stage %d (%s) of rule '%.40s'%s%.90s%s", s->fn, s->name, p->name,
                 *s->where ? " (" : "", s->where, *s->where ? ")" : "");
}

static optc_status no_hyper(const Program *p, const char *call, const char *name)
{
    Near near;
    char text[256] = "";
    memset(&near, 0, sizeof near);
    near.want = name ? name : "";
    for (int i = 0; i < p->nhyper && name; i++)
        near_try(&near, p->hyper[i].name);
    return fail(OPTC_ERROR_ARGUMENT, "%s: rule '%s' has no hyperparameter '%s'%s", call, p->name,
                name ? name : "(null)", near_print(&near, text, sizeof text));
}

CORE optc_status find_hyper(const Program *p, const char *call, const char *name, int *out)
{
    int i = 0;
    while (name && i < p->nhyper && strcmp(p->hyper[i].name, name))
        i++;
    *out = i;
    return !name || i == p->nhyper ? no_hyper(p, call, name) : OPTC_OK;
}

CORE optc_status check_hyper(const Program *p, const char *call, const char *name, double value,
                             int *out)
{
    optc_status s = find_hyper(p, call, name, out);
    if (s != OPTC_OK)
        return s;
    const ProgHyper *h = &p->hyper[*out];
    if ((h->lo_open ? value > h->lo : value >= h->lo) &&
        (h->hi_open ? value < h->hi : value <= h->hi))
        return OPTC_OK;
    return fail(OPTC_ERROR_RANGE, "%s: %s = %g is outside its range %c%g, %g%c%s", call, name,
                value, h->lo_open ? '(' : '[', h->lo, h->hi, h->hi_open ? ')' : ']',
                h->lo == 0 && h->hi == 0
                    ? "; a wrapper decays the weights in place of the rule, which does not see "
                      "them: set galore.decay or fira.decay to lr * weight decay, or use "
                      "a rule with decoupled decay"
                    : "");
}

CORE void memory_account(optc_engine *e, int64_t bytes)
{
    long long now = __atomic_add_fetch(&e->ours, bytes, __ATOMIC_SEQ_CST),
              peak = __atomic_load_n(&e->peak, __ATOMIC_SEQ_CST);
    while (now > peak && !__atomic_compare_exchange_n(&e->peak, &peak, now, true, __ATOMIC_SEQ_CST,
                                                      __ATOMIC_SEQ_CST));
}

/* A device skips its stages by itself. It skips products and factors only in conditional
 * graph nodes (gpu_conditional.c); where it has none, the host must read the guard. */
CORE bool host_guards(const optc_binding *b)
{
    const Program *p = b->program;
    /* the host knows which exchanges a step has */
    bool host = !b->conditional && (program_calls(p) || (b->shards && p->nperiod));
    return host || b->rule->device->reaches;
}

CORE void *call_space(const optc_binding *b)
{
    return (char *)b->block + b->at[b->program->narray] + b->pool_bytes - b->call_bytes;
}

CORE bool state_caller_owned(const optc_binding *b, int tensor, int array)
{
    const Tensor *t = &b->tensor[b->tensor[tensor].of];
    return t->caller_owned && t->caller_owned[array];
}

CORE bool state_starts(const optc_binding *b, int entry, int array)
{
    const Tensor *t = &b->tensor[entry];
    return t->mem[array] && b->program->array[array].held_by >> t->variant & 1 && !t->borrows &&
           !state_caller_owned(b, entry, array);
}
