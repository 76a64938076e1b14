/* The compiler's interface: text in, text and tables out. It opens no file, starts no process and
 * uses no device. Other folders include this header and those of gen/abi/, and no other header of
 * gen/.
 *
 *   gen_compile   spec, wrappers and storage types -> Gen, with its Rule and its Plan
 *   gen_read_ir   the same from IR text
 *   gen_emit      Gen -> source text for a target (gen/emit/emit_api.h)
 *   program_make  Plan -> the tables that the runtime steps (gen/emit/program_make.h)
 *
 * A Gen owns its Rule and Plan. One thread compiles into it; two Gens share nothing. A compiled Gen
 * is read-only: any number of threads may emit from it. */
#ifndef OPTC_GEN_H
#define OPTC_GEN_H
#include "gen/base/util.h"
#include "gen/emit/emit_api.h"
#include "gen/emit/program_make.h"
#include "gen/eval/eval.h"
#include "gen/front/front.h"
#include "gen/plan/formula.h"

/* trace, passes, plan; false: g->diag */
bool gen_compile(Gen *g, Source spec, const GenOptions *o);
bool gen_read_ir(Gen *g, Source text, const GenOptions *o);       /* IR text in place of a spec */
void gen_free(Gen *g);
const char *const *gen_passes(void);                              /* names, NULL-terminated */
#endif
