"""The rate of the fallback rule (adamw.lr of Muon) follows lr, which is all that torch's schedulers change."""
import math
import warnings
from numbers import Real

import torch

from ._group_keys import number


def _value(rate):
    """A rate as a number. None: it is missing, is not a number, or is a tensor of another device, which the host would
    have to wait for."""
    if isinstance(rate, torch.Tensor):
        return rate.detach().item() if rate.device.type == "cpu" and rate.numel() == 1 else None
    try:
        return rate if isinstance(rate, Real) else number(rate)        # an array of NumPy
    except (TypeError, ValueError):
        return None


def _pair(group, key):
    """(lr, the fallback rule's rate) of a group as numbers, or None if one of them has no value here."""
    pair = _value(group.get("lr")), _value(group.get(key))
    return None if None in pair else pair


def _version(rate):
    return rate._version if isinstance(rate, torch.Tensor) and not rate.is_inference() else 0


class Rates:
    """base: for each group the pair of rates whose ratio holds. last: the pairs after the last call. marks: for each
    group the fallback rule's rate as this class left it, and its version. on: follow() changes rates.

    A number that the caller assigns is another object than the mark, even if it is equal: marks are copies that the
    caller never has. A tensor that the caller writes to has another version."""

    def __init__(self, opt, on):
        self.on, self.base, self.last, self.marks, self.warned = on and bool(opt._rule.rest), [], [], [], False
        self.note(opt)

    def __getstate__(self):
        return {**self.__dict__, "marks": []}          # copies and pickles have other objects

    def __setstate__(self, state):
        self.__dict__.update({"warned": False, **state, "marks": []})      # pickles of older versions lack both

    def note(self, opt):
        """Takes the ratios of all groups as they are now: after construction and loading. If lr is 0, the ratio of
        before holds."""
        if self.on:
            old, key = self.base, "%s.lr" % opt._rule.rest
            self.last = [_pair(g, key) for g in opt.param_groups]
            self.base = [pair if pair and pair[0] else old[k] if k < len(old) else None
                         for k, pair in enumerate(self.last)]
            self.marks = [self._mark(g, key) for g in opt.param_groups]

    def adopt(self, opt):
        """Sets the marks of a copied or unpickled optimizer. Changes of values that are pending stay so."""
        if self.on:
            self.marks = [self._mark(g, "%s.lr" % opt._rule.rest) for g in opt.param_groups]

    def _mark(self, group, key):
        rate = group.get(key)
        if isinstance(rate, Real):
            rate = group[key] = rate * 1.0             # a new object
        return rate, _version(rate)

    def _is_marked(self, k, rate):
        return self.marks[k][0] is rate and self.marks[k][1] == _version(rate)

    def follow(self, opt):
        """Sets the fallback rule's rate of groups whose lr a scheduler changed. A rate that the user set stays, and its
        ratio holds from then on. Takes the ratios of groups that were added."""
        key = "%s.lr" % opt._rule.rest
        for k, group in enumerate(opt.param_groups if self.on else ()):
            pair = _pair(group, key)
            if k == len(self.last):
                self.last.append(pair)
                self.base.append(pair if pair and pair[0] else None)
                self.marks.append(self._mark(group, key))
            if pair and not math.isfinite(pair[0]):
                continue                               # the step refuses it
            was, base = self.last[k], self.base[k]
            given = not was or not pair or pair[1] != was[1] or not self._is_marked(k, group[key])
            if not pair:
                self._warn(group, key, k)
            elif given or pair[0] != was[0]:
                if base and not given and "initial_lr" in group:
                    self._set(group, key, base[1] * (pair[0] / base[0]))
                elif pair[0]:
                    self.base[k] = pair
            self.last[k] = _pair(group, key)
            if not self._is_marked(k, group.get(key)):
                self.marks[k] = self._mark(group, key)

    def _set(self, group, key, value):
        if isinstance(group[key], torch.Tensor):
            with torch.no_grad():
                group[key].fill_(value)                # as torch's schedulers change a tensor
        else:
            group[key] = value

    def _warn(self, group, key, k):
        far = [n for n in ("lr", key) if isinstance(group.get(n), torch.Tensor) and group[n].device.type != "cpu"]
        if far and "initial_lr" in group and not self.warned:
            warnings.warn("optc: param_groups[%d][\"%s\"] is a tensor on %s: %s does not follow the scheduler, because "
                          "reading it would wait for the device; set %s yourself and pass follow_lr=False, or keep lr "
                          "on the CPU" % (k, far[0], group[far[0]].device, key, key), stacklevel=2)
            self.warned = True
