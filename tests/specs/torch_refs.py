"""The part of make_refs.py for rules and wrappers of torch, timm, pytorch_optimizer, optax and
single packages."""
import contextlib
import importlib.machinery
import os
import sys
import types
import warnings

warnings.filterwarnings("ignore", message="This overload of")      # adabound calls add_ the old way
import torch

import matrix_refs
from ref_runs import *


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
import timm.optim.adabelief, timm.optim.adafactor, timm.optim.adamp, timm.optim.adamw
import timm.optim.adan, timm.optim.adopt, timm.optim.lamb, timm.optim.lars, timm.optim.lion
import timm.optim.madgrad, timm.optim.nvnovograd, timm.optim.sgdw
from pytorch_optimizer.optimizer.gradient_centralization import centralize_gradient
from torch.nn.utils import clip_grad_norm_, clip_grad_value_
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn


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
    """pytorch_optimizer starts the first moment at initial_accumulator too; the paper starts it at
    0."""
    opt = po.Yogi(params, lr=h.lr, betas=(h.beta1, h.beta2), eps=h.eps, weight_decay=h.weight_decay,
                  initial_accumulator=h.initial_accumulator)
    opt.init_group(opt.param_groups[0])
    for p in params:
        opt.state[p]["exp_avg"].zero_()
    return opt


def centralize(params, h):
    for p in params:
        centralize_gradient(p.grad)


# --------------------------------------------------------------------------------------------------
# tables

# 60 steps; adapts from step 6 on with beta2 0.9
SCHEDULED = dict(schedule=True, steps=LONG, shapes=[(), (7,), (9, 5)])
ADAM = dict(lr=0.02, beta1=0.8, beta2=0.95, eps=1e-3, weight_decay=0.1)
SGD = dict(lr=0.05, momentum=0.9, weight_decay=0.1)

config("sgd", "sgd", "torch.optim.SGD", sgdlike(torch.optim.SGD), **SGD, dampening=0.0)
config("sgd_plain", "sgd", "torch.optim.SGD", sgdlike(torch.optim.SGD),
       options="momentum_buffer=false", lr=0.1, weight_decay=0.1)
config("sgd_dampening", "sgd", "torch.optim.SGD", sgdlike(torch.optim.SGD), lr=0.1, momentum=0.8,
       dampening=0.3, weight_decay=0.1)
config("sgd_nesterov", "sgd", "torch.optim.SGD", sgdlike(torch.optim.SGD, nesterov=True),
       options="nesterov=true", **SGD, dampening=0.0)
config("sgdw", "sgdw", "timm.optim.SGDW", sgdlike(timm.optim.sgdw.SGDW), lr=0.05, momentum=0.8,
       dampening=0.3, weight_decay=0.4)
config("sgdw_nesterov", "sgdw", "timm.optim.SGDW", sgdlike(timm.optim.sgdw.SGDW, nesterov=True),
       options="nesterov=true",
       lr=0.05, momentum=0.9, dampening=0.0, weight_decay=0.4)
config(
    "signum", "signum", "po.SignSGD", lr=0.02, momentum=0.8, weight_decay=0.3, run=run_torch(
        lambda ps, h: po.SignSGD(ps, lr=h.lr, momentum=h.momentum, weight_decay=h.weight_decay)))
config("lion", "lion", "timm.optim.Lion", lr=0.02, beta1=0.85, beta2=0.95, weight_decay=0.3,
       run=run_torch(lambda ps, h: timm.optim.lion.Lion(ps, lr=h.lr, betas=(h.beta1, h.beta2),
                                                        weight_decay=h.weight_decay)))
config(
    "adagrad", "adagrad", "torch.optim.Adagrad", lr=0.1, lr_decay=0.05, initial_accumulator=0.1,
    eps=1e-3, weight_decay=0.1, run=run_torch(lambda ps, h: torch.optim.Adagrad(
        ps, lr=h.lr, lr_decay=h.lr_decay, eps=h.eps, weight_decay=h.weight_decay,
        initial_accumulator_value=h.initial_accumulator)))
