/* Conversions between storage types and compute types. Packages contain them already, ahead of
 * their stages. */
#include <math.h>
#ifndef OPTC_FN
#define OPTC_FN static inline __attribute__((unused))
#include "templates/math.h"
#include "templates/math_f32.h"
#include "templates/math_f64.h"
#include "templates/random.h"
#include "templates/types.h"
#include "templates/codes.h"
#include "templates/rounding.h"
#endif
