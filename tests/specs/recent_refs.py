"""The part of make_refs.py for Nora, SRON, Mousse, PMuon, SOAP-Muon, ARO and FISMO. --clones names
a folder with these repositories:

    https://github.com/Yuan-Jinghui/Nora                        925df95
    https://github.com/Anti-Entrophic/Mousse                    d00c1bf
    https://github.com/KellerJordan/modded-nanogpt              f411b3d
    https://github.com/microsoft/dion                           9c6b30d (branch dev/aro), as
                                                                dion_aro

SRON's and FISMO's authors have published no code: these are transcriptions of the formulas
(more_refs.py has SRON with the code of SCALE's authors). Iterations of polar() are in float64.
"""
import math
import typing

import torch

from factor_refs import SQUARE
from matrix_refs import SHAPES as MATRICES, adamw, polar, run_matrix
from more_refs import TRACK_3, Each, between, in_float64, text_of
from select_refs import coefficient_sets, functions

SOAP_MUON = TRACK_3 + "20260504_contra_muon_mlp_soapish/train_gpt_contra_normuon_soapish_mlp.py"
SMALL = [(), (7,), (1, 9), (9, 5), (5, 9), (6, 6), (4, 3, 2, 2)]
TYPES = {n: getattr(typing, n) for n in ("Callable", "Dict", "Generator", "List", "Optional")}
PMUON = TRACK_3 + "20260507_pmuon/54fc0541-7a62-4772-a8f8-d3a46ad10dba.txt"


def nora(clones):
    def make(ps, h):
        groups = ps if isinstance(ps[0], dict) else [dict(params=ps)]
        opt = in_float64(clones, "Nora/nora.py").Nora(
            [dict(lr=h.lr, **g) if "lr" not in g else g for g in groups], momentum=h.momentum,
            beta=h.beta, eps=h.eps, weight_decay=h.weight_decay)
        opt.step = torch.no_grad()(opt.step)
        return opt
    return make


def sron(ps, h):
    def update(p, g, kept):
        lr = each.param_groups[0]["lr"]
        p.mul_(1 - lr * h.weight_decay)
        p.sub_(h.alpha * lr * g / (torch.sqrt((g * g).mean(1, keepdim=True)) + h.eps))
    each = Each(ps, h, update)
    return each


def mousse(clones, nesterov=False, freq=10, graft=True, adjust="spectral_norm"):
    """Their update of one matrix. On one rank it reads `state`, which only more ranks set: here it
    is states[0]."""
    def make(ps, h):
        text = text_of(clones, "Mousse/dion/dion/mousse.py")
        module = in_float64(
            clones, "mousse.py", ("G[0],\n            state,", "G[0],\n            states[0],"),
            text=text[text.index("def clean_eigenvalues("):], torch=torch, math=math,
            Tensor=torch.Tensor, to_local=lambda x: x, ProcessGroup=None, DTensor=(), **TYPES)
        sets = coefficient_sets(clones)["quintic"]

        def update(p, g, kept):
            if not kept:
                kept.update(t=0, m=torch.zeros_like(p), L=torch.zeros(len(p), len(p)),
                            R=torch.zeros(p.size(1), p.size(1)))
            kept["t"] += 1
            list(
                module.mousse_update_batch_async(
                    [p], [g], [kept["m"]], [kept], torch.tensor(each.param_groups[0]["lr"]),
                    torch.tensor(h.mu), torch.tensor(h.weight_decay), torch.tensor(0.0),
                    torch.tensor(h.shampoo_beta), torch.tensor(h.shampoo_epsilon), freq,
                    h.shampoo_alpha, True, kept["t"], nesterov, False, adjust, 0, 1,
                    newton_schulz_func=lambda x, epsilon: polar(x, 5, sets), apply_norm=graft))
        each = Each(ps, h, update)
        return each
    return make


def pmuon(clones):
    """Its functions. Directions start as the identity in place of random ones."""
    def make(ps, h):
        text = between(text_of(clones, PMUON), "@torch.no_grad()\ndef _streaming_cov_power",
                       "class Muon(")
        module = in_float64(clones, "pmuon.py", ("torch.randn(n, n,", "torch.eye(n, n,"),
                            ("eps = 1e-6", f"eps = {h.eps!r}"), text=text, torch=torch)

        def update(p, g, kept):
            if not kept:
                kept.update(m=torch.zeros_like(p), cov=torch.zeros(p.size(1), p.size(1)),
                            out=torch.zeros(len(p), len(p)))
            lr = each.param_groups[0]["lr"]
            u, right, left = module.pmuon_update(g.clone(), kept["m"], kept["cov"], kept["out"],
                                                 h.mu, h.beta, h.gamma)
            right = module._streaming_cov_power(right, kept, "cov_Q", h.gamma, h.eps)
            left = module._streaming_cov_power(left, kept, "out_Q", h.gamma, h.eps)
            u = polar(left @ u @ right, 12, [(2, -1.5, 0.5)]) * max(1, p.size(0) / p.size(1)) ** 0.5
            p.mul_(1 - lr * h.weight_decay)
            p.add_(u, alpha=-lr)
        each = Each(ps, h, update)
        return each
    return make


