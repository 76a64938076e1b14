#!/usr/bin/env python3
"""Makes tests/specs/refs/*.ref: trajectories of optimizers, computed by other packages in float64.

    python3 tests/specs/make_refs.py [--compare] [--clones DIR] [--long DIR] [NAME ...]

Without names it makes every file. --compare writes nothing and prints the difference between new results and the
files. --long DIR makes each of them for 60 steps with the schedule below, into DIR; OPTC_REFS=DIR CK_RUN_SUITE=refs
build/run-tests compares with those. It needs a virtual environment with
    torch 2.13 (CPU), timm 1.0, pytorch_optimizer 4.1, jax and optax 0.2, adabelief-pytorch 0.2.1, adabound 0.0.5,
    came-pytorch 0.1.3, opt_einsum, tabulate, colorama, numpy
(pip install --no-deps for all but torch and jax; torchvision is not needed, see `import_timm`; rule_refs.py needs more
packages); and --clones, a folder with the repositories of matrix_refs.py, factor_refs.py, rule_refs.py and
https://github.com/apple/ml-ademamix c3d73c0. The files are kept in the repository, so tests do not need any of this.

A file is text lines, an empty line, then little-endian float64: for each saved step, for each tensor, all its elements.
Of a tensor with more than WHOLE elements: every STRIDE-th element, then STRIDE sums, the r-th over the elements r, r +
STRIDE, … So an error of any one element still shows. The lines:
    optcref 2                  format
    spec adamw                 the rule
    with clip(1),ema(0.9)      wrappers, if any
    options amsgrad=true       options that differ from their defaults, if any
    hyper lr=0.01,clip.eps=0   hyperparameters by our names
    schedule lr adamw.lr       these are multiplied by `rate` of the step, if any
    steps 20
    saved 2 20                 the steps whose values follow
    shapes s 7 2x3x4           the tensors, if they are not the ones every rule takes (s: a scalar)
    native no                  only the evaluator is compared with it: compiled code would test no more, if present
    exact f64                  f64: the reference used no f32 arithmetic; f32: it used some, expect agreement to about
                               1e-7
    state ema.avg              the values are this state, not the weights, if present
    entry update_hessian 3     this entry runs with second gradients ahead of steps 1, 4, 7, …, if present
    look to_eval to_train      values are read between these two entries, if present
    pull 4.0                   4 p is added to each gradient, if present: gradients of successive steps agree
    tag head                   all tensors have this tag, if present
    group 2 lr=0.01            tensors from the third on are a second group with these hyperparameters, if present
    source torch.optim.AdamW 2.13.0

Tensors, first weights and gradients come from `value`, which a few lines of C repeat exactly. A gradient is fresh at
each step and does not depend on the weights; only the second gradient of a SAM step does.
"""
import argparse
import contextlib
import importlib.machinery
import importlib.metadata
import os
import re
import sys
import types
import warnings

import numpy as np

import factor_refs
import gradient_refs
import matrix_refs
import more_refs
import rule_refs
import select_refs

warnings.filterwarnings("ignore", message="This overload of")      # adabound calls add_ the old way
import torch
from torch.utils._python_dispatch import TorchDispatchMode

SHAPES = [(), (1,), (7,), (33, 65), (3, 5, 7)]
STEPS, SAVED = 20, (2, 20)
LONG = 60
WHOLE, STRIDE = 128, 31                                             # test_refs.c has them too
REFS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "refs")
torch.set_default_dtype(torch.float64)                              # scalar state of torch and timm follows this
torch.set_num_threads(1)


def import_timm():
    """Make timm.optim.* importable one by one: the package itself would import torchvision."""
    root = importlib.machinery.PathFinder.find_spec("timm").submodule_search_locations[0]
    for name, path in (("timm", root), ("timm.optim", os.path.join(root, "optim"))):
        module = types.ModuleType(name)
        module.__path__ = [path]
        sys.modules[name] = module
    sys.modules["timm"].optim = module


import_timm()
import adabelief_pytorch
import adabound
import came_pytorch
import pytorch_optimizer as po
import timm.optim.adabelief, timm.optim.adafactor, timm.optim.adamp, timm.optim.adamw, timm.optim.adan, timm.optim.adopt
import timm.optim.lamb, timm.optim.lars, timm.optim.lion, timm.optim.madgrad, timm.optim.nvnovograd, timm.optim.sgdw
from pytorch_optimizer.optimizer.gradient_centralization import centralize_gradient
from torch.nn.utils import clip_grad_norm_, clip_grad_value_
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn


# ---------------------------------------------------------------------------------------------------------------- data

def splitmix(x):
    with np.errstate(over="ignore"):
        x = x + np.uint64(0x9E3779B97F4A7C15)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return x ^ (x >> np.uint64(31))


def value(k, s, shapes=SHAPES):
    """All of tensor k's numbers of stream s, in [-1, 1), exact in float32."""
    i = np.arange(int(np.prod(shapes[k])), dtype=np.uint64)
    bits = splitmix(np.uint64(k << 48 | s << 32) | i) >> np.uint64(40)
    return ((bits.astype(np.int64) - 8388608) / 8388608.0).reshape(shapes[k])


def first_weights(k, shapes=SHAPES):
    return 0.5 * value(k, 0, shapes)


