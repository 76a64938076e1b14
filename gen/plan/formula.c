/* Prints values as formulas, from the forms of ops.def: infix operators stay infix, all other forms
 * become calls. */
#include "gen/plan/formula.h"

#include <string.h>

enum { DEEPEST = 8, POWER = 6, CALL = 9 };

typedef struct Writer { const Rule *rule; const Phase *phase; const Graph *g; Buf *b; } Writer;

static const Node *arg_of(const Graph *g, const Node *n, int k) { return &g->n[n->arg[k]]; }
static bool is_square(const Node *n) { return n->op == OP_MUL && n->arg[0] == n->arg[1]; }

/* The sum of squares under a norm, or NULL. */
static const Node *squares_under(const Graph *g, const Node *n)
{
    const Node *a = n->op == OP_SQRT ? arg_of(g, n, 0) : NULL;
    if (a && a->op == OP_GSUM && arg_of(g, a, 0)->op == OP_SUM)
        a = arg_of(g, a, 0);
    return a && a->op == OP_SUM && is_square(arg_of(g, a, 0)) ? a : NULL;
}

/* The norm of one tensor from which a global norm is computed, or NULL. */
static const Node *norms_under(const Graph *g, const Node *n)
{
    const Node *a = n->op == OP_SQRT ? arg_of(g, n, 0) : NULL,
               *b = a && a->op == OP_GSUM ? arg_of(g, a, 0) : NULL;
    return b && is_square(b) && arg_of(g, b, 0)->op == OP_NORM ? arg_of(g, b, 0) : NULL;
}

static bool is_mean(const Graph *g, const Node *n)
{
    return n->op == OP_DIV && arg_of(g, n, 0)->op == OP_SUM && arg_of(g, n, 1)->op == OP_COUNT;
}

bool formula_part(const Graph *g, const Node *n)
{
    return is_global(n) || is_mean(g, n) || squares_under(g, n) || norms_under(g, n);
}

/* ---- leaves ---- */
static const char *count_name(const Node *n)
{
    return n->from == ELEM && n->dom == TENSOR ? "numel"
           : n->from == ROW && (n->dom == SLICE || n->dom == BLOCK) ? "nrows"
           : n->from == COL && (n->dom == SLICE || n->dom == BLOCK) ? "ncols"
                                               : "count";
}

static bool put_leaf(Writer *w, const Node *n)
{
    switch (n->op) {
    case OP_P: buf_puts(w->b, "p"); return true;
    case OP_G: buf_puts(w->b, "g"); return true;
    case OP_STEP: buf_puts(w->b, "t"); return true;
    case OP_SLOT: buf_puts(w->b, "slot"); return true;
    case OP_HYPER: buf_puts(w->b, w->rule->hyper[n->sym].name); return true;
    case OP_STATE: buf_puts(w->b, w->rule->state[n->sym].name); return true;
    case OP_INPUT: buf_puts(w->b, w->rule->input[n->sym].name); return true;
    case OP_COUNT: buf_puts(w->b, count_name(n)); return true;
    case OP_CONST: buf_double(w->b, n->imm); return true;
    case OP_DOWN: buf_puts(w->b, "down"); return true;
    case OP_ACROSS: buf_puts(w->b, "across"); return true;
    case OP_EVERY:
        buf_printf(w->b, "every %g", n->imm);
        if (n->sym)
            buf_printf(w->b, " from %d", n->sym);
        return true;
    case OP_RANDOM:
    case OP_NORMAL: buf_printf(w->b, "%s()", op_info[n->op].name); return true;
    default: return false;
    }
}

/* The name of the target that the value is written to: p or a state. NULL: none. */
static const char *written_to(const Writer *w, Ref v)
{
    for (int k = 0; k < w->rule->nvariant; k++)
        for (int i = 0; i < w->phase->body[k].n; i++)
            if (w->phase->body[k].w[i].val == v) {
                int32_t state = w->phase->body[k].w[i].state;
                return state == TO_P ? "p" : w->rule->state[state].name;
            }
    return NULL;
}

