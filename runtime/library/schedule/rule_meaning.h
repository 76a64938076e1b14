/* The meaning of a rule on whole tensors: the value that each stage reads and writes. */
#ifndef OPTC_RULE_MEANING_H
#define OPTC_RULE_MEANING_H
#include "runtime/core/base/core.h"

/* of the hash of a value: what arrays hold before a run; a fold of a part of its operands */
enum { NAME_START = 4, NAME_PART = 5 };
/* The value of an array per owner: a tensor, or behind those a group. Partials of a fold over
 * tensors have one per tensor. now: by array; of: of the arrays that a stage reads and writes, when
 * it ran; first: by stage, the first of these */
typedef struct Meaning {
    const Program *p;
    const optc_binding *b;
    int owners, *first;
    uint64_t *now, *of;
} Meaning;

bool meaning_make(Meaning *m, const optc_binding *b);
void meaning_free(Meaning *m);
/* Runs the actions of a phase of the rule, from the names that arrays have before it. */
void meaning_run(const Meaning *m, const ProgPhase *ph);
int meaning_owner(const Meaning *m, int array, int tensor);
/* by owner: the values of array `nth` of a stage, of its reads, then of its writes */
uint64_t *meaning_names(const Meaning *m, int stage, int nth);
#endif
