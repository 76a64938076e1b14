/* Products and factors of a plan: operations, least time, bytes of temporaries. */
#include "tools/explain/explain.h"

#include <string.h>

static const struct { const char *part; double tera[NPRODUCT]; } rates[] = {
#define RATE(part, f64, f32, tf32, bf16, f16) \
    {part, \
     {[PRODUCT_F64] = f64, \
      [PRODUCT_F32] = f32, \
      [PRODUCT_TF32] = tf32, \
      [PRODUCT_BF16] = bf16, \
      [PRODUCT_F16] = f16}},
#include "tools/explain/rates.def"
};

double explain_rate(const char *device, Product product)
{
    for (size_t i = 0; device && i < sizeof rates / sizeof *rates; i++)
        if (strstr(device, rates[i].part))
            return rates[i].tera[product] * 1e12;
    return 0;
}

/* The axes of a product: rows, columns, and the one summed over. A factor has the first two. */
typedef struct CallAxes { Axis axis[3]; bool symmetric, blocked; const Node *of; } CallAxes;

static CallAxes call_axes(const Phase *ph, const Stage *st)
{
    const Node *n = &ph->g->n[st->body[0]];
    MatrixAxes m = dom_matrix((Dom)(n->op == OP_EIGH ? n->from : n->dom), n->sym & FROM_RIGHT);
    if (n->op != OP_MM)
        return (CallAxes){{m.down, m.across, AXIS_ONE}, false, (n->sym & BLOCKED) != 0, n};
    MatrixAxes a = dom_matrix((Dom)ph->g->n[n->arg[0]].dom, n->sym & TRANS_A),
               b = dom_matrix((Dom)ph->g->n[n->arg[1]].dom, n->sym & TRANS_B);
    return (CallAxes){
        {a.down, b.across, a.across}, (n->sym & SYMMETRIC) != 0, (n->sym & BLOCKED) != 0, n};
}

static double matrix_flops(CallAxes c, Shape s)            /* operations on one matrix */
{
    double down = (double)axis_len(c.axis[0], s), across = (double)axis_len(c.axis[1], s),
           over = (double)axis_len(c.axis[2], s);
    if (c.of->op != OP_MM)
        return facts_of(c.of)->kind == CALLEE_FACTOR ? callee_flops(callee_of(c.of), down, across)
                                                     : 0;
    return over * down * (c.symmetric ? across + 1 : 2 * across);
}

static bool has_own_precision(const Node *n) { return n->op == OP_MM && n->sym & OWN_PRECISION; }

static void add_matrices(CallCost *to, CallAxes c, Shape s, const Bandwidth *f)
{
    double each = matrix_flops(c, s),
           rate = flop_rate(f, callee_of(c.of), (double)axis_len(c.axis[0], s));
    rate = c.symmetric && f->gram > 0 ? f->gram : rate;
    if (has_own_precision(c.of) && f->own[product_precision(PRODUCT_F32, (unsigned)c.of->sym)] > 0)
        rate = f->own[product_precision(PRODUCT_F32, (unsigned)c.of->sym)];
    double seconds = rate > 0 && s.slices > 0 ? each / rate : 0;
    to->flops += (double)s.slices * each;
    to->all += (double)s.slices * seconds;
    to->one = seconds > to->one ? seconds : to->one;
}

CallCost explain_call_cost(const Phase *ph, const Stage *st, Shape s, const Bandwidth *f)
{
    CallCost cost = {0};
    if (!is_called(st->kind))
        return cost;
    CallAxes c = call_axes(ph, st);
    cost.factor = c.of->op != OP_MM;
    if (!c.blocked || !s.block)
        add_matrices(&cost, c, s, f);
    else
        for (int k = 0; k < BLOCK_SIZES; k++)
            add_matrices(&cost, c, block_size(s, k).shape, f);
    return cost;
}

void plan_callees(const Plan *p, bool any[NCALLEE])
{
    for (int e = 0; e < p->nentry; e++)
        for (int m = 0; m < p->entry[e].nphase; m++) {
            const Phase *ph = &p->entry[e].phase[m];
            for (int i = 0; i < ph->nstage; i++)
                if (is_called(ph->stage[i].kind))
                    any[callee_of(&ph->g->n[ph->stage[i].body[0]])] = true;
        }
}