/* ---- operations ---- */
static void put_value(Writer *w, Ref v, int depth, int binds);

static const char *where(const Node *red)
{
    if (red->dom == ROW || red->dom == COL)
        return dom_info[red->dom].name;
    return red->dom == SLICE || red->dom == BLOCK ? "slice." : "";
}

static void put_reduction(Writer *w, const Node *n, const char *global, const char *word, int depth)
{
    buf_printf(w->b, "%s%s%s(", global, where(n), word);
    put_value(w, n->arg[0], depth - 1, 0);
    buf_puts(w->b, ")");
}

/* Prints sum, mean, norm, max and min over rows, columns, matrices, tensors or all tensors; false:
 * n is none. */
static bool put_known(Writer *w, const Node *n, int depth)
{
    const Node *a = n->nargs ? arg_of(w->g, n, 0) : NULL, *squares = squares_under(w->g, n);
    if (squares) {
        buf_printf(w->b, "%s%snorm(", a->op == OP_GSUM ? "global." : "", where(squares));
        put_value(w, arg_of(w->g, squares, 0)->arg[0], depth - 1, 0);
        buf_puts(w->b, ")");
    } else if (norms_under(w->g, n)) {
        put_reduction(w, norms_under(w->g, n), "global.", "norm", depth);
    } else if (is_mean(w->g, n)) {
        put_reduction(w, a, "", "mean", depth);
    } else if (is_global(n)) {
        static const char *const word[NOPS] = {
            [OP_GSUM] = "sum", [OP_GMAX] = "max", [OP_GMIN] = "min"};
        /* per tensor, then over all tensors */
        bool through = is_red(a) && a->op - OP_SUM == n->op - OP_GSUM;
        put_reduction(w, through ? a : n, "global.", word[n->op], depth);
    } else if (is_red(n)) {
        put_reduction(w, n, "",
                      n->op == OP_RMAX   ? "max"
                      : n->op == OP_RMIN ? "min"
                                         : op_info[n->op].name,
                      depth);
    } else {
        return false;
    }
    return true;
}

static bool is_infix(const OpInfo *o)
{
    return (o->kind == K_NUM || o->kind == K_CMP) && o->binds < CALL &&
           (o->form[0] == '%' || o->form[0] == '-');
}

/* Prints an infix form. Operands that bind less tightly than the form get parentheses. */
static void put_infix(Writer *w, const Node *n, const char *form, int own, int depth, int binds)
{
    if (own && own < binds)
        buf_puts(w->b, "(");
    for (const char *s = form; *s; s++)
        if (*s == '%' && s[1] >= 'a' && s[1] <= 'c') {
            int k = *++s - 'a';
            put_value(w, n->arg[k], depth - 1, own ? own + (k > 0) : binds);
        } else {
            buf_add(w->b, s, 1);
        }
    if (own && own < binds)
        buf_puts(w->b, ")");
}

static void put_transposed(Writer *w, Ref v, bool transposed, int depth)
{
    put_value(w, v, depth - 1, transposed ? CALL : 0);
    buf_puts(w->b, transposed ? ".T" : "");
}

/* factor * mm(a, b) + factor * c + diagonal * I. Factors of 1, a missing c and a diagonal of 0 are
 * left out. Six digits suffice here: coefficients of polar have up to 17. */
static void put_product(Writer *w, const Node *n, int depth, int binds)
{
    bool add = n->nargs > 2 && n->arg[2] != NONE, sum = add || n->diagonal != 0;
    if (sum && binds > 0)
        buf_puts(w->b, "(");
    if (n->imm != 1)
        buf_printf(w->b, "%.6g * ", n->imm);
    buf_puts(w->b, "mm(");
    put_transposed(w, n->arg[0], n->sym & TRANS_A, depth);
    buf_puts(w->b, ", ");
    put_transposed(w, n->arg[1], n->sym & TRANS_B, depth);
    buf_puts(w->b, ")");
    if (add) {
        buf_puts(w->b, " + ");
        if (n->beta != 1)
            buf_printf(w->b, "%.6g * ", n->beta);
        put_value(w, n->arg[2], depth - 1, CALL);
    }
    if (n->diagonal != 0)
        buf_printf(w->b, " + %.6g * I", n->diagonal);
    if (sum && binds > 0)
        buf_puts(w->b, ")");
}

