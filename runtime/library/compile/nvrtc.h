/* The CUDA driver and NVRTC, loaded at run time. This file declares their functions itself, so that
 * one binary runs with and without them. tests/cuda/headers.cc compares every row with CUDA's own
 * headers. */
#ifndef OPTC_CUDA_H
#define OPTC_CUDA_H
#include <stdbool.h>
#include <stddef.h>

#include "runtime/core/cuda/cuda_driver.h"

/* All of these are in NVRTC 12.0. */
typedef struct _nvrtcProgram *nvrtcProgram;
#define NVRTC_FUNCTIONS(F) \
    F(nvrtcVersion, (int *, int *)) \
    F(nvrtcGetNumSupportedArchs, (int *)) \
    F(nvrtcGetSupportedArchs, (int *)) \
    F(nvrtcCreateProgram, \
      (nvrtcProgram *, const char *, const char *, int, const char *const *, const char *const *)) \
    F(nvrtcCompileProgram, (nvrtcProgram, int, const char *const *)) \
    F(nvrtcGetProgramLogSize, (nvrtcProgram, size_t *)) \
    F(nvrtcGetProgramLog, (nvrtcProgram, char *)) \
    F(nvrtcGetCUBINSize, (nvrtcProgram, size_t *)) \
    F(nvrtcGetCUBIN, (nvrtcProgram, char *)) \
    F(nvrtcGetPTXSize, (nvrtcProgram, size_t *)) \
    F(nvrtcGetPTX, (nvrtcProgram, char *)) \
    F(nvrtcDestroyProgram, (nvrtcProgram *))

#define NVRTC_MEMBER(name, args) int (*name) args;
typedef struct Nvrtc { NVRTC_FUNCTIONS(NVRTC_MEMBER) int version; char path[1024]; } Nvrtc;
#undef NVRTC_MEMBER

/* NULL: *why has the reason. Loaded once, never unloaded */
const Driver *driver_get(const char **why);
const Nvrtc *nvrtc_get(const char **why);

/* Compiles source to machine code for sm_<arch>, or to PTX if ptx is set. The result is malloc'ed.
 * NULL: *log has the reason, malloc'ed too, or is NULL if memory ran out. A log that begins with
 * NVRTC_FAILED is not about the source. */
#define NVRTC_FAILED "NVRTC failed"
char *nvrtc_build(const Nvrtc *n, const char *source, const char *name, int arch, bool ptx,
                  size_t *size, char **log);
int nvrtc_archs(const Nvrtc *n, int *out, int most);
/* All options of a compilation as text, for cache keys. The keys contain NVRTC's version too. */
const char *nvrtc_options(void);
/* CUDA guarantees that machine code of this NVRTC loads with this driver. */
bool nvrtc_fits(int nvrtc, int driver);
/* The name of the Python package with an NVRTC that fits the driver. driver 0: unknown. */
const char *nvrtc_package(int driver);
#endif
