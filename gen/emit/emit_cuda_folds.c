/* Reductions of the CUDA target: what a stage folds, and how it finishes what the stage before has
 * folded. */
#include "gen/emit/emit_cuda.h"

#include <string.h>

static int class_of(const Node *n)
{
    const char *k = emit_red_kind(n);
    return is_norm(n)          ? CLASS_NORM
           : !strcmp(k, "max") ? CLASS_MAX
           : !strcmp(k, "min") ? CLASS_MIN
                               : CLASS_SUM;
}
static const char *fold_class(const Node *n)
{
    static const char *const name[NCLASS] = {[CLASS_SUM] = "optc_sum", [CLASS_MAX] = "optc_maxi",
                                             [CLASS_MIN] = "optc_mini", [CLASS_NORM] = "optc_sum"};
    return name[class_of(n)];
}
/* The class that adds a value to a lane. Lanes of norms add the square. */
static const char *add_class(const Node *n) { return is_norm(n) ? "optc_squares" : fold_class(n); }

/* ---- finishing reductions ---- */
/* Folds a row of a whole array by a warp, or a column by eight threads (32 columns per thread
 * block). If the stage itself folds values that depend on the result, warps fold the rows before
 * each chunk, and one thread folds each column; neighbouring threads then read neighbouring
 * columns. */
static void finish_array(CudaStage *c, Access f)
{
    Emit *e = &c->e;
    const Mem *m = &e->plan->mem[f.mem];
    const Node *n = &e->g->n[f.val];
    bool down = emit_folds_down(e, f), packed = *type_info[m->type].load;
    const char *name = emit_raw_name(e, f.val);
    const char *from = emit_folded_from(e, f), *entries = emit_folded_count(e, f);
    from = arena_printf(e->arena, "%s + i%s%s", from, down ? "" : " * ", down ? "" : entries);
    from = packed ? arena_printf(e->arena, "optc_%ss{%s}", type_info[m->type].name, from) : from;
    const Hole h[] = {
        {"name", name},
        {"class", fold_class(n)},
        {"real", emit_fold_real(e, n)},
        {"from", is_norm(n) ? arena_printf(e->arena, "optc_squares_of(%s)", from) : from},
        {"entries", entries},
        {"stride", down ? emit_axis(e, m->dom, 1) : "1"},
        {"chunk", number(c, list_chunk(e->plan, e->st))}};
    bool lanes = c->form == FORM_LANES, ahead = rows_ahead(e->plan, e->st);
    if (ahead)
        emit_section(e, AT_BUFFERS, "array_room", h, sizeof h / sizeof *h);
    const char *section = ahead   ? "array_ahead"
                          : lanes ? "array_alone"
                          : down  ? "array_down"
                                  : "array_across";
    EmitHole to = lanes && !ahead ? AT_BODY : AT_FINS;
    emit_section(e, to, section, h, sizeof h / sizeof *h);
    if (ahead)
        name = arena_printf(e->arena, "(%s)%s[i - first]", emit_fold_real(e, n), name);
    emit_finished(e, ahead ? AT_BODY : to, f.val, name);
}

void cuda_finish(CudaStage *c, Access f)
{
    Emit *e = &c->e;
    const Mem *m = &e->plan->mem[f.mem];
    if (m->kind != MEM_PART) {
        finish_array(c, f);
        return;
    }
    const char *name = emit_raw_name(e, f.val);
    bool single = is_single(e->st->kind),
         shared = single || c->form == FORM_COLS || c->form == FORM_SLICES;
    const Hole h[] = {{"name", name},
                      {"class", fold_class(&e->g->n[f.val])},
                      {"type", type_info[m->type].c},
                      {"part", emit_array(e, f, false)},
                      {"per_row", emit_parts_per_row(e->arena, m)},
                      {"per_slice", emit_parts_per_slice(e, m)},
                      {"tiles", emit_parts_per_col(e->arena, m)},
                      {"count", single ? emit_parts_of(e, m) : ""}};
    const char *section = single                     ? "finish_single"
                          : c->form == FORM_COLS   ? "finish_cols"
                          : c->form == FORM_SLICES ? "finish_slices"
                                                   : emit_finish(m);
    emit_section(e, shared ? AT_FINS : AT_BODY, section, h, sizeof h / sizeof *h);
    emit_finished(e, shared ? AT_FINS : AT_BODY, f.val, name);
}

/* FORM_COLS: whether a column has at most a value per lane, in everything that the stage
 * finishes. */
