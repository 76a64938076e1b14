/* staged_cuda.h: vectors of a map that wait in shared memory. All loads of a thread start before
 * its first result and take no registers while they are under way. A thread reads only what it
 * copied itself, so no barrier is needed. Pasted after cuda_helpers.h. */

/* S vectors of each thread. Neighbouring threads have neighbouring words: no bank is used twice at
 * a time. */
template <typename T, int V, int S, int THREADS> struct optc_staged {
    typedef typename optc_word<sizeof(T) * V>::type word;
    static const int words = sizeof(T) * V / sizeof(word);
    word at[S][words][THREADS];
};

template <typename WORD> OPTC_FN void optc_copy_async(WORD *to, const WORD *from)
{
#if defined __CUDA_ARCH__ && __CUDA_ARCH__ >= 800
    const unsigned shared = (unsigned)__cvta_generic_to_shared(to);
    const unsigned long long global = (unsigned long long)__cvta_generic_to_global(from);
    if (sizeof(WORD) == 16)
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared), "l"(global)
                     : "memory");
    else if (sizeof(WORD) == 8)
        asm volatile("cp.async.ca.shared.global [%0], [%1], 8;" ::"r"(shared), "l"(global)
                     : "memory");
    else
        asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(shared), "l"(global)
                     : "memory");
#else
    *to = *from;
#endif
}

/* Copies that were started before belong together. */
OPTC_FN void optc_copies_end()
{
#if defined __CUDA_ARCH__ && __CUDA_ARCH__ >= 800
    asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

/* Waits for all groups of copies but the last `more`. */
OPTC_FN void optc_copies_wait(int more)
{
#if defined __CUDA_ARCH__ && __CUDA_ARCH__ >= 800
    if (more <= 0)
        asm volatile("cp.async.wait_group 0;" ::: "memory");
    else if (more == 1)
        asm volatile("cp.async.wait_group 1;" ::: "memory");
    else if (more == 2)
        asm volatile("cp.async.wait_group 2;" ::: "memory");
    else
        asm volatile("cp.async.wait_group 3;" ::: "memory");
#endif
}

template <typename T, int V, int S, int THREADS>
OPTC_FN void optc_start(optc_staged<T, V, S, THREADS> &to, int slot, const T *p)
{
    typedef typename optc_staged<T, V, S, THREADS>::word word;
#pragma unroll
    for (int k = 0; k < optc_staged<T, V, S, THREADS>::words; k++)
        optc_copy_async(&to.at[slot][k][threadIdx.x], (const word *)p + k);
}

template <int V, typename T, int S, int THREADS>
OPTC_FN void optc_fetch(T (&v)[V], const optc_staged<T, V, S, THREADS> &from, int slot)
{
    typedef optc_staged<T, V, S, THREADS> staged;
    union { T t[V]; typename staged::word w[staged::words]; } x;
#pragma unroll
    for (int k = 0; k < staged::words; k++)
        x.w[k] = from.at[slot][k][threadIdx.x];
    for (int i = 0; i < V; i++)
        v[i] = x.t[i];
}

/* A vector that waits in shared memory if the walk started its copy, as the walk of complete
 * vectors does. */
template <int V, typename T, int S, int THREADS, typename W>
OPTC_FN void optc_get_staged(T (&v)[V], const optc_staged<T, V, S, THREADS> &from, int slot,
                             const T *p, int left, W wide)
{
    if (optc_is_full<W>::value)
        optc_fetch<V>(v, from, slot);
    else
        optc_get<0>(v, p, left, wide);
}

/* The same for vector k of a block of codes: its words, and with the first vector the scale. */
template <typename CODE, int V, int N, int S, int THREADS> struct optc_staged_codes {
    optc_staged<unsigned, V / 4, S, THREADS> word;
    optc_staged<float, 1, S / N, THREADS> scale;
};

template <typename CODE, int V, int N, int S, int THREADS>
OPTC_FN void optc_start_coded(optc_staged_codes<CODE, V, N, S, THREADS> &to, int slot,
                              const void *state, const optc_view *self, long long offset)
{
    optc_start(to.word, slot, (const unsigned *)((const unsigned char *)state + offset));
    if (slot % N == 0)
        optc_start(to.scale, slot / N,
                   optc_scales(state, self->n) + (unsigned long long)offset / OPTC_CODED);
}

template <typename CODE, int V, int N, int S, int THREADS, typename W>
OPTC_FN void optc_get_staged_coded(optc_coded<CODE, V, N, true> &to, int k,
                                   const optc_staged_codes<CODE, V, N, S, THREADS> &from, int slot,
                                   const void *state, const optc_view *self, long long offset,
                                   int left, W wide)
{
    float scale[1];
    if (!optc_is_full<W>::value) {
        optc_get_coded<0>(to, k, state, self, offset, left, wide);
        return;
    }
    optc_fetch<V / 4>(to.word[k], from.word, slot);
    if (k == 0) {
        optc_fetch<1>(scale, from.scale, slot / N);
        to.scale = scale[0];
    }
}

//@ if optc_get_staged_coded
template <typename CODE, int V, int N, int S, int THREADS, typename W>
OPTC_FN void optc_get_staged_coded(optc_coded<CODE, V, N, false> &to, int k,
                                   const optc_staged_codes<CODE, V, N, S, THREADS> &, int,
                                   const void *state, const optc_view *self, long long offset,
                                   int left, W wide)
{
    optc_get_coded<0>(to, k, state, self, offset, left, wide);
}
