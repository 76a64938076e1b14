#include "tests/log/log_model.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

EmuDriver emu;
const char *log_title;

void log_end(void)
{
    emu.log_rank(-1, "");
    emu.log_finish(stdout, log_title);
}

static void fail(const char *what, const char *why)
{
    printf("%s | failed: %s: %s\n", log_title, what, why);
    if (emu.log_finish)
        log_end();
    fflush(stdout);
    _exit(0);
}

void check(bool ok, const char *what)
{
    if (!ok)
        fail(what, "");
}

void must(optc_status s, const char *what)
{
    if (s != OPTC_OK)
        fail(what, optc_message());
}

void emu_open(void)
{
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL), *context;
    int (*init)(unsigned), (*retain)(void **, int), (*set)(void *);
    const struct { void *to; const char *name; } functions[] = {
        {&init, "cuInit"},
        {&retain, "cuDevicePrimaryCtxRetain"},
        {&set, "cuCtxSetCurrent"},
        {&emu.alloc, "cuMemAlloc_v2"},
        {&emu.release, "cuMemFree_v2"},
        {&emu.put, "cuMemcpyHtoD_v2"},
        {&emu.stream_create, "cuStreamCreate"},
        {&emu.stream_destroy, "cuStreamDestroy_v2"},
        {&emu.stream_wait, "cuStreamSynchronize"},
        {&emu.begin_capture, "cuStreamBeginCapture_v2"},
        {&emu.end_capture, "cuStreamEndCapture"},
        {&emu.instantiate, "cuGraphInstantiateWithFlags"},
        {&emu.launch, "cuGraphLaunch"},
        {&emu.graph_destroy, "cuGraphDestroy"},
        {&emu.exec_destroy, "cuGraphExecDestroy"},
        {&emu.clock, "emu_clock"},
        {&emu.log_begin, "emu_log_begin"},
        {&emu.log_rank, "emu_log_rank"},
        {&emu.log_mark, "emu_log_mark"},
        {&emu.log_note, "emu_log_note"},
        {&emu.log_name, "emu_log_name"},
        {&emu.log_finish, "emu_log_finish"},
    };
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
        void *f = driver ? dlsym(driver, functions[i].name) : NULL;
        check(f != NULL, functions[i].name);
        memcpy(functions[i].to, &f, sizeof f);
    }
    check(!init(0) && !retain(&context, 0) && !set(context), "a context of the emulated GPU");
}

/* The library's clocks, which live tuning reads, advance only by what the GPU executes. */
double __wrap_now_ms(void);
double __wrap_now_ms(void) { return emu.clock ? emu.clock() : 0; }
double __wrap_waited_ms(void);
double __wrap_waited_ms(void) { return 0; }

/* Live tuning compiles in a thread, and uses the result when it is there. Here it is always
 * there. */
bool threads_at_once;
int __real_pthread_create(pthread_t *t, const pthread_attr_t *a, void *(*run)(void *), void *data);
int __wrap_pthread_create(pthread_t *t, const pthread_attr_t *a, void *(*run)(void *), void *data);
int __wrap_pthread_create(pthread_t *t, const pthread_attr_t *a, void *(*run)(void *), void *data)
{
    if (!threads_at_once)
        return __real_pthread_create(t, a, run, data);
    run(data);
    return *t = pthread_self(), 0;
}
int __real_pthread_join(pthread_t t, void **result);
int __wrap_pthread_join(pthread_t t, void **result);
int __wrap_pthread_join(pthread_t t, void **result)
{
    return pthread_equal(t, pthread_self()) ? 0 : __real_pthread_join(t, result);
}

/* ---- memory of the caller, which is not logged ---- */
static void quiet(const Model *m, bool on)
{
    emu.log_rank(on ? -1 : m->rank, m->label);
}

static void *take(const char *name, int64_t bytes)
{
    unsigned long long at = 0;
    check(!emu.alloc(&at, (size_t)bytes), "cuMemAlloc");
    emu.log_name((const void *)(uintptr_t)at, (size_t)bytes, name);
    return (void *)(uintptr_t)at;
}

void *number_make(const char *name, float value)
{
    void *at = take(name, 4);
    number_set(at, value);
    return at;
}

void number_set(void *at, float value)
{
    check(!emu.put((uintptr_t)at, &value, 4), "cuMemcpyHtoD");
}

static size_t width(const Model *m)
{
    return m->type == OPTC_F64 ? 8 : m->type == OPTC_F32 ? 4 : 2;
}

static void store(const Model *m, void *to, int64_t i, float x)
{
    uint32_t bits;
    memcpy(&bits, &x, 4);
    if (m->type == OPTC_F64)
        ((double *)to)[i] = x;
    else if (m->type == OPTC_F32)
        ((float *)to)[i] = x;
    else                                       /* bf16 */
        ((uint16_t *)to)[i] = (uint16_t)(bits >> 16);
}

