"""What the functions on tensors share: checks of arguments, results, and the call of the
library."""
import functools
import re

import torch
from torch._C._functorch import is_functorch_wrapped_tensor
from torch.compiler import is_compiling

from .. import _lib
from .._arrays import listed
from ._engines import TYPES, capturing, device_of
from ._tensor_checks import refuse_fake_mode


def uncompiled(f):
    """Excludes a function from torch.compile. The detour costs more than a small function, so it is
    taken only while compiling."""
    around = torch._disable_dynamo(f)

    @functools.wraps(f)
    def call(*given, **named):
        return around(*given, **named) if is_compiling() else f(*given, **named)
    return call


def on(device):
    """A context in which the device is torch's current one."""
    return torch.cuda.device(device) if device.type == "cuda" else _Nowhere()


class _Nowhere:
    def __enter__(self):
        return self

    def __exit__(self, *_):
        return None


# ---- arguments ----
def plain(who, **tensors):
    """Refuses tensors that a function does not take. Returns the type that it computes in, and the
    device."""
    refuse_fake_mode("optc.torch.%s" % who)
    first = None
    for name, x in tensors.items():
        if not isinstance(x, torch.Tensor):
            raise TypeError(
                "optc.torch.%s: %s must be a tensor, not %s" % (who, name, type(x).__name__))
        if type(x) not in (torch.Tensor, torch.nn.Parameter):
            raise TypeError(
                "optc.torch.%s does not take tensors of %s: %s" % (who, type(x).__name__, name))
        if is_functorch_wrapped_tensor(x):
            raise RuntimeError(
                "optc.torch.%s does not run under torch.func's transforms: leading "
                "dimensions are a batch without vmap, and it is not differentiable" % who)
        if x.dtype not in TYPES:
            raise TypeError("optc.torch.%s: %s has type %s; supported are %s"
                            % (who, name, x.dtype, listed(str(t).partition(".")[2] for t in TYPES)))
        if x.layout != torch.strided:
            raise TypeError("optc.torch.%s: %s is sparse; pass %s.to_dense()" % (who, name, name))
        if x.device.type not in ("cpu", "cuda"):
            raise ValueError(
                "optc.torch.%s runs on the CPU and on NVIDIA GPUs, not on %s" % (who, x.device))
        if x.requires_grad and torch.is_grad_enabled():
            raise RuntimeError("optc.torch.%s is not differentiable, and %s requires grad: pass "
                               "%s.detach(), or call it under torch.no_grad()" % (who, name, name))
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
    """Whether torch rounds this type to tf32 in products. A setting made by torch's new names must
    not be read by the old ones."""
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


# ---- results ----
def place(who, like, shape, out, operands):
    """The tensor for the result: `out` if it is row-major and does not overlap the operands."""
    fits(who, like, shape, out)
    apart = out is not None and out.is_contiguous() and not out.is_neg() and all(
        out.untyped_storage().data_ptr() != x.untyped_storage().data_ptr() for x in operands)
    return out if apart else torch.empty(shape, dtype=like.dtype, device=like.device)


def result_in(like, shape, out, to):
    if out is None or to is not out:
        return to if out is None else leave(like, shape, out, to)
    torch.autograd.graph.increment_version(out)        # torch does not see the library's writes
    return out


# ---- calls ----
def run_on(who, device, call, workspace=0):
    """Runs call, a function of an engine and a stream. workspace: of the engine; 0: the default."""
    stream = torch.cuda.current_stream(device).cuda_stream if device.type == "cuda" else None
    memory = device_of(device, workspace)
    try:
        with memory.passing():
            call(memory.engine, stream)
    except _lib.Error as e:
        e.args = ("optc.torch.%s: %s" % (who, re.sub(r"^optc_\w+: ", "", str(e))),)
        if capturing(device) and "before capturing" in str(e):
            raise RuntimeError(str(e)) from None
        raise