config("adadelta", "adadelta", "torch.optim.Adadelta", lr=0.7, rho=0.8, eps=1e-2, weight_decay=0.1,
       run=run_torch(lambda ps, h: torch.optim.Adadelta(ps, lr=h.lr, rho=h.rho, eps=h.eps,
                                                        weight_decay=h.weight_decay)))

for name, centered, momentum in (("rmsprop", 0, 0), ("rmsprop_centered", 1, 0),
                                 ("rmsprop_momentum", 0, 1), ("rmsprop_centered_momentum", 1, 1)):
    options = ",".join(["centered=true"] * centered + ["momentum_buffer=true"] * momentum)
    config(
        name, "rmsprop", "torch.optim.RMSprop", options=options, lr=0.01, alpha=0.8, eps=1e-2,
        weight_decay=0.1, **(dict(momentum=0.7) if momentum else {}),
        run=run_torch(lambda ps, h, centered=centered: torch.optim.RMSprop(
            ps, lr=h.lr, alpha=h.alpha, eps=h.eps, weight_decay=h.weight_decay, momentum=h.get(
                "momentum", 0), centered=bool(centered))))

config("adam", "adam", "torch.optim.Adam", adamlike(torch.optim.Adam), **ADAM)
config("adam_amsgrad", "adam", "torch.optim.Adam", adamlike(torch.optim.Adam, amsgrad=True),
       options="amsgrad=true", **{**ADAM, "beta2": 0.6})
config("adamw", "adamw", "torch.optim.AdamW", adamlike(torch.optim.AdamW), **ADAM)
config("adamw_amsgrad", "adamw", "torch.optim.AdamW", adamlike(torch.optim.AdamW, amsgrad=True),
       options="amsgrad=true", **{**ADAM, "beta2": 0.6})
config("adamax", "adamax", "torch.optim.Adamax", adamlike(torch.optim.Adamax),
       **{**ADAM, "eps": 1e-2})
for name, decoupled in (("", False), ("_decoupled", True)):
    options = "decoupled=true" if decoupled else ""
    config(
        "nadam" + name, "nadam", "torch.optim.NAdam", options=options, **ADAM, momentum_decay=0.5,
        run=run_torch(lambda ps, h, decoupled=decoupled: torch.optim.NAdam(
            ps, lr=h.lr, betas=(h.beta1, h.beta2), eps=h.eps, weight_decay=h.weight_decay,
            momentum_decay=h.momentum_decay, decoupled_weight_decay=decoupled)))
    # adapts from step 6 on
    config("radam" + name, "radam", "torch.optim.RAdam", options=options, **{**ADAM, "beta2": 0.9},
           run=adamlike(torch.optim.RAdam, decoupled_weight_decay=decoupled))
    config(
        "adopt" + name, "adopt", "timm.optim.Adopt", options=options, **{**ADAM, "eps": 0.1},
        clip_power=0.25, run=run_torch(lambda ps, h, decoupled=decoupled: timm.optim.adopt.Adopt(
            ps, lr=h.lr, betas=(h.beta1, h.beta2), eps=h.eps, weight_decay=h.weight_decay, clip_exp=
            h.clip_power, decoupled=decoupled)))
config("adopt_unclipped", "adopt", "timm.optim.Adopt",
       adamlike(timm.optim.adopt.Adopt, clip_exp=None), options="clip=false",
       **{**ADAM, "eps": 0.1})
config("adabelief", "adabelief", "timm.optim.AdaBelief",
       adamlike(timm.optim.adabelief.AdaBelief, rectify=False), options="rectify=false", **ADAM)


def adabelief(params, h, **more):
    with contextlib.redirect_stdout(None):
        return adabelief_pytorch.AdaBelief(params, lr=h.lr, betas=(h.beta1, h.beta2), eps=h.eps,
                                           weight_decay=h.weight_decay,
                                           print_change_log=False, **more)


config("adabelief_rectify", "adabelief", "adabelief_pytorch.AdaBelief", run_torch(adabelief),
       **{**ADAM, "beta2": 0.9}, **SCHEDULED)
config("adabelief_amsgrad", "adabelief", "adabelief_pytorch.AdaBelief",
       run_torch(lambda ps, h: adabelief(ps, h, rectify=False, amsgrad=True)),
       options="rectify=false,amsgrad=true", **{**ADAM, "beta2": 0.6})
