/* Engines: parsing of device names and sizes, opening and closing a device with its threads. The
 * host opens its own part through Host.open. */
#include "runtime/core/api/api.h"
#include "runtime/core/cpu/cpu.h"
#include "runtime/core/gpu/gpu_device.h"
#include "runtime/core/memory/layout.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#ifdef _OPENMP
#include <omp.h>
#endif

#define GIB ((int64_t)1 << 30)

int optc_device_count(void) { return gpu_count(); }

const char *optc_best_device(void)
{
    static __thread char name[24];
    int n = HOST()->best(NULL);
    if (n < 0)
        return "cpu";
    snprintf(name, sizeof name, "cuda:%d", n);
    return name;
}

optc_status optc_memory_info(optc_engine *e, optc_memory *out)
{
    if (!e || !out)
        return fail(OPTC_ERROR_ARGUMENT, "optc_memory_info: %s is NULL",
                    !e ? "the engine" : "the result pointer");
    out->ours = __atomic_load_n(&e->ours, __ATOMIC_SEQ_CST);
    out->peak = __atomic_load_n(&e->peak, __ATOMIC_SEQ_CST);
    return e->device->memory(e, out);
}

CORE bool device_parse(const char *text, DeviceName *out)
{
    bool gpu = text && !strncmp(text, "cuda", 4);
    out->kind = gpu ? DEVICE_GPU : text && !strcmp(text, "best") ? DEVICE_BEST : DEVICE_CPU;
    out->ordinal = 0;
    if (!gpu)
        return !text || !strcmp(text, "cpu") || out->kind == DEVICE_BEST;
    if (!text[4])
        return true;
    /* at most 6 digits: atoi must not overflow and select another GPU */
    const char *digits = text + 5;
    if (text[4] != ':' || !*digits || strlen(digits) > 6 || digits[strspn(digits, "0123456789")])
        return false;
    out->ordinal = atoi(digits);
    return true;
}

CORE bool parse_size(const char *s, int64_t *out)
{
    static const char suffix[] = "KkMmGgTt";
    char *end;
    errno = 0;
    unsigned long long x = strtoull(s, &end, 10);
    const char *at = *end ? strchr(suffix, *end) : NULL;
    int shift = at ? 10 * (int)((at - suffix) / 2 + 1) : 0;
    if (*s < '0' || *s > '9' || errno || end[at != NULL] ||
        x > (unsigned long long)INT64_MAX >> shift)
        return false;
    *out = (int64_t)(x << shift);
    return true;
}

/* The requested size, or 1/32 of the GPU's memory, at least 1 GiB. Rounded to whole GiB: drivers
 * report memory sizes that differ by megabytes, and the workspace decides which matrices share a
 * call, which must not change with that. */
static int64_t workspace_of(const optc_engine *e, int64_t requested)
{
    int64_t share = e->gpu ? e->gpu->memory / 32 / GIB : 0;
    return requested ? requested : share > 1 ? share * GIB : GIB;
}

static optc_status workspace_text(const optc_engine_options *o, int64_t *requested)
{
    const char *s = getenv("OPTC_WORKSPACE");
    *requested = o->workspace;
    if (!*requested && s && *s &&
        (!parse_size(s, requested) || !*requested || *requested > MOST_WORKSPACE))
        return fail(OPTC_ERROR_ARGUMENT,
                    "optc_open: OPTC_WORKSPACE is '%.40s'; it must be a size such as 512M or "
                    "4G",
                    s);
    return *requested < 0 || *requested > MOST_WORKSPACE
               ? fail(OPTC_ERROR_ARGUMENT,
                      "optc_open: workspace is %lld bytes; it must be 0 or more, at most 2^46",
                      (long long)*requested)
               : OPTC_OK;
}

static int threads_of(const optc_engine_options *o)
{
#ifdef _OPENMP
    return o->threads ? o->threads : omp_get_max_threads();
#else
    (void)o;
    return 1;
#endif
}

static void engine_free(optc_engine *e)
{
    HOST()->close(e);
    gpu_close(e);
    free(e);
}

static void name_cpu(optc_engine *e, const char *why)
{
    snprintf(e->name, sizeof e->name, "cpu: %d thread%s%s%.300s%s", e->threads,
             e->threads == 1 ? "" : "s", *why ? " (" : "", why, *why ? ")" : "");
}

/* If the GPU that "best" selected cannot be opened, the engine uses the CPU, and its name contains
 * the reason. */
