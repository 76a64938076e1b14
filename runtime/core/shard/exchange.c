/* Exchanges: what the ranks send each other between two rounds of a run. When the binding is made,
 * every exchange becomes lists of moves. Sender and receiver make their lists from the same table
 * of cuts in the same order, so the packed bytes need no description. */
#include "runtime/core/shard/shard.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- making moves ---- */
/* All ranks' moves of an exchange pass through here; only this rank's are kept. */
typedef struct Maker {
    optc_binding *b;
    Exchange *x;
    MoveList *list[NLIST];                     /* by rank; LIST_SHARE: the first one */
    bool ok;
} Maker;

static void add_move(Maker *k, int list, int rank, const Move *m)
{
    k->ok = k->ok && move_add(k->b, &k->list[list][rank], m);
}

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }

static Move whole_move(int entry, int array, int64_t at, int64_t bytes)
{
    Move m = {entry, array, at, bytes, 1, 0};
    return m;
}

/* Ranks that have the same piece. The receiver takes its own, if it is one of them, or the lowest
 * rank's. */
static int sender_for(const Cut *c, int primary, int receiver)
{
    bool own = c->first[receiver] == c->first[primary] && c->end[receiver] == c->end[primary] &&
               c->end[receiver] > c->first[receiver];
    return own ? receiver : primary;
}

static void pair(Maker *k, int from, int to, const Move *out, const Move *in)
{
    const int rank = k->b->shards->comm.rank;
    if (from == rank)
        add_move(k, LIST_SEND, to, out);
    if (to == rank)
        add_move(k, LIST_RECV, from, in);
}

static void to_all(Maker *k, int from, const Move *out, const Move *in)
{
    if (from == k->b->shards->comm.rank)
        add_move(k, LIST_SHARE, 0, out);
    add_move(k, LIST_SHARED, from, in);
}

/* A ghost: elements [first, end) of the whole tensor, in an array of `entry` that begins with
 * element `at`. */
typedef struct Ghost { int entry; int64_t first, end, at; } Ghost;

/* The elements of all pieces to a rank's ghost. */
static void to_ghost(Maker *k, const Item *it, int tensor, int size, int to, const Ghost *g)
{
    const Cut *c = &k->b->shards->cut[tensor];
    const int ranks = k->b->shards->comm.ranks, rank = k->b->shards->comm.rank;
    k->x->pairs = true;
    /* this rank's moves */
    for (int r = to == rank ? 0 : rank; r < (to == rank ? ranks : rank + 1); r++) {
        int64_t lo = most(g->first, c->first[r]), hi = least(g->end, c->end[r]);
        if (!c->primary[r] || lo >= hi)
            continue;
        Move out = whole_move(tensor, it->array, (lo - c->first[r]) * size, (hi - lo) * size);
        Move in = whole_move(g->entry, it->array, (lo - g->at) * size, (hi - lo) * size);
        pair(k, r, to, &out, &in);
    }
}

static void ghost_moves(Maker *k, const Item *it, int tensor, int size, FoldKind kind)
{
    const Cut *c = &k->b->shards->cut[tensor];
    Ghost g = {c->entry[fold_entry(kind, FOLD_GHOST)], 0, 0, 0};
    for (int to = 0; to < k->b->shards->comm.ranks; to++)
        if (ghost_range(k->b, tensor, to, kind, &g.first, &g.end)) {
            /* by rows, the flat ghost numbers the whole tensor's elements */
            g.at = c->how == CLASS_ROWS && kind == FOLD_FLAT ? 0 : g.first;
            to_ghost(k, it, tensor, size, to, &g);
        }
}

static void owner_moves(Maker *k, const Item *it, int tensor, int size)
{
    optc_binding *b = k->b;
    const Cut *c = &b->shards->cut[tensor];
    const int rank = b->shards->comm.rank;
    for (int r = 0; r < b->shards->comm.ranks; r++) {
        int64_t length, n = cut_runs(c, r, &length) * length;
        bool to_owner = it->kind == ITEM_TO_OWNER;
        if (!n || (to_owner && !c->primary[r]))
            continue;
        int piece = to_owner ? sender_for(c, r, c->owner) : r;
        const Move at_piece = whole_move(tensor, it->array, 0, n * size),
                   of = whole_move(c->owned, it->array, 0, 0);
        k->x->pairs = true;
        if (piece == rank)
            add_move(k, to_owner ? LIST_SEND : LIST_RECV, c->owner, &at_piece);
        if (c->owner == rank)
            k->ok = k->ok && cut_moves(b, c, piece, &of, size,
                                       &k->list[to_owner ? LIST_RECV : LIST_SEND][piece]);
    }
}

