/* The second half of emu_driver.c, which includes it: launches, streams, captures, graphs and
 * events. A stream is a list of nodes that run at once, or later (emu_late); a graph is such a list
 * that is launched again. */
/* ---- launches, streams, graphs ---- */
/* k NULL: a copy from its recorded source; call: a library function with a copy of its arguments,
 * which is never freed. body: of a conditional node, n graphs; picks: it is a switch node. alone:
 * it depends on the nodes `after` (by number) only; otherwise, captured, on the node before it */
typedef struct Node { Kernel *k; unsigned grid, threads, shared; _Alignas(16) char args[MOST_ARGS];
    char numbers[NUMBERS];
    void *to;
    const void *from;
    size_t n;
    void (*call)(const void *);
    struct Graph **body;
    struct Handle *wanted; struct Stream *of; bool alone, picks, team; int *after, nafter; } Node;
/* The value of a conditional node, and the value that it has at the start of each launch of its
 * graph. */
typedef struct Handle { unsigned value, usual; } Handle;
/* fork: streams that became part of the capture, which began in another one */
typedef struct Graph { Node *v; int n; struct Stream *fork[MOST]; int forks; } Graph;
/* into: the captured graph is the body of another; forked: the capture began in another stream;
 * added, joined: the nodes of this stream, and those that the first stream has waited for. later:
 * nodes of emu_late, of which `ran` have run; a node with `of` waits for the first `n` nodes of
 * that stream; told: number of nodes in `later`. gone: it was destroyed, and calls with it fail;
 * its memory is not used again */
typedef struct Stream {
    Graph *capturing;
    bool strict, into, forked, gone;
    int ended, added, joined;
    Graph later;
    int ran, told; struct Stream *next;
} Stream;
static Stream *gone_streams;
static bool is_gone(CUstream s) { return s && ((Stream *)s)->gone; }

static void add(Graph *g, Node x)
{
    g->v = realloc(g->v, sizeof *g->v * (size_t)(g->n + 1));
    g->v[g->n++] = x;
}

/* Time advances only in kernels, so that measured times are the same on every machine: blocks of
 * 512 threads take half a millisecond, others take more, the further they are from that. */
static double clock_ms;
double emu_clock(void);
double emu_clock(void) { LOCKED; return clock_ms; }
static int run(const Node *x);
/* EMU_LOG_BREAKS shows that a log can differ: "drop 7" does not run the seventh kernel of a log,
 * "swap 7" runs it after the next one. */
static Node log_held;
static bool log_holds;
static bool log_leaves_out(const Node *x)
{
    const char *s = getenv("EMU_LOG_BREAKS");
    if (!log_open || !s || ++log_kernels_run != atoi(s + 5))
        return false;
    log_holds = !strncmp(s, "swap", 4);
    log_held = *x;
    return true;
}
static void log_run_held(void)
{
    if (!log_holds)
        return;
    log_holds = false;
    run(&log_held);
}
static void log_in(CUstream s) { log_key = s, log_key_rank = log_rank; }
/* Handles in it have their usual values, unless a kernel of it sets them. */
static void run_graph(const Graph *g)
{
    for (int i = 0; i < g->n; i++)
        if (g->v[i].wanted)
            g->v[i].wanted->value = g->v[i].wanted->usual;
    for (int i = 0; i < g->n; i++)
        run(&g->v[i]);
}
static int run(const Node *x)
{
    if (x->body) {
        size_t k = x->picks ? x->wanted->value : !x->wanted->value;
        if (k < x->n)
            run_graph(x->body[k]);
    } else if (x->call) {
        x->call(x->to);
    } else if (x->k) {
        if (log_leaves_out(x))
            return 0;
        log_kernel(&x->k->log, x->args,
                   x->k->numbers ? (const int *)(const void *)x->numbers : NULL, x->grid,
                   x->threads, x->shared, x->team);
        if (x->k->asked)
            *x->k->asked = x->shared;
        if (x->k->team)
            *x->k->team = x->team;
        x->k->launch(x->k->fn, x->args, x->k->numbers ? x->numbers : NULL, x->grid, x->threads);
        clock_ms += x->threads > 512 ? x->threads / 1024. : 256. / x->threads;
        log_run_held();
    } else {
        log_copy(x->to, x->from, x->n);
        memmove(x->to, x->from, x->n);
    }
    return 0;
}

