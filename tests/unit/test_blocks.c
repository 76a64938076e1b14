/* Blocks: a matrix in blocks is stepped as if each block were a tensor. The reference cuts the
 * matrix by hand and binds every block to the rule without `block`, independently of the
 * runtime. */
#include "tests/harness/product_program.h"
#include "tests/harness/random_spec.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- against blocks as tensors ---- */
/* %s: the spec's `block`, and the domain of states along one axis of a block. Elementwise code and
 * code on the whole matrix is the same for both. */
static const char *const rules[] = {
    "return optimizer { name = 'one', view = 'last', %s hyper = { lr = 0.125, b = 0.75 }, state = "
    "{ L = zeros 'rows' "
    "},\n"
    " step = function() p = p - lr * g end,\n"
    " matrix = function() L = lerp(L, gram(g), 1 - b) p = p - lr * mm(L, g) end } --%s",
    "return optimizer { name = 'two', view = 'last', %s hyper = { lr = 0.125, b = 0.75, eps = 0.5 "
    "},\n"
    " state = { L = eye(eps, 'rows'), R = fill(0.25, 'cols'), d = zeros '%srow' },\n"
    " step = function() p = p - lr * g end,\n"
    " matrix = function()\n"
    "  L = lerp(L, gram(g), 1 - b)  R = 0.5 * R.T + triu(gram(g.T))\n"
    "  d = diag(L) + rowmean(L) + mm(L, colmax(L).T)\n"
    "  local A = L / (1 + trace(L) + slice.norm(R)) + diag(d) + tril(mm(L, L)) / "
    "slice.max(abs(d))\n"
    "  p = p - lr * mm(mm(A, g), R)\n"
    " end }",
    "return optimizer { name = 'rank', view = 'last', rank = 3, %s hyper = { lr = 0.125 }, state = "
    "{ L = zeros 'rows', "
    "Q = fill(0.5, 'cols rank') },\n"
    " step = function() p = p - lr * g end,\n"
    " matrix = function() local P = mm(g, Q)  Q = 0.5 * Q + mm(g.T, P) / (1 + slice.norm(P))  L = "
    "gram(P)\n"
    "  p = p - lr * mm(P, Q.T) end } --%s",
};
enum { NRULES = sizeof rules / sizeof *rules, SIDE = 4, NTENSOR = 9, MOST_BLOCKS_HERE = 64 };
static const int64_t shape[NTENSOR][3] = {{1, 1, 1}, {1, 5, 7},  {1, 4, 4}, {1, 8, 8}, {1, 9, 3},
                                          {3, 6, 5}, {1, 1, 10}, {2, 9, 4}, {1, 4, 12}};

typedef struct { int tensor; int64_t slice, row, col, rows, cols; } Cut;

/* In the order of a tensor's states: whole blocks, right edge, bottom edge, corner. */
static int cut_all(Cut *out)
{
    int n = 0;
    for (int t = 0; t < NTENSOR; t++)
        for (int size = 0; size < 4; size++)
            for (int64_t k = 0; k < shape[t][0]; k++)
                for (int64_t i = 0; i < shape[t][1]; i += SIDE)
                    for (int64_t j = 0; j < shape[t][2]; j += SIDE) {
                        int64_t rows = shape[t][1] - i < SIDE ? shape[t][1] - i : SIDE,
                            cols = shape[t][2] - j < SIDE ? shape[t][2] - j : SIDE;
                        bool down = i + SIDE >= shape[t][1] && (rows < SIDE || shape[t][1] == SIDE),
                             across =
                                 j + SIDE >= shape[t][2] && (cols < SIDE || shape[t][2] == SIDE);
                        if ((down ? 2 : 0) + (across ? 1 : 0) == size)
                            out[n++] = (Cut){t, k, i, j, rows, cols};
                    }
    return n;
}

typedef struct {
    optc_engine *e;
    optc_rule *r;
    optc_binding *b;
    float *p, *g;
    int64_t at[MOST_BLOCKS_HERE + 1];
    int n;
} Bound;

