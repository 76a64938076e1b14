/* Rules of a race: compiles them and finds out which hyperparameters to tune and which entries to
 * call. */
#include "tools/gradient_steps.h"
#include "tools/race/race.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The hyperparameter `name` of the rule itself, of its fallback rule or of a wrapper: "lr",
 * "adamw.lr". */
static bool has_name(const char *hyper, const char *name)
{
    const char *dot = strrchr(hyper, '.');
    return !strcmp(dot ? dot + 1 : hyper, name);
}

static void find_hypers(RaceRule *r, const char *rate)
{
    for (int i = 0; i < optc_rule_hypers(r->rule); i++) {
        optc_hyper h;
        if (optc_rule_hyper(r->rule, i, &h) != OPTC_OK || optc_rule_unread(r->rule, h.name))
            continue;
        if (has_name(h.name, rate) && r->nrate < RACE_HYPERS) {
            r->rate[r->nrate] = h.name;
            r->rate_default[r->nrate] = h.value;
            r->rate_lo[r->nrate] = h.lo;
            r->rate_hi[r->nrate++] = h.hi;
        }
        if (has_name(h.name, "weight_decay") && r->ndecay < RACE_HYPERS) {
            r->decay_default = r->ndecay ? r->decay_default : h.value;
            r->decay[r->ndecay++] = h.name;
        }
    }
}

/* A setting that nothing reads is refused: the report would show it as if it had an effect. */
static bool read_settings(const RaceRule *r, const char *label)
{
    for (int i = 0; i < r->nfixed; i++) {
        const char *why = optc_rule_unread(r->rule, r->fixed[i].name);
        if (why)
            return cli_error("race: '%s': %s; leave it out, or choose other options", label, why),
                   false;
    }
    return true;
}

/* Rates have one of these names; a rate of 0 cannot be scaled. */
static void find_rate(RaceRule *r)
{
    static const char *const names[] = {"lr", "learning_rate", "step_size", "rate", "eta", "alpha"};
    for (size_t i = 0; i < sizeof names / sizeof *names && !r->nrate; i++) {
        r->nrate = r->ndecay = 0;
        find_hypers(r, names[i]);
        if (r->nrate && r->rate_default[0] == 0)
            r->nrate = 0;
    }
}

/* Entries that the race calls. A rule with another entry would run without what that entry
 * provides. */
static bool find_entries(RaceRule *r, const char *label)
{
    for (int i = 0; i < optc_rule_entries(r->rule); i++) {
        const char *e = optc_rule_entry(r->rule, i);
        r->averages = r->averages || !strcmp(e, "to_eval");
        r->hessian = r->hessian || !strcmp(e, "set_hessian");
        if (strcmp(e, "step") && strcmp(e, "to_eval") && strcmp(e, "to_train") &&
            strcmp(e, "set_hessian") && !gradient_listed(r->rule, e))
            return cli_error("race: %s has the entry '%s', which no task of the race can feed; "
                             "race rules whose "
                             "entries are step, to_eval, to_train, set_hessian or listed under "
                             "'gradients'",
                             label, e),
                   false;
    }
    r->nloss = optc_rule_inputs(r->rule);
    for (int i = 0; i < r->nloss; i++) {
        optc_state_info info;
        if (optc_rule_input_info(r->rule, i, &info) != OPTC_OK || strcmp(info.domain, "group") ||
            !has_name(info.name, "loss"))
            return cli_error("race: %s needs the input '%s', which no task of the race provides; a "
                             "race provides "
                             "loss = \"group\"",
                             label, optc_rule_input(r->rule, i)),
                   false;
    }
    return true;
}

/* Gradients that the rule takes besides the one of each step. Returns how many a step takes in the
 * mean. */
