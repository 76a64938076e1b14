/* The reference evaluator as a device: it runs rules for which there is no compiler. Everything
 * else, such as memory and states, is the CPU device's. */
#include "runtime/library/internal.h"

#include "runtime/core/base/conversions.h"
#include "runtime/core/cpu/cpu.h"

#include <stdlib.h>
#include <string.h>

static bool load_vals(Vals *v, int t, const void *p, int64_t n)
{
    v->n = n;
    v->v = malloc(sizeof(double) * (size_t)(n + 1));
    if (v->v && p)
        values_load(t, p, n, v->v);
    return v->v != NULL;
}

static void save_vals(const Vals *v, int t, void *p, unsigned dither)
{
    if (p)
        values_store(t, p, v->n, v->v, &dither);
}

typedef struct { EvalJob j; bool ok; } EvalRun;

/* Converts the arrays of one tensor or group to doubles; inputs and states that it does not have
 * stay empty. */
static void load_named(EvalRun *e, const Plan *p, void *const *mem, Shape s, int64_t whole,
                       bool group, Vals *input, Vals *state)
{
    for (int k = 0; k < p->nmem; k++) {
        const Mem *m = &p->mem[k];
        if ((m->kind != MEM_INPUT && m->kind != MEM_STATE) || (m->dom == GROUP) != group || !mem[k])
            continue;
        Vals *v = m->kind == MEM_INPUT ? &input[m->sym] : &state[m->sym];
        e->ok = load_vals(v, stored_type(program_types, (int)m->type, whole), mem[k],
                          group ? 1 : dom_len(m->dom, s)) && e->ok;
    }
}

static void save_named(const Plan *p, void *const *mem, int64_t whole, bool group,
                       const Vals *state, unsigned dither)
{
    for (int k = 0; k < p->nmem; k++)
        if (p->mem[k].kind == MEM_STATE && (p->mem[k].dom == GROUP) == group && mem[k])
            save_vals(&state[p->mem[k].sym], stored_type(program_types, (int)p->mem[k].type, whole),
                      mem[k], dither);
}

static unsigned short round_drawn(int t, float x, unsigned bits)
{
    switch (t) {
#define TYPE(...)
#define DRAWN(PLAIN, rounds, ID, ...) case T_##ID: return rounds(x, bits);
#include "gen/abi/types.def"
    default: abort();
    }
}

/* Stores the arrays of a tensor that are rounded stochastically, with the random bits of compiled
 * stages. */
static void save_drawn(const Plan *p, const Tensor *y, int tensor, const EvalTensor *x,
                       const EvalGroup *g, double t)
{
    for (int k = 0; k < p->nmem; k++) {
        const Mem *m = &p->mem[k];
        if (!type_draws(m->type) || (m->kind != MEM_P && m->kind != MEM_STATE) || !y->mem[k])
            continue;
        const Vals *v = m->kind == MEM_P ? &x->p : &x->state[m->sym];
        optc_draws draws = optc_draws_of(g->hyper[rule_seed(p->rule)], t - g->lag, tensor, k);
        for (int64_t i = 0; i < v->n; i++) {
            int64_t at = x->before[ELEM] + i;
            optc_u4 w = optc_draw8(draws, at >> 3);
            const unsigned word[] = {w.a, w.b, w.c, w.d};
            ((unsigned short *)y->mem[k])[i] = round_drawn(
                (int)m->type, (float)v->v[i], word[(at & 7) / 2] >> at % 2 * 16 & 0xffffu);
        }
    }
}

static void free_named(Vals *v, int n)
{
    for (int i = 0; v && i < n; i++)
        free(v[i].v);
    free(v);
}

static void load_tensor(EvalRun *e, const Plan *p, const Tensor *y, EvalTensor *x)
{
    *x = (EvalTensor){.shape = y->shape,
                      .whole = y->whole,
                      .variant = y->variant,
                      .group = y->cohort,
                      .absent = y->view.n < 0};
    memcpy(x->before, y->before, sizeof x->before);
    x->input = calloc((size_t)p->rule->ninput + 1, sizeof *x->input);
    x->state = calloc((size_t)p->rule->nstate + 1, sizeof *x->state);
    e->ok = x->input && x->state && load_vals(&x->p, p->p, y->mem[0], y->shape.n) &&
            load_vals(&x->g, p->g, y->mem[1], y->shape.n);
    if (e->ok)
        load_named(e, p, y->mem, y->shape, y->whole.n, false, x->input, x->state);
}

static void load_group(EvalRun *e, const Plan *p, const Group *y, EvalGroup *x)
{
    *x = (EvalGroup){y->hyper + 1, calloc((size_t)p->rule->ninput + 1, sizeof(Vals)),
                     calloc((size_t)p->rule->nstate + 1, sizeof(Vals)), (double)y->lag};
    e->ok = x->input && x->state;
    if (e->ok)
        load_named(e, p, y->mem, (Shape){1, 1, 1, 1, 0, 0}, 1, true, x->input, x->state);
}

static void save_tensor(const EvalRun *e, const Plan *p, const Tensor *y, int i)
{
    const EvalTensor *x = &e->j.tensor[i];
    const unsigned first = optc_dither(e->j.t) + (unsigned)(y->view.first >> 3) * OPTC_DITHER;
    save_vals(&x->p, p->p, y->mem[0], first);
    save_named(p, y->mem, y->whole.n, false, x->state, first);
    save_drawn(p, y, i, x, &e->j.group[x->group], e->j.t);
}

static optc_status run_eval(optc_binding *b, int entry, int phase)
{
    const Plan *p = b->rule->library->plan;
    const Rule *r = p->rule;
    (void)phase;
    cpu_follow(b);
    EvalRun e = {{.rule = r,
                  .entry = entry,
                  .t = (double)(b->steps + 1),
                  .ntensor = b->ntensor,
                  .ngroup = b->ncohort,
                  .real = p->real,
                  .p = p->p,
                  .state = p->state,
                  .f32_draws = b->rule->engine->f32_draws},
                 true};
    e.j.tensor = calloc((size_t)b->ntensor + 1, sizeof *e.j.tensor);
    e.j.group = calloc((size_t)b->ncohort + 1, sizeof *e.j.group);
    e.ok = e.j.tensor && e.j.group;
    for (int i = 0; e.ok && i < b->ntensor; i++)
        load_tensor(&e, p, &b->tensor[i], &e.j.tensor[i]);
    for (int i = 0; e.ok && i < b->ncohort; i++)
        load_group(&e, p, &b->group[i], &e.j.group[i]);
    e.ok = e.ok && eval_entry(&e.j);
    for (int i = 0; e.j.tensor && i < b->ntensor; i++) {
        EvalTensor *x = &e.j.tensor[i];
        if (e.ok && !x->absent)
            save_tensor(&e, p, &b->tensor[i], i);
        free(x->p.v);
        free(x->g.v);
        free_named(x->input, r->ninput);
        free_named(x->state, r->nstate);
    }
    for (int i = 0; e.j.group && i < b->ncohort; i++) {
        if (e.ok && b->group[i].view.n >= 0)
            save_named(p, b->group[i].mem, 1, true, e.j.group[i].state, 0);
        free_named(e.j.group[i].input, r->ninput);
        free_named(e.j.group[i].state, r->nstate);
    }
    free(e.j.tensor);
    free(e.j.group);
    return e.ok ? OPTC_OK : no_memory("optc_run");
}

Device evaluator_device(void)
{
    Device d = *cpu_device();                  /* only `run` differs */
    d.name = "evaluator";
    d.run = run_eval;
    return d;
}
