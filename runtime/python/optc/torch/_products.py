"""Products of matrices with no rule: batches, chains within a workspace, Gram and Kronecker products.

Leading dimensions are a batch; one matrix may meet all of a batch. Sums of 16 bits are carried in float32, on a GPU by
cuBLAS, in tf32 where torch.set_float32_matmul_precision allows it. Nothing here is differentiable.
"""
from typing import Optional

import torch

from .. import _lib
from ._functions import fits, leave, matrices, plain
from ._kept import on, uncompiled
from ._memory import TYPES, device_of

BOUND = 64 << 20                                       # bytes that a bounded product takes where nothing is said


class Lying:
    """An operand as it lies, or a copy where rows or columns do not lie one behind the other."""

    def __init__(self, x, batch):
        """`batch`: leading dimensions of the result."""
        rows, cols = x.shape[-2:]
        one = x.dim() == 2 or all(s == 1 for s in x.shape[:-2])
        whole = x if one or x.shape[:-2] == batch else x.expand(*batch, rows, cols)
        kept = x.reshape(1, rows, cols) if one else whole.reshape(-1, rows, cols)
        down, across = kept.stride()[1:]
        if (across == 1 or cols == 1) and (down >= cols or rows == 1):
            self.turned, ld = 0, max(down, cols) if rows > 1 else cols
        elif (down == 1 or rows == 1) and (across >= rows or cols == 1):
            self.turned, ld = 1, max(across, rows) if cols > 1 else rows
        else:
            kept, self.turned, ld = kept.contiguous(), 0, cols
        self.ld, self.rows, self.cols = max(ld, 1), rows, cols
        self.next = _lib.ONE if one else kept.stride(0) or _lib.ONE
        self.tensor = kept
        own = kept.untyped_storage().data_ptr() != x.untyped_storage().data_ptr()
        self.copied = kept.numel() * kept.element_size() if own else 0

    def members(self, name):
        return {name: self.tensor, "turn_" + name: self.turned, "ld" + name: self.ld, "next_" + name: self.next}


def _batch(who, *tensors):
    if all(x.shape[:-2] == tensors[0].shape[:-2] for x in tensors):
        return tensors[0].shape[:-2]
    try:
        return torch.broadcast_shapes(*(x.shape[:-2] for x in tensors))
    except RuntimeError:
        raise ValueError("optc.torch.%s: batches of %s do not fit" % (
            who, " and ".join(str(tuple(x.shape)) for x in tensors))) from None


def _chained(who, **tensors):
    """Checks a chain of products; the shape of what comes of it."""
    before = None
    plain(who, **tensors)
    for name, x in tensors.items():
        matrices(who, name, x)
        if before is not None and before[1].shape[-1] != x.shape[-2]:
            raise ValueError("optc.torch.%s: %s of shape %s does not fit %s of shape %s" % (
                who, before[0], tuple(before[1].shape), name, tuple(x.shape)))
        before = name, x
    given = list(tensors.values())
    return (*_batch(who, *given), given[0].shape[-2], given[-1].shape[-1])


def _place(who, like, shape, out, operands):
    """Where a result is made: `out` if it lies row behind row, apart from the operands."""
    fits(who, like, shape, out)
    apart = out is not None and out.is_contiguous() and all(
        out.untyped_storage().data_ptr() != x.untyped_storage().data_ptr() for x in operands)
    return out if apart else torch.empty(shape, dtype=like.dtype, device=like.device)


def _given(like, shape, out, to):
    return to if out is None or to is out else leave(like, shape, out, to)


def _run(who, call, device, **members):
    """call: "multiply" or "kron" of an engine."""
    stream = torch.cuda.current_stream(device).cuda_stream if device.type == "cuda" else None
    memory = device_of(device)
    try:
        with memory.passing():
            getattr(memory.engine, call)(stream=stream, **members)
    except _lib.Error as e:
        e.args = (("optc.torch.%s: %s" % (who, e)).replace("optc_multiply: ", "").replace("optc_kron: ", ""),)
        raise


def _multiply(who, given, shape, out, workspace=0):
    """The product of two or three tensors; two of which the second is None: a Gram matrix."""
    first, last = given[0], given[-1]
    device = first.device
    tensors = [x for x in given if x is not None]
    with torch.no_grad(), on(device):
        to = _place(who, first, shape, out, tensors)
        deep = first.shape[-1]
        if not to.numel() or not deep or (len(given) == 3 and not last.shape[-2]):
            return _given(first, shape, out, to.zero_())
        lies = [Lying(x, shape[:-2]) for x in tensors]
        room = _room(who, workspace, lies, tensors)
        n = shape[-1] if given[1] is None else given[1].shape[-1]
        members = {"type": TYPES[first.dtype], "m": shape[-2], "n": n, "k": deep, "batch": _count(shape[:-2]),
                   "workspace": room}
        for name, x in zip("abd", lies):
            members.update(x.members(name))
        members.setdefault("b", None)
        if len(given) == 3:
            members["p"] = shape[-1]
        if device.type == "cuda" and first.dtype == torch.float32:
            members["products"] = None if torch.get_float32_matmul_precision() == "highest" else "tf32"
        _run(who, "multiply", device, c=to, **members)
        return _given(first, shape, out, to)


