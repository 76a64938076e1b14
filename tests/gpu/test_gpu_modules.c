/* Which kernels are compiled when: choices of launches share programs, and products wait for a binding that needs
 * them. */
#include "tests/gpu/device_side.h"

#include <stdlib.h>
#include <string.h>

static int count_bits(unsigned x) { return __builtin_popcount(x); }

/* Muon's launches for 2^28 elements and for GPT-2's layers differ in one stage: only its program is built again. */
START_TEST(other_sizes)
{
    SHARED();
    const GpuCode *code[3];
    optc_engine *e;
    optc_rule *r;
    OK(optc_open(&(optc_engine_options){.device = "cuda", .cache_dir = getenv("OPTC_TEST_CACHE")}, &e));
    OK(optc_compile(e, &(optc_rule_options){.spec = "muon"}, &r));
    OK(gpu_code_for(r, (int64_t)1 << 28, &code[0]));
    OK(gpu_code_for(r, 85054464, &code[1]));
    OK(gpu_code_for(r, 85054464, &code[2]));
    const BuiltKernels *first = (const BuiltKernels *)code[0], *second = (const BuiltKernels *)code[1];
    ck_assert(first != second && code[1] == code[2]);
    ck_assert_int_eq(first->nmodule, first->nparts + 1);
    ck_assert_int_eq(count_bits(first->own), first->nmodule);
    ck_assert_int_eq(count_bits(second->own), 1);
    ck_assert_int_eq(second->nmodule, first->nmodule);
    for (int i = 0; i < first->nmodule; i++)
        ck_assert((first->module[i] != second->module[i]) == (second->own >> i & 1));
    ck_assert(first->module[first->nparts] == second->module[first->nparts]);      /* the kernels of calls */
    OK(optc_release(r));
    OK(optc_close(e));
}
END_TEST

/* With cuBLAS no kernel for products is compiled. Without it the first binding loads one; later choices of launches
 * have it too. */
START_TEST(products_on_demand)
{
    SHARED();
    static const TestShape even[NSHAPES] = {{2, {16, 24}}, {2, {8, 8}}, {2, {32, 16}}, {1, {40}}, {2, {16, 24}},
                                            {2, {64, 8}},  {1, {8}},    {2, {8, 64}},  {1, {1}},  {2, {16, 16}},
                                            {2, {24, 16}}, {2, {16, 8}}};      /* cuBLAS takes all of these */
    const GpuCode *code;
    Side a, b;
    use_shapes(even);
    open_side(&a, "cuda", (optc_rule_options){.spec = "muon"}, 0);
    ck_assert(!a.r->library->gpu->products && !a.b->gpu->code->call[KERNEL_MM_F16]);
    use_cublas(false);
    open_side(&b, "cuda", (optc_rule_options){.spec = "muon"}, 0);
    ck_assert(b.r->library->gpu->products && b.b->gpu->code->call[KERNEL_MM_F16]);
    OK(gpu_code_for(b.r, 85054464, &code));
    ck_assert(code != b.b->gpu->code && code->call[KERNEL_MM_F16]);
    for (int s = 1; s <= 2; s++) {
        set_grads(&a, s);
        set_grads(&b, s);
        OK(optc_step(a.b));
        OK(optc_step(b.b));
    }
    fetch_params(&a);
    compare_within("muon by our products", &a, &b, 1e-2);
    close_side(&b, 0);
    use_cublas(true);
    close_side(&a, 0);
}
END_TEST

void add_modules(TCase *t)
{
    tcase_add_test(t, other_sizes);
    tcase_add_test(t, products_on_demand);
}
