/* math_f64.h: elementwise functions of f64. See math.h; functions without a comment use the method
   of math_f32.h.

   64-bit integers stay unsigned and shift logically, and numbers move between integer and f64
   through the bits of a rounded sum: AVX2 has neither arithmetic 64-bit shifts nor 64-bit
   conversions, and this way loops still vectorise. */

typedef struct { double h, l; } optc_d2;

OPTC_FN optc_d2 optc_d2_make(double h, double l)
{
    optc_d2 r;
    r.h = h;
    r.l = l;
    return r;
}

OPTC_FN optc_d2 optc_twosum(double a, double b)
{
    double s = a + b, t = s - a;
    return optc_d2_make(s, (a - (s - t)) + (b - t));
}

OPTC_FN optc_d2 optc_fastsum(double a, double b)
{
    double s = a + b;
    return optc_d2_make(s, b - (s - a));
}

OPTC_FN double optc_top26(double a) { return optc_frombits(optc_bits(a) & 0xfffffffff8000000ull); }

/* exact but for the product of the two 27-bit remainders, rounded at 2^-105 */
OPTC_FN optc_d2 optc_twoprod(double a, double b)
{
    double ah = optc_top26(a), al = a - ah, bh = optc_top26(b), bl = b - bh, p = a * b;
    return optc_d2_make(p, (((ah * bh - p) + ah * bl) + al * bh) + al * bl);
}

/* x * 2^n for n in [-2044, 2046], n in two's complement; n + 2048 is halved so that the shift may
 * be logical */
OPTC_FN double optc_scale(double x, unsigned long long n)
{
    unsigned long long half = (n + 2048u) >> 1;   /* n/2 + 1024 */
    return (x * optc_frombits((half - 1u) << 52)) * optc_frombits((n + 2047u - half) << 52);
}

/* |x| < 1500. ln 2 = 0x1.62e42fefa4p-1 (41 bits, n * it exact) - 0x1.8432a1b0e2634p-43, off by
 * 2^-102. */
typedef struct { double r, rl, n; unsigned long long i; } optc_ln2;

OPTC_FN optc_ln2 optc_reduce_ln2(double x)
{
    optc_ln2 o;
    double t = x * 1.4426950408889634 + OPTC_MAGIC, h, l;
    o.n = t - OPTC_MAGIC;
    o.i = optc_bits(t) - optc_bits(OPTC_MAGIC);
    h = x - o.n * 0x1.62e42fefa4p-1;
    l = o.n * -0x1.8432a1b0e2634p-43;
    o.r = h - l;
    o.rl = (h - o.r) - l;
    return o;
}

/* (e^r - 1 - r) / r^2 on |r| <= 0.347; error of e^r - 1 below 2^-61.5 */
OPTC_FN double optc_exp_poly(double r)
{
    double p = 2.0886684693563505e-09;
    p = p * r + 2.5109185938735996e-08;
    p = p * r + 2.755736178023577e-07;
    p = p * r + 2.7557243776384498e-06;
    p = p * r + 2.4801587227621047e-05;
    p = p * r + 0.00019841269886570426;
    p = p * r + 0.0013888888888928337;
    p = p * r + 0.008333333333321443;
    p = p * r + 0.0416666666666666;
    p = p * r + 0.16666666666666677;
    return p * r + 0.5;
}

OPTC_FN double optc_exp(double x)
{
    optc_ln2 k = optc_reduce_ln2(x);
    double r = optc_scale(1.0 + (k.r + (k.rl + k.r * k.r * optc_exp_poly(k.r))), k.i);
    r = x > 710.0 ? OPTC_INF : r;
    r = x < -746.0 ? 0.0 : r;
    return x != x ? OPTC_NAN : r;
}

OPTC_FN double optc_expm1(double x)
{
    double c = x > 710.0 ? 710.0 : x < -38.0 ? -38.0 : x;
    optc_ln2 k = optc_reduce_ln2(c);
    double s = optc_frombits((k.i + 1022u) << 52);
    double q = k.rl + k.r * k.r * optc_exp_poly(k.r);
    optc_d2 v = optc_twosum(s - 0.5, s * k.r);
    double r = (v.h + (v.l + s * q)) * 2.0;
    r = optc_abs(x) < 0x1p-55 ? x : r;
    return x != x ? OPTC_NAN : r;
}

