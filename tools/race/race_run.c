/* One run: a rule trains a task for one seed, through the calls of optc.h that users make. */
#include "tools/race/race.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* The task computes in double precision; the rule steps f32 tensors. */
typedef struct Trainer {
    TaskData data;
    double *p[TASK_TENSORS], *g[TASK_TENSORS], *probe[TASK_TENSORS];
    float *param[TASK_TENSORS], *grad[TASK_TENSORS];
    void *memory;
    optc_binding *binding;
} Trainer;

static double thread_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static bool trainer_memory(Trainer *x, const RaceTask *t)
{
    size_t total = 0;
    for (int i = 0; i < t->ntensor; i++)
        total += (size_t)(tensor_count(&t->tensor[i]) + 15) / 16 * 16;
    x->memory = aligned_alloc(64, total * (3 * sizeof(double) + 2 * sizeof(float)));
    if (!x->memory)
        return false;
    memset(x->memory, 0, total * (3 * sizeof(double) + 2 * sizeof(float)));
    double *d = x->memory;
    float *f = (float *)(d + 3 * total);
    for (int i = 0; i < t->ntensor; i++) {
        size_t n = (size_t)(tensor_count(&t->tensor[i]) + 15) / 16 * 16;
        x->p[i] = d;
        x->g[i] = d + total;
        x->probe[i] = d + 2 * total;
        x->param[i] = f;
        x->grad[i] = f + total;
        d += n;
        f += n;
    }
    return true;
}

static double clamp_rate(const RaceRule *r, int i, double factor)
{
    double x = r->rate_default[i] * factor;
    x = x > r->rate_hi[i] ? r->rate_hi[i] : x;
    return x < r->rate_lo[i] ? r->rate_lo[i] : x;
}

static optc_status bind_task(Trainer *x, const RaceRule *r, const RaceTask *t, RaceSettings s)
{
    optc_tensor tensor[TASK_TENSORS];
    optc_setting set[2 * RACE_HYPERS + RACE_SETTINGS];
    int n = 0;
    for (int i = 0; i < t->ntensor; i++) {
        const TaskTensor *shape = &t->tensor[i];
        bool rest = shape->role != TENSOR_HIDDEN && shape->rank > 1 && r->fallback;
        tensor[i] = (optc_tensor){.name = shape->name,
                                  .param = x->param[i],
                                  .grad = x->grad[i],
                                  .rank = shape->rank,
                                  .shape = shape->dim,
                                  .flags = rest ? OPTC_USE_STEP : 0,
                                  .tags = shape->role == TENSOR_HEAD ? "head" : NULL};
    }
    for (int i = 0; i < r->nfixed; i++)
        /* a later setting of the same name replaces it */
        set[n++] = r->fixed[i];
    for (int i = 0; i < r->nrate; i++)
        set[n++] = (optc_setting){r->rate[i], clamp_rate(r, i, s.factor)};
    for (int i = 0; i < r->ndecay && !isnan(s.decay); i++)
        set[n++] = (optc_setting){r->decay[i], s.decay};
    return optc_bind(
        r->rule,
        &(optc_group){.tensors = tensor, .ntensors = t->ntensor, .hyper = set, .nhyper = n}, 1,
        &x->binding);
}

static void load_params(Trainer *x, const RaceTask *t)
{
    for (int i = 0; i < t->ntensor; i++)
        for (int64_t k = 0, n = tensor_count(&t->tensor[i]); k < n; k++)
            x->p[i][k] = x->param[i][k];
}

/* Returns the loss of the batch. */
static double gradient(Trainer *x, const RaceTask *t, double scale)
{
    load_params(x, t);
    double loss = t->loss(&x->data, x->data.sample, t->batch, (const double *const *)x->p, x->g);
    for (int i = 0; i < t->ntensor; i++)
        for (int64_t k = 0, n = tensor_count(&t->tensor[i]); k < n; k++)
            x->grad[i][k] = (float)(scale * x->g[i][k]);
    return loss;
}

/* Hutchinson's estimate of the Hessian's diagonal, u (H u) with random signs u. H u is a central
 * difference of exact gradients in double precision. */
static void hessian(Trainer *x, const RaceTask *t, int step)
{
    const double h = 1e-4;
    load_params(x, t);
    for (int side = 0; side < 2; side++) {
        uint64_t at = (uint64_t)step << 32;
        for (int i = 0; i < t->ntensor; i++)
            for (int64_t k = 0, n = tensor_count(&t->tensor[i]); k < n; k++) {
                double u = race_bits(x->data.key ^ KEY_HESSIAN, at++) & 1 ? 1 : -1;
                x->probe[i][k] = (double)x->param[i][k] + (side ? -h : h) * u;
            }
        t->loss(&x->data, x->data.sample, t->batch, (const double *const *)x->probe, x->g);
        at = (uint64_t)step << 32;
        for (int i = 0; i < t->ntensor; i++)
            for (int64_t k = 0, n = tensor_count(&t->tensor[i]); k < n; k++) {
                double u = race_bits(x->data.key ^ KEY_HESSIAN, at++) & 1 ? 1 : -1,
                       part = u * x->g[i][k] / (2 * h);
                x->p[i][k] = side ? x->p[i][k] - part : part;
            }
    }
    for (int i = 0; i < t->ntensor; i++)
        for (int64_t k = 0, n = tensor_count(&t->tensor[i]); k < n; k++)
            x->grad[i][k] = (float)x->p[i][k];
}

