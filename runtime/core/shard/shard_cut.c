/* Cuts: which piece of every tensor each rank has. The ranks exchange their pieces when they bind
 * and check them, so that all have the same table and reach the same verdict. */
#include "runtime/core/shard/shard.h"

#include <stdlib.h>
#include <string.h>

/* ---- the ranks' tables ---- */
/* The version of the ranks' protocol. Increment it with every change of the collectives: their
 * order, their number, or what a message contains. Ranks with different versions would wait for
 * each other for ever; binding refuses them.
 *   0  libraries without a version
 *   1  overlapped exchanges; a guard that the host reads is compared
 *   2  the hash of the program has the precision of its products */
enum { SHARD_PROTOCOL = 2 };

/* The first message of a rank. Binding fails here if the ranks' tables differ.
 * Its size never changes: with another size, ranks of two versions could not exchange even this
 * message.
 * failed: bit 0: this rank cannot bind; above it the protocol version. Version 0 reads any other
 * value than 0 as a failure, so its ranks return an error too. */
typedef struct Greeting { int64_t failed, tensors, rule, workspace; } Greeting;

static int64_t greeting_failed(bool failed) { return (int64_t)SHARD_PROTOCOL * 2 + failed; }

static int64_t text_hash(const char *s)
{
    uint64_t h = 1469598103934665603u;
    for (; *s; s++)
        h = (h ^ (unsigned char)*s) * 1099511628211u;
    return (int64_t)h;
}

/* A hash of the program. It differs if two ranks compiled the rule with other options or types,
 * because their exchanges would not match; and if their products have other precisions, because
 * results would depend on the owner. */
static int64_t program_hash(const Program *p)
{
    uint64_t h = (uint64_t)text_hash(p->name);
    for (int k = 0; k < p->narray; k++) {
        h = h * 31 + (uint64_t)text_hash(p->array[k].name);
        h = h * 31 + (uint64_t)p->array[k].type * 1024 + (uint64_t)p->array[k].dom * 16 +
            (uint64_t)p->array[k].kind;
    }
    for (int i = 0; i < p->nstage; i++)
        h = h * 31 + (uint64_t)p->stage[i].kind * 64 + (uint64_t)p->stage[i].variant;
    h = h * 31 + (uint64_t)p->product;
    for (int i = 0; i < p->nstage; i++)
        h = h * 31 + (p->stage[i].call ? p->stage[i].call->flags & OWN_PRECISION : 0);
    for (int i = 0; i < p->nperiod; i++)
        h = h * 31 + (uint64_t)p->period[i].every * 4096 + (uint64_t)p->period[i].offset;
    /* sizes of arrays depend on the rank axis and on blocks */
    uint64_t share;
    memcpy(&share, &p->share.share, sizeof share);
    h = (h * 31 + (uint64_t)p->rank) * 31 + (uint64_t)p->block;
    h = (h * 31 + (uint64_t)p->share.of) * 31 + (share ^ share >> 32);
    return (int64_t)h;
}

/* per tensor: dimensions, then whole, offset, shape */
static int64_t words_of(const optc_binding *b)
{
    int64_t n = 0;
    for (int i = 0; b->tensor && i < b->ntensor; i++)
        n += 1 + 3 * b->tensor[i].rank;
    return n;
}

/* Every rank sends the same number of bytes of host memory. */
CORE optc_status shards_gather(const optc_binding *b, const void *own, void *all, size_t bytes)
{
    const Device *d = b->shards->plan ? cpu_device() : b->rule->device;
    optc_status s = d->gather(b->rule->engine, &b->shards->comm, own, all, bytes);
    b->shards->failed = b->shards->failed || s != OPTC_OK;
    return s;
}

/* All ranks call it, also those whose arguments were refused (so_far). Each rank then knows whether
 * all can go on. */
