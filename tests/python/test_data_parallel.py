"""ZeroRedundancyOptimizer and FSDP1: values over all tensors are those of one process, or
refused."""
import copy
import tempfile
import unittest
from unittest import mock

import torch
import torch.distributed as dist

import optc.torch
from case import Case, lists
from ranks import in_ranks

SHAPES = ((4, 3), (5,), (7,))

SCALED = """return optimizer { name = "scaled", hyper = { lr = 0.1 }, state = { m = zeros },
  step = function() m = g / %s p = p - lr * m end }"""


def give(params, t, shift=0):
    g = torch.Generator().manual_seed(t)
    for p in params:
        p.grad = torch.randn(p.shape, generator=g, dtype=torch.float64).to(p.dtype)


def two_ranks():
    """Three parameters on two ranks; then a rank without parameters; then flat shards."""
    from torch.distributed.optim import ZeroRedundancyOptimizer as Zero
    found = []
    for given in ({"with_": ["clip(0.1)"]}, {"with_": "clip(0.1)", "types": {"state": "f32"}}, {}):
        a, b = lists(shapes=SHAPES), lists(shapes=SHAPES)
        one, many = optc.torch.AdamW(a, lr=0.1, **given), Zero(b, optc.torch.AdamW, lr=0.1, **given)
        for t in range(3):
            give(a, t), give(b, t)
            one.step(), many.step()
        found.append([(p - q).abs().max().item() for p, q in zip(a, b)])
        if given:
            found.append([one.value("clip.grad_norm") - many.optim.value("clip.grad_norm")])
    whole = [
        p.detach().to(d).requires_grad_() for p, d in zip(lists(), (torch.float32, torch.float64))
    ]
    mine = whole if not dist.get_rank() else [torch.ones(2)]
    opt = optc.torch.Optimizer(mine, "sgd+clip(1)", lr=1.0, momentum=0.0, group=dist.group.WORLD)
    give(whole, 1)
    opt.step()
    found.append(
        [opt.value("clip.grad_norm") - sum(
            (p.grad.double() ** 2).sum() for p in whole) ** 0.5] if not dist.get_rank() else [0])
    x, g = torch.arange(8.0), torch.arange(8.0) - 3
    p = torch.nn.Parameter(x[4 * dist.get_rank():][:4].clone())
    p._is_flat_param, p.grad = True, g[4 * dist.get_rank():][:4].clone()
    opt = optc.torch.Optimizer([p], "sgd+clip(1)", lr=1.0, momentum=0.0, group=dist.group.WORLD)
    opt.step()
    want = (x - g / g.norm())[4 * dist.get_rank():][:4]
    found.append([(p - want).abs().max().item()])
    return found


def flat_ranks():
    """A model under FSDP1 and a plain one, as [(what, largest difference, or a refusal)]."""
    from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
    found = []
    for orig in (False, True):
        for rule, given in (("adamw", {}), ("adamw+clip(0.1)", {"group": dist.group.WORLD}),
                            ("sgd+clip(0.01)+ema(0.5)", {"group": dist.group.WORLD})):
            torch.default_generator.manual_seed(1)
            plain = torch.nn.Sequential(torch.nn.Linear(6, 9), torch.nn.Tanh(),
                                        torch.nn.Linear(9, 3))
            inner = copy.deepcopy(plain)
            inner[2] = FSDP(inner[2], use_orig_params=orig, device_id=torch.device("cpu"))
            model = FSDP(inner, use_orig_params=orig, device_id=torch.device("cpu"))
            one = optc.torch.Optimizer(plain.parameters(), rule, lr=0.1)
            many = optc.torch.Optimizer(model.parameters(), rule, lr=0.1, **given)
            for t in range(3):
                x = torch.randn(2, 4, 6, generator=torch.Generator().manual_seed(t))
                for m, opt, part in ((plain, one, x.flatten(0, 1)),
                                     (model, many, x[dist.get_rank()])):
                    opt.zero_grad()
                    (m(part) ** 2).mean().backward()
                    opt.step()
            if "clip" in rule:
                values = [opt.value("clip.grad_norm") for opt in (one, many)]
                found.append(((orig, rule, "norm"), abs(values[0] - values[1])))
            with FSDP.summon_full_params(model):
                for p, q in zip(plain.parameters(), model.parameters()):
                    found.append(((orig, rule, "parameters"), (p - q).abs().max().item()))
        for rule in ("adamw+clip(1)", "lamb", "adafactor"):
            for given in ({}, {"group": dist.group.WORLD}):
                try:
                    optc.torch.Optimizer(model.parameters(), rule, **given)
                except ValueError as e:
                    found.append(((orig, rule, *given), str(e)))
    return found


