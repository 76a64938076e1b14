/* Tuning by a program's own steps: replaces this process by the program. $OPTC_TUNE_LIVE tells the
 * library how much time may be lost. */
#include "tools/tune/tune.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int tune_live(const Command *self, const char *slowdown, const char *into, char **argv, int n)
{
    char *end;
    double v = strtod(slowdown, &end);
    v = *end == '%' ? v / 100 : v;
    if (end == slowdown || (*end && strcmp(end, "%")) || !(v > 0 && v <= 1))
        return cli_misuse(self, "--slowdown must be a share such as 5%%, not '%s'", slowdown);
    if (!n)
        return cli_misuse(self, "--live takes the program to run: optc tune --live -- ./train …");
    char bound[32];
    snprintf(bound, sizeof bound, "%g", v);
    setenv("OPTC_TUNE_LIVE", bound, 1);
    if (into)
        setenv("OPTC_TUNE", into, 1);
    argv[n] = NULL;
    execvp(argv[0], argv);
    return cli_fail("tune: %s cannot be started: %s", argv[0], strerror(errno));
}
