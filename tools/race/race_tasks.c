/* The table of tasks, their data, their batches and the check of their gradients. */
#include "tools/race/race_task.h"

#include <math.h>
#include <stdlib.h>

const RaceTask *const race_tasks[] = {&race_matrix, &race_logistic, &race_spirals, &race_embedding,
                                      &race_digits, &race_text,     NULL};

int64_t tensor_count(const TaskTensor *t)
{
    int64_t n = 1;
    for (int i = 0; i < t->rank; i++)
        n *= t->dim[i];
    return n;
}

bool task_open(TaskData *d, const RaceTask *t, uint64_t seed)
{
    int samples = t->batch > t->held ? t->batch : t->held;
    *d = (TaskData){.task = t, .key = race_key(seed, t->name, KEY_BATCH)};
    d->x = calloc((size_t)(t->nx + t->nwork + 1), sizeof *d->x);
    d->y = calloc((size_t)(t->ny + samples + t->train + 1), sizeof *d->y);
    if (!d->x || !d->y)
        return task_close(d), false;
    d->work = d->x + t->nx;
    d->sample = d->y + t->ny;
    t->make(d, race_key(seed, t->name, KEY_DATA));
    return true;
}

void task_close(TaskData *d)
{
    free(d->x);
    free(d->y);
    d->x = NULL;
    d->y = NULL;
}

void task_batch(TaskData *d, int step)
{
    for (int i = 0; i < d->task->batch; i++)
        d->sample[i] =
            (int)(race_uniform(d->key, (uint64_t)step * 4096 + (uint64_t)i) * d->task->train);
}

double task_evaluate(TaskData *d, const double *const *p)
{
    const RaceTask *t = d->task;
    int n = t->held ? t->held : t->train;
    for (int i = 0; i < n; i++)
        d->sample[i] = t->held ? t->train + i : i;
    return t->loss(d, d->sample, n, p, NULL);
}

/* Differences at five parameters of each tensor whose gradients are large enough to compare. */
static double compare_gradients(TaskData *d, double *const *p, double *const *g, int i)
{
    enum { TRIES = 5 };
    const double h = 1e-5;
    double most = 0, worst = 0;
    int64_t n = tensor_count(&d->task->tensor[i]);
    for (int64_t k = 0; k < n; k++)
        most = fabs(g[i][k]) > most ? fabs(g[i][k]) : most;
    for (int64_t k = 0, tries = 0; k < n && tries < TRIES; k++) {
        int64_t at = (k * 7 + 3) % n;                          /* different rows and columns */
        if (fabs(g[i][at]) < 1e-3 * most)
            continue;
        double was = p[i][at], up, down;
        p[i][at] = was + h;
        up = d->task->loss(d, d->sample, d->task->batch, (const double *const *)p, NULL);
        p[i][at] = was - h;
        down = d->task->loss(d, d->sample, d->task->batch, (const double *const *)p, NULL);
        p[i][at] = was;
        double off = fabs((up - down) / (2 * h) - g[i][at]) / most;
        worst = off > worst || isnan(off) ? off : worst;
        tries++;
    }
    return most > 0 ? worst : INFINITY;
}

double task_check_gradients(const RaceTask *t, uint64_t seed, const char **where)
{
    TaskData d;
    double *p[TASK_TENSORS], *g[TASK_TENSORS], worst = 0;
    int64_t total = 0;
    *where = "memory";
    for (int i = 0; i < t->ntensor; i++)
        total += tensor_count(&t->tensor[i]);
    double *memory = calloc((size_t)(2 * total), sizeof *memory), *at = memory;
    if (!memory || !task_open(&d, t, seed)) {
        free(memory);
        return INFINITY;
    }
    for (int i = 0; i < t->ntensor; i++) {
        p[i] = at;
        g[i] = at + total;
        at += tensor_count(&t->tensor[i]);
    }
    t->start(&d, p, race_key(seed, t->name, KEY_START));
    task_batch(&d, 1);
    double loss = t->loss(&d, d.sample, t->batch, (const double *const *)p, g);
    for (int i = 0; i < t->ntensor; i++) {
        double off = isfinite(loss) ? compare_gradients(&d, p, g, i) : INFINITY;
        if (!(off <= worst)) {
            worst = off;
            *where = t->tensor[i].name;
        }
    }
    task_close(&d);
    free(memory);
    return worst;
}
