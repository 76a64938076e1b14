/* Trains a small GPT on the characters of a file, on the CPU or a GPU, and continues from a
 * checkpoint.
 *     gpt FILE [--device best] [--rule 'adamw+clip(1)'] [--lr 0.003] [--steps 200] [--save F]
 *     [--resume F]
 *
 * The model (gpt_model.h) computes gradients on the host. optc steps weights that are in the
 * device's memory. A run that is saved and resumed gives the bits of a run without a break. */
#include <optc.h>

#include "gpt_model.h"

#include <stdio.h>
#include <stdlib.h>

enum { BATCH = 4 };

static void check(optc_status s)
{
    if (s == OPTC_OK)
        return;
    fprintf(stderr, "gpt: %s: %s\n", optc_status_name(s), optc_message());
    exit(1);
}

typedef struct Settings {
    const char *file, *device, *rule, *save, *resume; double lr; int steps;
} Settings;

static Settings read_settings(int argc, char **argv)
{
    Settings s = {.device = "best", .rule = "adamw+clip(1)", .steps = 200};
    for (int i = 1; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : NULL;
        const char **text = !strcmp(argv[i], "--device")   ? &s.device
                            : !strcmp(argv[i], "--rule")   ? &s.rule
                            : !strcmp(argv[i], "--save")   ? &s.save
                            : !strcmp(argv[i], "--resume") ? &s.resume
                                                           : NULL;
        if (argv[i][0] != '-' && !s.file)
            s.file = argv[i];
        else if (text && value)
            *text = argv[++i];
        else if (!strcmp(argv[i], "--lr") && value)
            s.lr = atof(argv[++i]);
        else if (!strcmp(argv[i], "--steps") && value)
            s.steps = atoi(argv[++i]);
        else
            s.file = NULL, i = argc;
    }
    if (!s.file) {
        fprintf(stderr, "usage: gpt FILE [--device best|cpu|cuda] [--rule NAME] [--lr X] [--steps "
                        "N] [--save F] "
                        "[--resume F]\n");
        exit(2);
    }
    return s;
}

static unsigned char *read_text(const char *path, size_t *size)
{
    FILE *f = fopen(path, "rb");
    unsigned char *text = f ? malloc(1 << 20) : NULL;
    *size = text ? fread(text, 1, 1 << 20, f) : 0;
    if (f)
        fclose(f);
    if (*size > TIME + 1)
        return text;
    fprintf(stderr, "gpt: %s cannot be read, or has fewer than %d characters\n", path, TIME + 2);
    exit(1);
}

static uint64_t next_random(uint64_t *x)
{
    return *x = *x * 6364136223846793005u + 1442695040888963407u;
}

/* Weights on the host (p) and on the device, with gradients. */
typedef struct Weights { float *p[WEIGHTS], *g[WEIGHTS]; optc_tensor tensor[WEIGHTS]; } Weights;

static void make_weights(optc_engine *e, Weights *w)
{
    static int64_t shape[WEIGHTS][2];
    uint64_t seed = 1;
    for (int k = 0; k < WEIGHTS; k++) {
        gpt_shape(k, shape[k]);
        size_t n = (size_t)(shape[k][0] * shape[k][1]);
        optc_tensor *t = &w->tensor[k];
        void *grad;
        w->p[k] = malloc(n * sizeof(float));
        w->g[k] = malloc(n * sizeof(float));
        if (!w->p[k] || !w->g[k])
            exit(1);
        for (size_t i = 0; i < n; i++)
            w->p[k][i] = ((float)(next_random(&seed) >> 40) / (1 << 24) - 0.5f) * 0.2f;
        check(optc_alloc(e, (int64_t)(n * sizeof(float)), NULL, &t->param));
        check(optc_alloc(e, (int64_t)(n * sizeof(float)), NULL, &grad));
        check(optc_copy(e, t->param, w->p[k], (int64_t)(n * sizeof(float)), NULL));
        t->grad = grad;
        t->grad_count = (int64_t)n;
        t->name = gpt_name(k);
        t->rank = 2;
        t->shape = shape[k];
        /* matrix rules step embeddings as vectors */
        t->flags = k < FIRST_LAYER ? OPTC_USE_STEP : 0;
    }
}

static void free_weights(optc_engine *e, Weights *w)
{
    for (int k = 0; k < WEIGHTS; k++) {
        free(w->p[k]);
        free(w->g[k]);
        check(optc_free(e, w->tensor[k].param, NULL));
        check(optc_free(e, (void *)w->tensor[k].grad, NULL));
    }
}

/* The mean loss of a batch, which depends on the step alone; its gradients go to the device. */
static double run_batch(optc_engine *e, Weights *w, const unsigned char *text, size_t size,
                        int64_t step)
{
    uint64_t seed = (uint64_t)step * 7919 + 1;
    double loss = 0;
    for (int k = 0; k < WEIGHTS; k++) {
        int64_t bytes = w->tensor[k].grad_count * (int64_t)sizeof(float);
        check(optc_copy(e, w->p[k], w->tensor[k].param, bytes, NULL));
        memset(w->g[k], 0, (size_t)bytes);
    }
    for (int b = 0; b < BATCH; b++)
        loss += gpt_loss(w->p, w->g, text + next_random(&seed) % (size - TIME - 1)) / BATCH;
    for (int k = 0; k < WEIGHTS; k++) {
        for (int64_t i = 0; i < w->tensor[k].grad_count; i++)
            w->g[k][i] /= BATCH;
        check(optc_copy(e, (void *)w->tensor[k].grad, w->g[k],
                        w->tensor[k].grad_count * (int64_t)sizeof(float), NULL));
    }
    return loss;
}

int main(int argc, char **argv)
{
    Settings s = read_settings(argc, argv);
    size_t size;
    unsigned char *text = read_text(s.file, &size);
    optc_engine *e;
    optc_rule *r;
    optc_binding *b;
    Weights w = {0};
    int64_t step = 0;
    double loss = 0;
    check(optc_open(&(optc_engine_options){.device = s.device}, &e));
    check(optc_compile(e, &(optc_rule_options){.spec = s.rule}, &r));
    make_weights(e, &w);
    check(optc_bind(r, &(optc_group){.tensors = w.tensor, .ntensors = WEIGHTS}, 1, &b));
    if (s.resume) {
        check(optc_load(&b, 1, &(optc_checkpoint){.path = s.resume, .params = 1}));
        check(optc_get_t(b, 0, &step));
    }
    if (s.lr > 0)                              /* after loading, which sets hyperparameters too */
        check(optc_set_hyper(b, 0, "lr", s.lr));
    printf("%s with %s: steps %d to %d\n", optc_device_name(e), s.rule, (int)step + 1, s.steps);
    for (; step < s.steps; step++) {
        loss = run_batch(e, &w, text, size, step);
        if (step % 20 == 0)
            printf("step %4d: loss %.6f\n", (int)step, loss);
        check(optc_step(b));
    }
    printf("last loss %.9g\n", loss);
    if (s.save)
        check(optc_save(&b, 1, &(optc_checkpoint){.path = s.save, .params = 1}));
    check(optc_unbind(b));
    check(optc_release(r));
    free_weights(e, &w);
    check(optc_close(e));
    free(text);
    return 0;
}
