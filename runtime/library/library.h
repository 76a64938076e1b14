/* The header that tools/ includes beside optc.h: the compiler and the library's own
 * modules. Nothing in runtime/ includes it. */
#ifndef OPTC_LIBRARY_H
#define OPTC_LIBRARY_H
#include "gen/emit/package_text.h"
#include "gen/gen.h"
#include "runtime/core/checkpoint/checkpoint.h"
#include "runtime/library/cache/cache.h"
#include "runtime/library/cache/files.h"
#include "runtime/library/internal.h"
#include "runtime/library/base/line_reader.h"
#include "runtime/library/matrix/packed_functions.h"
#include "runtime/library/package/fatbin.h"
#include "runtime/library/package/package.h"
#include "runtime/library/profile/profile.h"
#include "runtime/library/rule/gpu_code.h"
#include "runtime/library/compile/nvrtc.h"
#include "runtime/library/rule/other_names.h"
#include "runtime/library/rule/spec_find.h"
#include "runtime/library/schedule/schedule.h"
#include "runtime/library/tune/compile_workers.h"
#include "runtime/library/tune/launch_search.h"
#include "runtime/library/base/timing.h"
#include "runtime/library/tuned/tuned.h"
#endif
