/* The CUDA target: one kernel a stage, over the templates of stage_cuda.txt. A thread takes a few elements in a row; the order of every
 * reduction is the CPU's, however launch.h cuts the work. */
#include "emit.h"
#include "prelude.h"
#include "template.h"

#include <stdio.h>
#include <string.h>

static const char *const reserved[] = {
    "self", "view", "a", "u", "unit", "start", "count", "from", "left", "offset", "first", "block", "blocks", "row", "col", "slice", "segs", "seg", "rows", "line", "lane", "here",
    "warp", "wide", "across", "last", "top", "down", "near", "ends", "batch", "i", "k", "shared", "place", "nth", "piece", "pieces", "walk", "aligned", "steps", "threadIdx", "blockIdx", "blockDim", "gridDim", "warpSize", NULL};

static const char line_mark[] = "#line 0\n";             /* stands for the line of the emitted file that it is on */

typedef struct {
    Emit e;
    bool cites;
    LaunchForm form;
    Launch launch;
    int vec;
    Buf hoisted, buffers, pointers, body, loads, outs, stores, finish, last, rowstart, rowend, colstart, colkeep, colend, colturns, fins, wide;
    const char **ptr;              /* by Mem: the name of its pointer */
    const char **rowfold;          /* by node folded and class: the name of its rows' results, where a fold before made them */
    const char *in, *inner;
    const char *turn;              /* the strip that column folds take in turn, where there is not room for one of each */
} K;

enum { NCLASS = 3 };
static int class_of(const Node *n)
{
    const char *k = emit_red_kind(n);
    return !strcmp(k, "max") ? 1 : !strcmp(k, "min") ? 2 : 0;
}
static const char *fold_class(const Node *n) { return ((const char *const[NCLASS]){"optc_sum", "optc_maxi", "optc_mini"})[class_of(n)]; }

static const char *pointer(K *c, Access a)
{
    int mem = a.mem;
    if (c->ptr[mem])
        return c->ptr[mem];
    const Mem *m = &c->e.plan->mem[mem];
    bool w = emit_stores(c->e.st, mem) || m->kind == MEM_PART;
    c->ptr[mem] = emit_array_name(&c->e, a);
    buf_printf(&c->pointers, "    %s%s *__restrict__ %s = %s%s;\n", w ? "" : "const ", type_info[m->type].c, c->ptr[mem], emit_array(&c->e, a, w),
               is_list(c->e.st->kind) ? " + offset" : "");
    if (is_elem(c->e.st->kind) && m->dom == ELEM)
        buf_printf(&c->wide, "%soptc_wide<%d>(%s)", c->wide.len ? " && " : "", c->vec, c->ptr[mem]);
    return c->ptr[mem];
}

/* What a load gives, as the rule computes with it. */
static void define_loaded(K *c, Buf *b, const char *indent, Access a, const char *name, const char *value)
{
    bool narrow = !c->e.wide && c->e.plan->mem[a.mem].type == T_F64 && c->e.plan->real == T_F32 && c->e.g->n[a.val].ty == NUM;
    emit_define(&c->e, b, indent, a.val, name, narrow ? arena_printf(c->e.arena, "(float)%s", value) : value);
}

static const char *loaded(K *c, Access a, const char *from) { return emit_called(c->e.arena, type_info[c->e.plan->mem[a.mem].type].load, from); }

static void load_scalar(K *c, Buf *b, const char *indent, Access a, const char *index)
{
    const char *v = loaded(c, a, arena_printf(c->e.arena, "(%s)[%s]", emit_array(&c->e, a, false), index));
    define_loaded(c, b, indent, a, emit_array_name(&c->e, a), v);
}

/* Where vectors are loaded to: a small array in the loop, or one for all vectors of a thread (of a tile: for its eight rows) where those are
 * loaded ahead. Inside the loop over a vector, its i-th value. */
static const char *vector_in(K *c, const char *label, Type t, const char **value)
{
    const char *name = emit_name(&c->e, arena_printf(c->e.arena, "%s_in", label));
    bool ahead = c->form == FORM_MAP || c->form == FORM_TILE;
    if (c->form == FORM_MAP)
        buf_printf(&c->buffers, "    %s %s[%d][%d];\n", type_info[t].c, name, c->launch.v[KNOB_ITEMS], c->vec);
    else if (ahead)
        buf_printf(&c->colstart, "        %s %s[OPTC_TILE_ROWS / 8][%d];\n", type_info[t].c, name, c->vec);
    else
        buf_printf(&c->loads, "%s%s %s[%d];\n", c->in, type_info[t].c, name, c->vec);
    const char *vector = ahead ? arena_printf(c->e.arena, "%s[k]", name) : name;
    *value = emit_called(c->e.arena, type_info[t].load, arena_printf(c->e.arena, "%s[i]", vector));
    return vector;
}

