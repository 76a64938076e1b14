/* Batches of tensors in rules with products. */
#include "tests/harness/product_program.h"
#include "tests/harness/suites.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- threads and batches change no bit ---- */
/* out = ((a a.T) (a a.T)) a: two temporaries over rows x rows, and a result. */
static void chain(Hand *h, int from)
{
    hand_array(h, A, MEM_STATE, ELEM, T_F32, "a");
    hand_array(h, B, MEM_TEMP, ROWS2, T_F32, "b");
    hand_array(h, C, MEM_TEMP, ROWS2, T_F32, "c");
    hand_array(h, OUT, MEM_STATE, ELEM, T_F32, "out");
    hand_call(h, (ProgCall){CALL_MM, TRANS_B | SYMMETRIC, from, from, -1, B, 1, 0, 0});
    hand_call(h, (ProgCall){CALL_MM, 0, B, B, -1, C, 1e-3, 0, 0});
    hand_call(h, (ProgCall){CALL_MM, 0, C, from, -1, OUT, 1, 0, 0});
}

static uint64_t hash_array(const Hand *h, int tensor, int k)
{
    const unsigned char *p = h->binding->tensor[tensor].mem[k];
    uint64_t x = 1469598103934665603u;
    for (int64_t i = 0, n = hand_length(h, tensor, k) * h->program.type[h->array[k].type].bytes;
         i < n; i++)
        x = (x ^ p[i]) * 1099511628211u;
    return x;
}

/* Mixed shapes, unsorted. */
static const int64_t mixed[][3] = {{1, 40, 30},   {1, 300, 70}, {2, 20, 30},  {1, 40, 30},
                                   {1, 530, 140}, {1, 7, 2},    {1, 300, 70}, {1, 40, 30},
                                   {1, 0, 4},     {1, 300, 70}};
enum { NMIXED = 10 };

static void run_chain(const optc_engine_options *o, uint64_t *out, optc_held *held)
{
    Hand h;
    hand_open(&h, o);
    chain(&h, A);
    OK(hand_bind(&h, mixed, NMIXED));
    for (int i = 0; i < NMIXED; i++)
        hand_fill(&h, i, A, i);
    OK(optc_step(h.binding));
    for (int i = 0; i < NMIXED; i++)
        out[i] = hash_array(&h, i, OUT);
    OK(optc_binding_held(h.binding, held));
    hand_close(&h);
}

START_TEST(same_bits)
{
    static const int threads[] = {1, 2, 3, 7, 2, 7, 1};
    static const int64_t workspace[] = {0, 0, 0, 0, 2 * 530 * 530 * 4 + 128, 4 << 20, 5 << 19};
    uint64_t first[NMIXED], x[NMIXED];
    int most = 0;
    use_blas(_i & 1);
    for (int k = 0; k < 7; k++) {
        optc_held held;
        if (sanitized() && k != 0 && k != 4 && k != 5)
            continue;
        run_chain(&(optc_engine_options){.threads = threads[k], .workspace = workspace[k]},
                  k ? x : first, &held);
        if (k)
            ck_assert_msg(!memcmp(first, x, sizeof x), "%d threads, a workspace of %lld bytes",
                          threads[k], (long long)workspace[k]);
        ck_assert_int_le(held.workspace, workspace[k] ? workspace[k] : 1 << 30);
        ck_assert(workspace[k] || held.batches == 1);
        most = held.batches > most ? held.batches : most;
    }
    ck_assert_int_gt(most, 1);
}
END_TEST

/* ---- batches ---- */
/* Tensors of one shape are adjacent. The temporaries of a batch do not overlap, and those of all
 * batches start at the same offset. */
