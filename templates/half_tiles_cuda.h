/* Symmetric matrices on a GPU: a stage reads one triangle and writes both
 * (gen/plan/symmetric_half.c). */

/* Row and column of the nth tile on and below the diagonal, across <= down. */
OPTC_FN void optc_lower(long long nth, long long *down, long long *across)
{
    /* off by one at most: there are fewer than 2^31 tiles */
    unsigned d = (unsigned)((sqrtf(8.0f * (float)nth + 1.0f) - 1.0f) * 0.5f);
    while (d * (d + 1LL) / 2 > nth)
        d--;
    while ((d + 1LL) * (d + 2LL) / 2 <= nth)
        d++;
    *down = d;
    *across = nth - d * (d + 1LL) / 2;
}

/* The lower triangle of a symmetric matrix in parts of 32 x 64: every tile of 64 x 64 on and below
 * the diagonal has two. crossed: the diagonal crosses the part, and the mirrored part writes the
 * entries above it. */
struct optc_part { long long top, left; bool crossed; };
OPTC_FN optc_part optc_part_of(long long nth)
{
    long long down, across;
    optc_lower(nth / 2, &down, &across);
    return optc_part{down * 64 + nth % 2 * 32, across * 64, down == across};
}

OPTC_FN bool optc_inside_of(const optc_part &x, long long n)
{
    return x.top + 32 <= n && x.left + 64 <= n;
}

/* Row stride of a tile in shared memory for which reads of columns have no bank conflicts. */
template <typename T> struct optc_stride {
    enum { value = 64 + (sizeof(T) < 4 ? 4 / sizeof(T) : 1) };
};

template <int V, typename T> OPTC_FN void optc_keep(T *to, const T (&v)[V])
{
    for (int i = 0; i < V; i++)
        to[i] = v[i];
}

template <int V> OPTC_FN void optc_keep(unsigned short *to, const unsigned short (&v)[V])
{
    for (int i = 0; i < V; i += 2)
        *(unsigned *)(to + i) = v[i] | (unsigned)v[i + 1] << 16;
}

/* Stores the first `few` values of a vector, or those from `from` on; at most `left`. */
template <int V, typename T> OPTC_FN void optc_put_below(T *p, const T (&v)[V], int few, int left)
{
    for (int i = 0; i < V; i++)
        if (i < few && i < left)
            p[i] = v[i];
}

template <int V, typename T> OPTC_FN void optc_put_beyond(T *p, const T (&v)[V], int from, int left)
{
    for (int i = 0; i < V; i++)
        if (i >= from && i < left)
            p[i] = v[i];
}
