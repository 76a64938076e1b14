/* Measuring threads and grain of a step on the CPU, on tensors of our own. */
#include "internal.h"
#include "search.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const Launch model = {{0, 1, 0, 0, 0, 0, 0}};

struct CpuTuner {
    optc_rule *r;
    optc_binding *b[2];                    /* a pair that takes the same steps, to compare bits */
    void *p[2], *g, *input;
    int64_t dim[2], n, most;               /* most: units of work of a stage */
};

static void use(optc_binding *b, const Launch *l)
{
    b->threads = l->v[KNOB_THREADS];
    b->grain = l->v[KNOB_ITEMS];
}

static size_t param_bytes(const CpuTuner *u) { return (size_t)u->n * (size_t)type_info[u->r->plan->p].bytes; }

static optc_status bind_one(CpuTuner *u, int i)
{
    const Plan *p = u->r->plan;
    bool matrix = p->rule->has_matrix || p->rule->view;
    for (int64_t k = 0; k < u->n; k++)
        type_store(p->p, u->p[i], k, (0.25 + (double)((uint32_t)k * 2654435761u >> 9) * 0x1p-23) * (k & 1 ? 1 : -1));
    optc_tensor t = {.param = u->p[i], .grad = u->g, .rank = matrix ? 2 : 1, .shape = u->dim};
    optc_status s = optc_bind(u->r, &(optc_group){.tensors = &t, .ntensors = 1}, 1, &u->b[i]);
    for (int k = 0; k < optc_rule_inputs(u->r) && s == OPTC_OK; k++)
        if (optc_set_scalar(u->b[i], -1, optc_rule_input(u->r, k), 0.5) != OPTC_OK)
            s = optc_set_input(u->b[i], 0, optc_rule_input(u->r, k), u->input, 0);
    if (s == OPTC_OK)
        use(u->b[i], &model);              /* whatever is known already */
    return s;
}

/* Where a launch gave other bits the pair differs from then on: made equal again. At first too: what no step writes is as it was found. */
static void mend(CpuTuner *u)
{
    memcpy(u->p[1], u->p[0], param_bytes(u));
    memcpy(u->b[1]->block, u->b[0]->block, u->b[0]->block_bytes);
    u->b[1]->steps = u->b[0]->steps;
}

static optc_status begin(CpuTuner *u)
{
    optc_status s = OPTC_OK;
    for (int i = 0; i < 2 && s == OPTC_OK; i++) {
        optc_unbind(u->b[i]);
        s = bind_one(u, i);
        if (s == OPTC_OK)
            s = optc_step(u->b[i]);
    }
    if (s == OPTC_OK)
        mend(u);
    return s;
}

/* Steps on a gradient that stays run away: LARS and Adafactor are at infinity after 4200, where all bits are alike. Long before that they begin anew. */
static bool fresh(CpuTuner *u) { return u->b[0] && u->b[1] && (u->b[0]->steps < 1000 || begin(u) == OPTC_OK); }

/* Of the stage that has most. */
static int64_t most_units(const CpuTuner *u)
{
    int64_t most = 0;
    for (int f = 0; f < u->r->plan->nfn; f++) {
        const Stage *st = plan_at(u->r->plan, f).stage;
        const Units *x = st && st->kind != S_GROUP ? &u->b[0]->units[st->variant] : NULL;
        most = x && x->prefix[st->kind][x->n] > most ? x->prefix[st->kind][x->n] : most;
    }
    return most;
}

void cpu_tuner_close(CpuTuner *u)
{
    if (!u)
        return;
    for (int i = 0; i < 2; i++) {
        optc_unbind(u->b[i]);
        free(u->p[i]);
    }
    free(u->g);
    free(u->input);
    free(u);
}

