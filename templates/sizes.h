#define OPTC_CHUNK 256          /* values computed at a time before they are folded: fits the first-level cache */

OPTC_FN long long optc_up(long long a, long long b) { return (a + b - 1) / b; }

OPTC_FN int optc_least(long long a, int b) { return a < b ? (int)a : b; }

/* Asks for the chunk after the next while this one is worked on: passes that fold read in bursts, and the hardware's own prefetcher stops at every
 * page. An address past the end does no harm. */
OPTC_FN void optc_fetch(const void *p, int size)
{
    for (int i = 0; i < OPTC_CHUNK * size; i += 64)
        __builtin_prefetch((const char *)p + i);
}