/* Values in [-0.5, 0.5) that differ from tensor to tensor, element to element and step to step. */
static float value_of(int tensor, int64_t i, int64_t step)
{
    uint64_t x = (uint64_t)tensor * 0x9e3779b97f4a7c15u + (uint64_t)i * 0xbf58476d1ce4e5b9u +
                 (uint64_t)step * 0x94d049bb133111ebu;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    return (float)((double)(x >> 40) * 0x1p-24 - 0.5);
}

/* The piece's elements have the values that they have in the whole tensor, cut along dimension
 * 0. */
static void fill(const Model *m, void *to, int k, int64_t step)
{
    const LogTensor *t = &m->set->tensor[k];
    void *host = malloc((size_t)m->count[k] * 8 + 8);
    int64_t first = 1;
    for (int d = 1; d < t->rank; d++)
        first *= t->dim[d];
    first *= t->rank ? m->offset[k][0] : 0;
    check(host != NULL, "malloc");
    for (int64_t i = 0; i < m->count[k]; i++)
        store(m, host, i, value_of(k, first + i, step));
    check(!m->count[k] || !emu.put((uintptr_t)to, host, (size_t)m->count[k] * width(m)),
          "cuMemcpyHtoD");
    free(host);
}

/* Pieces as torch.chunk makes them. */
static void cut(Model *m, int k)
{
    const LogTensor *t = &m->set->tensor[k];
    m->count[k] = 1;
    for (int d = 0; d < t->rank; d++) {
        const int64_t each = (t->dim[d] + m->ranks - 1) / m->ranks, at = each * m->rank;
        m->dim[k][d] = t->dim[d];
        m->offset[k][d] = 0;
        if (d == 0 && m->ranks > 1) {
            m->offset[k][d] = at < t->dim[d] ? at : t->dim[d];
            m->dim[k][d] = t->dim[d] - m->offset[k][d] < each ? t->dim[d] - m->offset[k][d] : each;
        }
        m->count[k] *= m->dim[k][d];
    }
}

optc_engine *model_engine(int64_t workspace)
{
    optc_engine *e;
    must(optc_open(&(optc_engine_options){.device = "cuda", .untuned = 1, .workspace = workspace},
                   &e), "optc_open");
    return e;
}

/* Temporaries get the names that stages have for them; states have these on all kernels. */
static void name_state(const Model *m, int state, int k)
{
    optc_state_info info;
    optc_state_view view;
    size_t bytes;
    char name[64];
    must(optc_rule_state(m->rule, state, &info), "optc_rule_state");
    if (optc_state(m->binding, k, info.name, &view) != OPTC_OK || !view.data ||
        optc_state_bytes(m->binding, k, info.name, &bytes) != OPTC_OK)
        return;
    snprintf(name, sizeof name, "%s.%s[%d]", m->label, info.name, k);
    emu.log_name(view.data, bytes, name);
}

static optc_status bind(Model *m, const optc_comm *comm)
{
    optc_tensor t[MOST_TENSORS] = {{0}};
    optc_group group[2] = {{0}};
    for (int k = 0; k < m->set->n; k++) {
        const LogTensor *x = &m->set->tensor[k];
        t[k] = (optc_tensor){.param = m->p[m->moved_p][k], .grad = m->g[m->moved][k],
                             .rank = x->rank, .shape = m->dim[k]};
        if (comm) {
            t[k].global_shape = x->dim;
            t[k].offset = m->offset[k];
        }
        if (!group[x->group].ntensors++)
            group[x->group].tensors = &t[k];
    }
    const int groups = group[1].ntensors ? 2 : 1;
    return comm ? optc_bind_sharded(m->rule, group, groups, comm, &m->binding)
                : optc_bind(m->rule, group, groups, &m->binding);
}

void model_bind(Model *m, const optc_comm *comm)
{
    emu.log_mark("bind");
    must(bind(m, comm), "optc_bind");
    for (int i = 0; i < optc_rule_states(m->rule); i++)
        for (int k = 0; k < m->set->n; k++)
            name_state(m, i, k);
}

static void compile(Model *m, const LogRule *r)
{
    m->ranks = m->ranks ? m->ranks : 1;
    m->type = r->param ? r->param : OPTC_F32;
    if (m->rule)
        return;
    must(optc_compile(m->engine,
                      &(optc_rule_options){.spec = r->spec, .with = r->with, .options = r->options,
                                           .param = r->param, .bindings = r->bindings}, &m->rule),
         r->name);
    check(optc_rule_native(m->rule), optc_rule_path(m->rule));
}

static void make_tensors(Model *m)
{
    quiet(m, true);
    for (int k = 0; k < m->set->n; k++) {
        char name[40];
        cut(m, k);
        for (int i = 0; i < 4; i++) {
            void **at = i < 2 ? &m->p[i][k] : &m->g[i - 2][k];
            snprintf(name, sizeof name, "%s.%s[%d]", m->label,
                     (const char *[]){"p", "moved_p", "g", "moved_g"}[i], k);
            *at = take(name, (m->count[k] + 4) * (int64_t)width(m));
        }
        fill(m, m->p[0][k], k, 0);
    }
    model_gradients(m);
    quiet(m, false);
}

