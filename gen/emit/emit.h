/* Internal interface of the emitters: names, operands and expressions of one stage, and the files
 * around the stages. A target supplies the loops. */
#ifndef OPTC_EMIT_H
#define OPTC_EMIT_H
#include "gen/emit/emit_api.h"
#include "gen/emit/template.h"
#include "gen/plan/value_names.h"

typedef struct Used { const char *name; int count; } Used;

/* The holes of a stage's template. Emitters append text to them. */
#define EMIT_HOLES(X) \
    X(HOISTED, "hoisted")      /* before all loops */ \
    X(POINTERS, "pointers") \
    X(BUFFERS, "buffers")      /* lanes of folds, arrays for vectors */ \
    X(FINS, "fins")            /* reductions that all threads finish together */ \
    X(LOADS, "loads") \
    X(OUTS, "outs") \
    X(BODY, "body") \
    X(STORES, "stores") \
    X(ROWSTART, "rowstart") \
    X(ROWEND, "rowend") \
    X(COLSTART, "colstart") \
    X(COLKEEP, "colkeep") \
    X(COLEND, "colend") \
    X(COLSTRIPS, "colstrips")  /* COLKEEP and COLEND together, if column folds share one strip */ \
    X(FINISH, "finish") \
    X(LAST, "last")            /* after a barrier for all warps */
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
    bool quick;                                /* quotients and roots by templates/exact_cuda.h */
    /* by node: the text that stands for its value; NULL: none yet */
    const char **text;
    /* by node: how often this stage's expressions read it */
    int *uses;
    /* by node: operations of its expression if it is not given a name */
    int *weight;
    /* of the enumerators at_NAME, if several rules share a file */
    const char *prefix;
    /* by Mem, for p, g, inputs and states: the identifier reserved for it */
    const char **own;
    bool *taken;                               /* by Mem: own is in use */
    /* by hyperparameter: the identifier reserved for it */
    const char **hyper;
    /* by Mem: the name of its pointer; NULL: not declared */
    const char **ptr;
    /* by Mem: the same, for a matrix that is read with exchanged axes */
    const char **transposed;
    bool wide;                                 /* the stage computes in f64 */
    bool t_ahead;                              /* hyper[0] still holds the previous step's t */
    bool cites;                                /* #line directives in the body */
    bool runs;                                 /* EmitOptions.runs */
    /* shared stages, by Mem: index in the argument `arrays`, + 1 */
    int *array_slot;
    /* a template misses a section or names an unknown hole */
    bool broken;
} Emit;

/* ---- emit.c: names and expressions ---- */
void emit_begin(Emit *e, const Target *t, const Plan *p, StageAt at, Arena *a, const char *prefix);
/* a new identifier: want, with a suffix if taken */
const char *emit_name(Emit *e, const char *want);
/* a new identifier "a_b" */
const char *emit_joined(Emit *e, const char *a, const char *b);
const char *emit_real(const Emit *e);                          /* "float" or "double" */
const char *emit_suffix(const Emit *e);                        /* "f" or "" */
const char *emit_number(const Emit *e, double x);
/* the right-hand side of its definition */
const char *emit_expr(Emit *e, Ref r);
/* used once and unnamed: part of another expression */
bool emit_inlined(const Emit *e, Ref r);
/* fn(x); x if fn is empty */
const char *emit_call_text(Arena *a, const char *fn, const char *x);
const char *emit_type_suffix(Type t);
/* value_name; emit_name makes it an identifier */
const char *emit_value_name(Emit *e, Ref r);
/* A new identifier for an array or a value loaded from it: the reserved one if it is free. */
const char *emit_array_name(Emit *e, Access a);
const char *emit_array_number(Emit *e, Access a);              /* "at_m" */
/* "(const float *)self->mem[at_m]" */
const char *emit_array(Emit *e, Access a, bool writable);
bool emit_coded(const Emit *e, Access a);                       /* an array of block codes */
bool emit_codes(const Emit *e);                                /* the stage has one */
/* the dither of its stores, before any loop */
void emit_dither(Emit *e);
/* an array whose stores round stochastically */
bool emit_drawn(const Emit *e, Access a);
bool emit_draws(const Emit *e);                                /* the stage stores one */
/* Declares before all loops what the random bits of an array have in common, and returns its
 * name. */