def gradient(k, s, shapes=SHAPES):
    i = np.arange(int(np.prod(shapes[k]))).reshape(shapes[k])
    return value(k, s, shapes) * 2.0 ** -(i % 4)


def second_gradient(k, s, p, shapes=SHAPES):
    """SAM's: of the perturbed weights p."""
    return gradient(k, s + 100, shapes) + 0.25 * p


# ------------------------------------------------------------------------------------------------------------- running

class WatchPrecision(TorchDispatchMode):
    """Notes whether any operation made a tensor of less than double precision."""
    seen = False

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for x in torch.utils._pytree.tree_leaves(out):
            if isinstance(x, torch.Tensor) and x.dtype in (torch.float32, torch.float16, torch.bfloat16):
                self.seen = True
        return out


class Hypers(dict):
    __getattr__ = dict.__getitem__


def rate(s):
    """A schedule: warm-up over five steps, then a linear decay."""
    return min(s / 5, 1) * (1 - max(s - 5, 0) / 64)


def scheduled(h):
    """The hyperparameters that a schedule multiplies. A wrapper's `decay` is lr times weight decay."""
    return [k for k in h if re.search(r"(^|\.)lr$|^lr_1d$|^(galore|fira)\.decay$", k)]


def schedule(s, h, first, opts):
    """Sets the rates of step s: in h, which transcribed rules read, and in the groups of torch optimizers."""
    for k in scheduled(h) if RUN["schedule"] else ():
        h[k] = first[k] * rate(s)
    for opt in opts if RUN["schedule"] else ():
        for group in [g for g in getattr(opt, "param_groups", ()) if g["lr"] is not None]:
            group.setdefault("first_lr", group["lr"])
            group["lr"] = group["first_lr"] * rate(s)


class Two:
    """Two optimizers of one class in place of one with two groups. The second reads its own hyperparameters."""
    def __init__(self, make, params, n, h):
        self.first, self.h, self.second = dict(h), h, {**h, **RUN["group"][1]}
        self.own = Hypers(self.second)
        self.opts = [make(params[:n], h), make(params[n:], self.own)]
        self.param_groups = [g for opt in self.opts for g in getattr(opt, "param_groups", ())]

    def step(self):
        for k in scheduled(self.h):
            self.own[k] = self.second[k] * (self.h[k] / self.first[k])
        for opt in self.opts:
            opt.step()


def in_groups(make, params, h, first=0):
    """make(params, h), of all parameters or of two groups of them, the second with its own rate. first: the tensor's
    number of params[0]."""
    if not RUN["group"]:
        return make(params, h)
    n = RUN["group"][0] - first
    if RUN["spec"] in SPLIT:
        return Two(make, params, n, h)
    return make([dict(params=params[:n]), dict(params=params[n:], lr=RUN["group"][1]["lr"])], h)


def run_torch(make, before=None, after=None):
    """make(params, h) gives something with step(); before(params, h) may change gradients; after(params, h) gives a
    function called after each step that returns the tensors to save."""
    def run(h):
        shapes = RUN["shapes"]
        params = [torch.nn.Parameter(torch.tensor(first_weights(k, shapes))) for k in range(len(shapes))]
        saved, first = [], dict(h)
        with WatchPrecision() as watch:
            for k, p in enumerate(params):
                p.grad = torch.tensor(gradient(k, 1, shapes))
            opt = in_groups(make, params, h)
            look = after(params, h) if after else lambda: params
            for s in range(1, RUN["steps"] + 1):
                for k, p in enumerate(params):
                    p.grad = torch.tensor(gradient(k, s, shapes)) + RUN["pull"] * p.detach()
                if before:
                    before(params, h)
                schedule(s, h, first, [opt])
                opt.step()
                now = look()
                if s in RUN["saved"]:
                    saved += [p.detach().clone().numpy() for p in now]
        return saved, "f32" if watch.seen else "f64"
    return run


def run_optax_sam(make):
    """make(h) gives the inner optax rule; sam.eps must be 0, optax has none."""
    def run(h):
        import jax
        jax.config.update("jax_enable_x64", True)
        import jax.numpy as jnp
        import optax
        opt = optax.contrib.sam(make(h), optax.chain(optax.contrib.normalize(), optax.sgd(h["sam.rho"])), sync_period=2)
        params = [jnp.asarray(first_weights(k)) for k in range(len(SHAPES))]
        state, saved, exact = opt.init(params), [], "f64"
        for s in range(1, STEPS + 1):
            for second in (False, True):
                g = [jnp.asarray(second_gradient(k, s, np.asarray(p)) if second else gradient(k, s))
                     for k, p in enumerate(params)]
                if re.search(r"\bb?f(32|16)\b", str(jax.make_jaxpr(opt.update)(g, state, params))):
                    exact = "f32"
                update, state = opt.update(g, state, params)
                params = optax.apply_updates(params, update)
            if s in SAVED:
                saved += [np.asarray(p) for p in params]
        return saved, exact
    return run


def ema(params, h):
    """torch's averaged model, started at the first weights as ours is."""
    model = torch.nn.ParameterList(params)
    average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(h["ema.decay"]))
    average.update_parameters(model)

    def look():
        average.update_parameters(model)
        return list(average.module.parameters())
    return look


