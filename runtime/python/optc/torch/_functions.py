"""Functions of matrices, computed by the spec language's power, eigh, qr, chol, solve and polar.

Leading dimensions are a batch. The functions are not differentiable.
"""
import functools
from collections import namedtuple
from fractions import Fraction
from math import prod
from typing import Optional, Sequence, Tuple, Union

import torch
from torch._C._functorch import is_functorch_wrapped_tensor

from .._arrays import listed
from ._function_cache import Form, call, uncompiled
from ._engines import TYPES, capturing

Eigh = namedtuple("Eigh", "eigenvalues eigenvectors")
QR = namedtuple("QR", "Q R")
SPEC = """return optimizer { name = "%s", view = "last", %s
  matrix = function() %s end,
  step = function() p = 0 end }"""


# Further reasons why a result may not exist.
ALSO = {"matrix_power": ", or eigenvalues that are not positive where they have to be: a ridge, or relative, "
                        "lifts them",
        "cholesky": ", or it is not positive: add something to its diagonal",
        "solve_positive": " or in B, or it is not positive: add something to its diagonal",
        "solve_triangular": " or in B, or a 0 on its diagonal"}


# ---- arguments ----
def plain(who, **tensors):
    """Refuses tensors that a function does not take. Returns the type that it computes in, and the device."""
    first = None
    for name, x in tensors.items():
        if not isinstance(x, torch.Tensor):
            raise TypeError("optc.torch.%s: %s must be a tensor, not %s" % (who, name, type(x).__name__))
        if type(x) not in (torch.Tensor, torch.nn.Parameter):
            raise TypeError("optc.torch.%s does not take tensors of %s: %s" % (who, type(x).__name__, name))
        if is_functorch_wrapped_tensor(x):
            raise RuntimeError("optc.torch.%s does not run under torch.func's transforms: leading dimensions are a "
                               "batch without vmap, and it is not differentiable" % who)
        if x.dtype not in TYPES:
            raise TypeError("optc.torch.%s: %s has type %s; supported are %s"
                            % (who, name, x.dtype, listed(str(t).partition(".")[2] for t in TYPES)))
        if x.layout != torch.strided:
            raise TypeError("optc.torch.%s: %s is sparse; pass %s.to_dense()" % (who, name, name))
        if x.device.type not in ("cpu", "cuda"):
            raise ValueError("optc.torch.%s runs on the CPU and on NVIDIA GPUs, not on %s" % (who, x.device))
        if x.requires_grad and torch.is_grad_enabled():
            raise RuntimeError("optc.torch.%s is not differentiable, and %s requires grad: pass %s.detach(), or call "
                               "it under torch.no_grad()" % (who, name, name))
        if first is None:
            first = name, x
        elif x.dtype != first[1].dtype or x.device != first[1].device:
            raise ValueError("optc.torch.%s: %s is %s on %s, and %s %s on %s" % (
                who, first[0], first[1].dtype, first[1].device, name, x.dtype, x.device))
    x = first[1]
    return (torch.float64 if x.dtype == torch.float64 else torch.float32), x.device


def matrices(who, name, x, square=False):
    if x.dim() < 2:
        raise ValueError("optc.torch.%s: %s has shape %s: the last two dimensions are its matrices"
                         % (who, name, tuple(x.shape)))
    if square and x.shape[-1] != x.shape[-2]:
        raise ValueError("optc.torch.%s: the matrices of %s must be square, and its shape is %s"
                         % (who, name, tuple(x.shape)))


def number(who, name, x, least=None):
    try:
        x = float(x)
    except (TypeError, ValueError):
        raise TypeError("optc.torch.%s: %s must be a number, not %r" % (who, name, x)) from None
    if x != x or x in (float("inf"), float("-inf")) or (least is not None and x < least):
        raise ValueError("optc.torch.%s: %s=%g; it must be a finite number%s" % (
            who, name, x, "" if least is None else " of at least %g" % least))
    return x


def tf32(device, dtype):
    """Whether torch rounds this type to tf32 in products. A setting made by torch's new names must not be read by the
    old ones."""
    if device.type != "cuda" or dtype != torch.float32:
        return False
    try:
        return torch.backends.cuda.matmul.fp32_precision == "tf32"
    except AttributeError:                             # before torch 2.9
        return torch.get_float32_matmul_precision() != "highest"


