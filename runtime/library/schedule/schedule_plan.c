/* Bindings that are only planned: schedules can be printed and checked without memory, a GPU or
 * other processes. */
#include "runtime/library/schedule/schedule.h"
#include "runtime/core/api/api.h"
#include "runtime/core/memory/layout.h"

#include <string.h>

static void no_unbind(optc_binding *b) { (void)b; }

/* The parts of a device that planning uses. */
static const Device planned_gpu = {.name = "cuda", .unbind = no_unbind, .overlaps = true};
static const Device planned_cpu = {.name = "cpu", .unbind = no_unbind, .reaches = true};

enum { NOWHERE_BITS = 44 }; /* addresses from 2^44 on, which nothing reads */

/* apart: its temporaries share no memory */
optc_status schedule_plan(const Program *p, const ScheduleOf *of, bool apart, SchedulePlan *out)
{
    memset(out, 0, sizeof *out);
    out->engine.device = out->rule.device = of->gpu ? &planned_gpu : &planned_cpu;
    out->engine.threads = 1;
    out->engine.workspace = of->workspace ? of->workspace : (int64_t)1 << 30;
    out->rule.engine = &out->engine;
    out->rule.program = p;
    const optc_group g = {.tensors = of->tensor, .ntensors = of->ntensor};
    const RankPlan x = {of->rank, of->ranks, of->ranks > 1, apart ? PLAN_APART : PLAN_ONLY};
    optc_status s = bind_rank_plan(&out->rule, &g, 1, &x, &out->binding);
    if (s != OPTC_OK)
        return s;
    out->binding->block = (void *)((uintptr_t)1 << NOWHERE_BITS);
    return layout_place(out->binding);
}

void schedule_plan_free(SchedulePlan *x)
{
    (void)optc_unbind(x->binding);
    x->binding = NULL;
}
