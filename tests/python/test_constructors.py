"""Constructors beside torch's and the authors': torch.optim's names replaced by optc's classes,
values that the authors take, states that exist before the first step, and pickles of other
versions."""
import copy
import importlib
import inspect
import io
import pickle
import unittest
import warnings
import weakref
from unittest import mock

import numpy
import torch

import optc
import optc.torch
from case import Evaluated, without_optc
from optc.torch import _rules
from test_contracts import grads, in_f32, lists, pairs, steps


def one(shape=(2, 3)):
    p = torch.nn.Parameter(torch.ones(shape))
    p.grad = torch.ones(shape)
    return p


class Replaced(Evaluated):
    def test_every_class(self):
        """torch.optim.AdamW = optc.torch.AdamW and so on: the classes go on calling torch's own
        constructors."""
        kinds = {name: getattr(torch.optim, name) for name in _rules.CLASSES.values()}
        ours = {name: getattr(optc.torch, name) for name in kinds}
        with mock.patch.multiple(torch.optim, **ours):
            for name, kind in kinds.items():
                p = lists(shapes=((4, 3),))
                opt = getattr(torch.optim, name)(p, lr=0.01)
                self.assertIs(type(opt), ours[name])
                opt.add_param_group({"params": lists(seed=1, shapes=((2, 2),)), "lr": 0.5})
                with self.assertRaises(ValueError):    # torch's own check
                    getattr(torch.optim, name)(p, lr=-1.0)
                with in_f32():
                    steps(opt, p, 1)
                    again = pickle.loads(pickle.dumps(opt))
                    copy.deepcopy(opt).load_state_dict(opt.state_dict())
                    steps(again, again.param_groups[0]["params"], 1)
                self.assertLessEqual(set(inspect.signature(kind).parameters),
                                     set(inspect.signature(getattr(torch.optim, name)).parameters))
                torch.optim.lr_scheduler.StepLR(opt, 1)

    def test_first_use_after(self):
        """A class that is made only after the replacement."""
        with mock.patch.object(torch.optim, "AdamW", optc.torch.AdamW), \
                mock.patch.dict(vars(optc.torch)):
            vars(optc.torch).pop("AdamW")
            self.assertIn("optc", optc.torch.AdamW.__module__)
            optc.torch.AdamW([one()]).step()

    def test_before_the_import(self):
        """torch.optim has other classes when optc is imported, as after a program's patch."""
        ours = {"Optimizer", *_rules.CLASSES.values()}
        true = {n: getattr(torch.optim, n) for n in ours}
        patched = {n: type(n, (true[n],), {"patched": True}) for n in ours}
        with without_optc(), mock.patch.multiple(torch.optim, **patched):
            again = importlib.import_module("optc.torch")
            kinds = importlib.import_module("optc.torch._rules").KINDS
            with in_f32():
                steps(again.AdamW(p := lists(), lr=0.1), p, 1)
        self.assertIsNot(again, optc.torch)
        self.assertEqual(kinds, {spec: true[n] for spec, n in _rules.CLASSES.items()})
        self.assertNotIn("patched", dir(again.Optimizer))


