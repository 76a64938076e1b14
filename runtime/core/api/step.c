/* Running an entry: checks of inputs, participation, guard, then the device's run. Also the planned
 * memory traffic, streams and hyperparameters. */
#include "runtime/core/api/api.h"

#include "gen/abi/near_names.h"

#include <stdio.h>
#include <string.h>

/* ---- entries ---- */
CORE int find_entry(const optc_binding *b, const char *name)
{
    for (int i = 0; name && i < b->program->nentry; i++)
        if (!strcmp(b->program->entry[i].name, name))
            return i;
    return -1;
}

static optc_status no_entry(const optc_binding *b, const char *call, const char *name)
{
    Near near;
    char text[256] = "";
    memset(&near, 0, sizeof near);
    near.want = name ? name : "";
    for (int i = 0; name && i < b->program->nentry; i++)
        if (!b->program->entry[i].shares)
            near_try(&near, b->program->entry[i].name);
    return fail(OPTC_ERROR_ARGUMENT, "%s: rule '%s' has no entry '%s'%s", call, b->program->name,
                name ? name : "(null)", near_print(&near, text, sizeof text));
}

static bool from_caller(const ProgArray *m) { return m->kind == MEM_INPUT && m->dom != GROUP; }

/* Some tensor of the group takes part in the entry. */
static bool group_present(const optc_binding *b, int entry, const Group *g)
{
    bool any = false;
    for (int i = g->first; i < g->first + g->count && !any; i++)
        any = !tensor_out(&b->tensor[i], b->leaves_out[entry]);
    return any;
}

static optc_status check_scalar(const optc_binding *b, int entry, int array)
{
    const Program *p = b->program;
    for (int i = 0; i < b->ngroup; i++)
        if (!scalar_known(b, i, array) && group_present(b, entry, &b->group[i]))
            return fail(OPTC_ERROR_ARGUMENT,
                        "optc_run: entry '%s' of rule '%s' reads the scalar input '%s', which is "
                        "not set for group %d: "
                        "call %s first",
                        p->entry[entry].name, p->name, p->array[array].name, i,
                        is_shared_input(&p->array[array])
                            ? "optc_connect (again, after an optc_unbind of another binding)"
                            : "optc_set_scalar or optc_set_scalar_from");
    return OPTC_OK;
}

static optc_status check_read(const optc_binding *b, int entry, const ProgStage *s, int array)
{
    const ProgArray *m = &b->program->array[array];
    const Units *u = &b->units[s->variant];
    /* sharded: also what other ranks read */
    int n = b->shards ? b->ntensor : u->n;
    char label[96];
    if (m->kind == MEM_INPUT && m->dom == GROUP && (s->kind == S_GROUP || n))
        return check_scalar(b, entry, array);
    for (int j = 0; j < n && from_caller(m); j++) {
        int i = b->shards ? j : u->tensor[j];
        const Tensor *t = &b->tensor[i];
        if (b->shards && shards_variant(b, i) != s->variant)
            continue;
        if (!t->mem[array] && t->shape.n && !tensor_out(t, b->leaves_out[entry]))
            return fail(OPTC_ERROR_ARGUMENT,
                        "optc_run: entry '%s' reads input '%s' of %s, which is not set; call "
                        "optc_set_input first",
                        b->program->entry[entry].name, m->name, tensor_label(b, i, label));
    }
    return OPTC_OK;
}

/* The inputs that this phase reads must be set for all tensors that take part. */
static optc_status check_pointers(const optc_binding *b, int entry, int phase)
{
    const Program *p = b->shards ? b->rule->program : b->program;
    const ProgPhase *ph = &p->entry[entry].phase[phase];
    optc_status s = OPTC_OK;
    for (int i = 0; i < ph->naction; i++) {
        const ProgStage *st =
            ph->action[i].kind == ACT_LAUNCH ? &p->stage[ph->action[i].stage] : NULL;
        for (int k = 0; st && k < st->nreads && s == OPTC_OK; k++)
            s = check_read(b, entry, st, st->reads[k]);
    }
    return s;
}

/* All inputs are set: until the caller removes a pointer, steps need no check. */
static bool all_set(const optc_binding *b)
{
    const Program *p = b->program;
    for (int k = 0; k < p->narray; k++) {
        for (int i = 0; i < b->ntensor && from_caller(&p->array[k]); i++)
            if (!b->tensor[i].mem[k] && b->tensor[i].shape.n)
                return false;
        for (int i = 0; i < b->ngroup && p->array[k].kind == MEM_INPUT && p->array[k].dom == GROUP;
             i++)
            if (!scalar_known(b, i, k))
                return false;
    }
    return true;
}

/* In a capture t cannot be read from the device. A guard that the host must read is refused there
 * too: its message says more, since the capture would fail again after one step. */
