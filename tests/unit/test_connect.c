/* Several bindings as one optimizer: values of all tensors span all of them (optc_connect, optc_run_all). */
#include "tests/harness/help.h"
#include "tests/harness/pipeline_world.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define COUNT(a) ((int)(sizeof(a) / sizeof *(a)))
enum { N = 500 };

/* The tensors of one set of types. */
typedef struct Part { Type type; optc_rule *rule; optc_binding *b; void *p[2], *g[2]; } Part;
static const Type sets[] = {T_F32, T_BF16, T_F16};
enum { NSETS = COUNT(sets) };
static optc_engine *engine;

static void start(bool evaluator)
{
    OK(optc_open(&(optc_engine_options){.threads = 2, .compiler = evaluator ? "" : NULL,
                                        .cache_dir = evaluator ? "" : getenv("OPTC_TEST_CACHE")}, &engine));
}

static void open_part(Part *x, int set, const char *spec, const char *text, int bindings)
{
    static const int64_t shape[] = {N / 5, 5};
    optc_tensor t[2];
    *x = (Part){.type = sets[set]};
    for (int k = 0; k < 2; k++) {
        x->p[k] = calloc(N, 4), x->g[k] = calloc(N, 4);
        for (int i = 0; i < N; i++) {
            type_store(x->type, x->p[k], i, ref_value(2 * set + k, 0, i));
            type_store(x->type, x->g[k], i, ref_value(2 * set + k, 1, i));
        }
        t[k] = (optc_tensor){.param = x->p[k], .grad = x->g[k], .rank = 2, .shape = shape};
    }
    OK(optc_compile(engine, &(optc_rule_options){.spec = spec, .text = text, .param = (optc_type)(x->type + 1),
                                                 .bindings = bindings}, &x->rule));
    OK(optc_bind(x->rule, &(optc_group){.tensors = t, .ntensors = 2}, 1, &x->b));
}

static void close_part(Part *x)
{
    OK(optc_unbind(x->b));
    OK(optc_release(x->rule));
    for (int k = 0; k < 2; k++)
        free(x->p[k]), free(x->g[k]);
}

/* Clipped SGD by its definition. on: bits, the sets whose gradients take part. Returns the norm. */
static double check_sgd(Part *x, unsigned on, double *was)
{
    double sum = 0;
    for (int s = 0; s < NSETS; s++)
        for (int k = 0; k < 2; k++)
            for (int i = 0; i < N; i++)
                sum += on >> s & 1 ? pow(type_load(x[s].type, x[s].g[k], i), 2) : 0;
    double norm = sqrt(sum), scale = fmin(1, 1 / (norm + 1e-6));
    for (int s = 0; s < NSETS; s++)
        for (int k = 0; k < 2; k++)
            for (int i = 0; i < N; i++) {
                double g = on >> s & 1 ? type_load(x[s].type, x[s].g[k], i) : 0;
                double want = was[(2 * s + k) * N + i] - 0.5 * scale * g, got = type_load(x[s].type, x[s].p[k], i);
                double bound = ldexp(fabs(want) + fabs(g), 1 - type_info[x[s].type].digits);
                ck_assert_msg(fabs(got - want) <= bound, "set %d: p is %g, not %g", s, got, want);
            }
    return norm;
}

START_TEST(one_norm)
{
    static const unsigned on[] = {7, 5, 2, 7};             /* the second and third step: some have no gradient */
    Part x[NSETS];
    optc_binding *b[NSETS];
    double was[2 * NSETS * N], found;
    start(_i);
    for (int s = 0; s < NSETS; s++) {
        open_part(&x[s], s, "sgd+clip(1)", NULL, NSETS);
        OK(optc_set_hyper(x[s].b, -1, "lr", 0.5));
        OK(optc_set_hyper(x[s].b, -1, "momentum", 0));
        b[s] = x[s].b;
    }
    OK(optc_connect(b, NSETS));
    for (int t = 0; t < COUNT(on); t++) {
        for (int s = 0; s < NSETS; s++) {
            void *none[2] = {NULL, NULL};
            OK(optc_set_grads(b[s], (on[t] >> s & 1 ? (const void *const *)x[s].g : (const void *const *)none), 2));
            for (int k = 0; k < 2 * N; k++)
                was[2 * N * s + k] = type_load(x[s].type, x[s].p[k / N], k % N);
        }
        OK(optc_run_all(b, NSETS, "step"));
        double norm = check_sgd(x, on[t], was);
        for (int s = 0; s < NSETS; s++) {
            OK(optc_read_value(b[s], 0, "clip.grad_norm", &found, 1));
            ck_assert_msg(fabs(found - norm) < 1e-6 * norm, "set %d, step %d: the norm is %g, not %g", s, t, found,
                          norm);
        }
    }
    for (int s = 0; s < NSETS; s++)
        close_part(&x[s]);
    OK(optc_close(engine));
}
END_TEST

