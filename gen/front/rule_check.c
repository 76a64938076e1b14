/* Checks of the whole rule after all entries are traced: errors (p never changes, a state is never
 * written) and warnings (valid, but certainly not intended). Warnings look at the traced rule, so
 * they see through helpers and locals. They never change the rule; `optc check` and `optc explain`
 * print them.
 *
 * Properties of states are found by induction: a state whose initial value is symmetric (diagonal,
 * a Gram matrix) is assumed to stay so until one of its assignments is not. */
#include "gen/front/rings.h"

#include <math.h>
#include <stdarg.h>
#include <string.h>

/* ---- errors ---- */
/* The line of `local m = … m …` in the spec that declares state i; 0: there is none. */
static int hidden_by_local(Trace *t, int i)
{
    for (const SpecFile *s = t->spec; s < t->spec + t->nall; s++)
        if (s->file == t->rule->state[i].file)
            return lint_local(t, s, t->rule->state[i].name + strlen(s->prefix));
    return 0;
}

static void check_states(Trace *t)
{
    const Rule *r = t->rule;
    for (int i = 0; i < r->nstate; i++) {
        const State *x = &r->state[i];
        if (t->written[i] || x->age ||
            (t->read[i] ? x->init == INIT_COPY_P || x->init == INIT_NORMAL : r->noption > 0))
            continue;
        int twin = t->twin_of[i] - 1, local = hidden_by_local(t, i);
        if (twin >= 0 && t->written[twin]) {
            const char *who = arena_printf(t->arena, "'%s' inside of '%s'",
                                           t->spec[t->nspec - 1].name, t->projects);
            tell_at(t, x->file, x->line,
                    "only entries beside step write the state '%s', and they see no projection of "
                    "the gradient (%s): leave out the wrapper",
                    r->state[twin].name, who);
            continue;
        }
        tell_at(t, x->file, x->line,
                x->report ? "value '%s' is never assigned%s"
                : local   ? "state '%s' is never written: line %s assigns a local of that name; "
                            "leave out 'local'"
                : t->read[i]
                    ? "state '%s' is read but never written: assign it in an entry, or make it a "
                      "hyperparameter%s"
                    : "state '%s' is never used%s",
                ring_name(t->arena, x), local ? arena_printf(t->arena, "%d", local) : "");
    }
}

/* A step that changes nothing, or a rule that never changes a parameter, is an error. */
static void check_writes(Trace *t)
{
    const Rule *r = t->rule;
    bool any = false, p = false;
    for (int e = 0; e < r->nentry; e++)
        for (int v = 0; v < r->nvariant; v++)
            for (int i = 0; i < r->entry[e].body[v].n; i++) {
                any = any || e == 0;
                p = p || r->entry[e].body[v].w[i].state == TO_P;
            }
    if (any && p)
        return;
    const SpecFile *s = &t->spec[t->nspec - 1];
    int local = lint_local(t, s, "p");
    if (local || t->returned)
        diag_set(t->diag, s->path, local ? local : t->returned, s->text,
                 local
                     ? "no entry assigns p: this is a local of that name; leave out 'local': p = …"
                     : "no entry assigns p: what an entry returns is not used; write p = … in "
                       "place of return …");
    diag_set(t->diag, s->path, 0, NULL,
             any ? "no entry writes p: parameters would never move; assign it, as in p = p - lr * g"
                 : "'step' writes nothing: assign p or a state");
    errors_raise(t->L);
}

void check_rule(Trace *t)
{
    check_states(t);
    if (!t->nerror)
        check_writes(t);
}

/* ---- warnings ---- */
void warn_at(Trace *t, const SpecFile *s, int line, const char *fmt, ...)
{
    Buf b = {.arena = t->arena};
    va_list ap;
    va_start(ap, fmt);
    buf_vprintf(&b, fmt, ap);
    va_end(ap);
    rule_warn(t->rule, (Place){s->file, line, s->path, s->text}, buf_text(&b));
}

