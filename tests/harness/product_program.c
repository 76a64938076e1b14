#include "tests/harness/product_program.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

void hand_open(Hand *h, const optc_engine_options *o)
{
    static const Variant one = {"step", VIEW_LAST, NULL, 0};
    memset(h, 0, sizeof *h);
    OK(optc_open(o, &h->engine));
    OK(optc_compile(h->engine, &(optc_rule_options){.spec = "adamw"}, &h->rule));
    h->was = h->rule->program;
    h->program = *h->was;
    for (int i = 0; i < 2; i++)
        h->array[i] = h->was->array[i];
    h->entry = (ProgEntry){"step", &h->phase, 0};
    h->phase.action = h->action;
    h->program.array = h->array, h->program.narray = NARRAY;
    h->program.stage = h->stage;
    h->program.entry = &h->entry, h->program.nentry = 1;
    h->program.nperiod = 0;
    h->program.variant = &one, h->program.nvariant = 1;
    h->program.rank = 5;
}

void hand_array(Hand *h, int k, MemKind kind, Dom d, Type t, const char *name)
{
    h->array[k] =
        (ProgArray){.kind = kind, .dom = d, .from = d, .type = t, .name = name, .held_by = 1};
    h->program.narray = k >= h->program.narray ? k + 1 : h->program.narray;
}

void hand_call(Hand *h, ProgCall c)
{
    int n = h->program.nstage = h->phase.naction;
    h->call[n] = c;
    h->reads[n][0] = c.a, h->reads[n][1] = c.b, h->reads[n][2] = c.c;
    h->writes[n] = c.out;
    h->stage[n] = (ProgStage){.kind = S_CALL,
                              .fn = -1,
                              .reads = h->reads[n],
                              .nreads = c.c < 0 ? 2 : 3,
                              .writes = &h->writes[n],
                              .nwrites = 1,
                              .kernel = "",
                              .name = "call",
                              .where = "x.lua:7",
                              .call = &h->call[n]};
    h->action[n] = (ProgAction){ACT_LAUNCH, n};
    h->program.nstage = h->phase.naction = n + 1;
}

optc_status hand_bind(Hand *h, const int64_t (*shape)[3], int n)
{
    optc_tensor *t = calloc((size_t)n + 1, sizeof *t);
    int64_t all = 0;
    for (int i = 0; i < n; i++)
        all += shape[i][0] * shape[i][1] * shape[i][2];
    h->memory = calloc((size_t)all * 2 + 2, sizeof(float));
    float *at = h->memory;
    for (int i = 0; i < n; i++) {
        int64_t each = shape[i][0] * shape[i][1] * shape[i][2];
        t[i] = (optc_tensor){.param = at, .grad = at + each, .rank = 3, .shape = shape[i]};
        at += 2 * each;
    }
    h->rule->program = &h->program;
    memory_fails(h->fails);
    optc_status s = optc_bind(h->rule, &(optc_group){.tensors = t, .ntensors = n}, 1, &h->binding);
    h->asked = memory_asked();
    memory_fails(0);
    free(t);
    return s;
}

void hand_unbind(Hand *h)
{
    OK(optc_unbind(h->binding));
    free(h->memory);
    h->binding = NULL;
    h->memory = NULL;
}

void hand_close(Hand *h)
{
    if (h->binding)
        hand_unbind(h);
    free(h->memory);
    h->rule->program = h->was;
    OK(optc_release(h->rule));
    OK(optc_close(h->engine));
}

int64_t hand_length(const Hand *h, int tensor, int k)
{
    return dom_len(h->array[k].dom, h->binding->tensor[tensor].shape);
}

void hand_fill(Hand *h, int tensor, int k, int seed)
{
    for (int64_t i = 0, n = hand_length(h, tensor, k); i < n; i++)
        type_store(h->array[k].type, h->binding->tensor[tensor].mem[k], i, ref_value(seed, k, i));
}

void hand_fill_with(Hand *h, int tensor, int k, double x)
{
    for (int64_t i = 0, n = hand_length(h, tensor, k); i < n; i++)
        type_store(h->array[k].type, h->binding->tensor[tensor].mem[k], i, x);
}

/* ---- the reference ---- */
/* An operand as a matrix of doubles, row-major as in the product. */
typedef struct Matrix { double *v; int64_t down, across; } Matrix;

static Matrix operand(const Hand *h, int tensor, int k, bool turned)
{
    Shape s = h->binding->tensor[tensor].shape;
    MatrixAxes m = dom_matrix(h->array[k].dom, turned);
    Matrix x = {calloc((size_t)hand_length(h, tensor, k) + 1, sizeof(double)), axis_len(m.down, s),
                axis_len(m.across, s)};
    for (int64_t at = 0, each = x.down * x.across; at < s.slices * each; at++) {
        int64_t i = at % each, from = turned ? at - i + i % x.across * x.down + i / x.across : at;
        x.v[at] = type_load(h->array[k].type, h->binding->tensor[tensor].mem[k], from);
    }
    return x;
}

/* Checks one product within its bound. was: the previous contents of C, or NULL. */
void check_product(const Hand *h, int tensor, const ProgCall *c, const double *was)
{
    Shape s = h->binding->tensor[tensor].shape;
    Matrix a = operand(h, tensor, c->a, (c->flags & TRANS_A) != 0),
        b = operand(h, tensor, c->b, (c->flags & TRANS_B) != 0);
    int64_t m = a.down, n = b.across;
    double unit = h->array[c->out].type == T_F64 ? 0x1p-53 : 0x1p-24;
    ck_assert_int_eq(hand_length(h, tensor, c->out), s.slices * m * n);
    for (int64_t at = 0; at < s.slices * m * n; at++) {
        int64_t slice = at / n / m, i = at / n % m, j = at % n;
        const double *x = a.v + (slice * m + i) * a.across, *y = b.v + slice * a.across * n + j;
        double sum = 0, size = 0,
               got = type_load(h->array[c->out].type, h->binding->tensor[tensor].mem[c->out], at);
        for (int64_t k = 0; k < a.across; k++) {
            sum += x[k] * y[k * n];
            size += fabs(x[k] * y[k * n]);
        }
        double add = c->c >= 0 ? c->beta * was[at] : 0, diagonal = i == j ? c->diagonal : 0,
               want = c->alpha * sum + add + diagonal,
               roundings = (double)(a.across + 3 + (diagonal != 0)),
               bound =
                   unit * 1.01 * roundings * (fabs(c->alpha) * size + fabs(add) + fabs(diagonal));
        if (!(fabs(got - want) <= bound))
            ck_abort_msg("%s %s, flags %u: slice %lld (%lld, %lld): %.17g, wanted %.17g within %g",
                         dom_info[h->array[c->a].dom].name, dom_info[h->array[c->b].dom].name,
                         c->flags, (long long)slice, (long long)i, (long long)j, got, want, bound);
    }
    free(a.v);
    free(b.v);
}

/* With a BLAS if there is one, or with optc's own products. */
void use_blas(bool blas)
{
    if (blas)
        unsetenv("OPTC_BLAS");
    else
        setenv("OPTC_BLAS", "none", 1);
}
