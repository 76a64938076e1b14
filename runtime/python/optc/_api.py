"""Engines, rules and bindings: what optc.h has, as objects. An engine outlives its rules and a rule its bindings, as
references see to; all of them go when nobody holds them, and at exit nothing is waited for."""
import ctypes
import math
import os
import sys
import warnings
import weakref

from . import _lib
from ._arrays import described, stream_of
from ._lib import array, decoded, encoded, lib


def _finalizer(owner, call, handle, *keep):
    """Ends `handle` when `owner` goes, in the process that made it. Not at exit: the process gives everything back, and
    a driver may already be gone. `keep` is what must live until then."""
    def end(pid, keep):
        if os.getpid() == pid:
            try:
                call(handle)
            except _lib.Error:
                pass
    final = weakref.finalize(owner, end, os.getpid(), keep)
    final.atexit = False
    return final


_leaving = []                                          # engines that went while torch captured, and whose they are


def _close(handle):
    """Ends an engine, which would end a capture that is under way: then with the next one that goes."""
    _leaving.append((os.getpid(), handle))
    while _leaving and not _capturing():
        pid, handle = _leaving.pop()
        if pid == os.getpid():                         # a child has its parent's list, and not its engines
            lib.optc_close(handle)


def _capturing():
    torch = sys.modules.get("torch")
    cuda = getattr(torch, "cuda", None)
    return cuda is not None and cuda.is_initialized() and cuda.is_current_stream_capturing()


class Engine:
    """A device. `allocator`: (alloc(bytes, stream) -> address or None, release(address, bytes, stream))."""

    def __init__(self, device=None, *, threads=0, cache_dir=None, compiler=None, spec_path=None, workspace=0,
                 allocator=None):
        o = _lib.EngineOptions(device=encoded(device), threads=threads, cache_dir=encoded(cache_dir),
                               compiler=encoded(compiler), spec_path=encoded(spec_path), workspace=workspace)
        keep = None
        if allocator:
            keep = _callbacks(*allocator)
            o.allocator = ctypes.pointer(keep)
        out = ctypes.c_void_p()
        lib.optc_open_sized(o, ctypes.sizeof(o), out)
        self.handle = out.value
        self._end = _finalizer(self, _close, self.handle, keep)

    def close(self):
        self._end()

    @property
    def device_name(self):
        return decoded(lib.optc_device_name(self.handle))

    @property
    def threads(self):
        return lib.optc_threads(self.handle)

    def memory(self):
        """Bytes: the device's, what is free of them, what bindings of this engine hold and held at most."""
        m = _lib.Memory()
        lib.optc_memory_info(self.handle, m)
        return {"total": m.total, "free": m.free, "ours": m.ours, "peak": m.peak}

    def compile(self, spec=None, **rest):
        return Rule(self, spec, **rest)

    def multiply(self, a, b, c, **rest):
        """c = scale a b + add c, or scale (a b) d + add c: the members of optc_product by their names."""
        p = _filled("optc_multiply", _lib.Product, dict(rest, a=a, b=b, c=c), _device_of(self))
        self.multiply_ready(p)

    def multiply_ready(self, p):
        """The same of members that product() put together; addresses and the stream may have been set since."""
        lib.optc_multiply_sized(self.handle, p, ctypes.sizeof(p))

    def kron(self, a, b, c, **rest):
        """c = a (x) b: the members of optc_kronecker by their names."""
        k = _filled("optc_kron", _lib.Kronecker, dict(rest, a=a, b=b, c=c), _device_of(self))
        lib.optc_kron_sized(self.handle, k, ctypes.sizeof(k))


def product(**members):
    """An optc_product; for Engine.multiply_ready, where the same is done again and again."""
    return _filled("optc_multiply", _lib.Product, members)


def _device_of(engine):
    return engine.device_name.split(": ")[0]


