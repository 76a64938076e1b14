/* Rules with every(k, { stagger = true }, …), and what their tests share. */
#include "tests/gpu/stagger_side.h"

#include <string.h>

const char *const stagger_rules[STAGGER_RULES] = {
    "return optimizer { name = 'turns', hyper = { lr = 0.125, b = 0.5 }, state = { L = eye(0.5, "
    "'rows'), X = eye(1, "
    "'rows'), m = zeros, n = zeros 'tensor', all = zeros 'group' },\n"
    " step = function() every(2, { stagger = true }, function() m = m + g  n = n + 1 end)  all = "
    "all + global.max(n)  "
    "p = p - lr * m / (1 + n) end,\n"
    " matrix = function()\n"
    "  L = lerp(gram(g) / ncols, L, b)\n"
    "  every(3, { stagger = true, first = true }, function() X = (mm(L, L) + eye(1, 'rows')) / (1 "
    "+ slice.norm(L))  n "
    "= n + max(abs(X)) end)\n"
    "  every(2, { stagger = true }, function() m = m + mm(X, g)  p = p - lr * rowmean(m) end)\n"
    "  every(2, function() L = L + eye(0.125, 'rows') end)\n"
    "  all = all + global.max(n)  p = p - lr * mm(X, g) / (1 + n + all) - 1e-3 * m end }",
    "return optimizer { name = 'cuts', block = 8, hyper = { lr = 0.125 }, state = { L = zeros "
    "'rows', X = eye(1, "
    "'rows'), R = zeros 'cols', d = zeros 'block', s = zeros 'tensor' },\n"
    " step = function() p = p - lr * g end,\n"
    " matrix = function()\n"
    "  L = 0.5 * L + gram(g) / ncols  R = lerp(R, gram(g.T) / nrows, 0.5)\n"
    "  every(4, { stagger = true, first = true }, function() X = (mm(L, L) + L) / (1 + "
    "slice.norm(L))  d = d + "
    "trace(X) / nrows end)  s = 0.5 * s + sum(d)\n"
    "  every(3, { stagger = true }, function() R = R + mm(R, R) / (1 + sum(R * R)) end)\n"
    "  p = p - lr * mm(mm(X, g), R) / (1 + abs(s)) end }",
    "return optimizer { name = 'roots', hyper = { lr = 0.125 }, state = { L = eye(0.125, 'rows'), "
    "X = eye(1, 'rows'), "
    "Y = eye(1, 'rows') },\n"
    " step = function() p = p - lr * g end,\n"
    " matrix = function() L = 0.5 * L + gram(g)  every(3, { stagger = true, first = true }, "
    "function() X = power(L, "
    "-1/2, { relative = 0.01 })  Y = chol(L + eye(1, 'rows')) end)\n"
    "  p = p - lr * mm(X, g) - lr * mm(Y, p) / (1 + slice.norm(Y)) end }",
    /* no products: a captured step launches all stages, and each kernel finds the slots of its
     * tensors */
    "return optimizer { name = 'plain', hyper = { lr = 0.125 }, state = { m = zeros, v = zeros "
    "'row', n = zeros "
    "'tensor' },\n"
    " step = function() every(3, { stagger = true, first = true }, function() v = v + "
    "rowmax(abs(g))  n = n + 1  m = m "
    "+ v * g end)\n"
    "  every(5, { stagger = true }, function() p = p - lr * m end)  p = p - lr * g / (1 + n) end }",
};
const TestShape stagger_shapes[NSHAPES] = {
    {2, {19, 21}}, {1, {7}},    {3, {3, 9, 7}}, {2, {8, 8}}, {2, {1, 40}}, {2, {30, 1}},
    {2, {24, 16}}, {2, {8, 8}}, {2, {0, 5}},    {2, {5, 3}}, {1, {5000}},  {2, {21, 19}}};
const TestShape stagger_few[NSHAPES] = {{2, {5, 4}}, {1, {7}}, {2, {3, 4}}, {2, {4, 4}},
                                        {2, {1, 3}}, {1, {3}}, {2, {6, 3}}, {2, {4, 4}},
                                        {2, {0, 5}}, {1, {5}}, {1, {50}},   {1, {9}}};

void open_both(Side *c, Side *g, int rule)
{
    optc_rule_options o = {.text = stagger_rules[rule], .param = OPTC_F64};
    o.products = rule < STAGGER_RULES - 1 ? "f64" : NULL;
    use_shapes(stagger_shapes);
    open_side(c, "cpu", o, 0);
    open_side(g, "cuda", o, 0);
}

void close_both(Side *c, Side *g)
{
    close_side(c, 0);
    close_side(g, 0);
    use_cublas(true);
}

optc_factors factors_of(const Side *g)
{
    optc_factors x;
    OK(optc_sync(g->b));
    OK(optc_factors_about(g->b, -1, &x));
    return x;
}

int graphs, uploads, launches, waits;
static const Driver *real;
static int count_graph(CUgraphExec e, CUstream s) { return graphs++, real->cuGraphLaunch(e, s); }
static int count_upload(CUdeviceptr to, const void *from, size_t n, CUstream s)
{
    return uploads++, real->cuMemcpyHtoDAsync_v2(to, from, n, s);
}
static int count_launch(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                        unsigned by, unsigned bz, unsigned shared, CUstream s, void **args,
                        void **more)
{
    return launches++, real->cuLaunchKernel(f, gx, gy, gz, bx, by, bz, shared, s, args, more);
}

static int count_wait(CUstream s) { return waits++, real->cuStreamSynchronize(s); }
static int count_read(void *to, CUdeviceptr from, size_t n, CUstream s)
{
    return waits++, real->cuMemcpyDtoHAsync_v2(to, from, n, s);
}

void counted_step(Side *g)
{
    Driver counting = *(real = g->e->gpu->d);
    counting.cuGraphLaunch = count_graph;
    counting.cuMemcpyHtoDAsync_v2 = count_upload;
    counting.cuLaunchKernel = count_launch;
    counting.cuStreamSynchronize = count_wait;
    counting.cuMemcpyDtoHAsync_v2 = count_read;
    graphs = uploads = launches = waits = 0;
    g->e->gpu->d = &counting;
    optc_status s = optc_step(g->b);
    g->e->gpu->d = real;
    ck_assert_msg(s == OPTC_OK, "%s", optc_message());
}

void step_without_lists(Side *g)
{
    lists_drop(g->b, HOST_LISTS);
    OK(optc_step(g->b));
}

LaunchList *list_of(const Side *g, ListUse use)
{
    LaunchList *x = g->b->gpu->lists;
    while (x && x->key.use != use)
        x = x->next;
    return x;
}

int64_t held_graphs(const Side *g)
{
    optc_held held;
    OK(optc_binding_held(g->b, &held));
    return held.graphs;
}

void open_kept(Side *a, Side *b, const char *text)
{
    optc_rule_options o = {
        .text = text, .param = OPTC_F64, .products = strstr(text, "matrix") ? "f64" : NULL};
    use_shapes(stagger_few);
    open_side(a, "cuda", o, 0);
    open_side(b, "cuda", o, 0);
}

void step_kept(Side *a, Side *b, int step)
{
    set_grads(a, step);
    set_grads(b, step);
    counted_step(a);
    step_without_lists(b);
    same_params(a, b, format("step %d", step));
}
