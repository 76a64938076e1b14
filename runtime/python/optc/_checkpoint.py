"""Checkpoints of bindings: optc_save and optc_load of optc.h. (An optimizer of optc.torch has
state_dict().)"""
import ctypes
import warnings

from . import _lib
from ._api import Binding
from ._lib import array, decoded, encoded, lib


def save(binding, path, *, prefix=None, params=False):
    """Saves the states, step counts and hyperparameters of a binding, or of a list of bindings, in
    a safetensors file. The file is replaced only when the new one is complete. prefix: the prefix
    of its names in the file, or a list of them, one per binding. params: saves the parameters
    too."""
    _call(lib.optc_save_sized, binding, path, prefix, params)


def load(binding, path, *, prefix=None, params=False):
    """Loads what `save` saved into a binding of the same rule and tensors, or a list of bindings. A
    file that does not fit is refused and changes nothing. States that are stored in another type
    are converted, with a warning. params: loads the parameters too."""
    for line in _call(lib.optc_load_sized, binding, path, prefix, params).splitlines():
        warnings.warn("optc: %s: %s" % (path, line), stacklevel=2)


def _call(call, binding, path, prefix, params):
    """Calls it and returns the warnings."""
    several = isinstance(binding, (list, tuple))
    bindings = list(binding) if several else [binding]
    for b in bindings:
        if not isinstance(b, Binding):
            raise TypeError("optc.save and optc.load take bindings (Rule.bind), not %s%s" %
                            (type(b).__name__, "; use its state_dict() and load_state_dict()"
                             if hasattr(b, "state_dict") else ""))
    names = [prefix] if isinstance(prefix, str) else prefix
    if names is not None and len(names) != len(bindings):
        raise ValueError("there are %d prefixes for %d bindings" % (len(names), len(bindings)))
    said = ctypes.create_string_buffer(1 << 16)
    c = _lib.Checkpoint(path=encoded(path), warnings=ctypes.addressof(said),
                        warnings_size=len(said), params=params)
    if names is not None:
        c.prefix = array(ctypes.c_char_p, [encoded(n) for n in names])
    call(array(ctypes.c_void_p, [b.handle for b in bindings]), len(bindings), c, ctypes.sizeof(c))
    return decoded(said.value)
