"""The part of make_refs.py for wrappers that take more than one gradient per step, from
pytorch_optimizer.

Its function for the norm of all gradients rounds to float32; here it computes in float64. Nothing
else is changed.
"""
import inspect

import torch


def norms_in_f64(module):
    """pytorch_optimizer's get_global_gradient_norm without its rounding to float32, for this
    module's classes."""
    import pytorch_optimizer.optimizer.utils.gradient as gradient
    text = inspect.getsource(gradient.get_global_gradient_norm)
    text = text.replace(".float()", ".double()").replace("torch.float32", "torch.float64")
    names = dict(gradient.__dict__)
    exec(compile(text, "get_global_gradient_norm", "exec"), names)
    module.get_global_gradient_norm = names["get_global_gradient_norm"]


def configs(api):
    import pytorch_optimizer.optimizer.sam as sam
    norms_in_f64(sam)
    run, SGD, ADAM = api.run_torch, api.SGD, api.ADAM

    class Base:
        """Sets the second gradient between the two halves of a step."""
        def __init__(self, params, h):
            self.params, self.h, self.steps = params, h, 0
            self.opt = self.make(params, h)
            self.param_groups = self.opt.param_groups

        def second(self):
            for k, p in enumerate(self.params):
                p.grad = torch.tensor(
                    api.second_gradient(k, self.steps,
                                        p.detach().numpy(), api.RUN["shapes"]))

        def step(self):
            self.steps += 1
            self.opt.first_step()
            self.second()
            self.opt.second_step()

    def sgd(h):
        return dict(lr=h.lr, momentum=h.momentum, weight_decay=h.weight_decay)

    def adam(h):
        return dict(lr=h.lr, betas=(h.beta1, h.beta2), eps=h.eps, weight_decay=h.weight_decay)

    def gsam(kind, numbers, adaptive):
        class Made(Base):
            def make(self, params, h):
                class Rho:
                    step = staticmethod(lambda: h["gsam.rho"])

                return sam.GSAM(params, kind(params, **numbers(h)), None, Rho,
                                alpha=h["gsam.alpha"], adaptive=adaptive, perturb_eps=h["gsam.eps"])

            def step(self):
                self.steps += 1
                self.opt.perturb_weights(rho=self.opt.rho_t)
                self.second()
                self.opt.gradient_decompose(self.opt.alpha)
                self.opt.un_perturb()
                self.opt.base_optimizer.step()
        return Made

    api.config("sgd_gsam", "sgd", "po.GSAM and torch.optim.SGD",
               run(gsam(torch.optim.SGD, sgd, False)), wrap="gsam(0.5,0.6)", gsam__rho=0.5,
               gsam__alpha=0.6, gsam__eps=1e-12, **SGD, dampening=0.0)
    api.config("adamw_gsam_adaptive", "adamw", "po.GSAM and torch.optim.AdamW", native=False,
               run=run(gsam(torch.optim.AdamW, adam, True)), wrap="gsam(0.5,0.3,adaptive=true)",
               gsam__rho=0.5, gsam__alpha=0.3, gsam__eps=1e-3, **ADAM)

    def wsam(decouple, adaptive):
        class Made(Base):
            def make(self, params, h):
                return sam.WSAM(None, params, torch.optim.SGD, rho=h["wsam.rho"],
                                gamma=h["wsam.gamma"], adaptive=adaptive, decouple=decouple,
                                eps=h["wsam.eps"], **sgd(h))
        return Made

    api.config("sgd_wsam", "sgd", "po.WSAM and torch.optim.SGD", run(wsam(True, False)),
               wrap="wsam(0.5,0.7)", wsam__rho=0.5, wsam__gamma=0.7, wsam__eps=1e-12, **SGD,
               dampening=0.0)
    api.config("sgd_wsam_joint", "sgd", "po.WSAM and torch.optim.SGD", run(wsam(False, True)),
               native=False, wrap="wsam(0.4,0.3,decouple=false,adaptive=true)", wsam__rho=0.4,
               wsam__gamma=0.3, wsam__eps=1e-3, **SGD, dampening=0.0)

    def friendly(adaptive):
        class Made(Base):
            def make(self, params, h):
                return sam.FriendlySAM(params, torch.optim.SGD, rho=h["friendlysam.rho"],
                                       sigma=h["friendlysam.sigma"], lmbda=h["friendlysam.lmbda"],
                                       adaptive=adaptive, perturb_eps=h["friendlysam.eps"],
                                       **sgd(h))
        return Made

    api.config("sgd_friendlysam", "sgd", "po.FriendlySAM and torch.optim.SGD", run(friendly(False)),
               wrap="friendlysam(0.5,0.8)", friendlysam__rho=0.5, friendlysam__sigma=0.8,
               friendlysam__lmbda=0.7, friendlysam__eps=1e-12, **SGD, dampening=0.0)
    api.config("sgd_friendlysam_adaptive", "sgd", "po.FriendlySAM and torch.optim.SGD",
               run(friendly(True)), native=False, wrap="friendlysam(0.4,adaptive=true)",
               friendlysam__rho=0.4, friendlysam__sigma=1.0, friendlysam__lmbda=0.4,
               friendlysam__eps=1e-3, **SGD, dampening=0.0)

    def looksam(k, adaptive):
        class Made(Base):
            def make(self, params, h):
                return sam.LookSAM(params, torch.optim.SGD, rho=h["looksam.rho"], k=k,
                                   alpha=h["looksam.alpha"], adaptive=adaptive,
                                   perturb_eps=h["looksam.eps"], **sgd(h))

            def step(self):
                self.steps += 1
                self.opt.first_step()
                if (self.steps - 1) % k == 0:
                    self.second()
                self.opt.second_step()
        return Made

    api.config("sgd_looksam", "sgd", "po.LookSAM and torch.optim.SGD", run(looksam(3, False)),
               wrap="looksam(0.5,3)", looksam__rho=0.5, looksam__alpha=0.7, looksam__eps=1e-12,
               **SGD, dampening=0.0)
    api.config("sgd_looksam_adaptive", "sgd", "po.LookSAM and torch.optim.SGD",
               run(looksam(4, True)), native=False, wrap="looksam(0.3,4,adaptive=true)",
               looksam__rho=0.3, looksam__alpha=0.4, looksam__eps=1e-3, **SGD, dampening=0.0)
