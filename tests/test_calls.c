/* Products as calls, and the batches that tensors are stepped in. Programs made by hand: no compiler of rules has a part in them. The reference is a plain loop in
 * f64; a result of the storage type may be off it by the bound of any order of summation, (k + 3) roundings of the sum of magnitudes. */
#include "help.h"
#include "suites.h"

#include <dlfcn.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- a program of products ---- */
enum { A = 2, B, C, OUT, NARRAY, MOST_CALLS = 12 };
typedef struct Hand {
    optc_engine *engine;
    optc_rule *rule;
    optc_binding *binding;
    const Program *was;
    Program program;
    ProgArray array[NARRAY + MOST_CALLS];
    ProgStage stage[MOST_CALLS];
    ProgCall call[MOST_CALLS];
    int reads[MOST_CALLS][3], writes[MOST_CALLS];
    ProgAction action[MOST_CALLS];
    ProgPhase phase;
    ProgEntry entry;
    void *memory;
    int fails, asked;                  /* the allocation of that number when binding; how many there were */
} Hand;

static void hand_open(Hand *h, const optc_engine_options *o)
{
    static const Variant one = {"step", VIEW_LAST, NULL, 0};
    memset(h, 0, sizeof *h);
    OK(optc_open(o, &h->engine));
    OK(optc_compile(h->engine, &(optc_rule_options){.spec = "adamw"}, &h->rule));
    h->was = h->rule->program;
    h->program = *h->was;
    for (int i = 0; i < 2; i++)
        h->array[i] = h->was->array[i];
    h->entry = (ProgEntry){"step", &h->phase};
    h->phase.action = h->action;
    h->program.array = h->array, h->program.narray = NARRAY;
    h->program.stage = h->stage;
    h->program.entry = &h->entry, h->program.nentry = 1;
    h->program.nperiod = 0;
    h->program.variant = &one, h->program.nvariant = 1;
    h->program.rank = 5;
}

static void hand_array(Hand *h, int k, MemKind kind, Dom d, Type t, const char *name)
{
    h->array[k] = (ProgArray){.kind = kind, .dom = d, .from = d, .type = t, .name = name, .kept = 1};
    h->program.narray = k >= h->program.narray ? k + 1 : h->program.narray;
}

static void hand_call(Hand *h, ProgCall c)
{
    int n = h->program.nstage = h->phase.naction;
    h->call[n] = c;
    h->reads[n][0] = c.a, h->reads[n][1] = c.b, h->reads[n][2] = c.c;
    h->writes[n] = c.out;
    h->stage[n] = (ProgStage){.kind = S_CALL, .fn = -1, .reads = h->reads[n], .nreads = c.c < 0 ? 2 : 3, .writes = &h->writes[n], .nwrites = 1, .kernel = "", .name = "call",
                              .where = "x.lua:7", .call = &h->call[n]};
    h->action[n] = (ProgAction){ACT_LAUNCH, n, 0, 0};
    h->program.nstage = h->phase.naction = n + 1;
}

static optc_status hand_bind(Hand *h, const int64_t (*shape)[3], int n)
{
    optc_tensor *t = calloc((size_t)n + 1, sizeof *t);
    int64_t all = 0;
    for (int i = 0; i < n; i++)
        all += shape[i][0] * shape[i][1] * shape[i][2];
    h->memory = calloc((size_t)all * 2 + 2, sizeof(float));
    float *at = h->memory;
    for (int i = 0; i < n; i++) {
        int64_t each = shape[i][0] * shape[i][1] * shape[i][2];
        t[i] = (optc_tensor){.param = at, .grad = at + each, .rank = 3, .shape = shape[i]};
        at += 2 * each;
    }
    h->rule->program = &h->program;
    memory_fails(h->fails);
    optc_status s = optc_bind(h->rule, &(optc_group){.tensors = t, .ntensors = n}, 1, &h->binding);
    h->asked = memory_asked();
    memory_fails(0);
    free(t);
    return s;
}

static void hand_unbind(Hand *h)
{
    OK(optc_unbind(h->binding));
    free(h->memory);
    h->binding = NULL;
    h->memory = NULL;
}

