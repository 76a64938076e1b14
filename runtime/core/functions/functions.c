/* Functions of matrices without a rule: reads and checks the caller's struct, writes the spec, copies operands in, runs
 * the entry's binding and copies results out. */
#include "runtime/core/functions/function.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- running an entry ---- */
static optc_status set_numbers(const FunctionForm *f, FunctionEntry *x)
{
    optc_status s = OPTC_OK;
    for (int i = 0; i < f->nhyper && s == OPTC_OK; i++)
        if (x->hyper[i] != f->hyper[i].value) {
            s = optc_set_hyper(x->b, 0, f->hyper[i].name, f->hyper[i].value);
            x->hyper[i] = s == OPTC_OK ? f->hyper[i].value : x->hyper[i];
        }
    return s;
}

/* The binding uses the caller's stream until the call ends, after the work of the entry's last call. In a capture the
 * host waits for that work: an event from outside cannot be waited for there. */
static optc_status follow_stream(optc_engine *e, const FunctionForm *f, FunctionEntry *x, bool capturing)
{
    if (!e->gpu)
        return OPTC_OK;
    if (x->pending && capturing)
        TRY(e->gpu, cuEventSynchronize(x->done), f->call);
    else if (x->pending)
        TRY(e->gpu, cuStreamWaitEvent((CUstream)f->stream, x->done, 0), f->call);
    return x->b ? optc_set_stream(x->b, f->stream) : OPTC_OK;
}

static optc_status clear_bad(optc_engine *e, const FunctionForm *f, FunctionEntry *x)
{
    size_t bytes = 2 * sizeof(unsigned) * (size_t)f->batch;
    if (e->gpu)
        TRY(e->gpu, cuMemsetD8Async((CUdeviceptr)(uintptr_t)x->bad, 0, bytes, (CUstream)f->stream), f->call);
    else
        memset(x->bad, 0, bytes);
    return OPTC_OK;
}

/* Reads the marks of all matrices; the device has then done everything before. *which: the first marked matrix, -1:
 * none. *mark: 0: not finite, 1: not symmetric. */
static optc_status read_bad(optc_engine *e, const FunctionForm *f, const FunctionEntry *x, int64_t *which, int *mark)
{
    size_t bytes = 2 * sizeof(unsigned) * (size_t)f->batch;
    unsigned *bad = e->gpu ? malloc(bytes) : x->bad;
    *which = -1;
    if (!bad)
        return no_memory(f->call);
    if (e->gpu) {
        int rc = e->gpu->d->cuMemcpyDtoHAsync_v2(bad, (CUdeviceptr)(uintptr_t)x->bad, bytes, (CUstream)f->stream);
        rc = rc ? rc : e->gpu->d->cuStreamSynchronize((CUstream)f->stream);
        if (rc) {
            free(bad);
            return gpu_error(e->gpu, "cuStreamSynchronize", rc, f->call);
        }
    }
    for (int64_t i = 2 * f->batch - 1; i >= 0; i--)
        if (bad[i])
            *which = i / 2, *mark = (int)(i % 2);
    if (e->gpu)
        free(bad);
    return OPTC_OK;
}

static optc_status copy_in(optc_engine *e, const FunctionForm *f, FunctionEntry *x)
{
    optc_status s = f->unchecked ? OPTC_OK : clear_bad(e, f, x);
    unsigned looks = COPY_FINITE | COPY_SYMMETRIC;
    for (int i = 0; i < f->nin && s == OPTC_OK; i++)
        s = function_copy(e, f, &f->in[i], f->unchecked ? f->in[i].flags & ~looks : f->in[i].flags, x->in[i], x->bad);
    return s;
}

static optc_status check_operands(optc_engine *e, const FunctionForm *f, const FunctionEntry *x)
{
    int64_t which;
    int mark;
    optc_status s = read_bad(e, f, x, &which, &mark);
    if (s != OPTC_OK || which < 0)
        return s;
    return fail(OPTC_ERROR_RANGE, "%s: matrix %lld of %lld %s", f->call, (long long)which, (long long)f->batch,
                mark ? "of a is not symmetric; set lower = 1 if only its lower triangle is meant"
                     : "contains a NaN or an infinity");
}

