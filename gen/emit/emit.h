/* Shared by the emitters: names, operands and expressions of one stage. A target supplies the loops around them. */
#ifndef OPTC_EMIT_H
#define OPTC_EMIT_H
#include "gen/emit/emit_api.h"
#include "gen/emit/template.h"
#include "gen/plan/value_names.h"

typedef struct Used { const char *name; int count; } Used;

/* Where in a stage's template a piece of text goes: the template's holes. */
#define EMIT_HOLES(X) \
    X(HOISTED, "hoisted")      /* before any loop */ \
    X(POINTERS, "pointers") \
    X(BUFFERS, "buffers")      /* lanes of folds, room for vectors */ \
    X(FINS, "fins")            /* reductions that the stage finishes, by all threads */ \
    X(LOADS, "loads") \
    X(OUTS, "outs") \
    X(BODY, "body") \
    X(STORES, "stores") \
    X(ROWSTART, "rowstart") \
    X(ROWEND, "rowend") \
    X(COLSTART, "colstart") \
    X(COLKEEP, "colkeep") \
    X(COLEND, "colend") \
    X(COLSTRIPS, "colstrips")    /* the same, where column folds take one strip in turn */ \
    X(FINISH, "finish") \
    X(LAST, "last")            /* what waits for all warps */
typedef enum {
#define EMIT_HOLE(ID, name) AT_##ID,
    EMIT_HOLES(EMIT_HOLE)
#undef EMIT_HOLE
    NEMITHOLE
} EmitHole;

typedef struct Emit {
    const Target *target;
    const Plan *plan;
    const Phase *phase;
    const Stage *st;
    const Graph *g;
    Arena *arena;
    Buf at[NEMITHOLE];
    Used *used; int nused, used_cap;           /* identifiers of this function, a hash table */
    const char **text;                         /* by node: how an expression names its value; NULL: not yet */
    int *uses;                                 /* by node: how often this stage's expressions read it */
    int *weight;                               /* by node: operations of the expression it would make if written out */
    const char *prefix;                        /* of the numbers of arrays, where several rules share a file */
    const char **own;                          /* by Mem: the name of an array that the caller knows, kept for it */
    bool *taken;                               /* by Mem: own is in use */
    const char **hyper;                        /* likewise, by hyperparameter */
    const char **ptr;                          /* by Mem: the name of its pointer; NULL: not declared */
    const char **transposed;                       /* likewise, of a matrix that is read with its axes exchanged */
    bool wide;                                 /* the stage computes in f64 */
    bool t_ahead;                              /* hyper[0] still holds the last step's t */
    bool cites;                                /* #line directives in the body */
    int *array_slot;        /* by Mem, of a function of several stages: place among their numbers */
    bool broken;                               /* a template misses a section or names an unknown hole */
} Emit;

/* ---- emit.c: names and expressions ---- */
void emit_begin(Emit *e, const Target *t, const Plan *p, StageAt at, Arena *a, const char *prefix);
const char *emit_name(Emit *e, const char *want);              /* a fresh identifier */
const char *emit_joined(Emit *e, const char *a, const char *b);              /* likewise, "a_b" */
const char *emit_real(const Emit *e);                          /* "float" or "double" */
const char *emit_suffix(const Emit *e);                        /* "f" or "" */
const char *emit_number(const Emit *e, double x);
const char *emit_expr(Emit *e, Ref r);                         /* the right-hand side of its definition */
bool emit_inlined(const Emit *e, Ref r);                       /* used once and unnamed: written where it is used */
const char *emit_call_text(Arena *a, const char *fn, const char *x);        /* fn(x); x where there is no function */
const char *emit_type_suffix(Type t);
const char *emit_value_name(Emit *e, Ref r);                   /* value_name, not yet an identifier of this function */
/* A fresh identifier for an array or what was loaded from it: its own where that is free. */
const char *emit_array_name(Emit *e, Access a);
const char *emit_array(Emit *e, Access a, bool writable);      /* "(const float *)self->mem[at_m]" */
const char *emit_array_param(const Emit *e, const char *param); /* a parameter for them, where they are told; else "" */
const char *emit_red_kind(const Node *n);                      /* "sum", "max", "min" */
const char *emit_fold_real(const Emit *e, const Node *n);      /* what a fold's lanes and partials are */
const char *emit_fold_suffix(const Emit *e, const Node *n);
const char *emit_square(Emit *e, const char *x);               /* of the value of that name, in f64 */
const char *emit_raw_name(Emit *e, Ref r);                     /* a name for what a reduction's partials come to */
void emit_finished(Emit *e, EmitHole to, Ref r, const char *raw);               /* the reduction's value from that */
const char *emit_parts_per_row(Arena *a, const Mem *m);        /* how many partials a reduction left, over self */
const char *emit_parts_per_col(Arena *a, const Mem *m);
const char *emit_parts_per_slice(Emit *e, const Mem *m);
const char *emit_parts_of(Emit *e, const Mem *m);        /* of what the stage has one value of */
/* Where a fold leaves its partial; own: its unit, of a row's the row, of a column's the column, here in the piece. */
const char *emit_slot(Emit *e, Access f, const char *own);
const char *emit_finish(const Mem *m);                         /* the section that finishes it, of a list */