def leave(like, shape, out, found):
    """The result in `out`, or as a new tensor of the type of `like`."""
    if out is None:
        return found.reshape(shape).to(like.dtype, copy=True)
    return out.copy_(found.reshape(shape))


def fits(who, like, shape, out):
    """Refuses an `out` of another shape, type or device than the result."""
    if out is None:
        return
    plain(who, out=out)
    if out.shape != torch.Size(shape) or out.dtype != like.dtype or out.device != like.device:
        raise ValueError("optc.torch.%s: out is %s of %s on %s, and the result %s of %s on %s" % (
            who, tuple(out.shape), out.dtype, out.device, tuple(shape), like.dtype, like.device))


def judged(who, check, *found):
    """If check is set, raises an error that names the matrices whose results are not finite."""
    if not check:
        return
    if capturing(found[0].device):
        raise RuntimeError("optc.torch.%s: check=True waits for the device, which is not possible while a graph is "
                           "captured" % who)
    good = torch.stack([torch.isfinite(x).flatten(1).all(1) for x in found]).all(0)
    if not bool(good.all()):
        bad = (~good).nonzero().flatten().tolist()
        raise torch.linalg.LinAlgError(
            "optc.torch.%s: no result for matrix %s of %d (a NaN or an infinity in it%s)"
            % (who, ", ".join(map(str, bad[:8])) + (" …" if len(bad) > 8 else ""), good.numel(), ALSO.get(who, "")))


def _flat(x):
    """x as (batch, rows, columns), with all leading dimensions in the batch."""
    return (prod(x.shape[:-2]),) + tuple(x.shape[-2:])


def _of_square(form, A, dtype, device, give):
    """Runs a function whose input A and result X are square matrices."""
    b, n, _ = size = _flat(A)
    sizes = {name: size[:2] if name == "w" else size for name in ("A", *form.gives)}
    return call(form, (b, n, 1), sizes, [A.reshape(size)], dtype, device, give)


# ---- functions ----
@uncompiled
def matrix_power(A: torch.Tensor, exponent: float, *, ridge: float = 0.0, relative: float = 0.0, floor: float = 0.0,
                 check: bool = False, out: Optional[torch.Tensor] = None) -> torch.Tensor:
    """A ** exponent of symmetric matrices; only the lower triangles are read.

    exponent  any real number; -1/4 is the inverse fourth root
    ridge     is added to the eigenvalues
    relative  times the largest row sum of magnitudes is added to the eigenvalues
    floor     the least eigenvalue; smaller ones are raised to it
    check     raises an error that names matrices without a power, and waits for the device

    For a negative or fractional exponent the eigenvalues must then be positive. The result of a matrix without a power
    is NaN; other matrices of the batch are not affected. 16-bit types are computed in float32, factors in float64."""
    who = "matrix_power"
    dtype, device = plain(who, A=A)
    matrices(who, "A", A, square=True)
    exponent = number(who, "exponent", exponent)
    lift = {"ridge": number(who, "ridge", ridge, 0), "relative": number(who, "relative", relative, 0),
            "floor": number(who, "floor", floor, 0)}
    lift = {k: v for k, v in lift.items() if v}        # zeros are left out: only a floor needs eigenvectors
    fits(who, A, A.shape, out)
    if not A.numel():
        return leave(A, A.shape, out, A)
    if not exponent:
        with torch.no_grad():                          # the spec language does not have this power
            X = torch.where(A.tril().isfinite().flatten(-2).all(-1)[..., None, None], torch.eye(
                A.shape[-1], dtype=A.dtype, device=device), float("nan"))
            judged(who, check, X.reshape(_flat(A)))
            return leave(A, A.shape, out, X)
    form = Form(who, SPEC % (
        who, 'hyper = { %s }, inputs = { A = "rows" }, state = { X = zeros "rows" },' % ", ".join(
            "by_%s = 0" % k for k in lift),
        "X = power(A, %s, { %s })" % (_exponent(exponent), ", ".join("%s = by_%s" % (k, k) for k in lift))),
        ["A"], ["X"], {"by_" + k: v for k, v in lift.items()})

    def give(X):
        judged(who, check, X)
        return leave(A, A.shape, out, X)
    return _of_square(form, A, dtype, device, give)


