/* Prints the plan for readers who know the paper: each element pass with its lines of the spec, its
 * results as formulas, and why it could not be fused with the one before. `optc dump --pass plan`
 * has the arrays. */
#include "tools/explain/explain.h"

#include <stdlib.h>
#include <string.h>

enum { NOTE_WIDTH = 56, LINE_WIDTH = 64 };

/* One variant in one phase of an entry: the stages that run for a tensor. */
typedef struct VariantPlan {
    const Plan *plan;
    const Phase *phase;
    int variant;
    Arena *arena;
    bool again, handed;            /* the text needs the legend of "computed again", of "->" */
    /* Arrays with an entry per value. made, folded: the first element pass that computes or reduces
     * it; -1: none.
     * early: how many element passes must end before the value is known. */
    int *made, *folded, *early;
    bool *read;                    /* a stage reads it */
    int *mark, marks;              /* values that a search has visited; the number of the search */
} VariantPlan;

enum { MOST_NOTES = 12 };

/* A line of a spec that a stage computes a part of; note: values for later stages, as formulas. */
typedef struct Line { int file, line; bool fresh; const char *note[MOST_NOTES]; int nnote; } Line;
typedef struct Lines { Line *v; int n, cap; } Lines;

static const Node *node_of(const VariantPlan *w, Ref v) { return &w->phase->g->n[v]; }
/* a temporary, which callers do not see */
static bool ours(const VariantPlan *w, const Access *a)
{
    MemKind k = w->plan->mem[a->mem].kind;
    return k == MEM_TEMP || k == MEM_PART;
}
static const char *say(const VariantPlan *w, Ref v)
{
    return formula(w->arena, w->plan->rule, w->phase, v, NOTE_WIDTH);
}

bool explain_runs(const Stage *st, int variant)
{
    return st->kind == S_GROUP || st->variant == variant;
}

/* ---- lines ---- */
static Line *line_at(VariantPlan *w, Lines *l, Ref v)
{
    const Node *n = node_of(w, v);
    if (n->line <= 0 || n->file < 0 || n->file >= w->plan->rule->nfile)
        return NULL;
    for (int i = 0; i < l->n; i++)
        if (l->v[i].file == n->file && l->v[i].line == n->line)
            return &l->v[i];
    PUSH(w->arena, l->v, l->n, l->cap) = (Line){.file = n->file, .line = n->line};
    return &l->v[l->n - 1];
}

static void add_note(Line *l, const char *text)
{
    for (int i = 0; i < l->nnote; i++)
        if (!strcmp(l->note[i], text))
            /* equal texts: they may differ only where they were shortened */
            return;
    if (l->nnote < MOST_NOTES)
        l->note[l->nnote++] = text;
}

/* Wrappers' files come first, the outermost before the others. */
static int by_place(const void *x, const void *y)
{
    const Line *a = x, *b = y;
    return a->file != b->file ? b->file - a->file : a->line - b->line;
}

static Lines lines_of(VariantPlan *w, const Stage *st)
{
    Lines l = {0};
    for (int i = 0; i < st->nbody; i++) {
        Line *at = line_at(w, &l, st->body[i]);
        if (at)
            at->fresh = at->fresh || !is_elem(st->kind) || w->made[st->body[i]] >= st->time;
    }
    for (int i = 0; i < st->nfold; i++) {
        Line *at = line_at(w, &l, st->fold[i].val);
        if (at) {
            at->fresh = true;
            add_note(at,
                     formula_of(w->arena, w->plan->rule, w->phase, st->fold[i].val, NOTE_WIDTH));
        }
    }
    for (int i = 0; i < st->nstore; i++) {
        Line *at = ours(w, &st->store[i]) && w->read[st->store[i].val]
                       ? line_at(w, &l, st->store[i].val)
                       : NULL;
        if (at) {
            at->fresh = true;
            add_note(at, say(w, st->store[i].val));
        }
    }
    qsort(l.v, (size_t)l.n, sizeof *l.v, by_place);
    return l;
}

/* Prints at most `most` characters of n bytes, with … if some are left out, padded to `width`. */
static void put_cut(Arena *a, const char *s, int n, int most, int width)
{
    char *text = arena_strndup(a, s, (size_t)n);
    for (char *c = text; *c; c++)
        *c = (unsigned char)*c < 32 || *c == 127 ? ' ' : *c;
    if (cli_width(text) > most) {
        int have = 0;
        char *c = text;
        for (; *c && !((*c & 0xc0) != 0x80 && have == most - 1); c++)
            have += (*c & 0xc0) != 0x80;
        *c = 0;
        text = arena_printf(a, "%s…", text);
    }
    cli_put_clean(stdout, text, false);
    printf("%*s", width > cli_width(text) ? width - cli_width(text) : 0, "");
}

