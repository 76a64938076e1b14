/* Shipped packages, as `optc ship` writes them: a folder with a file `manifest` that lists its
 * contents. The library uses packages as bases of its cache: it loads a rule from the package's
 * fatbin and needs no compiler.
 *
 * manifest: lines of a word and its values. The first is `optc-package 2`, the last `sum HASH` over
 * all lines before.
 *   name optc cuda              name of the package; version of optc; of NVRTC (absent: CPU only,
 *                               no arch lines)
 *   arch sm_90 BYTES HASH       machine code in the fatbin; ptx compute_80 …: PTX
 *   rule ID, then indented      spec with options types key prefix launch; kind function: not a
 *                               rule of its own
 *   file NAME BYTES HASH        every other file of the folder; GPU code alone (--code-only): only
 *                               the fatbin */
#ifndef OPTC_PACKAGE_H
#define OPTC_PACKAGE_H
#include "runtime/library/cache/cache.h"
#include "gen/gen.h"

#define PACKAGE_MARK "optc-package 2\n"

typedef struct PackageImage {
    int arch; bool ptx; uint64_t bytes; char hash[DIGEST_HEX];
} PackageImage;
typedef struct PackageFile { const char *name; uint64_t bytes; char hash[DIGEST_HEX]; } PackageFile;
/* launch: by image, "FN:KNOB,KNOB,… FN:…". function: of matrices, or kernels of such functions */
typedef struct PackageRule {
    const char *id, *about, *key, *prefix; const char **launch; bool function;
} PackageRule;

typedef struct Manifest {
    Arena arena;
    const char *name, *optc;
    int cuda;
    PackageImage *image; int nimage, image_cap;
    PackageRule *rule; int nrule, rule_cap;
    PackageFile *file; int nfile, file_cap;
} Manifest;

/* the folder has a package's manifest */
bool manifest_is(const char *dir);
/* trusted: refuses a file that others can write. Call manifest_free also after false. */
bool manifest_read(const char *dir, bool trusted, Manifest *m, char *why, size_t nwhy);
void manifest_free(Manifest *m);
/* appends the manifest's last line */
void package_seal(Buf *b);
/* Reads a file of the package and verifies its hash; malloc'ed. */
char *package_read(const char *dir, const PackageFile *f, bool trusted, size_t *size, char *why,
                   size_t nwhy);
const PackageFile *manifest_file(const Manifest *m, const char *name);       /* NULL: none */
/* rules of kind function */
int manifest_functions(const Manifest *m);
/* The image for this architecture and driver. -1: there is none, and why has the reason. */
int manifest_pick(const Manifest *m, int arch, int driver, char *why, size_t nwhy);

/* A rule of a package in the bases of a cache, with the package's fatbin. */
typedef struct Package {
    Manifest m; const PackageRule *rule; int image; char *fatbin; size_t size;
} Package;
/* True: the caller frees it. False: why says what is wrong with each package that has the rule, or
 * is "". */
bool package_find(const Cache *c, const char *key, int arch, int driver, Package *out, char *why,
                  size_t nwhy);
bool package_launch(const Package *p, int fn, Launch *out);
/* One of the folders is a package with code for this GPU. bases NULL: $OPTC_CACHE_BASE. */
bool package_any(const char *bases, int arch, int driver);
void package_free(Package *p);
#endif
