/* optc explain: the plan of a rule and its cost: bytes, launches, states, and the least time on
 * this machine. */
#include "tools/explain/explain.h"

#include <math.h>
#include <string.h>

static void head(const RuleFacts *f)
{
    const Spec *s = f->spec;
    const Rule *r = s->gen.rule;
    Arena *a = s->gen.plan->arena;
    cli_heading(f->title);
    if (*r->doc)
        cli_line("", r->doc);
    if (*r->cite)
        cli_line("cite", r->cite);
    facts_hypers(f);
    facts_options(f);
    for (int i = 0; i < r->ninput; i++)
        cli_line(i ? "" : "inputs", arena_printf(a, "%s: one per %s, set by the caller",
                                                 r->input[i].name, dom_info[r->input[i].dom].name));
    cli_line("types", arena_printf(a, "parameters %s, gradients %s, %s, computed in %s",
                                   type_info[s->types.p].name, type_info[s->types.g].name,
                                   explain_types(a, s), type_info[s->gen.plan->real].name));
    if (*explain_codes(a, s->gen.plan))
        cli_line("", explain_codes(a, s->gen.plan));
    if (plan_calls(s->gen.plan))
        cli_line("products", arena_printf(a, "%s; their operands and results are stored in %s",
                                          explain_products(a, s->gen.plan),
                                          type_info[s->gen.plan->product].name));
}

const char *explain_phase(Arena *a, const Plan *p, int entry, int mask)
{
    Buf b = {.arena = a};
    buf_puts(&b, p->entry[entry].name);
    for (int i = 0; i < p->nperiod; i++)
        plan_period(&b, &p->period[i], i ? " and" : ",", mask >> i & 1);
    return buf_text(&b);
}

static Cost stage_cost(const Plan *p, const Phase *ph, const Stage *st, Shape shape,
                       const Bandwidth *f)
{
    Traffic t = stage_traffic(p, st, shape);
    CallCost call = explain_call_cost(ph, st, shape, f);
    Cost c = {.bytes = t.read + t.written, .flops = call.flops};
    c.moving = f->rate > 0 ? c.bytes / f->rate : 0;
    if (call.factor && call.all > c.moving) {
        c.factors = call.all;
        c.largest = call.one;
    } else {
        c.computing = call.all;
        c.seconds = c.moving > call.all ? c.moving : call.all;
    }
    return c;
}

static void add_cost(Cost *to, Cost c)
{
    to->bytes += c.bytes;
    to->flops += c.flops;
    to->moving += c.moving;
    to->computing += c.computing;
    to->seconds += c.seconds;
    to->factors += c.factors;
    to->largest += c.largest;
}

void add_tensor(Cost *to, Cost c)
{
    double largest = to->largest > c.largest ? to->largest : c.largest;
    add_cost(to, c);
    to->largest = largest;
}

static double factor_time(Cost c, const Bandwidth *f)
{
    double shared = c.factors / (f->threads > 1 ? f->threads : 1);
    return shared > c.largest ? shared : c.largest;
}

double cost_time(Cost c, const Bandwidth *f) { return c.seconds + factor_time(c, f); }

Cost phase_cost(const Plan *p, const Phase *ph, int variant, Shape shape, const Bandwidth *f,
                bool staggered)
{
    Cost all = {0};
    for (int i = 0; i < ph->nstage; i++)
        if (explain_runs(&ph->stage[i], variant) && (staggered || !ph->stage[i].stagger))
            add_cost(&all, stage_cost(p, ph, &ph->stage[i], shape, f));
    return all;
}

const char *limit_text(Arena *a, Cost c, const Bandwidth *f)
{
    char x[32], y[32];
    double computing = c.computing + factor_time(c, f);
    if (f->rate <= 0 || computing <= 0)
        return "";
    const char *what = c.factors > 0 ? "products and factors" : "products";
    return arena_printf(a, "memory %s, %s %s: %s limit%s it", cli_time(x, c.moving), what,
                        cli_time(y, computing), computing > c.moving ? what : "memory",
                        computing > c.moving ? "" : "s");
}

