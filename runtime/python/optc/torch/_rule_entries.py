"""Entries and values of a rule, what GradScalers ask for, and what the bindings hold."""
from contextlib import suppress

import torch

from .._lib import Absent
from . import _scaling
from ._engines import TYPES
from ._sharded import is_sharded

MODES = {"eval": "to_eval", "train": "to_train"}
MASTERS = {"bf16": "low16", "f16": "f32"}              # the smallest master of a type that is exact


def rounding(param, types):
    """How parameters of a 16-bit type are kept with these `types`."""
    if types.get("param") == param + "sr":
        return "rounded stochastically (%s)" % types["param"]
    if types.get("master", "none") != "none":
        return "master=" + types["master"]
    return ("rounded to nearest; types={\"master\": \"%s\"} keeps what is rounded away, "
            "types={\"param\": \"%ssr\"} rounds stochastically" % (MASTERS[param], param))


class RuleEntries:
    """The part of Optimizer that runs no step. It needs the attributes _rule, _bounds, _release and
    _checking."""

    # ---- for scalers ----
    @property
    def _step_supports_amp_scaling(self):
        """Whether a GradScaler leaves the check and the unscaling to the step. Entries beside it
        that read gradients would read scaled ones."""
        return not self._rule.beside and not self._release and all(
            p.device.type in _scaling.DEVICES and not is_sharded(p) for g in self.param_groups
            for p in g["params"])

    @property
    def _checks_itself(self):
        """Whether optc.torch.GradScaler leaves the check to the step as well. It counts skipped
        steps for `every`: work that is due at a skipped step waits for a whole period. So torch
        checks rules with `every`, unless it cannot: it unscales no f16 and no mixture of plain
        tensors and DTensors, and does not know the stages of a pipeline (group=), which must skip
        together."""
        if self._checking:
            return True
        if self._rule.entries != ["step"] or self._release:
            return False
        if not self._rule.is_periodic or self._group is not None:
            return True
        ps = [p for g in self.param_groups for p in g["params"]]
        unscaled = not any(p.dtype == torch.float16 for p in ps) and len(
            {is_sharded(p) for p in ps}) < 2
        return not (unscaled or self._step_supports_amp_scaling)

    def _found(self):
        return {b.device: b.found() for b in self._bounds}

    # ---- entries and values of the rule ----
    def entries(self):
        """The rule's entries: "step" and others."""
        return list(self._rule.entries)

    def _next_entries(self):
        """The entries of the next step. The count of steps is read only if they depend on it
        (`every` in the spec's list): after a capture reading it waits for the device, and during
        one it fails."""
        lists = [b.rule.gradients() for b in self._bounds] or [["step"]]
        # An entry with a period of 2 or more is missing in the list of step 1 or of step 2.
        if all(each == lists[0] == b.rule.gradients(1) == b.rule.gradients(2)
               for each, b in zip(lists, self._bounds)):
            return lists[0]
        steps, rule = max(((b.binding.get_t(), b.rule) for b in self._bounds), key=lambda x: x[0])
        return rule.gradients(steps + 1)

    # to_eval has put averages into the parameters
    _evaluating = False

    def _refuse_in_evaluation(self, entry):
        """The gradients of averaged weights are not those of the point that a step starts from."""
        if self._evaluating and (entry == "step" or entry in self._rule.gradients):
            raise RuntimeError("%s: %s() in evaluation mode: to_eval has put averaged weights into "
                               "the parameters; call opt.train(), and compute the gradients after "
                               "it" % (self._rule.spec, entry))

    def _note_mode(self, entry, done):
        if self._rule.steps_in_training_only() and entry == ("to_train" if done else "to_eval"):
            self._evaluating = not done

    def _is_evaluating(self, entries):
        """The mode of a file's states. If some of its parameters have averages, to_train takes
        these out."""
        values = [own[n] for own in entries if isinstance(own, dict) for n in self._rule.flags
                  if own.get(n) is not None]
        return self._rule.steps_in_training_only() and any(
            bool(torch.as_tensor(v).any()) for v in values)

    def __getattr__(self, name):
        made = self.__dict__.get("_made")
        # eval(), train(): the names of schedule-free rules' authors
        entry = MODES.get(name, name)
        if made and not name.startswith("_") and entry in self._rule.entries:
            return lambda: self.run(entry)
        raise AttributeError("'%s' object has no attribute '%s'" % (type(self).__name__, name))

    def value(self, name, p=None):
        """A value that the last step left for the caller, such as "clip.grad_norm". For a value per
        tensor, such as "out_of_range": that of the parameter `p`, or without `p` the sum over all
        parameters that have it."""
        total = 0.0
        # bindings with gradients first
        for b in sorted(self._bounds or (), key=lambda b: not any(b.ptrs or ())):
            b.settle()
            if p is None and b.rule.values().get(name) != "tensor":
                return b.binding.value(name)[0]
            for i, q in enumerate(b.owners):
                if q is p:
                    return b.binding.value(name, i)[0]
                if p is None:
                    with suppress(Absent):
                        total += b.binding.value(name, i)[0]
        return total

    @property
    def copies(self):
        """The number of copies of parameters and gradients whose strides the rule does not
        support."""
        return sum(b.copies for b in self._bounds or ())

    def __repr__(self):
        """torch's text, and how 16-bit parameters are kept: torch rounds them at every step and is
        silent."""
        types = self._rule.types if "_rule" in self.__dict__ else {}
        held = {TYPES.get(p.dtype) for group in self.param_groups for p in group["params"]}
        lines = ["%s parameters: %s\n" % (t, rounding(t, types)) for t in MASTERS if t in held]
        text = super().__repr__()
        return text[:-1] + "".join(lines) + text[-1:]

    def how(self):
        """How each binding runs: "built in (…)", "compiled by cc …", "reference evaluator (…)"."""
        return [b.rule.path for b in self._bounds or ()]

    def held(self):
        """Bytes that the bindings hold: states, temporaries, workspace, and graphs kept for
        staggered steps."""
        found = [b.binding.held() for b in self._bounds or ()]
        return {
            k: sum(h[k] for h in found) for k in ("states", "temporaries", "workspace", "graphs")
        }

    def factors(self, p=None):
        """Counts the roots and other factors of matrices since their tensors were bound, for one
        parameter or for all: computed, refused, and the largest residual (optc_factors of optc.h).
        On a GPU this waits for the device."""
        found = [b.binding.factors(i) for b in self._bounds or ()
                 for i in ([-1] if p is None else [i for i, q in enumerate(b.owners) if q is p])]
        return {
            "computed": sum(f["computed"] for f in found),
            "refused": sum(f["refused"] for f in found), "residual": max(
                (f["residual"] for f in found), default=0.0)
        }
