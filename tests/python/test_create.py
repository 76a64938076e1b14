"""Optimizers by name: optc.torch.create and list_optimizers."""
import os
import tempfile
import unittest
import unittest.mock

import torch

import optc.torch


def model():
    torch.default_generator.manual_seed(3)
    return torch.nn.Sequential(torch.nn.Linear(6, 5), torch.nn.LayerNorm(5), torch.nn.Linear(5, 4))


def trained(opt, net):
    for t in range(3):
        torch.default_generator.manual_seed(t)
        opt.zero_grad()
        net(torch.randn(8, 6)).pow(2).mean().backward()
        opt.step()
    return [p.detach().clone() for p in net.parameters()]


class Create(unittest.TestCase):
    def test_names(self):
        names = optc.torch.list_optimizers()
        self.assertEqual(names, sorted(names))
        self.assertTrue({"adamw", "muon", "soap"} <= set(names))
        self.assertTrue(all("muon" in n for n in optc.torch.list_optimizers("*Muon*")))
        self.assertIn("normuon", optc.torch.list_optimizers(["*muon", "sgd"]))
        self.assertNotIn("muon", optc.torch.list_optimizers("*muon*", exclude_filters="muon"))
        self.assertEqual(optc.torch.list_optimizers("no such name"), [])
        (name, said), = optc.torch.list_optimizers("adamw", with_description=True)
        self.assertTrue(name == "adamw" and "weight decay" in said)

    def test_decay_leaves_out_vectors(self):
        net, same = model(), model()
        opt = optc.torch.create("AdamW", net, lr=0.1, weight_decay=0.5)
        self.assertEqual([g["weight_decay"] for g in opt.param_groups], [0.5, 0])
        self.assertEqual([len(g["params"]) for g in opt.param_groups], [2, 4])
        flat = [p for p in same.parameters() if p.dim() < 2]
        rest = [p for p in same.parameters() if p.dim() > 1]
        one = torch.optim.AdamW([{"params": rest}, {"params": flat, "weight_decay": 0}], lr=0.1,
                                weight_decay=0.5)
        for a, b in zip(trained(opt, net), trained(one, same)):
            torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-7)

    def test_rest_rule(self):
        opt = optc.torch.create("muon", model(), lr=0.02)
        self.assertEqual(opt.param_groups[1]["weight_decay"], 0)
        self.assertEqual(opt.param_groups[1]["adamw.weight_decay"], 0)
        self.assertNotEqual(opt.param_groups[0]["adamw.weight_decay"], 0)

    def test_given_as_they_are(self):
        net = model()
        self.assertEqual(
            len(optc.torch.create("adamw", net, filter_bias_and_bn=False).param_groups), 1)
        self.assertEqual(len(optc.torch.create("sgd", net, lr=0.1, weight_decay=0).param_groups), 1)
        self.assertEqual(len(optc.torch.create("adamw", net.parameters()).param_groups), 1)
        kept = model()
        kept.no_weight_decay = lambda: {"0.weight"}
        self.assertEqual([len(g["params"]) for g in optc.torch.create("lion", kept).param_groups],
                         [1, 5])
        self.assertIn("clip.max_norm", optc.torch.create("adamw+clip(1)", net).param_groups[0])

    def test_modes(self):
        """eval and train, as the authors of schedule-free rules call them; twice changes
        nothing."""
        for name in ("schedulefree_adamw", "schedulefree_sgd", "gpa_adamw", "splus", "amuse",
                     "adamw+ema(0.5)", "adamw+ema_nesterov"):
            net = model()
            opt = optc.torch.create(name, net, lr=0.1)
            opt.train()
            trained(opt, net)
            weights = [p.detach().clone() for p in net.parameters()]
            opt.eval()
            averages = [p.detach().clone() for p in net.parameters()]
            opt.eval()
            self.assertTrue(all(map(torch.equal, averages, net.parameters())), name)
            self.assertFalse(all(map(torch.equal, averages, weights)), name)
            opt.train()
            opt.train()
            for a, b in zip(weights, net.parameters()):
                torch.testing.assert_close(a, b.detach(), rtol=1e-5, atol=1e-6)
        with self.assertRaises(AttributeError):
            optc.torch.create("adamw", model()).eval()

    def test_unknown(self):
        for name, said in (("mouon", "there is no optimizer 'mouon' in the library; did you mean "
                            "'muon'"), ("AdamW8bit", "'adamw' with the storage types state=q8"),
                           ("C-AdamW", "'adamw.cautious'"),
                           ("PagedAdamW8bit", r"'adamw' with .*Python: types=.\"state\": \"q8\"."),
                           ("adamw_torch_fused", "write 'adamw'"), ("GaLoreAdamW8bit",
                                                                    "'adamw.galore' with"),
                           ("cautious_lion", "'lion.cautious'"), ("Kate", "leaves it out"),
                           ("sam", "'adamw.sam'"), ("NorDion2", "'dion3'"), ("LBFGS",
                                                                             "leaves it out")):
            with self.assertRaisesRegex(ValueError, said):
                optc.torch.create(name, model())

    def test_spellings(self):
        for name, spec in (("ScheduleFreeAdamW", "schedulefree_adamw"),
                           ("AdamWScheduleFree", "schedulefree_adamw"), ("kl-soap", "klsoap"),
                           ("DAdaptAdam", "dadapt_adam"), ("Adam_Mini", "adam_mini")):
            self.assertEqual(optc.torch._create._rule_named(name + "+clip(1)"), spec + "+clip(1)")

    def test_own_rules(self):
        """A file of $OPTC_PATH is found by its name, also if the library has that name without
        _."""
        text = ('return optimizer { name = "%s", hyper = { lr = { 0.1, min = 0 } }, '
                'step = function() p = %s end }')
        patched = unittest.mock.patch.dict
        with tempfile.TemporaryDirectory() as folder, patched(os.environ, OPTC_PATH=folder):
            for name, value in (("adam_w", "p - lr * g"), ("own_broken", "q - lr * g")):
                with open(os.path.join(folder, name + ".lua"), "w") as f:
                    f.write(text % (name, value))
            p = torch.nn.Parameter(torch.ones(2))
            self.assertNotIn("betas", optc.torch.create("adam_w", [p]).param_groups[0])
            self.assertIn("betas", optc.torch.create("Adam-W", [p]).param_groups[0])
            with self.assertRaisesRegex(ValueError, "'q' is not declared") as found:
                optc.torch.create("own_broken", [p])
            with open(os.path.join(folder, "own_broken.lua"), "w") as f:
                f.write(text % ("own_broken", "p - 2 * lr * g"))
            optc.torch.create("own_broken", [p])       # read again
            self.assertNotIn("list_optimizers", str(found.exception))

    def test_keys_that_switch_options_on(self):
        """The authors have no option beside these keys: a value that is given takes effect."""
        for rule, key, value, option in (("amos", "momentum", 0.5, "momentum_buffer"),
                                         ("sm3", "momentum", 0.5, "momentum_buffer"),
                                         ("rmsprop_tf", "momentum", 0.5, "momentum_buffer"),
                                         ("fromage", "p_bound", 0.5,
                                          "bounded"), ("ademamix", "alpha_warmup", 2, "warmup")):
            def found(**given):
                keys = optc.torch._group_keys.GroupKeys(rule, None, (), None, None, None, None)
                group = keys.defaults(given)
                return keys.rule(group)[1][option], keys.values(group, torch.float32, 0)
            ours = found()[1]
            self.assertFalse(found()[0], rule)
            self.assertFalse(found(**{key: 0})[0], rule)
            on, values = found(**{key: value})
            self.assertTrue(on, rule)
            self.assertEqual(
                values, {**ours, key: value, **({"beta3_warmup": 0} if rule == "ademamix" else {})})
            self.assertFalse(found(**{key: value, option: False})[0], rule)
            self.assertEqual(found(**{option: True}), (True, ours))

    def test_values_without_effect(self):
        """A value that nothing reads with the options gives a warning, unless it is the default."""
        import warnings
        for rule, given, said in (("sgd", {
                "momentum": 0.5, "options": {"momentum_buffer": False}
        }, "momentum"), ("SGD", {"dampening": 0.5}, "dampening"), ("SGD", {
                "dampening": 0.5, "momentum": 0.9
        }, ""), ("SGD", {"momentum": 0,
                         "dampening": 0}, ""), ("RMSprop", {"momentum": 0.0}, ""), ("sm3", {
                             "momentum": 0.5
                         }, ""), ("sm3", {"momentum": 0}, ""), ("sm3", {
                             "momentum": 0.5, "momentum_buffer": False
                         }, "momentum"), ("adafactor", {"beta1": 0.5}, "beta1"), ("adafactor", {
                             "beta1": 0.5, "momentum": True
                         }, ""), ("adamw", {"betas": [0.5, 0.9], "lr": torch.tensor(0.1)}, "")):
            with self.subTest(rule, **given), warnings.catch_warnings(record=True) as found:
                warnings.simplefilter("always")
                optc.torch.create(rule, [torch.nn.Parameter(torch.ones(2))], **given)
                texts = [str(w.message) for w in found]
                self.assertEqual(len(texts), 1 if said else 0, texts)
                for text in texts:
                    self.assertRegex(text, "nothing reads the hyperparameter '%s' with .*; leave "
                                           "%s out" % (said, said))

    def test_values_that_one_group_reads(self):
        """A default has an effect if one group's options read it, and a group's own value if that
        group's do. The warning names the caller's line."""
        import warnings
        def groups(*each):
            return [{"params": [torch.nn.Parameter(torch.ones(2))], **g} for g in each]
        for first, given, wrong in ((({"momentum": 0.9},), {"dampening": 0.5}, 0), (({
                "momentum": 0.9
        }, {}), {"dampening": 0.5}, 0), (({}, {}), {"dampening": 0.5}, 1), (({
                "dampening": 0.5
        },), {}, 1), (({"dampening": 0.5, "momentum": 0.9}, {"dampening": 0.0}), {}, 0)):
            for make in (optc.torch.SGD, lambda p, **k: optc.torch.create("sgd", p, **k),
                         lambda p, **k: optc.torch.Optimizer(p, "sgd", **k)):
                with self.subTest(first, **given), warnings.catch_warnings(record=True) as found:
                    warnings.simplefilter("always")
                    make(groups(*first), **given)
                    self.assertEqual([w.filename for w in found], [__file__] * wrong)
        text = ("return optimizer { name = 'x', hyper = { lr = 1, unused = 2 }, "
                "step = function() p = p - lr * g end }")
        # a warning about the spec itself, once
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            optc.torch.Optimizer(groups({"unused": 5}, {}), spec=text, unused=3)
            self.assertEqual([str(w.message) for w in found],
                             ["optc: x: nothing reads the hyperparameter 'unused'"])
        o = optc.torch.SGD(groups({"momentum": 0.9}))
        with self.assertWarnsRegex(UserWarning,
                                   "nothing reads the hyperparameter 'dampening'") as said:
            o.add_param_group(groups({"momentum": 0, "dampening": 0.5})[0])
        self.assertEqual(said.filename, __file__)

    def test_none_and_opposites(self):
        """None is a value only of keys that switch an option on; a hint does not turn a meaning
        round."""
        for rule, given, kind, said in (("adamw+clip(1)", {
                "clip_max_norm": None
        }, TypeError, "max_norm.* is None, and must be a number"), ("muon", {
                "adamw_lr": None
        }, TypeError, "adamw.lr.* is None, and must be a number"), ("lion", {"betas":
            (None, 0.9)}, TypeError, "betas.* is None, and must be a number"), ("ademamix", {
                "warmup": "x"
            }, ValueError, "warmup is bool, not 'x'"), ("scion", {
                "unconstrained": True
            }, TypeError, "unconstrained=True is called constrained=False here"), ("adan", {
                "no_prox": True
            }, TypeError, "no_prox=True is called proximal=False here"), ("adapnm", {
                "ams_bound": True
            }, TypeError, "ams_bound is called amsgrad here"), ("adago", {
                "adamw_wd": 0.1
            }, TypeError, "adamw_wd is called adamw.weight_decay here")):
            p = torch.nn.Parameter(torch.ones(2, 2))
            p.grad = torch.ones(2, 2)
            with self.subTest(rule), self.assertRaisesRegex(kind, said):
                optc.torch.create(rule, [p], **given).step()

    def test_timms_keywords(self):
        """caution= and corrected_weight_decay= are wrappers, decoupled_decay= the option; steps as
        timm computes them."""
        def made(rule="lion", **given):
            torch.default_generator.manual_seed(4)
            p = torch.nn.Parameter(torch.randn(5, 3))
            return p, optc.torch.create(rule, [p], lr=0.1, weight_decay=0.3, **given)
        for caution, corrected in ((True, False), (False, True), (True, True)):
            p, opt = made(caution=caution, corrected_weight_decay=corrected)
            q, m = p.detach().clone(), torch.zeros(5, 3)
            for t, lr in enumerate((0.1, 0.05, 0.02)):
                torch.default_generator.manual_seed(20 + t)
                p.grad, opt.param_groups[0]["lr"] = torch.randn(5, 3), lr
                opt.step()
                q *= 1 - (lr * lr / 0.1 if corrected else lr) * 0.3
                u = m.lerp(p.grad, 0.1).sign()
                mask = (u * p.grad > 0).float()
                q -= lr * u * (mask / mask.mean().clamp(min=1e-3) if caution else 1)
                m.lerp_(p.grad, 0.01)
                torch.testing.assert_close(p.detach(), q, rtol=1e-5, atol=1e-6)
        for given, want in (({"caution": False}, []), ({"caution": True,
                                                        "with_": "clip(1)"}, ["cautious", "clip"])):
            opt = made(**given)[1]
            self.assertEqual([
                k.split(".")[0]
                for k in opt.defaults if k in ("cautious.min_share", "clip.max_norm")
            ], want)
        self.assertNotIn("caution", opt.param_groups[0])
        opt = made("adamw", corrected_weight_decay=True)[1]
        self.assertEqual(opt.param_groups[0]["corrected_decay.max_lr"], 0.1)
        opt = optc.torch.Lion([torch.nn.Parameter(torch.ones(2))], corrected_weight_decay=True)
        self.assertEqual(opt.param_groups[0]["corrected_decay.max_lr"], 1e-4)
        self.assertTrue(made("adopt", decoupled_decay=True)[1].param_groups[0]["decoupled"])
        self.assertFalse(made("dadapt_adam", decoupled_decay=False)[1].param_groups[0]["decouple"])
        with self.assertRaisesRegex(TypeError, "caution is True or False"):
            made(caution=0.5)
        with self.assertRaisesRegex(TypeError, "caution= applies to all groups"):
            optc.torch.Lion([{"params": [torch.nn.Parameter(torch.ones(2))], "caution": True}])
        with self.assertRaisesRegex(TypeError, "applies weight decay is fixed by its spec"):
            made(decoupled_decay=True)

    def test_own_keys(self):
        """A spec's own hyperparameter of that name is no wrapper, also with the value 0."""
        text = 'return optimizer { name = "x", hyper = { lr = {1}, caution = {0.5} },' \
               ' step = function() p = p - lr * caution * g end }'
        for value in (0.0, 0.25, 1.0):
            for given, group in (({"caution": value}, {}), ({}, {"caution": value})):
                p = torch.nn.Parameter(torch.zeros(2))
                opt = optc.torch.Optimizer([{"params": [p], **group}], spec=text, **given)
                p.grad = torch.ones(2)
                opt.step()
                self.assertEqual(p.tolist(), [-value] * 2)

    def test_keys_of_the_authors(self):
        for rule, key, value in (("adai", "betas", (0.2, 0.9)), ("qhadam", "nus", (0.7, 0.9)),
                                 ("mars", "betas_1d", (0.8, 0.9))):
            opt = optc.torch.create(rule, [torch.nn.Parameter(torch.ones(2))], **{key: value})
            self.assertEqual(opt.param_groups[0][key], value)
            with self.assertRaisesRegex(ValueError, "2 numbers"):
                optc.torch.create(rule, [torch.nn.Parameter(torch.ones(2))], **{key: 0.5})


if __name__ == "__main__":
    unittest.main()
