"""Sharded training, by torch's own parts: fully_shard, CPU offload, accumulation, GradScaler,
averages, checkpoints. Each check trains a model under FSDP2 and steps a plain copy with the same
gradients: the bits must be equal. The checks run on any device and number of ranks:
test_shard_checks.py runs them by gloo, tests/gpu/sharded.py on GPUs."""
import contextlib
import tempfile

import torch
import torch.distributed as dist

import optc.torch
from optc.torch import _optimizer
from optc.torch._sharded import is_sharded
from pieces import differing, local

RULES = {
    "adamw+clip": ("adamw", ["clip(0.5)"], {}), "muon": ("muon", [], {"lr": 0.02}),
    "soap": ("soap", [], {})
}


@contextlib.contextmanager
def gathers():
    """Sharded parameters step as with several ranks, also if there is only one."""
    was = _optimizer.ranks_of

    def ranks_of(opt):
        cut = any(is_sharded(p) for g in opt.param_groups for p in g["params"])
        return tuple(range(dist.get_world_size())) if cut else None
    _optimizer.ranks_of = ranks_of
    try:
        yield
    finally:
        _optimizer.ranks_of = was


class Training:
    """A model under FSDP2 on a device, and a plain copy of its parameters."""

    def __init__(self, device, name, with_=(), types=None, offload=False, **fsdp):
        from torch.distributed.fsdp import CPUOffloadPolicy, fully_shard
        from torch.distributed.tensor import init_device_mesh
        torch.manual_seed(1)
        self.device, self.name = device, name
        self.model = torch.nn.Sequential(torch.nn.Linear(6, 18), torch.nn.Tanh(),
                                         torch.nn.Linear(18, 9), torch.nn.LayerNorm(9),
                                         torch.nn.Linear(9, 3)).to(device)
        self.mesh = init_device_mesh(device, (dist.get_world_size(),))
        if offload:
            fsdp["offload_policy"] = CPUOffloadPolicy(pin_memory=device == "cuda")
        for layer in (self.model[0], self.model[2], self.model):
            fully_shard(layer, mesh=self.mesh, **fsdp)
        self.cuts = list(self.model.parameters())
        self.whole = [x.clone().requires_grad_() for x in wholes(self.cuts)]
        self.opt, self.one = (self.optimizer(x, with_, types) for x in (self.cuts, self.whole))

    def optimizer(self, params, with_=(), types=None):
        rule, own, given = RULES[self.name]
        return optc.torch.Optimizer(params, rule, with_=[*own, *with_], types=types, **given)

    def backward(self, t, parts=1, scale=1.0):
        """Gradients of a batch, in `parts` parts, for the model and for the copy."""
        for i in range(parts):
            torch.manual_seed(100 * t + 10 * i + dist.get_rank())
            x, y = torch.randn(4, 6, device=self.device), torch.randn(4, 3, device=self.device)
            self.model.set_requires_gradient_sync(i == parts - 1)
            (((self.model(x) - y) ** 2).mean() * scale).backward()
        self.copy_grads(scale)

    def copy_grads(self, scale=1.0):
        for w, g in zip(self.whole, wholes([c.grad for c in self.cuts])):
            w.grad = g / scale

    def run(self, first=0, count=2, parts=1):
        for t in range(first, first + count):
            self.opt.zero_grad()
            self.backward(t, parts)
            self.opt.step()
            self.one.step()
        self.check()

    def check(self):
        assert self.opt._bounds[0].comm is not None, "the ranks step alone"
        wrong = differing(self.whole, self.cuts)
        assert not wrong, "%s: parameters %s differ from those of one process" % (self.name, wrong)


def wholes(cuts):
    """The whole tensors of all parameters or gradients, in one message: DTensor's full_tensor takes
    milliseconds. fully_shard cuts rows."""
    every = [None] * dist.get_world_size()
    dist.all_gather_object(every, [local(x).cpu() for x in cuts])
    return [torch.cat(rows).to(x.device) for x, rows in zip(cuts, zip(*every))]


def whole(x):
    return local(x) if dist.get_world_size() == 1 or not is_sharded(x) else x.full_tensor()


# ---- checks; each is called with the device, and the name of a rule ----
def reshards(device, name):
    Training(device, name, reshard_after_forward=True).run()


def keeps_forward(device, name):
    """reshard_after_forward=False: the model's parameters stay whole between forward and
    backward."""
    Training(device, name, reshard_after_forward=False).run()


def offloads(device, name):
    """CPUOffloadPolicy: parameters, gradients and states are on the CPU. States share memory with
    the library."""
    x = Training(device, name, offload=True)
    x.run()
    assert all(p.device.type == "cpu" for p in x.cuts)
    for p in x.cuts:
        for key, v in x.opt.state[p].items():
            assert not isinstance(v, torch.Tensor) or v.device.type == "cpu", (key, v.device)
    shown = {
        k: local(v).clone() for k, v in x.opt.state[x.cuts[0]].items()
        if isinstance(v, torch.Tensor)
    }
    live = x.opt.state[x.cuts[0]]
    x.run(3, 1)
    for key, was in shown.items():                     # a copy would not have followed the step
        assert not was.numel() or not torch.equal(was, local(live[key])), key