static const char *place_of(const VariantPlan *w, const Line *l)
{
    return arena_printf(w->arena, "%.40s:%d", w->plan->rule->file[l->file], l->line);
}

static void put_line(VariantPlan *w, const Line *l, int place, int width)
{
    int n = 0;
    const char *at = place_of(w, l), *text = rule_line(w->plan->rule, l->file, l->line, &n);
    bool more = l->nnote || !l->fresh;
    w->again = w->again || !l->fresh;
    w->handed = w->handed || l->nnote;
    printf("      ");
    put_cut(w->arena, at, (int)strlen(at), 60, text || more ? place + 2 : 0);
    put_cut(w->arena, text ? text : "", n, LINE_WIDTH, more ? width : 0);
    if (!l->fresh)
        printf("     computed again");
    for (int i = 0; i < l->nnote; i++) {
        printf("%s%*s  -> ", i ? "\n" : "", i ? 6 + place + 2 + width : 0, "");
        cli_put_clean(stdout, l->note[i], false);
    }
    puts("");
}

static void put_lines(VariantPlan *w, const Stage *st)
{
    const Rule *r = w->plan->rule;
    Lines l = lines_of(w, st);
    int place = 0, width = 0;
    for (int i = 0; i < l.n; i++) {
        int n = 0, at = cli_width(place_of(w, &l.v[i]));
        rule_line(r, l.v[i].file, l.v[i].line, &n);
        place = at > place ? at : place;
        width = n > width ? n : width;         /* in bytes: may give some blanks too many */
    }
    width = width < LINE_WIDTH ? width : LINE_WIDTH;
    for (int i = 0; i < l.n; i++)
        put_line(w, &l.v[i], place, width);
}

/* ---- what a stage reads and writes ---- */
static void add_word(Buf *b, const char *word)
{
    buf_printf(b, "%s%s", b->len ? ", " : "", word);
}

static void put_traffic(VariantPlan *w, const Stage *st)
{
    Dom d = stage_info[st->kind].dom;
    Buf in = {.arena = w->arena}, out = {.arena = w->arena};
    for (int i = 0; i < st->nload; i++)
        if (node_of(w, st->load[i].val)->dom == d)
            add_word(&in, ours(w, &st->load[i]) ? say(w, st->load[i].val) : st->load[i].name);
    for (int i = 0; i < st->nstore; i++)
        if (!ours(w, &st->store[i]))
            add_word(&out, st->store[i].name);
        else if (is_elem(st->kind))
            add_word(&out, arena_printf(w->arena, "%s as a temporary", say(w, st->store[i].val)));
    if (in.len && is_elem(st->kind))
        buf_printf(&in, " (%d B)", st->bytes_read);
    if (out.len && is_elem(st->kind))
        buf_printf(&out, " (%d B)", st->bytes_written);
    if (in.len || out.len)
        printf(": ");
    if (in.len)
        cli_put_clean(stdout, arena_printf(w->arena, "reads %s", buf_text(&in)), false);
    if (out.len)
        cli_put_clean(stdout,
                      arena_printf(w->arena, "%swrites %s", in.len ? ", " : "", buf_text(&out)),
                      false);
}

/* ---- why a pass begins ---- */
typedef struct Why {
    int early;                     /* element passes that must have ended before, in any plan */
    Ref value, needs[3]; int n;    /* the value that the pass waits for, and the reductions in it */
    Dom over; bool global;         /* the largest domain that a reduction covers; global: all
                                    * tensors */
} Why;

typedef struct PathSearch {
    VariantPlan *variant_plan; Ref path[64]; Why *why; Ref from;
} PathSearch;

/* The spec's word that a reduction is a part of: norm(g), not the sum of squares inside it. */
static Ref whole_word(const PathSearch *s, int depth)
{
    Ref best = s->path[depth];
    for (int k = depth - 1;
         k >= 0 && formula_part(s->variant_plan->phase->g, node_of(s->variant_plan, s->path[k]));
         k--)
        best = s->path[k];
    return best;
}

