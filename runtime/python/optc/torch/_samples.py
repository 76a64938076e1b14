"""optc.torch.per_sample: gradients of single samples, their norms, and sums of them clipped to a
norm.

    samples = optc.torch.per_sample(model, loss="mean")
    loss_of(model(x), y).backward()
    norms = samples.clip(1.0, noise=1.1, divide_by=len(x))     # p.grad: clipped, summed, with noise
    opt.step()
    samples.remove()                                           # or: with optc.torch.per_sample(…)
                                                               as samples

_hooks.py describes what is captured and who owns it. For vectors (biases, norms) the gradient of
each sample is computed when the output's gradient arrives, and the layer's input is released. The
same holds for weights that are smaller than the two sides of their gradient. Other weights keep
both sides: the squared norm of a sample's gradient
`sum over t of left_t (outer) right_t` is `sum over t, s of (left_t . left_s) (right_t . right_s)`,
which does not need the gradient (the ghost norm: Goodfellow 2015, arXiv:1510.01799; over sequences
Li et al. 2021, arXiv:2110.05679; chosen by layer as in Bu et al. 2022, arXiv:2205.10683). With very
many rows the gradient itself, for some samples at a time, is cheaper. Sums are computed in f32 (in
f64 for f64).
"""
import math

import torch

from ._hooks import Capture, plainly, sort_modules
from ._layers import Lookup, Refused, wide
from ._sample_factors import Part, direct_square, ghost_square, lookup_square, sum_of, summed, whole


