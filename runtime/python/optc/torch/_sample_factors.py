"""Sums, squared norms and single gradients of a parameter, from the sides of its layers' calls (see
_layers.py). Works on some samples at a time, so that temporaries stay below a bound for any batch
size."""
import torch

from ._layers import Lookup, wide

BOUND = 1 << 24                                        # elements of a temporary: 64 MiB of f32


class Part:
    """The contribution of one call to one parameter: rows, one gradient per sample, or the sides
    that they are made of."""

    def __init__(self, record, key):
        self.rows = record.rows.get(key)
        self.kind, self.module = record.layer.kind, record.layer.module
        if self.rows is None:
            self.x, self.g = record.given(), record.grad()
            self.sizes = self.kind.sizes(self.module, self.x, self.g)

    def sides(self, lo, hi, dtype):
        left, right = self.kind.sides(self.module, self.x[lo:hi], self.g[lo:hi])
        return left if left.dtype == torch.int64 else left.to(dtype), right.to(dtype)

    def elements(self):
        """Elements of the sides of one sample."""
        groups, t, left, right = self.sizes
        return groups * t * (right + (0 if isinstance(self.kind, Lookup) else left))


def slices(count, elements):
    """Ranges (lo, hi) of samples, such that temporaries of that many elements per sample stay below
    the bound."""
    step = max(1, BOUND // max(1, elements))
    return [(lo, min(count, lo + step)) for lo in range(0, count, step)]


def outer(left, right, width):
    """One gradient per sample: (samples, groups, left, right)."""
    if left.dtype != torch.int64:
        return left.mT @ right
    n, d = left.shape[0], right.shape[-1]
    at = left.flatten(1) + width * torch.arange(n, device=left.device)[:, None]
    found = torch.zeros(n * width, d, dtype=right.dtype, device=right.device)
    return found.index_add_(0, at.flatten(), right.reshape(-1, d)).view(n, 1, width, d)


def whole(kind, m, x, g):
    """outer() of a call, in slices."""
    groups, t, left, right = kind.sizes(m, x, g)
    found = torch.empty(g.shape[0], groups, left, right, dtype=wide(g.dtype), device=g.device)
    for lo, hi in slices(g.shape[0], groups * t * (left + right)):
        a, b = (y.to(found.dtype) for y in kind.sides(m, x[lo:hi], g[lo:hi]))
        torch.matmul(a.mT, b, out=found[lo:hi])
    return found


def sum_of(parts, p, lo, hi):
    """Gradients of samples lo to hi, summed over all parts: (samples, *shape)."""
    total = torch.zeros(hi - lo, *p.shape, dtype=wide(p.dtype), device=p.device)
    for part in parts:
        if part.rows is not None:
            total += part.rows[lo:hi]
            continue
        for a, b in slices(hi - lo, part.elements()):
            left, right = part.sides(lo + a, lo + b, total.dtype)
            total[a:b] += outer(left, right, part.sizes[2]).reshape(b - a, *p.shape)
    return total


def summed(parts, p, weights):
    """The weighted sum of the gradients over samples: *shape."""
    total, w = torch.zeros(p.shape, dtype=wide(p.dtype), device=p.device), weights.to(wide(p.dtype))
    for part in parts:
        if part.rows is not None:
            total += torch.tensordot(w, part.rows, 1)
            continue
        for lo, hi in slices(w.shape[0], part.elements()):
            left, right = part.sides(lo, hi, total.dtype)
            right = right * w[lo:hi, None, None, None]
            if left.dtype == torch.int64:
                total.index_add_(0, left.flatten(), right.reshape(-1, right.shape[-1]))
            # samples and rows are one axis: one product per group
            else:
                left, right = (y.transpose(0, 1).flatten(1, 2) for y in (left, right))
                total += (left.mT @ right).reshape(p.shape)
    return total


def direct_square(parts, p, count):
    """Squared norms, computed from the gradients themselves."""
    found = torch.empty(count, dtype=wide(p.dtype), device=p.device)
    for lo, hi in slices(count, p.numel()):
        torch.sum(sum_of(parts, p, lo, hi).flatten(1).square(), 1, out=found[lo:hi])
    return found


def gram(x, y):
    """Products of the rows of two sides: (samples, groups, rows of x, rows of y)."""
    if x.dtype == torch.int64 and y.dtype == torch.int64:
        return x[..., :, None] == y[..., None, :]
    if x.dtype == torch.int64:                         # row numbers stand for one-hot vectors
        return torch.take_along_dim(y.mT, x[..., None], -2)
    return gram(y, x).mT if y.dtype == torch.int64 else x @ y.mT


def ghost_square(parts, p, count):
    """Squared norms, computed from products of rows, of every call with every other (the ghost
    norm)."""
    found = torch.zeros(count, dtype=wide(p.dtype), device=p.device)
    rows = sum(part.sizes[1] for part in parts)
    for lo, hi in slices(
            count,
            sum(part.elements() for part in parts) + 2 * parts[0].sizes[0] * rows * rows):
        sides = [part.sides(lo, hi, found.dtype) for part in parts]
        for i, (left, right) in enumerate(sides):
            for j, (other, across) in enumerate(sides[:i + 1]):
                both = (gram(left, other) * gram(right, across)).flatten(1).sum(1)
                found[lo:hi] += both if i == j else 2 * both
    return found.clamp_(min=0)                         # cancellation can give values below 0


def lookup_square(parts, p, count):
    """Squared norms for a weight that is only looked up in: rows of the same number are added, then
    squared."""
    found = torch.zeros(count, dtype=wide(p.dtype), device=p.device)
    for lo, hi in slices(count, sum(part.elements() for part in parts)):
        sides = [part.sides(lo, hi, found.dtype) for part in parts]
        at = torch.cat([left.flatten(1) for left, _ in sides], 1)
        g = torch.cat([right.flatten(1, 2) for _, right in sides], 1).flatten(0, 1)
        keys, order = (
            at + p.shape[0] * torch.arange(hi - lo, device=p.device)[:, None]).flatten().sort()
        first = torch.ones_like(keys, dtype=torch.bool)
        first[1:] = keys[1:] != keys[:-1]
        segment = first.cumsum(0) - 1
        squares = torch.zeros_like(g).index_add_(0, segment, g[order]).square().sum(1)
        sample = torch.zeros_like(keys).scatter_(0, segment, keys // p.shape[0])
        found[lo:hi].index_add_(0, sample, squares)
    return found
