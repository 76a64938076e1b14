/* Dense factors for machines without a LAPACK: eigenvectors of symmetric matrices, orthonormal
 * columns, triangles. f64, row-major without gaps, one thread. Every sum has a fixed order, so a
 * result depends on its operand alone. Pasted into packages: C11 and C++17.
 *
 * Functions return false for a value that is not finite, an iteration that does not converge, or a
 * matrix that is not positive definite. The outputs are then undefined. */
#ifndef OPTC_DENSE_H
#define OPTC_DENSE_H
#include <stdbool.h>
#include <stdint.h>

#ifndef CORE
#define CORE
#endif

/* a, n x n and symmetric (only the lower triangle is read), becomes the eigenvectors: row i belongs
 * to value[i], largest first. The first of the largest entries of each vector is positive. work:
 * dense_eigh_work(n) doubles. */
CORE int64_t dense_eigh_work(int64_t n);
CORE bool dense_eigh(double *a, int64_t n, double *value, double *work);

/* a, m x n with m >= n, becomes Q of the same shape with orthonormal columns: a = Q R with a
 * triangle R whose diagonal is not negative. The columns of Q are orthonormal even if those of a
 * are linearly dependent. work: dense_qr_work(m, n) doubles. */
CORE int64_t dense_qr_work(int64_t m, int64_t n);
CORE bool dense_qr(double *a, int64_t m, int64_t n, double *work);

/* a, n x n and symmetric (only the lower triangle is read), becomes L with a = L L.T, zeros above
 * its diagonal. */
CORE bool dense_chol(double *a, int64_t n);

/* b, n x m, becomes X with L X = b, or L.T X = b if transposed. Only the lower triangle of l is
 * read; its diagonal must not contain 0. */
CORE bool dense_solve(const double *l, int64_t n, bool transposed, double *b, int64_t m);

/* Helpers for lapack.c and cpu_factors.c. */
/* copies the lower triangle to the upper */
CORE void dense_mirror(double *a, int64_t n);
/* Scales x by a power of two that brings its largest magnitude to about 1, and returns that power;
 * 0: a value is not finite. */
CORE double dense_even(double *x, int64_t n);
/* makes the first of each row's largest entries positive */
CORE void dense_signs(double *v, int64_t n);
CORE void dense_transpose(double *to, const double *from, int64_t rows, int64_t cols);
#endif
