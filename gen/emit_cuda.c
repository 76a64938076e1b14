/* The CUDA target: one kernel a stage, over the templates of stage_cuda.txt. A thread takes a few elements in a row;
 * the order of every reduction is the CPU's, however launch.h cuts the work. */
#include "emit.h"
#include "prelude.h"

#include <string.h>

static const char *const reserved[] = {
    "self",   "view",  "a",       "u",     "unit",      "start",    "count",    "from",    "left",     "offset",
    "first",  "block", "blocks",  "row",   "col",       "slice",    "segs",     "seg",     "rows",     "line",
    "lane",   "here",  "warp",    "wide",  "across",    "last",     "top",      "down",    "near",     "ends",
    "batch",  "i",     "k",       "l",     "made",      "pair",     "shared",   "place",   "nth",      "piece",
    "pieces", "walk",  "aligned", "steps", "threadIdx", "blockIdx", "blockDim", "gridDim", "warpSize", "turn",
    "strip",  "room",  "inside",  "end",   NULL};
static const char *const prelude[] = {"abi.h",   "math.h",  "math_f32.h", "math_f64.h", "random.h",
                                      "types.h", "shape.h", "cuda.h",     "pieces.h",   NULL};
const Target emit_cuda_target = {"cuda", "stage_cuda.txt", "__restrict__", prelude, reserved};

typedef struct CudaStage {
    Emit e;
    LaunchForm form;
    const int *knob;               /* of its launch */
    int vec;
    Buf wide;                      /* what must be aligned for whole vectors, as a condition */
    const char **rowfold; /* by node folded and class: the name of its rows' results, where a fold before made them */
    bool by_matrix;       /* of a flat pass: nothing but values of matrices is looked up */
    const char *turn;     /* the strip that column folds take in turn, where there is not room for one of each */
} CudaStage;

enum { NCLASS = 3 };
static int class_of(const Node *n)
{
    const char *k = emit_red_kind(n);
    return !strcmp(k, "max") ? 1 : !strcmp(k, "min") ? 2 : 0;
}
static const char *fold_class(const Node *n)
{
    return ((const char *const[NCLASS]){"optc_sum", "optc_maxi", "optc_mini"})[class_of(n)];
}

static const char *number(CudaStage *c, int64_t x) { return arena_printf(c->e.arena, "%d", (int)x); }

/* A list over two axes is walked as the elements are. */
static bool in_vectors(const CudaStage *c) { return c->form <= FORM_ROWS; }
static bool squares(const CudaStage *c) { return is_list(c->e.st->kind) && in_vectors(c); }

/* ---- loads ---- */
static void must_align(CudaStage *c, const char *x)
{
    buf_printf(&c->wide, "%soptc_wide<%d>(%s)", c->wide.len ? " && " : "", c->vec, x);
}

static const char *pointer(CudaStage *c, Access a)
{
    bool known = c->e.ptr[a.mem] != NULL;
    const char *ptr = emit_pointer(&c->e, a, in_vectors(c) ? "" : " + offset");
    if (!known && in_vectors(c) && emit_dom(&c->e, a) == stage_info[c->e.st->kind].dom)
        must_align(c, ptr);
    return ptr;
}

/* Where vectors are loaded to: a small array in the loop, or one for all vectors of a thread (of a tile: for its eight
 * rows) where those are loaded ahead. *value: inside the loop over a vector, its i-th value. */
static const char *vector_in(CudaStage *c, const char *label, Type t, const char **value)
{
    Emit *e = &c->e;
    const char *name = emit_joined(e, label, "in"), *type = type_info[t].c;
    bool ahead = c->form == FORM_MAP || c->form == FORM_TILE;
    if (c->form == FORM_MAP)
        emit_put(e, AT_BUFFERS, "%s %s[%d][%d];\n", type, name, c->knob[KNOB_ITEMS], c->vec);
    else if (ahead)
        emit_put(e, AT_COLSTART, "%s %s[OPTC_TILE_ROWS / 8][%d];\n", type, name, c->vec);
    else
        emit_put(e, AT_LOADS, "%s %s[%d];\n", type, name, c->vec);
    const char *vector = ahead ? arena_printf(e->arena, "%s[k]", name) : name;
    *value = arena_printf(e->arena, "%s[i]", vector);
    return vector;
}

