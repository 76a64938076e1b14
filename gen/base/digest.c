/* BLAKE2s-256 as in RFC 7693; names follow the RFC where they are not plain words. */
#include "gen/base/digest.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

enum { BLOCK = 64 };

static const uint32_t start[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                  0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};

static const unsigned char order[10][16] = {{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15},
                                            {14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3},
                                            {11, 8, 12, 0, 5, 2, 15, 13, 10, 14, 3, 6, 7, 1, 9, 4},
                                            {7, 9, 3, 1, 13, 12, 11, 14, 2, 6, 5, 10, 4, 0, 15, 8},
                                            {9, 0, 5, 7, 2, 4, 10, 15, 14, 1, 11, 12, 6, 8, 3, 13},
                                            {2, 12, 6, 10, 0, 11, 8, 3, 4, 13, 7, 5, 15, 14, 1, 9},
                                            {12, 5, 1, 15, 14, 13, 4, 10, 0, 7, 6, 3, 9, 2, 8, 11},
                                            {13, 11, 7, 14, 12, 1, 3, 9, 5, 0, 15, 4, 8, 6, 2, 10},
                                            {6, 15, 14, 9, 11, 3, 0, 8, 12, 2, 13, 7, 1, 4, 10, 5},
                                            {10, 2, 8, 4, 7, 6, 1, 5, 15, 11, 9, 14, 3, 12, 13, 0}};

static uint32_t rotate(uint32_t x, int by) { return x >> by | x << (32 - by); }

static uint32_t word_at(const unsigned char *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static void mix(uint32_t *v, int a, int b, int c, int d, uint32_t x, uint32_t y)
{
    v[a] += v[b] + x;
    v[d] = rotate(v[d] ^ v[a], 16);
    v[c] += v[d];
    v[b] = rotate(v[b] ^ v[c], 12);
    v[a] += v[b] + y;
    v[d] = rotate(v[d] ^ v[a], 8);
    v[c] += v[d];
    v[b] = rotate(v[b] ^ v[c], 7);
}

static void compress(uint32_t h[8], const unsigned char *block, uint64_t so_far, bool last)
{
    uint32_t v[16], m[16];
    for (int i = 0; i < 16; i++)
        m[i] = word_at(block + 4 * i);
    memcpy(v, h, 8 * sizeof *v);
    memcpy(v + 8, start, 8 * sizeof *v);
    v[12] ^= (uint32_t)so_far;
    v[13] ^= (uint32_t)(so_far >> 32);
    v[14] ^= last ? 0xffffffffu : 0;
    for (int r = 0; r < 10; r++) {
        const unsigned char *s = order[r];
        for (int i = 0; i < 4; i++)            /* columns */
            mix(v, i, i + 4, i + 8, i + 12, m[s[2 * i]], m[s[2 * i + 1]]);
        for (int i = 0; i < 4; i++)            /* diagonals */
            mix(v, i, 4 + (i + 1) % 4, 8 + (i + 2) % 4, 12 + (i + 3) % 4, m[s[8 + 2 * i]],
                m[s[9 + 2 * i]]);
    }
    for (int i = 0; i < 8; i++)
        h[i] ^= v[i] ^ v[i + 8];
}

static void digest(const void *data, size_t n, unsigned char out[DIGEST_BYTES])
{
    const unsigned char *p = data;
    unsigned char rest[BLOCK] = {0};
    uint32_t h[8];
    uint64_t so_far = 0;
    memcpy(h, start, sizeof h);
    h[0] ^= 0x01010000u ^ DIGEST_BYTES;        /* no key, one leaf */
    for (; n > BLOCK; n -= BLOCK, p += BLOCK)
        compress(h, p, so_far += BLOCK, false);
    if (n)
        memcpy(rest, p, n);
    compress(h, rest, so_far + n, true);
    for (int i = 0; i < DIGEST_BYTES; i++)
        out[i] = (unsigned char)(h[i / 4] >> 8 * (i % 4));
}

void digest_hex(const void *data, size_t n, char out[DIGEST_HEX])
{
    static const char digit[] = "0123456789abcdef";
    unsigned char d[DIGEST_BYTES];
    digest(data, n, d);
    for (int i = 0; i < DIGEST_BYTES; i++) {
        out[2 * i] = digit[d[i] >> 4];
        out[2 * i + 1] = digit[d[i] & 15];
    }
    out[2 * DIGEST_BYTES] = 0;
}
