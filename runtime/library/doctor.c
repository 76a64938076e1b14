/* optc_doctor: describes the machine as a page of text: compiler, GPUs, libraries, tuned results,
 * cache. */
#include "runtime/library/rule/gpu_code.h"

#include "runtime/core/matrix/cpu_calls.h"
#include "runtime/core/matrix/cuda_library.h"
#include "runtime/library/package/fatbin.h"
#include "runtime/library/package/package.h"
#include "gen/abi/embedded.h"

#include <errno.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

static void say_cpu(Buf *b)
{
    char model[128];
    buf_printf(b, "cpu        %s, %ld cores online, %d threads by default\n",
               cpu_model(model, sizeof model), sysconf(_SC_NPROCESSORS_ONLN),
               omp_get_max_threads());
    buf_puts(b, "vectors   ");
    for (int i = 0; isas[i].name; i++)
        buf_printf(b, " %s%s", isas[i].name,
                   !isas[i].usable() ? " (not on this CPU)"
                   : i == isa_best() ? " (used)"
                                     : "");
    buf_puts(b, "\n");
}

static void say_compiler(Buf *b, const char *wanted)
{
    HostCompiler cc;
    if (!compiler_find(wanted, &cc)) {
        if (cc.wanted)
            buf_printf(b, "compiler   '%s' was not found", cc.wanted);
        else
            buf_puts(b, "compiler   none found");
        buf_puts(b, ": the library's own rules run compiled; your own rules run on the reference "
                    "evaluator,\n"
                    "           slowly, and with other bits than a compiled rule has. Install gcc "
                    "or clang, or name "
                    "one in OPTC_CC\n");
        compiler_free(&cc);
        return;
    }
    Buf cmd = {0};
    char line[200] = "";
    buf_shell(&cmd, cc.program);
    for (const char *s = cc.fixed_flags, *end; *s; s = end + strspn(end, " \t")) {
        char word[400];
        end = s + strcspn(s, " \t");
        snprintf(word, sizeof word, "%.*s", (int)(end - s), s);
        buf_puts(&cmd, " ");
        buf_shell(&cmd, word);
    }
    buf_puts(&cmd, " --version 2>/dev/null");
    FILE *f = buf_text(&cmd) ? popen(buf_text(&cmd), "r") : NULL;
    if (f && fgets(line, sizeof line, f))
        line[strcspn(line, "\n")] = 0;
    if (f)
        pclose(f);
    buf_printf(b, "compiler   %s (%s)", cc.label, *line ? line : "version unknown");
    if (cc.seconds > 0)
        buf_printf(b, ", ended after %g s", cc.seconds);
    buf_puts(b, "\n");
    compiler_free(&cc);
    buf_free(&cmd);
}

static void say_blas(Buf *b)
{
    Blas x;
    char warning[240];
    (void)blas_open(&x, "optc_doctor");            /* x.about has the reason of a failure too */
    buf_printf(b, "blas       %s%s\n", x.about,
               x.gemm[0] ? ": products of rules on the CPU; each call uses one thread of optc"
                         : "");
    blas_warning(&x, warning, sizeof warning);
    if (*warning)
        buf_printf(b, "           warning: %s\n", warning);
    buf_printf(
        b, "lapack     %s\n",
        x.lapack[0]
            ? "in that BLAS: power, chol, qr, eigh and solve on the CPU, one matrix per thread"
            : "none: optc's own code computes power, chol, qr, eigh and solve, which is slower");
}

/* The engine gets the options that replace variables: a variable that is not read has no error. */
static void say_gpu(Buf *b, int ordinal, const Nvrtc *n, const optc_engine_options *o)
{
    optc_engine *e;
    char device[24];
    int arch[64], count = n ? nvrtc_archs(n, arch, 64) : 0;
    snprintf(device, sizeof device, "cuda:%d", ordinal);
    if (optc_open(&(optc_engine_options){.device = device,
                                         .cache_dir = "",
                                         .cache_max = o ? o->cache_max : 0}, &e) != OPTC_OK) {
        buf_printf(b, "gpu        %s\n", optc_message());
        return;
    }
    bool known = !count;
    for (int i = 0; i < count; i++)
        known = known || arch[i] == e->gpu->arch;
    buf_printf(b, "gpu        %s%s\n", optc_device_name(e),
               known ? "" : " (NVRTC does not compile for it)");
    buf_printf(b,
               "           workspace: at most %.4g GB for temporaries of products (OPTC_WORKSPACE, "
               "or an engine's "
               "option)\n",
               (double)e->workspace * 1e-9);
    (void)optc_close(e);
}