static void take(Node *x, void *const *params)
{
    memcpy(x->args, params[0], x->k->bytes);
    if (x->k->numbers)
        memcpy(x->numbers, params[1], NUMBERS);
}

/* Work of streams, later than the calls that enqueue it: only waiting runs it, in an order that
 * events allow.
 * 0: at once; 1: a stream that something waits for runs alone; 2: all other streams run first.
 * Wrong results of a program in one of the orders show that an event is missing. */
static int late;
static Stream *streams;
static void advance(Stream *s, int until)
{
    while (s->ran < until) {
        Node x = s->later.v[s->ran++];
        if (x.of)
            advance(x.of, (int)x.n);
        else
            run(&x);
    }
}
static void finish(Stream *s)
{
    for (Stream *x = streams; x; x = x->next)
        if (x != s && late == 2)
            advance(x, x->told);
    if (s)
        advance(s, s->told);
}
static void finish_all(void)
{
    for (Stream *x = streams; x; x = x->next)
        finish(x);
}
int emu_late(int order);
int emu_late(int order) { LOCKED; return finish_all(), late = order, 0; }

static int run_in(CUstream s, Node x)
{
    Stream *in = s;
    if (is_gone(s))
        return INVALID_HANDLE;
    if (in && in->capturing)
        return in->added++, add(in->capturing, x), 0;
    if (in && late)
        return in->told++, add(&in->later, x), 0;
    return finish_all(), log_in(s), run(&x);
}
static int copy(void *to, const void *from, size_t n, CUstream s)
{
    return run_in(s, (Node){.to = to, .from = from, .n = n});
}
/* The host's memory may have gone later. */
static int copy_now(void *to, const void *from, size_t n, CUstream s)
{
    Node x = {.to = to, .from = from, .n = n};
    return s && ((Stream *)s)->capturing ? run_in(s, x)
                                                : (finish_all(), log_in(s), run(&x));
}

/* For other emulated libraries: work in a stream, and the memory they may access. */
int emu_in_stream(CUstream s, void (*call)(const void *), const void *data, size_t n);
int emu_in_stream(CUstream s, void (*call)(const void *), const void *data, size_t n)
{
    LOCKED;
    if (is_gone(s))
        return INVALID_HANDLE;
    /* a library loads a kernel when it launches it first */
    if (unsafe())
        return INVALID;
    if (!s || !(((Stream *)s)->capturing || late))
        return log_in(s), call(data), 0;
    void *copied = malloc(n);
    memcpy(copied, data, n);
    return run_in(s, (Node){.to = copied, .call = call});
}
int emu_reaches(const void *p, size_t n);
int emu_reaches(const void *p, size_t n)
{
    LOCKED;
    const Span *s = n ? *span_of((CUdeviceptr)(uintptr_t)p) : NULL;
    return !n || (s && (size_t)((const char *)p - s->at) + n <= s->n);
}

static int launch(CUfunction f, unsigned blocks, unsigned threads, unsigned shared, CUstream s,
                  void **args, bool team)
{
    Node n = {.k = f, .grid = blocks, .threads = threads, .shared = shared, .team = team};
    take(&n, args);
    return !blocks || shared > n.k->shared || threads > 1024 ? INVALID : run_in(s, n);
}
int cuLaunchKernel(CUfunction f, unsigned x, unsigned y, unsigned z, unsigned bx, unsigned by,
                   unsigned bz, unsigned shared, CUstream s, void **args, void **more)
{
    CALL;
    return more ? INVALID : launch(f, x * y * z, bx * by * bz, shared, s, args, false);
}
int cuLaunchCooperativeKernel(CUfunction f, unsigned x, unsigned y, unsigned z, unsigned bx,
                              unsigned by, unsigned bz, unsigned shared, CUstream s, void **args)
{
    CALL;
    /* in the body of a conditional node */
    if (s && ((Stream *)s)->into && setting("EMU_MPS", 0))
        return INVALID;
    return x > 8 || x > (unsigned)setting("EMU_COOPERATIVE", 8)
               ? CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE
               : launch(f, x * y * z, bx * by * bz, shared, s, args, true);
}

