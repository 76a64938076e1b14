"""How an optimizer runs entries of its rule: a step, the entries between the gradients of sam and
its kin, and others."""
import contextlib
import warnings

import torch

from .. import _lib
from . import _state
from ._group_keys import user_level
from ._scaling import CHECKING, SCALER
from ._sharded import Sharded
from ._tensor_binding import nothing

ESTIMATES = {"set_hessian", "update_hessian"}          # entries of AdaHessian and Sophia


class EntryRuns:
    """The part of Optimizer that runs entries. It needs the attributes _rule, _bounds, _shared,
    _handles, _scaled."""

    # an entry beside "step" ran, or the user was warned
    _climbed = False

    def _warn_of_one_gradient(self):
        """Warns at the first step of sam and its kin that got one gradient: a loop that knows
        nothing of them would train without them. A step without gradients is no such step."""
        if not any(any(b.ptrs or ()) for b in self._bounds):
            return
        self._climbed = True
        entries = self._next_entries()
        if len(entries) > 1:
            warnings.warn(
                "optc: this rule takes %d gradients in a step (%s), and step() was "
                "called without a closure and without %s(): it stepped by one gradient "
                "only; pass a closure that computes the loss and its gradients" %
                (len(entries), ", ".join(entries), entries[0]), stacklevel=user_level())

    def _warn_of_no_estimate(self, entry):
        """Warns at the first step of a rule whose estimate of the Hessian another entry takes, if
        that has not run: others' AdaHessian and Sophia-H compute it in step(). They need gradients
        that can be differentiated. Sophia's own authors begin without an estimate."""
        grads = [p.grad for g in self.param_groups for p in g["params"] if p.grad is not None]
        if not grads or self._capturing():
            return
        self._climbed = True
        known = any(b.binding.get_t() for b in self._bounds)           # a file was loaded
        if not known and (entry == "set_hessian" or any(x.requires_grad for x in grads)):
            warnings.warn("optc: %s: step() was called before %s(), so the Hessian is not estimated"
                          "; put the estimate in place of the gradients and call %s(), then put "
                          "the gradients back and call step()" % (self._rule.spec, entry, entry),
                          stacklevel=user_level())

    def _called(self, closure):
        with torch.enable_grad():
            return closure()

    def _step_by_gradients(self, closure):
        """Runs the entries of this step; the closure was called for the first one."""
        with torch.inference_mode(False) if torch.is_inference_mode_enabled() else nothing:
            # the count of steps is known once tensors are bound
            self._ready()
        first, *others = self._next_entries()
        starts = _state.starting_points(self) if others else []
        try:
            self.run(first)
            for entry in others:
                self._loss = self._called(closure)
                self.run(entry)
        except BaseException:                          # moves the parameters back
            _state.restore(self, starts)
            raise

    def run(self, entry):
        """Runs an entry of the rule: "step", "perturb", "to_eval", …"""
        if entry != "step" and (entry in self._rule.gradients or entry in ESTIMATES):
            self._climbed = True
        with torch.inference_mode(False) if torch.is_inference_mode_enabled() else nothing:
            try:
                self._run(entry)
            finally:
                for b in self._bounds or ():
                    b.let_go()

    def _run(self, entry):
        self._refuse_in_evaluation(entry)
        fresh = self._bounds is None
        found, scale = self.__dict__.get("found_inf"), self.__dict__.get("grad_scale")
        if scale is not None:
            wanted = CHECKING if self._checking else SCALER
            # needs a rule that divides by the scale
            if self._scaled not in (wanted, CHECKING):
                self._scaled, self._shape = wanted, None
        try:
            self._ready()
        # torch reads no group that has nothing to step
        except _lib.RangeError:
            if entry != "step" or any(
                    p.grad is not None for g in self.param_groups for p in g["params"]):
                raise
            return
        self._refuse_in_evaluation(entry)              # edited states may have brought the mode
        if fresh and entry == "step" and _state.is_empty_step(self):
            for b in self._bounds:
                self._appear(b)
            return
        if entry == "step" and len(self._rule.gradients) > 1 and not self._climbed:
            self._warn_of_one_gradient()
        if entry == "step" and not self._climbed:
            for estimate in ESTIMATES.intersection(self._rule.entries):
                self._warn_of_no_estimate(estimate)
        if found is not None:
            comms = [b.comm for b in self._bounds] + [
                self._shared.stages.comm if self._shared and self._shared.stages else None
            ]
            for comm in {id(c): c for c in comms if c}.values():
                found = comm.largest(found)
        loss, self._loss = self._loss, None
        if loss is not None:
            for b in self._bounds:
                b.take_loss(loss)
        for b in self._bounds:
            if found is not None or scale is not None or b.scaling is not None:
                b.guarded(found, scale, bool(self._scaled))
        if self._shared:
            if self._shared.idle(entry):
                return
        self._note_mode(entry, False)
        try:
            if self._handles is not None:
                self._run_together(entry)
            else:
                self._shared and self._shared.run(entry)
                for b in self._bounds:
                    b.run(entry)
                    self._done(b, entry)
        except BaseException:
            self._recover()
            raise
        self._note_mode(entry, True)

    def _done(self, b, entry):
        if b.unseen and entry == "step":
            self._appear(b)
        b.running = None

    def _recover(self):
        """Completes runs that an interrupt ended, so that counts and states are those of the
        library."""
        for b in self._bounds or ():
            if b.running is not None:
                self._done(b, "step" if b.recover() else None)

    def _run_together(self, entry):
        for b in self._bounds:
            b.before_run()
            b.running = entry
        try:
            _lib.lib.optc_run_all(self._handles, len(self._bounds), entry.encode())
        # the library keeps the runs before the one that failed
        except _lib.Error:
            with contextlib.suppress(_lib.Error):      # a GPU that can do no more work
                for b in self._bounds:
                    b.running = None
                    if b.after_failure(entry) and b.unseen:
                        self._appear(b)
            raise
        for b in self._bounds:
            b.after_run(entry)
            self._done(b, entry)

    _warned_of_states = False

    def _appear(self, b):
        """Adds the states of tensors that took part for the first time to self.state."""
        left = False
        took = set(b.taken())
        for i, p in enumerate(b.owners):
            # files of all ranks need the same keys
            if i in took or i in b.firsts or isinstance(b, Sharded):
                if b.marks[i] is None:
                    _state.show(self, b, i)
            else:
                left = left or b.marks[i] is None
        b.unseen = left
