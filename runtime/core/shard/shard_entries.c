/* Extra entries of a sharded binding (those of folds and of rows: shard_rows.c), their memory and
 * views, and the calls by which the rest of the core reaches sharded bindings. */
#include "runtime/core/shard/shard.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

/* ---- making entries ---- */
CORE optc_status add_entry(optc_binding *b, int tensor, Role role, Shape shape, int64_t first,
                           int *entry)
{
    Tensor *x = &b->tensor[b->nheld];
    *x = b->tensor[tensor];
    x->variant = b->shards->role[rule_variant(b, tensor)][role];
    x->shape = shape;
    x->before[ELEM] = first;
    /* its elements are a range */
    x->before[COL] = x->before[COL] < 0 ? 0 : x->before[COL];
    x->caller_owned = NULL;
    x->source = tensor;
    if (!(x->mem = TAKE(b, void *, b->program->narray)))
        return no_memory("optc_bind_sharded");
    *entry = b->nheld++;
    return OPTC_OK;
}

static optc_status add_entries(optc_binding *b, int tensor)
{
    Cut *c = &b->shards->cut[tensor];
    Tensor *t = &b->tensor[tensor];
    const int *role = b->shards->role[t->variant];
    optc_status s = OPTC_OK;
    if (c->how == CLASS_ROWS)
        return rows_entries(b, tensor);
    if (c->how == CLASS_WHOLE) {
        if (c->owner == b->shards->comm.rank)
            s = add_entry(b, tensor, ROLE_WHOLE, t->whole, 0, &c->owned);
        t->variant = role[ROLE_IDLE];
        return s;
    }
    if (role[ROLE_PART] >= 0)
        s = folds_add(b, tensor, FOLD_FLAT);
    if (s == OPTC_OK && role[ROLE_OWNED] >= 0 && c->slices)
        s = add_entry(b, tensor, ROLE_OWNED, t->shape, t->before[ELEM], &c->owned);
    else if (s == OPTC_OK && role[ROLE_OWNED] >= 0 && c->owner == b->shards->comm.rank)
        s = add_entry(b, tensor, ROLE_OWNED, t->whole, 0, &c->owned);
    return s;
}

CORE optc_status entries_make(optc_binding *b)
{
    Tensor *was = b->tensor;
    if (b->ntensor > INT_MAX / 16 ||
        !(b->tensor = TAKE(b, Tensor, (1 + (int)NCUTENTRY) * b->ntensor))) {
        b->tensor = was;
        return no_memory("optc_bind_sharded");
    }
    memcpy(b->tensor, was, sizeof *was * (size_t)b->ntensor);
    optc_status s = OPTC_OK;
    for (int i = 0; i < b->ntensor && s == OPTC_OK; i++)
        s = add_entries(b, i);
    return s;
}

/* ---- what cannot be sharded ---- */
/* Folds over pieces, or stages at the place where it is not stored, use the array. */
static bool state_crosses(const optc_binding *b, int variant, int array)
{
    return role_uses(b, variant, ROLE_GHOST, array) ||
           role_uses(b, variant, owner_writes(b, variant, array) ? ROLE_BOUND : ROLE_OWNED, array);
}

/* Block codes store their scales behind the codes: a part of them is not a range of bytes. */
static optc_status check_codes(const optc_binding *b, int tensor)
{
    const Program *p = b->rule->program;
    int v = b->tensor[tensor].variant;
    char label[96];
    for (int k = 0; k < p->narray; k++)
        if (p->array[k].held_by >> v & 1 &&
            p->type[stored_type(p->type, p->array[k].type, b->tensor[tensor].whole.n)].block > 1 &&
            state_crosses(b, v, k))
            return fail(OPTC_ERROR_ARGUMENT,
                        "optc_bind_sharded: %s: the state '%.60s' is stored as %s, and rule "
                        "'%.60s' exchanges it "
                        "between ranks; store it as f32 or bf16",
                        tensor_label(b, tensor, label), p->array[k].name,
                        p->type[p->array[k].type].name, p->name);
    return OPTC_OK;
}

