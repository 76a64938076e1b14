"""Rules that need all ranks for a step: reductions over cut tensors and matrices that one rank
computes. For given gradients several processes leave the bits of one process."""
import os
import time

import torch
import torch.distributed as dist

import optc.torch
from case import Case
from pieces import cut, differing, give_grads, here, local
from ranks import in_ranks

RULES = (("adamw", ["clip(0.5)"], {}), ("lamb", [], {}), ("muon", [], {"lr": 0.02}),
         ("soap", [], {}), ("adamw", ["clip(1)", "ema(0.9)"], {}))
# Rows that 2, 3 and 4 ranks cut unevenly or leave empty, reduction segments (4096 elements) that
# two ranks share, and tensors of one dimension.
SHAPES = ((18, 7), (5, 3), (130, 70), (1,), (33,), (9001,), (1, 12))


def whole_tensors(seed=0):
    torch.default_generator.manual_seed(seed)
    return [torch.randn(s).requires_grad_() for s in SHAPES]


def pair(rule, with_, given, mesh, placements, **more):
    """The optimizer of one process and that of the ranks, with their parameters. The last parameter
    is a plain tensor on both."""
    from torch.distributed.tensor import DTensor, distribute_tensor
    whole = whole_tensors()
    cuts = [
        distribute_tensor(w.detach().clone(), mesh, placements(w)).requires_grad_() for w in whole
    ]
    assert all(isinstance(c, DTensor) for c in cuts)
    whole.append(torch.ones(6, 5, requires_grad=True))
    cuts.append(torch.ones(6, 5, requires_grad=True))
    return [(x, optc.torch.Optimizer(x, rule, with_=with_, **given, **extra)) for x, extra in (
        (whole, {}), (cuts, more))]


def steps(a, b, count=3, first=0, without=()):
    (whole, one), (cuts, many) = a, b
    for t in range(first, first + count):
        give_grads(whole, cuts, t, without)
        one.step()
        many.step()
    return differing(whole, cuts)


def each_rule():
    from torch.distributed.tensor import Replicate, Shard, init_device_mesh
    world = dist.get_world_size()
    mesh = init_device_mesh("cpu", (world,))
    found = {}
    every = world == 2 or os.environ.get("OPTC_ALL")
    for rule, with_, given in RULES if every else RULES[2:3] + RULES[4:]:
        a, b = pair(rule, with_, given, mesh, lambda w: [Shard(0)])
        found[rule, tuple(with_), "rows"] = steps(a, b)
        found[rule, tuple(with_), "without some"] = steps(a, b, 2, 3, without=(0, 4))
    for rule, with_, given in RULES[:3] if every else RULES[1:2]:
        a, b = pair(rule, with_, given, mesh, lambda w: [Shard(w.dim() - 1)])
        found[rule, tuple(with_), "columns"] = steps(a, b)
    if world == 4:
        grid = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"))
        for rule, with_, given in RULES[:3]:
            a, b = pair(rule, with_, given, grid, lambda w: [Replicate(), Shard(0)])
            found[rule, tuple(with_), "hybrid"] = steps(a, b)
    return {k: v for k, v in found.items() if v}


def whole_of(x):
    return x.full_tensor() if hasattr(x, "full_tensor") else x


def stacks():
    """Matrices stacked in one parameter, cut between matrices and inside them, on two replicas of
    two pieces. States are those of one process, also after loading."""
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor, init_device_mesh
    grid = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"))
    found = {}
    for rule in ("muon", "soap", "psgd"):
        torch.default_generator.manual_seed(0)
        whole = [torch.randn(s).requires_grad_() for s in ((40, 6), (16, 5), (10, 4), (6, 6))]
        cuts = [
            distribute_tensor(w.detach().clone(), grid, [Replicate(), Shard(0)]).requires_grad_()
            for w in whole
        ]
        plain = [w.detach().clone().requires_grad_() for w in whole]
        a, b, again = [(x,
                        optc.torch.Optimizer([(str(i), p) for i, p in enumerate(x)], rule,
                                             sort=lambda *_: True, split={"0": 5, "1": 4, "2": 5}))
                       for x in (whole, cuts, plain)]
        again[1].param_groups[0]["params"] = cuts      # as fully_shard after the optimizer was made
        again = cuts, again[1]
        found[rule] = steps(a, b)
        one, many = (opt.state_dict() for _, opt in (a, b))
        found[rule] += [(i, k) for i, own in one["state"].items() for k, v in own.items()
                        if not torch.equal(v, whole_of(many["state"][i][k]))]
        again[1].load_state_dict(many)
        found[rule] += steps(a, again, 2, 3)
    return {k: v for k, v in found.items() if v}


