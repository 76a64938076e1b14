"""Rules that torch has: one table with torch's names for states, keys and options."""
import contextlib
import importlib
import inspect

import torch

from .. import library
from .._api import number_of

# One row for each rule that torch has. Keys, defaults and ranges are torch's own: its constructor
# is called.
#   states    {state of the spec: torch's name}
#   keys      {torch's key: hyperparameters it holds}, where the names differ
#   options   {option of the spec: function of a group that gives its value; None leaves the spec's
#             default}
#   spec_of   function of a group: the spec that steps it
#   own       {key: default} of options that torch lacks; they are keys of groups too. None: torch's
#             keys decide
#   negative  hyperparameters that are minus torch's key
#   alias     {another name of the spec: torch's key}
#   implied   {key: (another key, its value if only the first is given)}: each set of coefficients
#             has its steps
TORCH = {}


def _row(spec, states, keys=None, options=None, **more):
    TORCH[spec] = {
        "states": states, "keys": keys or {}, "options": options or {}, "spec_of": None, "own": {},
        "negative": (), "alias": {}, "implied": {}, **more
    }


def is_on(x):
    """Whether a key that switches an option on does so. Reading a tensor of a GPU would wait for
    it: it counts as a number that is not 0."""
    return x is not None and (isinstance(x, torch.Tensor) and x.device.type != "cpu" or
                              float(x) != 0)


BETAS = {"betas": ("beta1", "beta2")}
MOMENTS = {"m": "exp_avg", "v": "exp_avg_sq"}
MOMENTUM = {"momentum_buffer": lambda g: is_on(g["momentum"])}
# torch.optim.Muon, for torch before 2.9, which has none; a test compares it with torch's.
MUON = {
    "lr": 1e-3, "weight_decay": 0.1, "momentum": 0.95, "nesterov": True,
    "ns_coefficients": (3.4445, -4.775, 2.0315), "eps": 1e-7, "ns_steps": 5, "adjust_lr_fn": None
}
SCALES = {
    None: "jordan", "original": "jordan", "match_rms_adamw": "rms", "spectral_unclamped": "spectral"
}
# {rule: {key: values of newer versions of torch, which the constructor of the installed one may
# refuse}}
NEWER = {"muon": {"adjust_lr_fn": ("spectral_unclamped",)}}


def _decoupled(g):
    return bool(g.get("decoupled_weight_decay", False))


def _scale(g):
    if g["scale"] is None:
        if g["adjust_lr_fn"] not in SCALES:
            raise ValueError(
                "Adjust learning rate function %s is not supported" % (g["adjust_lr_fn"],))
        return SCALES[g["adjust_lr_fn"]]
    if g["adjust_lr_fn"] is not None:
        raise ValueError("scale=%r and adjust_lr_fn=%r set the same thing: pass one of them" % (
            g["scale"], g["adjust_lr_fn"]))
    return g["scale"]


def _coefficients(g):
    if g["coefficients"] is not None:
        return g["coefficients"]
    return "jordan" if tuple(g["ns_coefficients"]) == MUON["ns_coefficients"] else "given"


def _coefficient(i):
    def of(g):
        if len(g["ns_coefficients"]) != 3:
            raise ValueError("Coefficients must be a tuple of exactly 3 values")
        return float(g["ns_coefficients"][i]) if _coefficients(g) == "given" else None
    return of


_row("sgd", {"b": "momentum_buffer"},
     options={"nesterov": lambda g: bool(g["nesterov"]), **MOMENTUM})
_row("adam", {**MOMENTS, "vmax": "max_exp_avg_sq"}, BETAS,
     {"amsgrad": lambda g: bool(g["amsgrad"])}, spec_of=lambda g: "adamw"
     if _decoupled(g) else "adam")
_row("adamw", {**MOMENTS, "vmax": "max_exp_avg_sq"}, BETAS,
     {"amsgrad": lambda g: bool(g["amsgrad"])}, spec_of=lambda g: "adamw"
     if g.get("decoupled_weight_decay", True) else "adam")
_row("adamax", {"m": "exp_avg", "u": "exp_inf"}, BETAS)
_row("nadam", MOMENTS, BETAS, {"decoupled": _decoupled})
_row("radam", MOMENTS, BETAS, {"decoupled": _decoupled})
_row("adadelta", {"v": "square_avg", "u": "acc_delta"})
_row("adagrad", {"v": "sum"}, {"initial_accumulator_value": ("initial_accumulator",)})
_row("rmsprop", {"v": "square_avg", "a": "grad_avg", "b": "momentum_buffer"},
     options={"centered": lambda g: bool(g["centered"]), **MOMENTUM})
_row("adafactor", {"v": "variance", "r": "row_var", "c": "col_var"},
     {"beta2_decay": ("decay",), "eps": ("eps1", "eps2"), "d":
         ("clip_threshold",)}, {"torch": lambda g: True},
     own={"relative_step": True, "scale_parameter": True, "momentum": False}, negative=("decay",))
_row("asgd", {"ax": "ax", "eta": "eta", "mu": "mu"})
_row("rprop", {"prev": "prev", "step_size": "step_size"},
     {"etas": ("etaminus", "etaplus"), "step_sizes": ("step_size_min", "step_size_max")})
_row("muon", {"m": "momentum_buffer"}, options={
     "nesterov": lambda g: bool(g["nesterov"]), "steps": lambda g: g["ns_steps"], "scale": _scale,
     "eps": lambda g: float(g["eps"]), "coefficients": _coefficients,
     "a": _coefficient(0), "b": _coefficient(1), "c": _coefficient(2)},
     own={"scale": None, "coefficients": None, "form": "auto"}, alias={"steps": "ns_steps"},
     implied={"coefficients": ("ns_steps", None)})
