/* Products on a GPU of which one triangle is computed, products with a triangle, and sums that are
 * computed in parts, against plain loops in f64. */
#include "tests/gpu/gpu_product_program.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Gram matrices of rows, of a transposed array with an addend, and with an addend and a diagonal,
 * and the addend times another matrix, whose upper half differs from the mirrored one, over n
 * tensors. The third needs no copy of its addend where cuBLASLt computes it. hopper: the least rows
 * of matrices that gpu_symmetric.c computes, 0: none. Returns how many pointers the largest set has
 * for a matrix. */
static int64_t check_triangles(int kind, const int64_t (*large)[3], int n, int64_t workspace,
                               int hopper)
{
    Bound x;
    int64_t most = 0;
    open_rule(&x, T_F32, workspace);
    x.e->gpu->symmetric_rows = hopper;
    if (hopper && getenv("OPTC_TEST_SMALL"))
        /* two clusters for three pairs of tiles, or one */
        x.e->gpu->sms = kind % 2 ? 5 : 3;
    int e = add_array(&x.m, MEM_STATE, ELEM, kinds[kind].type, "e"),
        r = add_array(&x.m, MEM_STATE, ROWS2, kinds[kind].type, "r");
    int t = add_array(&x.m, MEM_STATE, ELEM_T, kinds[kind].type, "t"),
        q = add_array(&x.m, MEM_STATE, ROWS2, kinds[kind].type, "q");
    add_mm(&x.m, e, e, r, TRANS_B | SYMMETRIC, 1, 0);
    x.m.call[0].diagonal = -500;                           /* beyond the bounds of long sums */
    add_mm(&x.m, t, t, q, TRANS_A | SYMMETRIC, 2, -1);
    add_polynomial(&x.m, e, kinds[kind].type);
    int s = x.m.call[2].c;
    int u = add_array(&x.m, MEM_STATE, ROWS2, kinds[kind].type, "u");
    add_mm(&x.m, s, u, add_array(&x.m, MEM_STATE, ROWS2, kinds[kind].type, "w"), SYMMETRIC, 0.25,
           0);
    end_program(&x.m, kinds[kind].product);
    bind_program(&x, large, n, 4);
    ck_assert_int_eq(x.b->gpu->calls->ntask,
                     hopper && x.e->gpu->arch == 90 ? x.b->gpu->calls->nstep : 0);
    bool lt = kind >= 2 || large[0][1] <= 16;              /* gpu_products.c */
    for (int i = 0; i < x.b->gpu->calls->nstep; i++) {
        const CallStep *s = &x.b->gpu->calls->step[i];
        ck_assert_msg(s->kind != STEP_PRODUCT || s->d < 0 || s->algorithm.known == lt, "step %d",
                      i);
    }
    fill_forms(&x, n);
    for (int k = 0; k < n; k++) {                  /* the addend must be symmetric */
        int64_t rows = large[k][1], all = large[k][0] * rows * rows;
        double *v = malloc(sizeof *v * (size_t)all);
        for (int64_t at = 0; at < all; at++) {
            int64_t i = at / rows % rows, j = at % rows;
            v[at] = ref_value(k, 9, i < j ? i * rows + j : j * rows + i);
        }
        OK(optc_state_write(x.b, k, "q", v, all));
        OK(optc_state_write(x.b, k, "s", v, all));
        free(v);
    }
    /* an emulated GPU does things in another order each time */
    for (int s = 0; s < (hopper ? 5 : n); s++)
        step_forms(&x, kind, n, "triangle");
    for (int i = 0; i < x.b->gpu->calls->nset; i++)
        most = x.b->gpu->calls->set[i].each > most ? x.b->gpu->calls->set[i].each : most;
    close_program(&x);
    return most;
}

/* Symmetric products that are large enough for several blocks, with rows left over. */
START_TEST(triangles)
{
    SHARED();
    static const int64_t all[3][3] = {{1, 600, 5}, {1, 600, 5}, {1, 256, 3}},
                         few[1][3] = {{1, 300, 2}}, two[1][3] = {{1, 520, 2}};
    /* mirroring takes long on the emulated GPU */
    bool small = getenv("OPTC_TEST_SMALL") != NULL;
    check_triangles(_i, !small ? all : _i ? two : few, small ? 1 : 3, 1 << 20, 0);
}
END_TEST

