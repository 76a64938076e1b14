"""States in block codes: plain tensors in opt.state and files, conversion into other types, and
files of bitsandbytes and torchao, made here by their layouts."""
import copy
import io
import math
import unittest
import warnings

import torch

import optc.torch
from optc.torch import _codes
from case import Case, grads

SPEC = """return optimizer { name = "q", hyper = { lr = 0.01 },
  state = { exp_avg = zeros(%s), exp_avg_sq = zeros(%s) },
  step = function()
    exp_avg = lerp(exp_avg, g, 0.1)  exp_avg_sq = lerp(exp_avg_sq, g * g, 0.1)
    p = p - lr * exp_avg / (sqrt(exp_avg_sq) + 1e-8)
  end }"""
F32, Q8, F8 = ('"elem", "f32"',) * 2, ('"elem", "q8"', '"elem", "q8u"'), ('"elem", "f8"',
                                                                          '"elem", "f8u"')
SHAPES = ((70, 61), (4096,), (10, 10), (1, 4097))


def made(types, seed=3, shapes=SHAPES):
    torch.default_generator.manual_seed(seed)
    params = [torch.randn(s).requires_grad_() for s in shapes]
    return params, optc.torch.Optimizer(params, spec=SPEC % types)


def run(params, opt, steps, first=0):
    for k in range(first, first + steps):
        grads(params, k)
        opt.step()


def saved(opt):
    """Through a file that holds plain tensors and numbers alone."""
    file = io.BytesIO()
    torch.save(opt.state_dict(), file)
    file.seek(0)
    return torch.load(file, weights_only=True)


def numbers(opt, p, name):
    """A state as f32, read from what opt.state shows."""
    own = opt.state[p]
    return _codes._values(own, name, "p") if _codes.is_coded(own, name) else own[name]


