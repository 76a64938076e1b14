#include "tests/log/log_model.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

EmuDriver emu;

void check(bool ok, const char *what)
{
    if (ok)
        return;
    fprintf(stderr, "launch-log: %s failed\n", what);
    exit(1);
}

void must(optc_status s, const char *what)
{
    if (s != OPTC_OK)
        fprintf(stderr, "launch-log: %s: %s\n", what, optc_message());
    check(s == OPTC_OK, what);
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
        {&emu.log_begin, "emu_log_begin"},
        {&emu.log_rank, "emu_log_rank"},
        {&emu.log_mark, "emu_log_mark"},
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

void model_bind(Model *m, const optc_comm *comm)
{
    optc_tensor t[MOST_TENSORS] = {{0}};
    optc_group group[2] = {{0}};
    for (int k = 0; k < m->set->n; k++) {
        const LogTensor *x = &m->set->tensor[k];
        t[k] = (optc_tensor){.param = m->p[k], .grad = m->g[m->moved][k], .rank = x->rank,
                             .shape = m->dim[k]};
        if (m->ranks > 1) {
            t[k].global_shape = x->dim;
            t[k].offset = m->offset[k];
        }
        if (!group[x->group].ntensors++)
            group[x->group].tensors = &t[k];
    }
    const int groups = group[1].ntensors ? 2 : 1;
    emu.log_mark("bind");
    must(comm ? optc_bind_sharded(m->rule, group, groups, comm, &m->binding)
              : optc_bind(m->rule, group, groups, &m->binding), "optc_bind");
    for (int i = 0; i < optc_rule_states(m->rule); i++)
        for (int k = 0; k < m->set->n; k++)
            name_state(m, i, k);
}

void model_open(Model *m, const LogRule *r, const optc_comm *comm)
{
    if (!m->rule)
        must(optc_compile(m->engine,
                          &(optc_rule_options){.spec = r->spec, .with = r->with,
                                               .options = r->options, .param = r->param,
                                               .bindings = r->bindings}, &m->rule), r->name);
    check(optc_rule_native(m->rule), optc_rule_path(m->rule));
    m->ranks = m->ranks ? m->ranks : 1;
    m->type = r->param ? r->param : OPTC_F32;
    quiet(m, true);
    for (int k = 0; k < m->set->n; k++) {
        char name[40];
        cut(m, k);
        const int64_t bytes = (m->count[k] + 4) * (int64_t)width(m);
        snprintf(name, sizeof name, "%s.p[%d]", m->label, k);
        m->p[k] = take(name, bytes);
        for (int i = 0; i < 2; i++) {
            snprintf(name, sizeof name, "%s.%s[%d]", m->label, i ? "moved_g" : "g", k);
            m->g[i][k] = take(name, bytes);
        }
        fill(m, m->p[k], k, 0);
    }
    model_gradients(m);
    quiet(m, false);
    model_bind(m, comm);
}

void model_close(Model *m)
{
    emu.log_mark("unbind");
    must(optc_sync(m->binding), "optc_sync");
    must(optc_unbind(m->binding), "optc_unbind");
    quiet(m, true);
    for (int k = 0; k < m->set->n; k++) {
        emu.release((uintptr_t)m->p[k]);
        for (int i = 0; i < 2; i++)
            emu.release((uintptr_t)m->g[i][k]);
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

optc_status model_step(Model *m)
{
    char mark[32];
    optc_status s = OPTC_OK;
    snprintf(mark, sizeof mark, "step %d", (int)++m->steps);
    emu.log_mark(mark);
    const char *entry;
    for (int i = 0; s == OPTC_OK && (entry = optc_rule_gradient(m->rule, m->steps, i)); i++) {
        m->steps--;
        model_gradients(m);
        m->steps++;
        s = optc_run(m->binding, entry);
    }
    return s;
}

void model_steps(Model *m, int n)
{
    for (int i = 0; i < n; i++)
        must(model_step(m), "optc_run");
}
