/* Inverse roots by products alone: X <- X q(M), M <- q(M)^p M from X = I, M = A, with q a quadratic that is nearest to
 * M^(-1/p) over all that M's eigenvalues may be. X goes to A^(-1/p) and M to I. How many steps there are follows from
 * the interval that A's eigenvalues lie in and from nothing that is measured. Pasted into packages: C11 and C++17. */
#ifndef OPTC_ROOTS_H
#define OPTC_ROOTS_H

#ifndef CORE
#define CORE
#endif

/* q(M) = a + b M + c M^2; after it the eigenvalues of X lie within `off` of their place, relative to it */
typedef struct RootStep { double a, b, c, off; } RootStep;
enum { MOST_ROOT_STEPS = 40 };

/* The steps for eigenvalues in [low, 1], 0 < low <= 1, until `off` is at most `within`; p from 1 to 16. How many; 0:
 * there are no such steps (or more than MOST_ROOT_STEPS). */
CORE int root_steps(int p, double low, double within, RootStep *out);
#endif
