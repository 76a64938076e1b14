"""The part of make_refs.py for wrappers around a rule's steps: outer momentum, look-ahead points,
floors of steps; and for AMUSE. --clones names a folder with these repositories, of which nothing is
changed but types:

    https://github.com/KellerJordan/modded-nanogpt f411b3d, whose records hold the authors' code
    https://github.com/kjeiun/amuse                             4c6383f
"""
import types

import torch

from matrix_refs import SHAPES as MATRICES, adamw, polar, run_matrix
from more_refs import TRACK_3, Each, between, in_float64, text_of
from ref_runs import RUN, each_param

SNOO = ("modded-nanogpt/records/track_2_medium/2025-09-16_Snoo/"
        "000_01db7a67-f715-4114-a7b5-6bfe23bac1b1.txt")
MULOCO = TRACK_3 + "20260504_muloco_normuonh/train_gpt_simple_muloco_normuonh.py"
EMA_NESTEROV = TRACK_3 + "20260522_ema_nesterov_muon/4d9e83d4-4e3f-43d3-8aae-e3a9031586be.txt"
FLOOR = TRACK_3 + "20260501_skylight001/f78af80a-2ba3-4cf7-b9f7-e6e56ff2c54d.txt"
ROW_FLOOR = TRACK_3 + "20260619_cwd_rowfloor_tailema/train_gpt_cwd_SOTA.py"


def part(clones, path, first, last):
    """The names that these lines of a record define."""
    return in_float64(clones, path, text=between(text_of(clones, path), first, last), torch=torch,
                      nn=torch.nn, Tensor=torch.Tensor)


def outer(clones, make, k, muloco):
    """A rule's optimizer, then the outer one after each of its steps."""
    def made(ps, h):
        inner, lr, momentum = make(ps, h), h["snoo.outer_lr"], h["snoo.outer_momentum"]
        if muloco:
            kind = part(clones, MULOCO, "class NesterovOuterOptimizer:",
                        "#" * 40 + "\n#                Setup")
            after = kind.NesterovOuterOptimizer(each_param(ps), lr, momentum, k).maybe_outer_step
        else:
            kind = part(clones, SNOO, "class Snoo:", "    def state_dict")
            after = kind.Snoo(torch.nn.ParameterList(each_param(ps)), lr, momentum, k).step

        def step():
            inner.step()
            after()
        return types.SimpleNamespace(step=step, param_groups=inner.param_groups)
    return made


class LookAhead:
    """EMA_Nesterov around a rule's optimizer. The record sets lr after it looks ahead, so the
    look-ahead of a step may be made with the rate of the step before: at its end."""
    last = None

    def __init__(self, clones, make, ps, h, **more):
        self.inner, self.params = make(ps, h), each_param(ps)
        self.param_groups = self.inner.param_groups
        for group in self.param_groups:
            group["initial_lr"] = group["lr"]
        kind = part(clones, EMA_NESTEROV, "class EMA_Nesterov(",
                    "#" * 40 + "\n#                Setup").EMA_Nesterov
        self.opt = kind(self.params, self.inner,
                        lookahead_stepsize=h["ema_nesterov.lookahead_stepsize"],
                        lookahead_ema=h["ema_nesterov.lookahead_ema"], **more)
        self.opt.nesterov_step()
        LookAhead.last = self

    def step(self):
        self.opt.step()
        self.opt.nesterov_step()

    def weights(self):
        return [self.opt.state[p]["prev_params"][0] for p in self.params]


def floored(clones, rows):
    """Muon with the lines of a record that scale its update."""
    text = text_of(clones, ROW_FLOOR if rows else FLOOR) if clones else ""
    first, last = ("p_fro = p.float()", "target_radius = ") if rows else ("TARGET_UW = 0.35",
                                                                          "# WD set to 0")
    lines = between(text, first, last).rstrip() if clones else ""
    lines = "\n".join(
        line[20:] if line.startswith(" " * 20) else line for line in lines.split("\n"))
    lines = lines.replace("TARGET_UW = 0.35", "TARGET_UW = target").replace(".float()", "")

    def make(ps, h):
        muon = part(clones, TRACK_3 + "20260430_muonh/train_gpt_simple_muonh.py",
                    "def muon_update(", "def scale_invariant_update_")
        muon.zeropower_via_newtonschulz5 = polar
        code, target = compile(lines, "floor", "exec"), h["uw_floor.target"]

        def update(p, g, kept):
            u = muon.muon_update(g.clone(), kept.setdefault("m", torch.zeros_like(p)), h.momentum)
            names = dict(torch=torch, p=p.data, update=u, target=target, use_soap=False,
                         ROWFLOOR=True, ROWFLOOR_RHO=1.0, NONSOAP_TARGET_UW=target)
            exec(code, names)
            p.add_(names["update"], alpha=-each.param_groups[0]["lr"])
        each = Each(ps, h, update)
        return each
    return make