bool has_stagger(const Phase *ph, int variant)
{
    for (int i = 0; i < ph->nstage; i++)
        if (explain_runs(&ph->stage[i], variant) && ph->stage[i].stagger)
            return true;
    return false;
}

static bool knows_flops(const Bandwidth *f)
{
    for (int c = 0; c < NCALLEE; c++)
        if (f->flops[c] > 0)
            return true;
    return false;
}

static const char *floor_text(Arena *a, Cost c, const Bandwidth *f)
{
    char x[32], y[32];
    const char *text = arena_strdup(a, cli_bytes(x, c.bytes)), *limit = limit_text(a, c, f);
    if (c.flops > 0)
        text = arena_printf(a, "%s, %s of products", text, cli_flops(x, c.flops));
    if (f->rate <= 0)
        return text;
    text = arena_printf(a, "%s, at least %s", text, cli_time(y, cost_time(c, f)));
    if (c.flops > 0 && !knows_flops(f))
        return arena_printf(a, "%s for the bytes", text);
    return *limit ? arena_printf(a, "%s (%s)", text, limit) : text;
}

/* ---- launches and state ---- */
static void launches(Arena *a, const Plan *p)
{
    for (int e = 0; e < p->nentry; e++)
        for (int m = 0; m < p->entry[e].nphase; m++) {
            const Phase *ph = &p->entry[e].phase[m];
            const char *more = "";
            int calls = 0;
            for (int i = 0; i < ph->nstage; i++)
                calls += is_called(ph->stage[i].kind);
            int n[MAX_VARIANTS] = {0}, nvariant = p->rule->nvariant;
            for (int i = 0; i < ph->nstage; i++)
                for (int v = 0; v < nvariant; v++)
                    n[v] += explain_runs(&ph->stage[i], v) && !is_called(ph->stage[i].kind);
            for (int v = 0; v < nvariant && nvariant > 1; v++)
                more = arena_printf(a, "%s%s%d%s%s%s", more, v ? ", " : " (", n[v],
                                    v && nvariant > 3 ? " " : " where all are ",
                                    variant_tensors(&p->rule->variant[v]),
                                    v == nvariant - 1 ? ")" : "");
            cli_line(e || m ? "" : "launches",
                     arena_printf(a, "%d for %s, for any number of tensors%s", ph->nstage - calls,
                                  explain_phase(a, p, e, m), more));
            if (calls)
                cli_line("", arena_printf(
                                 a, "and %d product%s, each one call per shape and batch%s", calls,
                                 calls == 1 ? "" : "s",
                                 p->target->gpu
                                     ? "; before cuBLAS 13 some are one per matrix (SHARDING.md)"
                                     : ""));
        }
}

static void states(Arena *a, const Plan *p, unsigned variants)
{
    const Rule *r = p->rule;
    const char *key = "state";
    for (int v = 0; v < r->nvariant; v++) {
        if (!(variants >> v & 1))
            continue;
        double bytes = 0;
        Buf each = {0}, rest = {0};
        for (int i = 0; i < r->nstate; i++) {
            const Mem *m = &p->mem[plan_mem_of_state(p, i)];
            if (!p->state_used[v * r->nstate + i] || r->state[i].report)
                continue;
            if (m->dom == ELEM) {
                bytes += explain_bytes(m->type);
                buf_printf(&each, "%s%s", each.len ? ", " : ": ", m->name);
            } else
                buf_printf(&rest, "; %s %d per %s", m->name, type_info[m->type].bytes,
                           dom_info[m->dom].name);
        }
        cli_line(key,
                 arena_printf(a, "%s byte%s per parameter%s%s%s", explain_amount(a, bytes),
                              bytes == 1 ? "" : "s", cli_text(&each), cli_text(&rest),
                              r->nvariant == 1
                                  ? ""
                                  : arena_printf(a, " (%s)", variant_tensors(&r->variant[v]))));
        key = "";
        buf_free(&each);
        buf_free(&rest);
    }
}

