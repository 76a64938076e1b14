"""The library through ctypes: structs and calls as in the header, errors, ownership, processes.
Needs no torch."""
import ast
import ctypes
import gc
import inspect
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import unittest
from unittest import mock
import warnings
import weakref

import optc

try:
    import numpy
except ImportError:
    numpy = None
from optc import _lib

TREE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
STRUCTS = {n[:-1]: None for n in _lib.KINDS if n.startswith("optc_") and n.endswith("*")}


def floats(*x):
    return (ctypes.c_float * len(x))(*x)


class Header(unittest.TestCase):
    def test_layout(self):
        lines = ['#include "optc.h"', "#include <stdio.h>", "int main(void) {"]
        for name in STRUCTS:
            lines.append('printf("%s %%zu\\n", sizeof(%s));' % (name, name))
            for field, _ in _lib.KINDS[name]._fields_:
                lines.append(
                    'printf("%s.%s %%zu\\n", offsetof(%s, %s));' % (name, field, name, field))
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "layout")
            with open(path + ".c", "w") as f:
                f.write("\n".join(lines + ["return 0; }"]))
            compiler = (os.environ.get("CC") or "cc").split()
            subprocess.run(
                compiler + ["-I" + os.path.join(TREE, "runtime"), "-o", path, path + ".c"],
                check=True)
            said = subprocess.run([path], check=True, stdout=subprocess.PIPE,
                                  text=True).stdout.split("\n")
        for line in filter(None, said):
            name, size = line.split()
            struct, _, field = name.partition(".")
            made = _lib.KINDS[struct]
            self.assertEqual(
                getattr(made, field).offset if field else ctypes.sizeof(made), int(size), name)

    def test_calls(self):
        text = ""
        for name in sorted(
                n for n in os.listdir(os.path.join(TREE, "runtime")) if n.endswith(".h")):
            with open(os.path.join(TREE, "runtime", name)) as f:
                text += f.read()
        header = re.sub(r"/\*.*?\*/", "", text, flags=re.S)
        for line in filter(None, _lib.CALLS.split("\n")):
            name, _, kinds = line.partition(": ")
            found = re.search(r"\b%s\(([^)]*)\)" % name, header)
            self.assertTrue(found, name)
            given = [a for a in found.group(1).split(",") if a.strip() != "void"]
            self.assertEqual(len(given), len(kinds.split()) - 1, name)
        enum = re.search(r"enum optc_type \{(.*?)\}", header, re.S).group(1)
        self.assertEqual([("OPTC_" + t.name.upper(), str(t.number)) for t in optc._lib.TYPES],
                         re.findall(r"(OPTC_\w+) = (\d+)", enum)[1:])
        statuses = re.findall(r"OPTC_ERROR_\w+", header.split("optc_status;")[0])
        self.assertEqual(len(statuses) + 1, len(_lib.STATUSES))


