/* Makes a Program (program.h) from a plan: what the runtime needs, without pointers into the
 * compiler. */
#include "gen/emit/program_make.h"

#include "gen/emit/emit.h"
#include "gen/plan/launch.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

_Static_assert((int)MOST_VARIANTS == (int)MAX_VARIANTS, "a binding has room for every variant");


/* ---- from a plan ---- */
static void make_hypers(Arena *a, const Rule *r, Program *out)
{
    ProgHyper *h = NEWS(a, ProgHyper, r->nhyper + 1);
    for (int i = 0; i < r->nhyper; i++)
        h[i] = (ProgHyper){r->hyper[i].name, r->hyper[i].def,     r->hyper[i].lo,
                           r->hyper[i].hi,   r->hyper[i].lo_open, r->hyper[i].hi_open};
    out->hyper = h;
    out->nhyper = r->nhyper;
}

/* Sets held_by of temporaries and partials: the variants whose stages use them. Group stages serve
 * all variants. */
static void keep_touched(ProgArray *m, const Program *p)
{
    for (int i = 0; i < p->nstage; i++) {
        const ProgStage *s = &p->stage[i];
        unsigned variants = s->kind == S_GROUP ? (1u << p->nvariant) - 1 : 1u << s->variant;
        for (int k = 0; k < s->nreads + s->nwrites; k++) {
            ProgArray *x = &m[k < s->nreads ? s->reads[k] : s->writes[k - s->nreads]];
            if (x->kind == MEM_TEMP || x->kind == MEM_PART)
                x->held_by |= variants;
        }
    }
}

/* Call it after make_entries: held_by comes from the stages. */
static void make_arrays(Arena *a, const Plan *p, Program *out)
{
    const Rule *r = p->rule;
    ProgArray *m = NEWS(a, ProgArray, p->nmem + 1);
    for (int k = 0; k < p->nmem; k++) {
        const Mem *x = &p->mem[k];
        const State *s = x->kind == MEM_STATE ? &r->state[x->sym] : NULL;
        m[k] =
            (ProgArray){x->kind,
                        x->dom,
                        x->from,
                        x->by,
                        (int)x->type,
                        x->name ? x->name : "",
                        s && s->init == INIT_COPY_P,
                        s && s->init == INIT_FILL ? s->value : 0,
                        s && (s->init == INIT_HYPER || s->init == INIT_NORMAL) ? s->hyper + 1 : 0,
                        s && s->report,
                        s && s->follows_p,
                        0,
                        s && s->eye,
                        s && p->lower_state[x->sym],
                        s ? s->slots : (Stagger){0, 0, 0, 0},
                        s && s->rotates ? s->age + 1 : 0,
                        s && s->init == INIT_KERNEL,
                        s && s->init == INIT_NORMAL ? x->sym + 1 : 0};
        for (int v = 0; s && v < r->nvariant; v++)
            m[k].held_by |= (unsigned)p->state_used[v * r->nstate + x->sym] << v;
    }
    keep_touched(m, out);
    out->array = m;
    out->narray = p->nmem;
}

static const int *numbers(Arena *a, const Access *x, int nx, const Access *y, int ny, int *n)
{
    int *out = NEWS(a, int, nx + ny + 1);
    for (int i = 0; i < nx + ny; i++)
        out[i] = i < nx ? x[i].mem : y[i - nx].mem;
    *n = nx + ny;
    return out;
}

/* ProgStage.value: names of what numbers() of the same lists numbers. */
static const char *const *names(Arena *a, const Access *x, int nx, const Access *y, int ny,
                                const Access *z, int nz, const Access *w, int nw)
{
    const Access *const list[] = {x, y, z, w};
    const int n[] = {nx, ny, nz, nw};
    const char **out = NEWS(a, const char *, nx + ny + nz + nw + 1);
    for (int i = 0, at = 0; i < 4; i++)
        for (int k = 0; k < n[i]; k++)
            out[at++] = arena_strdup(a, list[i][k].name);
    return out;
}

