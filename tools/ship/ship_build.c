/* Compiles the GPU code of a package: the architectures in parallel, each in its own process. */
#include "tools/ship/ship.h"

#include <stdlib.h>
#include <unistd.h>

/* A progress line on a terminal; done -1 clears it. */
static void progress(const Ship *s, int done)
{
    if (!isatty(2))
        return;
    fprintf(stderr, "\r\033[K");
    if (done >= 0)
        fprintf(stderr, "optc: ship: %d of %d architectures compiled, %d rule%s each", done,
                s->pack.narch, s->pack.nrule, s->pack.nrule == 1 ? "" : "s");
    fflush(stderr);
}

static int collect(Ship *s, Workers *w, Job **job)
{
    int rc = CLI_GO;
    for (int i = 0; i < s->pack.narch; i++) {
        PackArch *a = &s->pack.arch[i];
        char *log;
        progress(s, i);
        while (!ship_stopped && !workers_wait(job[i], 0.05))
            ;
        if (ship_stopped || rc != CLI_GO) {
            workers_kill(w);
            workers_drop(job[i]);
            rc = CLI_FAILED;
            continue;
        }
        a->code = workers_result(job[i], &a->size, &log);
        if (!a->code)
            rc = cli_fail("ship: NVRTC refused '%s' for sm_%d: %s", s->pack.name, a->arch,
                          log ? log : "out of memory");
        free(log);
    }
    progress(s, -1);
    return rc;
}

/* Reads the packed fatbin again: every image must be in it, complete. */
static int check_fatbin(const Ship *s)
{
    FatEntry e[80];
    int n = fatbin_list(s->pack.fatbin, s->pack.fatbin_size, e, 80);
    bool ok = n == s->pack.narch;
    for (int i = 0; i < n && ok; i++)
        ok =
            fatbin_entry_is(&e[i], s->pack.arch[i].arch, s->pack.arch[i].ptx, s->pack.arch[i].size);
    return ok ? CLI_GO
              : cli_fail("ship: the fatbin that %s made does not hold what was put in", s->packer);
}

static int pack(Ship *s)
{
    FatImage image[80];
    char why[700];
    for (int i = 0; i < s->pack.narch; i++)
        image[i] = (FatImage){s->pack.arch[i].arch, s->pack.arch[i].ptx, s->pack.arch[i].code,
                              s->pack.arch[i].size};
    s->pack.fatbin = fatbin_make(image, s->pack.narch, s->pack.name, s->dir, &s->pack.fatbin_size,
                                 why, sizeof why);
    return s->pack.fatbin ? check_fatbin(s) : cli_fail("ship: %s", why);
}

int ship_build(Ship *s)
{
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    Workers *w = workers_start(cores < s->pack.narch ? (int)cores : s->pack.narch);
    Job *job[80] = {NULL};
    for (int i = 0; i < s->pack.narch; i++) {
        char *source = pack_cuda(&s->pack, i);
        job[i] = source ? workers_begin(w, source, s->pack.name, s->pack.arch[i].arch,
                                        s->pack.arch[i].ptx)
                        : NULL;
        free(source);
    }
    int rc = collect(s, w, job);
    workers_end(w);
    return rc == CLI_GO ? pack(s) : rc;
}
