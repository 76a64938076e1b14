/* optc explain: the plan of a rule, and what it means on this machine. */
#include "explain.h"

#include "emit.h"

#include "internal.h"          /* shape_of: a tensor is seen here as the runtime sees it */

#include <math.h>
#include <string.h>

static void head(const Spec *s)
{
    const Rule *r = s->gen.rule;
    Arena *a = s->gen.plan->arena;
    cli_heading(*r->with ? arena_printf(a, "%s with %s", r->name, r->with) : r->name);
    if (*r->doc)
        cli_line("", r->doc);
    if (*r->cite)
        cli_line("cite", r->cite);
    for (int i = 0; i < r->nhyper; i++) {
        Buf b = {0};
        cli_hyper(&b, &r->hyper[i]);
        cli_line(i ? "" : "hyper", cli_text(&b));
        buf_free(&b);
    }
    for (int i = 0; i < r->noption; i++)
        cli_line(i ? "" : "options", arena_printf(a, "%s = %s", r->option[i].name, r->option[i].value));
    for (int i = 0; i < r->ninput; i++)
        cli_line(i ? "" : "inputs", arena_printf(a, "%s: one per %s, set by the caller", r->input[i].name,
                                                 dom_info[r->input[i].dom].name));
    cli_line("types", arena_printf(a, "parameters %s, gradients %s, states %s, computed in %s",
                                   type_info[s->types.p].name, type_info[s->types.g].name,
                                   type_info[s->types.state].name, type_info[s->gen.plan->real].name));
}

const char *explain_phase(Arena *a, const Plan *p, int entry, int mask)
{
    Buf b = {.arena = a};
    buf_puts(&b, p->entry[entry].name);
    for (int i = 0; i < p->nperiod; i++)
        plan_period(&b, &p->period[i], i ? " and" : ", t", mask >> i & 1);
    return buf_text(&b);
}

static double phase_bytes(const Plan *p, const Phase *ph, int variant, Shape shape)
{
    double b = 0;
    for (int i = 0; i < ph->nstage; i++)
        if (explain_runs(&ph->stage[i], variant)) {
            Traffic t = stage_traffic(p, &ph->stage[i], shape);
            b += t.read + t.written;
        }
    return b;
}

static const char *floor_text(Arena *a, double bytes, const Bandwidth *f)
{
    char x[32], y[32];
    return f->rate > 0 ? arena_printf(a, "%s, at least %s", cli_bytes(x, bytes), cli_time(y, bytes / f->rate))
                       : arena_strdup(a, cli_bytes(x, bytes));
}

/* ---- launches and state ---- */
static void launches(Arena *a, const Plan *p)
{
    for (int e = 0; e < p->nentry; e++)
        for (int m = 0; m < p->entry[e].nphase; m++) {
            const Phase *ph = &p->entry[e].phase[m];
            const char *more = "";
            if (p->rule->nvariant > 1) {
                int n[MAX_VARIANTS] = {0};
                for (int i = 0; i < ph->nstage; i++)
                    for (int v = 0; v < p->rule->nvariant; v++)
                        n[v] += explain_runs(&ph->stage[i], v);
                for (int v = 0; v < p->rule->nvariant; v++)
                    more = arena_printf(a, "%s%s%d where all are %s", more, v ? ", " : " (", n[v],
                                        variant_tensors(&p->rule->variant[v]));
                more = arena_printf(a, "%s)", more);
            }
            cli_line(e || m ? "" : "launches", arena_printf(a, "%d for %s, whatever the number of tensors%s",
                                                            ph->nstage, explain_phase(a, p, e, m), more));
        }
}

