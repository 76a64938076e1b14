/* Rules on an NVIDIA GPU: each stage is a kernel, with one launch over all tensors.
 *
 *   GpuCode     a rule's kernels for one choice of launches, by stage number. The host makes them
 *   GpuTables   the binding's tables on the device: views, pointers, hyperparameters with t, lists
 *               of units. The binding has the host's copy. Changed pointers are sent before the
 *               next step, hyperparameters when they are set
 *   LaunchList  what one run launches: items, or the graph of several other lists. From its second
 *               run on it is a CUDA graph, which costs the host one call. ListUse has its kinds,
 *               and gpu_list_cache.c keeps those that are not made when binding
 *
 * Only binding, reading of states and optc_sync wait for the device. */
#ifndef OPTC_CORE_GPU_H
#define OPTC_CORE_GPU_H
#include "runtime/core/bind/bind.h"
#include "runtime/core/cuda/gpu_engine.h"
#include "runtime/core/schedule/schedule_ops.h"
#include "runtime/core/shard/shards.h"

/* A tuned method in a package. Methods are measured for one number of matrices, METHOD_ROOTS or
 * METHOD_VECTORS: results must not depend on how many matrices a binding steps. */
typedef struct KnownMethod { int roots, f64, power, bucket, method; } KnownMethod;
/* range of powers of rows; METHOD_REACH: how many buckets away a result is still used */
enum {
    METHOD_LEAST = 3, METHOD_MOST = 12, METHOD_ROOTS = 256, METHOD_VECTORS = 1, METHOD_REACH = 2
};

/* fn: by ProgStage.fn. call: by CallKernel, for rules with calls; KERNEL_PHASE is NULL where
 * conditional nodes are not available. Other kernels, except advance_t and read_ahead, are NULL
 * until Host.load has loaded them.
 * empty_symmetric: the kernels of gpu_symmetric.c do nothing: the code is PTX, or of an NVRTC
 * before HALVES_NEEDED.
 * read_ahead, move, agree: GUARD_KERNEL, MOVE_KERNEL and AGREE_KERNEL; NULL in packages from before
 * they existed. */
typedef struct GpuCode {
    Launch *launch;
    CUfunction *fn, advance_t, read_ahead, move, agree, call[NCALLKERNEL];
    bool empty_symmetric;
} GpuCode;
enum { HALVES_NEEDED = 12040 };            /* templates/hopper_cuda.txt has the reason */
/* Kernels that a binding launches. fn: by ProgStage.fn, nfn of them. shards: move and agree.
 * meanwhile: unless NULL, the host calls it with `b` while other threads load or compile
 * kernels. */
typedef struct KernelNeeds {
    const bool *fn; int nfn;
    bool call[NCALLKERNEL], shards;
    void (*meanwhile)(optc_binding *b);
    optc_binding *b;
} KernelNeeds;
#define GUARD_KERNEL "optc_guard"
#define MOVE_KERNEL "optc_move"
#define AGREE_KERNEL "optc_agree"

/* optc_launch of templates/cuda_helpers.h */
typedef struct Args {
    CUdeviceptr views, mem, units; long long count; int guard, advance_t; Brief brief;
} Args;
/* An op of the schedule on a GPU. blocks 0: nothing is launched. op NULL: a kernel outside of any
 * schedule. stage: op->stage. scheduled: only matrices that a slot schedules */
typedef struct LaunchItem {
    const ScheduleOp *op;
    const ProgStage *stage;
    CUfunction fn; unsigned blocks, threads; Args args;    /* ADVANCE, LAUNCH */
    const struct GpuCall *call; bool scheduled;            /* CALL */
} LaunchItem;
/* A graph of n consecutive items of a list, or NULL: they are launched one by one */
typedef struct Segment { int first, n; CUgraphExec exec; } Segment;
typedef struct Unit { int tensor, unit; } Unit;    /* optc_unit of templates/cuda_helpers.h */

/* The pointers of staggered calls over the scheduled matrices (gpu_call_slots.c). at: by set, the
 * index of its first pointer; now: by group, how many matrices. moves: the number of changes of
 * pointers that they contain */
