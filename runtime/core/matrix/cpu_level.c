/* The vector level of this CPU: 0 is the baseline of its architecture. The highest level that the
 * CPU and the system support, never the CPU's model: a hypervisor may mask AVX-512. */
#include "runtime/core/matrix/cpu_calls.h"

#if defined(__x86_64__)
CORE int cpu_level(void)
{
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") ||
        !__builtin_cpu_supports("bmi") || !__builtin_cpu_supports("bmi2"))
        return 0;
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                   __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
                   __builtin_cpu_supports("avx512vl")
               ? 2
               : 1;
}
#elif defined(__aarch64__)
#include <sys/auxv.h>
#ifndef HWCAP_SVE
#define HWCAP_SVE (1 << 22)
#endif
CORE int cpu_level(void) { return getauxval(AT_HWCAP) & HWCAP_SVE ? 1 : 0; }
#else
CORE int cpu_level(void) { return 0; }
#endif
