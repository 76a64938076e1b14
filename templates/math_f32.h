/* math_f32.h: elementwise functions of f32, in f32 alone (consumer GPUs do f64 at 1/64 of the
   rate). See math.h.

   Polynomials are minimax fits (Remez exchange, 50 digits, then rounded to f32 one coefficient at a
   time with the rest fitted again). Each comment gives the interval and the largest error, relative
   to the function it is used for. */

/* A value as the unevaluated sum h + l; |l| is at most half an ulp of h unless a comment says
 * otherwise. */
typedef struct { float h, l; } optc_f2;

OPTC_FN optc_f2 optc_f2_make(float h, float l)
{
    optc_f2 r;
    r.h = h;
    r.l = l;
    return r;
}

/* Knuth: a + b exactly */
OPTC_FN optc_f2 optc_twosumf(float a, float b)
{
    float s = a + b, t = s - a;
    return optc_f2_make(s, (a - (s - t)) + (b - t));
}

/* Dekker: a + b exactly when |a| >= |b| or a = 0 */
OPTC_FN optc_f2 optc_fastsumf(float a, float b)
{
    float s = a + b;
    return optc_f2_make(s, b - (s - a));
}

/* the top 12 bits: products of two such numbers are exact, and so are products with the
 * remainders */
OPTC_FN float optc_top12f(float a) { return optc_frombitsf(optc_bitsf(a) & 0xfffff000u); }

/* a * b exactly, away from overflow and underflow */
OPTC_FN optc_f2 optc_twoprodf(float a, float b)
{
    float ah = optc_top12f(a), al = a - ah, bh = optc_top12f(b), bl = b - bh, p = a * b;
    return optc_f2_make(p, (((ah * bh - p) + ah * bl) + al * bh) + al * bl);
}

/* x * 2^n for n in [-252, 254]; two factors, so that a denormal result is rounded once and overflow
   gives infinity. For any other n the result is undefined but harmless. */
OPTC_FN float optc_scalef(float x, int n)
{
    int a = n >> 1, b = n - a;
    return (x * optc_frombitsf((unsigned)(a + 127) << 23)) *
           optc_frombitsf((unsigned)(b + 127) << 23);
}

/* n = the integer nearest x / ln 2, and r = x - n ln 2 with its rounding error. |x| < 200.
   ln 2 = 0x1.62e4p-1 (15 bits, n * it exact) + 0x1.7f7d1cp-20, off by 2^-44. */
typedef struct { float r, rl, n; int i; } optc_ln2f;

OPTC_FN optc_ln2f optc_reduce_ln2f(float x)
{
    optc_ln2f o;
    float t = x * 1.44269502f + OPTC_MAGICF, h, l;
    o.n = t - OPTC_MAGICF;
    o.i = (int)(optc_bitsf(t) - optc_bitsf(OPTC_MAGICF));
    h = x - o.n * 0x1.62e4p-1f;
    l = o.n * 0x1.7f7d1cp-20f;
    o.r = h - l;
    o.rl = (h - o.r) - l;
    return o;
}

/* (e^r - 1 - r) / r^2 on |r| <= 0.347; error of e^r - 1 below 2^-30.9 */
OPTC_FN float optc_exp_polyf(float r)
{
    float p = 1.974256156e-04f;
    p = p * r + 1.393370796e-03f;
    p = p * r + 8.333567530e-03f;
    p = p * r + 4.166647792e-02f;
    p = p * r + 1.666666567e-01f;
    return p * r + 5.000000000e-01f;
}

/* e^x = 2^n e^r. Beyond [-104, 89] it is 0 or infinity; what the formula makes of such x is thrown
   away. (Holding x in range first looks the same, but gcc then carries the bounds through the
   integer work and stops vectorising f64.) */
OPTC_FN float optc_expf(float x)
{
    optc_ln2f k = optc_reduce_ln2f(x);
    float r = optc_scalef(1.0f + (k.r + (k.rl + k.r * k.r * optc_exp_polyf(k.r))), k.i);
    r = x > 89.0f ? OPTC_INFF : r;
    r = x < -104.0f ? 0.0f : r;
    return x != x ? OPTC_NANF : r;
}

