"""What a training loop does with an optimizer."""
import ast
import copy
import gc
import io
import os
import pickle
import tempfile
import unittest
import warnings
from unittest import mock

import torch
from torch.optim import lr_scheduler as lrs

import optc
import optc.torch


TREE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def model(seed=1, dtype=torch.float32):
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(6, 9), torch.nn.Tanh(), torch.nn.Linear(9, 3)).to(dtype)


torch.manual_seed(0)
X, Y = torch.randn(16, 6), torch.randn(16, 3)


def train(m, opt, steps, schedule=None, zero=True):
    """Losses of some steps."""
    losses = []
    for _ in range(steps):
        opt.zero_grad(set_to_none=zero)
        loss = ((m(X) - Y) ** 2).mean()
        loss.backward()
        opt.step()
        if schedule:
            schedule.step()
        losses.append(loss.item())
    return losses


def grads(params, seed=0):
    torch.manual_seed(seed)
    for p in params:
        p.grad = torch.randn(p.shape, dtype=p.dtype)


def lists(seed=5, shapes=((4, 3), (5,))):
    torch.manual_seed(seed)
    return [torch.randn(s).requires_grad_() for s in shapes]


class Case(unittest.TestCase):
    def close(self, a, b, bound=1e-5):
        self.assertEqual(len(a), len(b))
        for x, y in zip(a, b):
            self.assertLessEqual(abs(x - y), bound)


