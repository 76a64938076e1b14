"""A rule bound to tensors."""
import ctypes
import math
import os
import warnings
import weakref

from . import _lib
from ._arrays import described, stream_of
from ._lib import array, decoded, encoded, lib


def _finalizer(owner, call, handle, *keep):
    """Frees `handle` with `call` when `owner` is collected, in the process that made it. Not at
    exit: the process frees everything, and a driver may already be unloaded. `keep`: objects that
    must live until then."""
    def end(pid, keep):
        if os.getpid() == pid:
            try:
                call(handle)
            except _lib.Error:
                pass
    final = weakref.finalize(owner, end, os.getpid(), keep)
    final.atexit = False
    return final


def _device_of(engine):
    return engine.device_name.split(": ")[0]


def _name_of(kind):
    return next((n for n, k in _lib.TYPE_NAMES.items() if k == kind), "another type")


class Binding:
    """A rule on tensors. `groups`: a list of (tensors, {hyper: value}).

    A tensor is an array (NumPy, CuPy, torch, ctypes, or any with DLPack), a pair of arrays
    (parameter, gradient), or a dict of members of optc_tensor: param and grad (arrays, or
    addresses, which need a shape), name, shape, strides, grad_strides, flags, tags, split,
    global_shape and offset (of a piece), and states: addresses in the rule's order of states, or
    None; a state with an address continues with the contents there. The binding holds the arrays.

    `comm`: the ranks of a sharded binding: an object whose `table` is an optc_comm (_lib.Comm) and
    whose `failed()` returns the exception of a failed function of the table, or None. Binding and
    running are collective then."""

    def __init__(self, rule, groups, comm=None):
        keep = []
        self._device = _device_of(rule.engine)
        groups = [(list(tensors), hyper) for tensors, hyper in groups]
        made = [_group(tensors, hyper, keep, self._device) for tensors, hyper in groups]
        out, self._comm = ctypes.c_void_p(), comm
        given = rule.handle, array(_lib.Group, made), len(made), ctypes.sizeof(
            _lib.Group), ctypes.sizeof(_lib.Tensor)
        if comm is None:
            lib.optc_bind_sized(*given, out)
        else:
            self._together(lib.optc_bind_sharded_sized, *given, comm.table, out)
        self.rule, self.handle = rule, out.value
        self.n = lib.optc_tensors(self.handle)
        # kept alive: memory is freed in the order of the last stream
        self._streams = []
        self._end = _finalizer(self, lib.optc_unbind, self.handle, rule, self._streams, comm)
        self._grads = (ctypes.c_void_p * max(self.n, 1))()
        self._held = {"bound": [t for tensors, _ in groups for t in tensors]}
        if warning := decoded(lib.optc_binding_warning(self.handle)):
            warnings.warn("optc: " + warning, stacklevel=3)

    def close(self):
        self._end()
        self.handle = None

    def step(self):
        self._together(lib.optc_step, self.handle)

    def run(self, entry):
        self._together(lib.optc_run, self.handle, encoded(entry))

    def _together(self, call, *given):
        """A collective call. If a function of the comm raised an exception, this raises it."""
        try:
            call(*given)
        except _lib.Error as e:
            raised = self._comm and self._comm.failed()
            if not raised:
                raise
            raise raised from e

    def set_grads(self, grads):
        """Replaces all gradients, one per tensor: an array with the layout of the bound gradient,
        an address, or 0 or None for none."""
        self._put(grads, "gradients", 1, lib.optc_set_grads)

    def set_params(self, params):
        """Replaces all parameters, one array or address per tensor, with the layout of the bound
        ones. States stay."""
        self._put(params, "parameters", 0, lib.optc_set_params)

    def _put(self, given, what, grad, call):
        """Passes arrays to a call. The arrays held before are released only after it succeeds:
        until then C uses them."""
        a, held = self._grads, None
        try:
            a[:] = given                               # all are addresses: the fast path
        except TypeError:
            held = list(given)
            a[:] = [x if x is None or isinstance(x, int) else self._fits(i, x, what, grad)
                    for i, x in enumerate(held)]
        call(self.handle, a, self.n)
        self._held[what] = held

    def _fits(self, i, x, what, grad):
        """The address of an array. Refuses another shape or type than was bound, and a read-only
        parameter."""
        x, info = _reached(described(x), "number %d of the %s" % (i, what),
                           self._device), _lib.TensorInfo()
        if x.readonly and not grad:
            raise _lib.ArgumentError("number %d of the %s is read-only" % (i, what))
        lib.optc_tensor_about_sized(self.handle, i, info, ctypes.sizeof(info))
        shape = tuple(info.shape[:info.rank])
        if (x.shape is not None and math.prod(x.shape) != info.count) or x.strides or \
                (x.type and x.type != self.rule.types[grad]):
            raise _lib.ArgumentError("number %d of the %s has shape %s, strides %s and type %s: it "
                                     "must be a row-major array of shape %s and type %s" %
                                     (i, what, x.shape, x.strides, _name_of(
                                         x.type), shape, _name_of(self.rule.types[grad])))
        return x.address

    def set_hyper(self, group, name, value):
        lib.optc_set_hyper(self.handle, group, encoded(name), value)
        self._hold("hyper", group, name, None)

    def get_hyper(self, group, name):
        out = ctypes.c_double()
        lib.optc_get_hyper(self.handle, group, encoded(name), out)
        return out.value

    def set_input(self, tensor, name, data, count=0):
        """Sets an input of a tensor. data: a row-major array of the input's type, which the binding
        holds, or an address. count: the number of values at an address; 0: not checked."""
        at = data
        if not (data is None or isinstance(data, int)):
            told = _reached(described(data), "input '%s'" % name, self._device)
            kind = self.rule.input_types().get(name, (None, told.type))[1]
            if told.strides:
                raise _lib.ArgumentError(
                    "input '%s' is not row-major: pass a contiguous copy" % name)
            if told.type and told.type != kind:
                raise _lib.ArgumentError("input '%s' has type %s, and the rule reads %s: convert "
                                         "it first"
                                         % (name, _name_of(told.type), _name_of(kind)))
            at, count = told.address, math.prod(told.shape) if told.shape is not None else count
        lib.optc_set_input(self.handle, tensor, encoded(name), at, count)
        self._held["input", tensor, name] = data

    def set_scalar(self, group, name, value):
        """Sets an input of domain "group" for one group, or for all groups (-1)."""
        lib.optc_set_scalar(self.handle, group, encoded(name), value)
        self._hold("scalar", group, name, None)

    def set_hyper_from(self, group, name, where, kind=None):
        """Reads a hyperparameter from memory before every run. where: an array of one f32 or f64,
        which the binding holds, or the address of a number of type `kind` (default f32). None ends
        this: the hyperparameter has the value that was set last."""
        lib.optc_set_hyper_from(self.handle, group, encoded(name), *self._number(where, kind, name))
        self._hold("hyper", group, name, where)

    def set_scalar_from(self, group, name, where, kind=None):
        """Reads an input of domain "group" in the same way. None ends this: the value that was read
        last stays."""
        lib.optc_set_scalar_from(self.handle, group, encoded(name),
                                 *self._number(where, kind, name))
        self._hold("scalar", group, name, where)

    def set_guard(self, where, kind=None):
        """Reads a number in the same way. If it is not 0, the run does nothing. None: no guard."""
        lib.optc_set_guard(self.handle, *self._number(where, kind, "the guard"))
        self._hold("guard", -1, None, where)

    def _number(self, where, kind, what):
        """(address, type) of one number; refuses one that the device cannot read."""
        if where is None or isinstance(where, int):
            return where, _lib.F32 if kind is None else kind
        told = _reached(described(where), "the number for '%s'" % what, self._device)
        if told.shape is not None and math.prod(told.shape) != 1:
            raise _lib.ArgumentError(
                "the array for '%s' has shape %s: it must contain one number" % (what, told.shape))
        if told.type and kind is not None and kind != told.type:
            raise _lib.ArgumentError("the number for '%s' has type %s, and the call says %s"
                                     % (what, _name_of(told.type), _name_of(kind)))
        return told.address, told.type or (_lib.F32 if kind is None else kind)

    def _hold(self, what, group, name, where):
        """Holds the array that is read for a group, or for all (-1), and releases the previous
        one."""
        for k in range(lib.optc_groups(self.handle)) if group < 0 else (group,):
            self._held.pop((what, k, name), None)
            if where is not None:
                self._held[what, k, name] = where

    def get_t(self, tensor=-1):
        out = ctypes.c_int64()
        lib.optc_get_t(self.handle, tensor, out)
        return out.value

    def set_t(self, tensor, steps):
        lib.optc_set_t(self.handle, tensor, steps)

    def set_stream(self, stream):
        """Sets the stream of the following runs: a stream of CuPy, torch or cuda-python, or its
        handle."""
        lib.optc_set_stream(self.handle, stream_of(stream))
        self._streams[:] = [stream]

    def sync(self):
        lib.optc_sync(self.handle)

    def params_changed(self, tensor=-1):
        """Call this after writing parameters between steps. It sets the states that follow
        parameters from them."""
        lib.optc_params_changed(self.handle, tensor)

    def has_state(self, tensor, name):
        out = ctypes.c_int()
        lib.optc_has_state(self.handle, tensor, encoded(name), out)
        return bool(out.value)

    def state(self, tensor, name):
        """(address, count, type) of a state's live memory"""
        view = _lib.StateView()
        lib.optc_state(self.handle, tensor, encoded(name), view)
        return view.data, view.count, view.type

    def state_rank(self, tensor, name):
        """The rank that holds all of a state; -1: each rank holds the values of its piece, or all
        hold the same."""
        out = ctypes.c_int()
        lib.optc_state_rank(self.handle, tensor, encoded(name), out)
        return out.value

    def state_bytes(self, tensor, name):
        """Bytes of a state as it is stored: of block codes with padding and scales."""
        out = ctypes.c_size_t()
        lib.optc_state_bytes(self.handle, tensor, encoded(name), out)
        return out.value

    def read(self, tensor, name, count):
        """A state as a list of floats"""
        out = (ctypes.c_double * count)()
        lib.optc_state_read(self.handle, tensor, encoded(name), out, count)
        return list(out)

    def write(self, tensor, name, numbers):
        lib.optc_state_write(self.handle, tensor, encoded(name), array(ctypes.c_double, numbers),
                             len(numbers))

    def value(self, name, tensor=0, count=1):
        out = (ctypes.c_double * count)()
        lib.optc_read_value(self.handle, tensor, encoded(name), out, count)
        return list(out)

    def variant(self, tensor):
        info = _lib.TensorInfo()
        lib.optc_tensor_about_sized(self.handle, tensor, info, ctypes.sizeof(info))
        return decoded(info.variant)

    def held(self):
        h = _lib.Held()
        lib.optc_binding_held_sized(self.handle, h, ctypes.sizeof(h))
        return {
            "states": h.states, "temporaries": h.temporaries, "workspace": h.workspace,
            "batches": h.batches, "graphs": h.graphs
        }

    def factors(self, tensor=-1):
        f = _lib.Factors()
        lib.optc_factors_about_sized(self.handle, tensor, f, ctypes.sizeof(f))
        return {"computed": f.computed, "refused": f.refused, "residual": f.residual}


