"""Keys of constructors and groups: torch's for rules that torch has, authors' for the others, and
schedulers."""
import copy
import inspect
import io
import unittest
import warnings
from unittest import mock

import torch
from torch.optim import lr_scheduler as lrs

import optc.torch
from case import Case, Evaluated
from optc.torch import _rules

# Torch's classes that the library has no rule for; a new class of torch's shows up here.
WITHOUT = {"LBFGS", "SparseAdam", "Optimizer"}
# A value of every key of torch's that differs from its default and changes five steps; None:
# accepted, of no effect.
OTHER = {
    "lr": 0.03, "betas": (0.5, 0.7), "eps": 0.3, "weight_decay": 0.4, "amsgrad": True,
    "maximize": True, "momentum": 0.6, "dampening": 0.3, "rho": 0.5, "lr_decay": 0.4,
    "initial_accumulator_value": 0.5, "momentum_decay": 0.3, "alpha": 0.6, "centered": True,
    "decoupled_weight_decay": True, "beta2_decay": -0.3, "d": 1.7, "nesterov": True,
    "ns_coefficients": (3.0, -3.2, 1.2), "ns_steps": 3, "adjust_lr_fn": "match_rms_adamw",
    "lambd": 0.3, "t0": 1.0, "etas": (0.4, 1.5), "step_sizes":
        (1e-3, 0.011), "foreach": None, "capturable": None, "fused": None, "differentiable": None,
}
WITH = {
    "amsgrad": {"betas": (0.5, 0.2)}, "dampening": {"momentum": 0.5}, "nesterov": {"momentum": 0.5},
    "decoupled_weight_decay": {"weight_decay": 0.4}, "d": {"lr": 0.5}
}
SHAPES = ((4, 3), (5,))


def lists(seed=5, shapes=SHAPES):
    # torch.manual_seed takes a traceback each time
    g = torch.Generator().manual_seed(seed)
    return [torch.randn(s, generator=g).requires_grad_() for s in shapes]


def grads(params, seed=0, scale=1.0):
    for p, g in zip(params, lists(seed, [p.shape for p in params])):
        p.grad = scale * g.detach()


def steps(opt, p, n=5, first=0):
    for t in range(n):
        # second moments that fall: amsgrad and eps act
        grads(p, first + t, 0.1 if t % 2 else 1.0)
        opt.step()
    return [q.detach().clone() for q in p]


def in_f32():
    """torch's Muon iterates in bf16: here in the type of its gradients."""
    return mock.patch.object(torch.Tensor, "bfloat16", lambda x: x.clone())


def pairs():
    for spec, name in _rules.CLASSES.items():
        extra = {"products": "f32"} if spec == "muon" else {}
        shapes = ((4, 3), (3, 7)) if spec == "muon" else SHAPES
        yield spec, getattr(torch.optim, name), getattr(optc.torch, name), extra, shapes