/* Values that are not elements go to all ranks. The owner packs its own array and the others write
 * the bound one. */
static void spread_moves(Maker *k, const Item *it, int tensor, int64_t bytes)
{
    const Cut *c = &k->b->shards->cut[tensor];
    Move in = whole_move(tensor, it->array, 0, bytes),
         out = whole_move(c->owned, it->array, 0, bytes);
    to_all(k, c->owner, &out, &in);
}

/* Values of an array that all ranks get from one: per row and per column, and partials of the
 * segments and tiles that begin in its piece. A row's are complete on its rank. */
static Lines values_from(const optc_binding *b, const Item *it, int tensor, int rank)
{
    const ProgArray *m = &b->program->array[it->array];
    const Cut *c = &b->shards->cut[tensor];
    const int64_t wide = b->tensor[tensor].whole.cols;
    const int64_t tile = m->kind == MEM_PART ? stage_info[m->by].rows : 0;
    const bool folds_cols = it->kind == ITEM_PARTIALS && m->from == COL;
    int64_t across = tile ? count_up(wide, stage_info[m->by].cols) : 1, unit = 1;
    Lines r = {c->first[rank], c->end[rank]};
    if (it->kind == ITEM_COLS || folds_cols) {
        r = cols_of(b, tensor, rank);
        unit = folds_cols ? OPTC_SEG : 1;
        across = 1;
    } else if (!c->primary[rank]) {
        r.end = r.first;
    } else if (m->dom == ROW || tile) {
        r = rows_of(c, wide, rank);
        unit = m->dom == ROW ? 1 : tile;
    } else {
        unit = OPTC_SEG;
    }
    r.first = count_up(r.first, unit) * across;
    r.end = count_up(r.end, unit) * across;
    return r;
}

static void value_moves(Maker *k, const Item *it, int tensor, int size)
{
    const optc_binding *b = k->b;
    const Cut *c = &b->shards->cut[tensor];
    const bool rows = c->how == CLASS_ROWS;
    for (int r = 0; r < b->shards->comm.ranks && !(rows ? same_everywhere(b, c) : c->replicated);
         r++) {
        const Lines own = values_from(b, it, tensor, r);
        const Move m = whole_move(rows ? c->entry[ENTRY_ALL] : tensor, it->array, own.first * size,
                                  (own.end - own.first) * size);
        if (own.first < own.end)
            to_all(k, r, &m, &m);
    }
}

/* ---- matrices that are cut between rows (shard_rows.c) ---- */
/* Partials of columns: each rank's rows of tiles to the ranks that finish a range of columns. */
static void col_partial_moves(Maker *k, const Item *it, int tensor, int size)
{
    const optc_binding *b = k->b;
    const Cut *c = &b->shards->cut[tensor];
    const int64_t cols = b->tensor[tensor].whole.cols,
                  tile = stage_info[b->program->array[it->array].by].rows;
    const int rank = b->shards->comm.rank;
    for (int from = 0; from < b->shards->comm.ranks; from++) {
        const Lines r = rows_of(c, cols, from);
        const int64_t first = count_up(r.first, tile), n = count_up(r.end, tile) - first;
        for (int to = 0; to < b->shards->comm.ranks && c->primary[from] && n > 0; to++) {
            const Lines range = cols_of(b, tensor, to);
            const int64_t width = range.end - range.first;
            if (width <= 0)
                continue;
            k->x->pairs = true;
            if (from != rank && to != rank)
                continue;
            /* the memory begins with the tile of the piece's first row */
            Move out =
                whole_move(c->entry[ENTRY_ALL], it->array,
                           ((first - r.first / tile) * cols + range.first) * size, width * size);
            out.count = n;
            out.stride = cols * size;
            Move in =
                whole_move(c->entry[ENTRY_COLS], it->array, first * width * size, n * width * size);
            pair(k, from, to, &out, &in);
        }
    }
}

/* States per column, from the rank that holds them to those that compute them. */
static void owner_col_moves(Maker *k, const Item *it, int tensor, int size)
{
    const Cut *c = &k->b->shards->cut[tensor];
    for (int to = 0; to < k->b->shards->comm.ranks; to++) {
        const Lines range = cols_of(k->b, tensor, to);
        Move m = whole_move(c->entry[ENTRY_ALL], it->array, range.first * size,
                            (range.end - range.first) * size);
        if (to == c->owner || range.first >= range.end)
            continue;
        k->x->pairs = true;
        pair(k, c->owner, to, &m, &m);
    }
}

