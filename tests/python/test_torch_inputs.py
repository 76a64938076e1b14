"""Every rule that torch has too, on torch's own inputs and error inputs, against torch's
optimizer."""
import sys
import types
import unittest
import warnings
from unittest import mock

import torch

import optc.torch
from optc.torch import _rules


def database():
    # torch's tests want it; none of what is used here does
    if "expecttest" not in sys.modules:
        try:
            import expecttest                          # noqa: F401
        except ImportError:
            sys.modules["expecttest"] = types.ModuleType("expecttest")
            sys.modules["expecttest"].TestCase = unittest.TestCase
            sys.modules["expecttest"].assert_expected_inline = None
    from torch.testing._internal.common_optimizers import optim_db
    return {o.optim_cls.__name__: o for o in optim_db}


def parameters(spec, dtype=torch.float32):
    torch.default_generator.manual_seed(3)
    shapes = ((5, 3), (4, 4), (2, 9)) if spec == "muon" else ((5, 3), (7,), (), (2, 3, 4))
    return [torch.randn(s, dtype=dtype).requires_grad_() for s in shapes]


# What torch refuses and optc refuses in words of its own, or steps.
ELSEWHERE = {
    # others go to AdamW
    "Muon only supports 2D parameters": lambda case, make: make(),
}


class Inputs(unittest.TestCase):
    def step_both(self, spec, kwargs, steps=6):
        ours, theirs = parameters(spec), parameters(spec)
        # a tensor that is lr or beta belongs to one optimizer
        a = optc.torch.Optimizer(ours, spec, **kwargs,
                                 **({"products": "f32"} if spec == "muon" else {}))
        b = _rules.torch_class(spec)(theirs, **kwargs)
        for t in range(steps):
            torch.default_generator.manual_seed(t)
            for p, q in zip(ours, theirs):
                p.grad = torch.randn(p.shape)
                q.grad = p.grad.clone()
            a.step()
            # Muon's iteration, in f32
            with mock.patch.object(torch.Tensor, "bfloat16", torch.Tensor.clone):
                b.step()
        more = {"adafactor": {"relative_step", "scale_parameter", "momentum", "beta1"},
                "muon": {"scale", "coefficients", "form", "maximize"}}.get(spec, set())
        self.assertEqual({k for k in a.param_groups[0] if not k.startswith("adamw.")},
                         set(b.param_groups[0]) | more)
        for p, q in zip(ours, theirs):
            torch.testing.assert_close(p, q, rtol=2e-5, atol=2e-6)
            self.assertLessEqual(set(b.state[q]), set(a.state[p]))
            for key, value in b.state[q].items():
                mine = a.state[p][key]
                if value is None:
                    continue
                self.assertEqual(mine.shape, value.shape, key)
                torch.testing.assert_close(mine, value, rtol=2e-5, atol=2e-6, check_dtype=False,
                                           check_device=False)

    def test_inputs(self):
        known = database()
        self.assertEqual(set(_rules.CLASSES), set(_rules.TORCH))
        for spec, name in _rules.CLASSES.items():
            for given in known[name].optim_inputs_func(device="cpu"):
                kwargs = {k: v for k, v in given.kwargs.items()}
                if kwargs.get("capturable"):           # torch takes that on GPUs alone
                    kwargs["capturable"] = False
                with self.subTest(rule=spec, given=given.desc):
                    self.step_both(spec, kwargs)

    def test_error_inputs(self):
        known = database()
        from torch.testing._internal.common_optimizers import OptimizerErrorEnum
        for spec, name in _rules.CLASSES.items():
            for bad in known[name].optim_error_inputs_func(device="cpu", dtype=torch.float32):
                given = bad.optimizer_error_input
                with self.subTest(rule=spec, given=given.desc):
                    params = parameters(spec) if given.params is None else given.params
                    if bad.error_regex in ELSEWHERE:
                        for p in params:                   # frozen ones may be of any kind
                            p.requires_grad_()
                        ELSEWHERE[bad.error_regex](
                            self, lambda: optc.torch.Optimizer(params, spec, **given.kwargs))
                        continue
                    if bad.error_type is UserWarning:
                        with self.assertWarnsRegex(UserWarning, bad.error_regex):
                            optc.torch.Optimizer(params, spec, **given.kwargs)
                    else:
                        with self.assertRaisesRegex(bad.error_type, bad.error_regex):
                            with warnings.catch_warnings():
                                warnings.simplefilter("ignore")
                                opt = optc.torch.Optimizer(params, spec, **given.kwargs)
                                if bad.error_on is OptimizerErrorEnum.STEP_ERROR:
                                    opt.step()

    def test_keys(self):
        p = parameters("adamw")
        opt = optc.torch.Optimizer(p, "adamw", foreach=True)
        self.assertEqual(opt.param_groups[0]["betas"], (0.9, 0.999))
        optc.torch.Optimizer(p, "adamw", fused=True)
        optc.torch.Optimizer(p, "adamw", capturable=True)
        with self.assertRaisesRegex(ValueError, "differentiable"):
            optc.torch.Optimizer(p, "adamw", differentiable=True)
        with self.assertRaisesRegex(ValueError, "differentiable"):
            optc.torch.Optimizer(p, "lion", differentiable=True)
        with self.assertRaisesRegex(TypeError, "betta"):
            optc.torch.Optimizer(p, "lion", betta=1)
