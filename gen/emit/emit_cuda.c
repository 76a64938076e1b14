/* The CUDA target: emits one kernel per stage, from the templates of stage_cuda.txt and
 * statements_cuda.txt. A thread computes a few consecutive elements. The order of every reduction
 * is the same as on the CPU, for every launch (launch.h). */
#include "gen/emit/emit_cuda.h"
#include "gen/emit/prelude.h"

#include <string.h>

static const char *const reserved[] = {
    "self",     "view",   "a",       "u",     "unit",      "start",    "count",    "from",
    "left",     "offset", "first",   "block", "blocks",    "row",      "col",      "slice",
    "segs",     "seg",    "rows",    "line",  "lane",      "here",     "warp",     "wide",
    "across",   "last",   "top",     "down",  "near",      "ends",     "batch",    "i",
    "k",        "l",      "made",    "pair",  "shared",    "place",    "nth",      "piece",
    "pieces",   "walk",   "aligned", "steps", "threadIdx", "blockIdx", "blockDim", "gridDim",
    "warpSize", "work",   "strip",   "room",  "inside",    "end",      "coded",    "dither",
    "exact",    "odd",    "values",  "tiles", "tile",      "at",       "both",     "turn",
    "outside",  "base",   "slot",    "ahead", "alone",     "each",     NULL};
static const char *const prelude[] = {"gen/abi/stage_abi.h",
                                      "math.h",
                                      "math_f32.h",
                                      "math_f64.h",
                                      "random.h",
                                      "types.h",
                                      "gen/abi/reduction_sizes.h",
                                      "codes.h",
                                      "rounding.h",
                                      "cuda_helpers.h",
                                      "reductions_cuda.h",
                                      "codes_cuda.h",
                                      "staged_cuda.h",
                                      "rounding_cuda.h",
                                      "exact_cuda.h",
                                      "runs.h",
                                      "half_tiles_cuda.h",
                                      "partials.h",
                                      "ring_arrays.h",
                                      NULL};
const Target target_cuda = {.name = "cuda",
                            .gpu = true,
                            .templates = "stage_cuda.txt",
                            .statements = "statements_cuda.txt",
                            .restricted = "__restrict__",
                            .array_slot = "arrays.at",
                            .prelude = prelude,
                            .reserved = reserved,
                            .emit = emit_cuda};

static bool stage_has(const CudaStage *c, Op op)
{
    for (int i = 0; i < c->e.st->nbody; i++)
        if (c->e.g->n[c->e.st->body[i]].op == op)
            return true;
    return false;
}

/* The loop takes the root of the value by templates/exact_cuda.h, which notes zeros. Within a
 * where() it may not. */
static bool has_root(const CudaStage *c, Ref val)
{
    bool any = false;
    for (int i = 0; i < c->e.st->nbody; i++) {
        const Node *n = &c->e.g->n[c->e.st->body[i]];
        any = any || (n->op == OP_SQRT && n->arg[0] == val);
    }
    return any && c->e.quick && c->group && !stage_has(c, OP_WHERE);
}

/* Maps that take turns: from one vector of a turn to the next. */
static const char *turn_step(CudaStage *c)
{
    return c->group && emit_codes(&c->e) ? number(c, OPTC_CODED / c->group) : "0";
}

/* With block codes a piece of a tensor begins at a multiple of 128. */
static bool draws_near(const CudaStage *c)
{
    return c->group && emit_codes(&c->e) && emit_draws(&c->e) && !c->e.runs;
}

/* The name of a section, or of its variant for pieces that consist of runs. */
static const char *by_runs(const CudaStage *c, const char *plain, const char *runs)
{
    return c->e.runs ? runs : plain;
}

