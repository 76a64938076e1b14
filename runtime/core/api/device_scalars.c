/* Device scalars: hyperparameters and scalar inputs that a run reads from the caller's memory
 * before it starts, and the guard, which makes a run do nothing while it is not 0.
 *
 * The binding stores their addresses. A GPU reads them in a launch of its own (gpu_guard.c): the
 * host does not wait, and every replay of a captured step reads them again. On other devices the
 * host reads them into Group.hyper, and skips the run if the guard is not 0. */
#include "runtime/core/api/api.h"

#include <string.h>

static Type scalar_type(optc_type t) { return t == OPTC_DEFAULT ? T_F32 : (Type)((int)t - 1); }

static optc_status check_from(const optc_binding *b, const char *call, int group,
                              const void *from, optc_type type)
{
    if (!b)
        return fail(OPTC_ERROR_ARGUMENT, "%s: the binding is NULL", call);
    if (type != OPTC_DEFAULT && type != OPTC_F32 && type != OPTC_F64)
        return fail(OPTC_ERROR_ARGUMENT,
                    "%s: the type of a number in memory must be OPTC_F32 or OPTC_F64", call);
    size_t size = (size_t)b->program->type[scalar_type(type)].bytes;
    if ((uintptr_t)from % size)
        return fail(OPTC_ERROR_ARGUMENT, "%s: the pointer %p is not aligned to a number of %d "
                                         "bytes", call, from, (int)size);
    return group < -1 || group >= b->ngroup
               ? fail(OPTC_ERROR_ARGUMENT, "%s: there is no group %d", call, group)
               : OPTC_OK;
}

static DeviceScalar source_from(const void *from, optc_type type, int group, int at, int input)
{
    DeviceScalar s;
    s.from = from;
    s.type = scalar_type(type);
    s.group = group, s.at = at, s.input = input;
    s.set = 0;
    return s;
}

static optc_status read_ahead(optc_binding *b, const void *from, bool guard, const char *call)
{
    return from && b->rule->device->read_ahead ? b->rule->device->read_ahead(b, from, guard, call)
                                               : OPTC_OK;
}

static optc_status make_room(optc_binding *b, int more, const char *call)
{
    if (b->nsource + more <= b->most_source)
        return OPTC_OK;
    int most = 2 * (b->nsource + more);
    DeviceScalar *s = TAKE(b, DeviceScalar, most);
    if (!s)
        return no_memory(call);
    if (b->nsource)
        memcpy(s, b->source, sizeof *s * (size_t)b->nsource);
    b->source = s;
    b->most_source = most;
    return OPTC_OK;
}

CORE void drop_device_scalars(optc_binding *b, int group, int at, int input)
{
    int kept = 0;
    for (int i = 0; i < b->nsource; i++) {
        const DeviceScalar *s = &b->source[i];
        if (s->at != at || s->input != input || (group >= 0 && s->group != group))
            b->source[kept++] = *s;
    }
    b->nsource = kept;
}

static const DeviceScalar *find_device_scalar(const optc_binding *b, int group, int at, int input)
{
    for (int i = 0; i < b->nsource; i++)
        if (b->source[i].at == at && b->source[i].input == input && b->source[i].group == group)
            return &b->source[i];
    return NULL;
}

CORE const DeviceScalar *hyper_device_scalar(const optc_binding *b, int group, int at)
{
    return find_device_scalar(b, group, at, 0);
}

CORE bool scalar_known(const optc_binding *b, int group, int input)
{
    return b->group[group].scalar_set[input] || find_device_scalar(b, group, 0, input);
}

CORE void device_scalars_done(optc_binding *b)
{
    for (int i = 0; i < b->nsource; i++)
        if (!b->source[i].at)
            b->group[b->source[i].group].scalar_set[b->source[i].input] = true;
}

/* Restores the values that hyperparameters had before. If that fails, runs continue to read them
 * from memory. */
