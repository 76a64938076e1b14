"""liboptc through ctypes: finds the library, declares its structs and calls, raises its errors.

The tables repeat runtime/optc.h: structs field by field, calls by the kinds of their arguments.
tests/python/test_lib.py compares both with the header.
"""
import ctypes
import os
import sys
from collections import namedtuple
from ctypes import POINTER, c_char_p, c_double, c_int, c_int64, c_size_t, c_uint, c_void_p

HERE = os.path.dirname(os.path.abspath(__file__))
# files of a wheel; runtime/python/build_wheel.py writes them
BUNDLED = os.path.join(HERE, "_bundled")
TREE = os.path.normpath(os.path.join(HERE, "..", "..", ".."))


def cache_bases():
    """Folders of compiled code, for optc_engine_options.cache_base: $OPTC_CACHE_BASE, then the
    wheel's GPU code."""
    top = os.path.join(BUNDLED, "gpu")
    wheel = [os.path.join(top, n) for n in sorted(os.listdir(top))] if os.path.isdir(top) else []
    return ":".join([p for p in (os.environ.get("OPTC_CACHE_BASE"),) if p] + wheel) or None


# ---- errors: one class per status ----
class Error(Exception):
    """A call of liboptc failed, and changed nothing. The message is the library's."""


class ArgumentError(Error, ValueError):
    """An unknown name, a wrong size, or tensors that overlap."""


class SpecError(Error, ValueError):
    """An error in the spec, its options or its wrappers; the message names file and line."""


class RangeError(Error, ValueError):
    """A hyperparameter outside its range."""


class FileError(Error, OSError):
    """A file that cannot be read or written."""


class OutOfMemory(Error, MemoryError):
    """The host or the device ran out of memory."""


class Unavailable(Error):
    """A device or a compiler was requested and is not available."""


class Busy(Error):
    """The object to close is still in use."""


class DeviceError(Error):
    """The device failed; the message names the call and its error."""


class Absent(Error, LookupError):
    """The rule has this state, but this tensor does not."""


STATUSES = (None, ArgumentError, SpecError, RangeError, FileError, OutOfMemory, Unavailable, Busy,
            DeviceError, Absent)

# ---- types ----
DEFAULT, F32, F64 = range(3)                           # TYPES, below, has all of them
AS_VECTOR, USE_STEP = 1, 2                             # optc_tensor.flags

ALLOC = ctypes.CFUNCTYPE(c_void_p, c_void_p, c_size_t, c_void_p)
RELEASE = ctypes.CFUNCTYPE(None, c_void_p, c_void_p, c_size_t, c_void_p)
ALL_GATHER = ctypes.CFUNCTYPE(c_int, c_void_p, c_void_p, c_void_p, c_size_t, c_void_p)
WRITE = ctypes.CFUNCTYPE(c_int, c_void_p, c_void_p, c_size_t)
READ = ctypes.CFUNCTYPE(c_int, c_void_p, c_int64, c_void_p, c_size_t)
ALL_TO_ALL = ctypes.CFUNCTYPE(c_int, c_void_p, c_void_p, POINTER(c_size_t), c_void_p,
                              POINTER(c_size_t), c_void_p)


def _struct(name, text):
    """Makes a struct from 'kind name name, kind name'; KINDS has the kinds."""
    fields = []
    for part in text.split(","):
        kind, *names = part.split()
        fields += [(n, KINDS[kind]) for n in names]
    made = type(name, (ctypes.Structure,),
                {"_fields_": fields, "members": frozenset(n for n, _ in fields)})
    KINDS[name] = made
    KINDS[name + "*"] = POINTER(made)
    return made


