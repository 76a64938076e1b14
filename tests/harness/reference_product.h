/* Products with no rule, against plain loops in double precision: what the CPU's suite and the GPU's have in common. */
#ifndef OPTC_TESTS_ALONE_H
#define OPTC_TESTS_ALONE_H
#include "tests/harness/help.h"

/* The device's memory, to and from the host's. */
typedef struct Where {
    void *(*take)(size_t bytes);
    void (*give)(void *p);
    void (*put)(void *to, const void *from, size_t bytes);
    void (*get)(void *to, const void *from, size_t bytes);
} Where;

typedef struct Alone {
    int64_t m, n, k, p, batch;             /* p 0: no third matrix; n 0: a Gram matrix */
    int turned;                            /* 1: a lies turned, 2: b, 4: d */
    bool one;                              /* one b (and d) for all */
    int gap;                               /* values between rows, and between matrices */
    double scale, add;
} Alone;
extern const Alone alone_cases[];
enum { ALONES = 18 };

/* The result, as the device has it (to be freed), of so many bytes; held against the reference */
void *reference_product(optc_engine *e, const Where *w, const Alone *x, optc_type type, int64_t workspace,
                        size_t *bytes);
void reference_kron(optc_engine *e, const Where *w, const int64_t size[5], optc_type type, bool one);
#endif
