/* library: */
/* optc: compiled optimizers for C and C++.
 *
 *     optc_engine *e;  optc_rule *r;  optc_binding *b;
 *     optc_open(NULL, &e);
 *     optc_compile(e, &(optc_rule_options){ .spec = "adamw", .with = "clip(1)" }, &r);
 *     optc_tensor w = { .name = "w", .param = p, .grad = g, .rank = 2, .shape = (int64_t[]){ 768,
 *     3072 } }; optc_group all = { .tensors = &w, .ntensors = 1 };
 *     optc_bind(r, &all, 1, &b);
 *     for (…) { …fill g…; optc_step(b); }
 *     optc_unbind(b);  optc_release(r);  optc_close(e);
 *
 * A CPU program needs the first four sections below: results and messages, engines, rules, bindings
 * and steps. The later sections describe what a rule and a binding contain, extra inputs, GPUs,
 * matrices without a rule, and the machine. Notes on threads after fork(), stacks, memory and
 * versions are at the end of this file.
 *
 * Errors: every call that can fail returns a status. optc_message() then describes the failure and
 * names the call, the line of the spec or the tensor. A failed call changes nothing, with three
 * exceptions. optc_run_all keeps the runs before the one that failed. If a GPU refuses a launch in
 * the middle of a step, runs fail until a checkpoint is loaded or optc_set_t is called.
 * optc_connect may end a connection that the bindings had. The library never exits, and prints
 * nothing unless $OPTC_PROFILE is set.
 *
 * Ownership: an engine outlives its rules, and a rule outlives its bindings. Both are counted:
 * closing one that is still in use is refused. The caller owns parameters, gradients and inputs,
 * and must not move them while they are bound. The binding owns the states.
 *
 * Threads: several threads may use one engine or one rule at the same time. One thread at a time
 * uses a binding; different bindings run in parallel. optc_message() is per thread. */
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

/* ---- results and messages ---- */
typedef enum optc_status {
    OPTC_OK = 0,
    OPTC_ERROR_ARGUMENT,       /* a null pointer, an unknown name, a wrong size, or buffers that
                                * overlap */
    OPTC_ERROR_SPEC,           /* the spec, its options or its wrappers; the message names file and
                                * line */
    OPTC_ERROR_RANGE,          /* a hyperparameter outside its range, or a matrix that a function is
                                * not defined for */
    OPTC_ERROR_IO,             /* a file cannot be read or written */
    OPTC_ERROR_MEMORY,         /* out of memory */
    OPTC_ERROR_UNAVAILABLE,    /* a device or a compiler was requested and is not available */
    OPTC_ERROR_BUSY,           /* the object to close is still in use */
    OPTC_ERROR_DEVICE,         /* the device failed; the message names the call and its error */
    OPTC_ERROR_ABSENT          /* the rule has this state, but this tensor does not (an option,
                                * another variant) */
} optc_status;

/* Storage types. The numbers are part of the binary interface: they never change, and new types
 * come last. */
typedef enum optc_type { OPTC_DEFAULT = 0, OPTC_F32 = 1, OPTC_F64 = 2, OPTC_BF16 = 3, OPTC_F16 = 4,
                         OPTC_Q8 = 5, OPTC_Q8U = 6, OPTC_F8 = 7, OPTC_F8U = 8,
                         OPTC_E4M3 = 9, OPTC_E5M2 = 10, OPTC_BF16SR = 11, OPTC_F16SR = 12,
                         OPTC_I16 = 13, OPTC_I8 = 14 } optc_type;

typedef struct optc_engine optc_engine;
typedef struct optc_rule optc_rule;
typedef struct optc_binding optc_binding;

/* message of this thread's last failed call; "" if none */
const char *optc_message(void);
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
/* Provides the memory of bindings: states, temporaries and tables. The struct is copied. The
 * threads that bind call these functions.
 *
 * alloc returns memory aligned to 64 bytes, or NULL if there is none. On a GPU it returns device
 * memory aligned to 256 bytes, which may be used in the order of `stream`, the binding's stream. On
 * the CPU stream is NULL. */
typedef struct optc_allocator {
    void *(*alloc)(void *context, size_t bytes, void *stream);
    void (*release)(void *context, void *memory, size_t bytes, void *stream);
    void *context;
} optc_allocator;

