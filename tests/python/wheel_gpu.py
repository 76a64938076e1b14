"""Checks that the GPU code of the installed wheel, or of the folders in $OPTC_CACHE_BASE, suffices
without NVRTC: every rule of the library is compiled and every function of matrices is called, on
the tests' fake driver, which loads code and computes nothing. tools/release.sh and
tests/parts/ship_functions.sh run it, with LD_LIBRARY_PATH, FAKE_CUDA=works and FAKE_ARCH set for
the driver. Arguments: rules to compile instead of all; "": none."""
import ctypes
import os
import sys

# has no CUDA library: products use kernels of the packages too
HERE = os.path.dirname(os.path.abspath(__file__))
os.environ.update(OPTC_NO_NVRTC="1", OPTC_CACHE="", OPTC_TUNE="",
                  OPTC_CUBLAS=HERE, OPTC_CUSOLVER=HERE)
import optc                                            # noqa: E402
from optc import _lib                                  # noqa: E402

SIDE = 4
TYPES = [{}, {"param": "bf16", "grad": "bf16", "state": "f32"}]
# optc.torch's
VARIANTS = [("sgd", "momentum_buffer=false"), ("adafactor", "torch=true"), ("muon", "eps=1e-07")]
engine = optc.Engine("cuda")
found, missing = [], []


def note(what, call):
    """Runs a call and records whether its code was found. call: returns a rule's path, or None."""
    try:
        why = call() or "from the package"
    except optc.Error as e:
        why = str(e)
    (found if why.startswith("from the package") else missing).append("%s: %s" % (what, why))


def function(name, **members):
    """A call of a function of matrices. The memory of the fake driver is the host's."""
    memory = [(ctypes.c_double * (2 * SIDE * SIDE))() for _ in range(4)]
    for i in range(0, SIDE * SIDE, SIDE + 1):
        memory[0][i] = 1.0
    f = _lib.Function(n=SIDE, m=SIDE, unchecked=1, **members)
    # R needs cuBLAS
    for k, matrix in enumerate((f.a, f.b, f.x) if name == "qr" else (f.a, f.b, f.x, f.y)):
        matrix.data = ctypes.addressof(memory[k])
    note("optc_%s %s" % (name, members), lambda: getattr(_lib.lib, "optc_%s_sized" % name)(
        engine.handle, f, ctypes.sizeof(f)) or None)


rules = sys.argv[1:] or [n for n in optc.library() if "/" not in n]
for types in TYPES:
    for rule, options in [(r, None) for r in rules if r] + [v for v in VARIANTS if v[0] in rules]:
        note("%s %s %s" % (rule, options or "", types),
             lambda: engine.compile(rule, types=types, options=options, warn=False).path)
for kind in map(_lib.TYPE_NAMES.get, ("f32", "f64", "bf16")):
    for exponent in (-1, -1 / 2, -1 / 3, -1 / 4, 0.3, 2):
        for lift in range(8) if exponent in (-1, -1 / 2,
                                             0.3) and kind != _lib.TYPE_NAMES["bf16"] else (0,):
            function("matrix_power", type=kind, exponent=exponent, ridge=lift & 1,
                     relative=lift >> 1 & 1, floor=lift >> 2)
    for members in ({}, {"upper": 1}, {"right": 1}, {"upper": 1, "right": 1}, {"positive": 1}):
        function("solve", type=kind, **members)
    for members in ({}, {"steps": 5}, {"steps": 5, "coefficients": b"jordan"}):
        function("polar", type=kind, **members)
    for name in ("eigh", "cholesky", "qr"):
        function(name, type=kind)
memory = [(ctypes.c_float * 16)() for _ in range(3)]
note("optc_kron", lambda: engine.kron(*map(ctypes.addressof, memory), m=2, n=2, p=2, q=2))
for line in missing:
    print("not in the packages: " + line)
print("%s: %d of %d programs found without NVRTC" %
      (engine.device_name, len(found), len(found) + len(missing)))
sys.exit(bool(missing) or not found)
