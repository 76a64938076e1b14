#include "tests/harness/help.h"
#include "tests/harness/code_blocks.h"
#include "runtime/library/rule/spec_find.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const TestShape odd_shapes[] = {{0, {0}}, {1, {1}}, {1, {7}}, {2, {33, 65}}, {3, {3, 5, 7}}};

bool thinned(int i)
{
    const char *n = getenv("OPTC_THIN");
    return n && atoi(n) > 1 && i % atoi(n);
}

bool sanitized(void)
{
    const char *n = getenv("OPTC_THIN");
    return n && atoi(n) >= 32;
}

int sample(const char *name, int n)
{
    uint64_t h = 1;
    for (const char *s = name; *s; s++)
        h = splitmix(h ^ (unsigned char)*s);
    const char *all = getenv("OPTC_ALL");
    return all && *all ? -1 : (int)(h % (uint64_t)n);
}

bool sampled_rule(const char *rule, int n)
{
    for (const BuiltinName *b = library_builtin; b->rule; b++)
        if (!strcmp(b->rule, rule))
            return true;
    return sample(rule, n) <= 0;
}

char *format(const char *fmt, ...)
{
    Buf b = {0};
    va_list ap;
    va_start(ap, fmt);
    buf_vprintf(&b, fmt, ap);
    va_end(ap);
    return buf_take(&b);
}

uint64_t splitmix(uint64_t x)
{
    x += 0x9E3779B97F4A7C15u;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    return x ^ (x >> 31);
}

double ref_value(int tensor, int step, int64_t i)
{
    uint64_t z = splitmix((uint64_t)tensor << 48 | (uint64_t)step << 32 | (uint64_t)i);
    return (double)((int64_t)(z >> 40) - 8388608) / 8388608.0;
}

void fix_open(Fixture *f, const optc_engine_options *eo, const optc_rule_options *ro,
              const TestShape *shape, int n, const optc_setting *set, int nset)
{
    fix_open_groups(f, eo, ro, shape, n, set, nset, &(FixtureGroups){0});
}

void fix_open_groups(Fixture *f, const optc_engine_options *eo, const optc_rule_options *ro,
                     const TestShape *shape, int n, const optc_setting *set, int nset,
                     const FixtureGroups *groups)
{
    memset(f, 0, sizeof *f);
    OK(optc_open(eo, &f->engine));
    OK(optc_compile(f->engine, ro, &f->rule));
    f->type = f->rule->library->plan->p;
    f->n = n;
    optc_tensor t[16];
    memset(t, 0, sizeof t);
    for (int k = 0; k < n; k++) {
        f->count[k] = 1;
        for (int d = 0; d < shape[k].rank; d++)
            f->count[k] *= shape[k].dim[d];
        f->p[k] = calloc((size_t)f->count[k] + 1, 8);
        f->g[k] = calloc((size_t)f->count[k] + 1, 8);
        for (int64_t i = 0; i < f->count[k]; i++)
            type_store(f->type, f->p[k], i, 0.5 * ref_value(k, 0, i));
        t[k] = (optc_tensor){.param = f->p[k],
                             .grad = f->g[k],
                             .rank = shape[k].rank,
                             .shape = shape[k].dim,
                             .tags = groups->tag};
    }
    without_kernels(f->rule, t, n);
    int first = groups->second ? groups->second : n;
    optc_setting other[64];
    int nother = groups->nset;
    ck_assert_int_le(nset + groups->nset, 64);
    for (int i = 0; i < nother; i++)
        other[i] = groups->set[i];
    for (int k = 0; k < nset; k++) {
        bool own = false;
        for (int i = 0; i < groups->nset; i++)
            own = own || !strcmp(groups->set[i].name, set[k].name);
        if (!own)
            other[nother++] = set[k];
    }
    optc_group g[2] = {
        {.tensors = t, .ntensors = first, .hyper = set, .nhyper = nset},
        {.tensors = t + first, .ntensors = n - first, .hyper = other, .nhyper = nother}};
    OK(optc_bind(f->rule, g, first < n ? 2 : 1, &f->binding));
}

