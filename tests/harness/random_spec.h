/* Specs generated from a seed: several entries with several statements each, over many domains,
 * with reductions, `every`, draws and branches. With `products`, half of the specs that have rows
 * and columns have products too; their bits depend on the BLAS. */
#ifndef OPTC_TESTS_RANDOM_SPEC_H
#define OPTC_TESTS_RANDOM_SPEC_H
#include <stdbool.h>
#include <stdint.h>

enum { RANDOM_ENTRIES = 8 };               /* lower bound */
/* malloc'ed; has the input "h" with one value per element */
char *random_spec(uint64_t seed, bool products);
/* malloc'ed; values over rows x rows and cols x cols and along one of these axes. block: block
 * size, or 0 */
char *random_squares(uint64_t seed, bool products, int block);
/* malloc'ed; the same with powers, triangles, solutions and orders */
char *random_factors(uint64_t seed, int block);
/* malloc'ed; one pass over a matrix that folds `cols` column sums and `sums` tensor sums */
char *crowded_spec(int cols, int sums);
const char *random_wrapper(uint64_t seed); /* wrappers for this seed, or "" */
#endif
