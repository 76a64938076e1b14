/* Layouts of tensors in memory, and allocators. */
#include "tests/harness/help.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static optc_engine *engine;
static void open_engine(void)
{
    OK(optc_open(&(optc_engine_options){.threads = 2, .cache_dir = ""}, &engine));
}
static void close_engine(void) { OK(optc_close(engine)); }

/* N, C, H, W */
static const int64_t shape[4] = {2, 3, 4, 5};
static const int64_t channels_last[4] = {60, 1, 15, 3}, row_major[4] = {60, 20, 5, 1};
enum { COUNT = 120 };

/* the offset of the i-th element in row-major order */
static int64_t place(const int64_t *stride, int64_t i)
{
    int64_t at = 0;
    for (int k = 3; k >= 0; i /= shape[k--])
        at += i % shape[k] * stride[k];
    return at;
}

static optc_status try_bind(const char *spec, float *p, float *g, const int64_t *ps,
                            const int64_t *gs, unsigned flags, optc_rule **r, optc_binding **b)
{
    OK(optc_compile(engine, &(optc_rule_options){.spec = spec}, r));
    optc_tensor t = {.name = "w",
                     .param = p,
                     .grad = g,
                     .rank = 4,
                     .shape = shape,
                     .param_strides = ps,
                     .grad_strides = gs,
                     .flags = flags};
    return optc_bind(*r, &(optc_group){.tensors = &t, .ntensors = 1}, 1, b);
}

/* Channels-last tensors step to the same values as row-major ones, element by element; so do their
 * states. */
START_TEST(channels_last_equals)
{
    static const char *const specs[] = {"adamw", "lamb", "sgd"};
    static float p[2][COUNT], g[2][COUNT];
    const int64_t *stride[2] = {row_major, channels_last};
    optc_rule *r[2];
    optc_binding *b[2];
    for (int side = 0; side < 2; side++) {
        for (int64_t i = 0; i < COUNT; i++) {
            p[side][place(stride[side], i)] = (float)ref_value(0, 0, i);
            g[side][place(stride[side], i)] = (float)ref_value(1, 0, i);
        }
        OK(try_bind(specs[_i], p[side], g[side], side ? stride[side] : NULL,
                    side ? stride[side] : row_major, 0, &r[side], &b[side]));
        for (int s = 0; s < 3; s++)
            OK(optc_step(b[side]));
    }
    /* A norm over the tensor sums in memory order, so the last bits may differ. */
    float most = !strcmp(specs[_i], "lamb") ? 1e-6f : 0;
    for (int64_t i = 0; i < COUNT; i++) {
        float x = p[0][place(row_major, i)], y = p[1][place(channels_last, i)];
        ck_assert_msg(x - y <= most && y - x <= most,
                      "%s: element %d: %.9g in row-major, %.9g in channels-last order", specs[_i],
                      (int)i, (double)x, (double)y);
    }
    for (int side = 0; side < 2; side++) {
        OK(optc_unbind(b[side]));
        OK(optc_release(r[side]));
    }
}
END_TEST

START_TEST(strides_refused)
{
    static float p[400], g[400];
    static const int64_t gaps[4] = {200, 40, 10, 2}, overlap[4] = {60, 20, 5, 0},
                         ones[4] = {60, 1, 15, 3};
    const struct {
        const char *spec;
        const int64_t *ps, *gs;
        unsigned flags;
        const char *says;
    } c[] = {
        {"adamw", channels_last, NULL, 0,
         "its gradient's strides (row-major) are not its parameter's (60, 1, 15, 3)"},
        {"adamw", NULL, channels_last, 0,
         "'w' (number 0): its gradient's strides (60, 1, 15, 3) are not its parameter's "
         "(row-major)"},
        {"adamw", row_major, channels_last, 0, "copy the gradient into the parameter's layout"},
        {"adamw", gaps, gaps, 0, "strides (200, 40, 10, 2) leave gaps or overlap"},
        {"adamw", overlap, overlap, 0, "leave gaps or overlap"},
        {"adafactor", ones, channels_last, 0, "rule 'adafactor' works on rows and columns"}};
    for (size_t i = 0; i < sizeof c / sizeof *c; i++) {
        optc_rule *r;
        optc_binding *b;
        FAILS(try_bind(c[i].spec, p, g, c[i].ps, c[i].gs, c[i].flags, &r, &b), OPTC_ERROR_ARGUMENT,
              c[i].says);
        ck_assert_ptr_null(b);
        OK(optc_release(r));
    }
}
END_TEST

/* ---- memory ---- */
/* mode 1: returns NULL; 2: returns misaligned memory */
typedef struct { int calls, live; size_t bytes; int mode; char *block; } Counting;

static void *count_alloc(void *ctx, size_t bytes, void *stream)
{
    Counting *c = ctx;
    ck_assert_ptr_null(stream);
    c->calls++;
    if (c->mode == 1)
        return NULL;
    c->live++;
    c->bytes += bytes;
    c->block = aligned_alloc(64, (bytes + 127) / 64 * 64);
    return c->block + (c->mode == 2 ? 4 : 0);
}

