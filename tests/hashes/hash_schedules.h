#ifndef HASH_SCHEDULES_H
#define HASH_SCHEDULES_H
#include "tests/hashes/hash_memory.h"

/* Prints the hashes of a rule: 25 steps, with a guard, three bindings, three ranks, several
 * batches, and on a GPU captured. e: opened with o */
void print_schedules(optc_engine *e, const optc_engine_options *o, const char *rule);
#endif