typedef struct CallSlots {
    int64_t npointer, *at, *now; CUdeviceptr addresses, pointers; unsigned moves;
} CallSlots;
/* optc_source and optc_guard_args of templates/stage_cuda.txt */
typedef struct GuardScalar { CUdeviceptr from, to; int wide, at, group; } GuardScalar;
typedef struct GuardArgs {
    CUdeviceptr views, groups, guard, told;
    long long nview, ncohort;
    int wide, counts, lets, nsource;
    GuardScalar source[OPTC_SOURCES];
} GuardArgs;
typedef struct GuardLaunch { GuardArgs args; unsigned blocks; } GuardLaunch;

/* The work that a launch list covers:
 *   ALL     all units of an entry in a phase. Made when binding: GpuTables.launch_list
 *   SLOTS   the units of a combination of stagger slots (gpu_stagger.c)
 *   ONCE    the same, for one step: no later step finds it
 *   BODY    the same, for the body of a conditional node: it has no graph of its own
 *   REGION  an entry in all phases: the device selects one of several lists, its bodies, by t
 *           (gpu_conditional.c)
 *   JOINT   entries of several bindings (gpu_joint_graph.c) */
typedef enum { LIST_ALL, LIST_SLOTS, LIST_ONCE, LIST_BODY, LIST_REGION, LIST_JOINT } ListUse;
/* Two lists of a cache with equal keys launch the same. task: n of them; JOINT: more than one.
 * now: SLOTS, ONCE and BODY */
typedef struct ListKey { ListUse use; int n; const JointTask *task; StaggerNow now; } ListKey;

/* NODE_BYTES: of a graph's node, which CUDA does not report: 2 KB on the device and 5 KB on the
 * host (H200, CUDA 13, graphs of 1000 to 20000 kernels) */
enum { NODE_BYTES = 7168 };
/* segment: graphs, from the second run on: one of the whole list, or, if no graph can contain some
 * items (apart), of those between them. calls, stagger: the list contains such items. probed: its
 * calls have found the memory that they need. nodes: of its graphs.
 *
 * Lists in a cache: memory: work lists, then the pointers of calls; REGION: the table of bodies.
 * host: bytes of the list itself; held: these, those of memory and graphs, as counted in
 * optc_held.graphs. used: the binding's step count at its last use. body: of REGION, its own
 * (BODY) or those of all units (ALL).
 * JOINT: guard: the launches that read guards and device scalars, of all tasks. They contain
 * addresses of the caller, which may change between runs. changed: this run's guards differ from
 * those of the last one. failed: its graph cannot be made */
typedef struct LaunchList {
    struct LaunchList *next;
    ListKey key;
    LaunchItem *item;
    int n, runs, nsegment;
    bool apart, calls, stagger, probed, failed, changed;
    Segment *segment;
    int64_t nodes;
    CallSlots slots;
    CUdeviceptr memory; size_t bytes, host;
    int64_t held, used;
    struct LaunchList **body; int nbody;
    GuardLaunch *guard; int nguard;
} LaunchList;

