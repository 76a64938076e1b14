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
 * columns and segments have the same numbers as in one process. */
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
        const ProgArray *m = &p->array[k < s->nreads ? s->reads[k] : s->writes[k - s->nreads]];
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

/* Rows of tiles that touch the piece, for the partials of an array. */
static Lines tiles_of(const optc_binding *b, int tensor, const ProgArray *m)
{
    const int rows = stage_info[m->by].rows;
    Lines r = rows_of(&b->shards->cut[tensor], b->tensor[tensor].whole.cols, b->shards->comm.rank);
    Lines t = {r.first / rows, count_up(r.end, rows)};
    t.end = r.first < r.end ? t.end : t.first;
    return t;
}

CORE bool rows_ghost(const optc_binding *b, int tensor, int rank, RowsEntry ghost, int64_t *first,
                     int64_t *end)
{
    const Cut *c = &b->shards->cut[tensor];
    const Shape s = b->tensor[tensor].whole;
    const int64_t tile = stage_info[ghost == ROWS_TILE_GHOST ? S_TILE : S_BAND].rows * s.cols;
    if (!c->primary[rank] || same_everywhere(b, c))
        return false;
    if (ghost == ROWS_FLAT_GHOST)
        return ghost_range(c, rank, s.n, first, end);
    *first = (c->end[rank] - 1) / tile * tile;
    *end = *first + tile < s.n ? *first + tile : s.n;
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

/* first: the row that the entry's pointers point to */
static optc_status add_rows(optc_binding *b, int tensor, Role role, RowsEntry which, Shape shape,
                            int64_t first, int64_t first_unit)
{
    int *entry = &b->shards->cut[tensor].rows[which];
    optc_status s = add_entry(b, tensor, role, shape, first * shape.cols, entry);
    if (s != OPTC_OK)
        return s;
    Tensor *x = &b->tensor[*entry];
    x->before[ROW] = first;
    x->borrows = role != ROLE_ALL;
    x->first_unit = first_unit;
    return OPTC_OK;
}

/* Head: up to the first whole segment. The rest sees the tensor from its beginning to the end of
 * the piece. */
static optc_status add_flat(optc_binding *b, int tensor)
{
    const Cut *c = &b->shards->cut[tensor];
    const Tensor *t = &b->tensor[tensor];
    const int64_t cols = t->whole.cols, first = c->first[b->shards->comm.rank],
                  end = c->end[b->shards->comm.rank];
    int64_t cut = count_up(first, OPTC_SEG) * OPTC_SEG, from, to;
    optc_status s = OPTC_OK;
    cut = cut < end ? cut : end;
    if (first < cut)
        s = add_rows(b, tensor, ROLE_FLAT, ROWS_FLAT_HEAD,
                     rows_shape(t, cut - first, (end - first) / cols), first / cols, 0);
    if (s == OPTC_OK && cut < end)
        s = add_rows(b, tensor, ROLE_FLAT, ROWS_FLAT, rows_shape(t, end, end / cols), 0,
                     cut / OPTC_SEG);
    if (s == OPTC_OK && rows_ghost(b, tensor, b->shards->comm.rank, ROWS_FLAT_GHOST, &from, &to))
        s = add_rows(b, tensor, ROLE_FLAT_GHOST, ROWS_FLAT_GHOST,
                     rows_shape(t, to, count_up(to, cols)), 0, from / OPTC_SEG);
    return s;
}

static optc_status add_tiles(optc_binding *b, int tensor, StageKind kind)
{
    const Role role = kind == S_TILE ? ROLE_TILE : ROLE_BAND,
               of_ghost = kind == S_TILE ? ROLE_TILE_GHOST : ROLE_BAND_GHOST;
    const RowsEntry head = kind == S_TILE ? ROWS_TILE_HEAD : ROWS_BAND_HEAD,
                    rest = kind == S_TILE ? ROWS_TILE : ROWS_BAND;
    const RowsEntry ghost = kind == S_TILE ? ROWS_TILE_GHOST : ROWS_BAND_GHOST;
    const int tile = stage_info[kind].rows, *has = b->shards->role[rule_variant(b, tensor)];
    const Cut *c = &b->shards->cut[tensor];
    const Tensor *t = &b->tensor[tensor];
    const int64_t cols = t->whole.cols;
    const Lines r = rows_of(c, cols, b->shards->comm.rank);
    int64_t cut = count_up(r.first, tile) * tile, from, to;
    optc_status s = OPTC_OK;
    cut = cut < r.end ? cut : r.end;
    if (r.first < cut)
        s = add_rows(b, tensor, role, head, rows_shape(t, (cut - r.first) * cols, cut - r.first),
                     r.first, 0);
    if (s == OPTC_OK && cut < r.end)
        s = add_rows(b, tensor, role, rest, rows_shape(t, (r.end - cut) * cols, r.end - cut), cut,
                     0);
    if (s == OPTC_OK && has[of_ghost] >= 0 &&
        rows_ghost(b, tensor, b->shards->comm.rank, ghost, &from, &to))
        s = add_rows(b, tensor, of_ghost, ghost, rows_shape(t, to - from, (to - from) / cols),
                     from / cols, 0);
    return s;
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
    optc_status s = add_rows(b, tensor, ROLE_ALL, ROWS_ALL, t->whole, 0, 0);
    if (s == OPTC_OK && role[ROLE_FLAT] >= 0 && t->shape.n)
        s = add_flat(b, tensor);
    if (s == OPTC_OK && role[ROLE_TILE] >= 0 && t->shape.n)
        s = add_tiles(b, tensor, S_TILE);
    if (s == OPTC_OK && role[ROLE_BAND] >= 0 && t->shape.n)
        s = add_tiles(b, tensor, S_BAND);
    if (s == OPTC_OK && role[ROLE_COLS] >= 0 && cols.first < cols.end) {
        Shape range = rows_shape(t, t->whole.rows * (cols.end - cols.first), t->whole.rows);
        range.cols = cols.end - cols.first;
        s = add_rows(b, tensor, ROLE_COLS, ROWS_COLS, range, 0, 0);
        /* stochastic rounding numbers columns by `first`, draws by COL */
        if (s == OPTC_OK) {
            b->tensor[c->rows[ROWS_COLS]].before[ELEM] = cols.first;
            b->tensor[c->rows[ROWS_COLS]].before[COL] = cols.first;
        }
    }
    c->owned = c->owner == b->shards->comm.rank ? c->rows[ROWS_ALL] : -1;
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

/* A role of a variant has a stage that uses the array. */
static bool rows_uses(const optc_binding *b, int variant, Role role, int array)
{
    const Program *p = b->rule->program;
    for (int i = 0; i < p->nstage; i++) {
        const ProgStage *s = &p->stage[i];
        bool uses = false;
        if (s->kind == S_GROUP || s->variant != variant || rows_role(p, s) != role)
            continue;
        for (int k = 0; k < s->nreads + s->nwrites; k++)
            uses = uses || (k < s->nreads ? s->reads[k] : s->writes[k - s->nreads]) == array;
        if (uses)
            return true;
    }
    return false;
}

static RowsEntry ghost_entry(Role role)             /* NROWS_ENTRY: no role of a ghost */
{
    return role == ROLE_FLAT_GHOST   ? ROWS_FLAT_GHOST
           : role == ROLE_TILE_GHOST ? ROWS_TILE_GHOST
           : role == ROLE_BAND_GHOST ? ROWS_BAND_GHOST
                                     : NROWS_ENTRY;
}

/* Ghosts have copies of elements. The partials of columns of the piece's tiles are with the entry
 * of all rows. */
CORE int64_t rows_copy(const optc_binding *b, int entry, int array)
{
    const ProgArray *m = &b->rule->program->array[array];
    const Tensor *x = &b->tensor[entry];
    const int variant = rule_variant(b, entry);
    const Role role = entry_role(b, entry);
    const RowsEntry ghost = ghost_entry(role);
    int64_t first, end;
    if (role == ROLE_ALL && col_partials(m) && !same_everywhere(b, &b->shards->cut[x->source]) &&
        m->held_by >> variant & 1) {
        Lines t = tiles_of(b, x->source, m);
        return (t.end - t.first) * x->whole.cols * value_bytes(b, x->source, array);
    }
    Role of = ghost == ROWS_FLAT_GHOST   ? ROLE_FLAT
              : ghost == ROWS_TILE_GHOST ? ROLE_TILE
                                         : ROLE_BAND;
    if (m->dom != ELEM || ghost == NROWS_ENTRY || !rows_uses(b, variant, of, array) ||
        !rows_ghost(b, x->source, b->shards->comm.rank, ghost, &first, &end))
        return 0;
    return (end - first) * value_bytes(b, x->source, array);
}

static void *moved_by(void *p, int64_t bytes)
{
    return p ? (void *)((uintptr_t)p + (uintptr_t)bytes) : NULL;
}

/* The address in an entry of the array's first value, as the entry numbers them. */
static void *rows_address(const optc_binding *b, int tensor, RowsEntry which, int array)
{
    const Shards *s = b->shards;
    const Cut *c = &s->cut[tensor];
    const Tensor *t = &b->tensor[tensor], *all = &b->tensor[c->rows[ROWS_ALL]],
                 *x = &b->tensor[c->rows[which]];
    const ProgArray *m = &b->program->array[array];
    const int64_t size = value_bytes(b, tensor, array), cols = t->whole.cols;
    const int64_t own =
        s->copy_at[(int64_t)(c->rows[which] - b->ntensor) * b->program->narray + array];
    void *copy = own < 0 ? NULL : (char *)b->block + s->at + own;
    int64_t first = 0, end = 0;
    switch (m->dom) {
    case GROUP: return t->mem[array];
    case ELEM:
        if (which == ROWS_FLAT_GHOST && rows_ghost(b, tensor, s->comm.rank, which, &first, &end))
            return moved_by(copy, -first * size);
        if (which == ROWS_TILE_GHOST || which == ROWS_BAND_GHOST || which == ROWS_ALL ||
            which == ROWS_COLS)
            return copy;
        return moved_by(t->mem[array], (x->before[ELEM] - c->first[s->comm.rank]) * size);
    case ROW:                                      /* partials: several per row */
        if (m->kind == MEM_PART)
            first = count_up(t->whole.cols, stage_info[m->by].cols);
        return moved_by(all->mem[array], x->before[ROW] * (m->kind == MEM_PART ? first : 1) * size);
    case COL:
        if (!col_partials(m))
            return moved_by(all->mem[array], which == ROWS_COLS ? x->before[COL] * size : 0);
        if (which == ROWS_ALL || which == ROWS_COLS)
            return which == ROWS_ALL ? copy : x->mem[array];
        if (same_everywhere(b, c))                 /* all tiles, and all columns */
            return c->rows[ROWS_COLS] < 0 ? NULL : b->tensor[c->rows[ROWS_COLS]].mem[array];
        return moved_by(all->mem[array], -tiles_of(b, tensor, m).first * cols * size);
    default: return m->kind == MEM_INPUT ? t->mem[array] : all->mem[array];
    }
}

CORE void rows_point(optc_binding *b, int tensor, int array)
{
    static const RowsEntry order[] = {
        ROWS_ALL,        ROWS_FLAT_HEAD, ROWS_FLAT, ROWS_FLAT_GHOST, ROWS_TILE_HEAD, ROWS_TILE,
        ROWS_TILE_GHOST, ROWS_BAND_HEAD, ROWS_BAND, ROWS_BAND_GHOST, ROWS_COLS};
    const Cut *c = &b->shards->cut[tensor];
    const ProgArray *m = &b->program->array[array];
    Tensor *t = &b->tensor[tensor];
    const bool held = m->kind == MEM_STATE || m->kind == MEM_TEMP || m->kind == MEM_PART;
    for (int i = 0; i < (int)NROWS_ENTRY; i++) {
        int entry = c->rows[order[i]];
        bool own =
            order[i] == ROWS_ALL && held && m->dom != ELEM && m->dom != GROUP && !col_partials(m);
        if (entry >= 0 && !own)                    /* else layout.c has set it */
            b->tensor[entry].mem[array] = rows_address(b, tensor, order[i], array);
    }
    if (held && m->dom != ELEM && m->dom != GROUP)
        t->mem[array] = col_partials(m)
                            ? NULL
                            : moved_by(b->tensor[c->rows[ROWS_ALL]].mem[array],
                                       m->dom == ROW && m->kind != MEM_PART
                                           ? t->before[ROW] * value_bytes(b, tensor, array)
                                           : 0);
}
