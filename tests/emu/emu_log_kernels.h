/* Kernels in the log of emu_log.h, which includes this file: a line for each form of arguments. */

/* optc_unit, optc_launch, optc_call and optc_symmetric of the templates */
typedef struct LogUnit { int tensor, unit; } LogUnit;
typedef struct LogLaunch {
    const optc_view *views; void *const *mem; const LogUnit *units; long long count;
    int guard, advance_t; long long brief[2];
} LogLaunch;
typedef struct LogProduct {
    void *const *of[3]; int m, n, k, flags; double alpha, beta;
} LogProduct;
typedef struct LogSymmetric {
    void *const *of[4]; void *task; int count; float alpha, beta, diagonal;
} LogSymmetric;
typedef struct LogSource { const void *from; double *to; int wide, at, group; } LogSource;
typedef struct LogGuard {
    optc_view *views, *groups; const void *guard; void *told; long long nview, ncohort;
    int wide, counts, lets, nsource; LogSource source[];
} LogGuard;
typedef struct LogChunk { long long at, packed, bytes; int entry, array; } LogChunk;
typedef struct LogMove {
    char *const *table; const LogChunk *chunk; char *packed; long long count; int narray, pack;
} LogMove;
typedef struct LogAgree {
    const char *words; optc_view *views, *groups; const void *guard; void *sticky, *found;
    long long stride, nview, ncohort; int nword, ranks, wide, counts;
} LogAgree;

static bool log_by_units(const LogKernel *k, const LogLaunch *a)
{
    return a->units && k->uses && *k->uses == 'U';
}

/* The rows that a launch works on, in order and once. */
static int *log_rows(const LogLaunch *a, unsigned grid, bool by_units, int *n)
{
    const int all = (int)(a->count > 0 ? a->count : grid);
    int *rows = malloc(sizeof *rows * (size_t)(all + 1));
    *n = 0;
    for (int i = 0; i < all; i++) {
        const int row = by_units ? a->units[i].tensor : i;
        bool there = false;
        for (int k = *n - 1; k >= 0 && !there; k--)
            there = rows[k] == row;
        if (!there)
            rows[(*n)++] = row;
    }
    return rows;
}

/* Sizes and participation of the rows' views, and t of their groups. */
static void log_views(LogText *t, const optc_view *views, const int *rows, int n)
{
    uint64_t h = LOG_SEED;
    double seen = -1;
    int skipped = 0;
    log_put(t, " t");
    for (int i = 0; i < n; i++) {
        const optc_view *v = &views[rows[i]];
        h = log_hash(h, &v->n, sizeof *v - offsetof(optc_view, n));
        skipped += v->n < 0;
        if (v->n >= 0 && v->hyper && v->hyper[0] != seen)
            log_put(t, " %g", seen = v->hyper[0]);
    }
    if (skipped)
        log_put(t, " skipped %d", skipped);
    log_put(t, " views %08x", (unsigned)(h ^ h >> 32));
}

static void log_arrays(LogText *t, const LogKernel *k, const LogLaunch *a, const int *numbers,
                       const int *rows, int n)
{
    for (const char *s = k->uses ? k->uses + 1 : ""; *s;) {
        const char *end = s + strcspn(s, " ");
        char name[LOG_NAMES];
        int array = -1;
        if (s[2] == '#') {
            array = numbers ? numbers[atoi(s + 3)] : -1;
        } else if (k->arrays) {
            snprintf(name, sizeof name, ":%.*s ", (int)(end - s - 2), s + 2);
            const char *at = strstr(k->arrays, name);
            while (at && at > k->arrays && at[-1] != ' ')
                at--;
            array = at ? atoi(at) : -1;
        }
        log_put(t, "%s", *s == 'w' ? " >" : " ");
        for (int i = 0; i < n && array >= 0 && array < k->mems; i++) {
            log_put(t, "%s", i ? "," : "");
            log_at(t, a->mem[(size_t)rows[i] * (size_t)k->mems + (size_t)array]);
        }
        s = end + (*end == ' ');
    }
}

static void log_number(LogText *t, const char *name, long long x)
{
    if (x)
        log_put(t, " %s %lld", name, x);
}

static void log_stage(LogText *t, const LogKernel *k, const LogLaunch *a, const int *numbers,
                      unsigned grid)
{
    const bool by_units = log_by_units(k, a);
    int n, *rows = log_rows(a, grid, by_units, &n);
    uint64_t h = LOG_SEED;
    log_number(t, "guard", a->guard);
    log_number(t, "advance", a->advance_t);
    log_number(t, "warps", a->brief[0]);
    log_number(t, "blocks", a->brief[1]);
    log_number(t, "phase", numbers ? numbers[NUMBERS / sizeof(int) - 1] : 0);
    log_number(t, "units", a->count);
    if (by_units) {
        h = log_hash(h, a->units, sizeof *a->units * (size_t)(a->count > 0 ? a->count : grid));
        log_put(t, ":%08x", (unsigned)(h ^ h >> 32));
    }
    log_put(t, by_units ? " rows" : " groups");
    for (int i = 0; i < n; i++)
        log_put(t, "%s%d", i ? "," : " ", rows[i]);
    if (a->views)
        log_views(t, a->views, rows, n);
    for (int i = 0; i < n && a->mem && k->mems; i++)
        log_row(k, a->mem + (size_t)rows[i] * (size_t)k->mems, rows[i], !by_units);
    if (a->mem)
        log_arrays(t, k, a, numbers, rows, n);
    free(rows);
}

