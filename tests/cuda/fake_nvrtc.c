/* A libnvrtc for tests: refuses every program, and its log is the list of options. FAKE_NVRTC: its
 * version (such as "12.9"; default 13.0). FAKE_CODE: every program compiles, to the first bytes of
 * a cubin: for tests of what is found where, on fake_driver.c, which loads them; but not, before
 * 12.3, those that call functions which NVRTC 12.2 lacks. */
#include "runtime/library/compile/nvrtc.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPORTED __attribute__((visibility("default")))

struct _nvrtcProgram { char given[1000]; bool newer; };

EXPORTED int nvrtcVersion(int *major, int *minor)
{
    const char *v = getenv("FAKE_NVRTC");
    return sscanf(v ? v : "13.0", "%d.%d", major, minor) != 2;
}

EXPORTED int nvrtcGetNumSupportedArchs(int *n) { return *n = 2, 0; }
EXPORTED int nvrtcGetSupportedArchs(int *a) { return a[0] = 80, a[1] = 90, 0; }

EXPORTED int nvrtcCreateProgram(nvrtcProgram *p, const char *source, const char *name, int n,
                                const char *const *headers, const char *const *names)
{
    (void)name, (void)headers, (void)names;
    if (!(*p = calloc(1, sizeof **p)) || n || !*source)
        return 1;
    (*p)->newer = strstr(source, "cudaGraphSetConditional") || strstr(source, "__dp2a_lo");
    return 0;
}

EXPORTED int nvrtcCompileProgram(nvrtcProgram p, int n, const char *const *option)
{
    for (int i = 0; i < n; i++)
        snprintf(p->given + strlen(p->given), sizeof p->given - strlen(p->given), "[%s]",
                 option[i]);
    int major = 13, minor = 0;
    (void)nvrtcVersion(&major, &minor);
    return getenv("FAKE_CODE") && (!p->newer || major > 12 || minor >= 3) ? 0 : 6;
}

EXPORTED int nvrtcGetProgramLogSize(nvrtcProgram p, size_t *n)
{
    return *n = strlen(p->given) + 1, 0;
}
EXPORTED int nvrtcGetProgramLog(nvrtcProgram p, char *out) { return strcpy(out, p->given), 0; }
static const char code[64] = "\177ELF";
EXPORTED int nvrtcGetCUBINSize(nvrtcProgram p, size_t *n) { return *n = sizeof code, p == NULL; }
EXPORTED int nvrtcGetCUBIN(nvrtcProgram p, char *out)
{
    return memcpy(out, code, sizeof code), p == NULL;
}
EXPORTED int nvrtcGetPTXSize(nvrtcProgram p, size_t *n) { return *n = 0, p != NULL; }
EXPORTED int nvrtcDestroyProgram(nvrtcProgram *p) { return free(*p), *p = NULL, 0; }
#ifndef FAKE_old                       /* FAKE_old: a version before 12.0 lacks this function */
EXPORTED int nvrtcGetPTX(nvrtcProgram p, char *out) { return *out = 0, p != NULL; }
#endif
