/* Fatbins: machine code for several architectures in one file that the driver picks from. */
#ifndef OPTC_FATBIN_H
#define OPTC_FATBIN_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* nvFatbin as we call it; tests/cuda/headers.cc holds it against its own header. Results are ints. All of it is in
 * CUDA 12.4, its first. */
typedef struct _nvFatbinHandle *nvFatbinHandle;
#define NVFATBIN_FUNCTIONS(F)                                                                                          \
    F(nvFatbinCreate, (nvFatbinHandle *, const char **, size_t))                                                       \
    F(nvFatbinAddCubin, (nvFatbinHandle, const void *, size_t, const char *, const char *))                            \
    F(nvFatbinAddPTX, (nvFatbinHandle, const char *, size_t, const char *, const char *, const char *))                \
    F(nvFatbinSize, (nvFatbinHandle, size_t *))                                                                        \
    F(nvFatbinGet, (nvFatbinHandle, void *))                                                                           \
    F(nvFatbinDestroy, (nvFatbinHandle *))                                                                             \
    F(nvFatbinVersion, (unsigned *, unsigned *))

typedef struct FatImage { int arch; bool ptx; const char *code; size_t size; } FatImage;

/* What packs them here: "nvFatbin 13.0 (path)" or the path of the tool; NULL: neither was found, and why says what
 * would bring one. */
const char *fatbin_packer(char buf[1200], char *why, size_t nwhy);
/* Compressed; malloc'ed. NULL: why says why. The tool works in files of `dir`, which it leaves empty. Each image's name
 * in it is `name`. */
char *fatbin_make(const FatImage *image, int n, const char *name, const char *dir, size_t *size, char *why,
                  size_t nwhy);

/* What a fatbin holds. bytes: of the image, uncompressed; stored: in the fatbin. -1: it is none, or it is cut short. */
typedef struct FatEntry { int arch; bool ptx; uint64_t bytes, stored; } FatEntry;
int fatbin_list(const char *data, size_t size, FatEntry *out, int most);
/* it is that image: machine code of that size, or PTX, whose comments are not kept */
bool fatbin_entry_is(const FatEntry *e, int arch, bool ptx, uint64_t bytes);
#endif
