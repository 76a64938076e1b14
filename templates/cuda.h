/* What every generated CUDA program starts with: what a launch hands over, loads and stores of four values, and reductions in the one
 * order that templates/folds.h keeps on the CPU. */
struct optc_unit { int tensor, unit; };         /* a unit of work: which tensor, which of its units */

struct optc_launch {
    const optc_view *views;
    const optc_unit *units;
    long long count;                            /* units in all */
    int guard;                                  /* 1: a stage of another phase than this step's returns at once */
    int tick;                                   /* 1: a new step begins with this launch */
};

OPTC_FN long long optc_up(long long a, long long b) { return (a + b - 1) / b; }
OPTC_FN int optc_least(long long a, int b) { return a < b ? (a < 0 ? 0 : (int)a) : b; }
OPTC_FN long long optc_div(long long a, long long b)           /* a, b >= 0; nearly always within 32 bits */
{
    return (unsigned long long)(a | b) >> 32 ? a / b : (long long)((unsigned)a / (unsigned)b);
}

/* Four values at once where the address allows it (a pointer's own alignment decides; pieces start at multiples of four). */
template <typename T> OPTC_FN bool optc_wide(const T *p) { return ((unsigned long long)p & (sizeof(T) * 4 > 16 ? 15 : sizeof(T) * 4 - 1)) == 0; }

struct alignas(16) optc_w16 { unsigned long long a, b; };
struct alignas(8) optc_w8 { unsigned a, b; };

template <typename T> OPTC_FN void optc_get(T (&v)[4], const T *p, int left, bool wide)
{
    if (wide && left >= 4) {
        union { T t[4]; optc_w16 w[sizeof(T) * 4 > 16 ? 2 : 1]; optc_w8 h; } x;
        if (sizeof(T) == 2)
            x.h = *(const optc_w8 *)p;
        else
            for (unsigned k = 0; k < sizeof(T) * 4 / 16; k++)
                x.w[k] = ((const optc_w16 *)p)[k];
        for (int i = 0; i < 4; i++)
            v[i] = x.t[i];
    } else {
        for (int i = 0; i < 4; i++)
            v[i] = i < left ? p[i] : T(0);
    }
}

template <typename T> OPTC_FN void optc_put(T *p, const T (&v)[4], int left, bool wide)
{
    if (wide && left >= 4) {
        union { T t[4]; optc_w16 w[sizeof(T) * 4 > 16 ? 2 : 1]; optc_w8 h; } x;
        for (int i = 0; i < 4; i++)
            x.t[i] = v[i];
        if (sizeof(T) == 2)
            *(optc_w8 *)p = x.h;
        else
            for (unsigned k = 0; k < sizeof(T) * 4 / 16; k++)
                ((optc_w16 *)p)[k] = x.w[k];
    } else {
        for (int i = 0; i < 4; i++)
            if (i < left)
                p[i] = v[i];
    }
}

/* Row, column and slice values for four elements of a flat pass. Where rows are multiples of four (even), the four lie in one row. */
struct optc_place { long long row, col; bool even; };

OPTC_FN optc_place optc_find(const optc_view *self, long long offset)
{
    long long row = optc_div(offset, self->cols);
    return optc_place{row, offset - row * self->cols, self->cols % 4 == 0};
}

template <typename T> OPTC_FN void optc_get_rows(T (&v)[4], const T *p, const optc_view *self, optc_place at, int left)
{
    long long row = at.row, col = at.col;
    T x = left > 0 ? p[row] : T(0);
    for (int i = 0; i < 4; i++) {
        if (!at.even && i && i < left && ++col == self->cols)
            col = 0, x = p[++row];
        v[i] = x;
    }
}

template <typename T> OPTC_FN void optc_get_slices(T (&v)[4], const T *p, const optc_view *self, optc_place at, int left)
{
    long long row = at.row, col = at.col;
    for (int i = 0; i < 4; i++) {
        if (!at.even && i && ++col == self->cols)
            col = 0, row++;
        v[i] = i < left ? p[self->slices == 1 ? 0 : optc_div(row, self->rows)] : T(0);
    }
}

template <typename T> OPTC_FN void optc_get_cols(T (&v)[4], const T *p, const optc_view *self, optc_place at, int left)
{
    if (at.even && left >= 4) {
        const T *q = p + (self->slices == 1 ? 0 : optc_div(at.row, self->rows) * self->cols) + at.col;
        optc_get(v, q, left, optc_wide(q));
        return;
    }
    long long row = at.row, col = at.col;
    for (int i = 0; i < 4; i++) {
        if (i && ++col == self->cols)
            col = 0, row++;
        v[i] = i < left ? p[(self->slices == 1 ? 0 : optc_div(row, self->rows) * self->cols) + col] : T(0);
    }
}

