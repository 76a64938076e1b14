/* library: */
/* Sharded bindings: one model in several processes. optc.h includes this file: programs include
 * optc.h only. runtime/SHARDING.md has an example and the details. */
/* :library */
#ifndef OPTC_PUBLIC_SHARD_H
#define OPTC_PUBLIC_SHARD_H

/* How the ranks of a sharded binding exchange data. The caller fills it in. Each function is called
 * by all ranks in the same order. It returns 0, or a number other than 0 after a failure: the step
 * then fails on this rank, and the binding refuses to work until the caller binds again. Buffers
 * are in the device's memory. On a GPU the functions enqueue their work on `stream` (a CUstream)
 * and do not wait. On a CPU they return when the data has arrived, and `stream` is NULL.
 *
 * all_gather   every rank sends `bytes` bytes; recv receives ranks * bytes bytes, in the order of
 *              the ranks
 * all_to_all   sends send_bytes[r] bytes to each rank r, and receives recv_bytes[r] bytes from it.
 *              This rank is one of them. The parts follow each other in the order of the ranks.
 *              Both arrays of sizes stay valid until optc_unbind */
typedef struct optc_comm {
    int rank, ranks;
    void *context;
    int (*all_gather)(void *context, const void *send, void *recv, size_t bytes, void *stream);
    int (*all_to_all)(void *context, const void *send, const size_t *send_bytes, void *recv,
                      const size_t *recv_bytes, void *stream);
} optc_comm;
/* As optc_connect, for an optimizer whose tensors are in several processes that have different
 * ones, such as the stages of a pipeline: values of all tensors are over the bindings of all ranks
 * of `comm`, which has one process of each stage. Every rank passes n bindings, compiled with
 * optc_rule_options.bindings = n * ranks. The bindings may be sharded, over other ranks.
 * optc_run_all is then collective over `comm`; it takes these bindings in this order, and refuses
 * another list if the entry needs such values. A new call, or optc_connect, replaces the
 * connection. */
optc_status optc_connect_ranks(optc_binding *const *b, int n, const optc_comm *comm);

/* Binds a model whose tensors are cut into pieces, one per rank. All ranks call it together, with
 * the same rule, the same groups and the same tensors in the same order. Each rank passes its own
 * piece: `shape` is the piece's shape, `global_shape` the whole tensor's, `offset` the piece's
 * position. A piece may be empty, but needs a gradient pointer that is not NULL to take part in
 * steps. Ranks that pass the same piece are replicas. Pieces must cover the tensor.
 *
 * Steps are collective: all ranks run the same entries in the same order. The results do not depend
 * on the number of ranks or on the cuts. runtime/SHARDING.md describes what is exchanged. */
optc_status optc_bind_sharded_sized(optc_rule *r, const optc_group *groups, int ngroups,
                                    size_t group_size, size_t tensor_size, const optc_comm *comm,
                                    optc_binding **out);
static inline optc_status optc_bind_sharded(optc_rule *r, const optc_group *groups, int ngroups,
                                            const optc_comm *comm, optc_binding **out)
{
    return optc_bind_sharded_sized(r, groups, ngroups, sizeof(optc_group), sizeof(optc_tensor),
                                   comm, out);
}
/* Where a state of a tensor is stored. *rank: the rank that holds all of it; -1: every rank holds
 * the values of its own piece, or the same values (states per tensor and per group). In a binding
 * that is not sharded: -1. */
optc_status optc_state_rank(const optc_binding *b, int tensor, const char *name, int *rank);
/* Computes the bytes that a rank of a sharded binding sends and holds, and the work of all ranks.
 * The call allocates no tensors and needs no other process. groups: the whole tensors; param and
 * grad may be NULL. They are cut along dimension 0 into equal pieces, as torch.chunk does. Bytes
 * and work are means over the steps of the entry "step". Work counts operations of products and
 * factors, plus elements, of the tensors that a rank owns. */
typedef struct optc_shard_plan {
    int collectives;                       /* calls of a step, at most, with the one that compares
                                            * participation */
    int owned;                             /* tensors that this rank owns */
    double sent;                           /* bytes that this rank sends to others */
    double work, mean_work, most_work;     /* of this rank; of all ranks */
    double largest_work;                   /* of the most expensive tensor, which cannot be
                                            * divided */
    int64_t elements;                      /* of this rank's pieces */
    int64_t states, temporaries, buffers;  /* bytes; buffers: of the exchanges, and whole tensors at
                                            * their owner */
    /* On a GPU: groups of tensors whose exchanges run beside the owners' stages (0: none), and how
     * many of the bytes `sent` do. results: results of owners do too, not only their operands */
    int groups, results;
    double overlapped;
} optc_shard_plan;
optc_status optc_plan_sharded_sized(optc_rule *r, const optc_group *groups, int ngroups, int rank,
                                    int ranks, optc_shard_plan *out, size_t size);
static inline optc_status optc_plan_sharded(optc_rule *r, const optc_group *groups, int ngroups,
                                            int rank, int ranks, optc_shard_plan *out)
{
    return optc_plan_sharded_sized(r, groups, ngroups, rank, ranks, out, sizeof(optc_shard_plan));
}
/* library: */
/* Ranks that are threads of one program, for tests and for trying a sharded binding.
 * optc_loopback_open makes an object for `ranks` ranks; optc_loopback_comm fills in the functions
 * of one rank. Each rank needs its own thread, because the functions wait until all ranks have
 * called them. optc_loopback_fail makes all waiting and later calls fail.
 *
 * e: the engine of the bindings, open until optc_loopback_close. With a GPU engine all ranks use
 * that GPU, and each exchange waits for the stream on the host. A single rank does not wait, so its
 * steps can be captured in a graph.
 * NULL: host memory. */
typedef struct optc_loopback optc_loopback;
optc_status optc_loopback_open(int ranks, optc_engine *e, optc_loopback **out);
optc_status optc_loopback_comm(optc_loopback *l, int rank, optc_comm *out);
void optc_loopback_fail(optc_loopback *l);
void optc_loopback_close(optc_loopback *l);
/* NCCL, for one GPU per process. communicator: an ncclComm_t of the caller, with the ranks of the
 * binding; no other thread may use it during a call of the binding. library: the path of
 * libnccl.so.2; NULL: the one that is loaded, or that the loader finds. optc_nccl_comm fills in the
 * functions. They only enqueue work, so steps can be captured. Unbind before optc_nccl_close; the
 * communicator stays the caller's. */
typedef struct optc_nccl optc_nccl;
optc_status optc_nccl_open(void *communicator, const char *library, optc_nccl **out);
optc_status optc_nccl_comm(optc_nccl *n, optc_comm *out);
void optc_nccl_close(optc_nccl *n);
/* :library */
#endif
