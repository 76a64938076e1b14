/* Storage types to and from what is computed in. A package has them ahead of its stages. */
#ifndef OPTC_FN
#define OPTC_FN static inline __attribute__((unused))
#include "templates/math.h"
#include "templates/types.h"
#include "templates/codes.h"
#endif
