/* Joint graphs: all launches of an optc_run_all as one CUDA graph. Each binding is a branch. The
 * branches of a level begin when all branches of the level before have ended, so entries that need
 * the others' values (clip's norm) need no events between streams. TYPES.md has the conditions and
 * the design. */
#include "runtime/core/gpu/gpu_device.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

/* of an engine; further sets of tasks run one by one */
enum { MOST_GRAPHS = 64 };

/* exec NULL: not made yet, or (failed) it cannot be made. guard: the launches that read guards and
 * device scalars, of all tasks. They contain addresses of the caller, which may change between
 * runs. */
typedef struct JointGraph {
    struct JointGraph *next;
    JointTask *task; int n;
    GuardLaunch *guard; int nguard;
    CUgraphExec exec;
    /* changed: this run's guards differ from those of the last one */
    bool failed, changed;
} JointGraph;

/* ---- the engine's list ---- */
/* Held for a few instructions, so waiting threads spin. A graph stays in the list while its
 * bindings exist: calls with one binding are not concurrent. */
static JointGraph **joint_lock(GpuEngine *g)
{
    while (__atomic_test_and_set(&g->joint_locked, __ATOMIC_ACQUIRE))
        sched_yield();
    return &g->joint;
}

static void joint_unlock(GpuEngine *g) { __atomic_clear(&g->joint_locked, __ATOMIC_RELEASE); }

static bool same_tasks(const JointGraph *x, const JointTask *task, int n)
{
    bool same = x->n == n;
    for (int i = 0; i < n && same; i++)
        same = x->task[i].b == task[i].b && x->task[i].entry == task[i].entry &&
               x->task[i].phase == task[i].phase && x->task[i].level == task[i].level;
    return same;
}

static JointGraph *find_joint(GpuEngine *g, const JointTask *task, int n)
{
    JointGraph *x = *joint_lock(g);
    while (x && !same_tasks(x, task, n))
        x = x->next;
    joint_unlock(g);
    return x;
}

static void free_joint(const Driver *d, JointGraph *x)
{
    if (x->exec)
        d->cuGraphExecDestroy(x->exec);
    free(x->task);
    free(x->guard);
    free(x);
}

static JointGraph *new_joint(GpuEngine *g, const JointTask *task, int n)
{
    JointGraph *x = (JointGraph *)calloc(1, sizeof *x);
    int graphs = 0;
    if (!x || !(x->task = (JointTask *)malloc(sizeof *task * (size_t)n)))
        return free(x), (JointGraph *)NULL;
    memcpy(x->task, task, sizeof *task * (size_t)n);
    x->n = n;
    JointGraph **first = joint_lock(g);
    for (const JointGraph *k = *first; k; k = k->next)
        graphs++;
    if (graphs < MOST_GRAPHS) {
        x->next = *first;
        *first = x;
    }
    joint_unlock(g);
    if (graphs < MOST_GRAPHS)
        return x;
    free_joint(g->d, x);
    return NULL;
}

CORE void gpu_joint_drop(optc_binding *b)
{
    GpuEngine *g = b->rule->engine->gpu;
    JointGraph *gone = NULL;
    for (JointGraph **at = joint_lock(g), *x; (x = *at);) {
        bool has = false;
        for (int i = 0; i < x->n; i++)
            has = has || x->task[i].b == b;
        if (has) {
            *at = x->next;
            x->next = gone;
            gone = x;
        } else {
            at = &x->next;
        }
    }
    joint_unlock(g);
    for (JointGraph *next; gone; gone = next) {
        next = gone->next;
        free_joint(g->d, gone);
    }
}

/* ---- conditions ---- */
static LaunchList *task_list(const JointTask *x)
{
    return &x->b->gpu->launch_list[x->entry * x->b->gpu->nphase + x->phase];
}

/* Tuning during real steps measures each binding by itself. After a capture, or with a guard, the
 * host does not know the phase. */
static bool may_join(const JointTask *task, int n)
{
    bool may = !task->b->rule->engine->gpu->no_graphs;
    for (int i = 0; i < n && may; i++) {
        const GpuTables *t = task[i].b->gpu;
        const LaunchList *p = task_list(&task[i]);
        may = t->stream == task->b->gpu->stream && !t->begin && !p->apart && !p->calls &&
              !p->stagger && !t->half_done &&
              !((t->captured || t->guarded) && task[i].b->program->nperiod) &&
              !phases_guarded(task[i].b, task[i].entry);
    }
    return may;
}

/* Compares the guards' launches with those of the graph, and stores them if they differ. */
static bool same_guards(JointGraph *x)
{
    GuardLaunch now, *more;
    bool same = true;
    int n = 0;
    for (int k = 0; k < x->n; k++)
        for (int i = 0; guard_item(x->task[k].b, x->task[k].entry, i, &now); i++, n++) {
            if (n < x->nguard && !memcmp(&x->guard[n], &now, sizeof now))
                continue;
            same = false;
            more = (GuardLaunch *)realloc(x->guard, sizeof *more * (size_t)(n + 1));
            if (!more)
                return x->nguard = 0, false;
            x->guard = more;
            x->guard[n] = now;
            x->nguard = n + 1;
        }
    same = same && n == x->nguard;
    x->nguard = n;
    return same;
}

