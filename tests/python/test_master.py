"""16-bit parameters that keep what they round away (types={"master": …}): equal to f32 parameters,
also after a file was loaded, and after somebody else wrote to them."""
import copy
import io
import unittest
import warnings

import torch

import optc
import optc.torch
from case import Case


def params(dtype, at=0):
    torch.default_generator.manual_seed(at)
    return [
        torch.nn.Parameter(torch.randn(n).bfloat16().to(dtype)) for n in ((5, 7), (11,), (4, 3, 2))
    ]


def grads(ps, t=0):
    """The same numbers for parameters of every type: bf16 has them."""
    torch.default_generator.manual_seed(1000 + t)
    for p in ps:
        p.grad = torch.randn(p.shape).bfloat16().to(p.dtype)


def whole(opt, p):
    """The f32 number that p and its remainder hold, by their bits."""
    high = p.detach().view(torch.int16).int() << 16
    return (high + opt.state[p]["low"].int()).view(torch.float32)


class Master(Case):
    def step(self, opt, ps, t):
        grads(ps, t)
        opt.step()

    def both(self, steps=10, **given):
        """f32 parameters, and bf16 parameters with remainders."""
        wide, narrow = params(torch.float32), params(torch.bfloat16)
        a = optc.torch.AdamW(wide, lr=1e-3)
        b = optc.torch.AdamW(narrow, lr=1e-3, types={"master": "low16"}, **given)
        for t in range(steps):
            self.step(a, wide, t), self.step(b, narrow, t)
        return (a, wide), (b, narrow)

    def same(self, wide, b, narrow):
        for p, q in zip(wide, narrow):
            self.assertTrue(torch.equal(p.detach(), whole(b, q)))
            self.assertEqual(b.state[q]["low"].dtype, torch.int16)

    def test_exact(self):
        (_, wide), (b, narrow) = self.both()
        self.same(wide, b, narrow)

    def test_mixed(self):
        """f32 parameters beside bf16 ones keep nothing."""
        ps = params(torch.bfloat16)[:1] + params(torch.float32)[1:]
        opt = optc.torch.AdamW(ps, types={"master": "low16"})
        grads(ps)
        opt.step()
        self.assertEqual(["low" in opt.state[p] for p in ps], [True, False, False])

    def test_warned(self):
        """Types that cannot work with the optimizer's own hyperparameters, once, when tensors are
        bound."""
        ps = params(torch.bfloat16)
        for given, said in (({"lr": 1e-4}, "update of lr = 0.0001 rounds away"), ({
                "lr": 0.5, "weight_decay": 0.5
        }, ""), ({"lr": 0.5, "weight_decay": 0.5, "types": {"state": "bf16"}},
                 "'v' is an average"), ({"lr": 1e-4, "types": {"master": "low16"}}, ""), ({
                     "lr": 0.5, "weight_decay": 0, "betas": (0.9, 0.95), "types": {"state": "bf16"}
                 }, "")):
            opt = optc.torch.AdamW(ps, **given)
            with warnings.catch_warnings(record=True) as seen:
                warnings.simplefilter("always")
                for t in range(2):
                    grads(ps, t), opt.step()
            found = [str(w.message) for w in seen if str(w.message).startswith("optc: ")]
            self.assertEqual(len([w for w in found if said and said in w]), int(bool(said)),
                             (given, found))
            self.assertTrue(said or not found, (given, found))

    def test_copy(self):
        """The copy of the weights is in opt.state, also after a file, and follows what others
        write."""
        ps = params(torch.float32)
        opt = optc.torch.AdamW(ps, lr=0.1, types={"copy": "bf16"})
        for t in range(2):
            self.step(opt, ps, t)
        for p in ps:
            self.assertEqual(opt.state[p]["copy"].dtype, torch.bfloat16)
            self.assertTrue(torch.equal(opt.state[p]["copy"], p.detach().bfloat16()))
        saved = copy.deepcopy(opt.state_dict())
        for key in ({}, {"copy": None}):                   # a file with it, and one without it
            fresh = [torch.nn.Parameter(p.detach().clone()) for p in ps]
            again = optc.torch.AdamW(fresh, lr=0.1, types={"copy": "bf16"})
            file = copy.deepcopy(saved)
            for own in file["state"].values():
                for name in key:
                    del own[name]
            again.load_state_dict(file)
            self.step(again, fresh, 2)
            for q in fresh:
                self.assertTrue(torch.equal(again.state[q]["copy"], q.detach().bfloat16()))
        self.step(opt, ps, 2)
        for p, q in zip(ps, fresh):
            self.assertTrue(torch.equal(p, q))
        plain = optc.torch.AdamW([torch.nn.Parameter(p.detach().clone()) for p in ps], lr=0.1)
        plain.load_state_dict(saved)                       # a rule without a copy leaves it out

    def test_lost(self):
        """Updates that round away are counted, by parameter and in all; with a remainder there are
        none."""
        for types, every in (({"lost": "count"}, True), ({"lost": "count",
                                                          "master": "low16"}, False)):
            ps = [torch.nn.Parameter(torch.full((5, 3), 1.0 + k, dtype=d))
                  for k, d in enumerate((torch.bfloat16, torch.float32, torch.bfloat16))]
            opt = optc.torch.SGD(ps, lr=1e-3, types=types)
            grads(ps)
            for p in ps:
                p.grad.fill_(1)
            opt.step()
            self.assertEqual([opt.value("lost_updates", p) for p in ps],
                             [15 * every, 0, 15 * every])
            self.assertEqual(opt.value("lost_updates"), 30 * every)

    def test_refused(self):
        p = params(torch.float16)
        opt = optc.torch.AdamW(p, types={"master": "low16"})
        grads(p)
        with self.assertRaisesRegex(optc.SpecError, "the remainder belongs to parameters in bf16"):
            opt.step()

    def test_written(self):
        """An in-place write by torch is noticed; only what was written to starts anew."""
        for how, name in (("low16", "low"), ("low8", "low"), ("kahan", "compensation"), ("f32",
                                                                                         "master")):
            ps = params(torch.bfloat16)
            opt = optc.torch.AdamW(ps, lr=1e-3, types={"master": how})
            for t in range(3):
                self.step(opt, ps, t)
            kept = [opt.state[p][name].clone() for p in ps]
            with torch.no_grad():
                ps[1].fill_(3)
            fresh = [torch.nn.Parameter(p.detach().clone()) for p in ps]
            again = optc.torch.AdamW(fresh, lr=1e-3, types={"master": how})
            saved = copy.deepcopy(opt.state_dict())
            saved["state"][1][name] = torch.full_like(kept[1], 3 if how == "f32" else 0)
            again.load_state_dict(saved)
            self.step(opt, ps, 3), self.step(again, fresh, 3)
            for p, q in zip(ps, fresh):
                self.assertTrue(torch.equal(p, q), how)
                self.assertTrue(torch.equal(opt.state[p][name], again.state[q][name]), how)

    def test_unseen(self):
        """What torch counts no version of is told by hand."""
        ps = params(torch.bfloat16)
        opt = optc.torch.SGD(ps, lr=1e-3, types={"master": "f32"})
        self.step(opt, ps, 0)
        for p in ps[:2]:
            p.data.fill_(5)
        opt.params_changed(ps[0])
        self.assertTrue(bool((opt.state[ps[0]]["master"] == 5).all()))
        self.assertFalse(bool((opt.state[ps[1]]["master"] == 5).any()))
        opt.params_changed()
        self.assertTrue(bool((opt.state[ps[1]]["master"] == 5).all()))

    def test_edited(self):
        """p.data is edited at its address, or is new, between steps: only what was written starts
        anew, and all ways to keep the master agree with an assignment by hand."""
        def fill(p):
            p.data[1:] = 3

        def swapped(p):
            p.data = p.data.clone()
            fill(p)
        changes = {
            "f32": (fill, swapped, lambda p: p.data.copy_(torch.ones_like(p)),
                    lambda p: p.data.clamp_(-0.5, 0.5), lambda p: torch.nn.utils.
                    vector_to_parameters(torch.ones(p.numel()).bfloat16(), [p])),
            "low16": (swapped,), "low8": (swapped,), "kahan": (swapped,)
        }
        names = {"f32": "master", "low16": "low", "low8": "low", "kahan": "compensation"}
        for how, change in ((how, c) for how, every in changes.items() for c in every):
            ps, qs = params(torch.bfloat16), params(torch.bfloat16)
            a, b = (optc.torch.AdamW(x, lr=1e-3, types={"master": how}) for x in (ps, qs))
            for t in range(3):
                self.step(a, ps, t), self.step(b, qs, t)
            was = ps[1].detach().clone()
            change(ps[1])
            with torch.no_grad():
                kept = b.state[qs[1]][names[how]]
                wrote = ps[1] != was if how == "f32" else torch.ones_like(was, dtype=torch.bool)
                self.assertTrue(wrote.any())
                qs[1].data.copy_(ps[1])
                kept[wrote] = ps[1][wrote].to(kept.dtype) if how == "f32" else 0
            self.step(a, ps, 3), self.step(b, qs, 3)
            for p, q in zip(ps, qs):
                self.assertTrue(torch.equal(p, q), how)
                self.assertTrue(torch.equal(a.state[p][names[how]], b.state[q][names[how]]), how)

    def test_moved(self):
        """New addresses with the same values keep the remainders; also if tensors are bound
        again."""
        for how, name in (("low16", "low"), ("f32", "master")):
            for more in (False, True):
                ps, qs = params(torch.bfloat16), params(torch.bfloat16)
                a, b = (optc.torch.AdamW(x, lr=1e-3, types={"master": how}) for x in (ps, qs))
                self.step(a, ps, 0), self.step(b, qs, 0)
                for p in ps:
                    p.data = p.data.clone()
                extra = torch.nn.Parameter(torch.ones(2, dtype=torch.bfloat16))
                if more:
                    a.add_param_group({"params": [extra]})
                self.step(a, ps, 1), self.step(b, qs, 1)
                for p, q in zip(ps, qs):
                    self.assertTrue(torch.equal(a.state[p][name], b.state[q][name]))
                ps[0].data = torch.full_like(ps[0], 3)
                if more:
                    a.add_param_group(
                        {"params": [torch.nn.Parameter(torch.ones(2, dtype=torch.bfloat16))]})
                for p in ps:
                    p.grad = torch.zeros_like(p)
                a.param_groups[0]["weight_decay"] = 0
                a.param_groups[0]["lr"] = 0.0
                a.step()
                self.assertTrue(bool((ps[0] == 3).all()), (how, more))

    def test_edits_off(self):
        """static_grads=True and edits=none compare nothing: the caller says what was written."""
        for given in ({"static_grads": True}, {"edits": "none"}):
            types = {"master": "f32", **({k: v for k, v in given.items() if k == "edits"})}
            p = torch.nn.Parameter(torch.ones(4, dtype=torch.bfloat16))
            opt = optc.torch.SGD([p], lr=1e-3, types=types, static_grads="static_grads" in given)
            p.grad = torch.zeros_like(p)
            opt.step()
            p.data.fill_(5)
            opt.step()
            self.assertEqual(p.tolist(), [1] * 4)
            p.data.fill_(5)
            opt.params_changed(p)
            opt.step()
            self.assertEqual(p.tolist(), [5] * 4)

    def test_file(self):
        """Weights, then states, through a file: the run goes on bit for bit."""
        (a, wide), (b, narrow) = self.both()
        file = io.BytesIO()
        torch.save({"p": [p.detach() for p in narrow], "opt": b.state_dict()}, file)
        file.seek(0)
        read = torch.load(file, weights_only=True)
        there = params(torch.bfloat16, 1)
        c = optc.torch.AdamW(there, lr=1e-3, types={"master": "low16"})
        # what was bound before does not matter
        self.step(c, there, 99)
        with torch.no_grad():
            for p, q in zip(there, read["p"]):
                p.copy_(q)
        c.load_state_dict(read["opt"])
        for t in range(3):
            self.step(a, wide, t), self.step(c, there, t)
        self.same(wide, c, there)

    def test_file_without(self):
        """A file of a run that kept no remainders: they begin at 0."""
        ps, qs = params(torch.bfloat16), params(torch.bfloat16)
        a, b = optc.torch.AdamW(ps), optc.torch.AdamW(qs, types={"master": "low16"})
        self.step(a, ps, 0)
        b.load_state_dict(a.state_dict())
        self.step(b, qs, 1)
        self.assertEqual(int(b.state[qs[0]]["step"]), 2)

    def test_strides(self):
        """Parameters with gaps are stepped as copies."""
        w = torch.randn(6, 8).bfloat16()
        p = torch.nn.Parameter(w[:, ::2])
        opt = optc.torch.SGD([p], lr=1e-3, types={"master": "f32"})
        for t in range(2):
            p.grad = torch.ones_like(p)
            opt.step()
        with torch.no_grad():
            p.fill_(7)
        p.grad = torch.zeros_like(p)
        opt.step()
        self.assertTrue(bool((p == 7).all()) and bool((opt.state[p]["master"] == 7).all()))

    def test_printed(self):
        """A new optimizer tells how it keeps 16-bit parameters, and what to pass if they are
        rounded."""
        rounded = r"bf16 parameters: rounded to nearest; .*master.*low16.*param.*bf16sr"
        for dtype, types, want in ((torch.bfloat16, None,
                                    rounded), (torch.bfloat16, "state=q8,master=none",
                                               rounded), (torch.bfloat16, "param=f16sr", rounded),
                                   (torch.float16, None, r"f16 parameters: rounded to nearest; "
                                    r".*master.*f32.*param.*f16sr"),
                                   (torch.bfloat16, "master=kahan",
                                    r"bf16 parameters: master=kahan\n"), (torch.bfloat16, {
                                        "param": "bf16sr"
                                    }, r"bf16 parameters: rounded stochastically \(bf16sr\)\n")):
            with warnings.catch_warnings():
                warnings.simplefilter("error")         # torch is silent too
                opt = optc.torch.AdamW(params(dtype), types=types)
            self.assertRegex(repr(opt), want)
            self.assertTrue(repr(opt).endswith("\n)"))
            self.assertRegex(repr(copy.deepcopy(opt)), want)
        wide = params(torch.float32)
        self.assertNotIn("parameters:", repr(optc.torch.AdamW(wide)))
        self.assertEqual(
            repr(optc.torch.AdamW(wide + params(torch.bfloat16))).count("parameters:"), 1)
        self.assertRegex(optc.torch.AdamW.__doc__, "types=.*master.*low16")


if __name__ == "__main__":
    unittest.main()