class Contract(Evaluated):
    def near(self, a, b, what, bound=2e-5):
        for x, y in zip(a, b):
            self.assertLess((x - y).abs().max().item(), bound, what)

    def test_classes(self):
        """Every optimizer of torch's is in the table or named as missing."""
        there = {n for n, c in vars(torch.optim).items() if inspect.isclass(c)}
        self.assertEqual(there - set(_rules.CLASSES.values()), WITHOUT)
        self.assertEqual(
            {
                n: p.default
                for n, p in inspect.signature(torch.optim.Muon).parameters.items() if n != "params"
            }, _rules.MUON)

    def test_every_key(self):
        """Each key of torch's constructors, in the constructor, in a group, and set in a group
        later: torch's steps."""
        for spec, theirs, ours, extra, shapes in pairs():
            known = [n for n in inspect.signature(theirs).parameters if n != "params"]
            mine = list(inspect.signature(ours).parameters)[1:]
            self.assertEqual(mine[:len(known)], known, spec)
            plain = ours(lists(shapes=shapes), **extra)
            made = theirs(lists(shapes=shapes))
            self.assertEqual({k: plain.param_groups[0].get(k) for k in made.defaults},
                             made.defaults)
            with in_f32():
                many = 7 if spec == "radam" else 3     # it is SGD for its first steps
                usual = steps(plain, plain.param_groups[0]["params"], many)
                for key in known:
                    if OTHER[key] is None:
                        ours([{"params": lists(shapes=shapes), key: False}], **{key: False},
                             **extra)
                        continue
                    given = {key: OTHER[key]}
                    if key == "eps" and spec == "adafactor":
                        given = {"eps": (0.4, 0.9)}
                    if key == "eps" and spec == "muon":
                        given = {"eps": 50.0}
                    given = {
                        **({} if key == "d" and spec != "adafactor" else WITH.get(key, {})), **given
                    }
                    if key == "alpha" and spec == "asgd":
                        given["lambd"] = 0.3
                    if key == "t0":                    # acts on the average alone: test_average
                        continue
                    if key == "eps" and spec == "radam":
                        given["betas"] = (0.9, 0.9)
                    want = steps(theirs(p := lists(shapes=shapes), **given), p, many)
                    self.near(want, steps(ours(p := lists(shapes=shapes), **given, **extra), p,
                                          many), (spec, key))
                    self.near(
                        want,
                        steps(ours([{"params": (p := lists(shapes=shapes)), **given}], **extra), p,
                              many), (spec, key, "group"))
                    opt = ours(p := lists(shapes=shapes), **extra)
                    opt.param_groups[0].update(given)
                    # torch fills its state in the constructor
                    if key != "initial_accumulator_value":
                        self.near(want, steps(opt, p, many), (spec, key, "edited"))
                    self.assertFalse(all(torch.equal(a, b) for a, b in zip(want, usual)),
                                     (spec, key))

    def test_states_and_files(self):
        """State names and shapes are torch's, and a file of either goes on in the other."""
        for spec, theirs, ours, extra, shapes in pairs():
            given = {"momentum": 0.9} if spec in ("sgd", "rmsprop") else {}
            with in_f32():
                a = lists(shapes=shapes)
                oa = theirs(a, lr=0.05, **given)
                steps(oa, a, 3)
                b = [q.detach().clone().requires_grad_() for q in a]
                ob = ours(b, lr=0.7, **extra)
                ob.load_state_dict(through_file(oa.state_dict()))
                self.near(steps(oa, a, 3, 3), steps(ob, b, 3, 3), spec)
                for q, r in zip(a, b):
                    want = {k: v.shape for k, v in oa.state[q].items() if v is not None}
                    have = {k: v.shape for k, v in ob.state[r].items() if k in want or k != "step"}
                    self.assertEqual(have, want, spec)
                c = [q.detach().clone().requires_grad_() for q in b]
                oc = theirs(c, lr=0.7)
                oc.load_state_dict(through_file(ob.state_dict()))
                self.near(steps(oa, a, 3, 6), steps(oc, c, 3, 6), spec)

    def test_keys_after_loading(self):
        """Files of a torch whose groups had fewer keys, and of other classes with
        decoupled_weight_decay: groups have torch's values afterwards. AdamW stays decoupled, in
        copies too."""
        files = {spec: {**theirs(lists(shapes=shapes)).state_dict(), "state": {}}
                 for spec, theirs, _, _, shapes in pairs()}
        for spec, theirs, ours, extra, shapes in pairs():
            keys = set(theirs(lists(shapes=shapes)).defaults)
            given = {
                k: OTHER[k]
                for k in ("amsgrad", "centered", "maximize", "nesterov", "decoupled_weight_decay")
                if k in inspect.signature(theirs).parameters
            }
            given.update({"momentum": 0.5} if "nesterov" in given else {})
            a, b = theirs(lists(shapes=shapes), **given), ours(lists(shapes=shapes), **given,
                                                               **extra)
            shorter = {
                k: {
                    "state": {}, "param_groups": [{n: v for n, v in g.items() if n != k}
                                                  for g in files[spec]["param_groups"]]
                } for k in (*given, "fused", "maximize") if k in keys
            }
            alike = {
                k: f for k, f in files.items()
                if "decoupled_weight_decay" in keys & set(f["param_groups"][0])
            }
            for name, file in {**alike, **shorter}.items():
                for opt in (a, b):
                    opt.param_groups[0].update(given)
                    opt.load_state_dict(file)
                have = {k: b.param_groups[0].get(k) for k in a.param_groups[0] if k in keys}
                self.assertEqual(have, {k: a.param_groups[0][k] for k in have}, (spec, name))
        a, b = torch.optim.AdamW(p := lists(), 0.1), optc.torch.AdamW(q := lists(), 0.1)
        file = torch.optim.Adam(r := lists(), 0.05, weight_decay=0.3)
        steps(file, r, 2)
        for opt in (a, b):
            opt.load_state_dict(through_file(file.state_dict()))
        self.near(steps(a, p), steps(b, q), "AdamW with a file of Adam")
        for opt in (a, b):
            opt.param_groups[0]["decoupled_weight_decay"] = False
        a, b = copy.deepcopy((a, p)), copy.deepcopy((b, q))
        self.near(steps(*a), steps(*b), "a copy")

    def test_average(self):
        """ASGD's average, the same as torch's from before t0 to after it."""
        for t0 in (1e6, 3.0):
            a, b = torch.optim.ASGD(p := lists(), 0.1,
                                    t0=t0), optc.torch.ASGD(q := lists(), 0.1, t0=t0)
            steps(a, p, 7)
            steps(b, q, 7)
            for key in ("ax", "mu", "eta"):
                self.near([a.state[x][key] for x in p], [b.state[x][key] for x in q], (t0, key))
            self.assertEqual(a.state[p[0]]["mu"].item(), 1 if t0 > 3 else 0.25)

    def test_muon_beside(self):
        """What torch's Muon does not have: its coefficients and steps by optc's names, vectors,
        wrong combinations."""
        with self.assertRaisesRegex(ValueError, "set the same thing"):
            optc.torch.Muon(lists(), scale="rms", adjust_lr_fn="original")
        with self.assertRaisesRegex(ValueError, r"scale.*'jordan' or 'rms' or 'spectral'"):
            optc.torch.Muon(lists(), scale="rsm")
        with self.assertRaisesRegex(ValueError, "not supported"):
            optc.torch.Muon(lists(), adjust_lr_fn="rms")
        a = steps(optc.torch.Muon(p := lists(), scale="rms", steps=3, adamw_betas=(0.5, 0.6)), p)
        b = steps(optc.torch.Muon(q := lists(), adjust_lr_fn="match_rms_adamw", ns_steps=3,
                                  **{"adamw_beta1": 0.5, "adamw_beta2": 0.6}), q)
        self.assertTrue(all(map(torch.equal, a, b)))
        self.assertIsNone(
            optc.torch.Muon(lists(), coefficients="turbo").param_groups[0]["ns_steps"])
        tiny = [torch.zeros(2, 2, requires_grad=True)]
        # eps: norms below 1e-7 are not blown up
        tiny[0].grad = torch.eye(2) * 1e-12
        optc.torch.Muon(tiny, lr=1.0, weight_decay=0.0).step()
        self.assertLess(tiny[0].abs().max().item(), 0.01)

    def test_adafactor_beside(self):
        """The spec's own names and options reach the same keys; eps of None is that of each
        type."""
        opt = optc.torch.Adafactor(lists(), decay=0.7, eps2=0.1, clip_threshold=2.0, momentum=True)
        g = opt.param_groups[0]
        self.assertEqual((g["beta2_decay"], g["eps"], g["d"], g["momentum"]),
                         (-0.7, (None, 0.1), 2.0, True))
        with self.assertRaisesRegex(ValueError, "beta2_decay should be <= 0"):
            optc.torch.Adafactor(lists(), beta2_decay=0.8)
        for dtype in (torch.bfloat16, torch.float64):
            p = [torch.ones(3, 2, dtype=dtype, requires_grad=True)]
            opt = optc.torch.Adafactor(p)
            p[0].grad = torch.full((3, 2), 1e-9, dtype=dtype)
            opt.step()
            b = opt._bounds[0]
            self.assertEqual(b.binding.get_hyper(0, "eps1"), torch.finfo(dtype).eps)


