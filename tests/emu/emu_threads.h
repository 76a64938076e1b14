// Runs a GPU's threads on one CPU thread, for emitted CUDA that is compiled as C++ (emu_nvrtc.c
// puts this before it). Blocks run one after another, those of a cooperative launch or of a cluster
// side by side. A thread runs until it waits for others, at a barrier or in a shuffle; only then it
// gets its own stack.
#include <math.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

#define __global__
#define __device__
#define __forceinline__ inline
#define __noinline__
#define __launch_bounds__(...)
#define __shared__ static
#define __syncthreads() emu_wait(EMU_BLOCK)

// Functions that are instructions on a GPU.
template <class To, class From> static inline To emu_as(From x)
{
    To y;
    static_assert(sizeof x == sizeof y, "as many bits");
    memcpy(&y, &x, sizeof y);
    return y;
}
static inline int __float_as_int(float x) { return emu_as<int>(x); }
static inline float __int_as_float(int x) { return emu_as<float>(x); }
static inline long long __double_as_longlong(double x) { return emu_as<long long>(x); }
static inline double __longlong_as_double(long long x) { return emu_as<double>(x); }
static inline float __fsqrt_rn(float x) { return sqrtf(x); }
static inline double __dsqrt_rn(double x) { return sqrt(x); }

static inline unsigned long long atomicMax(unsigned long long *at, unsigned long long x)
{
    const unsigned long long was = *at;
    *at = x > was ? x : was;
    return was;
}

static inline unsigned atomicInc(unsigned *at, unsigned last)
{
    const unsigned was = *at;
    *at = was >= last ? 0 : was + 1;
    return was;
}

static inline int atomicAdd(int *at, int x)
{
    const int was = *at;
    *at = was + x;
    return was;
}

struct alignas(16) uint4 { unsigned x, y, z, w; };
struct emu_dim { unsigned x; };
static emu_dim threadIdx, blockIdx, blockDim, gridDim;

enum { EMU_MOST = 4096, EMU_STACK = 128 * 1024, EMU_WAITED = 1 << 20 };
enum emu_state { EMU_RUNS, EMU_BLOCK, EMU_WARP, EMU_UNTIL, EMU_DONE };
// ready: what a thread in the state EMU_UNTIL waits for
struct emu_thread { jmp_buf at; emu_state state; unsigned long long word[2]; int turn;
    bool (*ready)(const emu_thread &); };
static emu_thread emu_thread_of[EMU_MOST];
static jmp_buf emu_home;
static void (*emu_body)(void);
struct emu_stack { char *memory; jmp_buf idle; };
static emu_stack emu_stack_of[EMU_MOST];
static int emu_stacks, emu_starting, emu_next, emu_count;
// Kernels in this section run in clusters of two blocks (emu_hopper.h). The linker defines its
// bounds if there is one.
extern "C" __attribute__((weak, visibility("hidden"))) const char __start_emu_clusters[],
    __stop_emu_clusters[];
// The current thread among all that run side by side: of a block, of a cluster, or of a cooperative
// launch (emu_team, emu_driver.c). emu_first: the first of these blocks.
static unsigned emu_me, emu_first;
extern "C" __attribute__((visibility("default"))) unsigned emu_team;
unsigned emu_team;
static void emu_enter(unsigned me)
{
    emu_me = me;
    threadIdx.x = me % blockDim.x;
    blockIdx.x = emu_first + me / blockDim.x;
}
// Before and after blocks that run side by side, and when no thread can continue (true: one may
// now); emu_hopper.h sets them.
static void (*emu_begins)(), (*emu_ends)();
static bool (*emu_idle)();
static bool (*emu_skips)(
    unsigned thread);  // it, or its warp, could begin or continue and does not yet

static void emu_wait(emu_state why)
{
    unsigned me = emu_me;
    emu_thread_of[me].state = why;
    emu_thread_of[me].turn |= EMU_WAITED;
    if (!_setjmp(emu_thread_of[me].at))
        _longjmp(emu_home, 1);
    emu_enter(me);
}

static inline void emu_wait_until(bool (*ready)(const emu_thread &))
{
    emu_thread_of[emu_me].ready = ready;
    emu_wait(EMU_UNTIL);
}
static bool emu_at_once(const emu_thread &) { return true; }
#define __syncwarp() emu_wait(EMU_WARP)

template <typename T> static T emu_shuffle(T x, unsigned from)
{
    emu_thread &t = emu_thread_of[emu_me];
    const unsigned first = emu_me - threadIdx.x;
    int turn = t.turn++ & 1;
    memcpy(&t.word[turn], &x, sizeof x);
    emu_wait(EMU_WARP);
    T y;
    memcpy(&y, &emu_thread_of[first + from].word[turn], sizeof y);
    return y;
}

