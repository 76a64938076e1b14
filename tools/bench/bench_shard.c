/* Sharded bindings with one rank, for --against sharded. The rank's collectives are copies, or on a
 * GPU those of the NCCL that $OPTC_NCCL names. */
#include "tools/bench/bench.h"

#include <dlfcn.h>
#include <stdlib.h>

typedef struct NcclId { char bytes[128]; } NcclId;
struct ShardComm {
    optc_loopback *loopback;
    void *library, *comm;
    optc_nccl *nccl;
};

static bool open_nccl(ShardComm *x, const char *path, optc_comm *out)
{
    int (*id)(NcclId *), (*init)(void **, int, NcclId, int);
    NcclId one;
    if (!(x->library = dlopen(path, RTLD_NOW | RTLD_LOCAL)))
        return cli_error("bench: $OPTC_NCCL: %s", dlerror()), false;
    *(void **)&id = dlsym(x->library, "ncclGetUniqueId");
    *(void **)&init = dlsym(x->library, "ncclCommInitRank");
    if (!id || !init || id(&one) || init(&x->comm, 1, one, 0))
        return cli_error("bench: $OPTC_NCCL: %s makes no communicator with one rank", path), false;
    return bench_lib(optc_nccl_open(x->comm, path, &x->nccl)) &&
           bench_lib(optc_nccl_comm(x->nccl, out));
}

bool bench_shard_open(const Bench *b, optc_engine *e, ShardComm **out, optc_comm *comm)
{
    const char *path = b->device.ops->async ? getenv("OPTC_NCCL") : NULL;
    ShardComm *x = *out = calloc(1, sizeof *x);
    if (!x)
        return cli_error("bench: out of memory"), false;
    return path && *path ? open_nccl(x, path, comm)
                         : bench_lib(optc_loopback_open(1, e, &x->loopback)) &&
                               bench_lib(optc_loopback_comm(x->loopback, 0, comm));
}

const char *bench_shard_name(const ShardComm *x)
{
    return x && x->nccl ? "one rank, NCCL" : "one rank, copies";
}

void bench_shard_close(ShardComm *x)
{
    int (*destroy)(void *);
    if (!x)
        return;
    optc_nccl_close(x->nccl);
    *(void **)&destroy = x->comm ? dlsym(x->library, "ncclCommDestroy") : NULL;
    if (x->comm && destroy)
        destroy(x->comm);
    optc_loopback_close(x->loopback);
    free(x);
}
