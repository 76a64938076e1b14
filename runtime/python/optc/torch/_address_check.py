"""Compares the addresses of a binding's parameters and gradients with those of the last step, in one call of the
library (runtime/library/tensor_objects.c). Needs functions of torch 2.10 or later; with an older torch
_tensor_binding.py compares in Python at every step."""
import ctypes
import sys
from array import array
from operator import is_

import torch

from .. import _lib

_P = ctypes.c_void_p
_NAMES = tuple(map(sys.intern, ("grad", "_local_tensor", "_spec")))
_DESCRIBE = 5                                          # dltensor_from_py_object_no_sync: a word of the table


class _Calls(ctypes.Structure):                        # PythonCalls of tensor_objects.c
    _fields_ = [(n, _P) for n in
                "get_attr get_item get_type drop describe data_ptr grad local spec tensor none".split()]


class _Seen(ctypes.Structure):
    _fields_ = [(n, _P) for n in "param grad count stepped type spec".split()]


def _describe():
    """The address of DLPack's function that describes a tensor; None: this torch has none."""
    table = getattr(torch.Tensor, "__dlpack_c_exchange_api__", None)
    if table is None:
        return None
    get = ctypes.PYFUNCTYPE(_P, ctypes.py_object, ctypes.c_char_p)(("PyCapsule_GetPointer", ctypes.pythonapi))
    words = (ctypes.c_size_t * (_DESCRIBE + 1)).from_address(get(table, b"dlpack_exchange_api"))
    return words[_DESCRIBE] if words[0] & 0xffffffff == 1 else None        # the major version


def _data_ptr():
    """The address of the function by which code of torch.compile finds a tensor's memory; None: there is none."""
    found = getattr(getattr(torch._C._dynamo, "guards", None), "_torchinductor_pyobject_tensor_data_ptr", None)
    return found if isinstance(found, int) else None


def _calls():
    c = ctypes.pythonapi
    functions = (c.PyObject_GetAttr, c.PyList_GetItem, c.PyObject_Type, c.Py_DecRef)
    return _Calls(*(ctypes.cast(f, _P) for f in functions), _describe(), _data_ptr(), *map(id, _NAMES),
                  id(torch.Tensor), id(None))


# These functions hold the GIL.
_stay = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.POINTER(_Calls), ctypes.py_object, ctypes.c_int, ctypes.py_object,
                          ctypes.POINTER(_Seen))(("optc_objects_stay", _lib.lib))
_same = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.POINTER(_Calls), ctypes.py_object, ctypes.py_object,
                          ctypes.c_int)(("optc_objects_same", _lib.lib))
CALLS = _calls()
AVAILABLE = bool(CALLS.describe and CALLS.data_ptr)


def same(objects, others):
    """Whether two lists contain the same objects. Tensors are not compared by their elements."""
    if type(objects) is not list or type(others) is not list:
        return len(objects) == len(others) and all(map(is_, objects, others))
    return len(objects) == len(others) and bool(_same(CALLS, objects, others, len(objects)))


class AddressCheck:
    """The addresses of a binding: its gradients are row-major tensors of one type, or None. specs: by tensor, the _spec
    of a DTensor, or None."""

    def __init__(self, b, specs):
        self.owners, self.params, self.specs, self.single = b.owners, b.params, specs, b.single
        self.like = torch.empty(0, dtype=b.dtype, device=b.device)
        self.types = list(map(type, b.params))         # held, as params and specs are: their ids are compared
        specs = [0 if s is None else id(s) for s in specs]
        self.columns = {"param": b.where, "count": b.sizes, "stepped": map(id, b.params), "type": map(id, self.types),
                        "spec": specs, "grad": b.ptrs}
        self.columns = {name: array("Q", column) for name, column in self.columns.items()}
        self.seen = _Seen(**{name: column.buffer_info()[0] for name, column in self.columns.items()})

    def take_grads(self, ptrs):
        """The gradients are at other addresses."""
        self.columns["grad"] = array("Q", ptrs)
        self.seen.grad = self.columns["grad"].buffer_info()[0]

    def stays(self):
        """Whether nothing moved, and all gradients have the same type, size and order as before."""
        try:
            with torch._C.DisableTorchFunction():      # classes and modes that change the attributes of DTensors: none
                return bool(_stay(CALLS, self.owners, len(self.owners), self.like, self.seen)) and \
                    not any(self._is_negated(i) for i in self.single)
        except (AttributeError, RuntimeError):         # a gradient of another kind
            return False

    def _is_negated(self, i):
        g = self.owners[i].grad
        return g is not None and getattr(g, "_local_tensor", g).is_neg()
