/* Products as calls: all operands and sizes, with a BLAS and with optc's own code. */
#include "tests/harness/product_program.h"
#include "tests/harness/suites.h"

#include "runtime/core/matrix/cpu_calls.h"
#include "runtime/library/rule/spec_find.h"
#include "gen/emit/program_make.h"

#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#if defined(OPTC_SANITIZED)
#define SANITIZED 1                            /* its shadow memory needs address space too */
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SANITIZED 1
#endif
#endif

/* ---- products of all domains that fit, each way round ---- */
static void one_product(Hand *h, const int64_t (*shape)[3], Dom a, Dom b, unsigned flags, Type t,
                        int how)
{
    Dom out = dom_product(dom_matrix(a, (flags & TRANS_A) != 0).down,
                          dom_matrix(b, (flags & TRANS_B) != 0).across);
    double *was = NULL;
    h->phase.naction = 0;
    hand_array(h, A, MEM_STATE, a, t, "a");
    hand_array(h, B, MEM_STATE, b, t, "b");
    hand_array(h, C, MEM_STATE, out, t, "c");
    hand_array(h, OUT, MEM_STATE, out, t, "out");
    /* alone; added to another array; added to the output's old contents */
    hand_call(h, (ProgCall){CALL_MM, flags, A, B,
                            how == 0   ? -1
                            : how == 1 ? C
                                       : OUT,
                            OUT, how ? -0.75 : 1, how ? 2.5 : 0, 0});
    OK(hand_bind(h, shape, 2));
    for (int i = 0; i < 2; i++) {
        hand_fill(h, i, A, 1);
        hand_fill(h, i, B, 2);
        hand_fill(h, i, C, 3);
        /* without an addend the old contents are not read */
        hand_fill_with(h, i, OUT, how == 2 ? 0.5 : NAN);
    }
    for (int i = 0; i < 2; i++) {
        int64_t n = hand_length(h, i, OUT);
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
                /* the suite blocks tests those of blocks */
                bool matrices = dom_info[a].scope == SCOPE_MATRIX &&
                                dom_info[b].scope == SCOPE_MATRIX && a != SLICE && b != SLICE;
                MatrixAxes x = dom_matrix((Dom)a, flags & TRANS_A),
                           y = dom_matrix((Dom)b, flags & TRANS_B);
                if (matrices && x.across == y.down && dom_product(x.down, y.across) != NDOM)
                    one_product(&h, shape, (Dom)a, (Dom)b, flags, _i & 2 ? T_F64 : T_F32, n++ % 3);
            }
    ck_assert_int_gt(n, 200);
    hand_close(&h);
}
END_TEST

/* ---- sizes: none, one, odd, larger than a panel ---- */
static const int64_t sizes[][3] = {{1, 1, 1}, {1, 1, 17},   {1, 17, 1},   {3, 5, 7},    {1, 0, 5},
                                   {2, 3, 0}, {1, 531, 10}, {1, 10, 531}, {1, 129, 131}};
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
    hand_call(&h, (ProgCall){CALL_MM, TRANS_B, A, A, -1, OUT, 1, 0, 0});
    hand_call(&h, (ProgCall){CALL_MM, TRANS_A | SYMMETRIC, A, A, -1, OUT + 1, 0.5, 0, 0});
    hand_call(&h, (ProgCall){CALL_MM, 0, A, B, -1, OUT + 2, 1, 0, 0});
    hand_call(&h, (ProgCall){CALL_MM, TRANS_A, C, A, -1, OUT + 3, 1, 0, 0});
    OK(hand_bind(&h, sizes, NSIZES));
    for (int i = 0; i < NSIZES; i++)
        for (int k = A; k < OUT; k++)
            hand_fill(&h, i, k, i);
    for (int i = 0; i < NSIZES; i++)
        for (int k = 0; k < 4; k++)
            hand_fill_with(&h, i, OUT + k, NAN);
    OK(optc_step(h.binding));
    for (int i = 0; i < NSIZES; i++)
        for (int k = 0; k < 4; k++)
            check_product(&h, i, &h.call[k], NULL);
    hand_close(&h);
}
END_TEST

static int64_t mirrored(int64_t x, int64_t n) { return x / n / n * n * n + x % n * n + x / n % n; }

