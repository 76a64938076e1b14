/* Opens a device for the benchmark, and defines the numbers of its test arrays. */
#include "tools/bench/bench.h"


#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Normal numbers of both signs and several magnitudes, never zero if they are in the type's
 * range. */
void bench_device_number(Type t, void *p, int64_t i, float scale)
{
    uint32_t h = (uint32_t)i * 2654435761u;
    type_store(t, p, i, scale * (0.25f + (float)(h >> 9) * 0x1p-23f) * (h & 1 ? 1.0f : -1.0f));
}

int bench_device_reps(const BenchDevice *d, double seconds)
{
    double r = ceil(d->ops->least_sample / (seconds > 1e-8 ? seconds : 1e-8));
    return r < d->ops->least_steps ? d->ops->least_steps : r > 100000 ? 100000 : (int)r;
}

bool bench_device_open(BenchDevice *d, const optc_engine *e)
{
    *d = (BenchDevice){.ops = &bench_device_cpu, .threads = optc_threads(e)};
    return !e->gpu || bench_device_cuda_open(d, e->gpu->ordinal);
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
