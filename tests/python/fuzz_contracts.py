"""A differential fuzzer of torch.optim's contract: the twelve rules that torch has, optc's and
torch's optimizer side by side on equal copies, random sequences of the edits in contract_edits.py,
compared after each.

    python3 tests/python/fuzz_contracts.py STEPS [SEED]   runs that many edits, from that seed on
    python3 tests/python/fuzz_contracts.py --replay SEED [NUMBERS]    one sequence, or these of its
                                                          edits

A failing sequence is shortened and printed as the arguments of --replay. Rules run on the reference
evaluator, which needs no compiler; OPTC_FUZZ_COMPILED=1 uses the compiled ones. OPTC_FUZZ_MOST is
the number of failures to look for.

What optc does otherwise on purpose, so that no edit does it: a value out of range, or a state of
another shape in a file, is refused by name; torch takes both. States of parameters that are in no
group are left out of files; torch raises a KeyError. States made in inference mode can be edited.
A file whose entry has no `step` is loaded; some of torch's rules raise a KeyError, and the sequence
ends there. Under autocast torch's Adafactor and Muon multiply in bf16; optc's do not.
torch's SGD with foreach and nesterov writes the step to p.grad; optc leaves gradients alone.
Loading shares no memory with the file's tensors, but for the optimizer's own states; in torch it
does where type and device are equal. A tensor of opt.state stays the live one, but its views do not
once tensors are bound again. A first step with lr = 0 and gradients of 0 is that of
torch.distributed.checkpoint: optc counts none, torch counts one; the fuzzer switches that off.
"""
import contextlib
import functools
import os
import random
import sys
import warnings
from unittest import mock

import torch

import optc
import optc.torch
import contract_edits_groups  # noqa: F401: adds edits
from contract_edits import EDITS, draw
from optc.torch import _engines, _state

# What torch alone refuses: an entry without a step, and a tensor as lr with foreach.
REFUSED_BY_TORCH = ("KeyError('step')", "RuntimeError('lr as a Tensor is not supported")
LENGTH = 25                                            # edits of a sequence
# Options of each rule, one is drawn. lr is small enough that 25 steps stay finite.
RULES = {
    "SGD": ({}, {"momentum": 0.9}, {"momentum": 0.9, "nesterov": True},
            {"momentum": 0.5, "dampening": 0.3}, {"weight_decay": 0.1}),
    "Adam": ({}, {"amsgrad": True}, {"weight_decay": 0.1},
             {"weight_decay": 0.1, "decoupled_weight_decay": True}),
    "AdamW": ({}, {"amsgrad": True}, {"betas": (0.0, 0.9)}), "Adamax": ({}, {"weight_decay": 0.1}),
    "NAdam": ({}, {"weight_decay": 0.1}, {"weight_decay": 0.1, "decoupled_weight_decay": True}),
    "RAdam": ({}, {"weight_decay": 0.1}, {"weight_decay": 0.1, "decoupled_weight_decay": True}),
    "RMSprop": ({}, {"momentum": 0.9}, {"centered": True}, {"centered": True, "momentum": 0.9}),
    "Rprop": ({}, {"etas": (0.4, 1.3)}), "Adadelta": ({}, {"weight_decay": 0.1}),
    "Adagrad": ({}, {"lr_decay": 0.1}, {"initial_accumulator_value": 0.5}),
    "ASGD": ({}, {"weight_decay": 0.1}),
    "Adafactor": ({}, {"weight_decay": 0.1}),
}
SHAPES = ((3,), (2, 3), (), (0,), (2, 1, 3), (2, 3, 2, 2), (3, 2), (2, 3))
BESIDE = ("step", "missed")                            # optc has them where torch has none (SGD)
# torch's Adafactor divides by the number of elements. Numbers that the others keep for a tensor
# without elements change in optc at each step, with a gradient or without one.
NOT_EMPTY = ("Adafactor", "ASGD", "NAdam")
NARROW = ("NAdam", "ASGD")                             # torch has their numbers in f32, optc in f64


