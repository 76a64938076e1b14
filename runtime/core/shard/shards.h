/* Functions of sharded bindings that other folders call. For bindings that are not sharded they do
 * nothing. */
#ifndef OPTC_CORE_SHARDS_H
#define OPTC_CORE_SHARDS_H
#include "runtime/core/base/core.h"

/* makes the derived program and the extra entries; after tensors are filled */
CORE optc_status shards_make(optc_binding *b, const optc_comm *comm, optc_status so_far);
/* instead of shards_make: tells the other ranks that this one cannot bind; returns s with its
 * message */
CORE optc_status shards_refuse(const optc_rule *r, const optc_comm *comm, optc_status s);
/* memory for buffers and copies, from this offset on */
CORE int64_t shards_bytes(optc_binding *b, int64_t at);
/* after the tensors' pointers are set */
CORE void shards_point(optc_binding *b);
/* after cohorts or participation changed */
CORE void shards_update(optc_binding *b);
/* after one pointer changed */
CORE void shards_moved(optc_binding *b, int tensor, int array);
/* before states that copy p are filled */
CORE optc_status shards_send_params(optc_binding *b);
/* before a run: the ranks compare gradients, guards (skip) and whether each of them can run */
CORE optc_status shards_begin(optc_binding *b, int entry, int phase, optc_status so_far, bool skip);
/* this rank cannot run, though shards_begin succeeded; returns why */
CORE optc_status shards_refuse_run(optc_binding *b, int entry, int phase, optc_status why);
CORE int shards_variant(const optc_binding *b, int tensor);                 /* of the rule */
CORE void shards_exchange(const optc_binding *b, int number);              /* on the CPU */
CORE optc_status exchange_run(const optc_binding *b, int number);
/* after a run: how the exchanges ended */
CORE optc_status shards_end(optc_binding *b);
CORE bool shards_move(const optc_binding *b, int array);    /* some exchange moves the array */
/* the group of tensors that an entry is exchanged with; 0 if exchanges do not run beside
 * computation */
CORE int shards_group(const optc_binding *b, int entry);
/* how binding ended on all ranks */
CORE optc_status shards_agree(optc_binding *b, optc_status s);
CORE optc_status shards_gather(const optc_binding *b, const void *own, void *all, size_t bytes);
/* the number of ranks, 1: not sharded; rank: this one */
CORE int shards_ranks(const optc_binding *b, int *rank);
/* variants of the rule, with their roles */
CORE unsigned shards_roles(const optc_binding *b, unsigned variants);
/* the entry that holds a state of a bound tensor; -1: another rank holds it */
CORE int shards_state_entry(const optc_binding *b, int tensor, int array);
/* optc_params_changed: refuses a state that one rank holds for all pieces */
CORE optc_status shards_check_restart(const optc_binding *b, int tensor, int array);
#endif
