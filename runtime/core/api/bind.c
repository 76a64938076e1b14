/* optc_bind: checks everything that the caller passes, fills groups and tensors, then lets the
 * device allocate. A failed call leaves nothing behind. */
#include "runtime/core/api/api.h"
#include "runtime/core/memory/layout.h"

#include <stdlib.h>
#include <string.h>

/* ---- overlap ---- */
static optc_status check_grads_apart(const optc_binding *b)
{
    const Program *p = b->program;
    optc_status s = OPTC_OK;
    for (int i = 0; i < b->ntensor && s == OPTC_OK; i++)
        s = check_overlap(b, i, b->tensor[i].mem[1], b->tensor[i].shape.n * p->type[p->g].bytes,
                          "optc_bind: the gradient");
    return s;
}

/* ---- groups and tensors ---- */
static optc_status fill_group(optc_binding *b, const optc_group *group, Group *g)
{
    const Program *p = b->program;
    optc_status made = cohort_make(b, g, (int)(g - b->group), false);
    if (made != OPTC_OK)
        return made;
    for (int k = 0; k < p->nhyper; k++)
        g->hyper[k + 1] = p->hyper[k].def;
    for (int k = 0; k < group->nhyper; k++) {
        int at = 0;
        optc_status s =
            check_hyper(p, "optc_bind", group->hyper[k].name, group->hyper[k].value, &at);
        if (s != OPTC_OK)
            return s;
        g->hyper[at + 1] = group->hyper[k].value;
    }
    return OPTC_OK;
}

static uint64_t hash_number(uint64_t h, uint64_t x) { return (h ^ x) * 1099511628211u; }

static uint64_t tensor_identity(const optc_tensor *t, int group)
{
    uint64_t h = hash_number(1469598103934665603u, (uint64_t)group);
    for (const char *s = t->name; s && *s; s++)
        h = hash_number(h, (unsigned char)*s);
    for (const char *s = t->tags; s && *s; s++)
        h = hash_number(h, (unsigned char)*s);
    for (int k = 0; k < t->rank; k++)
        h = hash_number(h, (uint64_t)whole_dim(t, k));
    return hash_number(hash_number(hash_number(h, (uint64_t)t->rank), t->flags),
                       (uint64_t)t->split);
}

/* A piece of several runs whose variant draws per element: rows and columns of its view are the
 * runs (templates/runs.h reads them). No stage on such a piece sees the rule's rows and columns. */
static void number_runs(optc_binding *b, const optc_tensor *t, Tensor *x)
{
    int64_t run = 0, apart = 0, first = 0;
    if (!(b->program->draws >> x->variant & 1) || !x->shape.n || !piece_runs(b, t, &run, &apart))
        return;
    for (int k = 0; k < t->rank; k++)
        first = first * whole_dim(t, k) + begins_at(t, k);
    x->before[ELEM] = first;
    x->before[COL] = -apart;
    x->shape.slices = 1;
    x->shape.rows = x->shape.n / run;
    x->shape.cols = run;
    b->runs = true;
}

static optc_status fill_tensor(optc_binding *b, const optc_tensor *t, int at, int group)
{
    const Program *p = b->program;
    Tensor *x = &b->tensor[at];
    x->mem = TAKE(b, void *, p->narray);
    x->name = t->name ? TAKE(b, char, strlen(t->name) + 1) : NULL;
    if (!x->mem || (t->name && !x->name))
        return no_memory("optc_bind");
    if (t->name)
        strcpy(x->name, t->name);
    optc_status s = check_tensor(b, t, at);
    if (s != OPTC_OK)
        return s;
    x->rank = t->rank;
    x->permuted = !is_row_major(t, t->param_strides);
    for (int k = 0; k < t->rank && x->permuted; k++)
        x->layout = t->shape[k] == 1 ? x->layout
                                     : hash_number(x->layout + 1, (uint64_t)t->param_strides[k]);
    if (!(x->dim = TAKE(b, int64_t, 3 * t->rank)))
        return no_memory("optc_bind");
    x->whole_dim = x->dim + t->rank;
    x->offset = x->whole_dim + t->rank;
    for (int k = 0; k < t->rank; k++) {
        x->dim[k] = t->shape[k];
        x->whole_dim[k] = whole_dim(t, k);
        x->offset[k] = begins_at(t, k);
    }
    TensorFacts facts = tensor_facts(t);
    TensorFacts piece = facts;
    piece.dim = t->shape;
    x->whole = facts_shape(&facts, view_of(p, &facts));
    x->whole.rank = rank_length(p->rank, p->share, x->whole);
    x->whole.block = p->block;
    x->shape = facts_shape(&piece, view_of(p, &facts));
    x->shape.rank = x->whole.rank;
    x->shape.block = p->block;
    x->before[ELEM] = elements_before(t);
    x->variant = variant_of(p->variant, p->nvariant, &facts);
    number_runs(b, t, x);
    x->group = x->cohort = group;
    x->source = at;
    x->identity = tensor_identity(t, group);
    x->needs_grad = (b->sharded ? x->whole.n : x->shape.n) > 0;
    x->mem[0] = t->param;
    x->mem[1] = (void *)(uintptr_t)t->grad;
    if (__builtin_add_overflow(b->elems, x->whole.n, &b->elems))
        return fail(OPTC_ERROR_ARGUMENT,
                    "optc_bind: the tensors have more than 2^63 elements together");
    return bind_caller_states(b, at, t->states);
}