class Side:
    """One of the two optimizers, its parameters and what edits keep."""

    def __init__(self, kind, seed):
        r = random.Random(seed)
        self.options = {"lr": r.choice((0.01, 0.1)), **r.choice(RULES[kind])}
        dtype = r.choice((torch.float64, torch.float64, torch.float32))
        shapes = [x for x in SHAPES if kind not in NOT_EMPTY or x != (0,)]
        shapes = [r.choice(shapes) for _ in range(r.randint(2, 5))]
        params = [torch.nn.Parameter(draw(r, x, dtype)) for x in shapes]
        at = r.randint(1, len(params))
        groups = [list(x) for x in (params[:at], params[at:]) if x]
        if r.random() < 0.3:
            groups = [[("p%d%d" % (i, j), p) for j, p in enumerate(g)]
                      for i, g in enumerate(groups)]
        self.groups = [{"params": g} for g in groups]
        self.held = self.saved = self.schedule = self.opt = None

    def start(self, ours, kind):
        where = optc.torch if ours else torch.optim
        self.make = functools.partial(getattr(where, kind), **self.options)
        self.opt = self.make(self.groups)


def run(side, name, seed):
    """The edit's exception, None if there was none."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            EDITS[name][0](side, random.Random(seed))
    except (Exception, KeyboardInterrupt) as e:
        return e
    return None


# ---- comparison ----
def same(a, b, what):
    if isinstance(a, torch.Tensor) != isinstance(b, torch.Tensor):
        return None if number(a) == number(b) else "%s: %s, torch has %s" % (what, a, b)
    if not isinstance(a, torch.Tensor):
        return None if a == b or number(a) == number(b) else "%s: %s, torch has %s" % (what, a, b)
    if a.shape != b.shape or a.dtype != b.dtype and (a.dim() or what.typed):
        return "%s: %s %s, torch has %s %s" % (what, a.dtype, tuple(a.shape), b.dtype,
                                               tuple(b.shape))
    if a.dtype == b.dtype and torch.equal(a, b):       # in a tenth of the time
        return None
    bound = 1e-9 if a.dtype == torch.float64 and what.wide else 2e-4
    a, b = a.detach().double(), b.detach().double()
    if not torch.allclose(a, b, rtol=bound, atol=bound, equal_nan=True):
        return "%s: %s, torch has %s" % (what, a.flatten()[:6].tolist(), b.flatten()[:6].tolist())
    return None


class Name(str):
    """What is compared. wide: in f64; typed: a scalar's type counts."""


def name(text, wide, typed=True):
    made = Name(text)
    made.wide, made.typed = wide, typed
    return made


def number(x):
    return x.tolist() if isinstance(x, torch.Tensor) else x


def difference(a, b):
    """The first difference of two sides in words, or None. States are read without optc's noticing,
    as a program does that does not look at them."""
    if len(a.opt.param_groups) != len(b.opt.param_groups):
        return "%d groups, torch has %d" % (len(a.opt.param_groups), len(b.opt.param_groups))
    for k, (g, h) in enumerate(zip(a.opt.param_groups, b.opt.param_groups)):
        if len(g["params"]) != len(h["params"]):
            return "group %d: %d parameters, torch has %d" % (k, len(g["params"]), len(h["params"]))
        for key in h:
            if key != "params" and (key not in g or number(g[key]) != number(h[key])):
                return "group %d: %s is %s, torch has %s" % (k, key, g.get(key), h[key])
        for i, (p, q) in enumerate(zip(g["params"], h["params"])):
            wide = p.dtype == torch.float64 and not a.narrow
            found = same(p, q, name("parameter %d.%d" % (k, i), wide))
            if found is None and (p.grad is None) != (q.grad is None):
                found = "gradient %d.%d: %s, torch has %s" % (k, i, p.grad, q.grad)
            if found is None and p.grad is not None:
                found = same(p.grad, q.grad, name("gradient %d.%d" % (k, i), wide))
            if found is None:
                mine, theirs = dict.get(a.opt.state, p, {}), dict.get(b.opt.state, q, {})
                found = entries(mine, theirs, k, i, wide)
            if found:
                return found
    return None


