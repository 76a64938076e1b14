"""Compares the addresses of a binding's parameters and gradients with those of the last step, in
one call of the library (runtime/library/tensor_objects.c). It reads tensors by functions that
torch's libraries export. Where one is missing, and before torch 2.10, _tensor_binding.py compares
in Python at every step: 5000 tensors take 31 ms there and 4 ms by one call (a busy CPU)."""
import _thread
import ctypes
import sys
import threading
from array import array
from itertools import chain
from operator import is_
from types import MemberDescriptorType

import torch

from .. import _lib

DIFFER, MOVED, STAY = range(3)                         # results of optc_objects_compare
_P = ctypes.c_void_p
GRAD = torch.Tensor.grad
_DESCR_GET = 54                                        # Py_tp_descr_get of typeslots.h

# Functions of TorchCalls, in its order: of torch's stable C interface, and of C++ by their mangled
# names
_AOTI = ["aoti_torch_" + n for n in
         "get_data_ptr get_dtype get_device_type get_device_index get_layout get_dim get_sizes "
         "get_strides get_storage_offset get_storage_size is_defined assign_tensors".split()]
_CXX = [
    "_ZNK3c1010TensorImpl4gradEv", "_ZN2at6native6is_negERKNS_6TensorE",
    "_ZN2at6native12is_inferenceERKNS_6TensorE",
    "_ZN5torch8autograd4impl15version_counterERKN2at6TensorE",
    "_ZN5torch8autograd4impl12bump_versionERKN2at6TensorE"
]


# of tensor_objects.c, as _Calls (PythonCalls) and _Seen
class _TorchCalls(ctypes.Structure):
    _fields_ = [(n, _P) for n in
                "data dtype device_type device_index layout dims sizes strides offset "
                "storage_bytes is_defined assign grad is_neg is_inference version_counter "
                "bump_version".split()] + [("slot", ctypes.c_ssize_t)]


class _Calls(ctypes.Structure):
    _fields_ = [(n, _P) for n in
                "get_grad get_slot get_item get_type drop grad local spec tensor none".split()]
    _fields_ += [("torch", _TorchCalls)]


class _Seen(ctypes.Structure):
    _fields_ = [(n, _P) for n in "param grad param_end dims count stepped spec sizes like_param "
                                 "like_grad".split()]
    _fields_ += [("item", ctypes.c_uint64)]


class _Now(ctypes.Structure):
    _fields_ = [(n, _P) for n in "grad hint held".split()]


def _reader(descriptor):
    """The address of the function that reads an attribute by its descriptor."""
    slot = ctypes.PYFUNCTYPE(_P, ctypes.py_object,
                             ctypes.c_int)(("PyType_GetSlot", ctypes.pythonapi))
    return slot(type(descriptor), _DESCR_GET)


def _slot():
    """The offset in a tensor's Python object of the at::Tensor, the address of a TensorImpl. It is
    found by comparison with `_cdata`, and must follow a swap of two tensors. 0: there is no such
    word."""
    def found(x):
        return {
            at for at in range(object.__basicsize__, torch.Tensor.__basicsize__, ctypes.sizeof(_P))
            if _P.from_address(id(x) + at).value == x._cdata
        }
    pair = [torch.empty(0, device="cpu") for _ in range(2)]
    before = found(pair[0]) & found(pair[1])
    torch._C._swap_tensor_impl(*pair)
    after = before & found(pair[0]) & found(pair[1])
    return after.pop() if len(before) == len(after) == 1 else 0


def _torch_calls():
    """torch's functions, from the libraries that it has loaded; None: this torch lacks one, or was
    never tried. Without the GIL another thread could free a gradient while it is read."""
    if not getattr(sys, "_is_gil_enabled", lambda: True)() or torch.__version__ < (2, 10):
        return None
    try:
        # a name is also looked up in the libraries that this one needs
        library = ctypes.CDLL(torch._C.__file__)
        functions = [ctypes.cast(getattr(library, n), _P) for n in _AOTI + _CXX]
        with torch.inference_mode(False):
            slot = _slot()
    # no such function or library, or a torch that swaps otherwise
    except Exception:
        return None
    return _TorchCalls(*functions, slot) if slot else None


def _calls():
    """What the library calls; None: it cannot read tensors here."""
    tensors, c = _torch_calls(), ctypes.pythonapi
    if tensors is None:
        return None
    functions = [ctypes.cast(f, _P) for f in (c.PyList_GetItem, c.PyObject_Type, c.Py_DecRef)]
    return _Calls(_reader(GRAD), None, *functions, id(GRAD), None, None, id(torch.Tensor), id(None),
                  tensors)


# These functions hold the GIL.
_compare = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.POINTER(_Calls), ctypes.py_object, ctypes.c_int,
                             ctypes.POINTER(_Seen),
                             ctypes.POINTER(_Now))(("optc_objects_compare", _lib.lib))
