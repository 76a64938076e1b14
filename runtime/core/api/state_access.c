/* Reading and writing states and reports by name; setting pointers of gradients and inputs, and
 * scalar inputs. */
#include "runtime/core/api/api.h"

#include "gen/abi/near_names.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- states and reports, which share one layout ---- */
/* A query: the public function, the owner (a group for states of the group, else a tensor), the
 * name. */
typedef struct StateQuery {
    const char *call; int owner; const char *name; bool report;
} StateQuery;

static const char *kind_of(const StateQuery *w) { return w->report ? "value" : "state"; }

static optc_status no_state(const Program *p, const StateQuery *w)
{
    Near near;
    char text[256] = "";
    memset(&near, 0, sizeof near);
    near.want = w->name;
    for (int k = 0; k < p->narray; k++)
        if (array_visible(&p->array[k], w->report))
            near_try(&near, p->array[k].name);
    return fail(OPTC_ERROR_ARGUMENT, "%s: rule '%s' has no %s '%s'%s", w->call, p->name, kind_of(w),
                w->name, near_print(&near, text, sizeof text));
}

/* p->narray: there is none */
static int find_state_array(const Program *p, const StateQuery *w)
{
    int k = 0;
    for (; k < p->narray; k++) {           /* the copy of p is no state of the rule, and its address
                                            * is wanted */
        const ProgArray *m = &p->array[k];
        if ((array_visible(m, w->report) || m->follows_p) && !strcmp(m->name, w->name))
            break;
    }
    return k;
}

/* has: the owner has this state, possibly with 0 values */
static optc_status look_up(const optc_binding *b, const StateQuery *w, optc_state_view *out,
                           bool *has)
{
    if (!b || !w->name || !out)
        return fail(OPTC_ERROR_ARGUMENT, "%s: %s is NULL", w->call,
                    !b         ? "the binding"
                    : !w->name ? "the name"
                               : "the result pointer");
    const Program *p = b->program;
    int k = find_state_array(p, w);
    if (k == p->narray)
        return no_state(p, w);
    const ProgArray *m = &p->array[k];
    bool group = m->dom == GROUP;
    int limit = group ? b->ngroup : b->ntensor;
    if (w->owner < 0 || w->owner >= limit)
        return fail(OPTC_ERROR_ARGUMENT, "%s: there is no %s %d (there are %d)", w->call,
                    group ? "group" : "tensor", w->owner, limit);
    int entry = group ? 0 : shards_state_entry(b, w->owner, k);
    out->data = group ? b->group[w->owner].mem[k] : entry < 0 ? NULL : b->tensor[entry].mem[k];
    out->count = group ? 1 : entry < 0 ? 0 : dom_len(m->dom, b->tensor[entry].shape);
    out->type = (optc_type)(plain_type(stored_type(p->type, m->type,
                                                   group ? 1 : b->tensor[w->owner].whole.n)) +
                            1);
    *has = out->data || entry < 0 || (!out->count && (m->held_by >> b->tensor[entry].variant & 1));
    return OPTC_OK;
}

static optc_status find_state(const optc_binding *b, const StateQuery *w, optc_state_view *out)
{
    bool has = false;
    optc_status s = look_up(b, w, out, &has);
    if (s != OPTC_OK || has)
        return s;
    char label[96];
    return fail(OPTC_ERROR_ABSENT, "%s: %s keeps no %s '%s' under this rule's options", w->call,
                tensor_label(b, w->owner, label), kind_of(w), w->name);
}

optc_status optc_state(optc_binding *b, int tensor, const char *name, optc_state_view *out)
{
    const StateQuery w = {"optc_state", tensor, name, false};
    return find_state(b, &w, out);
}

CORE optc_status has_state(const optc_binding *b, const char *call, int tensor, const char *name,
                           int *has)
{
    const StateQuery w = {call, tensor, name, false};
    optc_state_view v;
    bool kept = false;
    if (!has)
        return fail(OPTC_ERROR_ARGUMENT, "%s: the result pointer is NULL", call);
    optc_status s = look_up(b, &w, &v, &kept);
    if (s == OPTC_OK)
        *has = kept;
    return s;
}

