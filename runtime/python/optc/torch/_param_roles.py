"""What routing decides about each parameter: its name, part (matrix or rest), split and tags.

A decision belongs to the parameter object. It passes to another object that takes the same name, or
the same position with the same shape, as when FSDP2 replaces parameters of an optimizer that exists
already.

Ids tell objects apart only while the objects live. Bindings keep them alive from the first step on.
Before it nothing here does: replaced parameters must be freed (accelerate relies on that), and
torch.utils.swap_tensors refuses tensors with weak references. Then names and positions decide, and
ids only where a list became shorter or longer, or has the same ids and addresses in another
order."""
import warnings
from difflib import get_close_matches
from operator import index
from typing import NamedTuple, Optional

import torch

from .._lib import USE_STEP
from ._group_keys import user_level
from ._param_routing import Answers, Ends, called, warn_of_unnamed, warn_of_vectors


class Part(NamedTuple):
    """How the library steps a parameter: fields of optc_tensor."""
    flags: int = 0
    split: int = 0
    tags: Optional[str] = None


class Role:
    """words: "matrix", "rest", tags ("head", "embed"), or a default: "vector", "first". said: the
    answer of the group under which this was decided. fixed: it was copied or unpickled, and cannot
    be decided again."""

    def __init__(self, p, name, words, split, said, fixed=False):
        self.id, self.name, self.shape, self.at = id(p), name, tuple(p.shape), _address(p)
        self.words, self.split, self.said, self.fixed = words, split, said, fixed

    def is_of(self, p):
        """Whether this was decided for p. An object with the id of a freed one may take its memory
        too."""
        return self.id == id(p) and self.shape == tuple(p.shape) and 0 != self.at == _address(p)

    def part(self, rest, asks):
        """rest: the rule has a fallback rule. asks: the tags that it looks for."""
        if self.words == "rest" or not self.shape:
            return Part(USE_STEP, self.split)
        tags = [x for x in self.words.split() if x in asks]
        if self.words == "matrix" and self.split > 1 and "heads" in asks:
            tags = ["heads"]                           # the only use of a split by Adam-mini
        if self.words == "matrix" and len(self.shape) == 1 and "vector" in asks:
            tags = ["vector"]
        to_rest = rest and not tags and self.words != "matrix"
        return Part(USE_STEP if to_rest else 0, self.split, " ".join(tags) or None)


def _address(p):
    """0: p has no memory of its own, such as a meta tensor, a fake tensor or a DTensor."""
    return p.data_ptr() if type(p) in (torch.Tensor,
                                       torch.nn.Parameter) and p.layout == torch.strided else 0


class OfModule(list):
    """Named parameters or groups of a module, whose structure decides about routing."""

    def __init__(self, params, module):
        super().__init__(params)
        self.module = module


def names_of(group):
    """The names of a group's parameters. Those that were appended to its list have None."""
    names, n = list(group.get("param_names") or ()), len(group["params"])
    return names[:n] + [None] * (n - len(names))


