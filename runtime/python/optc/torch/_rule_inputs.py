"""Inputs of a rule besides the gradient: tensors of a parameter, and scalars of a group. They are
stored by parameter and name, so that they can be passed again to new bindings."""
from ._scaling import send_scalar
from ._sharded import local


class RuleInputs:
    """The part of Optimizer that sets inputs. It needs the attributes _inputs, _scalars and
    _bounds."""

    def set_input(self, p, name, tensor):
        """Sets an input of a parameter besides its gradient. The tensor is held, and read at every
        step."""
        if tensor.shape != p.shape or not tensor.is_contiguous():
            raise ValueError("input '%s' must be contiguous and have its parameter's shape" % name)
        self._keep_input(self._inputs, (p, name), tensor)

    def set_scalar(self, name, value, group=None):
        """Sets a scalar input for a group (its number), or for all groups (None)."""
        self._keep_input(self._scalars, (name, group), value)

    def _keep_input(self, kept, key, value):
        was = dict(kept)
        kept[key] = value
        try:
            self._give_inputs(self._bounds or ())
        except BaseException:                          # a refused value is not tried again
            kept.clear()
            kept.update(was)
            raise

    def _give_inputs(self, bounds):
        for b in bounds:
            b.settle()
            numbers = {id(p): i for i, p in enumerate(b.owners)}
            for (p, name), tensor in self._inputs.items():
                if id(p) in numbers:
                    here = local(tensor)
                    b.binding.set_input(numbers[id(p)], name, here, here.numel())
            for (name, group), value in self._scalars.items():
                for k, m in enumerate(b.members):
                    if group in (None, m.group):
                        send_scalar(b, k, name, value)
