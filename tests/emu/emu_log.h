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

static uint64_t log_hash(uint64_t h, const void *data, size_t n)
{
    for (size_t i = 0; i < n; i++)
        h = (h ^ ((const unsigned char *)data)[i]) * 0x100000001b3u;
    return h;
}
enum { LOG_SEED = 7 };

#include "tests/emu/emu_log_kernels.h"

/* ---- other lines ---- */
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

/* An event is a place between two lines of the stream that recorded it. */
static int log_lines_of(const void *key, int rank)
{
    int n = 0;
    if (!log_open || rank == LOG_NONE)
        return 0;
    for (size_t i = log_lines, stream = (size_t)log_stream_of(key, rank); i--;)
        n += (size_t)log_line[i].stream == stream;
    return n;
}
static void log_wait(const void *from, int lines)
{
    if (!log_open || log_key_rank == LOG_NONE)
        return;
    const int number = log_stream[log_stream_of(from, log_key_rank)].number;
    log_put(log_new(), "waits for stream %d after %d lines", number, lines);
}

/* A node that is added to a graph, and those it follows; what is captured follows the line
 * before. */
static void log_node(int number, const char *kernel, const int *after, int n)
{
    if (!log_open || log_key_rank == LOG_NONE)
        return;
    LogText *t = log_new();
    log_put(t, "node %d of a graph is %s", number, kernel);
    for (int i = 0; i < n; i++)
        log_put(t, "%s %d", i ? "," : " after", after[i]);
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
/* A line in the default stream of the rank: what a call returned. */
int emu_log_note(const char *what);
int emu_log_note(const char *what)
{
    LOCKED;
    log_key = NULL, log_key_rank = log_rank;
    if (log_open)
        log_put(log_new(), "%s", what);
    return 0;
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
