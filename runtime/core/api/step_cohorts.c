/* Participation and cohorts: which tensors take part in a run, and which step t each of them is at.
 *
 * The binding counts steps. A tensor without a gradient does not take part in entries that read
 * gradients: its view has n < 0, which every stage skips; folds over tensors find the neutral value
 * in its place; and its step count falls behind by `lag`. A lag changes only when a tensor is
 * skipped or the caller sets its count.
 *
 * Tensors of one group with the same lag form a cohort, which has its own hyperparameters, t and
 * values per group. A stage treats a cohort like a group, so tensors with different t share their
 * launches. The first entries are the groups themselves, with lag 0; further cohorts are used as
 * needed and idle otherwise (n < 0). The t of all cohorts advances together, so the device needs no
 * update until a tensor returns. If no tensor was ever skipped there are only groups, and a step
 * has no extra cost.
 *
 * States of a group follow the group's count, which is the binding's. A cohort starts each run from
 * a copy of them, and its results are discarded. `every` uses the binding's count too. */
#include "runtime/core/api/api.h"

#include <stdlib.h>
#include <string.h>

enum { FEWEST = 8 };                       /* cohorts to add at least when there are too few */

typedef struct CohortKey { int64_t lag; int group, cohort; } CohortKey;

/* ---- making cohorts ---- */
CORE optc_status cohort_make(optc_binding *b, Group *g, int of, bool idle)
{
    const Program *p = b->program;
    g->hyper = TAKE(b, double, p->nhyper + 2);
    g->mem = TAKE(b, void *, p->narray);
    g->scalar_set = idle ? NULL : TAKE(b, bool, p->narray);
    g->of = of;
    g->idle = idle;
    return g->hyper && g->mem && (idle || g->scalar_set) ? OPTC_OK : no_memory("optc_bind");
}

CORE unsigned gradient_variants(const Program *p, int entry)
{
    unsigned mask = 0;
    for (int m = 0; m < program_phases(p); m++) {
        const ProgPhase *ph = &p->entry[entry].phase[m];
        for (int i = 0; i < ph->naction; i++) {
            const ProgStage *s =
                ph->action[i].kind == ACT_LAUNCH ? &p->stage[ph->action[i].stage] : NULL;
            for (int k = 0; s && k < s->nreads; k++)
                mask |= p->array[s->reads[k]].kind == MEM_G ? 1u << s->variant : 0;
        }
    }
    return mask;
}

CORE optc_status cohorts_prepare(optc_binding *b)
{
    const Program *p = b->program;
    b->leaves_out = TAKE(b, unsigned, p->nentry);
    b->absent = TAKE(b, int, b->ntensor);
    if (!b->leaves_out || !b->absent)
        return no_memory("optc_bind");
    for (int e = 0; e < p->nentry; e++)
        b->leaves_out[e] =
            shards_roles(b, gradient_variants(b->rule->program, program_base(b->rule->program, e)));
    for (int k = 0; k < p->narray; k++)
        b->group_states = b->group_states || (cohort_owns(&p->array[k]) &&
                                              p->array[k].kind == MEM_STATE && !p->array[k].report);
    return OPTC_OK;
}

/* ---- adding cohorts ---- */
static optc_status cohort_memory(optc_binding *b, Group *g, int n)
{
    const Program *p = b->program;
    size_t each = 0;
    char *at = NULL;
    for (int k = 0; k < p->narray; k++)
        each += cohort_owns(&p->array[k]) ? 64 : 0;
    optc_status s = b->rule->device->alloc_cohorts(b, each * (size_t)n + 64, (void **)&at);
    for (int i = 0; i < n && s == OPTC_OK; i++)
        for (int k = 0; k < p->narray; k++) {
            if (!cohort_owns(&p->array[k]))
                g[i].mem[k] = b->group[0].mem[k];      /* shared by all, or set by cohort_take */
            else
                g[i].mem[k] = at;
            at += cohort_owns(&p->array[k]) ? 64 : 0;
        }
    return s;
}

