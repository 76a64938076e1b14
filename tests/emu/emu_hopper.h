// The functions of templates/hopper_cuda.txt for an emulated GPU; emu_nvrtc.c puts this before
// programs that call them. The TMA unit and the tensor cores work either at once or as late as
// possible, which differs from launch to launch. Wrong results in one of these orders show that a
// wait is missing. What is wrong in every order aborts: missing fences, accesses outside of shared
// memory, barriers with other sizes, work that nothing waits for. Not shown: missing fences of maps
// and of barriers that were just initialised, and the scopes of fences and barriers. The two blocks
// of a cluster run side by side. In some launches one of them begins and continues only when the
// other cannot.
#include "emu_map.h"

#define OPTC_HOPPER
#define OPTC_IN_CLUSTERS __attribute__((section("emu_clusters")))
enum { OPTC_CLUSTER = 2 };
#define EMU_FAST __attribute__((optimize("O2")))

enum {
    EMU_DYNAMIC = 1024 + 16,
    EMU_SHARED = 256 << 10,
    EMU_QUEUED = 128,
    EMU_PRODUCTS = 16,
    EMU_STORES = 8,
    EMU_BARS = 16
};
alignas(1024) static unsigned char emu_memory[OPTC_CLUSTER][EMU_SHARED];
// dynamic shared memory of the launch; emu_driver.c sets it
extern "C" __attribute__((visibility("default"))) unsigned emu_shared_bytes;
unsigned emu_shared_bytes;

static void emu_stop(const char *why)
{
    fprintf(stderr, "emulated GPU: thread %u of block %u: %s\n", threadIdx.x, blockIdx.x, why);
    abort();
}

// ---- shared memory ----
// Dynamic memory begins at EMU_DYNAMIC. Other variables have distances from emu_memory, too: the
// same in both blocks.
static unsigned optc_shared_at(const void *p)
{
    return (unsigned)((const unsigned char *)p - emu_memory[0]);
}
static unsigned optc_dynamic_at() { return EMU_DYNAMIC; }
static unsigned emu_changes;                               // of what it contains
static unsigned emu_mine()
{
    return emu_me / blockDim.x;
}  // the current thread's block: the first or the second
static unsigned char *emu_at(unsigned at, unsigned bytes, unsigned block = emu_mine())
{
    if (at < EMU_DYNAMIC || at + bytes > EMU_DYNAMIC + emu_shared_bytes || at & (bytes - 1))
        emu_stop("an address outside of shared memory, or not aligned to its access");
    return emu_memory[block] + at;
}
// The place of 16 bytes in rows of 128 bytes, as the TMA unit and the tensor cores permute them.
static unsigned emu_permuted(unsigned at) { return at ^ (at >> 7 & 7) << 4; }

// A thread has written or read shared memory after its last fence; it has a fence before its next
// multiplication. emu_ahead: it has waited for a barrier and then not for its warp, so other lanes
// may still wait for that phase.
static bool emu_written[EMU_MOST], emu_read[EMU_MOST], emu_fenced[EMU_MOST], emu_ahead[EMU_MOST];
static void emu_sync_warp()
{
    emu_ahead[emu_me] = false;
    emu_wait(EMU_WARP);
}
#undef __syncwarp
#define __syncwarp() emu_sync_warp()
static void optc_box_fence() { emu_written[emu_me] = emu_read[emu_me] = false; }

