/* Checks that a rule is well formed. Runs after every pass; a failure is a bug of the pass before
 * it (or IR text written by hand), so messages name nodes. */
#include "gen/ir/rule_passes.h"

#include <math.h>
#include <string.h>

/* Each leaf has a fixed domain, and its hyperparameter, state or input must exist. */
static const char *bad_leaf(const Rule *r, const Node *n)
{
    int limit = n->op == OP_HYPER || n->op == OP_RANDOM || n->op == OP_NORMAL ? r->nhyper
              : n->op == OP_STATE || n->op == OP_SLOT ? r->nstate : n->op == OP_INPUT ? r->ninput
              : n->op == OP_EVERY ? INT32_MAX : 1;
    if (n->sym < 0 || n->sym >= limit)
        return "it names a hyperparameter, state or input that does not exist";
    bool right = true;
    switch (n->op) {
    case OP_CARRIED: return "this operation exists only inside the planner";
    case OP_CONST: right = n->dom == CONST_; break;
    case OP_P: case OP_G: right = n->dom == ELEM; break;
    case OP_STEP: case OP_HYPER: right = n->dom == GROUP; break;
    case OP_SLOT:
        if (!r->state[n->sym].slots.every)
            return "'slot' reads a state that has no slots";
        right = n->dom == GROUP;
        break;
    case OP_STATE: return n->dom == r->state[n->sym].dom ? NULL : "its domain is not its state's";
    case OP_INPUT: return n->dom == r->input[n->sym].dom ? NULL : "its domain is not its input's";
    case OP_RANDOM: case OP_NORMAL:
        if (!(n->imm >= 0 && n->imm < 256 && n->imm == floor(n->imm)))
            return "the stream of random numbers must be a whole number below 256";
        right = dom_info[n->dom].scope >= SCOPE_TENSOR;
        break;
    case OP_EVERY:
        if (!(n->imm >= 1 && n->imm <= 1e9 && n->imm == floor(n->imm)))
            return "'every' needs a whole number from 1 to 1e9";
        if (n->sym >= n->imm)
            return "the offset of 'every' must be below its period";
        right = n->dom == GROUP;
        break;
    case OP_DOWN: case OP_ACROSS: right = dom_square((Dom)n->dom) && n->dom != ELEM_T; break;
    case OP_COUNT:
        right = !dom_fixed((Dom)n->dom) && n->from != n->dom && n->from < NDOM &&
                (dom_spreads((Dom)n->dom, (Dom)n->from) ||
                 (n->dom == BLOCK && dom_spreads(SLICE, (Dom)n->from))) &&
                !(n->dom == GROUP && n->from != ELEM && n->from != TENSOR);
        break;
    default: break;
    }
    return right ? NULL : "a leaf outside its own domain";
}

/* Shapes of a product: the inner axes are equal, and the result has the outer axes. */
static const char *bad_product(const Graph *g, const Node *n)
{
    Dom a = (Dom)g->n[n->arg[0]].dom, b = (Dom)g->n[n->arg[1]].dom;
    if (n->sym & ~(int)callee_facts[CALL_MM].flags)
        return "a product has a flag that products do not take";
    int own = n->sym & OWN_PRECISION;
    if (own & (own - 1))
        return "a product has two precisions";
    MatrixAxes x = dom_matrix(a, n->sym & TRANS_A), y = dom_matrix(b, n->sym & TRANS_B);
    if (dom_wide(a) || dom_wide(b) || x.across != y.down || x.across == AXIS_ONE || n->from != a)
        return "the inner axes of the operands differ";
    Dom out = dom_product(x.down, y.across);
    if (dom_wide((Dom)n->dom) || n->dom == ELEM_T ||
        n->dom != (n->sym & BLOCKED ? dom_blocked(out) : out))
        return "the product's domain does not follow from its operands";
    if (n->sym & SYMMETRIC && x.down != y.across)
        return "a symmetric product over two different axes";
    if (n->nargs == 3 && g->n[n->arg[2]].dom != n->dom)
        return "a third operand that is not of the product's domain";
    if (!isfinite(n->imm) || !isfinite(n->beta) || (n->nargs == 2 && n->beta != 0))
        return "alpha or beta is not finite, or beta has no third operand";
    if (!isfinite(n->diagonal) || (n->diagonal != 0 && !(n->sym & SYMMETRIC)))
        return "the diagonal is not finite, or the product is not symmetric";
    return NULL;
}