/* The kernel for Hopper, with tiles on, below and beside the diagonal, and rows and terms left
 * over. Steps are graphs from the second on. */
START_TEST(hopper_halves)
{
    SHARED();
    static const int64_t small[2][3] = {{1, 264, 136}, {2, 8, 8}},
        /* 294 tiles: more than multiprocessors */
        all[3][3] = {{48, 392, 72}, {1, 392, 72}, {1, 1032, 200}};
    bool few = getenv("OPTC_TEST_SMALL") != NULL;
    check_triangles(3 + _i, few ? small : all, few ? 2 : 3, 1 << 20, 8);
}
END_TEST

/* The message of a launch of the kernel for Hopper that fails names the driver's function. */
static int no_attribute(CUfunction f, CUfunction_attribute a, int x)
{
    return (void)f, (void)a, (void)x, 1;
}
static int no_launch(CUfunction f, unsigned x, unsigned y, unsigned z, unsigned bx, unsigned by,
                     unsigned bz, unsigned shared, CUstream s, void **args, void **extra)
{
    return shared ? 1 : d->cuLaunchKernel(f, x, y, z, bx, by, bz, shared, s, args, extra);
}

START_TEST(a_half_fails)
{
    SHARED();
    static const int64_t shape[1][3] = {{1, 264, 8}};
    Driver mine = *d;
    Bound x;
    open_rule(&x, T_F32, 1 << 20);
    const Driver *own = x.e->gpu->d;
    x.e->gpu->symmetric_rows = 8;
    int e = add_array(&x.m, MEM_STATE, ELEM, T_BF16, "e");
    add_mm(&x.m, e, e, add_array(&x.m, MEM_STATE, ROWS2, T_BF16, "r"), TRANS_B | SYMMETRIC, 1, 0);
    end_program(&x.m, PRODUCT_BF16);
    bind_program(&x, shape, 1, 4);
    if (_i)
        mine.cuLaunchKernel = no_launch;
    else
        mine.cuFuncSetAttribute = no_attribute;
    x.e->gpu->no_graphs = true;
    x.e->gpu->d = &mine;
    if (x.b->gpu->calls->ntask)
        FAILS(optc_step(x.b), OPTC_ERROR_DEVICE,
              _i ? "cuLaunchKernel: CUDA_ERROR" : "cuFuncSetAttribute: CUDA_ERROR");
    x.e->gpu->d = own;
    close_program(&x);
}
END_TEST

/* A slice of a GPU with one multiprocessor has no room for a cluster. */
START_TEST(no_room_for_clusters)
{
    SHARED();
    static const int64_t shape[1][3] = {{1, 1024, 8}};
    Bound x;
    open_rule(&x, T_F32, 1 << 20);
    x.e->gpu->sms = 1;
    int e = add_array(&x.m, MEM_STATE, ELEM, T_BF16, "e");
    add_mm(&x.m, e, e, add_array(&x.m, MEM_STATE, ROWS2, T_BF16, "r"), TRANS_B | SYMMETRIC, 1, 0);
    end_program(&x.m, PRODUCT_BF16);
    bind_program(&x, shape, 1, 4);
    ck_assert_int_eq(x.b->gpu->calls->ntask, 0);
    close_program(&x);
}
END_TEST

/* Sums of 16384 and more terms are computed in parts of 4096, here four of them and some terms
 * more. Two matrices of a tensor, and a workspace that holds the parts of one matrix at a time. */
START_TEST(long_sums)
{
    SHARED();
    static const int64_t shape[2][3] = {{2, 9, 16390}, {1, 9, 16390}},
                         several[1][3] = {{1, 320, 16390}};
    static const int64_t even[2][3] = {{2, 8, 16390}, {1, 8, 16390}},
                         halves[1][3] = {{1, 512, 16390}};
    static const int64_t shorter[1][3] = {{1, 9, 16383}};
    /* f64, f32; bf16 and f16, whose parts are f32 */
    bool wide = _i < 2;
    int kind = wide ? _i : _i + 1;
    ck_assert_int_eq(check_triangles(kind, wide ? shape : even, 2, 1 << 20, 0), 4);
    ck_assert_int_eq(check_triangles(kind, shorter, 1, 1 << 20, 0), 1);
    if (!getenv("OPTC_TEST_SMALL"))
        ck_assert_int_eq(check_triangles(kind, wide ? several : halves, 1, 64 << 20, 0),
                         wide ? 4 * 15 : 4 * 3);
}
END_TEST

