/* Symmetric matrices whose eigenvectors and eigenvalues are known. */
#ifndef OPTC_TESTS_BASIS_H
#define OPTC_TESTS_BASIS_H
#include <stdint.h>

typedef struct Basis { int n; double *q, *value; } Basis;             /* columns of q: the vectors */
/* values from 1 to low, evenly in their logarithms; q and value to be freed */
Basis make_basis(int n, double low, uint64_t seed);
void of_values(const Basis *m, double exponent, double *out);         /* that power of the matrix */
#endif
