"""Engines of optc for torch's devices, with memory of torch's allocator."""
import bisect
import contextlib
import functools
import os
import threading

import torch

from .. import _lib
from .._api import Engine

DTYPES = {t.number: getattr(torch, t.dtype) for t in _lib.TYPES if hasattr(torch, t.dtype)}
TYPES = _lib.first_of((d, t.name) for t in _lib.TYPES
                      if (d := DTYPES.get(t.number)) is not None and d.is_floating_point)
# (pid, device, threads, workspace): Device, shared
_open = {}


class Device:
    """An engine whose bindings use memory of torch's allocator, and the rules compiled on it."""

    def __init__(self, device, threads, workspace=0):
        self.device = device
        self.buffers = buffers = {}                    # address: the tensor that is this memory
        self.rules = {}
        self._starts, self._lock = None, threading.RLock()
        self._passing = threading.local()              # on: the same call frees what it allocates

        def alloc(size, _stream):
            # torch.empty may fill memory, in a stream that is not waited for
            with self._outside():
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
        """A context for allocating memory that outlives a capture. Memory from a stream that is
        being captured belongs to the graph, and work that was captured earlier may write to it at
        every replay. So this uses another stream."""
        if not capturing(self.device) or getattr(self._passing, "on", False):
            return contextlib.nullcontext()
        if self._side is None:
            self._side = torch.cuda.Stream(self.device)
        return torch.cuda.stream(self._side)
    _side = None

    @contextlib.contextmanager
    def passing(self):
        """A context for calls that free everything they allocate. During a capture their memory
        comes from the graph: it is free for other work after the call, and replays write to it."""
        self._passing.on = True
        try:
            yield
        finally:
            self._passing.on = False

    def rule(self, **what):
        key = repr(sorted(what.items()))
        if key not in self.rules:
            # GroupKeys.consider checks the spec
            self.rules[key] = self.engine.compile(check=False, **what)
        return self.rules[key]

    def tensor(self, address, count, kind, memory=None):
        """The live memory at an address as a flat tensor. It has its own storage, so that saving or
        copying it takes only its own bytes. The storage keeps the memory that it is a part of alive
        (`memory`, if the caller has it)."""
        memory = self.holding(address) if memory is None else memory
        at = address - memory.data_ptr()
        part = memory.untyped_storage()[at:at + count * _lib.TYPE_BYTES[kind]]
        return torch.empty(0, dtype=DTYPES[kind], device=self.device).set_(part, 0, (count,), (1,))

    def holding(self, address):
        """The buffer that contains an address."""
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
        """Tells torch that all buffers are used in another stream, so that it does not reuse them
        before that work is done."""
        with self._lock:
            every = (*self.buffers.values(), *more)
        for memory in every:
            memory.record_stream(stream)


def capturing(device):
    """Whether torch's current stream of that device is being captured. The device need not be the
    current one."""
    if device.type != "cuda":
        return False
    if torch.cuda.current_device() == device.index:
        return torch.cuda.is_current_stream_capturing()
    with torch.cuda.device(device):
        return torch.cuda.is_current_stream_capturing()


@functools.lru_cache(maxsize=1)
def _reader(_path):
    return Engine(compiler="", cache_dir="")


# A rule takes 2 to 4 ms and about 300 KB; an optimizer asks several times.
@functools.lru_cache(maxsize=64)
def _read(what):
    what = {n: dict(v) if type(v) is tuple else v for n, v in what}
    return _reader(os.environ.get("OPTC_PATH")).compile(warn=False, **what)


def asked(**what):
    """A rule for reading its declarations only: without a compiler, and without a warning about
    that. Files, also those of $OPTC_PATH, are read each time: they may have changed."""
    names = "%s,%s" % (what.get("spec"), what.get("with_"))
    if os.environ.get("OPTC_PATH") or os.path.sep in names or ".lua" in names:
        return _read.__wrapped__(_as_key(what))
    return _read(_as_key(what))


def _as_key(what):
    return tuple((n, tuple(v.items()) if isinstance(v, dict) else v) for n, v in what.items())


def device_of(device, workspace=0):
    """The engine for a torch device; workspace 0: the default."""
    if device.type not in ("cpu", "cuda"):
        raise ValueError("optc steps tensors on the CPU and on NVIDIA GPUs, not on %s" % device)
    threads = torch.get_num_threads() if device.type == "cpu" else 0
    key = os.getpid(), str(device), threads, workspace
    # all threads share it
    return _open.get(key) or _open.setdefault(key, Device(device, threads, workspace))


def engines(device=None):
    """The engines that this process has open, on a torch device or on all."""
    return [
        d.engine for key, d in list(_open.items())
        if key[0] == os.getpid() and (device is None or key[1] == str(device))
    ]
