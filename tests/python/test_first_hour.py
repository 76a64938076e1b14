"""The first hour of a new user: missing settings, wrong arguments, forgotten calls."""
import copy
import pathlib
import pickle
import re
import tempfile
import types
import unittest
import warnings

import numpy
import torch
from torch.optim import lr_scheduler as lrs

import optc
import optc.torch
from case import X, Y, Case, grads, model, train
from optc import library
from optc.torch import _rules
from optc.torch._engines import asked
from optc.torch._functions import judged
from optc.torch._rest_rate import Rates

RATE = re.compile(r"lr(_|$)|rate|step_?size|^decay$|(^|_)eta$")
# {(rule or wrapper, hyperparameter named like a rate): a rule with it} of those that the authors
# multiply by lr.
FOLLOW = {("mars", "lr_1d"): ("mars", []), ("amuse", "lr_1d"): ("amuse", []),
          ("ema_nesterov", "ema_nesterov.lookahead_stepsize"): ("sgd", ["ema_nesterov"]),
          ("galore", "galore.decay"): ("adan", ["galore(2,1)"]),
          ("fira", "fira.decay"): ("adan", ["fira(2,1)"])}
# The others, with the reason.
STAY = {
    **dict.fromkeys([("cosmos", "lr_ratio"), ("sinkgd", "lr_scale")],
                    "the spec multiplies it by lr"),
    ("adabound", "final_lr"): "the spec multiplies it by lr / base_lr",
    **dict.fromkeys([("adabound", "base_lr"), ("corrected_decay", "corrected_decay.max_lr")],
                    "a rate of the schedule"),
    **dict.fromkeys([("psgd", "precond_lr"), ("psgd_kron", "precond_lr"),
                     ("snoo", "snoo.outer_lr")],
                    "the authors keep it while lr changes"),
    **dict.fromkeys([("rprop", "step_size_min"), ("rprop", "step_size_max")], "torch keeps it"),
    **dict.fromkeys([("adagrad", "lr_decay"), ("ftrl", "lr_power"), ("amuse", "weight_lr_power"),
                     ("schedulefree_adamw", "weight_lr_power"),
                     ("schedulefree_radam", "weight_lr_power"),
                     ("schedulefree_sgd", "weight_lr_power")], "of a formula that has lr"),
    **dict.fromkeys([("dadapt_adagrad", "growth_rate"), ("dadapt_adam", "growth_rate"),
                     ("dadapt_adan", "growth_rate"), ("dadapt_sgd", "growth_rate"),
                     ("prodigy", "growth_rate"), ("dog", "init_eta")],
                    "limits or starts an estimate of the rate"),
    **dict.fromkeys([("adafactor", "decay"), ("adalomo", "decay_rate"), ("adatam", "decay_rate"),
                     ("tam", "decay_rate"), ("splus", "ema_rate"), ("ema", "ema.decay")],
                    "of an average"),
}