START_TEST(batch_layout)
{
    Hand h;
    optc_held held;
    const char *lowest = NULL;
    int seen = 0;
    hand_open(&h, &(optc_engine_options){.workspace = 2247296});
    chain(&h, A);
    OK(hand_bind(&h, mixed, NMIXED));
    OK(optc_binding_held(h.binding, &held));
    const optc_binding *b = h.binding;
    ck_assert_int_eq(held.batches, b->nbatch);
    ck_assert_int_eq(held.workspace, 2247296);
    for (int k = 0; k < b->nbatch; k++) {
        const Units *u = &b->batch[k].units;
        const char *at = NULL;
        for (int i = 0; i < u->n; i++, seen++) {
            const Tensor *t = &b->tensor[u->tensor[i]];
            int64_t n = hand_length(&h, u->tensor[i], B) * 4;
            ck_assert_int_eq(t->batch, k);
            if (i)
                ck_assert(t->shape.rows >= b->tensor[u->tensor[i - 1]].shape.rows ||
                          t->shape.slices > b->tensor[u->tensor[i - 1]].shape.slices);
            ck_assert(!n == !t->mem[B] && !n == !t->mem[C]);
            if (!n)
                continue;
            ck_assert((char *)t->mem[B] + n <= (char *)t->mem[C] ||
                      (char *)t->mem[C] + n <= (char *)t->mem[B]);
            const char *lo = t->mem[B] < t->mem[C] ? t->mem[B] : t->mem[C];
            ck_assert(!at || lo >= at);
            lowest = lowest ? lowest : lo;
            ck_assert(at || lo == lowest);
            at = lo + 2 * ((n + 63) & ~(int64_t)63);
            ck_assert(at <= lowest + held.workspace);
        }
    }
    ck_assert_int_eq(seen, NMIXED);
    ck_assert_int_gt(b->nbatch, 1);
    ck_assert_int_eq(b->schedule[0].n, 3 * b->nbatch);
    for (int i = 0; i < b->schedule[0].n; i++)
        ck_assert(b->schedule[0].op[i].batch == i / 3 &&
                  b->schedule[0].op[i].what == h.action[i % 3].stage);
    hand_close(&h);
}
END_TEST

/* A temporary that is needed in two stretches (with another action between them) is allocated for
 * all tensors. */
START_TEST(across_stretches)
{
    Hand h;
    hand_open(&h, &(optc_engine_options){.workspace = 1});
    hand_array(&h, A, MEM_STATE, ELEM, T_F32, "a");
    hand_array(&h, B, MEM_TEMP, ROWS2, T_F32, "b");
    hand_array(&h, OUT, MEM_STATE, ELEM, T_F32, "out");
    hand_call(&h, (ProgCall){CALL_MM, TRANS_B, A, A, -1, B, 1, 0, 0});
    hand_call(&h, (ProgCall){CALL_MM, 0, B, A, -1, OUT, 1, 0, 0});
    h.action[2] = h.action[1];
    h.action[1] = (ProgAction){ACT_ADVANCE_T, 0};
    h.phase.naction = 3;
    OK(hand_bind(&h, mixed, NMIXED));
    for (int i = 0; i < NMIXED; i++)
        hand_fill(&h, i, A, i);
    for (int i = 1; i < NMIXED; i++)
        for (int j = 0; j < i; j++)
            ck_assert(!h.binding->tensor[i].mem[B] ||
                      h.binding->tensor[i].mem[B] != h.binding->tensor[j].mem[B]);
    OK(optc_step(h.binding));
    for (int i = 0; i < NMIXED; i++) {
        check_product(&h, i, &h.call[0], NULL);
        check_product(&h, i, &h.call[1], NULL);
    }
    hand_close(&h);
}
END_TEST

/* A stretch runs batch by batch. One temporary ends inside it, and another, larger one begins
 * inside it. They must not share memory: a batch writes the second one before the next batch reads
 * the first one. */