/* Symmetric products: both triangles have the same bits; x x.T, products of two commuting matrices,
 * and sums with a symmetric matrix and with the unit matrix. */
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
    hand_call(&h, (ProgCall){CALL_MM, TRANS_B | SYMMETRIC, A, A, -1, B, 1, 0, 0});
    hand_call(&h, (ProgCall){CALL_MM, TRANS_B | SYMMETRIC, A, A, B, C, 0.25, -3, 2.5});
    hand_call(&h, (ProgCall){CALL_MM, SYMMETRIC, B, B, -1, OUT, 1, 0, -70});
    OK(hand_bind(&h, shape, 4));
    for (int i = 0; i < 4; i++) {
        hand_fill(&h, i, A, i);
        hand_fill_with(&h, i, B, NAN);
        hand_fill_with(&h, i, C, NAN);
        hand_fill_with(&h, i, OUT, NAN);
    }
    OK(optc_step(h.binding));
    for (int i = 0; i < 4; i++) {
        int64_t n = hand_length(&h, i, B), rows = shape[i][1];
        double *was = calloc((size_t)n, sizeof *was);
        for (int64_t x = 0; x < n; x++)
            was[x] = type_load(t, h.binding->tensor[i].mem[B], x);
        for (int k = 0; k < 3; k++)
            check_product(&h, i, &h.call[k], was);
        for (int64_t x = 0; x < n; x++)
            for (int k = B; k <= OUT; k++)
                if (type_load(t, h.binding->tensor[i].mem[k], x) !=
                    type_load(t, h.binding->tensor[i].mem[k], mirrored(x, rows)))
                    ck_abort_msg("value %lld of array %d is not symmetric", (long long)x, k);
        free(was);
    }
    hand_close(&h);
}
END_TEST

