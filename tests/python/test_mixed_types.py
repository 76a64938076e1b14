"""Parameters of several types in one optimizer: values of all tensors (clip's norm) are over all of
them."""
import pickle

import torch

import optc.torch
from case import Case

TYPES = (torch.float32, torch.bfloat16, torch.float32, torch.bfloat16, torch.float16)
# A largest value that a sum needs, means over tensors and elements, a state of the group, and t.
LEVELS = """return optimizer {
  name = "levels", hyper = { lr = 0.1 }, state = { m = zeros, drift = zeros "group" },
  values = { least = "group", most = "group", total = "group", average = "group" },
  step = function()
    most = global.max(abs(g))
    least = global.min(g)
    total = global.sum(m + (g - least) / most)
    average = global.mean(g / (1 + abs(total)))
    drift = 0.5 * drift + average + global.mean(rms(g))
    m = 0.9 * m + g
    p = p - lr * (m / most + drift) / t
  end }"""
WRAPPED = ("clip(1),skip", "clip(1),clip_value(0.01)", "centralize,clip(1),ema(0.9)")


def parameters(types=TYPES, seed=0):
    gen = torch.Generator().manual_seed(seed)
    return [
        torch.randn(7 + 5 * i, 3, generator=gen).to(t).requires_grad_() for i, t in enumerate(types)
    ]


def gradients(params, t, dtypes, missing=()):
    gen = torch.Generator().manual_seed(t + 50)
    for i, (p, d) in enumerate(zip(params, dtypes)):
        g = torch.randn(p.shape, generator=gen).to(d).to(p.dtype)
        p.grad = None if i in missing else g


