"""optc.torch.AdamW and others: a class for each rule of the library, made from its spec at the
first access, and the stubs for editors and type checkers (python -m optc.torch._rule_classes >
__init__.pyi)."""
import functools
import inspect
import re
import textwrap
from math import inf

from .. import library_text
from . import _rules
from ._group_keys import GroupKeys, range_text
from ._engines import asked
from ._optimizer import Optimizer

# Names in the authors' spelling; others are made from the words of the spec's name.
SPELLED = {
    "adabelief": "AdaBelief", "adabound": "AdaBound", "adagc": "AdaGC", "adago": "AdaGO",
    "adahessian": "AdaHessian", "adalomo": "AdaLomo", "adamod": "AdaMod", "adamp": "AdamP",
    "adamuon": "AdaMuon", "adapnm": "AdaPNM", "adatam": "AdaTAM", "ademamix": "AdEMAMix",
    "adopt": "ADOPT", "aggmo": "AggMo", "amuse": "AMUSE", "apollo": "APOLLO",
    "apollo_mini": "APOLLOMini", "aro": "ARO", "asgd": "ASGD", "asgo": "ASGO", "came": "CAME",
    "cocob": "COCOB", "cosmos": "COSMOS", "dadapt_adagrad": "DAdaptAdaGrad",
    "dadapt_adam": "DAdaptAdam", "dadapt_adan": "DAdaptAdan", "dadapt_lion": "DAdaptLion",
    "dadapt_sgd": "DAdaptSGD", "diffgrad": "DiffGrad", "dog": "DoG", "dowg": "DoWG",
    "fismo": "FISMO", "ftrl": "FTRL", "gpa_adamw": "GPAAdamW", "klshampoo": "KLShampoo",
    "klsoap": "KLSOAP", "lamb": "LAMB", "laprop": "LaProp", "lars": "LARS", "lomo": "Lomo",
    "madgrad": "MADGRAD", "mars": "MARS", "mop": "MOP", "moso": "MOSO", "muoneq": "MuonEq",
    "muonh": "MuonH", "muonsq": "MuonSq", "namo": "NAMO", "normuon": "NorMuon",
    "novograd": "NovoGrad", "pmuon": "PMuon", "pnm": "PNM", "polargrad": "PolarGrad",
    "psgd": "PSGD", "psgd_kron": "PSGDKron", "qhadam": "QHAdam", "qhm": "QHM", "rekls": "REKLS",
    "rmnp": "RMNP", "rmsprop_tf": "RMSpropTF", "scale": "SCALE",
    "schedulefree_adamw": "AdamWScheduleFree", "schedulefree_radam": "RAdamScheduleFree",
    "schedulefree_sgd": "SGDScheduleFree", "sgd_sai": "SGDSaI", "sgdp": "SGDP", "sgdw": "SGDW",
    "simplified_ademamix": "SimplifiedAdEMAMix", "sinkgd": "SinkGD", "sm3": "SM3", "soap": "SOAP",
    "soap_muon": "SOAPMuon", "spel": "SPEL", "splus": "SPlus", "sron": "SRON",
    "stable_spam": "StableSPAM", "stableadamw": "StableAdamW", "swan": "SWAN", "tam": "TAM",
    **_rules.CLASSES
}
AROUND = (("with_", "Sequence[str]", ()), ("types", "Union[None, str, Mapping[str, str]]", None),
          ("products", "Optional[str]", None), ("static_grads", "bool", False),
          ("release_grads", "bool", False), ("sort", "Optional[Callable]", None),
          ("split", "Union[None, Mapping[str, int], Callable]", None), ("workspace", "int", 0),
          ("process_group", "Any", None), ("group", "Any", None), ("follow_lr", "bool", True))
KEYWORD, EITHER = inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD


def class_name(spec):
    return SPELLED.get(spec) or "".join(w.capitalize() for w in spec.split("_"))


def names():
    """{class: spec} of the library"""
    return {class_name(n): n for n in _rules.rules()}