def entries(own, theirs, k, i, wide):
    theirs = {n: v for n, v in theirs.items() if v is not None}
    mine = {n: v for n, v in own.items() if v is not None and (n in theirs or n not in BESIDE)}
    if set(mine) != set(theirs):
        return "states of %d.%d: %s, torch has %s" % (k, i, sorted(mine), sorted(theirs))
    for n in theirs:
        found = same(mine[n], theirs[n], name("state %s of %d.%d" % (n, k, i), wide, False))
        if found:
            return found
    return None


# ---- sequences ----
def edits_of(seed):
    """[(edit, its seed)] of a sequence."""
    r, names = random.Random("edits %d" % seed), list(EDITS)
    weights = [EDITS[n][1] for n in names]
    return [(n, r.getrandbits(40)) for n in ["step"] + r.choices(names, weights, k=LENGTH - 1)]


def kind_of(seed):
    return list(RULES)[seed % len(RULES)]


def play(seed, edits):
    """Runs a sequence; returns (number of edits that ran, None or what differs)."""
    kind = kind_of(seed)
    ours, theirs = Side(kind, seed), Side(kind, seed)
    for side in (ours, theirs):
        side.start(side is ours, kind)
        side.narrow = kind in NARROW
    for n, (edit, own) in enumerate(edits):
        if edit == "step_in_autocast" and kind in ("Adafactor", "Muon"):
            continue                                   # torch's products are rounded to bf16 there
        if edit == "foreach" and kind == "SGD":
            continue                                   # with nesterov, torch writes to p.grad there
        raised = [run(side, edit, own) for side in (ours, theirs)]
        for side in (ours, theirs):
            side.narrow |= edit == "convert"
        if raised[0] is None and repr(raised[1]).startswith(REFUSED_BY_TORCH):
            return n + 1, None
        if (raised[0] is None) != (raised[1] is None):
            return n + 1, "%s: %r, torch: %r" % (edit, *raised)
        if raised[0] is not None and type(raised[0]).__name__ == "AssertionError":
            return n + 1, "%s: %r" % (edit, raised[0])
        found = difference(ours, theirs)
        if found:
            return n + 1, "%s: %s" % (edit, found)
    return len(edits), None


def shorten(seed, edits):
    """A shorter sequence that also fails."""
    edits = edits[:play(seed, edits)[0]]
    at = len(edits) - 2
    while at >= 0:
        fewer = edits[:at] + edits[at + 1:]
        if play(seed, fewer)[1]:
            edits = fewer
        at -= 1
    return edits


def fuzz(steps, seed=0, most=1):
    """Runs sequences until that many edits ran. Returns the failures as text, shortened."""
    ran, failures = 0, []
    while ran < steps and len(failures) < most:
        edits = edits_of(seed)
        n, found = play(seed, edits)
        ran += n
        if found:
            edits = shorten(seed, edits)
            at = " ".join(str(edits_of(seed).index(e)) for e in edits)
            failures.append("%s %s\n  --replay %d %s\n  %s" % (
                kind_of(seed), play(seed, edits)[1], seed, at, ", ".join(e for e, _ in edits)))
        seed += 1
    return ran, failures


@contextlib.contextmanager
def evaluator():
    """A context in which rules run on the reference evaluator, and a first step always counts."""
    engine = functools.partial(optc.Engine, compiler="", cache_dir="")
    engine = optc.Engine if os.environ.get("OPTC_FUZZ_COMPILED") else engine
    with mock.patch.multiple(_engines, Engine=engine, _open={}), \
            mock.patch.object(_state, "is_empty_step", lambda opt: False):
        yield


def main(*args):
    if args and args[0] == "--replay":
        seed, chosen = int(args[1]), [int(x) for x in args[2:]]
        edits = edits_of(seed)
        edits = [edits[i] for i in chosen] if chosen else edits
        print(kind_of(seed), Side(kind_of(seed), seed).options, [e for e, _ in edits])
        print(play(seed, edits)[1] or "no difference")
        return 0
    most = int(os.environ.get("OPTC_FUZZ_MOST", 1))
    ran, failures = fuzz(int(args[0]), int(args[1]) if len(args) > 1 else 0, most)
    print("\n".join(failures) or "%d edits, no difference" % ran)
    return bool(failures)


if __name__ == "__main__":
    with evaluator():
        sys.exit(main(*sys.argv[1:]) if len(sys.argv) > 1 else __doc__)
