/* Tasks of `optc race`: small problems with generated data and exact gradients.
 *
 * A task is a constant row: shapes, sizes, step budget, target and three functions. TaskData has
 * the generated data of one task and one seed, and scratch memory; the run that opened it owns it,
 * and one thread uses it at a time. All arithmetic is in double precision and in a fixed order, so
 * a loss is the same bits in every run and on any number of threads. Random numbers come from a
 * counter-based generator: each is a function of a key and a position. */
#ifndef OPTC_RACE_TASK_H
#define OPTC_RACE_TASK_H
#include "tools/tools.h"

enum { TASK_TENSORS = 24 };

typedef enum { TENSOR_HIDDEN, TENSOR_EMBEDDING, TENSOR_HEAD } TensorRole;
typedef struct TaskTensor {
    const char *name;
    int rank;
    int64_t dim[2];
    TensorRole role;           /* matrix rules step embeddings and heads by their fallback rule, as
                                * their authors do */
} TaskTensor;

typedef struct TaskData TaskData;
typedef struct RaceTask {
    const char *name, *about;
    bool full;                 /* only with --full, or named by --tasks */
    int steps, every;          /* step budget; steps between two evaluations */
    int batch, train, held;    /* samples per step, for training, for evaluation (0: evaluated on
                                * those of training) */
    double target;             /* evaluation loss to reach */
    const TaskTensor *tensor;
    int ntensor;
    int64_t nx, ny, nwork;     /* doubles of data, integers of data, doubles of scratch memory */
    void (*make)(TaskData *d, uint64_t key);                       /* generates x and y */
    /* the initial parameters */
    void (*start)(const TaskData *d, double *const *p, uint64_t key);
    /* The mean loss over n samples. g: receives the gradients, NULL: only the loss is needed. */
    double (*loss)(TaskData *d, const int *sample, int n, const double *const *p, double *const *g);
} RaceTask;

struct TaskData {
    const RaceTask *task;
    double *x, *work;
    int *y, *sample;           /* sample: room for the larger of a batch and the evaluation's
                                * samples */
    uint64_t key;
};

extern const RaceTask race_matrix, race_logistic, race_spirals, race_embedding, race_digits,
    race_text;
extern const RaceTask *const race_tasks[];                          /* NULL-terminated */

/* ---- race_tasks.c ---- */
bool task_open(TaskData *d, const RaceTask *t, uint64_t seed);      /* false: out of memory */
void task_close(TaskData *d);
int64_t tensor_count(const TaskTensor *t);
/* d->sample: the samples of a step, from 1 */
void task_batch(TaskData *d, int step);
double task_evaluate(TaskData *d, const double *const *p);
/* Compares the gradients of a task with central differences at several parameters of every tensor.
 * Returns the largest difference, relative to the largest gradient of the tensor; *where names the
 * tensor. */
double task_check_gradients(const RaceTask *t, uint64_t seed, const char **where);

/* ---- race_random.c ---- */
enum { KEY_DATA = 1, KEY_START, KEY_BATCH, KEY_HESSIAN };
uint64_t race_key(uint64_t seed, const char *name, int stream);
uint64_t race_bits(uint64_t key, uint64_t at);
double race_uniform(uint64_t key, uint64_t at);                     /* in [0, 1) */
double race_normal(uint64_t key, uint64_t at);
void race_normals(double *to, int64_t n, double scale, uint64_t key);

/* ---- race_layers.c: forward and backward passes; matrices are row-major, n is the number of rows
 * of x ---- */
enum { DENSE_MOST = 4096 };                                         /* values of a weight */
/* y = x w^T + b, with w of out x in. b may be NULL. */
void dense_forward(double *y, const double *x, const double *w, const double *b, int n, int in,
                   int out);
/* Adds to gw and gb, and sets gx (may be NULL) from gy. */
void dense_backward(double *gx, double *gw, double *gb, const double *gy, const double *x,
                    const double *w, int n, int in, int out);
void tanh_forward(double *y, const double *x, int64_t n);
void tanh_backward(double *gx, const double *gy, const double *y, int64_t n);
void relu_forward(double *y, const double *x, int64_t n);
void relu_backward(double *gx, const double *gy, const double *y, int64_t n);
/* Mean cross entropy of n rows of c logits. g: receives the gradient of the logits; may be NULL. */
double softmax_loss(double *g, const double *logits, const int *label, int n, int c);
/* y = gain * (x - mean) / sqrt(variance + 1e-5), row by row. scale: receives 1 / sqrt(…) of each
 * row. */
void norm_forward(double *y, double *scale, const double *x, const double *gain, int n, int d);
void norm_backward(double *gx, double *ggain, const double *gy, const double *x,
                   const double *scale, const double *gain, int n, int d);
/* Causal attention of one sequence: qkv has t rows of 3 d values; att has heads * t * t
 * probabilities. */
void attention_forward(double *y, double *att, const double *qkv, int t, int d, int heads);
void attention_backward(double *gqkv, const double *gy, const double *att, const double *qkv, int t,
                        int d, int heads);
#endif