/* Flags and numbers of a factor. */
static const char *bad_words(const Node *n)
{
    const CalleeFacts *x = facts_of(n);
    bool power = x->traits & EXPONENT;
    if (n->sym & ~(int)x->flags)
        return "a factor has a flag that it does not take";
    if (!isfinite(n->imm) || (power ? n->imm == 0 : n->imm != 1))
        return "the exponent of a factor is out of range";
    if (power ? !(n->beta > 0 && n->beta < 1) : n->beta != 0)
        return "the lower bound of the eigenvalues is out of range";
    return NULL;
}

static bool call_fits(const Node *n)
{
    switch (facts_of(n)->fits) {
    case FITS_LINE: return sort_fits((unsigned)n->sym, (Dom)n->from, (Dom)n->dom);
    case FITS_TAKEN: return take_fits((unsigned)n->sym, (Dom)n->from, (Dom)n->dom);
    default: return factor_fits(callee_of(n), (unsigned)n->sym, (Dom)n->from, (Dom)n->dom);
    }
}

/* The domain is of blocks exactly if the call is BLOCKED; elements fit both. */
static bool blocks_fit(const Node *n, Dom d)
{
    return d == ELEM || ((n->sym & BLOCKED) != 0) == dom_of_block(d);
}

static const char *bad_factor(const Graph *g, const Node *n)
{
    if (g->n[n->arg[0]].dom != n->from)
        return "the factor's operand has another domain than its matrix";
    if (!call_fits(n) || !blocks_fit(n, (Dom)n->dom) || !blocks_fit(n, (Dom)n->from))
        return "a factor of a domain that has no such factor";
    for (int k = 1; k < n->nargs; k++) {
        Dom want = call_operand_dom(n, k), d = (Dom)g->n[n->arg[k]].dom;
        if (d != want && !(!dom_square(want) && d == dom_transposed(want)))
            return "an operand has another shape than the factor takes";
    }
    return bad_words(n);
}

/* The node's domain follows from the join of its operands' domains; reductions, transposes and
 * calls have more conditions. */
static const char *bad_domain(const Rule *r, const Node *n, Dom join)
{
    const Graph *g = &r->g;
    switch (op_info[n->op].kind) {
    case K_LEAF: return NULL;
    case K_CALL: return n->op == OP_MM ? bad_product(g, n) : bad_factor(g, n);
    case K_TRANSPOSE: {
        const Node *x = &g->n[n->arg[0]];
        return x->op == OP_TRANSPOSE || x->ty == BOOL || dom_wide((Dom)x->dom) ||
                       n->dom != dom_transposed((Dom)x->dom)
                   ? "a transpose of a value that has no transpose, or with a wrong domain"
                   : NULL;
    }
    case K_RED:
        if ((is_global(n) ? n->dom != GROUP
                          : dom_info[n->dom].scope < SCOPE_TENSOR || join == n->dom ||
                                !dom_spreads((Dom)n->dom, join)) ||
            n->from != join || !dom_folds(join, (Dom)n->dom))
            return "a reduction to a domain that is not below its operand's";
        return NULL;
    default: return dom_spreads(join, (Dom)n->dom) ? NULL : "its domain is below an operand's";
    }
}

/* Optional operands of a call. */
static int more_operands(const Node *n)
{
    if (n->op == OP_MM)
        return n->nargs == 3;
    return is_call(n) ? ((n->sym & FLOORED) != 0) + ((n->sym & KEEP_LAST) != 0) : 0;
}

