/* Several bindings of one optimizer, one for each set of types. Values of all tensors (clip's norm) are taken over all
 * of them: entries that gen/ir/shared_reductions.c makes leave each binding's part in its states, and the other
 * bindings read it there. No value passes through the host, and none is copied. Bindings of other processes send
 * theirs, which are read where they were received. */
#include "runtime/core/gpu/gpu_device.h"

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

/* All have the same shared values, and each of them one input for every binding: `all`, with those of other ranks. */
static optc_status check_shared(optc_binding *const *b, int n, int all, int *count)
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
            snprintf(input, sizeof input, "shared.%d.%d", *count, all - 1);
            bool fits = there == n && find_array(p, MEM_INPUT, input) >= 0;
            snprintf(input, sizeof input, "shared.%d.%d", *count, all);
            if (!fits || find_array(p, MEM_INPUT, input) >= 0)
                return fail(OPTC_ERROR_ARGUMENT, "optc_connect: the rule of binding %d is not compiled for %d bindings "
                                                 "with these values of all tensors; set optc_rule_options.bindings to "
                                                 "%d in each of the rules, which differ only in their types",
                            i, all, all);
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

/* In a sharded binding arrays have places of their own. */
static optc_status read_scalar_at(optc_binding *b, const char *input, void *from)
{
    if (b->shards)
        return optc_set_scalar_from(b, -1, input, from, OPTC_F64);
    point_scalar(b, find_array(b->rule->program, MEM_INPUT, input), from);
    return OPTC_OK;
}

optc_status optc_connect(optc_binding *const *b, int n)
{
    char name[32], input[48];
    int count = 0;
    optc_status s = check_bindings("optc_connect", b, n);
    if (s == OPTC_OK && (n > 1 || b[0]->rank_values))
        s = check_shared(b, n, n, &count);
    for (int i = 0; i < n && s == OPTC_OK; i++)
        b[i]->rank_values = NULL;
    for (int k = 0; k < count; k++)
        for (int j = 0; j < n && s == OPTC_OK; j++) {
            snprintf(name, sizeof name, "shared.%d", k);
            snprintf(input, sizeof input, "shared.%d.%d", k, j);
            optc_state_view own;
            s = optc_state(b[j], 0, name, &own);
            for (int i = 0; i < n && s == OPTC_OK; i++)
                s = read_scalar_at(b[i], input, own.data);
        }
    return s;
}

/* ---- bindings of other processes ---- */
/* list: this rank's bindings. Every one of them has a list of its own: they may be unbound in any order. The other
 * members are of the first one. from: the states shared.K of the list, by binding, then K; send: they follow each
 * other, then a number that is not 0 if this rank failed; recv: of all ranks */
struct RankValues { optc_binding **list; int bindings; optc_comm comm; void **from; int n; char *send, *recv; };

static size_t sent_bytes(const RankValues *x) { return sizeof(double) * (size_t)(x->n + 1); }

static optc_status connect_inputs(optc_binding *const *b, int n, RankValues *x, int count)
{
    char name[48];
    optc_status s = OPTC_OK;
    for (int i = 0; i < x->n && s == OPTC_OK; i++) {
        optc_state_view own;
        snprintf(name, sizeof name, "shared.%d", i % count);
        s = optc_state(b[i / count], 0, name, &own);
        x->from[i] = s == OPTC_OK ? own.data : NULL;
    }
    for (int j = 0; j < n * x->comm.ranks; j++)            /* the bindings of rank 0, then those of rank 1, … */
        for (int k = 0; k < count; k++) {
            const char *at = x->recv + sent_bytes(x) * (size_t)(j / n) + sizeof(double) * (size_t)(j % n * count + k);
            snprintf(name, sizeof name, "shared.%d.%d", k, j);
            for (int i = 0; i < n && s == OPTC_OK; i++)
                s = read_scalar_at(b[i], name, (void *)(uintptr_t)at);
        }
    return s;
}

static RankValues *take_rank_values(optc_binding *own, optc_binding *const *b, int n)
{
    RankValues *x = TAKE(own, RankValues, 1);
    if (!x || !(x->list = TAKE(own, optc_binding *, n)))
        return NULL;
    x->bindings = n;
    for (int i = 0; i < n; i++)
        x->list[i] = b[i];
    return x;
}

/* Marks all bindings as connected with other ranks. The first one gathers. */
static optc_status put_rank_values(optc_binding *const *b, int n, RankValues *first)
{
    for (int i = n - 1; i >= 0; i--) {
        RankValues *x = i ? take_rank_values(b[i], b, n) : first;
        if (!x)
            return no_memory("optc_connect_ranks");
        b[i]->rank_values = x;
    }
    return OPTC_OK;
}

