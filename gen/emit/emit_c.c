/* The C target: emits stages as plain loops that a compiler vectorises, from the templates of
 * stage_c.txt. */
#include "gen/emit/emit.h"

#include <string.h>

#define OPTC_FN static inline
#include "templates/loops_c.h"           /* OPTC_CHUNK */

static const char *const reserved[] = {
    "self",  "unit", "start", "count", "from",   "len",    "offset",  "done", "lane",
    "row",   "col",  "slice", "segs",  "seg",    "block",  "blocks",  "rows", "cols",
    "width", "line", "i",     "l",     "stages", "dither", "dithers", NULL};
static const char *const prelude[] = {"math.h",     "math_f32.h",
                                      "math_f64.h", "random.h",
                                      "types.h",    "gen/abi/reduction_sizes.h",
                                      "codes.h",    "rounding.h",
                                      "loops_c.h",  "reductions_c.h",
                                      "partials.h", "ring_arrays.h",
                                      "codes_c.h",  "rounding_c.h",
                                      "runs.h",     NULL};
const Target target_c = {.name = "c",
                         .templates = "stage_c.txt",
                         .restricted = "restrict",
                         .array_slot = "arrays",
                         .prelude = prelude,
                         .reserved = reserved,
                         .emit = emit_c};

typedef struct CStage {
    Emit e;
    bool fetch;                                /* it prefetches its next chunk */
    /* by node that a list folds or another loop needs: its local array */
    const char **waiting;
    bool parts;                                /* its body is divided into several loops */
    int *part;                                 /* by node: the loop that computes it */
    bool *waits;                               /* by node: another loop needs it */
    /* by Mem of block codes: its name; values are label_in, label_out */
    const char **label;
    bool dithers;                              /* the dither of a block is computed */
    /* values per round if local arrays must be short; 0: the usual number */
    int few;
} CStage;

static const char *round_of(const CStage *c);

static const char *coded_label(CStage *c, Access a)
{
    if (!c->label[a.mem])
        c->label[a.mem] = emit_array_name(&c->e, a);
    return c->label[a.mem];
}

/* The decoded values of a chunk, in a local array. */
static const char *decoded(CStage *c, Access a)
{
    Emit *e = &c->e;
    if (!e->ptr[a.mem]) {
        e->ptr[a.mem] = emit_joined(e, coded_label(c, a), "in");
        const Hole h[] = {{"type", type_info[e->plan->mem[a.mem].type].name}, {"to", e->ptr[a.mem]},
                          {"from", emit_array(e, a, false)}, {"round", round_of(c)}};
        emit_section(e, AT_POINTERS, "decode", h, 4);
    }
    return e->ptr[a.mem];
}

static const char *pointer(CStage *c, Access a)
{
    Emit *e = &c->e;
    if (emit_coded(e, a))
        return decoded(c, a);
    Dom d = emit_dom(e, a);
    bool across = dom_find(stage_info[e->st->kind].dom, d) == INDEX_ACROSS;
    if (emit_transposed(e, a))
        return emit_pointer(e, a, arena_printf(e->arena, " + slice * %s + row", emit_length(e, d)));
    return emit_pointer(e, a,
                        across ? arena_printf(e->arena, " + slice * %s + col", emit_length(e, d))
                               : " + offset");
}

/* The number of values of an inner loop. With folds each lane gets one value. */
static bool takes_lanes(const Emit *e)
{
    return e->st->nfold || !e->st->uses_rows || emit_codes(e) || emit_draws(e);
}

static const char *round_of(const CStage *c)
{
    return c->few               ? arena_printf(c->e.arena, "%d", c->few)
           : takes_lanes(&c->e) ? "OPTC_LANES"
                                : "OPTC_CHUNK";
}

static void define_array(CStage *c, Access a, const char *index)
{
    Emit *e = &c->e;
    const char *ptr = pointer(c, a), *from = arena_printf(e->arena, "%s[%s]", ptr, index);
    const char *v = emit_entry(e, a, from);
    if (!emit_stores(e->st, a.mem) && e->uses[a.val] == 1 && e->g->n[a.val].ty == NUM)
        e->text[a.val] = v;
    else
        emit_define(e, AT_BODY, a.val,
                    emit_joined(e, emit_coded(e, a) ? coded_label(c, a) : ptr, "i"), v);
}