void without_kernels(const optc_rule *r, optc_tensor *t, int n)
{
    int view = 0;
    for (int v = 0; v < r->program->nvariant; v++)
        view |= r->program->variant[v].view;
    for (int k = 0; k < n && view & VIEW_PLAIN; k++)
        if (t[k].rank > 2 && t[k].shape[t[k].rank - 1] > 1)
            t[k].flags = OPTC_USE_STEP;
}

bool rule_has_calls(const optc_rule *r)
{
    for (int i = 0; i < r->program->nstage; i++)
        if (r->program->stage[i].call)
            return true;
    return false;
}

bool rule_has_callee(const optc_rule *r, Callee c)
{
    for (int i = 0; i < r->program->nstage; i++)
        if (r->program->stage[i].call && r->program->stage[i].call->callee == c)
            return true;
    return false;
}

void fix_close(Fixture *f)
{
    OK(optc_unbind(f->binding));
    OK(optc_release(f->rule));
    OK(optc_close(f->engine));
    for (int k = 0; k < f->n; k++) {
        free(f->p[k]);
        free(f->g[k]);
    }
}

/* ---- the evaluator beside a binding ---- */
static const CodeType *code_type(Type t)
{
    const CodeType *c = code_types;
    while (strcmp(c->name, type_info[t].name))
        c++;
    return c;
}

static void load_all(Type t, const void *p, int64_t n, double *x)
{
    float *decoded = type_coded(t) ? malloc(4 * (size_t)n + 4) : NULL;
    if (decoded)
        state_decode(code_type(t), p, n, decoded);
    for (int64_t i = 0; i < n; i++)
        x[i] = decoded ? (double)decoded[i] : type_load(t, p, i);
    free(decoded);
}

/* The largest error of a number in [lo, hi] that a block code stores. */
static double code_error(Type t, const void *data, int64_t n, int64_t i, double lo, double hi)
{
    bool coded = type_coded(t) && n >= CODE_LEAST;
    return coded
               ? code_bound(code_type(t), (float)fmax(fabs(lo), fabs(hi)), state_scale(data, n, i))
               : 0;
}

static Vals vals(Type t, const void *p, int64_t n)
{
    Vals v = {malloc(8 * (size_t)(n + 1)), malloc(8 * (size_t)(n + 1)), malloc(8 * (size_t)(n + 1)),
              n};
    if (p)
        load_all(t, p, n, v.v);
    if (p && n) {
        memcpy(v.lo, v.v, 8 * (size_t)n);
        memcpy(v.hi, v.v, 8 * (size_t)n);
    }
    return v;
}

static void vals_drop(Vals *v)
{
    free(v->v);
    free(v->lo);
    free(v->hi);
}

static EvalJob job_of(const optc_binding *b, int entry)
{
    const Plan *p = b->rule->library->plan;
    const Rule *r = p->rule;
    EvalJob j = {.rule = r,
                 .entry = entry,
                 .t = (double)(b->steps + 1),
                 .ntensor = b->ntensor,
                 .ngroup = b->ngroup,
                 .bounds = true,
                 .real = p->real,
                 .p = p->p,
                 .state = p->state,
                 .product = p->precision};
    j.tensor = calloc((size_t)b->ntensor + 1, sizeof *j.tensor);
    j.group = calloc((size_t)b->ngroup + 1, sizeof *j.group);
    for (int i = 0; i < b->ntensor; i++) {
        const Tensor *t = &b->tensor[i];
        EvalTensor *x = &j.tensor[i];
        *x = (EvalTensor){.shape = t->shape,
                          .whole = t->whole,
                          .variant = t->variant,
                          .group = t->group,
                          .p = vals(p->p, t->mem[0], t->shape.n),
                          .g = vals(p->g, t->mem[1], t->shape.n),
                          .input = calloc((size_t)r->ninput + 1, sizeof(Vals)),
                          .state = calloc((size_t)r->nstate + 1, sizeof(Vals))};
        for (int k = 0; k < p->nmem; k++)
            if ((p->mem[k].kind == MEM_STATE || p->mem[k].kind == MEM_INPUT) &&
                p->mem[k].dom != GROUP && t->mem[k])
                (p->mem[k].kind == MEM_STATE ? x->state : x->input)[p->mem[k].sym] =
                vals(p->mem[k].type, t->mem[k], dom_len(p->mem[k].dom, t->shape));
    }
    for (int i = 0; i < b->ngroup; i++) {
        j.group[i] = (EvalGroup){b->group[i].hyper + 1, calloc((size_t)r->ninput + 1, sizeof(Vals)),
                                 calloc((size_t)r->nstate + 1, sizeof(Vals)), 0};
        for (int k = 0; k < p->nmem; k++)
            if ((p->mem[k].kind == MEM_STATE || p->mem[k].kind == MEM_INPUT) &&
                p->mem[k].dom == GROUP)
                (p->mem[k].kind == MEM_STATE ? j.group[i].state : j.group[i].input)[p->mem[k].sym] =
                vals(p->mem[k].type, b->group[i].mem[k], 1);
    }
    return j;
}

