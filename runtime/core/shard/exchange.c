/* Exchanges: what the ranks send each other between two rounds of a run. When the binding is made,
 * every exchange becomes lists of moves. Sender and receiver make their lists from the same table
 * of cuts in the same order, so the packed bytes need no description. */
#include "runtime/core/shard/shard.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- making moves ---- */
/* All ranks' moves of an exchange pass through here; only this rank's are kept. from, to: sizes by
 * rank, of lists that this rank does not have too. */
typedef struct Maker {
    optc_binding *b;
    Exchange *x;
    MoveList *send, *recv, *shared;            /* by rank */
    size_t *share;                             /* by rank: bytes that it passes to all */
    bool ok;
} Maker;

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
        k->ok = k->ok && move_add(k->b, &k->send[to], out);
    if (to == rank)
        k->ok = k->ok && move_add(k->b, &k->recv[from], in);
}

static void to_all(Maker *k, int from, const Move *m)
{
    k->share[from] += (size_t)m->bytes;
    if (from == k->b->shards->comm.rank)
        k->ok = k->ok && move_add(k->b, &k->x->share, m);
    k->ok = k->ok && move_add(k->b, &k->shared[from], m);
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

static void ghost_moves(Maker *k, const Item *it, int tensor, int size)
{
    const Cut *c = &k->b->shards->cut[tensor];
    Ghost g = {c->ghost, 0, 0, 0};
    for (int to = 0; to < k->b->shards->comm.ranks && !c->replicated; to++)
        if (ghost_range(c, to, k->b->tensor[tensor].whole.n, &g.first, &g.end)) {
            g.at = g.first;
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
            k->ok =
                k->ok && move_add(b, to_owner ? &k->send[c->owner] : &k->recv[c->owner], &at_piece);
        if (c->owner == rank)
            k->ok = k->ok &&
                    cut_moves(b, c, piece, &of, size, to_owner ? &k->recv[piece] : &k->send[piece]);
    }
}

/* The partials of the segments that begin in each rank's piece. */
static void partial_moves(Maker *k, const Item *it, int tensor, int size)
{
    const Cut *c = &k->b->shards->cut[tensor];
    for (int r = 0; r < k->b->shards->comm.ranks && !c->replicated; r++) {
        int64_t first = count_up(c->first[r], OPTC_SEG), end = count_up(c->end[r], OPTC_SEG);
        if (!c->primary[r] || first >= end)
            continue;
        Move m = whole_move(tensor, it->array, first * size, (end - first) * size);
        to_all(k, r, &m);
    }
}

/* Values that are not elements go to all ranks. The owner packs its own array and the others write
 * the bound one. */
static void spread_moves(Maker *k, const Item *it, int tensor, int64_t bytes)
{
    const Cut *c = &k->b->shards->cut[tensor];
    Move in = whole_move(tensor, it->array, 0, bytes),
         out = whole_move(c->owned, it->array, 0, bytes);
    k->share[c->owner] += (size_t)bytes;
    if (c->owner == k->b->shards->comm.rank)
        k->ok = k->ok && move_add(k->b, &k->x->share, &out);
    k->ok = k->ok && move_add(k->b, &k->shared[c->owner], &in);
}

/* ---- matrices that are cut between rows (shard_rows.c) ---- */
static void rows_ghost_moves(Maker *k, const Item *it, int tensor, int size)
{
    const Cut *c = &k->b->shards->cut[tensor];
    const RowsEntry which = it->kind == ITEM_GHOST        ? ROWS_FLAT_GHOST
                            : it->kind == ITEM_TILE_GHOST ? ROWS_TILE_GHOST
                                                          : ROWS_BAND_GHOST;
    Ghost g = {c->rows[which], 0, 0, 0};
    for (int to = 0; to < k->b->shards->comm.ranks; to++)
        if (rows_ghost(k->b, tensor, to, which, &g.first, &g.end)) {
            /* the flat ghost numbers the whole tensor's elements */
            g.at = which == ROWS_FLAT_GHOST ? 0 : g.first;
            to_ghost(k, it, tensor, size, to, &g);
        }
}

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
                whole_move(c->rows[ROWS_ALL], it->array,
                           ((first - r.first / tile) * cols + range.first) * size, width * size);
            out.count = n;
            out.stride = cols * size;
            Move in =
                whole_move(c->rows[ROWS_COLS], it->array, first * width * size, n * width * size);
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
        Move m = whole_move(c->rows[ROWS_ALL], it->array, range.first * size,
                            (range.end - range.first) * size);
        if (to == c->owner || range.first >= range.end)
            continue;
        k->x->pairs = true;
        pair(k, c->owner, to, &m, &m);
    }
}

/* Values [first, end) of the entry with all rows, from a rank to all. */
static void all_moves(Maker *k, const Item *it, int tensor, int from, int64_t first, int64_t end,
                      int size)
{
    Move m = whole_move(k->b->shards->cut[tensor].rows[ROWS_ALL], it->array, first * size,
                        (end - first) * size);
    if (first < end)
        to_all(k, from, &m);
}

