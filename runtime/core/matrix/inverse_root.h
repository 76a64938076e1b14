/* Coefficients for inverse roots by products: X <- X q(M), M <- q(M)^p M from X = I, M = A. The
 * quadratic q is the best approximation of M^(-1/p) over the interval of M's eigenvalues. X
 * converges to A^(-1/p) and M to I. The number of steps follows from the interval of A's
 * eigenvalues alone; nothing is measured. Pasted into packages: C11 and C++17. */
#ifndef OPTC_ROOTS_H
#define OPTC_ROOTS_H

#include <stdbool.h>

#ifndef CORE
#define CORE
#endif

/* q(M) = a + b M + c M^2. off: relative error of X's eigenvalues after this step. */
typedef struct RootStep { double a, b, c, off; } RootStep;
enum { MOST_ROOT_STEPS = 40 };

/* Computes the steps for eigenvalues in [low, 1], 0 < low <= 1, and p from 1 to 16, for roots
 * stored in f32 or in f64. Returns their number; 0: there are no such steps, or more than
 * MOST_ROOT_STEPS. For f32 it takes as few as possible: what rounding in f64 leaves is below f32's
 * precision (3e-8 at a low of 1e-12). For f64 it takes up to two more, which lose less to rounding:
 * matrices whose eigenvalues are close together have errors of some 1e-14 for any low (with the
 * steps for f32 up to 1e-9). */
CORE int root_steps(int p, double low, bool in_f64, RootStep *out);
#endif
