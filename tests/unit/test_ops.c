/* Every operation of ops.def on edge values: compiled code against op_eval, within the row's
 * bound. */
#include "tests/harness/help.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One entry per operation: one compilation covers the whole table. */
static const char *expression(const OpInfo *o, int op)
{
    static char s[128];
    static const char *const infix[] = {
        [OP_ADD] = "p + g", [OP_SUB] = "p - g",     [OP_MUL] = "p * g", [OP_DIV] = "p / g",
        [OP_NEG] = "-p",    [OP_POW] = "pow(p, g)", [OP_POWI] = "p ^ t"};
    if (op <= OP_POWI && infix[op])
        return infix[op];
    const char *a = o->kind == K_LOGIC || o->kind == K_SEL ? "lt(p, g)" : "p";
    const char *b = o->kind == K_LOGIC ? "lt(g, z)" : "g";
    if (o->kind == K_SEL)
        b = "g";
    if (o->arity == 1)
        snprintf(s, sizeof s, "%s(%s)", o->name, a);
    else if (o->arity == 2)
        snprintf(s, sizeof s, "%s(%s, %s)", o->name, a, b);
    else
        snprintf(s, sizeof s, "%s(%s, %s, z)", o->name, a, b);
    return s;
}

/* copies are not written in specs; `stored` and the operations of pass_master have tests of their
 * own */
static bool tested(int op)
{
    return op_info[op].kind != K_LEAF && op_info[op].kind < K_RED && op != OP_COPY &&
           op != OP_STORED && (op < OP_JOIN16 || op > OP_HALF_STEP);
}

static char *spec_text(void)
{
    Buf b = {0};
    buf_puts(&b, "return optimizer { name = \"ops\", inputs = { z = \"elem\" },\n  step = "
                 "function() p = p + z + g end,\n");
    for (int op = 0; op < NOPS; op++) {
        if (!tested(op))
            continue;
        bool truth = op_info[op].kind == K_CMP || op_info[op].kind == K_LOGIC;
        buf_printf(&b, "  op_%s = function() p = %s%s%s end,\n", op_info[op].name,
                   truth ? "where(" : "", expression(&op_info[op], op), truth ? ", 1, 0)" : "");
    }
    buf_puts(&b, "}\n");
    return buf_take(&b);
}

static const double edge[] = {0.0,         -0.0,
                              1,           -1,
                              0.5,         -0.5,
                              2,           3,
                              -3,          1.0000001,
                              0.99999994,  3.14159274,
                              -1.57079637, 0.1,
                              10,          88.5,
                              -87.4,       1e10,
                              -1e10,       1e-20,
                              0x1p-149,    -0x1p-149,
                              0x1p-130,    0x1p-126,
                              0x1p127,     -0x1.fffffep127,
                              0x1p-1074,   1e300,
                              INFINITY,    -INFINITY,
                              NAN,         65536,
                              0.333333343};
enum { NEDGE = sizeof edge / sizeof *edge };

static double ulp_of(Type t, double x)
{
    int e;
    x = fabs(x);
    double tiny = t == T_F64 ? 0x1p-1074 : 0x1p-149;
    if (!(x > 0) || isinf(x))
        return tiny;
    frexp(x, &e);
    return fmax(ldexp(1, e - (t == T_F64 ? 53 : 24)), tiny);
}

static bool close_enough(Type t, int op, double got, double want, double bound)
{
    double most = t == T_F64 ? 1.7976931348623157e308 : 3.4028234663852886e38;
    if (isnan(want))
        return isnan(got);
    if (bound == 0 && got == want)
        return signbit(got) == signbit(want) || op_info[op].kind != K_NUM;
    if (fabs(want) > most * (1 - 4e-8))
        return got == want || (isinf(got) && signbit(got) == signbit(want)) ||
               fabs(got) >= most * (1 - 1e-6);
    return fabs(got - want) <=
           bound * ulp_of(t, want) * (1 + 1e-9) + (t == T_F32 ? 0 : 1.0) * ulp_of(T_F64, want);
}

typedef struct {
    optc_engine *e; optc_rule *r; optc_binding *b; char *p0, *p, *g, *z; int64_t n; Type t;
} Ops;

