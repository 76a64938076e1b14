/* Functions that several public functions use, and that checkpoints and the library call. */
#ifndef OPTC_CORE_API_H
#define OPTC_CORE_API_H
#include "runtime/core/bind/bind.h"
#include "runtime/core/schedule/schedule_ops.h"
#include "runtime/core/shard/shards.h"

/* ---- bind.c, shard_plan.c, introspect.c ---- */
/* bind.c: everything but the device's memory */
CORE optc_status bind_plan(optc_rule *r, const optc_group *groups, int ngroups,
                           const optc_comm *comm, PlanKind plan, optc_binding **out);
/* shard_plan.c: the same of tensors that are never allocated, cut along dimension 0. sharded: also
 * if ranks is 1 */
typedef struct RankPlan { int rank, ranks; bool sharded; PlanKind kind; } RankPlan;
CORE optc_status bind_rank_plan(optc_rule *r, const optc_group *groups, int ngroups,
                                const RankPlan *x, optc_binding **out);
/* after tensors are filled; sets optc_binding.warning */
CORE void warn_stacks(optc_binding *b);

/* ---- alias_check.c ---- */
CORE optc_status check_params_apart(optc_binding *b);
/* an array that a step reads must not overlap a parameter or a state, which the step writes */
CORE optc_status check_overlap(const optc_binding *b, int tensor, const void *data, int64_t bytes,
                               const char *what);

/* ---- caller_states.c ---- */
CORE int span_order(const void *a, const void *b);         /* for qsort: by address */
CORE optc_status check_states_apart(optc_binding *b);
CORE optc_status bind_caller_states(optc_binding *b, int tensor, void *const *states);
/* the tensor of a caller-owned state that overlaps [lo, hi); -1: none does */
CORE int caller_state_at(const optc_binding *b, uintptr_t lo, uintptr_t hi);

/* ---- step_cohorts.c ---- */
/* The participation mask of an entry: variants whose stages read a gradient in any phase. */
CORE unsigned gradient_variants(const Program *p, int entry);
CORE optc_status cohort_make(optc_binding *b, Group *g, int of, bool idle);
CORE optc_status cohorts_prepare(optc_binding *b);
/* cohorts and participation are right for the entry. If not, call cohorts_catch_up, then
 * cohorts_arrange, before a run */
CORE bool cohorts_settled(const optc_binding *b, int entry);
CORE optc_status cohorts_arrange(optc_binding *b, int entry);
CORE void cohorts_stepped(optc_binding *b);                 /* a step was executed */
CORE optc_status cohorts_catch_up(optc_binding *b);
#define MOST_T ((int64_t)1 << 52)
/* the steps of a tensor; now: the binding's, of Device.get_t */
CORE int64_t tensor_steps(const optc_binding *b, int tensor, int64_t now);
/* of the binding, then of its tensors */
CORE optc_status put_steps(optc_binding *b, const int64_t *steps);

/* ---- engine_api.c ---- */
CORE bool parse_size(const char *s, int64_t *out);          /* engine_api.c: "512M", "0" */
/* Reads a device name: NULL or "cpu", "cuda", "cuda:1", "best". No other function parses device
 * names. */
typedef enum DeviceKind { DEVICE_CPU, DEVICE_GPU, DEVICE_BEST } DeviceKind;
/* ordinal: GPUs only */
typedef struct DeviceName { DeviceKind kind; int ordinal; } DeviceName;
/* false: no device has such a name */
CORE bool device_parse(const char *text, DeviceName *out);

/* ---- device_scalars.c ---- */
/* before a run: the host reads the guard and the scalars that are its task to read; it waits for a
 * device whose memory it cannot access. skip: the guard is set, the run must do nothing */
CORE optc_status device_scalars_read(optc_binding *b, bool *skip);
CORE optc_status device_scalar_now(const optc_binding *b, const DeviceScalar *s, const char *call,
                                   double *out);
/* the error of a capture that cannot contain the guard */
CORE optc_status guard_refused(const optc_binding *b);
/* NULL: none */
CORE const DeviceScalar *hyper_device_scalar(const optc_binding *b, int group, int at);
/* group -1: all */
CORE void drop_device_scalars(optc_binding *b, int group, int at, int input);
/* was set, or is read from memory */
CORE bool scalar_known(const optc_binding *b, int group, int input);
/* after a run, which read all of them */
CORE void device_scalars_done(optc_binding *b);

/* ---- connect.c ---- */
CORE bool is_shared_input(const ProgArray *m);              /* a value of one of several bindings */
CORE optc_status check_bindings(const char *call, optc_binding *const *b, int n);
/* if the entry needs values of connected bindings, the list of an optc_run_all has all of them */
CORE optc_status check_lists(optc_binding *const *b, int n, const char *entry);
/* it is connected with other processes */
CORE bool connection_ranks(const optc_binding *b);
/* after the entries of a level, of which so_far says how they ended: the ranks exchange their
 * values */
CORE optc_status connection_gather(optc_binding *b, optc_status so_far);
/* the values that the entry needs are there */
CORE optc_status check_round(const optc_binding *b, int entry);
CORE void round_ran(optc_binding *b, int entry);
/* the host read its guard, which is set */
CORE void round_skipped(optc_binding *b, int entry);
CORE void round_end(optc_binding *b);
/* of all of its bindings; does nothing if it has none */
CORE void connection_end(optc_binding *b);
/* the input is another binding's state */
CORE bool connection_reads(const optc_binding *b, int array);

/* ---- step.c ---- */
CORE int find_entry(const optc_binding *b, const char *name);           /* -1: none */
/* counts a run that succeeded */
CORE void entry_ran(optc_binding *b, int entry, int phase);
/* the next run of the entry needs nothing of the host but the launch: inputs and participation are
 * as before */
CORE bool entry_steady(const optc_binding *b, int entry);
/* Bytes that one stage of a batch (-1: of all tensors) moves by the plan. present: of
 * the tensors that take part in the current run, otherwise of all */
CORE void add_bytes(const optc_binding *b, const ScheduleOp *op,
                    const StaggerNow *stagger, bool present, optc_bytes *out);
/* sets hyperparameter `at` of a group (-1: all groups) on the device and in Group.hyper, of its
 * cohorts too; all or none */
CORE optc_status put_hyper(optc_binding *b, int group, int at, double value, const char *call);

/* ---- state_access.c ---- */
CORE optc_status has_state(const optc_binding *b, const char *call, int tensor, const char *name,
                           int *has);
CORE optc_status find_input(const optc_binding *b, const char *call, const char *name, bool group,
                            int *out);
/* coded_start.c: after the device has filled all states */
CORE optc_status coded_states_start(optc_binding *b);

/* ---- lower_states.c ---- */
/* n values of a state from index `at` on, of a plain type with so many bytes; maybe unaligned.
 * label: the tensor */
typedef struct NewValues {
    const char *call, *label; int type, bytes; const void *data; int64_t at, n;
} NewValues;
/* Refuses values right of the diagonal of a state that is a lower triangle. s: the shape of the
 * tensor that holds it */
CORE optc_status check_lower(const ProgArray *m, Shape s, const NewValues *x);
#endif
