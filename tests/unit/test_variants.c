/* Variants of a rule: a spec's questions about a tensor, tracing of each answer, and the choice of
 * each tensor's variant. */
#include "tests/harness/help.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static optc_engine *engine;
static void open_engine(void) { OK(optc_open(&(optc_engine_options){.threads = 1}, &engine)); }
static void close_engine(void) { OK(optc_close(engine)); }

/* p decreases by a number that identifies the variant. */
static const char ways[] = "return optimizer { name = 'ways', options = { limit = 4 },\n"
                           "  step = function() if named '*.bias' or tagged 'head' then p = p - 1 "
                           "else p = p - 2 end end,\n"
                           "  matrix = function()\n"
                           "    local small = numel <= limit\n"
                           "    if small then p = p - 3\n"
                           "    elseif 2 * nrows < ncols then p = p - 4\n"
                           "    elseif nrows == ncols then p = p - 5 * rowsum(1 + 0 * g) / ncols\n"
                           "    else p = p - 6 end\n"
                           "  end }\n";

static const struct {
    const char *name, *tags;
    int rank;
    int64_t dim[3];
    unsigned flags;
    double fall;
} tensor[] = {
    {"a.bias", NULL, 1, {3}, 0, 1},
    {"a.weight", "embedding,head", 1, {3}, 0, 1},
    {"a.weight2", "heads ahead", 1, {3}, 0, 2},
    {NULL, NULL, 0, {0}, 0, 2},
    /* the rule does not ask a matrix for its name */
    {"m.bias", NULL, 2, {3, 3}, 0, 5},
    {"m.bias", NULL, 2, {3, 3}, OPTC_USE_STEP, 1},
    {"m", NULL, 2, {3, 3}, OPTC_AS_VECTOR, 2},
    {"m2", NULL, 2, {2, 2}, 0, 3},
    {"m3", NULL, 2, {2, 5}, 0, 4},
    {"m4", NULL, 2, {2, 4}, 0, 6},
    {"m5", NULL, 3, {2, 2, 2}, 0, 6},                   /* 2 x 4 */
    {"m6", NULL, 3, {2, 3, 2}, 0, 4},                   /* 2 x 6 */
};
enum { NTENSOR = sizeof tensor / sizeof *tensor };

START_TEST(tensors_take_their_own)
{
    optc_rule *r;
    optc_binding *b;
    optc_tensor t[NTENSOR];
    float p[NTENSOR][16], g[NTENSOR][16];
    OK(optc_compile(engine, &(optc_rule_options){.spec = "ways.lua", .text = ways}, &r));
    /* step: bias, head, neither; matrix: four */
    ck_assert_int_eq(r->library->rule->nvariant, 7);
    for (int i = 0; i < NTENSOR; i++) {
        t[i] = (optc_tensor){.name = tensor[i].name,
                             .tags = tensor[i].tags,
                             .param = p[i],
                             .grad = g[i],
                             .rank = tensor[i].rank,
                             .shape = tensor[i].dim,
                             .flags = tensor[i].flags};
        for (int k = 0; k < 16; k++)
            p[i][k] = 10, g[i][k] = 1;
    }
    OK(optc_bind(r, &(optc_group){.tensors = t, .ntensors = NTENSOR}, 1, &b));
    OK(optc_step(b));
    for (int i = 0; i < NTENSOR; i++)
        ck_assert_msg(p[i][0] == 10 - (float)tensor[i].fall, "tensor %d (%s): p is %g, not %g", i,
                      tensor[i].name, p[i][0], 10 - tensor[i].fall);
    OK(optc_unbind(b));
    OK(optc_release(r));
}
END_TEST

static const char vectors[] =
    "return optimizer { name = 'v', options = { all = true }, vectors = 'all', state = { L = zeros "
    "'cols' },\n"
    "  step = function() p = p - 1 end,\n"
    "  matrix = function() L = gram(g.T) p = p - 10 * nrows - rowsum(g) end }";

/* vectors = "all": with this option `matrix` steps vectors too, as matrices of one row, unless the
 * caller refuses. */
