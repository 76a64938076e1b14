"""Whole training runs against torch's optimizers."""
import os
import sys
import unittest

import torch

import optc.torch

sys.path.append(
    os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "runtime", "python",
                 "examples"))
import small                                           # noqa: E402


def train(make, steps=200, device="cpu"):
    net = small.fresh(device)
    opt = make(net)
    schedule = torch.optim.lr_scheduler.OneCycleLR(opt, opt.param_groups[0]["lr"],
                                                   total_steps=steps)
    return small.train(net, opt, steps, schedule, device=device)


class Training(unittest.TestCase):
    def test_gpt(self):
        a = train(lambda n: torch.optim.AdamW(n.parameters(), lr=3e-3), steps=100)
        b = train(lambda n: optc.torch.AdamW(n.parameters(), lr=3e-3), steps=100)
        self.assertLess(a[-1], a[0] - 1)
        self.assertLess(max(abs(x - y) for x, y in zip(a, b)), 1e-3)

    def test_muon(self):
        a = train(lambda n: optc.torch.Muon(n, lr=0.02, adamw_lr=3e-3), steps=60)
        self.assertLess(a[-1], a[0] - 0.5)


def dadapt_adan(p, grads, rates, d=1e-2, betas=(0.98, 0.92, 0.99), eps=1e-8, decay=0.02):
    """The weights after steps of DAdaptAdan of dadaptation 3.2, transcribed. A step with s = 0
    changes v alone."""
    m, diff, v, s, seen, old = *(torch.zeros_like(p) for _ in range(4)), 0, None
    b1, b2, b3 = betas
    for g, lr in zip(grads, rates):
        rate, change = d * lr, torch.zeros_like(g) if old is None else g - old
        v = b3 * v + (1 - b3) * (g + b2 * change) ** 2
        m, diff, s = (
            b * x + rate * (1 - b) * y for b, x, y in ((b1, m, g), (b2, diff, change), (b3, s, g)))
        scale, total = v.sqrt() + eps, s.abs().sum()
        if total == 0:
            continue
        seen = b3 * seen + (1 - b3) * rate ** 2 * (g * g / scale).sum()
        d = max(d, (s * s / scale).sum() / (1 - b3) / total - seen / total)
        p, old = (p - (m + b2 * diff) / scale) / (1 + rate * decay), g
    return p


class Warmup(unittest.TestCase):
    def test_dadapt_adan(self):
        """Of a schedule that starts at 0 the steps are those of the authors."""
        torch.default_generator.manual_seed(5)
        rates, p, grads = (0.0, 0.0, 0.25, 0.5, 1.0, 1.0), torch.randn(12).double(), torch.randn(
            6, 12).double()
        q = torch.nn.Parameter(p.clone())
        opt = optc.torch.DAdaptAdan([q], d0=1e-2)
        for lr, g in zip(rates, grads):
            opt.param_groups[0]["lr"], q.grad = lr, g.clone()
            opt.step()
        torch.testing.assert_close(q.detach(), dadapt_adan(p, grads, rates), rtol=1e-6, atol=1e-7)


class Cost(unittest.TestCase):
    """One call finds the gradients of many tensors, also those that moved: a count of calls, not of
    seconds."""

    @unittest.skipUnless(optc.torch._address_check.CALLS, "this torch lacks a function")
    def test_calls(self):
        params = [torch.zeros(2, requires_grad=True) for _ in range(1500)]
        for p in params:
            p.grad = torch.ones(2)
        opt = optc.torch.SGD(params, lr=0.1)
        for _ in range(3):
            opt.step()
        looks, sets = [], []
        bound = opt._bounds[0]
        look, set_ = bound._look, bound._set
        bound._look = lambda grads: (looks.append(1), look(grads))
        bound._set = lambda *given: (sets.append(1), set_(*given))
        for _ in range(5):
            opt.step()
        self.assertEqual((looks, sets), ([], []))
        params[3].grad = torch.full((2,), 2.0)
        opt.step()
        self.assertEqual((looks, sets), ([], [1]))
        self.assertAlmostEqual(params[3][0].item(), -1, 5)
        static = optc.torch.SGD(params, lr=0.1, static_grads=True)
        static.step()
        bound = static._bounds[0]
        bound.params = None
        bound.find_grads()


if __name__ == "__main__":
    unittest.main()