START_TEST(ends_and_begins)
{
    enum { SQUARE = NARRAY, LARGE };
    uint64_t hash[2][NMIXED];
    for (int small = 0; small < 2; small++) {
        Hand h;
        hand_open(&h, &(optc_engine_options){.threads = 1, .workspace = small ? 1 << 19 : 0});
        hand_array(&h, A, MEM_STATE, ELEM, T_F32, "a");
        hand_array(&h, B, MEM_TEMP, ELEM, T_F32, "b");
        hand_array(&h, C, MEM_TEMP, ELEM, T_F32, "c");
        hand_array(&h, OUT, MEM_STATE, ELEM, T_F32, "out");
        hand_array(&h, SQUARE, MEM_STATE, ROWS2, T_F32, "square");
        hand_array(&h, LARGE, MEM_TEMP, ROWS2, T_F32, "large");
        hand_call(&h, (ProgCall){CALL_MM, 0, SQUARE, A, -1, B, 1, 0, 0});
        hand_call(&h, (ProgCall){CALL_MM, 0, SQUARE, B, -1, C, 1e-2, 0, 0});
        hand_call(&h, (ProgCall){CALL_MM, TRANS_B, C, A, -1, LARGE, 1e-2, 0, 0});
        hand_call(&h, (ProgCall){CALL_MM, 0, LARGE, A, -1, OUT, 1e-2, 0, 0});
        const ProgAction other = {ACT_ADVANCE_T, 0},
                         call[] = {h.action[0], h.action[1], h.action[2], h.action[3]};
        const ProgAction order[] = {call[0], other, call[1], call[2], other, call[3]};
        memcpy(h.action, order, sizeof order);
        h.phase.naction = 6;
        OK(hand_bind(&h, mixed, NMIXED));
        for (int i = 0; i < NMIXED; i++) {
            hand_fill(&h, i, A, i);
            hand_fill(&h, i, SQUARE, i + 100);
        }
        OK(optc_step(h.binding));
        ck_assert(small ? h.binding->nbatch > 1 : h.binding->nbatch == 1);
        for (int i = 0; i < NMIXED; i++)
            hash[small][i] = hash_array(&h, i, OUT);
        hand_close(&h);
    }
    ck_assert(!memcmp(hash[0], hash[1], sizeof *hash));
}
END_TEST

static void *no_alloc(void *context, size_t bytes, void *stream)
{
    (void)context, (void)bytes, (void)stream;
    return NULL;
}
static void no_release(void *context, void *memory, size_t bytes, void *stream)
{
    (void)context, (void)memory, (void)bytes, (void)stream;
}

START_TEST(too_little)
{
    static const optc_allocator none = {no_alloc, no_release, NULL};
    Hand h;
    optc_engine *e;
    hand_open(&h, &(optc_engine_options){.workspace = 2247295});
    chain(&h, A);
    FAILS(hand_bind(&h, mixed, NMIXED), OPTC_ERROR_MEMORY,
          "tensor number 4 (1 x 530 x 140) needs a workspace of 2247296 bytes");
    ck_assert(strstr(optc_message(), "optc_engine_options.workspace is 2247295"));
    hand_close(&h);
    optc_rule *r;
    optc_binding *b;
    optc_tensor t = {.name = "w", .param = (float[6]){0}, .rank = 2, .shape = (int64_t[]){2, 3}};
    optc_group g = {.tensors = &t, .ntensors = 1};
    OK(optc_open(&(optc_engine_options){.workspace = 64}, &e));
    OK(optc_compile(e, &(optc_rule_options){.spec = "muon"}, &r));
    FAILS(optc_bind(r, &g, 1, &b), OPTC_ERROR_MEMORY,
          "tensor 'w' (number 0) (1 x 2 x 3) needs a workspace of");
    ck_assert(strstr(optc_message(), "for the products of 'muon' (muon.lua:"));
    OK(optc_release(r));
    OK(optc_close(e));
    /* the threads' own memory is too much by itself: the largest side decides that, wherever it
     * is */
    static float values[400];
    optc_tensor of[3] = {
        t,
        {.name = "wide", .param = values, .rank = 2, .shape = (int64_t[]){1, 400}},
        {.name = "last", .param = (float[8]){0}, .rank = 2, .shape = (int64_t[]){2, 4}}};
    OK(optc_open(&(optc_engine_options){.workspace = 1 << 20, .threads = 2}, &e));
    OK(optc_compile(e,
                    &(optc_rule_options){.spec = "basis.lua",
                                         .text =
                                             "return optimizer { name = 'basis', state = { V = "
                                             "zeros 'cols' }, matrix = function() "
                                             "local v, U = eigh(gram(g.T))  V = U  p = p - g end,\n"
                                             "  step = function() p = p - g end }"},
                    &r));
    FAILS(optc_bind(r, &(optc_group){.tensors = of, .ntensors = 3}, 1, &b), OPTC_ERROR_MEMORY,
          "tensor 'wide' (number 1) (1 x 1 x 400) needs a workspace of");
    OK(optc_release(r));
    OK(optc_close(e));
    hand_open(&h, &(optc_engine_options){.allocator = &none});
    chain(&h, A);
    FAILS(hand_bind(&h, mixed, NMIXED), OPTC_ERROR_MEMORY, "out of memory");
    hand_close(&h);
    FAILS(optc_open(&(optc_engine_options){.workspace = -1}, &e), OPTC_ERROR_ARGUMENT,
          "workspace is -1 bytes");
}
END_TEST