static void say_driver(Buf *b, const Driver *d, const char *why, const Nvrtc *n,
                       const optc_engine_options *o)
{
    if (!d) {
        buf_printf(b, "driver     %s: rules run on the CPU\n", why);
        return;
    }
    buf_printf(b, "driver     libcuda.so.1 (CUDA %d.%d)\n", d->version / 1000,
               d->version % 1000 / 10);
    for (int i = 0; i < gpu_count(); i++)
        say_gpu(b, i, n, o);
    if (!gpu_count())
        buf_puts(b, "gpu        none that the driver sees: rules run on the CPU\n");
}

/* Whether NVRTC and the driver fit: a driver of the same or a later major version loads NVRTC's
 * machine code; CUDA does not guarantee it for an earlier one. */
static void say_pair(Buf *b, const Driver *d, const Nvrtc *n)
{
    if (!nvrtc_fits(n->version, d->version))
        buf_printf(b,
                   "           It is newer than the driver, which may refuse its code: install a "
                   "driver for CUDA %d.0 "
                   "or newer, or the NVRTC of\n"
                   "           'python3 -m pip install %s'\n",
                   n->version / 1000, nvrtc_package(d->version));
    else if (n->version > d->version)
        buf_puts(b, "           It is newer than the driver, but of its major version: its machine "
                    "code loads\n");
}

static void say_nvrtc(Buf *b, const Driver *d, const Nvrtc *n, const char *why)
{
    int arch[64];
    if (!n) {
        buf_printf(b, "nvrtc      %s\n", why);
        if (d && gpu_count())
            buf_puts(b, "           Without it rules run on the GPU only if the cache or a package "
                        "has their code; "
                        "\"best\" is the CPU unless there is a package\n");
        return;
    }
    buf_printf(b, "nvrtc      %s (%d.%d), compiles for", n->path, n->version / 1000,
               n->version % 1000 / 10);
    for (int i = 0, count = nvrtc_archs(n, arch, 64); i < count; i++)
        buf_printf(b, " sm_%d", arch[i]);
    buf_puts(b, "\n");
    if (d)
        say_pair(b, d, n);
}

static void say_cublas(Buf *b, const Driver *d)
{
    Cublas c;
    char why[600];
    if (cublas_open(&c, d->version, NULL, why, sizeof why))
        buf_printf(b, "cublas     %s (%d.%d)\n", c.path, c.version / 1000, c.version % 1000 / 10);
    else
        buf_printf(b,
                   "cublas     %s\n"
                   "           Without it a plain kernel computes products on the GPU, slower\n",
                   why);
}

static void say_cusolver(Buf *b, const Driver *d)
{
    Cusolver c;
    char why[600];
    if (cusolver_open(&c, d->version, NULL, why, sizeof why))
        buf_printf(b, "cusolver   %s (%d.%d)\n", c.path, c.version / 1000, c.version % 1000 / 10);
    else
        buf_printf(b,
                   "cusolver   %s\n"
                   "           Without it optc's own kernels compute all eigenvectors on the GPU, "
                   "with it those of "
                   "more than 256 rows\n",
                   why);
}

static void say_packer(Buf *b)
{
    char buf[1200], why[600];
    const char *packer = fatbin_packer(buf, why, sizeof why);
    buf_printf(b, "fatbins    %s\n", packer ? packer : why);
}

static void say_cuda(Buf *b, const optc_engine_options *o)
{
    const char *no_driver, *no_nvrtc;
    /* first: which NVRTC to recommend depends on it */
    const Driver *d = driver_get(&no_driver);
    const Nvrtc *n = nvrtc_get(&no_nvrtc);
    say_driver(b, d, no_driver, n, o);
    say_nvrtc(b, d, n, no_nvrtc);
    if (d && gpu_count()) {
        say_cublas(b, d);
        say_cusolver(b, d);
    }
    if (n)
        say_packer(b);                 /* without NVRTC there is nothing to pack */
}

static void say_folder(Buf *b, const char *dir)
{
    CacheList l;
    if (!cache_list(dir, &l)) {
        buf_printf(b, "%s (cannot be read: %s", dir, strerror(errno));
        return;
    }
    buf_printf(b, "%s (%d entr%s, %.1f MB", dir, l.entries, l.entries == 1 ? "y" : "ies",
               (double)l.bytes * 1e-6);
    free(l.entry);
}

static void say_tuned(Buf *b)
{
    TunedSet t;
    char path[4200];
    tuned_open(&t);
    buf_printf(b, "tuned      %d result%s of the user (%s), %d built in\n",
               t.user.n, t.user.n == 1 ? "" : "s",
               tuned_path(path, sizeof path) && *path ? path : "none", t.builtin.n);
    for (char *s = t.why; *s;) {
        size_t n = strcspn(s, "\n");
        buf_printf(b, "           not used: %.*s\n", (int)n, s);
        s += n + (s[n] == '\n');
    }
    tuned_close(&t);
}

