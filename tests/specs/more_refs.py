"""The part of make_refs.py for rules of 2023 to 2026. --clones names a folder with these
repositories:

    https://github.com/jxbz/nero                                32436c0
    https://github.com/OpenLMLab/LOMO                           45d4bac
    https://github.com/axolotl-ai-cloud/axolotl                 067b021
    https://github.com/Dominator-Index/RMNP                     a662ebc
    https://github.com/xie-lab-ml/Mano-Restriking-Manifold-Optimization-for-LLM-Training b78b952
    https://github.com/OptimAI-Lab/Minimalist_LLM_Pretraining   f5bd4e7
    https://github.com/ethansmith2000/SWANOptimizer             1184360
    https://github.com/tilde-research/aurora-release            3d79a5c
    https://github.com/KellerJordan/modded-nanogpt              f411b3d
    https://github.com/zhuhanqing/APOLLO                        76b3472
    https://github.com/lliu606/COSMOS                           61de180
    https://github.com/NVIDIA-NeMo/Emerging-Optimizers          fd77292
    https://github.com/gdevos010/simply-pytorch                 dad68d0
"""
import os
import sys
import types

import torch

from factor_refs import SQUARE, normal
from matrix_refs import SHAPES as MATRICES, adamw, load, polar, polar_exact, run_matrix
from ref_runs import each_param
from rule_refs import nvidia

TRACK_3 = "modded-nanogpt/records/track_3_optimization/results/"
MANO = "Mano-Restriking-Manifold-Optimization-for-LLM-Training/mano.py"
NVIDIA = "NVIDIA-NeMo/Emerging-Optimizers fd77292"
IN_FLOAT64 = (("torch.float32", "torch.float64"), ("torch.bfloat16", "torch.float64"),
              (".float()", ".double()"), (".bfloat16()", ".double()"), (".cuda()", ""))
# both sides of matrices hold four directions
WIDE = [(), (7,), (24, 10), (10, 24), (12, 12)]


def text_of(clones, path):
    with open(os.path.join(clones, path)) as f:
        return f.read()


def in_float64(clones, path, *changes, text=None, **given):
    """A file as a module whose types are float64; `changes` are further replacements, `given`
    further names."""
    text = text or text_of(clones, path)
    for old, new in (*changes, *IN_FLOAT64):
        text = text.replace(old, new)
    module = types.ModuleType("f64_" + os.path.basename(path)[:-3])
    module.__dict__.update(given)
    compiled, torch.compile = torch.compile, lambda f=None, **unused: f if callable(
        f) else lambda f: f
    try:
        exec(compile(text, path, "exec"), module.__dict__)
    finally:
        torch.compile = compiled
    return module


def between(text, first, last):
    return text[text.index(first):text.index(last)]


class Each:
    """Calls a function of the matrix, its gradient and what is kept of it."""

    def __init__(self, params, h, update):
        self.params, self.h, self.update, self.kept = params, h, update, [{} for _ in params]
        self.param_groups = [dict(params=params, lr=h.lr)]

    @torch.no_grad()
    def step(self):
        for p, kept in zip(self.params, self.kept):
            self.update(p, p.grad, kept)


def lomo(clones, name, **fixed):
    """The authors' class without its hooks: step() calls the function that these run."""
    def make(ps, h):
        for stub in ("transformers", "transformers.integrations",
                     "transformers.integrations.deepspeed", "transformers.utils"):
            sys.modules[stub] = types.ModuleType(stub)
        sys.modules[
            "transformers.integrations.deepspeed"].is_deepspeed_zero3_enabled = lambda: False
        sys.modules["transformers.utils"].logging = types.SimpleNamespace(
            get_logger=lambda *unused: None)
        module = in_float64(clones, f"LOMO/lomo_optim/{name.lower()}.py")
        given = {k: v for k, v in h.items() if k not in ("eps1", "eps2")}
        if "eps1" in h:
            given.update(eps=(h.eps1, h.eps2))
        opt = getattr(module, name)(torch.nn.ParameterList(ps), **given, **fixed)
        opt.loss_scale = opt.loss_scaler = None
        opt.step_num = 0

        def step():
            opt.lr = opt.param_groups[0]["lr"]
            opt.step_num += 1
            if opt.clip_grad_norm:
                total = torch.stack([p.grad.norm() for p in ps]).norm()
                opt.clip_coef = torch.clamp(float(opt.clip_grad_norm) / (total + 1e-6), max=1.0)
            opt.grad_func(0)
        return types.SimpleNamespace(step=step, param_groups=opt.param_groups)
    return make


