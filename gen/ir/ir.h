/* The rule: a typed, hash-consed graph of values and, for every entry, the writes at its end.
 *
 * Nodes are numbered; operands come before their users (rule_rewrite restores this order after
 * tracing). A node's domain determines where its value varies and its precision: group, tensor and
 * slice values are f64, the others have the precision of the parameters. Truth values have their
 * own type and are never stored in a state. gen/IR.md describes the text form. */
#ifndef OPTC_IR_H
#define OPTC_IR_H
#include "gen/base/util.h"

#include "gen/abi/program.h"                   /* domains, storage types, variants */

typedef enum { NUM, BOOL } Ty;
typedef enum { K_LEAF, K_NUM, K_CMP, K_LOGIC, K_SEL, K_RED, K_TRANSPOSE, K_CALL } OpKind;
typedef enum {
#define OP(ID, ...) OP_##ID,
#include "gen/ir/ops.def"
    NOPS
} Op;

typedef struct {
    const char *name;
    int arity;
    OpKind kind;
    const char *form;
    int binds;
    const char *name_form;
    double ulp;
    int cost;
} OpInfo;
typedef struct {
    const char *name;
    int bytes, bits, block, planes, draws;
    const char *c, *load, *store;
    Type compute;
    int digits;
    double least, most, beyond;
} TypeInfo;
extern const OpInfo op_info[NOPS];
extern const TypeInfo type_info[NTYPES];
extern const ProgType program_types[NTYPES];            /* what the runtime needs of them */
/* only for what p's type rounds away */
static inline bool type_integer(Type t) { return type_info[t].least == 1; }
/* a block code: only for states */
static inline bool type_coded(Type t) { return type_info[t].block > 1; }
/* stores round stochastically */
static inline bool type_draws(Type t) { return type_info[t].draws > 0; }
/* Each value by itself is a number: what a matrix without a rule can hold. */
static inline bool type_number(Type t)
{
    return !type_coded(t) && !type_integer(t) && !type_info[t].draws;
}
int op_by_name(const char *name);      /* -1: none */
int type_by_name(const char *name);
int dom_by_name(const char *name);
/* A domain as specs spell it: "rows rank" is rows_rank. -1: unknown, or no spec may name it
 * (transposed domains). */
int dom_by_words(const char *words);
/* A spec may name this domain; rank, block: the rule has a rank axis, has blocks. */
bool dom_named(Dom d, bool rank, bool block);
const char *axis_name(Axis a);         /* "rows"; AXIS_ONE: "1" */
int product_by_name(const char *name); /* -1: none */
/* Names of a set of domains (bit d: domain d), separated by ", ", with `last` before the last
 * name. */
const char *dom_list(Arena *a, uint64_t set, const char *quote, const char *last);

enum { MAX_NODES = 20000 };             /* values of one rule, from a spec or from text */
enum { MAX_ENTRIES = 64 };
enum { MAX_ARGS = 8 };                  /* operands of one node */
enum { MAX_VARIANTS = MAX_ARGS };       /* a reduction over all tensors has one operand per
                                         * variant */
enum { MAX_DIRECTIONS = 1 << 20 };      /* length of the rank axis */
enum { MAX_BLOCK = 1 << 20 };           /* rows of a block */
enum { MAX_STAGGER = 1 << 20 };         /* slots of every(k, { stagger = true }) */
enum { MAX_PERIODS = 8 };               /* different every() of a rule */
enum { MAX_PERIOD = 1000000000 };       /* steps: no run is longer */
enum { MAX_TESTS = 16 };                /* of one variant */
enum { MOST_DIVISOR = 1 << 30 };        /* of divisible(nrows, k) */

typedef int32_t Ref;
#define NONE ((Ref)-1)

typedef struct Node {
    uint8_t op, dom, ty;
    bool whole;            /* integer-valued for all inputs; derived from the other fields */
    uint8_t from;          /* COUNT: the domain counted; reductions: the operand's; calls: the first
                            * operand's */
    uint8_t nargs;
    uint8_t entry;         /* operations: the entry that made it first. Equal nodes of two entries
                            * are shared only if they come from the same line */
    const Ref *arg;        /* operands; a reduction over all tensors has one per variant */
    /* HYPER, STATE, INPUT, SLOT: its number; EVERY: the offset; STORED: the state, or TO_P; calls:
     * ProductFlag */
    int32_t sym;
    /* CONST: the value; EVERY: k; RANDOM, NORMAL: the stream; MM: the product's factor; POWER: r;
     * other calls: 1 */
    double imm;
    double beta;           /* MM: the factor of the third operand; POWER: call_low; else 0 */
    double diagonal;       /* MM, SYMMETRIC: added to each value on the diagonal; else 0 */
    int32_t file, line;    /* where the spec made it (Rule.files); not part of its identity */
    const char *name;      /* the spec's local name for it, or NULL; not part of its identity */
} Node;

