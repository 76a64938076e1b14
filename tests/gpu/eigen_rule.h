/* Shared by the tests of eigenvectors and roots. */
#ifndef OPTC_TESTS_EIGEN_H
#define OPTC_TESTS_EIGEN_H
#include "tests/gpu/device_side.h"

#include "runtime/core/matrix/gpu_calls.h"

/* A rule bound to one tensor of n x side x 1 (or cols). Its state A is set by the test. */
typedef struct One {
    optc_engine *e;
    optc_rule *r;
    optc_binding *b;
    CUdeviceptr p, g;
    int64_t n, side;
} One;
typedef struct How { EigenMethod method; bool f64; int64_t workspace, cols; } How;
/* driver table of the next One; NULL: the real driver */
extern const Driver *next_driver;
/* called by the next One between opening and binding */
extern void (*between)(optc_engine *e);
extern const char vectors_rule[];              /* the rule V = eigenvectors of A */

bool emulated(void);
optc_status bind_one(One *o, const char *text, int64_t n, int64_t side, How how);
void open_one(One *o, const char *text, int64_t n, int64_t side, How how);
void close_one(One *o);

/* Fills a with a symmetric matrix whose eigenvalues are value[i] to a power. The same seed gives
 * the same basis. */
void make_matrix(double *a, int64_t n, const double *value, double exponent, uint64_t seed);
/* eigenvalues in geometric progression from 1 to low */
void spread(double *value, int64_t n, double low);
/* Checks n x some eigenvectors V of A (as rounded): V.T V = 1, A V = V w with w = diag(V.T A V),
 * largest first. In each vector the first of its largest entries is positive. */
void are_vectors(const double *a, const double *v, int64_t n, int64_t some, double bound,
                 const char *what);
#endif
