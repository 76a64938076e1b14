/* The counter-based generator of the race: every number is a function of a key and a position, so
 * the order in which threads draw numbers does not matter. */
#include "tools/race/race_task.h"

#include <math.h>
#include <string.h>

/* The finaliser of SplitMix64 (Steele, Lea and Flood 2014). */
static uint64_t mix(uint64_t x)
{
    x ^= x >> 30;
    x *= 0xbf58476d1ce4e5b9u;
    x ^= x >> 27;
    x *= 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

uint64_t race_bits(uint64_t key, uint64_t at)
{
    return mix(mix(key + 0x9e3779b97f4a7c15u) ^ mix(at ^ key << 1));
}

uint64_t race_key(uint64_t seed, const char *name, int stream)
{
    return race_bits(hash64(seed, name, strlen(name)), (uint64_t)stream);
}

double race_uniform(uint64_t key, uint64_t at)
{
    return (double)(race_bits(key, at) >> 11) * 0x1p-53;
}

/* Box and Muller; each position takes two uniform numbers. */
double race_normal(uint64_t key, uint64_t at)
{
    double u = 1 - race_uniform(key, 2 * at), v = race_uniform(key, 2 * at + 1);
    return sqrt(-2 * log(u)) * cos(6.283185307179586 * v);
}

void race_normals(double *to, int64_t n, double scale, uint64_t key)
{
    for (int64_t i = 0; i < n; i++)
        to[i] = scale * race_normal(key, (uint64_t)i);
}