/* Nodes are immutable, because the hash table finds them by content: only ir.c writes the array. */
typedef struct Graph {
    const Node *n;
    int len, cap;
    Node *own;                     /* the same array */
    int32_t *table; int table_cap;
    /* source position and entry of new nodes that have none */
    int32_t file, line;
    uint8_t entry;
    Arena *arena;
} Graph;

typedef struct { const char *name; double def, lo, hi; bool lo_open, hi_open; } Hyper;
/* INIT_KERNEL: the number of positions of the tensor's convolution kernel (nkernel); never written,
 * hidden from callers */
typedef enum { INIT_FILL, INIT_COPY_P, INIT_HYPER, INIT_NORMAL, INIT_KERNEL } Init;
/* type -1: the type chosen for states at compile time. report: written for the caller and never
 * read by the rule, so it is not needed to resume a run. follows_p: made by pass_master from p, so
 * it is stale once the caller writes p. */
typedef struct {
    const char *name;
    Dom dom;
    int type;
    Init init;
    double value;
    int file, line;
    bool report, follows_p;
    int hyper;             /* INIT_HYPER: the hyperparameter whose value at bind is the initial
                            * value; NORMAL: `seed` */
    bool eye;              /* the initial value on the diagonal, 0 elsewhere */
    bool nonneg;           /* the spec declares that it is never negative: zeros { min = 0 } */
    Stagger slots;         /* every != 0: holds slots of tensors or blocks; set by the runtime,
                            * never by an entry */
    /* One of `ring` adjacent states of a ring of past values, number `age` (front/rings.c).
     * rotates: in an entry it stands for the array of number (t - age) mod ring; only age 0 is
     * written, only by `step` */
    int ring, age;
    bool rotates;
} State;
/* The storage type of a state, if p and elementwise states without a type of their own have
 * these. */
Type type_of_state(const State *s, Type p, Type state);
/* The state whose array state i stands for at step t. */
static inline int state_array(const State *s, int i, double t)
{
    const State *x = &s[i];
    return x->rotates ? i - x->age + (int)(((int64_t)t + x->ring - x->age) % x->ring) : i;
}
typedef struct { const char *name; Dom dom; } Input;
/* value: as resolved; def: the spec's default; choices: one per line, or NULL. IR text has only
 * names and values. */
typedef enum { OPTION_TEXT, OPTION_NUMBER, OPTION_FLAG } OptionKind;
typedef struct { const char *name, *value, *def, *choices; OptionKind kind; } Option;
typedef struct { int32_t state; Ref val; } Write;          /* state -1: p */
#define TO_P (-1)
typedef struct { Write *w; int n, cap; } Body;
typedef struct { const char *name; Body *body; } Entry;    /* body: by variant */

/* An entry that a training step runs after a fresh gradient, at steps with step % every ==
 * offset. */
typedef ProgGradient Gradient;

/* text: "path:line: what was found; what to do", and the spec's line */
typedef struct Warning { int file, line; const char *text; } Warning;

typedef struct Rule {
    Arena *arena;
    /* with: "", or the wrappers as composed */
    const char *name, *cite, *doc, *with;
    Graph g;
    Hyper *hyper;   int nhyper, hyper_cap;
    State *state;   int nstate, state_cap;
    Input *input;   int ninput, input_cap;
    Option *option; int noption, option_cap;
    Entry *entry;   int nentry, entry_cap;
    /* in order, "step" last; none: "step" alone */
    Gradient *gradient; int ngradient;
    const char **file; int nfile, file_cap;
    /* of the files; none if the rule was read from IR text */
    const char **text; int ntext, text_cap;
    Variant *variant; int nvariant, variant_cap;
    Warning *warning; int nwarning, warning_cap;           /* sorted by line (rule_check.c) */
    const char *fallback;                                  /* name of the fallback rule, or NULL */
    /* what a user should know; NULL: nothing */
    const char *note;
    /* a wrapper passes a different gradient to the inner rule */
    bool changes_grad;
    /* the Product that the spec's head names; -1: none */
    int product;
    /* the user's choice replaced that of single products */
    bool products_chosen;
    /* the largest rank; 0: the rule has no rank axis */
    int rank;
    /* of the rank axis; share 0: its length is `rank` */
    RankShare share;
    /* the most rows and columns of a block; 0: no blocks */
    int block;
    /* chosen beside param, grad and state: "m=bf16"; or NULL */
    const char *types;
} Rule;