static void optc_load_16(unsigned (&y)[4], unsigned at) { memcpy(y, emu_at(at, 16), 16); }
static void optc_store_16(unsigned at, const unsigned (&y)[4])
{
    memcpy(emu_at(at, 16), y, 16);
    emu_written[emu_me] = true;
    emu_changes++;
}
// The addresses of a warp's threads.
static const unsigned *emu_addresses(unsigned at)
{
    static unsigned of[2][EMU_MOST];
    const int turn = emu_thread_of[emu_me].turn++ & 1;
    of[turn][emu_me] = at;
    emu_sync_warp();
    return of[turn] + emu_me / 32 * 32;
}
static void optc_fragments(unsigned (&r)[4], unsigned at)
{
    const unsigned *const of = emu_addresses(at), lane = threadIdx.x % 32;
    for (int i = 0; i < 4; i++)
        memcpy(&r[i], emu_at(of[i * 8 + lane / 4], 16) + lane % 4 * 4, 4);
    emu_read[emu_me] = true;
}
static void optc_put_fragments(unsigned at, const unsigned (&p)[4])
{
    const unsigned *const of = emu_addresses(at), lane = threadIdx.x % 32;
    for (int i = 0; i < 4; i++)
        memcpy(emu_at(of[i * 8 + lane / 4], 16) + lane % 4 * 4, &p[i], 4);
    emu_written[emu_me] = true;
    emu_changes++;
}
static void optc_put_transposed(unsigned at, const unsigned (&p)[4])
{
    const unsigned *const of = emu_addresses(at), lane = threadIdx.x % 32;
    for (int i = 0; i < 8; i++)
        memcpy(emu_at(of[i / 2 * 8 + lane % 4 * 2 + i % 2], 16) + lane / 4 * 2,
               (const char *)&p[i / 2] + i % 2 * 2, 2);
    emu_written[emu_me] = true;
    emu_changes++;
}

static int optc_thread_again() { return (int)threadIdx.x; }
static int optc_uniform(int x) { return x; }
static void optc_registers_40() {}
static void optc_registers_232() {}

// ---- what is late: changes from launch to launch ----
enum {
    EMU_LATE_LOADS = 1,
    EMU_LATE_SUMS = 2,
    EMU_LATE_STORES = 4,
    EMU_SLOW_BLOCK = 8,
    EMU_SLOW_SECOND = 16,
    EMU_MODES = 32
};
static unsigned emu_mode;
static bool emu_late(unsigned what) { return emu_mode & what; }
static unsigned emu_random()
{
    static unsigned x = 1;
    x = x * 1664525 + 1013904223;
    return x >> 16;
}
// A slow block begins and continues only when the other cannot. Without one each warp misses every
// second turn.
static bool emu_waits(unsigned thread)
{
    return emu_late(EMU_SLOW_BLOCK) ? (thread / blockDim.x != 0) == emu_late(EMU_SLOW_SECOND)
                                    : emu_random() % 2;
}

// ---- barriers ----
struct emu_bar { unsigned at; unsigned char phase, count, missing; int bytes; };
static emu_bar emu_bars[OPTC_CLUSTER][EMU_BARS];
static int emu_nbars[OPTC_CLUSTER];
static emu_bar *emu_bar_at(unsigned at, unsigned block = emu_mine())
{
    if (emu_all((int)(block * blockDim.x), (int)((block + 1) * blockDim.x), EMU_DONE))
        emu_stop("a barrier of a block that has ended");
    for (int i = 0; i < emu_nbars[block]; i++)
        if (emu_bars[block][i].at == at)
            return &emu_bars[block][i];
    emu_stop("a barrier that was not initialised");
    return NULL;
}
static void emu_bar_count(emu_bar *b, int arrivals, int bytes)
{
    if (b->missing < arrivals)
        emu_stop("more arrivals than a barrier expects");
    b->missing -= arrivals;
    b->bytes += bytes;
    if (!b->missing && !b->bytes)
        b->phase ^= 1, b->missing = b->count;
}
static void optc_bar_init(unsigned at, int arrivals)
{
    const unsigned me = emu_mine();
    if (emu_nbars[me] == EMU_BARS)
        emu_stop("too many barriers for the emulation");
    emu_bars[me][emu_nbars[me]++] =
        emu_bar{at, 0, (unsigned char)arrivals, (unsigned char)arrivals, 0};
}
static void optc_bars_ready() {}
static void optc_bar_expect(unsigned at, int bytes) { emu_bar_count(emu_bar_at(at), 1, bytes); }
static void emu_arrive(unsigned at, unsigned block)
{
    bool alone = true;
    for (unsigned i = emu_me / 32 * 32, end = i + 32; i < end; i++) {
        if (emu_read[i])
            emu_stop("no fence between reads of a slot and its release");
        if (emu_written[i])
            emu_stop("no fence between writes to shared memory and the barrier after which the TMA "
                     "unit reads them");
        alone = alone && (i == emu_me || emu_thread_of[i].state == EMU_DONE);
    }
    if (emu_ahead[emu_me] && !alone)
        emu_stop("a slot is released, and lanes of the warp may still wait for it");
    emu_bar_count(emu_bar_at(at, block), 1, 0);
    emu_wait_until(emu_at_once);                           // other threads continue first
}
static void optc_bar_arrive(unsigned at) { emu_arrive(at, emu_mine()); }
static void optc_bar_arrive_cluster(unsigned at)
{
    emu_arrive(at, 1 - emu_mine());
    emu_arrive(at, emu_mine());
}
static bool emu_bar_passed(const emu_thread &t)
{
    return ((const emu_bar *)t.word[0])->phase != t.word[1];
}
static void optc_bar_wait(unsigned at, unsigned phase)
{
    emu_thread &t = emu_thread_of[emu_me];
    t.word[0] = (unsigned long long)emu_bar_at(at), t.word[1] = phase;
    if (!emu_bar_passed(t))
        emu_wait_until(emu_bar_passed);
    emu_ahead[emu_me] = true;
}

