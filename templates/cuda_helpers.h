/* Start of every generated CUDA program: the launch arguments, vector loads and stores, and loads
 * of values per row, column and matrix. reductions_cuda.h follows it. */

/* Powers that are not inlined (emit.c, form_of). */
static __device__ __noinline__ float optc_call_powf(float x, float y)
{
    return optc_powf(x, y);
}

static __device__ __noinline__ double optc_call_pow(double x, double y)
{
    return optc_pow(x, y);
}

/* a unit of work: its tensor, its number in the tensor */
struct optc_unit { int tensor, unit; };

struct optc_launch {
    const optc_view *views;
    void *const *mem;                           /* one pointer per view and array of the rule */
    const optc_unit *units;
    long long count;                            /* number of units */
    /* 1: stages of other phases than this step's return at once */
    int guard;
    int advance_t;                              /* 1: this launch starts a step and increments t */
    /* The first for_warps units of a map fit one warp (one vector per thread), those up to
     * for_blocks fit one block. */
    long long for_warps, for_blocks;
};

/* For a kernel that several stages share: the array numbers and the phase of this stage. */
struct optc_numbers { int at[OPTC_SHARED], phase; };

OPTC_FN long long optc_up(long long a, long long b) { return (a + b - 1) / b; }

OPTC_FN int optc_least(long long a, int b) { return a < b ? (a < 0 ? 0 : (int)a) : b; }

/* a, b >= 0; 32-bit division if both fit */
OPTC_FN long long optc_div(long long a, long long b)
{
    return (unsigned long long)(a | b) >> 32 ? a / b : (long long)((unsigned)a / (unsigned)b);
}

/* A copy, so that stores cannot alias it. mem is computed and does not wait for the load of the
 * view. */
template <int MEMS> OPTC_FN optc_view optc_look(const optc_launch &a, long long which)
{
    optc_view v = a.views[which];
    v.mem = a.mem + which * MEMS;
    return v;
}

/* The work of a thread of a map: a unit of its warp, a unit of its block, or a piece of a larger
 * unit. */
struct optc_work { int tensor, id; long long start; };

template <int THREADS, int PIECES> OPTC_FN long long optc_work_rounds(const optc_launch &a)
{
    return optc_up(a.for_warps, THREADS / 32) + a.for_blocks - a.for_warps +
           (a.count - a.for_blocks) * PIECES;
}

/* Block and unit numbers fit 32 bits: a grid has fewer than 2^31 blocks. All loads of a map wait
 * for this function, so it divides unsigned numbers by powers of two only. */
template <int THREADS, int PIECES, bool BACK>
OPTC_FN optc_work optc_take(const optc_launch &a, int block)
{
    const int warps = (int)a.for_warps, blocks = (int)a.for_blocks;
    const int few = (int)((unsigned)(warps + THREADS / 32 - 1) / (THREADS / 32));
    /* the first block that takes a piece of a larger unit */
    const int pieces = few + blocks - warps;
    const bool warp = block < few;
    int nth = warps + block - few, piece = 0;
    if (block >= pieces) {
        const int k =
            BACK ? ((int)a.count - blocks) * PIECES - 1 - (block - pieces) : block - pieces;
        nth = blocks + (int)((unsigned)k / PIECES);
        piece = (int)((unsigned)k % PIECES);
    }
    if (warp)
        nth = block * (THREADS / 32) + (int)(threadIdx.x / 32);
    const bool none = warp && nth >= warps;
    const optc_unit u = a.units[none ? 0 : nth];
    return optc_work{u.tensor, (int)(threadIdx.x & (warp ? 31 : THREADS - 1)),
                     none ? 1ll << 60 : (long long)u.unit * OPTC_SEG + piece * (OPTC_SEG / PIECES)};
}

/* Whether V values can be loaded and stored at once. The alignment of the array decides: pieces
 * start at multiples of V. The parameter H of loads and stores is 0: plain, 1: streaming, 2: not
 * kept in the L1 cache. */
