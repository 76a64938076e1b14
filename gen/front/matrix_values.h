/* Shared by the files that build matrix values: matrix_values.c, matrix_factors.c, polar.c and
 * reduce.c. */
#ifndef OPTC_MATRIX_H
#define OPTC_MATRIX_H
#include "gen/front/trace.h"

/* The transpose. Scalars, symmetric values and transposes need no new node. */
Ref matrix_transpose(lua_State *L, Ref r);
/* Moves transposes out of an operation: op(a.T, b.T) becomes op(a, b).T (gen/IR.md). d: the
 * operation's domain. NONE: the operation stays as it is. */
Ref matrix_lift(lua_State *L, Op op, const Ref *arg, Dom d);
/* The product a b. flags: SYMMETRIC if the caller knows that the result is, even if it cannot be
 * derived; IN_F32 or IN_TF32. Error if the shapes do not fit. */
Ref matrix_product(lua_State *L, const char *what, Ref a, Ref b, unsigned flags);
Ref matrix_eye(lua_State *L, Ref x, Dom d);        /* x on the diagonal, 0 elsewhere */
/* error if the domain has a rank axis and the rule has no rank */
void matrix_rank(lua_State *L, Dom d);
/* Error if `rank` may be longer than this axis, of which `what` takes the first `rank` values. */
void matrix_rank_within(lua_State *L, const char *what, Axis axis);
int matrix_field(lua_State *L);                    /* a.T, or an error */
int l_eye(lua_State *L);
void matrix_open(lua_State *L);

/* Error, with the hint `says`, if the table at this index has a key that is not in `known`. */
void matrix_keys(lua_State *L, int table, const char *says, const char *const *known);

/* polar.c */
int l_polar(lua_State *L);
/* no more rows than columns; may ask about the tensor */
bool matrix_is_wide(lua_State *L, Dom d);
/* matrix_factors.c */
void factors_open(lua_State *L);
Ref matrix_call(lua_State *L, Factor f);           /* of each block, if the rule has blocks */
/* An argument that is a matrix or values along one axis; in a rule with blocks: a block's values,
 * or elements. */
Ref matrix_operand(lua_State *L, int i, const char *what, int n);
/* A value without its transpose, and whether it was transposed. Values along one axis are
 * transposed if their domain is (row_t, col_t …). */
typedef struct MatrixPlain { Ref x; bool transposed; } MatrixPlain;
MatrixPlain matrix_plain(lua_State *L, Ref r);

/* Eigenvalues, one for each column of the eigenvectors v. first: as many as the axis rank is
 * long. */
typedef struct MatrixEigen { Ref w, v; } MatrixEigen;
MatrixEigen matrix_eigh(lua_State *L, Ref a, bool first, Ref last);

void select_open(lua_State *L);                    /* row_select.c */
void singular_open(lua_State *L);                  /* singular_values.c */
int l_svd(lua_State *L);                           /* returns three values */
int l_eigh(lua_State *L);                          /* returns two values */

/* reduce.c */
Ref trace_fold(lua_State *L, Op op, Ref x, Dom to);
/* OP_NORM or OP_RMS without overflow or underflow */
Ref trace_norm(lua_State *L, Op op, Ref x, Dom to);
void reduce_open(lua_State *L);
#endif
