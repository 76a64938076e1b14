#include "tests/hashes/hash_memory.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void die(const char *what, const char *why)
{
    fprintf(stderr, "hash-results: %s: %s\n", what, why);
    exit(1);
}

void must(optc_status s, const char *what)
{
    if (s != OPTC_OK)
        die(what, optc_message());
}

/* ---- memory of the GPU, through the driver ---- */
bool gpu;
static int (*gpu_alloc)(unsigned long long *, size_t), (*gpu_free)(unsigned long long);
static int (*gpu_put)(unsigned long long, const void *, size_t),
    (*gpu_get)(void *, unsigned long long, size_t), (*gpu_wait)(void *);

void *gpu_function(const char *name)
{
    void *driver = dlopen("libcuda.so.1", RTLD_NOW), *f = driver ? dlsym(driver, name) : NULL;
    if (!f)
        die(name, "not in libcuda.so.1");
    return f;
}

void use_gpu(void)
{
    void *context;
    int (*init)(unsigned), (*retain)(void **, int), (*set)(void *);
    *(void **)&init = gpu_function("cuInit");
    *(void **)&retain = gpu_function("cuDevicePrimaryCtxRetain");
    *(void **)&set = gpu_function("cuCtxSetCurrent");
    *(void **)&gpu_alloc = gpu_function("cuMemAlloc_v2");
    *(void **)&gpu_free = gpu_function("cuMemFree_v2");
    *(void **)&gpu_put = gpu_function("cuMemcpyHtoD_v2");
    *(void **)&gpu_get = gpu_function("cuMemcpyDtoH_v2");
    *(void **)&gpu_wait = gpu_function("cuStreamSynchronize");
    gpu = true;
    if (init(0) || retain(&context, 0) || set(context))
        die("cuda", "no context");
}

void *memory_alloc(size_t bytes)
{
    unsigned long long at = 0;
    void *p = gpu ? (gpu_alloc(&at, bytes) ? NULL : (void *)(uintptr_t)at)
                  : aligned_alloc(64, (bytes + 63) / 64 * 64);
    if (!p)
        die("memory", "none left");
    return p;
}

void memory_free(void *p)
{
    if (gpu)
        gpu_free((uintptr_t)p);
    else
        free(p);
}

void memory_put(void *to, const void *from, size_t bytes)
{
    if (!gpu)
        memcpy(to, from, bytes);
    /* The driver returns when it has read pageable memory. The bytes may arrive later, and a
     * stream that is captured does not wait for them. */
    else if (gpu_put((uintptr_t)to, from, bytes) || gpu_wait(NULL))
        die("cuMemcpyHtoD", "failed");
}

void memory_get(void *to, const void *from, size_t bytes)
{
    if (!gpu)
        memcpy(to, from, bytes);
    else if (gpu_get(to, (uintptr_t)from, bytes))
        die("cuMemcpyDtoH", "failed");
}

/* ---- data ---- */
size_t width(optc_type t) { return t == OPTC_F64 ? 8 : t == OPTC_F32 ? 4 : 2; }

static uint64_t mix(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

/* f32 bits to f16, for 0 and values that f16 stores exactly and normalised. */
static uint16_t half_bits(uint32_t f)
{
    return (uint16_t)(f << 1
                          ? (f >> 16 & 0x8000) | (((f >> 23 & 255) - 112) << 10) | (f >> 13 & 1023)
                          : 0);
}

void store_value(void *at, int64_t i, optc_type type, uint64_t seed)
{
    uint64_t bits = mix(seed * 1000003u + (uint64_t)i);
    int k = (int)(bits % 255) - 127;
    double fine = (double)(bits >> 40) * 0x1p-32;
    float coarse = (float)k / 64;
    uint32_t word;
    memcpy(&word, &coarse, 4);
    if (type == OPTC_F64)
        ((double *)at)[i] = coarse + fine;
    else if (type == OPTC_F32)
        ((float *)at)[i] = (float)(coarse + fine);
    else if (type == OPTC_BF16)
        ((uint16_t *)at)[i] = (uint16_t)(word >> 16);
    else
        ((uint16_t *)at)[i] = half_bits(word);
}

static uint64_t infinity_bits(optc_type t)
{
    return t == OPTC_F64    ? 0x7ff0000000000000u
           : t == OPTC_F32  ? 0x7f800000u
           : t == OPTC_BF16 ? 0x7f80u
                            : 0x7c00u;
}

uint64_t hash_bytes(uint64_t h, const unsigned char *data, size_t bytes, optc_type type)
{
    size_t w = width(type);
    uint64_t inf = infinity_bits(type), magnitude = ((uint64_t)1 << (8 * w - 1)) - 1;
    for (size_t i = 0; i + w <= bytes; i += w) {
        uint64_t v = 0;
        memcpy(&v, data + i, w);
        if ((v & magnitude) > inf)
            v = inf + 1;                                   /* all NaNs are alike */
        h = mix(h ^ v) * 0x100000001b3u;
    }
    return h;
}

uint64_t hash_state(optc_binding *b, uint64_t h, int tensor, const optc_state_info *s)
{
    optc_state_view view;
    optc_status status = optc_state(b, tensor, s->name, &view);
    if (status == OPTC_ERROR_ABSENT)
        return h;
    must(status, s->name);
    size_t bytes = (size_t)view.count * width(view.type);
    unsigned char *copy = malloc(bytes + 1);
    if (!copy)
        die("memory", "none left");
    must(optc_state_get(b, tensor, s->name, copy, bytes), s->name);
    h = hash_bytes(h, copy, bytes, view.type);
    free(copy);
    return h;
}
