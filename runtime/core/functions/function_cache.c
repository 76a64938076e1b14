/* The engine's table of compiled and bound functions of matrices. function.h describes its owner
 * and its limits. */
#include "runtime/core/functions/function.h"

#include "gen/abi/hash.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- an entry's memory ---- */
static int64_t slot_bytes(const FunctionForm *f, const FunctionSlot *s)
{
    int64_t bytes =
        dom_times(dom_times(s->rows, s->cols), dom_times(f->batch, number_type[f->compute].bytes));
    return count_up(bytes, 256) * 256;
}

/* Results that the spec does not have are in the entry's own memory. */
static int64_t result_bytes(const FunctionForm *f, int i)
{
    return f->out[i].name ? 0 : slot_bytes(f, &f->out[i]);
}

static bool is_parameter(const FunctionSlot *s) { return s->name && !strcmp(s->name, "p"); }

static bool takes_parameter(const FunctionForm *f)
{
    for (int i = 0; i < f->nin; i++)
        if (is_parameter(&f->in[i]))
            return true;
    return false;
}

static int64_t parameter_bytes(const FunctionForm *f)
{
    FunctionSlot s;
    memset(&s, 0, sizeof s);
    s.rows = f->shape[1], s.cols = f->shape[2];
    return takes_parameter(f) ? 0 : slot_bytes(f, &s);
}

CORE int64_t function_bytes(const FunctionForm *f)
{
    int64_t bytes = parameter_bytes(f) +
                    count_up(dom_times(2 * (int64_t)sizeof(unsigned), f->batch), 256) * 256;
    for (int i = 0; i < f->nin; i++)
        bytes += slot_bytes(f, &f->in[i]);
    for (int i = 0; i < f->nout; i++)
        bytes += result_bytes(f, i);
    return bytes;
}

static optc_status take_entry_memory(optc_engine *e, const FunctionForm *f, FunctionEntry *x)
{
    void *p = NULL;
    int64_t bytes = f->scratch ? f->scratch : function_bytes(f);
    optc_status s = matrices_take(e, f->call, bytes, f->stream, &p);
    x->memory = (char *)p;
    x->own_bytes = s == OPTC_OK ? bytes : 0;
    return s;
}

/* ---- rules: entries of different sizes share one ---- */
static void rule_free(optc_engine *e, FunctionRule *r)
{
    if (r->rule) {
        __atomic_add_fetch(&e->rules, 1, __ATOMIC_SEQ_CST);
        (void)optc_release(r->rule);
    }
    free(r);
}

/* Frees the rules without entries beyond the `most` last ones. */
static void trim_rules(optc_engine *e, int most)
{
    MatrixFunctions *m = e->functions;
    FunctionRule *gone = NULL;
    int n = 0;
    pthread_mutex_lock(&m->lock);
    for (FunctionRule **at = &m->rules; *at;) {
        FunctionRule *r = *at;
        if (++n <= most || r->users) {
            at = &r->next;
            continue;
        }
        *at = r->next;
        r->next = gone;
        gone = r;
    }
    pthread_mutex_unlock(&m->lock);
    for (FunctionRule *next; gone; gone = next) {
        next = gone->next;
        rule_free(e, gone);
    }
}

static FunctionRule *find_rule(optc_engine *e, const char *key)
{
    MatrixFunctions *m = e->functions;
    pthread_mutex_lock(&m->lock);
    FunctionRule *r = m->rules;
    while (r && strcmp(r->key, key))
        r = r->next;
    if (r)
        r->users++;
    pthread_mutex_unlock(&m->lock);
    return r;
}

/* Two hashes of 64 bits, as text. */
static void text_key(const char *text, size_t n, char key[FUNCTION_KEY])
{
    snprintf(key, FUNCTION_KEY, "%016llx%016llx", (unsigned long long)hash_bytes(1, text, n),
             (unsigned long long)hash_bytes(2, text, n));
}

/* Rules of the table are not counted as the engine's, so that the engine can be closed without the
 * caller's help. */
