"""What is known of a rule: torch's names for rules that torch has (one table), and what a spec's text says."""
import re

import torch

from .. import library, library_text

# spec: torch's class; its keys that are several hyperparameters or are called otherwise; its names of states; what it
# has as a key and a spec as an option fixed when it is compiled (a function of the group says its value).
# Keys, defaults, ranges and what is said of wrong ones are torch's own: its constructor is asked.
TORCH = {}


def _row(spec, states, keys=None, options=None, spec_of=None):
    TORCH[spec] = {"states": states, "keys": keys or {}, "options": options or {}, "spec_of": spec_of}


BETAS = {"betas": ("beta1", "beta2")}
MOMENTS = {"m": "exp_avg", "v": "exp_avg_sq"}
MOMENTUM = {"momentum_buffer": lambda g: g["momentum"] != 0}


def _decoupled(g):
    return bool(g.get("decoupled_weight_decay", False))


_row("sgd", {"b": "momentum_buffer"}, options={"nesterov": lambda g: bool(g["nesterov"]), **MOMENTUM})
_row("adam", {**MOMENTS, "vmax": "max_exp_avg_sq"}, BETAS, {"amsgrad": lambda g: bool(g["amsgrad"])},
     spec_of=lambda g: "adamw" if _decoupled(g) else "adam")
_row("adamw", {**MOMENTS, "vmax": "max_exp_avg_sq"}, BETAS, {"amsgrad": lambda g: bool(g["amsgrad"])})
_row("adamax", {"m": "exp_avg", "u": "exp_inf"}, BETAS)
_row("nadam", MOMENTS, BETAS, {"decoupled": _decoupled})
_row("radam", MOMENTS, BETAS, {"decoupled": _decoupled})
_row("adadelta", {"v": "square_avg", "u": "acc_delta"})
_row("adagrad", {"v": "sum"}, {"initial_accumulator_value": ("initial_accumulator",)})
_row("rmsprop", {"v": "square_avg", "a": "grad_avg", "b": "momentum_buffer"},
     options={"centered": lambda g: bool(g["centered"]), **MOMENTUM})
# Rules that torch has in another form: what they keep alike.
STATES = {"muon": {"m": "momentum_buffer"}}
CLASSES = {"sgd": "SGD", "adam": "Adam", "adamw": "AdamW", "adamax": "Adamax", "nadam": "NAdam", "radam": "RAdam",
           "adadelta": "Adadelta", "adagrad": "Adagrad", "rmsprop": "RMSprop"}


def torch_class(spec):
    return getattr(torch.optim, CLASSES[spec])


def torch_defaults(spec, given):
    """Torch's keys and defaults with what was given; torch itself says what is wrong with it."""
    made = torch_class(spec)([torch.zeros((), requires_grad=True)], **given)
    if made.defaults.get("differentiable"):
        raise ValueError("differentiable=True: a step of optc is not differentiable; use torch.optim.%s for that"
                         % CLASSES[spec])
    return dict(made.defaults)


# ---- what a spec's text says ----
def field(text, name):
    """A string field of a spec, '' where it has none."""
    found = re.search(r'\b%s\s*=\s*"((?:[^"\\]|\\.)*)"' % name, text)
    return found.group(1) if found else ""


def options_of(text):
    """{option: default} of a spec; the choices of a list are (first, …)."""
    found = re.search(r"\boptions\s*=\s*\{", text)
    if not found:
        return {}
    depth, at = 1, found.end()
    while depth and at < len(text):
        depth += {"{": 1, "}": -1}.get(text[at], 0)
        at += 1
    inside = re.sub(r"--[^\n]*", "", text[found.end():at - 1])
    return {name: _literal(value) for name, value in
            re.findall(r'(\w+)\s*=\s*(\{[^}]*\}|"[^"]*"|[^,\s]+)', inside)}


def _literal(text):
    if text.startswith("{"):
        return tuple(re.findall(r'"([^"]*)"', text))
    if text in ("true", "false"):
        return text == "true"
    if text.startswith('"'):
        return text[1:-1]
    number = float(text)
    return int(number) if number == int(number) and "e" not in text and "." not in text else number


def rest_of(text):
    """The rule that a spec hands what is no matrix to (`step = rule "adamw"`); None: it has none."""
    found = re.search(r'\bstep\s*=\s*rule\s*"(\w+)"', text)
    return found.group(1) if found else None


def rules():
    """Names of the library's rules."""
    return [n for n in library() if "/" not in n]


def text_of(spec):
    """The text of a spec of the library or of a file; '' where there is none of either."""
    text = library_text(spec)
    if text is None and (spec.endswith(".lua") or "/" in spec):
        try:
            with open(spec) as f:
                text = f.read()
        except OSError:
            text = None
    return text or ""