template <int V, typename T> OPTC_FN bool optc_wide(const T *p)
{
    return ((unsigned long long)p & (sizeof(T) * V > 16 ? 15 : sizeof(T) * V - 1)) == 0;
}

struct alignas(16) optc_w16 { unsigned long long a, b; };
struct alignas(8) optc_w8 { unsigned long long a; };
struct alignas(4) optc_w4 { unsigned a; };
struct alignas(2) optc_w2 { unsigned short a; };
template <int BYTES> struct optc_word {
    static_assert(BYTES % 16 == 0, "vectors have 2, 4, 8 or k * 16 bytes");
    typedef optc_w16 type;
};
template <> struct optc_word<8> { typedef optc_w8 type; };
template <> struct optc_word<4> { typedef optc_w4 type; };
template <> struct optc_word<2> { typedef optc_w2 type; };

template <int H> OPTC_FN optc_w16 optc_read(const optc_w16 *p)
{
    optc_w16 x;
    if (H == 0)
        x = *p;
    else if (H == 1)
        asm volatile("ld.global.cs.v2.u64 {%0, %1}, [%2];" : "=l"(x.a), "=l"(x.b) : "l"(p));
    else
        asm volatile("ld.global.L1::no_allocate.v2.u64 {%0, %1}, [%2];"
                     : "=l"(x.a), "=l"(x.b)
                     : "l"(p));
    return x;
}
template <int H> OPTC_FN optc_w8 optc_read(const optc_w8 *p)
{
    optc_w8 x;
    if (H == 0)
        x = *p;
    else if (H == 1)
        asm volatile("ld.global.cs.u64 %0, [%1];" : "=l"(x.a) : "l"(p));
    else
        asm volatile("ld.global.L1::no_allocate.u64 %0, [%1];" : "=l"(x.a) : "l"(p));
    return x;
}
template <int H> OPTC_FN optc_w4 optc_read(const optc_w4 *p) { return *p; }
template <int H> OPTC_FN optc_w2 optc_read(const optc_w2 *p) { return *p; }

template <int H> OPTC_FN void optc_write(optc_w16 *p, optc_w16 x)
{
    if (H == 0)
        *p = x;
    else
        asm volatile("st.global.cs.v2.u64 [%0], {%1, %2};" ::"l"(p), "l"(x.a), "l"(x.b) : "memory");
}
template <int H> OPTC_FN void optc_write(optc_w8 *p, optc_w8 x)
{
    if (H == 0)
        *p = x;
    else
        asm volatile("st.global.cs.u64 [%0], %1;" :: "l"(p), "l"(x.a) : "memory");
}
template <int H> OPTC_FN void optc_write(optc_w4 *p, optc_w4 x) { *p = x; }
template <int H> OPTC_FN void optc_write(optc_w2 *p, optc_w2 x) { *p = x; }

/* Loops over elements are compiled twice. With optc_even all arrays are aligned and all vectors are
 * complete, so a vector is present or absent as a whole; with a bool the number of elements of each
 * vector is checked. */
struct optc_even { };
template <typename W> struct optc_is_even { static const bool value = false; };
template <> struct optc_is_even<optc_even> { static const bool value = true; };
template <> struct optc_is_even<const optc_even> { static const bool value = true; };

template <typename W> constexpr int optc_steps(int n) { return optc_is_even<W>::value ? n : 1; }

template <int V> OPTC_FN int optc_left(bool, long long n) { return optc_least(n, V); }

//@ if optc_even
template <int V> OPTC_FN int optc_left(optc_even, long long n) { return n > 0 ? V : 0; }

/* For blocks of a map in which every thread has complete vectors: nothing is checked. */
struct optc_full { };

template <typename W> struct optc_is_full { static const bool value = false; };
template <> struct optc_is_full<optc_full> { static const bool value = true; };
template <> struct optc_is_full<const optc_full> { static const bool value = true; };
template <> struct optc_is_even<optc_full> { static const bool value = true; };
template <> struct optc_is_even<const optc_full> { static const bool value = true; };

//@ if optc_full
template <int V> OPTC_FN int optc_left(optc_full, long long) { return V; }