START_TEST(vectors_as_matrices)
{
    static const struct { int rank; int64_t dim[2]; unsigned flags; float fall[2];
    } c[] = {{0, {0}, 0, {1, 1}},
             {1, {3}, 0, {13, 1}},
             {1, {3}, OPTC_USE_STEP, {1, 1}},
             {1, {3}, OPTC_AS_VECTOR, {1, 1}},
             {2, {2, 3}, 0, {23, 23}},
             {2, {2, 3}, OPTC_USE_STEP, {1, 1}},
             {1, {0}, 0, {0, 0}}};
    for (int off = 0; off < 2; off++)
        for (int i = 0; i < (int)(sizeof c / sizeof *c); i++) {
            optc_rule *r;
            optc_binding *b;
            float p[6] = {0}, g[6] = {1, 1, 1, 1, 1, 1};
            int has;
            optc_tensor t = {.name = "w",
                             .param = p,
                             .grad = g,
                             .rank = c[i].rank,
                             .shape = c[i].dim,
                             .flags = c[i].flags};
            OK(optc_compile(engine, &(optc_rule_options){.spec = "v.lua", .text = vectors,
                                                         .options = off ? "all=false" : NULL}, &r));
            ck_assert_str_eq(optc_rule_field(r, "vectors"), off ? "" : "true");
            OK(optc_bind(r, &(optc_group){.tensors = &t, .ntensors = 1}, 1, &b));
            OK(optc_step(b));
            ck_assert_msg(p[0] == -c[i].fall[off], "tensor %d, off %d: %g", i, off, p[0]);
            OK(optc_has_state(b, 0, "L", &has));
            ck_assert_int_eq(has, c[i].fall[off] > 1 || (!off && c[i].rank == 1 && !c[i].flags));
            OK(optc_unbind(b));
            OK(optc_release(r));
        }
}
END_TEST

/* divisible and dims: p decreases by a number that identifies the answers. */
START_TEST(divisors_and_dimensions)
{
    static const char spec[] = "return optimizer { name = 'parts', view = 'last', step = "
                               "function() p = p - (divisible(numel, 3) and 1 or 2) "
                               "end,\n"
                               "  matrix = function() p = p - (divisible(nrows, 4) and 10 or 20) - "
                               "(dims(3) and 100 or 200) end }";
    static const struct { int rank; int64_t dim[3]; float fall; } c[] = {
        {1, {6}, 1}, {1, {7}, 2}, {2, {8, 3}, 210},
            {2, {6, 4}, 220}, {3, {3, 4, 2}, 110}, {3, {4, 3, 2}, 120}};
    optc_rule *r;
    OK(optc_compile(engine, &(optc_rule_options){.spec = "parts.lua", .text = spec}, &r));
    for (int i = 0; i < (int)(sizeof c / sizeof *c); i++) {
        optc_binding *b;
        float p[24] = {0}, g[24] = {0};
        optc_tensor t = {.name = "w", .param = p, .grad = g, .rank = c[i].rank, .shape = c[i].dim};
        OK(optc_bind(r, &(optc_group){.tensors = &t, .ntensors = 1}, 1, &b));
        OK(optc_step(b));
        ck_assert_msg(p[0] == -c[i].fall, "tensor %d: %g", i, p[0]);
        OK(optc_unbind(b));
    }
    OK(optc_release(r));
}
END_TEST

/* Chosen by a flag, `step` sees the rows and columns as they are, or one long row. */
START_TEST(step_keeps_the_shape)
{
    static const char spec[] = "return optimizer { name = 'shape', matrix = function() p = p - 100 "
                               "end, step = function() p = p - nrows - "
                               "rowsum(g) end }";
    for (int flat = 0; flat < 2; flat++) {
        optc_rule *r;
        optc_binding *b;
        float p[6] = {0}, g[6] = {1, 1, 1, 1, 1, 1};
        optc_tensor t = {.name = "w", .param = p, .grad = g, .rank = 2, .shape = (int64_t[]){2, 3},
                         .flags = flat ? OPTC_AS_VECTOR : OPTC_USE_STEP};
        OK(optc_compile(engine, &(optc_rule_options){.spec = "shape.lua", .text = spec}, &r));
        OK(optc_bind(r, &(optc_group){.tensors = &t, .ntensors = 1}, 1, &b));
        OK(optc_step(b));
        ck_assert_msg(p[0] == (flat ? -7 : -5) && p[5] == p[0], "flat %d: %g", flat, p[0]);
        OK(optc_unbind(b));
        OK(optc_release(r));
    }
}
END_TEST

/* Global reductions span all tensors, whatever their variants, and their operands depend on the
 * variant. */
