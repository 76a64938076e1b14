"""Functions of matrices: callers of the library's optc_matrix_power, optc_eigh and others
(runtime/optc_matrix.h).

Leading dimensions are a batch. The functions are not differentiable.
"""
import ctypes
import math
from collections import namedtuple
from typing import Optional, Sequence, Tuple, Union

import torch

from .. import _lib
from ._engines import TYPES, capturing
from ._function_args import (fits, leave, matrices, number, on, place, plain, result_in, run_on,
                             uncompiled)

Eigh = namedtuple("Eigh", "eigenvalues eigenvectors")
QR = namedtuple("QR", "Q R")
NUMBERS = {dtype: _lib.TYPE_NAMES[name] for dtype, name in TYPES.items()}
USUAL_WORKSPACE = 1 << 30                              # an engine's default is at least this

# with check=True their A is tested
SYMMETRIC = ("matrix_power", "eigh", "cholesky", "solve_positive")
# Further reasons why a result may not exist.
ALSO = {"matrix_power": ", or eigenvalues that are not positive where they have to be: a ridge, or "
                        "relative, lifts them",
        "cholesky": ", or it is not positive: add something to its diagonal",
        "solve_positive": " or in B, or it is not positive: add something to its diagonal",
        "solve_triangular": " or in B, or a 0 on its diagonal"}


# ---- calls ----
def judged(who, *found):
    """Raises an error that names the matrices whose results are not finite."""
    good = torch.stack([torch.isfinite(x).flatten(1).all(1) for x in found]).all(0)
    if not bool(good.all()):
        raise torch.linalg.LinAlgError("optc.torch.%s: no result for %s (a NaN or an infinity in "
                                       "it%s)"
                                       % (who, _named(~good), ALSO.get(who, "")))


def _refuse_asymmetric(who, A):
    """Raises an error that names the matrices of A whose triangles differ by more than rounding:
    half of the type's digits, relative to the entry and to its diagonal, as in C
    (core/functions/function_copy.c)."""
    x = A.detach().to(torch.float64 if A.dtype == torch.float64 else torch.float32)
    root = x.diagonal(dim1=-2, dim2=-1).abs().sqrt()
    half = (2 - math.frexp(torch.finfo(A.dtype).eps)[1]) // 2
    size = x.abs()
    bad = ((x - x.mT).abs() * 2.0 ** half
           > size + size.mT + root[..., None] * root[..., None, :]).flatten(-2).any(-1)
    if bool(bad.any()):
        raise torch.linalg.LinAlgError(
            "optc.torch.%s: %s of A is not symmetric; check=False reads the lower triangle alone, "
            "and A.tril() + A.tril(-1).mT has it on both sides" % (who, _named(bad.flatten())))


def _named(bad):
    which = bad.nonzero().flatten().tolist()
    return "matrix %s of %d" % (", ".join(map(str, which[:8])) +
                                (" …" if len(which) > 8 else ""), bad.numel())


def _workspace(arrays, device):
    """The workspace for these arrays: a power of two, so that there are few engines; the default
    for small ones."""
    # factors are computed in f64
    square = 8 * max(max(x.shape[-2:]) ** 2 for x in arrays)
    work = 16 * square * (torch.get_num_threads() if device.type == "cpu" else 1)
    need = 4 * sum(x.numel() * max(4, x.element_size()) for x in arrays) + work
    return 0 if need <= USUAL_WORKSPACE else 1 << (need - 1).bit_length()


def _matrix(x):
    return _lib.Matrix(x.data_ptr(), 0, 0)