static void job_drop(EvalJob *j)
{
    for (int i = 0; i < j->ntensor; i++) {
        vals_drop(&j->tensor[i].p);
        vals_drop(&j->tensor[i].g);
        for (int k = 0; k < j->rule->ninput; k++)
            vals_drop(&j->tensor[i].input[k]);
        for (int k = 0; k < j->rule->nstate; k++)
            vals_drop(&j->tensor[i].state[k]);
        free(j->tensor[i].input);
        free(j->tensor[i].state);
    }
    for (int i = 0; i < j->ngroup; i++) {
        for (int k = 0; k < j->rule->ninput; k++)
            vals_drop(&j->group[i].input[k]);
        for (int k = 0; k < j->rule->nstate; k++)
            vals_drop(&j->group[i].state[k]);
        free(j->group[i].input);
        free(j->group[i].state);
    }
    free(j->tensor);
    free(j->group);
}

/* Is the stored value inside the interval, rounded to its storage type? It must be NaN where the
 * evaluator has NaN or gave up. Stochastic rounding moves a number by up to a whole step, rounding
 * to nearest by half of one. Numbers beyond the largest one are stored as that or as infinity, by
 * type. bound: of the block code. */
static bool inside(Type t, double got, double lo, double v, double hi, double bound)
{
    if (isnan(v) || isnan(lo) || isnan(hi))
        return isnan(got) || (lo == -INFINITY && hi == INFINITY) || isnan(lo);
    Type plain = type_coded(t) ? T_F32 : t;
    double rel = ldexp(1, (type_info[t].draws > 0) - type_info[plain].digits),
           tiny = type_info[plain].least;
    double most = type_info[plain].most;
    lo -= fabs(lo) * rel + tiny + bound;
    hi += fabs(hi) * rel + tiny + bound;
    if (lo == -INFINITY && hi == INFINITY)
        return true;
    lo = lo > most ? most : lo < -most ? -INFINITY : lo;
    hi = hi < -most ? -most : hi > most ? INFINITY : hi;
    return got >= lo && got <= hi;
}

static char *compare(const char *what, int tensor, Type t, const void *data, const Vals *v)
{
    char *m = NULL;
    double *got = calloc((size_t)v->n + 1, sizeof *got);
    if (data)
        load_all(t, data, v->n, got);
    for (int64_t i = 0; data && i < v->n && !m; i++)
        if (!inside(t, got[i], v->lo[i], v->v[i], v->hi[i],
                    code_error(t, data, v->n, i, v->lo[i], v->hi[i])))
            m = format(
                "%s of tensor %d, element %lld: got %.17g, evaluator %.17g in [%.17g, %.17g]", what,
                tensor, (long long)i, got[i], v->v[i], v->lo[i], v->hi[i]);
    free(got);
    return m;
}