static void store_coded(CudaStage *c, Access a, const char *ptr, const char *x)
{
    Emit *e = &c->e;
    const char *out = emit_joined(e, ptr, "out");
    bool root = has_root(c, a.val);
    const Hole h[] = {{"hint", number(c, c->knob[KNOB_STORE])},
                      {"type", type_info[e->plan->mem[a.mem].type].name},
                      {"x", ptr},
                      {"from", out},
                      {"root", root ? "true" : "false"},
                      {"odd", root ? "outside" : "false"},
                      {"at", c->group ? "base, room - near" : "offset, left"},
                      {"run", c->group ? "base" : "offset"}};
    emit_put(e, c->group ? AT_BUFFERS : AT_OUTS, "float %s[%d][%d];\n", out,
             c->group ? c->group : 1, c->vec);
    emit_put(e, AT_BODY, "%s[%s][i] = %s;\n", out, c->group ? "k" : "0", x);
    emit_section(e, c->group ? AT_FINISH : AT_STORES, by_runs(c, "put_coded", "put_coded_runs"), h,
                 8);
}

/* Rounds the vector `out` to `stored` by random bits. */
static void round_drawn(CudaStage *c, Access a, const char *ptr, const char *stored,
                        const char *out)
{
    Emit *e = &c->e;
    const TypeInfo *t = &type_info[e->plan->mem[a.mem].type];
    const char *bits = emit_joined(e, ptr, "bits");
    const Hole h[] = {{"type", t->name}, {"c", t->c}, {"to", stored}, {"from", out},
                      {"vector", number(c, c->vec)}, {"draws", emit_draws_of(e, a, ptr)},
                      {"group", number(c, c->group)}, {"step", turn_step(c)},
                      {"near", draws_near(c) ? "optc_is_full<decltype(wide)>::value" : "false"},
                      {"bits", bits}};
    emit_section(e, c->group ? AT_BUFFERS : AT_STORES,
                 c->group ? by_runs(c, "draw_turn", "draw_turn_runs")
                          : by_runs(c, "draw_all", "draw_all_runs"),
                 h, 10);
    const Hole round[] = {h[0], h[1], h[2], h[3], h[4],
                          {"bits", c->group ? arena_printf(e->arena, "%s[k]", bits) : bits}};
    emit_section(e, AT_STORES, "round_all", round, 6);
}

static void store_one(CudaStage *c, Access a)
{
    Emit *e = &c->e;
    const Mem *m = &e->plan->mem[a.mem];
    const TypeInfo *t = &type_info[m->type];
    const char *x = emit_expr(e, a.val), *v = emit_call_text(e->arena, t->store, x);
    if (emit_store_single(e, a, v))
        return;
    const char *ptr = cuda_pointer(c, a);
    if (emit_coded(e, a)) {
        store_coded(c, a, ptr, x);
        return;
    }
    if (!in_vectors(c)) {
        emit_put(e, AT_BODY, "%s[i] = %s;\n", ptr, v);
        return;
    }
    bool packs = *t->store;                    /* the whole vector is converted at once */
    const char *out = emit_joined(e, ptr, "out"),
               *stored = packs ? emit_joined(e, ptr, "stored") : out;
    emit_put(e, AT_OUTS, "%s %s[%d];\n", type_info[packs ? t->compute : m->type].c, out, c->vec);
    emit_put(e, AT_BODY, "%s[i] = %s;\n", out, x);
    if (emit_drawn(e, a)) {
        round_drawn(c, a, ptr, stored, out);
    } else if (packs)
        emit_put(e, AT_STORES, "%s %s[%d];\n%s_all(%s, %s);\n", t->c, stored, c->vec, t->store,
                 stored, out);
    if (c->form == FORM_HALF) {
        const Hole h[] = {{"x", ptr},
                          {"from", stored},
                          {"type", t->c},
                          {"tile", emit_joined(e, ptr, "tile")},
                          {"vector", number(c, c->vec)}};
        emit_section(e, AT_COLSTART, "half_room", h, 5);
        emit_section(e, AT_STORES, "half_keep", h, 5);
        emit_section(e, AT_FINISH, "half_put", h, 5);
        return;
    }
    emit_section(e, AT_STORES, "put",
                 (Hole[]){{"hint", number(c, c->knob[KNOB_STORE])}, {"x", ptr}, {"from", stored}},
                 3);
}