KINDS = {
    "str": c_char_p, "ptr": c_void_p, "int": c_int, "i64": c_int64, "size": c_size_t,
    "unsigned": c_uint, "double": c_double, "type": c_int, "alloc": ALLOC, "release": RELEASE,
    "i64*": POINTER(c_int64), "int*": POINTER(c_int), "double*": POINTER(c_double),
    "ptr*": POINTER(c_void_p), "size*": POINTER(c_size_t), "all_gather": ALL_GATHER,
    "all_to_all": ALL_TO_ALL, "write": WRITE, "read": READ, "str*": POINTER(c_char_p),
}
Allocator = _struct("optc_allocator", "alloc alloc, release release, ptr context")
EngineOptions = _struct("optc_engine_options", "str device, int threads, str cache_dir compiler "
                        "spec_path isa,int no_builtin, str cache_base, i64 cache_max, int untuned, "
                        "optc_allocator* allocator,str fatbin_path, i64 workspace")
TypeInfo = _struct("optc_type_info", "str name dtype, int bits dlpack")
Memory = _struct("optc_memory", "i64 total free ours peak")
Text = _struct("optc_text", "str name text")
RuleOptions = _struct("optc_rule_options", "str spec text with options, type param grad state, "
                      "optc_text* wrappers,int nwrappers, str products types, int bindings")
Hyper = _struct("optc_hyper", "str name, double value lo hi, int lo_open hi_open")
StateInfo = _struct("optc_state_info", "str name domain, type type")
Option = _struct("optc_option", "str name value preset choices kind")
Tensor = _struct("optc_tensor", "str name, ptr param grad, i64 grad_count, int rank, i64* shape, "
                 "type param_type grad_type, unsigned flags, i64* param_strides grad_strides, str "
                 "tags, i64* global_shape offset, i64 split, ptr* states")
Setting = _struct("optc_setting", "str name, double value")
Group = _struct("optc_group", "optc_tensor* tensors, int ntensors, optc_setting* hyper, int nhyper")
TensorInfo = _struct("optc_tensor_info", "str name, int group rank, i64* shape, i64 count, ptr "
                                         "param grad, str variant")
Held = _struct("optc_held", "i64 states temporaries workspace, int batches, i64 graphs")
Factors = _struct("optc_factors", "i64 computed refused, double residual")
StateView = _struct("optc_state_view", "ptr data, i64 count, type type")
Bytes = _struct("optc_bytes", "double read written")
Product = _struct("optc_product", "ptr a b d c, type type, i64 m n k p batch, int turn_a turn_b "
                  "turn_d,i64 lda ldb ldd ldc next_a next_b next_d next_c, double scale add, str "
                  "products, i64 workspace,ptr stream")
Matrix = _struct("optc_matrix", "ptr data, i64 ld next")
Function = _struct("optc_function", "optc_matrix a b x y, type type, i64 m n batch,"
                   "double exponent ridge relative floor, int steps, str coefficients,"
                   "int lower upper right positive unchecked, ptr stream, double* residual,"
                   "i64* bytes, double* triples, int ntriples")
Kronecker = _struct("optc_kronecker", "ptr a b c, type type, i64 m n p q batch next_a next_b, ptr "
                                      "stream")
Comm = _struct("optc_comm", "int rank ranks, ptr context, all_gather all_gather, all_to_all "
                            "all_to_all")
Checkpoint = _struct("optc_checkpoint", "str path, ptr memory, write write, read read, ptr "
                     "context, i64 size,str* prefix, ptr warnings, size warnings_size, int params")
# next_a, next_b, next_d: the same matrix for the whole batch
ONE = -1