static void found(PathSearch *s, int depth)
{
    Why *y = s->why;
    bool global = false;
    int early = s->variant_plan->early[s->path[depth]];
    Dom over = (Dom)node_of(s->variant_plan, s->path[depth])->dom;
    for (int k = 0; k < depth; k++)
        global = global || is_global(node_of(s->variant_plan, s->path[k]));
    if (early < y->early || (early == y->early && y->value != s->from))
        return;
    if (early > y->early)
        *y = (Why){.early = early, .value = s->from, .over = over, .global = global};
    y->global = y->global || global;
    y->over = dom_info[over].scope < dom_info[y->over].scope ? over : y->over;
    Ref word = whole_word(s, depth);
    for (int i = 0; i < y->n; i++)
        if (y->needs[i] == word)
            return;
    if (y->n < 3)
        y->needs[y->n++] = word;
}

/* Follows operands down to the reductions of the previous pass. */
static void look(PathSearch *s, Ref v, int depth, int before)
{
    const Node *n = node_of(s->variant_plan, v);
    if (depth == 63 || s->variant_plan->mark[v] == s->variant_plan->marks)
        return;
    s->path[depth] = v;
    int time = s->variant_plan->folded[v];
    if (time >= 0) {
        if (time == before)
            found(s, depth);
        return;
    }
    s->variant_plan->mark[v] = s->variant_plan->marks;
    for (int k = 0; k < n->nargs && n->dom != ELEM; k++)
        if (n->arg[k] != NONE)
            look(s, n->arg[k], depth + 1, before);
}

static Why why_begins(VariantPlan *w, const Stage *st, int before)
{
    Why y = {.early = -1, .value = NONE};
    for (int pass = 0; pass < 2; pass++) {
        const Access *a = pass ? st->fin : st->load;
        for (int i = 0; i < (pass ? st->nfin : st->nload); i++) {
            PathSearch s = {.variant_plan = w, .why = &y, .from = a[i].val};
            w->marks++;
            if (node_of(w, a[i].val)->dom != ELEM)
                look(&s, a[i].val, 0, before);
        }
    }
    return y;
}

/* The pass waits for no reduction: it reads a product, or a value that was computed from one. */
static void put_why_call(VariantPlan *w, const Stage *st)
{
    const Access *best = NULL;
    for (int i = 0; i < st->nload; i++)
        if (ours(w, &st->load[i]) && (!best || node_of(w, st->load[i].val)->op == OP_MM))
            best = &st->load[i];
    if (!best)
        return;
    printf("      new pass, needed by ");
    cli_put_clean(stdout, say(w, best->val), false);
    puts(":\n      it needs a product, which runs between passes");
}

/* last: the previous element pass */
static void put_why(VariantPlan *w, const Stage *st, int pass, const Stage *last)
{
    Why y = why_begins(w, st, last->time);
    Buf needs = {.arena = w->arena};
    if (y.value == NONE) {
        put_why_call(w, st);
        return;
    }
    /* columns of the current line, which wraps at 80 */
    int at = 0;
    for (int i = 0; i < y.n; i++) {
        const char *text = formula_of(w->arena, w->plan->rule, w->phase, y.needs[i], NOTE_WIDTH);
        bool wraps = i && at + cli_width(text) > 80;
        at = (wraps ? 0 : at) + cli_width(text);
        buf_printf(&needs, "%s%s%s",
                   !i            ? ""
                   : i + 1 < y.n ? ","
                                 : " and",
                   !i      ? ""
                   : wraps ? "\n      "
                           : " ",
                   text);
    }
    const Node *n = node_of(w, y.value);
    const char *from =
        n->line > 0 && n->file < w->plan->rule->nfile
            ? arena_printf(w->arena, " (%.40s:%d)", w->plan->rule->file[n->file], n->line)
            : "";
    printf("      new pass, needed by ");
    cli_put_clean(stdout, arena_printf(w->arena, "%s%s:\n      ", say(w, y.value), from), true);
    cli_put_clean(stdout, buf_text(&needs), true);
    printf(" %s complete only after pass %d has read %s\n", y.n > 1 ? "are" : "is", pass - 1,
           y.global ? "all tensors" : arena_printf(w->arena, "the whole %s", dom_info[y.over].per));
}