def _group(tensors, hyper, keep, device):
    single = ([_tensor(keep, device, **_asked(t)) for t in tensors],
              [_lib.Setting(encoded(n), v) for n, v in hyper.items()])
    rows, settings = array(_lib.Tensor, single[0]), array(_lib.Setting, single[1])
    # each struct in single holds the arrays that it points to
    keep += [single, rows, settings]
    return _lib.Group(rows, len(rows) if rows else 0, settings, len(hyper))


def _asked(t):
    """A tensor as a dict, from an array, a pair of arrays, or a dict."""
    if isinstance(t, dict):
        return t
    return {"param": t[0], "grad": t[1]} if isinstance(t, (tuple, list)) else {"param": t}


def _reached(x, what, device):
    """Refuses an array that is on another device than the engine."""
    if x.device is None or x.device == device or (x.device == "cuda" and device != "cpu"):
        return x
    raise _lib.ArgumentError(
        "%s is on %s, and the engine's device is %s: move one of them" % (what, x.device, device))


def _tensor(keep, device, param, shape=None, grad=None, name=None, strides=None, grad_strides=None,
            flags=0, tags=None, split=0, global_shape=None, offset=None, states=None):
    label = "of tensor '%s'" % name if name else "of a tensor"
    p, g = (None if x is None or isinstance(x, int) else _reached(described(x), "%s %s" %
                                                                  (what, label), device)
            for x, what in ((param, "the parameter"), (grad, "the gradient")))
    if p and p.readonly:
        raise _lib.ArgumentError("the parameter %s is read-only" % label)
    if shape is None:
        if p is None or p.shape is None:
            raise _lib.ArgumentError("the shape %s is unknown: an address needs shape=" % label)
        shape, strides = p.shape, p.strides if strides is None else strides
        if g and g.shape is not None and g.shape != shape:
            raise _lib.ArgumentError(
                "the gradient %s has shape %s, and the parameter %s" % (label, g.shape, shape))
        grad_strides = g.strides if g and grad_strides is None else grad_strides
        # the library takes the strides of both or of none
        if bool(strides) != bool(grad_strides):
            strides, grad_strides = (
                x or _row_major(shape) for x in (strides, grad_strides if g else strides))
    elif (p and p.strides and strides is None) or (g and g.strides and grad_strides is None):
        raise _lib.ArgumentError(
            "an array %s is not row-major: with a shape, give its strides too" % label)
    for x in (p, g):
        if x and x.shape is not None and math.prod(x.shape) != math.prod(shape):
            raise _lib.ArgumentError(
                "an array %s has shape %s, and the tensor %s" % (label, x.shape, tuple(shape)))
    sizes = [array(ctypes.c_int64, x) if x is not None else None
             for x in (shape, strides, grad_strides, global_shape, offset)]
    lies = array(ctypes.c_void_p, states or ())
    keep += [*sizes, lies]
    return _lib.Tensor(
        name=encoded(name), param=p.address if p else param, grad=g.address if g else grad,
        rank=len(shape), shape=sizes[0], param_strides=sizes[1], grad_strides=sizes[2], flags=flags,
        tags=encoded(tags), split=split, global_shape=sizes[3], offset=sizes[4], states=lies,
        param_type=p.type or 0 if p else 0, grad_type=g.type or 0 if g else 0)


def _row_major(shape):
    return [math.prod(shape[k + 1:]) for k in range(len(shape))]
