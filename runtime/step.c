/* Running an entry: its phase's stages one after another, each over all tensors at once. */
#include "gpu.h"

#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- native ---- */
typedef struct { atomic_llong next; char pad[56]; } Counter;       /* one cache line each */

/* Units [lo, hi) of a stage: the tensor is found once, then walked. */
static void run_units(const optc_binding *b, const Units *u, const int64_t *prefix, optc_stage_fn fn, int64_t lo, int64_t hi)
{
    int a = 0, z = u->n;
    while (z - a > 1) {
        int mid = (a + z) / 2;
        if (prefix[mid] <= lo)
            a = mid;
        else
            z = mid;
    }
    for (int i = a; lo < hi; i++)
        for (; lo < hi && lo < prefix[i + 1]; lo++)
            fn(&b->tensor[u->tensor[i]].view, lo - prefix[i]);
}

/* Every thread takes the next piece until none is left. Which thread did what changes no bit. Passes over the elements go
 * forth and back in turn: what the last one touched at its end is still in the cache when the next one begins there. */
static void run_stage(const optc_binding *b, const Stage *s, Counter *c, int threads)
{
    optc_stage_fn fn = b->rule->module->fn[s->fn];
    if (s->kind == S_GROUP) {
        for (int64_t i; (i = atomic_fetch_add(&c->next, 1)) < b->ngroup;)
            fn(&b->group[i].view, 0);
        return;
    }
    const Units *u = &b->units[s->variant];
    int64_t total = u->prefix[s->kind][u->n], piece = b->grain ? b->grain : total / (threads * 64) + 1;
    bool back = s->time % 2;
    for (int64_t at; (at = atomic_fetch_add(&c->next, piece)) < total;) {
        int64_t end = at + piece < total ? at + piece : total;
        run_units(b, u, u->prefix[s->kind], fn, back ? total - end : at, back ? total - at : end);
    }
}

optc_status run_native(optc_binding *b, const Phase *ph)
{
    int64_t per_thread = 1 << 15;                  /* below that a thread costs more to wake than it brings */
    int most = b->rule->engine->threads, threads = b->threads ? b->threads : most;
    if (!b->threads && b->elems / per_thread + 1 < threads)
        threads = (int)(b->elems / per_thread) + 1;
    threads = threads > most ? most : threads;
    Counter few[32], *c = ph->nstage <= 32 ? few : malloc(sizeof *c * (size_t)ph->nstage);
    if (!c)
        return fail(OPTC_ERROR_MEMORY, "optc_run: out of memory");
    for (int i = 0; i < ph->nstage; i++)
        atomic_init(&c[i].next, 0);
    if (threads == 1) {
        FloatMode m = float_mode_enter();
        for (int i = 0; i < ph->nstage; i++)
            run_stage(b, &ph->stage[i], &c[i], 1);
        float_mode_leave(m);
    } else {
#pragma omp parallel num_threads(threads)
        {
            FloatMode m = float_mode_enter();
            for (int i = 0; i < ph->nstage; i++) {
                run_stage(b, &ph->stage[i], &c[i], threads);
#pragma omp barrier
            }
            float_mode_leave(m);
        }
    }
    if (c != few)
        free(c);
    return OPTC_OK;
}

/* ---- the evaluator ---- */
static bool load_vals(Vals *v, Type t, const void *p, int64_t n)
{
    v->n = n;
    v->v = malloc(sizeof(double) * (size_t)(n + 1));
    for (int64_t i = 0; v->v && p && i < n; i++)
        v->v[i] = type_load(t, p, i);
    return v->v != NULL;
}

static void save_vals(const Vals *v, Type t, void *p)
{
    for (int64_t i = 0; p && i < v->n; i++)
        type_store(t, p, i, v->v[i]);
}

typedef struct { EvalJob j; bool ok; } EvalRun;

