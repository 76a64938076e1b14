/* Two sets of types in one optimizer, for --against mixed: tensors with one dimension (norms and
 * biases) have their own types, and a binding that is connected to that of the other tensors. */
#include "tools/bench/bench.h"

#include <stdlib.h>
#include <string.h>

struct MixedPart {
    BenchDevice *device;
    optc_rule *rule;
    optc_binding *binding;
    void *p, *g;
};

static int64_t length(const Dims *d)
{
    int64_t n = 1;
    for (int k = 0; k < d->rank; k++)
        n *= d->dim[k];
    return n;
}

bool bench_types(const char *text, Types *out)
{
    Arena a = {0};
    Diag d = {0};
    bool ok = types_choose(&a, text, -1, -1, -1, out, &d);
    if (!ok)
        cli_error("bench: --other-types: %s", d.text ? d.text : "out of memory");
    arena_free(&a);
    return ok;
}

/* The vectors' tensors, each at a cache line of buffers of their own. Returns their number. */
static int place_vectors(const Case *c, MixedPart *m, const Types *types, optc_tensor *t)
{
    int64_t at = 0;
    int n = 0;
    for (int i = 0; i < c->ntensor; i++)
        if (c->shape[i].rank < 2) {
            t[n++] = (optc_tensor){.param = (char *)m->p + at * type_info[types->p].bytes,
                                   .grad = (char *)m->g + at * type_info[types->g].bytes,
                                   .rank = c->shape[i].rank,
                                   .shape = c->shape[i].dim};
            at += (length(&c->shape[i]) + 63) / 64 * 64;
        }
    return n;
}

static bool fill_vectors(const Case *c, MixedPart *m, const Types *types)
{
    BenchDevice *d = m->device;
    int64_t n = 0;
    for (int i = 0; i < c->ntensor; i++)
        n += c->shape[i].rank < 2 ? (length(&c->shape[i]) + 63) / 64 * 64 : 0;
    if (!n)
        return cli_error("bench: --against mixed needs tensors with one dimension: use --work, or "
                         "more --shape"),
               false;
    m->p = d->ops->alloc(d, (size_t)(n * type_info[types->p].bytes));
    m->g = m->p ? d->ops->alloc(d, (size_t)(n * type_info[types->g].bytes)) : NULL;
    return m->g && d->ops->fill(d, m->p, types->p, n, 1.0f) &&
           d->ops->fill(d, m->g, types->g, n, 0.0625f);
}

bool bench_mixed_start(Bench *b, Case *c, optc_engine *e, const optc_rule_options *rule,
                       optc_tensor *all)
{
    MixedPart *m = c->mixed = calloc(1, sizeof *m);
    optc_tensor *vectors = calloc((size_t)c->ntensor, sizeof *vectors);
    const char *text = b->other_types ? b->other_types : "param=f32";
    optc_rule_options wide = *rule;
    Types types = {0};
    bool ok = m && vectors ? true : (cli_error("bench: out of memory"), false);
    if (m)
        m->device = &b->device;
    ok = ok && bench_types(text, &types) && fill_vectors(c, m, &types);
    wide.param = wide.grad = wide.state = OPTC_DEFAULT;
    wide.types = text;
    ok = ok && bench_lib(optc_compile(e, &wide, &m->rule));
    int n = ok ? place_vectors(c, m, &types, vectors) : 0, rest = 0;
    for (int i = 0; i < c->ntensor; i++)
        if (all[i].rank > 1)
            all[rest++] = all[i];
    ok = ok &&
         bench_lib(optc_bind(m->rule, &(optc_group){.tensors = vectors, .ntensors = n}, 1,
                             &m->binding)) &&
         bench_lib(
             optc_bind(c->rule, &(optc_group){.tensors = all, .ntensors = rest}, 1, &c->binding)) &&
         bench_lib(optc_connect((optc_binding *const[]){c->binding, m->binding}, 2));
    free(vectors);
    return ok;
}

optc_status bench_mixed_step(const Case *c)
{
    return optc_run_all((optc_binding *const[]){c->binding, c->mixed->binding}, 2, "step");
}

void bench_mixed_stop(MixedPart *m)
{
    if (!m)
        return;
    (void)optc_unbind(m->binding);
    (void)optc_release(m->rule);
    if (m->device && m->device->ops) {
        (void)m->device->ops->sync(m->device);
        m->device->ops->free(m->device, m->p);
        m->device->ops->free(m->device, m->g);
    }
    free(m);
}
