/* An OpenBLAS without products: it chooses its kernels when it is loaded, as the real one does.
 *   FAKE_CORE      the core type that it takes for this CPU (default: that of the oldest CPU)
 *   FAKE_BUILD     the text about its build (default: with DYNAMIC_ARCH)
 *   FAKE_PARALLEL  0: sequential, 1 (default): with threads of its own
 *   FAKE_NEWEST    a core type that it does not know: asked for that, it takes FAKE_CORE
 *   FAKE_STAYS     if set, dlclose does not unload it
 *   FAKE_SLOW      if set, it tells this descriptor that it is being loaded, and takes a while
 *   FAKE_LOADS     if set, the number of times that the process has loaded it, in place of another
 *                  thread that sets a variable meanwhile */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#if defined(__aarch64__)
#define OLDEST "armv8"
#else
#define OLDEST "Prescott"
#endif

static char core[32];

static const char *text_of(const char *name, const char *without)
{
    const char *value = getenv(name);
    return value ? value : without;
}

__attribute__((constructor)) static void choose(void)
{
    const char *own = text_of("FAKE_CORE", OLDEST), *asked = text_of("OPENBLAS_CORETYPE", own);
    char loads[2] = {(char)(*text_of("FAKE_LOADS", "0") + 1), 0};
    strncpy(core, strcmp(asked, text_of("FAKE_NEWEST", "")) ? asked : own, sizeof core - 1);
    Dl_info self;
    if (getenv("FAKE_STAYS") && dladdr(core, &self))
        dlopen(self.dli_fname, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE);
    if (getenv("FAKE_SLOW") && write(atoi(getenv("FAKE_SLOW")), "", 1) == 1)
        usleep(100000);
    if (getenv("FAKE_LOADS"))
        setenv("FAKE_LOADS", loads, 1);
}

char *openblas_get_corename(void) { return core; }
char *openblas_get_config(void)
{
    return (char *)text_of("FAKE_BUILD", "OpenBLAS 0.3.99 DYNAMIC_ARCH MAX_THREADS=64");
}
int openblas_get_parallel(void) { return atoi(text_of("FAKE_PARALLEL", "1")); }
void openblas_set_num_threads(int n) { (void)n; }
void cblas_sgemm(void) { abort(); }
void cblas_dgemm(void) { abort(); }
void cblas_ssyrk(void) { abort(); }
void cblas_dsyrk(void) { abort(); }
