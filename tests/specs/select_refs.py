"""The part of make_refs.py for rules that select rows: Dion2 and Dion3 of microsoft/dion
(matrix_refs.py names the commit); and for the coefficient sets of NVIDIA's Emerging-Optimizers
(rule_refs.py names it).

Functions are taken from its files one by one, because its package needs triton. Their bfloat16 and
float32 become float64, and torch does not compile them; nothing else is changed. The iteration is
theirs too, with epsilon 0.
"""
import ast
import math
import os
import typing

import torch

from matrix_refs import SHAPES, adamw, polar, run_matrix, torch_muon


def functions(clones, path, names, **known):
    """These functions of a file of the clone, in float64."""
    with open(os.path.join(clones or "", "dion/dion", path)) as f:
        text = f.read().replace("torch.bfloat16",
                                "torch.float64").replace(".bfloat16()", ".double()")
    text = text.replace(".float()", ".double()")
    tree = ast.parse(text)
    tree.body = [n for n in tree.body
                 if isinstance(n, ast.FunctionDef) and n.name in names or
                 isinstance(n, ast.Assign) and n.targets[0].id.isupper()]
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            node.decorator_list = []
    space = {"torch": torch, "math": math, "Tensor": torch.Tensor, **vars(typing), **known}
    exec(compile(tree, path, "exec"), space)
    return [space[n] for n in names]


class Dion2:
    def __init__(self, clones, params, h, fraction, scale):
        self.params, self.h, self.fraction = params, h, fraction
        self.before, self.after = functions(clones, "dion2.py",
                                            ["dion2_pre_orthogonalize", "dion2_post_orthogonalize"])
        self.polar, = functions(clones, "polar_express.py", ["polar_express"])
        self.scale = functions(clones, "megabatch_base.py",
                               ["adjust_lr_spectral_norm", "adjust_lr_rms_norm"])[scale]
        self.m = [torch.zeros_like(p) for p in params]
        self.param_groups = [{"lr": h.lr}]

    def side(self, p):
        return -2 if p.size(-2) <= p.size(-1) else -1

    def normalize(self, i, u, index):
        return u

    @torch.no_grad()
    def step(self):
        h, lr = self.h, self.param_groups[0]["lr"]
        for i, p in enumerate(self.params):
            side = self.side(p)
            u, index = self.before([p.grad], [self.m[i]], self.fraction, torch.tensor(self.decay()),
                                   side)
            u = [self.normalize(i, self.polar(u[0], epsilon=0.0), index[0])]
            self.after([p], u, index, torch.tensor(lr),
                       torch.tensor(self.scale(lr, p.shape, flatten=True)),
                       torch.tensor(h.weight_decay), side)

    def decay(self):
        return self.h.ef_decay


class Dion3(Dion2):
    def __init__(self, clones, params, h, fraction, scale):
        super().__init__(clones, params, h, fraction, scale)
        names = ["_normuon_normalization_core", "normuon_normalization_stacked"]
        stacked = functions(clones, "normuon.py", names)[1]
        self.selected, = functions(clones, "nordion2.py", ["nordion2_normalize_selected_stacked"],
                                   normuon_normalization_stacked=stacked)
        self.v = [torch.zeros(p.size(0), 1) for p in params]

    def side(self, p):
        return -2

    def normalize(self, i, u, index):
        u, v = self.selected(u[None], self.v[i][None], index[None], torch.tensor(self.h.beta2))
        self.v[i].copy_(v[0])
        return u[0]

    def decay(self):
        return self.h.mu


def coefficient_sets(clones):
    """Their table, read from the file."""
    path = "Emerging-Optimizers/emerging_optimizers/orthogonalized_optimizers/muon_utils.py"
    with open(os.path.join(clones or "", path)) as f:
        tree = ast.parse(f.read())
    tree.body = [
        n for n in tree.body if isinstance(n, ast.Assign) and n.targets[0].id == "_COEFFICIENT_SETS"
    ]
    space = {}
    exec(compile(tree, "muon_utils.py", "exec"), space)
    return space["_COEFFICIENT_SETS"]


def configs(api, clones):
    for name, steps in (("quintic", 5), ("deepseekv4", 10), ("cubic5", 5)):
        def iterate(g, steps, name=name, **unused):
            return polar(g, steps, coefficient_sets(clones)[name])
        api.config("muon_" + name, "muon", "torch.optim.Muon with the coefficients of "
                   "Emerging-Optimizers fd77292",
                   run_matrix(api, torch_muon(iterate, steps=steps),
                              adamw), options="coefficients=" + name, native=False, shapes=SHAPES,
                   lr=0.05, momentum=0.8, weight_decay=0.1, adamw__lr=0.02, adamw__beta1=0.8,
                   adamw__beta2=0.95, adamw__eps=1e-3, adamw__weight_decay=0.1)
    rest = dict(adamw__lr=0.02, adamw__beta1=0.8, adamw__beta2=0.95, adamw__eps=1e-3,
                adamw__weight_decay=0.1)
    for kind, spec, own in ((Dion2, "dion2", dict(ef_decay=0.8)),
                            (Dion3, "dion3", dict(mu=0.8, beta2=0.9, eps=1e-8))):
        for name, fraction, scale in (("", 0.25, 0), ("_half", 0.6, 1)):
            def made(ps, h, kind=kind, fraction=fraction, scale=scale):
                return kind(clones, ps, h, fraction, scale)
            options = "" if not name else "fraction=0.6,scale=rms"
            api.config(spec + name, spec,
                       "microsoft/dion 0a059a4 in float64, and torch.optim.AdamW",
                       run_matrix(api, made, adamw), options=options, shapes=SHAPES,
                       native=not name, lr=0.05, weight_decay=0.1, **own, **rest)
