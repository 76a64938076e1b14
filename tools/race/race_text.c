/* A character-level transformer of two layers with normalised inputs, on a text that is part of
 * this file. */
#include "tools/race/race_task.h"

#include <math.h>
#include <string.h>

enum { LAYERS = 2, WIDE = 24, HEADS = 2, UP = 48, TIME = 16, LETTERS = 29, PER_LAYER = 6, FIRST = 2,
       HELD_WINDOWS = 16, TEXT_BATCH = 8, MAX_WINDOWS = HELD_WINDOWS };

/* Written for this task: lower case letters, blanks, commas and full stops. */
static const char text[] = "a farmer had a long field beside a river. every spring the water rose "
                           "and took a little of the soil, and every "
                           "summer he carried some of it back. his neighbour asked why he did not "
                           "build a wall. he said that a wall would "
                           "cost more than the field was worth, and that the river also brought "
                           "good soil from the hills. the neighbour built "
                           "a wall, and his field was dry and safe, but after ten years the corn "
                           "grew poorly there. then he took down a part "
                           "of the wall, and the water came in again, and the corn grew well. both "
                           "men learned that a small loss in every "
                           "year can be better than a large cost once, and that a thing which "
                           "takes can also give. a traveller walked down "
                           "from a mountain in the fog. he could not see the valley, so he felt "
                           "the ground with his foot and always took the "
                           "step that went down most. at first he went quickly. then he came to a "
                           "long narrow valley, and he walked from one "
                           "side to the other and hardly forward at all. he remembered the last "
                           "steps and leaned in their direction, and now "
                           "he went along the valley and not across it. when the ground was rough "
                           "he took short steps, and when it was smooth "
                           "he took long ones. in the evening he reached the river, and the fog "
                           "was gone. a baker kept a book of all the "
                           "bread that he had sold. on some days he sold much and on others "
                           "little, and at first he baked as much as he had "
                           "sold on the day before. so he had too much bread on every quiet day. "
                           "then he took the mean of many days, and gave "
                           "the last days more weight, and he was seldom wrong by much. but when a "
                           "feast came the mean was slow, and people "
                           "went home without bread. he learned to look at the mean and at the "
                           "day, and to trust the one that had been right "
                           "more often.";

static int letter(char c)
{
    return c >= 'a' && c <= 'z' ? c - 'a' : c == ' ' ? 26 : c == ',' ? 27 : 28;
}

enum {
    TEXT_LENGTH = sizeof text - 1,
    HELD_START = TEXT_LENGTH * 4 / 5,
    TEXT_TRAIN = HELD_START - TIME - 1,
    HELD_EVERY = (TEXT_LENGTH - HELD_START - TIME - 1) / HELD_WINDOWS
};

static void make_text(TaskData *d, uint64_t key)
{
    /* the text is the same; starts and batches differ by seed */
    (void)key;
    for (int i = 0; i < TEXT_LENGTH; i++)
        d->y[i] = letter(text[i]);
}

/* Tensors: embedding, position; per layer gain, qkv, projection, gain, up, down; then gain and
 * head. */
static void start_text(const TaskData *d, double *const *p, uint64_t key)
{
    for (int i = 0; i < d->task->ntensor; i++) {
        const TaskTensor *t = &d->task->tensor[i];
        bool embeds = t->role == TENSOR_EMBEDDING;
        race_normals(p[i], tensor_count(t), embeds ? 0.3 : 1 / sqrt((double)t->dim[t->rank - 1]),
                     race_bits(key, (uint64_t)i));
        for (int64_t k = 0; t->rank == 1 && k < t->dim[0]; k++)
            p[i][k] = 1;                                   /* gains */
    }
}

typedef struct Layer {
    double *in, *one, *scale1, *qkv, *att, *mix, *mid, *two, *scale2, *up;
} Layer;

static double *take(double **from, int64_t n)
{
    double *at = *from;
    *from += n;
    return at;
}