class Loop(Case):
    def test_schedulers(self):
        made = [lambda o: lrs.OneCycleLR(o, 0.1, total_steps=20), lambda o: lrs.CosineAnnealingLR(o, 10),
                lambda o: lrs.LambdaLR(o, lambda t: 0.9 ** t), lambda o: lrs.StepLR(o, 3),
                lambda o: lrs.CyclicLR(o, 0.01, 0.1, step_size_up=3), lambda o: lrs.ExponentialLR(o, 0.8),
                lambda o: lrs.SequentialLR(o, [lrs.LinearLR(o), lrs.PolynomialLR(o, 9)], [4]),
                lambda o: lrs.CosineAnnealingWarmRestarts(o, 4), lambda o: lrs.MultiStepLR(o, [2, 5])]
        for make in made:
            a, b = model(), model()
            oa, ob = torch.optim.AdamW(a.parameters(), lr=0.02), optc.torch.AdamW(b.parameters(), lr=0.02)
            self.close(train(a, oa, 12, make(oa)), train(b, ob, 12, make(ob)))
        opt = optc.torch.SGD(model().parameters(), lr=1.0)
        s = lrs.ReduceLROnPlateau(opt, patience=0)
        s.step(1.0), s.step(2.0)
        self.assertAlmostEqual(opt.param_groups[0]["lr"], 0.1)

    def test_every_key_is_live(self):
        a, b = lists(), lists()
        oa, ob = torch.optim.AdamW(a), optc.torch.AdamW(b)
        for t in range(6):
            for o in (oa, ob):
                o.param_groups[0].update(lr=0.1 / (t + 1), betas=(0.5 + t / 20, 0.9), eps=10.0 ** -t,
                                         weight_decay=t / 9)
            grads(a, t), grads(b, t)
            oa.step(), ob.step()
        for p, q in zip(a, b):
            torch.testing.assert_close(p, q, rtol=1e-5, atol=1e-6)
        ob.param_groups[0]["amsgrad"] = True           # an option of the spec: another rule, states kept
        oa.param_groups[0]["amsgrad"] = True
        for s in oa.state.values():
            s["max_exp_avg_sq"] = torch.zeros_like(s["exp_avg_sq"])
        grads(a, 9), grads(b, 9)
        oa.step(), ob.step()
        for p, q in zip(a, b):
            torch.testing.assert_close(p, q, rtol=1e-5, atol=1e-6)
        ob.param_groups[0]["lr"] = -1.0
        with self.assertRaises(optc.RangeError):
            ob.step()

    def test_groups(self):
        a, b = model(), model()
        make = [lambda m: [{"params": list(m[0].parameters()), "lr": 0.1}, {"params": list(m[2].parameters())}]] * 2
        oa, ob = torch.optim.SGD(make[0](a), lr=0.01, momentum=0.9), optc.torch.SGD(make[1](b), lr=0.01, momentum=0.9)
        self.close(train(a, oa, 3), train(b, ob, 3))
        extra = [torch.ones(3, requires_grad=True), torch.ones(3, requires_grad=True)]
        for o, p in zip((oa, ob), extra):
            p.grad = torch.ones(3)
            o.add_param_group({"params": p, "lr": 0.5, "momentum": 0})
        self.close(train(a, oa, 3, zero=False), train(b, ob, 3, zero=False))
        torch.testing.assert_close(*extra)
        with self.assertRaisesRegex(ValueError, "Invalid learning rate"):
            ob.add_param_group({"params": [torch.ones(1, requires_grad=True)], "lr": -1.0})

    def test_frozen_and_late(self):
        """Each counts its own steps, as torch has it."""
        a, b = model(), model()
        oa, ob = torch.optim.Adam(a.parameters(), lr=0.05), optc.torch.Adam(b.parameters(), lr=0.05)
        for m in (a, b):
            m[0].requires_grad_(False)
        self.close(train(a, oa, 3), train(b, ob, 3))
        self.assertEqual(len(ob.state), 2)
        for m in (a, b):
            m[0].requires_grad_(True)
            m[2].bias.requires_grad_(False)
        self.close(train(a, oa, 3), train(b, ob, 3))
        for m in (a, b):
            m[2].bias.requires_grad_(True)
        self.close(train(a, oa, 3), train(b, ob, 3))
        for p, q in zip(a.parameters(), b.parameters()):
            self.assertEqual(oa.state[p]["step"], ob.state[q]["step"])

    def test_no_gradients(self):
        p = lists()
        opt = optc.torch.AdamW(p)
        opt.step()
        self.assertEqual(len(opt.state), 0)
        p[1].grad = torch.ones(5)
        opt.step()
        self.assertEqual([q in opt.state for q in p], [False, True])
        before = p[0].detach().clone()
        grads(p), opt.step()
        self.assertEqual([opt.state[q]["step"].item() for q in p], [1, 2])
        self.assertFalse(torch.equal(before, p[0]))

    def test_moved(self):
        """Parameters and gradients that lie elsewhere than a step before."""
        a, b = model(), model()
        oa, ob = torch.optim.AdamW(a.parameters(), lr=0.02), optc.torch.AdamW(b.parameters(), lr=0.02)
        for _ in range(3):
            self.close(train(a, oa, 2, zero=False), train(b, ob, 2, zero=False))
            for m in (a, b):
                for p in m.parameters():
                    p.data = p.data.clone()
                    p.grad.data = p.grad.data.clone()
        bound, p = ob._bounds[0], b[0].weight
        p.data, p.grad = p.grad.clone().copy_(p.data), torch.zeros_like(p)      # each where nothing was, and a swap
        q, r = (torch.zeros(8) for _ in range(2))
        swapped = optc.torch.SGD([torch.nn.Parameter(q), torch.nn.Parameter(r)], lr=1.0)
        pair = swapped.param_groups[0]["params"]
        grads(pair), swapped.step()
        pair[0].data, pair[1].data, pair[0].grad.data = pair[1].data, pair[0].data, pair[1].grad.data
        swapped.step()
        self.assertTrue(all(x.data_ptr() in (q.data_ptr(), r.data_ptr()) for x in pair))
        ob.step()
        self.assertIs(ob._bounds[0], bound)            # the same binding all along
        before = ob.state[b[0].weight]["exp_avg"].clone()
        b.double()                                     # torch's own then fails
        grads(b.parameters())
        ob.param_groups[0]["betas"] = (1 - 1e-9, 0.999)
        ob.step()
        torch.testing.assert_close(ob.state[b[0].weight]["exp_avg"], before.double(), rtol=1e-5, atol=1e-6)

    def test_exchanged(self):
        p = lists()
        opt = optc.torch.SGD(p, lr=1.0)
        grads(p), opt.step()
        new = torch.zeros(4, 3, requires_grad=True)
        new.grad = torch.ones(4, 3)
        opt.param_groups[0]["params"][0] = new
        opt.step()
        self.assertEqual(new.sum().item(), -12)

    def test_dlpack(self):
        class Array:
            def __init__(self, x):
                self.x = x

            def __dlpack__(self):
                return self.x.__dlpack__()
        p, g = torch.ones(5), torch.ones(5)
        b = optc.Engine().compile("sgd").bind([([{"param": Array(p[1:]), "grad": Array(g[1:]), "shape": (4,)}],
                                                {"lr": 0.5})])
        b.step()
        self.assertEqual(p.tolist(), [1, 0.5, 0.5, 0.5, 0.5])

    def test_many(self):
        """Of more tensors than are looked at one by one."""
        shapes = [(3,)] * 1200
        a, b = lists(shapes=shapes), lists(shapes=shapes)
        oa, ob = torch.optim.SGD(a, lr=0.1, foreach=True), optc.torch.SGD(b, lr=0.1)
        grads(a), grads(b)
        for t in range(5):
            if t == 3:
                a[700].grad, b[700].grad = torch.ones(3), torch.ones(3)
                a[7].grad = b[7].grad = None
            oa.step(), ob.step()
        self.assertTrue(ob._bounds[0].held)
        for p, q in zip(a, b):
            torch.testing.assert_close(p, q)
        ob.zero_grad()
        self.assertIsNone(ob._bounds[0].held)

    def test_closure_and_hooks(self):
        b, seen = model(), []
        opt = optc.torch.AdamW(b.parameters())
        opt.register_step_pre_hook(lambda o, a, k: seen.append("before"))
        opt.register_step_post_hook(lambda o, a, k: seen.append("after"))

        def closure():
            opt.zero_grad()
            loss = ((b(X) - Y) ** 2).mean()
            loss.backward()
            seen.append("closure")
            return loss
        with torch.no_grad():
            loss = opt.step(closure)
        self.assertEqual(seen, ["before", "closure", "after"])
        self.assertGreater(opt.step(closure=closure).item(), 0)
        self.assertGreater(loss.item(), 0)

    def test_strides(self):
        torch.manual_seed(0)
        make = [torch.randn(4, 3, 5, 5).contiguous(memory_format=torch.channels_last).requires_grad_(),
                torch.randn(6, 4).t().detach().requires_grad_()]
        a, b = [p.detach().clone(memory_format=torch.preserve_format).requires_grad_() for p in make], make
        oa, ob = torch.optim.AdamW(a, lr=0.1), optc.torch.AdamW(b, lr=0.1)
        for t in range(4):
            for p, q in zip(a, b):
                torch.manual_seed(t)
                g = torch.randn(p.shape)
                p.grad = g
                q.grad = g if t % 2 else torch.empty_like(q).copy_(g)
            oa.step(), ob.step()
        self.assertEqual(ob.copies, 4)
        for p, q in zip(a, b):
            torch.testing.assert_close(p, q)
            self.assertEqual(ob.state[q]["exp_avg"].stride(), q.stride())
            torch.testing.assert_close(oa.state[p]["exp_avg"], ob.state[q]["exp_avg"])
        # rows and columns: by a copy of the parameter
        w = torch.randn(6, 4)
        c, d = w.clone().requires_grad_(), w.t().contiguous().t().detach().requires_grad_()
        oc, od = optc.torch.Adafactor([c]), optc.torch.Adafactor([d])
        for _ in range(3):
            c.grad, d.grad = torch.ones(6, 4), torch.ones(6, 4)
            oc.step(), od.step()
        torch.testing.assert_close(c, d)
        self.assertEqual((oc.copies, od.copies), (0, 6))
        e = torch.zeros(8, requires_grad=True)
        f = e.detach()[::2].requires_grad_()           # with gaps
        f.grad = torch.ones(4)
        optc.torch.SGD([f], lr=1.0).step()
        self.assertEqual(e.tolist(), [-1, 0] * 4)

    def test_types(self):
        for dtype, bound in ((torch.float64, 1e-12), (torch.bfloat16, 0.02)):
            a, b = model(dtype=dtype), model(dtype=dtype)
            oa, ob = torch.optim.AdamW(a.parameters(), lr=0.01), optc.torch.AdamW(b.parameters(), lr=0.01)
            for t in range(3):
                grads(a.parameters(), t), grads(b.parameters(), t)
                oa.step(), ob.step()
            for p, q in zip(a.parameters(), b.parameters()):
                torch.testing.assert_close(p, q, rtol=bound, atol=bound)
        mixed = [torch.ones(3, requires_grad=True), torch.ones(3, dtype=torch.bfloat16, requires_grad=True)]
        grads(mixed)
        opt = optc.torch.AdamW(mixed, types={"state": "bf16"})
        opt.step()
        self.assertEqual({s["exp_avg"].dtype for s in opt.state.values()}, {torch.bfloat16})

    def test_refused(self):
        with self.assertRaisesRegex(ValueError, "complex"):
            optc.torch.AdamW([torch.ones(2, dtype=torch.complex64, requires_grad=True)])
        with self.assertRaisesRegex(ValueError, "sparse"):
            optc.torch.AdamW([torch.eye(2).to_sparse().requires_grad_()])
        e = torch.nn.Embedding(5, 2, sparse=True)
        e(torch.tensor([1])).sum().backward()
        with self.assertRaisesRegex(RuntimeError, "sparse gradients.*weight"):
            optc.torch.AdamW(list(e.named_parameters())).step()

        with self.assertRaisesRegex(optc.RangeError, "lion: lr is -1, and must be at least 0"):
            optc.torch.Lion(lists(), lr=-1)
        with self.assertRaisesRegex(optc.RangeError, "clip.max_norm"):
            optc.torch.Optimizer(lists(), "adamw+clip(1)", clip_max_norm=-1)
        with self.assertRaisesRegex(ValueError, "perturb"):
            optc.torch.Optimizer(lists(), "adamw+sam", maximize=True)
        with self.assertRaisesRegex(ValueError, "types of their own"):
            optc.torch.AdamW(lists(), types={"param": "bf16"})
        opt = optc.torch.Lion(lists())
        for wrong in ({"params": lists(), "lr": -1.0}, {"params": [torch.ones(2, dtype=torch.complex64)]}):
            with self.assertRaises(ValueError):
                opt.add_param_group(wrong)
        self.assertEqual(len(opt.param_groups), 1)

        class Odd(torch.Tensor):
            pass
        with self.assertRaisesRegex(TypeError, "Odd"):
            optc.torch.AdamW([torch.ones(2).as_subclass(Odd).requires_grad_()])

    def test_spec(self):
        text = """return optimizer {
  name = "mine", hyper = { lr = { 0.1, min = 0 } }, options = { twice = false },
  step = function()
    local k = 1
    if twice then k = 2 end
    p = p - k * lr * g
  end }"""
        p = torch.zeros(3, requires_grad=True)
        p.grad = torch.ones(3)
        opt = optc.torch.Optimizer([p], "mine", spec=text, twice=True)
        opt.step()
        torch.testing.assert_close(p.detach(), torch.full((3,), -0.2))
        with self.assertRaisesRegex(optc.SpecError, "(?s)mine:6: 'lrr' is not declared.*did you mean 'lr'"):
            optc.torch.Optimizer([p], "mine", spec=text.replace("lr * g", "lrr * g"))
        with self.assertRaisesRegex(optc.SpecError, "there is no optimizer 'nope'"):
            optc.torch.Optimizer([p], "nope")
        up = torch.zeros(3, requires_grad=True)
        up.grad = torch.ones(3)
        optc.torch.Optimizer([up], "mine", spec=text, maximize=True).step()
        torch.testing.assert_close(up.detach(), torch.full((3,), 0.1))

    def test_wrappers(self):
        a, b = model(), model()
        oa = torch.optim.AdamW(a.parameters(), lr=0.02)
        ob = optc.torch.Optimizer(b.parameters(), "adamw", lr=0.02, with_=["clip(0.1)", "ema(0.9)"])
        for _ in range(4):
            for m, o in ((a, oa), (b, ob)):
                o.zero_grad()
                ((m(X) - Y) ** 2).mean().backward()
            norm = torch.nn.utils.clip_grad_norm_(a.parameters(), 0.1)
            oa.step(), ob.step()
            self.assertAlmostEqual(ob.value("clip.grad_norm"), norm.item(), places=5)
        for p, q in zip(a.parameters(), b.parameters()):
            torch.testing.assert_close(p, q, rtol=1e-5, atol=1e-6)
        self.assertEqual(ob.param_groups[0]["clip.max_norm"], 0.1)
        self.assertEqual(ob.state[q]["ema.avg"].shape, q.shape)

    def test_one_clip(self):
        """Tensors of several types, and groups of several options, share one norm; also where some have no gradient."""
        def make():
            torch.manual_seed(3)
            return [torch.randn(n, dtype=t, requires_grad=True)
                    for n, t in ((5, torch.float32), (700, torch.float64), (3, torch.bfloat16), (4, torch.float32))]
        a, b = make(), make()
        oa = [torch.optim.AdamW(a[:3], lr=0.02), torch.optim.AdamW(a[3:], lr=0.02, amsgrad=True)]
        ob = optc.torch.AdamW([{"params": b[:3]}, {"params": b[3:], "amsgrad": True}], lr=0.02,
                              with_=["clip(0.5)", "ema(0.9)"])
        for t in range(4):
            for params in (a, b):
                grads(params, t)
                params[t].grad = None
            norm = sum(p.grad.double().square().sum() for p in a if p.grad is not None).sqrt()
            for p in a:
                if p.grad is not None:
                    p.grad.mul_(min(1.0, 0.5 / (norm.item() + 1e-6)))
            for o in oa:
                o.step()
            ob.step()
            self.assertAlmostEqual(ob.value("clip.grad_norm"), norm.item(), places=4)
        for p, q in zip(a, b):
            torch.testing.assert_close(p.float(), q.float(), rtol=1e-2 if p.dtype == torch.bfloat16 else 1e-5, atol=1e-6)
        self.assertEqual(len(ob._bounds), 4)
        self.assertNotIn("clip.of_these", ob.state[b[0]])
        c, oc = pickle.loads(pickle.dumps((b, ob)))
        for params, o in ((b, ob), (c, oc)):
            grads(params, 9), o.step()
        for p, q in zip(b, c):
            self.assertTrue(torch.equal(p, q))
        for rule in ("adamw+skip", "adamw+clip(1)+clip_value(1)"):      # what clip sees there is no gradient that came
            params = make()
            grads(params)
            with self.assertRaisesRegex(ValueError, "several devices, types or options"):
                optc.torch.Optimizer(params, rule).step()

    def test_sam(self):
        calls, b = [], model()
        opt = optc.torch.Optimizer(b.parameters(), "sgd+sam(0.05)", lr=0.05)

        def closure():
            calls.append([p.detach().clone() for p in b.parameters()])
            opt.zero_grad()
            loss = ((b(X) - Y) ** 2).mean()
            loss.backward()
            return loss
        first = opt.step(closure).item()
        self.assertEqual(len(calls), 2)
        away = sum(((p - q) ** 2).sum() for p, q in zip(*calls)).sqrt().item()
        self.assertAlmostEqual(away, 0.05, places=5)
        for _ in range(20):
            last = opt.step(closure).item()
        self.assertLess(last, first)
        closure(), opt.perturb()                       # an entry is a method
        self.assertEqual(sorted(opt.entries()), ["perturb", "step"])
        with self.assertRaises(AttributeError):
            opt.to_eval

    def test_static_grads(self):
        a, b = lists(), lists()
        oa, ob = torch.optim.AdamW(a), optc.torch.AdamW(b, static_grads=True)
        grads(a), grads(b)
        for t in range(3):
            for p, q in zip(a, b):
                p.grad.fill_(t), q.grad.fill_(t)
            oa.step(), ob.step()
        for p, q in zip(a, b):
            torch.testing.assert_close(p, q)

    def test_release_grads(self):
        a, b = model(), model()
        oa = torch.optim.AdamW(a.parameters(), lr=0.02)
        ob = optc.torch.AdamW(b.parameters(), lr=0.02, release_grads=True)
        s = lrs.StepLR(ob, 2, 0.5), lrs.StepLR(oa, 2, 0.5)
        self.close(train(a, oa, 6, s[1]), train(b, ob, 6, s[0]))
        self.assertTrue(all(p.grad is None for p in b.parameters()))
        c, oc = pickle.loads(pickle.dumps((b, ob)))
        self.close(train(b, ob, 3), train(c, oc, 3), 0)
        with self.assertRaisesRegex(ValueError, "all tensors together"):
            optc.torch.Optimizer(model().parameters(), "adamw+clip(1)", release_grads=True)

    def test_memory(self):
        """Nothing is left of an optimizer that nobody holds."""
        from optc.torch._memory import device_of
        buffers = device_of(torch.device("cpu")).buffers
        gc.collect()
        before, p = len(buffers), lists()
        opt = optc.torch.AdamW(p)
        grads(p), opt.step()
        self.assertGreater(len(buffers), before)
        del opt
        self.assertEqual(len(buffers), before)

    def test_version(self):
        p = torch.ones(2, requires_grad=True)
        opt = optc.torch.SGD([p], lr=0.1)
        loss = (p * p).sum()
        loss.backward(retain_graph=True)
        opt.step()
        with self.assertRaisesRegex(RuntimeError, "inplace"):
            loss.backward()

    def test_odd_shapes(self):
        a = lists(shapes=((0,), (), (1, 1), (3, 0), (2, 2)))
        opt = optc.torch.AdamW(a)
        grads(a), opt.step(), grads(a), opt.step()
        self.assertEqual(len(opt.state), 5)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            optc.torch.Muon(a).step()
        with self.assertRaisesRegex(ValueError, "empty parameter list"):
            optc.torch.AdamW([])

    def test_scaler(self):
        """torch's own scaler, by its own passes."""
        p = lists()
        opt = optc.torch.AdamW(p, lr=0.1)
        scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
        before = p[0].detach().clone()
        scaler.scale(sum((q * float("inf")).sum() for q in p)).backward()
        scaler.step(opt), scaler.update()
        self.assertTrue(torch.equal(before, p[0]))
        opt.zero_grad()
        scaler.scale(sum((q * q).sum() for q in p)).backward()
        scaler.step(opt), scaler.update()
        self.assertFalse(torch.equal(before, p[0]))

    def test_scaler_protocol(self):
        """found_inf and grad_scale are the step's to look at: as on a GPU."""
        from optc.torch import _scaling
        a, b = model(), model()
        oa = torch.optim.AdamW(a.parameters(), lr=0.02)
        ob = optc.torch.Optimizer(b.parameters(), "adamw+clip(0.5)", lr=0.02)
        self.assertFalse(ob._step_supports_amp_scaling)
        with mock.patch.object(_scaling, "DEVICES", ("cpu",)):
            self.assertTrue(ob._step_supports_amp_scaling)
            scaler = torch.amp.GradScaler("cpu", init_scale=256.0)
            for t in range(8):
                oa.zero_grad(), ob.zero_grad()
                ((a(X) - Y) ** 2).mean().backward()
                torch.nn.utils.clip_grad_norm_(a.parameters(), 0.5)
                bad = float("inf") if t in (2, 5) else 1.0
                scaler.scale(((b(X) - Y) ** 2).mean() * bad).backward()
                if t == 4:
                    scaler.unscale_(ob)
                scaler.step(ob), scaler.update()
                if t not in (2, 5):
                    oa.step()
        self.assertEqual(scaler.get_scale(), 64.0)
        for p, q in zip(a.parameters(), b.parameters()):
            torch.testing.assert_close(p, q, rtol=1e-4, atol=1e-5)
            self.assertEqual(ob.state[q]["step"].item(), 6)
        self.close(train(a, oa, 0), train(b, ob, 0))
        grads(b.parameters()), ob.step()               # by itself again
        self.assertEqual(ob.state[q]["step"].item(), 7)

    def test_own_scaler(self):
        """Check and unscaling in the step."""
        for spec in ("adamw+clip(0.5)", "nadam"):
            a, b = model(), model()
            oa, ob = (optc.torch.Optimizer(m.parameters(), spec, lr=0.02) for m in (a, b))
            scaler = optc.torch.GradScaler("cpu", init_scale=256.0, growth_interval=3)
            for t in range(9):
                oa.zero_grad(), ob.zero_grad()
                ((a(X) - Y) ** 2).mean().backward()
                bad = float("nan") if t in (0, 5) else 1.0
                scaler.scale(((b(X) - Y) ** 2).mean() * bad).backward()
                scaler.step(ob)
                with self.assertRaisesRegex(RuntimeError, "step.*already been called"):
                    scaler.step(ob)
                scaler.update()
                if t not in (0, 5):
                    oa.step()
            self.assertEqual(scaler.get_scale(), 256.0 / 4 * 2 * 2)
            for p, q in zip(a.parameters(), b.parameters()):
                torch.testing.assert_close(p, q, rtol=1e-5, atol=1e-6)
                self.assertEqual(ob.state[q]["step"].item(), 7)
                self.assertEqual(set(ob.state[q]), set(oa.state[p]))
            c, oc = copy.deepcopy((b, ob))
            grads(b.parameters()), grads(c.parameters())
            ob.step(), oc.step()
            for p, q in zip(b.parameters(), c.parameters()):
                torch.testing.assert_close(p, q, rtol=1e-5, atol=1e-6)

    def test_tensor_hypers(self):
        """Read where they lie, at every step."""
        a, b = lists(), lists()
        lr, beta = torch.tensor(0.1), torch.tensor(0.5, dtype=torch.float64)
        oa = torch.optim.AdamW(a)
        ob = optc.torch.AdamW(b, lr=lr, betas=(beta, torch.tensor(0.9, dtype=torch.float64)))
        for t in range(4):
            lr.fill_(0.1 / (t + 1)), beta.fill_(0.5 + t / 10)
            oa.param_groups[0].update(lr=0.1 / (t + 1), betas=(0.5 + t / 10, 0.9))
            grads(a, t), grads(b, t)
            oa.step(), ob.step()
        ob.param_groups[0].update(lr=0.3), oa.param_groups[0].update(lr=0.3)
        lr.fill_(9.0)
        oa.step(), ob.step()
        for p, q in zip(a, b):
            torch.testing.assert_close(p, q, rtol=1e-5, atol=1e-6)