def accumulates(device, name):
    Training(device, name).run(parts=3)


def averages(device, name):
    x = Training(device, name, with_=["ema(0.9)"])
    x.run()
    # SOAP's averages are at the owner
    one, many = (opt.state_dict()["state"] for opt in (x.one, x.opt))
    for i in one:
        assert torch.equal(one[i]["ema.avg"], whole(many[i]["ema.avg"])), i


def mixes(device, name):
    """DTensors and plain tensors in one list."""
    x = Training(device, name)
    plain = [torch.ones(6, 5, device=device, requires_grad=True) for _ in range(2)]
    x.opt.add_param_group({"params": [plain[0]], "lr": 0.25})
    x.one.add_param_group({"params": [plain[1]], "lr": 0.25})
    for t in range(3):
        x.opt.zero_grad()
        x.backward(t)
        torch.manual_seed(t)
        plain[0].grad = torch.randn(6, 5).to(device)
        plain[1].grad = plain[0].grad.clone()
        x.opt.step()
        x.one.step()
    x.check()
    assert torch.equal(*plain)


def scales(device, name):
    """Gradients that are not finite on one rank skip the step of all. The copy is stepped through
    the scaler too: optc's scaler makes another program of the rule, whose products may round
    differently."""
    for scaler in (optc.torch.GradScaler(device, init_scale=8.0),
                   torch.amp.GradScaler(device, init_scale=8.0)):
        x = Training(device, name)
        for t in range(4):
            x.opt.zero_grad()
            scale = scaler.get_scale()
            scaler.scale(torch.ones(1, device=device))
            x.backward(t, scale=scale)
            x.copy_grads()                             # scaled
            if t == 1:
                bad = [p for p in x.cuts if local(p.grad).numel()][0]
                if dist.get_rank() == dist.get_world_size() - 1:
                    local(bad.grad).view(-1)[0] = float("inf")
                x.whole[0].grad.view(-1)[0] = float("inf")
            scaler.step(x.opt)
            scaler.step(x.one)
            scaler.update()
            assert scaler.get_scale() == (scale / 2 if t == 1 else scale)
            x.check()


def saves(device, name):
    """torch.distributed.checkpoint, into another model with other numbers."""
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
    x = Training(device, name)
    x.run()
    folder = [tempfile.mkdtemp() if dist.get_rank() == 0 else None]
    dist.broadcast_object_list(folder)
    weights, states = get_state_dict(x.model, x.opt)
    dcp.save({"model": weights, "optim": states}, checkpoint_id=folder[0])
    y = Training(device, name)
    with torch.no_grad():
        for p in y.cuts:
            local(p).mul_(3)
    weights, states = get_state_dict(y.model, y.opt)
    files = {"model": weights, "optim": states}
    dcp.load(files, checkpoint_id=folder[0])
    set_state_dict(y.model, y.opt, model_state_dict=files["model"], optim_state_dict=files["optim"])
    y.whole, y.one = x.whole, x.one
    y.run(3, 2)


def captures(device, name):
    """A captured step with its collectives, replayed three times. A rule whose steps differ refuses
    by name."""
    x = Training(device, name)
    x.run()
    x.opt.zero_grad()
    x.backward(3)
    x.opt.step()                                       # the addresses of these gradients
    x.one.step()
    torch.cuda.synchronize()
    graph, said = torch.cuda.CUDAGraph(), ""
    try:
        with torch.cuda.graph(graph):
            try:
                x.opt.step()
            except optc.Error as e:
                said = str(e)
    except RuntimeError:                               # an empty graph
        assert said
    if name == "soap":
        assert "cannot be captured" in said and "soap" in said, said
    else:
        assert not said, said
        for _ in range(3):
            graph.replay()
            x.one.step()
    torch.cuda.synchronize()
    x.check()


def differs(device, name):
    """A gradient that one rank lacks is an error on all ranks, at that step or later, and nothing
    changes."""
    x = Training(device, name)
    x.run()
    x.backward(3)
    if dist.get_rank() == dist.get_world_size() - 1 and dist.get_world_size() > 1:
        x.cuts[1].grad = None
    said = ""
    try:
        x.opt.step()
        if device == "cuda":
            torch.cuda.synchronize()
            x.opt.step()
    except optc.Error as e:
        said = str(e)
    if dist.get_world_size() > 1:
        assert "gradient on rank" in said, said
        x.check()
    else:
        assert not said, said


CHECKS = (reshards, keeps_forward, offloads, accumulates, averages, mixes, scales, saves, differs)
