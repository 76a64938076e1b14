"""A cache of bindings for functions on tensors: one for each function, options, shape, type and device.

A function is a small spec whose matrices are inputs and whose results are states. Its binding owns memory for both:
arguments are copied into it (from any strides and type), results are copied out. So addresses never change, and a
captured graph can be replayed. The cache holds the last few bindings, up to a limit of memory. A binding that a graph
was captured with is held forever and used only by captures. If the function is called before each capture, each capture
has its own binding. Captures without a call between them share one, and must not run in two streams at the same time.
"""
import functools
import os
import threading
from collections import OrderedDict
from math import prod

import torch
from torch.compiler import is_compiling

from .. import _lib
from .._api import Binding
from ._engines import TYPES, capturing, device_of

MOST = 16                                              # bindings
MOST_BYTES = 256 << 20                                 # of all bindings but the last
MOST_RULES = 64
USUAL_WORKSPACE = 1 << 30                              # an engine's default is at least this
_stores = {}                                           # by process: a forked child has no bindings


class Form:
    """A function: its name, its spec, which inputs and states are its matrices, and the numbers that it passes as
    hyperparameters (ridge is by_ridge there). An input or a result called "p" is the parameter itself."""

    def __init__(self, name, spec, takes, gives, hyper):
        self.name, self.spec, self.takes, self.gives, self.hyper = name, spec, takes, gives, hyper


class CachedFunction:
    """A binding, its memory, and the stream it ran in last. One thread at a time may use it."""

    def __init__(self, form, shape, sizes, dtype, device):
        """shape: the parameter's; sizes: shapes of all inputs and results, by name."""
        self.lock, self.form, self.device, self.stream = threading.Lock(), form, device, None
        memory = device_of(device, _workspace(sizes, dtype, device))
        self.memory = {n: torch.empty(sizes[n], dtype=dtype, device=device) for n in form.takes}
        if "p" not in self.memory:
            self.memory["p"] = torch.empty(shape, dtype=dtype, device=device)
        rule = store().rule(memory, form, dtype)
        if device.type == "cuda":
            torch.cuda.current_stream(device).synchronize()
        self.binding = Binding(rule, [([{"param": self.memory["p"], "shape": shape}], form.hyper)])
        self.hyper = dict(form.hyper)
        for n in form.takes:
            if n != "p":
                self.binding.set_input(0, n, self.memory[n], self.memory[n].numel())
        self.results = {n: self.memory["p"] if n == "p" else memory.tensor(*self.binding.state(0, n)).view(sizes[n])
                        for n in form.gives}
        held = self.binding.held()
        self.bytes = sum(held[k] for k in ("states", "temporaries", "workspace")) + sum(
            m.numel() * m.element_size() for m in self.memory.values())
        if device.type == "cuda":
            self.binding.sync()

    def run(self, form, given, give):
        """give: a function of the results that makes the return value."""
        with self.lock:
            self._numbers(form.hyper)
            self._follow()
            for n, x in zip(self.form.takes, given):
                self.memory[n].copy_(x)
            self.binding.step()
            found = give(*(self.results[n] for n in self.form.gives))
            if self.gone:                              # another thread removed it meanwhile; this is the last user
                self.binding.sync()
            return found
    gone = False

    def _numbers(self, hyper):
        for name, value in hyper.items():
            if self.hyper[name] != value:
                self.binding.set_hyper(0, name, value)
                self.hyper[name] = value

    def _follow(self):
        """Switches to torch's current stream, ordered after the work in the previous one."""
        if self.device.type != "cuda":
            return
        now = torch.cuda.current_stream(self.device)
        # compares handles: a torch stream compares as equal to None
        if self.stream is None or now.cuda_stream != self.stream.cuda_stream:
            if self.stream is not None and not capturing(self.device):
                now.wait_stream(self.stream)
            self.binding.set_stream(now.cuda_stream)
            self.stream = now

    def settle(self):
        """Waits before the memory is freed: torch reuses it in the order of another stream."""
        with self.lock:
            self.gone = True
            if self.stream is not None:                # not through torch: that would end a running capture
                self.binding.sync()


