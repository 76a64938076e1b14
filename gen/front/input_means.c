/* Scalar inputs of a rule that steps once for several gradients. A wrapper adds them up in the
 * steps between, add_inputs(), and the rule then reads their mean, inner { mean = n }. Every input
 * has a sum, a group state of the wrapper. It is declared at the first add_inputs(), because only
 * specs inside of the wrapper have such inputs, and it is kept in checkpoints as other states
 * are. */
#include "gen/front/trace.h"

#include <string.h>

/* The sum of input i for the wrapper that runs; NONE: add_inputs() has not declared it. */
static int find_sum(const Trace *t, int i)
{
    const int *sum = t->spec[t->at].input_sum;
    return sum && sum[i] ? sum[i] - 1 : NONE;
}

/* accumulate.sum_loss; inputs of wrappers are accumulate.sum_scaled_loss. */
static const char *sum_name(Trace *t, int i)
{
    const char *prefix = t->spec[t->at].prefix;
    char *bare = arena_strdup(t->arena, t->rule->input[i].name);
    for (char *c = bare; (c = strchr(c, '.'));)
        *c = '_';
    const char *name = arena_printf(t->arena, "%ssum_%s", prefix, bare);
    for (int k = 0; k < t->rule->nstate; k++)
        if (!strcmp(t->rule->state[k].name, name))
            name = arena_printf(t->arena, "%s_", name), k = -1;
    return name;
}

static int declare_sum(lua_State *L, int i)
{
    Trace *t = trace_of(L);
    SpecFile *s = &t->spec[t->at];
    Rule *r = t->rule;
    int n = r->nstate;
    if (n >= MAX_STATES)
        spec_error(L, "over %d states, with the sums of inputs", MAX_STATES);
    const Graph *g = trace_here(t);
    State x = {.name = sum_name(t, i), .dom = GROUP, .type = -1, .hyper = -1, .file = g->file,
               .line = g->line};
    PUSH(t->arena, r->state, r->nstate, r->state_cap) = x;
    t->state[n] = leaf(t, OP_STATE, GROUP, n);
    t->read[n] = t->written[n] = true;
    s->input_sum = s->input_sum ? s->input_sum : NEWS(t->arena, int, r->ninput);
    s->input_sum[i] = n + 1;
    return n;
}

/* Calls f for every scalar input of the specs inside of the wrapper that runs. */
typedef void (*EachInput)(lua_State *L, int i, Ref count);
static void each_input(lua_State *L, EachInput f, Ref count)
{
    const Trace *t = trace_of(L);
    for (int k = t->at + 1; k < t->nall; k++)
        for (int i = 0; i < t->spec[k].ninput; i++)
            if (t->rule->input[t->spec[k].input[i]].dom == GROUP)
                f(L, t->spec[k].input[i], count);
}

Ref input_value(Trace *t, int i)
{
    return t->input && t->input[i] != NONE ? t->input[i]
                                           : leaf(t, OP_INPUT, t->rule->input[i].dom, i);
}

static void add_input(lua_State *L, int i, Ref count)
{
    Trace *t = trace_of(L);
    int n = find_sum(t, i);
    (void)count;
    n = n == NONE ? declare_sum(L, i) : n;
    t->state[n] = trace_op(L, OP_ADD, t->state[n], input_value(t, i));
}

int l_add_inputs(lua_State *L)
{
    Trace *t = trace_of(L);
    lang_count(L, "add_inputs", 0, 0);
    if (t->at < 0 || !t->spec[t->at].is_wrapper)
        return spec_error(
            L, "add_inputs() is for entries of wrappers: it adds up the scalar inputs of "
               "the rule inside");
    each_input(L, add_input, NONE);
    return push_nothing(L);
}

static void take_mean(lua_State *L, int i, Ref count)
{
    Trace *t = trace_of(L);
    int n = find_sum(t, i);
    if (n == NONE)
        spec_error(
            L,
            "inner { mean = … }: nothing has added up the input '%s': call add_inputs() ahead "
            "of the block",
            t->rule->input[i].name);
    t->input[i] = trace_op(L, OP_DIV, t->state[n], count);
    t->state[n] = trace_copy(t, node_const(&t->rule->g, 0), GROUP);
}

static void note_arrays(Trace *t)
{
    const SpecFile *w = &t->spec[t->at];
    for (int k = t->at + 1; k < t->nall; k++)
        for (int i = 0; i < t->spec[k].ninput; i++) {
            const Input *x = &t->rule->input[t->spec[k].input[i]];
            if (x->dom != GROUP)
                t->rule->note = arena_printf(
                    t->arena,
                    "%s takes the mean of scalar inputs only: '%s', which has one value per %s, is "
                    "read as it is at the step of the rule inside",
                    w->name, x->name, dom_info[x->dom].name);
        }
}

void inputs_start(Trace *t)
{
    t->input = t->rule->ninput ? NEWS(t->arena, Ref, t->rule->ninput) : NULL;
    for (int i = 0; i < t->rule->ninput; i++)
        t->input[i] = NONE;
}

void inputs_mean(lua_State *L, Ref count)
{
    Trace *t = trace_of(L);
    const Node *n = &t->rule->g.n[count];
    if (n->ty != NUM || !dom_spreads((Dom)n->dom, GROUP))
        spec_error(
            L,
            "inner { mean = … } takes the number of steps that add_inputs() has added, one per "
            "group, not %s",
            describe(t, count));
    each_input(L, take_mean, count);
    note_arrays(t);
}
