/* Symmetric matrices with known eigenvectors and eigenvalues. */
#ifndef OPTC_TESTS_BASIS_H
#define OPTC_TESTS_BASIS_H
#include <stdint.h>

/* the columns of q are the eigenvectors */
typedef struct Basis { int n; double *q, *value; } Basis;
/* Eigenvalues in geometric progression from 1 to low. The caller frees q and value. */
Basis make_basis(int n, double low, uint64_t seed);
/* writes the matrix to the power `exponent` */
void of_values(const Basis *m, double exponent, double *out);
#endif
