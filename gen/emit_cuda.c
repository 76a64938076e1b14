/* The CUDA target: one kernel a stage, over the templates of stage_cuda.txt. A thread takes four elements in a row; the order
 * of every reduction is the CPU's. */
#include "emit.h"
#include "template.h"

#include <stdio.h>
#include <string.h>

static const char *const reserved[] = {
    "self", "view", "a", "u", "unit", "start", "count", "from", "left", "offset", "first", "block", "blocks", "row", "col", "slice", "segs", "seg", "rows", "line", "lane",
    "warp", "wide", "i", "k", "shared", "place", "threadIdx", "blockIdx", "blockDim", "gridDim", "warpSize",
    "alignas", "alignof", "and", "asm", "auto", "bool", "break", "case", "catch", "char", "class", "compl", "const", "constexpr", "continue", "decltype", "default",
    "delete", "do", "double", "dynamic_cast", "else", "enum", "explicit", "export", "extern", "false", "float", "for", "friend", "goto", "if", "inline", "int", "long",
    "mutable", "namespace", "new", "noexcept", "not", "nullptr", "operator", "or", "private", "protected", "public", "register", "restrict", "return", "short", "signed",
    "sizeof", "static", "struct", "switch", "template", "this", "throw", "true", "try", "typedef", "typeid", "typename", "union", "unsigned", "using", "virtual", "void",
    "volatile", "while", "xor", "fabs", "fabsf", "sqrt", "sqrtf", "fma", "fmaf", "linux", "unix", NULL};

enum { MAP_SPLIT = 2 };

typedef struct {
    Emit e;
    Buf hoisted, buffers, pointers, body, loads, stores, finish, colstart, colend, fins, wide;
    const char **ptr;              /* by Mem: the name of its pointer */
    const char *in, *inner;
} K;

static bool is_elem(StageKind k) { return k == S_FLAT || k == S_TILE; }

static const char *fold_class(const Node *n)
{
    const char *k = emit_red_kind(n);
    return !strcmp(k, "max") ? "optc_maxi" : !strcmp(k, "min") ? "optc_mini" : "optc_sum";
}

static const char *pointer(K *c, int mem, Ref val)
{
    if (c->ptr[mem])
        return c->ptr[mem];
    const Mem *m = &c->e.plan->mem[mem];
    const char *label = m->kind != MEM_TEMP ? m->name : node_label(c->e.plan, c->e.g, val);
    bool w = emit_stores(c->e.st, mem);
    c->ptr[mem] = emit_name(&c->e, label ? label : arena_printf(c->e.arena, "x%d", val));
    buf_printf(&c->pointers, "    %s%s *__restrict__ %s = %s%s;\n", w ? "" : "const ", type_info[m->type].c, c->ptr[mem], emit_array(&c->e, mem, w),
               is_list(c->e.st->kind) ? " + offset" : "");
    if (is_elem(c->e.st->kind) && m->dom == ELEM)
        buf_printf(&c->wide, "%soptc_wide(%s)", c->wide.len ? " && " : "", c->ptr[mem]);
    return c->ptr[mem];
}

static const char *value_name(K *c, Ref r)
{
    const char *label = node_label(c->e.plan, c->e.g, r);
    return emit_name(&c->e, label ? label : arena_printf(c->e.arena, "x%d", r));
}

static void load_scalar(K *c, Buf *b, const char *indent, Access a, const char *index)
{
    const Mem *m = &c->e.plan->mem[a.mem];
    const char *v = emit_form(&c->e, type_info[m->type].load, 'x', arena_printf(c->e.arena, "(%s)[%s]", emit_array(&c->e, a.mem, false), index));
    bool narrow = !c->e.wide && m->type == T_F64 && c->e.plan->real == T_F32 && c->e.g->n[a.val].ty == NUM;
    emit_define(&c->e, b, indent, a.val, value_name(c, a.val), narrow ? arena_printf(c->e.arena, "(float)%s", v) : v);
}