static void load_vector(K *c, Access a)
{
    const Mem *m = &c->e.plan->mem[a.mem];
    const char *ptr = pointer(c, a), *value, *vector = vector_in(c, ptr, m->type, &value);
    buf_printf(&c->loads, "%soptc_get<%d>(%s, %s + offset, left, wide);\n", c->in, c->launch.v[KNOB_LOAD], vector, ptr);
    if (c->e.uses[a.val] == 1 && c->e.g->n[a.val].ty == NUM)
        c->e.text[a.val] = value;
    else
        emit_define(&c->e, &c->body, c->inner, a.val, emit_name(&c->e, arena_printf(c->e.arena, "%s_i", ptr)), value);
}

static void load_listed(K *c, Access a)
{
    const Mem *m = &c->e.plan->mem[a.mem];
    const char *ptr = pointer(c, a);
    const char *v = emit_called(c->e.arena, type_info[m->type].load, arena_printf(c->e.arena, "%s[i]", ptr));
    emit_define(&c->e, &c->body, c->inner, a.val, emit_name(&c->e, arena_printf(c->e.arena, "%s_i", ptr)), v);
}

/* Row, column and slice values of a flat pass: a vector at a time as well. */
static void load_placed(K *c, Access a, Dom dom)
{
    const Mem *m = &c->e.plan->mem[a.mem];
    const char *how = dom == ROW ? "rows" : dom == COL ? "cols" : "slices", *value;
    const char *vector = vector_in(c, a.name, m->type, &value);
    buf_printf(&c->loads, "%soptc_get_%s(%s, %s, self, place, left, wide);\n", c->in, how, vector, emit_array(&c->e, a, false));
    if (dom == COL && m->kind == MEM_INPUT)            /* the caller's, aligned as it may be; ours always are */
        buf_printf(&c->wide, "%soptc_wide<%d>(%s)", c->wide.len ? " && " : "", c->vec, emit_array(&c->e, a, false));
    define_loaded(c, &c->body, c->inner, a, emit_array_name(&c->e, a), value);
}

/* The values of a tile's four columns: where a warp has several rows under way, once for all of them. */
static void load_columns(K *c, Access a)
{
    const Mem *m = &c->e.plan->mem[a.mem];
    bool tile = c->form == FORM_TILE;
    const char *ptr = pointer(c, a), *in = tile ? "        " : c->in;
    const char *four = emit_name(&c->e, arena_printf(c->e.arena, "%s_in", ptr));
    buf_printf(tile ? &c->colstart : &c->loads, "%s%s %s[4];\n%soptc_get<0>(%s, %s + slice * self->cols + col, %s, wide);\n", in, type_info[m->type].c, four, in, four, ptr, tile ? "across" : "left");
    if (m->kind == MEM_INPUT)                          /* the caller's, aligned as it may be; ours always are */
        buf_printf(&c->wide, "%soptc_wide<4>(%s)", c->wide.len ? " && " : "", ptr);
    define_loaded(c, &c->body, c->inner, a, emit_name(&c->e, arena_printf(c->e.arena, "%s_i", ptr)), loaded(c, a, arena_printf(c->e.arena, "%s[i]", four)));
}

/* A value of each of the eight rows of a tile that a warp has under way. */
static void load_row(K *c, Access a)
{
    const char *ptr = pointer(c, a), *type = type_info[c->e.plan->mem[a.mem].type].c;
    const char *eight = emit_name(&c->e, arena_printf(c->e.arena, "%s_in", ptr));
    buf_printf(&c->colstart, "        %s %s[OPTC_TILE_ROWS / 8];\n", type, eight);
    buf_printf(&c->loads, "%s%s[k] = left ? %s[row] : %s(0);\n", c->in, eight, ptr, type);
    define_loaded(c, &c->body, c->inner, a, emit_name(&c->e, arena_printf(c->e.arena, "%s_i", ptr)), loaded(c, a, arena_printf(c->e.arena, "%s[k]", eight)));
}

