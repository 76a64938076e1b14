"""The part of make_refs.py for rules of single packages and of authors' repositories.

Besides the packages of make_refs.py it and rate_refs.py need schedulefree 1.4.1, prodigyopt 1.1.2,
dadaptation 3.2, adam-mini 1.1.1, qhoptim 1.1.0 and absl-py (for optax). --clones names a folder
with these repositories:

    https://github.com/AGI-Arena/MARS                           4831e28
    https://github.com/Liuhong99/Sophia                         a7e1572
    https://github.com/formll/dog                               8d45cf5
    https://github.com/AnonymousAlethiometer/SGD_SaI            e213080
    https://github.com/lucidrains/adam-atan2-pytorch            b42d7cb
    https://github.com/Gunale0926/Grams                         f91a375
    https://github.com/DepenM/Simplified-AdEMAMix               dba14d0
    https://github.com/AtheMathmo/AggMo                         f91730d
    https://github.com/zeke-xie/Positive-Negative-Momentum      9ffd201
    https://github.com/zeke-xie/adaptive-inertia-adai           e6c1b9d
    https://github.com/shivram1987/diffGrad                     73233ba
    https://github.com/lancopku/AdaMod                          d866407
    https://github.com/uclaml/Padam                             586a02b
    https://github.com/clovaai/AdamP                            7f6f038
    https://github.com/jxbz/fromage                             4a6593b
    https://github.com/facebookresearch/optimizers              f606606
    https://github.com/jie040109/Conda                          449af71
    https://github.com/NVIDIA-NeMo/Emerging-Optimizers          fd77292
    https://github.com/davda54/sam                              3c3afdb
    https://github.com/ironjr/grokfast                          93b2248
    https://github.com/Z-T-WANG/LaProp-Optimizer                a419916
    https://github.com/LucasPrietoAl/grokking-at-the-edge-of-numerical-stability 0cc9e8d
"""
import contextlib
import os
import sys
import types
import typing

import numpy as np
import torch

import rate_refs
from matrix_refs import SHAPES as MATRICES, load, polar, run_matrix
from ref_runs import each_param, rate


def load_f64(clones, path):
    """A file whose computation in float32 is in float64 instead; nothing else is changed."""
    with open(os.path.join(clones, path)) as f:
        text = f.read().replace("torch.float32",
                                "torch.float64").replace("matrix.float()", "matrix.double()")
    module = types.ModuleType("f64_" + os.path.basename(path)[:-3])
    exec(compile(text, path, "exec"), module.__dict__)
    return module


def nvidia(clones, name):
    """A module of Emerging-Optimizers with the iteration of polar() in float64 and norms in
    float64."""
    root = os.path.join(clones, "Emerging-Optimizers")
    if root not in sys.path:
        sys.path.insert(0, root)
    if not hasattr(typing, "override"):                    # Python before 3.12
        typing.override = lambda f: f
    stub = sys.modules.setdefault("emerging_optimizers.registry", types.ModuleType("registry"))
    # its file has syntax of Python 3.12
    stub.register_optimizer = lambda name: lambda kind: kind
    import emerging_optimizers
    emerging_optimizers.registry = stub
    import emerging_optimizers.orthogonalized_optimizers as family
    family.muon_utils.newton_schulz = lambda x, steps, coefficient_type, **unused: polar(
        x, steps, family.muon_utils._COEFFICIENT_SETS[coefficient_type])
    folder = "Emerging-Optimizers/emerging_optimizers/"
    ball = load_f64(clones, folder + "orthogonalized_optimizers/muon_hyperball.py")
    ball.HyperballHook = load_f64(clones, folder + "weight_update_hooks/hyperball.py").HyperballHook
    return ball.MuonHyperball if name == "MuonHyperball" else getattr(family, name)


