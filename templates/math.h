/* math.h: functions that generated C and generated CUDA share, first part.
 *
 * gen/emit/prelude.c pastes the needed pieces into generated code, in the order math.h, math_f32.h,
 * math_f64.h, random.h. A program without f64 work may leave out math_f64.h and random.h. The
 * generated code defines OPTC_FN
 * before: in C `static inline __attribute__((always_inline, unused))` (with plain `static inline`
 * gcc does not inline the larger functions, and does not vectorise a loop around a call); in CUDA
 * `static __device__ __forceinline__`.
 *
 * C and CUDA must give the same bits, so everything here is + - * / sqrt, comparisons, selects and
 * integer work, each rounded once according to IEEE 754. That needs -ffp-contract=off in C, and
 * --fmad=false --ftz=false --prec-div=true in CUDA (NVRTC contracts by default; flushing to zero
 * would lose denormals on the device only). No fma: x86-64 without extensions has none. No tables,
 * no branches: selects let the compiler vectorise plain loops.
 *
 * NaN: functions that compute return the NaN 0x7fc00000 (0x7ff8000000000000) for a NaN result, for
 * any NaN operand, because processors differ in the payload of NaNs that they produce. Functions
 * that only select (min, max, sign, rint, floor, ceil) return the operand with its payload. */

//@ none
#if defined(__CUDACC__) || defined(__CUDACC_RTC__)

//@ cuda
OPTC_FN unsigned optc_bitsf(float x) { return (unsigned)__float_as_int(x); }

//@ cuda
OPTC_FN float optc_frombitsf(unsigned u) { return __int_as_float((int)u); }

//@ cuda
OPTC_FN unsigned long long optc_bits(double x)
{
    return (unsigned long long)__double_as_longlong(x);
}

//@ cuda
OPTC_FN double optc_frombits(unsigned long long u) { return __longlong_as_double((long long)u); }

//@ cuda
OPTC_FN float optc_sqrtf(float x) { return __fsqrt_rn(x); }

//@ cuda
OPTC_FN double optc_sqrt(double x) { return __dsqrt_rn(x); }

//@ none
#else

//@ c
OPTC_FN unsigned optc_bitsf(float x)
{
    union { float f; unsigned u; } v;
    v.f = x;
    return v.u;
}

//@ c
OPTC_FN float optc_frombitsf(unsigned u)
{
    union { float f; unsigned u; } v;
    v.u = u;
    return v.f;
}

//@ c
OPTC_FN unsigned long long optc_bits(double x)
{
    union { double f; unsigned long long u; } v;
    v.f = x;
    return v.u;
}

//@ c
OPTC_FN double optc_frombits(unsigned long long u)
{
    union { double f; unsigned long long u; } v;
    v.u = u;
    return v.f;
}

//@ c
OPTC_FN float optc_sqrtf(float x) { return __builtin_sqrtf(x); }
OPTC_FN double optc_sqrt(double x) { return __builtin_sqrt(x); }

//@ none
#endif

//@ lines
#define OPTC_INFF optc_frombitsf(0x7f800000u)
#define OPTC_NANF optc_frombitsf(0x7fc00000u)
#define OPTC_INF optc_frombits(0x7ff0000000000000ull)
#define OPTC_NAN optc_frombits(0x7ff8000000000000ull)

/* 1.5 * 2^23 and 1.5 * 2^52: adding one rounds a small number to an integer, half to even, and
   leaves that integer, in two's complement, in the low bits of the sum. It vectorises everywhere,
   unlike conversions to 64-bit integers. */
#define OPTC_MAGICF 12582912.0f
#define OPTC_MAGIC 6755399441055744.0

OPTC_FN float optc_absf(float x) { return optc_frombitsf(optc_bitsf(x) & 0x7fffffffu); }
OPTC_FN double optc_abs(double x) { return optc_frombits(optc_bits(x) & 0x7fffffffffffffffull); }

/* x with the sign bit of s; x must not be negative */
OPTC_FN float optc_withsignf(float x, float s)
{
    return optc_frombitsf(optc_bitsf(x) | (optc_bitsf(s) & 0x80000000u));
}

OPTC_FN double optc_withsign(double x, double s)
{
    return optc_frombits(optc_bits(x) | (optc_bits(s) & 0x8000000000000000ull));
}

