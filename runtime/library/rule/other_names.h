/* Hints for names that other packages and papers use. */
#ifndef OPTC_OTHER_NAMES_H
#define OPTC_OTHER_NAMES_H
#include "gen/gen.h"

/* "write 'adamw' with the storage types state=q8" for AdamW8bit. Ignores case, _ and -. NULL: the
 * name is unknown. */
const char *other_name(const char *name, Arena *arena);
#endif
