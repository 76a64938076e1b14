"""Compares the addresses of a binding's parameters and gradients with those of the last step, in one call of the
library (runtime/library/tensor_objects.c). It reads tensors by torch's DLPack exchange table; before torch 2.10 there
is none, and _tensor_binding.py compares in Python."""
import ctypes
import sys
from array import array

import torch

from .. import _lib

_P = ctypes.c_void_p
_NAMES = tuple(map(sys.intern, ("grad", "_local_tensor", "_spec")))
DESCRIBE = 5                                           # dltensor_from_py_object_no_sync: a word of the table


class _Calls(ctypes.Structure):                        # PythonCalls of tensor_objects.c
    _fields_ = [(n, _P) for n in "get_attr get_item get_type drop describe grad local spec tensor".split()]


class _Seen(ctypes.Structure):
    _fields_ = [(n, _P) for n in "param grad count local spec".split()]


def _describe():
    """The address of DLPack's function that describes a tensor; None: this torch has none."""
    table = getattr(torch.Tensor, "__dlpack_c_exchange_api__", None)
    if table is None:
        return None
    get = ctypes.PYFUNCTYPE(_P, ctypes.py_object, ctypes.c_char_p)(("PyCapsule_GetPointer", ctypes.pythonapi))
    words = (ctypes.c_size_t * (DESCRIBE + 1)).from_address(get(table, b"dlpack_exchange_api"))
    return words[DESCRIBE] if words[0] & 0xffffffff == 1 else None         # the major version


def _calls(local):
    c = ctypes.pythonapi
    functions = (c.PyObject_GetAttr, c.PyList_GetItem, c.PyObject_Type, c.Py_DecRef)
    grad, here, spec = map(id, _NAMES)
    return _Calls(*(ctypes.cast(f, _P) for f in functions), _describe(), grad, here if local else None, spec,
                  id(torch.Tensor))


_stay = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.POINTER(_Calls), ctypes.py_object, ctypes.c_int, ctypes.py_object,
                          ctypes.POINTER(_Seen))(("optc_objects_stay", _lib.lib))      # holds the GIL
PLAIN, LOCAL = _calls(False), _calls(True)


class AddressCheck:
    """The addresses of a binding whose gradients are all there and row-major."""

    def __init__(self, b, specs=None):
        self.calls, self.owners, self.single = LOCAL if specs else PLAIN, b.owners, b.single
        self.like = torch.empty(0, dtype=b.dtype, device=b.device)
        self.held = b.params, specs                    # objects whose ids are compared
        self.columns = [array("Q", x) for x in (b.where, b.ptrs, b.sizes, map(id, b.params), map(id, specs or ()))]
        self.seen = _Seen(*(x.buffer_info()[0] for x in self.columns))

    def stays(self):
        """Whether nothing moved, and all gradients have the same type, size and order as before."""
        try:
            with torch._C.DisableTorchFunctionSubclass():      # DTensor has no function of its own
                return bool(_stay(self.calls, self.owners, len(self.owners), self.like, self.seen)) and \
                    not any(self._grad(i).is_neg() for i in self.single)
        except (AttributeError, RuntimeError):         # a gradient of another kind, or none
            return False

    def _grad(self, i):
        g = self.owners[i].grad
        return getattr(g, "_local_tensor", g)