/* The exponent, biased so that it is not negative, becomes a number as the low bits of 2^52 +
 * it. */
typedef struct { double m, k; } optc_splitd;

OPTC_FN optc_splitd optc_split_exp(double x)
{
    optc_splitd o;
    double bias = x < 0x1p-1022 ? 4503599627370496.0 + 1077.0 : 4503599627370496.0 + 1023.0;
    double y = x < 0x1p-1022 ? x * 0x1p54 : x;
    unsigned long long u = optc_bits(y) - 0x3fe6a09e667f3bcdull;
    o.m = optc_frombits((u & 0xfffffffffffffull) + 0x3fe6a09e667f3bcdull);
    o.k = optc_frombits(((u + 0x3ff0000000000000ull) >> 52) | 0x4330000000000000ull) - bias;
    return o;
}

/* k ln 2 + log(1+f) + c. With s = f/(2+f): log(1+f) = f - f^2/2 + s (f^2/2 + R), R = 2 atanh(s)/s -
   2 a polynomial in z = s^2 <= 0.02944, error of the logarithm below 2^-59.4. */
OPTC_FN double optc_log_sum(double k, double f, double c)
{
    double s = f / (2.0 + f), z = s * s, h = 0.5 * f * f, R = 0.14795306567772457, t;
    R = R * z + 0.15314116294876173;
    R = R * z + 0.18183561693315844;
    R = R * z + 0.22222198625218192;
    R = R * z + 0.28571428741864646;
    R = R * z + 0.39999999999417124;
    R = R * z + 0.6666666666666734;
    t = s * (h + R * z) + (k * -0x1.8432a1b0e2634p-43 + c);
    return k * 0x1.62e42fefa4p-1 + (f - (h - t));
}

OPTC_FN double optc_log(double x)
{
    optc_splitd s = optc_split_exp(((x > 0.0) & (x < OPTC_INF)) ? x : 1.0);
    double r = optc_log_sum(s.k, s.m - 1.0, 0.0);
    r = x == 0.0 ? -OPTC_INF : r;
    r = x == OPTC_INF ? x : r;
    return ((x < 0.0) | (x != x)) ? OPTC_NAN : r;
}

OPTC_FN double optc_log1p(double x)
{
    double y = ((x > -1.0) & (x < OPTC_INF)) ? x : 1.0;
    optc_d2 u = optc_twosum(1.0, y);
    optc_splitd s = optc_split_exp(u.h);
    double f = s.k == 0.0 ? y : s.m - 1.0;
    double c = s.k == 0.0 ? 0.0 : u.l / u.h;
    double r = optc_log_sum(s.k, f, c);
    r = x == -1.0 ? -OPTC_INF : r;
    r = x == OPTC_INF ? x : r;
    r = optc_abs(x) < 0x1p-55 ? x : r;
    return ((x < -1.0) | (x != x)) ? OPTC_NAN : r;
}

/* log2 x to about 2^-65 of log2 m. T on z <= 0.02944: error of log2 m below 2^-72.8. */
OPTC_FN optc_d2 optc_log2_d2(double x)
{
    optc_splitd e = optc_split_exp(x);
    double f = e.m - 1.0, d = e.m + 1.0, dl = e.m - (d - 1.0);
    double s = f / d, sl, zl, t;
    optc_d2 p = optc_twoprod(s, d), z, w;
    sl = (((f - p.h) - p.l) - s * dl) / d;
    z = optc_twoprod(s, s);
    zl = z.l + 2.0 * s * sl;
    t = 0.172089385685135;
    t = t * z.h + 0.16854723230978866;
    t = t * z.h + 0.19239610941403062;
    t = t * z.h + 0.22195242189764167;
    t = t * z.h + 0.2623081961370011;
    t = t * z.h + 0.3205988979365498;
    t = t * z.h + 0.4121985831112297;
    t = t * z.h + 0.5770780163555853;
    w = optc_twoprod(z.h, 0x1.ec709dc3a03fdp-1);
    w.l = w.l + (z.h * 0x1.d27f05548af0cp-55 + zl * 0x1.ec709dc3a03fdp-1) + z.h * z.h * t;
    p = optc_fastsum(0x1.71547652b82fep+1, w.h);
    w = optc_fastsum(p.h, p.l + (w.l + 0x1.777d0ffda0d24p-55));
    p = optc_twoprod(s, w.h);
    p.l = p.l + (s * w.l + sl * w.h);
    w = optc_twosum(e.k, p.h);
    return optc_fastsum(w.h, w.l + p.l);
}