static void states(Arena *a, const Plan *p)
{
    const Rule *r = p->rule;
    for (int v = 0; v < r->nvariant; v++) {
        int bytes = 0;
        Buf each = {0}, rest = {0};
        for (int i = 0; i < r->nstate; i++) {
            const Mem *m = &p->mem[plan_mem_of_state(p, i)];
            if (!p->state_used[v * r->nstate + i] || r->state[i].report)
                continue;
            if (m->dom == ELEM) {
                bytes += type_info[m->type].bytes;
                buf_printf(&each, "%s%s", each.len ? ", " : ": ", m->name);
            } else
                buf_printf(&rest, "; %s %d per %s", m->name, type_info[m->type].bytes, dom_info[m->dom].name);
        }
        cli_line(v ? "" : "state",
                 arena_printf(a, "%d byte%s per parameter%s%s%s", bytes, bytes == 1 ? "" : "s", cli_text(&each),
                              cli_text(&rest),
                              r->nvariant == 1 ? "" : arena_printf(a, " (%s)", variant_tensors(&r->variant[v]))));
        buf_free(&each);
        buf_free(&rest);
    }
}

/* A matrix of about n elements that is about square. */
static Dims square(int64_t n)
{
    int64_t rows = (int64_t)sqrt((double)n);
    return (Dims){2, {rows, n / rows}};
}

static void floors(Arena *a, const Plan *p, int64_t n, const Bandwidth *f)
{
    char size[32], rate[32];
    const Rule *r = p->rule;
    if (f->rate > 0)
        cli_line("floor", arena_printf(a, "for %s elements at %s/s (%s)", cli_size(size, n), cli_bytes(rate, f->rate),
                                       f->whence));
    else
        cli_line("floor", arena_printf(a, "for %s elements (%s)", cli_size(size, n), f->whence));
    for (int e = 0; e < p->nentry; e++)
        for (int m = 0; m < p->entry[e].nphase; m++)
            for (int v = 0; v < r->nvariant; v++) {
                Dims d = v > 0 || rule_view(r) ? square(n) : (Dims){1, {n}};
                char text[160];
                Shape s = count_shape(rule_view(r), d.rank, d.dim, v == 0 && r->nvariant > 1);
                const char *as = d.rank == 2 && s.rows > 1 ? arena_printf(a, " as %s", cli_dims(text, &d)) : "";
                cli_line("", arena_printf(a, "%s%s: %s", explain_phase(a, p, e, m), as,
                                          floor_text(a, phase_bytes(p, &p->entry[e].phase[m], v, s), f)));
            }
}

/* ---- exact bytes of given shapes ---- */
static void put_floor(double bytes, const Bandwidth *f)
{
    char t[32];
    if (f->rate > 0)
        printf(" %10s", cli_time(t, bytes / f->rate));
    puts("");
}

static double shape_table(Arena *a, const Plan *p, const Dims *d, int e, int m, const Bandwidth *f)
{
    char dims[160], bytes[32];
    AboutTensor ask = {NULL, NULL, d->rank, d->dim, d->rank >= 2, false, 0};
    int variant = variant_of(p->rule->variant, p->rule->nvariant, &ask);
    Shape s = count_shape(p->rule->variant[variant].view, d->rank, d->dim, false);
    const Phase *ph = &p->entry[e].phase[m];
    printf("  %s, %s%s\n", cli_dims(dims, d), explain_phase(a, p, e, m),
           p->rule->nvariant > 1 ? arena_printf(a, " (by %s)", p->rule->variant[variant].name) : "");
    for (int i = 0; i < ph->nstage; i++) {
        const Stage *st = &ph->stage[i];
        if (!explain_runs(st, variant))
            continue;
        Traffic t = stage_traffic(p, st, s);
        double b = t.read + t.written;
        printf("    %2d %-6s %12.0f bytes %10s", i, stage_info[st->kind].name, b, cli_bytes(bytes, b));
        put_floor(b, f);
    }
    double total = phase_bytes(p, ph, variant, s);
    printf("    sum       %12.0f bytes %10s", total, cli_bytes(bytes, total));
    put_floor(total, f);
    return total;
}

