"""Engines, rules and bindings of optc.h as objects. References keep an engine alive for its rules,
and a rule for its bindings. Each is freed when its last reference is gone; at exit nothing is freed
and nothing waits."""
import ctypes
import os
import sys
import warnings

from . import _lib
from ._arrays import described
from ._binding import Binding, _device_of, _finalizer, _name_of, _reached
from ._lib import array, decoded, encoded, lib


# (pid, handle) of engines to close after torch's capture
_leaving = []


def _close(handle):
    """Closes an engine. Closing would end a running capture, so during one it is delayed until the
    next engine is closed."""
    _leaving.append((os.getpid(), handle))
    while _leaving and not _capturing():
        pid, handle = _leaving.pop()
        # a forked child has the list, but not the engines
        if pid == os.getpid():
            lib.optc_close(handle)


def _capturing():
    torch = sys.modules.get("torch")
    cuda = getattr(torch, "cuda", None)
    return cuda is not None and cuda.is_initialized() and cuda.is_current_stream_capturing()


class Engine:
    """A device. `allocator`: (alloc(bytes, stream) -> address or None, release(address, bytes,
    stream))."""

    def __init__(self, device=None, *, threads=0, cache_dir=None, compiler=None, spec_path=None,
                 workspace=0, allocator=None):
        o = _lib.EngineOptions(device=encoded(device), threads=threads,
                               cache_dir=encoded(cache_dir), compiler=encoded(compiler),
                               spec_path=encoded(spec_path), workspace=workspace,
                               cache_base=encoded(_lib.cache_bases()))
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
        """Bytes of the device: total, free, held by bindings of this engine now (ours) and at most
        (peak)."""
        m = _lib.Memory()
        lib.optc_memory_info(self.handle, m)
        return {"total": m.total, "free": m.free, "ours": m.ours, "peak": m.peak}

    def compile(self, spec=None, **rest):
        return Rule(self, spec, **rest)

    def multiply(self, a, b, c, **rest):
        """c = scale a b + add c, or scale (a b) d + add c. Keywords are the members of
        optc_product."""
        p = _filled("optc_multiply", _lib.Product, dict(rest, a=a, b=b, c=c), _device_of(self))
        self.multiply_ready(p)

    def multiply_ready(self, p):
        """The same with a struct of product(), whose addresses and stream may have been set
        since."""
        lib.optc_multiply_sized(self.handle, p, ctypes.sizeof(p))

    def kron(self, a, b, c, **rest):
        """c = a (x) b, the Kronecker product. Keywords are the members of optc_kronecker."""
        k = _filled("optc_kron", _lib.Kronecker, dict(rest, a=a, b=b, c=c), _device_of(self))
        lib.optc_kron_sized(self.handle, k, ctypes.sizeof(k))


def product(**members):
    """An optc_product for Engine.multiply_ready, for products that are computed repeatedly."""
    return _filled("optc_multiply", _lib.Product, members)


def _operand(call, name, x, kind, device):
    """The address of an operand. Refuses another type than `kind`, and a read-only c. device None:
    not checked."""
    if x is None or isinstance(x, int):
        return x
    told = described(x)
    if device:
        _reached(told, "%s: %s" % (call, name), device)
    if told.type and told.type != kind:
        raise _lib.ArgumentError("%s: %s has type %s, and the call has type %s: convert it, or "
                                 "pass type="
                                 % (call, name, _name_of(told.type), _name_of(kind)))
    if told.readonly and name == "c":
        raise _lib.ArgumentError("%s: c is read-only" % call)
    return told.address


def _filled(call, kind, members, device=None):
    unknown = members.keys() - kind.members
    if unknown:
        raise TypeError("%s: unknown argument %s" % (call, ", ".join(sorted(unknown))))
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
    """An optc_allocator of two functions. Exceptions cannot pass through C: they become NULL and a
    warning."""
    def take(_context, size, stream):
        try:
            return alloc(size, stream)
        except MemoryError:
            return None
        except KeyboardInterrupt as e:                 # C would get an address that is none
            _lib.interrupts.append(e)
            return None
        # torch raises its own errors for lack of memory
        except Exception as e:
            warnings.warn("optc: the allocator failed: %s" % e)
            return None

    def give(_context, memory, size, stream):
        try:
            release(memory, size, stream)
        except KeyboardInterrupt as e:
            _lib.interrupts.append(e)
        except Exception as e:
            warnings.warn("optc: the allocator could not free memory: %s" % e)
    return _lib.Allocator(alloc=_lib.ALLOC(take), release=_lib.RELEASE(give))


