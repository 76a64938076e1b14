/* The engine's table of compiled and bound functions of matrices. function.h describes its owner
 * and its limits. */
#include "runtime/core/functions/function.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- an entry's memory ---- */
static int64_t flat_bytes(const FunctionForm *f, int64_t rows, int64_t cols, int64_t size)
{
    return count_up(dom_times(dom_times(rows, cols), dom_times(f->batch, size)), 256) * 256;
}

static bool is_parameter(const MatrixBatch *x) { return x->name && !strcmp(x->name, "p"); }

/* at: may be NULL, to count bytes */
static char *past(char *at, int64_t bytes)
{
    return (char *)((uintptr_t)at + (uintptr_t)bytes);
}

/* Places operands, a parameter that is none of them, results that the spec does not have, and the
 * marks of matrices in memory from `at` on. Returns the bytes of all of them. */
static int64_t place_arrays(const FunctionForm *f, char *at, FunctionEntry *x, char **param)
{
    const int64_t size = number_type[f->compute].bytes;
    int64_t bytes = 0;
    bool among = false;
    for (int i = 0; i < f->nin; i++) {
        x->in[i] = past(at, bytes);
        if (is_parameter(&f->in[i]))
            *param = x->in[i], among = true;
        bytes += flat_bytes(f, f->in[i].rows, f->in[i].cols, size);
    }
    if (!among) {
        *param = past(at, bytes);
        bytes += flat_bytes(f, f->shape[1], f->shape[2], size);
    }
    for (int i = 0; i < f->nout; i++) {
        x->result[i] = is_parameter(&f->out[i]) ? *param : past(at, bytes);
        bytes += f->out[i].name ? 0 : flat_bytes(f, f->out[i].rows, f->out[i].cols, size);
    }
    x->bad = (unsigned *)(void *)past(at, bytes);
    return bytes + flat_bytes(f, 1, 2, sizeof(unsigned));
}

CORE int64_t function_bytes(const FunctionForm *f)
{
    FunctionEntry x;
    char *param;
    return f->scratch ? f->scratch : place_arrays(f, NULL, &x, &param);
}

/* ---- rules: entries of different sizes share one ---- */
static bool same_code(const FunctionForm *a, const FunctionForm *b)
{
    return !strcmp(a->spec, b->spec) && a->compute == b->compute && a->exponent == b->exponent &&
           a->low == b->low;
}

/* Frees the rule with its last entry. Rules of the table are not counted as the engine's, so that
 * the engine can be closed without the caller's help. */
static void give_rule(optc_engine *e, FunctionRule *r)
{
    MatrixFunctions *m = e->functions;
    pthread_mutex_lock(&m->lock);
    bool used = !r || --r->users;
    for (FunctionRule **at = &m->rules; !used && *at; at = &(*at)->next)
        if (*at == r) {
            *at = r->next;
            break;
        }
    pthread_mutex_unlock(&m->lock);
    if (used)
        return;
    __atomic_add_fetch(&e->rules, 1, __ATOMIC_SEQ_CST);
    (void)optc_release(r->rule);
    free(r);
}

static optc_status take_rule(optc_engine *e, const FunctionForm *f, FunctionRule **out)
{
    MatrixFunctions *m = e->functions;
    pthread_mutex_lock(&m->lock);
    FunctionRule *r = m->rules;
    while (r && !same_code(&r->of, f))
        r = r->next;
    if (r)
        r->users++;
    pthread_mutex_unlock(&m->lock);
    *out = r;
    if (r)
        return OPTC_OK;
    r = (FunctionRule *)calloc(1, sizeof *r);
    if (!r)
        return no_memory(f->call);
    optc_status s = HOST()->function(e, f, &r->rule);
    if (s != OPTC_OK) {
        free(r);
        return s;
    }
    __atomic_sub_fetch(&e->rules, 1, __ATOMIC_SEQ_CST);
    r->rule->root_low = f->low;
    r->of = *f, r->users = 1;
    pthread_mutex_lock(&m->lock);
    r->next = m->rules;
    m->rules = r;
    pthread_mutex_unlock(&m->lock);
    *out = r;
    return OPTC_OK;
}

/* ---- entries ---- */
/* The memory is free for work of `stream` after the entry's last call. The host waits for that call
 * if the stream cannot, or if a caller's allocator may give the memory to another stream at
 * once. stream: of the current call; NULL: the default stream */
