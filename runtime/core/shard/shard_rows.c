/* Matrices that are cut between rows, of rules with folds over rows and columns (Adafactor, CAME):
 * CLASS_ROWS.
 *
 *   elements        on every rank's piece
 *   folds           each segment of 4096 elements and each row of tiles is folded by the rank where
 *                   it begins; ghosts have copies of what other ranks have of it
 *   values per row  on all ranks: the rows' partials are gathered
 *   per column      each rank finishes a range of columns: partials go there by all_to_all, and the
 *                   values are gathered
 *   per tensor      on all ranks
 *
 * So the gradient is not sent, except for ghosts. States per row are those of the piece's rows,
 * states per column are held by the tensor's owner; both are sent to the other ranks before a step
 * uses them.
 *
 * Flat folds behind the head see the whole tensor: their pointers are moved back by the elements
 * ahead of the piece, and their first unit of work is the piece's first whole segment. So rows,
 * columns and segments have the same numbers as in one process. folds_add makes the entries of
 * CLASS_PIECES too, which see a range of elements. */
#include "runtime/core/shard/shard.h"

#include <string.h>

/* ---- which variants and tensors ---- */
static bool tiled(StageKind k) { return stage_info[k].walk == WALK_TILED; }

static bool small_dom(Dom d) { return d == TENSOR || d == SLICE || d == GROUP; }

/* A stage of this kind may use the array. */
static bool fits_rows(const ProgArray *m, StageKind kind, bool writes)
{
    bool part = m->kind == MEM_PART, elements = kind == S_FLAT || tiled(kind);
    Dom d = m->dom;
    if (part && writes && m->dom != GROUP)
        return elements
                   ? m->from == ELEM && (small_dom(d) || (tiled(kind) && (d == ROW || d == COL)))
                   : (kind == S_ROW || kind == S_COL || kind == S_SLICE || kind == S_TENSOR) &&
                         small_dom(d);
    /* finished by a list, or by a stage with one value */
    if (part && !writes)
        return d == ROW ? kind == S_ROW : d == COL ? kind == S_COL : small_dom(d) && !elements;
    if (elements)
        return d == ELEM || (!writes && !part && (d == ROW || d == COL || small_dom(d))) ||
               d == GROUP;
    if (kind == S_ROW)
        return d == ROW || small_dom(d);
    if (kind == S_COL)
        return d == COL || small_dom(d);
    return small_dom(d) || (!writes && (d == ROW || d == COL));
}

static bool stage_fits_rows(const optc_binding *b, const ProgStage *s)
{
    const Program *p = b->rule->program;
    bool kind = s->kind == S_FLAT || tiled(s->kind) || s->kind == S_ROW || s->kind == S_COL ||
                s->kind == S_SLICE || s->kind == S_TENSOR;
    bool fits = kind && !s->stagger;
    for (int k = 0; k < s->nreads + s->nwrites && fits; k++) {
        const ProgArray *m = &p->array[stage_array(s, k)];
        /* by ghosts, or to all ranks */
        bool copied = m->dom != ELEM || tiled(s->kind) || stage_folds(p, s);
        fits = fits_rows(m, s->kind, k >= s->nreads) && !m->slots.every &&
               !(copied && p->type[m->type].block > 1);
    }
    return fits;
}

CORE bool variant_by_rows(const optc_binding *b, int variant)
{
    const Program *p = b->rule->program;
    Shards *x = b->shards;
    bool fits = variant_owned(b, variant);
    x->range_step[variant] = 8;                    /* vectors of a GPU begin at multiples of it */
    for (int i = 0; i < p->nstage && fits; i++) {
        const ProgStage *s = &p->stage[i];
        if (s->kind == S_GROUP || s->variant != variant)
            continue;
        fits = stage_fits_rows(b, s);
        for (int k = 0; k < s->nwrites; k++)       /* a fold over columns has segments of them */
            if (s->kind == S_COL && p->array[s->writes[k]].kind == MEM_PART)
                x->range_step[variant] = OPTC_SEG;
    }
    return fits;
}

CORE bool cut_by_rows(const optc_binding *b, int tensor)
{
    const Cut *c = &b->shards->cut[tensor];
    const Shape s = b->tensor[tensor].whole;
    bool rows = c->ranges && s.slices == 1 && s.rows > 1 && s.n > 0;
    for (int r = 0; r < b->shards->comm.ranks && rows; r++)
        rows = c->first[r] % s.cols == 0 && c->end[r] % s.cols == 0;
    return rows;
}

