/* Compiler passes on rules, one file each, and the text form of rules. A pass that fails sets the
 * Diag and returns false. */
#ifndef OPTC_RULE_PASSES_H
#define OPTC_RULE_PASSES_H
#include "gen/base/diag.h"
#include "gen/ir/ir.h"

typedef struct Source { const char *path, *text; size_t len; } Source;

/* The storage types of a rule. `state` covers elementwise states that start at zero; `named`
 * chooses types by state ("m=bf16,ema.avg=f32"), NULL or "" for none. master: how 16-bit parameters
 * keep the bits that they round away (MASTER_NONE: they do not). copy: 1 + the type of a second
 * copy of the parameters that the same pass writes; 0: none.
 * lost: counts the elements whose update rounds away. edits: with MASTER_F32, takes elements that
 * the caller wrote from the parameter. */
typedef enum { MASTER_NONE, MASTER_F32, MASTER_LOW16, MASTER_LOW8, MASTER_KAHAN, NMASTER } Master;
typedef struct Types {
    Type p, g, state;
    const char *named;
    Master master;
    int copy;
    bool lost, edits;
} Types;

/* storage_types.c. The whole choice: the text ("param=bf16,state=q8,ema.avg=bf16"), then p, g and
 * state where it does not have them (-1: not chosen), then the defaults: gradients as parameters,
 * states in the type that elements are computed in. */
bool types_choose(Arena *a, const char *text, int p, int g, int state, Types *out, Diag *d);
/* Prints the choices of t other than param, grad and state: "m=bf16,master=low16". Returns NULL if
 * there are none. */
const char *types_beside(Arena *a, const Types *t);

/* ir_print.c, ir_read.c: the text of a rule. product_words: the words for flags of products. */
typedef struct ProductWord { const char *word; int flag; } ProductWord;
enum { NPRODUCT_WORDS = 11 };
extern const ProductWord product_words[NPRODUCT_WORDS];
void rule_print(Buf *b, const Rule *r);
Rule *rule_parse(Arena *a, Source text, Diag *d);          /* NULL: the Diag is set */

/* value_ranges.c. of: bounds of every node; nonneg: states that are never negative. */
typedef struct Interval { double lo, hi; } Interval;
typedef struct Ranges { Interval *of; bool *nonneg; } Ranges;
Ranges rule_ranges(Arena *a, const Rule *r);
/* The first division, root, logarithm or power that a state of unknown sign must not reach; NONE:
 * there is none. */
Ref state_divides(Arena *a, const Rule *r, const Ranges *x, int state);

/* rule_warnings.c: adds a warning unless the rule has it; they are sorted by file and line. path:
 * NULL if the warning belongs to no line; source: the file's text or NULL. */
typedef struct Place { int file, line; const char *path, *source; } Place;
void rule_warn(Rule *r, Place at, const char *text);
Place state_place(const Rule *r, const State *s);
/* the name in the spec of a state, or of its ring */
const char *ring_name(Arena *a, const State *s);
/* with the path of the spec, if it is in this file */
Place place_in(Place at, const char *path);

/* Applies the types to the states (storage_pass.c). path: of the spec, for messages. false: the
 * Diag is set. */
bool pass_storage(Rule *r, const Types *t, const char *path, Diag *d);
/* An entry that stores the parameters themselves in a state, and the value; -1: none does. */
int keeps_params(const Rule *r, int state, Ref *at);
/* precision_warnings.c: warns of averages that freeze and updates that round away, by the
 * defaults of the hyperparameters. */
bool pass_precision(Rule *r, const Types *t, const char *path, Diag *d);
bool pass_stochastic_rounding(Rule *r, const Types *t, const char *path, Diag *d);
bool pass_verify(Rule *r, Diag *d);
bool pass_master(Rule *r, const Types *types, const char *path, Diag *d);
/* bindings: the bindings that share the rule's reductions over all tensors; below 2: nothing
 * changes. */
bool pass_share(Rule *r, int bindings, Diag *d);
/* chosen: 1 + the Product that the user chose for all products, or 0; p: the type of parameters */
bool pass_product_override(Rule *r, int chosen, Type p, Diag *d);
/* exchange_warnings.c: as pass_precision, for entries that exchange p with a state */
bool pass_exchange(Rule *r, const Types *types, const char *path, Diag *d);
bool pass_constant_fold(Rule *r, Diag *d);
bool pass_product_fuse(Rule *r, Diag *d);
#endif
