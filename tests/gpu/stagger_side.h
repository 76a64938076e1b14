/* Helpers for the tests of staggered rules on a GPU. */
#ifndef OPTC_STAGGER_SIDE_H
#define OPTC_STAGGER_SIDE_H
#include "tests/gpu/device_side.h"

/* The last rule has no products. stagger_few: as few matrices as show it, since the emulated GPU
 * takes a second for each step of all of them. */
enum { STAGGER_RULES = 4 };
extern const char *const stagger_rules[STAGGER_RULES];
extern const TestShape stagger_shapes[NSHAPES], stagger_few[NSHAPES];

/* Sides of one rule on the CPU and on the GPU. */
void open_both(Side *c, Side *g, int rule);
void close_both(Side *c, Side *g);

/* One step, with its calls of the driver counted. */
extern int graphs, uploads, launches, waits;
void counted_step(Side *g);
/* The same step with lists that are built for it alone, launch by launch. */
void step_without_lists(Side *g);
/* Sides a and b have one rule: a keeps its lists, b does not. step_kept counts the driver's calls
 * of a. */
void open_kept(Side *a, Side *b, const char *text);
void step_kept(Side *a, Side *b, int step);

/* the list of this kind that was used last; NULL: none */
LaunchList *list_of(const Side *g, ListUse use);
int64_t held_graphs(const Side *g);
optc_factors factors_of(const Side *g);
#endif