class Roles:
    """The roles of an optimizer's parameters: rows[k][i] for param_groups[k]["params"][i]. sort and
    split: the user's, or None. module: the model, or None. named: the last role of each (group,
    name)."""

    def __init__(self, sort=None, split=None, module=None):
        if sort is not None and not callable(sort):
            raise TypeError("sort= is a function of (name, parameter), not %r; in a group, sort is "
                            "its answer for the group's parameters" % (sort,))
        if split is not None and not callable(split) and not hasattr(split, "get"):
            raise TypeError("split= is {name: n} or a function of (name, parameter), not %r" % (
                split,))
        self.sort, self.split, self.module = sort, split, module
        self.rows, self.named = [], {}

    def first(self, opt):
        """Decides for all parameters of a new optimizer, and warns of probable mistakes."""
        self.follow(opt)
        rule, parts = opt._rule, [x for row in self.parts(opt) for x in row]
        params = [p for g in opt.param_groups for p in g["params"]]
        rows = list(zip(params, (r for row in self.rows for r in row)))
        asks = [rule.asks_for(g, k) for k, g in enumerate(opt.param_groups)]
        if (rule.rest or any({"head", "embed"} & x for x in asks)) and not (
                self.module or self.sort):
            warn_of_unnamed([x for x in rows if x[1].said is None], rule.spec,
                            "as a matrix" if rule.rest else "alike")
        matrices = [p for p, part in zip(params, parts)
                    if (p.dim() > 1 or part.tags) and not part.flags]
        if rule.rest and rows and not matrices:
            warn_of_vectors(rows, rule.spec, rule.rest)
        if isinstance(self.split, dict):
            warn_of_names([n for n, k in self.split.items() if k], [r.name for _, r in rows])

    def saved(self, opt):
        """The decisions for a copy or a pickle, in the order of the parameters."""
        self.follow(opt)
        return [(r.words, r.split) for row in self.rows for r in row]

    def restore(self, opt, saved):
        """saved: what saved() returned. Older versions have flags in place of words."""
        found = iter(saved)
        for k, group in enumerate(opt.param_groups):
            self.rows.append([])
            for p, name in zip(group["params"], names_of(group)):
                words, split = next(found)
                words = words if isinstance(words, str) else "rest" if words else "matrix"
                role = Role(p, name, words, split, group.get("sort"), fixed=True)
                self.rows[k].append(role)
                self.named[k, name] = role

    def follow(self, opt, anew=False):
        """Decides for parameters that are new, and for those whose group has another `sort` now.
        anew: also for the others, except those that are bound or cannot be decided again: a group
        was added, and the order of all parameters tells which are heads."""
        groups = opt.param_groups
        if not anew and self._is_current(groups):
            return
        ends = Ends([x for g in groups for x in zip(names_of(g), g["params"])], self.module)
        rows, named = [], dict(self.named)
        every = {r.id: r for row in reversed(self.rows) for r in reversed(row)}
        for k, group in enumerate(groups):
            answers = Answers(opt._rule, group, k)
            row = []
            for p, name, r in zip(group["params"], *self._before(k, group, every, opt._places)):
                again = anew and r is not None and not r.fixed and p not in opt._places
                if r is None or again or r.id != id(p) or r.said != group.get("sort"):
                    r = self._decided(p, name, None if again else r, answers, ends)
                row.append(r)
                if r.name is not None:
                    named[k, r.name] = r
            rows.append(row)
        self.rows, self.named = rows, named

    def _is_current(self, groups):
        return len(self.rows) == len(groups) and all(
            len(row) == len(g["params"]) and all(
                r.id == id(p) and r.said == g.get("sort") for r, p in zip(row, g["params"]))
            for row, g in zip(self.rows, groups))

    def _before(self, k, group, every, bound):
        """(names, roles) of a group's parameters as they were decided before; None: it is new.
        every: {id: role} of all groups."""
        params, names = group["params"], names_of(group)
        row = self.rows[k] if k < len(self.rows) else []
        own = {r.id: r for r in reversed(row)}
        moved = [own.get(id(p)) or every.get(id(p)) for p in params]
        # Another order of the same objects: the first of new ones would have an id of its own.
        ordered = len(params) == len(own) and all(
            id(p) in own and own[id(p)].is_of(p) for p in params)
        # the same object
        sure = [r is not None and (p in bound or ordered or len(params) != len(row))
                for p, r in zip(params, moved)]
        taken = {r.name for r, ok in zip(moved, sure) if ok}
        given, found = set(names) - {None}, []
        for i, (p, r) in enumerate(zip(params, moved)):
            here = row[i] if i < len(row) else None
            if sure[i] or here is not None and here.id == id(p):
                r = r if sure[i] else here
                names[i] = r.name
            else:
                names[i] = name = None if names[i] in taken else names[i]
                others = [x for x in (here, r) if x is not None and x.shape == tuple(p.shape)
                          and x.name not in given]     # a file may have brought other names
                r = self.named.get((k, name)) if name is not None else None
                r = r or (others or [None])[0]
            found.append(r)
        return names, found

    def _decided(self, p, name, before, answers, ends):
        said, words = answers.said, answers.of_group()
        split = self._split_of(name, p) if before is None else before.split
        if before is not None and before.said == said:
            words = before.words
        if words is None and self.sort is not None:
            words = answers.of_function(self.sort(name, p), name, p)
        if words is None:
            words = ends.words(p) if answers.matter() else "matrix"
        if split > 1 and p.dim() > 2 and before is None and not ends.is_kernel(p):
            refuse_split(name, p, split)
        return Role(p, name, words, split, said, before is not None and before.fixed)

    def _split_of(self, name, p):
        s = self.split
        n = 0 if s is None else (s(name, p) if callable(s) else s.get(name, 0)) or 0
        try:
            return index(n)
        except TypeError:
            raise ValueError("split= has %r for %s: it must be the number of matrices in it" % (
                n, called(name, p))) from None

    def parts(self, opt):
        """[[Part]] of all groups."""
        self.follow(opt)
        rest = bool(opt._rule.rest)
        asks = [opt._rule.asks_for(g, k) for k, g in enumerate(opt.param_groups)]
        return [[r.part(rest, a) for r in row] for row, a in zip(self.rows, asks)]


def warn_of_names(given, names):
    """Warns of names in split= that no parameter has: they have no effect."""
    missing = [n for n in given if n not in names]
    if missing:
        near = get_close_matches(str(missing[0]), [n for n in names if n], 1)
        more = " and %d more" % (len(missing) - 1) if missing[1:] else ""
        hint = "; did you mean '%s'?" % near[0] if near else ""
        if not any(names):
            hint = ": pass a module or named parameters"
        warnings.warn("optc: split= names '%s'%s, and no parameter of this optimizer has that "
                      "name%s" % (missing[0], more, hint), stacklevel=user_level())


def refuse_split(name, p, n):
    """Refuses to split what is neither a matrix nor the kernel of a convolution. The library
    divides the rows of the view of two dimensions: a matrix of a stack would be one row."""
    cols = max(1, p.shape[-1])
    raise ValueError(
        "split=%d of %s: it has shape %s, and only matrices and kernels of convolutions can be "
        "split; make it a parameter of %d x %d, or one parameter for each matrix. For a kernel "
        "pass the module to the optimizer, not its parameters" % (
            n, called(name, p), tuple(p.shape), p.numel() // cols, cols))


def sorted_by(optimizer):
    """{name: how an optimizer steps the parameter}: "matrix", "rest" (by the fallback rule), or the
    tags with which the rule gets it as a matrix ("head", "embed", "heads", "vector")."""
    roles, parts, found = optimizer._roles, optimizer._roles.parts(optimizer), {}
    for k, group in enumerate(optimizer.param_groups):
        for i, (p, role, part) in enumerate(zip(group["params"], roles.rows[k], parts[k])):
            place = "param_groups[%d][%d]" % (k, i) if group.get("param_names") else str(len(found))
            found[role.name or place] = "rest" if part.flags else part.tags or (
                "matrix" if p.dim() > 1 else "rest")
    return found
