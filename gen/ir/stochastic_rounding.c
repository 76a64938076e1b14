/* Types whose stores round stochastically (templates/rounding.h): refuses states that cannot be
 * stored this way, and gives the rule the hyperparameter `seed` if it has none. Runs after
 * pass_storage, which refuses gradients of these types. */
#include "gen/ir/rule_passes.h"

/* As chosen, also for states that are f64 whatever was chosen: those are refused too. */
static Type state_type(const State *s, const Types *t)
{
    return s->type >= 0 ? (Type)s->type : type_of_state(s, t->p, t->state);
}

static Type drawn_type(const Rule *r, const Types *t, int state)
{
    return state == TO_P ? t->p : state_type(&r->state[state], t);
}

static const char *plain_name(Type t) { return type_info[plain_type((int)t)].name; }

static bool refuse_state(const Rule *r, const State *s, Type t, Diag *d)
{
    diag_set(d, r->nfile ? r->file[s->file] : NULL, s->line, r->ntext ? r->text[s->file] : NULL,
             "state '%s' has a value per %s, and %s is for states with a value per element: use %s",
             s->name, dom_info[s->dom].name, type_info[t].name, plain_name(t));
    return false;
}

static bool refuse_stored(const Rule *r, const Node *n, Type t, Diag *d)
{
    const char *name = n->sym == TO_P ? "p" : r->state[n->sym].name;
    diag_set(d, r->nfile ? r->file[n->file] : NULL, n->line, r->ntext ? r->text[n->file] : NULL,
             "stored \"%s\": '%s' is stored as %s, which rounds stochastically when the step ends; "
             "use %s",
             name, name, type_info[t].name, plain_name(t));
    return false;
}

bool pass_stochastic_rounding(Rule *r, const Types *t, const char *path, Diag *d)
{
    (void)path;                                    /* rules have the names of their files */
    bool any = type_draws(t->p);
    for (int i = 0; i < r->nstate; i++) {
        Type is = state_type(&r->state[i], t);
        any = any || type_draws(is);
        if (type_draws(is) && r->state[i].dom != ELEM)
            return refuse_state(r, &r->state[i], is, d);
    }
    for (Ref i = 0; i < r->g.len && any; i++) {
        const Node *n = &r->g.n[i];
        if (n->op == OP_STORED && type_draws(drawn_type(r, t, n->sym)))
            return refuse_stored(r, n, drawn_type(r, t, n->sym), d);
    }
    if (any && rule_seed(r) < 0)
        PUSH(r->arena, r->hyper, r->nhyper, r->hyper_cap) = SEED_HYPER;
    return true;
}