static void warn_node(Trace *t, const Node *n, const char *fmt, const char *a, const char *b)
{
    for (int i = 0; i < t->nall; i++)
        if (t->spec[i].file == n->file) {
            warn_at(t, &t->spec[i], n->line, fmt, a, b);
            return;
        }
}

/* ---- properties of values ---- */
enum { SYMMETRIC_VALUE = 1, DIAGONAL = 2, GRAM = 4 };

/* Facts by node. is: a set of the flags above. vectors: the eigh() call whose eigenvectors the node
 * holds; transposed: they are transposed. values: the eigh() call whose eigenvalues the node is
 * computed from. */
typedef struct Facts {
    uint8_t *is; bool *symmetric; Ref *vectors, *values; bool *transposed; uint8_t *state;
} Facts;

static bool is_eye(const Graph *g, const Node *n)
{
    const Node *c = n->op == OP_WHERE ? &g->n[n->arg[0]] : NULL,
               *other = c ? &g->n[n->arg[2]] : NULL;
    return c && c->op == OP_EQ && g->n[c->arg[0]].op == OP_DOWN &&
           g->n[c->arg[1]].op == OP_ACROSS && other->op == OP_CONST && other->imm == 0;
}

/* DIAGONAL, and GRAM: sums of Gram matrices with nothing added to the diagonal. Sums and
 * multiplication by numbers preserve both. */
static uint8_t linear_facts(const Graph *g, const Facts *f, Ref r)
{
    const Node *n = &g->n[r];
    const Ref *a = n->arg;
    switch (n->op) {
    case OP_CONST: return n->imm == 0 ? DIAGONAL | GRAM : 0;
    case OP_MM: return n->sym & SYMMETRIC && a[0] == a[1] && n->nargs == 2 ? GRAM : 0;
    case OP_ADD: case OP_SUB: return f->is[a[0]] & f->is[a[1]];
    case OP_MUL:
        if (dom_wide((Dom)g->n[a[0]].dom))
            return f->is[a[1]];
        return dom_wide((Dom)g->n[a[1]].dom) ? f->is[a[0]] : (f->is[a[0]] | f->is[a[1]]) & DIAGONAL;
    case OP_DIV: return dom_wide((Dom)g->n[a[1]].dom) ? f->is[a[0]] : f->is[a[0]] & DIAGONAL;
    case OP_NEG: case OP_COPY: case OP_STORED: case OP_TRANSPOSE: return f->is[a[0]];
    case OP_WHERE: return is_eye(g, n) ? DIAGONAL : f->is[a[1]] & f->is[a[2]];
    default: return 0;
    }
}

static void node_facts(const Graph *g, Facts *f, Ref r)
{
    const Node *n = &g->n[r];
    uint8_t set = n->op == OP_STATE ? f->state[n->sym] : linear_facts(g, f, r) & ~SYMMETRIC_VALUE;
    f->symmetric[r] = n->op == OP_STATE && dom_square((Dom)n->dom)
                          ? set & SYMMETRIC_VALUE
                          : graph_symmetric(g, f->symmetric, r);
    f->is[r] = (uint8_t)(set | (f->symmetric[r] ? SYMMETRIC_VALUE : 0));
}

/* One round over the graph, operands first; true: a state lost an assumed property. */
static bool look_once(const Rule *r, Facts *f)
{
    bool lost = false;
    for (Ref i = 0; i < r->g.len; i++)
        node_facts(&r->g, f, i);
    for (int e = 0; e < r->nentry; e++)
        for (int v = 0; v < r->nvariant; v++)
            for (int k = 0; k < r->entry[e].body[v].n; k++) {
                Write w = r->entry[e].body[v].w[k];
                if (w.state == TO_P)
                    continue;
                uint8_t was = f->state[w.state];
                f->state[w.state] &= f->is[w.val];
                lost = lost || f->state[w.state] != was;
            }
    return lost;
}