enum { LOG_ONE, LOG_VALUES, LOG_ROWS, LOG_COLS, LOG_TILES, LOG_TRIANGLE };
static const struct { const char *f32, *f64; int grid, tile; } log_kernels[] = {
#define KERNEL(ID, program, sets, grid, tile, failed, f32, f32_in, f64, f64_in) \
    {f32, f64, LOG_##grid, tile},
#include "gen/abi/kernels.def"
};

static unsigned log_up(int a, int b) { return ((unsigned)a + (unsigned)b - 1) / (unsigned)b; }
/* How many matrices a launch is for; divide and conquer: the first one only. */
static unsigned log_matrices(const char *name, const LogProduct *x, unsigned grid)
{
    if (!strncmp(name, "optc_divide", 11) || !strncmp(name, "optc_tridiagonal", 16))
        return 1;
    for (size_t i = 0; i < sizeof log_kernels / sizeof *log_kernels; i++) {
        const char *f64 = log_kernels[i].f64;
        if (strcmp(log_kernels[i].f32, name) && (!f64 || strcmp(f64, name)))
            continue;
        const int tile = log_kernels[i].tile, kind = log_kernels[i].grid;
        const unsigned rows = log_up(x->m, tile), cols = log_up(x->n, tile);
        const bool low = kind == LOG_TRIANGLE || (kind == LOG_TILES && x->flags & 4);
        const unsigned side = kind == LOG_TRIANGLE ? cols : rows;
        const unsigned each = low                  ? side * (side + 1) / 2
                              : kind == LOG_TILES  ? rows * cols
                              : kind == LOG_ROWS   ? rows
                              : kind == LOG_COLS   ? cols
                              : kind == LOG_VALUES ? log_up(x->m * x->n, tile)
                                                   : 1;
        return each && grid % each == 0 ? grid / each : 1;
    }
    return 1;
}

/* n pointers, one per matrix; what is no address in the device's memory is a value */
static void log_pointers(LogText *t, const char *name, void *const *p, unsigned n)
{
    const Span *s = log_span(p);
    log_put(t, " %s=", name);
    if (!p || !s)
        log_put(t, p ? "value" : "-");
    for (unsigned i = 0; s && i < n && (char *)(p + i + 1) <= s->at + s->n; i++) {
        log_put(t, "%s", i ? "," : "");
        if (log_span(p[i]))
            log_at(t, p[i]);
        else
            log_put(t, "%llx", (unsigned long long)(uintptr_t)p[i]);
    }
}

static void log_product(LogText *t, const LogKernel *k, const LogProduct *x, unsigned grid)
{
    log_put(t, " %dx%dx%d flags %d alpha %g beta %g", x->m, x->n, x->k, x->flags, x->alpha,
            x->beta);
    /* what optc_gather fetches, in an order by addresses, is in the lines of the products */
    if (!strcmp(k->name, "optc_phase") || !strcmp(k->name, "optc_gather"))
        return;
    const unsigned n = log_matrices(k->name, x, grid);
    for (int i = 0; i < 3; i++) {
        if (x->of[i] && x->flags & 8 << i)
            log_put(t, " stride %lld", (long long)(uintptr_t)x->of[i][-1]);
        log_pointers(t, (const char *[]){"a", "b", "c"}[i], x->of[i], n);
    }
}

static void log_symmetric(LogText *t, const LogSymmetric *x)
{
    log_put(t, " alpha %g beta %g diagonal %g", x->alpha, x->beta, x->diagonal);
    for (int i = 0; i < 4; i++)
        log_pointers(t, (const char *[]){"a", "b", "c", "d"}[i], x->of[i], (unsigned)x->count);
}

static void log_guard(LogText *t, const LogGuard *x)
{
    log_put(t, " views %lld groups %lld counts %d lets %d wide %d guard ", x->nview, x->ncohort,
            x->counts, x->lets, x->wide);
    log_at(t, x->guard);
    for (int i = 0; i < x->nsource; i++) {
        const LogSource *s = &x->source[i];
        log_put(t, " hyper %d of %d <- ", s->at, s->group);
        log_at(t, s->from);
        log_put(t, s->wide ? " f64" : " f32");
    }
}

static void log_move(LogText *t, const LogMove *x)
{
    log_put(t, " %s", x->pack ? "pack" : "unpack");
    for (long long i = 0; i < x->count; i++) {
        const LogChunk *c = &x->chunk[i];
        const char *array = x->table[(long long)c->entry * x->narray + c->array];
        log_put(t, " %lld:%lld ", c->packed, c->bytes);
        log_at(t, array ? array + c->at : NULL);
    }
}

static void log_agree(LogText *t, const LogAgree *x)
{
    log_put(t, " words %d of %d ranks views %lld groups %lld counts %d wide %d guard ", x->nword,
            x->ranks, x->nview, x->ncohort, x->counts, x->wide);
    log_at(t, x->guard);
}

static void log_kernel(const LogKernel *k, const void *args, const int *numbers,
                       const unsigned grid, unsigned threads, unsigned shared, bool team)
{
    if (!log_open)
        return;
    LogText *t = log_new();
    const char *type = k->type ? k->type : "?";
    log_put(t, "%s %ux%u", k->name, grid, threads);
    if (shared || team)
        log_put(t, " shared %u%s", shared, team ? " team" : "");
    if (!strcmp(type, "optc_launch"))
        log_stage(t, k, args, numbers, grid);
    else if (!strcmp(type, "optc_call"))
        log_product(t, k, args, grid);
    else if (!strcmp(type, "optc_symmetric"))
        log_symmetric(t, args);
    else if (!strcmp(type, "optc_guard_args"))
        log_guard(t, args);
    else if (!strcmp(type, "optc_move_args"))
        log_move(t, args);
    else if (!strcmp(type, "optc_agree_args"))
        log_agree(t, args);
}

