/* Stagger slots: every(k, { stagger = true }) gives each tensor, or each block of a rule with
 * blocks, a slot below k.
 *
 * Binding assigns slots: in descending order of cost, to the slot with the least cost so far (the
 * lowest slot of equal ones), so that all steps cost about the same. Matrices of one shape go to a
 * slot together, as far as it does not get more than FULL times its share: a library's call over
 * several matrices takes little longer than over one. The cost is the operations of the staggered
 * calls plus the number of elements; eigenvectors cost what their time is worth in operations.
 * Slots depend only on the program and the shapes, so a run that continues from saved states has
 * the same slots.
 *
 * Arrays of the binding hold the slots, and stages compare them with the step. Stages with
 * ProgStage.stagger (gen/plan/stagger_plan.c) run only for the tensors or blocks scheduled for this
 * step; they would change nothing for others. */
#include "runtime/core/bind/bind.h"

#include <stdlib.h>
#include <string.h>

/* ---- which slots run ---- */
CORE StaggerNow stagger_now(const optc_binding *b, int64_t t)
{
    StaggerNow x;
    memset(&x, 0, sizeof x);
    for (int i = 0; i < b->nslots; i++)
        x.now[i] = stagger_slot(b->program->array[b->slots[i].array].slots, t);
    return x;
}

static bool of_blocks(const optc_binding *b, int i)
{
    return dom_of_block(b->program->array[b->slots[i].array].dom);
}

static bool some_have(const int *slot, int64_t n, int64_t now)
{
    for (int64_t i = 0; i < n; i++)
        if (slot[i] == now)
            return true;
    return false;
}

/* y: a tensor, or a view of its blocks */
static bool slot_runs(const optc_binding *b, int i, const Tensor *y, int64_t matrix, int64_t now)
{
    const int *slot = b->slots[i].slot;
    if (now < 0)
        return true;
    if (!of_blocks(b, i))
        return slot[y->of] == now;
    if (matrix >= 0 && y - b->tensor >= b->nheld)
        return slot[y->first_block + matrix] == now;
    return some_have(slot + y->first_block, y->blocks_n, now);
}

CORE bool stagger_active(const optc_binding *b, const StaggerNow *x, unsigned stagger,
                         const Tensor *y, int64_t matrix)
{
    for (int i = 0; i < b->nslots; i++)
        if (stagger >> i & 1 && slot_runs(b, i, y, matrix, x->now[i]))
            return true;
    return !stagger;
}

CORE int64_t stagger_matrix(const ProgStage *s, const Tensor *y, int64_t unit)
{
    bool lists = stage_info[s->kind].walk == WALK_LIST && !dom_wide(stage_info[s->kind].dom);
    int64_t each = lists ? count_up(list_length(s->kind, y->shape), OPTC_SEG) : 0;
    return each ? unit / each : -1;
}

/* ---- cost ---- */
static double tensor_cost(const optc_binding *b, const ProgStage *s, const Tensor *t)
{
    double cost = 0;
    if (!stage_of_blocks(s))
        return call_cost(b->program, s, t->shape);
    for (int i = t->first_view; i < t->first_view + t->nview; i++)
        cost += call_cost(b->program, s, b->tensor[i].shape);
    return cost;
}

/* Cost of a tensor, or (block) of one matrix of a view, in its most expensive phase. */
static double cost_of(const optc_binding *b, int i, const Tensor *t, bool block)
{
    const Program *p = b->program;
    int phases = program_phases(p);
    double most = 0;
    Shape one = t->shape;
    one.n = block ? dom_times(one.rows, one.cols) : one.n;
    one.slices = block ? 1 : one.slices;
    for (int m = 0; m < p->nentry * phases; m++) {
        const ProgPhase *ph = &p->entry[m / phases].phase[m % phases];
        double sum = 0;
        for (int k = 0; k < ph->naction; k++) {
            const ProgStage *s =
                ph->action[k].kind == ACT_LAUNCH ? &p->stage[ph->action[k].stage] : NULL;
            if (s && s->kind == S_CALL && s->variant == t->variant && s->stagger >> i & 1)
                sum += block ? call_cost(p, s, one) : tensor_cost(b, s, t);
        }
        most = sum > most ? sum : most;
    }
    return most + (double)one.n;
}

/* ---- assignment ---- */
/* array: of slots, by number; rows, cols: of its matrices; first: nth of the first one that is
 * alike */
typedef struct Owner { double cost; int64_t nth, first, rows, cols; int array, *slot; } Owner;
typedef struct Load { double cost; int slot; } Load;

static int number_order(int64_t a, int64_t b) { return (a > b) - (a < b); }

static int owners_by_shape(const void *a, const void *b)
{
    const Owner *x = (const Owner *)a, *y = (const Owner *)b;
    return x->cost != y->cost     ? (x->cost < y->cost) - (x->cost > y->cost)
           : x->array != y->array ? x->array - y->array
           : x->rows != y->rows   ? number_order(x->rows, y->rows)
           : x->cols != y->cols   ? number_order(x->cols, y->cols)
                                  : number_order(x->nth, y->nth);
}