class DataParallel(Case):
    def test_fsdp1(self):
        """Elementwise rules and clip with group= are those of one process; others are refused."""
        for found in in_ranks(2, flat_ranks):
            for what, x in found:
                if not isinstance(x, str):
                    self.assertLess(x, 1e-5, what)
            refused = {what: x for what, x in found if isinstance(x, str)}
            for orig in (False, True):
                self.assertRegex(refused[orig, "adamw+clip(1)"],
                                 r"^adamw\+clip.*flat shard.*group=")
                self.assertNotIn((orig, "adamw+clip(1)", "group"), refused)
                for rule in ("lamb", "adafactor"):
                    for given in ((), ("group",)):
                        self.assertRegex(refused[(orig, rule, *given)],
                                         rule + ".*flat shard.*FSDP2")
            self.assertEqual(len(found), 2 * (3 * 4 + 2 + 5))

    def test_two_ranks(self):
        for found in in_ranks(2, two_ranks):
            for each in found:
                self.assertLess(max(map(abs, map(float, each))), 2e-6, found)

    def test_flat_shards(self):
        """Rules with values over tensors are refused by name; elementwise rules step."""
        for flag in ("_is_flat_param", "_fsdp_flattened"):
            p = torch.nn.Parameter(torch.ones(8))
            setattr(p, flag, True)
            for rule in ("adamw+clip(1)", "lion+clip(1)"):
                with self.assertRaisesRegex(ValueError,
                                            r"%s.*flat shard.*group=" % rule.split("+")[0]):
                    optc.torch.Optimizer([p], rule)
            for rule, up in (("sgd+clip(1)+ema(0.9)", False), ("schedulefree_sgd+clip(1)", False),
                             ("sgd+clip(1)", True)):
                given = {"maximize": up}
                optc.torch.Optimizer([p], rule, group=mock.sentinel.group, **given)
                with self.assertRaisesRegex(ValueError, r"flat shard.*group="):
                    optc.torch.Optimizer([p], rule, **given)
            for value in ("sqrt(numel)", "sum(g)"):
                with self.assertRaisesRegex(ValueError, "flat shard.*FSDP2"):
                    optc.torch.Optimizer([p], spec=SCALED % value, with_=["clip(1)", "ema(0.9)"],
                                         group=mock.sentinel.group)
                with self.assertRaisesRegex(ValueError, "flat shard.*FSDP2"):
                    optc.torch.Optimizer([p], spec=SCALED % value)
            with tempfile.NamedTemporaryFile("w", suffix=".lua") as file:
                file.write(SCALED % "sqrt(numel)")
                file.flush()
                with self.assertRaisesRegex(ValueError, "flat shard.*FSDP2"):
                    optc.torch.Optimizer([p], file.name)
            optc.torch.Optimizer([p], "adai", group=mock.sentinel.group)
            for rule in ("lamb", "lars", "adafactor", "adamw+agc", "adamw+clip_norm(1)",
                         "novograd"):
                for group in (None, mock.sentinel.group):
                    with self.assertRaisesRegex(ValueError,
                                                r"%s.*flat shard.*FSDP2" % rule.split("+")[0]):
                        optc.torch.Optimizer([p], rule, group=group)
            p.grad = torch.ones(8)
            for rule in ("adamw", "lion", "sgd+ema(0.9)+clip_value(1)"):
                optc.torch.Optimizer([p], rule).step()

    def test_appended_flat_shard(self):
        """A flat shard without a name in a named group is refused like others."""
        opt = optc.torch.Optimizer([("a", torch.nn.Parameter(torch.ones(2)))], "adamw+clip(1)")
        p = torch.nn.Parameter(torch.ones(8))
        p._is_flat_param, p.grad = True, torch.ones(8)
        opt.param_groups[0]["params"].append(p)
        with self.assertRaisesRegex(ValueError, r"param_groups\[0\]\[1\] is a flat shard"):
            opt.step()

    def test_equal_keys(self):
        given = {
            "with_": ["clip(1)"], "types": {"state": "bf16"}, "workspace": 0, "follow_lr": True
        }
        opt = optc.torch.AdamW([{"params": lists(), **given}], **given)
        self.assertFalse(given.keys() & opt.param_groups[0].keys())
        given["options"] = {"amsgrad": True}
        for key, values in (("with_", ("clip(1)", ["clip(1.0)"], ("clip( 1e0 )",))),
                            ("types", ("state=bf16",)), ("options", ("amsgrad=true",)),
                            ("workspace", (0.0,)), ("wrappers", ({}, None)),
                            ("products", ("", None))):
            for value in values:
                made = optc.torch.AdamW([{"params": lists(), key: value}], **given)
                self.assertNotIn(key, made.param_groups[0])
        for key, value in (("with_", ["clip(2)"]), ("with_", ["clip(1)", "cautious"]),
                           ("with_", None), ("types", {}), ("types", "state=f32"),
                           ("options", {"amsgrad": False}), ("products", "f32")):
            with self.assertRaisesRegex(TypeError, r'param_groups\[0\]\["%s"\].*constructor' % key):
                optc.torch.AdamW([{"params": lists(), key: value}], **given)


if __name__ == "__main__":
    unittest.main()
