"""Hooks that capture the inputs of layers in forward and the gradients of their outputs in
backward. Per-sample gradients and K-FAC statistics share them.

Ownership
- The user owns the capture. The model's hooks hold it by weak references and are removed with it.
  Copies and pickles of a hooked model have no hooks.
- A layer's input is held by the autograd graph of its output, like autograd's own saved tensors. A
  forward without backward (or one that checkpointing repeats) leaves nothing behind. A backward
  that does not retain the graph releases the input, even if the loss is still referenced. No tensor
  is copied.
- When the gradient of the output arrives, the capture takes both. They stay until `clear()`, or
  until a subclass has used them. `held_bytes` is their size.

Batches: one forward of the model, or one backward, forms a batch. Row i of every layer in it is
sample i. Contributions of several calls of a layer, or of several layers with one parameter, are
added. Every further batch adds further samples, so micro-batches accumulate. A second backward
through the same graph adds to the samples of the first one while they are held.

The gradient is taken at the node that made the output, before in-place operations on the output. If
the output is a view of its whole base (a Linear of three axes), it is taken at the base.
"""
import threading
import weakref
from contextlib import ExitStack, contextmanager
from functools import wraps

import torch
from torch import nn
from torch.compiler import is_compiling

from ._layers import Refused, find, mixes, own, wide
from ._sharded import is_sharded

# number of the backward that runs in this thread; -1: none
_task = torch._C._current_graph_task_id
_retained = torch._C._autograd._get_current_graph_task_keep_graph


def plainly(method):
    """Runs a method without a graph and without autocast."""
    @wraps(method)
    def run(self, *given, **named):
        with ExitStack() as stack:
            stack.enter_context(torch.no_grad())
            for device in {p.device.type for p in self.model.parameters()}:
                stack.enter_context(torch.autocast(device, enabled=False))
            return method(self, *given, **named)
    return run


def plain(x):
    return x.layout == torch.strided and not x.is_nested and not is_sharded(x)


def unhooked(*_):
    """Replaces the hook in a copy of a hooked module; does nothing."""


def _unhooked():
    return unhooked


class Hook:
    """A method of a capture as a module's hook. Copies and pickles of the module get one that does
    nothing."""

    def __init__(self, owner, method, what):
        self.owner, self.method, self.what = weakref.ref(owner), method, what

    def __call__(self, *given):
        (_uncompiled if is_compiling() else Hook.run)(self, *given)

    def run(self, *given):
        owner = self.owner()
        if owner is not None:
            getattr(owner, self.method)(self.what, *given)

    def __reduce__(self):
        return _unhooked, ()


_uncompiled = torch._disable_dynamo(Hook.run)


class Layer:
    def __init__(self, name, module, kind):
        self.name, self.module, self.kind, self.axis = name, module, kind, 0
        self.left = frozenset()                        # ids of its excluded parameters

    def first(self, x):
        """x with the samples on the first axis."""
        return x.movedim(self.axis, 0) if self.axis else x

    def trained(self):
        return {
            k: p for k, p in own(self.module).items() if p.requires_grad and id(p) not in self.left
        }


class Call:
    """One call of a layer; the autograd graph holds it."""

    def __init__(self, owner, layer, x, params, shape, forward):
        self.owner, self.layer, self.x, self.params, self.shape = weakref.ref(
            owner), layer, x, params, shape
        self.version, self.forward, self.made_in = x._version, forward, _task()
        # weak reference to the record of its last gradient
        self.record = None

    def given(self):
        if self.x is None:
            raise RuntimeError("backward came a second time through layer '%s': call the first one "
                               "with retain_graph=True" % self.layer.name)
        return unchanged(self.layer, self.x, self.version)


def unchanged(layer, x, version):
    """The layer's input, with samples first; refuses one that was changed in place since
    forward."""
    if x._version != version:
        raise RuntimeError(
            "what layer '%s' was given has been changed in place since its forward: "
            "give it a copy, or change it after the gradients have been used" % layer.name)
    return layer.first(x)


