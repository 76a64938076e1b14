/* --against mixed: two sets of types in one optimizer. Tensors with one dimension (norms, biases)
 * have their own types, and a binding that is connected to that of the other tensors. --against
 * types: all tensors have other types. */
#include "tests/bench/release/release.h"

#include <stdlib.h>
#include <string.h>

const char *rival_other_types;

typedef struct MixedPart {
    BenchDevice *device;
    optc_rule *rule;
    optc_binding *binding;
    void *p, *g;
} MixedPart;

static int64_t length(const Dims *d)
{
    int64_t n = 1;
    for (int k = 0; k < d->rank; k++)
        n *= d->dim[k];
    return n;
}

static bool read_types(const char *text, Types *out)
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

static void two_bindings(const Bench *b, optc_rule_options *r)
{
    (void)b;
    r->bindings = 2;
}

/* Binds the tensors with two and more dimensions to c->rule, and the others to the same rule in
 * other types. all: the case's tensors, which this sorts out. */
static bool bind_mixed(Bench *b, Case *c, optc_engine *e, const optc_rule_options *rule,
                       optc_tensor *all)
{
    MixedPart *m = c->part = calloc(1, sizeof *m);
    optc_tensor *vectors = calloc((size_t)c->ntensor, sizeof *vectors);
    const char *text = rival_other_types ? rival_other_types : "param=f32";
    optc_rule_options wide = *rule;
    Types types = {0};
    bool ok = m && vectors ? true : (cli_error("bench: out of memory"), false);
    if (m)
        m->device = &b->device;
    ok = ok && read_types(text, &types) && fill_vectors(c, m, &types);
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

static optc_status step_mixed(const Case *c)
{
    const MixedPart *m = c->part;
    return optc_run_all((optc_binding *const[]){c->binding, m->binding}, 2, "step");
}

static void unbind_mixed(Case *c)
{
    MixedPart *m = c->part;
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

static void describe_mixed(const Case *r, Buf *text)
{
    (void)r;
    buf_puts(text, "tensors with one dimension in other types");
}

const RivalKind rival_mixed = {.name = "mixed",
                               .about = "two sets of types",
                               .options = two_bindings,
                               .bind = bind_mixed,
                               .step = step_mixed,
                               .unbind = unbind_mixed,
                               .describe = describe_mixed};

/* ---- other types ---- */
/* Both sides step the same arrays. */
static bool same_arrays(const Bench *b)
{
    Types t = {0};
    if (!read_types(rival_other_types, &t))
        return false;
    if (t.p != b->type || t.g != b->grad)
        return cli_error("bench: --against types: both have the same arrays, so param and grad of "
                         "--other-types must be %s and %s",
                         type_info[b->type].name, type_info[b->grad].name),
               false;
    return true;
}

static void other_types(const Bench *b, optc_rule_options *r)
{
    (void)b;
    r->types = rival_other_types;
}

static void describe_types(const Case *r, Buf *text)
{
    (void)r;
    buf_puts(text, rival_other_types);
}

const RivalKind rival_types = {.name = "types",
                               .about = "other types",
                               .check = same_arrays,
                               .options = other_types,
                               .describe = describe_types};