class Library(unittest.TestCase):
    def test_step(self):
        p, g = floats(1, 2, 3), floats(1, 1, 1)
        b = optc.Engine().compile("sgd", options={"momentum_buffer": False}).bind(
            [([{"param": p, "grad": g, "shape": (3,), "name": "w"}], {"lr": 0.5})])
        b.step()
        self.assertEqual(list(p), [0.5, 1.5, 2.5])
        b.set_hyper(0, "lr", 1.0)
        b.set_grads([0])
        b.step()
        self.assertEqual((list(p), b.get_t(), b.get_t(0)), ([0.5, 1.5, 2.5], 2, 1))

    def test_factors(self):
        p, g = floats(1, 2, 3, 4), floats(1, 0, 0, float("nan"))
        b = optc.Engine().compile("shampoo").bind([([{"param": p, "grad": g,
                                                      "shape": (2, 2)}], {})])
        self.assertEqual(b.factors(), {"computed": 0, "refused": 0, "residual": 0})
        b.step()
        self.assertEqual(b.factors(0), {"computed": 2, "refused": 2, "residual": float("inf")})

    def test_errors(self):
        e = optc.Engine()
        with self.assertRaisesRegex(optc.SpecError, "mine:2: 'lrr'.*did you mean 'lr'"):
            e.compile("mine", text='return optimizer { name = "mine", hyper = { lr = 1 },\n'
                                   'step = function() p = lrr end }')
        with self.assertRaises(optc.Unavailable):
            optc.Engine("cuda:99")
        b = e.compile("adamw").bind([([{"param": floats(1), "shape": (1,)}], {})])
        with self.assertRaises(optc.RangeError):
            b.set_hyper(0, "lr", -1)
        with self.assertRaises(optc.Absent):
            b.state(0, "vmax")
        with self.assertRaises(optc.ArgumentError):
            b.state(0, "nothing")
        for types, said in (({"params": "f32"}, "has no state 'params'; did you mean 'param'"), ({
                "param": "f9"
        }, "'f9' is not a storage type: use one of f32"), ("q8", "'q8' is not KEY=TYPE"),
                            ("state=q8,vmx=q8",
                             "did you mean 'vmax'"), ({"m": "f9"}, "'m=f9': there is no such"),
                            ("param=q8", "block codes are for states only")):
            with self.assertRaisesRegex(ValueError, said):
                e.compile("adamw", types=types)
        with self.assertRaisesRegex(ValueError, r"contains a zero byte \(character 6\)"):
            e.compile("mine", text="return\0 optimizer { }")
        for kind in _lib.STATUSES[1:]:
            self.assertTrue(issubclass(kind, optc.Error))

    def test_spec_warnings(self):
        """Warnings of `optc check` about a spec given as text or by path; a library rule has
        none."""
        text = ("return optimizer { name = 'x', hyper = { lr = 1, unused = 2 },\n"
                "  step = function() p = p - lr * g  return 2 * p end }")
        e = optc.Engine(cache_dir="")
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "mine.lua")
            with open(path, "w", encoding="utf-8") as f:
                f.write(text)
            for what in ({"spec": "x.lua", "text": text}, {"spec": path}):
                with warnings.catch_warnings(record=True) as found:
                    warnings.simplefilter("always")
                    rule = e.compile(**what)
                said = [str(w.message) for w in found if "runs on the" not in str(w.message)]
                self.assertEqual(len(said), 2, said)
                self.assertRegex(said[0], r"^optc: .*\.lua:2: the entry returns this value")
                self.assertEqual(said[1], "optc: x: nothing reads the hyperparameter 'unused'")
                self.assertEqual(["optc: " + w for w in rule.warnings()], said)
                self.assertEqual(found[-1].filename, __file__)
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            # reads beta1 with some options only
            self.assertEqual(e.compile("adafactor").warnings(), [])
            self.assertEqual(e.compile(spec="x", text=text, warn=False).native, rule.native)
        self.assertEqual([str(w.message) for w in found if "runs on the" not in str(w.message)], [])

    def test_entries(self):
        e = optc.Engine(cache_dir="")
        rule = e.compile("splus", warn=False)
        self.assertEqual({n: rule.reads_gradient(n) for n in rule.entries()},
                         {"step": True, "to_eval": False, "to_train": False})
        with self.assertRaisesRegex(ValueError, r"splus has no entry 'perturb' \(it has: step, "
                                                r"to_eval, to_train\)"):
            rule.reads_gradient("perturb")
        self.assertEqual([
            e.compile(n, options=o, warn=False).has_periods()
            for n, o in (("splus", {}), ("splus", {"stagger": True}), ("adamw", {}))
        ], [True, True, False])
        rule = e.compile("sgd", options={"momentum_buffer": False}, warn=False)
        self.assertRegex(rule.unread("momentum"), "nothing reads the hyperparameter 'momentum' "
                                                  "with momentum_buffer=f")
        self.assertEqual([rule.unread(n) for n in ("lr", "none", None)], [None] * 3)

    def test_types(self):
        """A text and a dict are the same choice; states by name."""
        p = floats(*[1.0] * 4096)
        for types in ("state=q8,m=bf16", {"state": "q8", "m": "bf16"}):
            b = optc.Engine().compile("adamw",
                                      types=types).bind([([(p, floats(*[1.0] * 4096))], {})])
            self.assertEqual((b.state_bytes(0, "m"), b.state_bytes(0, "v")), (8192, 4096 + 4 * 32))
            b.step()
            self.assertEqual(_lib.TYPE_NAMES["q8u"], b.state(0, "v")[2])

    def test_owners(self):
        """Whoever is left holds what it needs."""
        p, g = floats(1), floats(1)
        b = optc.Engine().compile("adamw").bind([([{"param": p, "grad": g, "shape": (1,)}], {})])
        gc.collect()
        b.step()
        taken = {}

        def alloc(size, _stream):
            memory = ctypes.create_string_buffer(size + 64)
            at = (ctypes.addressof(memory) + 63) // 64 * 64
            taken[at] = memory
            return at
        e = optc.Engine(allocator=(alloc, lambda at, size, stream: taken.pop(at)))
        b = e.compile("adamw").bind([([{"param": p, "grad": g, "shape": (1,)}], {})])
        gc.collect()
        b.step()
        self.assertTrue(taken)
        b.close()
        self.assertFalse(taken)

        def none(size, _stream):
            raise RuntimeError("no memory today")
        with warnings.catch_warnings(record=True):
            warnings.simplefilter("always")
            with self.assertRaises(MemoryError):
                optc.Engine(allocator=(none, lambda *_: None)).compile("adamw").bind(
                    [([{"param": p, "grad": g, "shape": (1,)}], {})])

    def test_threads(self):
        rule, wrong = optc.Engine().compile("adamw"), []

        def work():
            p, g = floats(*[1] * 64), floats(*[1] * 64)
            b = rule.bind([([{"param": p, "grad": g, "shape": (64,)}], {})])
            for _ in range(50):
                b.step()
            if abs(p[0] - 0.9496) > 1e-3:
                wrong.append(p[0])
            try:
                b.set_hyper(0, "lr", -1)
            except optc.RangeError as e:
                wrong.extend([] if "lr" in str(e) else [e])
        many = [threading.Thread(target=work) for _ in range(4)]
        [t.start() for t in many], [t.join() for t in many]
        self.assertEqual(wrong, [])

    def test_fork(self):
        p, g = floats(1), floats(1)
        b = optc.Engine().compile("adamw").bind([([{"param": p, "grad": g, "shape": (1,)}], {})])
        b.step()
        pid = os.fork()
        if not pid:
            b.step()
            os._exit(0 if b.get_t() == 2 else 1)
        self.assertEqual(os.waitpid(pid, 0)[1], 0)

    def test_no_compiler(self):
        text = ('return optimizer { name = "alone", hyper = { lr = 1 }, '
                'step = function() p = p - lr * g end }')
        with self.assertWarnsRegex(UserWarning,
                                   "alone runs on the reference evaluator .*; slow, and [^:]*$"):
            optc.Engine(compiler="", cache_dir="").compile("alone", text=text)

    def test_wheel_that_is_not_built(self):
        """What pip shows last says what is missing."""
        package = os.path.join(TREE, "runtime", "python")
        for make, why in (("false", "see make's output above"), ("no_make_here",
                                                                 "there is no 'no_make_here'")):
            ran = subprocess.run([sys.executable, "-c", "import build_wheel; build_wheel.built()"],
                                 text=True, env=dict(os.environ, MAKE=make,
                                                     PYTHONPATH=package), stderr=subprocess.PIPE)
            self.assertEqual(ran.returncode, 1)
            self.assertRegex(ran.stderr.split("\n")[-2], why + ".*headers of Lua 5.4.*make setup")

    def test_stubs(self):
        """optc/__init__.pyi has the public names and their parameters."""
        def parameters(args):
            plain = args.posonlyargs + args.args
            return {a.arg: ast.unparse(d) if d else None for a, d in
                    [*zip(plain, [None] * (len(plain) - len(args.defaults)) + args.defaults),
                     *zip(args.kwonlyargs, args.kw_defaults)]}

        def told(body):
            return {n.name: parameters(n.args) for n in body if isinstance(n, ast.FunctionDef)}

        def real(owner, names):
            found = {}
            for n in names:
                f = inspect.getattr_static(owner, n)
                f = f.fget if isinstance(f, property) else f
                found[n] = {
                    p.name: None if p.default is p.empty else repr(p.default)
                    for p in inspect.signature(f).parameters.values()
                    if p.kind not in (p.VAR_KEYWORD,)
                }
            return found

        with open(os.path.join(os.path.dirname(optc.__file__), "__init__.pyi")) as f:
            stub = ast.parse(f.read()).body
        functions = [n for n in optc.__all__ if inspect.isfunction(getattr(optc, n))]
        self.assertEqual(told(stub), real(optc, functions))
        classes = {n.name: n.body for n in stub if isinstance(n, ast.ClassDef)}
        self.assertEqual(set(classes), {"Engine", "Rule", "Binding", "Profile"})
        for name, body in classes.items():
            made = getattr(optc, name)
            public = [n for n in vars(made) if n == "__init__" or not n.startswith("_")]
            stubs = {
                n: a for n, a in told(body).items() if n == "__init__" or not n.startswith("_")
            }
            self.assertEqual(stubs, real(made, public), name)
        named = {
            a.name for n in stub if isinstance(n, ast.ImportFrom) and n.module == "_lib"
            for a in n.names
        }
        self.assertEqual(
            named,
            {n for n in optc.__all__ if inspect.isclass(getattr(optc, n)) and n not in classes})

    def test_command(self):
        env = dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path))
        said = subprocess.run([sys.executable, "-m", "optc", "--version"], env=env,
                              stdout=subprocess.PIPE, text=True)
        self.assertEqual(said.stdout, "optc %s\n" % optc.__version__)

    def test_arrays(self):
        class Array:
            __array_interface__ = {"data": (4096, False)}
        self.assertEqual([optc.address(x) for x in (None, 7, Array())], [None, 7, 4096])
        with self.assertRaisesRegex(TypeError, "str is not an array"):
            optc.address("x")
        p, g = floats(1, 2, 3), floats(1, 1, 1)
        # ctypes' know their shapes
        b = optc.Engine().compile("sgd").bind([([(p, g)], {"lr": 0.5})])
        b.step()
        self.assertEqual(list(p), [0.5, 1.5, 2.5])

        class Far:                                     # what CuPy tells
            __cuda_array_interface__ = {
                "data": (4096, False), "shape": (3,), "typestr": "<f4", "version": 3
            }

        with self.assertRaisesRegex(optc.ArgumentError,
                                    "the gradient of tensor 'w' is on cuda, .* device is cpu"):
            optc.Engine().compile("sgd").bind([([{"name": "w", "param": p, "grad": Far()}], {})])
        with self.assertRaisesRegex(optc.ArgumentError, "the shape of a tensor is unknown"):
            optc.Engine().compile("sgd").bind([([{"param": 4096}], {})])

    def test_streams(self):
        from optc._arrays import stream_of

        class Named:
            def __init__(self, **what):
                self.__dict__.update(what)
        self.assertEqual([
            stream_of(x) for x in (None, 5, Named(ptr=6), Named(cuda_stream=7),
                                   Named(__cuda_stream__=lambda: (0, 8)))
        ], [None, 5, 6, 7, 8])
        with self.assertRaisesRegex(TypeError, "not a stream"):
            stream_of("x")

    def test_stream_is_held(self):
        """Memory goes back in the stream that was set last: it lives as long as the binding."""

        class Stream:
            ptr = 0
        p, g = (ctypes.c_float * 4)(), (ctypes.c_float * 4)()
        b = optc.Engine("cpu").compile("sgd",
                                       types={"param": "f32"}).bind([([(p, g)], {"lr": 0.1})])
        first, last = Stream(), Stream()
        seen = [weakref.ref(first), weakref.ref(last)]
        b.set_stream(first)
        b.set_stream(last)
        del first, last
        self.assertEqual([s() is not None for s in seen], [False, True])
        del b
        self.assertIsNone(seen[1]())

    def test_closed_behind_a_capture(self):
        """Closing an engine would end a capture of torch's: it goes with the next one."""
        from optc import _api
        closed, now = [], [True]
        with mock.patch.object(_api, "_capturing", lambda: now[0]), \
                mock.patch.object(_api, "lib", mock.Mock(optc_close=closed.append)):
            _api._close(1)
            self.assertEqual((closed, len(_api._leaving)), ([], 1))
            _api._leaving.append((os.getpid() + 1, 3))         # of a parent that forked
            now[0] = False
            _api._close(2)
        self.assertEqual((sorted(closed), _api._leaving), ([1, 2], []))