const char *emit_draws_of(Emit *e, Access a, const char *label);
/* param if array numbers are an argument; else "" */
const char *emit_array_param(const Emit *e, const char *param);

/* ---- emit_partials.c ---- */
const char *emit_red_kind(const Node *n);                      /* "sum", "max", "min" */
/* the type of a fold's lanes and partials */
const char *emit_fold_real(const Emit *e, const Node *n);
const char *emit_fold_suffix(const Emit *e, const Node *n);
const char *emit_square(Emit *e, const char *x);               /* x * x in f64 */
/* A norm's partials add up to a sum of squares: emit_raw_name names it, emit_finished defines the
 * value from it. For other reductions the two are the same. */
const char *emit_raw_name(Emit *e, Ref r);
void emit_finished(Emit *e, EmitHole to, Ref r, const char *raw);
/* How many partials a reduction has per row, column, slice, or value of the stage, as an expression
 * over self. */
const char *emit_parts_per_row(Arena *a, const Mem *m);
const char *emit_parts_per_col(Arena *a, const Mem *m);
const char *emit_parts_per_slice(Emit *e, const Mem *m);
const char *emit_parts_of(Emit *e, const Mem *m);
/* The index at which a fold stores its partial. own: the row (row folds), the column (column folds)
 * or the unit, counted within the shard. */
const char *emit_slot(Emit *e, Access f, const char *own);
/* the template section that finishes it in a list */
const char *emit_finish(const Mem *m);

