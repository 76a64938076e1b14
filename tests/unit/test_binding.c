/* Calls on bindings: structs of other versions, all gradients at once, queries, raw copies of
 * states. */
#include "tests/harness/help.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static optc_engine *engine;
static optc_rule *rule;

static void open_rule(void)
{
    OK(optc_open(&(optc_engine_options){.threads = 2, .cache_dir = ""}, &engine));
    OK(optc_compile(engine, &(optc_rule_options){.spec = "adafactor"}, &rule));
}

static void close_rule(void)
{
    OK(optc_release(rule));
    OK(optc_close(engine));
}

/* ---- structs of other versions ---- */
/* Options of an older header, followed by garbage; and options of a newer header. */
START_TEST(options_of_other_versions)
{
    optc_engine *e;
    optc_rule *r;
    struct { optc_engine_options now; int64_t later[2]; } o;
    struct { optc_rule_options now; void *later; } ro;
    memset(&o, 0x5a, sizeof o);
    memset(&o.now, 0, offsetof(optc_engine_options, workspace));
    o.now.threads = 1;
    o.now.device = "cpu";
    OK(optc_open_sized(&o.now, offsetof(optc_engine_options, workspace), &e));
    ck_assert_int_eq(optc_threads(e), 1);
    memset(&ro, 0x5a, sizeof ro);
    memset(&ro.now, 0, offsetof(optc_rule_options, wrappers));
    ro.now.spec = "adamw";
    OK(optc_compile_sized(e, &ro.now, offsetof(optc_rule_options, wrappers), &r));
    ck_assert_str_eq(optc_rule_name(r), "adamw");
    OK(optc_release(r));
    memset(&ro, 0, sizeof ro);
    ro.now.spec = "adamw";
    OK(optc_compile_sized(e, &ro.now, sizeof ro, &r));
    OK(optc_release(r));
    ro.later = &ro;
    FAILS(optc_compile_sized(e, &ro.now, sizeof ro, &r), OPTC_ERROR_ARGUMENT,
          "optc_rule_options has members set that this version");
    FAILS(optc_compile_sized(e, &ro.now, 0, &r), OPTC_ERROR_ARGUMENT,
          "the size of optc_rule_options is 0; pass sizeof(optc_rule_options), as optc_compile");
    OK(optc_close(e));
    memset(&o, 0, sizeof o);
    OK(optc_open_sized(&o.now, sizeof o, &e));
    OK(optc_close(e));
    o.later[1] = 1;
    FAILS(optc_open_sized(&o.now, sizeof o, &e), OPTC_ERROR_ARGUMENT, "leave them 0");
    FAILS(optc_open_sized(&o.now, 0, &e), OPTC_ERROR_ARGUMENT, "pass sizeof(optc_engine_options)");
    ck_assert(!optc_doctor_sized(&o.now, sizeof o) && strstr(optc_message(), "leave them 0"));
    ck_assert(!optc_doctor_sized(&o.now, 0) &&
              strstr(optc_message(), "pass sizeof(optc_engine_options), as optc_doctor"));
    /* garbage where an older header ends */
    memset(&o.now.workspace, 0x5a, sizeof o - offsetof(optc_engine_options, workspace));
    char *page = optc_doctor_sized(&o.now, offsetof(optc_engine_options, workspace));
    ck_assert(page && strstr(page, OPTC_VERSION));
    free(page);
    OK(optc_open_sized(NULL, 0, &e));
    OK(optc_close(e));
}
END_TEST

