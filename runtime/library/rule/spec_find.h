/* Where specs come from: files, the folders of spec_path, and the library's own, embedded when it was built. */
#ifndef OPTC_FIND_H
#define OPTC_FIND_H
#include "gen/gen.h"

/* a library name or a path */
bool find_spec(const char *spec_path, const char *name, Arena *arena, Source *out, Diag *d);
bool find_wrapper(void *spec_path, const char *name, Arena *arena, Source *out, Diag *d);        /* GenOptions.find */
/* "adamw+clip(1)+ema(0.9)" is a rule and its wrappers: the part ahead of the first + that a spec can be called, unless
 * a file has the whole name. *with: those wrappers, and `around` (NULL: none) around them. */
const char *spec_split(Arena *arena, const char *arg, const char *around, const char **with);
/* a whole file, up to 1 MiB and a byte */
bool read_text(const char *path, Arena *arena, Source *out, Diag *d);

/* Compositions that are so common that they should need no compiler either. */
typedef struct Composition { const char *rule, *with, *id; } Composition;
extern const Composition library_compositions[];       /* ends with a NULL rule */
/* Options that optc.torch compiles rules with by default, where torch's rule differs from the spec's default: a wheel
 * on a machine without a compiler has them built in too. */
typedef struct Configuration { const char *rule, *options, *id; } Configuration;
extern const Configuration library_variants[];         /* ends with a NULL rule */
#endif
