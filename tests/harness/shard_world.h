/* A world of ranks for tests of sharded bindings: each rank is a thread that binds its pieces of a
 * list of tensors and steps them. The results are compared bit for bit with a plain binding of the
 * whole tensors. */
#ifndef OPTC_SHARD_WORLD_H
#define OPTC_SHARD_WORLD_H
#include "tests/harness/help.h"

/* How tensors are cut. Scalars are never cut: every rank has them.
 *   even       along dimension 0 into pieces of ceil(n / ranks) rows, as torch.chunk: the last are
 *              shorter or empty
 *   uneven     along dimension 0 at arbitrary rows, inside segments of reductions
 *   empty      as even among some ranks; the others, first and last ones, have no rows
 *   flat       the tensors are bound as vectors and cut at arbitrary elements
 *   cols       along dimension 1, as even; vectors along dimension 0
 *   grid       along the last two dimensions: two parts of the last one; vectors along dimension 0.
 *              Even numbers of ranks
 *   replicas   every rank has the whole tensor
 *   hsdp       two replicas of each piece: rank r has piece r % (ranks / 2)
 *   reversed   as uneven, but the last rank has the first rows
 *   mixed      each tensor has one of even, replicas, uneven, cols and reversed */
#define SHARD_CUTS(X) \
    X(even) X(uneven) X(empty) X(flat) X(cols) X(grid) X(replicas) X(hsdp) X(reversed) X(mixed)
typedef enum {
#define CUT_ID(name) CUT_##name,
    SHARD_CUTS(CUT_ID)
#undef CUT_ID
    NCUTS
} ShardCut;
extern const char *const shard_cut_name[NCUTS];

enum { WORLD_RANKS = 8, WORLD_TENSORS = 16, WORLD_GROUPS = 2, WORLD_STATES = 48 };
typedef struct WorldTensor {
    const char *name;
    TestShape shape;
    int group;                 /* groups are consecutive and start at 0 */
    int64_t split;
    const char *tags;
    bool never, pauses;        /* has no gradient; has none at step 2 */
} WorldTensor;

/* A rank's piece of a tensor, the tensor with this number in its list. */
typedef struct Piece { int64_t shape[4], offset[4], count; } Piece;
Piece shard_piece(const WorldTensor *t, int number, ShardCut cut, int rank, int ranks);
int64_t whole_count(const TestShape *s);                 /* elements */
/* of its element i in the whole tensor */
int64_t piece_place(const WorldTensor *t, const Piece *x, int64_t i);

/* A rule, its tensors and the steps to run. */
typedef struct WorldCase {
    optc_rule *rule;
    const WorldTensor *tensor; int n;
    int steps;
    /* before step i + 1 the step count is set to at[i], if that is not 0: to reach the periods of
     * rules */
    int64_t at[8];
    /* On a CPU: before every step each rank overwrites its copies of states per row and column that
     * other ranks hold, as if only the holders had loaded them */
    bool forgets;
    /* makes a rank's communication, in the rank's thread; NULL: the world's loopback */
    optc_status (*comm)(void *with, int rank, int ranks, optc_comm *out);
    void *with;
} WorldCase;
/* A list like a small transformer, for all rules. */
extern const WorldTensor world_tensors[];
extern const int world_ntensors;

/* Parameters and gradients of one rank, or of the plain binding, in the rule's types. With a GPU
 * engine the rank has a stream of its own, and the arrays' copies on the GPU are bound; gradients
 * of odd and even steps have different addresses. */
typedef struct RankData {
    Piece piece[WORLD_TENSORS];
    void *p[WORLD_TENSORS], *g[WORLD_TENSORS];
    struct RankMemory *gpu;            /* NULL: the arrays themselves are bound */
    optc_binding *binding;
} RankData;
/* p before the first step */
void rank_fill(RankData *d, const WorldCase *c, ShardCut cut, int rank, int ranks);
void rank_grads(RankData *d, const WorldCase *c, int step);
/* Binds; comm NULL: plain. The tensors keep the flags that the rule needs (without_kernels). */
optc_status rank_bind(RankData *d, const WorldCase *c, const optc_comm *comm);
/* Steps `step`, from 1. Sets gradients first, and t. Runs `perturb` first if the rule has it. */
optc_status rank_step(RankData *d, const WorldCase *c, int step);
/* copies a parameter from the GPU to p */
void rank_fetch(const RankData *d, int tensor);
void *rank_stream(const RankData *d);                    /* NULL without a GPU */
void rank_free(RankData *d, const WorldCase *c);         /* unbinds */

/* The results of a plain binding. flat: all tensors are bound as vectors, for the cut `flat`. */
typedef struct Reference Reference;
Reference *reference_run(const WorldCase *c, bool flat);
void reference_free(Reference *r);

/* Runs the case on `ranks` ranks and compares parameters, states, step counts and values of groups
 * with the reference: after the steps, and again after every other entry of the rule has run once.
 * Returns a message about the first difference, which the caller frees, or NULL. */
char *world_run(const Reference *r, ShardCut cut, int ranks);
#endif