/* Elements: four at a time into a small array; inside the loop over four, the i-th. */
static void load_four(K *c, Access a)
{
    const Mem *m = &c->e.plan->mem[a.mem];
    const char *ptr = pointer(c, a.mem, a.val), *four = emit_name(&c->e, arena_printf(c->e.arena, "%s_in", ptr));
    buf_printf(&c->loads, "%s%s %s[4];\n%soptc_get(%s, %s + offset, left, wide);\n", c->in, type_info[m->type].c, four, c->in, four, ptr);
    const char *v = emit_form(&c->e, type_info[m->type].load, 'x', arena_printf(c->e.arena, "%s[i]", four));
    if (c->e.uses[a.val] == 1 && c->e.g->n[a.val].ty == NUM)
        c->e.text[a.val] = v;
    else
        emit_define(&c->e, &c->body, c->inner, a.val, emit_name(&c->e, arena_printf(c->e.arena, "%s_i", ptr)), v);
}

static void load_listed(K *c, Access a)
{
    const Mem *m = &c->e.plan->mem[a.mem];
    const char *ptr = pointer(c, a.mem, a.val);
    const char *v = emit_form(&c->e, type_info[m->type].load, 'x', arena_printf(c->e.arena, "%s[i]", ptr));
    emit_define(&c->e, &c->body, c->inner, a.val, emit_name(&c->e, arena_printf(c->e.arena, "%s_i", ptr)), v);
}

/* Row, column and slice values of a flat pass: four at a time as well. */
static void load_placed(K *c, Access a, Dom dom)
{
    const Mem *m = &c->e.plan->mem[a.mem];
    const char *label = node_label(c->e.plan, c->e.g, a.val), *how = dom == ROW ? "rows" : dom == COL ? "cols" : "slices";
    const char *four = emit_name(&c->e, arena_printf(c->e.arena, "%s_in", label ? label : arena_printf(c->e.arena, "x%d", a.val)));
    buf_printf(&c->loads, "%s%s %s[4];\n%soptc_get_%s(%s, %s, self, place, left);\n", c->in, type_info[m->type].c, four, c->in, how, four, emit_array(&c->e, a.mem, false));
    const char *v = emit_form(&c->e, type_info[m->type].load, 'x', arena_printf(c->e.arena, "%s[i]", four));
    bool narrow = m->type == T_F64 && c->e.plan->real == T_F32 && c->e.g->n[a.val].ty == NUM;
    emit_define(&c->e, &c->body, c->inner, a.val, value_name(c, a.val), narrow ? arena_printf(c->e.arena, "(float)%s", v) : v);
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
            load_four(c, a);
        else if (s->kind == S_TILE)
            load_scalar(c, d == SLICE ? &c->hoisted : d == ROW ? &c->loads : &c->body, d == SLICE ? "    " : d == ROW ? c->in : c->inner, a,
                        d == SLICE ? "slice" : d == ROW ? "row" : "slice * self->cols + col + (i < left ? i : 0)");
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
    const char *cls = fold_class(n), *ty = type_info[m->type].c, *part = emit_array(&c->e, f.mem, false);
    const char *name = emit_name(e, n->name ? n->name : arena_printf(e->arena, "%s%d", emit_red_kind(n), f.val));
    if (is_single(s->kind))
        buf_printf(&c->fins, "    const double %s = optc_finish<%s, %s>(%s, %s, shared);\n", name, cls, ty, part,
                   s->kind == S_GROUP ? "self->ntensors" : emit_parts_of_tensor(e->arena, m));
    else if (s->kind == S_ROW)
        buf_printf(&c->body, "%sconst %s %s = optc_row<%s, %s>(%s + (offset + i) * optc_up(self->cols, OPTC_SEG), optc_up(self->cols, OPTC_SEG));\n", c->inner, ty, name, cls, ty, part);
    else if (s->kind == S_COL)
        buf_printf(&c->body, "%sconst %s %s = optc_column<%s, %s>(%s + slice * optc_up(self->rows, OPTC_TILE_ROWS) * self->cols + start + i,\n%s    optc_up(self->rows, OPTC_TILE_ROWS), self->cols);\n",
                   c->inner, ty, name, cls, ty, part, c->inner);
    else
        buf_printf(&c->body, "%sconst double %s = optc_finish_alone<%s, %s>(%s + (start + i) * (%s), %s);\n", c->inner, name, cls, ty, part, emit_parts_per_slice(m), emit_parts_per_slice(m));
    e->text[f.val] = name;
}