static void loads(K *c)
{
    const Stage *s = c->e.st;
    for (int i = 0; i < s->nload; i++) {
        Access a = s->load[i];
        Dom d = c->e.plan->mem[a.mem].dom;
        if (d == GROUP || d == TENSOR)
            load_scalar(c, &c->hoisted, "    ", a, "0");
        else if (d == ELEM)
            load_vector(c, a);
        else if (is_tiled(s->kind) && d == COL)
            load_columns(c, a);
        else if (c->form == FORM_ROWS && d == ROW)
            load_scalar(c, &c->rowstart, "        ", a, "row");
        else if (c->form == FORM_TILE && d == ROW)
            load_row(c, a);
        else if (is_tiled(s->kind))
            load_scalar(c, &c->hoisted, "    ", a, "slice");
        else if (s->kind == S_FLAT)
            load_placed(c, a, d);
        else if (d == SLICE && s->kind != S_SLICE)
            load_scalar(c, &c->hoisted, "    ", a, "slice");
        else
            load_listed(c, a);
    }
}

static void finish_one(K *c, Access f)
{
    Emit *e = &c->e;
    const Stage *s = e->st;
    const Node *n = &e->g->n[f.val];
    const Mem *m = &e->plan->mem[f.mem];
    const char *cls = fold_class(n), *ty = type_info[m->type].c, *part = emit_array(&c->e, f, false);
    const char *name = emit_name(e, emit_value_name(e, f.val));
    const char *per = emit_parts_per_slice(e->arena, m), *rows = emit_parts_per_row(e->arena, m), *tiles = "optc_up(self->rows, OPTC_TILE_ROWS)";
    if (is_single(s->kind))
        buf_printf(&c->fins, "    const double %s = optc_finish<%s, %s>(%s, %s, shared);\n", name, cls, ty, part,
                   s->kind == S_GROUP ? "self->ntensors" : emit_parts_of_tensor(e->arena, m));
    else if (s->kind == S_ROW)
        buf_printf(&c->body, "%sconst %s %s = optc_row<%s, %s>(%s + (offset + i) * %s, %s);\n", c->inner, ty, name, cls, ty, part, rows, rows);
    else if (c->form == FORM_COLS)
        buf_printf(&c->fins, "    const %s %s = optc_columns<%s, %s>(%s + slice * %s * self->cols + start + i, %s, self->cols, i < count, shared);\n", ty, name, cls, ty, part, tiles, tiles);
    else if (s->kind == S_COL)
        buf_printf(&c->body, "%sconst %s %s = (%s)optc_alone<%s, %s, OPTC_COL_LANES>(%s + slice * %s * self->cols + start + i, %s, self->cols);\n",
                   c->inner, ty, name, ty, cls, ty, part, tiles, tiles);
    else if (c->form == FORM_SLICES)
        buf_printf(&c->fins, "        const double %s = optc_finish_warp<%s, %s>(%s + (start + i) * (%s), %s);\n", name, cls, ty, part, per, per);
    else
        buf_printf(&c->body, "%sconst double %s = optc_alone<%s, %s, OPTC_LANES>(%s + (start + i) * (%s), %s, 1);\n", c->inner, name, cls, ty, part, per, per);
    e->text[f.val] = name;
}

/* ---- folds ---- */
/* A row's lanes: where columns are folded too, a warp has eight rows under way at once; else it walks one to its end. */
static void row_lanes(K *c, Access f, const char *cls, const char *x)
{
    Emit *e = &c->e;
    const Node *n = &e->g->n[f.val];
    const char *real = emit_real(e), *acc = emit_name(e, arena_printf(e->arena, "%s_row", emit_value_name(e, f.val))), *all = emit_name(e, arena_printf(e->arena, "%s_all", acc));
    if (c->form == FORM_ROWS) {
        buf_printf(&c->rowstart, "        %s %s[4];\n        for (int i = 0; i < 4; i++)\n            %s[i] = %s::first<%s>();\n", real, acc, acc, cls, real);
        buf_printf(&c->body, "%s%s[i] = i < left ? %s::with(%s[i], %s) : %s[i];\n", c->inner, acc, cls, acc, x, acc);
        buf_printf(&c->rowend, "        const %s %s = optc_tree<%s, %s>(%s);\n", real, all, cls, real, acc);
        c->rowfold[n->arg[0] * NCLASS + class_of(n)] = all;
        return;
    }
    buf_printf(&c->buffers, "    %s %s[8][4];\n    for (int k = 0; k < 8; k++)\n        for (int i = 0; i < 4; i++)\n            %s[k][i] = %s::first<%s>();\n", real, acc, acc, cls, real);
    buf_printf(&c->body, "%s%s[k][i] = i < left ? %s::with(%s[k][i], %s) : %s[k][i];\n", c->inner, acc, cls, acc, x, acc);
    buf_printf(&c->finish, "    %s %s[8];\n#pragma unroll\n    for (int k = 0; k < 8; k++)\n        %s[k] = optc_tree<%s, %s>(%s[k]);\n", real, all, all, cls, real, acc);
    c->rowfold[n->arg[0] * NCLASS + class_of(n)] = arena_printf(e->arena, "%s[k]", all);
}

