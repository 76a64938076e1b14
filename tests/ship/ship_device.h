/* Used by compare.c: errors, the clock, memory of the device (or of the host, without one), and the
 * values of both sides. */
#ifndef SHIP_DEVICE_H
#define SHIP_DEVICE_H
#include "optc.h"
#include "rules.h"

#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static void stop(const char *what, const char *why)
{
    fprintf(stderr, "%s: %s\n", what, why);
    exit(1);
}
#define LIB(call) do { if ((call) != OPTC_OK) stop(#call, optc_message()); } while (0)
#define PKG(call) do { if ((call) != RULES_OK) stop(#call, rules_message()); } while (0)

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

/* ---- the package ---- */
static rules_engine_options pkg_options(const char *device, int threads)
{
    rules_engine_options o;
    memset(&o, 0, sizeof o);
    o.device = device, o.threads = threads;
    return o;
}

static rules_rule *pkg_rule(rules_engine *e, const char *id)
{
    rules_rule_options o;
    rules_rule *r;
    memset(&o, 0, sizeof o);
    o.spec = id;
    PKG(rules_compile(e, &o, &r));
    return r;
}

/* ---- memory of the device ---- */
typedef unsigned long long Ptr;
static int gpu;
static void *library;
static int (*mem_alloc)(Ptr *, size_t), (*to_device)(Ptr, const void *, size_t),
    (*to_host)(void *, Ptr, size_t);

static void find(const char *name, void *to)
{
    void *f = library ? dlsym(library, name) : NULL;
    if (!f)
        stop(name, "the driver lacks it");
    memcpy(to, &f, sizeof f);
}

static void gpu_setup(void)
{
    void *context;
    library = dlopen("libcuda.so.1", RTLD_NOW);
    int (*init)(unsigned), (*retain)(void **, int), (*current)(void *);
    find("cuInit", &init);
    find("cuDevicePrimaryCtxRetain", &retain);
    find("cuCtxSetCurrent", &current);
    find("cuMemAlloc_v2", &mem_alloc);
    find("cuMemcpyHtoD_v2", &to_device);
    find("cuMemcpyDtoH_v2", &to_host);
    if (init(0) || retain(&context, 0) || current(context))
        stop("cuda", "no context");
    gpu = 1;
}

static void *room(size_t bytes)
{
    Ptr p = 0;
    void *host = gpu ? NULL : calloc(1, bytes + 64);
    if (gpu ? mem_alloc(&p, bytes + 64) != 0 : !host)
        stop("memory", "there is none");
    return gpu ? (void *)(uintptr_t)p : host;
}

static void put(void *device, const void *host, size_t bytes)
{
    if (!gpu)
        memcpy(device, host, bytes);
    else if (bytes && to_device((Ptr)(uintptr_t)device, host, bytes))
        stop("copy", "to the device");
}

static void get(void *host, const void *device, size_t bytes)
{
    if (!gpu)
        memcpy(host, device, bytes);
    else if (bytes && to_host(host, (Ptr)(uintptr_t)device, bytes))
        stop("copy", "to the host");
}

/* ---- values ---- */
static optc_type type_named(const char *name, optc_type_info *info)
{
    for (int t = 1; t <= optc_types(); t++)
        if (optc_type_about((optc_type)t, info) == OPTC_OK && !strcmp(info->name, name))
            return (optc_type)t;
    stop("no storage type", name);
    return OPTC_DEFAULT;
}
static optc_type lib_type(const char *name) { optc_type_info x; return type_named(name, &x); }
static int bytes_of(const char *name) { optc_type_info x; type_named(name, &x); return x.bits / 8; }

static uint64_t hash(uint64_t x)
{
    x = (x ^ (x >> 32)) * 0xd6e8feb86659fd93u;
    x = (x ^ (x >> 32)) * 0xd6e8feb86659fd93u;
    return x ^ (x >> 32);
}

/* Values of many magnitudes, with denormals; 16-bit types get all finite bit patterns. */
static void fill(void *to, const char *type, int64_t n, uint64_t seed)
{
    for (int64_t i = 0; i < n; i++) {
        uint64_t h = hash(seed * 1000003 + (uint64_t)i);
        double x = ((double)(h >> 12) * 0x1p-51 - 1) *
                   ldexp(1, (int)(h % 24) - 20 - (i % 97 == 0 ? 130 : 0));
        float f = (float)x;
        unsigned u;
        memcpy(&u, &f, sizeof u);
        if (!strcmp(type, "f64"))
            ((double *)to)[i] = x;
        else if (!strcmp(type, "f32"))
            ((float *)to)[i] = f;
        else if (!strncmp(type, "bf16", 4))
            ((unsigned short *)to)[i] = (unsigned short)(u >> 16);
        else if (!strncmp(type, "f16", 3))
            ((unsigned short *)to)[i] = (unsigned short)((h & 0x8000u) | (h >> 20) % 0x4000u);
        else
            stop("no numbers of the type", type);
    }
}
#endif