class MixedTypes(Case):
    def test_clip(self):
        """As torch.nn.utils.clip_grad_norm_ on the same numbers in f32."""
        a = parameters()
        opt = optc.torch.SGD(a, lr=0.25, with_="clip(1)")
        for t in range(4):
            # t 1: no bf16 gradient, t 2: no f32 one
            missing = (1, 3) if t == 1 else (0, 2) if t == 2 else ()
            gradients(a, t, TYPES, missing)
            wide = [p.detach().float().requires_grad_() for p in a]
            for p, q in zip(a, wide):
                q.grad = None if p.grad is None else p.grad.float().clone()
            norm = torch.nn.utils.clip_grad_norm_(wide, 1.0).item()
            self.assertGreater(norm, 2)
            torch.optim.SGD(wide, lr=0.25).step()
            opt.step()
            self.assertEqual(len(opt._bounds), 3)
            self.assertAlmostEqual(opt.value("clip.grad_norm"), norm, delta=1e-5 * norm)
            for p, q in zip(a, wide):
                torch.testing.assert_close(p.float(),
                                           q.to(p.dtype).float(),
                                           rtol=1e-6 if p.dtype is torch.float32 else 2 ** -7,
                                           atol=1e-6)

    def compare(self, steps=4, bound=2e-5, missing=lambda t: (), **given):
        """f32 beside f64 against all of them in f64, in one binding."""
        types = (torch.float32, torch.float64, torch.float32, torch.float64)
        a, b = parameters(types), [p.detach().double().requires_grad_() for p in parameters(types)]
        oa, ob = (optc.torch.Optimizer(x, lr=0.01, **given) for x in (a, b))
        for t in range(steps):
            gradients(a, t, (torch.float32,) * 4,
                      missing(t)), gradients(b, t, (torch.float32,) * 4, missing(t))
            oa.step(), ob.step()
        self.assertEqual((len(oa._bounds), len(ob._bounds)), (2, 1))
        for p, q in zip(a, b):
            torch.testing.assert_close(p.double(), q, rtol=bound, atol=bound)
        return oa, ob

    def test_wrappers(self):
        for with_ in WRAPPED:
            with self.subTest(with_):
                self.compare(rule="adamw", with_=with_)

    def test_levels(self):
        """A value of all tensors that another one needs; some steps without gradients of one type,
        or without any."""
        gone = {1: (1, 3), 2: (0, 2), 3: (0, 1, 2, 3), 4: (0,)}
        oa, ob = self.compare(6, missing=lambda t: gone.get(t, ()), spec=LEVELS)
        for name in ("least", "most", "total", "average"):
            self.assertAlmostEqual(oa.value(name), ob.value(name), delta=1e-5 * abs(ob.value(name)))
        self.assertEqual(len(oa._shared.entries["step"]), 3)
        hidden = [k for p in oa.param_groups[0]["params"] for k in oa.state[p] if "shared" in k]
        self.assertEqual(hidden, [])

    def test_matrices(self):
        """Two variants in each binding."""
        self.compare(rule="muon", with_="clip(1)", adamw_lr=0.01, bound=2e-3)

    def test_sam(self):
        def run(types):
            ps = [p.detach().double().requires_grad_() if types is None else p
                  for p in parameters(types or (torch.float32, torch.float64))]
            opt = optc.torch.Optimizer(ps, "adamw", with_="clip(1),sam(0.5)", lr=0.01)

            def closure():
                opt.zero_grad()
                loss = sum((p.double() ** 2 * torch.arange(3)).sum() for p in ps)
                loss.backward()
                return loss
            for _ in range(3):
                opt.step(closure)
            return ps, opt
        (a, oa), (b, ob) = run((torch.float32, torch.float64)), run(None)
        self.assertEqual((len(oa._bounds), len(ob._bounds)), (2, 1))
        for p, q in zip(a, b):
            torch.testing.assert_close(p.double(), q, rtol=1e-5, atol=1e-5)

    def test_skip(self):
        """An infinity among bf16 gradients stops f32 parameters too."""
        ps = parameters()
        opt = optc.torch.AdamW(ps, lr=0.1, with_="clip(1),skip")
        gradients(ps, 0, TYPES), opt.step()
        before = [p.detach().clone() for p in ps]
        gradients(ps, 1, TYPES)
        ps[1].grad[0, 0] = float("inf")
        opt.step()
        self.assertEqual(opt.value("skip.nonfinite"), 1)
        for p, q in zip(ps, before):
            self.assertTrue(torch.equal(p, q))
        gradients(ps, 1, TYPES), opt.step()
        self.assertFalse(any(torch.equal(p, q) for p, q in zip(ps, before)))

    def test_scaler(self):
        """optc.torch.GradScaler: one check over all of them, in the pass that clip needs."""
        types = (torch.float32, torch.bfloat16)
        a, b = parameters(types), parameters(types)
        other, opt = (optc.torch.Optimizer(x, "adamw+clip(1)", lr=0.1) for x in (a, b))
        scaler = optc.torch.GradScaler("cpu", init_scale=4.0)
        for t in range(5):
            other.zero_grad(), opt.zero_grad()
            sum((q * q).sum() for q in a).backward()
            scaler.scale(sum(
                (q * q).sum() * (float("nan") if t == 2 else 1.0) for q in b)).backward()
            scaler.step(opt), scaler.update()
            if t != 2:
                other.step()
        self.assertEqual(scaler.get_scale(), 2.0)
        for p, q in zip(a, b):
            torch.testing.assert_close(p, q, rtol=1e-5 if p.dtype is torch.float32 else 2 ** -7,
                                       atol=1e-6)
        self.assertEqual(opt.state_dict()["state"][1]["step"].item(), 4)

    def test_continues(self):
        """Copies, files and new parameters connect their bindings again."""
        ps = parameters()
        opt = optc.torch.AdamW(ps[:3], lr=0.1, with_="clip(1)", types={"state": "bf16"})
        gradients(ps, 0, TYPES), opt.step()
        opt.add_param_group({"params": ps[3:]})
        gradients(ps, 1, TYPES), opt.step()
        qs, again = pickle.loads(pickle.dumps((ps, opt)))
        for params, o in ((ps, opt), (qs, again)):
            gradients(params, 2, TYPES), o.step()
        self.assertEqual(again.value("clip.grad_norm"), opt.value("clip.grad_norm"))
        norm = sum(p.grad.double().square().sum() for p in ps).sqrt().item()
        self.assertAlmostEqual(opt.value("clip.grad_norm"), norm, delta=1e-6 * norm)
        for p, q in zip(ps, qs):
            self.assertTrue(torch.equal(p, q))

    def test_a_later_binding_fails(self):
        """The library keeps the steps of the bindings before the one that failed, and so does the
        optimizer: as with an optimizer for each type. The first parameter has gaps, so a copy of it
        is stepped."""
        spec = """return optimizer { name = "fed", hyper = { lr = 0.1 }, inputs = { h = "elem" },
                  state = { m = zeros, k = zeros }, step = function()
                  m = m + g  every(2, function() k = k + m end)
                  p = p - lr * (m + k) * h / t end }"""
        types = (torch.float32, torch.bfloat16)
        flat = [torch.ones(3, 4), torch.ones(3, 2, dtype=torch.bfloat16)]
        sets = [[flat[0].clone()[:, ::2].requires_grad_(), flat[1].clone().requires_grad_()]
                for _ in range(2)]
        ps, qs = sets
        opt, alone = optc.torch.Optimizer(
            ps, spec=spec), [optc.torch.Optimizer([q], spec=spec) for q in qs]

        def feed(o, p):
            o.set_input(p, "h", torch.full(p.shape, 0.5, dtype=p.dtype))
        gradients(ps, 0, types)
        versions = [p._version for p in ps]
        with self.assertRaisesRegex(optc.Error, "reads input 'h' of tensor"):
            opt.step()                                 # the first one fails: nothing ran
        self.assertEqual([p._version for p in ps], versions)
        feed(opt, ps[0]), [feed(o, q) for o, q in zip(alone, qs)]
        for t in range(2):
            gradients(ps, t, types), gradients(qs, t, types)
            version = ps[0]._version
            with self.assertRaisesRegex(optc.Error, "reads input 'h' of tensor"):
                opt.step()
            alone[0].step()
            self.assertTrue(torch.equal(ps[0], qs[0]))
            self.assertGreater(ps[0]._version, version)
            self.assertEqual(ps[1]._version, versions[1])
        self.assertNotIn(ps[1], opt.state)
        feed(opt, ps[1])
        for t in range(2, 5):
            if t == 4:
                ps, opt = pickle.loads(pickle.dumps((ps, opt)))
                [feed(opt, p) for p in ps]
            gradients(ps, t, types), gradients(qs, t, types)
            opt.step(), [o.step() for o in alone]
            for p, q, o in zip(ps, qs, alone):
                self.assertTrue(torch.equal(p, q))
                self.assertEqual({n: x.tolist() for n, x in opt.state[p].items() if n != "missed"},
                                 {n: x.tolist() for n, x in o.state[q].items() if n != "missed"})
        self.assertEqual([opt.state[p]["step"].item() for p in ps], [5, 3])