/* Arrays of one tensor or group as doubles; inputs and states it does not have stay empty. */
static void load_named(EvalRun *e, const Plan *p, void *const *mem, Shape s, bool group, Vals *input, Vals *state)
{
    for (int k = 0; k < p->nmem; k++) {
        const Mem *m = &p->mem[k];
        if ((m->kind != MEM_INPUT && m->kind != MEM_STATE) || (m->dom == GROUP) != group || !mem[k])
            continue;
        Vals *v = m->kind == MEM_INPUT ? &input[m->sym] : &state[m->sym];
        e->ok = load_vals(v, m->type, mem[k], group ? 1 : dom_len(m->dom, s)) && e->ok;
    }
}

static void save_named(const Plan *p, void *const *mem, bool group, const Vals *state)
{
    for (int k = 0; k < p->nmem; k++)
        if (p->mem[k].kind == MEM_STATE && (p->mem[k].dom == GROUP) == group && mem[k])
            save_vals(&state[p->mem[k].sym], p->mem[k].type, mem[k]);
}

static void free_named(Vals *v, int n)
{
    for (int i = 0; v && i < n; i++)
        free(v[i].v);
    free(v);
}

optc_status run_eval(optc_binding *b, int entry, double t)
{
    const Plan *p = b->rule->plan;
    const Rule *r = p->rule;
    EvalRun e = {{.rule = r, .entry = entry, .t = t, .ntensor = b->ntensor, .ngroup = b->ngroup, .real = p->real}, true};
    e.j.tensor = calloc((size_t)b->ntensor + 1, sizeof *e.j.tensor);
    e.j.group = calloc((size_t)b->ngroup + 1, sizeof *e.j.group);
    e.ok = e.j.tensor && e.j.group;
    for (int i = 0; e.ok && i < b->ntensor; i++) {
        EvalTensor *x = &e.j.tensor[i];
        const Tensor *y = &b->tensor[i];
        *x = (EvalTensor){.shape = y->shape, .variant = y->variant, .group = y->group};
        x->input = calloc((size_t)r->ninput + 1, sizeof *x->input);
        x->state = calloc((size_t)r->nstate + 1, sizeof *x->state);
        e.ok = x->input && x->state && load_vals(&x->p, p->p, y->mem[0], y->shape.n) && load_vals(&x->g, p->g, y->mem[1], y->shape.n);
        if (e.ok)
            load_named(&e, p, y->mem, y->shape, false, x->input, x->state);
    }
    for (int i = 0; e.ok && i < b->ngroup; i++) {
        EvalGroup *x = &e.j.group[i];
        *x = (EvalGroup){b->group[i].hyper + 1, calloc((size_t)r->ninput + 1, sizeof(Vals)), calloc((size_t)r->nstate + 1, sizeof(Vals))};
        e.ok = x->input && x->state;
        if (e.ok)
            load_named(&e, p, b->group[i].mem, (Shape){1, 1, 1, 1}, true, x->input, x->state);
    }
    e.ok = e.ok && eval_entry(&e.j);
    for (int i = 0; e.j.tensor && i < b->ntensor; i++) {
        EvalTensor *x = &e.j.tensor[i];
        if (e.ok) {
            save_vals(&x->p, p->p, b->tensor[i].mem[0]);
            save_named(p, b->tensor[i].mem, false, x->state);
        }
        free(x->p.v);
        free(x->g.v);
        free_named(x->input, r->ninput);
        free_named(x->state, r->nstate);
    }
    for (int i = 0; e.j.group && i < b->ngroup; i++) {
        if (e.ok)
            save_named(p, b->group[i].mem, true, e.j.group[i].state);
        free_named(e.j.group[i].input, r->ninput);
        free_named(e.j.group[i].state, r->nstate);
    }
    free(e.j.tensor);
    free(e.j.group);
    return e.ok ? OPTC_OK : fail(OPTC_ERROR_MEMORY, "optc_run: out of memory");
}

/* ---- entries ---- */
static int find_entry(const optc_binding *b, const char *name)
{
    for (int i = 0; name && i < b->rule->plan->nentry; i++)
        if (!strcmp(b->rule->plan->entry[i].name, name))
            return i;
    return -1;
}

