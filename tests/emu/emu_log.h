/* A log of what the emulated driver executes, for tests/log. emu_driver.c includes it.
 *
 * Each executed kernel, product and copy is a line of the stream that it ran in. A line names no
 * address: emu_log_finish puts a name in place of each, when it knows all of them. Memory of the
 * caller has the name that emu_log_name gave it. Arrays of a binding are named by the tables of
 * pointers that stages use: label of the thread that allocated the memory, array, row of the table.
 * Other memory is numbered in the order in which a stream uses it. While a log is open, freed
 * memory is not used again, so an address has one name.
 *
 * Calls of the driver are counted by rank. emu_log_rank makes the calls and streams of a thread
 * those of a rank; other threads are not logged. */
#include "gen/abi/stage_abi.h"

#include <stdarg.h>

enum { LOG_NONE = -1, LOG_LABEL = 48, LOG_NAMES = 64, LOG_RANKS = 8, LOG_INSIDE = 1 << 16 };
typedef struct LogText { char *s; size_t n, room; } LogText;
typedef struct LogLine { LogText text; int stream; char at[LOG_LABEL]; } LogLine;
/* a stream in the order of its first line; key NULL: the default stream of its rank */
typedef struct LogStream { const void *key; int rank, number; } LogStream;
typedef struct LogRange { uintptr_t at; size_t n; char name[LOG_LABEL]; } LogRange;
/* an entry of a table of pointers */
typedef struct LogEntry { uintptr_t at; int array, row; char name[LOG_NAMES]; } LogEntry;
typedef struct LogCount { const char *call; char at[LOG_LABEL]; int rank, n; } LogCount;
/* what emu_nvrtc.c says about a kernel: type of its parameter; "U" (rows of the list of units) or
 * "B" (a row per block), then arrays that it reads (r) and writes (w), by name or (#) by place in
 * optc_numbers; pointers of a row of the table; numbers of arrays */
typedef struct LogKernel { const char *name, *type, *uses, *arrays; int mems; } LogKernel;
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

static bool log_open;
static LogLine *log_line;
static LogStream *log_stream;
static LogRange *log_range;
static LogEntry *log_entry;
static LogCount *log_count;
static size_t log_lines, log_streams, log_ranges, log_entries, log_counts;
static char log_mark[LOG_RANKS][LOG_LABEL];
static Span *log_freed;
static _Thread_local int log_rank = LOG_NONE;
static _Thread_local char log_label[LOG_LABEL];
static const void *log_key;                    /* the stream of the work that runs now */
static int log_key_rank, log_kernels_run;

static void *log_more(void *list, size_t *n, size_t size)
{
    if (!(*n & (*n - 1)))                      /* full at each power of two */
        list = realloc(list, size * (*n ? 2 * *n : 1));
    ++*n;
    return list;
}
#define LOG_ADD(list, n) (list = log_more(list, &n, sizeof *list), &list[n - 1])

/* ---- text ---- */
static void log_bytes(LogText *t, const char *s, size_t n)
{
    if (t->n + n + 1 > t->room)
        t->s = realloc(t->s, t->room = 2 * (t->n + n + 64));
    memcpy(t->s + t->n, s, n);
    t->s[t->n += n] = 0;
}
__attribute__((format(printf, 2, 3))) static void log_put(LogText *t, const char *form, ...)
{
    char s[400];
    va_list args;
    va_start(args, form);
    vsnprintf(s, sizeof s, form, args);
    va_end(args);
    log_bytes(t, s, strlen(s));
}
static const Span *log_span(const void *p)
{
    const char *at = p;
    for (int freed = 0; freed < 2; freed++)
        for (const Span *s = freed ? log_freed : spans; s; s = s->next)
            if (at >= s->at && at < s->at + s->n)
                return s;
    return NULL;
}

/* An address, as \1 and 16 digits until the end. The host's memory may become the device's. */
static void log_at(LogText *t, const void *p)
{
    if (log_span(p))
        log_put(t, "\1%016llx", (unsigned long long)(uintptr_t)p);
    else
        log_put(t, p ? "host" : "-");
}