static optc_status check_results(optc_engine *e, const FunctionForm *f, FunctionEntry *x)
{
    int64_t which;
    int mark;
    optc_status s = clear_bad(e, f, x);
    for (int i = 0; i < f->nout && s == OPTC_OK; i++) {
        FunctionSlot own = {.label = "the result", .at = x->result[i], .rows = f->out[i].rows, .cols = f->out[i].cols,
                            .ld = f->out[i].cols, .next = f->out[i].rows * f->out[i].cols, .computed = true,
                            .wide = f->out[i].wide};
        s = function_copy(e, f, &own, COPY_LOOK | COPY_FINITE, x->result[i], x->bad);
    }
    if (s == OPTC_OK)
        s = read_bad(e, f, x, &which, &mark);
    return s == OPTC_OK && which >= 0
               ? fail(OPTC_ERROR_RANGE, "%s: there is no result for matrix %lld of %lld%s", f->call, (long long)which,
                      (long long)f->batch, f->why)
               : s;
}

static optc_status run_entry(optc_engine *e, const FunctionForm *f, FunctionEntry *x, bool capturing)
{
    optc_factors about = {0};
    optc_status s = follow_stream(e, f, x, capturing);
    if (s == OPTC_OK)
        s = set_numbers(f, x);
    if (s == OPTC_OK)
        s = copy_in(e, f, x);
    if (s == OPTC_OK && !f->unchecked)
        s = check_operands(e, f, x);
    if (s == OPTC_OK)
        s = optc_step(x->b);
    if (s == OPTC_OK && f->after)
        s = f->after(e, f, x);
    if (s == OPTC_OK && !f->unchecked)
        s = check_results(e, f, x);
    if (s == OPTC_OK && f->residual)
        s = optc_factors_about(x->b, 0, &about);
    if (s == OPTC_OK)
        s = function_store(e, f, f->out, x->result, f->nout);
    if (s == OPTC_OK && f->residual)
        *f->residual = about.residual;
    return s;
}

/* Loads the kernels for copies, and takes an entry. */
static optc_status take_inside(optc_engine *e, const FunctionForm *f, FunctionEntry **out, bool *capturing)
{
    CUstreamCaptureStatus status = 0;
    *capturing = false;
    if (e->gpu) {
        TRY(e->gpu, cuStreamIsCapturing((CUstream)f->stream, &status), f->call);
        if (status && (!f->unchecked || f->residual))
            return fail(OPTC_ERROR_ARGUMENT, "%s: checks and the residual wait for the device, which is not possible "
                                             "in a capture; set unchecked = 1 and residual = NULL",
                        f->call);
        MatrixKit *k;
        optc_status s = matrices_kit(e, f->call, &k);
        pthread_mutex_lock(&e->library->lock);
        if (s == OPTC_OK)
            s = matrices_load(e, f->stream, f->call, k->copy_module != NULL, copy_code);
        pthread_mutex_unlock(&e->library->lock);
        if (s != OPTC_OK)
            return s;
    }
    *capturing = status != 0;
    return function_take(e, f, *capturing, out);
}

static optc_status run_inside(optc_engine *e, const FunctionForm *f)
{
    FunctionEntry *x = NULL;
    bool capturing;
    optc_status s = take_inside(e, f, &x, &capturing);
    if (s != OPTC_OK)
        return s;
    s = run_entry(e, f, x, capturing);
    function_put(e, x, f->stream, capturing);
    return s;
}

optc_status function_run(optc_engine *e, const FunctionForm *f)
{
    optc_status s = e->gpu ? gpu_alive(e->gpu) : OPTC_OK;
    if (s != OPTC_OK || !e->gpu)
        return s == OPTC_OK ? run_inside(e, f) : s;
    gpu_enter_aside(e->gpu);
    return gpu_leave(e->gpu, run_inside(e, f));
}

