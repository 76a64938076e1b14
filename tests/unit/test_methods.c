/* The choice of methods on a GPU (gen/abi/methods.def) against the same rules written as
 * conditions, for every combination of what they depend on. */
#include "gen/abi/methods.h"
#include "tests/harness/help.h"
#include "runtime/core/matrix/gpu_calls.h"
#include "tests/harness/suites.h"

#include <string.h>

static const int64_t sides[] = {1, 4, 5, 64, 65, 96, 97, 128, 129, 256, 257, 2048, 46340, 46341};
enum { NSIDE = sizeof sides / sizeof *sides };

typedef struct Case {
    bool library, f64, fast, spectral; int64_t n; EigenMethod fixed, tuned; int p; double low;
} Case;

static EigenMethod tuned_way;
static EigenMethod give_way(const optc_engine *e, bool roots, bool f64, int power, int bucket)
{
    return (void)e, (void)roots, (void)f64, (void)power, (void)bucket, tuned_way;
}

/* ---- the reference ---- */
static EigenMethod possible(EigenMethod way, const Case *x)
{
    bool library = x->library && x->n <= 256;
    if ((way == EIGEN_F32 || way == EIGEN_F64) && !library)
        way = x->n > 96 ? EIGEN_DIVIDED : EIGEN_ROTATED;
    return way == EIGEN_DIVIDED && x->n > 46340 ? EIGEN_ROTATED : way;
}

static bool rough(EigenMethod way, bool exact)
{
    return way == EIGEN_F32 || (way == EIGEN_DIVIDED && !exact);
}

static EigenMethod vectors_way(const Case *x)
{
    bool exact = x->f64 || x->spectral, measured = x->n >= 8 && x->n <= 4096;
    EigenMethod model = exact || x->fast ? EIGEN_F64 : EIGEN_F32;
    model = possible(x->n <= 4 ? EIGEN_ROTATED : model, x);
    if (x->fixed)
        return possible(x->fixed, x);
    bool use = measured && x->tuned && (!rough(x->tuned, exact) || rough(model, exact));
    return use ? possible(x->tuned, x) : model;
}

static EigenMethod root_way(const Case *x)
{
    bool f32 = !x->f64 && x->low >= 1.0 / 64 && x->n <= (x->p == 1 ? 64 : 128);
    if (x->f64)
        return EIGEN_F64;
    if (x->fixed == EIGEN_F32 || x->fixed == EIGEN_F64)
        return x->fixed;
    bool measured = x->n >= 8 && !x->fixed;
    if (!f32 || (measured && x->tuned == EIGEN_F64))
        return EIGEN_F64;
    return !x->fast || (measured && x->tuned == EIGEN_F32) ? EIGEN_F32 : EIGEN_F64;
}

/* ---- the table ---- */
static EigenMethod chosen(const Case *x, Callee callee, double exponent, unsigned *use)
{
    GpuEngine g = {.f64_fast = x->fast, .eigen = x->fixed, .measured = give_way};
    optc_engine e = {.gpu = &g};
    optc_rule r = {.engine = &e};
    ProgArray array[2] = {{.type = x->f64 ? T_F64 : T_F32}};
    ProgCall call = {callee, x->f64 ? EXACT : 0, 0, -1, -1, 1, exponent, x->low, 0};
    ProgStage stage = {.kind = S_CALL, .call = &call};
    Program p = {.array = array, .narray = 2, .stage = &stage, .nstage = 1};
    optc_binding b = {.rule = &r, .program = &p};
    tuned_way = x->tuned;
    MethodAt f = method_facts(&b, &stage, x->n);
    f.library = x->library;
    *use = method_choose(&f)->use;
    return method_choose(&f)->way;
}

static void check_case(const Case *x)
{
    unsigned use;
    EigenMethod want = x->p ? root_way(x) : vectors_way(x),
                way = chosen(x, x->p || x->spectral ? CALL_POWER : CALL_EIGH,
                             x->p ? -1.0 / x->p : 0.5, &use);
    ck_assert_msg(way == want && use == (x->p ? FOR_ROOT : FOR_EIGEN),
                  "%d rows, p %d, spectral %d, library %d, f64 %d, fast %d, fixed %d, tuned %d, "
                  "low %g: %d instead of %d",
                  (int)x->n, x->p, x->spectral, x->library, x->f64, x->fast, x->fixed, x->tuned,
                  x->low, way, want);
}

