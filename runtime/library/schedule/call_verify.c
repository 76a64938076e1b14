/* Executes the steps of calls on a GPU for one matrix of each group, on a memory of the steps that
 * wrote each byte. All matrices of a group have the same steps. */
#include "runtime/library/schedule/call_uses.h"

#include "runtime/core/schedule/schedule_ops.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CELL = 4, MOST_PLACES = 64 };               /* bytes of a cell */

/* An array of the rule or an area. by: the number of the step that wrote each cell in this call; 0:
 * none has */
typedef struct UsedPlace {
    int array, *by;
    int64_t cells;
} UsedPlace;
typedef struct Run {
    const optc_binding *b;
    const GpuCall *call;
    const CallStep *s;
    bool *needed;                      /* by number: a step after it reads what it wrote, or it
                                        * writes no area */
    UsedPlace place[MOST_PLACES];
    int n, number;                     /* of s */
    bool fails, out;
    char why[300];
} Run;

__attribute__((format(printf, 2, 3))) static void refuse(Run *x, const char *form, ...)
{
    va_list args;
    va_start(args, form);
    if (!x->fails)
        vsnprintf(x->why, sizeof x->why, form, args);
    va_end(args);
    x->fails = true;
}

static const char *place_name(const optc_binding *b, int array)
{
    const Area *area = area_of(b->gpu->calls, array);
    return area ? area->name : array >= 0 ? b->program->array[array].name : "the statistics";
}

static UsedPlace *place_of(Run *x, int array, int64_t bytes)
{
    for (int i = 0; i < x->n; i++)
        if (x->place[i].array == array)
            return &x->place[i];
    UsedPlace *p = x->n < MOST_PLACES ? &x->place[x->n] : NULL;
    const int64_t cells = count_up(bytes, CELL);
    int *by = p ? calloc((size_t)cells + 1, sizeof *by) : NULL;
    x->out = x->out || !by;
    if (!by)
        return NULL;
    *p = (UsedPlace){array, by, cells};
    x->n++;
    return p;
}

static bool stage_names(const ProgStage *s, int array, bool writes)
{
    const int *list = writes ? s->writes : s->reads, n = writes ? s->nwrites : s->nreads;
    for (int i = 0; i < n; i++)
        if (list[i] == array)
            return true;
    return false;
}

/* Bytes [lo, hi) of a place. Arrays that the stage reads hold values already. */
static void use_bytes(Run *x, UsedPlace *p, const StepUse *u, int64_t lo, int64_t hi)
{
    const int64_t from = lo / CELL, to = count_up(hi, CELL);
    if (lo < 0 || to > p->cells) {
        refuse(x, "it reaches byte %lld of %lld of %s", (long long)(lo < 0 ? lo : hi),
               (long long)p->cells * CELL, place_name(x->b, p->array));
        return;
    }
    const bool given = p->array >= 0 && stage_names(x->call->stage, p->array, false);
    for (int64_t i = from; i < to; i++)
        if (u->writes) {
            p->by[i] = x->number;
        } else if (p->by[i]) {
            x->needed[p->by[i]] = true;
        } else if (!given) {
            refuse(x, "it reads byte %lld of %s, which no step before has written",
                   (long long)i * CELL, place_name(x->b, p->array));
            return;
        }
}

/* The numbers of the record or the round that a step's operands are in. */
static int numbers_of(const Run *x)
{
    const GpuCalls *c = x->b->gpu->calls;
    const int set[] = {x->s->a, x->s->b, x->s->c};
    for (int i = 0; i < 3; i++) {
        int array = c->set[set[i]].array;
        for (; is_area(array) && array >= AREA(c->narea - 1); array--)
            if (!strcmp(area_of(c, array)->name, "numbers"))
                return array;
    }
    return 0;
}

static void use(void *ctx, const StepUse *u)
{
    Run *x = ctx;
    const GpuCalls *c = x->b->gpu->calls;
    const int array = u->set < 0 ? numbers_of(x) : c->set[u->set].array;
    const Area *area = area_of(c, array);
    const int64_t all = area ? area->values * area->bytes : set_matrix_bytes(x->b, u->set);
    if (u->writes && (!area || u->set < 0))
        x->needed[x->number] = true;
    if (array == OWN_STATS || x->fails)
        return;
    if (!area && !stage_names(x->call->stage, array, u->writes) &&
        !stage_names(x->call->stage, array, true)) {
        refuse(x, "the stage does not %s %s", u->writes ? "write" : "read",
               place_name(x->b, array));
        return;
    }
    UsedPlace *p = place_of(x, array, all);
    if (!p)
        return;
    if (u->whole && !u->writes) {                          /* something is there */
        bool any = !area || !all;
        for (int64_t i = 0; i < p->cells; i++) {
            any = any || p->by[i];
            x->needed[p->by[i]] = true;
        }
        if (!any)
            refuse(x, "it reads %s, which no step before has written", area->name);
        return;
    }
    if (u->whole)
        use_bytes(x, p, u, 0, all);
    for (int64_t i = 0; i < u->rows && !u->whole && !x->fails; i++) {
        const int64_t cut = (i + 1) * u->value, lo = u->at + i * u->apart;
        use_bytes(x, p, u, lo, lo + (u->lower && cut < u->bytes ? cut : u->bytes));
    }
}

