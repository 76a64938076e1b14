/* Large stages: split into loops that a compiler handles in linear time, with the bits of a plain
 * loop. */
#include "tests/harness/help.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { LINKS = 300, N = 4096 + 77 };

static const char spec[] = "return optimizer { name = 'large', hyper = { lr = 0.001 }, state = { m "
                           "= zeros }, step = function()\n"
                           "  local x, late, up = g, g * 0.75, gt(g, m)\n"
                           "  for i = 1, %d do x = sqrt(x * x + abs(m)) - g * (0.5 + i %% 7) end\n"
                           "  x = where(up, x, -x) + late\n"
                           "  %s"
                           "  m = x  p = p - lr * x\n"
                           "end }\n";

/* The number of lines of the longest loop body of the longest stage. */
static int longest_body(const char *c)
{
    int most = 0;
    for (const char *s = c; (s = strstr(s, "    OPTC_EACH\n")); ) {
        int lines = 0;
        s = strstr(s, "{\n") + 2;
        for (; s && strncmp(s + strspn(s, " "), "}", 1); s = strchr(s, '\n') + 1)
            lines++;
        most = lines > most ? lines : most;
    }
    return most;
}

START_TEST(short_loops)
{
    Gen g = {0};
    char text[2000];
    snprintf(text, sizeof text, spec, (thinned(1) ? 1 : 5) * LINKS,
             _i ? "x = x / (1 + sum(x * x))\n" : "");
    GenOptions o = {.types = {.p = T_F32, .g = T_F32, .state = T_F32}};
    ck_assert_msg(gen_compile(&g, (Source){"large.lua", text, strlen(text)}, &o), "%s",
                  g.diag.text);
    char *c = gen_emit(&g, &(EmitOptions){.target = &target_c}, &g.diag);
    ck_assert(c != NULL);
    int most = longest_body(c);
    ck_assert_msg(most > 50 && most < 600, "a loop of %d lines", most);
    free(c);
    gen_free(&g);
}
END_TEST

/* The same in one loop, compiled with the tests. */
static void plain(float *p, float *m, const float *g)
{
    for (int k = 0; k < N; k++) {
        float x = g[k], late = g[k] * 0.75f;
        int up = g[k] > m[k];
        for (int i = 1; i <= LINKS; i++)
            x = sqrtf(x * x + fabsf(m[k])) - g[k] * (0.5f + (float)(i % 7));
        x = (up ? x : -x) + late;
        m[k] = x;
        p[k] = p[k] - 0.001f * x;
    }
}

START_TEST(same_bits)
{
    static float p[N], g[N], q[N], m[N], got[N];
    char text[2000];
    snprintf(text, sizeof text, spec, LINKS, "");
    for (int k = 0; k < N; k++) {
        p[k] = q[k] = (float)(k % 101) * 0.01f;
        g[k] = (float)(k % 37 - 18) * 0.03f;
    }
    optc_engine *e;
    optc_rule *r;
    optc_binding *b;
    OK(optc_open(&(optc_engine_options){.device = "cpu"}, &e));
    OK(optc_compile(e, &(optc_rule_options){.spec = "large", .text = text}, &r));
    int64_t n = N;
    optc_tensor t = {.param = p, .grad = g, .rank = 1, .shape = &n};
    OK(optc_bind(r, &(optc_group){.tensors = &t, .ntensors = 1}, 1, &b));
    for (int step = 0; step < 2; step++) {
        OK(optc_step(b));
        plain(q, m, g);
    }
    optc_state_view v;
    OK(optc_state(b, 0, "m", &v));
    memcpy(got, v.data, sizeof got);
    if (optc_rule_native(r)) {                 /* the evaluator has another precision */
        ck_assert(!memcmp(got, m, sizeof m));
        ck_assert(!memcmp(p, q, sizeof q));
    }
    OK(optc_unbind(b));
    OK(optc_release(r));
    OK(optc_close(e));
}
END_TEST

/* A chain of sums: each pass may recompute earlier values, but all together not much more than
 * once. */
START_TEST(chained_sums)
{
    static const char chain[] =
        "return optimizer { name = 'chain', hyper = { lr = 0.001 }, step = function()\n"
        "  local x = g  for i = 1, %d do x = x / (1 + sum(x * x) * 0.001) end  p = p - lr * x\nend "
        "}\n";
    Gen g = {0};
    char text[400];
    int links = thinned(1) ? 80 : 400;
    snprintf(text, sizeof text, chain, links);
    GenOptions o = {.types = {.p = T_F32, .g = T_F32, .state = T_F32}};
    ck_assert_msg(gen_compile(&g, (Source){"chain.lua", text, strlen(text)}, &o), "%s",
                  g.diag.text);
    char *c = gen_emit(&g, &(EmitOptions){.target = &target_c}, &g.diag);
    ck_assert(c != NULL);
    int statements = 0;
    for (const char *s = c; *s; s++)
        statements += *s == ';';
    ck_assert_msg(statements < 150 * links, "%d statements", statements);
    free(c);
    gen_free(&g);
}
END_TEST