def _apply(who, call, operands, shapes, check, out=None, **members):
    """Calls the library's function on operands (matrices a and b). Returns results of these shapes
    (x and y): the first one in `out`, if that is given. Only lower triangles are read, and values
    are not checked by the library, which reports the first bad matrix alone."""
    like = operands[-1]
    device, lead = like.device, math.prod(like.shape[:-2])
    if check and capturing(device):
        raise RuntimeError("optc.torch.%s: check=True waits for the device, which is not possible "
                           "while a graph is captured" % who)
    fits(who, like, shapes[0], out)
    if not like.numel():
        return [leave(like, s, o, like.new_zeros(s)) for s, o in zip(shapes, (out, None))]
    if check and who in SYMMETRIC:
        _refuse_asymmetric(who, operands[0])
    with torch.no_grad(), on(device):
        operands = [x.resolve_neg().contiguous() for x in operands]
        to = [
            place(who, like, s, None if check else o, operands)
            for s, o in zip(shapes, (out, None))
        ]
        f = _lib.Function(type=NUMBERS[like.dtype], batch=lead, lower=1, unchecked=1, **members)
        for name, x in zip("ab", operands):
            setattr(f, name, _matrix(x))
        for name, x in zip("xy", to):
            setattr(f, name, _matrix(x))

        def run(engine, stream):
            f.stream = stream
            getattr(_lib.lib, "optc_%s_sized" % call)(engine.handle, f, ctypes.sizeof(f))
        run_on(who, device, run, _workspace([*operands, *to], device))
        if check:
            judged(who, *(x.reshape(lead, -1) for x in to))
        return [result_in(like, s, o, x) for s, o, x in zip(shapes, (out, None), to)]


# ---- functions ----
@uncompiled
def matrix_power(A: torch.Tensor, exponent: float, *, ridge: float = 0.0, relative: float = 0.0,
                 floor: float = 0.0, check: bool = False,
                 out: Optional[torch.Tensor] = None) -> torch.Tensor:
    """A ** exponent of symmetric matrices; only the lower triangles are read.

    exponent  any real number; -1/4 is the inverse fourth root
    ridge     is added to the eigenvalues
    relative  times the largest row sum of magnitudes is added to the eigenvalues; on a GPU it also
              makes roots faster: see FUNCTIONS.md
    floor     the least eigenvalue; smaller ones are raised to it
    check     raises an error that names matrices that are not symmetric or have no power, and waits
              for the device

    For a negative or fractional exponent the eigenvalues must then be positive. The result of a
    matrix without a power is NaN; other matrices of the batch are not affected. 16-bit types are
    computed in float32, factors in float64."""
    who = "matrix_power"
    plain(who, A=A)
    matrices(who, "A", A, square=True)
    exponent = number(who, "exponent", exponent)
    lift = {
        "ridge": number(who, "ridge", ridge, 0), "relative": number(who, "relative", relative, 0),
        "floor": number(who, "floor", floor, 0)
    }
    if exponent or not A.numel():
        return _apply(who, who, [A], [A.shape], check, out, n=A.shape[-1], exponent=exponent,
                      **lift)[0]
    fits(who, A, A.shape, out)
    with torch.no_grad():                              # the library does not have this power
        X = torch.where(A.tril().isfinite().flatten(-2).all(-1)[..., None, None], torch.eye(
            A.shape[-1], dtype=A.dtype, device=A.device), float("nan"))
        if check:
            _refuse_asymmetric(who, A)
            judged(who, X.reshape(-1, A.shape[-1] ** 2))
        return leave(A, A.shape, out, X)


def inverse_root(A: torch.Tensor, root: float, *, ridge: float = 0.0, relative: float = 0.0,
                 floor: float = 0.0, check: bool = False,
                 out: Optional[torch.Tensor] = None) -> torch.Tensor:
    """A ** (-1 / root) of symmetric matrices: see matrix_power."""
    root = number("inverse_root", "root", root)
    if not root:
        raise ValueError("optc.torch.inverse_root: root=0; it must not be 0")
    return matrix_power(A, -1 / root, ridge=ridge, relative=relative, floor=floor, check=check,
                        out=out)


@uncompiled
def eigh(A: torch.Tensor, *, check: bool = False) -> Tuple[torch.Tensor, torch.Tensor]:
    """(eigenvalues, eigenvectors) of symmetric matrices; only the lower triangles are read.
    Eigenvalues are in ascending order, as in torch.linalg.eigh. Eigenvectors are columns; the
    largest entry of each is positive."""
    who = "eigh"
    plain(who, A=A)
    matrices(who, "A", A, square=True)
    V, w = _apply(who, who, [A], [A.shape, A.shape[:-1]], check, n=A.shape[-1])
    return Eigh(w, V)