static optc_status end_device_scalars(optc_binding *b, const char *call, const DeviceScalar *x)
{
    optc_status s = OPTC_OK;
    for (int i = 0; i < b->ngroup && s == OPTC_OK && x->at; i++) {
        const DeviceScalar *was =
            x->group < 0 || x->group == i ? hyper_device_scalar(b, i, x->at) : NULL;
        s = was ? put_hyper(b, i, x->at, was->set, call) : OPTC_OK;
    }
    if (s == OPTC_OK)
        drop_device_scalars(b, x->group, x->at, x->input);
    b->complete = b->complete && x->at;            /* a scalar input may have lost its value */
    return s;
}

/* group -1: all */
static optc_status add(optc_binding *b, const char *call, DeviceScalar x)
{
    if (!x.from)
        return end_device_scalars(b, call, &x);
    optc_status s = make_room(b, b->ngroup, call);
    if (s == OPTC_OK)
        s = read_ahead(b, x.from, false, call);
    for (int i = 0; i < b->ngroup && s == OPTC_OK; i++) {
        DeviceScalar one = x,
                     *was = (DeviceScalar *)(uintptr_t)find_device_scalar(b, i, x.at, x.input);
        if (x.group >= 0 && x.group != i)
            continue;
        one.group = i;
        one.set = was ? was->set : x.at ? b->group[i].hyper[x.at] : 0;
        *(was ? was : &b->source[b->nsource++]) = one;
    }
    return s;
}

optc_status optc_set_hyper_from(optc_binding *b, int group, const char *name, const void *at,
                                optc_type type)
{
    static const char call[] = "optc_set_hyper_from";
    int k = 0;
    optc_status s = check_from(b, call, group, at, type);
    if (s == OPTC_OK)
        s = find_hyper(b->program, call, name, &k);
    return s == OPTC_OK ? add(b, call, source_from(at, type, group, k + 1, 0)) : s;
}

optc_status optc_set_scalar_from(optc_binding *b, int group, const char *name, const void *at,
                                 optc_type type)
{
    static const char call[] = "optc_set_scalar_from";
    int k = 0;
    optc_status s = check_from(b, call, group, at, type);
    if (s == OPTC_OK)
        s = find_input(b, call, name, true, &k);
    return s == OPTC_OK ? add(b, call, source_from(at, type, group, 0, k)) : s;
}

optc_status optc_set_guard(optc_binding *b, const void *at, optc_type type)
{
    optc_status s = check_from(b, "optc_set_guard", -1, at, type);
    if (s == OPTC_OK)
        s = read_ahead(b, at, true, "optc_set_guard");
    if (s == OPTC_OK)
        b->guard = source_from(at, type, -1, 0, 0);
    return s;
}

/* ---- reads by the host ---- */
CORE optc_status device_scalar_now(const optc_binding *b, const DeviceScalar *s, const char *call,
                                   double *out)
{
    double room = 0;                              /* holds an f32 or an f64 */
    optc_status rc =
        b->rule->device->read(b, &room, s->from, (size_t)b->program->type[s->type].bytes, call);
    if (rc == OPTC_OK)
        *out = type_load(s->type, &room, 0);
    return rc;
}

CORE optc_status guard_refused(const optc_binding *b)
{
    return fail(OPTC_ERROR_ARGUMENT,
                "optc_run: rule '%s' has products or exchanges that the device cannot skip by "
                "itself; the host must read the guard, which is not possible in a capture: run it "
                "outside, or remove the guard and run one step before capturing",
                b->program->name);
}

CORE optc_status device_scalars_read(optc_binding *b, bool *skip)
{
    double x = 0;
    bool reads = b->guard.from && host_guards(b);
    optc_status s = reads ? device_scalar_now(b, &b->guard, "optc_run", &x) : OPTC_OK;
    if (s == OPTC_ERROR_ARGUMENT)
        return guard_refused(b);
    *skip = !(x == 0);
    for (int i = 0; i < b->nsource && s == OPTC_OK && !*skip && b->rule->device->reaches; i++) {
        const DeviceScalar *from = &b->source[i];
        s = device_scalar_now(b, from, "optc_run", &x);
        for (int r = 0; r < b->ncohort && s == OPTC_OK && from->at; r++)
            if (b->group[r].of == from->group)
                b->group[r].hyper[from->at] = x;
        if (s == OPTC_OK && !from->at)
            *(double *)b->group[from->group].mem[from->input] = x;
    }
    return s;
}
