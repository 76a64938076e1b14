/* State by name, gradients and inputs by tensor, the step counter. */
#include "gpu.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OPTC_FN static inline __attribute__((unused))
#include "../templates/math.h"
#include "../templates/types.h"

double type_load(Type t, const void *p, int64_t i)
{
    switch (t) {
    case T_F32: return (double)((const float *)p)[i];
    case T_F64: return ((const double *)p)[i];
    case T_BF16: return (double)optc_from_bf16(((const unsigned short *)p)[i]);
    case T_F16: return (double)optc_from_f16(((const unsigned short *)p)[i]);
    default: return NAN;
    }
}

void type_store(Type t, void *p, int64_t i, double x)
{
    switch (t) {
    case T_F32: ((float *)p)[i] = (float)x; break;
    case T_F64: ((double *)p)[i] = x; break;
    case T_BF16: ((unsigned short *)p)[i] = optc_to_bf16((float)x); break;
    case T_F16: ((unsigned short *)p)[i] = optc_to_f16((float)x); break;
    default: break;
    }
}

static void fill(const optc_binding *b, const Mem *m, const State *s, void *dst, const void *param, int64_t n)
{
    Type pt = b->rule->plan->p;
    if (!dst)
        return;
    if (s->init == INIT_COPY_P && pt == m->type)
        memcpy(dst, param, (size_t)n * (size_t)type_info[pt].bytes);
    else if (s->init == INIT_FILL && s->value == 0 && !signbit(s->value))
        memset(dst, 0, (size_t)n * (size_t)type_info[m->type].bytes);
    else
        for (int64_t i = 0; i < n; i++)
            type_store(m->type, dst, i, s->init == INIT_COPY_P ? type_load(pt, param, i) : s->value);
}

/* First touch of all state, in segments by all threads, so that pages lie near who will work on them. */
void init_state(optc_binding *b)
{
    const Plan *p = b->rule->plan;
    for (int k = 0; k < p->nmem; k++) {
        const Mem *m = &p->mem[k];
        if (m->kind == MEM_INPUT && m->dom == GROUP)
            for (int i = 0; i < b->ngroup; i++)
                *(double *)b->group[i].mem[k] = 0;
        if (m->kind != MEM_STATE)
            continue;
        const State *s = &p->rule->state[m->sym];
        for (int i = 0; m->dom == GROUP && i < b->ngroup; i++)
            fill(b, m, s, b->group[i].mem[k], NULL, 1);
        for (int i = 0; m->dom != GROUP && i < b->ntensor; i++) {
            char *dst = b->tensor[i].mem[k];
            const char *src = b->tensor[i].mem[0];
            int64_t n = dom_len(m->dom, b->tensor[i].shape), step = 1 << 16;
            int size = type_info[m->type].bytes, psize = type_info[p->p].bytes;
#pragma omp parallel for schedule(static) num_threads(b->rule->engine->threads) if (n > 4 * step)
            for (int64_t at = 0; at < n; at += step)
                fill(b, m, s, dst ? dst + at * size : NULL, src + at * psize, n - at < step ? n - at : step);
        }
    }
}

static optc_status find_state(const optc_binding *b, const char *call, int tensor, const char *name, optc_state_view *out)
{
    if (!b || !name || !out)
        return fail(OPTC_ERROR_ARGUMENT, "%s: %s is NULL", call, !b ? "the binding" : !name ? "the name" : "the place for the result");
    const Plan *p = b->rule->plan;
    Arena scratch = {0};
    Near near = {.want = name};
    for (int i = 0; i < p->rule->nstate; i++) {
        near_try(&near, p->rule->state[i].name);
        if (strcmp(p->rule->state[i].name, name))
            continue;
        int k = plan_mem_of_state(p, i);
        const Mem *m = &p->mem[k];
        int limit = m->dom == GROUP ? b->ngroup : b->ntensor;
        if (tensor < 0 || tensor >= limit)
            return fail(OPTC_ERROR_ARGUMENT, "%s: there is no %s %d (there are %d)", call, m->dom == GROUP ? "group" : "tensor", tensor, limit);
        void *data = m->dom == GROUP ? b->group[tensor].mem[k] : b->tensor[tensor].mem[k];
        int64_t n = m->dom == GROUP ? 1 : dom_len(m->dom, b->tensor[tensor].shape);
        if (!data && n) {
            char label[96];
            snprintf(label, sizeof label, "group %d", tensor);
            return fail(OPTC_ERROR_ARGUMENT, "%s: %s keeps no state '%s' under this rule's options", call, m->dom == GROUP ? label : tensor_label(b, tensor, label), name);
        }
        *out = (optc_state_view){data, n, public_type(m->type)};
        return OPTC_OK;
    }
    optc_status s = fail(OPTC_ERROR_ARGUMENT, "%s: rule '%s' has no state '%s'%s", call, p->rule->name, name, near_text(&near, &scratch));
    arena_free(&scratch);
    return s;
}