static optc_status fill_all(optc_binding *b, const optc_group *groups)
{
    optc_status s = OPTC_OK;
    int at = 0;
    for (int i = 0; i < b->ngroup && s == OPTC_OK; i++)
        s = fill_group(b, &groups[i], &b->group[i]);
    for (int i = b->ngroup; i < b->ncohort && s == OPTC_OK; i++)
        s = cohort_make(b, &b->group[i], 0, true);
    for (int i = 0; i < b->ngroup && s == OPTC_OK; i++) {
        b->group[i].first = at;
        b->group[i].count = groups[i].ntensors;
        for (int k = 0; k < groups[i].ntensors && s == OPTC_OK; k++)
            s = fill_tensor(b, &groups[i].tensors[k], at++, i);
    }
    return s;
}

/* ---- bindings ---- */
static optc_status bind_all(optc_binding *b, const optc_group *groups, const optc_comm *comm)
{
    b->ncohort = b->ngroup + b->rule->device->spare_cohorts;
    b->group = TAKE(b, Group, b->ncohort);
    b->tensor = TAKE(b, Tensor, b->ntensor);
    optc_status s = b->group && b->tensor ? fill_all(b, groups) : no_memory("optc_bind");
    b->nheld = b->ntensor;
    if (s == OPTC_OK)
        warn_stacks(b);
    if (s == OPTC_OK)
        s = check_params_apart(b);
    /* also after a failure: the other ranks must learn of it */
    if (comm)
        s = shards_make(b, comm, s);
    else if (s == OPTC_OK)
        s = blocks_make(b);
    if (comm && comm->ranks > 1 && !b->plan && !b->rule->device->reaches && HOST()->share) {
        s = shards_agree(b, s);
        s = s == OPTC_OK ? HOST()->share(b) : s;
    }
    if (s == OPTC_OK && !comm)
        s = stagger_make(b);
    if (s == OPTC_OK)
        s = check_states_apart(b);
    if (s == OPTC_OK)
        s = check_grads_apart(b);
    if (s == OPTC_OK)
        s = cohorts_prepare(b);
    if (s == OPTC_OK)
        s = layout_measure(b);
    if (b->plan)
        return s;
    if (s == OPTC_OK)
        s = b->rule->device->bind(b);
    if (s == OPTC_OK)
        s = coded_states_start(b);
    if (s == OPTC_OK)
        s = stagger_write(b);
    if (comm)
        s = shards_agree(b, s);
    if (s == OPTC_OK && HOST()->bound)
        HOST()->bound(b);
    return s;
}

static void binding_free(optc_binding *b)
{
    b->rule->device->unbind(b);
    for (BindAlloc *p = b->allocs, *next; p; p = next) {
        next = p->next;
        free(p);
    }
    free(b);
}

/* A call that fails ahead of shards_make: the other ranks wait there. */
static optc_status refuse_bind(const optc_rule *r, const optc_comm *comm, optc_status s)
{
    return comm && s != OPTC_OK ? shards_refuse(r, comm, s) : s;
}

static optc_status count_tensors(const optc_group *groups, int ngroups, int64_t *out)
{
    int64_t n = 0;
    for (int i = 0; i < ngroups; i++) {
        if (groups[i].ntensors < 0 || (groups[i].ntensors && !groups[i].tensors) ||
            groups[i].nhyper < 0 || (groups[i].nhyper && !groups[i].hyper))
            return fail(OPTC_ERROR_ARGUMENT,
                        "optc_bind: group %d: tensors or hyper is NULL with a count above 0, or "
                        "a count is negative",
                        i);
        n += groups[i].ntensors;
    }
    if (n > (1 << 24))
        return fail(OPTC_ERROR_ARGUMENT,
                    "optc_bind: there are %lld tensors; a binding has at most 2^24", (long long)n);
    *out = n;
    return OPTC_OK;
}