static Shape rule_shape(const Rule *r, Shape s)
{
    s.rank = rank_length(r->rank, r->share, s);
    s.block = r->block;
    return s;
}

static Dims square(int64_t n)
{
    int64_t rows = (int64_t)sqrt((double)n);
    return (Dims){2, {rows, n / rows}};
}

const char *flops_text(Arena *a, const Plan *p, const Bandwidth *f)
{
    char rate[32];
    bool any[NCALLEE] = {false};
    const char *text = "";
    plan_callees(p, any);
    for (int c = 0; c < NCALLEE; c++)
        if (any[c] && f->flops[c] > 0 && (c == CALL_MM || f->growth[c] > 0))
            text = arena_printf(a, "%s%s%s at %s/s%s", text, *text ? ", " : "",
                                c == CALL_MM ? "products" : callee_facts[c].name,
                                cli_flops(rate, f->flops[c]),
                                c == CALL_MM ? "" : " (256 rows, one thread)");
    text = *text ? explain_own_rates(a, p, f, text) : text;
    return *text && f->busy ? arena_printf(a, "%s, measured on a busy machine", text) : text;
}

static void floors(Arena *a, const Plan *p, int64_t n, const Bandwidth *f)
{
    char size[32], rate[32];
    const Rule *r = p->rule;
    if (f->rate > 0)
        cli_line("least", arena_printf(a, "time for %s elements at %s/s (%s)", cli_size(size, n),
                                       cli_bytes(rate, f->rate), f->whence));
    else
        cli_line("least",
                 arena_printf(a, "time for %s elements (%s)", cli_size(size, n), f->whence));
    if (*flops_text(a, p, f))
        cli_line("", arena_printf(a, "and %s", flops_text(a, p, f)));
    for (int e = 0; e < p->nentry; e++)
        for (int m = 0; m < p->entry[e].nphase; m++)
            for (int v = 0; v < r->nvariant; v++) {
                Dims d = explain_usual(r, v, n);
                char text[160];
                Shape s = explain_shape(r, v, &d, true);
                const char *as =
                    d.rank == 2 && s.rows > 1 ? arena_printf(a, " as %s", cli_dims(text, &d)) : "";
                const Phase *ph = &p->entry[e].phase[m];
                bool stagger = has_stagger(ph, v);
                cli_line("", arena_printf(a, "%s%s: %s", explain_phase(a, p, e, m), as,
                                          floor_text(a, phase_cost(p, ph, v, s, f, !stagger), f)));
                if (stagger)
                    cli_line("", arena_printf(a, "at its scheduled step: %s",
                                              floor_text(a, phase_cost(p, ph, v, s, f, true), f)));
            }
}

Dims explain_usual(const Rule *r, int variant, int64_t n)
{
    return variant > 0 || rule_view(r) ? square(n) : (Dims){1, {n}};
}

/* flat: the first variant of several has no rows and columns. */
Shape explain_shape(const Rule *r, int variant, const Dims *d, bool flat)
{
    return rule_shape(r, count_shape(flat ? rule_view(r) : r->variant[variant].view, d->rank,
                                     d->dim, flat && variant == 0 && r->nvariant > 1));
}

/* ---- exact bytes of given shapes ---- */
int variant_taken(const Rule *r, const Dims *d)
{
    TensorFacts ask = {NULL, NULL, d->rank, d->dim, d->rank >= 2, false, 0};
    return variant_of(r->variant, r->nvariant, &ask);
}

static void put_cost(Cost c, bool calls, const Bandwidth *f)
{
    char t[32];
    printf("%12.0f bytes %10s", c.bytes, cli_bytes(t, c.bytes));
    if (calls)
        printf(" %12s", c.flops > 0 ? cli_flops(t, c.flops) : "");
    if (f->rate > 0)
        printf(" %10s", cli_time(t, cost_time(c, f)));
    puts("");
}

