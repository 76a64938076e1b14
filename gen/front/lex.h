/* The tokens of a Lua text, and what parsing it will cost. */
#ifndef OPTC_LEX_H
#define OPTC_LEX_H
#include "gen/base/util.h"

typedef enum { NAME, NUMBER, STRING, SYMBOL, END } TokKind;
typedef struct Tok { TokKind kind; const char *s; int n, line; } Tok;

Tok *lex(Arena *a, const char *text, int *n);              /* the last one is END, not counted */
bool tok_is(const Tok *k, const char *s);                  /* this name or symbol; a string is none */

/* Steps of Lua's own parser, roughly: it looks a name up among the locals of every function around it, and walks
 * the jumps of a chain of and, or, elseif for each further one. Linear in the tokens. */
double parse_price(Arena *a, const Tok *v, int n);

/* A growing set of names. */
typedef struct NameSet { struct NameEntry { const char *s; size_t n; } *v; int n, cap; } NameSet;
void names_add(NameSet *set, Arena *a, const char *s, size_t n);       /* the text must stay */
bool names_has(const NameSet *set, const char *s, size_t n);
#endif