static optc_status memory_inside(optc_engine *e, const FunctionForm *f, FunctionEntry **out, bool *capturing)
{
    optc_status s = take_inside(e, f, out, capturing);
    if (s == OPTC_OK)
        s = follow_stream(e, f, *out, *capturing);
    if (s != OPTC_OK && *out) {
        function_put(e, *out, f->stream, *capturing);
        *out = NULL;
    }
    return s;
}

optc_status function_memory(optc_engine *e, const FunctionForm *f, FunctionEntry **out, bool *capturing)
{
    optc_status s = e->gpu ? gpu_alive(e->gpu) : OPTC_OK;
    *out = NULL;
    *capturing = false;
    if (s != OPTC_OK || !e->gpu)
        return s == OPTC_OK ? memory_inside(e, f, out, capturing) : s;
    gpu_enter_aside(e->gpu);
    return gpu_leave(e->gpu, memory_inside(e, f, out, capturing));
}

static optc_status finite_inside(optc_engine *e, const FunctionForm *f, const FunctionSlot *s, FunctionEntry *x)
{
    int64_t which = -1;
    int mark;
    optc_status st = clear_bad(e, f, x);
    if (st == OPTC_OK)
        st = function_copy(e, f, s, COPY_LOOK | COPY_FINITE, s->at, x->bad);
    if (st == OPTC_OK)
        st = read_bad(e, f, x, &which, &mark);
    return st == OPTC_OK && which >= 0
               ? fail(OPTC_ERROR_RANGE, "%s: matrix %lld of %lld of %s contains a NaN or an infinity", f->call,
                      (long long)which, (long long)f->batch, s->label)
               : st;
}

optc_status function_finite(optc_engine *e, const FunctionForm *f, const FunctionSlot *s, FunctionEntry *x)
{
    if (!e->gpu)
        return finite_inside(e, f, s, x);
    gpu_enter_aside(e->gpu);
    return gpu_leave(e->gpu, finite_inside(e, f, s, x));
}

/* ---- checks of the caller's struct ---- */
static FunctionSlot slot(const char *name, const char *label, optc_matrix x, int64_t rows, int64_t cols, unsigned flags)
{
    return (FunctionSlot){name, label, x.data, rows, cols, x.ld, x.next, flags, false, false};
}

static Operand operand_of(const FunctionSlot *s)
{
    bool turned = s->flags & COPY_TRANSPOSED;
    return (Operand){s->at, turned ? s->cols : s->rows, turned ? s->rows : s->cols, s->ld, s->next, false};
}

static optc_status check_slot(optc_engine *e, const FunctionForm *f, FunctionSlot *s, bool result)
{
    int64_t size = type_info[f->type].bytes;
    Operand x = operand_of(s);
    optc_status st = operand_check(f->call, s->label, &x, f->batch, size, false);
    s->ld = x.ld, s->next = x.next;
    if (st == OPTC_OK && result && operand_folds(&x, f->batch))
        st = fail(OPTC_ERROR_ARGUMENT, "%s: the matrices of %s overlap; its next must be at least a whole matrix",
                  f->call, s->label);
    return st == OPTC_OK ? operand_here(e, f->call, s->label, &x, f->batch, size) : st;
}

/* A result may be an operand's memory if it is stored in the same way: all operands are read before it is written. */
static bool same_place(const FunctionSlot *a, const FunctionSlot *b)
{
    return a->at == b->at && a->rows == b->rows && a->cols == b->cols && a->ld == b->ld && a->next == b->next;
}

static optc_status check_aliases(const FunctionForm *f)
{
    int64_t size = type_info[f->type].bytes;
    for (int i = 0; i < f->nout; i++)
        for (int k = 0; k < f->nin + i && f->out[i].at; k++) {
            const FunctionSlot *other = k < f->nin ? &f->in[k] : &f->out[k - f->nin];
            Operand x = operand_of(&f->out[i]), y = operand_of(other);
            if (other->at && operands_meet(&x, &y, f->batch, size) &&
                !(k < f->nin && same_place(&f->out[i], other)))
                return fail(OPTC_ERROR_ARGUMENT, "%s: %s overlaps %s in memory; give it its own memory", f->call,
                            f->out[i].label, other->label);
        }
    return OPTC_OK;
}

