/* Text of reductions that all targets share: types of folds, and the index and number of their
 * partials. templates/partials.h has the layout. */
#include "gen/emit/emit.h"

#include <string.h>

const char *emit_red_kind(const Node *n)
{
    switch (n->op) {
    case OP_RMAX: case OP_GMAX: return "max";
    case OP_RMIN: case OP_GMIN: return "min";
    default: return "sum";
    }
}

const char *emit_fold_real(const Emit *e, const Node *n)
{
    return is_norm(n) ? "double" : emit_real(e);
}
const char *emit_fold_suffix(const Emit *e, const Node *n)
{
    return is_norm(n) ? "" : emit_suffix(e);
}

const char *emit_square(Emit *e, const char *x)
{
    return !strcmp(emit_real(e), "double")
               ? arena_printf(e->arena, "%s * %s", x, x)
               : arena_printf(e->arena, "(double)%s * (double)%s", x, x);
}

const char *emit_raw_name(Emit *e, Ref r)
{
    const char *name = emit_value_name(e, r);
    return is_norm(&e->g->n[r]) ? emit_joined(e, name, "squares") : emit_name(e, name);
}

void emit_finished(Emit *e, EmitHole to, Ref r, const char *raw)
{
    const Node *n = &e->g->n[r];
    e->text[r] = raw;
    if (!is_norm(n))
        return;
    if (n->op == OP_RMS)
        raw = arena_printf(e->arena, "%s / (double)(%s)", raw, emit_count(e, n));
    const char *cast = !strcmp(emit_real(e), "double") ? "" : "(float)";
    emit_define(e, to, r, emit_name(e, emit_value_name(e, r)),
                arena_printf(e->arena, "%ssqrt(%s)", cast, raw));
}

/* templates/partials.h describes the layout of partials. */
const char *emit_parts_per_row(Arena *a, const Mem *m)
{
    return arena_printf(a, "optc_up(self->whole_cols, OPTC_%s_COLS)", stage_info[m->by].id);
}

const char *emit_parts_per_col(Arena *a, const Mem *m)
{
    return arena_printf(a, "optc_up(self->whole_rows, OPTC_%s_ROWS)", stage_info[m->by].id);
}

const char *emit_parts_per_slice(Emit *e, const Mem *m)
{
    const char *tile = stage_info[m->by].id;
    if (m->from == ELEM)
        return arena_printf(
            e->arena,
            "optc_up(self->whole_rows, OPTC_%s_ROWS) * optc_up(self->whole_cols, OPTC_%s_COLS)",
            tile, tile);
    return arena_printf(e->arena, "optc_up(%s, OPTC_SEG)", emit_whole_length(e, m->from));
}

const char *emit_finish(const Mem *m)
{
    return dom_wide(m->dom)                       ? "finish_slice"
           : dom_info[m->dom].axis[1] == AXIS_ONE ? "finish_row"
                                                  : "finish_col";
}

const char *emit_parts_of(Emit *e, const Mem *m)
{
    if (e->st->kind == S_GROUP)
        return "self->ntensors";
    if (dom_of_block(m->from))
        return emit_block_values(e, m->from, true);
    if (m->from == ELEM && m->by == S_FLAT)
        return "optc_up(self->whole_n, OPTC_SEG)";
    const char *parts = emit_parts_per_slice(e, m);
    return dom_wide(m->from) ? parts : arena_printf(e->arena, "self->whole_slices * %s", parts);
}

static const char *tile_slot(Emit *e, const Mem *m, const char *own)
{
    const char *id = stage_info[m->by].id;
    if (m->dom == ROW)
        return arena_printf(e->arena, "%s * %s + optc_cols_inside(self) / OPTC_%s_COLS + seg", own,
                            emit_parts_per_row(e->arena, m), id);
    if (m->dom == COL)
        return arena_printf(
            e->arena,
            "(slice * %s + optc_rows_inside(self) / OPTC_%s_ROWS + block) * self->cols + %s",
            emit_parts_per_col(e->arena, m), id, own);
    return arena_printf(e->arena, "optc_tiles_%s(self, OPTC_%s_ROWS, OPTC_%s_COLS) + %s",
                        dom_inside(m->dom) ? "inside" : "before", id, id, own);
}

static const char *list_slot(Emit *e, const Mem *m, const char *own)
{
    const char *inside = m->from == ROW   ? "optc_rows_inside(self)"
                         : m->from == COL ? "optc_cols_inside(self)"
                                          : "0";
    if (dom_wide(m->from))
        return arena_printf(e->arena, "self->first_slice / OPTC_SEG + %s", own);
    if (dom_inside(m->dom))
        return arena_printf(e->arena, "%s / OPTC_SEG + %s", inside, own);
    return arena_printf(e->arena, "optc_segs_before(self, %s, %s) + %s", inside,
                        emit_whole_length(e, m->from), own);
}

const char *emit_slot(Emit *e, Access f, const char *own)
{
    const Mem *m = &e->plan->mem[f.mem];
    if (m->from != ELEM)
        return list_slot(e, m, own);
    return m->by == S_FLAT ? arena_printf(e->arena, "self->first / OPTC_SEG + %s", own)
                           : tile_slot(e, m, own);
}