/* All triples of edge values that the type can represent. */
static void open_ops(Ops *o, optc_type type)
{
    char *text = spec_text();
    optc_engine_options eo = {.cache_dir = getenv("OPTC_TEST_CACHE"), .threads = 1};
    OK(optc_open(&eo, &o->e));
    OK(optc_compile(
        o->e, &(optc_rule_options){.spec = "ops.lua", .text = text, .param = type, .state = type},
        &o->r));
    free(text);
    ck_assert_msg(optc_rule_native(o->r), "%s", optc_rule_path(o->r));
    o->t = type == OPTC_F64 ? T_F64 : T_F32;
    o->n = (int64_t)NEDGE * NEDGE * NEDGE;
    char **a[] = {&o->p0, &o->p, &o->g, &o->z};
    for (int k = 0; k < 4; k++)
        *a[k] = malloc((size_t)o->n * 8);
    for (int64_t i = 0; i < o->n; i++) {
        type_store(o->t, o->p0, i, edge[i % NEDGE]);
        type_store(o->t, o->g, i, edge[i / NEDGE % NEDGE]);
        type_store(o->t, o->z, i, edge[i / NEDGE / NEDGE]);
    }
    optc_tensor t = {.param = o->p, .grad = o->g, .rank = 1, .shape = &o->n};
    OK(optc_bind(o->r, &(optc_group){.tensors = &t, .ntensors = 1}, 1, &o->b));
    OK(optc_set_input(o->b, 0, "z", o->z, o->n));
}

static void close_ops(Ops *o)
{
    OK(optc_unbind(o->b));
    OK(optc_release(o->r));
    OK(optc_close(o->e));
    free(o->p0);
    free(o->p);
    free(o->g);
    free(o->z);
}

static double want_of(const Ops *o, int op, int64_t i, double t)
{
    double p = type_load(o->t, o->p0, i), g = type_load(o->t, o->g, i),
           z = type_load(o->t, o->z, i);
    switch (op_info[op].kind) {
    case K_LOGIC: return op_eval((Op)op, p < g, g < z, 0);
    case K_SEL: return op_eval((Op)op, p < g, g, z);
    default: return op_eval((Op)op, p, op == OP_POWI ? t : g, z);
    }
}

/* Beyond these ranges the functions return NaN rather than a wrong number: templates/math_f32.h. */
static bool outside(Type t, int op, double x)
{
    return (op == OP_SIN || op == OP_COS) && fabs(x) > (t == T_F64 ? 0x1p30 : 0x1p18);
}

static void check_op(Ops *o, int op, double t)
{
    char name[40];
    snprintf(name, sizeof name, "op_%s", op_info[op].name);
    memcpy(o->p, o->p0, (size_t)o->n * (size_t)type_info[o->t].bytes);
    OK(optc_set_t(o->b, -1, (int64_t)t - 1));
    OK(optc_run(o->b, name));
    for (int64_t i = 0; i < o->n; i++) {
        double got = type_load(o->t, o->p, i), want = want_of(o, op, i, t),
               x = type_load(o->t, o->p0, i);
        if (outside(o->t, op, x))
            want = NAN;
        ck_assert_msg(close_enough(o->t, op, got, want, op_info[op].ulp),
                      "%s %s(%.9g, %.9g, %.9g), t %g: got %.17g, wanted %.17g",
                      type_info[o->t].name, op_info[op].name, x, type_load(o->t, o->g, i),
                      type_load(o->t, o->z, i), t, got, want);
    }
}

START_TEST(edges)
{
    Ops o;
    open_ops(&o, _i ? OPTC_F64 : OPTC_F32);
    for (int op = 0; op < NOPS; op++)
        if (tested(op))
            check_op(&o, op, 3);
    static const double power[] = {1, 2, 7, 31, 63};
    for (int k = 0; k < 5; k++)
        check_op(&o, OP_POWI, power[k]);
    close_ops(&o);
}
END_TEST

static double as_stored(Type t, double x)
{
    double room = 0;
    type_store(t, &room, 0, x);
    return type_load(t, &room, 0);
}

