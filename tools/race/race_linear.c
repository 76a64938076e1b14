/* Tasks without a hidden layer: ill-conditioned matrix factorisation, logistic regression with
 * features of very different scales, and embeddings of rare and frequent words, whose gradients are
 * mostly zero. */
#include "tools/race/race_task.h"

#include <math.h>
#include <string.h>

/* ---- matrix factorisation: U V^T = A, where the singular values of A fall by a factor of 100
 * ---- */
enum { ROWS = 24, COLS = 16, INNER = 6 };

/* Columns of m rows by n, made orthonormal by Gram-Schmidt, twice for accuracy. */
static void orthonormal(double *q, int m, int n, uint64_t key)
{
    race_normals(q, (int64_t)m * n, 1, key);
    for (int c = 0; c < n; c++)
        for (int pass = 0; pass < 2; pass++) {
            double norm = 0;
            for (int b = 0; b < c; b++) {
                double dot = 0;
                for (int i = 0; i < m; i++)
                    dot += q[i * n + b] * q[i * n + c];
                for (int i = 0; i < m; i++)
                    q[i * n + c] -= dot * q[i * n + b];
            }
            for (int i = 0; i < m; i++)
                norm += q[i * n + c] * q[i * n + c];
            for (int i = 0; i < m; i++)
                q[i * n + c] /= sqrt(norm);
        }
}

static void make_matrix(TaskData *d, uint64_t key)
{
    double u[ROWS * INNER], v[COLS * INNER];
    orthonormal(u, ROWS, INNER, race_bits(key, 1));
    orthonormal(v, COLS, INNER, race_bits(key, 2));
    for (int i = 0; i < ROWS; i++)
        for (int j = 0; j < COLS; j++)
            for (int k = 0; k < INNER; k++)
                d->x[i * COLS + j] +=
                    u[i * INNER + k] * v[j * INNER + k] * pow(100, -k / (INNER - 1.0)) * 4;
}

static void start_matrix(const TaskData *d, double *const *p, uint64_t key)
{
    (void)d;
    race_normals(p[0], ROWS * INNER, 0.3, race_bits(key, 1));
    race_normals(p[1], COLS * INNER, 0.3, race_bits(key, 2));
}

/* The squared error, relative to the square of A's smallest singular value: every direction
 * counts. */
static double loss_matrix(TaskData *d, const int *sample, int n, const double *const *p,
                          double *const *g)
{
    (void)sample, (void)n;
    const double by = 0.5 / (ROWS * COLS) * 100;
    double loss = 0, *r = d->work;
    for (int i = 0; i < ROWS; i++)
        for (int j = 0; j < COLS; j++) {
            double e = -d->x[i * COLS + j];
            for (int k = 0; k < INNER; k++)
                e += p[0][i * INNER + k] * p[1][j * INNER + k];
            loss += e * e;
            r[i * COLS + j] = 2 * by * e;
        }
    if (g) {
        memset(g[0], 0, sizeof *g[0] * ROWS * INNER);
        memset(g[1], 0, sizeof *g[1] * COLS * INNER);
        for (int i = 0; i < ROWS; i++)
            for (int j = 0; j < COLS; j++)
                for (int k = 0; k < INNER; k++) {
                    g[0][i * INNER + k] += r[i * COLS + j] * p[1][j * INNER + k];
                    g[1][j * INNER + k] += r[i * COLS + j] * p[0][i * INNER + k];
                }
    }
    return by * loss;
}

static const TaskTensor matrix_tensors[] = {{"u", 2, {ROWS, INNER}, TENSOR_HIDDEN},
                                            {"v", 2, {COLS, INNER}, TENSOR_HIDDEN}};
