/* Internals of the tracer, which runs a Lua spec on symbolic values, once per variant, and builds a
 * Rule.
 *
 * A compilation has one lua_State, owned by Trace. Lua errors unwind to trace.c, which turns them
 * into a Diag. */
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
    const char *name;                 /* of a wrapper in the library, or a path */
    bool file;                        /* the name is a path; make_prefix replaces it by the spec's
                                       * `name` */
    Arg *arg; int narg;
} Wrap;

typedef struct SpecFile {             /* one loaded spec: the rule, a wrapper, a fallback rule or a
                                       * shared text */
    const char *name, *prefix;        /* prefix: "" for the rule, "ema." for a wrapper once it is
                                       * declared */
    Wrap *wrap;                       /* the request in `with`; NULL: the rule */
    const char *path, *text;
    const Tok *tok; int ntok;         /* of the text, once it is loaded */
    int file;                         /* index in Rule.file */
    bool is_wrapper;
    int fallback;                     /* step = rule "adamw": index of the fallback rule in
                                       * Trace.spec; 0: none */
    const char *fallback_name;
    Arg *fallback_arg; int nfallback_arg;
    bool is_fallback;                 /* this is a fallback rule: its names have its own name as
                                       * prefix */
    bool is_shared;                   /* a text that others include: it declares nothing */
    uint32_t includes;                /* bit k: this spec runs the text of Trace.spec[k] by
                                       * include */
    int table, env, opts;             /* registry references: the spec's table, its environment, its
                                       * options by name */
    int *hyper, nhyper;               /* indices in the rule of this spec's hyperparameters, states,
                                       * inputs */
    int *state, nstate;
    int *input, ninput;
    int *input_sum;                   /* by input of the rule: 1 + the state of input_means.c; 0:
                                       * none */
    int product;                      /* the Product that its head names; -1: none */
    int view;
    bool changes_grad, gradients;     /* it passes on another gradient; it lists the gradients of a
                                       * step */
    bool uses_view, plain;            /* plain: tensors of more than two dimensions are refused */
    bool vectors;                     /* `matrix` steps tensors of one dimension too */
    Arg *arg; int narg;               /* the user's options, or a wrapper's arguments */
    NameSet failed;                   /* names whose declaration was an error: reading one gives
                                       * UNKNOWN */
} SpecFile;

enum { MAX_SPECS = 24, MAX_WRAPPED = 16, MAX_INCLUDED = 4 };
enum { MAX_STATES = 256, MAX_HYPERS = 128, MAX_EVERY = 3, MAX_TEXT = 1000 };

/* A reduction over all tensors. It is a node without operands until all variants are traced;
 * variants_join then fills them in. */
typedef struct GlobalRed { Op op; int entry, file, line; Ref node, of[MAX_VARIANTS]; } GlobalRed;

/* A subset of the binding's steps: those with step % every == offset. A rule inside a block of
 * every() counts only these; its Clock has its t and the binding's steps at which it runs. */
typedef struct Steps { double every, offset; } Steps;
/* by: the wrapper that gives the rule its t */
typedef struct Clock { Ref t; Steps at; const char *by; } Clock;
/* The innermost open block of every() in the running spec; `at` in that spec's own steps. whens:
 * open blocks of when() */
typedef struct GuardedBlock { Steps at; int depth; bool first, stagger; int whens; } GuardedBlock;

/* The step of a rule inside of inner { apart = true } (step_parts.c). by: the name of the wrapper
 * that made this call;
 * NULL: no such call is open. stepped: a wrapper inside of it has called inner(). x: the second
 * argument of descend, with the factors of the rate other than lr. amount: the second argument of
 * shrink. Both start as 0. rate: lr; after the call the wrapper may pass it to descend itself.
 * tries: Trace.tries before the call */
typedef struct StepParts {
    const char *by; bool stepped; Ref x, amount, rate; int tries;
} StepParts;

typedef struct SpecError { const char *file, *text; int line; } SpecError;