/* If an operand is a NaN, the result is that NaN. Of two zeros the second is returned. */
OPTC_FN float optc_maxf(float a, float b) { const float r = a > b ? a : b; return a != a ? a : r; }
OPTC_FN double optc_max(double a, double b)
{
    const double r = a > b ? a : b;
    return a != a ? a : r;
}
OPTC_FN float optc_minf(float a, float b) { const float r = a < b ? a : b; return a != a ? a : r; }
OPTC_FN double optc_min(double a, double b)
{
    const double r = a < b ? a : b;
    return a != a ? a : r;
}

/* NaN and both zeros are returned unchanged. Masks take four instructions with gcc; two selects
 * take seven. */
OPTC_FN float optc_signf(float x)
{
    unsigned up = x > 0.0f ? 0xffffffffu : 0u, down = x < 0.0f ? 0xffffffffu : 0u;
    unsigned above = (optc_bitsf(x) & ~up) | (up & 0x3f800000u);
    return optc_frombitsf((above & ~down) | (down & 0xbf800000u));
}

OPTC_FN double optc_sign(double x)
{
    unsigned long long up = x > 0.0 ? 0xffffffffffffffffull : 0ull,
                       down = x < 0.0 ? 0xffffffffffffffffull : 0ull;
    unsigned long long above = (optc_bits(x) & ~up) | (up & 0x3ff0000000000000ull);
    return optc_frombits((above & ~down) | (down & 0xbff0000000000000ull));
}

/* Below 2^23 (2^52) adding that number rounds off the fraction, half to even; at and above it x is
   an integer already. The work is done on |x| so that the sign of a zero result can be put back. */
OPTC_FN float optc_rintf(float x)
{
    float a = optc_absf(x);
    float r = (a + 8388608.0f) - 8388608.0f;
    return a < 8388608.0f ? optc_withsignf(r, x) : x;
}

OPTC_FN double optc_rint(double x)
{
    double a = optc_abs(x);
    double r = (a + 4503599627370496.0) - 4503599627370496.0;
    return a < 4503599627370496.0 ? optc_withsign(r, x) : x;
}

OPTC_FN float optc_floorf(float x)
{
    float r = optc_rintf(x);
    return r > x ? r - 1.0f : r;
}

OPTC_FN double optc_floor(double x)
{
    double r = optc_rint(x);
    return r > x ? r - 1.0 : r;
}

/* ceil(-0.7) is -0, hence through floor of -x */
OPTC_FN float optc_ceilf(float x)
{
    return optc_frombitsf(optc_bitsf(optc_floorf(optc_frombitsf(optc_bitsf(x) ^ 0x80000000u))) ^
                          0x80000000u);
}

OPTC_FN double optc_ceil(double x)
{
    unsigned long long sign = 0x8000000000000000ull;
    return optc_frombits(optc_bits(optc_floor(optc_frombits(optc_bits(x) ^ sign))) ^ sign);
}

/* Returns x; any NaN becomes the NaN of this file. Masks, because gcc turns a select after the loop
   of powi into a branch, and then does not vectorise a loop around it. */
OPTC_FN float optc_plain_nanf(float x)
{
    unsigned nan = 0u - (unsigned)(x != x);
    return optc_frombitsf((optc_bitsf(x) & ~nan) | (0x7fc00000u & nan));
}

OPTC_FN double optc_plain_nan(double x)
{
    unsigned long long nan = 0ull - (unsigned long long)(x != x);
    return optc_frombits((optc_bits(x) & ~nan) | (0x7ff8000000000000ull & nan));
}

/* n is an integer, and |n| is clamped to 2^53. The loop takes the bits of |n| from the lowest up.
   The order of the products is part of the contract: host and device must agree. x^0 is 1 for every
   x. A negative n divides once at the end, so the result is 0 if the power overflows, where pow
   would still give a denormal.
   Error: below |n| ulps. */
OPTC_FN unsigned long long optc_powi_count(double n)
{
    double a = optc_abs(n);
    return (unsigned long long)(a <= 9007199254740992.0 ? a : 9007199254740992.0);
}

OPTC_FN float optc_powif(float x, double n)
{
    unsigned long long k = optc_powi_count(n);
    float r = 1.0f;
    for (; k; k >>= 1) {
        r = (k & 1) ? r * x : r;
        x = x * x;
    }
    return optc_plain_nanf(n < 0.0 ? 1.0f / r : r);
}

OPTC_FN double optc_powi(double x, double n)
{
    unsigned long long k = optc_powi_count(n);
    double r = 1.0;
    for (; k; k >>= 1) {
        r = (k & 1) ? r * x : r;
        x = x * x;
    }
    return optc_plain_nan(n < 0.0 ? 1.0 / r : r);
}