static optc_status cohorts_grow(optc_binding *b, int more)
{
    Group *was = b->group, *g = TAKE(b, Group, b->ncohort + more);
    optc_status s = g ? OPTC_OK : no_memory("optc_run");
    if (g)
        memcpy(g, was, sizeof *g * (size_t)b->ncohort);
    for (int i = 0; i < more && s == OPTC_OK; i++)
        s = cohort_make(b, &g[b->ncohort + i], 0, true);
    if (s == OPTC_OK)
        s = cohort_memory(b, g + b->ncohort, more);
    if (s != OPTC_OK)
        return s;
    b->group = g;
    b->ncohort += more;
    cohorts_place(b);
    s = b->rule->device->grown(b);
    if (s != OPTC_OK) {
        b->group = was;
        b->ncohort -= more;
    }
    return s;
}

/* ---- arranging cohorts ---- */
static int by_key(const void *a, const void *b)
{
    const CohortKey *x = (const CohortKey *)a, *y = (const CohortKey *)b;
    return x->group != y->group ? x->group - y->group : x->lag < y->lag ? -1 : x->lag > y->lag;
}

static CohortKey *find_key(CohortKey *key, int n, int group, int64_t lag)
{
    CohortKey want = {lag, group, 0};
    return n ? (CohortKey *)bsearch(&want, key, (size_t)n, sizeof want, by_key) : NULL;
}

/* The cohorts needed beside the groups, sorted, without duplicates. None if the program does not
 * use t. */
static int list_keys(const optc_binding *b, unsigned mask, CohortKey *key)
{
    int n = 0, kept = 0;
    for (int i = 0; b->program->needs_t && i < b->ntensor; i++) {
        const Tensor *t = &b->tensor[i];
        if (t->lag && !tensor_out(t, mask)) {
            key[n].group = t->group;
            key[n].lag = t->lag;
            key[n++].cohort = -1;
        }
    }
    qsort(key, (size_t)n, sizeof *key, by_key);
    for (int i = 0; i < n; i++)
        if (!i || by_key(&key[i], &key[i - 1]))
            key[kept++] = key[i];
    return kept;
}

static void cohort_take(optc_binding *b, Group *g, const CohortKey *key)
{
    const Program *p = b->program;
    const Group *of = &b->group[key->group];
    g->of = key->group;
    g->lag = key->lag;
    g->idle = false;
    g->stale = true;
    memcpy(g->hyper, of->hyper, sizeof(double) * (size_t)(p->nhyper + 1));
    g->hyper[p->nhyper + 1] = (double)key->lag;
    for (int k = 0; k < p->narray; k++)
        if (p->array[k].dom == GROUP && !cohort_owns(&p->array[k]))
            g->mem[k] = of->mem[k];
}

/* Cohorts that are still needed keep their index. Returns their number. */
static int keep_cohorts(const optc_binding *b, CohortKey *key, int n)
{
    int kept = 0;
    for (int r = b->ngroup; r < b->ncohort; r++) {
        CohortKey *k = b->group[r].idle ? NULL : find_key(key, n, b->group[r].of, b->group[r].lag);
        if (k && k->cohort < 0) {
            k->cohort = r;
            kept++;
        }
    }
    return kept;
}

/* Gives the other keys cohorts that are not kept, and adds cohorts if there are too few. */
static optc_status take_cohorts(optc_binding *b, CohortKey *key, int n, int kept)
{
    int room = b->ncohort - b->ngroup - kept, lack = n - kept - room,
        twice = b->ncohort - b->ngroup;
    optc_status s = lack <= 0
                        ? OPTC_OK
                        : cohorts_grow(b, lack > twice ? (lack > FEWEST ? lack : FEWEST) : twice);
    if (s != OPTC_OK)
        return s;
    for (int r = b->ngroup; r < b->ncohort; r++) {
        CohortKey *k = b->group[r].idle ? NULL : find_key(key, n, b->group[r].of, b->group[r].lag);
        b->group[r].idle = !k || k->cohort != r;
    }
    int r = b->ngroup;
    for (int i = 0; i < n; i++)
        if (key[i].cohort < 0) {
            while (!b->group[r].idle)
                r++;
            key[i].cohort = r;
            cohort_take(b, &b->group[r], &key[i]);
        }
    return OPTC_OK;
}

