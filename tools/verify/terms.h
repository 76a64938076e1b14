/* A graph of float operations whose operands are unknown, hash-consed: equal operations are one
 * term.
 *
 * A term has a width in bytes; width 0 is a truth value. Terms are made by constructors that apply
 * exact rewrites, so that many equal values are the same term without a proof. `terms_equal`
 * decides the rest by cases. NaNs count as equal, whatever their bits. Terms live until
 * terms_reset. */
#ifndef OPTC_VERIFY_TERMS_H
#define OPTC_VERIFY_TERMS_H
#include "runtime/library/library.h"

typedef int32_t Term;                                    /* 0: none */
/* The contents of a register: the bits themselves if term is 0. */
typedef struct Value { uint64_t bits; Term term; } Value;

typedef enum {
    TERM_NONE, TERM_CONST, TERM_LEAF, TERM_NAN, TERM_PIECE, TERM_JOIN,
    TERM_ADD, TERM_MUL, TERM_DIV, TERM_FMA, TERM_SQRT, TERM_NEG, TERM_ABS,
    /* f32 to f64, or f64 to f32 rounded to nearest */
    TERM_CVT,
    TERM_LT, TERM_LE, TERM_EQ, TERM_ISNAN, TERM_NOT, TERM_AND, TERM_OR, TERM_SELECT,
    /* and above: an operation of PTX, not interpreted */
    TERM_NAMED
} TermOp;

enum { TERM_ARGS = 8 };
typedef struct TermNode {
    int32_t op;
    uint8_t width, n;
    /* CONST: bits; LEAF: array and index; PIECE: first byte */
    uint64_t imm;
    Term arg[TERM_ARGS];
} TermNode;

typedef struct TermPool {
    TermNode *node; int len, cap;
    uint64_t *table; int table_cap;                        /* hash << 32 | term */
    const char **name; int nname, name_cap;              /* of TERM_NAMED + i */
    /* names for messages, by number of a leaf */
    const char *array[256];
    Arena *arena;
} TermPool;

void terms_start(TermPool *p, Arena *a);
void terms_reset(TermPool *p);                           /* forgets all terms, keeps the memory */
void terms_free(TermPool *p);

Term term_const(TermPool *p, int width, uint64_t bits);
Term term_leaf(TermPool *p, int width, int array, int64_t index);
Term term_of(TermPool *p, int width, Value v);
Value term_value(const TermPool *p, Term t);             /* constants become bits */
static inline Value value_bits(uint64_t bits) { return (Value){bits, 0}; }
static inline const TermNode *term_at(const TermPool *p, Term t) { return &p->node[t]; }
static inline bool term_is_const(const TermPool *p, Term t) { return p->node[t].op == TERM_CONST; }

/* Float operations of ADD … CVT; width: of the result; unused operands are 0. */
Term term_float(TermPool *p, TermOp op, int width, Term a, Term b, Term c);
Term term_sub(TermPool *p, int width, Term a, Term b);
Term term_compare(TermPool *p, TermOp op, Term a, Term b);     /* LT, LE, EQ, ISNAN (of a) */
Term term_not(TermPool *p, Term a);
Term term_logic(TermPool *p, TermOp op, Term a, Term b);       /* AND, OR */
Term term_truth(TermPool *p, bool x);
Term term_select(TermPool *p, Term c, Term a, Term b);
/* An operation that is only compared by name and operands. commutes: the order of the first two
 * does not matter. */
Term term_named(TermPool *p, const char *name, int width, bool commutes, int n, const Term *arg);
/* the same operation on other operands */
Term term_rebuilt(TermPool *p, const TermNode *n, const Term *arg);
Term term_make(TermPool *p, const TermNode *n);                            /* no rewrites */
const char *term_op_name(const TermPool *p, int op);
bool term_float_op(int op);                              /* a NaN operand makes its result a NaN */
bool term_const_nan(const TermPool *p, Term t);

/* ---- term_bytes.c: values as bytes, for loads, stores, packing and shifts by bytes ---- */
typedef struct Byte { Term term; uint8_t at, value; } Byte;      /* term 0: a constant */
void bytes_of(const TermPool *p, int width, Value v, Byte *out);
Value bytes_value(TermPool *p, int width, const Byte *b);
/* Integer operations that only move bytes or signs. op: and, or, xor, shl, shr (unsigned). false:
 * it is another one */
bool bytes_operate(TermPool *p, const char *op, int width, Value a, Value b, Value *out);

/* ---- term_equal.c ---- */
typedef struct TermProofs {
    uint64_t (*key)[2]; int len, cap; int64_t splits, proved; bool undecided;
} TermProofs;
/* Equal for all values of their leaves. Remembers what it proved, whatever the leaves are
 * called. */
bool terms_equal(TermPool *p, TermProofs *known, Term a, Term b);
void term_print(Buf *b, const TermPool *p, Term t, int most);
/* The smallest part in which two unequal terms differ. */
void term_difference(const TermPool *p, Term *a, Term *b);
#endif
