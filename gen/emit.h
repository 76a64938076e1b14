/* Shared by the emitters: names, operands and expressions of one stage. A target supplies the loops around them. */
#ifndef OPTC_EMIT_H
#define OPTC_EMIT_H
#include "gen.h"
#include "names.h"

typedef struct Used { const char *name; int count; } Used;

typedef struct Emit {
    const Plan *plan;
    const Phase *phase;
    const Stage *st;
    const Graph *g;
    Arena *arena;
    Used *used; int nused, used_cap;           /* identifiers of this function, a hash table */
    const char **text;                         /* by node: how an expression names its value; NULL: not yet */
    int *uses;                                 /* by node: how often this stage's expressions read it */
    int *weight;                               /* by node: operations of the expression it would make if written out */
    const char *prefix;                        /* of the numbers of arrays, where several rules share a file */
    const char **own;                          /* by Mem: the name of an array that the caller knows, p, g, inputs and states: nothing else takes it */
    bool *taken;                               /* by Mem: own is in use */
    const char **hyper;                        /* likewise, by hyperparameter */
    bool wide;                                 /* the stage computes in f64 */
    bool t_ahead;                              /* hyper[0] still holds the last step's t */
} Emit;

void emit_begin(Emit *e, const Plan *p, const Phase *ph, const Stage *s, Arena *a, const char *prefix, const char *const *reserved);
const char *emit_name(Emit *e, const char *want);              /* a fresh identifier */
const char *emit_real(const Emit *e);                          /* "float" or "double" */
const char *emit_suffix(const Emit *e);                        /* "f" or "" */
const char *emit_number(const Emit *e, double x);
const char *emit_expr(Emit *e, Ref r);                         /* the right-hand side of its definition */
bool emit_inlined(const Emit *e, Ref r);                       /* used once and unnamed: written where it is used */
const char *emit_called(Arena *a, const char *fn, const char *x);     /* fn(x); x itself where there is no function: load and store of types.def */
const char *emit_type_suffix(Type t);
const char *emit_value_name(Emit *e, Ref r);                   /* value_name, not yet an identifier of this function */
const char *emit_array_name(Emit *e, Access a);                /* a fresh identifier for an array or what was loaded from it: its own where that is free */
void emit_scalars(Emit *e, Buf *b, const char *indent);        /* hyperparameters and counts the stage reads */

const char *emit_array(Emit *e, Access a, bool writable);      /* "(const float *)self->mem[at_m]" */
void emit_array_numbers(Buf *b, const Plan *p, const EmitOptions *o);        /* the enum of at_m and its like, for the stages that the options take */
void emit_define(Emit *e, Buf *b, const char *indent, Ref r, const char *name, const char *value);
bool emit_stores(const Stage *s, int mem);
const char *emit_red_kind(const Node *n);                      /* "sum", "max", "min" */
const char *emit_parts_per_row(Arena *a, const Mem *m);
const char *emit_parts_per_slice(Arena *a, const Mem *m);                /* how many partials a reduction left, as an expression over self */
const char *emit_parts_of_tensor(Arena *a, const Mem *m);
enum { MOST_STAGE_NAME = 128 };
const char *emit_stage_name(char buf[MOST_STAGE_NAME], const Plan *p, const char *entry, int mask, const Stage *s);    /* buf */
const char *emit_stage_comment(Arena *a, const Stage *s);
const char *emit_about(Arena *a, const Gen *g);
const char *emit_title(Arena *a, const Rule *r);
const char *emit_plain(Arena *a, const char *s);               /* text that may stand in a comment */
const char *emit_file(Arena *a, const char *s);

const char *emit_prefixed(Arena *a, const char *prefix, const Plan *p, const char *entry, int mask, const Stage *s);      /* emit_stage_name behind a prefix, or NULL for none */

/* The stages of a rule, and what stands ahead of stages, where several rules share a file. Bufs and scratch are in an arena, which jumps when memory ends;
 * false: a broken template. */
bool emit_c_stages(const Gen *g, const EmitOptions *o, Arena *a, Buf *code, Buf *table);       /* table: the functions' names, by Stage.fn, with commas */
const char *emit_c_abi(Arena *a);
void emit_c_shared(Buf *b, const char *code);                  /* what the code stands on */
bool emit_takes(const Plan *p, const EmitOptions *o, int fn);  /* the stage is in a file with these options */
bool emit_cuda_stages(const Gen *g, const EmitOptions *o, Arena *a, Buf *code);
bool emit_cuda_file(Buf *out, Arena *a, const char *title, const char *about, const char *command, const char *name, const char *code);
bool emit_c(const Gen *g, const EmitOptions *o, Arena *a, Buf *out);
bool emit_cuda(const Gen *g, const EmitOptions *o, Arena *a, Buf *out);
bool emit_cuda_stage_hash(const Gen *g, int fn, char hex[33]);       /* what tuning results know a stage by; false: out of memory */
int emit_cuda_part_of(const Plan *p, int fn, int nparts);      /* which of so many programs holds a stage; t's own kernel is in the first */
int emit_cuda_parts(const Plan *p);                            /* into how many programs it pays to cut a rule, to compile them side by side */
#endif