/* ---- emit_stage.c: what a stage does, on every target ---- */
void emit_scalars(Emit *e);                                    /* hyperparameters and counts the stage reads */
void emit_put(Emit *e, EmitHole to, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
void emit_section(Emit *e, EmitHole to, const char *section, const Hole *h, int n);      /* a section of the target's */
const char *emit_filled(Emit *e, const char *section, const Hole *h, int n);          /* likewise, as text */
bool emit_stores(const Stage *s, int mem);
void emit_define(Emit *e, EmitHole to, Ref r, const char *name, const char *value);
const char *emit_loaded(Emit *e, Access a, const char *from);  /* what a load gives, as the rule computes with it */
const char *emit_entry(Emit *e, Access a, const char *from);   /* likewise, of an array that is walked along */
const char *emit_pointer(Emit *e, Access a, const char *offset);             /* declared when first asked for */
void emit_load_scalar(Emit *e, EmitHole to, Access a, const char *index);       /* a value that one piece has one of */
Ref emit_folded(const Emit *e, Access f);                      /* the value that a fold takes */
const char *emit_absent(Emit *e);
bool emit_fold_single(Emit *e, Access f);                      /* of a stage of one value: done; false: it is none */
bool emit_store_single(Emit *e, Access a, const char *value);
void emit_body(Emit *e);                                       /* its operations, ahead of folds and stores */
void emit_line_directive(Emit *e, Ref r);
int emit_holes(Emit *e, Hole *h);                              /* the places as holes: NPLACE of them */
const char *emit_length(Emit *e, Dom d);                       /* of a list of such values */
const char *emit_whole_length(Emit *e, Dom d);                 /* in the tensor that this is a piece of */
Dom emit_dom(const Emit *e, Access a);                         /* of what is loaded: turned, not its array's */
bool emit_transposed(const Emit *e, Access a);                     /* of a matrix: read at the exchanged place */
/* Values of a block's domain that a tensor has, or partials of a fold of all of them. */
const char *emit_block_values(Emit *e, Dom d, bool parts);
const char *emit_axis(Emit *e, Dom d, int axis);               /* its length, over self */
/* What DOWN and ACROSS of the stage are called: along the axes of its domain, counted here. */
typedef struct EmitIndex { const char *from, *on; } EmitIndex;  /* where a loop begins; how it goes on */
void emit_indices(Emit *e, EmitIndex down, EmitIndex across);
const char *emit_index_type(const Emit *e);                    /* of squares int: no memory holds longer ones */
/* A row or column of a whole array that the stage folds: false where it is a row, whose entries lie side by side. */
bool emit_folds_down(const Emit *e, Access f);
const char *emit_folded_from(Emit *e, Access f);               /* the array, from the unit's first on */
const char *emit_folded_count(Emit *e, Access f);              /* how many entries are folded */
const char *emit_count(Emit *e, const Node *n);                /* of an OP_COUNT, over self */
extern const char emit_line_mark[];                            /* for the line of the emitted file that it is on */

/* ---- files: emit_file.c, and by target ---- */
void emit_array_numbers(Buf *b, const Plan *p, const EmitOptions *o);        /* the enum of at_m and its like */
bool emit_selects(const Plan *p, const EmitOptions *o, int fn);  /* the stage is in a file with these options */
/* emit_stage_name behind a prefix, or NULL for none. */
const char *emit_prefixed(Arena *a, const char *prefix, const Plan *p, const char *entry, int mask, const Stage *s);
const char *emit_stage_comment(Arena *a, const Stage *s);
const char *emit_about(Arena *a, const Gen *g);
const char *emit_title(Arena *a, const Rule *r);
const char *emit_comment_text(Arena *a, const char *s);               /* text that may stand in a comment */
const char *emit_file(Arena *a, const char *s);
void emit_wrap(Buf *out, const char *text);                    /* line_wrap.c: lines of at most 120 columns */

/* The stages of a rule, and what stands ahead of stages, where several rules share a file. Bufs and scratch are in an
 * arena, which jumps when memory ends; false: a broken template. table: the functions' names, by Stage.fn, with
 * commas. */
bool emit_c_stages(const Gen *g, const EmitOptions *o, Arena *a, Buf *code, Buf *table);
const char *emit_c_abi(Arena *a);
void emit_c_shared(Buf *b, const char *code);                  /* what the code stands on */
/* how a stage becomes one */
typedef struct CudaKernel { const Launch *launch; const char *prefix, *fn; bool cites; } CudaKernel;
bool emit_cuda_kernel(Buf *out, Arena *a, const Plan *p, StageAt at, CudaKernel k);
bool emit_cuda_stages(const Gen *g, const EmitOptions *o, Arena *a, Buf *code);
/* The kernels that the calls of these rules need, once each; PHASE is left out. */
bool emit_cuda_calls(Buf *b, const Plan *const *p, int n);
bool emit_cuda_file(Buf *out, Arena *a, const char *title, const char *about, const char *command, const char *name,
                    const char *code);
bool emit_c(const Gen *g, const EmitOptions *o, Arena *a, Buf *out);
bool emit_cuda(const Gen *g, const EmitOptions *o, Arena *a, Buf *out);
#endif