typedef struct GpuTables {
    const GpuCode *code;
    CUstream stream;
    CUdeviceptr all; size_t bytes;         /* one allocation; the rest point into it */
    CUdeviceptr views, groups, mem, group_mem, hyper, units[MOST_ROLES][NSTAGEKIND];
    CUdeviceptr *batch_units;              /* by batch, then kind of stage */
    struct GpuCalls *calls;                /* NULL: the rule has none */
    bool calls_behind;                     /* the calls' addresses are older than the device's
                                            * tables */
    bool captured;                         /* a step was captured: from then on only the device
                                            * knows t */
    bool guarded;                          /* a guard was set: likewise; the device's views may mark
                                            * a skipped run */
    /* A launch failed after others of its step, or guard_undo failed: parameters and states, or t,
     * may be those of two steps, until t is set again. */
    bool half_done;
    bool launched;                         /* a launch or copy of this run succeeded: states may
                                            * differ */
    unsigned captured_out;                 /* participation masks of the captured steps
                                            * (optc_binding.leaves_out) */
    bool dirty;                            /* participation or cohorts differ from the device's
                                            * views */
    struct GpuCohortMemory *cohort_memory; /* memory of cohorts that were added */
    bool moved;                            /* a gradient's or input's pointer differs from the
                                            * device's table */
    CUdeviceptr table;                     /* not 0: capture table of the current step, instead of
                                            * mem */
    struct CaptureTable *capture_tables;
    struct GpuBeside *beside;              /* NULL: no other binding has run beside this one */
    struct GpuExchanges *exchanges;        /* NULL: the binding is not sharded */
    struct GpuOverlap *overlap;            /* NULL: no exchange runs beside stages */
    struct GpuAgree *agree;                /* NULL: the ranks need not compare anything */
    LaunchList *launch_list;               /* by entry, then phase */
    int nphase, step;                      /* step: the entry of that name */
    /* SLOTS, ONCE (at most one) and REGION, the last used one first. slots_full: a list did not fit
     * into the limit with its graphs; slots_cycle: steps until all combinations of slots have
     * occurred; switches: the device can select among them */
    LaunchList *lists;
    bool slots_full, switches;
    int64_t slots_cycle;
    /* The library's tuning during real steps; all NULL without it. */
    struct Live *live;
    /* the launch list that this step runs */
    LaunchList *(*begin)(optc_binding *b, LaunchList *p);
    void (*end)(optc_binding *b);                  /* after its launch */
    void (*forget)(optc_binding *b);               /* after graphs were dropped; inside gpu_enter */
    void (*close)(optc_binding *b);                /* inside gpu_enter */
} GpuTables;

/* ---- gpu_bind.c ---- */
CORE optc_status gpu_bind(optc_binding *b);
CORE void gpu_unbind(optc_binding *b);
CORE optc_status gpu_alloc_cohorts(optc_binding *b, size_t bytes, void **out);
CORE optc_status gpu_cohorts_grown(optc_binding *b);
CORE void gpu_participation_changed(optc_binding *b, bool moved);
CORE optc_status gpu_may_change_participation(const optc_binding *b, const Participation *c);
CORE optc_status gpu_send_views(optc_binding *b);
/* Where memory is. PLACE_HOST: pageable host memory, or an address that the driver does not know */
typedef enum { PLACE_HOST, PLACE_PINNED, PLACE_HERE, PLACE_OTHER_GPU } MemoryPlace;
CORE optc_status gpu_pointer_place(GpuEngine *g, const void *p, const char *what,
                                   MemoryPlace *place);
/* here: p is in the memory of this GPU */
CORE optc_status gpu_owns_pointer(GpuEngine *g, const void *p, const char *what, bool *here);
CORE optc_status gpu_use_pointer(optc_binding *b, int tensor, const void *was, const void *p,
                                 const char *what);

/* ---- gpu_memory.c: memory for callers ---- */
CORE optc_status gpu_memory_take(optc_engine *e, size_t bytes, void *stream, void **out);
CORE optc_status gpu_memory_give(optc_engine *e, void *memory, size_t bytes, void *stream);
CORE optc_status gpu_memory_fills(optc_engine *e, const void *to);
CORE optc_status gpu_memory_set(optc_engine *e, void *to, int byte, size_t bytes, void *stream);
CORE optc_status gpu_memory_copy(optc_engine *e, const MemoryCopy *c, void *stream);