CLASSES = {
    "sgd": "SGD", "adam": "Adam", "adamw": "AdamW", "adamax": "Adamax", "nadam": "NAdam",
    "radam": "RAdam", "adadelta": "Adadelta", "adagrad": "Adagrad", "rmsprop": "RMSprop",
    "adafactor": "Adafactor", "asgd": "ASGD", "rprop": "Rprop", "muon": "Muon"
}


def _torchs(name):
    """torch's class, from the module that defines it: a program may have put another one, also
    ours, into torch.optim."""
    for module in ("torch.optim." + name.lower(), "torch.optim._" + name.lower()):
        with contextlib.suppress(ModuleNotFoundError):
            return getattr(importlib.import_module(module), name)


KINDS = {spec: _torchs(name) for spec, name in CLASSES.items()}
# {n: rules whose class takes n numbers by position after params: as far as its order equals the
# authors' (a table in tests/python/test_positional.py). Others of the library take lr; torch's
# rules take what torch's classes take.
POSITIONAL = {spec: n for n, specs in {
    0: "dion dion2 dion3 mousse psgd psgd_kron",
    2: "adashift dadapt_adagrad fromage klshampoo lars nero rmnp scion shampoo stableadamw",
    3: "adam_atan2 adamuon aggmo dadapt_lion dadapt_sgd lion mop muonh muown namo pnm polargrad "
       "signum spel tiger",
    4: "adabelief adai adam_mini adan adapnm adatam amos apollo apollo_mini cocob conda cosmos "
       "dadapt_adam dadapt_adan diffgrad dowg grams laprop madgrad mars normuon novograd padam "
       "qhadam qhm sgd_sai sgdp sgdw sm3 sophia tam yogi",
    5: "adahessian adamod adopt asgo came dog ftrl klsoap prodigy rekls rmsprop_tf soap "
       "stable_spam",
    6: "adabound adamp moso schedulefree_radam schedulefree_sgd",
    7: "adagc ademamix schedulefree_adamw simplified_ademamix"}.items() for spec in specs.split()}
# Rules of the library whose `betas` are fewer than their spec's beta1, beta2, …: SOAP's third is
# its shampoo_beta; the authors of Prodigy and AdaMod pass the third as beta3.
FEWER_BETAS = {"adamod": 2, "prodigy": 2, "soap": 2}
# {rule: {the authors' key: the hyperparameters that it holds}}, beside beta1, beta2, … and eps1,
# eps2
SERIES = {"adai": {"betas": ("beta0", "beta2")}, "mars": {"betas_1d": ("beta1_1d", "beta2_1d")},
          "qhadam": {"nus": ("nu1", "nu2")}}
# {rule: {an option: keys without which it is off}}. The authors have the keys alone. If the option
# is None, a key that is neither None nor 0 switches it on.
_MOMENTUM = {"momentum_buffer": ("momentum",)}
SWITCHES = {"ademamix": {"warmup": ("alpha_warmup", "beta3_warmup")}, "amos": _MOMENTUM,
            "fromage": {"bounded": ("p_bound",)}, "rmsprop_tf": _MOMENTUM, "sm3": _MOMENTUM}
# {rule: the keys that may be None, as in the authors' constructors: the spec's default, which
# switches them off}
NONE = {"dog": ("init_eta",), "dowg": ("init_estim_sq_dist", "weight_decay"), "prodigy": ("beta3",),
        "simplified_ademamix": ("beta1_warmup",)}

# {rule or wrapper: hyperparameters that its authors multiply by lr}: they follow lr
# (_rest_rate.py).
RATES = {
    "amuse": ("lr_1d",), "ema_nesterov": ("lookahead_stepsize",), "fira": ("decay",),
    "galore": ("decay",), "mars": ("lr_1d",)
}


def torch_class(spec):
    """torch's class for a rule; None: this torch does not have it yet."""
    return KINDS[spec]


def torch_parameters(spec):
    """[inspect.Parameter] of torch's constructor, without self and params."""
    kind = torch_class(spec)
    if kind is None:
        return [
            inspect.Parameter(k, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=v)
            for k, v in MUON.items()
        ]
    return [
        p for n, p in inspect.signature(kind.__init__).parameters.items()
        if n not in ("self", "params")
    ]


def torch_defaults(spec, given):
    """torch's keys with the given values and torch's defaults. torch's constructor checks the
    values."""
    kind = torch_class(spec)
    if kind is None:
        return {**MUON, **given}
    newer = {k: given[k] for k, values in NEWER.get(spec, {}).items() if given.get(k) in values}
    matrix = torch.zeros((1, 1), requires_grad=True)                     # Muon accepts nothing else
    made = kind([matrix], **{k: v for k, v in given.items() if k not in newer})
    if made.defaults.get("differentiable"):
        raise ValueError("differentiable=True: a step of optc is not differentiable; use "
                         "torch.optim.%s for that"
                         % CLASSES[spec])
    return {**made.defaults, **newer}


def fix_keys(spec, group):
    """Sets what torch's class sets in groups of a file: keys that older files lack, and keys that
    the class fixes, such as AdamW's decoupled_weight_decay."""
    kind = torch_class(spec)
    if kind is not None:
        made = kind.__new__(kind)
        made.__setstate__({"defaults": {}, "state": {}, "param_groups": [{**group, "params": []}]})
        group.update((k, v) for k, v in made.param_groups[0].items() if k != "params")


def literal(text):
    """The value of an option that is given as text."""
    if text in ("true", "false"):
        return text == "true"
    try:
        return number_of(text)
    except ValueError:
        return text


def rules():
    """Names of the library's rules."""
    return [n for n in library() if "/" not in n]
