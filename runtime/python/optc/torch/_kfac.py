"""optc.torch.kfac_inputs: inputs of layers and gradients of their outputs, as K-FAC needs them.

    stats = optc.torch.kfac_inputs(model, loss="mean")
    loss_of(model(x), y).backward()
    stats.update()                                     # A and G of every layer, running means
    stats.precondition(damping=1e-3)                   # p.grad = (G + …)^-1 p.grad (A + …)^-1
    opt.step()

_hooks.py describes what is captured and who owns it. A layer's Fisher matrix is approximated by A
(Kronecker) G of Martens and Grosse 2015, arXiv:1503.05671. A is computed from the inputs, with a 1
appended if there is a bias, and G from the gradients of the outputs of single samples (for a mean
loss, multiplied by the number of samples). For a layer with T rows per sample (a sequence, or
positions of an image, Grosse and Martens 2016, arXiv:1602.01407):
  "expand"  every row counts by itself: A = sum a a^T / (samples T), G = sum g g^T / samples
  "reduce"  a is the mean and g the sum over a sample's rows: A = sum a a^T / samples, G = sum g g^T
            / samples
(Eschenhagen et al. 2023, arXiv:2311.00636). Several calls of one layer add rows. The result is the
Fisher matrix if the labels of the loss are sampled from the model, and the empirical one if they
are the data's.
"""
import torch

from ._hooks import Capture, plainly, sort_modules
from ._layers import KEYS, Dense, Refused, own, wide
from ._sample_factors import slices


