/* optc tune [SPEC…]: the search. */
#include "tune.h"

int tune_run(const Command *self, int argc, char **argv)
{
    int n, rc = cli_parse(self, (const Opt[]){{NULL, 0, OPT_FLAG, NULL, NULL, NULL}}, argc, argv, &n);
    return rc != CLI_GO ? rc : cli_fail("tune: measuring is not there yet; export, merge and show are");
}
