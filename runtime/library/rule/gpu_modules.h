/* Programs of a rule's kernels: those of its stages (emit_divide), and those that all rules share
 * (emit_cuda_fixed). Each has its own entry in the cache, and is loaded once per engine. */
#ifndef OPTC_GPU_MODULES_H
#define OPTC_GPU_MODULES_H
#include "runtime/library/rule/gpu_code.h"

/* Whether kernels set conditions of conditional graph nodes. A driver without such nodes would not
 * load that code, and an older NVRTC does not compile it. */
bool modules_conditions(const optc_rule *r);
/* The number of programs: nprogram of stages, then NFIXED. */
int modules_count(const optc_rule *r);
/* Loads the programs that `want` marks and c does not have yet. need: of a binding, or NULL. call:
 * in messages. The caller holds the rule's lock. */
optc_status modules_load(optc_rule *r, BuiltKernels *c, const bool *want, const KernelNeeds *need,
                         const char *call);
void modules_drop(optc_rule *r, BuiltKernels *c);
optc_status modules_no_nvrtc(const optc_rule *r, const char *call, const char *unfit,
                             const char *why);
#endif