static optc_status take_rule(optc_engine *e, const FunctionForm *f, FunctionRule **out)
{
    MatrixFunctions *m = e->functions;
    char all[MOST_SPEC + 80], key[FUNCTION_KEY];
    int n = snprintf(all, sizeof all, "%s|%s|%a|%a", f->spec, number_type[f->compute].name,
                     f->exponent, f->low);
    text_key(all, (size_t)n, key);
    if ((*out = find_rule(e, key)))
        return OPTC_OK;
    FunctionRule *r = (FunctionRule *)calloc(1, sizeof *r);
    if (!r)
        return no_memory(f->call);
    optc_status s = HOST()->function(e, f, &r->rule);
    if (s != OPTC_OK) {
        free(r);
        return s;
    }
    __atomic_sub_fetch(&e->rules, 1, __ATOMIC_SEQ_CST);
    r->rule->root_low = f->low;
    memcpy(r->key, key, sizeof key);
    r->users = 1;
    pthread_mutex_lock(&m->lock);
    r->next = m->rules;
    m->rules = r;
    pthread_mutex_unlock(&m->lock);
    trim_rules(e, MOST_FUNCTION_RULES);
    *out = r;
    return OPTC_OK;
}

static void give_rule(optc_engine *e, FunctionRule *r)
{
    if (!r)
        return;
    pthread_mutex_lock(&e->functions->lock);
    r->users--;
    pthread_mutex_unlock(&e->functions->lock);
}

/* ---- entries ---- */
/* The memory is free for work of `stream` after the entry's last call. The host waits for that call
 * if the stream cannot, or if a caller's allocator may give the memory to another stream at
 * once. */
static void settle_entry(optc_engine *e, FunctionEntry *x, void *stream)
{
    const Driver *d = e->gpu->d;
    if (x->pending && (e->memory.alloc || d->cuStreamWaitEvent((CUstream)stream, x->done, 0)))
        (void)d->cuEventSynchronize(x->done);
    if (x->done)
        (void)d->cuEventDestroy_v2(x->done);
}

/* stream: of the current call; NULL: the default stream */
static void entry_free(optc_engine *e, FunctionEntry *x, void *stream)
{
    if (e->gpu) {
        gpu_enter(e->gpu);
        settle_entry(e, x, stream);
        gpu_leave(e->gpu, OPTC_OK);
    }
    if (x->b)
        (void)optc_set_stream(x->b, stream);
    (void)optc_unbind(x->b);
    give_rule(e, x->rule);
    matrices_give(e, x->memory, x->own_bytes, stream);
    free(x);
}

static optc_status bind_entry(const FunctionForm *f, FunctionEntry *x)
{
    if (f->scratch) {
        x->bad = (unsigned *)(void *)x->memory;
        return OPTC_OK;
    }
    char *at = x->memory, *param = NULL;
    for (int i = 0; i < f->nin; i++, at += slot_bytes(f, &f->in[i - 1])) {
        x->in[i] = at;
        param = is_parameter(&f->in[i]) ? at : param;
    }
    param = param ? param : at;
    at += parameter_bytes(f);
    for (int i = 0; i < f->nout; i++, at += result_bytes(f, i - 1))
        x->result[i] = at;
    x->bad = (unsigned *)(void *)at;
    optc_tensor t;
    optc_group g;
    memset(&t, 0, sizeof t);
    memset(&g, 0, sizeof g);
    t.name = "a", t.param = param, t.rank = 3, t.shape = f->shape;
    g.tensors = &t, g.ntensors = 1, g.hyper = f->hyper, g.nhyper = f->nhyper;
    optc_status s = optc_bind(x->rule->rule, &g, 1, &x->b);
    for (int i = 0; i < f->nin && s == OPTC_OK; i++)
        if (f->in[i].name && x->in[i] != param)
            s = optc_set_input(x->b, 0, f->in[i].name, x->in[i], 0);
    for (int i = 0; i < f->nout && s == OPTC_OK; i++) {
        optc_state_view v;
        memset(&v, 0, sizeof v);
        v.data = f->out[i].name ? param : x->result[i];
        if (f->out[i].name && !is_parameter(&f->out[i]))
            s = optc_state(x->b, 0, f->out[i].name, &v);
        x->result[i] = (char *)v.data;
    }
    return s;
}

static optc_status make_event(optc_engine *e, const FunctionForm *f, FunctionEntry *x)
{
    enum { NO_TIMES = 2 };                     /* CU_EVENT_DISABLE_TIMING */
    if (e->gpu)
        TRY(e->gpu, cuEventCreate(&x->done, NO_TIMES), f->call);
    return OPTC_OK;
}

static void entry_key(const FunctionForm *f, char key[FUNCTION_KEY])
{
    char all[MOST_SPEC + 240];
    int n =
        snprintf(all, sizeof all, "%s|%s|%a|%a|%lld,%lld,%lld,%lld,%lld,%d,%lld", f->spec,
                 number_type[f->compute].name, f->exponent, f->low, (long long)f->batch,
                 (long long)f->shape[1], (long long)f->shape[2], (long long)f->in[0].rows,
                 (long long)(f->nin ? f->in[f->nin - 1].cols : 0), f->nout, (long long)f->scratch);
    text_key(all, (size_t)n, key);
}

