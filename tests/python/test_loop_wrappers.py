"""Wrappers in a training loop: clipping, averages, projections, and those that call the closure
twice."""
import warnings

import torch

import optc.torch
from case import X, Y, Case, grads, lists, model


class Wrapped(Case):
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

    def test_projection_decays(self):
        """Under galore the rule sees no weights. A decay that is not decoupled is 0; another is
        refused by name."""
        for kind in (lambda **k: optc.torch.AdamW(lists(), with_="galore(2,1,apart=false)", **k),
                     lambda **k: optc.torch.Adam(lists(), with_="galore(2,1)", **k),
                     lambda **k: optc.torch.Optimizer(lists(), "adan", with_="galore(2,1)", **k)):
            opt = kind(lr=0.1)
            self.assertEqual(opt.param_groups[0]["weight_decay"], 0)
            grads(opt.param_groups[0]["params"], 0)
            opt.step()
            with self.assertRaisesRegex(Exception, "weight_decay"):
                opt = kind(lr=0.1, weight_decay=0.1)
                grads(opt.param_groups[0]["params"], 0)
                opt.step()
        opt = optc.torch.AdamW(lists(), with_="galore(2,1)", lr=0.1)
        self.assertEqual(opt.param_groups[0]["weight_decay"], 0.01)
        # a zero gradient: the decay alone moves the weights
        for p in opt.param_groups[0]["params"]:
            p.grad = torch.zeros_like(p)
        before = [p.detach().clone() for p in opt.param_groups[0]["params"]]
        opt.step()
        for p, was in zip(opt.param_groups[0]["params"], before):
            torch.testing.assert_close(p.detach(), was * (1 - 0.1 * 0.01))

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

    def test_estimates(self):
        """Others' AdaHessian and Sophia-H estimate the Hessian in step(): a loop that leaves it to
        them is told once that here an entry takes the estimate."""
        for name, entry, plain in (("AdaHessian", "set_hessian", 1),
                                   ("Sophia", "update_hessian", 0)):
            for graph, first, loaded, told in (
                    (False, False, False, plain), (True, False, False, 1), (True, True, False, 0),
                    (False, False, True, 0)):
                p = torch.nn.Parameter(torch.ones(3))
                opt = getattr(optc.torch, name)([p])
                with warnings.catch_warnings(record=True) as found:
                    warnings.simplefilter("always")
                    if loaded:
                        p.grad = torch.ones(3)
                        getattr(opt, entry)()
                        opt.step()
                        saved, opt = opt.state_dict(), getattr(optc.torch, name)([p])
                        opt.load_state_dict(saved)
                    for _ in range(2):
                        p.grad, = torch.autograd.grad((p ** 2).sum(), p, create_graph=graph)
                        first and opt.run(entry)
                        opt.step()
                found = [w for w in found if "%s()" % entry in str(w.message)]
                self.assertEqual(len(found), told, (name, graph, first, loaded))
                self.assertEqual({w.filename for w in found}, {__file__} if told else set())

    def test_rules_of_two_gradients(self):
        """A rule of one's own without states that sam has: if the second call of the closure fails,
        the parameters are those of before, and steps after it are those of a run without the
        failure."""
        text = """return optimizer { name = "ahead", hyper = { lr = { 0.1, min = 0 } },
          state = { old = copy(p) }, gradients = { "perturb", "step" },
          perturb = function() old, p = p, p + 0.5 * g end,
          step = function() p = old - lr * g end }"""
        # the second: two bindings
        for types in ((torch.float32,) * 2, (torch.float32, torch.float64)):
            found = []
            for failing in (False, True):
                params = [p.detach().to(d).requires_grad_() for p, d in zip(lists(), types)]
                opt, calls = optc.torch.Optimizer(params, "ahead", spec=text, lr=0.1), []

                def closure():
                    calls.append(1)
                    if failing and len(calls) == 4:
                        raise MemoryError
                    opt.zero_grad()
                    loss = sum((p ** 2).sum() for p in params)
                    loss.backward()
                    return loss
                for t in range(3):
                    before = [p.detach().clone() for p in params]
                    try:
                        opt.step(closure)
                    except MemoryError:
                        self.assertTrue(all(map(torch.equal, params, before)))
                        opt.step(closure)
                found.append(params)
                self.assertEqual(len(calls), 6 + 2 * failing)
            self.assertTrue(all(map(torch.equal, *found)))

    def test_looksam(self):
        """The closure is called twice at steps 1, 4, 7, …, and again after loading."""
        b = model()
        opt = optc.torch.Optimizer(b.parameters(), "sgd+looksam(0.05,3)", lr=0.05)
        calls = []

        def closure():
            calls.append([p.detach().clone() for p in b.parameters()])
            opt.zero_grad()
            loss = ((b(X) - Y) ** 2).mean()
            loss.backward()
            return loss
        counts = []
        for t in range(8):
            if t == 5:
                saved = opt.state_dict()
                opt = optc.torch.Optimizer(b.parameters(), "sgd+looksam(0.05,3)", lr=0.05)
                opt.load_state_dict(saved)
            before = len(calls)
            opt.step(closure)
            counts.append(len(calls) - before)
        self.assertEqual(counts, [2, 1, 1, 2, 1, 1, 2, 1])
        away = sum(((p - q) ** 2).sum() for p, q in zip(*calls[:2])).sqrt().item()
        self.assertAlmostEqual(away, 0.05, places=5)