const RaceTask race_matrix = {
    .name = "matrix",
    .about = "factorisation of a 24 x 16 matrix of rank 6 and condition 100, without noise",
    .steps = 300,
    .every = 5,
    .batch = 1,
    .train = 1,
    .target = 3e-4,
    .tensor = matrix_tensors,
    .ntensor = 2,
    .nx = ROWS * COLS,
    .nwork = ROWS * COLS,
    .make = make_matrix,
    .start = start_matrix,
    .loss = loss_matrix};

/* ---- logistic regression: 40 features whose scales span a factor of 100 ---- */
enum { FEATURES = 40, LOGISTIC_TRAIN = 2048, LOGISTIC_HELD = 512 };

static void make_logistic(TaskData *d, uint64_t key)
{
    double w[FEATURES];
    double norm = 0;
    race_normals(w, FEATURES, 1, race_bits(key, 1));
    for (int k = 0; k < FEATURES; k++)
        norm += w[k] * w[k];
    for (int k = 0; k < FEATURES; k++)
        /* labels are equally noisy for every seed */
        w[k] *= 6 / sqrt(norm);
    for (int s = 0; s < LOGISTIC_TRAIN + LOGISTIC_HELD; s++) {
        double z = 0, *x = d->x + (int64_t)s * FEATURES;
        for (int k = 0; k < FEATURES; k++) {
            double v = race_normal(race_bits(key, 2), (uint64_t)(s * FEATURES + k));
            z += w[k] * v;
            x[k] = v * pow(100, -k / (FEATURES - 1.0)) * 3;
        }
        d->y[s] = race_uniform(race_bits(key, 3), (uint64_t)s) < 1 / (1 + exp(-z));
    }
}

static void start_logistic(const TaskData *d, double *const *p, uint64_t key)
{
    (void)d;
    race_normals(p[0], FEATURES, 0.01, key);
    p[1][0] = 0;
}

static double loss_logistic(TaskData *d, const int *sample, int n, const double *const *p,
                            double *const *g)
{
    double loss = 0;
    if (g) {
        memset(g[0], 0, sizeof *g[0] * FEATURES);
        g[1][0] = 0;
    }
    for (int i = 0; i < n; i++) {
        const double *x = d->x + (int64_t)sample[i] * FEATURES;
        double z = p[1][0], sign = d->y[sample[i]] ? 1 : -1;
        for (int k = 0; k < FEATURES; k++)
            z += p[0][k] * x[k];
        z *= sign;
        loss += z > 0 ? log1p(exp(-z)) : log1p(exp(z)) - z;
        double e = -sign / (1 + exp(z)) / n;
        for (int k = 0; g && k < FEATURES; k++)
            g[0][k] += e * x[k];
        if (g)
            g[1][0] += e;
    }
    return loss / n;
}

static const TaskTensor logistic_tensors[] = {{"weight", 1, {FEATURES}, TENSOR_HEAD},
                                              {"bias", 1, {1}, TENSOR_HEAD}};
const RaceTask race_logistic = {
    .name = "logistic",
    .about = "logistic regression, 40 features whose scales span a factor of 100",
    .steps = 300,
    .every = 5,
    .batch = 32,
    .train = LOGISTIC_TRAIN,
    .held = LOGISTIC_HELD,
    .target = 0.25,
    .tensor = logistic_tensors,
    .ntensor = 2,
    .nx = (LOGISTIC_TRAIN + LOGISTIC_HELD) * FEATURES,
    .ny = LOGISTIC_TRAIN + LOGISTIC_HELD,
    .make = make_logistic,
    .start = start_logistic,
    .loss = loss_logistic};

/* ---- embeddings: the class of a context of three words; most words are rare ---- */
enum { WORDS = 200, WIDTH = 12, CONTEXT = 3, CLASSES = 12, EMBED_TRAIN = 2048, EMBED_HELD = 256,
       EMBED_ROW = CONTEXT + 1 };

