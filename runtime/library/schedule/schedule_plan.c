/* Bindings that are only planned: schedules can be printed and checked without memory, a GPU or
 * other processes. */
#include "runtime/library/schedule/schedule.h"
#include "runtime/core/api/api.h"
#include "runtime/core/memory/layout.h"

#include "runtime/core/matrix/gpu_calls.h"

#include <stdlib.h>
#include <string.h>

struct PlannedGpu {
    GpuEngine engine;
    GpuTables tables;
    GpuCode code;
    GpuCalls calls;
};

static void no_unbind(optc_binding *b) { (void)b; }

/* The library's workspace is not known without it. */
static int no_workspace(cusolverDnHandle_t h, cusolverDnParams_t p, cusolverEigMode_t mode,
                        cublasFillMode_t fill, int64_t n, cudaDataType a, const void *matrix,
                        int64_t ld, cudaDataType w, const void *values, cudaDataType in,
                        size_t *device, size_t *host, int64_t count)
{
    (void)h, (void)p, (void)mode, (void)fill, (void)n, (void)a, (void)matrix, (void)ld, (void)w;
    (void)values, (void)in, (void)count;
    *device = *host = 0;
    return 0;
}

/* The parts of a device that planning uses. */
static const Device planned_gpu = {.name = "cuda", .unbind = no_unbind, .overlaps = true};
static const Device planned_calls = {.name = "cuda", .unbind = no_unbind, .overlaps = true,
                                     .call_bytes = gpu_call_bytes};
static const Device planned_cpu = {.name = "cpu", .unbind = no_unbind, .reaches = true};

enum { NOWHERE_BITS = 44 }; /* addresses from 2^44 on, which nothing reads */

/* The steps of its calls on an H200 with cuBLAS and cuSOLVER, without cuBLASLt. */
static optc_status plan_steps(SchedulePlan *x)
{
    GpuCalls *c = &x->gpu->calls;
    c->library = c->eigen.asked = c->eigen.library = true;
    c->eigen.f.cusolverDnXsyevBatched_bufferSize = no_workspace;
    x->gpu->tables.code = &x->gpu->code;
    x->binding->gpu = &x->gpu->tables;
    return calls_make(x->binding, c);
}

/* apart: its temporaries share no memory */
optc_status schedule_plan(const Program *p, const ScheduleOf *of, bool apart, SchedulePlan *out)
{
    memset(out, 0, sizeof *out);
    out->engine.device = out->rule.device = of->gpu && of->calls ? &planned_calls
                                            : of->gpu            ? &planned_gpu
                                                                 : &planned_cpu;
    out->engine.threads = 1;
    if (of->gpu) {
        out->gpu = calloc(1, sizeof *out->gpu);
        if (!out->gpu)
            return no_memory("schedule_plan");
        out->engine.gpu = &out->gpu->engine;
        out->gpu->engine = (GpuEngine){.arch = 90, .sms = 132, .shared = 227 << 10,
                                       .cooperative = 1, .f64_fast = true,
                                       .bodies_cooperate = true};
    }
    out->engine.workspace = of->workspace ? of->workspace : (int64_t)1 << 30;
    out->rule.engine = &out->engine;
    out->rule.program = p;
    const optc_group g = {.tensors = of->tensor, .ntensors = of->ntensor};
    const RankPlan x = {of->rank, of->ranks, of->ranks > 1, apart ? PLAN_APART : PLAN_ONLY};
    optc_status s = bind_rank_plan(&out->rule, &g, 1, &x, &out->binding);
    if (s != OPTC_OK)
        return s;
    out->binding->block = (void *)((uintptr_t)1 << NOWHERE_BITS);
    s = layout_place(out->binding);
    return s == OPTC_OK && of->gpu && of->calls && program_calls(out->binding->program)
               ? plan_steps(out)
               : s;
}

void schedule_plan_free(SchedulePlan *x)
{
    (void)optc_unbind(x->binding);
    if (x->gpu)
        calls_free(&x->gpu->calls);
    free(x->gpu);
    x->gpu = NULL;
    x->binding = NULL;
}