class PerSample(Capture):
    """The result of optc.torch.per_sample."""
    what = "per_sample"

    def __init__(self, model, loss, axis, leave_out, rules):
        self._sums, self._rules = {}, dict(rules or {})
        super().__init__(model, loss, axis, leave_out)

    def _choose(self):
        layers, watched, bad, mixed = sort_modules(self._modules(), self._left.ids, self._rules)
        if mixed:
            raise Refused("per_sample: these modules mix samples, so that samples have no "
                          "gradients of their own: %s; use GroupNorm instead, freeze them in eval "
                          "mode, or name them in leave_out"
                          % ", ".join(mixed))
        if bad:
            raise Refused("per_sample does not support these layers: %s; freeze them, name them in "
                          "leave_out, or pass rules=" % ", ".join(bad))
        for name, m in watched:
            self._hook(m, "_watch", name)
        return layers

    def _watch(self, name, module, *given):
        """Watches a layer that was frozen, or in eval mode, when the model was hooked."""
        if self._on and torch.is_grad_enabled():
            _, _, bad, mixed = sort_modules([(name, module)], self._left.ids)
            if bad or mixed:
                raise RuntimeError("per_sample: %s was frozen or in eval mode when the model was "
                                   "hooked, and is not any more" % (bad or mixed)[0])

    # ---- arriving ----
    def _keep(self, record, x, g):
        layer, keys = record.layer, set(record.params)
        m, kind, keep = layer.module, layer.kind, False
        rows = kind.vectors(m, x, g.to(wide(g.dtype)), keys)
        if kind.factored and "weight" in keys:
            groups, t, left, right = kind.sizes(m, x, g)
            keep = isinstance(kind, Lookup) or t * (left + right) <= left * right
            if not keep:
                rows["weight"] = whole(kind, m, x, g).reshape(-1, *record.params["weight"].shape)
        for key, r in rows.items():
            record.rows[key] = record.rows[key] + r if key in record.rows else r
        record.bring(g) if keep else record.let_go()

    # ---- results ----
    def _named(self):
        """{name: parameter} of the parameters that are trained and not in leave_out."""
        return {
            n: p for n, p in self.model.named_parameters()
            if p.requires_grad and id(p) not in self._left.ids
        }

    def _parts(self, strays=False):
        """{name: parameter}, and for every batch (samples, factor, {name: parts})."""
        named = self._named()
        names, found = {id(p): n for n, p in named.items()}, []
        for batch, count, factor in self._held():
            parts = {}
            for r in batch.records:
                for key, p in r.params.items():
                    if id(p) not in names:
                        raise RuntimeError("'%s' of layer '%s' is not the model's (any more), or "
                                           "was frozen after backward" % (key, r.layer.name))
                    parts.setdefault(names[id(p)], []).append(Part(r, key))
            found.append((count, factor, parts))
        if not strays:
            self._refuse_strays(named, found)
        return named, found

    def _refuse_strays(self, named, found):
        for name, p in named.items():
            if any(name in parts for _, _, parts in found):
                if p.grad is None and getattr(p, "_post_accumulate_grad_hooks", None):
                    raise RuntimeError("the gradient of '%s' was released as it came "
                                       "(release_grads=True?): it was stepped before anything "
                                       "could be clipped" % name)
            elif p.grad is not None and bool(p.grad.any()):
                raise RuntimeError("parameter '%s' has a gradient that came through no hooked "
                                   "layer: it is used outside of its layer, its layer was added "
                                   "later, or zero_grad was not called"
                                   % name)

    @property
    def count(self):
        """The number of captured samples."""
        return sum(b.count() for b in self._batches)

    @plainly
    def grad(self, p):
        """The gradients of a parameter, given by itself or its name, for every sample, in f32:
        (samples, *shape). Zeros if a sample does not use it."""
        named, found = self._parts()
        name = p if isinstance(p, str) else next((n for n, q in named.items() if q is p), None)
        if name not in named:
            raise KeyError("there is no trained parameter %s in the hooked model" %
                           (p if isinstance(p, str) else tuple(p.shape),))
        return self._grad(named[name], name, found)

    @staticmethod
    def _grad(p, name, found):
        return torch.cat(
            [sum_of(parts.get(name, ()), p, 0, count) * factor for count, factor, parts in found])

    @plainly
    def grads(self):
        """{name: gradients of every sample}. This takes the memory of all parameters for every
        sample."""
        named, found = self._parts()
        return {n: self._grad(p, n, found) for n, p in named.items()}

    @plainly
    def norms(self, each=False):
        """The norm of each sample's gradient over all parameters; each=True: {name: norms}."""
        named, found = self._parts()
        squares = self._squares(named, found)
        if each:
            return {n: torch.cat([s[n] for s in squares]).sqrt() for n in named}
        return self._all(squares)

    @staticmethod
    def _all(squares):
        """sqrt of the sum over parameters, on the first one's device."""
        return torch.cat(
            [sum(x.to(next(iter(s.values())).device) for x in s.values()) for s in squares]).sqrt()

    @staticmethod
    def _squares(named, found):
        return [{n: square(parts.get(n, ()), p, count) * factor ** 2 for n, p in named.items()}
                for count, factor, parts in found]

    @plainly
    def clip(self, max_norm, *, noise=0.0, generator=None, divide_by=1, more=False):
        """Scales every sample's gradient down to `max_norm` if it is longer, and sets every p.grad
        to their sum. Returns the norms before scaling. The captured samples are released.

        noise      N(0, (noise max_norm)^2) is added to each element of the sum, also for parameters
                   that no sample used
        generator  for the noise, on the parameters' device; None: torch's own. Neither is
                   cryptographically secure
        divide_by  the divisor of the sum at the end: the (expected) number of samples, for a mean
        more       more micro-batches follow: the sum is stored and p.grad is 0 until the last clip,
                   which adds noise and divides
        A norm that is not finite makes the sum NaN. Parameters of layers in leave_out keep their
        p.grad of backward.
        """
        if not (isinstance(max_norm, (int, float)) and max_norm > 0 and math.isfinite(max_norm)):
            raise ValueError("max_norm is a finite number above 0, not %r" % (max_norm,))
        if not noise >= 0 or not divide_by > 0:
            raise ValueError(
                "noise is at least 0 and divide_by above 0, not %r and %r" % (noise, divide_by))
        (named, found), aside = self._parts(), {}
        norms = self._all(self._squares(named, found))
        weights = torch.where(norms > max_norm, max_norm / norms, 1.0)
        weights = torch.where(norms.isfinite(), weights, torch.nan)
        weights = [
            w * factor for w, (_, factor, _) in zip(weights.split([n for n, _, _ in found]), found)
        ]
        # one at a time: sums take only the memory of p.grad
        for n, p in named.items():
            total = self._sum(n, p, found, weights)
            if more:
                aside[n] = total
                if p.grad is not None:
                    p.grad.zero_()
            else:
                self._put(p, total, noise * max_norm, generator, divide_by)
        self._sums = aside
        self.clear()
        return norms

    def _sum(self, name, p, found, weights):
        """The weighted sum over samples, with the stored sum; None: no sample used the
        parameter."""
        total = self._sums.get(name)
        for (_, _, parts), w in zip(found, weights):
            if name in parts:
                new = summed(parts[name], p, w.to(p.device))
                total = new if total is None else new.add_(total)
        return total

    @staticmethod
    def _put(p, total, deviation, generator, divide_by):
        if total is None:
            if not deviation:
                return                                 # p.grad is None or 0
            total = torch.zeros(p.shape, dtype=wide(p.dtype), device=p.device)
        if deviation:
            total = total + deviation * torch.randn(p.shape, dtype=total.dtype, device=p.device,
                                                    generator=generator)
        if divide_by != 1:
            total = total / divide_by
        if p.grad is not None and p.grad.dtype == p.dtype and p.grad.layout == torch.strided:
            p.grad.copy_(total)                        # in place: captured steps read this address
        else:
            p.grad = total.to(p.dtype)

    def check(self, losses, some=2, rtol=None):
        """Compares the captured gradients with torch's gradients of single samples. Use it once for
        a new model: it checks that nothing mixes samples, that `axis` is right, and that no
        parameter is used outside of its layer.

        losses     one per sample, of one forward: reduction="none", then the mean over everything
                   but the samples
        some       the number of samples to compare
        rtol       the largest difference, relative to a gradient's norm (or to 1e-3 of the norm of
                   the whole one): 1e-3, for 16-bit parameters 0.05; autocast needs as much
        Raises a RuntimeError that names the parameter. p.grad and earlier samples do not change."""
        if losses.dim() != 1 or not losses.requires_grad:
            raise ValueError("losses must have one value per sample, and a graph")
        named = self._named()
        params, n = list(named.values()), losses.shape[0]
        which = sorted({round(i * (n - 1) / max(1, some - 1)) for i in range(some)}) if n else []
        ours = self._aside(losses, params, which)
        for k, i in enumerate(which):
            with self.pause():
                theirs = torch.autograd.grad(losses[i], params, retain_graph=True,
                                             allow_unused=True)
            theirs = [torch.zeros_like(p) if g is None else g for g, p in zip(theirs, params)]
            apart = [(a - b.to(a.dtype)).norm().item() for a, b in zip(ours[k], theirs)]
            sizes = [b.to(a.dtype).norm().item() for a, b in zip(ours[k], theirs)]
            # smaller ones may be rounding errors of larger ones
            least = 1e-3 * math.hypot(*sizes)
            for (name, p), off, size in zip(named.items(), apart, sizes):
                bound = rtol or (1e-3 if p.dtype in (torch.float32, torch.float64) else 0.05)
                if not off <= bound * max(size, least):
                    raise RuntimeError("parameter '%s': the gradient of sample %d is not what "
                                       "torch says (they are %.3g apart, of %.3g): something mixes "
                                       "samples, they are on another axis, or it is used outside "
                                       "of its layer" % (name, i, off, size))

    def _aside(self, losses, params, which):
        """Captures the gradients of some samples, without leaving anything in the capture."""
        kept, loss, scale = (self._batches, self._of, self._inside), self.loss, self.scale
        self.clear()
        try:
            self.loss, self.scale = "sum", 1.0
            torch.autograd.grad(losses.sum(), params, retain_graph=True, allow_unused=True)
            return self._singles(losses.shape[0], which)
        finally:
            (self._batches, self._of, self._inside), self.loss, self.scale = kept, loss, scale

    @plainly
    def _singles(self, count, which):
        named, ((held, _, parts), *_) = self._parts(strays=True)
        if held != count:
            raise RuntimeError("there are %d losses, and layers saw %d samples" % (count, held))
        return [[sum_of(parts.get(n, ()), p, i, i + 1)[0] for n, p in named.items()] for i in which]

    def _more_tensors(self):
        return [t for t in self._sums.values() if t is not None]

    def remove(self):
        self._sums = {}
        super().remove()