/* The key of the cohort that a tensor shall use; NULL: its group. */
static const CohortKey *key_of(const Tensor *t, unsigned mask, CohortKey *key, int n)
{
    return !t->lag || tensor_out(t, mask) ? NULL : find_key(key, n, t->group, t->lag);
}

/* Computes what will change, so that the device can refuse it. Changes nothing. */
static Participation next_participation(const optc_binding *b, unsigned mask, CohortKey *key, int n,
                                        int kept)
{
    Participation c = {mask, n > kept, n > kept, n > b->ncohort - b->ngroup};
    for (int i = 0; i < b->ntensor; i++) {
        const Tensor *t = &b->tensor[i];
        const CohortKey *k = key_of(t, mask, key, n);
        c.any = c.any || t->cohort != (k ? k->cohort : t->group) ||
                (t->view.n < 0) != tensor_out(t, mask);
    }
    for (int r = b->ngroup; r < b->ncohort; r++)
        c.any = c.any || (b->group[r].stale && !b->group[r].idle);
    return c;
}

static bool tensor_to_cohort(optc_binding *b, Tensor *t, int cohort)
{
    const Program *p = b->program;
    if (t->cohort == cohort && t->view.hyper == b->group[cohort].hyper)
        return false;
    t->cohort = cohort;
    t->view.hyper = b->group[cohort].hyper;
    for (int k = 0; k < p->narray; k++)
        if (p->array[k].dom == GROUP)
            t->mem[k] = b->group[cohort].mem[k];
    return true;
}

static bool put(long long *to, long long x)
{
    bool other = *to != x;
    *to = x;
    return other;
}

/* If no tensor takes part, the groups do not either: a mean or maximum over nothing is no value for
 * their states. If values span several bindings, tensors of others may take part. */
static void place_tensors(optc_binding *b, unsigned mask, CohortKey *key, int n)
{
    bool moved = false, changed = false, shared = program_shared(b->rule->program);
    long long present = 0, total = 0;
    b->nabsent = 0;
    for (int i = 0; i < b->ntensor; i++) {
        Tensor *t = &b->tensor[i];
        bool out = tensor_out(t, mask);
        const CohortKey *k = key_of(t, mask, key, n);
        moved = tensor_to_cohort(b, t, k ? k->cohort : t->group) || moved;
        changed = put(&t->view.n, out ? -1 : t->shape.n) || changed;
        present += !out;
        total += out ? 0 : t->whole.n;
        if (!t->mem[1] && t->needs_grad)
            b->absent[b->nabsent++] = i;
    }
    for (int r = 0; r < b->ngroup; r++)
        changed = put(&b->group[r].view.n, present || !b->ntensor || shared ? 1 : -1) || changed;
    for (int r = b->ngroup; r < b->ncohort; r++) {
        changed =
            put(&b->group[r].view.n, b->group[r].idle ? -1 : 1) || b->group[r].stale || changed;
        b->group[r].view.id = b->group[r].of;
    }
    for (int i = 0; i < b->ntensor + b->ncohort; i++) {
        optc_view *v = i < b->ntensor ? &b->tensor[i].view : &b->group[i - b->ntensor].view;
        changed = put(&v->present, present) || changed;
        changed = put(&v->total, total) || changed;
    }
    shards_update(b);
    blocks_update(b);
    if (moved || changed)
        b->rule->device->arranged(b, moved);
}

/* Counts the steps that replays of the caller's graph did since the last run. A tensor that the
 * graph skips was skipped in all of them. */
CORE optc_status cohorts_catch_up(optc_binding *b)
{
    int64_t now = b->steps;
    optc_status s = b->rule->device->get_t(b, &now);
    if (s != OPTC_OK || now == b->steps)
        return s;
    for (int i = 0; i < b->nabsent; i++)
        if (b->tensor[b->absent[i]].view.n < 0)
            b->tensor[b->absent[i]].lag += now - b->steps;
    b->steps = now;
    return OPTC_OK;
}