def uncompiled(f):
    """Excludes a function from torch.compile. The detour costs more than a small function, so it is taken only while
    compiling."""
    around = torch._disable_dynamo(f)

    @functools.wraps(f)
    def call(*given, **named):
        return around(*given, **named) if is_compiling() else f(*given, **named)
    return call


def _workspace(sizes, dtype, device):
    """The workspace for these sizes: a power of two, so that there are few engines; the default for small ones."""
    each = torch.finfo(dtype).bits // 8
    whole = [each * prod(s) for s in sizes.values()]
    square = 8 * max(max(s[-2:]) ** 2 for s in sizes.values())             # factors are computed in f64
    work = 16 * square * (torch.get_num_threads() if device.type == "cpu" else 1)
    need = 4 * sum(whole) + work
    return 0 if need <= USUAL_WORKSPACE else 1 << (need - 1).bit_length()


class _Store:
    def __init__(self):
        self.lock, self.kept, self.captured, self.rules = threading.Lock(), OrderedDict(), {}, OrderedDict()

    def get(self, key, make, form, device):
        with self.lock:
            if capturing(device):
                return self._for_capture(key, form)
            if key not in self.kept:
                self._keep(key, make)
            self.kept.move_to_end(key)
            return self.kept[key]

    def _for_capture(self, key, form):
        """The binding for a capture, with its numbers: another graph's binding keeps its own numbers. A binding that
        was called since the last capture belongs to no graph yet. Graphs with different bindings may be replayed at
        the same time."""
        mine = key, tuple(form.hyper.items())
        if key in self.kept and self.kept[key].hyper == form.hyper:
            self.captured.setdefault(mine, []).append(self.kept.pop(key))
        if mine not in self.captured:
            numbers = "".join(", %s=%g" % (n.partition("_")[2], v) for n, v in form.hyper.items())
            raise RuntimeError("optc.torch.%s: call it once with tensors of this shape, type and device%s before "
                               "capturing a graph" % (form.name, numbers))
        return self.captured[mine][-1]

    def _keep(self, key, make):
        made = None
        try:
            made = make()
        except (_lib.OutOfMemory, torch.OutOfMemoryError):
            self._drop(len(self.kept))
        made = made or make()                          # outside of a capture a removed binding is made again
        self.kept[key] = made
        while len(self.kept) > MOST or (len(self.kept) > 1 and self.held() - made.bytes > MOST_BYTES):
            self._drop(1)

    def rule(self, memory, form, dtype):
        """The compiled rule. There may be many exponents, so only the last rules are kept."""
        key = id(memory), form.spec, dtype
        if key not in self.rules:
            types = {"param": TYPES[dtype]}
            self.rules[key] = memory.engine.compile(spec=form.name, text=form.spec, types=types, check=False)
            if len(self.rules) > MOST_RULES:
                self.rules.popitem(last=False)
        self.rules.move_to_end(key)
        return self.rules[key]

    def _drop(self, n):
        for _ in range(n):
            _key, gone = self.kept.popitem(last=False)
            gone.settle()

    def drop_all(self):
        with self.lock:
            self._drop(len(self.kept))

    def held(self, device=None):
        every = [*self.kept.values(), *(k for each in self.captured.values() for k in each)]
        return sum(k.bytes for k in every if device in (None, k.device))


def store():
    here = os.getpid()
    return _stores.get(here) or _stores.setdefault(here, _Store())


def call(form, shape, sizes, given, dtype, device, give):
    """Runs a function on tensors. shape: the parameter's; sizes: by name of input and state."""
    key = form.spec, shape, tuple(sizes.items()), dtype, str(device), torch.get_num_threads()

    def make():
        with torch.inference_mode(False), torch.no_grad():
            return CachedFunction(form, shape, sizes, dtype, device)
    with torch.no_grad(), on(device):
        return store().get(key, make, form, device).run(form, given, give)


def on(device):
    """A context in which the device is torch's current one."""
    return torch.cuda.device(device) if device.type == "cuda" else _Nowhere()


class _Nowhere:
    def __enter__(self):
        return self

    def __exit__(self, *_):
        return None