/* Products that are not symmetric, with and without an addend. */
START_TEST(long_products)
{
    SHARED();
    static const int64_t shape[2][3] = {{2, 8, 16390}, {1, 8, 16390}};
    int kind = _i < 2 ? _i : _i + 1;
    int64_t most = 0;
    Bound x;
    open_rule(&x, T_F32, 1 << 20);
    int e = add_array(&x.m, MEM_STATE, ELEM, kinds[kind].type, "e"),
        t = add_array(&x.m, MEM_STATE, ELEM_T, kinds[kind].type, "t"),
        r = add_array(&x.m, MEM_STATE, ROWS2, kinds[kind].type, "r"),
        q = add_array(&x.m, MEM_STATE, ROWS2, kinds[kind].type, "q");
    add_mm(&x.m, e, t, r, 0, 1, 0);
    add_mm_to(&x.m, e, e, add_array(&x.m, MEM_STATE, ROWS2, kinds[kind].type, "s"), q, TRANS_B, 2,
              -1);
    end_program(&x.m, kinds[kind].product);
    bind_program(&x, shape, 2, 4);
    fill_forms(&x, 2);
    step_forms(&x, kind, 2, "long sums");
    for (int i = 0; i < x.b->gpu->calls->nset; i++)
        most = x.b->gpu->calls->set[i].each > most ? x.b->gpu->calls->set[i].each : most;
    ck_assert_int_eq(most, 4);
    close_program(&x);
}
END_TEST

/* Writes a lower triangle; values above its diagonal are 0, and `beyond` right of the diagonal's
 * block. */
static void put_lower(Bound *x, int tensor, int array, int64_t block, double beyond)
{
    Shape s = x->b->tensor[tensor].shape;
    int64_t n = length_of(x, tensor, array),
            side = x->m.array[array].dom == ROWS2 ? s.rows : s.cols;
    double *v = malloc(sizeof *v * (size_t)(n + 1));
    for (int64_t at = 0; at < n; at++) {
        int64_t i = at / side % side, j = at % side;
        v[at] = j / block > i / block ? beyond : j > i ? 0 : ref_value(tensor, array, at);
    }
    OK(optc_state_write(x->b, tensor, x->m.array[array].name, v, n));
    free(v);
}

/* Triangles as operands, from both sides and transposed: products in panels do not read the zeros
 * right of the blocks on the diagonal. 13 and 29 rows have short last panels. */
