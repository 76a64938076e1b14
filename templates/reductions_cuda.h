/* Reductions in generated CUDA, in the same order as templates/reductions_c.h on the CPU: lanes,
 * then a tree. Pasted after cuda_helpers.h. */

/* Reduction operators: the identity, and how two values combine. */
struct optc_sum {
    static const bool adds = true;
    template <typename T> static OPTC_FN_MEMBER T first() { return T(0); }
    template <typename T> static OPTC_FN_MEMBER T with(T a, T b) { return a + b; }
};

struct optc_maxi {
    static const bool adds = false;
    template <typename T> static OPTC_FN_MEMBER T first() { return T(-OPTC_INF); }
    static OPTC_FN_MEMBER float with(float a, float b) { return optc_maxf(a, b); }
    static OPTC_FN_MEMBER double with(double a, double b) { return optc_max(a, b); }
};

struct optc_mini {
    static const bool adds = false;
    template <typename T> static OPTC_FN_MEMBER T first() { return T(OPTC_INF); }
    static OPTC_FN_MEMBER float with(float a, float b) { return optc_minf(a, b); }
    static OPTC_FN_MEMBER double with(double a, double b) { return optc_min(a, b); }
};

/* Adds a square to a lane of a norm. The square of a float is exact in f64, so fma rounds as
 * product and sum do. */
struct optc_squares {
    static OPTC_FN_MEMBER double with(double a, float x) { return fma((double)x, (double)x, a); }
    static OPTC_FN_MEMBER double with(double a, double x) { return a + x * x; }
};

template <typename X> struct optc_squared {
    X p;
    OPTC_FN_MEMBER double operator[](long long i) const
    {
        const double x = (double)p[i];
        return x * x;
    }
};

template <typename X> OPTC_FN optc_squared<X> optc_squares_of(X p) { return optc_squared<X>{p}; }

/* The tree below for sums, with 8 shuffles instead of 20: at the first two levels the threads of a
 * pair take over half of the lanes each. The sums are the same, because a + b and b + a are
 * equal. */
template <typename T> OPTC_FN T optc_tree_add(T (&acc)[4])
{
    const bool upper = threadIdx.x & 16, odd = threadIdx.x & 8;
    const T a =
        (upper ? acc[2] : acc[0]) + __shfl_xor_sync(0xffffffffu, upper ? acc[0] : acc[2], 16);
    const T b =
        (upper ? acc[3] : acc[1]) + __shfl_xor_sync(0xffffffffu, upper ? acc[1] : acc[3], 16);
    T x = (odd ? b : a) + __shfl_xor_sync(0xffffffffu, odd ? a : b, 8);
    for (int h = 4; h > 0; h /= 2)
        x += __shfl_down_sync(0xffffffffu, x, h);
    /* threads 0, 8, 16 and 24 hold lanes 0, 1, 2 and 3 */
    x += __shfl_down_sync(0xffffffffu, x, 16);
    return x + __shfl_down_sync(0xffffffffu, x, 8);
}

/* A warp holds 128 lanes, four per thread: lane 4 * thread + i. Thread 0 gets the result. */
template <typename K, typename T> OPTC_FN T optc_tree(T (&acc)[4])
{
    if (K::adds)
        return optc_tree_add(acc);
    for (int h = 16; h > 0; h /= 2)
        for (int i = 0; i < 4; i++)
            acc[i] = K::with(acc[i], __shfl_down_sync(0xffffffffu, acc[i], h));
    acc[0] = K::with(acc[0], acc[2]);
    acc[1] = K::with(acc[1], acc[3]);
    return K::with(acc[0], acc[1]);
}

/* The first 128 threads of a block hold one lane each. Every thread gets the result. */
template <typename K, typename T> OPTC_FN T optc_block_tree(T x, T *shared)
{
    __syncthreads();
    if (threadIdx.x < OPTC_LANES)
        shared[threadIdx.x] = x;
    for (int h = OPTC_LANES / 2; h > 0; h /= 2) {
        __syncthreads();
        if (threadIdx.x < h)
            shared[threadIdx.x] = K::with(shared[threadIdx.x], shared[threadIdx.x + h]);
    }
    __syncthreads();
    return shared[0];
}

/* Shared memory of a fold by a block: N values of a round, and the lanes at the end. */
template <typename X, typename T, int N> struct optc_lanes_room {
    alignas(16) X value[N];
    T lane[OPTC_LANES];
};

/* The 128 threads of a group hold one lane each. The group's first thread gets the result. The
 * caller has synchronised the block. */
template <typename K, typename T> OPTC_FN T optc_lane_tree(T x, T *shared, int group)
{
    const int l = threadIdx.x % 32;
    if (threadIdx.x / OPTC_LANES == group)
        shared[threadIdx.x % OPTC_LANES] = x;
    __syncthreads();
    if (threadIdx.x / 32 != group * (OPTC_LANES / 32))
        return x;
    x = K::with(K::with(shared[l], shared[l + 64]), K::with(shared[l + 32], shared[l + 96]));
    for (int h = 16; h > 0; h /= 2)
        x = K::with(x, __shfl_down_sync(0xffffffffu, x, h));
    return x;
}

