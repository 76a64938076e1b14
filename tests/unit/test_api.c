/* The public interface: its promises, and its messages for wrong use. */
#include "tests/harness/help.h"
#include "runtime/core/api/api.h"

#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static optc_engine *engine;
static optc_rule *adamw;

static void open_adamw(void)
{
    OK(optc_open(&(optc_engine_options){.threads = 2, .cache_dir = ""}, &engine));
    OK(optc_compile(engine, &(optc_rule_options){.spec = "adamw"}, &adamw));
}

static void close_adamw(void)
{
    OK(optc_release(adamw));
    OK(optc_close(engine));
}

static float data[4][64];

static optc_binding *bind_two(void)
{
    static const int64_t d[1] = {16};
    optc_tensor a = {.name = "w", .param = data[0], .grad = data[1], .rank = 1, .shape = d},
        b = {.name = "b", .param = data[2], .grad = data[3], .rank = 1, .shape = d};
    optc_setting fast = {"lr", 0.5};
    optc_group g[2] = {{.tensors = &a, .ntensors = 1},
                       {.tensors = &b, .ntensors = 1, .hyper = &fast, .nhyper = 1}};
    for (int k = 0; k < 4; k++)
        for (int i = 0; i < 64; i++)
            data[k][i] = (float)ref_value(k, 1, i);
    optc_binding *out;
    OK(optc_bind(adamw, g, 2, &out));
    return out;
}

START_TEST(nulls)
{
    optc_engine *e;
    optc_rule *r;
    optc_binding *b;
    double x;
    FAILS(optc_open(NULL, NULL), OPTC_ERROR_ARGUMENT, "engine is NULL");
    FAILS(optc_compile(NULL, &(optc_rule_options){.spec = "adamw"}, &r), OPTC_ERROR_ARGUMENT,
          "engine is NULL");
    FAILS(optc_compile(engine, NULL, &r), OPTC_ERROR_ARGUMENT, "options is NULL");
    FAILS(optc_compile(engine, &(optc_rule_options){0}, &r), OPTC_ERROR_ARGUMENT, "spec is NULL");
    ck_assert_ptr_null(r);
    FAILS(optc_bind(NULL, NULL, 1, &b), OPTC_ERROR_ARGUMENT, "rule is NULL");
    FAILS(optc_bind(adamw, NULL, 1, &b), OPTC_ERROR_ARGUMENT, "groups are NULL");
    FAILS(optc_bind(adamw, &(optc_group){.ntensors = 1}, 1, &b), OPTC_ERROR_ARGUMENT,
          "tensors or hyper is NULL");
    FAILS(optc_step(NULL), OPTC_ERROR_ARGUMENT, "binding is NULL");
    FAILS(optc_set_hyper(NULL, 0, "lr", 1), OPTC_ERROR_ARGUMENT, "NULL");
    FAILS(optc_get_hyper(NULL, 0, "lr", &x), OPTC_ERROR_ARGUMENT, "NULL");
    FAILS(optc_set_grad(NULL, 0, NULL, 0), OPTC_ERROR_ARGUMENT, "NULL");
    FAILS(optc_state_read(NULL, 0, "m", &x, 1), OPTC_ERROR_ARGUMENT, "NULL");
    FAILS(optc_open(&(optc_engine_options){.device = "tpu"}, &e), OPTC_ERROR_UNAVAILABLE, "tpu");
    FAILS(optc_open(&(optc_engine_options){.isa = "mmx"}, &e), OPTC_ERROR_UNAVAILABLE, "mmx");
    FAILS(optc_open(&(optc_engine_options){.threads = -3}, &e), OPTC_ERROR_ARGUMENT, "threads");
    ck_assert_int_eq(optc_close(NULL), OPTC_OK);
    ck_assert_int_eq(optc_release(NULL), OPTC_OK);
    ck_assert_int_eq(optc_unbind(NULL), OPTC_OK);
}
END_TEST

/* The public list of types has the rows of types.def in the order of the enum; a caller with an
 * older header gets the fields that fit. */