/* Options of an engine. 0 in a member means its default. */
typedef struct optc_engine_options {
    /* NULL or "cpu"; "cuda" or "cuda:1"; "best": a GPU if there is one. On a GPU all tensors are in
     * its memory. */
    const char *device;
    int threads;               /* 0: the number that OpenMP would use (OMP_NUM_THREADS, or all
                                * cores) */
/* library: */
    const char *cache_dir;     /* NULL: $OPTC_CACHE, $XDG_CACHE_HOME/optc or ~/.cache/optc; "": no
                                * cache on disk */
    /* The C compiler, with arguments if wanted ("ccache gcc -g"). NULL: $OPTC_CC, $CC, then cc,
     * gcc, clang on the PATH; "": none. A compilation may take $OPTC_CC_SECONDS seconds (default
     * 120; 0: no limit). After that it is ended with all processes that it started. Each of its
     * processes may use $OPTC_CC_MEMORY bytes of address space (default "1G"; 0: no limit).
     * optc_open refuses a value of these variables, or of $OPTC_CACHE_MAX, that it cannot read. If
     * the compiler fails for any reason, the rule runs on the reference evaluator, and
     * optc_rule_path names the reason. */
    const char *compiler;
    /* Folders with specs, separated by ':', searched before the library's own specs. NULL:
     * $OPTC_PATH. */
    const char *spec_path;
    const char *isa;           /* NULL: the best vector level of this CPU; or the name of one
                                * (optc_isa_name) */
    int no_builtin;            /* 1: do not use the rules that are compiled into the library */
    /* Folders of compiled code, or packages of `optc ship`, separated by ':'. They are searched
     * after cache_dir and never written. NULL: $OPTC_CACHE_BASE. */
    const char *cache_base;
    /* Most bytes to keep in cache_dir; the entries that were unused longest are removed first. 0:
     * $OPTC_CACHE_MAX ("512M"), or 1 GiB; -1: no limit. */
    int64_t cache_max;
    /* 1: use no tuning results, neither measured nor built in; a model chooses the launches. The
     * bits are the same, except for products on a GPU: the blocks of those may be tuned. */
    int untuned;
/* :library */
    /* NULL: the engine's own. On a GPU that is the device's stream-ordered pool, and cuMemAlloc for
     * large blocks. */
    const optc_allocator *allocator;
    /* Only in packages of `optc ship`: a file with the GPU code, in place of the code inside the
     * package. NULL: $OPTC_FATBIN, then the code inside. The library ignores it. */
    const char *fatbin_path;
    /* Only for rules with products of matrices: most bytes for temporaries of products and for the
     * workspace of the products themselves. Tensors are stepped in batches that fit. A binding
     * takes only what it needs, and does not take less when memory is short. 0: $OPTC_WORKSPACE
     * ("512M"), or 1 GiB; on a GPU 1/32 of its memory if that is more, in whole GiB (4 on an H200).
     * `optc doctor` prints it. Eigenvectors on a GPU use up to half of this in addition, or what
     * one matrix needs.
     *
     * The workspace decides which matrices share a call, and so, on a GPU, the bits. Bits also
     * depend on the libraries. On the CPU that is the BLAS of the process, or OpenBLAS or another
     * one that is found; each call uses one thread. $OPTC_BLAS names one, or is "none". optc opens
     * an OpenBLAS again that took kernels below the CPU's vector level, unless $OPENBLAS_CORETYPE
     * chooses them: C.md. On a GPU it is cuBLAS and, for rules with eigenvectors, cuSOLVER.
     * $OPTC_CUBLAS and $OPTC_CUSOLVER name their folders, or are "none". */
    int64_t workspace;
} optc_engine_options;

/* Opens a device. o: the options, or NULL for all defaults. out: receives the engine. */
optc_status optc_open_sized(const optc_engine_options *o, size_t size, optc_engine **out);
static inline optc_status optc_open(const optc_engine_options *o, optc_engine **out)
{
    return optc_open_sized(o, sizeof *o, out);
}
/* Closes an engine without rules; NULL is allowed. OPTC_ERROR_BUSY: it still has rules, or memory
 * of optc_alloc. Do not call this while any stream of the engine's GPU is being captured: it frees
 * the handles of libraries, and that ends captures. Making and freeing rules and bindings is
 * allowed meanwhile. */
optc_status optc_close(optc_engine *e);
const char *optc_device_name(const optc_engine *e);    /* "cpu: Intel(R) …, 2 threads, x86-64-v4" */
int optc_threads(const optc_engine *e);

/* ---- rules ---- */
/* library: */
typedef struct optc_text { const char *name, *text; } optc_text;
/* :library */
/* What to compile. 0 in a member means its default. */
typedef struct optc_rule_options {
    /* A name of the library ("adamw"), or a path ("./mine.lua"); with wrappers: "adamw+clip(1)". */
    const char *spec;
    const char *text;          /* the text of the spec; `spec` is then its name in messages */
    /* Wrappers, the last one outermost: "clip(1),ema(0.999)". A wrapper in a file:
     * "./mine.lua(0.5)". */
    const char *with;
    const char *options;       /* compile-time choices: "amsgrad=true" */
    /* Storage types. Defaults: param f32; grad as param; state as param, and f32 for 16-bit
     * parameters. */
    optc_type param, grad, state;
/* library: */
    /* Texts of wrappers. `with` finds them by these names, before the library's wrappers. */
    const optc_text *wrappers; int nwrappers;
    /* Precision of all products of matrices: "f64", "f32", "tf32", "bf16" or "f16". It also
     * replaces that of single calls in the spec. NULL: as the rule says. A CPU does not go below
     * f32. */
    const char *products;
    /* Storage types by class and by name of a state:
     * "param=bf16,state=q8,ema.avg=bf16,master=low16,copy=bf16, lost=count,edits=find" (without
     * spaces). NULL: param, grad and state above. Where the text has one of these classes, the
     * member above is not used. runtime/TYPES.md has the types. */
    const char *types;
    /* The number of bindings over which the rule's values of all tensors (clip's norm) are taken:
     * one optimizer whose tensors have several types takes one rule and one binding for each. Give
     * each rule this number, connect the bindings by optc_connect and run them by optc_run_all. 0
     * or 1: the values are over one binding. */
    int bindings;
/* :library */
} optc_rule_options;

