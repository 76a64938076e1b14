/* optc doctor: prints the page of optc_doctor. */
#include "tools/tools.h"

#include "optc.h"

#include <stdlib.h>

int cmd_doctor(const Command *self, int argc, char **argv)
{
    int n,
        rc = cli_parse(self, (const Opt[]){{NULL, 0, OPT_FLAG, NULL, NULL, NULL}}, argc, argv, &n);
    if (rc != CLI_GO)
        return rc;
    if (n)
        return cli_misuse(self, "it takes no arguments");
    char *text = optc_doctor(NULL);
    if (!text)
        return cli_fail("out of memory");
    fputs(text, stdout);
    free(text);
    return CLI_OK;
}
