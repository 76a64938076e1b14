"""Parameters that are pieces of larger tensors (DTensor of FSDP2 and tensor parallelism). With a
rule that computes every element by itself each process steps its piece and nothing is communicated;
_collective.py has the other rules. States of elements are DTensors with the placement of their
parameters."""
import sys
from operator import attrgetter

import torch

from ._address_check import same
from ._codes import blocks
from ._tensor_binding import TensorBinding, Changed
from ._tensor_checks import refuse_negated, tensor_name

T = torch.Tensor
PLAIN = {T}
_grad, _here, _spec = map(attrgetter, ("grad", "_local_tensor", "_spec"))


def is_sharded(x):
    """Whether x is a DTensor. Does not import torch.distributed.tensor, which is slow: without it
    there is none."""
    there = sys.modules.get("torch.distributed.tensor")
    return there is not None and isinstance(x, there.DTensor)


def cut_dim(placement):
    """The dimension that Shard or _StridedShard cuts; None: Replicate."""
    return getattr(placement, "dim", None)


def refuse_placed(p, name):
    for x in p.placements:
        if cut_dim(x) is None and not x.is_replicate():
            raise TypeError("optc steps DTensors that are cut by Shard or whole by Replicate: %s "
                            "is placed as %s" % (
                tensor_name(p, name), x))
    refuse_negated(p, name)


def local(x):
    """The part of x in this process; a plain tensor itself. Not to_local(), which takes 15 us for
    each tensor."""
    if not is_sharded(x):
        return x
    here = x._local_tensor
    # of a collective that is under way
    return here.trigger_wait() if hasattr(here, "trigger_wait") else here


def piece(p, here):
    """{global_shape, offset} of this process's piece. {}: it is the whole tensor, or the process is
    outside of the mesh and has no piece."""
    if not is_sharded(p) or p.device_mesh.get_coordinate() is None:
        return {}
    shape, at = _chunk(p)
    if tuple(shape) != tuple(here.shape):
        raise ValueError("a DTensor of shape %s has %s here, where its placement %s says %s" % (
            tuple(p.shape), tuple(here.shape), p.placements, tuple(shape)))
    return {} if tuple(shape) == tuple(
        p.shape) else {"global_shape": tuple(p.shape), "offset": tuple(at)}


def _chunk(p):
    """(shape, offset) of this process's piece, by torch's own function. Local tensors of
    Megatron-FSDP and veScale have a list of their own."""
    listed = getattr(p._local_tensor, "__create_chunk_list__", None)
    if listed is None:
        from torch.distributed.tensor._utils import compute_local_shape_and_global_offset
        shape, at = compute_local_shape_and_global_offset(p.shape, p.device_mesh, p.placements)
        for d, n in enumerate(shape):
            rows = _rows(p, d)
            if n and rows is not None and rows != list(range(at[d], at[d] + n)):
                raise ValueError("a DTensor of shape %s placed as %s has indices here that are not "
                                 "consecutive (dimension %d): choose a size that the mesh divides" %
                                 (tuple(p.shape), p.placements, d))
        return shape, at
    chunks = listed()
    if len(chunks) != 1:
        raise ValueError("a DTensor of shape %s has %d pieces in this process: optc steps one" % (
            tuple(p.shape), len(chunks)))
    return chunks[0].sizes, chunks[0].offsets


def _rows(p, d):
    """The indices of dimension d in this process, if a _StridedShard cuts it; None: they are
    consecutive anyway."""
    cuts = [(k, x) for k, x in enumerate(p.placements) if cut_dim(x) == d]
    if not any(hasattr(x, "split_factor") for _, x in cuts):
        return None
    from torch.distributed.tensor import Shard
    rows, mine = torch.arange(p.shape[d]), p.device_mesh.get_coordinate()
    for k, x in cuts:
        along = type(x)(0, split_factor=x.split_factor) if hasattr(x, "split_factor") else Shard(0)
        rows = along._split_tensor(rows, p.device_mesh.size(k), with_padding=False)[0][mine[k]]
    return rows.tolist()


def is_cut(p):
    """Whether processes have different pieces of p. The answer is the same in all of them."""
    return is_sharded(p) and any(cut_dim(x) is not None and p.device_mesh.size(k) > 1
                                 for k, x in enumerate(p.placements))


def as_dtensor(here, mesh, placements, shape, stride):
    """A local tensor as a part of a DTensor that shares its memory. from_local would copy it to the
    device of the mesh: with CPU offload parameters are on the CPU and their mesh is on GPUs."""
    from torch.distributed.tensor import DTensor
    if here.device.type == mesh.device_type:
        return DTensor.from_local(here, mesh, placements, run_check=False, shape=torch.Size(shape),
                                  stride=tuple(stride))
    from torch.distributed.tensor._dtensor_spec import DTensorSpec, TensorMeta
    meta = TensorMeta(torch.Size(shape), tuple(stride), here.dtype)
    return DTensor(here, DTensorSpec(mesh, tuple(placements), tensor_meta=meta),
                   requires_grad=False)


