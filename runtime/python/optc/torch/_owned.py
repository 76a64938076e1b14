"""States that one rank of a sharded binding holds, such as SOAP's L and R. state_dict() shows each as a DTensor that is
cut by rows over all ranks (Shard(0)); loading brings the rows back to the owner. Both are collective copies."""
import math

import torch
import torch.distributed as dist

from ._sharded import is_sharded, local

BATCH = 256 << 20                                      # bytes of all ranks together in one exchange


class Owned:
    """A state. shape, dtype: as one process shows it; rank: its owner; memory: the owner's live state, None elsewhere;
    device: where its pieces are."""

    def __init__(self, comm, shape, dtype, device, rank, memory):
        self.comm, self.shape, self.dtype, self.device = comm, torch.Size(shape), dtype, device
        self.rank, self.memory, self.given = rank, memory, None

    @property
    def bytes(self):
        return math.prod(self.shape) * self.dtype.itemsize

    def stride(self):
        return tuple(math.prod(self.shape[k + 1:]) for k in range(len(self.shape)))

    def rows(self, rank):
        """(first, end) of a rank's rows, as torch.chunk cuts them. A state of no dimensions is whole everywhere."""
        if not self.shape:
            return 0, 1
        n = self.shape[0]
        each = -(-n // self.comm.ranks)
        return min(rank * each, n), min((rank + 1) * each, n)

    def piece_shape(self, rank):
        first, end = self.rows(rank)
        return (end - first, *self.shape[1:]) if self.shape else ()

    def piece_bytes(self, rank):
        return math.prod(self.piece_shape(rank)) * self.dtype.itemsize

    def shown(self, piece):
        """A rank's rows as a part of the DTensor; a state of no dimensions is a plain tensor."""
        if not self.shape:
            return piece
        from torch.distributed.tensor import DTensor, Shard
        return DTensor.from_local(piece, self.comm.mesh, [Shard(0)], run_check=False, shape=self.shape,
                                  stride=self.stride())

    def take(self, value):
        """A new value, passed to the owner by put(). A value that is cut in another way is made whole first."""
        if is_sharded(value) and not self._cut_alike(value):
            value = value.full_tensor()
        self.given = value

    def _cut_alike(self, value):
        from torch.distributed.tensor import Shard
        return tuple(value.placements) == (Shard(0),) and value.shape == self.shape and \
            value.device_mesh.mesh.flatten().tolist() == self.comm.mesh.mesh.tolist()


def batches(states):
    """Lists of states of at most BATCH bytes, or of one state."""
    found, size = [], 0
    for s in states:
        if found and size + s.bytes > BATCH:
            yield found
            found, size = [], 0
        found.append(s)
        size += s.bytes
    if found:
        yield found


def _flat(tensors, device):
    """The bytes of tensors, one after the other."""
    parts = [t.contiguous().reshape(-1).view(torch.uint8) for t in tensors if t.numel()]
    return torch.cat(parts) if parts else torch.empty(0, dtype=torch.uint8, device=device)


def _apart(flat, states, rank):
    """Tensors with the shapes of a rank's pieces, from their bytes; each has its own memory."""
    found, at = [], 0
    for s in states:
        n = s.piece_bytes(rank)
        found.append(flat[at:at + n].clone().view(s.dtype).view(s.piece_shape(rank)))
        at += n
    return found


def _exchange(comm, device, parts, sizes):
    """all_to_all of one flat tensor per rank; sizes: bytes to receive of each rank. Returns them by rank."""
    recv = torch.empty(sum(sizes), dtype=torch.uint8, device=device)
    dist.all_to_all_single(recv, torch.cat(parts), sizes, [x.numel() for x in parts], group=comm.group)
    return recv.split(sizes)


@torch.no_grad()
def spread(states):
    """What state_dict() shows of the states: their rows of this rank. All ranks call it with the same states."""
    shown = {}
    for some in batches(states):
        comm, device, every = some[0].comm, some[0].device, range(some[0].comm.ranks)
        mine = [s for s in some if s.rank == comm.rank]
        parts = [_flat([s.memory.reshape(s.shape)[slice(*s.rows(r))] if s.shape else s.memory for s in mine], device)
                 for r in every]
        theirs = [[s for s in some if s.rank == r] for r in every]
        found = _exchange(comm, device, parts, [sum(s.piece_bytes(comm.rank) for s in own) for own in theirs])
        for flat, own in zip(found, theirs):
            for s, piece in zip(own, _apart(flat, own, comm.rank)):
                shown[id(s)] = s.shown(piece)
    return [shown[id(s)] for s in states]


@torch.no_grad()
def put(states):
    """Passes values that were taken to their owners. All ranks call it with the same states."""
    for s in states:
        if s.given is not None and not is_sharded(s.given) and s.memory is not None:
            s.memory.copy_(s.given.reshape(s.memory.shape))
    for some in batches([s for s in states if is_sharded(s.given)]):
        comm, device, every = some[0].comm, some[0].device, range(some[0].comm.ranks)
        parts = [_flat([local(s.given).to(device, s.dtype) for s in some if s.rank == r], device) for r in every]
        mine = [s for s in some if s.rank == comm.rank]
        found = _exchange(comm, device, parts, [sum(s.piece_bytes(r) for s in mine) for r in every])
        for r, flat in enumerate(found):
            for s, piece in zip(mine, _apart(flat, mine, r)):
                s.memory.view(s.shape)[slice(*s.rows(r))].copy_(piece)
    for s in states:
        s.given = None
