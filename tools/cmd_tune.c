/* optc tune: dispatches to its actions; each is a command with its own help page. */
#include "tools/tune/tune.h"

#include <string.h>

static const Command actions[] = {
    {"tune export", "", "results as text",
     "Writes your own results as text that 'optc tune merge' takes in elsewhere; the same results "
     "give the same bytes.",
     "optc tune export > results.txt\noptc tune export --all --device H200 -o results.txt",
     tune_export},
    {"tune merge", "FILE…", "take results in",
     "Takes the results of files ('-': standard input) into your own, entry by entry: of two for "
     "one stage, size and "
     "device the one with the\n"
     "greater gain over the model stays, then the one of more samples. All files are read and "
     "checked first: one that "
     "is wrong changes nothing.",
     "optc tune merge results.txt\noptc tune merge --dry-run a.txt b.txt\n"
     "optc tune merge --into all.txt a.txt",
     tune_merge},
    {"tune show", "[FILE]", "results as a table",
     "Shows the results that are used here, or those of FILE.",
     "optc tune show\noptc tune show --stage 'adamw step_1'\n"
     "optc tune show --stage 0123abcd --device H200\noptc tune show --json results.txt",
     tune_show},
    {NULL, NULL, NULL, NULL, NULL, NULL}};

int cmd_tune(const Command *self, int argc, char **argv)
{
    for (const Command *c = actions; argc && c->name; c++)
        if (!strcmp(argv[0], c->name + strlen("tune ")))
            return c->run(c, argc - 1, argv + 1);
    return tune_run(self, argc, argv);
}