def _operand(call, name, x, kind, device):
    """Its address, if it is of the type that was said, and c can be written. device None: not known here."""
    if x is None or isinstance(x, int):
        return x
    told = described(x)
    if device:
        _reached(told, "%s: %s" % (call, name), device)
    if told.type and told.type != kind:
        raise _lib.ArgumentError("%s: %s is of type %s, and the call's is %s" % (call, name, _name_of(told.type),
                                                                             _name_of(kind)))
    if told.readonly and name == "c":
        raise _lib.ArgumentError("%s: c is read-only" % call)
    return told.address


def _filled(call, kind, members, device=None):
    unknown = members.keys() - kind.members
    if unknown:
        raise TypeError("%s: there is no %s" % (call, ", ".join(sorted(unknown))))
    x = kind()
    for name, value in members.items():
        if name in ("a", "b", "c", "d"):
            value = _operand(call, name, value, _type(members.get("type")) or _lib.F32, device)
        elif name == "type":
            value = _type(value)
        elif name == "products":
            value = encoded(value)
        setattr(x, name, value)
    return x


def _callbacks(alloc, release):
    """What a callback raises cannot go through C: no memory, and a message where Python says such things."""
    def take(_context, size, stream):
        try:
            return alloc(size, stream)
        except MemoryError:
            return None
        except Exception as e:                         # torch has errors of its own for memory
            warnings.warn("optc: no memory from the allocator: %s" % e)
            return None

    def give(_context, memory, size, stream):
        try:
            release(memory, size, stream)
        except Exception as e:
            warnings.warn("optc: memory was not given back: %s" % e)
    return _lib.Allocator(alloc=_lib.ALLOC(take), release=_lib.RELEASE(give))


def _type(t):
    if t is not None and t not in _lib.TYPE_NAMES:
        raise ValueError("%r is none of the types %s" % (t, ", ".join(_lib.TYPE_NAMES)))
    return _lib.DEFAULT if t is None else _lib.TYPE_NAMES[t]


def _name_of(kind):
    return next((n for n, k in _lib.TYPE_NAMES.items() if k == kind), "another type")


def option_text(options):
    """'amsgrad=true,k=5' of a dict; a text is one already."""
    if not options or isinstance(options, str):
        return options or None
    say = {True: "true", False: "false"}
    return ",".join("%s=%s" % (k, say[v] if isinstance(v, bool) else v) for k, v in options.items())


def types_of(types):
    """{"state": "q8", "ema.avg": "bf16"} of the text "state=q8,ema.avg=bf16"; a dict is one already."""
    if isinstance(types, str):
        parts = [part.partition("=") for part in types.split(",") if part]
        wrong = [key for key, is_, value in parts if not (key and is_ and value)]
        if wrong:
            raise ValueError("types: %r is not KEY=TYPE, as in \"state=q8,ema.avg=bf16\"" % wrong[0])
        types = {key: value for key, _, value in parts}
    return dict(types or {})


def number_of(text):
    """An int where the text is one, else a float."""
    try:
        return int(text)
    except ValueError:
        return float(text)