class Record:
    """A call with its gradient, samples first; the capture holds it."""

    def __init__(self, call, count):
        self.layer, self.params, self.count = call.layer, call.params, count
        self.x, self.version = call.x, call.version
        self.g = self.g_version = None
        self.rows = {}                                 # results that replace the input

    def let_go(self):
        """Releases the layer's input: everything needed was computed from it."""
        self.x = None

    def given(self):
        return unchanged(self.layer, self.x, self.version)

    def bring(self, g):
        if self.g is not None:
            g = self.grad().to(wide(g.dtype)) + g.to(wide(g.dtype))
        self.g, self.g_version = g, g._version

    def grad(self):
        if self.g._version != self.g_version:
            raise RuntimeError("the gradient of what layer '%s' gave has been changed in place "
                               "since backward"
                               % self.layer.name)
        return self.g

    def tensors(self):
        return [t for t in (self.g, self.x, *self.rows.values()) if t is not None]


class Batch:
    def __init__(self):
        self.records = []

    def count(self):
        """The number of samples, which must be the same in every layer."""
        first = self.records[0]
        for r in self.records:
            if r.count != first.count:
                raise RuntimeError(
                    "layer '%s' saw %d samples and layer '%s' %d, in one forward or backward: "
                    "every layer needs the samples on its axis of samples (a position's embedding, "
                    "say, expanded to all of them)"
                    % (first.layer.name, first.count, r.layer.name, r.count))
        return first.count


class LeftOut:
    """The modules (with everything in them) and parameters that leave_out names."""

    def __init__(self, model, leave_out):
        given = [leave_out] if isinstance(leave_out, str) else list(leave_out)
        params = list(model.named_parameters(remove_duplicate=False))
        known = {name for name, _ in (*model.named_modules(remove_duplicate=False), *params)}
        for name in given:
            if name not in known or not name:
                raise Refused(
                    "leave_out names '%s', and the model has no such module or parameter" % name)
        self.given = given
        # keeps them alive, so that their ids stay valid
        self.params = [p for _, p in params]
        names = {}
        for name, p in params:
            names.setdefault(id(p), []).append(name)
        for several in names.values():
            out = [n for n in several if n in self]
            if out and len(out) < len(several):
                raise Refused("leave_out has '%s', which is also '%s': leave out both, or none"
                              % (out[0], next(n for n in several if n not in self)))
        self.ids = frozenset(i for i, several in names.items() if several[0] in self)

    def __contains__(self, name):
        return any(name == o or name.startswith(o + ".") for o in self.given)


