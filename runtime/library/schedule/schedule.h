/* Schedules (runtime/core/schedule) as text, and their verification. */
#ifndef OPTC_SCHEDULE_H
#define OPTC_SCHEDULE_H
#include "gen/gen.h"
#include "runtime/core/base/core.h"

/* The names of values, by op: those that the op reads, then those that it writes (an exchange: its
 * items). The memory is the arena's. */
const char ***schedule_names(Arena *a, const optc_binding *b, const Schedule *s);

/* The variant of the binding's program whose tensors the op covers; -1: all tensors, or groups. */
static inline int schedule_role(const ScheduleOp *op)
{
    return op->units ? op->stage->variant : -1;
}

/* Executes the steps of all calls for one matrix of each group on a memory of written bytes. An
 * area holds nothing at the beginning. Refused: a read of what no step before has written into that
 * area, a step that reaches beyond its area or array, an array that the stage does not name, a
 * result that is not written, and areas that overlap, also with arrays or with those of a call that
 * runs side by side. */
optc_status calls_verify(const optc_binding *b);

/* The schedules of all entries and phases of a binding. */
void schedule_print(Buf *to, const optc_binding *b);

/* A binding of tensors that are never allocated, as it would be on rank `rank` of `ranks`, cut
 * along dimension 0. It runs nothing. gpu: the program is for a GPU; calls: the steps of its calls
 * are made too. workspace 0: 1 GiB. apart: its temporaries share no memory. Call schedule_plan_free
 * in any case. */
typedef struct ScheduleOf {
    const optc_tensor *tensor;
    int ntensor;
    int rank, ranks;
    int64_t workspace;
    bool gpu, calls;
} ScheduleOf;
typedef struct SchedulePlan {
    optc_engine engine;
    optc_rule rule;
    optc_binding *binding;
    struct PlannedGpu *gpu;            /* NULL: the plan is for a CPU */
} SchedulePlan;
optc_status schedule_plan(const Program *p, const ScheduleOf *of, bool apart, SchedulePlan *out);
void schedule_plan_free(SchedulePlan *x);

/* Verifies the schedules of a rank: executed on a memory of names, every stage, copy and exchange
 * reads what it would read if the actions of the phase ran in the program's order and no
 * temporaries shared memory. Exchanges in the second stream run once as early and once as late as
 * they may. Of ops that may run side by side none writes what another uses. Returns
 * OPTC_ERROR_SPEC, with the op and the array in the message, if it is not so. */
optc_status schedule_verify(const Program *p, const ScheduleOf *of);
/* The same for a binding whose schedules, batches or layout may have been changed, for tests. x is
 * PLAN_APART. */
optc_status schedule_compare(const optc_binding *b, const optc_binding *x);

/* Verifies all ranks together: their schedules run on memories of names, and exchanges move names
 * between these. Every stage reads the values, and of them the bytes, that the rule means on the
 * whole tensors, and so are the results. of->rank is not used. */
optc_status schedule_verify_ranks(const Program *p, const ScheduleOf *of);
/* The same for the bindings of all ranks, for tests. */
optc_status schedule_compare_ranks(optc_binding *const *b, int ranks);
#endif