optc_status optc_has_state(const optc_binding *b, int tensor, const char *name, int *has)
{
    return has_state(b, "optc_has_state", tensor, name, has);
}

static size_t state_bytes(const optc_binding *b, const optc_state_view *v)
{
    return (size_t)stored_bytes(b->program->type, (int)v->type - 1, v->count, OPTC_LEAST_CODED);
}

optc_status optc_state_bytes(const optc_binding *b, int tensor, const char *name, size_t *out)
{
    const StateQuery w = {"optc_state_bytes", tensor, name, false};
    optc_state_view v;
    if (!out)
        return fail(OPTC_ERROR_ARGUMENT, "optc_state_bytes: the result pointer is NULL");
    optc_status s = find_state(b, &w, &v);
    if (s == OPTC_OK)
        *out = state_bytes(b, &v);
    return s;
}

/* Memory of the state that the host can access: the state itself, or a buffer for a copy of it
 * (room, for free()). */
static optc_status state_room(const optc_binding *b, const StateQuery *w, const void *buf,
                              int64_t count, optc_state_view *v, void **host, void **room)
{
    optc_status s = find_state(b, w, v);
    *host = *room = NULL;
    if (s == OPTC_OK && (count != v->count || (!buf && count)))
        s = fail(OPTC_ERROR_ARGUMENT, "%s: %s '%s' has %lld values, the buffer %lld", w->call,
                 kind_of(w), w->name, (long long)v->count, buf ? (long long)count : 0LL);
    if (s != OPTC_OK)
        return s;
    if (!b->rule->device->reaches && !(*room = malloc((size_t)v->count * 8 + 8)))
        return no_memory(w->call);
    *host = *room ? *room : v->data;
    return OPTC_OK;
}

static optc_status read_doubles(const optc_binding *b, const StateQuery *w, double *out,
                                int64_t count)
{
    optc_state_view v;
    void *host, *room;
    optc_status s = state_room(b, w, out, count, &v, &host, &room);
    if (s == OPTC_OK && room)
        s = b->rule->device->read(b, room, v.data, state_bytes(b, &v), w->call);
    if (s == OPTC_OK)
        values_load((int)v.type - 1, host, count, out);
    free(room);
    return s;
}

optc_status optc_state_read(const optc_binding *b, int tensor, const char *name, double *out,
                            int64_t count)
{
    const StateQuery w = {"optc_state_read", tensor, name, false};
    return read_doubles(b, &w, out, count);
}

optc_status optc_read_value(const optc_binding *b, int tensor, const char *name, double *out,
                            int64_t count)
{
    const StateQuery w = {"optc_read_value", tensor, name, true};
    return read_doubles(b, &w, out, count);
}

/* Checks n values that a call writes to a state. */
static optc_status check_lower_write(const optc_binding *b, const StateQuery *w, int type,
                                     const void *data, int64_t n)
{
    const int k = find_state_array(b->program, w);
    const ProgArray *m = &b->program->array[k];
    char label[96];
    if (!m->lower || !n)
        return OPTC_OK;
    const NewValues x = {w->call, tensor_label(b, w->owner, label), type,
                         b->program->type[type].bytes, data, 0, n};
    return check_lower(m, b->tensor[shards_state_entry(b, w->owner, k)].shape, &x);
}

