/* The rule: a typed, hash-consed graph of values and, for every entry, what is written at its end.
 *
 * Nodes are numbered; operands come before their users (graph_order restores this after tracing). A node's domain says
 * where its value varies and decides its precision: group, tensor and slice values are f64, the others the precision
 * of the parameters. Truth values are a type of their own and are never stored in a state.
 * IR.md beside this file describes the text form. */
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
    double least, most;
} TypeInfo;
extern const OpInfo op_info[NOPS];
extern const TypeInfo type_info[NTYPES];
extern const ProgType program_types[NTYPES];            /* what the runtime needs of them */
static inline bool type_coded(Type t) { return type_info[t].block > 1; }      /* a block code: only for states */
int op_by_name(const char *name);      /* -1: none */
int type_by_name(const char *name);
int dom_by_name(const char *name);
/* As specs say it: "rows rank" is rows_rank. -1: there is none, or no spec may name it (what lies turned). */
int dom_by_words(const char *words);
/* a spec may name it; rank: the rule has such an axis; block: it has blocks */
bool dom_named(Dom d, bool rank, bool block);
const char *axis_name(Axis a);         /* "rows"; of none "1" */
int product_by_name(const char *name); /* -1: none */
/* Names of a set of domains (bit d: domain d): "a, b" and `last` ahead of the last one. */
const char *dom_list(Arena *a, uint64_t set, const char *quote, const char *last);

enum { MAX_NODES = 20000 };             /* values of one rule, from a spec or from text */
enum { MAX_ENTRIES = 64 };
enum { MAX_ARGS = 8 };                  /* operands of one node */
enum { MAX_VARIANTS = MAX_ARGS };       /* a reduction over all tensors has one for each */
enum { MAX_DIRECTIONS = 1 << 20 };      /* directions of a tensor */
enum { MAX_BLOCK = 1 << 20 };           /* rows of a block */
enum { MAX_STAGGER = 1 << 20 };         /* slots of every(k, { stagger = true }) */
enum { MAX_PERIODS = 8 };               /* different every() of a rule */
enum { MAX_PERIOD = 1000000000 };       /* steps: no run reaches the second one */
enum { MAX_TESTS = 16 };                /* of one variant */

typedef int32_t Ref;
#define NONE ((Ref)-1)

typedef struct Node {
    uint8_t op, dom, ty;
    bool whole;            /* integer-valued whatever the inputs; follows from the rest */
    uint8_t from;          /* COUNT: the domain counted; reductions: the operand's; calls: the first operand's */
    uint8_t nargs;
    uint8_t entry;         /* operations: who made it first; equal ones of two entries stay apart if their lines differ */
    const Ref *arg;        /* operands; of a reduction over all tensors one a variant */
    /* HYPER, STATE, INPUT, SLOT: which one; EVERY: the offset; STORED: the state, or TO_P; calls: ProductFlag */
    int32_t sym;
    /* CONST: the value; EVERY: k; RANDOM, NORMAL: the stream; MM: the product's factor; POWER: r; other calls: 1 */
    double imm;
    double beta;           /* MM: the factor of the third operand; POWER: call_low; else 0 */
    int32_t file, line;    /* where the spec made it (Rule.files); not part of its identity */
    const char *name;      /* the spec's local name for it, or NULL; not part of its identity */
} Node;

/* Nodes are found again by what they are, so nobody changes one: the array is written in ir.c alone. */
typedef struct Graph {
    const Node *n;
    int len, cap;
    Node *own;                     /* the same array */
    int32_t *table; int table_cap;
    /* what nodes made now say of where they come from, if they do not say it themselves */
    int32_t file, line;
    uint8_t entry;
    Arena *arena;
} Graph;

typedef struct { const char *name; double def, lo, hi; bool lo_open, hi_open; } Hyper;
typedef enum { INIT_FILL, INIT_COPY_P, INIT_HYPER } Init;
/* type -1: as the parameters' states. report: a value for whoever steps the rule, written and never read: no part of what
 * a run goes on from */
typedef struct {
    const char *name; Dom dom; int type; Init init; double value; int file, line; bool report;
    int hyper;             /* INIT_HYPER: the one it starts as, when tensors are bound */
    bool eye;              /* that on the diagonal, 0 elsewhere */
    Stagger slots;         /* not the spec's: slots of tensors or blocks, which the runtime sets and nothing writes */
} State;
typedef struct { const char *name; Dom dom; } Input;
/* value: as resolved; def: the spec's default; choices: a line each, or NULL. All of it is text; IR text has names and values */
typedef enum { OPTION_TEXT, OPTION_NUMBER, OPTION_FLAG } OptionKind;
typedef struct { const char *name, *value, *def, *choices; OptionKind kind; } Option;
typedef struct { int32_t state; Ref val; } Write;          /* state -1: p */
#define TO_P (-1)
typedef struct { Write *w; int n, cap; } Body;
typedef struct { const char *name; Body *body; } Entry;    /* body: by variant */

/* text: "path:line: what and what to do", and the line itself */
typedef struct Warning { int file, line; const char *text; } Warning;