/* Prints the temporaries of one tensor, and how many such tensors fit into the workspace. */
static void put_room(Arena *a, const Plan *p, const Phase *ph, int variant, Shape s,
                     double workspace)
{
    char room[32], all[32], held[32];
    double one = explain_room(a, p, ph, variant, s), states = 0;
    for (int i = 0; i < p->rule->nstate; i++) {
        const Mem *m = &p->mem[plan_mem_of_state(p, i)];
        if (p->state_used[variant * p->rule->nstate + i] && m->dom != GROUP)
            states += (double)stored_bytes(program_types, (int)m->type, dom_len(m->dom, s), s.n);
    }
    printf("    states %s, temporaries %s at a time", cli_bytes(held, states),
           cli_bytes(room, one));
    if (one > workspace)
        printf(": more than a workspace of %s\n", cli_bytes(all, workspace));
    else
        printf(": at most %.0f such tensors in a batch, in a workspace of %s\n",
               one > 0 ? floor(workspace / one) : 1, cli_bytes(all, workspace));
}

static Cost shape_table(Arena *a, const Plan *p, const Dims *d, int e, int m, const Bandwidth *f,
                        double workspace)
{
    char dims[160];
    int variant = variant_taken(p->rule, d);
    Shape s = explain_shape(p->rule, variant, d, false);
    const Phase *ph = &p->entry[e].phase[m];
    bool calls = plan_calls(p);
    int width = 6, digits = ph->nstage > 100 ? 3 : 2;
    for (int i = 0; i < ph->nstage; i++)
        if (explain_runs(&ph->stage[i], variant) &&
            (int)strlen(stage_info[ph->stage[i].kind].name) > width)
            width = (int)strlen(stage_info[ph->stage[i].kind].name);
    printf("  %s, %s%s\n", cli_dims(dims, d), explain_phase(a, p, e, m),
           p->rule->nvariant > 1 ? arena_printf(a, " (by %s)", p->rule->variant[variant].name)
                                 : "");
    for (int i = 0; i < ph->nstage; i++) {
        const Stage *st = &ph->stage[i];
        if (!explain_runs(st, variant))
            continue;
        printf("    %*d %-*s ", digits, i, width, stage_info[st->kind].name);
        put_cost(stage_cost(p, ph, st, s, f), calls, f);
    }
    Cost total = phase_cost(p, ph, variant, s, f, true);
    printf("    %-*s ", digits + 1 + width, "sum");
    put_cost(total, calls, f);
    if (has_stagger(ph, variant)) {
        printf("    %-*s ", digits + 1 + width, "unscheduled");
        put_cost(phase_cost(p, ph, variant, s, f, false), calls, f);
    }
    if (*limit_text(a, total, f))
        printf("    %s\n", limit_text(a, total, f));
    if (total.flops > 0)
        put_room(a, p, ph, variant, s, workspace);
    return total;
}

static void shape_tables(Arena *a, const Plan *p, const DimsList *shapes, const Bandwidth *f,
                         double workspace)
{
    char rate[32];
    cli_heading("\nshapes");
    if (f->rate > 0)
        cli_line("", arena_printf(a, "at %s/s%s%s", cli_bytes(rate, f->rate),
                                  *flops_text(a, p, f) ? ", " : "", flops_text(a, p, f)));
    for (int e = 0; e < p->nentry; e++)
        for (int m = 0; m < p->entry[e].nphase; m++) {
            Cost total = {0};
            for (int i = 0; i < shapes->n; i++)
                add_tensor(&total, shape_table(a, p, &shapes->v[i], e, m, f, workspace));
            if (shapes->n > 1)
                printf("  all %d, %s: %s\n", shapes->n, explain_phase(a, p, e, m),
                       floor_text(a, total, f));
        }
}

typedef struct Asked {
    TensorOpts of;
    int64_t size;
    double bandwidth, tera;
    bool anew, full, json;
} Asked;

