"""The rule of an optimizer, and how it reads the keys of parameter groups: torch's keys for rules
that torch has, otherwise the rule's hyperparameters by their names."""
import os
import re
import sys
import warnings

import torch

from .._api import option_text, types_of
from .._lib import RangeError
from . import _rules
from ._engines import asked
from ._key_suggestions import refuse_sorting, unknown

# The wrapper of maximize=True: it negates the gradient. It is outermost, because torch negates
# first.
NEGATE = 'return wrapper { name = "maximize", step = function() g = -g inner() end }'
GLOBAL = r"\bglobal_"                                 # in a plan: a reduction over all tensors
# torch's keys for speed: accepted, without effect here
FASTER = ("foreach", "fused", "capturable")


# Keywords of optc.torch.Optimizer that apply to all groups together.
WHOLE = ("rule", "spec", "with_", "options", "types", "wrappers", "products", "static_grads",
         "release_grads", "split", "workspace", "follow_lr", "caution", "corrected_weight_decay")
# A scheduler that reaches 0 by a recurrence (LinearLR) may end a few units of 2^-53 of its first
# rate below 0. A value beyond a bound by less than this share of the first value counts as the
# bound: 9000 such roundings, too small to be intended.
ROUNDING = 1e-12
# The last parts of the names of states that are not 0 while entry to_eval has put averages into the
# parameters. Under the wrapper ema a step puts the weights back on purpose.
FLAGS, EMA = ("evaluated", "exchanged"), "ema.exchanged"
# Folders whose frames are not the user's: a user's optimizer is made through both of them.
FOLDERS = tuple(
    os.path.dirname(os.path.abspath(x)) + os.sep
    for x in (torch.__file__, os.path.dirname(__file__)))


def user_level():
    """The stacklevel at which warnings.warn names the user's line, for the caller of this
    function."""
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and os.path.abspath(
            frame.f_code.co_filename).startswith(FOLDERS):
        frame, level = frame.f_back, level + 1
    return level


