/* optc bench: options, cases with their tensors, and the order of runs. bench/ has the
 * measurements. */
#include "tools/bench/bench.h"
#include "tools/catalogue/catalogue.h"
#include "tools/page/page.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Splits SPEC+WRAPPERS. Labels are words of the peer's protocol, so they contain no blanks. */
static bool split_case(Case *c, const char *arg, const char *with)
{
    jmp_buf out;
    Arena a = {.out = &out};
    if (setjmp(out)) {
        arena_free(&a);
        return false;
    }
    const char *all, *spec = spec_split(&a, arg, with, &all);
    c->spec = strdup(spec);
    c->with = strdup(all);
    arena_free(&a);
    Buf label = {0};
    buf_puts(&label, c->spec ? c->spec : "");
    if (c->with && *c->with)
        buf_puts(&label, "+");
    for (const char *s = c->with; s && *s; s++)
        if (*s != ' ')
            buf_add(&label, s, 1);
    c->label = buf_take(&label);
    return c->spec && c->with && c->label;
}

/* An approximately square shape, with exactly n elements if n has a divisor near its root. */
static Dims square(int64_t n)
{
    int64_t root = (int64_t)sqrt((double)n), rows = root;
    while (rows > root / 4 && rows > 1 && n % rows)
        rows--;
    if (n % rows)
        rows = root;
    return (Dims){2, {rows, n / rows}};
}

static bool place_case(Case *c)
{
    for (int i = 0; i < c->ntensor; i++) {
        int64_t n = 1;
        for (int k = 0; k < c->shape[i].rank; k++)
            n *= c->shape[i].dim[k];
        c->n += n;
        /* every tensor starts at a cache line, as from an allocator */
        c->place += (n + 63) / 64 * 64;
    }
    return true;
}

static bool shape_work(const Bench *b, Case *c, const Work *w)
{
    c->work = work_name(w);
    c->ntensor = work_shapes(w, NULL);
    c->shape = calloc((size_t)c->ntensor, sizeof *c->shape);
    if (!c->shape)
        return cli_error("out of memory"), false;
    work_shapes(w, c->shape);
    if (b->size && !work_scale(c->shape, c->ntensor, b->size))
        return cli_error("bench: %s has %d tensors: --size must be that or more", c->work,
                         c->ntensor),
               false;
    return place_case(c);
}

/* The default size: large enough to show the rate of memory. Rules with products get matrices of
 * the sizes that models have, because their work grows faster: seconds, not minutes. */
static int64_t usual_size(const Bench *b, const Case *c, int *tensors)
{
    bool gpu = b->device.ops->async;
    if (!c->calls)
        return (int64_t)(gpu ? 256 : 64) << 20;
    *tensors = *tensors > 1 ? *tensors : gpu ? 64 : 4;
    return (int64_t)(gpu ? 256 : 1) << 20;
}

static bool shape_case(const Bench *b, Case *c)
{
    const Work *w = c->bar ? work_find(c->bar->work) : b->work;
    if (w)
        return shape_work(b, c, w);
    int kinds = b->shapes->n ? b->shapes->n : 1, tensors = b->tensors;
    int64_t size = b->size || b->shapes->n ? b->size : usual_size(b, c, &tensors);
    if (tensors > 1000000 / kinds || (!b->shapes->n && size < tensors)) {
        cli_error("bench: %d tensors do not fit; use fewer", tensors);
        return false;
    }
    c->ntensor = kinds * tensors;
    c->shape = calloc((size_t)c->ntensor, sizeof *c->shape);
    for (int i = 0; c->shape && i < c->ntensor; i++)
        c->shape[i] = b->shapes->n ? b->shapes->v[i % kinds]
                      : c->matrix  ? square(size / tensors)
                                   : (Dims){1, {size / tensors}};
    return c->shape ? place_case(c) : (cli_error("out of memory"), false);
}

/* Names the work that dominates a step: "products" of matrices, "reductions" or "elementwise"
 * passes. */
static const char *plan_kind(const Plan *p)
{
    const PlanEntry *e = &p->entry[spec_entry(p, "step")];
    for (const Phase *ph = e->phase; ph < e->phase + e->nphase; ph++)
        for (const Stage *st = ph->stage; st < ph->stage + ph->nstage; st++)
            if (st->nfold || st->nfin)
                return plan_calls(p) ? "products" : "reductions";
    return plan_calls(p) ? "products" : "elementwise";
}

/* Reads from the plan what the timing needs. A bad spec is reported here, before anything large is
 * allocated. */