/* Compiles a rule, or takes it from the library or the cache. out: receives the rule.
 * OPTC_ERROR_SPEC: the message has the file and line of the mistake. */
optc_status optc_compile_sized(optc_engine *e, const optc_rule_options *o, size_t size,
                               optc_rule **out);
static inline optc_status optc_compile(optc_engine *e, const optc_rule_options *o, optc_rule **out)
{
    return optc_compile_sized(e, o, sizeof *o, out);
}
/* Frees a rule without bindings; NULL is allowed. OPTC_ERROR_BUSY: it still has bindings. */
optc_status optc_release(optc_rule *r);
/* "adamw", "adamw+clip(1)"; in a package the rule's name there. */
const char *optc_rule_name(const optc_rule *r);
/* How the rule runs: "built in (x86-64-v3)", "compiled by cc in 310 ms", "from the cache", "from
 * the package rules (sm_90)", "reference evaluator (…reason…)". */
const char *optc_rule_path(const optc_rule *r);
/* 1: compiled code. 0: the reference evaluator, which is slow, computes in double precision and
 * gives other bits. */
int optc_rule_native(const optc_rule *r);

/* ---- bindings: a rule on tensors ---- */
enum {                         /* optc_tensor.flags */
    OPTC_AS_VECTOR = 1,        /* use the rule's `step` for any rank, and treat the tensor as a
                                * vector */
    OPTC_USE_STEP = 2          /* use the rule's `step` for any rank, and keep the tensor's rows and
                                * columns */
};

/* A tensor to step. 0 in a member means its default. A plain tensor sets name, param, grad, rank
 * and shape.
 *
 * Ranks above 2: a rule that works on rows and columns treats a tensor as one matrix of dimension 0
 * x all others, as is usual for convolutions. A stack of layers or experts, L x R x C, is then one
 * matrix of L x (R C), and Muon steps it as one. To step L matrices of R x C, bind it as a matrix
 * of (L R) x C with split = L, or use a spec with view = "last". Elementwise rules are not
 * affected. optc_binding_warning names tensors that look like such a stack.
 *
 * Strides: an elementwise rule accepts a dense layout with its dimensions in another order
 * (channels-last), if the gradient has the same layout. It steps in the order of memory, and stores
 * the states in that order. Any other layout that is not row-major is refused by name. */
typedef struct optc_tensor {
    const char *name;          /* for messages; may be NULL */
    void *param;
    const void *grad;          /* NULL: the tensor takes no part in steps until it has a gradient
                                * (optc_set_grad) */
    int64_t grad_count;        /* 0: as many as the parameter; otherwise checked against it */
    int rank;                  /* 0: a scalar */
    const int64_t *shape;      /* read only during the call, like the strides */
    optc_type param_type, grad_type;   /* 0: as the rule; otherwise checked against it */
    unsigned flags;
    const int64_t *param_strides, *grad_strides;       /* in elements; NULL: row-major */
    /* Words separated by blanks or commas, for rules that test them (`tagged "head"`). May be
     * NULL. */
    const char *tags;
    /* The shape of the tensor that this one is a piece of, and the piece's position in it. NULL:
     * this is the whole tensor. Only elementwise rules accept pieces; others refuse them by name.
     * Sizes in the rule are those of the whole tensor, and so are random draws. A package draws
     * other numbers for pieces that are no range of elements. If states are stored in block codes
     * and the whole tensor has at least 4096 elements, a piece, or each of its runs of consecutive
     * elements, must consist of whole blocks of 128 elements. */
    const int64_t *global_shape, *offset;
    /* Number of matrices that are stacked by rows in each matrix: heads, experts, or q, k and v in
     * one tensor. Each is stepped as its own matrix; rows, norms and products of the rule are then
     * those of that matrix. 0: one. */
    int64_t split;
    /* Memory of the caller for the states, in the order of optc_rule_state, each aligned to 64
     * bytes. Its contents are kept as the states. The memory must stay until the tensor is unbound.
     * NULL, or a NULL entry: the binding allocates the state and initialises it as the rule says.
     * Use this to bind tensors again, among others, without a second copy of their states: pass the
     * pointers that optc_state returns for the old binding, do not run the old binding again, and
     * keep its memory alive (optc_allocator). */
    void *const *states;
} optc_tensor;