/* (2^r - 1)/r on |r| <= 0.501: error of 2^r below 2^-57.3 */
OPTC_FN double optc_exp2_d2(double h, double l)
{
    double t = h + OPTC_MAGIC, r = (h - (t - OPTC_MAGIC)) + l, p = 4.4493674908349806e-10;
    p = p * r + 7.073872610148164e-09;
    p = p * r + 1.0178090931618263e-07;
    p = p * r + 1.3215434775077107e-06;
    p = p * r + 1.5252733795209373e-05;
    p = p * r + 0.00015403530458108313;
    p = p * r + 0.0013333558146391036;
    p = p * r + 0.009618129107593338;
    p = p * r + 0.05550410866482223;
    p = p * r + 0.24022650695910133;
    p = p * r + 0.6931471805599453;
    return optc_scale(1.0 + p * r, optc_bits(t) - optc_bits(OPTC_MAGIC));
}

/* a^y = 2^(y log2 a) for a > 0. For a next to 1, |log2 a| >= 2^-53.5, so y held to 2^70 overflows
 * as y itself would. */
OPTC_FN double optc_exp2log2(double a, double y)
{
    double yc = y > 0x1p70 ? 0x1p70 : y < -0x1p70 ? -0x1p70 : y, r;
    optc_d2 l = optc_log2_d2(((a > 0.0) & (a < OPTC_INF)) ? a : 1.0), p = optc_twoprod(yc, l.h);
    r = optc_exp2_d2(p.h, p.l + yc * l.l);
    r = p.h > 1025.0 ? OPTC_INF : r;
    return p.h < -1076.0 ? 0.0 : r;
}

/* 1/2: as in optc_powf */
OPTC_FN double optc_pow(double x, double y)
{
    double ax = optc_abs(x), h = y * 0.5, r;
    double whole = optc_rint(y), side = optc_withsign(1.0, x);
    if (y == 0.5)
        return optc_plain_nan(optc_sqrt(x == -OPTC_INF ? OPTC_INF : x + 0.0));
    r = optc_exp2log2(ax, y);
    r = ax == 0.0 ? (y < 0.0 ? OPTC_INF : 0.0) : r;
    r = ax == OPTC_INF ? (y < 0.0 ? 0.0 : OPTC_INF) : r;
    r = ((whole == y) & (optc_rint(h) != h)) ? r * side : r;   /* y odd */
    r = ((x < 0.0) & (ax < OPTC_INF) & (whole != y)) ? OPTC_NAN : r;
    r = ((x != x) | (y != y)) ? OPTC_NAN : r;
    return ((x == 1.0) | (y == 0.0)) ? 1.0 : r;
}

/* Up to 0.6 the ninth convergent of tanh x = x/(1 + z/(3 + z/(5 + ...))), z = x^2, as x + x z
 * A(z)/D(z), off by 2^-67.8; its fractions are 8/17, 7/255, 4/9945, 1/765765 and 1/3, 2/85, 2/5355,
 * 4/3132675. Above, 1 - 2/(e^2x + 1); from 20 on it is 1. Both end in one division, which is
 * shared. */
OPTC_FN double optc_tanh(double x)
{
    double a = optc_abs(x), z = a * a, A, D, r;
    double e = optc_exp(2.0 * (a < 20.0 ? a : 20.0));
    A = ((1.2768640219620611e-06 * z + 0.00037348272642390287) * z + 0.023529411764705882) * z +
        0.3333333333333333;
    D = (((1.3058836588248353e-06 * z + 0.00040221216691804925) * z + 0.027450980392156862) * z +
         0.47058823529411764) *
            z +
        1.0;
    A = a < 0.6 ? a * z * A : 2.0;
    D = a < 0.6 ? D : e + 1.0;
    r = (a < 0.6 ? a : 1.0) - A / D;
    return x != x ? OPTC_NAN : optc_withsign(r, x);
}

