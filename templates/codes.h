/* Block codes: OPTC_CODED values are stored as one byte each and share an f32 scale, the largest
 * magnitude of the block divided by a power of two (top). A state is an array of codes, padded to
 * whole blocks, and behind it the scales. Tensors of fewer than OPTC_LEAST_CODED elements store f32
 * instead. runtime/TYPES.md gives the error bounds and the reasons.
 *
 * The code of x is read off the bits of the f32 number one + |x| / scale, with `one` a little above
 * 1: its exponent and its first mantissa bits. So steps grow with x above the scale and are equal
 * below. q8 and q8u keep five mantissa bits, f8 and f8u three; q8 and f8 have a sign. A dither that
 * depends on element and step is added before the other bits are cut: a slow average moves by less
 * than half a code per step, and with rounding to nearest it would stand still.
 *
 * Decoding and encoding again gives the same codes and the same scale at every dither. A block with
 * a value that is not finite has the scale NaN and codes 0. */

/* The scale of a block whose largest magnitude has the bits `most`: that magnitude times a power of
 * two, per_top. Below `least` every code of the block is 0. No magnitude below `floor` is used:
 * what is computed from it would be too close to denormals. For signed codes `least` is code 1 at
 * the smallest scale: such a block has a code that is not 0 at every dither, so its scale stays. */
OPTC_FN float optc_code_scale(unsigned most, float least, float floor, float per_top)
{
    unsigned s = most < optc_bitsf(least)   ? 0u
                 : most < optc_bitsf(floor) ? optc_bitsf(floor)
                                            : most;
    return optc_frombitsf(most >= 0x7f800000u ? 0x7fc00000u
                                              : optc_bitsf(optc_frombitsf(s) * per_top));
}

/* 1 / scale, rounded to nearest; 0 for a scale of 0 or NaN. Other scales and their inverses are
 * normal numbers, for which two steps after the approximation are enough: the compiler's own
 * division does the same behind a branch. */
OPTC_FN float optc_code_inverse(float scale)
{
#ifdef __CUDA_ARCH__
    float r;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(scale));
    r = fmaf(r, fmaf(-scale, r, 1.0f), r);
#else
    const float r = 1.0f / scale;
#endif
    return scale > 0.0f ? r : 0.0f;
}

OPTC_FN unsigned char optc_code_mask(float scale) { return scale == scale ? 255u : 0u; }

/* Twelve bits of dither for element i of a tensor: groups of eight elements and steps are
 * low-discrepancy sequences, and the eight elements of a group have one of each eighth. */
#define OPTC_DITHER 0xc13fa9a9u

OPTC_FN unsigned optc_dither_at(unsigned dither, long long i)
{
    return ((dither + (unsigned)(i >> 3) * OPTC_DITHER) & 0xfff00000u) ^ (unsigned)(i & 7) << 29;
}

OPTC_FN unsigned optc_dither(double t) { return (unsigned)(long long)t * 0x9e3779b9u; }

/* Without a step: to nearest. */
#define OPTC_NEAREST 0x80000000u

/* The dither in the middle of its cell: the margin of half a cell exceeds the roundings of z. */
OPTC_FN unsigned optc_code_draw(unsigned dither, int shift)
{
    return (dither >> (32 - shift)) + (1u << (shift - 13));
}

OPTC_FN float optc_code_from(unsigned k, int shift, float one)
{
    return optc_frombitsf(optc_bitsf(one) + (k << shift)) - one;
}

/* Seven or eight bits of the code of a size: a magnitude. */
OPTC_FN unsigned optc_code_to(float size, float inverse, unsigned draw, int shift, float one)
{
    return (optc_bitsf(size * inverse + one) - optc_bitsf(one) + draw) >> shift;
}

OPTC_FN unsigned optc_code_signed(float x, float inverse, unsigned dither, int shift, float one)
{
    const float size = optc_frombitsf(optc_bitsf(x) & 0x7fffffffu);
    return optc_code_to(size, inverse, optc_code_draw(dither, shift), shift, one);
}