typedef struct optc_setting { const char *name; double value; } optc_setting;

/* Tensors that share hyperparameters. */
typedef struct optc_group {
    const optc_tensor *tensors; int ntensors;
    /* values that differ from the rule's defaults */
    const optc_setting *hyper; int nhyper;
} optc_group;

/* Binds a rule to tensors and initialises the states. groups: an array of ngroups groups. out:
 * receives the binding. Tensors are numbered from 0 through all groups, in order. */
optc_status optc_bind_sized(optc_rule *r, const optc_group *groups, int ngroups, size_t group_size,
                            size_t tensor_size, optc_binding **out);
static inline optc_status optc_bind(optc_rule *r, const optc_group *groups, int ngroups,
                                    optc_binding **out)
{
    return optc_bind_sized(r, groups, ngroups, sizeof(optc_group), sizeof(optc_tensor), out);
}
/* Frees a binding and its states; NULL is allowed. */
optc_status optc_unbind(optc_binding *b);
/* A warning about the binding in one line, or "". The string is valid until optc_unbind. There are
 * two, the first one ahead. A rule with products steps a tensor of rank 3 or more as one matrix,
 * although its shape suggests stacked
 * matrices: for rank 3 a last dimension of 16 or more; for higher ranks the first dimension must
 * also be the smaller one. Or the products of a rule are slow: the BLAS has better kernels for this
 * CPU than it uses, or has none. */
const char *optc_binding_warning(const optc_binding *b);

/* Runs the entry "step", then increments t. */
optc_status optc_step(optc_binding *b);
/* Runs the named entry. Only "step" increments t. */
optc_status optc_run(optc_binding *b, const char *entry);
/* Several bindings as one optimizer, for tensors of several types: one rule for each set of types,
 * compiled with optc_rule_options.bindings = n, and one binding of each. optc_connect connects
 * them, once: values of all tensors, such as clip's norm, are then over the tensors of all n.
 * optc_run_all runs an entry on all of them. It first runs the entries that compute these values
 * ("share_step_0", …). The bindings belong to one engine, and on a GPU to one stream; a captured
 * graph may contain the call. On a GPU the smaller ones run beside the largest, in a stream of the
 * library, which the caller's stream waits for; from the third run on all of them are one graph. If
 * a binding fails, later ones are not run.
 *
 * Connected bindings are used by one thread at a time, as one binding is. An entry that needs
 * values of all tensors is refused unless all of them have shared theirs since its last run: run it
 * by optc_run_all with all of them. Entries without such values run alone too. When one binding is
 * unbound or connected again, the others are not connected any
 * more: such entries are refused until they are. Rules that take no values of all tensors can be
 * connected without optc_rule_options.bindings. */
optc_status optc_connect(optc_binding *const *b, int n);
optc_status optc_run_all(optc_binding *const *b, int n, const char *entry);

/* Sets a hyperparameter of a group from the next run on. Nothing is compiled again. group -1: all
 * groups.
 * OPTC_ERROR_RANGE: the value is outside its range. */
optc_status optc_set_hyper(optc_binding *b, int group, const char *name, double value);
/* The same, but does nothing if the rule has no hyperparameter of that name. has: receives 1 if it
 * has; may be NULL. */
optc_status optc_set_hyper_if(optc_binding *b, int group, const char *name, double value, int *has);
optc_status optc_get_hyper(const optc_binding *b, int group, const char *name, double *value);

/* Replaces the gradient pointer of one tensor. NULL excludes the tensor from the following steps
 * (see optc_get_t).
 * count: its number of elements, which is checked; 0: not checked. A negative count is refused. */
optc_status optc_set_grad(optc_binding *b, int tensor, const void *grad, int64_t count);
/* Replaces the gradient pointers of all tensors, in binding order. A NULL entry excludes its tensor
 * from the following steps. n must equal optc_tensors(b). On failure no pointer changes.
 *
 * CUDA graphs: an already captured step uses the new pointers after the next optc_run outside of a
 * capture. A step that is captured directly after this call keeps the pointers it was captured
 * with. runtime/CAPTURE.md has the full rules. */
optc_status optc_set_grads(optc_binding *b, const void *const *grads, int n);
/* Replaces the parameter pointers of all tensors, in binding order. The caller fills the new
 * arrays; states stay as they are. Sizes, types, layouts and the device must be as bound. n must
 * equal optc_tensors(b). On failure no pointer changes. Captured steps follow as they do after
 * optc_set_grads. */
optc_status optc_set_params(optc_binding *b, void *const *params, int n);