@functools.lru_cache(maxsize=64)
def _exponent(x):
    """The exponent as the spec language accepts it: -1/3, but not -0.3333, is a third root."""
    near = Fraction(x).limit_denominator(64)
    return "%d/%d" % (near.numerator, near.denominator) if float(near) == x else repr(x)


def inverse_root(A: torch.Tensor, root: float, *, ridge: float = 0.0, relative: float = 0.0, floor: float = 0.0,
                 check: bool = False, out: Optional[torch.Tensor] = None) -> torch.Tensor:
    """A ** (-1 / root) of symmetric matrices: see matrix_power."""
    root = number("inverse_root", "root", root)
    if not root:
        raise ValueError("optc.torch.inverse_root: root=0; it must not be 0")
    return matrix_power(A, -1 / root, ridge=ridge, relative=relative, floor=floor, check=check, out=out)


@uncompiled
def eigh(A: torch.Tensor, *, check: bool = False) -> Tuple[torch.Tensor, torch.Tensor]:
    """(eigenvalues, eigenvectors) of symmetric matrices; only the lower triangles are read. Eigenvalues are in
    ascending order, as in torch.linalg.eigh. Eigenvectors are columns; the largest entry of each is positive."""
    who = "eigh"
    dtype, device = plain(who, A=A)
    matrices(who, "A", A, square=True)
    if not A.numel():
        return Eigh(leave(A, A.shape[:-1], None, A), leave(A, A.shape, None, A))
    form = Form(who, SPEC % (who, 'inputs = { A = "rows" }, state = { w = zeros "row", V = zeros "rows" },',
                             "w, V = eigh(A)"), ["A"], ["w", "V"], {})

    def give(w, V):
        judged(who, check, w, V)
        return Eigh(leave(A, A.shape[:-1], None, w.flip(-1)), leave(A, A.shape, None, V.flip(-1)))
    return _of_square(form, A, dtype, device, give)


@uncompiled
def cholesky(A: torch.Tensor, *, check: bool = False, out: Optional[torch.Tensor] = None) -> torch.Tensor:
    """The lower triangular L with A = L @ L.mT of positive definite matrices; only the lower triangles are read."""
    who = "cholesky"
    dtype, device = plain(who, A=A)
    matrices(who, "A", A, square=True)
    fits(who, A, A.shape, out)
    if not A.numel():
        return leave(A, A.shape, out, A)
    form = Form(who, SPEC % (who, 'inputs = { A = "rows" }, state = { X = zeros "rows" },', "X = chol(A)"),
                ["A"], ["X"], {})

    def give(X):
        judged(who, check, X)
        return leave(A, A.shape, out, X)
    return _of_square(form, A, dtype, device, give)


@uncompiled
def qr(A: torch.Tensor, *, check: bool = False) -> Tuple[torch.Tensor, torch.Tensor]:
    """(Q, R) with A = Q @ R. Q has orthonormal columns, as many as A's smaller side. R is upper triangular, and its
    diagonal is not negative. For linearly dependent columns of A, Q is completed with orthonormal columns."""
    who = "qr"
    dtype, device = plain(who, A=A)
    matrices(who, "A", A)
    b, m, n = size = _flat(A)
    k = min(m, n)
    lead = A.shape[:-2]
    if not A.numel():
        Q = torch.eye(m, k, dtype=A.dtype, device=A.device).expand(*lead, m, k)
        return QR(leave(A, (*lead, m, k), None, Q), A.new_zeros((*lead, k, n)))
    form = Form(who, SPEC % (who, 'rank = 1048576, inputs = { A = "rows rank" }, state = { X = zeros "rows rank" },',
                             "X = qr(A)"), ["A"], ["X"], {})
    x = A.reshape(size)

    def give(Q):
        judged(who, check, Q)
        with torch.autocast(device.type, enabled=False):
            exact = torch.float64 if tf32(device, dtype) else dtype
            R = torch.matmul(Q.mT.to(exact), x.to(exact)).triu_()
        return QR(leave(A, (*lead, m, k), None, Q), leave(A, (*lead, k, n), None, R))
    return call(form, (b, m, k), {"A": (b, m, k), "X": (b, m, k)}, [x[..., :k]], dtype, device, give)


