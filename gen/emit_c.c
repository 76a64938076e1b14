/* The C target: stages as plain loops that a compiler vectorises, over the templates of stage_c.txt. */
#include "emit.h"
#include "prelude.h"
#include "template.h"

#include <stdio.h>
#include <string.h>

/* What the templates use themselves. */
static const char *const reserved[] = {
    "self", "unit", "start", "count", "from", "len", "offset", "done", "run", "row", "col", "slice", "segs", "seg", "block", "blocks",
    "rows", "cols", "width", "line", "i", "l", "stages", NULL};

typedef struct { Emit e; Buf hoisted, buffers, pointers, body, lanes, finish, rowstart, rowend; const char *in; const char **ptr; bool fetch; } C;
/* ptr: by Mem, the name of its pointer; fetch: the stage asks for its next chunk ahead of time */


/* A pointer to where this piece of the array begins; declared when first asked for. */
static const char *pointer(C *c, Access a)
{
    if (c->ptr[a.mem])
        return c->ptr[a.mem];
    const Mem *m = &c->e.plan->mem[a.mem];
    bool w = emit_stores(c->e.st, a.mem), elem = is_elem(c->e.st->kind);
    c->ptr[a.mem] = emit_array_name(&c->e, a);
    buf_printf(&c->pointers, "%s%s%s *restrict %s = %s + %s;\n", c->in, w ? "" : "const ", type_info[m->type].c, c->ptr[a.mem], emit_array(&c->e, a, w),
               elem && m->dom == COL ? "slice * self->cols + col" : "offset");
    return c->ptr[a.mem];
}

/* A value that one piece has one of: read before the loop. */
static void load_scalar(C *c, Buf *b, const char *indent, Access a, const char *index)
{
    const Mem *m = &c->e.plan->mem[a.mem];
    const char *at = arena_printf(c->e.arena, "(%s)[%s]", emit_array(&c->e, a, false), index);
    const char *v = emit_called(c->e.arena, type_info[m->type].load, at);
    bool narrow = !c->e.wide && m->type == T_F64 && c->e.plan->real == T_F32 && c->e.g->n[a.val].ty == NUM;
    emit_define(&c->e, b, indent, a.val, emit_array_name(&c->e, a), narrow ? arena_printf(c->e.arena, "(float)%s", v) : v);
}

/* A value that varies along the loop: a pointer before it, a load inside it. */
static void load_array(C *c, Access a, const char *inner)
{
    const Mem *m = &c->e.plan->mem[a.mem];
    const char *ptr = pointer(c, a);
    if (m->dom == ELEM && c->fetch)
        buf_printf(&c->pointers, "%soptc_fetch(%s + %s, sizeof *%s);\n", c->in, ptr,
                   is_tiled(c->e.st->kind) ? "(from + 2 * len < count ? 2 * len : self->cols - count + 2 * len)" : c->e.st->uses_rows ? "2 * run" : "2 * len", ptr);
    const char *v = emit_called(c->e.arena, type_info[m->type].load, arena_printf(c->e.arena, "%s[i]", ptr));
    if (!emit_stores(c->e.st, a.mem) && c->e.uses[a.val] == 1 && c->e.g->n[a.val].ty == NUM)
        c->e.text[a.val] = v;
    else
        emit_define(&c->e, &c->body, inner, a.val, emit_name(&c->e, arena_printf(c->e.arena, "%s_i", ptr)), v);
}

/* Measured: prefetching pays for up to three arrays; with four and more its bursts take the places that loads need. */
static bool few_streams(const C *c)
{
    int n = 0;
    for (int i = 0; i < c->e.st->nload; i++)
        n += c->e.plan->mem[c->e.st->load[i].mem].dom == ELEM;
    return n <= 3;
}

