/* rounding_cuda.h: stochastic rounding on a GPU, of the V values of a thread; V is 2, 4 or 8. Pasted after
 * rounding.h. */

/* Bits of element k of the eight. */
OPTC_FN unsigned optc_draw_of(optc_u4 w, int k)
{
    return (k & 4 ? (k & 2 ? w.d : w.c) : (k & 2 ? w.b : w.a)) >> (k & 1) * 16 & 0xffffu;
}

/* Elements from number `first` of the whole tensor on. One call is enough unless a piece of a tensor begins at an odd
 * place; threads with fewer than eight values make the same call as their neighbours. */
template <int V> OPTC_FN void optc_draw_all(unsigned (&bits)[V], optc_draws draws, long long first)
{
    const int skip = (int)(first & 7);
    const optc_u4 w = optc_draw8(draws, first >> 3);
    if (skip % V == 0) {
        for (int i = 0; i < V; i++)
            bits[i] = optc_draw_of(w, (skip & (8 - V)) | i);
    } else {
        const optc_u4 next = optc_draw8(draws, (first >> 3) + 1);
        for (int i = 0; i < V; i++)
            bits[i] = optc_draw_of(skip + i < 8 ? w : next, (skip + i) & 7);
    }
}

//@ types
template <int V>
OPTC_FN void optc_round_{{name}}({{c}} (&to)[V], const float (&x)[V], optc_draws draws, long long first)
{
    unsigned bits[V];
    optc_draw_all(bits, draws, first);
#pragma unroll
    for (int i = 0; i < V; i++)
        to[i] = optc_to_{{name}}(x[i], bits[i]);
}
