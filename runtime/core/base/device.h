/* The tables of functions that differ between devices, and between the library and a package. */
#ifndef OPTC_CORE_DEVICE_H
#define OPTC_CORE_DEVICE_H
#include "gen/abi/stage_abi.h"
#include "runtime/optc.h"
#include "gen/abi/program.h"

typedef struct Device Device;
typedef struct Host Host;

/* A pending change of participation and cohorts, for entries whose participation mask is `mask`.
 * any: something changes; takes: a free cohort comes into use; grows: more cohorts are needed than
 * exist */
typedef struct Participation { unsigned mask; bool any, takes, grows; } Participation;

/* Copies `rows` runs of `bytes` bytes. The runs of each side are `pitch` bytes apart. */
typedef struct MemoryCopy { void *to; const void *from; size_t bytes, rows, pitch; } MemoryCopy;

/* One entry of one binding, of those that optc_run_all runs. Tasks of one level are independent of
 * each other, and depend on all tasks of the levels before. In the order in which they are run one
 * by one. */
typedef struct JointTask { optc_binding *b; int entry, phase, level; } JointTask;
enum { MOST_JOINT = 64 };                  /* tasks of one optc_run_all that can be one graph */

struct Device {
    const char *name;
    /* allocates memory, initialises states, makes tables; groups and tensors are already filled */
    optc_status (*bind)(optc_binding *b);
    /* also after a bind that failed half-way */
    void (*unbind)(optc_binding *b);
    optc_status (*run)(optc_binding *b, int entry, int phase);
    optc_status (*sync)(optc_binding *b);
    /* checks that the device can reach p, which replaces `was` */
    optc_status (*use_pointer)(optc_binding *b, int tensor, const void *was, const void *p,
                               const char *what);
    void (*set_stream)(optc_binding *b, void *stream);
    optc_status (*read)(const optc_binding *b, void *host, const void *from, size_t bytes,
                        const char *call);
    optc_status (*write)(const optc_binding *b, void *to, const void *host, size_t bytes, bool wait,
                         const char *call);
    /* sets n doubles, `pitch` bytes apart, to `value`: all of them, or none and an error */
    optc_status (*spread)(const optc_binding *b, void *to, size_t pitch, int n, double value,
                          const char *call);
    /* sets hyperparameter `at` of n groups on the device, all or none. After success the caller
     * updates Group.hyper */
    optc_status (*send_hyper)(const optc_binding *b, int first, int n, int at, double value,
                              const char *call);
    /* steps of the binding, including replays of captured steps that the host did not see */
    optc_status (*get_t)(const optc_binding *b, int64_t *steps);
    optc_status (*set_t)(optc_binding *b, int64_t steps);    /* for all cohorts */
    /* memory for additional cohorts, freed with the binding */
    optc_status (*alloc_cohorts)(optc_binding *b, size_t bytes, void **out);
    /* ncohort has grown. A failure frees what alloc_cohorts returned last */
    optc_status (*grown)(optc_binding *b);
    /* cohorts or participation changed; moved: pointers changed too */
    void (*arranged)(optc_binding *b, bool moved);
    /* called before such a change, may refuse it; NULL: always allowed */
    optc_status (*may_change_participation)(const optc_binding *b, const Participation *c);
    /* idle cohorts that a binding starts with */
    int spare_cohorts;
    optc_status (*memory)(optc_engine *e, optc_memory *out);
    /* the host can access the device's memory */
    bool reaches;
    /* the device shall read this number before every run; NULL: the host reads it
     * (device_scalars.c) */
    optc_status (*read_ahead)(optc_binding *b, const void *from, bool guard, const char *call);
    /* bytes of scratch memory for calls, which use it one after another; NULL: 0. Must not depend
     * on the number of threads or on free memory: it decides which matrices share a call, and with
     * that bits */
    int64_t (*call_bytes)(const optc_binding *b);
    /* sharded bindings: gathers host memory of all ranks when binding; runs an exchange */
    optc_status (*gather)(optc_engine *e, const optc_comm *c, const void *own, void *all,
                          size_t bytes);
    optc_status (*exchange)(const optc_binding *b, int number);
    /* memory for callers (device_memory.c). take: not initialised. give: refused calls free
     * nothing. fills: `to` is memory of this device */
    optc_status (*take)(optc_engine *e, size_t bytes, void *stream, void **out);
    optc_status (*give)(optc_engine *e, void *memory, size_t bytes, void *stream);
    optc_status (*fills)(optc_engine *e, const void *to);
    optc_status (*set)(optc_engine *e, void *to, int byte, size_t bytes, void *stream);
    optc_status (*copy)(optc_engine *e, const MemoryCopy *c, void *stream);
    /* copies n numbers of 8 bytes to `send`, and gathers those of all ranks, with one more number,
     * to `recv`. Not 0: it failed */
    int (*gather_values)(optc_binding *b, const optc_comm *c, void *const *from, int n, void *send,
                         void *recv);
    /* begins: the bindings other than b[lead] run beside it from here on; otherwise: ends that,
     * also after an error.
     * NULL: bindings run one after another */
    optc_status (*beside)(optc_binding *const *b, int n, int lead, bool begins);
    /* The tasks of an optc_run_all as one graph. ran false: launches it if there is one that still
     * fits, and sets *done. ran true: the tasks ran one by one, and may be the same next time:
     * makes their graph. NULL: none */
    optc_status (*joint)(const JointTask *task, int n, bool ran, bool *done);
    /* sharded bindings: this rank cannot run, or (why OPTC_OK) a guard skips its run. Marks that
     * for the other ranks, which have not waited for it. Returns `why`, with its message. NULL: all
     * ranks compare before a run (shards_begin) */
    optc_status (*refuse)(optc_binding *b, int entry, int phase, optc_status why);
    /* its stream is being captured; NULL: never */
    bool (*capturing)(const optc_binding *b);
    bool overlaps;                     /* exchanges can run beside stages (shard_overlap.c) */
};

