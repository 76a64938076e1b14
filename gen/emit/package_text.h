/* The text of a package: several rules as source files that need only a C compiler. These functions
 * only make text. The caller compiles the GPU code, stores the result in Pack, and writes the
 * files. */
#ifndef OPTC_PACK_H
#define OPTC_PACK_H
#include "gen/emit/emit_api.h"

typedef struct PackRule {
    const Gen *gen;
    const Gen *gpu;                /* planned for a GPU, where products have fewer bits; may be the
                                    * same as gen */
    const char *id;                /* the rule's name in the package, a C identifier */
    char spec[DIGEST_HEX];         /* hash of the spec's text */
    const char *text;              /* of a function of matrices: its spec; of a rule: NULL */
    char key[DIGEST_HEX];          /* emit_key of its CUDA source with the model's launches: the
                                    * library's cache key */
} PackRule;

/* The measured method for eigenvectors or roots of one size of matrices; a package stores it as a
 * KnownMethod (runtime/core/gpu/gpu_device.h). */
typedef struct PackMethod { int roots, f64, power, bucket, method; } PackMethod;

typedef struct PackArch {
    int arch;
    bool ptx;
    Launch **launch;               /* by rule, by Stage.fn */
    PackMethod *method; int nmethod;
    char *code; size_t size;       /* the compiled program, malloc'ed */
} PackArch;

typedef struct Pack {
    const char *name, *version;    /* version: optc's */
    const char *command;           /* to generate it again, without paths */
    PackRule *rule; int nrule;     /* rules by name, then nfunction functions of matrices */
    int nfunction;
    const char *functions;         /* the list of --functions; NULL: the package has no functions of
                                    * matrices */
    const Gen **donor; int ndonor; /* plans whose GPU kernels of calls the functions need too */
    PackArch *arch; int narch;     /* machine code by architecture, then PTX if there is any; 0: CPU
                                    * only */
    int cuda;                      /* NVRTC's version, 13000; 0: no GPU code */
    char *fatbin; size_t fatbin_size;              /* NULL: no GPU code */
    Arena arena;
} Pack;

typedef enum {
    PACK_HEADER, PACK_SOURCE, PACK_EXAMPLE, PACK_MAKEFILE, PACK_CMAKE, PACK_LICENSE, NPACKFILE
} PackFile;

/* The CUDA program for p->arch[arch], and a file of the package. The caller frees them. NULL: out
 * of memory, or a broken template. */
char *pack_cuda(Pack *p, int arch);
char *pack_file(Pack *p, PackFile f);
/* two rules have a stage of the same name: *name */
bool pack_clash(Pack *p, const char **name);
/* The lines that describe rules, functions and launches. False: out of memory. */
bool pack_manifest_rules(Pack *p, Buf *b);
#endif
