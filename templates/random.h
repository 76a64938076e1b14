/* random.h: random numbers that depend only on seed, step, tensor, stream and element, so that
 * results are the same for every launch configuration. Pasted after math.h, math_f32.h and
 * math_f64.h.
 *
 * Philox4x32-10 (Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3",
 * SC11): the constants are that paper's, the known answers in the tests are those of its library
 * Random123. */

typedef struct { unsigned a, b, c, d; } optc_u4;

OPTC_FN unsigned long long optc_product64(unsigned a, unsigned b)
{
#ifdef __CUDA_ARCH__
    /* the compiler adds products with the upper halves, which are 0 */
    unsigned long long p;
    asm("mul.wide.u32 %0, %1, %2;" : "=l"(p) : "r"(a), "r"(b));
    return p;
#else
    return (unsigned long long)a * b;
#endif
}

OPTC_FN optc_u4 optc_philox_round(optc_u4 x, unsigned k0, unsigned k1)
{
    unsigned long long p = optc_product64(x.a, 0xD2511F53u), q = optc_product64(x.c, 0xCD9E8D57u);
    optc_u4 r;
    r.a = (unsigned)(q >> 32) ^ x.b ^ k0;
    r.b = (unsigned)q;
    r.c = (unsigned)(p >> 32) ^ x.d ^ k1;
    r.d = (unsigned)p;
    return r;
}

/* Ten rounds, written out: a loop would keep the caller's loop from being vectorised. */
#define OPTC_PHILOX_STEP(i) x = optc_philox_round(x, k0 + (i) * 0x9E3779B9u, k1 + (i) * 0xBB67AE85u)

OPTC_FN optc_u4 optc_philox(optc_u4 x, unsigned k0, unsigned k1)
{
    OPTC_PHILOX_STEP(0u);
    OPTC_PHILOX_STEP(1u);
    OPTC_PHILOX_STEP(2u);
    OPTC_PHILOX_STEP(3u);
    OPTC_PHILOX_STEP(4u);
    OPTC_PHILOX_STEP(5u);
    OPTC_PHILOX_STEP(6u);
    OPTC_PHILOX_STEP(7u);
    OPTC_PHILOX_STEP(8u);
    OPTC_PHILOX_STEP(9u);
    return x;
}

OPTC_FN optc_u4 optc_philox7(optc_u4 x, unsigned k0, unsigned k1)      /* for rounding.h */
{
    OPTC_PHILOX_STEP(0u);
    OPTC_PHILOX_STEP(1u);
    OPTC_PHILOX_STEP(2u);
    OPTC_PHILOX_STEP(3u);
    OPTC_PHILOX_STEP(4u);
    OPTC_PHILOX_STEP(5u);
    OPTC_PHILOX_STEP(6u);
    return x;
}

#undef OPTC_PHILOX_STEP

/* An integer-valued f64, |v| <= 2^53, as a 64-bit integer in two's complement: seed and step reach
 * a kernel as f64 group scalars. Upper and lower half go through OPTC_MAGIC rather than through a
 * conversion, which C leaves undefined out of range; a range check instead would stay in the
 * caller's loop and keep it from being vectorised. Any finite v is safe; the runtime admits no
 * other. */
OPTC_FN unsigned long long optc_to_bits64(double v)
{
    double t = v * 0x1p-32 + OPTC_MAGIC, u = (v - (t - OPTC_MAGIC) * 0x1p32) + OPTC_MAGIC;
    return ((optc_bits(t) - optc_bits(OPTC_MAGIC)) << 32) + (optc_bits(u) - optc_bits(OPTC_MAGIC));
}

/* Distinct (t mod 2^32, tensor < 2^24, stream < 256, index) have distinct counters, and distinct
 * seeds distinct keys. */
OPTC_FN optc_u4 optc_random_bits(double seed, double t, unsigned tensor, unsigned stream,
                                 long long index)
{
    unsigned long long key = optc_to_bits64(seed), i = (unsigned long long)index;
    optc_u4 x;
    x.a = (unsigned)i;
    x.b = (unsigned)(i >> 32);
    x.c = (unsigned)optc_to_bits64(t);
    x.d = tensor ^ (stream << 24);
    return optc_philox(x, (unsigned)key, (unsigned)(key >> 32));
}

/* 53 bits as an f64 integer, from two parts that fit an int: conversions from int are exact and
 * vectorise */
OPTC_FN double optc_int53(unsigned hi, unsigned lo)
{
    return (double)(int)(hi >> 5) * 67108864.0 + (double)(int)(lo >> 6);
}

/* multiples of 2^-24 (2^-53) in [0, 1) */
OPTC_FN float optc_uniformf(double seed, double t, unsigned tensor, unsigned stream,
                            long long index)
{
    optc_u4 w = optc_random_bits(seed, t, tensor, stream, index);
    return (float)(int)(w.a >> 8) * 0x1p-24f;
}

OPTC_FN double optc_uniform(double seed, double t, unsigned tensor, unsigned stream,
                            long long index)
{
    optc_u4 w = optc_random_bits(seed, t, tensor, stream, index);
    return optc_int53(w.a, w.b) * 0x1p-53;
}

/* cos of u turns, u in [0, 1): turns reduce without error, radians would not */
OPTC_FN float optc_costurnf(float u)
{
    float t = u * 4.0f + OPTC_MAGICF, f = u - (t - OPTC_MAGICF) * 0.25f;
    return optc_sin_quadf(f * 6.28318548f, 0.0f, optc_bitsf(t) + 1u);
}

OPTC_FN double optc_costurn(double u)
{
    double t = u * 4.0 + OPTC_MAGIC, f = u - (t - OPTC_MAGIC) * 0.25;
    return optc_sin_quad(f * 6.283185307179586, 0.0, optc_bits(t) + 1u);
}

/* Box and Muller. The radius takes a uniform in (0, 1] that is finer near 0 than the grid of
   uniformf: the middle of a cell of width 2^-32 (2^-53), so that it is never 0 and the tail reaches
   6.76 (8.65) standard deviations. */
OPTC_FN float optc_box_mullerf(optc_u4 w)
{
    float u = ((float)(int)(w.a >> 8) + (float)(int)(2u * (w.a & 255u) + 1u) * 0x1p-9f) * 0x1p-24f;
    float v = (float)(int)(w.b >> 8) * 0x1p-24f;
    return optc_sqrtf(-2.0f * optc_logf(u)) * optc_costurnf(v);
}

OPTC_FN double optc_box_muller(optc_u4 w)
{
    double u = (optc_int53(w.a, w.b) + 0.5) * 0x1p-53, v = optc_int53(w.c, w.d) * 0x1p-53;
    return optc_sqrt(-2.0 * optc_log(u)) * optc_costurn(v);
}

OPTC_FN float optc_normalf(double seed, double t, unsigned tensor, unsigned stream, long long index)
{
    return optc_box_mullerf(optc_random_bits(seed, t, tensor, stream, index));
}

OPTC_FN double optc_normal(double seed, double t, unsigned tensor, unsigned stream, long long index)
{
    return optc_box_muller(optc_random_bits(seed, t, tensor, stream, index));
}
