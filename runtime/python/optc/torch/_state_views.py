"""The live states of a binding's tensors, as opt.state shows them."""
import math
import sys

import torch

from .. import _lib
from ._codes import BLOCK, CODE, CODES, SCALE, blocks
from ._scaling import HIDDEN
from ._tensor_checks import row_major

T = torch.Tensor
ONE_REFERENCE = list(map(sys.getrefcount, [object()]))[0]  # of an object that only a list holds


class StateViews:
    """Methods of TensorBinding, whose attributes they use. Sharded bindings replace some of
    them."""

    def live(self, i):
        """The live states of a tensor by their public names."""
        if self.views[i] is None:
            self.views[i] = self._make_views(i)
        return self.views[i]

    def _make_views(self, i):
        p, views = self.params[i], {}
        lies = self.staged.get(i, p)
        for name, domain in self.domains.items():
            if domain == "group" or name.startswith(HIDDEN) or not self.binding.has_state(i, name):
                continue
            flat = self._tensor(i, name) if p.numel() or domain == "tensor" else \
                torch.empty(0, dtype=p.dtype, device=p.device)
            views[self._outer.get(name, name)] = self._placed(i, shaped(flat, lies, domain))
            scales = self._scales(i, name)
            if scales is not None:
                views[self._outer.get(name, name) + SCALE] = scales
        if i in self.firsts:
            views.update(self._group_views(i))
        return views

    def group_names(self):
        return [self._outer.get(n, n) for n in self.grouped]

    def _group_views(self, i):
        """The live states of the group whose first tensor this is."""
        k = self.firsts[i]
        return {self._outer.get(n, n): self._tensor(k, n).view(()) for n in self.grouped
                if self.binding.has_state(k, n)}

    def _scales(self, i, name):
        """Behind the codes of a state; None: it is not in block codes."""
        address, count, kind = self.binding.state(i, name)
        if kind not in CODES:
            return None
        base = self.base(address)
        return self.memory.tensor(address + blocks(count) * BLOCK, blocks(count), _lib.F32, base)

    def codes(self, i):
        """{state: optc_type} of a tensor's states in block codes."""
        if self._codes[i] is None:
            found = {
                self._outer.get(n, n): self.binding.state(i, n)[2] for n, d in self.domains.items()
                if d == "elem" and not n.startswith(HIDDEN) and self.binding.has_state(i, n)
            }
            self._codes[i] = {k: kind for k, kind in found.items() if kind in CODES}
        return self._codes[i]

    def scales(self, i):
        """Keys of opt.state that show the scales of block codes."""
        return {k + SCALE for k in self.codes(i)}

    def owned(self, _number):
        """{name: state} of states that one rank holds; opt.state does not show them."""
        return {}

    def put_owned(self):
        """Passes the new values of such states to their ranks."""

    def _tensor(self, i, name):
        address, count, kind = self.binding.state(i, name)
        return self.memory.tensor(address, count, kind, self.base(address))

    def _placed(self, _number, view):
        return view

    def renew(self, i):
        """The live states, with new tensors for those whose memory was replaced (x.data = …,
        x.set_())."""
        views, marks = self.live(i), self.marks[i]
        moved = [k for k, v in views.items() if marks and signature(v) != marks[k]]
        if moved:
            made = self._make_views(i)
            views.update((k, made[k]) for k in moved)
        if marks and signature(self.step_views[i]) != marks["step"]:
            self.step_views[i] = self.steps[i]
        return views

    def keep(self, i, own, shown):
        """Makes the tensors of an entry of opt.state the live states, because a program may hold
        them. shown: ids of those that are states of other tensors; grows."""
        for k, view in {"step": self.step_views[i], **self.renew(i)}.items():
            x = own.get(k)
            if x is view or id(x) in shown or x is self.owners[i].grad or not alike(x, view):
                continue
            x.data = view
            shown.add(id(x))
            if k == "step":
                self.step_views[i] = x
            else:
                self.views[i][k] = x

    def show(self, i):
        """The entry for opt.state[p]; later edits are found by comparison with it."""
        shown = {"step": self.step_views[i], **self.renew(i)}
        self.marks[i] = {k: signature(v) for k, v in shown.items()}
        return {**shown, **{k + CODE: kind for k, kind in self.codes(i).items()}}

    def edited(self, i, key, value):
        """Whether a value of opt.state[p] is not the live state."""
        view = self.step_views[i] if key == "step" else self.live(i)[key]
        return value is not view or (self.marks[i] is not None and
                                     signature(view) != self.marks[i][key])

    def shows(self, i, own):
        """Whether opt.state[p] is unchanged since show()."""
        return self.marks[i] is not None and not any(
            self.edited(i, k, own.get(k)) for k in self.marks[i])


def alike(x, view):
    """Whether a tensor can become a view of a state."""
    return type(x) is type(view) is T and x.layout == view.layout and x.device == view.device and \
        x.dtype == view.dtype and x.shape == view.shape and not x.requires_grad and \
        x.is_inference() == view.is_inference()


def signature(x):
    """A tensor's shape, address and strides."""
    here = x if type(x) is T else getattr(x, "_local_tensor", x)       # of a DTensor
    return x.shape, here.data_ptr(), here.dtype, here.shape, here.stride()


def shaped(flat, p, domain):
    if domain == "tensor" and flat.numel() == 1:
        return flat.view(())
    # as in torch's Adafactor: a mean keeps its dimension
    if domain in ("row", "col") and p.dim() > 1:
        shape = list(p.shape)
        shape[-1 if domain == "row" else -2] = 1
        if flat.numel() == math.prod(shape):
            return flat.view(shape)
    if domain == "elem" and flat.numel() == p.numel():
        return flat.view(p.shape) if row_major(p) else flat.as_strided(p.shape, p.stride())
    return flat