def yogi(params, h):
    """pytorch_optimizer starts the first moment at initial_accumulator too; the paper starts it at 0."""
    opt = po.Yogi(params, lr=h.lr, betas=(h.beta1, h.beta2), eps=h.eps, weight_decay=h.weight_decay,
                  initial_accumulator=h.initial_accumulator)
    opt.init_group(opt.param_groups[0])
    for p in params:
        opt.state[p]["exp_avg"].zero_()
    return opt


def centralize(params, h):
    for p in params:
        centralize_gradient(p.grad)


# -------------------------------------------------------------------------------------------------------------- tables

VERSIONS = {"torch": "torch", "timm": "timm", "po": "pytorch_optimizer", "optax": "optax", "adabound": "adabound",
            "came_pytorch": "came-pytorch", "adabelief_pytorch": "adabelief-pytorch"}
CONFIGS = {}
CLONES = [None]                                                     # the folder of --clones
RUN = {}                                                            # the configuration that runs


def config(name, spec, source, run, options="", wrap="", state="", shapes=SHAPES, native=True, schedule=False,
           steps=STEPS, entry="", look="", pull=0.0, tag="", group=None, **hyper):
    hyper = {k.replace("__", "."): v for k, v in hyper.items()}
    CONFIGS[name] = dict(spec=spec, source=source, run=run, options=options, wrap=wrap, state=state, shapes=shapes,
                         native=native, entry=entry, look=look, pull=pull, schedule=schedule, steps=steps, tag=tag,
                         group=group,
                         saved=SAVED if steps == STEPS else (steps,), hyper=Hypers(hyper))


def adamlike(cls, **more):
    return run_torch(lambda ps, h: cls(ps, lr=h.lr, betas=(h.beta1, h.beta2), eps=h.eps, weight_decay=h.weight_decay,
                                       **more))


def sgdlike(cls, **more):
    return run_torch(lambda ps, h: cls(ps, lr=h.lr, momentum=h.get("momentum", 0), dampening=h.get("dampening", 0),
                                       weight_decay=h.weight_decay, **more))


# 60 steps; adapts from step 6 on with beta2 0.9
SCHEDULED = dict(schedule=True, steps=LONG, shapes=[(), (7,), (9, 5)])
ADAM = dict(lr=0.02, beta1=0.8, beta2=0.95, eps=1e-3, weight_decay=0.1)
SGD = dict(lr=0.05, momentum=0.9, weight_decay=0.1)

config("sgd", "sgd", "torch.optim.SGD", sgdlike(torch.optim.SGD), **SGD, dampening=0.0)
config("sgd_plain", "sgd", "torch.optim.SGD", sgdlike(torch.optim.SGD), options="momentum_buffer=false",
       lr=0.1, weight_decay=0.1)
config("sgd_dampening", "sgd", "torch.optim.SGD", sgdlike(torch.optim.SGD), lr=0.1, momentum=0.8, dampening=0.3,
       weight_decay=0.1)
config("sgd_nesterov", "sgd", "torch.optim.SGD", sgdlike(torch.optim.SGD, nesterov=True), options="nesterov=true",
       **SGD, dampening=0.0)
config("sgdw", "sgdw", "timm.optim.SGDW", sgdlike(timm.optim.sgdw.SGDW), lr=0.05, momentum=0.8, dampening=0.3,
       weight_decay=0.4)
config("sgdw_nesterov", "sgdw", "timm.optim.SGDW", sgdlike(timm.optim.sgdw.SGDW, nesterov=True),
       options="nesterov=true",
       lr=0.05, momentum=0.9, dampening=0.0, weight_decay=0.4)
config("signum", "signum", "po.SignSGD", lr=0.02, momentum=0.8, weight_decay=0.3,
       run=run_torch(lambda ps, h: po.SignSGD(ps, lr=h.lr, momentum=h.momentum, weight_decay=h.weight_decay)))
config("lion", "lion", "timm.optim.Lion", lr=0.02, beta1=0.85, beta2=0.95, weight_decay=0.3,
       run=run_torch(lambda ps, h: timm.optim.lion.Lion(ps, lr=h.lr, betas=(h.beta1, h.beta2),
                                                        weight_decay=h.weight_decay)))
config("adagrad", "adagrad", "torch.optim.Adagrad", lr=0.1, lr_decay=0.05, initial_accumulator=0.1, eps=1e-3,
       weight_decay=0.1,
       run=run_torch(lambda ps, h: torch.optim.Adagrad(ps, lr=h.lr, lr_decay=h.lr_decay, eps=h.eps,
                                                       weight_decay=h.weight_decay,
                                                       initial_accumulator_value=h.initial_accumulator)))
config("adadelta", "adadelta", "torch.optim.Adadelta", lr=0.7, rho=0.8, eps=1e-2, weight_decay=0.1,
       run=run_torch(lambda ps, h: torch.optim.Adadelta(ps, lr=h.lr, rho=h.rho, eps=h.eps,
                                                        weight_decay=h.weight_decay)))

