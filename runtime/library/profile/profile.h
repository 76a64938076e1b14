/* The profiler: records the stages of runs, compilations and cache lookups of one process. The core
 * calls it through ProfileHooks (runtime/core/base/profile_hooks.h).
 *
 *   Row        totals of one stage, one entry of a rule, or one kind of other work
 *   event      one interval of a row, for the trace. After MOST_EVENTS events only the rows grow
 *   generation number of the recording. What a binding stores refers to rows of one generation
 *
 * One recording at a time serves the whole process: there is one table at exit. A lock protects all
 * of it. */
#ifndef OPTC_LIBRARY_PROFILE_H
#define OPTC_LIBRARY_PROFILE_H
#include "runtime/library/internal.h"

#include "runtime/core/gpu/gpu_device.h"

enum { MOST_EVENTS = 200000, MOST_PROFILE_ROWS = 4096, MOST_ENGINES = 64 };

/* ENTRY: a run of an entry. STAGE: a part of one, whose `of` is the row of its ENTRY. HOST: what
 * the host takes to enqueue a run of a GPU; no part of the ENTRY, whose time is the GPU's. WORK:
 * compilations, cache lookups */
typedef enum { ROW_ENTRY, ROW_STAGE, ROW_HOST, ROW_WORK } RowKind;
typedef struct ProfileRow {                /* numbers first: a run changes one cache line per row */
    int64_t count, timed, ns;          /* timed: how many of `count` have a time */
    double bytes, flops;               /* of the timed ones */
    RowKind kind;
    int of;                            /* -1: none */
    char name[200];
} ProfileRow;
typedef struct ProfileEvent { int row, thread; int64_t begin, ns; } ProfileEvent;

/* An interval of a row. ns -1: not timed. */
typedef struct ProfileSpan { int row, thread; int64_t begin, ns; double bytes, flops; } ProfileSpan;

/* The runs of a GPU whose times are not read yet. Events are read after they have passed: no run
 * waits. */
typedef struct GpuMark { CUevent at; int row; double bytes, flops; } GpuMark;
typedef struct GpuRun {
    struct GpuRun *next; int entry, n, most; int64_t begin; GpuMark mark[];
} GpuRun;

/* An engine of the recording. engine NULL: closed. last: the latest event that was read, and its
 * time on the trace */
typedef struct EngineProfile {
    optc_engine *engine;
    char name[160];
    int64_t peak;
    GpuRun *first, *end;
    int pending;
    CUevent *spare; int nspare, spare_cap;
    CUevent last; double last_ns;
} EngineProfile;

/* Bytes that the bindings of a rule hold (optc_binding_held). */
typedef struct RuleMemory { char name[128]; int bindings; optc_held held; } RuleMemory;

typedef struct Recording {
    bool on;
    unsigned generation;               /* atomic */
    int64_t began, ended;
    ProfileRow *row; int nrow, row_cap;
    /* MOST_EVENTS of them, written once before the first run: a run causes no page faults. NULL: no
     * memory */
    ProfileEvent *event; int nevent;
    int64_t dropped;                   /* events beyond MOST_EVENTS, or without memory */
    EngineProfile engine[MOST_ENGINES]; int nengine;
    RuleMemory *rule; int nrule;
} Recording;

/* ---- profile.c ---- */
Recording *profile_lock(void);
unsigned profile_generation(void);     /* without the lock */
void profile_unlock(void);
/* -1: there is no room */
int profile_row(Recording *r, RowKind kind, int of, const char *name);
void profile_add(Recording *r, const ProfileSpan *x);
int64_t profile_now(void);                                     /* nanoseconds of CLOCK_MONOTONIC */
EngineProfile *profile_engine(Recording *r, optc_engine *e);   /* NULL: there is no room */
/* plus the ordinal: a GPU on the trace */
enum { GPU_THREAD = 0x40000000 };

/* The hooks of other files. profile_clock_on returns 0 while nothing is recorded; profile_work then
 * does nothing. */
int64_t profile_clock_on(void);
void profile_work(const char *what, const char *name, int64_t begin);
void profile_engine_close(optc_engine *e);                     /* the device is still open */

/* ---- profile_runs.c ---- */
extern const ProfileHooks profile_recorder;
/* For a run of a GPU: the row, bytes and flops of launch items [first, first + n); n -1: of a graph
 * of all phases */
void profile_items(optc_binding *b, int first, int n, GpuMark *out);
/* the current run; its entry's row and its number of items */
GpuRun **profile_run(optc_binding *b, int *entry, int *n);

/* ---- profile_gpu.c ---- */
void profile_gpu_launched(optc_binding *b, const LaunchList *list, int first, int n);
void profile_gpu_end(Recording *r, optc_binding *b, GpuRun *run, bool keep);
/* waits for all runs, and frees the events */
void profile_gpu_drain(Recording *r, EngineProfile *e);

/* ---- profile_text.c ---- */
void profile_table(Buf *b, const Recording *r);
void profile_trace(Buf *b, const Recording *r);

/* ---- profile_file.c ---- */
void profile_environment(void);                                /* reads $OPTC_PROFILE; once */

/* ---- nvtx.c: ranges for NVIDIA's tools; nothing without their library ---- */
void nvtx_open(void);
void nvtx_push(const char *name);
void nvtx_pop(void);
#endif
