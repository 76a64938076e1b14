/* optc bench: options, cases with their tensors, and the order of runs. bench/ has the
 * measurements. */
#include "tools/bench/bench.h"
#include "tools/page/json.h"
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

static bool shape_case(const Bench *b, Case *c, const Work *w)
{
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
static bool inspect_case(Bench *b, Case *c, const Work *w)
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
        ok = c->lap ? shape_case(b, c, w) && (!b->out || bench_plan_ops(c, p))
                    : (cli_error("out of memory"), false);
        c->state_bytes *= (double)c->n;
    }
    spec_close(&s);
    return ok;
}

bool bench_add_case(Bench *b, const char *arg, const Work *work)
{
    Case *c = &b->cases[b->ncase++];
    c->graph = b->device.ops->async;
    if (!strcmp(arg, "-"))
        return cli_error("bench: cannot read the spec from standard input: it is read more than "
                         "once; name a file"),
               false;
    if (!split_case(c, arg, b->compile.with))
        return cli_error("out of memory"), false;
    return inspect_case(b, c, work);
}

static bool add_cases(Bench *b, char **arg, int n)
{
    static char *usual[] = {"adamw", "lamb", "adafactor", "adamw+clip(1)"};
    bool own = false, ok = !b->extra || b->extra->cases(b, &own), periods = false;
    if (!own) {
        arg = n ? arg : usual;
        n = n ? n : 4;
        b->cases = calloc((size_t)n, sizeof *b->cases);
        ok = b->cases || (cli_error("out of memory"), false);
        for (int i = 0; ok && i < n; i++)
            ok = bench_add_case(b, arg[i], b->work);
    }
    for (int i = 0; i < b->ncase; i++)
        periods = periods || b->cases[i].period > 1;
    b->rounds = b->rounds ? b->rounds : periods ? 3 : 11;      /* a period may be a hundred steps */
    if (ok && b->extra)
        b->extra->chosen(b);
    return ok;
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

/* On the CPU every round runs all rules. On a GPU, where measurements vary little, each rule runs
 * alone and has all the memory. */
static bool run_all(Bench *b)
{
    bool ok = true, many = b->apart;
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
    if ((b->out || b->sustain) && (ok || many) && !b->interrupted)
        bench_roofs(b);
    if (b->json && (ok || many))
        bench_json(b);
    else if (!quiet && (ok || many))
        bench_report_foot(b);
    bool written = !b->out || !(ok || many) || write_page(b, quiet);
    return written && ok && (!b->extra || b->extra->reached(b));
}

static const RivalKind *find_rival(const Bench *b)
{
    static const RivalKind untuned = {
        .name = "untuned", .about = "without tuning results", .untuned = true};
    for (const RivalKind *const *r = b->extra ? b->extra->rivals : NULL; r && *r; r++)
        if (!strcmp((*r)->name, b->against))
            return *r;
    return strcmp(untuned.name, b->against) ? NULL : &untuned;
}

static int check_args(const Command *self, Bench *b, const char *work, int n)
{
    if (b->size && b->shapes->n)
        return cli_misuse(self, "--size and --shape exclude each other");
    if (work && (b->shapes->n || b->tensors > 1))
        return cli_misuse(self, "--work has its own tensors: --shape and --tensors do not apply "
                                "(--size scales it down)");
    b->rival = b->against ? find_rival(b) : NULL;
    if (b->against && strcmp(b->against, "torch") && strcmp(b->against, "numpy") && !b->rival) {
        Buf names = {0};
        for (const RivalKind *const *r = b->extra ? b->extra->rivals : NULL; r && *r; r++)
            buf_printf(&names, ", %s", (*r)->name);
        int rc = cli_misuse(self, "--against '%s' is not known: torch, numpy, untuned%s",
                            b->against, names.len ? cli_text(&names) : "");
        buf_free(&names);
        return rc;
    }
    int rc = b->extra ? b->extra->check(self, b, work != NULL, n) : CLI_GO;
    if (rc != CLI_GO)
        return rc;
    if (b->json && b->out && !strcmp(b->out, "-"))
        return cli_misuse(self,
                          "--json and -o - both write to standard output: name a file after -o");
    if (!device_target(b->device_name))
        return cli_misuse(self, "--device knows cpu, cuda, cuda:N and best, not '%s'",
                          b->device_name);
    if (work && !(b->work = work_find(work))) {
        Buf t = {0};
        work_unknown(work, &t);
        rc = cli_misuse(self, "%s", cli_text(&t));
        buf_free(&t);
        return rc;
    }
    return CLI_GO;
}

static bool measure(const Command *self, Bench *b, char **argv, int n)
{
    b->progress = isatty(STDERR_FILENO);
    if (!cli_writable(self, b->out) || !bench_open(b) || !add_cases(b, argv, n))
        return false;
    if (b->out && optc_profile_active())
        return cli_error("bench: -o records a profile of its own: unset OPTC_PROFILE"), false;
    if (b->out)
        cli_catch_interrupt(&bench_stopped);
    return run_all(b);
}

static int put_options(Opt *all, int room, const BenchExtra *extra)
{
    int n = 0;
    for (const Opt *o = extra ? extra->opts : NULL; o && o->name && n < room; o++)
        all[n++] = *o;
    return n;
}

static int list_works(const BenchExtra *extra)
{
    work_list();
    return !extra || extra->list() ? CLI_OK : CLI_FAILED;
}

int bench_command(const Command *self, int argc, char **argv, const BenchExtra *extra)
{
    static DimsList shapes;
    const char *work = NULL;
    Bench b = {.compile = COMPILE_OPTS_INIT,
               .extra = extra,
               .shapes = &shapes,
               .tensors = 1,
               .device_name = "best"};
    const Opt opts[] = {
        {"device", 0, OPT_TEXT, &b.device_name, "DEVICE",
         "cpu, cuda, cuda:N, or best (default): a GPU if there is one"},
        {"work", 0, OPT_TEXT, &work, "NAME",
         "the tensors of a workload, such as gpt2-124m; 'list' shows them"},
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
         "the same rule without tuned results"},
        {"json", 0, OPT_FLAG, &b.json, NULL, "print one JSON object"},
        {"out", 'o', OPT_TEXT, &b.out, "FILE",
         "also write an HTML report with a roofline of every stage; FILE.svg: only the picture"},
        COMPILE_OPTS(b.compile),
        {NULL, 0, OPT_FLAG, NULL, NULL, NULL}};
    enum { OWN = sizeof opts / sizeof *opts, MOST = OWN + 8 };
    Opt all[MOST];                                 /* those of the other program come first */
    memcpy(all + put_options(all, MOST - OWN, extra), opts, sizeof opts);
    Arena arena = {0};
    b.command = cli_command_text(&arena, self, argc, argv);
    int n, rc = cli_parse(self, all, argc, argv, &n);
    bool list = work && !strcmp(work, "list");
    if (rc == CLI_GO)
        rc = list ? list_works(extra) : check_args(self, &b, work, n);
    if (rc != CLI_GO) {
        arena_free(&arena);
        return rc;
    }
    bool ok = measure(self, &b, argv, n);
    bench_free(&b);
    arena_free(&arena);
    return !ok ? CLI_FAILED : b.interrupted ? 130 : CLI_OK;
}

int cmd_bench(const Command *self, int argc, char **argv)
{
    return bench_command(self, argc, argv, NULL);
}
