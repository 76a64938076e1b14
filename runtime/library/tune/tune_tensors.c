/* Allocates and binds the tensors that launches are timed on (tune_tensors.h). */
#include "runtime/library/tune/tune_tensors.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_TENSORS = 512, PATTERN = 1 << 20 };
enum { ONE_TENSOR, LIKE_A_MODEL };

static void shape(optc_tensor *t, int64_t (*dim)[2], int i, bool matrix, int64_t rows, int64_t cols)
{
    dim[i][0] = matrix ? rows : rows * cols;
    dim[i][1] = cols;
    t[i] = (optc_tensor){
        .rank = matrix ? 2 : 1, .shape = dim[i], .flags = matrix ? 0 : OPTC_AS_VECTOR};
}

/* The tensors of a transformer with that many elements: layers of four matrices and eight vectors,
 * and the rest as one embedding. */
static int like_a_model(int64_t elements, bool matrix, optc_tensor *t, int64_t (*dim)[2])
{
    /* multiples of the width; cols 0: a vector */
    static const struct {
        int rows, cols;
    } part[] = {{3, 1}, {1, 1}, {4, 1}, {1, 4}, {3, 0}, {4, 0},
                {1, 0}, {1, 0}, {1, 0}, {1, 0}, {1, 0}, {1, 0}};
    int layers = elements >= 1 << 26 ? 24 : elements >= 1 << 22 ? 8 : 4, n = 0;
    int64_t width = 16, rest = elements;
    while ((width + 16) * (width + 16) * 12 * (layers + 2) <= elements)
        width += 16;
    for (int l = 0; l < layers; l++)
        for (size_t i = 0; i < sizeof part / sizeof *part; i++) {
            bool vector = part[i].cols == 0;
            int64_t rows = part[i].rows * width, cols = vector ? 1 : part[i].cols * width;
            if ((vector && matrix) || rows * cols > rest)
                continue;
            shape(t, dim, n++, matrix, rows, cols);
            rest -= rows * cols;
        }
    width = width < rest ? width : rest;
    if (width)
        shape(t, dim, n++, matrix, rest / width, width);
    return n;
}

static int shapes_for(int layout, int64_t elements, bool matrix, optc_tensor *t, int64_t (*dim)[2])
{
    int64_t cols = 1;
    if (layout == LIKE_A_MODEL)
        return like_a_model(elements, matrix, t, dim);
    while (cols * cols < elements && cols < 4096)
        cols *= 2;
    if (matrix)
        shape(t, dim, 0, true, (elements + cols - 1) / cols, cols);
    else
        shape(t, dim, 0, false, elements, 1);
    return 1;
}

static int odd_shapes(optc_tensor *t, int64_t (*dim)[2])
{
    static const int64_t odd[][2] = {{70001, 0}, {300, 701}, {33, 65}, {7, 0},     {67, 4100},
                                     {64, 8192}, {5000, 3},  {1, 0},   {256, 1600}};
    int n = (int)(sizeof odd / sizeof *odd);
    for (int i = 0; i < n; i++) {
        memcpy(dim[i], odd[i], sizeof odd[i]);
        t[i] = (optc_tensor){.rank = odd[i][1] ? 2 : 1, .shape = dim[i]};
    }
    return n;
}

/* Allocates blocks of numbers of several magnitudes and both signs. */
optc_status sets_begin(TuneSets *u)
{
    GpuEngine *g = u->r->engine->gpu;
    const Type type[2] = {u->r->library->plan->p, u->r->library->plan->g};
    char *host = malloc((size_t)PATTERN * 8);
    int rc = 0;
    if (!host)
        return fail(OPTC_ERROR_MEMORY, "tuning: out of memory");
    for (int k = 0; k < 2 && !rc; k++) {
        for (int64_t i = 0; i < PATTERN; i++) {
            uint32_t h = (uint32_t)i * 2654435761u;
            type_store(type[k], host, i,
                       (k ? 0.0625 : 1.0) * (0.25 + (double)(h >> 9) * 0x1p-23) * (h & 1 ? 1 : -1));
        }
        size_t bytes = (size_t)PATTERN * (size_t)type_info[type[k]].bytes;
        rc = g->d->cuMemAlloc_v2(&u->numbers[k], bytes);
        if (!rc)
            rc = g->d->cuMemcpyHtoDAsync_v2(u->numbers[k], host, bytes, NULL);
        if (!rc)
            rc = g->d->cuStreamSynchronize(NULL);
    }
    free(host);
    return rc ? gpu_error(g, "cuMemcpy", rc, "numbers to tune on") : OPTC_OK;
}

void sets_end(TuneSets *u)
{
    for (int i = 0; i < 2; i++)
        if (u->numbers[i])
            u->r->engine->gpu->d->cuMemFree_v2(u->numbers[i]);
}

static optc_status fill(GpuEngine *g, CUdeviceptr to, CUdeviceptr numbers, Type t, int64_t n)
{
    size_t width = (size_t)type_info[t].bytes;
    for (int64_t at = 0; at < n; at += PATTERN)
        TRY(g,
            cuMemcpyDtoDAsync_v2(to + (size_t)at * width, numbers,
                                 (size_t)(n - at < PATTERN ? n - at : PATTERN) * width, NULL),
            "numbers to tune on");
    return OPTC_OK;
}

