/* Batches: limit the temporaries of rules with calls to the engine's workspace.
 *
 * A stretch is a maximal sequence of stages of one variant, without a stage of the group, a copy or
 * another variant in between. A stretch with calls runs batch by batch: all its stages over the
 * tensors of one batch, then over those of the next. Temporaries that are needed only inside such a
 * stretch are in the pool, which all batches reuse: tensor after tensor, with offsets of a tensor's
 * arrays that depend on its shape. All other arrays have memory for all tensors.
 *
 * A variant's tensors are sorted by shape, so that tensors of one shape are neighbours and can
 * share one call. In sharded bindings on a GPU the groups of tensors that are exchanged together
 * come first: a batch has tensors of one group. A batch takes tensors in that order while they fit
 * into the workspace. Only the engine's option decides that: free memory and the number of threads
 * must not change which tensors share a call. A program without calls has no batches, and each task
 * is an action over all tensors. */
#include "runtime/core/bind/bind.h"
#include "runtime/core/memory/layout.h"
#include "runtime/core/schedule/schedule_ops.h"
#include "runtime/core/shard/shards.h"

#include <stdlib.h>
#include <string.h>

static const ProgPhase *nth_phase(const Program *p, int i)
{
    return &p->entry[i / program_phases(p)].phase[i % program_phases(p)];
}

/* From the first stretch with calls of a phase to the end of its last. */
CORE void batches_live_range(const optc_binding *b, LiveRange *out)
{
    const Program *p = b->program;
    for (int m = 0; m < p->nentry * program_phases(p); m++) {
        const ProgPhase *ph = nth_phase(p, m);
        out[m].first = ph->naction;
        out[m].last = -1;
        for (int i = 0; b->nbatch && i < ph->naction;) {
            Stretch x = stretch_at(p, ph, i);
            if (x.calls) {
                out[m].first = i < out[m].first ? i : out[m].first;
                out[m].last = x.end - 1;
            }
            i = x.end;
        }
    }
}

/* Every batch runs all stages of a stretch, so arrays outside the pool are live from its first
 * stage to its last. */
CORE void batches_cover(const optc_binding *b, LiveRanges *l)
{
    const Program *p = b->program;
    for (int m = 0; m < l->phases && b->nbatch > 1; m++) {
        const ProgPhase *ph = nth_phase(p, m);
        for (int i = 0; i < ph->naction;) {
            Stretch x = stretch_at(p, ph, i);
            for (int a = i; a < x.end && x.calls; a++) {
                const ProgStage *s = &p->stage[ph->action[a].stage];
                const LiveRange all = {i, x.end - 1};
                for (int k = 0; k < s->nreads + s->nwrites; k++)
                    live_range_cover(l, k < s->nreads ? s->reads[k] : s->writes[k - s->nreads], m,
                                     all);
            }
            i = x.end;
        }
    }
}

/* ---- which arrays are in the pool ---- */
static bool stage_has(const int *list, int n, int array)
{
    for (int i = 0; i < n; i++)
        if (list[i] == array)
            return true;
    return false;
}

/* `from` has an entry per array and variant of one phase: 0, or 1 + the first action of the stretch
 * that last used the array. */
typedef struct Touched { int *from; } Touched;

/* A stage in a stretch with calls: the first stage of its variant to use an array must write it,
 * and all later uses must be in the same stretch. */
static void touch_batched(const optc_binding *b, const Touched *t, const ProgStage *s, int array,
                          int stretch, bool written)
{
    int *from = &t->from[array * MOST_ROLES + s->variant];
    bool good = *from ? *from == stretch + 1 : written;
    if (!good)
        b->batched[array] &= ~(1u << s->variant);
    *from = stretch + 1;
}

static void batched_stage(const optc_binding *b, const Touched *t, const ProgStage *s, int stretch,
                          bool calls)
{
    for (int k = 0; k < s->nreads + s->nwrites; k++) {
        bool read = k < s->nreads;
        int array = read ? s->reads[k] : s->writes[k - s->nreads];
        if (!calls)
            b->batched[array] &= ~(1u << s->variant);
        else
            touch_batched(b, t, s, array, stretch, !read);
    }
}

