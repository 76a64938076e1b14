"""Classes made from specs and their stubs, promises of the README, routing of parameters."""
import ast
import inspect
import os
import pickle
import re
import tempfile
import unittest
import warnings
from unittest import mock

import torch

import optc
import optc.torch
from case import X, Y, Case, Evaluated, grads, lists, model

TREE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


class Named(Evaluated):
    def test_stubs(self):
        from optc.torch import _rule_classes
        path = os.path.join(os.path.dirname(optc.torch.__file__), "__init__.pyi")
        with open(path) as f:
            text = f.read()
            ast.parse(text)
            self.assertEqual(text, _rule_classes.stubs(),
                             "python -m optc.torch._rule_classes > …/optc/torch/__init__.pyi")

    def test_stubs_have_every_method(self):
        """The stubs of Optimizer have its public methods, the arguments of its constructor, and the
        entries of rules and wrappers, which are methods too."""
        with open(os.path.join(os.path.dirname(optc.torch.__file__), "__init__.pyi")) as f:
            stubs = {n.name: {m.name: m for m in n.body if isinstance(m, ast.FunctionDef)}
                     for n in ast.parse(f.read()).body if isinstance(n, ast.ClassDef)}
        base, kind = stubs["Optimizer"], optc.torch.Optimizer
        own = {
            n for k in kind.__mro__ if k.__module__.startswith("optc.") for n in vars(k)
            if not n.startswith("_")
        }
        inherited = {n for n in own if n in vars(torch.optim.Optimizer)} - set(base)
        self.assertLessEqual(own - inherited, set(base))
        told = base["__init__"].args
        self.assertEqual([a.arg for a in told.args + told.kwonlyargs],
                         [n for n in inspect.signature(kind.__init__).parameters if n != "given"])
        for name in optc.library():
            wrapper = name.startswith("wrappers/")
            if "/" in name and not wrapper or not re.search(
                    r"(?m)^  (perturb|to_eval|\w+_hessian) *= *function", optc.library_text(name)):
                continue
            short = name.split("/")[-1]
            entries = set(
                optc.torch._engines.asked(spec="adamw" if wrapper else name,
                                          with_=short * wrapper).entries())
            named = set(base) | set(stubs.get(optc.torch._rule_classes.class_name(name), ()))
            self.assertLessEqual(entries - {"step"}, named, name)
            if "to_eval" in entries:
                self.assertLessEqual({"eval", "train"}, named)

    def test_read_once(self):
        """A second optimizer of a rule reads it no more, but a file is read again."""
        optc.torch.Lion(lists(), with_=["clip(1)"])
        with mock.patch.object(optc.Engine, "compile") as read:
            optc.torch.Lion(lists(), lr=0.5, with_=["clip(1)"])
        read.assert_not_called()
        with tempfile.TemporaryDirectory() as folder:
            for rate in ("0.25", "0.5"):
                with open(os.path.join(folder, "mine.lua"), "w") as f:
                    f.write('return optimizer { name = "mine", hyper = { lr = %s }, '
                            'step = function() p = p - lr * g end }' % rate)
                opt = optc.torch.Optimizer(lists(), f.name)
                self.assertEqual(opt.param_groups[0]["lr"], float(rate))

    def test_all(self):
        """Every rule of the library has a class, and a third of them (OPTC_ALL: each) steps by
        it."""
        from optc.torch import _rule_classes
        self.assertLess(30, len(_rule_classes.names()))
        every = 1 if os.environ.get("OPTC_ALL") else 3
        for i, (name, spec) in enumerate(_rule_classes.names().items()):
            kind = getattr(optc.torch, name)
            self.assertIn("arXiv" if "arXiv" in optc.library_text(spec) else "", kind.__doc__)
            update = kind.__doc__.split("The update, in the language of specs:\n")[1]
            self.assertRegex(update, r"\bp\b.* = ", name)
            self.assertRegex(update, r"(step|matrix) *= *(function|rule)", name)
            self.assertNotIn("\n    --", update, name)
            if i % every:
                continue
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                p = lists(shapes=((4, 3), (5,)))
                opt = kind(p)
                grads(p), opt.step()
            self.assertTrue(all(q.isfinite().all() for q in p), name)
        self.assertIs(pickle.loads(pickle.dumps(optc.torch.Lion)), optc.torch.Lion)
        self.assertEqual(
            optc.torch.Lion([torch.ones(1, requires_grad=True)], 0.5).param_groups[0]["lr"], 0.5)