/* ", -0.25, { floor = x, last = X }": the arguments of a factor after its matrix */
static void put_options(Writer *w, const Node *n, int depth)
{
    const char *before = ", { ";
    if (facts_of(n)->traits & EXPONENT) {
        buf_puts(w->b, ", ");
        buf_double(w->b, n->imm);
    }
    if (n->op == OP_EIGH && n->dom != n->from)
        buf_puts(w->b, ", \"rank\"");
    if (n->sym & OF_COLS)
        buf_puts(w->b, ", \"cols\"");
    if (n->sym & FROM_RIGHT) {
        buf_printf(w->b, "%sright = true", before);
        before = ", ";
    }
    if (n->sym & FLOORED) {
        buf_printf(w->b, "%sfloor = ", before);
        put_value(w, n->arg[call_operand(n, 1)], depth - 1, 0);
        before = ", ";
    }
    if (n->sym & KEEP_LAST) {
        buf_printf(w->b, "%slast = ", before);
        put_value(w, n->arg[call_operand(n, 2)], depth - 1, 0);
    }
    if (n->sym & (FLOORED | KEEP_LAST | FROM_RIGHT))
        buf_puts(w->b, " }");
}

static void put_op(Writer *w, const Node *n, int depth, int binds)
{
    const OpInfo *o = &op_info[n->op];
    if (put_known(w, n, depth))
        return;
    if (n->op == OP_MM) {
        put_product(w, n, depth, binds);
        return;
    }
    if (n->op == OP_TRANSPOSE) {
        put_transposed(w, n->arg[0], true, depth);
        return;
    }
    if (n->op == OP_POW || n->op == OP_POWI) {
        put_infix(w, n, "%a ^ %b", POWER, depth, binds);
    } else if (is_infix(o)) {
        put_infix(w, n, o->form, o->binds, depth, binds);
    } else {
        int own = is_call(n) ? o->arity : n->nargs;
        buf_printf(w->b, "%s(", o->name);
        for (int k = 0; k < own; k++) {
            buf_puts(w->b, k ? ", " : "");
            if (is_call(n) && !k && n->sym & TRANS_A)
                put_transposed(w, n->arg[k], true, depth);
            else
                put_value(w, n->arg[k], depth - 1, 0);
        }
        if (is_call(n))
            put_options(w, n, depth);
        buf_puts(w->b, ")");
    }
}

static void put_value(Writer *w, Ref v, int depth, int binds)
{
    const Node *n = &w->g->n[v];
    if (put_leaf(w, n))
        return;
    const char *name = n->name ? n->name : written_to(w, v);
    if (name)
        buf_puts(w->b, name);
    else if (depth <= 0)
        buf_puts(w->b, "…");
    else
        put_op(w, n, depth, binds);
}

static int length(const char *s)
{
    int n = 0;
    for (; *s; s++)
        n += (*s & 0xc0) != 0x80;
    return n;
}

static const char *shortened(Arena *a, const Rule *r, const Phase *ph, Ref v, int most, bool open)
{
    for (int depth = DEEPEST;; depth--) {
        Buf b = {.arena = a};
        Writer w = {r, ph, ph->g, &b};
        const Node *n = &ph->g->n[v];
        if (open && !is_leaf(n))
            put_op(&w, n, depth, 0);
        else
            put_value(&w, v, depth, 0);
        if (depth <= 1 || length(buf_text(&b)) <= most)
            return buf_text(&b);
    }
}

const char *formula(Arena *a, const Rule *r, const Phase *ph, Ref v, int most)
{
    return shortened(a, r, ph, v, most, false);
}

const char *formula_of(Arena *a, const Rule *r, const Phase *ph, Ref v, int most)
{
    return shortened(a, r, ph, v, most, true);
}