/* ---- gpu_calls.c, gpu_products.c: calls ---- */
/* kernel name; NULL: the program does not need it */
CORE const char *call_kernel(const Program *p, int k);
/* captured steps use conditional nodes */
CORE bool call_conditions(const Program *p);
/* "; " and how products are computed; "" for rules without products */
CORE void gpu_call_path(const optc_rule *r, char *buf, size_t n);
CORE int64_t gpu_call_bytes(const optc_binding *b);
/* after layout_place; inside gpu_enter */
CORE optc_status calls_bind(optc_binding *b);
CORE void calls_unbind(optc_binding *b);                   /* inside gpu_enter */
/* after pointers or participation changed on the device */
CORE optc_status calls_update(optc_binding *b);
/* NULL: nothing to do */
CORE const struct GpuCall *calls_of(const optc_binding *b, const ProgStage *s, int batch);
/* scheduled: only the matrices of calls_slots_select */
CORE optc_status calls_launch(optc_binding *b, const struct GpuCall *c, bool scheduled);
/* marks our kernels that the binding's calls launch */
CORE void calls_need(const optc_binding *b, bool *need);
/* lets libraries load the code of their first call */
CORE void calls_warm(optc_binding *b);
/* before a run: memory is available */
CORE optc_status calls_probe(optc_binding *b, LaunchList *p);
CORE CUstream calls_stream(const optc_binding *b);         /* private stream, to capture in */
/* nodes of the conditional bodies that calls have made */
CORE int64_t calls_body_nodes(const optc_binding *b);

/* ---- gpu_call_slots.c: calls over the scheduled matrices only ---- */
/* for b->stagger; fills at and now */
CORE size_t calls_slots_bytes(optc_binding *b, CallSlots *s);
CORE optc_status calls_slots_send(optc_binding *b, CallSlots *s, CUdeviceptr memory);
/* for the following launches */
CORE void calls_slots_select(optc_binding *b, const CallSlots *s);
CORE optc_status calls_slots_update(optc_binding *b, CallSlots *s);    /* if pointers have moved */
CORE void calls_slots_count(const optc_binding *b, int *sets, int *groups);

/* ---- gpu_roots_f32.c: roots in f32, and the matrices that need f64 ---- */
/* before a run that is not captured */
CORE optc_status roots_f32_check(optc_binding *b, const LaunchList *p);
CORE optc_status roots_f32_save(optc_binding *b, const LaunchList *p);     /* after its launch */

/* ---- gpu_list_cache.c: launch lists that are kept; inside gpu_enter ---- */
#define LISTS(use) (1u << (use))
enum { HOST_LISTS = LISTS(LIST_SLOTS) | LISTS(LIST_ONCE) };
CORE LaunchList *task_list(const JointTask *x);            /* of all units */
/* A list with n items and room for `more` pointers of bodies, which is in no cache; NULL: no
 * memory. */
CORE LaunchList *list_take(const ListKey *key, int n, int more);
/* with its graphs, memory and bodies */
CORE void list_free(optc_binding *b, LaunchList *x);
/* counts it in optc_held.graphs until it is freed; again after its memory or graphs changed */
CORE void list_count(optc_binding *b, LaunchList *x);
/* moves it to the front; NULL: there is none */
CORE LaunchList *list_find(LaunchList **first, const ListKey *key);
CORE void list_keep(LaunchList **first, LaunchList *x);
/* takes all lists of these uses that b is a part of out of a cache */
CORE LaunchList *lists_take(LaunchList **first, const optc_binding *b, unsigned uses);
CORE void lists_free(optc_binding *b, LaunchList *x);      /* and those behind it */
CORE void lists_drop(optc_binding *b, unsigned uses);      /* of the binding */
CORE int64_t lists_limit(const optc_binding *b);           /* bytes */
CORE int64_t lists_held(const optc_binding *b, unsigned uses);
/* `more` bytes fit into the limit, maybe after lists were dropped */
CORE bool lists_make_room(optc_binding *b, int64_t more);
/* drops the least recently used list of slots, unless it was used within a cycle; false: none */
CORE bool lists_drop_last(optc_binding *b);

/* ---- gpu_stagger.c: rules with every(k, { stagger = true }) ---- */
CORE bool gpu_stagger_any(const LaunchList *p);
CORE void gpu_stagger_bind(optc_binding *b);
/* the list of a run that is not captured, of a list of all units */
CORE optc_status gpu_slots_choose(optc_binding *b, const LaunchList *p, LaunchList **out);
/* A list for b->stagger that is in no cache. Its uploads are in the binding's stream. */
CORE optc_status gpu_slots_make(optc_binding *b, const LaunchList *p, ListUse use,
                                LaunchList **out);

/* ---- gpu_beside.c ---- */
/* Device.beside */
CORE optc_status gpu_beside(optc_binding *const *b, int n, int lead, bool begins);
CORE void gpu_beside_unbind(optc_binding *b);               /* inside gpu_enter */