/* A value of all tensors that another one needs, extremes, counts of tensors and elements, an entry beside `step`. */
START_TEST(levels)
{
    static const char text[] =
        "return optimizer { name = 'levels', state = { d = zeros 'group', n = zeros 'group', e = zeros 'group' },\n"
        "step = function() local most = global.max(g)  d = global.sum(g / most) + 1000 * global.min(g)  "
        "n = global.mean(0 * norm(g) + 2)  p = p - 0 * g end,\n"
        "other = function() e = global.mean(2 * p) end }";
    Part x[NSETS];
    optc_binding *b[NSETS];
    double d, n, e, most = -INFINITY, least = INFINITY, sum = 0, mean = 0;
    start(false);
    for (int s = 0; s < NSETS; s++) {
        open_part(&x[s], s, "made.lua", text, NSETS);
        b[s] = x[s].b;
        for (int k = 0; k < 2 * N; k++) {
            double g = type_load(x[s].type, x[s].g[k / N], k % N);
            most = fmax(most, g), least = fmin(least, g), sum += g;
            mean += 2 * type_load(x[s].type, x[s].p[k / N], k % N) / (2 * N * NSETS);
        }
    }
    ck_assert_int_eq(optc_rule_entries(x[0].rule), 5);     /* share_step_0, share_step_1, share_other_0 */
    FAILS(optc_run_all(b, NSETS, "step"), OPTC_ERROR_ARGUMENT, "reads the scalar input 'shared.");
    OK(optc_connect(b, NSETS));
    OK(optc_run_all(b, NSETS, "step"));
    OK(optc_run_all(b, NSETS, "other"));
    for (int s = 0; s < NSETS; s++) {
        OK(optc_state_read(b[s], 0, "d", &d, 1));
        OK(optc_state_read(b[s], 0, "n", &n, 1));
        OK(optc_state_read(b[s], 0, "e", &e, 1));
        ck_assert_msg(fabs(d - (sum / most + 1000 * least)) < 1e-3 && n == 2 && fabs(e - mean) < 1e-5, "%g %g %g", d,
                      n, e);
    }
    for (int s = 0; s < NSETS; s++)
        close_part(&x[s]);
    OK(optc_close(engine));
}
END_TEST

/* Bindings in other processes. The matrices of the second rule are at their owners. */
START_TEST(stages)
{
    static const char *const rules[] = {"adamw", "muon"};
    start(false);
    char *wrong = pipeline_run(engine, rules[_i], "clip(0.3)");
    ck_assert_msg(!wrong, "%s: %s", rules[_i], wrong);
    OK(optc_close(engine));
}
END_TEST

START_TEST(refused)
{
    Part x[3];
    start(true);
    open_part(&x[0], 0, "sgd+clip(1)", NULL, 2);
    open_part(&x[1], 1, "sgd+clip(1)", NULL, 2);
    open_part(&x[2], 2, "sgd", NULL, 2);                     /* no value of all tensors */
    optc_binding *b[] = {x[0].b, x[1].b, x[2].b}, *again[] = {b[0], b[0]}, *null[] = {b[0], NULL},
                 *other[] = {b[0], b[2]}, *alone[] = {b[2]};
    FAILS(optc_connect(NULL, 2), OPTC_ERROR_ARGUMENT, "there are no bindings");
    FAILS(optc_connect(null, 2), OPTC_ERROR_ARGUMENT, "binding 1 is NULL");
    FAILS(optc_connect(again, 2), OPTC_ERROR_ARGUMENT, "bindings 0 and 1 are the same");
    FAILS(optc_connect(other, 2), OPTC_ERROR_ARGUMENT, "the rule of binding 0 is not compiled for 2 bindings");
    FAILS(optc_connect(b, 3), OPTC_ERROR_ARGUMENT, "set optc_rule_options.bindings to 3");
    FAILS(optc_run_all(b, 0, "step"), OPTC_ERROR_ARGUMENT, "there are no bindings");
    OK(optc_connect(b, 2));
    FAILS(optc_run_all(b, 2, "stop"), OPTC_ERROR_ARGUMENT, "has no entry 'stop'");
    FAILS(optc_run_all(b, 2, NULL), OPTC_ERROR_ARGUMENT, "the entry's name is NULL");
    OK(optc_run_all(b, 2, "step"));
    OK(optc_connect(alone, 1));
    OK(optc_run_all(alone, 1, "step"));
    optc_rule *r;
    FAILS(optc_compile(engine, &(optc_rule_options){.spec = "sgd", .bindings = 65}, &r), OPTC_ERROR_SPEC,
          "shared by at most 64 bindings");
    static const char taken[] = "return optimizer { name = 'x', step = function() p = p - g / global.norm(g) end, "
                                "share_step_0 = function() p = 0 end }";
    FAILS(optc_compile(engine, &(optc_rule_options){.text = taken, .bindings = 2}, &r), OPTC_ERROR_SPEC,
          "the entry 'share_step_0' has the name of one");
    for (int s = 0; s < 3; s++)
        close_part(&x[s]);
    OK(optc_close(engine));
}
END_TEST