class Rule:
    """A compiled rule. `spec`: a name, or a path; `text`: the spec itself. `with_`: wrappers, the last outermost.
    `types`: {"param": "bf16", "grad": …, "state": "q8", "ema.avg": "bf16"}, or "param=bf16,state=q8,ema.avg=bf16": keys
    other than param, grad, state, master and copy name states. `wrappers`: {name: text} that `with_` finds first."""

    def __init__(self, engine, spec=None, *, text=None, with_=(), options=None, types=None, wrappers=None,
                 products=None, warn=True):
        with_ = with_ if isinstance(with_, str) else ",".join(with_ or ())
        types = types_of(types)
        named = ",".join("%s=%s" % pair for pair in types.items() if pair[0] not in ("param", "grad", "state"))
        texts = [_lib.Text(encoded(n), encoded(t)) for n, t in (wrappers or {}).items()]
        o = _lib.RuleOptions(
            spec=encoded(spec), text=encoded(text), options=encoded(option_text(options)),
            param=_type(types.get("param")), grad=_type(types.get("grad")), state=_type(types.get("state")),
            wrappers=array(_lib.Text, texts), nwrappers=len(texts), products=encoded(products),
            types=encoded(named or None))
        setattr(o, "with", encoded(with_ or None))
        out = ctypes.c_void_p()
        lib.optc_compile_sized(engine.handle, o, ctypes.sizeof(o), out)
        self.engine, self.handle = engine, out.value
        self.types = [_type(types.get("param")) or _lib.F32]           # of parameters, and of gradients: as those
        self.types.append(_type(types.get("grad")) or self.types[0])
        self._end = _finalizer(self, lib.optc_release, self.handle, engine)
        if warn and not lib.optc_rule_native(self.handle):
            warnings.warn("optc: %s runs on the %s" % (self.name, self.path), stacklevel=3)

    def close(self):
        self._end()

    @property
    def name(self):
        return decoded(lib.optc_rule_name(self.handle))

    @property
    def path(self):
        return decoded(lib.optc_rule_path(self.handle))

    @property
    def plan(self):
        return decoded(lib.optc_rule_plan(self.handle))

    @property
    def native(self):
        return bool(lib.optc_rule_native(self.handle))

    def _list(self, count, one, kind):
        found = []
        for i in range(count(self.handle)):
            x = kind()
            one(self.handle, i, x)
            found.append(x)
        return found

    def hypers(self):
        """{name: (default, lo, hi, lo_open, hi_open)}"""
        return {decoded(h.name): (h.value, h.lo, h.hi, bool(h.lo_open), bool(h.hi_open))
                for h in self._list(lib.optc_rule_hypers, lib.optc_rule_hyper, _lib.Hyper)}

    def states(self):
        """{name: domain}"""
        return {decoded(s.name): decoded(s.domain)
                for s in self._list(lib.optc_rule_states, lib.optc_rule_state, _lib.StateInfo)}

    def values(self):
        """{name: domain} of what a step leaves to be read"""
        return {decoded(s.name): decoded(s.domain)
                for s in self._list(lib.optc_rule_values, lib.optc_rule_value, _lib.StateInfo)}

    def entries(self):
        return [decoded(lib.optc_rule_entry(self.handle, i)) for i in range(lib.optc_rule_entries(self.handle))]

    def inputs(self):
        return [decoded(lib.optc_rule_input(self.handle, i)) for i in range(lib.optc_rule_inputs(self.handle))]

    def input_types(self):
        """{name: (domain, type)}: "group" is a scalar's domain; types are numbers of TYPE_NAMES"""
        return {decoded(s.name): (decoded(s.domain), s.type)
                for s in self._list(lib.optc_rule_inputs, lib.optc_rule_input_info, _lib.StateInfo)}

    def field(self, name):
        """A text field of the spec's head: "doc", "cite" or "fallback" (the rule for tensors that are not matrices).
        "" if the spec has none."""
        return decoded(lib.optc_rule_field(self.handle, encoded(name)))

    def options(self):
        """{name: default, or a tuple of what may be chosen, the default first} of the compile-time options"""
        found = {}
        for o in self._list(lib.optc_rule_option_count, lib.optc_rule_option, _lib.Option):
            text, kind = decoded(o.preset), decoded(o.kind)
            found[decoded(o.name)] = (tuple(decoded(o.choices).split("\n")) if o.choices else text if kind == "text"
                                      else text == "true" if kind == "flag" else number_of(text))
        return found

    def position(self, name):
        """Where the spec declares a hyperparameter or an option: larger is later, -1: it does not"""
        return lib.optc_rule_position(self.handle, encoded(name))

    @property
    def changes_grad(self):
        """A wrapper hands another gradient to the rule inside it than it was given."""
        return bool(lib.optc_rule_changes_grad(self.handle))

    def bind(self, groups):
        return Binding(self, groups)