def placed(view, p):
    """A local state as a DTensor with the placement of the parameter."""
    return as_dtensor(view, p.device_mesh, p.placements, p.shape, p.stride())


def cut_by_rows(p, here):
    """Whether all processes have equally many rows of it."""
    cuts = [k for k, x in enumerate(p.placements) if cut_dim(x) is not None]
    return len(cuts) == 1 and cut_dim(p.placements[cuts[0]]) == 0 and \
        here.numel() * p.device_mesh.size(cuts[0]) == p.numel()


def placed_scales(scales, p):
    """The scales of a piece's block codes as a part of a DTensor that is cut as the parameter's
    rows are."""
    from torch.distributed.tensor import Replicate, Shard
    at = [Replicate() if cut_dim(x) is None else Shard(0) for x in p.placements]
    return as_dtensor(scales, p.device_mesh, at, (blocks(p.numel()),), (1,))


def refuse_placed_value(value, view, name):
    if is_sharded(value) and isinstance(view, torch.Tensor) and not is_sharded(view):
        raise ValueError("%s was saved as a DTensor, and is none here: load it by "
                         "torch.distributed.checkpoint, or give its full_tensor()" % name)


def fill(view, value):
    """Copies a loaded state: a DTensor, or a whole tensor, of which this process takes its
    piece."""
    if not isinstance(view, torch.Tensor):
        view.take(value)                               # a state that one rank holds
    elif not is_sharded(view):
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
    def __init__(self, *given):
        super().__init__(*given)
        # mesh, placement, shape and type of the bound parameters
        self.specs = self._specs()

    def _locals(self):
        try:
            found = list(map(_here, self.owners))
        except AttributeError:                         # some are plain tensors
            found = [getattr(p, "_local_tensor", p) for p in self.owners]
        return found if set(map(type, found)) == PLAIN else [local(p) for p in self.owners]

    @torch.no_grad()
    def _aliases(self):
        """Views, which hold their local parts in C++. torch takes the GIL at every use of a tensor
        that only Python holds: two uses by each step, 50 ns each. The garbage collector cannot see
        such a reference, so parameters themselves, whose hooks may refer to the optimizer, are not
        held like that."""
        return [
            p.detach() if p is owner else p.view(p.shape)
            for p, owner in zip(self.params, self.owners)
        ]

    def _specs(self):
        try:
            return list(map(_spec, self.owners))
        except AttributeError:                         # some are plain tensors
            return [getattr(p, "_spec", None) for p in self.owners]

    def _piece(self, i):
        return piece(self.owners[i], self.params[i])

    def _read(self):
        self.params = self._locals()
        specs = self._specs()
        if specs != self.specs:                        # a list compares identities first
            raise Changed
        self.specs = specs
        # DTensor has no function of its own: half the time of a read
        with torch._C.DisableTorchFunctionSubclass():
            grads = list(map(_grad, self.owners))
        # gradients of FSDP2 have the same _spec object as their parameters
        try:
            here = list(map(_here, grads))
            if same(list(map(_spec, grads)), specs) and set(map(type, here)) == PLAIN:
                return here
        except AttributeError:                         # plain tensors, or no gradient
            pass
        return [
            None
            if g is None else g._local_tensor if getattr(g, "_spec", None) is spec is not None and
            type(g._local_tensor) is T else self._local_grad(p, g, name)
            for p, g, spec, name in zip(self.owners, grads, specs, self.names)
        ]

    def _local_grad(self, p, g, name):
        """The local part of a gradient that has not the _spec object of its parameter."""
        if not is_sharded(p):
            return g
        if not is_sharded(g) or g.placements != p.placements or (
                g.device_mesh is not p.device_mesh and g.device_mesh != p.device_mesh):
            raise RuntimeError("the gradient of %s is placed as %s, and it as %s: redistribute the "
                               "gradient first" % (
                tensor_name(p, name), getattr(g, "placements", "a plain tensor"), p.placements))
        return local(g)

    def _move(self, where):
        if [tuple(p.shape) for p in self.params] != [tuple(a.shape) for a in self.alias]:
            raise Changed
        super()._move(where)

    def _changed(self):
        return self.owners + self.params

    def _bind(self, hypers):
        super()._bind(hypers)
        self._refuse_codes()

    def _refuse_codes(self):
        for i, p in enumerate(self.owners):
            for name in self.codes(i) if piece(p, self.params[i]) else ():
                if name not in self.owned(i) and not cut_by_rows(p, self.params[i]):
                    raise ValueError("state '%s' of %s is stored in block codes, and its pieces "
                                     "have different sizes or are not cut by rows: store it as "
                                     "f32, or use equal pieces" % (
                                         name, self.names[i]))

    def _scales(self, i, name):
        scales, p, here = super()._scales(i, name), self.owners[i], self.params[i]
        return scales if scales is None or not piece(p, here) else placed_scales(scales, p)

    def _placed(self, i, view):
        p = self.owners[i]
        return placed(view, p) if is_sharded(p) and view.shape == self.params[i].shape else view
