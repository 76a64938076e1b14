/* Communication of sharded bindings by NCCL, with the caller's communicator. NCCL is opened by
 * dlopen: the library that is loaded in the process, since the communicator belongs to it, or
 * libnccl.so.2. All calls only enqueue work on the stream, so steps can be captured in CUDA
 * graphs. */
#include "runtime/core/base/core.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

/* As nccl.h declares them: results and types are enumerations, communicators are opaque. NCCL 2.7
 * has all of them. */
typedef void *ncclComm_t;
typedef int ncclResult_t;
enum { ncclSuccess = 0, ncclInProgress = 7, ncclInt8 = 0 };
#define NCCL_FUNCTIONS(F)                                                                  \
    F(ncclResult_t, ncclCommCount, (const ncclComm_t, int *))                              \
    F(ncclResult_t, ncclCommUserRank, (const ncclComm_t, int *))                           \
    F(ncclResult_t, ncclAllGather, (const void *, void *, size_t, int, ncclComm_t, void *)) \
    F(ncclResult_t, ncclSend, (const void *, size_t, int, int, ncclComm_t, void *))        \
    F(ncclResult_t, ncclRecv, (void *, size_t, int, int, ncclComm_t, void *))              \
    F(ncclResult_t, ncclGroupStart, (void))                                                \
    F(ncclResult_t, ncclGroupEnd, (void))                                                  \
    F(const char *, ncclGetErrorString, (ncclResult_t))

struct optc_nccl {
    void *library;
    ncclComm_t comm;
    int rank, ranks;
#define NCCL_MEMBER(result, name, args) result (*name) args;
    NCCL_FUNCTIONS(NCCL_MEMBER)
#undef NCCL_MEMBER
};

typedef struct NcclSymbol { const char *name; size_t at; } NcclSymbol;
static const NcclSymbol nccl_symbols[] = {
#define NCCL_SYMBOL(result, name, args) {#name, offsetof(optc_nccl, name)},
    NCCL_FUNCTIONS(NCCL_SYMBOL)
#undef NCCL_SYMBOL
};

/* A communicator that does not block returns ncclInProgress and enqueues its work later, behind the
 * launch that
 * unpacks: it is refused. */
static int nccl_failed(const optc_nccl *n, const char *call, ncclResult_t rc)
{
    if (rc == ncclSuccess)
        return 0;
    const char *text = rc == ncclInProgress
                           ? "the communicator does not block (ncclConfig_t.blocking = 0); use one "
                             "that does"
                           : n->ncclGetErrorString(rc);
    (void)fail(OPTC_ERROR_DEVICE, "%s: %s", call, text ? text : "unknown error");
    return rc;
}

/* ---- the functions of optc_comm ---- */
static int nccl_all_gather(void *context, const void *send, void *recv, size_t bytes, void *stream)
{
    const optc_nccl *n = (const optc_nccl *)context;
    return nccl_failed(n, "ncclAllGather",
                       n->ncclAllGather(send, recv, bytes, ncclInt8, n->comm, stream));
}

static int send_and_receive(const optc_nccl *n, const char *send, const size_t *send_bytes,
                            char *recv, const size_t *recv_bytes, void *stream)
{
    int rc = 0;
    for (int r = 0; r < n->ranks && !rc; r++) {
        if (send_bytes[r])
            rc = nccl_failed(n, "ncclSend",
                             n->ncclSend(send, send_bytes[r], ncclInt8, r, n->comm, stream));
        if (recv_bytes[r] && !rc)
            rc = nccl_failed(n, "ncclRecv",
                             n->ncclRecv(recv, recv_bytes[r], ncclInt8, r, n->comm, stream));
        send += send_bytes[r];
        recv += recv_bytes[r];
    }
    return rc;
}

/* Grouped sends and receives, also for the rank's own part: NCCL copies it. */
static int nccl_all_to_all(void *context, const void *send, const size_t *send_bytes, void *recv,
                           const size_t *recv_bytes, void *stream)
{
    const optc_nccl *n = (const optc_nccl *)context;
    int rc = nccl_failed(n, "ncclGroupStart", n->ncclGroupStart());
    if (rc)
        return rc;
    rc = send_and_receive(n, (const char *)send, send_bytes, (char *)recv, recv_bytes, stream);
    /* also after a failure: the group is the thread's */
    ncclResult_t end = n->ncclGroupEnd();
    return rc ? rc : nccl_failed(n, "ncclGroupEnd", end);
}

/* ---- opening ---- */
static optc_status open_library(optc_nccl *n, const char *path)
{
    const char *name = path ? path : "libnccl.so.2";
    n->library = dlopen(name, RTLD_NOW | RTLD_NOLOAD);
    if (!n->library)
        n->library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (!n->library) {
        const char *why = dlerror();
        return fail(OPTC_ERROR_UNAVAILABLE,
                    "optc_nccl_open: NCCL cannot be loaded: %s; pass the path of libnccl.so.2",
                    why ? why : name);
    }
    for (size_t i = 0; i < sizeof nccl_symbols / sizeof *nccl_symbols; i++) {
        void *f = dlsym(n->library, nccl_symbols[i].name);
        if (!f)
            return fail(OPTC_ERROR_UNAVAILABLE,
                        "optc_nccl_open: %s has no function %s; NCCL 2.7 or newer is needed", name,
                        nccl_symbols[i].name);
        memcpy((char *)n + nccl_symbols[i].at, &f, sizeof f);
    }
    return OPTC_OK;
}

optc_status optc_nccl_open(void *communicator, const char *library, optc_nccl **out)
{
    if (out)
        *out = NULL;
    if (!communicator || !out)
        return fail(OPTC_ERROR_ARGUMENT, "optc_nccl_open: %s is NULL",
                    out ? "the communicator" : "the result pointer");
    optc_nccl *n = (optc_nccl *)calloc(1, sizeof *n);
    if (!n)
        return no_memory("optc_nccl_open");
    n->comm = communicator;
    optc_status s = open_library(n, library);
    if (s == OPTC_OK &&
        (nccl_failed(n, "optc_nccl_open: ncclCommCount", n->ncclCommCount(n->comm, &n->ranks)) ||
         nccl_failed(n, "optc_nccl_open: ncclCommUserRank",
                     n->ncclCommUserRank(n->comm, &n->rank))))
        s = OPTC_ERROR_DEVICE;
    if (s != OPTC_OK) {
        optc_nccl_close(n);
        return s;
    }
    *out = n;
    return OPTC_OK;
}

optc_status optc_nccl_comm(optc_nccl *n, optc_comm *out)
{
    if (!n || !out)
        return fail(OPTC_ERROR_ARGUMENT, "optc_nccl_comm: %s is NULL",
                    n ? "the result pointer" : "the object");
    *out = (optc_comm){n->rank, n->ranks, n, nccl_all_gather, nccl_all_to_all};
    return OPTC_OK;
}

void optc_nccl_close(optc_nccl *n)
{
    if (!n)
        return;
    if (n->library)
        dlclose(n->library);
    free(n);
}
