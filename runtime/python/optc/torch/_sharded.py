"""Parameters that are pieces of larger tensors (DTensor of FSDP2 and tensor parallelism). Each process steps its piece;
states are DTensors with the placement of their parameters. Nothing is communicated. Rules with values of rows or whole
tensors accept only tensors that every process has as a whole; the library refuses pieces."""
import sys

import torch

from ._codes import blocks
from ._tensor_binding import TensorBinding, Changed
from ._tensor_checks import tensor_name


def is_sharded(x):
    """Whether x is a DTensor. Does not import torch.distributed.tensor, which is slow: without it there is none."""
    there = sys.modules.get("torch.distributed.tensor")
    return there is not None and isinstance(x, there.DTensor)


def refuse_placed(p, name):
    from torch.distributed.tensor import Replicate, Shard
    for x in p.placements:
        if type(x) not in (Shard, Replicate):
            raise TypeError("optc steps DTensors that are cut by Shard or whole by Replicate: %s is placed as %s" % (
                tensor_name(p, name), x))


def local(x):
    """The part of x in this process; a plain tensor itself."""
    if not is_sharded(x):
        return x
    with torch.no_grad():
        return x.to_local()


def piece(p, here):
    """{global_shape, offset} of this process's piece, cut as by torch.chunk, one mesh dimension after the other. {}: it
    is the whole tensor, or the process is outside of the mesh and has no piece."""
    shape, at, mine = list(p.shape), [0] * p.dim(), p.device_mesh.get_coordinate()
    if mine is None:
        return {}
    for k, x in enumerate(p.placements):
        if x.is_shard():
            each = -(-shape[x.dim] // p.device_mesh.size(k))
            begin = min(each * mine[k], shape[x.dim])
            at[x.dim] += begin
            shape[x.dim] = min(each, shape[x.dim] - begin)
    if tuple(shape) != tuple(here.shape):
        raise ValueError("a DTensor of shape %s has %s here, where its placement %s says %s" % (
            tuple(p.shape), tuple(here.shape), p.placements, tuple(shape)))
    return {} if shape == list(p.shape) else {"global_shape": tuple(p.shape), "offset": tuple(at)}


def placed(view, p):
    """A local state as a DTensor with the placement of the parameter."""
    from torch.distributed.tensor import DTensor
    return DTensor.from_local(view, p.device_mesh, p.placements, run_check=False, shape=p.shape, stride=p.stride())


def cut_by_rows(p, here):
    """Whether all processes have equally many rows of it."""
    cuts = [k for k, x in enumerate(p.placements) if x.is_shard()]
    return len(cuts) == 1 and p.placements[cuts[0]].is_shard(0) and \
        here.numel() * p.device_mesh.size(cuts[0]) == p.numel()


def placed_scales(scales, p):
    """The scales of a piece's block codes as a part of a DTensor that is cut as the parameter's rows are."""
    from torch.distributed.tensor import DTensor, Replicate, Shard
    at = [Shard(0) if x.is_shard() else Replicate() for x in p.placements]
    return DTensor.from_local(scales, p.device_mesh, at, run_check=False, shape=(blocks(p.numel()),), stride=(1,))


def refuse_placed_value(value, view, name):
    if is_sharded(value) and not is_sharded(view):
        raise ValueError("%s was saved as a DTensor, and is none here: load it by torch.distributed.checkpoint, or "
                         "give its full_tensor()" % name)


def fill(view, value):
    """Copies a loaded state: a DTensor, or a whole tensor, of which this process takes its piece."""
    if not is_sharded(view):
        view.copy_(value.reshape(view.shape))
    elif is_sharded(value):
        view.copy_(value)
    else:
        here = local(view)
        at = piece(view, here).get("offset", (0,) * view.dim())
        value = value.reshape(view.shape)
        for k, (begin, n) in enumerate(zip(at, here.shape)):
            value = value.narrow(k, begin, n)
        here.copy_(value)


class Sharded(TensorBinding):
    def _locals(self):
        return [local(p) for p in self.owners]

    def _piece(self, i):
        return piece(self.owners[i], self.params[i])

    def _read(self):
        self.params = self._locals()
        return [None if p.grad is None else self._local_grad(p, name) for p, name in zip(self.owners, self.names)]

    def _local_grad(self, p, name):
        g = p.grad
        if not is_sharded(g) or g.placements != p.placements or g.device_mesh != p.device_mesh:
            raise RuntimeError("the gradient of %s is placed as %s, and it as %s: redistribute the gradient first" % (
                tensor_name(p, name), getattr(g, "placements", "a plain tensor"), p.placements))
        return local(g)

    def _hold(self, grads):
        """Holds nothing: local tensors may be new objects at every step."""

    def _move(self, where):
        if [tuple(p.shape) for p in self.params] != [tuple(a.shape) for a in self.alias]:
            raise Changed
        super()._move(where)

    def _changed(self):
        return self.owners + self.params

    def _bind(self, hypers):
        super()._bind(hypers)
        for i, p in enumerate(self.owners):
            for name in self.codes(i) if piece(p, self.params[i]) else ():
                if not cut_by_rows(p, self.params[i]):
                    raise ValueError("state '%s' of %s is stored in block codes, and its pieces have different sizes "
                                     "or are not cut by rows: store it as f32, or use equal pieces" % (
                                         name, self.names[i]))

    def _scales(self, i, name):
        scales, p, here = super()._scales(i, name), self.owners[i], self.params[i]
        return scales if scales is None or not piece(p, here) else placed_scales(scales, p)

    def _placed(self, i, view):
        return placed(view, self.owners[i]) if view.shape == self.params[i].shape else view