static optc_status check_number(const char *call, const char *name, double x, double least)
{
    return isfinite(x) && x >= least ? OPTC_OK
                                     : fail(OPTC_ERROR_ARGUMENT, "%s: %s is %g; it must be a finite number%s", call,
                                            name, x, least == 0 ? " of at least 0" : "");
}

/* Reads what all functions share. */
static optc_status read_function(optc_engine *e, const char *call, const optc_function *from, size_t size,
                                 optc_function *x, FunctionForm *f)
{
    char sized[64];
    snprintf(sized, sizeof sized, "%s_sized", call);
    const StructVersion as = {sized, "optc_function", call, sizeof(optc_function)};
    memset(f, 0, sizeof *f);
    if (!e || !from)
        return fail(OPTC_ERROR_ARGUMENT, "%s: %s is NULL", call, !e ? "the engine" : "the function");
    optc_status s = struct_read(&as, x, from, size);
    if (s != OPTC_OK)
        return s;
    if (x->m < 0 || x->n < 0 || x->batch < 0)
        return fail(OPTC_ERROR_ARGUMENT, "%s: the sizes m = %lld, n = %lld, batch = %lld are not allowed", call,
                    (long long)x->m, (long long)x->n, (long long)x->batch);
    f->call = call;
    f->why = "";
    f->batch = x->batch ? x->batch : 1;
    f->unchecked = x->unchecked != 0;
    f->stream = x->stream, f->residual = x->residual, f->bytes = x->bytes;
    s = matrix_type(call, x->type, &f->type);
    f->compute = s == OPTC_OK ? type_info[f->type].compute : T_F32;
    return s;
}

void function_spec(FunctionForm *f, const char *declares, const char *body)
{
    snprintf(f->spec, sizeof f->spec,
             "return optimizer { name = \"%s\", view = \"last\", %s\n  matrix = function() %s end,\n"
             "  step = function() p = 0 end }", f->call + 5, declares, body);
}

static bool exceeds_memory(int64_t rows, int64_t cols, int64_t batch)
{
    int64_t all;
    return __builtin_mul_overflow(rows, cols, &all) || __builtin_mul_overflow(all, batch, &all) ||
           all > INT64_MAX / 1024 || rows > INT32_MAX || cols > INT32_MAX;
}

static optc_status check_and_run(optc_engine *e, FunctionForm *f)
{
    optc_status s = OPTC_OK;
    for (int i = 0; i < f->nin + f->nout; i++) {
        const FunctionSlot *x = i < f->nin ? &f->in[i] : &f->out[i - f->nin];
        if (exceeds_memory(x->rows, x->cols, f->batch))
            return fail(OPTC_ERROR_ARGUMENT, "%s: %lld matrices of %lld x %lld are larger than memory can be", f->call,
                        (long long)f->batch, (long long)x->rows, (long long)x->cols);
    }
    if (f->bytes) {
        *f->bytes = function_bytes(e, f);
        for (int i = 0; i < f->nout; i++)
            *f->bytes += f->batch * f->out[i].rows * f->out[i].cols * type_info[f->compute].bytes;
        return OPTC_OK;
    }
    for (int i = 0; i < f->nin && s == OPTC_OK; i++)
        s = check_slot(e, f, &f->in[i], false);
    for (int i = 0; i < f->nout && s == OPTC_OK; i++)
        if (f->out[i].at || i == 0)
            s = check_slot(e, f, &f->out[i], true);
    if (s == OPTC_OK)
        s = check_aliases(f);
    f->shape[0] = f->batch;
    bool nothing = !f->in[0].rows || !f->in[0].cols || !f->shape[1] || !f->shape[2];
    return s != OPTC_OK || nothing ? s : function_run(e, f);
}

