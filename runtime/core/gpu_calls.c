/* What a rule's calls take on a GPU: groups of matrices, where these lie, and the steps of each call. */
#include "gpu_calls.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- of a program ---- */
static const ProgStage *first_call(const Program *p)
{
    int i = 0;
    while (p->stage[i].kind != S_CALL)
        i++;
    return &p->stage[i];
}

static const CallType call_types[] = {{T_F64, CUDA_R_64F, CUBLAS_COMPUTE_64F, 8, 64, 32, "f64"},
                                      {T_F32, CUDA_R_32F, CUBLAS_COMPUTE_32F, 4, 128, 64, "f32"},
                                      {T_F32, CUDA_R_32F, CUBLAS_COMPUTE_32F_FAST_TF32, 4, 128, 64, "tf32"},
                                      {T_BF16, CUDA_R_16BF, CUBLAS_COMPUTE_32F, 2, 128, 64, "bf16"},
                                      {T_F16, CUDA_R_16F, CUBLAS_COMPUTE_32F, 2, 128, 64, "f16"}};

/* All operands of a rule's products are of one type; f32 may be rounded to tf32 on the way in. */
CORE const CallType *call_type(const Program *p)
{
    int type = p->array[first_call(p)->call->out].type;
    bool tf32 = type == (int)T_F32 && p->product == PRODUCT_TF32;
    for (size_t i = 0; i < sizeof call_types / sizeof *call_types; i++)
        if ((int)call_types[i].type == type && (call_types[i].compute == CUBLAS_COMPUTE_32F_FAST_TF32) == tf32)
            return &call_types[i];
    return NULL;
}

CORE bool call_conditions(const Program *p) { return program_calls(p) && p->nperiod; }

CORE const char *call_kernel(const Program *p, int k)
{
    static const char *const names[KERNEL_PHASE][5] = {
        {"optc_gather", "optc_gather", "optc_gather", "optc_gather", "optc_gather"},
        {"optc_over_8", "optc_over_4", "optc_over_4", "optc_over_2", "optc_over_2"},
        {"optc_mirror_8", "optc_mirror_4", "optc_mirror_4", "optc_mirror_2", "optc_mirror_2"},
        {"optc_mm_f64", "optc_mm_f32", "optc_mm_tf32", "optc_mm_bf16", "optc_mm_f16"}};
    if (k == KERNEL_PHASE)
        return call_conditions(p) ? "optc_phase" : NULL;
    const CallType *t = call_type(p);
    return names[k][t ? t - call_types : 0];
}

CORE void gpu_call_path(const optc_rule *r, char *buf, size_t n)
{
    Cublas c;
    char why[400];
    *buf = 0;
    if (!r->engine->gpu || !program_calls(r->program))
        return;
    if (cublas_open(&c, r->engine->gpu->d->version, NULL, why, sizeof why))
        snprintf(buf, n, "; products by cuBLAS %d.%d", c.version / 1000, c.version % 1000 / 10);
    else
        snprintf(buf, n, "; products by a plain kernel, slower (%.200s)", why);
}

/* ---- sizes ---- */
CORE void call_label(const optc_binding *b, const ProgStage *s, const CallGroup *g, char *buf, size_t n)
{
    const Program *p = b->rule->program;
    const CallType *t = call_type(p);
    ProductShape x = product_shape(p, s->call, g->shape, g->apart);
    char label[96];
    snprintf(buf, n, "the product of %lld x %lld by %lld x %lld in %s%s%.90s, for %s%s, of rule '%.40s'",
             (long long)x.m, (long long)x.k, (long long)x.k, (long long)x.n, t ? t->name : "?",
             *s->where ? " at " : "", s->where, tensor_label(b, b->tensor[g->tensor[0]].of, label),
             g->n > 1 ? " and those of its shape" : "", p->name);
}

/* 32 MB is what cuBLAS asks for on Hopper, 4 before; of a small workspace an eighth, so that matrices find room. */
CORE int64_t gpu_call_bytes(const optc_binding *b)
{
    int64_t full = b->rule->engine->gpu->arch >= 90 ? 32 << 20 : 4 << 20, share = b->rule->engine->workspace / 8;
    return (share < full ? share : full) / 256 * 256 + 256;
}

