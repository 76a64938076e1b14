/* Limits that the environment sets (limit_variables.c). */
#ifndef OPTC_LIMIT_VARIABLES_H
#define OPTC_LIMIT_VARIABLES_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum LimitVariable {
    LIMIT_CC_SECONDS, LIMIT_CC_MEMORY, LIMIT_CACHE_MAX, LIMIT_VARIABLES
} LimitVariable;
/* false: the variable is not set, is empty or cannot be read, and *out is unchanged. 0 means no
 * limit. */
bool limit_seconds(LimitVariable v, double *out);
bool limit_size(LimitVariable v, int64_t *out);
/* it cannot be read; why: for messages */
bool limit_wrong(LimitVariable v, char *why, size_t n);
#endif