static const char *bad_node(const Rule *r, Ref i)
{
    const Graph *g = &r->g;
    const Node *n = &g->n[i];
    if (n->op >= NOPS || n->dom >= NDOM || n->ty > BOOL)
        return "unknown operation, domain or type";
    const OpInfo *o = &op_info[n->op];
    Dom join = CONST_;
    int args = is_global(n) ? r->nvariant : o->arity + more_operands(n);
    if (n->dom == ELEM_T)
        return "transposed elements may occur only as a flag of a product's operand";
    if (r->block ? dom_square((Dom)n->dom) && dom_blocked((Dom)n->dom) != (Dom)n->dom
                 : dom_of_block((Dom)n->dom))
        return r->block ? "a value over two axes in a rule with blocks is not per block"
                        : "a value per block in a rule without 'block'";
    if (is_call(n) && (r->block > 0) != ((n->sym & BLOCKED) != 0))
        return "a product is blocked in a rule without 'block', or not blocked in a rule with it";
    if (n->op == OP_MM && n->sym & (IN_F32 | IN_TF32) && r->product >= 0 &&
        !product_mixes((Product)r->product))
        return "a product has a precision of its own in a rule whose products are not stored in "
               "f32";
    if (n->nargs != args)
        return n->nargs > args ? "too many operands" : "an operand is missing";
    for (int k = 0; k < args; k++) {
        if (n->arg[k] < 0 || n->arg[k] >= i)
            return "an operand comes later";
        const Node *x = &g->n[n->arg[k]];
        Ty want = o->kind == K_LOGIC || (o->kind == K_SEL && k == 0) ? BOOL : NUM;
        if (x->ty != want)
            return "an operand has the wrong type";
        join = is_call(n) ? (Dom)n->dom : dom_join(join, (Dom)x->dom);
        if (join == NDOM)
            return "the operands vary along different axes";
        if (is_global(n) && dom_inside((Dom)x->dom))
            return "a global reduction takes values per tensor";
    }
    const char *dom = bad_domain(r, n, join);
    if (dom)
        return dom;
    bool truth = o->kind == K_CMP || o->kind == K_LOGIC || n->op == OP_EVERY;
    if (n->op != OP_CONST && (n->ty == BOOL) != truth)
        return "the type does not fit the operation";
    if (n->op == OP_STORED && (n->sym < TO_P || n->sym >= r->nstate ||
                               n->dom != (n->sym == TO_P ? ELEM : r->state[n->sym].dom)))
        return "it names neither p nor a state of its domain";
    if (is_global(n) && n->from != TENSOR)
        return "a global reduction takes values per tensor";
    return o->kind == K_LEAF ? bad_leaf(r, n) : NULL;
}

static bool twice(const char *a, const char *b) { return !strcmp(a, b); }

static bool bad_slots(const State *s, bool blocks)
{
    const Stagger *x = &s->slots;
    bool none = !x->every && !x->of && !x->ahead && !x->first;
    return !none &&
           (x->every < 2 || x->every > MAX_STAGGER || x->of < 1 || x->of > 1e9 || x->ahead < 0 ||
            x->ahead >= x->of || s->type != T_F64 || s->report || s->init != INIT_FILL || s->eye ||
            (s->dom != TENSOR && !(blocks && s->dom == BLOCK)));
}

/* The states of a ring are adjacent and alike. Only `step` writes one, the first. */
static const char *bad_ring(const Rule *r, int i)
{
    const State *s = &r->state[i], *one = s - s->age;
    if (!s->rotates)
        return NULL;
    if (s->ring < 1 || s->age < 0 || s->age >= s->ring || i < s->age ||
        i - s->age + s->ring > r->nstate)
        return "a ring whose states are not there";
    for (int k = 0; k < s->ring; k++)
        if (!one[k].rotates || one[k].ring != s->ring || one[k].age != k || one[k].dom != s->dom ||
            one[k].type != s->type || one[k].report || one[k].slots.every ||
            one[k].init != INIT_FILL || one[k].nonneg || one[k].eye)
            return "the states of a ring differ";
    if (s->dom == GROUP ||
        (dom_square(s->dom) && dom_info[s->dom].axis[0] == dom_info[s->dom].axis[1]))
        return "a ring of group values or of square matrices";
    for (int e = 0; e < r->nentry; e++)
        for (int v = 0; v < r->nvariant; v++)
            for (int k = 0; k < r->entry[e].body[v].n; k++)
                if (r->entry[e].body[v].w[k].state == i &&
                    (s->age || strcmp(r->entry[e].name, "step")))
                    return "an entry writes to a ring other than by the push of 'step'";
    return NULL;
}

static const char *bad_state(const Rule *r, int i)
{
    const State *s = &r->state[i];
    if (dom_fixed(s->dom))
        return "a state in domain const";
    if (bad_ring(r, i))
        return bad_ring(r, i);
    const Axis *axis = dom_info[s->dom].axis;
    if (s->eye && (axis[0] == AXIS_ONE || axis[0] != axis[1] || s->init == INIT_COPY_P))
        return "'eye' needs a state over two equal axes";
    if (!dom_named(s->dom, r->rank > 0, r->block > 0))
        return "a state with a transposed domain, a rank axis without 'rank', or blocks "
               "without 'block'";
    if (s->init == INIT_COPY_P && s->dom != ELEM)
        return "a state is a copy of p without one value per element";
    if (s->follows_p && s->dom != ELEM)
        return "a state that follows p and is not one value per element";
    if (s->init == INIT_NORMAL &&
        (s->hyper != rule_seed(r) || s->hyper < 0 || s->eye || s->nonneg || s->dom == GROUP))
        return "'normal' needs the hyperparameter seed and a state of tensors without 'eye' "
               "and 'nonneg'";
    if (s->init == INIT_KERNEL && (s->dom != TENSOR || s->type != T_F64 || s->rotates))
        return "'kernel' needs a state in f64 with one value per tensor";
    if (s->init == INIT_HYPER && (s->hyper < 0 || s->hyper >= r->nhyper))
        return "a state that starts as a hyperparameter that does not exist";
    if (bad_slots(s, r->block > 0))
        return "slots that do not belong to an every(k, { stagger = true })";
    for (int j = 0; j < i; j++)
        if (twice(s->name, r->state[j].name))
            return "two states have the same name";
    return NULL;
}

