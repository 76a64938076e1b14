"""The C library's functions of matrices have the bits of the Python package's."""
import ctypes
import unittest
from ctypes import POINTER, Structure, c_char_p, c_double, c_int, c_int64, c_size_t, c_void_p

import torch

import optc
import optc.torch as ot
from optc import _lib
from optc.torch._engines import TYPES


class Matrix(Structure):
    _fields_ = [("data", c_void_p), ("ld", c_int64), ("next", c_int64)]


class Function(Structure):
    _fields_ = ([(n, Matrix) for n in "abxy"] + [("type", c_int)] + [(n, c_int64) for n in ("m", "n", "batch")] +
                [(n, c_double) for n in ("exponent", "ridge", "relative", "floor")] + [("steps", c_int),
                ("coefficients", c_char_p)] + [(n, c_int) for n in ("lower", "upper", "right", "positive", "unchecked")]
                + [("stream", c_void_p), ("residual", POINTER(c_double)), ("bytes", POINTER(c_int64))])


def positive(n, dtype):
    torch.manual_seed(n)
    x = torch.randn(3, n, n, dtype=torch.float64)
    return (x @ x.mT / n + torch.eye(n, dtype=torch.float64)).to(dtype)


class Bits(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.engine = optc.Engine(threads=torch.get_num_threads())

    def call(self, name, A, B=None, results=1, **named):
        X = torch.empty_like(A if B is None else B)
        w = torch.empty(*A.shape[:-1], dtype=A.dtype)
        f = Function(type={t.name: t.number for t in _lib.TYPES}[TYPES[A.dtype]], n=A.shape[-1],
                     m=X.shape[-1] if B is not None else A.shape[-2], batch=A.shape[0], **named)
        f.a.data, f.x.data, f.b.data = A.data_ptr(), X.data_ptr(), 0 if B is None else B.data_ptr()
        if results == 2:
            f.y.data = w.data_ptr()
        call = getattr(_lib.lib, "optc_%s_sized" % name)
        call.argtypes, call.restype = [c_void_p, POINTER(Function), c_size_t], c_int
        status = call(self.engine.handle, ctypes.byref(f), ctypes.sizeof(f))
        self.assertEqual(status, 0, _lib.lib.optc_message())
        return (w, X) if results == 2 else X

    def test_equal(self):
        for dtype in (torch.float32, torch.float64, torch.bfloat16):
            A, B = positive(17, dtype), torch.randn(3, 17, 4).to(dtype)
            pairs = [(self.call("matrix_power", A, exponent=-0.25, ridge=0.125),
                      ot.matrix_power(A, -1 / 4, ridge=0.125)),
                     (self.call("matrix_power", A, exponent=0.3, floor=0.1), ot.matrix_power(A, 0.3, floor=0.1)),
                     (self.call("cholesky", A), ot.cholesky(A)), (self.call("polar", A), ot.polar(A)),
                     (self.call("solve", A, B), ot.solve_triangular(A, B)),
                     (self.call("solve", A, B, positive=1), ot.solve_positive(A, B)),
                     (self.call("qr", A), ot.qr(A)[0]),
                     *zip(self.call("eigh", A, results=2), ot.eigh(A))]
            for i, (x, y) in enumerate(pairs):
                self.assertTrue(torch.equal(x, y), "%s, function %d" % (dtype, i))


if __name__ == "__main__":
    unittest.main()
