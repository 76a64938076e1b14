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

/* ---- the engine's list ---- */
/* Held for a few instructions, so waiting threads spin. A graph stays in the list while its
 * bindings exist: calls with one binding are not concurrent. */
static LaunchList **joint_lock(GpuEngine *g)
{
    while (__atomic_test_and_set(&g->joint_locked, __ATOMIC_ACQUIRE))
        sched_yield();
    return &g->joint;
}

static void joint_unlock(GpuEngine *g) { __atomic_clear(&g->joint_locked, __ATOMIC_RELEASE); }

static LaunchList *find_joint(GpuEngine *g, const ListKey *key)
{
    LaunchList *x = list_find(joint_lock(g), key);
    joint_unlock(g);
    return x;
}

static LaunchList *new_joint(GpuEngine *g, const ListKey *key)
{
    LaunchList *x = list_take(key, 0, 0), **first = joint_lock(g);
    int graphs = 0;
    for (const LaunchList *k = *first; k; k = k->next)
        graphs++;
    const bool keeps = x && graphs < MOST_GRAPHS;
    if (keeps)
        list_keep(first, x);
    joint_unlock(g);
    if (!keeps)
        free(x);
    return keeps ? x : NULL;
}

CORE void gpu_joint_drop(optc_binding *b)
{
    GpuEngine *g = b->rule->engine->gpu;
    LaunchList *gone = lists_take(joint_lock(g), b, LISTS(LIST_JOINT));
    joint_unlock(g);
    lists_free(b, gone);
}

/* ---- conditions ---- */
/* Tuning during real steps measures each binding by itself. */
static bool may_join(const JointTask *task, int n)
{
    bool may = !task->b->rule->engine->gpu->no_graphs;
    for (int i = 0; i < n && may; i++) {
        const GpuTables *t = task[i].b->gpu;
        const LaunchList *p = task_list(&task[i]);
        may = t->stream == task->b->gpu->stream && !t->begin && !p->apart && !p->calls &&
              !p->stagger && !t->half_done &&
              gpu_decider(task[i].b, task[i].entry, false) == BY_HOST;
    }
    return may;
}

/* Compares the guards' launches with those of the graph, and stores them if they differ. */
static bool same_guards(LaunchList *x)
{
    GuardLaunch now, *more;
    bool same = true;
    int n = 0;
    for (int k = 0; k < x->key.n; k++)
        for (int i = 0; guard_item(x->key.task[k].b, x->key.task[k].entry, i, &now); i++, n++) {
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

static int add_kernel(JointBuild *x, const KernelNode *k)
{
    CUgraphNode after = x->last;
    int n = x->branch ? 1 : x->nbefore;
    int rc = kernel_node(x->d, k, x->graph, x->branch ? &after : x->before, n, &x->last);
    x->branch = true;
    return rc;
}

static int add_task(JointBuild *x, const JointTask *k)
{
    const LaunchList *p = task_list(k);
    int rc = 0;
    GuardLaunch guard;
    x->branch = false;
    for (int i = 0; !rc && guard_item(k->b, k->entry, i, &guard); i++) {
        KernelNode node = {
            k->b->gpu->code->read_ahead, guard.blocks, GUARD_THREADS, {&guard.args, NULL}};
        rc = add_kernel(x, &node);
    }
    for (int i = 0; i < p->n && !rc; i++) {
        KernelNode node = item_node(&p->item[i]);
        rc = add_kernel(x, &node);
    }
    if (x->branch)
        x->end[x->nend++] = x->last;
    return rc;
}

CORE int joint_build(const LaunchList *j, CUgraph graph)
{
    const JointTask *task = j->key.task;
    JointBuild x;
    memset(&x, 0, sizeof x);
    x.d = task->b->rule->engine->gpu->d;
    x.graph = graph;
    int rc = 0;
    for (int i = 0; i < j->key.n && !rc; i++) {
        if (i && task[i].level != task[i - 1].level && x.nend) {
            memcpy(x.before, x.end, sizeof x.end);
            x.nbefore = x.nend;
            x.nend = 0;
        }
        rc = add_task(&x, &task[i]);
    }
    return rc;
}

/* With guards the graph is made after two runs that had the same: a caller may set a new address
 * for each run. */
static void prepare_joint(GpuEngine *g, const ListKey *key)
{
    LaunchList *x = find_joint(g, key);
    if (!x)
        x = new_joint(g, key);
    if (!x || list_whole(x) || x->failed)
        return;
    bool same = same_guards(x) && !x->changed;
    x->changed = false;
    x->failed = (same || !x->nguard) && list_exec(key->task->b, x) != OPTC_OK;
    if (x->failed)
        message_clear();
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

static optc_status launch_joint(const LaunchList *x)
{
    const JointTask *lead = joint_lead(x->key.task, x->key.n);
    optc_binding *b = lead->b;
    const ProfileHooks *h = PROFILE_HOOKS();
    int launches = x->nguard;
    b->profile = h ? h->begin(b, lead->entry, lead->phase) : NULL;
    for (int i = 0; i < x->key.n; i++) {
        const JointTask *k = &x->key.task[i];
        launches += task_list(k)->n;
        if (b->profile && k != lead)
            h->adds(b, k->b, k->entry, k->phase);
    }
    if (b->profile)
        b->profile->launched(b, task_list(lead), 0, 0);
    optc_status s = launch_graph(b, x);
    if (b->profile && s == OPTC_OK)
        b->profile->launched(b, task_list(lead), 0, launches);
    if (b->profile)
        h->end(b, s);
    b->profile = NULL;
    return s;
}

static optc_status joint_inside(const JointTask *task, int n, bool ran, bool *done)
{
    GpuEngine *g = task->b->rule->engine->gpu;
    const ListKey key = {LIST_JOINT, n, task, {{0}}};
    int capturing = 0;
    optc_status s = OPTC_OK;
    TRY(g, cuStreamIsCapturing(task->b->gpu->stream, &capturing), "");
    if (capturing || !may_join(task, n))
        return OPTC_OK;
    if (ran)
        return prepare_joint(g, &key), OPTC_OK;
    LaunchList *x = find_joint(g, &key);
    if (!x || !list_whole(x))
        return OPTC_OK;
    if (!same_guards(x)) {
        list_drop_graphs(g->d, x);
        x->changed = true;
        return OPTC_OK;
    }
    for (int i = 0; i < n && s == OPTC_OK; i++)
        s = gpu_send_changes(task[i].b, false);
    /* gpu_send_changes may rebuild lists, and drop the graph */
    if (s != OPTC_OK || find_joint(g, &key) != x)
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
