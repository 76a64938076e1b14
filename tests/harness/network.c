#include "tests/harness/network.h"

#include <math.h>

enum { SAMPLES = 32 };
const TestShape net[NET_TENSORS] = {
    {2, {NET_MID, NET_IN}}, {1, {NET_MID}}, {2, {NET_OUT, NET_MID}}};

double network(void *const *p, void *const *g)
{
    const float *w = p[0], *b = p[1], *v = p[2];
    double gw[NET_MID * NET_IN] = {0}, gb[NET_MID] = {0}, gv[NET_OUT * NET_MID] = {0}, loss = 0;
    for (int s = 0; s < SAMPLES; s++) {
        double h[NET_MID], e[NET_MID] = {0};
        for (int i = 0; i < NET_MID; i++) {
            double x = b[i];
            for (int j = 0; j < NET_IN; j++)
                x += w[i * NET_IN + j] * ref_value(9, s, j);
            h[i] = tanh(x);
        }
        for (int o = 0; o < NET_OUT; o++) {
            double y = -sin(2 * ref_value(9, s, o) + ref_value(9, s, o + 1));
            for (int i = 0; i < NET_MID; i++)
                y += v[o * NET_MID + i] * h[i];
            loss += y * y / SAMPLES;
            for (int i = 0; i < NET_MID; i++) {
                gv[o * NET_MID + i] += 2 * y * h[i] / SAMPLES;
                e[i] += 2 * y * v[o * NET_MID + i] / SAMPLES;
            }
        }
        for (int i = 0; i < NET_MID; i++)
            for (int j = -1; j < NET_IN; j++)
                *(j < 0 ? &gb[i] : &gw[i * NET_IN + j]) +=
                    e[i] * (1 - h[i] * h[i]) * (j < 0 ? 1 : ref_value(9, s, j));
    }
    for (int i = 0; i < NET_MID * NET_IN; i++)
        ((float *)g[0])[i] = (float)gw[i];
    for (int i = 0; i < NET_MID; i++)
        ((float *)g[1])[i] = (float)gb[i];
    for (int i = 0; i < NET_OUT * NET_MID; i++)
        ((float *)g[2])[i] = (float)gv[i];
    return loss;
}
