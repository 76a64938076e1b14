"""optc on CuPy arrays: bound and stepped in place, in CuPy's streams. Run by
tests/gpu/python.sh."""
import unittest

import optc

try:
    import cupy
    there = cupy.cuda.runtime.getDeviceCount() > 0
except Exception:                                      # not installed, or no driver
    cupy, there = None, False


@unittest.skipUnless(there, "no CuPy, or no GPU")
class Cupy(unittest.TestCase):
    class ByDLPack:
        def __init__(self, x):
            self.x = x

        def __dlpack__(self):
            return self.x.__dlpack__()

    def test_step(self):
        """By CuPy's interface and by DLPack, against the sums written out."""
        engine = optc.Engine("cuda")
        for face in (lambda x: x, self.ByDLPack):
            for kind, name in ((cupy.float32, "f32"), (cupy.float64, "f64"), (cupy.float16, "f16")):
                p, g = cupy.ones((2, 3), kind), cupy.arange(6).astype(kind).reshape(2, 3)
                b = engine.compile("sgd", types={"param": name, "grad": name}).bind(
                    [([(face(p), face(g))], {"lr": 0.5, "momentum": 0.0})])
                b.set_stream(cupy.cuda.get_current_stream())
                b.step()
                cupy.testing.assert_array_equal(p, 1 - 0.5 * cupy.arange(6).reshape(2, 3))
                b.set_grads([face(cupy.ones((2, 3), kind))])
                b.step()
                cupy.testing.assert_array_equal(p, 0.5 - 0.5 * cupy.arange(6).reshape(2, 3))

    def test_stream(self):
        """A step waits for what its stream has to do."""
        stream = cupy.cuda.Stream(non_blocking=True)
        with stream:
            big = cupy.random.rand(2048, 2048, dtype=cupy.float32)
            p, g = cupy.zeros(1000, cupy.float32), cupy.zeros(1000, cupy.float32)
            b = optc.Engine("cuda").compile("sgd").bind([([(p, g)], {"lr": 1.0})])
            b.set_stream(stream)
            for _ in range(8):
                big = big @ big * 1e-3
            g[:] = 1
            b.step()
            after = p.copy()
        stream.synchronize()
        cupy.testing.assert_array_equal(after, -cupy.ones(1000, cupy.float32))

    def test_refused(self):
        with self.assertRaisesRegex(optc.ArgumentError, "is on cuda.* device is cpu"):
            optc.Engine("cpu").compile("sgd").bind([([cupy.ones(3, cupy.float32)], {})])


if __name__ == "__main__":
    unittest.main()
