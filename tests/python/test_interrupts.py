"""Ctrl-C in a step. A trace function raises KeyboardInterrupt at every line of the package that a
step passes, one after the other. The library's counts tell whether the step was taken before the
interrupt: torch's optimizer then takes it too, and values, states and counts of both must stay
equal."""
import sys
import unittest
from os import path

import torch

import optc
import optc.torch
from case import Case

FOLDER = path.dirname(path.dirname(path.abspath(optc.torch.__file__))) + path.sep


def at_line(n, call):
    """Calls a function with an interrupt at the n-th line; 0: none. Returns whether it came."""
    left = [n]

    def trace(frame, event, _):
        if event == "line":
            left[0] -= 1
            if left[0] == 0:
                raise KeyboardInterrupt
        return trace if frame.f_code.co_filename.startswith(FOLDER) else None
    old = sys.gettrace()
    sys.settrace(trace if n else old)
    try:
        call()
        return False
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(old)


def params_of(apart=False):
    """Parameters; apart: their elements lie apart, so that copies are stepped."""
    found = []
    for shape in ((4, 3), (5,)):
        whole = torch.randn(*shape, 2, dtype=torch.float64)
        found.append((whole[..., 0] if apart else whole[..., 0].clone()).requires_grad_())
    return found


class Interrupts(Case):
    def follow(self, params, keys=({}, {}), rate=lambda t: 0.1, every=1):
        """Steps with interrupts beside torch's. keys: of the two parameters' groups."""
        ref = [p.detach().clone().requires_grad_() for p in params]
        ours = optc.torch.AdamW([{"params": [p], **k} for p, k in zip(params, keys)])
        # each may step or not
        theirs = [torch.optim.AdamW([p], **k) for p, k in zip(ref, keys)]
        seed, taken, n, came = torch.Generator().manual_seed(0), [0, 0], 0, True
        for t in range(4000):
            n += every * (t % 2)                       # between two interrupts is a whole step
            if not came:
                break
            for p, q in zip(params, ref):
                q.grad = torch.randn(q.shape, generator=seed, dtype=q.dtype)
                if t % 3:                              # the same memory, or another one
                    p.grad = q.grad.clone()
                else:
                    p.grad = q.grad.clone() if p.grad is None else p.grad.copy_(q.grad)
            for group in (g for opt in (ours, *theirs) for g in opt.param_groups):
                group["lr"] = rate(t)
            came = at_line(n * (t % 2), ours.step) or t % 2 == 0
            saved = ours.state_dict()["state"]
            for i, (p, q, opt) in enumerate(zip(params, ref, theirs)):
                b, k = ours._places[p]
                now = b.binding.get_t(k)
                self.assertIn(now - taken[i], (0, 1), n)
                opt.step() if now > taken[i] else None
                taken[i] = now
                self.assertEqual(int(saved[i]["step"]), now, n)
                for x, y in [(p, q)] + [(saved[i][k], v) for k, v in opt.state[q].items()]:
                    self.assertTrue(torch.allclose(x.double(), y.double(), 1e-12, 1e-12), (n, i))
        self.assertFalse(came)
        self.assertLess(t // 2, min(taken))            # some interrupted steps were taken
        self.assertLess(max(taken), t)                 # and some not

    def test_steps(self):
        torch.default_generator.manual_seed(0)
        self.follow(params_of(), rate=lambda t: 0.05 if t % 4 == 1 else 0.1, every=3)
        self.follow(params_of(apart=True), every=2)
        self.follow(params_of(), ({}, {"amsgrad": True}), every=2)            # two bindings

    def test_in_an_allocator(self):
        """C gets no address, and the interrupt comes after its call."""
        calls, memory = [], {}

        def alloc(size, _stream):
            calls.append(size)
            if len(calls) == 1:
                raise KeyboardInterrupt
            x = torch.empty(size + 64, dtype=torch.uint8)
            memory[x.data_ptr() + -x.data_ptr() % 64] = x
            return x.data_ptr() + -x.data_ptr() % 64
        engine = optc.Engine(allocator=(alloc, lambda at, _size, _stream: memory.pop(at)))
        p, g = torch.ones(4), torch.ones(4)
        bind = lambda: engine.compile("adamw").bind([([(p, g)], {"lr": 0.5, "weight_decay": 0})])
        with self.assertRaises(KeyboardInterrupt):
            bind()
        self.assertEqual(memory, {})
        bind().step()
        self.assertEqual([round(x, 5) for x in p.tolist()], [0.5] * 4)


if __name__ == "__main__":
    unittest.main()