//@ if optc_full
template <int H, int V, typename T> OPTC_FN void optc_get(T (&v)[V], const T *p, int, optc_full)
{
    typedef typename optc_word<sizeof(T) * V>::type word;
    union { T t[V]; word w[sizeof(T) * V / sizeof(word)]; } x;
#pragma unroll
    for (unsigned k = 0; k < sizeof(T) * V / sizeof(word); k++)
        x.w[k] = optc_read<H>((const word *)p + k);
    for (int i = 0; i < V; i++)
        v[i] = x.t[i];
}

//@ if optc_full
template <int H, int V, typename T> OPTC_FN void optc_put(T *p, const T (&v)[V], int, optc_full)
{
    typedef typename optc_word<sizeof(T) * V>::type word;
    union { T t[V]; word w[sizeof(T) * V / sizeof(word)]; } x;
    for (int i = 0; i < V; i++)
        x.t[i] = v[i];
#pragma unroll
    for (unsigned k = 0; k < sizeof(T) * V / sizeof(word); k++)
        optc_write<H>((word *)p + k, x.w[k]);
}

/* Hides where x comes from, so that the compiler computes values derived from it where they are
 * used. Without it the values for all eight rows are computed before the loop over strips and
 * occupy registers. */
OPTC_FN int optc_fresh(int x)
{
#ifdef __CUDA_ARCH__
    asm volatile("" : "+r"(x));
#endif
    return x;
}
OPTC_FN long long optc_fresh(long long x)
{
#ifdef __CUDA_ARCH__
    asm volatile("" : "+l"(x));
#endif
    return x;
}

/* In a tile the even loop loads every vector without a condition, so that all loads can be in
 * flight. A vector past the end of the row loads the last complete one instead. */
template <int V> OPTC_FN int optc_sure(bool, int left) { return left; }
template <int V> OPTC_FN int optc_sure(optc_even, int) { return V; }
template <int V> OPTC_FN long long optc_inside(bool, long long col, long long) { return col; }
template <int V> OPTC_FN long long optc_inside(optc_even, long long col, long long cols)
{
    return col < cols ? col : cols - V;
}

//@ if optc_even
template <int H, int V, typename T>
OPTC_FN void optc_get(T (&v)[V], const T *p, int left, optc_even)
{
    typedef typename optc_word<sizeof(T) * V>::type word;
    union { T t[V]; word w[sizeof(T) * V / sizeof(word)]; } x;
    if (left)
#pragma unroll
        for (unsigned k = 0; k < sizeof(T) * V / sizeof(word); k++)
            x.w[k] = optc_read<H>((const word *)p + k);
    for (int i = 0; i < V; i++)
        v[i] = left ? x.t[i] : T(0);
}

//@ if optc_even
template <int H, int V, typename T>
OPTC_FN void optc_put(T *p, const T (&v)[V], int left, optc_even)
{
    typedef typename optc_word<sizeof(T) * V>::type word;
    union { T t[V]; word w[sizeof(T) * V / sizeof(word)]; } x;
    for (int i = 0; i < V; i++)
        x.t[i] = v[i];
    if (left)
#pragma unroll
        for (unsigned k = 0; k < sizeof(T) * V / sizeof(word); k++)
            optc_write<H>((word *)p + k, x.w[k]);
}

template <int H, int V, typename T>
OPTC_FN void optc_get(T (&v)[V], const T *p, int left, bool wide)
{
    typedef typename optc_word<sizeof(T) * V>::type word;
    if (wide && left >= V) {
        union { T t[V]; word w[sizeof(T) * V / sizeof(word)]; } x;
#pragma unroll
        for (unsigned k = 0; k < sizeof(T) * V / sizeof(word); k++)
            x.w[k] = optc_read<H>((const word *)p + k);
        for (int i = 0; i < V; i++)
            v[i] = x.t[i];
    } else {
        for (int i = 0; i < V; i++)
            v[i] = i < left ? p[i] : T(0);
    }
}

