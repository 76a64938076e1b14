/* Sharded bindings: one model whose tensors are cut into pieces, one per rank. runtime/SHARDING.md
 * describes the method.
 *
 * The binding runs a Program that is derived from the rule's. Each variant is divided into roles,
 * and each role is a variant of the derived program. A tensor has one entry of optc_binding.tensor
 * per role that this rank plays for it:
 *
 *   BOUND   the piece as the caller bound it. Runs stages over pieces, and values per tensor, which
 *           all ranks compute
 *   PART    the piece ahead of its first whole segment, or from there on: folds over pieces. Memory
 *           of BOUND
 *   GHOST   one segment of the whole tensor that is cut: a copy of its operands, to compute its
 *           partials
 *   OWNED   the whole tensor on its owner's rank: stages that need whole matrices
 *   WHOLE   the whole tensor on its owner's rank: all stages. For cuts whose pieces are no ranges
 *           of elements, and for stacks of matrices
 *   IDLE    the piece of a tensor that is stepped as WHOLE
 *
 * Matrices that are cut between rows, of rules with folds over rows and columns (shard_rows.c),
 * have other roles:
 *
 *   ROWS         the piece as the caller bound it: elementwise stages
 *   FLAT, TILE, BAND  folds over the piece's segments, tiles or bands: ahead of its first whole
 *                     one, and from there on
 *   FLAT_GHOST …  a segment, or a row of tiles or bands, that is cut: a copy of its operands
 *   ALL          all rows, and values per tensor, on every rank
 *   COLS         a range of columns
 *
 * Exchanges (actions of the derived program) move values between roles of different ranks. */
#ifndef OPTC_SHARD_H
#define OPTC_SHARD_H
#include "runtime/core/bind/bind.h"
#include "runtime/core/shard/shards.h"

typedef enum {
    ROLE_BOUND,
    ROLE_PART,
    ROLE_GHOST,
    ROLE_OWNED,
    ROLE_WHOLE,
    ROLE_IDLE,
    ROLE_ROWS,
    ROLE_FLAT,
    ROLE_FLAT_GHOST,
    ROLE_TILE,
    ROLE_TILE_GHOST,
    ROLE_BAND,
    ROLE_BAND_GHOST,
    ROLE_ALL,
    ROLE_COLS,
    NROLE
} Role;

/* How the tensors of a variant are stepped: by pieces and an owner, by the owner alone, by rows. */
typedef enum { CLASS_PIECES, CLASS_WHOLE, CLASS_ROWS, NCUTCLASS } CutClass;
/* Elements are folded by segments, or by rows of tiles or bands. Pieces of CLASS_PIECES are folded
 * by segments. */
typedef enum { FOLD_FLAT, FOLD_TILE, FOLD_BAND, NFOLD } FoldKind;
/* Entries of a tensor. For each kind of fold: the piece ahead of its first whole segment or tile,
 * from there on, and the ghost. ALL and COLS: of CLASS_ROWS */
enum { FOLD_HEAD, FOLD_REST, FOLD_GHOST, ENTRY_ALL = 3 * NFOLD, ENTRY_COLS, NCUTENTRY };
OPTC_COUNT int fold_entry(FoldKind kind, int which) { return 3 * (int)kind + which; }
OPTC_COUNT Role fold_role(FoldKind kind, bool ghost)       /* of CLASS_ROWS */
{
    return (Role)(ROLE_FLAT + 2 * (int)kind + ghost);
}

/* How a tensor is cut. All ranks have the same table. Arrays are by rank. */
typedef struct Cut {
    int rank;                          /* dimensions */
    const int64_t *whole;              /* the whole tensor's dimensions */
    const int64_t **box;               /* the piece: its offset along every dimension, then its
                                        * lengths */
    int64_t *first, *end;              /* the piece as a range of elements, if `ranges` */
    bool *primary;                     /* the piece is not empty, and no lower rank has the same */
    bool ranges;                       /* every piece is one range of the whole's elements in
                                        * row-major order */
    bool replicated;                   /* every rank has the whole tensor, and there are several
                                        * ranks */
    CutClass how;
    bool slices;                       /* every piece is a number of whole matrices: each rank owns
                                        * its own */
    int owner;                         /* rank of OWNED or WHOLE; -1: none */
    int group;                         /* of tensors whose elements are exchanged together */
    /* this rank's entries; -1: none. The owner of CLASS_ROWS holds states per column */
    int owned, entry[NCUTENTRY];
} Cut;

