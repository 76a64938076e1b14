"""Shared by the tests of training loops: a small network, fixed gradients, comparison of losses."""
import contextlib
import functools
import sys
import unittest
from unittest import mock

import torch

import optc
from optc.torch import _engines


def model(seed=1, dtype=torch.float32):
    torch.default_generator.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(6, 9), torch.nn.Tanh(), torch.nn.Linear(9,
                                                                                       3)).to(dtype)


torch.default_generator.manual_seed(0)
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


@contextlib.contextmanager
def without_optc():
    """A context in which optc is not imported yet. torch stays: importing it takes seconds."""
    def modules():
        return {n: sys.modules.pop(n) for n in list(sys.modules) if n.split(".")[0] == "optc"}
    was = modules()
    try:
        yield
    finally:
        modules()
        sys.modules.update(was)


def grads(params, seed=0):
    torch.default_generator.manual_seed(seed)
    for p in params:
        p.grad = torch.randn(p.shape, dtype=p.dtype)


def lists(seed=5, shapes=((4, 3), (5,))):
    torch.default_generator.manual_seed(seed)
    return [torch.randn(s).requires_grad_() for s in shapes]


class Case(unittest.TestCase):
    def close(self, a, b, bound=1e-5):
        self.assertEqual(len(a), len(b))
        for x, y in zip(a, b):
            self.assertLessEqual(abs(x - y), bound)


class Evaluated(Case):
    """On the reference evaluator: for tests of many rules or options on few values, each of which
    would be compiled."""
    def setUp(self):
        engine = functools.partial(optc.Engine, compiler="", cache_dir="")
        for name, value in (("Engine", engine), ("_open", {})):
            patch = mock.patch.object(_engines, name, value)
            patch.start()
            self.addCleanup(patch.stop)