template <int H, int V, typename T>
OPTC_FN void optc_put(T *p, const T (&v)[V], int left, bool wide)
{
    typedef typename optc_word<sizeof(T) * V>::type word;
    if (wide && left >= V) {
        union { T t[V]; word w[sizeof(T) * V / sizeof(word)]; } x;
        for (int i = 0; i < V; i++)
            x.t[i] = v[i];
#pragma unroll
        for (unsigned k = 0; k < sizeof(T) * V / sizeof(word); k++)
            optc_write<H>((word *)p + k, x.w[k]);
    } else {
        for (int i = 0; i < V; i++)
            if (i < left)
                p[i] = v[i];
    }
}

/* Converts the values of a vector in pairs. */
template <int V> OPTC_FN void optc_to_bf16_all(unsigned short (&to)[V], const float (&x)[V])
{
#if defined __CUDA_ARCH__ && __CUDA_ARCH__ >= 800
#pragma unroll
    for (int i = 0; i < V; i += 2) {
        unsigned r;
        asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(x[i + 1]), "f"(x[i]));
        to[i] = (unsigned short)r;
        to[i + 1] = (unsigned short)(r >> 16);
    }
#else
    for (int i = 0; i < V; i++)
        to[i] = optc_to_bf16(x[i]);
#endif
}

template <int V> OPTC_FN void optc_to_f16_all(unsigned short (&to)[V], const float (&x)[V])
{
#if defined __CUDA_ARCH__ && __CUDA_ARCH__ >= 800
#pragma unroll
    for (int i = 0; i < V; i += 2) {
        unsigned r;
        asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(x[i + 1]), "f"(x[i]));
        to[i] = (unsigned short)r;
        to[i + 1] = (unsigned short)(r >> 16);
    }
#else
    for (int i = 0; i < V; i++)
        to[i] = optc_to_f16(x[i]);
#endif
}

//@ types = {{store}}_all
template <int V> OPTC_FN void {{store}}_all({{c}} (&to)[V], const {{real}} (&x)[V])
{
    for (int i = 0; i < V; i++)
        to[i] = {{store}}(x[i]);
}

/* Loads the row, column and slice values of the elements of a flat pass. If row lengths are
 * multiples of V (even), V elements belong to one row. */
struct optc_place { long long row, col; };

OPTC_FN optc_place optc_find(const optc_view *self, long long offset)
{
    long long row = optc_div(offset, self->cols);
    return optc_place{row, offset - row * self->cols};
}

template <typename W> OPTC_FN void optc_ahead(optc_place &at, const optc_view *self, int by, W)
{
    /* rows have at least `by` values: no division, no branch */
    if (optc_is_full<W>::value) {
        const bool next = (at.col += by) >= self->cols;
        at.row += next;
        at.col -= next ? self->cols : 0;
        return;
    }
    at.col += by;
    if (at.col < self->cols)
        return;
    long long rows = at.col - self->cols < self->cols ? 1 : optc_div(at.col, self->cols);
    at.col -= rows * self->cols;
    at.row += rows;
}

template <int V, typename T, typename W>
OPTC_FN void optc_get_rows(T (&v)[V], const T *p, const optc_view *self, optc_place at, int left, W)
{
    const bool even = optc_is_even<W>::value;
    T x = left > 0 ? p[at.row] : T(0);
    for (int i = 0; i < V; i++) {
        if (!even && i && i < left && ++at.col == self->cols)
            at.col = 0, x = p[++at.row];
        v[i] = x;
    }
}

/* The even loop of a flat pass with values per matrix covers one matrix. */
template <int V, typename T, typename W>
OPTC_FN void optc_get_slices(T (&v)[V], const T *p, const optc_view *self, optc_place at, int left,
                             W)
{
    for (int i = 0; i < V; i++) {
        if (i && ++at.col == self->cols)
            at.col = 0, at.row++;
        v[i] = optc_is_even<W>::value ? *p
               : i < left             ? p[self->slices == 1 ? 0 : optc_div(at.row, self->rows)]
                                      : T(0);
    }
}

