"""Distributed checkpoints of sharded optimizers: saved by four ranks, loaded by two, by one and by
a plain process. Each run continues with the bits of one process that never stopped."""
import copy
import tempfile

import torch
import torch.distributed as dist

import optc.torch
from case import Case
from pieces import cut, differing, give_grads, local
from ranks import in_ranks

RULES = {
    "clip": ("adamw", ["clip(0.5)"], {}), "muon": ("muon", [], {"lr": 0.02}),
    "soap": ("soap", [], {}), "lamb": ("lamb", ["ema(0.9)"], {})
}
TRIANGLE = "state 'C' of tensor '0.weight' is a lower triangle: row 1, column 17 is 0.25; set " \
           "values right of the diagonal to 0, or transpose the matrix"
TORCH = {"lr": 0.05, "betas": (0.8, 0.9), "weight_decay": 0.1}


def model(sharded=True, extra=True):
    """18 and 3 rows: four ranks have 5, 5, 5 and 3 of them, or 1, 1, 1 and none. The last layer has
    no gradient."""
    torch.default_generator.manual_seed(1)
    layers = [torch.nn.Linear(7, 18), torch.nn.Linear(18, 3)
              ] + ([torch.nn.Linear(3, 2, bias=False)] if extra else [])
    m = torch.nn.Sequential(*layers)
    if sharded:
        from torch.distributed.fsdp import fully_shard
        fully_shard(m)
    return m


def optimizer(m, name):
    rule, with_, given = RULES[name]
    return optc.torch.Optimizer(m.named_parameters(), rule, with_=with_, **given)


def run(m, opt, one, first, count):
    """Steps both models with the same gradients; the last parameter has none. Numbers of parameters
    that differ."""
    whole, cuts = list(one[0].parameters()), list(m.parameters())
    for t in range(first, first + count):
        give_grads(whole, cuts, t, without=(4,))
        one[1].step()
        opt.step()
    return differing(whole, cuts)


def never_stopped(name):
    one = model(False)
    return one, optimizer(one, name)


def save(folder):
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.state_dict import (
        get_model_state_dict, get_optimizer_state_dict)
    found, keys = {}, {}
    for name in RULES:
        m = model()
        opt, one = optimizer(m, name), never_stopped(name)
        found[name] = run(m, opt, one, 0, 2)
        states = get_optimizer_state_dict(m, opt)
        keys[name] = {k: sorted(own) for k, own in states["state"].items()}
        dcp.save({"model": get_model_state_dict(m), "optim": states},
                 checkpoint_id="%s/%s" % (folder, name))
        found[name] += run(m, opt, one, 2, 2)          # saving changed nothing
    return found, keys


def load(folder, sharded=True):
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.state_dict import get_model_state_dict, \
        get_optimizer_state_dict, set_model_state_dict, set_optimizer_state_dict
    found = {}
    for name in RULES:
        m, one = model(sharded), never_stopped(name)
        opt = optimizer(m, name)
        with torch.no_grad():
            for p in m.parameters():
                p.mul_(3)
        found[name] = run(one[0], one[1], never_stopped(name), 0, 2)
        files = {"model": get_model_state_dict(m), "optim": get_optimizer_state_dict(m, opt)}
        dcp.load(files, checkpoint_id="%s/%s" % (folder, name))
        set_model_state_dict(m, files["model"])
        set_optimizer_state_dict(m, opt, files["optim"])
        found[name] += run(m, opt, one, 2, 2)
    return {k: v for k, v in found.items() if v}


def on_one(folder):
    return load(folder), load(folder, False)


