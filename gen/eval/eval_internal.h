/* Internal interface of the evaluator: values, intervals, blocks and matrix layouts. */
#ifndef OPTC_EVAL_IN_H
#define OPTC_EVAL_IN_H
#include "gen/eval/eval.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* val: [node * width + tensor or group]; last: by node, its last user; factor: the storage type of
 * factors */
typedef struct { EvalJob *j; const Graph *g; Vals *val; int *last; int width; Type factor; } Ev;

static inline const Target *eval_target(const Ev *e)
{
    return e->j->target ? e->j->target : &target_c;
}
static inline Vals *slot(Ev *e, Ref r, int i) { return &e->val[(int64_t)r * e->width + i]; }
static inline bool per_group(const Node *n) { return dom_info[n->dom].scope <= SCOPE_GROUP; }

static inline bool vals_new(Vals *x, int64_t n, bool bounds)
{
    size_t bytes = sizeof(double) * (size_t)(n ? n : 1);
    x->n = n;
    x->v = malloc(bytes);
    x->lo = bounds ? malloc(bytes) : NULL;
    x->hi = bounds ? malloc(bytes) : NULL;
    return x->v && (!bounds || (x->lo && x->hi));
}

static inline void vals_free(Vals *x)
{
    free(x->v);
    free(x->lo);
    free(x->hi);
    memset(x, 0, sizeof *x);
}

typedef struct { double lo, v, hi; } Iv;                   /* a value and its interval */

/* The precision of a domain: storage type, half a unit in the last place of 1, smallest and largest
 * numbers. */
static inline const TypeInfo *computed_in(const Ev *e, Dom d)
{
    return &type_info[dom_wide(d) ? T_F64 : e->j->real];
}
static inline double unit(const Ev *e, Dom d)
{
    return 1.0 / (double)((uint64_t)1 << computed_in(e, d)->digits);
}
static inline double least(const Ev *e, Dom d) { return computed_in(e, d)->least; }
static inline double most(const Ev *e, Dom d) { return computed_in(e, d)->most; }

/* Widens by `ulp` units in the last place, and to infinity if the precision overflows. */
static inline Iv widen(const Ev *e, Iv x, Dom d, double ulp)
{
    double rel = ulp * 2 * unit(e, d);
    if (ulp > 0) {
        x.lo -= fabs(x.lo) * rel + least(e, d);
        x.hi += fabs(x.hi) * rel + least(e, d);
    }
    if (x.hi > most(e, d))
        x.hi = INFINITY;
    if (x.lo < -most(e, d))
        x.lo = -INFINITY;
    return x;
}

static inline Iv anything(double v) { return (Iv){-INFINITY, v, INFINITY}; }

static inline Iv val_at(const Vals *in, int64_t at)
{
    return in->lo ? (Iv){in->lo[at], in->v[at], in->hi[at]} : (Iv){in->v[at], in->v[at], in->v[at]};
}

static inline void val_put(Vals *out, int64_t at, Iv x)
{
    out->v[at] = x.v;
    if (out->lo) {
        out->lo[at] = x.lo;
        out->hi[at] = x.hi;
    }
}

static inline void copy_vals(Vals *out, const Vals *in)
{
    if (!in->n)                                    /* a tensor without elements may have no array */
        return;
    memcpy(out->v, in->v, sizeof(double) * (size_t)in->n);
    if (out->lo) {
        memcpy(out->lo, in->lo ? in->lo : in->v, sizeof(double) * (size_t)in->n);
        memcpy(out->hi, in->hi ? in->hi : in->v, sizeof(double) * (size_t)in->n);
    }
}

/* Values of a block domain are stored block by block. A part is one block, or the whole tensor for
 * other domains. s: its shape. Of a block also its matrix, first row and column, and the index of
 * its size among the sizes of the tensor's blocks. */
typedef struct { Shape s; int64_t slice, row, col; int size; } Part;
int64_t eval_parts(const Ev *e, Dom d, Shape s);           /* the number of parts */
Part eval_part(const Ev *e, Dom d, Shape s, int64_t nth);
int64_t eval_length(const Ev *e, Dom d, Shape s);          /* values of a tensor */
/* The offset of a domain's values grows by this much after a part. It is 0 for domains that have no
 * blocks. */
static inline int64_t part_length(Dom d, Part p) { return dom_of_block(d) ? dom_len(d, p.s) : 0; }

/* Compute value r of tensor i, whose memory is already allocated. false: out of memory. */
void eval_transpose(Ev *e, Ref r, int i, Shape s);
bool eval_mm(Ev *e, Ref r, int i, Shape s);
bool eval_factor(Ev *e, Ref r, int i, Shape s);            /* eval_factors.c */
bool eval_sort_take(Ev *e, Ref r, int i, Shape s);         /* eval_sort.c: SORT, TAKE */
/* The interval after rounding to the call's storage type; an operand or result of a tf32 product:
 * to tf32. */
Iv eval_rounded(const Ev *e, Iv x, const Node *call);
/* No value overflows the storage type of the call. */
bool eval_fits(const Ev *e, const Node *call, const double *x, int64_t n);
/* A rounded copy of an operand; false: out of memory. */
bool eval_read(Ev *e, Ref r, int i, Vals *out, const Node *call);

/* One matrix of a value, as a call sees it: element (i, j) is at first + i*step[0] + j*step[1]. */
typedef struct { int64_t down, across, step[2], first; } MatrixLayout;
/* Matrix m of a part. before: values of the domain before the part. Elements of a block are part of
 * the whole matrix. */
MatrixLayout layout_of_part(Dom d, bool transposed, const Part *p, Shape all, int64_t before,
                            int64_t m);
#endif