class CodedStates(Case):
    def test_entries(self):
        """uint8 in the parameter's shape, and scales; small tensors are f32."""
        params, opt = made(Q8)
        run(params, opt, 2)
        for p in params:
            own, coded = opt.state[p], p.numel() >= 4096
            self.assertEqual(
                set(own), {"step", "exp_avg", "exp_avg_sq"} |
                ({"exp_avg_scale", "exp_avg_code", "exp_avg_sq_scale", "exp_avg_sq_code"}
                 if coded else set()))
            self.assertEqual([type(v) for k, v in own.items() if not k.endswith("_code")],
                             [torch.Tensor] * (5 if coded else 3))
            self.assertEqual(own["exp_avg"].shape, p.shape)
            self.assertEqual(own["exp_avg"].dtype, torch.uint8 if coded else torch.float32)
            if coded:
                self.assertEqual(own["exp_avg_scale"].shape, (math.ceil(p.numel() / 128),))
                self.assertEqual(own["exp_avg_scale"].dtype, torch.float32)

    def test_codes(self):
        """Decoding and encoding here give the library's numbers and codes."""
        for types in (Q8, F8):
            params, opt = made(types)
            run(params, opt, 1)
            b, i = opt._places[params[0]]
            n = params[0].numel()
            for name in ("exp_avg", "exp_avg_sq"):
                kind = _codes.CODES[opt.state[params[0]][name + "_code"]]
                torch.default_generator.manual_seed(4)
                x = torch.randn(n) * torch.exp(20 * torch.randn(n))
                x[300:600] *= 1e-36
                x[700] = torch.nan
                x[900:1100] = 0
                x[1400:1600] *= 1e-44
                x = x if kind in ("q8", "f8") else x.abs()
                b.binding.write(i, name, x.tolist())
                codes, scale = _codes.encode(x, kind)
                # in the middle of two codes it takes either
                there = opt.state[params[0]][name].view(-1)
                self.assertLessEqual((codes.int() - there.int()).abs().max(), 1)
                self.assertLessEqual((codes != there).sum(), n // 1000)
                self.assertTrue(
                    torch.equal(scale.view(torch.int32),
                                opt.state[params[0]][name + "_scale"].view(torch.int32)))
                got = torch.tensor(b.binding.read(i, name, n), dtype=torch.float32)
                self.assertTrue(
                    torch.equal(torch.nan_to_num(numbers(opt, params[0], name).view(-1), 7.0),
                                torch.nan_to_num(got, 7.0)))

    def test_resume(self):
        """A run that is saved, loaded and resumed is the run; its bytes stay."""
        for types in (Q8, F8):
            params, opt = made(types)
            run(params, opt, 3)
            file, values = saved(opt), [p.detach().clone() for p in params]
            others, again = made(types, seed=8)
            with torch.no_grad():
                for p, v in zip(others, values):
                    p.copy_(v)
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                again.load_state_dict(file)
                run(others, again, 3, 3)
            run(params, opt, 3, 3)
            for p, q in zip(params, others):
                self.assertTrue(torch.equal(p, q))
                for k, v in opt.state[p].items():
                    self.assertTrue(
                        torch.equal(torch.as_tensor(v), torch.as_tensor(again.state[q][k])), k)
            copied = copy.deepcopy(opt)
            self.assertEqual(copied.state_dict()["state"][0]["exp_avg"].dtype, torch.uint8)

    def test_channels_last(self):
        """Blocks follow memory, and so do codes of a parameter that lies in another order."""
        torch.default_generator.manual_seed(1)
        p = torch.randn(8, 16, 8, 8).to(memory_format=torch.channels_last).requires_grad_()
        q = p.detach().permute(0, 2, 3, 1).contiguous().requires_grad_()
        a, b = (optc.torch.Optimizer([x], spec=SPEC % Q8) for x in (p, q))
        for k in range(3):
            torch.default_generator.manual_seed(k)
            p.grad = torch.randn(p.shape).to(memory_format=torch.channels_last)
            q.grad = p.grad.permute(0, 2, 3, 1).contiguous()
            a.step()
            b.step()
        self.assertTrue(torch.equal(p.permute(0, 2, 3, 1), q))
        self.assertTrue(
            torch.equal(a.state[p]["exp_avg"].permute(0, 2, 3, 1), b.state[q]["exp_avg"]))
        file = saved(a)
        other = p.detach().clone(memory_format=torch.contiguous_format).requires_grad_()
        c = optc.torch.Optimizer([other], spec=SPEC % Q8)
        c.load_state_dict(file)
        other.grad = torch.zeros_like(other)
        want = numbers(a, p, "exp_avg")
        with self.assertWarnsRegex(UserWarning,
                                   "state 'exp_avg' was loaded as q8 and is stored as q8"):
            c.step()
        off = (numbers(c, other, "exp_avg") / 0.9 - want).abs()
        self.assertLessEqual(off.max(), 0.08 * want.abs().max())

    def test_conversions(self):
        """Between f32, q8 and f8: converted with a warning, within a step of the coarser code."""
        for was, now, bound in ((F32, Q8, 1 / 32), (Q8, F32, 1e-6), (Q8, F8, 1 / 8), (F8, Q8,
                                                                                      1 / 32)):
            params, opt = made(was)
            run(params, opt, 3)
            file = saved(opt)
            want = {
                n: [numbers(opt, p, n).clone() for p in params] for n in ("exp_avg", "exp_avg_sq")
            }
            others, again = made(now)
            again.load_state_dict(file)
            for p in others:
                p.grad = torch.zeros_like(p)
            with warnings.catch_warnings(record=True) as told:
                warnings.simplefilter("always")
                again.step()
            self.assertTrue(any("it was converted" in str(w.message) for w in told), (was, now))
            for n, values in want.items():
                for p, value in zip(others, values):
                    # what a step without gradients leaves
                    got = numbers(again, p, n) / 0.9
                    most = value.abs().max()
                    self.assertLessEqual(((got - value).abs() / (value.abs() + most / 14)).max(),
                                         2 * bound, (was, now))
                    self.assertEqual(set(k for k in again.state[p] if k.startswith("exp_avg_sq")),
                                     {"exp_avg_sq"} if now == F32 or p.numel() < 4096 else
                                     {"exp_avg_sq", "exp_avg_sq_scale", "exp_avg_sq_code"})

    def test_edits(self):
        """Numbers that replace codes are encoded; codes and scales may be changed in place."""
        params, opt = made(Q8)
        run(params, opt, 2)
        p = params[0]
        opt.state[p]["exp_avg"] = torch.full_like(p, 0.25)
        for x in params:
            x.grad = torch.zeros_like(x)
        with self.assertWarnsRegex(UserWarning, "state 'exp_avg' was loaded as torch.float32 and "
                                                "is stored as q8"):
            opt.step()
        self.assertTrue(torch.allclose(numbers(opt, p, "exp_avg"), torch.full_like(p, 0.225)))
        opt.state[p]["exp_avg_scale"].mul_(2)
        opt.step()
        self.assertTrue(torch.allclose(numbers(opt, p, "exp_avg"), torch.full_like(p, 0.405)))

    def test_names(self):
        """States of the rule, and entries of the user, whose names end like those of codes."""
        spec = """return optimizer { name = "q", hyper = { lr = 0.01 },
          state = { a = zeros, a_scale = zeros, b = zeros("elem", "q8") },
          step = function()
            a = a + g  a_scale = a_scale + 1  b = lerp(b, g, 0.5)  p = p - lr * (a + a_scale + b)
          end }"""
        params = [torch.zeros(4096).requires_grad_()]
        opt = optc.torch.Optimizer(params, spec=spec)
        run(params, opt, 2)
        opt.state[params[0]]["step_scale"] = 5
        opt.load_state_dict(saved(opt))
        run(params, opt, 1, 2)
        own = opt.state[params[0]]
        self.assertEqual(own["step_scale"], 5)
        self.assertTrue(torch.equal(own["a_scale"], torch.full((4096,), 3.0)))
        self.assertEqual((own["b"].dtype, own["b_scale"].shape), (torch.uint8, (32,)))
        file = saved(opt)
        del file["state"][0]["a_scale"]
        with self.assertRaisesRegex(ValueError, "has no 'a_scale'"):
            opt.load_state_dict(file)

    def test_refusals(self):
        params, opt = made(Q8)
        run(params, opt, 1)
        file = saved(opt)
        file["state"][0]["exp_avg_scale"] = file["state"][0]["exp_avg_scale"][:5]
        _, again = made(F32)
        again.load_state_dict(file)
        with self.assertRaisesRegex(ValueError, "has 4270 codes and 5 scales"):
            run(again.param_groups[0]["params"], again, 1)
        file = saved(opt)
        del file["state"][0]["exp_avg_scale"]
        with self.assertRaisesRegex(ValueError,
                                    "was given as torch.uint8: a floating type is wanted"):
            made(F32)[1].load_state_dict(file)


def dynamic_map(sign):
    """bitsandbytes' and torchao's table."""
    found = [0.0, 1.0]
    for i in range(7):
        parts = 2 ** (i if sign else i + 1)
        for k in range(parts):
            x = (0.1 + 0.9 * (k + 0.5) / parts) * 10.0 ** (i - 6)
            found += [x, -x] if sign else [x]
    return torch.tensor(sorted(found), dtype=torch.float32)


def mapped(x, block, sign):
    """(codes, scales, table, values) of a state in their formats."""
    qmap = dynamic_map(sign)
    flat = torch.zeros(math.ceil(x.numel() / block) * block)
    flat[:x.numel()] = x.view(-1)
    absmax = flat.view(-1, block).abs().amax(1)
    codes = ((flat.view(-1, block) / absmax[:, None])[..., None] - qmap).abs().argmin(-1)
    values = (qmap[codes] * absmax[:, None]).view(-1)[:x.numel()].view(x.shape)
    return codes.view(-1)[:x.numel()].view(x.shape).to(torch.uint8), absmax, qmap, values


class OptimState8bit:
    """The parts of torchao's tensor of this name."""

    def __init__(self, codes, scale, qmap, signed):
        self.codes, self.scale, self.qmap, self.signed = codes, scale, qmap, signed


class Others(Case):
    def load(self, make, rule="adamw", **given):
        """A rule that loads a file of another package: its states are the file's numbers.
        make(state, sign) -> (an entry's part, numbers)"""
        for shape in ((64, 96), (4097,)):
            torch.default_generator.manual_seed(2)
            p = torch.randn(shape).requires_grad_()
            m, v = torch.randn(shape) * 0.01, torch.rand(shape) ** 4
            opt = optc.torch.Optimizer([p], rule, **given)
            entry, m, v = make(m, v)
            group = {**opt.state_dict()["param_groups"][0], "alpha": 0.0}
            opt.load_state_dict({"state": {0: {"step": 7, **entry}}, "param_groups": [group]})
            p.grad = torch.zeros_like(p)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                opt.step()
            self.assertEqual(opt.state[p]["step"], 8)
            group = opt.param_groups[0]
            betas = group.get("betas", (0.9, 0.9))
            # two steps of q8: when it is loaded, and after a step
            bound = 1 / 16 if given else 1e-5
            for name, want in (("exp_avg", betas[0] * m), ("exp_avg_sq", betas[1] * v)):
                got = numbers(opt, p, name)
                self.assertLessEqual(
                    ((got - want).abs() / (want.abs() + want.abs().max() / 14)).max(), bound)
                self.assertEqual(opt.state[p]["exp_avg"].dtype,
                                 torch.uint8 if given else torch.float32)

    def test_bitsandbytes(self):
        for block in (256, 2048):
            for nested in (False, True):
                def make(m, v):
                    a, b = mapped(m, block, True), mapped(v, block, False)
                    own = {
                        "state1": a[0], "absmax1": a[1], "qmap1": a[2], "state2": b[0],
                        "absmax2": b[1], "qmap2": b[2]
                    }
                    return {_codes.BITSANDBYTES: own} if nested else own, a[3], b[3]
                self.load(make)
                self.load(make, types="state=q8")
        # its tensors below 4096 elements
        self.load(lambda m, v: ({"state1": m, "state2": v}, m, v))

    def test_torch(self):
        """A file of torch.optim.AdamW continues in q8, and one of q8 in torch.optim.AdamW's
        types."""
        torch.default_generator.manual_seed(2)
        p = torch.randn(80, 80).requires_grad_()
        q = p.detach().clone().requires_grad_()
        a, b = torch.optim.AdamW([p]), optc.torch.Optimizer([q], "adamw", types="state=q8")
        run([p], a, 3)
        b.load_state_dict(a.state_dict())
        with torch.no_grad():
            q.copy_(p)
        with self.assertWarnsRegex(UserWarning, "state 'exp_avg_sq' was loaded as torch.float32 "
                                                "and is stored as q8u"):
            run([q], b, 1, 3)
        run([p], a, 1, 3)
        self.assertEqual((b.state[q]["exp_avg_code"], b.state[q]["exp_avg_sq_code"]), (5, 6))
        self.assertLessEqual((p - q).abs().max(), 1e-4)            # a tenth of lr

    def test_torchao(self):
        for block in (256, 64):
            for kind in (OptimState8bit, dict):
                def make(m, v):
                    a, b = mapped(m, block, True), mapped(v, block, False)
                    return {
                        "exp_avg": kind(codes=a[0], scale=a[1], qmap=a[2], signed=True),
                        "exp_avg_sq": kind(codes=b[0], scale=b[1], qmap=b[2], signed=False)
                    }, a[3], b[3]
                self.load(make)
                self.load(make, types="state=q8")


if __name__ == "__main__":
    unittest.main()
