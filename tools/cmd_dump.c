/* optc dump: the rule as text after a pass. */
#include "tools/tools.h"

#include <string.h>

static const char *last_rule_pass(void)
{
    const char *const *v = gen_passes();
    int n = 0;
    while (v[n + 1] && strcmp(v[n + 1], "plan"))
        n++;
    return v[n];
}

static int check_pass(const Command *self, const char *pass)
{
    const char *names[32];
    int n = 0;
    for (const char *const *v = gen_passes(); *v && n < 30; v++)
        names[n++] = *v;
    names[n++] = "all";
    names[n] = NULL;
    for (int i = 0; i < n; i++)
        if (!strcmp(names[i], pass))
            return CLI_GO;
    return cli_unknown(self, "pass", pass, names);
}

int cmd_dump(const Command *self, int argc, char **argv)
{
    const char *pass = NULL, *out = "-";
    bool time = false;
    CompileOpts c = COMPILE_OPTS_INIT;
    const Opt opts[] = {
        {"pass", 'p', OPT_TEXT, &pass, "NAME", "trace, master, fold, calls, storage, plan or all (default: storage)"},
        {"time", 0, OPT_FLAG, &time, NULL, "print the time of each pass; without --pass only that"},
        {"output", 'o', OPT_TEXT, &out, "FILE", "the file to write (default: standard output)"},
        COMPILE_OPTS(c),
        {NULL, 0, OPT_FLAG, NULL, NULL, NULL}};
    int n, rc = cli_parse(self, opts, argc, argv, &n);
    if (rc != CLI_GO || (pass && (rc = check_pass(self, pass)) != CLI_GO))
        return rc;
    if (n != 1)
        return cli_one_spec(self, n);
    Spec s;
    Buf text = {0};
    SpecDump dump = {pass || time ? pass : last_rule_pass(), &text, time};
    if (!spec_open(&s, argv[0], &c, false, &dump))
        rc = spec_fail(&s);
    else if (text.oom)
        rc = cli_fail("out of memory");
    else
        rc = cli_write_file(out, cli_text(&text)) ? CLI_OK : CLI_FAILED;
    buf_free(&text);
    spec_close(&s);
    return rc;
}