/* Stages with block codes do more arithmetic than the memory has time for: maps of them take
 * quotients and roots without branches. */
static bool takes_quick(const CudaStage *c)
{
    return (stage_has(c, OP_DIV) || stage_has(c, OP_SQRT)) && c->form == FORM_MAP &&
           c->e.plan->real == T_F32 && emit_codes(&c->e);
}

/* Maps with block codes, and maps whose vectors wait in shared memory, take turns: the loop over a
 * thread's vectors is not unrolled. With block codes a turn has up to 16 values of one block: more
 * of them need more registers, fewer take more work for scales. Stages that look up rows step from
 * vector to vector instead. */
static void choose_turns(CudaStage *c)
{
    bool codes = emit_codes(&c->e), flat = c->e.st->kind == S_FLAT && !c->e.st->uses_rows;
    int most = 16 / c->vec;
    c->staged = c->form == FORM_MAP && c->knob[KNOB_LOAD] == 3;
    if (c->form == FORM_MAP && flat && (codes || c->staged))
        c->group = !codes ? 1 : c->knob[KNOB_ITEMS] < most ? c->knob[KNOB_ITEMS] : most;
}

/* The holes of maps that take turns. */
static int turn_holes(CudaStage *c, Hole *h, int n, const char *vector)
{
    Emit *e = &c->e;
    int group = c->group ? c->group : 1, threads = c->knob[KNOB_THREADS];
    bool codes = emit_codes(e);
    h[n++] = (Hole){"group", number(c, group)};
    h[n++] = (Hole){"turns", number(c, c->knob[KNOB_ITEMS] / group)};
    h[n++] = (Hole){"span_turn", number(c, threads * c->vec * group)};
    h[n++] = (Hole){"step", turn_step(c)};
    h[n++] = (Hole){"lane",
                    codes ? arena_printf(e->arena, "optc_code_lane<%s, %d>(work.id)", vector, group)
                          : arena_printf(e->arena, "%s * work.id", vector)};
    h[n] = (Hole){"await", c->staged ? emit_filled(e, "map_await", h, n) : ""};
    n++;
    h[n] = (Hole){"start", c->staged ? emit_filled(e, "map_start", h, n) : ""};
    n++;
    return n;
}

static void work(CudaStage *c)
{
    const Stage *s = c->e.st;
    emit_scalars(&c->e);
    emit_dither(&c->e);
    c->e.quick = takes_quick(c);
    if (c->e.quick && c->group)
        emit_put(&c->e, AT_BUFFERS, "bool outside = false;\n");
    for (int i = 0; i < s->nfin; i++)
        cuda_finish(c, s->fin[i]);
    for (int i = 0; i < s->nload; i++)
        cuda_load(c, s->load[i]);
    cuda_indices(c);
    emit_body(&c->e);
    for (int i = 0; i < s->nfold; i++)
        cuda_fold(c, s->fold[i]);
    for (int i = 0; i < s->nstore; i++) {
        emit_line_directive(&c->e, s->store[i].val);
        store_one(c, s->store[i]);
    }
    if (c->e.cites)
        emit_put(&c->e, AT_BODY, "%s", emit_line_mark);
}

/* ---- the kernel around it ---- */
/* A stage of a rule with periods checks its phase and returns in others, because a captured graph
 * launches the stages of all phases. A kernel that several stages share gets its phase as an
 * argument. */
static const char *guard_text(CudaStage *c, int mask)
{
    const Plan *p = c->e.plan;
    Buf b = {.arena = c->e.arena};
    for (int i = 0; i < p->nperiod; i++)
        buf_printf(&b, "%s((long long)(self->hyper[0] + self->hyper[%d]%s) %% %d == %d) != %s",
                   i ? " || " : "", p->rule->nhyper + 1, c->e.t_ahead ? " + 1.0" : "",
                   p->period[i].every, p->period[i].offset,
                   c->e.array_slot ? arena_printf(c->e.arena, "(arrays.phase >> %d & 1)", i)
                   : mask >> i & 1 ? "1"
                                   : "0");
    return p->nperiod ? emit_filled(&c->e, "guard", (Hole[]){{"elsewhere", buf_text(&b)}}, 1) : "";
}