/* 2^n e^r - 1 with s = 2^n: (s - 1) + s r is added without error, the rest is small. Halved (s =
   2^(n-1)) so that n = 128 does not overflow before its time. Below 2^-26 the answer is x, which
   also keeps -0 and denormals. */
OPTC_FN float optc_expm1f(float x)
{
    float c = x > 89.0f ? 89.0f : x < -18.0f ? -18.0f : x;
    optc_ln2f k = optc_reduce_ln2f(c);
    float s = optc_frombitsf((unsigned)(k.i + 126) << 23);
    float q = k.rl + k.r * k.r * optc_exp_polyf(k.r);
    optc_f2 v = optc_twosumf(s - 0.5f, s * k.r);
    float r = (v.h + (v.l + s * q)) * 2.0f;
    r = optc_absf(x) < 0x1p-26f ? x : r;
    return x != x ? OPTC_NANF : r;
}

/* x = 2^k m with m in [sqrt(1/2), sqrt(2)): subtracting the bits of sqrt(1/2) makes the exponent
   field change there. x is positive and finite; denormals are scaled into the normal range
   first. */
typedef struct { float m, k; } optc_splitf;

OPTC_FN optc_splitf optc_split_expf(float x)
{
    optc_splitf o;
    float tiny = x < 0x1p-126f ? 1.0f : 0.0f;
    float y = x < 0x1p-126f ? x * 0x1p24f : x;
    unsigned u = optc_bitsf(y) - 0x3f3504f3u;
    o.m = optc_frombitsf((u & 0x7fffffu) + 0x3f3504f3u);
    o.k = (float)((int)u >> 23) - tiny * 24.0f;
    return o;
}

/* (log(1+f) - f + f^2/2) / f^3 on [sqrt(1/2) - 1, sqrt(2) - 1]; error of log(1+f) below 2^-30.1 */
OPTC_FN float optc_log_polyf(float f)
{
    float p = 6.718350202e-02f;
    p = p * f - 1.165033355e-01f;
    p = p * f + 1.188549548e-01f;
    p = p * f - 1.240907311e-01f;
    p = p * f + 1.422051638e-01f;
    p = p * f - 1.666788906e-01f;
    p = p * f + 2.000206262e-01f;
    p = p * f - 2.500000894e-01f;
    return p * f + 3.333331347e-01f;
}

/* k ln 2 + log(1+f) + c, small parts first; k ln 2 in the two parts of optc_reduce_ln2f */
OPTC_FN float optc_log_sumf(float k, float f, float c)
{
    float h = 0.5f * f * f, t = f * f * f * optc_log_polyf(f) + (k * 0x1.7f7d1cp-20f + c);
    return k * 0x1.62e4p-1f + (f - (h - t));
}

OPTC_FN float optc_logf(float x)
{
    optc_splitf s = optc_split_expf(((x > 0.0f) & (x < OPTC_INFF)) ? x : 1.0f);
    float r = optc_log_sumf(s.k, s.m - 1.0f, 0.0f);
    r = x == 0.0f ? -OPTC_INFF : r;
    r = x == OPTC_INFF ? x : r;
    return ((x < 0.0f) | (x != x)) ? OPTC_NANF : r;
}

/* u + c = 1 + x exactly; log(u + c) = log u + c/u. While u keeps the exponent 0, x itself is the
 * exact argument. */
OPTC_FN float optc_log1pf(float x)
{
    float y = ((x > -1.0f) & (x < OPTC_INFF)) ? x : 1.0f;
    optc_f2 u = optc_twosumf(1.0f, y);
    optc_splitf s = optc_split_expf(u.h);
    float f = s.k == 0.0f ? y : s.m - 1.0f;
    float c = s.k == 0.0f ? 0.0f : u.l / u.h;
    float r = optc_log_sumf(s.k, f, c);
    r = x == -1.0f ? -OPTC_INFF : r;
    r = x == OPTC_INFF ? x : r;
    r = optc_absf(x) < 0x1p-26f ? x : r;
    return ((x < -1.0f) | (x != x)) ? OPTC_NANF : r;
}