/* ---- folds ---- */
static void fold_tile(K *c, Access f, const char *x)
{
    Emit *e = &c->e;
    const Node *n = &e->g->n[f.val];
    const char *cls = fold_class(n), *real = emit_real(e), *part = emit_array(&c->e, f.mem, true), *label = n->name ? n->name : emit_red_kind(n);
    if (n->dom == COL) {
        const char *acc = emit_name(e, arena_printf(e->arena, "%s_col", label)), *sh = emit_name(e, arena_printf(e->arena, "%s_cols", label));
        buf_printf(&c->buffers, "    __shared__ %s %s[8][OPTC_LANES];\n", real, sh);
        buf_printf(&c->colstart, "        %s %s[4];\n        for (int i = 0; i < 4; i++)\n            %s[i] = %s::first<%s>();\n", real, acc, acc, cls, real);
        buf_printf(&c->body, "%s%s[i] = %s::with(%s[i], %s);\n", c->inner, acc, cls, acc, x);
        buf_printf(&c->colend, "        for (int i = 0; i < 4; i++)\n            %s[warp][4 * lane + i] = %s[i];\n        __syncthreads();\n", sh, acc);
        buf_printf(&c->colend, "        if (threadIdx.x < OPTC_LANES && from + (int)threadIdx.x < count) {\n            const int l = threadIdx.x;\n            %s s[4];\n"
                   "            for (int w = 0; w < 4; w++)\n                s[w] = %s::with(%s[w][l], %s[w + 4][l]);\n", real, cls, sh, sh);
        buf_printf(&c->colend, "            (%s)[(slice * blocks + block) * self->cols + start + from + l] = %s::with(%s::with(s[0], s[2]), %s::with(s[1], s[3]));\n        }\n        __syncthreads();\n",
                   part, cls, cls, cls);
        return;
    }
    const char *acc = emit_name(e, arena_printf(e->arena, "%s_row", label));
    buf_printf(&c->buffers, "    %s %s[8][4];\n    for (int k = 0; k < 8; k++)\n        for (int i = 0; i < 4; i++)\n            %s[k][i] = %s::first<%s>();\n", real, acc, acc, cls, real);
    buf_printf(&c->body, "%s%s[k][i] = i < left ? %s::with(%s[k][i], %s) : %s[k][i];\n", c->inner, acc, cls, acc, x, acc);
    if (n->dom == ROW) {
        buf_printf(&c->finish, "#pragma unroll\n    for (int k = 0; k < 8; k++) {\n        const %s v = optc_tree<%s, %s>(%s[k]);\n        const int line = warp + 8 * k;\n"
                   "        if (lane == 0 && line < rows)\n            (%s)[(slice * self->rows + block * OPTC_TILE_ROWS + line) * segs + seg] = v;\n    }\n", real, cls, real, acc, part);
        return;
    }
    const char *sh = emit_name(e, arena_printf(e->arena, "%s_rows", label));
    buf_printf(&c->buffers, "    __shared__ %s %s[OPTC_TILE_ROWS];\n", real, sh);
    buf_printf(&c->finish, "#pragma unroll\n    for (int k = 0; k < 8; k++) {\n        const %s v = optc_tree<%s, %s>(%s[k]);\n        if (lane == 0)\n            %s[warp + 8 * k] = v;\n    }\n"
               "    __syncthreads();\n    if (warp == 0) {\n        const %s v = optc_fold_rows<%s, %s>(%s, rows);\n        if (lane == 0)\n            (%s)[u.unit] = v;\n    }\n",
               real, cls, real, acc, sh, real, cls, real, sh, part);
}

