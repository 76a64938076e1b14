/* NVTX ranges around the runs of a profile, for Nsight Systems. The library is optional. */
#include "runtime/library/profile/profile.h"

#include <dlfcn.h>
#include <string.h>

static int (*push_range)(const char *);
static int (*pop_range)(void);

/* Called with the profile's lock, while no run is recorded. The library is never unloaded: tools
 * patch it. */
void nvtx_open(void)
{
    static const char *const names[] = {"libnvToolsExt.so.1", "libnvToolsExt.so",
                                        "libnvtx3interop.so"};
    for (size_t i = 0; i < sizeof names / sizeof *names && !push_range; i++) {
        void *h = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
        void *push = h ? dlsym(h, "nvtxRangePushA") : NULL,
             *pop = h ? dlsym(h, "nvtxRangePop") : NULL;
        if (push && pop) {
            memcpy(&pop_range, &pop, sizeof pop);
            memcpy(&push_range, &push, sizeof push);
        } else if (h) {
            dlclose(h);
        }
    }
}

void nvtx_push(const char *name)
{
    if (push_range)
        push_range(name);
}

void nvtx_pop(void)
{
    if (pop_range)
        pop_range();
}
