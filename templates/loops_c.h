#define OPTC_CHUNK 256          /* values of a row that are worked on before the next are asked for */

#define OPTC_AHEAD 512          /* how far in front, in values */

//@ = OPTC_EACH
/* Ahead of a loop over elements: no turn reads what another writes, for the arrays of a stage lie apart (bind refuses others). Not told so, compilers
 * compare every pair of them before the loop, and give up vectorising where there are many. */
#ifdef __clang__
#define OPTC_EACH _Pragma("clang loop vectorize(assume_safety)")
#else
#define OPTC_EACH _Pragma("GCC ivdep")
#endif

OPTC_FN long long optc_up(long long a, long long b) { return (a + b - 1) / b; }

OPTC_FN int optc_least(long long a, int b) { return a < b ? (int)a : b; }

/* Asks for values that are worked on soon: on x86 the hardware's own prefetcher stops at every page. An address past the end does no harm. Other
 * processors are left alone: a Neoverse N1 that is asked reads half as fast as one that is not. */
OPTC_FN void optc_fetch(const void *p, int size)
{
#ifdef __x86_64__
    for (int i = 0; i < size; i += 64)
        __builtin_prefetch((const char *)p + i);
#else
    (void)p, (void)size;
#endif
}
