/* Compares three words of the language with plain C: locals that a block assigns, states that start
 * as random draws, and rings of past values. */
#include "gen/gen.h"
#include "tests/harness/help.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N = 37 };
typedef struct { optc_rule *r; optc_binding *b; float p[N], g[N]; } Bound;

/* The compiled rule, or the evaluator. */
static optc_engine *engine_of(int evaluator)
{
    optc_engine *e;
    OK(optc_open(&(optc_engine_options){.threads = 1,
                                        .compiler = evaluator ? "" : NULL,
                                        .cache_dir = evaluator ? "" : NULL,
                                        .no_builtin = evaluator},
                 &e));
    return e;
}

static void bind_one(Bound *x, optc_engine *e, const char *text, const char *wrapper)
{
    *x = (Bound){.r = NULL};
    OK(optc_compile(e,
                    &(optc_rule_options){.spec = "made.lua",
                                         .text = text,
                                         .with = *wrapper ? "w" : "",
                                         .wrappers = &(optc_text){"w", wrapper},
                                         .nwrappers = *wrapper != 0},
                    &x->r));
    optc_tensor t = {.name = "w", .param = x->p, .grad = x->g, .rank = 1, .shape = (int64_t[]){N}};
    OK(optc_bind(x->r, &(optc_group){.tensors = &t, .ntensors = 1}, 1, &x->b));
}

static void unbind(Bound *x)
{
    OK(optc_unbind(x->b));
    OK(optc_release(x->r));
}

static double read_one(const Bound *x, const char *name)
{
    double v;
    OK(optc_state_read(x->b, 0, name, &v, 1));
    return v;
}

/* ---- locals that a block assigns ---- */
#define LOCALS(body) \
    "return optimizer { name = 'x', options = { k = 1 },\n" \
    "state = { a = zeros 'group', b = zeros 'group', m = zeros },\n" \
    "step = function()\n" \
    body "\np = p - g end }"

START_TEST(locals_of_blocks)
{
    static const char *const text[] = {
        LOCALS("local x = t every(3, function() x = 10 * t end) a = x"),
        LOCALS("local x = t every(3, { offset = 1 }, function() x = x + 5 end) every(4, function() "
               "x = 2 * x end) "
               "a = x"),
        LOCALS("local x, y = 1, 2 every(2, function() x = 7 every(3, function() y = x end) end) a, "
               "b = x, y"),
        LOCALS("local x = 0 local function set() x = t end every(3, function() set() end) a = x"),
        LOCALS("local x, c = t, lt(t, 4) when(gt(t, 6), function() x, c = -t, lt(t, 9) end) a, b = "
               "x, where(c, 1, 0)"),
        LOCALS("local x = 3 every(1, function() x = 4 end) a = x"),
        LOCALS("local _, x = 1, 2 every(2, function() _, x = x, 5 end) a = x b = _"),
        LOCALS("local x = 0 local h = { { set = function() x = t end } } every(3, function() "
               "h[1].set() end) a = x")};
    optc_engine *e = engine_of(_i % 2);
    Bound o;
    bind_one(&o, e, text[_i / 2], "");
    for (int t = 1; t <= 12; t++) {
        double a = 0, b = 0;
        OK(optc_step(o.b));
        switch (_i / 2) {
        case 0: a = t % 3 ? t : 10 * t; break;
        case 1: a = (t % 3 == 1 ? t + 5 : t) * (t % 4 ? 1 : 2); break;
        case 2: a = t % 2 ? 1 : 7, b = t % 6 ? 2 : 7; break;
        case 3: case 7: a = t % 3 ? 0 : t; break;
        case 4: a = t > 6 ? -t : t, b = t > 6 ? t < 9 : t < 4; break;
        case 5: a = 4; break;
        default: a = t % 2 ? 2 : 5, b = 1; break;
        }
        ck_assert_msg(read_one(&o, "a") == a && read_one(&o, "b") == b,
                      "%s\nstep %d: %g %g, not %g %g", text[_i / 2], t, read_one(&o, "a"),
                      read_one(&o, "b"), a, b);
    }
    unbind(&o);
    OK(optc_close(e));
}
END_TEST