def steered():
    """Groups with schedulers, a closure, an added group, frozen parameters that start, and a copied
    optimizer."""
    import copy
    from torch.distributed.tensor import Shard, init_device_mesh
    mesh = init_device_mesh("cpu", (2,))
    a, b = pair("soap", ["clip(1)"], {}, mesh, lambda w: [Shard(0)])
    schedules = [torch.optim.lr_scheduler.ExponentialLR(opt, 0.5) for _, opt in (a, b)]
    found = [steps(a, b, 2)]
    for s in schedules:
        s.step()
    give_grads(a[0], b[0], 7)
    found.append([opt.step(lambda: torch.tensor(3.0)).item() for _, opt in (a, b)] != [3.0, 3.0])
    found.append(differing(a[0], b[0]))
    more = torch.full((10, 4), 0.5)
    # binds again: states that one rank holds may move
    for k, (params, opt) in enumerate((a, b)):
        p = cut(more, cut(more, _placed_like(params, mesh, more))) if k else more.clone()
        p.requires_grad_()
        params.append(p)
        opt.add_param_group({"params": [p], "lr": 0.125})
    found.append(steps(a, b, 2, 8))
    copies = [copy.deepcopy(opt) for _, opt in (a, b)]
    a, b = [([p for g in opt.param_groups for p in g["params"]], opt) for opt in copies]
    found.append(steps(a, b, 2, 10))
    return found


def _placed_like(params, mesh, whole):
    from torch.distributed.tensor import Shard, distribute_tensor
    return distribute_tensor(whole, mesh, [Shard(0)])


def mixed():
    """Parameters of two types are two bindings with one clip."""
    from torch.distributed.tensor import Shard, distribute_tensor, init_device_mesh
    mesh = init_device_mesh("cpu", (2,))
    found = {}
    for rule in ("adamw", "muon"):
        whole = [w.detach().to(torch.bfloat16 if i % 2 else torch.float32).requires_grad_()
                 for i, w in enumerate(whole_tensors())]
        cuts = [
            distribute_tensor(w.detach().clone(), mesh, [Shard(0)]).requires_grad_() for w in whole
        ]
        a, b = [(x, optc.torch.Optimizer(x, rule, with_=["clip(0.1)"])) for x in (whole, cuts)]
        found[rule] = steps(a, b)
        assert len(
            b[1]._bounds) == 2 and a[1].value("clip.grad_norm") == b[1].value("clip.grad_norm")
    return {k: v for k, v in found.items() if v}