CORE Role rows_role(const Program *p, const ProgStage *s)
{
    if (tiled(s->kind))
        return s->kind == S_TILE ? ROLE_TILE : ROLE_BAND;
    if (s->kind == S_FLAT)
        return stage_folds(p, s) ? ROLE_FLAT : ROLE_ROWS;
    return s->kind == S_COL ? ROLE_COLS : ROLE_ALL;
}

/* A fold over rows is complete on the rank that has the row. */
CORE bool stage_needs_ghost(const Program *p, const ProgStage *s)
{
    bool needs = false;
    for (int k = 0; k < s->nwrites; k++) {
        const ProgArray *m = &p->array[s->writes[k]];
        needs = needs ||
                (m->kind == MEM_PART && m->dom != ROW && (s->kind == S_FLAT || tiled(s->kind)));
    }
    return needs;
}

static bool col_partials(const ProgArray *m) { return m->kind == MEM_PART && m->dom == COL; }

CORE bool rows_holds(const ProgArray *m, Role role)
{
    switch (role) {
    case ROLE_ROWS: return m->dom == ELEM;
    case ROLE_COLS: return col_partials(m);
    default: return role == ROLE_ALL && m->dom != ELEM && !col_partials(m);
    }
}

/* ---- ranges ---- */
CORE bool same_everywhere(const optc_binding *b, const Cut *c)
{
    return c->replicated || b->shards->comm.ranks == 1;
}

CORE Lines rows_of(const Cut *c, int64_t cols, int rank)
{
    Lines r = {c->first[rank] / cols, c->end[rank] / cols};
    return r;
}

/* Ranks take turns to have the first range, because the last ranges may be empty. */
CORE Lines cols_of(const optc_binding *b, int tensor, int rank)
{
    const int ranks = b->shards->comm.ranks;
    const int64_t cols = b->tensor[tensor].whole.cols,
                  step = b->shards->range_step[rule_variant(b, tensor)];
    const int64_t each = count_up(count_up(cols, step), ranks) * step,
                  at = (rank + tensor) % ranks * each;
    Lines r = {at < cols ? at : cols, at + each < cols ? at + each : cols};
    if (same_everywhere(b, &b->shards->cut[tensor]))
        r.first = 0, r.end = cols;
    return r;
}

/* elements of a segment, rows of a tile or band */
static int64_t fold_unit(FoldKind kind)
{
    return kind == FOLD_FLAT ? OPTC_SEG : stage_info[kind == FOLD_TILE ? S_TILE : S_BAND].rows;
}

/* Rows of tiles that touch the piece, for the partials of an array. */
static Lines tiles_of(const optc_binding *b, int tensor, const ProgArray *m)
{
    const int rows = stage_info[m->by].rows;
    Lines r = rows_of(&b->shards->cut[tensor], b->tensor[tensor].whole.cols, b->shards->comm.rank);
    Lines t = {r.first / rows, count_up(r.end, rows)};
    t.end = r.first < r.end ? t.end : t.first;
    return t;
}

CORE bool ghost_range(const optc_binding *b, int tensor, int rank, FoldKind kind, int64_t *first,
                      int64_t *end)
{
    const Cut *c = &b->shards->cut[tensor];
    const Shape s = b->tensor[tensor].whole;
    const int64_t unit = fold_unit(kind) * (kind == FOLD_FLAT ? 1 : s.cols);
    if (!c->primary[rank] || !c->ranges || same_everywhere(b, c))
        return false;
    *first = (c->end[rank] - 1) / unit * unit;
    *end = *first + unit < s.n ? *first + unit : s.n;
    return *first >= c->first[rank] && c->end[rank] < *end;
}

/* ---- entries ---- */
static Shape rows_shape(const Tensor *t, int64_t n, int64_t rows)
{
    Shape s = t->whole;
    s.n = n;
    s.slices = 1;
    s.rows = rows;
    return s;
}

static Shape range_shape(const Tensor *t, int64_t n)
{
    Shape s = rows_shape(t, n, 1);
    s.cols = n;
    return s;
}

/* first: the row that the entry's pointers point to */
static optc_status add_rows(optc_binding *b, int tensor, Role role, int which, Shape shape,
                            int64_t first, int64_t first_unit)
{
    int *entry = &b->shards->cut[tensor].entry[which];
    optc_status s = add_entry(b, tensor, role, shape, first * shape.cols, entry);
    if (s != OPTC_OK)
        return s;
    Tensor *x = &b->tensor[*entry];
    x->before[ROW] = first;
    x->borrows = role != ROLE_ALL;
    x->first_unit = first_unit;
    return OPTC_OK;
}