# name: result, arguments. "status" is checked; handles are void pointers.
CALLS = """
optc_message: str
optc_version: str
optc_types: int
optc_type_about_sized: status type optc_type_info* size
optc_open_sized: status optc_engine_options* size ptr*
optc_device_count: int
optc_best_device: str
optc_memory_info: status ptr optc_memory*
optc_close: status ptr
optc_device_name: str ptr
optc_threads: int ptr
optc_compile_sized: status ptr optc_rule_options* size ptr*
optc_release: status ptr
optc_rule_name: str ptr
optc_rule_path: str ptr
optc_rule_native: int ptr
optc_rule_plan: str ptr
optc_rule_hypers: int ptr
optc_rule_hyper: status ptr int optc_hyper*
optc_rule_states: int ptr
optc_rule_state: status ptr int optc_state_info*
optc_rule_values: int ptr
optc_rule_value: status ptr int optc_state_info*
optc_rule_entries: int ptr
optc_rule_entry: str ptr int
optc_rule_reads_gradient: int ptr int
optc_rule_tag: str ptr int
optc_rule_has_periods: int ptr
optc_rule_gradient: str ptr i64 int
optc_rule_inputs: int ptr
optc_rule_input: str ptr int
optc_rule_input_info: status ptr int optc_state_info*
optc_rule_field: str ptr str
optc_rule_option_count: int ptr
optc_rule_option: status ptr int optc_option*
optc_rule_position: int ptr str
optc_rule_changes_grad: int ptr
optc_rule_warnings: int ptr
optc_rule_warning: str ptr int
optc_rule_unread: str ptr str
optc_type_warnings: status ptr optc_setting* int ptr size
optc_bind_sized: status ptr optc_group* int size size ptr*
optc_bind_sharded_sized: status ptr optc_group* int size size optc_comm* ptr*
optc_state_rank: status ptr int str int*
optc_unbind: status ptr
optc_binding_warning: str ptr
optc_tensors: int ptr
optc_groups: int ptr
optc_tensor_about_sized: status ptr int optc_tensor_info* size
optc_binding_held_sized: status ptr optc_held* size
optc_factors_about_sized: status ptr int optc_factors* size
optc_step: status ptr
optc_run: status ptr str
optc_connect: status ptr* int
optc_connect_ranks: status ptr* int optc_comm*
optc_run_all: status ptr* int str
optc_set_stream: status ptr ptr
optc_sync: status ptr
optc_get_t: status ptr int i64*
optc_set_t: status ptr int i64
optc_get_slot: status ptr int i64 int int*
optc_set_hyper: status ptr int str double
optc_get_hyper: status ptr int str double*
optc_set_hyper_from: status ptr int str ptr int
optc_set_scalar_from: status ptr int str ptr int
optc_set_guard: status ptr ptr int
optc_set_grad: status ptr int ptr i64
optc_set_grads: status ptr ptr* int
optc_set_params: status ptr ptr* int
optc_set_input: status ptr int str ptr i64
optc_set_scalar: status ptr int str double
optc_state: status ptr int str optc_state_view*
optc_has_state: status ptr int str int*
optc_state_bytes: status ptr int str size*
optc_state_read: status ptr int str double* i64
optc_state_write: status ptr int str double* i64
optc_read_value: status ptr int str double* i64
optc_params_changed: status ptr int
optc_rule_follows_params: int ptr str
optc_rule_lower_triangle: int ptr str
optc_rule_check_state_sized: status ptr str optc_tensor* type ptr i64 i64 size
optc_save_sized: status ptr* int optc_checkpoint* size
optc_load_sized: status ptr* int optc_checkpoint* size
optc_plan_bytes: status ptr str i64 optc_bytes*
optc_multiply_sized: status ptr optc_product* size
optc_kron_sized: status ptr optc_kronecker* size
optc_matrix_power_sized: status ptr optc_function* size
optc_eigh_sized: status ptr optc_function* size
optc_cholesky_sized: status ptr optc_function* size
optc_solve_sized: status ptr optc_function* size
optc_polar_sized: status ptr optc_function* size
optc_qr_sized: status ptr optc_function* size
optc_functions_drop: status ptr
optc_functions_held: status ptr i64*
optc_profile_start: status
optc_profile_stop: status
optc_profile_active: int
optc_profile_text: ptr int
optc_library_size: int
optc_library_name: str int
optc_library_text: str str
"""


def places():
    """Paths that are searched for liboptc, in order: in this package, $OPTC_LIBRARY, in the build
    tree."""
    return [p for p in (os.path.join(BUNDLED, "liboptc.so"), os.environ.get("OPTC_LIBRARY"),
                        os.path.join(TREE, os.environ.get("BUILD") or "build", "liboptc.so")) if p]