/* A shipped package among the bases. */
static void say_package(Buf *b, const char *dir)
{
    Manifest m;
    char why[512], name[80];
    size_t size;
    bool whole = manifest_read(dir, true, &m, why, sizeof why);
    snprintf(name, sizeof name, "%.60s.fatbin", whole ? m.name : "");
    char *fatbin = whole && manifest_file(&m, name)
                       ? package_read(dir, manifest_file(&m, name), true, &size, why, sizeof why)
                       : NULL;
    if (!fatbin) {
        const char *what = whole && !manifest_file(&m, name) ? "it has no GPU code" : why;
        bool named = !strncmp(what, dir, strlen(dir));
        buf_printf(b, "refused: %s%s%s\n", named ? "" : dir, named ? "" : ": ", what);
    } else {
        int functions = manifest_functions(&m), rules = m.nrule - functions;
        buf_printf(b, "%s (package %s: %d rule%s", dir, m.name, rules, rules == 1 ? "" : "s");
        buf_puts(b, functions ? " and functions of matrices for" : " for");
        for (int i = 0; i < m.nimage; i++)
            buf_printf(b, " %s_%d", m.image[i].ptx ? "compute" : "sm", m.image[i].arch);
        buf_puts(b, ", only read)\n");
    }
    free(fatbin);
    manifest_free(&m);
}

static void say_cache(Buf *b, const optc_engine_options *o)
{
    Cache c;
    struct statvfs v;
    char dir[CACHE_DIR], why[512];
    cache_open(&c, o ? o->cache_dir : NULL, o ? o->cache_base : NULL, o ? o->cache_max : 0);
    buf_puts(b, "cache      ");
    if (!c.dir) {
        buf_printf(b, "none: %s%s", *c.why ? c.why : "turned off",
                   *c.why ? "; OPTC_CACHE names another folder" : "");
    } else {
        say_folder(b, c.dir);
        if (c.max >= 0)
            buf_printf(b, "; %.1f MB at most", (double)c.max * 1e-6);
        if (access(c.dir, W_OK) != 0)
            buf_printf(b, "; not writable: %s", strerror(errno));
        else if (statvfs(c.dir, &v) == 0)
            buf_printf(b, "; %.1f GB free%s", (double)v.f_bavail * (double)v.f_frsize / 1e9,
                       v.f_flag & 8 /* ST_NOEXEC */ ? "; noexec: code is loaded through memory"
                                                    : "");
        buf_puts(b, ")");
    }
    buf_puts(b, "\n");
    for (const char *list = c.base; cache_next_base(&list, dir);) {
        buf_puts(b, "           base ");
        if (cache_trusted(dir, true, why, sizeof why) && manifest_is(dir))
            say_package(b, dir);
        else if (cache_trusted(dir, true, why, sizeof why))
            say_folder(b, dir), buf_puts(b, ", only read)\n");
        else
            buf_printf(b, "refused: %s\n", why);
    }
    cache_close(&c);
}

static void say_limits(Buf *b, const optc_engine_options *o)
{
    char why[200];
    for (int v = 0; v < LIMIT_VARIABLES; v++)
        if (!(v == LIMIT_CACHE_MAX && o && o->cache_max) &&
            limit_wrong((LimitVariable)v, why, sizeof why))
            buf_printf(b, "limit      %s: optc_open refuses it\n", why);
}

char *optc_doctor_sized(const optc_engine_options *options, size_t size)
{
    const StructVersion as =
        STRUCT_VERSION("optc_doctor_sized", optc_engine_options, "optc_doctor", fatbin_path);
    optc_engine_options all, *o = options ? &all : NULL;
    if (o && struct_read(&as, o, options, size) != OPTC_OK)
        return NULL;
    Buf b = {0};
    int rules = 0, wrappers = 0, built = 0;
    for (const Embedded *e = embedded_specs; e->name; e++)
        strchr(e->name, '/') ? wrappers++ : rules++;
    while (builtin_rules[built].key)
        built++;
    buf_printf(&b, "optc       %s: %d rules, %d wrappers, %d compiled in\n", OPTC_VERSION, rules,
               wrappers, built);
    say_cpu(&b);
    say_compiler(&b, o ? o->compiler : NULL);
    say_cuda(&b, o);
    say_blas(&b);
    say_tuned(&b);
    say_cache(&b, o);
    say_limits(&b, o);
    return buf_take(&b);
}
