"""Whole tensors and their pieces, for tests of sharded training: no communication, so that a test
compares what the optimizer did."""
import torch


def cut(whole, like):
    """A whole tensor as a DTensor with the pieces of another one."""
    from torch.distributed.tensor import DTensor
    return DTensor.from_local(
        here(whole, like).clone(), like.device_mesh, like.placements, run_check=False,
        shape=like.shape, stride=like.stride())


def here(whole, like):
    """This process's piece of a whole tensor, cut as a DTensor is; all of it if that is a plain
    tensor."""
    if not hasattr(like, "placements"):
        return whole
    from torch.distributed.tensor._utils import compute_local_shape_and_global_offset
    shape, at = compute_local_shape_and_global_offset(like.shape, like.device_mesh, like.placements)
    for d, (begin, n) in enumerate(zip(at, shape)):
        whole = whole.narrow(d, begin, n) if n else whole.narrow(d, 0, 0)
    return whole


def local(x):
    return getattr(x, "_local_tensor", x).detach()


def give_grads(whole, cuts, t, without=()):
    """The same gradients for whole tensors and for pieces."""
    torch.default_generator.manual_seed(1000 + t)
    for i, (w, c) in enumerate(zip(whole, cuts)):
        w.grad = torch.randn(w.shape).to(w.dtype)
        c.grad = cut(w.grad, c) if hasattr(c, "placements") else w.grad.clone()
        if i in without:
            w.grad = c.grad = None


def differing(whole, cuts):
    """Numbers of the tensors whose pieces here are not those of the whole, bit for bit."""
    return [
        i for i, (w, c) in enumerate(zip(whole, cuts))
        if not torch.equal(here(w.detach(), c), local(c))
    ]