/* An option overrides the environment, which overrides the default. */
START_TEST(option_and_environment)
{
    static const struct { const char *said; int64_t option, is;
    } c[] = {{"", 0, 1 << 30},
             {"3M", 0, 3 << 20},
             {"3M", 4096, 4096},
             {"2g", 0, (int64_t)2 << 30},
             {"77", 0, 77},
             {"lots", 0, 0},
             {"-1", 0, 0},
             {"0", 0, 0},
             {"5Mb", 0, 0},
             {"99999T", 0, 0},
             {"99999999999999999999", 0, 0},
             {"lots", 4096, 4096}};
    for (size_t i = 0; i < sizeof c / sizeof *c; i++) {
        optc_engine *e = NULL;
        setenv("OPTC_WORKSPACE", c[i].said, 1);
        optc_status s = optc_open(&(optc_engine_options){.workspace = c[i].option}, &e);
        ck_assert_msg(c[i].is ? s == OPTC_OK && e->workspace == c[i].is
                              : s == OPTC_ERROR_ARGUMENT && strstr(optc_message(), c[i].said) &&
                                    strstr(optc_message(), "must be a size such as 512M"),
                      "%s, %lld: %s", c[i].said, (long long)c[i].option, optc_message());
        OK(optc_close(e));
    }
    unsetenv("OPTC_WORKSPACE");
}
END_TEST

static void *one_alloc(void *context, size_t bytes, void *stream)
{
    static _Alignas(64) char room[8 << 20];
    (void)context, (void)stream;
    return bytes <= sizeof room ? room : NULL;
}

/* Every allocation fails once: an error, and no memory is leaked. */
START_TEST(memory_ends)
{
    static const optc_allocator one = {one_alloc, no_release, NULL};
    Hand h;
    use_blas(false);                                   /* a loaded BLAS stays loaded */
    hand_open(&h, &(optc_engine_options){.workspace = 2247296, .allocator = &one});
    chain(&h, A);
    for (bool done = false; !done;) {
        int held = memory_held();
        h.fails++;
        optc_status s = hand_bind(&h, mixed, NMIXED);
        done = h.asked < h.fails;
        bool right = done ? s == OPTC_OK && optc_unbind(h.binding) == OPTC_OK
                          : s == OPTC_ERROR_MEMORY && !h.binding;
        h.binding = NULL;
        free(h.memory);
        h.memory = NULL;
        held = memory_held() - held;                   /* before Check allocates */
        ck_assert_msg(right && !held, "allocation %d of %d: %s, %d left", h.fails, h.asked,
                      optc_status_name(s), held);
    }
    ck_assert_int_gt(h.fails, 50);
    hand_close(&h);
}
END_TEST