static optc_status greet(optc_binding *b, optc_status so_far, Greeting *all)
{
    const optc_comm *c = &b->shards->comm;
    Greeting own = {greeting_failed(so_far != OPTC_OK), b->ntensor, program_hash(b->program),
                    b->rule->engine->workspace};
    char why[MOST_MESSAGE];
    memcpy(why, optc_message(), sizeof why);
    optc_status s = shards_gather(b, &own, all, sizeof own);
    if (so_far != OPTC_OK)
        return fail(so_far, "%s", why);
    if (s != OPTC_OK)
        return s;
    b->shards->workspace = own.workspace;
    for (int r = 0; r < c->ranks; r++) {
        b->shards->workspace =
            all[r].workspace < b->shards->workspace ? all[r].workspace : b->shards->workspace;
        if (all[r].failed >> 1 != SHARD_PROTOCOL)
            return fail(OPTC_ERROR_ARGUMENT,
                        "optc_bind_sharded: rank %d uses version %lld of the ranks' protocol and "
                        "this rank (%d) "
                        "uses version %d; use the same version of optc on all ranks",
                        r, (long long)(all[r].failed >> 1), c->rank, SHARD_PROTOCOL);
        if (all[r].failed & 1)
            return fail(OPTC_ERROR_ARGUMENT,
                        "optc_bind_sharded: rank %d could not bind; its own message says why", r);
        if (all[r].tensors != own.tensors || all[r].rule != own.rule)
            return fail(OPTC_ERROR_ARGUMENT,
                        "optc_bind_sharded: rank %d binds %lld tensors and this rank (%d) binds "
                        "%d%s; all ranks must "
                        "bind the same rule and the same tensors in the same order",
                        r, (long long)all[r].tensors, c->rank, b->ntensor,
                        all[r].tensors != own.tensors
                            ? ""
                            : ", but another rule, or with other options or types");
    }
    return OPTC_OK;
}

CORE optc_status shards_refuse(const optc_rule *r, const optc_comm *comm, optc_status s)
{
    Greeting own = {greeting_failed(true), 0, 0, 0},
             *all = (Greeting *)calloc((size_t)comm->ranks, sizeof *all);
    char why[MOST_MESSAGE];
    memcpy(why, optc_message(), sizeof why);
    if (all)
        (void)r->device->gather(r->engine, comm, &own, all, sizeof own);
    free(all);
    return fail(s, "%s", why);
}

/* All ranks must pass the same tensors, up to the pieces. */
static optc_status check_identities(optc_binding *b)
{
    const int ranks = b->shards->comm.ranks;
    uint64_t *own = (uint64_t *)calloc((size_t)b->ntensor + 1, sizeof *own);
    uint64_t *all = (uint64_t *)calloc((size_t)b->ntensor * (size_t)ranks + 1, sizeof *all);
    char label[96];
    optc_status s = own && all ? OPTC_OK : no_memory("optc_bind_sharded");
    for (int i = 0; s == OPTC_OK && i < b->ntensor; i++)
        own[i] = b->tensor[i].identity;
    if (s == OPTC_OK)
        s = shards_gather(b, own, all, sizeof *own * (size_t)b->ntensor);
    for (int64_t i = 0; s == OPTC_OK && i < (int64_t)b->ntensor * ranks; i++)
        if (all[i] != all[i % b->ntensor])
            s = fail(OPTC_ERROR_ARGUMENT,
                     "optc_bind_sharded: %s: rank %d passes another name, group, global shape, "
                     "flags, tags or split "
                     "for it than rank 0; all ranks must bind the same tensors in the same order",
                     tensor_label(b, (int)(i % b->ntensor), label), (int)(i / b->ntensor));
    free(own);
    free(all);
    return s;
}

/* Gathers the tables of all ranks: `words` numbers per rank. */
static optc_status gather_tables(optc_binding *b, int64_t words, int64_t **out)
{
    const optc_comm *c = &b->shards->comm;
    int64_t *own = (int64_t *)calloc((size_t)words + 1, sizeof *own), *to = own;
    int64_t *all = *out = TAKE(b, int64_t, words * c->ranks);
    for (int i = 0; own && i < b->ntensor; i++) {
        const Tensor *t = &b->tensor[i];
        *to++ = t->rank;
        for (int k = 0; k < t->rank; k++) {
            to[k] = t->whole_dim[k];
            to[t->rank + k] = t->offset[k];
            to[2 * t->rank + k] = t->dim[k];
        }
        to += 3 * t->rank;
    }
    optc_status s = !own || !all ? no_memory("optc_bind_sharded") : OPTC_OK;
    if (s == OPTC_OK)
        s = shards_gather(b, own, all, sizeof *own * (size_t)words);
    free(own);
    return s;
}