template <typename T> static T __shfl_down_sync(unsigned, T x, int by)
{
    return emu_shuffle(x, threadIdx.x % 32 + by < 32 ? threadIdx.x + by : threadIdx.x);
}

template <typename T> static T __shfl_xor_sync(unsigned, T x, int by)
{
    return emu_shuffle(x, threadIdx.x ^ by);
}

// One stack runs thread after thread until one of them waits: that thread keeps the stack until it
// ends. Then the stack is free until the next block.
static void emu_run_threads(void)
{
    emu_stack *mine = &emu_stack_of[emu_starting];
    for (;;) {
        for (bool waited = false; emu_next < emu_count && !waited;) {
            unsigned me = emu_next++;
            emu_enter(me);
            if (emu_skips && emu_skips(me))
                emu_wait_until(emu_at_once);
            emu_body();
            emu_thread_of[me].state = EMU_DONE;
            waited = emu_thread_of[me].turn >= EMU_WAITED;
        }
        if (!_setjmp(mine->idle))
            _longjmp(emu_home, 1);
    }
}

static void emu_start(int i)
{
    emu_starting = i;
    if (_setjmp(emu_home))
        return;
    if (emu_stack_of[i].memory)
        _longjmp(emu_stack_of[i].idle, 1);
    static ucontext_t first;
    emu_stack_of[i].memory = (char *)malloc(EMU_STACK);
    getcontext(&first);
    first.uc_stack.ss_sp = emu_stack_of[i].memory;
    first.uc_stack.ss_size = EMU_STACK;
    first.uc_link = NULL;
    makecontext(&first, emu_run_threads, 0);
    setcontext(&first);
}

static bool emu_all(int from, int to, emu_state wanted)
{
    for (int i = from; i < to; i++)
        if (emu_thread_of[i].state != wanted && emu_thread_of[i].state != EMU_DONE)
            return false;
    return true;
}

static void emu_block(void)
{
    for (int i = 0; i < emu_count; i++)
        emu_thread_of[i].state = EMU_RUNS, emu_thread_of[i].turn = 0;
    emu_next = 0;
    if (emu_begins)
        emu_begins();
    for (emu_stacks = 0; emu_next < emu_count; emu_stacks++)
        emu_start(emu_stacks);
    for (bool moved = true, skips = false; moved || skips;) {
        skips = emu_skips && moved;
        moved = false;
        const int block = (int)blockDim.x;
        bool barrier = false;
        for (int w = 0; w < emu_count; w += 32) {
            int end = w + 32 < emu_count ? w + 32 : emu_count;
            if (w % block == 0)
                barrier = emu_all(w, w + block, EMU_BLOCK);
            bool warp = emu_all(w, end, EMU_WARP);
            if (skips && !barrier && emu_skips((unsigned)w))
                continue;
            for (int i = w; i < end; i++) {
                emu_thread &t = emu_thread_of[i];
                if (t.state == EMU_UNTIL ? t.ready(t) : t.state != EMU_DONE && (barrier || warp)) {
                    moved = true;
                    t.state = EMU_RUNS;
                    if (!_setjmp(emu_home))
                        _longjmp(emu_thread_of[i].at, 1);
                }
            }
        }
        moved = moved || (!skips && emu_idle && emu_idle());
    }
    if (!emu_all(0, emu_count, EMU_DONE)) {
        fprintf(stderr, "emulated GPU: threads wait for others that never come\n");
        abort();
    }
    if (emu_ends)
        emu_ends();
}

// ---- teams: the functions of templates/divide_cuda.txt ----
#define OPTC_TEAM
enum { EMU_TEAM_BLOCKS = 8, EMU_TEAM_BYTES = 16 << 10 };
alignas(16) static char emu_team_room[EMU_TEAM_BLOCKS][EMU_TEAM_BYTES];
static inline char *optc_team_memory() { return emu_team_room[blockIdx.x]; }
static inline bool emu_team_came(const emu_thread &t)
{
    return *(const unsigned *)t.word[0] >= t.word[1];
}
static inline void optc_team_wait(unsigned *counter, unsigned arrivals)
{
    __syncthreads();
    if (threadIdx.x == 0) {
        emu_thread &t = emu_thread_of[emu_me];
        ++*counter;
        t.word[0] = (unsigned long long)counter;
        t.word[1] = arrivals;
        emu_wait_until(emu_team_came);
    }
    __syncthreads();
}
template <typename T> static inline T optc_team_read(const T *p) { return *p; }