/* Groups and tensors with the struct sizes of other versions: the same step. */
START_TEST(tensors_of_other_versions)
{
    enum { N = 3, SHORT = offsetof(optc_tensor, split) };
    struct Later { optc_tensor now; int64_t later; } later[N];
    struct LaterGroup { optc_group now; void *later; } group[2];
    char shorter[N][SHORT];
    float p[3][N][4], g[N] = {1, -2, 3};
    optc_binding *b;
    for (int way = 0; way < 3; way++) {
        memset(group, 0, sizeof group);
        for (int i = 0; i < N; i++) {
            optc_tensor t = {.name = "x", .param = &p[way][i][0], .grad = &g[i]};
            p[way][i][0] = 1;
            later[i] = (struct Later){t, 0};
            memcpy(shorter[i], &t, SHORT);
        }
        size_t size = way == 0 ? sizeof(optc_tensor) : way == 1 ? SHORT : sizeof *later;
        optc_tensor plain[N] = {later[0].now, later[1].now, later[2].now};
        char *list = way == 0 ? (char *)plain : way == 1 ? shorter[0] : (char *)later;
        group[0].now =
            (optc_group){.tensors = (const optc_tensor *)(const void *)list, .ntensors = 1};
        group[1].now = (optc_group){.tensors = (const optc_tensor *)(const void *)(list + size),
                                    .ntensors = 2};
        if (way == 2) {
            later[1].later = 7;
            FAILS(optc_bind_sized(rule, &group[0].now, 2, sizeof *group, size, &b),
                  OPTC_ERROR_ARGUMENT, "optc_tensor has members set");
            later[1].later = 0;
        }
        OK(optc_bind_sized(rule, &group[0].now, 2, sizeof *group, size, &b));
        ck_assert_int_eq(optc_tensors(b), N);
        OK(optc_step(b));
        OK(optc_unbind(b));
        ck_assert_mem_eq(p[0][0], p[way][0], 4);
        ck_assert_mem_eq(p[0][2], p[way][2], 4);
        ck_assert(p[way][1][0] != 1);
    }
    FAILS(optc_bind_sized(rule, &group[0].now, 2, 0, sizeof(optc_tensor), &b), OPTC_ERROR_ARGUMENT,
          "pass sizeof(optc_group)");
    FAILS(optc_bind_sized(rule, &group[0].now, 1, sizeof(optc_group), 0, &b), OPTC_ERROR_ARGUMENT,
          "pass sizeof(optc_tensor)");
}
END_TEST

/* A struct that is shorter than in the first version: a tensor without a rank would be stepped as a
 * scalar. Nothing is read, stepped or written. */
