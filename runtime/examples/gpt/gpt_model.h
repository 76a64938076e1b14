/* A small GPT in plain C: characters, learned positions, RMS norms, causal attention, squared ReLU.
 * gpt_loss returns the mean cross entropy of one sequence and adds its gradient. All weights are
 * matrices of out x in. */
#ifndef GPT_MODEL_H
#define GPT_MODEL_H
#include <math.h>
#include <stdint.h>
#include <string.h>

enum {
    VOCAB = 128, TIME = 32, WIDTH = 48, HEADS = 4, LAYERS = 2, HEAD = WIDTH / HEADS,
    MID = 4 * WIDTH
};
/* numbers of the weights */
enum { EMBED, POSITION, OUTPUT, FIRST_LAYER };
enum { QKV, MIX, UP, DOWN, PER_LAYER, WEIGHTS = FIRST_LAYER + LAYERS * PER_LAYER };

typedef struct Activations {
    float in[TIME * WIDTH], norm1[TIME * WIDTH], qkv[TIME * 3 * WIDTH], share[HEADS * TIME * TIME],
        mixed[TIME * WIDTH];
    float mid[TIME * WIDTH], norm2[TIME * WIDTH], up[TIME * MID], act[TIME * MID];
} Activations;

static inline void gpt_shape(int weight, int64_t shape[2])
{
    static const int64_t first[][2] = {{VOCAB, WIDTH}, {TIME, WIDTH}, {VOCAB, WIDTH}};
    static const int64_t layer[][2] = {
        {3 * WIDTH, WIDTH}, {WIDTH, WIDTH}, {MID, WIDTH}, {WIDTH, MID}};
    memcpy(shape, weight < FIRST_LAYER ? first[weight] : layer[(weight - FIRST_LAYER) % PER_LAYER],
           sizeof first[0]);
}

static inline const char *gpt_name(int weight)
{
    static const char *const name[] = {"embed",  "position", "output", "0.qkv", "0.mix", "0.up",
                                       "0.down", "1.qkv",    "1.mix",  "1.up",  "1.down"};
    return name[weight];
}

static inline float dot(const float *a, const float *b, int n)
{
    float s = 0;
    for (int i = 0; i < n; i++)
        s += a[i] * b[i];
    return s;
}

/* y = x w^T for TIME rows of x */
static inline void linear(float *y, const float *x, const float *w, int in, int out)
{
    for (int t = 0; t < TIME; t++)
        for (int o = 0; o < out; o++)
            y[t * out + o] = dot(x + t * in, w + o * in, in);
}

static inline void linear_back(float *dx, float *dw, const float *dy, const float *x,
                               const float *w, int in, int out)
{
    for (int t = 0; t < TIME; t++)
        for (int o = 0; o < out; o++) {
            float d = dy[t * out + o];
            for (int i = 0; i < in; i++) {
                dx[t * in + i] += d * w[o * in + i];
                dw[o * in + i] += d * x[t * in + i];
            }
        }
}

static inline float norm_scale(const float *x)
{
    return 1 / sqrtf(dot(x, x, WIDTH) / WIDTH + 1e-6f);
}

static inline void norm(float *y, const float *x)
{
    for (int t = 0; t < TIME; t++, x += WIDTH, y += WIDTH) {
        float r = norm_scale(x);
        for (int i = 0; i < WIDTH; i++)
            y[i] = r * x[i];
    }
}

static inline void norm_back(float *dx, const float *dy, const float *x, const float *y)
{
    for (int t = 0; t < TIME; t++, x += WIDTH, y += WIDTH, dx += WIDTH, dy += WIDTH) {
        float r = norm_scale(x), along = dot(dy, y, WIDTH) / WIDTH;
        for (int i = 0; i < WIDTH; i++)
            dx[i] += r * (dy[i] - y[i] * along);
    }
}

static inline void softmax(float *x, int n)
{
    float most = x[0], sum = 0;
    for (int i = 1; i < n; i++)
        most = x[i] > most ? x[i] : most;
    for (int i = 0; i < n; i++)
        sum += x[i] = expf(x[i] - most);
    for (int i = 0; i < n; i++)
        x[i] /= sum;
}

static inline void attend(Activations *a)
{
    memset(a->mixed, 0, sizeof a->mixed);
    for (int h = 0; h < HEADS; h++)
        for (int t = 0; t < TIME; t++) {
            const float *q = a->qkv + t * 3 * WIDTH + h * HEAD;
            float *share = a->share + (h * TIME + t) * TIME;
            for (int s = 0; s <= t; s++)
                share[s] = dot(q, a->qkv + s * 3 * WIDTH + WIDTH + h * HEAD, HEAD) / sqrtf(HEAD);
            softmax(share, t + 1);
            for (int s = 0; s <= t; s++)
                for (int i = 0; i < HEAD; i++)
                    a->mixed[t * WIDTH + h * HEAD + i] +=
                        share[s] * a->qkv[s * 3 * WIDTH + 2 * WIDTH + h * HEAD + i];
        }
}