/* A tensor that takes no part has n < 0, so maps and flat folds do nothing without a test. Other
 * forms need one. */
static const char *absent_text(CudaStage *c)
{
    const char *leaves = emit_absent(&c->e);
    if (c->form == FORM_MAP || c->form == FORM_FOLD)
        return "";
    return *leaves ? emit_filled(&c->e, "absent_leaves", (Hole[]){{"leaves", leaves}}, 1)
                   : emit_filled(&c->e, "absent", NULL, 0);
}

/* Chooses between loops with and without bounds checks. In a loop with checks every load is in a
 * branch of its own, and the compiler may copy its registers at the end of the branch: the next
 * load then waits for it. */
static const char *choose_even(CudaStage *c, bool placed, Hole coded)
{
    Arena *a = c->e.arena;
    Dom own = stage_info[c->e.st->kind].dom;
    const char *all = squares(c) ? emit_length(&c->e, own) : "self->n";
    const char *sizes =
        is_tiled(c->e.st->kind) ? "" : arena_printf(a, " && %s %% %d == 0", all, c->vec);
    if (c->form == FORM_MAP && !placed)
        return emit_filled(
            &c->e, "walk_full",
            (Hole[]){{"full", number(c, c->knob[KNOB_THREADS] * c->vec * c->knob[KNOB_ITEMS])},
                     coded,
                     {"near", draws_near(c) ? " && optc_draws_near(self->first + start)" : ""}},
            3);
    if (placed) {
        /* the loop without checks does no division: a tensor of several matrices takes the other
         * one */
        const char *alone = squares(c) || c->by_matrix ? "" : " && self->slices == 1";
        sizes = arena_printf(a, "%s && %s %% %d == 0%s", sizes,
                             c->by_matrix ? "self->rows * self->cols" : emit_axis(&c->e, own, 1),
                             c->vec, alone);
    }
    /* Where a fold writes arrays, loads ahead of the stores before them made it slower. */
    if (c->form == FORM_FOLD && !c->e.st->nstore && !emit_codes(&c->e)) {
        /* optc_ahead */
        sizes = placed ? arena_printf(a, "%s && self->cols >= OPTC_LANES", sizes) : "";
        const Hole h[] = {{"sizes", sizes}, coded, {"end", squares(c) ? "end" : "self->n"}};
        return emit_filled(&c->e, "walk_unit", h, 3);
    }
    return emit_filled(&c->e, "walk_even", (Hole[]){{"sizes", sizes}, coded}, 2);
}

/* Stages with block codes are compiled for tensors that store codes and for small ones, which store
 * f32. */
static const char *choose_walk(CudaStage *c, bool placed)
{
    const char *walk =
        choose_even(c, placed, (Hole){"coded", cuda_walks_coded(c) ? ", optc_yes()" : ""});
    return cuda_walks_coded(c) ? emit_filled(&c->e, "walk_coded", (Hole[]){{"walk", walk}}, 1)
                               : walk;
}

/* The index of the unit of work: the block's number, or the counter of a grid-stride loop (round).
 * Every second pass counts from the end, because the cache then holds what the previous pass used
 * last. */
typedef struct { const char *first, *all, *stride, *nth, *back; bool round; } Walking;

