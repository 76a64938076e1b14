"""Communication of sharded bindings: fills in an optc_comm by torch.distributed. Every set of ranks
has a process group of its own, because collectives of a step that shared FSDP's group could be
ordered differently on two ranks. Parameters on the CPU use gloo, parameters on GPUs NCCL, also if
the default group has only the other one."""
import ctypes
import os

import torch
import torch.distributed as dist

from .. import _lib

BACKENDS = {"cpu": "gloo", "cuda": "nccl"}
# tensors over exchanged memory that a Comm keeps
VIEWS = 256
# (pid, ranks, device type): (the world at that time, Comm)
_made = {}


def comm_of(ranks, device):
    """The Comm of these global ranks for tensors of a device. The first call is collective: all
    ranks make it."""
    if not dist.is_initialized():
        raise RuntimeError("sharded parameters need torch.distributed: call init_process_group "
                           "first")
    ranks = tuple(sorted(ranks))
    if dist.get_rank() not in ranks:
        raise ValueError("this process has rank %d, which is not one of the ranks that step these "
                         "parameters: %s"
                         % (dist.get_rank(), ", ".join(map(str, ranks))))
    key = os.getpid(), ranks, device.type
    world, comm = _made.get(key, (None, None))
    # the group was destroyed, and another one was made
    if comm is None or world is not dist.group.WORLD:
        world = dist.group.WORLD
        comm = Comm(_new_group(ranks, BACKENDS[device.type]), device)
        _made[key] = world, comm
    return comm


def _new_group(ranks, backend):
    return dist.new_group(list(ranks), backend=backend, timeout=_timeout(backend),
                          use_local_synchronization=True)


def _timeout(backend):
    """The time limit that the caller gave to init_process_group, if that is known; None: torch's
    default."""
    for device, name in BACKENDS.items():
        if name == backend:
            try:
                return dist.group.WORLD._get_backend(torch.device(device)).options._timeout
            except (RuntimeError, AttributeError):
                return None
    return None


def _options(name):
    """Options of a collective that its caller waits for: NCCL then runs it in the current
    stream."""
    options = getattr(torch.distributed.distributed_c10d, name)()
    if hasattr(options, "asyncOp"):
        options.asyncOp = False
    return options


class _DeviceMemory:
    """Memory of a GPU, for torch.as_tensor."""

    def __init__(self, address, count):
        self.__cuda_array_interface__ = {
            "shape": (count,), "typestr": "|u1", "data": (address, False), "version": 3
        }


class Comm:
    """rank, ranks; table: the optc_comm. Functions of the table cannot raise, so the first
    exception is kept: `failed` returns it, and the caller raises it."""

    def __init__(self, group, device):
        self.group, self.device = group, device
        self.rank, self.ranks = dist.get_rank(group), dist.get_world_size(group)
        self._error = self._mesh = None
        self._views = {}
        # before torch 2.13
        self._gather = getattr(group, "all_gather_single", None) or group._allgather_base
        self._swap = getattr(group, "all_to_all_single", None) or group.alltoall_base
        self._gather_options, self._swap_options = _options("AllgatherOptions"), _options(
            "AllToAllOptions")
        self.table = _lib.Comm(rank=self.rank, ranks=self.ranks,
                               all_gather=_lib.ALL_GATHER(self._all_gather),
                               all_to_all=_lib.ALL_TO_ALL(self._all_to_all))

    def failed(self):
        """The exception of the last failed call, once; None: none failed."""
        error, self._error = self._error, None
        return error

    # ---- functions of the table; a thread of the library calls them, not always the one that
    # called the library ---- They call the process group itself: the functions of torch.distributed
    # around it take as long as a small exchange.
    def _all_gather(self, _context, send, recv, count, stream):
        return self._run(stream, self._gather, self._bytes(recv, count * self.ranks),
                         self._bytes(send, count), self._gather_options) if count else 0

    def _all_to_all(self, _context, send, send_bytes, recv, recv_bytes, stream):
        out, into = send_bytes[:self.ranks], recv_bytes[:self.ranks]
        return self._run(stream, self._swap, self._bytes(recv, sum(into)),
                         self._bytes(send, sum(out)), into, out, self._swap_options)

    def _run(self, stream, call, *given):
        try:
            with torch.no_grad() if self._is_current(stream) else self._on(stream):
                work = call(*given)
                if work is not None:
                    work.wait()
            return 0
        except BaseException as e:                     # a KeyboardInterrupt too: C would ignore it
            self._error = self._error or e
            return 1

    def _is_current(self, stream):
        if self.device.type != "cuda":
            return True
        index = torch.cuda.current_device() if self.device.index is None else self.device.index
        return torch._C._cuda_getCurrentRawStream(index) == (stream or 0)

    def _on(self, stream):
        return torch.cuda.stream(torch.cuda.ExternalStream(stream, self.device) if stream else
                                 torch.cuda.default_stream(self.device))

    def _bytes(self, address, count):
        """Memory as a tensor of bytes, without a copy. A step uses the same few ranges again: their
        tensors are kept, which own nothing."""
        found = self._views.get((address, count))
        if found is None:
            if len(self._views) >= VIEWS:
                self._views.clear()
            found = self._views[address, count] = self._view(address, count)
        return found

    def _view(self, address, count):
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
