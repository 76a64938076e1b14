/* Networks with hidden layers: three spirals (tanh), and images of digits that are drawn from a
 * small font (ReLU). */
#include "tools/race/race_task.h"

#include <math.h>
#include <string.h>

/* ---- spirals ---- */
enum { ARMS = 3, MID = 24, SPIRAL_TRAIN = 768, SPIRAL_HELD = 192 };

static void make_spirals(TaskData *d, uint64_t key)
{
    for (int s = 0; s < SPIRAL_TRAIN + SPIRAL_HELD; s++) {
        int arm = s % ARMS;
        double r = 0.1 + 0.9 * race_uniform(race_bits(key, 1), (uint64_t)s);
        double angle = 6 * r + 6.283185307179586 * arm / ARMS +
                       0.12 * race_normal(race_bits(key, 2), (uint64_t)s);
        d->x[2 * s] = 2 * r * cos(angle);
        d->x[2 * s + 1] = 2 * r * sin(angle);
        d->y[s] = arm;
    }
}

static void start_spirals(const TaskData *d, double *const *p, uint64_t key)
{
    (void)d;
    race_normals(p[0], MID * 2, 1 / sqrt(2), race_bits(key, 1));
    race_normals(p[2], MID * MID, 1 / sqrt(MID), race_bits(key, 2));
    race_normals(p[4], ARMS * MID, 1 / sqrt(MID), race_bits(key, 3));
    memset(p[1], 0, sizeof *p[1] * MID);
    memset(p[3], 0, sizeof *p[3] * MID);
    memset(p[5], 0, sizeof *p[5] * ARMS);
}

static double *take(double **from, int64_t n)
{
    double *at = *from;
    *from += n;
    return at;
}

static double loss_spirals(TaskData *d, const int *sample, int n, const double *const *p,
                           double *const *g)
{
    double *w = d->work, *x = take(&w, n * 2), *a = take(&w, n * MID), *b = take(&w, n * MID),
           *z = take(&w, n * ARMS);
    double *gz = take(&w, n * ARMS), *gb = take(&w, n * MID), *ga = take(&w, n * MID);
    int label[SPIRAL_TRAIN];
    for (int i = 0; i < n; i++) {
        memcpy(x + 2 * i, d->x + 2 * sample[i], 2 * sizeof *x);
        label[i] = d->y[sample[i]];
    }
    dense_forward(a, x, p[0], p[1], n, 2, MID);
    tanh_forward(a, a, n * MID);
    dense_forward(b, a, p[2], p[3], n, MID, MID);
    tanh_forward(b, b, n * MID);
    dense_forward(z, b, p[4], p[5], n, MID, ARMS);
    double loss = softmax_loss(g ? gz : NULL, z, label, n, ARMS);
    if (!g)
        return loss;
    for (int i = 0; i < d->task->ntensor; i++)
        memset(g[i], 0, sizeof *g[i] * (size_t)tensor_count(&d->task->tensor[i]));
    dense_backward(gb, g[4], g[5], gz, b, p[4], n, MID, ARMS);
    tanh_backward(gb, gb, b, n * MID);
    dense_backward(ga, g[2], g[3], gb, a, p[2], n, MID, MID);
    tanh_backward(ga, ga, a, n * MID);
    dense_backward(NULL, g[0], g[1], ga, x, p[0], n, 2, MID);
    return loss;
}

static const TaskTensor spiral_tensors[] = {
    {"first.weight", 2, {MID, 2}, TENSOR_HIDDEN},  {"first.bias", 1, {MID}, TENSOR_HIDDEN},
    {"second.weight", 2, {MID, MID}, TENSOR_HIDDEN}, {"second.bias", 1, {MID}, TENSOR_HIDDEN},
    {"head.weight", 2, {ARMS, MID}, TENSOR_HEAD},  {"head.bias", 1, {ARMS}, TENSOR_HEAD}};
const RaceTask race_spirals = {.name = "spirals",
                               .about = "a network of two hidden layers separates three spirals",
                               .steps = 300,
                               .every = 5,
                               .batch = 32,
                               .train = SPIRAL_TRAIN,
                               .held = SPIRAL_HELD,
                               .target = 0.06,
                               .tensor = spiral_tensors,
                               .ntensor = 6,
                               .nx = 2 * (SPIRAL_TRAIN + SPIRAL_HELD),
                               .ny = SPIRAL_TRAIN + SPIRAL_HELD,
                               .nwork = SPIRAL_TRAIN * (2 + 4 * MID + 2 * ARMS),
                               .make = make_spirals,
                               .start = start_spirals,
                               .loss = loss_spirals};

/* ---- digits: a font of 5 x 7 dots, shifted by parts of a dot, with noise, in images of 10 x 10
 * ---- */
enum {
    SIDE = 10, PIXELS = SIDE * SIDE, HIDDEN = 32, DIGITS = 10, DIGIT_TRAIN = 1024, DIGIT_HELD = 256
};