static optc_status bind_groups(optc_rule *r, const optc_group *groups, int ngroups,
                               const optc_comm *comm, PlanKind plan, optc_binding **out)
{
    int64_t n = 0;
    optc_status s = count_tensors(groups, ngroups, &n);
    optc_binding *b = s == OPTC_OK ? (optc_binding *)calloc(1, sizeof *b) : NULL;
    if (!b)
        return refuse_bind(r, comm, s == OPTC_OK ? no_memory("optc_bind") : s);
    b->rule = r;
    b->program = r->program;
    b->ngroup = ngroups;
    b->ntensor = (int)n;
    b->sharded = comm != NULL;
    b->plan = plan;
    s = bind_all(b, groups, comm);
    if (s != OPTC_OK) {
        char why[MOST_MESSAGE];                           /* binding_free may replace the message */
        memcpy(why, optc_message(), sizeof why);
        binding_free(b);
        return fail(s, "%s", why);
    }
    __atomic_add_fetch(&r->bindings, 1, __ATOMIC_SEQ_CST);
    *out = b;
    return OPTC_OK;
}

/* Converts groups and tensors to this version's structs, in one allocation. */
static optc_status read_groups(const optc_group *in, size_t size, size_t tensor_size, int n,
                               optc_group **out)
{
    const StructVersion as = STRUCT_VERSION("optc_bind_sized", optc_group, "optc_bind", nhyper),
                  at = STRUCT_VERSION("optc_bind_sized", optc_tensor, "optc_bind", offset);
    size_t all = 0;
    optc_group one;
    optc_status s = OPTC_OK;
    for (int i = 0; i < n && s == OPTC_OK; i++) {
        s = struct_read(&as, &one, (const char *)in + size * (size_t)i, size);
        all += s == OPTC_OK && one.tensors && one.ntensors > 0 ? (size_t)one.ntensors : 0;
    }
    if (s != OPTC_OK)
        return s;
    optc_group *g = *out =
        (optc_group *)malloc(sizeof *g * (size_t)n + sizeof(optc_tensor) * (all + 1));
    if (!g)
        return no_memory("optc_bind");
    optc_tensor *t = (optc_tensor *)(void *)(g + n);
    s = struct_read_array(&as, g, in, size, n);
    for (int i = 0; i < n && s == OPTC_OK; i++)
        if (g[i].tensors && g[i].ntensors > 0) {
            s = struct_read_array(&at, t, g[i].tensors, tensor_size, g[i].ntensors);
            g[i].tensors = t;
            t += g[i].ntensors;
        }
    return s;
}

static optc_status bind_sized(optc_rule *r, const optc_group *groups, int ngroups,
                              size_t group_size, size_t tensor_size, const optc_comm *comm,
                              optc_binding **out)
{
    if (out)
        *out = NULL;
    if (!r)
        return fail(OPTC_ERROR_ARGUMENT, "optc_bind: the rule is NULL");
    if (!groups || !out || ngroups < 1)
        return refuse_bind(r, comm, fail(OPTC_ERROR_ARGUMENT, "optc_bind: %s",
                                         !groups ? "the groups are NULL"
                                         : !out  ? "the pointer for the binding is NULL"
                                                 : "ngroups must be 1 or more"));
    if (group_size == sizeof(optc_group) && tensor_size == sizeof(optc_tensor))
        return bind_groups(r, groups, ngroups, comm, PLAN_NOT, out);
    optc_group *g = NULL;
    optc_status s = refuse_bind(r, comm, read_groups(groups, group_size, tensor_size, ngroups, &g));
    if (s == OPTC_OK)
        s = bind_groups(r, g, ngroups, comm, PLAN_NOT, out);
    free(g);
    return s;
}

CORE optc_status bind_plan(optc_rule *r, const optc_group *groups, int ngroups,
                           const optc_comm *comm, PlanKind plan, optc_binding **out)
{
    return bind_groups(r, groups, ngroups, comm, plan, out);
}

optc_status optc_bind_sized(optc_rule *r, const optc_group *groups, int ngroups, size_t group_size,
                            size_t tensor_size, optc_binding **out)
{
    return bind_sized(r, groups, ngroups, group_size, tensor_size, NULL, out);
}

optc_status optc_bind_sharded_sized(optc_rule *r, const optc_group *groups, int ngroups,
                                    size_t group_size, size_t tensor_size, const optc_comm *comm,
                                    optc_binding **out)
{
    if (out)
        *out = NULL;
    if (!comm || !comm->all_gather || !comm->all_to_all || comm->ranks < 1 || comm->rank < 0 ||
        comm->rank >= comm->ranks)
        return fail(OPTC_ERROR_ARGUMENT, "optc_bind_sharded: %s",
                    !comm ? "the communication table is NULL"
                    : !comm->all_gather || !comm->all_to_all
                        ? "a function of the communication table is NULL"
                        : "rank is not in 0..ranks - 1");
    return bind_sized(r, groups, ngroups, group_size, tensor_size, comm, out);
}

optc_status optc_unbind(optc_binding *b)
{
    if (!b)
        return OPTC_OK;
    connection_end(b);
    __atomic_sub_fetch(&b->rule->bindings, 1, __ATOMIC_SEQ_CST);
    binding_free(b);
    return OPTC_OK;
}