/* log2 x to about 2^-44, for pow: log2 m = s (C0 + C1 z + z^2 T(z)), s = (m-1)/(m+1), z = s^2, C0 =
   2/ln 2, C1 = C0/3. T on z <= 0.02944: error of log2 m below 2^-43.7. */
OPTC_FN optc_f2 optc_log2_f2(float x)
{
    optc_splitf e = optc_split_expf(x);
    float f = e.m - 1.0f, d = e.m + 1.0f, dl = e.m - (d - 1.0f);
    float s = f / d, sl, zl, t;
    optc_f2 p = optc_twoprodf(s, d), z, w;
    sl = (((f - p.h) - p.l) - s * dl) / d;
    z = optc_twoprodf(s, s);
    zl = z.l + 2.0f * s * sl;
    t = 2.814200521e-01f;
    t = t * z.h + 3.200252652e-01f;
    t = t * z.h + 4.122057855e-01f;
    t = t * z.h + 5.770779848e-01f;
    w = optc_twoprodf(z.h, 0x1.ec709ep-1f);
    w.l = w.l + (z.h * -0x1.e2fe02p-28f + zl * 0x1.ec709ep-1f) + z.h * z.h * t;
    p = optc_fastsumf(0x1.715476p+1f, w.h);
    w = optc_fastsumf(p.h, p.l + (w.l + 0x1.4ae0cp-25f));
    p = optc_twoprodf(s, w.h);
    p.l = p.l + (s * w.l + sl * w.h);
    w = optc_twosumf(e.k, p.h);
    return optc_fastsumf(w.h, w.l + p.l);
}

/* 2^(h+l) for |l| tiny beside 1. (2^r - 1)/r on |r| <= 0.501: error of 2^r below 2^-28.2 */
OPTC_FN float optc_exp2_f2(float h, float l)
{
    float t = h + OPTC_MAGICF;
    int n = (int)(optc_bitsf(t) - optc_bitsf(OPTC_MAGICF));
    float r = (h - (t - OPTC_MAGICF)) + l, p = 1.532840688e-04f;
    p = p * r + 1.339135226e-03f;
    p = p * r + 9.618502110e-03f;
    p = p * r + 5.550358817e-02f;
    p = p * r + 2.402264774e-01f;
    p = p * r + 6.931471825e-01f;
    return optc_scalef(1.0f + p * r, n);
}

/* a^y = 2^(y log2 a) for a > 0. For a next to 1, |log2 a| >= 2^-24.5, so y held to 2^40 overflows
 * as y itself would. */
OPTC_FN float optc_exp2log2f(float a, float y)
{
    float yc = y > 0x1p40f ? 0x1p40f : y < -0x1p40f ? -0x1p40f : y, r;
    optc_f2 l = optc_log2_f2(((a > 0.0f) & (a < OPTC_INFF)) ? a : 1.0f), p = optc_twoprodf(yc, l.h);
    r = optc_exp2_f2(p.h, p.l + yc * l.l);
    r = p.h > 129.0f ? OPTC_INFF : r;
    return p.h < -151.0f ? 0.0f : r;
}

/* Rules whose power is a hyperparameter have 1/2 as its default. The root is many times faster, and
   y is the same for all elements there. */
OPTC_FN float optc_powf(float x, float y)
{
    float ax = optc_absf(x), h = y * 0.5f, r;
    float whole = optc_rintf(y), side = optc_withsignf(1.0f, x);
    if (y == 0.5f)
        /* of -0: 0 */
        return optc_plain_nanf(optc_sqrtf(x == -OPTC_INFF ? OPTC_INFF : x + 0.0f));
    r = optc_exp2log2f(ax, y);
    r = ax == 0.0f ? (y < 0.0f ? OPTC_INFF : 0.0f) : r;
    r = ax == OPTC_INFF ? (y < 0.0f ? 0.0f : OPTC_INFF) : r;
    r = ((whole == y) & (optc_rintf(h) != h)) ? r * side : r;   /* y odd */
    r = ((x < 0.0f) & (ax < OPTC_INFF) & (whole != y)) ? OPTC_NANF : r;
    r = ((x != x) | (y != y)) ? OPTC_NANF : r;
    return ((x == 1.0f) | (y == 0.0f)) ? 1.0f : r;
}