def through_file(state):
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file)


class Groups(Evaluated):
    """Keys in groups act as they do in the constructor, or are refused by name."""
    def same(self, rule, given, with_=(), shapes=SHAPES):
        """In the constructor, in a group, in an added group, edited after construction and after a
        step: one effect."""
        p = lists(shapes=shapes)
        want = steps(optc.torch.Optimizer(p, rule, with_=with_, **given), p)
        plain = steps(optc.torch.Optimizer(p := lists(shapes=shapes), rule, with_=with_), p)
        self.assertFalse(all(map(torch.equal, want, plain)), (rule, given))
        p = lists(shapes=shapes)
        opt = optc.torch.Optimizer([{"params": p, **given}], rule, with_=with_)
        self.assertTrue(all(map(torch.equal, want, steps(opt, p))), (rule, given))
        p = lists(shapes=shapes)
        opt = optc.torch.Optimizer([torch.zeros(1, requires_grad=True)], rule, with_=with_)
        opt.add_param_group({"params": p, **given})
        self.assertTrue(all(map(torch.equal, want, steps(opt, p))), (rule, given))
        p = lists(shapes=shapes)
        opt = optc.torch.Optimizer(p, rule, with_=with_)
        for key, value in given.items():
            opt.param_groups[0][key] = value
        self.assertTrue(all(map(torch.equal, want, steps(opt, p))), (rule, given))
        p = lists(shapes=shapes)
        opt = optc.torch.Optimizer(p, rule, with_=with_, lr=0.0)
        steps(opt, p, 1)
        opt.state.clear()
        opt._unbound()
        for key, value in {"lr": optc.torch.Optimizer(lists(), rule).defaults["lr"],
                           **given}.items():
            opt.param_groups[0][key] = value
        with torch.no_grad():
            for q, r in zip(p, lists(shapes=shapes)):
                q.copy_(r)
        self.assertTrue(all(map(torch.equal, want, steps(opt, p))), (rule, given))

    def test_act(self):
        self.same("adamw", {"beta1": 0.3})
        self.same("adamw", {"beta2": 0.3, "beta1": 0.2})
        self.same("lion", {"beta1": 0.3})
        self.same("lion", {"betas": (0.3, 0.4)})
        self.same("adamw", {"clip_max_norm": 0.01}, ["clip(1)"])
        self.same("adamw", {"clip.max_norm": 0.01}, ["clip(1)"])
        self.same("sgdw", {"nesterov": True})
        self.same("muon", {"nesterov": False, "scale": "spectral"})
        self.same("muon", {"adamw_lr": 0.5, "adamw_betas": (0.1, 0.2), "adamw_amsgrad": True})
        self.same("soap", {"beta3": 0.5, "interval": 2})
        self.same("came", {"eps": (1e-2, 1e-3)})

    def test_edit_while_running(self):
        """beta1 set between steps: as betas set there."""
        p, q = lists(), lists()
        a, b = optc.torch.Lion(p), optc.torch.Lion(q)
        steps(a, p, 2), steps(b, q, 2)
        a.param_groups[0]["beta1"] = 0.2
        b.param_groups[0]["betas"] = (0.2, 0.99)
        x = steps(a, p, 2, 2)
        self.assertTrue(all(map(torch.equal, x, steps(b, q, 2, 2))))
        self.assertEqual(a.param_groups[0]["betas"], (0.2, 0.99))
        b.param_groups[0]["nesterov"] = True           # Lion has no such option: a foreign key
        steps(b, q, 1)

    def test_refused(self):
        p = lists()
        for key, value in (("types", "state=bf16"), ("products", "f32"), ("with_", ["clip(1)"]),
                           ("split", {"w": 2}), ("static_grads", True),
                           ("options", {"amsgrad": True}),
                           ("workspace", 1)):
            with self.assertRaisesRegex(TypeError, r'param_groups\[0\]\["%s"\].*constructor' % key):
                optc.torch.AdamW([{"params": p, key: value}])
        with self.assertRaisesRegex(TypeError, r"clip\.max_nrom: did you mean clip\.max_norm"):
            optc.torch.AdamW([{"params": p, "clip.max_nrom": 1.0}], with_=["clip(1)"])
        with self.assertRaisesRegex(TypeError, "beta1 and betas are the same"):
            optc.torch.AdamW(p, beta1=0.5, betas=(0.9, 0.99))
        opt = optc.torch.Muon([("a", p[0]), ("b", p[1])])
        more = {"params": [("c", lists()[0])], "scale": "huge"}
        with self.assertRaisesRegex(ValueError, r'param_groups\[1\]\["scale"\] is .*huge'):
            opt.add_param_group(dict(more))
        self.assertEqual(len(opt.param_groups), 1)
        opt.param_groups[0]["scale"] = "huge"
        with self.assertRaisesRegex(ValueError, r'param_groups\[0\]\["scale"\] is .*huge'):
            grads(p), opt.step()
        with self.assertRaisesRegex(ValueError, r"betas is 2 numbers \(beta1, beta2\), not 0.9"):
            optc.torch.Lion(p, 1e-4, 0.9)
        with self.assertRaisesRegex(TypeError, "decoupled_weight_decay"):
            optc.torch.AdamW(p, decoupled_weight_decay=False)

    def test_foreign(self):
        p = lists()
        given = {
            "lr_scale": 0.5, "initial_lr": 0.1, "name": "decay", "weight_decay_mult": 1.0,
            "swa_lr": 0.1
        }
        opt = optc.torch.Lion([{"params": [("w", p[0]), ("b", p[1])], **given}])
        steps(opt, p)
        self.assertLessEqual(given.items(), opt.param_groups[0].items())
        self.assertEqual(opt.param_groups[0]["param_names"], ["w", "b"])

    def test_old_file(self):
        """A file of the time when groups had beta1 and beta2."""
        p = lists()
        opt = optc.torch.Lion(p)
        old = copy.deepcopy(opt.state_dict())
        g = old["param_groups"][0]
        del g["betas"]
        g.update(beta1=0.25, beta2=0.5)
        opt.load_state_dict(old)
        self.assertEqual(opt.param_groups[0]["betas"], (0.25, 0.5))
        self.assertNotIn("beta1", opt.param_groups[0])

    def test_base_lr(self):
        """A hyperparameter called base_lr that nobody gave is the rate that a group began with."""
        text = """return optimizer { name = "scaled", hyper = { lr = { 1, min = 0 },
          base_lr = { 1, above = 0 } },
          step = function() p = p - lr / base_lr * g end }"""
        p, q, r = (torch.zeros(2, requires_grad=True) for _ in range(3))
        opt = optc.torch.Optimizer(
            [{"params": [p]}, {"params": [q], "lr": 0.5}, {"params": [r], "initial_lr": 8.0}],
            "scaled", spec=text, lr=4.0)
        self.assertEqual([g["base_lr"] for g in opt.param_groups], [4.0, 0.5, 8.0])
        s = lrs.LambdaLR(opt, lambda t: 1 / (1 + t), last_epoch=-1)
        for x in (p, q, r):
            x.grad = torch.ones(2)
        s.step(), opt.step()
        self.assertEqual([x[0].item() for x in (p, q, r)], [-0.5, -0.5, -0.5])
        given = optc.torch.Optimizer([torch.zeros(2, requires_grad=True)], "scaled", spec=text,
                                     lr=4.0, base_lr=2.0)
        self.assertEqual(given.param_groups[0]["base_lr"], 2.0)
        saved = opt.state_dict()
        del saved["param_groups"][1]["base_lr"]
        opt.load_state_dict(saved)
        self.assertEqual(opt.param_groups[1]["base_lr"], 0.5)          # its initial_lr