static double note_gradients(const RaceRule *r, Buf *b)
{
    const char *e;
    double all = 1;
    for (int i = 0; (e = optc_rule_gradient(r->rule, 0, i)); i++) {
        int period = gradient_period(r->rule, e, RACE_MOST_STEPS);
        all += strcmp(e, "step") && period ? 1.0 / period : 0;
        if (strcmp(e, "step") && period == 1)
            buf_printf(b, "one more gradient per step (%s); ", e);
        else if (strcmp(e, "step") && period)
            buf_printf(b, "one more gradient at one step in %d (%s); ", period, e);
        else if (strcmp(e, "step"))
            buf_printf(b, "one more gradient at most once (%s); ", e);
    }
    if (r->hessian)
        buf_puts(b, "two more gradients per step (set_hessian gets a Hutchinson estimate); ");
    return all + 2 * r->hessian;
}

/* ---- "adamw(beta2=0.95)+clip(1)" ---- */
typedef struct Setting { const char *name, *value; } Setting;
/* spec: without the settings: "adamw+clip(1)". */
typedef struct Label { const char *spec; Setting setting[RACE_SETTINGS]; int n; } Label;

static const char *trimmed(Arena *a, const char *s, size_t n)
{
    while (n && *s == ' ')
        s++, n--;
    while (n && s[n - 1] == ' ')
        n--;
    return arena_strndup(a, s, n);
}

/* Settings follow the name of the rule; parentheses after a '+' belong to a wrapper. */
static bool read_label(Label *x, Arena *a, const char *label)
{
    size_t from = strcspn(label, "(+");
    const char *end = label[from] == '(' ? strchr(label + from, ')') : NULL;
    const char *file = arena_strndup(a, label, strcspn(label, "+"));
    *x = (Label){.spec = label};
    if (label[from] != '(' || access(label, F_OK) == 0 || access(file, F_OK) == 0)
        return true;
    if (!end || (end[1] && end[1] != '+'))
        return cli_error(
                   "race: '%s': the settings of a rule end with ')', and '+' precedes a wrapper",
                   label),
               false;
    x->spec = arena_printf(a, "%.*s%s", (int)from, label, end + 1);
    for (const char *s = label + from + 1; s < end;) {
        size_t n = strcspn(s, ",)"), k = strcspn(s, "=");
        if (k >= n || x->n == RACE_SETTINGS)
            return cli_error("race: '%s': settings are NAME=VALUE, at most %d: "
                             "adamw(beta2=0.95,amsgrad=true)",
                             label, RACE_SETTINGS),
                   false;
        x->setting[x->n++] = (Setting){trimmed(a, s, k), trimmed(a, s + k + 1, n - k - 1)};
        s += n + (s[n] == ',');
    }
    return true;
}

static const Hyper *named_hyper(const Rule *r, const char *name)
{
    for (int i = 0; i < r->nhyper; i++)
        if (!strcmp(r->hyper[i].name, name))
            return &r->hyper[i];
    return NULL;
}

static bool named_option(Arena *a, const Rule *r, const char *name, const char *label)
{
    const char **names = NEWS(a, const char *, r->nhyper + r->noption + 1);
    int n = 0;
    for (int i = 0; i < r->noption; i++)
        if (!strcmp(names[n++] = r->option[i].name, name))
            return true;
    for (int i = 0; i < r->nhyper; i++)
        names[n++] = r->hyper[i].name;
    Buf b = {.arena = a};
    cli_near("hyperparameter or option", name, names, &b);
    cli_error("race: '%s': %s", label, buf_text(&b));
    return false;
}

/* Hyperparameters are set when tensors are bound; other names are options of the compilation. */
static bool sort_settings(RaceRule *r, Arena *a, const Rule *rule, const Label *x,
                          const char *label, Buf *options)
{
    for (int i = 0; i < x->n; i++) {
        const char *name = x->setting[i].name, *value = x->setting[i].value;
        const Hyper *h = named_hyper(rule, name);
        double number;
        if (!h && !named_option(a, rule, name, label))
            return false;
        if (!h) {
            buf_printf(options, "%s%s=%s", options->len ? "," : "", name, value);
            continue;
        }
        if (!line_real(value, &number) && !(*value == '-' && line_real(value + 1, &number)))
            return cli_error("race: '%s': %s must be a number, not '%s'", label, name, value),
                   false;
        number = *value == '-' ? -number : number;
        r->fixed[r->nfixed++] = (optc_setting){arena_strdup(a, name), number};
    }
    return true;
}

