/* A case: tensors of certain sizes at certain addresses, and the launch that optc makes for
 * them. */
#include "tools/verify/verify.h"

#include <stdlib.h>
#include <string.h>

/* ---- the list of cases ---- */
static CaseTensor vector_of(int64_t n, int shift)
{
    return (CaseTensor){{n, 1, 1, n, 0, 0}, shift, false};
}

static CaseTensor matrix_of(int64_t slices, int64_t rows, int64_t cols, int shift)
{
    return (CaseTensor){{slices * rows * cols, slices, rows, cols, 0, 0}, shift, false};
}

static CaseTensor absent_of(CaseTensor t)
{
    t.absent = true;
    return t;
}

static void add_case(CasePlan *out, int *n, const char *name, const CaseTensor *t, int nt,
                     double step, bool advance)
{
    CasePlan *c = &out[(*n)++];
    *c = (CasePlan){.name = name, .n = nt, .t = step, .advance = advance};
    memcpy(c->tensor, t, sizeof *t * (size_t)nt);
}

static bool has_op(const Verify *v, Op op)
{
    const Stage *s = v->at.stage;
    for (int i = 0; i < s->nbody; i++)
        if (v->phase->g->n[s->body[i]].op == op)
            return true;
    return false;
}

static bool rotates(const Verify *v)
{
    const Stage *s = v->at.stage;
    bool any = false;
    for (int i = 0; i < s->nload + s->nstore; i++) {
        const Mem *m = &v->plan->mem[(i < s->nload ? s->load[i] : s->store[i - s->nload]).mem];
        any = any || (m->kind == MEM_STATE && v->plan->rule->state[m->sym].rotates);
    }
    return any;
}

/* Element passes that only take t as a number leave it unknown. */
static bool step_unknown(const Verify *v)
{
    return is_elem(v->at.stage->kind) && !rotates(v) && !has_op(v, OP_POWI) &&
           !has_op(v, OP_RANDOM) && !has_op(v, OP_NORMAL);
}

/* Vectors that end in each place of a vector that a thread loads, in each turn of the thread. */
static int tails(const Verify *v, CaseTensor *out)
{
    int vec = v->launch.v[KNOB_VECTOR], turn = vec * v->launch.v[KNOB_THREADS], n = 0;
    for (int k = 0; k < v->launch.v[KNOB_ITEMS] && k < 4; k++)
        for (int j = 1; j < vec; j = k && vec > 4 ? 2 * j + 1 : j + 1)
            out[n++] = vector_of(k * (turn + 3 * vec) + j, 0);
    return n;
}

static int flat_cases(const Verify *v, CasePlan *out)
{
    CaseTensor few[MOST_CASE_TENSORS];
    const CaseTensor t[] = {vector_of(OPTC_SEG + 5, 0), vector_of(1700, 1),
                            absent_of(vector_of(600, 0)), vector_of(2050, 0), vector_of(128, 0)};
    CaseTensor shifted[8], one = vector_of(5, 0);
    const int *knob = v->launch.v;
    int n = tails(v, few), at = 0, span = knob[KNOB_THREADS] * knob[KNOB_VECTOR] * knob[KNOB_ITEMS];
    int arrays = v->at.stage->nload + v->at.stage->nstore < 7 ? v->at.stage->nload : 7;
    for (int i = 0; i < arrays; i++)
        shifted[i] = vector_of(span + 4, 2 + i);
    shifted[arrays] = vector_of(span - 1, 0);
    few[n++] = vector_of(130, 1);
    few[n++] = absent_of(vector_of(7, 0));
    add_case(out, &at, "one tensor", &one, 1, 5, false);
    add_case(out, &at, "small tensors", few, n, 5, false);
    add_case(out, &at, "one array misaligned", shifted, arrays + 1, 5, false);
    add_case(out, &at, "whole and cut segments, aligned and not", t, 5, 5, false);
    return at;
}

static int matrix_cases(const Verify *v, CasePlan *out)
{
    int n = 0;
    const CaseTensor t[] = {matrix_of(1, 67, 45, 0), matrix_of(2, 9, 128, 0),
                            matrix_of(1, 3, 40, 1),  absent_of(matrix_of(1, 4, 4, 0)),
                            matrix_of(3, 1, 5, 0),   matrix_of(1, 40, 1, 0)};
    const CaseTensor wide[] = {matrix_of(1, 5, 1028, 0), matrix_of(1, 3, OPTC_SEG + 12, 0),
                               matrix_of(1, 2, 1029, 2)};
    add_case(out, &n, "small matrices", t, 6, 5, false);
    const CaseTensor tall[] = {
        matrix_of(1, 18 * OPTC_TILE_ROWS, 3, 0), matrix_of(2, 330 * OPTC_TILE_ROWS, 2, 0),
        matrix_of(1, 40 * OPTC_TILE_ROWS, 1, 0), matrix_of(1, 2, 9 * OPTC_TILE_COLS, 0)};
    add_case(out, &n, "wide matrices", wide, 3, 6, false);
    if (is_list(v->at.stage->kind) && v->at.stage->nfin)
        add_case(out, &n, "many tiles", tall, 4, 7, false);
    return n;
}