static void item_moves(Maker *k, const Item *it, int tensor)
{
    const optc_binding *b = k->b;
    const Program *p = b->program;
    const ProgArray *m = &p->array[it->array];
    const Cut *c = &b->shards->cut[tensor];
    const Tensor *t = &b->tensor[tensor];
    const int size = p->type[stored_type(p->type, m->type, t->whole.n)].bytes,
              v = rule_variant(b, tensor);
    bool held = b->rule->program->array[it->array].held_by >> v & 1 || m->kind == MEM_P ||
                m->kind == MEM_G || m->kind == MEM_INPUT;
    const bool rows = c->how == CLASS_ROWS;
    if (it->kind == ITEM_TENSOR_PARTIALS) {
        Move one = whole_move(tensor, it->array, (int64_t)tensor * 8, 8);
        if (c->owner >= 0 && !rows && (c->how == CLASS_WHOLE || owner_writes(b, v, it->array)))
            to_all(k, c->owner, &one, &one);
        return;
    }
    if (v != it->variant || c->how != it->how || !held || !t->whole.n ||
        (it->group >= 0 && c->group != it->group))
        return;
    switch (it->kind) {
    case ITEM_GHOST: ghost_moves(k, it, tensor, size, FOLD_FLAT); return;
    case ITEM_TILE_GHOST: ghost_moves(k, it, tensor, size, FOLD_TILE); return;
    case ITEM_BAND_GHOST: ghost_moves(k, it, tensor, size, FOLD_BAND); return;
    case ITEM_PARTIALS: case ITEM_ROWS: case ITEM_COLS:
        if (m->kind != MEM_PART || m->dom != COL)
            value_moves(k, it, tensor, size);
        else if (!same_everywhere(b, c))
            col_partial_moves(k, it, tensor, size);
        return;
    default:
        if (rows)
            owner_col_moves(k, it, tensor, size);
        else if (c->slices)
            return;                                /* the owner's stages run on the piece itself */
        else if (m->dom == ELEM)
            owner_moves(k, it, tensor, size);
        else
            spread_moves(k, it, tensor,
                         stored_bytes(p->type, m->type,
                                      array_length(m, t->whole, t->whole, b->ntensor), t->whole.n));
    }
}

/* Joins the lists of all ranks, in their order. */
static void join_lists(Maker *k, int list)
{
    Exchange *x = k->x;
    for (int r = 0; r < (list == LIST_SHARE ? 1 : k->b->shards->comm.ranks); r++) {
        const MoveList *of = &k->list[list][r];
        size_t bytes = 0;
        for (int i = 0; i < of->n; i++) {
            bytes += (size_t)(of->move[i].bytes * of->move[i].count);
            k->ok = k->ok && move_add(k->b, &x->list[list], &of->move[i]);
        }
        if (list == LIST_SEND)
            x->send_bytes[r] = bytes;
        else if (list == LIST_RECV)
            x->recv_bytes[r] = bytes;
        else if (list == LIST_SHARED) {
            x->shared_at[r + 1] = x->list[list].n;
            x->share_bytes = bytes > x->share_bytes ? bytes : x->share_bytes;
        }
    }
}

static optc_status exchange_make(optc_binding *b, Exchange *x)
{
    const int ranks = b->shards->comm.ranks;
    Maker k;
    memset(&k, 0, sizeof k);
    k.b = b;
    k.x = x;
    MoveList *lists = (MoveList *)calloc(NLIST * (size_t)ranks, sizeof *lists);
    x->send_bytes = TAKE(b, size_t, 2 * ranks);
    x->shared_at = TAKE(b, int, ranks + 1);
    k.ok = lists && x->send_bytes && x->shared_at;
    x->recv_bytes = k.ok ? x->send_bytes + ranks : NULL;
    for (int l = 0; l < (int)NLIST && k.ok; l++)
        k.list[l] = lists + l * ranks;
    for (int i = 0; i < x->nitem; i++)
        for (int t = 0; t < b->ntensor && k.ok; t++)
            item_moves(&k, &x->item[i], t);
    for (int l = 0; l < (int)NLIST && k.ok; l++)
        join_lists(&k, l);
    free(lists);
    return k.ok ? OPTC_OK : no_memory("optc_bind_sharded");
}

