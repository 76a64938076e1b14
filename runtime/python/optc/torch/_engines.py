"""Engines of optc over torch's devices and torch's memory."""
import bisect
import contextlib
import os
import threading

import torch

from .. import _lib
from .._api import Engine

DTYPES = {t.number: getattr(torch, t.dtype) for t in _lib.TYPES if hasattr(torch, t.dtype)}
TYPES = _lib.first_of((d, t.name) for t in _lib.TYPES
                      if (d := DTYPES.get(t.number)) is not None and d.is_floating_point)
_open = {}                                             # (pid, device, threads, workspace): Device, shared by all


class Device:
    """An engine whose bindings live in memory of torch's allocator, and the rules compiled on it."""

    def __init__(self, device, threads, workspace=0):
        self.device = device
        self.buffers = buffers = {}                    # address: the tensor that is this memory
        self.rules = {}
        self._starts, self._lock = None, threading.RLock()
        self._passing = threading.local()              # on: what is allocated is given back by the same call

        def alloc(size, _stream):
            with self._outside():                      # torch.empty may fill, in a stream that nobody waits for
                storage = torch.UntypedStorage(max(size, 1), device=device)
                memory = torch.empty(0, dtype=torch.uint8, device=device).set_(storage)
            with self._lock:
                buffers[memory.data_ptr()] = memory
                self._starts = None
            return memory.data_ptr()

        def release(address, _size, _stream):
            with self._lock:
                self._starts = None
                buffers.pop(address, None)
        name = "cpu" if device.type == "cpu" else "%s:%d" % (device.type, device.index)
        self.engine = Engine(name, threads=threads, allocator=(alloc, release), workspace=workspace)

    def _outside(self):
        """What is allocated in a stream that is being captured lies in the graph's own memory, where work that was
        captured ahead of it may write at every replay: what we keep is taken from another stream's."""
        if not capturing(self.device) or getattr(self._passing, "on", False):
            return contextlib.nullcontext()
        if self._side is None:
            self._side = torch.cuda.Stream(self.device)
        return torch.cuda.stream(self._side)
    _side = None

    @contextlib.contextmanager
    def passing(self):
        """Around calls that keep nothing: what they work in while they are captured is the graph's, for it is free for
        others once the call is over, and replays write to it."""
        self._passing.on = True
        try:
            yield
        finally:
            self._passing.on = False

    def rule(self, **what):
        key = repr(sorted(what.items()))
        if key not in self.rules:
            self.rules[key] = self.engine.compile(**what)
        return self.rules[key]

    def tensor(self, address, count, kind, memory=None):
        """The live memory at an address, as a flat tensor with a storage of its own, so that saving and copying it take
        no more than it; the storage holds on to the memory it is a part of (`memory`, where the caller has it)."""
        memory = self.holding(address) if memory is None else memory
        at = address - memory.data_ptr()
        part = memory.untyped_storage()[at:at + count * _lib.TYPE_BYTES[kind]]
        return torch.empty(0, dtype=DTYPES[kind], device=self.device).set_(part, 0, (count,), (1,))

    def holding(self, address):
        """The memory that an address lies in."""
        with self._lock:
            if self._starts is None:
                self._starts = sorted(self.buffers)
            return self.buffers[self._starts[bisect.bisect_right(self._starts, address) - 1]]

    def empty(self):
        """An address for tensors of no elements."""
        if self._empty is None:
            self._empty = torch.empty(256, dtype=torch.uint8, device=self.device)
        return self._empty.data_ptr()
    _empty = None

    def used_in(self, stream, more=()):
        """All of it is used in another stream from now on: torch must not hand it out before that is done."""
        with self._lock:
            every = (*self.buffers.values(), *more)
        for memory in every:
            memory.record_stream(stream)


def capturing(device):
    """Whether torch's current stream of that device is being captured, whichever device is the current one."""
    if device.type != "cuda":
        return False
    if torch.cuda.current_device() == device.index:
        return torch.cuda.is_current_stream_capturing()
    with torch.cuda.device(device):
        return torch.cuda.is_current_stream_capturing()


def asked(**what):
    """A rule to ask for its names, on no device: nothing is compiled, and nothing is said of that."""
    if "asked" not in _open:
        _open["asked"] = Engine(compiler="", cache_dir="")
    return _open["asked"].compile(warn=False, **what)


def device_of(device, workspace=0):
    """The engine for a torch device; workspace 0: the usual."""
    if device.type not in ("cpu", "cuda"):
        raise ValueError("optc steps tensors on the CPU and on NVIDIA GPUs, and not on %s" % device)
    threads = torch.get_num_threads() if device.type == "cpu" else 0
    key = os.getpid(), str(device), threads, workspace
    return _open.get(key) or _open.setdefault(key, Device(device, threads, workspace))     # one for all threads


def engines(device):
    """The engines that this process has open on a torch device."""
    return [d.engine for key, d in list(_open.items()) if key != "asked" and key[:2] == (os.getpid(), str(device))]