optc_status optc_state(optc_binding *b, int tensor, const char *name, optc_state_view *out) { return find_state(b, "optc_state", tensor, name, out); }

static optc_status sized(const optc_binding *b, const char *call, int tensor, const char *name, const void *buf, int64_t count, optc_state_view *v)
{
    optc_status s = find_state(b, call, tensor, name, v);
    if (s == OPTC_OK && (count != v->count || (!buf && count)))
        s = fail(OPTC_ERROR_ARGUMENT, "%s: state '%s' has %lld values, the buffer %lld", call, name, (long long)v->count, buf ? (long long)count : 0LL);
    return s;
}

/* The state where the host can reach it: itself, or a copy of what lies on the GPU. */
static void *to_host(const optc_binding *b, const optc_state_view *v, bool fetch, optc_status *s)
{
    if (!b->gpu)
        return v->data;
    size_t bytes = (size_t)v->count * (size_t)type_info[inner_type(v->type)].bytes;
    void *p = malloc(bytes + 8);
    if (!p)
        *s = fail(OPTC_ERROR_MEMORY, "optc_state_read: out of memory");
    else if (fetch)
        *s = gpu_read(b, p, v->data, bytes);
    return p;
}

optc_status optc_state_read(const optc_binding *b, int tensor, const char *name, double *out, int64_t count)
{
    optc_state_view v;
    optc_status s = sized(b, "optc_state_read", tensor, name, out, count, &v);
    void *host = s == OPTC_OK ? to_host(b, &v, true, &s) : NULL;
    for (int64_t i = 0; s == OPTC_OK && i < count; i++)
        out[i] = type_load((Type)inner_type(v.type), host, i);
    if (b && b->gpu)
        free(host);
    return s;
}

optc_status optc_state_write(optc_binding *b, int tensor, const char *name, const double *in, int64_t count)
{
    optc_state_view v;
    optc_status s = sized(b, "optc_state_write", tensor, name, in, count, &v);
    void *host = s == OPTC_OK ? to_host(b, &v, false, &s) : NULL;
    for (int64_t i = 0; s == OPTC_OK && i < count; i++)
        type_store((Type)inner_type(v.type), host, i, in[i]);
    if (s == OPTC_OK && b->gpu)
        s = gpu_write(b, v.data, host, (size_t)count * (size_t)type_info[inner_type(v.type)].bytes);
    if (b && b->gpu)
        free(host);
    return s;
}

static optc_status set_pointer(optc_binding *b, const char *call, int tensor, int mem, const void *data, int64_t count)
{
    const Mem *m = &b->rule->plan->mem[mem];
    char label[96];
    tensor_label(b, tensor, label);
    int64_t n = dom_len(m->dom, b->tensor[tensor].shape);
    if (count && count != n)
        return fail(OPTC_ERROR_ARGUMENT, "%s: %s needs %lld values for '%s', got %lld", call, label, (long long)n, m->name, (long long)count);
    if ((uintptr_t)data % (uintptr_t)type_info[m->type].bytes)
        return fail(OPTC_ERROR_ARGUMENT, "%s: %s: the pointer for '%s' is not aligned to its element", call, label, m->name);
    char what[96];
    snprintf(what, sizeof what, "%s: '%.40s'", call, m->name);
    optc_status s = check_overlap(b, tensor, data, n * type_info[m->type].bytes, what);
    if (s == OPTC_OK && b->gpu && data != b->tensor[tensor].mem[mem]) {
        s = gpu_check_pointer(b, tensor, data, what);
        b->gpu->moved = b->gpu->moved || s == OPTC_OK;
    }
    if (s == OPTC_OK) {
        b->tensor[tensor].mem[mem] = (void *)data;
        b->complete = b->complete && data;
    }
    return s;
}