static void load_vector(CudaStage *c, Access a)
{
    Emit *e = &c->e;
    Type t = e->plan->mem[a.mem].type;
    const char *ptr = pointer(c, a), *value, *vector = vector_in(c, ptr, t, &value);
    emit_part(e, AT_LOADS, "get", (Hole[]){{"hint", number(c, c->knob[KNOB_LOAD])}, {"to", vector}, {"x", ptr}}, 3);
    value = emit_entry(e, a, value);
    if (e->uses[a.val] == 1 && e->g->n[a.val].ty == NUM)
        e->text[a.val] = value;
    else
        emit_define(e, AT_BODY, a.val, emit_joined(e, ptr, "i"), value);
}

static void load_listed(CudaStage *c, Access a)
{
    Emit *e = &c->e;
    const char *ptr = pointer(c, a);
    emit_define(e, AT_BODY, a.val, emit_joined(e, ptr, "i"), emit_entry(e, a, arena_printf(e->arena, "%s[i]", ptr)));
}

/* Of a list over two axes: the value of the row or column, or the entry at the exchanged place. */
static void load_along(CudaStage *c, Access a, DomPlace at)
{
    Emit *e = &c->e;
    const Mem *m = &e->plan->mem[a.mem];
    Dom own = stage_info[e->st->kind].dom, d = emit_dom(e, a);
    bool turned = emit_turned(e, a);
    const char *value, *vector = vector_in(c, a.name, m->type, &value);
    const char *x = arena_printf(e->arena, "%s + slice * %s", emit_array(e, a, false), emit_length(e, d));
    const Hole h[] = {{"how", turned ? "turned" : at == PLACE_DOWN ? "down" : "across"},
                      {"to", vector},
                      {"x", x},
                      {"across", emit_axis(e, own, 1)},
                      {"down", turned ? arena_printf(e->arena, "%s, ", emit_axis(e, own, 0)) : ""}};
    emit_part(e, AT_LOADS, "get_along", h, sizeof h / sizeof *h);
    if (at == PLACE_ACROSS && m->kind == MEM_INPUT)
        must_align(c, x);
    emit_define(e, AT_BODY, a.val, emit_array_name(e, a), emit_entry(e, a, value));
}

/* Row, column and slice values of a flat pass: a vector at a time as well. */
static void load_placed(CudaStage *c, Access a, DomPlace at)
{
    Emit *e = &c->e;
    const Mem *m = &e->plan->mem[a.mem];
    const char *how = at == PLACE_DOWN ? "rows" : at == PLACE_ACROSS ? "cols" : "slices";
    const char *array = emit_array(e, a, false), *value;
    const char *vector = vector_in(c, a.name, m->type, &value);
    emit_part(e, AT_LOADS, c->by_matrix ? "get_matrix" : "get_placed", (Hole[]){{"how", how}, {"to", vector}, {"x", array}}, 3);
    if (at == PLACE_ACROSS && m->kind == MEM_INPUT)            /* the caller's, aligned as it may be; ours always are */
        must_align(c, array);
    emit_define(e, AT_BODY, a.val, emit_array_name(e, a), emit_loaded(e, a, value));
}

/* The values of a tile's four columns: where a warp has several rows under way, once for all of them. */
static void load_columns(CudaStage *c, Access a)
{
    Emit *e = &c->e;
    const Mem *m = &e->plan->mem[a.mem];
    bool tile = c->form == FORM_TILE;
    const char *ptr = pointer(c, a), *four = emit_joined(e, ptr, "in");
    const Hole h[] = {{"type", type_info[m->type].c}, {"to", four}, {"x", ptr}, {"left", tile ? "across" : "left"}};
    emit_part(e, tile ? AT_COLSTART : AT_LOADS, "get_columns", h, 4);
    if (m->kind == MEM_INPUT)                          /* the caller's, aligned as it may be; ours always are */
        must_align(c, ptr);
    emit_define(e, AT_BODY, a.val, emit_joined(e, ptr, "i"), emit_loaded(e, a, arena_printf(e->arena, "%s[i]", four)));
}

