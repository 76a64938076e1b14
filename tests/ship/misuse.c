/* Calls that must fail, each with its status and message; the binding then works as if they had not
 * been made. */
#include "rules.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int wrong;
static void fails(int line, rules_status got, rules_status want, const char *part)
{
    if (got == want && strstr(rules_message(), part))
        return;
    printf("line %d: %s: %s; wanted %s: %s\n", line, rules_status_name(got), rules_message(),
           rules_status_name(want), part);
    wrong = 1;
}
#define FAILS(call, status, part) fails(__LINE__, (call), (status), (part))
#define OK(call)                                                \
    do {                                                        \
        if ((call) != RULES_OK) {                               \
            printf("line %d: %s\n", __LINE__, rules_message()); \
            exit(1);                                            \
        }                                                       \
    } while (0)

static rules_engine *e;
static rules_rule *r;
static float p[64], g[64];
static int64_t shape[] = {8, 8}, negative[] = {8, -8},
               huge[] = {(int64_t)1 << 40, (int64_t)1 << 40};

static rules_tensor tensor(void)
{
    rules_tensor t;
    memset(&t, 0, sizeof t);
    t.name = "w", t.param = p, t.grad = g, t.rank = 2, t.shape = shape;
    return t;
}

static rules_status bind(rules_tensor *t, int n, const rules_setting *s, int ns)
{
    rules_group all = {t, n, s, ns};
    rules_binding *b = (rules_binding *)&all;
    rules_status st = rules_bind(r, &all, 1, &b);
    if (b)
        printf("a binding came out of a call that failed\n"), wrong = 1;
    return st;
}

static void bad_tensors(void)
{
    rules_tensor t[2] = {tensor(), tensor()};
    rules_setting s[] = {{"lr", -1}, {"lrr", 1}, {"beta1", 1}, {"lr", NAN}};
    FAILS(bind(t, 2, NULL, 0), RULES_ERROR_ARGUMENT, "overlap in memory");
    t[0].shape = negative;
    FAILS(bind(t, 1, NULL, 0), RULES_ERROR_ARGUMENT, "dimension 1 of its shape is negative");
    t[0].shape = huge;
    FAILS(bind(t, 1, NULL, 0), RULES_ERROR_ARGUMENT, "too large");
    t[0].shape = NULL;
    FAILS(bind(t, 1, NULL, 0), RULES_ERROR_ARGUMENT, "tensor 'w' (number 0): its shape is NULL");
    t[0] = tensor(), t[0].rank = -1;
    FAILS(bind(t, 1, NULL, 0), RULES_ERROR_ARGUMENT, "its rank");
    t[0] = tensor(), t[0].param = NULL;
    FAILS(bind(t, 1, NULL, 0), RULES_ERROR_ARGUMENT, "parameter pointer is NULL");
    t[0] = tensor(), t[0].param = (char *)p + 1;
    FAILS(bind(t, 1, NULL, 0), RULES_ERROR_ARGUMENT, "not aligned");
    t[0] = tensor(), t[0].grad = p + 3;
    FAILS(bind(t, 1, NULL, 0), RULES_ERROR_ARGUMENT,
          "the gradient of tensor 'w' (number 0) overlaps the parameter");
    t[0] = tensor(), t[0].grad_count = 63;
    FAILS(bind(t, 1, NULL, 0), RULES_ERROR_ARGUMENT, "its gradient has 63");
    t[0] = tensor(), t[0].param_type = RULES_BF16;
    FAILS(bind(t, 1, NULL, 0), RULES_ERROR_ARGUMENT, "compiled for (f32)");
    t[0] = tensor();
    FAILS(bind(t, -1, NULL, 0), RULES_ERROR_ARGUMENT, "a count is negative");
    FAILS(bind(NULL, 1, NULL, 0), RULES_ERROR_ARGUMENT, "tensors or hyper is NULL");
    FAILS(bind(t, 1, s, 1), RULES_ERROR_RANGE, "lr = -1 is outside its range");
    FAILS(bind(t, 1, s + 1, 1), RULES_ERROR_ARGUMENT, "no hyperparameter 'lrr'");
    FAILS(bind(t, 1, s + 2, 1), RULES_ERROR_RANGE, "[0, 1)");
    FAILS(bind(t, 1, s + 3, 1), RULES_ERROR_RANGE, "nan");
    FAILS(rules_bind(r, NULL, 1, NULL), RULES_ERROR_ARGUMENT, "the groups are NULL");
    rules_group all = {t, 1, NULL, 0};
    rules_binding *b;
    FAILS(rules_bind(NULL, &all, 1, &b), RULES_ERROR_ARGUMENT, "the rule is NULL");
    FAILS(rules_bind(r, &all, 0, &b), RULES_ERROR_ARGUMENT, "ngroups must be 1 or more");
    int64_t strides[] = {1, 8}, whole[] = {16, 8}, zero[] = {0, 0};
    t[0] = tensor(), t[0].param_strides = strides;
    FAILS(bind(t, 1, NULL, 0), RULES_ERROR_ARGUMENT,
          "copy the gradient into the parameter's layout first");
    t[0] = tensor(), t[0].global_shape = whole, t[0].offset = zero;
    FAILS(bind(t, 1, NULL, 0), RULES_ERROR_ARGUMENT,
          "is a piece of a larger tensor (dimension 0: 8 of 16, from 0 on)");
}