struct emu_group_bar { int there; unsigned long long ended; };
static emu_group_bar emu_group[OPTC_CLUSTER][16];
static bool emu_group_ended(const emu_thread &t)
{
    return ((const emu_group_bar *)t.word[0])->ended != t.word[1];
}
static void optc_group_sync(int group)
{
    emu_thread &t = emu_thread_of[emu_me];
    emu_group_bar &g = emu_group[emu_mine()][group];
    t.word[0] = (unsigned long long)&g, t.word[1] = g.ended;
    emu_ahead[emu_me] = false;
    if (++g.there < 128)
        emu_wait_until(emu_group_ended);
    else
        g.there = 0, g.ended++;
}

// Number of barriers of the cluster that each thread has reached.
static unsigned emu_cluster_syncs[EMU_MOST];
static bool emu_cluster_there(const emu_thread &t)
{
    for (int i = 0; i < emu_count; i++)
        if (emu_thread_of[i].state != EMU_DONE && emu_cluster_syncs[i] < t.word[0])
            return false;
    return true;
}
static void optc_cluster_sync()
{
    emu_thread_of[emu_me].word[0] = ++emu_cluster_syncs[emu_me];
    emu_wait_until(emu_cluster_there);
}

// ---- the TMA unit ----
struct emu_box { const emu_map *map; unsigned block, shared, bar; int at, matrix, row, group; };
static emu_box emu_loads[EMU_QUEUED], emu_stores[EMU_MOST][EMU_STORES];
static int emu_nloads, emu_nstores[EMU_MOST], emu_store_group[EMU_MOST];

