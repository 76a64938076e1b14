/* The library around the core (runtime/core/api/core.h): compiling rules, keeping them, tuning them. */
#ifndef OPTC_INTERNAL_H
#define OPTC_INTERNAL_H
#include "runtime/library/cache/cache.h"
#include "runtime/core/api/core.h"
#include "runtime/library/tune/timing.h"
#include "gen/gen.h"
#include "runtime/optc.h"
#include "runtime/library/tune/tuned.h"

#include <pthread.h>
#include <stdio.h>

/* ---- timing.c ---- */
int inner_type(optc_type t);           /* -1: default; -2: unknown */
const Target *engine_target(const optc_engine *e);           /* what rules of this engine are planned and emitted for */
const Target *device_target(const char *device);             /* of a device as users name it; NULL: it names none */
double median(double *t, int n);            /* sorts them */

/* ---- cpu_isa.c ---- */
typedef struct { const char *name, *flags; bool (*usable)(void); } Isa;
extern const Isa isas[];               /* baseline first, widest last; NULL-terminated */
int isa_best(void);
extern const char compile_flags[];      /* of every rule, beside its level's */
int isa_by_name(const char *name);     /* -1: none */
const char *cpu_model(char *buf, size_t n);            /* "Intel(R) Xeon(R) …", "Neoverse-N1" */
const char *cpu_model_in(FILE *f, char *buf, size_t n);

/* Rules compiled into the library: made by the build (prebuild.c). */
typedef struct { const char *key; const optc_module *const *module; } Builtin;    /* module: by isa */
extern const Builtin builtin_rules[];

/* ---- host_compiler.c ---- */
/* program: full path, NULL: none; fixed_flags: words it is always given; label: both; wanted: what was asked for by
 * name; seconds, memory (bytes of address space of each process): limits, 0: none */
typedef struct HostCompiler { char *program, *fixed_flags, *label, *wanted; double seconds; int64_t memory;
                             } HostCompiler;
bool compiler_find(const char *wanted, HostCompiler *out);        /* wanted "": none */
void compiler_free(HostCompiler *c);
enum { MOST_FLAGS = 4096 };                /* bytes of all that a compiler is given, with its end */
/* flags: with what it is always given. The shared object, loaded (a handle of dlopen) and as bytes (to be freed); NULL:
 * why says why, "": no memory. */
void *compiler_build(const HostCompiler *c, const char *source, const char *flags, char **object, size_t *size,
                     char *why, size_t nwhy);

typedef struct LibraryEngine {
    int isa;
    bool no_builtin, untuned;
    HostCompiler compiler;
    bool compiler_off;                 /* the caller asked for none */
    char *spec_path;
    Cache cache;
    TunedSet tuned;
    struct MatrixKit *matrices;        /* what products with no rule need; NULL: nobody asked (multiply.h) */
    pthread_mutex_t lock;              /* of that */
} LibraryEngine;

typedef struct LibraryRule {
    Gen gen;
    Rule *rule;
    Plan *plan;
    void *handle;                      /* of the CPU's code */
    Device evaluator;                  /* where there is no native code: the rule's device */
    struct GpuRule *gpu;
    char code[33];                     /* the CPU: hash of its code */
    char path[640], tuned[96];         /* how it runs; what was measured about its launches, or "" */
    char *plan_text;
} LibraryRule;

void rule_make_free(optc_rule *r);
optc_status rule_make(optc_rule *r, const optc_rule_options *o);
void rule_path(const optc_rule *r, char *buf, size_t n);
void rule_bound(optc_binding *b);
/* what the cache says it keeps */
void rule_note(const optc_rule *r, const char *target, const char *compiler, CacheNote *out);
void cpu_tuned_key(optc_rule *r, int64_t elements, TunedKey *k);
Device evaluator_device(void);
#endif
