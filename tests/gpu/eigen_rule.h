/* Between the tests of eigenvectors. */
#ifndef OPTC_TESTS_EIGEN_H
#define OPTC_TESTS_EIGEN_H
#include "tests/gpu/device_side.h"

#include "runtime/core/matrix/gpu_calls.h"

/* A rule over one tensor of n x side x 1 (or cols), whose state A is set. */
typedef struct One {
    optc_engine *e;
    optc_rule *r;
    optc_binding *b;
    CUdeviceptr p, g;
    int64_t n, side;
} One;
typedef struct How { EigenMethod method; bool f64; int64_t workspace, cols; } How;
/* what the next one calls in the driver's place; NULL: the driver */
extern const Driver *next_driver;
extern void (*between)(optc_engine *e);        /* what the next one does between opening and binding */
extern const char vectors_rule[];              /* V = the eigenvectors of A */

bool emulated(void);
optc_status bind_one(One *o, const char *text, int64_t n, int64_t side, How how);
void open_one(One *o, const char *text, int64_t n, int64_t side, How how);
void close_one(One *o);

/* Matrices whose eigenvalues are known: those values to that power, of the same basis for the same seed. */
void make_matrix(double *a, int64_t n, const double *value, double exponent, uint64_t seed);
void spread(double *value, int64_t n, double low);             /* geometrically from 1 to low */
/* V of n x some, A as it was rounded: V.T V = 1, A V = V w with w = diag(V.T A V), largest first, each with the first
 * of its largest entries positive. */
void are_vectors(const double *a, const double *v, int64_t n, int64_t some, double bound, const char *what);
#endif
