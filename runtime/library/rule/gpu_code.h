/* Rules on an NVIDIA GPU, the library's side: from a plan to loaded kernels, and other launches in real steps. What
 * runs them is runtime/core/gpu/gpu_device.h.
 *
 * BuiltKernels    a rule's kernels for one choice of launches, with the modules of machine code they lie in. A rule
 * keeps those its bindings asked for. */
#ifndef OPTC_GPU_H
#define OPTC_GPU_H
#include "runtime/library/library.h"

#include "runtime/core/gpu/gpu_device.h"
#include "runtime/library/rule/nvrtc.h"

#include <pthread.h>

enum { MOST_PARTS = 8 };
typedef struct BuiltKernels {
    /* first: the core knows no more of it. A package's own launches may differ from those asked for */
    GpuCode code;
    Launch *asked;                         /* by Stage.fn */
    CUmodule module[MOST_PARTS]; int nmodule;
    struct BuiltKernels *next;
} BuiltKernels;
typedef struct GpuRule {
    BuiltKernels *codes;
    pthread_mutex_t lock;                  /* of codes and of the rule's path */
    /* by Stage.fn: what tuning results know it by; "" where there is nothing to choose */
    char (*hash)[33];
} GpuRule;

/* ---- gpu_code.c ---- */
optc_status gpu_compile(optc_rule *r);
/* as is best for that many elements */
optc_status gpu_code_for(optc_rule *r, int64_t elements, const GpuCode **out);
optc_status gpu_code_with(optc_rule *r, const Launch *launch, const GpuCode **out);    /* launch: by Stage.fn */
/* its kernel alone, with this launch; malloc'ed; NULL: out of memory */
char *gpu_stage_source(const optc_rule *r, const Stage *s, const Launch *l);
void gpu_drop(optc_rule *r);
void gpu_tuned_key(const optc_rule *r, int fn, int64_t elements, TunedKey *k);
/* the result that this many elements use; NULL: none, the model decides */
const Tuned *gpu_tuned(const optc_rule *r, int fn, int64_t elements, const char **from);

/* ---- tune_methods.c: GpuEngine.measured ---- */
EigenMethod method_measured(const optc_engine *e, bool roots, bool f64, int power, int bucket);

/* ---- live_tuning.c: other launches in real steps ---- */
/* where $OPTC_TUNE_LIVE asks for it: hooks itself into the binding's plays */
void live_open(optc_binding *b);
/* by Stage.fn, what steps use now, and how many others were tried */
const Launch *live_launches(const optc_binding *b, int *tried);
#endif
