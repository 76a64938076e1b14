/* The CPU as a device of the benchmark. The reference rate is the better of copying and of scaling
 * in place, with the library's number of threads. */
#include "tools/bench/bench.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void *cpu_alloc(BenchDevice *d, size_t bytes)
{
    (void)d;
    void *p = stream_alloc(bytes);
    if (!p)
        cli_error("bench: out of memory");
    return p;
}

static void cpu_free(BenchDevice *d, void *p)
{
    (void)d;
    free(p);
}

static bool cpu_fill(BenchDevice *d, void *p, Type t, int64_t n, float scale)
{
#pragma omp parallel for num_threads(d->threads) schedule(static)
    for (int64_t i = 0; i < n; i++)
        bench_device_number(t, p, i, scale);
    return true;
}

static bool cpu_set(BenchDevice *d, void *p, unsigned char byte, size_t bytes)
{
    (void)d;
    memset(p, byte, bytes);
    return true;
}

/* Available memory. Allocating more would make the kernel kill a process instead of returning an
 * error. */
static double cpu_room(BenchDevice *d)
{
    (void)d;
    return 0.9 * (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE);
}

static bool cpu_begin(BenchDevice *d)
{
    d->t0 = cli_now();
    return true;
}

static bool cpu_end(BenchDevice *d, double *seconds)
{
    *seconds = cli_now() - d->t0;
    return true;
}

static bool cpu_lap(BenchDevice *d, int k)
{
    if (k >= d->nlap) {
        int n = 2 * k + 64;
        double *more = realloc(d->lap, (size_t)n * sizeof *more);
        if (!more)
            return cli_error("bench: out of memory"), false;
        d->lap = more;
        d->nlap = n;
    }
    d->lap[k] = cli_now();
    return true;
}

static bool cpu_laps(BenchDevice *d, int n, double *seconds)
{
    for (int k = 0; k < n; k++)
        seconds[k] = d->lap[k + 1] - d->lap[k];
    return true;
}

static bool wait_cpu(BenchDevice *d)
{
    (void)d;
    return true;
}

static void cpu_yard_close(BenchDevice *d)
{
    free(d->a);
    free(d->b);
    d->a = d->b = NULL;
}

static bool cpu_yard_open(BenchDevice *d, int64_t n)
{
    d->n = n;
    d->a = cpu_alloc(d, (size_t)n * sizeof *d->a);
    d->b = d->a ? cpu_alloc(d, (size_t)n * sizeof *d->b) : NULL;
    if (!d->b)
        return false;
    stream_touch(d->a, n, d->threads);
    stream_touch(d->b, n, d->threads);
    stream_copy(d->b, d->a, n, d->threads);
    double t0 = cli_now();
    stream_scale(d->a, n, d->threads);
    d->reps = bench_device_reps(d, cli_now() - t0);
    return true;
}

/* The number of threads that the library would use for that many elements (run_native). */
static int team(const BenchDevice *d)
{
    int64_t useful = d->n / (1 << 15) + 1;
    return useful < d->threads ? (int)useful : d->threads;
}

static double read_rate(BenchDevice *d, int threads, bool ahead)
{
    float sum = 0;
    double t0 = cli_now();
    for (int k = 0; k < d->reps; k++)
        sum += stream_read(d->a, d->n, threads, ahead) + stream_read(d->b, d->n, threads, ahead);
    double seconds = cli_now() - t0;
    /* the test of sum keeps the compiler from removing the reads */
    return sum == 12345.0f ? 0 : 2.0 * (double)d->n * sizeof(float) * d->reps / seconds;
}

/* Every measurement walks both arrays, so that all have the same amount of data for the caches. */
static bool cpu_yard_time(BenchDevice *d, Rates *out)
{
    int threads = team(d);
    double bytes = 2.0 * (double)d->n * sizeof(float) * d->reps;
    double t0 = cli_now();
    for (int k = 0; k < d->reps; k++)
        stream_copy(d->b, d->a, d->n, threads);
    double t1 = cli_now();
    for (int k = 0; k < d->reps; k++) {
        stream_scale(d->a, d->n, threads);
        stream_scale(d->b, d->n, threads);
    }
    double t2 = cli_now(), plain = read_rate(d, threads, false),
           ahead = read_rate(d, threads, true);
    out->copy = bytes / (t1 - t0);
    out->scale = 2 * bytes / (t2 - t1);
    out->read = plain > ahead ? plain : ahead;
    out->best = out->copy > out->scale ? out->copy : out->scale;
    return true;
}

static void cpu_close(BenchDevice *d)
{
    free(d->lap);
    d->lap = NULL;
    d->nlap = 0;
}

const BenchDeviceOps bench_device_cpu = {
    /* 4 ms: far above clock resolution and thread wake-up */
    .async = false,
    .least_sample = 4e-3,
    .least_steps = 1,
    .alloc = cpu_alloc,
    .free = cpu_free,
    .fill = cpu_fill,
    .set = cpu_set,
    .room = cpu_room,
    .begin = cpu_begin,
    .end = cpu_end,
    .lap = cpu_lap,
    .laps = cpu_laps,
    .sync = wait_cpu,
    .yard_open = cpu_yard_open,
    .yard_time = cpu_yard_time,
    .yard_close = cpu_yard_close,
    .close = cpu_close,
};