/* ProgStage.at of a shared stage: its arrays and its phase. */
static const int *shared_arrays(Arena *a, const ProgStage *s, int phase)
{
    int *at = NEWS(a, int, MOST_SHARED + 1);
    at[MOST_SHARED] = phase;
    memcpy(at, s->reads, sizeof *at * (size_t)s->nreads);
    memcpy(at + s->nreads, s->writes, sizeof *at * (size_t)s->nwrites);
    return at;
}

/* The spec's line of the first value that the stage computes, or else finishes or folds. g: the
 * graph of its phase. */
static const char *where(Arena *a, const Plan *p, const Graph *g, const Stage *s)
{
    for (int i = 0; i < s->nbody + s->nfin + s->nfold; i++) {
        int k = i - s->nbody;
        const Node *n = &g->n[k < 0         ? s->body[i]
                              : k < s->nfin ? s->fin[k].val
                                            : s->fold[k - s->nfin].val];
        if (n->line)
            return arena_printf(a, "%.80s:%d", p->rule->file[n->file], n->line);
    }
    return "";
}

static const ProgCall *make_call(Arena *a, const Plan *p, const Graph *g, const Stage *s)
{
    const Node *n = &g->n[s->body[0]];
    Callee callee = callee_of(n);
    ProgCall *c = NEW(a, ProgCall);
    *c = (ProgCall){callee,
                    plan_call_flags(p, g, s),
                    s->load[0].mem,
                    call_operand(n, 1) > 0 ? s->load[call_operand(n, 1)].mem : -1,
                    call_operand(n, 2) > 0 ? s->load[call_operand(n, 2)].mem : -1,
                    s->store[0].mem,
                    n->imm,
                    n->beta,
                    n->diagonal};
    return c;
}

static ProgStage make_stage(Arena *a, const Plan *p, const PlanEntry *en, int phase, const Stage *s,
                            const char *prefix)
{
    ProgStage x = {.kind = s->kind,
                   .variant = s->variant,
                   .time = s->time,
                   .fn = s->fn,
                   .form = is_called(s->kind) ? FORM_SINGLE : stage_form(s),
                   .name = stage_info[s->kind].name,
                   .where = where(a, p, en->phase[phase].g, s),
                   .stagger = s->stagger};
    if (is_called(s->kind))
        x.call = make_call(a, p, en->phase[phase].g, s);
    x.reads = numbers(a, s->load, s->nload, s->fin, s->nfin, &x.nreads);
    x.writes = numbers(a, s->store, s->nstore, s->fold, s->nfold, &x.nwrites);
    x.value = names(a, s->load, s->nload, s->fin, s->nfin, s->store, s->nstore, s->fold, s->nfold);
    StageAt own = plan_at(p, s->fn);
    x.kernel = is_called(s->kind)
                   ? ""
                   : emit_prefixed(a, prefix, p, own.entry->name, own.phase, own.stage);
    x.at = s->shared ? shared_arrays(a, &x, phase) : NULL;
    return x;
}

/* ---- the order of a phase's actions ---- */
/* All tensors wait for a group stage. Between two group stages, the stages of a variant are
 * adjacent, because a phase with calls runs batch by batch there (runtime/core/memory/batches.c).
 * Group stages that wait for nothing come first, so that there are few such intervals. Variants
 * have only the groups' arrays in common. */
static bool touches(const int *x, int nx, const int *y, int ny)
{
    for (int i = 0; i < nx; i++)
        for (int k = 0; k < ny; k++)
            if (x[i] == y[k])
                return true;
    return false;
}

static bool in_the_way(const ProgStage *s, const ProgStage *group)
{
    return s->kind == S_GROUP || touches(s->writes, s->nwrites, group->reads, group->nreads) ||
           touches(s->reads, s->nreads, group->writes, group->nwrites) ||
           touches(s->writes, s->nwrites, group->writes, group->nwrites);
}

static void order_actions(const ProgStage *stage, ProgAction *act, int n)
{
    for (int i = 1; i < n; i++)
        for (int k = i; k > 0 && act[k].kind == ACT_LAUNCH && act[k - 1].kind == ACT_LAUNCH; k--) {
            const ProgStage *s = &stage[act[k].stage], *before = &stage[act[k - 1].stage];
            bool group = s->kind == S_GROUP,
                 swap = group ? !in_the_way(before, s)
                              : before->kind != S_GROUP && s->variant < before->variant;
            if (!swap)
                break;
            ProgAction x = act[k];
            act[k] = act[k - 1];
            act[k - 1] = x;
        }
}