static void layer_forward(Layer *l, double *out, const double *const *p, int windows)
{
    int n = windows * TIME;
    norm_forward(l->one, l->scale1, l->in, p[0], n, WIDE);
    dense_forward(l->qkv, l->one, p[1], NULL, n, WIDE, 3 * WIDE);
    for (int s = 0; s < windows; s++)
        attention_forward(l->mix + s * TIME * WIDE, l->att + s * HEADS * TIME * TIME,
                          l->qkv + s * TIME * 3 * WIDE, TIME, WIDE, HEADS);
    dense_forward(l->mid, l->mix, p[2], NULL, n, WIDE, WIDE);
    for (int k = 0; k < n * WIDE; k++)
        l->mid[k] += l->in[k];
    norm_forward(l->two, l->scale2, l->mid, p[3], n, WIDE);
    dense_forward(l->up, l->two, p[4], NULL, n, WIDE, UP);
    relu_forward(l->up, l->up, n * UP);
    dense_forward(out, l->up, p[5], NULL, n, UP, WIDE);
    for (int k = 0; k < n * WIDE; k++)
        out[k] += l->mid[k];
}

/* gout: the gradient of the layer's output; it becomes that of its input. w: scratch memory. */
static void layer_backward(const Layer *l, double *gout, const double *const *p, double *const *g,
                           int windows, double *w)
{
    int n = windows * TIME;
    double *gup = take(&w, n * UP), *a = take(&w, n * WIDE), *b = take(&w, n * WIDE),
           *gqkv = take(&w, n * 3 * WIDE);
    dense_backward(gup, g[5], NULL, gout, l->up, p[5], n, UP, WIDE);
    relu_backward(gup, gup, l->up, n * UP);
    dense_backward(a, g[4], NULL, gup, l->two, p[4], n, WIDE, UP);
    norm_backward(b, g[3], a, l->mid, l->scale2, p[3], n, WIDE);
    for (int k = 0; k < n * WIDE; k++)
        gout[k] += b[k];
    dense_backward(a, g[2], NULL, gout, l->mix, p[2], n, WIDE, WIDE);
    for (int s = 0; s < windows; s++)
        attention_backward(gqkv + s * TIME * 3 * WIDE, a + s * TIME * WIDE,
                           l->att + s * HEADS * TIME * TIME, l->qkv + s * TIME * 3 * WIDE, TIME,
                           WIDE, HEADS);
    dense_backward(a, g[1], NULL, gqkv, l->one, p[1], n, WIDE, 3 * WIDE);
    norm_backward(b, g[0], a, l->in, l->scale1, p[0], n, WIDE);
    for (int k = 0; k < n * WIDE; k++)
        gout[k] += b[k];
}

enum { LAYER_MEMORY = WIDE * 5 + 2 + 3 * WIDE + HEADS * TIME + UP, BACK_MEMORY = UP + 5 * WIDE,
       TEXT_MEMORY = LAYERS * LAYER_MEMORY + 2 * WIDE + 1 + 3 * LETTERS + 2 * WIDE + BACK_MEMORY };

