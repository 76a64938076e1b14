/* library: */
/* optc: compiled optimizers for C and C++.
 *
 *     optc_engine *e;  optc_rule *r;  optc_binding *b;
 *     optc_open(NULL, &e);
 *     optc_compile(e, &(optc_rule_options){ .spec = "adamw", .with = "clip(1)" }, &r);
 *     optc_tensor w = { .name = "w", .param = p, .grad = g, .rank = 2, .shape = (int64_t[]){ 768, 3072 } };
 *     optc_group all = { .tensors = &w, .ntensors = 1 };
 *     optc_bind(r, &all, 1, &b);
 *     for (…) { …fill g…; optc_step(b); }
 *     optc_unbind(b);  optc_release(r);  optc_close(e);
 *
 * Every call that can fail returns a status; optc_message() then says what went wrong, naming the call, the spec's line
 * or the tensor. A call that fails has changed nothing. The library never prints and never exits.
 *
 * Owners: an engine outlives its rules, a rule its bindings (each is counted: closing one that is still used is
 * refused). Parameters, gradients and inputs belong to the caller and must stay where they are while bound; states
 * belong to the binding.
 *
 * Threads: an engine and a rule may be used from several threads at once. A binding is used by one thread at a time;
 * different bindings run side by side. optc_message is per thread. After fork() a child whose parent stepped on the CPU
 * with several threads steps with one, to the same bits; a GPU's engine does not come along: calls on it fail in the
 * child. Several packages and this library in one program know that of each other; those in libraries that were opened
 * with RTLD_LOCAL do not. A step on the CPU takes up to 128 KB of a thread's stack, and up to 64 KB more for every sum
 * over rows or columns that a single pass makes or needs: only a rule with dozens of them wants more than
 * OMP_STACKSIZE=1M.
 *
 * Out of memory: every call here returns OPTC_ERROR_MEMORY and changes nothing. Libraries below it may end the process
 * instead: OpenMP's runtime, where it cannot start its threads (an engine with threads = 1 never enters it); OpenBLAS,
 * where it cannot map a buffer for a thread that calls it; libgfortran, where it is loaded with OpenBLAS. A BLAS is
 * loaded when a rule with products is compiled, not during training. OPTC_BLAS=none does without one.
 *
 * Structs that callers fill grow in later versions, at their ends: 0 in every member means the default. Calls that take
 * one hand over how long it is for the caller (that is all that optc_open, optc_compile, optc_bind, optc_type_about,
 * optc_tensor_about and optc_doctor do below), so a program goes on with a newer library without being compiled anew;
 * one compiled with a newer header runs with an older library as long as it sets nothing that this does not know. From
 * another language call the `_sized` functions, with the size of the struct as it is laid out there. optc_setting,
 * optc_text, optc_allocator and what calls fill in (but optc_tensor_info and optc_type_info) stay as they are. */
/* :library */
#ifndef OPTC_H
#define OPTC_H
#include <stddef.h>
#include <stdint.h>