/* The example of the manual: elements, and a staggered block. */
START_TEST(locals_of_elements)
{
    static const char *const text[] = {
        LOCALS("local x = g every(5, function() x = 2 * g end) m = m + x"),
        LOCALS("local x = g every(5, { stagger = true }, function() x = 2 * g end) m = m + x")};
    optc_engine *e = engine_of(_i % 2);
    Bound o;
    double m[N];
    int twice = 0;
    bind_one(&o, e, text[_i / 2], "");
    for (int i = 0; i < N; i++)
        o.g[i] = (float)i;
    for (int t = 1; t <= 10; t++) {
        OK(optc_step(o.b));
        OK(optc_state_read(o.b, 0, "m", m, N));
        twice = (int)(m[1] - t);
        ck_assert_msg(_i / 2 || twice == t / 5, "step %d: %d", t, twice);
        for (int i = 0; i < N; i++)
            ck_assert_msg(m[i] == (t + twice) * i, "step %d, element %d: %g", t, i, m[i]);
    }
    ck_assert_msg(twice == 2, "%d steps in 10", twice);
    unbind(&o);
    OK(optc_close(e));
}
END_TEST

/* ---- states that start as random draws ---- */
enum { ROWS = 13, COLS = 700 };
static const char drawn[] = "return optimizer { name = 'x', options = { k = 1 }, state = { q = "
                            "normal(), u = normal 'tensor' },\n"
                            "step = function() p = p - g * q + u end }";
static const char drawn_rows[] =
    "return optimizer { name = 'x', state = { q = normal('elem', 'f32'), r = normal 'row', L = "
    "normal 'cols' },\n"
    "step = function() p = p - g end, matrix = function() p = p - q * r - mm(g, L) end }";

/* Binds `n` tensors of zeros, each ROWS x COLS or a piece of that, and reads a state of each. */
typedef struct { int64_t from[2], size[2]; } Piece;
static const Piece all = {{0, 0}, {ROWS, COLS}};

static void read_drawn(const char *text, optc_type type, double seed, const Piece *piece, int n,
                       const char *name, double **out)
{
    static double p[2][ROWS * COLS], g[ROWS * COLS];
    static const int64_t whole[] = {ROWS, COLS};
    optc_engine *e = engine_of(0);
    optc_rule *r;
    optc_binding *b;
    optc_tensor t[2];
    for (int i = 0; i < n; i++)
        t[i] = (optc_tensor){.name = i ? "v" : "w",
                             .param = p[i],
                             .grad = g,
                             .rank = 2,
                             .shape = piece[i].size,
                             .global_shape =
                                 piece[i].size[0] * piece[i].size[1] < ROWS * COLS ? whole : NULL,
                             .offset = piece[i].from};
    OK(optc_compile(e, &(optc_rule_options){.spec = "made.lua", .text = text, .param = type}, &r));
    OK(optc_bind(
        r,
        &(optc_group){
            .tensors = t, .ntensors = n, .hyper = &(optc_setting){"seed", seed}, .nhyper = 1},
        1, &b));
    for (int i = 0; i < n; i++) {
        optc_state_view v;
        OK(optc_state(b, i, name, &v));
        out[i] = calloc((size_t)v.count + 1, sizeof **out);
        OK(optc_state_read(b, i, name, out[i], v.count));
    }
    OK(optc_unbind(b));
    OK(optc_release(r));
    OK(optc_close(e));
}

static void check_moments(const double *v, int n)
{
    double sum = 0, squares = 0;
    for (int i = 0; i < n; i++)
        sum += v[i], squares += v[i] * v[i];
    ck_assert_msg(fabs(sum / n) < 5 / sqrt(n) && fabs(squares / n - 1) < 8 / sqrt(n),
                  "mean %g, mean square %g", sum / n, squares / n);
}

START_TEST(normal_states)
{
    const optc_type type = _i ? OPTC_F64 : OPTC_F32;
    const Piece two[] = {all, all};
    double *a[2], *b[2], *c[1];
    read_drawn(drawn, type, 1, two, 2, "q", a);
    read_drawn(drawn, type, 1, two, 2, "q", b);
    read_drawn(drawn, type, 2, two, 1, "q", c);
    check_moments(a[0], ROWS * COLS);
    check_moments(a[1], ROWS * COLS);
    size_t bytes = sizeof **a * ROWS * COLS;
    ck_assert(!memcmp(a[0], b[0], bytes) && memcmp(a[0], a[1], bytes) && memcmp(a[0], c[0], bytes));
    ck_assert_msg(_i || a[0][5] == (double)(float)a[0][5], "%.17g is no f32 number", a[0][5]);
    free(a[0]), free(a[1]), free(b[0]), free(b[1]), free(c[0]);
    read_drawn(drawn, type, 1, two, 2, "u", a);
    ck_assert_msg(a[0][0] != a[1][0] && a[0][0] != 0, "%g %g", a[0][0], a[1][0]);
    free(a[0]), free(a[1]);
    /* not symmetric: mm may not take it for a square of one */
    read_drawn(drawn_rows, type, 1, two, 2, "L", a);
    ck_assert(a[0][1] != a[0][COLS]);
    check_moments(a[0], COLS * COLS);
    free(a[0]), free(a[1]);
}
END_TEST