/* A value of each of the eight rows of a tile that a warp has under way. */
static void load_row(CudaStage *c, Access a)
{
    Emit *e = &c->e;
    const char *ptr = pointer(c, a), *type = type_info[e->plan->mem[a.mem].type].c, *eight = emit_joined(e, ptr, "in");
    emit_put(e, AT_COLSTART, "%s %s[OPTC_TILE_ROWS / 8];\n", type, eight);
    emit_part(e, AT_LOADS, "get_row", (Hole[]){{"to", eight}, {"x", ptr}, {"type", type}}, 3);
    emit_define(e, AT_BODY, a.val, emit_joined(e, ptr, "i"), emit_loaded(e, a, arena_printf(e->arena, "%s[k]", eight)));
}

static void load_one(CudaStage *c, Access a)
{
    const Stage *s = c->e.st;
    DomPlace at = dom_find(stage_info[s->kind].dom, emit_dom(&c->e, a));
    bool tiled = is_tiled(s->kind), list = is_list(s->kind);
    if (at == PLACE_ONE)
        emit_load_scalar(&c->e, AT_HOISTED, a, "0");
    else if (list && at == PLACE_SAME && !in_vectors(c))
        load_listed(c, a);
    else if (list && (at == PLACE_DOWN || at == PLACE_ACROSS || emit_turned(&c->e, a)))
        load_along(c, a, at);
    else if (at == PLACE_SAME)
        load_vector(c, a);
    else if (tiled && at == PLACE_ACROSS)
        load_columns(c, a);
    else if (tiled && at == PLACE_DOWN && c->form == FORM_ROWS)
        emit_load_scalar(&c->e, AT_ROWSTART, a, "row");
    else if (tiled && at == PLACE_DOWN)
        load_row(c, a);
    else if (tiled || list)
        emit_load_scalar(&c->e, AT_HOISTED, a, "slice");
    else
        load_placed(c, a, at);
}

/* Of a pass in vectors places are found as row and column values are. */
static const char *index_vector(CudaStage *c, const char *how)
{
    Emit *e = &c->e;
    const char *value, *name = emit_joined(e, how, "in");
    bool map = c->form == FORM_MAP;
    emit_put(e, map ? AT_BUFFERS : AT_LOADS, "%s %s%s[%d];\n", emit_index_type(e), name,
             map ? arena_printf(e->arena, "[%d]", c->knob[KNOB_ITEMS]) : "", c->vec);
    value = arena_printf(e->arena, "%s%s", name, map ? "[k]" : "");
    Dom own = stage_info[e->st->kind].dom;
    const Hole h[] = {{"how", how}, {"to", value}, {"down", emit_axis(e, own, 0)}, {"across", emit_axis(e, own, 1)}};
    emit_part(e, AT_LOADS, squares(c) ? "index_along" : "index_placed", h, 4);
    return arena_printf(e->arena, "%s[i]", value);
}

static bool uses_op(const Emit *e, Op op)
{
    for (Ref r = 0; r < e->g->len; r++)
        if (e->uses[r] && e->g->n[r].op == op)
            return true;
    return false;
}

static void indices(CudaStage *c)
{
    bool down = uses_op(&c->e, OP_DOWN), across = uses_op(&c->e, OP_ACROSS);
    if (c->form == FORM_TILE)
        emit_indices(&c->e, (EmitIndex){"block * OPTC_TILE_ROWS + warp + 8 * k", ""}, (EmitIndex){"col", " + i"});
    else if (c->form == FORM_ROWS)
        emit_indices(&c->e, (EmitIndex){"row - slice * self->rows", ""}, (EmitIndex){"col", " + i"});
    else if (in_vectors(c))
        emit_indices(&c->e, (EmitIndex){down ? index_vector(c, "down") : "", ""}, (EmitIndex){across ? index_vector(c, "across") : "", ""});
    else
        emit_indices(&c->e, (EmitIndex){"start", " + i"}, (EmitIndex){"start", " + i"});
}

