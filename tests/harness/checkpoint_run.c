#include "tests/harness/checkpoint_run.h"

#include <stdlib.h>
#include <string.h>

const TestShape run_shapes[TENSORS] = {{2, {80, 60}}, {1, {7}}, {0, {0}}, {3, {4, 9, 5}}};
const char *const run_names[TENSORS] = {"layers.0/weight", "b\"\\ä\n", NULL, "conv"};

void run_open_as(Run *x, const optc_engine_options *eo, const optc_rule_options *ro,
                 const char *const *called)
{
    optc_tensor t[TENSORS];
    memset(x, 0, sizeof *x);
    memset(t, 0, sizeof t);
    OK(optc_open(eo, &x->e));
    OK(optc_compile(x->e, ro, &x->r));
    for (int k = 0; k < TENSORS; k++) {
        x->n[k] = 1;
        for (int i = 0; i < run_shapes[k].rank; i++)
            x->n[k] *= run_shapes[k].dim[i];
        x->p[k] = calloc((size_t)x->n[k], 8);
        x->g[k] = calloc((size_t)x->n[k], 8);
        for (int64_t i = 0; i < x->n[k]; i++)
            type_store(x->r->program->p, x->p[k], i, 0.5 * ref_value(k, 0, i));
        t[k] = (optc_tensor){.name = called[k],
                             .param = x->p[k],
                             .grad = x->g[k],
                             .rank = run_shapes[k].rank,
                             .shape = run_shapes[k].dim};
    }
    without_kernels(x->r, t, TENSORS);
    optc_group g[2] = {{.tensors = t, .ntensors = 2}, {.tensors = t + 2, .ntensors = 2}};
    OK(optc_bind(x->r, g, 2, &x->b));
}

void run_open(Run *x, const char *spec, const char *types, int threads)
{
    run_open_as(x,
                &(optc_engine_options){.threads = threads, .cache_dir = getenv("OPTC_TEST_CACHE")},
                &(optc_rule_options){.spec = spec, .types = types}, run_names);
}

/* Steps from..to. Tensor 1 misses step 2, and the learning rate of group 1 changes at step 3. */
void run_steps(Run *x, int from, int to)
{
    for (int s = from; s <= to; s++) {
        for (int k = 0; k < TENSORS; k++)
            for (int64_t i = 0; i < x->n[k]; i++)
                type_store(x->r->program->g, x->g[k], i, 0.1 * ref_value(k, s, i));
        OK(optc_set_grad(x->b, 1, s == 2 ? NULL : x->g[1], 0));
        if (s == 2 || s == 3)
            OK(optc_set_hyper(x->b, s - 2, "lr", 0.001 * (2 * s + 1)));
        OK(optc_step(x->b));
    }
}

/* All parameters, states, step counts and hyperparameters, bit for bit. */
uint64_t run_hash(const Run *x)
{
    uint64_t h = 1;
    SavedList l;
    OK(saved_make(&l, "test", &x->b, 1, &(optc_checkpoint){0}, true));
    for (int64_t i = 0; i < l.n; i++)
        h = checkpoint_hash(h, l.item[i].host ? l.item[i].host : l.item[i].at,
                            (size_t)saved_bytes(&l.item[i]));
    saved_free(&l);
    for (int k = 0; k < TENSORS; k++)
        h = checkpoint_hash(h, x->p[k],
                            (size_t)(x->n[k] * x->r->program->type[x->r->program->p].bytes));
    return h;
}

void run_close(Run *x)
{
    OK(optc_unbind(x->b));
    OK(optc_release(x->r));
    OK(optc_close(x->e));
    for (int k = 0; k < TENSORS; k++) {
        free(x->p[k]);
        free(x->g[k]);
    }
}

void run_copy_params(Run *to, const Run *from)
{
    for (int k = 0; k < TENSORS; k++)
        memcpy(to->p[k], from->p[k], (size_t)from->n[k] * 8);
}

/* A checkpoint in memory; the caller frees it. */
optc_checkpoint run_saved(optc_binding *const *b, int n, const char *const *prefix)
{
    optc_checkpoint c = {.prefix = prefix};
    OK(optc_save_bytes(b, n, &c, &c.size));
    c.memory = malloc((size_t)c.size);
    OK(optc_save(b, n, &c));
    return c;
}