static void bind_all(Bound *x, const char *text, const optc_engine_options *eo,
                     const int64_t (*of)[3], int n)
{
    optc_tensor t[MOST_BLOCKS_HERE] = {{0}};
    *x = (Bound){.n = n};
    for (int i = 0; i < n; i++)
        x->at[i + 1] = x->at[i] + of[i][0] * of[i][1] * of[i][2];
    x->p = calloc((size_t)x->at[n] + 1, sizeof *x->p);
    x->g = calloc((size_t)x->at[n] + 1, sizeof *x->g);
    for (int i = 0; i < n; i++)
        t[i] = (optc_tensor){
            .param = x->p + x->at[i], .grad = x->g + x->at[i], .rank = 3, .shape = of[i]};
    OK(optc_open(eo, &x->e));
    OK(optc_compile(x->e, &(optc_rule_options){.text = text}, &x->r));
    ck_assert_msg(optc_rule_native(x->r) || eo->compiler, "%s", optc_rule_path(x->r));
    OK(optc_bind(x->r, &(optc_group){.tensors = t, .ntensors = n}, 1, &x->b));
}

static void unbind_all(Bound *x)
{
    OK(optc_unbind(x->b));
    OK(optc_release(x->r));
    OK(optc_close(x->e));
    free(x->p);
    free(x->g);
}

static int64_t place(const Cut *c, int64_t i, int64_t j)
{
    const int64_t *s = shape[c->tensor];
    return (c->slice * s[1] + c->row + i) * s[2] + c->col + j;
}

/* Copies elements of the matrices to the blocks, or (back) compares them: returns 0 or the largest
 * difference over the largest value. */
static double blocks_with(const Bound *all, const Bound *each, const Cut *cut, bool grads,
                          bool hold)
{
    double off = 0, most = 0;
    for (int c = 0; c < each->n; c++)
        for (int64_t i = 0; i < cut[c].rows; i++)
            for (int64_t j = 0; j < cut[c].cols; j++) {
                const float *from =
                    (grads ? all->g : all->p) + all->at[cut[c].tensor] + place(&cut[c], i, j);
                float *to = (grads ? each->g : each->p) + each->at[c] + i * cut[c].cols + j;
                if (!hold)
                    *to = *from;
                off = fmax(off, fabs((double)*from - (double)*to));
                most = fmax(most, fabs((double)*to));
            }
    return off / (most + 1);
}

/* A state of a matrix consists of its blocks' states, one after another. */
static double states_with(const Bound *all, const Bound *each, const Cut *cut, const char *name)
{
    double off = 0, most = 0;
    int c = 0;
    for (int t = 0; t < all->n; t++) {
        optc_state_view v, one;
        int64_t at = 0;
        OK(optc_state(all->b, t, name, &v));
        for (; c < each->n && cut[c].tensor == t; c++, at += one.count) {
            OK(optc_state(each->b, c, name, &one));
            ck_assert(at + one.count <= v.count);
            for (int64_t i = 0; i < one.count; i++) {
                double x = ((const float *)v.data)[at + i], y = ((const float *)one.data)[i];
                off = fmax(off, fabs(x - y));
                most = fmax(most, fabs(y));
            }
        }
        ck_assert_msg(at == v.count, "%s of tensor %d: %lld values, its blocks have %lld", name, t,
                      (long long)v.count, (long long)at);
    }
    return off / (most + 1);
}