/* A value that varies along the loop: a pointer before the loop, a load inside. */
static void load_array(CStage *c, Access a, const char *index)
{
    Emit *e = &c->e;
    const Stage *s = e->st;
    const char *ptr = pointer(c, a);
    if (e->plan->mem[a.mem].dom == ELEM && c->fetch && !emit_coded(e, a)) {
        const char *ahead =
            is_tiled(s->kind)
                ? "(from + OPTC_AHEAD < count ? OPTC_AHEAD : self->cols - count + OPTC_AHEAD)"
                : "OPTC_AHEAD";
        emit_section(e, AT_POINTERS, "fetch",
                     (Hole[]){{"x", ptr}, {"ahead", ahead}, {"round", round_of(c)}}, 3);
    }
    define_array(c, a, index);
}

/* Measured: prefetching helps with up to three arrays. With four and more, bursts of prefetches
 * occupy the slots that loads need. */
static bool few_streams(const Emit *e)
{
    int n = 0;
    for (int i = 0; i < e->st->nload; i++)
        n += e->plan->mem[e->st->load[i].mem].dom == ELEM;
    return n <= 3;
}

static void loads(CStage *c)
{
    Emit *e = &c->e;
    const Stage *s = e->st;
    bool elem = is_elem(s->kind), tiled = is_tiled(s->kind);
    for (int i = 0; i < s->nload; i++) {
        Access a = s->load[i];
        Dom d = emit_dom(e, a);
        DomIndex at = dom_find(stage_info[s->kind].dom, d);
        if (at == INDEX_ONE)
            emit_load_scalar(e, AT_HOISTED, a, "0");
        else if (at == INDEX_MATRIX)
            emit_load_scalar(e, elem && !tiled ? AT_POINTERS : AT_HOISTED, a, "slice");
        else if (at == INDEX_DOWN && elem)
            emit_load_scalar(e, tiled ? AT_ROWSTART : AT_POINTERS, a, "row");
        else if (at == INDEX_DOWN)
            emit_load_scalar(e, AT_POINTERS, a,
                             arena_printf(e->arena, "slice * %s + row", emit_length(e, d)));
        else if (emit_transposed(e, a))
            load_array(c, a, arena_printf(e->arena, "(col + i) * %s", emit_axis(e, d, 0)));
        else
            load_array(c, a, "i");
    }
}

/* The indices of a value along the axes of the stage. An element pass counts rows over all
 * matrices. */
static void indices(CStage *c)
{
    const Stage *s = c->e.st;
    bool square = dom_square(stage_info[s->kind].dom);
    const EmitIndex list = {"start", " + i"},
                    row = {is_elem(s->kind) ? "row - slice * self->rows" : "row", ""};
    emit_indices(&c->e, square ? row : list, square ? (EmitIndex){"col", " + i"} : list);
}

/* ---- large bodies ---- */
/* Compile time grows faster than the length of a loop. So a body of many operations becomes several
 * loops over a few values, one after the other, and values that a later loop needs are stored in
 * local arrays. No operation changes, so no bit of the result does. The arrays are on the stack,
 * which may be small in a thread: many arrays are short. */
/* operations per loop; cost of a function call; arrays */
enum { PART = 400, CALL = 40, MOST_WAITING = 1000 };
/* of all arrays together; values per round */
enum { MOST_BYTES = 1 << 16, LEAST_ROUND = 8 };

static int work_of(const Node *n)
{
    return n->op == OP_RANDOM || n->op == OP_NORMAL || !strncmp(op_info[n->op].form, "optc_", 5)
               ? CALL
               : 1;
}

/* Sets for each node the loop that computes it and whether another loop needs it. Returns the
 * number of values that other loops need; -1: one loop is enough, or there are too many such
 * values. */