/* ---- lines ---- */
static int log_stream_of(const void *key, int rank)
{
    for (size_t i = 0; i < log_streams; i++)
        if (log_stream[i].key == key && (key || log_stream[i].rank == rank))
            return (int)i;
    *LOG_ADD(log_stream, log_streams) = (LogStream){key, rank, LOG_NONE};
    return (int)log_streams - 1;
}

static LogText *log_new(void)
{
    static LogText nowhere;
    if (log_key_rank == LOG_NONE)
        return nowhere.n = 0, &nowhere;
    int at = log_stream_of(log_key, log_key_rank), number = 0;
    LogStream *s = &log_stream[at];
    for (size_t i = 0; i < log_streams; i++)
        number += log_stream[i].rank == s->rank && log_stream[i].number != LOG_NONE;
    s->number = s->number == LOG_NONE ? number : s->number;
    LogLine *x = LOG_ADD(log_line, log_lines);
    *x = (LogLine){.stream = at};
    memcpy(x->at, log_mark[s->rank], sizeof x->at);
    return &x->text;
}

/* ---- tables of pointers ---- */
static void log_array_name(const LogKernel *k, int array, char out[LOG_NAMES])
{
    char mark[16];
    snprintf(mark, sizeof mark, " %d:", array);
    const char *s = k->arrays ? strstr(k->arrays, mark) : NULL;
    int n = s ? (int)strcspn(s + strlen(mark), " ") : 0;
    snprintf(out, LOG_NAMES, s ? "%.*s" : "array%d", s ? n : array, s ? s + strlen(mark) : "");
}

/* Rows of a table are views of tensors, or (groups) of groups. */
static void log_row(const LogKernel *k, void *const *row, int which, bool groups)
{
    for (int i = 0; i < k->mems; i++) {
        uintptr_t at = (uintptr_t)row[i];
        const int number = groups ? which - (1 << 20) : which;
        if (!at)
            continue;
        LogEntry x = {.at = at, .array = i, .row = number};
        log_array_name(k, i, x.name);
        *LOG_ADD(log_entry, log_entries) = x;
    }
}

/* ---- kernels ---- */
static uint64_t log_hash(uint64_t h, const void *data, size_t n)
{
    for (size_t i = 0; i < n; i++)
        h = (h ^ ((const unsigned char *)data)[i]) * 0x100000001b3u;
    return h;
}
enum { LOG_SEED = 7 };

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
    log_put(t, " %dx%dx%d flags %d alpha %g beta %g", x->m, x->n, x->k, x->flags, x->alpha, x->beta);
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

static void log_kernel(const LogKernel *k, const void *args, const int *numbers, const unsigned grid,
                       unsigned threads, unsigned shared, bool team)
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

static void log_copy(const void *to, const void *from, size_t n)
{
    if (!log_open)
        return;
    LogText *t = log_new();
    log_put(t, "copy %zu ", n);
    log_at(t, to);
    log_put(t, " <- ");
    log_at(t, from);
}

/* For other emulated libraries, from the work that the driver runs: its name and sizes, then lists
 * of addresses. */
int emu_log_library(const char *what, const void *const *const *lists, int nlists, int n);
int emu_log_library(const char *what, const void *const *const *lists, int nlists, int n)
{
    LOCKED;
    if (!log_open)
        return 0;
    LogText *t = log_new();
    log_put(t, "%s", what);
    for (int i = 0; i < nlists; i++)
        for (int k = 0; k < n; k++) {
            log_put(t, "%s", k ? "," : " ");
            log_at(t, lists[i][k]);
        }
    return 1;
}

