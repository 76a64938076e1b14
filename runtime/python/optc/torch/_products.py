"""Products of matrices without a rule: batches, chains within a workspace, Gram and Kronecker
products.

Leading dimensions are a batch; a single matrix is used for the whole batch. Sums of 16-bit values
are computed in float32. On a GPU cuBLAS computes the products, in tf32 if
torch.set_float32_matmul_precision allows it. The functions are not differentiable.
"""
import functools
from math import prod
from typing import Optional

import torch

from .. import _lib
from .._api import product
from ._engines import TYPES
from ._function_args import matrices, on, place, plain, result_in, run_on, tf32, uncompiled

# default workspace of bounded_matmul, in bytes
BOUND = 64 << 20


# ---- preparation ----
class MatrixView:
    """How an operand of that shape and strides is read: in place, or as a copy if neither its rows
    nor its columns are contiguous."""

    def __init__(self, shape, stride, batch):
        """batch: leading dimensions of the result"""
        rows, cols = shape[-2:]
        one = all(n == 1 for n in shape[:-2])
        down, across = stride[-2:]
        between = 0 if one else _between(batch, (0,) * (len(batch) + 2 - len(shape)) + tuple(
            s if n > 1 else 0 for n, s in zip(shape, stride[:-2])))
        self.copied, self.turned = 0, 0
        if between is not None and (across == 1 or cols == 1) and (down >= cols or rows == 1):
            ld = max(down, cols) if rows > 1 else cols
        elif between is not None and (down == 1 or rows == 1) and (across >= rows or cols == 1):
            self.turned, ld = 1, max(across, rows) if cols > 1 else rows
        else:
            self.copied, ld, between = rows * cols * (1 if one else
                                                      prod(batch)), cols, 0 if one else rows * cols
        self.ld, self.next = max(ld, 1), between or _lib.ONE
        self.one, self.whole = one, (*(() if one else batch), rows, cols)

    def members(self, name):
        return {"turn_" + name: self.turned, "ld" + name: self.ld, "next_" + name: self.next}

    def of(self, x):
        if not self.copied:
            return x
        return (x.reshape(self.whole) if self.one else x.expand(self.whole)).contiguous()


def _between(shape, stride):
    """The distance between the matrices of a batch; None: it is not constant."""
    dims = [(n, s) for n, s in zip(shape, stride) if n != 1]
    if any(s != m * r for (_, s), (m, r) in zip(dims, dims[1:])):
        return None
    return dims[-1][1] if dims else 0


def _batch(who, *shapes):
    if all(s[:-2] == shapes[0][:-2] for s in shapes):
        return tuple(shapes[0][:-2])
    try:
        return tuple(torch.broadcast_shapes(*(s[:-2] for s in shapes)))
    except RuntimeError:
        raise ValueError("optc.torch.%s: batches of %s do not fit" % (
            who, " and ".join(str(tuple(s)) for s in shapes))) from None


class Ready:
    """A prepared product for operands of these layouts; only addresses and the stream are set
    later. If the second of two operands is None, the product is a Gram matrix."""

    def __init__(self, who, lying, dtype, workspace, products):
        """lying: (shape, strides) of the operands, in order"""
        shapes = [x[0] for x in lying if x is not None]
        for before, after in zip(zip("ABC", shapes), zip("BC", shapes[1:])):
            if before[1][-1] != after[1][-2]:
                raise ValueError("optc.torch.%s: %s of shape %s does not fit %s of shape %s" % (
                    who, before[0], tuple(before[1]), after[0], tuple(after[1])))
        batch, gram = _batch(who, *shapes), lying[-1] is None
        m, k, last = shapes[0][-2], shapes[0][-1], shapes[0][-2] if gram else shapes[-1][-1]
        self.shape = (*batch, m, last)
        self.nothing = not all(
            (m, last, prod(batch))) or not all(s[-1] for s in shapes[:max(len(shapes) - 1, 1)])
        if self.nothing:
            return
        self.lies = [MatrixView(*x, batch) for x in lying if x is not None]
        members = {
            "type": TYPES[dtype], "m": m, "n": last if gram else shapes[1][-1], "k": k,
            "batch": prod(batch), "workspace": _room(who, workspace, lying, self.lies,
                                                     dtype), "products": products
        }
        for name, x in zip("abd", self.lies):
            members.update(x.members(name))
        if len(shapes) == 3:
            members["p"] = last
        self.product = product(**members)

    def of(self, tensors, out, stream):
        """The optc_product, and the tensors that keep its operands alive."""
        held = [lies.of(x) for lies, x in zip(self.lies, tensors)]
        # a copy: other threads may use the same one
        p = _lib.Product.from_buffer_copy(self.product)
        for name, x in zip("abd", held):
            setattr(p, name, x.data_ptr())
        p.c, p.stream = out.data_ptr(), stream
        return p, held


_ready = functools.lru_cache(maxsize=256)(Ready)


