/* How well rules work with states in block codes, beside the same rules in f32: updates over 200
 * steps of synthetic gradients, slow averages over 2000 steps, a small network, and embeddings with
 * sparse gradients. The figures are quoted in runtime/TYPES.md; OPTC_QUALITY=1 prints them. */
#include "tests/harness/code_blocks.h"
#include "tests/harness/help.h"
#include "tests/harness/suites.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- random numbers ---- */
static double uniform(uint64_t *s) { return ((double)((*s = splitmix(*s)) >> 11) + 0.5) * 0x1p-53; }

static double gauss(uint64_t *s)
{
    double r = sqrt(-2 * log(uniform(s)));
    return r * cos(6.283185307179586 * uniform(s));
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* ---- updates ---- */
/* The gradients of an element have a scale of their own: flat exp(N(0, 1/2)), mixed exp(N(0, 2));
 * sparse: 5 % of the gradients are not 0; tiny: flat, times 1e-8. */
enum {
    FLAT, MIXED, SPARSE, TINY, NKINDS, ROWS = 64, COLS = 64, COUNT = ROWS * COLS, TRAJECTORY = 200
};
static const char *const kind_name[NKINDS] = {"flat", "mixed", "sparse", "tiny"};
static const TestShape matrix[] = {{2, {ROWS, COLS}}};

/* bound: of the relative RMS error of the updates, by kind */
typedef struct Quality { const char *rule, *options, *types; double bound[NKINDS]; } Quality;
static const Quality quality[] = {
    {"adamw", "", "state=q8", {0.05, 0.75, 0.10, 0.05}},
    {"adam", "", "state=q8", {0.05, 0.75, 0.10, 0.05}},
    {"lamb", "", "state=q8", {0.05, 0.75, 0.10, 0.05}},
    {"adabelief", "", "state=q8", {0.05, 0.05, 0.10, 0.05}},
    {"adan", "", "state=q8", {0.05, 0.75, 0.10, 0.05}},
    {"lion", "", "state=q8", {0.25, 0.80, 0.25, 0.25}},
    {"nadam", "", "state=q8", {0.05, 0.75, 0.10, 0.05}},
    {"radam", "", "state=q8", {0.05, 0.05, 0.10, 0.05}},
    {"rmsprop", "", "state=q8", {0.05, 0.75, 0.05, 0.05}},
    {"adopt", "", "state=q8", {0.10, 0.80, 0.15, 0.05}},
    {"sgd", "momentum_buffer=true", "state=q8", {0.03, 0.03, 0.03, 0.03}},
    {"muon", "", "state=q8", {0.10, 0.15, 0.10, 0.10}},
    {"soap", "", "state=q8", {0.05, 0.25, 0.10, 0.05}},
    {"adamw", "", "state=f8", {0.12, 0.12, 0.12, 0.12}},
};
enum { NQUALITY = sizeof quality / sizeof *quality };

static void gradients(float *to, int kind)
{
    uint64_t s = 777 + (uint64_t)kind;
    double scale[COUNT];
    for (int i = 0; i < COUNT; i++)
        scale[i] = exp((kind == MIXED ? 2 : 0.5) * gauss(&s)) * (kind == TINY ? 1e-8 : 1);
    for (int64_t i = 0; i < (int64_t)COUNT * TRAJECTORY; i++)
        to[i] = (float)(kind == SPARSE && uniform(&s) >= 0.05 ? 0 : scale[i % COUNT] * gauss(&s));
}

/* Both fixtures start each step from the same parameters, so only the states differ. */
static void updates(const Quality *q, int kind, const float *grad)
{
    Fixture a, b;
    double most[2] = {0, 0}, off = 0, all = 0;
    optc_rule_options plain = {.spec = q->rule, .options = q->options}, coded = plain;
    coded.types = q->types;
    fix_open(&a, NULL, &plain, matrix, 1, NULL, 0);
    fix_open(&b, NULL, &coded, matrix, 1, NULL, 0);
    float *before = malloc(COUNT * sizeof(float)), *x = a.p[0], *y = b.p[0];
    for (int i = 0; i < COUNT && kind == TINY; i++)
        /* or updates of plain gradients would be lost in roundings of p */
        x[i] *= 1e-8f;
    for (int t = 0; t < TRAJECTORY; t++) {
        memcpy(a.g[0], grad + (size_t)t * COUNT, COUNT * sizeof(float));
        memcpy(b.g[0], grad + (size_t)t * COUNT, COUNT * sizeof(float));
        memcpy(before, x, COUNT * sizeof(float));
        memcpy(y, x, COUNT * sizeof(float));
        OK(optc_step(a.binding));
        OK(optc_step(b.binding));
        for (int i = 0; i < COUNT; i++) {
            double u = (double)x[i] - (double)before[i], v = (double)y[i] - (double)before[i];
            most[0] = fmax(most[0], fabs(u));
            most[1] = fmax(most[1], fabs(v));
            off += (v - u) * (v - u);
            all += u * u;
        }
    }
    double error = sqrt(off / all), ratio = most[1] / most[0];
    if (getenv("OPTC_QUALITY"))
        printf("%-10s %-9s %-7s error %.4f, largest update %.3g of f32's\n", q->rule, q->types,
               kind_name[kind], error, ratio);
    ck_assert_msg(ratio <= 3, "%s, %s, %s: the largest update is %.3g times f32's", q->rule,
                  q->types, kind_name[kind], ratio);
    ck_assert_msg(error <= q->bound[kind], "%s, %s, %s: relative error %.4f", q->rule, q->types,
                  kind_name[kind], error);
    free(before);
    fix_close(&a);
    fix_close(&b);
}

START_TEST(trajectories)
{
    float *grad = malloc((size_t)COUNT * TRAJECTORY * sizeof *grad);
    gradients(grad, _i);
    for (int r = 0; r < NQUALITY; r++)
        if (!thinned(r))
            updates(&quality[r], _i, grad);
    free(grad);
}
END_TEST

/* ---- slow averages ---- */
/* The gradient falls to a tenth after 1000 of 2000 steps: of all elements, or of every second. Then
 * the scale of a block stays, and rounding to nearest would keep v as it was. */
START_TEST(slow_average)
{
    if (thinned(_i))
        return;
    enum { N = 4096, STEPS = 2000 };
    static const char text[] =
        "return optimizer { name = 'x', state = { v = zeros('elem', '%s'), w = zeros },\n"
        "  step = function() v = 0.999 * v + 0.001 * g * g  w = 0.999 * w + 0.001 * g * g\n"
        "    p = p - 0.001 * g end }";
    char *spec = format(text, _i % 2 ? "f8u" : "q8u");
    Fixture f;
    static double v[N], w[N], ratio[N];
    double scale[N];
    uint64_t s = 99;
    int n = 0, each = _i < 2 ? 1 : 2;
    fix_open(&f, NULL, &(optc_rule_options){.text = spec}, (TestShape[]){{1, {N}}}, 1, NULL, 0);
    for (int i = 0; i < N; i++)
        scale[i] = exp(0.5 * gauss(&s));
    for (int t = 1; t <= STEPS; t++) {
        for (int i = 0; i < N; i++) {          /* uniform, with the variance of a normal number */
            double falls = t > 1000 && i % each == 0 ? 0.1 : 1;
            ((float *)f.g[0])[i] = (float)(scale[i] * 3.4641 * (uniform(&s) - 0.5) * falls);
        }
        OK(optc_step(f.binding));
    }
    OK(optc_state_read(f.binding, 0, "v", v, N));
    OK(optc_state_read(f.binding, 0, "w", w, N));
    for (int i = 0; i < N; i += each)
        ratio[n++] = v[i] / w[i];
    qsort(ratio, (size_t)n, sizeof *ratio, by_size);
    double m = ratio[n / 2], mean = 0;
    for (int i = 0; i < n; i++)
        mean += ratio[i] / n;
    if (getenv("OPTC_QUALITY"))
        printf("2000 steps, %s, drop of %s: median v/v32 %.4f, mean %.4f, 5 %% %.4f, 95 %% %.4f\n",
               _i % 2 ? "f8u" : "q8u", each == 1 ? "all" : "half", m, mean, ratio[n / 20],
               ratio[n - 1 - n / 20]);
    fflush(stdout);
    double least = _i % 2 ? 0.90 : 0.97;       /* a step of f8u is an eighth, of q8u 3 % */
    ck_assert_msg(m >= least && m <= 2 - least, "the median of v/v32 is %.4f", m);
    fix_close(&f);
    free(spec);
}
END_TEST

/* ---- embeddings ---- */
/* bitsandbytes' dynamic map: for i = 0 … 6 the middles of 2^i (signed) or 2^(i+1) parts of [0.1,
 * 1], times 10^(i-6), with both signs or one; 0 and 1. A block of 256 values shares its largest
 * magnitude. */
enum { TOKENS = 512, WIDTH = 16, TABLE = TOKENS * WIDTH, MAP_BLOCK = 256 };

static void dynamic_map(double *map, bool sign)
{
    int n = 0;
    for (int i = 0; i < 7; i++) {
        int parts = 1 << (i + !sign);
        for (int k = 0; k < parts; k++) {
            double x = (0.1 + 0.9 * (k + 0.5) / parts) * pow(10, i - 6);
            map[n++] = x;
            if (sign)
                map[n++] = -x;
        }
    }
    map[n++] = 0;
    map[n++] = 1;
    ck_assert_int_eq(n, 256);
    qsort(map, 256, sizeof *map, by_size);
}

static void round_to_map(float *x, const double *map)
{
    for (int from = 0; from < TABLE; from += MAP_BLOCK) {
        float most = 0;
        for (int i = from; i < from + MAP_BLOCK; i++)
            most = fmaxf(most, fabsf(x[i]));
        for (int i = from; i < from + MAP_BLOCK && most > 0; i++) {
            double y = (double)(x[i] / most);
            int lo = 0, hi = 255;
            while (hi - lo > 1)
                *(map[(lo + hi) / 2] <= y ? &lo : &hi) = (lo + hi) / 2;
            x[i] = (float)map[y - map[lo] < map[hi] - y ? lo : hi] * most;
        }
    }
}

/* Rows of the table learn their targets. Token k is drawn with a frequency like 1 / k, so most rows
 * have no gradient in a step, and rare rows have large gradients when common ones have
 * converged. */
static double embedding_loss(const float *e, const double *target)
{
    double loss = 0;
    for (int i = 0; i < TABLE; i++)
        loss += ((double)e[i] - target[i]) * ((double)e[i] - target[i]) / TABLE;
    return loss;
}

static void embedding_grads(const float *e, const double *target, float *g, uint64_t *s)
{
    memset(g, 0, TABLE * sizeof *g);
    for (int k = 0; k < 16; k++) {
        int token = (int)(pow(TOKENS, uniform(s)) - 1);
        for (int i = token * WIDTH; i < (token + 1) * WIDTH; i++)
            g[i] = (float)((double)e[i] - target[i]);
    }
}

enum { WITH_F32, WITH_Q8, WITH_MAP, EMBEDDING_STEPS = 1000 };

/* Returns the largest loss of the second half. */
static double train_embedding(int with, double *last)
{
    Fixture f;
    static const TestShape table[] = {{2, {TOKENS, WIDTH}}};
    static double target[TABLE], signed_map[256], map[256];
    static float m[TABLE], v[TABLE];
    const optc_setting set[] = {{"lr", 0.01}, {"weight_decay", 0}, {"beta2", 0.95}};
    uint64_t s = 5;
    double worst = 0;
    optc_rule_options ro = {.spec = "adamw", .types = with == WITH_Q8 ? "state=q8" : ""};
    fix_open(&f, NULL, &ro, table, 1, set, 3);
    dynamic_map(signed_map, true);
    dynamic_map(map, false);
    for (int i = 0; i < TABLE; i++)
        target[i] = gauss(&s);
    for (int t = 1; t <= EMBEDDING_STEPS; t++) {
        float *e = f.p[0], *g = f.g[0];
        embedding_grads(e, target, g, &s);
        if (with != WITH_MAP)
            OK(optc_step(f.binding));
        for (int i = 0; i < TABLE && with == WITH_MAP; i++) {
            m[i] = m[i] + 0.1f * (g[i] - m[i]);
            v[i] = 0.95f * v[i] + 0.05f * g[i] * g[i];
            e[i] -= (float)(0.01 / (1 - pow(0.9, t)) * (double)m[i] /
                            (sqrt((double)v[i] / (1 - pow(0.95, t))) + 1e-8));
        }
        if (with == WITH_MAP) {
            round_to_map(m, signed_map);
            round_to_map(v, map);
        }
        double loss = embedding_loss(e, target);
        if (t > EMBEDDING_STEPS / 2 && !(loss <= worst))
            worst = isnan(loss) ? INFINITY : loss;
    }
    *last = embedding_loss(f.p[0], target);
    fix_close(&f);
    return worst;
}

START_TEST(embeddings)
{
    if (thinned(1))
        return;
    double last[3], worst[3];
    for (int k = 0; k < 3; k++) {
        worst[k] = train_embedding(k, &last[k]);
        if (getenv("OPTC_QUALITY"))
            printf("embeddings, %s: loss %.4g, largest of the second half %.4g\n",
                   k == WITH_F32 ? "f32" : k == WITH_Q8 ? "q8" : "dynamic map", last[k], worst[k]);
    }
    ck_assert_msg(last[WITH_Q8] <= 1.1 * last[WITH_F32], "loss %g with q8, %g with f32",
                  last[WITH_Q8], last[WITH_F32]);
    ck_assert_msg(worst[WITH_MAP] > 100 * worst[WITH_F32], "the dynamic map did not explode: %g",
                  worst[WITH_MAP]);
}
END_TEST

/* ---- a network ---- */
/* Two layers of weights learn a network of the same kind, on new samples in each step. */
enum { IN = 32, HIDDEN = 128, OUT = 32, BATCH = 32, NETWORK_STEPS = 250, SEEDS = 4 };
static const TestShape layers[] = {{2, {HIDDEN, IN}}, {2, {OUT, HIDDEN}}};

/* h = tanh(w x), y = v h */
static void forward(const float *w, const float *v, const float *x, float *h, float *y)
{
    for (int i = 0; i < HIDDEN; i++) {
        float sum = 0;
        for (int j = 0; j < IN; j++)
            sum += w[i * IN + j] * x[j];
        h[i] = tanhf(sum);
    }
    for (int o = 0; o < OUT; o++) {
        y[o] = 0;
        for (int i = 0; i < HIDDEN; i++)
            y[o] += v[o * HIDDEN + i] * h[i];
    }
}

/* The loss over `count` new samples; adds its gradients to gw and gv if there are any. */
static double batch_loss(float *const *p, float *const *teacher, int count, uint64_t *s, float *gw,
                         float *gv)
{
    double loss = 0;
    for (int k = 0; k < count; k++) {
        float x[IN], h[HIDDEN], y[OUT], ht[HIDDEN], yt[OUT], e[HIDDEN] = {0};
        for (int j = 0; j < IN; j++)
            x[j] = (float)(3.4641 * (uniform(s) - 0.5));
        forward(p[0], p[1], x, h, y);
        forward(teacher[0], teacher[1], x, ht, yt);
        for (int o = 0; o < OUT; o++) {
            float d = y[o] - yt[o], each = 2 * d / (float)(count * OUT);
            loss += (double)(d * d) / (count * OUT);
            for (int i = 0; gv && i < HIDDEN; i++) {
                gv[o * HIDDEN + i] += each * h[i];
                e[i] += each * p[1][o * HIDDEN + i];
            }
        }
        for (int i = 0; gw && i < HIDDEN; i++)
            for (int j = 0; j < IN; j++)
                gw[i * IN + j] += e[i] * (1 - h[i] * h[i]) * x[j];
    }
    return loss;
}

static double train_network(const char *types, int seed)
{
    Fixture f;
    const optc_setting set[] = {{"lr", 3e-3}};
    static float teach[2][HIDDEN * IN];
    float *const teacher[] = {teach[0], teach[1]};
    uint64_t s = 1000 + (uint64_t)seed, test = 7;
    fix_open(&f, NULL, &(optc_rule_options){.spec = "adamw", .types = types}, layers, 2, set, 1);
    float *const p[] = {f.p[0], f.p[1]};
    for (int k = 0; k < 2; k++)
        for (int i = 0; i < HIDDEN * IN; i++) {
            p[k][i] = (float)(gauss(&s) / sqrt(k ? HIDDEN : IN));
            teach[k][i] = (float)(gauss(&test) * (k ? 2 : 1) / sqrt(k ? HIDDEN : IN));
        }
    for (int t = 0; t < NETWORK_STEPS; t++) {
        memset(f.g[0], 0, sizeof teach[0]);
        memset(f.g[1], 0, sizeof teach[1]);
        batch_loss(p, teacher, BATCH, &s, f.g[0], f.g[1]);
        OK(optc_step(f.binding));
    }
    double loss = batch_loss(p, teacher, 200, &test, NULL, NULL);
    fix_close(&f);
    return loss;
}

/* The mean loss is within the noise of seeds: the difference of the means is below their standard
 * error. */
START_TEST(trained_network)
{
    if (thinned(1))
        return;
    double mean[2] = {0, 0}, square = 0;
    for (int seed = 0; seed < SEEDS; seed++)
        for (int k = 0; k < 2; k++) {
            double loss = train_network(k ? "state=q8" : "", seed);
            mean[k] += loss / SEEDS;
            square += k ? 0 : loss * loss / SEEDS;
            if (getenv("OPTC_QUALITY"))
                printf("network, seed %d, %s: loss %.5f\n", seed, k ? "q8" : "f32", loss);
        }
    double noise = sqrt((square - mean[0] * mean[0]) / (SEEDS - 1));
    ck_assert_msg(fabs(mean[1] - mean[0]) <= noise, "loss %g with q8, %g with f32, noise %g",
                  mean[1], mean[0], noise);
}
END_TEST

Suite *code_quality_suite(void)
{
    Suite *s = suite_create("code_quality");
    TCase *t = tcase_create("code_quality");
    tcase_set_timeout(t, 120);
    suite_add_tcase(s, t);
    tcase_add_loop_test(t, trajectories, 0, NKINDS);
    tcase_add_loop_test(t, slow_average, 0, 4);
    tcase_add_test(t, embeddings);
    tcase_add_test(t, trained_network);
    return s;
}
