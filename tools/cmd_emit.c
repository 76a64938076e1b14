/* optc emit: the generated source of a rule. */
#include "tools/tools.h"

#include <stdlib.h>

static int pick_target(const Command *self, const char *name, const Target **out)
{
    enum { MOST = 8 };
    const char *names[MOST + 1] = {NULL};
    if ((*out = target_by_name(name)))
        return CLI_GO;
    for (int i = 0; gen_targets[i] && i < MOST; i++)
        names[i] = gen_targets[i]->name;
    return cli_unknown(self, "target", name, names);
}

int cmd_emit(const Command *self, int argc, char **argv)
{
    const char *target = target_c.name, *out = "-";
    CompileOpts c = COMPILE_OPTS_INIT;
    const Opt opts[] = {
        {"target", 't', OPT_TEXT, &target, "NAME", "c (default) or cuda"},
        {"output", 'o', OPT_TEXT, &out, "FILE", "the file to write (default: standard output)"},
        COMPILE_OPTS(c),
        {NULL, 0, OPT_FLAG, NULL, NULL, NULL}};
    int n, rc = cli_parse(self, opts, argc, argv, &n);
    if (rc != CLI_GO || (rc = pick_target(self, target, &c.target)) != CLI_GO)
        return rc;
    if (n != 1)
        return cli_one_spec(self, n);
    Spec s;
    char *text = NULL;
    if (spec_open(&s, argv[0], &c, false, NULL))
        text = gen_emit(&s.gen, &(EmitOptions){0}, &s.gen.diag);
    if (!text)
        rc = spec_fail(&s);
    else
        rc = cli_write_file(out, text) ? CLI_OK : CLI_FAILED;
    free(text);
    spec_close(&s);
    return rc;
}