/* The precisions of a plan's products, a bit each. own: only of products with a precision of their
 * own. */
static unsigned products_of(const Plan *p, bool own)
{
    unsigned bits = 0;
    for (int e = 0; e < p->nentry; e++)
        for (int m = 0; m < p->entry[e].nphase; m++) {
            const Phase *ph = &p->entry[e].phase[m];
            for (int i = 0; i < ph->nstage; i++) {
                const Node *n =
                    is_called(ph->stage[i].kind) ? &ph->g->n[ph->stage[i].body[0]] : NULL;
                if (n && n->op == OP_MM && (!own || has_own_precision(n)))
                    bits |= 1u << product_of_call(p, n);
            }
        }
    return bits;
}

const char *explain_products(Arena *a, const Plan *p)
{
    unsigned bits = products_of(p, false);
    const char *text = "";
    for (int i = 0; i < NPRODUCT; i++)
        if (bits >> i & 1)
            text = arena_printf(a, "%s%s%s", text, *text ? " and " : "", product_info[i].name);
    return *text ? text : product_info[p->precision].name;
}

const char *explain_own_rates(Arena *a, const Plan *p, const Bandwidth *f, const char *text)
{
    char rate[32];
    for (int i = 0; i < NPRODUCT; i++)
        if (products_of(p, true) >> i & 1 && f->own[i] > 0)
            text = arena_printf(a, "%s, those in %s at %s/s", text, product_info[i].name,
                                cli_flops(rate, f->own[i]));
    return text;
}

const char *explain_call(Arena *a, const Plan *p, const Phase *ph, const Stage *st)
{
    CallAxes c = call_axes(ph, st);
    if (c.of->op != OP_MM)
        return arena_printf(a, "%s of %s x %s%s, by %s", op_info[c.of->op].name,
                            axis_name(c.axis[0]), axis_name(c.axis[1]),
                            c.blocked ? ", each block" : "", plan_call_methods(a, p, ph->g, st));
    const char *in = has_own_precision(c.of)
                         ? arena_printf(a, ", in %s%s", product_info[product_of_call(p, c.of)].name,
                                        p->target->gpu || c.of->sym & IN_F64 ? "" : " on a GPU")
                         : "";
    return arena_printf(a, "product, %s x %s over %s%s%s%s", axis_name(c.axis[0]),
                        axis_name(c.axis[1]), axis_name(c.axis[2]),
                        c.blocked ? " of each block" : "",
                        c.symmetric ? ", symmetric: only half is computed" : "", in);
}

/* ---- temporaries ---- */
/* A temporary is live from the stage that writes it to the last stage that reads it. from: by
 * array, the first stage of its current contents that is not counted yet; now: by stage, bytes of
 * live temporaries. */
static void count_reads(const Plan *p, const Access *a, int n, int at, Shape s, int *from,
                        double *now)
{
    for (int i = 0; i < n; i++) {
        const Mem *m = &p->mem[a[i].mem];
        for (; from[a[i].mem] <= at; from[a[i].mem]++)
            if (m->kind == MEM_TEMP)
                now[from[a[i].mem]] += (double)dom_len(m->dom, s) * type_info[m->type].bytes;
    }
}

double explain_room(Arena *a, const Plan *p, const Phase *ph, int variant, Shape s)
{
    int *from = NEWS(a, int, p->nmem + 1);
    double *now = NEWS(a, double, ph->nstage + 1), most = 0;
    for (int i = 0; i < ph->nstage; i++) {
        const Stage *st = &ph->stage[i];
        if (!explain_runs(st, variant))
            continue;
        count_reads(p, st->load, st->nload, i, s, from, now);
        count_reads(p, st->fin, st->nfin, i, s, from, now);
        for (int k = 0; k < st->nstore; k++)
            from[st->store[k].mem] = from[st->store[k].mem] > i ? from[st->store[k].mem] : i;
    }
    for (int i = 0; i < ph->nstage; i++)
        most = now[i] > most ? now[i] : most;
    return most;
}