int cuStreamCreate(CUstream *s, unsigned flags)
{
    CALL;
    Stream *x = calloc(1, sizeof *x);
    x->next = streams;
    *s = streams = x;
    if (log_open && log_rank != LOG_NONE)
        (void)log_stream_of(x, log_rank);
    return flags > 1;
}
int cuStreamDestroy_v2(CUstream s)
{
    LOCKED;
    int told = TOLD;
    if (!s || is_gone(s))
        return INVALID_HANDLE;
    finish_all();
    Stream **x = &streams, *gone = s;
    while (*x != gone)
        x = &(*x)->next;
    *x = gone->next;
    free(gone->later.v);
    *gone = (Stream){.gone = true, .next = gone_streams};
    gone_streams = gone;
    return told;
}
int cuStreamSynchronize(CUstream s)
{
    CALL;
    if (is_gone(s))
        return INVALID_HANDLE;
    if (s && ((Stream *)s)->capturing)
        return end_captures();
    if (s)
        finish(s);
    else
        finish_all();
    return unsafe();
}
int cuStreamIsCapturing(CUstream s, CUstreamCaptureStatus *x)
{
    CALL;
    *x = s && ((Stream *)s)->capturing;
    return is_gone(s) ? INVALID_HANDLE : 0;
}
int cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *m)
{
    CALL; CUstreamCaptureMode was = thread_mode; return thread_mode = *m, *m = was, 0;
}
int cuStreamBeginCapture_v2(CUstream s, CUstreamCaptureMode m)
{
    CALL;
    ((Stream *)s)->added = 0;
    ((Stream *)s)->capturing = calloc(1, sizeof(Graph));
    strict += ((Stream *)s)->strict = m != CU_STREAM_CAPTURE_MODE_RELAXED;
    ((Stream *)s)->ended = ended;
    return 0;
}
int cuGraphDestroy(CUgraph g)
{
    for (int i = 0; i < ((Graph *)g)->n; i++)
        free(((Graph *)g)->v[i].after);
    return free(((Graph *)g)->v), free(g), TOLD;
}
int cuStreamEndCapture(CUstream s, CUgraph *g)
{
    LOCKED;
    Stream *x = s;
    int told = TOLD;
    *g = x->capturing;
    x->capturing = NULL;
    if (x->into)
        return x->into = false, told;
    strict -= x->strict;
    bool joined = true;
    for (int i = 0; i < ((Graph *)*g)->forks; i++) {
        Stream *fork = ((Graph *)*g)->fork[i];
        joined = joined && fork->joined == fork->added;
        fork->capturing = NULL;
        fork->forked = false;
    }
    if (!told && joined && (!x->strict || x->ended == ended))
        return 0;
    cuGraphDestroy(*g);
    *g = NULL;
    return told ? told : 901;
}
/* Conditional nodes: a handle is the address of a Handle, which a kernel writes. Graphs are in
 * order, so a stream always waits for its last node. A switch runs the body whose number is its
 * value, an IF node its body unless that is 0. */
