"""optc.save and optc.load: files that other tools read, resumed runs, conversions, `optc checkpoint
show`. Needs no torch and no package of safetensors: the file is read by its definition."""
import json
import os
import struct
import subprocess
import tempfile
import unittest
import warnings

import numpy

import optc
from optc import _lib

DTYPES = {"F32": "<f4", "F64": "<f8", "I64": "<i8", "U8": "u1", "I16": "<i2", "F16": "<f2"}


def contents(path):
    """(tensors as arrays, metadata) of a safetensors file"""
    with open(path, "rb") as f:
        data = f.read()
    n, = struct.unpack("<Q", data[:8])
    header = json.loads(data[8:8 + n].decode("utf-8"))
    meta = header.pop("__metadata__")
    at, tensors = 0, {}
    for name, t in sorted(header.items(), key=lambda x: x[1]["data_offsets"]):
        begin, end = t["data_offsets"]
        assert begin == at, name                       # no gaps
        at = end
        tensors[name] = numpy.frombuffer(data[8 + n + begin:8 + n + end],
                                         DTYPES[t["dtype"]]).reshape(t["shape"])
    assert 8 + n + at == len(data)
    return tensors, meta


class Saved(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = os.path.join(folder.name, "run.safetensors")

    def bind(self, types=None, spec="adamw", seed=0):
        rng = numpy.random.default_rng(seed)
        p = [rng.standard_normal((70, 60)).astype("f4"), rng.standard_normal(5).astype("f4")]
        g = [numpy.full_like(x, 0.1) for x in p]
        rule = optc.Engine(threads=1).compile(spec, types=types)
        tensors = [{"name": n, "param": x, "grad": y} for n, x, y in zip(("w", "b"), p, g)]
        return rule.bind([(tensors, {"lr": 0.01})]), p

    def test_resumes(self):
        a, p = self.bind()
        for _ in range(3):
            a.step()
        a.set_hyper(0, "lr", 0.02)
        optc.save(a, self.path)
        b, q = self.bind(seed=1)
        for x, y in zip(q, p):
            x[:] = y
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            optc.load(b, self.path)
        self.assertEqual((b.get_t(), b.get_hyper(0, "lr")), (3, 0.02))
        a.step(), b.step()
        numpy.testing.assert_array_equal(p[0], q[0])
        tensors, meta = contents(self.path)
        self.assertEqual(tensors["w/m"].shape, (70, 60))
        self.assertEqual(list(tensors["optc.t"]), [3, 3, 3])
        self.assertEqual(tensors["optc.hyper"][0][meta["optc.hypers"].split(",").index("lr")], 0.02)
        self.assertEqual((meta["optc"], meta["optc.rule"], meta["optc.t"]), ("1", "adamw", "3"))
        self.assertEqual(os.listdir(os.path.dirname(self.path)), ["run.safetensors"])

    def test_other_types(self):
        a, _ = self.bind()
        a.step()
        optc.save(a, self.path)
        b, _ = self.bind("state=q8")
        with self.assertWarnsRegex(UserWarning,
                                   "state 'm' was converted from f32 to q8, in 1 tensor") as said:
            optc.load(b, self.path)
        self.assertEqual(said.filename, __file__)
        optc.save(b, self.path)
        tensors, meta = contents(self.path)
        self.assertEqual((tensors["w/m"].dtype, tensors["w/m/scale"].shape), (numpy.uint8, (33,)))
        self.assertEqual(tensors["b/m"].dtype, numpy.float32)
        self.assertIn("m=q8,v=q8u", meta["optc.types"])

    def test_edited_files(self):
        """A file that another tool changed loads without its hash, and is refused with it."""
        a, _ = self.bind()
        a.step()
        optc.save(a, self.path)
        tensors, meta = contents(self.path)
        tensors["w/m"] = numpy.full((70, 60), 7, "f4")
        for hashed in (True, False):
            header, data = {"__metadata__": meta}, b""
            for name in sorted(tensors, key=lambda n: n == "optc.hash"):
                if name != "optc.hash" or hashed:
                    t = tensors[name]
                    kind = next(k for k, v in DTYPES.items() if numpy.dtype(v) == t.dtype)
                    header[name] = {
                        "shape": t.shape, "dtype": kind,
                        "data_offsets": [len(data), len(data) + t.nbytes]
                    }
                    data += t.tobytes()
            text = json.dumps(header).encode()
            with open(self.path, "wb") as f:
                f.write(struct.pack("<Q", len(text)) + text + data)
            b, _ = self.bind()
            if hashed:
                with self.assertRaisesRegex(optc.ArgumentError,
                                            "its hash does not fit; remove the tensor 'optc.hash'"):
                    optc.load(b, self.path)
                self.assertEqual(b.read(0, "m", 4200)[0], 0)
            else:
                with self.assertWarnsRegex(UserWarning, "the file has no hash"):
                    optc.load(b, self.path)
                self.assertEqual(set(b.read(0, "m", 4200)), {7.0})

    def test_several_and_errors(self):
        a, b = self.bind()[0], self.bind(spec="lion")[0]
        a.step()
        optc.save([a, b], self.path, prefix=["x.", "y."])
        c, _ = self.bind()
        optc.load(c, self.path, prefix="x.")
        self.assertEqual(c.get_t(), 1)
        with self.assertRaisesRegex(ValueError, "there are 1 prefixes for 2 bindings"):
            optc.save([a, b], self.path, prefix=["x."])
        with self.assertRaisesRegex(optc.ArgumentError,
                                    "its rule is 'lion', and the binding's 'adamw'"):
            optc.load(c, self.path, prefix="y.")
        with self.assertRaisesRegex(optc.FileError, "No such file"):
            optc.load(c, self.path + ".none")
        with self.assertRaisesRegex(optc.FileError, "No such file"):
            optc.save(c, self.path + ".none/x")
        with self.assertRaises(ValueError):
            optc.save(c, "a\0b")

        class Other:
            state_dict = None
        for call in (optc.save, optc.load):
            with self.assertRaisesRegex(TypeError, r"take bindings \(Rule.bind\), not Other; use "
                                                   r"its state_dict\(\)"):
                call([c, Other()], self.path)
            with self.assertRaisesRegex(TypeError, "not Rule$"):   # it has a handle too
                call(c.rule, self.path)

    def test_show(self):
        """The command prints the same tensors and metadata, and finds damage."""
        a, _ = self.bind("state=q8")
        a.step()
        optc.save(a, self.path, prefix="p.")
        program = _lib.program()

        def run(*args):
            return subprocess.run([program, "checkpoint", *args], capture_output=True, text=True)
        said = run("show", self.path, "--json")
        shown, (tensors, meta) = json.loads(said.stdout), contents(self.path)
        self.assertEqual(shown["metadata"], meta)
        self.assertEqual({t["name"]: tuple(t["shape"]) for t in shown["tensors"]},
                         {n: t.shape for n, t in tensors.items()})
        self.assertEqual((shown["hash"], shown["bytes"]), ("fits", os.path.getsize(self.path)))
        said = run("show", self.path)
        self.assertEqual(said.returncode, 0)
        for part in ("a checkpoint of optc", "hash: fits", "p.optc.rule: adamw",
                     "p.group 0: beta1=0.9", " lr=0.01 ", "70 x 60", "p.w/m/scale"):
            self.assertIn(part, said.stdout)
        with open(self.path, "r+b") as f:
            f.seek(-20, 2), f.write(b"x")
        said = run("show", self.path)
        self.assertEqual(said.returncode, 1)
        self.assertIn("hash: does not fit", said.stdout)
        self.assertIn("is damaged, or was changed", said.stderr)
        for args, code, part in ((("show", os.devnull), 1, "is no regular file"),
                                 ((), 2, "no action is given: show"), (("shew",), 2,
                                                                       "unknown action 'shew'"),
                                 (("show",), 2, "show needs one file"), (("show", __file__), 1,
                                                                         "is no safetensors file")):
            said = run(*args)
            self.assertEqual(said.returncode, code)
            self.assertIn(part, said.stderr)

    def test_show_hostile(self):
        """A table without columns has no lines, however many groups it claims. A newline in a text
        forges no line."""
        header = {
            "__metadata__": {"optc": "1", "optc.hypers": "", "a\nhash: fits": "b\nhash: fits"},
            "optc.hyper": {"dtype": "F64", "shape": [1 << 59, 0], "data_offsets": [0, 0]},
            "c\nhash: fits": {"dtype": "F64", "shape": [0], "data_offsets": [0, 0]}
        }
        text = json.dumps(header).encode()
        with open(self.path, "wb") as f:
            f.write(struct.pack("<Q", len(text)) + text)
        said = subprocess.run([_lib.program(), "checkpoint", "show", self.path],
                              capture_output=True, text=True, timeout=60)
        self.assertEqual(said.returncode, 0, said.stderr)
        self.assertNotIn("group", said.stdout)
        self.assertEqual(sum(line.startswith("hash:") for line in said.stdout.splitlines()), 1)
        self.assertIn("a hash: fits: b hash: fits", said.stdout)


if __name__ == "__main__":
    unittest.main()