/* Call after cohorts_catch_up. Asks the device for permission before it changes anything. */
CORE optc_status cohorts_arrange(optc_binding *b, int entry)
{
    const Device *d = b->rule->device;
    CohortKey *key = (CohortKey *)malloc(sizeof *key * (size_t)(b->ntensor + 1));
    if (!key)
        return no_memory("optc_run");
    unsigned mask = b->leaves_out[entry];
    int n = list_keys(b, mask, key), kept = keep_cohorts(b, key, n);
    const Participation c = next_participation(b, mask, key, n, kept);
    optc_status s = d->may_change_participation ? d->may_change_participation(b, &c) : OPTC_OK;
    if (s == OPTC_OK)
        s = take_cohorts(b, key, n, kept);
    if (s == OPTC_OK) {
        place_tensors(b, mask, key, n);
        b->settled = true;
        b->left_out = mask;
    }
    free(key);
    return s;
}

CORE bool cohorts_settled(const optc_binding *b, int entry)
{
    return b->settled && (!b->nabsent || b->left_out == b->leaves_out[entry]);
}

CORE void cohorts_stepped(optc_binding *b)
{
    b->steps++;
    for (int i = 0; i < b->nabsent; i++)
        if (b->tensor[b->absent[i]].view.n < 0)
            b->tensor[b->absent[i]].lag++;
}

/* ---- t ---- */
CORE int64_t tensor_steps(const optc_binding *b, int tensor, int64_t now)
{
    const Tensor *t = &b->tensor[tensor];
    /* n < 0: replays skipped it too */
    return t->view.n < 0 ? b->steps - t->lag : now - t->lag;
}

optc_status optc_get_t(const optc_binding *b, int tensor, int64_t *steps)
{
    if (!b || !steps)
        return fail(OPTC_ERROR_ARGUMENT, "optc_get_t: %s is NULL",
                    !b ? "the binding" : "the result pointer");
    if (tensor < -1 || tensor >= b->ntensor)
        return fail(OPTC_ERROR_ARGUMENT, "optc_get_t: there is no tensor %d", tensor);
    int64_t now = b->steps;
    optc_status s = b->rule->device->get_t(b, &now);
    if (s != OPTC_OK)
        return s;
    *steps = tensor < 0 ? now : tensor_steps(b, tensor, now);
    return OPTC_OK;
}

static optc_status set_all(optc_binding *b, int64_t steps)
{
    optc_status s = b->rule->device->set_t(b, steps);
    if (s != OPTC_OK)
        return s;
    for (int i = 0; i < b->ntensor; i++)
        b->tensor[i].lag = 0;
    for (int r = b->ngroup; r < b->ncohort; r++)
        b->group[r].lag = 0;
    round_end(b);
    b->steps = steps;
    b->settled = false;
    return OPTC_OK;
}

CORE optc_status put_steps(optc_binding *b, const int64_t *steps)
{
    optc_status s = set_all(b, steps[0]);
    for (int i = 0; i < b->ntensor && s == OPTC_OK; i++)
        b->tensor[i].lag = steps[0] - steps[i + 1];
    return s;
}

optc_status optc_set_t(optc_binding *b, int tensor, int64_t steps)
{
    if (!b)
        return fail(OPTC_ERROR_ARGUMENT, "optc_set_t: the binding is NULL");
    if (tensor < -1 || tensor >= b->ntensor)
        return fail(OPTC_ERROR_ARGUMENT, "optc_set_t: there is no tensor %d", tensor);
    if (steps < 0 || steps > MOST_T)
        return fail(OPTC_ERROR_ARGUMENT,
                    "optc_set_t: steps is %lld; it must be from 0 to %lld (2^52)", (long long)steps,
                    (long long)MOST_T);
    if (tensor < 0)
        return set_all(b, steps);
    optc_status s = cohorts_catch_up(b);
    if (s == OPTC_OK) {
        round_end(b);
        b->tensor[tensor].lag = b->steps - steps;
        b->settled = false;
    }
    return s;
}
