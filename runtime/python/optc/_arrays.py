"""Reads address, shape, strides, type and device of arrays: NumPy (__array_interface__), CuPy
(__cuda_array_interface__), torch, ctypes, and anything with DLPack. Imports none of these
packages."""
import ctypes
from collections import namedtuple

from . import _lib

# device: "cpu", "cuda:0"; "cuda": a GPU of unknown number; None: every device reaches it, or it is
# unknown. strides: in elements; None: row-major.
Array = namedtuple("Array", "address shape strides type device readonly")
DTYPES = _lib.first_of((t.dtype, t.number) for t in _lib.TYPES)
DLPACK = _lib.first_of(((t.dlpack, t.bits), t.number) for t in _lib.TYPES)
# DLPack's code of IEEE's types, which NumPy's typestr calls f
FLOAT = 2
TYPESTR = _lib.first_of(("f%d" % (t.bits // 8), t.number) for t in _lib.TYPES if t.dlpack == FLOAT)
CTYPES = {ctypes.c_float: _lib.F32, ctypes.c_double: _lib.F64}
# 3: pinned host memory; 13: managed memory
DL_DEVICES = {1: "cpu", 2: "cuda:%d", 3: "cpu", 13: None}


def address(x):
    """The address of an array of any kind that optc reads. An int is returned as it is."""
    return x if x is None or isinstance(x, int) else described(x).address


def described(x):
    """The Array of x. TypeError: x is not an array, or has a type that optc does not step."""
    if hasattr(x, "data_ptr"):
        return _torch(x)
    if any(c.__module__ == "numpy" and c.__name__ == "generic" for c in type(x).__mro__):
        raise TypeError("a NumPy scalar (%s) is not an array, and its memory is a temporary copy: "
                        "pass numpy.array(x)"
                        % type(x).__name__)
    for face in ("__cuda_array_interface__", "__array_interface__"):
        told = getattr(x, face, None)
        if told:
            return _interface(x, told, face == "__cuda_array_interface__")
    if hasattr(x, "__dlpack__"):
        return _dlpack(x)
    if isinstance(x, ctypes.Array):
        return _ctypes(x)
    if isinstance(x, ctypes._SimpleCData):
        return Array(ctypes.addressof(x), None, None, _known(CTYPES.get(type(x)),
                                                             type(x).__name__), None, False)
    if isinstance(x, ctypes.Structure):
        return Array(ctypes.addressof(x), None, None, None, None, False)
    raise TypeError("%s is not an array: optc takes arrays of NumPy, CuPy, torch and ctypes, "
                    "objects with __dlpack__, and addresses" % type(x).__name__)


def row_major(shape, strides):
    want = 1
    for n, stride in zip(reversed(shape), reversed(strides)):
        if n != 1 and stride != want:
            return 0 in shape
        want *= n
    return True


def _made(at, shape, strides, kind, device, readonly):
    shape = tuple(shape)
    strides = None if strides is None or row_major(shape, strides) else tuple(strides)
    return Array(at, shape, strides, kind, device, readonly)


def _torch(x):
    device = x.device.type
    if device == "cuda":
        device = "cuda:%d" % x.device.index
    dtype = _known(DTYPES.get(str(x.dtype).rpartition(".")[2]), x.dtype)
    if getattr(x, "is_neg", bool)():
        raise TypeError("the memory of this tensor has the negated values (torch.Tensor.is_neg): "
                        "pass resolve_neg() of it")
    return _made(x.data_ptr(), x.shape, x.stride(), dtype, device, False)


def _interface(x, told, cuda):
    if "shape" not in told:                            # only an address
        return Array(told["data"][0], None, None, None, "cuda" if cuda else "cpu", False)
    text, name = told["typestr"], getattr(getattr(x, "dtype", None), "name", "")
    kind = DTYPES.get(name, TYPESTR.get(text[1:]))
    if text[0] == ">":
        raise TypeError(
            "an array of %s has another byte order than this machine: convert it first" % text)
    size, strides = int(text[2:]), told.get("strides")
    if strides and any(s % size for s in strides):
        raise TypeError("the array's strides %s are not multiples of its element size, %d bytes: "
                        "copy it first"
                        % (tuple(strides), size))
    strides = [s // size for s in strides] if strides else None
    device = getattr(getattr(x, "device", None), "id", None) if cuda else None
    device = ("cuda" if device is None else "cuda:%d" % device) if cuda else "cpu"
    at, readonly = told["data"]
    return _made(at, told["shape"], strides, _known(kind, name or text), device, readonly)


def listed(names):
    *most, last = names
    return "%s and %s" % (", ".join(most), last)


def _known(kind, name):
    if kind is None:
        raise TypeError(
            "an array of %s is not supported: optc steps %s" % (name, listed(_lib.TYPE_NAMES)))
    return kind


def _ctypes(x):
    shape, kind = [], type(x)
    while hasattr(kind, "_length_"):
        shape.append(kind._length_)
        kind = kind._type_
    return Array(ctypes.addressof(x), tuple(shape), None, _known(CTYPES.get(kind), kind.__name__),
                 "cpu", False)


class _DLTensor(ctypes.Structure):                     # the head of a DLManagedTensor
    _fields_ = [("data", ctypes.c_void_p), ("device_type", ctypes.c_int),
                ("device_id", ctypes.c_int), ("ndim", ctypes.c_int), ("code", ctypes.c_uint8),
                ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
                ("shape", ctypes.POINTER(ctypes.c_int64)),
                ("strides", ctypes.POINTER(ctypes.c_int64)), ("byte_offset", ctypes.c_uint64)]


def _dlpack(x):
    """Reads the capsule and drops it, which its producer treats as released. x itself keeps the
    memory alive."""
    capsule = x.__dlpack__()
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    t = _DLTensor.from_address(get(capsule, b"dltensor"))
    if t.device_type not in DL_DEVICES:
        raise TypeError("the array is on a device of DLPack type %d: optc steps arrays on the CPU "
                        "and on NVIDIA GPUs"
                        % t.device_type)
    device = DL_DEVICES[t.device_type]
    if device and "%" in device:
        device %= t.device_id
    kind = _known(
        DLPACK.get((t.code, t.bits)) if t.lanes == 1 else None,
        "DLPack's code %d of %d bits in %d lanes" % (t.code, t.bits, t.lanes))
    return _made((t.data or 0) + t.byte_offset, t.shape[:t.ndim],
                 t.strides[:t.ndim] if t.strides else None, kind, device, False)


def stream_of(x):
    """The handle of a stream: an int, or a stream of CuPy, torch or cuda-python. None: the default
    stream."""
    if x is None or isinstance(x, int):
        return x
    if hasattr(x, "__cuda_stream__"):
        told = x.__cuda_stream__
        return (told() if callable(told) else told)[1]
    for name in ("cuda_stream", "ptr"):
        if hasattr(x, name):
            return getattr(x, name)
    raise TypeError("%s is not a stream: optc takes streams of CuPy, torch and cuda-python, and "
                    "handles"
                    % type(x).__name__)
