/* A Program: what the runtime knows of a rule. Plain constant data, made from a plan (program_make.c) and kept in memory by
 * the library, or printed as C tables into a package; the same sources (runtime/core) run either. C11 and C++17.
 *
 *   arrays    by number, as a plan's Mems: everything a stage reads or writes. A tensor (or group) brings a table of
 *             pointers by that number
 *   stages    by the number of their function, which equal ones have in common; what each reads and writes says which gradients must be set, what moves,
 *             and how long a temporary is needed
 *   entries   of an entry every phase (a combination of the periods that divide t) is a list of actions: t moves on, a
 *             stage is launched over all its tensors, an array is copied over another
 *   variants  the ways through the rule: a tensor takes the one whose tests it passes */
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
typedef struct ProgType { const char *name; int bytes, block; } ProgType;

/* What values of a tensor are stored in: small tensors keep f32 in place of block codes. */
OPTC_COUNT int stored_type(const ProgType *types, int t, int64_t whole)
{
    return types[t].block > 1 && whole < OPTC_LEAST_CODED ? (int)T_F32 : t;
}

/* Bytes of n values of a tensor with `whole` elements; block codes are padded to whole blocks, and scales follow. */
OPTC_COUNT int64_t stored_bytes(const ProgType *types, int t, int64_t n, int64_t whole)
{
    ProgType x = types[stored_type(types, t, whole)];
    return x.block == 1 ? n * x.bytes : (n + x.block - 1) / x.block * (x.block * x.bytes + (int64_t)sizeof(float));
}

/* every(k, { offset = o }): steps that leave `offset` when divided by `every` */
typedef struct Period { int every, offset; } Period;
/* every(k, { stagger = true }): each owner has a slot below `every`, and its turn where the count of steps leaves that
 * when divided. The count is a clock's own, (t + ahead) / of; first: at 1 it is everybody's turn. every 0: none */
typedef struct Stagger { int every, of, ahead, first; } Stagger;
typedef struct ProgHyper { const char *name; double def, lo, hi; bool lo_open, hi_open; } ProgHyper;

typedef struct ProgArray {
    MemKind kind;
    Dom dom, from;                 /* partials: folded to, folded from */
    StageKind by;                  /* partials: the kind of stage that folds, by whose units they lie */
    int type;                      /* number of a storage type */
    const char *name;
    bool copies_p; double value;   /* states: what they start as */
    int hyper;                     /* states: 0, or 1 + the number of the hyperparameter they start as */
    bool report;                   /* states: a value for the reader, nothing a run goes on from */
    unsigned held_by;                 /* states, temporaries, partials: bits, the variants whose tensors have it */
    bool eye; /* states over two equal axes: `value` or the hyperparameter on the diagonal, 0 elsewhere */
    Stagger slots;                 /* no state of the rule's but the slot of each tensor or block, set when binding */
} ProgArray;