/* Adds the entry for a range of elements or, by tiles, of rows. Flat folds behind the head see the
 * tensor from its beginning to the end of the range. */
static optc_status add_fold(optc_binding *b, int tensor, FoldKind kind, int which, int64_t first,
                            int64_t end)
{
    const Tensor *t = &b->tensor[tensor];
    const Cut *c = &b->shards->cut[tensor];
    const int64_t cols = t->whole.cols, n = end - first;
    const Role role = c->how == CLASS_ROWS    ? fold_role(kind, which == FOLD_GHOST)
                      : which == FOLD_GHOST ? ROLE_GHOST
                                            : ROLE_PART;
    const int at = fold_entry(kind, which);
    int *entry = &b->shards->cut[tensor].entry[at];
    if (first >= end || b->shards->role[rule_variant(b, tensor)][role] < 0)
        return OPTC_OK;
    if (c->how != CLASS_ROWS)
        return add_entry(b, tensor, role, range_shape(t, n), first, entry);
    if (kind != FOLD_FLAT)
        return add_rows(b, tensor, role, at, rows_shape(t, n * cols, n), first, 0);
    return which == FOLD_HEAD
               ? add_rows(b, tensor, role, at, rows_shape(t, n, t->shape.rows), first / cols, 0)
               : add_rows(b, tensor, role, at, rows_shape(t, end, count_up(end, cols)), 0,
                          first / OPTC_SEG);
}

CORE optc_status folds_add(optc_binding *b, int tensor, FoldKind kind)
{
    const Cut *c = &b->shards->cut[tensor];
    const int rank = b->shards->comm.rank;
    const int64_t each = kind == FOLD_FLAT ? 1 : b->tensor[tensor].whole.cols,
                  unit = fold_unit(kind), first = c->first[rank] / each, end = c->end[rank] / each;
    int64_t cut = count_up(first, unit) * unit, from = 0, to = 0;
    cut = cut < end ? cut : end;
    optc_status s = add_fold(b, tensor, kind, FOLD_HEAD, first, cut);
    if (s == OPTC_OK)
        s = add_fold(b, tensor, kind, FOLD_REST, cut, end);
    return s == OPTC_OK && ghost_range(b, tensor, rank, kind, &from, &to)
               ? add_fold(b, tensor, kind, FOLD_GHOST, from / each, to / each)
               : s;
}

CORE optc_status rows_entries(optc_binding *b, int tensor)
{
    Cut *c = &b->shards->cut[tensor];
    Tensor *t = &b->tensor[tensor];
    const int variant = rule_variant(b, tensor), *role = b->shards->role[variant];
    const Lines cols = cols_of(b, tensor, b->shards->comm.rank);
    const Lines rows = rows_of(c, t->whole.cols, b->shards->comm.rank);
    t->shape = rows_shape(t, t->shape.n, rows.end - rows.first);
    t->before[ROW] = rows.first;
    optc_status s = add_rows(b, tensor, ROLE_ALL, ENTRY_ALL, t->whole, 0, 0);
    for (int k = 0; k < (int)NFOLD && s == OPTC_OK; k++)
        s = folds_add(b, tensor, (FoldKind)k);
    if (s == OPTC_OK && role[ROLE_COLS] >= 0 && cols.first < cols.end) {
        Shape range = rows_shape(t, t->whole.rows * (cols.end - cols.first), t->whole.rows);
        range.cols = cols.end - cols.first;
        s = add_rows(b, tensor, ROLE_COLS, ENTRY_COLS, range, 0, 0);
        /* stochastic rounding numbers columns by `first`, draws by COL */
        if (s == OPTC_OK) {
            b->tensor[c->entry[ENTRY_COLS]].before[ELEM] = cols.first;
            b->tensor[c->entry[ENTRY_COLS]].before[COL] = cols.first;
        }
    }
    c->owned = c->owner == b->shards->comm.rank ? c->entry[ENTRY_ALL] : -1;
    t = &b->tensor[tensor];
    t->variant = role[ROLE_ROWS];
    return s;
}

/* ---- memory ---- */
static int value_bytes(const optc_binding *b, int tensor, int array)
{
    const Program *p = b->program;
    return p->type[stored_type(p->type, p->array[array].type, b->tensor[tensor].whole.n)].bytes;
}

/* the kind of fold whose ghost has this role; NFOLD: it is no ghost */
static FoldKind ghost_kind(Role role)
{
    FoldKind kind = FOLD_FLAT;
    while (kind < NFOLD && fold_role(kind, true) != role)
        kind = (FoldKind)(kind + 1);
    return kind;
}

/* Ghosts have copies of elements. The partials of columns of the piece's tiles are with the entry
 * of all rows. */
