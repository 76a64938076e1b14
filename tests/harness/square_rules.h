/* Rules over rows x rows and cols x cols, and tensors for them. The CPU's results are compared with
 * the evaluator, the GPU's with the CPU's. */
#ifndef OPTC_TESTS_SQUARES_H
#define OPTC_TESTS_SQUARES_H
#include "tests/harness/help.h"

static const char *const square_rules[] = {
    /* plain maps and folds, draws, values of rows, columns and matrices */
    "return optimizer { name = 'squares', view = 'last', hyper = { lr = 0.125 },\n"
    "  state = { L = zeros 'rows', R = zeros 'cols', N = zeros 'rows', s = zeros 'slice', all = "
    "zeros 'group' },\n"
    "  step = function() p = p - lr * g  all = 0.5 * all + global.max(max(g)) end,\n"
    "  matrix = function()\n"
    "    L = 0.75 * L + rowmax(g)  R = (0.5 * R - colmin(g)) + slice.max(g)  N = normal 'rows' + 2 "
    "* N\n"
    "    s = slice.sum(R * R) + mean(L)  all = 0.5 * all + global.max(max(L))\n"
    "    p = p - lr * g / (1 + abs(s)) + 1e-3 * rowmax(g) - 1e-3 * all\n"
    "  end }",
    /* transposed loads, indices along both axes, folds of rows and columns of arrays */
    "return optimizer { name = 'turned', view = 'last', hyper = { lr = 0.125 },\n"
    "  state = { L = zeros 'rows', R = zeros 'cols', a = zeros 'row', b = zeros 'col', c = zeros "
    "'col', s = zeros "
    "'slice' },\n"
    "  step = function() p = p - lr * g end,\n"
    "  matrix = function()\n"
    "    L = 0.75 * L.T + rowmax(g) + triu(L)\n"
    "    R = 0.5 * R + tril(R) - colmin(g).T + diag(colmax(g))\n"
    "    a = rowsum(L) + rowmax(L)  b = colsum(R) + colmin(abs(R))  c = rowmin(R).T + diag(R)\n"
    "    s = slice.sum(rowsum(L * L)) + slice.max(colmax(R)) + trace(L)\n"
    "    p = p - lr * g + 1e-3 * a - 1e-3 * b\n"
    "  end }",
    /* only slice values in passes over elements, with and without a fold */
    "return optimizer { name = 'matrices', view = 'last', hyper = { lr = 0.125 }, state = { r = "
    "zeros 'tensor' },\n"
    "  step = function() p = p - lr * g end,\n"
    "  matrix = function()\n"
    "    local d = g / (1 + slice.max(abs(g)))\n"
    "    r = sum(d * d)\n"
    "    p = p - lr * d / (1 + r)\n"
    "  end }",
};
enum { NSQUARE_RULES = sizeof square_rules / sizeof *square_rules };

enum { NSQUARES = 12 };
/* Short sides, since rows x rows values must fit: odd ones, several matrices, one row, one column,
 * empty. */
static const TestShape square_shapes[NSQUARES] = {
    {2, {33, 65}}, {1, {7}},           {3, {3, 5, 7}},   {2, {70, 131}},
    {2, {1, 130}}, {2, {129, 1}},      {3, {4, 64, 32}}, {2, {96, 128}},
    {2, {0, 5}},   {4, {2, 3, 17, 9}}, {2, {1, 1}},      {0, {0}}};
#endif