static void shape_tables(Arena *a, const Plan *p, const DimsList *shapes, const Bandwidth *f)
{
    cli_heading("\nshapes");
    for (int e = 0; e < p->nentry; e++)
        for (int m = 0; m < p->entry[e].nphase; m++) {
            double total = 0;
            for (int i = 0; i < shapes->n; i++)
                total += shape_table(a, p, &shapes->v[i], e, m, f);
            if (shapes->n > 1)
                printf("  all %d, %s: %s\n", shapes->n, explain_phase(a, p, e, m), floor_text(a, total, f));
        }
}

typedef struct Asked {
    int64_t size;
    double bandwidth;
    const char *device;
    bool anew;
} Asked;

static int explain(Spec *s, const Asked *ask, const DimsList *shapes)
{
    Arena *a = &s->gen.arena;
    const Plan *p = s->gen.plan;
    Bandwidth f = {ask->bandwidth * 1e9, "as given"};
    if (ask->bandwidth <= 0 && !bandwidth_of(a, ask->device, ask->anew, &f))
        return CLI_FAILED;
    head(s);
    cli_heading("\nplan");
    explain_plan(a, p);
    cli_heading("\nwhat it means");
    launches(a, p);
    states(a, p);
    if (ask->size || !shapes->n)
        floors(a, p, ask->size ? ask->size : (int64_t)64 << 20, &f);
    if (shapes->n)
        shape_tables(a, p, shapes, &f);
    return CLI_OK;
}

/* What tuning results know each stage of a GPU by, and what launch it has without any. */
static int hashes(Spec *s, int64_t size)
{
    const Plan *p = s->gen.plan;
    for (int f = 0; f < p->nfn; f++) {
        StageAt at = plan_at(p, f);
        char hex[33], name[MOST_STAGE_NAME];
        if (!at.stage || !stage_tunes(at.stage))
            continue;                          /* nothing to choose there */
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

int cmd_explain(const Command *self, int argc, char **argv)
{
    bool only_hashes = false;
    Asked ask = {0};
    static DimsList shapes;
    CompileOpts c = COMPILE_OPTS_INIT;
    const Opt opts[] = {
        {"size", 0, OPT_SIZE, &ask.size, "N",
         "elements to work the floor (default: 64M) or the launches (default: many) out for"},
        {"shape", 0, OPT_SHAPES, &shapes, "RxC",
         "exact bytes of each stage for a tensor of this shape; may be repeated"},
        {"bandwidth", 0, OPT_REAL, &ask.bandwidth, "GB/s",
         "of the machine in mind (default: measured here once, and kept)"},
        {"device", 0, OPT_TEXT, &ask.device, "DEVICE",
         "whose bandwidth the floor is for: cpu, cuda, cuda:N (default: best)"},
        {"measure", 0, OPT_FLAG, &ask.anew, NULL, "measure the bandwidth anew, and keep that"},
        {"hashes", 0, OPT_FLAG, &only_hashes, NULL,
         "only the hashes by which tuning results know its stages on a GPU, and their launches without any"},
        COMPILE_OPTS(c),
        {NULL, 0, OPT_FLAG, NULL, NULL, NULL}};
    int n, rc = cli_parse(self, opts, argc, argv, &n);
    if (rc != CLI_GO)
        return rc;
    if (n != 1)
        return cli_misuse(self, n ? "one spec at a time" : "which spec?");
    if (ask.bandwidth > 0 && (ask.anew || ask.device))
        return cli_misuse(self, "--bandwidth says it already: --%s does not go with it",
                          ask.anew ? "measure" : "device");
    Spec s;
    jmp_buf out;
    rc = CLI_OK;
    bool ok = spec_open(&s, argv[0], &c, false, NULL);
    s.gen.arena.out = &out;
    if (!ok)
        rc = spec_fail(&s);
    else if (setjmp(out))
        rc = cli_fail("explain: out of memory");
    else
        rc = only_hashes ? hashes(&s, ask.size) : explain(&s, &ask, &shapes);
    spec_close(&s);
    return rc;
}
