/* Sharded bindings: one model whose tensors are cut into pieces, one per rank. runtime/SHARDING.md describes the
 * method.
 *
 * The binding runs a Program that is derived from the rule's. Each variant is divided into roles, and each role is a
 * variant of the derived program. A tensor has one entry of optc_binding.tensor per role that this rank plays for it:
 *
 *   BOUND   the piece as the caller bound it. Runs stages over pieces, and values per tensor, which all ranks compute
 *   PART    the piece ahead of its first whole segment, or from there on: folds over pieces. Memory of BOUND
 *   GHOST   one segment of the whole tensor that is cut: a copy of its operands, to compute its partials
 *   OWNED   the whole tensor on its owner's rank: stages that need whole matrices
 *   WHOLE   the whole tensor on its owner's rank: all stages. For cuts whose pieces are no ranges of elements, and for
 *           stacks of matrices
 *   IDLE    the piece of a tensor that is stepped as WHOLE
 *
 * Exchanges (actions of the derived program) move values between roles of different ranks. */
#ifndef OPTC_SHARD_H
#define OPTC_SHARD_H
#include "runtime/core/api/core.h"

typedef enum { ROLE_BOUND, ROLE_PART, ROLE_GHOST, ROLE_OWNED, ROLE_WHOLE, ROLE_IDLE, NROLE } Role;

/* How a tensor is cut. All ranks have the same table. Arrays are by rank. */
typedef struct Cut {
    int rank;                          /* dimensions */
    const int64_t *whole;              /* the whole tensor's dimensions */
    const int64_t **box;               /* the piece: its offset along every dimension, then its lengths */
    int64_t *first, *end;              /* the piece as a range of elements, if `ranges` */
    bool *primary;                     /* the piece is not empty, and no lower rank has the same */
    bool ranges;                       /* every piece is one range of the whole's elements in row-major order */
    bool replicated;                   /* every rank has the whole tensor, and there are several ranks */
    bool as_whole;                     /* roles WHOLE and IDLE */
    bool slices;                       /* every piece is a number of whole matrices: each rank owns its own */
    int owner;                         /* rank of OWNED or WHOLE; -1: none */
    int owned, ghost, part[2];         /* this rank's entries; -1: none */
} Cut;

typedef enum {
    ITEM_GHOST,                        /* elements of pieces to the ghosts of cut segments */
    ITEM_TO_OWNER,                     /* elements of pieces to the owner */
    ITEM_FROM_OWNER,                   /* elements to the pieces; other values to all ranks */
    ITEM_PARTIALS,                     /* each segment's partials to all ranks */
    ITEM_TENSOR_PARTIALS               /* partials of folds over tensors, from each tensor's owner to all ranks */
} ItemKind;
/* variant: of the rule; as_whole: its tensors with roles WHOLE and IDLE, or the others */
typedef struct Item { ItemKind kind; int array, variant; bool as_whole; } Item;

/* `count` runs of `bytes` bytes, `stride` bytes apart, from byte `at` of an entry's array on */
typedef struct Move { int entry, array; int64_t at, bytes, count, stride; } Move;
typedef struct MoveList { Move *move; int n, room; } MoveList;

/* send, recv: in the order of the ranks (all_to_all). share: what this rank passes to all others (all_gather);
 * shared: what it receives, in the order of the ranks; shared_at: by rank, its first move */
typedef struct Exchange {
    Item *item; int nitem;
    MoveList send, recv, share, shared;
    size_t *send_bytes, *recv_bytes;   /* by rank */
    int *shared_at;
    size_t share_bytes;                /* of one rank, the largest of all */
    bool pairs;                        /* some rank sends something by all_to_all */
} Exchange;

typedef struct Shards {
    optc_comm comm;
    Cut *cut;                          /* by bound tensor */
    Program program;
    int role[MOST_VARIANTS][NROLE];    /* the derived program's variants; -1: none */
    unsigned char *place;              /* by stage of the rule: Place (shard_place.c) */
    double *load, largest;             /* by rank: the work of the tensors that it owns; of the largest tensor */
    bool *owner_writes;                /* by variant of the rule, then array: the owner writes it */
    Exchange *exchange; int nexchange, most_exchange;
    int params;                        /* the exchange that sends parameters to owners when states copy them; -1 */
    int64_t at;                        /* offset of this memory in the binding's block */
    int64_t send_at, recv_at, bytes;   /* relative to `at`: buffers; all bytes */
    int64_t head;                      /* bytes ahead of the buffer to send, for gpu_agree.c; 0 on a CPU */
    int64_t *copy_at;                  /* by extra entry, then p, g and inputs: offset of its copy, -1: none */
    bool plan;                         /* only a plan: host memory, no device */
    bool agrees;                       /* all ranks have got here: they agree on how binding ends */
    bool failed;                       /* an exchange failed: ranks may have different states */
    optc_status status;                /* of the run */
    unsigned char *mask;               /* participation of this rank, then of all */
} Shards;

/* ---- shard_cut.c ---- */
CORE optc_status cuts_make(optc_binding *b, optc_status so_far);
/* the number of runs of a piece in the whole tensor, and each run's elements */
CORE int64_t cut_runs(const Cut *c, int rank, int64_t *length);
/* adds moves over the whole tensor's elements that are the piece of a rank */
CORE bool cut_moves(optc_binding *b, const Cut *c, int rank, const Move *of, int size, MoveList *to);
CORE bool move_add(optc_binding *b, MoveList *to, const Move *m);

/* ---- shard_owner.c ---- */
/* a binding of whole tensors that is never run: costs and stagger slots as in one process */
CORE optc_status model_make(const optc_binding *b, optc_binding **out);
CORE void model_free(optc_binding *m);
CORE optc_status owners_deal(optc_binding *b, const optc_binding *model);
CORE int step_entry(const Program *p);
CORE void phase_weights(const Program *p, double *weight);        /* by phase: its share of all steps */

/* ---- shard_place.c ---- */
typedef enum { AT_PIECES, AT_ALL, AT_OWNER } Place;
CORE optc_status places_make(optc_binding *b);
CORE bool variant_folds(const optc_binding *b, int variant);      /* has folds over pieces */
CORE bool variant_owned(const optc_binding *b, int variant);      /* has stages at the owner */
CORE bool variant_slices(const optc_binding *b, int variant);     /* pieces use values per matrix */
CORE bool variant_apart(const optc_binding *b, int variant);      /* the owner's stages see one matrix at a time */
CORE bool stage_folds(const Program *p, const ProgStage *s);
CORE bool owner_writes(const optc_binding *b, int variant, int array);
/* a role's stages use the array. ROLE_BOUND includes PART */
CORE bool role_uses(const optc_binding *b, int variant, Role role, int array);
CORE bool role_holds(const optc_binding *b, int variant, Role role, int array);       /* and has its own memory */

/* ---- shard_program.c ---- */
CORE optc_status shard_program_make(optc_binding *b);

/* ---- shard_entries.c ---- */
CORE optc_status entries_make(optc_binding *b);
/* the segment that begins in a rank's piece and ends in another; false: there is none, or another rank computes it */
CORE bool ghost_range(const Cut *c, int rank, int64_t whole, int64_t *first, int64_t *end);
CORE int rule_variant(const optc_binding *b, int entry);

/* ---- exchange.c ---- */
CORE optc_status exchanges_make(optc_binding *b);
CORE optc_status exchange_failed(const optc_binding *b);
#endif