def apollo(clones, rank, gap, kind, seed, **more):
    """Its projections are our draws, at the steps at which it makes them."""
    def make(ps, h):
        for stub in ("transformers", "transformers.utils", "transformers.utils.versions"):
            sys.modules[stub] = types.ModuleType(stub)
        sys.modules["transformers.utils.versions"].require_version = lambda *unused: None
        projector = in_float64(clones, "APOLLO/apollo_torch/random_projector.py")
        steps, all_of_them = [0], each_param(ps)

        def matrix(self, weights, rank, type, seed):
            rows, cols = weights.shape
            n = (rows if type == "left" else cols) * rank
            number = all_of_them[self.seed_of - 1].number
            draws = torch.tensor(normal(SEED, steps[0], number, 0, n).reshape(-1,
                                                                              rank)) / rank ** 0.5
            return draws if type == "left" else draws.T
        SEED = seed
        projector.GradientProjector.get_orthogonal_matrix = matrix
        module = in_float64(clones, "APOLLO/apollo_torch/apollo.py",
                            ("from .svd_projector import GaLoreProjector", ""),
                            ("from .random_projector import GradientProjector", ""),
                            ("np.sqrt(group[\"scale\"])", "math.sqrt(group[\"scale\"])"),
                            GradientProjector=projector.GradientProjector)
        first = projector.GradientProjector.__init__

        def remember(self, *args, seed=0, **given):
            first(self, *args, seed=seed, **given)
            self.seed_of = seed
        projector.GradientProjector.__init__ = remember
        groups = ps if isinstance(ps[0], dict) else [dict(params=ps)]
        opt = module.AdamW([
            dict(g, rank=rank, update_proj_gap=gap, scale=h.scale, proj="random", proj_type="std",
                 scale_type=kind) for g in groups
        ], lr=h.lr, betas=(h.beta1, h.beta2), eps=h.eps, weight_decay=h.weight_decay, **more)

        def step():
            steps[0] += 1
            opt.step()
        return types.SimpleNamespace(step=step, param_groups=opt.param_groups)
    return make


def emerging(clones, folder, name):
    """A class of Emerging-Optimizers in float64, with our iteration of polar()."""
    nvidia(clones, "Muon")
    import absl.logging
    absl.logging.set_verbosity("error")
    root = "Emerging-Optimizers/emerging_optimizers/"
    import emerging_optimizers.legacy_soap.soap as soap
    soap._clip_update_rms_in_place = getattr(soap._clip_update_rms_in_place,
                                             "_torchdynamo_orig_callable",
                                             soap._clip_update_rms_in_place)
    return getattr(in_float64(clones, root + folder), name)