static void entry_free(optc_engine *e, FunctionEntry *x, void *stream)
{
    if (e->gpu) {
        const Driver *d = gpu_enter(e->gpu);
        if (x->pending && (e->memory.alloc || d->cuStreamWaitEvent((CUstream)stream, x->done, 0)))
            (void)d->cuEventSynchronize(x->done);
        if (x->done)
            (void)d->cuEventDestroy_v2(x->done);
        gpu_leave(e->gpu, OPTC_OK);
    }
    if (x->b)
        (void)optc_set_stream(x->b, stream);
    (void)optc_unbind(x->b);
    give_rule(e, x->rule);
    matrices_give(e, x->memory, x->own_bytes, stream);
    free(x);
}

static void free_list(optc_engine *e, FunctionEntry *x, void *stream)
{
    for (FunctionEntry *next; x; x = next) {
        next = x->next;
        entry_free(e, x, stream);
    }
}

static optc_status bind_entry(const FunctionForm *f, FunctionEntry *x)
{
    optc_tensor t;
    optc_group g;
    optc_held held;
    char *param;
    memset(&t, 0, sizeof t);
    memset(&g, 0, sizeof g);
    place_arrays(f, x->memory, x, &param);
    t.name = "a", t.param = param, t.rank = 3, t.shape = f->shape;
    g.tensors = &t, g.ntensors = 1, g.hyper = f->hyper, g.nhyper = f->nhyper;
    optc_status s = optc_bind(x->rule->rule, &g, 1, &x->b);
    for (int i = 0; i < f->nin && s == OPTC_OK; i++)
        if (f->in[i].name && x->in[i] != param)
            s = optc_set_input(x->b, 0, f->in[i].name, x->in[i], 0);
    for (int i = 0; i < f->nout && s == OPTC_OK; i++) {
        optc_state_view v;
        memset(&v, 0, sizeof v);
        if (!f->out[i].name || is_parameter(&f->out[i]))
            continue;
        s = optc_state(x->b, 0, f->out[i].name, &v);
        x->result[i] = (char *)v.data;
    }
    if (s == OPTC_OK && optc_binding_held(x->b, &held) == OPTC_OK)
        x->bytes += held.states + held.temporaries + held.workspace;
    return s;
}

static optc_status fill_entry(optc_engine *e, const FunctionForm *f, FunctionEntry *x)
{
    enum { NO_TIMES = 2 };                     /* CU_EVENT_DISABLE_TIMING */
    int64_t bytes = function_bytes(f);
    void *memory;
    if (e->gpu)
        TRY(e->gpu, cuEventCreate(&x->done, NO_TIMES), f->call);
    optc_status s = f->scratch ? OPTC_OK : take_rule(e, f, &x->rule);
    if (s == OPTC_OK)
        s = matrices_take(e, f->call, bytes, f->stream, &memory);
    if (s != OPTC_OK)
        return s;
    x->memory = (char *)memory;
    x->own_bytes = x->bytes = bytes;
    x->bad = (unsigned *)memory;
    return f->scratch ? OPTC_OK : bind_entry(f, x);
}

static optc_status make_entry(optc_engine *e, const FunctionForm *f, FunctionEntry **out)
{
    FunctionEntry *x = (FunctionEntry *)calloc(1, sizeof *x);
    if (!x)
        return no_memory(f->call);
    x->of = *f;
    optc_status s = fill_entry(e, f, x);
    if (s != OPTC_OK) {
        char why[MOST_MESSAGE];
        snprintf(why, sizeof why, "%s", optc_message());
        entry_free(e, x, f->stream);
        return strncmp(why, f->call, strlen(f->call)) ? fail(s, "%s: %.1900s", f->call, why)
                                                      : fail(s, "%s", why);
    }
    *out = x;
    return OPTC_OK;
}

/* ---- the table ---- */
/* numbers: only an entry with the call's numbers */
static FunctionEntry *unlink_entry(FunctionEntry **list, const FunctionForm *f, bool numbers)
{
    for (FunctionEntry *x; (x = *list); list = &x->next) {
        const FunctionForm *of = &x->of;
        bool same = same_code(of, f) && of->scratch == f->scratch && of->nout == f->nout &&
                    !memcmp(of->shape, f->shape, sizeof f->shape);
        for (int i = 0; i < 2; i++)
            same = same && of->in[i].rows == f->in[i].rows && of->in[i].cols == f->in[i].cols;
        for (int i = 0; numbers && i < f->nhyper; i++)
            same = same && of->hyper[i].value == f->hyper[i].value;
        if (same) {
            *list = x->next;
            return x;
        }
    }
    return NULL;
}

