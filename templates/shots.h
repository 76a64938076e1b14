/* Launches that are made ready once, one by one or as a graph of them, and memory of the device. Pasted into packages and included by runtime/gpu.h, behind
 * the types Driver and Stage of either. */
#ifndef OPTC_SHOTS_H
#define OPTC_SHOTS_H
#include <string.h>

#define OPTC_SHOT static inline __attribute__((unused))

typedef struct { CUdeviceptr views, mem, units; long long count; int guard, tick; } Args;                    /* optc_launch of the kernels */
typedef struct Shot { CUfunction fn; unsigned blocks, threads; Args args; const Stage *stage; } Shot;        /* stage NULL: t moves on */
typedef struct Play { Shot *shot; int n, runs; CUgraphExec exec; } Play;                                     /* an entry in one phase; exec: from its second run on */

OPTC_SHOT int shot_fire(const Driver *d, const Shot *x, int guard, CUstream stream)
{
    Args a = x->args;
    void *args[] = {&a};
    a.guard = guard;
    return d->cuLaunchKernel(x->fn, x->blocks, 1, 1, x->threads, 1, 1, 0, stream, args, NULL);
}

/* The same launches as a graph, one behind the other. Failing is no error: single launches do the same. */
OPTC_SHOT void play_graph(const Driver *d, Play *p)
{
    CUgraph graph = NULL;
    CUgraphNode node = NULL;
    bool ok = d->cuGraphCreate(&graph, 0) == 0;
    for (int i = 0; i < p->n && ok; i++) {
        void *args[] = {&p->shot[i].args};
        CUgraphNode before = node;
        CUDA_KERNEL_NODE_PARAMS k;
        memset(&k, 0, sizeof k);
        k.func = p->shot[i].fn;
        k.gridDimX = p->shot[i].blocks;
        k.blockDimX = p->shot[i].threads;
        k.gridDimY = k.gridDimZ = k.blockDimY = k.blockDimZ = 1;
        k.kernelParams = args;
        ok = d->cuGraphAddKernelNode_v2(&node, graph, i ? &before : NULL, i ? 1 : 0, &k) == 0;
    }
    if (ok && d->cuGraphInstantiateWithFlags(&p->exec, graph, 0) != 0)
        p->exec = NULL;
    if (graph)
        d->cuGraphDestroy(graph);
}

/* Allocating, freeing and waiting would end a capture that any stream of the program has under way (in the mode that is usual there), though they have nothing to
 * do with it: binding and unbinding say so, and put back what was. Against a stream that keeps in step with the default one nothing helps: CUDA lets nobody use
 * that one meanwhile. */
OPTC_SHOT CUstreamCaptureMode capture_mode(const Driver *d, CUstreamCaptureMode mode)
{
    return d->cuThreadExchangeStreamCaptureMode(&mode) ? CU_STREAM_CAPTURE_MODE_GLOBAL : mode;
}

OPTC_SHOT void device_free(const Driver *d, CUdeviceptr p, CUstream stream)
{
    d->cuStreamSynchronize(stream);
    d->cuMemFree_v2(p);
}
#endif