/* A rule's input per row, column or matrix belongs to the piece, and the owner would need all of
 * it. */
static optc_status check_inputs(const optc_binding *b, int tensor)
{
    const Program *p = b->rule->program;
    int v = b->tensor[tensor].variant;
    char label[96];
    for (int k = 0; k < p->narray; k++) {
        const ProgArray *m = &p->array[k];
        if (m->kind == MEM_INPUT && m->dom != GROUP && m->dom != TENSOR && m->dom != ELEM &&
            (role_uses(b, v, ROLE_BOUND, k) || role_uses(b, v, ROLE_OWNED, k)))
            return fail(OPTC_ERROR_ARGUMENT,
                        "optc_bind_sharded: %s: rule '%.60s' has the input '%.60s' per %s, which "
                        "sharded bindings do "
                        "not exchange; pass it per element or per tensor",
                        tensor_label(b, tensor, label), p->name, m->name, dom_info[m->dom].per);
    }
    return OPTC_OK;
}

static optc_status check_sharded(const optc_binding *b)
{
    if (!b->plan && b->rule->device != cpu_device() && b->rule->device != gpu_device())
        return fail(OPTC_ERROR_UNAVAILABLE,
                    "optc_bind_sharded: rule '%s' runs on the reference evaluator, which steps "
                    "whole tensors only; install a C compiler",
                    b->rule->program->name);
    return OPTC_OK;
}

/* A state of the caller's is that of the bound piece. */
static optc_status check_caller_owned(const optc_binding *b)
{
    char label[96];
    for (int i = 0; i < b->ntensor; i++)
        for (int k = 0; b->tensor[i].caller_owned && k < b->program->narray; k++)
            if (state_caller_owned(b, i, k) &&
                (shards_state_entry(b, i, k) != i ||
                 (b->shards->cut[i].how == CLASS_ROWS && b->program->array[k].dom != ELEM)))
                return fail(OPTC_ERROR_ARGUMENT,
                            "optc_bind_sharded: %s: the state '%.60s' is not one of this rank's "
                            "piece alone, so the caller's memory cannot hold it; leave its entry "
                            "NULL and write it with optc_state_put",
                            tensor_label(b, i, label), b->program->array[k].name);
    return OPTC_OK;
}

/* Every rank's piece consists of whole matrices of a stack. (Replicas of all of it share the work
 * instead.) */
static bool cut_between_matrices(const optc_binding *b, int tensor)
{
    const Cut *c = &b->shards->cut[tensor];
    const Shape s = b->tensor[tensor].whole;
    bool between = s.slices > 1 && c->ranges && !c->replicated;
    for (int r = 0; r < b->shards->comm.ranks && between; r++)
        between = c->first[r] % (s.rows * s.cols) == 0 && c->end[r] % (s.rows * s.cols) == 0;
    return between;
}

/* Each rank steps the matrices of its piece, which it sees like the whole tensor's. */
static void take_matrices(optc_binding *b, int tensor)
{
    Tensor *t = &b->tensor[tensor];
    int64_t each = t->whole.rows * t->whole.cols;
    b->shards->cut[tensor].slices = true;
    t->shape.rows = t->whole.rows;
    t->shape.cols = t->whole.cols;
    t->shape.slices = t->shape.n / each;
    t->before[SLICE] = b->shards->cut[tensor].first[b->shards->comm.rank] / each;
    t->before[ROW] = t->before[SLICE] * t->whole.rows;
    t->before[COL] = t->before[SLICE] * t->whole.cols;
}

/* Every rank's piece is a range or consists of runs that are equally far apart, and there is code
 * that numbers their elements for random draws. */
static bool numbers_elements(const optc_binding *b, const Cut *c)
{
    bool even = HOST()->runs != NULL;
    int64_t run = 0, apart = 0;
    for (int r = 0; r < b->shards->comm.ranks && even; r++)
        even = box_runs(c->rank, c->box[r] + c->rank, c->whole, &run, &apart);
    return even;
}

/* Pieces that are no ranges of elements: a fold over them would add in another order than in one
 * process. Stacks of
 * matrices: a piece may begin inside of a matrix, so it has no index of its matrix's values. */