// Copies a box. Values outside of the matrix are zeros, or are not stored.
static void emu_copy(const emu_box &x, bool store)
{
    if (x.map->mark != EMU_MAP)
        emu_stop("a map that the driver has not encoded");
    for (unsigned i = 0; i < x.map->rows; i++)
        for (int j = 0; j < 64; j += 8) {
            const long long row = x.row + (long long)i, col = x.at + (long long)j;
            const bool inside = row >= 0 && col >= 0 && row < x.map->lines;
            const long long left = inside ? x.map->width - col : 0;
            const size_t bytes = left < 0 ? 0 : left < 8 ? (size_t)left * 2 : 16;
            unsigned char *const here =
                emu_at(emu_permuted(x.shared + i * 128 + j * 2), 16, x.block);
            char *const there = x.map->base + x.matrix * 16ll + row * x.map->stride + col * 2;
            if (store) {
                memcpy(there, here, bytes);
            } else {
                memset(here, 0, 16);
                memcpy(here, there, bytes);
            }
        }
    emu_changes++;
    if (!store)
        emu_bar_count(emu_bar_at(x.bar, x.block), 0, -(int)(x.map->rows * 128));
}
static void optc_map_new(const void *) {}
static void emu_load(const emu_box &x)
{
    if (x.shared % 128)
        emu_stop("a box that is not aligned to 128 bytes");
    if (!emu_late(EMU_LATE_LOADS))
        return emu_copy(x, false);
    if (emu_nloads == EMU_QUEUED)
        emu_stop("too many loads at a time for the emulation");
    emu_loads[emu_nloads++] = x;
}
static void optc_box_load(unsigned to, const void *m, unsigned bar, int at, int matrix, int row)
{
    emu_load(emu_box{(const emu_map *)m, emu_mine(), to, bar, at, matrix, row, 0});
}
static void optc_box_multicast(unsigned to, const void *m, unsigned bar, int at, int matrix,
                               int row)
{
    for (unsigned block = 0; block < OPTC_CLUSTER; block++)
        emu_load(emu_box{(const emu_map *)m, block, to, bar, at, matrix, row, 0});
}
// No thread can continue: one of the loads arrives.
static bool emu_load_arrives()
{
    if (!emu_nloads)
        return false;
    const int i = (int)(emu_random() % (unsigned)emu_nloads);
    const emu_box x = emu_loads[i];
    emu_loads[i] = emu_loads[--emu_nloads];
    emu_copy(x, false);
    return true;
}
static void optc_box_store(const void *m, unsigned from, int at, int matrix, int row)
{
    const unsigned me = emu_me;
    if (emu_nstores[me] == EMU_STORES)
        emu_stop("too many stores at a time for the emulation");
    const emu_box x = {(const emu_map *)m, emu_mine(), from, 0, at, matrix, row,
                       emu_store_group[me]};
    if (emu_late(EMU_LATE_STORES))
        emu_stores[me][emu_nstores[me]++] = x;
    else
        emu_copy(x, true);
}
static void optc_box_commit() { emu_store_group[emu_me]++; }
static void emu_wait_stores()  // a store that was not committed is not awaited
{
    const unsigned me = emu_me;
    int kept = 0;
    for (int i = 0; i < emu_nstores[me]; i++)
        if (emu_stores[me][i].group < emu_store_group[me])
            emu_copy(emu_stores[me][i], true);
        else
            emu_stores[me][kept++] = emu_stores[me][i];
    emu_nstores[me] = kept;
}
static void optc_box_wait_read() { emu_wait_stores(); }
static void optc_box_wait() { emu_wait_stores(); }

// ---- tensor cores ----
struct emu_product {
    void (*run)(const emu_product &); float *sum; unsigned long long a, b; int add, group;
};
static emu_product emu_products[EMU_MOST][EMU_PRODUCTS];
static int emu_nproducts[EMU_MOST], emu_product_group[EMU_MOST];

