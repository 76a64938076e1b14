/* Loads and indices of a CUDA stage. */
#include "gen/emit/emit_cuda.h"

static void must_align(CudaStage *c, const char *x)
{
    buf_printf(&c->wide, "%soptc_wide<%d>(%s)", c->wide.len ? " && " : "", c->vec, x);
}

const char *cuda_pointer(CudaStage *c, Access a)
{
    bool known = c->e.ptr[a.mem] != NULL;
    const char *ptr = emit_pointer(&c->e, a, in_vectors(c) ? "" : " + offset");
    if (!known && in_vectors(c) && emit_dom(&c->e, a) == stage_info[c->e.st->kind].dom)
        must_align(c, ptr);
    return ptr;
}

/* Declares the local array that vectors are loaded to, and returns the vector's name: one vector in
 * the loop, or all vectors of a thread (in a tile: of its eight rows) if they are loaded before the
 * loop. *value: the i-th value of the vector. */
static const char *vector_in(CudaStage *c, const char *label, Type t, const char **value)
{
    Emit *e = &c->e;
    const char *name = emit_joined(e, label, "in"),
               *type = type_coded(t) ? "float" : type_info[t].c;
    bool items = c->form == FORM_MAP || c->form == FORM_HALF, block = folds_by_block(c),
         ahead = items || block || is_tiled(c->e.st->kind);
    if (items)
        emit_put(e, AT_BUFFERS, "%s %s[%d][%d];\n", type, name,
                 c->group ? c->group : c->knob[KNOB_ITEMS], c->vec);
    else if (ahead)
        emit_put(e, AT_COLSTART, "%s %s[%s][%d];\n", type, name,
                 c->form == FORM_TILE ? "OPTC_TILE_ROWS / 8"
                 : block              ? "2"
                                      : "lines * batch",
                 c->vec);
    else
        emit_put(e, AT_LOADS, "%s %s[%d];\n", type, name, c->vec);
    const char *vector = ahead ? arena_printf(e->arena, "%s[k]", name) : name;
    *value = arena_printf(e->arena, "%s[i]", vector);
    return vector;
}

bool cuda_walks_coded(const CudaStage *c)
{
    return (c->form == FORM_MAP || c->form == FORM_FOLD) && emit_codes(&c->e);
}

/* Codes and their scale, decoded where they are used. A map with groups has one for all vectors of
 * a block. */
static const char *coded_in(CudaStage *c, const char *label, Type t, const char **value)
{
    Emit *e = &c->e;
    const char *name = emit_joined(e, label, "in");
    bool items = c->form == FORM_MAP && !c->group;
    emit_put(e, c->form == FORM_MAP ? AT_BUFFERS : AT_LOADS,
             "optc_coded<optc_code_%s, %d, %d, decltype(coded)::value> %s%s;\n", type_info[t].name,
             c->vec, c->group ? c->group : 1, name,
             items ? arena_printf(e->arena, "[%d]", c->knob[KNOB_ITEMS]) : "");
    const char *vector = items ? arena_printf(e->arena, "%s[k]", name) : name;
    *value = arena_printf(e->arena, "%s.at(%s, i)", vector, c->group ? "k" : "0");
    return vector;
}

/* A vector that the walk copies to shared memory before its first turn. */
static void stage_vector(CudaStage *c, Type t, const char *ptr, const char *vector, bool late)
{
    Emit *e = &c->e;
    const char *staged = emit_joined(e, ptr, "staged");
    int slots = c->knob[KNOB_ITEMS], threads = c->knob[KNOB_THREADS];
    const Hole h[] = {
        {"to", vector}, {"x", ptr}, {"staged", staged}, {"group", number(c, c->group)}};
    if (late)
        emit_put(e, AT_POINTERS, "__shared__ optc_staged_codes<optc_code_%s, %d, %d, %d, %d> %s;\n",
                 type_info[t].name, c->vec, c->group, slots, threads, staged);
    else
        emit_put(e, AT_POINTERS, "__shared__ optc_staged<%s, %d, %d, %d> %s;\n", type_info[t].c,
                 c->vec, slots, threads, staged);
    emit_section(e, AT_ROWSTART, late ? "start_coded" : "start", h, 4);
    emit_section(e, AT_LOADS, late ? "get_staged_coded" : "get_staged", h, 4);
}

