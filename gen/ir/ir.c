/* Nodes of a rule: tables of operations, types and domains by name, constructors, the hash table
 * that finds equal nodes, and rewriting of whole graphs. The only file that writes nodes. */
#include "gen/ir/ir.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

const OpInfo op_info[NOPS] = {
#define OP(ID, name, arity, kind, form, binds, name_form, ev, ulp, cost) \
    {name, arity, K_##kind, form, binds, name_form, ulp, cost},
#include "gen/ir/ops.def"
};
/* Blocks are those of templates/codes.h, draws those of templates/rounding.h. */
#define TYPE(ID, name, bits, block, planes, draws, ...) \
    _Static_assert(bits % 8 == 0 && block == 1 && planes == 1 && draws == 0, \
                   name ": whole bytes, one per value");
#define CODED(ID, name, bits, block, planes, draws, ...) \
    _Static_assert(bits == 8 && block == OPTC_CODED && planes == 2 && draws == 0, \
                   name ": a byte per value, a scale");
#define DRAWN(PLAIN, rounds, ID, name, bits, block, planes, draws, ...) \
    _Static_assert(bits == 16 && block == 1 && planes == 1 && draws == 16, name ": 16 of each");
#include "gen/abi/types.def"
const TypeInfo type_info[NTYPES] = {
#define TYPE(ID, name, bits, block, planes, draws, c, load, store, compute, digits, least, most, \
             beyond, ...) \
    {name,  bits / 8, bits,        block,  planes, draws, #c, \
     #load, #store,   T_##compute, digits, least,  most,  beyond},
#include "gen/abi/types.def"
};

const ProgType program_types[NTYPES] = {
#define TYPE(ID, name, bits, block, ...) {name, bits / 8, block},
#include "gen/abi/types.def"
};

int op_by_name(const char *name)
{
    for (int i = 0; i < NOPS; i++)
        if (!strcmp(op_info[i].name, name))
            return i;
    return -1;
}

int type_by_name(const char *name)
{
    for (int i = 0; i < NTYPES; i++)
        if (!strcmp(type_info[i].name, name))
            return i;
    return -1;
}

int dom_by_name(const char *name)
{
    for (int i = 0; i < NDOM; i++)
        if (!strcmp(dom_info[i].name, name))
            return i;
    return -1;
}

bool dom_named(Dom d, bool rank, bool block)
{
    const Axis *a = dom_info[d].axis;
    Dom upright = dom_product(a[0], a[1]);
    bool transposed =
        !dom_wide(d) && !dom_square(d) && (dom_of_block(d) ? dom_blocked(upright) : upright) != d;
    return d != CONST_ && d != ELEM_T && !transposed &&
           (rank || (a[0] != AXIS_RANK && a[1] != AXIS_RANK)) &&
           (block ? dom_blocked(d) == d || !dom_square(d) : !dom_of_block(d));
}

int dom_by_words(const char *words)
{
    for (int d = 0; d < NDOM; d++) {
        const char *w = words, *n = dom_info[d].name;
        while (*w && (*w == *n || (*w == ' ' && *n == '_')))
            w++, n++;
        if (!*w && !*n && (dom_named((Dom)d, true, true) || dom_named((Dom)d, true, false)))
            return d;
    }
    return -1;
}

const char *axis_name(Axis a)
{
    static const char *const name[NAXIS] = {"1",
#define AXIS_NAME(ID, field) #field,
        AXES(AXIS_NAME)
#undef AXIS_NAME
    };
    return name[a];
}

int product_by_name(const char *name)
{
    for (int i = 0; i < NPRODUCT; i++)
        if (!strcmp(product_info[i].name, name))
            return i;
    return -1;
}

Product rule_product(const Rule *r, Type p)
{
    if (type_info[p].compute == T_F64)
        return PRODUCT_F64;
    return r->product < 0 ? PRODUCT_F32 : (Product)r->product;
}

Type rule_factor_type(const Rule *r, Type product, Type real)
{
    for (Ref i = 0; i < r->g.len; i++)
        if (r->g.n[i].op == OP_MM && r->g.n[i].sym & IN_F64)
            return T_F64;
    return type_info[product].bytes < type_info[real].bytes ? real : product;
}

const char *dom_list(Arena *a, uint64_t set, const char *quote, const char *last)
{
    Buf b = {.arena = a};
    for (int i = 0; i < NDOM; i++)
        if (set >> i & 1)
            buf_printf(&b, "%s%s%s%s",
                       !b.len          ? ""
                       : set >> i == 1 ? last
                                       : ", ",
                       quote, dom_info[i].name, quote);
    return buf_text(&b);
}

static uint64_t node_hash(const Node *n)
{
    struct { int32_t v[6]; double imm; } k = {
        {n->op, n->dom, n->from, n->sym, n->nargs, n->ty}, n->imm};
    return hash64(hash64(1, &k, sizeof k), n->arg, sizeof *n->arg * n->nargs);
}

/* The same value, and from the same entry or the same line: equal nodes of two entries on different
 * lines stay two nodes, so that each keeps its source position. */
static bool node_same(const Node *x, const Node *y)
{
    if (x->entry != y->entry && (x->file != y->file || x->line != y->line))
        return false;
    return x->op == y->op && x->dom == y->dom && x->ty == y->ty && x->from == y->from &&
           x->sym == y->sym && x->nargs == y->nargs && !memcmp(&x->imm, &y->imm, sizeof x->imm) &&
           !memcmp(&x->beta, &y->beta, sizeof x->beta) &&
           !memcmp(&x->diagonal, &y->diagonal, sizeof x->diagonal) &&
           (!x->nargs || !memcmp(x->arg, y->arg, sizeof *x->arg * x->nargs));
}

static void table_put(Graph *g, Ref r)
{
    uint64_t h = node_hash(&g->n[r]);
    while (g->table[h & (uint64_t)(g->table_cap - 1)] >= 0)
        h++;
    g->table[h & (uint64_t)(g->table_cap - 1)] = r;
}

static bool whole(const Graph *g, const Node *n)
{
    /* IR text may be malformed: the verifier runs later */
    for (int k = 0; k < n->nargs; k++)
        if (n->arg[k] < 0 || n->arg[k] >= g->len)
            return false;
    bool all = n->nargs == op_info[n->op].arity;
    for (int k = 0; k < n->nargs; k++)
        all = all && g->n[n->arg[k]].whole;
    switch (n->op) {
    case OP_STEP: case OP_SLOT: case OP_COUNT: case OP_FLOOR: case OP_CEIL:
    case OP_ROUND: return true;
    case OP_CONST: return fabs(n->imm) < 9007199254740992.0 && n->imm == floor(n->imm);
    case OP_COPY: case OP_NEG: case OP_ABS: case OP_ADD: case OP_SUB: case OP_MUL: case OP_MIN:
    case OP_MAX: return all;
    default: return false;
    }
}

/* Allocates a hash table for n nodes and fills it. */
static void graph_room(Graph *g, int n)
{
    int cap = 256;
    while (cap <= 2 * n)
        cap *= 2;
    g->table_cap = cap;
    g->table = NEWS(g->arena, int32_t, cap);
    for (int i = 0; i < cap; i++)
        g->table[i] = NONE;
    for (Ref r = 0; r < g->len; r++)
        table_put(g, r);
}

Ref graph_add(Graph *g, Node n)
{
    n.whole = whole(g, &n);
    n.entry = !n.nargs ? 0 : n.entry ? n.entry : g->entry;
    if (!n.line && n.nargs) {
        n.file = g->file;
        n.line = g->line;
    }
    if (g->len * 2 >= g->table_cap)
        graph_room(g, g->len + 1);
    uint64_t h = node_hash(&n);
    for (Ref r; (r = g->table[h & (uint64_t)(g->table_cap - 1)]) >= 0; h++)
        if (node_same(&g->n[r], &n)) {
            graph_name(g, r, n.name);
            return r;
        }
    if (n.nargs) {
        Ref *own = NEWS(g->arena, Ref, n.nargs);
        memcpy(own, n.arg, sizeof *own * n.nargs);
        n.arg = own;
    }
    PUSH(g->arena, g->own, g->len, g->cap) = n;
    g->n = g->own;
    /* the free slot where the search ended */
    g->table[h & (uint64_t)(g->table_cap - 1)] = g->len - 1;
    return g->len - 1;
}

void graph_name(Graph *g, Ref r, const char *name)
{
    if (!g->n[r].name)
        g->own[r].name = name;
}

static Node blank(Op op, Dom dom, Ty ty) { return (Node){.op = op, .dom = dom, .ty = ty}; }

Ref node_const(Graph *g, double x)
{
    Node n = blank(OP_CONST, CONST_, NUM);
    n.imm = isnan(x) ? NAN : x;
    return graph_add(g, n);
}

Ref node_leaf(Graph *g, Op op, Dom dom, int sym, double imm)
{
    Node n = blank(op, dom, op == OP_EVERY ? BOOL : NUM);
    n.sym = sym;
    n.imm = imm;
    return graph_add(g, n);
}

Ref node_count(Graph *g, Dom from, Dom to)
{
    Node n = blank(OP_COUNT, to, NUM);
    n.from = from;
    return graph_add(g, n);
}

Ref node_op(Graph *g, Op op, Ref a, Ref b, Ref c)
{
    OpKind k = op_info[op].kind;
    Ref args[3] = {a, b, c};
    Node n = blank(op, CONST_, k == K_CMP || k == K_LOGIC ? BOOL : NUM);
    n.nargs = (uint8_t)op_info[op].arity;
    n.arg = args;
    for (int i = 0; i < n.nargs; i++)
        n.dom = dom_join(n.dom, g->n[args[i]].dom);
    return graph_add(g, n);
}

Ref node_copy(Graph *g, Ref a, Dom dom)
{
    Node n = blank(OP_COPY, dom, NUM);
    n.nargs = 1;
    n.arg = &a;
    return graph_add(g, n);
}

Ref node_red(Graph *g, Op op, Ref a, Dom to)
{
    Node n = blank(op, to, NUM);
    n.from = g->n[a].dom;
    n.nargs = 1;
    n.arg = &a;
    return graph_add(g, n);
}

Ref node_transpose(Graph *g, Ref a)
{
    Node n = blank(OP_TRANSPOSE, dom_transposed(g->n[a].dom), g->n[a].ty);
    n.nargs = 1;
    n.arg = &a;
    return graph_add(g, n);
}

Ref node_mm(Graph *g, Ref a, Ref b, unsigned flags)
{
    const Ref arg[] = {a, b};
    MatrixAxes x = dom_matrix(g->n[a].dom, flags & TRANS_A),
               y = dom_matrix(g->n[b].dom, flags & TRANS_B);
    Dom d = dom_product(x.down, y.across);
    Node n = blank(OP_MM, flags & BLOCKED ? dom_blocked(d) : d, NUM);
    n.from = g->n[a].dom;
    n.sym = (int32_t)flags;
    n.imm = 1;
    n.nargs = 2;
    n.arg = arg;
    return graph_add(g, n);
}

Ref node_factor(Graph *g, Factor f)
{
    const Ref operand[] = {f.a, f.b, f.c};
    Ref arg[3];
    bool floored = callee_facts[f.op - OP_MM].flags & FLOORED && f.b != NONE;
    Node n = blank(f.op, f.dom, NUM);
    n.from = g->n[f.a].dom;
    n.sym = (int32_t)(f.flags | (floored ? FLOORED : 0) | (f.c != NONE ? KEEP_LAST : 0));
    n.imm = f.imm;
    n.beta = f.low;
    for (int i = 0; i < 3; i++)
        if (operand[i] != NONE)
            arg[n.nargs++] = operand[i];
    n.arg = arg;
    return graph_add(g, n);
}

int call_operand(const Node *n, int k)
{
    bool last = n->op != OP_MM && n->sym & KEEP_LAST;
    if (k == 2 && last)
        return n->nargs - 1;
    return k < n->nargs - last ? k : -1;
}

static Dom mm_operand(const Node *mm, int k)
{
    if (k != 1)
        return k ? (Dom)mm->dom : (Dom)mm->from;
    MatrixAxes x = dom_matrix((Dom)mm->from, mm->sym & TRANS_A),
               out = dom_matrix((Dom)mm->dom, x.down == AXIS_ONE);
    Dom d =
        mm->sym & TRANS_B ? dom_of_axes(out.across, x.across) : dom_of_axes(x.across, out.across);
    if (out.across == AXIS_ONE)
        d = dom_product(x.across, AXIS_ONE);
    return mm->sym & BLOCKED ? dom_blocked(d) : d;
}

Dom call_operand_dom(const Node *n, int k)
{
    if (n->op == OP_MM)
        return mm_operand(n, k);
    if (k == 0)
        return (Dom)n->from;
    if (facts_of(n)->fits == FITS_TAKEN && k == 1) {
        MatrixAxes x = dom_matrix((Dom)n->dom, n->sym & OF_COLS);
        Dom d = dom_product(x.down, AXIS_ONE);
        return n->sym & BLOCKED ? dom_blocked(d) : d;
    }
    return k == 1 && n->sym & FLOORED ? (n->sym & BLOCKED ? BLOCK : SLICE) : (Dom)n->dom;
}

static bool is_transpose_of(const Graph *g, Ref a, Ref b)
{
    return g->n[a].op == OP_TRANSPOSE && g->n[a].arg[0] == b;
}

static bool on_diagonal(const Graph *g, const Node *n)
{
    return n->op == OP_EQ && n->nargs == 2 && g->n[n->arg[0]].op == OP_DOWN &&
           g->n[n->arg[1]].op == OP_ACROSS;
}

bool graph_unit(const Graph *g, Ref r, double *k)
{
    const Node *n = &g->n[r];
    if (n->op != OP_WHERE || !on_diagonal(g, &g->n[n->arg[0]]) || g->n[n->arg[1]].op != OP_CONST)
        return false;
    *k = g->n[n->arg[1]].imm;
    return g->n[n->arg[2]].op == OP_CONST && g->n[n->arg[2]].imm == 0;
}

bool graph_symmetric(const Graph *g, const bool *known, Ref r)
{
    const Node *n = &g->n[r];
    OpKind k = op_info[n->op].kind;
    bool all = true;
    if (dom_wide((Dom)n->dom))
        return true;
    if (n->op == OP_MM)
        return n->sym & SYMMETRIC;
    if (k == K_CALL && callee_spectral(callee_of(n)))
        return !(n->sym & KEEP_LAST) || known[n->arg[n->nargs - 1]];
    if (k == K_LEAF || k == K_RED || k == K_TRANSPOSE || k == K_CALL || !dom_square((Dom)n->dom) ||
        dom_transposed((Dom)n->dom) != (Dom)n->dom)
        return false;
    if (on_diagonal(g, n) ||
        (n->op == OP_WHERE && on_diagonal(g, &g->n[n->arg[0]]) && known[n->arg[2]]))
        return true;
    if ((n->op == OP_ADD || n->op == OP_MUL) &&
        (is_transpose_of(g, n->arg[0], n->arg[1]) || is_transpose_of(g, n->arg[1], n->arg[0])))
        return true;
    for (int i = 0; i < n->nargs; i++)
        all = all && known[n->arg[i]];
    return all;
}

int graph_calls(const Graph *g)
{
    int n = 0;
    for (Ref r = 0; r < g->len; r++)
        n += is_call(&g->n[r]);
    return n;
}

int rule_view(const Rule *r)
{
    int view = 0;
    for (int v = 0; v < r->nvariant; v++)
        view |= r->variant[v].view;
    return view;
}

int rule_seed(const Rule *r)
{
    for (int i = 0; i < r->nhyper; i++)
        if (!strcmp(r->hyper[i].name, "seed"))
            return i;
    return -1;
}

bool hyper_allows(const Hyper *h, double x)
{
    return (h->lo_open ? x > h->lo : x >= h->lo) && (h->hi_open ? x < h->hi : x <= h->hi);
}

Type type_of_state(const State *s, Type p, Type state)
{
    return dom_wide(s->dom) ? T_F64
           : s->type >= 0   ? (Type)s->type
           : s->dom == ELEM ? state
                            : type_info[p].compute;
}

const char *hyper_range(const Hyper *h, char buf[64])
{
    snprintf(buf, 64, "%c%g, %g%c", h->lo_open ? '(' : '[', h->lo, h->hi, h->hi_open ? ')' : ']');
    return buf;
}

typedef struct { const Graph *from; Graph *to; Ref *map, *stack; NodeMap f; void *ctx; } Rewrite;

/* Rewrites operands before users, without recursion: a rule may be a chain of thousands of
 * values. */
static Ref rewrite(Rewrite *w, Ref root)
{
    int n = 0;
    w->stack[n++] = root;
    while (n) {
        Ref r = w->stack[n - 1], open = NONE;
        for (int i = w->from->n[r].nargs - 1; i >= 0 && w->map[r] == NONE; i--)
            if (w->map[w->from->n[r].arg[i]] == NONE)
                open = w->from->n[r].arg[i];
        if (open != NONE) {
            w->stack[n++] = open;
            continue;
        }
        n--;
        if (w->map[r] != NONE)
            continue;
        Node x = w->from->n[r];
        Ref arg[MAX_ARGS];
        for (int i = 0; i < x.nargs; i++)
            arg[i] = w->map[x.arg[i]];
        x.arg = arg;
        w->map[r] = w->f ? w->f(w->to, x, w->ctx) : graph_add(w->to, x);
    }
    return w->map[root];
}

void rule_rewrite(Rule *r, NodeMap f, void *ctx)
{
    Graph to = {.arena = r->arena};
    Rewrite w = {&r->g, &to, NEWS(r->arena, Ref, r->g.len + 1), NEWS(r->arena, Ref, r->g.len + 1),
                 f,     ctx};
    for (int i = 0; i < r->g.len; i++)
        w.map[i] = NONE;
    graph_room(&to, r->g.len);
    for (int e = 0; e < r->nentry; e++)
        for (int v = 0; v < r->nvariant; v++) {
            Body *b = &r->entry[e].body[v];
            for (int i = 0; i < b->n; i++)
                b->w[i].val = rewrite(&w, b->w[i].val);
        }
    r->g = to;
}

static double ev_sign(double a) { return a > 0 ? 1 : a < 0 ? -1 : a; }
static double ev_min(double a, double b) { return a < b || a != a ? a : b; }
static double ev_max(double a, double b) { return a > b || a != a ? a : b; }

/* x^n by repeated squaring, as emitted code does it, so that folding a constant power changes no
 * bit. */
static double ev_powi(double x, double n)
{
    double r = 1, e = fabs(n);
    for (; e >= 1; e = floor(e / 2), x *= x)
        if (fmod(e, 2) == 1)
            r *= x;
    return n < 0 ? 1 / r : r;
}

/* The halves of an f32 number, by its value: a step is the distance of bf16 numbers there. */
static double ev_half_step(double x)
{
    int e;
    (void)frexp(isfinite(x) ? x : 0x1p127, &e);
    return ldexp(1, (x == 0 || e < -125 ? -125 : e) - 9);
}

static uint32_t f32_bits(double x)
{
    float f = (float)x;
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    return u;
}

static double bits_f32(uint32_t u)
{
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

static double ev_low16(double x) { return isnan(x) ? 0 : (int16_t)(f32_bits(x) & 0xffff); }

/* the bits less the low half: a carry if that is negative */
static double ev_high16(double x)
{
    return isnan(x) ? x : bits_f32(f32_bits(x) - (uint32_t)(int32_t)ev_low16(x));
}

static double ev_join16(double high, double low)
{
    return bits_f32(f32_bits(high) + (high == 0 && low < 0 ? 0 : (uint32_t)(int32_t)low));
}

double op_eval(Op op, double a, double b, double c)
{
    switch (op) {
#define LEAF_OP(ID, name)
#define OP(ID, name, arity, kind, form, binds, name_form, ev, ulp, cost) case OP_##ID: return ev;
#include "gen/ir/ops.def"
    default: return NAN;
    }
}

const char *rule_line(const Rule *r, int file, int line, int *n)
{
    const char *s = file >= 0 && file < r->ntext ? r->text[file] : NULL;
    for (int at = 1; s && at < line; at++)
        s = (s = strchr(s, '\n')) ? s + 1 : NULL;
    if (!s || line < 1)
        return NULL;
    s += strspn(s, " \t");
    *n = (int)strcspn(s, "\r\n");
    return s;
}