/* ---- counts ---- */
static bool log_counted(const char *call)
{
    static const char *const begin[] = {"cuLaunch", "cuGraphLaunch", "cuGraphInstantiate",
        "cuGraphAdd", "cuGraphExecDestroy", "cuGraphConditional", "cuMemcpy", "cuMemset",
        "cuMemAlloc", "cuMemFree", "cuMemHost", "cuEvent", "cuStreamWait", "cuStreamSync",
        "cuStreamBegin", "cuStreamEnd", "cuStreamCreate", "cuStreamDestroy", "cuTensorMap"};
    for (size_t i = 0; i < sizeof begin / sizeof *begin; i++)
        if (!strncmp(call, begin[i], strlen(begin[i])))
            return true;
    return false;
}

static void log_call(const char *call)
{
    LOCKED;
    if (!log_open || log_rank == LOG_NONE || !log_counted(call))
        return;
    for (size_t i = log_counts; i--;) {
        LogCount *c = &log_count[i];
        if (c->rank == log_rank && c->call == call && !strcmp(c->at, log_mark[log_rank])) {
            c->n++;
            return;
        }
    }
    LogCount *c = LOG_ADD(log_count, log_counts);
    *c = (LogCount){.call = call, .rank = log_rank, .n = 1};
    memcpy(c->at, log_mark[log_rank], sizeof c->at);
}

/* ---- names ---- */
static int log_by_address(const void *a, const void *b)
{
    const LogEntry *x = a, *y = b;
    return x->at != y->at         ? (x->at > y->at ? 1 : -1)
           : x->array != y->array ? x->array - y->array
           : x->row != y->row     ? x->row - y->row
                                  : strcmp(x->name, y->name);
}

/* One entry per address: the one with the lowest array and row. */
static void log_sort(void)
{
    size_t n = 0;
    if (log_entries)
        qsort(log_entry, log_entries, sizeof *log_entry, log_by_address);
    for (size_t i = 0; i < log_entries; i++) {
        LogEntry *last = n ? &log_entry[n - 1] : NULL;
        if (!last || last->at != log_entry[i].at)
            log_entry[n++] = log_entry[i];
        else if (last->array == log_entry[i].array && !strncmp(last->name, "array", 5) &&
                 strncmp(log_entry[i].name, "array", 5))
            memcpy(last->name, log_entry[i].name, sizeof last->name);
    }
    log_entries = n;
}

typedef struct LogNumbers { uintptr_t *at; size_t n; } LogNumbers;   /* of a stream */
static void log_name_of(LogText *t, uintptr_t at, LogNumbers *seen)
{
    const Span *span = log_span((const void *)at);
    for (size_t i = 0; i < log_ranges; i++) {
        const LogRange *r = &log_range[i];
        if (at >= r->at && at < r->at + r->n) {
            log_put(t, at == r->at ? "%s" : "%s+%zu", r->name, (size_t)(at - r->at));
            return;
        }
    }
    size_t low = 0, high = log_entries;
    while (low < high) {
        size_t mid = (low + high) / 2;
        if (log_entry[mid].at <= at)
            low = mid + 1;
        else
            high = mid;
    }
    const LogEntry *e = low ? &log_entry[low - 1] : NULL;
    /* the workspace of products, in the same memory, is further away */
    if (e && e->at >= (uintptr_t)span->at && at - e->at < LOG_INSIDE) {
        const int row = e->row < 0 ? e->row + (1 << 20) : e->row;
        log_put(t, "%s.%s[%s%d]", span->label, e->name, e->row < 0 ? "g" : "", row);
        if (at > e->at)
            log_put(t, "+%zu", (size_t)(at - e->at));
        return;
    }
    size_t i = 0;
    while (i < seen->n && seen->at[i] != at)
        i++;
    if (i == seen->n)
        *LOG_ADD(seen->at, seen->n) = at;
    log_put(t, "%s#%zu", span->label, i);
}

