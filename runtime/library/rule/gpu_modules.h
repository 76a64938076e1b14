/* Programs of a rule's kernels. A rule's stages are divided into programs that NVRTC compiles in parallel; the kernels
 * of its calls are one more. The cubins of one build are stored together, with a length ahead of each. */
#ifndef OPTC_GPU_MODULES_H
#define OPTC_GPU_MODULES_H
#include "runtime/library/rule/gpu_code.h"

/* Whether kernels set conditions of conditional graph nodes. A driver without such nodes would not load that code. */
bool modules_conditions(const optc_rule *r);
/* Divides a rule of which nothing is compiled yet: sets nparts and nmodule, and returns all modules as bits. */
unsigned modules_divide(const optc_rule *r, BuiltKernels *c);
/* Compiles the modules that are bits of `need`. NULL: *why has NVRTC's log, or is NULL if memory ran out. */
char *modules_compile(const optc_rule *r, const BuiltKernels *c, const Nvrtc *n, unsigned need, size_t *size,
                      char **why);
/* Compiles one program. */
char *modules_compile_one(const optc_rule *r, const Nvrtc *n, const EmitOptions *o, size_t *size, char **why);
/* Loads the next cubin; *at is then behind it. false: there is none, or *rc is the driver's error. */
bool modules_load_next(const GpuEngine *g, const char *all, size_t size, size_t *at, CUmodule *out, int *rc);
#endif