class Values(Evaluated):
    def test_momentum_as_tensor(self):
        """torch takes a tensor wherever it takes a number."""
        for name, given in (("SGD", {"nesterov": True}), ("RMSprop", {})):
            for value in (0.9, 0.0):
                given = {} if not value else given
                p, q = lists(), lists()
                a = getattr(torch.optim, name)(p, lr=0.1, momentum=value, **given)
                b = getattr(optc.torch, name)(q, lr=0.1, momentum=torch.tensor(value), **given)
                for x, y in zip(steps(a, p), steps(b, q)):
                    torch.testing.assert_close(x, y, rtol=1e-5, atol=1e-6)
        # another device is not waited for
        self.assertTrue(_rules.is_on(torch.empty((), device="meta")))

    def test_spectral(self):
        """The factor of newer versions of torch: the root of rows over columns, also for wide
        matrices."""
        for shape in ((4, 3), (3, 8)):
            p, q = lists(shapes=(shape,)), lists(shapes=(shape,))
            given = {"lr": 0.1, "weight_decay": 0.0, "products": "f32"}
            x, = steps(optc.torch.Muon(p, adjust_lr_fn="spectral_unclamped", **given), p, 1)
            with in_f32():
                given.pop("products")
                y, = steps(torch.optim.Muon(q, **given), q, 1)
            start, = lists(shapes=(shape,))
            ratio = (shape[0] / shape[1]) ** 0.5 / max(1, shape[0] / shape[1]) ** 0.5
            torch.testing.assert_close(x - start, (y - start) * ratio, rtol=1e-4, atol=1e-6)
        opt = optc.torch.Muon(lists(), adjust_lr_fn="spectral_unclamped")
        self.assertEqual(opt.param_groups[0]["adjust_lr_fn"], "spectral_unclamped")
        opt.add_param_group({"params": [one()], "lr": 0.5})
        opt.add_param_group({"params": [one()], "lr": 0.5, "adjust_lr_fn": "spectral_unclamped"})

    def test_none(self):
        """None of the authors' constructors is the value that switches the part off; others are
        refused at once."""
        for name, key in (("Prodigy", "beta3"), ("DoG", "init_eta"), ("SimplifiedAdEMAMix",
                                                                      "beta1_warmup")):
            kind = getattr(optc.torch, name)
            p, q, r = lists(), lists(), lists()
            want = steps(kind(p), p)
            self.assertTrue(all(map(torch.equal, want, steps(kind(q, **{key: None}), q))), name)
            self.assertTrue(all(map(torch.equal, want, steps(kind([{"params": r, key: None}]), r))),
                            name)
        for kind, given in ((optc.torch.Lion, {"betas": (None, 0.9)}), (optc.torch.Lion, {
                "lr": None
        }), (optc.torch.AdamW, {"with_": ["clip(1)"], "clip_max_norm": None})):
            with self.assertRaisesRegex(TypeError, "is None, and must be a number"):
                kind(lists(), **given)
            with self.assertRaisesRegex(TypeError,
                                        r"param_groups\[0\].* is None, and must be a number"):
                with_ = given.pop("with_", ())
                kind([{"params": lists(), **given}], with_=with_)

    def test_ends_of_ranges(self):
        """0 where torch and the authors take it: a schedule ends there."""
        for name in ("Adadelta", "Adopt"):
            kind = getattr(optc.torch, {"Adopt": "ADOPT"}.get(name, name))
            p = lists()
            steps(kind(p, eps=0.0), p)
            self.assertTrue(all(x.isfinite().all() for x in p), name)
        p, q = lists(), lists()
        a, b = steps(torch.optim.Adadelta(p, eps=0.0), p), steps(optc.torch.Adadelta(q, eps=0.0), q)
        self.assertTrue(all(map(torch.allclose, a, b)))
        p = lists()
        opt = optc.torch.FTRL(p, lr=0.1)
        steps(opt, p, 2)
        before = [x.detach().clone() for x in p], [opt.state[x]["z"].clone() for x in p]
        opt.param_groups[0]["lr"] = 0.0                                # stands still
        steps(opt, p, 2, 2)
        self.assertTrue(all(map(torch.equal, before[0], p)))
        self.assertTrue(all(torch.equal(z, opt.state[x]["z"]) for z, x in zip(before[1], p)))
        opt.param_groups[0]["lr"] = 0.1
        self.assertFalse(torch.equal(steps(opt, p, 1, 4)[0], before[0][0]))

    def test_bool_for_a_number(self):
        """A flag where a number is wanted is a mistake: an argument of the authors' that stands
        elsewhere."""
        for kind, given in ((optc.torch.Lion, {"lr": True}), (optc.torch.Prodigy, {
                "d0": True
        }), (optc.torch.Lion, {"betas":
            (0.9, True)}), (optc.torch.Lion, {"lr": numpy.True_}), (optc.torch.Lion, {
                "weight_decay": torch.tensor(False)
            }), (optc.torch.AdamW, {"with_": ["clip(1)"],
                                    "clip_max_norm": True}), (optc.torch.Muon, {"adamw_lr": True})):
            with self.assertRaisesRegex(TypeError, "is a number, not "):
                kind(lists(), **given)
        opt = optc.torch.Lion(p := lists())
        opt.param_groups[0]["weight_decay"] = True
        with self.assertRaisesRegex(TypeError,
                                    r'param_groups\[0\]\["weight_decay"\] is a number, not True'):
            steps(opt, p, 1)
        optc.torch.AdamW(lists(), weight_decay=True)                   # torch takes it

    def test_sets(self):
        """Sets have no order: what the installed torch says of them."""
        for make in (lambda: {one(), one()}, lambda: [{"params": {one(), one()}}],
                     lambda: [dict(params=frozenset([one(), one()]))],
                     lambda: dict(params={one()}).values()):
            said = []
            for kind in (torch.optim.SGD, optc.torch.SGD, optc.torch.Lion):
                with warnings.catch_warnings(record=True) as found:
                    warnings.simplefilter("always")
                    try:
                        kind(make(), lr=0.1)
                        said.append([w.category for w in found])
                    except Exception as e:
                        said.append((type(e), str(e)))
            self.assertEqual(said[1:], said[:1] * 2)