/* Two ranks with the same gradients. */
static int gather_twice(void *calls, const void *send, void *recv, size_t bytes, void *stream)
{
    (void)stream;
    ++*(int *)calls;
    memcpy(recv, send, bytes);
    memcpy((char *)recv + bytes, send, bytes);
    return 0;
}

/* The connected list gathers; any other list is refused, and nothing of it runs. optc_connect and one rank end the
 * connection. */
START_TEST(lists_of_ranks)
{
    Part x[4];
    int calls = 0;
    optc_comm comm = {.ranks = 2, .context = &calls, .all_gather = gather_twice}, one = comm;
    one.ranks = 1;
    start(true);
    for (int i = 0; i < 4; i++)
        open_part(&x[i], i % 2, "sgd+clip(1)", NULL, 4);
    optc_binding *b[] = {x[0].b, x[1].b, x[2].b, x[3].b}, *back[] = {b[1], b[0]}, *mixed[] = {b[2], b[1]};
    float before;
    OK(optc_connect_ranks(b, 2, &comm));
    OK(optc_run_all(b, 2, "step"));
    ck_assert_int_eq(calls, 1);
    memcpy(&before, x[0].p[0], sizeof before);
    FAILS(optc_run_all(back, 2, "step"), OPTC_ERROR_ARGUMENT, "connected with other ranks in another list, of 2");
    FAILS(optc_run_all(b, 1, "step"), OPTC_ERROR_ARGUMENT, "binding 0 was connected");
    FAILS(optc_run_all(b + 1, 1, "step"), OPTC_ERROR_ARGUMENT, "binding 0 was connected");
    FAILS(optc_run_all(b, 3, "step"), OPTC_ERROR_ARGUMENT, "binding 0 was connected");
    FAILS(optc_run_all(mixed, 2, "step"), OPTC_ERROR_ARGUMENT, "binding 1 was connected");
    ck_assert(calls == 1 && !memcmp(&before, x[0].p[0], sizeof before));
    OK(optc_connect_ranks(back, 2, &comm));
    OK(optc_run_all(back, 2, "step"));
    ck_assert_int_eq(calls, 2);
    FAILS(optc_connect(b, 1), OPTC_ERROR_ARGUMENT, "not compiled for 1 bindings");
    for (int i = 0; i < 2; i++) {
        OK(i ? optc_connect_ranks(b, 4, &one) : optc_connect(b, 4));
        OK(optc_run_all(b, 4, "step"));
        ck_assert_int_eq(calls, 2 + i);
        OK(optc_connect_ranks(b, 2, &comm));
        OK(optc_run_all(b, 2, "step"));
        ck_assert_int_eq(calls, 3 + i);
    }
    for (int i = 0; i < 4; i++)
        close_part(&x[i]);
    OK(optc_close(engine));
}
END_TEST

Suite *connect_suite(void)
{
    Suite *s = suite_create("connect");
    TCase *c = tcase_create("connect");
    tcase_set_timeout(c, 60);
    tcase_add_loop_test(c, one_norm, 0, 2);
    tcase_add_test(c, levels);
    tcase_add_loop_test(c, stages, 0, 2);
    tcase_add_test(c, refused);
    tcase_add_test(c, lists_of_ranks);
    suite_add_tcase(s, c);
    return s;
}