class Settings(Case):
    def test_workspace(self):
        """What a matrix takes may be given, and what was given too little is told by the argument's
        name."""
        a, b = ([(n, p.detach().clone().requires_grad_()) for n, p in model().named_parameters()]
                for _ in range(2))
        small = optc.torch.Muon(a, workspace=64)
        grads([p for _, p in a])
        with self.assertRaisesRegex(optc.OutOfMemory,
                                    "workspace is 64: workspace= of this optimizer"):
            small.step()
        takes, matrices = {}, lambda name, p: p.dim() > 1
        for n, p in b:
            takes[n] = optc.torch.Muon([(n, p)], workspace=1 << 20, sort=matrices)
            grads([p for _, p in b])
            takes[n].step()
        self.assertLessEqual(max(o.held()["workspace"] for o in takes.values()), 1 << 20)
        whole = optc.torch.Muon(a, sort=matrices)
        whole.step()
        for (_, p), (_, q) in zip(a, b):
            self.assertTrue(torch.equal(p, q))
        with self.assertRaisesRegex(optc.OutOfMemory, "workspace="):
            copy.deepcopy(small).step()                # a copy keeps it
        for bad in (-1, 1.5, "1G"):
            with self.assertRaisesRegex(ValueError, "workspace=.*bytes"):
                optc.torch.AdamW(model().parameters(), workspace=bad)

    def test_scaler_that_is_off(self):
        for make in (optc.torch.AdamW, torch.optim.AdamW):
            m, plain = model(), model()
            opt, scaler = make(m.parameters()), optc.torch.GradScaler("cpu", enabled=False)
            for _ in range(2):
                opt.zero_grad()
                scaler.scale(((m(X) - Y) ** 2).mean()).backward()
                scaler.step(opt)
                scaler.update()
            train(plain, make(plain.parameters()), 2)
            for p, q in zip(m.parameters(), plain.parameters()):
                self.assertTrue(torch.equal(p, q))

    def test_scheduler_moves_the_rest(self):
        """adamw.lr keeps its ratio to lr under schedulers, unless it is set or follow_lr is off."""
        def rates(schedule, given=None, n=6, between=lambda opt: None, opt=None):
            opt = opt or optc.torch.Muon(model(), lr=0.02, **(given or {"adamw_lr": 0.004}))
            moves, found = schedule(opt), []
            for _ in range(n):
                grads([p for g in opt.param_groups for p in g["params"]])
                opt.step()
                found.append((opt.param_groups[0]["lr"], opt.param_groups[0]["adamw.lr"]))
                moves.step()
                between(opt)
            return opt, found

        def set_once(opt):
            if not done:
                done.append(opt.param_groups[0].update({"adamw.lr": opt.param_groups[0]["lr"]}))
        cosine, done = (lambda opt: lrs.CosineAnnealingLR(opt, 6)), []
        warm = lambda opt: lrs.LambdaLR(opt, lambda t: min(t, 3) / 3)  # begins at 0
        cycle = lambda opt: lrs.OneCycleLR(opt, 0.02, total_steps=8, cycle_momentum=False)
        for schedule in (cosine, warm, cycle):
            for lr, rest in rates(schedule)[1]:
                self.assertAlmostEqual(rest, 0.2 * lr, 15)
        self.assertEqual(rates(cosine)[1][0], (0.02, 0.004))
        self.assertEqual(
            {rest for _, rest in rates(cosine, {"adamw_lr": 0.004, "follow_lr": False})[1]},
            {0.004})
        self.assertEqual({rest for _, rest in rates(cosine, {"adamw_lr": 0.0})[1]}, {0.0})
        for lr, rest in rates(cosine, between=set_once)[1][1:]:
            self.assertAlmostEqual(rest, lr, 15)
        of_users = rates(cosine,
                         between=lambda opt: opt.param_groups[0].update({"adamw.lr": 0.003}))[1]
        self.assertEqual([rest for _, rest in of_users[1:2]], [0.003])
        opt, _ = rates(cosine, n=3)
        for again in (copy.deepcopy(opt), optc.torch.Muon(model(), lr=1.0, adamw_lr=1.0)):
            again.load_state_dict(opt.state_dict())
            for lr, rest in rates(cosine, n=2, opt=again)[1]:
                self.assertAlmostEqual(rest, 0.2 * lr, 15)

    def test_second_rates(self):
        """Every hyperparameter of the library that is named like a rate is in one of the tables.
        Those that follow are 0 at lr = 0, where nothing moves; a change by hand counts too."""
        found = {}
        for n in library():
            kind, _, w = n.partition("/")
            rule = asked(spec="adamw", with_=w) if w and kind == "wrappers" else asked(
                spec=n) if not w else None
            names = [h for h in rule.hypers() if h != "lr" and not w or h.startswith(w + ".")
                     ] if rule else ()
            found[w or n] = {h for h in names if RATE.search(h.rpartition(".")[2])
                             } - {"%s.lr" % rule.field("fallback")}
        self.assertEqual({(n, h) for n, each in found.items() for h in each}, {*FOLLOW, *STAY})
        self.assertEqual({(n, h.rpartition(".")[2]) for n, h in FOLLOW}, {
            (n, h) for n, each in _rules.RATES.items() for h in each})
        for (name, key), (rule, with_) in FOLLOW.items():
            p = [("a", torch.randn(4, 3).requires_grad_()), ("b", torch.randn(5).requires_grad_())]
            params, first = [q for _, q in p], 0.25
            opt = optc.torch.Optimizer(p, rule, with_=with_, lr=0.5,
                                       **{key.replace(".", "_"): first})
            moves = lrs.LambdaLR(opt, lambda t: max(0, 1 - t / 2))
            for share in (1, 0.5, 0):
                grads(params)
                before = [q.detach().clone() for q in params]
                opt.step()
                self.assertEqual(opt.param_groups[0][key], first * share, name)
                self.assertEqual(all(map(torch.equal, before, params)), share == 0, name)
                moves.step()
            for on, given in ((True, {}), (False, {"follow_lr": False})):
                opt = optc.torch.Optimizer(params, rule, with_=with_, lr=0.5,
                                           **{key.replace(".", "_"): first}, **given)
                opt.param_groups[0]["lr"] = 0.125
                opt.step()
                self.assertEqual(opt.param_groups[0][key], 0.25 * first if on else first)

    def test_added_group_keeps_the_ratio(self):
        """A change of lr by a scheduler that no step has seen is no new ratio when a group is
        added."""
        opt = optc.torch.Muon([torch.nn.Parameter(torch.ones(2, 2))], lr=0.02, adamw_lr=0.002)
        moves = lrs.LambdaLR(opt, lambda t: min(1, 0.1 + 0.45 * t))
        opt.add_param_group({"params": [torch.nn.Parameter(torch.ones(3, 3))]})
        with self.assertRaises(ValueError):
            opt.add_param_group({"params": [torch.nn.Parameter(torch.ones(3).to_sparse())]})
        opt.add_param_group(
            {"params": [torch.nn.Parameter(torch.ones(3))], "lr": 0.1, "adamw.lr": 0.05})
        moves.base_lrs += [0.02, 0.1]                  # torch's schedulers do not see added groups
        moves.lr_lambdas *= 3
        for g, lr in zip(opt.param_groups, moves.base_lrs):
            g["initial_lr"] = lr
        for share in (0.1, 0.55, 1.0):
            grads([p for g in opt.param_groups for p in g["params"]])
            opt.step()
            self.assertAlmostEqual(opt.param_groups[0]["adamw.lr"], 0.002 * share, 15)
            moves.step()
        opt.step()
        self.assertEqual([g["adamw.lr"] for g in opt.param_groups[1:]], [0.002, 0.05])

    def test_equal_rate_that_is_set_stays(self):
        """A rate set before every step is the one that steps use, also if it equals the last
        one."""
        opt, rate = optc.torch.Muon(model(), lr=0.02, adamw_lr=0.002), 0.002
        for copied in (lambda x: x, copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))):
            opt = copied(opt)
            moves = lrs.StepLR(opt, 1, 0.9)
            for k in range(3):
                opt.param_groups[0]["adamw.lr"] = rate
                grads(opt.param_groups[0]["params"])
                opt.step()
                self.assertEqual(opt.param_groups[0]["adamw.lr"], 0.002)
                moves.step()
        opt.step()
        self.assertAlmostEqual(opt.param_groups[0]["adamw.lr"], 0.9 * 0.002, 15)

    def test_tensor_rates_are_followed(self):
        for rate in (0.5, torch.tensor(0.5)):
            opt = optc.torch.Muon(model(), lr=torch.tensor(0.25), adamw_lr=rate)
            group, moves = opt.param_groups[0], lrs.StepLR(opt, 1, 0.5)
            for share in (1, 0.5, 0.25):
                grads(group["params"])
                opt.step()
                self.assertEqual((float(group["lr"]), float(group["adamw.lr"])),
                                 (0.25 * share, 0.5 * share))
                moves.step()
            if isinstance(rate, torch.Tensor):         # set by the caller, to the value it has
                group["adamw.lr"].fill_(0.125)
                opt.step()
                self.assertEqual(float(group["adamw.lr"]), 0.125)

    def test_array_rates_are_followed(self):
        """Rates that are arrays of NumPy keep their ratio too."""
        m = model()
        opt = optc.torch.Muon(m, lr=0.02, adamw_lr=0.002)
        opt.param_groups[0].update({"lr": numpy.array(0.02), "adamw.lr": numpy.array(0.002)})
        schedule, found = lrs.StepLR(opt, 1, 0.5), []
        for _ in range(3):
            train(m, opt, 1)
            found.append(float(opt.param_groups[0]["adamw.lr"]))
            schedule.step()
        self.close(found, [0.002, 0.001, 0.0005], 1e-12)

    def test_rates_on_a_device_are_not_followed(self):
        """One warning if a scheduler changes lr there: the host does not wait for it. meta stands
        for a GPU."""
        for rates in ({"lr": torch.tensor(0.1, device="meta"), "adamw.lr": 0.5},
                      {"lr": 0.1, "adamw.lr": torch.tensor(0.5, device="meta")}):
            opt = types.SimpleNamespace(
                _rule=types.SimpleNamespace(rates=lambda: [("adamw.lr", False)]),
                param_groups=[dict(rates)])
            for on, scheduler, many in ((True, False, 0), (True, True, 1), (False, True, 0)):
                found = Rates(opt, on)
                if scheduler:
                    opt.param_groups[0]["initial_lr"] = 0.1
                with warnings.catch_warnings(record=True) as seen:
                    warnings.simplefilter("always")
                    found.follow(opt)
                    found.follow(opt)
                self.assertEqual(
                    [("meta" in str(w.message), "adamw.lr" in str(w.message)) for w in seen],
                    [(True, True)] * many)
                self.assertEqual({k: opt.param_groups[0][k] for k in rates}, rates)
                opt.param_groups[0].pop("initial_lr", None)

    def test_files_of_other_rules(self):
        """Told once; wrappers that are new to a run, and torch's own files, are no other rule."""
        m = model()
        saved = {}
        for kind in (torch.optim.AdamW, torch.optim.SGD):
            opt = kind(m.parameters(), lr=0.01)
            train(m, opt, 2)
            saved[kind] = opt.state_dict()
        for kind, make, many in ((torch.optim.AdamW, lambda n: optc.torch.Muon(n), 1),
                                 (torch.optim.AdamW, lambda n: optc.torch.Lion(n.parameters()),
                                  1), (torch.optim.AdamW,
                                       lambda n: optc.torch.AdamW(n.parameters(), amsgrad=True), 0),
                                 (torch.optim.AdamW,
                                  lambda n: optc.torch.AdamW(n.parameters(), with_="ema(0.9)"),
                                  0), (torch.optim.SGD,
                                       lambda n: optc.torch.SGD(n.parameters(), momentum=0.9), 0)):
            n = model()
            opt = make(n)
            opt.load_state_dict(saved[kind])
            with warnings.catch_warnings(record=True) as found:
                warnings.simplefilter("always")
                train(n, opt, 2)
            said = [str(w.message) for w in found if "another rule" in str(w.message)]
            self.assertEqual(len(said), many, said)
            for text in said:
                self.assertRegex(text, r"exp_avg, exp_avg_sq\) are not those of \w+ .*at step 2")

    def test_hyperparameters_by_hand_are_nobodys_business(self):
        opt = optc.torch.Muon(model())
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for t in range(3):
                opt.param_groups[0]["lr"] = 0.02 / (t + 1)
                grads(opt.param_groups[0]["params"])
                opt.step()