static void load_vector(CudaStage *c, Access a)
{
    Emit *e = &c->e;
    Type t = e->plan->mem[a.mem].type;
    bool late = type_coded(t) && cuda_walks_coded(c);
    const char *ptr = cuda_pointer(c, a), *value,
               *vector = (late ? coded_in : vector_in)(c, ptr, t, &value);
    const char *section = late ? "get_coded" : type_coded(t) ? "get_decoded" : "get";
    const Hole h[] = {{"hint", number(c, c->knob[KNOB_LOAD])},
                      {"to", vector},
                      {"x", ptr},
                      {"type", type_info[t].name},
                      {"k", c->group ? "k" : "0"}};
    if (c->staged)
        stage_vector(c, t, ptr, vector, late);
    else
        emit_section(e, AT_LOADS, section, h, 5);
    value = emit_entry(e, a, value);
    if (e->uses[a.val] == 1 && e->g->n[a.val].ty == NUM)
        e->text[a.val] = value;
    else
        emit_define(e, AT_BODY, a.val, emit_joined(e, ptr, "i"), value);
}

static void load_listed(CudaStage *c, Access a)
{
    Emit *e = &c->e;
    const char *ptr = cuda_pointer(c, a);
    emit_define(e, AT_BODY, a.val, emit_joined(e, ptr, "i"),
                emit_entry(e, a, arena_printf(e->arena, "%s[i]", ptr)));
}

/* In a list over two axes: loads the value of the row or column, or the entry with exchanged
 * indices. */
static void load_along(CudaStage *c, Access a, DomIndex at)
{
    Emit *e = &c->e;
    const Mem *m = &e->plan->mem[a.mem];
    Dom own = stage_info[e->st->kind].dom, d = emit_dom(e, a);
    bool transposed = emit_transposed(e, a);
    const char *value, *vector = vector_in(c, a.name, m->type, &value);
    const char *x =
        arena_printf(e->arena, "%s + slice * %s", emit_array(e, a, false), emit_length(e, d));
    const Hole h[] = {
        {"how", transposed         ? "transposed"
                : at == INDEX_DOWN ? "down"
                                   : "across"},
        {"to", vector},
        {"x", x},
        {"across", emit_axis(e, own, 1)},
        {"down", transposed ? arena_printf(e->arena, "%s, ", emit_axis(e, own, 0)) : ""}};
    emit_section(e, AT_LOADS, "get_along", h, sizeof h / sizeof *h);
    /* blocks of other sizes come first */
    if (at == INDEX_ACROSS && (m->kind == MEM_INPUT || dom_of_block(d)))
        must_align(c, x);
    emit_define(e, AT_BODY, a.val, emit_array_name(e, a), emit_entry(e, a, value));
}

/* Row, column and slice values of a flat pass, a vector at a time. */
static void load_placed(CudaStage *c, Access a, DomIndex at)
{
    Emit *e = &c->e;
    const Mem *m = &e->plan->mem[a.mem];
    const char *how = at == INDEX_DOWN ? "rows" : at == INDEX_ACROSS ? "cols" : "slices";
    const char *array = emit_array(e, a, false), *value;
    const char *vector = vector_in(c, a.name, m->type, &value);
    emit_section(e, AT_LOADS, c->by_matrix ? "get_matrix" : "get_placed",
              (Hole[]){{"how", how}, {"to", vector}, {"x", array}}, 3);
    /* the caller's array may have any alignment */
    if (at == INDEX_ACROSS && m->kind == MEM_INPUT)
        must_align(c, array);
    emit_define(e, AT_BODY, a.val, emit_array_name(e, a), emit_loaded(e, a, value));
}

/* The values of four columns, loaded once for all rows that a warp processes at once. */
static void load_columns(CudaStage *c, Access a)
{
    Emit *e = &c->e;
    const Mem *m = &e->plan->mem[a.mem];
    bool tile = c->form == FORM_TILE;
    const char *ptr = cuda_pointer(c, a), *four = emit_joined(e, ptr, "in"),
               *type = type_info[m->type].c;
    emit_put(e, AT_COLSTART, "%s %s%s[4];\n", type, four, tile ? "" : "[batch]");
    four = tile ? four : arena_printf(e->arena, "%s[k / lines]", four);
    const Hole h[] = {{"to", four}, {"x", ptr}, {"left", tile ? "across" : "left"}};
    emit_put(e, AT_LOADS, "%s", tile ? "" : "if (k % lines == 0)\n    ");
    emit_section(e, tile ? AT_COLSTART : AT_LOADS, "get_columns", h, 3);
    /* the caller's array may have any alignment */
    if (m->kind == MEM_INPUT)
        must_align(c, ptr);
    emit_define(e, AT_BODY, a.val, emit_joined(e, ptr, "i"),
                emit_loaded(e, a, arena_printf(e->arena, "%s[i]", four)));
}

/* A value for each of the rows that a warp processes at once: eight of a tile, one or two of a
 * band. */