class Authors(Evaluated):
    BETAS = ("adabelief", "adabound", "adamp", "adan", "ademamix", "adopt", "came", "klshampoo",
             "lamb", "lion", "novograd", "shampoo", "soap", "splus", "yogi")

    def test_betas(self):
        """A factory's keywords (timm: lr, weight_decay, betas, eps), and schedulers that cycle the
        first of betas."""
        for spec in self.BETAS:
            betas = (0.85, 0.9, 0.95) if spec in ("adan", "ademamix", "came") else (0.85, 0.9)
            given = {"lr": 1e-3, "weight_decay": 0.05, "betas": betas}
            if spec not in ("lion", "splus"):
                given["eps"] = (1e-30, 1e-16) if spec == "came" else 1e-7
            p = lists()
            opt = optc.torch.Optimizer(p, spec, **given)
            for make in (
                    lambda o: lrs.OneCycleLR(o, 1e-2, total_steps=5),
                    lambda o: lrs.CyclicLR(o, 1e-4, 1e-2, 2, base_momentum=0.7, max_momentum=0.8)):
                s = make(opt)
                for _ in range(4):
                    steps(opt, p, 1)
                    s.step()
            g = opt.param_groups[0]
            self.assertEqual(opt._bounds[0].binding.get_hyper(0, "beta2"), betas[1])
            grads(p), opt.step()
            self.assertEqual(opt._bounds[0].binding.get_hyper(0, "beta1"), g["betas"][0])
            self.assertNotEqual(g["betas"][0], 0.85)
            with self.assertRaisesRegex(ValueError, "betas is %d numbers" % len(betas)):
                optc.torch.Optimizer(lists(), spec, betas=betas + (0.9,))

    def test_hints(self):
        for spec, key, hint in (("soap", "precondition_frequency",
                                 "called interval"), ("lars", "trust_coeff", "trust"),
                                ("adopt", "decouple",
                                 "called decoupled"), ("soap", "max_precond_dim", "called limit"),
                                ("adabelief", "weight_decouple",
                                 "fixed by its spec"), ("dion", "rank",
                                                        "directions"), ("lion", "lerning_rate", ""),
                                ("lion", "weight_deacy",
                                 "did you mean weight_decay"), ("adamw", "max_grad_norm", "clip"),
                                ("soap", "shampoo_beta",
                                 "called beta3"), ("adamw", "weightdecay",
                                                   "did you mean weight_decay"), ("sgd", "betas",
                                                                                  "momentum"),
                                ("signum", "beta1", "called momentum"), ("adan", "no_prox",
                                                                         "called proximal")):
            with self.assertRaisesRegex(TypeError, "%s has no .*%s.*%s" % (spec, key, hint)):
                optc.torch.Optimizer(lists(), spec, **{key: 1})