# a class needs it for its signature and for its documentation
@functools.lru_cache(maxsize=1)
def _own(spec):
    """The rule's declarations, the keys of its groups and the parameters of its class: torch's for
    torch's rules, then the keys of groups, in the spec's order."""
    keys = GroupKeys(spec, None, (), None, None, None, None)
    defaults = keys.defaults({})
    torchs = [p.replace(annotation=inspect.Parameter.empty) for p in _rules.torch_parameters(spec)
              ] if keys.row else []
    known = {p.name for p in torchs} | {"maximize", "differentiable"} | set(
        _rules.torch_defaults(spec, {}) if keys.row else ())

    rule = asked(spec=spec)

    def place(key):
        at = rule.position(dict(keys.keys).get(key, (key,))[0])
        return (key in keys.choices or "." in key, "." in key, at if at >= 0 else float("inf"))
    rest = sorted((k for k in defaults if k not in known), key=place)
    first = 0 if keys.row else _rules.POSITIONAL.get(spec, 1)
    found = torchs + [inspect.Parameter(k.replace(".", "_"), EITHER if i < first else KEYWORD,
                                        default=_plain(defaults[k])) for i, k in enumerate(rest)]
    if "maximize" not in {p.name for p in torchs}:
        found.append(inspect.Parameter("maximize", KEYWORD, default=False))
    return rule, keys, tuple(sorted(found, key=lambda p: p.kind))


def numbers(spec):
    """The hyperparameters of a rule that torch lacks, in the order of its spec."""
    _, keys, params = _own(spec)
    return [p.name for p in params if p.name in dict(keys.keys)]


def _plain(x):
    if isinstance(x, tuple):
        return tuple(map(_plain, x))
    return int(x) if isinstance(x, float) and abs(x) < 1e6 and x == int(x) else x


def signature(spec):
    params = [inspect.Parameter("params", EITHER), *_own(spec)[2]]
    params += [inspect.Parameter(n, KEYWORD, default=d) for n, _, d in AROUND]
    return inspect.Signature(params)


def formula(spec):
    """The code of the spec's entries, and of the functions that they call: the update, as in the
    paper."""
    text = re.sub(r"(?m)^ *--.*\n", "", library_text(spec))
    head, body = re.split(r"(?m)^return (?:optimizer|wrapper) \{\n", text)
    entries = body[re.search(r"(?m)^  \w+ *= *(?:function|rule)\b", body).start():body.rindex("}")]
    shared = [re.sub(r"(?m)^ *--.*\n", "", library_text("shared/" + name)).strip()
              for name in re.findall(r'include "(\w+)"', head)]
    return "\n".join(shared + [head.strip(), textwrap.dedent(entries).strip()]).strip()


def doc(spec):
    rule, keys, params = _own(spec)
    lines = [rule.field("doc") + ".", "", rule.field("cite"), ""]
    ranges = rule.hypers()
    held = {key: names for key, names in keys.keys if names != (key,)}
    for p in params:
        names = held.get(p.name, (p.name,))
        limits = [range_text(ranges[n]) for n in names if n in ranges] if not keys.row else []
        limits = ["one of " +
                  ", ".join(c)] if isinstance(c := keys.declared.get(p.name), tuple) else limits
        lines.append(
            "%s: %s%s" % (p.name, p.default, " (%s)" % "; ".join(limits) if limits else ""))
    for option, others in keys.switches.items():
        lines.append(
            "%s: None means on if %s is given and is not 0" % (option, " or ".join(others)))
    if spec in _rules.TORCH:
        lines.append(
            "Keys, defaults and states are those of torch.optim.%s." % _rules.CLASSES[spec])
    lines.append("types=: storage of states; of 16-bit parameters too, which a step rounds unless "
                 "it is {\"master\": \"low16\"} or {\"param\": \"bf16sr\"}: see "
                 "optc.torch.Optimizer")
    return "\n".join(
        lines +
        ["", "The update, in the language of specs:", "",
         textwrap.indent(formula(spec), "    ")])