/* ---- one tensor ---- */
static int64_t piece_count(const Cut *c, int rank)
{
    int64_t n = 1;
    for (int k = 0; k < c->rank; k++)
        n *= c->box[rank][c->rank + k];
    return n;
}

static int64_t whole_count(const Cut *c)
{
    int64_t n = 1;
    for (int k = 0; k < c->rank; k++)
        n *= c->whole[k];
    return n;
}

static bool same_box(const Cut *c, int a, int b)
{
    return !memcmp(c->box[a], c->box[b], sizeof(int64_t) * 2 * (size_t)c->rank);
}

static bool boxes_meet(const Cut *c, int a, int b)
{
    for (int k = 0; k < c->rank; k++) {
        int64_t x = c->box[a][k], y = c->box[b][k];
        if (x + c->box[a][c->rank + k] <= y || y + c->box[b][c->rank + k] <= x)
            return false;
    }
    return true;
}

/* The last dimension along which the piece is cut; -1: it is the whole tensor. */
static int last_cut(const Cut *c, int rank)
{
    int k = c->rank - 1;
    while (k >= 0 && c->box[rank][c->rank + k] == c->whole[k])
        k--;
    return k;
}

CORE int64_t cut_runs(const Cut *c, int rank, int64_t *length)
{
    int last = last_cut(c, rank);
    int64_t runs = 1;
    *length = 1;
    for (int k = 0; k < c->rank; k++)
        *(k < last ? &runs : length) *= c->box[rank][c->rank + k];
    return *length ? runs : 0;
}

/* Index in the whole tensor of the first element of a piece's run. */
static int64_t run_at(const Cut *c, int rank, int64_t run)
{
    int last = last_cut(c, rank);
    int64_t at = 0, stride = 1;
    for (int k = c->rank - 1; k >= 0; k--) {
        int64_t n = c->box[rank][c->rank + k], i = k < last && n ? run % n : 0;
        run = k < last && n ? run / n : run;
        at += (c->box[rank][k] + i) * stride;
        stride *= c->whole[k];
    }
    return at;
}

CORE void *list_room(optc_binding *b, void *list, int n, int *room, size_t size)
{
    if (n < *room)
        return list;
    void *more = binding_alloc(b, (size_t)(*room = n ? 2 * n : 16), size);
    if (more && n)
        memcpy(more, list, size * (size_t)n);
    return more;
}

CORE bool move_add(optc_binding *b, MoveList *to, const Move *m)
{
    Move *list = (Move *)list_room(b, to->move, to->n, &to->room, sizeof *m);
    if (!list)
        return false;
    to->move = list;
    to->move[to->n++] = *m;
    return true;
}

/* Runs along the dimension ahead of the last cut one are equally far apart: they make one move. */
CORE bool cut_moves(optc_binding *b, const Cut *c, int rank, const Move *of, int size, MoveList *to)
{
    int64_t length, runs = cut_runs(c, rank, &length);
    int last = last_cut(c, rank);
    int64_t together = last > 0 ? c->box[rank][c->rank + last - 1] : 1;
    bool ok = true;
    for (int64_t i = 0; i < runs && ok; i += together) {
        Move m = *of;
        m.at = run_at(c, rank, i) * size;
        m.bytes = length * size;
        m.count = together;
        m.stride = together > 1 ? (run_at(c, rank, i + 1) - run_at(c, rank, i)) * size : 0;
        ok = move_add(b, to, &m);
    }
    return ok;
}

/* ---- checks ---- */
static optc_status bad_cut(const optc_binding *b, int tensor, const char *why)
{
    char label[96];
    return fail(OPTC_ERROR_ARGUMENT,
                "optc_bind_sharded: %s: %s; pass global_shape, shape and offset of every piece",
                tensor_label(b, tensor, label), why);
}

typedef struct PieceStart { int64_t first, end; } PieceStart;
static int by_start(const void *a, const void *b)
{
    const PieceStart *x = (const PieceStart *)a, *y = (const PieceStart *)b;
    return x->first != y->first ? (x->first > y->first) - (x->first < y->first)
                                : (x->end > y->end) - (x->end < y->end);
}

