"""optc: compiled optimizers. `optc.torch.Optimizer` in a PyTorch loop; Engine, Rule and Binding on
any arrays.

    rule = optc.Engine().compile("adamw+clip(1)")
    b = rule.bind([([{"param": p, "grad": g, "shape": p.shape}], {"lr": 3e-4})])
    b.step()
"""
from ._api import Binding, Engine, Rule
from ._arrays import address
from ._checkpoint import load, save
from ._lib import (AS_VECTOR, USE_STEP, Absent, ArgumentError, Busy, DeviceError, Error, FileError,
                   OutOfMemory, RangeError, SpecError, Unavailable, decoded, encoded, lib)
from ._profile import Profile, profile

__version__ = decoded(lib.optc_version())


def library():
    """Names of the library's specs: "adamw", "wrappers/ema", …"""
    return [decoded(lib.optc_library_name(i)) for i in range(lib.optc_library_size())]


def library_text(name):
    """The text of a spec of the library; None: there is no such spec."""
    return decoded(lib.optc_library_text(encoded(name)))


def device_count():
    """GPUs that can be opened."""
    return lib.optc_device_count()


def best_device():
    """The device that "best" means on this machine: "cuda:0", "cpu"."""
    return decoded(lib.optc_best_device())


__all__ = [n for n in dir() if not n.startswith("_") and n not in ("decoded", "encoded", "lib")]
