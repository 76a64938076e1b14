/* Matrices in arrays, as calls on the CPU read and leave them: f32 or f64, a block's elements among those of others. */
#include "runtime/core/matrix/cpu_calls.h"

#include <math.h>
#include <string.h>

CORE Lying lying(const optc_binding *b, const Tensor *t, int array, int64_t nth)
{
    const Program *p = b->rule->program;
    Dom d = p->array[array].dom;
    MatrixAxes m = dom_matrix(d, false);
    size_t size = (size_t)p->type[p->array[array].type].bytes;
    Lying x;
    x.at = (char *)t->mem[array] + (size_t)matrix_at(b, t, array, nth) * size;
    x.rows = axis_len(m.down, t->shape);
    x.cols = axis_len(m.across, t->shape);
    x.apart = d == ELEM ? rows_apart(b, t) : x.cols;
    x.f64 = size == sizeof(double);
    return x;
}

CORE void lying_load(double *to, const Lying *x)
{
    for (int64_t i = 0; i < x->rows; i++)
        for (int64_t j = 0; j < x->cols; j++)
            to[i * x->cols + j] = x->f64 ? ((const double *)x->at)[i * x->apart + j]
                                         : (double)((const float *)x->at)[i * x->apart + j];
}

CORE void lying_store(const Lying *x, const double *from)
{
    for (int64_t i = 0; i < x->rows; i++)
        for (int64_t j = 0; j < x->cols; j++) {
            double y = from ? from[i * x->cols + j] : (double)NAN;
            if (x->f64)
                ((double *)x->at)[i * x->apart + j] = y;
            else
                ((float *)x->at)[i * x->apart + j] = (float)y;
        }
}

CORE void lying_copy(const Lying *x, const Lying *from)
{
    size_t size = x->f64 ? sizeof(double) : sizeof(float);
    for (int64_t i = 0; i < x->rows; i++)
        memcpy(x->at + (size_t)(i * x->apart) * size, from->at + (size_t)(i * from->apart) * size,
               (size_t)x->cols * size);
}

CORE bool lying_holds(const Lying *x, const double *from)
{
    double most = x->f64 ? 1.7976931348623157e308 : 3.4028234663852886e38;
    int64_t outside = 0;
    for (int64_t i = 0; i < x->rows * x->cols; i++)
        outside += !(fabs(from[i]) <= most);
    return outside == 0;
}

CORE double *call_room(const optc_binding *b, int who)
{
    return (double *)((char *)call_space(b) + who * (b->call_bytes / b->rule->engine->threads));
}
