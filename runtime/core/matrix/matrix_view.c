/* Views of matrices in arrays, for calls on the CPU: f32 or f64. A block's rows are part of longer
 * rows, so a view has a row stride. */
#include "runtime/core/matrix/cpu_calls.h"

#include <math.h>
#include <string.h>

CORE MatrixView matrix_view(const optc_binding *b, const Tensor *t, int array, int64_t nth)
{
    const Program *p = b->program;
    Dom d = p->array[array].dom;
    MatrixAxes m = dom_matrix(d, false);
    size_t size = (size_t)p->type[p->array[array].type].bytes;
    MatrixView x;
    x.at = (char *)t->mem[array] + (size_t)matrix_at(b, t, array, nth) * size;
    x.rows = axis_len(m.down, t->shape);
    x.cols = axis_len(m.across, t->shape);
    x.row_stride = d == ELEM ? row_stride(b, t) : x.cols;
    x.f64 = size == sizeof(double);
    return x;
}

CORE void matrix_view_load(double *to, const MatrixView *x)
{
    for (int64_t i = 0; i < x->rows; i++)
        for (int64_t j = 0; j < x->cols; j++)
            to[i * x->cols + j] = x->f64 ? ((const double *)x->at)[i * x->row_stride + j]
                                         : (double)((const float *)x->at)[i * x->row_stride + j];
}

CORE void matrix_view_store(const MatrixView *x, const double *from)
{
    for (int64_t i = 0; i < x->rows; i++)
        for (int64_t j = 0; j < x->cols; j++) {
            double y = from ? from[i * x->cols + j] : (double)NAN;
            if (x->f64)
                ((double *)x->at)[i * x->row_stride + j] = y;
            else
                ((float *)x->at)[i * x->row_stride + j] = (float)y;
        }
}

CORE void matrix_view_copy(const MatrixView *x, const MatrixView *from)
{
    size_t size = x->f64 ? sizeof(double) : sizeof(float);
    for (int64_t i = 0; i < x->rows; i++)
        memcpy(x->at + (size_t)(i * x->row_stride) * size,
               from->at + (size_t)(i * from->row_stride) * size, (size_t)x->cols * size);
}

CORE bool matrix_view_fits(const MatrixView *x, const double *from)
{
    double most = x->f64 ? 1.7976931348623157e308 : 3.4028234663852886e38;
    int64_t outside = 0;
    for (int64_t i = 0; i < x->rows * x->cols; i++)
        outside += !(fabs(from[i]) <= most);
    return outside == 0;
}

CORE double *call_scratch(const optc_binding *b, int thread)
{
    return (double *)((char *)call_space(b) + thread * (b->call_bytes / b->rule->engine->threads));
}
