"""Arguments by position: as many as our order shares with the authors', whose constructors are in
this table."""
import inspect
import os
import unittest
import warnings

import torch

import optc.torch
from case import Evaluated
from optc.torch import _rule_classes, _rules

# {rule: the arguments that the authors' constructor takes by position, with their defaults; what
# the spec's `follows` names. ...: no default, or one that no rule of ours can have (Shampoo's beta2
# = 1 is a plain sum there). Rules that are missing here have authors without a constructor
# (functions, scripts, groups alone), or one that begins with other things than numbers.}
THEIRS = dict(
    adabelief="lr=1e-3, betas=(0.9, 0.999), eps=1e-16, weight_decay=0, amsgrad=False, "
              "weight_decouple=True",
    adabound="lr=1e-3, betas=(0.9, 0.999), final_lr=0.1, gamma=1e-3, eps=1e-8, weight_decay=0, "
             "amsbound=False",
    adagc="lr=1e-3, betas=(0.9, 0.999), beta=0.98, lambda_abs=1.0, lambda_rel=1.05, "
          "warmup_steps=100, weight_decay=0.1, weight_decouple=True",
    adahessian="lr=0.1, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0, hessian_power=1.0, "
               "update_each=1",
    adai="lr=..., betas=(0.1, 0.99), eps=1e-3, weight_decay=0, decoupled=False",
    adalomo="lr=1e-3, loss_scale=1024, eps=(1e-30, 1e-3), clip_threshold=1.0, decay_rate=-0.8, "
            "clip_grad_norm=None",
    adam_atan2="lr=1e-4, betas=(0.9, 0.99), weight_decay=0.0, regen_reg_rate=0.0, "
               "decoupled_wd=False",
    adam_mini="lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0",
    adamod="lr=1e-3, betas=(0.9, 0.999), beta3=0.999, eps=1e-8, weight_decay=0",
    adamp="lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0, delta=0.1, wd_ratio=0.1, "
          "nesterov=False",
    adamuon="lr=0.02, weight_decay=0.01, momentum=0.95, nesterov=True, ns_steps=5, eps=1e-8",
    adan="lr=1e-3, betas=(0.98, 0.92, 0.99), eps=1e-8, weight_decay=0.0, no_prox=False",
    adapnm="lr=1e-3, betas=(0.9, 0.999, 1.0), eps=1e-8, weight_decay=0.0, amsgrad=True, "
           "decoupled=True",
    adashift="lr=1e-3, betas=(0.9, 0.999), keep_num=10, reduce_func=..., eps=1e-10",
    adatam="lr=1e-3, betas=(0.9, 0.999), decay_rate=0.9, weight_decay=0.0, weight_decouple=True",
    ademamix="lr=1e-3, betas=(0.9, 0.999, 0.9999), alpha=2.0, beta3_warmup=None, "
             "alpha_warmup=None, eps=1e-8, weight_decay=0",
    adopt="lr=1e-3, betas=(0.9, 0.9999), eps=1e-6, clip_exp=0.333, weight_decay=0.0, "
          "decoupled=False",
    aggmo="lr=..., betas=(0.0, 0.9, 0.99), weight_decay=0",
    amos="lr=1e-3, beta=0.999, momentum=0.0, extra_l2=0.0, c_coef=0.25, d_coef=0.25",
    apollo="lr=1e-3, betas=(0.9, 0.999), eps=1e-6, weight_decay=0.0, correct_bias=True",
    apollo_mini="lr=1e-3, betas=(0.9, 0.999), eps=1e-6, weight_decay=0.0, correct_bias=True",
    asgo="learning_rate=0.01, momentum=0.9, weight_decay=0.1, beta2=0.8, eps=1e-10, inv_method=...",
    came="lr=..., eps=(1e-30, 1e-16), clip_threshold=1.0, betas=(0.9, 0.999, 0.9999), "
         "weight_decay=0.0",
    cocob="learning_rate=1.0, alpha=100.0, eps=1e-8, weight_decay=0.0, mask=None",
    conda="lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0, correct_bias=True",
    cosmos="lr=1e-3, betas=(0.9, 0.999), eps=1e-8, lr_ratio=0.1, rank=64, weight_decay=0, "
           "gamma=0.2, nestrov=True",
    dadapt_adagrad="lr=1.0, momentum=0, log_every=0, weight_decay=0.0, eps=1e-6, d0=1e-6",
    dadapt_adam="lr=1.0, betas=(0.9, 0.999), eps=1e-8, weight_decay=0, log_every=0, decouple=False",
    dadapt_adan="lr=1.0, betas=(0.98, 0.92, 0.99), eps=1e-8, weight_decay=0.02, no_prox=False, "
                "log_every=0",
    dadapt_lion="lr=1.0, betas=(0.9, 0.99), weight_decay=0.0, log_every=0, d0=1e-6",
    dadapt_sgd="lr=1.0, momentum=0.0, weight_decay=0, log_every=0, d0=1e-6",
    diffgrad="lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0",
    dion="replicate_mesh=None, outer_shard_mesh=None, inner_shard_mesh=None, "
         "replicate_mesh_grad_sync=True",
    dion2="distributed_mesh=None, lr=0.01, fraction=0.25, ef_decay=0.95",
    dion3="distributed_mesh=None, lr=0.01, fraction=0.25, mu=0.95, muon_beta2=0.95",
    dog="reps_rel=1e-6, lr=1.0, weight_decay=0.0, eps=1e-8, init_eta=None",
    dowg="learning_rate=1.0, init_estim_sq_dist=None, eps=1e-4, weight_decay=None, mask=None",
    fromage="lr=0.01, p_bound=None",
    ftrl="lr=1e-3, lr_power=-0.5, beta=0.0, lambda_1=0.0, lambda_2=0.0, maximize=False",
    gpa_adamw="lr=1.0, eps=1e-8, beta1=0.9, beta2=0.999, weight_decay=0, use_wd_on_y=False",
    grams="lr=1e-3, betas=(0.9, 0.999), eps=1e-6, weight_decay=0.0, correct_bias=True",
    klshampoo="lr=1e-4, betas=(0.9, 0.98), shampoo_beta=..., eps=1e-8, weight_decay=0.01",
    klsoap="lr=..., betas=(0.9, 0.95), shampoo_beta=0.95, eps=1e-8, weight_decay=0.01",
    lamb="lr=1e-3, bias_correction=True, betas=(0.9, 0.999), eps=1e-6, weight_decay=0.01",
    laprop="lr=4e-4, betas=(0.9, 0.999), eps=1e-15, weight_decay=0.0, caution=False",
    lars="lr=1.0, momentum=0, dampening=0, weight_decay=0, nesterov=False, trust_coeff=1e-3, "
         "eps=1e-8",
    lion="lr=1e-4, betas=(0.9, 0.99), weight_decay=0.0, caution=False",
    lomo="lr=1e-3, clip_grad_norm=None, clip_grad_value=None, weight_decay=0.0",
    madgrad="lr=0.01, momentum=0.9, weight_decay=0, eps=1e-6, decoupled_decay=False",
    mars="lr=3e-3, betas=(0.95, 0.99), eps=1e-8, weight_decay=0.0, amsgrad=False, gamma=0.025",
    mop="lr=3e-4, momentum=0.95, weight_decay=0.01",
    moso="lr=3e-4, momentum=0.95, rms_beta=0.95, shampoo_beta=0.95, eps=1e-8, weight_decay=0.01",
    mousse="model=..., distributed_mesh=None, lr=0.01, mu=0.95",
    muonh="lr=3e-4, momentum=0.95, weight_decay=0.01",
    muown="lr=3e-4, momentum=0.95, weight_decay=0.0",
    namo="lr=..., momentum=..., weight_decay=...",
    nero="lr=0.01, beta=0.999, constraints=True",
    nora="lr=5e-3, lr_adam=1e-3, momentum=0.95, beta=0.95, weight_decay=0.0",
    normuon="lr=0.02, weight_decay=0, momentum=0.95, beta2=0.95",
    novograd="lr=1e-3, betas=(0.95, 0.98), eps=1e-8, weight_decay=0, grad_averaging=False",
    padam="lr=0.1, betas=(0.9, 0.999), eps=1e-8, weight_decay=0, amsgrad=True, partial=0.25",
    pnm="lr=..., betas=(0.9, 1.0), weight_decay=0, decoupled=True",
    polargrad="lr=0.02, weight_decay=0.0, momentum=0.95, polar_first=False",
    prodigy="lr=1.0, betas=(0.9, 0.999), beta3=None, eps=1e-8, weight_decay=0, decouple=True, "
            "use_bias_correction=False, safeguard_warmup=False, d0=1e-6, d_coef=1.0, "
            "growth_rate=float('inf')",
    psgd="rank_of_approximation=10, preconditioner_init_scale=None, lr_params=1e-3, "
         "lr_preconditioner=0.1",
    psgd_kron="preconditioner_max_size=..., preconditioner_max_skew=1.0, "
              "preconditioner_init_scale=None, lr_params=1e-3, lr_preconditioner=0.1",
    qhadam="lr=1e-3, betas=(0.9, 0.999), nus=(1.0, 1.0), weight_decay=0.0, "
           "decouple_weight_decay=False, eps=1e-8",
    qhm="lr=..., momentum=..., nu=..., weight_decay=0.0, weight_decay_type=...",
    rekls="lr=..., betas=(0.9, 0.95), shampoo_beta=0.95, eps=1e-8, weight_decay=0.01",
    rmnp="lr=0.02, momentum=0.95, nesterov=True, weight_decay=0.0",
    rmsprop_tf="lr=0.01, alpha=0.9, eps=1e-10, weight_decay=0, momentum=0.0, centered=False",
    scale="lr=1e-4, wd=0.0, main_params=None",
    schedulefree_adamw="lr=0.0025, betas=(0.9, 0.999), eps=1e-8, weight_decay=0, warmup_steps=0, "
                       "r=0.0, weight_lr_power=2.0, foreach=True",
    schedulefree_radam="lr=0.0025, betas=(0.9, 0.999), eps=1e-8, weight_decay=0, r=0.0, "
                       "weight_lr_power=2.0, foreach=True",
    schedulefree_sgd="lr=1.0, momentum=0.9, weight_decay=0, warmup_steps=0, r=0.0, "
                     "weight_lr_power=2.0, foreach=True",
    scion="lr=1e-3, momentum=1.0, norm='Auto', norm_kwargs=None, scale=1.0",
    sgd_sai="lr=0.01, momentum=0.9, eps=1e-8, weight_decay=0.01",
    sgdp="lr=..., momentum=0, dampening=0, weight_decay=0, nesterov=False, eps=1e-8",
    sgdw="lr=1e-3, momentum=0.0, dampening=0.0, weight_decay=0.0, nesterov=False",
    shampoo="lr=0.01, betas=..., beta3=..., epsilon=1e-12, weight_decay=0.0",
    signum="lr=1e-3, momentum=0.9, weight_decay=0.0, weight_decouple=True",
    simplified_ademamix="lr=1e-4, betas=(0.99, 0.95), alpha=0.0, beta1_warmup=None, eps=1e-8, "
                        "weight_decay=0.0, min_beta1=0.9, bias_correction1=False, "
                        "bias_correction2=True",
    sinkgd="lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0",
    sm3="lr=0.1, momentum=0.0, beta=0.0, eps=1e-30, maximize=False",
    soap="lr=3e-3, betas=(0.95, 0.95), shampoo_beta=..., eps=1e-8, weight_decay=0.01, "
         "precondition_frequency=10",
    sophia="lr=1e-4, betas=(0.965, 0.99), rho=0.04, weight_decay=0.1",
    spel="lr=3e-4, momentum=0.95, weight_decay=0.1",
    splus="lr=0.1, b1=0.9, b2=0.999, ema_rate=0.999, inverse_every=100, eps=1e-30, "
          "weight_decay=0.01",
    stable_spam="lr=1e-3, betas=(0.9, 0.999), gamma1=0.7, gamma2=0.9, theta=0.999, t_max=None, "
                "eta_min=0.5",
    stableadamw="lr=1e-3, betas=(0.9, 0.99), kahan_sum=True, weight_decay=0.01",
    swan="lr=0.02, momentum=None, nesterov=True, ns_steps=6, weight_decay=0.0",
    tam="lr=1e-3, momentum=0.9, decay_rate=0.9, weight_decay=0.0, weight_decouple=True",
    tiger="lr=1e-3, beta=0.965, weight_decay=0.01, weight_decouple=True",
    yogi="lr=0.01, betas=(0.9, 0.999), initial_accumulator=1e-6, weight_decay=0.0, "
         "weight_decouple=True",
)
# The same argument under two names.
SAME = {"learning_rate": "lr", "clip_exp": "clip_power", ("soap", "shampoo_beta"): "beta3"}