static bool calls_any(const Phase *ph)
{
    for (int i = 0; i < ph->nstage; i++)
        if (is_called(ph->stage[i].kind))
            return true;
    return false;
}

/* Stages are numbered through all entries and phases, in order. */
/* The stage uses the numbers of elements. */
static bool numbers_elements(const Plan *p, const Graph *g, const Stage *s)
{
    for (int i = 0; i < s->nbody; i++) {
        const Node *n = &g->n[s->body[i]];
        if ((n->op == OP_RANDOM || n->op == OP_NORMAL) && (Dom)n->dom == ELEM)
            return true;
    }
    for (int i = 0; i < s->nstore; i++) {
        const Mem *m = &p->mem[s->store[i].mem];
        if (m->dom == ELEM && (type_draws(m->type) || type_coded(m->type)))
            return true;
    }
    return false;
}

static unsigned make_draws(const Plan *p)
{
    const Rule *r = p->rule;
    unsigned draws = 0;
    for (int i = 0; i < r->nstate; i++)                    /* initial values per element */
        for (int v = 0;
             v < r->nvariant && r->state[i].init == INIT_NORMAL && r->state[i].dom == ELEM; v++)
            draws |= (unsigned)p->state_used[v * r->nstate + i] << v;
    for (int e = 0; e < p->nentry; e++)
        for (int m = 0; m < p->entry[e].nphase; m++) {
            const Phase *ph = &p->entry[e].phase[m];
            for (int i = 0; i < ph->nstage; i++)
                if (numbers_elements(p, ph->g, &ph->stage[i]))
                    draws |= 1u << ph->stage[i].variant;
        }
    return draws;
}

/* Element passes without folds run on pieces. Pieces whose elements are numbered may need an
 * owner. */
bool plan_exchanges(const Plan *p)
{
    bool any = make_draws(p) != 0;
    for (int i = 0; i < p->nmem; i++)
        any = any || p->mem[i].kind == MEM_PART;
    for (int e = 0; e < p->nentry; e++)
        for (int m = 0; m < p->entry[e].nphase; m++) {
            const Phase *ph = &p->entry[e].phase[m];
            for (int i = 0; i < ph->nstage; i++)
                any = any || (ph->stage[i].kind != S_FLAT && ph->stage[i].kind != S_GROUP);
        }
    return any;
}

static void make_entries(Arena *a, const Plan *p, const char *prefix, Program *out)
{
    int n = 0;
    for (int e = 0; e < p->nentry; e++)
        for (int m = 0; m < p->entry[e].nphase; m++)
            n += p->entry[e].phase[m].nstage;
    ProgStage *stage = NEWS(a, ProgStage, n + 1);
    ProgEntry *entry = NEWS(a, ProgEntry, p->nentry + 1);
    for (int e = 0; e < p->nentry; e++) {
        const PlanEntry *en = &p->entry[e];
        ProgPhase *phase = NEWS(a, ProgPhase, en->nphase + 1);
        bool advance_t = !strcmp(en->name, "step");
        entry[e] = (ProgEntry){en->name, phase, rule_shares(p->rule, e)};
        for (int m = 0; m < en->nphase; m++) {
            ProgAction *act = NEWS(a, ProgAction, en->phase[m].nstage + 2);
            phase[m].action = act;
            if (advance_t)
                act[phase[m].naction++] = (ProgAction){ACT_ADVANCE_T, 0};
            for (int i = 0; i < en->phase[m].nstage; i++) {
                stage[out->nstage] = make_stage(a, p, en, m, &en->phase[m].stage[i], prefix);
                act[phase[m].naction++] = (ProgAction){ACT_LAUNCH, out->nstage++};
            }
            if (calls_any(&en->phase[m]))
                order_actions(stage, act, phase[m].naction);
        }
    }
    out->stage = stage;
    out->entry = entry;
    out->nentry = p->nentry;
}