def tensor_parallel():
    """FSDP2 and tensor parallelism on a mesh of 2 x 2: some rows are cut by both
    (_StridedShard)."""
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor import init_device_mesh
    from torch.distributed.tensor.parallel import (
        ColwiseParallel, RowwiseParallel, parallelize_module)
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    found, strided = {}, 0
    for rule, with_, given in (("adamw", [], {}), *RULES):
        torch.default_generator.manual_seed(3)
        one = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Tanh(), torch.nn.Linear(8, 3),
                                  torch.nn.LayerNorm(3))
        torch.default_generator.manual_seed(3)
        many = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Tanh(), torch.nn.Linear(8, 3),
                                   torch.nn.LayerNorm(3))
        parallelize_module(many, mesh["tp"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
        fully_shard(many, mesh=mesh["dp"])
        whole, cuts = list(one.parameters()), list(many.parameters())
        strided += sum(type(x).__name__ == "_StridedShard" for p in cuts for x in p.placements)
        a, b = [(x, optc.torch.Optimizer(x, rule, with_=with_, **given)) for x in (whole, cuts)]
        wrong = steps(a, b)
        # within rounding for another tensor-parallel layout
        if rule in ("muon", "soap", "lamb") or with_:
            for w, c in zip(whole, cuts):
                torch.testing.assert_close(here(w.detach(), c), local(c), rtol=1e-4, atol=1e-5)
        else:
            found[rule] = wrong
    return strided > 0, found


def data_parallel():
    """Every rank has the whole model. With process_group the ranks share the matrices."""
    found = {}
    for rule, with_, given in RULES[2:4]:
        a, b = ([t.detach().clone().requires_grad_() for t in whole_tensors()] for _ in range(2))
        one = a, optc.torch.Optimizer(a, rule, with_=with_, **given)
        many = b, optc.torch.Optimizer(b, rule, with_=with_, process_group=dist.group.WORLD,
                                       **given)
        found[rule] = steps(one, many)
        assert many[1]._bounds[0].comm is not None and one[1]._bounds[0].comm is None
    return {k: v for k, v in found.items() if v}


def trained():
    """FSDP2's own gradients on two ranks are those of one process that accumulates two half
    batches."""
    from torch.distributed.fsdp import fully_shard
    torch.default_generator.manual_seed(0)
    x, y = torch.randn(16, 6), torch.randn(16, 3)
    halves = [(x[:8], y[:8]), (x[8:], y[8:])]
    found = {}
    for rule, with_, given in RULES[:4]:
        one, many = (_model() for _ in range(2))
        for layer in (many[0], many[2], many):
            fully_shard(layer)
        a, b = (
            optc.torch.Optimizer(m.parameters(), rule, with_=with_, **given) for m in (one, many))
        for _ in range(3):
            for m, opt, parts in ((one, a, halves), (many, b, halves[dist.get_rank():][:1])):
                opt.zero_grad()
                for u, v in parts:
                    (((m(u) - v) ** 2).mean() / len(parts)).backward()
                opt.step()
        found[rule] = differing(one.parameters(), many.parameters())
    return {k: v for k, v in found.items() if v}


def _model():
    torch.default_generator.manual_seed(1)
    return torch.nn.Sequential(torch.nn.Linear(6, 9), torch.nn.Tanh(), torch.nn.Linear(9, 3))


def refused():
    """Mistakes that all ranks see, and a gradient that one rank lacks."""
    from torch.distributed.tensor import Shard, distribute_tensor, init_device_mesh
    case, me = Case(), dist.get_rank()
    mesh = init_device_mesh("cpu", (2,))
    p = distribute_tensor(torch.randn(8, 4), mesh, [Shard(0)]).requires_grad_()
    p.grad = distribute_tensor(torch.randn(8, 4), mesh, [Shard(0)])
    with case.assertRaisesRegex(ValueError, "release_grads=True"):
        opt = optc.torch.Optimizer([p], "lamb", release_grads=True)
        opt._bind()
    q = torch.ones(3, 3, requires_grad=True)
    q.grad = torch.ones(3, 3) if me else None
    opt = optc.torch.Optimizer([p, q], "lamb")
    before = local(p).clone()
    with case.assertRaises(optc.Error) as raised:
        opt.step()
    case.assertRegex(str(raised.exception), "gradient")
    case.assertTrue(torch.equal(before, local(p)))
    return True


def scaled():
    """A GradScaler: gradients that are not finite on one rank stop the step of all."""
    from torch.distributed.tensor import Shard, distribute_tensor, init_device_mesh
    mesh = init_device_mesh("cpu", (2,))
    found = []
    for scaler in (optc.torch.GradScaler("cpu", init_scale=8.0),
                   torch.amp.GradScaler("cpu", init_scale=8.0)):
        for rule in ("muon", "adamw", "adamw+lookahead(2)"):
            torch.default_generator.manual_seed(0)
            w = torch.randn(8, 4).requires_grad_()
            p = distribute_tensor(w.detach().clone(), mesh, [Shard(0)]).requires_grad_()
            one, many = (optc.torch.Optimizer([x], rule, lr=0.01) for x in (w, p))
            for t in range(3):
                torch.default_generator.manual_seed(t)
                w.grad = torch.randn(8, 4)
                p.grad = cut(w.grad * scaler.get_scale(), p)
                if t == 1:
                    local(p.grad)[0] = float("inf") if dist.get_rank() else 1.0
                else:
                    one.step()
                scaler.scale(torch.ones(1))
                scaler.step(many)
                scaler.update()
                found.append((rule, t, differing([w], [p]), scaler.get_scale()))
    return found


def pipelined():
    """Two stages of a pipeline, each cut over two ranks: clip's norm is over all of them, as in one
    process. The mesh of both is the root of the stages' meshes. Then stages of one rank with plain
    tensors, and a scaler."""
    from torch.distributed.tensor import Shard, distribute_tensor, init_device_mesh
    grid = init_device_mesh("cpu", (2, 2), mesh_dim_names=("pp", "dp"))
    mine, found = slice(0, 4) if dist.get_rank() < 2 else slice(4, 7), {}
    for rule, kind in (("adamw", "cut"), ("muon", "cut"), ("adamw", "plain"), ("adamw", "scaled"),
                       ("adamw+lookahead(7)", "scaled")):
        whole, group = whole_tensors(), dist.group.WORLD
        if kind == "plain":
            cuts, group = [w.detach().clone().requires_grad_() for w in whole[mine]
                           ], grid["pp"].get_group()
        else:
            cuts = [
                distribute_tensor(w.detach().clone(), grid["dp"], [Shard(0)]).requires_grad_()
                for w in whole[mine]
            ]
        one = optc.torch.Optimizer(whole, rule, with_=["clip(0.3)"])
        many = optc.torch.Optimizer(cuts, rule, with_=["clip(0.3)"], group=group)
        scalers = [
            optc.torch.GradScaler("cpu", init_scale=4.0, enabled=kind == "scaled") for _ in range(2)
        ]
        for t in range(4):
            torch.default_generator.manual_seed(1000 + t)
            for i, w in enumerate(whole):
                # once the first stage has no gradients
                w.grad = torch.randn(w.shape) if t != 1 or i > 3 else None
            if t == 2 and kind == "scaled":
                whole[5].grad[0] = float("inf")
            for w, c in zip(whole[mine], cuts):
                c.grad = None if w.grad is None else w.grad.clone() if kind == "plain" else cut(
                    w.grad, c)
            for opt, scaler in zip((one, many), scalers):
                scaler.scale(torch.ones(1))
                scaler.step(opt)
                scaler.update()
            a, b = (opt.value("clip.grad_norm") for opt in (one, many))
            found[rule, kind, t] = differing(whole[mine], cuts)
            # the stages' sums are added last
            if not (abs(a - b) <= 2 ** -51 * a or kind == "scaled" and t == 2):
                found[rule, kind, t].append((a, b))
        if scalers[1].get_scale() != (2.0 if kind == "scaled" else 1.0):
            found[rule, kind, "scale"] = scalers[1].get_scale()
    return {k: v for k, v in found.items() if v}


def bound_alone():
    """A rank of group= that binds again alone: both ranks raise the error, at once and without a
    step. When the other one binds too, they go on. Then with a block that is too small for the
    values, which follow in another message."""
    from optc.torch import _multi_binding
    found = []
    for block in (_multi_binding.BLOCK, _multi_binding.HEAD):
        p, _multi_binding.BLOCK = torch.zeros(2, requires_grad=True), block
        opt = optc.torch.Optimizer([p], "sgd", with_=["clip(1)"], lr=1.0, momentum=0.0,
                                   group=dist.group.WORLD)
        p.grad = torch.tensor([3.0, 4.0])
        for who in (None, 0, 1):
            if dist.get_rank() == who:
                opt.load_state_dict(opt.state_dict())
            try:
                opt.step()
                said = ""
            except RuntimeError as e:
                said = str(e)
            found.append((p.tolist(), said))
    return found


def dies():
    from torch.distributed.tensor import Shard, init_device_mesh
    mesh = init_device_mesh("cpu", (3,))
    a, b = pair("muon", ["clip(1)"], {}, mesh, lambda w: [Shard(0)])
    wrong = steps(a, b, 1)
    if dist.get_rank() == 2:
        os._exit(0)
    begin = time.monotonic()
    try:
        steps(a, b, 1)
        return "the step succeeded"
    except RuntimeError as e:
        try:
            b[1].step()
            return "a step after the failure succeeded"
        except (RuntimeError, optc.Error):
            return wrong, type(e).__module__ != "optc", time.monotonic() - begin


def two_ranks():
    return each_rule(), steered(), {**data_parallel(),
                                    **mixed()}, trained(), refused(), scaled(), bound_alone()


def four_ranks():
    return each_rule(), stacks(), tensor_parallel(), pipelined()


class ShardedRules(Case):
    def test_two_ranks(self):
        for rules, steered, replicas, trained, refused, scaled, alone in in_ranks(2, two_ranks):
            self.assertEqual((rules, replicas, trained), ({}, {}, {}))
            self.assertEqual(steered, [[], False, [], [], []])
            self.assertTrue(refused)
            for (p, said), (q, failed), (r, again) in (alone[:3], alone[3:]):
                self.assertEqual((said, q, again), ("", p, ""))
                self.assertIn("the ranks [0] of the group bind their parameters, while the ranks "
                              "[1] step", failed)
                for a, b, c in zip(p, r, (-3, -4)):    # each step has the length 1 over both ranks
                    self.assertAlmostEqual(a, c / 50 ** 0.5, places=5)
                    self.assertAlmostEqual(b, 2 * c / 50 ** 0.5, places=5)
            self.assertEqual([x for _, _, x, _ in scaled], [[]] * 18)
            self.assertEqual([x for _, _, _, x in scaled], [8, 4, 4, 4, 2, 2, 2, 1, 1] * 2)

    def test_four_ranks(self):
        for rules, stacks, (strided, parallel), pipelined in in_ranks(4, four_ranks):
            self.assertEqual((rules, stacks, pipelined), ({}, {}, {}))
            self.assertTrue(strided)
            self.assertEqual(parallel, {"adamw": []})

    def test_a_rank_that_dies(self):
        for said in in_ranks(3, dies, dying=(2,))[:2]:
            self.assertIsInstance(said, tuple, said)
            wrong, _, seconds = said
            self.assertEqual(wrong, [])
            self.assertLess(seconds, 20)
