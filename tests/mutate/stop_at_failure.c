/* Linked with --wrap: the first assertion that fails ends the test program. */
#include <stdio.h>
#include <unistd.h>

void __wrap__ck_assert_failed(const char *file, int line, const char *expr, const char *msg, ...);

void __wrap__ck_assert_failed(const char *file, int line, const char *expr, const char *msg, ...)
{
    (void)msg;
    fprintf(stderr, "\nstopped at %s:%d: %s\n", file, line, expr);
    _exit(1);
}