static bool looks_up_matrices(const CudaStage *c)
{
    const Stage *s = c->e.st;
    bool only = s->kind == S_FLAT && !uses_op(&c->e, OP_DOWN) && !uses_op(&c->e, OP_ACROSS);
    for (int i = 0; i < s->nload; i++) {
        DomPlace at = dom_find(ELEM, emit_dom(&c->e, s->load[i]));
        only = only && at != PLACE_DOWN && at != PLACE_ACROSS;
    }
    return only;
}

/* ---- finishing reductions ---- */
/* A row or column of a whole array: by a warp, by eight threads for each of 32 columns. Where the stage folds what follows from it, rows are done by
 * warps ahead of a chunk, columns by a thread each, whose neighbours read the next ones. */
static void finish_array(CudaStage *c, Access f)
{
    Emit *e = &c->e;
    const Mem *m = &e->plan->mem[f.mem];
    bool down = emit_folds_down(e, f), packed = *type_info[m->type].load;
    const char *name = emit_name(e, emit_value_name(e, f.val)), *from = emit_folded_from(e, f), *entries = emit_folded_count(e, f);
    from = arena_printf(e->arena, "%s + i%s%s", from, down ? "" : " * ", down ? "" : entries);
    const Hole h[] = {{"name", name},
                      {"class", fold_class(&e->g->n[f.val])},
                      {"real", emit_real(e)},
                      {"from", packed ? arena_printf(e->arena, "optc_%ss{%s}", type_info[m->type].name, from) : from},
                      {"entries", entries},
                      {"stride", down ? emit_axis(e, m->dom, 1) : "1"},
                      {"chunk", number(c, list_chunk(e->plan, e->st))}};
    bool lanes = c->form == FORM_LANES, ahead = rows_ahead(e->plan, e->st);
    if (ahead)
        emit_part(e, AT_BUFFERS, "array_room", h, sizeof h / sizeof *h);
    const char *section = ahead ? "array_ahead" : lanes ? "array_alone" : down ? "array_down" : "array_across";
    emit_part(e, lanes && !ahead ? AT_BODY : AT_FINS, section, h, sizeof h / sizeof *h);
    e->text[f.val] = ahead ? arena_printf(e->arena, "(%s)%s[i - first]", emit_real(e), name) : name;
}

static void finish_one(CudaStage *c, Access f)
{
    Emit *e = &c->e;
    const Mem *m = &e->plan->mem[f.mem];
    if (m->kind != MEM_PART) {
        finish_array(c, f);
        return;
    }
    const char *name = emit_name(e, emit_value_name(e, f.val));
    bool single = is_single(e->st->kind), shared = single || c->form == FORM_COLS || c->form == FORM_SLICES;
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
    emit_part(e, shared ? AT_FINS : AT_BODY, section, h, sizeof h / sizeof *h);
    e->text[f.val] = name;
}

/* ---- folds ---- */
/* A row's lanes: where columns are folded too, a warp has eight rows under way at once; else it walks one to its
 * end. */
static void row_lanes(CudaStage *c, Access f, const char *x)
{
    Emit *e = &c->e;
    const Node *n = &e->g->n[f.val];
    bool one = c->form == FORM_ROWS;
    const char *acc = emit_joined(e, emit_value_name(e, f.val), "row"), *all = emit_joined(e, acc, "all");
    const Hole h[] = {{"real", emit_real(e)}, {"class", fold_class(n)}, {"acc", acc}, {"all", all}, {"x", x}};
    emit_part(e, one ? AT_ROWSTART : AT_BUFFERS, one ? "four_start" : "eight_start", h, 5);
    emit_part(e, AT_BODY, one ? "four_add" : "eight_add", h, 5);
    emit_part(e, one ? AT_ROWEND : AT_FINISH, one ? "four_end" : "eight_end", h, 5);
    c->rowfold[n->arg[0] * NCLASS + class_of(n)] = one ? all : arena_printf(e->arena, "%s[k]", all);
}