def square(parts, p, count):
    """The squared norms of a parameter's gradients: (samples,)."""
    if not parts:
        return torch.zeros(count, dtype=wide(p.dtype), device=p.device)
    if all(x.rows is not None for x in parts):
        return sum(x.rows for x in parts).flatten(1).square().sum(1)
    if all(x.rows is None for x in parts):
        if all(isinstance(x.kind, Lookup) for x in parts):
            return lookup_square(parts, p, count)
        t, (left, right) = sum(x.sizes[1] for x in parts), parts[0].sizes[2:]
        if t * (left + right) <= left * right:
            return ghost_square(parts, p, count)
    return direct_square(parts, p, count)


def per_sample(model, *, loss, axis=0, leave_out=(), rules=None):
    """Hooks a model for gradients of single samples: `clip`, `norms`, `grad`, `grads`, `check`.

    loss       "mean" or "sum": how the loss combines the samples. Results are those of a sum: for a
               mean they are multiplied by the number of samples. If the loss is scaled as well, set
               `.scale` to the factor. A mean over tokens, if samples have different numbers of
               them, is neither: first take the mean of each sample
    axis       the samples' axis in the inputs of layers: 0, or {layer's name: axis}; always 0 for
               convolutions and GroupNorm
    leave_out  names of modules or parameters to exclude: their p.grad is that of backward
    rules      {type of a module: function} for other layers. The function gets the module, its
               input and the gradient of its output (samples first, f32), and returns {parameter's
               name: one gradient per sample}

    Supported are Linear, Embedding, Conv1d to 3d, LayerNorm, RMSNorm, GroupNorm, InstanceNorm and
    transformers' Conv1D. Other trained layers, and those that mix samples (BatchNorm), are refused
    by name. The results are not differentiable."""
    return PerSample(model, loss, axis, leave_out, rules)
