/* Stochastic rounding: a store adds 16 random bits below the bits that the type keeps and cuts
 * there, so that the mean of many roundings is the value. A number that the type has never changes.
 * Finite numbers do not become infinite: the largest finite number is the limit. Pasted after
 * random.h.
 *
 * The bits depend only on seed, step, tensor, array and element: they are the same for every launch
 * configuration and every way to cut a tensor into pieces. Philox4x32 with 7 rounds, the fewest
 * that pass the tests of its paper (random.h), gives 16 bits to each of 8 elements. */

/* What the random bits of one stored array have in common at one step. */
typedef struct { unsigned k0, k1, t, tensor, array; } optc_draws;

OPTC_FN optc_draws optc_draws_of(double seed, double t, long long tensor, int array)
{
    unsigned long long key = optc_to_bits64(seed);
    optc_draws d;
    d.k0 = (unsigned)key;
    d.k1 = (unsigned)(key >> 32);
    d.t = (unsigned)optc_to_bits64(t);
    d.tensor = (unsigned)tensor;
    d.array = (unsigned)array;
    return d;
}

/* Elements 8 * nth to 8 * nth + 7 of the whole tensor. Distinct (t mod 2^32, tensor < 2^32, array <
 * 2^15, element < 2^51) have distinct counters. random() and normal() have none of them: the top
 * bit of their second word is 0. */
OPTC_FN optc_u4 optc_draw8(optc_draws d, long long nth)
{
    optc_u4 x;
    x.a = (unsigned)nth;
    x.b = (unsigned)(nth >> 32) | d.array << 16 | 0x80000000u;
    x.c = d.t;
    x.d = d.tensor;
    return optc_philox7(x, d.k0, d.k1);
}

/* bits: 16 random ones. Bits of denormals of bf16 lie as in f32. */
OPTC_FN unsigned short optc_to_bf16sr(float x, unsigned bits)
{
    unsigned u = optc_bitsf(x), mag = u & 0x7fffffffu, r = (mag + bits) >> 16;
    r = mag < 0x7f800000u && r > 0x7f7fu ? 0x7f7fu : r;
    return (unsigned short)(mag > 0x7f800000u ? 0x7fffu : (r | (u >> 16 & 0x8000u)));
}

/* f16 keeps 13 bits less than f32 and takes the first 13 random bits. Denormals are multiples of
 * 2^-24, rounded in steps of 2^-40: what is below is cut. */
OPTC_FN unsigned short optc_to_f16sr(float x, unsigned bits)
{
    unsigned u = optc_bitsf(x), mag = u & 0x7fffffffu;
    unsigned normal = (mag - 0x38000000u + (bits >> 3)) >> 13;
    unsigned tiny =
        ((unsigned)(int)(optc_frombitsf(mag < 0x38800000u ? mag : 0u) * 1099511627776.0f) + bits) >>
        16;
    unsigned r = mag < 0x38800000u ? tiny : normal < 0x7bffu ? normal : 0x7bffu;
    r = mag < 0x7f800000u ? r : 0x7c00u;
    return (unsigned short)(mag > 0x7f800000u ? 0x7fffu : (r | (u >> 16 & 0x8000u)));
}
