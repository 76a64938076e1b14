/* Symmetric matrices with known eigenvectors and eigenvalues. */
#ifndef OPTC_TESTS_BASIS_H
#define OPTC_TESTS_BASIS_H
#include <stdint.h>

typedef struct Basis { int n; double *q, *value; } Basis;             /* the columns of q are the eigenvectors */
/* Eigenvalues in geometric progression from 1 to low. The caller frees q and value. */
Basis make_basis(int n, double low, uint64_t seed);
void of_values(const Basis *m, double exponent, double *out);         /* writes the matrix to the power `exponent` */
#endif