static const char *bad_entry(const Rule *r, int e)
{
    if (!is_ident(r->entry[e].name))
        return "an entry whose name is not an identifier";
    for (int j = 0; j < e; j++)
        if (twice(r->entry[e].name, r->entry[j].name))
            return "two entries have the same name";
    for (int v = 0; v < r->nvariant; v++)
        for (int i = 0; i < r->entry[e].body[v].n; i++)
            for (int j = 0; j < i; j++)
                if (r->entry[e].body[v].w[i].state == r->entry[e].body[v].w[j].state)
                    return "two writes to one target";
    return NULL;
}

static const char *bad_gradient(const Rule *r, int i)
{
    bool known = false, last = i == r->ngradient - 1;
    for (int e = 0; e < r->nentry; e++)
        known = known || !strcmp(r->entry[e].name, r->gradient[i].entry);
    for (int j = 0; j < i; j++)
        known = known && strcmp(r->gradient[j].entry, r->gradient[i].entry);
    Period at = r->gradient[i].at;
    if (!known || at.every < 1 || at.offset < 0 || at.offset >= at.every)
        return "a gradient for no entry, for an entry twice, or with a wrong period";
    if (last && (strcmp(r->gradient[i].entry, "step") || at.every != 1))
        return "gradients that do not end with every step";
    return NULL;
}

/* Declarations: names are unique, domains can be declared. */
static const char *bad_declaration(const Rule *r)
{
    const char *bad = NULL;
    for (int i = 0; i < r->nhyper; i++)
        for (int j = 0; j < i; j++)
            if (twice(r->hyper[i].name, r->hyper[j].name))
                return "two hyperparameters have the same name";
    for (int i = 0; i < r->nstate && !bad; i++)
        bad = bad_state(r, i);
    if (bad)
        return bad;
    int slots = 0;
    for (int i = 0; i < r->nstate; i++)
        slots += r->state[i].slots.every > 0;
    if (slots > MOST_SLOTS)
        return "too many states with slots";
    for (int i = 0; i < r->ninput; i++) {
        if (dom_fixed(r->input[i].dom) || r->input[i].dom == SLICE)
            return "an input in domain const or slice";
        if (!dom_named(r->input[i].dom, r->rank > 0, false))
            return "an input with a transposed domain, a rank axis without 'rank', or blocks";
        for (int j = 0; j < i; j++)
            if (twice(r->input[i].name, r->input[j].name))
                return "two inputs have the same name";
    }
    for (int e = 0; e < r->nentry && !bad; e++)
        bad = bad_entry(r, e);
    for (int i = 0; i < r->ngradient && !bad; i++)
        bad = bad_gradient(r, i);
    return bad;
}

/* Strings are written to manifests, comments, messages and terminals. This one check covers those
 * from specs, options, `with` and IR text. `cite` and `doc` may have several lines. */
static const char *bad_text(const Rule *r)
{
    if (!text_plain(r->name, "") || !text_plain(r->with, ""))
        return "its name or `with` contains a control character";
    if (!text_plain(r->cite, "\n\r\t") || !text_plain(r->doc, "\n\r\t"))
        return "'cite' or 'doc' contains a control character";
    for (int i = 0; i < r->nfile; i++)
        if (!text_plain(r->file[i], ""))
            return "the name of a file contains a control character";
    for (int i = 0; i < r->noption; i++)
        if (!text_plain(r->option[i].name, "") || !text_plain(r->option[i].value, ""))
            return "an option's value contains a control character";
    for (int v = 0; v < r->nvariant; v++)
        for (int k = 0; k < r->variant[v].ntest; k++)
            if (r->variant[v].test[k].word && !text_plain(r->variant[v].test[k].word, ""))
                return "a name or tag in a query contains a control character";
    return NULL;
}

/* The n variants of[], which share their first `depth` answers, are the leaves of one binary tree
 * of queries. */