/* Reads or sets the number of steps done. tensor: the tensor's own count; -1: the binding's.
 * Setting -1 sets the binding and every tensor. A tensor's new count takes effect at the next
 * optc_run.
 *
 * A tensor counts the steps that it took part in. In a step that reads gradients, a tensor with a
 * NULL gradient takes no part: its parameter, states and count do not change, and reductions over
 * all tensors exclude it. `t` in the rule is the tensor's own count. Tensors with different counts
 * share their launches. Groups and `every` use the binding's count. If no tensor of a step takes
 * part, states and values of groups do not change either.
 *
 * Skipped steps: the wrapper `skip` decides on the device, so steps that it skips are counted here.
 * The tensor's state "skip.skipped" counts them, and the rule's t is the difference; save and
 * restore both. Steps that a guard skips (optc_set_guard) are not counted.
 *
 * After a step was captured in a CUDA graph, reading waits for the device. Rules that do not use t
 * then do not count replays. */
optc_status optc_get_t(const optc_binding *b, int tensor, int64_t *steps);
optc_status optc_set_t(optc_binding *b, int tensor, int64_t steps);

/* States by name. tensor: the tensor's number. For a state of domain "group" it is the group's
 * number. In all of these calls an unknown name is OPTC_ERROR_ARGUMENT. If the rule's options or
 * the tensor's variant leave the state out, the call returns OPTC_ERROR_ABSENT.
 *
 * optc_state returns the live memory, which is valid until optc_unbind. If the rule cuts a matrix
 * into blocks, a state contains the values of all its blocks, in the order that specs/MATRICES.md
 * (Blocks) describes.
 *
 * A state in block codes (q8, q8u, f8, f8u) of `count` values has ceil(count / 128) blocks in one
 * allocation: first the codes, one byte per value, padded to whole blocks; behind them one f32
 * scale per block. Block i has the values from 128 i on, in memory order. A tensor with fewer than
 * 4096 elements (of the whole tensor, if it is a piece) stores f32 values instead, and `type` is
 * then OPTC_F32. runtime/TYPES.md has the meaning of codes and scales. */
typedef struct optc_state_view { void *data; int64_t count; optc_type type; } optc_state_view;
optc_status optc_state(optc_binding *b, int tensor, const char *name, optc_state_view *out);
/* The bytes of that memory: values of a plain type; codes, padding and scales of block codes. */
optc_status optc_state_bytes(const optc_binding *b, int tensor, const char *name, size_t *out);
/* has: receives 1 if this tensor (or group) has the state, and 0 if options or its variant leave it
 * out. */
optc_status optc_has_state(const optc_binding *b, int tensor, const char *name, int *has);
/* Copies a state as doubles. count must be the state's number of values. A state that the rule
 * keeps a lower triangle (optc_rule_lower_triangle) must remain one: optc_state_write,
 * optc_state_put and optc_load refuse values right of the diagonal that are not 0. Values that the
 * caller writes through the pointer of optc_state, or passes in optc_tensor.states, are not
 * checked: use optc_rule_check_state. */
optc_status optc_state_read(const optc_binding *b, int tensor, const char *name, double *out,
                            int64_t count);
optc_status optc_state_write(optc_binding *b, int tensor, const char *name, const double *in,
                             int64_t count);
/* Copies the bytes of a state in its own type, without conversion. optc_state tells type and count,
 * optc_state_bytes the number of bytes. */
optc_status optc_state_get(const optc_binding *b, int tensor, const char *name, void *out,
                           size_t bytes);
optc_status optc_state_put(optc_binding *b, int tensor, const char *name, const void *in,
                           size_t bytes);
/* Reads a value that a step leaves for the caller, such as clip's norm ("clip.grad_norm"). It is
 * from the last step that computed it, and 0 before the first. On a GPU the call waits for that
 * step. */
optc_status optc_read_value(const optc_binding *b, int tensor, const char *name, double *out,
                            int64_t count);
/* Call it after writing a parameter between steps, if the rule keeps what its type rounds away
 * (master=f32, low16, low8 or kahan) or a copy of it. Sets these arrays from the current parameter:
 * master and copy to p, low and compensation to 0. tensor -1: all tensors. Does nothing for other
 * rules. Without this call the next step continues from the old parameter (f32), or adds the old
 * parameter's remainder to the new one. On a GPU the call waits for the stream, and copies master
 * through the host. Not inside a capture. A sharded binding refuses it if one rank holds such an
 * array for all pieces (optc_state_rank). */
optc_status optc_params_changed(optc_binding *b, int tensor);
/* 1 if optc_params_changed sets the state or value of this name; NULL: if it sets any. */
int optc_rule_follows_params(const optc_rule *r, const char *name);
/* 1 if the rule keeps the state of this name a lower triangle. Products on a GPU leave out its
 * zeros (specs/MATRICES.md). */
int optc_rule_lower_triangle(const optc_rule *r, const char *name);
/* Checks values of such a state, without a binding: fails if one right of the diagonal is not 0.
 * values: `count` values in host memory, from index `at` of the whole tensor's state on, of a type
 * other than block codes. t: name, rank, shape, global_shape, flags, tags and split are read. Other
 * states pass. */
optc_status optc_rule_check_state_sized(const optc_rule *r, const char *name, const optc_tensor *t,
                                        optc_type type, const void *values, int64_t at,
                                        int64_t count, size_t size);