class GroupKeys:
    """what: arguments of Engine.compile without types and options. keys: (a group's key, its
    hyperparameters). choices: {a group's key: option of the spec}. aliases: {another name: ((a
    group's key, index in it or None), …)}. names: the public names of states. ranges: the rule's
    hyperparameters."""

    def __init__(self, rule, spec, with_, options, types, wrappers, products):
        rule = os.fspath(rule) if isinstance(rule, os.PathLike) else rule
        for what, x in (("a rule's name or path", rule), ("spec=, the text of a spec,", spec),
                        ("products=", products)):
            if not isinstance(x, (str, type(None))):
                raise TypeError("%s is a str, not %s" % (what, type(x).__name__))
        with_ = [with_] if isinstance(with_, (str, int, float)) else list(with_ or ())
        if not all(isinstance(x, str) for x in with_):
            raise TypeError(
                "with_ must name wrappers, as in with_=[\"clip(1.0)\"], not %r" % (with_,))
        if spec is None:
            rule, *plus = split_wrappers(rule)
            with_ = plus + with_
        self.spec, self.types = rule or "spec", types_of(types)
        self.what = {
            "text": spec, "with_": ",".join(with_), "wrappers": dict(wrappers or {}),
            "products": products
        }
        self.rest = None                               # the fallback rule; defaults() sets it
        self.row = self.spec if spec is None and self.spec in _rules.TORCH else None
        if isinstance(options, str):
            options = {
                k: _rules.literal(v)
                for k, v in (part.split("=", 1) for part in options.split(",") if part)
            }
        self.options = dict(options or {})
        self.told = set()                              # warnings of types that were issued
        self.switches = {}                             # {an option: the keys that switch it on}

    def __setstate__(self, state):
        """Older pickles have one type for all states, and do not list gradients."""
        state = dict(state)
        state.setdefault("switches", {})
        # entries that read gradients
        state.setdefault("beside", set(state.get("entries", ())) - {"step"})
        state.setdefault("is_periodic", False)
        # older versions took steps in evaluation mode
        state.setdefault("flags", {EMA})
        state.setdefault("asks", {})
        state.setdefault("gradients",
                         ["perturb", "step"] if "perturb" in state.get("entries", ()) else ["step"])
        if "types" not in state:
            kind = state.pop("state_type", None)
            state["types"] = {"state": kind} if kind else {}
        self.__dict__.update(state)
        self.told = set(state.get("told", ()))

    def __getattr__(self, name):
        """An attribute that the version which made the pickle did not have: as for a rule that is
        new."""
        if name.startswith("__") or not {"what", "spec"} <= self.__dict__.keys():
            raise AttributeError("'GroupKeys' object has no attribute '%s'" % name)
        what, new = self.what, GroupKeys.__new__(GroupKeys)
        new.__init__(None if what["text"] else self.spec, what["text"], (),
                     dict(self.__dict__.get("options", {})), self.__dict__.get("types"),
                     what["wrappers"], what["products"])
        new.what, new.spec = what, self.spec
        new.defaults({})
        for key, value in new.__dict__.items():
            self.__dict__.setdefault(key, value)
        if name not in self.__dict__:
            raise AttributeError("'GroupKeys' object has no attribute '%s'" % name)
        return self.__dict__[name]

    def defaults(self, given):
        """The defaults of groups: the given values, and the rule's for the others."""
        self._consider_nothing()
        rule = self._consider(self.spec, self.options)
        self.ranges, self.rest = rule.hypers(), rule.field("fallback") or None
        # without the options of wrappers
        self.declared = {n: v for n, v in rule.options().items()
                         if "." not in n or n.split(".", 1)[0] == self.rest}
        base = self._torchs() if self.row else self._own()
        self.aliases = self._aliases(base)
        for name in [n for n in self.options if n in base or n in self.aliases]:
            given.setdefault(name, self.options.pop(name))             # options= may name keys too
        fixed = []
        # torch's AdamW has keys of Adam that its constructor refuses
        if self.row:
            torchs = [p.name for p in _rules.torch_parameters(self.row)]
            fixed = _rules.torch_defaults(self.row, {}).keys() - torchs
        self._only_known(given, [k for k in base if k not in fixed])
        self.fold(given, base, twice=True)
        found = {**base, **given}
        if self.row:
            found.update(_rules.torch_defaults(self.row, {k: found[k] for k in torchs}))
        elif found["differentiable"]:
            raise ValueError("differentiable=True: a step of optc is not differentiable")
        self.check(found)
        self.base = found
        self._consider_nothing()
        self.consider(found)
        self.given = given, base
        if found.get("maximize"):
            self._may_go_up()
        return dict(found)

    def consider(self, group, where=None):
        """Adds the entries and the reductions over all tensors of the group's rule, which depend on
        its options. Warns about probable mistakes in a spec given as text or by path, once for each
        set of options."""
        spec, options, _ = self.rule(group, where)
        if (spec, option_text(options)) not in self.seen:
            rule = self._consider(spec, options)
            by_default = rule.type_warnings()          # types are known when tensors are bound
            for text in rule.warnings():
                if text not in by_default:
                    warnings.warn("optc: " + text, stacklevel=user_level())

    def warn_of_defaults(self, groups):
        """Warns of the constructor's values, unless the options of one of the groups read them."""
        (given, base), self.given = self.given, ({}, {})
        self.warn_of_unread(given, base, groups)

    def warn_of_unread(self, given, base, groups):
        """Warns of given values that nothing reads with the options of any group, unless they are
        the defaults, or the spec has a warning about that hyperparameter anyway. base: the
        defaults."""
        changed = []
        for key, names in self.keys:
            if given.get(key) is not None:
                usual = (0,) * len(names) if base[key] is None else self._parts(
                    key, names, base[key], None)
                changed += [(key, name) for name, x, default in
                            zip(names, self._parts(key, names, given[key], None), usual)
                            if isinstance(x, torch.Tensor) or x != default]
        wanted = {}                                    # one rule per combination of options
        for spec, options in (self.rule(group)[:2] for group in groups if changed):
            wanted.setdefault((spec, option_text(options)), (spec, options))
        rules = [asked(**self.compiled(*x)) for x in wanted.values()]
        for key, name in changed:
            why = [rule.unread(name) for rule in rules]
            if why and all(why) and not any(text.endswith(why[0]) for text in rules[0].warnings()):
                warnings.warn(
                    "optc: %s: %s; leave %s out, or choose other options" %
                    (self.spec, why[0], key), stacklevel=user_level())

    def warn_of_types(self, rule, hyper):
        """Warns once of types that cannot work with a group's hyperparameters."""
        values = {
            n: number(v) for n, v in hyper.items()
            if not isinstance(v, torch.Tensor) or v.device.type == "cpu"
        }
        for text in rule.type_warnings(**values):
            if text not in self.told:
                self.told.add(text)
                warnings.warn("optc: " + text, stacklevel=5)

    def _consider_nothing(self):
        self.entries, self.gradients, self.beside, self.seen = [], [], set(), set()
        self.is_global = self.is_periodic = False
        # states that tell whether averages are in the parameters
        self.flags = set()
        self.asks = {}                                 # {(spec, options): tags the rule looks for}

    def _consider(self, spec, options):
        rule = asked(**self.compiled(spec, options))
        self.entries = self.entries + [e for e in rule.entries() if e not in self.entries]
        self.gradients = max(self.gradients, rule.gradients(), key=len)
        self.flags = self.flags | {n for n in rule.states() if n.rpartition(".")[2] in FLAGS}
        self.beside = self.beside | {
            e for e in rule.entries() if e != "step" and rule.reads_gradient(e)
        }
        self.is_global = self.is_global or has_global(rule)
        self.is_periodic = self.is_periodic or rule.has_periods()
        self.seen.add((spec, option_text(options)))
        self.asks[spec, option_text(options)] = _asks(rule)
        return rule

    def asks_for(self, group, where=None):
        """The tags that a group's rule looks for: `tagged "head"` of a spec; "vector": it steps
        vectors as matrices."""
        spec, options, _ = self.rule(group, where)
        key = spec, option_text(options)
        if key not in self.asks:
            self.asks[key] = _asks(asked(**self.compiled(spec, options)))
        return self.asks[key]

    def by_shape(self, group):
        """Whether the group's rule looks at rows, columns or sizes of tensors."""
        spec, options, _ = self.rule(group)
        return bool(asked(**self.compiled(spec, options)).field("shapes"))

    def _torchs(self):
        """torch's keys, then the further ones of the spec and its wrappers."""
        row = _rules.TORCH[self.row]
        base = {**_rules.torch_defaults(self.row, {}), **row["own"]}
        base.setdefault("maximize", False)
        # a wrapper may fix a hyperparameter: galore sets weight_decay of rules that it cannot take
        # apart to 0
        base.update({n: h[0] for n, h in self.ranges.items() if h[1] == h[2] and n in base})
        self.names = row["states"]
        self.keys = [
            (k, row["keys"].get(k, (k,))) for k in base if k in row["keys"] or k in self.ranges
        ]
        held = {n for _, names in self.keys for n in names}
        self.keys += [(n, (n,)) for n in self.ranges if n not in held]
        base.update((n, self.ranges[n][0]) for n in self.ranges if n not in held)
        self.choices = {k: k for k in row["own"]}
        return self._with_choices(base, [n for n in self.declared if "." in n])

    def _own(self):
        """Hyperparameters by their names, except beta1, beta2, …, which become `betas` as in
        PyTorch."""
        self.names, self.choices = {}, {}
        held = {n: k for k, names in self._series() for n in names}
        self.keys = self._series() + [(n, (n,)) for n in self.ranges if n not in held]
        order = list(self.ranges)
        self.keys.sort(key=lambda pair: order.index(pair[1][0]))
        base = {}
        for key, names in self.keys:
            base[key] = self.ranges[key][0] if names == (key,) else tuple(
                self.ranges[n][0] for n in names)
        if "base_lr" in base:
            # filled from each group's first lr: complete()
            base["base_lr"] = None
        self._with_choices(base, list(self.declared))
        self.switches = {o: keys for o, keys in _rules.SWITCHES.get(self.spec, {}).items()
                         if o in self.choices and all(k in base for k in keys)}
        for option, keys in self.switches.items():
            base.update(dict.fromkeys((option, *keys)))
        return {**base, "maximize": False, "differentiable": False}

    def _with_choices(self, base, names):
        """Options of the spec as keys of groups. If a hyperparameter has the same name, the key is
        the hyperparameter's."""
        for n in names:
            if n not in base:
                self.choices[n] = n
                base[n] = self.declared[n][0] if isinstance(self.declared[n],
                                                            tuple) else self.declared[n]
        return base

    def _series(self):
        """Series of hyperparameters: [("betas", ("beta1", "beta2")), ("eps", ("eps1", "eps2"))]"""
        found = []
        for key, stem, most in (("betas", "beta", _rules.FEWER_BETAS.get(self.spec,
                                                                         9)), ("eps", "eps", 9)):
            names = tuple(
                n for n in ("%s%d" % (stem, i + 1) for i in range(most)) if n in self.ranges)
            if len(names) > 1 and key not in self.ranges and key not in self.declared:
                found.append((key, names))
        return found + [(key, names) for key, names in _rules.SERIES.get(self.spec, {}).items()
                        if all(n in self.ranges for n in names)]

    def _aliases(self, base):
        found = {}
        for key, names in self.keys:
            if names != (key,):
                found.update(
                    (n, ((key, i if len(names) > 1 else None),)) for i, n in enumerate(names))
        if self.row:
            found.update((n, ((key, None),)) for n, key in _rules.TORCH[self.row]["alias"].items())
        for name in ("decoupled", "decouple"):         # timm's name of the option
            if name in base and name in self.choices:
                found["decoupled_decay"] = ((name, None),)
        pairs = {n.rsplit(".", 1)[0] for n in self.ranges if n.endswith(".beta1")}
        for x in pairs:                                # adamw.betas
            found[x + ".betas"] = tuple(
                (n, None) for n in (x + ".beta1", x + ".beta2") if n in self.ranges)
        for name in [*base, *found]:
            if "." in name and name.replace(".", "_") not in base:     # clip_max_norm, adamw_betas
                found[name.replace(".", "_")] = found.get(name, ((name, None),))
        return {n: to for n, to in found.items() if n not in base}

    def _only_known(self, given, base):
        strange = [k for k in given if k not in base and k not in self.aliases]
        if given.get("differentiable"):
            raise ValueError("differentiable=True: a step of optc is not differentiable")
        for k in [k for k in strange if k in FASTER + ("differentiable",)]:
            strange.remove(k)
            del given[k]
        if strange:
            known = [k for k in base if k not in FASTER + ("differentiable",)]
            raise TypeError(unknown(self.spec, strange, known))

    # ---- names of keys ----
    def fold(self, values, base, twice=False):
        """Moves the values of aliases (beta1, clip_max_norm) to the keys of groups, in place. base:
        supplies the other values of a pair; twice: refuses a key that is given by both names."""
        direct = set(values) if twice else ()
        for name in [n for n in values if n in self.aliases]:
            to, value = self.aliases[name], values.pop(name)
            each = (value,) if len(to) == 1 else value
            if len(to) > 1 and (not isinstance(value, (tuple, list)) or len(value) != len(to)):
                raise ValueError("%s: %s holds %s, not %r" %
                                 (self.spec, name, ", ".join(k for k, _ in to), value))
            for (key, place), x in zip(to, each):
                if key in direct:
                    raise TypeError(
                        "%s: %s and %s are the same, give one of them" % (self.spec, name, key))
                if self.row and name in _rules.TORCH[self.row]["negative"]:
                    x = -x
                values[key] = x if place is None else _replaced(values.get(key, base[key]), place,
                                                                x)
        if twice and self.row:
            for key, (other, value) in _rules.TORCH[self.row]["implied"].items():
                if values.get(key) is not None:
                    values.setdefault(other, value)

    def refuse_in_group(self, group, where, whole):
        """Refuses keys that apply to all groups together, unless they are equal to those of the
        optimizer (whole), and keys of wrappers that the rule does not have."""
        if self.rest:
            refuse_sorting(group, self.rest, where)
        for key in list(group):
            if key in whole and _meant(key, group[key]) == _meant(key, whole[key]):
                # ZeroRedundancyOptimizer copies all arguments into groups
                del group[key]
            # a spec may have the names of timm's keys
            elif key in WHOLE and key not in self.base:
                raise TypeError("%s: %s= applies to all groups of an optimizer; pass it to the "
                                "constructor, or make another optimizer for this group" %
                                (_said(self.spec, key, where), key))
            if isinstance(
                    key, str
            ) and "." in key and key not in self.base and key not in self.aliases and any(
                    n.startswith(key.split(".", 1)[0] + ".") for n in self.base):
                known = [n for n in self.base if "." in n]
                raise TypeError("param_groups[%d]: %s" % (where, unknown(self.spec, [key], known)))

    def complete(self, group, base=None):
        """Sets base_lr, if the rule has it and the user did not set it, to the first rate of the
        schedule. base: supplies the rate of a group without one."""
        if "base_lr" in self.ranges and group.get("base_lr") is None:
            group["base_lr"] = number(
                group.get("initial_lr", group["lr"] if "lr" in group else base["lr"]))

    def loaded(self, group, base, where):
        """A copy of a file's group under this rule's keys. base: the group that it replaces.
        Refuses values that the rule cannot take."""
        found = dict(group)
        self.fold(found, base)
        if self.row:
            _rules.fix_keys(self.row, found)
        self.complete(found, base)
        self.check({**base, **found}, where)
        return found

    def steps_in_training_only(self):
        """Whether the rule has an evaluation mode in which a step is a mistake."""
        return {"to_eval", "to_train"} <= set(self.entries) and self.flags != {EMA}

    def rates(self):
        """[(key, whether it follows every change of lr)] of the rates beside lr. That of the
        fallback rule follows schedulers only."""
        found = [("%s.lr" % self.rest, False)] if self.rest else []
        library = [("", self.spec)] if self.what["text"] is None else []
        library += [
            (w + ".", w)
            for w in (x.split("(")[0].strip() for x in split_wrappers(self.what["with_"], ","))
            if w not in self.what["wrappers"]
        ]
        return found + [(k, True) for k in dict.fromkeys(
            prefix + n for prefix, name in library for n in _rules.RATES.get(name, ()))
                        if k in self.ranges]

    # ---- values ----
    def check(self, values, where=None):
        """Refuses values outside of their ranges, before tensors are bound."""
        for key, names in self.keys:
            # complete() sets base_lr
            if key in values and (values[key] is not None or key != "base_lr"):
                for name, x in zip(names, self._parts(key, names, values[key], where)):
                    if x is not None:
                        self._within(name, x, values, where, key)
                    elif name != "eps1":               # torch's Adafactor
                        self._without(key, values, where)
        for key in self.choices:
            self._choice(key, values, where)

    def _parts(self, key, names, value, where):
        if len(names) == 1:
            if isinstance(value, (tuple, list)):
                raise ValueError("%s is one number, not %r" % (_said(self.spec, key, where), value))
            return (value,)
        if not isinstance(value, (tuple, list)) or len(value) != len(names):
            raise ValueError("%s is %d numbers (%s), not %r" % (
                _said(self.spec, key, where), len(names), ", ".join(names), value))
        return value

    def _within(self, name, x, group, where, key):
        """x as a number, or the bound of its range if x is beyond it only by rounding. A bool is
        most likely an argument of the authors' that stands elsewhere; torch's classes take it."""
        if _is_bool(x) and not (self.row and
                                key in {p.name for p in _rules.torch_parameters(self.row)}):
            raise TypeError("%s is a number, not %r" % (_said(self.spec, key, where), x))
        try:
            x = number(x)
        except (TypeError, ValueError):
            raise ValueError("%s is a number, not %r" % (_said(self.spec, key, where), x)) from None
        negative = self.row and name in _rules.TORCH[self.row]["negative"]
        default, lo, hi, lo_open, hi_open = self.ranges[name]
        x = -x if negative else x
        if (lo < x if lo_open else lo <= x) and (x < hi if hi_open else x <= hi):
            return x
        first = number(group.get("initial_lr", default)) if name.endswith("lr") else default
        for end, is_open in ((lo, lo_open), (hi, hi_open)):
            if not is_open and abs(end - x) <= ROUNDING * abs(first):
                return end
        raise RangeError(
            "%s is %g, and must be %s" % (_said(self.spec, key, where), -x if negative else x,
                                          range_text(self.ranges[name], -1 if negative else 1)))

    def _choice(self, key, group, where):
        """The value of an option, checked for its type."""
        kinds, value = self.declared[self.choices[key]], group.get(key)
        if value is None:
            return None
        if isinstance(kinds, tuple):
            ok = value in kinds
        elif isinstance(kinds, bool):
            ok = value in (True, False)
            value = bool(value) if ok else value
        elif isinstance(kinds, (int, float)):
            ok = isinstance(value, (int, float)) and not isinstance(value, bool)
        else:
            ok = isinstance(value, str)
        if not ok:
            raise ValueError("%s is %s, not %r" % (_said(self.spec, key, where), " or ".join(
                map(repr, kinds)) if isinstance(kinds, tuple) else type(kinds).__name__, value))
        return value

    def _may_go_up(self):
        if len(self.entries) > 1:
            raise ValueError("maximize=True: %s has entries beside step (%s), which would still go "
                             "down" % (
                self.spec, ", ".join(e for e in self.entries if e != "step")))

    # ---- values and rule of a group ----
    def values(self, group, dtype, where, stays=lambda x: False):
        """{hyperparameter: number} of a group for parameters of a type, each within its range.
        stays: a function that says whether the library reads a tensor in place; such tensors are
        passed on without reading them."""
        found = {}
        for key, names in self.keys:
            for name, x in zip(names, self._parts(key, names, group[key], where)):
                if x is None and name == "eps1":       # torch's Adafactor
                    x = torch.finfo(dtype).eps
                elif x is None:
                    x = self._without(key, group, where)
                found[name] = x if stays(x) else self._within(name, x, group, where, key)
        return found

    def _without(self, key, group, where):
        """The value of a key that is None: 0 if another key switches their option on, otherwise the
        spec's. Keys that switch no option must be numbers."""
        options = [o for o, keys in self.switches.items() if key in keys]
        if not options and key not in _rules.NONE.get(self.spec, ()):
            raise TypeError("%s is None, and must be a number" % _said(self.spec, key, where))
        on = [o for o in options if group.get(o) is None and _any(group, self.switches[o])]
        return 0 if on else self.ranges[key][0]

    def rule(self, group, where=None):
        """(spec, options, maximize) of a group; options of the spec are keys of groups."""
        up = bool(group.get("maximize"))
        options = {name: self._choice(key, group, where) for key, name in self.choices.items()}
        for option, keys in self.switches.items():
            if options[option] is None:
                options[option] = _any(group, keys)
        spec = self.spec
        if self.row:
            row = _rules.TORCH[self.row]
            options.update((name, value(group)) for name, value in row["options"].items())
            spec = row["spec_of"](group) if row["spec_of"] else self.row
        return spec, {**{k: v for k, v in options.items() if v is not None}, **self.options}, up

    def compiled(self, spec, options, maximize=False, param=None, grad=None, scaler=None,
                 bindings=0):
        """Arguments for Engine.compile. scaler: the text of an outermost wrapper that divides
        gradients by a scale; bindings: those that share values of all tensors."""
        what = dict(self.what, spec=spec, options=option_text(options))
        types = {"param": param, "grad": grad, **self.types}
        # bf16sr is not for f32 parameters beside bf16 ones
        if types["param"] != "%ssr" % param:
            types["param"] = param
        if param not in ("bf16", "f16"):
            types.pop("master", None)                  # others round nothing away
            types.pop("edits", None)
        what["types"] = {k: v for k, v in types.items() if v is not None}
        if bindings:
            what["bindings"] = bindings
        if maximize:
            self._may_go_up()
            what["with_"] = ",".join(x for x in (what["with_"], "maximize") if x)
            what["wrappers"] = {**what["wrappers"], "maximize": NEGATE}
        if scaler:
            what["with_"] = ",".join(x for x in (what["with_"], "scaler") if x)
            what["wrappers"] = {**what["wrappers"], "scaler": scaler}
        return what