static inline void attend_back(const Activations *a, float *dqkv, const float *dmixed)
{
    for (int h = 0; h < HEADS; h++)
        for (int t = 0; t < TIME; t++) {
            const float *share = a->share + (h * TIME + t) * TIME,
                        *d = dmixed + t * WIDTH + h * HEAD;
            float dshare[TIME], mean = 0;
            for (int s = 0; s <= t; s++) {
                dshare[s] = dot(d, a->qkv + s * 3 * WIDTH + 2 * WIDTH + h * HEAD, HEAD);
                mean += share[s] * dshare[s];
            }
            for (int s = 0; s <= t; s++) {
                float dscore = share[s] * (dshare[s] - mean) / sqrtf(HEAD);
                for (int i = 0; i < HEAD; i++) {
                    int q = t * 3 * WIDTH + h * HEAD + i, k = s * 3 * WIDTH + WIDTH + h * HEAD + i;
                    dqkv[q] += dscore * a->qkv[k];
                    dqkv[k] += dscore * a->qkv[q];
                    dqkv[k + WIDTH] += share[s] * d[i];
                }
            }
        }
}

/* text has TIME + 1 characters. p, g: by weight */
static inline double gpt_loss(float *const *p, float *const *g, const unsigned char *text)
{
    static Activations all[LAYERS];
    static float x[TIME * WIDTH], normed[TIME * WIDTH], logits[TIME * VOCAB];
    static float dx[TIME * WIDTH], d1[TIME * WIDTH], d2[TIME * MID], d3[TIME * 3 * WIDTH];
    double loss = 0;
    for (int t = 0; t < TIME; t++)
        for (int i = 0; i < WIDTH; i++)
            x[t * WIDTH + i] = p[EMBED][text[t] % VOCAB * WIDTH + i] + p[POSITION][t * WIDTH + i];
    for (int l = 0; l < LAYERS; l++) {
        Activations *a = &all[l];
        float *const *w = p + FIRST_LAYER + l * PER_LAYER;
        memcpy(a->in, x, sizeof x);
        norm(a->norm1, a->in);
        linear(a->qkv, a->norm1, w[QKV], WIDTH, 3 * WIDTH);
        attend(a);
        linear(a->mid, a->mixed, w[MIX], WIDTH, WIDTH);
        for (int i = 0; i < TIME * WIDTH; i++)
            a->mid[i] += a->in[i];
        norm(a->norm2, a->mid);
        linear(a->up, a->norm2, w[UP], WIDTH, MID);
        for (int i = 0; i < TIME * MID; i++)
            a->act[i] = a->up[i] > 0 ? a->up[i] * a->up[i] : 0;
        linear(x, a->act, w[DOWN], MID, WIDTH);
        for (int i = 0; i < TIME * WIDTH; i++)
            x[i] += a->mid[i];
    }
    norm(normed, x);
    linear(logits, normed, p[OUTPUT], WIDTH, VOCAB);
    for (int t = 0; t < TIME; t++) {
        float *row = logits + t * VOCAB;
        softmax(row, VOCAB);
        loss -= log(row[text[t + 1] % VOCAB]) / TIME;
        row[text[t + 1] % VOCAB] -= 1;
        for (int i = 0; i < VOCAB; i++)
            row[i] /= TIME;
    }
    /* backwards */
    memset(d1, 0, sizeof d1);
    memset(dx, 0, sizeof dx);
    linear_back(d1, g[OUTPUT], logits, normed, p[OUTPUT], WIDTH, VOCAB);
    norm_back(dx, d1, x, normed);
    for (int l = LAYERS; l-- > 0;) {
        Activations *a = &all[l];
        float *const *w = p + FIRST_LAYER + l * PER_LAYER, *const *dw =
                                                               g + FIRST_LAYER + l * PER_LAYER;
        memset(d1, 0, sizeof d1);
        memset(d2, 0, sizeof d2);
        memset(d3, 0, sizeof d3);
        linear_back(d2, dw[DOWN], dx, a->act, w[DOWN], MID, WIDTH);
        for (int i = 0; i < TIME * MID; i++)
            d2[i] *= a->up[i] > 0 ? 2 * a->up[i] : 0;
        linear_back(d1, dw[UP], d2, a->norm2, w[UP], WIDTH, MID);
        norm_back(dx, d1, a->mid, a->norm2);
        memset(d1, 0, sizeof d1);
        linear_back(d1, dw[MIX], dx, a->mixed, w[MIX], WIDTH, WIDTH);
        attend_back(a, d3, d1);
        memset(d1, 0, sizeof d1);
        linear_back(d1, dw[QKV], d3, a->norm1, w[QKV], WIDTH, 3 * WIDTH);
        norm_back(dx, d1, a->in, a->norm1);
    }
    for (int t = 0; t < TIME; t++)
        for (int i = 0; i < WIDTH; i++) {
            g[EMBED][text[t] % VOCAB * WIDTH + i] += dx[t * WIDTH + i];
            g[POSITION][t * WIDTH + i] += dx[t * WIDTH + i];
        }
    return loss;
}
#endif