/* Rules that average their iterates keep their rate: the average takes the place of a schedule. */
static optc_status set_rates(Trainer *x, const RaceRule *r, RaceSettings s, double share)
{
    optc_status status = OPTC_OK;
    for (int i = 0; i < r->nrate && s.linear && !r->averages && status == OPTC_OK; i++)
        status = optc_set_hyper(x->binding, -1, r->rate[i], clamp_rate(r, i, s.factor * share));
    return status;
}

static optc_status set_losses(Trainer *x, const RaceRule *r, double loss)
{
    optc_status s = OPTC_OK;
    for (int k = 0; k < r->nloss && s == OPTC_OK; k++)
        s = optc_set_scalar(x->binding, -1, optc_rule_input(r->rule, k), loss);
    return s;
}

static optc_status one_step(Trainer *x, const RaceRule *r, const RaceTask *t, int step)
{
    double scale = 1;
    optc_status s =
        r->scales ? optc_state_read(x->binding, 0, "loss_scale.scale", &scale, 1) : OPTC_OK;
    task_batch(&x->data, step);
    if (r->hessian && s == OPTC_OK) {
        if (r->nloss)
            s = set_losses(x, r, gradient(x, t, 1));
        hessian(x, t, step);
        s = s == OPTC_OK ? optc_run(x->binding, "set_hessian") : s;
    }
    const char *entry;
    for (int i = 0; s == OPTC_OK && (entry = optc_rule_gradient(r->rule, step, i)); i++) {
        double loss = gradient(x, t, scale);
        s = set_losses(x, r, loss);
        s = s == OPTC_OK ? optc_run(x->binding, entry) : s;
    }
    return s;
}

static optc_status evaluate(Trainer *x, const RaceRule *r, const RaceTask *t, double *loss)
{
    optc_status s = r->averages ? optc_run(x->binding, "to_eval") : OPTC_OK;
    if (s != OPTC_OK)
        return s;
    load_params(x, t);
    *loss = task_evaluate(&x->data, (const double *const *)x->p);
    return r->averages ? optc_run(x->binding, "to_train") : OPTC_OK;
}

/* A loss that is not finite, or a thousand times the first one, does not come back within the
 * budget. */
static bool has_diverged(double loss, double first)
{
    return !isfinite(loss) || loss > 1000 * (first + 1);
}

static optc_status train(Trainer *x, const RaceRule *r, const RaceTask *t, const RaceTaskInfo *info,
                         RaceSettings set, const volatile sig_atomic_t *stop, RaceRun *run)
{
    optc_status s = OPTC_OK;
    /* without to_eval: before the first step a rule has no average */
    load_params(x, t);
    run->loss[0] = task_evaluate(&x->data, (const double *const *)x->p);
    run->npoint = 1;
    for (int step = 1; s == OPTC_OK && step <= info->steps && !*stop; step++) {
        double began = thread_seconds();
        s = set_rates(x, r, set, 1 - (step - 1.0) / info->steps);
        s = s == OPTC_OK ? one_step(x, r, t, step) : s;
        run->seconds += thread_seconds() - began;
        if (s != OPTC_OK || (step % info->every && step != info->steps))
            continue;
        double loss = NAN;
        s = evaluate(x, r, t, &loss);
        if (s != OPTC_OK)
            return s;
        if (has_diverged(loss, run->loss[0])) {
            run->diverged = run->done = true;
            return s;
        }
        run->loss[run->npoint++] = loss;
        if (loss <= info->target && !run->reached) {
            run->reached = step;
            run->target_seconds = run->seconds;
        }
        run->done = step == info->steps;
    }
    return s;
}

bool race_run(const RaceRule *r, const RaceTask *t, const RaceTaskInfo *info, RaceSettings s,
              const volatile sig_atomic_t *stop, RaceRun *run, char error[512])
{
    Trainer x = {0};
    optc_status status = OPTC_ERROR_MEMORY;
    run->done = run->diverged = false;
    run->reached = run->npoint = 0;
    run->seconds = run->target_seconds = 0;
    bool made = trainer_memory(&x, t) && task_open(&x.data, t, (uint64_t)run->seed);
    if (made) {
        t->start(&x.data, x.p, race_key((uint64_t)run->seed, t->name, KEY_START));
        for (int i = 0; i < t->ntensor; i++)
            for (int64_t k = 0, n = tensor_count(&t->tensor[i]); k < n; k++)
                x.param[i][k] = (float)x.p[i][k];
        status = bind_task(&x, r, t, s);
        if (status == OPTC_OK)
            status = train(&x, r, t, info, s, stop, run);
        task_close(&x.data);
    }
    if (status != OPTC_OK)
        snprintf(error, 512, "%s", made ? optc_message() : "out of memory");
    optc_unbind(x.binding);
    free(x.memory);
    return status == OPTC_OK;
}