static inline optc_status optc_rule_check_state(const optc_rule *r, const char *name,
                                                const optc_tensor *t, optc_type type,
                                                const void *values, int64_t at, int64_t count)
{
    return optc_rule_check_state_sized(r, name, t, type, values, at, count, sizeof *t);
}

/* ---- checkpoints, and sharded bindings ---- */
#include "optc_checkpoint.h"
#include "optc_shard.h"

/* ---- what a rule declares ---- */
typedef struct optc_hyper {
    const char *name; double value, lo, hi; int lo_open, hi_open;
} optc_hyper;
/* type: as the rule was compiled. In block codes, tensors with fewer than 4096 elements store
 * OPTC_F32 (optc_state). */
typedef struct optc_state_info {
    const char *name; const char *domain; optc_type type;
} optc_state_info;

int optc_rule_hypers(const optc_rule *r);
optc_status optc_rule_hyper(const optc_rule *r, int i, optc_hyper *out);
int optc_rule_states(const optc_rule *r);
optc_status optc_rule_state(const optc_rule *r, int i, optc_state_info *out);
/* Values for the caller: the spec lists them under `values`, and a step leaves them to be read
 * (optc_read_value). */
int optc_rule_values(const optc_rule *r);
optc_status optc_rule_value(const optc_rule *r, int i, optc_state_info *out);
int optc_rule_entries(const optc_rule *r);
const char *optc_rule_entry(const optc_rule *r, int i);
/* Whether entry i reads gradients. An entry that reads none can run while gradients are scaled, or
 * after they were freed. */
int optc_rule_reads_gradient(const optc_rule *r, int i);
/* Whether some work is done at some steps only, or at different steps for different tensors:
 * every(k, …) in a spec. */
int optc_rule_has_periods(const optc_rule *r);
/* The i-th word, from 0, that the rule looks for in optc_tensor.tags (`tagged "head"`). NULL: there
 * is no number i. */
const char *optc_rule_tag(const optc_rule *r, int i);
/* The i-th entry, from 0, of a training step: 1, 2, … (one more than the binding's optc_get_t).
 * NULL: it has no more. step 0: of those that any step has. The caller computes new gradients
 * before each entry and runs it with optc_run. For most rules this is "step" alone. With the
 * wrapper sam it is "perturb", then "step"; looksam has "perturb" only at some steps. */
const char *optc_rule_gradient(const optc_rule *r, int64_t step, int i);
int optc_rule_inputs(const optc_rule *r);
const char *optc_rule_input(const optc_rule *r, int i);
/* An input's name, its domain and the type of its values in memory. Domain "group" is a scalar, for
 * optc_set_scalar. The type is the gradients' type for domain "elem", otherwise f32 or f64. */
optc_status optc_rule_input_info(const optc_rule *r, int i, optc_state_info *out);
/* library: */
const char *optc_rule_plan(const optc_rule *r);        /* the plan as text */
/* A text field of the spec's head: "doc", "cite", or "fallback", which is the name of the rule that
 * steps tensors that are not matrices. "vectors": "true" if tensors of one dimension are stepped as
 * matrices. "shapes": "true" if rows, columns, sizes, names or tags of a tensor matter. "" if the
 * spec has none. */
const char *optc_rule_field(const optc_rule *r, const char *field);
/* The compile-time options of the spec and of its fallback rule ("adamw.amsgrad"), as text.
 * choices: the values that may be chosen, one per line; NULL: every value of that kind. kind:
 * "flag", "number" or "text". */
typedef struct optc_option { const char *name, *value, *preset, *choices, *kind; } optc_option;
int optc_rule_option_count(const optc_rule *r);
optc_status optc_rule_option(const optc_rule *r, int i, optc_option *out);
/* The position at which the spec declares a hyperparameter or an option, to list them in the spec's
 * order; -1 if the spec does not declare it. */
int optc_rule_position(const optc_rule *r, const char *name);
/* 1 if a wrapper passes a changed gradient to the rule inside it. */
int optc_rule_changes_grad(const optc_rule *r);
/* Warnings as `optc check` prints them: storage types that cannot work by the defaults of the
 * hyperparameters; for a spec that is not the library's also lines that are valid but probably
 * mistakes, with file and line, and hyperparameters that nothing reads with the chosen options. The
 * strings are valid until optc_release. */
int optc_rule_warnings(const optc_rule *r);
/* NULL: there is no number i */
const char *optc_rule_warning(const optc_rule *r, int i);
/* Why a value of this hyperparameter has no effect: nothing reads it with the rule's options. NULL:
 * it is read, or the rule has no hyperparameter of that name. optc_bind and optc_set_hyper accept
 * values that nothing reads. The string is valid until optc_release. */
const char *optc_rule_unread(const optc_rule *r, const char *hyper);
/* Warnings about storage types that cannot work with these hyperparameters: an average that
 * freezes, a decay or update that rounds away. optc_rule_warning has those for the defaults. hyper:
 * values that differ from the defaults. buf: receives the text, with an empty line between two
 * warnings; "" if there are none. */
