#!/usr/bin/env python3
"""Makes tests/specs/refs/*.ref: trajectories of optimizers, computed by other packages in float64.

    python3 tests/specs/make_refs.py [--compare] [--clones DIR] [--long DIR] [NAME ...]

Without names it makes every file. --compare writes nothing and prints the difference between new
results and the files. --long DIR makes each of them for 60 steps with the schedule below, into DIR;
OPTC_REFS=DIR CK_RUN_SUITE=refs build/run-tests compares with those. It needs a virtual environment
with
    torch 2.13 (CPU), timm 1.0, pytorch_optimizer 4.1, jax and optax 0.2, adabelief-pytorch 0.2.1,
    adabound 0.0.5, came-pytorch 0.1.3, opt_einsum, tabulate, colorama, numpy
(pip install --no-deps for all but torch and jax; torchvision is not needed, see `import_timm`;
rule_refs.py needs more packages); and --clones, a folder with the repositories of matrix_refs.py,
factor_refs.py, rule_refs.py and https://github.com/apple/ml-ademamix c3d73c0. The files are kept in
the repository, so tests do not need any of this.

A file is text lines, an empty line, then little-endian float64: for each saved step, for each
tensor, all its elements. Of a tensor with more than WHOLE elements: every STRIDE-th element, then
STRIDE sums, the r-th over the elements r, r + STRIDE, … So an error of any one element still shows.
The lines:
    optcref 2                  format
    spec adamw                 the rule
    with clip(1),ema(0.9)      wrappers, if any
    options amsgrad=true       options that differ from their defaults, if any
    hyper lr=0.01,clip.eps=0   hyperparameters by our names
    schedule lr adamw.lr       these are multiplied by `rate` of the step, if any
    steps 20
    saved 2 20                 the steps whose values follow
    shapes s 7 2x3x4           the tensors, if they are not the ones every rule takes (s: a scalar)
    native no                  only the evaluator is compared with it: compiled code would test no
                               more, if present
    exact f64                  f64: the reference used no f32 arithmetic; f32: it used some, expect
                               agreement to about 1e-7
    state ema.avg              the values are this state, not the weights, if present
    entry update_hessian 3     this entry runs with second gradients ahead of steps 1, 4, 7, …, if
                               present
    look to_eval to_train      values are read between these two entries, if present
    pull 4.0                   4 p is added to each gradient, if present: gradients of successive
                               steps agree
    tag head                   all tensors have this tag, if present
    group 2 lr=0.01            tensors from the third on are a second group with these
                               hyperparameters, if present
    frozen 9                   up to this step the second group's rates are 0, if present
    source torch.optim.AdamW 2.13.0

Tensors, first weights and gradients come from `value`, which a few lines of C repeat exactly. A
gradient is fresh at each step and does not depend on the weights; only the second gradient of a SAM
step does.
"""
import argparse
import importlib.metadata
import os
import re
import sys

import numpy as np

import torch_refs
import factor_refs
import gradient_refs
import matrix_refs
import more_refs
import outer_refs
import recent_refs
import rule_refs
import select_refs
from ref_runs import CLONES, CONFIGS, LONG, RUN, SHAPES, VERSIONS, Hypers, scheduled

WHOLE, STRIDE = 128, 31                                             # test_refs.c has them too
REFS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "refs")


# --------------------------------------------------------------------------------------------------
# writing

# Configurations to start from in place of a rule's first one: those that a schedule or groups fit.
# The estimates of DoG's authors are over each group, ours over all; L-DoG's are over each tensor.
BASE = {
    "adabound": "adabound_schedule", "adafactor": "adafactor_fixed", "dog": "dog_layerwise",
    "lamb": "lamb", "lars": "lars_outside", "psgd": "psgd_balance", "spel": "spel_exact"
}
OTHERS = dict(lr=0.7, beta=0.5, beta1=0.6, beta2=0.7, momentum=0.5, weight_decay=0.04, eps=2e-3)


def add_groups():
    """For each rule a configuration with two groups, other settings and a schedule, over few
    elements."""
    for spec in dict.fromkeys(c["spec"] for c in CONFIGS.values() if not c["wrap"]):
        c = CONFIGS[BASE[spec]] if spec in BASE else next(c for c in CONFIGS.values()
                                                          if c["spec"] == spec and not c["wrap"])
        if any(c["spec"] == spec and c["group"] for c in CONFIGS.values()):
            continue
        hyper = Hypers({
            k: v * OTHERS["lr"] if k.endswith("lr") else
               OTHERS.get(k.rsplit(".", 1)[-1], v) if v else v for k, v in c["hyper"].items()
        })
        shapes = [(), (7,), (9, 5), (5, 9)]
        # those that the rule's reference takes
        if c["shapes"] is not SHAPES and not spec.startswith("apollo"):
            small = [s for s in c["shapes"] if np.prod(s) <= 50 or s == (12, 12)]
            shapes = [s for s in small if len(s) < 2] + [s for s in small if len(s) > 1][-3:]
        CONFIGS[spec + "_groups"] = {
            **c, "hyper": hyper, "shapes": shapes, "schedule": True, "steps": LONG,
            "saved": (LONG,), "native": False, "state": "", "look": "",
            "group": (len(shapes) - 1, {k: 0.5 * hyper[k] for k in ("lr", "base_lr") if k in hyper})
        }
    CONFIGS["normuon_groups"]["hyper"]["eps"] = 1e-10               # constants of the authors' code
    CONFIGS["dion3_groups"]["hyper"]["eps"] = 1e-8