START_TEST(all_ways_feed_what_is_global)
{
    static const char spec[] =
        "return optimizer { name = 'all', state = { n = zeros 'group' }, step = function()\n"
        "  local w = 1\n  if numel <= 2 then w = 10 end\n  if named 'z' then w = w * 100 end\n"
        "  n = global.sum(w * g)\n  p = p - n end }";
    optc_rule *r;
    optc_binding *b;
    float p[4][3] = {{0}}, g[4][3] = {{1, 1, 1}, {1, 1, 1}, {1, 1, 1}, {1, 1, 1}};
    const int64_t two = 2, three = 3;
    optc_tensor t[4];
    for (int i = 0; i < 4; i++)
        t[i] = (optc_tensor){.name = i < 2 ? "a" : "z", .param = p[i], .grad = g[i], .rank = 1,
                             .shape = i % 2 ? &two : &three};
    OK(optc_compile(engine, &(optc_rule_options){.spec = "all.lua", .text = spec}, &r));
    OK(optc_bind(r, &(optc_group){.tensors = t, .ntensors = 4}, 1, &b));
    OK(optc_step(b));
    double n = 3 + 20 + 300 + 2000, got;
    OK(optc_state_read(b, 0, "n", &got, 1));
    ck_assert_msg(got == n && p[0][2] == -(float)n && p[3][1] == -(float)n, "%g, %g, not %g", got,
                  p[0][2], n);
    OK(optc_unbind(b));
    OK(optc_release(r));
}
END_TEST

/* Rules with questions read back from their text identically. */
static void same_from_text(const char *text, const char *first, const char *second)
{
    Gen a = {0}, b = {0};
    Buf x = {0}, y = {0};
    GenOptions o = {.types = {.p = T_F32, .g = T_F32, .state = T_F32}};
    ck_assert_msg(gen_compile(&a, (Source){"ways.lua", text, strlen(text)}, &o), "%s", a.diag.text);
    rule_print(&x, a.rule);
    ck_assert_msg(gen_read_ir(&b, (Source){"ways.ir", x.s, x.len}, &o), "%s", b.diag.text);
    rule_print(&y, b.rule);
    ck_assert_str_eq(x.s, y.s);
    ck_assert_ptr_nonnull(strstr(x.s, first));
    ck_assert_ptr_nonnull(strstr(x.s, second));
    buf_free(&x);
    buf_free(&y);
    gen_free(&a);
    gen_free(&b);
}

START_TEST(text_reads_back)
{
    same_from_text(ways, "variant step !matrix named=*.bias\n", "!numel<=4 2*nrows<ncols\n");
    same_from_text(vectors, "variant step !matrix_or_vector\n",
                   "variant matrix first matrix_or_vector\n");
}
END_TEST

/* Four bounds on one size give five variants, not sixteen: answers that are implied are not
 * asked. */
START_TEST(implied_answers)
{
    static const char spec[] =
        "return optimizer { name = 'implied', step = function() local n = 0\n"
        "  if numel <= 4 then n = n + 1 end if 8 >= numel then n = n + 1 end\n"
        "  if numel < 16.5 then n = n + 1 end if 2 * numel < 66 then n = n + 1 end p = p - n "
        "end }";
    static const struct { int64_t n; float fall; } c[] =
        {{1, 4}, {4, 4}, {5, 3}, {8, 3}, {9, 2}, {16, 2}, {17, 1}, {32, 1}, {33, 0}};
    optc_rule *r;
    OK(optc_compile(engine, &(optc_rule_options){.spec = "implied.lua", .text = spec}, &r));
    ck_assert_int_eq(r->program->nvariant, 5);
    for (size_t i = 0; i < sizeof c / sizeof *c; i++) {
        optc_binding *b;
        float p[40] = {0}, g[40] = {0};
        optc_tensor t = {.param = p, .grad = g, .rank = 1, .shape = &c[i].n};
        OK(optc_bind(r, &(optc_group){.tensors = &t, .ntensors = 1}, 1, &b));
        OK(optc_step(b));
        ck_assert_msg(p[0] == -c[i].fall, "%d elements: %g, not %g", (int)c[i].n, p[0], -c[i].fall);
        OK(optc_unbind(b));
    }
    OK(optc_release(r));
}
END_TEST

/* A question about sizes does not make an elementwise rule row- and column-based: channels-last
 * tensors are still stepped in place. */
START_TEST(questions_leave_layouts_alone)
{
    static const char spec[] = "return optimizer { name = 'ask', step = function() if nrows <= 4 "
                               "and 2 * nrows < ncols then p = p - 2 * g "
                               "else p = p - g end end }";
    optc_rule *r;
    optc_binding *b;
    float p[24] = {0}, g[24] = {1};
    const int64_t shape[] = {2, 3, 4}, strides[] = {12, 1, 3};
    optc_tensor t = {.param = p,
                     .grad = g,
                     .rank = 3,
                     .shape = shape,
                     .param_strides = strides,
                     .grad_strides = strides};
    OK(optc_compile(engine, &(optc_rule_options){.spec = "ask.lua", .text = spec}, &r));
    OK(optc_bind(r, &(optc_group){.tensors = &t, .ntensors = 1}, 1, &b));
    OK(optc_step(b));
    ck_assert(p[0] == -2);
    OK(optc_unbind(b));
    OK(optc_release(r));
}
END_TEST