/* Of a tile's rows: each into its place, or all into one value of the tile. */
static void fold_rows(CudaStage *c, Access f, const char *x)
{
    Emit *e = &c->e;
    const Node *n = &e->g->n[f.val];
    int at = n->arg[0] * NCLASS + class_of(n);
    const char *part = pointer(c, f), *tile = stage_info[e->st->kind].id;
    if (!c->rowfold[at])
        row_lanes(c, f, x);
    const char *shared = n->dom == ROW ? "" : emit_joined(e, emit_value_name(e, f.val), "rows");
    const char *row = arena_printf(e->arena, "(slice * self->rows + block * OPTC_%s_ROWS + line)", tile);
    const char *to = n->dom == ROW ? arena_printf(e->arena, "%s[%s]", part, emit_slot(e, f, row))
                                   : arena_printf(e->arena, "%s[line]", shared);
    const Hole h[] = {{"real", emit_real(e)}, {"class", fold_class(n)}, {"shared", shared},
                      {"tile", tile},         {"part", part},           {"to", to},
                      {"all", c->rowfold[at]}, {"at", n->dom == ROW ? "" : emit_slot(e, f, "u.unit")}};
    int nh = sizeof h / sizeof *h;
    if (n->dom != ROW) {
        emit_part(e, AT_BUFFERS, "rows_shared", h, nh);
        emit_part(e, AT_LAST, "rows_end", h, nh);
    }
    emit_part(e, c->form == FORM_ROWS ? AT_ROWEND : AT_FINISH, c->form == FORM_ROWS ? "row_of_one" : "row_of_eight", h,
              nh);
}

/* What eight warps found of the columns, once so many strips of them are there: kept side by side, then folded. */
static const char *column_strips(CudaStage *c, int strips, const char *keep, const char *end)
{
    const char *when =
        strips == 1 ? ""
                    : arena_printf(c->e.arena, "if (from / OPTC_LANES %% %d == %d || from + OPTC_LANES >= count) ",
                                   strips, strips - 1);
    return emit_filled(&c->e, "column_strips",
                       (Hole[]){{"keep", keep}, {"when", when}, {"strips", number(c, strips)}, {"end", end}}, 4);
}

static void fold_columns(CudaStage *c, Access f, const char *x)
{
    Emit *e = &c->e;
    const Node *n = &e->g->n[f.val];
    const char *part = pointer(c, f), *label = emit_value_name(e, f.val), *acc = emit_joined(e, label, "col"),
               *shared = emit_joined(e, label, "cols");
    int strips = tile_strips(e->plan, e->st), turns = !strips;
    if (turns && !c->turn)
        c->turn = shared;
    const Hole h[] = {{"real", emit_real(e)},
                      {"class", fold_class(n)},
                      {"acc", acc},
                      {"x", x},
                      {"part", part},
                      {"at", emit_slot(e, f, "start + first + l")},
                      {"s", emit_name(e, "s")},
                      {"shared", turns ? c->turn : shared},
                      {"strips", number(c, turns ? 1 : strips)},
                      {"strip", strips > 1 ? arena_printf(e->arena, "from %% %d + ", strips * LANES) : ""}};
    int nh = sizeof h / sizeof *h;
    if (!turns || c->turn == shared)
        emit_part(e, AT_BUFFERS, "column_shared", h, nh);
    emit_part(e, AT_COLSTART, "four_start", h, nh);
    emit_part(e, AT_BODY, "column_add", h, nh);
    const char *keep = emit_filled(e, "column_keep", h, nh), *end = emit_filled(e, "column_end", h, nh);
    if (turns) {
        buf_puts(&e->at[AT_COLTURNS], column_strips(c, 1, keep, end));
    } else {
        buf_puts(&e->at[AT_COLKEEP], keep);
        buf_puts(&e->at[AT_COLEND], end);
    }
}

static const char *column_finish(CudaStage *c)
{
    Emit *e = &c->e;
    if (e->at[AT_COLTURNS].len)
        return buf_text(&e->at[AT_COLTURNS]);
    if (!e->at[AT_COLEND].len)
        return "";
    return column_strips(c, tile_strips(e->plan, e->st), buf_text(&e->at[AT_COLKEEP]), buf_text(&e->at[AT_COLEND]));
}