START_TEST(storage_types)
{
    struct { optc_type_info x; char behind; } out = {.behind = 7};
    ck_assert_int_eq(optc_types(), NTYPES);
    for (int t = 0; t < NTYPES; t++) {
        OK(optc_type_about((optc_type)(t + 1), &out.x));
        ck_assert_str_eq(out.x.name, type_info[t].name);
        ck_assert_int_eq(out.x.bits, 8 * type_info[t].bytes);
    }
    OK(optc_type_about(OPTC_BF16, &out.x));
    ck_assert_str_eq(out.x.name, "bf16");
    ck_assert_str_eq(out.x.dtype, "bfloat16");
    ck_assert_int_eq(out.x.dlpack, 4);
    FAILS(optc_type_about_sized(OPTC_F16, &out.x, sizeof out.x.name), OPTC_ERROR_ARGUMENT,
          "size of optc_type_info");
    ck_assert_str_eq(out.x.name, "bf16");
    ck_assert_int_eq(out.behind, 7);
    FAILS(optc_type_about(OPTC_DEFAULT, &out.x), OPTC_ERROR_ARGUMENT, "there is no type 0");
    FAILS(optc_type_about((optc_type)(NTYPES + 1), &out.x), OPTC_ERROR_ARGUMENT,
          "there is no type");
    FAILS(optc_type_about(OPTC_F32, NULL), OPTC_ERROR_ARGUMENT, "NULL");
}
END_TEST

START_TEST(device_names)
{
    static const struct { const char *text; DeviceKind kind; int ordinal;
    } good[] = {{NULL, DEVICE_CPU, 0},   {"cpu", DEVICE_CPU, 0},    {"best", DEVICE_BEST, 0},
                {"cuda", DEVICE_GPU, 0}, {"cuda:0", DEVICE_GPU, 0}, {"cuda:12", DEVICE_GPU, 12}};
    static const char *const bad[] =
        {"", "cpu:0", "CPU", "cudax", "cuda:", "cuda:x", "cuda:1x", "cuda:-1", "cuda:9999999"};
    DeviceName name;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        ck_assert(device_parse(good[i].text, &name) && name.kind == good[i].kind &&
                  name.ordinal == good[i].ordinal);
        ck_assert(name.kind == DEVICE_BEST ||
                  device_target(good[i].text) ==
                      (name.kind == DEVICE_GPU ? &target_cuda : &target_c));
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        ck_assert_msg(!device_parse(bad[i], &name) && !device_target(bad[i]), "%s", bad[i]);
    ck_assert(target_by_name("c") == &target_c && target_by_name("cuda") == &target_cuda &&
              !target_by_name("hip"));
}
END_TEST

START_TEST(specs_that_fail)
{
    optc_rule *r;
    const optc_rule_options bad[] = {
        {.spec = "adamv"},
        {.spec = "./no/such.lua"},
        {.spec = "tests"},
        {.spec = "./tests"},
        {.spec = "adamw", .with = "clop(1)"},
        {.spec = "adamw", .options = "amsgrad=perhaps"},
        {.spec = "adamw", .options = "amsgard=true"},
        {.spec = "mine.lua",
         .text = "return optimizer { name = \"x\",\n step = function() q = 1 end }"},
        {.spec = "adamw", .with = "ema(2)"},
        {.spec = "adamw", .param = (optc_type)77}};
    static const char *const says[] = {"'adamp' or 'adamw'?",
                                       "cannot read the spec: No such file",
                                       "no optimizer 'tests'",
                                       "cannot read the spec: Is a directory",
                                       "no wrapper 'clop' in the library; did you mean 'clip'",
                                       "true or false, not 'perhaps'",
                                       "no option 'amsgard'; did you mean 'amsgrad'",
                                       "mine.lua:2: 'q' is not declared",
                                       "outside the range",
                                       "storage type"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        FAILS(optc_compile(engine, &bad[i], &r), i == 9 ? OPTC_ERROR_ARGUMENT : OPTC_ERROR_SPEC,
              says[i]);
        ck_assert_ptr_null(r);
    }
    if (geteuid() != 0) {                 /* root can read everything */
        char path[] = "/tmp/optc-unreadable-XXXXXX.lua";
        int fd = mkstemps(path, 4);
        ck_assert_int_ge(fd, 0);
        fchmod(fd, 0);
        close(fd);
        FAILS(optc_compile(engine, &(optc_rule_options){.spec = path}, &r), OPTC_ERROR_SPEC,
              "Permission denied");
        unlink(path);
    }
}
END_TEST

