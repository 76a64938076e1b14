/* Inverse roots by products alone: X <- X q(M), M <- q(M)^p M from X = I, M = A, with q a quadratic that is nearest to
 * M^(-1/p) over all that M's eigenvalues may be. X goes to A^(-1/p) and M to I. How many steps there are follows from
 * the interval that A's eigenvalues lie in and from nothing that is measured. Pasted into packages: C11 and C++17. */
#ifndef OPTC_ROOTS_H
#define OPTC_ROOTS_H

#include <stdbool.h>

#ifndef CORE
#define CORE
#endif

/* q(M) = a + b M + c M^2; after it the eigenvalues of X lie within `off` of their place, relative to it */
typedef struct RootStep { double a, b, c, off; } RootStep;
enum { MOST_ROOT_STEPS = 40 };

/* The steps for eigenvalues in [low, 1], 0 < low <= 1, for roots that are kept in f32, or in f64; p from 1 to 16. How
 * many; 0: there are no such steps (or more than MOST_ROOT_STEPS). For f32 as few as can be: what rounding of f64 leaves
 * is less than f32 shows (3e-8 at a low of 1e-12). For f64 up to two more, of less rounding: those of a matrix with
 * eigenvalues near each other are off by some 1e-14, whatever low is (by f32's steps up to 1e-9). */
CORE int root_steps(int p, double low, bool in_f64, RootStep *out);
#endif
