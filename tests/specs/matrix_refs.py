"""The part of make_refs.py for rules of matrices: Muon and its family.

Most of these packages orthogonalise in bfloat16. Here their iteration is replaced by `polar` below,
the published one in float64, so that what is compared is the rule around it and the iteration
itself, both tightly. --clones names a folder with these repositories:

    https://github.com/zichongli5/NorMuon        d45c9a4
    https://github.com/Chongjie-Si/AdaMuon       369f0b3
    https://github.com/LIONS-EPFL/scion          f58a393
    https://github.com/timlautk/polargrad        79f3c6f
    https://github.com/microsoft/dion            0a059a4
    https://github.com/lixilinx/psgd_torch       a8616f1
    https://github.com/tinker495/optax           5e1bbd4

Tensors of three and four dimensions are handed to them as the matrix that our view "first" makes:
dim 0 x the rest. Scion gets them as they are."""
import importlib.util
import math
import os
import sys

import numpy as np
import torch

SHAPES = [(), (7,), (1, 9), (9, 1), (24, 10), (10, 24), (12, 12), (2, 3, 5), (4, 3, 2, 2)]
# for rules that see the kernels of convolutions
KERNELS = SHAPES + [(6, 5, 1, 1), (3, 2, 3, 3)]

# Jordan et al. 2024, the same polynomial at each step.
JORDAN = [(3.4445, -4.7750, 2.0315)]
# Amsel et al. 2025 (arXiv:2505.16932), table of the paper; divided by safety factors for all but
# the last as its listing does.
EXPRESS = [(8.28721201814563, -23.595886519098837, 17.300387312530933),
           (4.107059111542203, -2.9478499167379106, 0.5448431082926601),
           (3.9486908534822946, -2.908902115962949, 0.5518191394370137),
           (3.3184196573706015, -2.488488024314874, 0.51004894012372),
           (2.300652019954817, -1.6689039845747493, 0.4188073119525673),
           (1.891301407787398, -1.2679958271945868, 0.37680408948524835),
           (1.8750014808534479, -1.2500016453999487, 0.3750001645474248),
           (1.875, -1.25, 0.375)]


def polar(g, steps=5, coefficients=JORDAN, safety=1.0, **unused):
    """X <- aX + (bA + cA^2) X with A = X X^T on the wide orientation of a matrix divided by its
    Frobenius norm."""
    x = g.detach().numpy().astype(np.float64)
    tall = x.shape[-2] > x.shape[-1]
    x = x.T if tall else x
    x = x / (np.linalg.norm(x) * safety)
    for k in range(steps):
        a, b, c = coefficients[min(k, len(coefficients) - 1)]
        if k < len(coefficients) - 1:
            a, b, c = a / safety, b / safety ** 3, c / safety ** 5
        gram = x @ x.T
        x = a * x + (b * gram + c * (gram @ gram)) @ x
    return torch.tensor(np.ascontiguousarray(x.T if tall else x))


def polar_gram(g, steps=5, coefficients=JORDAN, restart=2):
    """The same by its Gram matrix R = X X^T and the product Q of the polynomials, started anew
    after `restart` steps."""
    x = g.detach().numpy().astype(np.float64)
    tall = x.shape[0] > x.shape[1]
    x = x.T if tall else x
    x = x / np.linalg.norm(x)
    one = np.eye(len(x))
    for part in (range(0, restart), range(restart, steps)):
        r, q = x @ x.T, one
        for k in part:
            a, b, c = coefficients[min(k, len(coefficients) - 1)]
            z = a * one + b * r + c * (r @ r)
            q, r = q @ z, z @ r @ z
        x = q @ x
    return torch.tensor(np.ascontiguousarray(x.T if tall else x))


def polar_exact(g, **unused):
    u, _, v = np.linalg.svd(g.detach().numpy(), full_matrices=False)
    return torch.tensor(u @ v)


# --------------------------------------------------------------------------------------------------
# running

def load(clones, path):
    """A file of a clone as a module, its own folder on the path while it is imported. Nothing is
    compiled by torch."""
    path = os.path.join(clones or "", path)
    if not os.path.exists(path):
        sys.exit(
            f"{path}: not there; --clones names the folder with the repositories of matrix_refs.py")
    spec = importlib.util.spec_from_file_location("clone_" + os.path.basename(path)[:-3], path)
    module = importlib.util.module_from_spec(spec)
    compiled, torch.compile = torch.compile, lambda f=None, **unused: f if callable(
        f) else lambda f: f
    sys.path.insert(0, os.path.dirname(path))
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(os.path.dirname(path))
        torch.compile = compiled
    return module


