"""Whole training runs against torch's optimizers."""
import os
import sys
import unittest

import torch

import optc.torch

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "runtime", "python", "examples"))
import small                                           # noqa: E402


def train(make, steps=200, device="cpu"):
    net = small.fresh(device)
    opt = make(net)
    schedule = torch.optim.lr_scheduler.OneCycleLR(opt, opt.param_groups[0]["lr"], total_steps=steps)
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


class Cost(unittest.TestCase):
    """One call finds the gradients of many tensors, also those that moved: a count of calls, not of seconds."""

    @unittest.skipUnless(optc.torch._address_check.AVAILABLE, "this torch has no DLPack exchange table")
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