/* ---- refused ---- */
START_TEST(refused)
{
    static const struct {
        Dom a, b, c, out;
        unsigned flags;
        ProgCall call;
        const char *says;
    } bad[] = {
        {ELEM,
         ELEM,
         ELEM,
         ROWS2,
         0,
         {CALL_MM, 0, A, B, -1, OUT, 1, 0, 0},
         "operands of a product do not fit"},
        {ELEM,
         ELEM,
         ELEM,
         COLS2,
         0,
         {CALL_MM, TRANS_B, A, B, -1, OUT, 1, 0, 0},
         "operands of a product do not fit"},
        {ELEM,
         ELEM,
         ELEM,
         ROWS2,
         0,
         {CALL_MM, TRANS_B, A, B, C, OUT, 1, 1, 0},
         "the matrix that is added to a product does not have its shape"},
        {ROWS2,
         ELEM,
         ELEM,
         ELEM,
         0,
         {CALL_MM, SYMMETRIC, A, B, -1, OUT, 1, 0, 0},
         "cannot be symmetric"},
        {ROWS2,
         ROWS2,
         ELEM,
         ROWS2,
         0,
         {CALL_MM, 0, A, B, -1, OUT, 1, 0, 2},
         "not symmetric has a diagonal"},
        {ROWS2, ELEM, ELEM, ELEM, 0, {CALL_MM, 0, A, B, -1, B, 1, 0, 0}, "over its own operand"},
        {BLOCK_ROWS2,
         ELEM,
         ELEM,
         ELEM,
         0,
         {CALL_MM, 0, A, B, -1, OUT, 1, 0, 0},
         "mixes blocks and whole matrices"},
        {ROWS2,
         ELEM,
         ELEM,
         ELEM,
         0,
         {CALL_MM, BLOCKED, A, B, -1, OUT, 1, 0, 0},
         "mixes blocks and whole matrices"},
        {BLOCK_ROWS2,
         ROW,
         ROW,
         BLOCK_ROW,
         0,
         {CALL_MM, BLOCKED, A, B, -1, OUT, 1, 0, 0},
         "mixes blocks and whole matrices"},
        {ROWS2,
         ELEM,
         ELEM,
         ELEM,
         0,
         {(Callee)NCALLEE, 0, A, B, -1, OUT, 1, 0, 0},
         "no such callee"},
        {ROWS2, ELEM, ELEM, ELEM, 0, {CALL_MM, 0, A, B, -1, -1, 1, 0, 0}, "lacks an operand"},
    };
    static const int64_t shape[][3] = {{1, 4, 3}};
    Hand h;
    hand_open(&h, NULL);
    h.program.block = 2;
    for (int i = 0; i < (int)(sizeof bad / sizeof *bad); i++) {
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

/* Sizes beyond a BLAS with 32-bit integers; a library that is no BLAS. */
START_TEST(sizes_and_libraries)
{
    Hand h;
    Blas x;
    int64_t shape[] = {1, 1, ((int64_t)1 << 31) + 8};
    optc_tensor t = {.name = "w",
                     .param = (void *)((uintptr_t)1 << 40),
                     .grad = (void *)((uintptr_t)1 << 41),
                     .rank = 3,
                     .shape = shape};
    optc_group g = {.tensors = &t, .ntensors = 1};
    use_blas(true);
    OK(blas_open(&x, "test"));
    hand_open(&h, NULL);
    hand_array(&h, OUT, MEM_STATE, ROWS2, T_F32, "out");
    h.array[A] = h.array[B] = h.array[C] = h.array[OUT];
    hand_call(&h, (ProgCall){CALL_MM, TRANS_B, 1, 1, -1, OUT, 1, 0, 0});
    h.rule->program = &h.program;
    if (x.gemm[0] && !x.wide) {
        FAILS(optc_bind(h.rule, &g, 1, &h.binding), OPTC_ERROR_ARGUMENT,
              "tensor 'w' (number 0) is too large for");
        ck_assert(strstr(optc_message(), "a product of 1 x 2147483656 and 2147483656 x 1"));
    }
    ck_assert(strstr(optc_rule_path(h.rule), "; products: ") &&
              strstr(optc_rule_path(h.rule), x.about));
    use_blas(false);
    OK(optc_bind(h.rule, &g, 1, &h.binding));
    ck_assert(!h.binding->blas->gemm[0] &&
              strstr(optc_rule_path(h.rule),
                     "products: our own, slower than a BLAS (OPTC_BLAS is none)"));
    hand_unbind(&h);
    setenv("OPTC_BLAS", "libm.so.6", 1);
    FAILS(optc_bind(h.rule, &g, 1, &h.binding), OPTC_ERROR_UNAVAILABLE,
          "OPTC_BLAS is 'libm.so.6', which has no cblas_sgemm");
    setenv("OPTC_BLAS", "./no-such.so", 1);
    FAILS(optc_bind(h.rule, &g, 1, &h.binding), OPTC_ERROR_UNAVAILABLE,
          "OPTC_BLAS is './no-such.so', which cannot be opened: ./no-such.so");
    h.binding = NULL;
    hand_close(&h);
}
END_TEST

/* An OpenBLAS with its own threads that the process has loaded: it does not change, and optc loads
 * a copy (under the sanitizer, which does not allow that, optc's own product). Other libraries are
 * used as they are. */
START_TEST(of_the_process)
{
    void *library = dlopen("libopenblas.so.0", RTLD_LAZY | RTLD_LOCAL);
    int (*threads)(void) = NULL, (*parallel)(void) = NULL;
    Blas x, again;
    float a[] = {1, 2, 3, 4}, b[] = {5, 6, 7, 8}, c[4] = {NAN, NAN, NAN, NAN};
    Gemm g = {
        .m = 2, .n = 2, .k = 2, .lda = 2, .ldb = 2, .ldc = 2, .alpha = 1, .a = a, .b = b, .c = c};
    if (library) {
        *(void **)&threads = dlsym(library, "openblas_get_num_threads");
        *(void **)&parallel = dlsym(library, "openblas_get_parallel");
    }
    int was = threads ? threads() : 0;
    OK(blas_open(&x, "test"));
    OK(blas_open(&again, "test"));
    ck_assert(x.gemm[0] == again.gemm[0] && x.syrk[1] == again.syrk[1]);
    if (library && strstr(x.about, "libopenblas")) {      /* by its name: the same again */
        setenv("OPTC_BLAS", "libopenblas.so.0", 1);
        OK(blas_open(&again, "test"));
        ck_assert_msg(x.gemm[0] == again.gemm[0], "%s, then %s", x.about, again.about);
    }
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

static void as_it_was(void) { unsetenv("OPTC_BLAS"); }

/* ---- a GPU's plan beside the CPU's ---- */
static const ProgArray *nth_state(const Program *p, int i)
{
    for (int k = 0; k < p->narray; k++)
        if (p->array[k].kind == MEM_STATE && i-- == 0)
            return &p->array[k];
    return NULL;
}

/* States do not depend on the precision of products: a checkpoint fits both, and a package has both
 * plans. */
START_TEST(one_layout)
{
    if (sanitized())
        return;
    int differ = 0;
    for (int i = 0; i < optc_library_size(); i++) {
        Gen g[2] = {{.plan = NULL}, {.plan = NULL}};
        const Program *p[2];
        Source src;
        if (strchr(optc_library_name(i), '/'))
            continue;
        for (int gpu = 0; gpu < 2; gpu++) {
            GenOptions o = {.types = {.p = T_F32, .g = T_F32, .state = T_F32}, .find = find_wrapper,
                            .target = gpu ? &target_cuda : &target_c};
            ck_assert(find_spec(NULL, optc_library_name(i), &g[gpu].arena, &src, &g[gpu].diag) &&
                      gen_compile(&g[gpu], src, &o));
            p[gpu] = program_make(&g[gpu].arena, g[gpu].plan, NULL);
        }
        differ += g[0].plan->product != g[1].plan->product && program_calls(p[0]);
        const ProgArray *a, *b;
        for (int k = 0; (a = nth_state(p[0], k)); k++) {
            ck_assert_msg((b = nth_state(p[1], k)) != NULL, "%s", optc_library_name(i));
            ck_assert_msg(!strcmp(a->name, b->name) && a->dom == b->dom && a->type == b->type &&
                    a->held_by == b->held_by && a->hyper == b->hyper && a->eye == b->eye, "%s: %s",
                    optc_library_name(i), a->name);
        }
        gen_free(&g[0]);
        gen_free(&g[1]);
    }
    ck_assert_msg(differ >= 4, "%d rules have products in fewer bits on a GPU", differ);
}
END_TEST

#ifndef SANITIZED
/* OpenBLAS retries forever to map its buffers if a limit leaves no address space, so it is not
 * loaded then. In its own process, since the limit stays. */
static int bound_within(int64_t more)
{
    optc_engine *e;
    optc_rule *r;
    optc_binding *b;
    float p[12] = {0}, g[12] = {1};
    optc_tensor t = {.param = p, .grad = g, .rank = 2, .shape = (int64_t[]){3, 4}};
    optc_group all = {.tensors = &t, .ntensors = 1};
    if (optc_open(&(optc_engine_options){.threads = 1}, &e))
        return 2;
    long long pages = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    struct rlimit limit;
    if (!f || fscanf(f, "%lld", &pages) != 1 || getrlimit(RLIMIT_AS, &limit))
        return 1;
    fclose(f);
    limit.rlim_cur = (rlim_t)(pages * sysconf(_SC_PAGESIZE) + more);
    if (setrlimit(RLIMIT_AS, &limit))
        return 3;
    /* a BLAS would be loaded here */
    if (optc_compile(e, &(optc_rule_options){.spec = "muon"}, &r) || *optc_message())
        return 6;
    if (optc_bind(r, &all, 1, &b) != OPTC_ERROR_MEMORY ||
        !strstr(optc_message(), "optc_bind: a BLAS maps buffers") ||
        !strstr(optc_message(), "OPTC_BLAS=none"))
        return 4;
    setenv("OPTC_BLAS", "none", 1);
    return optc_bind(r, &all, 1, &b) || optc_step(b) || p[0] >= 0 ? 5 : 0;
}

START_TEST(little_address_space)
{
    int status = 0;
    pid_t pid = fork();
    if (!pid)
        _exit(bound_within((int64_t)30 << 20));
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 0, "it ended with %x",
                  (unsigned)status);
}
END_TEST
#endif

Suite *calls_suite(void)
{
    Suite *s = suite_create("calls");
    TCase *t = tcase_create("calls");
    tcase_set_timeout(t, 60);
    tcase_add_checked_fixture(t, NULL, as_it_was);
    tcase_add_loop_test(t, all_domains, 0, 4);
    tcase_add_loop_test(t, all_sizes, 0, 4);
    tcase_add_loop_test(t, symmetric, 0, 4);
    tcase_add_test(t, refused);
    tcase_add_test(t, sizes_and_libraries);
    tcase_add_test(t, of_the_process);
#ifndef SANITIZED
    tcase_add_test(t, little_address_space);
#endif
    tcase_add_test(t, one_layout);
    suite_add_tcase(s, t);
    return s;
}
