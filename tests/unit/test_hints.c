/* Mistakes that users of PyTorch, NumPy and JAX make in their first hour: each message names what
 * to write instead. */
#include "runtime/library/rule/spec_find.h"
#include "gen/gen.h"

#include <check.h>
#include <string.h>

static const struct { const char *line, *part; } wrong[] = {
    {"p = p - sum(g, 'rows')", "rowsum(x) gives one value per row, colsum(x) one per column"},
    {"p = p - mean(g, 0)", "rowmean(x) gives one value per row"},
    {"p = p - norm(g, 1)", "the 1-norm is sum(abs(x))"},
    {"p = p - clamp(g, -1)", "with one end it is max(x, lo)"},
    {"p = p - clamp(g, min=0)", "arguments have no names"},
    {"p = p - randn(p)", "draws are normal()"},
    {"p = p - normal(0, 1)", "mean + sd * normal()"},
    {"p = p - random(p)", "random takes the name of a domain"},
    {"p = p - topk(g, 5)", "say rank = 5 at the head of the spec"},
    {"p = p - scatter(g, 5)", "put(X, i, V) replaces the rows"},
    {"p = p - quantile(g, 0.5)", "sort(v) ranks values along one axis"},
    {"p = p - relu(g)", "write max(x, 0)"},
    {"p = p - clip(g, -1, 1)", "write clamp(x, lo, hi)"},
    {"p = p - reshape(g, 4)", "values keep the tensor's shape"},
    {"p = p - std(g)", "sqrt(mean(x * x) - mean(x) ^ 2)"},
    {"p = p - pinv(g)", "power(A, -1, { floor = eps })"},
    {"p = p - mm(eye(nrows), g)", "eye \"rows\" is the unit matrix"},
    {"p = p - numel(p)", "Sizes, t and hyperparameters are written without ()"},
    {"p = p - lr() * g", "Sizes, t and hyperparameters are written without ()"},
    {"p = p - shape[0]", "sizes are nrows, ncols and numel"},
    {"p = p - g.shape[0]", "sizes are nrows, ncols and numel"},
    {"p = p - p.grad", "the gradient is g"},
    {"p = p - g.sum()", "values have no methods, write sum(x)"},
    {"p = p - g:norm()", "values have no methods, write norm(x)"},
    {"p:mul_(0.9)", "values are not changed in place"},
    {"p = p - g[0]", "single elements cannot be read"},
    {"p[1] = 0", "assign the name, as in p = where(c, a, b)"},
    {"p = p - ones_like(p)", "state = { m = fill(1) }"},
    {"p = p - zeros * g", "zeros, fill and copy declare states"},
    {"p = p - global.norm", "call it, as in f(x)"},
    {"p = p - global_norm(g)", "global.norm(g)"},
    {"p = p - betas[0] * g", "hyper = { beta1 = 0.9, beta2 = 0.999 }"},
    {"p = p - alpha * g", "make it a hyperparameter, an option, a state, an input or a local"},
    {"for i = 1, nrows do p = p - g end", "a loop runs when the rule is compiled"},
    {"if nrows * ncols > 10 then p = p - g end", "nrows * ncols of a matrix is numel"},
    {"if ncols == 9 then p = p - g end", "ncols >= 9 and ncols <= 9 for ncols == 9"},
    {"if t % 10 == 0 then p = p - g end", "use every(10, function() … end)"},
    {"p = p - lr * (g if lr else p)", "choose by where(c, a, b)"},
    {"with torch.no_grad(): p = p - g", "nothing in a spec is differentiated"},
    {"local β = 0.9", "Lua's names are ASCII: write beta"},
    {"p = p - λ * g", "Lua's names are ASCII: write lambda or weight_decay"},
    {"p = p − lr * g", "this minus sign is not ASCII"},
    {"p = p - ж * g", "names and operators are ASCII"},
    {"p = p - g²", "write x ^ 2"},
};

START_TEST(named_remedy)
{
    Arena a = {0};
    Gen g = {0};
    const char *text =
        arena_printf(&a,
                     "return optimizer { name = 'x', hyper = { lr = 0.1 }, step = function()\n"
                     "p = p - lr * g\n%s\nend }",
                     wrong[_i].line);
    ck_assert_msg(!gen_compile(&g, (Source){"mine.lua", text, strlen(text)},
                               &(GenOptions){.find = find_wrapper}),
                  "%s was accepted", wrong[_i].line);
    ck_assert_msg(g.diag.line == 3 && strstr(g.diag.text, wrong[_i].part), "'%s' is not in: %s",
                  wrong[_i].part, g.diag.text);
    gen_free(&g);
    arena_free(&a);
}
END_TEST

Suite *hints_suite(void)
{
    Suite *s = suite_create("hints");
    TCase *t = tcase_create("hints");
    tcase_add_loop_test(t, named_remedy, 0, (int)(sizeof wrong / sizeof *wrong));
    suite_add_tcase(s, t);
    return s;
}