def run_matrix(api, matrices, others=None, before=None, unused=None, as_is=False):
    """matrices(params, h) and others(params, h) give something with step(); without others all
    tensors go to the first. before(params, h) may change gradients."""
    def run(h):
        shapes = api.RUN["shapes"]
        seen = [s if len(s) < 2 or as_is else (s[0], int(np.prod(s[1:]))) for s in shapes]
        params = api.numbered(shapes, seen)
        mine = params if others is None else [p for p in params if p.dim() >= 2]
        saved, first = [], dict(h)
        with api.WatchPrecision() as watch:
            opts = [api.in_groups(matrices, mine, h, len(params) - len(mine))]
            opts += [others([p for p in params if p.dim() < 2], h)] if others else []
            for s in range(1, api.RUN["steps"] + 1):
                for k, p in enumerate(params):
                    p.grad = torch.tensor(api.gradient(k, s, shapes).reshape(seen[k]))
                if before:
                    before(params, h)
                api.schedule(s, h, first, opts)
                for opt in opts:
                    opt.step()
                if s in api.RUN["saved"]:
                    saved += [p.detach().clone().numpy() for p in params]
        return saved, "f32" if watch.seen else "f64"
    return run


class Stepper:
    """Something with step(), from a function of a matrix and what is kept of it."""
    def __init__(self, params, update):
        self.params, self.update, self.kept = params, update, [dict() for _ in params]

    @torch.no_grad()
    def step(self):
        for p, kept in zip(self.params, self.kept):
            self.update(p, p.grad, kept)


def adamw(params, h):
    return torch.optim.AdamW(params, lr=h["adamw.lr"], betas=(h["adamw.beta1"], h["adamw.beta2"]),
                             eps=h["adamw.eps"], weight_decay=h["adamw.weight_decay"])


# --------------------------------------------------------------------------------------------------
# rules

def torch_muon(iterate=polar, nesterov=True, scale=None, steps=5, **how):
    import torch.optim._muon as module

    def make(params, h):
        module._zeropower_via_newtonschulz = lambda g, coefficients, steps, eps: iterate(
            g, steps=steps, **how)
        return torch.optim.Muon(params, lr=h.lr, momentum=h.momentum, weight_decay=h.weight_decay,
                                nesterov=nesterov, ns_steps=steps, adjust_lr_fn=scale)
    return make


def dion_muon(clones):
    def make(params, h):
        module = load(clones, "dion/dion/muon_reference.py")
        module.zeropower_via_newtonschulz5 = lambda g, steps, eps: polar(g, steps)
        return module.Muon(params, lr=h.lr, mu=h.momentum, weight_decay=h.weight_decay,
                           adjust_lr="spectral_norm")
    return make


def po_normuon(params, h):
    import pytorch_optimizer.optimizer.muon.normuon as module
    module.zero_power_via_newton_schulz_5 = lambda g, num_steps, weights: polar(g, num_steps)
    return module.NorMuon([dict(params=params, use_muon=True)], lr=h.lr, momentum=h.momentum,
                          beta2=h.beta2, eps=h.eps, weight_decay=h.weight_decay,
                          weight_decouple=True, nesterov=True, update_scale="match_rms",
                          foreach=False)


def own_normuon(clones):
    def make(params, h):
        module = load(clones, "NorMuon/normuon.py")
        module.zeropower_via_newtonschulz5 = lambda g, steps: polar(g, steps)
        return module.SingleDeviceNorMuon(params, lr=h.lr, momentum=h.momentum, beta2=h.beta2,
                                          weight_decay=h.weight_decay)
    return make


class OneProcess:
    """torch.distributed for one process, as far as AdaMuon uses it."""
    @staticmethod
    def all_gather_into_tensor(out, x, async_op):
        out[0] = x
        return OneProcess()

    def wait(self):
        pass


