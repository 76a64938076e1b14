/* A schedule: everything that a run of one entry does in one phase, as a flat list of ops in the
 * order in which a run issues them. Today it is made from a binding's tasks
 * (runtime/core/memory/tasks.c), for reading and for checks; the devices run the tasks themselves.
 */
#ifndef OPTC_SCHEDULE_H
#define OPTC_SCHEDULE_H
#include "gen/gen.h"
#include "runtime/core/base/core.h"

typedef enum {
#define SCHEDULE_OP(ID, ...) SCHEDULE_##ID,
#include "gen/abi/schedule.def"
    NSCHEDULEOP
} ScheduleKind;

/* Arrays are numbers of Program.array. name: what the arrays hold here, of reads, then of writes */
typedef struct ScheduleOp {
    ScheduleKind kind;
    int what;       /* LAUNCH, CALL: the stage; EXCHANGE, WAIT: the exchange; else -1 */
    int role;       /* variant of the binding's program; -1: all tensors, or the group */
    int batch;      /* -1: all tensors of the role */
    unsigned slots; /* a bit per array of slots: only tensors that one of these schedules; 0: all */
    int stream;     /* 1: the stream of exchanges */
    const int *reads, *writes;
    int nreads, nwrites;
    const char **name;
    const char *where; /* "adamw.lua:12", or "" */
} ScheduleOp;

typedef struct Schedule {
    int entry, phase;
    ScheduleOp *op;
    int n;
} Schedule;

/* The schedule of an entry in a phase; its memory is the arena's. */
Schedule schedule_from_tasks(Arena *a, const optc_binding *b, int entry, int phase);

/* The schedules of all entries and phases of a binding. */
void schedule_print(Buf *to, const optc_binding *b);

/* A binding of tensors that are never allocated, as it would be on rank `rank` of `ranks`, cut
 * along dimension 0. It runs nothing. gpu: the program is for a GPU. workspace 0: 1 GiB. apart: its
 * temporaries share no memory. Call schedule_plan_free in any case. */
typedef struct ScheduleOf {
    const optc_tensor *tensor;
    int ntensor;
    int rank, ranks;
    int64_t workspace;
    bool gpu;
} ScheduleOf;
typedef struct SchedulePlan {
    optc_engine engine;
    optc_rule rule;
    optc_binding *binding;
} SchedulePlan;
optc_status schedule_plan(const Program *p, const ScheduleOf *of, bool apart, SchedulePlan *out);
void schedule_plan_free(SchedulePlan *x);

/* Verifies the tasks of a rank: executed on a memory of names, every stage, copy and exchange reads
 * what it would read if the actions of the phase ran in the program's order and no temporaries
 * shared memory. Exchanges in the second stream run once as early and once as late as they may.
 * Returns OPTC_ERROR_SPEC, with the op and the array in the message, if it is not so. */
optc_status schedule_verify(const Program *p, const ScheduleOf *of);
/* The same for a binding whose tasks, batches or layout may have been changed, for tests. x is
 * PLAN_APART. */
optc_status schedule_compare(const optc_binding *b, const optc_binding *x);
#endif