CORE int64_t rows_copy(const optc_binding *b, int entry, int array)
{
    const ProgArray *m = &b->rule->program->array[array];
    const Tensor *x = &b->tensor[entry];
    const int variant = rule_variant(b, entry);
    const Role role = entry_role(b, entry);
    const FoldKind kind = ghost_kind(role);
    int64_t first, end;
    if (role == ROLE_ALL && col_partials(m) && !same_everywhere(b, &b->shards->cut[x->source]) &&
        m->held_by >> variant & 1) {
        Lines t = tiles_of(b, x->source, m);
        return (t.end - t.first) * x->whole.cols * value_bytes(b, x->source, array);
    }
    return m->dom == ELEM && kind < NFOLD && role_uses(b, variant, fold_role(kind, false), array) &&
                   ghost_range(b, x->source, b->shards->comm.rank, kind, &first, &end)
               ? (end - first) * value_bytes(b, x->source, array)
               : 0;
}

static void *moved_by(void *p, int64_t bytes)
{
    return p ? (void *)((uintptr_t)p + (uintptr_t)bytes) : NULL;
}

/* The address in an entry of the array's first value, as the entry numbers them. */
static void *rows_address(const optc_binding *b, int tensor, int which, int array)
{
    const Shards *s = b->shards;
    const Cut *c = &s->cut[tensor];
    const Tensor *t = &b->tensor[tensor], *all = &b->tensor[c->entry[ENTRY_ALL]],
                 *x = &b->tensor[c->entry[which]];
    const ProgArray *m = &b->program->array[array];
    const int64_t size = value_bytes(b, tensor, array), cols = t->whole.cols;
    const int64_t own =
        s->copy_at[(int64_t)(c->entry[which] - b->ntensor) * b->program->narray + array];
    void *copy = own < 0 ? NULL : (char *)b->block + s->at + own;
    int64_t first = 0, end = 0;
    switch (m->dom) {
    case GROUP: return t->mem[array];
    case ELEM:
        if (which == fold_entry(FOLD_FLAT, FOLD_GHOST) &&
            ghost_range(b, tensor, s->comm.rank, FOLD_FLAT, &first, &end))
            return moved_by(copy, -first * size);
        if (which >= ENTRY_ALL || which % 3 == FOLD_GHOST)
            return copy;
        return moved_by(t->mem[array], (x->before[ELEM] - c->first[s->comm.rank]) * size);
    case ROW:                                      /* partials: several per row */
        if (m->kind == MEM_PART)
            first = count_up(t->whole.cols, stage_info[m->by].cols);
        return moved_by(all->mem[array], x->before[ROW] * (m->kind == MEM_PART ? first : 1) * size);
    case COL:
        if (!col_partials(m))
            return moved_by(all->mem[array], which == ENTRY_COLS ? x->before[COL] * size : 0);
        if (which == ENTRY_ALL || which == ENTRY_COLS)
            return which == ENTRY_ALL ? copy : x->mem[array];
        if (same_everywhere(b, c))                 /* all tiles, and all columns */
            return c->entry[ENTRY_COLS] < 0 ? NULL : b->tensor[c->entry[ENTRY_COLS]].mem[array];
        return moved_by(all->mem[array], -tiles_of(b, tensor, m).first * cols * size);
    default: return m->kind == MEM_INPUT ? t->mem[array] : all->mem[array];
    }
}

CORE void rows_point(optc_binding *b, int tensor, int array)
{
    const Cut *c = &b->shards->cut[tensor];
    const ProgArray *m = &b->program->array[array];
    Tensor *t = &b->tensor[tensor];
    const bool held = m->kind == MEM_STATE || m->kind == MEM_TEMP || m->kind == MEM_PART;
    for (int i = 0; i < (int)NCUTENTRY; i++) {
        const int which = (i + ENTRY_ALL) % NCUTENTRY;         /* others are parts of ALL */
        int entry = c->entry[which];
        bool own =
            which == ENTRY_ALL && held && m->dom != ELEM && m->dom != GROUP && !col_partials(m);
        if (entry >= 0 && !own)                    /* else layout.c has set it */
            b->tensor[entry].mem[array] = rows_address(b, tensor, which, array);
    }
    if (held && m->dom != ELEM && m->dom != GROUP)
        t->mem[array] = col_partials(m)
                            ? NULL
                            : moved_by(b->tensor[c->entry[ENTRY_ALL]].mem[array],
                                       m->dom == ROW && m->kind != MEM_PART
                                           ? t->before[ROW] * value_bytes(b, tensor, array)
                                           : 0);
}