/* Up to 0.6 an odd polynomial: (tanh x - x)/x^3 in x^2, error below 2^-28.3. Above, 1 - 2/(e^2x +
   1), which loses nothing because the quotient is below 1/2; from 10 on it is 1. */
OPTC_FN float optc_tanhf(float x)
{
    float a = optc_absf(x), z = a * a, p = -5.895914510e-03f, b;
    p = p * z + 2.079703286e-02f;
    p = p * z - 5.378432572e-02f;
    p = p * z + 1.333193332e-01f;
    p = p * z - 3.333329856e-01f;
    b = 1.0f - 2.0f / (optc_expf(2.0f * (a < 10.0f ? a : 10.0f)) + 1.0f);
    b = a < 0.6f ? a + a * z * p : b;
    return x != x ? OPTC_NANF : optc_withsignf(b, x);
}

/* Up to 0.9 an odd polynomial: erf x / x - 1 in x^2, error below 2^-30.1. Above, 1 - e^-x^2 Q with
   Q = e^x^2 erfc x a polynomial in 1/(x + 2), whose error is below 2^-30.2 of the result; from 4 on
   it is 1. */
OPTC_FN float optc_erff(float x)
{
    float a = optc_absf(x), z = a * a, b = a < 4.0f ? a : 4.0f, u = 1.0f / (b + 2.0f);
    float p = 8.513099601e-05f, q = -7.308863640e+00f;
    p = p * z - 8.175644325e-04f;
    p = p * z + 5.203860346e-03f;
    p = p * z - 2.686050907e-02f;
    p = p * z + 1.128371507e-01f;
    p = p * z - 3.761263490e-01f;
    p = p * z + 1.283791661e-01f;
    q = q * u + 1.007440567e+01f;
    q = q * u - 4.500060380e-01f;
    q = q * u + 1.568097711e+00f;
    q = q * u + 5.221716166e-01f;
    q = q * u + 1.662430237e-03f;
    b = a < 0.9f ? a + a * p : 1.0f - optc_expf(-b * b) * q;
    return x != x ? OPTC_NANF : optc_withsignf(b, x);
}

/* v - n * P, n an integer of at most 18 bits cut into nh + nl of 9, P a constant of 15: both
   products are exact, and what n * P rounds off goes to the low part. */
OPTC_FN optc_f2 optc_sub_prodf(optc_f2 v, float n, float nh, float nl, float P)
{
    float p = n * P;
    optc_f2 s = optc_twosumf(v.h, -p);
    return optc_fastsumf(s.h, v.l + (s.l - ((nh * P - p) + nl * P)));
}

/* sin of (h + l) + quadrant * pi/2, |h| <= 0.8.
   (sin r - r)/r^3 and (cos r - 1 + r^2/2)/r^4 in z = r^2 <= 0.64: errors below 2^-27.7 and
   2^-32.5 */
OPTC_FN float optc_sin_quadf(float h, float l, unsigned quadrant)
{
    float z = h * h, hz = 0.5f * z, w = 1.0f - hz, s = -1.950553997e-04f, c = 2.441425386e-05f, r;
    s = s * z + 8.332095109e-03f;
    s = s * z - 1.666665375e-01f;
    s = h + (h * z * s + l * w);
    c = c * z - 1.388714183e-03f;
    c = c * z + 4.166664183e-02f;
    c = w + (((1.0f - w) - hz) + (z * z * c - h * l));
    r = (quadrant & 1u) ? c : s;
    return optc_frombitsf(optc_bitsf(r) ^ ((quadrant & 2u) << 30));
}

/* sin(x + quadrant * pi/2) for |x| <= 2^18. Cody and Waite with pi/2 = four parts, 15 + 15 + 15 +
 * 24 bits, off by 2^-76; the reduced argument is kept in two numbers and is good to 24 bits even
 * where x is closest to a multiple of pi/2. Beyond 2^18 (and at infinity) the result is NaN: a
 * wrong number would go unseen. */
