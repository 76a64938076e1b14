"""Recipes of specs/COOKBOOK.md, in f64: three steps of each against the same formula in torch."""
import math
import os
import re
import unittest

import torch

import optc.torch

PAGE = os.path.join(os.path.dirname(__file__), "..", "..", "specs", "COOKBOOK.md")


def recipe(name):
    with open(PAGE, encoding="utf-8") as f:
        blocks = re.findall(r"```lua\n(.*?)```", f.read(), re.S)
    return next(text for text in blocks if f'name  = "{name}"' in text)


def decayed(a, b, w):
    return a + w * (b - a)


class Cookbook(unittest.TestCase):
    def steps(self, name, formula, inputs=None, steps=3, **given):
        """formula(t, p, g, state) gives the new p of a 5 x 7 matrix; state is a dict that it may
        fill."""
        torch.default_generator.manual_seed(3)
        p = torch.randn(5, 7, dtype=torch.float64, requires_grad=True)
        want, state = p.detach().clone(), {}
        opt = optc.torch.Optimizer([p], name, spec=recipe(name), **given)
        for t in range(1, steps + 1):
            p.grad = torch.randn(5, 7, dtype=torch.float64)
            for key, value in (inputs(t) if inputs else {}).items():
                if isinstance(value, torch.Tensor):
                    opt.set_input(p, key, value)
                else:
                    opt.set_scalar(key, value)
            want = formula(t, want, p.grad, state)
            opt.step()
            torch.testing.assert_close(p.detach(), want, rtol=1e-9, atol=1e-11)

    def test_cosine(self):
        def formula(t, p, g, s):
            done = min(max((t - 2) / 3, 0), 1)
            return p - min(1, t / 2) * 0.1 * 0.5 * (1 + math.cos(math.pi * done)) * g
        self.steps("cosine", formula, steps=6, warmup=2, total=5)

    def test_trust(self):
        self.steps("trust", lambda t, p, g, s: p - 0.1 * p.norm() / (g.norm() + 1e-8) * g)

    def test_clipped(self):
        self.steps("clipped", lambda t, p, g, s: p - 0.1 * min(1, 1 / (g.norm().item() + 1e-6)) * g)

    def test_rowwise(self):
        def formula(t, p, g, s):
            s["r"] = s.get("r", 0) + (g * g).mean(dim=1, keepdim=True)
            return p - 0.1 * g / (s["r"].sqrt() + 1e-8)
        self.steps("rowwise", formula)

    def test_sparse(self):
        def formula(t, p, g, s):
            u = s.get("rest", 0) + g
            sent = torch.where(u.abs() >= u.square().mean().sqrt(), u, 0)
            s["rest"] = u - sent
            return p - 0.1 * sent
        self.steps("sparse", formula)

    def test_top_rows(self):
        def formula(t, p, g, s):
            mask = torch.zeros(5, 1, dtype=g.dtype)
            mask[g.norm(dim=1).topk(2).indices] = 1
            return p - 0.1 * mask * g
        self.steps("top_rows", formula)

    def test_curvature(self):
        torch.default_generator.manual_seed(8)
        hess = [torch.rand(5, 7, dtype=torch.float64) for _ in range(3)]

        def formula(t, p, g, s):
            s["m"] = decayed(s.get("m", 0), g, 1 - 0.96)
            if t != 2:
                s["h"] = decayed(s.get("h", 0), hess[t - 1], 1 - 0.99)
            return p - 1e-3 * (s["m"] / (0.04 * s["h"]).clamp(min=1e-12)).clamp(-1, 1)

        self.steps("curvature", formula,
                   inputs=lambda t: {"hess": hess[t - 1], "fresh": float(t != 2)})

    def test_polyak(self):
        self.steps("polyak", lambda t, p, g, s: p - min(1, 2.5 * t /
                                                        (g.square().sum().item() + 1e-8)) * g,
                   inputs=lambda t: {"loss": 2.5 * t})

    def test_dog(self):
        def formula(t, p, g, s):
            start = s.setdefault("start", p)
            s["r"] = max(s.get("r", 1e-3), (p - start).norm().item())
            s["s"] = s.get("s", 0) + g.square().sum().item()
            return p - s["r"] / math.sqrt(s["s"] + 1e-8) * g
        self.steps("dog", formula)

    def test_spectral(self):
        def formula(t, p, g, s):
            s["L"] = decayed(s.get("L", 0), g @ g.T, 1 - 0.9)
            w, v = torch.linalg.eigh(s["L"])
            return p - 0.1 * v @ torch.diag(1 / (w.clamp(min=0).sqrt() + 1e-3)) @ v.T @ g
        self.steps("spectral", formula, products="f64")

    def test_lowrank(self):
        def formula(t, p, g, s):
            if t == 1:
                s["P"] = torch.linalg.eigh(g @ g.T)[1].flip(1)[:, :4]
            s["m"] = decayed(s.get("m", 0), s["P"].T @ g, 1 - 0.9)
            return p - 0.1 * s["P"] @ s["m"]
        self.steps("lowrank", formula, products="f64")


class Wrappers(unittest.TestCase):
    def run_around_sgd(self, name, steps, formula):
        torch.default_generator.manual_seed(4)
        p = torch.randn(5, 7, dtype=torch.float64, requires_grad=True)
        want, state = p.detach().clone(), {}
        opt = optc.torch.Optimizer([p], "sgd", wrappers={name: recipe(name)}, with_=[name], lr=0.1,
                                   momentum=0)
        for t in range(1, steps + 1):
            p.grad = torch.randn(5, 7, dtype=torch.float64)
            want = formula(t, want, p.grad.clone(), state)
            opt.step()
            torch.testing.assert_close(p.detach(), want, rtol=1e-9, atol=1e-11)

    def test_decay(self):
        self.run_around_sgd("decay", 3, lambda t, p, g, s: p - 0.1 * g - 1e-2 * p)

    def test_accumulate(self):
        def formula(t, p, g, s):
            s["g"] = s.get("g", 0) + g
            if t % 4:
                return p
            return p - 0.1 * s.pop("g") / 4
        self.run_around_sgd("accumulate", 8, formula)

    def test_projected(self):
        def formula(t, p, g, s):
            if t == 1:
                s["P"] = torch.linalg.eigh(g @ g.T)[1].flip(1)[:, :4]
            return p - 0.1 * s["P"] @ s["P"].T @ g
        self.run_around_sgd("projected", 3, formula)


if __name__ == "__main__":
    unittest.main()