static bool is_tree(const Rule *r, const int *of, int n, int depth)
{
    int part[2][MAX_VARIANTS], len[2] = {0};
    if (n == 1)
        return r->variant[of[0]].ntest == depth;
    for (int i = 0; i < n; i++) {
        const Variant *v = &r->variant[of[i]];
        if (v->ntest <= depth || !test_same(&v->test[depth], &r->variant[of[0]].test[depth]))
            return false;
        part[v->test[depth].yes][len[v->test[depth].yes]++] = of[i];
    }
    return len[0] && len[1] && is_tree(r, part[0], len[0], depth + 1) &&
           is_tree(r, part[1], len[1], depth + 1);
}

static Ref write_of(const Body *b, int state)
{
    for (int i = 0; i < b->n; i++)
        if (b->w[i].state == state)
            return b->w[i].val;
    return NONE;
}

/* Every tensor takes exactly one variant; all variants write the same value to a group state; a
 * variant with states of rows, columns or matrices has a view. */
static const char *bad_variants(const Rule *r)
{
    int all[MAX_VARIANTS];
    for (int v = 0; v < r->nvariant; v++)
        all[v] = v;
    if (!r->nvariant || r->nvariant > MAX_VARIANTS || !is_tree(r, all, r->nvariant, 0))
        return "its variants do not cover every tensor exactly once";
    for (int e = 0; e < r->nentry; e++)
        for (int v = 0; v < r->nvariant; v++) {
            const Body *b = &r->entry[e].body[v];
            for (int s = 0; s < r->nstate; s++)
                if (r->state[s].dom == GROUP && write_of(b, s) != write_of(&r->entry[e].body[0], s))
                    return "variants write different values to a state of the group";
            for (int i = 0; i < b->n && !r->variant[v].view; i++)
                if (b->w[i].state != TO_P && r->state[b->w[i].state].dom != ELEM &&
                    dom_inside(r->state[b->w[i].state].dom))
                    return "a variant with states of rows, columns or matrices has no view";
        }
    return NULL;
}

/* Each different period is a bit of the phase number, so their number is limited. */
static const char *bad_periods(const Rule *r)
{
    struct { double every; int offset; } seen[MAX_PERIODS];
    int n = 0;
    for (Ref i = 0; i < r->g.len; i++) {
        int k = 0;
        while (k < n && (seen[k].every != r->g.n[i].imm || seen[k].offset != r->g.n[i].sym))
            k++;
        if (r->g.n[i].op != OP_EVERY || r->g.n[i].imm == 1 || k < n)
            continue;
        if (n == MAX_PERIODS)
            return "it has too many different periods";
        seen[n].every = r->g.n[i].imm;
        seen[n++].offset = r->g.n[i].sym;
    }
    return NULL;
}

bool pass_verify(Rule *r, Diag *d)
{
    const char *bad = r->product < -1 || r->product >= NPRODUCT || r->rank < 0 ||
                              r->rank > MAX_DIRECTIONS || r->block < 0 || r->block > MAX_BLOCK
                          ? "'product', 'rank' or 'block' is out of range"
                          : bad_declaration(r);
    if (!bad)
        bad = bad_variants(r);
    if (!bad)
        bad = bad_text(r);
    if (!bad)
        bad = bad_periods(r);
    if (bad) {
        diag_set(d, NULL, 0, NULL, "rule %s: %s", r->name, bad);
        return false;
    }
    for (Ref i = 0; i < r->g.len; i++) {
        const char *why = bad_node(r, i);
        if (why) {
            diag_set(d, NULL, 0, NULL, "rule %s: node %%%d (%s): %s", r->name, i,
                     r->g.n[i].op < NOPS ? op_info[r->g.n[i].op].name : "?", why);
            return false;
        }
    }
    for (int e = 0; e < r->nentry; e++)
        for (int v = 0; v < r->nvariant; v++)
            for (int k = 0; k < r->entry[e].body[v].n; k++) {
                Write w = r->entry[e].body[v].w[k];
                bool known =
                    w.val >= 0 && w.val < r->g.len && w.state >= TO_P && w.state < r->nstate;
                Dom dom = !known || w.state == TO_P ? ELEM : r->state[w.state].dom;
                bool fixed =
                    known && w.state != TO_P &&
                    (r->state[w.state].slots.every || r->state[w.state].init == INIT_KERNEL);
                if (!known || fixed || !dom_spreads((Dom)r->g.n[w.val].dom, dom) ||
                    r->g.n[w.val].ty != NUM) {
                    diag_set(d, NULL, 0, NULL,
                             "rule %s: entry %s: write %d does not fit its target", r->name,
                             r->entry[e].name, k);
                    return false;
                }
            }
    return true;
}
