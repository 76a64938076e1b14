/* Variants of a rule: the answers to queries in the traced variant, the next combination of
 * answers, and the checks and joins after all variants are traced. Each run traces every entry;
 * trace.c starts the runs. */
#include "gen/front/trace.h"

#include <math.h>
#include <string.h>

static const SpecFile *file_of(const Trace *t, int file)
{
    int i = 0;
    while (i < t->nall - 1 && t->spec[i].file != file)
        i++;
    return &t->spec[i];
}

void tell_at(Trace *t, int file, int line, const char *fmt, const char *name, const char *other)
{
    const SpecFile *f = file_of(t, file);
    diag_set(t->diag, f->path, line, f->text, fmt, name, other);
    errors_keep(t);
}

/* does not return */
static int refuse_at(Trace *t, int file, int line, const char *fmt, const char *name,
                     const char *other)
{
    const SpecFile *f = file_of(t, file);
    diag_set(t->diag, f->path, line, f->text, fmt, name, other);
    return errors_raise(t->L);
}

static Ref written_value(const Body *b, int state)
{
    for (int i = 0; i < b->n; i++)
        if (b->w[i].state == state)
            return b->w[i].val;
    return NONE;
}

/* All variants must write the same value to a group state. */
static void check_group_writes(Trace *t, const Entry *e)
{
    const Rule *r = t->rule;
    for (int s = 0; s < r->nstate; s++)
        for (int v = 1; v < r->nvariant && r->state[s].dom == GROUP; v++)
            if (written_value(&e->body[v], s) != written_value(&e->body[0], s))
                refuse_at(
                    t, r->state[s].file, r->state[s].line,
                    "state '%s' is one per group, so 'step' and '%s' must give it the same value",
                    r->state[s].name, r->variant[v].name);
}

/* ---- queries ---- */
/* Converts a comparison of one size with a number to "size <= k" (*yes) or its negation: sizes are
 * whole numbers. */
static bool as_bound(const Test *q, double *k, bool *yes)
{
    bool right = q->size[0] == SIZE_ONE;                   /* 4 < nrows: not at most 4 */
    if (q->kind != TEST_SIZES || (q->relation != IS_LESS && q->relation != IS_AT_MOST) ||
        (q->size[1] == SIZE_ONE) == right || !(q->factor[right] > 0))
        return false;
    double b = q->factor[!right] / q->factor[right];
    bool closed = (q->relation == IS_AT_MOST) != right;    /* the bound itself is included */
    *k = closed ? floor(b) : ceil(b) - 1;
    *yes = !right;
    return true;
}

/* Earlier answers about the same size determine this one: nrows <= 4 implies nrows <= 8. */
static bool implied(const Trace *t, const Test *q, bool *answer)
{
    double k, at, least = -INFINITY, most = INFINITY;      /* least < size <= most */
    bool yes, same;
    if (!as_bound(q, &k, &yes))
        return false;
    for (int i = 0; i < t->asked; i++) {
        const Test *x = &t->path[i];
        Size a = q->size[q->size[0] == SIZE_ONE], b = x->size[x->size[0] == SIZE_ONE];
        if (!as_bound(x, &at, &same) || a != b || x->view != q->view)
            continue;
        if (same == x->yes)
            most = at < most ? at : most;
        else
            least = at > least ? at : least;
    }
    *answer = (k >= most) == yes;
    return k >= most || k <= least;
}

bool trace_query(Trace *t, Test q)
{
    bool answer;
    for (int i = 0; i < t->asked; i++)
        if (test_same(&t->path[i], &q))
            return t->path[i].yes;
    if (implied(t, &q, &answer))
        return answer;
    if (t->asked == t->npath) {
        if (t->npath == MAX_TESTS)
            spec_error(t->L,
                       "the rule asks over %d questions about a tensor (sizes, names, tags) in one "
                       "variant",
                       MAX_TESTS);
        q.yes = q.kind != TEST_MATRIX;                     /* vectors come first */
        const char *path;
        sandbox_where(t->L, &path, &t->question.line);
        t->question.file = spec_of_source(t, path) >= 0 ? t->spec[spec_of_source(t, path)].file : 0;
        t->path[t->npath++] = q;
    }
    if (!test_same(&t->path[t->asked], &q) && t->nerror)
        errors_raise(t->L);
    if (!test_same(&t->path[t->asked], &q))
        spec_error(t->L, "the rule asks different questions about a tensor at the same place: only "
                         "earlier answers may decide "
                         "what it asks next");
    return t->path[t->asked++].yes;
}