static void as_tensors(int rule, const optc_engine_options *eo, double bound)
{
    static const char *const names[NRULES][4] = {{"L"}, {"L", "R", "d"}, {"L", "Q"}};
    Cut cut[MOST_BLOCKS_HERE];
    int64_t of[MOST_BLOCKS_HERE][3];
    int n = cut_all(cut);
    char text[2][1200];
    snprintf(text[0], sizeof text[0], rules[rule], "block = 4,", "block ");
    snprintf(text[1], sizeof text[1], rules[rule], "", "");
    for (int c = 0; c < n; c++)
        memcpy(of[c], (int64_t[]){1, cut[c].rows, cut[c].cols}, sizeof *of);
    Bound all, each;
    bind_all(&all, text[0], eo, shape, NTENSOR);
    bind_all(&each, text[1], eo, (const int64_t(*)[3])of, n);
    for (int64_t i = 0; i < all.at[NTENSOR]; i++)
        all.p[i] = (float)ref_value(0, 0, i);
    blocks_with(&all, &each, cut, false, false);
    for (int step = 1; step <= 3; step++) {
        for (int64_t i = 0; i < all.at[NTENSOR]; i++)
            all.g[i] = (float)(0.5 * ref_value(1, step, i));
        blocks_with(&all, &each, cut, true, false);
        OK(optc_step(all.b));
        OK(optc_step(each.b));
        double off = blocks_with(&all, &each, cut, false, true);
        ck_assert_msg(off <= bound, "rule %d, step %d: p is off by %g", rule, step, off);
        for (int k = 0; names[rule][k]; k++) {
            off = states_with(&all, &each, cut, names[rule][k]);
            ck_assert_msg(off <= bound, "rule %d, step %d: %s is off by %g", rule, step,
                          names[rule][k], off);
        }
    }
    unbind_all(&all);
    unbind_all(&each);
}

/* With optc's own product every element is a sum in order, wherever it is: no bit differs. */
START_TEST(as_own_tensors)
{
    use_blas(false);
    setenv("OPTC_CFLAGS", "-O1", 0);
    as_tensors(_i, &(optc_engine_options){.threads = 2, .cache_dir = getenv("OPTC_TEST_CACHE")}, 0);
}
END_TEST

/* With a BLAS, products of one shape may depend on the row stride: a few roundings of the sum. */
START_TEST(as_own_tensors_blas)
{
    use_blas(true);
    setenv("OPTC_CFLAGS", "-O1", 0);
    as_tensors(_i, &(optc_engine_options){.threads = 1, .cache_dir = getenv("OPTC_TEST_CACHE")},
               64 * 0x1p-24);
}
END_TEST

/* The evaluator has its own code for blocks. */
START_TEST(as_own_tensors_evaluated)
{
    as_tensors(_i, &(optc_engine_options){.threads = 1, .compiler = "", .cache_dir = ""}, 0);
}
END_TEST

/* ---- against the evaluator ---- */
/* Sizes are the matrix's, draws are the block's; polar's norm is the matrix's and its products the
 * blocks'; transposed squares. */
static const char bounds_rule[] =
    "return optimizer { name = 'bounds', view = 'last', rank = 2, block = 4, options = { b = 3 }, "
    "hyper = { lr = 0.125 "
    "},\n"
    " state = { m = zeros, L = eye(0.5, 'rows'), R = zeros 'cols', P = zeros 'rows rank', d = "
    "zeros 'block row', e = "
    "zeros 'block col', s = zeros 'block', a = zeros 'row' },\n"
    " step = function() p = p - lr * g end,\n"
    " matrix = function()\n"
    "  m = 0.5 * m + g  a = rowsum(g) / nrows\n"
    "  L = 0.5 * L.T + gram(m) / ncols + eye(nrows / (1 + max(nrows, ncols)), 'rows')\n"
    "  R = lerp(R, mm(m.T, g) / nrows, 0.25)\n"
    "  P = 0.5 * P + normal 'rows rank' + mm(L, mm(m, normal 'cols rank')) / (nrows * ncols)\n"
    "  d = rowmax(L) + diag(L) * numel / (nrows * ncols) + lr\n"
    "  e = colmin(R) + norm(g) / (1 + norm(m))\n"
    "  s = slice.mean(L) + trace(R) / nrows + sqrt(ncols) + slice.dot(d, rowmin(L)) + max(abs(L)) "
    "+ mean(P) + norm(d)\n"
    "  p = p - lr * (mm(L + diag(d) + s, polar(m, { steps = 2 })) + mm(g, R + outer(e.T, e))) / (1 "
    "+ slice.norm(m)) - "
    "1e-3 * a * (1 + sum(s) / (1 + rms(R)))\n"
    " end }";