static int cut_body(const Emit *e, int *part, bool *waits)
{
    const Stage *s = e->st;
    int work = 0, last = 0, n = 0;
    for (Ref r = 0; r < e->g->len; r++)
        part[r] = -1;
    for (int i = 0; i < s->nbody; i++) {
        const Node *x = &e->g->n[s->body[i]];
        work += work_of(x);
        last += work > PART;
        work = work > PART ? work_of(x) : work;
        part[s->body[i]] = last;
        for (int k = 0; k < x->nargs; k++)
            waits[x->arg[k]] |= part[x->arg[k]] >= 0 && part[x->arg[k]] != last;
    }
    for (int i = 0; i < s->nstore; i++)
        waits[s->store[i].val] |= part[s->store[i].val] >= 0 && part[s->store[i].val] != last;
    for (int i = 0; i < s->nfold; i++) {
        Ref x = emit_folded(e, s->fold[i]);
        waits[x] |= part[x] >= 0 && part[x] != last;
    }
    for (Ref r = 0; r < e->g->len; r++)
        n += waits[r];
    return last > 0 && n <= MOST_WAITING ? n : -1;
}

static void plan_parts(CStage *c)
{
    Emit *e = &c->e;
    if (!is_elem(e->st->kind) || e->st->nbody * CALL <= PART)
        return;
    c->part = NEWS(e->arena, int, e->g->len + 1);
    c->waits = NEWS(e->arena, bool, e->g->len + 1);
    int n = cut_body(e, c->part, c->waits), round = takes_lanes(e) ? OPTC_LANES : OPTC_CHUNK,
        all = round;
    while (n * round * type_info[e->plan->real].bytes > MOST_BYTES && round > LEAST_ROUND)
        round /= 2;
    c->parts = n >= 0;
    c->few = round < all ? round : 0;
}

/* Ends a loop and begins the next, which repeats the stage's loads. */
static void next_part(CStage *c)
{
    Emit *e = &c->e;
    emit_section(e, AT_BODY, "part", NULL, 0);
    for (int i = 0; i < e->st->nload; i++) {
        DomIndex at = dom_find(stage_info[e->st->kind].dom, e->plan->mem[e->st->load[i].mem].dom);
        if (at != INDEX_ONE && at != INDEX_MATRIX && at != INDEX_DOWN)
            define_array(c, e->st->load[i], "i");
    }
}

static void body_in_parts(CStage *c)
{
    Emit *e = &c->e;
    const int *part = c->part;
    const bool *waits = c->waits;
    int now = 0, first = 0;
    for (int i = 0; i < e->st->nbody; i++) {
        Ref r = e->st->body[i];
        const char *type = e->g->n[r].ty == BOOL ? "int" : emit_real(e);
        for (; part[r] != now && first < i; first++)
            if (waits[e->st->body[first]])
                e->text[e->st->body[first]] =
                    arena_printf(e->arena, "%s[i]", c->waiting[e->st->body[first]]);
        if (part[r] != now)
            next_part(c);
        now = part[r];
        const char *x = emit_expr(e, r), *name = emit_name(e, emit_value_name(e, r));
        emit_put(e, AT_BODY, "const %s %s = %s;\n", type, name, x);
        e->text[r] = name;
        if (waits[r]) {
            c->waiting[r] = emit_joined(e, name, "buf");
            emit_put(e, AT_BUFFERS, "%s %s[%s];\n", type, c->waiting[r], round_of(c));
            emit_put(e, AT_BODY, "%s[i] = %s;\n", c->waiting[r], name);
        }
    }
}

static void body(CStage *c)
{
    if (c->parts)
        body_in_parts(c);
    else
        emit_body(&c->e);
}

static void finish_array(Emit *e, Access f)
{
    const Mem *m = &e->plan->mem[f.mem];
    const Node *n = &e->g->n[f.val];
    const char *name = emit_raw_name(e, f.val), *kept = type_info[m->type].name;
    const Hole h[] = {
        {"name", name},
        {"kind", arena_printf(e->arena, "%s_%s", is_norm(n) ? "squares" : emit_red_kind(n), kept)},
        {"from", emit_folded_from(e, f)},
        {"entries", emit_folded_count(e, f)},
        {"across", emit_axis(e, m->dom, 1)}};
    emit_section(e, AT_BUFFERS, emit_folds_down(e, f) ? "finish_down" : "finish_across", h,
                 sizeof h / sizeof *h);
    emit_finished(e, AT_BODY, f.val,
                  arena_printf(e->arena, "(%s)%s[i]", emit_fold_real(e, n), name));
}