optc_status optc_type_warnings(const optc_rule *r, const optc_setting *hyper, int nhyper, char *buf,
                               size_t size);
/* :library */

/* ---- what a binding contains ---- */
typedef struct optc_tensor_info {
    const char *name;          /* NULL: none was given. name, shape and variant are valid until
                                * optc_unbind */
    int group, rank;
    const int64_t *shape;
    int64_t count;             /* elements */
    void *param;
    const void *grad;          /* NULL: none at present */
    const char *variant;       /* how the rule steps it: "step", "matrix", … */
} optc_tensor_info;
/* number of tensors; they are numbered through all groups */
int optc_tensors(const optc_binding *b);
int optc_groups(const optc_binding *b);
optc_status optc_group_tensors(const optc_binding *b, int group, int *first, int *count);
/* the first one of that name; -1: none */
int optc_find_tensor(const optc_binding *b, const char *name);
optc_status optc_tensor_about_sized(const optc_binding *b, int tensor, optc_tensor_info *out,
                                    size_t size);
static inline optc_status optc_tensor_about(const optc_binding *b, int tensor,
                                            optc_tensor_info *out)
{
    return optc_tensor_about_sized(b, tensor, out, sizeof *out);
}

/* Bytes that the binding holds: for states, for temporaries, and for the batches of rules with
 * products (optc_engine_options.workspace). batches: the number of batches in a step; 0 if the rule
 * has no products. graphs: bytes of the work lists and CUDA graphs of staggered steps
 * (runtime/CAPTURE.md): at most a quarter of the workspace, and one list. The driver's part of a
 * graph is estimated. */
typedef struct optc_held {
    int64_t states, temporaries, workspace; int batches; int64_t graphs;
} optc_held;
optc_status optc_binding_held_sized(const optc_binding *b, optc_held *out, size_t size);
static inline optc_status optc_binding_held(const optc_binding *b, optc_held *out)
{
    return optc_binding_held_sized(b, out, sizeof *out);
}

/* Counts the factors of matrices (power, chol, qr, eigh and solve in a rule) since optc_bind,
 * replayed graphs included.
 * tensor: the tensor's number; -1: all tensors.
 *   computed   how many were computed
 *   refused    how many of those were refused, because there was no factor or it was not accurate
 *              enough. The previous factor is kept if the rule names one; otherwise the result is
 *              NaN.
 *   residual   how far the last factor of each matrix was from its definition, the largest of them:
 *              X^p A - 1 of a p-th inverse root, Q.T Q - 1 of orthonormal columns, in the Frobenius
 *              norm. It is estimated with random vectors on the CPU, and for 512 and more rows on a
 *              GPU. INFINITY: of a matrix that is not finite. 0: other factors, or none computed
 *              yet.
 * On a GPU this call waits for the work that was started; a step never waits. Not available when
 * the rule runs on the reference evaluator; the counts are then 0. */
typedef struct optc_factors { int64_t computed, refused; double residual; } optc_factors;
optc_status optc_factors_about_sized(const optc_binding *b, int tensor, optc_factors *out,
                                     size_t size);
static inline optc_status optc_factors_about(const optc_binding *b, int tensor, optc_factors *out)
{
    return optc_factors_about_sized(b, tensor, out, sizeof *out);
}

/* For rules with every(k, { stagger = true }, …): at which steps a tensor is scheduled. every: the
 * k. block: -1, or in a rule with blocks the number of a block, in the order of its states. The
 * tensor or block is scheduled at the steps whose remainder modulo k is *slot. optc_bind assigns
 * the slots by the cost of the work; the same rule and tensors get the same slots. A tensor without
 * a gradient at such a step misses it. OPTC_ERROR_ABSENT: it has no slot. If several blocks of the
 * rule have this k, the tensor has a slot for each of them, and *slot is that of the first one. */
optc_status optc_get_slot(const optc_binding *b, int tensor, int64_t block, int every, int *slot);

/* Bytes that one run of an entry moves by the plan at step t (1, 2, …): the lower bound of any
 * benchmark. */
typedef struct optc_bytes { double read, written; } optc_bytes;
optc_status optc_plan_bytes(const optc_binding *b, const char *entry, int64_t t, optc_bytes *out);

/* ---- inputs beside the gradient ---- */
/* Sets an input of a tensor, of any domain but "group". data: values in the type of
 * optc_rule_input_info; the pointer is kept and read at every run. count: the number of values,
 * which is checked; 0: not checked. A run that reads an input which is not set is refused, with the
 * names of the input and the tensor. */
optc_status optc_set_input(optc_binding *b, int tensor, const char *name, const void *data,
                           int64_t count);
/* Sets an input of domain "group". group -1: all groups. The input has no value before this call or
 * optc_set_scalar_from: a run that reads it earlier is refused, with the names of the input and the
 * group. */