static bool inspect_case(Bench *b, Case *c)
{
    Spec s;
    CompileOpts o = b->compile;
    o.with = c->with;
    o.target = engine_target(b->engine);
    bool ok = spec_open(&s, c->spec, &o, false, NULL);
    if (!ok) {
        spec_fail(&s);
    } else if (spec_entry(s.gen.plan, "step") < 0) {
        cli_error("bench: %s has no entry 'step', which is what is timed", c->spec);
        ok = false;
    } else {
        const Plan *p = s.gen.plan;
        c->period = period_of(p);
        c->lap = calloc((size_t)c->period, sizeof *c->lap);
        /* a graph replays one and the same step */
        c->graph = c->graph && c->period == 1;
        c->matrix = p->rule->nvariant > 1 || rule_view(p->rule);
        c->calls = plan_calls(p);
        c->kind = plan_kind(p);
        c->precision = p->precision;
        b->type = s.types.p;
        b->grad = s.types.g;
        for (int i = 0; i < p->rule->nstate; i++)
            if (p->rule->state[i].dom == ELEM &&
                (p->state_used[i] || p->state_used[p->rule->nstate + i]))
                c->state_bytes += type_info[p->mem[plan_mem_of_state(p, i)].type].bytes;
        ok = c->lap ? shape_case(b, c) && (!b->out || bench_plan_ops(c, p))
                    : (cli_error("out of memory"), false);
        c->state_bytes *= (double)c->n;
    }
    spec_close(&s);
    return ok;
}

static bool add_case(Bench *b, const char *arg, const Bar *bar)
{
    Case *c = &b->cases[b->ncase++];
    c->bar = bar ? bar : b->work ? bars_find(b->bars, work_name(b->work), arg) : NULL;
    c->graph = b->device.ops->async && (!c->bar || c->bar->graph > 0 || b->asked.graph > 0);
    if (!strcmp(arg, "-"))
        return cli_error("bench: cannot read the spec from standard input: it is read more than "
                         "once; name a file"),
               false;
    if (!split_case(c, arg, b->compile.with))
        return cli_error("out of memory"), false;
    return inspect_case(b, c);
}

static int by_kind(const void *x, const void *y)
{
    const Case *a = x, *b = y;
    int d = a->calls - b->calls;               /* products last: they take longest */
    d = d ? d : strcmp(a->kind, b->kind);
    return d ? d : strcmp(a->label, b->label);
}

/* --all: every rule of the library; rules that these options do not fit are named and left out. A
 * row of its own in the table of bars goes before that of its kind. */
static bool add_library(Bench *b)
{
    b->cases = calloc((size_t)optc_library_size(), sizeof *b->cases);
    if (!b->cases)
        return cli_error("out of memory"), false;
    int left_out = 0;
    for (int i = 0; i < optc_library_size(); i++) {
        if (catalogue_wrapper(optc_library_name(i)))
            continue;
        if (!add_case(b, optc_library_name(i), NULL)) {
            bench_drop_case(b);
            fprintf(stderr, "bench: %s is left out, for the reason above\n", optc_library_name(i));
            left_out++;
            continue;
        }
        Case *c = &b->cases[b->ncase - 1];
        char kind[32];
        snprintf(kind, sizeof kind, "*%s", c->kind);
        if (!c->bar && b->work)
            c->bar = bars_find(b->bars, work_name(b->work), kind);
    }
    qsort(b->cases, (size_t)b->ncase, sizeof *b->cases, by_kind);
    if (left_out)
        fprintf(stderr, "bench: %d rules are left out, %d are timed\n", left_out, b->ncase);
    return b->ncase > 0;
}

static bool add_cases(Bench *b, char **arg, int n)
{
    static char *usual[] = {"adamw", "lamb", "adafactor", "adamw+clip(1)"};
    bool ok = true;
    if (b->all) {
        ok = add_library(b);
        n = 0;
    } else if (!n) {
        arg = usual;
        n = 4;
    }
    const Bar *bars = b->bars->v, *end = b->suite ? bars + b->bars->n : bars;
    if (b->suite && bars == end)
        return cli_error("bench: --suite runs the rows of a table of bars, and "
                         "tests/bench/bars.txt was not found: run "
                         "optc from its source tree, or name a table with --bars"),
               false;
    b->cases = b->all ? b->cases : calloc((size_t)(b->suite ? end - bars : n), sizeof *b->cases);
    if (!b->cases)
        return cli_error("out of memory"), false;
    for (const Bar *x = bars; ok && x < end; x++)
        ok = !(x->suite > 0) || add_case(b, x->rule, x);
    for (int i = 0; ok && !b->suite && i < n; i++)
        ok = add_case(b, arg[i], NULL);
    bool periods = false;
    for (int i = 0; i < b->ncase; i++)
        periods = periods || b->cases[i].period > 1;
    b->rounds = b->rounds ? b->rounds : periods ? 3 : 11;      /* a period may be a hundred steps */
    return ok;
}