typedef struct Rule {
    Arena *arena;
    const char *name, *cite, *doc, *with;                  /* with: "" or the wrappers as composed */
    Graph g;
    Hyper *hyper;   int nhyper, hyper_cap;
    State *state;   int nstate, state_cap;
    Input *input;   int ninput, input_cap;
    Option *option; int noption, option_cap;
    Entry *entry;   int nentry, entry_cap;
    const char **file; int nfile, file_cap;
    const char **text; int ntext, text_cap;                /* of the files; none where IR was read */
    Variant *variant; int nvariant, variant_cap;
    Warning *warning; int nwarning, warning_cap;           /* in the order of their lines (rule_check.c) */
    const char *fallback;                                  /* the rule for tensors that are no matrices, by name, or NULL */
    bool changes_grad;                                     /* a wrapper hands another gradient to the rule inside it */
    int product;                                           /* what its head says of products; -1: nothing */
    int rank;                                              /* the most directions of a tensor; 0: none */
    int block;                                             /* rows and columns of a block at most; 0: none */
} Rule;

/* Building: one place makes nodes, finds the equal one, and works out domain and type. */
Ref node_const(Graph *g, double x);
Ref node_leaf(Graph *g, Op op, Dom dom, int sym, double imm);
Ref node_count(Graph *g, Dom from, Dom to);
Ref node_op(Graph *g, Op op, Ref a, Ref b, Ref c);         /* NUM, CMP, LOGIC, SEL */
Ref node_copy(Graph *g, Ref a, Dom dom);                   /* its value in a domain at or above its own */
Ref node_red(Graph *g, Op op, Ref a, Dom to);
Ref node_transpose(Graph *g, Ref a);
Ref node_mm(Graph *g, Ref a, Ref b, unsigned flags);       /* operands that fit, not turned but by the flags */
/* A call of another kind: operands as ProgCall has them, NONE for those it has not; imm: 1 but of powers; `dom`: the
 * result's. FLOORED and KEEP_LAST follow. */
typedef struct Factor { Op op; Ref a, b, c; unsigned flags; double imm, low; Dom dom; } Factor;
Ref node_factor(Graph *g, Factor f);
/* Which of a call's operands is ProgCall.a (0), b (1), c (2); -1: it has none. */
int call_operand(const Node *n, int k);
/* What operand k of this call is the domain of, though the node that was there varies less. */
Dom call_operand_dom(const Node *n, int k);
/* Node r equals its transpose, as far as can be seen from what its operands are (`known`, by node). */
bool graph_symmetric(const Graph *g, const bool *known, Ref r);
Ref graph_add(Graph *g, Node n);                           /* finds an equal node or appends; operands are copied */
void graph_name(Graph *g, Ref r, const char *name);        /* the spec's name of a value that has none yet */
int graph_calls(const Graph *g);                           /* how many products it has */
static inline bool is_red(const Node *n) { return op_info[n->op].kind == K_RED; }
static inline bool is_call(const Node *n) { return op_info[n->op].kind == K_CALL; }
static inline Callee callee_of(const Node *n) { return (Callee)(n->op - OP_MM); }      /* of a call */
static inline Op op_of_callee(Callee c) { return (Op)(OP_MM + (int)c); }

/* ops.def has the rows of callees.def, from MM on. */
#define CALLEE(ID, ...) _Static_assert((int)OP_##ID - (int)OP_MM == (int)CALL_##ID, "callees are operations in a row");
#include "gen/abi/callees.def"

static inline const CalleeFacts *facts_of(const Node *n) { return &callee_facts[callee_of(n)]; }
static inline bool is_leaf(const Node *n) { return op_info[n->op].kind == K_LEAF; }
static inline bool is_norm(const Node *n) { return n->op == OP_NORM || n->op == OP_RMS; }
static inline bool is_global(const Node *n) { return n->op >= OP_GSUM && n->op <= OP_GMIN; }

/* Copies what `r` writes into a new graph, each node handed to `f` once with its operands already mapped; f returns the
 * node to use. With f = NULL this drops dead nodes and restores the order. */
typedef Ref (*NodeMap)(Graph *to, Node n, void *ctx);
void rule_rewrite(Rule *r, NodeMap f, void *ctx);

bool test_same(const Test *a, const Test *b);              /* the same question, whatever the answer */
/* one word: "!matrix", "2*nrows<=ncols@last", "named=*.bias" */
void test_print(Buf *b, const Test *t);
bool test_parse(Arena *a, const char *word, Test *out);
int rule_view(const Rule *r);                              /* of all its variants */
/* "vectors", "matrices", or the variant's name: how messages speak of its tensors */
const char *variant_tensors(const Variant *v);

/* The spec's line without its indentation, *n characters; NULL: its text is not known. */
const char *rule_line(const Rule *r, int file, int line, int *n);

/* What products are computed in: f64 for f64 parameters, else what the head says, or f32. */
Product rule_product(const Rule *r, Type p);

bool hyper_allows(const Hyper *h, double x);
const char *hyper_range(const Hyper *h, char buf[64]);     /* "[0, 1)" */

double op_eval(Op op, double a, double b, double c);       /* one elementwise operation in f64 */
#endif