OPTC_FN float optc_sincosf(float x, unsigned quadrant)
{
    int fits = optc_absf(x) <= 0x1p18f;
    float y = fits ? x : 0.0f;
    float t = y * 0.636619747f + OPTC_MAGICF, n = t - OPTC_MAGICF;
    float nh = optc_frombitsf(optc_bitsf(n) & 0xffff8000u), nl = n - nh;
    optc_f2 r = optc_f2_make((y - nh * 0x1.922p+0f) - nl * 0x1.922p+0f, 0.0f);
    r = optc_sub_prodf(r, n, nh, nl, -0x1.2afp-18f);
    r = optc_sub_prodf(r, n, nh, nl, 0x1.0b48p-34f);
    r = optc_fastsumf(r.h, r.l - n * -0x1.ee59dap-50f);
    return fits ? optc_sin_quadf(r.h, r.l, optc_bitsf(t) + quadrant) : OPTC_NANF;
}

OPTC_FN float optc_sinf(float x)
{
    float r = optc_sincosf(x, 0u);
    return x == 0.0f ? x : r;
}

OPTC_FN float optc_cosf(float x) { return optc_sincosf(x, 1u); }

/* atan of the smaller over the larger, then the octant: 0 + a, pi/2 - a, pi/2 + a or pi - a.
   (atan q - q)/q^3 in q^2 on [0, 1]: error below 2^-28.2. pi/2 = 0x1.921fb6p+0 - 0x1.777a5cp-25. */
OPTC_FN float optc_atan2f(float y, float x)
{
    float ax = optc_absf(x), ay = optc_absf(y);
    float lo = ay > ax ? ax : ay, hi = ay > ax ? ay : ax;
    float q = lo / (hi == 0.0f ? 1.0f : hi), z, p, quarters, r;
    unsigned left = optc_bitsf(x) >> 31, steep = ay > ax ? 1u : 0u;
    q = lo == OPTC_INFF ? 1.0f : q;
    z = q * q;
    p = -1.843604026e-03f;
    p = p * z + 1.115196291e-02f;
    p = p * z - 3.165060282e-02f;
    p = p * z + 5.846937001e-02f;
    p = p * z - 8.436042070e-02f;
    p = p * z + 1.096451133e-01f;
    p = p * z - 1.426689029e-01f;
    p = p * z + 1.999883503e-01f;
    p = p * z - 3.333331048e-01f;
    r = q + q * z * p;
    r = optc_frombitsf(optc_bitsf(r) ^ ((left ^ steep) << 31));
    quarters = steep ? 1.0f : left ? 2.0f : 0.0f;
    r = quarters * 0x1.921fb6p+0f + (r - quarters * 0x1.777a5cp-25f);
    return ((x != x) | (y != y)) ? OPTC_NANF : optc_withsignf(r, y);
}

/* A third of the bits is a cube root to 3.2 percent (constant found by search); Halley takes that
   to 2^-15. Cut to 12 bits, the cube is exact in two products, so the last Halley step adds a
   correction that is right to many bits. Scaling by 2^24 either way, towards 1, keeps denormals and
   the largest numbers out of it. */
OPTC_FN float optc_cbrtf(float x)
{
    float ax = optc_absf(x), up = ax < 1.0f ? 0x1p24f : 0x1p-24f,
          down = ax < 1.0f ? 0x1p-8f : 0x1p8f, a = ax * up;
    float t = optc_frombitsf(optc_bitsf(a) / 3u + 0x2a5107c5u), c, sq, sh, r;
    c = t * t * t;
    t = t * ((c + 2.0f * a) / (2.0f * c + a));
    t = optc_top12f(t);
    sq = t * t;
    sh = optc_top12f(sq);
    r = (a - sh * t) - (sq - sh) * t;
    t = (t + t * (r / (2.0f * (sq * t) + a))) * down;
    t = ((ax == 0.0f) | (ax == OPTC_INFF)) ? ax : t;
    return x != x ? OPTC_NANF : optc_withsignf(t, x);
}