/* Text with contradictory variants is refused. */
START_TEST(contradictions_refused)
{
    static const char *const lies[] = {
        "variant a matrix\nvariant b matrix\n", "variant a\nvariant b matrix\n",
        "variant a matrix !matrix\nvariant b !matrix\n", "variant a matrix\n",
        "variant a !matrix\nvariant b matrix numel<4\n"};
    for (size_t i = 0; i < sizeof lies / sizeof *lies; i++) {
        char text[400];
        snprintf(text, sizeof text,
                 "optc-ir 2\nrule x\n%snodes\n  %%0 = p elem\n  %%1 = g elem\n  %%2 = sub elem %%0 "
                 "%%1\nentry step\n  "
                 "a p = %%2\nend\n",
                 lies[i]);
        Gen g = {0};
        GenOptions o = {.types = {.p = T_F32, .g = T_F32, .state = T_F32}};
        ck_assert_msg(!gen_read_ir(&g, (Source){"lie", text, strlen(text)}, &o), "taken: %s",
                      lies[i]);
        ck_assert_msg(strstr(g.diag.text, "exactly once"), "%s", g.diag.text);
        gen_free(&g);
    }
}
END_TEST

/* Text may name up to eight periods; a ninth was once taken for one that never occurs. */
START_TEST(periods_counted)
{
    for (int n = 8; n <= 9; n++) {
        Buf b = {0};
        buf_puts(&b, "optc-ir 2\nrule x\nvariant step\nnodes\n  %0 = p elem\n  %1 = g elem\n  %2 = "
                     "sub elem %0 %1\n");
        for (int i = 0; i < n; i++)
            buf_printf(&b, "  %%%d = every group:bool %d\n  %%%d = where elem %%%d %%%d %%%d\n",
                       3 + 2 * i, i + 2, 4 + 2 * i, 3 + 2 * i, i ? 2 + 2 * i : 2, i % 2);
        buf_printf(&b, "entry step\n  step p = %%%d\nend\n", 2 + 2 * n);
        Gen g = {0};
        GenOptions o = {.types = {.p = T_F32, .g = T_F32, .state = T_F32}};
        bool ok = gen_read_ir(&g, (Source){"periods", b.s, b.len}, &o);
        ck_assert_msg(ok == (n == 8) && (ok || strstr(g.diag.text, "too many different periods")),
                      "%d: %s", n, ok ? "taken" : g.diag.text);
        gen_free(&g);
        buf_free(&b);
    }
}
END_TEST

START_TEST(patterns)
{
    static const struct { const char *pattern, *s; bool yes;
    } c[] = {{"*", "", true},
             {"", "", true},
             {"", "a", false},
             {"a*", "a", true},
             {"a*", "b", false},
             {"*.bias", "h.0.bias", true},
             {"*.bias", "h.bias.0", false},
             {"h.*.w*t", "h.12.weight", true},
             {"?", "", false},
             {"a?c", "abc", true},
             {"*a*b*c", "xaybzc", true},
             {"*a*b*c", "xaybz", false},
             {"**", "x", true}};
    for (size_t i = 0; i < sizeof c / sizeof *c; i++)
        ck_assert_msg(word_matches(c[i].pattern, c[i].s) == c[i].yes, "%s on %s", c[i].pattern,
                      c[i].s);
    ck_assert(has_word("a,b c", "b") && has_word("a,b c", "c") && !has_word("a,b c", "bc") &&
              !has_word("", "a") && !has_word(NULL, "a"));
}
END_TEST

Suite *variants_suite(void)
{
    Suite *s = suite_create("variants");
    TCase *t = tcase_create("variants");
    tcase_add_unchecked_fixture(t, open_engine, close_engine);
    tcase_add_test(t, tensors_take_their_own);
    tcase_add_test(t, vectors_as_matrices);
    tcase_add_test(t, divisors_and_dimensions);
    tcase_add_test(t, step_keeps_the_shape);
    tcase_add_test(t, all_ways_feed_what_is_global);
    tcase_add_test(t, text_reads_back);
    tcase_add_test(t, implied_answers);
    tcase_add_test(t, questions_leave_layouts_alone);
    tcase_add_test(t, contradictions_refused);
    tcase_add_test(t, periods_counted);
    tcase_add_test(t, patterns);
    suite_add_tcase(s, t);
    return s;
}
