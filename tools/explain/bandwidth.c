/* Bandwidth and other rates of a device: measured once, then stored in the cache folder, one line
 * each.
 *
 *   optc-bandwidth 1
 *   2.41e+10 2026-11-16 steady host | cpu: Neoverse-N1, 2 threads, aarch64
 *   7.93e+10 2026-11-16 steady host | cpu: Neoverse-N1, 2 threads, aarch64, products in f32
 *
 * Machines may share a folder, so the host's name is a part of the key. A rate that was measured on
 * a busy machine is not steady: it is measured again on another day, and the larger one is kept. A
 * file that cannot be read or written only costs a measurement. */
#include "tools/bench/bench.h"
#include "tools/explain/explain.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { ROUNDS = 5, MOST_LINES = 128 };
#define MOST_RATE 1e18
static const char mark[] = "optc-bandwidth 1\n";

/* ---- the file ---- */
static char *kept_text(const char *dir, Path path)
{
    size_t n;
    char *text = dir && path_print(path, "%s/bandwidth", dir) ? file_read(path, &n) : NULL;
    if (text && strlen(text) == n && !strncmp(text, mark, sizeof mark - 1))
        return text;
    free(text);
    return NULL;
}

typedef struct Kept { double rate; char day[11], how[8]; const char *begin, *end; } Kept;

static bool is_steady(const Kept *k) { return !strcmp(k->how, "steady"); }

/* Finds the line of a key; begin NULL: there is none. */
static Kept kept_line(const char *text, const char *key)
{
    for (const char *s = text ? text + sizeof mark - 1 : ""; *s;) {
        size_t n = strcspn(s, "\n");
        int at = 0;
        Kept k = {.begin = s, .end = s + n + (s[n] == '\n')};
        LocaleMark l = locale_plain();
        bool ok = sscanf(s, "%lf %10[0-9-] %7[a-z] %n", &k.rate, k.day, k.how, &at) == 3 && at > 0;
        locale_back(l);
        bool ours = (size_t)at + strlen(key) == n && !strncmp(s + at, key, strlen(key));
        if (ok && ours && k.rate > 0 && k.rate < MOST_RATE)
            return k;
        s = k.end;
    }
    return (Kept){0};
}

/* Writes the new line first, then the others; drops the oldest if there are too many. */
static void keep(const char *dir, const char *key, const Kept *now)
{
    Path path, aside;
    char *old = kept_text(dir, path);
    Kept was = kept_line(old, key);
    Buf b = {0};
    LocaleMark l = locale_plain();
    buf_printf(&b, "%s%.4g %s %s %s\n", mark, now->rate, now->day, now->how, key);
    locale_back(l);
    int lines = 1;
    for (const char *s = old ? old + sizeof mark - 1 : ""; *s && lines < MOST_LINES;) {
        size_t n = strcspn(s, "\n");
        n += s[n] == '\n';
        if (s != was.begin) {
            buf_add(&b, s, n);
            lines++;
        }
        s += n;
    }
    if (buf_text(&b) && path_print(path, "%s/bandwidth", dir) &&
        path_print(aside, "%s/.bandwidth.%ld", dir, (long)getpid()) &&
        file_write(aside, b.s, b.len) && rename(aside, path) != 0)
        remove(aside);
    buf_free(&b);
    free(old);
}

/* ---- measuring ---- */
static void today(char day[11])
{
    time_t now = time(NULL);
    struct tm tm;
    strftime(day, 11, "%Y-%m-%d", gmtime_r(&now, &tm));
}

/* Larger than the caches, but only a part of the free memory: other processes may need it. */
static bool yard_open(BenchDevice *d)
{
    double room = d->ops->room(d), most = room / 4 / (2 * sizeof(float));
    int64_t n = (int64_t)64 << 20;
    /* a GPU copies between two arrays of at least 1 GiB */
    if (d->cuda)
        return room > 3e9 && d->ops->yard_open(d, n);
    return most > 1 << 20 && d->ops->yard_open(d, most < (double)n ? (int64_t)most : n);
}

/* The best of some rounds: a busy machine makes memory look slower, never faster. The machine
 * counts as busy if other processes had the CPU for much of the time, or if only one round reached
 * the best rate. */
