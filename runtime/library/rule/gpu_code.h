/* Rules on an NVIDIA GPU, the library's part: it turns a plan into loaded kernels, and tries other
 * launches in real steps. runtime/core/gpu/gpu_device.h runs the kernels.
 *
 * BuiltKernels: a rule's kernels for one choice of launches, with the programs that contain them. A
 * rule holds one for every choice that its bindings requested. optc_compile loads two programs;
 * bindings load the others when they need them. */
#ifndef OPTC_GPU_H
#define OPTC_GPU_H
#include "runtime/library/internal.h"

#include "runtime/core/gpu/gpu_device.h"
#include "runtime/library/compile/nvrtc.h"

#include <pthread.h>

typedef struct BuiltKernels {
    /* The first member: the core sees only this. Its launches are those of the package if the code
     * is from one, and may then differ from `asked`. */
    GpuCode code;
    Launch *asked;                         /* by Stage.fn: the launches that were requested */
    LoadedProgram **program;               /* GpuRule.nprogram of stages, then NFIXED; NULL: not
                                            * loaded yet */
    CUmodule package;                      /* not NULL: it has all kernels */
    bool runs;                             /* for bindings with runs (EmitOptions.runs) */
    struct BuiltKernels *next;
} BuiltKernels;
typedef struct GpuRule {
    BuiltKernels *codes;
    int *program_of, nprogram;             /* emit_divide */
    double compile_ms;                     /* of NVRTC for this rule, in all builds */
    pthread_mutex_t lock;                  /* protects codes and LibraryRule.path */
    /* by Stage.fn: the stage's hash in tuned results; "" if the stage has nothing to tune */
    char (*hash)[33];
} GpuRule;

/* ---- gpu_code.c ---- */
optc_status gpu_compile(optc_rule *r);
/* The kernels with the best known launches for that many elements. */
optc_status gpu_code_for(optc_rule *r, int64_t elements, const GpuCode **out);
/* The same for bindings with runs. */
optc_status gpu_code_runs(optc_rule *r, int64_t elements, const GpuCode **out);
/* Host.load: compiles or loads kernels, and enters them into the code. */
optc_status gpu_code_load(optc_rule *r, const GpuCode *code, const KernelNeeds *need,
                          const char *call);
/* launch: by Stage.fn */
optc_status gpu_code_with(optc_rule *r, const Launch *launch, const GpuCode **out);
/* The source of one stage's kernel with this launch, malloc'ed. NULL: out of memory. */
char *gpu_stage_source(const optc_rule *r, const Stage *s, const Launch *l);
void gpu_drop(optc_rule *r);
void gpu_tuned_key(const optc_rule *r, int fn, int64_t elements, TunedKey *k);
/* The tuned result for that many elements. NULL: there is none, and the model decides. from: as in
 * tuned_look. */
const Tuned *gpu_tuned(const optc_rule *r, int fn, int64_t elements, const char **from);

/* ---- tune_methods.c: GpuEngine.measured ---- */
EigenMethod method_measured(const optc_engine *e, bool roots, bool f64, int power, int bucket);

/* ---- shard/shared_tuning.c: Host.share ---- */
optc_status tuning_share(optc_binding *b);

/* ---- live_tuning.c: other launches in real steps ---- */
/* Starts live tuning if $OPTC_TUNE_LIVE is set: installs begin, end and close of GpuTables. */
void live_open(optc_binding *b);
/* The launches in use, by Stage.fn. tried: the number of other launches that were tried. */
const Launch *live_launches(const optc_binding *b, int *tried);
#endif
