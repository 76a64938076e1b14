/* Products without a rule: reads and checks the caller's struct, then calls the CPU's or the GPU's
 * implementation. */
#include "runtime/core/functions/multiply.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char multiply_call[] = "optc_multiply", kron_call[] = "optc_kron";
static const ProductNames multiply_names = {multiply_call, "a", "b", "d", "c"};
static const ProductNames kron_names = {kron_call, "a", "b", "d", "c"};

CORE char *operand_at(const Operand *x, int64_t nth, int64_t row, int64_t col, int64_t size)
{
    int64_t at = x->transposed ? col * x->ld + row : row * x->ld + col;
    return x->at + (nth * x->next + at) * size;
}

CORE optc_status too_little(const Multiply *x, int64_t least)
{
    return fail(OPTC_ERROR_ARGUMENT,
                "%s: the workspace is %lld bytes; this product needs at least %lld", x->call,
                (long long)x->limit, (long long)least);
}

/* ---- the engine's kit ---- */
CORE optc_status matrices_open(optc_engine *e)
{
    e->functions = (MatrixFunctions *)calloc(1, sizeof *e->functions);
    if (!e->functions)
        return no_memory("optc_open");
    pthread_mutex_init(&e->functions->lock, NULL);
    return OPTC_OK;
}

CORE optc_status matrices_kit(optc_engine *e, const char *call, MatrixKit **out)
{
    MatrixFunctions *m = e->functions;
    pthread_mutex_lock(&m->lock);
    optc_status s = OPTC_OK;
    MatrixKit *k = m->kit ? NULL : (MatrixKit *)calloc(1, sizeof *k);
    if (!m->kit && !k)
        s = no_memory(call);
    else if (k && !e->gpu)
        s = blas_open(&k->blas, call);
    if (k && s == OPTC_OK)
        m->kit = k;
    else
        free(k);
    *out = m->kit;
    pthread_mutex_unlock(&m->lock);
    return s;
}

CORE void matrices_close(optc_engine *e)
{
    MatrixKit *k = e->functions ? e->functions->kit : NULL;
    if (k && e->gpu) {
        gpu_enter(e->gpu);
        if (k->handle)
            spare_keep(e->gpu, k->handle, k->cublas.cublasDestroy_v2);
        for (int i = 0; i < NMATRIXKERNELS; i++)
            if (k->module[i])
                e->gpu->d->cuModuleUnload(k->module[i]);
        gpu_leave(e->gpu, OPTC_OK);
    }
    free(k);
    if (e->functions)
        pthread_mutex_destroy(&e->functions->lock);
    free(e->functions);
    e->functions = NULL;
}

CORE const char *matrix_kernel_name(MatrixKernels which, bool second)
{
    return second ? which == MATRIX_GRAM ? "blocks" : "" : which == MATRIX_COPY ? "copy"
           : which == MATRIX_GRAM                        ? "gram"
                                                         : "kron";
}

CORE CUfunction *matrix_kernel_at(MatrixKit *k, MatrixKernels which, bool second)
{
    return second                 ? k->blocks
           : which == MATRIX_COPY ? k->copy
           : which == MATRIX_GRAM ? k->gram
                                  : k->kron;
}

/* ---- memory ---- */
CORE optc_status matrices_take(optc_engine *e, const char *call, int64_t bytes, void *stream,
                               void **out)
{
    char why[MOST_MESSAGE];
    *out = NULL;
    optc_status s = e->device->take(e, (size_t)bytes, stream, out);
    if (s == OPTC_OK)
        return s;
    *out = NULL;
    snprintf(why, sizeof why, "%s", optc_message());
    return fail(s, "%s: temporary memory: %.1900s", call, why);
}

/* Nothing is freed in the order of a stream that is being captured; then the default stream's order
 * is used. */
CORE void matrices_give(optc_engine *e, void *memory, int64_t bytes, void *stream)
{
    if (memory && e->device->give(e, memory, (size_t)bytes, stream) != OPTC_OK && stream)
        (void)e->device->give(e, memory, (size_t)bytes, NULL);
}

/* ---- checks ---- */
/* Bytes from the first value of all matrices to the end of the last; -1: overflow. */
static int64_t extent(const Operand *x, int64_t batch, int64_t size)
{
    int64_t rows = x->transposed ? x->cols : x->rows, cols = x->transposed ? x->rows : x->cols, all,
            more;
    if (!rows || !cols || !batch)
        return 0;
    if (__builtin_mul_overflow(rows - 1, x->ld, &all) ||
        __builtin_mul_overflow(batch - 1, x->next, &more) ||
        __builtin_add_overflow(all, more, &all) || __builtin_add_overflow(all, cols, &all) ||
        __builtin_mul_overflow(all, size, &all))
        return -1;
    return all;
}