static unsigned symmetric_flags(const optc_function *x)
{
    return COPY_FINITE | (x->lower ? COPY_LOWER : COPY_SYMMETRIC);
}

/* ---- functions of one square matrix ---- */
/* The exponent as the spec language accepts it: -1/3, but not -0.3333, is a third root. */
static void exponent_text(double x, char *buf, size_t n)
{
    for (int q = 1; q <= 64; q++) {
        double p = nearbyint(x * q);
        if (fabs(p) < 1e15 && p / q == x) {
            snprintf(buf, n, "%.0f/%d", p, q);
            return;
        }
    }
    snprintf(buf, n, "%.17g", x);
}

static void add_word(char *buf, size_t n, const char *fmt, const char *a, const char *b)
{
    size_t at = strlen(buf);
    if (at)
        at += (size_t)snprintf(buf + at, n - at, ", ");
    snprintf(buf + at, n - at, fmt, a, b);
}

/* Zeros are left out of the spec: only a floor needs eigenvectors. */
static optc_status power_spec(const optc_function *x, FunctionForm *f)
{
    const struct { const char *name, *hyper; double value; } lift[] = {
        {"ridge", "by_ridge", x->ridge}, {"relative", "by_relative", x->relative}, {"floor", "by_floor", x->floor}};
    char hyper[120] = "", options[160] = "", declares[240], body[320], exponent[40];
    optc_status s = check_number(f->call, "exponent", x->exponent, -INFINITY);
    if (s == OPTC_OK && x->exponent == 0)
        s = fail(OPTC_ERROR_ARGUMENT, "%s: exponent is 0, whose result is the identity; set another one", f->call);
    for (int i = 0; i < 3 && s == OPTC_OK; i++) {
        s = check_number(f->call, lift[i].name, lift[i].value, 0);
        if (s != OPTC_OK || lift[i].value == 0)
            continue;
        f->hyper[f->nhyper++] = (optc_setting){lift[i].hyper, lift[i].value};
        add_word(hyper, sizeof hyper, "%s = 0%s", lift[i].hyper, "");
        add_word(options, sizeof options, "%s = %s", lift[i].name, lift[i].hyper);
    }
    exponent_text(x->exponent, exponent, sizeof exponent);
    snprintf(declares, sizeof declares, "hyper = { %s }, inputs = { A = \"rows\" }, state = { X = zeros \"rows\" },",
             hyper);
    snprintf(body, sizeof body, "X = power(A, %s, { %s })", exponent, options);
    function_spec(f, declares, body);
    f->why = ": its eigenvalues are not positive where they have to be; ridge, relative or floor lifts them";
    return s;
}

static void square_slots(const optc_function *x, FunctionForm *f)
{
    f->shape[1] = x->n, f->shape[2] = 1;
    f->in[0] = slot("A", "a", x->a, x->n, x->n, symmetric_flags(x));
    f->out[0] = slot("X", "x", x->x, x->n, x->n, 0);
    f->nin = f->nout = 1;
}

/* The spec's eigenvalues are in descending order. */
static void eigen_slots(const optc_function *x, FunctionForm *f)
{
    square_slots(x, f);
    f->out[0] = slot("V", "x", x->x, x->n, x->n, COPY_REVERSED);
    f->out[1] = slot("w", "y", x->y, 1, x->n, COPY_REVERSED);
    f->nout = 2;
}

static optc_status cholesky_spec(const optc_function *x, FunctionForm *f)
{
    (void)x;
    function_spec(f, "inputs = { A = \"rows\" }, state = { X = zeros \"rows\" },", "X = chol(A)");
    f->why = ": it is not positive definite; add something to its diagonal";
    return OPTC_OK;
}

static optc_status eigen_spec(const optc_function *x, FunctionForm *f)
{
    (void)x;
    function_spec(f, "inputs = { A = \"rows\" }, state = { w = zeros \"row\", V = zeros \"rows\" },", "w, V = eigh(A)");
    return OPTC_OK;
}