static void choose_classes(optc_binding *b)
{
    unsigned by_rows = 0;
    for (int v = 0; v < b->rule->program->nvariant; v++)
        by_rows |= (unsigned)variant_by_rows(b, v) << v;
    for (int i = 0; i < b->ntensor; i++) {
        int v = b->tensor[i].variant;
        const Cut *c = &b->shards->cut[i];
        bool matrices = variant_owned(b, v) || variant_slices(b, v);
        if (matrices && variant_apart(b, v) && cut_between_matrices(b, i))
            take_matrices(b, i);
        else if (by_rows >> v & 1 && cut_by_rows(b, i))
            b->shards->cut[i].how = CLASS_ROWS;        /* its owner only holds states */
        else if ((!c->ranges && variant_folds(b, v)) ||
                 (!c->ranges && b->program->draws >> v & 1 && !numbers_elements(b, c)) ||
                 (b->tensor[i].whole.slices > 1 && variant_slices(b, v)))
            b->shards->cut[i].how = CLASS_WHOLE;
    }
}

/* ---- making a sharded binding ---- */
static optc_status make_roles(optc_binding *b)
{
    optc_binding *model = NULL;
    optc_status s = places_make(b);
    if (s == OPTC_OK)
        choose_classes(b);
    if (s == OPTC_OK)
        s = roles_make(b);
    for (int i = 0; i < b->ntensor && s == OPTC_OK; i++)
        if ((s = b->shards->cut[i].how == CLASS_ROWS ? OPTC_OK : check_codes(b, i)) == OPTC_OK)
            s = check_inputs(b, i);
    if (s == OPTC_OK)
        s = model_make(b, &model);
    if (s == OPTC_OK)
        s = owners_deal(b, model);
    if (s == OPTC_OK)
        s = groups_make(b);
    if (s == OPTC_OK)
        s = shard_program_make(b);
    if (s == OPTC_OK)
        b->program = &b->shards->program;
    if (s == OPTC_OK)
        s = entries_make(b);
    if (s == OPTC_OK)
        s = blocks_make(b);
    if (s == OPTC_OK)
        s = stagger_follow(b, model);
    if (s == OPTC_OK)
        s = exchanges_make(b);
    if (s == OPTC_OK)
        s = overlaps_make(b);
    if (s == OPTC_OK)
        s = check_caller_owned(b);
    model_free(model);
    return s;
}

CORE optc_status shards_make(optc_binding *b, const optc_comm *comm, optc_status so_far)
{
    b->shards = TAKE(b, Shards, 1);
    if (!b->shards)
        return shards_refuse(b->rule, comm, no_memory("optc_bind_sharded"));
    b->shards->comm = *comm;
    b->shards->plan = b->plan;
    b->shards->mask =
        TAKE(b, unsigned char, ((size_t)b->ntensor / 8 + 9) * ((size_t)comm->ranks + 1));
    if (so_far == OPTC_OK)
        so_far = b->shards->mask ? check_sharded(b) : no_memory("optc_bind_sharded");
    optc_status s = cuts_make(b, so_far);
    return s == OPTC_OK ? make_roles(b) : s;
}

CORE optc_status shards_agree(optc_binding *b, optc_status s)
{
    if (!b->shards || b->shards->failed || !b->shards->agrees)
        return s;
    const optc_comm *c = &b->shards->comm;
    char why[MOST_MESSAGE];
    int64_t own = s != OPTC_OK, *all = (int64_t *)calloc((size_t)c->ranks, sizeof *all);
    memcpy(why, optc_message(), sizeof why);
    optc_status met =
        all ? shards_gather(b, &own, all, sizeof own) : no_memory("optc_bind_sharded");
    int other = -1;
    for (int r = 0; met == OPTC_OK && r < c->ranks; r++)
        other = all[r] && other < 0 ? r : other;
    free(all);
    /* else the ranks do not meet again */
    b->shards->agrees = s == OPTC_OK && met == OPTC_OK && other < 0;
    if (s != OPTC_OK)
        return fail(s, "%s", why);
    if (met != OPTC_OK)
        return met;
    return other < 0
               ? OPTC_OK
               : fail(OPTC_ERROR_ARGUMENT,
                      "optc_bind_sharded: rank %d could not bind; its own message says why", other);
}

