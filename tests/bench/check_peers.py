#!/usr/bin/env python3
"""Checks the rules of torch_factors.py against tests/specs/refs in f64.

    python3 tests/bench/check_peers.py        needs torch; prints the difference of weights, and
                                              fails beyond 1e-12
"""
import os
import sys

import numpy as np
import torch

import torch_factors

REFS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "specs", "refs")
# of hyperparameters, where they differ
NAMES = {"relative_eps": "relative", "weight_decay": "decay"}


def value(k, s, shape):
    """As in tests/specs/make_refs.py: tensor k's numbers of stream s."""
    with np.errstate(over="ignore"):
        z = np.uint64(k << 48 | s << 32) | np.arange(int(np.prod(shape)), dtype=np.uint64)
        z += np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z = (z ^ (z >> np.uint64(31))) >> np.uint64(40)
    return ((z.astype(np.int64) - 8388608) / 8388608.0).reshape(shape)


def gradient(k, s, shape):
    return value(k, s, shape) * 2.0 ** -(np.arange(int(np.prod(shape))).reshape(shape) % 4)


def read(name):
    with open(os.path.join(REFS, name + ".ref"), "rb") as f:
        head, _, data = f.read().partition(b"\n\n")
    return dict(line.split(" ", 1) for line in head.decode().split("\n")[1:]), np.frombuffer(
        data, "<f8")


def pairs(text):
    return dict(item.split("=") for item in filter(None, text.split(",")))


def apart(name, rule):
    head, want = read(name)
    shapes = [() if s == "s" else tuple(map(int, s.split("x"))) for s in head["shapes"].split()]
    hyper = {k: float(v) for k, v in pairs(head["hyper"]).items()}
    options = {k: {"false": False}.get(v, int(v) if v.isdigit() else v)
               for k, v in pairs(head.get("options", "")).items() if k != "graft"}
    kept = {
        k: torch.nn.Parameter(torch.tensor(0.5 * value(k, 0, s))) for k, s in enumerate(shapes)
        if len(s) <= 2
    }
    for p in kept.values():
        p.grad = torch.zeros_like(p)
    made = type("There", (rule,), {NAMES.get(k, k): v for k, v in hyper.items() if "." not in k})
    there = made(list(kept.values()), **options)
    if rule is torch_factors.Soap:
        there.rest.param_groups[0].update(
            lr=hyper["adamw.lr"], betas=(hyper["adamw.beta1"], hyper["adamw.beta2"]),
            eps=hyper["adamw.eps"], weight_decay=hyper["adamw.weight_decay"])
    worst, at = 0.0, 0
    for t in range(1, int(head["steps"]) + 1):
        for k, p in kept.items():
            p.grad.copy_(torch.tensor(gradient(k, t, shapes[k])))
        there.step()
        for k, s in enumerate(shapes if str(t) in head["saved"].split() else []):
            n = int(np.prod(s))
            if k in kept:
                worst = max(worst,
                            np.abs(kept[k].detach().numpy() - want[at:at + n].reshape(s)).max())
            at += n
    return worst


torch.set_default_dtype(torch.float64)
rows = [(n, torch_factors.Shampoo) for n in ("shampoo_adam", "shampoo_blocks", "shampoo_sides")]
rows += [(n, torch_factors.Soap) for n in ("soap", "soap_sides", "soap_identity")]
results = [(name, apart(name, rule)) for name, rule in rows]
for name, off in results:
    print(f"{name:16} {off:.1e}")
sys.exit(any(not off <= 1e-12 for _, off in results))
