"""Runs a function in several processes of one gloo group, for tests of sharded training. The
processes are forked, so that nothing is imported twice."""
import datetime
import importlib
import multiprocessing
import os
import pickle
import queue
import tempfile
import time
import traceback

import torch.distributed as dist

LIMIT = 60                                             # seconds that one function may take


def _rank(rank, world, store, work, given, dying, results):
    try:
        dist.init_process_group("gloo", init_method="file://" + store, rank=rank, world_size=world,
                                timeout=datetime.timedelta(seconds=LIMIT))
        found = work(*given)
        if not dying:
            # a rank that ends early would break the others' connections
            dist.barrier()
        # here: a queue's thread would lose its error
        results.put((rank, None, pickle.dumps(found)))
        dist.destroy_process_group()
    except BaseException:
        results.put((rank, "rank %d: %s" % (rank, traceback.format_exc()), None))


def in_ranks(world, work, *given, dying=()):
    """The results of work(*given) of all ranks, in their order. dying: ranks that end without one.
    Raises the errors of all ranks together."""
    for name in ("_dynamo", "distributed.checkpoint.state_dict",
                 "distributed.checkpoint._fsspec_filesystem", "distributed.fsdp",
                 "distributed.tensor.parallel"):
        # what processes would import: one second in each of them
        importlib.import_module("torch." + name)
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    fork = multiprocessing.get_context("fork")
    with tempfile.TemporaryDirectory() as folder:
        results = fork.Queue()
        made = [
            fork.Process(
                target=_rank, args=(k, world, os.path.join(folder,
                                                           "store"), work, given, dying, results))
            for k in range(world)
        ]
        for p in made:
            p.start()
        said, end = {}, time.monotonic() + 2 * LIMIT
        try:
            while len(said) < world - len(dying):
                rank, error, found = results.get(timeout=max(0.1, end - time.monotonic()))
                said[rank] = error, found
        except queue.Empty:
            missing = sorted(set(range(world)) - set(said) - set(dying))
            raise AssertionError("no answer of the ranks %s; the others: %s" % (
                missing, [error for error, _ in said.values() if error])) from None
        finally:
            for p in made:
                p.join(5)
                p.kill()
    errors = [error for error, _ in said.values() if error]
    if errors:
        raise AssertionError("\n".join(errors))
    return [pickle.loads(said[k][1]) if k in said else None for k in range(world)]