/* Pieces of a tensor have the numbers of the whole: ranges of rows, and columns (runs). */
START_TEST(normal_pieces)
{
    static const Piece cut[] = {{{0, 0}, {5, COLS}}, {{5, 0}, {8, COLS}}, {{0, 0}, {ROWS, 300}},
                                {{0, 300}, {ROWS, 400}}};
    double *whole, *part;
    read_drawn(drawn, OPTC_F32, 3, &all, 1, "q", &whole);
    for (int k = 0; k < 4; k++) {
        read_drawn(drawn, OPTC_F32, 3, &cut[k], 1, "q", &part);
        for (int64_t i = 0; i < cut[k].size[0] * cut[k].size[1]; i++) {
            int64_t row = cut[k].from[0] + i / cut[k].size[1],
                    col = cut[k].from[1] + i % cut[k].size[1];
            ck_assert_msg(part[i] == whole[row * COLS + col], "piece %d, element %lld", k,
                          (long long)i);
        }
        free(part);
    }
    free(whole);
}
END_TEST

/* ---- rings of past values ---- */
static const char rings[] = "return optimizer { name = 'x', options = { k = 4 },\n"
                            "state = { s = ring(3), w = ring(k, 'tensor'), a = zeros, b = zeros, c "
                            "= zeros 'tensor', d = zeros 'tensor' },\n"
                            "step = function()\n"
                            "  b = s[1] + 10 * s[3]  c = s.count  s:push(g)  a = s[1] + 10 * s[2] "
                            "+ 100 * s[3]  c = 10 * c + s.count\n"
                            "  w:push(sum(g))  d = w[4]  p = p - a end }";

/* The form of the ring depends on the wrapper: only without a t of its own the arrays rotate. */
static const struct { const char *wrapper; int every, offset;
} around[] = {{"", 1, 0},
              {"return wrapper { name = 'w', step = function() every(3, { offset = 1 }, function() "
               "inner() end) end }",
               3, 1},
              {"return wrapper { name = 'w', state = { made = zeros 'tensor' }, step = function()\n"
               "every(2, function() made = made + 1 inner { t = made } end) end }",
               2, 0},
              {"return wrapper { name = 'w', state = { n = zeros 'tensor' }, step = function()\n"
               "local ok = gt(sum(g), 0) when(ok, function() n = n + 1 inner { t = n } end) end }",
               1, 0}};

static double past(const double *h, int n, int back) { return n - back >= 1 ? h[n - back] : 0; }

START_TEST(rings_of_values)
{
    optc_engine *e = engine_of(_i % 2);
    int k = _i / 2, n = 0;
    Bound o;
    double h[60] = {0}, a[N], b[N];
    bind_one(&o, e, rings, around[k].wrapper);
    for (int t = 1; t <= 26; t++) {
        bool there = k || t % 5 != 3;                      /* without a gradient its t stays */
        for (int i = 0; i < N; i++)
            o.g[i] = (float)(t * (i + 1));
        OK(optc_set_grad(o.b, 0, there ? o.g : NULL, 0));
        OK(optc_step(o.b));
        if (there && t % around[k].every == around[k].offset)
            h[++n] = t;
        else
            continue;
        OK(optc_state_read(o.b, 0, "a", a, N));
        OK(optc_state_read(o.b, 0, "b", b, N));
        for (int i = 0; i < N; i++) {
            double now = (past(h, n, 0) + 10 * past(h, n, 1) + 100 * past(h, n, 2)) * (i + 1);
            double before = (past(h, n, 1) + 10 * past(h, n, 3)) * (i + 1);
            ck_assert_msg(a[i] == now && b[i] == before,
                          "%d: step %d, element %d: %g %g, not %g %g", _i, t, i, a[i], b[i], now,
                          before);
        }
        double c = (n - 1 < 3 ? n - 1 : 3) * 10 + (n < 3 ? n : 3),
               d = past(h, n, 3) * N * (N + 1) / 2;
        ck_assert_msg(read_one(&o, "c") == c && read_one(&o, "d") == d,
                      "%d: step %d: %g %g, not %g %g", _i, t, read_one(&o, "c"), read_one(&o, "d"),
                      c, d);
        double slot[N];                                    /* push n is in array n mod 3 */
        char name[] = "s_0";
        name[2] = (char)('0' + n % 3);
        OK(optc_state_read(o.b, 0, name, slot, N));
        ck_assert_msg(slot[1] == 2 * t, "%s at step %d: %g", name, t, slot[1]);
    }
    unbind(&o);
    OK(optc_close(e));
}
END_TEST

