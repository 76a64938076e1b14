/* Several bindings of one optimizer, one for each set of types. Values of all tensors (clip's norm) are taken over all
 * of them: entries that gen/ir/shared_reductions.c makes leave each binding's part in its states, and the other
 * bindings read it there. No value passes through the host, and none is copied. */
#include "runtime/core/api/core.h"

#include <stdio.h>
#include <string.h>

static optc_status check_bindings(const char *call, optc_binding *const *b, int n)
{
    if (!b || n < 1)
        return fail(OPTC_ERROR_ARGUMENT, "%s: there are no bindings", call);
    for (int i = 0; i < n; i++) {
        if (!b[i])
            return fail(OPTC_ERROR_ARGUMENT, "%s: binding %d is NULL", call, i);
        if (b[i]->rule->engine != b[0]->rule->engine)
            return fail(OPTC_ERROR_ARGUMENT, "%s: bindings 0 and %d belong to different engines; pass numbers between "
                                             "devices by optc_set_scalar", call, i);
        for (int k = 0; k < i; k++)
            if (b[k] == b[i])
                return fail(OPTC_ERROR_ARGUMENT, "%s: bindings %d and %d are the same", call, k, i);
    }
    return OPTC_OK;
}

static int find_array(const Program *p, MemKind kind, const char *name)
{
    for (int k = 0; k < p->narray; k++)
        if (p->array[k].kind == kind && !strcmp(p->array[k].name, name))
            return k;
    return -1;
}

/* All have the same shared values, and each of them one input for every binding. */
static optc_status check_shared(optc_binding *const *b, int n, int *count)
{
    char name[32], input[48];
    for (*count = 0;; ++*count) {
        snprintf(name, sizeof name, "shared.%d", *count);
        int there = 0;
        for (int i = 0; i < n; i++)
            there += find_array(b[i]->rule->program, MEM_STATE, name) >= 0;
        if (!there)
            return OPTC_OK;
        for (int i = 0; i < n; i++) {
            const Program *p = b[i]->rule->program;
            snprintf(input, sizeof input, "shared.%d.%d", *count, n - 1);
            bool fits = there == n && find_array(p, MEM_INPUT, input) >= 0;
            snprintf(input, sizeof input, "shared.%d.%d", *count, n);
            if (!fits || find_array(p, MEM_INPUT, input) >= 0)
                return fail(OPTC_ERROR_ARGUMENT, "optc_connect: the rule of binding %d is not compiled for %d bindings "
                                                 "with these values of all tensors; set optc_rule_options.bindings to "
                                                 "%d in each of the rules, which differ only in their types", i, n, n);
        }
    }
}

/* All groups and tensors of b read this scalar input at `from`: nothing is copied before a run. */
static void point_scalar(optc_binding *b, int array, void *from)
{
    drop_device_scalars(b, -1, 0, array);
    for (int i = 0; i < b->ncohort; i++)
        b->group[i].mem[array] = from;
    for (int i = 0; i < b->ngroup; i++)
        b->group[i].scalar_set[array] = true;
    for (int i = 0; i < b->nall; i++)
        b->tensor[i].mem[array] = from;
    b->rule->device->arranged(b, true);
}

optc_status optc_connect(optc_binding *const *b, int n)
{
    char name[32], input[48];
    int count = 0;
    optc_status s = check_bindings("optc_connect", b, n);
    if (s == OPTC_OK)
        s = n > 1 ? check_shared(b, n, &count) : OPTC_OK;
    for (int k = 0; k < count; k++)
        for (int j = 0; j < n && s == OPTC_OK; j++) {
            snprintf(name, sizeof name, "shared.%d", k);
            snprintf(input, sizeof input, "shared.%d.%d", k, j);
            optc_state_view own;
            s = optc_state(b[j], 0, name, &own);
            for (int i = 0; i < n && s == OPTC_OK; i++)
                if (b[i]->shards)              /* its arrays have places of their own */
                    s = optc_set_scalar_from(b[i], -1, input, own.data, OPTC_F64);
                else
                    point_scalar(b[i], find_array(b[i]->rule->program, MEM_INPUT, input), own.data);
        }
    return s;
}

static optc_status run_level(optc_binding *const *b, int n, const char *entry, int level, bool *any)
{
    optc_status s = OPTC_OK;
    *any = false;
    for (int i = 0; i < n && s == OPTC_OK; i++) {
        const Program *p = b[i]->rule->program;
        int e = 0;
        while (e < p->nentry && strcmp(p->entry[e].name, entry))
            e++;
        int at = program_shares(p, e, level);
        if (at >= 0)
            s = optc_run(b[i], p->entry[at].name);
        *any = *any || at >= 0;
    }
    return s;
}

optc_status optc_run_all(optc_binding *const *b, int n, const char *entry)
{
    optc_status s = check_bindings("optc_run_all", b, n);
    bool any = entry != NULL;
    for (int level = 0; any && s == OPTC_OK; level++)
        s = run_level(b, n, entry, level, &any);
    for (int i = 0; i < n && s == OPTC_OK; i++)
        s = optc_run(b[i], entry);
    return s;
}
