/* Several bindings of one optimizer, one for each set of types. Values of all tensors (clip's norm)
 * are taken over all of them: entries that gen/ir/shared_reductions.c makes leave each binding's
 * part in its states, and the other bindings read it there. No value passes through the host, and
 * none is copied. Bindings of other processes send theirs, which are read where they were
 * received. */
#include "runtime/core/api/api.h"
#include "runtime/core/memory/layout.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Bindings that read each other's values, until one of them is unbound or connected again.
 *
 * A round: every binding shares its values for one entry, level by level, and then runs this entry
 * at most once.
 * number: of the current round; gathered: levels whose values the ranks have exchanged; used: some
 * binding ran the entry. */
struct Connection {
    optc_binding **list; int n;
    int64_t number;
    const char *entry;
    int gathered;
    bool used;
    /* ranks 1: there are no other processes. from: the states shared.K of the list, by binding,
     * then K; send: they follow each other, then a number that is not 0 if this rank failed; recv:
     * of all ranks. count: states of one binding */
    optc_comm comm;
    void **from; int nfrom, count;
    char *send, *recv;
};

CORE optc_status check_bindings(const char *call, optc_binding *const *b, int n)
{
    if (!b || n < 1)
        return fail(OPTC_ERROR_ARGUMENT, "%s: there are no bindings", call);
    for (int i = 0; i < n; i++) {
        if (!b[i])
            return fail(OPTC_ERROR_ARGUMENT, "%s: binding %d is NULL", call, i);
        if (b[i]->rule->engine != b[0]->rule->engine)
            return fail(OPTC_ERROR_ARGUMENT,
                        "%s: bindings 0 and %d belong to different engines; pass numbers between "
                        "devices by optc_set_scalar",
                        call, i);
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

/* ---- which rules can be connected ---- */
static int count_shared(const Program *p)
{
    char name[32];
    int n = 0;
    do
        snprintf(name, sizeof name, "shared.%d", n++);
    while (find_array(p, MEM_STATE, name) >= 0);
    return n - 1;
}

/* Without optc_rule_options.bindings a value of all tensors is a fold over the binding's tensors in
 * a stage. */
static bool takes_all_tensors(const Program *p)
{
    bool any = false;
    for (int k = 0; k < p->narray; k++)
        any = any || (p->array[k].kind == MEM_PART && p->array[k].dom == GROUP &&
                      p->array[k].from == TENSOR);
    return any;
}

/* Its shared values have one input for each of `all` bindings. */
static bool made_for(const Program *p, int count, int all)
{
    char input[48];
    bool fits = true;
    for (int k = 0; k < count && fits; k++) {
        snprintf(input, sizeof input, "shared.%d.%d", k, all - 1);
        fits = find_array(p, MEM_INPUT, input) >= 0;
        snprintf(input, sizeof input, "shared.%d.%d", k, all);
        fits = fits && find_array(p, MEM_INPUT, input) < 0;
    }
    return fits && (count || all == 1 || !takes_all_tensors(p));
}

/* An entry of p that shares values, and that q does not have; NULL: none */
static const char *lacks_entry(const Program *p, const Program *q)
{
    const char *lacks = NULL;
    for (int e = 0; e < p->nentry && !lacks; e++) {
        bool has = !p->entry[e].shares;
        for (int k = 0; k < q->nentry && !has; k++)
            has = q->entry[k].shares && !strcmp(p->entry[e].name, q->entry[k].name);
        lacks = has ? NULL : p->entry[e].name;
    }
    return lacks;
}

/* All rules share the same values in the same entries, or none. all: bindings, with those of other
 * ranks */
static optc_status check_shared(const char *call, optc_binding *const *b, int n, int all,
                                int *count)
{
    for (int i = *count = 0; i < n; i++) {
        int own = count_shared(b[i]->rule->program);
        *count = own > *count ? own : *count;
    }
    for (int i = 0; i < n; i++) {
        const Program *p = b[i]->rule->program, *first = b[0]->rule->program;
        int own = count_shared(p);
        if (!made_for(p, own, all) || (own != *count && (!own || all == 1)))
            return fail(OPTC_ERROR_ARGUMENT,
                        "%s: the rule of binding %d is not compiled for %d bindings with these "
                        "values of all tensors; set optc_rule_options.bindings to %d in each of "
                        "the rules, which differ only in their types",
                        call, i, all, all);
        const char *more = lacks_entry(p, first), *less = lacks_entry(first, p);
        if (more || less || own != *count)
            return fail(OPTC_ERROR_ARGUMENT,
                        "%s: the rules of bindings 0 and %d take different values over all "
                        "tensors%s%s%s; connect rules that differ only in their types",
                        call, i, more || less ? ": only one of them has the entry '" : "",
                        more   ? more
                        : less ? less
                               : "",
                        more || less ? "'" : "");
    }
    return OPTC_OK;
}

/* ---- scalar inputs that are other bindings' states ---- */
static void place_scalar(optc_binding *b, int array, bool set)
{
    drop_device_scalars(b, -1, 0, array);
    for (int i = 0; i < b->ngroup; i++)
        b->group[i].scalar_set[array] = set;
    for (int i = b->ngroup; i < b->ncohort; i++)
        b->group[i].mem[array] = b->group[b->group[i].of].mem[array];
    for (int i = 0; i < b->nall; i++)
        b->tensor[i].mem[array] = b->group[b->tensor[i].group].mem[array];
    b->rule->device->arranged(b, true);
}

/* Nothing is copied before a run. In a sharded binding arrays have places of their own. */
static optc_status read_scalar_at(optc_binding *b, const char *input, void *from)
{
    int array = find_array(b->program, MEM_INPUT, input);
    if (b->shards)
        return optc_set_scalar_from(b, -1, input, from, OPTC_F64);
    for (int i = 0; i < b->ngroup; i++)
        b->group[i].mem[array] = from;
    place_scalar(b, array, true);
    return OPTC_OK;
}

/* The input has no value, in its own memory (layout.c). */
static void unset_scalar(optc_binding *b, int array)
{
    const ProgArray *m = &b->program->array[array];
    char *at = (char *)b->block + b->at[array];
    for (int i = 0; i < b->ngroup && !b->shards; at += array_owned(b, m, i++))
        b->group[i].mem[array] = at;
    if (!b->shards) {
        place_scalar(b, array, false);
    } else {
        drop_device_scalars(b, -1, 0, array);
        for (int i = 0; i < b->ngroup; i++)
            b->group[i].scalar_set[array] = false;
    }
    b->complete = false;
}

CORE bool is_shared_input(const ProgArray *m)
{
    return m->kind == MEM_INPUT && m->dom == GROUP &&
           !strncmp(m->name, "shared.", strlen("shared."));
}

CORE bool connection_reads(const optc_binding *b, int array)
{
    return b->connection && is_shared_input(&b->program->array[array]);
}

/* ---- connecting ---- */
static void connection_free(Connection *c)
{
    free(c->list);
    free(c->from);
    free(c);
}

CORE void connection_end(optc_binding *b)
{
    Connection *c = b->connection;
    for (int i = 0; c && i < c->n; i++) {
        optc_binding *x = c->list[i];
        x->connection = NULL;
        x->round.levels = 0;
        for (int k = 0; k < x->program->narray; k++)
            if (is_shared_input(&x->program->array[k]))
                unset_scalar(x, k);
    }
    if (c)
        connection_free(c);
}

static optc_status connection_make(const char *call, optc_binding *const *b, int n, int count,
                                   Connection **out)
{
    Connection *c = *out = (Connection *)calloc(1, sizeof *c);
    if (!c || !(c->list = (optc_binding **)calloc((size_t)n, sizeof *c->list)) ||
        !(c->from = (void **)calloc((size_t)(n * count), sizeof *c->from))) {
        if (c)
            connection_free(c);
        return no_memory(call);
    }
    c->n = n;
    c->comm.ranks = 1;
    c->entry = "";
    c->nfrom = n * count;
    c->count = count;
    optc_status s = OPTC_OK;
    for (int i = 0; i < c->nfrom && s == OPTC_OK; i++) {
        optc_state_view own;
        char name[32];
        snprintf(name, sizeof name, "shared.%d", i % count);
        s = optc_state(b[i / count], 0, name, &own);
        c->from[i] = s == OPTC_OK ? own.data : NULL;
    }
    for (int i = 0; i < n; i++)
        c->list[i] = b[i];
    if (s != OPTC_OK)
        connection_free(c);
    return s;
}

static size_t sent_bytes(const Connection *c) { return sizeof(double) * (size_t)(c->nfrom + 1); }

/* The value K of binding J: of rank 0's bindings, then those of rank 1, … */
static void *shared_at(const Connection *c, int k, int j)
{
    if (c->comm.ranks == 1)
        return c->from[j * c->count + k];
    return c->recv + sent_bytes(c) * (size_t)(j / c->n) +
           sizeof(double) * (size_t)(j % c->n * c->count + k);
}

/* Ends the connections that the bindings had. What fails then leaves them without one. */
static optc_status connection_begin(Connection *c)
{
    char name[48];
    optc_status s = OPTC_OK;
    for (int i = 0; i < c->n; i++)
        connection_end(c->list[i]);
    for (int i = 0; i < c->n; i++)
        c->list[i]->round.number = -1;
    for (int k = 0; k < c->count; k++)
        for (int j = 0; j < c->n * c->comm.ranks; j++) {
            snprintf(name, sizeof name, "shared.%d.%d", k, j);
            for (int i = 0; i < c->n && s == OPTC_OK; i++)
                s = read_scalar_at(c->list[i], name, shared_at(c, k, j));
        }
    for (int i = 0; i < c->n; i++)
        c->list[i]->connection = c;
    if (s != OPTC_OK)
        connection_end(c->list[0]);
    return s;
}

optc_status optc_connect(optc_binding *const *b, int n)
{
    int count = 0;
    Connection *c = NULL;
    optc_status s = check_bindings("optc_connect", b, n);
    if (s == OPTC_OK)
        s = check_shared("optc_connect", b, n, n, &count);
    if (s == OPTC_OK && count)
        s = connection_make("optc_connect", b, n, count, &c);
    return s == OPTC_OK && c ? connection_begin(c) : s;
}

/* ---- bindings of other processes ---- */
/* Memory for the values of all ranks, in the device's memory of the first binding. */
static optc_status take_exchange(Connection *c)
{
    optc_binding *b = c->list[0];
    void *memory = NULL;
    double zero = 0;
    size_t bytes = sent_bytes(c) * (size_t)(c->comm.ranks + 1);
    optc_status s = b->rule->device->alloc_cohorts(b, bytes, &memory);
    if (s != OPTC_OK)
        return s;
    c->send = (char *)memory;
    c->recv = c->send + sent_bytes(c);
    for (size_t i = 0; i < bytes && s == OPTC_OK; i += sizeof zero)
        s = b->rule->device->write(b, c->send + i, &zero, sizeof zero, true, "optc_connect_ranks");
    return s;
}

optc_status optc_connect_ranks(optc_binding *const *b, int n, const optc_comm *comm)
{
    int count = 0;
    Connection *c = NULL;
    optc_status s = check_bindings("optc_connect_ranks", b, n);
    if (s == OPTC_OK && (!comm || !comm->all_gather || comm->ranks < 1))
        s = fail(OPTC_ERROR_ARGUMENT,
                 "optc_connect_ranks: the communication table, or its function, is NULL");
    if (s == OPTC_OK && comm->ranks == 1)
        return optc_connect(b, n);
    if (s == OPTC_OK)
        s = check_shared("optc_connect_ranks", b, n, n * comm->ranks, &count);
    if (s == OPTC_OK && count)
        s = connection_make("optc_connect_ranks", b, n, count, &c);
    if (s != OPTC_OK || !c)
        return s;
    c->comm = *comm;
    s = take_exchange(c);
    if (s == OPTC_OK)
        return connection_begin(c);
    connection_free(c);
    return s;
}

/* ---- rounds ---- */
/* The number of levels of values that an entry needs, or (an entry that shares) the levels before
 * it. */
static int levels_needed(const Program *p, int e)
{
    int level = 0, base = program_base(p, e);
    for (int at; (at = program_shares(p, base, level)) >= 0 && at != e; level++) { }
    return level;
}

/* Binding x has shared so many levels of its values for the entry in this round. */
static bool has_shared(const optc_binding *x, const char *entry, int levels, bool captured)
{
    const Connection *c = x->connection;
    const Round *r = &x->round;
    return r->levels >= levels && !strcmp(x->program->entry[r->entry].name, entry) &&
           r->captured == captured &&
           (!c || (r->number == c->number && (c->comm.ranks == 1 || c->gathered >= levels)));
}

/* Where the host reads the guard of x, the device may read that of b: if both are set, nothing uses
 * the values. */
static bool may_skip(const optc_binding *b) { return b->guard.from && !host_guards(b); }

static optc_status lacks_values(const optc_binding *b, int e, const optc_binding *lacks,
                                bool captured)
{
    const Program *p = b->program;
    const Connection *c = b->connection;
    char why[160];
    if (lacks != b && lacks->round.skipped)
        snprintf(why, sizeof why,
                 "another one was skipped by its guard: give all of them guards with one value");
    else
        snprintf(why, sizeof why, "%s has not computed its part%s: call optc_run_all with %s",
                 lacks == b ? "this binding" : "another one", captured ? " in this capture" : "",
                 c ? "all of them" : "this binding");
    return fail(OPTC_ERROR_ARGUMENT,
                "optc_run: entry '%s' of rule '%s' needs values of all tensors of this step, over "
                "%s, and %s",
                p->entry[e].name, p->name, c ? "all connected bindings" : "several bindings", why);
}

CORE optc_status check_round(const optc_binding *b, int e)
{
    const Program *p = b->program;
    const Connection *c = b->connection;
    int levels = levels_needed(p, e);
    if (!levels)
        return OPTC_OK;
    const char *entry = p->entry[program_base(p, e)].name;
    bool captured = b->rule->device->capturing && b->rule->device->capturing(b);
    const optc_binding *lacks = b->round.used ? b : NULL;
    for (int i = 0; i < (c ? c->n : 1) && !lacks; i++) {
        const optc_binding *x = c ? c->list[i] : b;
        bool has = has_shared(x, entry, levels, captured) && (!x->round.skipped || may_skip(b));
        lacks = has ? NULL : x;
    }
    return lacks ? lacks_values(b, e, lacks, captured) : OPTC_OK;
}

/* Values that a binding shared before it ran another entry, or before its t or a gradient changed,
 * are those of an earlier step. */
CORE void round_end(optc_binding *b)
{
    if (!b->round.used)
        b->round.levels = 0;
}

CORE void round_ran(optc_binding *b, int e)
{
    const Program *p = b->program;
    Connection *c = b->connection;
    int level = levels_needed(p, e);
    const char *entry = p->entry[program_base(p, e)].name;
    if (!p->entry[e].shares) {
        if (!level)
            round_end(b);
        b->round.used = b->round.used || level;
        if (c && level)
            c->used = true;
        return;
    }
    if (c && !level && (c->used || b->round.number == c->number || strcmp(c->entry, entry))) {
        c->number++;
        c->entry = entry;
        c->used = false;
        c->gathered = 0;
    }
    b->round.entry = program_base(p, e);
    b->round.levels = level + 1;
    b->round.number = c ? c->number : 0;
    b->round.used = b->round.skipped = false;
    b->round.captured = b->recorded;
}

CORE void round_skipped(optc_binding *b, int e)
{
    round_ran(b, e);
    if (b->program->entry[e].shares) {
        b->round.skipped = true;
        b->round.captured = false;
    }
}

/* ---- the list of a run ---- */
static bool is_listed(const optc_binding *x, optc_binding *const *b, int n)
{
    bool found = false;
    for (int i = 0; i < n; i++)
        found = found || b[i] == x;
    return found;
}

/* With another list this rank would not gather, or gather other values, and the other ranks would
 * wait. */
static bool is_rank_list(const Connection *c, optc_binding *const *b, int n)
{
    bool same = c->n == n;
    for (int k = 0; same && k < n; k++)
        same = c->list[k] == b[k];
    return same;
}

/* If the entry needs values of all connected bindings, the list has all of them. */
CORE optc_status check_lists(optc_binding *const *b, int n, const char *entry)
{
    for (int i = 0; i < n; i++) {
        const Connection *c = b[i]->connection;
        int e = c ? find_entry(b[i], entry) : -1;
        if (e < 0 || b[i]->program->entry[e].shares || !levels_needed(b[i]->program, e))
            continue;
        if (c->comm.ranks > 1 && !is_rank_list(c, b, n))
            return fail(OPTC_ERROR_ARGUMENT,
                        "optc_run_all: binding %d was connected with other ranks in another list, "
                        "of %d; pass the list of optc_connect_ranks in its order, or connect "
                        "this one",
                        i, c->n);
        for (int k = 0; k < c->n; k++)
            if (!is_listed(c->list[k], b, n))
                return fail(OPTC_ERROR_ARGUMENT,
                            "optc_run_all: entry '%s' needs values of all tensors, over the %d "
                            "bindings that binding %d is connected with, and the list has only "
                            "some of them; pass all of them",
                            entry, c->n, i);
    }
    return OPTC_OK;
}

CORE bool connection_ranks(const optc_binding *b)
{
    return b->connection && b->connection->comm.ranks > 1;
}

/* On a CPU a rank that failed tells the others. On a GPU its host cannot without their waiting. */
CORE optc_status connection_gather(optc_binding *b, optc_status so_far)
{
    Connection *x = b->connection;
    char why[MOST_MESSAGE];
    double failed = so_far != OPTC_OK;
    if (so_far != OPTC_OK && !b->rule->device->reaches)
        return so_far;
    memcpy(why, optc_message(), sizeof why);
    if (b->rule->device->reaches)
        memcpy(x->send + sizeof failed * (size_t)x->nfrom, &failed, sizeof failed);
    if (b->rule->device->gather_values(b, &x->comm, x->from, x->nfrom, x->send, x->recv))
        return fail(OPTC_ERROR_DEVICE,
                    "optc_run_all: communication with the other ranks failed on rank %d of %d",
                    x->comm.rank, x->comm.ranks);
    for (int r = 0; r < x->comm.ranks && b->rule->device->reaches && so_far == OPTC_OK; r++) {
        memcpy(&failed, x->recv + sent_bytes(x) * (size_t)r + sizeof failed * (size_t)x->nfrom,
               sizeof failed);
        if (failed != 0)
            return fail(OPTC_ERROR_ARGUMENT,
                        "optc_run_all: rank %d could not run; its own message says why", r);
    }
    x->gathered += so_far == OPTC_OK;
    return so_far == OPTC_OK ? OPTC_OK : fail(so_far, "%s", why);
}
