/* optc check: compiles specs, and prints a summary and warnings about probable mistakes. */
#include "tools/explain/explain.h"

#include <string.h>

static void warn_unread(const char *label, const Rule *r)
{
    for (int h = 0; h < r->nhyper; h++) {
        Buf b = {0};
        if (rule_unread(&b, r, h))
            cli_warning("%s: %s", label, cli_text(&b));
        buf_free(&b);
    }
}

static void summary(const Spec *s, const char *label, int width)
{
    const Plan *p = s->gen.plan;
    const Rule *r = p->rule;
    printf("%sok%s  ", cli_paint(PAINT_GOOD), cli_paint(PAINT_NONE));
    cli_cell(label, width);
    if (s->wrapper)
        printf("  %s around sgd:", s->wrapper);
    for (int e = 0; e < p->nentry; e++) {
        Buf b = {0};
        int most = 0;
        for (int m = 0; m < p->entry[e].nphase; m++)
            most = p->entry[e].phase[m].nstage > most ? p->entry[e].phase[m].nstage : most;
        spec_bytes_text(&b, p, e);
        printf("%s  %s %d stage%s, %s bytes per element", e ? ";" : "", p->entry[e].name, most,
               most == 1 ? "" : "s", cli_text(&b));
        buf_free(&b);
    }
    puts(r->nvariant > 1 ? " (vectors/matrices)" : "");
    for (int i = 0; i < r->ninput; i++)
        printf("    note: the caller sets the input '%s' (one value per %s)\n", r->input[i].name,
               dom_info[r->input[i].dom].name);
    spec_note(s);
    for (int i = 0; i < r->noption; i++) {
        const char *dot = strrchr(r->option[i].name, '.'), *value = r->option[i].value;
        bool taken = !strcmp(value, "true");
        if (dot && !strcmp(dot, ".apart") && (taken || !strcmp(value, "false")))
            printf("    note: %.*s %s\n", (int)(dot - r->option[i].name), r->option[i].name,
                   taken ? "takes the step apart: it sees the step, lr and decay"
                         : "sees the change of p alone, not the step, lr and decay");
    }
}

/* Warnings of a spec that compiles, and the members of its facts; otherwise the reason. */
static void check_json(JsonText *t, const Spec *s, const char *label, bool ok)
{
    json_object(t, NULL, true);
    json_string(t, "spec", label);
    json_bool(t, "ok", ok);
    if (ok) {
        RuleFacts f = facts_read(s);
        facts_json(t, &f);
    } else {
        json_string(t, "error", s->gen.diag.text ? s->gen.diag.text : "out of memory");
    }
    json_end(t);
}

int cmd_check(const Command *self, int argc, char **argv)
{
    CompileOpts c = COMPILE_OPTS_INIT;
    bool json = false;
    const Opt opts[] = {{"json", 0, OPT_FLAG, &json, NULL, "print one JSON list"},
                        COMPILE_OPTS(c),
                        {NULL, 0, OPT_FLAG, NULL, NULL, NULL}};
    int n, width = 0, rc = cli_parse(self, opts, argc, argv, &n);
    if (rc != CLI_GO)
        return rc;
    if (!n)
        return cli_one_spec(self, n);
    for (int i = 0; i < n; i++)
        width = cli_width(argv[i]) > width ? cli_width(argv[i]) : width;
    bool is_ir = false;
    Buf text = {0};
    JsonText t = {.b = &text};
    if (json)
        json_list(&t, NULL, true);
    rc = CLI_OK;
    for (int i = 0; i < n; i++) {
        Spec s;
        bool ok = spec_open(&s, argv[i], &c, true, NULL);
        if (json) {
            check_json(&t, &s, argv[i], ok);
            rc = ok ? rc : CLI_FAILED;
        } else if (ok) {
            summary(&s, argv[i], width);
            spec_warnings(&s);
            warn_unread(argv[i], s.gen.rule);
            is_ir = s.is_ir;
        } else {
            rc = spec_fail(&s);
        }
        spec_close(&s);
    }
    if (json) {
        json_end(&t);
        json_print(&t);
        return rc;
    }
    /* Only for a spec of the user, which is probably being written; IR text cannot be tried. */
    if (rc == CLI_OK && n == 1 && !is_ir && (strchr(argv[0], '/') || strstr(argv[0], ".lua")))
        cli_print("%snext: optc try %s steps it on small tensors%s\n", cli_paint(PAINT_DIM),
                  argv[0], cli_paint(PAINT_NONE));
    return rc;
}