def own_adamuon(clones):
    """The authors' class keeps updates in a bf16 buffer on a GPU: here in float64 on the CPU."""
    def make(params, h):
        module = load(clones, "AdaMuon/gpt2/models/optimizers/adamuon.py")
        module.zeropower_via_newtonschulz5 = lambda g, steps: polar(g, steps)
        module.dist = OneProcess
        empty, torch.empty = torch.empty, lambda *size, **unused: empty(*size, dtype=torch.float64)
        try:
            return module.AdaMuon(params, lr=h.lr, momentum=h.momentum, weight_decay=h.weight_decay,
                                  eps=h.eps, rank=0, world_size=1)
        finally:
            torch.empty = empty
    return make


def own_scion(clones, unconstrained):
    def make(params, h):
        module = load(clones, "scion/scion.py")
        module.zeropower_via_newtonschulz5 = lambda g, steps: polar(g, steps)
        opt = module.Scion(params, lr=h.lr, momentum=h.momentum, scale=h.scale,
                           unconstrained=unconstrained)
        opt.step = torch.no_grad()(opt.step)
        return opt
    return make


def own_polargrad(clones, find, polar_first):
    def make(params, h):
        module = load(clones, "polargrad/polar_grad.py")
        module.polar = lambda g, **unused: (find(g), None)
        return module.PolarGrad(params, lr=h.lr, momentum=h.momentum, weight_decay=h.weight_decay,
                                polar_first=polar_first)
    return make


def optax_adago(clones):
    """A file that was written for optax, with its own iteration. Its factor for the shape of a
    matrix is left out, and the 1e-8 in its norm: the algorithm of arXiv:2509.02981 has neither.
    pytorch_optimizer's divides by the square of v."""
    class AdaGO:
        def __init__(self, params, h):
            import jax
            import jax.numpy as jnp
            jax.config.update("jax_enable_x64", True)
            module = load(clones, "optax/optax/contrib/_adago.py")
            module._scale_update_for_width_transfer = lambda update, unused: update
            self.params, self.array = params, jnp.asarray
            self.rule = module.adago(lambda unused: h.lr, beta=h.momentum, gamma=h.gamma,
                                     min_step_size=h.eps, initial_accumulator_value=h.v0,
                                     weight_decay=h.weight_decay, orthogonalization_eps=0.0)
            self.state = self.rule.init(self.weights())

        def weights(self):
            return [self.array(p.detach().numpy().copy()) for p in self.params]

        @torch.no_grad()
        def step(self):
            grads = [self.array(p.grad.numpy()) for p in self.params]
            changes, self.state = self.rule.update(grads, self.state, self.weights())
            for p, x in zip(self.params, changes):
                p.add_(torch.tensor(np.array(x)))
    return AdaGO


def own_psgd(clones, balance):
    """Its norm estimate, a power iteration on random vectors, is replaced by the largest row sum,
    and nothing random is added to g."""
    def make(params, h):
        module = load(clones, "psgd_torch/psgd.py")
        module.norm_lower_bound_spd = lambda a: torch.tensor(np.abs(a.numpy()).sum(1).max())

        def update(p, g, kept):
            t = kept["t"] = kept.get("t", 0) + 1
            kept["m"] = torch.lerp(kept.get("m", torch.zeros_like(g)), g,
                                   max(1 / t, 1 - h.momentum))
            ql, exprs = kept.setdefault("q",
                                        module.init_kron(p, 1.0, max_skew=float("inf"), dQ="QUAD"))
            randn, torch.randn_like = torch.randn_like, torch.zeros_like
            rand, torch.rand = torch.rand, lambda size: 1.0 - (t % balance == 0)
            module.update_precond_kron_whiten_quad(ql, exprs, g, lr=h.precond_lr, betaL=h.beta,
                                                   damping=0.0)
            torch.randn_like, torch.rand = randn, rand
            u = module.precond_grad_kron(ql, exprs, kept["m"])
            u = u * min(1, h.clip_rms / math.sqrt(float((u * u).mean())))
            p.sub_(h.lr * (u.clamp(-h.clip, h.clip) + h.weight_decay * p))
        return Stepper(params, update)
    return make


