/* Products without a rule against plain loops in double precision. Shared by the CPU suite and the
 * GPU suite. */
#ifndef OPTC_TESTS_ALONE_H
#define OPTC_TESTS_ALONE_H
#include "tests/harness/help.h"

/* Functions that allocate device memory and copy to and from the host. */
typedef struct Where {
    void *(*take)(size_t bytes);
    void (*give)(void *p);
    void (*put)(void *to, const void *from, size_t bytes);
    void (*get)(void *to, const void *from, size_t bytes);
} Where;

typedef struct Alone {
    int64_t m, n, k, p, batch;             /* p = 0: no third matrix; n = 0: a Gram matrix */
    int turned;                            /* transposed operands: 1: a, 2: b, 4: d */
    bool one;                              /* one b (and d) for the whole batch */
    int gap;                               /* padding between rows and between matrices, in
                                            * values */
    double scale, add;
} Alone;
extern const Alone alone_cases[];
enum { ALONES = 18 };

/* Runs the product and checks it against the reference. Returns the device's result of *bytes
 * bytes; the caller frees it. */
void *reference_product(optc_engine *e, const Where *w, const Alone *x, optc_type type,
                        int64_t workspace, size_t *bytes);
void reference_kron(optc_engine *e, const Where *w, const int64_t size[5], optc_type type,
                    bool one);
#endif