class Started(Evaluated):
    """Adagrad, whose constructor makes its states."""
    def test_before_the_first_step(self):
        for given in ({}, {"initial_accumulator_value": 0.3}):
            p, q = lists(), lists()
            a, b = torch.optim.Adagrad(p, lr=0.1, **given), optc.torch.Adagrad(q, lr=0.1, **given)
            for x, y in zip(p, q):
                self.assertEqual(list(a.state[x]), list(b.state[y]))
                self.assertTrue(torch.equal(a.state[x]["sum"], b.state[y]["sum"]))
                self.assertTrue(torch.equal(a.state[x]["step"], b.state[y]["step"]))
            r = [x.detach().clone().requires_grad_() for x in q]
            c = torch.optim.Adagrad(r, lr=0.7)
            # a file of a run that has not begun
            c.load_state_dict(b.state_dict())
            want = steps(a, p)
            for x, y, z in zip(want, steps(b, q), steps(c, r)):
                torch.testing.assert_close(x, y, rtol=1e-5, atol=1e-6)
                torch.testing.assert_close(x, z, rtol=1e-5, atol=1e-6)

    def test_edits_before_the_first_step(self):
        """Edited values count, as a file's do; those of a replaced state too."""
        p, q = lists(), lists()
        a, b = torch.optim.Adagrad(p, lr=0.1), optc.torch.Adagrad(q, lr=0.1)
        for opt, each in ((a, p), (b, q)):
            opt.state[each[0]]["sum"].data.fill_(0.5)
            opt.state[each[1]]["sum"] = torch.full((5,), 0.25)
            # torch reads it in the constructor alone
            opt.param_groups[0]["initial_accumulator_value"] = 7.0
        for x, y in zip(steps(a, p), steps(b, q)):
            torch.testing.assert_close(x, y, rtol=1e-5, atol=1e-6)

    def test_memory(self):
        """The constructor's states are gone when the binding has its own, and 16-bit parameters
        start exactly."""
        p = [torch.nn.Parameter(torch.ones(4, dtype=torch.bfloat16))]
        opt = optc.torch.Adagrad(p, initial_accumulator_value=0.1)
        p[0].grad = torch.zeros_like(p[0])
        first = weakref.ref(opt.state[p[0]]["sum"])
        opt.step()
        self.assertIsNone(first())
        self.assertEqual(opt._bounds[0].binding.read(0, "v", 4)[0], torch.tensor(0.1).item())
        frozen = optc.torch.Adagrad([one().requires_grad_(False), one()])
        frozen.param_groups[0]["params"][0].grad = None
        frozen.step()
        for state in ({"state": "q8"}, {"state": "bf16"}):
            q = lists()
            self.assertTrue(
                all(x.isfinite().all() for x in steps(optc.torch.Adagrad(q, types=state), q)))


class Pickles(Evaluated):
    def test_each_private_name(self):
        """A pickle of a version that did not have one of today's names loads, and the run goes
        on."""
        for kind, given in ((optc.torch.Muon, {"with_": ["clip(1)"]}), (optc.torch.Lion, {})):
            p = lists(shapes=((2, 2), (3,)))
            opt = kind(p, lr=0.01, **given)
            steps(opt, p, 1)
            state = opt.__getstate__()
            names = [n for n in state if n.startswith("_") and n != "_rule"]
            self.assertLess(5, len(names))
            want = steps(other := copy.deepcopy(opt), other.param_groups[0]["params"], 1, 1)
            rule = [n for n in vars(opt._rule) if n not in ("what", "spec")]
            for name in [*names, *("rule." + n for n in rule if kind is optc.torch.Muon)]:
                found = {**state, "_rule": copy.deepcopy(state["_rule"])}
                if name.startswith("rule."):
                    del found["_rule"].__dict__[name[5:]]
                else:
                    del found[name]
                file = io.BytesIO()
                pickle.dump(found, file)
                new = kind.__new__(kind)
                new.__setstate__(pickle.loads(file.getvalue()))
                q = new.param_groups[0]["params"]
                got = steps(new, q, 1, 1)
                self.assertTrue(all(map(torch.equal, want, got)), (kind.__name__, name))
                pickle.dumps(new), copy.deepcopy(new).state_dict(), new.load_state_dict(
                    new.state_dict())
                optc.torch.sorted_by(new), new.how(), repr(new), new.add_param_group(
                    {"params": [one()]})

    def test_without_a_rule(self):
        state = optc.torch.AdamW(lists()).__getstate__()
        del state["_rule"]
        with self.assertRaisesRegex(pickle.UnpicklingError, "names no rule"):
            optc.torch.AdamW.__new__(optc.torch.AdamW).__setstate__(state)


if __name__ == "__main__":
    unittest.main()