for name, centered, momentum in (("rmsprop", 0, 0), ("rmsprop_centered", 1, 0), ("rmsprop_momentum", 0, 1),
                                 ("rmsprop_centered_momentum", 1, 1)):
    options = ",".join(["centered=true"] * centered + ["momentum_buffer=true"] * momentum)
    config(name, "rmsprop", "torch.optim.RMSprop", options=options, lr=0.01, alpha=0.8, eps=1e-2, weight_decay=0.1,
           **(dict(momentum=0.7) if momentum else {}),
           run=run_torch(lambda ps, h, centered=centered: torch.optim.RMSprop(
               ps, lr=h.lr, alpha=h.alpha, eps=h.eps, weight_decay=h.weight_decay, momentum=h.get("momentum", 0),
               centered=bool(centered))))

config("adam", "adam", "torch.optim.Adam", adamlike(torch.optim.Adam), **ADAM)
config("adam_amsgrad", "adam", "torch.optim.Adam", adamlike(torch.optim.Adam, amsgrad=True), options="amsgrad=true",
       **{**ADAM, "beta2": 0.6})
config("adamw", "adamw", "torch.optim.AdamW", adamlike(torch.optim.AdamW), **ADAM)
config("adamw_amsgrad", "adamw", "torch.optim.AdamW", adamlike(torch.optim.AdamW, amsgrad=True), options="amsgrad=true",
       **{**ADAM, "beta2": 0.6})
config("adamax", "adamax", "torch.optim.Adamax", adamlike(torch.optim.Adamax), **{**ADAM, "eps": 1e-2})
for name, decoupled in (("", False), ("_decoupled", True)):
    options = "decoupled=true" if decoupled else ""
    config("nadam" + name, "nadam", "torch.optim.NAdam", options=options, **ADAM, momentum_decay=0.5,
           run=run_torch(lambda ps, h, decoupled=decoupled: torch.optim.NAdam(
               ps, lr=h.lr, betas=(h.beta1, h.beta2), eps=h.eps, weight_decay=h.weight_decay,
               momentum_decay=h.momentum_decay, decoupled_weight_decay=decoupled)))
    # adapts from step 6 on
    config("radam" + name, "radam", "torch.optim.RAdam", options=options, **{**ADAM, "beta2": 0.9},
           run=adamlike(torch.optim.RAdam, decoupled_weight_decay=decoupled))
    config("adopt" + name, "adopt", "timm.optim.Adopt", options=options, **{**ADAM, "eps": 0.1}, clip_power=0.25,
           run=run_torch(lambda ps, h, decoupled=decoupled: timm.optim.adopt.Adopt(
               ps, lr=h.lr, betas=(h.beta1, h.beta2), eps=h.eps, weight_decay=h.weight_decay, clip_exp=h.clip_power,
               decoupled=decoupled)))
config("adopt_unclipped", "adopt", "timm.optim.Adopt", adamlike(timm.optim.adopt.Adopt, clip_exp=None),
       options="clip=false",
       **{**ADAM, "eps": 0.1})
config("adabelief", "adabelief", "timm.optim.AdaBelief", adamlike(timm.optim.adabelief.AdaBelief, rectify=False),
       options="rectify=false", **ADAM)


def adabelief(params, h):
    with contextlib.redirect_stdout(None):
        return adabelief_pytorch.AdaBelief(params, lr=h.lr, betas=(h.beta1, h.beta2), eps=h.eps,
                                           weight_decay=h.weight_decay,
                                           print_change_log=False)


config("adabelief_rectify", "adabelief", "adabelief_pytorch.AdaBelief", run_torch(adabelief), **{**ADAM, "beta2": 0.9},
       **SCHEDULED)
config("yogi", "yogi", "po.Yogi; its first moment started at 0", run_torch(yogi), **{**ADAM, "eps": 1e-2},
       initial_accumulator=0.02)
for name, amsbound in (("adabound", False), ("adabound_amsbound", True)):
    config(name, "adabound", "adabound.AdaBound", options="amsbound=true" if amsbound else "",
           **{**ADAM, "beta2": 0.7}, final_lr=0.06, gamma=0.05,
           run=run_torch(lambda ps, h, amsbound=amsbound: adabound.AdaBound(
               ps, lr=h.lr, betas=(h.beta1, h.beta2), final_lr=h.final_lr, gamma=h.gamma, eps=h.eps,
               weight_decay=h.weight_decay, amsbound=amsbound)))
config("adabound_schedule", "adabound", "adabound.AdaBound", **{**ADAM, "beta2": 0.7}, base_lr=0.02, final_lr=0.06,
       gamma=0.05,
       **SCHEDULED, run=run_torch(lambda ps, h: adabound.AdaBound(
           ps, lr=h.base_lr, betas=(h.beta1, h.beta2), final_lr=h.final_lr, gamma=h.gamma, eps=h.eps,
           weight_decay=h.weight_decay)))
for name, decoupled in (("adan", False), ("adan_decoupled", True)):
    config(name, "adan", "timm.optim.Adan", options="proximal=false" if decoupled else "", **ADAM, beta3=0.7,
           run=run_torch(lambda ps, h, decoupled=decoupled: timm.optim.adan.Adan(
               ps, lr=h.lr, betas=(h.beta1, h.beta2, h.beta3), eps=h.eps, weight_decay=h.weight_decay,
               no_prox=decoupled)))