void cudaGraphSetConditional(unsigned long long handle, unsigned value);
void cudaGraphSetConditional(unsigned long long handle, unsigned value)
{
    ((Handle *)(uintptr_t)handle)->value = value;
}
int cuStreamGetCaptureInfo_v3(CUstream s, CUstreamCaptureStatus *status, cuuint64_t *id, CUgraph *g,
                              const CUgraphNode **after, const CUgraphEdgeData **edge, size_t *n)
{
    CALL;
    *status = s && ((Stream *)s)->capturing;
    *id = 1, *g = *status ? ((Stream *)s)->capturing : NULL, *after = NULL, *edge = NULL, *n = 0;
    return 0;
}
int cuStreamUpdateCaptureDependencies_v2(CUstream s, CUgraphNode *after,
                                         const CUgraphEdgeData *edge, size_t n, unsigned flags)
{
    CALL;
    return !((Stream *)s)->capturing || *after != ((Stream *)s)->capturing || edge || n != 1 ||
        flags != CU_STREAM_SET_CAPTURE_DEPENDENCIES;
}
int cuStreamBeginCaptureToGraph(CUstream s, CUgraph g, const CUgraphNode *after,
                                const CUgraphEdgeData *edge, size_t n, CUstreamCaptureMode m)
{
    CALL;
    ((Stream *)s)->capturing = g;
    ((Stream *)s)->into = true;
    ((Stream *)s)->strict = false;
    ((Stream *)s)->ended = ended;
    return after || edge || n || m != CU_STREAM_CAPTURE_MODE_RELAXED;
}
int cuGraphConditionalHandleCreate(CUgraphConditionalHandle *h, CUgraph g, CUcontext c,
                                   unsigned value, unsigned flags)
{
    CALL;
    Handle *x = malloc(sizeof *x);
    *x = (Handle){value, value};
    *h = (uintptr_t)x;
    return !g || gpu_of(c) < 0 || flags != CONDITION_ASSIGN_DEFAULT;
}
int cuGraphAddNode_v2(CUgraphNode *out, CUgraph g, const CUgraphNode *after,
                      const CUgraphEdgeData *edge, size_t n, CUgraphNodeParams *p)
{
    CALL;
    int kind = p->of.conditional.type;
    unsigned size = p->of.conditional.size;
    if (p->type != CU_GRAPH_NODE_TYPE_CONDITIONAL ||
        (kind != CU_GRAPH_COND_TYPE_IF && kind != CONDITION_SWITCH) || !size ||
        (kind == CU_GRAPH_COND_TYPE_IF && size != 1) || after || edge || n)
        return INVALID;
    Graph **body = malloc(sizeof *body * size);
    for (unsigned i = 0; i < size; i++)
        body[i] = calloc(1, sizeof **body);
    add(g, (Node){.body = body, .n = size, .picks = kind == CONDITION_SWITCH,
                  .wanted = (Handle *)(uintptr_t)p->of.conditional.handle});
    p->of.conditional.phGraph_out = (CUgraph *)body;
    *out = g;
    return 0;
}
int cuGraphCreate(CUgraph *g, unsigned flags)
{
    CALL;
    return *g = calloc(1, sizeof(Graph)), flags != 0;
}
int cuGraphAddKernelNode_v2(CUgraphNode *out, CUgraph g, const CUgraphNode *after, size_t n,
                            const CUDA_KERNEL_NODE_PARAMS *p)
{
    CALL;
    Node x = {.k = p->func, .grid = p->gridDimX * p->gridDimY * p->gridDimZ,
              .threads = p->blockDimX * p->blockDimY * p->blockDimZ};
    take(&x, p->kernelParams);
    x.alone = true;
    x.nafter = (int)n;
    x.after = n ? malloc(sizeof *x.after * n) : NULL;
    bool ok = !n || after;
    for (size_t i = 0; i < n && ok; i++) {
        x.after[i] = (int)(uintptr_t)after[i] - 1;             /* a node is its number, from 1 on */
        ok = x.after[i] >= 0 && x.after[i] < ((Graph *)g)->n;
    }
    log_in(NULL);
    log_node(((Graph *)g)->n, x.k->log.name, x.after, ok ? x.nafter : 0);
    add(g, x);
    *out = (CUgraphNode)(uintptr_t)((Graph *)g)->n;
    return !ok;
}
/* A launched graph runs, of the nodes whose dependencies have run, the last one. So a missing
 * dependency gives wrong results. */
