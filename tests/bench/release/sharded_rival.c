/* --against sharded: a sharded binding with one rank. The rank's collectives are copies, or on a
 * GPU those of the NCCL that $OPTC_NCCL names. */
#include "tests/bench/release/release.h"

#include <dlfcn.h>
#include <stdlib.h>

typedef struct NcclId { char bytes[128]; } NcclId;
typedef struct ShardComm {
    optc_loopback *loopback;
    void *library, *comm;
    optc_nccl *nccl;
} ShardComm;

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

static bool bind_sharded(Bench *b, Case *c, optc_engine *e, const optc_rule_options *rule,
                         optc_tensor *t)
{
    const char *path = b->device.ops->async ? getenv("OPTC_NCCL") : NULL;
    optc_comm comm;
    optc_group group = {.tensors = t, .ntensors = c->ntensor};
    ShardComm *x = c->part = calloc(1, sizeof *x);
    (void)rule;
    if (!x)
        return cli_error("bench: out of memory"), false;
    bool open = path && *path ? open_nccl(x, path, &comm)
                              : bench_lib(optc_loopback_open(1, e, &x->loopback)) &&
                                    bench_lib(optc_loopback_comm(x->loopback, 0, &comm));
    return open && bench_lib(optc_bind_sharded(c->rule, &group, 1, &comm, &c->binding)) &&
           bench_inputs(b, c);
}

static void describe(const Case *r, Buf *text)
{
    const ShardComm *x = r->part;
    buf_printf(text, "sharded, %s", x && x->nccl ? "one rank, NCCL" : "one rank, copies");
}

static void close_sharded(Case *c)
{
    int (*destroy)(void *);
    ShardComm *x = c->part;
    if (!x)
        return;
    optc_nccl_close(x->nccl);
    *(void **)&destroy = x->comm ? dlsym(x->library, "ncclCommDestroy") : NULL;
    if (x->comm && destroy)
        destroy(x->comm);
    optc_loopback_close(x->loopback);
    free(x);
}

const RivalKind rival_sharded = {.name = "sharded",
                                 .about = "a sharded binding",
                                 .bind = bind_sharded,
                                 .unbind = close_sharded,
                                 .describe = describe};