/* Up to 0.9 an odd polynomial: erf x / x - 1 in x^2, error below 2^-56.3. Above, 1 - e^-x^2 Q with
   Q = e^x^2 erfc x a polynomial in 1/(x + 2), whose error is below 2^-57.4 of the result; from 6 on
   it is 1. Rounding of x^2 shifts erfc x by x^2 roundings, and erfc x is below a quarter of the
   result. */
OPTC_FN double optc_erf(double x)
{
    double a = optc_abs(x), z = a * a, b = a < 6.0 ? a : 6.0, u = 1.0 / (b + 2.0);
    double p = 6.486213349565097e-11, q = -196.60540031669072;
    p = p * z - 1.1648178563143908e-09;
    p = p * z + 1.4722578565639272e-08;
    p = p * z - 1.6358555247834514e-07;
    p = p * z + 1.646168742515852e-06;
    p = p * z - 1.4925633119853805e-05;
    p = p * z + 0.00012055332504043219;
    p = p * z - 0.0008548327014559563;
    p = p * z + 0.0052239776253357705;
    p = p * z - 0.026866170645123658;
    p = p * z + 0.11283791670955097;
    p = p * z - 0.37612638903183754;
    p = p * z + 0.1283791670955126;
    q = q * u + 696.7223711107098;
    q = q * u - 1075.5830494435152;
    q = q * u + 924.1181629049032;
    q = q * u - 467.42027733873374;
    q = q * u + 142.32503145034582;
    q = q * u - 35.13420727874229;
    q = q * u + 8.500396172283523;
    q = q * u + 2.1313377307020716;
    q = q * u + 2.030552938397997;
    q = q * u + 1.1255114159063924;
    q = q * u + 0.5642683371410131;
    q = q * u - 7.111348487931106e-07;
    b = a < 0.9 ? a + a * p : 1.0 - optc_exp(-b * b) * q;
    return x != x ? OPTC_NAN : optc_withsign(b, x);
}

/* v - n * P where n * P is exact */
OPTC_FN optc_d2 optc_sub_prod(optc_d2 v, double n, double P)
{
    optc_d2 s = optc_twosum(v.h, -(n * P));
    return optc_fastsum(s.h, v.l + s.l);
}

/* (sin r - r)/r^3 and (cos r - 1 + r^2/2)/r^4 in z = r^2 <= 0.62: errors below 2^-57.8 and
 * 2^-63.1 */
OPTC_FN double optc_sin_quad(double h, double l, unsigned long long quadrant)
{
    double z = h * h, hz = 0.5 * z, w = 1.0 - hz, s = 1.5895404512993374e-10,
           c = -1.1364694490950057e-11;
    unsigned long long odd = 0u - (quadrant & 1ull), sign = (quadrant & 2u) << 62;
    s = s * z - 2.505073392867813e-08;
    s = s * z + 2.755731353588132e-06;
    s = s * z - 0.00019841269829352237;
    s = s * z + 0.008333333333321835;
    s = s * z - 0.1666666666666663;
    s = h + (h * z * s + l * w);
    c = c * z + 2.087583307765981e-09;
    c = c * z - 2.7557315275442564e-07;
    c = c * z + 2.480158729320309e-05;
    c = c * z - 0.0013888888888881244;
    c = c * z + 0.04166666666666665;
    c = w + (((1.0 - w) - hz) + (z * z * c - h * l));
    return optc_frombits(((optc_bits(c) & odd) | (optc_bits(s) & ~odd)) ^ sign);
}

/* For |x| <= 2^30, so n has at most 30 bits: pi/2 = five parts, 4 of 23 bits whose products with n
   are exact and one of 53, off by 2^-150. Beyond 2^30 the result is NaN, as in f32. */
