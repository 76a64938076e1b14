/* Bindings that are only planned: schedules can be printed and checked without memory, a GPU or other processes. */
#include "runtime/library/schedule/schedule.h"

#include <string.h>

static void no_unbind(optc_binding *b) { (void)b; }

/* What a plan asks a device. */
static const Device planned_gpu = {.name = "cuda", .unbind = no_unbind, .overlaps = true};
static const Device planned_cpu = {.name = "cpu", .unbind = no_unbind, .reaches = true};

optc_status schedule_plan(const Program *p, bool gpu, int64_t workspace, const optc_tensor *t, int n, int rank,
                          int ranks, SchedulePlan *out)
{
    memset(out, 0, sizeof *out);
    out->engine.device = out->rule.device = gpu ? &planned_gpu : &planned_cpu;
    out->engine.threads = 1;
    out->engine.workspace = workspace ? workspace : (int64_t)1 << 30;
    out->rule.engine = &out->engine;
    out->rule.program = p;
    const optc_group g = {.tensors = t, .ntensors = n};
    return bind_rank_plan(&out->rule, &g, 1, rank, ranks, ranks > 1, &out->binding);
}

void schedule_plan_free(SchedulePlan *x)
{
    (void)optc_unbind(x->binding);
    x->binding = NULL;
}