static void fold_one(CudaStage *c, Access f)
{
    Emit *e = &c->e;
    const Stage *s = e->st;
    const Node *n = &e->g->n[f.val];
    Ref r = emit_folded(e, f);
    if (emit_fold_single(e, f))
        return;
    if (!e->text[r]) {                              /* several folds may take it */
        const char *x = emit_expr(e, r), *name = emit_name(e, emit_value_name(e, r));
        emit_put(e, AT_BODY, "const %s %s = %s;\n", emit_real(e), name, x);
        e->text[r] = name;
    }
    if (is_tiled(s->kind)) {
        (n->dom == COL ? fold_columns : fold_rows)(c, f, e->text[r]);
        return;
    }
    bool list = c->form == FORM_LANES;
    const char *label = emit_value_name(e, f.val), *acc = emit_joined(e, label, "lanes"),
               *all = emit_joined(e, acc, "all");
    const Hole h[] = {{"real", emit_real(e)},
                      {"class", fold_class(n)},
                      {"acc", acc},
                      {"all", all},
                      {"x", e->text[r]},
                      {"array", emit_array(e, f, true)},
                      {"at", emit_slot(e, f, "u.unit")},
                      {"shared", list ? emit_joined(e, label, "values") : ""},
                      {"chunk", list ? number(c, list_chunk(e->plan, s)) : ""}};
    emit_part(e, AT_BUFFERS, list ? "list_start" : "four_start", h, 9);
    emit_part(e, AT_BODY, list ? "list_add" : "four_add", h, 9);
    if (list)
        emit_part(e, AT_ROWEND, "list_lanes", h, 9);
    emit_part(e, AT_FINISH, list ? "list_end" : "four_end", h, 9);
    if (!list)
        emit_part(e, AT_FINISH, "four_store", h, 9);
}

static void store_one(CudaStage *c, Access a)
{
    Emit *e = &c->e;
    const Mem *m = &e->plan->mem[a.mem];
    const TypeInfo *t = &type_info[m->type];
    const char *x = emit_expr(e, a.val), *v = emit_called(e->arena, t->store, x);
    if (emit_store_single(e, a, v))
        return;
    const char *ptr = pointer(c, a);
    if (!in_vectors(c)) {
        emit_put(e, AT_BODY, "%s[i] = %s;\n", ptr, v);
        return;
    }
    bool packs = *t->store;                    /* a vector's values at once, when all are there */
    const char *out = emit_joined(e, ptr, "out"), *stored = packs ? emit_joined(e, ptr, "stored") : out;
    emit_put(e, AT_OUTS, "%s %s[%d];\n", type_info[packs ? t->compute : m->type].c, out, c->vec);
    emit_put(e, AT_BODY, "%s[i] = %s;\n", out, x);
    if (packs)
        emit_put(e, AT_STORES, "%s %s[%d];\n%s_all(%s, %s);\n", t->c, stored, c->vec, t->store, stored, out);
    emit_part(e, AT_STORES, "put", (Hole[]){{"hint", number(c, c->knob[KNOB_STORE])}, {"x", ptr}, {"from", stored}}, 3);
}

static void work(CudaStage *c)
{
    const Stage *s = c->e.st;
    emit_scalars(&c->e);
    for (int i = 0; i < s->nfin; i++)
        finish_one(c, s->fin[i]);
    for (int i = 0; i < s->nload; i++)
        load_one(c, s->load[i]);
    indices(c);
    emit_body(&c->e);
    for (int i = 0; i < s->nfold; i++)
        fold_one(c, s->fold[i]);
    for (int i = 0; i < s->nstore; i++) {
        emit_cite(&c->e, s->store[i].val);
        store_one(c, s->store[i]);
    }
    if (c->e.cites)
        emit_put(&c->e, AT_BODY, "%s", emit_line_mark);
}

/* ---- the kernel around it ---- */
/* A stage of a rule with periods runs only in its own phase: a captured graph launches the stages of all of them. */
static const char *guard_text(CudaStage *c, int mask)
{
    const Plan *p = c->e.plan;
    Buf b = {.arena = c->e.arena};
    for (int i = 0; i < p->nperiod; i++)
        buf_printf(&b, "%s((long long)(self->hyper[0] + self->hyper[%d]%s) %% %d == %d) != %d", i ? " || " : "",
                   p->rule->nhyper + 1, c->e.t_ahead ? " + 1.0" : "", p->period[i].every, p->period[i].offset,
                   mask >> i & 1);
    return p->nperiod ? emit_filled(&c->e, "guard", (Hole[]){{"elsewhere", buf_text(&b)}}, 1) : "";
}