static optc_status catch_up(optc_binding *b)
{
    optc_status s = cohorts_catch_up(b);
    if (s == OPTC_ERROR_ARGUMENT && b->guard.from && host_guards(b))
        return guard_refused(b);
    if (s == OPTC_ERROR_ARGUMENT)
        return fail(s, "optc_run: a gradient was added or removed, or optc_set_t was called, since "
                       "the last step; "
                       "run one step before capturing");
    return s;
}

static optc_status run_device(optc_binding *b, int entry, int phase)
{
    const ProfileHooks *h = PROFILE_HOOKS();
    b->profile = h ? h->begin(b, entry, phase) : NULL;
    optc_status s = b->rule->device->run(b, entry, phase);
    if (b->profile)
        h->end(b, s);
    b->profile = NULL;
    return s;
}

CORE void entry_ran(optc_binding *b, int entry, int phase)
{
    const ProgPhase *ph = &b->program->entry[entry].phase[phase];
    b->grads_set = b->grads_set && b->recorded;
    round_ran(b, entry);
    if (b->nsource)
        device_scalars_done(b);
    if (ph->naction && ph->action[0].kind == ACT_ADVANCE_T && !b->recorded)
        cohorts_stepped(b);
}

/* Cohorts with states of their own are copied from the group before each entry. */
CORE bool entry_steady(const optc_binding *b, int entry)
{
    bool copies = false;
    for (int r = b->ngroup; b->group_states && r < b->ncohort; r++)
        copies = copies || !b->group[r].idle;
    return cohorts_settled(b, entry) && b->complete && !copies && !b->shards && !b->nslots &&
           !(b->guard.from && host_guards(b));
}

optc_status optc_run(optc_binding *b, const char *entry)
{
    int e = b ? find_entry(b, entry) : -1;
    if (!b || !entry)
        return fail(OPTC_ERROR_ARGUMENT, "optc_run: %s is NULL",
                    !b ? "the binding" : "the entry's name");
    if (e < 0)
        return no_entry(b, "optc_run", entry);
    const Program *p = b->program;
    bool settled = cohorts_settled(b, e), skip = false;
    optc_status s = settled ? OPTC_OK : catch_up(b);
    if (s == OPTC_OK)
        s = device_scalars_read(b, &skip);
    int phase = program_phase(p, b->steps + 1);
    if (s == OPTC_OK && !skip && !b->complete)
        s = check_pointers(b, e, phase);
    if (s == OPTC_OK && !skip)
        s = check_round(b, e);
    s = shards_begin(b, e, phase, s, skip);
    if (s == OPTC_OK && skip)
        round_skipped(b, e);
    if (s != OPTC_OK || skip)
        return s;
    if (!settled)
        s = cohorts_arrange(b, e);
    if (s != OPTC_OK)
        return shards_refuse_run(b, e, phase, s);
    if (!b->complete)
        b->complete = all_set(b);
    b->stagger = stagger_now(b, b->steps + 1);
    s = run_device(b, e, phase);
    if (s == OPTC_OK)
        entry_ran(b, e, phase);
    return s;
}

optc_status optc_step(optc_binding *b) { return optc_run(b, "step"); }

/* ---- memory traffic of the plan ---- */
static double traffic(const optc_binding *b, const int *array, int n, Shape s)
{
    double bytes = 0;
    for (int i = 0; i < n; i++) {
        const ProgArray *m = &b->program->array[array[i]];
        bytes +=
            m->kind == MEM_PART && m->from == TENSOR
                ? 8
                : (double)stored_bytes(b->program->type, m->type, array_length(m, s, s, 1), s.n);
    }
    return bytes;
}

/* The share of a tensor that a stage covers at this step: 0 or 1, or the share of its scheduled
 * blocks. */
static double stagger_on(const optc_binding *b, const StaggerNow *stagger, const ProgStage *s,
                         const Tensor *t)
{
    int64_t all = 0, have = 0;
    if (!s->stagger || !stage_of_blocks(s))
        return stagger_active(b, stagger, s->stagger, t, -1);
    for (int i = t->first_view; i < t->first_view + t->nview; i++) {
        const Tensor *y = &b->tensor[i];
        all += y->shape.n;
        for (int64_t k = 0; k < y->shape.slices; k++)
            have +=
                stagger_active(b, stagger, s->stagger, y, k) ? y->shape.rows * y->shape.cols : 0;
    }
    return all ? (double)have / (double)all : 0;
}

CORE void add_bytes(const optc_binding *b, const ScheduleOp *op, const StaggerNow *stagger,
                    bool present, optc_bytes *out)
{
    const ProgStage *s = op->stage;
    const Units *u = !s || s->kind == S_GROUP ? NULL
                     : op->batch < 0          ? &b->units[s->variant]
                                              : &b->batch[op->batch].units;
    for (int k = 0; u && k < u->n; k++) {
        const Tensor *x = &b->tensor[u->tensor[k]];
        double share = present && x->view.n < 0 ? 0 : stagger_on(b, stagger, s, x);
        out->read += share * traffic(b, op->reads, op->nreads, x->shape);
        out->written += share * traffic(b, op->writes, op->nwrites, x->shape);
    }
}

