/* Barrier between the stages of a step. OpenMP's barrier spins for milliseconds before it yields
 * the core (libgomp's default); on a busy machine the thread that the others wait for may need that
 * core. This barrier spins for some microseconds, which is the usual wait after a balanced stage,
 * then sleeps. */
#include "runtime/core/cpu/cpu.h"

#include <limits.h>
#include <unistd.h>
#if defined(_OPENMP) && defined(__linux__)
#include <sys/syscall.h>
#endif

#ifdef _OPENMP
/* FUTEX_WAIT_PRIVATE and FUTEX_WAKE_PRIVATE of linux/futex.h; some systems have the calls without
 * that header */
enum { WAIT_PRIVATE = 128, WAKE_PRIVATE = 129 };

static void rest(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("isb");
#endif
}

/* Sleeps until the last thread has started a new generation. */
static void doze(Barrier *t, unsigned generation)
{
    __atomic_add_fetch(&t->asleep, 1, __ATOMIC_SEQ_CST);
    while (__atomic_load_n(&t->generation, __ATOMIC_SEQ_CST) == generation)
#ifdef __linux__
        (void)syscall(SYS_futex, &t->generation, WAIT_PRIVATE, generation, NULL, NULL, 0);
#else
        (void)usleep(50);
#endif
    __atomic_sub_fetch(&t->asleep, 1, __ATOMIC_SEQ_CST);
}

CORE void barrier_wait(Barrier *t, int threads)
{
    enum { SPINS = 1000 };
    unsigned generation = __atomic_load_n(&t->generation, __ATOMIC_ACQUIRE);
    if (__atomic_add_fetch(&t->arrived, 1, __ATOMIC_ACQ_REL) == threads) {
        /* no thread arrives before the new generation */
        __atomic_store_n(&t->arrived, 0, __ATOMIC_RELAXED);
        __atomic_add_fetch(&t->generation, 1, __ATOMIC_SEQ_CST);
#ifdef __linux__
        if (__atomic_load_n(&t->asleep, __ATOMIC_SEQ_CST))
            (void)syscall(SYS_futex, &t->generation, WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
#endif
        return;
    }
    for (int i = 0; i < SPINS; i++, rest())
        if (__atomic_load_n(&t->generation, __ATOMIC_ACQUIRE) != generation)
            return;
    doze(t, generation);
}
#endif