static void hand_close(Hand *h)
{
    if (h->binding)
        hand_unbind(h);
    free(h->memory);
    h->rule->program = h->was;
    OK(optc_release(h->rule));
    OK(optc_close(h->engine));
}

static int64_t length(const Hand *h, int tensor, int k) { return dom_len(h->array[k].dom, h->binding->tensor[tensor].shape); }

static void fill(Hand *h, int tensor, int k, int seed)
{
    for (int64_t i = 0, n = length(h, tensor, k); i < n; i++)
        type_store(h->array[k].type, h->binding->tensor[tensor].mem[k], i, ref_value(seed, k, i));
}

static void fill_with(Hand *h, int tensor, int k, double x)
{
    for (int64_t i = 0, n = length(h, tensor, k); i < n; i++)
        type_store(h->array[k].type, h->binding->tensor[tensor].mem[k], i, x);
}

/* ---- the reference ---- */
/* An operand as a matrix of doubles, its rows one behind another as it is in the product. */
typedef struct Matrix { double *v; int64_t down, across; } Matrix;

static Matrix operand(const Hand *h, int tensor, int k, bool turned)
{
    Shape s = h->binding->tensor[tensor].shape;
    MatrixAxes m = dom_matrix(h->array[k].dom, turned);
    Matrix x = {calloc((size_t)length(h, tensor, k) + 1, sizeof(double)), axis_len(m.down, s), axis_len(m.across, s)};
    for (int64_t at = 0, each = x.down * x.across; at < s.slices * each; at++) {
        int64_t i = at % each, from = turned ? at - i + i % x.across * x.down + i / x.across : at;
        x.v[at] = type_load(h->array[k].type, h->binding->tensor[tensor].mem[k], from);
    }
    return x;
}

/* The product, and how far off it may be. was: what stood in C, or NULL. */
static void check_product(const Hand *h, int tensor, const ProgCall *c, const double *was)
{
    Shape s = h->binding->tensor[tensor].shape;
    Matrix a = operand(h, tensor, c->a, (c->flags & TURN_A) != 0), b = operand(h, tensor, c->b, (c->flags & TURN_B) != 0);
    int64_t m = a.down, n = b.across;
    double unit = h->array[c->out].type == T_F64 ? 0x1p-53 : 0x1p-24;
    ck_assert_int_eq(length(h, tensor, c->out), s.slices * m * n);
    for (int64_t at = 0; at < s.slices * m * n; at++) {
        int64_t slice = at / n / m, i = at / n % m, j = at % n;
        const double *x = a.v + (slice * m + i) * a.across, *y = b.v + slice * a.across * n + j;
        double sum = 0, size = 0, got = type_load(h->array[c->out].type, h->binding->tensor[tensor].mem[c->out], at);
        for (int64_t k = 0; k < a.across; k++) {
            sum += x[k] * y[k * n];
            size += fabs(x[k] * y[k * n]);
        }
        double add = c->c >= 0 ? c->beta * was[at] : 0, bound = unit * 1.01 * (double)(a.across + 3) * (fabs(c->alpha) * size + fabs(add));
        if (!(fabs(got - (c->alpha * sum + add)) <= bound))
            ck_abort_msg("%s %s, flags %u: slice %lld (%lld, %lld): %.17g, wanted %.17g within %g", dom_info[h->array[c->a].dom].name, dom_info[h->array[c->b].dom].name, c->flags,
                         (long long)slice, (long long)i, (long long)j, got, c->alpha * sum + add, bound);
    }
    free(a.v);
    free(b.v);
}

/* By a BLAS if there is one, and by our own product. */
static void use_blas(bool blas)
{
    if (blas)
        unsetenv("OPTC_BLAS");
    else
        setenv("OPTC_BLAS", "none", 1);
}

