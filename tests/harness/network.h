/* A small network, 6 inputs, 8 inside, 3 outputs, that learns a sum of sines: what rules are stepped on for long. */
#ifndef OPTC_TEST_NETWORK_H
#define OPTC_TEST_NETWORK_H
#include "tests/harness/help.h"

enum { NET_IN = 6, NET_MID = 8, NET_OUT = 3, NET_TENSORS = 3 };
extern const TestShape net[NET_TENSORS];                 /* weights, biases, weights */
/* the loss of parameters p, in f32, and its gradients, worked out by hand */
double network(void *const *p, void *const *g);
#endif