/* What eight warps found of the columns, once so many strips of them are there: kept side by side, then folded. */
static const char *column_strip(K *c, int strips, const char *keep, const char *end)
{
    Arena *a = c->e.arena;
    const char *when = strips == 1 ? "{" : arena_printf(a, "if (from / OPTC_LANES %% %d == %d || from + OPTC_LANES >= count) {", strips, strips - 1);
    return arena_printf(a, "%s        %s\n            const int first = from / (%d * OPTC_LANES) * (%d * OPTC_LANES);\n            __syncthreads();\n"
                        "            for (int l = threadIdx.x; l < %d * OPTC_LANES && first + l < count; l += blockDim.x) {\n%s            }\n            __syncthreads();\n        }\n",
                        keep, when, strips, strips, strips, end);
}

static void fold_tile(K *c, Access f, const char *x)
{
    Emit *e = &c->e;
    const Node *n = &e->g->n[f.val];
    const char *cls = fold_class(n), *real = emit_real(e), *part = pointer(c, f), *label = emit_value_name(e, f.val);
    if (n->dom == COL) {
        const char *acc = emit_name(e, arena_printf(e->arena, "%s_col", label)), *sh = emit_name(e, arena_printf(e->arena, "%s_cols", label));
        const char *s = emit_name(e, "s");
        int strips = tile_strips(e->plan, e->st), turns = !strips;
        Buf keep = {.arena = e->arena}, end = {.arena = e->arena};
        const char *l = strips > 1 ? arena_printf(e->arena, "from %% %d + ", strips * LANES) : "";
        if (turns && !c->turn)
            c->turn = sh;
        if (!turns || c->turn == sh)
            buf_printf(&c->buffers, "    __shared__ %s %s[8][%d * OPTC_LANES];\n", real, sh, turns ? 1 : strips);
        sh = turns ? c->turn : sh;
        buf_printf(&c->colstart, "        %s %s[4];\n        for (int i = 0; i < 4; i++)\n            %s[i] = %s::first<%s>();\n", real, acc, acc, cls, real);
        buf_printf(&c->body, "%s%s[i] = left ? %s::with(%s[i], %s) : %s[i];\n", c->inner, acc, cls, acc, x, acc);
        buf_printf(&keep, "        for (int i = 0; i < 4; i++)\n            %s[warp][%s4 * lane + i] = %s[i];\n", sh, l, acc);
        buf_printf(&end, "                %s %s[4];\n                for (int w = 0; w < 4; w++)\n                    %s[w] = %s::with(%s[w][l], %s[w + 4][l]);\n", real, s, s, cls, sh, sh);
        buf_printf(&end, "                %s[(slice * blocks + block) * self->cols + start + first + l] = %s::with(%s::with(%s[0], %s[2]), %s::with(%s[1], %s[3]));\n", part, cls, cls, s, s, cls, s, s);
        if (turns) {
            buf_puts(&c->colturns, column_strip(c, 1, buf_text(&keep), buf_text(&end)));
        } else {
            buf_puts(&c->colkeep, buf_text(&keep));
            buf_puts(&c->colend, buf_text(&end));
        }
        return;
    }
    int at = n->arg[0] * NCLASS + class_of(n);
    if (!c->rowfold[at])
        row_lanes(c, f, cls, x);
    const char *all = c->rowfold[at];
    Buf *end = c->form == FORM_ROWS ? &c->rowend : &c->finish;
    const char *open = c->form == FORM_ROWS ? "        if (lane == 0)\n" : "#pragma unroll\n    for (int k = 0; k < 8; k++) {\n        const int line = warp + 8 * k;\n        if (lane == 0 && line < rows)\n";
    buf_puts(end, open);
    if (n->dom == ROW) {
        buf_printf(end, "            %s[(slice * self->rows + block * OPTC_%s_ROWS + line) * segs + seg] = %s;\n", part, stage_info[e->st->kind].id, all);
    } else {
        const char *sh = emit_name(e, arena_printf(e->arena, "%s_rows", label));
        buf_printf(&c->buffers, "    __shared__ %s %s[OPTC_%s_ROWS];\n", real, sh, stage_info[e->st->kind].id);
        buf_printf(end, "            %s[line] = %s;\n", sh, all);
        buf_printf(&c->last, "    __syncthreads();\n    if (warp == 0) {\n        const %s v = optc_fold_rows<%s, %s>(%s, rows);\n        if (lane == 0)\n            %s[u.unit] = v;\n    }\n",
                   real, cls, real, sh, part);
    }
    if (c->form == FORM_TILE)
        buf_puts(end, "    }\n");
}