static optc_status run_square(optc_engine *e, const char *call, const optc_function *from, size_t size,
                              optc_status (*spec)(const optc_function *, FunctionForm *),
                              void (*slots)(const optc_function *, FunctionForm *))
{
    optc_function x;
    FunctionForm f;
    optc_status s = read_function(e, call, from, size, &x, &f);
    if (s == OPTC_OK)
        s = spec(&x, &f);
    if (s != OPTC_OK)
        return s;
    slots(&x, &f);
    return check_and_run(e, &f);
}

optc_status optc_matrix_power_sized(optc_engine *e, const optc_function *from, size_t size)
{
    return run_square(e, "optc_matrix_power", from, size, power_spec, square_slots);
}

optc_status optc_cholesky_sized(optc_engine *e, const optc_function *from, size_t size)
{
    return run_square(e, "optc_cholesky", from, size, cholesky_spec, square_slots);
}

optc_status optc_eigh_sized(optc_engine *e, const optc_function *from, size_t size)
{
    return run_square(e, "optc_eigh", from, size, eigen_spec, eigen_slots);
}

/* ---- solutions and orthogonal factors: the parameter is the operand and the result ---- */
optc_status optc_solve_sized(optc_engine *e, const optc_function *from, size_t size)
{
    optc_function x;
    FunctionForm f;
    optc_status s = read_function(e, "optc_solve", from, size, &x, &f);
    if (s == OPTC_OK && x.positive && (x.upper || x.right))
        s = fail(OPTC_ERROR_ARGUMENT, "optc_solve: positive is set together with %s; only one of them is possible",
                 x.upper ? "upper" : "right");
    if (s != OPTC_OK)
        return s;
    bool right = x.right != 0;
    int64_t rows = right ? x.m : x.n, cols = right ? x.n : x.m;
    char body[120];
    snprintf(body, sizeof body, "p = solve(%s, p, { %s })", x.upper ? "T.T" : "T",
             right ? "right = true" : x.positive ? "spd = true" : "");
    function_spec(&f, right ? "inputs = { T = \"cols\" }," : "inputs = { T = \"rows\" },", body);
    f.shape[1] = rows, f.shape[2] = cols;
    f.in[0] = slot("T", "a", x.a, x.n, x.n,
                   x.positive ? symmetric_flags(&x) : COPY_FINITE | COPY_LOWER | (x.upper ? COPY_TRANSPOSED : 0));
    f.in[1] = slot("p", "b", x.b, rows, cols, COPY_FINITE);
    f.out[0] = slot("p", "x", x.x, rows, cols, 0);
    f.nin = 2, f.nout = 1;
    f.why = x.positive ? ": a is not positive definite; add something to its diagonal"
                       : ": a has a 0 on its diagonal, or the solution is not finite";
    return check_and_run(e, &f);
}

/* Appends the name of the coefficients, or the triples, as the spec language has them. */
static optc_status coefficients_text(const optc_function *x, char *buf, size_t n, size_t *at)
{
    enum { MOST_TRIPLES = 8 };                             /* of the spec language */
    const char *set = x->coefficients ? x->coefficients : "polar_express";
    if (strlen(set) > 40 || set[strspn(set, "abcdefghijklmnopqrstuvwxyz_0123456789")])
        return fail(OPTC_ERROR_ARGUMENT, "optc_polar: there are no coefficients '%.40s'; known are polar_express, "
                                         "jordan, cans and turbo", set);
    if (x->ntriples < 0 || x->ntriples > MOST_TRIPLES || (x->ntriples && !x->triples))
        return fail(OPTC_ERROR_ARGUMENT, "optc_polar: ntriples is %d%s; it must be 0 (named coefficients) to %d",
                    x->ntriples, x->triples ? "" : " and triples is NULL", MOST_TRIPLES);
    *at += (size_t)snprintf(buf + *at, n - *at, x->ntriples ? "{" : "\"%s\"", set);
    for (int i = 0; i < 3 * x->ntriples; i++) {
        optc_status s = check_number("optc_polar", "a coefficient", x->triples[i], -INFINITY);
        if (s != OPTC_OK)
            return s;
        *at += (size_t)snprintf(buf + *at, n - *at, i % 3 ? ", %.17g%s" : " { %.17g%s", x->triples[i],
                                i % 3 == 2 ? " }," : "");
    }
    *at += (size_t)snprintf(buf + *at, n - *at, x->ntriples ? " }" : "");
    return OPTC_OK;
}

