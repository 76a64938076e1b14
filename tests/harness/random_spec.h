/* Specs made of a seed: several entries of several statements each, over many domains, with reductions, `every`, draws
 * and branches; with `products` half of those that have rows and columns have products too: their bits are a library's
 * own. */
#ifndef OPTC_TESTS_RANDOM_SPEC_H
#define OPTC_TESTS_RANDOM_SPEC_H
#include <stdbool.h>
#include <stdint.h>

enum { RANDOM_ENTRIES = 8 };               /* at least */
char *random_spec(uint64_t seed, bool products);   /* malloc'ed; it has the input "h", one for each element */
/* malloc'ed; block 0: none; rows x rows and cols x cols values and what lies along one of their axes */
char *random_squares(uint64_t seed, bool products, int block);
char *random_factors(uint64_t seed, int block);    /* malloc'ed; likewise with powers, triangles, solutions, orders */
/* malloc'ed; one pass over a matrix folds so many columns and so many sums of the tensor */
char *crowded_spec(int cols, int sums);
const char *random_wrapper(uint64_t seed); /* what to put around it, or "" */
#endif