CORE optc_status operand_check(const char *call, const char *name, Operand *x, int64_t batch,
                               int64_t size, bool one)
{
    int64_t rows = x->transposed ? x->cols : x->rows, cols = x->transposed ? x->rows : x->cols;
    if (!x->at)
        return fail(OPTC_ERROR_ARGUMENT, "%s: %s is NULL", call, name);
    if ((uintptr_t)x->at % (size_t)size)
        return fail(OPTC_ERROR_ARGUMENT, "%s: %s is not aligned to its type", call, name);
    x->ld = x->ld ? x->ld : cols;
    if (x->ld < cols)
        return fail(OPTC_ERROR_ARGUMENT,
                    "%s: rows of %s have %lld values, but its leading dimension is %lld", call,
                    name, (long long)cols, (long long)x->ld);
    if (x->next < (one ? (int64_t)OPTC_ONE : 0))
        return fail(OPTC_ERROR_ARGUMENT,
                    "%s: the distance between matrices of %s is %lld values; it must be 0 or "
                    "more%s",
                    call, name, (long long)x->next, one ? ", or OPTC_ONE" : "");
    if (!x->next && __builtin_mul_overflow(rows, x->ld, &x->next))
        return fail(OPTC_ERROR_ARGUMENT, "%s: %s is larger than memory can be", call, name);
    x->next = x->next == OPTC_ONE ? 0 : x->next;
    return extent(x, batch, size) < 0
               ? fail(OPTC_ERROR_ARGUMENT, "%s: %s is larger than memory can be", call, name)
               : OPTC_OK;
}

CORE bool operands_meet(const Operand *x, const Operand *y, int64_t batch, int64_t size)
{
    uintptr_t a = (uintptr_t)x->at, b = (uintptr_t)y->at;
    return a < b + (uintptr_t)extent(y, batch, size) && b < a + (uintptr_t)extent(x, batch, size);
}

CORE bool operand_folds(const Operand *c, int64_t batch)
{
    return batch > 1 && c->rows && c->cols && c->next < (c->rows - 1) * c->ld + c->cols;
}

CORE optc_status operand_here(optc_engine *e, const char *call, const char *name, const Operand *x,
                              int64_t batch, int64_t size)
{
    bool here = true;
    optc_status s =
        e->gpu && extent(x, batch, size) ? gpu_owns_pointer(e->gpu, x->at, call, &here) : OPTC_OK;
    return s == OPTC_OK && !here
               ? fail(OPTC_ERROR_ARGUMENT, "%s: %s is not in the memory of %s", call, name, e->name)
               : s;
}

static optc_status check_memory(optc_engine *e, const ProductNames *n, const Multiply *m)
{
    const struct { const char *name; const Operand *x; } all[] = {
        {n->a, &m->a}, {n->b, &m->b}, {n->d, &m->d}, {n->c, &m->c}};
    for (int i = 0; i < 4; i++) {
        if ((all[i].x == &m->b && m->gram) || (all[i].x == &m->d && !m->chain))
            continue;
        if (i < 3 && operands_meet(all[i].x, &m->c, m->batch, m->size))
            return fail(OPTC_ERROR_ARGUMENT, "%s: %s overlaps %s in memory; give %s its own memory",
                        n->call, n->c, all[i].name, n->c);
        optc_status s = operand_here(e, n->call, all[i].name, all[i].x, m->batch, m->size);
        if (s != OPTC_OK)
            return s;
    }
    return OPTC_OK;
}

CORE optc_status matrix_type(const char *call, optc_type t, Type *out)
{
    int type = t ? (int)t - 1 : (int)T_F32;
    if (type < 0 || type >= NTYPES)
        return fail(OPTC_ERROR_ARGUMENT, "%s: there is no type %d", call, (int)t);
    if (!number_type[type].number)
        return fail(OPTC_ERROR_ARGUMENT, "%s: matrices cannot be stored as %s", call,
                    number_type[type].name);
    *out = (Type)type;
    return OPTC_OK;
}