optc_status optc_connect_ranks(optc_binding *const *b, int n, const optc_comm *comm)
{
    int count = 0;
    optc_status s = check_bindings("optc_connect_ranks", b, n);
    if (s == OPTC_OK && (!comm || !comm->all_gather || comm->ranks < 1))
        s = fail(OPTC_ERROR_ARGUMENT, "optc_connect_ranks: the communication table, or its function, is NULL");
    if (s == OPTC_OK && comm->ranks == 1)
        return optc_connect(b, n);
    if (s == OPTC_OK)
        s = check_shared(b, n, n * comm->ranks, &count);
    if (s != OPTC_OK || !count)
        return s;
    RankValues *x = take_rank_values(b[0], b, n);
    if (!x || !(x->from = TAKE(b[0], void *, n * count)))
        return no_memory("optc_connect_ranks");
    x->comm = *comm;
    x->n = n * count;
    void *memory = NULL;
    s = b[0]->rule->device->alloc_cohorts(b[0], sent_bytes(x) * (size_t)(comm->ranks + 1), &memory);
    if (s != OPTC_OK)
        return s;
    x->send = (char *)memory;
    x->recv = x->send + sent_bytes(x);
    double zero = 0;
    for (size_t i = 0; i < sent_bytes(x) / sizeof zero * (size_t)(comm->ranks + 1) && s == OPTC_OK; i++)
        s = b[0]->rule->device->write(b[0], x->send + i * sizeof zero, &zero, sizeof zero, true, "optc_connect_ranks");
    if (s == OPTC_OK)
        s = connect_inputs(b, n, x, count);
    return s == OPTC_OK ? put_rank_values(b, n, x) : s;
}

/* With another list this rank would not gather, or gather other values, and the other ranks would wait. */
static optc_status check_rank_list(optc_binding *const *b, int n)
{
    for (int i = 0; i < n; i++) {
        const RankValues *x = b[i]->rank_values;
        bool same = !x || x->bindings == n;
        for (int k = 0; x && same && k < n; k++)
            same = x->list[k] == b[k];
        if (!same)
            return fail(OPTC_ERROR_ARGUMENT, "optc_run_all: binding %d was connected with other ranks in another list, "
                                             "of %d; pass the list of optc_connect_ranks in its order, or connect "
                                             "this one", i, x->bindings);
    }
    return OPTC_OK;
}

/* On a CPU a rank that failed tells the others. On a GPU its host cannot without their waiting. */
static optc_status gather_values(optc_binding *b, optc_status so_far)
{
    const RankValues *x = b->rank_values;
    char why[MOST_MESSAGE];
    double failed = so_far != OPTC_OK;
    if (so_far != OPTC_OK && !b->rule->device->reaches)
        return so_far;
    memcpy(why, optc_message(), sizeof why);
    if (b->rule->device->reaches)
        memcpy(x->send + sizeof failed * (size_t)x->n, &failed, sizeof failed);
    if (b->rule->device->gather_values(b, &x->comm, x->from, x->n, x->send, x->recv))
        return fail(OPTC_ERROR_DEVICE, "optc_run_all: communication with the other ranks failed on rank %d of %d",
                    x->comm.rank, x->comm.ranks);
    for (int r = 0; r < x->comm.ranks && b->rule->device->reaches && so_far == OPTC_OK; r++) {
        memcpy(&failed, x->recv + sent_bytes(x) * (size_t)r + sizeof failed * (size_t)x->n, sizeof failed);
        if (failed != 0)
            return fail(OPTC_ERROR_ARGUMENT, "optc_run_all: rank %d could not run; its own message says why", r);
    }
    return so_far == OPTC_OK ? OPTC_OK : fail(so_far, "%s", why);
}

/* Level 0, 1, …: the entry that leaves the value of this level for the others. Level -1: the entry itself. NULL:
 * none. */
static const char *entry_at(const optc_binding *b, const char *entry, int level)
{
    const Program *p = b->rule->program;
    int e = 0;
    while (e < p->nentry && strcmp(p->entry[e].name, entry))
        e++;
    int at = level < 0 ? e : program_shares(p, e, level);
    return level < 0 ? entry : at < 0 ? NULL : p->entry[at].name;
}

/* The binding with the most elements. The others may run beside it, unless they would communicate with other ranks:
 * collectives must have the same order everywhere. -1: they run one after another. */
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
/* Adds the entries of a level, or (-1) the entry itself, the lead's first. false: one of them must be run by itself. */
static bool add_level(optc_binding *const *b, int n, const char *entry, int level, JointTask *task, int *count)
{
    int first = find_lead(b, n), was = *count;
    for (int i = 0; i < n; i++) {
        optc_binding *x = b[i == 0 ? first : i <= first ? i - 1 : i];
        const char *name = entry_at(x, entry, level);
        int e = name ? find_entry(x, name) : -1;
        if (!name && level >= 0)
            continue;
        if (e < 0 || *count == MOST_JOINT || x->rank_values || !entry_steady(x, e))
            return false;
        JointTask *t = &task[(*count)++];
        t->b = x;
        t->entry = e;
        t->phase = program_phase(x->program, x->steps + 1);
        t->level = was ? task[was - 1].level + 1 : 0;
    }
    return true;
}

/* The entries that optc_run_all runs, in order. Returns their number; 0: they must be run one by one. */
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
        s = any && !level ? check_rank_list(b, n) : OPTC_OK;
        if (s != OPTC_OK)
            return s;
        s = any ? run_each(b, n, entry, level) : OPTC_OK;
        if (any && b[0]->rank_values)
            s = gather_values(b[0], s);
    }
    return s == OPTC_OK ? run_each(b, n, entry, -1) : s;
}

/* Before any binding runs. Not if other ranks take part: they wait for this one in the runs. */
static optc_status check_whole(optc_binding *const *b, int n)
{
    optc_status s = OPTC_OK;
    for (int i = 0; i < n && s == OPTC_OK; i++)
        s = b[i]->gpu && !b[i]->shards && !b[i]->rank_values ? refuse_half_done(b[i], "optc_run_all") : OPTC_OK;
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
