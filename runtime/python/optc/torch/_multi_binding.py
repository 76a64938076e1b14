"""Values of all tensors over several bindings, for tensors of several devices, types or options. An entry before the
step computes the norm of each binding's gradients, or whether they are finite. The step uses the combined value."""
import torch

from .. import _lib
from ._group_keys import has_global, split_wrappers
from ._engines import asked

# The library's clip, except that the norm is an input. The names are the same.
CLIP = """return wrapper {
  name = "clip", args = { "max_norm" }, hyper = { max_norm = { 1, min = 0, max = inf }, eps = { 1e-6, min = 0 } },
  inputs = { of_all = "group" }, state = { of_these = zeros "group" }, values = { grad_norm = "group" },
  measure = function() of_these = global.norm(g) end,
  step = function() grad_norm = of_all  g = min(1, max_norm / (of_all + eps)) * g  inner() end }"""


def can_share(keys):
    """Whether a clip of the unchanged gradients is the rule's only value of all tensors."""
    around = split_wrappers(keys.what["with_"], ",")
    names = [w.split("(")[0].strip() for w in around]
    if names.count("clip") != 1 or "clip" in keys.what["wrappers"]:
        return False
    at = names.index("clip")
    what = keys.compiled(keys.spec, keys.options)
    if any(n in keys.what["wrappers"] or "/" in n or asked(**{**what, "with_": w}).changes_grad
           for n, w in zip(names[at + 1:], around[at + 1:])):
        return False
    what["with_"] = ",".join(around[:at] + around[at + 1:])
    return not has_global(asked(**what))


class Norms:
    """The norm of the gradients of all bindings, as one number on every device. The host does not wait."""

    def __init__(self, bounds):
        self.bounds = bounds
        self.own = [b.memory.tensor(*b.binding.state(0, "clip.of_these")).view(()) for b in bounds]
        self.all = [torch.zeros((), dtype=torch.float64, device=b.device) for b in bounds]
        for b, total in zip(bounds, self.all):
            for k in range(len(b.members)):
                b.binding.set_scalar_from(k, "clip.of_all", total.data_ptr(), _lib.F64)

    @torch.no_grad()
    def measure(self, scale):
        """scale: the factor of the gradients, or None"""
        there = [(b, own) for b, own in zip(self.bounds, self.own) if any(b.ptrs)]
        for b, _ in there:
            b.binding.run("measure")
        for total in self.all:
            squares = [own.to(total.device, torch.float64) ** 2 for _, own in there]
            norm = torch.stack(squares).sum().sqrt() if squares else torch.zeros(())
            total.copy_(norm if scale is None else norm / scale.to(total.device))


class Checks:
    """Whether the gradients of all bindings are finite, as one number on every device: not 0 if one is not finite."""

    def __init__(self, bounds):
        self.bounds = bounds
        self.found = {}                                # by device

    @torch.no_grad()
    def look(self):
        there = [b for b in self.bounds if any(b.ptrs)]
        for b in there:
            b.scaling.let()                            # the guard of the last step does not apply to this one
            b.binding.run("check")
        for device in {b.device for b in self.bounds}:
            each = [b.found().to(device) for b in there]
            self.found[device] = torch.stack(each).amax() if each else torch.zeros((), device=device)
        return self.found
