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
CALLER = "return optimizer { name = 'plain', hyper = { lr = 0.1 }, step = function() p = p - lr * g end }\n"


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
        return optc.torch.race(Net, data, rules, **{"steps": 4, "trials": 2, "seeds": 6, "every": 2, "device": "cpu",
                                                    "out": self.at("race.html"), "json": self.at("race.json"),
                                                    "verbose": False, **given})

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
        adamw = report["results"][0]                    # the target is what the first rule reached when it was tuned
        self.assertEqual(adamw["trials"][adamw["best"]]["reached"], 2)
        first = [r["runs"][0]["loss"][0] for r in report["results"]]
        self.assertEqual(len(set(first)), 1)           # every rule starts from the same weights
        self.assertEqual(self.race(rules[:1], json=None)["results"][0]["runs"], report["results"][0]["runs"])

    def test_tuning_finds_a_better_rate_than_the_default(self):
        best = self.race(["adamw"], trials=4, steps=8)["results"][0]
        chosen = best["trials"][best["best"]]
        self.assertGreater(chosen["factor"], 1)        # 1e-3 is slow for eight steps
        self.assertLess(chosen["loss"], best["trials"][0]["loss"])

    def test_interrupt_leaves_a_report(self):
        calls = []

        def stops(seed, step):
            calls.append(step)
            if len(calls) > 70:                       # during the reported runs
                raise KeyboardInterrupt
            return data(seed, step)
        report = optc.torch.race(Net, stops, ["adamw"], steps=4, trials=3, seeds=20, device="cpu", verbose=False,
                                 out=self.at("race.html"), json=self.at("race.json"))
        self.assertTrue(report["interrupted"] and 0 < len(report["results"][0]["runs"]) < 20)
        subprocess.run([sys.executable, os.path.join(HERE, "race_page.py"), self.at("race.json"),
                        self.at("race.html")], check=True, stdout=subprocess.DEVNULL)

    def test_refusals(self):
        for given, said in (({"seeds": 3}, "6 to 64 seeds"), ({"target": float("nan")}, "finite"),
                            ({"schedule": "cosine"}, "linear"),
                            ({"first_seed": 1999999996}, "from 0 to 1999999995 with 6 seeds"),
                            ({"first_seed": -1}, "from 0 to"), ({"steps": 100001}, "steps must be 1 to 100000"),
                            ({"rules": []}, "name one or more"),
                            ({"rules": ["adamw", "adamw"]}, "once"), ({"rules": ["sophia"]}, "update_hessian")):
            with self.assertRaisesRegex(ValueError, said):
                self.race(given.pop("rules", ["adamw"]), **given)
        self.assertFalse(os.path.exists(self.at("race.html")))


if __name__ == "__main__":
    unittest.main()
