/* Internals of the tracer, which runs a Lua spec once on symbolic values and makes a Rule of it.
 *
 * A compilation has one lua_State, owned by Trace. Lua errors unwind to trace.c, which turns them into a Diag. */
#ifndef OPTC_TRACE_H
#define OPTC_TRACE_H
#include "gen/base/diag.h"
#include "gen/front/front.h"
#include "gen/ir/ir.h"
#include "gen/front/lex.h"

#include <lauxlib.h>
#include <lua.h>

typedef struct Arg { const char *key, *value; } Arg;               /* key NULL: by position */
typedef struct Wrap {
    const char *name;                 /* of the library or of the caller's */
    bool file;                        /* the name is a path, until the file has said its own */
    Arg *arg; int narg;
} Wrap;

typedef struct SpecFile {             /* one loaded spec: the rule or a wrapper */
    const char *name, *prefix;        /* prefix: "" for the rule and until it is declared, "ema." for a wrapper */
    Wrap *wrap;                       /* as it was asked for; NULL: the rule */
    const char *path, *text;
    const Tok *tok; int ntok;         /* of the text, once it is loaded */
    int file;                         /* in Rule.files */
    bool is_wrapper;
    int fallback;                         /* step = rule "adamw": that one's number among the specs; 0: its own */
    const char *fallback_name;
    Arg *fallback_arg; int nfallback_arg;
    bool is_fallback;                     /* it is such a rule: its names begin with its own */
    int table, env, opts;             /* registry references: the spec's table, its environment, its options by name */
    int *hyper, nhyper;               /* the rule's numbers of this spec's hyperparameters, states, inputs */
    int *state, nstate;
    int *input, ninput;
    int view;
    bool uses_view, plain;            /* plain: tensors of more than two dimensions are refused */
    Arg *arg; int narg;               /* what the user gave: of options, or a wrapper's arguments */
    NameSet failed;                   /* declared, and wrongly: whoever reads one hears nothing more of it */
} SpecFile;

enum { MAX_SPECS = 16, MAX_STATES = 64, MAX_HYPERS = 128, MAX_EVERY = 3, MAX_TEXT = 1000 };

/* A reduction over all tensors. While variants are traced it is a node without operands; they are filled in when all
 * are known. */
typedef struct GlobalRed { Op op; int entry, file, line; Ref node, of[MAX_VARIANTS]; } GlobalRed;

/* The steps of a binding at which something happens: those that leave `offset` when divided by `every`. A rule inside a
 * block of every() counts those steps alone: what it calls t, and the steps of the binding that are its own. */
typedef struct Steps { double every, offset; } Steps;
typedef struct Clock { Ref t; Steps at; } Clock;
/* the block of every() that is open in the spec that runs, in its own steps */
typedef struct GuardedBlock { Steps at; int depth; bool first, stagger; } GuardedBlock;

typedef struct SpecError { const char *file, *text; int line; } SpecError;

typedef struct Trace {
    lua_State *L;
    Arena *arena;
    Rule *rule;
    Diag *diag;
    size_t mem, churn;                /* bytes the Lua state holds; has asked for in all */
    bool starved;                     /* the system had no memory when it last asked; else it was over its bound */
    double started;                   /* CPU seconds of the thread when it began */
    long long ticks;                  /* instructions spent */
    size_t longest;                   /* bytes of the longest string so far */
    bool spent, no_memory;
    SpecError *error; int nerror, error_cap;
    int tries, before;                /* errors met, told or not; those told before the entry that runs */
    SpecFile spec[MAX_SPECS];         /* [0] outermost … [nspec-1] the rule; up to nall: that of its step */
    int nspec, nall;
    FindSpec find; void *find_ctx;
    int declaring;                    /* index of the spec whose file runs, or -1 */
    int at;                           /* index of the spec whose entry runs, or -1 */
    int entry, variant;
    bool matrix;                      /* the variant steps matrices: `matrix` in place of `step` */
    bool in_step;                     /* `matrix` has handed over to step() */
    int inner_calls;
    Clock clock;                      /* of that spec */
    GuardedBlock block;
    Ref p, g, *state;                 /* current values */
    Dom elem;                         /* what the spec that runs has for elements: those, or a projection's values */
    int *twin_of;                     /* by state: of which it is the one in a projection, from 1 */
    bool *read, *written;             /* by state, over all entries */
    GlobalRed *gred; int ngred, gred_cap;      /* in order of appearance, matched between variants */
    Test path[MAX_TESTS]; int npath, asked;    /* the answers of the variant being traced; how many it has asked for */
    struct { int file, line; } question;       /* where the last one was asked */
    int returned;                     /* the line of the first value that an entry returned; 0: none did */
    int stream, seed;                 /* random draws; hyperparameter number of the seed or -1 */
    Ref every[MAX_EVERY]; int nevery;
    int product; Type params;                              /* GenOptions.product, and the type of parameters */
    bool *symmetric; int nsymmetric, symmetric_cap;        /* by node, as far as anybody asked */
    Ref *sizes; int nsizes, sizes_cap;                     /* likewise: what it is for blocks; NONE, or not known */
} Trace;

