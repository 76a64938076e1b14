/* CUDA, found at run time: the driver and NVRTC as functions we declare ourselves, so that one binary runs with and
 * without them. tests/cuda/headers.cc holds every row of this file against CUDA's own headers. */
#ifndef OPTC_CUDA_H
#define OPTC_CUDA_H
#include <stdbool.h>
#include <stddef.h>

#include "runtime/core/gpu/cuda_driver.h"

/* All of it is in NVRTC 12.0. */
typedef struct _nvrtcProgram *nvrtcProgram;
#define NVRTC_FUNCTIONS(F)                                                                                             \
    F(nvrtcVersion, (int *, int *))                                                                                    \
    F(nvrtcGetNumSupportedArchs, (int *))                                                                              \
    F(nvrtcGetSupportedArchs, (int *))                                                                                 \
    F(nvrtcCreateProgram, (nvrtcProgram *, const char *, const char *, int, const char *const *, const char *const *)) \
    F(nvrtcCompileProgram, (nvrtcProgram, int, const char *const *))                                                   \
    F(nvrtcGetProgramLogSize, (nvrtcProgram, size_t *))                                                                \
    F(nvrtcGetProgramLog, (nvrtcProgram, char *))                                                                      \
    F(nvrtcGetCUBINSize, (nvrtcProgram, size_t *))                                                                     \
    F(nvrtcGetCUBIN, (nvrtcProgram, char *))                                                                           \
    F(nvrtcGetPTXSize, (nvrtcProgram, size_t *))                                                                       \
    F(nvrtcGetPTX, (nvrtcProgram, char *))                                                                             \
    F(nvrtcDestroyProgram, (nvrtcProgram *))

#define NVRTC_MEMBER(name, args) int (*name) args;
typedef struct Nvrtc { NVRTC_FUNCTIONS(NVRTC_MEMBER) int version; char path[1024]; } Nvrtc;
#undef NVRTC_MEMBER

const Driver *driver_get(const char **why);        /* NULL: *why says why not. Loaded once, never unloaded */
const Nvrtc *nvrtc_get(const char **why);

/* Source to machine code for sm_<arch> (PTX where ptx is set). The result is malloc'ed; NULL: log holds why (malloc'ed
 * too), or is NULL for want of memory. A log that begins with NVRTC_FAILED is not about the source. */
#define NVRTC_FAILED "NVRTC failed"
char *nvrtc_build(const Nvrtc *n, const char *source, const char *name, int arch, bool ptx, size_t *size, char **log);
int nvrtc_archs(const Nvrtc *n, int *out, int most);
/* what a compilation is given, as text for keys that also name NVRTC's version */
const char *nvrtc_options(void);
/* machine code made by this NVRTC is promised to load with this driver */
bool nvrtc_fits(int nvrtc, int driver);
/* the Python package that brings one that fits; driver 0: none is known */
const char *nvrtc_package(int driver);
#endif