typedef enum {
    ITEM_GHOST,                        /* elements of pieces to the ghosts of cut segments */
    ITEM_TO_OWNER,                     /* elements of pieces to the owner */
    ITEM_FROM_OWNER,                   /* elements to the pieces, other values to all ranks, or
                                        * (CLASS_ROWS) columns to those that finish them */
    ITEM_PARTIALS,                     /* each segment's partials to all ranks */
    ITEM_TENSOR_PARTIALS,              /* partials of folds over tensors, from each tensor's owner
                                        * to all ranks */
    ITEM_TILE_GHOST, ITEM_BAND_GHOST,  /* elements of pieces to the ghosts of cut tiles and bands */
    ITEM_ROWS,                         /* values of the piece's rows to all ranks */
    ITEM_COLS                          /* values of each rank's columns to all ranks */
} ItemKind;
/* variant: of the rule; how: its tensors of this class; group: of this group; -1: of all */
typedef struct Item { ItemKind kind; int array, variant; CutClass how; int group; } Item;

/* `count` runs of `bytes` bytes, `stride` bytes apart, from byte `at` of an entry's array on */
typedef struct Move { int entry, array; int64_t at, bytes, count, stride; } Move;
typedef struct MoveList { Move *move; int n, room; } MoveList;

/* SEND, RECV: in the order of the ranks (all_to_all). SHARE: what this rank passes to all others
 * (all_gather); SHARED: what it receives, in the order of the ranks */
enum { LIST_SEND, LIST_RECV, LIST_SHARE, LIST_SHARED, NLIST };
typedef struct Exchange {
    Item *item; int nitem;
    MoveList list[NLIST];
    size_t *send_bytes, *recv_bytes;   /* by rank */
    int *shared_at;                    /* by rank: its first move in SHARED */
    size_t share_bytes;                /* of one rank, the largest of all */
    bool pairs;                        /* some rank sends something by all_to_all */
} Exchange;
OPTC_COUNT MoveList exchange_shared(const Exchange *e, int rank)       /* what it passes to all */
{
    MoveList l = {e->list[LIST_SHARED].move + e->shared_at[rank],
                  e->shared_at[rank + 1] - e->shared_at[rank], 0};
    return l;
}

/* A section of a phase in which exchanges run beside stages (shard_overlap.c). Numbers are actions
 * of the phase.
 * operands, results: the exchange of group 0 to owners and from them, followed by those of the
 * other groups; [stages, stages_end): stages in between. Of these, up to `grouped`, stages of
 * owners run group by group, after all others. end: of the section; ends_early: results are sent
 * group by group too, else it ends ahead of them */
typedef struct Overlap {
    int phase, groups, operands, stages, grouped, stages_end, results, end;
    bool ends_early;
} Overlap;