OPTC_FN double optc_sincos(double x, unsigned long long quadrant)
{
    int fits = optc_abs(x) <= 0x1p30;
    double y = fits ? x : 0.0;
    double t = y * 0.6366197723675814 + OPTC_MAGIC, n = t - OPTC_MAGIC;
    optc_d2 r = optc_d2_make(y - n * 0x1.921fb4p+0, 0.0);
    r = optc_sub_prod(r, n, 0x1.4442dp-24);
    r = optc_sub_prod(r, n, 0x1.846988p-48);
    r = optc_sub_prod(r, n, 0x1.8cc518p-72);
    r = optc_fastsum(r.h, r.l - n * -0x1.fc8f8cbb5bf6cp-97);
    return fits ? optc_sin_quad(r.h, r.l, optc_bits(t) + quadrant) : OPTC_NAN;
}

OPTC_FN double optc_sin(double x)
{
    double r = optc_sincos(x, 0u);
    return x == 0.0 ? x : r;
}

OPTC_FN double optc_cos(double x) { return optc_sincos(x, 1u); }

/* Above 1/2 the ratio q is turned by pi/4, (q-1)/(q+1) in one division whose numerator is exact.
   The result is then eighths * pi/4 plus or minus atan of what is left; eighths times either part
   of pi/4 is exact. (atan q - q)/q^3 in z = q^2 <= 1/4: error below 2^-61.7. A quarter of both
   keeps the sum of the two largest numbers finite. */
OPTC_FN double optc_atan2(double y, double x)
{
    double ax = optc_abs(x), ay = optc_abs(y);
    double lo = ay > ax ? ax : ay, hi = ay > ax ? ay : ax, quarter = hi > 0x1p1000 ? 0.25 : 1.0;
    double side = optc_withsign(1.0, x), sense = ay > ax ? -side : side, eighths, turned, q, z, p,
           r;
    lo = hi == OPTC_INF ? (lo == OPTC_INF ? 1.0 : 0.0) : lo * quarter;
    hi = ((hi == OPTC_INF) | (hi == 0.0)) ? 1.0 : hi * quarter;
    turned = lo > 0.5 * hi ? 1.0 : 0.0;
    q = (lo - turned * hi) / (turned * lo + hi);
    z = q * q;
    p = -0.008438428968799592;
    p = p * z + 0.023778220462664763;
    p = p * z - 0.037211485675606185;
    p = p * z + 0.045935372652536735;
    p = p * z - 0.05231183751310651;
    p = p * z + 0.05878035320773242;
    p = p * z - 0.06666254353858588;
    p = p * z + 0.07692280352286011;
    p = p * z - 0.09090907875232608;
    p = p * z + 0.1111111107697338;
    p = p * z - 0.1428571428516955;
    p = p * z + 0.19999999999996002;
    p = p * z - 0.33333333333333326;
    r = q + q * z * p;
    eighths = (ay > ax ? 2.0 : 2.0 - 2.0 * side) + turned * sense;
    r = eighths * 0x1.921fb54442d18p-1 + (sense * r + eighths * 0x1.1a62633145c07p-55);
    return ((x != x) | (y != y)) ? OPTC_NAN : optc_withsign(r, y);
}

/* A third of the high word is a cube root to 3.2 percent; r^(-1/3) on [0.908, 1.098], error 2^-24,
   mends that in one division; then the exact Halley step, on 26 bits. */
OPTC_FN double optc_cbrt(double x)
{
    double ax = optc_abs(x), up = ax < 1.0 ? 0x1p54 : 0x1p-54, down = ax < 1.0 ? 0x1p-18 : 0x1p18,
           a = ax * up;
    unsigned long long third = ((optc_bits(a) >> 32) * 0x55555556ull) >> 32;
    double t = optc_frombits((third + 0x2a9f764eull) << 32), c = t * t * t / a, p, sq, sh, r;
    p = 0.14366301452298322;
    p = p * c - 0.748885721259163;
    p = p * c + 1.6069086416827583;
    p = p * c - 1.8751423993122862;
    p = p * c + 1.8734564578516857;
    t = optc_top26(t * p);
    sq = t * t;
    sh = optc_top26(sq);
    r = (a - sh * t) - (sq - sh) * t;
    t = (t + t * (r / (2.0 * (sq * t) + a))) * down;
    t = ((ax == 0.0) | (ax == OPTC_INF)) ? ax : t;
    return x != x ? OPTC_NAN : optc_withsign(t, x);
}