/* A tensor without a gradient does not change; a NaN in one tensor does not affect the others. */
START_TEST(absent_and_nan)
{
    Hand h;
    uint64_t was[NMIXED], x[NMIXED];
    hand_open(&h, &(optc_engine_options){.threads = 2});
    chain(&h, 1);
    OK(hand_bind(&h, mixed, NMIXED));
    for (int i = 0; i < NMIXED; i++)
        hand_fill(&h, i, 1, i);
    OK(optc_step(h.binding));
    for (int i = 0; i < NMIXED; i++) {
        was[i] = hash_array(&h, i, OUT);
        hand_fill_with(&h, i, OUT, 7);
    }
    ((float *)h.binding->tensor[6].mem[1])[5] = NAN;
    OK(optc_set_grad(h.binding, 3, NULL, 0));
    OK(optc_step(h.binding));
    for (int i = 0; i < NMIXED; i++) {
        x[i] = hash_array(&h, i, OUT);
        ck_assert_msg(i == 3 || i == 6 || x[i] == was[i], "tensor %d", i);
    }
    for (int i = 0; i < 40 * 30; i++)
        ck_assert(((float *)h.binding->tensor[3].mem[OUT])[i] == 7);
    /* each row of the gradient contributes to every value */
    for (int i = 0; i < 300 * 70; i++)
        ck_assert(isnan(((float *)h.binding->tensor[6].mem[OUT])[i]));
    hand_close(&h);
}
END_TEST

/* ---- whole rules against the evaluator: steps of the iteration that Muon has, written out and as
 * the word for it, which steps wide and tall matrices each their way ---- */
START_TEST(whole_rule)
{
    if (thinned(_i))
        return;
    static const char *const text[] = {
        "return optimizer { name = 'x', hyper = { lr = 0.02, momentum = 0.95 }, state = { m = "
        "zeros }, products = "
        "'f32',\n"
        "  step = function() m = momentum * m + g p = p - lr * m end,\n"
        "  matrix = function()\n"
        "    m = momentum * m + g\n"
        "    local x = m / (norm(m) + 1e-7)\n"
        "    for i = 1, 3 do\n"
        "      local A = mm(x, x.T)\n"
        "      x = 3.4445 * x + mm(2.0315 * mm(A, A) - 4.7750 * A, x)\n"
        "    end\n"
        "    p = p - lr * x\n"
        "  end }",
        "return optimizer { name = 'x', hyper = { lr = 0.02, momentum = 0.95 }, state = { m = "
        "zeros }, products = "
        "'f32',\n"
        "  step = function() m = momentum * m + g p = p - lr * m / (1 + norm(m)) end,\n"
        "  matrix = function() m = momentum * m + g p = p - lr * polar(m, { steps = 3 }) end }"};
    static const TestShape tensor[] = {{2, {60, 33}}, {1, {50}},    {2, {33, 65}}, {2, {60, 33}},
                                       {2, {1, 9}},   {2, {9, 1}},  {2, {0, 5}},   {2, {60, 33}},
                                       {2, {33, 65}}, {2, {33, 65}}};
    optc_engine_options engine[] = {
        {.threads = 1}, {.threads = 3}, {.threads = 2, .workspace = 8 << 20}};
    optc_held held = {0};
    uint64_t hash[3];
    use_blas(_i & 1);
    for (int k = 0; k < 3; k++) {
        Fixture f;
        engine[1].workspace = held.workspace * 2 / 3;
        fix_open(&f, &engine[k], &(optc_rule_options){.text = text[_i / 2]}, tensor, 10, NULL, 0);
        for (int step = 1; step <= 2; step++) {
            for (int i = 0; i < f.n; i++)
                for (int64_t x = 0; x < f.count[i]; x++)
                    type_store(f.type, f.g[i], x, ref_value(i, step, x));
            char *why = k ? NULL : step_in_bounds(&f, "step");
            ck_assert_msg(!why, "%s", why);
            if (k)
                OK(optc_step(f.binding));
        }
        hash[k] = fix_hash(&f);
        OK(optc_binding_held(f.binding, &held));
        ck_assert_int_eq(held.batches > 1 + _i / 2, k == 1);
        /* temporaries of matrices are all in the pool, although vectors have some with the same
         * number */
        ck_assert_int_le(held.temporaries, 256);
        fix_close(&f);
    }
    ck_assert(hash[0] == hash[1] && hash[0] == hash[2]);
}
END_TEST