static const TestShape few[] = {{2, {5, 7}}, {1, {7}},    {3, {2, 6, 9}},
                                {2, {4, 4}}, {2, {1, 9}}, {2, {9, 1}},
                                {2, {3, 2}}, {2, {0, 5}}, {4, {2, 1, 8, 5}}};
enum { NFEW = 9 };

static void set_grads(Fixture *f, int step)
{
    for (int k = 0; k < f->n; k++)
        for (int64_t i = 0; i < f->count[k]; i++)
            type_store(f->rule->library->plan->g, f->g[k], i, 0.25 * ref_value(k, step, i));
}

START_TEST(in_bounds)
{
    uint64_t hash[3];
    int batches[3];
    setenv("OPTC_CFLAGS", "-O1", 0);
    const optc_rule_options ro = {
        .text = bounds_rule, .param = _i ? OPTC_F64 : OPTC_F32, .grad = OPTC_F32};
    /* threads, and a workspace for one tensor, change no bit */
    for (int k = 0; k < 3; k++) {
        Fixture f;
        fix_open(&f,
                 &(optc_engine_options){.threads = k ? 3 : 1,
                                        .workspace = k == 2 ? (_i ? 12000 : 6000) : 0,
                                        .cache_dir = getenv("OPTC_TEST_CACHE")},
                 &ro, few, NFEW, NULL, 0);
        ck_assert_msg(optc_rule_native(f.rule), "%s", optc_rule_path(f.rule));
        batches[k] = f.binding->nbatch;
        ck_assert_int_eq(batches[k] > batches[0], k == 2);
        for (int step = 1; step <= 3; step++) {
            set_grads(&f, step);
            char *m = k ? NULL : step_in_bounds(&f, "step");
            ck_assert_msg(!m, "step %d: %s", step, m);
            if (k)
                OK(optc_step(f.binding));
        }
        hash[k] = fix_hash(&f);
        fix_close(&f);
    }
    ck_assert_msg(hash[0] == hash[1], "other threads, other bits");
    ck_assert_msg(hash[0] == hash[2], "another workspace, other bits");
}
END_TEST

/* ---- matrices that are not larger ---- */
START_TEST(not_larger)
{
    uint64_t hash[2];
    for (int k = 0; k < 2; k++) {
        char text[1200];
        Fixture f;
        snprintf(text, sizeof text, rules[1], k ? "block = 'side', options = { side = 9 }," : "",
                 k ? "block " : "");
        const optc_rule_options ro = {.text = text};
        fix_open(&f, &(optc_engine_options){.threads = 1, .cache_dir = getenv("OPTC_TEST_CACHE")},
                 &ro, few, NFEW, NULL, 0);
        for (int step = 1; step <= 3; step++) {
            set_grads(&f, step);
            OK(optc_step(f.binding));
        }
        hash[k] = fix_hash(&f);
        fix_close(&f);
    }
    ck_assert_msg(hash[0] == hash[1], "a block that nothing is larger than changes bits");
}
END_TEST

/* ---- heads that the caller splits ---- */
START_TEST(split)
{
    static const int64_t whole[2] = {15, 7}, parts[3] = {3, 5, 7};
    float p[2][105], g[105];
    double L[2][3 * 34];
    char text[1200];
    snprintf(text, sizeof text, rules[1], "block = 4,", "block ");
    for (int k = 0; k < 2; k++) {
        const optc_tensor t = {.param = p[k],
                               .grad = g,
                               .rank = k ? 3 : 2,
                               .shape = k ? parts : whole,
                               .split = k ? 0 : 3};
        optc_engine *e;
        optc_rule *r;
        optc_binding *b;
        for (int i = 0; i < 105; i++) {
            p[k][i] = (float)ref_value(0, 0, i);
            g[i] = (float)ref_value(0, 1, i);
        }
        OK(optc_open(&(optc_engine_options){.threads = 1, .cache_dir = getenv("OPTC_TEST_CACHE")},
                     &e));
        OK(optc_compile(e, &(optc_rule_options){.text = text}, &r));
        OK(optc_bind(r, &(optc_group){.tensors = &t, .ntensors = 1}, 1, &b));
        OK(optc_step(b));
        OK(optc_step(b));
        OK(optc_state_read(b, 0, "L", L[k], 3 * 34));
        OK(optc_unbind(b));
        OK(optc_release(r));
        OK(optc_close(e));
    }
    ck_assert(!memcmp(p[0], p[1], sizeof p[0]) && !memcmp(L[0], L[1], sizeof L[0]));
}
END_TEST

