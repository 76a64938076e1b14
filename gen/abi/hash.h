/* A 64-bit hash of bytes, for keys of compiled code and checksums of files. Not cryptographic.
 * Pasted into packages and included by gen/base/util.c. */
#ifndef OPTC_HASH_H
#define OPTC_HASH_H
static inline uint64_t hash_mix(uint64_t x)
{
    x ^= x >> 32;
    x *= 0xd6e8feb86659fd93u;
    x ^= x >> 32;
    x *= 0xd6e8feb86659fd93u;
    return x ^ (x >> 32);
}

static inline uint64_t hash_bytes(uint64_t seed, const void *data, size_t n)
{
    const unsigned char *p = (const unsigned char *)data;
    uint64_t h = hash_mix(seed ^ (n * 0x9e3779b97f4a7c15u));
    for (; n >= 8; n -= 8, p += 8) {
        uint64_t w = 0;
        for (int i = 7; i >= 0; i--)
            w = w << 8 | p[i];
        h = hash_mix(h ^ w) + 0x9e3779b97f4a7c15u;
    }
    uint64_t w = 0;
    for (size_t i = n; i-- > 0;)
        w = w << 8 | p[i];
    return hash_mix(h ^ w);
}
#endif