/* ---- gpu_joint_graph.c ---- */
/* Device.joint */
CORE optc_status gpu_joint(const JointTask *task, int n, bool ran, bool *done);
/* adds its launches to a graph; returns the driver's error code */
CORE int joint_build(const LaunchList *x, CUgraph graph);
/* Device.capturing */
CORE bool gpu_capturing(const optc_binding *b);
/* destroys its graphs; inside gpu_enter */
CORE void gpu_joint_drop(optc_binding *b);

/* ---- gpu_capture_tables.c: pointers of captured steps; inside gpu_enter ---- */
CORE char *table_now(const optc_binding *b);               /* for free(); NULL: no memory */
/* gives the current step its own table */
CORE optc_status table_keep(optc_binding *b);
CORE void tables_drop(optc_binding *b);

/* ---- gpu_exchange.c: exchanges of sharded bindings; inside gpu_enter ---- */
CORE optc_status gpu_exchanges_bind(optc_binding *b);
CORE void gpu_exchanges_unbind(optc_binding *b);
CORE optc_status gpu_exchange(const optc_binding *b, int number);
CORE int gpu_gather_values(optc_binding *b, const optc_comm *c, void *const *from, int n,
                           void *send, void *recv);
CORE optc_status gpu_gather(optc_engine *e, const optc_comm *c, const void *own, void *all,
                            size_t bytes);

/* ---- gpu_overlap.c: exchanges in a second stream; inside gpu_enter ---- */
CORE optc_status gpu_overlap_bind(optc_binding *b);        /* after the launch lists are built */
CORE void gpu_overlap_unbind(optc_binding *b);
CORE optc_status gpu_overlap_exchange(const optc_binding *b, const ScheduleOp *op);
CORE optc_status gpu_overlap_fork(const optc_binding *b);
CORE optc_status gpu_overlap_wait(const optc_binding *b, const ScheduleOp *op);
CORE optc_status gpu_overlap_end(const optc_binding *b, optc_status s);    /* of a run; returns s */

/* ---- gpu_agree.c: the ranks of a sharded binding compare which tensors take part; inside
 * gpu_enter ---- */
CORE optc_status gpu_agree_bind(optc_binding *b);          /* before the exchanges' tables */
CORE void gpu_agree_unbind(optc_binding *b);
/* after participation changed on the device */
CORE optc_status gpu_agree_send(optc_binding *b);
/* where optc_guard reports a skipped step; 0: nowhere */
CORE CUdeviceptr gpu_agree_guard(const optc_binding *b);
CORE optc_status gpu_agree_begin(optc_binding *b, int entry, int phase, bool capturing);
/* the other ranks' steps do nothing, unless (guard) all ranks skip this one */
CORE optc_status gpu_agree_refuse(optc_binding *b, int entry, int phase, bool guard);
/* the exchange's gather carries the words */
CORE bool gpu_agree_rides(const optc_binding *b, int exchange);
/* after they were gathered */
CORE optc_status gpu_agree_launch(const optc_binding *b, size_t stride);
/* a step found a difference, which the host knows */
CORE bool gpu_agree_differs(const optc_binding *b);
CORE optc_status gpu_agree_check(const optc_binding *b);   /* fails if so */

/* ---- gpu_guard.c: device scalars and the guard ---- */
enum { GUARD_THREADS = 128 };
CORE optc_status gpu_read_ahead(optc_binding *b, const void *from, bool guard, const char *call);
/* Launch i of GpuCode.read_ahead before an entry; false: there are no more. The first one reads the
 * guard. More follow only if there are more than OPTC_SOURCES scalars. */
CORE bool guard_item(const optc_binding *b, int entry, int i, GuardLaunch *x);
/* inside gpu_enter; launches nothing if there are none */
CORE optc_status guard_launch(optc_binding *b, int entry);
/* After guard_launch, if the run's first launch fails: t is what it was before, also if the guard
 * skips the run. */