/* Every choice of the option is the name of a precision. IR text has only the value. */
static bool chooses_product(const Option *o)
{
    bool all = o->choices != NULL;
    if (!o->def)
        return product_by_name(o->value) >= 0;
    for (const char *s = o->choices; all && *s; s += strcspn(s, "\n"), s += *s == '\n') {
        bool known = false;
        for (int i = 0; i < NPRODUCT; i++)
            known = known || (strlen(product_info[i].name) == strcspn(s, "\n") &&
                              !strncmp(s, product_info[i].name, strcspn(s, "\n")));
        all = known;
    }
    return all;
}

/* The options that identify a rule in checkpoints. Those that choose the precision of products do
 * not: a run may go on in another one, as with --products. */
static const char *options_text(Arena *a, const Rule *r)
{
    Buf b = {.arena = a};
    for (int i = 0; i < r->noption; i++)
        if (!chooses_product(&r->option[i]))
            buf_printf(&b, "%s%s=%s", b.len ? "," : "", r->option[i].name, r->option[i].value);
    return arena_strdup(a, buf_text(&b));
}

const Program *program_make(Arena *a, const Plan *p, const char *prefix)
{
    Program *out = NEW(a, Program);
    const Rule *r = p->rule;
    *out = (Program){.name = *r->with ? arena_printf(a, "%s+%s", r->name, r->with) : r->name,
                     .type = program_types,
                     .ntype = NTYPES,
                     .nfn = p->nfn,
                     .period = p->period,
                     .nperiod = p->nperiod,
                     .variant = r->variant,
                     .nvariant = r->nvariant,
                     .p = (int)p->p,
                     .g = (int)p->g,
                     .needs_t = plan_uses_t(p),
                     .advance_t = "optc_advance_t",
                     .product = p->precision,
                     .rank = r->rank,
                     .share = r->share,
                     .block = r->block,
                     .draws = make_draws(p),
                     .spec = r->name,
                     .with = r->with,
                     .options = options_text(a, r),
                     .gradient = r->gradient,
                     .ngradient = r->ngradient};
    make_hypers(a, r, out);
    make_entries(a, p, prefix, out);
    make_arrays(a, p, out);
    return out;
}

/* ---- as C tables ---- */
static void put_double(Buf *b, double x)
{
    if (!isfinite(x))
        buf_puts(b, isnan(x) ? "__builtin_nan(\"\")"
                    : x < 0  ? "-__builtin_inf()"
                             : "__builtin_inf()");
    else
        buf_double(b, x);
}

static void put_text(Buf *b, const char *s)
{
    buf_puts(b, "\"");
    for (; *s; s++)
        if ((unsigned char)*s < ' ' || *s == '"' || *s == '\\' || *s == '?' ||
            (unsigned char)*s > 126)
            buf_printf(b, "\\%03o", (unsigned char)*s);
        else
            buf_add(b, s, 1);
    buf_puts(b, "\"");
}

static const char *flag(bool x) { return x ? "true" : "false"; }

static void put_hypers(Buf *b, const Program *p, const char *id)
{
    buf_printf(b, "static const ProgHyper hyper_%s[] = {\n", id);
    for (int i = 0; i < p->nhyper; i++) {
        const double v[] = {p->hyper[i].def, p->hyper[i].lo, p->hyper[i].hi};
        buf_printf(b, "    {\"%s\"", p->hyper[i].name);
        for (int k = 0; k < 3; k++) {
            buf_puts(b, ", ");
            put_double(b, v[k]);
        }
        buf_printf(b, ", %s, %s},\n", flag(p->hyper[i].lo_open), flag(p->hyper[i].hi_open));
    }
    buf_puts(b, p->nhyper ? "};\n" : "    {\"\", 0, 0, 0, false, false},\n};\n");
}

/* Enumerators are printed as casts of their numbers, so that no table of their names is needed. */
static void put_arrays(Buf *b, const Program *p, const char *id)
{
    buf_printf(b, "static const ProgArray array_%s[] = {\n", id);
    for (int k = 0; k < p->narray; k++) {
        const ProgArray *m = &p->array[k];
        buf_printf(b, "    {(MemKind)%d, (Dom)%d, (Dom)%d, (StageKind)%d, %d, \"%s\", %s, ",
                   m->kind, m->dom, m->from, m->by, m->type, m->name, flag(m->copies_p));
        put_double(b, m->value);
        buf_printf(b, ", %d, %s, %s, %uu, %s, %s, {%d, %d, %d, %d}, %d, %s, %d},\n", m->hyper,
                   flag(m->report), flag(m->follows_p), m->held_by, flag(m->eye), flag(m->lower),
                   m->slots.every, m->slots.of, m->slots.ahead, m->slots.first, m->ring,
                   flag(m->kernel), m->normal);
    }
    buf_puts(b, "};\n");
}