/* ---- who takes part ---- */
START_TEST(without_gradient)
{
    char text[1200];
    Bound x;
    double before[3][256], after[256];
    snprintf(text, sizeof text, rules[1], "block = 4,", "block ");
    bind_all(&x, text, &(optc_engine_options){.threads = 2, .cache_dir = getenv("OPTC_TEST_CACHE")},
             shape, NTENSOR);
    for (int64_t i = 0; i < x.at[NTENSOR]; i++)
        x.g[i] = (float)ref_value(1, 1, i);
    OK(optc_step(x.b));
    OK(optc_set_grad(x.b, 1, NULL, 0));
    /* its first block becomes NaN, the tensor's other blocks do not */
    x.g[x.at[3]] = NAN;
    for (int k = 0; k < 3; k++)
        OK(optc_state_read(x.b, 1, (const char *const[]){"L", "R", "d"}[k], before[k],
                           (int64_t[]){16 * 2 + 2, 16 + 9 + 16 + 9, 10}[k]));
    OK(optc_step(x.b));
    for (int k = 0; k < 3; k++) {
        int64_t n = (int64_t[]){16 * 2 + 2, 16 + 9 + 16 + 9, 10}[k];
        OK(optc_state_read(x.b, 1, (const char *const[]){"L", "R", "d"}[k], after, n));
        ck_assert_msg(!memcmp(before[k], after, sizeof *after * (size_t)n),
                      "a tensor without a gradient was stepped");
    }
    OK(optc_state_read(x.b, 3, "L", after, 64));
    for (int i = 0; i < 64; i++)
        ck_assert_msg(i >= 16 ? !isnan(after[i]) : i > 0 || isnan(after[0]), "value %d of L is %g",
                      i, after[i]);
    for (int i = 0; i < 64; i++)
        ck_assert_msg(isnan(x.p[x.at[3] + i]) == (i / 8 < 4 && i % 8 < 4), "element %d is %g", i,
                      (double)x.p[x.at[3] + i]);
    OK(optc_set_grad(x.b, 1, x.g + x.at[1], 0));
    OK(optc_step(x.b));
    OK(optc_state_write(x.b, 1, "L", before[0], 34));      /* writes the raw state back */
    OK(optc_state_read(x.b, 1, "L", after, 34));
    ck_assert(!memcmp(before[0], after, sizeof *after * 34));
    FAILS(optc_state_read(x.b, 1, "L", after, 25), OPTC_ERROR_ARGUMENT, "has 34 values");
    unbind_all(&x);
}
END_TEST

/* Blocks are views of the caller's memory: they move with it. The old memory becomes NaN. */
START_TEST(moved)
{
    char text[1200];
    Bound x[2];
    void *params[NTENSOR];
    const optc_engine_options eo = {.threads = 1, .cache_dir = getenv("OPTC_TEST_CACHE")};
    snprintf(text, sizeof text, rules[1], "block = 4,", "block ");
    for (int k = 0; k < 2; k++) {
        bind_all(&x[k], text, &eo, shape, NTENSOR);
        for (int64_t i = 0; i < x[k].at[NTENSOR]; i++)
            x[k].g[i] = (float)ref_value(1, 1, i);
        OK(optc_step(x[k].b));
    }
    const int64_t n = x[1].at[NTENSOR];
    float *p = malloc(sizeof *p * (size_t)n), *g = malloc(sizeof *g * (size_t)n);
    memcpy(p, x[1].p, sizeof *p * (size_t)n);
    memcpy(g, x[1].g, sizeof *g * (size_t)n);
    for (int t = 0; t < NTENSOR; t++)
        params[t] = p + x[1].at[t];
    OK(optc_set_params(x[1].b, params, NTENSOR));
    for (int t = 0; t < NTENSOR; t++)
        OK(optc_set_grad(x[1].b, t, g + x[1].at[t], 0));
    for (int64_t i = 0; i < n; i++)
        x[1].p[i] = x[1].g[i] = NAN;
    for (int k = 0; k < 2; k++)
        OK(optc_step(x[k].b));
    ck_assert(!memcmp(x[0].p, p, sizeof *p * (size_t)n));
    unbind_all(&x[0]);
    unbind_all(&x[1]);
    free(p);
    free(g);
}
END_TEST

