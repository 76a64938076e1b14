/* Dense matrices of our own, where there is no LAPACK: eigenvectors of symmetric ones, orthonormal columns, triangles.
 * In f64, row by row without gaps, one thread; every sum in a fixed order, so a result depends on its operand alone.
 * Pasted into packages: C11 and C++17.
 *
 * What cannot be done is told, never guessed: a value that is not finite, an iteration that does not end, a matrix that
 * is not positive. The results are then whatever they are. */
#ifndef OPTC_DENSE_H
#define OPTC_DENSE_H
#include <stdbool.h>
#include <stdint.h>

#ifndef CORE
#define CORE
#endif

/* a of n x n, symmetric (the lower triangle says all), becomes the eigenvectors: row i belongs to value[i], largest
 * first; of each the first of its largest entries is positive. work: dense_eigh_work(n) doubles. */
CORE int64_t dense_eigh_work(int64_t n);
CORE bool dense_eigh(double *a, int64_t n, double *value, double *work);

/* a of m x n, m >= n, becomes Q of the same shape with orthonormal columns, a = Q R with a triangle R whose diagonal is
 * not negative. Where columns depend on each other those of Q are orthonormal still. work: dense_qr_work(m, n). */
CORE int64_t dense_qr_work(int64_t m, int64_t n);
CORE bool dense_qr(double *a, int64_t m, int64_t n, double *work);

/* a of n x n, symmetric (the lower triangle says all), becomes L with a = L L.T, zeros above its diagonal. */
CORE bool dense_chol(double *a, int64_t n);

/* b of n x m becomes what L, or L turned, takes to b. l: its lower triangle is read; no zero on its diagonal. */
CORE bool dense_solve(const double *l, int64_t n, bool transposed, double *b, int64_t m);

/* For whoever computes the same by other means. */
CORE void dense_mirror(double *a, int64_t n);              /* the lower triangle becomes the upper */
/* Scales by a power of two so that the largest is about 1, and returns it; 0: something is not finite. */
CORE double dense_even(double *x, int64_t n);
CORE void dense_signs(double *v, int64_t n);               /* of each row the first of its largest becomes positive */
CORE void dense_transpose(double *to, const double *from, int64_t rows, int64_t cols);
#endif