START_TEST(choices)
{
    Case x = {.low = 1.0 / 33};
    for (int i = 0; i < NSIDE << 4; i++)
        for (int k = 0; k < 25 * 4; k++) {
            x.n = sides[i >> 4];
            x.library = i & 1, x.f64 = i & 2, x.fast = i & 4, x.spectral = i & 8;
            x.fixed = (EigenMethod)(k % 5), x.tuned = (EigenMethod)(k / 5 % 5);
            x.p = x.spectral ? 0 : (int[]){0, 1, 2, 4}[k / 25];
            x.low = k / 25 == 3 && i & 1 ? 1e-4 : 1.0 / 33;
            /* functions of eigenvalues are not computed in f32 */
            if (!x.spectral || (x.fixed != EIGEN_F32 && x.tuned != EIGEN_F32))
                check_case(&x);
        }
}
END_TEST

/* Powers in f32 are refused where a function of eigenvalues needs f64. */
START_TEST(spectral_in_f64)
{
    unsigned use;
    for (int i = 0; i < NSIDE; i++)
        for (int way = 0; way < 2; way++) {
            Case x = {.library = true, .spectral = true, .n = sides[i],
                      .fixed = way ? EIGEN_F32 : EIGEN_BY_SIZE, .tuned = EIGEN_F32, .low = 1e-10};
            EigenMethod got = chosen(&x, CALL_POWER, 0.5, &use);
            ck_assert(use == FOR_EIGEN && got != EIGEN_F32);
        }
}
END_TEST

/* Which kernels a power needs: one family of methods serves each exponent, floor and precision. */
START_TEST(kernels_of_powers)
{
    static const struct { double exponent, low; unsigned flags, want; } c[] = {
        {-0.25, 1e-10, 0, FOR_ROOT},
        {-0.25, 1e-10, EXACT, FOR_ROOT},
        {-0.25, 1e-10, FLOORED, FOR_EIGEN},
        {-0.25, 1e-15, 0, FOR_EIGEN},
        {0.5, 1e-10, 0, FOR_EIGEN},
        {-1, 1e-10, 0, FOR_ROOT},
        {-1, 1e-10, EXACT, FOR_PANEL | FOR_QR},
        {-1, 1e-5, EXACT, FOR_ROOT},
        {-1, 1e-10, EXACT | FLOORED, FOR_EIGEN},
        {-1.0 / 17, 1e-10, 0, FOR_EIGEN}};
    for (size_t i = 0; i < sizeof c / sizeof *c; i++) {
        unsigned got = callee_kernels(CALL_POWER, c[i].exponent, c[i].low, c[i].flags);
        ck_assert_msg(got == c[i].want, "%d: sets %u instead of %u", (int)i, got, c[i].want);
    }
    ck_assert(callee_kernels(CALL_EIGH, 1, 0, 0) == FOR_EIGEN);
    ck_assert(callee_kernels(CALL_CHOL, 1, 0, 0) == FOR_PANEL);
    ck_assert(callee_kernels(CALL_QR, 1, 0, 0) == (FOR_PANEL | FOR_QR));
    ck_assert(callee_kernels(CALL_SOLVE, 1, 0, 0) == FOR_PANEL);
    ck_assert(callee_kernels(CALL_SORT, 1, 0, 0) == FOR_SORT);
    ck_assert(callee_kernels(CALL_TAKE, 1, 0, 0) == FOR_TAKE);
    ck_assert(callee_kernels(CALL_MM, -1, 0, 0) == FOR_PRODUCTS);
}
END_TEST

Suite *methods_suite(void)
{
    Suite *s = suite_create("methods");
    TCase *t = tcase_create("methods");
    tcase_add_test(t, choices);
    tcase_add_test(t, spectral_in_f64);
    tcase_add_test(t, kernels_of_powers);
    suite_add_tcase(s, t);
    return s;
}