def ademamix(params, h):
    """The authors' file, of --clones."""
    module = matrix_refs.load(CLONES[0], "ml-ademamix/pytorch/ademamix.py")
    return module.AdEMAMix(params, lr=h.lr, betas=(h.beta1, h.beta2, h.beta3), alpha=h.alpha, eps=h.eps,
                           weight_decay=h.weight_decay,
                           alpha_warmup=h.get("alpha_warmup"), beta3_warmup=h.get("beta3_warmup"))


config("ademamix", "ademamix", "apple/ml-ademamix c3d73c0", run_torch(ademamix), **{**ADAM, "lr": 0.01}, beta3=0.99,
       alpha=4.0)
config("ademamix_warmup", "ademamix", "apple/ml-ademamix c3d73c0", run_torch(ademamix), options="warmup=true",
       **{**ADAM, "lr": 0.01}, beta3=0.99, alpha=4.0, alpha_warmup=12.0, beta3_warmup=31.0, **SCHEDULED)
config("madgrad", "madgrad", "timm.optim.MADGRAD", lr=0.05, momentum=0.7, eps=1e-2, weight_decay=0.1, **SCHEDULED,
       run=run_torch(lambda ps, h: timm.optim.madgrad.MADGRAD(ps, lr=h.lr, momentum=h.momentum, eps=h.eps,
                                                              weight_decay=h.weight_decay)))
for name, options, how in (("lars", "", {}), ("lars_outside", "rate=outside", SCHEDULED)):
    config(name, "lars", "timm.optim.Lars", options=options, lr=1.5, momentum=0.9, trust=0.02, eps=1e-2,
           weight_decay=0.3, **how,
           run=run_torch(lambda ps, h: timm.optim.lars.Lars(ps, lr=h.lr, momentum=h.momentum, trust_coeff=h.trust,
                                                            eps=h.eps,
                                                            weight_decay=h.weight_decay)))
config("lars_clip", "lars", "timm.optim.Lars", options="rate=outside,trust_clip=true", lr=1.5, momentum=0.9, trust=0.4,
       eps=1e-2, weight_decay=0.3, **SCHEDULED, native=False,
       run=run_torch(lambda ps, h: timm.optim.lars.Lars(ps, lr=h.lr, momentum=h.momentum, trust_coeff=h.trust,
                                                        eps=h.eps, weight_decay=h.weight_decay, trust_clip=True)))
config("lamb_clip", "lamb", "timm.optim.Lamb", adamlike(timm.optim.lamb.Lamb, max_grad_norm=None, trust_clip=True),
       options="trust_clip=true", **{**ADAM, "weight_decay": 1.5}, **SCHEDULED, native=False)
config("lamb", "lamb", "timm.optim.Lamb", adamlike(timm.optim.lamb.Lamb, max_grad_norm=None), **ADAM)
config("novograd", "novograd", "timm.optim.NvNovoGrad", adamlike(timm.optim.nvnovograd.NvNovoGrad),
       **{**ADAM, "eps": 1e-1})
config("novograd_averaging", "novograd", "timm.optim.NvNovoGrad", options="grad_averaging=true",
       **{**ADAM, "eps": 1e-1},
       run=adamlike(timm.optim.nvnovograd.NvNovoGrad, grad_averaging=True))
for name, nesterov, delta in (("adamp", False, 0.5), ("adamp_rows", False, 2.3), ("adamp_nesterov", True, 1.0)):
    config(name, "adamp", "timm.optim.AdamP", options="nesterov=true" if nesterov else "", **ADAM, delta=delta,
           wd_ratio=0.2,
           run=run_torch(lambda ps, h, nesterov=nesterov: timm.optim.adamp.AdamP(
               ps, lr=h.lr, betas=(h.beta1, h.beta2), eps=h.eps, weight_decay=h.weight_decay, delta=h.delta,
               wd_ratio=h.wd_ratio, nesterov=nesterov)))

# timm factors the last two dimensions of (3, 5, 7), as we do, when 3 is too short to factor and 5 is not
FACTOR = dict(decay=0.7, eps1=1e-4, clip_threshold=0.9, weight_decay=0.1)


def timm_adafactor(relative, momentum):
    return run_torch(lambda ps, h: timm.optim.adafactor.Adafactor(
        ps, lr=None if relative else h.lr, eps=h.eps1, eps_scale=h.get("eps2", 0), clip_threshold=h.clip_threshold,
        decay_rate=-h.decay, betas=(h.beta1, 0) if momentum else None, weight_decay=h.weight_decay,
        min_dim_size_to_factor=4))


config("adafactor", "adafactor", "timm.optim.Adafactor", timm_adafactor(True, False), **FACTOR, lr=0.01, eps2=0.3)
config("adafactor_momentum", "adafactor", "timm.optim.Adafactor", timm_adafactor(True, True), options="momentum=true",
       **FACTOR, lr=0.01, eps2=1e-3, beta1=0.8)
config("adafactor_fixed", "adafactor", "timm.optim.Adafactor", timm_adafactor(False, False),
       options="relative_step=false,scale_parameter=false", **FACTOR, lr=0.05)