/* Rules are found by name; a rule that would need a compiler is refused. */
static void bad_rules(void)
{
    rules_rule_options o;
    rules_rule *x;
    memset(&o, 0, sizeof o);
    FAILS(rules_compile(e, &o, &x), RULES_ERROR_ARGUMENT, "the spec is NULL");
    o.spec = "adam";
    FAILS(rules_compile(e, &o, &x), RULES_ERROR_ARGUMENT,
          "no rule 'adam' in this package (there are: adamw_clip, adafactor, sgd_lookahead)");
    FAILS(rules_compile(NULL, &o, &x), RULES_ERROR_ARGUMENT, "the engine is NULL");
    o.spec = "adamw_clip", o.with = "ema(0.9)";
    FAILS(rules_compile(e, &o, &x), RULES_ERROR_ARGUMENT, "leave with empty");
    o.with = "", o.options = "x=1";
    FAILS(rules_compile(e, &o, &x), RULES_ERROR_ARGUMENT, "leave options empty");
    o.options = NULL, o.text = "return 1";
    FAILS(rules_compile(e, &o, &x), RULES_ERROR_ARGUMENT, "leave text empty");
    o.text = NULL, o.param = RULES_F64;
    FAILS(rules_compile(e, &o, &x), RULES_ERROR_ARGUMENT,
          "has other storage types: f32 parameters");
    FAILS(rules_release(r), RULES_OK, "");
    o.param = RULES_F32;
    OK(rules_compile(e, &o, &r));
}

/* A package uses the caller's allocator like the library does. */
static void *mine(void *context, size_t bytes, void *stream)
{
    (void)stream;
    *(size_t *)context += bytes;
    return aligned_alloc(64, (bytes + 63) / 64 * 64);
}

static void back(void *context, void *memory, size_t bytes, void *stream)
{
    (void)stream;
    *(size_t *)context -= bytes;
    free(memory);
}

static void allocator(void)
{
    size_t held = 0;
    rules_allocator a = {mine, back, &held};
    rules_engine_options o;
    rules_engine *own;
    rules_rule *x;
    rules_binding *b;
    rules_memory m;
    rules_rule_options ro;
    rules_tensor t = tensor();
    rules_group all = {&t, 1, NULL, 0};
    memset(&o, 0, sizeof o);
    memset(&ro, 0, sizeof ro);
    o.allocator = &a, ro.spec = "adamw_clip";
    OK(rules_open(&o, &own));
    OK(rules_compile(own, &ro, &x));
    OK(rules_bind(x, &all, 1, &b));
    OK(rules_memory_info(own, &m));
    if (!held || m.ours != (int64_t)held)
        printf("%zu bytes from the allocator, %lld said\n", held, (long long)m.ours), wrong = 1;
    OK(rules_unbind(b));
    OK(rules_release(x));
    OK(rules_close(own));
    wrong |= held != 0;
}