class KFAC(Capture):
    """The result of optc.torch.kfac_inputs. layers: {name: layer} with factors; rest: names of
    parameters without factors, which stay unchanged (norms, embeddings)."""
    what = "kfac_inputs"

    def __init__(self, model, loss, axis, leave_out, decay, rows):
        if rows not in ("expand", "reduce"):
            raise Refused("rows= is 'expand' or 'reduce', not %r" % (rows,))
        if not 0 <= decay < 1:
            raise Refused("decay is at least 0 and below 1, not %r" % (decay,))
        self.decay, self.rows, self.updates, self._factors = decay, rows, {}, {}
        super().__init__(model, loss, axis, leave_out)

    def _choose(self):
        layers = [
            x for x in sort_modules(self._modules(), self._left.ids)[0]
            if isinstance(x.kind, Dense)
        ]
        mine = {id(p) for x in layers for p in own(x.module).values()} - self._left.ids
        users = {}
        for name, m in self.model.named_modules():
            for p in own(m).values():
                users.setdefault(id(p), []).append(name)
        shared = [users[i] for i in mine if len(users[i]) > 1]
        if shared:
            raise Refused(
                "kfac_inputs: one parameter in several layers has no factors of its own: "
                "%s; name those layers in leave_out" % "; ".join(" and ".join(s) for s in shared))
        self.rest = [
            n for n, p in self.model.named_parameters() if p.requires_grad and id(p) not in mine
        ]
        return layers

    def _keep(self, record, x, g):
        record.bring(g) if "weight" in record.params else record.let_go()

    # ---- captured rows ----
    def _name(self, layer):
        """The name of a layer; a name is returned as it is."""
        for name, known in self.layers.items():
            if layer is known.module or layer == name:
                return name
        raise KeyError("%s is no layer with factors: those are %s" %
                       ("'%s'" % layer if isinstance(layer, str) else type(layer).__name__,
                        ", ".join(self.layers) or "none"))

    @staticmethod
    def _records(layer, held):
        """[(record, factor of its gradients)] of a layer, and their number of samples."""
        found, samples = [], 0
        for batch, count, factor in held:
            of = [(r, factor) for r in batch.records if r.layer is layer and r.g is not None]
            found += of
            samples += count if of else 0
        return found, samples

    def _rows(self, record, factor, lo, hi):
        """a and g of samples lo to hi: (groups, rows, width)"""
        m, dtype = record.layer.module, wide(record.layer.module.weight.dtype)
        a, g = (y.to(dtype) for y in record.layer.kind.rows(m,
                                                            record.given()[lo:hi],
                                                            record.grad()[lo:hi]))
        if self.rows == "reduce":
            a, g = a.mean(2, keepdim=True), g.sum(2, keepdim=True)
        a, g = (y.transpose(0, 1).flatten(1, 2) for y in (a, g))
        if "bias" in record.params:
            a = torch.cat([a, a.new_ones(*a.shape[:2], 1)], -1)
        return a, g * factor

    @plainly
    def inputs(self, layer):
        """(a, g) of a layer, given by itself or its name: a row per sample, or per row of each
        sample ("expand"). For a convolution with groups, the first axis is the group. A = a^T a /
        rows and G = g^T g / samples."""
        name = self._name(layer)
        found, _ = self._records(self.layers[name], self._held())
        if not found:
            raise RuntimeError("layer '%s' had no part in what was captured" % name)
        both = [self._rows(r, factor, 0, r.count) for r, factor in found]
        return tuple(_one(torch.cat(x, 1)) for x in zip(*both))

    def _products(self, layer, held):
        """A and G of the captured samples, some samples at a time; None: there are no samples."""
        found, samples = self._records(layer, held)
        rows, A, G = 0, 0, 0
        for r, factor in found:
            groups, t, left, right = layer.kind.sizes(layer.module, r.given(), r.grad())
            for lo, hi in slices(r.count, groups * t * (left + right)):
                a, g = self._rows(r, factor, lo, hi)
                rows, A, G = rows + a.shape[1], A + a.mT @ a, G + g.mT @ g
        return (A / rows, G / samples) if rows else None

    # ---- running factors ----
    @plainly
    def update(self):
        """Adds the captured samples to the factors and releases them. At a layer's k-th update the
        old factors have the weight min(1 - 1/k, decay), so the first ones are plain means. A factor
        that is not finite is skipped."""
        held = self._held()
        for name, layer in self.layers.items():
            new = self._products(layer, held)
            if new is None:
                continue
            k = self.updates[name] = self.updates.get(name, 0) + 1
            keep = min(1 - 1 / k, self.decay)
            old = self._factors.get(name) or tuple(torch.zeros_like(x) for x in new)
            if old[0].shape != new[0].shape:
                raise RuntimeError("layer '%s': its bias was frozen or unfrozen, which changes the "
                                   "size of A" % name)
            fine = new[0].isfinite().all() & new[1].isfinite().all()
            self._factors[name] = tuple(o.copy_(torch.where(fine, o * keep + n * (1 - keep), o))
                                        for o, n in zip(old, new))
        self.clear()

    def _kept(self, layer):
        name = self._name(layer)
        if name not in self._factors:
            raise RuntimeError(
                "layer '%s' has no factors yet: call update() after a backward" % name)
        return self._factors[name]

    def factors(self, layer):
        """(A, G) of a layer, given by itself or its name; the live tensors. (groups, …) for a
        convolution with groups."""
        return tuple(_one(x) for x in self._kept(layer))

    @plainly
    def damped(self, layer, damping):
        """(A + pi sqrt(damping) I, G + sqrt(damping) / pi I), pi^2 the mean of A's diagonal over
        that of G's."""
        return tuple(_one(x) for x in self._damped(layer, damping))

    def _damped(self, layer, damping):
        if not damping > 0:
            raise ValueError("damping is above 0, not %r" % (damping,))
        a, g = self._kept(layer)
        means = [x.diagonal(dim1=-2, dim2=-1).mean(-1) for x in (a, g)]
        tiny = torch.finfo(a.dtype).tiny
        pi = (means[0].clamp(min=tiny) / means[1].clamp(min=tiny)).sqrt()
        # a layer with zero inputs or gradients
        pi = torch.where((means[0] > 0) & (means[1] > 0), pi, 1.0)
        root = damping ** 0.5
        return _ridge(a, root * pi), _ridge(g, root / pi)

    @plainly
    def precondition(self, damping, inverse=None):
        """Replaces p.grad of every layer with factors by G^-1 p.grad A^-1, with the damped factors.

        inverse    a function of a positive definite matrix, or of a batch (groups, n, n); None: by
                   Cholesky"""
        inverse = inverse or _inverse
        if self.layers and not self._factors:
            raise RuntimeError("kfac_inputs has no factors yet: call update() after a backward, "
                               "ahead of precondition()")
        for name, layer in self.layers.items():
            m, keys = layer.module, KEYS & set(layer.trained())
            if name not in self._factors or "weight" not in keys or m.weight.grad is None:
                continue
            has_bias = "bias" in keys and m.bias.grad is not None
            a, g = self._damped(name, damping)
            matrix = layer.kind.matrix(m, m.weight.grad.to(a.dtype),
                                       m.bias.grad.to(a.dtype) if has_bias else None)
            if matrix.shape[-1] != a.shape[-1]:
                raise RuntimeError(
                    "layer '%s': its bias was frozen or unfrozen since update()" % name)
            try:
                weight, bias = layer.kind.apart(m, inverse(g) @ matrix @ inverse(a), has_bias)
            except torch.linalg.LinAlgError:
                raise RuntimeError("layer '%s': a factor is not positive definite in %s; more "
                                   "damping than %g helps, if the training has not run away" %
                                   (name, a.dtype, damping)) from None
            m.weight.grad.copy_(weight)
            if has_bias:
                m.bias.grad.copy_(bias)

    # ---- saving ----
    def state_dict(self):
        """Factors and their counts, to be saved with the optimizer's state."""
        return {"factors": dict(self._factors), "updates": dict(self.updates)}

    def load_state_dict(self, state):
        """Copies the factors, so that they share no memory with the file's tensors."""
        found = {}
        for name, both in state["factors"].items():
            layer = self.layers[self._name(name)]
            w = layer.module.weight
            groups, out, width = layer.kind.matrix(layer.module, w.detach(), None).shape
            if both[1].shape != (groups, out, out) or both[0].shape[-1] not in (width, width + 1):
                raise ValueError(
                    "factors of layer '%s' are of another size: %s and %s were loaded" %
                    (name, tuple(both[0].shape), tuple(both[1].shape)))
            found[name] = tuple(
                x.detach().to(device=w.device, dtype=wide(w.dtype), copy=True) for x in both)
        self._factors, self.updates = found, dict(state["updates"])

    def _more_tensors(self):
        return [x for both in self._factors.values() for x in both]


def _one(x):
    """x without the axis of groups if there is only one."""
    return x[0] if x.shape[0] == 1 else x


def _inverse(x):
    return torch.cholesky_inverse(torch.linalg.cholesky(x))


def _ridge(x, much):
    return x + much[:, None, None] * torch.eye(x.shape[-1], dtype=x.dtype, device=x.device)


def kfac_inputs(model, *, loss, axis=0, leave_out=(), decay=0.95, rows="expand"):
    """Hooks a model for K-FAC: `inputs` of a layer, or running factors by `update`, `factors`,
    `damped`,
    `precondition`.

    loss       "mean" or "sum": how the loss combines the samples; gradients are returned as for a
               sum
    axis       the samples' axis in the inputs of layers: 0, or {layer's name: axis}
    leave_out  names of modules to exclude
    decay      of the running means
    rows       "expand" or "reduce": how the rows of a sequence or an image count; see `inputs`

    Linear, Conv1d to 3d and transformers' Conv1D have factors; `.rest` names the other parameters.
    The results are not differentiable."""
    return KFAC(model, loss, axis, leave_out, decay, rows)