/* ---- products of all domains that fit, each way round ---- */
static void one_product(Hand *h, const int64_t (*shape)[3], Dom a, Dom b, unsigned flags, Type t, int how)
{
    Dom out = dom_product(dom_matrix(a, (flags & TURN_A) != 0).down, dom_matrix(b, (flags & TURN_B) != 0).across);
    double *was = NULL;
    h->phase.naction = 0;
    hand_array(h, A, MEM_STATE, a, t, "a");
    hand_array(h, B, MEM_STATE, b, t, "b");
    hand_array(h, C, MEM_STATE, out, t, "c");
    hand_array(h, OUT, MEM_STATE, out, t, "out");
    /* alone; added to another; added to what stands there */
    hand_call(h, (ProgCall){CALL_MM, flags, A, B, how == 0 ? -1 : how == 1 ? C : OUT, OUT, how ? -0.75 : 1, how ? 2.5 : 0});
    OK(hand_bind(h, shape, 2));
    for (int i = 0; i < 2; i++) {
        fill(h, i, A, 1);
        fill(h, i, B, 2);
        fill(h, i, C, 3);
        fill_with(h, i, OUT, how == 2 ? 0.5 : NAN);           /* where nothing is added, what stood there is not read */
    }
    for (int i = 0; i < 2; i++) {
        int64_t n = length(h, i, OUT);
        was = calloc((size_t)n + 1, sizeof *was);
        for (int64_t x = 0; x < n; x++)
            was[x] = type_load(t, h->binding->tensor[i].mem[how == 2 ? OUT : C], x);
        if (i == 0)
            OK(optc_step(h->binding));
        if (i && how == 2)
            for (int64_t x = 0; x < n; x++)
                was[x] = 0.5;
        check_product(h, i, &h->call[0], was);
        free(was);
    }
    hand_unbind(h);
}

START_TEST(all_domains)
{
    static const int64_t shape[][3] = {{2, 19, 13}, {1, 3, 22}};
    Hand h;
    int n = 0;
    use_blas(_i & 1);
    hand_open(&h, NULL);
    for (int a = 0; a < NDOM; a++)
        for (int b = 0; b < NDOM; b++)
            for (unsigned flags = 0; flags < 4; flags++) {
                bool matrices = dom_inside((Dom)a) && dom_inside((Dom)b) && a != SLICE && b != SLICE;
                MatrixAxes x = dom_matrix((Dom)a, flags & TURN_A), y = dom_matrix((Dom)b, flags & TURN_B);
                if (matrices && x.across == y.down && dom_product(x.down, y.across) != NDOM)
                    one_product(&h, shape, (Dom)a, (Dom)b, flags, _i & 2 ? T_F64 : T_F32, n++ % 3);
            }
    ck_assert_int_gt(n, 200);
    hand_close(&h);
}
END_TEST

/* ---- sizes: none, one, odd, larger than a panel ---- */
static const int64_t sizes[][3] = {{1, 1, 1}, {1, 1, 17}, {1, 17, 1}, {3, 5, 7}, {1, 0, 5}, {2, 3, 0}, {1, 531, 10}, {1, 10, 531}, {1, 129, 131}};
enum { NSIZES = 9 };

START_TEST(all_sizes)
{
    Hand h;
    use_blas(_i & 1);
    hand_open(&h, &(optc_engine_options){.threads = 2});
    Type t = _i & 2 ? T_F64 : T_F32;
    static const Dom out[] = {ROWS2, COLS2, ROW, COL};
    hand_array(&h, A, MEM_STATE, ELEM, t, "a");
    hand_array(&h, B, MEM_STATE, COL, t, "b");
    hand_array(&h, C, MEM_STATE, ROW, t, "c");
    for (int i = 0; i < 4; i++)
        hand_array(&h, OUT + i, MEM_STATE, out[i], t, "out");
    hand_call(&h, (ProgCall){CALL_MM, TURN_B, A, A, -1, OUT, 1, 0});
    hand_call(&h, (ProgCall){CALL_MM, TURN_A | SYMMETRIC, A, A, -1, OUT + 1, 0.5, 0});
    hand_call(&h, (ProgCall){CALL_MM, 0, A, B, -1, OUT + 2, 1, 0});
    hand_call(&h, (ProgCall){CALL_MM, TURN_A, C, A, -1, OUT + 3, 1, 0});
    OK(hand_bind(&h, sizes, NSIZES));
    for (int i = 0; i < NSIZES; i++)
        for (int k = A; k < OUT; k++)
            fill(&h, i, k, i);
    for (int i = 0; i < NSIZES; i++)
        for (int k = 0; k < 4; k++)
            fill_with(&h, i, OUT + k, NAN);
    OK(optc_step(h.binding));
    for (int i = 0; i < NSIZES; i++)
        for (int k = 0; k < 4; k++)
            check_product(&h, i, &h.call[k], NULL);
    hand_close(&h);
}
END_TEST