/* ---- counts beyond all bounds ---- */
START_TEST(too_many)
{
    static const int64_t large[2] = {1 << 20, 1 << 20};
    optc_engine *e;
    optc_rule *r;
    optc_binding *b;
    char text[1200];
    snprintf(text, sizeof text, rules[0], "block = 1,", "");
    OK(optc_open(&(optc_engine_options){.cache_dir = getenv("OPTC_TEST_CACHE")}, &e));
    OK(optc_compile(e, &(optc_rule_options){.text = text}, &r));
    optc_tensor t = {.name = "w",
                     .param = (void *)((uintptr_t)1 << 44),
                     .grad = (void *)((uintptr_t)1 << 45),
                     .rank = 2,
                     .shape = large};
    FAILS(optc_bind(r, &(optc_group){.tensors = &t, .ntensors = 1}, 1, &b), OPTC_ERROR_ARGUMENT,
          "tensor 'w' (number 0) (1 x 1048576 x 1048576) would have 1099511627776 blocks of at "
          "most 1 x 1");
    OK(optc_release(r));
    OK(optc_close(e));
}
END_TEST

/* ---- memory that ends ---- */
static void *one_alloc(void *context, size_t bytes, void *stream)
{
    static _Alignas(64) char room[1 << 16];
    (void)context, (void)stream;
    return bytes <= sizeof room ? room : NULL;
}
static void no_release(void *context, void *p, size_t bytes, void *stream)
{
    (void)context, (void)p, (void)bytes, (void)stream;
}

START_TEST(memory_ends)
{
    static const optc_allocator one = {one_alloc, no_release, NULL};
    static float p[2][64], g[2][64];
    static const int64_t side[2] = {8, 8}, odd[2] = {5, 7};
    const optc_tensor t[2] = {{.param = p[0], .grad = g[0], .rank = 2, .shape = side},
                              {.param = p[1], .grad = g[1], .rank = 2, .shape = odd}};
    const optc_group group = {.tensors = t, .ntensors = 2};
    char text[1200];
    optc_engine *e;
    optc_rule *r;
    optc_binding *b;
    snprintf(text, sizeof text, rules[1], "block = 4,", "block ");
    use_blas(false);
    OK(optc_open(&(optc_engine_options){.cache_dir = getenv("OPTC_TEST_CACHE"), .allocator = &one},
                 &e));
    OK(optc_compile(e, &(optc_rule_options){.text = text}, &r));
    int n = 0, asked = 0;
    do {
        int held = memory_held();
        memory_fails(++n);
        optc_status s = optc_bind(r, &group, 1, &b);
        asked = memory_asked();
        memory_fails(0);
        bool right = asked < n ? s == OPTC_OK && optc_unbind(b) == OPTC_OK : s == OPTC_ERROR_MEMORY;
        held = memory_held() - held;                           /* before Check allocates */
        ck_assert_msg(right && !held, "allocation %d of %d: %s, %d left", n, asked,
                      optc_status_name(s), held);
    } while (asked >= n);
    ck_assert_int_gt(n, 50);
    OK(optc_release(r));
    OK(optc_close(e));
}
END_TEST