typedef struct Trace {
    lua_State *L;
    Arena *arena;
    Rule *rule;
    Diag *diag;
    size_t mem, churn;                /* bytes that the Lua state holds; has allocated in total */
    bool starved;                     /* the last allocation failed in malloc; false: it exceeded
                                       * the spec's limit */
    double started;                   /* CPU seconds of the thread at the start */
    long long ticks;                  /* instructions spent */
    size_t longest;                   /* bytes of the longest string so far */
    bool spent, no_memory;
    SpecError *error; int nerror, error_cap;
    int tries, before;                /* errors met, also unreported ones; nerror before the running
                                       * entry */
    SpecFile spec[MAX_SPECS];         /* [0] outermost … [nspec-1] the rule; then, up to nall, other
                                       * texts */
    int nspec, nall;
    FindSpec find; void *find_ctx;
    int declaring;                    /* index of the spec whose file runs */
    int open[MAX_INCLUDED], nopen;    /* shared texts whose include() is running, the innermost
                                       * last */
    int at;                           /* index of the spec whose entry runs, or -1 */
    int entry, variant;
    bool matrix;                      /* the variant steps matrices: `matrix` in place of `step` */
    bool in_step;                     /* `matrix` has called step() */
    int inner_calls;
    Clock clock;                      /* of the running spec */
    GuardedBlock block;
    Ref p, g, *state;                 /* current values */
    Ref *input;                       /* by input: its mean for the rule inside; NONE: as the caller
                                       * set it */
    StepParts parts;                  /* of the innermost open inner { apart = true } */
    Dom elem;                         /* domain of g and p in the running spec: ELEM, or a
                                       * projection's domain */
    const char *projects;             /* name of the wrapper that lets the rule step a projection;
                                       * NULL: none */
    int *twin_of;                     /* by state: 1 + the state whose twin in a projection it is;
                                       * 0: no twin */
    bool *read, *written;             /* by state, over all entries */
    bool *pushed;                     /* by first state of a ring: the running entry has pushed a
                                       * value */
    /* by first state of a ring: where the entry reads it; 0: nowhere */
    struct { int file, line; } *peeked;
    /* in order of appearance, matched between variants */
    GlobalRed *gred; int ngred, gred_cap;
    /* the answers of the traced variant; how many were queried so far */
    Test path[MAX_TESTS]; int npath, asked;
    struct { int file, line; } question;       /* position of the last new query */
    int returned;                     /* the line of the first value that an entry returned; 0:
                                       * none */
    int stream, seed;                 /* number of random draws; hyperparameter number of the seed,
                                       * or -1 */
    Ref every[MAX_EVERY]; int nevery;
    /* GenOptions.product, and the type of parameters */
    int product; Type params;
    bool separable, asked_separable;  /* the answer of separable(); whether a wrapper called it */
    /* reductions over all tensors span several bindings */
    bool shared;
    bool *symmetric; int nsymmetric, symmetric_cap;        /* by node, computed on demand */
    /* by node, on demand: its value for blocks (trace_sizes) */
    Ref *sizes; int nsizes, sizes_cap;
} Trace;

static inline Trace *trace_of(lua_State *L) { return *(Trace **)lua_getextraspace(L); }
static inline Ref leaf(Trace *t, Op op, Dom dom, int sym)
{
    return node_leaf(&t->rule->g, op, dom, sym, 0);
}

