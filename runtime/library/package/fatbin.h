/* Fatbins: machine code for several architectures in one file. The driver loads the image that fits
 * its GPU. */
#ifndef OPTC_FATBIN_H
#define OPTC_FATBIN_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The functions of nvFatbin that optc calls; tests/cuda/headers.cc compares them with CUDA's
 * header. Results are ints. All are in CUDA 12.4, the first version with nvFatbin. */
typedef struct _nvFatbinHandle *nvFatbinHandle;
#define NVFATBIN_FUNCTIONS(F) \
    F(nvFatbinCreate, (nvFatbinHandle *, const char **, size_t)) \
    F(nvFatbinAddCubin, (nvFatbinHandle, const void *, size_t, const char *, const char *)) \
    F(nvFatbinAddPTX, \
      (nvFatbinHandle, const char *, size_t, const char *, const char *, const char *)) \
    F(nvFatbinSize, (nvFatbinHandle, size_t *)) \
    F(nvFatbinGet, (nvFatbinHandle, void *)) \
    F(nvFatbinDestroy, (nvFatbinHandle *)) \
    F(nvFatbinVersion, (unsigned *, unsigned *))

typedef struct FatImage { int arch; bool ptx; const char *code; size_t size; } FatImage;

/* The packer on this machine: "nvFatbin 13.0 (path)", or the path of the tool fatbinary. NULL:
 * neither was found; why says how to install one. */
const char *fatbin_packer(char buf[1200], char *why, size_t nwhy);
/* Packs images into a compressed fatbin, malloc'ed. name: the name of each image in it. dir: a
 * folder for the tool's files, which are removed. NULL: why has the reason. */
char *fatbin_make(const FatImage *image, int n, const char *name, const char *dir, size_t *size,
                  char *why, size_t nwhy);

/* The images of a fatbin. bytes: uncompressed; stored: in the fatbin. fatbin_list returns their
 * number; -1: the data is not a fatbin, or is truncated. */
typedef struct FatEntry { int arch; bool ptx; uint64_t bytes, stored; } FatEntry;
int fatbin_list(const char *data, size_t size, FatEntry *out, int most);
/* The entry is that image: machine code of that size, or PTX of any size (packers drop its
 * comments). */
bool fatbin_entry_is(const FatEntry *e, int arch, bool ptx, uint64_t bytes);
#endif
