"""optc.torch.race: the report of a user's model, and the page that the command makes of it."""
import json
import os
import subprocess
import sys
import tempfile
import unittest

import torch

import optc.torch

HERE = os.path.dirname(os.path.abspath(__file__))
CALLER = ("return optimizer { name = 'plain', hyper = { lr = 0.1 }, "
          "step = function() p = p - lr * g end }\n")


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.hidden, self.head = torch.nn.Linear(3, 8), torch.nn.Linear(8, 1)

    def forward(self, x, y):
        return (self.head(torch.tanh(self.hidden(x))) - y).pow(2).mean()


def data(seed, step):
    x = torch.randn(16, 3, generator=torch.Generator().manual_seed(1000 * seed % 99991 + step))
    return x, x[:, :1] * x[:, 1:2]


class Race(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def at(self, name):
        return os.path.join(self.folder, name)

    def race(self, rules, **given):
        return optc.torch.race(
            Net, data, rules, **{
                "steps": 4, "trials": 2, "seeds": 6, "every": 2, "device": "cpu",
                "out": self.at("race.html"), "json": self.at("race.json"), "verbose": False, **given
            })

    def test_page_has_the_numbers_of_the_report(self):
        with open(self.at("plain.lua"), "w") as f:
            f.write(CALLER)
        rules = ["adamw", "schedulefree_adamw", self.at("plain.lua")]
        report = self.race(rules)
        subprocess.run([sys.executable, os.path.join(HERE, "race_page.py"), self.at("race.json"),
                        self.at("race.html")], check=True, stdout=subprocess.DEVNULL)
        with open(self.at("race.json")) as f:
            written = json.load(f)
        for mine, its in zip(report["results"], written["results"]):
            self.assertEqual(mine["runs"], its["runs"])
            self.assertEqual(len(mine["runs"]), 6)
            self.assertLessEqual(len(mine["trials"]), 2)
        # the target is what the first rule reached when it was tuned
        adamw = report["results"][0]
        self.assertEqual(adamw["trials"][adamw["best"]]["reached"], 2)
        first = [r["runs"][0]["loss"][0] for r in report["results"]]
        self.assertEqual(len(set(first)), 1)           # every rule starts from the same weights
        self.assertEqual(
            self.race(rules[:1], json=None)["results"][0]["runs"], report["results"][0]["runs"])

    def test_tuning_finds_a_better_rate_than_the_default(self):
        best = self.race(["adamw"], trials=4, steps=8)["results"][0]
        chosen = best["trials"][best["best"]]
        self.assertGreater(chosen["factor"], 1)        # 1e-3 is slow for eight steps
        self.assertLess(chosen["loss"], best["trials"][0]["loss"])

    def test_few_trials_search_the_rate_alone(self):
        for trials in (4, 7):
            for x in self.race(["adamw", "lion"], trials=trials, steps=4)["results"]:
                rates, decays = [[t[k] for t in x["trials"]] for k in ("factor", "decay")]
                self.assertEqual(x["rate_at_end"], not min(rates) < rates[x["best"]] < max(rates))
                if trials < 6:
                    self.assertEqual((len(set(decays)), len(set(rates))), (1, trials), x)
                elif len(set(decays)) > 1:
                    first = next(i for i, d in enumerate(decays) if d != decays[0])
                    self.assertTrue(first >= trials - 2 and min(rates) < rates[first] < max(rates),
                                    x)

    def test_gradients_are_counted(self):
        report = self.race(["sgd", "sgd+sam", "sgd+looksam(0.1,2)"], trials=1, steps=4)
        self.assertEqual([r["gradients"] for r in report["rules"]], [1, 2, 1.5])
        with open(self.at("race.html")) as f:
            self.assertIn("gradients to target", f.read())

    def test_input_loss(self):
        path = self.at("polyak.lua")
        with open(path, "w") as f:
            f.write('return optimizer { name = "polyak", hyper = { lr = 1 }, inputs = { loss = '
                    '"group" }, step = function() p = p - lr * 0.1 * loss / (1e-8 + global.dot(g, '
                    'g)) * g end }')
        runs = self.race([path], trials=1, steps=8)["results"][0]["runs"]
        first, last = (sum(r["loss"][k] for r in runs) for k in (0, -1))
        self.assertLess(last, 0.98 * first, runs)

    def test_settings_of_one_rule(self):
        rules = [
            "adamw", "adamw(beta2=0.999)", "adamw(beta2=0.5, amsgrad=true)+clip(1)",
            "adamw(lr=0.05)"
        ]
        plain, same, other, rate = self.race(rules, trials=1, steps=2)["results"]
        losses = [[run["loss"] for run in x["runs"]] for x in (plain, same, other)]
        self.assertTrue(losses[0] == losses[1] != losses[2])
        self.assertEqual([x["trials"][0]["rate"] for x in (plain, rate)], [1e-3, 0.05])
        plain, rest = self.race(["muon", "muon(adamw.weight_decay=9)"], trials=1,
                                steps=2)["results"]
        self.assertNotEqual(plain["runs"][0]["loss"], rest["runs"][0]["loss"])
        with self.assertRaisesRegex(ValueError, "end with"):
            self.race(["adamw("])
        with self.assertRaisesRegex(ValueError, "NAME=VALUE"):
            self.race(["adamw(0.9)"])
        with self.assertRaisesRegex((TypeError, ValueError), "beta"):
            self.race(["adamw(beta=0.9)"])

    def test_interrupt_leaves_a_report(self):
        calls = []

        def stops(seed, step):
            calls.append(step)
            if len(calls) > 70:                       # during the reported runs
                raise KeyboardInterrupt
            return data(seed, step)

        report = optc.torch.race(Net, stops, ["adamw"], steps=4, trials=3, seeds=20, device="cpu",
                                 verbose=False, out=self.at("race.html"), json=self.at("race.json"))
        self.assertTrue(report["interrupted"] and 0 < len(report["results"][0]["runs"]) < 20)
        subprocess.run([sys.executable, os.path.join(HERE, "race_page.py"), self.at("race.json"),
                        self.at("race.html")], check=True, stdout=subprocess.DEVNULL)

    def test_limits_are_checked_before_training(self):
        """A report that the optc command refuses would be lost after hours of training."""
        calls = []

        def untouched(seed, step):
            calls.append(step)
            return data(seed, step)

        nan = lambda seed, step: tuple(x * float("nan")
                                       for x in untouched(seed, step))  # noqa: E731
        os.mkdir(self.at("folder"))
        with open(self.at("old.html"), "w") as f:
            f.write("old")
        for data_fn, error, given in ((untouched, "first_seed=-1", {
                "first_seed": -1
        }), (untouched, "0 to 1999999993",
             {"first_seed": 1999999994, "seeds": 8}), (untouched, "1 to 16 rules", {
                 "rules": ["adamw+clip(%d)" % k for k in range(1, 18)]
             }), (untouched, "steps=100001", {"steps": 100001}), (untouched, "every=100001", {
                 "every": 100001
             }), (untouched, "every=0", {"every": 0}), (untouched, "every=1", {
                 "steps": 99999, "every": 1, "seeds": 64, "rules": ["adamw", "sgd"]
             }), (untouched, "name=3",
                  {"name": 3}), (nan, "loss of the untrained model is nan with seed 1", {}),
                                      (untouched, "out=.*No such", {
                                          "out": self.at("none/race.html")
                                      }), (untouched, "json=.*Is a dir", {
                                          "out": self.at("old.html"), "json": self.at("folder")
                                      })):
            del calls[:]
            with self.assertRaisesRegex((ValueError, OSError), error):
                optc.torch.race(Net, data_fn, given.pop("rules", ["adamw"]), **{
                    "steps": 4, "device": "cpu", "verbose": False, "out": None, **given})
            self.assertEqual(calls, [0] if data_fn is nan else [])
        with open(self.at("old.html")) as f:
            self.assertEqual(f.read(), "old")
        self.assertEqual(sorted(os.listdir(self.folder)), ["folder", "old.html"])

    def test_start_that_is_not_finite_diverges(self):
        def holes(seed, step):
            return tuple(x * float("nan") if seed == 2 else x for x in data(seed, step))

        report = optc.torch.race(Net, holes, ["adamw"], steps=2, trials=1, seeds=6, device="cpu",
                                 verbose=False, out=self.at("race.html"), json=self.at("race.json"))
        self.assertEqual([r["diverged"] for r in report["results"][0]["runs"]],
                         [False, True] + 4 * [False])
        subprocess.run([sys.executable, os.path.join(HERE, "race_page.py"), self.at("race.json"),
                        self.at("race.html")], check=True, stdout=subprocess.DEVNULL)

    def test_page_that_fails_leaves_the_numbers(self):
        def removed(seed, step):
            if seed == 6 and os.path.exists(self.at("gone")):          # after the check
                os.rmdir(self.at("gone"))
            return data(seed, step)

        for out, folder in ((self.at("gone/race.html"), tempfile.gettempdir()),
                            (self.at("race.html"), self.folder)):
            os.mkdir(self.at("gone"))
            with self.assertRaisesRegex(RuntimeError,
                                        "(?s)could not be written: .*; its numbers are in ") as e:
                optc.torch.race(Net, removed, ["adamw"], steps=1, trials=1, seeds=6, device="cpu",
                                verbose=False, out=out, json=self.at("gone/race.json"))
            path = str(e.exception).split(" are in ")[1]
            self.addCleanup(os.remove, path)
            self.assertEqual(os.path.dirname(path), folder)
            with open(path) as f:
                self.assertEqual(len(json.load(f)["results"][0]["runs"]), 6)

    def test_refusals(self):
        for given, said in (({"seeds": 3}, "whole number from 6 to 64"), ({
                "target": float("nan")
        }, "finite"), ({"schedule": "cosine"}, "linear"), ({"rules": []}, "name 1 to 16"), ({
                "rules": ["adamw", "adamw"]
        }, "once"), ({"rules": ["sophia"]}, "update_hessian")):
            with self.assertRaisesRegex(ValueError, said):
                self.race(given.pop("rules", ["adamw"]), **given)
        self.assertFalse(os.path.exists(self.at("race.html")))


if __name__ == "__main__":
    unittest.main()