/* A temporary is in the pool for the tensors of a variant if, in every phase, the variant's stages
 * use it inside one stretch with calls or not at all. Temporaries of the group and arrays that
 * ranks exchange are not in the pool. */
static void find_batched(const optc_binding *b, const Touched *t)
{
    const Program *p = b->program;
    unsigned called = variants_called(p);
    for (int k = 0; k < p->narray; k++)
        b->batched[k] = array_temporary(&p->array[k]) && p->array[k].dom != GROUP &&
                                !shards_move(b, k) && b->plan != PLAN_APART
                            ? p->array[k].held_by & called
                            : 0;
    for (int m = 0; m < p->nentry * program_phases(p); m++) {
        const ProgPhase *ph = nth_phase(p, m);
        memset(t->from, 0, sizeof *t->from * (size_t)p->narray * MOST_ROLES);
        for (int i = 0; i < ph->naction;) {
            Stretch x = stretch_at(p, ph, i);
            for (int a = i; a < x.end; a++) {
                const ProgAction *act = &ph->action[a];
                if (act->kind == ACT_LAUNCH && p->stage[act->stage].kind != S_GROUP)
                    batched_stage(b, t, &p->stage[act->stage], i, x.calls);
            }
            i = x.end;
        }
    }
}

/* ---- offsets in the pool ---- */
/* Work memory for placing the arrays of one tensor. busy: by array, a bit for each stage of the
 * variant's stretches with calls at which the array is live; need: arrays live at the current
 * stage */
typedef struct Room {
    Touched touched;
    BufferRequest *extent;
    BufferPlan places;
    uint64_t *busy;
    int words;
    bool *need;
} Room;

static int called_stages(const Program *p)
{
    int n = 0;
    for (int m = 0; m < p->nentry * program_phases(p); m++)
        n += nth_phase(p, m)->naction;
    return n;
}

static void set_busy(Room *r, int array, int at)
{
    r->busy[array * r->words + at / 64] |= (uint64_t)1 << at % 64;
}

/* Liveness, from the last stage to the first: an array that a stage reads is live before it, one
 * that it only writes is not. */
static void busy_stretch(const Program *p, Room *r, const ProgAction *a, int n, int first)
{
    memset(r->need, 0, sizeof *r->need * (size_t)p->narray);
    for (int i = n - 1; i >= 0; i--) {
        const ProgStage *s = &p->stage[a[i].stage];
        for (int k = 0; k < s->nwrites; k++)
            r->need[s->writes[k]] = true;
        for (int k = 0; k < s->nreads; k++)
            r->need[s->reads[k]] = true;
        for (int k = 0; k < p->narray; k++)
            if (r->need[k])
                set_busy(r, k, first + i);
        for (int k = 0; k < s->nwrites; k++)
            r->need[s->writes[k]] = stage_has(s->reads, s->nreads, s->writes[k]);
    }
}

static void find_busy(const Program *p, int variant, Room *r)
{
    int at = 0;
    memset(r->busy, 0, sizeof *r->busy * (size_t)p->narray * (size_t)r->words);
    for (int m = 0; m < p->nentry * program_phases(p); m++) {
        const ProgPhase *ph = nth_phase(p, m);
        for (int i = 0; i < ph->naction;) {
            Stretch x = stretch_at(p, ph, i);
            if (x.calls && x.variant == variant)
                busy_stretch(p, r, &ph->action[i], x.end - i, at + i);
            i = x.end;
        }
        at += ph->naction;
    }
}

/* Sizes above any workspace are clamped, so that sums cannot overflow. */
static int64_t at_most_workspace(int64_t bytes)
{
    return bytes < MOST_WORKSPACE ? bytes : MOST_WORKSPACE;
}

/* Places the arrays of one tensor, which share memory, and returns the bytes they take. */
static int64_t place_inside(const optc_binding *b, int tensor, Room *r, int64_t *place)
{
    const Program *p = b->program;
    int n = 0;
    for (int k = 0; k < p->narray; k++)
        if (in_pool(b, k, tensor)) {
            r->extent[n].array = k;
            r->extent[n].bytes = at_most_workspace(array_owned(b, &p->array[k], tensor));
            r->extent[n].busy = r->busy + (size_t)k * (size_t)r->words;
            r->extent[n++].alone = false;
        }
    r->places.n = 0;
    r->places.base = r->places.end = 0;
    buffer_plan_place(&r->places, r->extent, n, place);
    return r->places.end;
}