static optc_status make_entry(optc_engine *e, const FunctionForm *f, const char *key,
                              FunctionEntry **out)
{
    FunctionEntry *x = (FunctionEntry *)calloc(1, sizeof *x);
    if (!x)
        return no_memory(f->call);
    snprintf(x->key, sizeof x->key, "%s", key);
    optc_status s = make_event(e, f, x);
    if (s == OPTC_OK && !f->scratch)
        s = take_rule(e, f, &x->rule);
    if (s == OPTC_OK)
        s = take_entry_memory(e, f, x);
    if (s == OPTC_OK)
        s = bind_entry(f, x);
    if (s != OPTC_OK) {
        char why[MOST_MESSAGE];
        snprintf(why, sizeof why, "%s", optc_message());
        entry_free(e, x, f->stream);
        return strncmp(why, f->call, strlen(f->call)) ? fail(s, "%s: %.1900s", f->call, why)
                                                      : fail(s, "%s", why);
    }
    optc_held held;
    x->bytes = x->own_bytes;
    if (x->b && optc_binding_held(x->b, &held) == OPTC_OK)
        x->bytes += held.states + held.temporaries + held.workspace;
    for (int i = 0; i < f->nhyper; i++)
        x->hyper[i] = f->hyper[i].value;
    *out = x;
    return OPTC_OK;
}

/* ---- the table ---- */
static bool same_numbers(const FunctionEntry *x, const FunctionForm *f)
{
    for (int i = 0; i < f->nhyper; i++)
        if (x->hyper[i] != f->hyper[i].value)
            return false;
    return true;
}

static FunctionEntry *unlink_entry(FunctionEntry **list, const FunctionForm *f, const char *key,
                                   bool numbers)
{
    for (; *list; list = &(*list)->next)
        if (!strcmp((*list)->key, key) && (!numbers || same_numbers(*list, f))) {
            FunctionEntry *x = *list;
            *list = x->next;
            x->next = NULL;
            return x;
        }
    return NULL;
}

CORE optc_status function_take(optc_engine *e, const FunctionForm *f, bool capturing,
                               FunctionEntry **out)
{
    MatrixFunctions *m = e->functions;
    char key[FUNCTION_KEY];
    entry_key(f, key);
    pthread_mutex_lock(&m->lock);
    FunctionEntry *x = unlink_entry(&m->idle, f, key, capturing);
    /* captures without a call between them share an entry */
    if (!x && capturing)
        x = unlink_entry(&m->captured, f, key, true);
    pthread_mutex_unlock(&m->lock);
    *out = x;
    if (x) {
        x->group = f->group;
        return OPTC_OK;
    }
    if (capturing)
        return fail(OPTC_ERROR_ARGUMENT,
                    "%s: the first call for these sizes, type and numbers allocates memory, which "
                    "is not possible in a capture; make one call before capturing",
                    f->call);
    optc_status s = make_entry(e, f, key, out);
    if (s == OPTC_ERROR_MEMORY && optc_functions_drop(e) == OPTC_OK)
        s = make_entry(e, f, key, out);
    if (s == OPTC_OK)
        (*out)->group = f->group;
    return s;
}

/* The last entry used, and others of the same call, stay in any case: a capture after the call
 * needs all of them. */
static bool of_last_call(const FunctionEntry *list, const FunctionEntry *x)
{
    return x == list || (x->group && x->group == list->group);
}

/* Cuts the list behind the entries that may stay. */
static FunctionEntry *beyond_limits(FunctionEntry *list)
{
    int64_t bytes = 0;
    int n = 0;
    for (FunctionEntry *x = list; x; x = x->next) {
        bytes += of_last_call(list, x) ? 0 : x->bytes;
        n += !of_last_call(list, x);
        if (x->next && !of_last_call(list, x->next) &&
            (n == MOST_FUNCTIONS - 1 || bytes + x->next->bytes > MOST_FUNCTION_BYTES)) {
            FunctionEntry *gone = x->next;
            x->next = NULL;
            return gone;
        }
    }
    return NULL;
}

static void free_list(optc_engine *e, FunctionEntry *x, void *stream)
{
    for (FunctionEntry *next; x; x = next) {
        next = x->next;
        entry_free(e, x, stream);
    }
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
    FunctionEntry *gone = captured ? NULL : beyond_limits(m->idle);
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
    trim_rules(e, 0);
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