class Capture:
    what = "this"                                      # the name in messages; subclasses set it

    def __init__(self, model, loss, axis, leave_out):
        if loss not in ("mean", "sum"):
            raise Refused("loss= says whether the loss is the 'mean' or the 'sum' over the "
                          "samples, not %r" % (loss,))
        if not isinstance(model, nn.Module):
            raise TypeError(
                "%s takes a torch.nn.Module, not %s" % (self.what, type(model).__name__))
        self.model, self.loss, self.scale = model, loss, 1.0
        self._on, self._forwards, self._local, self._lock = True, 0, threading.local(
        ), threading.Lock()
        self._handles, self._left = [], LeftOut(model, leave_out)
        self._finalizer = weakref.finalize(self, _remove, self._handles)
        self.clear()
        try:
            self._hook_all(axis)
        except BaseException:
            _remove(self._handles)
            raise

    def _hook_all(self, axis):
        self._refuse_wrappers()
        layers = self._choose()
        self._axes(layers, axis)
        for layer in layers:
            layer.left = self._left.ids
            for key, p in own(layer.module).items():
                if not plain(p) or not p.is_floating_point():
                    raise Refused("%s takes plain tensors of real numbers as parameters: '%s' of "
                                  "layer '%s' is a %s of %s" %
                                  (self.what, key, layer.name, type(p.data).__name__, p.dtype))
            self._hook(layer.module, "_forward", layer, with_kwargs=True, prepend=True)
        self._handles.append(self.model.register_forward_pre_hook(Hook(self, "_enter", None)))
        self._hook(self.model, "_leave", None, always_call=True)
        self.layers = {layer.name: layer for layer in layers}

    def _hook(self, module, method, what, **how):
        self._handles.append(module.register_forward_hook(Hook(self, method, what), **how))

    # ---- which layers ----
    def _modules(self):
        """(name, module) without those of leave_out; a module with two names is excluded by
        either."""
        left = {
            id(m) for name, m in self.model.named_modules(remove_duplicate=False)
            if name in self._left
        }
        return [(name or "(the model)", m) for name, m in self.model.named_modules()
                if id(m) not in left]

    def _refuse_wrappers(self):
        for name, m in self.model.named_modules():
            kind = type(m).__name__
            if isinstance(m, (nn.DataParallel, nn.parallel.DistributedDataParallel)) or kind in (
                    "OptimizedModule", "FullyShardedDataParallel", "ScriptModule",
                    "RecursiveScriptModule"):
                raise Refused("%s does not look through %s (%s): give it the module inside, and "
                              "call that"
                              % (self.what, kind, name or "the model"))

    def _choose(self):
        raise NotImplementedError

    @staticmethod
    def _axes(layers, axis):
        by_name = axis if isinstance(axis, dict) else {}
        unknown = set(by_name) - {layer.name for layer in layers}
        if unknown:
            raise Refused("axis= names layers that are not hooked: %s" % ", ".join(sorted(unknown)))
        for layer in layers:
            said = by_name.get(layer.name, 0) if by_name or isinstance(axis, dict) else axis
            if not isinstance(said, int) or said < 0:
                raise Refused(
                    "axis= is the number of the samples' axis, from 0 on, not %r" % (said,))
            layer.axis = 0 if layer.kind.fixed else said

    # ---- forward ----
    def _enter(self, _, *given):
        self._local.depth = getattr(self._local, "depth", 0) + 1
        if self._local.depth == 1:
            with self._lock:
                self._forwards += 1
                self._local.forward = self._forwards

    def _leave(self, _, *given):
        self._local.depth = max(0, getattr(self._local, "depth", 0) - 1)

    def _forward(self, layer, module, args, kwargs, out):
        if not self._on or not torch.is_grad_enabled() or not isinstance(
                out, torch.Tensor) or not out.requires_grad:
            return
        params = layer.trained()
        if not params:
            return
        if module is not layer.module:
            raise RuntimeError("%s: layer '%s' was called as a copy of itself, as DataParallel "
                               "does: its samples cannot be told" % (self.what, layer.name))
        x = args[0] if args else next(iter(kwargs.values()))
        self._look(layer, x, out)
        forward = self._local.forward if getattr(self._local, "depth", 0) else None
        made(out,
             x).register_hook(arrival(Call(self, layer, x.detach(), params, out.shape, forward)))

    @staticmethod
    def _look(layer, x, out):
        if not isinstance(x, torch.Tensor) or not plain(x):
            raise RuntimeError(
                "layer '%s' was given something else than a plain tensor" % layer.name)
        if layer.axis >= layer.kind.axes(layer.module, x):
            raise RuntimeError("layer '%s' was given %s: there is no axis of samples%s" % (
                layer.name, tuple(x.shape), " %d" % layer.axis if layer.axis else ""))

    # ---- backward ----
    def _arrived(self, call, g):
        if not self._on:
            return
        if torch.is_grad_enabled():
            raise RuntimeError("%s is not differentiable twice: neither "
                               "backward(create_graph=True) nor torch.func can be captured; put "
                               "`with ….pause():` around what is none of its business" % self.what)
        x = call.given()
        g = call.layer.first(g.reshape(call.shape))
        if x.shape[0] != g.shape[0]:
            raise RuntimeError("layer '%s' was given %d samples and gave %d" %
                               (call.layer.name, x.shape[0], g.shape[0]))
        with self._lock:
            record = call.record() if call.record else None
            batch, record = self._batch(call, record)
            if record is None:
                record = Record(call, g.shape[0])
                call.record = weakref.ref(record)
                batch.records.append(record)
        with torch.no_grad(), torch.autocast(g.device.type, enabled=False):
            self._keep(record, x, g)

    def _keep(self, record, x, g):
        record.bring(g)

    def _batch(self, call, record):
        """Merges the batches of the call's forward, of its backward and of the record it adds to.
        Returns the batch and that record, if it is still held."""
        task = _task()
        # checkpointing repeated the forward inside another backward
        if call.made_in not in (-1, task):
            self._inside[task] = call.made_in
        while task in self._inside:
            task = self._inside[task]
        keys = [("backward", task)]
        if call.forward is not None:
            keys.append(("forward", call.forward))
        found = [self._of[k] for k in keys if k in self._of]
        of = [b for b in self._batches if record in b.records] if record is not None else []
        found += of
        batch = found[0] if found else Batch()
        if not found:
            self._batches.append(batch)
        for other in found[1:]:
            if other is not batch:
                batch.records += other.records
                self._batches.remove(other)
                self._of = {k: batch if b is other else b for k, b in self._of.items()}
        for k in keys:
            self._of[k] = batch
        return batch, record if of else None

    # ---- captured samples ----
    def _held(self):
        """[(batch, number of samples, factor that makes gradients those of a sum)]"""
        if not self._batches:
            raise RuntimeError("%s has nothing yet: no backward came through the hooked layers "
                               "since it was made or cleared%s" %
                               (self.what, "" if self._handles else ", and the hooks are removed"))
        counts = [b.count() for b in self._batches]
        return [(b, n, (n if self.loss == "mean" else 1) / self.scale)
                for b, n in zip(self._batches, counts)]

    @property
    def held_bytes(self):
        """Bytes that the captured tensors keep alive besides the graph; shared memory counts
        once."""
        tensors = [t for b in self._batches for r in b.records for t in r.tensors()
                   ] + self._more_tensors()
        return sum({
            (t.device, t.untyped_storage().data_ptr()): t.untyped_storage().nbytes()
            for t in tensors
        }.values())

    def _more_tensors(self):
        return []

    def clear(self):
        """Releases everything captured; the hooks stay."""
        self._batches, self._of, self._inside = [], {}, {}

    def remove(self):
        """Removes the hooks from the model and releases everything captured."""
        self._on = False
        _remove(self._handles)
        self.clear()

    @contextmanager
    def pause(self):
        """Captures nothing inside `with ….pause():`, neither in forward nor in backward."""
        was, self._on = self._on, False
        try:
            yield self
        finally:
            self._on = was and bool(self._handles)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.remove()

    def __deepcopy__(self, memo):
        raise TypeError("%s cannot be copied: copy the model (the copy has no hooks) and hook the "
                        "copy" % self.what)

    def __reduce__(self):
        raise TypeError(
            "%s cannot be pickled: save the model, and hook it when it is loaded" % self.what)