/* Node constructors. Each returns the equal node if there is one, and derives domain and type. */
Ref node_const(Graph *g, double x);
Ref node_leaf(Graph *g, Op op, Dom dom, int sym, double imm);
Ref node_count(Graph *g, Dom from, Dom to);
Ref node_op(Graph *g, Op op, Ref a, Ref b, Ref c);         /* NUM, CMP, LOGIC, SEL */
/* broadcasts to dom, or keeps the domain */
Ref node_copy(Graph *g, Ref a, Dom dom);
Ref node_red(Graph *g, Op op, Ref a, Dom to);
Ref node_transpose(Graph *g, Ref a);
/* operands must fit; transposes only as flags */
Ref node_mm(Graph *g, Ref a, Ref b, unsigned flags);
/* A call other than MM: operands as in ProgCall, NONE if absent; imm: the exponent of POWER, else
 * 1; dom: of the result. node_factor derives FLOORED and KEEP_LAST. */
typedef struct Factor { Op op; Ref a, b, c; unsigned flags; double imm, low; Dom dom; } Factor;
Ref node_factor(Graph *g, Factor f);
/* The index among n's operands of ProgCall.a (k = 0), b (1), c (2); -1: it has none. */
int call_operand(const Node *n, int k);
/* The domain that operand k of this call must have. Constant folding may leave a node that varies
 * less. */
Dom call_operand_dom(const Node *n, int k);
/* Node r provably equals its transpose. known: the answers for the nodes before it. */
bool graph_symmetric(const Graph *g, const bool *known, Ref r);
/* Node r is a constant on the diagonal and 0 elsewhere; *k receives the constant. */
bool graph_unit(const Graph *g, Ref r, double *k);
/* finds an equal node or appends; operands are copied */
Ref graph_add(Graph *g, Node n);
/* sets the spec's name unless the node has one */
void graph_name(Graph *g, Ref r, const char *name);
int graph_calls(const Graph *g);                           /* number of calls */
static inline bool is_red(const Node *n) { return op_info[n->op].kind == K_RED; }
static inline bool is_call(const Node *n) { return op_info[n->op].kind == K_CALL; }
/* of a call */
static inline Callee callee_of(const Node *n) { return (Callee)(n->op - OP_MM); }
static inline Op op_of_callee(Callee c) { return (Op)(OP_MM + (int)c); }

/* The last rows of ops.def, from MM on, are those of callees.def. */
#define CALLEE(ID, ...) \
    _Static_assert((int)OP_##ID - (int)OP_MM == (int)CALL_##ID, "callees are operations in a " \
                                                                "row");
#include "gen/abi/callees.def"

static inline const CalleeFacts *facts_of(const Node *n) { return &callee_facts[callee_of(n)]; }
static inline bool is_leaf(const Node *n) { return op_info[n->op].kind == K_LEAF; }
static inline bool is_norm(const Node *n) { return n->op == OP_NORM || n->op == OP_RMS; }
static inline bool is_global(const Node *n) { return n->op >= OP_GSUM && n->op <= OP_GMIN; }

/* Copies the nodes that `r` writes, and their operands, into a new graph. Each node is passed to
 * `f` once, with its operands already mapped; f returns the node to use. With f = NULL this drops
 * dead nodes and restores the order. */
typedef Ref (*NodeMap)(Graph *to, Node n, void *ctx);
void rule_rewrite(Rule *r, NodeMap f, void *ctx);

/* the same query; the answers may differ */
bool test_same(const Test *a, const Test *b);
/* One word: "!matrix", "2*nrows<=ncols@last", "named=*.bias". */
void test_print(Buf *b, const Test *t);
bool test_parse(Arena *a, const char *word, Test *out);
int rule_view(const Rule *r);                              /* the view bits of all variants */
/* "vectors", "matrices", or the variant's name: the word for its tensors in messages. */
const char *variant_tensors(const Variant *v);
/* tensors of one dimension are stepped as matrices */
bool rule_takes_vectors(const Rule *r);

/* The spec's line without its indentation, *n characters; NULL: its text is not available. */
const char *rule_line(const Rule *r, int file, int line, int *n);

/* The precision of products: f64 for f64 parameters, else the one that the spec's head names, or
 * f32. */
Product rule_product(const Rule *r, Type p);
/* The storage type of operands and results of calls other than products. It has at least the
 * precision of elements (real) and of products; with single products in f64 it is f64, so that
 * factors take their results unrounded. */
Type rule_factor_type(const Rule *r, Type product, Type real);

/* The seed of random draws: whole numbers that f64 holds exactly. */
#define SEED_HYPER ((Hyper){"seed", 0, -9007199254740992.0, 9007199254740992.0, false, false})
int rule_seed(const Rule *r);                             /* its hyperparameter `seed`; -1: none */
/* Names that pass_share makes: entries share_ENTRY_LEVEL, states shared.K, inputs
 * shared.K.BINDING. */
#define SHARE_ENTRY "share_"
/* 1 + the entry whose values of all tensors this one computes (pass_share); 0: none. */
int rule_shares(const Rule *r, int entry);
bool hyper_allows(const Hyper *h, double x);
const char *hyper_range(const Hyper *h, char buf[64]);     /* "[0, 1)" */

double op_eval(Op op, double a, double b, double c);       /* one elementwise operation in f64 */
#endif