/* A tensor that takes no part has less than no elements: passes over the elements in order find none by themselves. */
static const char *absent_text(CudaStage *c)
{
    const char *leaves = emit_absent(&c->e);
    if (c->form == FORM_MAP || c->form == FORM_FOLD)
        return "";
    return *leaves ? emit_filled(&c->e, "absent_leaves", (Hole[]){{"leaves", leaves}}, 1)
                   : emit_filled(&c->e, "absent", NULL, 0);
}

/* Plain maps reach the memory's limit either way: only what folds, looks up rows and columns or has to unpack what it
 * loads (between two loads, where each is looked at) is compiled twice. */
static const char *choose_walk(CudaStage *c, bool placed)
{
    Arena *a = c->e.arena;
    Dom own = stage_info[c->e.st->kind].dom;
    const char *all = squares(c) ? emit_length(&c->e, own) : "self->n";
    const char *sizes = is_tiled(c->e.st->kind) ? "" : arena_printf(a, " && %s %% %d == 0", all, c->vec);
    bool packed = false;
    for (int i = 0; i < c->e.st->nload; i++)
        packed = packed || *type_info[c->e.plan->mem[c->e.st->load[i].mem].type].load;
    if (c->form == FORM_MAP && !placed && packed)
        return emit_filled(&c->e, "walk_full",
                           (Hole[]){{"full", number(c, c->knob[KNOB_THREADS] * c->vec * c->knob[KNOB_ITEMS])}}, 1);
    if (c->form == FORM_MAP && !placed)
        return emit_filled(&c->e, "walk_any", NULL, 0);
    if (placed)
        sizes = arena_printf(a, "%s && %s %% %d == 0", sizes, c->by_matrix ? "self->rows * self->cols" : emit_axis(&c->e, own, 1), c->vec);
    return emit_filled(&c->e, "walk_even", (Hole[]){{"sizes", sizes}}, 1);
}

/* The block's number, or the loop of a grid that goes round; the index counts from the end in every second pass, which
 * finds in the cache what the one before touched last. */
typedef struct { const char *first, *all, *stride, *nth, *back; bool round; } Walking;

static Walking walking(CudaStage *c, int64_t pieces)
{
    Arena *a = c->e.arena;
    int warps = c->knob[KNOB_THREADS] / 32;
    bool fold = c->form == FORM_FOLD;
    Walking w = {.first = "blockIdx.x", .all = "a.count", .stride = "", .round = c->knob[KNOB_GRID]};
    if (fold) {
        w.first = arena_printf(a, "(long long)blockIdx.x * %d + threadIdx.x / 32", warps);
        w.stride = arena_printf(a, " * %d", warps);
    }
    if (c->form == FORM_MAP)
        w.all = arena_printf(a, "optc_turns<%d, %d>(a)", c->knob[KNOB_THREADS], (int)pieces);
    w.nth = w.round || fold ? "nth" : w.first;
    bool back = c->e.st->time % 2;
    w.back = back ? arena_printf(a, "%s - 1 - %s", w.all, w.nth) : w.nth;
    if (c->form == FORM_MAP)
        w.back = back ? "true" : "false";
    return w;
}