class Kept(Case):
    def test_both_ways(self):
        """Begun with torch's and gone on with ours, and back: every rule that both have."""
        from optc.torch import _rules
        for spec in _rules.TORCH:
            kwargs = {"momentum": 0.9} if spec in ("sgd", "rmsprop") else {}
            kwargs["lr"] = 0.01
            theirs, ours = _rules.torch_class(spec), getattr(optc.torch, _rules.CLASSES[spec])
            for first, second in ((theirs, ours), (ours, theirs)):
                a = model()
                oa = first(a.parameters(), **kwargs)
                train(a, oa, 5)
                b = copy.deepcopy(a)
                ob = second(b.parameters(), lr=0.5)
                file = io.BytesIO()
                torch.save(oa.state_dict(), file)
                file.seek(0)
                ob.load_state_dict(state_dict=torch.load(file))
                self.close(train(a, oa, 5), train(b, ob, 5))

    def test_types_stay(self):
        a = model(dtype=torch.bfloat16)
        opt = optc.torch.AdamW(a.parameters())
        grads(a.parameters()), opt.step()
        saved = copy.deepcopy(opt.state_dict())
        other = optc.torch.AdamW(a.parameters())
        other.load_state_dict(saved)
        grads(a.parameters()), other.step()
        for s in other.state.values():
            self.assertEqual(s["exp_avg"].dtype, torch.float32)
        self.assertEqual(saved["state"][0]["step"].item(), 1)

    def test_copies(self):
        b = model()
        opt = optc.torch.Optimizer(list(b.named_parameters()), "adamw+ema(0.5)", lr=0.02)
        s = lrs.StepLR(opt, 2, 0.5)
        train(b, opt, 3, s)
        for make in (copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))):
            c, other = make((b, opt))
            e, third = copy.deepcopy((b, opt))
            self.assertEqual(train(c, other, 3), train(e, third, 3))
            self.assertEqual(other.param_groups[0]["param_names"][0], "0.weight")
        train(b, opt, 3)
        self.assertEqual([p.tolist() for p in b.parameters()], [p.tolist() for p in c.parameters()])

    def test_live(self):
        p = lists()
        opt = optc.torch.AdamW(p)
        grads(p), opt.step()
        m = opt.state[p[0]]["exp_avg"]
        grads(p, 1), opt.step()
        self.assertIs(opt.state[p[0]]["exp_avg"], m)
        m.zero_()
        opt.state[p[0]]["exp_avg_sq"].fill_(1.0)
        p[0].grad = torch.zeros(4, 3)
        before = p[0].detach().clone()
        opt.param_groups[0]["weight_decay"] = 0.0
        opt.step()
        self.assertTrue(torch.equal(before, p[0]))
        del opt
        self.assertEqual(m.abs().sum().item(), 0)      # what is held outlives the optimizer

    def test_empty_first_step(self):
        """As a distributed checkpoint does it to make states."""
        for spec in ("adamw", "soap", "adafactor", "sgd"):
            torch.manual_seed(0)
            p = [torch.randn(4, 3).requires_grad_()]
            q = [p[0].detach().clone().requires_grad_()]
            opt, other = optc.torch.Optimizer(list(zip("w", p)), spec), optc.torch.Optimizer(list(zip("w", q)), spec)
            lr = opt.param_groups[0]["lr"]
            opt.param_groups[0]["lr"] = 0.0
            p[0].grad = torch.zeros(4, 3)
            opt.step(closure=None)
            opt.param_groups[0]["lr"] = lr
            self.assertIn("step", opt.state[p[0]])
            for t in range(3):
                grads(p, t), grads(q, t)
                opt.step(), other.step()
            torch.testing.assert_close(p[0], q[0], rtol=1e-4, atol=1e-5)

    def test_wrong_file(self):
        p = lists()
        opt = optc.torch.AdamW(p)
        grads(p), opt.step()
        other = optc.torch.AdamW(lists(shapes=((4, 4), (5,))))
        other.load_state_dict(opt.state_dict())
        grads(other.param_groups[0]["params"])
        with self.assertRaisesRegex(ValueError, "exp_avg.*16 values, and 12"):
            other.step()
        with self.assertRaisesRegex(ValueError, "parameter groups"):
            optc.torch.AdamW([{"params": x} for x in lists()]).load_state_dict(opt.state_dict())