void model_open(Model *m, const LogRule *r, const optc_comm *comm)
{
    compile(m, r);
    make_tensors(m);
    model_bind(m, comm);
}

optc_status model_try(Model *m, const LogRule *r)
{
    compile(m, r);
    make_tensors(m);
    return bind(m, NULL);
}

void model_close(Model *m)
{
    emu.log_mark("unbind");
    const optc_status waited = optc_sync(m->binding);
    if (waited != OPTC_OK)
        emu.log_note(optc_message());
    must(optc_unbind(m->binding), "optc_unbind");
    quiet(m, true);
    for (int i = 0; i < 2 * m->set->n; i++) {
        emu.release((uintptr_t)m->p[i % 2][i / 2]);
        emu.release((uintptr_t)m->g[i % 2][i / 2]);
    }
    quiet(m, false);
}

void model_gradients(Model *m)
{
    quiet(m, true);
    for (int k = 0; k < m->set->n; k++)
        fill(m, m->g[m->moved][k], k, m->steps + 1);
    quiet(m, false);
}

static void mark(const char *what, int64_t number)
{
    char text[32];
    snprintf(text, sizeof text, "%s %d", what, (int)number);
    emu.log_mark(text);
}

optc_status model_step(Model *m)
{
    optc_status s = OPTC_OK;
    const char *entry;
    mark("step", m->steps + 1);
    for (int i = 0; s == OPTC_OK && (entry = optc_rule_gradient(m->rule, m->steps + 1, i)); i++) {
        model_gradients(m);
        s = optc_run(m->binding, entry);
    }
    m->steps++;
    return s;
}

void model_steps(Model *m, int n)
{
    for (int i = 0; i < n; i++)
        must(model_step(m), "optc_run");
}

void model_leave_out(Model *m, unsigned mask)
{
    const void *g[MOST_TENSORS];
    for (int k = 0; k < m->set->n; k++)
        g[k] = mask >> k & 1 ? NULL : m->g[m->moved][k];
    must(optc_set_grads(m->binding, g, m->set->n), "optc_set_grads");
}

void model_move_params(Model *m)
{
    m->moved_p = !m->moved_p;
    quiet(m, true);
    for (int k = 0; k < m->set->n; k++)
        fill(m, m->p[m->moved_p][k], k, m->steps);
    quiet(m, false);
    must(optc_set_params(m->binding, m->p[m->moved_p], m->set->n), "optc_set_params");
}

/* ---- several bindings, captures ---- */
static optc_status run_all(Model *m, optc_binding *const *b, int n)
{
    optc_status s = OPTC_OK;
    const char *entry;
    for (int i = 0; s == OPTC_OK && (entry = optc_rule_gradient(m->rule, m->steps + 1, i)); i++)
        s = n > 1 ? optc_run_all(b, n, entry) : optc_run(*b, entry);
    return s;
}

static void all_gradients(Model *m, int n)
{
    for (int i = 0; i < n; i++)
        model_gradients(&m[i]);
    if (n > 1)
        emu.log_rank(m->rank, "all");
}

void models_steps(Model *m, optc_binding *const *b, int n, int steps)
{
    for (int i = 0; i < steps; i++) {
        mark("step", m->steps + 1);
        all_gradients(m, n);
        must(run_all(m, b, n), "optc_run_all");
        for (int k = 0; k < n; k++)
            m[k].steps++;
    }
}

static void replay(Model *m, int n, void *graph, void *stream)
{
    void *exec;
    check(!emu.instantiate(&exec, graph, 0), "cuGraphInstantiate");
    for (int i = 0; i < 4; i++) {
        mark("replay", i + 1);
        all_gradients(m, n);
        check(!emu.launch(exec, stream) && !emu.stream_wait(stream), "cuGraphLaunch");
        for (int k = 0; k < n; k++)
            m[k].steps++;
    }
    emu.exec_destroy(exec);
}

void model_capture(Model *m, optc_binding *const *b, int n)
{
    void *stream, *graph = NULL;
    check(!emu.stream_create(&stream, 1), "cuStreamCreate");
    for (int i = 0; i < n; i++)
        must(optc_set_stream(b[i], stream), "optc_set_stream");
    models_steps(m, b, n, 2);
    emu.log_mark("capture");
    check(!emu.begin_capture(stream, 1), "cuStreamBeginCapture");
    const optc_status s = run_all(m, b, n);
    if (s != OPTC_OK)
        emu.log_note(optc_message());
    if (!emu.end_capture(stream, &graph) && graph) {
        if (s == OPTC_OK)
            replay(m, n, graph, stream);
        emu.graph_destroy(graph);
    }
    models_steps(m, b, n, 2);
}