static void load_row(CudaStage *c, Access a)
{
    Emit *e = &c->e;
    bool band = c->form == FORM_ROWS;
    const char *ptr = cuda_pointer(c, a), *type = type_info[e->plan->mem[a.mem].type].c;
    const char *eight = emit_joined(e, ptr, "in");
    const Hole h[] = {{"to", eight},
                      {"x", ptr},
                      {"type", type},
                      {"warps", number(c, c->knob[KNOB_THREADS] / 32)}};
    if (!band)
        emit_put(e, AT_COLSTART, "%s %s[OPTC_TILE_ROWS / 8];\n", type, eight);
    emit_section(e, band ? AT_ROWSTART : AT_LOADS, band ? "get_lines" : "get_row", h, 4);
    emit_define(
        e, AT_BODY, a.val, emit_joined(e, ptr, "i"),
        emit_loaded(e, a, arena_printf(e->arena, "%s[%s]", eight, band ? "k % lines" : "k")));
}

void cuda_load(CudaStage *c, Access a)
{
    const Stage *s = c->e.st;
    DomIndex at = dom_find(stage_info[s->kind].dom, emit_dom(&c->e, a));
    bool tiled = is_tiled(s->kind), list = is_list(s->kind);
    if (at == INDEX_ONE)
        emit_load_scalar(&c->e, AT_HOISTED, a, "0");
    else if (list && at == INDEX_SAME && !in_vectors(c))
        load_listed(c, a);
    else if (list && (at == INDEX_DOWN || at == INDEX_ACROSS || emit_transposed(&c->e, a)))
        load_along(c, a, at);
    else if (at == INDEX_SAME)
        load_vector(c, a);
    else if (tiled && at == INDEX_ACROSS)
        load_columns(c, a);
    else if (tiled && at == INDEX_DOWN)
        load_row(c, a);
    else if (tiled || list)
        emit_load_scalar(&c->e, AT_HOISTED, a, "slice");
    else
        load_placed(c, a, at);
}

/* A vector of row or column numbers, loaded like row and column values. */
static const char *index_vector(CudaStage *c, const char *how)
{
    Emit *e = &c->e;
    const char *value, *name = emit_joined(e, how, "in");
    bool map = c->form == FORM_MAP;
    emit_put(e, map ? AT_BUFFERS : AT_LOADS, "%s %s%s[%d];\n", emit_index_type(e), name,
             map ? arena_printf(e->arena, "[%d]", c->group ? c->group : c->knob[KNOB_ITEMS]) : "",
             c->vec);
    value = arena_printf(e->arena, "%s%s", name, map ? "[k]" : "");
    Dom own = stage_info[e->st->kind].dom;
    const Hole h[] = {{"how", how},
                      {"to", value},
                      {"down", emit_axis(e, own, 0)},
                      {"across", emit_axis(e, own, 1)}};
    emit_section(e, AT_LOADS, squares(c) ? "index_along" : "index_placed", h, 4);
    return arena_printf(e->arena, "%s[i]", value);
}

static bool uses_op(const Emit *e, Op op)
{
    for (Ref r = 0; r < e->g->len; r++)
        if (e->uses[r] && e->g->n[r].op == op)
            return true;
    return false;
}

void cuda_indices(CudaStage *c)
{
    bool down = uses_op(&c->e, OP_DOWN), across = uses_op(&c->e, OP_ACROSS);
    if (c->form == FORM_TILE)
        emit_indices(&c->e, (EmitIndex){"block * OPTC_TILE_ROWS + warp + 8 * k", ""},
                     (EmitIndex){"col", " + i"});
    else if (c->form == FORM_HALF)
        emit_indices(&c->e, (EmitIndex){"row", ""}, (EmitIndex){"col", " + i"});
    else if (c->form == FORM_ROWS)
        emit_indices(&c->e, (EmitIndex){"row - slice * self->rows", ""},
                     (EmitIndex){"col", " + i"});
    else if (in_vectors(c)) {
        /* one call after the other: both print code, and code must not depend on the compiler of
         * the library */
        const char *col = across ? index_vector(c, "across") : "",
                   *row = down ? index_vector(c, "down") : "";
        emit_indices(&c->e, (EmitIndex){row, ""}, (EmitIndex){col, ""});
    } else
        emit_indices(&c->e, (EmitIndex){"start", " + i"}, (EmitIndex){"start", " + i"});
}

bool cuda_by_matrix(const CudaStage *c)
{
    const Stage *s = c->e.st;
    bool only = s->kind == S_FLAT && !uses_op(&c->e, OP_DOWN) && !uses_op(&c->e, OP_ACROSS);
    for (int i = 0; i < s->nload; i++) {
        DomIndex at = dom_find(ELEM, emit_dom(&c->e, s->load[i]));
        only = only && at != INDEX_DOWN && at != INDEX_ACROSS;
    }
    return only;
}