/* ---- groups ---- */
static bool same_shape(Shape a, Shape b)
{
    return a.slices == b.slices && a.rows == b.rows && a.cols == b.cols && a.rank == b.rank;
}

static int group_of(GpuCalls *x, const optc_binding *b, const int *tensor, int n)
{
    for (int k = 0; k < x->ngroup; k++) {
        int i = (x->near + k) % x->ngroup;                 /* they come in the same order again and again */
        if (x->group[i].tensor == tensor && x->group[i].n == n) {
            x->near = i + 1;
            return i;
        }
    }
    CallGroup *g = &x->group[x->ngroup];
    g->tensor = tensor;
    g->n = n;
    g->shape = b->tensor[tensor[0]].shape;
    g->apart = rows_apart(b, &b->tensor[tensor[0]]);
    g->sets = -1;
    return x->ngroup++;
}

/* Tensors of one shape stand next to each other: how many from there. */
static int alike(const optc_binding *b, const Units *u, int from)
{
    const Tensor *first = &b->tensor[u->tensor[from]];
    int n = 1;
    while (from + n < u->n && same_shape(first->shape, b->tensor[u->tensor[from + n]].shape) &&
           rows_apart(b, first) == rows_apart(b, &b->tensor[u->tensor[from + n]]) &&
           first->even == b->tensor[u->tensor[from + n]].even)
        n++;
    return n;
}

static int count_groups(const optc_binding *b, const Units *u)
{
    int n = 0;
    for (int i = 0; i < u->n; i += alike(b, u, i))
        n++;
    return n;
}

/* ---- sets ---- */
static int set_of(GpuCalls *x, const PointerSet *want)
{
    CallGroup *g = &x->group[want->group];
    for (int i = g->sets; i >= 0; i = x->set[i].next) {
        const PointerSet *s = &x->set[i];
        if (s->array == want->array && s->blocks == want->blocks && s->offset == want->offset &&
            s->down == want->down && s->across == want->across)
            return i;
    }
    x->set[x->nset] = *want;
    x->set[x->nset].each = want->blocks ? (int64_t)want->blocks * (want->blocks + 1) / 2 : 1;
    x->set[x->nset].next = g->sets;
    return g->sets = x->nset++;
}

static int whole_set(GpuCalls *x, int array, int group, int64_t offset)
{
    PointerSet s;
    memset(&s, 0, sizeof s);
    s.array = array;
    s.group = group;
    s.offset = offset;
    return set_of(x, &s);
}

static int block_set(GpuCalls *x, int array, int group, int blocks, int64_t down, int64_t across)
{
    PointerSet s;
    memset(&s, 0, sizeof s);
    s.array = array;
    s.group = group;
    s.blocks = blocks;
    s.down = down;
    s.across = across;
    return set_of(x, &s);
}

/* ---- steps ---- */
/* Blocks that a symmetric product's lower triangle is computed in: they change bits, so what they follow from is known
 * when tensors are bound. Measured on an H200 as shares of the full product's time, mirrored (tests/gpu/products.sh),
 * in blocks of 64 / 128 / 256:
 *   16 bits   48 x 2048 x 2048   1.01 / 0.63 / 0.65      12 x 2048 x 2048   1.05 / 0.78 / 0.71
 *             16 x 2048 x 8192   1.12 / 0.63 / 0.57       1 x 4096 x 4096   1.15 / 0.64 / 0.69
 *              8 x 1600 x 1600   1.06 / 0.86 / 0.91       8 x 1024 x 4096   1.44 / 0.93 / 0.84
 *             24 x  768 x 3072   1.53 / 0.77 / 0.84      12 x  768 x  768   1.74 / 0.88 / 1.18
 *             32 x  512 x 2048   1.29 / 1.08 / 0.99
 *   tf32       8 x 2048 x 2048   1.33 / 1.33 / 0.71       8 x 1024 x 1024   1.25 / 1.02 / 0.98
 *   f64        8 x 1024 x 1024   0.72 / 0.73 / 0.80      24 x  768 x  768   0.78 / 0.83 / 0.91
 *   f32        8 x 1024 x 1024   0.77 / 0.77 / 0.88      64 x  256 x  256   1.01 / 1.15 / 1.16
 * cuBLAS takes smaller tiles for two thousand blocks of 128 than for three; long sums want large ones. */
