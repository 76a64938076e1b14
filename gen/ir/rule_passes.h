/* Compiler passes on rules, one file each, and the text form of rules. A pass that fails sets the Diag and returns
 * false. */
#ifndef OPTC_RULE_PASSES_H
#define OPTC_RULE_PASSES_H
#include "gen/base/diag.h"
#include "gen/ir/ir.h"

typedef struct Source { const char *path, *text; size_t len; } Source;

/* ir_text.c */
void rule_print(Buf *b, const Rule *r);
Rule *rule_parse(Arena *a, Source text, Diag *d);          /* NULL: the Diag is set */

bool pass_verify(Rule *r, Diag *d);
bool pass_constant_fold(Rule *r, Diag *d);
bool pass_product_fuse(Rule *r, Diag *d);
#endif