static void put_ints(Buf *b, const char *what, const char *id, int number, const int *v, int n)
{
    if (!n)
        return;
    buf_printf(b, "static const int %s_%s_%d[] = {", what, id, number);
    for (int i = 0; i < n; i++)
        buf_printf(b, "%s%d", i ? ", " : "", v[i]);
    buf_puts(b, "};\n");
}

static void put_list(Buf *b, const char *what, const char *id, int number, int n)
{
    if (n)
        buf_printf(b, "%s_%s_%d, %d, ", what, id, number, n);
    else
        buf_puts(b, "NULL, 0, ");
}

static void put_call(Buf *b, const ProgCall *c, const char *id, int number)
{
    buf_printf(b, "static const ProgCall call_%s_%d = {(Callee)%d, %u, %d, %d, %d, %d, ", id,
               number, c->callee, c->flags, c->a, c->b, c->c, c->out);
    put_double(b, c->alpha);
    buf_puts(b, ", ");
    put_double(b, c->beta);
    buf_puts(b, ", ");
    put_double(b, c->diagonal);
    buf_puts(b, "};\n");
}

static void put_stages(Buf *b, const Program *p, const char *id)
{
    for (int i = 0; i < p->nstage; i++) {
        put_ints(b, "reads", id, i, p->stage[i].reads, p->stage[i].nreads);
        put_ints(b, "writes", id, i, p->stage[i].writes, p->stage[i].nwrites);
        put_ints(b, "arrays", id, i, p->stage[i].at, p->stage[i].at ? MOST_SHARED + 1 : 0);
        if (p->stage[i].call)
            put_call(b, p->stage[i].call, id, i);
    }
    buf_printf(b, "static const ProgStage stage_%s[] = {\n", id);
    for (int i = 0; i < p->nstage; i++) {
        const ProgStage *s = &p->stage[i];
        /* no directories of the build machine */
        const char *slash = strrchr(s->where, '/');
        buf_printf(b, "    {(StageKind)%d, %d, %d, %d, (LaunchForm)%d, ", s->kind, s->variant,
                   s->time, s->fn, s->form);
        put_list(b, "reads", id, i, s->nreads);
        put_list(b, "writes", id, i, s->nwrites);
        buf_printf(b, "\"%s\", \"%s\", ", s->kernel, s->name);
        put_text(b, slash ? slash + 1 : s->where);
        buf_printf(b,
                   s->call ? ", &call_%s_%d, NULL, "
                   : s->at ? ", NULL, arrays_%s_%d, "
                           : ", NULL, NULL, ",
                   id, i);
        buf_printf(b, "%uu, NULL},\n", s->stagger);
    }
    buf_puts(b, p->nstage ? "};\n"
                          : "    {(StageKind)0, 0, 0, 0, (LaunchForm)0, NULL, 0, NULL, 0, \"\", "
                            "\"\", \"\", NULL, "
                            "NULL, 0u, NULL},\n};\n");
}

