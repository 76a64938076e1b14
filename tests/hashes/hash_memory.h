/* For programs that print hashes of results: memory of the device, values, and the hash of bytes.
 * They need optc.h only, so they compile against other versions of the library. */
#ifndef HASH_MEMORY_H
#define HASH_MEMORY_H
#include "optc.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

void die(const char *what, const char *why);
void must(optc_status s, const char *what);

/* true after use_gpu: memory is the GPU's */
extern bool gpu;
void use_gpu(void);
/* a function of libcuda.so.1 */
void *gpu_function(const char *name);
void *memory_alloc(size_t bytes);
void memory_free(void *p);
void memory_put(void *to, const void *from, size_t bytes);
void memory_get(void *to, const void *from, size_t bytes);

size_t width(optc_type t);
/* Multiples of 1/64 below 2, which every type stores exactly; f32 and f64 get more bits below
 * that. */
void store_value(void *at, int64_t i, optc_type type, uint64_t seed);
uint64_t hash_bytes(uint64_t h, const unsigned char *data, size_t bytes, optc_type type);
/* The hash of h and a state; h if this tensor or group has none. */
uint64_t hash_state(optc_binding *b, uint64_t h, int tensor, const optc_state_info *s);
#endif