/* Bars of the table apply only to complete workloads, in f32, on a GPU. Rows of the suite also need
 * the default options and workspace; other rows allow any, because the peer has them too. Bars of
 * --bar always apply. */
static void choose_bars(Bench *b)
{
    const CompileOpts *o = &b->compile;
    bool plain = b->device.ops->async && !bench_rivals(b) && !b->size && o->p < 0 && o->g < 0 &&
                 o->state < 0 && !o->types && !o->product && !o->with && !o->path,
         usual = !b->workspace && !o->options;
    for (int i = 0; i < b->ncase; i++) {
        Case *c = &b->cases[i];
        if (c->bar && (!plain || (!usual && c->bar->suite > 0)))
            c->bar = NULL;
        if (!b->given)
            continue;
        c->own = c->bar ? *c->bar : (Bar){0};
        bars_over(&c->own, &b->asked);
        c->bar = &c->own;
        c->asked = &b->asked;
    }
}

static bool write_page(const Bench *b, bool quiet)
{
    Buf page = {0};
    (page_is_svg(b->out) ? bench_picture : bench_page)(b, &page);
    bool ok = cli_write_file(b->out, cli_text(&page));
    if (ok && !quiet)
        cli_print("\nwrote %s\n", b->out);
    buf_free(&page);
    return ok;
}

/* On the CPU every round runs all rules. On a GPU, where measurements vary little, in the suite and
 * with --all, each rule runs alone and has all the memory. The last two go on after a rule that
 * fails. */
static bool run_all(Bench *b)
{
    bool ok = true, many = b->suite || b->all;
    int each = many || b->device.ops->async ? 1 : b->ncase;
    bool quiet = b->json || (b->out && !strcmp(b->out, "-"));
    for (int i = 0; i < b->ncase && (ok || many) && !bench_stopped; i += each) {
        ok = bench_batch(b, i, each) && ok;
        if (quiet || (!ok && !many))
            continue;
        if (i == 0)
            bench_report_head(b);
        bench_report_cases(b, i, each);
    }
    b->interrupted = bench_stopped;
    if ((b->out || b->given) && (ok || many) && !b->interrupted)
        bench_roofs(b);
    if (b->json && (ok || many))
        bench_json(b);
    else if (!quiet && (ok || many))
        bench_report_foot(b);
    bool written = !b->out || !(ok || many) || write_page(b, quiet);
    /* a missed bar of the table is no failure */
    for (int i = 0; i < b->ncase && b->given && !b->interrupted; i++)
        ok = ok && bench_reaches(&b->cases[i]);
    return written && ok;
}

static int check_args(const Command *self, Bench *b, const char *work, int n)
{
    if (b->size && b->shapes->n)
        return cli_misuse(self, "--size and --shape exclude each other");
    if (b->given && !bars_add(&b->asked, b->given))
        return CLI_USAGE;
    if ((b->asked.eager > 0 || b->asked.graph > 0) && (!b->against || strcmp(b->against, "torch")))
        return cli_misuse(self, "the bars torch and graph need --against torch");
    if ((work || b->suite) && (b->shapes->n || b->tensors > 1))
        return cli_misuse(
            self,
            "%s has its own tensors: --shape and --tensors do not apply (--size scales it down)",
            work ? "--work" : "--suite");
    if (b->all && (b->suite || n))
        return cli_misuse(self,
                          "--all runs every rule of the library: --suite and SPEC do not apply");
    if (b->suite && (work || n))
        return cli_misuse(self,
                          "--suite has its own workloads and rules ('--work list' shows them)");
    if (b->against && strcmp(b->against, "torch") && strcmp(b->against, "numpy") &&
        !bench_rivals(b))
        return cli_misuse(
            self, "--against knows torch, numpy, untuned, sharded, mixed and types, not '%s'",
            b->against);
    bool types = b->against && !strcmp(b->against, "types"),
         mixed = b->against && !strcmp(b->against, "mixed");
    if (types != !!b->other_types && !mixed)
        return cli_misuse(self, "--against types and --other-types belong together");
    if (b->json && b->out && !strcmp(b->out, "-"))
        return cli_misuse(self,
                          "--json and -o - both write to standard output: name a file after -o");
    if (!device_target(b->device_name))
        return cli_misuse(self, "--device knows cpu, cuda, cuda:N and best, not '%s'",
                          b->device_name);
    if (work && !(b->work = work_find(work))) {
        Buf t = {0};
        work_unknown(work, &t);
        int rc = cli_misuse(self, "%s", cli_text(&t));
        buf_free(&t);
        return rc;
    }
    return CLI_GO;
}