/* The next variant: flips the answer of the last query whose other answer is not traced yet. */
bool variants_next(Trace *t)
{
    while (t->npath && t->path[t->npath - 1].yes == (t->path[t->npath - 1].kind == TEST_MATRIX))
        t->npath--;
    if (t->npath)
        t->path[t->npath - 1].yes ^= true;
    return t->npath > 0;
}

/* The variant's name: "step" or "matrix", and for further variants of the same function step_2,
 * step_3 … */
static const char *variant_title(Trace *t)
{
    const char *base = t->matrix ? "matrix" : "step";
    int same = 1;
    size_t n = strlen(base);
    for (int v = 0; v < t->variant; v++)
        same += !strncmp(t->rule->variant[v].name, base, n);
    return same == 1 ? base : arena_printf(t->arena, "%s_%d", base, same);
}

void variants_trace(lua_State *L, Trace *t, bool has_matrix)
{
    Rule *r = t->rule;
    if (r->nvariant == MAX_VARIANTS)
        refuse_at(t, t->question.file, t->question.line,
                  "the rule has over %s variants: it asks too many questions about tensors%s",
                  arena_printf(t->arena, "%d", MAX_VARIANTS), "");
    t->variant = r->nvariant;
    t->asked = t->stream = 0;                              /* the same draws in all variants */
    t->matrix = has_matrix && trace_query(
        t, (Test){.kind = TEST_MATRIX, .factor = {t->spec[t->nspec - 1].vectors}});
    PUSH(t->arena, r->variant, r->nvariant, r->variant_cap) = (Variant){.name = variant_title(t)};
    for (int i = 0; i < t->nall; i++)
        t->spec[i].uses_view = false;
    for (int e = 0; e < r->nentry; e++)
        trace_entry(L, t, e, t->variant);
    if (t->nerror && t->npath > t->asked)
        /* after an error: drops queries that were not reached */
        t->npath = t->asked;
    Variant *v = &r->variant[t->variant];
    Test *test = NEWS(t->arena, Test, t->npath + 1);
    memcpy(test, t->path, sizeof *test * (size_t)t->npath);
    v->test = test;
    v->ntest = t->npath;
    for (int i = 0; i < t->nall; i++)
        if (t->spec[i].uses_view)
            v->view |= t->spec[i].view | (t->spec[i].plain ? VIEW_PLAIN : 0);
}

const char *variants_no_partner(Trace *t, int variant)
{
    const char *name = t->rule->variant[variant].name;
    bool other = t->spec[t->nspec - 1].fallback && !strncmp(name, "step", 4);
    return arena_printf(t->arena,
                        "all variants of a rule must make the same global reductions in the same "
                        "order: this one has "
                        "no partner in '%s'%s",
                        name,
                        other ? ", which is another rule: write 'step' out as a function that "
                                "makes it too, or make it "
                                "in a wrapper around this rule, as the wrapper clip does"
                              : "; make it there too, even where its result is not used");
}

/* Sets the operands of reductions over all tensors. Nodes are immutable, so it changes a copy and
 * builds a new graph. */
void variants_join(Trace *t)
{
    Rule *r = t->rule;
    for (int e = 0; e < r->nentry; e++)
        check_group_writes(t, &r->entry[e]);
    Node *n = NEWS(t->arena, Node, r->g.len + 1);
    if (r->g.len)
        memcpy(n, r->g.n, sizeof *n * (size_t)r->g.len);
    for (int i = 0; i < t->ngred; i++) {
        const GlobalRed *x = &t->gred[i];
        for (int v = 0; v < r->nvariant; v++)
            if (x->of[v] == NONE)
                refuse_at(t, x->file, x->line, "%s%s", variants_no_partner(t, v), "");
        n[x->node].nargs = (uint8_t)r->nvariant;
        n[x->node].arg = x->of;
        n[x->node].imm = 0;
    }
    r->g.n = n;
    rule_rewrite(r, NULL, NULL);
}
