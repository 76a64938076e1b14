/* A Program: the tables that describe a compiled rule to the runtime. Constant data, made from a
 * plan (program_make.c). The library holds it in memory; a package contains it as C tables. The
 * same sources (runtime/core) run both. C11 and C++17.
 *
 *   arrays    everything that stages read or write, numbered like the plan's Mems. Each tensor (or
 *             group) has a table of pointers by array number
 *   stages    sorted by the number of their function; equal stages share one. Their reads and
 *             writes determine which gradients must be set, what is transferred, and the live
 *             ranges of temporaries
 *   entries   for each phase (a combination of the periods that divide t) a list of actions:
 *             advance t, launch a stage over all its tensors, copy an array over another
 *   variants  a tensor takes the variant whose tests it passes */
#ifndef OPTC_PROGRAM_H
#define OPTC_PROGRAM_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "gen/abi/reduction_sizes.h"
#include "gen/abi/domains.h"
#include "gen/abi/counts.h"
#include "gen/abi/variants.h"

enum { MOST_VARIANTS = 8, MOST_SHARED = OPTC_SHARED };

typedef enum {                     /* storage types; optc_type counts from 1 */
#define TYPE(ID, ...) T_##ID,
#include "gen/abi/types.def"
    NTYPES
} Type;
enum {                             /* T_F32_BYTES … */
#define TYPE(ID, name, bits, ...) T_##ID##_BYTES = bits / 8,
#include "gen/abi/types.def"
};
/* Returns the type that readers see: bf16 for bf16sr, f16 for f16sr, t itself for others. */
OPTC_COUNT int plain_type(int t)
{
    switch (t) {
#define TYPE(...)
#define DRAWN(PLAIN, rounds, ID, ...) case T_##ID: return T_##PLAIN;
#include "gen/abi/types.def"
    default: return t;
    }
}

typedef struct ProgType { const char *name; int bytes, block; } ProgType;

/* Returns the type in which a tensor stores its values. Small tensors store f32 in place of block
 * codes. */
OPTC_COUNT int stored_type(const ProgType *types, int t, int64_t whole)
{
    return types[t].block > 1 && whole < OPTC_LEAST_CODED ? (int)T_F32 : t;
}

/* Bytes of n values of a tensor with `whole` elements; block codes are padded to whole blocks, and
 * scales follow. */
OPTC_COUNT int64_t stored_bytes(const ProgType *types, int t, int64_t n, int64_t whole)
{
    ProgType x = types[stored_type(types, t, whole)];
    return x.block == 1
               ? n * x.bytes
               : (n + x.block - 1) / x.block * (x.block * x.bytes + (int64_t)sizeof(float));
}

/* every(k, { offset = o }): steps t with t % every == offset */
typedef struct Period { int every, offset; } Period;
/* every(k, { stagger = true }): each tensor or block has a slot below `every` and runs at steps
 * with count % every == slot, where count = (t + ahead) / of. first: all of them run at count 1.
 * every 0: not staggered. */
typedef struct Stagger { int every, of, ahead, first; } Stagger;
typedef struct ProgHyper { const char *name; double def, lo, hi; bool lo_open, hi_open; } ProgHyper;

typedef struct ProgArray {
    MemKind kind;
    Dom dom, from;                 /* dom: of the values; partials: folded to dom, from `from` */
    StageKind by;                  /* partials: the stage kind that folds them; its units determine
                                    * their layout */
    int type;                      /* number of a storage type */
    const char *name;
    bool copies_p; double value;   /* states: the initial value */
    /* states: 0, or 1 + the number of the hyperparameter that is the initial value (normal: that is
     * the seed) */
    int hyper;
    bool report;                   /* states: written for the caller and never read; not needed to
                                    * resume a run */
    bool follows_p;                /* states: optc_params_changed sets it to its initial value
                                    * again */
    unsigned held_by;              /* states, temporaries, partials: bits, the variants whose
                                    * tensors have it */
    bool eye;                      /* states over two equal axes: the initial value on the diagonal,
                                    * 0 elsewhere */
    bool lower;                    /* states over two equal axes: all values right of the diagonal
                                    * are 0, and must be */
    Stagger slots;                 /* every != 0: holds the slots of tensors or blocks, set at bind;
                                    * not in the spec */
    int ring;                      /* states: 0, or 1 + its number in a ring of adjacent arrays;
                                    * stages select by t */
    bool kernel;                   /* states of tensors: nkernel, set at bind and never written;
                                    * hidden from callers */
    int normal;                    /* states: 0, or 1 + the stream of the draws that are the initial
                                    * values (step 0) */
} ProgArray;

