#include "tests/harness/basis.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

Basis make_basis(int n, double low, uint64_t seed)
{
    Basis m = {n, malloc(8 * (size_t)n * (size_t)n), malloc(8 * (size_t)n)};
    double *v = malloc(8 * (size_t)n);
    for (int i = 0; i < n * n; i++)
        m.q[i] = i % (n + 1) == 0;
    /* any reflections give an orthogonal matrix */
    for (int h = 0; h < 3; h++) {
        double norm = 0;
        for (int i = 0; i < n; i++) {
            seed = seed * 6364136223846793005u + 1442695040888963407u;
            v[i] = (double)(seed >> 33) / 4294967296.0 - 0.25;
            norm += v[i] * v[i];
        }
        for (int i = 0; i < n; i++) {
            double dot = 0;
            for (int k = 0; k < n; k++)
                dot += m.q[i * n + k] * v[k];
            for (int k = 0; k < n; k++)
                m.q[i * n + k] -= 2 * dot / norm * v[k];
        }
    }
    for (int i = 0; i < n; i++)
        m.value[i] = n > 1 ? pow(low, (double)i / (n - 1)) : 1;
    free(v);
    return m;
}

void of_values(const Basis *m, double exponent, double *out)
{
    int n = m->n;
    size_t all = (size_t)n * (size_t)n;
    /* transposed, so that the last loop is over neighbours: n is 1024 in places */
    double *turned = malloc(8 * (all + (size_t)n)), *w = turned + all;
    memset(out, 0, 8 * all);
    for (int k = 0; k < n; k++) {
        w[k] = pow(m->value[k], exponent);
        for (int j = 0; j < n; j++)
            turned[k * n + j] = m->q[j * n + k];
    }
    for (int i = 0; i < n; i++)
        for (int k = 0; k < n; k++) {
            double x = w[k] * m->q[i * n + k], *to = out + i * n;
            for (int j = 0; j < n; j++)
                to[j] += x * turned[k * n + j];
        }
    free(turned);
}