static optc_status failed(const Run *x, int step)
{
    const ProgStage *s = x->call->stage;
    return fail(OPTC_ERROR_SPEC, "internal error: step %d of %s of rule '%s' (%s): %s", step,
                callee_facts[s->call->callee].name, x->b->program->name, s->where, x->why);
}

/* Every value of the result, or, of a symmetric product without its other half, the lower
 * triangle. */
static void check_result(Run *x)
{
    const ProgCall *c = x->call->stage->call;
    const bool part = c->flags & LOWER || x->b->program->array[c->out].dom == ELEM;
    int64_t written = 0, all = 1;
    for (int i = 0; i < x->n; i++)
        for (int64_t k = 0; x->place[i].array == c->out && k < (all = x->place[i].cells); k++)
            written += x->place[i].by[k] != 0;
    if (part ? !written : written < all)
        refuse(x, "the call writes %lld of %lld cells of its result", (long long)written,
               (long long)all);
}

static optc_status run_steps(Run *x, int from, int to, bool bodies)
{
    const GpuCalls *c = x->b->gpu->calls;
    int i = from;
    x->needed = calloc((size_t)(to - from) + 1, sizeof *x->needed);
    x->out = !x->needed;
    for (; i < to && !x->fails && !x->out; i++) {
        x->s = &c->step[i];
        x->number = i - from + 1;
        x->needed[x->number] = x->s->kind == STEP_BODY;
        step_uses(x->b, x->s, use, x);
        for (int k = 0; x->s->kind == STEP_BODY && !bodies && k < x->s->n; k++)
            x->needed[++i - from + 1] = true;
    }
    if (!x->fails && !x->out)
        check_result(x);
    for (int k = 1; k <= to - from && bodies && !x->fails && !x->out; k++)
        if (!x->needed[k]) {
            i = from + k;
            refuse(x, "no step after it reads what it writes");
        }
    optc_status s = x->out     ? no_memory("calls_verify")
                    : x->fails ? failed(x, i - from - 1)
                               : OPTC_OK;
    for (int k = 0; k < x->n; k++)
        free(x->place[k].by);
    free(x->needed);
    return s;
}

/* Areas of a record, or arrays of a round, follow one another; so do records. */
static bool areas_apart(const GpuCalls *c)
{
    for (int i = 0; i < c->narea; i++) {
        const Area *x = &c->area[i], *y = x + 1;
        const bool last = i + 1 == c->narea || y->at == 0;
        const int64_t bytes = x->values * x->bytes,
                      end = x->eigen ? x->at + (x->count - 1) * x->apart + bytes : x->at + bytes;
        if (x->count < 1 || bytes > x->apart || (!last && end > y->at))
            return false;
        if (x->eigen ? end > c->eigen.bytes : (last && (end > x->apart ||
                                               x->count * x->apart > c->room_bytes)))
            return false;
    }
    return true;
}

/* No array of a call is in the memory of areas. */
static bool arrays_apart(const optc_binding *b, const GpuCalls *c)
{
    const uintptr_t lo = (uintptr_t)call_space(b), hi = lo + (uintptr_t)b->call_bytes;
    for (int i = 0; i < c->nset; i++) {
        const PointerSet *s = &c->set[i];
        const CallGroup *g = &c->group[s->group];
        for (int k = 0; s->array >= 0 && k < g->n; k++) {
            const uintptr_t at = (uintptr_t)b->tensor[g->tensor[k]].mem[s->array];
            if (at && at < hi &&
                at + (uintptr_t)(set_matrix_bytes(b, i) * g->shape.slices) > lo)
                return false;
        }
    }
    return true;
}

/* All calls use the memory of areas, so they run one after another. */
static bool calls_ordered(const optc_binding *b)
{
    for (int m = 0; m < b->program->nentry * program_phases(b->program); m++)
        for (int i = 0; i < b->schedule[m].n; i++)
            for (int k = 0; k < i; k++) {
                const ScheduleOp *x = &b->schedule[m].op[k], *y = &b->schedule[m].op[i];
                if (x->kind == SCHEDULE_CALL && y->kind == SCHEDULE_CALL && !ops_ordered(b, x, y))
                    return false;
            }
    return true;
}

optc_status calls_verify(const optc_binding *b)
{
    const GpuCalls *c = b->gpu ? b->gpu->calls : NULL;
    optc_status s = OPTC_OK;
    if (c && (!areas_apart(c) || !arrays_apart(b, c) || !calls_ordered(b)))
        return fail(OPTC_ERROR_SPEC, "internal error: memory of calls of rule '%s' overlaps",
                    b->program->name);
    for (int i = 0; c && i < c->ncall; i++) {
        const GpuCall *call = &c->call[i];
        const int end = call->stagger_first + call->stagger_n;
        for (int from = call->first, to; from < end && s == OPTC_OK; from = to) {
            const CallGroup *g = step_group(c, &c->step[from]);
            to = from + 1;
            while (to < end && step_group(c, &c->step[to]) == g)
                to++;
            for (int bodies = 0; bodies < 2 && s == OPTC_OK; bodies++) {
                Run x = {.b = b, .call = call};
                s = run_steps(&x, from, to, bodies);
            }
        }
    }
    return s;
}