def full_source(text):
    """The packages by their full names, and their versions; what follows a semicolon is a
    remark."""
    text, semicolon, remark = text.partition(";")
    used = [m for m in VERSIONS if re.search(rf"\b{m}\.", text)]
    names = [f"{VERSIONS[m]} " if len(used) > 1 else "" for m in used]
    versions = [importlib.metadata.version(VERSIONS[m]).split("+")[0] for m in used]
    text = re.sub(r"\bpo\.", "pytorch_optimizer.", text)
    return f"{text}{',' if len(used) > 1 else ''} " + ", ".join(
        n + v for n, v in zip(names, versions)) + semicolon + remark


def sampled(data, shapes):
    """What a file keeps of the elements of these tensors, one after another."""
    each = np.split(data, np.cumsum([int(np.prod(s)) for s in shapes])[:-1])
    return np.concatenate([
        x
        if x.size <= WHOLE else np.append(x[::STRIDE], [x[r::STRIDE].sum() for r in range(STRIDE)])
        for x in each
    ])


def make(name):
    c = CONFIGS[name]
    RUN.update(c)
    saved, exact = c["run"](Hypers(c["hyper"]))
    data = np.concatenate([np.asarray(x, dtype="<f8").reshape(-1) for x in saved])
    assert np.isfinite(data).all() and data.size == len(c["saved"]) * sum(
        int(np.prod(s)) for s in c["shapes"]), name
    data = sampled(data, c["shapes"] * len(c["saved"]))
    lines = ["optcref 2", f"spec {c['spec']}"]
    lines += [f"with {c['wrap']}"] if c["wrap"] else []
    lines += [f"options {c['options']}"] if c["options"] else []
    lines += ["hyper " + ",".join(f"{k}={v!r}" for k, v in c["hyper"].items())]
    if c["shapes"] is not SHAPES:
        lines += ["shapes " + " ".join("x".join(map(str, s)) or "s" for s in c["shapes"])]
    lines += [] if c["native"] else ["native no"]
    lines += ["schedule " + " ".join(scheduled(c["hyper"]))] if c["schedule"] else []
    lines += [f"steps {c['steps']}", "saved " + " ".join(map(str, c["saved"])), f"exact {exact}"]
    lines += [f"{k} {c[k]}" for k in ("state", "entry", "look", "pull", "tag", "frozen") if c[k]]
    if c["group"]:
        lines += [
            f"group {c['group'][0]} " + ",".join(f"{k}={v!r}" for k, v in c["group"][1].items())
        ]
    lines += ["source " + full_source(c["source"])]
    return lines, data


def main():
    args = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    args.add_argument("names", nargs="*", metavar="NAME")
    args.add_argument("--compare", action="store_true",
                      help="write nothing, compare with the files")
    args.add_argument("--clones", metavar="DIR",
                      help="the repositories that matrix_refs.py and factor_refs.py name lie here")
    args.add_argument("--long", metavar="DIR", help="60 steps under a schedule, written there")
    args = args.parse_args()
    CLONES[0] = args.clones
    matrix_refs.configs(torch_refs, args.clones)
    factor_refs.configs(torch_refs, args.clones)
    rule_refs.configs(torch_refs, args.clones)
    gradient_refs.configs(torch_refs)
    select_refs.configs(torch_refs, args.clones)
    more_refs.configs(torch_refs, args.clones)
    recent_refs.configs(torch_refs, args.clones)
    outer_refs.configs(torch_refs, args.clones)
    add_groups()
    unknown = [n for n in args.names if n not in CONFIGS]
    if unknown:
        sys.exit(f"no configuration {', '.join(unknown)}; there are: {' '.join(CONFIGS)}")
    os.makedirs(args.long or REFS, exist_ok=True)
    for name in args.names or CONFIGS:
        if args.long:
            CONFIGS[name].update(steps=LONG, saved=(LONG,), schedule=True, native=False)
        lines, data = make(name)
        path = os.path.join(args.long or REFS, name + ".ref")
        text = "\n".join(lines).encode() + b"\n\n"
        if args.compare:
            with open(path, "rb") as f:
                old_text, old = f.read().split(b"\n\n", 1)
            old = np.frombuffer(old, "<f8")
            off = np.abs(old - data).max() if old.size == data.size else np.inf
            head = "" if old_text + b"\n\n" == text else ", header differs"
            print(f"{name}: {'same' if off == 0 else f'off by {off:.2g}'}{head}")
        else:
            with open(path, "wb") as f:
                f.write(text + data.tobytes())
            print(f"{name}: " + ", ".join(l for l in lines if l.startswith(("exact", "source"))))


if __name__ == "__main__":
    main()