/* ---- much that waits from one loop for another ---- */
enum { ROWS = 3, COLS = 1391 };
static const char much[] = "return optimizer { name = 'much', hyper = { lr = 0.001 }, state = { m "
                           "= zeros }, view = 'last', step = "
                           "function()\n"
                           "  local v, x, y = {}, g, m\n"
                           "  for i = 1, %d do v[i] = g * i + m  x = x * 0.5 + v[i] * v[i] end\n"
                           "  for i = 1, %d do y = y * 0.25 - v[i] * x end\n"
                           "  %s  m = y  p = p - lr * y\n"
                           "end }\n";

/* As gen/plan/plan.h defines it: 128 lanes, which are then folded in halves. */
static double by_lanes(const double *x, int n)
{
    double lane[128] = {0};
    for (int i = 0; i < n; i++)
        lane[i % 128] += x[i] * x[i];
    for (int half = 64; half; half /= 2)
        for (int l = 0; l < half; l++)
            lane[l] += lane[l + half];
    return lane[0];
}

static void plain_much(double *p, double *m, const double *g, int links, bool folds)
{
    static double y[ROWS * COLS];
    for (int k = 0; k < ROWS * COLS; k++) {
        double x = g[k];
        y[k] = m[k];
        for (int i = 1; i <= links; i++)
            x = x * 0.5 + (g[k] * i + m[k]) * (g[k] * i + m[k]);
        for (int i = 1; i <= links; i++)
            y[k] = y[k] * 0.25 - (g[k] * i + m[k]) * x;
    }
    for (int r = 0; folds && r < ROWS; r++) {
        double sum = by_lanes(y + r * COLS, COLS);
        for (int k = 0; k < COLS; k++)
            y[r * COLS + k] /= 1 + sum;
    }
    double all = folds ? by_lanes(y, 4096) + by_lanes(y + 4096, ROWS * COLS - 4096) : 0;
    for (int k = 0; k < ROWS * COLS; k++) {
        m[k] = folds ? y[k] / (1 + all) : y[k];
        p[k] = p[k] - 0.001 * m[k];
    }
}

static void *step_it(void *b) { return (void *)(uintptr_t)optc_step(b); }

/* A thread with a small stack steps a rule with many values, in every kind of loop, with the bits
 * of a plain loop. */
START_TEST(small_stack)
{
    static double p[ROWS * COLS], g[ROWS * COLS], q[ROWS * COLS], m[ROWS * COLS];
    int links = _i ? 100 : 300;
    char text[2000];
    snprintf(text, sizeof text, much, links, links,
             _i ? "y = y / (1 + rowsum(y * y))  y = y / (1 + sum(y * y))\n" : "");
    for (int k = 0; k < ROWS * COLS; k++) {
        p[k] = q[k] = k % 101 * 0.01;
        g[k] = (k % 37 - 18) * 0.003;
    }
    optc_engine *e;
    optc_rule *r;
    optc_binding *b;
    OK(optc_open(&(optc_engine_options){.device = "cpu", .threads = 1}, &e));
    OK(optc_compile(e, &(optc_rule_options){.spec = "much", .text = text, .param = OPTC_F64}, &r));
    int64_t shape[] = {ROWS, COLS};
    optc_tensor t = {.param = p, .grad = g, .rank = 2, .shape = shape};
    OK(optc_bind(r, &(optc_group){.tensors = &t, .ntensors = 1}, 1, &b));
    pthread_attr_t small;
    ck_assert(!pthread_attr_init(&small) && !pthread_attr_setstacksize(&small, 256 << 10));
    for (int step = 0; step < 2; step++) {
        pthread_t thread;
        void *status;
        ck_assert(!pthread_create(&thread, &small, step_it, b) && !pthread_join(thread, &status));
        ck_assert_uint_eq((uintptr_t)status, OPTC_OK);
        plain_much(q, m, g, links, _i);
    }
    pthread_attr_destroy(&small);
    ck_assert(!optc_rule_native(r) || !memcmp(p, q, sizeof q));
    OK(optc_unbind(b));
    OK(optc_release(r));
    OK(optc_close(e));
}
END_TEST

Suite *large_suite(void)
{
    Suite *s = suite_create("large");
    TCase *t = tcase_create("large");
    tcase_set_timeout(t, 120);
    tcase_add_loop_test(t, short_loops, 0, 2);
    tcase_add_test(t, same_bits);
    tcase_add_test(t, chained_sums);
    tcase_add_loop_test(t, small_stack, 0, 2);
    suite_add_tcase(s, t);
    return s;
}