static void look(const Rule *r, Facts *f)
{
    Arena *a = r->arena;
    f->is = NEWS(a, uint8_t, r->g.len + 1);
    f->symmetric = NEWS(a, bool, r->g.len + 1);
    f->state = NEWS(a, uint8_t, r->nstate + 1);
    for (int i = 0; i < r->nstate; i++) {
        const State *s = &r->state[i];
        bool even = dom_square(s->dom) && dom_info[s->dom].axis[0] == dom_info[s->dom].axis[1];
        bool zero = s->init == INIT_FILL && s->value == 0;
        if (even && (s->init == INIT_FILL || s->init == INIT_HYPER))
            f->state[i] =
                (uint8_t)(SYMMETRIC_VALUE | (s->eye || zero ? DIAGONAL : 0) | (zero ? GRAM : 0));
    }
    while (look_once(r, f))
        ;
}

/* ---- eigenvectors scaled by their eigenvalues ---- */
/* The eigenvalues are sums over columns of V * mm(A, V) (matrix_factors.c). */
static Ref values_of(const Graph *g, const Node *n)
{
    const Node *x = n->op == OP_SUM ? &g->n[n->arg[0]] : NULL;
    for (int k = 0; x && x->op == OP_MUL && k < 2; k++) {
        const Node *v = &g->n[x->arg[k]], *m = &g->n[x->arg[!k]];
        if (v->op == OP_EIGH && m->op == OP_MM &&
            (m->arg[0] == x->arg[k] || m->arg[1] == x->arg[k]))
            return x->arg[k];
    }
    return NONE;
}

static void eigen_facts(const Graph *g, Facts *f, Ref r)
{
    const Node *n = &g->n[r];
    bool plain = op_info[n->op].kind == K_NUM || op_info[n->op].kind == K_SEL ||
                 n->op == OP_TRANSPOSE || n->op == OP_TAKE;
    f->vectors[r] = n->op == OP_EIGH ? r : NONE;
    f->values[r] = values_of(g, n);
    for (int k = 0; plain && k < (n->op == OP_TAKE ? 1 : n->nargs); k++) {
        Ref x = n->arg[k];
        if (f->values[r] == NONE && !dom_square((Dom)n->dom))
            f->values[r] = f->values[x];
        if (f->vectors[r] == NONE && f->vectors[x] != NONE) {
            f->vectors[r] = f->vectors[x];
            f->transposed[r] = f->transposed[x] != (n->op == OP_TRANSPOSE);
        }
    }
}

/* V * w with w along the rows: this scales the rows of V, but the eigenvectors are its columns. */
static void check_scaling(Trace *t, const Facts *f, const Node *n)
{
    static const char *const write[2][2] = {
        {"V * w.T (NumPy has V * w)", "w * V.T"},
        {"V * w: the eigenvalues of a cols x cols value vary by column", "w.T * V.T"}};
    const Graph *g = &t->rule->g;
    for (int k = 0; (n->op == OP_MUL || n->op == OP_DIV) && k < 2; k++) {
        Ref v = n->arg[k], w = n->arg[!k];
        const Axis *axis = dom_info[g->n[w].dom].axis;
        bool down = axis[0] != AXIS_ONE;
        if (f->vectors[v] == NONE || f->vectors[v] != f->values[w] || down == f->transposed[v])
            continue;
        warn_node(t, n, "the eigenvalues scale the wrong axis: eigenvectors are the %s; write %s",
                  f->transposed[v] ? "rows of V.T" : "columns of V",
                  write[axis[!down] == AXIS_COLS][f->transposed[v]]);
        return;
    }
}