static bool may_run(const Graph *g, int i, const bool *ran)
{
    bool may = !ran[i] && (g->v[i].alone || !i || ran[i - 1]);
    for (int k = 0; k < g->v[i].nafter && may; k++)
        may = ran[g->v[i].after[k]];
    return may;
}
int cuGraphGetNodes(CUgraph g, CUgraphNode *nodes, size_t *n)
{
    CALL;
    return *n = (size_t)((Graph *)g)->n, nodes != NULL;
}
int cuGraphInstantiateWithFlags(CUgraphExec *e, CUgraph g, unsigned long long flags)
{
    CALL;
    const Graph *from = g;
    Graph *to = calloc(1, sizeof *to);
    bool *ran = calloc((size_t)from->n + 1, sizeof *ran);
    for (int n = 0; n < from->n; n++) {
        int i = from->n - 1;
        while (!may_run(from, i, ran))
            i--;
        ran[i] = true;
        add(to, from->v[i]);
    }
    free(ran);
    *e = to;
    return flags != 0;
}
int cuGraphLaunch(CUgraphExec e, CUstream s)
{
    CALL;
    Graph *g = e;
    if (s && ((Stream *)s)->capturing)
        return INVALID;
    bool chooses = false;
    for (int i = 0; i < g->n; i++)
        chooses = chooses || g->v[i].wanted;
    for (int i = 0; i < g->n && late && s && !chooses; i++)
        run_in(s, g->v[i]);
    if (late && s && !chooses)
        return 0;
    finish_all();
    log_in(s);
    run_graph(g);
    return 0;
}
int cuGraphExecDestroy(CUgraphExec e)
{
    int rc = unsafe();
    return free(((Graph *)e)->v), free(e), rc ? rc : TOLD;
}

/* ---- events ---- */
typedef struct Event { double ms; Stream *stream; int added, told, lines; } Event;
int cuEventCreate(CUevent *e, unsigned flags)
{
    CALL;
    return *e = calloc(1, sizeof(Event)), flags > 3;
}
int cuEventDestroy_v2(CUevent e) { return free(e), TOLD; }
int cuEventRecord(CUevent e, CUstream s)
{
    CALL;
    const Stream *x = s;
    *(Event *)e =
        (Event){clock_ms, s, x ? x->added : 0, x ? x->told : 0, log_lines_of(s, log_rank)};
    return is_gone(s) ? INVALID_HANDLE : 0;
}
int cuEventSynchronize(CUevent e) { CALL; finish_all(); return e ? unsafe() : INVALID; }
int cuEventQuery(CUevent e) { CALL; finish_all(); return !e; }
int cuEventElapsedTime(float *ms, CUevent a, CUevent b)
{
    CALL;
    return *ms = (float)(((Event *)b)->ms - ((Event *)a)->ms), 0;
}
/* A stream that waits for a captured one is captured too. The first one must wait for all that is
 * in it, before its capture ends. Graphs are in order. */
int cuStreamWaitEvent(CUstream s, CUevent e, unsigned flags)
{
    CALL;
    const Event *x = e;
    Stream *from = x->stream, *to = s;
    if (is_gone(s))
        return INVALID_HANDLE;
    log_in(s);
    log_wait(from, x->lines);
    if (!from || !to || flags)
        return flags != 0;
    if (!from->capturing && !to->capturing && late) {
        to->told++;
        add(&to->later, (Node){.of = from, .n = (size_t)x->told});
    }
    if (!from->capturing)
        return 0;
    Graph *g = from->capturing;
    if (!to->capturing) {
        to->capturing = g;
        to->forked = true;
        to->added = to->joined = 0;
        g->fork[g->forks++] = to;
    } else if (from->forked && !to->forked) {
        from->joined = x->added;
    }
    return 0;
}