def configs(api, clones):
    import adam_mini
    import pytorch_optimizer as po
    import qhoptim.pyt
    import schedulefree
    import timm.optim.laprop, timm.optim.rmsprop_tf
    api.VERSIONS.update(schedulefree="schedulefree", prodigyopt="prodigyopt",
                        dadaptation="dadaptation", adam_mini="adam-mini", qhoptim="qhoptim")
    config, run, ADAM = api.config, api.run_torch, api.ADAM
    SCHEDULED = dict(api.SCHEDULED, native=False)
    LONG = dict(SCHEDULED, schedule=False)

    def quiet(make):
        def made(ps, h):
            with contextlib.redirect_stdout(None):
                return make(ps, h)
        return made

    def betas(h):
        return dict(lr=h.lr, betas=(h.beta1, h.beta2), eps=h.eps, weight_decay=h.weight_decay)

    def both(name, spec, source, make, options="", native=True, shapes=api.SHAPES, **hyper):
        """20 steps of all shapes, and 60 of a few under a schedule."""
        config(name, spec, source, run(make), options=options, native=native, shapes=shapes,
               **hyper)
        config(name + "_schedule", spec, source, run(make), options=options, **SCHEDULED, **hyper)

    # ---- schedule-free ----
    def free(cls, look=False, **more):
        held = []

        def make(ps, h):
            common = dict(weight_decay=h.weight_decay, r=h.r, weight_lr_power=h.weight_lr_power,
                          foreach=False, **more)
            if "warmup_steps" in h:
                common["warmup_steps"] = h.warmup_steps
            if "beta1" in h:
                common.update(betas=(h.beta1, h.beta2), eps=h.eps)
            else:
                common["momentum"] = h.momentum
            held[:] = [cls(ps, lr=h.lr, **common)]
            held[0].train()
            return held[0]

        def after(ps, h):
            def evaluated():
                held[0].eval()
                x = [p.detach().clone() for p in ps]
                held[0].train()
                return x
            return evaluated
        return run(make, after=after if look else None)

    adam = {**ADAM, "r": 0.5, "weight_lr_power": 1.5}
    source = "schedulefree.AdamWScheduleFree"
    config("schedulefree_adamw", "schedulefree_adamw", source, free(schedulefree.AdamWScheduleFree),
           **adam, warmup_steps=4.0)
    config("schedulefree_adamw_schedule", "schedulefree_adamw", source,
           free(schedulefree.AdamWScheduleFree), **adam, **SCHEDULED, warmup_steps=0.0)
    config("schedulefree_adamw_eval", "schedulefree_adamw", source,
           free(schedulefree.AdamWScheduleFree, look=True), look="to_eval to_train", native=False,
           **adam, warmup_steps=4.0)
    sgd = dict(lr=0.3, momentum=0.8, weight_decay=0.1, r=0.5, weight_lr_power=1.5)
    source = "schedulefree.SGDScheduleFree"
    config("schedulefree_sgd", "schedulefree_sgd", source, free(schedulefree.SGDScheduleFree),
           **sgd, warmup_steps=4.0)
    config("schedulefree_sgd_eval", "schedulefree_sgd", source,
           free(schedulefree.SGDScheduleFree, look=True), look="to_eval to_train", **SCHEDULED,
           **sgd, warmup_steps=0.0)
    source = "schedulefree.RAdamScheduleFree"
    for name, silent, more in (("", True, {}), ("_sgd", False, SCHEDULED)):
        config("schedulefree_radam" + name, "schedulefree_radam", source, **more,
               **{**adam, "beta2": 0.9}, options="" if silent else "silent_sgd_phase=false",
               run=free(schedulefree.RAdamScheduleFree, silent_sgd_phase=silent))
    config("schedulefree_radam_eval", "schedulefree_radam", source,
           free(schedulefree.RAdamScheduleFree, look=True), look="to_eval to_train", native=False,
           **{**adam, "beta2": 0.9})

    def authors(path, name, **fixed):
        """make(ps, h) of a class in a file of --clones; the hyperparameters go by their names."""
        def make(ps, h):
            given = {k: v for k, v in h.items() if not k.startswith("beta")}
            series = tuple(
                v for k, v in h.items() if k.startswith("beta") and k not in fixed.get("apart", ()))
            apart = {k: h[k] for k in fixed.get("apart", ())}
            more = {k: v for k, v in fixed.items() if k != "apart"}
            return getattr(load(clones, path),
                           name)(ps, **given, **(dict(betas=series) if series else {}), **apart,
                                 **more)
        return quiet(make)

    def optax_run(make):
        def run_it(h):
            import jax
            jax.config.update("jax_enable_x64", True)
            import jax.numpy as jnp
            import optax
            shapes, first = api.RUN["shapes"], dict(h)
            params = [jnp.asarray(api.first_weights(k, shapes)) for k in range(len(shapes))]
            opt, saved = make(h), []
            state = opt.init(params)
            for s in range(1, api.RUN["steps"] + 1):
                g = [
                    jnp.asarray(api.gradient(k, s, shapes)) + api.RUN["pull"] * params[k]
                    for k in range(len(shapes))
                ]
                update, state = opt.update(g, state, params)
                params = optax.apply_updates(params, update)
                saved += [np.asarray(p) for p in params] if s in api.RUN["saved"] else []
            return saved, "f64" if all(x.dtype == np.float64 for x in saved) else "f32"
        return run_it
    api.optax_run = optax_run                               # for more_refs.py

    def parted(make, h):
        """make(lr) for each group: its rate is a schedule of optax if the configuration has one."""
        import optax
        def rated(lr):
            return make((lambda count: lr * rate(int(count) + 1)) if api.RUN["schedule"] else lr)
        if not api.RUN["group"]:
            return rated(h.lr)
        n, own = api.RUN["group"]
        labels = ["first" if k < n else "second" for k in range(len(api.RUN["shapes"]))]
        return optax.partition(dict(first=rated(h.lr), second=rated(own["lr"])), labels)

    rate_refs.configs(
        api,
        types.SimpleNamespace(quiet=quiet, betas=betas, both=both, authors=authors,
                              optax_run=optax_run, parted=parted, SCHEDULED=SCHEDULED, LONG=LONG))

    both("laprop", "laprop", "timm.optim.LaProp",
         lambda ps, h: timm.optim.laprop.LaProp(ps, **betas(h), foreach=False), **ADAM)

    class AuthorsLaProp:
        """The authors' class; torch no longer has the older order of arguments of addcmul_ and
        add_."""
        def __init__(self, ps, h):
            path = os.path.join(clones, "LaProp-Optimizer/laprop.py")
            with open(path) as f:
                text = f.read()
            for old, new in (("addcmul_(1 - beta2, grad, grad)",
                              "addcmul_(grad, grad, value=1 - beta2)"),
                             ("add_( (1 - beta1) * group['lr'], step_of_this_grad)",
                              "add_(step_of_this_grad, alpha=(1 - beta1) * group['lr'])"),
                             ("p.data.add_(-step_size, exp_avg )",
                              "p.data.add_(exp_avg, alpha=-step_size)")):
                assert old in text, old
                text = text.replace(old, new)
            module = types.ModuleType("laprop")
            exec(compile(text, path, "exec"), module.__dict__)
            self.opt = module.LaProp(ps, lr=h.lr, betas=(h.beta1, h.beta2), eps=h.eps, amsgrad=True)
            self.step, self.param_groups = self.opt.step, self.opt.param_groups

    config("laprop_amsgrad", "laprop", "Z-T-WANG/LaProp-Optimizer a419916", run(AuthorsLaProp),
           options="amsgrad=true", **{**ADAM, "beta2": 0.6, "weight_decay": 0.0})

    # ---- MARS: its iteration in bfloat16 is replaced by the one of float64 ----
    def mars(**more):
        def make(ps, h):
            module = load(clones, "MARS/MARS/optimizers/mars.py")
            module.NewtonSchulz = lambda m, eps: polar(m)
            return module.MARS(ps, **betas(h), gamma=h.gamma, lr_1d=h.lr_1d,
                               betas_1d=(h.beta1_1d, h.beta2_1d), weight_decay_1d=h.weight_decay_1d,
                               **more)
        return make
    adam = dict(ADAM, gamma=0.2, lr_1d=0.01, beta1_1d=0.7, beta2_1d=0.8, weight_decay_1d=0.05)
    flat = [(), (7,), (9, 5), (5, 9)]
    for name, kind, all_of_them in (("mars", "adamw", False), ("mars_lion", "lion", True),
                                    ("mars_shampoo", "shampoo", False)):
        config(
            name, "mars", "AGI-Arena/MARS 4831e28",
            run(mars(mars_type="mars-" + kind, optimize_1d=all_of_them)),
            options=",".join([f"mars_type={kind}"] * (kind != "adamw") +
                             ["optimize_1d=true"] * all_of_them), native=name == "mars",
            shapes=flat, steps=60, schedule=not all_of_them,
            **{**adam, "eps": 0.0 if kind == "shampoo" else 1e-3})

    config("mars_amsgrad", "mars", "AGI-Arena/MARS 4831e28", run(mars(amsgrad=True)),
           options="amsgrad=true", native=False, shapes=flat,
           **{**adam, "beta2": 0.6, "beta2_1d": 0.6})

    # ---- Sophia: the entry update_hessian runs ahead of every third step ----
    class Sophia:
        def __init__(self, params, h):
            given = {k: v for k, v in h.items() if k not in ("beta1", "beta2", "bs")}
            self.opt = load(clones, "Sophia/sophia.py").SophiaG(params, betas=(h.beta1, h.beta2),
                                                                **given)
            self.params, self.bs, self.steps, self.param_groups = each_param(
                params), h.bs, 0, self.opt.param_groups

        def step(self):
            self.steps += 1
            if self.steps % 3 == 1:
                kept = [p.grad for p in self.params]
                for k, p in enumerate(self.params):
                    p.grad = torch.tensor(
                        api.second_gradient(k, self.steps,
                                            p.detach().numpy(), api.RUN["shapes"]))
                self.opt.update_hessian()
                for p, g in zip(self.params, kept):
                    p.grad = g
            self.opt.step(bs=self.bs)
    sophia = dict(lr=0.02, beta1=0.8, beta2=0.9, rho=0.3, weight_decay=0.1, bs=20.0)
    other = dict(lr=0.05, beta1=0.5, beta2=0.7, rho=0.1, weight_decay=0.0, bs=5.0)
    for name, how in (("sophia", sophia), ("sophia_schedule", {**SCHEDULED, **sophia}),
                      ("sophia_other", {**SCHEDULED, **other})):
        config(name, "sophia", "Liuhong99/Sophia a7e1572", run(Sophia), entry="update_hessian 3",
               **how)

    # ---- Adam-mini: matrices by rows, others by tensor; its count of elements alone passes through
    # float32 ----
    def mini(h):
        made = lambda ps, h: adam_mini.Adam_mini([
            (f"mlp.{k}" if p.dim() > 1 else f"scale.{k}", p) for k, p in enumerate(ps)
        ], **betas(h), verbose=False)
        return run(made)(h)[0], "f64"

    config("adam_mini", "adam_mini", "adam_mini.Adam_mini", mini, shapes=[(), (7,), (33, 65),
                                                                          (9, 1), (1, 9)], **ADAM)
    config("adam_mini_schedule", "adam_mini", "adam_mini.Adam_mini", mini, **SCHEDULED, **ADAM)

    # ---- torch's ----
    for name, state in (("asgd", ""), ("asgd_average", "ax")):
        def average(ps, h):
            return lambda: [ASGD[0].state[p]["ax"] for p in ps]
        ASGD = []

        def make_asgd(ps, h, ASGD=ASGD):
            ASGD[:] = [
                torch.optim.ASGD(ps, lr=h.lr, lambd=h.lambd, alpha=h.alpha, t0=h.t0,
                                 weight_decay=h.weight_decay, foreach=False)
            ]
            return ASGD[0]

        config(name, "asgd", "torch.optim.ASGD", run(make_asgd, after=average if state else None),
               state=state, lr=0.1, lambd=0.05, alpha=0.75, t0=6.0, weight_decay=0.1,
               **(SCHEDULED if state else {}))
    config(
        "rprop", "rprop", "torch.optim.Rprop", lr=0.02, etaminus=0.4, etaplus=1.3,
        step_size_min=1e-3, step_size_max=0.05,
        run=run(lambda ps, h: torch.optim.Rprop(ps, lr=h.lr, etas=(h.etaminus, h.etaplus),
                                                step_sizes=(h.step_size_min, h.step_size_max))))

    # ---- others' and authors' classes that take our names ----
    both("stableadamw", "stableadamw", "po.StableAdamW",
         lambda ps, h: po.StableAdamW(ps, **betas(h), foreach=False), **{**ADAM, "beta2": 0.7})
    # its scale of a scalar is |g| / eps
    config("sgd_sai", "sgd_sai", "AnonymousAlethiometer/SGD_SaI e213080", shapes=[(), (1,), (7,),
                                                                                  (33, 65),
                                                                                  (3, 5, 7)],
           run=run(authors("SGD_SaI/sgd_sai/sgd_sai.py",
                           "SGD_sai")), lr=0.01, momentum=0.8, eps=0.1, weight_decay=0.1)
    config("sgd_sai_schedule", "sgd_sai", "AnonymousAlethiometer/SGD_SaI e213080", **SCHEDULED,
           run=run(authors("SGD_SaI/sgd_sai/sgd_sai.py",
                           "SGD_sai")), lr=0.01, momentum=0.8, eps=0.1, weight_decay=0.1)
    both("adam_atan2", "adam_atan2", "lucidrains/adam-atan2-pytorch b42d7cb",
         authors("adam-atan2-pytorch/adam_atan2_pytorch/adam_atan2.py", "AdamAtan2"),
         lr=0.02, beta1=0.8, beta2=0.95, weight_decay=0.1, a=1.1, b=0.9)
    tf = dict(lr=0.02, alpha=0.8, eps=1e-2, weight_decay=0.1)
    for name, options, how in (("rmsprop_tf", "", {}), (
            "rmsprop_tf_momentum", "momentum_buffer=true",
        {}), ("rmsprop_tf_centered",
              "momentum_buffer=true,centered=true,decoupled_decay=true,lr_in_momentum=false",
              SCHEDULED)):
        config(
            name, "rmsprop_tf", "timm.optim.RMSpropTF", options=options, **how, **tf,
            **(dict(momentum=0.7) if options else {}),
            run=run(lambda ps, h, odd="centered" in name: timm.optim.rmsprop_tf.RMSpropTF(
                ps, **h, centered=odd, decoupled_decay=odd, lr_in_momentum=not odd, foreach=False)))
    grams = authors("Grams/grams/src/grams.py", "Grams")
    both("grams", "grams", "Gunale0926/Grams f91a375", grams, **ADAM)
    sim = "Simplified-AdEMAMix/simplified_AdEMAMix.py", "SimAdEMAMix"
    config("simplified_ademamix", "simplified_ademamix", "DepenM/Simplified-AdEMAMix dba14d0",
           run(authors(*sim)), **ADAM, alpha=2.0)
    config(
        "simplified_ademamix_warmup", "simplified_ademamix", "DepenM/Simplified-AdEMAMix dba14d0",
        **SCHEDULED, options="bias_correction1=true,bias_correction2=false", **ADAM, alpha=2.0,
        beta1_warmup=20.0, min_beta1=0.5, run=run(
            authors(*sim, apart=("beta1_warmup",), bias_correction1=True, bias_correction2=False)))

    def qhadam(**more):
        return lambda ps, h: qhoptim.pyt.QHAdam(ps, **betas(h), nus=(h.nu1, h.nu2), **more)
    source = "qhoptim.pyt.QHAdam"
    config("qhadam", "qhadam", source, run(qhadam()), **ADAM, nu1=0.7, nu2=0.9)
    config("qhadam_decoupled", "qhadam", source, run(qhadam(decouple_weight_decay=True)),
           **SCHEDULED, **ADAM, nu1=1.0, nu2=1.0, options="decouple_weight_decay=true")
    qhm = dict(lr=0.3, momentum=0.9, nu=0.7, weight_decay=0.1)
    config("qhm", "qhm", "qhoptim.pyt.QHM", run(lambda ps, h: qhoptim.pyt.QHM(ps, **h)), **qhm)
    config("qhm_direct", "qhm", "qhoptim.pyt.QHM", options="weight_decay_type=direct", **SCHEDULED,
           **qhm, run=run(lambda ps, h: qhoptim.pyt.QHM(ps, **h, weight_decay_type="direct")))
    both("aggmo", "aggmo", "AtheMathmo/AggMo f91730d", authors("AggMo/aggmo.py", "AggMo"), lr=0.05,
         beta1=0.3, beta2=0.8, beta3=0.95, weight_decay=0.1)
    pnm = "Positive-Negative-Momentum/pnm_optim/"
    source = "zeke-xie/Positive-Negative-Momentum 9ffd201"
    for decoupled, name, how in ((True, "", {}), (False, "_coupled", SCHEDULED)):
        config("pnm" + name, "pnm", source, options="" if decoupled else "decoupled=false", **how,
               run=run(authors(pnm + "pnm.py", "PNM", decoupled=decoupled)), lr=0.1, beta1=0.8,
               beta2=0.7, weight_decay=0.1)
        config(
            "adapnm" + name, "adapnm", source, **how, **{**ADAM, "beta2": 0.6}, beta3=0.7,
            options="" if decoupled else "decoupled=false,amsgrad=false",
            run=run(authors(pnm + "adapnm.py", "AdaPNM", decoupled=decoupled, amsgrad=decoupled)))
        config(
            "adai" + ("" if not decoupled else "_decoupled"), "adai",
            "zeke-xie/adaptive-inertia-adai e6c1b9d", options="decoupled=true" if decoupled else "",
            **(SCHEDULED if decoupled else {}), lr=0.2, beta0=0.3, beta2=0.9, eps=1e-2,
            weight_decay=0.1, run=run(
                authors("adaptive-inertia-adai/adai_optim/adai.py", "Adai", decoupled=decoupled)))
    both("diffgrad", "diffgrad", "shivram1987/diffGrad 73233ba",
         authors("diffGrad/diffGrad_v2.py", "diffgrad"), **ADAM)
    both("adamod", "adamod", "lancopku/AdaMod d866407",
         authors("AdaMod/adamod/adamod.py", "AdaMod", apart=("beta3",)), **ADAM, beta3=0.9)
    config("padam", "padam", "uclaml/Padam 586a02b", run(authors("Padam/Padam.py", "Padam")),
           **{**ADAM, "beta2": 0.6}, partial=0.15)
    config("padam_plain", "padam", "uclaml/Padam 586a02b",
           run(authors("Padam/Padam.py", "Padam", amsgrad=False)), options="amsgrad=false",
           **SCHEDULED, **ADAM, partial=0.3)
    sgdp = dict(lr=0.05, momentum=0.8, dampening=0.1, weight_decay=0.1, eps=1e-4, wd_ratio=0.2)
    for name, nesterov, delta in (("sgdp", False, 0.5), ("sgdp_rows", False, 2.3), ("sgdp_nesterov",
                                                                                    True, 1.0)):
        config(name, "sgdp", "clovaai/AdamP 7f6f038", options="nesterov=true" if nesterov else "",
               native=name == "sgdp", **sgdp, delta=delta,
               run=run(authors("AdamP/adamp/sgdp.py", "SGDP", nesterov=nesterov)))
    config("fromage", "fromage", "jxbz/fromage 4a6593b",
           run(authors("fromage/fromage.py", "Fromage")), lr=0.1)
    config("fromage_bounded", "fromage", "jxbz/fromage 4a6593b",
           run(authors("fromage/fromage.py", "Fromage")), options="bounded=true", **SCHEDULED,
           lr=0.2, p_bound=1.01)

    # ---- more of others' and authors' classes ----
    ftrl = dict(lr=0.3, lr_power=-0.5, beta=0.4, lambda_1=0.1, lambda_2=0.2)
    both("ftrl", "ftrl", "po.FTRL", lambda ps, h: po.FTRL(ps, **h, foreach=False), **ftrl)
    config("ftrl_power", "ftrl", "po.FTRL", run(lambda ps, h: po.FTRL(ps, **h, foreach=False)),
           native=False, **{**ftrl, "lr_power": -0.4})
    both("tiger", "tiger", "po.Tiger", lambda ps, h: po.Tiger(ps, **h, foreach=False), lr=0.02,
         beta=0.8, weight_decay=0.1)

    class ScaledTiger:
        """bojone/tiger without gradient accumulation and NaN; matrices have no names here, vectors
        are biases."""

        def __init__(self, params, h):
            self.params, self.h, self.m, self.param_groups = params, h, [0.0 for _ in params], []

        @torch.no_grad()
        def step(self):
            h = self.h
            for k, p in enumerate(self.params):
                self.m[k] = h.beta * self.m[k] + (1 - h.beta) * p.grad
                lr, d = (h.lr * 0.5, 0) if p.dim() < 2 else (h.lr * p.square().mean().sqrt(),
                                                             h.weight_decay)
                p.sub_((torch.sign(self.m[k]) + d * p) * lr)

    config("tiger_rms",
           "tiger", "a transcription of bojone/tiger 43fb6b6; that is for TensorFlow 1",
           run(ScaledTiger), options="scale=rms", **SCHEDULED, lr=0.02, beta=0.8, weight_decay=0.1)

    def cocob(h):
        import optax
        return parted(lambda lr: optax.contrib.cocob(lr, h.alpha, h.eps, h.weight_decay), h)

    config("cocob", "cocob", "optax.contrib.cocob", optax_run(cocob), lr=0.9, alpha=20.0, eps=1e-2,
           weight_decay=0.1)
    config("cocob_long", "cocob", "optax.contrib.cocob", optax_run(cocob), **LONG, lr=0.5,
           alpha=50.0, eps=1e-3, weight_decay=0.02)
    two = [(7,), (33, 65), (9, 1), (1, 9)]
    sm3 = lambda ps, h: po.SM3(ps, lr=h.lr, momentum=h.get("momentum", 0.0), beta=h.beta, eps=h.eps,
                               foreach=False)
    config("sm3", "sm3", "po.SM3", run(sm3), shapes=[()] + two, lr=0.1, beta=0.0, eps=1e-3)
    config("sm3_beta", "sm3", "po.SM3", run(sm3), shapes=two, schedule=True, steps=60, native=False,
           options="momentum_buffer=true", lr=0.1, momentum=0.7, beta=0.8, eps=1e-3)
    adagc = {**ADAM, "beta": 0.8, "lambda_abs": 5.0, "lambda_rel": 1.02, "warmup_steps": 6.0}
    # its global norm is in float32
    sys.modules[po.AdaGC.__module__].get_global_gradient_norm = lambda groups: torch.stack(
        [p.grad.norm() for g in groups for p in g["params"]]).square().sum()
    both(
        "adagc", "adagc", "po.AdaGC; global norm in float64",
        lambda ps, h: po.AdaGC(ps, **betas(h), beta=h.beta, lambda_abs=h.lambda_abs, lambda_rel=h.
                               lambda_rel, warmup_steps=h.warmup_steps, foreach=False), **adagc)
    amos = dict(lr=0.1, beta=0.9, extra_l2=0.01, eps=1e-3)
    for name, momentum in (("amos", 0.0), ("amos_momentum", 0.7)):
        config(
            name, "amos", "po.Amos",
            options="momentum_buffer=true" if momentum else "", native=not momentum, **amos,
            **(dict(momentum=momentum) if momentum else {}), shapes=[()] + two,
            run=run(lambda ps, h: po.Amos(ps, lr=h.lr, beta=h.beta, momentum=h.get("momentum", 0.0),
                                          extra_l2=h.extra_l2, eps=h.eps, foreach=False)))

    def hessian(ps, h):
        """timm's class, given the estimates of `entry`: ahead of every third step, kept between
        them."""
        import timm.optim.adahessian
        opt = timm.optim.adahessian.Adahessian(ps, **betas(h), hessian_power=h.hessian_power)
        steps = [0]

        def set_hessian():
            steps[0] += 1
            for k, p in enumerate(each_param(ps)):
                if steps[0] % 3 == 1:
                    p.hess = torch.tensor(
                        api.second_gradient(k, steps[0],
                                            p.detach().numpy(), api.RUN["shapes"]))
        opt.zero_hessian, opt.set_hessian = lambda: None, set_hessian
        return opt
    for name, how, power in (("adahessian", {}, 1.0), ("adahessian_schedule", SCHEDULED, 0.7)):
        config(name, "adahessian", "timm.optim.Adahessian", run(hessian), entry="set_hessian 3",
               **how, **ADAM, hessian_power=power)
    spam = {**ADAM, "gamma1": 0.6, "gamma2": 0.8, "theta": 0.7}
    for name, gap, how in (("stable_spam", 1000, {}), ("stable_spam_restart", 7, SCHEDULED)):
        config(
            name, "stable_spam", "po.StableSPAM",
            options="" if gap == 1000 else f"update_proj_gap={gap}", **how,
            run=run(lambda ps, h, gap=gap: po.StableSPAM(ps, **betas(
                h), gamma1=h.gamma1, gamma2=h.gamma2, theta=h.theta, update_proj_gap=gap, foreach=
                                                         False)), **spam)

    # ---- GPA: its states and scalars in float64 ----
    def gpa(look=False, **more):
        held = []

        def make(ps, h):
            root = os.path.join(clones, "optimizers")
            if root not in sys.path:
                sys.path.insert(0, root)
            held[:] = [load_f64(clones, "optimizers/gpa/gpa_adamw.py").GPAAdamW(ps, **h, **more)]
            held[0].train()
            return held[0]

        def after(ps, h):
            def evaluated():
                held[0].eval()
                x = [p.detach().clone() for p in ps]
                held[0].train()
                return x
            return evaluated
        return run(make, after=after if look else None)
    adam = {**ADAM, "train_interp_coeff": 0.6, "eval_interp_coeff": 0.8}
    source = "facebookresearch/optimizers f606606; in float64"
    config("gpa_adamw", "gpa_adamw", source, gpa(), **adam)
    config("gpa_adamw_y", "gpa_adamw", source, gpa(use_wd_on_y=True), options="use_wd_on_y=true",
           **SCHEDULED, **adam)
    config("gpa_adamw_eval", "gpa_adamw", source, gpa(look=True), look="to_eval to_train",
           native=False, **adam)

    # ---- matrices ----
    adamw = {"adamw." + k: v for k, v in ADAM.items()}
    adamw = {k.replace(".", "__"): v for k, v in adamw.items()}
    make_rest = lambda ps, h: torch.optim.AdamW(ps, lr=h["adamw.lr"], betas=(h["adamw.beta1"], h[
        "adamw.beta2"]), eps=h["adamw.eps"], weight_decay=h["adamw.weight_decay"])

    def conda(ps, h):
        module = load_f64(clones, "Conda/" + CONDA + "/projector.py")
        text = types.ModuleType("conda_f64")
        with open(os.path.join(clones, "Conda", CONDA, "conda.py")) as f:
            source = f.read().replace("from .projector import CondaProjector", "").replace(
                "from transformers.utils.versions import require_version",
                "require_version = lambda x: None")
        text.CondaProjector = module.CondaProjector
        exec(compile(source, "conda.py", "exec"), text.__dict__)
        return text.Conda([
            dict(params=[p], dim=2, update_proj_gap=5, scale=h.scale, proj_type="std") for p in ps
        ], **betas(h), no_deprecation_warning=True)

    CONDA = next(
        os.path.relpath(d, os.path.join(clones, "Conda"))
        for d, _, files in os.walk(os.path.join(clones, "Conda"))
        if "projector.py" in files) if clones else ""
    for name, how in (("conda", {}), ("conda_schedule", dict(schedule=True, steps=60,
                                                             native=False))):
        config(name, "conda", "jie040109/Conda 449af71; in float64",
               run_matrix(api, conda, make_rest), shapes=MATRICES, options="update_proj_gap=5",
               **how, **ADAM, scale=0.8, **adamw)
    muon = dict(lr=0.05, momentum=0.8, weight_decay=0.1)
    for name, nesterov in (("spel", False), ("spel_nesterov", True)):
        config(
            name, "spel", "NVIDIA-NeMo/Emerging-Optimizers fd77292; iteration in float64",
            shapes=MATRICES, options="nesterov=true,coefficients=jordan" if nesterov else "",
            native=not nesterov, **muon, **adamw, run=run_matrix(
                api, lambda ps, h, nesterov=nesterov: nvidia(clones, "Spel")
                (ps, h.lr, h.momentum, h.weight_decay, nesterov=nesterov, coefficient_type="simple"
                 if nesterov else "quintic"), make_rest))

    # 16 steps converge: errors then stay small for 60 steps. With five they double at every step of
    # the rule.
    config(
        "spel_exact", "spel", "NVIDIA-NeMo/Emerging-Optimizers fd77292; iteration in float64",
        shapes=MATRICES, options="steps=16,coefficients=polar_express", native=False, **muon,
        **adamw, run=run_matrix(
            api, lambda ps, h: nvidia(clones, "Spel")
            (ps, h.lr, h.momentum, h.weight_decay, coefficient_type="polar_express", num_ns_steps=16
             ), make_rest))

    class Hyperballs:
        """One optimizer for each matrix, since each has its own radius."""

        def __init__(self, params, h, nesterov):
            self.opts = [
                nvidia(clones,
                       "MuonHyperball")([p], h.lr, h.momentum, h.weight_decay, nesterov=nesterov,
                                        coefficient_type="simple" if nesterov else "quintic",
                                        hyperball_radius=float(p.detach().norm())) for p in params
            ]
            self.param_groups = [g for o in self.opts for g in o.param_groups]

        def step(self):
            for opt in self.opts:
                opt.step()
    for name, nesterov in (("muonh", False), ("muonh_nesterov", True)):
        config(
            name, "muonh", "NVIDIA-NeMo/Emerging-Optimizers fd77292; iteration in float64",
            shapes=MATRICES, options="nesterov=true,coefficients=jordan" if nesterov else "",
            native=not nesterov, **muon, **adamw, run=run_matrix(
                api, lambda ps, h, nesterov=nesterov: Hyperballs(ps, h, nesterov), make_rest))

    # ---- rings ----
    def shift(keep, reduce):
        return lambda ps, h: po.AdaShift(ps, lr=h.lr, betas=(h.beta1, h.beta2), keep_num=keep,
                                         reduce_func=reduce, eps=h.eps, foreach=False)
    for name, options, keep, reduce, more in (
            ("adashift", "", 10, torch.max, dict(eps=1e-10)),
            ("adashift_mean", "keep_num=4,reduce=mean", 4, torch.mean, dict(eps=1e-6)),
            ("adashift_none", "keep_num=1,reduce=none", 1, None, dict(eps=1e-6))):
        both(name, "adashift", "po.AdaShift", shift(keep, reduce), options=options,
             native=name == "adashift", lr=0.01, beta1=0.8, beta2=0.95, **more)

    # ---- wrappers ----
    def timm_agc():
        """timm.utils imports torchvision: its file alone."""
        return load(os.path.dirname(timm.optim.laprop.__file__) + "/..", "utils/agc.py")

    config(
        "adamw_agc", "adamw", "timm.utils.adaptive_clip_grad and torch.optim.AdamW",
        wrap="agc(0.3)", agc__clip_factor=0.3, agc__eps=0.2, **ADAM, run=run(
            api.make_adamw,
            lambda ps, h: timm_agc().adaptive_clip_grad(ps, h["agc.clip_factor"], h["agc.eps"])))

    def grokfast(ps, h):
        model = torch.nn.ParameterList(ps)
        held = GROK.get(id(ps)) if id(ps) in GROK else None
        GROK[id(ps)] = load(clones,
                            "grokfast/grokfast.py").gradfilter_ema(model, held, h["grokfast.alpha"],
                                                                   h["grokfast.lamb"])
    GROK = {}
    config("adamw_grokfast", "adamw", "ironjr/grokfast 93b2248 and torch.optim.AdamW",
           wrap="grokfast(0.9,1.5)", grokfast__alpha=0.9, grokfast__lamb=1.5, **ADAM,
           run=run(api.make_adamw, grokfast))

    def window(size, **more):
        held = {}

        def before(ps, h):
            model = torch.nn.ParameterList(ps)
            filtered = load(clones, "grokfast/grokfast.py").gradfilter_ma
            held[id(ps)] = filtered(model, held.get(id(ps)), size, h["grokfast_ma.lamb"], **more)
        return before
    GROKFAST = "ironjr/grokfast 93b2248 and torch.optim.AdamW"
    config("adamw_grokfast_ma", "adamw", GROKFAST, wrap="grokfast_ma(7,1.5)", grokfast_ma__lamb=1.5,
           **ADAM, run=run(api.make_adamw, window(7)))
    config("adamw_grokfast_ma_sum", "adamw", GROKFAST,
           wrap="grokfast_ma(5,0.5,filter_type=sum,warmup=false)", grokfast_ma__lamb=0.5, **ADAM,
           run=run(api.make_adamw, window(5, filter_type="sum", warmup=False)))

    def orthograd(ps, h):
        path = "grokking-at-the-edge-of-numerical-stability/orthograd.py"
        return load(clones, path).OrthoGrad(ps, torch.optim.AdamW, **betas(h))
    shapes = [(2,), (7,), (33, 65), (3, 5, 7)]          # nothing is left of a scalar's gradient
    config("adamw_orthograd", "adamw", "LucasPrietoAl/grokking-at-the-edge-of-numerical-stability "
                                       "0cc9e8d",
           run(orthograd), wrap="orthograd", shapes=shapes, **ADAM)

    class AdaptiveSAM:
        def __init__(self, params, h):
            self.opt = load(clones, "sam/sam.py").SAM(params, torch.optim.SGD, rho=h["sam.rho"],
                                                      adaptive=True, lr=h.lr, momentum=h.momentum,
                                                      weight_decay=h.weight_decay)
            self.params, self.steps = params, 0

        def step(self):
            self.steps += 1
            self.opt.first_step()
            for k, p in enumerate(self.params):
                p.grad = torch.tensor(
                    api.second_gradient(k, self.steps,
                                        p.detach().numpy(), api.RUN["shapes"]))
            self.opt.second_step()
    config("sgd_asam", "sgd", "davda54/sam 3c3afdb and torch.optim.SGD", run(AdaptiveSAM),
           wrap="sam(0.5,adaptive=true)", sam__rho=0.5, sam__eps=1e-12, **api.SGD, dampening=0.0)
