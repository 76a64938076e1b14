/* The tokens of a Lua text, and an estimate of the cost of parsing it. */
#ifndef OPTC_LEX_H
#define OPTC_LEX_H
#include "gen/base/util.h"

typedef enum { NAME, NUMBER, STRING, SYMBOL, END } TokKind;
typedef struct Tok { TokKind kind; const char *s; int n, line; } Tok;

/* ends with END, which *n does not count */
Tok *lex(Arena *a, const char *text, int *n);
/* is this name or symbol; false for strings */
bool tok_is(const Tok *k, const char *s);

/* a string with a zero byte; NULL: there is none */
const Tok *lex_zero(const Tok *v);

/* An estimate of the steps of Lua's parser, computed in time linear in the tokens. The parser
 * searches for a name among the locals of every enclosing function, and walks the jump list of a
 * chain of and, or, elseif at each further one. */
double parse_price(Arena *a, const Tok *v, int n);

/* A growing set of names. */
typedef struct NameSet { struct NameEntry { const char *s; size_t n; } *v; int n, cap; } NameSet;
void names_add(NameSet *set, Arena *a, const char *s, size_t n);       /* does not copy the text */
bool names_has(const NameSet *set, const char *s, size_t n);
#endif
