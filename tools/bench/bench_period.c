/* Rules whose steps differ, such as those with every(10): means are over whole periods, and each
 * step's time is measured too. Steps are queued one after another, as in a run without other
 * work. */
#include "tools/bench/bench.h"

#include <stdlib.h>

/* LONGEST: longer periods are ignored; work that is so rare is not in the mean. SAMPLE_STEPS: most
 * steps of a sample, rounded up to whole periods. */
enum { LONGEST = 1000, SAMPLE_STEPS = 1000 };

static int64_t common(int64_t a, int64_t b)
{
    int64_t x = a, y = b;
    while (y) {
        int64_t rest = x % y;
        x = y;
        y = rest;
    }
    return a / x * b;
}

static int longer(int period, int64_t every)
{
    int64_t both = every >= 1 && every <= LONGEST ? common(period, every) : period;
    return both <= LONGEST ? (int)both : period;
}

int period_of(const Plan *p)
{
    int period = 1;
    for (int i = 0; i < p->nperiod; i++)
        period = longer(period, p->period[i].every);
    for (int i = 0; i < p->rule->nstate; i++) {
        Stagger s = p->rule->state[i].slots;
        if (s.every)
            period = longer(period, (int64_t)s.every * (s.of > 1 ? s.of : 1));
    }
    return period;
}

int period_steps(const Bench *b, const Case *c, int least)
{
    if (b->steps && b->steps < c->period)
        return b->steps;
    int most = (SAMPLE_STEPS + c->period - 1) / c->period * c->period;
    int64_t n = ((int64_t)least + c->period - 1) / c->period * c->period;
    return n < c->period ? c->period : n < most ? (int)n : most;
}

/* c->lap gets the mean time of each step of a period, over all periods of the sample. */
bool period_sample(Bench *b, Case *c, int n, double *seconds, double *slowest)
{
    BenchDevice *d = &b->device;
    double *each = malloc((size_t)n * sizeof *each), all = 0, most = 0;
    bool ok =
        each ? d->ops->sync(d) && d->ops->lap(d, 0) : (cli_error("bench: out of memory"), false);
    for (int k = 0; ok && k < n; k++)
        ok = bench_steps(c, 1) && d->ops->lap(d, k + 1);
    ok = ok && d->ops->laps(d, n, each);
    int kinds = n < c->period ? n : c->period;
    for (int k = 0; ok && k < kinds; k++) {
        double sum = 0;
        for (int i = k; i < n; i += kinds)
            sum += each[i];
        all += sum;
        c->lap[k] = sum / (n / kinds);
        most = c->lap[k] > most ? c->lap[k] : most;
    }
    free(each);
    if (!ok)
        return false;
    *seconds = all / n;
    *slowest = most / *seconds;
    return true;
}

/* Each step starts with an empty queue: a step has many launches, and with a full queue the caller
 * would wait for the device. */
bool period_host(Bench *b, Case *c, double *seconds)
{
    BenchDevice *d = &b->device;
    int n = period_steps(b, c, 1);
    *seconds = 0;
    for (int k = 0; k < n; k++) {
        if (!d->ops->sync(d))
            return false;
        double t0 = cli_now();
        if (!bench_steps(c, 1))
            return false;
        *seconds += (cli_now() - t0) / n;
    }
    return d->ops->sync(d);
}