def _asks(rule):
    return frozenset(rule.tags() + ["vector"] * bool(rule.field("vectors")))


def has_global(rule):
    """Whether a rule has values of all tensors together, such as clip's norm."""
    return bool(re.search(GLOBAL, rule.plan))


def _meant(key, x):
    """A constructor's argument in the form that the constructor gives it, and numbers of wrappers
    as float: with_ may be a text or a list, types and options a text or a dict."""
    names = ("with_", "options", "types", "wrappers", "products")
    if key not in names[:-1]:
        return x or None
    made = GroupKeys("", "", **{**dict.fromkeys(names), key: x})
    with_ = re.sub(r"(?<=[(,=])-?[\d.]+(e[-+]?\d+)?(?=[,)])", lambda n: repr(float(n[0])),
                   made.what["with_"].replace(" ", ""))
    return with_, made.options, made.types, made.what["wrappers"]


def number(x):
    return float(x)


def _is_bool(x):
    # of NumPy, of torch
    return isinstance(x, bool) or str(getattr(x, "dtype", "")).endswith("bool")


def is_constant(x):
    """Whether a value of a group cannot change in place, as lists, arrays and tensors can."""
    return x is None or isinstance(
        x, (int, float, str)) or isinstance(x, tuple) and all(map(is_constant, x))