/* ---- one variant ---- */
/* Fills the tables by value once: rules can have thousands of stages. */
static void look_through(VariantPlan *w)
{
    int n = w->phase->g->len + 1;
    w->made = NEWS(w->arena, int, n);
    w->folded = NEWS(w->arena, int, n);
    w->mark = NEWS(w->arena, int, n);
    w->read = NEWS(w->arena, bool, n);
    w->early = NEWS(w->arena, int, n);
    /* operands come before their users */
    for (int v = 0; v < n - 1; v++) {
        const Node *x = node_of(w, v);
        for (int k = 0; k < x->nargs; k++)
            if (x->arg[k] >= 0 && x->arg[k] < v && w->early[x->arg[k]] > w->early[v])
                w->early[v] = w->early[x->arg[k]];
        w->early[v] += is_red(x) && x->from == ELEM && !is_global(x);
    }
    memset(w->made, -1, sizeof(int) * (size_t)n);
    memset(w->folded, -1, sizeof(int) * (size_t)n);
    for (int i = 0; i < w->phase->nstage; i++) {
        const Stage *s = &w->phase->stage[i];
        bool elem = is_elem(s->kind), here = explain_runs(s, w->variant);
        /* a fold of another variant counts if this has none */
        for (int k = 0; k < s->nfold && elem; k++)
            if (here || w->folded[s->fold[k].val] < 0)
                w->folded[s->fold[k].val] = s->time;
        for (int k = 0; k < s->nload && here; k++)
            w->read[s->load[k].val] = true;
        for (int k = 0; k < s->nbody && elem && here; k++)
            if (w->made[s->body[k]] < 0)
                w->made[s->body[k]] = s->time;
    }
}

static void put_stage(VariantPlan *w, const Stage *st, int number, int pass, const Stage *last)
{
    if (is_elem(st->kind))
        printf("\n  %2d  pass %d over the elements", number, pass);
    else if (is_called(st->kind))
        printf("\n  %2d  %s", number, explain_call(w->arena, w->plan, w->phase, st));
    else
        printf("\n  %2d  once per %s%s", number, st->kind == S_GROUP ? "hyperparameter " : "",
               dom_info[stage_info[st->kind].dom].per);
    Buf whose = {.arena = w->arena};
    plan_stagger_text(&whose, w->plan->rule, st->stagger);
    fputs(buf_text(&whose), stdout);
    put_traffic(w, st);
    puts("");
    if (is_elem(st->kind) && last)
        put_why(w, st, pass, last);
    put_lines(w, st);
}

static void put_variant_plan(VariantPlan *w, const char *title)
{
    StageCounts c = explain_counts(w->phase, w->variant);
    int pass = 0;
    look_through(w);
    printf("%s: %d pass%s over the elements, %d bytes per element, %d launch%s", title, c.passes,
           c.passes == 1 ? "" : "es", c.bytes, c.launches, c.launches == 1 ? "" : "es");
    puts(c.calls ? arena_printf(w->arena, ", %d product%s", c.calls, c.calls == 1 ? "" : "s") : "");
    if (w->phase->cheaper)
        printf("  planned with a cheaper search: the full search needs over %lld steps\n",
               (long long)w->plan->limits.work);
    if (explain_code_pass(w->phase, w->variant))
        puts("  one pass more than with f32 states: passes over rows and columns do not store "
             "block codes");
    const Stage *last = NULL;
    for (int i = 0; i < w->phase->nstage; i++) {
        const Stage *st = &w->phase->stage[i];
        if (!explain_runs(st, w->variant))
            continue;
        pass += is_elem(st->kind);
        put_stage(w, st, i, pass, last);
        last = is_elem(st->kind) ? st : last;
    }
    puts("");
}

void explain_plan(Arena *a, const Plan *p, unsigned variants)
{
    bool again = false, handed = false;
    for (int e = 0; e < p->nentry; e++)
        for (int m = 0; m < p->entry[e].nphase; m++)
            for (int v = 0; v < p->rule->nvariant; v++) {
                VariantPlan w = {
                    .plan = p, .phase = &p->entry[e].phase[m], .variant = v, .arena = a};
                const char *title = explain_phase(a, p, e, m);
                if (!(variants >> v & 1))
                    continue;
                if (p->rule->nvariant > 1)
                    title =
                        arena_printf(a, "%s of %s", title, variant_tensors(&p->rule->variant[v]));
                put_variant_plan(&w, title);
                again = again || w.again;
                handed = handed || w.handed;
            }
    if (again)
        puts("  computed again: this moves fewer bytes than storing the value between passes\n");
    if (handed)
        puts("  ->: the value that later stages use");
    puts("  numbers at the left: stages; `optc dump --pass plan` shows the arrays of each stage");
}