static void fold_one(K *c, Access f)
{
    Emit *e = &c->e;
    const Stage *s = e->st;
    const Node *n = &e->g->n[f.val];
    Ref r = n->arg[is_global(n) ? s->variant : 0];
    const char *cls = fold_class(n), *real = emit_real(e), *part = emit_array(&c->e, f, true);
    if (is_single(s->kind)) {
        buf_printf(&c->finish, "    (%s)[self->id] = %s;\n", part, emit_expr(e, r));
        return;
    }
    if (!e->text[r]) {                              /* several folds may take it */
        const char *x = emit_expr(e, r), *name = emit_name(e, emit_value_name(e, r));
        buf_printf(&c->body, "%sconst %s %s = %s;\n", c->inner, real, name, x);
        e->text[r] = name;
    }
    if (is_tiled(s->kind)) {
        fold_tile(c, f, e->text[r]);
        return;
    }
    const char *acc = emit_name(e, arena_printf(e->arena, "%s_lanes", emit_value_name(e, f.val))), *all = emit_name(e, arena_printf(e->arena, "%s_all", acc));
    if (is_list(s->kind)) {
        const char *sh = emit_name(e, arena_printf(e->arena, "%s_values", emit_value_name(e, f.val)));
        buf_printf(&c->buffers, "    __shared__ %s %s[%d];\n    %s %s = %s::first<%s>();\n", real, sh, list_chunk(e->plan, s), real, acc, cls, real);
        buf_printf(&c->body, "%s%s[i - first] = %s;\n", c->inner, sh, e->text[r]);
        buf_printf(&c->rowend, "        %s = optc_lanes<%s, %s>(%s, %s, here);\n", acc, cls, real, acc, sh);
        buf_printf(&c->finish, "    const %s %s = optc_block_tree<%s, %s>(%s, %s);\n    if (threadIdx.x == 0)\n        (%s)[u.unit] = %s;\n", real, all, cls, real, acc, sh, part, all);
        return;
    }
    buf_printf(&c->buffers, "    %s %s[4];\n    for (int i = 0; i < 4; i++)\n        %s[i] = %s::first<%s>();\n", real, acc, acc, cls, real);
    buf_printf(&c->body, "%s%s[i] = i < left ? %s::with(%s[i], %s) : %s[i];\n", c->inner, acc, cls, acc, e->text[r], acc);
    buf_printf(&c->finish, "    const %s %s = optc_tree<%s, %s>(%s);\n    if (lane == 0)\n        (%s)[u.unit] = %s;\n", real, all, cls, real, acc, part, all);
}

static void store_one(K *c, Access a)
{
    Emit *e = &c->e;
    const Mem *m = &e->plan->mem[a.mem];
    const char *v = emit_called(e->arena, type_info[m->type].store, emit_expr(e, a.val));
    if (is_single(e->st->kind)) {
        buf_printf(&c->finish, "    (%s)[0] = %s;\n", emit_array(&c->e, a, true), v);
        return;
    }
    const char *ptr = pointer(c, a);
    if (is_list(e->st->kind)) {
        buf_printf(&c->body, "%s%s[i] = %s;\n", c->inner, ptr, v);
        return;
    }
    const char *out = emit_name(e, arena_printf(e->arena, "%s_out", ptr));
    buf_printf(&c->outs, "%s%s %s[%d];\n", c->in, type_info[m->type].c, out, c->vec);
    buf_printf(&c->body, "%s%s[i] = %s;\n", c->inner, out, v);
    buf_printf(&c->stores, "%soptc_put<%d>(%s + offset, %s, left, wide);\n", c->in, c->launch.v[KNOB_STORE], ptr, out);
}

/* Which line of the spec a value comes from, so that the compiler's messages cite it. */
static void cite(K *c, const Node *n)
{
    const Rule *r = c->e.plan->rule;
    if (c->cites && n->line > 0)
        buf_printf(&c->body, "#line %d \"%s\"\n", n->line, emit_file(c->e.arena, r->file[n->file]));
}

static void work(K *c)
{
    Emit *e = &c->e;
    for (int i = 0; i < e->st->nbody; i++) {
        Ref r = e->st->body[i];
        if (emit_inlined(e, r))
            continue;
        cite(c, &e->g->n[r]);
        const char *x = emit_expr(e, r), *name = emit_name(e, emit_value_name(e, r));
        buf_printf(&c->body, "%sconst %s %s = %s;\n", c->inner, e->g->n[r].ty == BOOL ? "int" : emit_real(e), name, x);
        e->text[r] = name;
    }
    for (int i = 0; i < e->st->nfold; i++)
        fold_one(c, e->st->fold[i]);
    for (int i = 0; i < e->st->nstore; i++) {
        cite(c, &e->g->n[e->st->store[i].val]);
        store_one(c, e->st->store[i]);
    }
    if (c->cites)
        buf_puts(&c->body, line_mark);
}