/* Raises an error at the spec's current line; does not return. */
int spec_error(lua_State *L, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
int push_nothing(lua_State *L);                    /* pushes NOTHING as a function's only result */
bool has_arguments(lua_State *L, int f);           /* the Lua function at index f has parameters */

/* trace.c */
void trace_entry(lua_State *L, Trace *t, int e, int variant);
/* of spec i, or the next inner spec with it */
bool call_entry(lua_State *L, Trace *t, int i, const char *name);
void note_gradients(Trace *t);         /* of wrappers that change the gradient of `step` alone */
/* first line of the function; 0: none */
int entry_line(Trace *t, const SpecFile *s, const char *name);

/* spec_environment.c */
/* pushes the environment of a spec's functions */
void make_env(lua_State *L, SpecFile *s);
/* Takes the Lua value at index i as the new value of `name`, broadcast to dom; error if it does not
 * fit. */
void assign_value(lua_State *L, Trace *t, int i, const char *name, Ref *slot, Dom dom);
/* of this spec; NONE: it has none */
Ref trace_hyper(Trace *t, const SpecFile *s, const char *name);

/* fallback_rule.c */
/* the name in such a value; NULL: another value */
const char *fallback_named(lua_State *L, int i);
void fallback_open(lua_State *L);
/* adds the fallback rule's text as the next spec */
void fallback_find(Trace *t, SpecFile *s);
/* moves options such as "adamw.eps=1" to the fallback rule */
void fallback_args(Trace *t, SpecFile *s);
/* step() in `matrix`: steps this matrix like the other tensors */
int l_step(lua_State *L);
void add_spec(Trace *t, int i, Source s, Wrap *w);
bool check_text(Source s, Diag *d);
/* calls the function on top, of spec i */
void call_body(lua_State *L, Trace *t, int i, const char *name);
/* false: spec i has no such entry */
bool push_body(lua_State *L, Trace *t, int i, const char *name);

/* shared_text.c */
void shared_open(lua_State *L);                    /* adds include to the table on top */

/* errors.c */
/* a value that could not be computed because of an error */
#define UNKNOWN ((Ref)-2)
/* result of inner(), step(), every(), when(): any use is an error */
#define NOTHING ((Ref)-3)
/* the Diag is set, or the error is recorded; does not return */
int errors_raise(lua_State *L);
void errors_keep(Trace *t);                        /* moves the error in the Diag to the list */
/* records the failed call's message, which is on top; pops it */
void errors_caught(Trace *t, int rc);
bool errors_over(const Trace *t);                  /* tracing must stop: a limit was reached */
/* like lua_pcall; false: it failed, error recorded */
bool errors_call(Trace *t, int nargs, int nresults);
/* Wraps the function on top: an error in it is recorded, and it returns UNKNOWN. */
void errors_guard(lua_State *L, const char *math, bool takes_unknown);
void errors_guard_all(lua_State *L, bool math);    /* all functions in the table on top */
void errors_tell(Trace *t, Diag *d);               /* writes all recorded errors into d */

/* hints.c: a hint what to write instead, or "" */
const char *hint_name(const char *name);                       /* for a name that is not declared */
/* for a field or method of a value */
const char *hint_field(Trace *t, const char *name);
/* for a wrong number of arguments, n */
const char *hint_count(Trace *t, const char *function, int n);
const char *hint_syntax(Trace *t, const SpecFile *s, int line, const char *message);

/* guarded_blocks.c */
int l_every(lua_State *L);
int l_when(lua_State *L);
int l_inner(lua_State *L);

/* block_locals.c */
typedef Ref (*ChooseLocal)(lua_State *L, const void *guard, const char *name, Ref now, Ref was);
/* pushes a list of the values that the function at f may assign */
void locals_save(lua_State *L, int f);
/* Calls choose for each local that changed since locals_save pushed the list at `list`, and assigns
 * its result. block: "every()" or "when()", for messages. */
void locals_choose(lua_State *L, int list, const char *block, ChooseLocal choose,
                   const void *guard);

/* step_parts.c: the step, the rate and the decay of a rule, apart */
int l_shrink(lua_State *L);                        /* shrink(p, amount) */
/* descend(p, x, rate), descend(p, x, rate, decay) */
int l_descend(lua_State *L);
/* separable(): the rule inside can be taken apart */
int l_separable(lua_State *L);
/* records the answer in the options of wrappers that asked */
void parts_answer(Trace *t);
void parts_open(Trace *t);                         /* begins inner { apart = true } */
/* ends it and pushes x, rate and amount. was: t->parts before */
void parts_close(lua_State *L, StepParts was);
/* error: a wrapper inside of it reads p after its inner() */
void parts_read_p(lua_State *L);
void parts_write_p(lua_State *L, Ref was);         /* error: p changes inside of it */
/* step_rewrite.c: "p = descend(p, g, lr)" for a line that has p = p - lr * g; NULL: a form that it
 * does not know. */
const char *step_rewrite(Arena *a, const char *line);

/* input_means.c: scalar inputs of a rule that steps once for several gradients */
int l_add_inputs(lua_State *L);                    /* add_inputs() */
/* before an entry: inputs are as the caller set them */
void inputs_start(Trace *t);
/* specs inside read the sums over count, which become 0 */
void inputs_mean(lua_State *L, Ref count);
Ref input_value(Trace *t, int i);

/* inner_project.c: a rule that steps values over the axis rank */
Dom project_dom(const Trace *t, Dom d);            /* ELEM becomes the projection's domain */
int project_state(lua_State *L, int i);            /* the twin of state i in the projection */
/* Begins a projection; setting t->elem back ends it. apart: the caller applies the decay itself */
void project_open(lua_State *L, Ref g, bool apart);
void forbid_decay(Trace *t);                       /* the innermost rule's weight_decay must be 0 */


/* tensor_queries.c */
/* upvalues: the message if there is no answer; the relation */
int l_query_sizes(lua_State *L);
int l_query_word(lua_State *L);                    /* upvalue: NAMED or TAGGED */
int l_query_divisible(lua_State *L);
int l_query_dims(lua_State *L);

/* variants_trace.c */
bool trace_query(Trace *t, Test q);                /* the answer in the traced variant */
/* traces one variant of all entries */
void variants_trace(lua_State *L, Trace *t, bool has_matrix);
/* moves to the next variant; false: there is none */
bool variants_next(Trace *t);
/* message: the variant lacks a global reduction */
const char *variants_no_partner(Trace *t, int variant);
/* checks that variants agree; sets operands of global reductions */
void variants_join(Trace *t);
void tell_at(Trace *t, int file, int line, const char *fmt, const char *name, const char *other);

/* sandbox.c */
bool sandbox_open(Trace *t);                       /* creates t->L; false: out of memory */
bool sandbox_load(Trace *t, SpecFile *s);          /* pushes the chunk; false: pushes a message */
void sandbox_where(lua_State *L, const char **path, int *line);
int spec_of_source(Trace *t, const char *path);
void sandbox_protect(lua_State *L, const char *name);

/* lang.c */
void lang_open(lua_State *L);                      /* pushes the table of builtins */
Ref lang_arg(lua_State *L, int i, const char *what, int n);
Ref lang_truth(lua_State *L, int i, const char *what, int n);
Ref lang_num(lua_State *L, int i, const char *what, int n);
/* error unless there are lo to hi arguments */
void lang_count(lua_State *L, const char *what, int lo, int hi);
Ref trace_op(lua_State *L, Op op, Ref a, Ref b);
Ref trace_op3(lua_State *L, Op op, Ref a, Ref b, Ref c);
/* the graph; new nodes get the spec's current line */
Graph *trace_here(Trace *t);
void push_value(lua_State *L, Ref r);
bool is_value(lua_State *L, int i);
const Ref *value_at(lua_State *L, int i);          /* NULL: not a value */
int lang_draw(lua_State *L, Op op);                /* random() and normal() inside an entry */
/* number of the hyperparameter seed; adds it if there is none */
int trace_seed(Trace *t);
void inside_entry(lua_State *L, const char *what); /* error unless an entry runs */
const char *describe(Trace *t, Ref r);
Ref trace_node(Trace *t, Node n);
Ref trace_copy(Trace *t, Ref r, Dom dom);          /* broadcast to a larger domain */
/* with blocks: a domain over two axes becomes the blocks' */
Dom trace_dom(const Trace *t, Dom d);
/* The block's version of a value that is computed only from sizes of the matrix (nrows …); NONE: it
 * is not. */
Ref trace_sizes(Trace *t, Ref r);

/* declare.c */
/* adds optimizer, wrapper, zeros, fill, copy to the table on top */
void declare_open(lua_State *L);
/* If `name` is the argument of fill() or eye() at this line, pushes a placeholder for it; false: it
 * is not. */
bool declare_named(lua_State *L, const SpecFile *s, const char *name, int line);
/* the spec's table is on top; popped */
void declare_spec(Trace *t, SpecFile *s, const char *options);

/* compose.c */
bool compose_parse(Arena *a, const char *text, Wrap **out, int *n, Diag *d);
const char *compose_text(Arena *a, const Wrap *w, int n);
bool args_parse(Arena *a, const char *text, Arg **out, int *n, Diag *d, const char *what);

/* lint.c */
/* the text of `in`, with the names of s */
void lint_spec(Trace *t, const SpecFile *s, const SpecFile *in);
/* The line of `local x = … x …`; 0: there is none. */
int lint_local(Trace *t, const SpecFile *s, const char *name);

/* rule_check.c */
void check_rule(Trace *t);                         /* records errors, or raises them */
void warn_at(Trace *t, const SpecFile *s, int line, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
void warn_rule(Trace *t);                          /* adds all warnings about the finished rule */
#endif