/* The name of an address; of several with brackets the prefix is printed once: "b.m[0,1,2]". */
static void log_name(LogText *t, const char *digits, LogNumbers *seen, LogText *before)
{
    char number[17] = {0};
    LogText name = {0};
    memcpy(number, digits, 16);
    log_name_of(&name, (uintptr_t)strtoull(number, NULL, 16), seen);
    const size_t prefix = strcspn(name.s, "[");
    if (t->n > 2 && !memcmp(t->s + t->n - 2, "],", 2) && before->n > prefix && name.s[prefix] &&
        before->s[prefix] == '[' && !memcmp(before->s, name.s, prefix)) {
        t->n -= 2;
        log_put(t, ",%s", name.s + prefix + 1);
    } else {
        log_put(t, "%s", name.s);
    }
    free(before->s);
    *before = name;
}

static void log_print_line(FILE *to, const char *title, const LogLine *x, LogNumbers *seen)
{
    enum { MOST_TEXT = 300 };
    const LogStream *s = &log_stream[x->stream];
    LogText t = {0}, before = {0};
    for (const char *c = x->text.s; *c;) {
        const size_t n = strcspn(c, "\1");
        log_bytes(&t, c, n);
        c += n;
        if (*c)
            log_name(&t, c + 1, seen, &before), c += 17;
    }
    const uint64_t h = log_hash(LOG_SEED, t.s, t.n);
    const bool cut = t.n > MOST_TEXT && !getenv("EMU_LOG_FULL");
    fprintf(to, "%s | rank %d stream %d | %s | ", title, s->rank, s->number, x->at);
    if (cut)
        fprintf(to, "%.*s … %016llx\n", MOST_TEXT, t.s, (unsigned long long)h);
    else
        fprintf(to, "%s\n", t.s);
    free(t.s);
    free(before.s);
}

/* ---- as test programs call it ---- */
int emu_log_begin(void);
int emu_log_begin(void) { LOCKED; return log_open = true, log_kernels_run = 0; }
/* Calls and streams of this thread are of this rank, and memory that it allocates gets the
 * label. */
int emu_log_rank(int rank, const char *label);
int emu_log_rank(int rank, const char *label)
{
    LOCKED;
    log_rank = rank < LOG_RANKS ? rank : LOG_NONE;
    return snprintf(log_label, sizeof log_label, "%s", label);
}
/* What this rank does from now on: "step 3". */
int emu_log_mark(const char *what);
int emu_log_mark(const char *what)
{
    LOCKED;
    return log_rank == LOG_NONE ? 0 : snprintf(log_mark[log_rank], LOG_LABEL, "%s", what);
}
int emu_log_name(const void *at, size_t n, const char *name);
int emu_log_name(const void *at, size_t n, const char *name)
{
    LOCKED;
    LogRange *r = LOG_ADD(log_range, log_ranges);
    *r = (LogRange){.at = (uintptr_t)at, .n = n};
    return snprintf(r->name, sizeof r->name, "%s", name);
}

static void log_clear(void)
{
    for (size_t i = 0; i < log_lines; i++)
        free(log_line[i].text.s);
    log_lines = log_streams = log_ranges = log_entries = log_counts = 0;
    memset(log_mark, 0, sizeof log_mark);
    while (log_freed) {
        Span *gone = log_freed;
        log_freed = gone->next;
        free(gone->at);
        free(gone);
    }
}

/* Prints the log, stream by stream, then the calls of each rank, and closes it. */
int emu_log_finish(FILE *to, const char *title);
int emu_log_finish(FILE *to, const char *title)
{
    LOCKED;
    log_sort();
    for (int rank = 0; rank < LOG_RANKS; rank++)
        for (int number = 0; number < (int)log_streams; number++) {
            LogNumbers seen = {0};
            for (size_t i = 0; i < log_lines; i++) {
                const LogStream *s = &log_stream[log_line[i].stream];
                if (s->rank == rank && s->number == number)
                    log_print_line(to, title, &log_line[i], &seen);
            }
            free(seen.at);
        }
    for (int rank = 0; rank < LOG_RANKS; rank++)
        for (size_t i = 0; i < log_counts; i++)
            if (log_count[i].rank == rank)
                fprintf(to, "%s | rank %d calls | %s | %s %d\n", title, rank, log_count[i].at,
                        log_count[i].call, log_count[i].n);
    log_clear();
    log_open = false;
    return 0;
}