def _type(t):
    if t is not None and t not in _lib.TYPE_NAMES:
        raise ValueError(
            "%r is not a storage type: use one of %s" % (t, ", ".join(_lib.TYPE_NAMES)))
    return _lib.DEFAULT if t is None else _lib.TYPE_NAMES[t]


def option_text(options):
    """A dict of options as text: 'amsgrad=true,k=5'. A text stays as it is."""
    if not options or isinstance(options, str):
        return options or None
    say = {True: "true", False: "false"}
    return ",".join("%s=%s" % (k, say[v] if isinstance(v, bool) else v) for k, v in options.items())


def types_of(types):
    """{"state": "q8", "ema.avg": "bf16"} of the text "state=q8,ema.avg=bf16"; a dict is one
    already."""
    if isinstance(types, str):
        parts = [part.partition("=") for part in types.split(",") if part]
        wrong = [key for key, is_, value in parts if not (key and is_ and value)]
        if wrong:
            raise ValueError(
                "types: %r is not KEY=TYPE, as in \"state=q8,ema.avg=bf16\"" % wrong[0])
        types = {key: value for key, _, value in parts}
    return dict(types or {})


def number_of(text):
    """The number in a text: an int if possible, otherwise a float."""
    try:
        return int(text)
    except ValueError:
        return float(text)