static void finish_one(Emit *e, Access f)
{
    const Mem *m = &e->plan->mem[f.mem];
    if (m->kind != MEM_PART) {
        finish_array(e, f);
        return;
    }
    const Node *n = &e->g->n[f.val];
    bool single = is_single(e->st->kind);
    const char *k = arena_printf(e->arena, "%s%s", emit_red_kind(n), emit_type_suffix(m->type));
    const char *name = emit_raw_name(e, f.val);
    const Hole h[] = {{"name", name},
                      {"kind", k},
                      {"real", emit_fold_real(e, n)},
                      {"part", emit_array(e, f, false)},
                      {"per_row", emit_parts_per_row(e->arena, m)},
                      {"per_slice", emit_parts_per_slice(e, m)},
                      {"tiles", emit_parts_per_col(e->arena, m)},
                      {"count", single ? emit_parts_of(e, m) : ""}};
    const char *section = single ? "finish_single" : emit_finish(m);
    emit_section(e, single ? AT_HOISTED : AT_BUFFERS, section, h, sizeof h / sizeof *h);
    emit_finished(e, single ? AT_HOISTED : AT_BODY, f.val,
                  single ? name : arena_printf(e->arena, "%s[i]", name));
}

/* Adds one value to its lane or column in the loop that computes it: a separate loop would come
 * between the loads. */
static void fold_add(Emit *e, const Node *n, const char *into, const char *x)
{
    const char *section = arena_printf(e->arena, "add_%s", emit_red_kind(n));
    x = is_norm(n) ? emit_square(e, x) : x;
    emit_section(e, AT_BODY, section, (Hole[]){{"into", into}, {"x", x}, {"s", emit_suffix(e)}}, 3);
}

static void fold_cols(Emit *e, const Node *n, const char *label, const char *x, const Hole *h,
                      int nh)
{
    const char *here = emit_joined(e, label, "here");
    emit_section(e, AT_BUFFERS, "cols_start", h, nh);
    emit_section(e, AT_POINTERS, "cols_here", (Hole[]){h[0], h[1], {"here", here}}, 3);
    fold_add(e, n, arena_printf(e->arena, "%s[i]", here), x);
    emit_section(e, AT_FINISH, "cols_end", h, nh);
}

static void fold_elem(CStage *c, Access f, const char *x)
{
    Emit *e = &c->e;
    const Node *n = &e->g->n[f.val];
    bool tile = is_tiled(e->st->kind), rows = tile && n->dom != ROW && n->dom != COL;
    const char *label = emit_value_name(e, f.val),
               *acc = emit_joined(e, label, n->dom == COL ? "cols" : "lanes");
    const Hole h[] = {
        {"acc", acc},
        {"real", emit_fold_real(e, n)},
        {"kind", arena_printf(e->arena, "%s%s", emit_red_kind(n), emit_fold_suffix(e, n))},
        {"part", emit_array(e, f, true)},
        {"width", tile ? "width" : "OPTC_LANES"},
        {"at", emit_slot(e, f,
                         n->dom == ROW   ? "row"
                         : n->dom == COL ? "start"
                                         : "unit")},
        {"tile", stage_info[e->st->kind].id},
        {"rows", rows ? emit_joined(e, label, "rows") : ""}};
    int nh = sizeof h / sizeof *h;
    if (n->dom == COL) {
        fold_cols(e, n, label, x, h, nh);
        return;
    }
    const char *lane = c->few ? "from % OPTC_LANES + " : !tile && e->st->uses_rows ? "lane + " : "";
    fold_add(e, n, arena_printf(e->arena, "%s[%si]", acc, lane), x);
    emit_section(e, AT_BUFFERS, "lanes", h, nh);
    emit_section(e, tile ? AT_ROWSTART : AT_BUFFERS, "lanes_start", h, nh);
    if (!rows) {
        emit_section(e, tile ? AT_ROWEND : AT_FINISH, "lanes_end", h, nh);
        return;
    }
    emit_section(e, AT_BUFFERS, "rows", h, nh);
    emit_section(e, AT_ROWEND, "rows_add", h, nh);
    emit_section(e, AT_FINISH, "rows_end", h, nh);
}