class KFAC(Case):
    def test_before_anything(self):
        m = model()
        stats = optc.torch.kfac_inputs(m, loss="mean")
        ((m(X) - Y) ** 2).mean().backward()
        was = m[0].weight.grad.clone()
        with self.assertRaisesRegex(RuntimeError, r"call update\(\)"):
            stats.precondition(1e-2)
        self.assertTrue(torch.equal(m[0].weight.grad, was))
        stats.update()
        stats.precondition(1e-2)
        self.assertFalse(torch.equal(m[0].weight.grad, was))
        stats.remove()

    def test_by_layer(self):
        for m, layer, name in ((lambda m:
                                (m, m[2], "2"))(model()), (lambda m:
                                                           (m, m, "(the model)"))(model()[0])):
            with optc.torch.kfac_inputs(m, loss="sum") as stats:
                m(X).square().sum().backward()
                for x, y in zip(stats.inputs(layer), stats.inputs(name)):
                    self.assertTrue(torch.equal(x, y))
                stats.update()
                for x, y in zip(stats.factors(layer) + stats.damped(layer, 1.0),
                                stats.factors(name) + stats.damped(name, 1.0)):
                    self.assertTrue(torch.equal(x, y))
                with self.assertRaisesRegex(KeyError, "Tanh is no layer with factors"):
                    stats.factors(torch.nn.Tanh())