static void count_release(void *ctx, void *p, size_t bytes, void *stream)
{
    Counting *c = ctx;
    (void)stream;
    c->live--;
    c->bytes -= bytes;
    ck_assert(p == c->block + (c->mode == 2 ? 4 : 0));
    free(c->block);
}

START_TEST(callers_allocator)
{
    Counting c = {0};
    optc_allocator a = {count_alloc, count_release, &c};
    optc_engine *e, *none;
    optc_rule *r;
    optc_binding *b;
    float p[64] = {1}, g[64] = {1};
    int64_t n[1] = {64};
    optc_tensor t = {.param = p, .grad = g, .rank = 1, .shape = n};
    optc_group all = {.tensors = &t, .ntensors = 1};
    OK(optc_open(&(optc_engine_options){.cache_dir = "", .allocator = &a}, &e));
    OK(optc_compile(e, &(optc_rule_options){.spec = "adamw"}, &r));
    OK(optc_bind(r, &all, 1, &b));
    ck_assert_int_eq(c.calls, 1);
    optc_state_view m;
    OK(optc_state(b, 0, "m", &m));
    ck_assert_msg((char *)m.data >= c.block && (char *)m.data + 256 <= c.block + c.bytes,
                  "a state lies outside the caller's memory");
    OK(optc_step(b));
    optc_memory info;
    OK(optc_memory_info(e, &info));
    ck_assert_int_eq(info.ours, (int64_t)c.bytes);
    OK(optc_unbind(b));
    ck_assert_int_eq(c.live, 0);
    OK(optc_memory_info(e, &info));
    ck_assert(info.ours == 0 && info.peak > 0);
    c.mode = 1;
    FAILS(optc_bind(r, &all, 1, &b), OPTC_ERROR_MEMORY, "out of memory");
    c.mode = 2;
    FAILS(optc_bind(r, &all, 1, &b), OPTC_ERROR_ARGUMENT, "not aligned to 64 bytes");
    ck_assert_int_eq(c.live, 0);
    OK(optc_memory_info(e, &info));
    ck_assert_int_eq(info.ours, 0);
    a.release = NULL;
    FAILS(optc_open(&(optc_engine_options){.allocator = &a}, &none), OPTC_ERROR_ARGUMENT,
          "the allocator lacks release");
    OK(optc_release(r));
    OK(optc_close(e));
}
END_TEST

START_TEST(memory_counted)
{
    optc_rule *r;
    optc_binding *b[2];
    optc_memory m;
    static float p[2][1 << 16], g[2][1 << 16];
    int64_t n[1] = {1 << 16};
    OK(optc_compile(engine, &(optc_rule_options){.spec = "adamw"}, &r));
    for (int i = 0; i < 2; i++) {
        optc_tensor t = {.param = p[i], .grad = g[i], .rank = 1, .shape = n};
        OK(optc_bind(r, &(optc_group){.tensors = &t, .ntensors = 1}, 1, &b[i]));
        OK(optc_memory_info(engine, &m));
        ck_assert_msg(m.ours >= (i + 1) * 8 * n[0] && m.ours < (i + 1) * 9 * n[0],
                      "%d bindings of m and v hold %lld bytes", i + 1, (long long)m.ours);
    }
    ck_assert(m.total > (1 << 28) && m.free > 0 && m.free <= m.total && m.peak == m.ours);
    int64_t peak = m.peak;
    OK(optc_unbind(b[0]));
    OK(optc_memory_info(engine, &m));
    ck_assert(m.ours * 2 == peak && m.peak == peak);
    OK(optc_unbind(b[1]));
    OK(optc_release(r));
    FAILS(optc_memory_info(NULL, &m), OPTC_ERROR_ARGUMENT, "the engine is NULL");
    FAILS(optc_memory_info(engine, NULL), OPTC_ERROR_ARGUMENT, "the result pointer is NULL");
}
END_TEST

/* "best" opens the device that optc_best_device names. */
START_TEST(best_device)
{
    optc_engine *e;
    OK(optc_open(&(optc_engine_options){.device = "best", .cache_dir = ""}, &e));
    ck_assert_msg(!strncmp(optc_device_name(e), optc_best_device(), strlen(optc_best_device())),
                  "%s is opened, %s is named", optc_device_name(e), optc_best_device());
    OK(optc_close(e));
}
END_TEST

Suite *memory_suite(void)
{
    Suite *s = suite_create("memory");
    TCase *t = tcase_create("memory");
    tcase_add_checked_fixture(t, open_engine, close_engine);
    tcase_add_loop_test(t, channels_last_equals, 0, 3);
    tcase_add_test(t, strides_refused);
    tcase_add_test(t, callers_allocator);
    tcase_add_test(t, memory_counted);
    tcase_add_test(t, best_device);
    suite_add_tcase(s, t);
    return s;
}