# torch caps the relative step by lr, as we do, but uses eps1 and weight decay otherwise: both are out of the way here
config("adafactor_torch", "adafactor", "torch.optim.Adafactor", lr=0.3, decay=0.7, eps1=1e-30, eps2=0.3,
       clip_threshold=1.0,
       weight_decay=0.0,
       run=run_torch(lambda ps, h: torch.optim.Adafactor(ps, lr=h.lr, beta2_decay=-h.decay, eps=(h.eps1, h.eps2),
                                                         d=h.clip_threshold, weight_decay=h.weight_decay)))
config("came", "came", "came_pytorch.CAME", lr=0.01, beta1=0.8, beta2=0.9, beta3=0.95, eps1=1e-4, eps2=1e-3,
       clip_threshold=0.9,
       weight_decay=0.1,
       run=run_torch(lambda ps, h: came_pytorch.CAME(ps, lr=h.lr, betas=(h.beta1, h.beta2, h.beta3),
                                                     eps=(h.eps1, h.eps2),
                                                     clip_threshold=h.clip_threshold, weight_decay=h.weight_decay)))

# Wrappers. The one named first in --with stands nearest to the rule.
make_sgd = lambda ps, h: torch.optim.SGD(ps, lr=h.lr, momentum=h.momentum, weight_decay=h.weight_decay)
make_adamw = lambda ps, h: torch.optim.AdamW(ps, lr=h.lr, betas=(h.beta1, h.beta2), eps=h.eps,
                                             weight_decay=h.weight_decay)
make_cautious = lambda ps, h: timm.optim.adamw.AdamWLegacy(ps, lr=h.lr, betas=(h.beta1, h.beta2), eps=h.eps,
                                                           weight_decay=h.weight_decay, caution=True)

config("sgd_clip_value", "sgd", "torch.nn.utils.clip_grad_value_ and torch.optim.SGD", wrap="clip_value(0.3)",
       clip_value__max_value=0.3, **SGD, dampening=0.0,
       run=run_torch(make_sgd, lambda ps, h: clip_grad_value_(ps, h["clip_value.max_value"])))
config("sgd_clip_norm", "sgd", "torch.nn.utils.clip_grad_norm_ and torch.optim.SGD; clipped tensor by tensor",
       wrap="clip_norm(0.8)",
       clip_norm__max_norm=0.8, clip_norm__eps=1e-6, **SGD, dampening=0.0,
       run=run_torch(make_sgd, lambda ps, h: [clip_grad_norm_([p], h["clip_norm.max_norm"]) for p in ps]))
# clips some steps only
config("sgd_clip", "sgd", "torch.nn.utils.clip_grad_norm_ and torch.optim.SGD", wrap="clip(15.8)",
       clip__max_norm=15.8, clip__eps=1e-6, **SGD, dampening=0.0,
       run=run_torch(make_sgd, lambda ps, h: clip_grad_norm_(ps, h["clip.max_norm"])))
config("adamw_clip", "adamw", "torch.nn.utils.clip_grad_norm_ and torch.optim.AdamW", wrap="clip(1)",
       clip__max_norm=1.0, clip__eps=1e-6, **ADAM,
       run=run_torch(make_adamw, lambda ps, h: clip_grad_norm_(ps, h["clip.max_norm"])))
# of finite gradients skip leaves none out: the numbers of adamw_clip
config("adamw_clip_skip", "adamw", "torch.nn.utils.clip_grad_norm_ and torch.optim.AdamW", wrap="clip(1),skip",
       clip__max_norm=1.0, clip__eps=1e-6, **ADAM,
       run=run_torch(make_adamw, lambda ps, h: clip_grad_norm_(ps, h["clip.max_norm"])))
config("adamw_centralize", "adamw", "po.centralize_gradient and torch.optim.AdamW", wrap="centralize", **ADAM,
       run=run_torch(make_adamw, centralize))
config("adamw_cautious", "adamw", "timm.optim.AdamWLegacy; with caution", wrap="cautious", cautious__min_share=1e-3,
       **{**ADAM, "weight_decay": 0.0}, run=run_torch(make_cautious))
config("sgdw_cautious", "sgdw", "timm.optim.SGDW; with caution", wrap="cautious", cautious__min_share=1e-3,
       lr=0.05, momentum=0.9, dampening=0.0, weight_decay=0.0, run=sgdlike(timm.optim.sgdw.SGDW, caution=True))
# decay is not masked
config("adamw_cautious_apart", "adamw", "timm.optim.AdamWLegacy; with caution", wrap="cautious(apart=true)",
       cautious__min_share=1e-3, **{**ADAM, "weight_decay": 0.3}, run=run_torch(make_cautious))


def make_adamc(ps, h):
    opt = po.AdamC([{"params": ps, "normalized": True}], lr=h.lr, betas=(h.beta1, h.beta2), eps=h.eps, foreach=False,
                   weight_decay=h.weight_decay)
    opt.max_lr = h["corrected_decay.max_lr"]
    root = opt.apply_ams_bound
    opt.apply_ams_bound = lambda **given: root(**given, exp_avg_sq_eps=0.0)        # po adds 1e-15 to v
    return opt


# eps 0: po adds it before the bias correction
config("adamw_corrected_decay", "adamw", "po.AdamC", wrap="corrected_decay(0.05)", corrected_decay__max_lr=0.05,
       **{**ADAM, "eps": 0.0, "weight_decay": 0.3}, run=run_torch(make_adamc))