static double measure_memory(optc_engine *e, const void *none, bool *alone)
{
    BenchDevice d;
    double best[3] = {0}, wall = 0, cpu = 0;
    bool ok = bench_device_open(&d, e) && yard_open(&d);
    (void)none;
    for (int r = 0; r < ROUNDS && ok; r++) {
        Rates now;
        double t0 = cli_now(), c0 = cli_cpu_seconds();
        ok = d.ops->yard_time(&d, &now);
        wall += cli_now() - t0;
        cpu += cli_cpu_seconds() - c0;
        /* the clock of a fake driver does not advance */
        double x = ok && now.best < MOST_RATE ? now.best : 0;
        for (int k = 0; k < 3; k++)
            if (x > best[k]) {
                double smaller = best[k];
                best[k] = x;
                x = smaller;
            }
    }
    *alone = best[2] > 0.9 * best[0] && (d.cuda || cpu > 0.9 * wall * d.threads);
    bench_device_close(&d);
    return ok ? best[0] : 0;
}

/* The key: the device and this host, in one line. */
static const char *key_of(Arena *a, const char *device)
{
    char host[256] = "";
    if (gethostname(host, sizeof host - 1) != 0 || !*host)
        snprintf(host, sizeof host, "-");
    /* "(no GPU)" */
    const char *team = strstr(device, " thread"), *why = team ? strstr(team, " (") : NULL;
    char *key = arena_printf(a, "%.250s | %.*s", host,
                             (int)(why ? why - device : (long)strlen(device)), device);
    for (char *c = key; *c; c++)
        *c = (unsigned char)*c < 32 || *c == 127 ? '_' : *c;
    return key;
}

static const char *whence(Arena *a, const char *name, const Kept *k, bool known, bool kept)
{
    const char *busy = is_steady(k) ? "" : " on a busy machine";
    return known ? arena_printf(a, "%s, measured %s%s; --measure repeats it", name, k->day, busy)
                 : arena_printf(a, "%s, measured now%s%s", name, busy, kept ? " and stored" : "");
}

/* Returns the stored rate of a key, or measures and stores it. *known: it was stored. */
static Kept find_rate(optc_engine *e, const char *key, bool anew, Measure measure, const void *ctx,
                      bool *known, bool *kept)
{
    Cache c;
    Path path;
    char day[11];
    bool alone = false;
    cache_open(&c, NULL, NULL, 0);
    char *text = anew ? NULL : kept_text(c.dir, path);
    Kept was = kept_line(text, key), now = was;
    today(day);
    *known = was.begin && (is_steady(&was) || !strcmp(was.day, day));
    if (!*known) {
        double rate = measure(e, ctx, &alone);
        today(now.day);
        snprintf(now.how, sizeof now.how, "%s", alone ? "steady" : "busy");
        now.rate = was.rate > rate ? was.rate : rate;
    }
    *kept = c.dir != NULL;
    if (!*known && now.rate > 0 && c.dir)
        keep(c.dir, key, &now);
    free(text);
    cache_close(&c);
    return now;
}

double rate_of(Arena *a, optc_engine *e, const char *what, bool anew, Measure measure,
               const void *ctx, bool *busy)
{
    bool known, kept;
    const char *key = arena_printf(a, "%s, %s", key_of(a, optc_device_name(e)), what);
    Kept now = find_rate(e, key, anew, measure, ctx, &known, &kept);
    *busy = *busy || (now.rate > 0 && !is_steady(&now));
    return now.rate;
}

bool bandwidth_of(Arena *a, const char *device, bool anew, Bandwidth *out)
{
    optc_engine *e;
    bool known, kept;
    if (optc_open(&(optc_engine_options){.device = device ? device : "best"}, &e) != OPTC_OK)
        return cli_error("explain: %s", optc_message()), false;
    const char *key = key_of(a, optc_device_name(e)), *name = strchr(key, '|') + 2;
    Kept now = find_rate(e, key, anew, measure_memory, NULL, &known, &kept);
    *out = (Bandwidth){
        .rate = now.rate,
        .whence = now.rate > 0
                      ? whence(a, name, &now, known, kept)
                      : arena_printf(a, "%s, memory bandwidth could not be measured", name),
        .device = arena_strdup(a, name),
        .target = engine_target(e),
        .threads = 1};
    optc_close(e);
    return true;
}