static int single_cases(const Verify *v, CasePlan *out)
{
    const Stage *s = v->at.stage;
    int n = 0;
    bool group = s->kind == S_GROUP && !strcmp(v->at.entry->name, "step");
    const CaseTensor few[] = {vector_of(5, 0), vector_of(4097, 0)};
    const CaseTensor gone[] = {absent_of(vector_of(5, 0)), vector_of(3, 0),
                               absent_of(vector_of(2, 0))};
    const CaseTensor many[] = {vector_of(OPTC_SEG * 4230 + 7, 0), vector_of(OPTC_SEG * 300, 0)};
    add_case(out, &n, "the first step", few, 2, 1, group);
    add_case(out, &n, "step 2, after t was advanced", few, 2, 2, false);
    add_case(out, &n, "step 1000, some absent", gone, s->kind == S_GROUP ? 2 : 3, 1000, group);
    if (s->nfin)
        add_case(out, &n, "many partials", many, 2, 7, false);
    return n;
}

static int64_t values_of(const Verify *v, const CasePlan *c, const Access *a, int n)
{
    int64_t sum = 0;
    for (int i = 0; i < n; i++)
        for (int t = 0; t < c->n; t++) {
            const Mem *m = &v->plan->mem[a[i].mem];
            Shape s = c->tensor[t].shape;
            sum += m->kind == MEM_PART ? part_len(m, s, c->n) : dom_len(m->dom, s);
        }
    return sum;
}

int verify_cases(const Verify *v, CasePlan *out)
{
    enum { MOST_CASE_VALUES = 1000000 };
    const Stage *s = v->at.stage;
    const Rule *r = v->plan->rule;
    int n = is_single(s->kind)                       ? single_cases(v, out)
            : s->kind == S_FLAT && !s->uses_rows ? flat_cases(v, out)
                                                 : matrix_cases(v, out);
    int kept = 0;
    for (int i = 0; i < n; i++) {
        CasePlan *c = &out[kept];
        *c = out[i];
        c->symbolic_t = step_unknown(v);
        for (int t = 0; t < c->n; t++)
            c->tensor[t].shape.rank =
                r->rank ? rank_length(r->rank, r->share, c->tensor[t].shape) : 0;
        int64_t all = values_of(v, c, s->load, s->nload) + values_of(v, c, s->store, s->nstore) +
                      values_of(v, c, s->fin, s->nfin) + values_of(v, c, s->fold, s->nfold);
        kept += all <= MOST_CASE_VALUES;
    }
    return kept;
}

/* ---- memory ---- */
int access_mem(const VerifyCase *c, Access a)
{
    const Plan *p = c->v->plan;
    const Mem *m = &p->mem[a.mem];
    if (m->kind != MEM_STATE || !p->rule->state[m->sym].rotates)
        return a.mem;
    return plan_mem_of_state(p, state_array(p->rule->state, m->sym, c->plan->t));
}

int case_area(const VerifyCase *c, int tensor, int mem)
{
    return c->area[tensor * c->v->plan->nmem + mem];
}

int64_t case_length(const VerifyCase *c, int tensor, int mem)
{
    const Mem *m = &c->v->plan->mem[mem];
    Shape s = c->plan->tensor[tensor].shape;
    return m->kind == MEM_PART ? part_len(m, s, c->plan->n) : dom_len(m->dom, s);
}

static bool is_written(const VerifyCase *c, int mem)
{
    const Stage *s = c->v->at.stage;
    bool any = false;
    for (int i = 0; i < s->nstore; i++)
        any = any || access_mem(c, s->store[i]) == mem;
    for (int i = 0; i < s->nfold; i++)
        any = any || s->fold[i].mem == mem;
    return any;
}

