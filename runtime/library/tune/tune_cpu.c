/* Measures threads and grain of a step on the CPU, on tensors that the tuner allocates. */
#include "runtime/library/internal.h"
#include "runtime/core/cpu/cpu.h"
#include "runtime/library/tune/launch_search.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const Launch model = {{0, 1, 0, 0, 0, 0, 0}};

/* Three sets: a pair that takes the same steps, to compare bits, and one that is timed. The pair
 * may be small: a launch that changes bits does so as soon as every thread has a few units of
 * work. */
enum { TIMED = 2, NSET, PAIR_MOST = 1 << 22, PERIOD = 1 << 16 };
typedef struct Set { optc_binding *b; void *p; int64_t dim[2], n; } Set;

struct CpuTuner {
    optc_rule *r;
    Set set[NSET];
    void *g, *input;
    int64_t most;                          /* most units of work of any stage */
    double raced, waited;                  /* milliseconds of races, and those that threads waited
                                            * for a core in them */
};

static void use(optc_binding *b, const Launch *l)
{
    b->threads = l->v[KNOB_THREADS];
    b->grain = l->v[KNOB_ITEMS];
}

static size_t param_bytes(const CpuTuner *u)
{
    return (size_t)u->set[0].n * (size_t)type_info[u->r->library->plan->p].bytes;
}

/* Fills an array with a repeated block of numbers. All threads copy, so that each page is near the
 * thread that uses it. */
typedef struct Filling { char *to; size_t size; int64_t n; } Filling;

static void fill_period(void *with, int64_t i)
{
    const Filling *f = with;
    int64_t at = (i + 1) * PERIOD, left = f->n - at;
    memcpy(f->to + (size_t)at * f->size, f->to, (size_t)(left < PERIOD ? left : PERIOD) * f->size);
}

static void fill(const CpuTuner *u, Type t, void *to, int64_t n, uint32_t by, int64_t sign,
                 double scale)
{
    size_t size = (size_t)type_info[t].bytes;
    for (int64_t k = 0; k < n && k < PERIOD; k++)
        type_store(t, to, k,
                   scale * (0.25 + (double)((uint32_t)k * by >> 9) * 0x1p-23) *
                       (k & sign ? 1 : -1));
    Filling f = {to, size, n};
    parallel_for(n > 4 * PERIOD ? threads_allowed(u->r->engine->threads) : 1,
                 n > PERIOD ? (n - 1) / PERIOD : 0, fill_period, &f);
}

static optc_status bind_one(CpuTuner *u, Set *x)
{
    const Plan *p = u->r->library->plan;
    bool matrix = p->rule->nvariant > 1 || rule_view(p->rule);
    fill(u, p->p, x->p, x->n, 2654435761u, 1, 1);
    optc_tensor t = {.param = x->p, .grad = u->g, .rank = matrix ? 2 : 1, .shape = x->dim};
    optc_status s = optc_bind(u->r, &(optc_group){.tensors = &t, .ntensors = 1}, 1, &x->b);
    for (int k = 0; k < optc_rule_inputs(u->r) && s == OPTC_OK; k++)
        if (optc_set_scalar(x->b, -1, optc_rule_input(u->r, k), 0.5) != OPTC_OK)
            s = optc_set_input(x->b, 0, optc_rule_input(u->r, k), u->input, 0);
    if (s == OPTC_OK)
        use(x->b, &model);                 /* ignores tuned results */
    return s;
}

/* Makes the pair equal again after a launch that gave other bits. Also needed at the beginning:
 * memory that no step writes is uninitialised. */
static void mend(CpuTuner *u)
{
    optc_binding *from = u->set[0].b, *to = u->set[1].b;
    memcpy(u->set[1].p, u->set[0].p, param_bytes(u));
    memcpy(to->block, from->block, from->storage_bytes);
    to->steps = from->steps;
}

static optc_status begin(CpuTuner *u)
{
    optc_status s = OPTC_OK;
    for (Set *x = u->set; x < u->set + NSET && s == OPTC_OK; x++) {
        optc_unbind(x->b);
        s = bind_one(u, x);
        if (s == OPTC_OK)
            s = optc_step(x->b);
    }
    if (s == OPTC_OK)
        mend(u);
    return s;
}

/* False after memory ran out in `begin`: some sets are not bound, and nothing can run until the
 * next `begin`. */
static bool bound(const CpuTuner *u) { return u->set[0].b && u->set[1].b && u->set[TIMED].b; }

/* Steps with a constant gradient diverge: LARS and Adafactor reach infinity after 4200 steps, where
 * all launches give the same bits. So the sets start again after 1000 steps. */
static bool fresh(CpuTuner *u)
{
    return (bound(u) && u->set[TIMED].b->steps < 1000) || begin(u) == OPTC_OK;
}

/* The units of work of the stage that has most. */
static int64_t most_units(const CpuTuner *u)
{
    int64_t most = 0;
    for (int f = 0; f < u->r->library->plan->nfn; f++) {
        const Stage *st = plan_at(u->r->library->plan, f).stage;
        const Units *x = st && st->kind != S_GROUP ? &u->set[TIMED].b->units[st->variant] : NULL;
        most = x && x->prefix[st->kind][x->n] > most ? x->prefix[st->kind][x->n] : most;
    }
    return most;
}

void cpu_tuner_close(CpuTuner *u)
{
    if (!u)
        return;
    for (int i = 0; i < NSET; i++) {
        optc_unbind(u->set[i].b);
        free(u->set[i].p);
    }
    free(u->g);
    free(u->input);
    free(u);
}