optc_status optc_set_grad(optc_binding *b, int tensor, const void *grad, int64_t count)
{
    if (!b || tensor < 0 || tensor >= b->ntensor)
        return fail(OPTC_ERROR_ARGUMENT, !b ? "optc_set_grad: the binding is NULL" : "optc_set_grad: there is no tensor %d", tensor);
    return set_pointer(b, "optc_set_grad", tensor, 1, grad, count);
}

static int find_input(const optc_binding *b, const char *name)
{
    const Plan *p = b->rule->plan;
    for (int k = 0; name && k < p->nmem; k++)
        if (p->mem[k].kind == MEM_INPUT && !strcmp(p->mem[k].name, name))
            return k;
    return -1;
}

optc_status optc_set_input(optc_binding *b, int tensor, const char *name, const void *data, int64_t count)
{
    if (!b || tensor < 0 || tensor >= b->ntensor)
        return fail(OPTC_ERROR_ARGUMENT, !b ? "optc_set_input: the binding is NULL" : "optc_set_input: there is no tensor %d", tensor);
    int k = find_input(b, name);
    if (k < 0 || b->rule->plan->mem[k].dom == GROUP)
        return fail(OPTC_ERROR_ARGUMENT, k < 0 ? "optc_set_input: rule '%s' has no input '%s'" : "optc_set_input: rule '%s': input '%s' is a scalar: use optc_set_scalar",
                    b->rule->rule->name, name ? name : "(null)");
    return set_pointer(b, "optc_set_input", tensor, k, data, count);
}

optc_status optc_set_scalar(optc_binding *b, int group, const char *name, double value)
{
    if (!b || group < -1 || group >= b->ngroup)
        return fail(OPTC_ERROR_ARGUMENT, !b ? "optc_set_scalar: the binding is NULL" : "optc_set_scalar: there is no group %d", group);
    int k = find_input(b, name);
    if (k < 0 || b->rule->plan->mem[k].dom != GROUP)
        return fail(OPTC_ERROR_ARGUMENT, k < 0 ? "optc_set_scalar: rule '%s' has no input '%s'" : "optc_set_scalar: rule '%s': input '%s' belongs to tensors: use optc_set_input",
                    b->rule->rule->name, name ? name : "(null)");
    for (int i = 0; i < b->ngroup; i++)
        if (group == -1 || group == i) {
            optc_status s = OPTC_OK;
            if (b->gpu)
                s = gpu_send(b, b->group[i].mem[k], &value, sizeof value, "optc_set_scalar");
            else
                *(double *)b->group[i].mem[k] = value;
            if (s != OPTC_OK)
                return s;
        }
    return OPTC_OK;
}

optc_status optc_get_t(const optc_binding *b, int64_t *steps)
{
    if (!b || !steps)
        return fail(OPTC_ERROR_ARGUMENT, "optc_get_t: NULL");
    if (b->gpu && b->gpu->captured && b->rule->gpu->needs_t)          /* replays of a captured step move t on the device alone */
        return gpu_read_t(b, steps);
    *steps = b->steps;
    return OPTC_OK;
}

optc_status optc_set_t(optc_binding *b, int64_t steps)
{
    if (!b || steps < 0 || steps > ((int64_t)1 << 52))
        return fail(OPTC_ERROR_ARGUMENT, !b ? "optc_set_t: the binding is NULL" : "optc_set_t: %lld steps", (long long)steps);
    for (int i = 0; b->gpu && i < b->ngroup; i++) {
        double was = b->group[i].hyper[0];
        b->group[i].hyper[0] = (double)steps;
        optc_status s = gpu_send_hyper(b, i, 0, 1);
        if (s != OPTC_OK)
            return b->group[i].hyper[0] = was, s;
    }
    b->steps = steps;
    return OPTC_OK;
}