config("yogi", "yogi", "po.Yogi; its first moment started at 0", run_torch(yogi),
       **{**ADAM, "eps": 1e-2}, initial_accumulator=0.02)
for name, amsbound in (("adabound", False), ("adabound_amsbound", True)):
    config(name, "adabound", "adabound.AdaBound", options="amsbound=true" if amsbound else "",
           **{**ADAM, "beta2": 0.7}, final_lr=0.06, gamma=0.05,
           run=run_torch(lambda ps, h, amsbound=amsbound: adabound.AdaBound(
               ps, lr=h.lr, betas=(h.beta1, h.beta2), final_lr=h.final_lr, gamma=h.gamma, eps=h.eps,
               weight_decay=h.weight_decay, amsbound=amsbound)))
config(
    "adabound_schedule", "adabound", "adabound.AdaBound", **{**ADAM, "beta2": 0.7}, base_lr=0.02,
    final_lr=0.06, gamma=0.05, **SCHEDULED,
    run=run_torch(lambda ps, h: adabound.AdaBound(ps, lr=h.base_lr, betas=
                                                  (h.beta1, h.beta2), final_lr=h.final_lr, gamma=h.
                                                  gamma, eps=h.eps, weight_decay=h.weight_decay)))
for name, decoupled in (("adan", False), ("adan_decoupled", True)):
    config(
        name, "adan", "timm.optim.Adan", options="proximal=false" if decoupled else "", **ADAM,
        beta3=0.7, run=run_torch(lambda ps, h, decoupled=decoupled: timm.optim.adan.Adan(
            ps, lr=h.lr, betas=(h.beta1, h.beta2, h.beta3), eps=h.eps, weight_decay=h.weight_decay,
            no_prox=decoupled)))


def ademamix(params, h):
    """The authors' file, of --clones."""
    module = matrix_refs.load(CLONES[0], "ml-ademamix/pytorch/ademamix.py")
    return module.AdEMAMix(params, lr=h.lr, betas=(h.beta1, h.beta2, h.beta3), alpha=h.alpha,
                           eps=h.eps, weight_decay=h.weight_decay,
                           alpha_warmup=h.get("alpha_warmup"), beta3_warmup=h.get("beta3_warmup"))


config("ademamix", "ademamix", "apple/ml-ademamix c3d73c0", run_torch(ademamix),
       **{**ADAM, "lr": 0.01}, beta3=0.99, alpha=4.0)
config("ademamix_warmup", "ademamix", "apple/ml-ademamix c3d73c0", run_torch(ademamix),
       options="warmup=true", **{**ADAM, "lr": 0.01}, beta3=0.99, alpha=4.0, alpha_warmup=12.0,
       beta3_warmup=31.0, **SCHEDULED)
config(
    "madgrad", "madgrad", "timm.optim.MADGRAD", lr=0.05, momentum=0.7, eps=1e-2, weight_decay=0.1,
    **SCHEDULED, run=run_torch(lambda ps, h: timm.optim.madgrad.MADGRAD(
        ps, lr=h.lr, momentum=h.momentum, eps=h.eps, weight_decay=h.weight_decay)))
for name, options, how in (("lars", "", {}), ("lars_outside", "rate=outside", SCHEDULED)):
    config(
        name, "lars", "timm.optim.Lars", options=options, lr=1.5, momentum=0.9, trust=0.02,
        eps=1e-2, weight_decay=0.3, **how, run=run_torch(
            lambda ps, h: timm.optim.lars.Lars(ps, lr=h.lr, momentum=h.momentum, trust_coeff=h.
                                               trust, eps=h.eps, weight_decay=h.weight_decay)))
config(
    "lars_clip", "lars", "timm.optim.Lars", options="rate=outside,trust_clip=true", lr=1.5,
    momentum=0.9, trust=0.4, eps=1e-2, weight_decay=0.3,
    **SCHEDULED, native=False, run=run_torch(lambda ps, h: timm.optim.lars.Lars(
        ps, lr=h.lr, momentum=h.momentum, trust_coeff=h.trust, eps=h.eps, weight_decay=h.
        weight_decay, trust_clip=True)))