/* The distinct pieces must cover the tensor once. A piece that several ranks have counts once. */
static optc_status check_cover(optc_binding *b, int tensor, Cut *c, PieceStart *sorted)
{
    const int ranks = b->shards->comm.ranks;
    int n = 0;
    int64_t covered = 0;
    bool apart = true;
    for (int r = 0; r < ranks; r++)
        if (piece_count(c, r)) {
            sorted[n].first = run_at(c, r, 0);
            sorted[n].end = r;
            n++;
        }
    /* replicas are neighbours, the lowest rank first */
    qsort(sorted, (size_t)n, sizeof *sorted, by_start);
    for (int i = 0; i < n; i++) {
        int r = (int)sorted[i].end;
        c->primary[r] = !i || sorted[i].first != sorted[i - 1].first;
        apart = apart && (c->primary[r] || same_box(c, r, (int)sorted[i - 1].end));
        covered += c->primary[r] ? piece_count(c, r) : 0;
    }
    /* ranges: neighbours; boxes: all pairs */
    for (int i = 1, k = 0; i < n && apart; i++) {
        int r = (int)sorted[i].end;
        if (!c->primary[r])
            continue;
        for (int j = c->ranges ? k : 0; j < i && apart; j++)
            apart = !c->primary[(int)sorted[j].end] || !boxes_meet(c, r, (int)sorted[j].end);
        k = i;
    }
    if (!apart)
        return bad_cut(b, tensor, "the pieces of two ranks overlap, and are not the same piece");
    return covered == whole_count(c)
               ? OPTC_OK
               : bad_cut(b, tensor, "the ranks' pieces do not cover the whole tensor");
}

static optc_status cut_make(optc_binding *b, int tensor, const int64_t *table, int64_t words,
                            PieceStart *sorted)
{
    const int ranks = b->shards->comm.ranks;
    Cut *c = &b->shards->cut[tensor];
    int64_t length;
    c->rank = (int)table[0];
    c->whole = table + 1;
    c->box = TAKE(b, const int64_t *, ranks);
    c->first = TAKE(b, int64_t, 2 * ranks);
    c->primary = TAKE(b, bool, ranks);
    c->owner = c->owned = -1;
    for (int i = 0; i < (int)NCUTENTRY; i++)
        c->entry[i] = -1;
    if (!c->box || !c->first || !c->primary)
        return no_memory("optc_bind_sharded");
    c->end = c->first + ranks;
    c->ranges = true;
    c->replicated = ranks > 1;
    for (int r = 0; r < ranks; r++) {
        const int64_t *of = table + words * r;
        c->box[r] = of + 1 + c->rank;
    }
    for (int r = 0; r < ranks; r++) {
        int64_t n = piece_count(c, r);
        c->ranges = c->ranges && cut_runs(c, r, &length) <= 1;
        c->replicated = c->replicated && n == whole_count(c);
        c->first[r] = n ? run_at(c, r, 0) : 0;
        c->end[r] = c->first[r] + n;
    }
    return check_cover(b, tensor, c, sorted);
}

CORE optc_status cuts_make(optc_binding *b, optc_status so_far)
{
    Shards *x = b->shards;
    Greeting *all = (Greeting *)calloc((size_t)x->comm.ranks, sizeof *all);
    PieceStart *sorted = (PieceStart *)calloc((size_t)x->comm.ranks, sizeof *sorted);
    int64_t words = words_of(b), *table = NULL, at = 0;
    x->cut = TAKE(b, Cut, b->ntensor);
    if (so_far == OPTC_OK && (!sorted || !x->cut))
        so_far = no_memory("optc_bind_sharded");
    optc_status s = all ? greet(b, so_far, all) : no_memory("optc_bind_sharded");
    if (s == OPTC_OK && b->ntensor)
        s = check_identities(b);
    if (s == OPTC_OK && words)
        s = gather_tables(b, words, &table);
    for (int i = 0; i < b->ntensor && s == OPTC_OK; i++) {
        s = cut_make(b, i, table + at, words, sorted);
        at += 1 + 3 * b->tensor[i].rank;
    }
    free(all);
    free(sorted);
    return s;
}