// The numbers of all 16-bit values; the last one is NaN.
template <typename K> static const float *emu_values()
{
    static float value[65536];
    for (unsigned i = 0; !value[0xffff] && i < 65536; i++)
        value[i] = K::get((unsigned short)i);
    return value;
}
// An operand's 16 terms of each row. along 0: rows of terms in groups of 8. along 1: rows of 64
// values that share a term. Threads share the numbers until shared memory changes.
struct emu_numbers { unsigned long long d; unsigned change, block; int rows; float x[256][16]; };
EMU_FAST static const emu_numbers &emu_operand(unsigned long long d, const float *value, bool along,
                                               int rows)
{
    static emu_numbers cache[8];
    static unsigned oldest;
    const unsigned first = (unsigned)(d & 0x3fff) << 4, lead = (unsigned)(d >> 16 & 0x3fff) << 4,
        stride = (unsigned)(d >> 32 & 0x3fff) << 4;
    for (const emu_numbers &x : cache)
        if (x.d == d && x.change == emu_changes && x.block == emu_mine() && x.rows >= rows)
            return x;
    emu_numbers &n = cache[oldest++ % 8];
    n.d = d, n.change = emu_changes, n.block = emu_mine(), n.rows = rows;
    for (int row = 0; row < rows; row += along ? 8 : 1)
        for (int k = 0; k < 16; k += along ? 1 : 8) {
            unsigned short x[8];
            const unsigned at = along
                                    ? row / 64 * lead + k / 8 * stride + k % 8 * 128 + row % 64 * 2
                                    : row / 8 * stride + row % 8 * 128 + k * 2;
            memcpy(x, emu_at(emu_permuted(first + at), 16), 16);
            for (int i = 0; i < 8; i++)
                n.x[along ? row + i : row][along ? k : k + i] = value[x[i]];
        }
    return n;
}
EMU_FAST static float emu_sum(float sum, const float *a, const float *b)
{
    for (int k = 0; k < 16; k++)
        sum += a[k] * b[k];
    return sum;
}
// This thread's sums: two neighbours in each 8 columns of two rows.
template <typename K, int TA, int TB, int COLS> static void emu_multiply(const emu_product &p)
{
    const int lane = threadIdx.x % 32, row = threadIdx.x / 32 % 4 * 16 + lane / 4;
    const float *const value = emu_values<K>();
    const emu_numbers &a = emu_operand(p.a, value, TA, 64), &b = emu_operand(p.b, value, TB, COLS);
    for (int i = 0; i < COLS / 2; i++) {
        const int down = row + i / 2 % 2 * 8, across = i / 4 * 8 + lane % 4 * 2 + i % 2;
        p.sum[i] = emu_sum(p.add ? p.sum[i] : 0, a.x[down], b.x[across]);
    }
}
static void emu_enqueue(const emu_product &p)
{
    const unsigned me = emu_me;
    if ((p.a | p.b) >> 62 != 1 || !emu_fenced[me])
        emu_stop(
            "an operand that is not permuted by 128 bytes, or no fence before a multiplication");
    if (!emu_late(EMU_LATE_SUMS))
        return p.run(p);
    if (emu_nproducts[me] == EMU_PRODUCTS)
        emu_stop("too many multiplications at a time for the emulation");
    emu_products[me][emu_nproducts[me]++] = p;
}
template <int N> struct optc_width {};
template <int TA, int TB, typename K, int N>
static void optc_wgmma(K, optc_width<N>, float (&d)[128], unsigned long long a,
                       unsigned long long b, int add)
{
    emu_enqueue(emu_product{emu_multiply<K, TA, TB, N>, d, a, b, add, emu_product_group[emu_me]});
}
static void optc_wgmma_fence() { emu_fenced[emu_me] = true; }
static void optc_wgmma_commit()  // of the whole warp, as all functions of the tensor cores
{
    emu_ahead[emu_me] = false;
    emu_product_group[emu_me]++;
}
// The last `left` groups may remain.
static void emu_wait_sums(int left)
{
    const unsigned me = emu_me;
    int kept = 0;
    for (int i = 0; i < emu_nproducts[me]; i++)
        if (emu_products[me][i].group < emu_product_group[me] - left)
            emu_products[me][i].run(emu_products[me][i]);
        else
            emu_products[me][kept++] = emu_products[me][i];
    emu_nproducts[me] = kept;
}
static void optc_wgmma_wait_before() { emu_wait_sums(1); }
template <int N> static void optc_wgmma_wait(float (&)[128])
{
    emu_wait_sums(0);
    emu_fenced[emu_me] = false;
}
template <typename K> static unsigned optc_pack(K, float low, float high)
{
    return K::put(low) | (unsigned)K::put(high) << 16;
}

// ---- blocks ----
static void emu_block_begins()
{
    if (!emu_first)
        emu_mode = emu_random() % EMU_MODES;
    memset(emu_memory, 0xff, sizeof emu_memory);           // NaN
    emu_changes++;
    memset(emu_written, 0, sizeof emu_written);
    memset(emu_read, 0, sizeof emu_read);
    memset(emu_fenced, 0, sizeof emu_fenced);
    memset(emu_ahead, 0, sizeof emu_ahead);
    memset(emu_nbars, 0, sizeof emu_nbars);
    memset(emu_cluster_syncs, 0, sizeof emu_cluster_syncs);
}
static void emu_block_ends()
{
    int left = emu_nloads;
    for (int i = 0; i < emu_count; i++)
        left += emu_nstores[i] + emu_nproducts[i];
    if (left)
        emu_stop("the block ended before its loads, stores or multiplications");
}
static const bool emu_units = (emu_begins = emu_block_begins, emu_ends = emu_block_ends,
                               emu_idle = emu_load_arrives, emu_skips = emu_waits);
