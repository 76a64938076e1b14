/* The grid of storage types: every rule of the library in every set of types.
 * tests/unit/test_type_grid.c compares it with the evaluator, tests/gpu/test_gpu_types.c the GPU
 * with the CPU. */
#ifndef OPTC_TYPE_GRID_H
#define OPTC_TYPE_GRID_H
#include <stdbool.h>

enum { NGRID = 14 };
extern const char *const grid_types[NGRID];
/* Sets that are refused for every rule; part: of the message. */
typedef struct RefusedTypes { const char *types, *part; } RefusedTypes;
extern const RefusedTypes grid_refused[];      /* ends with NULL */

int grid_rules(void);
const char *grid_rule(int i);
/* Case i of the grid: rule i / NGRID in set i % NGRID. `make test` runs `share` cases of each rule,
 * other ones for each rule; OPTC_ALL=1: all. False: not this one. */
bool grid_runs(int i, int share);
bool grid_products(const char *rule);          /* the rule has products or factors of matrices */
#endif