/* The kinds of reduction: where a lane starts, and how two values become one. */
struct optc_sum {
    template <typename T> static OPTC_FN_MEMBER T first() { return T(0); }
    template <typename T> static OPTC_FN_MEMBER T with(T a, T b) { return a + b; }
};
struct optc_maxi {
    template <typename T> static OPTC_FN_MEMBER T first() { return T(-OPTC_INF); }
    static OPTC_FN_MEMBER float with(float a, float b) { return optc_maxf(a, b); }
    static OPTC_FN_MEMBER double with(double a, double b) { return optc_max(a, b); }
};
struct optc_mini {
    template <typename T> static OPTC_FN_MEMBER T first() { return T(OPTC_INF); }
    static OPTC_FN_MEMBER float with(float a, float b) { return optc_minf(a, b); }
    static OPTC_FN_MEMBER double with(double a, double b) { return optc_min(a, b); }
};

/* A warp holds 128 lanes, four a thread: lane 4 * thread + i. Thread 0 ends with the result. */
template <typename K, typename T> OPTC_FN T optc_tree(T (&acc)[4])
{
    for (int h = 16; h > 0; h /= 2)
        for (int i = 0; i < 4; i++)
            acc[i] = K::with(acc[i], __shfl_down_sync(0xffffffffu, acc[i], h));
    acc[0] = K::with(acc[0], acc[2]);
    acc[1] = K::with(acc[1], acc[3]);
    return K::with(acc[0], acc[1]);
}

/* A block of 128 threads holds one lane a thread. Every thread gets the result. */
template <typename K, typename T> OPTC_FN T optc_block_tree(T x, T *shared)
{
    __syncthreads();
    shared[threadIdx.x] = x;
    for (int h = OPTC_LANES / 2; h > 0; h /= 2) {
        __syncthreads();
        if (threadIdx.x < h)
            shared[threadIdx.x] = K::with(shared[threadIdx.x], shared[threadIdx.x + h]);
    }
    __syncthreads();
    return shared[0];
}

template <typename K, typename T> OPTC_FN double optc_finish(const T *x, long long n, double *shared)
{
    double acc = K::template first<double>();
#pragma unroll 8
    for (long long i = threadIdx.x; i < n; i += OPTC_LANES)
        acc = K::with(acc, (double)x[i]);
    return optc_block_tree<K, double>(acc, shared);
}

/* The same by one thread alone, for lists too short to share: the partials of one matrix of many. */
template <typename K, typename T> OPTC_FN double optc_finish_alone(const T *x, long long n)
{
    double acc[OPTC_LANES];
    for (int l = 0; l < OPTC_LANES; l++)
        acc[l] = K::template first<double>();
    for (long long i = 0; i < n; i++)
        acc[i % OPTC_LANES] = K::with(acc[i % OPTC_LANES], (double)x[i]);
    for (int h = OPTC_LANES / 2; h > 0; h /= 2)
        for (int l = 0; l < h; l++)
            acc[l] = K::with(acc[l], acc[l + h]);
    return acc[0];
}

template <typename K, typename T> OPTC_FN T optc_row(const T *x, long long segs)
{
    double a = K::template first<double>();
    for (long long j = 0; j < segs; j++)
        a = K::with(a, (double)x[j]);
    return (T)a;
}

template <typename K, typename T> OPTC_FN T optc_column(const T *x, long long tiles, long long cols)
{
    double acc[OPTC_COL_LANES];
#pragma unroll
    for (int l = 0; l < OPTC_COL_LANES; l++)
        acc[l] = K::template first<double>();
#pragma unroll 1
    for (long long j = 0; j < tiles; j += OPTC_COL_LANES) {        /* thirty-two loads on their way at once */
        T v[OPTC_COL_LANES];
#pragma unroll
        for (int l = 0; l < OPTC_COL_LANES; l++)
            v[l] = j + l < tiles ? x[(j + l) * cols] : K::template first<T>();
#pragma unroll
        for (int l = 0; l < OPTC_COL_LANES; l++)
            acc[l] = K::with(acc[l], (double)v[l]);
    }
#pragma unroll
    for (int h = OPTC_COL_LANES / 2; h > 0; h /= 2)
#pragma unroll
        for (int l = 0; l < h; l++)
            acc[l] = K::with(acc[l], acc[l + h]);
    return (T)acc[0];
}

/* Up to 64 values in shared memory, by one warp: the rows of a tile. */
template <typename K, typename T> OPTC_FN T optc_fold_rows(const T *x, int n)
{
    int l = threadIdx.x % 32;
    T a = l < n ? x[l] : K::template first<T>(), b = l + 32 < n ? x[l + 32] : K::template first<T>();
    a = K::with(a, b);
    for (int h = 16; h > 0; h /= 2)
        a = K::with(a, __shfl_down_sync(0xffffffffu, a, h));
    return a;
}