_release = ctypes.PYFUNCTYPE(None, ctypes.POINTER(_Calls), ctypes.POINTER(_Seen), _P, ctypes.c_int)(
    ("optc_objects_release", _lib.lib))
_same = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.POINTER(_Calls), ctypes.py_object, ctypes.py_object,
                          ctypes.c_int)(("optc_objects_same", _lib.lib))
_bump = ctypes.PYFUNCTYPE(None, ctypes.POINTER(_Calls), ctypes.py_object, ctypes.c_int)(
    ("optc_objects_bump", _lib.lib))


def _counts_versions(calls):
    """Whether optc_objects_bump increments the version of a tensor."""
    with torch.inference_mode(False):
        x = torch.empty(0, device="cpu")
    was = x._version
    _bump(calls, [x], 1)
    return x._version == was + 1


CALLS = _calls()
if CALLS and not _counts_versions(CALLS):
    CALLS = None


def _has_slots(specs):
    """Whether the library can read the DTensors among these parameters."""
    if not any(specs):
        return True
    from torch.distributed.tensor import DTensor
    if not CALLS.get_slot and type(DTensor._spec) is type(
            DTensor._local_tensor) is MemberDescriptorType:
        CALLS.get_slot, CALLS.local, CALLS.spec = _reader(DTensor._spec), id(
            DTensor._local_tensor), id(DTensor._spec)
    return bool(CALLS.get_slot)


def readable(params, specs):
    """Whether the library can compare these parameters. It reads attributes as torch's own classes
    have them."""
    own = all(c.grad is GRAD for c in set(map(type, params)))
    return CALLS is not None and own and _has_slots(specs)


def same(objects, others):
    """Whether two lists contain the same objects. Tensors are not compared by their elements."""
    if len(objects) != len(others):
        return False
    if CALLS is None or type(objects) is not list or type(others) is not list:
        return all(map(is_, objects, others))
    return bool(_same(CALLS, objects, others, len(objects)))


def increment_versions(params):
    """torch.autograd.graph.increment_version for a list."""
    if CALLS and type(params) is list:
        _bump(CALLS, params, len(params))
    else:
        torch.autograd.graph.increment_version(params)


def _first(column):
    return column.buffer_info()[0]


def _is_alone():
    """Whether no other thread of Python exists. Holding a gradient takes about 15 ns."""
    return not _thread._count() and _thread.get_ident() == threading.main_thread().ident


class AddressCheck:
    """The addresses of a binding: its parameters are row-major, and so are its gradients, or they
    are None. specs: by tensor, the _spec of a DTensor, or None."""

    def __init__(self, b, specs):
        self.owners, self.params = b.owners, b.params
        # objects whose ids are compared: a freed one's may be reused
        self.compared = b.params, specs
        first = b.params[0]
        self.like = [
            torch.empty(0, dtype=dtype, device=first.device) for dtype in (first.dtype, b.dtype)
        ]
        shapes = list(map(tuple, b.shapes))
        ends = [(p.storage_offset() + n) * p.element_size() if n else 0
                for p, n in zip(b.params, b.sizes)]
        rows = {
            "param": b.where, "grad": b.ptrs, "param_end": ends, "dims": map(len, shapes),
            "count": b.sizes, "stepped": map(id, b.params),
            "spec": [0 if s is None else id(s) for s in specs], "sizes": chain.from_iterable(shapes)
        }
        self.columns = {name: array("Q", row) for name, row in rows.items()}
        self.seen = _Seen(*map(_first, self.columns.values()), *map(id, self.like),
                          b.dtype.itemsize)
        # addresses of the gradients of this step
        self.grads = array("Q", bytes(8 * len(b.ptrs)))
        self.hints = array("Q", bytes(8 * len(b.ptrs)))
        self.held = array("Q", bytes(8 * len(b.ptrs)))
        self.now, self.holds = _Now(hint=_first(self.hints)), False

    def __del__(self):
        """The binding may be replaced within a step, between `compare` and `release`."""
        if self.__dict__.get("holds"):
            self.release()

    def compare(self):
        """STAY, MOVED or DIFFER. STAY: nothing moved, and all gradients have the same type, size
        and order as before. MOVED: only addresses of gradients changed; `grads` has them. The
        gradients are held until `release`."""
        self.now.grad = _first(self.grads)
        alone = _is_alone()
        self.now.held, self.holds = None if alone else _first(self.held), self.holds or not alone
        try:
            with torch._C.DisableTorchFunction():      # half the time of reading .grad of a DTensor
                return _compare(CALLS, self.owners, len(self.owners), self.seen, self.now)
        # a gradient of another kind: the checks in Python tell which
        except Exception:
            return DIFFER

    def release(self):
        """Drops the references to the gradients of this step."""
        if self.holds:
            _release(CALLS, self.seen, _first(self.held), len(self.held))
        self.holds = False

    def take(self):
        """The gradients of this step are those that the next one is compared with."""
        self.columns["grad"], self.grads = self.grads, self.columns["grad"]
        self.seen.grad = _first(self.columns["grad"])
