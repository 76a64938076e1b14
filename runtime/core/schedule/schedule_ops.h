/* Schedules of a binding: what each entry does in each phase. */
#ifndef OPTC_CORE_SCHEDULE_OPS_H
#define OPTC_CORE_SCHEDULE_OPS_H
#include "runtime/core/base/core.h"

CORE optc_status schedules_make(optc_binding *b);
CORE const Schedule *schedule_of(const optc_binding *b, int entry, int phase);
/* Ops that are not ordered, also not by way of others, may run side by side. Longer schedules run
 * one op after another. */
enum { MOST_SIDE_BY_SIDE = 64 };
CORE bool ops_ordered(const optc_binding *b, const ScheduleOp *x, const ScheduleOp *y);
OPTC_COUNT bool op_of_ranks(const ScheduleOp *op) { return op->kind >= SCHEDULE_EXCHANGE; }
#endif
