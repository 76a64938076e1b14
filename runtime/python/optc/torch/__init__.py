"""Any spec of optc in a PyTorch loop.

    opt = optc.torch.Optimizer(model.parameters(), "adamw", lr=3e-4, with_=["clip(1.0)"])
    opt = optc.torch.AdamW(model.parameters(), lr=3e-4)

    opt = optc.torch.create("adamw", model, lr=3e-4)     # no weight decay for biases and norms

There is a class for every rule of the library: list_optimizers("*muon*") finds names. There are
also functions on tensors: matrix_power, eigh, kron and others (FUNCTIONS).
"""
from ._create import create, list_optimizers
from ._functions import (cholesky, eigh, inverse_root, matrix_power, polar, qr, solve_positive,
                         solve_triangular)
from ._kfac import kfac_inputs
from ._device_info import best_device, empty_cache, memory_info
from ._optimizer import Optimizer
from ._products import batched_matmul, bounded_matmul, gram, kron
from ._race import race
from ._samples import per_sample
from ._scaling import GradScaler
from ._param_roles import sorted_by

FUNCTIONS = (matrix_power, inverse_root, eigh, qr, cholesky, solve_triangular, solve_positive,
             polar, batched_matmul, bounded_matmul, gram, kron, memory_info, empty_cache,
             best_device)


def __getattr__(name):
    if name.startswith("_"):
        raise AttributeError("module 'optc.torch' has no attribute '%s'" % name)
    from . import _rule_classes
    globals()[name] = made = _rule_classes.make(name)
    return made


def __dir__():
    from . import _rule_classes
    return sorted({*globals(), *_rule_classes.names()})