CORE optc_status exchanges_make(optc_binding *b)
{
    Shards *x = b->shards;
    optc_status s = OPTC_OK;
    for (int i = 0; i < x->nexchange && s == OPTC_OK; i++)
        s = exchange_make(b, &x->exchange[i]);
    x->copy_at = TAKE(b, int64_t, (int64_t)(b->nheld - b->ntensor) * b->program->narray);
    x->agrees = true;
    return s == OPTC_OK && !x->copy_at ? no_memory("optc_bind_sharded") : s;
}

/* Some exchange moves the array, so it must not be in memory that batches reuse. */
CORE bool shards_move(const optc_binding *b, int array)
{
    for (int i = 0; b->shards && i < b->shards->nexchange; i++)
        for (int k = 0; k < b->shards->exchange[i].nitem; k++)
            if (b->shards->exchange[i].item[k].array == array)
                return true;
    return false;
}

/* ---- running ---- */
/* Copies the runs of a list to or from consecutive bytes. An array that has no memory (a tensor
 * without a gradient) is skipped: no stage reads the other side. */
static void move_list(const optc_binding *b, const MoveList *l, char *packed, bool pack)
{
    for (int i = 0; i < l->n; i++) {
        const Move *m = &l->move[i];
        char *at = m->entry < 0 ? NULL : (char *)b->tensor[m->entry].mem[m->array];
        for (int64_t k = 0; k < m->count; k++, packed += m->bytes)
            if (at && pack)
                memcpy(packed, at + m->at + k * m->stride, (size_t)m->bytes);
            else if (at)
                memcpy(at + m->at + k * m->stride, packed, (size_t)m->bytes);
    }
}

static int gather_shared(const optc_binding *b, const Exchange *x, char *send, char *recv)
{
    const optc_comm *c = &b->shards->comm;
    move_list(b, &x->list[LIST_SHARE], send, true);
    int rc = c->all_gather(c->context, send, recv, x->share_bytes, NULL);
    for (int r = 0; r < c->ranks && !rc; r++) {
        const MoveList from = exchange_shared(x, r);
        move_list(b, &from, recv + x->share_bytes * (size_t)r, false);
    }
    return rc;
}

/* A function of the library that communicates leaves its own message; exchange_run cleared it
 * before. */
CORE optc_status exchange_failed(const optc_binding *b)
{
    char why[300];
    snprintf(why, sizeof why, "%.290s", optc_message());
    b->shards->failed = true;
    return fail(OPTC_ERROR_DEVICE,
                "optc_run: communication with the other ranks failed on rank %d of %d in the "
                "middle of a step%s%s; "
                "bind again and load the states",
                b->shards->comm.rank, b->shards->comm.ranks, *why ? ": " : "", why);
}

CORE optc_status exchange_run(const optc_binding *b, int number)
{
    Shards *x = b->shards;
    const Exchange *e = &x->exchange[number];
    const optc_comm *c = &x->comm;
    char *send = (char *)b->block + x->at + x->send_at,
         *recv = (char *)b->block + x->at + x->recv_at;
    int rc = 0;
    message_clear();
    if (e->pairs) {
        move_list(b, &e->list[LIST_SEND], send, true);
        rc = c->all_to_all(c->context, send, e->send_bytes, recv, e->recv_bytes, NULL);
        if (!rc)
            move_list(b, &e->list[LIST_RECV], recv, false);
    }
    if (!rc && e->share_bytes)
        rc = gather_shared(b, e, send, recv);
    return rc ? exchange_failed(b) : OPTC_OK;
}

CORE optc_status shards_send_params(optc_binding *b)
{
    if (!b->shards || !b->shards->nparams)
        return OPTC_OK;
    /* a rank whose bind failed must not be waited for */
    optc_status s = shards_agree(b, OPTC_OK);
    for (int i = 0; i < b->shards->nparams && s == OPTC_OK; i++)
        s = b->rule->device->exchange(b, b->shards->params[i]);
    return s;
}