class Binding:
    """A rule on tensors. `groups`: a list of (tensors, {hyper: value}). A tensor is an array (of NumPy, CuPy, torch,
    ctypes, or with DLPack), a pair of them (parameter, gradient), or a dict of what optc_tensor has: param and grad
    (arrays, or addresses, which need a shape), name, shape, strides, grad_strides, flags, tags, split, global_shape and
    offset (of a piece), states (addresses by the rule's order of states, or None: they go on there). Arrays are held
    as long as they are bound."""

    def __init__(self, rule, groups):
        keep = []
        self._device = _device_of(rule.engine)
        groups = [(list(tensors), hyper) for tensors, hyper in groups]
        made = [_group(tensors, hyper, keep, self._device) for tensors, hyper in groups]
        out = ctypes.c_void_p()
        lib.optc_bind_sized(rule.handle, array(_lib.Group, made), len(made), ctypes.sizeof(_lib.Group),
                            ctypes.sizeof(_lib.Tensor), out)
        self.rule, self.handle = rule, out.value
        self.n = lib.optc_tensors(self.handle)
        self._streams = []                             # memory is given back in the last one: it lives until then
        self._end = _finalizer(self, lib.optc_unbind, self.handle, rule, self._streams)
        self._grads = (ctypes.c_void_p * max(self.n, 1))()
        self._held = {"bound": [t for tensors, _ in groups for t in tensors]}
        if warning := decoded(lib.optc_binding_warning(self.handle)):
            warnings.warn("optc: " + warning, stacklevel=3)

    def close(self):
        self._end()
        self.handle = None

    def step(self):
        lib.optc_step(self.handle)

    def run(self, entry):
        lib.optc_run(self.handle, encoded(entry))

    def set_grads(self, grads):
        """One a tensor: an array that lies as the bound gradient did, an address, or 0 or None where there is none."""
        self._put(grads, "gradients", 1, lib.optc_set_grads)

    def set_params(self, params):
        """Parameters lie there from now on, one array or address a tensor, as they lay; states stay."""
        self._put(params, "parameters", 0, lib.optc_set_params)

    def _put(self, given, what, grad, call):
        """What was held goes once the call has gone well: until then C uses it."""
        a, held = self._grads, None
        try:
            a[:] = given                               # addresses, which is what has to be fast
        except TypeError:
            held = list(given)
            a[:] = [x if x is None or isinstance(x, int) else self._fits(i, x, what, grad)
                    for i, x in enumerate(held)]
        call(self.handle, a, self.n)
        self._held[what] = held

    def _fits(self, i, x, what, grad):
        """Its address, if it is of the size and the type that were bound, and can be written where that is done."""
        x, info = _reached(described(x), "number %d of the %s" % (i, what), self._device), _lib.TensorInfo()
        if x.readonly and not grad:
            raise _lib.ArgumentError("number %d of the %s is read-only" % (i, what))
        lib.optc_tensor_about_sized(self.handle, i, info, ctypes.sizeof(info))
        shape = tuple(info.shape[:info.rank])
        if (x.shape is not None and math.prod(x.shape) != info.count) or x.strides or \
                (x.type and x.type != self.rule.types[grad]):
            raise _lib.ArgumentError("number %d of the %s has shape %s, strides %s and type %s: a row-major array of "
                                     "%s in %s is wanted" % (i, what, x.shape, x.strides, _name_of(x.type), shape,
                                                          _name_of(self.rule.types[grad])))
        return x.address

    def set_hyper(self, group, name, value):
        lib.optc_set_hyper(self.handle, group, encoded(name), value)
        self._hold("hyper", group, name, None)

    def get_hyper(self, group, name):
        out = ctypes.c_double()
        lib.optc_get_hyper(self.handle, group, encoded(name), out)
        return out.value

    def set_input(self, tensor, name, data, count=0):
        """Sets an input of a tensor. data: a row-major array of the input's type, which is held, or an address. count:
        how many values an address has; 0: not checked."""
        at = data
        if not (data is None or isinstance(data, int)):
            told = _reached(described(data), "input '%s'" % name, self._device)
            kind = self.rule.input_types().get(name, (None, told.type))[1]
            if told.strides:
                raise _lib.ArgumentError("input '%s' is not row-major" % name)
            if told.type and told.type != kind:
                raise _lib.ArgumentError("input '%s' is of type %s, and the rule reads %s: convert it first"
                                         % (name, _name_of(told.type), _name_of(kind)))
            at, count = told.address, math.prod(told.shape) if told.shape is not None else count
        lib.optc_set_input(self.handle, tensor, encoded(name), at, count)
        self._held["input", tensor, name] = data

    def set_scalar(self, group, name, value):
        """Sets an input of domain "group" for a group, or for all (-1)."""
        lib.optc_set_scalar(self.handle, group, encoded(name), value)
        self._hold("scalar", group, name, None)

    def set_hyper_from(self, group, name, where, kind=None):
        """Reads a hyperparameter from memory ahead of every run. where: an array of one f32 or f64, which is held, or
        an address of one of `kind` (f32). None ends that: the value that was set last is back."""
        lib.optc_set_hyper_from(self.handle, group, encoded(name), *self._number(where, kind, name))
        self._hold("hyper", group, name, where)

    def set_scalar_from(self, group, name, where, kind=None):
        """Reads an input of domain "group" in the same way. None ends that: the value that was read last stays."""
        lib.optc_set_scalar_from(self.handle, group, encoded(name), *self._number(where, kind, name))
        self._hold("scalar", group, name, where)

    def set_guard(self, where, kind=None):
        """Reads a number in the same way: where it is not 0 a run does nothing. None: there is no guard."""
        lib.optc_set_guard(self.handle, *self._number(where, kind, "the guard"))
        self._hold("guard", -1, None, where)

    def _number(self, where, kind, what):
        """(address, type) of one number, if the device reads it there."""
        if where is None or isinstance(where, int):
            return where, _lib.F32 if kind is None else kind
        told = _reached(described(where), "the number for '%s'" % what, self._device)
        if told.shape is not None and math.prod(told.shape) != 1:
            raise _lib.ArgumentError("the array for '%s' has shape %s, and one number is read" % (what, told.shape))
        if told.type and kind is not None and kind != told.type:
            raise _lib.ArgumentError("the number for '%s' is of type %s, and %s was said"
                                     % (what, _name_of(told.type), _name_of(kind)))
        return told.address, told.type or (_lib.F32 if kind is None else kind)

    def _hold(self, what, group, name, where):
        """Holds what is read for a group, or for all (-1), and lets go of what was read there before."""
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
        """Runs go into this stream from now on: of CuPy, torch or cuda-python, or its handle."""
        lib.optc_set_stream(self.handle, stream_of(stream))
        self._streams[:] = [stream]

    def sync(self):
        lib.optc_sync(self.handle)

    def has_state(self, tensor, name):
        out = ctypes.c_int()
        lib.optc_has_state(self.handle, tensor, encoded(name), out)
        return bool(out.value)

    def state(self, tensor, name):
        """(address, count, type): the live memory"""
        view = _lib.StateView()
        lib.optc_state(self.handle, tensor, encoded(name), view)
        return view.data, view.count, view.type

    def state_bytes(self, tensor, name):
        """Bytes of a state as it is stored: of block codes with padding and scales."""
        out = ctypes.c_size_t()
        lib.optc_state_bytes(self.handle, tensor, encoded(name), out)
        return out.value

    def read(self, tensor, name, count):
        """A state, as numbers"""
        out = (ctypes.c_double * count)()
        lib.optc_state_read(self.handle, tensor, encoded(name), out, count)
        return list(out)

    def write(self, tensor, name, numbers):
        lib.optc_state_write(self.handle, tensor, encoded(name), array(ctypes.c_double, numbers), len(numbers))

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
        return {"states": h.states, "temporaries": h.temporaries, "workspace": h.workspace, "batches": h.batches}

    def factors(self, tensor=-1):
        f = _lib.Factors()
        lib.optc_factors_about_sized(self.handle, tensor, f, ctypes.sizeof(f))
        return {"computed": f.computed, "refused": f.refused, "residual": f.residual}