static bool spec_text(RaceRule *r, RaceRuleInfo *info, Arena *a, const Label *x, const char *path,
                      const char **options)
{
    Spec s;
    CompileOpts o = COMPILE_OPTS_INIT;
    Buf chosen = {.arena = a};
    o.path = path;
    bool ok = spec_open(&s, x->spec, &o, false, NULL);
    if (!ok)
        spec_fail(&s);
    else if (spec_entry(s.gen.plan, "step") < 0) {
        cli_error("race: %s has no entry 'step'", info->name);
        ok = false;
    } else {
        spec_warnings(&s);
        info->text = arena_strndup(a, s.src.text, s.src.len);
        ok = sort_settings(r, a, s.gen.plan->rule, x, info->name, &chosen);
    }
    spec_close(&s);
    *options = chosen.len ? buf_text(&chosen) : NULL;
    return ok;
}

/* A setting of a rate or of the first decay is where its search starts. The search gives all decays
 * one value, so other decays with a setting leave it. */
static void start_search(RaceRule *r)
{
    for (int i = 0; i < r->nfixed; i++) {
        const char *name = r->fixed[i].name;
        for (int k = 0; k < r->nrate; k++)
            if (!strcmp(r->rate[k], name))
                r->rate_default[k] = r->fixed[i].value;
        if (r->ndecay && !strcmp(r->decay[0], name))
            r->decay_default = r->fixed[i].value;
        int kept = r->ndecay ? 1 : 0;
        for (int k = 1; k < r->ndecay; k++)
            if (strcmp(r->decay[k], name))
                r->decay[kept++] = r->decay[k];
        r->ndecay = kept;
    }
    if (r->nrate && r->rate_default[0] == 0)
        r->nrate = 0;                                      /* it cannot be scaled */
}

bool race_rule_open(RaceRule *r, RaceRuleInfo *info, Arena *a, optc_engine *e, const char *label,
                    const char *path)
{
    double began = cli_now();
    *info = (RaceRuleInfo){.name = arena_strdup(a, label),
                           .text = "",
                           .path = "",
                           .rate = "",
                           .decay = "",
                           .note = ""};
    if (!strcmp(label, "-"))
        return cli_error("race: cannot read a spec from standard input: it is read more than once; "
                         "name a file"),
               false;
    Label x;
    const char *options;
    if (!read_label(&x, a, label) || !spec_text(r, info, a, &x, path, &options))
        return false;
    if (optc_compile(e, &(optc_rule_options){.spec = x.spec, .options = options}, &r->rule) !=
        OPTC_OK)
        return cli_error("%s", optc_message()), false;
    info->compile_seconds = cli_now() - began;
    info->path = arena_strdup(a, optc_rule_path(r->rule));
    if (!read_settings(r, label) || !find_entries(r, label))
        return false;
    find_rate(r);
    start_search(r);
    for (int i = 0; i < optc_rule_states(r->rule); i++) {
        optc_state_info s;
        r->scales = r->scales || (optc_rule_state(r->rule, i, &s) == OPTC_OK &&
                                  !strcmp(s.name, "loss_scale.scale"));
    }
    r->fallback = *optc_rule_field(r->rule, "fallback") != 0;
    Buf b = {.arena = a};
    if (r->averages)
        buf_puts(&b, "evaluated between to_eval and to_train, at a constant rate; ");
    info->gradients = note_gradients(r, &b);
    if (r->fallback)
        buf_printf(&b, "embeddings and heads take %s; ", optc_rule_field(r->rule, "fallback"));
    if (!r->nrate)
        buf_puts(&b, "no hyperparameter named lr: its rate is not tuned; ");
    if (b.len > 2)
        info->note = arena_strndup(a, buf_text(&b), b.len - 2);
    Buf rates = {.arena = a};
    for (int i = 0; i < r->nrate; i++)
        buf_printf(&rates, "%s%s", i ? " and " : "", r->rate[i]);
    info->rate = arena_strdup(a, r->nrate ? buf_text(&rates) : "");
    info->decay = r->ndecay ? "weight_decay" : "";
    return true;
}