class Written(Case):
    def test_readme(self):
        """The README's loop, with a model in it."""
        with open(os.path.join(TREE, "README.md")) as f:
            text = f.read()
        loop, mine = text.split("```python\n")[1].split("```")[0], text.split(
            "```lua mine.lua\n")[1].split("```")[0]
        with tempfile.TemporaryDirectory() as folder:
            names = {
                "torch": torch, "model": model(), "data": [(X, Y)] * 3,
                "loss": torch.nn.functional.mse_loss
            }
            loop = loop.replace('"run.pt"', repr(os.path.join(folder, "run.pt"))).replace(
                '"mine.lua"', repr(os.path.join(folder, "mine.lua")))
            with open(os.path.join(folder, "mine.lua"), "w") as f:
                f.write(mine)
            exec(loop, names)
            theirs = torch.optim.AdamW(names["model"].parameters())
            theirs.load_state_dict(torch.load(os.path.join(folder, "run.pt")))
        grads(names["model"].parameters())
        theirs.step(), names["opt"].step()
        self.assertEqual(theirs.param_groups[0]["lr"], 3e-4)

    def test_factors(self):
        """Shampoo's roots, of all parameters and of one; a matrix that has none is counted."""
        net = [torch.randn(4, 6, requires_grad=True), torch.randn(5, 3, requires_grad=True)]
        opt = optc.torch.Optimizer(net, "shampoo")
        self.assertEqual(opt.factors(), {"computed": 0, "refused": 0, "residual": 0.0})
        for p in net:
            p.grad = torch.randn_like(p)
        net[1].grad[0, 0] = float("nan")
        opt.step()
        every, one, other = opt.factors(), opt.factors(net[0]), opt.factors(net[1])
        self.assertEqual((one["computed"], one["refused"], other["refused"]), (2, 0, 2))
        self.assertEqual(every["computed"], one["computed"] + other["computed"])
        self.assertEqual(every["refused"], 2)
        self.assertTrue(0 < one["residual"] < 1e-3, one)

    def test_inputs(self):
        """Tensors and numbers that a rule wants beside gradients."""
        text = """return optimizer { name = "asks", hyper = { lr = 1 },
          inputs = { hess = "elem", loss = "group" },
          step = function() p = p - lr * loss * g / hess end }"""
        p = torch.zeros(3, requires_grad=True)
        p.grad = torch.ones(3)
        opt = optc.torch.Optimizer([p], "asks", spec=text)
        h = torch.tensor([1.0, 2.0, 4.0])
        opt.set_input(p, "hess", h)
        opt.set_scalar("loss", 2.0)
        opt.step()
        self.assertEqual(p.tolist(), [-2, -1, -0.5])
        h.fill_(2.0)
        opt.set_scalar("loss", 1.0, group=0)
        opt.step()
        self.assertEqual(p.tolist(), [-2.5, -1.5, -1])


class Sorted(Case):
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.wte = torch.nn.Embedding(11, 4)
            self.body = torch.nn.Linear(4, 4)
            self.lm_head = torch.nn.Linear(4, 11)

    def test_module(self):
        net = self.Net()
        want = {
            "wte.weight": "rest", "body.weight": "matrix", "body.bias": "rest",
            "lm_head.weight": "rest", "lm_head.bias": "rest"
        }
        for given in (net, list(net.named_parameters())):
            opt = optc.torch.Muon(given, adamw_lr=0.5)
            self.assertEqual(optc.torch.sorted_by(opt), want)
            self.assertEqual(opt.param_groups[0]["adamw.lr"], 0.5)
        grads(net.parameters())
        opt.step()
        self.assertIn("adamw.m", opt.state[net.wte.weight])
        self.assertIn("momentum_buffer", opt.state[net.body.weight])
        again = pickle.loads(pickle.dumps((net, opt)))[1]
        self.assertEqual(optc.torch.sorted_by(again), want)
        with self.assertWarnsRegex(UserWarning, "because they have no names"):
            opt = optc.torch.Muon(net.parameters())
        opt = optc.torch.Muon(net, sort=lambda name, p: name == "wte.weight")
        self.assertEqual([k for k, v in optc.torch.sorted_by(opt).items() if v == "matrix"],
                         ["wte.weight"])


if __name__ == "__main__":
    unittest.main()