static void loads(C *c, const char *inner)
{
    const Stage *s = c->e.st;
    bool elem = is_elem(s->kind);
    for (int i = 0; i < s->nload; i++) {
        Access a = s->load[i];
        Dom d = c->e.plan->mem[a.mem].dom;
        if (d == GROUP || d == TENSOR)
            load_scalar(c, &c->hoisted, "    ", a, "0");
        else if (d == SLICE && is_tiled(s->kind))
            load_scalar(c, &c->hoisted, "    ", a, "slice");
        else if (d == SLICE && (s->kind == S_ROW || s->kind == S_COL))
            load_scalar(c, &c->hoisted, "    ", a, "slice");
        else if (d == SLICE && elem)
            load_scalar(c, &c->pointers, c->in, a, "slice");
        else if (d == ROW && is_tiled(s->kind))
            load_scalar(c, &c->rowstart, "        ", a, "row");
        else if (d == ROW && elem)
            load_scalar(c, &c->pointers, c->in, a, "row");
        else
            load_array(c, a, inner);
    }
}

/* ---- finishing reductions ---- */
static void finish_one(C *c, Access f)
{
    Emit *e = &c->e;
    const Stage *s = e->st;
    const Node *n = &e->g->n[f.val];
    const Mem *m = &e->plan->mem[f.mem];
    const char *k = emit_red_kind(n), *ps = emit_type_suffix(m->type), *part = emit_array(&c->e, f, false);
    const char *name = emit_name(e, emit_value_name(e, f.val));
    if (is_single(s->kind)) {
        const char *len = s->kind == S_GROUP ? "self->ntensors" : emit_parts_of_tensor(e->arena, m);
        buf_printf(&c->hoisted, "    const double %s = optc_finish_%s%s(%s, %s);\n", name, k, ps, part, len);
        e->text[f.val] = name;
        return;
    }
    buf_printf(&c->buffers, "    %s %s[OPTC_SEG];\n", emit_real(e), name);
    if (s->kind == S_ROW)
        buf_printf(&c->buffers, "    optc_rows_%s%s(%s, %s + offset * %s, count, %s);\n", k, ps, name, part, emit_parts_per_row(e->arena, m), emit_parts_per_row(e->arena, m));
    else if (s->kind == S_COL)
        buf_printf(&c->buffers, "    optc_columns_%s%s(%s, %s + slice * optc_up(self->rows, OPTC_TILE_ROWS) * self->cols + start, count,\n"
                   "        optc_up(self->rows, OPTC_TILE_ROWS), self->cols);\n", k, ps, name, part);
    else
        buf_printf(&c->buffers, "    for (int i = 0; i < count; i++)\n        %s[i] = optc_finish_%s%s(%s + (start + i) * (%s), %s);\n", name, k, ps, part,
                   emit_parts_per_slice(e->arena, m), emit_parts_per_slice(e->arena, m));
    e->text[f.val] = arena_printf(e->arena, "%s[i]", name);
}

/* ---- folding ---- */
static void fold_elem(C *c, Access f, const char *buffer)
{
    Emit *e = &c->e;
    const Node *n = &e->g->n[f.val];
    bool tile = is_tiled(e->st->kind);
    const char *k = emit_red_kind(n), *s = emit_suffix(e), *real = emit_real(e), *part = emit_array(&c->e, f, true);
    const char *acc = emit_name(e, arena_printf(e->arena, "%s_%s", emit_value_name(e, f.val), n->dom == COL ? "cols" : "lanes"));
    if (n->dom == COL) {
        buf_printf(&c->buffers, "    %s %s[OPTC_ROW_LANES * OPTC_TILE_COLS];\n    for (int l = 0; l < OPTC_ROW_LANES; l++)\n"
                   "        optc_start_%s%s(%s + l * OPTC_TILE_COLS, count);\n", real, acc, k, s, acc);
        buf_printf(&c->lanes, "            optc_cols_%s%s(%s + line %% OPTC_ROW_LANES * OPTC_TILE_COLS + from, %s, len);\n", k, s, acc, buffer);
        buf_printf(&c->finish, "    optc_cols_end_%s%s(%s, %s + (slice * blocks + block) * self->cols + start, count);\n", k, s, acc, part);
        return;
    }
    buf_printf(&c->buffers, "    %s %s[OPTC_LANES];\n", real, acc);
    buf_printf(&c->lanes, "%soptc_lanes_%s%s(%s, %s, len);\n", tile ? "            " : "        ", k, s, acc, buffer);
    if (!tile) {
        buf_printf(&c->buffers, "    optc_start_%s%s(%s, OPTC_LANES);\n", k, s, acc);
        buf_printf(&c->finish, "    (%s)[unit] = optc_tree_%s%s(%s, OPTC_LANES);\n", part, k, s, acc);
        return;
    }
    buf_printf(&c->rowstart, "        optc_start_%s%s(%s, width);\n", k, s, acc);
    if (n->dom == ROW) {
        buf_printf(&c->rowend, "        (%s)[row * segs + seg] = optc_tree_%s%s(%s, width);\n", part, k, s, acc);
    } else {
        const char *lines = emit_name(e, arena_printf(e->arena, "%s_rows", emit_value_name(e, f.val)));
        buf_printf(&c->buffers, "    %s %s[OPTC_%s_ROWS];\n", real, lines, stage_info[e->st->kind].id);
        buf_printf(&c->rowend, "        %s[line] = optc_tree_%s%s(%s, width);\n", lines, k, s, acc);
        buf_printf(&c->finish, "    (%s)[unit] = optc_fold_%s%s(%s, rows);\n", part, k, s, lines);
    }
}

