/* Types for storage only. Conversions to f32 are exact; conversions from f32 round to nearest, ties
 * to even, and every NaN becomes the positive one with all bits set. GPU instructions with the same
 * results replace this code where they exist. */

OPTC_FN float optc_from_bf16(unsigned short x) { return optc_frombitsf((unsigned)x << 16); }

OPTC_FN unsigned short optc_to_bf16(float x)
{
#if defined __CUDA_ARCH__ && __CUDA_ARCH__ >= 800
    unsigned short r;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(r) : "f"(x));
    return r;
#else
    unsigned u = optc_bitsf(x);
    unsigned r = (u + 0x7fffu + (u >> 16 & 1u)) >> 16;
    return (unsigned short)(x != x ? 0x7fffu : r);
#endif
}

OPTC_FN float optc_from_f16(unsigned short x)
{
#ifdef __CUDA_ARCH__
    float r;
    asm("cvt.f32.f16 %0, %1;" : "=f"(r) : "h"(x));
    return r;
#else
    unsigned sign = (unsigned)(x & 0x8000u) << 16, mag = x & 0x7fffu;
    /* exponent rebiased by 112 */
    float normal = optc_frombitsf((mag << 13) + 0x38000000u);
    /* 2^-24: denormals of f16 */
    float tiny = (float)(int)mag * 5.9604644775390625e-8f;
    /* infinity, NaN */
    unsigned special = 0x7f800000u | (mag << 13);
    unsigned u = mag < 0x0400u ? optc_bitsf(tiny) : mag < 0x7c00u ? optc_bitsf(normal) : special;
    return optc_frombitsf(u | sign);
#endif
}

OPTC_FN unsigned short optc_to_f16(float x)
{
#ifdef __CUDA_ARCH__
    unsigned short r;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(r) : "f"(x));
    return r;
#else
    unsigned u = optc_bitsf(x), sign = u >> 16 & 0x8000u, mag = u & 0x7fffffffu;
    unsigned normal = (mag - 0x38000000u + 0xfffu + (mag >> 13 & 1u)) >> 13;
    /* Adding 0.5 leaves the last bits of a denormal where f16 keeps them, rounded by the addition
     * itself. */
    unsigned tiny = optc_bitsf(optc_frombitsf(mag < 0x38800000u ? mag : 0u) + 0.5f) - 0x3f000000u;
    unsigned r = mag < 0x38800000u ? tiny : mag < 0x477ff000u ? normal : 0x7c00u;
    return (unsigned short)(mag > 0x7f800000u ? 0x7fffu : (r | sign));
#endif
}

/* fp8, with the values of PyTorch's float8_e4m3fn and float8_e5m2. e4m3 has no infinity: what
 * exceeds 448 becomes 448, as in PyTorch 2.13 and in the GPU's instruction, and 0x7f is NaN. e5m2
 * overflows to infinity, for which GPUs have no instruction. All bit patterns of f32 were compared
 * with PyTorch 2.13: only the sign of a NaN, which PyTorch keeps, differs. */
OPTC_FN float optc_from_e4m3(unsigned char x)
{
#if defined __CUDA_ARCH__ && __CUDA_ARCH__ >= 900
    unsigned r;
    asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(r) : "h"((unsigned short)x));
    return optc_from_f16((unsigned short)r);
#else
    unsigned sign = (unsigned)(x & 0x80u) << 24, mag = x & 0x7fu;
    /* 2^-9: denormals */
    float tiny = (float)(int)mag * 0.001953125f;
    /* exponent rebiased by 120 */
    unsigned normal = (mag << 20) + 0x3c000000u;
    unsigned u = mag < 8u ? optc_bitsf(tiny) : mag < 0x7fu ? normal : 0x7fc00000u;
    return optc_frombitsf(u | sign);
#endif
}