@unittest.skipUnless(numpy, "no NumPy")
class Numpy(unittest.TestCase):
    """By its interface and by DLPack, against the sums written out."""

    class ByDLPack:
        def __init__(self, x):
            self.x = x

        def __dlpack__(self):
            return self.x.__dlpack__()

    def both(self):
        return (lambda x: x, self.ByDLPack)

    def test_step(self):
        for face in self.both():
            for kind, name in ((numpy.float32, "f32"), (numpy.float64, "f64"),
                               (numpy.float16, "f16"), (numpy.float16, "f16sr")):
                p, g = numpy.ones((2, 3), kind), numpy.arange(6).astype(kind).reshape(2, 3)
                types = {"param": name} if name == "f16sr" else {"param": name, "grad": name}
                rule = optc.Engine().compile("sgd", types=types)
                b = rule.bind([([(face(p), face(g))], {"lr": 0.5, "momentum": 0.0})])
                b.step()
                numpy.testing.assert_array_equal(p, 1 - 0.5 * numpy.arange(6).reshape(2, 3))
                more = numpy.ones((2, 3), kind)
                b.set_grads([face(more)])
                del more                               # it is held
                b.step()
                numpy.testing.assert_array_equal(p, 0.5 - 0.5 * numpy.arange(6).reshape(2, 3))
                q = p.copy()
                b.set_params([face(q)]), b.step()
                numpy.testing.assert_array_equal(q, p - 0.5)

    def test_layouts(self):
        """Columns first, as it lies; nothing, no dimension, a part of a larger one."""
        for face in self.both():
            p, g = numpy.ones((3, 2), numpy.float32).T, numpy.ones((3, 2), numpy.float32).T
            large = numpy.ones((4, 3), numpy.float32)
            some = [(p, g), (numpy.ones((0, 3), numpy.float32), numpy.ones((0, 3), numpy.float32)),
                    (numpy.ones((), numpy.float32), numpy.ones((), numpy.float32)),
                    (large[1:3], numpy.ones((2, 3), numpy.float32))]
            b = optc.Engine().compile("adamw").bind([([tuple(map(face, x)) for x in some],
                                                      {"lr": 0.1})])
            b.step()
            for x, _ in some:
                numpy.testing.assert_allclose(x, 0.899, rtol=1e-6)
            numpy.testing.assert_array_equal(large[[0, 3]], 1)

    def test_refused(self):
        rule, f32 = optc.Engine().compile("sgd"), numpy.float32
        fixed = numpy.ones(3, f32)
        fixed.flags.writeable = False
        for error, text, pair in ((optc.ArgumentError, "read-only", (fixed, numpy.ones(
                3, f32))), (optc.ArgumentError, r"has shape \(4,\), and the parameter \(3,\)",
                            (numpy.ones(3, f32), numpy.ones(4, f32))),
                                  (optc.ArgumentError, "gradient is not of the type", (numpy.ones(
                                      3, f32), numpy.ones(3))), (optc.ArgumentError, "leave gaps",
                                                                 (numpy.ones(6, f32)[::2],
                                                                  numpy.ones(6, f32)[::2])),
                                  (TypeError, "a NumPy scalar", (f32(1), numpy.ones(
                                      (), f32))), (TypeError, "a NumPy scalar", (numpy.ones(
                                          (), f32), f32(1))), (TypeError, "an array of int64",
                                                               (numpy.ones(3,
                                                                           int), numpy.ones(3,
                                                                                            f32))),
                                  (TypeError, "another byte order", (numpy.ones(3, ">f4"),
                                                                     numpy.ones(3, f32)))):
            with self.assertRaisesRegex(error, text):
                rule.bind([([pair], {})])
        b = rule.bind([([numpy.ones(3, f32)], {})])
        for wrong in (numpy.ones(3), numpy.ones(4, f32), numpy.ones(6, f32)[::2]):
            with self.assertRaisesRegex(optc.ArgumentError,
                                        r"number 0 of the gradients .*array of shape \(3,\) and "
                                        r"type f32"):
                b.set_grads([wrong])
        # a shape says nothing of strides
        for x in (numpy.ones((2, 3), f32).T, numpy.ones((3, 4), f32)[:, ::2]):
            with self.assertRaisesRegex(optc.ArgumentError,
                                        "is not row-major: with a shape, give its strides too"):
                rule.bind([([{"param": x, "shape": (3, 2)}], {})])
        with self.assertRaisesRegex(TypeError, "an array of c_short"):
            rule.bind([([(ctypes.c_short * 3)()], {})])

    def test_parameters_are_written(self):
        """Read-only memory is refused; what is refused takes the place of nothing."""
        f32 = numpy.float32
        b = optc.Engine().compile("sgd").bind([([(numpy.ones(3,
                                                             f32), numpy.ones(3,
                                                                              f32))], {"lr": 0.5})])
        with tempfile.NamedTemporaryFile() as f:
            f.write(bytes(12)), f.flush()
            for fixed in (numpy.memmap(f.name, f32, "r"), numpy.frombuffer(bytes(12), f32)):
                with self.assertRaisesRegex(optc.ArgumentError,
                                            "number 0 of the parameters is read-only"):
                    b.set_params([fixed])
        q = numpy.ones(3, f32)
        b.set_params([q])
        held = weakref.ref(q)
        with self.assertRaises(optc.ArgumentError):    # a gradient that lies in the parameter
            b.set_grads([q])
        grads = numpy.ones(3, f32)
        b.set_grads([grads])
        with self.assertRaises(optc.ArgumentError):
            b.set_params([grads])
        del q
        gc.collect()
        self.assertIsNotNone(held())
        b.step()
        numpy.testing.assert_array_equal(held(), 0.5)

    def test_numbers_from_arrays(self):
        """Their type is the array's; they are held until they end, and only one number on this
        device is taken."""
        text = """return optimizer { name = "asks", hyper = { lr = 1 },
          inputs = { hess = "elem", loss = "group" },
          step = function() p = p - lr * loss * g / hess end }"""
        f32 = numpy.float32
        for types, kind, other in (({}, f32, numpy.float64), ({"param": "f64"}, numpy.float64,
                                                              f32)):
            rule = optc.Engine().compile(text=text, types=types)
            p, g, h = numpy.zeros(3, kind), numpy.ones(3, kind), numpy.full(3, 2, kind)
            b = rule.bind([([(p, g)], {})])
            self.assertEqual([d for d, _ in rule.input_types().values()], ["elem", "group"])
            for wrong in (other, numpy.float16):       # misread, or read past its end
                with self.assertRaisesRegex(optc.ArgumentError,
                                            "input 'hess' has type f.*, and the rule reads f"):
                    b.set_input(0, "hess", numpy.ones(3, wrong))
            with self.assertRaisesRegex(optc.ArgumentError, "'loss', which is not set for group 0"):
                b.set_input(0, "hess", h), b.step()
            rate, loss, guard = numpy.array(0.5, numpy.float64), numpy.ones(1,
                                                                            f32), ctypes.c_float(0)

            def held():
                return [sys.getrefcount(x) - n for x, n in zip((rate, loss, guard), before)]
            before = (0, 0, 0)
            before = held()
            b.set_hyper_from(-1, "lr", rate)
            b.set_scalar_from(0, "loss", loss)
            b.set_guard(guard)
            self.assertEqual(held(), [1, 1, 1])
            b.step()
            numpy.testing.assert_array_equal(p, -0.25)
            guard.value = 1
            b.step()
            numpy.testing.assert_array_equal(p, -0.25)
            b.set_hyper_from(-1, "lr", None), b.set_scalar(0, "loss", 2), b.set_guard(None)
            self.assertEqual(held(), [0, 0, 0])
            b.step()
            numpy.testing.assert_array_equal(p, -1.25)
            b.set_hyper_from(0, "lr", rate), b.set_hyper(-1, "lr", 1)
            self.assertEqual(held(), [0, 0, 0])

            class Far:
                __cuda_array_interface__ = {
                    "data": (4096, False), "shape": (), "typestr": "<f4", "version": 3
                }

            for wrong, says in ((numpy.ones(2,
                                            f32), r"has shape \(2,\): it must contain one number"),
                                (numpy.ones((), numpy.float16),
                                 "the type of a number in memory must be OPTC_F32 or OPTC_F64"),
                                (Far(), "is on cuda, and the engine's device is cpu")):
                for call in (lambda x: b.set_hyper_from(0, "lr", x),
                             lambda x: b.set_scalar_from(0, "loss", x), b.set_guard):
                    with self.assertRaisesRegex(optc.ArgumentError, says):
                        call(wrong)
            with self.assertRaisesRegex(optc.ArgumentError, "has type f64, and the call says f32"):
                b.set_hyper_from(0, "lr", rate, optc._lib.F32)

    def test_stacks_are_told_of(self):
        rule = optc.Engine().compile("muon")
        with self.assertWarnsRegex(
                UserWarning,
                "'w' .*one matrix of 3 x 320.*split = 3, or use a spec with view") as said:
            rule.bind([([{"name": "w", "param": numpy.ones((3, 16, 20), numpy.float32)}], {})])
        self.assertEqual(said.filename, __file__)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            rule.bind([([numpy.ones((32, 4, 5), numpy.float32)], {})])

    def test_products_of_arrays(self):
        a, c = numpy.ones((2, 2), numpy.float32), numpy.zeros((2, 2), numpy.float32)
        engine, sizes = optc.Engine(), {"m": 2, "n": 2, "k": 2}
        engine.multiply(a, a, c, **sizes)
        numpy.testing.assert_array_equal(c, 2)
        with self.assertRaisesRegex(optc.ArgumentError,
                                    "optc_multiply: b has type f64, and the call has type f32"):
            engine.multiply(a, numpy.ones((2, 2)), c, **sizes)
        c.flags.writeable = False
        with self.assertRaisesRegex(optc.ArgumentError, "optc_multiply: c is read-only"):
            engine.multiply(a, a, c, **sizes)