static void folds(C *c, const char *inner)
{
    Emit *e = &c->e;
    const Stage *s = e->st;
    const char **buffer = NEWS(e->arena, const char *, e->g->len + 1);
    for (int i = 0; i < s->nfold; i++) {
        Access f = s->fold[i];
        const Node *n = &e->g->n[f.val];
        Ref x = n->arg[is_global(n) ? s->variant : 0];
        if (is_single(s->kind)) {
            buf_printf(&c->finish, "    (%s)[self->id] = %s;\n", emit_array(&c->e, f, true), emit_expr(e, x));
            continue;
        }
        if (!buffer[x]) {
            buffer[x] = emit_name(e, arena_printf(e->arena, "%s_buf", emit_value_name(e, x)));
            buf_printf(&c->buffers, "    %s %s[%s];\n", emit_real(e), buffer[x], is_list(s->kind) ? "OPTC_SEG" : "OPTC_CHUNK");
            buf_printf(&c->body, "%s%s[%si] = %s;\n", inner, buffer[x], s->kind == S_FLAT && s->uses_rows ? "done + " : "", emit_expr(e, x));
        }
        if (is_list(s->kind))
            buf_printf(&c->finish, "    (%s)[unit] = optc_fold_%s%s(%s, count);\n", emit_array(&c->e, f, true), emit_red_kind(n), emit_suffix(e), buffer[x]);
        else
            fold_elem(c, f, buffer[x]);
    }
}

static void stores(C *c, const char *inner)
{
    Emit *e = &c->e;
    for (int i = 0; i < e->st->nstore; i++) {
        Access a = e->st->store[i];
        const Mem *m = &e->plan->mem[a.mem];
        const char *v = emit_called(e->arena, type_info[m->type].store, emit_expr(e, a.val));
        if (is_single(e->st->kind))
            buf_printf(&c->finish, "    (%s)[0] = %s;\n", emit_array(&c->e, a, true), v);
        else
            buf_printf(&c->body, "%s%s[i] = %s;\n", inner, pointer(c, a), v);
    }
}

static void body(C *c, const char *inner)
{
    Emit *e = &c->e;
    for (int i = 0; i < e->st->nbody; i++) {
        Ref r = e->st->body[i];
        if (emit_inlined(e, r))
            continue;
        const char *x = emit_expr(e, r);
        const char *name = emit_name(e, emit_value_name(e, r));
        buf_printf(&c->body, "%sconst %s %s = %s;\n", inner, e->g->n[r].ty == BOOL ? "int" : emit_real(e), name, x);
        e->text[r] = name;
    }
    folds(c, inner);
    stores(c, inner);
}