/* The least time of each variant, or of each shape with its variant. */
static void predicted_json(JsonText *t, const Plan *p, const DimsList *shapes, int64_t size,
                           const Bandwidth *f)
{
    const Rule *r = p->rule;
    json_real(t, "bandwidth", f->rate > 0 ? f->rate : NAN);
    json_string(t, "bandwidth_from", f->whence);
    json_list(t, "predicted", true);
    for (int e = 0; e < p->nentry; e++)
        for (int m = 0; m < p->entry[e].nphase; m++)
            for (int k = 0; k < (shapes->n ? shapes->n : r->nvariant); k++) {
                int v = shapes->n ? variant_taken(r, &shapes->v[k]) : k;
                Dims d = shapes->n ? shapes->v[k] : explain_usual(r, v, size);
                Shape s = explain_shape(r, v, &d, !shapes->n);
                Cost c = phase_cost(p, &p->entry[e].phase[m], v, s, f, true);
                char text[160];
                json_object(t, NULL, false);
                json_string(t, "when", explain_phase(p->arena, p, e, m));
                json_string(t, "variant", r->variant[v].name);
                json_string(t, "shape", cli_dims(text, &d));
                json_real(t, "bytes", c.bytes);
                json_real(t, "flops", c.flops);
                json_real(t, "seconds", f->rate > 0 ? cost_time(c, f) : NAN);
                json_end(t);
            }
    json_end(t);
}

static void explain_json(const RuleFacts *facts, const DimsList *shapes, int64_t size,
                         const Bandwidth *f)
{
    Buf b = {0};
    JsonText t = {.b = &b};
    json_object(&t, NULL, true);
    facts_json(&t, facts);
    predicted_json(&t, facts->spec->gen.plan, shapes, size, f);
    json_end(&t);
    json_print(&t);
}

static int explain(Spec *s, const Asked *ask, const DimsList *shapes)
{
    Arena *a = &s->gen.arena;
    const Plan *p = s->gen.plan;
    Bandwidth f = {.rate = ask->bandwidth * 1e9, .whence = "from --bandwidth", .threads = 1};
    if (ask->bandwidth <= 0 && !bandwidth_of(a, ask->of.device, ask->anew, &f))
        return CLI_FAILED;
    bool measured = ask->tera <= 0 && f.target == &target_c && plan_calls(p);
    for (int i = 0; i < NPRODUCT && !measured && ask->tera <= 0; i++)
        f.own[i] = explain_rate(f.device, (Product)i);
    for (int c = 0; c < NCALLEE && !measured; c++)
        f.flops[c] = ask->tera > 0 ? ask->tera * 1e12 : explain_rate(f.device, p->precision);
    if (measured && !flop_rates(a, p, ask->anew, &f))
        return CLI_FAILED;
    spec_warnings(s);
    unsigned taken = shapes->n ? 0 : ~0u;
    for (int i = 0; i < shapes->n; i++)
        taken |= 1u << variant_taken(p->rule, &shapes->v[i]);
    RuleFacts facts = facts_read(s);
    int64_t size = ask->size ? ask->size : (int64_t)64 << 20;
    if (ask->json)
        return explain_json(&facts, shapes, size, &f), CLI_OK;
    if (!ask->full) {
        explain_summary(&facts, taken, shapes, size, &f);
        spec_note(s);
        return CLI_OK;
    }
    head(&facts);
    spec_note(s);
    cli_heading("\nplan");
    explain_plan(a, p, taken);
    cli_heading("\ncosts");
    launches(a, p);
    states(a, p, taken);
    if (ask->size || !shapes->n)
        floors(a, p, size, &f);
    if (shapes->n)
        shape_tables(a, p, shapes, &f, ask->of.workspace ? (double)ask->of.workspace : 0x1p30);
    return CLI_OK;
}

