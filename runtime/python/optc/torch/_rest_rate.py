"""Further rates of a group follow lr, which is all that torch's schedulers change: that of the
fallback rule (adamw.lr of Muon), and those that the authors of a rule or wrapper multiply by lr
(lr_1d of MARS)."""
import math
import warnings
from numbers import Real

import torch

from ._group_keys import number


def _value(rate):
    """A rate as a number. None: it is missing, is not a number, or is a tensor of another device,
    which the host would have to wait for."""
    if isinstance(rate, torch.Tensor):
        return rate.detach().item() if rate.device.type == "cpu" and rate.numel() == 1 else None
    try:
        return rate if isinstance(rate, Real) else number(rate)        # an array of NumPy
    except (TypeError, ValueError):
        return None


def _version(rate):
    return rate._version if isinstance(rate, torch.Tensor) and not rate.is_inference() else 0


class Rate:
    """One key that follows lr. base: for each group the pair (lr, rate) whose ratio holds. last:
    the pairs after the last call. marks: for each group the rate as this class left it, and its
    version. always: it follows every change of lr, as in the authors' code; otherwise only a
    scheduler's.

    A number that the caller assigns is another object than the mark, even if it is equal: marks are
    copies that the caller never has. A tensor that the caller writes to has another version."""

    def __init__(self, key, always):
        self.key, self.always, self.base, self.last, self.marks = key, always, [], [], []

    def __getstate__(self):
        return {**self.__dict__, "marks": []}          # copies and pickles have other objects

    def note(self, groups):
        """Takes the ratios as they are now. If lr is 0, the ratio of before holds."""
        old = self.base
        self.last = [self._pair(g) for g in groups]
        self.base = [
            pair if pair and pair[0] else old[k] if k < len(old) else None
            for k, pair in enumerate(self.last)
        ]
        self.marks = [self._mark(g) for g in groups]

    def adopt(self, groups):
        self.marks = [self._mark(g) for g in groups]

    def _pair(self, group):
        """(lr, rate) of a group as numbers, or None if one of them has no value here."""
        pair = _value(group.get("lr")), _value(group.get(self.key))
        return None if None in pair else pair

    def _mark(self, group):
        rate = group.get(self.key)
        if isinstance(rate, Real):
            rate = group[self.key] = rate * 1.0        # a new object
        return rate, _version(rate)

    def _is_marked(self, k, rate):
        return self.marks[k][0] is rate and self.marks[k][1] == _version(rate)

    def follow(self, groups):
        """Sets the rate of groups whose lr changed. A rate that the user set stays, and its ratio
        holds from then on. Takes the ratios of groups that were added. Returns the numbers of
        groups whose rates have no value here."""
        far = []
        for k, group in enumerate(groups):
            pair = self._pair(group)
            if k == len(self.last):
                self.last.append(pair)
                self.base.append(pair if pair and pair[0] else None)
                self.marks.append(self._mark(group))
            if pair and not math.isfinite(pair[0]):
                continue                               # the step refuses it
            was, base = self.last[k], self.base[k]
            given = not was or not pair or pair[1] != was[1] or not self._is_marked(
                k, group[self.key])
            if not pair:
                far.append(k)
            elif given or pair[0] != was[0]:
                if base and not given and (self.always or "initial_lr" in group):
                    self._set(group, base[1] * (pair[0] / base[0]))
                elif pair[0]:
                    self.base[k] = pair
            self.last[k] = self._pair(group)
            if not self._is_marked(k, group.get(self.key)):
                self.marks[k] = self._mark(group)
        return far

    def _set(self, group, value):
        if isinstance(group[self.key], torch.Tensor):
            with torch.no_grad():
                group[self.key].fill_(value)           # as torch's schedulers change a tensor
        else:
            group[self.key] = value


class Rates:
    """each: the rates of an optimizer that follow lr. None: it was pickled by a version that had
    one, whose values are in `old`."""

    def __init__(self, opt, on):
        self.warned, self.each = False, [Rate(*row) for row in (opt._rule.rates() if on else ())]
        self.note(opt)

    def note(self, opt):
        """Takes the ratios of all groups as they are now: after construction and loading."""
        for rate in self.each:
            rate.note(opt.param_groups)

    def adopt(self, opt):
        """Sets the marks of a copied or unpickled optimizer. Changes of values that are pending
        stay so."""
        old = self.__dict__
        if "each" not in old:
            self.each = [Rate(*row) for row in (opt._rule.rates() if old.get("on") else ())]
            for rate in self.each:
                rate.base, rate.last = old["base"], old["last"]
            self.warned = old.get("warned", False)
        for rate in self.each:
            rate.adopt(opt.param_groups)

    def follow(self, opt):
        for rate in self.each:
            for k in rate.follow(opt.param_groups):
                self._warn(opt.param_groups[k], rate, k)

    def _warn(self, group, rate, k):
        key = rate.key
        far = [
            n for n in ("lr", key)
            if isinstance(group.get(n), torch.Tensor) and group[n].device.type != "cpu"
        ]
        if far and "initial_lr" in group and not self.warned:
            warnings.warn(
                "optc: param_groups[%d][\"%s\"] is a tensor on %s: %s does not follow "
                "the scheduler, because reading it would wait for the device; set %s "
                "yourself and pass follow_lr=False, or keep lr on the CPU" %
                (k, far[0], group[far[0]].device, key, key), stacklevel=2)
            self.warned = True
