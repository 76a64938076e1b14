/* A small network (6 inputs, 8 hidden units, 3 outputs) that learns a sum of sines. Used for tests
 * with many steps. */
#ifndef OPTC_TEST_NETWORK_H
#define OPTC_TEST_NETWORK_H
#include "tests/harness/help.h"

enum { NET_IN = 6, NET_MID = 8, NET_OUT = 3, NET_TENSORS = 3 };
extern const TestShape net[NET_TENSORS];                 /* weights, biases, weights */
/* returns the loss for parameters p, in f32, and writes its gradients */
double network(void *const *p, void *const *g);
#endif