/* Prints the hash of each GPU stage, which keys its tuned results, and the model's launch. */
static int hashes(Spec *s, int64_t size)
{
    const Plan *p = s->gen.plan;
    for (int f = 0; f < p->nfn; f++) {
        StageAt at = plan_at(p, f);
        char hex[33], name[MOST_STAGE_NAME];
        if (!at.stage || !stage_tunes(at.stage))
            continue;                          /* it has nothing to tune */
        Launch l = launch_model(p, at.stage, size);
        if (!emit_cuda_stage_hash(&s->gen, f, hex))
            return cli_fail("explain: out of memory");
        printf("%s %s %s", hex, form_name[stage_form(at.stage)],
               emit_stage_name(name, p, at.entry->name, at.phase, at.stage));
        for (int k = 0; k < NKNOB; k++)
            printf(" %s=%d", knob_name[k], l.v[k]);
        putchar('\n');
    }
    return CLI_OK;
}

static int explain_spec(const char *spec, const CompileOpts *c, const Asked *ask,
                        const DimsList *shapes, bool only_hashes)
{
    Spec s;
    jmp_buf out;
    int rc = CLI_OK;
    bool ok = spec_open(&s, spec, c, false, NULL);
    s.gen.arena.out = &out;
    if (!ok)
        rc = spec_fail(&s);
    else if (setjmp(out))
        rc = cli_fail("explain: out of memory");
    else
        rc = only_hashes ? hashes(&s, ask->size) : explain(&s, ask, shapes);
    spec_close(&s);
    return rc;
}

int cmd_explain(const Command *self, int argc, char **argv)
{
    bool only_hashes = false, gpu = false;
    static Asked ask;
    const DimsList *shapes = &ask.of.shapes;
    CompileOpts c = COMPILE_OPTS_INIT;
    const Opt opts[] = {
        {"json", 0, OPT_FLAG, &ask.json, NULL,
         "print one JSON object: what the rule declares, counts and predicted times"},
        {"full", 0, OPT_FLAG, &ask.full, NULL,
         "every stage, with its lines of the spec and the reason for each pass"},
        {"size", 0, OPT_SIZE, &ask.size, "N",
         "elements of a tensor to predict the time for (default: 64M)"},
        TENSOR_OPTS(ask.of),
        {"bandwidth", 0, OPT_REAL, &ask.bandwidth, "GB/s",
         "memory bandwidth to predict with (default: that of the device, measured once)"},
        {"tera", 0, OPT_REAL, &ask.tera, "TFLOP/s",
         "rate of matrix products to predict with (default: known for the GPU, or measured once on "
         "the CPU)"},
        {"gpu", 0, OPT_FLAG, &gpu, NULL, "show the plan for a GPU, whose products may use 16 bits"},
        {"measure", 0, OPT_FLAG, &ask.anew, NULL,
         "measure the bandwidth again and store it in the cache folder"},
        {"hashes", 0, OPT_FLAG, &only_hashes, NULL,
         "print only the key and the default launch of each GPU stage, as tuning results have "
         "them"},
        COMPILE_OPTS(c),
        {NULL, 0, OPT_FLAG, NULL, NULL, NULL}};
    int n, rc = cli_parse(self, opts, argc, argv, &n);
    if (rc != CLI_GO)
        return rc;
    if (n != 1)
        return cli_one_spec(self, n);
    if (!ask.of.ranks && ask.of.work)
        return cli_misuse(self, "--work needs --ranks");
    if (ask.of.ranks && !ask.of.work == !shapes->n)
        return cli_misuse(self, "--ranks needs the tensors: give --work NAME or --shape RxC%s",
                          ask.of.work ? ", not both" : "");
    if (ask.json && (ask.full || ask.of.ranks || only_hashes))
        return cli_misuse(self, "--json goes without --full, --ranks and --hashes");
    if (ask.of.ranks)
        return explain_ranks(argv[0], &c, &ask.of);
    if (ask.bandwidth > 0 && (ask.anew || ask.of.device))
        return cli_misuse(self, "--bandwidth and --%s exclude each other",
                          ask.anew ? "measure" : "device");
    c.target = gpu || only_hashes ? &target_cuda
               : ask.of.device       ? device_target(ask.of.device)
                                  : device_target(ask.bandwidth > 0 ? "cpu" : "best");
    return explain_spec(argv[0], &c, &ask, shapes, only_hashes);
}