struct GpuCode;
struct KernelNeeds;
struct FunctionForm;
struct MatrixKit;
struct Host {
    /* lowest CUDA version of the driver that its code needs, such as 13000; 0: DRIVER_NEEDED is
     * enough */
    int cuda;
    /* small blocks come from the GPU's memory pool: cheap by the thousand, but a process's first
     * use takes some 8 ms */
    bool pooled;
    /* ordinal of the GPU that the device name "best" means; -1: the CPU */
    int (*best)(const optc_engine_options *o);
    /* sets e->library; the device is open */
    optc_status (*open)(optc_engine *e, const optc_engine_options *o);
    /* also after an open that failed half-way; the device is still open */
    void (*close)(optc_engine *e);
    /* sets program, fn, library */
    optc_status (*make)(optc_rule *r, const optc_rule_options *o);
    /* also after a make that failed half-way */
    void (*drop)(optc_rule *r);
    /* how the rule runs, for users */
    void (*path)(const optc_rule *r, char *buf, size_t n);
    /* the rule's kernels, with launches for this number of elements */
    optc_status (*code)(optc_rule *r, int64_t elements, const struct GpuCode **out);
    /* Code for a binding with runs: of a CPU rule in fn, of a GPU rule in code. NULL: the host has
     * none */
    optc_status (*runs)(optc_binding *b, const struct GpuCode **code, const optc_stage_fn **fn);
    /* loads these kernels into `code`, which may leave kernels out; NULL: it never does. call: in
     * messages */
    optc_status (*load)(optc_rule *r, const struct GpuCode *code, const struct KernelNeeds *need,
                        const char *call);
    /* sharded bindings of several ranks on GPUs: passes what rank 0 measured to all ranks; NULL:
     * nothing is passed */
    optc_status (*share)(optc_binding *b);
    /* called after binding; may be NULL */
    void (*bound)(optc_binding *b);
    /* names of its rules; NULL: no more */
    const char *(*rule_name)(int i);
    /* Matrices without a rule (runtime/core/functions). function: the rule of a function. kernels:
     * loads the kernels of a MatrixKernel into the kit, inside gpu_enter. NULL: the host has no
     * such functions */
    optc_status (*function)(optc_engine *e, const struct FunctionForm *f, optc_rule **out);
    optc_status (*kernels)(optc_engine *e, struct MatrixKit *k, int which);
    /* it compiles no rules */
    bool packed;
};
#endif