/* ---- memory ---- */
/* Some state at the owner starts as a copy of p. */
static bool starts_from_p(const optc_binding *b, int variant, Role role)
{
    const Program *p = b->rule->program;
    for (int k = 0; k < p->narray; k++)
        if (p->array[k].kind == MEM_STATE && p->array[k].copies_p &&
            p->array[k].held_by >> variant & 1 &&
            (role == ROLE_WHOLE || (role == ROLE_OWNED && owner_writes(b, variant, k))))
            return true;
    return false;
}

/* Extra entries with their own elements need copies of what the caller passes. */
static bool copies_array(const optc_binding *b, int entry, int array)
{
    const ProgArray *m = &b->rule->program->array[array];
    Role role = entry_role(b, entry);
    bool callers =
        m->kind == MEM_P || m->kind == MEM_G || (m->kind == MEM_INPUT && m->dom != GROUP);
    if (!callers || m->dom != ELEM || role == ROLE_PART || role == ROLE_BOUND || role == ROLE_IDLE)
        return false;
    if (role == ROLE_OWNED && b->shards->cut[b->tensor[entry].source].slices)
        return false;                              /* the piece itself */
    if (array == 0 && starts_from_p(b, rule_variant(b, entry), role))
        return true;
    return role_uses(b, rule_variant(b, entry), role, array);
}

static int64_t up_64(int64_t n) { return (n + 63) & ~(int64_t)63; }

CORE int64_t shards_bytes(optc_binding *b, int64_t at)
{
    Shards *x = b->shards;
    const Program *p = b->program;
    int64_t bytes = 0, send = 0, recv = 0;
    if (!x)
        return 0;
    x->at = up_64(at);
    for (int i = b->ntensor; i < b->nheld; i++)
        for (int k = 0; k < p->narray; k++) {
            int64_t *copy = &x->copy_at[(int64_t)(i - b->ntensor) * p->narray + k];
            bool rows = x->cut[b->tensor[i].source].how == CLASS_ROWS,
                 has = rows ? rows_copy(b, i, k) > 0 : copies_array(b, i, k);
            *copy = has ? bytes : -1;
            bytes += !has   ? 0
                     : rows ? up_64(rows_copy(b, i, k))
                            : up_64(dom_len(p->array[k].dom, b->tensor[i].shape) *
                                    p->type[p->array[k].type].bytes);
        }
    x->head = b->rule->device->reaches || x->comm.ranks == 1
                  ? 0
                  : up_64((int64_t)(b->ntensor / 64 + 2) * 8);
    recv = x->head * x->comm.ranks;
    for (int i = 0; i < x->nexchange; i++) {
        int64_t out = x->head + (int64_t)x->exchange[i].share_bytes, in = out * x->comm.ranks,
                a = 0, z = 0;
        for (int r = 0; r < x->comm.ranks; r++) {
            a += (int64_t)x->exchange[i].send_bytes[r];
            z += (int64_t)x->exchange[i].recv_bytes[r];
        }
        send = send > out ? send : out;
        send = send > a ? send : a;
        recv = recv > in ? recv : in;
        recv = recv > z ? recv : z;
    }
    x->send_at = bytes + (x->head ? x->head + 64 : 0);         /* 64: gpu_agree.c's mark */
    x->recv_at = x->send_at + up_64(send);
    x->bytes = x->recv_at + up_64(recv);
    return x->at - at + x->bytes;
}