def program():
    """The path of the optc command next to the library; None: there is none."""
    for lib in places():
        path = os.path.join(os.path.dirname(lib), "optc")
        if os.path.isfile(path) and os.access(path, os.X_OK):
            return path
    return None


def _blas():
    """Names the BLAS of the package scipy-openblas32 (optc[blas]) in $OPTC_BLAS, unless that is
    set. The library opens it when a rule needs one."""
    if os.environ.get("OPTC_BLAS"):
        return
    from importlib import util
    for name in ("scipy_openblas32", "scipy_openblas64"):
        spec = util.find_spec(name)
        for folder in (spec.submodule_search_locations or ()) if spec else ():
            lib = os.path.join(folder, "lib")
            for file in sorted(os.listdir(lib)) if os.path.isdir(lib) else ():
                if file.startswith("lib") and ".so" in file and "openblas" in file:
                    os.environ["OPTC_BLAS"] = os.path.join(lib, file)
                    return


def _openmp():
    """Loads torch's libgomp.so.1 first, if torch has one, whether or not torch is imported later.
    The first library of that name serves the whole process, and torch's may be newer than the
    system's."""
    from importlib import util
    spec = None if "torch" in sys.modules else util.find_spec("torch")
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        path = os.path.join(folder, "lib", "libgomp.so.1")
        if os.path.isfile(path):
            ctypes.CDLL(path)


def _load():
    _openmp()
    for path in places():
        if os.path.isfile(path):
            return ctypes.CDLL(path)
    raise ImportError("liboptc.so was not found; run make, or set OPTC_LIBRARY to its path; "
                      "searched: "
                      + ", ".join(places()))


def failed(status):
    """The exception for a status, with this thread's optc_message()."""
    kind = STATUSES[status] if 0 < status < len(STATUSES) else Error
    return kind((lib.optc_message() or b"").decode("utf-8", "replace"))


# Ctrl-C in functions that C has called; raised after the call
interrupts = []


def _check(status, _call, _args):
    if interrupts:
        raise interrupts.pop()
    if status:
        raise failed(status)
    return status


def _declare(library):
    for line in CALLS.split("\n"):
        if line:
            name, _, kinds = line.partition(": ")
            result, *args = kinds.split()
            call = getattr(library, name)
            call.argtypes = [KINDS[k] for k in args]
            call.restype = c_int if result == "status" else KINDS[result]
            if result == "status":
                call.errcheck = _check
    return library


_blas()
lib = _declare(_load())

# Storage types of the library. number: an optc_type; name: "bf16"; dtype: NumPy's and torch's name,
# "bfloat16"; dlpack: DLPack's type code.
Type = namedtuple("Type", "number name dtype bits dlpack")


def _types():
    about = TypeInfo()
    for n in range(1, lib.optc_types() + 1):
        lib.optc_type_about_sized(n, about, ctypes.sizeof(about))
        yield Type(n, about.name.decode(), about.dtype.decode(), about.bits, about.dlpack)


def first_of(pairs):
    """{key: its first value}: of types with one dtype the first is meant, since bf16sr is bf16 to
    all but a rule."""
    found = {}
    for key, value in pairs:
        found.setdefault(key, value)
    return found


TYPES = tuple(_types())
TYPE_NAMES = {t.name: t.number for t in TYPES}
TYPE_BYTES = {t.number: t.bits // 8 for t in TYPES}
_first = first_of((t.dtype, t.number) for t in TYPES)
PLAIN = {t.number: _first[t.dtype] for t in TYPES}       # the type of its arrays: bf16 of bf16sr


def encoded(text):
    """Text as bytes for C; refuses a zero byte, which would end it."""
    found = None if text is None else os.fsencode(text)
    if found and 0 in found:
        raise ValueError("the text contains a zero byte (character %d); specs and names must not" %
                         found.index(0))
    return found


def decoded(text):
    return None if text is None else os.fsdecode(text)


def array(kind, values):
    """A C array of the values; None if there are none."""
    values = list(values)
    return (kind * len(values))(*values) if values else None
