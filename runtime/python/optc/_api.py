"""Engines, rules and bindings: what optc.h has, as objects. An engine outlives its rules and a rule its bindings, as
references see to; all of them go when nobody holds them, and at exit nothing is waited for."""
import ctypes
import os
import warnings
import weakref

from . import _lib
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
        self._end = _finalizer(self, lib.optc_close, self.handle, keep)

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
        _sized(lib.optc_multiply_sized, self.handle, _lib.Product, dict(rest, a=a, b=b, c=c))

    def kron(self, a, b, c, **rest):
        """c = a (x) b: the members of optc_kronecker by their names."""
        _sized(lib.optc_kron_sized, self.handle, _lib.Kronecker, dict(rest, a=a, b=b, c=c))


def _sized(call, handle, kind, members):
    known = {n for n, _ in kind._fields_}
    unknown = set(members) - known
    if unknown:
        raise TypeError("%s: there is no %s" % (call.__name__[:-len("_sized")], ", ".join(sorted(unknown))))
    x = kind()
    for name, value in members.items():
        if name in ("a", "b", "c", "d"):
            value = address(value)
        elif name == "type":
            value = _type(value)
        elif name == "products":
            value = encoded(value)
        setattr(x, name, value)
    call(handle, x, ctypes.sizeof(x))


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
    return _lib.DEFAULT if t is None else _lib.TYPE_NAMES[t]


def option_text(options):
    """'amsgrad=true,k=5' of a dict; a text is one already."""
    if not options or isinstance(options, str):
        return options or None
    say = {True: "true", False: "false"}
    return ",".join("%s=%s" % (k, say[v] if isinstance(v, bool) else v) for k, v in options.items())


class Rule:
    """A compiled rule. `spec`: a name, or a path; `text`: the spec itself. `with_`: wrappers, the last outermost.
    `types`: {"param": "bf16", "grad": …, "state": …}. `wrappers`: {name: text} that `with_` finds first."""

    def __init__(self, engine, spec=None, *, text=None, with_=(), options=None, types=None, wrappers=None,
                 products=None, warn=True):
        with_ = with_ if isinstance(with_, str) else ",".join(with_ or ())
        types = types or {}
        unknown = set(types) - {"param", "grad", "state"}
        if unknown:
            raise ValueError("types: %s is none of param, grad, state" % ", ".join(sorted(unknown)))
        texts = [_lib.Text(encoded(n), encoded(t)) for n, t in (wrappers or {}).items()]
        o = _lib.RuleOptions(
            spec=encoded(spec), text=encoded(text), options=encoded(option_text(options)),
            param=_type(types.get("param")), grad=_type(types.get("grad")), state=_type(types.get("state")),
            wrappers=array(_lib.Text, texts), nwrappers=len(texts), products=encoded(products))
        setattr(o, "with", encoded(with_ or None))
        out = ctypes.c_void_p()
        lib.optc_compile_sized(engine.handle, o, ctypes.sizeof(o), out)
        self.engine, self.handle = engine, out.value
        self._end = _finalizer(self, lib.optc_release, self.handle, engine)
        if warn and not lib.optc_rule_native(self.handle):
            warnings.warn("optc: %s runs on the %s: slowly, in double precision" % (self.name, self.path),
                          stacklevel=3)

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

    def bind(self, groups):
        return Binding(self, groups)