def soap_muon(clones, frequency):
    """Its functions for one matrix; Contra-Muon, NorMuon and the floor of its class are left
    out."""
    def make(ps, h):
        module = in_float64(
            clones, "soap_muon.py", text=between(text_of(clones, SOAP_MUON), "def soap_eigenbasis(",
                                                 "# NorMuon-lite (port"), torch=torch,
            Tensor=torch.Tensor, SOAP_BETA2=0.9)

        def update(p, g, kept):
            if not kept:
                kept.update(m=torch.zeros_like(p), exp_avg_sq=torch.zeros_like(p),
                            row_gg=torch.zeros(len(p), len(p)), col_gg=torch.zeros(
                                p.size(1), p.size(1)), q_row=None, q_col=None, soap_step=0)
            lr = each.param_groups[0]["lr"]
            kept["m"].lerp_(g, 1 - h.mu)
            u = module.soap_precondition_momentum(g.lerp(kept["m"], h.mu), kept, h.beta2, h.eps)
            u = polar(u, 12, [(2, -1.5, 0.5)]) * max(1, p.size(0) / p.size(1)) ** 0.5
            p.mul_(1 - lr * h.weight_decay)
            p.add_(u, alpha=-lr)
            module.soap_update_preconditioner(g, kept, h.shampoo_beta, frequency)
        each = Each(ps, h, update)
        return each
    return make


def aro(clones, base="sinkhorn", adjust="rms_norm"):
    """Their update of one matrix; a tall one is given as its transpose."""
    def together(u, newton_schulz_func, epsilon, **unused):
        return list(newton_schulz_func(torch.stack(u), epsilon=epsilon))
        yield

    def make(ps, h):
        text = text_of(clones, "dion_aro/dion/aro.py")
        scales = functions(clones, "megabatch_base.py",
                           ["adjust_lr_spectral_norm", "adjust_lr_rms_norm"])
        module = in_float64(clones, "aro.py", ("1e-8", repr(h.eps)),
                            ('torch.autocast("cuda", enabled=False)', "torch.no_grad()"),
                            text=text[text.index("def aro_update_megabatch_async("):], torch=torch,
                            math=math, Tensor=torch.Tensor, to_local=lambda x: x, ProcessGroup=None,
                            megabatch_orthogonalize_async=together,
                            adjust_lr_spectral_norm=scales[0], adjust_lr_rms_norm=scales[1],
                            **TYPES)

        def update(p, g, kept):
            if p.size(0) > p.size(1):
                p, g = p.T, g.T
            if not kept:
                kept.update(m=torch.zeros_like(p), r=torch.eye(len(p)))
            list(
                module.aro_update_megabatch_async([p], [g], [kept["m"]], [kept["r"]],
                                                  torch.tensor(each.param_groups[0]["lr"]),
                                                  torch.tensor(h.mu), torch.tensor(h.weight_decay),
                                                  torch.tensor(0.0), base, False, adjust, 0, 1))
        each = Each(ps, h, update)
        return each
    return make


def fismo(ps, h, added=True):
    def root(a):
        w, v = torch.linalg.eigh(a)
        w = w + h.eps + 1e-6 * a.abs().sum(1).max() if added else w.clamp_min(h.eps)
        return (v * w ** -0.5) @ v.T

    def normalised(a, n):
        a = a * (n / a.trace())
        return 0.5 * (a + a.T)

    def update(p, g, kept):
        rows, cols = p.shape
        if not kept:
            kept.update(m=torch.zeros_like(p), p=torch.eye(rows), q=torch.eye(cols),
                        y=torch.eye(cols))
        left = g @ kept["y"] @ kept["y"] @ g.T / cols + h.mu * kept["p"].trace() / rows * torch.eye(
            rows)
        kept["p"] = normalised(h.gamma * kept["p"] + (1 - h.gamma) * left, rows)
        x = root(kept["p"])
        right = g.T @ x @ x @ g / rows + h.mu * kept["q"].trace() / cols * torch.eye(cols)
        kept["q"] = normalised(h.gamma * kept["q"] + (1 - h.gamma) * right, cols)
        y = kept["y"] = root(kept["q"])
        kept["m"] = h.beta * kept["m"] + (1 - h.beta) * x @ g @ y
        lr = each.param_groups[0]["lr"]
        p.mul_(1 - lr * h.weight_decay)
        p.sub_(lr * x @ polar(kept["m"]) @ y)
    each = Each(ps, h, update)
    return each


def fismo_floor(ps, h):
    return fismo(ps, h, False)


