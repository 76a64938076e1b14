/* Commands that run long and write a report: its command line, tests of its files, interruption. */
#include "tools/tools.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

const char *cli_command_text(Arena *a, const Command *self, int argc, char **argv)
{
    Buf b = {.arena = a};
    buf_printf(&b, "optc %s", self->name);
    for (int i = 0; i < argc; i++) {
        buf_puts(&b, " ");
        buf_shell(&b, argv[i]);
    }
    return buf_text(&b);
}

bool cli_writable(const Command *self, const char *path)
{
    if (!path || !strcmp(path, "-"))
        return true;
    struct stat s;
    /* also a link whose target does not exist yet */
    bool there = lstat(path, &s) == 0;
    FILE *f = fopen(path, "ab");
    if (!f)
        return cli_error("%s: cannot write %s: %s", self->name, path, strerror(errno)), false;
    fclose(f);
    if (!there)
        unlink(path);
    return true;
}

static volatile sig_atomic_t *stopped;

static void stop(int signal)
{
    (void)signal;
    *stopped = 1;
}

void cli_catch_interrupt(volatile sig_atomic_t *flag)
{
    struct sigaction a = {.sa_handler = stop, .sa_flags = (int)SA_RESETHAND};
    stopped = flag;
    sigemptyset(&a.sa_mask);
    sigaction(SIGINT, &a, NULL);
    sigaction(SIGTERM, &a, NULL);
}