static void bad_calls(void)
{
    rules_tensor t = tensor();
    rules_group all = {&t, 1, NULL, 0};
    rules_binding *b;
    rules_state_view v;
    double x[64];
    int64_t n;
    t.grad = NULL;
    OK(rules_bind(r, &all, 1, &b));
    OK(rules_step(b));                            /* it has no gradient, so it is excluded */
    FAILS(rules_set_grad(b, 0, p, 0), RULES_ERROR_ARGUMENT, "overlaps the parameter");
    FAILS(rules_set_grad(b, 1, g, 0), RULES_ERROR_ARGUMENT, "no tensor 1");
    FAILS(rules_set_grad(b, 0, g, 63), RULES_ERROR_ARGUMENT, "needs 64 values for 'g', got 63");
    FAILS(rules_set_grad(NULL, 0, g, 0), RULES_ERROR_ARGUMENT, "binding is NULL");
    OK(rules_set_grad(b, 0, g, 64));
    FAILS(rules_run(b, "fly"), RULES_ERROR_ARGUMENT, "no entry 'fly'");
    FAILS(rules_run(b, NULL), RULES_ERROR_ARGUMENT, "entry's name is NULL");
    FAILS(rules_step(NULL), RULES_ERROR_ARGUMENT, "binding is NULL");
    FAILS(rules_set_hyper(b, 0, "eps", -1), RULES_ERROR_RANGE, "eps = -1");
    FAILS(rules_set_hyper(b, 2, "eps", 1), RULES_ERROR_ARGUMENT, "no group 2");
    FAILS(rules_get_hyper(b, -1, "eps", x), RULES_ERROR_ARGUMENT, "no group -1");
    FAILS(rules_set_input(b, 0, "hess", g, 0), RULES_ERROR_ARGUMENT, "no input 'hess'");
    FAILS(rules_set_scalar(b, 0, "loss", 1), RULES_ERROR_ARGUMENT, "no input 'loss'");
    FAILS(rules_state(b, 0, "q", &v), RULES_ERROR_ARGUMENT, "no state 'q'");
    FAILS(rules_state(b, 1, "m", &v), RULES_ERROR_ARGUMENT, "no tensor 1 (there are 1)");
    FAILS(rules_state_read(b, 0, "m", x, 63), RULES_ERROR_ARGUMENT, "has 64 values, the buffer 63");
    FAILS(rules_state_write(b, 0, "m", NULL, 64), RULES_ERROR_ARGUMENT, "the buffer 0");
    FAILS(rules_set_t(b, -1, -1), RULES_ERROR_ARGUMENT, "set_t");
    FAILS(rules_get_t(b, -1, NULL), RULES_ERROR_ARGUMENT, "NULL");
    OK(rules_get_t(b, 0, &n));
    if (n != 0)
        printf("a call that failed moved t\n"), wrong = 1;
    FAILS(rules_close(e), RULES_ERROR_BUSY, "1 rule is");
    FAILS(rules_release(r), RULES_ERROR_BUSY, "still bound 1 time");
    OK(rules_step(b));
    OK(rules_unbind(b));
    OK(rules_unbind(NULL));
}

/* Nothing to step is no error. */
static void empty(void)
{
    rules_binding *b;
    int64_t none[] = {0, 5};
    rules_tensor t = tensor();
    rules_group all[] = {{NULL, 0, NULL, 0}, {&t, 1, NULL, 0}};
    t.param = NULL, t.grad = NULL, t.shape = none;
    for (int i = 0; i < rules_library_size(); i++) {
        rules_rule_options o;
        rules_rule *x;
        memset(&o, 0, sizeof o);
        o.spec = rules_library_name(i);
        OK(rules_compile(e, &o, &x));
        for (int n = 1; n <= 2; n++) {
            OK(rules_bind(x, all, n, &b));
            OK(rules_step(b));
            OK(rules_unbind(b));
        }
        OK(rules_release(x));
    }
}

int main(void)
{
    rules_engine_options o;
    memset(&o, 0, sizeof o);
    o.device = "cpu", o.threads = -1;
    FAILS(rules_open(&o, NULL), RULES_ERROR_ARGUMENT, "is NULL");
    FAILS(rules_open(&o, &e), RULES_ERROR_ARGUMENT, "threads is -1");
    OK(rules_open(NULL, &e));
    rules_rule_options ro;
    memset(&ro, 0, sizeof ro);
    ro.spec = "adamw_clip";
    OK(rules_compile(e, &ro, &r));
    bad_rules();
    for (int i = 0; i < 64; i++)
        p[i] = g[i] = 1;
    bad_tensors();
    bad_calls();
    empty();
    allocator();
    for (int i = 0; i < 63; i++)
        wrong |= p[i] != p[i + 1] || p[i] >= 1;
    OK(rules_release(r));
    OK(rules_close(e));
    OK(rules_close(NULL));
    puts(wrong ? "wrong" : "all refused");
    return wrong;
}