/* A stage of a rule with periods runs only in its own phase: a captured graph launches the stages of all of them. */
static const char *guard_text(Arena *a, const Plan *p, int mask, const char *ahead)
{
    if (!p->nperiod)
        return "";
    Buf b = {.arena = a};
    buf_puts(&b, "    if (a.guard");
    for (int i = 0; i < p->nperiod; i++)
        buf_printf(&b, "%s((long long)(self->hyper[0]%s) %% %d == 0) != %d", i ? " || " : " && (", ahead, p->period[i], mask >> i & 1);
    buf_puts(&b, "))\n        return;\n");
    return buf_text(&b);
}

/* The loop of a grid that goes round, or the block's number where it does not; its index counts from the end in every second pass, which
 * finds in the cache what the one before touched last. */
static void walk(K *c, const char **each, const char **back, const char **end, int64_t pieces)
{
    Arena *a = c->e.arena;
    bool fold = c->form == FORM_FOLD, backward = c->e.st->time % 2, round = c->launch.v[KNOB_GRID];
    const char *first = fold ? arena_printf(a, "(long long)blockIdx.x * %d + threadIdx.x / 32", c->launch.v[KNOB_THREADS] / 32) : "blockIdx.x";
    const char *all = pieces == 1 ? "a.count" : arena_printf(a, "a.count * %d", (int)pieces), *nth = round || fold ? "nth" : first;
    *back = backward ? arena_printf(a, "%s - 1 - %s", all, nth) : nth;
    const char *block = c->form == FORM_MAP ? arena_printf(a, "    const long long block = %s;\n", *back) : "";
    if (round)
        *each = arena_printf(a, "    for (long long nth = %s; nth < %s; nth += (long long)gridDim.x%s) {\n%s", first, all, fold ? arena_printf(a, " * %d", c->launch.v[KNOB_THREADS] / 32) : "", block);
    else if (fold)
        *each = arena_printf(a, "    const long long nth = %s;\n    if (nth >= a.count)\n        return;\n", first);
    else
        *each = block;
    *end = round ? "    }\n" : "";
}

/* Templates and pieces are written as if neither a walk nor a grid that goes round were about them; what is inside those moves in. */
static void put_indented(Buf *out, const char *text, bool round)
{
    static const char walk[] = "    const auto walk", walked[] = "    };\n", nth[] = "    for (long long nth", last[] = "    }\n}\n";
    int depth = 0;
    for (const char *s = text, *end; *s; s = end) {
        end = s + strcspn(s, "\n");
        end += *end == '\n';
        if (!strncmp(s, walked, sizeof walked - 1) || (round && !strncmp(s, last, sizeof last - 1)))
            depth--;
        for (int i = 0; i < depth && *s != '#' && *s != '\n'; i++)
            buf_puts(out, "    ");
        buf_add(out, s, (size_t)(end - s));
        if (!strncmp(s, walk, sizeof walk - 1) || (round && !strncmp(s, nth, sizeof nth - 1)))
            depth++;
    }
}

static const char *column_finish(K *c)
{
    return c->colturns.len ? buf_text(&c->colturns) : c->colend.len ? column_strip(c, tile_strips(c->e.plan, c->e.st), buf_text(&c->colkeep), buf_text(&c->colend)) : "";
}