START_TEST(lower_operands)
{
    SHARED();
    enum { BLOCK = 4 };
    static const int64_t sides[3][3] = {{2, 13, 29}, {1, 13, 29}, {1, 8, 13}};
    static const char *const names[] = {"o0", "o1", "o2", "o3", "o4", "o5", "o6", "o7"};
    const Type type = kinds[_i].type;
    Bound x;
    open_rule(&x, T_F32, 1 << 20);
    x.e->gpu->block = BLOCK;
    int e = add_array(&x.m, MEM_STATE, ELEM, type, "e"),
        l = add_array(&x.m, MEM_STATE, ROWS2, type, "l"),
        r = add_array(&x.m, MEM_STATE, COLS2, type, "r"),
        q = add_array(&x.m, MEM_STATE, COLS2, type, "q"),
        t = add_array(&x.m, MEM_STATE, ELEM_T, type, "t"), o[8];
    for (int i = 0; i < 8; i++)
        o[i] = add_array(&x.m, MEM_STATE, i < 5 ? ELEM : COLS2, type, names[i]);
    add_mm(&x.m, l, e, o[0], LOWER_A, 1, 0);
    add_mm(&x.m, l, e, o[1], LOWER_A | TRANS_A, -2, 0.5);
    add_mm(&x.m, e, r, o[2], LOWER_B, 1, 0);
    add_mm(&x.m, e, r, o[3], LOWER_B | TRANS_B, 1, 0);
    add_mm_to(&x.m, t, r, e, o[4], LOWER_B | TRANS_A, 1, -1);
    add_mm(&x.m, r, q, o[5], LOWER_A | LOWER_B, 1, 0);
    add_mm(&x.m, r, q, o[6], LOWER_A | LOWER_B | TRANS_A, 1, 0);
    add_mm(&x.m, r, q, o[7], LOWER_A | LOWER_B | TRANS_B, 1, 1);
    end_program(&x.m, kinds[_i].product);
    bind_program(&x, sides, 3, 4);
    fill_forms(&x, 3);
    ck_assert_int_gt(x.b->gpu->calls->nstep, 8 * 3 * 3);
    for (int again = 0; again < 2; again++) {
        double *zeros[3][3];
        for (int k = 0; k < 3; k++)
            for (int i = 0; i < 3; i++) {
                put_lower(&x, k, i == 0 ? l : i == 1 ? r : q, BLOCK, 0);
                zeros[k][i] = NULL;
            }
        step_forms(&x, _i, 3, "triangles as operands");
        for (int k = 0; k < 3; k++) {
            put_lower(&x, k, l, BLOCK, NAN);
            put_lower(&x, k, r, BLOCK, NAN);
            for (int i = 0; i < 3; i++)
                zeros[k][i] = get_array(&x, k, o[i == 0 ? 0 : i + 1]);
        }
        OK(optc_step(x.b));
        for (int k = 0; k < 3; k++)
            for (int i = 0; i < 3; i++) {
                double *got = get_array(&x, k, o[i == 0 ? 0 : i + 1]);
                ck_assert_msg(!memcmp(got, zeros[k][i], sizeof *got * (size_t)length_of(&x, k, e)),
                              "product %d of tensor %d reads zeros", i, k);
                free(got);
                free(zeros[k][i]);
            }
    }
    close_program(&x);
}
END_TEST

/* Parts have a multiple of 8 terms, for which cuBLAS's arrays of pointers need addresses at
 * multiples of 16 bytes. Here parts of a result would be 100 bytes, or the second matrix starts at
 * an odd address. The whole product, whose number of terms is odd, needs no alignment. The last
 * shape has aligned parts. */
START_TEST(long_sums_of_odd_sizes)
{
    SHARED();
    static const int64_t shape[3][3] = {{1, 5, 16385}, {2, 6, 16387}, {2, 4, 16390}};
    Bound x;
    open_rule(&x, T_F32, 1 << 20);
    int e = add_array(&x.m, MEM_STATE, ELEM, T_BF16, "e"),
        r = add_array(&x.m, MEM_STATE, ROWS2, T_BF16, "r"),
        q = add_array(&x.m, MEM_STATE, ROWS2, T_BF16, "q");
    add_mm(&x.m, e, e, r, TRANS_B, 1, 0);
    add_mm(&x.m, e, e, q, TRANS_B | SYMMETRIC, 1, 0);
    add_polynomial(&x.m, e, T_BF16);
    end_program(&x.m, PRODUCT_BF16);
    bind_program(&x, &shape[_i], 1, 4);
    /* as a library without cuBLASLt's arrays of pointers */
    use_cublas_alone(x.b);
    fill_forms(&x, 1);
    step_forms(&x, 3, 1, "odd sizes");
    bool parts = false;
    for (int i = 0; i < x.b->gpu->calls->nset; i++)
        parts = parts || x.b->gpu->calls->set[i].parts > 1;
    ck_assert_int_eq(parts, _i == 2);
    close_program(&x);
}
END_TEST

void add_triangles(TCase *t)
{
    for (int i = 0; i < 5; i += getenv("OPTC_TEST_SMALL") ? 3 : 1)
        tcase_add_loop_test(t, triangles, i, i + 1);
    tcase_add_loop_test(t, long_sums, 0, 4);
    tcase_add_loop_test(t, long_products, 0, 4);
    tcase_add_loop_test(t, long_sums_of_odd_sizes, 0, 3);
}

void add_halves(TCase *t)
{
    tcase_add_loop_test(t, hopper_halves, 0, 2);
    tcase_add_loop_test(t, a_half_fails, 0, 2);
    tcase_add_test(t, no_room_for_clusters);
    tcase_add_loop_test(t, lower_operands, 0, 2);
}