static void fold_one(K *c, Access f)
{
    Emit *e = &c->e;
    const Stage *s = e->st;
    const Node *n = &e->g->n[f.val];
    Ref r = is_global(n) ? n->a[s->variant] : n->a[0];
    const char *cls = fold_class(n), *real = emit_real(e), *part = emit_array(&c->e, f.mem, true);
    if (is_single(s->kind)) {
        buf_printf(&c->finish, "    (%s)[self->id] = %s;\n", part, emit_expr(e, r));
        return;
    }
    if (!e->text[r]) {                              /* several folds may take it */
        const char *x = emit_expr(e, r), *name = emit_name(e, e->g->n[r].name ? e->g->n[r].name : "fold");
        buf_printf(&c->body, "%sconst %s %s = %s;\n", c->inner, real, name, x);
        e->text[r] = name;
    }
    if (s->kind == S_TILE) {
        fold_tile(c, f, e->text[r]);
        return;
    }
    const char *acc = emit_name(e, arena_printf(e->arena, "%s_lanes", n->name ? n->name : emit_red_kind(n)));
    if (is_list(s->kind)) {
        const char *sh = emit_name(e, arena_printf(e->arena, "%s_shared", n->name ? n->name : emit_red_kind(n)));
        buf_printf(&c->buffers, "    __shared__ %s %s[OPTC_LANES];\n    %s %s = %s::first<%s>();\n", real, sh, real, acc, cls, real);
        buf_printf(&c->body, "%s%s = %s::with(%s, %s);\n", c->inner, acc, cls, acc, e->text[r]);
        buf_printf(&c->finish, "    const %s %s_all = optc_block_tree<%s, %s>(%s, %s);\n    if (threadIdx.x == 0)\n        (%s)[u.unit] = %s_all;\n", real, acc, cls, real, acc, sh, part, acc);
        return;
    }
    buf_printf(&c->buffers, "    %s %s[4];\n    for (int i = 0; i < 4; i++)\n        %s[i] = %s::first<%s>();\n", real, acc, acc, cls, real);
    buf_printf(&c->body, "%s%s[i] = i < left ? %s::with(%s[i], %s) : %s[i];\n", c->inner, acc, cls, acc, e->text[r], acc);
    buf_printf(&c->finish, "    const %s %s_all = optc_tree<%s, %s>(%s);\n    if (lane == 0)\n        (%s)[u.unit] = %s_all;\n", real, acc, cls, real, acc, part, acc);
}

static void store_one(K *c, Access a)
{
    Emit *e = &c->e;
    const Mem *m = &e->plan->mem[a.mem];
    const char *v = emit_form(e, type_info[m->type].store, 'x', emit_expr(e, a.val));
    if (is_single(e->st->kind)) {
        buf_printf(&c->finish, "    (%s)[0] = %s;\n", emit_array(&c->e, a.mem, true), v);
        return;
    }
    const char *ptr = pointer(c, a.mem, a.val);
    if (is_list(e->st->kind)) {
        buf_printf(&c->body, "%s%s[i] = %s;\n", c->inner, ptr, v);
        return;
    }
    const char *four = emit_name(e, arena_printf(e->arena, "%s_out", ptr));
    buf_printf(&c->loads, "%s%s %s[4];\n", c->in, type_info[m->type].c, four);
    buf_printf(&c->body, "%s%s[i] = %s;\n", c->inner, four, v);
    buf_printf(&c->stores, "%soptc_put(%s + offset, %s, left, wide);\n", c->in, ptr, four);
}

