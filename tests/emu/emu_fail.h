/* Lets the n-th call of a library fail: EMU_FAIL="libcuda.so.1 17". emu_calls counts the calls. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int calls;
int emu_calls(void);
int emu_calls(void) { return calls; }
static bool told_to_fail(const char *library)
{
    const char *s = getenv("EMU_FAIL");
    size_t n = strlen(library);
    calls++;
    return s && !strncmp(s, library, n) && s[n] == ' ' && atoi(s + n) == calls;
}