/* ---- factors ---- */
static void check_factor(Trace *t, const Facts *f, const Node *n)
{
    Ref a = n->nargs ? n->arg[0] : NONE;
    bool bare = a != NONE && f->is[a] & GRAM && !(f->is[a] & DIAGONAL);
    const char *axis = axis_name(dom_info[a == NONE ? n->dom : t->rule->g.n[a].dom].axis[0]);
    if (n->op == OP_SOLVE && f->is[a] & SYMMETRIC_VALUE && !(f->is[a] & DIAGONAL))
        warn_node(t, n,
                  "solve(A, B) uses only the lower triangle of A, and %s is symmetric: the inverse "
                  "of A times B is "
                  "solve(A%s, B, { spd = true })",
                  describe(t, a), bare ? arena_printf(t->arena, " + eye(eps, \"%s\")", axis) : "");
    if (n->op == OP_CHOL && bare && !(n->sym & KEEP_LAST))
        warn_node(t, n,
                  "%s is a Gram matrix, which may be singular, and then there is no Cholesky "
                  "factor (NaN): add to its "
                  "diagonal first, A + eye(eps, \"%s\")",
                  describe(t, a), axis);
    if (n->op == OP_POWER && (n->imm < 0 || n->imm != floor(n->imm)) && bare && !(n->sym & FLOORED))
        warn_node(t, n,
                  "%s is a Gram matrix, which may be singular: eigenvalues that are 0 or negative "
                  "by rounding give NaN "
                  "or huge values; lift them: power(A, %s, { ridge = eps }), or relative, or floor",
                  describe(t, a), arena_printf(t->arena, "%.4g", n->imm));
}

/* ---- p ---- */
static bool moves(const Rule *r, bool matrix)
{
    for (int v = 0; v < r->nvariant; v++)
        for (int i = 0; r->variant[v].ntest && r->variant[v].test[0].yes == matrix &&
                        i < r->entry[0].body[v].n;
             i++)
            if (r->entry[0].body[v].w[i].state == TO_P)
                return true;
    return false;
}

/* Warns if one of `step` and `matrix` changes p and the other never does. If neither does, another
 * entry changes it. */
static void check_bodies(Trace *t)
{
    const Rule *r = t->rule;
    bool matrix = moves(r, true);
    if (!r->variant[0].ntest || r->variant[0].test[0].kind != TEST_MATRIX ||
        matrix == moves(r, false))
        return;
    const char *name = matrix ? "step" : "matrix";
    for (int i = t->nspec - 1; i >= 0; i--) {
        int line = entry_line(t, &t->spec[i], name);
        if (!line)
            continue;
        warn_at(t, &t->spec[i], line,
                "'%s' never assigns p: %s would never move; assign it, as in p = p - lr * g (a "
                "result that is "
                "returned, and a local or an argument named p, change nothing)",
                name, matrix ? "tensors that are no matrices" : "matrices");
        return;
    }
}

void warn_rule(Trace *t)
{
    const Graph *g = &t->rule->g;
    Facts f = {0};
    look(t->rule, &f);
    f.vectors = NEWS(t->arena, Ref, g->len + 1);
    f.values = NEWS(t->arena, Ref, g->len + 1);
    f.transposed = NEWS(t->arena, bool, g->len + 1);
    for (Ref r = 0; r < g->len; r++) {
        eigen_facts(g, &f, r);
        check_scaling(t, &f, &g->n[r]);
        check_factor(t, &f, &g->n[r]);
    }
    check_bodies(t);
    for (int i = 0; i < t->nall; i++)
        if (lint_local(t, &t->spec[i], "p"))
            warn_at(t, &t->spec[i], lint_local(t, &t->spec[i], "p"),
                    "a local named p hides the parameter: what is assigned to it changes nothing; "
                    "write p = … for the "
                    "update, and another name for an intermediate");
}

/* ---- hyperparameters ---- */
/* After the compiler passes the graph has only values that some entry needs. So a hyperparameter
 * without a node is never read. */
bool rule_unread(Buf *b, const Rule *r, int h)
{
    /* stores that round stochastically read it */
    if (h == rule_seed(r))
        return false;
    for (Ref i = 0; i < r->g.len; i++) {
        const Node *n = &r->g.n[i];
        if ((n->op == OP_HYPER || n->op == OP_RANDOM || n->op == OP_NORMAL) && n->sym == h)
            return false;
    }
    for (int i = 0; i < r->nstate; i++)
        if (r->state[i].init == INIT_HYPER && r->state[i].hyper == h)
            return false;
    buf_printf(b, "nothing reads the hyperparameter '%s'", r->hyper[h].name);
    for (int i = 0; i < r->noption; i++)
        buf_printf(b, "%s%s=%s", i ? ", " : " with ", r->option[i].name, r->option[i].value);
    return true;
}