static void work(K *c)
{
    Emit *e = &c->e;
    for (int i = 0; i < e->st->nbody; i++) {
        Ref r = e->st->body[i];
        if (emit_inlined(e, r))
            continue;
        const char *x = emit_expr(e, r), *name = emit_name(e, emit_new_name(e, r));
        buf_printf(&c->body, "%sconst %s %s = %s;\n", c->inner, e->g->n[r].ty == BOOL ? "int" : emit_real(e), name, x);
        e->text[r] = name;
    }
    for (int i = 0; i < e->st->nfold; i++)
        fold_one(c, e->st->fold[i]);
    for (int i = 0; i < e->st->nstore; i++)
        store_one(c, e->st->store[i]);
}

/* A stage of a rule with periods runs only in its own phase: a captured graph launches the stages of all of them. */
static const char *guard_text(Gen *g, int mask, const char *ahead)
{
    Plan *p = g->plan;
    if (!p->nperiod)
        return "";
    Buf b = {0};
    buf_puts(&b, "    if (a.guard");
    for (int i = 0; i < p->nperiod; i++)
        buf_printf(&b, "%s((long long)(self->hyper[0]%s) %% %d == 0) != %d", i ? " || " : " && (", ahead, p->period[i], mask >> i & 1);
    buf_puts(&b, "))\n        return;\n");
    const char *s = arena_strdup(&g->arena, b.s ? b.s : "");
    buf_free(&b);
    return s;
}

static bool emit_kernel(Buf *out, Gen *g, const PlanEntry *en, int mask, const Stage *s, const char *fn)
{
    K c = {0};
    bool step = !strcmp(en->name, "step");
    emit_begin(&c.e, g->plan, &en->phase[mask], s, &g->arena, reserved);
    c.e.t_ahead = !step;                        /* t on the device moves when a step begins */
    c.ptr = NEWS(&g->arena, const char *, g->plan->nmem + 1);
    bool warp_fold = s->kind == S_FLAT && s->nfold;
    const char *tmpl = s->kind == S_TILE ? "tile" : warp_fold ? "fold" : s->kind == S_FLAT ? "map" : is_list(s->kind) ? "list" : "single";
    c.in = s->kind == S_TILE ? "            " : "        ";
    c.inner = is_single(s->kind) ? "    " : is_list(s->kind) ? "        " : arena_printf(&g->arena, "%s    ", c.in);
    emit_scalars(&c.e, &c.hoisted, "    ");
    if (s->kind == S_FLAT && s->uses_rows)
        buf_puts(&c.loads, "        const optc_place place = optc_find(self, offset);\n");
    for (int i = 0; i < s->nfin; i++)
        finish_one(&c, s->fin[i]);
    loads(&c);
    work(&c);
    bool back = s->time % 2;
    const char *order = warp_fold ? (back ? "a.count - 1 - first" : "first") : s->kind == S_TILE ? (back ? "a.count - 1 - blockIdx.x" : "blockIdx.x")
                      : back ? "a.count * OPTC_SPLIT - 1 - blockIdx.x" : "blockIdx.x";
    const char *tick = s->kind == S_GROUP && step ? "    if (a.tick) {\n        if (threadIdx.x == 0)\n            ((double *)self->hyper)[0] += 1.0;\n        __syncthreads();\n    }\n" : "";
    bool split = is_list(s->kind) && !s->nfold;         /* nothing is folded: every 128 values may go to a block of their own */
    Hole h[] = {{"comment", emit_stage_comment(&g->arena, g->plan, s)}, {"fn", fn}, {"back", order},
                /* Measured on an H200: looking up rows and columns wants more warps to hide it; plain maps run best with fewer. */
                {"bounds", s->uses_rows ? "256, 6" : "256"}, {"unit", split ? "blockIdx.x / 32" : "blockIdx.x"},
                {"first", split ? "blockIdx.x % 32 * OPTC_LANES + threadIdx.x" : "threadIdx.x"}, {"stride", split ? "OPTC_SEG" : "OPTC_LANES"}, {"guard", guard_text(g, mask, step ? "" : " + 1.0")}, {"tick", tick},
                {"which", s->kind == S_GROUP ? "blockIdx.x" : "a.units[blockIdx.x].tensor"}, {"wide", c.wide.len ? c.wide.s : "true"},
                {"length", s->kind == S_ROW ? "self->rows" : s->kind == S_COL ? "self->cols" : "self->slices"},
                {"hoisted", c.hoisted.s}, {"buffers", c.buffers.s}, {"pointers", c.pointers.s}, {"body", c.body.s}, {"loads", c.loads.s}, {"stores", c.stores.s},
                {"finish", c.finish.s}, {"colstart", c.colstart.s}, {"colend", c.colend.s}, {"fins", c.fins.s}};
    int n = sizeof h / sizeof *h;
    for (int i = 0; i < n; i++)
        if (!h[i].text)
            h[i].text = "";
    bool ok = template_fill(out, "stage_cuda.txt", tmpl, h, n);
    Buf *all[] = {&c.hoisted, &c.buffers, &c.pointers, &c.body, &c.loads, &c.stores, &c.finish, &c.colstart, &c.colend, &c.fins, &c.wide};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        buf_free(all[i]);
    return ok;
}