/* ---- forming batches ---- */
typedef struct Sorted { Shape shape; int group, tensor; } Sorted;

static int compare_lengths(int64_t a, int64_t b) { return (a > b) - (a < b); }

static int by_shape(const void *a, const void *b)
{
    const Sorted *x = (const Sorted *)a, *y = (const Sorted *)b;
    int by = x->group - y->group;
    by = by ? by : compare_lengths(x->shape.slices, y->shape.slices);
    by = by ? by : compare_lengths(x->shape.rows, y->shape.rows);
    by = by ? by : compare_lengths(x->shape.cols, y->shape.cols);
    return by ? by : x->tensor - y->tensor;
}

static int sort_variant(const optc_binding *b, int variant, Sorted *out)
{
    int n = 0;
    for (int i = 0; i < b->nheld; i++)
        if (b->tensor[i].variant == variant) {
            out[n].shape = b->tensor[i].shape;
            out[n].group = shards_group(b, i);
            out[n++].tensor = i;
        }
    qsort(out, (size_t)n, sizeof *out, by_shape);
    return n;
}

static const char *first_product(const Program *p, int variant)
{
    int i = 0;
    while (i < p->nstage && !(p->stage[i].kind == S_CALL && p->stage[i].variant == variant))
        i++;
    return i < p->nstage ? p->stage[i].where : "";
}

/* The tensor to name when the calls' scratch memory alone exceeds the workspace: the one with the
 * longest side. */
static int longest_side(const optc_binding *b, int variant)
{
    int found = -1;
    int64_t most = -1;
    for (int i = 0; i < b->nheld; i++) {
        const Shape s = b->tensor[i].shape;
        int64_t side = s.rows > s.cols ? s.rows : s.cols;
        if (b->tensor[i].variant == variant && s.n && side > most) {
            found = i;
            most = side;
        }
    }
    return found;
}

static optc_status too_large(const optc_binding *b, int tensor, int64_t bytes)
{
    char label[96];
    const Program *p = b->program;
    int longest = b->call_bytes > b->rule->engine->workspace
                      ? longest_side(b, b->tensor[tensor].variant)
                      : -1;
    tensor = longest < 0 ? tensor : longest;
    const Shape s = b->tensor[tensor].shape;
    const char *where = first_product(p, b->tensor[tensor].variant);
    return fail(
        OPTC_ERROR_MEMORY,
        "optc_bind: %s (%lld x %lld x %lld) needs a workspace of %s%lld bytes for the products of "
        "'%s'%s%s%s, and optc_engine_options.workspace is %lld; set a larger one",
        tensor_label(b, tensor, label), (long long)s.slices, (long long)s.rows, (long long)s.cols,
        bytes >= MOST_WORKSPACE ? "over " : "", (long long)at_most_workspace(bytes + b->call_bytes),
        p->name, *where ? " (" : "", where, *where ? ")" : "",
        (long long)b->rule->engine->workspace);
}

static bool same_kind(const Sorted *x, const Sorted *y)
{
    return x->group == y->group && !memcmp(&x->shape, &y->shape, sizeof x->shape);
}

/* Tensors per batch for n tensors of which the first have one shape: batches of about equal size,
 * because a small last batch would not fill the device. */
static int64_t even_share(const Sorted *x, int n, int64_t bytes, int64_t room)
{
    int64_t most = bytes ? room / bytes : n, same = 1;
    while (same < n && same_kind(&x[same], x))
        same++;
    return most < same ? count_up(same, count_up(same, most)) : same;
}

