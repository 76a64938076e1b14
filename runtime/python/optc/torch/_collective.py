"""Rules whose step needs the other ranks: reductions over cut tensors, and matrices that one rank
computes for all (optc_bind_sharded of optc.h). One binding has all tensors, also plain ones, of
which every rank has the whole."""
import functools

import torch
import torch.distributed as dist

from .. import _lib
from .._api import Binding
from ._codes import CODES, SCALE, blocks
from ._comm import comm_of
from ._engines import DTYPES, asked
from ._owned import Owned, put, spread
from ._param_roles import Part
from ._scaling import HIDDEN
from ._sharded import Sharded, as_dtensor, cut_dim, is_cut, is_sharded, piece
from ._state_views import shaped
from ._tensor_binding import TensorBinding
from ._tensor_checks import row_major, tensor_name


# ---- which ranks step together ----
@functools.lru_cache(maxsize=None)
def _steps_pieces(what, dims, part):
    """Whether the rule steps pieces of tensors of so many dimensions without the other ranks. what:
    arguments of Engine.compile, as pairs."""
    whole = (2 * max(part.split, 1),) + (2,) * (dims - 1)      # one row is a part of a matrix
    rule = asked(**{**dict(what), "wrappers": dict(dict(what)["wrappers"])})
    try:
        Binding(rule, [([{"param": torch.zeros((1, *whole[1:]), dtype=torch.float32, device="cpu"),
                          **part._asdict(), "global_shape": whole, "offset": (0,) * dims}], {})])
        return True
    except _lib.ArgumentError:
        return False


def root_ranks(params, names):
    """The ranks of the root mesh of DTensors, sorted. Refuses meshes with different ranks."""
    found = None
    for p, name in zip(params, names):
        if not is_sharded(p):
            continue
        ranks = sorted(_root(p.device_mesh).mesh.flatten().tolist())
        if found is None:
            found, first = ranks, tensor_name(p, name)
        elif ranks != found:
            raise ValueError("%s is on a mesh of the ranks %s, and %s on one of the ranks %s: use "
                             "submeshes of one mesh, or an optimizer for each" %
                             (first, found, tensor_name(p, name), ranks))
    return found


def _root(mesh):
    if hasattr(mesh, "_get_root_mesh"):
        return mesh._get_root_mesh()
    from torch.distributed.device_mesh import _mesh_resources      # before torch 2.9
    return _mesh_resources.get_root_mesh(mesh)


def _stage_ranks(params):
    """The ranks of the parameters' own meshes. The root mesh may have the other stages too."""
    return sorted(
        {r for p in params if is_sharded(p) for r in p.device_mesh.mesh.flatten().tolist()})


def ranks_of(opt, parts):
    """The ranks that step an optimizer's parameters together; None: each process steps alone.
    parts: [[Part]] of its groups."""
    rows = [(p, role.name, k) for k, group in enumerate(opt.param_groups)
            for p, role in zip(group["params"], opt._roles.rows[k])
            if p.requires_grad or p.grad is not None]
    if opt._process_group is None and not any(is_cut(p) for p, _, _ in rows):
        return None
    if all(_is_elementwise(opt, k, parts[k]) for k in {k for _, _, k in rows}):
        return None
    meshes = _stage_ranks([p for p, _, _ in rows]) \
        if opt._group is not None and opt._process_group is None else \
        root_ranks([p for p, _, _ in rows], [name for _, name, _ in rows])
    ranks = meshes if opt._process_group is None else sorted(
        dist.get_process_group_ranks(opt._process_group))
    if meshes and not set(ranks) <= set(meshes):
        raise ValueError(
            "process_group has the ranks %s, and the parameters' mesh has the ranks %s" %
            (ranks, meshes))
    if opt._release and len(ranks) > 1:
        raise ValueError("%s needs all ranks for a step of these parameters: release_grads=True "
                         "cannot be used with it"
                         % opt._rule.spec)
    return tuple(ranks) if len(ranks) > 1 else None


def steps_pieces_of_vectors(what):
    """The same for pieces of vectors. what: a dict."""
    return _steps_pieces(_as_key(what), 1, Part())


def _as_key(what):
    return tuple(
        sorted((n, tuple(v.items()) if n == "wrappers" else v) for n, v in what.items()
               if n != "types"))


def _is_elementwise(opt, k, parts):
    """Whether the rule of a group computes every element of its parameters by itself. The same on
    all ranks."""
    group = opt.param_groups[k]
    opt._rule.fold(group, opt.defaults)
    what = opt._rule.compiled(*opt._rule.rule(group, k), scaler=opt._scaled)
    key = _as_key(what)
    return all(_steps_pieces(key, p.dim(), part) for p, part in zip(group["params"], parts)
               if p.dim() and (p.requires_grad or p.grad is not None))