/* How stage_cuda.txt divides the work; the one place that knows beside it. */
void emit_cuda_launch(const Stage *s, int64_t units, int64_t *blocks, int *threads)
{
    bool plain_map = s->kind == S_FLAT && !s->nfold;
    *threads = s->kind == S_TILE || plain_map ? 256 : 128;
    *blocks = plain_map ? units * MAP_SPLIT : s->kind == S_FLAT ? (units + 3) / 4 : is_list(s->kind) && !s->nfold ? units * (SEG / LANES) : units;
}

char *emit_cuda(Gen *g, const char *command)
{
    Plan *p = g->plan;
    Buf code = {0}, shared = {0}, out = {0};
    bool ok = template_fill(&code, "stage_cuda.txt", "tick", NULL, 0);
    for (int e = 0; e < p->nentry; e++)
        for (int m = 0; m < p->entry[e].nphase; m++)
            for (int i = 0; i < p->entry[e].phase[m].nstage; i++) {
                const Stage *s = &p->entry[e].phase[m].stage[i];
                ok = ok && emit_kernel(&code, g, &p->entry[e], m, s, emit_stage_name(&g->arena, p, p->entry[e].name, m, s));
            }
    emit_shared_math(&shared, code.s ? code.s : "");
    buf_puts(&shared, template_text("shape.h"));
    buf_printf(&shared, "\n#define OPTC_SPLIT %d          /* blocks a unit of a map: each thread takes 4 / OPTC_SPLIT vectors */\n", MAP_SPLIT);
    buf_puts(&shared, template_text("cuda.h"));
    char hex[33];
    hash_hex(hash128(code.s ? code.s : "", code.len), hex);
    const char *title = *g->rule->with ? arena_printf(&g->arena, "%s with %s", g->rule->name, g->rule->with) : g->rule->name;
    Hole h[] = {{"title", emit_plain(&g->arena, title)}, {"about", emit_about(g)}, {"command", emit_plain(&g->arena, command)}, {"hash", hex}, {"name", g->rule->name}, {"abi", template_text("abi.h")},
                {"math", shared.s}, {"stages", code.s ? code.s : ""}};
    ok = ok && template_fill(&out, "stage_cuda.txt", "file", h, sizeof h / sizeof *h);
    buf_free(&code);
    buf_free(&shared);
    if (!ok) {
        buf_free(&out);
        diag_set(&g->diag, NULL, 0, NULL, "a template misses a section or names an unknown hole");
        return NULL;
    }
    return buf_take(&out);
}