class Schedules(Case):
    def test_to_the_end(self):
        """Every scheduler of torch's to its end and beyond, from rates whose rounding goes below
        0."""
        each = {
            "LambdaLR": lambda o: lrs.LambdaLR(o, lambda t: max(0.0, 1 - t / 7)),
            "MultiplicativeLR": lambda o: lrs.MultiplicativeLR(o, lambda t: 0.0 if t > 8 else 0.9),
            "StepLR": lambda o: lrs.StepLR(o, 3, 0.0),
            "MultiStepLR": lambda o: lrs.MultiStepLR(o, [2, 5], 0.1),
            "ConstantLR": lambda o: lrs.ConstantLR(o, 0.1, 3),
            "ExponentialLR": lambda o: lrs.ExponentialLR(o, 0.5),
            "LinearLR": lambda o: lrs.LinearLR(o, 1 / 3, 0.0, 10),
            "CosineAnnealingLR": lambda o: lrs.CosineAnnealingLR(o, 10),
            "CosineAnnealingWarmRestarts": lambda o: lrs.CosineAnnealingWarmRestarts(o, 3, 2),
            "PolynomialLR": lambda o: lrs.PolynomialLR(o, 10, 0.9),
            "OneCycleLR": lambda o: lrs.OneCycleLR(o, 0.1, total_steps=13, anneal_strategy="linear",
                                                   final_div_factor=1e300),
            "CyclicLR": lambda o: lrs.CyclicLR(o, 0.0, 0.1, 3, base_momentum=0.0, max_momentum=0.9),
            "ChainedScheduler": lambda o: lrs.ChainedScheduler(
                [lrs.LinearLR(o, 1 / 3, 0.0, 9),
                 lrs.ExponentialLR(o, 0.9)]), "SequentialLR": lambda o: lrs.SequentialLR(
                     o, [lrs.LinearLR(o, 0.1, 1.0, 4),
                         lrs.LinearLR(o, 0.7, 0.0, 5)], [4]),
            "ReduceLROnPlateau": lambda o: lrs.ReduceLROnPlateau(o, patience=0, factor=0.0),
        }
        there = {
            n for n, c in vars(lrs).items()
            if inspect.isclass(c) and issubclass(c, lrs.LRScheduler) and not n.startswith("_")
        }
        self.assertEqual(there - {"LRScheduler", "SWALR"}, set(each))
        below = 0
        for name, make in each.items():
            for rate in (0.1, 1e-3, 3e-4):
                p = lists()
                opt = optc.torch.AdamW(p, lr=rate)
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    s = make(opt)
                    for _ in range(13):
                        grads(p), opt.step()
                        s.step(1.0) if name == "ReduceLROnPlateau" else s.step()
                        below += opt.param_groups[0]["lr"] < 0
                self.assertGreaterEqual(opt._bounds[0].binding.get_hyper(0, "lr"), 0, name)
        self.assertLess(0, below)                      # a rounded rate was there to be clamped

    def test_messages(self):
        """Out of range by more than rounding: the group and the key, and nothing is sent of any
        group."""
        p, q = lists(shapes=((3,),)), lists(shapes=((2,),))
        with self.assertRaisesRegex(ValueError, "^soap: lr is a number, not 'a'$"):
            optc.torch.Optimizer(p, "soap", lr="a")
        opt = optc.torch.AdamW([{"params": p}, {"params": q, "lr": 0.1}])
        steps(opt, p + q, 1)
        for key, value, text in (("lr", -1e-3, r'adamw: param_groups\[1\]\["lr"\] is -0.001, and '
                                  r'must be at least 0'),
                                 ("betas", (0.9, 1.5),
                                  r'\["betas"\] is 1.5, and must be at least 0 and below 1'),
                                 ("eps", float("nan"), r'\["eps"\] is nan')):
            old = opt.param_groups[1][key]
            opt.param_groups[0]["lr"], opt.param_groups[1][key] = 0.25, value
            before = [x.detach().clone() for x in p + q]
            with self.assertRaisesRegex(optc.RangeError, text) as e:
                grads(p + q), opt.step()
            self.assertNotIn("optc_set_hyper", str(e.exception))
            self.assertTrue(all(map(torch.equal, before, p + q)))
            self.assertEqual(opt._bounds[0].binding.get_hyper(0, "lr"), 0.001)
            opt.param_groups[0]["lr"], opt.param_groups[1][key] = 0.001, old
        steps(opt, p + q, 1)
        fresh = optc.torch.AdamW(lists())
        fresh.param_groups[0]["lr"] = -1.0
        with self.assertRaisesRegex(optc.RangeError, r'param_groups\[0\]\["lr"\]'):
            steps(fresh, fresh.param_groups[0]["params"], 1)


if __name__ == "__main__":
    unittest.main()
