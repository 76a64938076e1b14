/* Products without a rule: reads and checks the caller's struct, then calls the CPU's or the GPU's
 * implementation. */
#include "runtime/core/functions/multiply.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

CORE char *operand_at(const MatrixBatch *x, int64_t nth, int64_t row, int64_t col)
{
    int64_t at = x->transposed ? col * x->ld + row : row * x->ld + col;
    return x->at + (nth * x->next + at) * number_type[x->type].bytes;
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

CORE optc_status matrices_find(optc_engine *e, MatrixKit *k, MatrixKernel which, CUmodule module)
{
    for (int i = 0; i < NMATRIXKERNEL; i++)
        for (int t = 0; t < NTYPES; t++) {
            char name[64];
            if (!number_type[t].number || (i == MATRIX_BLOCKS ? MATRIX_GRAM : i) != (int)which)
                continue;
            snprintf(name, sizeof name, "optc_%s_of_%s", matrix_kernel_name[i],
                     number_type[t].name);
            TRY(e->gpu, cuModuleGetFunction(&k->kernel[i][t], module, name), name);
        }
    return OPTC_OK;
}

CORE void matrices_close(optc_engine *e)
{
    if (e->functions && e->gpu) {
        MatrixKit *k = &e->functions->kit;
        gpu_enter(e->gpu);
        if (k->handle)
            spare_keep(e->gpu, k->handle, k->cublas.cublasDestroy_v2);
        for (int i = 0; i < NMATRIXKERNEL; i++)
            if (k->module[i])
                e->gpu->d->cuModuleUnload(k->module[i]);
        gpu_leave(e->gpu, OPTC_OK);
    }
    if (e->functions)
        pthread_mutex_destroy(&e->functions->lock);
    free(e->functions);
    e->functions = NULL;
}

CORE optc_status matrix_enter(optc_engine *e)
{
    optc_status s = e->gpu ? gpu_alive(e->gpu) : OPTC_OK;
    if (e->gpu && s == OPTC_OK)
        gpu_enter(e->gpu);
    return s;
}

CORE optc_status matrix_leave(optc_engine *e, optc_status s)
{
    return e->gpu ? gpu_leave(e->gpu, s) : s;
}

/* ---- memory ---- */
CORE optc_status matrices_take(optc_engine *e, const char *call, int64_t bytes, void *stream,
                               void **out)
{
    char why[MOST_MESSAGE];
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
CORE optc_status matrix_read(optc_engine *e, const StructVersion *as, const char *what, void *to,
                             const void *from, size_t size)
{
    return e && from ? struct_read(as, to, from, size)
                     : fail(OPTC_ERROR_ARGUMENT, "%s: %s is NULL", as->usual,
                            !e ? "the engine" : what);
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

/* Bytes from the first value of all matrices to the end of the last; -1: overflow. */
static int64_t extent(const MatrixBatch *x, int64_t batch)
{
    int64_t rows = x->transposed ? x->cols : x->rows, cols = x->transposed ? x->rows : x->cols, all,
            more;
    if (!rows || !cols || !batch)
        return 0;
    if (__builtin_mul_overflow(rows - 1, x->ld, &all) ||
        __builtin_mul_overflow(batch - 1, x->next, &more) ||
        __builtin_add_overflow(all, more, &all) || __builtin_add_overflow(all, cols, &all) ||
        __builtin_mul_overflow(all, number_type[x->type].bytes, &all))
        return -1;
    return all;
}

static optc_status operand_check(const char *call, MatrixBatch *x, int64_t batch)
{
    int64_t rows = x->transposed ? x->cols : x->rows, cols = x->transposed ? x->rows : x->cols;
    if (!x->at)
        return fail(OPTC_ERROR_ARGUMENT, "%s: %s is NULL", call, x->label);
    if ((uintptr_t)x->at % (size_t)number_type[x->type].bytes)
        return fail(OPTC_ERROR_ARGUMENT, "%s: %s is not aligned to its type", call, x->label);
    x->ld = x->ld ? x->ld : cols;
    if (x->ld < cols)
        return fail(OPTC_ERROR_ARGUMENT,
                    "%s: rows of %s have %lld values, but its leading dimension is %lld", call,
                    x->label, (long long)cols, (long long)x->ld);
    if (x->next < (x->shared ? (int64_t)OPTC_ONE : 0))
        return fail(OPTC_ERROR_ARGUMENT,
                    "%s: the distance between matrices of %s is %lld values; it must be 0 or "
                    "more%s",
                    call, x->label, (long long)x->next, x->shared ? ", or OPTC_ONE" : "");
    bool large = !x->next && __builtin_mul_overflow(rows, x->ld, &x->next);
    x->next = x->next == OPTC_ONE ? 0 : x->next;
    if (large || extent(x, batch) < 0)
        return fail(OPTC_ERROR_ARGUMENT, "%s: %s is larger than memory can be", call, x->label);
    return x->result && batch > 1 && extent(x, 1) && x->next < (x->rows - 1) * x->ld + x->cols
               ? fail(OPTC_ERROR_ARGUMENT,
                      "%s: the matrices of %s overlap; its next must be at least a whole matrix",
                      call, x->label)
               : OPTC_OK;
}

static bool operands_meet(const MatrixBatch *x, const MatrixBatch *y, int64_t batch)
{
    uintptr_t a = (uintptr_t)x->at, b = (uintptr_t)y->at;
    return a < b + (uintptr_t)extent(y, batch) && b < a + (uintptr_t)extent(x, batch);
}

static bool same_place(const MatrixBatch *a, const MatrixBatch *b)
{
    return a->at == b->at && a->rows == b->rows && a->cols == b->cols && a->ld == b->ld &&
           a->next == b->next && !a->result;
}

CORE optc_status operands_check(optc_engine *e, const char *call, MatrixBatch *const *x, int n,
                                int64_t batch, bool in_place)
{
    optc_status s = OPTC_OK;
    for (int i = 0; i < n && s == OPTC_OK; i++) {
        bool here = true;
        s = operand_check(call, x[i], batch);
        for (int k = 0; k < i && x[i]->result && s == OPTC_OK; k++)
            if (operands_meet(x[i], x[k], batch) && !(in_place && same_place(x[k], x[i])))
                s = fail(OPTC_ERROR_ARGUMENT,
                         "%s: %s overlaps %s in memory; give it its own memory", call, x[i]->label,
                         x[k]->label);
        if (s == OPTC_OK && e->gpu && extent(x[i], batch))
            s = gpu_owns_pointer(e->gpu, x[i]->at, call, &here);
        if (!here)
            s = fail(OPTC_ERROR_ARGUMENT, "%s: %s is not in the memory of %s", call, x[i]->label,
                     e->name);
    }
    return s;
}

/* ---- products ---- */
static optc_status check_product(const optc_product *p, const char *call, Type type, int64_t n)
{
    const bool tf32 = p->products && !strcmp(p->products, "tf32");
    if (p->m < 0 || n < 0 || p->k < 1 || p->batch < 0 || (p->d && (p->p < 0 || n < 1)))
        return fail(OPTC_ERROR_ARGUMENT,
                    "%s: the sizes m = %lld, n = %lld, k = %lld, batch = %lld are not "
                    "allowed",
                    call, (long long)p->m, (long long)n, (long long)p->k, (long long)p->batch);
    if (p->products && (!tf32 || type != T_F32))
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
    return p->d && !p->b
               ? fail(OPTC_ERROR_ARGUMENT,
                      "%s: d is set and b is NULL; a Gram matrix cannot be multiplied by a third "
                      "matrix",
                      call)
               : OPTC_OK;
}

static optc_status read_product(optc_engine *e, const optc_product *p, const ProductNames *names,
                                Multiply *m)
{
    MatrixBatch *all[4] = {&m->a};
    int used = 1;
    int64_t n = p->b ? p->n : p->m;
    Type t = T_F32;
    optc_status s = matrix_type(names->call, p->type, &t);
    if (s == OPTC_OK)
        s = check_product(p, names->call, t, n);
    if (s != OPTC_OK)
        return s;
    m->call = names->call, m->type = t, m->stream = p->stream;
    m->product = product_of_type(p->products ? PRODUCT_TF32 : PRODUCT_F32, (int)t);
    m->batch = p->batch ? p->batch : 1;
    m->limit = p->workspace ? p->workspace : e->workspace;
    m->gram = !p->b, m->chain = p->d != NULL;
    m->scale = p->scale != 0 ? p->scale : 1, m->add = p->add;
    m->a = operand_of(names->a, p->a, t, p->m, p->k, p->lda, p->next_a);
    m->b = operand_of(names->b, p->b, t, p->k, n, p->ldb, p->next_b);
    m->d = operand_of(names->d, p->d, t, n, p->p, p->ldd, p->next_d);
    m->c = operand_of(names->c, p->c, t, p->m, p->d ? p->p : n, p->ldc, p->next_c);
    m->a.transposed = p->turn_a != 0, m->b.transposed = p->turn_b != 0,
    m->d.transposed = p->turn_d != 0;
    m->a.shared = m->b.shared = m->d.shared = m->c.result = true;
    if (!m->gram)
        all[used++] = &m->b;
    if (m->chain)
        all[used++] = &m->d;
    all[used++] = &m->c;
    s = operands_check(e, names->call, all, used, m->batch, false);
    if (m->gram) {
        m->b = m->a;
        m->b.transposed = !m->a.transposed;
        m->b.rows = p->k, m->b.cols = p->m;
    }
    return s;
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
    memset(&m, 0, sizeof m);
    optc_status s = read_product(e, x, names, &m);
    if (s != OPTC_OK || !m.c.rows || !m.c.cols)
        return s;
    fold_batch(&m);
    s = matrix_enter(e);
    return s == OPTC_OK ? matrix_leave(e, (e->gpu ? multiply_gpu : multiply_cpu)(e, &m)) : s;
}

optc_status optc_multiply_sized(optc_engine *e, const optc_product *x, size_t size)
{
    static const ProductNames names = {"optc_multiply", "a", "b", "d", "c"};
    const StructVersion as =
        STRUCT_VERSION("optc_multiply_sized", optc_product, names.call, stream);
    optc_product all;
    optc_status s = matrix_read(e, &as, "the product", &all, x, size);
    return s == OPTC_OK ? multiply_named(e, &all, &names) : s;
}

/* (a (x) b) x = a x b.T for x and the result as matrices: a chain of two products. */
optc_status optc_kron_apply_sized(optc_engine *e, const optc_kron_vector *from, size_t size)
{
    static const ProductNames names = {"optc_kron_apply", "a", "x", "b", "y"};
    const StructVersion as =
        STRUCT_VERSION("optc_kron_apply_sized", optc_kron_vector, names.call, stream);
    optc_kron_vector x;
    optc_status s = matrix_read(e, &as, "the product", &x, from, size);
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
static optc_status read_kron(optc_engine *e, const optc_kronecker *x, const char *call, Multiply *m)
{
    MatrixBatch *all[] = {&m->a, &m->b, &m->c};
    Type t = T_F32;
    int64_t rows = 0, cols = 0;
    optc_status s = matrix_type(call, x->type, &t);
    if (s != OPTC_OK)
        return s;
    if (x->m < 0 || x->n < 0 || x->p < 0 || x->q < 0 || x->batch < 0 ||
        __builtin_mul_overflow(x->m, x->p, &rows) || __builtin_mul_overflow(x->n, x->q, &cols))
        return fail(OPTC_ERROR_ARGUMENT,
                    "%s: %lld x %lld and %lld x %lld, batch = %lld; a size is negative, or the "
                    "result too large",
                    call, (long long)x->m, (long long)x->n, (long long)x->p, (long long)x->q,
                    (long long)x->batch);
    m->call = call, m->type = t, m->stream = x->stream;
    m->batch = x->batch ? x->batch : 1;
    m->a = operand_of("a", x->a, t, x->m, x->n, 0, x->next_a);
    m->b = operand_of("b", x->b, t, x->p, x->q, 0, x->next_b);
    m->c = operand_of("c", x->c, t, rows, cols, 0, 0);
    m->a.shared = m->b.shared = m->c.result = true;
    return rows && cols ? operands_check(e, call, all, 3, m->batch, false) : OPTC_OK;
}

optc_status optc_kron_sized(optc_engine *e, const optc_kronecker *from, size_t size)
{
    static const char call[] = "optc_kron";
    const StructVersion as = STRUCT_VERSION("optc_kron_sized", optc_kronecker, call, stream);
    optc_kronecker x;
    Multiply m;
    memset(&m, 0, sizeof m);
    optc_status s = matrix_read(e, &as, "the product", &x, from, size);
    if (s == OPTC_OK)
        s = read_kron(e, &x, call, &m);
    if (s != OPTC_OK || !m.c.rows || !m.c.cols)
        return s;
    s = matrix_enter(e);
    return s == OPTC_OK ? matrix_leave(e, (e->gpu ? kron_gpu : kron_cpu)(e, &m)) : s;
}