/* Rows of five dots, the left one is bit 4. */
static const unsigned char font[DIGITS][7] = {
    {14, 17, 19, 21, 25, 17, 14}, {4, 12, 4, 4, 4, 4, 14},  {14, 17, 1, 6, 8, 16, 31},
    {30, 1, 1, 14, 1, 1, 30},     {2, 6, 10, 18, 31, 2, 2}, {31, 16, 30, 1, 1, 17, 14},
    {6, 8, 16, 30, 17, 17, 14},   {31, 1, 2, 4, 8, 8, 8},   {14, 17, 17, 14, 17, 17, 14},
    {14, 17, 17, 15, 1, 2, 12}};

static double dot_at(int digit, int row, int col)
{
    return row < 0 || row > 6 || col < 0 || col > 4 ? 0 : font[digit][row] >> (4 - col) & 1;
}

static void make_digits(TaskData *d, uint64_t key)
{
    for (int s = 0; s < DIGIT_TRAIN + DIGIT_HELD; s++) {
        double right = 3 * race_uniform(race_bits(key, 1), (uint64_t)(2 * s));
        double down = 2 * race_uniform(race_bits(key, 1), (uint64_t)(2 * s + 1));
        d->y[s] = s % DIGITS;
        for (int i = 0; i < SIDE; i++)
            for (int j = 0; j < SIDE; j++) {
                double y = i - down, x = j - right, fy = y - floor(y), fx = x - floor(x);
                int r = (int)floor(y), c = (int)floor(x), digit = d->y[s];
                double v =
                    (1 - fy) * ((1 - fx) * dot_at(digit, r, c) + fx * dot_at(digit, r, c + 1)) +
                    fy * ((1 - fx) * dot_at(digit, r + 1, c) + fx * dot_at(digit, r + 1, c + 1));
                int64_t at = (int64_t)s * PIXELS + i * SIDE + j;
                d->x[at] = v + 0.15 * race_normal(race_bits(key, 2), (uint64_t)at);
            }
    }
}

static void start_digits(const TaskData *d, double *const *p, uint64_t key)
{
    (void)d;
    race_normals(p[0], HIDDEN * PIXELS, sqrt(2.0 / PIXELS), race_bits(key, 1));
    race_normals(p[2], DIGITS * HIDDEN, 1 / sqrt(HIDDEN), race_bits(key, 2));
    memset(p[1], 0, sizeof *p[1] * HIDDEN);
    memset(p[3], 0, sizeof *p[3] * DIGITS);
}

static double loss_digits(TaskData *d, const int *sample, int n, const double *const *p,
                          double *const *g)
{
    double *w = d->work, *x = take(&w, n * PIXELS), *a = take(&w, n * HIDDEN),
           *z = take(&w, n * DIGITS);
    double *gz = take(&w, n * DIGITS), *ga = take(&w, n * HIDDEN);
    int label[DIGIT_TRAIN];
    for (int i = 0; i < n; i++) {
        memcpy(x + (int64_t)i * PIXELS, d->x + (int64_t)sample[i] * PIXELS, PIXELS * sizeof *x);
        label[i] = d->y[sample[i]];
    }
    dense_forward(a, x, p[0], p[1], n, PIXELS, HIDDEN);
    relu_forward(a, a, n * HIDDEN);
    dense_forward(z, a, p[2], p[3], n, HIDDEN, DIGITS);
    double loss = softmax_loss(g ? gz : NULL, z, label, n, DIGITS);
    if (!g)
        return loss;
    for (int i = 0; i < d->task->ntensor; i++)
        memset(g[i], 0, sizeof *g[i] * (size_t)tensor_count(&d->task->tensor[i]));
    dense_backward(ga, g[2], g[3], gz, a, p[2], n, HIDDEN, DIGITS);
    relu_backward(ga, ga, a, n * HIDDEN);
    dense_backward(NULL, g[0], g[1], ga, x, p[0], n, PIXELS, HIDDEN);
    return loss;
}

static const TaskTensor digit_tensors[] = {{"first.weight", 2, {HIDDEN, PIXELS}, TENSOR_HIDDEN},
                                           {"first.bias", 1, {HIDDEN}, TENSOR_HIDDEN},
                                           {"head.weight", 2, {DIGITS, HIDDEN}, TENSOR_HEAD},
                                           {"head.bias", 1, {DIGITS}, TENSOR_HEAD}};
const RaceTask race_digits = {.name = "digits",
                              .about = "a network of one hidden layer reads drawn digits, 10 x 10",
                              .full = true,
                              .steps = 300,
                              .every = 10,
                              .batch = 32,
                              .train = DIGIT_TRAIN,
                              .held = DIGIT_HELD,
                              .target = 0.3,
                              .tensor = digit_tensors,
                              .ntensor = 4,
                              .nx = (int64_t)PIXELS * (DIGIT_TRAIN + DIGIT_HELD),
                              .ny = DIGIT_TRAIN + DIGIT_HELD,
                              .nwork = (int64_t)DIGIT_TRAIN * (PIXELS + 2 * HIDDEN + 2 * DIGITS),
                              .make = make_digits,
                              .start = start_digits,
                              .loss = loss_digits};