def configs(api, clones):
    ADAMW = dict(adamw__lr=0.02, adamw__beta1=0.8, adamw__beta2=0.95, adamw__eps=1e-3,
                 adamw__weight_decay=0.1)
    MUON = dict(lr=0.05, momentum=0.9, weight_decay=0.1)

    def config(name, spec, source, matrices, options="", rest=True, wrap="", before=None,
               shapes=SHAPES, as_is=False, **hyper):
        """Without options it runs as it was compiled into the library; with some the evaluator says
        all there is to say."""
        api.config(name, spec, source,
                   run_matrix(api, matrices, adamw if rest else None, before, shapes, as_is),
                   options, wrap=wrap, shapes=shapes, native=not options and not wrap, **hyper,
                   **(ADAMW if rest else {}))

    f64 = "; its iteration in float64"
    config("muon", "muon", "torch.optim.Muon and torch.optim.AdamW" + f64, torch_muon(), **MUON)
    config("muon_plain", "muon", "torch.optim.Muon and torch.optim.AdamW" + f64,
           torch_muon(nesterov=False, scale="match_rms_adamw", steps=3),
           options="nesterov=false,scale=rms,steps=3", **MUON)
    config("muon_gram", "muon", "torch.optim.Muon and torch.optim.AdamW; the Gram form in float64",
           torch_muon(polar_gram),
           options="form=gram", **MUON)
    config("muon_express", "muon", "torch.optim.Muon and torch.optim.AdamW; Polar Express in "
           "float64", torch_muon(coefficients=EXPRESS, safety=1.01),
           options="coefficients=polar_express", **MUON)
    config("muon_spectral", "muon", "Muon of microsoft/dion 0a059a4 and torch.optim.AdamW" + f64,
           dion_muon(clones), options="scale=spectral", **MUON)
    config("normuon", "normuon", "zichongli5/NorMuon d45c9a4 and torch.optim.AdamW" + f64,
           own_normuon(clones), **MUON, beta2=0.8, eps=1e-10)
    config("normuon_rms", "normuon", "po.NorMuon and torch.optim.AdamW" + f64, po_normuon,
           options="scale=rms", **MUON, beta2=0.8, eps=1e-8)
    config("adamuon", "adamuon", "Chongjie-Si/AdaMuon 369f0b3 and torch.optim.AdamW" + f64,
           own_adamuon(clones), **MUON, eps=1e-8)
    for name, unconstrained in (("scion", False), ("scion_unconstrained", True)):
        config(name, "scion", "LIONS-EPFL/scion f58a393" + f64, own_scion(clones, unconstrained),
               rest=False, shapes=KERNELS, as_is=True,
               options="constrained=false" if unconstrained else "", lr=0.05, momentum=0.2,
               scale=2.0)
    config("scion_clip_skip", "scion",
           "torch.nn.utils.clip_grad_norm_ and LIONS-EPFL/scion f58a393" + f64,
           own_scion(clones, False), rest=False, shapes=KERNELS, as_is=True, wrap="clip(2),skip",
           before=lambda ps, h: torch.nn.utils.clip_grad_norm_(ps, h["clip.max_norm"]),
           clip__max_norm=2.0, clip__eps=1e-6, lr=0.05, momentum=0.2, scale=2.0)
    for name, options, find in (("polargrad", "", lambda g: polar(g, 8, EXPRESS, 1.01)),
                                ("polargrad_exact", "steps=16", polar_exact),
                                ("polargrad_first", "steps=16,polar_first=true", polar_exact)):
        config(name, "polargrad", "timlautk/polargrad 79f3c6f and torch.optim.AdamW; polar factors "
                                  "by " +
               ("NumPy's SVD" if options else "eight steps of Polar Express in float64"),
               own_polargrad(clones, find, "first" in name),
               options=options, **{**MUON, "lr": 0.01})
    config("adago", "adago", "tinker495/optax 5e1bbd4 without its factor of shapes, and "
                             "torch.optim.AdamW",
           optax_adago(clones), **MUON, gamma=1.5, eps=0.004, v0=0.5)
    psgd = ("lixilinx/psgd_torch a8616f1 and torch.optim.AdamW; "
            "its norm the largest row sum, nothing random")
    PSGD = dict(**MUON, precond_lr=0.4, beta=0.8, clip_rms=0.9, clip=1.5)
    config("psgd", "psgd", psgd, own_psgd(clones, 100), **PSGD)
    config("psgd_balance", "psgd", psgd, own_psgd(clones, 8), options="balance=8", **PSGD)