class Arguments(Case):
    def test_why_there_is_none(self):
        """What is told of a matrix without a result is of its function: nobody but a power has a
        ridge."""
        bad = torch.zeros(2, 3, 3)
        bad[1, 2, 2] = float("nan")
        eye, never = torch.eye(3).expand(2, 3, 3), "(?!.*ridge)"
        for call, said in ((lambda: optc.torch.matrix_power(bad, -1, check=True),
                            "ridge"), (lambda: optc.torch.cholesky(bad, check=True),
                                       never + ".*not positive"),
                           (lambda: optc.torch.solve_positive(bad, eye, check=True),
                            never + ".*in B.*not positive"),
                           (lambda: optc.torch.solve_triangular(bad, eye, check=True),
                            never + ".*0 on its diagonal"),
                           (lambda: judged("qr", bad), never + ".*1 of 2.*NaN or an infinity"),
                           (lambda: judged("polar", bad), never + ".*1 of 2.*NaN or an infinity")):
            with self.assertRaisesRegex(torch.linalg.LinAlgError, said):
                call()

    def test_numbers_of_functions(self):
        A = torch.eye(3)
        for coefficients in ([(1.0, 2.0)], None, 3, [1.0]):
            with self.assertRaisesRegex(TypeError,
                                        "coefficients must be a name or a list of triples"):
                optc.torch.polar(A, coefficients=coefficients)
        with self.assertRaisesRegex(ValueError, "steps=1.5; it must be a whole number"):
            optc.torch.polar(A, steps=1.5)
        with self.assertRaisesRegex(ValueError, "exponent=nan; it must be a finite number"):
            optc.torch.matrix_power(A, float("nan"))

    def test_rules(self):
        """By their paths, and what is none."""
        p = [torch.ones(3, requires_grad=True)]
        text = ('return optimizer { name = "mine", hyper = { lr = 1 }, '
                'step = function() p = p - lr * g end }')
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "mine.lua"
            path.write_text(text)
            self.assertEqual(optc.torch.Optimizer(p, path).param_groups[0]["lr"], 1.0)
        self.assertEqual(optc.torch.Optimizer(p, spec=text, with_=None).entries(), ["step"])
        for given, said in (({"rule": 3}, "name or path is a str, not int"),
                            ({"spec": text.encode()}, "text of a spec, is a str, not bytes"),
                            ({"rule": "muon", "products": 16}, "products= is a str, not int"),
                            ({"spec": text, "with_": 3}, r"with_=\["),
                            ({"spec": text, "with_": ["clip(1)", None]}, r"with_=\[")):
            with self.assertRaisesRegex(TypeError, said):
                optc.torch.Optimizer(p, **given)
        with self.assertRaisesRegex(ValueError, "'int8' is not a storage type: use one of f32"):
            optc.torch.AdamW(p, types={"state": "int8"})
        for types in ({"param": "bf16"}, "grad=bf16"):
            with self.assertRaisesRegex(ValueError,
                                        "parameters and gradients have their own types"):
                optc.torch.AdamW(p, types=types)
        with self.assertRaisesRegex(ValueError,
                                    "the rule 'adamw' has no state 'mm'; did you mean 'm'"):
            o = optc.torch.AdamW(p, types="mm=q8")
            p[0].grad = torch.ones_like(p[0])
            o.step()


if __name__ == "__main__":
    unittest.main()