def of_torch(folder):
    """torch's AdamW under FSDP2 and optc's read each other's files."""
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.state_dict import (
        get_optimizer_state_dict, set_optimizer_state_dict)
    found = []
    for first, second in ((torch.optim.AdamW, optc.torch.AdamW), (optc.torch.AdamW,
                                                                  torch.optim.AdamW)):
        a, b = model(extra=False), model(extra=False)
        oa, ob = first(a.parameters(), **TORCH), second(b.parameters(), **TORCH)
        same = [torch.zeros(p.shape) for p in a.parameters()]
        for t in range(2):
            give_grads(same, list(a.parameters()), t)
            oa.step()
        where = "%s/%s" % (folder, first.__module__)
        dcp.save({"optim": get_optimizer_state_dict(a, oa)}, checkpoint_id=where)
        files = {"optim": get_optimizer_state_dict(b, ob)}
        dcp.load(files, checkpoint_id=where)
        set_optimizer_state_dict(b, ob, files["optim"])
        with torch.no_grad():
            for p, q in zip(a.parameters(), b.parameters()):
                local(q).copy_(local(p))
        give_grads(same, list(a.parameters()), 5)
        for p, q in zip(a.parameters(), b.parameters()):
            q.grad = p.grad.detach().clone()
        oa.step()
        ob.step()
        found += [torch.allclose(local(p), local(q), rtol=1e-6, atol=1e-7)
                  for p, q in zip(a.parameters(), b.parameters())]
    return found


def whole_files():
    """state_dict() of one process into ranks, of ranks into themselves, and edited states."""
    from torch.distributed.tensor import DTensor
    found = {}
    for name in RULES:
        m, one = model(), never_stopped(name)
        opt = optimizer(m, name)
        run(m, opt, one, 0, 2)
        again = optimizer(m, name)
        again.load_state_dict(one[1].state_dict())     # each takes its pieces, or its matrices
        found[name] = run(m, again, one, 2, 1)
        third, saved = optimizer(m, name), copy.deepcopy(again.state_dict())
        third.load_state_dict(saved)
        found[name] += run(m, third, one, 3, 1)
        names = set(one[1].state_dict()["state"][0])
        shown = third.state_dict()["state"][0]
        # states per tensor (ema.exchanged) are the same on all ranks: plain tensors
        assert set(shown) == names and all(
            isinstance(v, DTensor) for v in shown.values() if v.dim()), shown
        for k, v in one[1].state_dict()["state"][0].items():
            if v.dim():
                assert torch.equal(v, shown[k].full_tensor()), (name, k)
                with torch.no_grad():
                    one[1].state[one[0][0].weight][k].mul_(0.5)
                third.state[m[0].weight][k] = cut(v, shown[k])          # v shows the edited state
        found[name] += run(m, third, one, 4, 1)
    return {k: v for k, v in found.items() if v}


def triangles():
    """Values right of the diagonal of psgd_kron's C, which one rank holds: given whole, and in the
    rows of one rank. The errors, whether parameters stayed, and whether the file without them is
    loaded."""
    m, found = model(extra=False), []
    opt = optc.torch.Optimizer(m.named_parameters(), "psgd_kron", lr=0.01)
    give_grads(list(model(False, False).parameters()), list(m.parameters()), 0)
    opt.step()
    saved, was = opt.state_dict(), [local(p).clone() for p in m.parameters()]
    bad, good = saved["state"][0]["C"].full_tensor(), saved["state"][0]["C"]
    bad.view(18, 18)[1, 17] = 0.25
    for value in (bad, cut(bad, good)):
        try:
            opt.load_state_dict(
                {**saved, "state": {**saved["state"], 0: {**saved["state"][0], "C": value}}})
            opt.step()
        except ValueError as e:
            found.append(str(e))
    found.append(all(torch.equal(local(p), x) for p, x in zip(m.parameters(), was)))
    opt.load_state_dict(saved)
    opt.step()
    return found


def two(folder):
    return load(folder), of_torch(folder), whole_files(), triangles()


class ShardedFiles(Case):
    def test_save_on_four_load_on_two_and_one(self):
        with tempfile.TemporaryDirectory() as folder:
            said = in_ranks(4, save, folder)
            self.assertEqual([found for found, _ in said], [{k: [] for k in RULES}] * 4)
            self.assertEqual([keys for _, keys in said], [said[0][1]] * 4)
            self.assertEqual(len(said[0][1]["soap"]), 5)
            self.assertEqual(in_ranks(2, two, folder),
                             [({}, [True] * 8, {}, 2 * [TRIANGLE] + [True])] * 2)
            self.assertEqual(in_ranks(1, on_one, folder), [({}, {})])
