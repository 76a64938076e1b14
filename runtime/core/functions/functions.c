/* Functions of matrices without a rule: reads and checks the caller's struct, writes the spec,
 * copies operands in, runs the entry's binding and copies results out. */
#include "runtime/core/functions/function.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- marks of matrices: not finite, not symmetric ---- */
static optc_status clear_bad(optc_engine *e, const FunctionForm *f, const FunctionEntry *x)
{
    size_t bytes = 2 * sizeof(unsigned) * (size_t)f->batch;
    if (e->gpu)
        TRY(e->gpu, cuMemsetD8Async((CUdeviceptr)(uintptr_t)x->bad, 0, bytes, (CUstream)f->stream),
            f->call);
    else
        memset(x->bad, 0, bytes);
    return OPTC_OK;
}

/* Reads the marks of all matrices, when the device has done everything before, and refuses the
 * first marked one. label: of an operand; NULL: the results were looked at. other: "", or another
 * operand that may be the one */
static optc_status check_marks(optc_engine *e, const FunctionForm *f, const FunctionEntry *x,
                               const char *label, const char *other)
{
    size_t n = 2 * (size_t)f->batch, bytes = n * sizeof(unsigned), at = 0;
    unsigned *bad = e->gpu ? (unsigned *)malloc(bytes) : x->bad;
    int rc = 0;
    if (!bad)
        return no_memory(f->call);
    if (e->gpu) {
        rc = e->gpu->d->cuMemcpyDtoHAsync_v2(bad, (CUdeviceptr)(uintptr_t)x->bad, bytes,
                                             (CUstream)f->stream);
        rc = rc ? rc : e->gpu->d->cuStreamSynchronize((CUstream)f->stream);
    }
    while (at < n && !rc && !bad[at])
        at++;
    if (e->gpu)
        free(bad);
    if (rc)
        return gpu_error(e->gpu, "cuStreamSynchronize", rc, f->call);
    if (at == n)
        return OPTC_OK;
    long long nth = (long long)f->first + (long long)at / 2,
              all = (long long)(f->of ? f->of : f->batch);
    if (!label)
        return fail(OPTC_ERROR_RANGE,
                    "%s: there is no result for matrix %lld of %lld: %s%sa value of it exceeds "
                    "the range of %s",
                    f->call, nth, all, f->why, *f->why ? ", or " : "", number_type[f->type].name);
    return at % 2 ? fail(OPTC_ERROR_RANGE,
                         "%s: matrix %lld of %lld of %s is not symmetric; set lower = 1 if only "
                         "its lower triangle is meant",
                         f->call, nth, all, label)
                  : fail(OPTC_ERROR_RANGE,
                         "%s: matrix %lld of %lld of %s%s%s contains a NaN or an infinity",
                         f->call, nth, all, label, *other ? " or " : "", other);
}

CORE optc_status function_look(optc_engine *e, const FunctionForm *f, const MatrixBatch *x,
                               unsigned flags, const FunctionEntry *entry)
{
    optc_status s = clear_bad(e, f, entry);
    if (s == OPTC_OK)
        s = function_copy(e, f, x, flags, x->at, entry->bad);
    return s == OPTC_OK ? check_marks(e, f, entry, x->label, "") : s;
}

static optc_status copy_in(optc_engine *e, const FunctionForm *f, const FunctionEntry *x)
{
    const char *first = f->in[0].label, *second = f->nin > 1 ? f->in[1].label : first;
    optc_status s = f->unchecked ? OPTC_OK : clear_bad(e, f, x);
    unsigned looks = f->unchecked ? COPY_FINITE | COPY_SYMMETRIC : 0;
    for (int i = 0; i < f->nin && s == OPTC_OK; i++)
        s = function_copy(e, f, &f->in[i], f->in[i].flags & ~looks, x->in[i], x->bad);
    return s == OPTC_OK && !f->unchecked
               ? check_marks(e, f, x, first, strcmp(first, second) ? second : "")
               : s;
}

static optc_status check_results(optc_engine *e, const FunctionForm *f, const FunctionEntry *x)
{
    optc_status s = clear_bad(e, f, x);
    for (int i = 0; i < f->nout && s == OPTC_OK; i++) {
        const MatrixBatch *to = &f->out[i];
        MatrixBatch own = operand_of("the result", x->result[i], to->type, to->rows, to->cols,
                                     to->cols, to->rows * to->cols);
        s = function_copy(e, f, &own, COPY_FITS, x->result[i], x->bad);
    }
    return s == OPTC_OK ? check_marks(e, f, x, NULL, "") : s;
}

/* ---- running an entry ---- */
/* The spec has the leading columns of a, as many as the result has. y = x.T a, whose values below
 * the diagonal are rounding errors. */