def configs(api, clones):
    rest = {("adamw__" + k): v for k, v in api.ADAM.items()}

    def matrices(name, spec, source, make, options="", shapes=None, other=None, note="", **hyper):
        """20 steps; or with other settings 60 under a schedule, over fewer elements."""
        shapes = shapes or (MATRICES if other is None else SMALL)
        how = dict(native=False, schedule=True, steps=api.LONG) if other is not None else {}
        api.config(name, spec, source + " and torch.optim.AdamW; in float64" + note,
                   run_matrix(api, make, adamw), options=options, shapes=shapes, **how,
                   **{**hyper, **(other or {})}, **rest)

    source = "Yuan-Jinghui/Nora 925df95"
    hyper = dict(lr=0.05, momentum=0.8, beta=0.9, eps=1e-3, weight_decay=0.1)
    # rows of one element: nothing is left of them
    thick = [s for s in MATRICES if s != (9, 1)]
    matrices("nora", "nora", source, nora(clones), shapes=thick, **hyper)
    matrices("nora_schedule", "nora", source, nora(clones), shapes=thick,
             other=dict(momentum=0.3, beta=0.5, eps=0.2), **hyper)
    source = "the formulas of openreview BtQLBWr6zI transcribed"
    hyper = dict(lr=0.05, alpha=0.4, eps=1e-3, weight_decay=0.1)
    matrices("sron", "sron", source, sron, **hyper)
    matrices("sron_schedule", "sron", source, sron, other=dict(alpha=1.5, eps=0.3,
                                                               weight_decay=0.0), **hyper)
    source = "Anti-Entrophic/Mousse d00c1bf"
    hyper = dict(lr=0.05, mu=0.8, shampoo_beta=0.85, shampoo_alpha=0.125, shampoo_epsilon=1e-3,
                 weight_decay=0.1)
    matrices("mousse", "mousse", source, mousse(clones), **hyper)
    matrices("mousse_nesterov", "mousse", source, mousse(clones, True, 1, False, "rms_norm"),
             "nesterov=true,shampoo_update_freq=1,apply_norm=false,adjust_lr=rms_norm",
             other=dict(mu=0.5, shampoo_alpha=0.25, shampoo_beta=0.6), **hyper)
    matrices("mousse_none", "mousse", source, mousse(clones, True, 4, True, None),
             "nesterov=true,shampoo_update_freq=4,adjust_lr=none",
             other=dict(shampoo_epsilon=0.1, weight_decay=0.0), **hyper)
    source = "KellerJordan/modded-nanogpt f411b3d"
    hyper = dict(note=", directions start as the identity", lr=0.05, mu=0.8, beta=0.85, gamma=0.3,
                 eps=1e-3, weight_decay=0.1)
    matrices("pmuon", "pmuon", source, pmuon(clones), **hyper)
    matrices("pmuon_schedule", "pmuon", source, pmuon(clones),
             other=dict(mu=0.5, beta=0.6, gamma=0.5, eps=0.1, weight_decay=0.0), **hyper)
    source = "KellerJordan/modded-nanogpt f411b3d"
    hyper = dict(lr=0.05, mu=0.8, beta2=0.9, shampoo_beta=0.85, eps=1e-3, weight_decay=0.1)
    matrices("soap_muon", "soap_muon", source, soap_muon(clones, 1), shapes=SQUARE, **hyper)
    matrices("soap_muon_schedule", "soap_muon", source, soap_muon(clones, 4),
             "precondition_frequency=4", SQUARE,
             dict(mu=0.5, beta2=0.6, shampoo_beta=0.7, eps=0.1, weight_decay=0.0), **hyper)
    source = "microsoft/dion 9c6b30d"
    hyper = dict(lr=0.05, mu=0.8, eps=1e-3, weight_decay=0.1)
    sides = [s for s in MATRICES if len(s) < 2 or s[0] > 1 and s != (9, 1)]
    wide = [s for s in sides if len(s) < 2 or s[0] <= math.prod(s[1:])]
    matrices("aro", "aro", source, aro(clones), shapes=sides, **hyper)
    matrices("aro_rows", "aro", source, aro(clones, "row_norm", "spectral_norm"),
             "base_opt=row_norm,adjust_lr=spectral_norm", wide,
             dict(mu=0.5, eps=0.1, weight_decay=0.0), **hyper)
    # signs of smaller matrices may be singular, and QR arbitrary
    long = [(), (7,), (24, 10), (10, 24)]
    matrices("aro_sign", "aro", source, aro(clones, "sign", None), "base_opt=sign,adjust_lr=none",
             long, dict(mu=0.3), **hyper)
    source = "the algorithm of arXiv:2601.21750 transcribed"
    hyper = dict(lr=0.05, beta=0.8, gamma=0.85, mu=1e-2, eps=1e-4, weight_decay=0.1)
    matrices("fismo", "fismo", source, fismo, **hyper)
    other = dict(beta=0.5, gamma=0.6, mu=0.2, eps=0.3, weight_decay=0.0)
    matrices("fismo_schedule", "fismo", source, fismo, other=other, **hyper)
    matrices("fismo_eigenvectors", "fismo", source, fismo_floor, "root=eigenvectors", **hyper)
    matrices("fismo_eigenvectors_schedule", "fismo", source, fismo_floor, "root=eigenvectors",
             other=other, **hyper)