static int64_t mirrored(int64_t x, int64_t n) { return x / n / n * n * n + x % n * n + x / n % n; }

/* Symmetric products: both halves, bit by bit the same; of x x.T, of two matrices that commute, added to one that is symmetric. */
START_TEST(symmetric)
{
    static const int64_t shape[][3] = {{2, 130, 20}, {1, 7, 9}, {1, 1, 4}, {1, 270, 3}};
    Hand h;
    use_blas(_i & 1);
    hand_open(&h, &(optc_engine_options){.threads = 3});
    Type t = _i & 2 ? T_F64 : T_F32;
    hand_array(&h, A, MEM_STATE, ELEM, t, "a");
    hand_array(&h, B, MEM_STATE, ROWS2, t, "b");
    hand_array(&h, C, MEM_STATE, ROWS2, t, "c");
    hand_array(&h, OUT, MEM_STATE, ROWS2, t, "out");
    hand_call(&h, (ProgCall){CALL_MM, TURN_B | SYMMETRIC, A, A, -1, B, 1, 0});
    hand_call(&h, (ProgCall){CALL_MM, TURN_B | SYMMETRIC, A, A, B, C, 0.25, -3});
    hand_call(&h, (ProgCall){CALL_MM, SYMMETRIC, B, B, -1, OUT, 1, 0});
    OK(hand_bind(&h, shape, 4));
    for (int i = 0; i < 4; i++) {
        fill(&h, i, A, i);
        fill_with(&h, i, B, NAN);
        fill_with(&h, i, C, NAN);
        fill_with(&h, i, OUT, NAN);
    }
    OK(optc_step(h.binding));
    for (int i = 0; i < 4; i++) {
        int64_t n = length(&h, i, B), rows = shape[i][1];
        double *was = calloc((size_t)n, sizeof *was);
        for (int64_t x = 0; x < n; x++)
            was[x] = type_load(t, h.binding->tensor[i].mem[B], x);
        for (int k = 0; k < 3; k++)
            check_product(&h, i, &h.call[k], was);
        for (int64_t x = 0; x < n; x++)
            for (int k = B; k <= OUT; k++)
                if (type_load(t, h.binding->tensor[i].mem[k], x) != type_load(t, h.binding->tensor[i].mem[k], mirrored(x, rows)))
                    ck_abort_msg("value %lld of array %d is not symmetric", (long long)x, k);
        free(was);
    }
    hand_close(&h);
}
END_TEST

/* ---- threads and batches change no bit ---- */
/* out = ((a a.T) (a a.T)) a: two temporaries of rows, and a result. */
static void chain(Hand *h, int from)
{
    hand_array(h, A, MEM_STATE, ELEM, T_F32, "a");
    hand_array(h, B, MEM_TEMP, ROWS2, T_F32, "b");
    hand_array(h, C, MEM_TEMP, ROWS2, T_F32, "c");
    hand_array(h, OUT, MEM_STATE, ELEM, T_F32, "out");
    hand_call(h, (ProgCall){CALL_MM, TURN_B | SYMMETRIC, from, from, -1, B, 1, 0});
    hand_call(h, (ProgCall){CALL_MM, 0, B, B, -1, C, 1e-3, 0});
    hand_call(h, (ProgCall){CALL_MM, 0, C, from, -1, OUT, 1, 0});
}

