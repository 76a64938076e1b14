"""Communication of sharded bindings: fills in an optc_comm by torch.distributed. Every set of ranks has a process group
of its own, because collectives of a step that shared FSDP's group could be ordered differently on two ranks. Parameters
on the CPU use gloo, parameters on GPUs NCCL, also if the default group has only the other one."""
import ctypes
import os

import torch
import torch.distributed as dist

from .. import _lib

BACKENDS = {"cpu": "gloo", "cuda": "nccl"}
_made = {}                                             # (pid, ranks, device type): (the world at that time, Comm)


def comm_of(ranks, device):
    """The Comm of these global ranks for tensors of a device. The first call is collective: all ranks make it."""
    if not dist.is_initialized():
        raise RuntimeError("sharded parameters need torch.distributed: call init_process_group first")
    ranks = tuple(sorted(ranks))
    if dist.get_rank() not in ranks:
        raise ValueError("this process has rank %d, which is not one of the ranks that step these parameters: %s"
                         % (dist.get_rank(), ", ".join(map(str, ranks))))
    key = os.getpid(), ranks, device.type
    world, comm = _made.get(key, (None, None))
    if comm is None or world is not dist.group.WORLD:          # the group was destroyed, and another one was made
        world = dist.group.WORLD
        comm = Comm(_new_group(ranks, BACKENDS[device.type]), device)
        _made[key] = world, comm
    return comm


def _new_group(ranks, backend):
    return dist.new_group(list(ranks), backend=backend, timeout=_timeout(backend), use_local_synchronization=True)


def _timeout(backend):
    """The time limit that the caller gave to init_process_group, if that is known; None: torch's default."""
    for device, name in BACKENDS.items():
        if name == backend:
            try:
                return dist.group.WORLD._get_backend(torch.device(device)).options._timeout
            except (RuntimeError, AttributeError):
                return None
    return None


class _DeviceMemory:
    """Memory of a GPU, for torch.as_tensor."""

    def __init__(self, address, count):
        self.__cuda_array_interface__ = {"shape": (count,), "typestr": "|u1", "data": (address, False), "version": 3}


class Comm:
    """rank, ranks; table: the optc_comm. Functions of the table cannot raise, so the first exception is kept: `failed`
    returns it, and the caller raises it."""

    def __init__(self, group, device):
        self.group, self.device = group, device
        self.rank, self.ranks = dist.get_rank(group), dist.get_world_size(group)
        self._error = self._mesh = None
        self.table = _lib.Comm(rank=self.rank, ranks=self.ranks, all_gather=_lib.ALL_GATHER(self._all_gather),
                               all_to_all=_lib.ALL_TO_ALL(self._all_to_all))

    def failed(self):
        """The exception of the last failed call, once; None: none failed."""
        error, self._error = self._error, None
        return error

    # ---- functions of the table; a thread of the library calls them, not always the one that called the library ----
    def _all_gather(self, _context, send, recv, count, stream):
        return self._run(stream, lambda: dist.all_gather_into_tensor(
            self._bytes(recv, count * self.ranks), self._bytes(send, count), group=self.group) if count else None)

    def _all_to_all(self, _context, send, send_bytes, recv, recv_bytes, stream):
        out, into = send_bytes[:self.ranks], recv_bytes[:self.ranks]
        return self._run(stream, lambda: dist.all_to_all_single(
            self._bytes(recv, sum(into)), self._bytes(send, sum(out)), into, out, group=self.group))

    def _run(self, stream, call):
        try:
            with torch.no_grad(), self._on(stream):
                call()
            return 0
        except BaseException as e:                     # a KeyboardInterrupt too: C would ignore it
            self._error = self._error or e
            return 1

    def _on(self, stream):
        if self.device.type != "cuda":
            return torch.no_grad()
        return torch.cuda.stream(torch.cuda.ExternalStream(stream, self.device) if stream else
                                 torch.cuda.default_stream(self.device))

    def _bytes(self, address, count):
        """Memory as a tensor of bytes, without a copy."""
        if not count:
            return torch.empty(0, dtype=torch.uint8, device=self.device)
        if self.device.type == "cuda":
            return torch.as_tensor(_DeviceMemory(address, count), device=self.device)
        return torch.frombuffer((ctypes.c_uint8 * count).from_address(address), dtype=torch.uint8)

    # ---- for the optimizer ----
    @torch.no_grad()
    def largest(self, number):
        """The largest of the ranks' numbers, as a new tensor on the device of the group."""
        most = torch.as_tensor(number, dtype=torch.float32, device=self.device).clone()
        dist.all_reduce(most, dist.ReduceOp.MAX, group=self.group)
        return most

    def gathered(self, item):
        """A small object of every rank, as a list."""
        found = [None] * self.ranks
        dist.all_gather_object(found, item, group=self.group)
        return found

    @property
    def mesh(self):
        """A mesh of one dimension with all ranks, for states that one rank holds."""
        if self._mesh is None:
            from torch.distributed.device_mesh import DeviceMesh
            self._mesh = DeviceMesh.from_group(self.group, self.device.type)
        return self._mesh