/* Pointers of an extra entry to memory that is not its own. */
static void point_entry(optc_binding *b, int entry, int array)
{
    const Program *p = b->program;
    const ProgArray *m = &p->array[array];
    Tensor *x = &b->tensor[entry];
    const Tensor *t = &b->tensor[x->source];
    int64_t copy = b->shards->copy_at[(int64_t)(entry - b->ntensor) * p->narray + array];
    if (copy >= 0) {
        x->mem[array] = (char *)b->block + b->shards->at + copy;
    } else if (m->dom == GROUP || (entry == b->shards->cut[x->source].owned &&
                                   b->shards->cut[x->source].slices && t->mem[array])) {
        x->mem[array] = t->mem[array];
    } else if (entry_role(b, entry) == ROLE_PART && m->dom == ELEM) {
        int64_t ahead = x->before[ELEM] - b->shards->cut[x->source].first[b->shards->comm.rank];
        int size = p->type[stored_type(p->type, m->type, t->whole.n)].bytes;
        x->mem[array] = t->mem[array] ? (char *)t->mem[array] + ahead * size : NULL;
    } else if (!(m->held_by >> x->variant & 1)) {
        x->mem[array] = m->dom == ELEM ? NULL : t->mem[array];
    }
}

CORE void shards_point(optc_binding *b)
{
    for (int k = 0; k < b->program->narray; k++) {
        for (int i = b->ntensor; i < b->nheld; i++)
            if (b->shards->cut[b->tensor[i].source].how != CLASS_ROWS)
                point_entry(b, i, k);
        for (int i = 0; b->shards && i < b->ntensor; i++)
            if (b->shards->cut[i].how == CLASS_ROWS)
                rows_point(b, i, k);
    }
}

CORE void shards_moved(optc_binding *b, int tensor, int array)
{
    if (!b->shards)
        return;
    const Cut *c = &b->shards->cut[tensor];
    if (c->how == CLASS_ROWS)
        rows_point(b, tensor, array);
    for (int i = 0; i <= FOLD_GHOST && c->how != CLASS_ROWS; i++)
        if (c->entry[i] >= 0)
            point_entry(b, c->entry[i], array);
    if (c->how != CLASS_ROWS && c->owned >= 0)
        point_entry(b, c->owned, array);
}

CORE void shards_update(optc_binding *b)
{
    for (int i = b->ntensor; i < b->nheld; i++)
        tensor_follow(b, &b->tensor[i], &b->tensor[b->tensor[i].source]);
}

CORE int shards_variant(const optc_binding *b, int tensor)
{
    return b->shards ? rule_variant(b, tensor) : b->tensor[tensor].variant;
}

CORE int shards_ranks(const optc_binding *b, int *rank)
{
    *rank = b->shards ? b->shards->comm.rank : 0;
    return b->shards ? b->shards->comm.ranks : 1;
}

CORE unsigned shards_roles(const optc_binding *b, unsigned variants)
{
    unsigned all = variants;
    for (int v = 0; b->shards && v < b->rule->program->nvariant; v++)
        for (int r = 0; r < NROLE; r++)
            if (variants >> v & 1 && b->shards->role[v][r] >= 0)
                all |= 1u << b->shards->role[v][r];
    return all;
}

/* ---- states ---- */
CORE int shards_state_entry(const optc_binding *b, int tensor, int array)
{
    if (!b->shards || b->program->array[array].dom == GROUP)
        return tensor;
    int v = rule_variant(b, tensor);
    const Cut *c = &b->shards->cut[tensor];
    bool owned = c->how == CLASS_ROWS ? b->program->array[array].dom == COL
                                      : c->how == CLASS_WHOLE || ((c->owner >= 0 || c->slices) &&
                                                                  owner_writes(b, v, array));
    return owned && b->rule->program->array[array].held_by >> v & 1 ? c->owned : tensor;
}

CORE optc_status shards_check_restart(const optc_binding *b, int tensor, int array)
{
    char label[96];
    if (!b->shards || b->shards->cut[tensor].owner < 0 ||
        shards_state_entry(b, tensor, array) == tensor)
        return OPTC_OK;
    return fail(OPTC_ERROR_UNAVAILABLE,
                "optc_params_changed: rank %d holds the state '%.60s' of all pieces of %s and does "
                "not see this rank's "
                "parameter; bind again after the parameters changed",
                b->shards->cut[tensor].owner, b->program->array[array].name,
                tensor_label(b, tensor, label));
}
