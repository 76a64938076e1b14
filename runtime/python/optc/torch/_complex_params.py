"""Bindings of complex parameters. As in torch's optimizers, a number is a pair of real ones, so a
rule must not look at rows and columns. opt.state shows complex states."""
import torch

from ._tensor_binding import TensorBinding
from ._tensor_checks import tensor_name

# The type of the parts.
PARTS = {torch.complex32: torch.float16, torch.complex64: torch.float32,
         torch.complex128: torch.float64}


def refuse_shaped(p, name, rule, group):
    """Refuses a complex parameter for a rule of matrices. torch's do so at the first step."""
    if rule.by_shape(group):
        kind = RuntimeError if rule.row else ValueError
        raise kind("%s does not support complex parameters: %s; a rule without rows and columns "
                   "does, such as AdamW" % (rule.spec.capitalize(), tensor_name(p, name)))


def refuse_conjugated(p, name):
    """Refuses a parameter whose memory has the conjugated values."""
    if p.is_conj():
        raise ValueError("optc does not step conjugated views (torch.Tensor.is_conj): %s; pass "
                         "resolve_conj() of it" % tensor_name(p, name))
    if p.is_neg():
        raise ValueError("optc does not step negated views (torch.Tensor.is_neg): %s; pass "
                         "resolve_neg() of it" % tensor_name(p, name))


def parts(x):
    return torch.view_as_real(x.detach().resolve_conj().resolve_neg())


def is_lazy(g):
    """Whether parts(g) are a copy, at an address of one step."""
    return g is not None and (g.is_conj() or g.is_neg())


class Complex(TensorBinding):
    lazy = False                                       # a gradient of the last step was one

    def find_grads(self):
        lazy = any(is_lazy(p.grad) for p in self.owners)
        if lazy or self.lazy:
            self.ptrs = None                           # static gradients too are passed again
        self.lazy = lazy
        super().find_grads()

    def _locals(self):
        return list(map(parts, self.owners))

    def _read(self):
        for p, name in zip(self.owners, self.names):
            refuse_conjugated(p, name)
        self.params = self._locals()
        return [None if p.grad is None else parts(p.grad) for p in self.owners]

    def _tries(self):
        return False                                   # gradients are compared in Python

    def _placed(self, i, view):
        whole = view.shape == self.params[i].shape and view.dtype in PARTS.values()
        return torch.view_as_complex(view) if whole else view
