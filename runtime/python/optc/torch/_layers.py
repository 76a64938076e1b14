"""The layers that per-sample gradients and K-FAC statistics support, in one table, LAYERS.

The input x of a layer and the gradient g of its output have the samples on their first axis here. A
weight that is multiplied by rows of x has, for one sample, the gradient `sum over t of left_t
(outer) right_t`; a row t is a position of the sequence or of the image. `sides` returns left and
right as (samples, groups, rows, width). For a weight that is looked up in, left has row numbers
instead of one-hot vectors. All other gradients are small; `vectors` returns them directly, one row
per sample.
"""
from math import prod

import torch
from torch import nn
from torch.nn import functional as F


class Refused(ValueError):
    """A model or an argument that these functions do not support."""


def wide(dtype):
    """The type of sums."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def _over_rows(g, keep):
    """The sum over all axes between the samples' and the last `keep` ones."""
    between = list(range(1, g.dim() - keep))
    return g.sum(between) if between else g


class Kind:
    factored = False                                   # `sides` gives the weight's gradient
    fixed = False                                      # samples are always on the first axis

    def why_not(self, m):
        """Why a module of this kind is not supported; None: it is."""

    def axes(self, m, x):
        """How many of the first axes of x can be the samples' axis."""
        return x.dim() - 1

    def vectors(self, m, x, g, keys):
        raise NotImplementedError


