/* Functions of matrices without a rule, against their definitions in f64. Shared by the CPU suite
 * and the GPU suite. */
#ifndef OPTC_TESTS_FUNCTION_CASES_H
#define OPTC_TESTS_FUNCTION_CASES_H
#include "tests/harness/reference_product.h"

typedef enum { DO_POWER, DO_EIGH, DO_CHOLESKY, DO_SOLVE, DO_POLAR, DO_QR } FunctionKind;
/* root: of powers: x^root a = 1 for root > 0, x^-root = a for root < 0. gap: padding between rows
 * and between matrices.
 * in_place: the result is the operand's memory. flags: of optc_solve: 1 upper, 2 right, 4
 * positive */
typedef struct FunctionCase {
    FunctionKind kind;
    optc_type type;
    int64_t m, n, batch;
    int root, gap;
    bool in_place;
    int flags;
    double ridge, relative, floor;
} FunctionCase;
extern const FunctionCase function_cases[];
enum { FUNCTION_CASES = 31 };

/* Runs the function and checks its results. Returns them, *bytes bytes; the caller frees it. */
char *function_case(optc_engine *e, const Where *w, const FunctionCase *x, size_t *bytes);
#endif
