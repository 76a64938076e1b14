"""Numbers that stay on the device: hyperparameters that are tensors, and the values of a GradScaler
(torch's protocol: found_inf and grad_scale are set on the optimizer before step)."""
import torch
from torch.amp.grad_scaler import OptState

from .. import _lib
from ._group_keys import number

TYPES = {torch.float32: _lib.F32, torch.float64: _lib.F64}
# The outermost wrapper: the gradient is divided when it is first read, and is not written.
SCALER = ('return wrapper { name = "scaler", inputs = { scale = "group" }, '
          'step = function() g = g / scale inner() end }')
# The same for optc.torch.GradScaler: the rule, or a clip, checks whether a gradient is finite when
# it first reads it. As the library's wrapper skip, except that the result is stored where the
# scaler reads it.
CHECKING = """return wrapper {
  name = "scaler", inputs = { scale = "group" },
  state = { found = zeros "group", skipped = zeros "tensor" },
  step = function()
    g = g / scale
    local ok = isfinite(max(0, global.max(abs(g))))
    found = where(ok, 0, 1)
    skipped = skipped + found
    when(ok, function() inner { t = t - skipped } end)
  end }"""
OWN = "scaler."              # prefix of the states of these wrappers, which opt.state does not show
# by tensor: steps that CHECKING skipped; entries of opt.state keep them when saved
SKIPPED = OWN + "skipped"
HIDDEN = (OWN, "shared.")   # the second: of _multi_binding.py
DEVICES = ("cuda",)          # on other devices torch's scaler checks and unscales itself


def read_where_it_lies(value, device):
    """Whether the library can read a tensor in place before every run, without waiting."""
    return (isinstance(value, torch.Tensor) and value.device == device and value.dtype in TYPES
            and value.numel() == 1)


def send(b, k, name, value):
    """Passes a hyperparameter of a binding's group to the library if it changed."""
    lies = read_where_it_lies(value, b.device)
    if lies:
        key = value.data_ptr(), value.dtype
    else:
        key = number(value)
    if b.sent.get((k, name)) == key:
        return
    b.sent.pop((k, name), None)                        # an interrupt may come at every line
    b.kept[k, name] = b.kept.get((k, name)), value if lies else None
    if lies:
        b.binding.set_hyper_from(k, name, key[0], TYPES[value.dtype])
    else:
        b.binding.set_hyper(k, name, key)
    b.sent[k, name] = key
    b.kept[k, name] = value if lies else None          # kept alive while the library reads it


def send_scalar(b, k, name, value):
    if read_where_it_lies(value, b.device):
        b.binding.set_scalar_from(k, name, value.data_ptr(), TYPES[value.dtype])
        b.kept[k, name] = value
    else:
        b.binding.set_scalar(k, name, number(value))
    # the next closure's loss is connected again; until then the
    if b.loss is not None and is_loss(name):
        # other groups read the memory of the last one
        b.kept["loss"], b.loss = b.loss, None


def is_loss(name):
    return name == "loss" or name.endswith(".loss")


class Loss:
    """Memory of a binding that a closure's loss is copied to, for the rule's inputs called "loss".
    The host does not wait."""

    def __init__(self, b):
        self.memory = None
        for name in b.rule.inputs():
            if is_loss(name):
                self._give(b, name)

    def _give(self, b, name):
        memory = torch.zeros(
            (), dtype=torch.float64, device=b.device) if self.memory is None else self.memory
        try:
            for k in range(len(b.members)):
                b.binding.set_scalar_from(k, name, memory.data_ptr(), _lib.F64)
            self.memory = memory
        except _lib.ArgumentError:
            pass                                       # an input of tensors, not a scalar

    @torch.no_grad()
    def take(self, loss):
        if torch.is_tensor(loss) and loss.is_complex():
            raise ValueError(
                "the closure's loss is complex (%s): return its real part" % loss.dtype)
        if self.memory is not None and loss is not None:
            self.memory.copy_(loss.detach().reshape(()), non_blocking=True) \
                if isinstance(loss, torch.Tensor) else self.memory.fill_(loss)


class Guard:
    """Memory of a binding that found_inf and the scale are copied to. The scaler's tensors are new
    at every step, but a captured step reads a fixed address."""

    def __init__(self, b, scaled):
        self.memory = torch.arange(2, dtype=torch.float32, device=b.device)       # found 0, scale 1
        self.scaled, self.on = scaled, False
        if scaled:
            for k in range(len(b.members)):
                b.binding.set_scalar_from(k, "scaler.scale", self.memory.data_ptr() + 4, _lib.F32)

    def take(self, b, found, scale):
        if found is not None and not self.on:
            b.binding.set_guard(self.memory.data_ptr(), _lib.F32)
            self.on = True
        with torch.no_grad():
            if self.on:
                self.memory[0].copy_(found) if found is not None else self.memory[0].zero_()
            if self.scaled:
                self.memory[1].copy_(scale) if scale is not None else self.memory[1].fill_(1.0)


class GradScaler(torch.amp.GradScaler):
    """torch's GradScaler, with the check and the unscaling inside the step of an optc optimizer: no
    separate pass over the gradients, and the host does not wait. p.grad stays scaled. An optimizer
    that it has stepped keeps skipping steps whose gradients are not finite. Other optimizers, rules
    with `every` or with entries beside step, and gradients after unscale_ are handled as by torch's
    scaler."""

    def step(self, optimizer, *args, **kwargs):
        if not self._enabled:                          # torch's scaler has no states then
            return super().step(optimizer, *args, **kwargs)
        state = self._per_optimizer_states[id(optimizer)]
        ready = state["stage"] is OptState.READY
        if not ready or not getattr(optimizer, "_checks_itself", False) or "closure" in kwargs:
            return super().step(optimizer, *args, **kwargs)
        self._check_scale_growth_tracker("step")
        optimizer.grad_scale = self._get_scale_async()
        optimizer._checking = True
        try:
            said = optimizer.step(*args, **kwargs)
        finally:
            del optimizer.grad_scale
        state["found_inf_per_device"] = optimizer._found()
        state["stage"] = OptState.STEPPED
        return said