def snapshot(x):
    """A value of a group that later changes in place do not reach. Tensors stay: each step reads
    them."""
    if isinstance(x, (tuple, list)):
        return tuple(map(snapshot, x))
    try:
        return x if is_constant(x) or isinstance(x, torch.Tensor) else number(x)
    except (TypeError, ValueError):
        return x                                       # refused when it is passed on


def _any(group, keys):
    return any(_rules.is_on(group.get(k)) for k in keys)


def _replaced(value, place, x):
    return tuple(x if i == place else v for i, v in enumerate(value))


def _said(spec, key, where):
    """A key's name for messages. where: the number of its group; None: an argument of the
    constructor."""
    return '%s: param_groups[%d]["%s"]' % (spec, where,
                                           key) if where is not None else "%s: %s" % (spec, key)


def range_text(h, sign=1):
    """A range as text: 'at least 0, below 1'. sign -1: for the negated value."""
    _, lo, hi, lo_open, hi_open = h
    if sign < 0:
        lo, hi, lo_open, hi_open = -hi, -lo, hi_open, lo_open
    low = "" if lo == float("-inf") else "%s %g" % ("above" if lo_open else "at least", lo)
    high = "" if hi == float("inf") else "%s %g" % ("below" if hi_open else "at most", hi)
    return " and ".join(x for x in (low, high) if x) or "a finite number"


def split_wrappers(text, by="+"):
    """Splits 'adamw+clip(1)+ema(0.9)'. A + inside of parentheses belongs to an argument."""
    found, depth, start = [], 0, 0
    for i, c in enumerate(text + by):
        depth += (c == "(") - (c == ")")
        if c == by and not depth:
            found.append(text[start:i])
            start = i + 1
    return found