class Named(Case):
    def test_stubs(self):
        from optc.torch import _named
        path = os.path.join(os.path.dirname(optc.torch.__file__), "__init__.pyi")
        with open(path) as f:
            text = f.read()
            ast.parse(text)
            self.assertEqual(text, _named.stubs(), "python -m optc.torch._named > …/optc/torch/__init__.pyi")

    def test_all(self):
        """Every rule of the library steps, by its class."""
        from optc.torch import _named
        self.assertLess(30, len(_named.names()))
        for name, spec in _named.names().items():
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                p = lists(shapes=((4, 3), (5,)))
                opt = getattr(optc.torch, name)(p)
                grads(p), opt.step()
            self.assertIn("arXiv" if "arXiv" in optc.library_text(spec) else "", type(opt).__doc__)
            self.assertTrue(all(q.isfinite().all() for q in p), name)
        self.assertIs(pickle.loads(pickle.dumps(optc.torch.Lion)), optc.torch.Lion)
        self.assertEqual(optc.torch.Lion([torch.ones(1, requires_grad=True)], 0.5).param_groups[0]["lr"], 0.5)


class Written(Case):
    def test_readme(self):
        """The README's loop, with a model in it."""
        with open(os.path.join(TREE, "README.md")) as f:
            text = f.read()
        loop, mine = text.split("```python\n")[1].split("```")[0], text.split("```lua mine.lua\n")[1].split("```")[0]
        with tempfile.TemporaryDirectory() as folder:
            names = {"torch": torch, "model": model(), "data": [(X, Y)] * 3, "loss": torch.nn.functional.mse_loss}
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

    def test_inputs(self):
        """Tensors and numbers that a rule wants beside gradients."""
        text = """return optimizer { name = "asks", hyper = { lr = 1 }, inputs = { hess = "elem", loss = "group" },
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
        want = {"wte.weight": "rest", "body.weight": "matrix", "body.bias": "rest", "lm_head.weight": "rest",
                "lm_head.bias": "rest"}
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
        with self.assertWarnsRegex(UserWarning, "as it has no names"):
            opt = optc.torch.Muon(net.parameters())
        opt = optc.torch.Muon(net, sort=lambda name, p: name == "wte.weight")
        self.assertEqual([k for k, v in optc.torch.sorted_by(opt).items() if v == "matrix"], ["wte.weight"])


if __name__ == "__main__":
    unittest.main()