static void make_embedding(TaskData *d, uint64_t key)
{
    /* the teacher; scratch memory has room */
    double *word = d->work, *to = d->work + WORDS * WIDTH;
    race_normals(word, WORDS * WIDTH, 1, race_bits(key, 1));
    race_normals(to, CLASSES * WIDTH, 1, race_bits(key, 2));
    for (int s = 0; s < EMBED_TRAIN + EMBED_HELD; s++) {
        int *y = d->y + s * EMBED_ROW;
        double best = -INFINITY;
        for (int c = 0; c < CONTEXT; c++) {
            double u = race_uniform(race_bits(key, 3), (uint64_t)(s * CONTEXT + c));
            /* word 0 is the most frequent one */
            y[c] = (int)(WORDS * u * u * u);
        }
        for (int k = 0; k < CLASSES; k++) {
            double z = 0;
            for (int c = 0; c < CONTEXT; c++)
                for (int j = 0; j < WIDTH; j++)
                    z += word[y[c] * WIDTH + j] * to[k * WIDTH + j];
            if (z > best) {
                best = z;
                y[CONTEXT] = k;
            }
        }
    }
}

static void start_embedding(const TaskData *d, double *const *p, uint64_t key)
{
    (void)d;
    race_normals(p[0], WORDS * WIDTH, 0.3, race_bits(key, 1));
    race_normals(p[1], CLASSES * WIDTH, 0.3, race_bits(key, 2));
    memset(p[2], 0, sizeof *p[2] * CLASSES);
}

static double loss_embedding(TaskData *d, const int *sample, int n, const double *const *p,
                             double *const *g)
{
    double *x = d->work, *z = x + EMBED_TRAIN * WIDTH, *gz = z + EMBED_TRAIN * CLASSES;
    double *gx = gz + EMBED_TRAIN * CLASSES;
    int label[EMBED_TRAIN];
    memset(x, 0, sizeof *x * (size_t)n * WIDTH);
    for (int i = 0; i < n; i++) {
        const int *y = d->y + sample[i] * EMBED_ROW;
        label[i] = y[CONTEXT];
        for (int c = 0; c < CONTEXT; c++)
            for (int j = 0; j < WIDTH; j++)
                x[i * WIDTH + j] += p[0][y[c] * WIDTH + j];
    }
    dense_forward(z, x, p[1], p[2], n, WIDTH, CLASSES);
    double loss = softmax_loss(g ? gz : NULL, z, label, n, CLASSES);
    if (!g)
        return loss;
    memset(g[0], 0, sizeof *g[0] * WORDS * WIDTH);
    memset(g[1], 0, sizeof *g[1] * CLASSES * WIDTH);
    memset(g[2], 0, sizeof *g[2] * CLASSES);
    dense_backward(gx, g[1], g[2], gz, x, p[1], n, WIDTH, CLASSES);
    for (int i = 0; i < n; i++)
        for (int c = 0; c < CONTEXT; c++)
            for (int j = 0; j < WIDTH; j++)
                g[0][d->y[sample[i] * EMBED_ROW + c] * WIDTH + j] += gx[i * WIDTH + j];
    return loss;
}

static const TaskTensor embedding_tensors[] = {{"embedding", 2, {WORDS, WIDTH}, TENSOR_EMBEDDING},
                                               {"weight", 2, {CLASSES, WIDTH}, TENSOR_HIDDEN},
                                               {"bias", 1, {CLASSES}, TENSOR_HEAD}};
const RaceTask race_embedding = {
    .name = "embedding",
    .about = "200 words of very different frequency; most gradients of a step are zero",
    .steps = 300,
    .every = 5,
    .batch = 32,
    .train = EMBED_TRAIN,
    .held = EMBED_HELD,
    .target = 0.95,
    .tensor = embedding_tensors,
    .ntensor = 3,
    .ny = (EMBED_TRAIN + EMBED_HELD) * EMBED_ROW,
    .nwork = EMBED_TRAIN * (2 * WIDTH + 2 * CLASSES),
    .make = make_embedding,
    .start = start_embedding,
    .loss = loss_embedding};