const char *cuda_columns_alone(CudaStage *c)
{
    Emit *e = &c->e;
    Buf b = {.arena = e->arena};
    for (int i = 0; i < e->st->nfin; i++) {
        Access f = e->st->fin[i];
        const Mem *m = &e->plan->mem[f.mem];
        buf_printf(&b, "%s%s <= OPTC_COL_LANES", i ? " && " : "",
                   m->kind != MEM_PART ? emit_folded_count(e, f) : emit_parts_per_col(e->arena, m));
    }
    return buf_text(&b);
}

/* ---- folds ---- */
/* The lanes of a row. If columns are folded too, a warp processes eight rows at once; otherwise it
 * walks one or two rows to their end. */
static void row_lanes(CudaStage *c, Access f, const char *x)
{
    Emit *e = &c->e;
    const Node *n = &e->g->n[f.val];
    bool one = c->form == FORM_ROWS;
    const char *acc = emit_joined(e, emit_value_name(e, f.val), "row"),
               *all = emit_joined(e, acc, "all");
    const Hole h[] = {{"real", emit_fold_real(e, n)},
                      {"class", fold_class(n)},
                      {"add", add_class(n)},
                      {"acc", acc},
                      {"all", all},
                      {"x", x}};
    emit_section(e, one ? AT_ROWSTART : AT_BUFFERS, one ? "lines_start" : "eight_start", h, 6);
    emit_section(e, AT_BODY, one ? "lines_add" : "eight_add", h, 6);
    emit_section(e, one ? AT_ROWEND : AT_FINISH, one ? "lines_end" : "eight_end", h, 6);
    c->rowfold[n->arg[0] * NCLASS + class_of(n)] = arena_printf(e->arena, "%s[k]", all);
}

/* Stores the results of a tile's rows as partials of the rows, or folds them to one value of the
 * tile. */
static void fold_rows(CudaStage *c, Access f, const char *x)
{
    Emit *e = &c->e;
    const Node *n = &e->g->n[f.val];
    int at = n->arg[0] * NCLASS + class_of(n);
    const char *part = cuda_pointer(c, f), *tile = stage_info[e->st->kind].id;
    if (!c->rowfold[at])
        row_lanes(c, f, x);
    const char *shared = n->dom == ROW ? "" : emit_joined(e, emit_value_name(e, f.val), "rows");
    const char *row =
        arena_printf(e->arena, "(slice * self->rows + block * OPTC_%s_ROWS + line)", tile);
    const char *to = n->dom == ROW ? arena_printf(e->arena, "%s[%s]", part, emit_slot(e, f, row))
                                   : arena_printf(e->arena, "%s[line]", shared);
    const Hole h[] = {{"real", emit_fold_real(e, n)},
                      {"class", fold_class(n)},
                      {"shared", shared},
                      {"tile", tile},
                      {"part", part},
                      {"to", to},
                      {"all", c->rowfold[at]},
                      {"at", n->dom == ROW ? "" : emit_slot(e, f, "u.unit")},
                      {"warps", number(c, c->knob[KNOB_THREADS] / 32)}};
    int nh = sizeof h / sizeof *h;
    if (n->dom != ROW) {
        emit_section(e, AT_BUFFERS, "rows_shared", h, nh);
        emit_section(e, AT_LAST, "rows_end", h, nh);
    }
    bool band = c->form == FORM_ROWS;
    emit_section(e, band ? AT_ROWEND : AT_FINISH, band ? "row_of_lines" : "row_of_eight", h, nh);
}

/* Column folds of eight warps: stores their lanes in shared memory, and folds them each time
 * `strips` strips are complete. */
static const char *column_strips(CudaStage *c, int strips, const char *keep, const char *end)
{
    const char *when =
        strips == 1
            ? ""
            : arena_printf(c->e.arena,
                           "if (from / OPTC_LANES %% %d == %d || from + OPTC_LANES >= count) ",
                           strips, strips - 1);
    return emit_filled(
        &c->e, "column_strips",
        (Hole[]){{"keep", keep}, {"when", when}, {"strips", number(c, strips)}, {"end", end}}, 4);
}