int cmd_bench(const Command *self, int argc, char **argv)
{
    static DimsList shapes;
    static Bars bars;
    const char *work = NULL, *bars_path = NULL;
    Bench b = {.compile = COMPILE_OPTS_INIT,
               .shapes = &shapes,
               .bars = &bars,
               .tensors = 1,
               .device_name = "best"};
    const Opt opts[] = {
        {"device", 0, OPT_TEXT, &b.device_name, "DEVICE",
         "cpu, cuda, cuda:N, or best (default): a GPU if there is one"},
        {"work", 0, OPT_TEXT, &work, "NAME",
         "the tensors of a workload, such as gpt2-124m; 'list' shows them"},
        {"suite", 0, OPT_FLAG, &b.suite, NULL,
         "every workload and rule that has a bar, one after another"},
        {"all", 0, OPT_FLAG, &b.all, NULL,
         "every rule of the library, one after another, sorted by kind: elementwise, reductions, "
         "products of matrices"},
        {"bars", 0, OPT_TEXT, &bars_path, "FILE",
         "the table of bars (default: tests/bench/bars.txt of the source tree)"},
        {"bar", 0, OPT_TEXT, &b.given, "LIST",
         "bars for each SPEC, such as ms=45,host_us=200 (also share, torch, graph, slowest, "
         "cold_ms, warm_ms): fails "
         "if one is missed or not measured. Also measures the rate of products, for rules that "
         "have some"},
        {"size", 0, OPT_SIZE, &b.size, "N",
         "elements of all tensors (default: 64M, on a GPU 256M; for rules with products 4 matrices "
         "of 512 x 512, "
         "on a GPU 64 of 2048 x 2048); scales a workload down"},
        {"shape", 0, OPT_SHAPES, &shapes, "RxC",
         "a tensor of this shape instead of --size; may be repeated"},
        {"tensors", 0, OPT_COUNT, &b.tensors, "N",
         "split --size into N equal tensors, or have N of each --shape"},
        {"queued", 0, OPT_FLAG, &b.queued, NULL,
         "on a GPU: time several consecutive steps, not each from an idle device"},
        {"rounds", 0, OPT_COUNT, &b.rounds, "N",
         "rounds that time everything once (default: 11; 3 if a rule's steps differ, as with "
         "every(k))"},
        {"steps", 0, OPT_COUNT, &b.steps, "N",
         "steps of a period to time, if a rule's steps differ and a whole period takes too long"},
        {"threads", 0, OPT_COUNT, &b.threads, "N", "threads on the CPU (default: OpenMP's number)"},
        {"workspace", 0, OPT_SIZE, &b.workspace, "BYTES",
         "memory for the products of a batch of tensors (default: 1G, on a GPU more: 'optc doctor' "
         "prints it)"},
        {"against", 0, OPT_TEXT, &b.against, "WHAT",
         "torch, numpy: also time PyTorch or NumPy ($OPTC_PYTHON names the interpreter); untuned: "
         "the same rule "
         "without tuned results; sharded: the same rule, sharded over one rank ($OPTC_NCCL names a "
         "libnccl.so.2); "
         "mixed: the same rule in two sets of types, as two connected bindings; types: in other "
         "types"},
        {"other-types", 0, OPT_TEXT, &b.other_types, "LIST",
         "for --against types: its types; for --against mixed: those of tensors with one dimension "
         "(default: "
         "param=f32)"},
        {"json", 0, OPT_FLAG, &b.json, NULL, "print one JSON object"},
        {"out", 'o', OPT_TEXT, &b.out, "FILE",
         "also write an HTML report with a roofline of every stage; FILE.svg: only the picture"},
        COMPILE_OPTS(b.compile),
        {NULL, 0, OPT_FLAG, NULL, NULL, NULL}};
    Arena arena = {0};
    b.command = cli_command_text(&arena, self, argc, argv);
    int n, rc = cli_parse(self, opts, argc, argv, &n);
    bool list = rc == CLI_GO && work && !strcmp(work, "list"), ok;
    if (rc == CLI_GO && !list)
        rc = check_args(self, &b, work, n);
    if (rc != CLI_GO) {
        arena_free(&arena);
        return rc;
    }
    ok = bars_read(&bars, bars_path);
    if (list && ok) {
        work_list();
        bars_list(&bars);
        free(bars.text);
        arena_free(&arena);
        return CLI_OK;
    }
    b.progress = isatty(STDERR_FILENO);
    ok = ok && cli_writable(self, b.out) && bench_open(&b) && add_cases(&b, argv, n);
    if (ok && b.out && optc_profile_active())
        ok = (cli_error("bench: -o records a profile of its own: unset OPTC_PROFILE"), false);
    if (ok) {
        choose_bars(&b);
        if (b.out)
            cli_catch_interrupt(&bench_stopped);
        ok = run_all(&b);
    }
    bench_free(&b);
    free(bars.text);
    arena_free(&arena);
    return !ok ? CLI_FAILED : b.interrupted ? 130 : CLI_OK;
}