enum { MOST_HOLES = NPLACE + 32 };
static int stage_holes(CudaStage *c, Hole *h, const Walking *w, int64_t pieces, int mask)
{
    Emit *e = &c->e;
    const Stage *s = e->st;
    bool placed = in_vectors(c) && !is_tiled(s->kind) && s->uses_rows, fold = c->form == FORM_FOLD, list = squares(c),
         first = s->kind == S_GROUP && !e->t_ahead;
    Dom own = stage_info[s->kind].dom;
    const char *vector = number(c, c->vec), *by = fold ? "OPTC_LANES" : number(c, c->vec * c->knob[KNOB_THREADS]);
    const Hole place[] = {{"vector", vector}, {"thread", fold ? "lane" : "turn.id"},
                          {"across", c->by_matrix ? "self->rows * self->cols" : emit_axis(e, own, 1)}, {"by", by}};
    bool spot = list || c->by_matrix;
    const Hole length = {"length", emit_length(e, own)};
    const char *span = fold ? list ? "fold_span_list" : "fold_span" : list ? "map_span_list" : "map_span";
    const Hole more[] = {{"mems", number(c, e->plan->nmem)},
                         {"back", w->back},
                         {"nth", w->nth},
                         {"pieces", number(c, pieces)},
                         {"vector", vector},
                         {"threads", number(c, c->knob[KNOB_THREADS])},
                         {"items", number(c, c->knob[KNOB_ITEMS])},
                         {"chunk", number(c, list_chunk(e->plan, s))},
                         {"tile", stage_info[s->kind].id},
                         length,
                         {"span", emit_filled(e, span, &length, 1)},
                         {"end", list ? "end" : "self->n"},
                         {"wide", c->wide.len ? buf_text(&c->wide) : "true"},
                         {"guard", arena_printf(e->arena, "%s%s", guard_text(c, mask), absent_text(c))},
                         {"choose", choose_walk(c, placed)},
                         {"place", placed ? emit_filled(e, list ? "place_list" : spot ? "place_matrix" : "place", place, 3) : ""},
                         {"ahead", placed ? emit_filled(e, spot ? "ahead_list" : "ahead", place + 2, 2) : ""},
                         {"moves_t", first ? emit_filled(e, "moves_t", NULL, 0) : ""},
                         {"which", s->kind == S_GROUP ? "blockIdx.x" : "a.units[blockIdx.x].tensor"}};
    int n = emit_holes(e, h);
    h[AT_COLEND].text = column_finish(c);
    memcpy(h + n, more, sizeof more);
    return n + (int)(sizeof more / sizeof *more);
}

/* What is between the braces: of maps and folds what a unit takes, once or in a loop. */
static const char *inside_text(CudaStage *c, int mask)
{
    Emit *e = &c->e;
    int64_t pieces = launch_pieces(
        e->st, &(Launch){{c->knob[0], c->knob[1], c->knob[2], c->knob[3], c->knob[4], c->knob[5], c->knob[6]}});
    Walking w = walking(c, pieces);
    Hole h[MOST_HOLES];
    int n = stage_holes(c, h, &w, pieces, mask);
    if (c->form != FORM_MAP && c->form != FORM_FOLD)
        return emit_filled(e, form_name[c->form], h, n);
    const char *each = emit_filled(e, c->form == FORM_MAP ? "map_each" : "fold_each", h, n);
    const Hole around[] = {{"first", w.first}, {"all", w.all}, {"stride", w.stride}, {"each", each}};
    if (w.round || c->form == FORM_FOLD)
        each = emit_filled(e, w.round ? "round" : "once", around, 4);
    return emit_filled(e, form_name[c->form], (Hole[]){{"each", each}}, 1);
}

bool emit_cuda_kernel(Buf *out, Arena *a, const Plan *p, StageAt at, CudaKernel k)
{
    CudaStage c = {.form = stage_form(at.stage), .knob = k.launch->v, .vec = k.launch->v[KNOB_VECTOR], .wide.arena = a};
    emit_begin(&c.e, &emit_cuda_target, p, at, a, k.prefix);
    c.e.cites = k.cites;
    c.e.t_ahead = strcmp(at.entry->name, "step") != 0;          /* t on the device moves when a step begins */
    c.rowfold = NEWS(a, const char *, (c.e.g->len + 1) * NCLASS);
    c.by_matrix = looks_up_matrices(&c);
    if (squares(&c))                                            /* where a matrix begins */
        buf_printf(&c.wide, "slice * %s %% %d == 0", emit_length(&c.e, stage_info[at.stage->kind].dom), c.vec);
    work(&c);
    const char *threads = number(&c, c.knob[KNOB_THREADS]);
    const char *bounds = c.knob[KNOB_BLOCKS] ? arena_printf(a, "%s, %d", threads, c.knob[KNOB_BLOCKS]) : threads;
    const Hole h[] = {{"comment", emit_stage_comment(a, at.stage)},
                      {"bounds", bounds},
                      {"fn", k.fn},
                      {"inside", inside_text(&c, at.phase)}};
    return template_fill(out, emit_cuda_target.templates, "kernel", h, 4) && !c.e.broken;
}