/* A group's array serves all its tensors; partials of all tensors are one array. */
static void make_array(VerifyCase *c, int mem)
{
    const Plan *p = c->v->plan;
    const Mem *m = &p->mem[mem];
    bool common = dom_info[m->dom].scope < SCOPE_TENSOR;
    int w = type_info[m->type].bytes, every = m->kind == MEM_PART ? 1 : CASE_GROUPS;
    if (c->area[mem] >= 0)
        return;
    for (int t = 0; t < c->plan->n; t++) {
        int *at = &c->area[t * p->nmem + mem];
        if (*at >= 0)
            continue;
        if (common && t >= every) {
            *at = c->area[t % every * p->nmem + mem];
            continue;
        }
        const char *of = !common ? " of tensor" : every > 1 ? " of group" : "";
        const char *name =
            arena_printf(&c->v->scratch, "%s%s", *m->name ? m->name : "partials", of);
        name = *of && c->plan->n > 1 ? arena_printf(&c->v->scratch, "%s %d", name, t) : name;
        *at = memory_area(&c->memory, name, case_length(c, t, mem) * w, w, is_written(c, mem));
        int shift = c->plan->tensor[t].shift;
        if (!common && (shift == 1 || shift == 2 + c->placed))
            memory_place(&c->memory, *at, w);
    }
    c->placed += !common;
}

static void make_arrays(VerifyCase *c)
{
    const Stage *s = c->v->at.stage;
    for (int i = 0; i < s->nload; i++)
        make_array(c, access_mem(c, s->load[i]));
    for (int i = 0; i < s->nstore; i++)
        make_array(c, access_mem(c, s->store[i]));
    for (int i = 0; i < s->nfin; i++)
        make_array(c, s->fin[i].mem);
    for (int i = 0; i < s->nfold; i++)
        make_array(c, s->fold[i].mem);
}

/* ---- the tables that a launch takes ---- */
static void put_all(VerifyCase *c, int area, int64_t at, const void *from, size_t n)
{
    for (size_t i = 0; i < n; i++)
        memory_put(&c->memory, area, at + (int64_t)i, 1, ((const uint8_t *)from)[i]);
}

static void put_views(VerifyCase *c, int views, int table)
{
    const Plan *p = c->v->plan;
    int64_t total = 0;
    for (int t = 0; t < c->plan->n; t++)
        total += c->plan->tensor[t].shape.n;
    for (int t = 0; t < c->plan->n; t++) {
        Shape s = c->plan->tensor[t].shape;
        bool group = c->v->at.stage->kind == S_GROUP;
        optc_view v = {.hyper =
                           (const double *)(uintptr_t)c->memory.area[c->hyper[case_group(t)]].base,

                       .n = c->plan->tensor[t].absent ? -1
                            : group                   ? 0
                                                      : s.n,
                       .slices = s.slices,
                       .rows = s.rows,
                       .cols = s.cols,
                       .id = t,
                       .ntensors = c->plan->n,
                       .present = c->plan->n,
                       .total = total,
                       .whole_n = s.n,
                       .whole_slices = s.slices,
                       .whole_rows = s.rows,
                       .whole_cols = s.cols,
                       .rank = s.rank};
        put_all(c, views, (int64_t)sizeof v * t, &v, sizeof v);
        for (int m = 0; m < p->nmem; m++) {
            int a = case_area(c, t, m);
            memory_put(&c->memory, table, 8 * ((int64_t)t * p->nmem + m), 8,
                       a < 0 ? 0 : c->memory.area[a].base);
        }
    }
}

typedef struct UnitList { Unit *v; int n; int64_t shorter[BRIEF + 1], longest; } UnitList;

static int unit_length(const VerifyCase *c, Unit u)
{
    Shape s = c->plan->tensor[u.tensor].shape;
    return u.unit == (s.n - 1) / OPTC_SEG ? brief_length(s) : 0;
}

/* As gpu_bind.c lists them: brief units of flat passes first, by length. */
static UnitList list_units(VerifyCase *c)
{
    StageKind k = c->v->at.stage->kind;
    UnitList l = {.n = 0};
    int cap = 0;
    for (int t = 0; t < c->plan->n; t++) {
        Shape s = c->plan->tensor[t].shape;
        for (int64_t u = 0; u < stage_units(k, s); u++)
            PUSH(&c->v->scratch, l.v, l.n, cap) = (Unit){t, (int32_t)u};
        int64_t length = list_length(k, s);
        l.longest = length > l.longest ? length : l.longest;
    }
    if (k != S_FLAT)
        return l;
    UnitList sorted = l;
    sorted.v = NEWS(&c->v->scratch, Unit, l.n + 1);
    sorted.n = 0;
    /* the last round takes the units that are not brief */
    for (int want = 1; want <= BRIEF + 1; want++) {
        for (int i = 0; i < l.n; i++) {
            int length = unit_length(c, l.v[i]);
            if (length == want || (want == BRIEF + 1 && !length))
                sorted.v[sorted.n++] = l.v[i];
        }
        if (want <= BRIEF)
            sorted.shorter[want] = sorted.n;
    }
    return sorted;
}