class Dense(Kind):
    factored = True

    def sizes(self, m, x, g):
        """groups, rows of a sample, widths of left and right"""
        return 1, prod(g.shape[1:-1]), g.shape[-1], x.shape[-1]

    def rows(self, m, x, g):
        """x and g as (samples, groups, rows, width)"""
        n, t = g.shape[0], prod(g.shape[1:-1])
        return x.reshape(n, 1, t, x.shape[-1]), g.reshape(n, 1, t, g.shape[-1])

    def sides(self, m, x, g):
        a, b = self.rows(m, x, g)
        return b, a

    def vectors(self, m, x, g, keys):
        return {"bias": _over_rows(g, 1)} if "bias" in keys else {}

    # ---- the weight's and the bias's gradient as one matrix: (groups, out, in [+ 1])
    def matrix(self, m, weight, bias):
        groups = getattr(m, "groups", 1)
        w = weight.reshape(groups, weight.shape[0] // groups, -1)
        return w if bias is None else torch.cat([w, bias.reshape(groups, -1, 1)], -1)

    def apart(self, m, matrix, bias):
        w = matrix[..., :-1] if bias else matrix
        return w.reshape(m.weight.shape), matrix[..., -1].reshape(-1) if bias else None


class Transposed(Dense):
    """transformers' Conv1D: Linear with a weight of (in, out)."""

    def why_not(self, m):
        if m.weight.dim() != 2 or m.weight.shape[1] != getattr(m, "nf", None):
            return "its weight is not (in, nf)"

    def sizes(self, m, x, g):
        return 1, prod(g.shape[1:-1]), x.shape[-1], g.shape[-1]

    def sides(self, m, x, g):
        return self.rows(m, x, g)

    def matrix(self, m, weight, bias):
        return super().matrix(m, weight.T, bias)

    def apart(self, m, matrix, bias):
        w = matrix[0, :, :-1] if bias else matrix[0]
        return w.T.contiguous(), matrix[0, :, -1].clone() if bias else None


class Conv(Dense):
    fixed = True

    def axes(self, m, x):
        return int(x.dim() == m.weight.dim())

    def sizes(self, m, x, g):
        return m.groups, prod(g.shape[2:]), g.shape[1] // m.groups, prod(m.weight.shape[1:])

    def rows(self, m, x, g):
        n, d, t, width = x.shape[0], len(m.kernel_size), prod(g.shape[2:]), prod(m.weight.shape[1:])
        b = g.reshape(n, m.groups, g.shape[1] // m.groups, t).transpose(2, 3)
        if not n:                                      # some paddings refuse empty tensors
            return x.new_zeros(0, m.groups, t, width), b
        mode = "constant" if m.padding_mode == "zeros" else m.padding_mode
        if any(m._reversed_padding_repeated_twice):
            x = F.pad(x, m._reversed_padding_repeated_twice, mode=mode)
        for i, (size, step, wide_by) in enumerate(zip(m.kernel_size, m.stride, m.dilation)):
            x = x.unfold(2 + i, (size - 1) * wide_by + 1, step)[..., ::wide_by]
        # samples, groups, channels, positions, kernel
        x = x.unflatten(1, (m.groups, -1))
        places = list(range(3, 3 + d))
        x = x.permute(0, 1, *places, 2, *range(3 + d, 3 + 2 * d))
        return x.reshape(n, m.groups, t, width), b

    def vectors(self, m, x, g, keys):
        return {"bias": g.flatten(2).sum(2)} if "bias" in keys else {}


class Lookup(Kind):
    factored = True

    def why_not(self, m):
        if m.max_norm is not None:
            return "max_norm changes the weight by what is looked up"
        if m.scale_grad_by_freq:
            return "scale_grad_by_freq mixes samples"
        if m.sparse:
            return "sparse=True: optimizers of optc take dense gradients"

    def axes(self, m, x):
        return x.dim()

    def sizes(self, m, x, g):
        return 1, prod(g.shape[1:-1]), *m.weight.shape

    def sides(self, m, x, g):
        n, t = g.shape[0], prod(g.shape[1:-1])
        x, g = x.reshape(n, 1, t).long(), g.reshape(n, 1, t, g.shape[-1])
        if m.padding_idx is not None:
            g = g.masked_fill((x == m.padding_idx)[..., None], 0)
        return x, g

    def vectors(self, m, x, g, keys):
        return {}


class LastAxes(Kind):
    """LayerNorm, RMSNorm: they scale the last axes."""

    def axes(self, m, x):
        return x.dim() - len(m.normalized_shape)

    def normal(self, m, x):
        if isinstance(m, nn.LayerNorm):
            return F.layer_norm(x.to(wide(x.dtype)), m.normalized_shape, None, None, m.eps)
        return F.rms_norm(x.to(wide(x.dtype)), m.normalized_shape, None, m.eps)

    def vectors(self, m, x, g, keys):
        keep, found = len(m.normalized_shape), {}
        if "weight" in keys:
            found["weight"] = _over_rows(g * self.normal(m, x), keep)
        if "bias" in keys:
            found["bias"] = _over_rows(g, keep)
        return found


class Channels(Kind):
    """GroupNorm, InstanceNorm: one scale per channel."""
    fixed = True

    def why_not(self, m):
        if getattr(m, "track_running_stats", False):
            return "track_running_stats mixes samples"

    def axes(self, m, x):
        wanted = next((3 + i for i, c in enumerate(_instance) if isinstance(m, c)), x.dim())
        return int(x.dim() == wanted and x.dim() > 1)

    def normal(self, m, x):
        x = x.to(wide(x.dtype))
        if isinstance(m, nn.GroupNorm):
            return F.group_norm(x, m.num_groups, None, None, m.eps)
        return F.instance_norm(x, eps=m.eps)

    def vectors(self, m, x, g, keys):
        found = {}
        if "weight" in keys:
            y = g * self.normal(m, x) if x.numel() else g
            found["weight"] = y.flatten(2).sum(2) if y.dim() > 2 else y
        if "bias" in keys:
            found["bias"] = g.flatten(2).sum(2) if g.dim() > 2 else g
        return found


class CustomLayer(Kind):
    """A layer with a function of the user: (module, x, g) -> {name: one gradient per sample}."""

    def __init__(self, function):
        self.function = function

    def axes(self, m, x):
        return x.dim()

    def vectors(self, m, x, g, keys):
        found = self.function(m, x, g)
        for key in keys:
            wanted = (g.shape[0], *m._parameters[key].shape)
            if key not in found or tuple(found[key].shape) != wanted:
                raise RuntimeError(
                    "rules= of %s: '%s' must have shape %s, one gradient per "
                    "sample, and is %s" % (type(m).__name__, key, wanted,
                                           tuple(found[key].shape) if key in found else "missing"))
        return {key: found[key].to(g.dtype) for key in keys}


_instance = (nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d)
LAYERS = [(nn.Linear, Dense()), (nn.Embedding, Lookup()), (nn.LayerNorm, LastAxes()),
          (nn.GroupNorm, Channels()), *((c, Conv()) for c in (nn.Conv1d, nn.Conv2d, nn.Conv3d)),
          *((c, Channels()) for c in _instance),
          *((c, LastAxes()) for c in [getattr(nn, "RMSNorm", None)] if c)]
# classes of libraries that are not imported here
BY_NAME = {"Conv1D": Transposed()}
KEYS = {"weight", "bias"}


def own(m):
    """A module's own parameters by name."""
    return {k: p for k, p in m._parameters.items() if p is not None}


def find(m, rules):
    """(kind, None) of a module, or (None, reason). rules: functions of the user by type."""
    mine, kind = own(m), None
    if type(m) in rules:
        return CustomLayer(rules[type(m)]), None
    for cls, known in LAYERS:
        if isinstance(m, cls):
            kind = known
            if type(m).forward is not cls.forward or "forward" in m.__dict__:
                return None, "a %s with a forward of its own" % cls.__name__
    kind = kind or BY_NAME.get(type(m).__name__)
    if kind is None:
        return None, ", ".join(mine)
    if any(nn.parameter.is_lazy(p) for p in mine.values()):
        return None, "its shape is not known yet: call the model once first"
    if set(mine) - KEYS or "weight" not in mine:
        return None, "its weight is made of others: %s" % (", ".join(sorted(set(mine) - KEYS)) or
                                                           "parametrized")
    said = kind.why_not(m)
    return (None, said) if said else (kind, None)


def mixes(m):
    """Whether a module, in its current mode, mixes samples."""
    if isinstance(m, nn.modules.batchnorm._BatchNorm):
        return m.training or m.running_mean is None
    return isinstance(m, _instance) and m.track_running_stats and m.training
