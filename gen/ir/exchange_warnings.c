/* pass_exchange: warns of entries that exchange the parameters with a wider state, as ema's to_eval
 * does. The state's values are rounded to the type of the parameters and come back rounded. */
#include "gen/ir/rule_passes.h"

/* The value is this leaf, or a choice between it and something else. */
static bool chooses(const Rule *r, Ref v, Op op, int sym)
{
    const Node *n = &r->g.n[v];
    if (n->op == OP_WHERE)
        return chooses(r, n->arg[1], op, sym) || chooses(r, n->arg[2], op, sym);
    return (Op)n->op == op && (op == OP_P || n->sym == sym);
}

/* The value is the parameter or the state, or a choice between them: it has no more digits than the
 * parameter. */
static bool only_moves(const Rule *r, Ref v, int state)
{
    const Node *n = &r->g.n[v];
    if (n->op == OP_WHERE)
        return only_moves(r, n->arg[1], state) && only_moves(r, n->arg[2], state);
    return n->op == OP_P || (n->op == OP_STATE && n->sym == state);
}

static bool has_own_values(const Rule *r, int state)
{
    for (int e = 0; e < r->nentry; e++)
        for (int v = 0; v < r->nvariant; v++)
            for (int k = 0; k < r->entry[e].body[v].n; k++) {
                Write w = r->entry[e].body[v].w[k];
                if (w.state == state && !only_moves(r, w.val, state))
                    return true;
            }
    return false;
}

/* Where one body writes the state into p and p into the state; NONE: nowhere. */
static Ref exchange_in(const Rule *r, const Body *b, int state)
{
    Ref into_p = NONE;
    bool kept = false;
    for (int k = 0; k < b->n; k++) {
        if (b->w[k].state == TO_P && chooses(r, b->w[k].val, OP_STATE, state))
            into_p = b->w[k].val;
        kept = kept || (b->w[k].state == state && chooses(r, b->w[k].val, OP_P, 0));
    }
    return kept ? into_p : NONE;
}

static void warn_exchange(Rule *r, Type p, int entry, int state, Ref at)
{
    const Node *n = &r->g.n[at];
    bool known = n->line && n->file >= 0 && n->file < r->nfile;
    Place place = {known ? n->file : 0, known ? n->line : 0, known ? r->file[n->file] : NULL,
                   known && n->file < r->ntext ? r->text[n->file] : NULL};
    rule_warn(
        r, place,
        arena_printf(r->arena,
                     "entry '%s' puts state '%s' into the parameters, and %s rounds it for good: "
                     "choose types master=%s if you run this entry",
                     r->entry[entry].name, r->state[state].name, type_info[p].name,
                     p == T_BF16 ? "low16" : "f32"));
}

bool pass_exchange(Rule *r, const Types *t, const char *path, Diag *d)
{
    (void)path;
    (void)d;
    for (int i = 0; i < r->nstate; i++)
        /* master=: the parameters have all bits */
        if (r->state[i].follows_p && !r->state[i].report)
            return true;
    for (int i = 0; i < r->nstate; i++) {
        Type type = type_of_state(&r->state[i], t->p, t->state);
        Ref at = NONE;
        if (type_info[type].digits <= type_info[t->p].digits || !has_own_values(r, i))
            continue;
        for (int e = 0; e < r->nentry && at == NONE; e++)
            for (int v = 0; v < r->nvariant && at == NONE; v++)
                if ((at = exchange_in(r, &r->entry[e].body[v], i)) != NONE)
                    warn_exchange(r, t->p, e, i, at);
    }
    return true;
}
