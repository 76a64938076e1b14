/* rounding_cuda.h: stochastic rounding on a GPU, of the V values of a thread; V is 2, 4 or 8.
 * Pasted after rounding.h. */

/* Bits of element k of the eight. */
OPTC_FN unsigned optc_draw_of(optc_u4 w, int k)
{
    return (k & 4 ? (k & 2 ? w.d : w.c) : (k & 2 ? w.b : w.a)) >> (k & 1) * 16 & 0xffffu;
}

/* True if elements from number `first` on, as many as a block has, have one upper half of the
 * counter. */
OPTC_FN bool optc_draws_near(long long first)
{
    return first >> 35 == (first + OPTC_SEG - 1) >> 35;
}

/* Bits of the elements from number `first` of the whole tensor on, two per word. One call is enough
 * unless a piece of a tensor begins at an odd place; threads with fewer than eight values make the
 * same call as their neighbours.
 * NEAR: `first` is a multiple of 8, and optc_draws_near(start) holds for the block's first element.
 * What the counters of the block have in common is then computed once. */
template <bool NEAR, int V>
OPTC_FN void optc_draw_all(unsigned (&pair)[V / 2], optc_draws draws, long long first,
                           long long start)
{
    const int skip = NEAR && V == 8 ? 0 : (int)(first & 7);
    const long long eight =
        NEAR ? start >> 35 << 32 | (unsigned)((unsigned long long)first >> 3) : first >> 3;
    const optc_u4 w = optc_draw8(draws, eight);
    if (skip % V == 0) {
#pragma unroll
        for (int i = 0; i < V / 2; i++) {
            const int k = (skip & (8 - V)) / 2 | i;
            pair[i] = k & 2 ? (k & 1 ? w.d : w.c) : (k & 1 ? w.b : w.a);
        }
    } else {
        const optc_u4 next = optc_draw8(draws, eight + 1);
#pragma unroll
        for (int i = 0; i < V / 2; i++) {
            const int k = skip + 2 * i;
            pair[i] = optc_draw_of(k < 8 ? w : next, k & 7) |
                      optc_draw_of(k + 1 < 8 ? w : next, (k + 1) & 7) << 16;
        }
    }
}

OPTC_FN unsigned optc_upper_halves(unsigned a, unsigned b)
{
#ifdef __CUDA_ARCH__
    return __byte_perm(a, b, 0x7632);
#else
    return a >> 16 | (b & 0xffff0000u);
#endif
}

/* x plus the lower half of a word */
OPTC_FN unsigned optc_add_half(unsigned x, unsigned word)
{
#ifdef __CUDA_ARCH__
    /* one instruction; NVRTC before 12.3 has no function for it */
    unsigned sum;
    asm("dp2a.lo.u32.u32 %0, %1, %2, %3;" : "=r"(sum) : "r"(word), "r"(1u), "r"(x));
    return sum;
#else
    return x + (word & 0xffffu);
#endif
}

/* Finite numbers below the largest of bf16 need neither limit nor NaN: the bits are added to the
 * number as it is stored, since a carry does not reach the sign. One bit tells that all numbers are
 * below 2. */
template <int V, int PAIRS>
OPTC_FN void optc_round_bf16sr(unsigned short (&to)[V], const float (&x)[V],
                               const unsigned (&pair)[PAIRS])
{
    unsigned stored[V / 2], all = 0;
#pragma unroll
    for (int i = 0; i < V / 2; i++) {
        const unsigned a = optc_bitsf(x[2 * i]), b = optc_bitsf(x[2 * i + 1]);
        all |= a | b;
        stored[i] = optc_upper_halves(optc_add_half(a, pair[i]), b + (pair[i] >> 16));
    }
    if (all & 0x40000000u) {
        bool far = false;
#pragma unroll
        for (int i = 0; i < V; i++)
            far = far || (optc_bitsf(x[i]) & 0x7fffffffu) >= 0x7f7f0000u;
        if (far)
#pragma unroll
            for (int i = 0; i < V / 2; i++)
                stored[i] = optc_to_bf16sr(x[2 * i], pair[i] & 0xffffu) |
                            (unsigned)optc_to_bf16sr(x[2 * i + 1], pair[i] >> 16) << 16;
    }
#pragma unroll
    for (int i = 0; i < V; i++)
        to[i] = (unsigned short)(stored[i / 2] >> i % 2 * 16);
}

//@ types
template <int V, int PAIRS>
OPTC_FN void optc_round_{{name}}({{c}} (&to)[V], const float (&x)[V], const unsigned (&pair)[PAIRS])
{
#pragma unroll
    for (int i = 0; i < V; i++)
        to[i] = optc_to_{{name}}(x[i], pair[i / 2] >> i % 2 * 16 & 0xffffu);
}
