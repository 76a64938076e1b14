"""The library by ctypes: layouts and calls as the header has them, errors, owners, processes. Needs no torch."""
import ctypes
import gc
import os
import re
import subprocess
import sys
import tempfile
import threading
import unittest
import warnings

import optc
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
                lines.append('printf("%s.%s %%zu\\n", offsetof(%s, %s));' % (name, field, name, field))
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "layout")
            with open(path + ".c", "w") as f:
                f.write("\n".join(lines + ["return 0; }"]))
            compiler = (os.environ.get("CC") or "cc").split()
            subprocess.run(compiler + ["-I" + os.path.join(TREE, "runtime"), "-o", path, path + ".c"], check=True)
            said = subprocess.run([path], check=True, stdout=subprocess.PIPE, text=True).stdout.split("\n")
        for line in filter(None, said):
            name, size = line.split()
            struct, _, field = name.partition(".")
            made = _lib.KINDS[struct]
            self.assertEqual(getattr(made, field).offset if field else ctypes.sizeof(made), int(size), name)

    def test_calls(self):
        with open(os.path.join(TREE, "runtime", "optc.h")) as f:
            header = re.sub(r"/\*.*?\*/", "", f.read(), flags=re.S)
        for line in filter(None, _lib.CALLS.split("\n")):
            name, _, kinds = line.partition(": ")
            found = re.search(r"\b%s\(([^)]*)\)" % name, header)
            self.assertTrue(found, name)
            given = [a for a in found.group(1).split(",") if a.strip() != "void"]
            self.assertEqual(len(given), len(kinds.split()) - 1, name)
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
        b = optc.Engine().compile("shampoo").bind([([{"param": p, "grad": g, "shape": (2, 2)}], {})])
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
        with self.assertRaises(ValueError):
            e.compile("adamw", types={"params": "f32"})
        for kind in _lib.STATUSES[1:]:
            self.assertTrue(issubclass(kind, optc.Error))

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
        text = 'return optimizer { name = "alone", hyper = { lr = 1 }, step = function() p = p - lr * g end }'
        with self.assertWarnsRegex(UserWarning, "reference evaluator"):
            optc.Engine(compiler="", cache_dir="").compile("alone", text=text)

    def test_command(self):
        env = dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path))
        said = subprocess.run([sys.executable, "-m", "optc", "--version"], env=env, stdout=subprocess.PIPE, text=True)
        self.assertEqual(said.stdout, "optc %s\n" % optc.__version__)

    def test_arrays(self):
        class Array:
            __array_interface__ = {"data": (4096, False)}
        self.assertEqual([optc.address(x) for x in (None, 7, Array())], [None, 7, 4096])


if __name__ == "__main__":
    unittest.main()