class Amuse:
    """The authors' class, a group of matrices and one of vectors; rates of a schedule are their
    base_lr."""
    last = None

    def __init__(self, clones, ps, h):
        module = in_float64(clones, "amuse/src/optim/AMUSE.py")
        module.zeropower_via_newtonschulz5 = polar
        given = {
            k: h[k]
            for k in ("weight_decay_at_y", "beta1", "weight_lr_power", "warmup_steps", "rho", "r")
        }
        groups = []
        for group in ps if isinstance(ps[0], dict) else [dict(params=ps)]:
            matrices = [p for p in group["params"] if p.dim() > 1]
            vectors = [p for p in group["params"] if p.dim() < 2]
            groups += [
                dict(params=matrices, use_muon=True, lr=group.get("lr", h.lr), momentum=h.momentum,
                     weight_decay=h.weight_decay)
            ] * bool(matrices)
            groups += [dict(params=vectors, lr=h.lr_1d, beta2=h.beta2, eps=h.eps,
                            weight_decay=h.weight_decay)] * bool(vectors)
        self.params, self.opt = each_param(ps), module.AMUSE(groups, **given)
        self.param_groups = self.opt.param_groups
        self.opt.train()
        Amuse.last = self

    def step(self):
        for group in self.param_groups if RUN["schedule"] else ():
            group["base_lr"] = group["lr"]
        self.opt.step()

    def evaluated(self):
        self.opt.eval()
        x = [p.detach().clone() for p in self.params]
        self.opt.train()
        return x


def configs(api, clones):
    config, run, SGD, ADAM = api.config, api.run_torch, api.SGD, api.ADAM
    record = "KellerJordan/modded-nanogpt f411b3d"
    two = dict(api.SCHEDULED, native=False, group=(2, dict(lr=0.02)))

    config("adamw_snoo", "adamw", record + " and torch.optim.AdamW",
           run(outer(clones, api.make_adamw, 6, False)), wrap="snoo(6)", snoo__outer_lr=0.7,
           snoo__outer_momentum=0.4, **ADAM)
    config("sgd_snoo_groups", "sgd", record + " and torch.optim.SGD",
           run(outer(clones, api.make_sgd, 7, False)), wrap="snoo(7)", snoo__outer_lr=0.68,
           snoo__outer_momentum=0.37, **two, **SGD, dampening=0.0)
    config("adamw_snoo_muloco", "adamw", record + " and torch.optim.AdamW; as MuLoCo of one worker",
           run(outer(clones, api.make_adamw, 5, True)), wrap="snoo(5,offset=0)", snoo__outer_lr=0.5,
           snoo__outer_momentum=0.8, **two, **ADAM)

    for name, spec, make, hyper, steps, how in (("adamw_ema_nesterov", "adamw", api.make_adamw,
                                                 ADAM, (0, 100), {}),
                                                ("sgd_ema_nesterov_groups", "sgd", api.make_sgd,
                                                 dict(SGD, dampening=0.0), (7, 50), two)):
        config(
            name, spec, record + f" and torch.optim.{'SGD' if spec == 'sgd' else 'AdamW'}",
            run(
                lambda ps, h, make=make, steps=steps: LookAhead(clones, make, ps, h, prefill_steps=
                                                                steps[0], rest_steps=steps[1]),
                after=lambda ps, h: lambda: LookAhead.last.weights()), wrap="ema_nesterov",
            look="to_eval to_train", pull=0.5, ema_nesterov__lookahead_stepsize=0.6,
            ema_nesterov__lookahead_ema=0.8, ema_nesterov__prefill_steps=float(steps[0]),
            ema_nesterov__rest_steps=float(steps[1]), **how, **hyper)

    rest = {("adamw__" + k): v for k, v in ADAM.items()}
    for name, rows, target in (("muon_uw_floor", False, 0.7), ("muon_uw_floor_rows", True, 0.7)):
        config(name, "muon", record + " and torch.optim.AdamW; in float64",
               run_matrix(api, floored(clones, rows), adamw, None,
                          MATRICES), wrap=f"uw_floor({target}{',rows=true' if rows else ''})",
               shapes=MATRICES, schedule=True, steps=api.LONG, native=False, lr=0.05, momentum=0.8,
               weight_decay=0.0, uw_floor__target=target, **rest)

    rule = lambda ps, h: Amuse(clones, ps, h)
    hyper = dict(lr=0.05, momentum=0.8, weight_decay=0.1, weight_decay_at_y=0.0, lr_1d=0.02,
                 beta1=0.7, beta2=0.9, eps=1e-3, warmup_steps=4.0, rho=1.0, r=0.0,
                 weight_lr_power=2.0)
    other = {
        **hyper, "weight_decay_at_y": 0.2, "warmup_steps": 9.0, "rho": 0.8, "r": 0.5,
        "weight_lr_power": 1.5
    }
    source = "kjeiun/amuse 4c6383f; iteration in float64"
    config("amuse", "amuse", source, run_matrix(api, rule), shapes=MATRICES, **hyper)
    config("amuse_groups", "amuse", source, run_matrix(api, rule), shapes=[(), (7,), (9, 5),
                                                                           (5, 9)], schedule=True,
           steps=api.LONG, native=False, group=(3, dict(lr=0.02)), **other)
    config("amuse_eval", "amuse", source,
           run(rule, after=lambda ps, h: lambda: Amuse.last.evaluated()), shapes=[(),
                                                                                  (7,), (24, 10),
                                                                                  (10, 24)],
           look="to_eval to_train", native=False, **{**hyper, "rho": 0.6})