/* ---- kernels of matrix calls: gen/abi/kernels.def ---- */
typedef enum {
#define SECTION(ID, ...) SECTION_##ID,
#include "gen/abi/kernels.def"
    NSECTION
} KernelSection;
typedef enum {
#define PROGRAM(ID) PROGRAM_##ID,
#include "gen/abi/kernels.def"
    NKERNELPROGRAM
} KernelProgram;
typedef enum {
#define KERNEL(ID, ...) KERNEL_##ID,
#include "gen/abi/kernels.def"
    NCALLKERNEL
} CallKernel;
typedef enum { /* bits: kernels that a rule with such a call needs */
               FOR_PRODUCTS = 0,
               FOR_ANY = 1,
               FOR_ROOT = 2,
               FOR_PANEL = 4,
               FOR_QR = 8,
               FOR_EIGEN = 16,
               FOR_SORT = 32,
               FOR_TAKE = 64
} KernelSet;
typedef enum { GRID_ONE, GRID_VALUES, GRID_ROWS, GRID_COLS, GRID_TILES, GRID_TRIANGLE } KernelGrid;
typedef enum { FAILED_SKIP, FAILED_RUN, FAILED_FLAG, FAILED_LIMIT } KernelFailed;
/* name, section: [0] for calls with f32 operands, [1] for f64 */
typedef struct KernelInfo {
    KernelProgram program;
    unsigned sets;
    KernelGrid grid;
    int tile;
    KernelFailed failed;
    const char *name[2];
    KernelSection section[2];
} KernelInfo;
static const KernelInfo kernel_info[NCALLKERNEL] __attribute__((unused)) = {
#define KERNEL(ID, program, sets, grid, tile, failed, f32, f32_in, f64, f64_in) \
    {PROGRAM_##program, \
     sets, \
     GRID_##grid, \
     tile, \
     FAILED_##failed, \
     {f32, f64}, \
     {SECTION_##f32_in, SECTION_##f64_in}},
#include "gen/abi/kernels.def"
};

/* ---- products: gen/abi/products.def ---- */
typedef enum {
#define PRODUCT(ID, ...) PRODUCT_##ID,
#include "gen/abi/products.def"
    NPRODUCT
} Product;
typedef struct ProductInfo {
    const char *name;
    Type gpu, cpu;
    CallKernel mm, over, mirror, symmetric;
    const char *what;
} ProductInfo;
static const ProductInfo product_info[NPRODUCT] __attribute__((unused)) = {
#define PRODUCT(ID, name, gpu, cpu, cuda, compute, mm, over, mirror, symmetric, what) \
    {name, gpu, cpu, KERNEL_##mm, KERNEL_##over, KERNEL_##mirror, KERNEL_##symmetric, what},
#include "gen/abi/products.def"
};

/* The product precision for operands stored as type t on a GPU: p if it has that type, else the
 * first that has it;
 * NPRODUCT: none. */
OPTC_COUNT Product product_of_type(Product p, int t)
{
    int i = 0;
    if ((int)product_info[p].gpu == t)
        return p;
    while (i < NPRODUCT && (int)product_info[i].gpu != t)
        i++;
    return (Product)i;
}

/* The GPU kernels that a rule's calls need. sets: bits of KernelSet, 0 for a rule without calls;
 * products: a bit per Product; f64: the operands of its factors are f64. */
typedef struct CallNeeds { unsigned sets, products; bool f64; } CallNeeds;

/* the mm of some row of products.def */
OPTC_COUNT bool kernel_multiplies(CallKernel k)
{
    for (int i = 0; i < NPRODUCT; i++)
        if (product_info[i].mm == k)
            return true;
    return false;
}
/* one of `symmetric` and the two after it */
OPTC_COUNT bool kernel_of_halves(const ProductInfo *p, CallKernel k)
{
    return p->symmetric != p->mm && (int)k >= (int)p->symmetric && (int)k < (int)p->symmetric + 3;
}
/* products.def names it for the rule's products */
OPTC_COUNT bool kernel_of_products(CallKernel k, CallNeeds n)
{
    for (int i = 0; i < NPRODUCT && n.sets; i++) {
        const ProductInfo *p = &product_info[i];
        if (n.products >> i & 1 &&
            (k == p->mm || k == p->over || k == p->mirror || kernel_of_halves(p, k)))
            return true;
    }
    return false;
}

/* NULL: the rule does not need it */
OPTC_COUNT const char *call_kernel_name(CallKernel k, CallNeeds n)
{
    const KernelInfo *x = &kernel_info[k];
    return kernel_of_products(k, n) ? x->name[0] : x->sets & n.sets ? x->name[n.f64] : NULL;
}

typedef enum {
    TRANS_A = 1,           /* the first operand is transposed */
    TRANS_B = 2,           /* the second operand is transposed */
    SYMMETRIC = 4,         /* the result is symmetric: its lower triangle determines it */
    LOWER = 8,             /* no stage reads the upper triangle of the result */
    BLOCKED = 16,          /* computed block by block: elements inside the block, and the block's
                            * own other values */
    FLOORED = 32,          /* POWER: b holds the floor of the eigenvalues, one value per matrix */
    KEEP_LAST = 64,        /* factors: c is the result if the factor fails */
    FROM_RIGHT = 128,      /* SOLVE: X T = B instead of T X = B */
    OF_COLS = 256,         /* TAKE: columns instead of rows */
    EXACT = 512,           /* the result is stored in f64 */
    IN_F32 = 1024,         /* MM: computed in f32, and not in the rule's precision */
    IN_TF32 = 2048,        /* MM: computed in tf32 */
    LOWER_A = 4096,        /* MM: the first operand, before it is transposed, is 0 above its
                            * diagonal */
    LOWER_B = 8192,        /* MM: the second operand is */
    WITH_VALUES = 16384,   /* EIGH: the rule uses the eigenvalues, too */
    IN_F64 = 32768,        /* MM: computed in f64; operands and result are stored in f64 */
    OWN_PRECISION = IN_F32 | IN_TF32 | IN_F64
} ProductFlag;

/* The precision of one product: its own, else the rule's. */
OPTC_COUNT Product product_precision(Product of_rule, unsigned flags)
{
    return flags & IN_F64    ? PRODUCT_F64
           : flags & IN_TF32 ? PRODUCT_TF32
           : flags & IN_F32  ? PRODUCT_F32
                             : of_rule;
}
/* Single products of a rule may be in f64. In f32 and tf32, too, if the rule's operands are stored
 * in f32. */
OPTC_COUNT bool product_mixes(Product of_rule) { return product_info[of_rule].gpu == T_F32; }
/* ---- callees: gen/abi/callees.def ---- */
typedef enum {
#define CALLEE(ID, ...) CALL_##ID,
#include "gen/abi/callees.def"
    NCALLEE
} Callee;
typedef enum { CALLEE_PRODUCT, CALLEE_FACTOR, CALLEE_ORDER } CalleeKind;
typedef enum { EXPONENT = 1 } CalleeTrait;
typedef enum {
    FITS_PRODUCT, FITS_SQUARE, FITS_TALL, FITS_VECTORS, FITS_SOLUTION, FITS_LINE, FITS_TAKEN
} CalleeFits;
typedef struct CalleeFacts {
    const char *name;
    CalleeKind kind;
    unsigned flags, traits;
    const char *values;
    CalleeFits fits;
    const char *what, *measured;
} CalleeFacts;
static const CalleeFacts callee_facts[NCALLEE] __attribute__((unused)) = {
#define CALLEE(ID, name, arity, form, bound, kind, flags, traits, values, fits, flops, cpu, what, \
               measured) \
    {name, CALLEE_##kind, flags, traits, #values, FITS_##fits, what, measured},
#include "gen/abi/callees.def"
};

/* a function of eigenvalues: the column `values` is not NONE */
OPTC_COUNT bool callee_spectral(Callee c) { return callee_facts[c].values[0] != 'N'; }

OPTC_COUNT double callee_flops(Callee c, double m, double n)      /* for one matrix of m x n */
{
    switch (c) {
#define CALLEE(ID, name, arity, form, bound, kind, flags, traits, values, fits, flops, ...) \
    case CALL_##ID: return flops;
#include "gen/abi/callees.def"
    default: return 0;
    }
}

/* The domains of a factor's operand and result fit its callee. Most take a square matrix and return
 * the same shape. */
OPTC_COUNT bool factor_fits(Callee c, unsigned flags, Dom a, Dom out)
{
    const Axis *of = dom_info[a].axis, *to = dom_info[out].axis;
    bool square = dom_square(a) && of[0] == of[1];
    switch (callee_facts[c].fits) {
    case FITS_TALL: return a == out && dom_square(a) && (square || of[1] == AXIS_RANK);
    case FITS_VECTORS:
        return square && dom_info[out].scope == dom_info[a].scope && to[0] == of[0] &&
               (a == out || to[1] == AXIS_RANK);
    case FITS_SOLUTION:
        return square && !dom_wide(out) && dom_matrix(out, (flags & FROM_RIGHT) != 0).down == of[0];
    default: return a == out && square;
    }
}

/* SORT: the result has all indices, or as many as the rank axis is long. */
OPTC_COUNT bool sort_fits(unsigned flags, Dom a, Dom out)
{
    return !dom_wide(a) && !dom_square(a) && (a == out || (out == RANK && !(flags & BLOCKED)));
}

/* TAKE: `a` and the result differ at most in the axis that is taken along; the index varies along
 * the result's. */
OPTC_COUNT bool take_fits(unsigned flags, Dom a, Dom out)
{
    const DomInfo *x = &dom_info[a], *y = &dom_info[out];
    bool blocked = (flags & BLOCKED) != 0, both = dom_square(a);
    if (dom_wide(a) || dom_wide(out) || both != dom_square(out) || a == ELEM_T || out == ELEM_T)
        return false;
    if ((a != ELEM && dom_of_block(a) != blocked) || (out != ELEM && dom_of_block(out) != blocked))
        return false;
    int same = flags & OF_COLS ? 0 : 1;
    return !both || x->axis[same] == y->axis[same];
}

/* One call, computed for each matrix of the stage's tensors. alpha, beta and diagonal are
 * constants: what depends on a hyperparameter is computed in an element pass or read from an array.
 *   MM     out = alpha * a b + beta * c + diagonal * I; diagonal: 0 unless the product is SYMMETRIC
 *   factors  out = f(a). If the factor fails: out = c, or NaN if there is no c
 *   POWER  out = a^alpha
 *   EIGH   the columns of out are eigenvectors of a, as many as out has columns, largest eigenvalue
 *          first. The first of each column's largest entries is positive
 *   SOLVE  T out = b, T being the lower triangle of a, transposed with TRANS_A. FROM_RIGHT: out T =
 *          b
 *   SORT   out holds indices into a, from 0, largest value first; equal values keep their order,
 *          NaN comes last. A shorter out holds the first of them
 *   TAKE   row i of out is row b[i] of a; OF_COLS: columns. An index out of range gives NaN. out
 *          may have more or fewer rows (columns) than a */
typedef struct ProgCall {
    Callee callee;
    unsigned flags;
    int a, b, c, out;              /* arrays; b, c: -1, none; c: may be `out` itself */
    double alpha, beta;            /* POWER: the exponent, call_low */
    double diagonal;
} ProgCall;

typedef struct ProgStage {
    StageKind kind;
    int variant;                   /* 0 for group stages, which belong to all variants */
    int time;                      /* number of element passes before it: successive passes
                                    * alternate in direction */
    int fn;                        /* number of its function; equal stages share one */
    LaunchForm form;
    const int *reads; int nreads;          /* arrays */
    const int *writes; int nwrites;
    const char *kernel;            /* the name of its function on a GPU */
    const char *name, *where;      /* for messages: "map", "adamw.lua:12" or "" */
    const ProgCall *call;          /* kind CALL, whose fn is -1; else NULL */
    /* not NULL: other stages share its function, which takes these numbers as an argument:
     * MOST_SHARED array numbers (reads, then writes), and the stage's phase */
    const int *at;
    /* 0, or a bit per array of slots: the stage changes nothing for tensors that none of these
     * slots schedules */
    unsigned stagger;
    /* names of the values in `reads`, then in `writes`: a temporary holds several, one after
     * another. NULL in packages */
    const char *const *value;
} ProgStage;

/* EXCHANGE: only in the derived programs of sharded bindings (runtime/core/shard) */
typedef enum { ACT_ADVANCE_T, ACT_LAUNCH, ACT_EXCHANGE } ActKind;
/* stage: its number in Program.stage. EXCHANGE: the exchange */
typedef struct ProgAction { ActKind kind; int stage; } ProgAction;

typedef struct ProgPhase { const ProgAction *action; int naction; } ProgPhase;
/* phase: 1 << nperiod of them. shares: 0, or 1 + the number of the entry whose values of all
 * tensors it computes for other bindings (gen/ir/shared_reductions.c) */
typedef struct ProgEntry { const char *name; const ProgPhase *phase; int shares; } ProgEntry;

/* An entry that one training step runs after a fresh gradient, at steps with step % every ==
 * offset. */
typedef struct ProgGradient { const char *entry; Period at; } ProgGradient;

typedef struct Program {
    const char *name;
    const ProgType *type; int ntype;
    const ProgHyper *hyper; int nhyper;
    const ProgArray *array; int narray;    /* 0 is p, 1 is g */
    const ProgStage *stage; int nstage;    /* in the order of their functions */
    int nfn;
    const ProgEntry *entry; int nentry;
    const Period *period; int nperiod;        /* bits of a phase's number, by period */
    /* in order, "step" last; none: "step" alone */
    const ProgGradient *gradient; int ngradient;
    const Variant *variant; int nvariant;
    int p, g;                              /* storage types */
    bool needs_t;                          /* stages read the step number, so the device needs it */
    const char *advance_t;                 /* the kernel that increments t */
    Product product;                       /* the precision of its products, except those with
                                            * OWN_PRECISION */
    int rank;                              /* the largest rank (directions of a tensor); 0: the rule
                                            * has no such axis */
    RankShare share;                       /* of the rank axis; share 0: its length is `rank` */
    int block;                             /* the most rows and columns of a block; 0: the rule has
                                            * no blocks */
    /* bits: the variants with random draws, stochastic rounding or dithers per element, which
     * depend on the element's number in the whole tensor */
    unsigned draws;
    /* the spec's name, its wrappers and its options as text: the same in the library and in
     * packages (checkpoints) */
    const char *spec, *with, *options;
} Program;

/* POWER: a lower bound of eigenvalue / norm of the matrix, from the spec. It determines the number
 * of iterations. */
#define USUAL_LOW 1e-10
OPTC_COUNT double call_low(const ProgCall *c) { return c->beta; }

OPTC_COUNT bool stage_of_kind(const ProgStage *s, CalleeKind k)
{
    return s->kind == S_CALL && callee_facts[s->call->callee].kind == k;
}
/* A stage over the blocks of matrices, not over the matrices. */
OPTC_COUNT bool stage_of_blocks(const ProgStage *s)
{
    return s->call ? (s->call->flags & BLOCKED) != 0 : dom_of_block(stage_info[s->kind].dom);
}

OPTC_COUNT int program_phases(const Program *p) { return 1 << p->nperiod; }

OPTC_COUNT int program_phase(const Program *p, int64_t t)         /* of step t */
{
    int phase = 0;
    for (int i = 0; i < p->nperiod; i++)
        phase |= (t % p->period[i].every == p->period[i].offset) << i;
    return phase;
}

/* The i-th entry of training step t; t 0: of the list for all steps. NULL: there are no more. */
OPTC_COUNT const char *program_gradient(const Program *p, int64_t t, int i)
{
    for (int k = 0; k < p->ngradient; k++)
        if ((!t || t % p->gradient[k].at.every == p->gradient[k].at.offset) && !i--)
            return p->gradient[k].entry;
    return p->ngradient || i ? NULL : "step";
}

enum { MOST_SLOTS = 8 };                                         /* arrays of slots in a program */

/* the slot that runs at step t; -1: all of them */
OPTC_COUNT int64_t stagger_slot(Stagger s, int64_t t)
{
    int64_t count = (t + s.ahead) / s.of;
    return s.first && count == 1 ? -1 : count % s.every;
}

/* The entry that computes values of this level of entry e for other bindings; -1: there is none. */
OPTC_COUNT int program_shares(const Program *p, int e, int level)
{
    for (int i = 0; i < p->nentry; i++)
        if (p->entry[i].shares == e + 1 && !level--)
            return i;
    return -1;
}

/* The entry whose tensors take part in entry e. */
OPTC_COUNT int program_base(const Program *p, int e)
{
    return p->entry[e].shares ? p->entry[e].shares - 1 : e;
}

/* Values of all tensors span several bindings. */
OPTC_COUNT bool program_shared(const Program *p)
{
    bool any = false;
    for (int i = 0; i < p->nentry; i++)
        any = any || p->entry[i].shares;
    return any;
}

/* The first stage with this function, or NULL. */
OPTC_COUNT const ProgStage *program_stage(const Program *p, int fn)
{
    for (int i = 0; i < p->nstage; i++)
        if (p->stage[i].fn == fn)
            return &p->stage[i];
    return NULL;
}

OPTC_COUNT bool program_calls(const Program *p)
{
    for (int i = 0; i < p->nstage; i++)
        if (p->stage[i].kind == S_CALL)
            return true;
    return false;
}

OPTC_COUNT int64_t array_length(const ProgArray *m, Shape piece, Shape whole, int64_t ntensors)
{
    int64_t n = 0;
    if (m->kind != MEM_PART)
        return dom_len(m->dom, piece);
    if (!dom_of_block(m->from) || !piece.block)
        return count_parts(m->from, m->dom, m->by, parts_shape(m->dom, piece, whole), ntensors);
    for (int k = 0; k < BLOCK_SIZES; k++)
        n += count_parts(m->from, m->dom, m->by, block_size(piece, k).shape, ntensors);
    return n;
}
#endif