config("lamb_clip", "lamb", "timm.optim.Lamb",
       adamlike(timm.optim.lamb.Lamb, max_grad_norm=None, trust_clip=True),
       options="trust_clip=true", **{**ADAM, "weight_decay": 1.5}, **SCHEDULED, native=False)
config("lamb", "lamb", "timm.optim.Lamb", adamlike(timm.optim.lamb.Lamb, max_grad_norm=None),
       **ADAM)
config("novograd", "novograd", "timm.optim.NvNovoGrad", adamlike(timm.optim.nvnovograd.NvNovoGrad),
       **{**ADAM, "eps": 1e-1})
config("novograd_amsgrad", "novograd", "timm.optim.NvNovoGrad", options="amsgrad=true",
       **{**ADAM, "eps": 1e-1, "beta2": 0.6},
       run=adamlike(timm.optim.nvnovograd.NvNovoGrad, amsgrad=True))
config("novograd_averaging", "novograd", "timm.optim.NvNovoGrad", options="grad_averaging=true",
       **{**ADAM, "eps": 1e-1},
       run=adamlike(timm.optim.nvnovograd.NvNovoGrad, grad_averaging=True))
for name, nesterov, delta in (("adamp", False, 0.5), ("adamp_rows", False, 2.3), ("adamp_nesterov",
                                                                                  True, 1.0)):
    config(
        name, "adamp", "timm.optim.AdamP", options="nesterov=true" if nesterov else "", **ADAM,
        delta=delta, wd_ratio=0.2,
        run=run_torch(lambda ps, h, nesterov=nesterov: timm.optim.adamp.AdamP(
            ps, lr=h.lr, betas=(h.beta1, h.beta2), eps=h.eps, weight_decay=h.weight_decay, delta=h.
            delta, wd_ratio=h.wd_ratio, nesterov=nesterov)))

# timm factors the last two dimensions of (3, 5, 7), as we do, when 3 is too short to factor and 5
# is not
FACTOR = dict(decay=0.7, eps1=1e-4, clip_threshold=0.9, weight_decay=0.1)


def timm_adafactor(relative, momentum):
    return run_torch(lambda ps, h: timm.optim.adafactor.Adafactor(
        ps, lr=None if relative else h.lr, eps=h.eps1, eps_scale=h.get("eps2", 0), clip_threshold=h.
        clip_threshold, decay_rate=-h.decay, betas=(h.beta1, 0)
        if momentum else None, weight_decay=h.weight_decay, min_dim_size_to_factor=4))


config("adafactor", "adafactor", "timm.optim.Adafactor", timm_adafactor(True, False), **FACTOR,
       lr=0.01, eps2=0.3)
config("adafactor_momentum", "adafactor", "timm.optim.Adafactor", timm_adafactor(True, True),
       options="momentum=true", **FACTOR, lr=0.01, eps2=1e-3, beta1=0.8)
config("adafactor_fixed", "adafactor", "timm.optim.Adafactor", timm_adafactor(False, False),
       options="relative_step=false,scale_parameter=false", **FACTOR, lr=0.05)
# torch caps the relative step by lr, as we do, but uses eps1 and weight decay otherwise: both are
# out of the way here
config(
    "adafactor_torch", "adafactor", "torch.optim.Adafactor", lr=0.3, decay=0.7, eps1=1e-30,
    eps2=0.3, clip_threshold=1.0, weight_decay=0.0,
    run=run_torch(lambda ps, h: torch.optim.Adafactor(ps, lr=h.lr, beta2_decay=-h.decay, eps=(
        h.eps1, h.eps2), d=h.clip_threshold, weight_decay=h.weight_decay)))
config(
    "came", "came", "came_pytorch.CAME", lr=0.01, beta1=0.8, beta2=0.9, beta3=0.95, eps1=1e-4,
    eps2=1e-3, clip_threshold=0.9, weight_decay=0.1, run=run_torch(lambda ps, h: came_pytorch.CAME(
        ps, lr=h.lr, betas=(h.beta1, h.beta2, h.beta3), eps=
        (h.eps1, h.eps2), clip_threshold=h.clip_threshold, weight_decay=h.weight_decay)))