static optc_status make_r_rows(optc_engine *e, const FunctionForm *f, const FunctionEntry *x,
                               int64_t row, int64_t rows)
{
    const MatrixBatch *q = &f->out[0], *a = &f->in[f->nin - 1];
    int64_t size = number_type[f->compute].bytes;
    optc_product p;
    memset(&p, 0, sizeof p);
    p.a = x->result[0] + row * size, p.b = x->in[f->nin - 1] + row * size;
    p.c = x->result[1] + (row * a->cols + row) * size, p.type = (optc_type)(f->compute + 1);
    p.m = rows, p.n = a->cols - row, p.k = q->rows, p.batch = f->batch, p.turn_a = 1,
    p.stream = f->stream;
    p.lda = q->cols, p.ldb = p.ldc = a->cols;
    p.next_a = q->rows * q->cols, p.next_b = q->rows * a->cols, p.next_c = q->cols * a->cols;
    return optc_multiply(e, &p);
}

/* On the CPU row by row of blocks, from the diagonal on: 3/8 fewer operations. */
static optc_status make_r(optc_engine *e, const FunctionForm *f, const FunctionEntry *x)
{
    enum { BLOCK = 64 };
    int64_t rows = f->out[0].cols, cols = f->in[f->nin - 1].cols,
            size = number_type[f->compute].bytes;
    int64_t each = e->gpu || rows < 2 * BLOCK ? rows : (int64_t)BLOCK;
    optc_status s = OPTC_OK;
    for (int64_t row = 0; row < rows && s == OPTC_OK; row += each)
        s = make_r_rows(e, f, x, row, rows - row < each ? rows - row : each);
    for (int64_t i = each; i < rows * f->batch && each < rows; i++)       /* they are looked at */
        memset(x->result[1] + i * cols * size, 0, (size_t)((i % rows / each * each) * size));
    return s;
}

static optc_status set_numbers(const FunctionForm *f, FunctionEntry *x)
{
    optc_status s = OPTC_OK;
    for (int i = 0; i < f->nhyper && s == OPTC_OK; i++)
        if (x->of.hyper[i].value != f->hyper[i].value) {
            s = optc_set_hyper(x->b, 0, f->hyper[i].name, f->hyper[i].value);
            x->of.hyper[i] = s == OPTC_OK ? f->hyper[i] : x->of.hyper[i];
        }
    return s;
}

/* The binding uses the caller's stream until the call ends, after the work of the entry's last
 * call. In a capture the host waits for that work: an event from outside cannot be waited for
 * there. */
static optc_status follow_stream(optc_engine *e, const FunctionForm *f, const FunctionEntry *x,
                                 bool capturing)
{
    if (!e->gpu)
        return OPTC_OK;
    if (x->pending && capturing)
        TRY(e->gpu, cuEventSynchronize(x->done), f->call);
    else if (x->pending)
        TRY(e->gpu, cuStreamWaitEvent((CUstream)f->stream, x->done, 0), f->call);
    return x->b ? optc_set_stream(x->b, f->stream) : OPTC_OK;
}

static optc_status run_entry(optc_engine *e, const FunctionForm *f, FunctionEntry *x,
                             bool capturing)
{
    double residual = 0;
    optc_status s = set_numbers(f, x);
    if (s == OPTC_OK)
        s = copy_in(e, f, x);
    if (s == OPTC_OK)
        s = optc_step(x->b);
    if (s != OPTC_OK && e->gpu && !capturing)
        x->b->gpu->half_done = false;              /* the next call copies all operands in again */
    if (s == OPTC_OK && f->given && f->name == FUNCTION_QR && f->nout == 2)
        s = make_r(e, f, x);
    if (s == OPTC_OK && !f->unchecked)
        s = check_results(e, f, x);
    if (s == OPTC_OK && f->residual)
        s = function_residual(e, f, x, &residual);
    if (s == OPTC_OK)
        s = function_store(e, f, f->out, x->result, f->nout);
    if (s == OPTC_OK && f->residual)
        *f->residual = residual;
    return s;
}

/* Loads the kernels for copies, takes an entry, and has it follow the stream. */
CORE optc_status function_begin(optc_engine *e, const FunctionForm *f, FunctionEntry **out,
                                bool *capturing)
{
    CUstreamCaptureStatus status = (CUstreamCaptureStatus)0;
    *capturing = false;
    *out = NULL;
    if (e->gpu) {
        TRY(e->gpu, cuStreamIsCapturing((CUstream)f->stream, &status), f->call);
        if (status && (!f->unchecked || f->residual))
            return fail(OPTC_ERROR_ARGUMENT,
                        "%s: checks and the residual wait for the device, which is not possible "
                        "in a capture; set unchecked = 1 and residual = NULL",
                        f->call);
        pthread_mutex_lock(&e->functions->lock);
        optc_status s = matrices_load(e, f->stream, f->call, MATRIX_COPY);
        pthread_mutex_unlock(&e->functions->lock);
        if (s != OPTC_OK)
            return s;
    }
    *capturing = status != 0;
    optc_status s = function_take(e, f, *capturing, out);
    if (s == OPTC_OK)
        s = follow_stream(e, f, *out, *capturing);
    if (s != OPTC_OK && *out) {
        function_put(e, *out, f->stream, *capturing);
        *out = NULL;
    }
    return s;
}

