"""Device scalars: one norm over several bindings, gradient scalers, tensors as hyperparameters."""
import copy
import pickle
from unittest import mock

import torch

import optc.torch
from case import X, Y, Case, grads, lists, model, train


class Scaling(Case):
    def test_one_clip(self):
        """Tensors of several types, and groups of several options, share one norm; also where some
        have no gradient."""
        def make():
            torch.default_generator.manual_seed(3)
            return [
                torch.randn(n, dtype=t, requires_grad=True)
                for n, t in ((5, torch.float32), (700, torch.float64), (3, torch.bfloat16),
                             (4, torch.float32))
            ]
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
            torch.testing.assert_close(p.float(), q.float(),
                                       rtol=1e-2 if p.dtype == torch.bfloat16 else 1e-5, atol=1e-6)
        self.assertEqual(len(ob._bounds), 4)
        self.assertNotIn("shared.0", ob.state[b[0]])
        c, oc = pickle.loads(pickle.dumps((b, ob)))
        for params, o in ((b, ob), (c, oc)):
            grads(params, 9), o.step()
        for p, q in zip(b, c):
            self.assertTrue(torch.equal(p, q))

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

    def test_modes_that_read_gradients(self):
        """torch unscales for rules whose other entries read gradients: they would read scaled
        ones."""
        text = ("return optimizer { name = 'reads', hyper = { lr = 0.1 }, step = function() p = p "
                "- lr * g end, to_eval = function() p = p - %s end, to_train = function() p = p + "
                "lr end }")
        from optc.torch import _scaling
        with mock.patch.object(_scaling, "DEVICES", ("cpu",)):
            for reads, leaves in (("lr * g", False), ("lr", True)):
                o = optc.torch.Optimizer(model().parameters(), spec=text % reads)
                self.assertEqual(o._step_supports_amp_scaling, leaves)

    def test_scaler_and_modes(self):
        """Entries that read no gradient do not make the scaler wait, and run although the last step
        was skipped."""
        from optc.torch import _scaling
        for spec, options in (("splus", {"interval": 3, "stagger": True}), ("adamw+ema(0.9)", {}),
                              ("schedulefree_adamw", {})):
            a, b = model(), model()
            oa, ob = (
                optc.torch.Optimizer(m.parameters(), spec, lr=0.02, **options) for m in (a, b))
            scaler = torch.amp.GradScaler("cpu", init_scale=256.0)
            with mock.patch.object(_scaling, "DEVICES", ("cpu",)):
                self.assertTrue(ob._step_supports_amp_scaling)
                for t in range(10):
                    oa.zero_grad(), ob.zero_grad()
                    bad = float("nan") if t in (2, 5, 6) else 1.0
                    ((a(X) - Y) ** 2).mean().backward()
                    scaler.scale(((b(X) - Y) ** 2).mean() * bad).backward()
                    with mock.patch.object(torch.Tensor, "item",
                                           side_effect=AssertionError("torch's own check")):
                        scaler.step(ob), scaler.update()
                    if bad == 1:
                        oa.step()
                    if t in (3, 6):
                        for o in (oa, ob):
                            o.eval()
                        for p, q in zip(a.parameters(), b.parameters()):
                            self.assertTrue(torch.equal(p, q), (spec, t))
                        for o in (oa, ob):
                            o.train()
            for p, q in zip(a.parameters(), b.parameters()):
                self.assertTrue(torch.equal(p, q), spec)
                self.assertEqual(ob.state[q]["step"].item(), 7)
        sam = optc.torch.Optimizer(lists(), "adamw+sam")
        with mock.patch.object(_scaling, "DEVICES", ("cpu",)):
            self.assertFalse(sam._step_supports_amp_scaling)           # perturb reads gradients

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

    def test_own_scaler_and_periods(self):
        """A skipped step does not count for `every`: the next one computes the roots that were
        due."""
        for spec, options in (("soap", {"interval": 3}), ("shampoo", {"interval": 2}),
                              ("sgd+lookahead(3)", {})):
            a, b = model(), model()
            oa, ob = (optc.torch.Optimizer(m.parameters(), spec, lr=0.02, sort=lambda n, p: True,
                                           **options) for m in (a, b))
            scaler = optc.torch.GradScaler("cpu", init_scale=256.0)
            for t in range(8):
                oa.zero_grad(), ob.zero_grad()
                ((a(X) - Y) ** 2).mean().backward()
                scaler.scale(
                    ((b(X) - Y) ** 2).mean() * (float("inf") if t in (0, 4) else 1.0)).backward()
                scaler.step(ob), scaler.update()
                if t not in (0, 4):
                    oa.step()
            for p, q in zip(a.parameters(), b.parameters()):
                self.assertTrue(torch.equal(p, q), spec)

    def test_own_scaler_and_f16(self):
        """torch unscales no f16: the step checks, also for rules with every."""
        for spec in ("adamw", "adamw+lookahead(3)"):
            p = torch.nn.Parameter(torch.ones(4, 4, dtype=torch.float16))
            opt = optc.torch.Optimizer([p], spec, lr=0.01, sort=lambda n, p: True)
            scaler = optc.torch.GradScaler("cpu", init_scale=8.0)
            for bad in (True, False):
                p.grad = torch.full_like(p, float("inf") if bad else 8.0)
                scaler.scale(torch.ones(()))
                scaler.step(opt), scaler.update()
                self.assertEqual(bool((p == 1).all()), bad, spec)

    def test_own_scaler_resumes(self):
        """After skipped steps a resumed run, a copy, and a run whose tensors are bound again have
        the bits of the run that goes on, also where rules and stores draw random numbers."""
        noisy = "return optimizer { name = 'noisy', hyper = { lr = 0.1 }, " \
                "step = function() p = p - lr * (g + normal()) end }"

        def make(ps, given):
            return optc.torch.Optimizer(ps, **given), optc.torch.GradScaler("cpu", init_scale=16.0)

        def loaded(ps, opt, scaler, given):
            ps = [p.detach().clone().requires_grad_() for p in ps]
            new, s = make(ps, given)
            new.load_state_dict(pickle.loads(pickle.dumps(opt.state_dict())))
            s.load_state_dict(scaler.state_dict())
            return ps, new, s

        def bound_again(ps, opt, scaler, _):
            opt.add_param_group({"params": [torch.zeros(2, dtype=ps[0].dtype, requires_grad=True)]})
            return ps, opt, scaler

        ways = (None, loaded, bound_again, lambda ps, opt, scaler, _: (*copy.deepcopy(
            (ps, opt)), scaler))
        for dtype, given in ((torch.float32, {"spec": noisy}), (torch.float16, {
                "rule": "psgd_kron"
        }), (torch.bfloat16, {"rule": "adamw", "types": {"param": "bf16sr"}})):
            # the second: before there was a step
            for bad, at in (((1, 3, 6), 5), ((0, 1, 6), 2)):
                results = []
                for way in ways:
                    ps = [p.detach().to(dtype).requires_grad_() for p in lists()]
                    opt, scaler = make(ps, given)
                    for t in range(8):
                        if t == at and way:
                            ps, opt, scaler = way(ps, opt, scaler, given)
                        grads(ps, t)
                        for p in ps:
                            p.grad *= scaler.get_scale() * (float("inf") if t in bad else 1)
                        scaler.scale(torch.ones(()))
                        scaler.step(opt), scaler.update()
                    results.append(ps)
                    self.assertEqual({opt.state[p]["step"].item() for p in ps}, {5})
                for ps in results[1:]:
                    for p, q in zip(results[0], ps):
                        self.assertTrue(torch.equal(p, q), (given, bad))

    def test_own_scaler_keeps_keys(self):
        """A run that loads a distributed checkpoint asks for the keys of its own states, also of
        skipped steps."""
        for dtype, given in ((torch.bfloat16, {"types": {"param": "bf16sr"}}), (torch.float32, {})):
            ps = [p.detach().to(dtype).requires_grad_() for p in lists()]
            opt, scaler = optc.torch.AdamW(ps,
                                           **given), optc.torch.GradScaler("cpu", init_scale=16.0)
            found = []
            for t in range(3):
                grads(ps, t)
                for p in ps:
                    p.grad *= scaler.get_scale() * (float("inf") if t == 1 else 1)
                scaler.scale(torch.ones(()))
                scaler.step(opt), scaler.update()
                found.append([list(own) for own in opt.state_dict()["state"].values()])
            self.assertEqual(found[1:], found[:1] * 2)
            self.assertEqual("scaler.skipped" in found[0][0], dtype is torch.bfloat16)

    def test_own_scaler_of_several(self):
        """One gradient of one type that is not finite: no parameter of any type is stepped, nor
        counted."""
        for spec in ("adamw", "sgd+clip(0.5)"):
            a, b = ([
                p.to(t).detach().requires_grad_() for p in lists()
                for t in (torch.float32, torch.float64)
            ] for _ in range(2))
            oa, ob = (optc.torch.Optimizer(x, spec, lr=0.02) for x in (a, b))
            scaler = optc.torch.GradScaler("cpu", init_scale=8.0)
            for t in range(6):
                grads(a, t), grads(b, t)
                for p in b:
                    p.grad *= scaler.get_scale()
                scaler.scale(torch.ones(()))
                if t in (1, 4):
                    b[t % 4].grad.view(-1)[1] = float("inf") if t == 1 else float("nan")
                scaler.step(ob), scaler.update()
                if t not in (1, 4):
                    oa.step()
            self.assertEqual(len(ob._bounds), 2)
            self.assertEqual(scaler.get_scale(), 2.0)
            b[3].grad[0] = float("inf")
            ob.step()                                  # by itself it goes on leaving them out
            for p, q in zip(a, b):
                torch.testing.assert_close(p, q, rtol=1e-5, atol=1e-6)
                self.assertEqual(ob.state[q]["step"].item(), 4)

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