static void put_arguments(VerifyCase *c, Args a)
{
    const Stage *s = c->v->at.stage;
    memcpy(c->param, &a, sizeof a);
    if (!s->shared)
        return;
    int32_t at[OPTC_SHARED + 1] = {0}, n = 0;
    const struct { const Access *v; int n; } all[4] = {
        {s->load, s->nload}, {s->fin, s->nfin}, {s->store, s->nstore}, {s->fold, s->nfold}};
    for (int k = 0; k < 4; k++)
        for (int i = 0; i < all[k].n && n < OPTC_SHARED; i++)
            at[n++] = all[k].v[i].mem;
    at[OPTC_SHARED] = c->v->at.phase;
    memcpy(c->param + sizeof a, at, sizeof at);
}

static uint64_t bits_of(double x)
{
    union { double f; uint64_t u; } v = {x};
    return v.u;
}

/* Hyperparameters of a group, with t first and the lag of t last. */
static void make_hyper(VerifyCase *c, int group)
{
    Verify *v = c->v;
    int n = v->plan->rule->nhyper + 2;
    const char *name = arena_printf(&v->scratch, "hyper of group %d", group);
    int at = c->hyper[group] = memory_area(&c->memory, name, 8 * n, 8, c->plan->advance);
    bool ahead = strcmp(v->at.entry->name, "step") != 0;
    double t = c->plan->t + (rotates(v) ? 0 : group * 3);  /* one step for all arrays of a ring */
    memory_put(&c->memory, at, 8 * (n - 1), 8, 0);
    if (!c->plan->symbolic_t)
        memory_put(&c->memory, at, 0, 8, bits_of(t - c->plan->advance));
    Term now =
        c->plan->symbolic_t ? term_leaf(&v->pool, 8, at, 0) : term_const(&v->pool, 8, bits_of(t));
    c->t[group] =
        ahead ? term_float(&v->pool, TERM_ADD, 8, now, term_const(&v->pool, 8, bits_of(1)), 0)
              : now;
}

void case_start(VerifyCase *c, Verify *v, const CasePlan *plan)
{
    const Plan *p = v->plan;
    bool group = v->at.stage->kind == S_GROUP;
    *c = (VerifyCase){.v = v, .plan = plan, .memory = {.pool = &v->pool, .arena = &v->scratch}};
    c->area = NEWS(&v->scratch, int, p->nmem * plan->n);
    for (int i = 0; i < p->nmem * plan->n; i++)
        c->area[i] = -1;
    for (int g = 0; g < CASE_GROUPS; g++)
        make_hyper(c, g);
    make_arrays(c);
    UnitList units = list_units(c);
    int views =
        memory_area(&c->memory, "the views", (int64_t)sizeof(optc_view) * plan->n, 0, false);
    int table =
        memory_area(&c->memory, "the table of arrays", 8 * (int64_t)p->nmem * plan->n, 0, false);
    int list = memory_area(&c->memory, "the units of work", 8 * (int64_t)units.n, 0, false);
    put_views(c, views, table);
    put_all(c, list, 0, units.v, sizeof *units.v * (size_t)units.n);
    LaunchForm form = stage_form(v->at.stage);
    Brief brief = count_brief(form, &v->launch, v->at.stage->kind == S_FLAT ? units.shorter : NULL);
    int64_t work = group ? plan->n : units.n;
    put_arguments(c, (Args){c->memory.area[views].base, c->memory.area[table].base,
                            c->memory.area[list].base, work, 0, plan->advance, brief});
    c->machine =
        (PtxMachine){.pool = &v->pool,
                     .memory = &c->memory,
                     .kernel = &v->kernel,
                     .arena = &v->scratch,
                     .most_steps = v->most_steps ? v->most_steps : 100000000,
                     .param = c->param,
                     .threads = count_threads(form, &v->launch, units.longest),
                     .blocks = (int)count_blocks(form, &v->launch, work, brief, units.longest, 3)};
}

bool case_run(VerifyCase *c)
{
    bool ok = true;
    for (int b = 0; b < c->machine.blocks && ok; b++)
        ok = ptx_run_block(&c->machine, b);
    c->v->steps += c->machine.steps;
    free(c->machine.file);
    free(c->machine.thread);
    return ok;
}