/* The Gram form holds at the same time two matrices and one square, or one matrix and five squares.
 * Tensors of one shape are distributed evenly. */
START_TEST(no_more_than_needed)
{
    static const char text[] =
        "return optimizer { name = 'x', state = { m = zeros }, products = 'f32', step = function() "
        "p = p - g end,\n"
        "  matrix = function() m = 0.9 * m + g p = p - polar(m, { steps = 5, form = 'gram' }) "
        "end }";
    enum { N = 7, ROWS = 16, COLS = 512 };
    const int64_t most = 4 * (2 * ROWS * COLS + 2 * ROWS * ROWS) + 4096;
    TestShape tensor[N];
    optc_held alone, held;
    Fixture f;
    for (int i = 0; i < N; i++)
        tensor[i] = (TestShape){2, {ROWS, COLS}};
    fix_open(&f, &(optc_engine_options){.threads = 1}, &(optc_rule_options){.text = text}, tensor,
             1, NULL, 0);
    OK(optc_binding_held(f.binding, &alone));
    int64_t each = f.binding->pool_bytes - f.binding->call_bytes,
            room = 3 * each + f.binding->call_bytes;
    ck_assert_msg(each <= most, "%lld bytes for a matrix, and at most %lld are needed at once",
                  (long long)each, (long long)most);
    fix_close(&f);
    fix_open(&f, &(optc_engine_options){.threads = 1, .workspace = room},
             &(optc_rule_options){.text = text}, tensor, N, NULL, 0);
    OK(optc_binding_held(f.binding, &held));
    ck_assert_int_eq(held.batches, 3);
    ck_assert(f.binding->batch[0].units.n == 3 && f.binding->batch[1].units.n == 3 &&
              f.binding->batch[2].units.n == 1);
    fix_close(&f);
    fix_open(&f, &(optc_engine_options){.threads = 1, .workspace = room + each},
             &(optc_rule_options){.text = text}, tensor, 6, NULL, 0);
    /* four would fit */
    ck_assert(f.binding->nbatch == 2 && f.binding->batch[0].units.n == 3 &&
              f.binding->batch[1].units.n == 3);
    fix_close(&f);
}
END_TEST

static void as_it_was(void) { unsetenv("OPTC_BLAS"); }

Suite *batches_suite(void)
{
    Suite *s = suite_create("batches");
    TCase *t = tcase_create("batches");
    tcase_set_timeout(t, 60);
    tcase_add_test(t, option_and_environment);
    tcase_add_checked_fixture(t, NULL, as_it_was);
    tcase_add_loop_test(t, same_bits, 0, 2);
    tcase_add_test(t, batch_layout);
    tcase_add_test(t, across_stretches);
    tcase_add_test(t, ends_and_begins);
    tcase_add_test(t, too_little);
    tcase_add_test(t, memory_ends);
    tcase_add_test(t, absent_and_nan);
    tcase_add_loop_test(t, whole_rule, 0, 4);
    tcase_add_test(t, no_more_than_needed);
    suite_add_tcase(s, t);
    return s;
}