/* What a kernel is made of: the stage and where it stands, how it is launched, what it is called. */
static bool emit_kernel(Buf *out, Arena *a, const Plan *p, StageAt at, const Launch *launch, const char *prefix, const char *fn, bool cites)
{
    const Buf none = {.arena = a};
    const Stage *s = at.stage;
    K c = {.hoisted = none, .buffers = none, .pointers = none, .body = none, .loads = none, .outs = none, .stores = none, .finish = none, .last = none,
           .rowstart = none, .rowend = none, .colstart = none, .colkeep = none, .colend = none, .colturns = none, .fins = none, .wide = none,
           .cites = cites, .form = stage_form(s), .launch = *launch, .vec = launch->v[KNOB_VECTOR]};
    bool step = !strcmp(at.entry->name, "step"), placed = s->kind == S_FLAT && s->uses_rows;
    emit_begin(&c.e, p, &at.entry->phase[at.phase], s, a, prefix, reserved);
    c.e.t_ahead = !step;                        /* t on the device moves when a step begins */
    c.ptr = NEWS(a, const char *, p->nmem + 1);
    c.rowfold = NEWS(a, const char *, (c.e.g->len + 1) * NCLASS);
    c.in = c.form == FORM_TILE ? "                " : c.form == FORM_ROWS ? "            " : "        ";
    c.inner = is_single(s->kind) || c.form == FORM_COLS ? "    " : c.form == FORM_LANES ? "            " : is_list(s->kind) ? "        " : arena_printf(a, "%s    ", c.in);
    emit_scalars(&c.e, &c.hoisted, "    ");
    for (int i = 0; i < s->nfin; i++)
        finish_one(&c, s->fin[i]);
    loads(&c);
    work(&c);
    int64_t pieces = launch_pieces(s, launch);
    const int *v = launch->v;
    const char *each, *back, *end, *tick = s->kind == S_GROUP && step ? "    if (a.tick) {\n        if (threadIdx.x == 0)\n            ((double *)self->hyper)[0] += 1.0;\n        __syncthreads();\n    }\n" : "";
    walk(&c, &each, &back, &end, pieces);
    const char *number[NKNOB];
    for (int k = 0; k < NKNOB; k++)
        number[k] = arena_printf(a, "%d", v[k]);
    const char *start = arena_printf(a, "    optc_place place = optc_find(self, start + %d * %s);\n", c.vec, c.form == FORM_FOLD ? "lane" : "(int)threadIdx.x");
    const char *ahead = arena_printf(a, "        optc_ahead(place, self, %s);\n", c.form == FORM_FOLD ? "OPTC_LANES" : arena_printf(a, "%d", c.vec * v[KNOB_THREADS]));
    /* Plain maps reach the memory's limit either way: only what folds or looks up rows and columns is compiled twice. */
    const char *sizes = is_tiled(s->kind) ? "" : placed ? arena_printf(a, " && self->n %% %d == 0 && self->cols %% %d == 0", c.vec, c.vec) : arena_printf(a, " && self->n %% %d == 0", c.vec);
    const char *choose = c.form == FORM_MAP && !placed ? "    walk(aligned);\n" : arena_printf(a, "    if (aligned%s)\n        walk(optc_even());\n    else\n        walk(aligned);\n", sizes);
    Hole h[] = {{"choose", choose}, {"comment", emit_stage_comment(a, s)}, {"fn", fn}, {"tile", stage_info[s->kind].id}, {"mems", arena_printf(a, "%d", p->nmem)}, {"each", each}, {"back", back}, {"end", end},
                {"bounds", v[KNOB_BLOCKS] ? arena_printf(a, "%d, %d", v[KNOB_THREADS], v[KNOB_BLOCKS]) : number[KNOB_THREADS]},
                {"threads", number[KNOB_THREADS]}, {"vector", number[KNOB_VECTOR]}, {"items", number[KNOB_ITEMS]}, {"chunk", arena_printf(a, "%d", list_chunk(p, s))}, {"pieces", arena_printf(a, "%d", (int)pieces)},
                {"place", placed ? start : ""}, {"ahead", placed ? ahead : ""}, {"guard", guard_text(a, p, at.phase, step ? "" : " + 1.0")}, {"tick", tick},
                {"which", s->kind == S_GROUP ? "blockIdx.x" : "a.units[blockIdx.x].tensor"}, {"wide", c.wide.len ? buf_text(&c.wide) : "true"},
                {"length", s->kind == S_ROW ? "self->rows" : s->kind == S_COL ? "self->cols" : "self->slices"},
                {"hoisted", buf_text(&c.hoisted)}, {"buffers", buf_text(&c.buffers)}, {"pointers", buf_text(&c.pointers)}, {"body", buf_text(&c.body)}, {"loads", buf_text(&c.loads)}, {"outs", buf_text(&c.outs)}, {"stores", buf_text(&c.stores)},
                {"finish", buf_text(&c.finish)}, {"last", buf_text(&c.last)}, {"rowstart", buf_text(&c.rowstart)}, {"rowend", buf_text(&c.rowend)}, {"colstart", buf_text(&c.colstart)}, {"colend", column_finish(&c)}, {"fins", buf_text(&c.fins)}};
    Buf text = none;
    if (!template_fill(&text, "stage_cuda.txt", form_name[c.form], h, sizeof h / sizeof *h))
        return false;
    put_indented(out, buf_text(&text), *end != 0);
    return true;
}

int emit_cuda_parts(const Plan *p)
{
    int n = 0;
    for (int f = 0; f < p->nfn; f++) {
        StageAt at = plan_at(p, f);
        n += at.stage && is_elem(at.stage->kind);
    }
    return n ? n : 1;
}