static int64_t block_rows(const CallType *t, ProductShape z, int64_t matrices)
{
    int64_t down = z.n / 128, many = dom_times(matrices, down * (down + 1) / 2);
    if (t->compute == CUBLAS_COMPUTE_32F_FAST_TF32)
        return z.n > 256 ? 256 : z.n;
    if (t->bytes > 2)
        return z.n >= 256 ? 64 : z.n;
    if (z.n < 640)
        return z.n > 256 ? 256 : z.n;
    if (z.n < 1024 || z.n % 256)
        return 128;
    return z.k < 2 * z.n && (many >= 3000 || z.n >= 4096) ? 128 : 256;
}

static int64_t at_least_1(int64_t n) { return n > 0 ? n : 1; }

static CallStep *add_step(GpuCalls *x, StepKind kind, const CallType *t, int group)
{
    CallStep *s = &x->step[x->nstep++];
    memset(s, 0, sizeof *s);
    s->kind = kind;
    s->type = t;
    s->group = group;
    return s;
}

static CallStep *product_step(GpuCalls *x, const CallType *t, const ProgCall *c, int group)
{
    CallStep *s = add_step(x, STEP_PRODUCT, t, group);
    s->flags = c->flags;
    s->alpha = c->alpha;
    s->beta = c->c >= 0 ? c->beta : 0;
    return s;
}

/* Blocks of a launch of ours over one matrix; 0: more than a launch of all of the group's may have. */
static unsigned own_blocks(const GpuCalls *x, const CallStep *s, bool lower)
{
    const CallGroup *g = &x->group[s->group];
    int tile = s->type->tile;
    int64_t down = count_up(s->m, tile), across = count_up(s->n, tile), t = count_up(s->n, s->type->mirror);
    int64_t n = s->kind == STEP_MIRROR ? dom_times(t, t + 1) / 2
                : s->kind == STEP_OVER ? count_up(dom_times(s->m, s->n), 4096)
                : lower                ? dom_times(down, down + 1) / 2
                                       : dom_times(down, across);
    return dom_times(dom_times(n, g->shape.slices), g->n) > MOST_BLOCKS ? 0 : (unsigned)n;
}

static bool add_own(GpuCalls *x, CallStep *s, bool lower)
{
    s->own = true;
    s->blocks = own_blocks(x, s, lower);
    return s->blocks && s->m <= INT_MAX && s->n <= INT_MAX && s->k <= INT_MAX;
}

static void sizes_into(CallStep *s, ProductShape z)
{
    s->m = z.m;
    s->n = z.n;
    s->k = z.k;
    s->lda = at_least_1(z.ld[0]);
    s->ldb = at_least_1(z.ld[1]);
    s->ldc = at_least_1(z.ld[3]);
}

/* The blocks on and below the diagonal, then the rows below the last whole block. */
static void add_triangle(GpuCalls *x, const CallType *t, const ProgCall *c, int group, ProductShape z, int64_t rows)
{
    CallStep *s = product_step(x, t, c, group);
    int blocks = (int)(z.n / rows);
    int64_t left = z.n % rows, top = z.n - left;
    sizes_into(s, z);
    s->m = s->n = rows;
    int64_t down = rows * (c->flags & TURN_A ? 1 : s->lda), across = rows * (c->flags & TURN_B ? s->ldb : 1);
    s->a = block_set(x, c->a, group, blocks, down, 0);
    s->b = block_set(x, c->b, group, blocks, 0, across);
    s->c = block_set(x, c->out, group, blocks, rows * s->ldc, rows);
    if (!left)
        return;
    s = product_step(x, t, c, group);
    sizes_into(s, z);
    s->m = left;
    s->a = whole_set(x, c->a, group, top * (c->flags & TURN_A ? 1 : s->lda));
    s->b = whole_set(x, c->b, group, 0);
    s->c = whole_set(x, c->out, group, top * s->ldc);
}