char *step_in_bounds(Fixture *f, const char *entry)
{
    optc_binding *b = f->binding;
    const Plan *p = b->rule->library->plan;
    int e = 0;
    while (e < p->nentry && strcmp(p->entry[e].name, entry))
        e++;
    EvalJob j = job_of(b, e);
    char *m = eval_entry(&j) ? NULL : strdup("the evaluator ran out of memory");
    OK(optc_run(b, entry));
    for (int i = 0; i < b->ntensor && !m; i++) {
        m = compare("p", i, p->p, b->tensor[i].mem[0], &j.tensor[i].p);
        for (int k = 0; k < p->nmem && !m; k++)
            if (p->mem[k].kind == MEM_STATE && p->mem[k].dom != GROUP)
                m = compare(p->mem[k].name, i, p->mem[k].type, b->tensor[i].mem[k],
                            &j.tensor[i].state[p->mem[k].sym]);
    }
    for (int i = 0; i < b->ngroup && !m; i++)
        for (int k = 0; k < p->nmem && !m; k++)
            if (p->mem[k].kind == MEM_STATE && p->mem[k].dom == GROUP)
                m = compare(p->mem[k].name, i, p->mem[k].type, b->group[i].mem[k],
                            &j.group[i].state[p->mem[k].sym]);
    job_drop(&j);
    return m;
}

static uint64_t hash_array(uint64_t h, Type t, const void *p, int64_t n)
{
    if (p && type_coded(t))
        return hash64(h, p, state_size(n));
    for (int64_t i = 0; p && i < n; i++) {
        double x = type_load(t, p, i);
        if (isnan(x))
            x = 12345.678;               /* any NaN is allowed */
        h = hash64(h, &x, sizeof x);
    }
    return h;
}

uint64_t fix_hash(const Fixture *f)
{
    const optc_binding *b = f->binding;
    const Plan *p = b->rule->library->plan;
    uint64_t h = 1;
    for (int i = 0; i < b->ntensor; i++) {
        h = hash_array(h, p->p, b->tensor[i].mem[0], b->tensor[i].shape.n);
        for (int k = 0; k < p->nmem; k++)
            if (p->mem[k].kind == MEM_STATE && p->mem[k].dom != GROUP)
                h = hash_array(h, p->mem[k].type, b->tensor[i].mem[k],
                               dom_len(p->mem[k].dom, b->tensor[i].shape));
    }
    for (int i = 0; i < b->ngroup; i++)
        for (int k = 0; k < p->nmem; k++)
            if (p->mem[k].kind == MEM_STATE && p->mem[k].dom == GROUP)
                h = hash_array(h, p->mem[k].type, b->group[i].mem[k], 1);
    return h;
}

static Source source_of(const char *name, const char *text)
{
    return (Source){name, text, strlen(text)};
}

static void read_damaged(const char *text, const Damage *x)
{
    Buf other = {0};
    Gen g = {0};
    const char *at = strstr(text, x->was);
    ck_assert_msg(at != NULL, "%s", x->was);
    buf_printf(&other, "%.*s%s%s", (int)(at - text), text, x->now, at + strlen(x->was));
    ck_assert_msg(
        !gen_read_ir(&g, source_of("x.ir", buf_text(&other)), &(GenOptions){.rule_only = true}),
        "'%s' was taken", x->now);
    ck_assert_msg(strstr(g.diag.text, x->says), "'%s' for '%s': %s", x->now, x->was, g.diag.text);
    gen_free(&g);
    buf_free(&other);
}

void reads_back(const char *spec, const Damage *bad, int n)
{
    Gen g = {0}, back = {0};
    Buf b = {0}, again = {0};
    ck_assert_msg(gen_compile(&g, source_of("x.lua", spec), &(GenOptions){.rule_only = true}), "%s",
                  g.diag.text);
    rule_print(&b, g.rule);
    ck_assert_msg(
        gen_read_ir(&back, source_of("x.ir", buf_text(&b)), &(GenOptions){.rule_only = true}), "%s",
        back.diag.text);
    rule_print(&again, back.rule);
    ck_assert_str_eq(buf_text(&b), buf_text(&again));
    for (int i = 0; i < n; i++)
        read_damaged(buf_text(&b), &bad[i]);
    gen_free(&back);
    gen_free(&g);
    buf_free(&b);
    buf_free(&again);
}