class Accumulated:
    """Every fourth step is AdamW's, with the mean of four gradients, as torch's loops add them up."""

    def __init__(self, params, h):
        self.params, self.opt, self.sums, self.steps = params, make_adamw(params, h), [0 for _ in params], 0
        self.param_groups = self.opt.param_groups

    def step(self):
        self.steps += 1
        self.sums = [s + p.grad for s, p in zip(self.sums, self.params)]
        if self.steps % 4 == 0:
            for p, s in zip(self.params, self.sums):
                p.grad = s / 4
            self.opt.step()
            self.sums = [0 for _ in self.params]


class Scaled:
    """The gradients count as scaled ones: the scaler divides them, and its scale doubles after every fifth step."""

    def __init__(self, params, h):
        self.opt = make_adamw(params, h)
        self.scaler = torch.amp.GradScaler("cpu", init_scale=4.0, growth_interval=5)
        self.scaler.scale(torch.ones(1))
        self.param_groups = self.opt.param_groups

    def step(self):
        self.scaler.step(self.opt)
        self.scaler.update()


config("adamw_ema", "adamw", "torch.optim.swa_utils.AveragedModel and torch.optim.AdamW", wrap="ema(0.9)",
       state="ema.avg",
       ema__decay=0.9, **ADAM, run=run_torch(make_adamw, after=ema))
config("adamw_accumulate", "adamw", "torch.optim.AdamW", wrap="accumulate(4)", **ADAM, run=run_torch(Accumulated))
config("adamw_log", "adamw", "torch.optim.AdamW", wrap="log", **ADAM, run=run_torch(make_adamw))
config("adamw_loss_scale", "adamw", "torch.amp.GradScaler and torch.optim.AdamW", wrap="loss_scale(4)",
       loss_scale__interval=5, **ADAM, run=run_torch(Scaled))
config("adamw_lookahead", "adamw", "po.Lookahead and torch.optim.AdamW", wrap="lookahead(6,0.3)", lookahead__alpha=0.3,
       **ADAM,
       run=run_torch(lambda ps, h: po.Lookahead(make_adamw(ps, h), k=6, alpha=h["lookahead.alpha"])))


def optax_sgd(h):
    import optax
    return optax.chain(optax.add_decayed_weights(h.weight_decay), optax.sgd(h.lr, momentum=h.momentum))


def optax_adamw(h):
    import optax
    return optax.adamw(h.lr, b1=h.beta1, b2=h.beta2, eps=h.eps, weight_decay=h.weight_decay)


config("sgd_sam", "sgd", "optax.contrib.sam and optax.sgd", run_optax_sam(optax_sgd), wrap="sam(0.5)",
       sam__rho=0.5, sam__eps=0.0, **SGD, dampening=0.0)
config("adamw_sam", "adamw", "optax.contrib.sam and optax.adamw", run_optax_sam(optax_adamw), wrap="sam(0.5)",
       sam__rho=0.5, sam__eps=0.0, **ADAM)

for name, state in (("adamw_clip_cautious_ema", "ema.avg"), ("adamw_clip_cautious", "")):
    config(name, "adamw", wrap="clip(1),cautious" + (",ema(0.9)" if state else ""), state=state,
           clip__max_norm=1.0, clip__eps=1e-6, cautious__min_share=1e-3, **(dict(ema__decay=0.9) if state else {}),
           **{**ADAM, "weight_decay": 0.0},
           source="torch.nn.utils.clip_grad_norm_, timm.optim.AdamWLegacy"
                  + (", torch.optim.swa_utils.AveragedModel" if state else "") + "; with caution",
           run=run_torch(make_cautious, lambda ps, h: clip_grad_norm_(ps, h["clip.max_norm"]), ema if state else None))
config("lamb_centralize_lookahead", "lamb", "po.centralize_gradient, timm.optim.Lamb and po.Lookahead",
       wrap="centralize,lookahead(4,0.6)", lookahead__alpha=0.6, **ADAM,
       run=run_torch(lambda ps, h: po.Lookahead(
           timm.optim.lamb.Lamb(ps, lr=h.lr, betas=(h.beta1, h.beta2), eps=h.eps, weight_decay=h.weight_decay,
                                max_grad_norm=None), k=4, alpha=h["lookahead.alpha"]), centralize))


# ------------------------------------------------------------------------------------------------------------- writing

# Rules whose reference means something else by groups, estimates over each of them, which are over all tensors here; or
# whose draws or slots depend on the number of the tensor.
UNGROUPED = {"apollo", "apollo_mini", "cocob", "dadapt_adagrad", "dadapt_adam", "dadapt_lion", "dadapt_sgd", "dion",
             "dog", "dowg", "prodigy", "psgd", "psgd_kron", "shampoo"}
# Rules whose reference takes no groups (a transcription, a function, a class for one list of parameters): one for each.
SPLIT = {"adago", "adam_mini", "adalomo", "adamuon", "adashift", "aurora", "conda", "dion2", "dion3", "lomo", "mano",
         "muoneq", "muonh", "muonsq", "scale", "sinkgd", "soap", "yogi"}