static int dearest_first(const void *a, const void *b)
{
    const Owner *x = (const Owner *)a, *y = (const Owner *)b;
    return x->cost != y->cost     ? (x->cost < y->cost) - (x->cost > y->cost)
           : x->first != y->first ? number_order(x->first, y->first)
                                  : number_order(x->nth, y->nth);
}

/* A call can step both at once. */
static bool owners_alike(const Owner *x, const Owner *y)
{
    return x->cost == y->cost && x->array == y->array && x->rows == y->rows && x->cols == y->cols;
}

static bool less_loaded(const Load *a, const Load *b)
{
    return a->cost != b->cost ? a->cost < b->cost : a->slot < b->slot;
}

/* Restores the heap after the cost of its first entry grew. */
static void sink(Load *h, int n)
{
    for (int i = 0, next; (next = 2 * i + 1) < n; i = next) {
        next += next + 1 < n && less_loaded(&h[next + 1], &h[next]);
        if (!less_loaded(&h[next], &h[i]))
            return;
        Load x = h[i];
        h[i] = h[next];
        h[next] = x;
    }
}

/* The slowest step may take 1.3 times the mean, which includes work that is not staggered. */
static const double FULL = 1.15;

static optc_status deal(Owner *o, int64_t n, int slots)
{
    Load *h = (Load *)calloc((size_t)slots, sizeof *h);
    double all = 0;
    if (!h)
        return no_memory("optc_bind");
    for (int i = 0; i < slots; i++)
        h[i].slot = i;
    qsort(o, (size_t)n, sizeof *o, owners_by_shape);
    for (int64_t i = 0; i < n; i++) {
        o[i].first = i && owners_alike(&o[i - 1], &o[i]) ? o[i - 1].first : o[i].nth;
        all += o[i].cost;
    }
    qsort(o, (size_t)n, sizeof *o, dearest_first);
    for (int64_t i = 0; i < n; i++) {
        *o[i].slot = h[0].slot;
        h[0].cost += o[i].cost;
        bool more = i + 1 < n && owners_alike(&o[i], &o[i + 1]);
        if (!more || h[0].cost + o[i].cost > FULL * all / slots)
            sink(h, slots);
    }
    free(h);
    return OPTC_OK;
}

static void add_owner(Owner *o, int64_t *n, double cost, const Tensor *t, int array, int *slot)
{
    o[*n].cost = cost;
    o[*n].nth = *n;
    o[*n].rows = t->shape.rows;
    o[*n].cols = t->shape.cols;
    o[*n].array = array;
    o[(*n)++].slot = slot;
}

/* Lists the tensors in order, or their blocks. Tensors without this slot array keep slot -1. */
static int64_t list_owners(const optc_binding *b, int i, Owner *o)
{
    const ProgArray *m = &b->program->array[b->slots[i].array];
    int64_t n = 0;
    for (int k = 0; k < b->nheld; k++) {
        const Tensor *t = &b->tensor[k];
        if (!(m->held_by >> t->variant & 1))
            continue;
        if (!of_blocks(b, i))
            add_owner(o, &n, cost_of(b, i, t, false), t, i, &b->slots[i].slot[k]);
        for (int v = t->first_view; of_blocks(b, i) && v < t->first_view + t->nview; v++) {
            double cost = cost_of(b, i, &b->tensor[v], true);
            for (int64_t q = 0; q < b->tensor[v].shape.slices; q++)
                add_owner(o, &n, cost, &b->tensor[v], i,
                          &b->slots[i].slot[b->tensor[v].first_block + q]);
        }
    }
    return n;
}

static bool same_stagger(Stagger a, Stagger b)
{
    return a.every == b.every && a.of == b.of && a.ahead == b.ahead && a.first == b.first;
}

/* Tensors and blocks with the same period are assigned together. */
static optc_status deal_all(optc_binding *b, Owner *o)
{
    const ProgArray *m = b->program->array;
    optc_status s = OPTC_OK;
    for (int i = 0; i < b->nslots && s == OPTC_OK; i++) {
        Stagger stagger = m[b->slots[i].array].slots;
        int64_t n = 0;
        bool dealt = false;
        for (int k = 0; k < b->nslots; k++)
            if (same_stagger(stagger, m[b->slots[k].array].slots)) {
                dealt = dealt || k < i;
                n += list_owners(b, k, o + n);
            }
        for (int64_t k = 0; k < n; k++)
            o[k].nth = k;
        s = dealt ? OPTC_OK : deal(o, n, stagger.every);
    }
    return s;
}

/* Numbers the blocks of all tensors: sets first_block and blocks_n of tensors and views, returns
 * the total. */