@uncompiled
def cholesky(A: torch.Tensor, *, check: bool = False,
             out: Optional[torch.Tensor] = None) -> torch.Tensor:
    """The lower triangular L with A = L @ L.mT of positive definite matrices; only the lower
    triangles are read."""
    who = "cholesky"
    plain(who, A=A)
    matrices(who, "A", A, square=True)
    return _apply(who, who, [A], [A.shape], check, out, n=A.shape[-1])[0]


@uncompiled
def qr(A: torch.Tensor, *, check: bool = False) -> Tuple[torch.Tensor, torch.Tensor]:
    """(Q, R) with A = Q @ R. Q has orthonormal columns, as many as A's smaller side. R is upper
    triangular, and its diagonal is not negative. For linearly dependent columns of A, Q is
    completed with orthonormal columns."""
    who = "qr"
    plain(who, A=A)
    matrices(who, "A", A)
    *lead, m, n = A.shape
    k = min(m, n)
    if not A.numel():
        Q = torch.eye(m, k, dtype=A.dtype, device=A.device).expand(*lead, m, k)
        return QR(leave(A, (*lead, m, k), None, Q), A.new_zeros((*lead, k, n)))
    return QR(*_apply(who, who, [A], [(*lead, m, k), (*lead, k, n)], check, m=m, n=n))


@uncompiled
def solve_triangular(T: torch.Tensor, B: torch.Tensor, *, upper: bool = False, left: bool = True,
                     check: bool = False, out: Optional[torch.Tensor] = None) -> torch.Tensor:
    """Solves T @ X = B (left=False: X @ T = B) for a triangular T. Only its lower triangle is read
    (upper=True: the upper one)."""
    return _solve("solve_triangular", T, B, upper, left, False, check, out)


@uncompiled
def solve_positive(A: torch.Tensor, B: torch.Tensor, *, check: bool = False,
                   out: Optional[torch.Tensor] = None) -> torch.Tensor:
    """Solves A @ X = B for a symmetric positive definite A; only its lower triangle is read."""
    return _solve("solve_positive", A, B, False, True, True, check, out)


def _solve(who, T, B, upper, left, spd, check, out):
    first = "A" if spd else "T"
    plain(who, **{first: T, "B": B})
    matrices(who, first, T, square=True)
    matrices(who, "B", B)
    if T.shape[:-2] != B.shape[:-2] or T.shape[-1] != B.shape[-2 if left else -1]:
        raise ValueError("optc.torch.%s: %s of shape %s does not fit B of shape %s" % (
            who, first, tuple(T.shape), tuple(B.shape)))
    return _apply(who, "solve", [T, B], [B.shape], check, out, n=T.shape[-1],
                  m=B.shape[-1 if left else -2], upper=upper, right=not left, positive=spd)[0]


def _coefficients(given):
    """The coefficients of polar as members of optc_function."""
    if isinstance(given, str):
        if not given.isidentifier():
            raise ValueError("optc.torch.polar: unknown coefficients %r" % given)
        return {"coefficients": given.encode()}
    try:
        rows = [tuple(row) for row in given]
    except TypeError:
        rows = [()]
    if not rows or any(len(row) != 3 for row in rows):
        raise TypeError("optc.torch.polar: coefficients must be a name or a list of triples of "
                        "numbers, not %r"
                        % (given,))
    triples = [number("polar", "coefficients", c) for row in rows for c in row]
    return {"triples": _lib.array(ctypes.c_double, triples), "ntriples": len(rows)}


@uncompiled
def polar(A: torch.Tensor, *, steps: int = 12,
          coefficients: Union[str, Sequence[Sequence[float]]] = "polar_express",
          check: bool = False, out: Optional[torch.Tensor] = None) -> torch.Tensor:
    """The orthogonal factor U V.mT of A = U S V.mT, for any shape, by `steps` iterations of
    products. coefficients: "polar_express", "jordan" (Muon's five steps: fast and inexact), "cans",
    "turbo", or a list of triples. With the defaults, singular values below about 1e-5 of the
    largest do not reach 1."""
    who = "polar"
    plain(who, A=A)
    matrices(who, "A", A)
    if number(who, "steps", steps, 1) % 1:
        raise ValueError("optc.torch.polar: steps=%g; it must be a whole number" % steps)
    return _apply(who, who, [A], [A.shape], check, out, m=A.shape[-2], n=A.shape[-1],
                  steps=int(steps), **_coefficients(coefficients))[0]