optc_status optc_polar_sized(optc_engine *e, const optc_function *from, size_t size)
{
    optc_function x;
    FunctionForm f;
    char body[MOST_SPEC - 120];
    optc_status s = read_function(e, "optc_polar", from, size, &x, &f);
    if (s == OPTC_OK && (x.steps < 0 || x.steps > 30))
        s = fail(OPTC_ERROR_ARGUMENT, "optc_polar: steps is %d; it must be 0 (12 steps) to 30", x.steps);
    size_t at = 0;
    if (s == OPTC_OK)
        at = (size_t)snprintf(body, sizeof body, "p = polar(p, { steps = %d, coefficients = ",
                              x.steps ? x.steps : x.ntriples ? x.ntriples : 12);
    if (s == OPTC_OK)
        s = coefficients_text(&x, body, sizeof body, &at);
    if (s != OPTC_OK)
        return s;
    snprintf(body + at, sizeof body - at, " })");
    function_spec(&f, "", body);
    f.shape[1] = x.m, f.shape[2] = x.n;
    f.in[0] = slot("p", "a", x.a, x.m, x.n, COPY_FINITE);
    f.out[0] = slot("p", "x", x.x, x.m, x.n, 0);
    f.nin = f.nout = 1;
    return check_and_run(e, &f);
}

/* The spec has the leading columns of a, as many as the result has. y = x.T a, whose values below the diagonal are
 * rounding errors. */
static optc_status make_r(optc_engine *e, const FunctionForm *f, const FunctionEntry *x)
{
    const FunctionSlot *q = &f->out[0], *a = &f->in[f->nin - 1];
    optc_product p = {.a = x->result[0], .b = x->in[f->nin - 1], .c = x->result[1],
                      .type = (optc_type)(f->compute + 1), .m = q->cols, .n = a->cols, .k = q->rows, .batch = f->batch,
                      .turn_a = 1, .stream = f->stream};
    return optc_multiply(e, &p);
}

optc_status optc_qr_sized(optc_engine *e, const optc_function *from, size_t size)
{
    optc_function x;
    FunctionForm f;
    optc_status s = read_function(e, "optc_qr", from, size, &x, &f);
    if (s != OPTC_OK)
        return s;
    int64_t k = x.m < x.n ? x.m : x.n;
    function_spec(&f, "rank = 1048576, inputs = { A = \"rows rank\" }, state = { X = zeros \"rows rank\" },",
                  "X = qr(A)");
    f.shape[1] = x.m, f.shape[2] = k;
    f.in[0] = slot("A", "a", x.a, x.m, k, COPY_FINITE);
    f.in[0].ld = x.a.ld ? x.a.ld : x.n;                    /* the distances are those of all columns */
    if (!x.a.next && __builtin_mul_overflow(x.m, f.in[0].ld, &f.in[0].next))
        return fail(OPTC_ERROR_ARGUMENT, "optc_qr: a is larger than memory can be");
    f.in[1] = slot(NULL, "a", x.a, x.m, x.n, COPY_FINITE);
    f.nin = x.n > k && (x.y.data || x.bytes) ? 2 : 1;
    f.out[0] = slot("X", "x", x.x, x.m, k, 0);
    f.out[1] = slot(NULL, "y", x.y, k, x.n, COPY_UPPER);
    f.nout = x.y.data || x.bytes ? 2 : 1;
    f.after = f.nout == 2 ? make_r : NULL;
    return check_and_run(e, &f);
}
