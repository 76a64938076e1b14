/* Libraries of CUDA by dlopen, wherever they were installed. */
#ifndef OPTC_CORE_LIBRARY_H
#define OPTC_CORE_LIBRARY_H
#include "runtime/core/api/core.h"

#include "runtime/core/matrix/cublas.h"
#include "runtime/core/matrix/cusolver.h"

/* ---- cuda_library.c ---- */
/* names, and folders below a Python's packages, end with NULL; own: the folder that must have it, NULL: none is named.
 * refused: the first file that is there and does not load; again: for a reason that may have gone when asked again */
typedef struct LibrarySearch {
    const char *const *names, *const *folders, *own;
    void *library;
    char refused[512];
    bool again;
} LibrarySearch;
CORE bool library_find(LibrarySearch *s);
/* the i-th folder a toolkit may lie in; "": a variable that is not set; NULL: no more */
CORE const char *cuda_toolkit(size_t i);

/* names: CUDA 13's, 12's, NULL. package: what Python's pip calls it, -cu12 behind it for CUDA 12 */
typedef struct CudaLibrary {
    const char *name, *variable;
    const char *const *names, *const *folders;
    const char *package;
} CudaLibrary;
/* one that runs with this version of the driver; NULL: why says why not, and again whether that may have gone when asked
 * again. The variable names its folder, or says "none" */
CORE void *cuda_library(const CudaLibrary *x, int driver, bool *again, char *why, size_t n);

/* ---- cublas.c, cusolver.c ---- */
/* one that runs with this version of the driver; false: why says why not, and again (NULL: nobody asks) whether that
 * may have gone when asked again. It is never unloaded */
CORE bool cublas_open(Cublas *c, int driver, bool *again, char *why, size_t n);
CORE bool cusolver_open(Cusolver *c, int driver, bool *again, char *why, size_t n);
CORE const char *cusolver_status(int rc);                  /* it has no function that says so */
#endif
