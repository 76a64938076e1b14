"""Files of an optimizer's state: those that do not fit are refused."""
import copy
import pickle
import unittest.mock
import warnings
from operator import is_

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

import optc.torch
from case import Case, grads, lists, model, train


class Files(Case):
    def file(self, kind=torch.optim.AdamW, **given):
        ps = lists()
        opt = kind([("first", ps[0]), ("second", ps[1])], **given)
        grads(ps), opt.step(), opt.step()
        return copy.deepcopy(opt.state_dict())

    def test_refused(self):
        """By name, and the optimizer is as it was."""
        def change(key, value):
            def f(own):
                own[key] = value(own[key]) if callable(value) else value
            return f

        wrong = [("exp_avg_sq", lambda own: own.pop("exp_avg_sq")),
                 ("exp_avg", change("exp_avg", None)), ("'step'", lambda own: own.pop("step")),
                 ("step", change("step", torch.tensor([1.0, 2.0])))]
        wrong += [("shape", change("exp_avg", f))
                  for f in (lambda x: x.t().contiguous(), lambda x: x[:2], torch.flatten)]
        wrong += [("floating", change("exp_avg", f))
                  for f in (torch.Tensor.long, lambda x: x.to(torch.complex64))]
        wrong += [("step", change("step", x))
                  for x in (2 ** 64 + 4096, 2 ** 53, -1, 1.5, float("nan"), float("inf"), "x",
                            10 ** 400, None, torch.tensor(float("nan")))]
        for bound in (False, True):
            ps = lists(3)
            opt = optc.torch.AdamW([("first", ps[0]), ("second", ps[1])], lr=0.25)
            grads(ps)
            if bound:
                opt.step()
            was = copy.deepcopy(opt.state_dict())
            for says, edit in wrong:
                saved = self.file()
                edit(saved["state"][0])
                with self.assertRaisesRegex(ValueError, "first"):
                    opt.load_state_dict(saved)
                with self.assertRaisesRegex(ValueError, says):
                    opt.load_state_dict(saved)
                self.assertEqual(str(opt.state_dict()), str(was))
            opt.step()
            self.assertEqual(opt.state[ps[0]]["step"].item(), 1 + bound)
        saved = self.file()
        del saved["param_groups"][0]["param_names"], saved["state"][1]["exp_avg"]
        with self.assertRaisesRegex(ValueError, r"param_groups\[0\]\[1\] \(number 1 of the file\)"):
            optc.torch.AdamW(lists()).load_state_dict(saved)

    def test_another_order(self):
        """torch assigns by position without a word; names that only changed places are a likely
        mistake."""
        saved = self.file(optc.torch.AdamW)
        for names, warned in ((("first", "second"), 0), (("second", "first"), 1), (("second",
                                                                                    "third"), 0)):
            ps = lists(shapes=((4, 3), (5,)))
            opt = optc.torch.AdamW(list(zip(names, ps)))
            with warnings.catch_warnings(record=True) as found:
                warnings.simplefilter("always")
                opt.load_state_dict(copy.deepcopy(saved))
            self.assertEqual(len(found), warned)
            for w in found:
                self.assertIn("the states of 'first' become those of 'second'", str(w.message))
                self.assertEqual(w.filename, __file__)

    def test_another_order_by_name(self):
        """torch.distributed.checkpoint assigns states by name, whatever the order of the file's
        param_names."""
        from torch.distributed.checkpoint.state_dict import (
            get_optimizer_state_dict, set_optimizer_state_dict)
        m = model()
        opt = optc.torch.AdamW(m.named_parameters(), lr=0.1)
        train(m, opt, 2)
        n, saved = copy.deepcopy((m, get_optimizer_state_dict(m, opt)))
        other = optc.torch.AdamW(list(n.named_parameters())[::-1], lr=0.1)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            set_optimizer_state_dict(n, other, saved)
        self.assertEqual(train(n, other, 3), train(m, opt, 3))

    def test_refused_steps(self):
        """A binding that refuses a count of steps, as a captured one may, leaves states and counts
        of all bindings."""
        ps = [
            torch.ones(3, requires_grad=True),
            torch.ones(3, dtype=torch.float64, requires_grad=True)
        ]
        opt = optc.torch.AdamW(ps)
        grads(ps), opt.step(), opt.step()
        held, t = [opt.state[p]["exp_avg"] for p in ps], [b.binding.get_t(0) for b in opt._bounds]
        was = copy.deepcopy(held)
        for p in ps:
            opt.state[p].update(exp_avg=torch.full_like(p, 7.0), step=torch.tensor(5.0))
        with unittest.mock.patch.object(opt._bounds[1].binding, "set_t",
                                        side_effect=optc.Error("refused")):
            for _ in range(2):                         # the edit stays, and is refused again
                with self.assertRaisesRegex(optc.Error, "refused"):
                    opt.step()
                self.assertEqual([x.tolist() for x in held], [x.tolist() for x in was])
                self.assertEqual([b.binding.get_t(0) for b in opt._bounds], t)
        opt.step()
        self.assertEqual([opt.state[p]["step"].item() for p in ps], [6, 6])
        self.assertTrue(all((opt.state[p]["exp_avg"] > 5).all() for p in ps))

    def test_refused_groups(self):
        """A group's values under other names, too: the optimizer is as it was, and steps on."""
        wrong = {
            "adamw": ({"betas": (0.9,)}, {"betas": 0.9}, {"betas": ("x", 0.9)}, {"beta1": "x"},
                      {"beta2": 1.5}, {"betas": 0.9, "beta1": 0.9}, {"lr": -1.0}, {"lr": (1e-3,)}),
            "muon": ({"adamw_betas": (0.9,)}, {"adamw_betas": 0.9}, {"adamw.betas": "xy"},
                     {"adamw_lr": "x"}, {"ns_steps": "x"})
        }
        for rule, each in wrong.items():
            ps = lists()
            opt = optc.torch.Optimizer(ps, rule, lr=0.25)
            grads(ps), opt.step()
            saved = copy.deepcopy(opt.state_dict())
            opt.step()
            was, held = str(opt.state_dict()), [opt.state[p][k] for p in ps for k in opt.state[p]]
            for group in each:
                file = copy.deepcopy(saved)
                file["param_groups"][0].update(group)
                with self.subTest(rule, group=group), self.assertRaises((ValueError, TypeError)):
                    opt.load_state_dict(file)
                self.assertEqual(str(opt.state_dict()), was)
            self.assertTrue(all(map(is_, held,
                                    (opt.state[p][k] for p in ps for k in opt.state[p]))))
            opt.step()
            saved["param_groups"][0].update({"beta1": 0.5} if rule ==
                                            "adamw" else {"adamw_betas": (0.5, 0.999)})
            opt.load_state_dict(saved)                 # well formed, under another name
            group = opt.param_groups[0]
            self.assertEqual(group["betas"][0] if rule == "adamw" else group["adamw.beta1"], 0.5)
            self.assertNotIn("beta1", group), self.assertNotIn("adamw_betas", group)

    def test_states_of_groups(self):
        """States of whole groups stay if tensors are bound again, and are in the file if the first
        parameter has had no gradient: a sum of gradients over all tensors and steps."""
        def thaw(o, ps):
            for p in ps:
                p.requires_grad_(True)
        spec = """return optimizer { name = "total", hyper = { lr = 1 },
          state = { s = zeros "group", n = zeros },
          step = function() s = s + global.sum(g)  n = n + 1  p = p - lr * s end }"""
        def add(o, ps):
            o.add_param_group({"params": [torch.zeros(1, requires_grad=True)]})
        changes = {
            "thaw": thaw, "add": add,
            "file": lambda o, ps: o.load_state_dict(pickle.loads(pickle.dumps(o.state_dict())))
        }
        for frozen in (0, 1):
            for how, change in changes.items():
                ps = [torch.zeros(1, requires_grad=how != "thaw" or k != frozen) for k in range(2)]
                o = optc.torch.Optimizer(ps, spec=spec)
                for t in range(4):
                    if t == 2:
                        change(o, ps)
                    for k, p in enumerate(ps):
                        p.grad = torch.ones(1) if k != frozen or t > 2 else None
                    o.step()
                self.assertEqual([p.item() for p in ps], [-11.0, -5.0] if frozen else [-5.0, -11.0])
                with self.subTest(how):
                    own = [o.state[p].get("s") for p in ps]
                    # the group's first parameter shows it, and no other
                    self.assertEqual(own[0].item(), 5)
                    self.assertIsNone(own[1])

    def test_missing_states_of_groups(self):
        """A file of an older version, which has other states of the rule: counts of the group would
        start again."""
        for rule, name, given in (("schedulefree_adamw", "k", {}),
                                  ("schedulefree_sgd", "weight_sum", {}),
                                  ("prodigy", "d_numerator", {})):
            ps = lists()
            opt = optc.torch.Optimizer(ps, rule, **given)
            grads(ps), opt.step()
            file = copy.deepcopy(opt.state_dict())
            optc.torch.Optimizer(ps, rule, **given).load_state_dict(file)
            self.assertTrue([own.pop(name) for own in file["state"].values() if name in own], rule)
            grads(ps), opt.step()
            was = copy.deepcopy(opt.state_dict())
            with self.assertRaisesRegex(
                    ValueError, r"no '%s' of param_groups\[0\], which %s keeps" % (name, rule)):
                opt.load_state_dict(file)
            self.assertEqual(str(opt.state_dict()), str(was))

    def test_counts_of_groups(self):
        """A file from before a rule counted the group's steps continues with those of its tensors;
        one of them missed steps."""
        for rule in ("gpa_adamw", "lamb+clip(1)", "prodigy", "stable_spam"):
            ps = lists()
            opt = optc.torch.Optimizer(ps, rule)
            for k in range(3):
                grads(ps)
                ps[0].grad = None if k < 2 else ps[0].grad
                opt.step()
            file = copy.deepcopy(opt.state_dict())
            self.assertEqual([own.pop("k").item() for own in file["state"].values() if "k" in own],
                             [0 if rule == "prodigy" else 3], rule)
            qs = [torch.nn.Parameter(p.detach().clone()) for p in ps]
            other = optc.torch.Optimizer(qs, rule)
            other.load_state_dict(file)
            grads(ps), grads(qs), opt.step(), other.step()
            self.assertTrue(all(torch.equal(p, q) for p, q in zip(ps, qs)), rule)

    def test_counts_in_backward(self):
        """With release_grads each tensor is bound alone, and counts its own steps."""
        results = []
        for release in (False, True):
            ps = lists()
            opt = optc.torch.LAMB(ps, lr=0.1, release_grads=release)
            for _ in range(3):
                sum((p * p).sum() for p in ps).backward()
                opt.step()
                opt.zero_grad()
            results.append(ps)
        self.assertTrue(all(torch.equal(p, q) for p, q in zip(*results)))

    def test_states_of_groups_apart(self):
        """A group that is frozen as a whole keeps its states while other groups are bound again. In
        a group of two types each type has a state of its own, which stays with its tensors."""
        spec = """return optimizer { name = "runs", hyper = { lr = 1 },
          state = { s = zeros "group", n = zeros },
          step = function() s = s + 1  n = n + g  p = p - lr * s * g end }"""
        for types in ([torch.float32, torch.float32], [torch.float32, torch.float64,
                                                       torch.float64]):
            ps = [torch.zeros(1, dtype=t, requires_grad=True) for t in types]
            one = len(set(types)) == 1
            o = optc.torch.Optimizer([{"params": [p]} for p in ps] if one else ps, spec=spec)

            def step(*on):
                for k, p in enumerate(ps):
                    p.requires_grad_(k in on), setattr(p, "grad",
                                                       torch.ones_like(p) if k in on else None)
                o.step()
            step(*range(len(ps)))
            step(0)
            o.add_param_group({"params": [torch.zeros(1, requires_grad=True)]})    # binds again
            step(0) if one else step(0, 2)
            step(*range(len(ps)))
            own = [o.state[p].get("s") for p in ps]
            self.assertEqual([None if s is None else s.item() for s in own],
                             [4, 3] if one else [4, 3, None])
            self.assertEqual(ps[1].item(), -4.0)

    def test_missed_steps(self):
        """`every` counts steps in which a tensor had no gradient: they are in copies and files, and
        count when tensors are bound again."""
        spec = """return optimizer { name = "third", hyper = { lr = 1 },
          step = function() every(3, function() p = p - lr * g end) end }"""
        copies = {
            "file": lambda o, ps: o.load_state_dict(pickle.loads(pickle.dumps(o.state_dict()))),
            "thaw": lambda o, ps: ps[2].requires_grad_(True), "copy": lambda o, ps: None,
            "edit": lambda o, ps: o.state[ps[0]].update(step=torch.tensor(1.0))
        }
        for at in range(7):
            for how, change in copies.items():
                ps = [torch.zeros(1, requires_grad=k < 2) for k in range(3)]
                o = optc.torch.Optimizer(ps, spec=spec)
                for t in range(1, 8):
                    if t in (at + 1, at + 3):
                        if how != "edit" or ps[0] in o.state and o.state[ps[0]]["step"] == 1:
                            change(o, ps)
                        if how == "copy":
                            ps, o = copy.deepcopy((ps, o))
                    for k, p in enumerate(ps):
                        p.grad = torch.ones(
                            1) if t != k + 1 and t != 5 and p.requires_grad else None
                    o.step()
                self.assertEqual([p.item() for p in ps[:2]], [-2.0, -2.0], (how, at))
        saved = o.state_dict()
        self.assertEqual([own["missed"] for own in saved["state"].values()], [2, 2])
        for wrong in (-1, 0.5, float("nan"), "two"):
            saved["state"][0]["missed"] = wrong
            with self.assertRaisesRegex(ValueError,
                                        "'missed' of param_groups.0..0. .*whole number"):
                o.load_state_dict(saved)
        # the tensor that had a gradient at each step leaves
        for how in ("add", "file", "removed"):
            ps, acts = [torch.zeros(1, requires_grad=True) for _ in range(3)], []
            o = optc.torch.Optimizer(ps[:2], spec=spec)
            for t in range(1, 10):
                ps[0].grad = torch.ones(1) if t < 5 else None
                ps[1].grad = torch.ones(1) if t > 2 else None
                if t == 5:
                    ps[0].requires_grad_(False)
                    if how == "add":
                        o.add_param_group({"params": ps[2:]})
                    elif how == "file":
                        copies["file"](o, ps)
                    else:
                        del o.state[ps[0]]
                was = ps[1].item()
                o.step()
                acts += [t] if ps[1].item() != was else []
            self.assertEqual(acts, [3, 6, 9], how)

    def test_matrix_rules(self):
        """What they keep depends on the tensor: it is seen at the first step, which changes
        nothing."""
        for spec, key in (("muon", "adamw.v"), ("adafactor", "variance"), ("soap", "adamw.v")):
            saved = self.file(lambda ps: optc.torch.Optimizer(ps, spec))
            self.assertIsNotNone(saved["state"][1].pop(key), spec)
            ps = lists()
            opt = optc.torch.Optimizer([("first", ps[0]), ("second", ps[1])], spec)
            opt.load_state_dict(saved)
            grads(ps)
            was = [p.detach().clone() for p in ps]
            for _ in range(2):
                with self.assertRaisesRegex(ValueError, "second.*%s" % key):
                    opt.step()
            self.assertTrue(all(map(torch.equal, was, ps)))
            opt.load_state_dict(self.file(lambda ps: optc.torch.Optimizer(ps, spec)))
            opt.step()

    def test_taken(self):
        """torch's None buffers, dimensions of size 1, numbers as steps, other floating types, step
        0."""
        saved = self.file()
        own = saved["state"][0]
        own["exp_avg"], own["step"] = own["exp_avg"].unsqueeze(0).to(torch.float64), 2
        own["exp_avg_sq"] = own["exp_avg_sq"].unsqueeze(1)
        saved["state"][1]["step"] = torch.tensor(2 ** 24, dtype=torch.int64)
        ps = lists()
        opt = optc.torch.AdamW(ps)
        opt.load_state_dict(saved)
        grads(ps), opt.step()
        self.assertEqual([opt.state[p]["step"].item() for p in ps][0], 3)
        self.assertEqual(opt.state[ps[0]]["exp_avg"].dtype, torch.float32)
        for given in ({}, {"momentum": 0.9, "dampening": 0.5}):
            saved = self.file(torch.optim.SGD, **given)
            a, b = lists(), lists()
            oa, ob = torch.optim.SGD(a, **given), optc.torch.SGD(b, **given)
            oa.load_state_dict(saved), ob.load_state_dict(saved)
            for o, ps in ((oa, a), (ob, b)):
                grads(ps), o.step()
                o.param_groups[0].update(momentum=0.9, dampening=0.5)
                o.step(), o.step()
            for p, q in zip(a, b):
                torch.testing.assert_close(p, q)

    def test_momentum_beside_a_wrapper(self):
        """A momentum buffer that is not there begins anew; what a wrapper keeps stays as it is."""
        saved = self.file(lambda ps: torch.optim.SGD(ps, lr=0.1, momentum=0.9))
        ps = lists()
        opt = optc.torch.SGD(ps, lr=0.1, momentum=0.9, with_=["ema(0.5)"])
        opt.load_state_dict(saved)
        grads(ps)
        opt.step()
        for p in ps:
            torch.testing.assert_close(opt.state[p]["ema.avg"], p.detach(), rtol=2, atol=2)
            self.assertGreater(float(opt.state[p]["ema.avg"].norm()),
                               0.5 * float(p.detach().norm()))

    def test_default_type(self):
        """Files are checked whatever torch's default type is."""
        saved = self.file()
        before = torch.get_default_dtype()
        torch.set_default_dtype(torch.float64)
        try:
            ps = [torch.nn.Parameter(p.detach().float()) for p in lists()]
            optc.torch.AdamW(ps).load_state_dict(saved)
        finally:
            torch.set_default_dtype(before)

    def test_states_by_shape(self):
        """A rule without a fallback rule whose matrices and vectors have other states: both are
        loaded, and a missing one is refused at the first step."""
        shapes = ((6, 8), (5,))
        ps, qs = lists(shapes=shapes), lists(shapes=shapes)
        a, b = (optc.torch.Optimizer(x, "amuse") for x in (ps, qs))
        grads(ps), a.step()
        saved = copy.deepcopy(a.state_dict())
        with torch.no_grad():
            for p, q in zip(ps, qs):
                q.copy_(p)
        b.load_state_dict(saved)
        for o, x in ((a, ps), (b, qs)):
            grads(x, 1), o.step()
        self.assertTrue(all(map(torch.equal, ps, qs)))
        del saved["state"][1]["v"]
        b.load_state_dict(saved)
        with self.assertRaisesRegex(ValueError, "has no 'v', which amuse keeps"):
            b.step()

    def test_lower_triangles(self):
        """C and D of psgd_kron: other values are refused by name, and nothing changes."""
        def made(shapes=((6, 4), (5,))):
            ps = lists(shapes=shapes)
            return ps, optc.torch.Optimizer(ps, "psgd_kron", lr=0.01)
        (ps, a), (qs, b), (_, fresh) = made(), made(), made()
        for t in range(2):
            grads(ps, t), a.step()
            grads(qs, t), b.step()
        bad = copy.deepcopy(a.state_dict())
        bad["state"][0]["C"].view(6, 6)[2, 5] = 0.25
        says = (r"state 'C' of tensor 'param_groups\[0\]\[0\]' is a lower triangle: row 2, column "
                r"5 is 0.25; set "
                "values right of the diagonal to 0, or transpose the matrix")
        for opt in (b, fresh):
            with self.assertRaisesRegex(ValueError, says):
                opt.load_state_dict(bad)
        b.load_state_dict(copy.deepcopy(a.state_dict()))
        grads(ps, 3), a.step()
        grads(qs, 3), b.step()
        self.assertTrue(all(map(torch.equal, ps, qs)))
        own = b.state[qs[0]]
        kept, own["D"] = own["D"], torch.full((16,), 0.5, dtype=torch.float64)
        with self.assertRaisesRegex(ValueError, "row 0, column 1 is 0.5"):
            b.step()
        own["D"] = kept
        with FakeTensorMode():
            fake = torch.zeros(36)
        for value in (torch.zeros(36, device="meta"), fake):
            bad["state"][0]["C"] = value
            for opt in (b, fresh):
                with self.assertRaisesRegex(RuntimeError,
                                            r"state 'C' of param_groups\[0\]\[0\].* has no memory"):
                    opt.load_state_dict(bad)
        grads(ps, 4), a.step()
        grads(qs, 4), b.step()
        self.assertTrue(all(map(torch.equal, ps, qs)))
        # binds again, with the same values
        a.add_param_group({"params": lists(7, ((3, 3),))})
        grads(ps, 5), a.step()


if __name__ == "__main__":
    import unittest
    unittest.main()