def _room(who, workspace, lies, tensors):
    """What copies of operands leave of a workspace; 0: nobody gave one."""
    copied = sum(x.copied for x in lies)
    if not workspace or not copied:
        return workspace
    if copied >= workspace:
        odd = [tuple(x.stride()) for x, y in zip(tensors, lies) if y.copied]
        raise ValueError("optc.torch.%s: operands with strides %s are copied, which takes %d bytes of a workspace of "
                         "%d: give them as .contiguous()" % (who, odd, copied, workspace))
    return workspace - copied


def _count(shape):
    n = 1
    for s in shape:
        n *= s
    return n


# ---- functions ----
@uncompiled
def batched_matmul(A: torch.Tensor, B: torch.Tensor, *, out: Optional[torch.Tensor] = None) -> torch.Tensor:
    """A @ B of matrices in the last two dimensions, all of a batch in one call; a single matrix meets all of them, and
    transposed ones (x.mT) are read as they lie."""
    who = "batched_matmul"
    return _multiply(who, (A, B), _chained(who, A=A, B=B), out)


@uncompiled
def bounded_matmul(A: torch.Tensor, B: torch.Tensor, C: Optional[torch.Tensor] = None, *, workspace: int = BOUND,
                   out: Optional[torch.Tensor] = None) -> torch.Tensor:
    """A @ B, or A @ B @ C without the product between them ever being there as a whole: rows of it (of A @ B, or of
    columns of B @ C where that is less work) are made and used. Beside operands and result it takes at most
    `workspace` bytes; what cannot do with that is refused with what it needs. On the CPU the bits do not depend on
    workspace and threads; on a GPU they may, as cuBLAS chooses by size."""
    who = "bounded_matmul"
    named = {"A": A, "B": B} if C is None else {"A": A, "B": B, "C": C}
    shape = _chained(who, **named)
    if not isinstance(workspace, int) or workspace < 1:
        raise ValueError("optc.torch.bounded_matmul: workspace=%r: a number of bytes" % (workspace,))
    if C is None:
        return _multiply(who, (A, B), shape, out, workspace)
    m, k, n, p = A.shape[-2], A.shape[-1], B.shape[-1], C.shape[-1]
    if k * n * p + m * k * p < m * k * n + m * n * p and out is None:
        turned = (*shape[:-2], shape[-1], shape[-2])
        return _multiply(who, (C.mT, B.mT, A.mT), turned, None, workspace).mT
    return _multiply(who, (A, B, C), shape, out, workspace)


@uncompiled
def gram(A: torch.Tensor, *, out: Optional[torch.Tensor] = None) -> torch.Tensor:
    """A @ A.mT; of A.mT: A.mT @ A. The CPU computes half of it, and both halves are the same bits there."""
    who = "gram"
    plain(who, A=A)
    matrices(who, "A", A)
    return _multiply(who, (A, None), (*A.shape[:-1], A.shape[-2]), out)


@uncompiled
def kron(A: torch.Tensor, B: torch.Tensor, *, out: Optional[torch.Tensor] = None) -> torch.Tensor:
    """The Kronecker product of matrices in the last two dimensions: (m p) x (n q) of m x n and p x q. Leading
    dimensions are a batch (torch.kron multiplies those too); a single matrix meets all of one."""
    who = "kron"
    plain(who, A=A, B=B)
    for name, x in (("A", A), ("B", B)):
        matrices(who, name, x)
    (m, n), (p, q) = A.shape[-2:], B.shape[-2:]
    batch = _batch(who, A, B)
    shape = (*batch, m * p, n * q)
    with torch.no_grad(), on(A.device):
        to = _place(who, A, shape, out, (A, B))
        if to.numel():
            a, b = (x.reshape(1, *x.shape[-2:]).contiguous() if x.dim() == 2 else
                    x.expand(*batch, *x.shape[-2:]).reshape(-1, *x.shape[-2:]).contiguous() for x in (A, B))
            many = _count(batch)
            _run(who, "kron", A.device, a=a, b=b, c=to, type=TYPES[A.dtype], m=m, n=n, p=p,
                 q=q, batch=many, next_a=_lib.ONE if a.shape[0] == 1 else 0,
                 next_b=_lib.ONE if b.shape[0] == 1 else 0)
        return _given(A, shape, out, to)
