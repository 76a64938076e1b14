"""The rate of the fallback rule (adamw.lr of Muon) follows lr, which is all that torch's schedulers change."""
import torch


def _pair(opt, group):
    """(lr, the fallback rule's rate) of a group. None: it lacks one of them, or one is a tensor."""
    pair = group.get("lr"), group.get("%s.lr" % opt._rule.rest)
    return None if any(x is None or isinstance(x, torch.Tensor) for x in pair) else pair


class Rates:
    """base: for each group the pair of rates whose ratio holds. last: the pairs after the last call. on: follow()
    changes rates."""

    def __init__(self, opt, on):
        self.on, self.base, self.last = on and bool(opt._rule.rest), [], []
        self.note(opt)

    def note(self, opt):
        """Takes the ratios of the groups as they are now: after construction, loading and add_param_group. If lr is 0,
        the ratio of before holds."""
        if self.on:
            old = self.base
            self.last = [_pair(opt, g) for g in opt.param_groups]
            self.base = [pair if pair and pair[0] else old[k] if k < len(old) else None
                         for k, pair in enumerate(self.last)]

    def follow(self, opt):
        """Sets the fallback rule's rate of groups whose lr a scheduler changed. A rate that the user set stays, and its
        ratio holds from then on."""
        for k, group in enumerate(opt.param_groups if self.on else ()):
            pair = _pair(opt, group)
            was, base = self.last[k], self.base[k]
            if pair and was and pair != was:
                if base and pair[1] == was[1] and "initial_lr" in group:
                    group["%s.lr" % opt._rule.rest] = base[1] * (pair[0] / base[0])
                elif pair[0]:
                    self.base[k] = pair
            self.last[k] = _pair(opt, group)