/* Storage types: a value that is stored and loaded is the nearest value of the type, ties to even.
 * Beyond the largest it is what the row says: infinity or the largest. Integers hold 0 for NaN.
 * Checks table and conversions against each other, for every row without a scale. */
START_TEST(storage)
{
    for (int t = 0; t < NTYPES; t++)
        for (int64_t i = 0; i < 400000 && type_info[t].compute != (Type)t && !type_coded((Type)t);
             i++) {
            uint32_t u = (uint32_t)splitmix((uint64_t)i);
            float x;
            memcpy(&x, &u, 4);
            double got = as_stored((Type)t, x), want = x;
            int e;
            if (x != 0 && isfinite(x)) {
                frexp((double)x, &e);
                double unit = fmax(ldexp(1, e - type_info[t].digits), type_info[t].least);
                want = rint((double)x / unit) * unit;
            }
            if (isnan(x) && type_integer((Type)t))
                want = 0;
            if (fabs(want) > type_info[t].most)
                want = copysign(type_info[t].beyond, x) - (type_integer((Type)t) && x < 0);
            ck_assert_msg(got == want || (isnan(got) && isnan(want)),
                          "%s of %.9g: got %.9g, wanted %.9g", type_info[t].name, (double)x, got,
                          want);
        }
}
END_TEST

/* fp8, all 256 codes: the value by the definition of the format, and the code again from it and
 * from what lies around it. Halves of a step go to the even code. The numbers beyond the largest
 * are PyTorch's. */
START_TEST(fp8_codes)
{
    static const struct { Type t; int mantissa, bias, last, nan;
    } of[] = {{T_E4M3, 3, 7, 0x7e, 0x7f}, {T_E5M2, 2, 15, 0x7b, 0x7d}};
    for (int k = 0; k < 2; k++) {
        for (int code = 0; code < 256; code++) {
            unsigned char c = (unsigned char)code, back;
            int mag = code & 0x7f, e = mag >> of[k].mantissa, m = mag & ((1 << of[k].mantissa) - 1);
            double unit = ldexp(1, (e > 1 ? e : 1) - of[k].bias - of[k].mantissa),
                   x = type_load(of[k].t, &c, 0);
            double want = (m + (e ? 1 << of[k].mantissa : 0)) * unit, at[3];
            want = mag >= of[k].nan ? NAN : mag > of[k].last ? INFINITY : want;
            ck_assert_msg(isnan(want) ? isnan(x) : x == (code > 127 ? -want : want),
                          "%s 0x%02x: %.9g", type_info[of[k].t].name, code, x);
            at[0] = x, at[1] = x + unit * (code > 127 ? -0.49 : 0.49),
            at[2] = x + unit * (code > 127 ? -0.5 : 0.5);
            for (int i = 0; i < 3 && mag <= of[k].last; i++) {
                type_store(of[k].t, &back, 0, at[i]);
                ck_assert_msg(back == code + (i == 2 && (mag & 1)), "%s of %.9g: 0x%02x",
                              type_info[of[k].t].name, at[i], back);
            }
        }
        static const double big[] = {464,       464.00003, 480,   -1e30, INFINITY,
                                     -INFINITY, NAN,       61439, 61440, -65536};
        static const int code[2][10] = {
            {0x7e, 0x7e, 0x7e, 0xfe, 0x7e, 0xfe, 0x7f, 0x7e, 0x7e, 0xfe},
            {0x5f, 0x5f, 0x60, 0xfc, 0x7c, 0xfc, 0x7f, 0x7b, 0x7c, 0xfc}};
        for (int i = 0; i < 10; i++) {
            unsigned char got;
            type_store(of[k].t, &got, 0, big[i]);
            ck_assert_msg(got == code[k][i], "%s of %.9g: 0x%02x", type_info[of[k].t].name, big[i],
                          got);
        }
    }
}
END_TEST

Suite *ops_suite(void)
{
    Suite *s = suite_create("ops");
    TCase *t = tcase_create("edges");
    tcase_set_timeout(t, 120);
    tcase_add_loop_test(t, edges, 0, 2);
    tcase_add_test(t, storage);
    tcase_add_test(t, fp8_codes);
    suite_add_tcase(s, t);
    return s;
}
