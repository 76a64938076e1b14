#include "tests/gpu/gpu_product_program.h"

#include "gen/emit/emit.h"
#include "gen/emit/template.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- programs ---- */
int add_array(ProductProgram *m, MemKind kind, Dom dom, Type type, const char *name)
{
    m->array[m->p.narray] =
        (ProgArray){.kind = kind, .dom = dom, .type = (int)type, .name = name, .held_by = 1};
    return m->p.narray++;
}

void add_mm(ProductProgram *m, int a, int b, int out, unsigned flags, double alpha, double beta)
{
    add_mm_to(m, a, b, beta != 0 ? out : -1, out, flags, alpha, beta);
}

void add_mm_to(ProductProgram *m, int a, int b, int c, int out, unsigned flags, double alpha,
               double beta)
{
    int n = m->ncall++;
    m->call[n] = (ProgCall){CALL_MM, flags, a, b, c, out, alpha, beta, 0};
    memcpy(m->reads[n], (int[]){a, b, c}, sizeof m->reads[n]);
    m->writes[n][0] = out;
    m->stage[n] = (ProgStage){.kind = S_CALL,
                              .fn = -1,
                              .form = FORM_SINGLE,
                              .reads = m->reads[n],
                              .nreads = c >= 0 ? 3 : 2,
                              .writes = m->writes[n],
                              .nwrites = 1,
                              .kernel = "",
                              .name = "call",
                              .where = "made.lua:7",
                              .call = &m->call[n]};
    m->act[m->phase.naction++] = (ProgAction){ACT_LAUNCH, n};
}

static void begin_made(ProductProgram *m, const Program *from, Type g)
{
    memset(m, 0, sizeof *m);
    m->p = *from;
    m->p.narray = 0;
    add_array(m, MEM_P, ELEM, (Type)from->p, "p");
    add_array(m, MEM_G, ELEM, g, "g");
}

void end_program(ProductProgram *m, Product product)
{
    m->act[m->phase.naction] = (ProgAction){ACT_ADVANCE_T, 0};
    memmove(m->act + 1, m->act, sizeof *m->act * (size_t)m->phase.naction);
    m->act[0] = (ProgAction){ACT_ADVANCE_T, 0};
    m->phase.naction++;
    m->phase.action = m->act;
    m->entry = (ProgEntry){"step", &m->phase, 0};
    m->variant = (Variant){"", VIEW_LAST, NULL, 0};
    m->p.array = m->array, m->p.stage = m->stage, m->p.nstage = m->ncall;
    m->p.entry = &m->entry, m->p.nentry = 1;
    m->p.variant = &m->variant, m->p.nvariant = 1;
    m->p.product = product;
}

/* ---- a rule with such a program ---- */
void open_rule(Bound *x, Type g, int64_t workspace)
{
    static const char text[] = "return optimizer { name = 'made', hyper = { lr = 0.1 }, step = "
                               "function() p = p - lr * g end }";
    memset(x, 0, sizeof *x);
    OK(optc_open(&(optc_engine_options){.device = "cuda", .cache_dir = getenv("OPTC_TEST_CACHE"),
                                        .workspace = workspace}, &x->e));
    OK(optc_compile(x->e, &(optc_rule_options){.text = text, .grad = (optc_type)(g + 1)}, &x->r));
    begin_made(&x->m, x->r->program, g);
}

static const char *const sections[] = {"calls",    "gather", "stored", "over",     "over_2",
                                       "over_4",   "over_8", "mirror", "mirror_2", "mirror_4",
                                       "mirror_8", "mm",     "mm_f64", "mm_f32",   "mm_tf32",
                                       "mm_bf16",  "mm_f16"};
static const struct { const char *file, *section;
} halves[] = {{"hopper_cuda.txt", "hopper"},
              {"symmetric_cuda.txt", "symmetric"},
              {"symmetric_cuda.txt", "symmetric_f16"},
              {"symmetric_cuda.txt", "symmetric_bf16"}};

/* The rule's code has no kernels for calls; this adds them. Kernels for Hopper take long to
 * compile, so they are added only for their own test. */
static void add_kernels(Bound *x)
{
    static Arena a;
    static char *compiled[2];                      /* once for all tests */
    bool hopper = x->e->gpu->symmetric_rows != 0;
    Buf code = {.arena = &a}, all = {.arena = &a};
    size_t size;
    char *log = NULL;
    if (!compiled[hopper]) {
        for (size_t i = 0; i < sizeof sections / sizeof *sections; i++)
            ck_assert(template_fill(&code, "products_cuda.txt", sections[i], NULL, 0));
        for (size_t i = 0; i < sizeof halves / sizeof *halves && hopper; i++)
            ck_assert(template_fill(&code, halves[i].file, halves[i].section, NULL, 0));
        ck_assert(emit_cuda_file(&all, &a, "calls", "", "", "calls", buf_text(&code)));
        compiled[hopper] = nvrtc_build(nvrtc_get(NULL), buf_text(&all), "calls", x->e->gpu->arch,
                                       false, &size, &log);
    }
    const char *cubin = compiled[hopper];
    ck_assert_msg(cubin != NULL, "%s", log);
    ck_assert(!d->cuModuleLoadData(&x->module, cubin));
    for (BuiltKernels *c = x->r->library->gpu->codes; c; c = c->next)
        for (int k = 0; k < NCALLKERNEL; k++) {
            bool left_out = k == KERNEL_PHASE ||
                            (!hopper && kernel_of_halves(&product_info[x->m.p.product], k));
            const char *name = left_out ? NULL : call_kernel(&x->m.p, k);
            ck_assert(!name || !d->cuModuleGetFunction(&c->code.call[k], x->module, name));
        }
}

void bind_program(Bound *x, const int64_t (*shape)[3], int n, size_t gbytes)
{
    optc_tensor t[TENSORS] = {{0}};
    char name[TENSORS][16];
    int64_t elements = 0;
    const GpuCode *code;
    for (int k = 0; k < n; k++)
        elements += shape[k][0] * shape[k][1] * shape[k][2];
    /* requested here, before the rule's program is replaced: binding asks for it too */
    OK(gpu_code_for(x->r, elements, &code));
    x->r->program = &x->m.p;
    add_kernels(x);
    for (int k = 0; k < n; k++) {
        size_t all = (size_t)(shape[k][0] * shape[k][1] * shape[k][2]);
        snprintf(name[k], sizeof name[k], "tensor%d", k);
        ck_assert(!d->cuMemAlloc_v2(&x->p[k], all * 4) &&
                  !d->cuMemAlloc_v2(&x->g[k], all * gbytes) &&
                  !d->cuMemsetD8Async(x->g[k], 0, all * gbytes, NULL));
        t[k] = (optc_tensor){.name = name[k],
                             .param = (void *)(uintptr_t)x->p[k],
                             .grad = (void *)(uintptr_t)x->g[k],
                             .rank = 3,
                             .shape = shape[k]};
    }
    OK(optc_bind(x->r, &(optc_group){.tensors = t, .ntensors = n}, 1, &x->b));
}

void close_program(Bound *x)
{
    OK(optc_sync(x->b));
    OK(optc_unbind(x->b));
    OK(optc_release(x->r));
    OK(optc_close(x->e));
    d->cuModuleUnload(x->module);
    for (int k = 0; k < TENSORS; k++)
        if (x->p[k])
            d->cuMemFree_v2(x->p[k]), d->cuMemFree_v2(x->g[k]);
}
