/* Products of a plan: how many operations, what they take at the least, what they need room for. */
#include "explain.h"

#include <string.h>

static const struct { const char *part; double tera[NPRODUCT]; } rates[] = {
#define RATE(part, f64, f32, tf32, bf16, f16) \
    {part, {[PRODUCT_F64] = f64, [PRODUCT_F32] = f32, [PRODUCT_TF32] = tf32, [PRODUCT_BF16] = bf16, [PRODUCT_F16] = f16}},
#include "rates.def"
};

double explain_rate(const char *device, Product product)
{
    for (size_t i = 0; device && i < sizeof rates / sizeof *rates; i++)
        if (strstr(device, rates[i].part))
            return rates[i].tera[product] * 1e12;
    return 0;
}

/* The three axes of a product: down, across, and the one summed over. */
typedef struct CallAxes { Axis axis[3]; bool symmetric; } CallAxes;

static CallAxes call_axes(const Phase *ph, const Stage *st)
{
    const Node *n = &ph->g->n[st->body[0]];
    MatrixAxes a = dom_matrix((Dom)ph->g->n[n->arg[0]].dom, n->sym & TURN_A),
               b = dom_matrix((Dom)ph->g->n[n->arg[1]].dom, n->sym & TURN_B);
    return (CallAxes){{a.down, b.across, a.across}, (n->sym & SYMMETRIC) != 0};
}

double explain_flops(const Phase *ph, const Stage *st, Shape s)
{
    if (!is_called(st->kind))
        return 0;
    CallAxes c = call_axes(ph, st);
    double down = (double)axis_len(c.axis[0], s), across = (double)axis_len(c.axis[1], s),
           over = (double)axis_len(c.axis[2], s);
    return (double)s.slices * over * down * (c.symmetric ? across + 1 : 2 * across);
}

const char *explain_call(Arena *a, const Phase *ph, const Stage *st)
{
    static const char *const name[NAXIS] = {"1",
#define AXIS_NAME(ID, field) #field,
                                            AXES(AXIS_NAME)
#undef AXIS_NAME
    };
    CallAxes c = call_axes(ph, st);
    return arena_printf(a, "%s x %s over %s%s", name[c.axis[0]], name[c.axis[1]], name[c.axis[2]],
                        c.symmetric ? ", half of it for it is symmetric" : "");
}

/* ---- temporaries ---- */
typedef struct Life { int first, last; } Life;

static void note_lives(Life *life, const Access *a, int n, int at)
{
    for (int i = 0; i < n; i++) {
        Life *l = &life[a[i].mem];
        l->first = l->last < 0 ? at : l->first;
        l->last = at;
    }
}

double explain_room(Arena *a, const Plan *p, const Phase *ph, int variant, Shape s)
{
    Life *life = NEWS(a, Life, p->nmem + 1);
    double *now = NEWS(a, double, ph->nstage + 1), most = 0;       /* by stage */
    for (int k = 0; k < p->nmem; k++)
        life[k].last = -1;
    for (int i = 0; i < ph->nstage; i++) {
        const Stage *st = &ph->stage[i];
        if (!explain_runs(st, variant))
            continue;
        note_lives(life, st->load, st->nload, i);
        note_lives(life, st->fin, st->nfin, i);
        note_lives(life, st->store, st->nstore, i);
    }
    for (int k = 0; k < p->nmem; k++)
        for (int i = life[k].first; i <= life[k].last && p->mem[k].kind == MEM_TEMP; i++)
            now[i] += (double)dom_len(p->mem[k].dom, s) * type_info[p->mem[k].type].bytes;
    for (int i = 0; i < ph->nstage; i++)
        most = now[i] > most ? now[i] : most;
    return most;
}
