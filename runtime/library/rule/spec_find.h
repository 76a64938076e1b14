/* Finds specs: files, the folders of spec_path, and the library's own specs, which the build
 * embeds. */
#ifndef OPTC_FIND_H
#define OPTC_FIND_H
#include "gen/gen.h"

/* name: a name of the library, or a path. */
bool find_spec(const char *spec_path, const char *name, Arena *arena, Source *out, Diag *d);
/* GenOptions.find */
bool find_wrapper(void *spec_path, const char *name, Arena *arena, Source *out, Diag *d);
/* Splits "adamw+clip(1)+ema(0.9)" into a rule, which is returned, and its wrappers. If a file has
 * the whole name, that is the rule. *with: the wrappers, then those of `around` (NULL: none), which
 * are outermost. */
const char *spec_split(Arena *arena, const char *arg, const char *around, const char **with);
/* The text is that of a spec of the library (the same pointer). */
bool spec_embedded(const char *text);
/* Reads a file, up to 1 MiB and one byte. */
bool read_text(const char *path, Arena *arena, Source *out, Diag *d);

/* Rules that the build compiles into the library; all others are compiled when they are first
 * used. */
typedef struct BuiltinName { const char *rule; } BuiltinName;
extern const BuiltinName library_builtin[];            /* ends with a NULL rule */
/* Common compositions, which are compiled into the library too. */
typedef struct Composition { const char *rule, *with, *id; } Composition;
extern const Composition library_compositions[];       /* ends with a NULL rule */
/* Options that optc.torch sets by default because PyTorch's defaults differ from the spec's. These
 * rules are compiled into the library too, for wheels on machines without a compiler. */
typedef struct Configuration { const char *rule, *options, *id; } Configuration;
extern const Configuration library_variants[];         /* ends with a NULL rule */
/* Rules in common sets of storage types, compiled into the library too. types: as in
 * optc_rule_options. */
typedef struct TypedRule { const char *rule, *with, *types, *id; } TypedRule;
extern const TypedRule library_types[];                /* ends with a NULL rule */
#endif