CORE optc_status function_run(optc_engine *e, const FunctionForm *f)
{
    FunctionEntry *x = NULL;
    bool capturing;
    optc_status s = function_begin(e, f, &x, &capturing);
    if (s != OPTC_OK)
        return s;
    s = run_entry(e, f, x, capturing);
    function_put(e, x, f->stream, capturing);
    return s;
}

/* ---- checks of the caller's struct ---- */
CORE void function_spec(FunctionForm *f, const char *name, const char *declares, const char *body)
{
    snprintf(
        f->spec, sizeof f->spec,
        "return optimizer { name = \"%s\", view = \"last\", %s\n  matrix = function() %s end,\n"
        "  step = function() p = 0 end }",
        name, declares, body);
}

/* Reads what all functions share. */
static optc_status read_function(optc_engine *e, const char *call, const optc_function *from,
                                 size_t size, optc_function *x, FunctionForm *f)
{
    char sized[64];
    snprintf(sized, sizeof sized, "%s_sized", call);
    const StructVersion as = STRUCT_VERSION(sized, optc_function, call, bytes);
    memset(f, 0, sizeof *f);
    optc_status s = matrix_read(e, &as, "the function", x, from, size);
    if (s == OPTC_OK && (x->m < 0 || x->n < 0 || x->batch < 0))
        s = fail(OPTC_ERROR_ARGUMENT,
                 "%s: m = %lld, n = %lld, batch = %lld; none may be negative", call,
                 (long long)x->m, (long long)x->n, (long long)x->batch);
    if (s == OPTC_OK)
        s = matrix_type(call, x->type, &f->type);
    if (s != OPTC_OK)
        return s;
    f->call = call, f->why = "", f->given = x;
    f->batch = f->shape[0] = x->batch ? x->batch : 1;
    f->unchecked = x->unchecked != 0;
    f->stream = x->stream, f->residual = x->residual, f->bytes = x->bytes;
    f->compute = number_type[f->type].compute;
    return OPTC_OK;
}

static bool exceeds_memory(int64_t rows, int64_t cols, int64_t batch)
{
    int64_t all;
    return __builtin_mul_overflow(rows, cols, &all) || __builtin_mul_overflow(all, batch, &all) ||
           all > INT64_MAX / 1024 || rows > INT32_MAX || cols > INT32_MAX;
}

/* The matrices of a call; the caller may leave the second result out. */
static optc_status check_operands(optc_engine *e, FunctionForm *f)
{
    MatrixBatch *all[4];
    int n = 0;
    for (int i = 0; i < f->nin + f->nout; i++) {
        MatrixBatch *x = i < f->nin ? &f->in[i] : &f->out[i - f->nin];
        x->result = i >= f->nin;
        if (exceeds_memory(x->rows, x->cols, f->batch))
            return fail(OPTC_ERROR_ARGUMENT,
                        "%s: %lld matrices of %lld x %lld are larger than memory can be", f->call,
                        (long long)f->batch, (long long)x->rows, (long long)x->cols);
        if (x->at || i <= f->nin)
            all[n++] = x;
    }
    return f->bytes ? OPTC_OK : operands_check(e, f->call, all, n, f->batch, true);
}

static optc_status check_and_run(optc_engine *e, FunctionForm *f)
{
    bool nothing = !f->in[0].rows || !f->in[0].cols || !f->shape[1] || !f->shape[2];
    optc_status s = check_operands(e, f);
    if (s == OPTC_OK && f->bytes) {
        *f->bytes = function_bytes(f);
        for (int i = 0; i < f->nout; i++)
            *f->bytes += f->batch * f->out[i].rows * f->out[i].cols * number_type[f->compute].bytes;
        return OPTC_OK;
    }
    if (s == OPTC_OK && nothing && f->residual)
        *f->residual = 0;
    if (s == OPTC_OK && !nothing)
        s = matrix_enter(e);
    return s == OPTC_OK && !nothing ? matrix_leave(e, function_run(e, f)) : s;
}

/* ---- the functions ---- */
static optc_status run_function(optc_engine *e, FunctionName name, const optc_function *from,
                                size_t size)
{
    optc_function x;
    FunctionForm f;
    optc_status s = read_function(e, function_call(name), from, size, &x, &f);
    f.name = name;
    if (s == OPTC_OK)
        s = function_form(name, &x, HOST()->packed, &f);
    return s == OPTC_OK ? check_and_run(e, &f) : s;
}

#define FUNCTION(name, ID) \
    optc_status name(optc_engine *e, const optc_function *f, size_t size) \
    { \
        return run_function(e, ID, f, size); \
    }
FUNCTION(optc_matrix_power_sized, FUNCTION_MATRIX_POWER)
FUNCTION(optc_eigh_sized, FUNCTION_EIGH)
FUNCTION(optc_cholesky_sized, FUNCTION_CHOLESKY)
FUNCTION(optc_solve_sized, FUNCTION_SOLVE)
FUNCTION(optc_polar_sized, FUNCTION_POLAR)
FUNCTION(optc_qr_sized, FUNCTION_QR)