typedef struct Shards {
    optc_comm comm;
    Cut *cut;                          /* by bound tensor */
    Program program;
    int role[MOST_VARIANTS][NROLE];    /* the derived program's variants; -1: none */
    /* by these: the role, and the rule's variant */
    Role role_of[MOST_VARIANTS * NROLE];
    int variant_of[MOST_VARIANTS * NROLE];
    unsigned char *place;              /* by stage of the rule: StagePlace (shard_place.c) */
    int *rule_stage;                   /* by stage of the derived program: the rule's */
    double *load, largest;             /* by rank: the work of the tensors that it owns; of the
                                        * largest tensor */
    bool *owner_writes;                /* by variant of the rule, then array: the owner writes it */
    int64_t range_step[MOST_VARIANTS]; /* CLASS_ROWS: ranges of columns begin at multiples of it */
    Exchange *exchange; int nexchange, most_exchange;
    int *params, nparams;              /* the exchanges that send parameters to owners when states
                                        * copy them */
    int ngroups;                       /* groups of tensors */
    Overlap *overlap; int noverlap;
    unsigned called;                   /* variants_called of the derived program */
    int64_t workspace;                 /* the least of all ranks' */
    int64_t at;                        /* offset of this memory in the binding's block */
    int64_t send_at, recv_at, bytes;   /* relative to `at`: buffers; all bytes */
    int64_t head;                      /* bytes ahead of the buffer to send, for gpu_agree.c; 0 on a
                                        * CPU */
    int64_t *copy_at;                  /* by extra entry, then p, g and inputs: offset of its copy,
                                        * -1: none */
    bool plan;                         /* only a plan: host memory, no device */
    bool agrees;                       /* all ranks have got here: they agree on how binding ends */
    bool failed;                       /* an exchange failed: ranks may have different states */
    optc_status status;                /* of the run */
    unsigned char *mask;               /* participation of this rank, then of all */
} Shards;

/* Phase m of all entries' phases. */
OPTC_COUNT const ProgPhase *phase_at(const Program *p, int m)
{
    return &p->entry[m / program_phases(p)].phase[m % program_phases(p)];
}
OPTC_COUNT bool in_list(const int *list, int n, int array)
{
    bool in = false;
    for (int i = 0; i < n && !in; i++)
        in = list[i] == array;
    return in;
}
OPTC_COUNT bool stage_uses(const ProgStage *s, int array)
{
    return in_list(s->reads, s->nreads, array) || in_list(s->writes, s->nwrites, array);
}
/* array k of a stage: of its reads, then of its writes */
OPTC_COUNT int stage_array(const ProgStage *s, int k)
{
    return k < s->nreads ? s->reads[k] : s->writes[k - s->nreads];
}
/* a stage over the tensors of this variant of the rule; NULL: the action is none */
OPTC_COUNT const ProgStage *stage_at(const Program *p, const ProgAction *a, int variant)
{
    const ProgStage *s = a->kind == ACT_LAUNCH ? &p->stage[a->stage] : NULL;
    return s && s->kind != S_GROUP && s->variant == variant ? s : NULL;
}

/* ---- shard_cut.c ---- */
CORE optc_status cuts_make(optc_binding *b, optc_status so_far);
/* the number of runs of a piece in the whole tensor, and each run's elements */
CORE int64_t cut_runs(const Cut *c, int rank, int64_t *length);
/* adds moves over the whole tensor's elements that are the piece of a rank */
CORE bool cut_moves(optc_binding *b, const Cut *c, int rank, const Move *of, int size,
                    MoveList *to);
/* the list with room for one more; NULL: no memory */
CORE void *list_room(optc_binding *b, void *list, int n, int *room, size_t size);
CORE bool move_add(optc_binding *b, MoveList *to, const Move *m);

/* ---- shard_owner.c ---- */
/* a binding of whole tensors that is never run: costs and stagger slots as in one process */
CORE optc_status model_make(const optc_binding *b, optc_binding **out);
CORE void model_free(optc_binding *m);
CORE optc_status owners_deal(optc_binding *b, const optc_binding *model);
CORE optc_status groups_make(optc_binding *b);                   /* after owners_deal: Cut.group */
CORE int step_entry(const Program *p);
/* by phase: its share of all steps */
CORE void phase_weights(const Program *p, double *weight);

/* ---- shard_place.c ---- */
typedef enum { AT_PIECES, AT_ALL, AT_OWNER } StagePlace;
CORE optc_status places_make(optc_binding *b);
CORE bool variant_folds(const optc_binding *b, int variant);      /* has folds over pieces */
CORE bool variant_owned(const optc_binding *b, int variant);      /* has stages at the owner */
CORE bool variant_slices(const optc_binding *b, int variant);     /* pieces use values per matrix */
/* the owner's stages see one matrix at a time */
CORE bool variant_apart(const optc_binding *b, int variant);
CORE bool stage_folds(const Program *p, const ProgStage *s);
CORE bool owner_writes(const optc_binding *b, int variant, int array);
/* a role's stages use the array. ROLE_BOUND includes PART; ghosts of CLASS_ROWS have no stages */
CORE bool role_uses(const optc_binding *b, int variant, Role role, int array);
/* and has its own memory */
CORE bool role_holds(const optc_binding *b, int variant, Role role, int array);