START_TEST(structs_cut_off)
{
    static const int64_t shape[] = {4};
    float p[4] = {1, 1, 1, 1}, g[4] = {1, 1, 1, 1};
    optc_tensor t = {.param = p, .grad = g, .rank = 1, .shape = shape};
    optc_group group = {.tensors = &t, .ntensors = 1};
    union { optc_tensor_info tensor; optc_held held; optc_factors factors; optc_type_info type;
            optc_shard_plan plan; } out;
    optc_binding *b, *cut;
    optc_engine *e;
    optc_rule *r;
    optc_engine_options eo = {.threads = 1};
    optc_rule_options ro = {.spec = "sgd"};
    optc_checkpoint c = {.path = "/nonexistent/x"};
    OK(optc_bind(rule, &group, 1, &b));
    for (size_t n = 0; n < 500; n += n < 40 ? 1 : 8) {
#define CUT(call, T, last, ...) \
    if (n < offsetof(T, last) + sizeof(((T *)NULL)->last)) \
    FAILS(call(__VA_ARGS__), OPTC_ERROR_ARGUMENT, #T)
        CUT(optc_bind_sized, optc_tensor, offset, rule, &group, 1, sizeof group, n, &cut);
        CUT(optc_bind_sized, optc_group, nhyper, rule, &group, 1, n, sizeof t, &cut);
        CUT(optc_open_sized, optc_engine_options, fatbin_path, &eo, n, &e);
        CUT(optc_compile_sized, optc_rule_options, state, engine, &ro, n, &r);
        CUT(optc_save_sized, optc_checkpoint, warnings_size, &b, 1, &c, n);
        CUT(optc_load_sized, optc_checkpoint, warnings_size, &b, 1, &c, n);
        CUT(optc_rule_check_state_sized, optc_tensor, offset, rule, "m", &t, OPTC_F32, p, 0, 4, n);
        CUT(optc_tensor_about_sized, optc_tensor_info, variant, b, 0, &out.tensor, n);
        CUT(optc_binding_held_sized, optc_held, batches, b, &out.held, n);
        CUT(optc_factors_about_sized, optc_factors, residual, b, 0, &out.factors, n);
        CUT(optc_type_about_sized, optc_type_info, dlpack, OPTC_F32, &out.type, n);
        CUT(optc_plan_sharded_sized, optc_shard_plan, buffers, rule, &group, 1, 0, 2, &out.plan, n);
        CUT(optc_multiply_sized, optc_product, stream, engine, &(optc_product){.m = 0}, n);
        CUT(optc_kron_sized, optc_kronecker, stream, engine, &(optc_kronecker){.m = 0}, n);
        CUT(optc_kron_apply_sized, optc_kron_vector, stream, engine, &(optc_kron_vector){.m = 0},
            n);
        CUT(optc_solve_sized, optc_function, bytes, engine, &(optc_function){.m = 0}, n);
        CUT(optc_sample_norms_sized, optc_linear, stream, engine, &(optc_linear){.rows = 0}, n);
        ck_assert(n >= offsetof(optc_engine_options, workspace) || !optc_doctor_sized(&eo, n));
    }
    ck_assert(p[0] == 1 && p[3] == 1);
    OK(optc_unbind(b));
}
END_TEST

/* A wrong name gets a suggestion, a number out of range its limit. */
START_TEST(names_and_limits)
{
    static const int64_t shape[] = {4};
    float p[4] = {1, 1, 1, 1}, g[4] = {1, 1, 1, 1};
    optc_tensor t = {.param = p, .grad = g, .rank = 1, .shape = shape};
    optc_binding *b;
    optc_rule *r;
    optc_engine *e;
    optc_bytes bytes;
    double x;
    char known[80];
    static const char text[] =
        "return optimizer { name = 'x', hyper = { rate = 0.1 }, inputs = { loss = 'group' },\n"
        "step = function() p = p - rate * g / loss end, look = function() p = 2 * p end }";
    OK(optc_compile(engine, &(optc_rule_options){.text = text}, &r));
    OK(optc_bind(r, &(optc_group){.tensors = &t, .ntensors = 1}, 1, &b));
    FAILS(optc_run(b, "stp"), OPTC_ERROR_ARGUMENT, "has no entry 'stp'; did you mean 'step'?");
    FAILS(optc_run(b, "Look"), OPTC_ERROR_ARGUMENT, "did you mean 'look'?");
    FAILS(optc_run_all(&b, 1, "lok"), OPTC_ERROR_ARGUMENT, "did you mean 'look'?");
    FAILS(optc_plan_bytes(b, "steps", 1, &bytes), OPTC_ERROR_ARGUMENT,
          "has no entry 'steps'; did you mean 'step'?");
    FAILS(optc_plan_bytes(b, NULL, 1, &bytes), OPTC_ERROR_ARGUMENT,
          "optc_plan_bytes: rule 'x' has no entry '(null)'");
    FAILS(optc_get_hyper(b, 0, "rat", &x), OPTC_ERROR_ARGUMENT, "'rat'; did you mean 'rate'?");
    FAILS(optc_get_hyper(b, 0, NULL, &x), OPTC_ERROR_ARGUMENT, "'(null)'");
    FAILS(optc_set_hyper_from(b, 0, "rates", &x, OPTC_F64), OPTC_ERROR_ARGUMENT,
          "did you mean 'rate'?");
    FAILS(optc_set_scalar(b, 0, "los", 1), OPTC_ERROR_ARGUMENT,
          "has no input 'los'; did you mean 'loss'?");
    FAILS(optc_set_input(b, 0, "los", p, 4), OPTC_ERROR_ARGUMENT, "did you mean 'loss'?");
    for (int i = -1; i < 1; i++) {
        FAILS(optc_set_t(b, i, INT64_MAX), OPTC_ERROR_ARGUMENT,
              "from 0 to 4503599627370496 (2^52)");
        FAILS(optc_set_t(b, i, -1), OPTC_ERROR_ARGUMENT, "from 0 to 4503599627370496");
    }
    OK(optc_set_t(b, -1, (int64_t)1 << 52));
    OK(optc_unbind(b));
    OK(optc_release(r));
    FAILS(optc_open(&(optc_engine_options){.threads = 99999}, &e), OPTC_ERROR_ARGUMENT,
          "from 0 (all cores) to 4096");
    FAILS(optc_open(&(optc_engine_options){.threads = -1}, &e), OPTC_ERROR_ARGUMENT, "to 4096");
    snprintf(known, sizeof known, "%sx", optc_isa_name(optc_isas() - 1));
    FAILS(optc_open(&(optc_engine_options){.isa = known}, &e), OPTC_ERROR_UNAVAILABLE,
          "is not known here; did you mean");
}
END_TEST

/* ---- gradients ---- */
static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Moves the gradients of 100 000 tensors, at once and one by one. Searching all parameters for each
 * took minutes of CPU time. */
START_TEST(many_gradients_move)
{
    const int n = sanitized() ? 2000 : 100000;
    float *p = calloc((size_t)n, 4), *g = calloc(2 * (size_t)n, 4);
    optc_tensor *t = calloc((size_t)n, sizeof *t);
    const void **to = calloc((size_t)n, sizeof *to);
    optc_binding *b;
    for (int i = 0; i < n; i++) {
        t[i] = (optc_tensor){.param = &p[i], .grad = &g[i]};
        to[i] = &g[n + i];
        g[n + i] = 1;
    }
    OK(optc_bind(rule, &(optc_group){.tensors = t, .ntensors = n}, 1, &b));
    double from = seconds();
    OK(optc_set_grads(b, to, n));
    for (int i = 0; i < n; i++)
        OK(optc_set_grad(b, i, &g[i], 1));
    OK(optc_set_grads(b, to, n));
    double took = seconds() - from;
    ck_assert_msg(took < 30, "%g s", took);
    OK(optc_step(b));
    ck_assert(p[0] != 0 && p[n - 1] != 0);
    OK(optc_unbind(b));
    free(p);
    free(g);
    free(t);
    free(to);
}
END_TEST

START_TEST(all_gradients_or_none)
{
    float p[3] = {1, 1, 1}, g[3] = {1, 2, 3}, h[3] = {4, 5, 6};
    optc_tensor t[3];
    optc_tensor_info info;
    optc_binding *b;
    const void *to[3] = {&h[0], &h[1], &p[2]};
    for (int i = 0; i < 3; i++)
        t[i] = (optc_tensor){.param = &p[i], .grad = &g[i]};
    OK(optc_bind(rule, &(optc_group){.tensors = t, .ntensors = 3}, 1, &b));
    FAILS(optc_set_grads(b, to, 3), OPTC_ERROR_ARGUMENT,
          "optc_set_grads: 'g' of tensor number 2 overlaps the parameter of tensor number 2");
    OK(optc_tensor_about(b, 0, &info));
    ck_assert_ptr_eq(info.grad, &g[0]);
    FAILS(optc_set_grads(b, to, 2), OPTC_ERROR_ARGUMENT, "the binding has 3 tensors, but n is 2");
    FAILS(optc_set_grads(b, NULL, 3), OPTC_ERROR_ARGUMENT, "the list is NULL");
    to[2] = &h[2];
    OK(optc_set_grads(b, to, 3));
    OK(optc_tensor_about(b, 2, &info));
    ck_assert_ptr_eq(info.grad, &h[2]);
    OK(optc_unbind(b));
}
END_TEST

/* ---- questions ---- */
START_TEST(what_is_bound)
{
    int64_t d[2] = {3, 4};
    float p[16] = {0}, g[16] = {0};
    optc_tensor t[3] = {{.name = "w", .param = p, .grad = g, .rank = 2, .shape = d},
                        {.param = p + 12, .grad = g + 12, .rank = 1, .shape = d},
                        {.name = "s", .param = p + 15, .grad = NULL}};
    optc_group group[2] = {{.tensors = t, .ntensors = 1}, {.tensors = t + 1, .ntensors = 2}};
    optc_tensor_info x;
    optc_binding *b;
    int first, count, has;
    OK(optc_bind(rule, group, 2, &b));
    d[0] = 9;                                     /* the arrays of the caller have been read */
    ck_assert(optc_groups(b) == 2 && optc_tensors(b) == 3 && optc_groups(NULL) == 0);
    OK(optc_group_tensors(b, 1, &first, &count));
    ck_assert(first == 1 && count == 2);
    FAILS(optc_group_tensors(b, 2, &first, &count), OPTC_ERROR_ARGUMENT, "no group 2");
    OK(optc_tensor_about(b, 0, &x));
    ck_assert(!strcmp(x.name, "w") && x.group == 0 && x.rank == 2 && x.shape[0] == 3 &&
              x.shape[1] == 4 && x.count == 12 && x.param == p && x.grad == g);
    ck_assert_str_eq(x.variant, "matrix");
    OK(optc_tensor_about(b, 2, &x));
    ck_assert(x.group == 1 && x.rank == 0 && x.count == 1 && !x.grad);
    ck_assert_str_eq(x.variant, "step");
    FAILS(optc_tensor_about(b, 3, &x), OPTC_ERROR_ARGUMENT, "no tensor 3");
    ck_assert(optc_find_tensor(b, "s") == 2 && optc_find_tensor(b, "t") == -1 &&
              optc_find_tensor(b, NULL) == -1);
    /* an older header: memory after the struct belongs to the caller */
    optc_held old;
    memset(&old, 0x5a, sizeof old);
    OK(optc_binding_held_sized(b, &old, offsetof(optc_held, graphs)));
    ck_assert(old.states > 0 && old.states < 10000 && old.graphs == 0x5a5a5a5a5a5a5a5a);
    /* adafactor has row and column states for matrices, and element states for other tensors */
    OK(optc_has_state(b, 0, "r", &has));
    ck_assert(has == 1);
    OK(optc_has_state(b, 1, "r", &has));
    ck_assert(has == 0);
    OK(optc_has_state(b, 1, "v", &has));
    ck_assert(has == 1);
    FAILS(optc_has_state(b, 0, "rr", &has), OPTC_ERROR_ARGUMENT, "no state 'rr'");
    double v;
    FAILS(optc_state_read(b, 1, "r", &v, 1), OPTC_ERROR_ABSENT,
          "tensor number 1 keeps no state 'r'");
    ck_assert_str_eq(optc_status_name(OPTC_ERROR_ABSENT), "not there");
    OK(optc_unbind(b));
    /* the same without elements */
    const int64_t none[] = {0, 3};
    optc_tensor empty[2] = {{.param = p, .grad = g, .rank = 2, .shape = none},
                            {.param = p, .grad = g, .rank = 1, .shape = none}};
    OK(optc_bind(rule, &(optc_group){.tensors = empty, .ntensors = 2}, 1, &b));
    for (int i = 0; i < 2; i++) {
        OK(optc_has_state(b, i, i ? "v" : "r", &has));
        ck_assert(has == 1);
        OK(optc_has_state(b, i, i ? "r" : "v", &has));
        ck_assert_msg(!has, "tensor %d keeps a state of another variant", i);
    }
    FAILS(optc_state_read(b, 1, "r", &v, 0), OPTC_ERROR_ABSENT, "keeps no state 'r'");
    OK(optc_unbind(b));
}
END_TEST

START_TEST(hyperparameters_if_there)
{
    float p = 1, g = 1;
    optc_tensor t = {.param = &p, .grad = &g};
    optc_binding *b;
    int has = 7;
    double x;
    OK(optc_bind(rule, &(optc_group){.tensors = &t, .ntensors = 1}, 1, &b));
    OK(optc_set_hyper_if(b, -1, "lr", 0.25, &has));
    OK(optc_get_hyper(b, 0, "lr", &x));
    ck_assert(has == 1 && x == 0.25);
    OK(optc_set_hyper_if(b, 0, "momentum", 0.9, &has));
    ck_assert(has == 0);
    OK(optc_set_hyper_if(b, 0, "momentum", 0.9, NULL));
    FAILS(optc_set_hyper_if(b, 0, "lr", -1, &has), OPTC_ERROR_RANGE, "lr = -1");
    FAILS(optc_set_hyper_if(b, 5, "lr", 1, &has), OPTC_ERROR_ARGUMENT, "no group 5");
    OK(optc_unbind(b));
}
END_TEST

/* ---- raw copies ---- */
/* Every bit of a bf16 state is read and written unchanged. */
START_TEST(raw_states)
{
    optc_rule *r;
    optc_binding *b;
    uint16_t p[5] = {0x3f80, 0x4000, 0x4040, 0x4080, 0x40a0},
             g[5] = {0x3f80, 0xbf80, 0x3f00, 0x3e80, 0xc000}, m[5], was[5];
    int64_t d[1] = {5};
    double x[5];
    OK(optc_compile(engine,
                    &(optc_rule_options){
                        .spec = "lion", .param = OPTC_BF16, .grad = OPTC_BF16, .state = OPTC_BF16},
                    &r));
    optc_tensor t = {.param = p, .grad = g, .rank = 1, .shape = d};
    OK(optc_bind(r, &(optc_group){.tensors = &t, .ntensors = 1}, 1, &b));
    OK(optc_step(b));
    OK(optc_state_get(b, 0, "m", m, sizeof m));
    OK(optc_state_read(b, 0, "m", x, 5));
    for (int i = 0; i < 5; i++) {
        uint32_t bits = (uint32_t)m[i] << 16;
        float f;
        memcpy(&f, &bits, 4);
        ck_assert(x[i] == (double)f && m[i] != 0);
    }
    memcpy(was, m, sizeof m);
    m[2] = 0x7fc1;                                /* a NaN keeps its bits */
    OK(optc_state_put(b, 0, "m", m, sizeof m));
    memset(m, 0, sizeof m);
    OK(optc_state_get(b, 0, "m", m, sizeof m));
    ck_assert(m[2] == 0x7fc1 && m[0] == was[0] && m[4] == was[4]);
    FAILS(optc_state_get(b, 0, "m", m, 20), OPTC_ERROR_ARGUMENT,
          "state 'm' has 10 bytes (5 of bf16), the buffer 20");
    FAILS(optc_state_put(b, 0, "m", NULL, sizeof m), OPTC_ERROR_ARGUMENT, "the buffer 0");
    FAILS(optc_state_put(b, 0, "mm", m, sizeof m), OPTC_ERROR_ARGUMENT, "no state 'mm'");
    OK(optc_unbind(b));
    OK(optc_release(r));
}
END_TEST

/* One tensor whose rows are those of three matrices is stepped like three tensors, bit for bit,
 * with the orientation of the matrices. */
START_TEST(split_into_matrices)
{
    static const char *spec =
        "return optimizer { name = 'parts', hyper = { lr = 0.1 }, matrix = function()\n"
        "  if nrows <= ncols then p = p - lr * g / (slice.norm(g) + rowsum(abs(g)) + nrows)\n"
        "  else p = p * 2 end end, step = function() p = p * 3 end }";
    optc_engine *e;
    optc_rule *r;
    optc_binding *one, *three;
    float p[2][3 * 4 * 5], g[3 * 4 * 5];
    for (int i = 0; i < 60; i++) {
        p[0][i] = p[1][i] = sinf((float)i);
        g[i] = cosf((float)(3 * i));
    }
    OK(optc_open(&(optc_engine_options){.threads = 2, .cache_dir = ""}, &e));
    OK(optc_compile(e, &(optc_rule_options){.spec = "parts", .text = spec}, &r));
    optc_tensor whole = {.name = "qkv",
                         .param = p[0],
                         .grad = g,
                         .rank = 2,
                         .shape = (int64_t[]){12, 5},
                         .split = 3},
                part[3];
    const int64_t each[] = {4, 5};
    for (int i = 0; i < 3; i++)
        part[i] =
            (optc_tensor){.param = p[1] + 20 * i, .grad = g + 20 * i, .rank = 2, .shape = each};
    OK(optc_bind(r, &(optc_group){.tensors = &whole, .ntensors = 1}, 1, &one));
    OK(optc_bind(r, &(optc_group){.tensors = part, .ntensors = 3}, 1, &three));
    for (int t = 0; t < 3; t++) {
        OK(optc_step(one));
        OK(optc_step(three));
    }
    ck_assert(!memcmp(p[0], p[1], sizeof *p));
    ck_assert(p[0][7] != sinf(7) && p[0][7] != 8 * sinf(7));
    OK(optc_unbind(one));
    OK(optc_unbind(three));
    whole.split = 5;
    FAILS(optc_bind(r, &(optc_group){.tensors = &whole, .ntensors = 1}, 1, &one),
          OPTC_ERROR_ARGUMENT, "cannot be split into 5: that does not divide its rows");
    whole.split = -1;
    FAILS(optc_bind(r, &(optc_group){.tensors = &whole, .ntensors = 1}, 1, &one),
          OPTC_ERROR_ARGUMENT, "the number is negative");
    whole.split = 2, whole.flags = OPTC_AS_VECTOR;
    FAILS(optc_bind(r, &(optc_group){.tensors = &whole, .ntensors = 1}, 1, &one),
          OPTC_ERROR_ARGUMENT, "it is no matrix");
    whole.split = 7, whole.flags = 0, whole.rank = 1;
    FAILS(optc_bind(r, &(optc_group){.tensors = &whole, .ntensors = 1}, 1, &one),
          OPTC_ERROR_ARGUMENT, "it is no matrix");
    OK(optc_release(r));
    OK(optc_close(e));
}
END_TEST

/* ---- parameters that move ---- */
/* Parameters at new addresses: steps continue with the existing states. A call that is refused
 * moves nothing. */
START_TEST(parameters_move)
{
    enum { N = 3, LONG = 70 };
    static const char *const spec[] = {"adamw", "muon", "shampoo"};
    static float old[N][LONG], now[N][LONG], twin[N][LONG], g[N][LONG], free_room[2 * LONG];
    static const int64_t shape[2] = {7, 10};
    optc_rule *r;
    optc_binding *b, *c;
    optc_tensor t[N], u[N];
    void *to[N];
    OK(optc_compile(
        engine, &(optc_rule_options){.spec = spec[_i], .options = _i == 2 ? "side=4" : ""}, &r));
    for (int k = 0; k < N; k++) {
        for (int i = 0; i < LONG; i++)
            old[k][i] = twin[k][i] = (float)ref_value(k, 0, i), g[k][i] = (float)ref_value(k, 1, i);
        t[k] = (optc_tensor){.param = old[k], .grad = g[k], .rank = 2, .shape = shape};
        u[k] = (optc_tensor){.param = twin[k], .grad = g[k], .rank = 2, .shape = shape};
        to[k] = now[k];
    }
    OK(optc_bind(r, &(optc_group){.tensors = t, .ntensors = N}, 1, &b));
    OK(optc_bind(r, &(optc_group){.tensors = u, .ntensors = N}, 1, &c));
    OK(optc_step(b));
    OK(optc_step(c));
    memcpy(now, old, sizeof now);
    FAILS(optc_set_params(NULL, to, N), OPTC_ERROR_ARGUMENT, "the binding is NULL");
    FAILS(optc_set_params(b, NULL, N), OPTC_ERROR_ARGUMENT, "the list is NULL");
    FAILS(optc_set_params(b, to, N - 1), OPTC_ERROR_ARGUMENT,
          "the binding has 3 tensors, but n is 2");
    void *const bad[][N] = {{now[0], NULL, now[2]},
                            {now[0], (char *)now[1] + 1, now[2]},
                            {now[0], free_room, free_room + LONG - 1},
                            {now[0], g[2], now[2]},
                            {now[0], now[1], g[1] + 60}};
    static const char *const says[] = {
        "tensor number 1: its parameter pointer is NULL", "not aligned to its element",
        "the parameters of tensor number 1 and tensor number 2 overlap",
        "the gradient of tensor number 2 overlaps the parameter of tensor number 1",
        "overlaps the parameter of tensor number 2"};
    for (int k = 0; k < 5; k++)
        FAILS(optc_set_params(b, bad[k], N), OPTC_ERROR_ARGUMENT, says[k]);
    optc_state_view state;
    OK(optc_state(b, 0, "m", &state));
    FAILS(optc_set_params(b, (void *[]){state.data, now[1], now[2]}, N), OPTC_ERROR_ARGUMENT,
          "the memory of this binding's states");
    OK(optc_step(b));                                      /* nothing has moved */
    OK(optc_step(c));
    ck_assert(!memcmp(old, twin, sizeof old) && memcmp(old, now, sizeof old));
    memcpy(now, old, sizeof now);
    OK(optc_set_params(b, to, N));
    optc_tensor_info info;
    OK(optc_tensor_about(b, 1, &info));
    ck_assert(info.param == now[1]);
    for (int step = 0; step < 3; step++) {
        OK(optc_step(b));
        OK(optc_step(c));
    }
    ck_assert(!memcmp(now, twin, sizeof now) && memcmp(now, old, sizeof now));
    FAILS(optc_set_grad(b, 0, now[2], 0), OPTC_ERROR_ARGUMENT,
          "overlaps the parameter of tensor number 2");
    OK(optc_set_grad(b, 0, old[2], 0));                    /* an address that is no longer used */
    OK(optc_unbind(b));
    OK(optc_unbind(c));
    OK(optc_release(r));
}
END_TEST

/* ---- states in the caller's memory ---- */
/* a matrix, a vector, and a matrix that is added later */
enum { KEPT = 3, SIDE = 8 };

static void tensors_of(optc_tensor *t, float p[KEPT][SIDE * SIDE], float g[SIDE * SIDE],
                       int64_t shape[KEPT][2])
{
    memset(t, 0, sizeof *t * KEPT);
    for (int i = 0; i < KEPT; i++)
        t[i] = (optc_tensor){.param = p[i], .grad = g, .rank = i == 1 ? 1 : 2, .shape = shape[i]};
}

/* Binds again with one more tensor: the existing states are used where they are, and none is
 * initialised. */
START_TEST(caller_owned_states)
{
    static _Alignas(64) float p[2][KEPT][SIDE * SIDE], g[SIDE * SIDE];
    int64_t shape[KEPT][2] = {{SIDE, SIDE}, {SIDE, 0}, {4, SIDE}};
    optc_tensor t[KEPT], twin[KEPT];
    optc_binding *a, *b, *c;
    optc_held held, less;
    void *at[2][8] = {{NULL}};
    tensors_of(t, p[0], g, shape);
    tensors_of(twin, p[1], g, shape);
    for (int i = 0; i < SIDE * SIDE; i++)
        for (int k = 0; k < KEPT; k++)
            p[0][k][i] = p[1][k][i] = (float)ref_value(k, 0, i), g[i] = (float)ref_value(3, 1, i);
    twin[2].grad = NULL;
    OK(optc_bind(rule, &(optc_group){.tensors = twin, .ntensors = KEPT}, 1, &c));
    OK(optc_bind(rule, &(optc_group){.tensors = t, .ntensors = 2}, 1, &a));
    for (int s = 0; s < 2; s++) {
        OK(optc_step(a));
        OK(optc_step(c));
    }
    for (int i = 0; i < 2; i++)
        for (int k = 0; k < optc_rule_states(rule); k++) {
            optc_state_info info;
            optc_state_view v;
            int has;
            OK(optc_rule_state(rule, k, &info));
            OK(optc_has_state(a, i, info.name, &has));
            if (has)
                OK(optc_state(a, i, info.name, &v));
            at[i][k] = has ? v.data : NULL;
        }
    t[0].states = at[0], t[1].states = at[1];
    int k0 = 0;
    while (!at[1][k0])
        k0++;
    char *was = at[1][k0];
    at[1][k0] = was + 4;
    FAILS(optc_bind(rule, &(optc_group){.tensors = t, .ntensors = KEPT}, 1, &b),
          OPTC_ERROR_ARGUMENT, "is not aligned to 64 bytes");
    at[1][k0] = was;
    t[2].grad = was;
    FAILS(optc_bind(rule, &(optc_group){.tensors = t, .ntensors = KEPT}, 1, &b),
          OPTC_ERROR_ARGUMENT,
          "overlaps the memory of this binding's states; give it its own memory");
    t[2].grad = g;
    OK(optc_bind(rule, &(optc_group){.tensors = t, .ntensors = KEPT}, 1, &b));
    OK(optc_binding_held(b, &held));
    OK(optc_binding_held(c, &less));
    ck_assert(held.states > 0 && held.states <= less.states && held.temporaries >= 0);
    FAILS(optc_set_grad(b, 2, was, 0), OPTC_ERROR_ARGUMENT,
          "overlaps the memory of this binding's states; give it its own memory");
    OK(optc_set_t(b, -1, 2));
    OK(optc_set_t(b, 2, 0));
    OK(optc_set_grad(c, 2, g, 0));
    for (int s = 0; s < 3; s++) {
        OK(optc_step(b));
        OK(optc_step(c));
    }
    ck_assert(!memcmp(p[0], p[1], sizeof p[0]));
    OK(optc_unbind(b));
    OK(optc_unbind(a));
    OK(optc_unbind(c));
}
END_TEST

Suite *binding_suite(void)
{
    Suite *s = suite_create("binding");
    TCase *t = tcase_create("binding");
    tcase_set_timeout(t, 60);
    tcase_add_checked_fixture(t, open_rule, close_rule);
    tcase_add_test(t, options_of_other_versions);
    tcase_add_test(t, tensors_of_other_versions);
    tcase_add_test(t, structs_cut_off);
    tcase_add_test(t, names_and_limits);
    tcase_add_test(t, many_gradients_move);
    tcase_add_test(t, all_gradients_or_none);
    tcase_add_loop_test(t, parameters_move, 0, 3);
    tcase_add_test(t, what_is_bound);
    tcase_add_test(t, hyperparameters_if_there);
    tcase_add_test(t, raw_states);
    tcase_add_test(t, split_into_matrices);
    tcase_add_test(t, caller_owned_states);
    suite_add_tcase(s, t);
    return s;
}