/* The stage's code in its plainest form, under no name: equal stages of different rules share what was measured, and a better model does not forget it. */
static void hash_stage(const Plan *p, int fn, Arena *a, char hex[33])
{
    StageAt at = plan_at(p, fn);
    Launch l = launch_plain(at.stage);
    Buf b = {.arena = a};
    emit_kernel(&b, a, p, at, &l, NULL, "stage", false);
    if (is_tiled(at.stage->kind))
        buf_printf(&b, "%d x %d", at.stage->kind == S_TILE ? OPTC_TILE_ROWS : OPTC_BAND_ROWS, at.stage->kind == S_TILE ? OPTC_TILE_COLS : OPTC_BAND_COLS);
    char *code = arena_strdup(a, buf_text(&b)), *to = code;          /* comments and blanks are no code */
    for (const char *s = buf_text(&b); *s; s++) {
        const char *end = !strncmp(s, "/*", 2) ? strstr(s, "*/") : NULL;
        if (end)
            s = end + 1;
        else if (*s != ' ' && *s != '\n')
            *to++ = *s;
    }
    hash_hex(hash128(code, (size_t)(to - code)), hex);
}

bool emit_cuda_stage_hash(const Gen *g, int fn, char hex[33])
{
    jmp_buf out;
    Arena scratch = {.out = &out};
    LocaleMark was = locale_plain();            /* numbers are printed as C has them, whatever the program's language */
    volatile bool ok = false;
    hex[0] = 0;
    if (!setjmp(out)) {
        hash_stage(g->plan, fn, &scratch, hex);
        ok = true;
    }
    locale_back(was);
    arena_free(&scratch);
    return ok;
}

/* After a body the compiler is told where it is again. */
static void number_lines(Buf *out, const char *text, const char *name)
{
    int line = 1;
    for (const char *s = text, *end; *s; s = end, line++) {
        end = s + strcspn(s, "\n");
        end += *end == '\n';
        if (!strncmp(s, line_mark, sizeof line_mark - 1))
            buf_printf(out, "#line %d \"%s.cu\"\n", line + 1, name);
        else
            buf_add(out, s, (size_t)(end - s));
    }
}

int emit_cuda_part_of(const Plan *p, int fn, int nparts)
{
    bool pass = is_elem(plan_at(p, fn).stage->kind);
    int before = 0;                             /* passes over the elements take longest to compile: they and the others are dealt out in turn */
    for (int f = 0; f < fn; f++) {
        StageAt at = plan_at(p, f);
        before += at.stage && is_elem(at.stage->kind) == pass;
    }
    return before % (nparts > 0 ? nparts : 1);
}

bool emit_cuda_stages(const Gen *g, const EmitOptions *o, Arena *a, Buf *code)
{
    const Plan *p = g->plan;
    bool ok = true;
    emit_array_numbers(code, p, o);
    for (int f = 0; f < p->nfn; f++) {
        StageAt at = plan_at(p, f);
        if (!emit_takes(p, o, f))
            continue;
        Launch l = o->launch ? o->launch[f] : launch_model(p, at.stage, 0);
        ok = ok && emit_kernel(code, a, p, at, &l, o->prefix, emit_prefixed(a, o->prefix, p, at.entry->name, at.phase, at.stage), o->cite);
    }
    return ok;
}

bool emit_cuda_file(Buf *out, Arena *a, const char *title, const char *about, const char *command, const char *name, const char *code)
{
    Buf shared = {.arena = a};
    char hex[33];
    static const char *const files[] = {"abi.h", "math.h", "math_f32.h", "math_f64.h", "random.h", "types.h", "shape.h", "cuda.h", NULL};
    prelude_put(&shared, a, files, "cuda", code);
    hash_hex(hash128(code, strlen(code)), hex);
    Hole h[] = {{"title", emit_plain(a, title)}, {"about", about}, {"command", emit_plain(a, command)}, {"hash", hex}, {"name", name},
                {"math", buf_text(&shared)}, {"stages", code}};
    return template_fill(out, "stage_cuda.txt", "file", h, sizeof h / sizeof *h);
}

bool emit_cuda(const Gen *g, const EmitOptions *o, Arena *a, Buf *out)
{
    Buf code = {.arena = a}, text = {.arena = a}, *whole = o->cite ? &text : out;
    bool ok = (o->part > 0 || o->only || template_fill(&code, "stage_cuda.txt", "tick", NULL, 0)) && emit_cuda_stages(g, o, a, &code) &&
              emit_cuda_file(whole, a, emit_title(a, g->rule), emit_about(a, g), o->command, g->rule->name, buf_text(&code));
    if (o->cite)
        number_lines(out, buf_text(&text), g->rule->name);
    return ok;
}