static double loss_text(TaskData *d, const int *sample, int windows, const double *const *p,
                        double *const *g)
{
    int n = windows * TIME, last = FIRST + LAYERS * PER_LAYER, *label = d->y + TEXT_LENGTH,
        *id = label + n;
    double *w = d->work, *x = take(&w, n * WIDE);
    Layer layer[LAYERS];
    for (int i = 0; i < n; i++) {
        int window = sample[i / TIME], at = i % TIME;
        at += window < TEXT_TRAIN ? window : HELD_START + (window - TEXT_TRAIN) * HELD_EVERY;
        id[i] = d->y[at];
        label[i] = d->y[at + 1];
        for (int k = 0; k < WIDE; k++)
            x[i * WIDE + k] = p[0][id[i] * WIDE + k] + p[1][i % TIME * WIDE + k];
    }
    for (int i = 0; i < LAYERS; i++) {
        Layer *l = &layer[i];
        *l = (Layer){.in = x,
                     .one = take(&w, n * WIDE),
                     .scale1 = take(&w, n),
                     .qkv = take(&w, n * 3 * WIDE),
                     .att = take(&w, n * HEADS * TIME),
                     .mix = take(&w, n * WIDE),
                     .mid = take(&w, n * WIDE),
                     .two = take(&w, n * WIDE),
                     .scale2 = take(&w, n),
                     .up = take(&w, n * UP)};
        x = take(&w, n * WIDE);
        layer_forward(l, x, p + FIRST + i * PER_LAYER, windows);
    }
    double *y = take(&w, n * WIDE), *scale = take(&w, n), *z = take(&w, n * LETTERS),
           *gz = take(&w, n * LETTERS);
    norm_forward(y, scale, x, p[last], n, WIDE);
    dense_forward(z, y, p[last + 1], NULL, n, WIDE, LETTERS);
    double loss = softmax_loss(g ? gz : NULL, z, label, n, LETTERS);
    if (!g)
        return loss;
    for (int i = 0; i < d->task->ntensor; i++)
        memset(g[i], 0, sizeof *g[i] * (size_t)tensor_count(&d->task->tensor[i]));
    double *gy = take(&w, n * WIDE), *gx = take(&w, n * WIDE);
    dense_backward(gy, g[last + 1], NULL, gz, y, p[last + 1], n, WIDE, LETTERS);
    norm_backward(gx, g[last], gy, x, scale, p[last], n, WIDE);
    for (int i = LAYERS; i-- > 0;)
        layer_backward(&layer[i], gx, p + FIRST + i * PER_LAYER, g + FIRST + i * PER_LAYER, windows,
                       w);
    for (int i = 0; i < n; i++)
        for (int k = 0; k < WIDE; k++) {
            g[0][id[i] * WIDE + k] += gx[i * WIDE + k];
            g[1][i % TIME * WIDE + k] += gx[i * WIDE + k];
        }
    return loss;
}

#define LAYER_TENSORS(n) \
    {n ".norm1", 1, {WIDE}, TENSOR_HIDDEN}, {n ".qkv", 2, {3 * WIDE, WIDE}, TENSOR_HIDDEN}, \
        {n ".projection", 2, {WIDE, WIDE}, TENSOR_HIDDEN}, {n ".norm2", 1, {WIDE}, TENSOR_HIDDEN}, \
        {n ".up", 2, {UP, WIDE}, TENSOR_HIDDEN}, {n ".down", 2, {WIDE, UP}, TENSOR_HIDDEN}
static const TaskTensor text_tensors[] = {{"embedding", 2, {LETTERS, WIDE}, TENSOR_EMBEDDING},
                                          {"position", 2, {TIME, WIDE}, TENSOR_EMBEDDING},
                                          LAYER_TENSORS("layer0"),
                                          LAYER_TENSORS("layer1"),
                                          {"norm", 1, {WIDE}, TENSOR_HIDDEN},
                                          {"head", 2, {LETTERS, WIDE}, TENSOR_HEAD}};
const RaceTask race_text = {.name = "text",
                            .about = "a transformer of two normalised layers predicts letters",
                            .full = true,
                            .steps = 200,
                            .every = 10,
                            .batch = TEXT_BATCH,
                            .train = TEXT_TRAIN,
                            .held = HELD_WINDOWS,
                            .target = 2.35,
                            .tensor = text_tensors,
                            .ntensor = FIRST + LAYERS * PER_LAYER + 2,
                            .ny = TEXT_LENGTH + 2 * MAX_WINDOWS * TIME,
                            .nwork = (int64_t)MAX_WINDOWS * TIME * TEXT_MEMORY,
                            .make = make_text,
                            .start = start_text,
                            .loss = loss_text};