static void fold_columns(CudaStage *c, Access f, const char *x)
{
    Emit *e = &c->e;
    const Node *n = &e->g->n[f.val];
    const char *part = cuda_pointer(c, f), *label = emit_value_name(e, f.val),
               *acc = emit_joined(e, label, "col"), *shared = emit_joined(e, label, "cols");
    int strips = tile_strips(e->plan, e->st), in_strips = !strips;
    if (in_strips && !c->strip)
        c->strip = shared;
    const Hole h[] = {
        {"real", emit_fold_real(e, n)},
        {"class", fold_class(n)},
        {"add", add_class(n)},
        {"acc", acc},
        {"x", x},
        {"part", part},
        {"at", emit_slot(e, f, "start + first + l")},
        {"s", emit_name(e, "s")},
        {"shared", in_strips ? c->strip : shared},
        {"strips", number(c, in_strips ? 1 : strips)},
        {"strip", strips > 1 ? arena_printf(e->arena, "from %% %d + ", strips * LANES) : ""}};
    int nh = sizeof h / sizeof *h;
    if (!in_strips || c->strip == shared)
        emit_section(e, AT_BUFFERS, "column_shared", h, nh);
    emit_section(e, AT_COLSTART, "four_start", h, nh);
    emit_section(e, AT_BODY, "column_add", h, nh);
    const char *keep = emit_filled(e, "column_keep", h, nh),
               *end = emit_filled(e, "column_end", h, nh);
    if (in_strips) {
        buf_puts(&e->at[AT_COLSTRIPS], column_strips(c, 1, keep, end));
    } else {
        buf_puts(&e->at[AT_COLKEEP], keep);
        buf_puts(&e->at[AT_COLEND], end);
    }
}

const char *cuda_column_finish(CudaStage *c)
{
    Emit *e = &c->e;
    if (e->at[AT_COLSTRIPS].len)
        return buf_text(&e->at[AT_COLSTRIPS]);
    if (!e->at[AT_COLEND].len)
        return "";
    return column_strips(c, tile_strips(e->plan, e->st), buf_text(&e->at[AT_COLKEEP]),
                         buf_text(&e->at[AT_COLEND]));
}

void cuda_fold(CudaStage *c, Access f)
{
    Emit *e = &c->e;
    const Stage *s = e->st;
    const Node *n = &e->g->n[f.val];
    Ref r = emit_folded(e, f);
    if (emit_fold_single(e, f))
        return;
    if (!e->text[r]) {                              /* several folds may use it: it needs a name */
        const char *x = emit_expr(e, r), *name = emit_name(e, emit_value_name(e, r));
        emit_put(e, AT_BODY, "const %s %s = %s;\n", emit_real(e), name, x);
        e->text[r] = name;
    }
    if (is_tiled(s->kind)) {
        (n->dom == COL ? fold_columns : fold_rows)(c, f, e->text[r]);
        return;
    }
    bool list = c->form == FORM_LANES, block = folds_by_block(c);
    const char *label = emit_value_name(e, f.val), *acc = emit_joined(e, label, "lanes"),
               *all = emit_joined(e, acc, "all"),
               *four = block ? emit_joined(e, label, "four") : "";
    const Hole h[] = {
        {"real", emit_fold_real(e, n)},
        {"class", fold_class(n)},
        {"add", add_class(n)},
        {"acc", acc},
        {"all", all},
        {"x", list && is_norm(n) ? emit_square(e, e->text[r]) : e->text[r]},
        {"array", emit_array(e, f, true)},
        {"at", emit_slot(e, f, "u.unit")},
        {"shared", list || block ? emit_joined(e, label, "values") : ""},
        {"chunk", list ? number(c, list_chunk(e->plan, s)) : ""},
        {"value", emit_real(e)},
        {"threads", number(c, c->knob[KNOB_THREADS])},
        {"group", number(c, block ? c->nfold++ % (c->knob[KNOB_THREADS] / LANES) : 0)},
        {"four", four}};
    int nh = sizeof h / sizeof *h;
    if (block) {
        emit_section(e, AT_BUFFERS, "lane_start", h, nh);
        emit_put(e, AT_OUTS, "%s %s[4];\n", emit_real(e), four);
        emit_put(e, AT_BODY, "%s[i] = %s;\n", four, e->text[r]);
        emit_section(e, AT_STORES, "lane_keep", h, nh);
        emit_section(e, AT_ROWEND, "lane_add", h, nh);
        emit_section(e, AT_FINISH, "lane_end", h, nh);
        return;
    }
    emit_section(e, AT_BUFFERS, list ? "list_start" : "four_start", h, nh);
    emit_section(e, AT_BODY, list ? "list_add" : "four_add", h, nh);
    if (list)
        emit_section(e, AT_ROWEND, "list_lanes", h, nh);
    emit_section(e, AT_FINISH, list ? "list_end" : "four_end", h, nh);
    if (!list)
        emit_section(e, AT_FINISH, "four_store", h, nh);
}