/* library: */
#if defined(__GNUC__)
#pragma GCC visibility push(default)
#endif
/* :library */
#ifdef __cplusplus
extern "C" {
#endif

#define OPTC_VERSION "0.1.0"

typedef enum optc_status {
    OPTC_OK = 0,
    OPTC_ERROR_ARGUMENT,       /* a null pointer, an unknown name, a size that does not fit, aliased buffers */
    OPTC_ERROR_SPEC,           /* the spec, its options or its wrappers: the message names file and line */
    OPTC_ERROR_RANGE,          /* a hyperparameter outside its range */
    OPTC_ERROR_IO,             /* a file that cannot be read or written */
    OPTC_ERROR_MEMORY,
    OPTC_ERROR_UNAVAILABLE,    /* a device or a compiler that is asked for and not there */
    OPTC_ERROR_BUSY,           /* closing what is still in use */
    OPTC_ERROR_DEVICE,         /* the device failed: the message names the call and its error */
    OPTC_ERROR_ABSENT          /* a state of the rule that this tensor does not keep (an option, another variant's) */
} optc_status;

/* Storage types. The numbers are part of the binary interface: they never change, and new types come last. */
typedef enum optc_type { OPTC_DEFAULT = 0, OPTC_F32 = 1, OPTC_F64 = 2, OPTC_BF16 = 3, OPTC_F16 = 4 } optc_type;

typedef struct optc_engine optc_engine;
typedef struct optc_rule optc_rule;
typedef struct optc_binding optc_binding;

const char *optc_message(void);                        /* of this thread's last failed call; "" if none */
const char *optc_status_name(optc_status s);
const char *optc_version(void);

/* What this version knows about a storage type. The strings are constants. */
typedef struct optc_type_info {
    const char *name;          /* as specs, messages and `optc` have it: "bf16" */
    const char *dtype;         /* as NumPy and PyTorch have it: "bfloat16" */
    int bits;                  /* of one value */
    int dlpack;                /* DLPack's type code: with bits it names the type there */
} optc_type_info;
int optc_types(void);          /* types are numbered 1 … optc_types() */
/* Fails with OPTC_ERROR_ARGUMENT if there is no such type. */
optc_status optc_type_about_sized(optc_type t, optc_type_info *out, size_t size);
static inline optc_status optc_type_about(optc_type t, optc_type_info *out)
{
    return optc_type_about_sized(t, out, sizeof *out);
}

/* ---- engines: a device, its threads, its cache ---- */
/* Where bindings take their memory (states, temporaries, tables); on a GPU it must be the device's, aligned to 256
 * bytes (64 on the CPU), and may be used in the order of the binding's stream (NULL on the CPU). alloc returns NULL
 * where there is none. The struct is copied; calls come from the threads that bind. */
typedef struct optc_allocator {
    void *(*alloc)(void *context, size_t bytes, void *stream);
    void (*release)(void *context, void *memory, size_t bytes, void *stream);
    void *context;
} optc_allocator;

typedef struct optc_engine_options {
    /* NULL or "cpu"; "cuda", "cuda:1"; "best": a GPU if there is one. On a GPU all tensors lie in its memory */
    const char *device;
    int threads;               /* 0: as OpenMP would (OMP_NUM_THREADS, or all cores) */
/* library: */
    const char *cache_dir;     /* NULL: $OPTC_CACHE, $XDG_CACHE_HOME/optc or ~/.cache/optc; "": keep nothing */
    /* NULL: $OPTC_CC, $CC, then cc, gcc, clang on the PATH; "": none. With arguments too: "ccache gcc -g". It may take
     * $OPTC_CC_SECONDS seconds (120; 0: no limit), then it is ended with all that it started. Each of its processes may
     * take $OPTC_CC_MEMORY bytes of address space ("1G"; 0: no limit). Where the compiler fails for any reason the rule
     * runs on the evaluator, and optc_rule_path names the reason */
    const char *compiler;
    /* folders to look for specs in before the library's own, separated by ':'; NULL: $OPTC_PATH */
    const char *spec_path;
    const char *isa;           /* NULL: the best this CPU has; or the name of one (optc_isa_name) */
    int no_builtin;            /* 1: do not use the rules compiled into the library */
    /* folders of compiled code, or packages of `optc ship`, separated by ':', looked in after cache_dir and never
     * written; NULL: $OPTC_CACHE_BASE */
    const char *cache_base;
    /* bytes to keep in cache_dir, the longest unused go first; 0: $OPTC_CACHE_MAX ("512M"), or 1 GiB; -1: no cap */
    int64_t cache_max;
    /* 1: no tuning results, neither measured here nor built in: launches as the model has them. The same bits, but for
     * products on a GPU, whose blocks may be tuned */
    int untuned;
/* :library */
    /* NULL: our own (on a GPU the device's stream-ordered pool, and cuMemAlloc for large blocks) */
    const optc_allocator *allocator;
    /* of a package of `optc ship`: a file to take the GPU code from, in place of what is inside it; NULL: $OPTC_FATBIN,
     * then that. The library has no use for it */
    const char *fatbin_path;
    /* of rules with products: bytes that temporaries of products, and what products work in, may take. Tensors are
     * stepped in batches that fit. No more of it is taken than they need, and never less for want of memory. 0:
     * $OPTC_WORKSPACE ("512M"), or 1 GiB, on a GPU a thirty-second part of its memory where that is more, in whole GiB
     * (4 on an H200; `optc doctor` says it). It decides which matrices one call sees, and so, on a GPU, bits. (On the
     * CPU products are made by the BLAS that the process has, or by OpenBLAS or another that is found, one thread a
     * call; $OPTC_BLAS names one, or says "none". It is part of what bits depend on, as are cuBLAS and, of rules that ask
     * for eigenvectors, cuSOLVER on a GPU: $OPTC_CUBLAS and $OPTC_CUSOLVER name their folders, or say "none". What
     * eigenvectors are found in there comes on top: half of this, or what one matrix takes.) */
    int64_t workspace;
} optc_engine_options;

/* bytes: the device's, what is free of them, what bindings of this engine hold and held at most */
typedef struct optc_memory { int64_t total, free, ours, peak; } optc_memory;

optc_status optc_open_sized(const optc_engine_options *o, size_t size, optc_engine **out);
static inline optc_status optc_open(const optc_engine_options *o, optc_engine **out)
{
    return optc_open_sized(o, sizeof *o, out);
}
int optc_device_count(void);                           /* GPUs that can be opened; 0 without a driver */
const char *optc_best_device(void);                    /* what "best" stands for here: "cuda:0", "cpu" */
optc_status optc_memory_info(optc_engine *e, optc_memory *out);
/* NULL is allowed here, in optc_release and in optc_unbind. Not while some stream of its GPU is being captured: what
 * libraries hold goes now, which ends captures. Rules and bindings may come and go meanwhile. */
optc_status optc_close(optc_engine *e);
const char *optc_device_name(const optc_engine *e);    /* "cpu: Intel(R) …, 2 threads, x86-64-v4" */
int optc_threads(const optc_engine *e);

/* ---- rules ---- */
/* library: */
typedef struct optc_text { const char *name, *text; } optc_text;
/* :library */
typedef struct optc_rule_options {
    /* a name of the library ("adamw"), or a path ("./mine.lua"); with wrappers: "adamw+clip(1)" */
    const char *spec;
    const char *text;          /* or the spec's text itself; `spec` is then the name used in messages */
    /* wrappers, the last outermost: "clip(1),ema(0.999)"; a file of your own by its path: "./mine.lua(0.5)" */
    const char *with;
    const char *options;       /* compile-time choices: "amsgrad=true" */
    /* storage types; default f32 (grad, state: as param, state f32 for 16-bit params) */
    optc_type param, grad, state;
/* library: */
    /* texts of wrappers, which `with` finds by these names ahead of the library's */
    const optc_text *wrappers; int nwrappers;
    /* what products of matrices are computed in: "f64", "f32", "tf32", "bf16", "f16"; NULL: as the rule says. A CPU goes no
     * lower than f32 */
    const char *products;
/* :library */
} optc_rule_options;

typedef struct optc_hyper { const char *name; double value, lo, hi; int lo_open, hi_open; } optc_hyper;
typedef struct optc_state_info { const char *name; const char *domain; optc_type type; } optc_state_info;

optc_status optc_compile_sized(optc_engine *e, const optc_rule_options *o, size_t size, optc_rule **out);
static inline optc_status optc_compile(optc_engine *e, const optc_rule_options *o, optc_rule **out)
{
    return optc_compile_sized(e, o, sizeof *o, out);
}
optc_status optc_release(optc_rule *r);
/* "adamw", "adamw+clip(1)"; in a package the name it has there */
const char *optc_rule_name(const optc_rule *r);
/* how it runs: "built in (x86-64-v3)", "compiled by cc in 310 ms", "from the cache", "from the package rules (sm_90)",
 * "reference evaluator (…why…)" */
const char *optc_rule_path(const optc_rule *r);
/* 0: it runs on the reference evaluator: slow, in double precision, and with other bits than compiled code
 * would give */
int optc_rule_native(const optc_rule *r);
/* library: */
const char *optc_rule_plan(const optc_rule *r);        /* the plan as text */
/* :library */
int optc_rule_hypers(const optc_rule *r);
optc_status optc_rule_hyper(const optc_rule *r, int i, optc_hyper *out);
int optc_rule_states(const optc_rule *r);
optc_status optc_rule_state(const optc_rule *r, int i, optc_state_info *out);
/* Values for the reader: what a spec lists under `values` and a step leaves to be read, such as clip's norm
 * ("clip.grad_norm"). */
int optc_rule_values(const optc_rule *r);
optc_status optc_rule_value(const optc_rule *r, int i, optc_state_info *out);
int optc_rule_entries(const optc_rule *r);
const char *optc_rule_entry(const optc_rule *r, int i);
int optc_rule_inputs(const optc_rule *r);
const char *optc_rule_input(const optc_rule *r, int i);
/* An input's name, its domain ("elem", "row", …; "group": a scalar, for optc_set_scalar) and the type of its values in
 * memory: the gradients' type for elem, else f32 or f64. */
optc_status optc_rule_input_info(const optc_rule *r, int i, optc_state_info *out);

/* ---- bindings: a rule on tensors ---- */
enum {                         /* optc_tensor.flags */
    OPTC_AS_VECTOR = 1,        /* step it with the rule's `step` whatever its rank, seen as a vector */
    OPTC_USE_STEP = 2          /* step it with the rule's `step` whatever its rank, its rows and columns as they are */
};

typedef struct optc_tensor {
    const char *name;          /* for messages; may be NULL */
    void *param;
    const void *grad;          /* NULL: it takes no part in steps until it has one (optc_set_grad) */
    int64_t grad_count;        /* 0: as the parameter; else checked against it */
    int rank;                  /* 0: a scalar */
    const int64_t *shape;      /* read during the call only, as the strides */
    optc_type param_type, grad_type;   /* 0: as the rule; else checked against it */
    unsigned flags;
    const int64_t *param_strides, *grad_strides;       /* in elements; NULL: row-major. See below */
    /* words separated by blanks or commas, for rules that ask (`tagged "head"`); may be NULL */
    const char *tags;
    /* the tensor this is a piece of, and where in it; NULL: it is the whole. Pieces are for elementwise rules: others are
     * refused by name. Sizes that a rule asks for are the whole's, and so are draws where it is cut along the first
     * dimension */
    const int64_t *global_shape, *offset;
    /* heads, experts, q k v in one: the rows of each of its matrices are those of so many, one below the other, each
     * stepped as a matrix of its own (rows, norms and products of the rule are then theirs); 0: of one */
    int64_t split;
    /* where its states lie, by their numbers (optc_rule_state), each aligned to 64 bytes: they go on as they are, in this
     * memory of the caller's, which stays until they are unbound. NULL, or NULL among them: in the binding's own, begun
     * as the rule says. So tensors are bound anew among others without a second copy of their states: give what
     * optc_state tells of the binding before, run that one no more, and see that its memory stays (optc_allocator). */
    void *const *states;
} optc_tensor;

/* Ranks above 2: a rule that works on rows and columns sees a tensor as dimension 0 x all others together, which is
 * usual for convolutions. A stack of layers or experts, L x R x C, is then one matrix of L x (R C), and Muon steps it as
 * one. To step L matrices of R x C, bind it as a matrix of (L R) x C with split = L, or use a spec with view = "last".
 * Elementwise rules do not see a difference. optc_binding_warning names tensors that look like such a stack.
 *
 * Strides: a dense layout with its dimensions in another order (channels-last) is stepped in the order of memory,
 * states too, where the rule is elementwise and the gradient lies alike. Everything else that is not row-major is
 * refused by name. */

typedef struct optc_setting { const char *name; double value; } optc_setting;

typedef struct optc_group {
    const optc_tensor *tensors; int ntensors;
    const optc_setting *hyper; int nhyper;             /* what differs from the rule's defaults */
} optc_group;

optc_status optc_bind_sized(optc_rule *r, const optc_group *groups, int ngroups, size_t group_size, size_t tensor_size,
                            optc_binding **out);
static inline optc_status optc_bind(optc_rule *r, const optc_group *groups, int ngroups, optc_binding **out)
{
    return optc_bind_sized(r, groups, ngroups, sizeof(optc_group), sizeof(optc_tensor), out);
}
optc_status optc_unbind(optc_binding *b);
/* A warning about the bound tensors in one line, or "". The string is valid until optc_unbind. The only warning so far:
 * a rule with products steps a tensor of rank 3 or more as one matrix, although its shape suggests stacked matrices.
 * For rank 3 that is a last dimension of 16 or more; for higher ranks the first dimension must also be the smaller one. */
const char *optc_binding_warning(const optc_binding *b);

/* What is bound. */
typedef struct optc_tensor_info {
    const char *name;          /* NULL: none was given. As shape and variant good until optc_unbind */
    int group, rank;
    const int64_t *shape;
    int64_t count;             /* elements */
    void *param;
    const void *grad;          /* NULL: none now */
    const char *variant;       /* how the rule steps it: "step", "matrix", … */
} optc_tensor_info;
int optc_tensors(const optc_binding *b);               /* numbered through all groups, in order */
int optc_groups(const optc_binding *b);
optc_status optc_group_tensors(const optc_binding *b, int group, int *first, int *count);
int optc_find_tensor(const optc_binding *b, const char *name);         /* the first of that name; -1: none */
optc_status optc_tensor_about_sized(const optc_binding *b, int tensor, optc_tensor_info *out, size_t size);
static inline optc_status optc_tensor_about(const optc_binding *b, int tensor, optc_tensor_info *out)
{
    return optc_tensor_about_sized(b, tensor, out, sizeof *out);
}

/* Bytes that it holds for states, for temporaries, and for the batches of rules with products (optc_engine_options.
 * workspace); and in how many batches its tensors are stepped: 0 where the rule has no products. */
typedef struct optc_held { int64_t states, temporaries, workspace; int batches; } optc_held;
optc_status optc_binding_held_sized(const optc_binding *b, optc_held *out, size_t size);
static inline optc_status optc_binding_held(const optc_binding *b, optc_held *out)
{
    return optc_binding_held_sized(b, out, sizeof *out);
}

/* Factors of matrices (a rule's power, chol, qr, eigh and solve): how many were computed since optc_bind, of a tensor
 * or (tensor -1) of all, those of replayed graphs too; and how many of them were refused, because there was none or it
 * was not good enough: there the last one stayed, where the rule names one, else NaN came. residual: how far from what
 * defines it the last one of each matrix was, the largest of them: X^p A - 1 of a p-th inverse root, Q.T Q - 1 of
 * orthonormal columns, in the Frobenius norm (on the CPU as one vector sees it); INFINITY: of something that is no
 * number; 0: of other factors, and before the first. On a GPU this waits for what was started; no step ever does. A
 * rule that runs on the reference evaluator is said nothing of. */
typedef struct optc_factors { int64_t computed, refused; double residual; } optc_factors;
optc_status optc_factors_about_sized(const optc_binding *b, int tensor, optc_factors *out, size_t size);
static inline optc_status optc_factors_about(const optc_binding *b, int tensor, optc_factors *out)
{
    return optc_factors_about_sized(b, tensor, out, sizeof *out);
}

optc_status optc_step(optc_binding *b);                        /* entry "step", then t becomes t + 1 */
optc_status optc_run(optc_binding *b, const char *entry);      /* any entry; only "step" moves t */
/* a CUstream; what follows runs in it, after what is still in the old one only if the caller orders the two. The CPU
 * has none */
optc_status optc_set_stream(optc_binding *b, void *stream);
optc_status optc_sync(optc_binding *b);                        /* waits for what was started */

/* Steps done: of a tensor, or (tensor -1) of the binding. A tensor counts those it took part in: in a step that reads
 * gradients one without a gradient (NULL) takes none. Its parameter, states and count stay as they are, folds over all
 * tensors do not see it, and `t` in the rule is its own count; tensors of different counts share their launches. Groups
 * and `every` go by the binding's count. Steps that the wrapper `skip` leaves out are counted here, since only the device
 * knows of them: the state "skip.skipped" of a tensor counts them, and the rule's t is the difference. Save and restore
 * both. (Steps that a guard leaves out are not counted.) If no tensor of a step takes part, states and values of groups
 * do not change either. After a step was captured in a graph the device is asked, which waits (and rules
 * that do not use t then count no replays). Setting: -1 sets the binding and every tensor; a
 * tensor's is seen from the next optc_run on. */
optc_status optc_get_t(const optc_binding *b, int tensor, int64_t *steps);
optc_status optc_set_t(optc_binding *b, int tensor, int64_t steps);

/* In a rule with every(k, { stagger = true }, …), of which `every` is the k: at which steps a tensor (block -1), or in
 * a rule with blocks a block of it (in the order of its states), has its turn: those that leave *slot divided by k.
 * Dealt when binding, by the work that a turn takes; the same for the same rule and tensors. OPTC_ERROR_ABSENT: it has
 * none. A tensor without a gradient at such a step misses that turn. */
optc_status optc_get_slot(const optc_binding *b, int tensor, int64_t block, int every, int *slot);

optc_status optc_set_hyper(optc_binding *b, int group, const char *name, double value);   /* group -1: all */
/* does nothing where the rule has none of that name; has: whether it does, may be NULL */
optc_status optc_set_hyper_if(optc_binding *b, int group, const char *name, double value, int *has);
optc_status optc_get_hyper(const optc_binding *b, int group, const char *name, double *value);
/* A hyperparameter, or an input of the group (group -1: all), that is read from memory ahead of every run: on a GPU from
 * the device's, in the order of the stream, nobody waits and replays of what was captured read it anew. type: f32 (or
 * OPTC_DEFAULT) or f64. Nobody checks its range. NULL, or setting a value, ends it: a hyperparameter then has the value
 * that was set last, an input the one that was read last. optc_get_hyper reads it, which waits. */
optc_status optc_set_hyper_from(optc_binding *b, int group, const char *name, const void *at, optc_type type);
optc_status optc_set_scalar_from(optc_binding *b, int group, const char *name, const void *at, optc_type type);
/* A guard: a number, likewise, that is looked at ahead of every run. Where it is not 0 (a NaN is not) the run does
 * nothing: no parameter, state, value or count of steps changes. NULL: there is none. On a GPU only the device knows
 * then how many steps were done: optc_get_t asks it (rules that do not use t count those that were left out). Of rules
 * with products, which a library makes, it takes conditional nodes of graphs (CUDA 12.4). Where these are not to be had,
 * and of rules that copy whole arrays, take turns (stagger) or have factors that a library cannot be captured in, the
 * host waits for the guard, and such a run cannot be captured. */
optc_status optc_set_guard(optc_binding *b, const void *at, optc_type type);
/* NULL: left out from now on, see optc_get_t. count 0: not checked; a negative count is refused */
optc_status optc_set_grad(optc_binding *b, int tensor, const void *grad, int64_t count);
/* All of them at once, one a tensor (or NULL), in order; n: optc_tensors. All are set or none. In a captured graph: new
 * addresses, and who is left out, are seen by replays too, once optc_run has been called outside of a capture. Not by
 * those of a step that was captured after this call and ahead of any other run: it keeps the addresses of all arrays as
 * they were (gradients that were allocated in the capture itself), in a table that lives as long as the binding. Once a
 * step was captured optc_run refuses what its replays cannot follow: an entry that would take in tensors without a
 * gradient which it leaves out (or the reverse), more than eight different counts of steps, and, of a rule with states
 * of the group, a tensor that comes back with a count that none had when it was captured (optc_set_t with -1 makes all
 * one again). */
optc_status optc_set_grads(optc_binding *b, const void *const *grads, int n);
/* Parameters that lie elsewhere from now on, one a tensor, in order: what is in them is the caller's doing, states stay
 * as they are. Sizes, types, layouts and the device are as they were bound. All are moved or none; seen by replays of
 * what was captured as moved gradients are. */
optc_status optc_set_params(optc_binding *b, void *const *params, int n);
/* An input of another domain than group, in the type that optc_rule_input_info tells. count 0: not checked. An entry
 * that reads an input which is not set is refused, by the names of the input and the tensor. */
optc_status optc_set_input(optc_binding *b, int tensor, const char *name, const void *data, int64_t count);
/* An input of domain group; group -1: all. It has no value until it is set here or by optc_set_scalar_from: an entry that
 * reads it before is refused, by the names of the input and the group. */
optc_status optc_set_scalar(optc_binding *b, int group, const char *name, double value);

/* State by name. Data of elem, row, col, slice and tensor states belong to a tensor; for a group state `tensor` is the
 * group's number. The pointer is the live memory, good until optc_unbind. Of a matrix that the rule cuts into blocks a
 * state has what belongs to all of them, in the order that specs/README.md tells. */
typedef struct optc_state_view { void *data; int64_t count; optc_type type; } optc_state_view;
optc_status optc_state(optc_binding *b, int tensor, const char *name, optc_state_view *out);
/* Whether it is kept here: 0 where the rule's options or this tensor's variant leave it out (reading it then gives
 * OPTC_ERROR_ABSENT). A name that the rule does not know is OPTC_ERROR_ARGUMENT in all of these. */
optc_status optc_has_state(const optc_binding *b, int tensor, const char *name, int *has);
optc_status optc_state_read(const optc_binding *b, int tensor, const char *name, double *out, int64_t count);
optc_status optc_state_write(optc_binding *b, int tensor, const char *name, const double *in, int64_t count);
/* The same bytes as they lie, in the type that optc_state tells: nothing is converted. */
optc_status optc_state_get(const optc_binding *b, int tensor, const char *name, void *out, size_t bytes);
optc_status optc_state_put(optc_binding *b, int tensor, const char *name, const void *in, size_t bytes);
/* A value for the reader, as the last step that made it left it; 0 before. On a GPU it waits for that step. */
optc_status optc_read_value(const optc_binding *b, int tensor, const char *name, double *out, int64_t count);

/* What one run of an entry moves by the plan at step t (1, 2, …): the floor of any benchmark. */
typedef struct optc_bytes { double read, written; } optc_bytes;
optc_status optc_plan_bytes(const optc_binding *b, const char *entry, int64_t t, optc_bytes *out);

/* ---- rules by name: the library's own specs, or what a package holds ---- */
int optc_library_size(void);
const char *optc_library_name(int i);                  /* "adamw", "wrappers/ema", … */
/* library: */
const char *optc_library_text(const char *name);       /* NULL: no such spec */

/* ---- matrices with no rule: products, Kronecker products ---- */
enum { OPTC_ONE = -1 };        /* next_a, next_b, next_d: one matrix for all of the batch */

/* c = scale a b + add c of each matrix of a batch: a is m x k and b is k x n, row behind row. b NULL: a turned, and c a
 * Gram matrix of m x m, of which the CPU computes half (and adds c's lower triangle). With d, of n x p: c = scale (a b) d + add c, of m x p; a b is
 * kept in the same type, some rows (on a GPU some matrices, if they fit) at a time. All of it lies where the engine's
 * device reaches it, and c overlaps nothing else. On a GPU the call returns once the work is in the stream, and cuBLAS
 * does it: without one that is OPTC_ERROR_UNAVAILABLE. Several threads may call this on one engine.
 * What else it takes keeps within `workspace`; what does not do with that is refused, with the bytes it needs. On the
 * CPU bits depend neither on the workspace nor on threads; on a GPU cuBLAS chooses by both sizes and workspace. */
typedef struct optc_product {
    const void *a, *b, *d;
    void *c;
    optc_type type;            /* of all of them; 0: f32. Sums of 16 bits are carried in f32 */
    int64_t m, n, k, p;        /* k, and n where there is a d, at least 1; n is not read where b is NULL */
    int64_t batch;             /* 0: 1 */
    int turn_a, turn_b, turn_d;                        /* 1: it lies turned: a as k x m, b as n x k, d as p x n */
    int64_t lda, ldb, ldd, ldc;                        /* values from row to row as it lies; 0: as long as a row is */
    int64_t next_a, next_b, next_d, next_c;            /* from matrix to matrix; 0: behind each other; or OPTC_ONE */
    double scale, add;         /* scale 0: 1; add 0: c is not read */
    const char *products;      /* "tf32": f32 rounded to that by a GPU; NULL: as it is */
    int64_t workspace;         /* bytes; 0: as optc_engine_options.workspace */
    void *stream;              /* a CUstream; the CPU has none */
} optc_product;
optc_status optc_multiply_sized(optc_engine *e, const optc_product *x, size_t size);
static inline optc_status optc_multiply(optc_engine *e, const optc_product *x)
{
    return optc_multiply_sized(e, x, sizeof *x);
}

/* c = a (x) b of each matrix of a batch: a is m x n, b is p x q, c is m p x n q, all of them row behind row. Every
 * value is one product, rounded once. On a GPU it is a kernel that NVRTC compiles, as it does rules, and keeps nothing
 * beside. */
typedef struct optc_kronecker {
    const void *a, *b;
    void *c;
    optc_type type;            /* 0: f32 */
    int64_t m, n, p, q;
    int64_t batch;             /* 0: 1 */
    int64_t next_a, next_b;    /* 0: behind each other; or OPTC_ONE */
    void *stream;
} optc_kronecker;
optc_status optc_kron_sized(optc_engine *e, const optc_kronecker *x, size_t size);
static inline optc_status optc_kron(optc_engine *e, const optc_kronecker *x)
{
    return optc_kron_sized(e, x, sizeof *x);
}

/* ---- what the machine has ---- */
/* A page of text; free() it. NULL: the options are of no size, or set what this version does not know
 * (optc_message). */
char *optc_doctor_sized(const optc_engine_options *o, size_t size);
static inline char *optc_doctor(const optc_engine_options *o) { return optc_doctor_sized(o, sizeof *o); }
int optc_isas(void);                                   /* vector levels the library's own rules were compiled for */
const char *optc_isa_name(int i);
int optc_isa_usable(int i);                            /* whether this CPU runs it */
/* :library */

#ifdef __cplusplus
}
#endif
/* library: */
#if defined(__GNUC__)
#pragma GCC visibility pop
#endif
/* :library */
#endif
