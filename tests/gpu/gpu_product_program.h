/* Hand-made programs that contain only products, bound on a GPU. */
#ifndef OPTC_TESTS_MADE_H
#define OPTC_TESTS_MADE_H
#include "tests/gpu/device_side.h"

#include "runtime/core/matrix/gpu_calls.h"

enum { MOST = 48, TENSORS = 7 };
typedef struct ProductProgram {
    Program p;
    ProgArray array[MOST];
    ProgStage stage[MOST];
    ProgCall call[MOST];
    int reads[MOST][3], writes[MOST][1];
    ProgAction act[MOST];
    ProgPhase phase;
    ProgEntry entry;
    Variant variant;
    int ncall;
} ProductProgram;

typedef struct Bound {
    ProductProgram m;
    optc_engine *e;
    optc_rule *r;
    optc_binding *b;
    CUdeviceptr p[TENSORS], g[TENSORS];
    CUmodule module;
} Bound;

int add_array(ProductProgram *m, MemKind kind, Dom dom, Type type, const char *name);
void add_mm(ProductProgram *m, int a, int b, int out, unsigned flags, double alpha, double beta);
/* c: array that is added, or -1 */
void add_mm_to(ProductProgram *m, int a, int b, int c, int out, unsigned flags, double alpha,
               double beta);
void end_program(ProductProgram *m, Product product);
/* Followed by arrays and products, end_program and bind_program. */
void open_rule(Bound *x, Type g, int64_t workspace);
void bind_program(Bound *x, const int64_t (*shape)[3], int n, size_t gbytes);
void close_program(Bound *x);

/* ---- checks (gpu_product_check.c) ---- */
/* unit: of the type, or of the operands in tf32 */
typedef struct ProductKind {
    const char *name; Type type; double unit; Product product;
} ProductKind;
extern const ProductKind kinds[];
int64_t length_of(const Bound *x, int tensor, int array);
double *get_array(const Bound *x, int tensor, int array);      /* to be freed */
void put_array(Bound *x, int tensor, int array, int seed);
/* 2.5 I - 1.5 s + 0.5 a a.T, with the addend s in an array of its own */
void add_polynomial(ProductProgram *m, int a, Type t);
void fill_forms(Bound *x, int n);                      /* writes all arrays of n tensors */
/* Steps, and checks each product of n tensors. */
void step_forms(Bound *x, int kind, int n, const char *what);
#endif