def configs(api, clones):
    import pytorch_optimizer as po
    config, run, ADAM = api.config, api.run_torch, api.ADAM
    SCHEDULED = dict(api.SCHEDULED, native=False)
    rest = {("adamw__" + k): v for k, v in ADAM.items()}

    def vary(name, spec, source, make, other, options="", shapes=None, **hyper):
        """20 steps; 60 with other settings, a schedule and a second group from the second tensor
        on."""
        config(name, spec, source, run(make), options=options,
               **(dict(shapes=shapes) if shapes else {}), **hyper)
        low = {**hyper, **other}

        how = dict(
            SCHEDULED,
            **(dict(
                shapes=[s for s in shapes if int(torch.Size(s).numel()) < 60]) if shapes else {}))
        config(name + "_groups", spec, source, run(make), options=options, **how, **low,
               group=(1, dict(lr=low["lr"] * 0.5)))

    def matrices(name, spec, source, make, options="", shapes=MATRICES, native=True, **hyper):
        config(name, spec, source, run_matrix(api, make, adamw, None, shapes), options=options,
               shapes=shapes, native=native, **hyper, **rest)

    def both(name, spec, source, make, other, options="", shapes=MATRICES, **hyper):
        """20 steps, and 60 with other settings under a schedule."""
        matrices(name, spec, source, make, options, shapes, **hyper)
        matrices(name + "_schedule", spec, source, make, options, shapes, native=False,
                 schedule=True, steps=api.LONG, **{**hyper, **other})

    # ---- elements, rows and columns ----
    for name, constraints in (("nero", True), ("nero_free", False)):
        config(
            name, "nero", "jxbz/nero 32436c0", options="" if constraints else "constraints=false",
            **(SCHEDULED if not constraints else {}), lr=0.02, beta=0.9,
            run=run(lambda ps, h, on=constraints: load(clones, "nero/nero.py").Nero(
                ps, h.lr, h.beta, on)))
    tam = lambda ps, h: po.TAM(ps, **h, foreach=False)
    vary("tam", "tam", "po.TAM", tam, dict(momentum=0.5, eps=0.0), lr=0.05, momentum=0.8,
         decay_rate=0.7, eps=1e-2, weight_decay=0.1)
    adatam = lambda ps, h: po.AdaTAM(ps, betas=(h.beta1, h.beta2), foreach=False,
                                     **{k: v for k, v in h.items() if not k.startswith("beta")})
    vary("adatam", "adatam", "po.AdaTAM", adatam, dict(beta2=0.7, decay_rate=0.3), **ADAM,
         decay_rate=0.7)
    flat = [(7,), (33, 65), (9, 5)]
    for name, norm, value, how in (("lomo", 0.0, 0.0, {}), ("lomo_clip", 3.0, 0.4, SCHEDULED)):
        config(
            name, "lomo", "OpenLMLab/LOMO 45d4bac; in float64",
            run(lomo(clones, "Lomo", clip_grad_norm=norm or None, clip_grad_value=value or None)),
            options=f"clip_grad_norm={norm},clip_grad_value={value}" if norm else "", **how,
            lr=0.05, weight_decay=0.1)
    factor = dict(lr=0.05, eps1=1e-4, eps2=1e-3, clip_threshold=0.9, decay_rate=-0.7,
                  weight_decay=0.1)
    source = "OpenLMLab/LOMO 45d4bac; in float64"
    config("adalomo", "adalomo", source, run(lomo(clones, "AdaLomo")), shapes=flat, **factor)
    config("adalomo_clip", "adalomo", source,
           run(lomo(clones, "AdaLomo", clip_grad_norm=0.5, clip_grad_value=0.4)), native=False,
           options="clip_grad_norm=0.5,clip_grad_value=0.4", shapes=flat, **factor)
    config("adalomo_schedule", "adalomo", source, run(lomo(clones, "AdaLomo")), native=False,
           schedule=True, steps=api.LONG, shapes=[(7,), (9, 5), (1, 6)],
           **{**factor, "eps2": 0.6, "clip_threshold": 0.5})

    def sinkgd(iters):
        step = in_float64(
            clones, "axolotl.py", text=between(
                text_of(clones, "axolotl/src/axolotl/utils/optimizers/sinkgd.py"),
                "def single_param_sinkgd(", "def single_param_sinkgd_specnorm("), torch=torch,
            Tensor=torch.Tensor).single_param_sinkgd if clones else None

        def make(ps, h):
            each = Each(
                ps, h, lambda p, g, kept: step(p, g, each.param_groups[0]["lr"] * h.lr_scale, h.
                                               weight_decay, iters, h.eps, False))
            return each
        return make
    source = "axolotl-ai-cloud/axolotl 067b021 and torch.optim.AdamW; in float64"
    plain = [s for s in MATRICES if len(s) < 3]
    both("sinkgd", "sinkgd", source, sinkgd(5), dict(lr_scale=0.3, weight_decay=0.0), shapes=plain,
         lr=0.05, lr_scale=0.5, eps=1e-8, weight_decay=0.1)
    matrices("sinkgd_once", "sinkgd", source, sinkgd(1), "sinkhorn_iters=1", plain, native=False,
             lr=0.05, lr_scale=0.5, eps=1.5, weight_decay=0.1)
    muon = dict(lr=0.05, momentum=0.8, weight_decay=0.1)

    def rmnp(ps, h):
        return in_float64(clones, "RMNP/rmnp/rmnp.py").RMNP(ps, h.lr, h.momentum,
                                                            weight_decay=h.weight_decay)
    source = "Dominator-Index/RMNP a662ebc and torch.optim.AdamW; in float64"
    both("rmnp", "rmnp", source, rmnp, dict(momentum=0.5, weight_decay=0.0), **muon)

    def mano(**more):
        def make(ps, h):
            opt = load(clones, MANO).Mano(h.lr, h.weight_decay, h.eps, ps, h.momentum, **more)
            opt.step = torch.no_grad()(opt.step)
            return opt
        return make
    source = "xie-lab-ml/Mano b78b952 and torch.optim.AdamW"
    both("mano", "mano", source, mano(), dict(momentum=0.5, eps=0.1), **muon, eps=1e-3)
    matrices("mano_nesterov", "mano", source, mano(nesterov=True), "nesterov=true", native=False,
             **muon, eps=1e-3)

    def scale(role):
        def make(ps, h):
            path = "Minimalist_LLM_Pretraining/mem_eff_pt/pt_scale/scale_optimizer.py"
            opt = load(clones,
                       path).SCALE(h.lr, h.weight_decay, ps if role != "head" else [],
                                   ps if role == "head" else [], momentum=h.get("momentum", 0.9),
                                   id_to_name={id(p): role and role + "_tokens" or "w" for p in ps})
            opt.step = torch.no_grad()(opt.step)
            return opt
        return make
    source = "OptimAI-Lab/Minimalist_LLM_Pretraining f5bd4e7 and torch.optim.AdamW"
    for name, role in (("scale", ""), ("scale_head", "head"), ("scale_embed", "embed")):
        matrices(name, "scale", source, scale(role), native=not role, tag=role, schedule=bool(role),
                 steps=api.LONG if role else api.STEPS, **muon)
    matrices("sron_scale", "sron", source + "; matrices without momentum are those of SRON",
             scale(""), native=False, schedule=True, steps=api.LONG, lr=0.05, alpha=1.0, eps=1e-30,
             weight_decay=0.1)

    # ---- orthogonal factors ----
    def swan(**more):
        def make(ps, h):
            return load(clones, "SWANOptimizer/swan.py").SWAN(ps, lr=h.lr,
                                                              weight_decay=h.weight_decay, **more)
        return make
    source = "ethansmith2000/SWANOptimizer 1184360 and torch.optim.AdamW"
    thick = [s for s in MATRICES if s != (9, 1)]           # rows of one element: centred they are 0

    def no_grad(make):
        def made(ps, h):
            opt = make(ps, h)
            opt.step = torch.no_grad()(opt.step)
            return opt
        return made

    both("swan", "swan", source, no_grad(swan()), dict(weight_decay=0.3), shapes=thick, lr=0.05,
         weight_decay=0.1)
    matrices("swan_free", "swan", source, no_grad(swan(post_norm=False, ns_steps=3, beta=0.4)),
             "post_norm=false,ns_steps=3,beta=0.4", thick, native=False, lr=0.05, weight_decay=0.1)

    twelve = lambda x: polar(x, 12, [(2, -1.5, 0.5)])

    def aurora(**more):
        def make(ps, h):
            sys.path.insert(0, os.path.join(clones, "aurora-release/src"))
            module = in_float64(clones, "aurora-release/src/aurora.py",
                                ("from polar import polar", ""), polar=twelve)

            def update(p, g, kept):
                m = kept.setdefault("m", torch.zeros_like(p))
                module.aurora(p, g.clone(), m, each.param_groups[0]["lr"], h.weight_decay,
                              h.momentum, pp_beta=h.pp_beta, eps=h.eps, **more)
            each = Each(ps, h, update)
            return each
        return make
    source = "tilde-research/aurora-release 3d79a5c and torch.optim.AdamW; in float64"
    both("aurora", "aurora", source, aurora(), dict(pp_beta=0.3, momentum=0.5), **muon, pp_beta=0.5,
         eps=1e-7)
    matrices("aurora_plain", "aurora", source, aurora(nesterov=False, pp_iterations=3),
             "nesterov=false,pp_iterations=3", native=False, **muon, pp_beta=0.4, eps=1e-7)

    def muonsq(iterate, **more):
        text = text_of(clones, TRACK_3 +
                       "20260501_muonsq/train_gpt_simple_muonsq.py") if clones else ""
        module = in_float64(
            clones, "muonsq.py", text=text and
            between(text, "@torch.compile\ndef muon_sq_update", "class MuonSq("), torch=torch,
            zeropower_via_newtonschulz5=iterate) if clones else None

        def make(ps, h):
            def update(p, g, kept):
                m, v = kept.setdefault("m", torch.zeros_like(p)), kept.setdefault(
                    "v", torch.zeros_like(p))
                lr = each.param_groups[0]["lr"]
                u = module.muon_sq_update(g.clone(), m, v, h.momentum, h.beta2, h.eps, **more)
                p.mul_(1 - lr * h.weight_decay)
                p.add_(u, alpha=-lr)
            each = Each(ps, h, update)
            return each
        return make
    source = "KellerJordan/modded-nanogpt f411b3d and torch.optim.AdamW; in float64"
    both("muonsq", "muonsq", source, muonsq(twelve), dict(beta2=0.6, weight_decay=0.0), **muon,
         beta2=0.9, eps=1e-3)
    matrices("muonsq_jordan", "muonsq", source, muonsq(polar, nesterov=False),
             "coefficients=jordan,nesterov=false", native=False, **muon, beta2=0.9, eps=1e-3)
    source = NVIDIA + "; iteration in float64"

    def muown(ps, h):
        return emerging(clones, "contrib/muown.py", "Muown")(
            ps, h.lr, h.momentum, h.weight_decay, betas=(h.beta1, h.beta2), adam_eps=h.eps,
            extra_scale_factor=h.extra_scale_factor)

    both("muown", "muown", source, muown, dict(beta1=0.5, extra_scale_factor=1.0), shapes=thick,
         **muon, beta1=0.8, beta2=0.9, eps=1e-3, extra_scale_factor=0.2)

    def mop(**more):
        def make(ps, h):
            return nvidia(clones, "MOP")(ps, h.lr, h.momentum, h.weight_decay,
                                         extra_scale_factor=h.extra_scale_factor, **more)
        return make
    both("mop", "mop", NVIDIA, mop(), dict(momentum=0.5, weight_decay=0.0), **{**muon, "lr": 0.01},
         extra_scale_factor=0.5)
    matrices("mop_spectral", "mop", NVIDIA, mop(scale_mode="spectral", nesterov=True),
             "scale=spectral,nesterov=true", native=False, **muon, extra_scale_factor=0.2)

    def namo(**more):
        def make(ps, h):
            kind = nvidia(clones, "AdaptiveMuon")
            return kind(ps, h.lr, h.momentum, h.weight_decay, moment2_method="namo", beta2=h.beta2,
                        eps=h.eps, extra_scale_factor=h.extra_scale_factor, **more)
        return make

    both("namo", "namo", source, namo(), dict(beta2=0.6, weight_decay=0.0), **muon, beta2=0.9,
         eps=1e-3, extra_scale_factor=0.2)
    matrices("namo_nesterov", "namo", source, namo(nesterov=True, coefficient_type="simple"),
             "nesterov=true,coefficients=jordan", native=False, **muon, beta2=0.9, eps=1e-3,
             extra_scale_factor=0.2)

    # ---- bases ----
    def moso(**more):
        def make(ps, h):
            return emerging(clones, "legacy_soap/moso.py", "MOSO")(ps, **h_of(h), **more)
        return make
    h_of = lambda h: {k: v for k, v in h.items() if not k.startswith("adamw.")}
    bases = dict(lr=0.02, eps=1e-3, weight_decay=0.1, shampoo_beta=0.85)
    source = NVIDIA + "; in float64"
    both("moso", "moso", source, moso(), dict(rms_beta=0.6, momentum=0.5), **bases, momentum=0.8,
         rms_beta=0.9)
    matrices("moso_clip", "moso", source, moso(max_update_rms=0.4), "max_update_rms=0.4",
             native=False, **bases, momentum=0.8, rms_beta=0.9)

    def klsoap(**more):
        def make(ps, h):
            return emerging(clones, "legacy_soap/soap.py",
                            "SOAP")(ps, h.lr, (h.beta1, h.beta2), h.shampoo_beta, h.eps,
                                    h.weight_decay, use_kl_shampoo=True, **more)
        return make
    adam = dict(bases, beta1=0.8, beta2=0.9)
    both("klsoap", "klsoap", source, klsoap(), dict(beta1=0.5, shampoo_beta=0.6), shapes=SQUARE,
         **adam)
    matrices("klsoap_nesterov", "klsoap", source, klsoap(nesterov=True), "nesterov=true", SQUARE,
             native=False, **adam)
    matrices("klsoap_biased", "klsoap", source, klsoap(correct_bias=False), "correct_bias=false",
             SQUARE, native=False, **adam)
    both("rekls", "rekls", source, klsoap(use_eigh=True), dict(beta1=0.5, shampoo_beta=0.6),
         shapes=SQUARE, **adam)
    low = {**ADAM, "scale": 1.5, "seed": 7.0}
    source = "zhuhanqing/APOLLO 76b3472 and torch.optim.AdamW; its draws ours"
    for name, options, kind, more in (("apollo", "directions=4,update_proj_gap=6", "channel", {}), (
            "apollo_front", "directions=4,update_proj_gap=6,scale_front=true,disable_nl=true",
            "channel", dict(scale_front=True,
                            disable_nl=True)), ("apollo_mini", "update_proj_gap=6", "tensor", {}),
                                      ("apollo_mini_front", "update_proj_gap=6,scale_front=true",
                                       "tensor", dict(scale_front=True))):
        spec = "apollo_mini" if kind == "tensor" else "apollo"
        front = bool(more)
        matrices(name, spec, source, apollo(clones, 1 if kind == "tensor" else 4, 6, kind, 7,
                                            **more), options, WIDE, native=False, schedule=front,
                 steps=api.LONG if front else api.STEPS, **low)

    def cosmos(rank):
        def make(ps, h):
            module = in_float64(clones, "COSMOS/COSMOS_optim.py")
            module.zeropower_via_newtonschulz5 = lambda x, steps: polar(x, steps)
            return module.COSMOS(ps, h.lr, (h.beta1, h.beta2), h.eps, h.lr_ratio, rank,
                                 h.weight_decay, h.gamma)
        return make
    source = "lliu606/COSMOS 61de180 and torch.optim.AdamW; iteration in float64"
    both("cosmos", "cosmos", source, cosmos(4), dict(gamma=0.5, beta1=0.5), "directions=4", WIDE,
         **ADAM, lr_ratio=0.4, gamma=0.3)

    # ---- wrappers that take step, rate and decay apart ----
    class Cautious:
        """Matrices and vectors alike; the authors have published no code."""

        def __init__(self, params, h):
            sys.path.insert(0, os.path.join(clones, "simply-pytorch"))
            from simply_pytorch.optimizers import Adam
            self.opt = Adam(params, h.lr, (h.beta1, h.beta2), h.eps, h.weight_decay,
                            use_cautious_wd=True)
            self.step, self.param_groups = self.opt.step, self.opt.param_groups
    for name, how in (("adamw_cautious_decay", {}), ("adamw_cautious_decay_schedule", SCHEDULED)):
        config(name, "adamw", "gdevos010/simply-pytorch dad68d0", run(Cautious),
               wrap="cautious_decay", **how, **{**ADAM, "weight_decay": 0.3})

    def adamh(ps, h):
        text = text_of(clones, TRACK_3 + "20260430_adamh/6b19a86b-ddfe-476c-9983-2a967bd99ca9.txt")
        part = between(text, "@torch.no_grad()\ndef scale_invariant_update_",
                       "#                Setup").rstrip("#\n")
        module = in_float64(clones, "adamh.py", torch=torch, Tensor=torch.Tensor, text=part)
        return module.AdamH(list(ps), h.lr, (h.beta1, h.beta2), h.eps)

    def plain_adamw(ps, h):
        return torch.optim.AdamW(ps, lr=h.lr, betas=(h.beta1, h.beta2), eps=h.eps,
                                 weight_decay=h.weight_decay)
    source = "KellerJordan/modded-nanogpt f411b3d and torch.optim.AdamW"
    for name, how in (("adamw_hyperball", {}), ("adamw_hyperball_schedule",
                                                dict(schedule=True, steps=api.LONG, native=False))):
        config(name, "adamw", source, run_matrix(api, adamh, plain_adamw, None, MATRICES),
               wrap="hyperball", shapes=MATRICES, **how, **ADAM)

    def muonh(ps, h):
        text = text_of(clones, TRACK_3 + "20260430_muonh/train_gpt_simple_muonh.py")
        module = in_float64(clones, "muonh.py", torch=torch, Tensor=torch.Tensor,
                            zeropower_via_newtonschulz5=polar,
                            text=between(text, "def muon_update(", "class MuonH("))

        def update(p, g, kept):
            u = module.muon_update(g.clone(), kept.setdefault("m", torch.zeros_like(p)), h.momentum)
            module.scale_invariant_update_(p, u, each.param_groups[0]["lr"])
        each = Each(ps, h, update)
        return each

    config("muon_hyperball", "muon", source + "; in float64",
           run_matrix(api, muonh, adamw, None, MATRICES), wrap="hyperball", shapes=MATRICES,
           schedule=True, steps=api.LONG, native=False, **muon, **rest)

    def hooked(hook, **given):
        """Muon of Emerging-Optimizers with a hook around its step."""
        def make(ps, h):
            path = f"Emerging-Optimizers/emerging_optimizers/weight_update_hooks/{hook[0]}.py"
            return nvidia(clones, "Muon")(ps, h.lr, h.momentum, h.weight_decay, nesterov=True,
                                          scale_mode="shape_scaling", coefficient_type="simple",
                                          weight_update_hook=getattr(in_float64(clones, path),
                                                                     hook[1])(**given))
        return make
    source = NVIDIA + " and torch.optim.AdamW; in float64"
    for name, wrap, make, more in (("muon_radial_brake", "radial_brake(0.4,0.7)",
                                    hooked(("radial_brake", "RadialBrakeHook"), outward_scale=0.4,
                                           inward_scale=0.7),
                                    dict(radial_brake__outward_scale=0.4,
                                         radial_brake__inward_scale=0.7)),
                                   ("muon_relative_update", "relative_update",
                                    hooked(("relative_update", "RelativeUpdateHook")), {})):
        config(name, "muon", source, run_matrix(api, make, adamw, None, MATRICES), wrap=wrap,
               shapes=MATRICES, schedule=True, steps=api.LONG, native=False, **muon, **rest, **more)

    def mechanic(h):
        import optax
        return optax.contrib.mechanize(api.optax_adamw(h), h["mechanic.weight_decay"],
                                       h["mechanic.eps"], h["mechanic.s_init"])

    config("adamw_mechanic", "adamw", "optax.contrib.mechanize and optax.adamw",
           api.optax_run(mechanic), wrap="mechanic(0.02,0.001)", mechanic__weight_decay=0.02,
           mechanic__s_init=1e-3, mechanic__eps=1e-8, **{**ADAM, "lr": 1.0}, pull=4.0)

    # ---- nanochat's step, cut at its second moment; X is divided by its norm alone, as polar()
    # does ----
    def muoneq(renormalize, jordan=False):
        text = text_of(clones, "nanochat/nanochat/optim.py") if clones else ""
        if clones:
            head = between(text, "polar_express_coeffs = [", "class MuonAdamW")
            text = head.replace(
                between(head, "    # Variance reduction\n", "    # Cautious weight decay"), "")
            text = text.replace("    mask = (g * stacked_params) >= 0\n",
                                "    mask = 1\n").replace("* 1.01 + 1e-6", "")
            if not renormalize:
                text = text.replace("target_norm / current_norm", "current_norm / current_norm")
        module = in_float64(clones, "nanochat.py", text=text, torch=torch, Tensor=torch.Tensor,
                            COMPUTE_DTYPE=torch.float64) if clones else None
        if clones and jordan:
            module.polar_express_coeffs = [(3.4445, -4.7750, 2.0315)] * 5

        def make(ps, h):
            def update(p, g, kept):
                scalars = [torch.tensor(x) for x in (h.momentum, each.param_groups[0]["lr"] * max(
                    1.0, p.shape[0] / p.shape[1]) ** 0.5, h.weight_decay, 0.9)]
                m = kept.setdefault("m", torch.zeros_like(p)[None])
                module.muon_step_fused(g.clone()[None], p[None], m, None, *scalars, 5, -1)
            each = Each(ps, h, update)
            return each
        return make

    source = ("karpathy/nanochat 92d63d4 and torch.optim.AdamW; in float64, "
              "without its second moment and 1.01")
    both("muoneq", "muoneq", source, muoneq(False), dict(momentum=0.5, weight_decay=0.0), **muon)
    matrices("muoneq_renormalize", "muoneq", source, muoneq(True, True),
             "renormalize=true,coefficients=jordan", native=False, **muon)