def theirs(spec):
    """{our name of an argument: the authors' default}, in the authors' order."""
    said = inspect.signature(eval("lambda %s: 0" % THEIRS[spec])).parameters.items()
    return {SAME.get((spec, k), SAME.get(k, k)): p.default for k, p in said}


def ours(spec):
    """(the arguments by position, those by name alone) of a class"""
    each = list(_rule_classes.signature(spec).parameters.values())[1:]
    return [p.name for p in each if p.kind != p.KEYWORD_ONLY
            ], [p.name for p in each if p.kind == p.KEYWORD_ONLY]


class Positional(Evaluated):
    def test_order(self):
        """Each class takes by position what the authors take there, to the first difference;
        torch's rules are compared in test_contracts.py."""
        rest = set(_rules.rules()) - set(_rules.TORCH) - set(THEIRS)
        self.assertEqual(
            rest, {
                "adago", "amuse", "aro", "aurora", "fismo", "mano", "muoneq", "muonsq", "pmuon",
                "soap_muon", "sron"
            })
        for spec in rest:
            self.assertEqual(ours(spec)[0], ["lr"], spec)
        for spec in THEIRS:
            by_position, by_name = ours(spec)
            same, known = [], [*by_position, *by_name]
            numbers = _rule_classes.numbers(spec)
            for a, b in zip(theirs(spec), numbers):
                if a != b:
                    break
                same.append(a)
            self.assertEqual(by_position, same, spec)
            self.assertLessEqual(set(numbers), set(known), spec)

    def test_default_values(self):
        """The authors' defaults are values of our keys: a third of the rules (OPTC_ALL: each)."""
        for spec in list(THEIRS)[::1 if os.environ.get("OPTC_ALL") else 3] + [
                "dog", "dowg", "prodigy"
        ]:
            known = ours(spec)
            given = {
                k: v for k, v in theirs(spec).items() if v is not ... and k in known[0] + known[1]
            }
            p = [torch.ones(2, 2, requires_grad=True)]
            p[0].grad = torch.ones(2, 2)
            with self.subTest(spec), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                opt = optc.torch.Optimizer(p, spec, **given)
                opt._rule.values(opt.param_groups[0], torch.float32, 0)

    def test_calls(self):
        p = [torch.ones(2, 2, requires_grad=True)]
        group = optc.torch.Prodigy(p, 0.5, (0.8, 0.9), 0.7, 1e-7, 0.1).param_groups[0]
        self.assertEqual([group[k] for k in ("lr", "betas", "beta3", "eps", "weight_decay", "d0")],
                         [0.5, (0.8, 0.9), 0.7, 1e-7, 0.1, 1e-6])
        with self.assertRaisesRegex(
                TypeError, r"Prodigy: 5 arguments after params are taken by position "
                r"\(lr, betas, beta3, eps, weight_decay\).*6 were "
                r"given.*by name"):
            optc.torch.Prodigy(p, 1.0, (0.9, 0.999), None, 1e-8, 0.0, True)
        with self.assertRaisesRegex(TypeError, r"PSGDKron: no argument after params is taken by "
                                               r"position.*by name"):
            optc.torch.PSGDKron(p, 100)
        with self.assertRaisesRegex(TypeError, "Lion: lr is given twice"):
            optc.torch.Lion(p, 0.1, lr=0.1)
        with self.assertRaisesRegex(TypeError, "params"):
            optc.torch.Lion()


if __name__ == "__main__":
    unittest.main()