/* ---- products ---- */
static optc_status read_product(optc_engine *e, const optc_product *p, const ProductNames *names,
                                Multiply *m)
{
    const char *call = names->call;
    Type type = T_F32;
    int64_t n = p->b ? p->n : p->m;
    optc_status s = matrix_type(call, p->type, &type);
    if (s != OPTC_OK)
        return s;
    if (p->m < 0 || n < 0 || p->k < 1 || p->batch < 0 || (p->d && (p->p < 0 || n < 1)))
        return fail(OPTC_ERROR_ARGUMENT,
                    "%s: the sizes m = %lld, n = %lld, k = %lld, batch = %lld are not "
                    "allowed",
                    call, (long long)p->m, (long long)n, (long long)p->k, (long long)p->batch);
    bool tf32 = p->products && !strcmp(p->products, "tf32");
    if ((p->products && !tf32) || (tf32 && type != T_F32))
        return fail(OPTC_ERROR_ARGUMENT,
                    "%s: products = '%.40s' is not possible for %s; only \"tf32\" with f32 "
                    "is",
                    call, p->products, number_type[type].name);
    if (!isfinite(p->scale) || !isfinite(p->add))
        return fail(OPTC_ERROR_ARGUMENT, "%s: %s is %g; it must be a finite number", call,
                    isfinite(p->scale) ? "add" : "scale", isfinite(p->scale) ? p->add : p->scale);
    if (p->workspace < 0)
        return fail(OPTC_ERROR_ARGUMENT, "%s: workspace is %lld bytes; it must be 0 or more", call,
                    (long long)p->workspace);
    if (p->d && !p->b)
        return fail(OPTC_ERROR_ARGUMENT,
                    "%s: d is set and b is NULL; a Gram matrix cannot be multiplied by a third "
                    "matrix",
                    call);
    m->call = call;
    m->type = type;
    m->product = product_of_type(tf32 ? PRODUCT_TF32 : PRODUCT_F32, (int)type);
    m->size = number_type[type].bytes;
    m->batch = p->batch ? p->batch : 1;
    m->limit = p->workspace ? p->workspace : e->workspace;
    m->gram = !p->b;
    m->chain = p->d != NULL;
    m->scale = p->scale != 0 ? p->scale : 1;
    m->add = p->add;
    m->stream = p->stream;
    m->a = operand_of(p->a, p->m, p->k, p->lda, p->next_a, p->turn_a != 0);
    m->b = operand_of(p->b, p->k, n, p->ldb, p->next_b, p->turn_b != 0);
    m->d = operand_of(p->d, n, p->p, p->ldd, p->next_d, p->turn_d != 0);
    m->c = operand_of(p->c, p->m, p->d ? p->p : n, p->ldc, p->next_c, false);
    s = operand_check(call, names->a, &m->a, m->batch, m->size, true);
    if (s == OPTC_OK && m->gram) {
        m->b = m->a;
        m->b.transposed = !m->a.transposed;
        m->b.rows = p->k, m->b.cols = p->m;
    } else if (s == OPTC_OK) {
        s = operand_check(call, names->b, &m->b, m->batch, m->size, true);
    }
    if (s == OPTC_OK && m->chain)
        s = operand_check(call, names->d, &m->d, m->batch, m->size, true);
    if (s == OPTC_OK)
        s = operand_check(call, names->c, &m->c, m->batch, m->size, false);
    if (s == OPTC_OK && operand_folds(&m->c, m->batch))
        s = fail(OPTC_ERROR_ARGUMENT,
                 "%s: the matrices of %s overlap; next_c must be at least a whole matrix", call,
                 names->c);
    return s == OPTC_OK ? check_memory(e, names, m) : s;
}

/* Consecutive matrices that are multiplied by the same b (and d) become one tall matrix. */
static void fold_batch(Multiply *m)
{
    if (m->batch < 2 || m->gram || m->a.transposed || m->b.next || (m->chain && m->d.next) ||
        m->a.next != m->a.rows * m->a.ld || m->c.next != m->c.rows * m->c.ld)
        return;
    m->a.rows = m->c.rows = m->a.rows * m->batch;
    m->batch = 1;
}

CORE optc_status multiply_named(optc_engine *e, const optc_product *x, const ProductNames *names)
{
    Multiply m;
    MatrixKit *k = NULL;
    memset(&m, 0, sizeof m);
    optc_status s = read_product(e, x, names, &m);
    if (s != OPTC_OK || !m.c.rows || !m.c.cols)
        return s;
    fold_batch(&m);
    s = matrices_kit(e, names->call, &k);
    if (s != OPTC_OK)
        return s;
    return e->gpu ? multiply_gpu(e, k, &m) : multiply_cpu(e, &k->blas, &m);
}

optc_status optc_multiply_sized(optc_engine *e, const optc_product *x, size_t size)
{
    const StructVersion as =
        STRUCT_VERSION("optc_multiply_sized", optc_product, multiply_call, stream);
    optc_product all;
    if (!e || !x)
        return fail(OPTC_ERROR_ARGUMENT, "%s: %s is NULL", multiply_call,
                    !e ? "the engine" : "the product");
    optc_status s = struct_read(&as, &all, x, size);
    return s == OPTC_OK ? multiply_named(e, &all, &multiply_names) : s;
}

