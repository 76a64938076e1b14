/* First values of states: devices fill states with them when a binding is made. */
#include "runtime/core/bind/bind.h"

#include "runtime/core/base/conversions.h"

#include <math.h>
#include <string.h>

/* The initial number of a state of this group; not for states that start as a copy of p. */
CORE double state_start(const optc_binding *b, const ProgArray *m, int group)
{
    return m->hyper ? b->group[group].hyper[m->hyper] : m->value;
}

/* Standard normal draws of step 0, which no stage draws. The number of a value in the whole tensor
 * is its index, as in
 * stages: templates/runs.h has those of pieces along another dimension than the first. */
static void fill_normal(const Program *p, const ProgArray *m, double seed, bool f32, void *dst,
                        StateSpan x)
{
    const optc_view *v = &x.of->view;
    const bool elem = m->dom == ELEM, blocks = dom_of_block(m->dom);
    const unsigned id = (unsigned)v->id,
                   stream = (unsigned)m->normal - 1 + (blocks ? 256u * (unsigned)v->first : 0);
    const long long ahead = blocks ? 0 : x.of->before[m->dom],
                    apart = elem && v->first_col < 0 ? -v->first_col : 0;
    const bool narrow = !dom_wide(m->dom) && (p->type[p->p].bytes < 8 || f32);
    for (int64_t i = 0; i < x.n; i++) {
        const long long k = x.at + i,
                        nth = ahead + k + (apart ? k / v->cols * (apart - v->cols) : 0);
        type_store(m->type, dst, i, narrow ? (double)optc_normalf(seed, 0, id, stream, nth)
                                           : optc_normal(seed, 0, id, stream, nth));
    }
}

/* Positions of a convolution's kernel: the product of the dimensions after the second, of the whole
 * tensor. */
static double kernel_positions(const optc_binding *b, const Tensor *t)
{
    const Tensor *whole = &b->tensor[t->source];
    double n = 1;
    for (int k = 2; k < whole->rank; k++)
        n *= (double)whole->whole_dim[k];
    return n;
}

/* Writes the initial values of a state, or of a part of it. */
CORE void state_fill(const optc_binding *b, const ProgArray *m, int group, void *dst,
                     const void *param, StateSpan x)
{
    const Program *p = b->program;
    double value = m->kernel ? kernel_positions(b, x.of) : state_start(b, m, group);
    if (!dst || !x.n)
        return;
    if (type_is_coded(m->type))                /* coded_start.c follows */
        memset(dst, 0, (size_t)x.n * (size_t)p->type[m->type].bytes);
    else if (m->normal)
        fill_normal(p, m, value, b->rule->engine->f32_draws, dst, x);
    else if (m->copies_p && p->p == m->type && param)
        memcpy(dst, param, (size_t)x.n * (size_t)p->type[p->p].bytes);
    else if (!m->copies_p && (m->eye || (value == 0 && !signbit(value))))
        memset(dst, 0, (size_t)x.n * (size_t)p->type[m->type].bytes);
    else
        for (int64_t i = 0; i < x.n; i++)
            type_store(m->type, dst, i, m->copies_p ? type_load(p->p, param, i) : value);
    int64_t square = x.side * x.side;
    for (int64_t from = m->eye && square ? x.at / square * square : x.at + x.n; from < x.at + x.n;
         from += square)
        for (int64_t k = 0; k < x.side; k++) {
            int64_t i = from + k * (x.side + 1) - x.at;
            if (i >= 0 && i < x.n)
                type_store(m->type, dst, i, value);
        }
}
