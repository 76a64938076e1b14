/* optc bench: what is asked for. */
#include "bench.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* "adamw+clip(1)" is a rule and its wrappers, unless a file is called that. */
static bool split_case(Case *c, const char *arg, const char *with)
{
    const char *slash = strrchr(arg, '/'), *plus = strchr(slash ? slash : arg, '+');
    if (access(arg, F_OK) == 0)
        plus = NULL;
    Buf w = {0};
    const char *part[] = {plus ? plus + 1 : "", with ? with : ""};
    for (int i = 0; i < 2; i++) {
        if (*part[i] && w.len)
            buf_puts(&w, ",");
        for (const char *s = part[i]; *s; s++)
            if (*s != ' ')
                buf_add(&w, s, 1);         /* labels are words of the peer's protocol */
    }
    c->spec = plus ? strndup(arg, (size_t)(plus - arg)) : strdup(arg);
    c->with = buf_take(&w);
    Buf label = {0};
    buf_puts(&label, c->spec ? c->spec : "");
    if (c->with && *c->with)
        buf_printf(&label, "+%s", c->with);
    c->label = buf_take(&label);
    return c->spec && c->with && c->label;
}

/* About square, and exactly n elements where a divisor near the root allows it. */
static Dims square(int64_t n)
{
    int64_t root = (int64_t)sqrt((double)n), rows = root;
    while (rows > root / 4 && rows > 1 && n % rows)
        rows--;
    if (n % rows)
        rows = root;
    return (Dims){2, {rows, n / rows}};
}

static bool shape_case(const Bench *b, Case *c)
{
    int kinds = b->shapes->n ? b->shapes->n : 1;
    if (b->tensors > 1000000 / kinds || (!b->shapes->n && b->size < b->tensors)) {
        cli_error("bench: %d tensors are too many here", b->tensors);
        return false;
    }
    c->ntensor = kinds * b->tensors;
    c->shape = calloc((size_t)c->ntensor, sizeof *c->shape);
    for (int i = 0; c->shape && i < c->ntensor; i++) {
        int64_t n = 1;
        c->shape[i] = b->shapes->n ? b->shapes->v[i % kinds] : c->matrix ? square(b->size / b->tensors) : (Dims){1, {b->size / b->tensors}};
        for (int k = 0; k < c->shape[i].rank; k++)
            n *= c->shape[i].dim[k];
        c->n += n;
        c->place += (n + 15) / 16 * 16;        /* every tensor begins at a cache line */
    }
    return c->shape != NULL;
}

/* What the timing needs to know of the plan; also the place where a bad spec is found, before anything large is made. */
static bool inspect_case(Bench *b, Case *c)
{
    Spec s;
    CompileOpts o = b->compile;
    o.with = c->with;
    bool ok = spec_open(&s, c->spec, &o, false, NULL);
    if (!ok) {
        spec_fail(&s);
    } else if (spec_entry(s.gen.plan, "step") < 0) {
        cli_error("%s has no entry 'step'", c->spec);
        ok = false;
    } else {
        const Plan *p = s.gen.plan;
        c->periodic = p->nperiod > 0;
        c->matrix = p->rule->has_matrix || p->rule->view;
        b->type = s.types.p;
        for (int i = 0; i < p->rule->nstate; i++)
            if (p->rule->state[i].dom == ELEM && (p->state_used[i] || p->state_used[p->rule->nstate + i]))
                c->state_bytes += type_info[p->mem[plan_mem_of_state(p, i)].type].bytes;
        ok = shape_case(b, c);
        c->state_bytes *= (double)c->n;
    }
    spec_close(&s);
    return ok;
}

static bool add_cases(Bench *b, char **arg, int n)
{
    static char *usual[] = {"adamw", "lamb", "adafactor", "adamw+clip(1)"};
    if (!n) {
        arg = usual;
        n = 4;
    }
    b->cases = calloc((size_t)n, sizeof *b->cases);
    if (!b->cases)
        return cli_error("out of memory"), false;
    for (int i = 0; i < n; i++) {
        b->ncase++;
        if (!strcmp(arg[i], "-"))
            return cli_error("bench: give the spec as a file: it is read more than once"), false;
        if (!split_case(&b->cases[i], arg[i], b->compile.with))
            return cli_error("out of memory"), false;
        if (!inspect_case(b, &b->cases[i]))
            return false;
    }
    return true;
}

int cmd_bench(const Command *self, int argc, char **argv)
{
    static DimsList shapes;
    const char *against = NULL;
    Bench b = {.compile = COMPILE_OPTS_INIT, .shapes = &shapes, .tensors = 1, .rounds = 11};
    const Opt opts[] = {
        {"size", 0, OPT_SIZE, &b.size, "N", "elements of all tensors together (default: 64M)"},
        {"shape", 0, OPT_SHAPES, &shapes, "RxC", "a tensor of this shape in place of --size; may be repeated"},
        {"tensors", 0, OPT_COUNT, &b.tensors, "N", "split --size into N equal tensors, or have N of each --shape"},
        {"rounds", 0, OPT_COUNT, &b.rounds, "N", "how often everything is timed in turn (default: 11)"},
        {"threads", 0, OPT_COUNT, &b.threads, "N", "threads (default: as OpenMP would)"},
        {"against", 0, OPT_TEXT, &against, "torch", "time PyTorch beside it; $OPTC_PYTHON names the interpreter"},
        {"json", 0, OPT_FLAG, &b.json, NULL, "print one JSON object"},
        COMPILE_OPTS(b.compile),
        {NULL, 0, OPT_FLAG, NULL, NULL, NULL}};
    int n, rc = cli_parse(self, opts, argc, argv, &n);
    if (rc != CLI_GO)
        return rc;
    if (b.size && shapes.n)
        return cli_misuse(self, "--size and --shape exclude each other");
    if (against && strcmp(against, "torch"))
        return cli_misuse(self, "--against knows torch, not '%s'", against);
    b.size = b.size ? b.size : (int64_t)64 << 20;
    b.progress = isatty(STDERR_FILENO);
    bool ok = add_cases(&b, argv, n) && bench_prepare(&b);
    if (ok && against)
        b.peer = peer_start(against, &b, &b.peer_name);
    for (int i = 0; ok && b.peer && i < b.ncase; i++)
        b.cases[i].peer = peer_open(b.peer, &b.cases[i], b.compile.options);
    ok = ok && bench_rounds(&b);
    if (ok)
        bench_report(&b);
    bench_free(&b);
    return ok ? CLI_OK : CLI_FAILED;
}