# ---- a binding ----
class Collective(Sharded):
    """ranks: the global ranks of the processes that step together. Binding, steps, and reading and
    writing states that one rank holds are collective."""

    def __init__(self, ranks, *given):
        self.ranks = ranks
        self._owned = None
        super().__init__(*given)

    def _piece(self, i):
        p, here = self.owners[i], self.params[i]
        return piece(p, here) or {"global_shape": tuple(p.shape), "offset": (0,) * p.dim()}

    def _taken_over(self, _at):
        # another binding may have other owners: states are copied
        return None

    def _bind(self, hypers):
        self.comm = comm_of(self.ranks, self.device)
        self._stage_these(i for i, p in enumerate(self.params) if not row_major(p))
        self._attempt(hypers)
        self._find_owned()
        self._refuse_codes()

    # ---- states ----
    def _kept(self, i):
        """(state, domain) of a tensor's states that opt.state shows"""
        return [(n, d) for n, d in self.domains.items()
                if d != "group" and not n.startswith(HIDDEN) and self.binding.has_state(i, n)]

    def _find_owned(self):
        """Finds the states that opt.state cannot show with the cuts of their parameters. Ranks tell
        what they hold."""
        mine = {}
        for i, p in enumerate(self.owners):
            for name, domain in self._kept(i):
                rank = self.binding.state_rank(i, name)
                if rank == self.comm.rank or (rank < 0 and is_cut(p) and
                                              self._is_stacked(i, domain)):
                    address, count, kind = self.binding.state(i, name) \
                        if self.params[i].numel() or rank >= 0 else (None, 0, None)
                    mine[i, name] = rank, count, kind, self._first(i)
        every = self.comm.gathered(mine)
        self._kinds, self._owned = {}, [{} for _ in self.params]
        for i, name in sorted({key for found in every for key in found}):
            rows = [found.get((i, name)) for found in every]
            self._owned[i].update(self._make_owned(i, name, [x or (0, 0, None, 0) for x in rows]))

    def _is_stacked(self, i, domain):
        """Whether a state has values for each matrix of a stack, in no form that has the
        parameter's dimensions. If the parameter is one matrix, all ranks have the same value per
        matrix."""
        split = self.asked[i].split > 1
        return domain not in ("elem", "tensor", "row", "slice") or (domain == "slice" and split)

    def _first(self, i):
        """The number of this rank's first element in the whole parameter."""
        p, at = self.owners[i], self._piece(i)["offset"]
        return sum(k * n for k, n in zip(at, torch.empty(p.shape, device="meta").stride()))

    def _make_owned(self, i, name, rows):
        """rows: by rank, (rank or -1, count, type, first element of its piece)"""
        p, outer, me = self.owners[i], self._outer.get(name, name), self.comm.rank
        counts, begin = {first: count for _, count, _, first in rows if count}, {}
        for first in sorted(counts):
            begin[first] = sum(n for k, n in counts.items() if k < first)
        holds = [
            (begin[first], begin[first] + count) if count else (0, 0) for _, count, _, first in rows
        ]
        total, kind = sum(counts.values()), next((kind for _, count, kind, _ in rows if count),
                                                 _lib.F32)
        self._kinds[i, name] = kind
        memory = self._tensor(i, name) if rows[me][1] else None
        shape = tuple(shaped(torch.empty(total, device="meta"), torch.empty(p.shape, device="meta"),
                             self.domains[name]).shape)
        made = {outer: Owned(self.comm, shape, DTYPES[kind], self.device, holds, memory)}
        if kind in CODES:
            scales = [(0, blocks(total)) if count else (0, 0) for _, count, _, _ in rows]
            made[outer + SCALE] = Owned(
                self.comm, (blocks(total),), torch.float32, self.device, scales,
                TensorBinding._scales(self, i, name) if memory is not None else None)
        return made

    def owned(self, i):
        return self._owned[i]

    def all_owned(self):
        """(number, name, state) in the same order on all ranks"""
        return [(i, name, own[name]) for i, own in enumerate(self._owned) for name in sorted(own)]

    def spread(self):
        """[(number, name, DTensor)] of states that one rank holds"""
        rows = self.all_owned()
        return [(i, name, x) for (i, name, _), x in zip(rows, spread([s for _, _, s in rows]))]

    def put_owned(self):
        put([s for _, _, s in self.all_owned()])

    def codes(self, i):
        if self._codes[i] is None:
            found = {self._outer.get(n, n): self._kinds.get((i, n)) or self.binding.state(i, n)[2]
                     for n, d in self._kept(i) if d == "elem"}
            self._codes[i] = {k: kind for k, kind in found.items() if kind in CODES}
        return self._codes[i]

    def _make_views(self, i):
        p, views = self.owners[i], {}
        for name, domain in self._kept(i):
            outer = self._outer.get(name, name)
            if outer not in self._owned[i]:
                views[outer] = self._place_state(i, name, domain)
                scales = self._scales(i, name)
                if scales is not None:
                    views[outer + SCALE] = scales
        if i in self.firsts:
            k = self.firsts[i]
            views.update((self._outer.get(n, n), self._tensor(k, n).view(())) for n in self.grouped
                         if self.binding.has_state(k, n))
        return views

    def _place_state(self, i, name, domain):
        """A state that this rank holds, as a DTensor with the cuts of its parameter in the
        dimensions that it has."""
        p, here = self.owners[i], self.params[i]
        lies = self.staged.get(i, here)
        count = self.binding.state(i, name)[1] if here.numel() or domain == "tensor" else 0
        flat = self._tensor(i, name) if count else torch.empty(0, dtype=here.dtype,
                                                               device=here.device)
        view = shaped(flat, lies, domain)
        if not is_cut(p) or view.dim() != p.dim():
            return view
        # the dimension of a mean
        gone = () if domain == "elem" else (p.dim() - (1 if domain == "row" else 2),)
        shape, mine = (
            [1 if d in gone else n for d, n in enumerate(x)] for x in (p.shape, here.shape))
        if list(view.shape) != mine:
            return view                                # every rank has all of it
        from torch.distributed.tensor import Replicate
        at = [Replicate() if cut_dim(x) in gone else x for x in p.placements]
        stride = p.stride() if domain == "elem" else torch.empty(shape, device="meta").stride()
        return as_dtensor(view, p.device_mesh, at, shape, stride)

    def edited(self, i, key, value):
        return key in self._owned[i] or super().edited(i, key, value)

    def shows(self, i, own):
        return not any(k in own for k in self._owned[i]) and super().shows(i, own)