static bool add_whole(GpuCalls *x, const CallType *t, const ProgCall *c, int group, ProductShape z, bool own)
{
    CallStep *s = product_step(x, t, c, group);
    sizes_into(s, z);
    s->a = whole_set(x, c->a, group, 0);
    s->b = whole_set(x, c->b, group, 0);
    s->c = whole_set(x, c->out, group, 0);
    return !own || add_own(x, s, c->flags & SYMMETRIC);
}

static bool add_ours(GpuCalls *x, StepKind kind, const CallType *t, const ProgCall *c, int group, ProductShape z)
{
    CallStep *s = add_step(x, kind, t, group);
    sizes_into(s, z);
    s->c = whole_set(x, c->out, group, 0);
    s->a = s->b = kind == STEP_OVER ? whole_set(x, c->c, group, 0) : s->c;
    return add_own(x, s, false);
}

CORE bool step_long(const CallStep *s)
{
    return s->m > INT_MAX || s->n > INT_MAX || s->k > INT_MAX || s->lda > INT_MAX || s->ldb > INT_MAX ||
           s->ldc > INT_MAX;
}

static optc_status too_long(const optc_binding *b, const ProgStage *s, const CallGroup *g, const char *why)
{
    char what[400];
    call_label(b, s, g, what, sizeof what);
    return fail(OPTC_ERROR_ARGUMENT, "optc_bind: %s: %s", what, why);
}

/* By an array of pointers the library takes matrices to tensor cores without looking where they begin: its manual asks
 * for 16 bytes, and for 4 where 8 does not divide k. Blocks of odd sizes, and several matrices of a tensor that begin
 * anywhere, are for our own product. Arrays of ours begin well; callers' are not read by such products (segments.c). */
static bool misaligned(const optc_binding *b, const CallGroup *g, const ProgCall *c, int64_t k)
{
    const Program *p = b->rule->program;
    const CallType *t = call_type(p);
    const int array[] = {c->a, c->b, c->out};
    int64_t by = k % 8 == 0 ? 16 : k % 2 == 0 ? 4 : 1;
    bool blocked = c->flags & BLOCKED, even = !blocked || b->tensor[g->tensor[0]].even;
    for (int i = 0; i < 3 && even && g->shape.slices > 1; i++) {
        Dom d = p->array[array[i]].dom;
        even = (blocked && d == ELEM) || dom_len_inside(d, g->shape) * t->bytes % by == 0;
    }
    return !even && (t->bytes == 2 || t->compute == CUBLAS_COMPUTE_32F_FAST_TF32);
}

static optc_status add_product(const optc_binding *b, GpuCalls *x, const ProgStage *stage, int group)
{
    const Program *p = b->rule->program;
    const ProgCall *c = stage->call;
    const CallGroup *g = &x->group[group];
    const CallType *t = call_type(p);
    ProductShape z = product_shape(p, c, g->shape, g->apart);
    bool symmetric = c->flags & SYMMETRIC, ok = true, own = !x->library || !z.k || misaligned(b, g, c, z.k);
    int first = x->nstep;
    int block = b->rule->engine->gpu->block;
    int64_t matrices = dom_times(g->n, g->shape.slices);
    int64_t rows = !symmetric ? z.n : block && block < z.n ? block : block_rows(t, z, matrices);
    if (!z.m || !z.n || !g->shape.slices)
        return OPTC_OK;
    if (c->c >= 0 && c->c != c->out)
        ok = add_ours(x, STEP_OVER, t, c, group, z);
    if (symmetric && !own && rows < z.n)
        add_triangle(x, t, c, group, z, rows);
    else
        ok = add_whole(x, t, c, group, z, own) && ok;
    if (symmetric && !(c->flags & LOWER))
        ok = add_ours(x, STEP_MIRROR, t, c, group, z) && ok;
    for (int i = first; i < x->nstep && x->library; i++)
        if (step_long(&x->step[i]) && !(x->blas.cublasGemmBatchedEx_64 && x->blas.cublasGemmStridedBatchedEx_64))
            return too_long(b, stage, g, "lengths beyond 32 bits need cuBLAS 12.1 or newer");
    return ok ? OPTC_OK : too_long(b, stage, g, "more than 2^31 - 1 blocks, or rows: bind fewer tensors at a time");
}

