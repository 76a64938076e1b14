/* The internal header of the library around the core (runtime/core/base/core.h): it compiles rules,
 * caches their code and tunes launches. Packages do not contain these files. */
#ifndef OPTC_INTERNAL_H
#define OPTC_INTERNAL_H
#include "runtime/library/cache/cache.h"
#include "runtime/core/base/core.h"
#include "runtime/library/base/timing.h"
#include "runtime/library/base/limit_variables.h"
#include "gen/gen.h"
#include "runtime/optc.h"
#include "runtime/library/tuned/tuned.h"

#include <pthread.h>
#include <stdio.h>

/* ---- timing.c ---- */
int inner_type(optc_type t);           /* the compiler's Type; -1: OPTC_DEFAULT; -2: unknown */
/* the target that rules of this engine are compiled for */
const Target *engine_target(const optc_engine *e);
/* by the device's name ("cuda:0"); NULL: unknown name */
const Target *device_target(const char *device);
double median(double *t, int n);            /* sorts t */

/* ---- cpu_isa.c ---- */
typedef struct { const char *name, *flags; bool (*usable)(void); } Isa;
extern const Isa isas[];               /* baseline first, widest last; NULL-terminated */
int isa_best(void);
extern const char compile_flags[];      /* for every rule, in addition to Isa.flags */
int isa_by_name(const char *name);     /* -1: unknown name */
const char *cpu_model(char *buf, size_t n);            /* "Intel(R) Xeon(R) …", "Neoverse-N1" */
const char *cpu_model_in(FILE *f, char *buf, size_t n);

/* Rules compiled into the library. The build generates the table (prebuild.c). key: hash of the
 * code; module: one per entry of isas. */
typedef struct { const char *key; const optc_module *const *module; } Builtin;
extern const Builtin builtin_rules[];

/* ---- host_compiler.c ---- */
/* The host compiler, from a text such as "ccache gcc -g". program: its full path, NULL: no
 * compiler; fixed_flags: the arguments in that text; label: both, for messages; wanted: the text
 * itself if the caller or the environment named a compiler. Limits (0: none): seconds of one
 * compilation; memory, bytes of address space of each process. */
typedef struct HostCompiler {
    char *program, *fixed_flags, *label, *wanted;
    double seconds;
    int64_t memory;
} HostCompiler;
bool compiler_find(const char *wanted, HostCompiler *out);        /* wanted "": use no compiler */
void compiler_free(HostCompiler *c);
enum { MOST_FLAGS = 4096 };                /* bytes of all flags of one compilation, with the
                                            * closing 0 */
/* Compiles source to a shared object and loads it. flags: all arguments, fixed_flags included.
 * Returns a handle of dlopen; *object and *size: the file's bytes, malloc'ed. NULL: why has the
 * reason, or is "" if memory ran out. */
void *compiler_build(const HostCompiler *c, const char *source, const char *flags, char **object,
                     size_t *size, char *why, size_t nwhy);

typedef struct LibraryEngine {
    int isa;
    bool no_builtin, untuned;
    HostCompiler compiler;
    bool compiler_off;                 /* the caller disabled the compiler (compiler = "") */
    char *spec_path;
    Cache cache;
    TunedSet tuned;
    pthread_mutex_t lock;              /* protects programs, and writes to tuned.shared */
    struct LoadedProgram *programs;    /* on the GPU */
} LibraryEngine;
/* A program of kernels, loaded. All rules of the engine that have the same program share it. */
typedef struct LoadedProgram {
    char key[DIGEST_HEX];
    struct CUmod_st *module;
    int uses;
    struct LoadedProgram *next;
} LoadedProgram;

typedef struct LibraryRule {
    Gen gen;
    Rule *rule;
    Plan *plan;
    void *handle;                      /* dlopen's handle of the CPU code */
    /* the same for bindings with runs (EmitOptions.runs), made by the first; protected by a lock of
     * rule_compile.c */
    void *runs_handle;
    const optc_stage_fn *runs;
    Device evaluator;                  /* the rule's device if there is no native code */
    struct GpuRule *gpu;
    char code[33];                     /* hash of the CPU code */
    char path[640], tuned[96];         /* optc_rule_path; which tuned results it uses, or "" */
    char *plan_text;
    const char **warning; int nwarning;    /* optc_rule_warning */
    const char **unread;                   /* optc_rule_unread of each hyperparameter; NULL: it is
                                            * read */
} LibraryRule;

void rule_make_free(optc_rule *r);
optc_status rule_make(optc_rule *r, const optc_rule_options *o);
void rule_path(const optc_rule *r, char *buf, size_t n);
/* CPU: takes the launches that tuning measured */
void rule_use_measured(optc_binding *b);
optc_status rule_runs(optc_binding *b, const struct GpuCode **code, const optc_stage_fn **fn);
/* Fills the description that is stored with a cache entry. */
void rule_note(const optc_rule *r, const char *target, const char *compiler, CacheNote *out);
void cpu_tuned_key(optc_rule *r, int64_t elements, TunedKey *k);
Device evaluator_device(void);
#endif
