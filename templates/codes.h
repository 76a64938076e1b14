/* Block codes: OPTC_CODED values are stored as one byte each and share an f32 scale, the largest magnitude of the
 * block. A state is an array of codes, padded to whole blocks, and behind it the scales. Tensors of fewer than
 * OPTC_LEAST_CODED elements store f32 instead. runtime/TYPES.md gives the error bounds and the reasons.
 *
 * The code of x is read off the bits of the f32 number 1 + top * |x| / scale: its exponent and the first mantissa bits.
 * So steps grow with x above scale / top and are equal below. q8 and q8u keep five mantissa bits, f8 and f8u three;
 * q8 and f8 have a sign. A dither that depends on element and step is added before the other bits are cut: a slow
 * average moves by less than half a code per step, and with rounding to nearest it would stand still.
 *
 * Decoding and encoding again gives the same codes and the same scale at every dither. A block with a value that is
 * not finite has the scale NaN and codes 0. */

/* The scale of a block whose largest magnitude has the bits `most`. Below `least` every code of the block is 0. No
 * scale is below `floor`: everything computed from it would be too close to denormals. For signed codes `least` is
 * code 1 at the scale `floor`: such a block has a code that is not 0 at every dither, so its scale stays. */
OPTC_FN float optc_code_scale(unsigned most, float least, float floor)
{
    unsigned s = most < optc_bitsf(least) ? 0u : most < optc_bitsf(floor) ? optc_bitsf(floor) : most;
    return optc_frombitsf(most >= 0x7f800000u ? 0x7fc00000u : s);
}

OPTC_FN float optc_code_inverse(float scale, float top) { return scale > 0.0f ? top / scale : 0.0f; }

OPTC_FN unsigned char optc_code_mask(float scale) { return scale == scale ? 255u : 0u; }

/* The dither of element i is that of element 0 of the tensor plus i * OPTC_DITHER, modulo 2^32: a low-discrepancy
 * sequence along both elements and steps. */
#define OPTC_DITHER 0xc13fa9a9u

OPTC_FN unsigned optc_dither(double t) { return (unsigned)(long long)t * 0x9e3779b9u; }

/* Without a step: to nearest. */
#define OPTC_NEAREST 0x80000000u

OPTC_FN float optc_code_from(unsigned k, int shift, float per_top)
{
    return (optc_frombitsf(0x3f800000u + (k << shift)) - 1.0f) * per_top;
}

/* Twelve bits of the dither, in the middle of their cells: the margin of half a cell exceeds the roundings of z. */
OPTC_FN unsigned optc_code_to(unsigned size, float inverse, unsigned dither, int shift)
{
    float z = optc_frombitsf(size) * inverse + 1.0f;
    return (optc_bitsf(z) - 0x3f800000u + ((dither >> 20 << (shift - 12)) | 1u << (shift - 13))) >> shift;
}

OPTC_FN float optc_code_signed_from(unsigned char code, int shift, float per_top)
{
    return optc_frombitsf(optc_bitsf(optc_code_from(code & 0x7fu, shift, per_top)) | (code & 0x80u) << 24);
}

OPTC_FN unsigned char optc_code_signed_to(float x, float inverse, unsigned dither, int shift)
{
    unsigned u = optc_bitsf(x);
    return (unsigned char)(optc_code_to(u & 0x7fffffffu, inverse, dither, shift) | (u >> 24 & 0x80u));
}

/* A value that is not 0 never becomes code 0: rules divide by roots of such states. */
OPTC_FN unsigned char optc_code_unsigned_to(float x, float inverse, unsigned dither, int shift)
{
    unsigned u = optc_bitsf(x) & 0x7fffffffu, k = optc_code_to(u, inverse, ~dither, shift), some = u < 1u ? u : 1u;
    return (unsigned char)(k > some ? k : some);
}

//@ lines
#define optc_to_q8_top 14.75f
#define optc_to_q8_floor 0x1p-100f
#define optc_to_q8_least 0x1.15b1e6p-109f
#define optc_to_q8u_top 251.0f
#define optc_to_q8u_floor 0x1p-100f
#define optc_to_q8u_least 0x1p-149f
#define optc_to_f8_top 61439.0f
#define optc_to_f8_floor 0x1p-94f
#define optc_to_f8_least 0x1.111234p-113f
#define optc_to_f8u_top 4026531840.0f
#define optc_to_f8u_floor 0x1p-94f
#define optc_to_f8u_least 0x1p-149f

OPTC_FN float optc_from_q8(unsigned char code) { return optc_code_signed_from(code, 18, 0x1.15b1e6p-4f); }

OPTC_FN float optc_from_q8u(unsigned char code) { return optc_code_from(code, 18, 0x1.05198p-8f); }

OPTC_FN float optc_from_f8(unsigned char code) { return optc_code_signed_from(code, 20, 0x1.111234p-16f); }

OPTC_FN float optc_from_f8u(unsigned char code) { return optc_code_from(code, 20, 0x1.111112p-32f); }

OPTC_FN unsigned char optc_to_q8(float x, float inverse, unsigned dither)
{
    return optc_code_signed_to(x, inverse, dither, 18);
}

OPTC_FN unsigned char optc_to_q8u(float x, float inverse, unsigned dither)
{
    return optc_code_unsigned_to(x, inverse, dither, 18);
}

OPTC_FN unsigned char optc_to_f8(float x, float inverse, unsigned dither)
{
    return optc_code_signed_to(x, inverse, dither, 20);
}

OPTC_FN unsigned char optc_to_f8u(float x, float inverse, unsigned dither)
{
    return optc_code_unsigned_to(x, inverse, dither, 20);
}

OPTC_FN float *optc_scales(const void *state, long long n)
{
    return (float *)((char *)(unsigned long long)state + (n + OPTC_CODED - 1) / OPTC_CODED * OPTC_CODED);
}
