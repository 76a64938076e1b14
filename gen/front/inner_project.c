/* Projections, inner { g = x }: the inner rule steps x in place of the gradient. x varies over the
 * axis rank and one more, so it has fewer values than the tensor has elements (GaLore). The inner
 * rule's p is 0, so its result is a change of p. Its states have one value per value of x and their
 * own names (twins), beside the states for whole tensors. */
#include "gen/front/declare.h"
#include "gen/front/matrix_values.h"
#include "gen/front/rings.h"

#include <string.h>

Dom project_dom(const Trace *t, Dom d) { return d == ELEM ? t->elem : d; }

/* The twin of state i in the projection. */
int project_state(lua_State *L, int i)
{
    Trace *t = trace_of(L);
    const State *s = &t->rule->state[i];
    if (t->elem == ELEM || !dom_inside(s->dom))
        return i;
    for (int k = 0; k < t->rule->nstate; k++)
        if (t->twin_of[k] == i + 1 && t->rule->state[k].dom == t->elem)
            return k;
    const char *rule = t->spec[t->at].name;
    if (s->init == INIT_COPY_P)
        return spec_error(L,
                          "'%s' starts as p, which a projection does not have ('%s' inside of "
                          "'%s'): leave out the "
                          "wrapper",
                          s->name, rule, t->projects);
    return spec_error(
        L,
        "'%s' has one value per %s: a rule that steps a projection keeps values by element, tensor "
        "and group ('%s' inside of '%s'); leave out the wrapper",
        s->name, dom_info[s->dom].name, rule, t->projects);
}

static void add_twin(lua_State *L, Trace *t, int i)
{
    Rule *r = t->rule;
    State s = r->state[i];
    for (int k = 0; k < r->nstate; k++)
        if (t->twin_of[k] == i + 1 && r->state[k].dom == t->elem)
            return;
    if (r->nstate >= MAX_STATES)
        spec_error(L, "over %d states, with those of projections", MAX_STATES);
    /* a ring's states keep their number at the end */
    const char *dom = dom_info[t->elem].name;
    s.name = s.ring ? arena_printf(t->arena, "%s_%s_%d", ring_name(t->arena, &s), dom, s.age)
                    : arena_printf(t->arena, "%s_%s", s.name, dom);
    s.dom = t->elem;
    for (int k = 0; k < r->nstate; k++)
        if (!strcmp(r->state[k].name, s.name))
            spec_error(L,
                       "the state '%s' has the same name as a state of the projection: rename it",
                       s.name);
    int k = r->nstate;
    PUSH(t->arena, r->state, r->nstate, r->state_cap) = s;
    t->twin_of[k] = i + 1;
    t->state[k] = node_leaf(&r->g, OP_STATE, s.dom, k, 0);
}

/* p is 0 for the inner rule, so its weight decay would silently have no effect: weight_decay is
 * fixed to 0. */
void forbid_decay(Trace *t)
{
    const SpecFile *s = &t->spec[t->nspec - 1];
    for (int k = 0; k < s->nhyper; k++) {
        Hyper *h = &t->rule->hyper[s->hyper[k]];
        if (!strcmp(h->name, "weight_decay"))
            *h = (Hyper){h->name, 0, 0, 0, false, false};
    }
}

/* Adds all twins before the inner rule runs: the blocks around it identify states by number. */
void project_open(lua_State *L, Ref g, bool apart)
{
    Trace *t = trace_of(L);
    const Node *n = &t->rule->g.n[g];
    Dom d = (Dom)n->dom;
    const Axis *a = dom_info[d].axis;
    if (t->elem != ELEM)
        spec_error(L, "inner { g = … } is inside of another projection: only one is possible");
    if (n->ty != NUM || !dom_square(d) || dom_of_block(d) ||
        (a[0] == AXIS_RANK) == (a[1] == AXIS_RANK))
        spec_error(
            L,
            "inner { g = … } takes values over rank and rows or cols, such as mm(P.T, g), not %s",
            describe(t, g));
    if (!apart)
        forbid_decay(t);
    t->elem = d;
    t->projects = t->spec[t->at].name;
    t->g = g;
    t->p = trace_copy(t, node_const(&t->rule->g, 0), d);
    for (int i = t->at + 1; i < t->nall; i++)
        for (int k = 0; k < t->spec[i].nstate; k++) {
            const State *s = &t->rule->state[t->spec[i].state[k]];
            if (s->dom == ELEM && s->init != INIT_COPY_P && !s->report)
                add_twin(L, t, t->spec[i].state[k]);
        }
}