/* ---- as text ---- */
START_TEST(as_text)
{
    static const Damage bad[] = {
        {"block 4\n", "block 0\n", "a block"},
        {"block 4\n", "block 1.5\n", "a block"},
        {"block 4\n", "", "blocks without 'block'"},
        {" blocked", "", "or not blocked in a rule with it"},
        {"state L block_rows", "state L rows", "blocks without 'block'"},
        {"sum block %", "sum slice %", "below its operand's"},
        {"down block_rows", "down rows", "in a rule with blocks is not per block"}};
    char text[1200];
    snprintf(text, sizeof text, rules[1], "block = 4,", "block ");
    reads_back(text, bad, (int)(sizeof bad / sizeof *bad));
}
END_TEST

/* The verifier detects a plan that takes a block's array for the matrix's, or the reverse. */
START_TEST(plan_seen)
{
    char text[1200];
    Gen g = {0};
    int n = 0;
    snprintf(text, sizeof text, rules[1], "block = 4,", "block ");
    ck_assert_msg(gen_compile(&g, (Source){"x.lua", text, strlen(text)}, &(GenOptions){0}), "%s",
                  g.diag.text);
    for (int m = 0; m < g.plan->nmem; m++) {
        Mem *x = &g.plan->mem[m], was = *x;
        Dom *of[2] = {&x->dom, &x->from};
        for (int k = 0; k < 1 + (was.kind == MEM_PART); k++) {
            Dom d = *of[k], other = dom_of_block(d)
                                        ? dom_of_axes(dom_info[d].axis[0], dom_info[d].axis[1])
                                        : dom_blocked(d);
            Diag why = {0};
            if (other == d)
                continue;
            *of[k] = other;
            ck_assert_msg(!plan_verify(g.plan, &why), "%s as %s", was.name, dom_info[other].name);
            *x = was;
            n++;
        }
    }
    ck_assert_int_gt(n, 8);
    ck_assert_msg(plan_verify(g.plan, &g.diag), "whole again: %s", g.diag.text);
    gen_free(&g);
}
END_TEST

/* ---- random rules ---- */
/* OPTC_FUZZ_SQUARES rules. */
START_TEST(random_rules)
{
    static const TestShape odd[] = {{2, {33, 18}}, {1, {7}},     {3, {3, 5, 7}},
                                    {2, {1, 13}},  {2, {12, 1}}, {2, {20, 40}}};
    const char *n = getenv("OPTC_FUZZ_SQUARES");
    setenv("OPTC_CFLAGS", "-O1", 0);
    for (uint64_t seed = 1; seed <= (n ? (uint64_t)atoi(n) : 3); seed++) {
        Fixture f;
        char *text = random_squares(seed, seed % 3 != 0, 1 + (int)(seed * 5 % 13));
        const optc_rule_options ro = {.text = text, .param = seed % 4 == 2 ? OPTC_F64 : OPTC_F32};
        fix_open(&f, &(optc_engine_options){.threads = 2, .cache_dir = ""}, &ro, odd, 6, NULL, 0);
        ck_assert_msg(optc_rule_native(f.rule), "%s\n%s", optc_rule_path(f.rule), text);
        for (int step = 1; step <= 3; step++) {
            set_grads(&f, step);
            char *m = step_in_bounds(&f, "step");
            ck_assert_msg(!m, "step %d: %s\n%s", step, m, text);
        }
        fix_close(&f);
        free(text);
    }
}
END_TEST

Suite *blocks_suite(void)
{
    Suite *s = suite_create("blocks");
    TCase *t = tcase_create("blocks");
    tcase_set_timeout(t, 120);
    tcase_add_loop_test(t, as_own_tensors, 0, NRULES);
    tcase_add_loop_test(t, as_own_tensors_blas, 0, NRULES);
    tcase_add_loop_test(t, as_own_tensors_evaluated, 0, NRULES);
    tcase_add_loop_test(t, in_bounds, 0, 2);
    tcase_add_test(t, not_larger);
    tcase_add_test(t, split);
    tcase_add_test(t, without_gradient);
    tcase_add_test(t, moved);
    tcase_add_test(t, too_many);
    tcase_add_test(t, memory_ends);
    tcase_add_test(t, as_text);
    tcase_add_test(t, plan_seen);
    tcase_add_test(t, random_rules);
    suite_add_tcase(s, t);
    return s;
}