static uint64_t hash_array(const Hand *h, int tensor, int k)
{
    const unsigned char *p = h->binding->tensor[tensor].mem[k];
    uint64_t x = 1469598103934665603u;
    for (int64_t i = 0, n = length(h, tensor, k) * h->program.type[h->array[k].type].bytes; i < n; i++)
        x = (x ^ p[i]) * 1099511628211u;
    return x;
}

/* Mixed shapes, out of order. */
static const int64_t mixed[][3] = {{1, 40, 30}, {1, 300, 70}, {2, 20, 30}, {1, 40, 30}, {1, 530, 140}, {1, 7, 2}, {1, 300, 70}, {1, 40, 30}, {1, 0, 4}, {1, 300, 70}};
enum { NMIXED = 10 };

static void run_chain(const optc_engine_options *o, uint64_t *out, optc_held *held)
{
    Hand h;
    hand_open(&h, o);
    chain(&h, A);
    OK(hand_bind(&h, mixed, NMIXED));
    for (int i = 0; i < NMIXED; i++)
        fill(&h, i, A, i);
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
        run_chain(&(optc_engine_options){.threads = threads[k], .workspace = workspace[k]}, k ? x : first, &held);
        if (k)
            ck_assert_msg(!memcmp(first, x, sizeof x), "%d threads, a workspace of %lld bytes", threads[k], (long long)workspace[k]);
        ck_assert_int_le(held.workspace, workspace[k] ? workspace[k] : 1 << 30);
        ck_assert(workspace[k] || held.batches == 1);
        most = held.batches > most ? held.batches : most;
    }
    ck_assert_int_gt(most, 1);
}
END_TEST

/* ---- batches ---- */
/* Tensors of one shape are neighbours; a batch's temporaries lie apart, and every batch's begin at one place. */
START_TEST(batches_lie)
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
            int64_t n = length(&h, u->tensor[i], B) * 4;
            ck_assert_int_eq(t->batch, k);
            if (i)
                ck_assert(t->shape.rows >= b->tensor[u->tensor[i - 1]].shape.rows || t->shape.slices > b->tensor[u->tensor[i - 1]].shape.slices);
            ck_assert(!n == !t->mem[B] && !n == !t->mem[C]);
            if (!n)
                continue;
            ck_assert((char *)t->mem[B] + n <= (char *)t->mem[C] || (char *)t->mem[C] + n <= (char *)t->mem[B]);
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
    ck_assert_int_eq(b->tasks[0].n, 3 * b->nbatch);
    for (int i = 0; i < b->tasks[0].n; i++)
        ck_assert(b->tasks[0].task[i].batch == i / 3 && b->tasks[0].task[i].action == &h.action[i % 3]);
    hand_close(&h);
}
END_TEST

/* What is needed from one stretch to another (here a copy stands between) lies for all tensors. */
START_TEST(across_stretches)
{
    Hand h;
    hand_open(&h, &(optc_engine_options){.workspace = 1});
    hand_array(&h, A, MEM_STATE, ELEM, T_F32, "a");
    hand_array(&h, B, MEM_TEMP, ROWS2, T_F32, "b");
    hand_array(&h, C, MEM_STATE, ELEM, T_F32, "c");
    hand_array(&h, OUT, MEM_STATE, ELEM, T_F32, "out");
    hand_call(&h, (ProgCall){CALL_MM, TURN_B, A, A, -1, B, 1, 0});
    hand_call(&h, (ProgCall){CALL_MM, 0, B, A, -1, OUT, 1, 0});
    h.action[2] = h.action[1];
    h.action[1] = (ProgAction){ACT_COPY, 0, C, A};
    h.phase.naction = 3;
    OK(hand_bind(&h, mixed, NMIXED));
    for (int i = 0; i < NMIXED; i++)
        fill(&h, i, A, i);
    for (int i = 1; i < NMIXED; i++)
        for (int j = 0; j < i; j++)
            ck_assert(!h.binding->tensor[i].mem[B] || h.binding->tensor[i].mem[B] != h.binding->tensor[j].mem[B]);
    OK(optc_step(h.binding));
    for (int i = 0; i < NMIXED; i++) {
        check_product(&h, i, &h.call[0], NULL);
        check_product(&h, i, &h.call[1], NULL);
        ck_assert(hash_array(&h, i, A) == hash_array(&h, i, C));
    }
    hand_close(&h);
}
END_TEST

