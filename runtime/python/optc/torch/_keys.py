"""What an optimizer's rule is, and how it reads the keys of parameter groups: torch's own keys for rules that torch
has, else the rule's hyperparameters by their names."""
import os
import re

from .._api import option_text
from .._lib import RangeError
from . import _rules
from ._memory import asked

# What a rule sees under maximize=True: the gradient the other way round. Outermost, as torch does it first.
NEGATE = 'return wrapper { name = "maximize", step = function() g = -g inner() end }'
GLOBAL = r"\bglobal_"                                 # in a plan: what is folded over all tensors
FASTER = ("foreach", "fused", "capturable")            # torch's ways to be fast, taken and of no use here


class Keys:
    """`what`: as Engine.compile takes it, but for types and options. `keys`: (a group's key, hyperparameters it holds).
    `names`: what states are called outside. `ranges`: the rule's hyperparameters."""

    def __init__(self, rule, spec, with_, options, types, wrappers, products):
        rule = os.fspath(rule) if isinstance(rule, os.PathLike) else rule
        for what, x in (("a rule's name or path", rule), ("spec=, the text of a spec,", spec)):
            if not isinstance(x, (str, type(None))):
                raise TypeError("%s is a str, not %s" % (what, type(x).__name__))
        with_ = [with_] if isinstance(with_, (str, int, float)) else list(with_ or ())
        if not all(isinstance(x, str) for x in with_):
            raise TypeError("with_ names wrappers, as in with_=[\"clip(1.0)\"], and not %r" % (with_,))
        if spec is None:
            rule, *plus = split_wrappers(rule)
            with_ = plus + with_
        self.spec, self.state_type = rule or "spec", dict(types or {}).get("state")
        self.what = {"text": spec, "with_": ",".join(with_), "wrappers": dict(wrappers or {}), "products": products}
        self.text = _rules.text_of(self.spec) if spec is None else spec
        self.rest = _rules.rest_of(self.text)
        self.row = self.spec if spec is None and self.spec in _rules.TORCH else None
        if isinstance(options, str):
            options = dict(part.split("=", 1) for part in options.split(",") if part)
        self.options = dict(options or {})

    def defaults(self, given):
        """The defaults of groups, of what was given and what was not."""
        found = self._torchs(given) if self.row else self._own(given)
        if found.get("maximize"):
            self._may_go_up()
        return found

    def _torchs(self, given):
        row = _rules.TORCH[self.row]
        self._ask(given)
        wrapped = {n: given.pop(n, h[0]) for n, h in self.ranges.items() if "." in n}
        self.check(wrapped)
        alias = {n for names in row["keys"].values() for n in names} & set(given)
        found = _rules.torch_defaults(self.row, {k: v for k, v in given.items() if k not in alias})
        # a wrapper may leave a hyperparameter one value alone: galore decays the weights itself, and weight_decay is 0
        found.update({n: h[0] for n, h in self.ranges.items() if h[1] == h[2] and n in found and n not in given})
        for key, names in row["keys"].items():         # beta1=0.9 is taken too
            found[key] = _put(found[key], names, given)
        self.names = row["states"]
        self.keys = [(k, row["keys"].get(k, (k,))) for k in found if k in row["keys"] or k in self.ranges]
        self.keys += [(n, (n,)) for n in wrapped]
        return {**found, **wrapped}

    def _own(self, given):
        known = _rules.options_of(self.text)
        self.options.update((k, given.pop(k)) for k in list(given) if k in known)
        if given.pop("differentiable", False):
            raise ValueError("differentiable=True: a step of optc is not differentiable")
        for k in FASTER:
            given.pop(k, None)
        maximize = bool(given.pop("maximize", False))
        self._ask(given)
        unknown = [k for k in given if k not in self.ranges]
        if unknown:
            raise TypeError("%s has no hyperparameter or option %s; it has %s" % (
                self.spec, ", ".join(unknown), ", ".join(list(self.ranges) + list(known))))
        self.check(given)
        self.names = _rules.STATES.get(self.spec, {}) if self.what["text"] is None else {}
        self.keys = [(k, (k,)) for k in self.ranges]
        return {**{k: given.get(k, h[0]) for k, h in self.ranges.items()}, "maximize": maximize,
                "differentiable": False}

    def _ask(self, given):
        """The rule's hyperparameters and entries, which are the same for all types. What is called clip.max_norm may be
        given as clip_max_norm."""
        rule = asked(**self.compiled(self.spec, self.options))
        self.entries, self.ranges, self.is_global = rule.entries(), rule.hypers(), has_global(rule)
        for name in self.ranges:
            if "." in name and name.replace(".", "_") in given:
                given[name] = given.pop(name.replace(".", "_"))

    def check(self, values):
        """Refuses what is outside of its range, before anything is bound."""
        for name, value in values.items():
            if name not in self.ranges:
                continue
            _, lo, hi, lo_open, hi_open = self.ranges[name]
            x = number(value)
            if not (lo < x if lo_open else lo <= x) or not (x < hi if hi_open else x <= hi):
                raise RangeError("%s: %s is %g, and must be %s %g and %s %g" % (
                    self.spec, name, x, "above" if lo_open else "at least", lo, "below" if hi_open else "at most", hi))

    def _may_go_up(self):
        if len(self.entries) > 1:
            raise ValueError("maximize=True: %s has entries beside step (%s), which would still go down" % (
                self.spec, ", ".join(e for e in self.entries if e != "step")))

    # ---- of a group ----
    def values(self, group):
        """{hyperparameter: what the group has, a number or a tensor}"""
        found = {}
        for key, names in self.keys:
            value = group[key]
            found.update(zip(names, value if isinstance(value, (tuple, list)) else (value,)))
        return found

    def hypers(self, group):
        """{hyperparameter: number}"""
        return {n: number(v) for n, v in self.values(group).items()}

    def rule(self, group):
        """(spec, options, maximize) of a group: torch keeps as keys what a spec has as options."""
        up = bool(group.get("maximize"))
        if not self.row:
            return self.spec, self.options, up
        row = _rules.TORCH[self.row]
        options = {**{name: value(group) for name, value in row["options"].items()}, **self.options}
        return (row["spec_of"](group) if row["spec_of"] else self.row), options, up

    def compiled(self, spec, options, maximize=False, param=None, grad=None, scaler=None, clip=None):
        """What Engine.compile wants. scaler: the text of a wrapper that takes a scale out of gradients, outermost;
        clip: of one that stands for the library's."""
        what = dict(self.what, spec=spec, options=option_text(options))
        types = {"param": param, "grad": grad, "state": self.state_type}
        what["types"] = {k: v for k, v in types.items() if v is not None}
        if clip:
            what["wrappers"] = {**what["wrappers"], "clip": clip}
        if maximize:
            self._may_go_up()
            what["with_"] = ",".join(x for x in (what["with_"], "maximize") if x)
            what["wrappers"] = {**what["wrappers"], "maximize": NEGATE}
        if scaler:
            what["with_"] = ",".join(x for x in (what["with_"], "scaler") if x)
            what["wrappers"] = {**what["wrappers"], "scaler": scaler}
        return what


def has_global(rule):
    """Whether it has something of all tensors together, as clip has their norm."""
    return bool(re.search(GLOBAL, rule.plan))


def number(x):
    return float(x)


def _put(value, names, given):
    if isinstance(value, (tuple, list)):
        return tuple(given.get(n, v) for n, v in zip(names, value))
    return given.get(names[0], value)


def split_wrappers(text, by="+"):
    """'adamw+clip(1)+ema(0.9)' into its parts; a + inside of brackets is an argument's."""
    found, depth, start = [], 0, 0
    for i, c in enumerate(text + by):
        depth += (c == "(") - (c == ")")
        if c == by and not depth:
            found.append(text[start:i])
            start = i + 1
    return found