optc_status optc_plan_bytes(const optc_binding *b, const char *entry, int64_t t, optc_bytes *out)
{
    int e = b ? find_entry(b, entry) : -1;
    if (!b || !out || t < 1)
        return fail(OPTC_ERROR_ARGUMENT, "optc_plan_bytes: %s",
                    !b     ? "the binding is NULL"
                    : !out ? "the result pointer is NULL"
                           : "t must be 1 or more");
    if (e < 0)
        return no_entry(b, "optc_plan_bytes", entry);
    const Schedule *x = schedule_of(b, e, program_phase(b->program, t));
    const StaggerNow stagger = stagger_now(b, t);
    out->read = out->written = 0;
    for (int i = 0; i < x->n; i++)
        add_bytes(b, &x->op[i], &stagger, false, out);
    return OPTC_OK;
}

/* ---- streams ---- */
optc_status optc_set_stream(optc_binding *b, void *stream)
{
    if (!b)
        return fail(OPTC_ERROR_ARGUMENT, "optc_set_stream: the binding is NULL");
    b->rule->device->set_stream(b, stream);
    return OPTC_OK;
}

optc_status optc_sync(optc_binding *b)
{
    return b ? b->rule->device->sync(b)
             : fail(OPTC_ERROR_ARGUMENT, "optc_sync: the binding is NULL");
}

/* ---- hyperparameters ---- */
static optc_status no_group(const char *call, const optc_binding *b, int group)
{
    return !b ? fail(OPTC_ERROR_ARGUMENT, "%s: the binding is NULL", call)
              : fail(OPTC_ERROR_ARGUMENT, "%s: there is no group %d", call, group);
}

static bool is_cohort_of(const optc_binding *b, int cohort, int group)
{
    return cohort >= b->ngroup && !b->group[cohort].idle && b->group[cohort].of == group;
}

/* Sends to the cohorts first, then to the group. After a failure Group.hyper still has the old
 * value: cohorts that have the new one on the device become stale, and the next run sends the old
 * value again. */
static optc_status send_to_cohorts(optc_binding *b, int group, int at, double value,
                                   const char *call)
{
    optc_status s = OPTC_OK;
    int sent = b->ngroup;
    for (; sent < b->ncohort && s == OPTC_OK; sent += s == OPTC_OK)
        if (is_cohort_of(b, sent, group))
            s = b->rule->device->send_hyper(b, sent, 1, at, value, call);
    if (s == OPTC_OK)
        s = b->rule->device->send_hyper(b, group, 1, at, value, call);
    for (int i = b->ngroup; i < sent && s != OPTC_OK; i++)
        if (is_cohort_of(b, i, group)) {
            b->group[i].stale = true;
            b->settled = false;
        }
    return s;
}

CORE optc_status put_hyper(optc_binding *b, int group, int at, double value, const char *call)
{
    optc_status s = group < 0 ? b->rule->device->send_hyper(b, 0, b->ncohort, at, value, call)
                              : send_to_cohorts(b, group, at, value, call);
    for (int i = 0; i < b->ncohort && s == OPTC_OK; i++)
        if (group < 0 || b->group[i].of == group)
            b->group[i].hyper[at] = value;
    return s;
}

optc_status optc_set_hyper(optc_binding *b, int group, const char *name, double value)
{
    int at = 0;
    if (!b || group < -1 || group >= b->ngroup)
        return no_group("optc_set_hyper", b, group);
    optc_status s = check_hyper(b->program, "optc_set_hyper", name, value, &at);
    if (s == OPTC_OK)
        s = put_hyper(b, group, at + 1, value, "optc_set_hyper");
    if (s == OPTC_OK)
        drop_device_scalars(b, group, at + 1, 0);
    return s;
}

optc_status optc_set_hyper_if(optc_binding *b, int group, const char *name, double value, int *has)
{
    bool known = false;
    for (int i = 0; b && name && i < b->program->nhyper; i++)
        known = known || !strcmp(b->program->hyper[i].name, name);
    if (has)
        *has = known;
    return known || !b || !name ? optc_set_hyper(b, group, name, value) : OPTC_OK;
}

optc_status optc_get_hyper(const optc_binding *b, int group, const char *name, double *value)
{
    if (b && !value)
        return fail(OPTC_ERROR_ARGUMENT, "optc_get_hyper: the result pointer is NULL");
    if (!b || group < 0 || group >= b->ngroup)
        return no_group("optc_get_hyper", b, group);
    int i = 0;
    optc_status s = find_hyper(b->program, "optc_get_hyper", name, &i);
    if (s != OPTC_OK)
        return s;
    const DeviceScalar *from = hyper_device_scalar(b, group, i + 1);
    *value = b->group[group].hyper[i + 1];
    return from ? device_scalar_now(b, from, "optc_get_hyper", value) : OPTC_OK;
}
