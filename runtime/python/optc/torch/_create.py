"""Optimizers by name: list_optimizers and create, with the arguments that timm's functions have."""
import fnmatch

import torch

from .._lib import SpecError
from ._engines import asked
from ._optimizer import Optimizer
from ._param_roles import OfModule


def _names():
    """{class: spec} of the library"""
    from . import _rule_classes                        # as the classes, at the first use
    return _rule_classes.names()


def list_optimizers(filter="", exclude_filters=(), with_description=False):
    """The names of the library's rules, sorted. filter: a pattern such as "*muon*", or several; a
    name is listed if one of them fits. exclude_filters: patterns of names to leave out.
    with_description: pairs of a name and a sentence."""
    wanted, unwanted = (
        [x] if isinstance(x, str) else list(x or ()) for x in (filter, exclude_filters))
    names = [n for n in sorted(_names().values())
             if (not any(wanted) or any(fnmatch.fnmatch(n, x.lower()) for x in wanted))
             and not any(fnmatch.fnmatch(n, x.lower()) for x in unwanted if x)]
    return [(n, asked(spec=n).field("doc")) for n in names] if with_description else names


def create(opt, model_or_params, *, filter_bias_and_bn=True, **given):
    """An optimizer by its name.

    opt: a rule's name, as list_optimizers has it or as its class is written ("AdamW"; case, _ and -
    do not matter), also with wrappers ("adamw+clip(1)"). model_or_params: a module, or what torch's
    optimizers take. given: the optimizer's arguments. filter_bias_and_bn: of a module, weight decay
    leaves out parameters with fewer than two dimensions and those of the module's
    no_weight_decay(), as in timm; they are a group with weight_decay 0."""
    rule = _rule_named(opt)
    model = model_or_params
    if not isinstance(model, torch.nn.Module):
        return Optimizer(model, rule, **given)
    params = [(n, p) for n, p in model.named_parameters() if p.requires_grad]
    decays = [
        k for k in _decays(rule, given) if given.get(k.replace(".", "_"), given.get(k, 1)) != 0
    ]
    if not filter_bias_and_bn or not decays:
        return Optimizer(OfModule(params, model), rule, **given)
    out = set(model.no_weight_decay()) if hasattr(model, "no_weight_decay") else set()
    plain = [(n, p) for n, p in params if p.dim() < 2 or n in out]
    others = [(n, p) for n, p in params if not (p.dim() < 2 or n in out)]
    groups = [{"params": others}, {"params": plain, **dict.fromkeys(decays, 0.0)}]
    return Optimizer(OfModule([g for g in groups if g["params"]], model), rule, **given)


def _decays(rule, given):
    """The keys of a group that are weight decays: the rule's, and those of its fallback rule."""
    probe = Optimizer([torch.nn.Parameter(torch.zeros(1))], rule,
                      **{k: v for k, v in given.items() if k in ("options", "with_", "wrappers")})
    return [k for k in probe.defaults if k == "weight_decay" or k.endswith(".weight_decay")]


def _rule_named(opt):
    known = _names()
    name, plus, rest = opt.partition("+")
    spec = name.strip()
    if spec not in known.values() and not ("/" in spec or spec.endswith(".lua")):
        try:
            # a rule of your own, in a folder of $OPTC_PATH
            asked(spec=spec)
        except SpecError as e:
            spec = {_squeezed(x): n for pair in known.items()
                    for x, n in zip(pair, pair[1:] * 2)}.get(_squeezed(spec))
            if spec is None and "there is no optimizer" in str(e):
                raise ValueError("%s; list_optimizers() has all names" % e) from None
            if spec is None:
                raise                                  # an error in the file
    return spec + plus + rest


def _squeezed(name):
    return name.strip().lower().replace("-", "").replace("_", "")