/* (a (x) b) x = a x b.T for x and the result as matrices: a chain of two products. */
optc_status optc_kron_apply_sized(optc_engine *e, const optc_kron_vector *from, size_t size)
{
    static const ProductNames names = {"optc_kron_apply", "a", "x", "b", "y"};
    const StructVersion as =
        STRUCT_VERSION("optc_kron_apply_sized", optc_kron_vector, names.call, stream);
    optc_kron_vector x;
    if (!e || !from)
        return fail(OPTC_ERROR_ARGUMENT, "%s: %s is NULL", names.call,
                    !e ? "the engine" : "the product");
    optc_status s = struct_read(&as, &x, from, size);
    if (s != OPTC_OK)
        return s;
    if (!x.b || !x.x)
        return fail(OPTC_ERROR_ARGUMENT, "%s: %s is NULL", names.call, !x.b ? "b" : "x");
    if (x.m < 0 || x.p < 0 || x.n < 1 || x.q < 1 || x.batch < 0)
        return fail(OPTC_ERROR_ARGUMENT,
                    "%s: the sizes m = %lld, n = %lld, p = %lld, q = %lld, batch = %lld are not "
                    "allowed",
                    names.call, (long long)x.m, (long long)x.n, (long long)x.p, (long long)x.q,
                    (long long)x.batch);
    optc_product p;
    memset(&p, 0, sizeof p);
    p.a = x.a, p.b = x.x, p.d = x.b, p.c = x.y, p.type = x.type;
    p.m = x.m, p.n = x.q, p.k = x.n, p.p = x.p, p.batch = x.batch;
    p.turn_d = 1, p.next_a = x.next_a, p.next_d = x.next_b;
    p.scale = x.scale, p.add = x.add, p.workspace = x.workspace, p.stream = x.stream;
    return multiply_named(e, &p, &names);
}

/* ---- Kronecker products ---- */
static optc_status read_kron(optc_engine *e, optc_kronecker *x, Multiply *m)
{
    Type type = T_F32;
    int64_t rows, cols;
    optc_status s = matrix_type(kron_call, x->type, &type);
    if (s != OPTC_OK)
        return s;
    if (x->m < 0 || x->n < 0 || x->p < 0 || x->q < 0 || x->batch < 0 ||
        __builtin_mul_overflow(x->m, x->p, &rows) || __builtin_mul_overflow(x->n, x->q, &cols))
        return fail(OPTC_ERROR_ARGUMENT,
                    "%s: %lld x %lld and %lld x %lld, batch = %lld; a size is negative, or the "
                    "result too large",
                    kron_call, (long long)x->m, (long long)x->n, (long long)x->p, (long long)x->q,
                    (long long)x->batch);
    x->batch = x->batch ? x->batch : 1;
    m->type = type;
    m->size = number_type[type].bytes;
    m->batch = x->batch;
    m->a = operand_of(x->a, x->m, x->n, 0, x->next_a, false);
    m->b = operand_of(x->b, x->p, x->q, 0, x->next_b, false);
    m->c = operand_of(x->c, rows, cols, 0, 0, false);
    if (!rows || !cols)
        return OPTC_OK;
    s = operand_check(kron_call, "a", &m->a, m->batch, m->size, true);
    if (s == OPTC_OK)
        s = operand_check(kron_call, "b", &m->b, m->batch, m->size, true);
    if (s == OPTC_OK)
        s = operand_check(kron_call, "c", &m->c, m->batch, m->size, false);
    x->next_a = m->a.next, x->next_b = m->b.next;
    return s == OPTC_OK ? check_memory(e, &kron_names, m) : s;
}

optc_status optc_kron_sized(optc_engine *e, const optc_kronecker *x, size_t size)
{
    const StructVersion as = STRUCT_VERSION("optc_kron_sized", optc_kronecker, kron_call, stream);
    optc_kronecker all;
    Multiply m;
    MatrixKit *k = NULL;
    if (!e || !x)
        return fail(OPTC_ERROR_ARGUMENT, "%s: %s is NULL", kron_call,
                    !e ? "the engine" : "the product");
    memset(&m, 0, sizeof m);
    optc_status s = struct_read(&as, &all, x, size);
    if (s == OPTC_OK)
        s = read_kron(e, &all, &m);
    if (s != OPTC_OK || !m.c.rows || !m.c.cols)
        return s;
    if (!e->gpu) {
        kron_cpu(e, &all, m.type);
        return OPTC_OK;
    }
    s = matrices_kit(e, kron_call, &k);
    return s == OPTC_OK ? kron_gpu(e, k, &all, m.type) : s;
}