optc_status optc_state_write(optc_binding *b, int tensor, const char *name, const double *in,
                             int64_t count)
{
    const StateQuery w = {"optc_state_write", tensor, name, false};
    optc_state_view v;
    void *host, *room;
    optc_status s = state_room(b, &w, in, count, &v, &host, &room);
    for (int64_t i = 0; s == OPTC_OK && type_is_unsigned((int)v.type - 1) && i < count; i++)
        if (in[i] < 0)
            s = fail(OPTC_ERROR_ARGUMENT,
                     "%s: state '%s' is stored as %s, for values that are never negative: value "
                     "%lld is %g",
                     w.call, name, b->program->type[v.type - 1].name, (long long)i, in[i]);
    if (s == OPTC_OK)
        s = check_lower_write(b, &w, T_F64, in, count);
    if (s == OPTC_OK)
        values_store((int)v.type - 1, host, count, in, NULL);
    if (s == OPTC_OK && room)
        s = b->rule->device->write(b, v.data, room, state_bytes(b, &v), true, w.call);
    free(room);
    return s;
}

/* ---- raw bytes, without a conversion ---- */
static optc_status find_raw(const optc_binding *b, const StateQuery *w, const void *buf,
                            size_t bytes, optc_state_view *v)
{
    optc_status s = find_state(b, w, v);
    if (s == OPTC_OK && (bytes != state_bytes(b, v) || (!buf && bytes)))
        s = fail(OPTC_ERROR_ARGUMENT, "%s: state '%s' has %zu bytes (%lld of %s), the buffer %zu",
                 w->call, w->name, state_bytes(b, v), (long long)v->count,
                 b->program->type[v->type - 1].name, buf ? bytes : 0);
    return s;
}

optc_status optc_state_get(const optc_binding *b, int tensor, const char *name, void *out,
                           size_t bytes)
{
    const StateQuery w = {"optc_state_get", tensor, name, false};
    optc_state_view v;
    optc_status s = find_raw(b, &w, out, bytes, &v);
    return s == OPTC_OK && bytes ? b->rule->device->read(b, out, v.data, bytes, w.call) : s;
}

optc_status optc_state_put(optc_binding *b, int tensor, const char *name, const void *in,
                           size_t bytes)
{
    const StateQuery w = {"optc_state_put", tensor, name, false};
    optc_state_view v;
    optc_status s = find_raw(b, &w, in, bytes, &v);
    if (s == OPTC_OK)
        s = check_lower_write(b, &w, (int)v.type - 1, in, v.count);
    return s == OPTC_OK && bytes ? b->rule->device->write(b, v.data, in, bytes, true, w.call) : s;
}

/* ---- parameters that the caller wrote ---- */
/* Writes a state's initial values again, in parts, through the host. */
static optc_status state_restart(optc_binding *b, int tensor, int array, char *room, int64_t most)
{
    const Program *p = b->program;
    const ProgArray *m = &p->array[array];
    const Tensor *t = &b->tensor[tensor];
    int64_t n = t->mem[array] ? dom_len(m->dom, t->shape) : 0;
    int64_t size = p->type[m->type].bytes, wide = p->type[p->p].bytes;
    optc_status s = OPTC_OK;
    for (int64_t at = 0; at < n && s == OPTC_OK; at += most) {
        int64_t k = n - at < most ? n - at : most;
        char *from = room + most * 8;
        if (m->copies_p)
            s = b->rule->device->read(b, from, (const char *)t->mem[0] + at * wide,
                                      (size_t)(k * wide), "optc_params_changed");
        if (s != OPTC_OK)
            break;
        state_fill(b, m, t->group, room, m->copies_p ? from : NULL, state_span(t, at, k, 1));
        s = b->rule->device->write(b, (char *)t->mem[array] + at * size, room, (size_t)(k * size),
                                   true, "optc_params_changed");
    }
    return s;
}