CORE optc_status function_take(optc_engine *e, const FunctionForm *f, bool capturing,
                               FunctionEntry **out)
{
    MatrixFunctions *m = e->functions;
    pthread_mutex_lock(&m->lock);
    FunctionEntry *x = unlink_entry(&m->idle, f, capturing);
    /* captures without a call between them share an entry */
    if (!x && capturing)
        x = unlink_entry(&m->captured, f, true);
    pthread_mutex_unlock(&m->lock);
    if (!x && capturing)
        return fail(OPTC_ERROR_ARGUMENT,
                    "%s: the first call for these sizes, type and numbers allocates memory, which "
                    "is not possible in a capture; make one call before capturing",
                    f->call);
    optc_status s = x ? OPTC_OK : make_entry(e, f, &x);
    if (s == OPTC_ERROR_MEMORY && optc_functions_drop(e) == OPTC_OK)
        s = make_entry(e, f, &x);
    if (s == OPTC_OK)
        x->of.group = f->group;
    *out = x;
    return s;
}

/* Cuts the list behind the entries that may stay. The last entry used, and others of the same call,
 * stay in any case: a capture after the call needs all of them. */
static FunctionEntry *beyond_limits(FunctionEntry *list)
{
    int64_t bytes = 0;
    int n = 1;
    for (FunctionEntry **at = &list->next, *x; (x = *at); at = &x->next) {
        if (x->of.group && x->of.group == list->of.group)
            continue;
        bytes += x->bytes;
        if (++n > MOST_FUNCTIONS || bytes > MOST_FUNCTION_BYTES) {
            *at = NULL;
            return x;
        }
    }
    return NULL;
}

/* The entry's next call waits for this one. A captured call is ordered by its graph: its event
 * would be the graph's. */
static void mark_done(optc_engine *e, FunctionEntry *x, void *stream, bool captured)
{
    const Driver *d = gpu_enter(e->gpu);
    if (x->b)
        (void)optc_set_stream(x->b, NULL);
    if (!captured) {
        x->pending = d->cuEventRecord(x->done, (CUstream)stream) == 0;
        if (!x->pending)
            (void)d->cuStreamSynchronize((CUstream)stream);
    }
    gpu_leave(e->gpu, OPTC_OK);
}

CORE void function_put(optc_engine *e, FunctionEntry *x, void *stream, bool captured)
{
    MatrixFunctions *m = e->functions;
    if (e->gpu)
        mark_done(e, x, stream, captured);
    pthread_mutex_lock(&m->lock);
    FunctionEntry **list = captured ? &m->captured : &m->idle;
    x->next = *list;
    *list = x;
    FunctionEntry *gone = captured ? NULL : beyond_limits(x);
    pthread_mutex_unlock(&m->lock);
    free_list(e, gone, stream);
}

optc_status optc_functions_drop(optc_engine *e)
{
    if (!e)
        return fail(OPTC_ERROR_ARGUMENT, "optc_functions_drop: the engine is NULL");
    MatrixFunctions *m = e->functions;
    pthread_mutex_lock(&m->lock);
    FunctionEntry *all = m->idle;
    m->idle = NULL;
    pthread_mutex_unlock(&m->lock);
    free_list(e, all, NULL);
    return OPTC_OK;
}

optc_status optc_functions_held(optc_engine *e, int64_t *bytes)
{
    if (!e || !bytes)
        return fail(OPTC_ERROR_ARGUMENT, "optc_functions_held: %s is NULL",
                    e ? "the result pointer" : "the engine");
    MatrixFunctions *m = e->functions;
    *bytes = 0;
    pthread_mutex_lock(&m->lock);
    for (int i = 0; i < 2; i++)
        for (const FunctionEntry *x = i ? m->captured : m->idle; x; x = x->next)
            *bytes += x->bytes;
    pthread_mutex_unlock(&m->lock);
    return OPTC_OK;
}

CORE void functions_close(optc_engine *e)
{
    if (!e->functions)
        return;
    free_list(e, e->functions->captured, NULL);
    e->functions->captured = NULL;
    (void)optc_functions_drop(e);
}
