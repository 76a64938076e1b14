/* Measuring threads and grain of a step on the CPU, on tensors of our own. */
#include "internal.h"
#include "search.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct CpuTuner {
    optc_rule *r;
    optc_binding *b[2];                    /* the second one only to compare bits with */
    void *p[2], *g, *input;
    int64_t dim[2], n;
};

static optc_status bind_one(CpuTuner *u, int i)
{
    const Plan *p = u->r->plan;
    bool matrix = p->rule->has_matrix || p->rule->view;
    u->p[i] = aligned_alloc(1 << 12, ((size_t)u->n * 8 + 4095) / 4096 * 4096);
    if (!u->p[i])
        return fail(OPTC_ERROR_MEMORY, "tuning: out of memory");
    for (int64_t k = 0; k < u->n; k++)
        type_store(p->p, u->p[i], k, (0.25 + (double)((uint32_t)k * 2654435761u >> 9) * 0x1p-23) * (k & 1 ? 1 : -1));
    optc_tensor t = {.param = u->p[i], .grad = u->g, .rank = matrix ? 2 : 1, .shape = u->dim};
    optc_status s = optc_bind(u->r, &(optc_group){.tensors = &t, .ntensors = 1}, 1, &u->b[i]);
    for (int k = 0; k < optc_rule_inputs(u->r) && s == OPTC_OK; k++)
        if (optc_set_scalar(u->b[i], -1, optc_rule_input(u->r, k), 0.5) != OPTC_OK)
            s = optc_set_input(u->b[i], 0, optc_rule_input(u->r, k), u->input, 0);
    if (s == OPTC_OK)
        u->b[i]->threads = u->b[i]->grain = 0;          /* the model's, whatever is known already */
    return s;
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
    if (!matrix)
        u->dim[0] = elements;
    u->g = malloc((size_t)u->n * 8 + 64);
    u->input = malloc((size_t)u->n * 8 + 64);
    optc_status s = u->g && u->input ? OPTC_OK : fail(OPTC_ERROR_MEMORY, "tuning: out of memory");
    for (int64_t k = 0; k < u->n && s == OPTC_OK; k++)
        type_store(r->plan->g, u->g, k, 0.0625 * (0.25 + (double)((uint32_t)k * 2246822519u >> 9) * 0x1p-23) * (k & 2 ? 1 : -1));
    if (s == OPTC_OK)
        memset(u->input, 0x3f, (size_t)u->n * 8);       /* a normal number in every type */
    for (int i = 0; i < 2 && s == OPTC_OK; i++)
        s = bind_one(u, i);
    for (int i = 0; i < 2 && s == OPTC_OK; i++)
        s = optc_step(u->b[i]);
    if (s != OPTC_OK) {
        char why[1024];
        snprintf(why, sizeof why, "%s", optc_message());
        cpu_tuner_close(u);
        return fail(s, "%s", why);
    }
    *out = u;
    return OPTC_OK;
}

Space cpu_tuner_space(void)
{
    const Launch model = {{0, 1, 0, 0, 0, 0, 0}};
    return (Space){.form = FORM_CPU, .model = model, .rival = model};
}

static void use(optc_binding *b, const Launch *l)
{
    b->threads = l->v[KNOB_THREADS];
    b->grain = l->v[KNOB_ITEMS];
}

static void ready(void *ctx, const Launch *l, int n, bool *ok)
{
    CpuTuner *u = ctx;
    static const Launch model = {{0, 1, 0, 0, 0, 0, 0}};
    for (int i = 0; i < n; i++) {
        ok[i] = l[i].v[KNOB_THREADS] <= u->r->engine->threads;
        if (!ok[i])
            continue;
        use(u->b[0], &model);
        use(u->b[1], &l[i]);
        ok[i] = optc_step(u->b[0]) == OPTC_OK && optc_step(u->b[1]) == OPTC_OK && !memcmp(u->p[0], u->p[1], (size_t)u->n * (size_t)type_info[u->r->plan->p].bytes);
    }
}

/* Both sides take the same steps, so that what is compared next is equal again. */
static bool race(void *ctx, int layout, const Launch *a, const Launch *b, int samples, double *ms_a, double *ms_b)
{
    CpuTuner *u = ctx;
    const Launch *l[2] = {a, b};
    (void)layout;
    double t[2][128];
    samples = samples > 128 ? 128 : samples;
    for (int i = 0; i < samples; i++)
        for (int k = 0; k < 2; k++) {
            int side = (i + k) % 2;
            use(u->b[0], l[side]);
            double t0 = now_ms();
            if (optc_step(u->b[0]) != OPTC_OK)
                return false;
            t[side][i] = now_ms() - t0;
            use(u->b[1], l[side]);
            if (optc_step(u->b[1]) != OPTC_OK)
                return false;
        }
    *ms_a = median(t[0], samples);
    *ms_b = median(t[1], samples);
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