static void *no_alloc(void *context, size_t bytes, void *stream)
{
    (void)context, (void)bytes, (void)stream;
    return NULL;
}
static void no_release(void *context, void *memory, size_t bytes, void *stream) { (void)context, (void)memory, (void)bytes, (void)stream; }

START_TEST(too_little)
{
    static const optc_allocator none = {no_alloc, no_release, NULL};
    Hand h;
    optc_engine *e;
    hand_open(&h, &(optc_engine_options){.workspace = 2247295});
    chain(&h, A);
    FAILS(hand_bind(&h, mixed, NMIXED), OPTC_ERROR_MEMORY, "tensor number 4 (1 x 530 x 140) needs a workspace of 2247296 bytes");
    ck_assert(strstr(optc_message(), "optc_engine_options.workspace is 2247295"));
    hand_close(&h);
    hand_open(&h, &(optc_engine_options){.allocator = &none});
    chain(&h, A);
    FAILS(hand_bind(&h, mixed, NMIXED), OPTC_ERROR_MEMORY, "out of memory");
    hand_close(&h);
    FAILS(optc_open(&(optc_engine_options){.workspace = -1}, &e), OPTC_ERROR_ARGUMENT, "a workspace of -1 bytes");
}
END_TEST

static void *one_alloc(void *context, size_t bytes, void *stream)
{
    static _Alignas(64) char room[8 << 20];
    (void)context, (void)stream;
    return bytes <= sizeof room ? room : NULL;
}

/* Memory that ends at any allocation: an error, and nothing is left behind. */
START_TEST(memory_ends)
{
    static const optc_allocator one = {one_alloc, no_release, NULL};
    Hand h;
    use_blas(false);                                   /* a BLAS, once loaded, stays */
    hand_open(&h, &(optc_engine_options){.workspace = 2247296, .allocator = &one});
    chain(&h, A);
    for (bool done = false; !done;) {
        int held = memory_held();
        h.fails++;
        optc_status s = hand_bind(&h, mixed, NMIXED);
        done = h.asked < h.fails;
        bool right = done ? s == OPTC_OK && optc_unbind(h.binding) == OPTC_OK : s == OPTC_ERROR_MEMORY && !h.binding;
        h.binding = NULL;
        free(h.memory);
        h.memory = NULL;
        held = memory_held() - held;                   /* before Check allocates for itself */
        ck_assert_msg(right && !held, "allocation %d of %d: %s, %d left", h.fails, h.asked, optc_status_name(s), held);
    }
    ck_assert_int_gt(h.fails, 50);
    hand_close(&h);
}
END_TEST

