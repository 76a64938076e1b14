/* The functions of templates/math*.h and templates/random.h against libm in a wider type, in ulps,
 * on edge values and sweeps; the random generator against its published answers. Compiled with
 * -ffp-contract=off, like generated code. */
#include <check.h>
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OPTC_FN static inline __attribute__((unused))
#include "templates/math.h"
#include "templates/math_f32.h"
#include "templates/math_f64.h"
#include "templates/random.h"

Suite *math_suite(void);

/* The declared bounds in ulps, one row per function. lo..hi is the function's main range: it is
 * swept densely, and eight times as wide. Random bit patterns cover everything else. Beyond `limit`
 * the result is NaN by contract. */
typedef struct {
    const char *name;
    double ulp32, ulp64, lo, hi, limit32, limit64;
    float (*f32)(float);
    double (*ref32)(double);
    double (*f64)(double);
    long double (*ref64)(long double);
} Unary;

#define UNARY(n, u32, u64, lo, hi, l32, l64) \
    {#n, u32, u64, lo, hi, l32, l64, optc_##n##f, n, optc_##n, n##l}

static const Unary unary[] = {
    UNARY(exp, 1.0, 1.0, -110, 90, INFINITY, INFINITY),
    UNARY(expm1, 1.25, 1.25, -20, 20, INFINITY, INFINITY),
    UNARY(log, 1.0, 1.0, 0, 4, INFINITY, INFINITY),
    UNARY(log1p, 1.0, 1.0, -1, 4, INFINITY, INFINITY),
    UNARY(tanh, 1.5, 1.5, -3, 3, INFINITY, INFINITY),
    UNARY(erf, 1.75, 1.75, -4, 4, INFINITY, INFINITY),
    UNARY(sin, 1.0, 1.0, -1e5, 1e5, 0x1p18, 0x1p30),
    UNARY(cos, 1.0, 1.0, -1e5, 1e5, 0x1p18, 0x1p30),
    UNARY(cbrt, 0.75, 0.75, -10, 10, INFINITY, INFINITY),
    UNARY(rint, 0.0, 0.0, -10, 10, INFINITY, INFINITY),
    UNARY(floor, 0.0, 0.0, -10, 10, INFINITY, INFINITY),
    UNARY(ceil, 0.0, 0.0, -10, 10, INFINITY, INFINITY),
};

static const struct {
    double pow32, pow64, atan232, atan264, normal32, normal64;
} bound = { 1.5, 2.0, 2.0, 1.75, 4.0, 4.0 };

enum { SWEEP = 100000 };

static unsigned long long state;

static unsigned long long bits64(void)   /* splitmix64; independent of the code under test */
{
    unsigned long long z = (state += 0x9E3779B97F4A7C15ull);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
    return z ^ (z >> 31);
}

static double between(double lo, double hi)
{
    return lo + (hi - lo) * ((double)(bits64() >> 11) * 0x1p-53);
}

/* Any exponent, any sign */
static float any32(void) { return optc_frombitsf((unsigned)(bits64() >> 32)); }
static double any64(void) { return optc_frombits(bits64()); }

static const double edges[] = {
    0.0,
    -0.0,
    1.0,
    -1.0,
    0.5,
    -0.5,
    1.5,
    -1.5,
    2.0,
    -2.0,
    2.5,
    -2.5,
    3.0,
    -3.0,
    0.6,
    0.7071067811865476,
    1.4142135623730951,
    1.5707963267948966,
    3.141592653589793,
    10.0,
    20.0,
    -20.0,
    87.0,
    88.7228,
    88.7229,
    -87.3,
    -102.9,
    -103.9,
    -104.1,
    127.5,
    -149.0,
    -150.0,
    709.78,
    709.79,
    -708.4,
    -744.2,
    -745.1,
    -745.2,
    1024.0,
    -1074.0,
    8388607.5,
    -8388607.5,
    8388608.0,
    8388609.0,
    16777215.0,
    16777216.0,
    -16777215.0,
    -33554433.0,
    4503599627370495.5,
    4503599627370497.0,
    9007199254740991.0,
    -9007199254740991.0,
    9007199254740992.0,
    262144.0,
    1073741824.0,
    1e10,
    -1e10,
    1e-5,
    -1e-5,
    1e-10,
    -1e-10,
    1e-20,
    0x1p-24,
    0x1p-53,
    -0x1p-54,
    0x1p-126,
    -0x1p-126,
    0x1p-149,
    -0x1p-149,
    0x1.8p-140,
    0x1.fffffep127,
    -0x1.fffffep127,
    0x1p-1022,
    -0x1p-1022,
    0x1p-1074,
    -0x1p-1074,
    0x1p-1050,
    0x1.fffffffffffffp1023,
    -0x1.fffffffffffffp1023,
    0x1p64,
    -0x1p64,
    0x1p100,
    -0x1p100,
    0.99999994,
    0.9999999999999999,
    -0.99999994,
    1.0000001192092896,
    1.0000000000000002,
    INFINITY,
    -INFINITY,
    NAN,
    -NAN,
};
enum { EDGES = sizeof edges / sizeof edges[0] };

/* Distance in ulps of the narrow type at the reference. A wrong NaN, infinity or sign counts as
 * infinitely far. An infinite result counts as the first number beyond the range, so that rounding
 * at the very end is measured, not refused. */
static double ulps32(float got, double ref)
{
    int e = ref != 0 && !isinf(ref) && !isnan(ref) ? ilogb(ref) : -126;
    if (isnan(ref) || isnan(got))
        return isnan(ref) && optc_bitsf(got) == 0x7fc00000u ? 0 : INFINITY;
    if (!signbit(got) != !signbit(ref))
        return INFINITY;
    if (isinf(ref))
        return isinf(got) ? 0 : INFINITY;
    if (isinf(got) && isinf((float)ref))
        return 0;
    return fabs((isinf(got) ? copysign(0x1p128, got) : (double)got) - ref) *
           ldexp(1, 23 - (e < -126 ? -126 : e));
}

static double ulps64(double got, long double ref)
{
    int e = ref != 0 && !isinf(ref) && !isnan(ref) ? ilogbl(ref) : -1022;
    long double d;
    if (isnan(ref) || isnan(got))
        return isnan(ref) && optc_bits(got) == 0x7ff8000000000000ull ? 0 : INFINITY;
    if (!signbit(got) != !signbit(ref))
        return INFINITY;
    if (isinf(ref))
        return isinf(got) ? 0 : INFINITY;
    if (isinf(got) && isinf((double)ref))
        return 0;
    d = (isinf(got) ? copysignl(0x1p1024L, got) : (long double)got) - ref;
    return (double)ldexpl(fabsl(d), 52 - (e < -1022 ? -1022 : e));
}

/* Prints the worst error if OPTC_TEST_VERBOSE is set, for comparison with the table above. */
static void report(const char *name, const char *type, double worst)
{
    if (getenv("OPTC_TEST_VERBOSE"))
        printf("math: %-6s %s %.3f ulp\n", name, type, worst);
}

/* rint, floor and ceil return a NaN with its payload */
static int same_nan(double got, double ref) { return isnan(got) && isnan(ref); }

/* Calls Check only on failure: each of its assertions writes a message, and there are millions of
 * values. */
static double unary32(const Unary *u, float x, double worst)
{
    double ref = fabs((double)x) > u->limit32 ? NAN : u->ref32(x);
    float got = u->f32(x);
    double e = u->ulp32 == 0 && same_nan(got, ref) ? 0 : ulps32(got, ref);
    if (!(e <= u->ulp32))
        ck_abort_msg("optc_%sf(%a) = %a, not %a: %g ulp", u->name, x, got, ref, e);
    return e > worst ? e : worst;
}

static double unary64(const Unary *u, double x, double worst)
{
    long double ref = fabs(x) > u->limit64 ? NAN : u->ref64(x);
    double got = u->f64(x), e = u->ulp64 == 0 && same_nan(got, (double)ref) ? 0 : ulps64(got, ref);
    if (!(e <= u->ulp64))
        ck_abort_msg("optc_%s(%a) = %a, not %La: %g ulp", u->name, x, got, ref, e);
    return e > worst ? e : worst;
}

START_TEST(unary_f32)
{
    const Unary *u = &unary[_i];
    double worst = 0;
    state = 1;
    for (int i = 0; i < EDGES; i++)
        worst = unary32(u, (float)edges[i], worst);
    for (int i = 0; i < SWEEP; i++) {
        worst = unary32(u, any32(), worst);
        worst = unary32(u, (float)between(u->lo, u->hi), worst);
        worst = unary32(u, (float)between(8 * u->lo, 8 * u->hi), worst);
        worst = unary32(u, (float)between(-1.6, 1.6), worst);
        worst = unary32(u, (float)ldexp(between(-1, 1), -(int)(bits64() % 40)), worst);
    }
    report(u->name, "f32", worst);
}
END_TEST

START_TEST(unary_f64)
{
    const Unary *u = &unary[_i];
    double worst = 0;
    state = 2;
    for (int i = 0; i < EDGES; i++)
        worst = unary64(u, edges[i], worst);
    for (int i = 0; i < SWEEP; i++) {
        worst = unary64(u, any64(), worst);
        worst = unary64(u, between(u->lo, u->hi), worst);
        worst = unary64(u, between(8 * u->lo, 8 * u->hi), worst);
        worst = unary64(u, between(-1.6, 1.6), worst);
        worst = unary64(u, ldexp(between(-1, 1), -(int)(bits64() % 70)), worst);
    }
    report(u->name, "f64", worst);
}
END_TEST

/* Argument reduction is hardest for the numbers nearest to multiples of pi/2. */
START_TEST(trig_near_multiples)
{
    const long double half_pi = 1.57079632679489661923132169163975144L;
    const Unary *s = &unary[5], *c = &unary[6];
    state = 3;
    for (int i = 0; i < SWEEP; i++) {
        float x = (float)(half_pi * (long double)(bits64() % 166000));
        double y = (double)(half_pi * (long double)(bits64() % 683000000));
        unary32(s, x, 0);
        unary32(c, x, 0);
        unary64(s, y, 0);
        unary64(c, y, 0);
    }
    /* 2^18 is the last number in the contract; beyond it the result is NaN */
    unary32(s, 0x1p18f, 0);
    unary32(c, -0x1p18f, 0);
    unary32(s, nextafterf(0x1p18f, INFINITY), 0);
    unary64(s, 0x1p30, 0);
    unary64(c, nextafter(-0x1p30, -INFINITY), 0);
}
END_TEST

static double pow32(float x, float y, double worst)
{
    float got = optc_powf(x, y);
    double ref = pow(x, y), e = ulps32(got, ref);
    if (!(e <= bound.pow32))
        ck_abort_msg("optc_powf(%a, %a) = %a, not %a: %g ulp", x, y, got, ref, e);
    return e > worst ? e : worst;
}

static double pow64(double x, double y, double worst)
{
    double got = optc_pow(x, y), e;
    long double ref = powl(x, y);
    e = ulps64(got, ref);
    if (!(e <= bound.pow64))
        ck_abort_msg("optc_pow(%a, %a) = %a, not %La: %g ulp", x, y, got, ref, e);
    return e > worst ? e : worst;
}

/* A base near 1, and an exponent that brings the result anywhere in the range and a little
 * beyond. */
static double near_one(int digits)
{
    return 1 + ldexp(between(-0.5, 0.5), -(int)(bits64() % (unsigned)digits));
}
static double exponent_for(double x, double range)
{
    return between(-range, range) / log2(fabs(x));
}

START_TEST(pow_f32)
{
    double worst = 0;
    state = 4;
    for (int i = 0; i < EDGES; i++)
        for (int j = 0; j < EDGES; j++)
            worst = pow32((float)edges[i], (float)edges[j], worst);
    for (int i = 0; i < SWEEP; i++) {
        float x = any32(), y = (float)near_one(24);
        worst = pow32(x, any32(), worst);
        worst = pow32(fabsf(x), (float)exponent_for(x, 155), worst);
        worst = pow32(y, (float)exponent_for(y, 155), worst);
        worst = pow32(x, rintf((float)exponent_for(x, 155)), worst);
    }
    report("pow", "f32", worst);
}
END_TEST

START_TEST(pow_f64)
{
    double worst = 0;
    state = 5;
    for (int i = 0; i < EDGES; i++)
        for (int j = 0; j < EDGES; j++)
            worst = pow64(edges[i], edges[j], worst);
    for (int i = 0; i < SWEEP; i++) {
        double x = any64(), y = near_one(53);
        worst = pow64(x, any64(), worst);
        worst = pow64(fabs(x), exponent_for(x, 1080), worst);
        worst = pow64(y, exponent_for(y, 1080), worst);
        worst = pow64(x, rint(exponent_for(x, 1080)), worst);
    }
    report("pow", "f64", worst);
}
END_TEST

static double atan32(float y, float x, double worst)
{
    float got = optc_atan2f(y, x);
    double ref = atan2((double)y, (double)x), e = ulps32(got, ref);
    if (!(e <= bound.atan232))
        ck_abort_msg("optc_atan2f(%a, %a) = %a, not %a: %g ulp", y, x, got, ref, e);
    return e > worst ? e : worst;
}

static double atan64(double y, double x, double worst)
{
    double got = optc_atan2(y, x), e;
    long double ref = atan2l(y, x);
    e = ulps64(got, ref);
    if (!(e <= bound.atan264))
        ck_abort_msg("optc_atan2(%a, %a) = %a, not %La: %g ulp", y, x, got, ref, e);
    return e > worst ? e : worst;
}

START_TEST(atan2_both)
{
    double w32 = 0, w64 = 0;
    state = 6;
    for (int i = 0; i < EDGES; i++)
        for (int j = 0; j < EDGES; j++) {
            w32 = atan32((float)edges[i], (float)edges[j], w32);
            w64 = atan64(edges[i], edges[j], w64);
        }
    for (int i = 0; i < SWEEP; i++) {
        double y = between(-1, 1), x = between(-1, 1);
        w32 = atan32(any32(), any32(), w32);
        w32 = atan32((float)y, (float)x, w32);
        w64 = atan64(any64(), any64(), w64);
        w64 = atan64(y, x, w64);
        w64 = atan64(y * 0x1p1023, x * 0x1p1023, w64);
    }
    report("atan2", "f32", w32);
    report("atan2", "f64", w64);
}
END_TEST

/* Compares bits, not values: the order of the products is part of the contract. */
START_TEST(powi_order)
{
    state = 7;
    for (int i = 0; i < 1000; i++) {
        double x = between(-3, 3), x2 = x * x, x4 = x2 * x2;
        float f = (float)x, f2 = f * f, f4 = f2 * f2;
        ck_assert(optc_powi(x, 0) == 1 && optc_powi(x, 1) == x && optc_powi(x, 2) == x2);
        ck_assert(optc_powi(x, 3) == x * x2 && optc_powi(x, 5) == x * x4 &&
                  optc_powi(x, 7) == (x * x2) * x4);
        ck_assert(optc_powi(x, -3) == 1 / (x * x2));
        ck_assert(optc_powif(f, 0) == 1 && optc_powif(f, 1) == f && optc_powif(f, 2) == f2);
        ck_assert(optc_powif(f, 3) == f * f2 && optc_powif(f, 6) == f2 * f4 &&
                  optc_powif(f, -6) == 1 / (f2 * f4));
    }
    for (double n = 1; n <= 1000; n++) {
        ck_assert(ulps64(optc_powi(0.999, n), powl(0.999, n)) <= n);
        ck_assert(ulps32(optc_powif(0.999f, n), pow(0.999f, n)) <= n);
    }
}
END_TEST

START_TEST(powi_edges)
{
    double top = 9007199254740992.0;
    ck_assert(optc_powi(NAN, 0) == 1 && optc_powif(INFINITY, 0) == 1);
    ck_assert(optc_powi(1, top) == 1 && optc_powi(-1, top) == 1 && optc_powi(-1, top - 1) == -1);
    ck_assert(optc_powi(0.5, top) == 0 && optc_powi(2, top) == INFINITY && optc_powi(2, -top) == 0);
    ck_assert(optc_powi(-2, 1023) == -0x1p1023 && optc_powi(0.5, 1074) == 0x1p-1074);
    ck_assert(optc_powi(0, 3) == 0 && signbit(optc_powi(-0.0, 3)) &&
              optc_powi(-0.0, -3) == -INFINITY);
    ck_assert(ulps64(optc_powi(-NAN, 2), NAN) == 0 && ulps32(optc_powif(-NAN, -1), NAN) == 0);
    ck_assert(optc_powi(0, -1) == INFINITY && optc_powif(INFINITY, -2) == 0);
    ck_assert(optc_powif(2, 127) == 0x1p127f && optc_powif(-1, 9007199254740991.0) == -1);
    ck_assert(fabs(optc_powi(1 + 0x1p-30, 0x1p30) - exp(1)) < 1e-6);
}
END_TEST

/* max(a,b) = (a > b || a != a) ? a : b, spelled out. */
START_TEST(min_max_sign)
{
    for (int i = 0; i < EDGES; i++)
        for (int j = 0; j < EDGES; j++) {
            double a = edges[i], b = edges[j];
            float fa = (float)a, fb = (float)b;
            unsigned long long hi = optc_bits(isnan(a) || a > b ? a : b),
                               lo = optc_bits(isnan(a) || a < b ? a : b);
            unsigned fhi = optc_bitsf(isnan(fa) || fa > fb ? fa : fb),
                     flo = optc_bitsf(isnan(fa) || fa < fb ? fa : fb);
            ck_assert(optc_bits(optc_max(a, b)) == hi && optc_bits(optc_min(a, b)) == lo);
            ck_assert(optc_bitsf(optc_maxf(fa, fb)) == fhi && optc_bitsf(optc_minf(fa, fb)) == flo);
            ck_assert(isnan(optc_max(a, b)) == (isnan(a) || isnan(b)));
        }
    ck_assert(optc_sign(3e-310) == 1 && optc_sign(-INFINITY) == -1 && isnan(optc_sign(NAN)));
    ck_assert(optc_signf(3e-41f) == 1 && optc_signf(-INFINITY) == -1 && isnan(optc_signf(NAN)));
    ck_assert(optc_sign(0.0) == 0 && !signbit(optc_sign(0.0)) && signbit(optc_sign(-0.0)) &&
              signbit(optc_signf(-0.0f)));
}
END_TEST

/* kat_vectors of Random123: philox4x32, 10 rounds */
START_TEST(philox_known_answers)
{
    static const struct { unsigned c[4], k[2], out[4]; } kat[] = {
        { { 0, 0, 0, 0 }, { 0, 0 }, { 0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8 } },
        { { 0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff }, { 0xffffffff, 0xffffffff },
          { 0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd } },
        { { 0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344 }, { 0xa4093822, 0x299f31d0 },
          { 0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1 } },
    };
    for (unsigned i = 0; i < sizeof kat / sizeof kat[0]; i++) {
        optc_u4 x = { kat[i].c[0], kat[i].c[1], kat[i].c[2], kat[i].c[3] };
        x = optc_philox(x, kat[i].k[0], kat[i].k[1]);
        ck_assert(x.a == kat[i].out[0] && x.b == kat[i].out[1] && x.c == kat[i].out[2] &&
                  x.d == kat[i].out[3]);
    }
}
END_TEST

/* Seed and step are 64-bit integers stored as doubles. */
START_TEST(random_key)
{
    static const double v[] = {0,
                               1,
                               -1,
                               42,
                               -42,
                               2147483647,
                               2147483648,
                               4294967295,
                               4294967296,
                               -2147483648,
                               -2147483649,
                               6442450944,
                               -6442450944,
                               4503599627370497,
                               9007199254740991,
                               9007199254740992,
                               -9007199254740991,
                               -9007199254740992};
    optc_u4 x = { 7, 1, 5, 9 ^ (3u << 24) }, y;
    for (unsigned i = 0; i < sizeof v / sizeof v[0]; i++)
        ck_assert(optc_to_bits64(v[i]) == (unsigned long long)(long long)v[i]);
    x = optc_philox(x, 0xfffffffeu, 0xffffffffu);
    y = optc_random_bits(-2, 5, 9, 3, 7 + (1ll << 32));
    ck_assert(x.a == y.a && x.b == y.b && x.c == y.c && x.d == y.d);
}
END_TEST

static int compare_words(const void *p, const void *q) { return memcmp(p, q, sizeof(optc_u4)); }

START_TEST(random_no_collisions)
{
    static const double seeds[] = {0, 1, -1, 9007199254740992, 4294967296},
                        steps[] = {0, 1, 2, 4294967295};
    static const unsigned tensors[] = {0, 1, 2, 256, 65536, 0xffffff}, streams[] = {0, 1, 2, 255};
    static const long long indices[] = { 0, 1, 2, 0xffffffff, 0x100000000, 0x1000000000000 };
    enum { N = 5 * 4 * 6 * 4 * 6 };
    static optc_u4 w[N];
    int n = 0;
    for (int a = 0; a < 5; a++)
        for (int b = 0; b < 4; b++)
            for (int c = 0; c < 6; c++)
                for (int d = 0; d < 4; d++)
                    for (int e = 0; e < 6; e++)
                        w[n++] = optc_random_bits(seeds[a], steps[b], tensors[c], streams[d],
                                                  indices[e]);
    qsort(w, N, sizeof w[0], compare_words);
    for (int i = 1; i < N; i++)
        ck_assert(compare_words(&w[i - 1], &w[i]) != 0);
}
END_TEST

/* Moments within five standard errors; the test is deterministic, since the generator has no
 * state. */
START_TEST(uniform_moments)
{
    enum { N = 200000 };
    double m[2] = { 0, 0 }, v[2] = { 0, 0 };
    int good = 1;
    for (int i = 0; i < N; i++) {
        float f = optc_uniformf(1234, 7, 3, 1, i);
        double d = optc_uniform(1234, 7, 3, 1, i);
        good = good && f >= 0 && f < 1 && f * 0x1p24f == floorf(f * 0x1p24f);
        good = good && d >= 0 && d < 1 && fabs(d - (double)f) < 0x1p-23;
        m[0] += f - 0.5, v[0] += (f - 0.5) * (f - 0.5);
        m[1] += d - 0.5, v[1] += (d - 0.5) * (d - 0.5);
    }
    ck_assert(good);
    for (int i = 0; i < 2; i++) {
        ck_assert(fabs(m[i] / N) < 5 * sqrt(1 / 12.0 / N));
        ck_assert(fabs(v[i] / N - 1 / 12.0) < 5 * sqrt(1 / 180.0 / N));
    }
}
END_TEST

START_TEST(normal_moments)
{
    enum { N = 200000 };
    double m[2] = { 0, 0 }, v[2] = { 0, 0 }, k[2] = { 0, 0 }, in[2] = { 0, 0 };
    int good = 1;
    for (int i = 0; i < N; i++) {
        double x[2] = { optc_normalf(-5, 11, 2, 4, i), optc_normal(-5, 11, 2, 4, i) };
        for (int j = 0; j < 2; j++) {
            good = good && isfinite(x[j]);
            m[j] += x[j], v[j] += x[j] * x[j], k[j] += pow(x[j], 4), in[j] += fabs(x[j]) < 1;
        }
    }
    ck_assert(good);
    for (int j = 0; j < 2; j++) {
        ck_assert(fabs(m[j] / N) < 5 / sqrt(N));
        ck_assert(fabs(v[j] / N - 1) < 5 * sqrt(2.0 / N));
        ck_assert(fabs(k[j] / N - 3) < 5 * sqrt(96.0 / N));
        ck_assert(fabs(in[j] / N - 0.682689492) < 5 * sqrt(0.2166 / N));
    }
}
END_TEST

/* cos(2 pi u) with u reduced to near 0 first, where a long double is accurate */
static long double cos_turns(double u)
{
    double q = rint(u * 4), f = u - q / 4;
    long double r = 6.28318530717958647692528676655900577L * (long double)f;
    int n = (int)q & 3;
    return n == 0 ? cosl(r) : n == 1 ? -sinl(r) : n == 2 ? -cosl(r) : sinl(r);
}

/* Box-Muller from chosen words: the extremes, which random tests would not reach, and the formula
 * in ulps */
START_TEST(normal_formula)
{
    static const unsigned ends[] = {0,          1,          255,        0x3fffffff, 0x40000000,
                                    0x7fffffff, 0x80000000, 0xbfffffff, 0xc0000000, 0xffffffff};
    double w32 = 0, w64 = 0;
    state = 8;
    for (int i = 0; i < 10000 + SWEEP; i++) {
        optc_u4 w = { ends[i % 10], ends[i / 10 % 10], ends[i / 100 % 10], ends[i / 1000 % 10] };
        if (i >= 10000) {
            unsigned long long r = bits64(), s = bits64();
            w.a = (unsigned)r, w.b = (unsigned)(r >> 32), w.c = (unsigned)s,
            w.d = (unsigned)(s >> 32);
        }
        double a = w.a + 0.5, d = floor(w.a / 32.0) * 0x1p26 + floor(w.b / 64.0) + 0.5;
        double v = floor(w.b / 256.0) * 0x1p-24,
               z = (floor(w.c / 32.0) * 0x1p26 + floor(w.d / 64.0)) * 0x1p-53;
        float f = optc_box_mullerf(w);
        double g = optc_box_muller(w), e;
        if (!(fabsf(f) < 6.8f && fabs(g) < 8.7))
            ck_abort_msg("normal out of range: %a, %a", f, g);
        e = ulps32(f, (double)(sqrtl(-2 * logl((float)(a * 0x1p-32))) * cos_turns(v)));
        w32 = f != 0 && e > w32 ? e : w32;
        e = ulps64(g, sqrtl(-2 * logl(d * 0x1p-53)) * cos_turns(z));
        w64 = g != 0 && e > w64 ? e : w64;
    }
    report("normal", "f32", w32);
    report("normal", "f64", w64);
    ck_assert_msg(w32 <= bound.normal32 && w64 <= bound.normal64, "normal: %g and %g ulp", w32,
                  w64);
}
END_TEST

Suite *math_suite(void)
{
    Suite *s = suite_create("math");
    TCase *f = tcase_create("functions"), *r = tcase_create("random");
    int rows = sizeof unary / sizeof unary[0];
    tcase_set_timeout(f, 60);
    tcase_set_timeout(r, 60);
    tcase_add_loop_test(f, unary_f32, 0, rows);
    tcase_add_loop_test(f, unary_f64, 0, rows);
    tcase_add_test(f, trig_near_multiples);
    tcase_add_test(f, pow_f32);
    tcase_add_test(f, pow_f64);
    tcase_add_test(f, atan2_both);
    tcase_add_test(f, powi_order);
    tcase_add_test(f, powi_edges);
    tcase_add_test(f, min_max_sign);
    tcase_add_test(r, philox_known_answers);
    tcase_add_test(r, random_key);
    tcase_add_test(r, random_no_collisions);
    tcase_add_test(r, uniform_moments);
    tcase_add_test(r, normal_moments);
    tcase_add_test(r, normal_formula);
    suite_add_tcase(s, f);
    suite_add_tcase(s, r);
    return s;
}