template <int V, typename T, typename W>
OPTC_FN void optc_get_cols(T (&v)[V], const T *p, const optc_view *self, optc_place at, int left,
                           W wide)
{
    /* column arrays are aligned to 64 bytes and hold complete vectors */
    if (optc_is_even<W>::value) {
        optc_get<0>(v, p + at.col, left, wide);
        return;
    }
    for (int i = 0; i < V; i++) {
        if (i && ++at.col == self->cols)
            at.col = 0, at.row++;
        v[i] = i < left
                   ? p[(self->slices == 1 ? 0 : optc_div(at.row, self->rows) * self->cols) + at.col]
                   : T(0);
    }
}

/* The same for a list over two axes: a position in a matrix with `across` columns. */
OPTC_FN optc_place optc_spot(long long across, long long at)
{
    long long row = optc_div(at, across);
    return optc_place{row, at - row * across};
}

OPTC_FN void optc_onward(optc_place &at, long long across, int by)
{
    at.col += by;
    if (at.col < across)
        return;
    long long rows = at.col - across < across ? 1 : optc_div(at.col, across);
    at.col -= rows * across;
    at.row += rows;
}

/* For a flat pass that needs only values per matrix: each matrix counts as one row. */
OPTC_FN optc_place optc_matrix(const optc_view *self, long long offset)
{
    return self->slices == 1 ? optc_place{0, offset} : optc_spot(self->rows * self->cols, offset);
}

/* A position of a flat pass, relative to its matrix. */
OPTC_FN optc_place optc_within(const optc_view *self, optc_place at)
{
    if (self->slices > 1)
        at.row -= optc_div(at.row, self->rows) * self->rows;
    return at;
}

template <int V, typename T, typename W>
OPTC_FN void optc_get_down(T (&v)[V], const T *p, long long across, optc_place at, int left, W)
{
    const bool even = optc_is_even<W>::value;
    T x = left > 0 ? p[at.row] : T(0);
    for (int i = 0; i < V; i++) {
        if (!even && i && i < left && ++at.col == across)
            at.col = 0, x = p[++at.row];
        v[i] = x;
    }
}

template <int V, typename T, typename W>
OPTC_FN void optc_get_across(T (&v)[V], const T *p, long long across, optc_place at, int left,
                             W wide)
{
    if (optc_is_even<W>::value) {
        optc_get<0>(v, p + at.col, left, wide);
        return;
    }
    for (int i = 0; i < V; i++) {
        if (i && ++at.col == across)
            at.col = 0;
        v[i] = i < left ? p[at.col] : T(0);
    }
}

/* Loads the transposed entry: the matrix has `down` columns. */
template <int V, typename T, typename W>
OPTC_FN void optc_get_transposed(T (&v)[V], const T *p, long long across, long long down,
                                 optc_place at, int left, W)
{
    const bool even = optc_is_even<W>::value;
    for (int i = 0; i < V; i++) {
        if (!even && i && ++at.col == across)
            at.col = 0, at.row++;
        v[i] = i < left ? p[(at.col + (even ? i : 0)) * down + at.row] : T(0);
    }
}

template <int V, typename I, typename W>
OPTC_FN void optc_index_down(I (&v)[V], long long down, long long across, optc_place at, W)
{
    for (int i = 0; i < V; i++) {
        if (!optc_is_even<W>::value && i && ++at.col == across)
            at.col = 0, at.row = at.row + 1 < down ? at.row + 1 : 0;       /* the next matrix */
        v[i] = (I)at.row;
    }
}

template <int V, typename I, typename W>
OPTC_FN void optc_index_across(I (&v)[V], long long, long long across, optc_place at, W)
{
    for (int i = 0; i < V; i++) {
        if (!optc_is_even<W>::value && i && ++at.col == across)
            at.col = 0;
        v[i] = (I)(at.col + (optc_is_even<W>::value ? i : 0));
    }
}

//@ types
/* Pointers to arrays of {{name}} that convert on reading. */
struct optc_{{name}}s {
    const {{c}} *p;
    OPTC_FN_MEMBER {{real}} operator[](long long i) const { return {{load}}(p[i]); }
};
