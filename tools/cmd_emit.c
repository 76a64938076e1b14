/* optc emit: the generated source of a rule. */
#include "tools/tools.h"

#include <stdlib.h>
#include <string.h>

static int check_target(const Command *self, const char *target)
{
    for (const char *const *t = gen_targets; *t; t++)
        if (!strcmp(*t, target))
            return CLI_GO;
    Buf b = {0};
    cli_near("target", target, gen_targets, &b);
    buf_puts(&b, " (known:");
    for (const char *const *t = gen_targets; *t; t++)
        buf_printf(&b, " %s", *t);
    buf_puts(&b, ")");
    int rc = cli_misuse(self, "%s", cli_text(&b));
    buf_free(&b);
    return rc;
}

int cmd_emit(const Command *self, int argc, char **argv)
{
    const char *target = "c", *out = "-";
    CompileOpts c = COMPILE_OPTS_INIT;
    const Opt opts[] = {
        {"target", 't', OPT_TEXT, &target, "NAME", "c (default) or cuda"},
        {"output", 'o', OPT_TEXT, &out, "FILE", "where to write it (default: standard output)"},
        COMPILE_OPTS(c),
        {NULL, 0, OPT_FLAG, NULL, NULL, NULL}};
    int n, rc = cli_parse(self, opts, argc, argv, &n);
    if (rc != CLI_GO || (rc = check_target(self, target)) != CLI_GO)
        return rc;
    if (n != 1)
        return cli_misuse(self, n ? "several specs are given: it takes one" : "no spec is given: name a rule or a "
                                                                              "file");
    Spec s;
    char *text = NULL;
    c.gpu = !strcmp(target, "cuda");
    if (spec_open(&s, argv[0], &c, false, NULL))
        text = gen_emit(&s.gen, &(EmitOptions){.target = target}, &s.gen.diag);
    if (!text)
        rc = spec_fail(&s);
    else
        rc = cli_write_file(out, text) ? CLI_OK : CLI_FAILED;
    free(text);
    spec_close(&s);
    return rc;
}