static optc_status add_call(optc_binding *b, GpuCalls *x, const Task *t)
{
    const ProgStage *stage = &b->rule->program->stage[t->action->stage];
    const Units *u = task_units(b, t);
    GpuCall *c = &x->call[x->ncall++];
    optc_status s = OPTC_OK;
    c->stage = stage;
    c->batch = t->batch;
    c->first = x->nstep;
    for (int i = 0; i < u->n && s == OPTC_OK; i += alike(b, u, i))
        s = add_product(b, x, stage, group_of(x, b, u->tensor + i, alike(b, u, i)));
    c->n = x->nstep - c->first;
    return s;
}

CORE const GpuCall *calls_of(const optc_binding *b, const ProgStage *s, int batch)
{
    const GpuCalls *x = b->gpu->calls;
    for (int i = 0; i < x->ncall; i++)
        if (x->call[i].stage == s && x->call[i].batch == batch)
            return x->call[i].n ? &x->call[i] : NULL;
    return NULL;
}

/* ---- all of them ---- */
enum { STEPS_A_CALL = 4, SETS_A_CALL = 8 };         /* of a group: over, blocks, the rest, mirror; and their sets */

static bool is_call_task(const optc_binding *b, const Task *t)
{
    return t->action->kind == ACT_LAUNCH && b->rule->program->stage[t->action->stage].kind == S_CALL;
}

static optc_status make_calls(optc_binding *b, GpuCalls *x)
{
    const Program *p = b->rule->program;
    int phases = p->nentry * program_phases(p), calls = 0, groups = 0;
    for (int m = 0; m < phases; m++)
        for (int i = 0; i < b->tasks[m].n; i++)
            if (is_call_task(b, &b->tasks[m].task[i])) {
                calls++;
                groups += count_groups(b, task_units(b, &b->tasks[m].task[i]));
            }
    x->call = TAKE(b, GpuCall, calls);
    x->group = TAKE(b, CallGroup, groups);
    x->step = TAKE(b, CallStep, groups * STEPS_A_CALL);
    x->set = TAKE(b, PointerSet, groups * SETS_A_CALL);
    x->present = TAKE(b, bool, b->nall);
    x->whole = TAKE(b, CUgraphExec, p->nentry);
    if (!x->call || !x->group || !x->step || !x->set || !x->present || !x->whole)
        return no_memory("optc_bind");
    optc_status s = OPTC_OK;
    for (int m = 0; m < phases; m++)
        for (int i = 0; i < b->tasks[m].n && s == OPTC_OK; i++)
            if (is_call_task(b, &b->tasks[m].task[i]))
                s = add_call(b, x, &b->tasks[m].task[i]);
    for (int i = 0; i < x->nset; i++) {
        MemKind kind = p->array[x->set[i].array].kind;
        x->moves = x->moves || kind == MEM_G || kind == MEM_INPUT;
        const CallGroup *g = &x->group[x->set[i].group];
        x->set[i].apart = p->array[x->set[i].array].dom == ELEM && g->apart != g->shape.cols ? g->apart : 0;
        x->npointer += x->set[i].apart ? 1 : 0;
        x->set[i].at = x->npointer;
        x->npointer += dom_times(dom_times(x->set[i].each, g->shape.slices), g->n);
        if (x->npointer > INT_MAX)
            return fail(OPTC_ERROR_ARGUMENT, "optc_bind: more than 2^31 - 1 matrices: bind fewer tensors at a time");
    }
    return s;
}

/* ---- the arrays of pointers ---- */
typedef struct PointerList { CallPlace *to; int64_t n, bytes; } PointerList;

static void put_place(PointerList *l, long long slot, int64_t offset)
{
    l->to[l->n].slot = slot;
    l->to[l->n++].offset = offset * l->bytes;
}

static void put_tensor(const optc_binding *b, const GpuCalls *x, const PointerSet *s, int tensor, PointerList *l)
{
    const Program *p = b->rule->program;
    Shape shape = x->group[s->group].shape;
    long long slot = (long long)tensor * p->narray + s->array;
    for (int64_t k = 0; k < shape.slices; k++) {
        int64_t at = matrix_at(b, &b->tensor[tensor], s->array, k);
        if (!s->blocks)
            put_place(l, slot, at + s->offset);
        for (int64_t i = 0; i < s->blocks; i++)
            for (int64_t j = 0; j <= i; j++)
                put_place(l, slot, at + i * s->down + j * s->across);
    }
}

