/* LD_PRELOAD library: /proc reports that every thread always waits for a core, whatever the load of
 * the machine. CROWD=0: that no thread ever waits. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef FILE *Open(const char *, const char *);

/* A thread's schedstat: nanoseconds that it ran, nanoseconds that it waited, number of time
 * slices. */
static FILE *told(void)
{
    struct timespec t;
    const char *crowd = getenv("CROWD");
    FILE *f = tmpfile();
    clock_gettime(CLOCK_MONOTONIC, &t);
    if (f && (fprintf(f, "0 %lld 1\n",
                      crowd && !strcmp(crowd, "0") ? 0 : t.tv_sec * 1000000000LL + t.tv_nsec) < 0 ||
              fseek(f, 0, SEEK_SET))) {
        fclose(f);
        return NULL;
    }
    return f;
}

FILE *fopen(const char *path, const char *mode)
{
    static const char name[] = "/schedstat";
    size_t n = strlen(path);
    Open *real = NULL;
    if (n >= sizeof name - 1 && !strcmp(path + n - (sizeof name - 1), name))
        return told();
    *(void **)&real = dlsym(RTLD_NEXT, "fopen");
    return real ? real(path, mode) : NULL;
}