/* Adds values that the threads of a block left in shared memory to the lanes. */
template <typename K, typename T> OPTC_FN T optc_lanes(T lane, const T *values, int n)
{
    for (int l = threadIdx.x; threadIdx.x < OPTC_LANES && l < n; l += OPTC_LANES)
        lane = K::with(lane, values[l]);
    return lane;
}

/* Adds up to N values of a lane, which are loaded together: one by one each would wait for
 * memory. */
template <typename K, int N, bool ALL, typename T>
OPTC_FN double optc_lane_add(double acc, const T *x, long long left)
{
    T part[N];
#pragma unroll
    for (int k = 0; k < N; k++)
        part[k] = ALL || k * OPTC_LANES < left ? x[k * OPTC_LANES] : T(0);
#pragma unroll
    for (int k = 0; k < N; k++)
        if (ALL || k * OPTC_LANES < left)
            acc = K::with(acc, (double)part[k]);
    return acc;
}

template <typename K, typename T>
OPTC_FN double optc_finish(const T *x, long long n, double *shared)
{
    double acc = K::template first<double>();
    long long left = n - threadIdx.x;
    x += threadIdx.x;
#pragma unroll 1
    for (; left > 31 * OPTC_LANES; left -= 32 * OPTC_LANES, x += 32 * OPTC_LANES)
        acc = optc_lane_add<K, 32, true>(acc, x, left);
#pragma unroll 1
    for (; left > 0; left -= 8 * OPTC_LANES, x += 8 * OPTC_LANES)
        acc = optc_lane_add<K, 8, false>(acc, x, left);
    return optc_block_tree<K, double>(acc, shared);
}

/* The same by one warp. Its first thread gets the result. Thread t holds lanes t, t + 32, t + 64
 * and t + 96. */
template <typename K, typename T> OPTC_FN double optc_finish_warp(const T *x, long long n)
{
    double acc[4];
    for (int k = 0; k < 4; k++)
        acc[k] = K::template first<double>();
#pragma unroll 1
    /* 32 loads under way */
    for (long long j = threadIdx.x % 32; j < n; j += 8 * OPTC_LANES) {
        T part[32];
#pragma unroll
        for (int k = 0; k < 32; k++)
            part[k] = j + 32 * k < n ? x[j + 32 * k] : T(0);
#pragma unroll
        for (int k = 0; k < 32; k++)
            if (j + 32 * k < n)
                acc[k % 4] = K::with(acc[k % 4], (double)part[k]);
    }
    double a = K::with(K::with(acc[0], acc[2]), K::with(acc[1], acc[3]));
    for (int h = 16; h > 0; h /= 2)
        a = K::with(a, __shfl_down_sync(0xffffffffu, a, h));
    return a;
}

/* Reduces a row of an array by one warp, one lane per thread. The first thread gets the result. */
template <typename K, typename X> OPTC_FN double optc_across(X x, long long n)
{
    double a = K::template first<double>();
#pragma unroll 4
    for (long long j = threadIdx.x % 32; j < n; j += OPTC_COL_LANES)
        a = K::with(a, (double)x[j]);
    for (int h = 16; h > 0; h /= 2)
        a = K::with(a, __shfl_down_sync(0xffffffffu, a, h));
    return a;
}

template <typename K, typename T> OPTC_FN T optc_row(const T *x, long long segs)
{
    double a = K::template first<double>();
    for (long long j = 0; j < segs; j++)
        a = K::with(a, (double)x[j]);
    return (T)a;
}

/* Reduces the tiles of a column, at most 8 D, by one thread: one lane per tile. */
template <typename K, typename T, int D, typename X>
OPTC_FN double optc_column_of(X x, int tiles, long long cols)
{
    double acc[8];
#pragma unroll
    for (int q = 0; q < 8; q++) {
        double lane[D];
#pragma unroll
        for (int k = 0; k < D; k++) {
            lane[k] = K::template first<double>();
            if (q + 8 * k < tiles)
                lane[k] = K::with(lane[k], (double)(T)x[(q + 8 * k) * cols]);
        }
        for (int h = D / 2; h > 0; h /= 2)
            for (int k = 0; k < h; k++)
                lane[k] = K::with(lane[k], lane[k + h]);
        acc[q] = lane[0];
    }
#pragma unroll
    for (int h = 4; h > 0; h /= 2)
        for (int q = 0; q < h; q++)
            acc[q] = K::with(acc[q], acc[q + h]);
    return acc[0];
}