static int times_folded(const Emit *e, Ref x)
{
    int n = 0;
    for (int i = 0; i < e->st->nfold; i++)
        n += emit_folded(e, e->st->fold[i]) == x;
    return n;
}

/* A local array of a list's values, for a fold after the list. */
static const char *list_buffer(CStage *c, const char *type, const char *name, const char *v)
{
    Emit *e = &c->e;
    const char *array = emit_joined(e, name, "buf");
    emit_put(e, AT_BUFFERS, "%s %s[OPTC_SEG];\n", type, array);
    emit_put(e, AT_BODY, "%s[%si] = %s;\n", array, e->st->uses_rows ? "from + " : "", v);
    return array;
}

/* The text of the value that a fold adds. A pass over elements adds the value by name, or its
 * expression if that is used once. A list stage stores its values (for norms: their squares) in an
 * array and folds the array at its end. */
static const char *folded(CStage *c, const Node *n, Ref x)
{
    Emit *e = &c->e;
    const char *v = emit_expr(e, x), *name = emit_value_name(e, x);
    bool again = is_norm(n) ? !e->text[x] || strchr(v, '(') : !e->text[x] && times_folded(e, x) > 1;
    if (again && (is_norm(n) || !is_list(e->st->kind)))
        emit_define(e, AT_BODY, x, emit_name(e, name), v);
    if (!is_list(e->st->kind))
        return emit_expr(e, x);
    if (is_norm(n))
        return list_buffer(c, "double", emit_value_name(e, x), emit_square(e, e->text[x]));
    if (!c->waiting[x])
        c->waiting[x] = list_buffer(c, emit_real(e), name, v);
    return c->waiting[x];
}

static void fold_one(CStage *c, Access f)
{
    Emit *e = &c->e;
    if (emit_fold_single(e, f))
        return;
    const Node *n = &e->g->n[f.val];
    const char *x = folded(c, n, emit_folded(e, f));
    if (!is_list(e->st->kind)) {
        fold_elem(c, f, x);
        return;
    }
    const Hole h[] = {
        {"part", emit_array(e, f, true)},
        {"kind", arena_printf(e->arena, "%s%s", emit_red_kind(n), emit_fold_suffix(e, n))},
        {"x", x},
        {"at", emit_slot(e, f, "unit")}};
    emit_section(e, AT_FINISH, "list_end", h, sizeof h / sizeof *h);
}

/* The value in f32: of codes and of random roundings. */
static const char *narrowed(Emit *e, Ref val)
{
    const char *x = emit_expr(e, val);
    return e->plan->real == T_F32 ? x : arena_printf(e->arena, "(float)(%s)", x);
}

/* Values wait in a local array until a block of codes is complete. */
static void store_coded(CStage *c, Access a)
{
    Emit *e = &c->e;
    const char *out = emit_joined(e, coded_label(c, a), "out"),
               *most = emit_joined(e, coded_label(c, a), "most");
    const Hole h[] = {{"type", type_info[e->plan->mem[a.mem].type].name},
                      {"to", emit_array(e, a, true)},
                      {"from", out},
                      {"most", most}};
    emit_put(e, AT_BUFFERS, "float %s[OPTC_LANES];\nunsigned %s = 0;\n", out, most);
    emit_put(e, AT_BODY, "%s[from %% OPTC_LANES + i] = %s;\n", out, narrowed(e, a.val));
    /* in this loop, which often waits for divisions */
    emit_put(e, AT_BODY, "%s = optc_code_most(%s, %s[from %% OPTC_LANES + i]);\n", most, most, out);
    if (!c->dithers) {
        emit_put(e, AT_BUFFERS, "unsigned dithers[OPTC_CODED];\n");
        emit_section(e, AT_STORES, e->runs ? "dithers_runs" : "dithers", NULL, 0);
        c->dithers = true;
    }
    emit_section(e, AT_STORES, "encode", h, 4);
}

