/* Best quadratics for the steps of inverse_root.h, by Remez exchange in f64. */
#include "runtime/core/matrix/inverse_root.h"

#include <math.h>
#include <string.h>

/* The best q over [low, 1]: x^(1/p) q(x) - 1 alternates between off and -off at low, at the two
 * points where its derivative, a quadratic, is zero, and at 1. Given those two points, four linear
 * equations yield the coefficients, and the coefficients yield the points. Five rounds are
 * enough. */
typedef struct Swing { double a, b, c, off; } Swing;

/* Solves in place with pivoting; false: singular. */
static bool solve4(double m[4][5])
{
    for (int k = 0; k < 4; k++) {
        int best = k;
        for (int i = k + 1; i < 4; i++)
            best = fabs(m[i][k]) > fabs(m[best][k]) ? i : best;
        if (!(fabs(m[best][k]) > 0))
            return false;
        for (int j = 0; j < 5; j++) {
            double x = m[k][j];
            m[k][j] = m[best][j];
            m[best][j] = x;
        }
        for (int i = 0; i < 4; i++) {
            double f = i == k ? 0 : m[i][k] / m[k][k];
            for (int j = k; j < 5; j++)
                m[i][j] -= f * m[k][j];
        }
    }
    for (int k = 0; k < 4; k++)
        m[k][4] /= m[k][k];
    return true;
}

static bool fit(const double at[4], double root, Swing *s)
{
    double m[4][5];
    for (int i = 0; i < 4; i++) {
        double w = pow(at[i], root);
        m[i][0] = w;
        m[i][1] = w * at[i];
        m[i][2] = w * at[i] * at[i];
        m[i][3] = i % 2 ? -1 : 1;
        m[i][4] = 1;
    }
    if (!solve4(m))
        return false;
    s->a = m[0][4];
    s->b = m[1][4];
    s->c = m[2][4];
    s->off = fabs(m[3][4]);
    return true;
}

/* Points where the derivative is zero: a / p + b (1 / p + 1) x + c (1 / p + 2) x^2. */
static bool turning(const Swing *s, double root, double at[4])
{
    double x = s->c * (root + 2), y = s->b * (root + 1) / 2, z = s->a * root, d = y * y - x * z;
    if (!(d > 0))
        return false;
    double big = y > 0 ? -y - sqrt(d) : -y + sqrt(d), r = big / x, t = z / big;
    at[1] = fmin(r, t);
    at[2] = fmax(r, t);
    return at[0] < at[1] && at[1] < at[2] && at[2] < at[3];
}

/* Near 1 the equations are too ill-conditioned, and the first terms of the Taylor series at the
 * middle are as good. */
static void series(double low, double root, Swing *s)
{
    double mid = (1 + low) / 2, f = pow(mid, -root), g = -root * f / mid,
           h = root * (root + 1) * f / (mid * mid) / 2, d = (1 - low) / 2 / mid;
    s->a = f - g * mid + h * mid * mid;
    s->b = g - 2 * h * mid;
    s->c = h;
    s->off = root * (root + 1) * (root + 2) / 6 * d * d * d * 1.1 + 4.5e-16;
}

static bool nearest(double low, double root, Swing *s)
{
    enum { ROUNDS = 40 };
    double at[4] = {low, low + (1 - low) * 0.1, low + (1 - low) * 0.65, 1};
    if (low > 0.99) {
        series(low, root, s);
        return true;
    }
    for (int k = 0; k < ROUNDS; k++) {
        double was[2] = {at[1], at[2]};
        if (!fit(at, root, s) || !turning(s, root, at))
            return false;
        if (fabs(at[1] - was[0]) + fabs(at[2] - was[1]) < 1e-12)
            break;
    }
    for (int i = 0; i < 4; i++)
        s->off = fmax(s->off, fabs(pow(at[i], root) * (s->a + at[i] * (s->b + at[i] * s->c)) - 1));
    /* over 1e-12 … 1 the coefficients are exact to some 1e-7 */
    s->off *= 1 + 1e-5;
    return true;
}

/* least: eigenvalues below this share of the largest do not influence the fit; the quadratic still
 * raises them by nearly its largest factor. A fit over the whole of a long interval has a large
 * error: eigenvalues in the middle become as small as the smallest, and lose as many digits to the
 * largest. within: the error at which the iteration ends. */
typedef struct RootAim { double least, within; } RootAim;

static int root_steps_to(int p, double low, RootAim to, RootStep *out)
{
    double high = 1, root = 1.0 / p;
    for (int n = 0; n < MOST_ROOT_STEPS; n++) {
        Swing s;
        double at = low / high, from = fmax(at, to.least);
        if (!nearest(from, root, &s))
            return 0;
        double k = pow(high, -root);                       /* the interval ends at high, not at 1 */
        out[n].a = k * s.a;
        out[n].b = k * s.b / high;
        out[n].c = k * s.c / high / high;
        out[n].off =
            at < from ? fmax(s.off, 1 - pow(at, root) * (s.a + at * (s.b + at * s.c))) : s.off;
        if (out[n].off <= to.within)
            return n + 1;
        low = pow(1 - out[n].off, p);
        high = pow(1 + s.off, p);
    }
    return 0;
}

CORE int root_steps(int p, double low, bool in_f64, RootStep *out)
{
    static const RootAim f64 = {1e-2, 4e-15}, f32 = {1e-3, 2e-8}, f32_long = {0, 2e-8};
    RootStep other[MOST_ROOT_STEPS];
    if (p < 1 || p > 16 || !(low > 0 && low <= 1))
        return 0;
    int n = root_steps_to(p, low, in_f64 ? f64 : f32, out);
    int fewer = in_f64 ? 0 : root_steps_to(p, low, f32_long, other);
    if (!fewer || (n && n <= fewer))
        return n;
    memcpy(out, other, sizeof other);
    return fewer;
}