# Wrappers. The one named first in --with stands nearest to the rule.
make_sgd = lambda ps, h: torch.optim.SGD(ps, lr=h.lr, momentum=h.momentum, weight_decay=h.
                                         weight_decay)
make_adamw = lambda ps, h: torch.optim.AdamW(ps, lr=h.lr, betas=(h.beta1, h.beta2), eps=h.eps,
                                             weight_decay=h.weight_decay)
make_cautious = lambda ps, h: timm.optim.adamw.AdamWLegacy(ps, lr=h.lr, betas=(
    h.beta1, h.beta2), eps=h.eps, weight_decay=h.weight_decay, caution=True)

config("sgd_clip_value", "sgd", "torch.nn.utils.clip_grad_value_ and torch.optim.SGD",
       wrap="clip_value(0.3)", clip_value__max_value=0.3, **SGD, dampening=0.0,
       run=run_torch(make_sgd, lambda ps, h: clip_grad_value_(ps, h["clip_value.max_value"])))
config(
    "sgd_clip_norm", "sgd", "torch.nn.utils.clip_grad_norm_ and torch.optim.SGD; clipped tensor "
    "by tensor", wrap="clip_norm(0.8)", clip_norm__max_norm=0.8, clip_norm__eps=1e-6, **SGD,
    dampening=0.0, run=run_torch(
        make_sgd, lambda ps, h: [clip_grad_norm_([p], h["clip_norm.max_norm"]) for p in ps]))
# clips some steps only
config("sgd_clip", "sgd", "torch.nn.utils.clip_grad_norm_ and torch.optim.SGD", wrap="clip(15.8)",
       clip__max_norm=15.8, clip__eps=1e-6, **SGD, dampening=0.0,
       run=run_torch(make_sgd, lambda ps, h: clip_grad_norm_(ps, h["clip.max_norm"])))
config("adamw_clip", "adamw", "torch.nn.utils.clip_grad_norm_ and torch.optim.AdamW",
       wrap="clip(1)", clip__max_norm=1.0, clip__eps=1e-6, **ADAM,
       run=run_torch(make_adamw, lambda ps, h: clip_grad_norm_(ps, h["clip.max_norm"])))
# of finite gradients skip leaves none out: the numbers of adamw_clip
config("adamw_clip_skip", "adamw", "torch.nn.utils.clip_grad_norm_ and torch.optim.AdamW",
       wrap="clip(1),skip", clip__max_norm=1.0, clip__eps=1e-6, **ADAM,
       run=run_torch(make_adamw, lambda ps, h: clip_grad_norm_(ps, h["clip.max_norm"])))
config("adamw_centralize", "adamw", "po.centralize_gradient and torch.optim.AdamW",
       wrap="centralize", **ADAM, run=run_torch(make_adamw, centralize))
config("adamw_cautious", "adamw", "timm.optim.AdamWLegacy; with caution", wrap="cautious",
       cautious__min_share=1e-3, **{**ADAM, "weight_decay": 0.0}, run=run_torch(make_cautious))
config("sgdw_cautious", "sgdw", "timm.optim.SGDW; with caution", wrap="cautious",
       cautious__min_share=1e-3, lr=0.05, momentum=0.9, dampening=0.0, weight_decay=0.0,
       run=sgdlike(timm.optim.sgdw.SGDW, caution=True))
# decay is not masked
config("adamw_cautious_apart", "adamw", "timm.optim.AdamWLegacy; with caution",
       wrap="cautious(apart=true)", cautious__min_share=1e-3, **{**ADAM, "weight_decay": 0.3},
       run=run_torch(make_cautious))


def make_adamc(ps, h):
    opt = po.AdamC([{"params": ps, "normalized": True}], lr=h.lr, betas=(h.beta1, h.beta2),
                   eps=h.eps, foreach=False, weight_decay=h.weight_decay)
    opt.max_lr = h["corrected_decay.max_lr"]
    root = opt.apply_ams_bound
    # po adds 1e-15 to v
    opt.apply_ams_bound = lambda **given: root(**given, exp_avg_sq_eps=0.0)
    return opt