static inline Trace *trace_of(lua_State *L) { return *(Trace **)lua_getextraspace(L); }

/* Raise an error at the spec's current line; does not return. */
int spec_error(lua_State *L, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
int push_nothing(lua_State *L);                    /* NOTHING, a function's one result */
bool has_arguments(lua_State *L, int f);            /* the Lua function at f names some */

/* trace.c */
void trace_entry(lua_State *L, Trace *t, int e, int variant);
bool call_entry(lua_State *L, Trace *t, int i, const char *name);      /* of spec i, or the first inside it with one */
int entry_line(Trace *t, const SpecFile *s, const char *name);         /* where that function begins; 0: it has none */

/* fallback_rule.c */
int l_rule(lua_State *L);                          /* rule "adamw": what `step` may be in place of a function */
const char *fallback_named(lua_State *L, int i);       /* NULL: something else */
void fallback_open(lua_State *L);
void fallback_find(Trace *t, SpecFile *s);             /* its text becomes the next spec */
void fallback_args(Trace *t, SpecFile *s);             /* "adamw.eps=1": options of its own are kept for it */
int l_step(lua_State *L);                          /* inside `matrix`: this tensor is one of the rest */
void add_spec(Trace *t, int i, Source s, Wrap *w);
bool check_text(Source s, Diag *d);
void call_body(lua_State *L, Trace *t, int i, const char *name);       /* the function on top, of spec i */
bool push_body(lua_State *L, Trace *t, int i, const char *name);       /* false: it has none */

/* errors.c */
#define UNKNOWN ((Ref)-2)                          /* a value whose making was an error */
#define NOTHING ((Ref)-3)                          /* what inner(), step(), every() and when() give: any use is an error */
int errors_raise(lua_State *L);                    /* the Diag is set, or has been told; does not return */
void errors_keep(Trace *t);                        /* what the Diag holds goes to the list */
void errors_caught(Trace *t, int rc);              /* the message of a failed call is on top; popped */
bool errors_over(const Trace *t);                  /* there is no going on */
bool errors_call(Trace *t, int nargs, int nresults);           /* as lua_pcall; false: it failed, which was kept */
/* The function on top: what goes wrong in it is written down, and it gives UNKNOWN. */
void errors_guard(lua_State *L, const char *math, bool takes_unknown);
void errors_guard_all(lua_State *L, bool math);    /* all functions in the table on top */
void errors_tell(Trace *t, Diag *d);               /* all of them */

/* hints.c: "" or what to write in its place */
const char *hint_name(const char *name);                       /* of a name that is not declared */
const char *hint_field(Trace *t, const char *name);            /* of a value's field or method */
const char *hint_count(Trace *t, const char *function, int n); /* of a function that got n arguments, too many or too few */
const char *hint_syntax(Trace *t, const SpecFile *s, int line, const char *message);

/* guarded_blocks.c */
int l_every(lua_State *L);
int l_when(lua_State *L);
int l_inner(lua_State *L);

/* inner_project.c: a rule that steps values over the axis rank */
Dom project_dom(const Trace *t, Dom d);            /* of what has one value an element */
int project_state(lua_State *L, int i);            /* what stands for state i there */
void project_open(lua_State *L, Ref g);            /* from here on, until t->elem is set back */

/* tensor_queries.c */
int l_query_sizes(lua_State *L);        /* upvalues: what to say where there is no answer; the relation */
int l_query_word(lua_State *L);                      /* upvalue: NAMED or TAGGED */

/* variants_trace.c */
bool trace_query(Trace *t, Test q);                  /* the answer that the variant being traced is for */
void variants_trace(lua_State *L, Trace *t, bool has_matrix);      /* one way, through all entries */
bool variants_next(Trace *t);                          /* false: all were gone */
const char *variants_no_partner(Trace *t, int variant);        /* the message about a global reduction that it lacks */
void variants_join(Trace *t);                          /* what all ways must agree on; operands of global reductions */
void tell_at(Trace *t, int file, int line, const char *fmt, const char *name, const char *other);
/* does not return */
int refuse_at(Trace *t, int file, int line, const char *fmt, const char *name, const char *other);

/* sandbox.c */
bool sandbox_open(Trace *t);                       /* t->L; false: no memory */
bool sandbox_load(Trace *t, SpecFile *s);          /* pushes the chunk; false: message pushed */
void sandbox_where(lua_State *L, const char **path, int *line);
int spec_of_source(Trace *t, const char *path);
void name_locals(lua_State *L, lua_Debug *ar);
void sandbox_protect(lua_State *L, const char *name);

/* lang.c */
void lang_open(lua_State *L);                      /* pushes the table of builtins */
Ref lang_arg(lua_State *L, int i, const char *what, int n);
Ref lang_truth(lua_State *L, int i, const char *what, int n);
Ref lang_num(lua_State *L, int i, const char *what, int n);
void lang_count(lua_State *L, const char *what, int lo, int hi);      /* that many arguments, or an error */
Ref trace_op(lua_State *L, Op op, Ref a, Ref b);
Ref trace_op3(lua_State *L, Op op, Ref a, Ref b, Ref c);
Graph *trace_here(Trace *t);                       /* the graph, with the spec's place for what is made next */
void push_value(lua_State *L, Ref r);
bool is_value(lua_State *L, int i);
const Ref *value_at(lua_State *L, int i);          /* NULL: something else */
void inside_entry(lua_State *L, const char *what); /* else an error */
const char *describe(Trace *t, Ref r);
Ref trace_node(Trace *t, Node n);
Ref trace_copy(Trace *t, Ref r, Dom dom);          /* spread to a domain above its own */
Dom trace_dom(const Trace *t, Dom d);              /* of values over two axes the blocks', in a rule that has them */
/* nrows and what is computed of sizes, where blocks want it; NONE: it is more than that */
Ref trace_sizes(Trace *t, Ref r);

/* declare.c */
void declare_open(lua_State *L);                   /* adds optimizer, wrapper, zeros, fill, copy to the table on top */
/* pushes what fill() takes for a name that is its argument at this line; false: it is none */
bool declare_named(lua_State *L, const SpecFile *s, const char *name, int line);
void declare_spec(Trace *t, SpecFile *s, const char *options);   /* the spec's table is on top; popped */

/* compose.c */
bool compose_parse(Arena *a, const char *text, Wrap **out, int *n, Diag *d);
const char *compose_text(Arena *a, const Wrap *w, int n);
bool args_parse(Arena *a, const char *text, Arg **out, int *n, Diag *d, const char *what);

/* lint.c */
void lint_spec(Trace *t, const SpecFile *s);
/* the line of `local x = … x …`; 0: none */
int lint_local(Trace *t, const SpecFile *s, const char *name);

/* rule_check.c */
void check_rule(Trace *t);                         /* errors go to the list, or are raised */
void warn_at(Trace *t, const SpecFile *s, int line, const char *fmt, ...) __attribute__((format(printf, 4, 5)));
void warn_rule(Trace *t);                          /* all that the finished rule shows */
#endif
