/* Layers of the race's networks: forward passes and exact backward passes in double precision. Sums
 * have a fixed order. Inner loops run over consecutive values without a sum, so that compilers
 * vectorise them without changing results. */
#include "tools/race/race_task.h"

#include <math.h>
#include <string.h>

static inline void add_scaled(double *restrict to, const double *restrict from, double by, int n)
{
#pragma omp simd
    for (int k = 0; k < n; k++)
        to[k] += by * from[k];
}

void dense_forward(double *y, const double *x, const double *w, const double *b, int n, int in,
                   int out)
{
    /* w transposed: then the inner loop has no sum */
    double turned[DENSE_MOST];
    for (int o = 0; o < out; o++)
        for (int k = 0; k < in; k++)
            turned[k * out + o] = w[(int64_t)o * in + k];
    for (int i = 0; i < n; i++) {
        double *yi = y + (int64_t)i * out;
        for (int o = 0; o < out; o++)
            yi[o] = b ? b[o] : 0;
        for (int k = 0; k < in; k++)
            add_scaled(yi, turned + k * out, x[(int64_t)i * in + k], out);
    }
}

void dense_backward(double *gx, double *gw, double *gb, const double *gy, const double *x,
                    const double *w, int n, int in, int out)
{
    if (gx)
        memset(gx, 0, sizeof *gx * (size_t)n * (size_t)in);
    for (int i = 0; i < n; i++)
        for (int o = 0; o < out; o++) {
            double e = gy[(int64_t)i * out + o];
            if (e == 0)
                continue;
            add_scaled(gw + (int64_t)o * in, x + (int64_t)i * in, e, in);
            if (gx)
                add_scaled(gx + (int64_t)i * in, w + (int64_t)o * in, e, in);
            if (gb)
                gb[o] += e;
        }
}

void tanh_forward(double *y, const double *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        y[i] = tanh(x[i]);
}

void tanh_backward(double *gx, const double *gy, const double *y, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        gx[i] = gy[i] * (1 - y[i] * y[i]);
}

void relu_forward(double *y, const double *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        y[i] = x[i] > 0 || isnan(x[i]) ? x[i] : 0;
}

void relu_backward(double *gx, const double *gy, const double *y, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        gx[i] = y[i] > 0 ? gy[i] : 0;
}

double softmax_loss(double *g, const double *logits, const int *label, int n, int c)
{
    double loss = 0;
    for (int i = 0; i < n; i++) {
        const double *z = logits + (int64_t)i * c;
        double most = z[0], sum = 0;
        for (int k = 1; k < c; k++)
            most = z[k] > most ? z[k] : most;
        for (int k = 0; k < c; k++) {
            double e = exp(z[k] - most);
            sum += e;
            if (g)
                g[(int64_t)i * c + k] = e;
        }
        loss += log(sum) + most - z[label[i]];
        for (int k = 0; g && k < c; k++)
            g[(int64_t)i * c + k] = (g[(int64_t)i * c + k] / sum - (k == label[i])) / n;
    }
    return loss / n;
}

void norm_forward(double *y, double *scale, const double *x, const double *gain, int n, int d)
{
    for (int i = 0; i < n; i++) {
        const double *xi = x + (int64_t)i * d;
        double mean = 0, square = 0;
        for (int k = 0; k < d; k++)
            mean += xi[k];
        mean /= d;
        for (int k = 0; k < d; k++)
            square += (xi[k] - mean) * (xi[k] - mean);
        scale[i] = 1 / sqrt(square / d + 1e-5);
        for (int k = 0; k < d; k++)
            y[(int64_t)i * d + k] = gain[k] * (xi[k] - mean) * scale[i];
    }
}

void norm_backward(double *gx, double *ggain, const double *gy, const double *x,
                   const double *scale, const double *gain, int n, int d)
{
    for (int i = 0; i < n; i++) {
        const double *xi = x + (int64_t)i * d, *gi = gy + (int64_t)i * d;
        double mean = 0, sum = 0, dot = 0;
        for (int k = 0; k < d; k++)
            mean += xi[k];
        mean /= d;
        for (int k = 0; k < d; k++) {
            double unit = (xi[k] - mean) * scale[i];
            ggain[k] += gi[k] * unit;
            sum += gi[k] * gain[k];
            dot += gi[k] * gain[k] * unit;
        }
        for (int k = 0; k < d; k++) {
            double unit = (xi[k] - mean) * scale[i];
            gx[(int64_t)i * d + k] = scale[i] * (gi[k] * gain[k] - sum / d - unit * dot / d);
        }
    }
}

void attention_forward(double *y, double *att, const double *qkv, int t, int d, int heads)
{
    int size = d / heads, row = 3 * d;
    double by = 1 / sqrt(size);
    for (int h = 0; h < heads; h++)
        for (int i = 0; i < t; i++) {
            const double *q = qkv + (int64_t)i * row + h * size;
            double *a = att + ((int64_t)h * t + i) * t, most = -INFINITY, sum = 0,
                   *yi = y + (int64_t)i * d + h * size;
            for (int j = 0; j <= i; j++) {
                const double *k = qkv + (int64_t)j * row + d + h * size;
                double dot = 0;
                for (int c = 0; c < size; c++)
                    dot += q[c] * k[c];
                a[j] = dot * by;
                most = a[j] > most ? a[j] : most;
            }
            for (int j = 0; j <= i; j++)
                sum += a[j] = exp(a[j] - most);
            memset(yi, 0, sizeof *yi * (size_t)size);
            for (int j = 0; j <= i; j++)
                add_scaled(yi, qkv + (int64_t)j * row + 2 * d + h * size, a[j] /= sum, size);
        }
}

void attention_backward(double *gqkv, const double *gy, const double *att, const double *qkv, int t,
                        int d, int heads)
{
    int size = d / heads, row = 3 * d;
    double by = 1 / sqrt(size);
    memset(gqkv, 0, sizeof *gqkv * (size_t)t * (size_t)row);
    for (int h = 0; h < heads; h++)
        for (int i = 0; i < t; i++) {
            const double *a = att + ((int64_t)h * t + i) * t, *gi = gy + (int64_t)i * d + h * size;
            double mean = 0;
            /* first the mean of the probabilities' gradients */
            for (int pass = 0; pass < 2; pass++)
                for (int j = 0; j <= i; j++) {
                    int64_t key = (int64_t)j * row + d + h * size, value = key + d,
                            query = (int64_t)i * row + h * size;
                    double dot = 0;
                    for (int c = 0; c < size; c++)
                        dot += gi[c] * qkv[value + c];
                    if (pass == 0) {
                        mean += dot * a[j];
                        continue;
                    }
                    double e = a[j] * (dot - mean) * by;
                    add_scaled(gqkv + value, gi, a[j], size);
                    add_scaled(gqkv + query, qkv + key, e, size);
                    add_scaled(gqkv + key, qkv + query, e, size);
                }
        }
}
