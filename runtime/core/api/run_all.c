/* optc_run_all: runs an entry on several bindings, after the entries that compute the values of all
 * tensors that it needs (connect.c). On a GPU small bindings run beside a large one, and all of
 * them are one graph if nothing has changed. */
#include "runtime/core/api/api.h"
#include "runtime/core/gpu/gpu_device.h"

#include <string.h>

/* Level 0, 1, …: the entry that leaves the value of this level for the others. Level -1: the entry
 * itself. NULL: none. */
static const char *entry_at(const optc_binding *b, const char *entry, int level)
{
    const Program *p = b->rule->program;
    int e = 0;
    while (e < p->nentry && strcmp(p->entry[e].name, entry))
        e++;
    int at = level < 0 ? e : program_shares(p, e, level);
    return level < 0 ? entry : at < 0 ? NULL : p->entry[at].name;
}

/* The binding with the most elements. The others may run beside it, unless they would communicate
 * with other ranks: collectives must have the same order everywhere. -1: they run one after
 * another. */
static int find_lead(optc_binding *const *b, int n)
{
    int lead = 0;
    bool apart = n > 1 && b[0]->rule->device->beside;
    for (int i = 0; i < n; i++) {
        lead = b[i]->elems > b[lead]->elems ? i : lead;
        apart = apart && !b[i]->shards;
    }
    return apart ? lead : -1;
}

/* The lead is first: the device has work while the host runs the others. */
static optc_status run_each(optc_binding *const *b, int n, const char *entry, int level)
{
    int lead = find_lead(b, n), first = lead > 0 ? lead : 0;
    optc_status s = lead < 0 ? OPTC_OK : b[0]->rule->device->beside(b, n, lead, true);
    if (s != OPTC_OK)
        return s;
    for (int i = 0; i < n && s == OPTC_OK; i++) {
        optc_binding *x = b[i == 0 ? first : i <= first ? i - 1 : i];
        const char *name = entry_at(x, entry, level);
        s = name ? optc_run(x, name) : OPTC_OK;
    }
    if (lead < 0)
        return s;
    char why[MOST_MESSAGE];
    memcpy(why, optc_message(), sizeof why);
    optc_status ended = b[0]->rule->device->beside(b, n, lead, false);
    return s == OPTC_OK ? ended : fail(s, "%s", why);
}

/* ---- all entries as one graph ---- */
/* Adds the entries of a level, or (-1) the entry itself, the lead's first. false: one of them must
 * be run by itself. */
static bool add_level(optc_binding *const *b, int n, const char *entry, int level, JointTask *task,
                      int *count)
{
    int first = find_lead(b, n), was = *count;
    for (int i = 0; i < n; i++) {
        optc_binding *x = b[i == 0 ? first : i <= first ? i - 1 : i];
        const char *name = entry_at(x, entry, level);
        int e = name ? find_entry(x, name) : -1;
        if (!name && level >= 0)
            continue;
        if (e < 0 || *count == MOST_JOINT || connection_ranks(x) || !entry_steady(x, e))
            return false;
        JointTask *t = &task[(*count)++];
        t->b = x;
        t->entry = e;
        t->phase = program_phase(x->program, x->steps + 1);
        t->level = was ? task[was - 1].level + 1 : 0;
    }
    return true;
}

/* The entries that optc_run_all runs, in order. Returns their number; 0: they must be run one by
 * one. */
static int list_joint(optc_binding *const *b, int n, const char *entry, JointTask *task)
{
    int count = 0, was = -1;
    if (find_lead(b, n) < 0 || !b[0]->rule->device->joint)
        return 0;
    for (int level = 0; count != was; level++) {
        was = count;
        if (!add_level(b, n, entry, level, task, &count))
            return 0;
    }
    return add_level(b, n, entry, -1, task, &count) ? count : 0;
}

static optc_status run_joint(const JointTask *task, int n, bool *done)
{
    optc_status s = task[0].b->rule->device->joint(task, n, false, done);
    for (int i = 0; i < n && s == OPTC_OK && *done; i++) {
        task[i].b->recorded = false;
        entry_ran(task[i].b, task[i].entry, task[i].phase);
    }
    return s;
}

/* ---- running ---- */
static optc_status run_levels(optc_binding *const *b, int n, const char *entry)
{
    optc_status s = OPTC_OK;
    for (int level = 0, any = 1; any && s == OPTC_OK; level++) {
        any = 0;
        for (int i = 0; i < n; i++)
            any = any || entry_at(b[i], entry, level);
        s = any ? run_each(b, n, entry, level) : OPTC_OK;
        if (any && connection_ranks(b[0]))
            s = connection_gather(b[0], s);
    }
    return s == OPTC_OK ? run_each(b, n, entry, -1) : s;
}

/* Before any binding runs. Not if other ranks take part: they wait for this one in the runs. */
static optc_status check_whole(optc_binding *const *b, int n)
{
    optc_status s = OPTC_OK;
    for (int i = 0; i < n && s == OPTC_OK; i++)
        s = b[i]->gpu && !b[i]->shards && !connection_ranks(b[i])
                ? refuse_half_done(b[i], "optc_run_all")
                : OPTC_OK;
    return s;
}

optc_status optc_run_all(optc_binding *const *b, int n, const char *entry)
{
    JointTask task[MOST_JOINT];
    bool done = false;
    optc_status s = check_bindings("optc_run_all", b, n);
    if (s == OPTC_OK && !entry)
        return optc_run(b[0], entry);
    if (s == OPTC_OK)
        s = check_lists(b, n, entry);
    if (s == OPTC_OK)
        s = check_whole(b, n);
    int tasks = s == OPTC_OK ? list_joint(b, n, entry, task) : 0;
    if (tasks)
        s = run_joint(task, tasks, &done);
    if (s != OPTC_OK || done)
        return s;
    s = run_levels(b, n, entry);
    if (s == OPTC_OK && tasks)
        s = task[0].b->rule->device->joint(task, tasks, true, &done);
    return s;
}