/* ---- emit_stage.c: parts of a stage that all targets share ---- */
/* hyperparameters and counts that the stage reads */
void emit_scalars(Emit *e);
void emit_put(Emit *e, EmitHole to, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* appends a filled section */
void emit_section(Emit *e, EmitHole to, const char *section, const Hole *h, int n);
/* the same, as text */
const char *emit_filled(Emit *e, const char *section, const Hole *h, int n);
bool emit_stores(const Stage *s, int mem);
void emit_define(Emit *e, EmitHole to, Ref r, const char *name, const char *value);
/* a loaded value in the type the stage computes in */
const char *emit_loaded(Emit *e, Access a, const char *from);
/* the same, from an array that the stage walks along */
const char *emit_entry(Emit *e, Access a, const char *from);
/* declares it on the first call */
const char *emit_pointer(Emit *e, Access a, const char *offset);
/* a value that is constant in a loop */
void emit_load_scalar(Emit *e, EmitHole to, Access a, const char *index);
Ref emit_folded(const Emit *e, Access f);                      /* the operand of a fold */
const char *emit_absent(Emit *e);
/* Single-value stages: emit the fold or store and return true. Other stages: return false. */
bool emit_fold_single(Emit *e, Access f);
bool emit_store_single(Emit *e, Access a, const char *value);
/* the operations, before folds and stores */
void emit_body(Emit *e);
void emit_line_directive(Emit *e, Ref r);
int emit_holes(Emit *e, Hole *h);                              /* fills h[NEMITHOLE] */
const char *emit_length(Emit *e, Dom d);                       /* number of values per matrix */
/* the same, in the whole tensor of a shard */
const char *emit_whole_length(Emit *e, Dom d);
/* of the loaded value: after a transpose */
Dom emit_dom(const Emit *e, Access a);
/* a matrix that is read with exchanged indices */
bool emit_transposed(const Emit *e, Access a);
/* The number of values of a block's domain in a tensor, or of the partials of a fold of all of
 * them. */
const char *emit_block_values(Emit *e, Dom d, bool parts);
/* its length, as an expression over self */
const char *emit_axis(Emit *e, Dom d, int axis);
/* Sets the text of DOWN and ACROSS: the index along an axis is `from` plus `on`, plus the shard's
 * offset. */
/* at the start of the loop; + the loop's counter */
typedef struct EmitIndex { const char *from, *on; } EmitIndex;
void emit_indices(Emit *e, EmitIndex down, EmitIndex across);
/* int for square matrices, whose sides fit into it */
const char *emit_index_type(const Emit *e);
/* For a fold of a whole array: true if it folds columns; false: rows, whose entries are
 * adjacent. */
bool emit_folds_down(const Emit *e, Access f);
/* the address of the first entry of the unit */
const char *emit_folded_from(Emit *e, Access f);
const char *emit_folded_count(Emit *e, Access f);              /* the number of entries per fold */
/* the value of an OP_COUNT, over self */
const char *emit_count(Emit *e, const Node *n);
/* replaced by a #line for the emitted file itself */
extern const char emit_line_mark[];

/* ---- files: emit_file.c, and by target ---- */
/* the enum of at_NAME */
void emit_array_numbers(Buf *b, const Plan *p, const EmitOptions *o);
/* a file with these options contains the stage */
bool emit_selects(const Plan *p, const EmitOptions *o, int fn);
/* prefix followed by emit_stage_name; prefix NULL: none. */
const char *emit_prefixed(Arena *a, const char *prefix, const Plan *p, const char *entry, int mask,
                          const Stage *s);
const char *emit_stage_comment(Arena *a, const Stage *s);
const char *emit_about(Arena *a, const Gen *g);
const char *emit_title(Arena *a, const Rule *r);
/* s without characters that could end a comment */
const char *emit_comment_text(Arena *a, const char *s);
const char *emit_file(Arena *a, const char *s);
/* line_wrap.c: lines of at most 120 columns */
void emit_wrap(Buf *out, const char *text);

/* How a stage becomes a function of C. */
typedef struct CFunction { const char *prefix, *name; bool runs; } CFunction;
bool emit_c_function(Buf *out, Arena *a, const Plan *p, StageAt at, CFunction fn);
/* The stages of one rule, and the text before them; several rules may share a file. Bufs and
 * scratch memory are in an arena, which jumps when it is out of memory. false: a template is
 * broken. table: the names of the functions in order of Stage.fn, separated by commas. */
bool emit_c_stages(const Gen *g, const EmitOptions *o, Arena *a, Buf *code, Buf *table);
const char *emit_c_abi(Arena *a);
void emit_c_shared(Buf *b, const char *code);                  /* the prelude of this code */
/* How a stage becomes a kernel. fn: its name. */
typedef struct CudaKernel {
    const Launch *launch; const char *prefix, *fn; bool cites, runs;
} CudaKernel;
bool emit_cuda_kernel(Buf *out, Arena *a, const Plan *p, StageAt at, CudaKernel k);
bool emit_cuda_stages(const Gen *g, const EmitOptions *o, Arena *a, Buf *code);
/* The kernels that the calls of these rules need, each once, without KERNEL_PHASE. */
bool emit_cuda_calls(Buf *b, const Plan *const *p, int n);
/* kernels that belong to no rule, for all types */
bool emit_cuda_matrices(Buf *b, const char *section);
/* kernels that no stage has; for all of the plans */
bool emit_cuda_common(Buf *b, const Plan *const *p, int n);
/* a sharded binding of it may exchange arrays */
bool plan_exchanges(const Plan *p);
bool emit_cuda_file(Buf *out, Arena *a, const char *title, const char *about, const char *command,
                    const char *name, const char *code);
bool emit_c(const Gen *g, const EmitOptions *o, Arena *a, Buf *out);
bool emit_cuda(const Gen *g, const EmitOptions *o, Arena *a, Buf *out);
#endif