int cpu_tuner_open(optc_rule *r, int64_t elements, CpuTuner **out)
{
    CpuTuner *u = calloc(1, sizeof *u);
    *out = NULL;
    if (!u)
        return fail(OPTC_ERROR_MEMORY, "tuning: out of memory");
    u->r = r;
    bool matrix = r->rule->has_matrix || r->rule->view;
    int64_t cols = 1;
    while (matrix && cols * cols < elements && cols < 4096)
        cols *= 2;
    u->dim[0] = (elements + cols - 1) / cols;
    u->dim[1] = cols;
    u->n = u->dim[0] * cols;
    u->g = malloc((size_t)u->n * 8 + 64);
    u->input = malloc((size_t)u->n * 8 + 64);
    for (int i = 0; i < 2; i++)
        u->p[i] = aligned_alloc(1 << 12, ((size_t)u->n * 8 + 4095) / 4096 * 4096);
    optc_status s = u->g && u->input && u->p[0] && u->p[1] ? OPTC_OK : fail(OPTC_ERROR_MEMORY, "tuning: out of memory");
    for (int64_t k = 0; k < u->n && s == OPTC_OK; k++)
        type_store(r->plan->g, u->g, k, 0.0625 * (0.25 + (double)((uint32_t)k * 2246822519u >> 9) * 0x1p-23) * (k & 2 ? 1 : -1));
    if (s == OPTC_OK)
        memset(u->input, 0x3f, (size_t)u->n * 8);       /* a normal number in every type */
    if (s == OPTC_OK)
        s = begin(u);
    if (s != OPTC_OK) {
        char why[1024];
        snprintf(why, sizeof why, "%s", optc_message());
        cpu_tuner_close(u);
        return fail(s, "%s", why);
    }
    u->most = most_units(u);
    *out = u;
    return OPTC_OK;
}

Space cpu_tuner_space(void) { return (Space){.form = FORM_CPU, .model = model, .rival = model}; }

static bool same_bits(CpuTuner *u, const Launch *l)
{
    use(u->b[0], &model);
    use(u->b[1], l);
    return optc_step(u->b[0]) == OPTC_OK && optc_step(u->b[1]) == OPTC_OK && !memcmp(u->p[0], u->p[1], param_bytes(u)) && !memcmp(u->b[0]->block, u->b[1]->block, u->b[0]->block_bytes);
}

/* What comes to the same as another could win by noise only. One unit of work goes to one thread at once, whatever the launch: the model stays. Of grains that take all there is
 * the least stands for the rest: at a larger size, which may take the result, it leaves work for other threads. */
static bool worth(const CpuTuner *u, const Launch *l)
{
    return l->v[KNOB_THREADS] <= u->r->engine->threads && (!memcmp(l, &model, sizeof model) || (u->most > 1 && l->v[KNOB_ITEMS] < 2 * u->most));
}

static void ready(void *ctx, const Launch *l, int n, bool *ok)
{
    CpuTuner *u = ctx;
    for (int i = 0; i < n; i++) {
        bool runs = worth(u, &l[i]);
        ok[i] = runs && same_bits(u, &l[i]);
        if (runs && !ok[i])
            mend(u);
    }
}

/* Short steps are timed together, far above the clock's grain and far below what a core is taken away for. They are counted anew each time: threads that wait for one take
 * a thousand times what they took before. Both of the pair take as many, so that what is compared next is equal again. */
static bool run_timed(CpuTuner *u, const Launch *l, double *ms)
{
    int reps = 0;
    for (int i = 0; i < 2; i++)
        use(u->b[i], l);
    double t0 = now_ms();
    for (*ms = 0; *ms < 0.05; *ms = now_ms() - t0)
        for (int more = reps + 1; more; more--, reps++)
            if (optc_step(u->b[0]) != OPTC_OK)
                return false;
    *ms /= reps;
    while (reps && optc_step(u->b[1]) == OPTC_OK)
        reps--;
    return !reps;
}

/* By the median of the ratios, not the ratio of the medians: a core whose speed goes up and down is the same for two that follow each other. With one launch on both sides the
 * ratio of the medians of 25 was below 0.997 in 8 races of a hundred on a busy machine, this in 3. */
static bool race(void *ctx, int layout, const Launch *a, const Launch *b, int samples, double *ms_a, double *ms_b)
{
    CpuTuner *u = ctx;
    const Launch *l[2] = {a, b};
    (void)layout;
    double t[2][128], ratio[128];
    samples = samples > 128 ? 128 : samples;
    for (int i = 0; i < samples; i++) {
        if (!fresh(u))
            return false;
        for (int k = 0; k < 2; k++) {
            int side = (i + k) % 2;
            if (!run_timed(u, l[side], &t[side][i]))
                return false;
        }
        ratio[i] = t[0][i] / t[1][i];
    }
    *ms_b = median(t[1], samples);
    *ms_a = *ms_b * median(ratio, samples);
    return true;
}

static double now(void *ctx)
{
    (void)ctx;
    return now_ms() * 1e-3;
}

double cpu_tuner_bytes(const CpuTuner *u)
{
    optc_bytes b;
    return optc_plan_bytes(u->b[0], "step", 1, &b) == OPTC_OK ? b.read + b.written : 0;
}

Meter cpu_tuner_meter(CpuTuner *u) { return (Meter){.ctx = u, .layouts = 1, .ready = ready, .race = race, .now = now}; }
