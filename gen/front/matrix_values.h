/* Between the files that make matrix values: matrix_values.c, polar.c and those they serve. */
#ifndef OPTC_MATRIX_H
#define OPTC_MATRIX_H
#include "gen/front/trace.h"

/* The value with its axes exchanged. Values of one, a symmetric one and what is turned already need no node. */
Ref matrix_transpose(lua_State *L, Ref r);
/* An operation on turned values is the operation, turned (gen/IR.md): d is its domain. NONE: it stays as it is. */
Ref matrix_lift(lua_State *L, Op op, const Ref *arg, Dom d);
/* a b; symmetric: whoever asks knows it is, whether or not it can be seen. An error where shapes do not fit. */
Ref matrix_product(lua_State *L, const char *what, Ref a, Ref b, bool symmetric);
Ref matrix_eye(lua_State *L, Ref x, Dom d);        /* x on the diagonal */
void matrix_rank(lua_State *L, Dom d);             /* an error where the domain has it and the rule does not */
int matrix_field(lua_State *L);                    /* a.T, or an error */
int l_eye(lua_State *L);
void matrix_open(lua_State *L);

/* An error where the table on the stack has another key than these, which `says` tells of. */
void matrix_keys(lua_State *L, int table, const char *says, const char *const *known);

int l_polar(lua_State *L);                         /* polar.c */
void factors_open(lua_State *L);                   /* matrix_factors.c */
int l_eigh(lua_State *L);                          /* gives two values */

/* reduce.c */
Ref trace_fold(lua_State *L, Op op, Ref x, Dom to);
Ref trace_norm(lua_State *L, Op op, Ref x, Dom to);        /* OP_NORM or OP_RMS, of every value that the type holds */
void reduce_open(lua_State *L);
#endif
