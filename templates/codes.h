/* Block codes: OPTC_CODED values are stored as one byte each and share an f32 scale, the largest magnitude of the
 * block. A state is an array of codes, padded to whole blocks, and behind it the scales. Tensors of fewer than
 * OPTC_LEAST_CODED elements store f32 instead. runtime/TYPES.md describes the codes and their error bounds.
 *
 * `from` gives a value relative to the scale. `to` takes a value and 1 / scale. Decoding and encoding again gives the
 * same codes and the same scale. A block with a value that is not finite has the scale NaN and codes 0. */

/* The scale of a block whose largest magnitude has these bits. Below `least` every code of the block is 0. A scale is
 * never denormal: codes of such blocks would not survive decoding. */
OPTC_FN float optc_code_scale(unsigned most, unsigned least)
{
    unsigned s = most < least ? 0u : most < 0x00800000u ? 0x00800000u : most;
    return optc_frombitsf(most >= 0x7f800000u ? 0x7fc00000u : s);
}

OPTC_FN float optc_code_inverse(float scale) { return scale > 0.0f ? 1.0f / scale : 0.0f; }

OPTC_FN unsigned char optc_code_mask(float scale) { return scale == scale ? 255u : 0u; }

/* Small integers to and from f32 without a conversion instruction: those are slow on GPUs. */
OPTC_FN float optc_code_float(unsigned k) { return optc_frombitsf(0x4b000000u | k) - 8388608.0f; }

OPTC_FN unsigned optc_code_round(float x) { return optc_bitsf(x + 12582912.0f); }

/* q8: a sign and seven bits. The bits rise by 256, 128 and 63 per scale: three lines, of which the lowest counts. The
 * steps are half as wide below a quarter of the scale as they are above half of it, and close to those of softsign. */
#define optc_to_q8_least 0x00008000u

OPTC_FN float optc_from_q8(unsigned char code)
{
    float k = optc_code_float(code & 0x7fu), a = k * 0.00390625f, b = k * 0.0078125f - 0.25f;
    float c = (k - 64.0f) * 0.015873016f, t = a > b ? a : b;
    return optc_frombitsf(optc_bitsf(t > c ? t : c) | (code & 0x80u) << 24);
}

OPTC_FN unsigned char optc_to_q8(float x, float inverse)
{
    float y = optc_frombitsf(optc_bitsf(x) & 0x7fffffffu) * inverse;
    float a = y * 256.0f, b = y * 128.0f + 32.0f, c = y * 63.0f + 64.0f, k = a < b ? a : b;
    return (unsigned char)((optc_code_round(k < c ? k : c) & 0x7fu) | (optc_bitsf(x) >> 24 & 0x80u));
}

/* q8u: the square root in eight bits, for values that are never negative. A value that is not 0 never becomes code 0:
 * rules divide by roots of such states. The root takes its start from the bits and one Newton step (constants of
 * Kadlec, "Improving the fast inverse square root"); its error of 6.5e-4 is a sixth of a code at most. */
#define optc_to_q8u_least 0x00000001u

OPTC_FN float optc_from_q8u(unsigned char code)
{
    float k = optc_code_float(code);
    return k * k * 1.5378701e-5f;
}

OPTC_FN unsigned char optc_to_q8u(float x, float inverse)
{
    float y = x > 0.0f ? x * inverse : 0.0f, r = optc_frombitsf(0x5f1ffff9u - (optc_bitsf(y) >> 1));
    float root = y * (r * 0.703952253f * (2.38924456f - y * r * r)) * 255.0f;
    unsigned k = optc_code_round(root < 255.0f ? root : 255.0f) & 0xffu;
    return (unsigned char)(k + (unsigned)(k == 0u && x > 0.0f));
}

OPTC_FN float *optc_scales(const void *state, long long n)
{
    return (float *)((char *)(unsigned long long)state + (n + OPTC_CODED - 1) / OPTC_CODED * OPTC_CODED);
}