/* ---- shard_rows.c ---- */
/* its stages can run on pieces of rows */
CORE bool variant_by_rows(const optc_binding *b, int variant);
/* every piece consists of rows of one matrix */
CORE bool cut_by_rows(const optc_binding *b, int tensor);
/* where a stage of CLASS_ROWS runs */
CORE Role rows_role(const Program *p, const ProgStage *s);
/* its units that are cut need ghosts */
CORE bool stage_needs_ghost(const Program *p, const ProgStage *s);
CORE bool rows_holds(const ProgArray *m, Role role);
CORE optc_status rows_entries(optc_binding *b, int tensor);
/* the entries of a kind of fold */
CORE optc_status folds_add(optc_binding *b, int tensor, FoldKind kind);
/* bytes of its copy; 0: it has none */
CORE int64_t rows_copy(const optc_binding *b, int entry, int array);
CORE void rows_point(optc_binding *b, int tensor, int array);
/* every rank has all of the tensor */
CORE bool same_everywhere(const optc_binding *b, const Cut *c);
typedef struct Lines { int64_t first, end; } Lines;             /* rows or columns */
CORE Lines rows_of(const Cut *c, int64_t cols, int rank);         /* of a rank's piece */
/* the columns that a rank finishes */
CORE Lines cols_of(const optc_binding *b, int tensor, int rank);

/* ---- shard_roles.c ---- */
/* Numbers of a stage's copies: by class, for its tensors and for their ghosts; -1: none. Of
 * CLASS_PIECES it is the rule's own number. */
typedef struct StageCopies { int of[NCUTCLASS][2]; } StageCopies;
CORE FoldKind fold_kind(const ProgStage *s);
/* numbers the roles; after the classes are chosen */
CORE optc_status roles_make(optc_binding *b);
CORE bool any_of_class(const optc_binding *b, int variant, CutClass how);
/* of the derived program */
CORE optc_status roles_copy_variants(optc_binding *b);
CORE optc_status roles_copy_arrays_held(optc_binding *b);
CORE optc_status roles_copy_stages(optc_binding *b, StageCopies *copies);

/* ---- shard_program.c ---- */
CORE optc_status shard_program_make(optc_binding *b);

/* ---- shard_entries.c ---- */
CORE optc_status entries_make(optc_binding *b);
CORE optc_status add_entry(optc_binding *b, int tensor, Role role, Shape shape, int64_t first,
                           int *entry);
CORE Role entry_role(const optc_binding *b, int entry);
CORE int rule_variant(const optc_binding *b, int entry);
/* Elements [*first, *end) of the segment, or row of tiles, that begins in a rank's piece and ends
 * in another. false: there is none, or another rank computes it */
CORE bool ghost_range(const optc_binding *b, int tensor, int rank, FoldKind kind, int64_t *first,
                      int64_t *end);

/* ---- shard_plan.c ---- */
/* A phase without exchanges compares nothing; the words travel with its first gather, or in a
 * gather of their own, and the host may wait for that. exchange: the first one, or -1 */
typedef enum { AGREE_NOT, AGREE_RIDES, AGREE_APART, AGREE_WAITS } AgreeMode;
CORE AgreeMode compare_mode(const optc_binding *b, const ProgPhase *ph, int *exchange);

/* ---- shard_overlap.c ---- */
CORE optc_status overlaps_make(optc_binding *b);                  /* after the exchanges are made */
/* the section that begins with this action of a phase, on devices that overlap; NULL: none */
CORE const Overlap *overlap_at(const optc_binding *b, int phase, int action);
/* a stage of owners that has batches */
CORE bool runs_in_groups(const optc_binding *b, const ProgAction *a);

/* ---- exchange.c ---- */
CORE optc_status exchanges_make(optc_binding *b);
CORE optc_status exchange_failed(const optc_binding *b);
#endif
