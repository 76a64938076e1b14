"""race: compares rules on a model of the caller, as `optc race` does on its own tasks.

The report is written as JSON in the format of `optc race --json`; the optc command compares the
runs and makes the HTML page, so that both exist once.
"""
import json as _json
import math
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time

import torch

from .. import _lib
from ._optimizer import Optimizer

LEAST_SEEDS, TUNING, FAR = 6, 2, 1000000               # tuning seeds start at first_seed + FAR
# Limits of `optc race --from`, which makes the page (tools/race/race.h, race_read.c).
MOST_SEEDS, MOST_RULES, MOST_TRIALS, MOST_STEPS = 64, 16, 64, 100000
MOST_SEED, MOST_LOSSES = 2000000000, 10000000
# of the search: log2 of the factors of rates
FIRST_STRIDE, LEAST_STRIDE, DECAY_TRIALS = 3.0, 0.1, 2
# fewer trials are all spent on the rate (RACE_DECAY_TRIALS)
DECAY_LEAST = 6
ENTRIES = {"step", "to_eval", "to_train", "perturb"}


def race(model_fn, data_fn, rules, *, loss_fn=None, steps=200, every=None, target=None, seeds=8,
         first_seed=1, trials=10, schedule="linear", device=None, name="model", out="race.html",
         json=None, verbose=True):
    """Trains a model with each rule, tunes the rate and decay of each with the same number of
    trials on other seeds, and writes a page that tells which rule wins.

    model_fn     makes the model; it is called after torch.manual_seed(seed), so every rule starts
                 from the same weights
    data_fn      function of (seed, step) that returns a batch: a tuple of tensors. Step 0 is the
                 evaluation's batch
    rules        names or paths, also with hyperparameters, options and wrappers of their own:
                 ["adamw", "muon", "adamw(beta2=0.95)", "adamw+clip(1)", "./mine.lua"]
    loss_fn      function of (model, batch) that returns the loss; None: model(*batch) returns it
    steps, every the step budget, and the steps between two evaluations (None: a fortieth of the
    steps)
    target       the evaluation loss to reach; None: what the first rule reached in all runs of its
                 best trial
    seeds        number of runs that are reported of each rule, from 6; first_seed is the first seed
    trials       number of trials of rate and decay for each rule, each on two other seeds. Fewer
                 than six are all spent on the rate; the report says where the best rate is the last
                 one that was tried
    schedule     "linear": rates fall to 0 over the steps; "constant". Rules that average are always
                 constant
    device       where to train; None: the CPU, or a GPU if there is one
    out, json    files to write: the page, and the numbers for programs (None: no file)

    Returns the report as a dict. After Ctrl-C it has the runs that were done."""
    program = _lib.program()
    if program is None:
        raise RuntimeError("the optc program was not found in the package or in the build tree: "
                           "run make")
    rules = list(rules)
    every = max(1, steps // 40) if every is None and isinstance(steps, int) else every
    target = None if target is None else float(target)
    _check(rules, steps, every, target, seeds, first_seed, trials, schedule, name)
    for what, path in (("out", out), ("json", json)):
        _check_writable(what, path)
    device = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    made = _Race(model_fn, data_fn, loss_fn or _call_model, steps, every, schedule, device, verbose)
    report = made.report(rules, target, list(range(first_seed, first_seed + seeds)), trials, name,
                         list(range(first_seed + FAR, first_seed + FAR + TUNING)))
    _render(program, report, out, json, verbose)
    return report


def _call_model(model, batch):
    return model(*batch)


def _check(rules, steps, every, target, seeds, first_seed, trials, schedule, name):
    """Refuses what the page's maker would refuse after the training."""
    if not 1 <= len(rules) <= MOST_RULES or len(set(rules)) < len(rules):
        raise ValueError("rules=%r: name 1 to %d rules, each of them once" % (rules, MOST_RULES))
    for what, value, least, most, why in (("seeds", seeds, LEAST_SEEDS, MOST_SEEDS,
                                           "; fewer rarely separate two rules"), ("steps", steps, 1,
                                                                                  MOST_STEPS, ""),
                                          ("every", every, 1, MOST_STEPS, ""), ("trials", trials, 1,
                                                                                MOST_TRIALS, ""),
                                          ("first_seed", first_seed, 0,
                                           MOST_SEED + 1 - (seeds if isinstance(seeds, int) else 0),
                                           "")):
        if not isinstance(value, int) or not least <= value <= most:
            raise ValueError("%s=%r: a race has a whole number from %d to %d%s" %
                             (what, value, least, most, why))
    losses = len(rules) * seeds * (steps // every + 2)
    if losses > MOST_LOSSES:
        raise ValueError("every=%r: the report would have %d losses, and may have %d; evaluate "
                         "less often"
                         % (every, losses, MOST_LOSSES))
    if schedule not in ("linear", "constant"):
        raise ValueError("schedule=%r: it must be 'linear' or 'constant'" % (schedule,))
    if target is not None and not math.isfinite(target):
        raise ValueError("target=%r: it must be a finite number" % (target,))
    if not isinstance(name, str):
        raise ValueError("name=%r: it must be a str" % (name,))


def _check_writable(what, path):
    """Raises OSError if a file of the report cannot be written. An existing file is not changed."""
    if path is None:
        return
    there = os.path.exists(path)
    try:
        with open(path, "ab"):
            pass
    except OSError as e:
        raise type(e)(e.errno, "%s=%r cannot be written: %s" % (what, path, e.strerror)) from None
    if not there:
        os.remove(path)


def _render(program, report, out, json, verbose):
    try:
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "race.json")
            with open(path, "w") as f:
                _json.dump(report, f)
            page = out or os.path.join(folder, "race.html")
            done = subprocess.run(
                [program, "race", "--from", path, "-o", page] + (["--json", json] if json else []),
                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        told = done.stderr.strip() if done.returncode else None
    except (OSError, TypeError, ValueError) as e:      # the last two: of a value that JSON lacks
        told = str(e)
    if told is not None:
        raise RuntimeError(
            "the report could not be written: %s; %s" % (told, _saved(report, out or json)))
    if verbose:
        print(done.stdout, end="")


def _saved(report, beside):
    """Saves the report of a race whose page failed in a new file, and returns where it is."""
    for folder in (os.path.dirname(os.path.abspath(beside)) if beside else None, None):
        try:
            number, path = tempfile.mkstemp(prefix="race-", suffix=".json", dir=folder)
            with open(number, "w") as f:
                _json.dump(report, f, default=repr)
            return "its numbers are in %s" % path
        except OSError:
            pass
    return "its numbers could not be saved"


def _value(text):
    """A number, True, False or a word."""
    try:
        return float(text)
    except ValueError:
        return {"true": True, "false": False}.get(text, text)


def _settings(label):
    """Splits "adamw(beta2=0.95)+clip(1)" into the rule with its wrappers and a dict, as `optc race`
    does."""
    if not re.match(r"[^(+]*\(", label) or os.path.exists(label) or os.path.exists(
            label.split("+")[0]):
        return label, {}
    found = re.fullmatch(r"([^(+]+)\(([^)]*)\)(|\+.*)", label)
    if not found:
        raise ValueError(
            "race: %r: the settings of a rule end with ')', and '+' precedes a wrapper" % label)
    pairs = [x.partition("=") for x in found[2].split(",") if x.strip()]
    if not all(sep for _, sep, _ in pairs):
        raise ValueError("race: %r: settings of a rule are NAME=VALUE: "
                         "adamw(beta2=0.95,amsgrad=true)" % label)
    return found[1] + found[3], {k.strip(): _value(v.strip()) for k, _, v in pairs}


class _Rule:
    """What the race changes of a rule: groups' keys of rates and decays. Rates and decays of `name`
    are where their search starts."""

    def __init__(self, name, model):
        self.spec, self.settings = _settings(name)
        opt = self.optimizer(model)
        other = set(opt.entries()) - ENTRIES
        if other:
            raise ValueError(
                "race: %s has the entry '%s', which a race cannot feed" % (name, sorted(other)[0]))
        group = opt.param_groups[0]
        self.name, self.averages = name, "to_eval" in opt.entries()
        self.rates = {
            k: float(v) for k, v in group.items() if k.split(".")[-1] == "lr" and float(v) != 0
        }
        self.decays = [k for k in group if k.split(".")[-1] == "weight_decay"]
        # all decays get one value; others than the first stay as set
        self.decays = [k for k in self.decays if k == self.decays[0] or k not in self.settings]
        self.decay = float(group[self.decays[0]]) if self.decays else None
        self.text = _text(self.spec)
        # per step, in the mean; _Race.train counts them
        self.gradients = 1.0

    def optimizer(self, model):
        return Optimizer(model, self.spec, **self.settings)

    def rate(self, factor):
        return next(iter(self.rates.values())) * factor if self.rates else None

    def note(self):
        notes = ["evaluated between to_eval and to_train, at a constant rate"
                 ] if self.averages else []
        return "; ".join(
            notes + ([] if self.rates else ["no hyperparameter named lr: its rate is not tuned"]))


def _text(name):
    from .. import library, library_text
    spec = name.split("+")[0]
    if spec in library():
        return library_text(spec)
    with open(spec) as f:
        return f.read()


class _Race:
    def __init__(self, model_fn, data_fn, loss_fn, steps, every, schedule, device, verbose):
        self.model_fn, self.data_fn, self.loss_fn, self.device = model_fn, data_fn, loss_fn, device
        self.steps, self.every, self.verbose = steps, every, verbose
        self.linear = schedule == "linear"

    def _model(self, seed):
        torch.manual_seed(seed)
        return self.model_fn().to(self.device)

    def _batch(self, seed, step):
        return tuple(
            x.to(self.device) if isinstance(x, torch.Tensor) else x
            for x in self.data_fn(seed, step))

    def _evaluate(self, model, opt, rule, batch):
        if rule.averages:
            opt.run("to_eval")
        model.eval()
        with torch.no_grad():
            loss = float(self.loss_fn(model, batch))
        model.train()
        if rule.averages:
            opt.run("to_train")
        return loss

    def train(self, rule, seed, factor, decay):
        """One run: a dict with its losses. `reached` is filled in when the target is known."""
        model = self._model(seed)
        opt = rule.optimizer(model)
        held = self._batch(seed, 0)
        for group in opt.param_groups:
            for k in rule.decays if decay is not None else ():
                group[k] = decay
        with torch.no_grad():
            first = float(self.loss_fn(model, held))
        diverged, spent, calls = not math.isfinite(first), 0.0, 0
        losses, times = ([], []) if diverged else ([first], [0.0])
        for step in range(1, 1 if diverged else self.steps + 1):
            batch, began = self._batch(seed, step), time.perf_counter()
            share = 1 - (step - 1) / self.steps if self.linear and not rule.averages else 1.0
            for group in opt.param_groups:
                group.update({k: v * factor * share for k, v in rule.rates.items()})

            def closure():
                nonlocal calls
                calls += 1
                opt.zero_grad()
                loss = self.loss_fn(model, batch)
                loss.backward()
                return loss
            opt.step(closure)
            evaluates = step % self.every == 0 or step == self.steps
            if evaluates and self.device.type == "cuda":
                torch.cuda.synchronize(self.device)
            spent += time.perf_counter() - began
            if evaluates:
                loss = self._evaluate(model, opt, rule, held)
                if not math.isfinite(loss) or loss > 1000 * (abs(first) + 1):
                    diverged = True
                    break
                losses.append(loss)
                times.append(spent)
        if calls:
            rule.gradients = calls / step
        return {
            "seed": seed, "done": True, "diverged": diverged, "reached": 0, "loss": losses,
            "times": times, "all": spent
        }

    def reach(self, run, target):
        """Fills in the step and the time at which a run reached the target."""
        at = next(
            (k for k, x in enumerate(run["loss"]) if k and target is not None and x <= target),
            None)
        run["reached"] = 0 if at is None else min(at * self.every, self.steps)
        run["target"] = run["times"][at] if at else 0.0
        return run

    def _check_first_loss(self, seed):
        with torch.no_grad():
            first = float(self.loss_fn(self._model(seed), self._batch(seed, 0)))
        if not math.isfinite(first):
            raise ValueError("race: the loss of the untrained model is %r with seed %d; check "
                             "model_fn, data_fn and loss_fn" % (first, seed))

    def trial(self, rule, seeds, shift, decay, target):
        t = {
            "rate": rule.rate(2.0 ** shift), "factor": 2.0 ** shift, "decay": decay, "shift": shift,
            "runs": [self.train(rule, s, 2.0 ** shift, decay) for s in seeds]
        }
        return self.summary(t, target)

    def summary(self, trial, target):
        """Fills in the means of a trial's runs. Without a target none has reached it."""
        runs = [self.reach(r, target) for r in trial["runs"]]
        ended = [r["loss"][-1] for r in runs if not r["diverged"]]
        reached = [r["reached"] for r in runs if r["reached"]]
        trial.update(seeds=len(runs), reached=len(reached), diverged=len(runs) - len(ended),
                     steps=statistics.mean(reached) if reached else None,
                     worst=max(ended, default=None), loss=statistics.mean(ended) if ended else None)
        return trial

    def tune(self, rule, seeds, most, target, trials):
        """A pattern search over log2 of the rate, then other decays at the best rate. Fills
        `trials`."""
        stride = FIRST_STRIDE
        decays = DECAY_TRIALS if rule.decays and most >= DECAY_LEAST else 0
        others = [0.0, rule.decay * 10] if rule.decay else [0.01, 0.1]
        while len(trials) < most:
            shift, decay = 0.0, rule.decay
            if trials and rule.rates and decays in (0, DECAY_TRIALS) and (
                    len(trials) < most - decays or not _bracketed(trials)):
                at, tried = _best(trials)["shift"], [t["shift"] for t in trials]
                near = []
                while stride >= LEAST_STRIDE and not near:
                    near = [
                        x for x in (at + stride, at - stride) if all(
                            abs(x - y) > 1e-9 for y in tried)
                    ]
                    stride = stride if near else stride / 2
                if not near:
                    return
                shift = near[0]
            elif trials and decays:
                shift, decay, decays = _best(trials)["shift"], others[-decays], decays - 1
                most = min(most, len(trials) + 1 + decays)
            elif trials:
                return
            self._say("%s: trial %d of %d" % (rule.name, len(trials) + 1, most))
            trials.append(self.trial(rule, seeds, shift, decay, target))

    def report(self, names, target, seeds, most, title, tuning):
        began, cpu, interrupted = time.perf_counter(), time.process_time(), False
        made = [_Rule(n, self._model(seeds[0])) for n in names]
        self._check_first_loss(seeds[0])
        trials, runs = [[] for _ in made], [[] for _ in made]
        try:
            for rule, mine in zip(made, trials):
                self.tune(rule, tuning, most, target, mine)
                if target is None:                     # of the first rule
                    target = _best(mine)["worst"]
                    if target is None:
                        raise ValueError("race: every run of %s diverged: name a target, or "
                                         "another first rule"
                                         % rule.name)
                    for t in mine:
                        self.summary(t, target)
            for rule, mine, ran in zip(made, trials, runs):
                best = _best(mine)
                for i, s in enumerate(seeds):
                    self._say("%s: run %d of %d" % (rule.name, i + 1, len(seeds)))
                    ran.append(
                        self.reach(self.train(rule, s, best["factor"], best["decay"]), target))
        except KeyboardInterrupt:
            interrupted = True
        self._say("")
        clocks = {"seconds": time.perf_counter() - began, "cpu_seconds": time.process_time() - cpu}
        return self._written(made, trials, runs, target, seeds, tuning, most, title, interrupted,
                             clocks)

    def _written(self, made, trials, runs, target, seeds, tuning, most, title, interrupted, clocks):
        device = torch.cuda.get_device_name(self.device) if self.device.type == "cuda" else str(
            self.device)
        shown = ("seeds", "reached", "diverged", "rate", "factor", "decay", "steps", "loss")
        return {
            "format": "optc-race 1", "version": _lib.decoded(_lib.lib.optc_version()),
            "interrupted": interrupted, "most_trials": most,
            "schedule": "linear" if self.linear else "constant", "seeds": seeds,
            "tuning_seeds": tuning, "tasks": [{
                "name": title, "about": "a model of the caller", "steps": self.steps,
                "every": self.every, "target": 0.0 if target is None else target
            }], "rules": [{
                "name": r.name, "rate": " and ".join(r.rates),
                "decay": "weight_decay" if r.decays else "", "note": r.note(), "text": r.text,
                "gradients": r.gradients
            } for r in made], "results": [{
                "task": title, "rule": r.name, "best": t.index(_best(t)) if t else -1,
                "rate_at_end": bool(t and r.rates and
                                    not _bracketed(t)), "trials": [{k: x[k] for k in shown}
                                                                   for x in t],
                "runs": [{k: x[k] for k in ("seed", "done", "diverged", "reached", "loss")}
                         for x in ran]
            } for r, t, ran in zip(made, trials, runs)], "machine": {
                "command": "optc.torch.race(…, rules=%r)" % [r.name for r in made],
                "device": device, "date": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
                **clocks, "rules": [
                    {"path": "torch %s" % torch.__version__, "compile_seconds": None} for _ in made
                ],
                "times": [[{"all": x["all"], "target": x["target"]} for x in ran] for ran in runs]
            }
        }

    def _say(self, text):
        if self.verbose and sys.stderr.isatty():
            sys.stderr.write("\r\033[K" + text)
            sys.stderr.flush()


def _bracketed(trials):
    """Whether rates below and above the best one were tried."""
    best, tried = _best(trials)["shift"], [t["shift"] for t in trials]
    return min(tried) < best < max(tried)


def _best(trials):
    """More runs that reach the target, then fewer steps to it, then fewer diverged runs, then a
    lower final loss."""
    def order(t):
        return (-t["reached"], t["steps"] if t["reached"] and t["steps"] is not None else 0,
                t["diverged"], math.inf if t["loss"] is None else t["loss"])
    return min(trials, key=order)
