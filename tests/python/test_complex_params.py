"""Complex parameters: torch's rules beside torch's, files in both directions, refusals."""
import copy
import io
import unittest

import torch

import optc
import optc.torch
from optc.torch import _rules

RULES = {"adadelta": {}, "adagrad": {"initial_accumulator_value": 0.5, "weight_decay": 0.1},
         "adam": {"amsgrad": True}, "adamw": {}, "adamax": {}, "asgd": {"t0": 2}, "nadam": {},
         "radam": {}, "rmsprop": {"momentum": 0.9}, "rprop": {},
         "sgd": {"momentum": 0.9}}


def params(dtype=torch.complex64):
    """A matrix, a scalar, one that is stored by columns, one with gaps, and a real one."""
    torch.manual_seed(1)
    made = [torch.randn(3, 5, dtype=dtype), torch.randn((), dtype=dtype),
            torch.randn(4, 3, dtype=dtype).t(), torch.randn(4, 6, dtype=dtype)[:, ::2],
            torch.randn(7)]
    return [torch.nn.Parameter(x) for x in made]


def grads(ps, k, late=()):
    for i, p in enumerate(ps):
        torch.manual_seed(10 * k + i)
        p.grad = None if i in late else torch.randn(p.shape, dtype=p.dtype)


class Complex(unittest.TestCase):
    def same(self, ours, theirs, said):
        for i, (p, q) in enumerate(zip(ours, theirs)):
            self.assertTrue(torch.allclose(p, q, rtol=1e-5, atol=1e-6), (said, i))

    def test_torchs_rules(self):
        """Six steps as torch's, the last three after a file of torch's; torch reads ours."""
        for spec, given in RULES.items():
            with self.subTest(spec):
                dtype = torch.complex128 if spec == "sgd" else torch.complex64
                ours, theirs = params(dtype), params(dtype)
                mine = optc.torch.Optimizer(ours, spec, lr=0.1, **given)
                other = _rules.torch_class(spec)(theirs, lr=0.1, **given)
                for k in range(6):
                    for ps, opt in ((ours, mine), (theirs, other)):
                        grads(ps, k, (1, ) if k == 1 else ())
                        if k == 4:                     # torch's take no conjugated views
                            ps[0].grad = ps[0].grad.conj()
                            ps[0].grad = ps[0].grad if ps is ours else ps[0].grad.resolve_conj()
                        opt.step()
                    self.same(ours, theirs, (spec, k))
                    if k == 2:
                        for p, q in zip(ours, theirs):
                            for name, value in other.state[q].items():
                                have = mine.state[p][name]
                                if torch.is_tensor(value) and value.dim():
                                    self.assertEqual((have.dtype, have.shape),
                                                     (value.dtype, value.shape), (spec, name))
                                    self.same([have], [value], (spec, name))
                        file = mine.state_dict()
                        mine.load_state_dict(other.state_dict())
                        other.load_state_dict(file)

    def test_states(self):
        """Edits of states and of parameters, copies, another place of the parameter."""
        ours, theirs = params()[:1], params()[:1]
        mine, other = optc.torch.Adam(ours, 0.1), torch.optim.Adam(theirs, 0.1)
        for k in range(6):
            for ps, opt in ((ours, mine), (theirs, other)):
                if k == 2:
                    opt.state[ps[0]]["exp_avg"].mul_(1j)
                if k == 3:
                    ps[0].data = ps[0].data * 2j
                if k == 4:
                    ps[0].data.zero_()
                if k == 5:
                    opt.state[ps[0]]["exp_avg"] = torch.ones_like(ps[0])
                grads(ps, k)
                version = ps[0]._version
                opt.step()
                self.assertGreater(ps[0]._version, version)
            self.same(ours, theirs, k)
        again = copy.deepcopy(mine)
        qs = again.param_groups[0]["params"]
        for ps, opt in ((qs, again), (ours, mine)):
            grads(ps, 7), opt.step()
        self.assertTrue(torch.equal(qs[0], ours[0]))
        file = io.BytesIO()
        torch.save(mine.state_dict(), file)
        file.seek(0)
        mine.load_state_dict(torch.load(file))

    def test_clip(self):
        """The norm of complex gradients is that of their parts."""
        ours, theirs = params(), params()
        mine = optc.torch.SGD(ours, 0.1, with_=["clip(1.0)"])
        other = torch.optim.SGD(theirs, 0.1)
        grads(ours, 0), mine.step()
        grads(theirs, 0), torch.nn.utils.clip_grad_norm_(theirs, 1.0), other.step()
        self.same(ours, theirs, "clip")

    def test_lazy_static(self):
        """Conjugated gradients in the same memory, which static_grads promises."""
        ours, theirs = (torch.nn.Parameter(torch.ones(3, dtype=torch.complex64)) for _ in "ab")
        own = torch.zeros(3, dtype=torch.complex64)
        mine = optc.torch.SGD([ours], lr=0.1, static_grads=True)
        other = torch.optim.SGD([theirs], lr=0.1)
        ours.grad = own.conj()
        for k in range(4):
            torch.manual_seed(k)
            own.copy_(torch.randn(3, dtype=torch.complex64))
            theirs.grad = own.conj().resolve_conj()
            mine.step(), other.step()
            self.same([ours], [theirs], k)

    def test_narrow_states(self):
        """States in a type that has no complex numbers are pairs, and load again."""
        runs = []
        for resumed in (False, True):
            ps = params()[:1]
            opt = optc.torch.Adam(ps, lr=0.1, types={"state": "bf16"})
            for k in range(4):
                if resumed and k == 2:
                    saved = opt.state_dict()
                    opt = optc.torch.Adam(ps, lr=0.1, types={"state": "bf16"})
                    opt.load_state_dict(saved)
                grads(ps, k)
                opt.step()
            runs.append(ps[0].detach().clone())
        self.assertTrue(torch.equal(*runs))

    def test_refused(self):
        p = torch.nn.Parameter(torch.ones(3, 4, dtype=torch.complex64))
        for kind in ("SOAP", "Scion", "MuonH"):
            make = getattr(optc.torch, kind)
            with self.assertRaisesRegex(ValueError, "does not support complex parameters: w;"):
                make([("w", p)], lr=0.1)
        p.grad = torch.ones_like(p)
        for kind in ("Adafactor", "Muon"):             # as torch's
            late = getattr(optc.torch, kind)([("w", p)])
            with self.assertRaisesRegex(RuntimeError, "%s does not support complex param" % kind):
                late.step()
        with self.assertRaisesRegex(ValueError, "conjugated views .*w; pass resolve_conj"):
            optc.torch.SGD([("w", p.detach().conj().requires_grad_())], 0.1)
        real = torch.nn.Parameter(torch.ones(2))
        opt = optc.torch.Adam([("w", real)], 0.1)
        real.grad = torch.ones(2)
        opt.step()
        file = opt.state_dict()
        file["state"][0]["exp_avg"] = file["state"][0]["exp_avg"] * 1j
        with self.assertRaisesRegex(ValueError, "'exp_avg' .*complex64: a floating type"):
            opt.load_state_dict(file)
        opt = optc.torch.SGD([("w", p)], 0.1)
        opt.step()
        p.data = p.data.conj()
        with self.assertRaisesRegex(ValueError, "conjugated views .*: w"):
            opt.step()


if __name__ == "__main__":
    unittest.main()