CORE void guard_undo(optc_binding *b, int entry);
CORE optc_status refuse_half_done(const optc_binding *b, const char *call);
CORE bool entry_counts(const optc_binding *b, int entry);  /* a skipped run still increments t */

/* ---- gpu_conditional.c: rules with calls in which the device decides what runs ---- */
CORE void phases_bind(optc_binding *b);                    /* sets optc_binding.conditional */
/* The region of an entry, before such a run. launches: with its graph, which is made before
 * anything is launched; else the run is captured. */
CORE optc_status region_of(optc_binding *b, int entry, bool launches, LaunchList **out);
/* into the binding's stream, which is captured */
CORE optc_status region_capture(optc_binding *b, const LaunchList *x);

/* ---- gpu_lists.c ---- */
/* builds the launch lists, or replaces them; on failure the old ones stay */
CORE optc_status gpu_build_lists(optc_binding *b);
CORE void gpu_drop_lists(optc_binding *b);
/* after calls are made; gpu_build_lists calls it too */
CORE optc_status gpu_load_kernels(optc_binding *b);
CORE LaunchItem gpu_launch_item(const optc_binding *b, const ScheduleOp *op, const Launch *l,
                                CUfunction fn);
CORE int item_launch(const Driver *d, const LaunchItem *x, int guard, CUstream stream);
/* A kernel of a graph. args: its parameters, read when the node is added */
typedef struct KernelNode { CUfunction fn; unsigned blocks, threads; void *args[2]; } KernelNode;
/* x must exist until the node is added */
CORE KernelNode item_node(const LaunchItem *x);
/* adds a node that depends on the n nodes `after`; returns the driver's error code */
CORE int kernel_node(const Driver *d, const KernelNode *x, CUgraph graph, const CUgraphNode *after,
                     int n, CUgraphNode *node);
CORE CUgraphExec list_whole(const LaunchList *p);                /* NULL: it is not one graph */
/* Makes the list's graphs; a failure is no error. Inside gpu_enter, as what follows */
CORE void list_graph(optc_binding *b, LaunchList *p);
CORE optc_status list_exec(optc_binding *b, LaunchList *p);      /* one graph, of REGION or JOINT */
CORE void list_drop_graphs(const Driver *d, LaunchList *p);

/* ---- gpu_run.c ---- */
/* BY_HOST: the host selects the launches of a run, by phase and slots. Otherwise the device does.
 * BY_VIEWS: all phases are launched, and kernels of the wrong one return at once. BY_NODES: a
 * region */
typedef enum { BY_HOST, BY_VIEWS, BY_NODES } Decider;
CORE Decider gpu_decider(const optc_binding *b, int entry, bool capturing);
CORE optc_status gpu_run(optc_binding *b, int entry, int phase);
CORE optc_status launch_graph(optc_binding *b, const LaunchList *p);     /* list_whole(p) */
/* Device.refuse */
CORE optc_status gpu_refuse(optc_binding *b, int entry, int phase, optc_status why);
/* before a run: sends changed pointers and views; inside gpu_enter */
CORE optc_status gpu_send_changes(optc_binding *b, bool capturing);
/* inside gpu_enter */
CORE optc_status gpu_launch(optc_binding *b, const LaunchItem *x, int guard);
CORE optc_status gpu_sync(optc_binding *b);
CORE void gpu_set_stream(optc_binding *b, void *stream);

/* ---- gpu_transfer.c ---- */
CORE optc_status gpu_read(const optc_binding *b, void *host, const void *device, size_t bytes,
                          const char *call);
CORE optc_status gpu_write(const optc_binding *b, void *device, const void *host, size_t bytes,
                           bool wait, const char *call);
CORE optc_status gpu_spread(const optc_binding *b, void *to, size_t pitch, int n, double value,
                            const char *call);
CORE optc_status gpu_send_hyper(const optc_binding *b, int first, int n, int at, double value,
                                const char *call);
CORE optc_status gpu_get_t(const optc_binding *b, int64_t *steps);
CORE optc_status gpu_set_t(optc_binding *b, int64_t steps);
CORE size_t gpu_hyper_bytes(const optc_binding *b);        /* of one cohort */
#endif