optc_status optc_params_changed(optc_binding *b, int tensor)
{
    const int64_t most = 1 << 18;
    if (!b || tensor < -1 || tensor >= b->ntensor)
        return !b ? fail(OPTC_ERROR_ARGUMENT, "optc_params_changed: the binding is NULL")
                  : fail(OPTC_ERROR_ARGUMENT, "optc_params_changed: there is no tensor %d", tensor);
    char *room = (char *)malloc((size_t)most * 16);
    optc_status s = room ? OPTC_OK : no_memory("optc_params_changed");
    for (int k = 0; k < b->program->narray; k++)
        for (int i = tensor < 0 ? 0 : tensor;
             i < (tensor < 0 ? b->ntensor : tensor + 1) && s == OPTC_OK; i++)
            if (b->program->array[k].follows_p && (s = shards_check_restart(b, i, k)) == OPTC_OK)
                s = state_restart(b, shards_state_entry(b, i, k), k, room, most);
    free(room);
    return s;
}

int optc_rule_follows_params(const optc_rule *r, const char *name)
{
    const Program *p = r ? r->program : NULL;
    for (int k = 0; p && k < p->narray; k++)
        if (p->array[k].follows_p && (!name || !strcmp(p->array[k].name, name)))
            return 1;
    return 0;
}

/* ---- gradients and inputs ---- */
/* A pointer that a call sets. what: "optc_set_grads: 'g'", for messages. Steps set all gradients,
 * so texts are made once for all tensors, or when a check fails. */
typedef struct PointerCall { const char *call; int array; char what[96]; } PointerCall;

static PointerCall pointer_call(const optc_binding *b, const char *call, int array)
{
    PointerCall x;
    x.call = call;
    x.array = array;
    snprintf(x.what, sizeof x.what, "%s: '%.40s'", call, b->program->array[array].name);
    return x;
}

static optc_status check_data(optc_binding *b, const PointerCall *x, int tensor, const void *data,
                              int64_t count)
{
    const Program *p = b->program;
    const int array = x->array;
    const char *call = x->call, *what = x->what;
    const ProgArray *m = &p->array[array];
    char label[96];
    int64_t n = dom_len(m->dom, b->tensor[tensor].shape);
    if (count && count != n)
        return fail(OPTC_ERROR_ARGUMENT, "%s: %s needs %lld values for '%s', got %lld", call,
                    tensor_label(b, tensor, label), (long long)n, m->name, (long long)count);
    if ((uintptr_t)data % (uintptr_t)p->type[m->type].bytes)
        return fail(OPTC_ERROR_ARGUMENT,
                    "%s: %s: the pointer for '%s' is not aligned to its element", call,
                    tensor_label(b, tensor, label), m->name);
    optc_status s = check_overlap(b, tensor, data, n * p->type[m->type].bytes, what);
    if (s == OPTC_OK)
        s = b->rule->device->use_pointer(b, tensor, b->tensor[tensor].mem[array], data, what);
    return s;
}

static void put_data(optc_binding *b, int tensor, int array, const void *data)
{
    void **at = &b->tensor[tensor].mem[array];
    if (array == 1 && *at != data)
        round_end(b);
    if (array == 1)
        b->settled = b->settled && !*at == !data;      /* participation changes */
    else
        b->complete = b->complete && data;
    *at = (void *)(uintptr_t)data;
    blocks_moved(b, tensor, array);
    shards_moved(b, tensor, array);
}

static optc_status set_pointer(optc_binding *b, const char *call, int tensor, int array,
                               const void *data, int64_t count)
{
    const PointerCall x = pointer_call(b, call, array);
    optc_status s = check_data(b, &x, tensor, data, count);
    if (s == OPTC_OK)
        put_data(b, tensor, array, data);
    return s;
}

static optc_status check_number(const optc_binding *b, const char *call, int i, bool group)
{
    if (!b)
        return fail(OPTC_ERROR_ARGUMENT, "%s: the binding is NULL", call);
    if (i < (group ? -1 : 0) || i >= (group ? b->ngroup : b->ntensor))
        return fail(OPTC_ERROR_ARGUMENT, "%s: there is no %s %d", call, group ? "group" : "tensor",
                    i);
    return OPTC_OK;
}