def made(out, x):
    """The tensor whose gradient is that of a layer's output, whatever is done in place to the
    output later: the base, if the layer made it and the output covers all of it."""
    base = out._base if out._is_view() else None
    if base is None or base is x or base is x._base or base.numel() != out.numel(
    ) or not base.requires_grad or not (out.is_contiguous() and base.is_contiguous()):
        return out
    return base


def arrival(call):
    """The hook for the gradient of an output. It holds the capture weakly, and the layer's
    input."""
    def arrived(g):
        owner = call.owner()
        if owner is not None:
            owner._arrived(call, g)
        if not _retained():
            call.x = None
    return arrived


def _remove(handles):
    while handles:
        handles.pop().remove()


def sort_modules(modules, left, rules=None):
    """Sorts modules: supported layers, (name, module) of modules to watch, and texts about
    unsupported layers and about layers that mix samples."""
    layers, watched, bad, mixed = [], [], [], []
    for name, m in modules:
        if mixes(m):
            mixed.append("'%s' (%s)" % (name, type(m).__name__))
            continue
        kind, why = find(m, rules or {})
        if kind is not None:
            layers.append(Layer(name, m, kind))
        elif any(p.requires_grad and id(p) not in left for p in own(m).values()):
            bad.append("'%s' (%s: %s)" % (name, type(m).__name__, why))
        elif own(m) or isinstance(m, nn.modules.batchnorm._NormBase):
            watched.append((name, m))
    return layers, watched, bad, mixed
