"""States that do not have the cuts of their parameter: one rank of a sharded binding holds all of
it, such as SOAP's L and R, or each rank holds those of its matrices (stacks). state_dict() shows
such a state as a DTensor that is cut by rows over all ranks (Shard(0)); loading brings the values
back to their ranks. Both are collective copies."""
import math

import torch
import torch.distributed as dist

from ._sharded import is_sharded, local

BATCH = 256 << 20                                      # bytes of all ranks together in one exchange


class Owned:
    """A state. shape, dtype: as one process shows it; device: where its memory is. holds: by rank,
    (first, end) of the flat values that it holds; ranks with the same values are replicas. memory:
    this rank's values, flat."""

    def __init__(self, comm, shape, dtype, device, holds, memory):
        self.comm, self.shape, self.dtype, self.device = comm, torch.Size(shape), dtype, device
        self.holds, self.memory, self.given = holds, memory, None
        # one of the replicas
        self.sends = [x if x not in holds[:r] else (0, 0) for r, x in enumerate(holds)]

    @property
    def bytes(self):
        return math.prod(self.shape) * self.dtype.itemsize

    def stride(self):
        return tuple(math.prod(self.shape[k + 1:]) for k in range(len(self.shape)))

    def shows(self, rank):
        """(first, end) of the flat values that a rank shows: its rows, as torch.chunk cuts them.
        All ranks show a state of no dimensions."""
        if not self.shape:
            return 0, 1
        n, row = self.shape[0], math.prod(self.shape[1:])
        each = -(-n // self.comm.ranks)
        return min(rank * each, n) * row, min((rank + 1) * each, n) * row

    def piece_shape(self, rank):
        first, end = self.shows(rank)
        return ((end - first) // max(math.prod(self.shape[1:]), 1),
                *self.shape[1:]) if self.shape else ()

    def shown(self, piece):
        """A rank's rows as a part of the DTensor; a state of no dimensions is a plain tensor."""
        if not self.shape:
            return piece
        from torch.distributed.tensor import DTensor, Shard
        return DTensor.from_local(piece, self.comm.mesh, [Shard(0)], run_check=False,
                                  shape=self.shape, stride=self.stride())

    def take(self, value):
        """A new value, which put() passes on. A value that is cut in another way is made whole
        first."""
        if is_sharded(value) and not self._cut_alike(value):
            value = value.full_tensor()
        self.given = value

    def part_of(self, value):
        """(values, index of the first) of a new value that is a DTensor: this rank's rows, or all
        of it."""
        if self._cut_alike(value):
            return local(value), self.shows(self.comm.rank)[0]
        return value.full_tensor(), 0

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


def _common(a, b):
    first = max(a[0], b[0])
    return first, max(first, min(a[1], b[1]))


def _exchange(states, out, into, outgoing):
    """all_to_all of parts of states, all in one message per pair of ranks. out, into: functions of
    (state, rank): the (first, end) of values that this rank sends to it, and receives from it.
    outgoing: this rank's values of a state, and the number of the first. Yields (state, first,
    values) of what is received."""
    comm, device, every = states[0].comm, states[0].device, range(states[0].comm.ranks)
    parts, none = [], torch.empty(0, dtype=torch.uint8, device=device)
    for r in every:
        rows = [(s, *out(s, r)) for s in states]
        made = [values[first - start:end - start].contiguous().view(torch.uint8)
                for s, first, end in rows if end > first for values, start in [outgoing(s)]]
        parts.append(torch.cat(made) if made else none)
    rows = [[(s, *into(s, r)) for s in states] for r in every]
    sizes = [sum((end - first) * s.dtype.itemsize for s, first, end in each) for each in rows]
    recv = torch.empty(sum(sizes), dtype=torch.uint8, device=device)
    dist.all_to_all_single(recv, torch.cat(parts), sizes, [x.numel() for x in parts],
                           group=comm.group)
    at = 0
    for s, first, end in (x for each in rows for x in each):
        n = (end - first) * s.dtype.itemsize
        if n:
            # clone: an address that fits the type
            yield s, first, recv[at:at + n].clone().view(s.dtype)
        at += n


@torch.no_grad()
def spread(states):
    """What state_dict() shows of the states. All ranks call it with the same states."""
    shown = {}
    for some in batches(states):
        me = some[0].comm.rank
        flat = {
            id(s): torch.empty(math.prod(s.piece_shape(me)), dtype=s.dtype, device=s.device)
            for s in some
        }
        for s, first, values in _exchange(some, lambda s, r: _common(s.sends[me], s.shows(r)),
                                          lambda s, r: _common(s.sends[r], s.shows(me)),
                                          lambda s: (s.memory, s.holds[me][0])):
            at = first - s.shows(me)[0]
            flat[id(s)][at:at + values.numel()] = values
        shown.update((id(s), s.shown(flat[id(s)].view(s.piece_shape(me)))) for s in some)
    return [shown[id(s)] for s in states]


@torch.no_grad()
def put(states):
    """Passes values that were taken to the ranks that hold them. All ranks call it with the same
    states."""
    for s in states:
        if s.given is not None and not is_sharded(s.given) and s.memory is not None:
            s.memory.copy_(s.given.reshape(-1)[slice(*s.holds[s.comm.rank])])
    for some in batches([s for s in states if is_sharded(s.given)]):
        me = some[0].comm.rank
        for s, first, values in _exchange(
                some, lambda s, r: _common(s.shows(me), s.holds[r]),
                lambda s, r: _common(s.shows(r), s.holds[me]), lambda s:
            (local(s.given).to(s.device, s.dtype).reshape(-1), s.shows(me)[0])):
            at = first - s.holds[me][0]
            s.memory[at:at + values.numel()] = values
    for s in states:
        s.given = None