class Rule:
    """A compiled rule. `spec`: a name, or a path; `text`: the spec itself. `with_`: wrappers, the
    last outermost.
    `types`: {"param": "bf16", "grad": …, "state": "q8", "ema.avg": "bf16"}, or
    "param=bf16,state=q8,ema.avg=bf16": keys other than param, grad, state, master, copy and lost
    name states. `wrappers`: {name: text} that `with_` finds first.
    `bindings`: of this and other rules, which share values of all tensors (optc.h).
    `check`: warns about probable mistakes in the spec; `warn`: also if it is not compiled code.
    False: no warnings."""

    def __init__(self, engine, spec=None, *, text=None, with_=(), options=None, types=None,
                 wrappers=None, products=None, bindings=0, warn=True, check=True):
        with_ = with_ if isinstance(with_, str) else ",".join(with_ or ())
        types = types_of(types)
        named = ",".join(
            "%s=%s" % pair for pair in types.items() if pair[0] not in ("param", "grad", "state"))
        texts = [_lib.Text(encoded(n), encoded(t)) for n, t in (wrappers or {}).items()]
        o = _lib.RuleOptions(spec=encoded(spec), text=encoded(text), options=encoded(
            option_text(options)), param=_type(types.get("param")), grad=_type(types.get("grad")),
                             state=_type(types.get("state")), wrappers=array(_lib.Text, texts),
                             nwrappers=len(texts), products=encoded(products),
                             types=encoded(named or None), bindings=bindings)
        setattr(o, "with", encoded(with_ or None))
        out = ctypes.c_void_p()
        lib.optc_compile_sized(engine.handle, o, ctypes.sizeof(o), out)
        self.engine, self.handle = engine, out.value
        # of parameters, then of gradients
        self.types = [_lib.PLAIN[_type(types.get("param")) or _lib.F32]]
        self.types.append(_type(types.get("grad")) or self.types[0])
        self._end = _finalizer(self, lib.optc_release, self.handle, engine)
        if warn and not lib.optc_rule_native(self.handle):
            warnings.warn("optc: %s runs on the %s" % (self.name, self.path), stacklevel=3)
        for text in self.warnings() if warn and check else ():
            warnings.warn("optc: " + text, stacklevel=3)

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
        """{name: domain} of the values that a step leaves for the caller"""
        return {decoded(s.name): decoded(s.domain)
                for s in self._list(lib.optc_rule_values, lib.optc_rule_value, _lib.StateInfo)}

    def entries(self):
        return [
            decoded(lib.optc_rule_entry(self.handle, i))
            for i in range(lib.optc_rule_entries(self.handle))
        ]

    def reads_gradient(self, entry):
        """Whether this entry, "step" or another, reads gradients"""
        known = self.entries()
        if entry not in known:
            raise ValueError(
                "%s has no entry %r (it has: %s)" % (self.name, entry, ", ".join(known)))
        return bool(lib.optc_rule_reads_gradient(self.handle, known.index(entry)))

    def has_periods(self):
        """Whether some work is done at some steps only: every(k, …) in a spec, staggered or not"""
        return bool(lib.optc_rule_has_periods(self.handle))

    def tags(self):
        """The words that the rule looks for in the tags of tensors: `tagged "head"` of a spec"""
        found = []
        while tag := lib.optc_rule_tag(self.handle, len(found)):
            found.append(decoded(tag))
        return found

    def gradients(self, step=0):
        """The entries of a training step (1, 2, …) in order; each needs fresh gradients:
        ["perturb", "step"]. Step 0: those of any step"""
        found, i = [], 0
        while entry := lib.optc_rule_gradient(self.handle, step, i):
            found, i = found + [decoded(entry)], i + 1
        return found

    def inputs(self):
        return [
            decoded(lib.optc_rule_input(self.handle, i))
            for i in range(lib.optc_rule_inputs(self.handle))
        ]

    def input_types(self):
        """{name: (domain, type)}: the domain of a scalar is "group"; types are the numbers of
        TYPE_NAMES"""
        return {decoded(s.name): (decoded(s.domain), s.type)
                for s in self._list(lib.optc_rule_inputs, lib.optc_rule_input_info, _lib.StateInfo)}

    def warnings(self):
        """Warnings of `optc check`: about a spec given as text or by path, and about storage types.
        Compiling the rule issues them with warnings.warn."""
        return [
            decoded(lib.optc_rule_warning(self.handle, i))
            for i in range(lib.optc_rule_warnings(self.handle))
        ]

    def type_warnings(self, **hyper):
        """Warnings about storage types that cannot work with these hyperparameters; others have
        their defaults."""
        values = [_lib.Setting(encoded(n), v) for n, v in hyper.items()]
        buf = ctypes.create_string_buffer(1 << 14)
        lib.optc_type_warnings(self.handle, array(_lib.Setting, values), len(values), buf, len(buf))
        return [text for text in decoded(buf.value).split("\n\n") if text]

    def unread(self, name):
        """Why a value of this hyperparameter has no effect: nothing reads it with the rule's
        options. None: it is read, or the rule has no hyperparameter of that name."""
        return decoded(lib.optc_rule_unread(self.handle, encoded(name)))

    def field(self, name):
        """A text field of the spec's head: "doc", "cite" or "fallback" (the rule for tensors that
        are not matrices). "vectors": "true" if tensors of one dimension are stepped as matrices. ""
        if the spec has none."""
        return decoded(lib.optc_rule_field(self.handle, encoded(name)))

    def options(self):
        """{name: default} of the compile-time options; a tuple of all choices, the default first,
        if they are fixed"""
        found = {}
        for o in self._list(lib.optc_rule_option_count, lib.optc_rule_option, _lib.Option):
            text, kind = decoded(o.preset), decoded(o.kind)
            found[decoded(
                o.name)] = (tuple(decoded(o.choices).split("\n")) if o.choices else text if kind
                            == "text" else text == "true" if kind == "flag" else number_of(text))
        return found

    def position(self, name):
        """The position of a hyperparameter or an option in the spec's declarations; -1: it is not
        declared"""
        return lib.optc_rule_position(self.handle, encoded(name))

    @property
    def changes_grad(self):
        """Whether a wrapper passes a changed gradient to the rule inside it."""
        return bool(lib.optc_rule_changes_grad(self.handle))

    def follows_params(self):
        """States that store what parameters round away. They are stale after other code writes a
        parameter."""
        return [n for n in self.states() if lib.optc_rule_follows_params(self.handle, encoded(n))]

    def copies_of_params(self):
        """Values that are copies of the parameters (types copy=)."""
        return [n for n in self.values() if lib.optc_rule_follows_params(self.handle, encoded(n))]

    def lower_triangles(self):
        """States that the rule keeps lower triangles. Values right of their diagonals must be 0."""
        return [n for n in self.states() if lib.optc_rule_lower_triangle(self.handle, encoded(n))]

    def check_state(self, name, tensor, address, kind, at, count):
        """Checks values for such a state of a tensor, {shape, name, flags, split, tags}: `count`
        values in host memory, of type number `kind`, from index `at` of the state on."""
        shape = array(ctypes.c_int64, tensor["shape"])
        row = _lib.Tensor(name=encoded(tensor["name"]), rank=len(tensor["shape"]), shape=shape,
                          flags=tensor["flags"], split=tensor["split"],
                          tags=encoded(tensor["tags"]))
        lib.optc_rule_check_state_sized(self.handle, encoded(name), row, kind, address, at, count,
                                        ctypes.sizeof(row))

    def bind(self, groups, comm=None):
        return Binding(self, groups, comm)
