"""Sharded parameters in two processes (DTensor, FSDP2) are stepped like whole ones in one process,
by rules that need no communication."""
import copy

import torch

import optc.torch
from case import X, Y, Case, model
from ranks import in_ranks

WORLD = 2


def near(a, b):
    torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)


def pieces():
    """Cut by rows (unevenly, one empty), by columns, and whole; states as DTensors, loaded from
    whole ones and copied."""
    from torch.distributed.tensor import (DTensor, Replicate, Shard, distribute_tensor,
                                          init_device_mesh)
    mesh = init_device_mesh("cpu", (WORLD,))
    torch.default_generator.manual_seed(0)
    at = [Shard(0), Shard(1), Shard(0), Replicate()]
    whole = [torch.randn(s, requires_grad=True) for s in ((5, 3), (4, 6), (1,), (3,))]
    cut = [
        distribute_tensor(w.detach().clone(), mesh, [a]).requires_grad_()
        for w, a in zip(whole, at)
    ]
    theirs, ours = torch.optim.AdamW(whole, lr=0.1), optc.torch.AdamW(cut, lr=0.1)

    def step(opts, t):
        torch.default_generator.manual_seed(t)
        for w, c in zip(whole, cut):
            w.grad = torch.randn(w.shape)
            c.grad = distribute_tensor(w.grad, mesh, c.placements)
        for o in opts:
            o.step()
    for t in range(3):
        step((theirs, ours), t)
    for w, c in zip(whole, cut):
        near(w, c.full_tensor())
        state = ours.state[c]["exp_avg"]
        assert isinstance(state,
                          DTensor) and state.placements == c.placements and state.shape == c.shape
        near(theirs.state[w]["exp_avg"], state.full_tensor())
    ours.load_state_dict(theirs.state_dict())          # a whole one: each takes its pieces
    step((theirs, ours), 3)
    saved = copy.deepcopy(ours.state_dict())
    again = optc.torch.AdamW(cut, lr=0.1)
    again.load_state_dict(saved)
    step((theirs, again), 4)
    for w, c in zip(whole, cut):
        near(w, c.full_tensor())
    refused(mesh, cut, Replicate, Shard)


def refused(mesh, cut, Replicate, Shard):
    from torch.distributed.tensor import distribute_tensor
    case = Case()
    alike = distribute_tensor(torch.ones(3, 3), mesh, [Replicate()]).requires_grad_()
    alike.grad = distribute_tensor(torch.ones(3, 3), mesh, [Replicate()])
    optc.torch.Optimizer([alike], "lamb").step()       # everybody has the whole of it
    case.assertLess(alike.full_tensor().max().item(), 1)
    cut[0].grad = distribute_tensor(torch.ones(5, 3), mesh, [Replicate()])
    with case.assertRaisesRegex(RuntimeError, "placed as .*redistribute"):
        optc.torch.SGD(cut[:1]).step()
    with case.assertRaisesRegex(ValueError, "saved as a DTensor"):
        plain = optc.torch.AdamW([torch.ones(3, requires_grad=True)])
        plain.state[plain.param_groups[0]["params"][0]] = {
            "step": torch.ones(()), "exp_avg": cut[3], "exp_avg_sq": torch.ones(3)
        }
        plain.param_groups[0]["params"][0].grad = torch.ones(3)
        plain.step()


def fsdp():
    """FSDP2's loop: its parameters are DTensors whose local tensors are its own."""
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor import init_device_mesh
    a, b = model(), model()
    fully_shard(b, mesh=init_device_mesh("cpu", (WORLD,)))
    oa, ob = torch.optim.AdamW(a.parameters(), lr=0.02), optc.torch.AdamW(b.parameters(), lr=0.02)
    for _ in range(4):
        for m, o in ((a, oa), (b, ob)):
            o.zero_grad()
            ((m(X) - Y) ** 2).mean().backward()
            o.step()
    for p, q in zip(a.parameters(), b.parameters()):
        near(p, q.full_tensor())


def coded():
    """States in block codes: codes and scales are cut as the parameter, and are those of the
    whole."""
    from torch.distributed.tensor import (DTensor, Shard, Replicate, distribute_tensor,
                                          init_device_mesh)
    mesh = init_device_mesh("cpu", (WORLD,))
    torch.default_generator.manual_seed(0)
    whole = [torch.randn(s, requires_grad=True) for s in ((64, 128), (4100,))]
    cut = [distribute_tensor(w.detach().clone(), mesh, [a]).requires_grad_()
           for w, a in zip(whole, (Shard(0), Replicate()))]
    a, b = (optc.torch.AdamW(x, types="state=q8") for x in (whole, cut))

    def step(t):
        torch.default_generator.manual_seed(t)
        for w, c in zip(whole, cut):
            w.grad = torch.randn(w.shape)
            c.grad = distribute_tensor(w.grad, mesh, c.placements)
        a.step()
        b.step()

    def same():
        for w, c in zip(whole, cut):
            assert torch.equal(w, c.full_tensor())
            for k, v in a.state[w].items():
                here = b.state[c][k]
                assert torch.equal(torch.as_tensor(v), torch.as_tensor(
                    here.full_tensor() if isinstance(here, DTensor) else here)), k
    step(0)
    step(1)
    same()
    for k, file in enumerate((a, b)):                  # of the whole, and of the pieces
        b.load_state_dict(copy.deepcopy(file.state_dict()))
        step(2 + k)
        same()
    odd = distribute_tensor(torch.randn(65, 128), mesh, [Shard(0)]).requires_grad_()
    opt = optc.torch.AdamW([odd], types="state=q8")
    odd.grad = odd.detach().clone()
    before = odd.to_local().clone()
    try:
        opt.step()
        raise AssertionError("a state whose scales cannot be cut was taken")
    except ValueError as e:
        assert "store it as f32" in str(e), e
    assert torch.equal(before, odd.to_local())


def both():
    pieces()
    fsdp()
    coded()


class Sharded(Case):
    def test_two_processes(self):
        self.assertEqual(in_ranks(WORLD, both), [None] * WORLD)
