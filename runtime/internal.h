/* Inside of the runtime.
 *
 * optc_engine   what runs: threads, vector level, where compiled code is kept. Read-only once open.
 * optc_rule     a compiled rule: the plan (in its Gen) and the functions of its stages. Read-only once compiled.
 * optc_binding  a rule on tensors: for every tensor a table of pointers by Mem number, all state in one block. One thread at a time.
 *
 *   message.c  statuses and messages          find.c files.c   specs by name; files
 *   cpu.c      vector levels, float modes     build.c  the host compiler
 *   cache*.c   compiled code on disk          engine.c rule.c bind.c step.c state.c  the API by object
 *   cuda.c     driver and NVRTC by dlopen     gpu.c gpu_code.c gpu_run.c live.c    rules on an NVIDIA GPU
 *   fatbin.c   fatbins                        package.c  shipped packages
 *   tuned*.c   measured launches              search.c tune_gpu.c tune_cpu.c    looking for better ones */
#ifndef OPTC_INTERNAL_H
#define OPTC_INTERNAL_H
#include "../templates/abi.h"
#include "cache.h"
#include "eval.h"
#include "gen.h"
#include "optc.h"
#include "tuned.h"

#include <stdatomic.h>

/* ---- message.c ---- */
optc_status fail(optc_status s, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
optc_type public_type(Type t);
int inner_type(optc_type t);           /* -1: default; -2: unknown */
double now_ms(void);
double median(double *t, int n);            /* sorts them */

/* ---- cpu.c ---- */
typedef struct { const char *name, *flags; bool (*usable)(void); } Isa;
extern const Isa isas[];               /* baseline first, widest last; NULL-terminated */
int isa_best(void);
extern const char compile_flags[];      /* of every rule, beside its level's */
int isa_by_name(const char *name);     /* -1: none */
const char *cpu_model(char *buf, size_t n);
typedef struct { unsigned long long saved; } FloatMode;
FloatMode float_mode_enter(void);      /* round to nearest, denormals kept: whatever the caller's program has set */
void float_mode_leave(FloatMode m);

/* Rules compiled into the library: made by the build (prebuild.c). */
typedef struct { const char *key; const optc_module *const *module; } Builtin;    /* module: by isa */
extern const Builtin builtin_rules[];

/* ---- build.c ---- */
char *compiler_find(const char *wanted);                 /* full path, to be freed; NULL: none */
/* The shared object, loaded (a handle of dlopen) and as bytes (to be freed); NULL: why says why. */
void *compiler_build(const char *cc, const char *source, const char *flags, char **object, size_t *size, char *why, size_t nwhy);

struct optc_engine {
    struct GpuEngine *gpu;             /* NULL: the CPU */
    int threads, isa;
    bool no_builtin, untuned;
    char *compiler;                    /* NULL: none */
    bool compiler_off;                 /* the caller asked for none */
    char *spec_path;
    char *name;
    Cache cache;
    TunedSet tuned;
    optc_allocator memory;             /* alloc NULL: our own */
    atomic_llong ours, peak;           /* bytes of bindings, now and at most */
    atomic_int rules;
};

struct optc_rule {
    optc_engine *engine;
    Gen gen;
    Rule *rule;
    Plan *plan;
    const optc_module *module;         /* NULL: the evaluator */
    void *handle;
    struct GpuRule *gpu;
    char code[33];                     /* the CPU: hash of its code */
    char path[256], tuned[96];         /* how it runs; what was measured about its launches, or "" */
    char *plan_text;
    atomic_int bindings;
};

typedef struct Tensor {
    char *name;
    Shape shape;
    int variant, group;
    void **mem;
    optc_view view;
} Tensor;

typedef struct Group { double *hyper; void **mem; optc_view view; int first, count; } Group;   /* hyper[0] is t */

typedef struct Units { int *tensor; int n; int64_t *prefix[NSTAGEKIND], longest[NSTAGEKIND]; int64_t elems; } Units;    /* tensors of one variant and their units of work */

struct optc_binding {
    optc_rule *rule;
    Tensor *tensor; int ntensor;
    Group *group; int ngroup;
    Units units[MAX_VARIANTS];
    int64_t steps;
    int64_t elems;
    bool complete;                     /* every gradient and input was there at the last look, and none has been taken away */
    void *block; size_t block_bytes;   /* states, temporaries, partials: on the device the rule runs on */
    struct GpuTables *gpu;
    int threads, grain;                /* on the CPU: threads of a step, units a thread takes at once; 0: by size */
    Arena arena;                       /* everything small */
};

void rule_launches(optc_rule *r, const Tuned *t, const char *from, int bucket, bool as_model);       /* on the CPU: what the binding made last uses; t NULL: nothing measured */
void rule_note(const optc_rule *r, const char *target, const char *compiler, CacheNote *out);     /* what the cache says it keeps */
void place_binding(optc_binding *b);
void memory_took(optc_engine *e, int64_t bytes);       /* negative: gave back */
void stage_label(const optc_rule *r, const Stage *s, char *buf, size_t n);
Shape shape_of(const Rule *r, int rank, const int64_t *dim, bool vector);
const char *tensor_label(const optc_binding *b, int i, char buf[96]);
optc_status check_overlap(const optc_binding *b, int tensor, const void *data, int64_t bytes, const char *what);
double type_load(Type t, const void *p, int64_t i);
void type_store(Type t, void *p, int64_t i, double x);
void cpu_tuned_key(optc_rule *r, int64_t elements, TunedKey *k);
void init_state(optc_binding *b);
optc_status run_native(optc_binding *b, const Phase *ph);
optc_status run_eval(optc_binding *b, int entry, double t);
#endif
