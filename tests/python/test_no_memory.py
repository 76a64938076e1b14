"""Parameters without memory (meta and fake tensors) and steps in FakeTensorMode are refused by
name."""
import unittest

import torch
from torch._subclasses import FakeTensorMode

import optc.torch
from case import Evaluated


def net(device="cpu"):
    m = torch.nn.Linear(3, 2, device=device)
    for p in m.parameters():
        p.grad = torch.ones_like(p)
    return m


class NoMemory(Evaluated):
    def test_meta(self):
        """An optimizer of a meta model may be made, as in torch, but its step changes nothing that
        anyone has."""
        for kind in (optc.torch.AdamW, optc.torch.Adagrad, optc.torch.Muon):
            opt = kind(net("meta").named_parameters())
            with self.assertRaisesRegex(
                    RuntimeError, r"weight is on the meta "
                    r"device.*to_empty.*make the optimizer after"):
                opt.step()
        with self.assertRaisesRegex(RuntimeError, r"param_groups\[0\]\[0\] is on the meta device"):
            optc.torch.AdamW(net("meta").parameters()).step()
        half = net()
        half.bias = net("meta").bias
        opt = optc.torch.Lion(half)
        before = half.weight.detach().clone()
        with self.assertRaisesRegex(RuntimeError, "bias is on the meta device"):
            opt.step()
        self.assertTrue(torch.equal(before, half.weight))

    def test_fake_tensors(self):
        with FakeTensorMode():
            m = net()
            opts = [optc.torch.AdamW(m), optc.torch.Adagrad(m), optc.torch.Muon(m)]
            for opt in opts:
                with self.assertRaisesRegex(RuntimeError, "FakeTensorMode.*outside of the mode"):
                    opt.step()
                opt.state_dict()
        for opt in opts:
            with self.assertRaisesRegex(RuntimeError,
                                        r"weight has no memory \(its class is FakeTensor\)"):
                opt.step()

    def test_fake_mode(self):
        """Real parameters in the mode: torch's operations would write nothing, and ours would."""
        m = net()
        opt = optc.torch.AdamW(m)
        before = m.weight.detach().clone()
        for bound in (False, True):
            with FakeTensorMode(allow_non_fake_inputs=True):
                with self.assertRaisesRegex(RuntimeError, "FakeTensorMode.*outside of the mode"):
                    opt.step()
                with self.assertRaisesRegex(RuntimeError, "FakeTensorMode"):
                    optc.torch.matrix_power(torch.eye(2), -0.5)
            self.assertEqual(torch.equal(before, m.weight), not bound)
            opt.step()
        self.assertEqual(float(opt.state[m.weight]["step"]), 2)


if __name__ == "__main__":
    unittest.main()
