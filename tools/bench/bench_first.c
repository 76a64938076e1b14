/* The first step: the time from optc_compile to the end of the step, once with an empty cache and
 * once with the cache that this left. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "tools/bench/bench.h"

#include <errno.h>
#include <ftw.h>
#include <stdlib.h>
#include <string.h>

static int drop(const char *path, const struct stat *st, int type, struct FTW *at)
{
    (void)st, (void)type, (void)at;
    (void)remove(path);
    return 0;
}

/* Compiles, binds, steps and waits. Uses a new engine, so that only the cache folder is shared
 * between runs, and leaves it in the case. */
static bool once(Bench *b, Case *c, const char *cache, double *seconds)
{
    optc_engine_options o = {.device = b->device_name,
                             .threads = b->threads,
                             .spec_path = b->compile.path,
                             .cache_dir = cache,
                             .workspace = b->workspace};
    if (!bench_lib(optc_open(&o, &c->engine)) || !b->device.ops->sync(&b->device))
        return false;
    double t0 = cli_now();
    bool ok = bench_start(b, c, c->engine) && bench_steps(c, 1) && bench_lib(optc_sync(c->binding));
    *seconds = cli_now() - t0;
    return ok;
}

bool bench_first(Bench *b, Case *c)
{
    Path dir;
    if (!temp_folder(dir, "optc-bench")) {
        cli_error("bench: cannot create a folder for an empty cache in %s: %s; set TMPDIR to "
                  "another folder",
                  dir, strerror(errno));
        return false;
    }
    bool ok = once(b, c, dir, &c->cold);
    if (ok) {
        char *runs = c->runs;
        c->runs = NULL;
        bench_stop(c);
        ok = b->device.ops->sync(&b->device) && once(b, c, dir, &c->warm);
        free(c->runs);
        c->runs = runs;
    }
    (void)nftw(dir, drop, 8, FTW_DEPTH | FTW_PHYS);
    return ok;
}