def _room(who, workspace, lying, lies, dtype):
    """The rest of a workspace after copies of operands; 0: no workspace was given."""
    copied = sum(x.copied for x in lies) * torch.finfo(dtype).bits // 8
    if not workspace or not copied:
        return workspace
    if copied >= workspace:
        odd = [tuple(x[1]) for x, y in zip(lying, lies) if y.copied]
        raise ValueError(
            "optc.torch.%s: operands with strides %s must be copied, which takes %d "
            "bytes of a workspace of %d: pass .contiguous() ones" % (who, odd, copied, workspace))
    return workspace - copied


# ---- execution ----
def _multiply(who, given, out, workspace=0):
    """The product of two or three tensors. If the second of two is None, the product is a Gram
    matrix."""
    given = [None if x is None else x.resolve_neg() for x in given]
    tensors = [x for x in given if x is not None]
    first = tensors[0]
    dtype, device = first.dtype, first.device
    ready = _ready(who, tuple(None if x is None else (x.shape, x.stride()) for x in given), dtype,
                   workspace, "tf32" if tf32(device, dtype) else None)
    with torch.no_grad(), on(device):
        to = place(who, first, ready.shape, out, tensors)
        if ready.nothing:
            return result_in(first, ready.shape, out, to.zero_())

        def call(engine, stream):
            p, _held = ready.of(tensors, to, stream)
            engine.multiply_ready(p)
        run_on(who, device, call)
        return result_in(first, ready.shape, out, to)


def _plain(who, **tensors):
    plain(who, **tensors)
    for name, x in tensors.items():
        matrices(who, name, x)


# ---- functions ----
@uncompiled
def batched_matmul(A: torch.Tensor, B: torch.Tensor, *,
                   out: Optional[torch.Tensor] = None) -> torch.Tensor:
    """A @ B of the matrices in the last two dimensions, with one call for the whole batch. A single
    matrix is used for the whole batch. Transposed operands (x.mT) are not copied."""
    who = "batched_matmul"
    _plain(who, A=A, B=B)
    return _multiply(who, (A, B), out)


@uncompiled
def bounded_matmul(A: torch.Tensor, B: torch.Tensor, C: Optional[torch.Tensor] = None, *,
                   workspace: int = BOUND, out: Optional[torch.Tensor] = None) -> torch.Tensor:
    """A @ B, or A @ B @ C without storing the whole product between them: some rows of A @ B (or
    some columns of B @ C, if that is less work) are computed and used at a time. Temporaries take
    at most `workspace` bytes; a product that needs more is refused, with the number of bytes it
    needs. On the CPU the bits do not depend on workspace and threads. On a GPU they may, because
    cuBLAS chooses by size."""
    who = "bounded_matmul"
    named = {"A": A, "B": B} if C is None else {"A": A, "B": B, "C": C}
    _plain(who, **named)
    if not isinstance(workspace, int) or workspace < 1:
        raise ValueError(
            "optc.torch.bounded_matmul: workspace=%r: it must be a number of bytes" % (workspace,))
    if C is None:
        return _multiply(who, (A, B), out, workspace)
    m, k, n, p = A.shape[-2], A.shape[-1], B.shape[-1], C.shape[-1]
    if k * n * p + m * k * p < m * k * n + m * n * p and out is None:
        return _multiply(who, (C.mT, B.mT, A.mT), None, workspace).mT
    return _multiply(who, (A, B, C), out, workspace)


@uncompiled
def gram(A: torch.Tensor, *, out: Optional[torch.Tensor] = None) -> torch.Tensor:
    """A @ A.mT; gram(A.mT) is A.mT @ A. The CPU computes one triangle and copies it, so both have
    the same bits."""
    who = "gram"
    _plain(who, A=A)
    return _multiply(who, (A, None), out)


@uncompiled
def kron(A: torch.Tensor, B: torch.Tensor, *, out: Optional[torch.Tensor] = None) -> torch.Tensor:
    """The Kronecker product of the matrices in the last two dimensions: (m p) x (n q) from m x n
    and p x q. Leading dimensions are a batch (torch.kron multiplies them too). A single matrix is
    used for the whole batch."""
    who = "kron"
    _plain(who, A=A, B=B)
    (m, n), (p, q) = A.shape[-2:], B.shape[-2:]
    batch = _batch(who, A.shape, B.shape)
    shape = (*batch, m * p, n * q)
    with torch.no_grad(), on(A.device):
        to = place(who, A, shape, out, (A, B))
        if to.numel():
            a, b = (x.reshape(1, *x.shape[-2:]).contiguous() if x.dim() == 2 else
                    x.expand(*batch, *x.shape[-2:]).reshape(-1, *x.shape[-2:]).contiguous()
                    for x in (A.resolve_neg(), B.resolve_neg()))
            run_on(who, A.device, lambda engine, stream: engine.kron(
                a.data_ptr(), b.data_ptr(), to.data_ptr(), type=TYPES[A.dtype], m=m, n=n, p=p, q=q,
                batch=prod(batch), next_a=_lib.ONE if a.shape[0] == 1 else 0,
                next_b=_lib.ONE if b.shape[0] == 1 else 0, stream=stream))
        return result_in(A, shape, out, to)
