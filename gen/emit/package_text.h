/* A package: several rules as text that a C compiler and nothing else turns into a program. Text in, text out, as
 * everything here; who compiles the GPU code and writes the files hands the machine code back in. */
#ifndef OPTC_PACK_H
#define OPTC_PACK_H
#include "gen/emit/emit_api.h"

typedef struct PackRule {
    const Gen *gen;
    /* planned for a GPU, whose products are in fewer bits; `gen` itself: one plan is both */
    const Gen *gpu;
    const char *id;                /* the rule's name in the package, a C identifier */
    char spec[DIGEST_HEX];                 /* hash of the spec's text */
    /* emit_key of its CUDA source alone, with the model's launches: how a library finds it */
    char key[DIGEST_HEX];
} PackRule;

/* The measured method for eigenvectors or roots of one size of matrices; a package stores it as a KnownMethod
 * (runtime/core/gpu/gpu_device.h). */
typedef struct PackMethod { int roots, f64, power, bucket, method; } PackMethod;

typedef struct PackArch {
    int arch;
    bool ptx;
    Launch **launch;               /* by rule, by Stage.fn */
    PackMethod *method; int nmethod;
    char *code; size_t size;       /* what was compiled: malloc'ed */
} PackArch;

typedef struct Pack {
    const char *name, *version;    /* version: optc's */
    const char *command;           /* that makes it again, free of paths */
    PackRule *rule; int nrule;
    PackArch *arch; int narch;     /* machine code by architecture, then PTX if there is any; none: for the CPU alone */
    int cuda;                      /* NVRTC's version, 13000; 0: no GPU code */
    char *fatbin; size_t fatbin_size;              /* NULL: likewise */
    Arena arena;
} Pack;

typedef enum { PACK_HEADER, PACK_SOURCE, PACK_EXAMPLE, PACK_MAKEFILE, PACK_CMAKE, NPACKFILE } PackFile;

/* the CUDA program for p->arch[arch]; NULL: out of memory, or a broken template */
char *pack_cuda(Pack *p, int arch);
char *pack_file(Pack *p, PackFile f);                          /* likewise */
bool pack_clash(Pack *p, const char **name);                   /* two rules would have a stage of the same name */
void pack_manifest_rules(Pack *p, Buf *b);                     /* the lines that describe rules and launches */
#endif