def _group(tensors, hyper, keep, device):
    single = ([_tensor(keep, device, **_asked(t)) for t in tensors],
              [_lib.Setting(encoded(n), v) for n, v in hyper.items()])
    rows, settings = array(_lib.Tensor, single[0]), array(_lib.Setting, single[1])
    keep += [single, rows, settings]                   # single: what it points to is held by each of them
    return _lib.Group(rows, len(rows) if rows else 0, settings, len(hyper))


def _asked(t):
    """A tensor as a dict: of an array, or of a pair of them, what they tell."""
    if isinstance(t, dict):
        return t
    return {"param": t[0], "grad": t[1]} if isinstance(t, (tuple, list)) else {"param": t}


def _reached(x, what, device):
    """Refuses what lies where the engine does not reach."""
    if x.device is None or x.device == device or (x.device == "cuda" and device != "cpu"):
        return x
    raise _lib.ArgumentError("%s lies on %s, and the engine's device is %s" % (what, x.device, device))


def _tensor(keep, device, param, shape=None, grad=None, name=None, strides=None, grad_strides=None, flags=0, tags=None,
            split=0, global_shape=None, offset=None, states=None):
    label = "of tensor '%s'" % name if name else "of a tensor"
    p, g = (None if x is None or isinstance(x, int) else _reached(described(x), "%s %s" % (what, label), device)
            for x, what in ((param, "the parameter"), (grad, "the gradient")))
    if p and p.readonly:
        raise _lib.ArgumentError("the parameter %s is read-only" % label)
    if shape is None:
        if p is None or p.shape is None:
            raise _lib.ArgumentError("the shape %s is not known: give it with the address" % label)
        shape, strides = p.shape, p.strides if strides is None else strides
        if g and g.shape is not None and g.shape != shape:
            raise _lib.ArgumentError("the gradient %s has shape %s, and the parameter %s" % (label, g.shape, shape))
        grad_strides = g.strides if g and grad_strides is None else grad_strides
        if bool(strides) != bool(grad_strides):        # said of both, or of none
            strides, grad_strides = (x or _row_major(shape) for x in (strides, grad_strides if g else strides))
    elif (p and p.strides and strides is None) or (g and g.strides and grad_strides is None):
        raise _lib.ArgumentError("an array %s is not row-major, and a shape was given: give its strides too" % label)
    for x in (p, g):
        if x and x.shape is not None and math.prod(x.shape) != math.prod(shape):
            raise _lib.ArgumentError("an array %s has shape %s, and the tensor %s" % (label, x.shape, tuple(shape)))
    sizes = [array(ctypes.c_int64, x) if x is not None else None
             for x in (shape, strides, grad_strides, global_shape, offset)]
    lies = array(ctypes.c_void_p, states or ())
    keep += [*sizes, lies]
    return _lib.Tensor(name=encoded(name), param=p.address if p else param, grad=g.address if g else grad,
                       rank=len(shape), shape=sizes[0], param_strides=sizes[1], grad_strides=sizes[2], flags=flags,
                       tags=encoded(tags), split=split, global_shape=sizes[3], offset=sizes[4], states=lies,
                       param_type=p.type or 0 if p else 0, grad_type=g.type or 0 if g else 0)


def _row_major(shape):
    return [math.prod(shape[k + 1:]) for k in range(len(shape))]