def make(name):
    """The class of that name; AttributeError if the library has no such rule."""
    spec = names().get(name)
    if spec is None:
        raise AttributeError("module 'optc.torch' has no attribute '%s'" % name)
    known = signature(spec)
    first, by_name = (
        [p.name for p in _own(spec)[2] if (p.kind == KEYWORD) is x] for x in (False, True))

    def __init__(self, params, *args, **given):
        if len(args) > len(first):
            raise TypeError(
                "%s: %s (%s), and %d were given; give the others by name, such as %s=" %
                (name, "%d arguments after params are taken by position" %
                 len(first) if first else "no argument after params is taken by position",
                 ", ".join(first) or "the authors' order is another", len(args), by_name[0]))
        bound = known.bind_partial(params, *args)
        positional = {k: v for k, v in bound.arguments.items() if k != "params"}
        twice = set(positional) & set(given)
        if twice:
            raise TypeError("%s: %s is given twice" % (name, ", ".join(twice)))
        Optimizer.__init__(self, params, spec, **positional, **given)
    __init__.__signature__ = known.replace(parameters=[inspect.Parameter("self", EITHER)] +
                                           list(known.parameters.values()))
    return type(
        name, (Optimizer,),
        {"__init__": __init__, "__doc__": doc(spec), "__module__": "optc.torch", "spec": spec})


# ---- stubs ----
# entries that HEAD has, with the modes eval and train
COMMON = ("step", "perturb", "to_eval", "to_train")
# Keywords of rules whose vectors AdamW steps.
ADAMW = tuple("adamw_" + n for n in ("beta1", "beta2", "eps", "lr", "weight_decay", "amsgrad"))
HEAD = '''\
# Made by `python -m optc.torch._rule_classes`: what optc.torch has, for editors and type checkers.
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple, Union

import torch
from typing_extensions import TypedDict, Unpack

from ._kfac import kfac_inputs as kfac_inputs
from ._samples import per_sample as per_sample

Number = Union[float, torch.Tensor]
Pair = Tuple[float, float]

def sorted_by(optimizer: Optimizer) -> Dict[str, str]: ...
def list_optimizers(filter: Union[str, Sequence[str]] = ...,
                    exclude_filters: Union[str, Sequence[str]] = ...,
                    with_description: bool = ...) -> List[Any]: ...
def create(opt: str, model_or_params: Any, *, filter_bias_and_bn: bool = ...,
           **given: Any) -> Optimizer: ...
def race(model_fn: Callable[[], torch.nn.Module], data_fn: Callable[[int, int], Tuple[Any, ...]],
         rules: Sequence[str], *, loss_fn: Optional[Callable[[Any, Any], torch.Tensor]] = ...,
         steps: int = ..., every: Optional[int] = ..., target: Optional[float] = ...,
         seeds: int = ..., first_seed: int = ..., trials: int = ..., schedule: str = ...,
         device: Any = ..., name: str = ..., out: Optional[str] = ..., json: Optional[str] = ...,
         verbose: bool = ...) -> Dict[str, Any]: ...

class GradScaler(torch.amp.GradScaler): ...

class Optimizer(torch.optim.Optimizer):
    def __init__(self, params: Any, rule: Optional[str] = None, *, spec: Optional[str] = None,
                 with_: Union[str, Sequence[str]] = (),
                 options: Union[None, str, Mapping[str, Any]] = None,
                 types: Union[None, str, Mapping[str, str]] = None,
                 wrappers: Optional[Mapping[str, str]] = None, products: Optional[str] = None,
                 static_grads: bool = False, release_grads: bool = False,
                 sort: Optional[Callable] = None,
                 split: Union[None, Mapping[str, int], Callable] = None, workspace: int = 0,
                 process_group: Any = None, group: Any = None, follow_lr: bool = True,
                 **given: Any) -> None: ...
    def step(self, closure: Optional[Callable[[], Any]] = None) -> Any: ...
    def run(self, entry: str) -> None: ...
    # entries of wrappers and of rules, if this optimizer has them: entries() lists them
    def perturb(self) -> None: ...
    def to_eval(self) -> None: ...
    def to_train(self) -> None: ...
    def eval(self) -> None: ...
    def train(self) -> None: ...
    def entries(self) -> List[str]: ...
    def set_input(self, p: torch.Tensor, name: str, tensor: torch.Tensor) -> None: ...
    def set_scalar(self, name: str, value: float, group: Optional[int] = None) -> None: ...
    def value(self, name: str, p: Optional[torch.Tensor] = None) -> float: ...
    def push(self) -> None: ...
    def params_changed(self, *params: torch.Tensor) -> None: ...
    def how(self) -> List[str]: ...
    def held(self) -> Dict[str, int]: ...
    def factors(self, p: Optional[torch.Tensor] = None) -> Dict[str, float]: ...
    @property
    def copies(self) -> int: ...
'''


