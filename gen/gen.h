/* What the compiler offers: text in, text and tables out. It opens no file, starts no process, knows no device. This is the
 * only header of gen/ (beside those of gen/abi/) that other folders include.
 *
 *   gen_compile   spec (and wrappers) -> Rule -> Plan, kept in a Gen
 *   gen_emit      Plan -> source text for a target (gen/emit/emit_api.h)
 *   program_make  Plan -> the tables that the runtime steps (gen/emit/program_make.h)
 *
 * One thread makes a Gen; two Gens share nothing. From then on it is only read: any number of threads may emit from one, and
 * emitting leaves nothing behind. */
#ifndef OPTC_GEN_H
#define OPTC_GEN_H
#include "gen/base/util.h"
#include "gen/emit/emit_api.h"
#include "gen/emit/program_make.h"
#include "gen/eval/eval.h"
#include "gen/front/front.h"
#include "gen/plan/formula.h"

bool gen_compile(Gen *g, Source spec, const GenOptions *o);       /* trace, passes, plan; false: g->diag */
bool gen_read_ir(Gen *g, Source text, const GenOptions *o);       /* IR text in place of a spec */
void gen_free(Gen *g);
const char *const *gen_passes(void);                              /* names, NULL-terminated */
#endif