/* Forms the batches of one variant: sets each tensor's batch and offsets in the pool. */
static optc_status cut_variant(optc_binding *b, const Sorted *x, int n, Room *r)
{
    int64_t room = b->rule->engine->workspace - b->call_bytes, at = 0, bytes = 0, share = 0,
            had = 0, *place = NULL;
    for (int i = 0; i < n; i++, had++) {
        Tensor *t = &b->tensor[x[i].tensor];
        if (!i || !same_kind(&x[i], &x[i - 1])) {
            if (!(place = TAKE(b, int64_t, b->program->narray)))
                return no_memory("optc_bind");
            bytes = place_inside(b, x[i].tensor, r, place);
            if (bytes > room)
                return too_large(b, x[i].tensor, bytes);
            share = even_share(x + i, n - i, bytes, room);
            had = 0;
        }
        if (!i || had == share || at + bytes > room || x[i].group != x[i - 1].group) {
            at = had = 0;
            b->nbatch++;
        }
        t->batch = b->nbatch - 1;
        t->pool_at = at;
        t->pool_place = place;
        at += bytes;
        b->pool_bytes = at > b->pool_bytes ? at : b->pool_bytes;
    }
    return OPTC_OK;
}

/* Fills the tensor lists of a variant's batches, sorted by shape. */
static optc_status list_batches(optc_binding *b, int variant, const Sorted *x, int n)
{
    int *tensor = TAKE(b, int, n);
    if (!tensor)
        return no_memory("optc_bind");
    for (int i = 0; i < n; i++) {
        Batch *y = &b->batch[b->tensor[x[i].tensor].batch];
        tensor[i] = x[i].tensor;
        y->variant = variant;
        y->group = x[i].group;
        y->units.tensor = y->units.n ? y->units.tensor : tensor + i;
        y->units.n++;
    }
    return OPTC_OK;
}

static optc_status cut_all(optc_binding *b, Sorted *x, Room *r)
{
    const Program *p = b->program;
    unsigned called = variants_called(p);
    optc_status s = OPTC_OK;
    for (int v = 0; v < p->nvariant && s == OPTC_OK; v++)
        if (called >> v & 1) {
            find_busy(p, v, r);
            s = cut_variant(b, x, sort_variant(b, v, x), r);
        }
    if (s == OPTC_OK && !(b->batch = TAKE(b, Batch, b->nbatch)))
        s = no_memory("optc_bind");
    for (int v = 0; v < p->nvariant && s == OPTC_OK; v++)
        if (called >> v & 1)
            s = list_batches(b, v, x, sort_variant(b, v, x));
    return s;
}

CORE optc_status batches_plan(optc_binding *b)
{
    const Program *p = b->program;
    const Device *d = b->rule->device;
    size_t n = (size_t)p->narray + 1;
    Room r;
    if (!program_calls(p))
        return OPTC_OK;
    memset(&r, 0, sizeof r);
    r.words = r.places.phases = called_stages(p) / 64 + 1;
    r.touched.from = (int *)calloc(n * MOST_ROLES, sizeof *r.touched.from);
    r.extent = (BufferRequest *)calloc(n, sizeof *r.extent);
    r.places.p = (PlacedBuffer *)calloc(n, sizeof *r.places.p);
    r.busy = (uint64_t *)calloc(n * (size_t)r.words, sizeof *r.busy);
    r.need = (bool *)calloc(n, sizeof *r.need);
    Sorted *x = (Sorted *)calloc((size_t)b->nheld + 1, sizeof *x);
    bool ok = r.touched.from && r.extent && r.places.p && r.busy && r.need && x;
    optc_status s = ok ? OPTC_OK : no_memory("optc_bind");
    b->call_bytes = d->call_bytes ? (d->call_bytes(b) + 63) & ~(int64_t)63 : 0;
    if (ok) {
        find_batched(b, &r.touched);
        s = cut_all(b, x, &r);
    }
    b->pool_bytes += b->call_bytes;
    free(r.touched.from);
    free(r.extent);
    free(r.places.p);
    free(r.busy);
    free(r.need);
    free(x);
    return s;
}

CORE optc_status batches_place(optc_binding *b)
{
    optc_status s = OPTC_OK;
    for (int i = 0; i < b->nbatch && s == OPTC_OK; i++)
        if ((s = units_count(b, &b->batch[i].units)) == OPTC_OK)
            s = blocks_units(b, &b->batch[i].units, &b->batch[i].blocks);
    return s == OPTC_OK ? schedules_make(b) : s;
}
