/* Storage types and devices by their public names, clocks, the time that threads waited for a core,
 * medians. */
#include "runtime/library/internal.h"
#include "runtime/core/api/api.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define TYPE(ID, ...) _Static_assert((int)OPTC_##ID == T_##ID + 1, "the core counts types from 1");
#include "gen/abi/types.def"

int inner_type(optc_type t)
{
    return t == OPTC_DEFAULT ? -1 : (int)t < 1 || (int)t > NTYPES ? -2 : (int)t - 1;
}

double now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

/* Sums the second number of each thread's schedstat: nanoseconds that it was ready to run but had
 * no core. */
double waited_ms(void)
{
    double ms = 0;
    DIR *all = opendir("/proc/self/task");
    for (struct dirent *e; all && (e = readdir(all));) {
        char path[300];
        snprintf(path, sizeof path, "/proc/self/task/%.200s/schedstat", e->d_name);
        FILE *f = *e->d_name == '.' ? NULL : fopen(path, "r");
        double ns;
        if (f && fscanf(f, "%*f %lf", &ns) == 1)
            ms += ns * 1e-6;
        if (f)
            fclose(f);
    }
    if (all)
        closedir(all);
    return ms;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double median(double *t, int n)
{
    qsort(t, (size_t)n, sizeof *t, by_value);
    return t[n / 2];
}

const Target *engine_target(const optc_engine *e) { return e->gpu ? &target_cuda : &target_c; }

const Target *device_target(const char *device)
{
    DeviceName name;
    if (!device_parse(device, &name))
        return NULL;
    if (name.kind == DEVICE_BEST)
        return device_target(optc_best_device());
    return name.kind == DEVICE_GPU ? &target_cuda : &target_c;
}