/* ---- kernels of matrix calls: gen/abi/kernels.def ---- */
typedef enum {
#define SECTION(ID, ...) SECTION_##ID,
#include "gen/abi/kernels.def"
    NSECTION
} KernelSection;
typedef enum {
#define KERNEL(ID, ...) KERNEL_##ID,
#include "gen/abi/kernels.def"
    NCALLKERNEL
} CallKernel;
typedef enum {                     /* bits: what a rule with such a call needs */
    FOR_PRODUCTS = 0, FOR_ANY = 1, FOR_ROOT = 2, FOR_PANEL = 4, FOR_QR = 8, FOR_EIGEN = 16, FOR_SORT = 32, FOR_TAKE = 64
} KernelSet;
typedef enum { GRID_ONE, GRID_VALUES, GRID_ROWS, GRID_COLS, GRID_TILES, GRID_TRIANGLE, GRID_PAIRS } KernelGrid;
typedef enum { FAILED_SKIP, FAILED_RUN, FAILED_FLAG, FAILED_LIMIT } KernelFailed;
/* name, section: [0] of calls whose operands are f32, [1] f64 */
typedef struct KernelInfo {
    unsigned sets;
    KernelGrid grid;
    int tile;
    KernelFailed failed;
    const char *name[2];
    KernelSection section[2];
} KernelInfo;
static const KernelInfo kernel_info[NCALLKERNEL] __attribute__((unused)) = {
#define KERNEL(ID, sets, grid, tile, failed, f32, f32_in, f64, f64_in) \
    {sets, GRID_##grid, tile, FAILED_##failed, {f32, f64}, {SECTION_##f32_in, SECTION_##f64_in}},
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
    CallKernel mm, over, mirror;
    const char *what;
} ProductInfo;
static const ProductInfo product_info[NPRODUCT] __attribute__((unused)) = {
#define PRODUCT(ID, name, gpu, cpu, cuda, compute, mm, over, mirror, what) \
    {name, gpu, cpu, KERNEL_##mm, KERNEL_##over, KERNEL_##mirror, what},
#include "gen/abi/products.def"
};

/* The precision of products in `p` whose operands are kept in t on a GPU; NPRODUCT: no product has such operands. */
OPTC_COUNT Product product_of_type(Product p, int t)
{
    int i = 0;
    if ((int)product_info[p].gpu == t)
        return p;
    while (i < NPRODUCT && (int)product_info[i].gpu != t)
        i++;
    return (Product)i;
}

/* The GPU kernels that a rule's calls need. sets: bits of KernelSet, 0 for a rule without calls; f64: the operands of
 * its factors are f64. */
typedef struct CallNeeds { unsigned sets; Product product; bool f64; } CallNeeds;

OPTC_COUNT bool kernel_of_products(CallKernel k, CallNeeds n)      /* it is for the rule's own products */
{
    const ProductInfo *p = &product_info[n.product];
    return n.sets && (k == p->mm || k == p->over || k == p->mirror);
}

OPTC_COUNT const char *call_kernel_name(CallKernel k, CallNeeds n)      /* NULL: the rule does not need it */
{
    const KernelInfo *x = &kernel_info[k];
    return kernel_of_products(k, n) ? x->name[0] : x->sets & n.sets ? x->name[n.f64] : NULL;
}

/* first and second operand turned; the result is symmetric, and its lower triangle says all; nothing reads the upper;
 * block by block: of elements what lies in the block, of other values the block's own. Of factors: b is what powers lift
 * eigenvalues to at least, one value a matrix; c is the result where there is none of its own. SOLVE: the triangle stands
 * behind what is solved for. TAKE: columns, not rows. EXACT: what comes of it is kept in f64 */
typedef enum {
    TRANS_A = 1, TRANS_B = 2, SYMMETRIC = 4, LOWER = 8, BLOCKED = 16, FLOORED = 32, KEEP_LAST = 64, FROM_RIGHT = 128,
    OF_COLS = 256, EXACT = 512
} ProductFlag;
/* ---- callees: gen/abi/callees.def ---- */
typedef enum {
#define CALLEE(ID, ...) CALL_##ID,
#include "gen/abi/callees.def"
    NCALLEE
} Callee;
typedef enum { CALLEE_PRODUCT, CALLEE_FACTOR, CALLEE_ORDER } CalleeKind;
typedef enum { EXPONENT = 1, SPECTRAL = 2 } CalleeTrait;
typedef enum { FITS_PRODUCT, FITS_SQUARE, FITS_TALL, FITS_VECTORS, FITS_SOLUTION, FITS_LINE, FITS_TAKEN } CalleeFits;
typedef struct CalleeFacts {
    const char *name;
    CalleeKind kind;
    unsigned flags, traits;
    CalleeFits fits;
    unsigned kernels;
    const char *what, *measured;
} CalleeFacts;
static const CalleeFacts callee_facts[NCALLEE] __attribute__((unused)) = {
#define CALLEE(ID, name, arity, form, bound, kind, flags, traits, fits, flops, kernels, cpu, what, measured) \
    {name, CALLEE_##kind, flags, traits, FITS_##fits, kernels, what, measured},
#include "gen/abi/callees.def"
};

OPTC_COUNT double callee_flops(Callee c, double m, double n)      /* of one matrix */
{
    switch (c) {
#define CALLEE(ID, name, arity, form, bound, kind, flags, traits, fits, flops, ...) case CALL_##ID: return flops;
#include "gen/abi/callees.def"
    default: return 0;
    }
}

/* The matrix of a factor, and the result: a square, and mostly of the same shape. */
OPTC_COUNT bool factor_fits(Callee c, unsigned flags, Dom a, Dom out)
{
    const Axis *of = dom_info[a].axis, *to = dom_info[out].axis;
    bool square = dom_square(a) && of[0] == of[1];
    switch (callee_facts[c].fits) {
    case FITS_TALL: return a == out && dom_square(a) && (square || of[1] == AXIS_RANK);
    case FITS_VECTORS:
        return square && dom_info[out].scope == dom_info[a].scope && to[0] == of[0] && (a == out || to[1] == AXIS_RANK);
    case FITS_SOLUTION: return square && !dom_wide(out) && dom_matrix(out, (flags & FROM_RIGHT) != 0).down == of[0];
    default: return a == out && square;
    }
}

/* alpha * a b + beta * c, over each matrix of the stage's tensors. Of factors a, to alpha if it is a power, or c where
 * that cannot be had; without c it is NaN then. What depends on a hyperparameter is a pass, or an array.
 *   EIGH   columns of out are eigenvectors of a, as many as out has, largest values first; of each the first of its
 *          largest entries is positive
 *   SOLVE  out is what a's lower triangle, or that turned (TRANS_A), takes to b; FROM_RIGHT: what it is behind
 *   SORT   out are places in a, from 0, of its largest value first; equal ones as they stand, NaN last
 *   TAKE   row i of out is row b[i] of a; OF_COLS: column; a place that is not there gives NaN */
typedef struct ProgCall {
    Callee callee;
    unsigned flags;
    int a, b, c, out;              /* arrays; b, c: -1, none; c: may be `out` itself */
    double alpha, beta;            /* of powers: the exponent, call_low */
} ProgCall;

typedef struct ProgStage {
    StageKind kind;
    int variant;                   /* group stages belong to all and say 0 */
    int time;                      /* passes over the elements before it: they go forth and back in turn */
    int fn;                        /* number of its function; equal stages have one */
    LaunchForm form;
    const int *reads; int nreads;          /* arrays */
    const int *writes; int nwrites;
    const char *kernel;            /* what its function is called on a GPU */
    const char *name, *where;      /* for messages: "map", "adamw.lua:12" or "" */
    const ProgCall *call;          /* kind CALL, whose fn is -1; else NULL */
    /* not NULL: its function is other stages' too, and is told this: MOST_SHARED numbers of arrays, of what it reads and
     * then of what it writes, and the phase it is of */
    const int *at;
    /* 0, or bits by number among the arrays of slots: it changes nothing for who has its turn by none of them */
    unsigned stagger;
} ProgStage;

typedef enum { ACT_ADVANCE_T, ACT_LAUNCH, ACT_COPY } ActKind;
typedef struct ProgAction {
    ActKind kind;
    int stage;                     /* LAUNCH: its number in Program.stage. COPY: 0 */
    int to, from;                  /* COPY: arrays of one shape and type, over all tensors (or groups) */
} ProgAction;

typedef struct ProgPhase { const ProgAction *action; int naction; } ProgPhase;
typedef struct ProgEntry { const char *name; const ProgPhase *phase; } ProgEntry;      /* 1 << nperiod phases */

typedef struct Program {
    const char *name;
    const ProgType *type; int ntype;
    const ProgHyper *hyper; int nhyper;
    const ProgArray *array; int narray;    /* 0 is p, 1 is g */
    const ProgStage *stage; int nstage;    /* in the order of their functions */
    int nfn;
    const ProgEntry *entry; int nentry;
    const Period *period; int nperiod;        /* bits of a phase's number, by period */
    const Variant *variant; int nvariant;
    int p, g;                              /* storage types */
    bool needs_t;                          /* the step's number must be known where it runs */
    const char *advance_t;                      /* the kernel that moves t on */
    Product product;                       /* what its calls compute in */
    int rank;                              /* the most directions of a tensor; 0: the rule has no such axis */
    int block;                             /* rows and columns of a block, at most; 0: the rule has none */
} Program;

/* Of a power: the smallest share of its matrix' norm that an eigenvalue has, as far as the spec says. Iterations take
 * their number of steps from it. */
#define USUAL_LOW 1e-10
OPTC_COUNT double call_low(const ProgCall *c) { return c->beta; }

/* Powers that a GPU makes by products: A^(-1/p), no eigenvalue being lifted to a floor or too small for the iteration
 * (inverse_root.h). p, or 0: by eigenvectors. Steps of an inverse (p = 1) leave some thousand roundings behind, which f32 does
 * not show. */
OPTC_COUNT int root_by_products(double exponent, double low, unsigned flags)
{
    for (int p = 1; p <= 16 && !(flags & FLOORED); p++) {
        double off = exponent * p + 1;
        if (off < 1e-9 && off > -1e-9)
            return low >= (p == 1 && flags & EXACT ? 1e-6 : 1e-14) ? p : 0;
    }
    return 0;
}
OPTC_COUNT int call_root(const ProgCall *c) { return root_by_products(c->alpha, call_low(c), c->flags); }

/* The sets of kernels that a call takes on a GPU; root: root_by_products. */
OPTC_COUNT unsigned callee_kernels(Callee c, int root)
{
    unsigned sets = callee_facts[c].kernels;
    return !(sets & FOR_ROOT) ? sets : root ? (unsigned)FOR_ROOT : sets & ~(unsigned)FOR_ROOT;
}
OPTC_COUNT unsigned call_kernels(const ProgCall *c) { return callee_kernels(c->callee, call_root(c)); }

OPTC_COUNT bool stage_of_kind(const ProgStage *s, CalleeKind k)
{
    return s->kind == S_CALL && callee_facts[s->call->callee].kind == k;
}
OPTC_COUNT bool stage_takes(const ProgStage *s, unsigned kernels)
{
    return s->kind == S_CALL && (call_kernels(s->call) & kernels) != 0;
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

enum { MOST_SLOTS = 8 };                                         /* arrays of slots in a program */

/* whose turn it is at step t; -1: everybody's */
OPTC_COUNT int64_t stagger_slot(Stagger s, int64_t t)
{
    int64_t count = (t + s.ahead) / s.of;
    return s.first && count == 1 ? -1 : count % s.every;
}

OPTC_COUNT const ProgStage *program_stage(const Program *p, int fn)       /* of equal ones the first; NULL: there is none */
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