/* A rotating ring stores one array per step, not all of them; and no stage has more bytes for a
 * longer ring. */
START_TEST(rings_store_one_array)
{
    static const char text[] = "return optimizer { name = 'x', options = { k = 8 },\n"
                               "state = { s = ring(k), m = zeros },\n"
                               "step = function() m = m + g - s[k] s:push(g) p = p - m end }";
    optc_engine *e = engine_of(0);
    optc_rule *r;
    for (int k = 8; k <= 100; k += 92) {
        char options[20];
        snprintf(options, sizeof options, "k=%d", k);
        OK(optc_compile(
            e, &(optc_rule_options){.spec = "made.lua", .text = text, .options = options}, &r));
        const Plan *p = r->library->plan;
        const Phase *ph = &p->entry[0].phase[0];
        ck_assert_msg(ph->nstage == 1 && ph->stage[0].bytes_read == 16 &&
                          ph->stage[0].bytes_written == 12,
                      "%d stages, %d + %d bytes", ph->nstage, ph->stage[0].bytes_read,
                      ph->stage[0].bytes_written);
        ck_assert_int_eq(optc_rule_states(r), k + 1);
        OK(optc_release(r));
    }
    OK(optc_close(e));
}
END_TEST

/* Calls get the number of an array from the plan, so a product must not read the array of a ring
 * that a stage selects by t. _i: the compiled rule, or the evaluator. */
START_TEST(rings_and_products)
{
    static const char text[] =
        "return optimizer { name = 'x', products = 'f32', state = { s = ring(3), a = zeros },\n"
        "step = function() p = p - g end,\n"
        "matrix = function()\n"
        "  local x = 0.5 * g  s:push(x)  a = mm(gram(x), x)  p = p - a - s[2] end }";
    enum { ROWS = 3, COLS = 2 };
    optc_engine *e = engine_of(_i);
    optc_rule *r;
    optc_binding *b;
    float p[ROWS * COLS] = {0}, g[ROWS * COLS];
    double x[ROWS * COLS], a[ROWS * COLS];
    optc_tensor w = {
        .name = "w", .param = p, .grad = g, .rank = 2, .shape = (int64_t[]){ROWS, COLS}};
    OK(optc_compile(e, &(optc_rule_options){.spec = "made.lua", .text = text}, &r));
    OK(optc_bind(r, &(optc_group){.tensors = &w, .ntensors = 1}, 1, &b));
    for (int t = 1; t <= 7; t++) {
        for (int i = 0; i < ROWS * COLS; i++)
            x[i] = 0.5 * (g[i] = (float)(t + i));
        OK(optc_step(b));
        OK(optc_state_read(b, 0, "a", a, ROWS * COLS));
        for (int i = 0; i < ROWS * COLS; i++) {
            double sum = 0;
            for (int k = 0; k < ROWS; k++)
                for (int j = 0; j < COLS; j++)
                    sum += x[i / COLS * COLS + j] * x[k * COLS + j] * x[k * COLS + i % COLS];
            ck_assert_msg(a[i] == sum, "%d: step %d, element %d: %g, not %g", _i, t, i, a[i], sum);
        }
    }
    OK(optc_unbind(b));
    OK(optc_release(r));
    OK(optc_close(e));
}
END_TEST

Suite *state_words_suite(void)
{
    Suite *s = suite_create("state_words");
    TCase *t = tcase_create("state_words");
    tcase_set_timeout(t, 60);
    tcase_add_loop_test(t, locals_of_blocks, 0, 16);
    tcase_add_loop_test(t, locals_of_elements, 0, 4);
    tcase_add_loop_test(t, normal_states, 0, 2);
    tcase_add_test(t, normal_pieces);
    tcase_add_loop_test(t, rings_of_values, 0, 8);
    tcase_add_test(t, rings_store_one_array);
    tcase_add_loop_test(t, rings_and_products, 0, 2);
    suite_add_tcase(s, t);
    return s;
}
