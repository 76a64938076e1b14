/* Memory that the steps of calls on a GPU read and write. */
#ifndef OPTC_CALL_USES_H
#define OPTC_CALL_USES_H
#include "runtime/library/schedule/schedule.h"

#include "runtime/core/matrix/gpu_calls.h"

/* `rows` rows, each of `bytes` bytes and `apart` bytes after the last, from byte `at` of matrix
 * `set` on; lower: row i has only i + 1 values of `value` bytes. whole: all of an array, as far as
 * it is used. first: the operand's first rows, others follow */
typedef struct StepUse {
    int set;
    bool writes, lower, whole, first;
    int64_t at, rows, bytes, apart, value;
} StepUse;
typedef void UseFn(void *ctx, const StepUse *u);
void step_uses(const optc_binding *b, const CallStep *s, UseFn *fn, void *ctx);
int64_t set_value_bytes(const optc_binding *b, int set);
/* Bytes of a matrix of the set, from its first value on. */
int64_t set_matrix_bytes(const optc_binding *b, int set);
#endif
