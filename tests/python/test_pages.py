"""The documentation's Python: the snippets of runtime/python/README.md run, and the names on the
page exist."""
import contextlib
import copy
import inspect
import io
import os
import re
import tempfile
import unittest

import numpy
import torch

import optc
import optc.torch
from case import X, Y, Case, model
from ranks import in_ranks

TREE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
try:
    import cupy
except ImportError:
    cupy = None


def page(*path):
    with open(os.path.join(TREE, *path)) as f:
        return f.read()


TEXT = page("runtime", "python", "README.md")


def snippet(part, kind="python"):
    """The block of that kind that contains `part`."""
    found = [b for b in re.findall(r"^```%s\n(.*?)^```" % kind, TEXT, re.M | re.S) if part in b]
    assert len(found) == 1, (part, len(found))
    return found[0]


class Snippets(Case):
    def names(self, **more):
        return {"optc": optc, "torch": torch, "copy": copy, "model": model(), "x": X, "y": Y,
                "loss_of": torch.nn.functional.mse_loss, **more}

    def run_one(self, part, **more):
        names = self.names(**more)
        exec(snippet(part), names)
        return names

    def test_all_are_run(self):
        """A new snippet needs a test here."""
        self.assertEqual(len(re.findall(r"^```python", TEXT, re.M)), 8)

    def test_construct(self):
        mine = page("README.md").split("```lua mine.lua\n")[1].split("```")[0]
        names = self.run_one("spec=text", text=mine)
        self.assertEqual(names["opt"].param_groups[0]["lr"], 0.1)

    def test_race(self):
        with tempfile.TemporaryDirectory() as folder:
            was = os.getcwd()
            os.chdir(folder)
            try:
                with contextlib.redirect_stdout(io.StringIO()) as out:
                    names = self.run_one("optc.torch.race")
                self.assertIn("muon", out.getvalue())
                self.assertTrue(os.path.exists("race.html"))
            finally:
                os.chdir(was)
        self.assertEqual(len(names["report"]["results"]), 2)

    def test_schedule(self):
        opt = self.run_one("CosineAnnealingLR")["opt"]
        opt.step()
        group = opt.param_groups[0]
        self.assertLess(group["lr"], 0.02)
        self.assertAlmostEqual(group["adamw.lr"], 0.1 * group["lr"], 15)

    def test_averaged(self):
        names = self.run_one("averaged = copy")
        p, q = (next(names[n].parameters()) for n in ("model", "averaged"))
        self.assertFalse(torch.equal(p, q))
        self.assertTrue(torch.equal(q, names["opt"].state[p]["ema.avg"]))

    def test_samples(self):
        m = model()
        names = self.run_one("samples.clip", model=m, opt=torch.optim.SGD(m.parameters(), 0.1))
        self.assertEqual(names["norms"].shape, (len(X),))

    def test_sharded(self):
        def both():
            names = self.run_one("fully_shard")
            return names["opt"].value("clip.grad_norm"), list(names["opt"].state_dict()["state"])
        a, b = in_ranks(2, both)
        self.assertEqual(a, b)

    def test_arrays(self):
        p, g, other = (numpy.ones(5, numpy.float32) for _ in range(3))
        names = self.run_one("b.set_grads([other])", p=p, g=g, other=other)
        self.assertNotEqual(p[0], 1)
        names["b"].step()

    @unittest.skipUnless(cupy and optc.device_count(), "no CuPy, or no GPU")
    def test_cupy(self):
        p, g = cupy.ones(5, cupy.float32), cupy.ones(5, cupy.float32)
        exec(snippet("cupy", "python cupy"), self.names(cupy=cupy, p=p, g=g))
        self.assertNotEqual(float(p[0]), 1)

    def test_cupy_parses(self):
        compile(snippet("cupy", "python cupy"), "README.md", "exec")


class Names(Case):
    """What the tables call exists."""
    def has(self, thing, names):
        """names: as they stand in the page; with "(" behind them they can be called."""
        names = set(names)
        self.assertTrue(names)
        for name in names:
            self.assertTrue(hasattr(thing, name.strip("(")), "%r has no '%s'" % (thing, name))
            self.assertTrue("(" not in name or callable(getattr(thing, name.strip("("))), name)

    def test_modules(self):
        text = TEXT + page("README.md")
        self.has(optc.torch, re.findall(r"\boptc\.torch\.(\w+)", text))
        self.has(optc, re.findall(r"\boptc\.([A-Z]\w+|library_text)", text))
        functions = TEXT.split("## Functions on tensors")[1].split("## NumPy")[0]
        self.has(optc.torch, re.findall(r"`(\w+)\(", functions))

    def test_methods(self):
        m = model()
        self.has(optc.torch.AdamW(m.parameters()),
                 re.findall(r"\bopt\.(?!perturb|eval|train)(\w+\(?)", TEXT))
        self.assertIn("perturb", optc.torch.SGD(m.parameters(), with_=["sam(0.05)"]).entries())
        with optc.torch.per_sample(m, loss="sum") as samples:
            self.has(samples, re.findall(r"\bsamples\.(\w+\(?)", TEXT))
        with optc.torch.kfac_inputs(m, loss="mean") as stats:
            table = TEXT.split("## K-FAC")[1].split("## ")[0]
            self.has(stats, re.findall(r"^\| `(\w+)", table, re.M))
        rule = optc.Engine().compile("adamw")
        self.has(rule, re.findall(r"\brule\.(\w+)\(", TEXT))
        p = numpy.ones(3, numpy.float32)
        self.has(rule.bind([([(p, numpy.ones(3, numpy.float32))], {})]),
                 re.findall(r"\bb\.(\w+)\(", TEXT))

    def test_arguments(self):
        """Keywords of the table under "Construct"."""
        table = TEXT.split("## Construct")[1].split("**Rules that torch has**")[0]
        known = inspect.signature(optc.torch.Optimizer.__init__).parameters
        for name in re.findall(r"`(\w+)=", table):
            self.assertTrue(name in known or name == "maximize", name)


if __name__ == "__main__":
    unittest.main()