static CUdeviceptr nth_pointer(const optc_binding *b, const PointerList *l, int64_t i)
{
    int n = b->rule->program->narray;
    void *base = b->tensor[l->to[i].slot / n].mem[l->to[i].slot % n];
    return (CUdeviceptr)(uintptr_t)base + (CUdeviceptr)l->to[i].offset;
}

/* Whether they lie at equal distances, and will. */
static void find_stride(const optc_binding *b, PointerSet *s, const PointerList *l)
{
    MemKind kind = b->rule->program->array[s->array].kind;
    s->even = l->n > 0 && kind != MEM_G && kind != MEM_INPUT;
    s->stride = 0;
    if (!s->even)
        return;
    s->first = nth_pointer(b, l, 0);
    int64_t step = l->n > 1 ? (int64_t)(nth_pointer(b, l, 1) - s->first) : 0;
    s->stride = step / l->bytes;
    s->even = step >= 0 && step % l->bytes == 0;
    for (int64_t i = 2; i < l->n && s->even; i++)
        s->even = (int64_t)(nth_pointer(b, l, i) - nth_pointer(b, l, i - 1)) == step;
}

static void fill_places(const optc_binding *b, GpuCalls *x, CallPlace *all)
{
    int64_t bytes = call_type(b->rule->program)->bytes;
    for (int i = 0; i < x->nset; i++) {
        PointerSet *s = &x->set[i];
        const CallGroup *g = &x->group[s->group];
        PointerList l = {all + s->at, 0, bytes};
        if (s->apart)
            all[s->at - 1].slot = -1, all[s->at - 1].offset = s->apart;
        for (int k = 0; k < g->n; k++)
            if (x->present[g->tensor[k]])
                put_tensor(b, x, s, g->tensor[k], &l);
        find_stride(b, s, &l);
    }
}

CORE CUdeviceptr set_pointers(const GpuCalls *x, int set, int64_t from)
{
    const PointerSet *s = &x->set[set];
    return x->pointers + sizeof(void *) * (size_t)(s->at + from * s->each);
}

static optc_status send_places(optc_binding *b, GpuCalls *x)
{
    GpuEngine *g = b->rule->engine->gpu;
    size_t bytes = sizeof(CallPlace) * (size_t)x->npointer;
    CallPlace *all = (CallPlace *)calloc(1, bytes + 1);
    if (!all)
        return no_memory("optc_run");
    for (int i = 0; i < b->nall; i++)
        x->present[i] = b->tensor[i].view.n >= 0;
    for (int i = 0; i < x->ngroup; i++) {
        CallGroup *y = &x->group[i];
        y->now = 0;
        for (int k = 0; k < y->n; k++)
            y->now += x->present[y->tensor[k]] ? y->shape.slices : 0;
    }
    fill_places(b, x, all);
    /* pageable: copied before it returns */
    int rc = x->npointer ? g->d->cuMemcpyHtoDAsync_v2(x->places, all, bytes, b->gpu->stream) : 0;
    free(all);
    optc_status s = rc ? gpu_error(g, "cuMemcpyHtoDAsync", rc, "where matrices lie") : calls_gather(b);
    x->sent = s == OPTC_OK;
    return s;
}

static bool arranged_otherwise(const optc_binding *b, const GpuCalls *x)
{
    for (int i = 0; i < b->nall; i++)
        if (x->present[i] != (b->tensor[i].view.n >= 0))
            return true;
    return !x->sent;
}

/* Graphs have the numbers of matrices of their time. Those of the library's tuning go with it. */
static void forget_graphs(optc_binding *b)
{
    GpuTables *t = b->gpu;
    gpu_drop_plays(b);
    for (int i = 0; t->play && i < b->rule->program->nentry * t->nphase; i++)
        t->play[i].runs = 0;
    if (t->close) {
        t->close(b);
        t->begin = NULL, t->end = NULL, t->close = NULL;
    }
}

