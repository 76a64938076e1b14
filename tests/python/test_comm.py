"""optc_comm filled in by torch.distributed: the functions are called by their C pointers, as the
library does."""
import ctypes
import os
import threading
import time
import unittest

import torch
import torch.distributed as dist

from optc.torch import _comm
from ranks import in_ranks

CPU = torch.device("cpu")


def gather(comm, mine, count):
    """all_gather of `count` bytes; (status, the received bytes)"""
    send, recv = ctypes.create_string_buffer(bytes(mine),
                                             count), ctypes.create_string_buffer(count * comm.ranks)
    status = comm.table.all_gather(None, ctypes.addressof(send), ctypes.addressof(recv), count,
                                   None)
    return status, recv.raw


def exchange(comm, parts, sizes):
    """all_to_all of one part per rank; (status, the received bytes)"""
    send, recv = ctypes.create_string_buffer(
        b"".join(parts)), ctypes.create_string_buffer(sum(sizes) + 1)
    out, into = (ctypes.c_size_t * comm.ranks)(*map(len, parts)), (ctypes.c_size_t *
                                                                   comm.ranks)(*sizes)
    status = comm.table.all_to_all(None, ctypes.addressof(send), out, ctypes.addressof(recv), into,
                                   None)
    return status, recv.raw[:sum(sizes)]


def part(sender, receiver):
    # of uneven sizes, some empty
    return bytes([16 * sender + receiver]) * ((sender + 2 * receiver) % 4)


def collectives():
    comm = _comm.comm_of(range(3), CPU)
    assert comm is _comm.comm_of((2, 1, 0), CPU) and comm.group is not dist.group.WORLD
    assert (comm.rank, comm.ranks) == (comm.table.rank, comm.table.ranks) == (dist.get_rank(), 3)
    for count in (1, 5, 100003):
        assert gather(comm, [65 + comm.rank] * count,
                      count) == (0, b"A" * count + b"B" * count + b"C" * count)
    assert gather(comm, b"", 0) == (0, b"")
    me, them = comm.rank, range(3)
    want = 0, b"".join(part(r, me) for r in them)
    assert exchange(comm, [part(me, r) for r in them], [len(part(r, me)) for r in them]) == want
    assert exchange(comm, [b""] * 3, [0] * 3) == (0, b"")
    found = []                                         # the library's threads call too
    other = threading.Thread(target=lambda: found.append(gather(comm, [me], 1)))
    other.start()
    other.join()
    assert found == [(0, bytes([0, 1, 2]))] and comm.failed() is None
    assert comm.largest(float(me == 1)).item() == 1 and comm.gathered(me) == [0, 1, 2]
    assert comm.mesh.mesh.tolist() == [0, 1, 2]
    if me < 2:
        few = _comm.comm_of((0, 1), CPU)
        assert few is not comm and gather(few, [me], 1) == (0, bytes([0, 1]))
    else:
        try:
            _comm.comm_of((0, 1), CPU)
            raise AssertionError("a group without this rank was made")
        except ValueError as e:
            assert "rank 2" in str(e)
    return str(_comm._timeout("gloo"))


def dies():
    """A rank ends in the middle: the others get an error at once. No exception passes through C."""
    comm = _comm.comm_of(range(3), CPU)
    gather(comm, [comm.rank], 1)
    if comm.rank == 2:
        os._exit(0)
    begin = time.monotonic()
    status, _ = gather(comm, [comm.rank], 1)
    error = comm.failed()
    assert status == 1 and isinstance(error, RuntimeError) and comm.failed() is None, (status,
                                                                                       error)
    return time.monotonic() - begin


class CommTest(unittest.TestCase):
    def test_collectives(self):
        self.assertEqual(in_ranks(3, collectives), ["0:01:00"] * 3)

    def test_a_rank_that_dies(self):
        self.assertLess(max(in_ranks(3, dies, dying=(2,))[:2]), 20)

    def test_without_processes(self):
        with self.assertRaisesRegex(RuntimeError, "init_process_group"):
            _comm.comm_of((0,), CPU)