def _kind(p):
    known = {n: t for n, t, _ in AROUND}
    if p.name in known:
        return known[p.name]
    if p.name in ("foreach", "fused"):
        return "Optional[bool]"
    d = p.default
    if isinstance(d, bool):
        return "bool"
    if isinstance(d, tuple):
        return "Pair" if len(d) == 2 and None not in d else "Tuple[%s]" % ", ".join(
            "Optional[float]" if x is None else "float" for x in d)
    if isinstance(d, str):
        return "str"
    if d is None:
        switches = [pair for row in _rules.SWITCHES.values() for pair in row.items()]
        number = p.name == "base_lr" or any(p.name in keys for _, keys in switches)
        return "Optional[%s]" % ("Number"
                                 if number else "bool" if p.name in dict(switches) else "str")
    return "Number"


def stubs():
    """The text of __init__.pyi."""
    from . import FUNCTIONS
    found = [HEAD, "\n".join(_function(f) for f in FUNCTIONS), _keywords()]
    for name, spec in sorted(names().items()):
        rule = asked(spec=spec)
        rows, star = ["self", "params: Any"], False
        params = list(signature(spec).parameters.values())[1:]
        by_adamw = {p.name for p in params} >= set(ADAMW)
        held = {n for n, _, _ in AROUND} | (set(ADAMW) if by_adamw else set())
        for p in params:
            if p.name in held or (p.name, p.kind) == ("maximize", KEYWORD):
                continue
            if p.kind == KEYWORD and not star:
                rows.append("*")
                star = True
            rows.append(
                ("%s: %s = %s" % (p.name, _kind(p), "..." if p.default == inf else
                                  repr(p.default))).replace(" ", "\0"))
        rows.append("**more:\0Unpack[%s]" % ("WithAdamW" if by_adamw else "Common"))
        lines = ["class %s(Optimizer):" % name]
        lines += _wrapped('"""%s."""' % rule.field("doc"), 4, 4)
        # no line ends with an arrow, which is outside of the parentheses
        lines += [
            x.replace("\0", " ")
            for x in _wrapped("def __init__(%s)\0->\0None: ..." % ", ".join(rows), 4, 8)
        ]
        lines += ["    def %s(self) -> None: ..." % e for e in rule.entries() if e not in COMMON]
        found.append("\n".join(lines))
    return "\n".join(found) + "\n"


def _keywords():
    """The keywords that most classes have, for the stubs."""
    rows = ["class Common(TypedDict, total=False):", "    maximize: bool"]
    rows += ["    %s: %s" % (n, kind) for n, kind, _ in AROUND]
    rows += ["", "class WithAdamW(Common, total=False):"]
    rows += ["    %s: %s" % (n, "bool" if n.endswith("amsgrad") else "Number") for n in ADAMW]
    return "\n".join(rows) + "\n"


def _function(f):
    """The signature of a function, for the stubs."""
    text = "def %s%s: ..." % (f.__name__, inspect.signature(f))
    # the line is not broken after the last parenthesis
    head, arrow, gives = text.rpartition(") -> ")
    return "\n".join(
        _wrapped(head + arrow.replace(" ", "\0") + gives.replace(" ", "\0"), 0,
                 5 + len(f.__name__))).replace("\0", " ") + "\n"


def _wrapped(text, first, rest):
    return textwrap.wrap(text, 100, initial_indent=" " * first, subsequent_indent=" " * rest,
                         break_long_words=False, break_on_hyphens=False)


if __name__ == "__main__":
    print(stubs(), end="")