class Profiles(unittest.TestCase):
    def binding(self):
        p, g = (ctypes.c_float * 4096)(), (ctypes.c_float * 4096)(*[1] * 4096)
        return optc.Engine(threads=1).compile("adamw").bind(
            [([{"param": p, "grad": g, "shape": (64, 64)}], {})])

    def test_steps(self):
        b = self.binding()
        b.step()
        with optc.profile() as prof:
            b.step(), b.step()
            self.assertIn("adamw step", prof.table())
        b.step()
        with optc.profile() as other:
            b.step()
        steps = [e for e in prof.events if e["name"] == "adamw step"]
        self.assertEqual((len(steps), len([e for e in other.events if e["cat"] == "entry"])),
                         (2, 1))
        for step in steps:
            inside = [e["dur"] for e in prof.events
                      if e["cat"] == "stage" and step["ts"] <= e["ts"] < step["ts"] + step["dur"]]
            self.assertTrue(0 < sum(inside) <= step["dur"] + 0.01)
        total, = [t for t in prof.totals if t["name"] == "adamw step"]
        self.assertEqual((total["launches"], total["of"]), (2, ""))
        # reads p, g, m, v; writes p, m, v
        self.assertEqual(total["bytes"] // 2 // 4096, 7 * 4)
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "out.json")
            prof.save(path)
            with open(path) as f:
                self.assertEqual(len([e for e in json.load(f)["traceEvents"] if e["ph"] == "X"]),
                                 len(prof.events))
            with self.assertRaises(OSError):
                prof.save(folder)

    def test_one_at_a_time(self):
        with optc.profile():
            with self.assertRaisesRegex(optc.Busy, "a profile is recording already"):
                optc.profile().__enter__()
        with self.assertRaises(ZeroDivisionError):
            with optc.profile():
                1 / 0
        with optc.profile() as prof:                   # an exception ended the last one
            pass
        self.assertEqual(prof.events, [])


if __name__ == "__main__":
    unittest.main()