/* Gradients and inputs this phase reads must be there. */
static optc_status check_pointers(const optc_binding *b, const char *entry, const Phase *ph)
{
    const Plan *p = b->rule->plan;
    for (int i = 0; i < ph->nstage; i++)
        for (int k = 0; k < ph->stage[i].nload; k++) {
            int mem = ph->stage[i].load[k].mem;
            const Mem *m = &p->mem[mem];
            if (m->kind != MEM_G && (m->kind != MEM_INPUT || m->dom == GROUP))
                continue;
            const Units *u = &b->units[ph->stage[i].variant];
            for (int j = 0; j < u->n; j++)
                if (!b->tensor[u->tensor[j]].mem[mem] && b->tensor[u->tensor[j]].shape.n) {
                    char label[96];
                    return fail(OPTC_ERROR_ARGUMENT, "entry '%s' reads %s%s%s of %s, which is not set", entry, m->kind == MEM_G ? "the gradient" : "input '",
                                m->kind == MEM_G ? "" : m->name, m->kind == MEM_G ? "" : "'", tensor_label(b, u->tensor[j], label));
                }
        }
    return OPTC_OK;
}

/* Nothing is missing anywhere: until a pointer is taken away, steps need not look again. */
static bool all_set(const optc_binding *b)
{
    const Plan *p = b->rule->plan;
    for (int k = 0; k < p->nmem; k++)
        for (int i = 0; i < b->ntensor && (p->mem[k].kind == MEM_G || (p->mem[k].kind == MEM_INPUT && p->mem[k].dom != GROUP)); i++)
            if (!b->tensor[i].mem[k] && b->tensor[i].shape.n)
                return false;
    return true;
}

optc_status optc_run(optc_binding *b, const char *entry)
{
    int e = b ? find_entry(b, entry) : -1;
    if (e < 0) {
        if (!b || !entry)
            return fail(OPTC_ERROR_ARGUMENT, "optc_run: %s is NULL", !b ? "the binding" : "the entry's name");
        return fail(OPTC_ERROR_ARGUMENT, "optc_run: rule '%s' has no entry '%s'", b->rule->rule->name, entry);
    }
    double t = (double)(b->steps + 1);
    const Phase *ph = &b->rule->plan->entry[e].phase[plan_phase(b->rule->plan, t)];
    optc_status s = b->complete ? OPTC_OK : check_pointers(b, entry, ph);
    if (s != OPTC_OK)
        return s;
    if (!b->complete)
        b->complete = all_set(b);
    for (int i = 0; i < b->ngroup && !b->gpu; i++)
        b->group[i].hyper[0] = t;
    s = b->gpu ? gpu_run(b, e, t) : b->rule->module ? run_native(b, ph) : run_eval(b, e, t);
    if (s == OPTC_OK && !strcmp(entry, "step") && !(b->gpu && b->gpu->recorded))
        b->steps++;
    return s;
}

optc_status optc_step(optc_binding *b) { return optc_run(b, "step"); }

optc_status optc_plan_bytes(const optc_binding *b, const char *entry, int64_t t, optc_bytes *out)
{
    int e = b ? find_entry(b, entry) : -1;
    if (e < 0 || !out || t < 1)
        return fail(OPTC_ERROR_ARGUMENT, "optc_plan_bytes: %s", !b || !out ? "NULL" : e < 0 ? "no such entry" : "steps count from 1");
    const Plan *p = b->rule->plan;
    const Phase *ph = &p->entry[e].phase[plan_phase(p, (double)t)];
    *out = (optc_bytes){0, 0};
    for (int i = 0; i < ph->nstage; i++) {
        const Units *u = &b->units[ph->stage[i].variant];
        for (int k = 0; ph->stage[i].kind != S_GROUP && k < u->n; k++) {
            Traffic x = stage_traffic(p, &ph->stage[i], b->tensor[u->tensor[k]].shape);
            out->read += x.read;
            out->written += x.written;
        }
    }
    return OPTC_OK;
}