@uncompiled
def solve_triangular(T: torch.Tensor, B: torch.Tensor, *, upper: bool = False, left: bool = True, check: bool = False,
                     out: Optional[torch.Tensor] = None) -> torch.Tensor:
    """Solves T @ X = B (left=False: X @ T = B) for a triangular T. Only its lower triangle is read (upper=True: the
    upper one)."""
    return _solve("solve_triangular", T, B, upper, left, False, check, out)


@uncompiled
def solve_positive(A: torch.Tensor, B: torch.Tensor, *, check: bool = False,
                   out: Optional[torch.Tensor] = None) -> torch.Tensor:
    """Solves A @ X = B for a symmetric positive definite A; only its lower triangle is read."""
    return _solve("solve_positive", A, B, False, True, True, check, out)


def _solve(who, T, B, upper, left, spd, check, out):
    first = "A" if spd else "T"
    dtype, device = plain(who, **{first: T, "B": B})
    matrices(who, first, T, square=True)
    matrices(who, "B", B)
    if T.shape[:-2] != B.shape[:-2] or T.shape[-1] != B.shape[-2 if left else -1]:
        raise ValueError("optc.torch.%s: %s of shape %s does not fit B of shape %s" % (
            who, first, tuple(T.shape), tuple(B.shape)))
    fits(who, B, B.shape, out)
    if not B.numel():
        return leave(B, B.shape, out, B)
    options = ", ".join(o + " = true" for o, on in (("right", not left), ("spd", spd)) if on)
    form = Form(who, SPEC % (who, 'inputs = { T = "%s" },' % ("rows" if left else "cols"),
                             "p = solve(%s, p, { %s })" % ("T.T" if upper else "T", options)), ["T", "p"], ["p"], {})
    size, square = _flat(B), _flat(T)
    triangle = (T.mT if upper else T).reshape(square)

    def give(X):
        judged(who, check, X)
        return leave(B, B.shape, out, X)
    return call(form, size, {"T": square, "p": size}, [triangle, B.reshape(size)], dtype, device, give)


def _coefficients(given):
    """The coefficients of polar as text of the spec language, which checks names and numbers."""
    if isinstance(given, str):
        if not given.isidentifier():
            raise ValueError("optc.torch.polar: unknown coefficients %r" % given)
        return '"%s"' % given
    try:
        rows = [tuple(row) for row in given]
    except TypeError:
        rows = [()]
    if any(len(row) != 3 for row in rows):
        raise TypeError("optc.torch.polar: coefficients must be a name or a list of triples of numbers, not %r"
                        % (given,))
    return "{ %s }" % ", ".join("{ %r, %r, %r }" % tuple(number("polar", "coefficients", c) for c in row)
                                for row in rows)


@uncompiled
def polar(A: torch.Tensor, *, steps: int = 12, coefficients: Union[str, Sequence[Sequence[float]]] = "polar_express",
          check: bool = False, out: Optional[torch.Tensor] = None) -> torch.Tensor:
    """The orthogonal factor U V.mT of A = U S V.mT, for any shape, by `steps` iterations of products. coefficients:
    "polar_express", "jordan" (Muon's five steps: fast and inexact), "cans", "turbo", or a list of triples. With the
    defaults, singular values below about 1e-5 of the largest do not reach 1."""
    who = "polar"
    dtype, device = plain(who, A=A)
    matrices(who, "A", A)
    if number(who, "steps", steps, 1) % 1:
        raise ValueError("optc.torch.polar: steps=%g; it must be a whole number" % steps)
    text = _coefficients(coefficients)
    fits(who, A, A.shape, out)
    if not A.numel():
        return leave(A, A.shape, out, A)
    form = Form(who, SPEC % (who, "", "p = polar(p, { steps = %d, coefficients = %s })" % (steps, text)),
                ["p"], ["p"], {})
    size = _flat(A)

    def give(X):
        judged(who, check, X)
        return leave(A, A.shape, out, X)
    return call(form, size, {"p": size}, [A.reshape(size)], dtype, device, give)
