/* What a benchmark asks of a device, and the numbers it steps. */
#include "tools/bench/bench.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Normal numbers of both signs and several sizes, never zero; the low 16 bits of the result for the 16-bit types. */
uint64_t bench_device_number(Type t, int64_t i, float scale)
{
    uint32_t h = (uint32_t)i * 2654435761u;
    float x = scale * (0.25f + (float)(h >> 9) * 0x1p-23f) * (h & 1 ? 1.0f : -1.0f);
    uint32_t f;
    memcpy(&f, &x, sizeof f);
    switch (t) {
    case T_BF16: return f >> 16;
    /* 2^-14 … 2^15 only */
    case T_F16: return (f >> 16 & 0x8000) | (((f >> 23 & 0xff) - 112) << 10) | (f >> 13 & 0x3ff);
    case T_F64: {
        double d = x;
        uint64_t w;
        memcpy(&w, &d, sizeof w);
        return w;
    }
    default: return f;
    }
}

int bench_device_reps(const BenchDevice *d, double seconds)
{
    double r = ceil(d->ops->least_sample / (seconds > 1e-8 ? seconds : 1e-8));
    return r < d->ops->least_steps ? d->ops->least_steps : r > 100000 ? 100000 : (int)r;
}

/* The engine has chosen; its name says what ("cuda:0: …"). */
bool bench_device_open(BenchDevice *d, const optc_engine *e)
{
    int ordinal;
    *d = (BenchDevice){.ops = &bench_device_cpu, .threads = optc_threads(e)};
    return sscanf(optc_device_name(e), "cuda:%d:", &ordinal) != 1 || bench_device_cuda_open(d, ordinal);
}

void bench_device_close(BenchDevice *d)
{
    if (d->ops) {
        d->ops->yard_close(d);
        d->ops->close(d);
    }
    free(d->state);
    *d = (BenchDevice){0};
}