static int64_t count_blocks_before(optc_binding *b)
{
    int64_t n = 0;
    for (int k = 0; k < b->nheld; k++) {
        Tensor *t = &b->tensor[k];
        t->first_block = n;
        for (int v = t->first_view; v < t->first_view + t->nview; v++) {
            b->tensor[v].first_block = n;
            b->tensor[v].blocks_n = b->tensor[v].shape.slices;
            n += b->tensor[v].shape.slices;
        }
        t->blocks_n = n - t->first_block;
    }
    return n;
}

/* Finds the arrays of slots, and makes the host's copies with slot -1. all: how many slots there
 * are. */
static optc_status slots_make(optc_binding *b, int64_t *all)
{
    const Program *p = b->program;
    for (int k = 0; k < p->narray; k++)
        if (p->array[k].slots.every && b->nslots < MOST_SLOTS)
            b->slots[b->nslots++].array = k;
    *all = 0;
    int64_t blocks = b->nslots ? count_blocks_before(b) : 0;
    for (int i = 0; i < b->nslots; i++) {
        int64_t n = of_blocks(b, i) ? blocks : b->nheld;
        *all += n;
        if (!(b->slots[i].slot = TAKE(b, int, n)))
            return no_memory("optc_bind");
        for (int64_t k = 0; k < n; k++)
            b->slots[i].slot[k] = -1;
    }
    return OPTC_OK;
}

CORE optc_status stagger_make(optc_binding *b)
{
    int64_t all;
    optc_status s = slots_make(b, &all);
    if (!b->nslots || s != OPTC_OK)
        return s;
    Owner *o = (Owner *)calloc((size_t)all + 1, sizeof *o);
    s = o ? deal_all(b, o) : no_memory("optc_bind");
    free(o);
    return s;
}

CORE optc_status stagger_follow(optc_binding *b, const optc_binding *model)
{
    int64_t all;
    optc_status s = slots_make(b, &all);
    for (int i = 0; i < b->nslots && s == OPTC_OK; i++)
        for (int k = 0; k < b->nheld; k++) {
            const Tensor *t = &b->tensor[k], *of = &model->tensor[t->source];
            bool blocks = of_blocks(b, i);
            memcpy(b->slots[i].slot + (blocks ? t->first_block : k),
                   model->slots[i].slot + (blocks ? of->first_block : t->source),
                   sizeof(int) * (size_t)(blocks ? t->blocks_n : 1));
        }
    return s;
}

/* ---- arrays of slots ---- */
static optc_status write_slots(optc_binding *b, const int *slot, int64_t n, void *to)
{
    double *buf = (double *)malloc(sizeof *buf * (size_t)(n + 1));
    if (!buf)
        return no_memory("optc_bind");
    for (int64_t i = 0; i < n; i++)
        buf[i] = slot[i];
    optc_status s = b->rule->device->write(b, to, buf, sizeof *buf * (size_t)n, true, "optc_bind");
    free(buf);
    return s;
}

CORE optc_status stagger_write(optc_binding *b)
{
    optc_status s = OPTC_OK;
    for (int i = 0; i < b->nslots; i++)
        for (int k = 0; k < b->nheld && s == OPTC_OK; k++) {
            const Tensor *t = &b->tensor[k];
            bool blocks = of_blocks(b, i);
            int64_t n = blocks ? t->blocks_n : 1;
            if (t->mem[b->slots[i].array] && n)
                s = write_slots(b, b->slots[i].slot + (blocks ? t->first_block : k), n,
                                t->mem[b->slots[i].array]);
        }
    return s;
}

optc_status optc_get_slot(const optc_binding *b, int tensor, int64_t block, int every, int *slot)
{
    if (!b || !slot)
        return fail(OPTC_ERROR_ARGUMENT, "optc_get_slot: %s is NULL",
                    !b ? "the binding" : "the result pointer");
    if (tensor < 0 || tensor >= b->ntensor)
        return fail(OPTC_ERROR_ARGUMENT, "optc_get_slot: there is no tensor %d", tensor);
    const Tensor *t = &b->tensor[tensor];
    char label[96];
    bool known = false;
    for (int i = 0; i < b->nslots; i++) {
        const ProgArray *m = &b->program->array[b->slots[i].array];
        known = known || m->slots.every == every;
        if (m->slots.every != every || of_blocks(b, i) != (block >= 0) ||
            !(m->held_by >> t->variant & 1))
            continue;
        if (block >= t->blocks_n && block >= 0)
            return fail(OPTC_ERROR_ARGUMENT, "optc_get_slot: %s has no block %lld (there are %lld)",
                        tensor_label(b, tensor, label), (long long)block, (long long)t->blocks_n);
        *slot = b->slots[i].slot[block >= 0 ? t->first_block + block : tensor];
        return OPTC_OK;
    }
    if (!known)
        return fail(OPTC_ERROR_ARGUMENT,
                    "optc_get_slot: rule '%s' has no every(%d, { stagger = true }, …)",
                    b->program->name, every);
    return fail(OPTC_ERROR_ABSENT, "optc_get_slot: %s%s has no slot of every(%d, …)",
                block >= 0 ? "a block of " : "", tensor_label(b, tensor, label), every);
}