# Configurations to start from in place of a rule's first one: those that a schedule fits.
BASE = {"adabound": "adabound_schedule", "adafactor": "adafactor_fixed", "lars": "lars_outside"}
OTHERS = dict(lr=0.7, beta=0.5, beta1=0.6, beta2=0.7, momentum=0.5, weight_decay=0.04, eps=2e-3)


def add_groups():
    """For each rule a configuration with two groups, other settings and a schedule, over few elements."""
    for spec in dict.fromkeys(c["spec"] for c in CONFIGS.values() if not c["wrap"]):
        c = CONFIGS[BASE[spec]] if spec in BASE else next(c for c in CONFIGS.values()
                                                          if c["spec"] == spec and not c["wrap"])
        if spec in UNGROUPED or any(c["spec"] == spec and c["group"] for c in CONFIGS.values()) or c["entry"]:
            continue
        hyper = Hypers({k: v * OTHERS["lr"] if k.endswith("lr") else OTHERS.get(k.rsplit(".", 1)[-1], v) if v else v
                        for k, v in c["hyper"].items()})
        shapes = [(), (7,), (9, 5), (5, 9)]
        if c["shapes"] is not SHAPES:                               # those that the rule's reference takes
            small = [s for s in c["shapes"] if np.prod(s) <= 50 or s == (12, 12)]
            shapes = [s for s in small if len(s) < 2] + [s for s in small if len(s) > 1][-3:]
        CONFIGS[spec + "_groups"] = {**c, "hyper": hyper, "shapes": shapes, "schedule": True, "steps": LONG,
                                     "saved": (LONG,), "native": False, "state": "", "look": "",
                                     "group": (len(shapes) - 1, {k: 0.5 * hyper[k] for k in ("lr", "base_lr")
                                                                 if k in hyper})}
    CONFIGS["normuon_groups"]["hyper"]["eps"] = 1e-10               # constants of the authors' code
    CONFIGS["dion3_groups"]["hyper"]["eps"] = 1e-8
    CONFIGS["rprop_groups"]["schedule"] = False                     # its lr is the first step size and stays
    CONFIGS["spel_groups"].update(steps=STEPS, saved=(STEPS,))      # it doubles rounding errors at every step


def full_source(text):
    """The packages by their full names, and their versions; what follows a semicolon is a remark."""
    text, semicolon, remark = text.partition(";")
    used = [m for m in VERSIONS if re.search(rf"\b{m}\.", text)]
    names = [f"{VERSIONS[m]} " if len(used) > 1 else "" for m in used]
    versions = [importlib.metadata.version(VERSIONS[m]).split("+")[0] for m in used]
    text = re.sub(r"\bpo\.", "pytorch_optimizer.", text)
    return f"{text}{',' if len(used) > 1 else ''} " + ", ".join(n + v
                                                                for n, v in zip(names, versions)) + semicolon + remark


def sampled(data, shapes):
    """What a file keeps of the elements of these tensors, one after another."""
    each = np.split(data, np.cumsum([int(np.prod(s)) for s in shapes])[:-1])
    return np.concatenate([x if x.size <= WHOLE else np.append(x[::STRIDE], [x[r::STRIDE].sum() for r in range(STRIDE)])
                           for x in each])


def make(name):
    c = CONFIGS[name]
    RUN.update(c)
    saved, exact = c["run"](Hypers(c["hyper"]))
    data = np.concatenate([np.asarray(x, dtype="<f8").reshape(-1) for x in saved])
    assert np.isfinite(data).all() and data.size == len(c["saved"]) * sum(int(np.prod(s)) for s in c["shapes"]), name
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
    lines += [f"{k} {c[k]}" for k in ("state", "entry", "look", "pull", "tag") if c[k]]
    if c["group"]:
        lines += [f"group {c['group'][0]} " + ",".join(f"{k}={v!r}" for k, v in c["group"][1].items())]
    lines += ["source " + full_source(c["source"])]
    return lines, data


def main():
    args = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    args.add_argument("names", nargs="*", metavar="NAME")
    args.add_argument("--compare", action="store_true", help="write nothing, compare with the files")
    args.add_argument("--clones", metavar="DIR",
                      help="the repositories that matrix_refs.py and factor_refs.py name lie here")
    args.add_argument("--long", metavar="DIR", help="60 steps under a schedule, written there")
    args = args.parse_args()
    CLONES[0] = args.clones
    matrix_refs.configs(sys.modules[__name__], args.clones)
    factor_refs.configs(sys.modules[__name__], args.clones)
    rule_refs.configs(sys.modules[__name__], args.clones)
    gradient_refs.configs(sys.modules[__name__])
    select_refs.configs(sys.modules[__name__], args.clones)
    more_refs.configs(sys.modules[__name__], args.clones)
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
            off = np.abs(np.frombuffer(old, "<f8") - data).max()
            head = "" if old_text + b"\n\n" == text else ", header differs"
            print(f"{name}: {'same' if off == 0 else f'off by {off:.2g}'}{head}")
        else:
            with open(path, "wb") as f:
                f.write(text + data.tobytes())
            print(f"{name}: " + ", ".join(l for l in lines if l.startswith(("exact", "source"))))


if __name__ == "__main__":
    main()