/* ---- stages and the file ---- */
static bool emit_stage(Buf *out, Arena *a, const Plan *p, const Phase *ph, const Stage *s, const char *prefix, const char *fn)
{
    const Buf none = {.arena = a};
    C c = {.hoisted = none, .buffers = none, .pointers = none, .body = none, .lanes = none, .finish = none, .rowstart = none, .rowend = none};
    emit_begin(&c.e, p, ph, s, a, prefix, reserved);
    c.ptr = NEWS(a, const char *, p->nmem + 1);
    bool fold = s->nfold > 0;
    const char *tmpl = is_tiled(s->kind) ? "tile" : s->kind == S_FLAT ? (s->uses_rows ? "runs" : fold ? "flat_fold" : "flat")
                     : is_list(s->kind) ? "list" : "single";
    const char *in = is_tiled(s->kind) || s->uses_rows ? "            " : !strcmp(tmpl, "flat_fold") ? "        " : "    ";
    const char *inner = is_single(s->kind) ? "    " : arena_printf(a, "%s    ", in);
    c.in = in;
    c.fetch = s->nfold || s->uses_rows ? few_streams(&c) : false;
    emit_scalars(&c.e, &c.hoisted, "    ");
    for (int i = 0; i < s->nfin; i++)
        finish_one(&c, s->fin[i]);
    loads(&c, inner);
    body(&c, inner);
    const char *length = s->kind == S_ROW ? "self->rows" : s->kind == S_COL ? "self->cols" : "self->slices";
    Hole h[] = {{"comment", emit_stage_comment(a, s)}, {"fn", fn}, {"length", length}, {"tile", stage_info[s->kind].id},
                {"hoisted", buf_text(&c.hoisted)}, {"buffers", buf_text(&c.buffers)}, {"pointers", buf_text(&c.pointers)}, {"body", buf_text(&c.body)}, {"lanes", buf_text(&c.lanes)},
                {"finish", buf_text(&c.finish)}, {"rowstart", buf_text(&c.rowstart)}, {"rowend", buf_text(&c.rowend)}};
    return template_fill(out, "stage_c.txt", tmpl, h, sizeof h / sizeof *h);
}

bool emit_c_stages(const Gen *g, const EmitOptions *o, Arena *a, Buf *code, Buf *table)
{
    const Plan *p = g->plan;
    bool ok = true;
    size_t was = table->len;
    emit_array_numbers(code, p, o);
    for (int e = 0; e < p->nentry; e++)
        for (int m = 0; m < p->entry[e].nphase; m++)
            for (int i = 0; i < p->entry[e].phase[m].nstage; i++) {
                const Phase *ph = &p->entry[e].phase[m];
                const char *fn = emit_prefixed(a, o->prefix, p, p->entry[e].name, m, &ph->stage[i]);
                ok = ok && emit_stage(code, a, p, ph, &ph->stage[i], o->prefix, o->prefix ? arena_printf(a, "OPTC_CLONES %s", fn) : fn);
                buf_puts(code, "\n");
                buf_printf(table, "%s%s", table->len > was ? ", " : "", fn);
            }
    if (table->len == was)
        buf_puts(table, "0");
    return ok;
}

void emit_c_shared(Buf *b, const char *code)
{
    static const char *const files[] = {"math.h", "math_f32.h", "math_f64.h", "random.h", "types.h", "shape.h", "sizes.h", "folds.h", NULL};
    prelude_put(b, b->arena, files, "c", code);
}

const char *emit_c_abi(Arena *a)
{
    static const char *const files[] = {"abi.h", NULL};
    Buf b = {.arena = a};
    prelude_put(&b, a, files, "c", "OPTC_ABI optc_view optc_stage_fn optc_module");
    return buf_text(&b);
}

bool emit_c(const Gen *g, const EmitOptions *o, Arena *a, Buf *out)
{
    Buf code = {.arena = a}, table = {.arena = a}, shared = {.arena = a};
    char hex[33];
    if (!emit_c_stages(g, o, a, &code, &table))
        return false;
    /* Declared here, not included: a header's macros could clash with a spec's names. */
    buf_puts(&shared, "float sqrtf(float), fabsf(float), fmaf(float, float, float);\ndouble sqrt(double), fabs(double), fma(double, double, double);\n\n");
    emit_c_shared(&shared, buf_text(&code));
    hash_hex(hash128(buf_text(&code), code.len), hex);
    Hole h[] = {{"title", emit_title(a, g->rule)}, {"about", emit_about(a, g)}, {"command", emit_plain(a, o->command)}, {"hash", hex}, {"name", g->rule->name},
                {"abi", emit_c_abi(a)}, {"math", buf_text(&shared)}, {"stages", buf_text(&code)}, {"table", buf_text(&table)}};
    return template_fill(out, "stage_c.txt", "file", h, sizeof h / sizeof *h);
}