# eps 0: po adds it before the bias correction
config("adamw_corrected_decay", "adamw", "po.AdamC", wrap="corrected_decay(0.05)",
       corrected_decay__max_lr=0.05, **{**ADAM, "eps": 0.0,
                                        "weight_decay": 0.3}, run=run_torch(make_adamc))


class Accumulated:
    """Every fourth step is AdamW's, with the mean of four gradients, as torch's loops add them
    up."""

    def __init__(self, params, h):
        self.params, self.opt, self.sums, self.steps = params, make_adamw(params,
                                                                          h), [0 for _ in params], 0
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
    """The gradients count as scaled ones: the scaler divides them, and its scale doubles after
    every fifth step."""

    def __init__(self, params, h):
        self.opt = make_adamw(params, h)
        self.scaler = torch.amp.GradScaler("cpu", init_scale=4.0, growth_interval=5)
        self.scaler.scale(torch.ones(1))
        self.param_groups = self.opt.param_groups

    def step(self):
        self.scaler.step(self.opt)
        self.scaler.update()


config("adamw_ema", "adamw", "torch.optim.swa_utils.AveragedModel and torch.optim.AdamW",
       wrap="ema(0.9)", state="ema.avg", ema__decay=0.9, **ADAM,
       run=run_torch(make_adamw, after=ema))
config("adamw_accumulate", "adamw", "torch.optim.AdamW", wrap="accumulate(4)", **ADAM,
       run=run_torch(Accumulated))
config("adamw_log", "adamw", "torch.optim.AdamW", wrap="log", **ADAM, run=run_torch(make_adamw))
config("adamw_loss_scale", "adamw", "torch.amp.GradScaler and torch.optim.AdamW",
       wrap="loss_scale(4)", loss_scale__interval=5, **ADAM, run=run_torch(Scaled))
config(
    "adamw_lookahead", "adamw", "po.Lookahead and torch.optim.AdamW", wrap="lookahead(6,0.3)",
    lookahead__alpha=0.3, **ADAM,
    run=run_torch(lambda ps, h: po.Lookahead(make_adamw(ps, h), k=6, alpha=h["lookahead.alpha"])))


def optax_sgd(h):
    import optax
    return optax.chain(optax.add_decayed_weights(h.weight_decay),
                       optax.sgd(h.lr, momentum=h.momentum))


def optax_adamw(h):
    import optax
    return optax.adamw(h.lr, b1=h.beta1, b2=h.beta2, eps=h.eps, weight_decay=h.weight_decay)


config("sgd_sam", "sgd", "optax.contrib.sam and optax.sgd", run_optax_sam(optax_sgd),
       wrap="sam(0.5)", sam__rho=0.5, sam__eps=0.0, **SGD, dampening=0.0)
config("adamw_sam", "adamw", "optax.contrib.sam and optax.adamw", run_optax_sam(optax_adamw),
       wrap="sam(0.5)", sam__rho=0.5, sam__eps=0.0, **ADAM)

for name, state in (("adamw_clip_cautious_ema", "ema.avg"), ("adamw_clip_cautious", "")):
    config(
        name, "adamw", wrap="clip(1),cautious" + (",ema(0.9)" if state else ""), state=state,
        clip__max_norm=1.0, clip__eps=1e-6, cautious__min_share=1e-3,
        **(dict(ema__decay=0.9) if state else {}), **{**ADAM, "weight_decay": 0.0},
        source="torch.nn.utils.clip_grad_norm_, timm.optim.AdamWLegacy" +
        (", torch.optim.swa_utils.AveragedModel" if state else "") + "; with caution",
        run=run_torch(make_cautious, lambda ps, h: clip_grad_norm_(ps, h["clip.max_norm"]),
                      ema if state else None))
config(
    "lamb_centralize_lookahead", "lamb", "po.centralize_gradient, timm.optim.Lamb and po.Lookahead",
    wrap="centralize,lookahead(4,0.6)", lookahead__alpha=0.6, **ADAM, run=run_torch(
        lambda ps, h: po.Lookahead(
            timm.optim.lamb.Lamb(ps, lr=h.lr, betas=(h.beta1, h.beta2), eps=h.eps, weight_decay=h.
                                 weight_decay, max_grad_norm=None), k=4, alpha=h["lookahead.alpha"]
        ), centralize))
