/* Shipped packages, as `optc ship` writes them: a folder whose file `manifest` says what is in it. The library takes
 * them as a base of its cache: a rule that a package has is loaded from its fatbin and needs no compiler.
 *
 * manifest: lines of a word and what it is about; the first is `optc-package 2`, the last `sum HASH` over all before.
 *   name optc cuda              the package's, the version of optc, of NVRTC (none: for the CPU alone, no arch follows)
 *   arch sm_90 BYTES HASH       machine code in the fatbin; ptx compute_80 …: PTX
 *   rule ID, then indented      spec with options types key prefix launch
 *   file NAME BYTES HASH        every other file of the folder */
#ifndef OPTC_PACKAGE_H
#define OPTC_PACKAGE_H
#include "runtime/library/cache/cache.h"
#include "gen/gen.h"

#define PACKAGE_MARK "optc-package 2\n"

typedef struct PackageImage { int arch; bool ptx; uint64_t bytes; char hash[DIGEST_HEX]; } PackageImage;
typedef struct PackageFile { const char *name; uint64_t bytes; char hash[DIGEST_HEX]; } PackageFile;
/* launch: by image, "0:256,4,… 1:…" */
typedef struct PackageRule { const char *id, *about, *key, *prefix; const char **launch; } PackageRule;

typedef struct Manifest {
    Arena arena;
    const char *name, *optc;
    int cuda;
    PackageImage *image; int nimage, image_cap;
    PackageRule *rule; int nrule, rule_cap;
    PackageFile *file; int nfile, file_cap;
} Manifest;

bool manifest_is(const char *dir);                                           /* a folder that calls itself a package */
/* trusted: whose file it is counts. Free it either way */
bool manifest_read(const char *dir, bool trusted, Manifest *m, char *why, size_t nwhy);
void manifest_free(Manifest *m);
void package_seal(Buf *b);                                                   /* the last line of a manifest */
/* a file of it, checked; malloc'ed */
char *package_read(const char *dir, const PackageFile *f, bool trusted, size_t *size, char *why, size_t nwhy);
const PackageFile *manifest_file(const Manifest *m, const char *name);       /* NULL: none */
/* the image that a GPU takes with this driver; -1: why says why none */
int manifest_pick(const Manifest *m, int arch, int driver, char *why, size_t nwhy);

/* A rule of a package that lies in the bases of a cache. */
typedef struct Package { Manifest m; const PackageRule *rule; int image; char *fatbin; size_t size; } Package;
/* Free it if true; else why says what is wrong with each folder that could have had it, or "". */
bool package_find(const Cache *c, const char *key, int arch, int driver, Package *out, char *why, size_t nwhy);
bool package_launch(const Package *p, int fn, Launch *out);
/* a package for this GPU is among them; NULL: $OPTC_CACHE_BASE */
bool package_any(const char *bases, int arch, int driver);
void package_free(Package *p);
#endif