/* Values wait in a local array until the loop ends. */
static void store_drawn(CStage *c, Access a)
{
    Emit *e = &c->e;
    const char *to = pointer(c, a), *out = emit_joined(e, to, "out");
    const Hole h[] = {{"type", type_info[e->plan->mem[a.mem].type].name},
                      {"to", to},
                      {"from", out},
                      {"draws", emit_draws_of(e, a, to)}};
    emit_put(e, AT_BUFFERS, "float %s[%s];\n", out, round_of(c));
    emit_put(e, AT_BODY, "%s[i] = %s;\n", out, narrowed(e, a.val));
    emit_section(e, AT_STORES, e->runs ? "round_runs" : "round", h, 4);
}

static void store_one(CStage *c, Access a)
{
    Emit *e = &c->e;
    if (emit_drawn(e, a)) {
        store_drawn(c, a);
        return;
    }
    if (emit_coded(e, a)) {
        store_coded(c, a);
        return;
    }
    const char *v =
        emit_call_text(e->arena, type_info[e->plan->mem[a.mem].type].store, emit_expr(e, a.val));
    if (!emit_store_single(e, a, v))
        emit_put(e, AT_BODY, "%s[i] = %s;\n", pointer(c, a), v);
}

/* ---- a stage ---- */
static const char *template_of(const Stage *s, bool chunks)
{
    switch (stage_info[s->kind].walk) {
    case WALK_TILED: return "tile";
    case WALK_FLAT: return s->uses_rows ? "runs" : s->nfold || chunks ? "flat_fold" : "flat";
    case WALK_LIST: return s->uses_rows ? "list_runs" : "list";
    default: return "single";
    }
}

typedef struct {
    Buf *out; const Plan *plan; StageAt at; CFunction fn; bool ok;
} OneStage;

static void emit_stage(void *ctx, Arena *a)
{
    OneStage *x = ctx;
    CStage c = {0};
    const Stage *s = x->at.stage;
    emit_begin(&c.e, &target_c, x->plan, x->at, a, x->fn.prefix);
    c.e.runs = x->fn.runs;
    c.waiting = NEWS(a, const char *, c.e.g->len + 1);
    c.label = NEWS(a, const char *, x->plan->nmem + 1);
    c.fetch = (s->nfold || s->uses_rows) && few_streams(&c.e);
    plan_parts(&c);
    emit_scalars(&c.e);
    emit_dither(&c.e);
    for (int i = 0; i < s->nfin; i++)
        finish_one(&c.e, s->fin[i]);
    loads(&c);
    indices(&c);
    body(&c);
    for (int i = 0; i < s->nfold; i++)
        fold_one(&c, s->fold[i]);
    for (int i = 0; i < s->nstore; i++)
        store_one(&c, s->store[i]);
    Hole h[NEMITHOLE + 9];
    int n = emit_holes(&c.e, h);
    h[n++] = (Hole){"comment", emit_stage_comment(a, s)};
    h[n++] = (Hole){"fn", x->fn.name};
    h[n++] = (Hole){"arrays", emit_array_param(&c.e, ", const int *arrays")};
    h[n++] = (Hole){"length", emit_length(&c.e, stage_info[s->kind].dom)};
    h[n++] = (Hole){"across", emit_axis(&c.e, stage_info[s->kind].dom, 1)};
    h[n++] = (Hole){"tile", stage_info[s->kind].id};
    h[n++] = (Hole){"round", round_of(&c)};
    h[n++] = (Hole){"lanes", c.few ? round_of(&c) : "OPTC_LANES"};
    const char *none = emit_absent(&c.e);
    h[n++] =
        (Hole){"absent", *none ? emit_filled(&c.e, "absent", (Hole[]){{"leaves", none}}, 1) : ""};
    bool chunks = c.parts || emit_codes(&c.e) || emit_draws(&c.e);
    x->ok = template_fill(x->out, target_c.templates, template_of(s, chunks), h, n) && !c.e.broken;
}

bool emit_c_function(Buf *out, Arena *a, const Plan *p, StageAt at, CFunction fn)
{
    OneStage x = {out, p, at, fn, false};
    arena_scratch(a, emit_stage, &x);
    return x.ok;
}