START_TEST(tensors_that_do_not_fit)
{
    optc_binding *b;
    int64_t d[1] = {16}, neg[1] = {-4}, huge[3] = {1 << 30, 1 << 30, 1 << 30};
    optc_tensor ok = {.name = "w", .param = data[0], .grad = data[1], .rank = 1, .shape = d};
    const struct { optc_tensor t; const char *says;
    } bad[] = {
        {{.name = "w", .param = NULL, .grad = data[1], .rank = 1, .shape = d},
         "'w' (number 0): its parameter pointer is NULL"},
        {{.name = "w", .param = data[0], .grad = data[1], .rank = 1, .shape = NULL},
         "its shape is NULL"},
        {{.name = "w", .param = data[0], .grad = data[1], .rank = 1, .shape = neg}, "negative"},
        {{.name = "w", .param = data[0], .grad = data[1], .rank = 3, .shape = huge}, "too large"},
        {{.name = "w", .param = data[0], .grad = data[1], .rank = -1, .shape = d}, "rank"},
        {{.name = "w", .param = data[0], .grad = data[1], .grad_count = 15, .rank = 1, .shape = d},
         "has 16 elements but its gradient has 15"},
        {{.name = "w",
          .param = data[0],
          .grad = data[1],
          .rank = 1,
          .shape = d,
          .param_type = OPTC_F64},
         "not of the type"},
        {{.name = "w", .param = (char *)data[0] + 1, .grad = data[1], .rank = 1, .shape = d},
         "not aligned"},
        {{.name = "w", .param = data[0], .grad = data[0] + 4, .rank = 1, .shape = d},
         "gradient of tensor 'w' (number 0) overlaps the parameter"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        FAILS(optc_bind(adamw, &(optc_group){.tensors = &bad[i].t, .ntensors = 1}, 1, &b),
              OPTC_ERROR_ARGUMENT, bad[i].says);
    optc_tensor two[2] = {ok, ok};
    two[1].param = data[0] + 8;
    FAILS(optc_bind(adamw, &(optc_group){.tensors = two, .ntensors = 2}, 1, &b),
          OPTC_ERROR_ARGUMENT, "overlap");
    optc_setting far = {"beta1", 1.5}, odd = {"betta1", 0.5}, nan = {"lr", NAN};
    FAILS(optc_bind(adamw, &(optc_group){.tensors = &ok, .ntensors = 1, .hyper = &far, .nhyper = 1},
                    1, &b),
          OPTC_ERROR_RANGE, "beta1 = 1.5 is outside its range [0, 1)");
    FAILS(optc_bind(adamw, &(optc_group){.tensors = &ok, .ntensors = 1, .hyper = &odd, .nhyper = 1},
                    1, &b),
          OPTC_ERROR_ARGUMENT, "did you mean 'beta1'");
    FAILS(optc_bind(adamw, &(optc_group){.tensors = &ok, .ntensors = 1, .hyper = &nan, .nhyper = 1},
                    1, &b),
          OPTC_ERROR_RANGE, "lr");
    ck_assert_ptr_null(b);
}
END_TEST

/* If a rule with products steps a stack of matrices as one matrix, a warning reports it, once.
 * Convolution kernels, matrices and elementwise rules get none. */
START_TEST(stacks_that_are_one_matrix)
{
    static const struct {
        const char *spec, *text;
        int rank;
        int64_t dim[4], split;
        unsigned flags;
        const char *says;
    } of[] = {{"muon",
               NULL,
               3,
               {3, 16, 20},
               0,
               0,
               "tensor 'w' (number 0) of 3 dimensions and 1 more like it: rule 'muon' steps it as "
               "one matrix of 3 x 320. If "
               "it is a stack of matrices, bind it as a matrix of 48 x 20 with split = 3, "
               "or use a spec with view = \"last\""},
              {"muon",
               NULL,
               4,
               {2, 3, 16, 20},
               0,
               0,
               "as one matrix of 2 x 960. If it is a stack of matrices, bind it as a matrix of 96 "
               "x 20 with split = 6"},
              {"muon", NULL, 3, {1, 16, 20}, 0, 0, "with split = 1"},
        /* each matrix of the stack would be one row */
              {"muon",
               NULL,
               3,
               {3, 16, 20},
               3,
               0,
               "steps it as 3 matrices of 1 x 320. If it is a stack of matrices, "
               "bind it as a matrix of 48 x 20 with split = 3"},
              {"muon", NULL, 3, {32, 4, 5}, 0, 0, ""}, /* a convolution kernel of 5 */
              {"muon", NULL, 4, {32, 3, 16, 16}, 0, 0, ""}, /* patches of an image */
              {"muon", NULL, 4, {32, 4, 3, 3}, 4, 0, ""}, /* the groups of a convolution */
              {"muon", NULL, 2, {48, 20}, 3, 0, ""},
              {"muon", NULL, 3, {3, 16, 20}, 0, OPTC_USE_STEP, ""},
              {"muon", NULL, 3, {3, 16, 20}, 0, OPTC_AS_VECTOR, ""},
              {"adamw", NULL, 3, {3, 16, 20}, 0, 0, ""},
              {"adafactor", NULL, 3, {3, 16, 20}, 0, 0, ""},
              {NULL,
               "return optimizer { name = 'x', view = 'last', step = function() p = p - g end, "
               "matrix = function() p = "
               "p - mm(gram(g), g) end }",
               3,
               {3, 16, 20},
               0,
               0,
               ""}};
    static float p[2][1 << 15], g[1 << 15];
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        optc_rule *r;
        optc_binding *b;
        optc_tensor t[2];
        int64_t rows[3] = {3, 17, 18};
        t[0] = (optc_tensor){.name = "w",
                             .param = p[0],
                             .grad = g,
                             .rank = of[i].rank,
                             .shape = of[i].dim,
                             .split = of[i].split,
                             .flags = of[i].flags};
        t[1] = (optc_tensor){.param = p[1], .grad = g, .rank = 3, .shape = rows};
        OK(optc_compile(engine, &(optc_rule_options){.spec = of[i].spec, .text = of[i].text}, &r));
        OK(optc_bind(r, &(optc_group){.tensors = t, .ntensors = i ? 1 : 2}, 1, &b));
        const char *said = optc_binding_warning(b);
        ck_assert_msg(*of[i].says ? strstr(said, of[i].says) != NULL : !*said, "%zu: '%s'", i,
                      said);
        OK(optc_unbind(b));
        OK(optc_release(r));
    }
    ck_assert_str_eq(optc_binding_warning(NULL), "");
}
END_TEST

/* A failed call changes nothing: the binding steps as if it had not been made. */
START_TEST(failures_leave_no_trace)
{
    optc_binding *b = bind_two();
    double lr, m0[16], m1[16];
    int64_t t;
    OK(optc_step(b));
    float before[16];
    memcpy(before, data[0], sizeof before);
    OK(optc_state_read(b, 0, "m", m0, 16));
    FAILS(optc_set_hyper(b, 0, "lr", -1), OPTC_ERROR_RANGE, "lr = -1");
    FAILS(optc_set_hyper(b, 7, "lr", 1), OPTC_ERROR_ARGUMENT, "no group 7");
    FAILS(optc_set_grad(b, 0, data[1], 3), OPTC_ERROR_ARGUMENT, "needs 16 values for 'g', got 3");
    FAILS(optc_set_grad(b, 0, data[2], 0), OPTC_ERROR_ARGUMENT,
          "overlaps the parameter of tensor 'b'");
    optc_state_view inside;
    OK(optc_state(b, 0, "v", &inside));
    FAILS(optc_set_grad(b, 0, inside.data, 0), OPTC_ERROR_ARGUMENT,
          "overlaps the memory of this binding's states; give it its own memory");
    FAILS(optc_set_grad(b, 9, data[1], 0), OPTC_ERROR_ARGUMENT, "no tensor 9");
    FAILS(optc_run(b, "perturb"), OPTC_ERROR_ARGUMENT, "no entry 'perturb'");
    FAILS(optc_state_read(b, 0, "mm", m1, 16), OPTC_ERROR_ARGUMENT,
          "no state 'mm'; did you mean 'm'");
    FAILS(optc_state_read(b, 0, "m", m1, 15), OPTC_ERROR_ARGUMENT, "has 16 values");
    FAILS(optc_state_read(b, 0, "vmax", m1, 16), OPTC_ERROR_ABSENT, "keeps no state 'vmax'");
    FAILS(optc_set_t(b, -1, -1), OPTC_ERROR_ARGUMENT, "steps");
    FAILS(optc_set_input(b, 0, "hess", data[1], 16), OPTC_ERROR_ARGUMENT, "no input 'hess'");
    FAILS(optc_release(adamw), OPTC_ERROR_BUSY, "still bound 1 time");
    FAILS(optc_close(engine), OPTC_ERROR_BUSY, "not released");
    OK(optc_get_hyper(b, 0, "lr", &lr));
    ck_assert_double_eq(lr, 1e-3);
    OK(optc_state_read(b, 0, "m", m1, 16));
    ck_assert_mem_eq(m0, m1, sizeof m0);
    ck_assert_mem_eq(before, data[0], sizeof before);
    FAILS(optc_get_t(b, 2, &t), OPTC_ERROR_ARGUMENT, "no tensor 2");
    OK(optc_get_t(b, -1, &t));
    ck_assert_int_eq(t, 1);
    ck_assert_mem_eq(before, data[0], sizeof before);
    OK(optc_unbind(b));
}
END_TEST

/* Groups with different hyperparameters share a step; each equals the same tensor bound alone. */
START_TEST(groups)
{
    optc_binding *b = bind_two(), *c;
    for (int i = 0; i < 3; i++)
        OK(optc_step(b));
    OK(optc_set_hyper(b, -1, "weight_decay", 0.25));
    OK(optc_step(b));
    float together[2][16];
    memcpy(together[0], data[0], 64);
    memcpy(together[1], data[2], 64);
    OK(optc_unbind(b));
    for (int k = 0; k < 2; k++) {
        int64_t d[1] = {16};
        for (int i = 0; i < 64; i++)
            data[2 * k][i] = (float)ref_value(2 * k, 1, i);
        optc_tensor t = {.param = data[2 * k], .grad = data[2 * k + 1], .rank = 1, .shape = d};
        optc_setting lr = {"lr", k ? 0.5 : 1e-3};
        OK(optc_bind(adamw, &(optc_group){.tensors = &t, .ntensors = 1, .hyper = &lr, .nhyper = 1},
                     1, &c));
        for (int i = 0; i < 4; i++) {
            if (i == 3)
                OK(optc_set_hyper(c, 0, "weight_decay", 0.25));
            OK(optc_step(c));
        }
        ck_assert_mem_eq(data[2 * k], together[k], 64);
        OK(optc_unbind(c));
    }
}
END_TEST

/* A run that is saved and restored continues with the same bits. */
START_TEST(state_round_trip)
{
    optc_binding *b = bind_two();
    double m[16], v[16];
    float p[16], want[16];
    for (int i = 0; i < 3; i++)
        OK(optc_step(b));
    OK(optc_state_read(b, 0, "m", m, 16));
    OK(optc_state_read(b, 0, "v", v, 16));
    memcpy(p, data[0], sizeof p);
    for (int i = 0; i < 2; i++)
        OK(optc_step(b));
    memcpy(want, data[0], sizeof want);
    OK(optc_unbind(b));
    b = bind_two();
    memcpy(data[0], p, sizeof p);
    OK(optc_state_write(b, 0, "m", m, 16));
    OK(optc_state_write(b, 0, "v", v, 16));
    OK(optc_set_t(b, -1, 3));
    for (int i = 0; i < 2; i++)
        OK(optc_step(b));
    ck_assert_mem_eq(data[0], want, sizeof want);
    optc_state_view view;
    OK(optc_state(b, 0, "v", &view));
    ck_assert(view.count == 16 && view.type == OPTC_F32 && view.data);
    OK(optc_unbind(b));
}
END_TEST

START_TEST(empty_and_scalar_tensors)
{
    static const char *const rules[] = {"adamw", "lamb", "adafactor", "came", "adamp"};
    for (int i = 0; i < 5; i++) {
        optc_rule *r;
        optc_binding *b;
        OK(optc_compile(
            engine, &(optc_rule_options){.spec = rules[i], .with = i == 0 ? "clip(1)" : ""}, &r));
        int64_t none[2] = {0, 5}, d[2] = {2, 2};
        float p[4] = {1, 2, 3, 4}, g[4] = {1, 1, 1, 1}, s = 1, h = 1;
        optc_tensor t[3] = {{.rank = 2, .shape = none},
                            {.param = p, .grad = g, .rank = 2, .shape = d},
                            {.param = &s, .grad = &h}};
        OK(optc_bind(r, &(optc_group){.tensors = t, .ntensors = 3}, 1, &b));
        OK(optc_step(b));
        OK(optc_step(b));
        for (int k = 0; k < 4; k++)
            ck_assert_msg(isfinite(p[k]) && p[k] != k + 1, "%s: %g", rules[i], p[k]);
        ck_assert(isfinite(s) && s != 1);
        OK(optc_unbind(b));
        OK(optc_bind(r, &(optc_group){.ntensors = 0}, 1, &b));
        OK(optc_step(b));
        OK(optc_unbind(b));
        OK(optc_release(r));
    }
}
END_TEST

static const char inputs_spec[] =
    "return optimizer { name = \"with_inputs\", hyper = { lr = 1 }, inputs = { hess = \"elem\", "
    "loss = \"group\", "
    "scale = \"tensor\" },\n"
    "  step = function() p = p - lr * loss * scale * g / hess end }\n";

START_TEST(inputs)
{
    optc_rule *r;
    optc_binding *b;
    int64_t d[1] = {3};
    float p[3] = {1, 2, 3}, g[3] = {1, 1, 1}, h[3] = {2, 4, 8};
    double scale = 0.5;
    OK(optc_compile(engine, &(optc_rule_options){.spec = "in.lua", .text = inputs_spec}, &r));
    optc_tensor t = {.name = "w", .param = p, .grad = g, .rank = 1, .shape = d};
    OK(optc_bind(r, &(optc_group){.tensors = &t, .ntensors = 1}, 1, &b));
    FAILS(optc_step(b), OPTC_ERROR_ARGUMENT, "which is not set");
    OK(optc_set_input(b, 0, "hess", h, 3));
    OK(optc_set_input(b, 0, "scale", &scale, 1));
    FAILS(optc_set_input(b, 0, "loss", h, 1), OPTC_ERROR_ARGUMENT, "use optc_set_scalar");
    FAILS(optc_set_scalar(b, 0, "hess", 1), OPTC_ERROR_ARGUMENT, "use optc_set_input");
    OK(optc_set_scalar(b, -1, "loss", 4));
    OK(optc_step(b));
    ck_assert(p[0] == 0 && p[1] == 1.5f && p[2] == 2.75f);
    OK(optc_unbind(b));
    OK(optc_release(r));
}
END_TEST

/* Values that a step leaves for the caller: clip's norm over all tensors and per tensor. Steps do
 * not depend on them. */
static const char values_spec[] =
    "return optimizer { name = \"telling\", hyper = { lr = 1 }, state = { s = zeros },\n"
    "  values = { most = \"tensor\", twice = \"group\", seen = \"elem\" },\n"
    "  step = function() most = max(abs(g)); seen = 2 * g; twice = 2 * t; s = s + g; p = p - lr * "
    "s end }\n";

static void check_values(optc_engine *e)
{
    optc_rule *r;
    optc_binding *b;
    int64_t d[1] = {3};
    float p[2][3] = {{0}}, g[2][3] = {{1, -5, 2}, {3, 0, -4}};
    double x, all[3];
    optc_state_info info;
    optc_tensor t[2] = {{.param = p[0], .grad = g[0], .rank = 1, .shape = d},
                        {.param = p[1], .grad = g[1], .rank = 1, .shape = d}};
    OK(optc_compile(e, &(optc_rule_options){.spec = "telling.lua", .text = values_spec}, &r));
    ck_assert(optc_rule_states(r) == 1 && optc_rule_values(r) == 3);
    OK(optc_rule_value(r, 0, &info));
    ck_assert(!strcmp(info.name, "most") && !strcmp(info.domain, "tensor") &&
              info.type == OPTC_F64);
    FAILS(optc_rule_value(r, 3, &info), OPTC_ERROR_ARGUMENT, "no number 3");
    OK(optc_bind(r, &(optc_group){.tensors = t, .ntensors = 2}, 1, &b));
    OK(optc_read_value(b, 1, "most", &x, 1));
    ck_assert(x == 0);
    for (int i = 0; i < 3; i++)
        OK(optc_step(b));
    OK(optc_read_value(b, 0, "most", &x, 1));
    ck_assert(x == 5);
    OK(optc_read_value(b, 1, "most", &x, 1));
    ck_assert(x == 4);
    OK(optc_read_value(b, 0, "twice", &x, 1));
    ck_assert(x == 6);
    OK(optc_read_value(b, 1, "seen", all, 3));
    ck_assert(all[0] == 6 && all[1] == 0 && all[2] == -8);
    FAILS(optc_read_value(b, 0, "mosst", &x, 1), OPTC_ERROR_ARGUMENT,
          "no value 'mosst'; did you mean 'most'");
    FAILS(optc_read_value(b, 0, "s", all, 3), OPTC_ERROR_ARGUMENT, "no value 's'");
    FAILS(optc_state_read(b, 0, "most", &x, 1), OPTC_ERROR_ARGUMENT, "no state 'most'");
    FAILS(optc_read_value(b, 0, "seen", all, 2), OPTC_ERROR_ARGUMENT,
          "value 'seen' has 3 values, the buffer 2");
    OK(optc_unbind(b));
    OK(optc_release(r));
}

START_TEST(values_for_the_reader)
{
    optc_engine *e;
    optc_rule *r;
    optc_binding *b;
    int64_t d[1] = {2};
    float p[2] = {0}, g[2] = {3, -4};
    double x;
    check_values(engine);
    OK(optc_open(&(optc_engine_options){.cache_dir = "", .compiler = ""}, &e));
    check_values(e);
    OK(optc_close(e));
    OK(optc_compile(engine, &(optc_rule_options){.spec = "adamw", .with = "clip(1),clip_norm(2)"},
                    &r));
    optc_tensor t = {.param = p, .grad = g, .rank = 1, .shape = d};
    OK(optc_bind(r, &(optc_group){.tensors = &t, .ntensors = 1}, 1, &b));
    OK(optc_step(b));
    OK(optc_read_value(b, 0, "clip_norm.grad_norm", &x, 1));
    ck_assert_double_eq_tol(x, 5, 1e-12);
    OK(optc_read_value(b, 0, "clip.grad_norm", &x, 1));
    ck_assert_double_eq_tol(x, 2, 1e-5);
    OK(optc_unbind(b));
    OK(optc_release(r));
}
END_TEST

/* A rule and a wrapper that view a tensor as different matrices: allowed for two dimensions,
 * refused with the tensor's name for three. */
START_TEST(clashing_views)
{
    optc_rule *r;
    optc_binding *b;
    float p[60] = {0}, g[60] = {0};
    int64_t two[2] = {6, 10}, three[3] = {3, 4, 5};
    OK(optc_compile(engine, &(optc_rule_options){.spec = "adafactor", .with = "centralize"}, &r));
    optc_tensor t = {.name = "conv", .param = p, .grad = g, .rank = 2, .shape = two};
    OK(optc_bind(r, &(optc_group){.tensors = &t, .ntensors = 1}, 1, &b));
    OK(optc_step(b));
    OK(optc_unbind(b));
    t.rank = 3;
    t.shape = three;
    FAILS(optc_bind(r, &(optc_group){.tensors = &t, .ntensors = 1}, 1, &b), OPTC_ERROR_ARGUMENT,
          "'conv'");
    t.flags = OPTC_AS_VECTOR;
    OK(optc_bind(r, &(optc_group){.tensors = &t, .ntensors = 1}, 1, &b));
    OK(optc_unbind(b));
    OK(optc_release(r));
}
END_TEST

START_TEST(queries)
{
    optc_hyper h;
    optc_state_info s;
    OK(optc_rule_hyper(adamw, 0, &h));
    ck_assert_str_eq(h.name, "beta1");
    ck_assert(h.value == 0.9 && h.lo == 0 && h.hi == 1 && h.hi_open && !h.lo_open);
    FAILS(optc_rule_hyper(adamw, 99, &h), OPTC_ERROR_ARGUMENT, "no number 99");
    OK(optc_rule_state(adamw, 0, &s));
    ck_assert_str_eq(s.name, "m");
    ck_assert_str_eq(s.domain, "elem");
    ck_assert_str_eq(optc_rule_entry(adamw, 0), "step");
    ck_assert_ptr_null(optc_rule_entry(adamw, 1));
    ck_assert(optc_rule_reads_gradient(adamw, 0) && !optc_rule_reads_gradient(adamw, 1));
    ck_assert(!optc_rule_reads_gradient(adamw, -1) && !optc_rule_reads_gradient(NULL, 0));
    ck_assert_str_eq(optc_rule_gradient(adamw, 1, 0), "step");
    ck_assert_ptr_null(optc_rule_gradient(adamw, 1, 1));
    ck_assert(strstr(optc_rule_plan(adamw), "28 bytes per element"));
    ck_assert(strstr(optc_device_name(engine), "cpu: "));
    ck_assert_ptr_nonnull(optc_library_text("wrappers/ema"));
    ck_assert_ptr_null(optc_library_text("wrappers/emu"));
    ck_assert_ptr_nonnull(optc_library_text("shared/uphill"));
    optc_binding *b = bind_two();
    optc_bytes bytes;
    OK(optc_plan_bytes(b, "step", 1, &bytes));
    ck_assert(bytes.read >= 2 * 16 * 16 && bytes.read < 2 * 16 * 16 + 400 &&
              bytes.written == 2 * 16 * 12);
    OK(optc_unbind(b));
    char *d = optc_doctor(NULL);
    ck_assert(strstr(d, "compiler") && strstr(d, "cache") && strstr(d, "vectors"));
    free(d);
}
END_TEST

/* The loop of optc_rule_gradient in runtime/C.md: the entries of each step, in order. */
START_TEST(gradients_of_a_step)
{
    static const char *const want[] = {"perturb step ", "step ", "step ", "perturb step ", "step "};
    optc_rule_options o = {.spec = "sgd", .with = "looksam(0.1,3)"};
    optc_rule *r;
    OK(optc_compile(engine, &o, &r));
    for (int64_t t = 1; t <= (int64_t)(sizeof want / sizeof *want); t++) {
        char found[64] = "";
        const char *entry;
        for (int i = 0; (entry = optc_rule_gradient(r, t, i)); i++)
            snprintf(found + strlen(found), sizeof found - strlen(found), "%s ", entry);
        ck_assert_str_eq(found, want[t - 1]);
    }
    ck_assert_str_eq(optc_rule_gradient(r, 0, 0), "perturb");           /* those of any step */
    ck_assert_str_eq(optc_rule_gradient(r, 0, 1), "step");
    ck_assert_ptr_null(optc_rule_gradient(r, 0, 2));
    ck_assert_ptr_null(optc_rule_gradient(r, -1, 0));
    ck_assert_ptr_null(optc_rule_gradient(NULL, 1, 0));
    OK(optc_release(r));
}
END_TEST

Suite *api_suite(void)
{
    Suite *s = suite_create("api");
    TCase *t = tcase_create("interface");
    tcase_set_timeout(t, 60);
    tcase_add_checked_fixture(t, open_adamw, close_adamw);
    tcase_add_test(t, nulls);
    tcase_add_test(t, storage_types);
    tcase_add_test(t, device_names);
    tcase_add_test(t, specs_that_fail);
    tcase_add_test(t, tensors_that_do_not_fit);
    tcase_add_test(t, stacks_that_are_one_matrix);
    tcase_add_test(t, failures_leave_no_trace);
    tcase_add_test(t, groups);
    tcase_add_test(t, state_round_trip);
    tcase_add_test(t, empty_and_scalar_tensors);
    tcase_add_test(t, inputs);
    tcase_add_test(t, values_for_the_reader);
    tcase_add_test(t, clashing_views);
    tcase_add_test(t, queries);
    tcase_add_test(t, gradients_of_a_step);
    suite_add_tcase(s, t);
    return s;
}