CORE optc_status calls_follow(optc_binding *b)
{
    GpuCalls *x = b->gpu->calls;
    if (arranged_otherwise(b, x)) {
        forget_graphs(b);
        return send_places(b, x);
    }
    return x->moves ? calls_gather(b) : OPTC_OK;
}

/* ---- binding ---- */
static optc_status open_library(optc_binding *b, GpuCalls *x)
{
    GpuEngine *g = b->rule->engine->gpu;
    bool again;
    x->library = cublas_open(&x->blas, g->d->version, &again, x->why, sizeof x->why);
    if (!x->library)                               /* other bits for want of memory would be a surprise */
        return again ? fail(OPTC_ERROR_MEMORY, "optc_bind: %s", x->why) : OPTC_OK;
    int rc = x->blas.cublasCreate_v2(&x->handle);
    x->handle = rc ? NULL : x->handle;
    if (!rc)
        rc = x->blas.cublasSetPointerMode_v2(x->handle, CUBLAS_POINTER_MODE_HOST);
    if (!rc)            /* sums that several blocks share stay in f32 */
        rc = x->blas.cublasSetMathMode(x->handle, CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION);
    return rc ? fail(rc == CUBLAS_STATUS_ALLOC_FAILED ? OPTC_ERROR_MEMORY : OPTC_ERROR_DEVICE,
                     "optc_bind: cublasCreate of %.300s: %s (OPTC_CUBLAS=none does without)", x->blas.path,
                     x->blas.cublasGetStatusString(rc))
              : OPTC_OK;
}

CORE optc_status calls_bind(optc_binding *b)
{
    GpuEngine *g = b->rule->engine->gpu;
    const Program *p = b->rule->program;
    if (!program_calls(p))
        return OPTC_OK;
    if (!call_type(p))
        return fail(OPTC_ERROR_ARGUMENT, "optc_bind: products of rule '%s' are in a type that a GPU has none in",
                    p->name);
    GpuCalls *x = TAKE(b, GpuCalls, 1);
    if (!x)
        return no_memory("optc_bind");
    b->gpu->calls = x;
    optc_status s = calls_check(p);
    for (int i = 0; i < p->nstage && s == OPTC_OK; i++)
        if (p->stage[i].kind == S_CALL && p->stage[i].call->callee != CALL_MM)
            s = bad_call(p, &p->stage[i], "power, chol, qr, eigh, solve, sort and take are done on the CPU alone so far");
    if (s == OPTC_OK)
        s = open_library(b, x);
    if (s == OPTC_OK)
        s = make_calls(b, x);
    if (s != OPTC_OK)
        return s;
    TRY(g, cuStreamCreate(&x->own, 1), "a stream to capture products in");
    TRY(g, cuStreamCreate(&x->inner, 1), "a stream to capture products in");
    size_t n = (size_t)x->npointer, periods = sizeof *p->period * (size_t)p->nperiod;
    x->bytes = n * (sizeof(CallPlace) + sizeof(void *)) + periods;
    s = gpu_alloc(b->rule->engine, x->bytes, b->gpu->stream, "where matrices lie", &x->memory);
    x->places = x->memory;
    x->pointers = x->memory + n * sizeof(CallPlace);
    x->periods = x->pointers + n * sizeof(void *);
    if (s == OPTC_OK && periods)
        s = gpu_write(b, (void *)(uintptr_t)x->periods, p->period, periods, true, "optc_bind");
    return s == OPTC_OK ? send_places(b, x) : s;
}

CORE void calls_unbind(optc_binding *b)
{
    GpuCalls *x = b->gpu->calls;
    if (!x)
        return;
    gpu_give(b->rule->engine, x->memory, x->bytes, b->gpu->stream);
    if (x->handle)
        x->blas.cublasDestroy_v2(x->handle);
    if (x->own)
        b->rule->engine->gpu->d->cuStreamDestroy_v2(x->own);
    if (x->inner)
        b->rule->engine->gpu->d->cuStreamDestroy_v2(x->inner);
    b->gpu->calls = NULL;
}

CORE CUstream calls_stream(const optc_binding *b) { return b->gpu->calls->own; }