/* A value that is not 0 never becomes code 0: rules divide by roots of such states. */
OPTC_FN unsigned optc_code_unsigned(float x, float inverse, unsigned dither, int shift, float one)
{
    const unsigned k =
        optc_code_to(x, inverse, (1u << shift) - optc_code_draw(dither, shift), shift, one);
    const unsigned u = optc_bitsf(x), some = u < 1u ? u : 1u;
    return k > some ? k : some;
}

/* top is a power of two, and `one` is such that the largest code decodes to it exactly. */
//@ lines
#define optc_to_q8_shift 18
#define optc_to_q8_signed 1
#define optc_to_q8_one 0x1.19999ap0f
#define optc_to_q8_per_top 0x1p-4f
#define optc_to_q8_floor 0x1p-100f
#define optc_to_q8_least 0x1p-109f
#define optc_to_q8u_shift 18
#define optc_to_q8u_signed 0
#define optc_to_q8u_one 0x1.09090ap0f
#define optc_to_q8u_per_top 0x1p-8f
#define optc_to_q8u_floor 0x1p-100f
#define optc_to_q8u_least 0x1p-149f
#define optc_to_f8_shift 20
#define optc_to_f8_signed 1
#define optc_to_f8_one 0x1.20012p0f
#define optc_to_f8_per_top 0x1p-16f
#define optc_to_f8_floor 0x1p-94f
#define optc_to_f8_least 0x1p-113f
#define optc_to_f8u_shift 20
#define optc_to_f8u_signed 0
#define optc_to_f8u_one 0x1.2p0f
#define optc_to_f8u_per_top 0x1p-32f
#define optc_to_f8u_floor 0x1p-94f
#define optc_to_f8u_least 0x1p-149f

OPTC_FN float optc_code_value(unsigned code, int shift, int is_signed, float one)
{
    float size = optc_code_from(is_signed ? code & 0x7fu : code, shift, one);
    return optc_frombitsf(optc_bitsf(size) ^ (is_signed ? (code & 0x80u) << 24 : 0u));
}

OPTC_FN unsigned char optc_code_of(float x, float inverse, unsigned dither, int shift,
                                   int is_signed, float one)
{
    unsigned sign = optc_bitsf(x) >> 24 & 0x80u;
    return (unsigned char)(is_signed ? optc_code_signed(x, inverse, dither, shift, one) | sign
                                     : optc_code_unsigned(x, inverse, dither, shift, one));
}

OPTC_FN float optc_from_q8(unsigned char code)
{
    return optc_code_value(code, optc_to_q8_shift, optc_to_q8_signed, optc_to_q8_one);
}

OPTC_FN float optc_from_q8u(unsigned char code)
{
    return optc_code_value(code, optc_to_q8u_shift, optc_to_q8u_signed, optc_to_q8u_one);
}

OPTC_FN float optc_from_f8(unsigned char code)
{
    return optc_code_value(code, optc_to_f8_shift, optc_to_f8_signed, optc_to_f8_one);
}

OPTC_FN float optc_from_f8u(unsigned char code)
{
    return optc_code_value(code, optc_to_f8u_shift, optc_to_f8u_signed, optc_to_f8u_one);
}

OPTC_FN unsigned char optc_to_q8(float x, float inverse, unsigned dither)
{
    return optc_code_of(x, inverse, dither, optc_to_q8_shift, optc_to_q8_signed, optc_to_q8_one);
}

OPTC_FN unsigned char optc_to_q8u(float x, float inverse, unsigned dither)
{
    return optc_code_of(x, inverse, dither, optc_to_q8u_shift, optc_to_q8u_signed, optc_to_q8u_one);
}

OPTC_FN unsigned char optc_to_f8(float x, float inverse, unsigned dither)
{
    return optc_code_of(x, inverse, dither, optc_to_f8_shift, optc_to_f8_signed, optc_to_f8_one);
}

OPTC_FN unsigned char optc_to_f8u(float x, float inverse, unsigned dither)
{
    return optc_code_of(x, inverse, dither, optc_to_f8u_shift, optc_to_f8u_signed, optc_to_f8u_one);
}

OPTC_FN float *optc_scales(const void *state, long long n)
{
    const unsigned long long codes =
        (unsigned long long)(n + OPTC_CODED - 1) / OPTC_CODED * OPTC_CODED;
    return (float *)((char *)(unsigned long long)state + codes);
}
