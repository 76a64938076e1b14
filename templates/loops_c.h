#define OPTC_CHUNK 256          /* values of a row per prefetch */

#define OPTC_AHEAD 512          /* prefetch distance, in values */

//@ = OPTC_EACH
/* Placed before a loop over elements. No iteration reads what another writes: optc_bind refuses
 * overlapping arrays. Without this hint compilers check every pair of pointers for overlap, and do
 * not vectorise loops with many arrays. */
#ifdef __clang__
#define OPTC_EACH _Pragma("clang loop vectorize(assume_safety)")
#else
#define OPTC_EACH _Pragma("GCC ivdep")
#endif

OPTC_FN long long optc_up(long long a, long long b) { return (a + b - 1) / b; }

OPTC_FN int optc_least(long long a, int b) { return a < b ? (int)a : b; }

/* Prefetches the values of the next iterations. On x86 the hardware prefetcher stops at page
 * boundaries. An address past the end is harmless. Not used on other processors: a Neoverse N1 read
 * at half its speed with it. */
OPTC_FN void optc_fetch(const void *p, int size)
{
#ifdef __x86_64__
    for (int i = 0; i < size; i += 64)
        __builtin_prefetch((const char *)p + i);
#else
    (void)p, (void)size;
#endif
}