/* At most OPTC_COL_LANES tiles. Up to 16 need half of the lanes: an empty lane changes no other. */
template <typename K, typename T, typename X>
OPTC_FN double optc_column(X x, int tiles, long long cols)
{
    return tiles <= 16 ? optc_column_of<K, T, 2>(x, tiles, cols)
                       : optc_column_of<K, T, 4>(x, tiles, cols);
}

/* Adds tiles j, j + 8, … to the lanes of one of a column's eight threads, as long as there are 8 N;
 * N loads are under way. j - q is a multiple of 32. */
template <typename K, typename T, int N, typename X>
OPTC_FN void optc_column_run(double (&acc)[4], X x, long long &j, long long tiles, long long cols)
{
#pragma unroll 1
    for (; j + 8 * N <= tiles; j += 8 * N) {
        T part[N];
#pragma unroll
        for (int n = 0; n < N; n++)
            part[n] = (T)x[(j + 8 * n) * cols];
#pragma unroll
        for (int n = 0; n < N; n++)
            acc[n % 4] = K::with(acc[n % 4], (double)part[n]);
    }
}

/* Reduces the tiles of a column by eight threads: thread q holds lanes q, q + 8, q + 16 and q + 24.
 * The first warp gets the results of the block's 32 columns. alone: each thread has a column of its
 * own. */
template <typename K, typename T, typename X>
OPTC_FN T optc_columns(X x, long long tiles, long long cols, bool in, bool alone,
                       double (*shared)[32])
{
    const int q = threadIdx.x / 32, l = threadIdx.x % 32;
    if (alone)
        return in ? (T)optc_column<K, T>(x, (int)tiles, cols) : T(0);
    double acc[4];
    for (int k = 0; k < 4; k++)
        acc[k] = K::template first<double>();
    if (in) {
        long long j = q;
        if (sizeof(T) == 4)                         /* more values of f64 would spill */
            optc_column_run<K, T, 32>(acc, x, j, tiles, cols);
        optc_column_run<K, T, 16>(acc, x, j, tiles, cols);
#pragma unroll 2
        for (; j < tiles; j += OPTC_COL_LANES)
#pragma unroll
            for (int k = 0; k < 4; k++)
                if (j + 8 * k < tiles)
                    acc[k] = K::with(acc[k], (double)x[(j + 8 * k) * cols]);
    }
    __syncthreads();
    shared[q][l] = K::with(K::with(acc[0], acc[2]), K::with(acc[1], acc[3]));
    __syncthreads();
    for (int k = 0; k < 4; k++)
        acc[k] = K::with(shared[k][l], shared[k + 4][l]);
    return (T)K::with(K::with(acc[0], acc[2]), K::with(acc[1], acc[3]));
}

/* Reduces by one thread, for stages in which every thread finishes values of its own. It takes four
 * lanes at a time, in the order in which the tree combines them; `part` holds the results that wait
 * for their partner. */
template <typename K, typename T, int LANES, typename X>
OPTC_FN double optc_alone(X x, long long n, long long stride)
{
    double part[8];
    const int groups = LANES / 4;
#pragma unroll 1
    for (int g = 0; g < groups; g++) {
        /* g with its bits reversed: neighbours in this order are partners */
        int first = 0;
        for (int b = 1, r = groups / 2; r > 0; b *= 2, r /= 2)
            first += g & b ? r : 0;
        double acc[4];
        for (int k = 0; k < 4; k++)
            acc[k] = K::template first<double>();
        for (long long j = first; j < n; j += LANES)
            for (int k = 0; k < 4; k++)
                if (j + groups * k < n)
                    acc[k] = K::with(acc[k], (double)x[(j + groups * k) * stride]);
        double a = K::with(K::with(acc[0], acc[2]), K::with(acc[1], acc[3]));
        int depth = 0;
        for (; g >> depth & 1; depth++)
            a = K::with(part[depth], a);
        part[depth] = a;
    }
    int top = 0;
    for (int r = groups / 2; r > 0; r /= 2)
        top++;
    return part[top];
}

/* The tiles of a column by one thread. */
template <typename K, typename T, typename X>
OPTC_FN double optc_column_alone(X x, long long tiles, long long cols)
{
    return tiles <= OPTC_COL_LANES ? optc_column<K, T>(x, (int)tiles, cols)
                                   : optc_alone<K, T, OPTC_COL_LANES>(x, tiles, cols);
}

/* Reduces up to 64 values in shared memory by one warp: the rows of a tile. */
template <typename K, typename T> OPTC_FN T optc_fold_rows(const T *x, int n)
{
    int l = threadIdx.x % 32;
    T a = l < n ? x[l] : K::template first<T>(),
      b = l + 32 < n ? x[l + 32] : K::template first<T>();
    a = K::with(a, b);
    for (int h = 16; h > 0; h /= 2)
        a = K::with(a, __shfl_down_sync(0xffffffffu, a, h));
    return a;
}
