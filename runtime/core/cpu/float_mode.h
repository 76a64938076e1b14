/* Sets round-to-nearest with denormals, and restores the caller's mode afterwards: a program that
 * flushes denormals or rounds differently must not change result bits. Pasted into packages;
 * runtime/library/compile/cpu_isa.c includes it. */
#if defined(__x86_64__)
static inline unsigned long long float_mode_set(void)
{
    unsigned was = __builtin_ia32_stmxcsr();
    __builtin_ia32_ldmxcsr(0x1f80);      /* a process's initial mode: all exceptions masked,
                                          * nearest, no flushing */
    return was;
}
static inline void float_mode_reset(unsigned long long was)
{
    __builtin_ia32_ldmxcsr((unsigned)was);
}
#elif defined(__aarch64__)
static inline unsigned long long float_mode_set(void)
{
    unsigned long long was;
    __asm__ volatile("mrs %0, fpcr" : "=r"(was));
    __asm__ volatile("msr fpcr, %0" : : "r"(0ull));
    return was;
}
static inline void float_mode_reset(unsigned long long was)
{
    __asm__ volatile("msr fpcr, %0" : : "r"(was));
}
#else
static inline unsigned long long float_mode_set(void) { return 0; }
static inline void float_mode_reset(unsigned long long was) { (void)was; }
#endif