class Binding:
    """A rule on tensors. `groups`: a list of (tensors, {hyper: value}); a tensor is a dict of what optc_tensor has:
    name, param and grad (addresses, or what `address` knows), shape, strides, grad_strides, flags, tags, split,
    global_shape and offset (of a piece), states (addresses by the rule's order of states, or None: they go on there)."""

    def __init__(self, rule, groups):
        keep = []
        made = [_group(tensors, hyper, keep) for tensors, hyper in groups]
        out = ctypes.c_void_p()
        lib.optc_bind_sized(rule.handle, array(_lib.Group, made), len(made), ctypes.sizeof(_lib.Group),
                            ctypes.sizeof(_lib.Tensor), out)
        self.rule, self.handle = rule, out.value
        self.n = lib.optc_tensors(self.handle)
        self._end = _finalizer(self, lib.optc_unbind, self.handle, rule)
        self._grads = (ctypes.c_void_p * max(self.n, 1))()

    def close(self):
        self._end()
        self.handle = None

    def step(self):
        lib.optc_step(self.handle)

    def run(self, entry):
        lib.optc_run(self.handle, encoded(entry))

    def set_grads(self, addresses):
        """One address a tensor, 0 or None where there is none."""
        a = self._grads
        a[:] = addresses
        lib.optc_set_grads(self.handle, a, self.n)

    def set_params(self, addresses):
        """Parameters lie there from now on, one address a tensor; states stay."""
        a = self._grads
        a[:] = addresses
        lib.optc_set_params(self.handle, a, self.n)

    def set_hyper(self, group, name, value):
        lib.optc_set_hyper(self.handle, group, encoded(name), value)

    def get_hyper(self, group, name):
        out = ctypes.c_double()
        lib.optc_get_hyper(self.handle, group, encoded(name), out)
        return out.value

    def set_input(self, tensor, name, data, count):
        lib.optc_set_input(self.handle, tensor, encoded(name), address(data), count)

    def set_scalar(self, group, name, value):
        lib.optc_set_scalar(self.handle, group, encoded(name), value)

    def set_hyper_from(self, group, name, where, kind=_lib.F32):
        """Read from memory ahead of every run; None ends that. So for set_scalar_from and set_guard."""
        lib.optc_set_hyper_from(self.handle, group, encoded(name), address(where), kind)

    def set_scalar_from(self, group, name, where, kind=_lib.F32):
        lib.optc_set_scalar_from(self.handle, group, encoded(name), address(where), kind)

    def set_guard(self, where, kind=_lib.F32):
        """Where that number is not 0 a run does nothing."""
        lib.optc_set_guard(self.handle, address(where), kind)

    def get_t(self, tensor=-1):
        out = ctypes.c_int64()
        lib.optc_get_t(self.handle, tensor, out)
        return out.value

    def set_t(self, tensor, steps):
        lib.optc_set_t(self.handle, tensor, steps)

    def set_stream(self, stream):
        lib.optc_set_stream(self.handle, stream)

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


def _group(tensors, hyper, keep):
    single = [_tensor(keep=keep, **t) for t in tensors], [_lib.Setting(encoded(n), v) for n, v in hyper.items()]
    rows, settings = array(_lib.Tensor, single[0]), array(_lib.Setting, single[1])
    keep += [single, rows, settings]                   # single: what it points to is held by each of them
    return _lib.Group(rows, len(rows) if rows else 0, settings, len(hyper))


def _tensor(keep, param, shape, grad=None, name=None, strides=None, grad_strides=None, flags=0, tags=None, split=0,
            global_shape=None, offset=None, states=None):
    sizes = [array(ctypes.c_int64, x) if x is not None else None
             for x in (shape, strides, grad_strides, global_shape, offset)]
    lies = array(ctypes.c_void_p, states or ())
    keep += [*sizes, lies]
    return _lib.Tensor(name=encoded(name), param=address(param), grad=address(grad), rank=len(shape), shape=sizes[0],
                       param_strides=sizes[1], grad_strides=sizes[2], flags=flags, tags=encoded(tags), split=split,
                       global_shape=sizes[3], offset=sizes[4], states=lies)


def address(x):
    """Where an array lies: a number already, a torch tensor, or what NumPy, CuPy and DLPack tell of one."""
    if x is None or isinstance(x, int):
        return x
    if hasattr(x, "data_ptr"):
        return x.data_ptr()
    for face in ("__cuda_array_interface__", "__array_interface__"):
        told = getattr(x, face, None)
        if told:
            return told["data"][0]
    if hasattr(x, "__dlpack__"):
        return _dlpack(x)
    return ctypes.addressof(x)


class _DLTensor(ctypes.Structure):                     # the head of a DLManagedTensor
    _fields_ = [("data", ctypes.c_void_p), ("device_type", ctypes.c_int), ("device_id", ctypes.c_int),
                ("ndim", ctypes.c_int), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
                ("shape", ctypes.c_void_p), ("strides", ctypes.c_void_p), ("byte_offset", ctypes.c_uint64)]


def _dlpack(x):
    capsule = x.__dlpack__()
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    t = _DLTensor.from_address(get(capsule, b"dltensor"))
    return (t.data or 0) + t.byte_offset
