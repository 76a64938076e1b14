/* Finds and opens CUDA's libraries by dlopen, wherever they are installed. */
#ifndef OPTC_CORE_LIBRARY_H
#define OPTC_CORE_LIBRARY_H
#include "runtime/core/base/core.h"

#include "runtime/core/matrix/cublas.h"
#include "runtime/core/matrix/cusolver.h"

/* ---- cuda_library.c ---- */
/* names, folders (below a Python's packages): end with NULL. own: the only folder to search besides
 * what the process has mapped; NULL: none was named. refused: dlerror's text for the first file
 * that exists and does not load. again: the reason may be temporary, such as a lack of memory. */
typedef struct LibrarySearch {
    const char *const *names, *const *folders, *own;
    void *library;
    char refused[512];
    bool again;
} LibrarySearch;
CORE bool library_find(LibrarySearch *s);
/* The i-th folder that a toolkit may be installed in; "": an environment variable that is not set;
 * NULL: no more. */
CORE const char *cuda_toolkit(size_t i);

/* names: of CUDA 13, of CUDA 12, NULL. package: its pip package; for CUDA 12 with the suffix
 * -cu12. */
typedef struct CudaLibrary {
    const char *name, *variable;
    const char *const *names, *const *folders;
    const char *package;
} CudaLibrary;
/* Opens a version that runs with this driver. NULL: `why` has the reason, and `again` is set if it
 * may be temporary. The environment variable names the folder, or is "none". */
CORE void *cuda_library(const CudaLibrary *x, int driver, bool *again, char *why, size_t n);

/* ---- cublas.c, cusolver.c ---- */
/* Open a version that runs with this driver; it is never unloaded. false: `why` has the reason, and
 * `again` (may be NULL) is set if it may be temporary. */
CORE bool cublas_open(Cublas *c, int driver, bool *again, char *why, size_t n);
CORE bool cusolver_open(Cusolver *c, int driver, bool *again, char *why, size_t n);
/* the name of a status; the library has no such function */
CORE const char *cusolver_status(int rc);
#endif
