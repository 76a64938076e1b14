"""Continues a run of torch.optim.AdamW with optc and back, and a run of any rule from a checkpoint
without a change."""
import io

import optc.torch
import torch
from small import fresh, train


def saved(net, opt):
    file = io.BytesIO()
    torch.save({"net": net.state_dict(), "opt": opt.state_dict()}, file)
    file.seek(0)
    return file


def resumed(file, make):
    net = fresh()
    opt = make(net)
    state = torch.load(file)
    net.load_state_dict(state["net"])
    opt.load_state_dict(state["opt"])
    return net, opt


def through(*kinds):
    """100 steps with each kind in turn, a file between them."""
    net = fresh()
    opt = kinds[0](net)
    losses = train(net, opt, 100)
    for i, kind in enumerate(kinds[1:], 1):
        net, opt = resumed(saved(net, opt), kind)
        losses += train(net, opt, 100, first=100 * i)
    return losses


def theirs(net):
    return torch.optim.AdamW(net.parameters(), lr=3e-3)


def ours(net):
    return optc.torch.AdamW(net.parameters(), lr=3e-3)


def averaged(net):
    return optc.torch.Optimizer(net.parameters(), "lion+ema(0.99)", lr=1e-3)


whole, mixed = through(theirs, theirs, theirs), through(theirs, ours, theirs)
print("torch, torch, torch: %.4f   torch, optc, torch: %.4f" % (whole[-1], mixed[-1]))
assert max(abs(a - b) for a, b in zip(whole, mixed)) < 1e-2
once, twice = train(net := fresh(), averaged(net), 200), through(averaged, averaged)
print("lion+ema(0.99): %.4f in one go, %.4f through a file" % (once[-1], twice[-1]))
assert once == twice