static Walking walking(CudaStage *c, int64_t pieces)
{
    Arena *a = c->e.arena;
    int warps = c->knob[KNOB_THREADS] / 32;
    bool fold = c->form == FORM_FOLD;
    Walking w = {
        .first = "blockIdx.x", .all = "a.count", .stride = "", .round = c->knob[KNOB_GRID]};
    if (fold && !folds_by_block(c)) {
        w.first = arena_printf(a, "(long long)blockIdx.x * %d + threadIdx.x / 32", warps);
        w.stride = arena_printf(a, " * %d", warps);
    }
    if (c->form == FORM_MAP)
        w.all = arena_printf(a, "optc_work_rounds<%d, %d>(a)", c->knob[KNOB_THREADS], (int)pieces);
    w.nth = w.round || fold ? "nth" : w.first;
    bool back = c->e.st->back;
    w.back = back ? arena_printf(a, "%s - 1 - %s", w.all, w.nth) : w.nth;
    if (c->form == FORM_MAP)
        w.back = back ? "true" : "false";
    return w;
}

/* Shared memory of the reductions that the stage finishes. */
static const char *scratch_text(CudaStage *c)
{
    const char *size = is_single(c->e.st->kind) ? "[OPTC_LANES]" : "[8][32]";
    return c->e.st->nfin ? emit_filled(&c->e, "scratch", (Hole[]){{"size", size}}, 1) : "";
}

enum { MOST_HOLES = NEMITHOLE + 40 };
static const char *loop_text(CudaStage *c, const char *vector)
{
    Emit *e = &c->e;
    const Hole h[] = {{"vector", vector},
                      {"body", buf_text(&e->at[AT_BODY])},
                      {"outside", c->group ? "outside = true;" : ""}};
    return emit_filled(e, e->quick ? "loop_quick" : "loop", h, 3);
}

static int stage_holes(CudaStage *c, Hole *h, const Walking *w, int64_t pieces, int mask)
{
    Emit *e = &c->e;
    const Stage *s = e->st;
    bool placed = in_vectors(c) && !is_tiled(s->kind) && s->uses_rows, fold = c->form == FORM_FOLD,
         list = squares(c), first = s->kind == S_GROUP && !e->t_ahead;
    Dom own = stage_info[s->kind].dom;
    const char *vector = number(c, c->vec),
               *by = fold ? "OPTC_LANES" : number(c, c->vec * c->knob[KNOB_THREADS]);
    const Hole place[] = {
        {"vector", vector},
        {"thread", fold ? "lane" : "work.id"},
        {"across", c->by_matrix ? "self->rows * self->cols" : emit_axis(e, own, 1)},
        {"by", by}};
    bool spot = list || c->by_matrix;
    const char *at = c->form == FORM_HALF ? "place_half"
                     : list               ? "place_list"
                     : spot               ? "place_matrix"
                                          : "place";
    const Hole length = {"length", emit_length(e, own)};
    const char *span = fold   ? list ? "fold_span_list" : "fold_span"
                       : list ? "map_span_list"
                              : "map_span";
    const Hole more[] = {
        {"mems", number(c, e->plan->nmem)},
        {"back", w->back},
        {"nth", w->nth},
        {"pieces", number(c, pieces)},
        {"vector", vector},
        {"threads", number(c, c->knob[KNOB_THREADS])},
        {"items", number(c, c->knob[KNOB_ITEMS])},
        {"lines",
         number(c, band_lines(e->plan, s, &(Launch){{c->knob[0], c->knob[1], c->knob[2]}}))},
        {"warps", number(c, c->knob[KNOB_THREADS] / 32)},
        {"chunk", number(c, list_chunk(e->plan, s))},
        {"tile", stage_info[s->kind].id},
        length,
        {"span", emit_filled(e, span, &length, 1)},
        {"end", list ? "end" : "self->n"},
        {"across", list ? emit_axis(e, own, 1) : ""},
        {"wide", c->wide.len ? buf_text(&c->wide) : "true"},
        {"guard", arena_printf(e->arena, "%s%s", guard_text(c, mask), absent_text(c))},
        {"choose", choose_walk(c, placed)},
        {"coded", cuda_walks_coded(c) ? ", const auto coded" : ""},
        {"place", placed ? emit_filled(e, at, place, 3) : ""},
        {"ahead", placed ? emit_filled(e, spot ? "ahead_list" : "ahead", place + 2, 2) : ""},
        {"scratch", scratch_text(c)},
        {"alone", c->form == FORM_COLS ? cuda_columns_alone(c) : ""},
        {"moves_t", first ? emit_filled(e, "moves_t", NULL, 0) : ""},
        {"which", s->kind == S_GROUP ? "blockIdx.x" : "a.units[blockIdx.x].tensor"}};
    int n = emit_holes(e, h);
    if (c->form == FORM_MAP)
        h[n++] = (Hole){"loop", loop_text(c, vector)};
    n = turn_holes(c, h, n, vector);
    h[AT_COLEND].text = cuda_column_finish(c);
    memcpy(h + n, more, sizeof more);
    return n + (int)(sizeof more / sizeof *more);
}