static bool make_set(const CpuTuner *u, int64_t elements, Set *x)
{
    bool matrix = u->r->library->rule->nvariant > 1 || rule_view(u->r->library->rule);
    int64_t cols = 1;
    while (matrix && cols * cols < elements && cols < 4096)
        cols *= 2;
    x->dim[0] = (elements + cols - 1) / cols;
    x->dim[1] = cols;
    x->n = x->dim[0] * cols;
    x->p = aligned_alloc(1 << 12,
                         ((size_t)x->n * (size_t)type_info[u->r->library->plan->p].bytes + 4095) /
                             4096 * 4096);
    return x->p != NULL;
}

/* Bytes of an element of the widest input. */
static size_t input_bytes(const Plan *p)
{
    int most = 0;
    for (int k = 0; k < p->nmem; k++)
        if (p->mem[k].kind == MEM_INPUT && p->mem[k].dom != GROUP &&
            type_info[p->mem[k].type].bytes > most)
            most = type_info[p->mem[k].type].bytes;
    return (size_t)most;
}

int cpu_tuner_open(optc_rule *r, int64_t elements, CpuTuner **out)
{
    CpuTuner *u = calloc(1, sizeof *u);
    *out = NULL;
    if (!u)
        return fail(OPTC_ERROR_MEMORY, "tuning: out of memory");
    u->r = r;
    bool ok = true;
    for (int i = 0; i < NSET && ok; i++)
        ok = make_set(u, i < TIMED && elements > PAIR_MOST ? PAIR_MOST : elements, &u->set[i]);
    size_t n = (size_t)u->set[TIMED].n;
    u->g = ok ? malloc(n * (size_t)type_info[r->library->plan->g].bytes + 64) : NULL;
    u->input = u->g ? malloc(n * input_bytes(r->library->plan) + 64) : NULL;
    optc_status s = u->input ? OPTC_OK : fail(OPTC_ERROR_MEMORY, "tuning: out of memory");
    if (s == OPTC_OK) {
        fill(u, r->library->plan->g, u->g, (int64_t)n, 2246822519u, 2, 0.0625);
        /* 0x3f… is a normal number in every type */
        memset(u->input, 0x3f, n * input_bytes(r->library->plan));
        s = begin(u);
    }
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
    const Set *x = &u->set[0], *y = &u->set[1];
    use(y->b, l);                          /* x keeps the model's launch */
    return optc_step(x->b) == OPTC_OK && optc_step(y->b) == OPTC_OK &&
           !memcmp(x->p, y->p, param_bytes(u)) &&
           !memcmp(x->b->block, y->b->block, x->b->storage_bytes);
}

/* Launches that do the same as another could win only by noise. With a single unit of work every
 * launch uses one thread, so only the model is tried. Of the grains that cover all units only the
 * smallest is tried: at a larger size, which may use the result, it leaves work for other
 * threads. */
static bool worth(void *ctx, const Launch *l)
{
    const CpuTuner *u = ctx;
    return l->v[KNOB_THREADS] <= u->r->engine->threads &&
           (!memcmp(l, &model, sizeof model) || (u->most > 1 && l->v[KNOB_ITEMS] < 2 * u->most));
}

static void ready(void *ctx, const Launch *l, int n, bool *ok)
{
    CpuTuner *u = ctx;
    for (int i = 0; i < n; i++) {
        ok[i] = bound(u) && same_bits(u, &l[i]);
        if (!ok[i] && bound(u))
            mend(u);
    }
}

/* Short steps are timed together: 0.05 ms is far above the clock's resolution and far below a
 * scheduler's time slice. The number of steps is determined anew each time: if threads must wait
 * for a core, a step takes a thousand times as long. */
static bool run_timed(CpuTuner *u, const Launch *l, double *ms)
{
    int reps = 0;
    use(u->set[TIMED].b, l);
    double t0 = now_ms();
    for (*ms = 0; *ms < 0.05; *ms = now_ms() - t0)
        for (int more = reps + 1; more; more--, reps++)
            if (optc_step(u->set[TIMED].b) != OPTC_OK)
                return false;
    *ms /= reps;
    return true;
}

/* Uses the median of the ratios, not the ratio of the medians: when the speed of a core varies, two
 * consecutive samples have about the same speed. With the same launch on both sides, on a busy
 * machine, the ratio of the medians of 25 samples was below 0.997 in 8 of 100 races; the median of
 * the ratios in 3. */
static bool race(void *ctx, int layout, const Launch *a, const Launch *b, int samples, double *ms_a,
                 double *ms_b)
{
    CpuTuner *u = ctx;
    const Launch *l[2] = {a, b};
    (void)layout;
    double t[2][128], ratio[128], began = now_ms(), waited = waited_ms();
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
    u->raced += now_ms() - began;
    u->waited += waited_ms() - waited;
    *ms_b = median(t[1], samples);
    *ms_a = *ms_b * median(ratio, samples);
    return true;
}

static double busy(void *ctx)
{
    const CpuTuner *u = ctx;
    return u->raced > 0 ? u->waited / (u->raced * u->r->engine->threads) : 0;
}

static double now(void *ctx)
{
    (void)ctx;
    return now_ms() * 1e-3;
}

double cpu_tuner_bytes(const CpuTuner *u)
{
    optc_bytes b;
    return optc_plan_bytes(u->set[TIMED].b, "step", 1, &b) == OPTC_OK ? b.read + b.written : 0;
}

Meter cpu_tuner_meter(CpuTuner *u)
{
    return (Meter){.ctx = u,
                   .layouts = 1,
                   .ready = ready,
                   .race = race,
                   .now = now,
                   .worth = worth,
                   .busy = busy};
}