/* All ranks must agree on which tensors have gradients, before anything changes. */
static optc_status check_masks(const optc_binding *b, const unsigned char *all, size_t bytes)
{
    const optc_comm *c = &b->shards->comm;
    char label[96];
    for (int r = 0; r < c->ranks; r++)
        for (int i = 0; i < b->ntensor; i++)
            if ((all[bytes * (size_t)r + (size_t)i / 8] ^ all[(size_t)i / 8]) >> i % 8 & 1)
                return fail(OPTC_ERROR_ARGUMENT,
                            "optc_run: %s has a gradient on rank %d and none on rank %d; all ranks "
                            "must pass gradients "
                            "for the same tensors (zeros where a rank has none)",
                            tensor_label(b, i, label), all[(size_t)i / 8] >> i % 8 & 1 ? 0 : r,
                            all[(size_t)i / 8] >> i % 8 & 1 ? r : 0);
    return OPTC_OK;
}

/* Some step of the entry has an exchange. */
static bool entry_exchanges(const Program *p, int entry)
{
    for (int m = 0; m < program_phases(p); m++)
        for (int i = 0; i < p->entry[entry].phase[m].naction; i++)
            if (p->entry[entry].phase[m].action[i].kind == ACT_EXCHANGE)
                return true;
    return false;
}

enum { RANK_RUNS, RANK_SKIPS, RANK_FAILED };               /* the byte behind a rank's mask */

/* A rank that cannot run, or whose guard is set, tells the others, which would wait for it. */
static optc_status check_runs(const optc_binding *b, const unsigned char *all, size_t bytes)
{
    const optc_comm *c = &b->shards->comm;
    for (int r = 0; r < c->ranks; r++) {
        int has = all[bytes * (size_t)(r + 1) - 1], own = all[bytes * (size_t)(c->rank + 1) - 1];
        if (has == RANK_FAILED)
            return fail(OPTC_ERROR_ARGUMENT,
                        "optc_run: rank %d could not run; its own message says why", r);
        if (has != own)
            return fail(OPTC_ERROR_ARGUMENT,
                        "optc_run: the guard is set on rank %d and not on rank %d; all ranks need "
                        "the same value, such as the maximum of theirs",
                        has == RANK_SKIPS ? r : c->rank, has == RANK_SKIPS ? c->rank : r);
    }
    return OPTC_OK;
}

CORE optc_status shards_refuse_run(optc_binding *b, int entry, int phase, optc_status why)
{
    const Device *d = b->rule->device;
    return b->shards && d->refuse && entry_exchanges(b->program, entry)
               ? d->refuse(b, entry, phase, why)
               : why;
}

CORE optc_status shards_begin(optc_binding *b, int entry, int phase, optc_status so_far, bool skip)
{
    Shards *x = b->shards;
    char why[MOST_MESSAGE];
    if (!x)
        return so_far;
    const optc_comm *c = &x->comm;
    if (x->failed)
        return fail(OPTC_ERROR_DEVICE,
                    "optc_run: an earlier exchange with the other ranks failed, so ranks may have "
                    "different states; bind again and load the states");
    if (!entry_exchanges(b->program, entry))
        return so_far;
    if (!b->rule->device->reaches)                 /* on a GPU the host would have to wait */
        return so_far == OPTC_OK && !skip ? so_far : shards_refuse_run(b, entry, phase, so_far);
    size_t bytes = (size_t)b->ntensor / 8 + 2;
    memcpy(why, optc_message(), sizeof why);
    memset(x->mask, 0, bytes);
    x->mask[bytes - 1] = so_far != OPTC_OK ? RANK_FAILED : skip ? RANK_SKIPS : RANK_RUNS;
    for (int i = 0; i < b->ntensor; i++)
        x->mask[i / 8] = (unsigned char)(x->mask[i / 8] | (b->tensor[i].mem[1] != NULL) << i % 8);
    if (c->all_gather(c->context, x->mask, x->mask + bytes, bytes, NULL)) {
        x->failed = true;
        return fail(OPTC_ERROR_DEVICE,
                    "optc_run: communication with the other ranks failed on rank %d of %d", c->rank,
                    c->ranks);
    }
    if (so_far != OPTC_OK)
        return fail(so_far, "%s", why);
    optc_status s = check_runs(b, x->mask + bytes, bytes);
    return s == OPTC_OK ? check_masks(b, x->mask + bytes, bytes) : s;
}

CORE void shards_exchange(const optc_binding *b, int number)
{
    if (b->shards->status == OPTC_OK)
        b->shards->status = exchange_run(b, number);
}

CORE optc_status shards_end(optc_binding *b)
{
    optc_status s = b->shards ? b->shards->status : OPTC_OK;
    if (b->shards)
        b->shards->status = OPTC_OK;
    return s;
}