static optc_status set_inputs(optc_rule *r, Set *s, int n)
{
    for (int i = 0; i < optc_rule_inputs(r); i++) {
        const char *name = optc_rule_input(r, i);
        if (optc_set_scalar(s->b, -1, name, 0.5) == OPTC_OK)
            continue;
        for (int k = 0; k < n; k++) {
            optc_status rc = optc_set_input(s->b, k, name, (void *)(uintptr_t)s->g, 0);
            if (rc != OPTC_OK)
                return rc;
        }
    }
    return OPTC_OK;
}

void set_close(optc_rule *r, Set *s)
{
    const Driver *d = r->engine->gpu->d;
    optc_unbind(s->b);
    gpu_enter(r->engine->gpu);
    if (s->p)
        d->cuMemFree_v2(s->p);
    if (s->g)
        d->cuMemFree_v2(s->g);
    gpu_leave(r->engine->gpu, OPTC_OK);
    *s = (Set){0};
}

static optc_status set_fill(const TuneSets *u, Set *s, int64_t total)
{
    GpuEngine *g = u->r->engine->gpu;
    const Plan *p = u->r->library->plan;
    s->p_bytes = (size_t)total * (size_t)type_info[p->p].bytes;
    TRY(g, cuMemAlloc_v2(&s->p, s->p_bytes + 256), "parameters to tune on");
    /* 8 bytes each: a rule's inputs, of any type, use this memory too */
    TRY(g, cuMemAlloc_v2(&s->g, (size_t)total * 8 + 256), "gradients to tune on");
    optc_status rc = fill(g, s->p, u->numbers[0], p->p, total);
    return rc == OPTC_OK ? fill(g, s->g, u->numbers[1], p->g, total) : rc;
}

/* Binds a set and runs two steps: then every temporary has the contents that a stage finds in a
 * real step. */
static optc_status set_open(const TuneSets *u, Set *s, optc_tensor *t, int n)
{
    const Plan *p = u->r->library->plan;
    int64_t total = 0, at = 0;
    for (int pass = 0; pass < 2; pass++) {
        for (int i = 0; i < n; i++) {
            if (pass) {
                t[i].param = (void *)(uintptr_t)(s->p + (size_t)at * (size_t)type_info[p->p].bytes);
                t[i].grad = (void *)(uintptr_t)(s->g + (size_t)at * (size_t)type_info[p->g].bytes);
            }
            at += (t[i].shape[0] * (t[i].rank == 2 ? t[i].shape[1] : 1) + 63) / 64 * 64;
        }
        if (!pass) {
            total = at;
            gpu_enter(u->r->engine->gpu);
            optc_status rc = gpu_leave(u->r->engine->gpu, set_fill(u, s, total));
            if (rc != OPTC_OK)
                return rc;
        }
        at = 0;
    }
    optc_status rc = optc_bind(u->r, &(optc_group){.tensors = t, .ntensors = n}, 1, &s->b);
    if (rc == OPTC_OK)
        rc = set_inputs(u->r, s, n);
    for (int k = 0; k < 2 && rc == OPTC_OK; k++)
        for (int e = u->r->library->plan->nentry - 1; e >= 0 && rc == OPTC_OK; e--)
            rc = optc_run(s->b, u->r->library->plan->entry[e].name);
    return rc == OPTC_OK ? optc_sync(s->b) : rc;
}

optc_status set_open_odd(const TuneSets *u, Set *s)
{
    int64_t dim[16][2];
    optc_tensor t[16];
    return set_open(u, s, t, odd_shapes(t, dim));
}

double stage_bytes(const optc_binding *b, const Stage *s)
{
    const Units *u = &b->units[s->variant];
    double bytes = 0;
    for (int k = 0; k < u->n; k++) {
        Traffic x = stage_traffic(b->rule->library->plan, s, b->tensor[u->tensor[k]].shape);
        bytes += x.read + x.written;
    }
    return bytes;
}

void ring_close(optc_rule *rule, Ring *r)
{
    for (int i = 0; i < r->n; i++)
        set_close(rule, &r->set[i]);
    *r = (Ring){0};
}

/* Enough sets of each layout that almost nothing of a set is left in the cache when it is used
 * again, whatever order the cache evicts in: the hints that are tried change that order. */
optc_status ring_open(const TuneSets *u, const Stage *stage, Ring *r, int64_t elements)
{
    static int64_t dim[MOST_TENSORS][2];
    static optc_tensor t[MOST_TENSORS];
    int want = LAYOUTS;
    r->layouts = LAYOUTS;
    for (int i = 0; i < want; i++) {
        int n = shapes_for(i % r->layouts, elements, stage->variant > 0, t, dim);
        optc_status rc = set_open(u, &r->set[i], t, n);
        if (rc != OPTC_OK) {
            char why[1024];
            snprintf(why, sizeof why, "%s", optc_message());
            set_close(u->r, &r->set[i]);
            if (rc != OPTC_ERROR_MEMORY || i == 0)
                return fail(rc, "%s", why);
            if (i < LAYOUTS)
                r->layouts = 1;
            while (r->n % r->layouts)
                set_close(u->r, &r->set[--r->n]);
            return OPTC_OK;
        }
        r->n = i + 1;
        double bytes = stage_bytes(r->set[0].b, stage), l2 = u->r->engine->gpu->l2;
        double times = 8 * l2 / (bytes > 1 ? bytes : 1);
        want = times < MOST_SETS / LAYOUTS ? ((int)times + 1) * LAYOUTS : MOST_SETS;
        r->settle = times < 4 * MOST_SETS ? (int)(times / 4) + 1 : MOST_SETS;
    }
    r->whole = true;
    return OPTC_OK;
}
