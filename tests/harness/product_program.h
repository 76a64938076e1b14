/* Hand-made programs that contain only products, independent of the compiler. The reference is a
 * plain loop in f64. The bound holds for any order of summation: (k + 3) roundings of the sum of
 * magnitudes, and one for a diagonal. */
#ifndef OPTC_TEST_HAND_H
#define OPTC_TEST_HAND_H
#include "tests/harness/help.h"

enum { A = 2, B, C, OUT, NARRAY, MOST_CALLS = 12 };
typedef struct Hand {
    optc_engine *engine;
    optc_rule *rule;
    optc_binding *binding;
    const Program *was;
    Program program;
    ProgArray array[NARRAY + MOST_CALLS];
    ProgStage stage[MOST_CALLS];
    ProgCall call[MOST_CALLS];
    int reads[MOST_CALLS][3], writes[MOST_CALLS];
    ProgAction action[MOST_CALLS];
    ProgPhase phase;
    ProgEntry entry;
    void *memory;
    int fails, asked;                  /* number of the allocation that fails during binding; count
                                        * of allocations */
} Hand;

void hand_open(Hand *h, const optc_engine_options *o);
void hand_array(Hand *h, int k, MemKind kind, Dom d, Type t, const char *name);
void hand_call(Hand *h, ProgCall c);
optc_status hand_bind(Hand *h, const int64_t (*shape)[3], int n);
void hand_unbind(Hand *h);
void hand_close(Hand *h);
int64_t hand_length(const Hand *h, int tensor, int k);
void hand_fill(Hand *h, int tensor, int k, int seed);
void hand_fill_with(Hand *h, int tensor, int k, double x);
void check_product(const Hand *h, int tensor, const ProgCall *c, const double *was);
void use_blas(bool blas);
#endif