OPTC_FN unsigned char optc_to_e4m3(float x)
{
#if defined __CUDA_ARCH__ && __CUDA_ARCH__ >= 900
    unsigned short r;
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(r) : "f"(0.0f), "f"(x));
    return (unsigned char)r;
#else
    unsigned u = optc_bitsf(x), sign = u >> 24 & 0x80u, mag = u & 0x7fffffffu;
    unsigned most = mag < 0x43e00000u ? mag : 0x43e00000u;                        /* 448 */
    unsigned normal = (most - 0x3c000000u + 0x7ffffu + (most >> 20 & 1u)) >> 20;
    /* Adding 2^14 rounds a denormal to its last bit, 2^-9. */
    unsigned tiny =
        optc_bitsf(optc_frombitsf(mag < 0x3c800000u ? mag : 0u) + 16384.0f) - 0x46800000u;
    unsigned r = mag < 0x3c800000u ? tiny : normal;
    return (unsigned char)(mag > 0x7f800000u ? 0x7fu : (r | sign));
#endif
}

OPTC_FN float optc_from_e5m2(unsigned char x) { return optc_from_f16((unsigned short)(x << 8)); }

OPTC_FN unsigned char optc_to_e5m2(float x)
{
    unsigned u = optc_bitsf(x), sign = u >> 24 & 0x80u, mag = u & 0x7fffffffu;
    unsigned normal = (mag - 0x38000000u + 0xfffffu + (mag >> 21 & 1u)) >> 21;
    /* Adding 2^7 rounds a denormal to its last bit, 2^-16. */
    unsigned tiny = optc_bitsf(optc_frombitsf(mag < 0x38800000u ? mag : 0u) + 128.0f) - 0x43000000u;
    unsigned r = mag < 0x38800000u ? tiny : mag < 0x47800000u ? normal : 0x7cu;
    return (unsigned char)(mag > 0x7f800000u ? 0x7fu : (r | sign));
}

/* The nearest whole number, ties to even; the ends of the range beyond it, and 0 for NaN. */
OPTC_FN float optc_whole(float x, float least, float most)
{
    float r = optc_rintf(x);
    r = r > most ? most : r;
    r = r < least ? least : r;
    return x != x ? 0.0f : r;
}

OPTC_FN float optc_from_i16(short x) { return (float)x; }

OPTC_FN short optc_to_i16(float x) { return (short)(int)optc_whole(x, -32768.0f, 32767.0f); }

OPTC_FN float optc_from_i8(signed char x) { return (float)x; }

OPTC_FN signed char optc_to_i8(float x) { return (signed char)(int)optc_whole(x, -128.0f, 127.0f); }

/* An f32 number as a bf16 number (high) and a whole number from -32768 to 32767 (low): its bits are
 * those of high plus low. high is the nearest bf16 number, ties away from zero, and infinite above
 * the largest one. Joining restores every bit of every number but NaN. A negative low beside a zero
 * cannot come from a split: the caller has set p to 0 since. It counts as 0, because the sum of the
 * bits would be a NaN. */
OPTC_FN float optc_join16f(float high, float low)
{
    unsigned u = optc_bitsf(high);
    int rest = (int)low;
    return optc_frombitsf(u + (unsigned)((u << 1) == 0u && rest < 0 ? 0 : rest));
}

OPTC_FN float optc_high16f(float x)
{
    return x != x ? x : optc_frombitsf((optc_bitsf(x) + 0x8000u) & 0xffff0000u);
}

OPTC_FN float optc_low16f(float x)
{
    return x != x ? 0.0f : (float)(short)(optc_bitsf(x) & 0xffffu);
}

/* Half the distance from a bf16 number to the next larger one in magnitude; for infinities that of
 * the largest. */
OPTC_FN float optc_half_stepf(float x)
{
    unsigned e = optc_bitsf(x) >> 23 & 0xffu;
    e = e < 1u ? 1u : e > 254u ? 254u : e;
    return optc_frombitsf(e << 23) * 0.00390625f;
}