/* The body of a kernel. Maps and folds process a unit of work, once or in a grid-stride loop. */
static const char *inside_text(CudaStage *c, int mask)
{
    Emit *e = &c->e;
    int64_t pieces =
        launch_unit_blocks(e->st, &(Launch){{c->knob[0], c->knob[1], c->knob[2], c->knob[3],
                                             c->knob[4], c->knob[5], c->knob[6]}});
    Walking w = walking(c, pieces);
    Hole h[MOST_HOLES];
    int n = stage_holes(c, h, &w, pieces, mask);
    if (c->form != FORM_MAP && c->form != FORM_FOLD)
        return emit_filled(e, form_name[c->form], h, n);
    const char *section = folds_by_block(c)      ? "fold_block"
                          : c->form != FORM_MAP ? "fold_each"
                          : c->group            ? "map_turns_each"
                                                : "map_each";
    const char *each = emit_filled(e, section, h, n);
    const Hole around[] = {
        {"first", w.first}, {"all", w.all}, {"stride", w.stride}, {"each", each}};
    if (w.round || c->form == FORM_FOLD)
        each = emit_filled(e, w.round ? "round" : "once", around, 4);
    const char *lanes = folds_by_block(c) ? "OPTC_LANES" : "32";
    return emit_filled(e, form_name[c->form], (Hole[]){{"each", each}, {"lanes", lanes}}, 2);
}

bool emit_cuda_kernel(Buf *out, Arena *a, const Plan *p, StageAt at, CudaKernel k)
{
    CudaStage c = {.form = stage_form(at.stage),
                   .knob = k.launch->v,
                   .vec = k.launch->v[KNOB_VECTOR],
                   .wide.arena = a};
    c.vec = folds_by_block(&c) ? 4 : c.vec;
    emit_begin(&c.e, &target_cuda, p, at, a, k.prefix);
    c.e.cites = k.cites;
    c.e.runs = k.runs;
    /* only a step advances t on the device */
    c.e.t_ahead = strcmp(at.entry->name, "step") != 0;
    c.rowfold = NEWS(a, const char *, (c.e.g->len + 1) * NCLASS);
    c.by_matrix = cuda_by_matrix(&c);
    choose_turns(&c);
    /* the first value of a matrix must be aligned */
    if (squares(&c))
        buf_printf(&c.wide, "slice * %s %% %d == 0",
                   emit_length(&c.e, stage_info[at.stage->kind].dom), c.vec);
    work(&c);
    const char *threads = number(&c, c.knob[KNOB_THREADS]);
    const char *bounds =
        c.knob[KNOB_BLOCKS] ? arena_printf(a, "%s, %d", threads, c.knob[KNOB_BLOCKS]) : threads;
    const Hole h[] = {{"comment", emit_stage_comment(a, at.stage)},
                      {"bounds", bounds},
                      {"fn", k.fn},
                      {"arrays", emit_array_param(&c.e, ", const optc_numbers arrays")},
                      {"inside", inside_text(&c, at.phase)}};
    return template_fill(out, target_cuda.templates, "kernel", h, 5) && !c.e.broken;
}