optc_status optc_set_scalar(optc_binding *b, int group, const char *name, double value);
/* Reads a hyperparameter, or an input of domain "group", from memory before every run. group -1:
 * all groups. at: the address of one number. type: OPTC_F32 (or OPTC_DEFAULT) or OPTC_F64. The
 * range is not checked. On a GPU the address is in device memory: it is read in stream order, the
 * host does not wait, and replays of a captured step read it again.
 * NULL, or setting a value, ends this. A hyperparameter then has the value that was set last, an
 * input the value that was read last. optc_get_hyper reads the number, and waits for the device. */
optc_status optc_set_hyper_from(optc_binding *b, int group, const char *name, const void *at,
                                optc_type type);
optc_status optc_set_scalar_from(optc_binding *b, int group, const char *name, const void *at,
                                 optc_type type);
/* Sets a guard: a number in memory, as above, that is tested before every run. If it is not 0 (a
 * NaN is not 0), the run changes no parameter, state, value or step count. NULL: no guard.
 *
 * On a GPU only the device then knows how many steps were done, and optc_get_t waits for it. Rules
 * that do not use t count skipped steps too. Rules with products need conditional graph nodes (CUDA
 * 12.4). runtime/CAPTURE.md lists the cases in which the host waits for the guard at each step, and
 * the run cannot be captured. */
optc_status optc_set_guard(optc_binding *b, const void *at, optc_type type);

/* ---- GPUs ---- */
/* GPUs that can be opened; 0 without a driver */
int optc_device_count(void);
/* what "best" means on this machine: "cuda:0", "cpu" */
const char *optc_best_device(void);
/* Sets the stream, a CUstream, for the following runs. The caller orders them after work in the old
 * stream, if that is needed. Not for the CPU. */
optc_status optc_set_stream(optc_binding *b, void *stream);
/* Waits for the runs that were started. */
optc_status optc_sync(optc_binding *b);
/* Bytes of the device: total, free, held by bindings and by optc_alloc of this engine now (ours)
 * and at most (peak). */
typedef struct optc_memory { int64_t total, free, ours, peak; } optc_memory;
optc_status optc_memory_info(optc_engine *e, optc_memory *out);

/* ---- memory of the device ---- */
#include "optc_memory.h"

/* ---- rules by name: the library's own specs, or the rules of a package ---- */
int optc_library_size(void);
const char *optc_library_name(int i);                  /* "adamw", "wrappers/ema", … */
/* library: */
/* of a spec, or of a text that specs include: "shared/uphill"; NULL: no such text */
const char *optc_library_text(const char *name);

/* :library */
/* functions: */

/* ---- matrices without a rule: products and functions ---- */
#include "optc_matrix.h"
/* :functions */
/* library: */

/* ---- profiles ---- */
#include "optc_profile.h"

/* ---- the machine ---- */
/* Describes the machine in a page of text, which the caller frees with free(). NULL: the options
 * have no size, or set something that this version does not know (see optc_message). */
char *optc_doctor_sized(const optc_engine_options *o, size_t size);
static inline char *optc_doctor(const optc_engine_options *o)
{
    return optc_doctor_sized(o, sizeof *o);
}
/* vector levels that the library's own rules are compiled for */
int optc_isas(void);
const char *optc_isa_name(int i);
int optc_isa_usable(int i);                            /* 1: this CPU can run it */

/* ---- notes ----
 * fork(): if the parent's steps on the CPU used several threads, a child steps with one, to the
 * same bits. A GPU's engine cannot be used in the child: calls on it fail. Packages and this
 * library in one program share that knowledge, but not those in libraries that were opened with
 * RTLD_LOCAL.
 *
 * Stack: a step on the CPU uses up to 128 KB of a thread's stack, and up to 64 KB more for every
 * sum over rows or columns that a single pass computes or needs. Only a rule with dozens of them
 * needs more than OMP_STACKSIZE=1M.
 *
 * Out of memory: every call returns OPTC_ERROR_MEMORY and changes nothing. Libraries below may end
 * the process instead: the OpenMP runtime, if it cannot start its threads (an engine with threads =
 * 1 never uses it); OpenBLAS, if it cannot map a buffer for a calling thread; libgfortran, if it is
 * loaded with OpenBLAS. A BLAS is loaded when a rule with products is compiled, not during
 * training. OPTC_BLAS=none uses no BLAS.
 *
 * Versions: structs that callers fill grow at their ends in later versions. Calls that take one
 * pass its size: that is all that optc_open, optc_compile, optc_bind, optc_tensor_about and the
 * other inline functions do. So a program runs with a newer library without recompilation. A
 * program that was compiled with a newer header runs with an older library as long as it sets
 * nothing that the library does not know. From another language call the `_sized` functions with
 * the size of the struct in that language; sizes below those of the first version are refused.
 * optc_setting, optc_text, optc_allocator and the structs that calls fill in do not change, except
 * optc_tensor_info. */
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
