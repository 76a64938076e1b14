/* optc dump: the rule, its plan or its schedule as text. */
#include "tools/bench/bench.h"

#include <stdlib.h>
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
    for (const char *const *v = gen_passes(); *v && n < 29; v++)
        names[n++] = *v;
    names[n++] = "all";
    names[n++] = "schedule";
    names[n] = NULL;
    for (int i = 0; i < n; i++)
        if (!strcmp(names[i], pass))
            return CLI_GO;
    return cli_unknown(self, "pass", pass, names);
}

/* ---- schedules ---- */
typedef struct Placing { TensorOpts of; const char *of_rank; int rank; } Placing;

/* Without --work and --shape: two matrices and a vector. */
static const DimsList usual_shapes = {{{2, {512, 256}}, {2, {256, 1024}}, {1, {256}}}, 3};

static int dump_schedule(const Spec *s, const Placing *x, Buf *text)
{
    Dims *dims = NULL;
    SchedulePlan plan = {.binding = NULL};
    int n = 0, rc = CLI_FAILED;
    const DimsList *shapes = x->of.shapes.n ? &x->of.shapes : &usual_shapes;
    optc_tensor *t = work_tensors("dump", shapes, x->of.work, &dims, &n);
    const Program *p = t ? program_make(text->arena, s->gen.plan, NULL) : NULL;
    const bool gpu = s->asked.target == &target_cuda;
    const ScheduleOf of = {t, n, x->rank, x->of.ranks, x->of.workspace, gpu, gpu};
    if (t && schedule_plan(p, &of, false, &plan) == OPTC_OK) {
        schedule_print(text, plan.binding);
        rc = CLI_OK;
    } else if (t) {
        rc = cli_fail("dump: %s", optc_message());
    }
    schedule_plan_free(&plan);
    free(t);
    free(dims);
    return rc;
}

static int check_placing(const Command *self, const char *pass, Placing *x)
{
    TensorOpts *of = &x->of;
    char *end = NULL;
    const long rank = x->of_rank ? strtol(x->of_rank, &end, 10) : 0;
    if ((!pass || strcmp(pass, "schedule")) &&
        (of->work || of->shapes.n || of->workspace || of->ranks > 1 || x->of_rank || of->device))
        return cli_misuse(
            self,
            "--work, --shape, --workspace, --ranks, --rank and --device need --pass schedule");
    of->ranks = of->ranks ? of->ranks : 1;
    if (of->work && of->shapes.n)
        return cli_misuse(self, "--work and --shape exclude each other");
    if (end && (!*x->of_rank || *end || rank < 0 || rank >= of->ranks))
        return cli_misuse(self, "--rank '%s' must be a number from 0 to %d", x->of_rank,
                          of->ranks - 1);
    x->rank = (int)rank;
    return CLI_GO;
}

int cmd_dump(const Command *self, int argc, char **argv)
{
    const char *pass = NULL, *out = "-";
    bool time = false;
    CompileOpts c = COMPILE_OPTS_INIT;
    Placing x = {.rank = 0};
    const Opt opts[] = {
        {"pass", 'p', OPT_TEXT, &pass, "NAME",
         "trace, master, fold, calls, storage, plan, all or schedule (default: storage)"},
        {"time", 0, OPT_FLAG, &time, NULL, "print the time of each pass; without --pass only that"},
        {"output", 'o', OPT_TEXT, &out, "FILE", "the file to write (default: standard output)"},
        TENSOR_OPTS(x.of),
        {"rank", 0, OPT_TEXT, &x.of_rank, "K", "of rank K, from 0 (default: 0)"},
        COMPILE_OPTS(c),
        {NULL, 0, OPT_FLAG, NULL, NULL, NULL}};
    int n, rc = cli_parse(self, opts, argc, argv, &n);
    if (rc != CLI_GO || (pass && (rc = check_pass(self, pass)) != CLI_GO) ||
        (rc = check_placing(self, pass, &x)) != CLI_GO)
        return rc;
    if (n != 1)
        return cli_one_spec(self, n);
    const char *const devices[] = {"cpu", "cuda", NULL};
    if (x.of.device && strcmp(x.of.device, "cpu") && strcmp(x.of.device, "cuda"))
        return cli_unknown(self, "device", x.of.device, devices);
    bool schedule = pass && !strcmp(pass, "schedule");
    c.target = x.of.device && !strcmp(x.of.device, "cuda") ? &target_cuda : NULL;
    Spec s;
    Buf text = {0};
    SpecDump dump = {pass || time ? pass : last_rule_pass(), &text, time};
    if (!spec_open(&s, argv[0], &c, false, schedule ? NULL : &dump))
        rc = spec_fail(&s);
    else if (schedule) {
        text.arena = s.gen.plan->arena;
        rc = dump_schedule(&s, &x, &text);
        rc = rc == CLI_OK && !cli_write_file(out, buf_text(&text)) ? CLI_FAILED : rc;
    } else if (text.oom)
        rc = cli_fail("out of memory");
    else
        rc = cli_write_file(out, cli_text(&text)) ? CLI_OK : CLI_FAILED;
    if (!schedule)
        buf_free(&text);
    spec_close(&s);
    return rc;
}