static void rows_moves(Maker *k, const Item *it, int tensor, int size)
{
    const optc_binding *b = k->b;
    const ProgArray *m = &b->program->array[it->array];
    const Cut *c = &b->shards->cut[tensor];
    const Shape s = b->tensor[tensor].whole;
    const int64_t tile = m->kind == MEM_PART ? stage_info[m->by].rows : 0;
    const int64_t across = tile ? count_up(s.cols, stage_info[m->by].cols) : 1;
    if (it->kind == ITEM_FROM_OWNER)
        owner_col_moves(k, it, tensor, size);
    if (it->kind == ITEM_FROM_OWNER || same_everywhere(b, c))
        return;
    if (it->kind == ITEM_GHOST || it->kind == ITEM_TILE_GHOST || it->kind == ITEM_BAND_GHOST) {
        rows_ghost_moves(k, it, tensor, size);
        return;
    }
    if (it->kind == ITEM_PARTIALS && m->dom == COL) {
        col_partial_moves(k, it, tensor, size);
        return;
    }
    for (int r = 0; r < b->shards->comm.ranks; r++) {
        const Lines rows = rows_of(c, s.cols, r), cols = cols_of(b, tensor, r);
        if (it->kind == ITEM_COLS)
            all_moves(k, it, tensor, r, cols.first, cols.end, size);
        else if (it->kind == ITEM_PARTIALS && m->from == COL)
            all_moves(k, it, tensor, r, count_up(cols.first, OPTC_SEG),
                      count_up(cols.end, OPTC_SEG), size);
        else if (!c->primary[r])
            continue;
        /* values, or partials: a row's are complete on its rank */
        else if (m->dom == ROW)
            all_moves(k, it, tensor, r, rows.first * across, rows.end * across, size);
        else if (tile)
            all_moves(k, it, tensor, r, count_up(rows.first, tile) * across,
                      count_up(rows.end, tile) * across, size);
        else
            all_moves(k, it, tensor, r, count_up(c->first[r], OPTC_SEG),
                      count_up(c->end[r], OPTC_SEG), size);
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
    if (it->kind == ITEM_TENSOR_PARTIALS) {
        Move one = whole_move(tensor, it->array, (int64_t)tensor * 8, 8);
        if (c->owner >= 0 && c->how != CLASS_ROWS &&
            (c->how == CLASS_WHOLE || owner_writes(b, v, it->array)))
            to_all(k, c->owner, &one);
        return;
    }
    if (v != it->variant || c->how != it->how || !held || !t->whole.n ||
        (it->group >= 0 && c->group != it->group))
        return;
    if (c->how == CLASS_ROWS)
        rows_moves(k, it, tensor, size);
    else if (it->kind == ITEM_GHOST)
        ghost_moves(k, it, tensor, size);
    else if (it->kind == ITEM_PARTIALS)
        partial_moves(k, it, tensor, size);
    else if (c->slices)
        return;                                    /* the owner's stages run on the piece itself */
    else if (m->dom == ELEM)
        owner_moves(k, it, tensor, size);
    else
        spread_moves(k, it, tensor,
                     stored_bytes(p->type, m->type, array_length(m, t->whole, t->whole, b->ntensor),
                                  t->whole.n));
}

static size_t list_bytes(const MoveList *l)
{
    size_t n = 0;
    for (int i = 0; i < l->n; i++)
        n += (size_t)(l->move[i].bytes * l->move[i].count);
    return n;
}

/* Joins the lists of all ranks, in their order. */
static bool join(Maker *k, const MoveList *by_rank, MoveList *out, size_t *bytes, int *at)
{
    const int ranks = k->b->shards->comm.ranks;
    bool ok = true;
    for (int r = 0; r < ranks; r++) {
        if (bytes)
            bytes[r] = list_bytes(&by_rank[r]);
        if (at)
            at[r] = out->n;
        for (int i = 0; i < by_rank[r].n; i++)
            ok = ok && move_add(k->b, out, &by_rank[r].move[i]);
    }
    if (at)
        at[ranks] = out->n;
    return ok;
}

static optc_status exchange_make(optc_binding *b, Exchange *x)
{
    const int ranks = b->shards->comm.ranks;
    Maker k;
    memset(&k, 0, sizeof k);
    k.b = b;
    k.x = x;
    k.send = (MoveList *)calloc(3 * (size_t)ranks, sizeof *k.send);
    k.share = (size_t *)calloc((size_t)ranks, sizeof *k.share);
    x->send_bytes = TAKE(b, size_t, 2 * ranks);
    x->shared_at = TAKE(b, int, ranks + 1);
    k.ok = k.send && k.share && x->send_bytes && x->shared_at;
    if (k.ok) {
        k.recv = k.send + ranks;
        k.shared = k.recv + ranks;
        x->recv_bytes = x->send_bytes + ranks;
        for (int i = 0; i < x->nitem; i++)
            for (int t = 0; t < b->ntensor && k.ok; t++)
                item_moves(&k, &x->item[i], t);
        k.ok = k.ok && join(&k, k.send, &x->send, x->send_bytes, NULL) &&
               join(&k, k.recv, &x->recv, x->recv_bytes, NULL) &&
               join(&k, k.shared, &x->shared, NULL, x->shared_at);
        for (int r = 0; r < ranks; r++)
            x->share_bytes = k.share[r] > x->share_bytes ? k.share[r] : x->share_bytes;
    }
    free(k.send);
    free(k.share);
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
static void move_all(const optc_binding *b, const Move *m, int n, char *packed, bool pack)
{
    for (int i = 0; i < n; i++, m++) {
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
    move_all(b, x->share.move, x->share.n, send, true);
    int rc = c->all_gather(c->context, send, recv, x->share_bytes, NULL);
    for (int r = 0; r < c->ranks && !rc; r++)
        move_all(b, x->shared.move + x->shared_at[r], x->shared_at[r + 1] - x->shared_at[r],
                 recv + x->share_bytes * (size_t)r, false);
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
        move_all(b, e->send.move, e->send.n, send, true);
        rc = c->all_to_all(c->context, send, e->send_bytes, recv, e->recv_bytes, NULL);
        if (!rc)
            move_all(b, e->recv.move, e->recv.n, recv, false);
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