static optc_status open_on(optc_engine *e, const optc_engine_options *o, DeviceName name)
{
    int ordinal = name.kind == DEVICE_BEST  ? HOST()->best(o)
                  : name.kind == DEVICE_GPU ? name.ordinal
                                            : -1;
    optc_status s = OPTC_OK;
    name_cpu(e, "");
    if (ordinal >= 0)
        s = gpu_open(e, ordinal);
    e->device = ordinal >= 0 ? gpu_device() : cpu_device();
    if (s == OPTC_OK)
        s = HOST()->open(e, o);
    if (s == OPTC_OK || ordinal < 0 || name.kind != DEVICE_BEST)
        return s;
    HOST()->close(e);
    gpu_close(e);
    const char *why = optc_message();
    name_cpu(e, strncmp(why, "optc_open: ", strlen("optc_open: ")) ? why
                                                                   : why + strlen("optc_open: "));
    e->device = cpu_device();
    s = HOST()->open(e, o);
    if (s == OPTC_OK)
        message_clear();
    return s;
}

enum { MOST_ENGINE_THREADS = 4096 };

static optc_status open_engine(const optc_engine_options *o, optc_engine **out)
{
    DeviceName name;
    if (!device_parse(o->device, &name))
        return fail(OPTC_ERROR_UNAVAILABLE,
                    "optc_open: there is no device '%s' (known: cpu, cuda, cuda:N, best)",
                    o->device);
    if (o->threads < 0 || o->threads > MOST_ENGINE_THREADS)
        return fail(OPTC_ERROR_ARGUMENT,
                    "optc_open: threads is %d; it must be from 0 (all cores) to %d", o->threads,
                    MOST_ENGINE_THREADS);
    int64_t workspace;
    optc_status s = workspace_text(o, &workspace);
    if (s != OPTC_OK)
        return s;
    if (o->allocator && (!o->allocator->alloc || !o->allocator->release))
        return fail(OPTC_ERROR_ARGUMENT, "optc_open: the allocator lacks %s",
                    o->allocator->alloc ? "release" : "alloc");
    optc_engine *e = (optc_engine *)calloc(1, sizeof *e);
    if (!e)
        return no_memory("optc_open");
    if (o->allocator)
        e->memory = *o->allocator;
    e->threads = threads_of(o);
    s = open_on(e, o, name);
    e->workspace = workspace_of(e, workspace);
    if (s != OPTC_OK) {
        engine_free(e);
        return s;
    }
    *out = e;
    return OPTC_OK;
}

optc_status optc_open_sized(const optc_engine_options *o, size_t size, optc_engine **out)
{
    const StructVersion as =
        STRUCT_VERSION("optc_open_sized", optc_engine_options, "optc_open", fatbin_path);
    optc_engine_options all;
    if (!out)
        return fail(OPTC_ERROR_ARGUMENT, "optc_open: the pointer for the engine is NULL");
    *out = NULL;
    memset(&all, 0, sizeof all);
    optc_status s = o ? struct_read(&as, &all, o, size) : OPTC_OK;
    return s == OPTC_OK ? open_engine(&all, out) : s;
}

optc_status optc_close(optc_engine *e)
{
    int rules = e ? __atomic_load_n(&e->rules, __ATOMIC_SEQ_CST) : 0;
    if (rules > 0)
        return fail(OPTC_ERROR_BUSY, "optc_close: %d rule%s of this engine not released", rules,
                    rules == 1 ? " is" : "s are");
    int64_t bytes = 0;
    int blocks = e ? memory_blocks(e, &bytes) : 0;
    if (blocks)
        return fail(OPTC_ERROR_BUSY,
                    "optc_close: %d block%s of optc_alloc %s not freed (%lld bytes)", blocks,
                    blocks == 1 ? "" : "s", blocks == 1 ? "is" : "are", (long long)bytes);
    if (e)
        engine_free(e);
    return OPTC_OK;
}

const char *optc_device_name(const optc_engine *e) { return e ? e->name : ""; }
int optc_threads(const optc_engine *e) { return e ? e->threads : 0; }

int optc_library_size(void)
{
    int n = 0;
    while (HOST()->rule_name(n))
        n++;
    return n;
}

const char *optc_library_name(int i)
{
    return i >= 0 && i < optc_library_size() ? HOST()->rule_name(i) : NULL;
}
