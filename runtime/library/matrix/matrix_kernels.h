/* The library's Host.function and Host.kernels: functions of matrices, and kernels for them,
 * without a rule. */
#ifndef OPTC_MATRIX_KERNELS_H
#define OPTC_MATRIX_KERNELS_H
#include "runtime/library/internal.h"

struct FunctionForm;
struct MatrixKit;
optc_status library_function(optc_engine *e, const struct FunctionForm *f, optc_rule **out);
optc_status library_kernels(optc_engine *e, struct MatrixKit *k, int which);
#endif