CORE optc_status find_input(const optc_binding *b, const char *call, const char *name, bool group,
                            int *out)
{
    const Program *p = b->program;
    for (int k = 0; name && k < p->narray; k++)
        if (p->array[k].kind == MEM_INPUT && !strcmp(p->array[k].name, name)) {
            if (connection_reads(b, k))
                return fail(OPTC_ERROR_ARGUMENT,
                            "%s: optc_connect connected the input '%s' with the state of a "
                            "binding; the caller cannot set it",
                            call, name);
            *out = k;
            if ((p->array[k].dom == GROUP) == group)
                return OPTC_OK;
            return fail(OPTC_ERROR_ARGUMENT, "%s: rule '%s': input '%s' %s", call, p->name, name,
                        group ? "belongs to tensors: use optc_set_input"
                              : "is a scalar: use optc_set_scalar");
        }
    Near near;
    char text[256] = "";
    memset(&near, 0, sizeof near);
    near.want = name ? name : "";
    for (int k = 0; name && k < p->narray; k++)
        if (p->array[k].kind == MEM_INPUT && !is_shared_input(&p->array[k]))
            near_try(&near, p->array[k].name);
    return fail(OPTC_ERROR_ARGUMENT, "%s: rule '%s' has no input '%s'%s", call, p->name,
                name ? name : "(null)", near_print(&near, text, sizeof text));
}

optc_status optc_set_grad(optc_binding *b, int tensor, const void *grad, int64_t count)
{
    optc_status s = check_number(b, "optc_set_grad", tensor, false);
    return s == OPTC_OK ? set_pointer(b, "optc_set_grad", tensor, 1, grad, count) : s;
}

optc_status optc_set_grads(optc_binding *b, const void *const *grads, int n)
{
    optc_status s = OPTC_OK;
    if (!b || !grads || n != b->ntensor)
        return !b || !grads
                   ? fail(OPTC_ERROR_ARGUMENT, "optc_set_grads: %s is NULL",
                          !b ? "the binding" : "the list")
                   : fail(OPTC_ERROR_ARGUMENT,
                          "optc_set_grads: the binding has %d tensors, but n is %d", b->ntensor, n);
    const PointerCall x = pointer_call(b, "optc_set_grads", 1);
    for (int i = 0; i < n && s == OPTC_OK; i++)
        s = grads[i] == b->tensor[i].mem[1] ? OPTC_OK : check_data(b, &x, i, grads[i], 0);
    for (int i = 0; i < n && s == OPTC_OK; i++)
        put_data(b, i, 1, grads[i]);
    b->grads_set = b->grads_set || s == OPTC_OK;
    return s;
}

optc_status optc_set_input(optc_binding *b, int tensor, const char *name, const void *data,
                           int64_t count)
{
    int k = 0;
    optc_status s = check_number(b, "optc_set_input", tensor, false);
    if (s == OPTC_OK)
        s = find_input(b, "optc_set_input", name, false, &k);
    return s == OPTC_OK ? set_pointer(b, "optc_set_input", tensor, k, data, count) : s;
}

optc_status optc_set_scalar(optc_binding *b, int group, const char *name, double value)
{
    int k = 0;
    optc_status s = check_number(b, "optc_set_scalar", group, true);
    if (s == OPTC_OK)
        s = find_input(b, "optc_set_scalar", name, true, &k);
    if (s != OPTC_OK)
        return s;
    /* the groups' values of one scalar are at equal distances in the block (layout.c) */
    size_t pitch = b->ngroup > 1 ? (size_t)((char *)b->group[1].mem[k] - (char *)b->group[0].mem[k])
                                 : sizeof value;
    s = b->rule->device->spread(b, b->group[group < 0 ? 0 : group].mem[k], pitch,
                                group < 0 ? b->ngroup : 1, value, "optc_set_scalar");
    if (s != OPTC_OK)
        return s;
    drop_device_scalars(b, group, 0, k);
    for (int i = 0; i < b->ngroup; i++)
        b->group[i].scalar_set[k] = b->group[i].scalar_set[k] || group < 0 || group == i;
    return OPTC_OK;
}