static void put_entries(Buf *b, const Program *p, const char *id)
{
    int phases = program_phases(p);
    for (int i = 0; i < p->nentry * phases; i++) {
        const ProgPhase *ph = &p->entry[i / phases].phase[i % phases];
        if (ph->naction)
            buf_printf(b, "static const ProgAction action_%s_%d[] = {", id, i);
        for (int k = 0; k < ph->naction; k++)
            buf_printf(b, "%s{(ActKind)%d, %d}%s", k ? ", " : "", ph->action[k].kind,
                       ph->action[k].stage, k + 1 < ph->naction ? "" : "};\n");
    }
    for (int e = 0; e < p->nentry; e++) {
        buf_printf(b, "static const ProgPhase phase_%s_%d[] = {", id, e);
        for (int m = 0; m < phases; m++) {
            int n = p->entry[e].phase[m].naction;
            buf_printf(b, n ? "%s{action_%s_%d, %d}" : "%s{NULL, 0}", m ? ", " : "", id,
                       e * phases + m, n);
        }
        buf_puts(b, "};\n");
    }
    buf_printf(b, "static const ProgEntry entry_%s[] = {", id);
    for (int e = 0; e < p->nentry; e++)
        buf_printf(b, "%s{\"%s\", phase_%s_%d, %d}", e ? ", " : "", p->entry[e].name, id, e,
                   p->entry[e].shares);
    buf_puts(b, "};\n");
    if (p->nperiod)
        buf_printf(b, "static const Period period_%s_0[] = {", id);
    for (int i = 0; i < p->nperiod; i++)
        buf_printf(b, "%s{%d, %d}%s", i ? ", " : "", p->period[i].every, p->period[i].offset,
                   i + 1 < p->nperiod ? "" : "};\n");
    if (p->ngradient)
        buf_printf(b, "static const ProgGradient gradient_%s_0[] = {", id);
    for (int i = 0; i < p->ngradient; i++)
        buf_printf(b, "%s{\"%s\", {%d, %d}}%s", i ? ", " : "", p->gradient[i].entry,
                   p->gradient[i].at.every, p->gradient[i].at.offset,
                   i + 1 < p->ngradient ? "" : "};\n");
}

static void put_variants(Buf *b, const Program *p, const char *id)
{
    for (int v = 0; v < p->nvariant; v++) {
        if (p->variant[v].ntest)
            buf_printf(b, "static const Test test_%s_%d[] = {\n", id, v);
        for (int i = 0; i < p->variant[v].ntest; i++) {
            const Test *t = &p->variant[v].test[i];
            buf_printf(b, "    {(TestKind)%d, %s, (Relation)%d, {(Size)%d, (Size)%d}, {", t->kind,
                       flag(t->yes), t->relation, t->size[0], t->size[1]);
            put_double(b, t->factor[0]);
            buf_puts(b, ", ");
            put_double(b, t->factor[1]);
            buf_printf(b, "}, %d, ", t->view);
            put_text(b, t->word ? t->word : "");
            buf_printf(b, "},\n%s", i + 1 < p->variant[v].ntest ? "" : "};\n");
        }
    }
    buf_printf(b, "static const Variant variant_%s[] = {\n", id);
    for (int v = 0; v < p->nvariant; v++) {
        buf_puts(b, "    {");
        put_text(b, p->variant[v].name);
        buf_printf(b, p->variant[v].ntest ? ", %d, test_%s_%d, %d},\n" : ", %d, NULL, 0},\n",
                   p->variant[v].view, id, v, p->variant[v].ntest);
    }
    buf_puts(b, "};\n");
}

void program_print(Buf *b, const Program *p, const char *id)
{
    put_hypers(b, p, id);
    put_arrays(b, p, id);
    put_stages(b, p, id);
    put_entries(b, p, id);
    put_variants(b, p, id);
    buf_printf(b,
               "static const Program program_%s = {\"%s\", program_types, %d, hyper_%s, %d, "
               "array_%s, %d, stage_%s, "
               "%d, %d, entry_%s, %d, ",
               id, p->name, p->ntype, id, p->nhyper, id, p->narray, id, p->nstage, p->nfn, id,
               p->nentry);
    put_list(b, "period", id, 0, p->nperiod);
    put_list(b, "gradient", id, 0, p->ngradient);
    buf_printf(b, "variant_%s, %d, %d, %d, %s, \"%s\", (Product)%d, %d, {", id, p->nvariant, p->p,
               p->g, flag(p->needs_t), p->advance_t, p->product, p->rank);
    put_double(b, p->share.share);
    buf_printf(b, ", (Axis)%d}, %d, %uu", p->share.of, p->block, p->draws);
    const char *const texts[] = {p->spec, p->with, p->options};
    for (int i = 0; i < 3; i++) {
        buf_puts(b, ", ");
        put_text(b, texts[i]);
    }
    buf_puts(b, "};\n");
}
