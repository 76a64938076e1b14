/* The functions of matrices in a package (optc ship --functions). */
#ifndef OPTC_PACKED_FUNCTIONS_H
#define OPTC_PACKED_FUNCTIONS_H
#include "gen/gen.h"

enum { MOST_PACKED_FORMS = 200, MOST_PACKED_SPEC = 1024 };
/* One spec in one compute type. id: the function's name; kernels_only: the package needs the GPU
 * kernels of its calls, and no stages. */
typedef struct PackedForm {
    const char *id; char spec[MOST_PACKED_SPEC]; Type type; bool kernels_only;
} PackedForm;
/* The forms of a list of names, separated by commas. library: as the library compiles them, where
 * each exponent has its own spec, and no form is kernels_only. Returns their number; -1: `why` has
 * the reason. */
int packed_forms(const char *list, bool library, PackedForm *out, int most, char *why, size_t nwhy);
#endif
