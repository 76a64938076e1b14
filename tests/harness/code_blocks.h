/* Block codes as runtime/TYPES.md defines them: blocks and whole states, for tests that compare
 * bytes. */
#ifndef OPTC_TEST_CODES_H
#define OPTC_TEST_CODES_H
#include "optc.h"
#include "gen/abi/reduction_sizes.h"
#include "runtime/core/base/conversions.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Check reports every assertion to its parent process, which takes longer than the work of these
 * loops. */
#define EACH(holds, ...) \
    do { \
        if (!(holds)) \
            ck_abort_msg(__VA_ARGS__); \
    } while (0)

typedef struct CodeType {
    const char *name;
    optc_type type;
    bool sign;
    int bits;                                  /* mantissa bits of a code */
    float per_top, one, floor, least;
    float (*from)(unsigned char code);         /* relative to the scale */
    unsigned char (*to)(float x, float inverse, unsigned dither);
} CodeType;
enum { NCODES = 4 };
extern const CodeType code_types[NCODES];      /* q8, q8u, f8, f8u */

/* each: element i has its own dither, that of element i after `dither`; otherwise all have
 * `dither`, a multiple of 2^20. Returns the scale. */
float code_encode(const CodeType *c, const float *x, int n, unsigned dither, bool each,
                  unsigned char *code);
void code_decode(const CodeType *c, const unsigned char *code, float scale, float *x, int n);
/* What encoding may change x by: one step of the code at x. */
double code_bound(const CodeType *c, float x, float scale);

/* A state of a tensor with n values: codes padded to whole blocks, then scales; f32 for small
 * tensors. */
enum { CODE_LEAST = 4096 };                    /* smaller tensors store f32 */
size_t state_size(int64_t n);
/* of the block of value i */
float state_scale(const unsigned char *state, int64_t n, int64_t i);
void state_decode(const CodeType *c, const unsigned char *state, int64_t n, float *x);
void state_encode(const CodeType *c, unsigned char *state, int64_t n, const float *x, int step);
#endif