/* ---- making a graph ---- */
typedef struct JointBuild {
    const Driver *d;
    CUgraph graph;
    /* ends: of the level before, this level, the branch */
    CUgraphNode before[MOST_JOINT], end[MOST_JOINT], last;
    int nbefore, nend;
    bool branch;                               /* `last` is set */
} JointBuild;

static bool add_kernel(JointBuild *x, const KernelNode *k)
{
    CUgraphNode after = x->last;
    int n = x->branch ? 1 : x->nbefore;
    int rc = kernel_node(x->d, k, x->graph, x->branch ? &after : x->before, n, &x->last);
    x->branch = true;
    return rc == 0;
}

static bool add_task(JointBuild *x, const JointTask *k)
{
    const LaunchList *p = task_list(k);
    bool ok = true;
    GuardLaunch guard;
    x->branch = false;
    for (int i = 0; ok && guard_item(k->b, k->entry, i, &guard); i++) {
        KernelNode node = {
            k->b->gpu->code->read_ahead, guard.blocks, GUARD_THREADS, {&guard.args, NULL}};
        ok = add_kernel(x, &node);
    }
    for (int i = 0; i < p->n && ok; i++) {
        KernelNode node = item_node(&p->item[i]);
        ok = add_kernel(x, &node);
    }
    if (x->branch)
        x->end[x->nend++] = x->last;
    return ok;
}

static void make_joint(JointGraph *j, const Driver *d)
{
    JointBuild x;
    memset(&x, 0, sizeof x);
    x.d = d;
    bool ok = d->cuGraphCreate(&x.graph, 0) == 0;
    for (int i = 0; i < j->n && ok; i++) {
        if (i && j->task[i].level != j->task[i - 1].level && x.nend) {
            memcpy(x.before, x.end, sizeof x.end);
            x.nbefore = x.nend;
            x.nend = 0;
        }
        ok = add_task(&x, &j->task[i]);
    }
    if (ok && d->cuGraphInstantiateWithFlags(&j->exec, x.graph, 0))
        j->exec = NULL;
    j->failed = !j->exec;
    if (x.graph)
        d->cuGraphDestroy(x.graph);
}

/* With guards the graph is made after two runs that had the same: a caller may set a new address
 * for each run. */
static void prepare_joint(GpuEngine *g, const JointTask *task, int n)
{
    JointGraph *x = find_joint(g, task, n);
    if (!x)
        x = new_joint(g, task, n);
    if (!x || x->exec || x->failed)
        return;
    bool same = same_guards(x) && !x->changed;
    x->changed = false;
    if (same || !x->nguard)
        make_joint(x, g->d);
}

/* ---- running ---- */
/* The graph is one range of the profile: a run of the last entry of the binding with the most
 * elements. */
static const JointTask *joint_lead(const JointTask *task, int n)
{
    const JointTask *lead = &task[n - 1];
    while (lead > task && lead[-1].level == lead->level)
        lead--;
    return lead;
}

static optc_status launch_joint(const JointGraph *x)
{
    const JointTask *lead = joint_lead(x->task, x->n);
    optc_binding *b = lead->b;
    GpuEngine *g = b->rule->engine->gpu;
    const ProfileHooks *h = PROFILE_HOOKS();
    int launches = x->nguard;
    b->profile = h ? h->begin(b, lead->entry, lead->phase) : NULL;
    for (int i = 0; i < x->n; i++) {
        launches += task_list(&x->task[i])->n;
        if (b->profile && &x->task[i] != lead)
            h->adds(b, x->task[i].b, x->task[i].entry, x->task[i].phase);
    }
    if (b->profile)
        b->profile->launched(b, task_list(lead), 0, 0);
    int rc = g->d->cuGraphLaunch(x->exec, b->gpu->stream);
    if (b->profile && !rc)
        b->profile->launched(b, task_list(lead), 0, launches);
    optc_status s = rc ? gpu_error(g, "cuGraphLaunch", rc, b->program->name) : OPTC_OK;
    if (b->profile)
        h->end(b, s);
    b->profile = NULL;
    return s;
}

static optc_status joint_inside(const JointTask *task, int n, bool ran, bool *done)
{
    GpuEngine *g = task->b->rule->engine->gpu;
    int capturing = 0;
    optc_status s = OPTC_OK;
    TRY(g, cuStreamIsCapturing(task->b->gpu->stream, &capturing), "");
    if (capturing || !may_join(task, n))
        return OPTC_OK;
    if (ran)
        return prepare_joint(g, task, n), OPTC_OK;
    JointGraph *x = find_joint(g, task, n);
    if (!x || !x->exec)
        return OPTC_OK;
    if (!same_guards(x)) {
        g->d->cuGraphExecDestroy(x->exec);
        x->exec = NULL;
        x->changed = true;
        return OPTC_OK;
    }
    for (int i = 0; i < n && s == OPTC_OK; i++)
        s = gpu_send_changes(task[i].b, false);
    /* gpu_send_changes may rebuild lists, and drop the graph */
    if (s != OPTC_OK || find_joint(g, task, n) != x)
        return s;
    s = launch_joint(x);
    *done = s == OPTC_OK;
    return s;
}

CORE optc_status gpu_joint(const JointTask *task, int n, bool ran, bool *done)
{
    GpuEngine *g = task->b->rule->engine->gpu;
    optc_status s = gpu_alive(g);
    if (s != OPTC_OK)
        return s;
    gpu_enter(g);
    return gpu_leave(g, joint_inside(task, n, ran, done));
}