/* A tensor without a gradient is left as it is; NaN in one leaves the others as they are. */
START_TEST(absent_and_nan)
{
    Hand h;
    uint64_t was[NMIXED], x[NMIXED];
    hand_open(&h, &(optc_engine_options){.threads = 2});
    chain(&h, 1);
    OK(hand_bind(&h, mixed, NMIXED));
    for (int i = 0; i < NMIXED; i++)
        fill(&h, i, 1, i);
    OK(optc_step(h.binding));
    for (int i = 0; i < NMIXED; i++) {
        was[i] = hash_array(&h, i, OUT);
        fill_with(&h, i, OUT, 7);
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
    for (int i = 0; i < 300 * 70; i++)             /* a row of the gradient has part in every value */
        ck_assert(isnan(((float *)h.binding->tensor[6].mem[OUT])[i]));
    hand_close(&h);
}
END_TEST

/* ---- refused ---- */
START_TEST(refused)
{
    static const struct { Dom a, b, c, out; unsigned flags; ProgCall call; const char *says; } bad[] = {
        {ELEM, ELEM, ELEM, ROWS2, 0, {CALL_MM, 0, A, B, -1, OUT, 1, 0}, "operands of a product do not fit"},
        {ELEM, ELEM, ELEM, COLS2, 0, {CALL_MM, TURN_B, A, B, -1, OUT, 1, 0}, "operands of a product do not fit"},
        {ELEM, ELEM, ELEM, ROWS2, 0, {CALL_MM, TURN_B, A, B, C, OUT, 1, 1}, "what is added to a product is not of its shape"},
        {ROWS2, ELEM, ELEM, ELEM, 0, {CALL_MM, SYMMETRIC, A, B, -1, OUT, 1, 0}, "cannot be symmetric"},
        {ROWS2, ELEM, ELEM, ELEM, 0, {CALL_MM, 0, A, B, -1, B, 1, 0}, "over its own operand"},
        {ROWS2, ELEM, ELEM, ELEM, 0, {(Callee)NCALLEE, 0, A, B, -1, OUT, 1, 0}, "no such callee"},
        {ROWS2, ELEM, ELEM, ELEM, 0, {CALL_MM, 0, A, B, -1, -1, 1, 0}, "lacks an operand"},
    };
    static const int64_t shape[][3] = {{1, 4, 3}};
    Hand h;
    hand_open(&h, NULL);
    for (int i = 0; i < 7; i++) {
        h.phase.naction = 0;
        hand_array(&h, A, MEM_STATE, bad[i].a, T_F32, "a");
        hand_array(&h, B, MEM_STATE, bad[i].b, T_F32, "b");
        hand_array(&h, C, MEM_STATE, bad[i].c, T_F32, "c");
        hand_array(&h, OUT, MEM_STATE, bad[i].out, T_F32, "out");
        hand_call(&h, bad[i].call);
        h.stage[0].nreads = h.stage[0].nwrites = 0;
        FAILS(hand_bind(&h, shape, 1), OPTC_ERROR_ARGUMENT, bad[i].says);
        ck_assert(strstr(optc_message(), "(x.lua:7)"));
        free(h.memory);
        h.memory = NULL;
    }
    hand_close(&h);
}
END_TEST

/* More than a BLAS with integers of 32 bits can be told; a library that is none. */
START_TEST(sizes_and_libraries)
{
    Hand h;
    Blas x;
    int64_t shape[] = {1, 1, ((int64_t)1 << 31) + 8};
    optc_tensor t = {.name = "w", .param = (void *)((uintptr_t)1 << 40), .grad = (void *)((uintptr_t)1 << 41), .rank = 3, .shape = shape};
    optc_group g = {.tensors = &t, .ntensors = 1};
    use_blas(true);
    OK(blas_open(&x, "test"));
    hand_open(&h, NULL);
    hand_array(&h, OUT, MEM_STATE, ROWS2, T_F32, "out");
    h.array[A] = h.array[B] = h.array[C] = h.array[OUT];
    hand_call(&h, (ProgCall){CALL_MM, TURN_B, 1, 1, -1, OUT, 1, 0});
    h.rule->program = &h.program;
    if (x.gemm[0] && !x.wide) {
        FAILS(optc_bind(h.rule, &g, 1, &h.binding), OPTC_ERROR_ARGUMENT, "tensor 'w' (number 0) is too large for");
        ck_assert(strstr(optc_message(), "a product of 1 x 2147483656 and 2147483656 x 1"));
    }
    ck_assert(strstr(optc_rule_path(h.rule), "; products: ") && strstr(optc_rule_path(h.rule), x.about));
    use_blas(false);
    OK(optc_bind(h.rule, &g, 1, &h.binding));
    ck_assert(!h.binding->blas->gemm[0] && strstr(optc_rule_path(h.rule), "products: our own, slower than a BLAS (OPTC_BLAS is none)"));
    hand_unbind(&h);
    setenv("OPTC_BLAS", "libm.so.6", 1);
    FAILS(optc_bind(h.rule, &g, 1, &h.binding), OPTC_ERROR_UNAVAILABLE, "OPTC_BLAS is 'libm.so.6', which cannot be opened or has no cblas_sgemm");
    h.binding = NULL;
    hand_close(&h);
}
END_TEST

/* An OpenBLAS with threads of its own that the process has loaded and uses: it goes on as it was, and we have a copy (under the sanitizer, which allows none, our own
 * product). Other kinds are used as they are. */
START_TEST(of_the_process)
{
    void *library = dlopen("libopenblas.so.0", RTLD_LAZY | RTLD_LOCAL);
    int (*threads)(void) = NULL, (*parallel)(void) = NULL;
    Blas x, again;
    float a[] = {1, 2, 3, 4}, b[] = {5, 6, 7, 8}, c[4] = {NAN, NAN, NAN, NAN};
    Gemm g = {.m = 2, .n = 2, .k = 2, .lda = 2, .ldb = 2, .ldc = 2, .alpha = 1, .a = a, .b = b, .c = c};
    if (library) {
        *(void **)&threads = dlsym(library, "openblas_get_num_threads");
        *(void **)&parallel = dlsym(library, "openblas_get_parallel");
    }
    int was = threads ? threads() : 0;
    OK(blas_open(&x, "test"));
    OK(blas_open(&again, "test"));
    ck_assert(x.gemm[0] == again.gemm[0] && x.syrk[1] == again.syrk[1]);
    blas_gemm(&x, &g);
    ck_assert(c[0] == 19 && c[1] == 22 && c[2] == 43 && c[3] == 50);
    if (!threads || !parallel)
        return;
    ck_assert_int_eq(threads(), was);
    if (parallel() == 1 && was > 1)
        ck_assert_msg(x.gemm[0] != dlsym(library, "cblas_sgemm"), "%s", x.about);
    else
        ck_assert_msg(x.gemm[0] != NULL, "%s", x.about);
}
END_TEST

/* ---- whole rules against the evaluator: steps of the iteration that Muon has, written out and as the word for it, which steps wide and tall matrices each their way ---- */
START_TEST(whole_rule)
{
    static const char *const text[] = {
        "return optimizer { name = 'x', hyper = { lr = 0.02, momentum = 0.95 }, state = { m = zeros }, products = 'f32',\n"
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
        "return optimizer { name = 'x', hyper = { lr = 0.02, momentum = 0.95 }, state = { m = zeros }, products = 'f32',\n"
        "  step = function() m = momentum * m + g p = p - lr * m / (1 + norm(m)) end,\n"
        "  matrix = function() m = momentum * m + g p = p - lr * polar(m, { steps = 3 }) end }"};
    static const TestShape tensor[] = {{2, {60, 33}}, {1, {50}}, {2, {33, 65}}, {2, {60, 33}}, {2, {1, 9}}, {2, {9, 1}}, {2, {0, 5}}, {2, {60, 33}}, {2, {33, 65}}, {2, {33, 65}}};
    optc_engine_options engine[] = {{.threads = 1}, {.threads = 3}, {.threads = 2, .workspace = 8 << 20}};
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
        ck_assert_int_le(held.temporaries, 256);               /* of matrices all lie in the pool, though vectors have some of the same number */
        fix_close(&f);
    }
    ck_assert(hash[0] == hash[1] && hash[0] == hash[2]);
}
END_TEST

static void as_it_was(void) { unsetenv("OPTC_BLAS"); }

Suite *calls_suite(void)
{
    Suite *s = suite_create("calls");
    TCase *t = tcase_create("calls");
    tcase_set_timeout(t, 60);
    tcase_add_checked_fixture(t, NULL, as_it_was);
    tcase_add_loop_test(t, all_domains, 0, 4);
    tcase_add_loop_test(t, all_sizes, 0, 4);
    tcase_add_loop_test(t, symmetric, 0, 4);
    tcase_add_loop_test(t, same_bits, 0, 2);
    tcase_add_test(t, batches_lie);
    tcase_add_test(t, across_stretches);
    tcase_add_test(t, too_little);
    tcase_add_test(t, memory_ends);
    tcase_add_test(t, absent_and_nan);
    tcase_add_test(t, refused);
    tcase_add_test(t, sizes_and_libraries);
    tcase_add_test(t, of_the_process);
    tcase_add_loop_test(t, whole_rule, 0, 4);
    suite_add_tcase(s, t);
    return s;
}
