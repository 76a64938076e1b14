/* optc try: options, the two compilations, and what the runs of try/ mean. */
#include "tools/bench/bench.h"
#include "tools/gradient_steps.h"
#include "tools/try/try.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct Try {
    CompileOpts asked;
    optc_engine *native, *evaluator;
    optc_rule *rule, *exact;   /* in f32 as users run it; in f64 on the reference evaluator */
    int period, steps;
    int problems;
    bool flat[TRY_TENSORS];    /* tensors whose rank the rule refuses: they are bound as vectors */
    Buf found;                 /* one line for each problem, then notes */
    Buf notes;
} Try;

static void add(Buf *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void add(Buf *b, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    buf_vprintf(b, fmt, ap);
    va_end(ap);
    buf_puts(b, "\n");
}

/* ---- the rule ---- */
/* A state that only an entry under `gradients` changes has that entry's period. */
static void lengthen_period(Try *x)
{
    const char *entry;
    for (int i = 0; (entry = optc_rule_gradient(x->rule, 0, i)); i++) {
        int period = gradient_period(x->rule, entry, 2 * TRY_PERIOD);
        x->period = period > x->period ? period : x->period;
    }
    x->period = x->period > TRY_PERIOD ? TRY_PERIOD : x->period;
}

static bool inputs_possible(const Try *x)
{
    for (int i = 0; i < optc_rule_inputs(x->rule); i++) {
        optc_state_info info;
        if (optc_rule_input_info(x->rule, i, &info) == OPTC_OK && strcmp(info.domain, "group") &&
            strcmp(info.domain, "elem"))
            return cli_error("try: the input '%s' has one value per %s; only inputs per element or "
                             "per group can be "
                             "tried",
                             info.name, info.domain),
                   false;
    }
    return true;
}

/* Numbers of the spec that f32 cannot hold: elements read 0 in their place. A constant in values of
 * a group is f64. */
static void warn_zeros(const Rule *r, const char *file)
{
    const Graph *g = &r->g;
    for (int i = 0; i < g->len; i++)
        for (int k = 0; k < g->n[i].nargs; k++) {
            const Node *c = &g->n[g->n[i].arg[k]];
            if (c->op == OP_CONST && c->imm != 0 && (float)c->imm == 0 &&
                !dom_wide((Dom)g->n[i].dom))
                cli_warning("try: %s:%d: the constant %g is 0 in f32", file, g->n[i].line, c->imm);
        }
    for (int i = 0; i < r->nhyper; i++)
        if (r->hyper[i].def != 0 && (float)r->hyper[i].def == 0)
            cli_warning("try: %s: the hyperparameter %s = %g is 0 in f32", file, r->hyper[i].name,
                        r->hyper[i].def);
    for (int i = 0; i < r->nstate; i++)
        if (r->state[i].init == INIT_FILL && r->state[i].value != 0 &&
            (float)r->state[i].value == 0)
            cli_warning("try: %s: the state '%s' starts at %g, which is 0 in f32", file,
                        r->state[i].name, r->state[i].value);
}

static bool compile_both(Try *x, const char *arg)
{
    Spec s;
    bool ok = spec_open(&s, arg, &x->asked, true, NULL);
    if (!ok || s.is_ir || spec_entry(s.gen.plan, "step") < 0) {
        if (!ok)
            spec_fail(&s);
        else
            cli_error("try: %s is %s", arg,
                      s.is_ir ? "IR text; it needs a spec" : "a spec without an entry 'step'");
        spec_close(&s);
        return false;
    }
    spec_warnings(&s);
    warn_zeros(s.gen.plan->rule, arg);
    x->period = period_of(s.gen.plan);
    /* an array of a ring changes at one push in `ring` */
    for (int i = 0; i < s.gen.plan->rule->nstate; i++) {
        int ring = s.gen.plan->rule->state[i].ring;
        x->period = ring > x->period ? ring : x->period;
    }
    /* a wrapper is tried around sgd, as `optc check` does */
    Buf label = {0};
    buf_printf(&label, s.wrapper ? "sgd+%s" : "%s", arg);
    optc_rule_options o = {
        .spec = cli_text(&label), .with = x->asked.with, .options = x->asked.options};
    if (!strcmp(arg, "-"))
        o = (optc_rule_options){
            .spec = "stdin", .text = s.src.text, .with = x->asked.with, .options = o.options};
    optc_engine_options fast = {.device = "cpu", .threads = 1, .spec_path = x->asked.path};
    optc_engine_options slow = {.device = "cpu",
                                .threads = 1,
                                .spec_path = x->asked.path,
                                .compiler = "",
                                .cache_dir = "",
                                .no_builtin = 1};
    ok =
        optc_open(&fast, &x->native) == OPTC_OK && optc_compile(x->native, &o, &x->rule) == OPTC_OK;
    o.param = OPTC_F64;
    ok = ok && optc_open(&slow, &x->evaluator) == OPTC_OK;
    if (ok)
        x->evaluator->f32_draws = true;
    ok = ok && optc_compile(x->evaluator, &o, &x->exact) == OPTC_OK;
    if (!ok)
        cli_error("%s", optc_message());
    else
        lengthen_period(x);
    buf_free(&label);
    spec_close(&s);
    return ok && inputs_possible(x);
}

/* ---- findings ---- */
static const char *dims_text(char buf[64], int t)
{
    int n = snprintf(buf, 64, "%s", try_shapes[t].rank ? "" : "rank 0");
    for (int i = 0; i < try_shapes[t].rank; i++)
        n += snprintf(buf + n, 64 - (size_t)n, "%s%lld", i ? "x" : "",
                      (long long)try_shapes[t].dim[i]);
    return buf;
}

/* Names of the tensors for which `is` holds; returns how many there are. */
static int names_of(Buf *b, const bool *is)
{
    int n = 0;
    char dims[64];
    for (int t = 0; t < TRY_TENSORS; t++)
        if (is[t])
            buf_printf(b, "%s%s (%s)", n++ ? ", " : "", try_shapes[t].name, dims_text(dims, t));
    return n;
}

static void report_still(Try *x, const TryRun *r)
{
    bool still[TRY_TENSORS];
    Buf b = {0};
    for (int t = 0; t < TRY_TENSORS; t++)
        still[t] = r->moved[t] == 0 && !r->bad_params[t];
    int n = names_of(&b, still);
    if (n && (r->kind == GRAD_ORDINARY || (r->kind == GRAD_RANK_ONE && n == TRY_TENSORS))) {
        x->problems++;
        add(&x->found, "%s gradients never move %s", try_grad_names[r->kind],
            n == TRY_TENSORS ? "any tensor" : cli_text(&b));
    } else if (n == TRY_TENSORS && r->kind == GRAD_HUGE) {
        add(&x->notes, "%s gradients move no tensor", try_grad_names[r->kind]);
    }
    buf_free(&b);
}

static void report_bad(Try *x, const TryRun *r)
{
    bool params[TRY_TENSORS], states[TRY_TENSORS];
    Buf b = {0}, c = {0};
    int which = -1, extreme = r->kind == GRAD_HUGE || r->kind == GRAD_TINY;
    for (int t = 0; t < TRY_TENSORS; t++) {
        params[t] = r->bad_params[t] > 0;
        states[t] = r->bad_state[t] >= 0 && !params[t];
        which = states[t] ? r->bad_state[t] : which;
    }
    int np = names_of(&b, params), ns = names_of(&c, states);
    Buf *to = extreme ? &x->notes : &x->found;
    if (np)
        add(to, "%s gradients make parameters NaN or infinite: %s", try_grad_names[r->kind],
            cli_text(&b));
    optc_state_info info;
    if (ns && optc_rule_state(x->rule, which, &info) == OPTC_OK)
        add(to, "%s gradients make the state '%s' NaN or infinite: %s", try_grad_names[r->kind],
            info.name, cli_text(&c));
    x->problems += extreme ? 0 : (np > 0) + (ns > 0);
    buf_free(&b);
    buf_free(&c);
}

/* One NaN in the gradient of 'square': does it stay there? */
static void report_spread(Try *x, const TryRun *r)
{
    int tensors = 0;
    for (int t = 0; t < TRY_TENSORS; t++)
        tensors += r->bad_params[t] > 0;
    if (!tensors)
        add(&x->notes, "one NaN in a gradient does not reach the parameters");
    else if (tensors == 1)
        add(&x->notes,
            "one NaN in the gradient of 'square' makes %d of its 36 parameters NaN, and no other "
            "tensor's; "
            "--with skip leaves out such steps",
            r->bad_params[3]);
    else
        add(&x->notes,
            "one NaN in the gradient of 'square' makes parameters of %d of %d tensors NaN; --with "
            "skip "
            "leaves out such steps",
            tensors, TRY_TENSORS);
}

static void report_factors(Try *x, const TryRun *r)
{
    if (!r->factors.refused)
        return;
    bool problem = r->kind == GRAD_ORDINARY;
    add(problem ? &x->found : &x->notes,
        "%s gradients: %lld of %lld factors of matrices were refused (largest "
        "residual %.1e); the rule keeps the previous one or gets NaN",
        try_grad_names[r->kind], (long long)r->factors.refused, (long long)r->factors.computed,
        r->factors.residual);
    x->problems += problem;
}

/* The largest difference of f32 and f64, relative to the largest move; rounding of the parameter
 * itself is allowed. */
static double difference(const TryRun *a, const TryRun *b, int *where)
{
    double worst = 0;
    for (int t = 0; t < TRY_TENSORS; t++) {
        double move = 0, off = 0, size = 0;
        for (int64_t k = 0; k < try_count(&try_shapes[t]); k++) {
            double start = (float)try_start(t, k), d = fabs(a->compared[t][k] - b->compared[t][k]);
            off = isfinite(d) && d > off ? d : off;
            move = fmax(move, fabs(b->compared[t][k] - start));
            size = fmax(size, fmax(fabs(start), fabs(b->compared[t][k])));
        }
        /* half a unit in the last place of every step */
        off -= TRY_COMPARED * 1.2e-7 * size;
        if (off > 0 && move > 0 && off / move > worst) {
            worst = off / move;
            *where = t;
        }
    }
    return worst;
}

static void report_states(Try *x, const TryRun *r)
{
    for (int i = 0; i < optc_rule_states(x->rule) && i < TRY_STATES; i++) {
        optc_state_info info;
        int last = -1;
        for (int t = 0; t < TRY_TENSORS; t++)
            last = r->changed[i][t] > last ? r->changed[i][t] : last;
        if (last < 0 || optc_rule_state(x->rule, i, &info) != OPTC_OK)
            continue;
        if (last == 0)
            add(&x->notes, "the state '%s' never changes", info.name);
        else if (r->steps - last > x->period)
            add(&x->notes, "the state '%s' stops changing after step %d of %d", info.name, last,
                r->steps);
    }
}

/* ---- the table ---- */
static void row(const TryRun *r, double off)
{
    int moved = 0, bad = 0;
    double least = INFINITY, most = 0;
    for (int t = 0; t < TRY_TENSORS; t++) {
        moved += r->moved[t] > 0 || r->bad_params[t];
        bad += r->bad_params[t] > 0;
        least = r->moved[t] < least ? r->moved[t] : least;
        most = r->moved[t] > most ? r->moved[t] : most;
    }
    char refused[32];
    snprintf(refused, sizeof refused, "%lld of %lld", (long long)r->factors.refused,
             (long long)r->factors.computed);
    printf("  %-12s  %6d of %d  %8.1e to %8.1e  %8d of %d", try_grad_names[r->kind], moved,
           TRY_TENSORS, least, most, bad, TRY_TENSORS);
    if (r->kind == GRAD_NAN)
        printf("  %11s", "-");
    else
        printf("  %11.1e", off);
    printf("  %s\n", r->factors.computed ? refused : "-");
}

static bool try_kind(Try *x, TryGrad kind)
{
    TryRun *r = calloc(2, sizeof *r);
    int where = 0;
    bool ok = r && try_run(&r[0], x->rule, x->flat, kind, false, x->steps) &&
              (kind == GRAD_NAN || try_run(&r[1], x->exact, x->flat, kind, true, TRY_COMPARED));
    if (ok) {
        double off = kind == GRAD_NAN ? 0 : difference(&r[0], &r[1], &where);
        row(&r[0], off);
        if (kind == GRAD_NAN)
            report_spread(x, &r[0]);
        else
            report_bad(x, &r[0]);
        report_still(x, &r[0]);
        report_factors(x, &r[0]);
        if (off > 0.05) {
            /* Eigenvectors of nearly singular matrices are not unique: there rounding decides, and
             * it is no mistake. */
            bool problem = kind == GRAD_ORDINARY && !r[0].factors.computed;
            add(problem ? &x->found : &x->notes,
                "%s gradients: after %d steps f32 differs from f64 by %.0f %% of the "
                "move (%s)%s",
                try_grad_names[kind], TRY_COMPARED, 100 * off, try_shapes[where].name,
                r[0].factors.computed ? "; factors of nearly singular matrices are not unique"
                                      : "");
            x->problems += problem;
        }
        if (kind == GRAD_ORDINARY)
            report_states(x, &r[0]);
    } else if (!r) {
        cli_error("out of memory");
    }
    free(r);
    return ok;
}

static void print_lines(const char *head, const char *paint, const Buf *b)
{
    for (const char *s = b->len ? cli_text(b) : ""; *s;) {
        size_t n = strcspn(s, "\n");
        printf("%s%s%s: ", paint, head, cli_paint(PAINT_NONE));
        cli_print("%.*s\n", (int)n, s);
        s += n + (s[n] == '\n');
    }
}

static bool try_all(Try *x)
{
    x->steps = 2 * x->period + 2 > TRY_COMPARED ? 2 * x->period + 2 : TRY_COMPARED;
    cli_print("%s: %d steps on %d tensors of rank 0 to 4, %s\n", optc_rule_name(x->rule), x->steps,
              TRY_TENSORS, optc_rule_path(x->rule));
    printf("  %-12s  %11s  %19s  %13s  %11s  %s\n", "gradients", "moved", "largest moves",
           "not finite", "f32 and f64", "refused factors");
    for (int t = 0; t < TRY_TENSORS; t++)
        if ((x->flat[t] = !try_binds(x->rule, t)))
            add(&x->notes, "%s; it is tried as a vector", optc_message());
    for (int kind = 0; kind < GRADS; kind++)
        if (!try_kind(x, (TryGrad)kind))
            return false;
    print_lines("problem", cli_paint(PAINT_BAD), &x->found);
    print_lines("note", cli_paint(PAINT_DIM), &x->notes);
    if (!x->problems)
        printf("%sok%s  no problem was found\n", cli_paint(PAINT_GOOD), cli_paint(PAINT_NONE));
    return true;
}

int cmd_try(const Command *self, int argc, char **argv)
{
    Try x = {.asked = COMPILE_OPTS_INIT};
    const Opt opts[] = {
        {"with", 0, OPT_TEXT, &x.asked.with, "LIST",
         "wrappers, the last outermost: 'clip(1),ema(0.999)'"},
        {"options", 0, OPT_TEXT, &x.asked.options, "LIST", "compile-time choices: 'amsgrad=true'"},
        {"path", 0, OPT_TEXT, &x.asked.path, "DIRS",
         "folders with your own specs, separated by ':' (default: $OPTC_PATH)"},
        {NULL, 0, OPT_FLAG, NULL, NULL, NULL}};
    int n, rc = cli_parse(self, opts, argc, argv, &n);
    if (rc != CLI_GO)
        return rc;
    if (n != 1)
        return cli_one_spec(self, n);
    bool ok = compile_both(&x, argv[0]) && try_all(&x);
    optc_release(x.rule);
    optc_release(x.exact);
    optc_close(x.native);
    optc_close(x.evaluator);
    buf_free(&x.found);
    buf_free(&x.notes);
    return ok && !x.problems ? CLI_OK : CLI_FAILED;
}
