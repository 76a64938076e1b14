"""Memory layout of tensors, and refusals of tensors that optc cannot step: other classes, sparse
or negated ones, freed storage, shared elements."""
from itertools import repeat
from operator import add, le, mul

import torch

from .._arrays import listed

T = torch.Tensor
_mode_of = getattr(torch._C, "_get_dispatch_mode", lambda _: None)
_FAKE = getattr(getattr(torch._C, "_TorchDispatchModeKey", None), "FAKE", None)


def row_major(x):
    return x.is_contiguous()


def same_layout(p, g):
    return p.stride() == g.stride() or (row_major(p) and row_major(g))


def dense(x):
    """Whether the elements are contiguous in some order of the dimensions."""
    expected = 1
    for stride, size in sorted(zip(x.stride(), x.shape)):
        if size > 1:
            if stride != expected:
                return False
            expected *= size
    return True


def fitting(p):
    """Memory with the parameter's layout, or row-major if that has gaps."""
    if dense(p):
        return torch.empty_strided(p.shape, p.stride(), dtype=p.dtype, device=p.device)
    return torch.empty(p.shape, dtype=p.dtype, device=p.device)


def same_values(was, now):
    """Whether two tensors have the same values; if the memory of one is gone, they count as
    different."""
    there = was.untyped_storage().nbytes(
    ) >= was.storage_offset() * was.element_size() + extent(was)
    return there and was.dtype == now.dtype and was.shape == now.shape and torch.equal(
        was.to(now.device), now)


def tensor_name(p, name):
    return name or "a parameter of shape %s" % (tuple(p.shape),)


def refuse(p, name):
    """Refuses a parameter that optc does not step, by name."""
    if type(p) not in (torch.Tensor, torch.nn.Parameter) and type(p).__torch_function__ is not \
            torch._C._disabled_torch_function_impl:
        raise TypeError(
            "optc does not step tensors of %s yet: %s" % (type(p).__name__, tensor_name(p, name)))
    if p.layout != torch.strided:
        raise ValueError("optc does not step sparse parameters: %s" % tensor_name(p, name))
    refuse_negated(p, name)


def refuse_without_memory(p, name):
    """Refuses a meta or fake parameter."""
    if p.device.type != "meta":
        refuse_freed(getattr(p, "_local_tensor", p), "", name)
    else:
        raise RuntimeError("%s is on the meta device, and has no values to step: give the model "
                           "memory first (model.to_empty(device=…), then its weights), and make "
                           "the optimizer after that" % name)


def refuse_fake_mode(what):
    """Refuses a call in torch's FakeTensorMode, in which new tensors have no memory. It would write
    to real ones."""
    if _mode_of(_FAKE) is not None:
        raise RuntimeError("%s was called in FakeTensorMode, which has no memory to compute in: "
                           "call it outside of the mode; torch's own optimizers run in it" % what)


def refuse_negated(p, name):
    """Refuses a parameter whose memory has the negated values (torch's negative bit): a step would
    have the wrong sign."""
    if getattr(p, "_local_tensor", p).is_neg():
        raise ValueError("optc does not step negated views (torch.Tensor.is_neg): %s; pass "
                         "resolve_neg() of it"
                         % tensor_name(p, name))


def fits_shape(grad, shape):
    """Whether torch's optimizers step a gradient of this shape: as the parameter's, or without
    leading ones of it."""
    missing = len(shape) - len(grad)
    return grad == shape or missing > 0 and tuple(shape) == (1,) * missing + tuple(grad)


def refuse_type(dtype, known, what, name):
    if dtype not in known:
        raise ValueError("optc does not step %s of %s: %s; it takes %s" % (
            what, dtype, name, listed(str(t).partition(".")[2] for t in known)))


def refuse_grad(g, p, name):
    if g.layout != torch.strided:
        raise RuntimeError("optc does not step sparse gradients: that of %s" % tensor_name(p, name))
    if g.device != p.device or not fits_shape(g.shape, p.shape):
        raise RuntimeError(
            "the gradient of %s has shape %s on %s, and the parameter shape %s on %s" %
            (tensor_name(p, name), tuple(g.shape), g.device, tuple(p.shape), p.device))
    refuse_freed(g, "the gradient of ", tensor_name(p, name))


def refuse_freed(x, what, name):
    """Refuses a tensor without memory, or whose storage was resized below its elements: the step
    would leave it."""
    storage = x.untyped_storage()
    if not x.numel():
        return
    fits = x.storage_offset() * x.element_size() + extent(x) <= storage.nbytes()
    if fits and not x.data_ptr():
        raise RuntimeError("%s%s has no memory (its class is %s): pass a tensor with memory" % (
            what, name, type(x).__name__))
    if not fits:
        raise RuntimeError("the storage of %s%s has %d bytes, too few for its %d elements: it was "
                           "resized or freed" % (
            what, name, storage.nbytes(), x.numel()))


def inside(tensors, lengths, dtype):
    """Whether contiguous tensors of a type, with these numbers of elements, end within their
    storages. Other tensors may count as outside."""
    ends = map(add, map(T.storage_offset, tensors), lengths)
    sizes = map(torch.UntypedStorage.nbytes, map(T.untyped_storage, tensors))
    return all(map(le, map(mul, ends, repeat(dtype.itemsize if tensors else 0)), sizes))


def refuse_shared(params, names):
    """Refuses parameters that share elements with another parameter, or have an element twice. If
    address ranges overlap, elements are compared: columns of one matrix may be separate
    parameters."""
    # (device, end, parameter, name) of ranges that may still overlap
    before = []
    there = [(str(p.device), p.data_ptr(), p, n) for p, n in zip(params, names) if p.numel()]
    for device, at, p, name in sorted(there, key=lambda row: row[:2]):
        if not dense(p) and int(_marked(p, at,
                                        at + extent(p)).sum()) < p.numel() * p.element_size():
            raise ValueError("elements of %s share memory (its strides are %s): pass a clone" %
                             (name, p.stride()))
        before = [row for row in before if row[0] == device and row[1] > at]
        for _, end, q, other in before:
            start, end = q.data_ptr(), max(end, at + extent(p))
            if bool((_marked(p, start, end) & _marked(q, start, end)).any()):
                raise ValueError(
                    "the parameters %s and %s share memory: pass one of them" % (other, name))
        before.append((device, at + extent(p), p, name))


def extent(x):
    """Bytes from the first element to the end of the last one."""
    return (1 + sum(
        (n - 1) * s for n, s in zip(x.shape, x.stride()))) * x.element_size() if x.numel() else 0


def _marked(x, start, end):
    """One byte per address from start to end: 1 if an element of x is there."""
    size, marks = x.element_size(), torch.zeros(end - start, dtype=torch.bool, device="cpu")
    marks.as_strided((*x.shape, size), (*(size * s for s in x.stride()), 1),
                     x.data_ptr() - start).fill_(True)
    return marks
