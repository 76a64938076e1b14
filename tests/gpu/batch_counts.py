"""Does the result of a matrix depend on how many matrices cuBLAS multiplies in one call?

Run by hand on a GPU, with torch: python3 tests/gpu/batch_counts.py [SECONDS] [SEED]. Multiplies
random shapes in batches of 1 to 180 and compares the bits of a matrix with those of a call for it
alone. Prints one line for each class of products. optc computes the classes marked "batched" in one
call of cublasGemmBatchedEx for many matrices (count_changes_bits in
runtime/core/matrix/gpu_products.c), and the others by one algorithm of cuBLASLt for any number
(cublas_lt.c; rows "Lt" here): a difference there breaks equal bits for any number of ranks, and the
exit status is 1.
"""
import collections
import ctypes
import random
import sys
import time

import torch

TYPES = {
    "f32": (torch.float32, 0, 68), "tf32": (torch.float32, 0, 77), "f64": (torch.float64, 1, 70),
    # cudaDataType, cublasComputeType_t
    "bf16": (torch.bfloat16, 14, 68), "f16": (torch.float16, 2, 68)
}
COUNTS = [1, 2, 3, 4, 6, 8, 12, 15, 16, 36, 48, 64, 180]
SIZES = [
    6, 8, 10, 16, 17, 18, 20, 24, 36, 48, 64, 77, 96, 100, 128, 130, 192, 200, 256, 300, 320, 330,
    400, 512, 520, 640, 768, 1024, 1600, 2048
]


def open_cublas():
    for name in ("libcublas.so.13", "libcublas.so.12"):
        try:
            lib = ctypes.CDLL(name)
        except OSError:
            continue
        handle = ctypes.c_void_p()
        assert lib.cublasCreate_v2(ctypes.byref(handle)) == 0
        # as cublas_handle_take does
        assert lib.cublasSetMathMode(handle, 16) == 0
        return lib, handle
    sys.exit("batch_counts: cuBLAS is not on the loader's path")


def pointers(matrices):
    return torch.tensor([x.data_ptr() for x in matrices], device="cuda")


class Batch:
    """`most` products C = A B, column-major as in cuBLAS."""

    def __init__(self, kind, m, n, k, transposes, most):
        dtype, self.data, self.compute = TYPES[kind]
        self.sizes, self.transposes, self.most = (m, n, k), transposes, most
        self.a = torch.randn(most, m * k, device="cuda").to(dtype)
        self.b = torch.randn(most, k * n, device="cuda").to(dtype)
        self.c = torch.zeros(most, m * n, device="cuda", dtype=dtype)
        self.at = [pointers(x) for x in (self.a, self.b, self.c)]
        self.scalar = ctypes.c_double if dtype == torch.float64 else ctypes.c_float

    def last(self, lib, handle, count):
        """The last matrix' result, computed in a call with the last `count` matrices."""
        m, n, k = self.sizes
        ta, tb = self.transposes
        a, b, c = (ctypes.c_void_p(x.data_ptr() + 8 * (self.most - count)) for x in self.at)
        one, zero = self.scalar(1), self.scalar(0)
        self.c.zero_()
        rc = lib.cublasGemmBatchedEx(handle, ta, tb, m, n, k, ctypes.byref(one), a,
                                     self.data, k if ta else m, b, self.data, n if tb else k,
                                     ctypes.byref(zero), c, self.data, m, count, self.compute, -1)
        assert rc == 0, rc
        torch.cuda.synchronize()
        return self.c[-1].clone()


class Result(ctypes.Structure):
    """cublasLtMatmulHeuristicResult_t"""
    _fields_ = [("algo", ctypes.c_uint64 * 8), ("workspace", ctypes.c_size_t),
                ("state", ctypes.c_int), ("waves", ctypes.c_float), ("reserved", ctypes.c_int * 4)]


class LtBatch(Batch):
    """The same products by one algorithm of cuBLASLt, which is selected for 12 matrices, as
    cublas_lt.c does it."""

    def __init__(self, lt, *shape):
        super().__init__(*shape)
        (m, n, k), size = self.sizes, self.a.element_size()
        cores = self.compute == 77 or size == 2
        aligned = 16 if cores and all(x * size % 16 == 0 for x in self.sizes) else size
        self.lt, self.desc, wide = lt, ctypes.c_void_p(), self.scalar is ctypes.c_double
        assert lt.cublasLtMatmulDescCreate(ctypes.byref(self.desc), self.compute,
                                           1 if wide else 0) == 0
        for attribute, value in zip((3, 4), self.transposes):
            assert lt.cublasLtMatmulDescSetAttribute(self.desc, attribute, *self.number(value)) == 0
        preference, got = ctypes.c_void_p(), ctypes.c_int()
        assert lt.cublasLtMatmulPreferenceCreate(ctypes.byref(preference)) == 0
        bytes_8 = ctypes.byref(ctypes.c_uint64(0)), ctypes.c_size_t(8)
        assert lt.cublasLtMatmulPreferenceSetAttribute(preference, 1, *bytes_8) == 0
        for attribute, value in [(3, 0), (5, aligned), (6, aligned), (7, aligned), (8, aligned)]:
            assert lt.cublasLtMatmulPreferenceSetAttribute(preference, attribute,
                                                           *self.number(value)) == 0
        self.result, layouts = Result(), self.layouts(12)
        rc = lt.cublasLtMatmulAlgoGetHeuristic(self.handle(), self.desc, *layouts, layouts[2],
                                               preference, 1, ctypes.byref(self.result),
                                               ctypes.byref(got))
        self.known = rc == 0 and got.value == 1
        lt.cublasLtMatmulPreferenceDestroy(preference)
        self.free(layouts)

    @staticmethod
    def number(value):
        return ctypes.byref(ctypes.c_int32(value)), ctypes.c_size_t(4)

    def handle(self):
        if not hasattr(self.lt, "optc_handle"):
            self.lt.optc_handle = ctypes.c_void_p()
            assert self.lt.cublasLtCreate(ctypes.byref(self.lt.optc_handle)) == 0
        return self.lt.optc_handle

    def layouts(self, count):
        (m, n, k), (ta, tb), out = self.sizes, self.transposes, []
        for rows, cols in ((k, m) if ta else (m, k), (n, k) if tb else (k, n), (m, n)):
            x = ctypes.c_void_p()
            assert self.lt.cublasLtMatrixLayoutCreate(ctypes.byref(x), self.data,
                                                      ctypes.c_uint64(rows), ctypes.c_uint64(cols),
                                                      ctypes.c_int64(rows)) == 0
            # an array of pointers; the number of matrices
            for attribute, value in ((8, 1), (5, count)):
                assert self.lt.cublasLtMatrixLayoutSetAttribute(x, attribute,
                                                                *self.number(value)) == 0
            out.append(x)
        return out

    def free(self, layouts):
        for x in layouts:
            self.lt.cublasLtMatrixLayoutDestroy(x)

    def last(self, lib, handle, count):
        a, b, c = (ctypes.c_void_p(x.data_ptr() + 8 * (self.most - count)) for x in self.at)
        one, zero, layouts = self.scalar(1), self.scalar(0), self.layouts(count)
        self.c.zero_()
        rc = self.lt.cublasLtMatmul(self.handle(), self.desc, ctypes.byref(one), a, layouts[0], b,
                                    layouts[1], ctypes.byref(zero), c, layouts[2], c, layouts[2],
                                    ctypes.byref(self.result.algo), None, ctypes.c_size_t(0), None)
        assert rc == 0, rc
        torch.cuda.synchronize()
        self.free(layouts)
        return self.c[-1].clone()


def open_lt():
    for name in ("libcublasLt.so.13", "libcublasLt.so.12"):
        try:
            return ctypes.CDLL(name)
        except OSError:
            pass
    return None


def class_of(kind, m, n, k, transposes):
    if kind == "tf32":
        return "tf32", False
    if kind in ("bf16", "f16"):
        even = all(x % 8 == 0 for x in (m, n, k))
        strides = (m, k if transposes[0] else m, n if transposes[1] else k)
        rows = all(x % 8 == 0 for x in strides) and min(m, n, k) > 16
        return kind + (
            ", lengths are multiples of 16 bytes" if even else
            ", rows are multiples of 16 bytes" if rows else ", other lengths"), even or rows
    # n: rows in row-major
    return kind + (", more than 16 rows" if n > 16 else ", 16 rows or fewer"), n > 16


def main():
    seconds, seed = float(sys.argv[1]) if len(sys.argv) > 1 else 60, int(sys.argv[2]) if len(
        sys.argv) > 2 else 1
    random.seed(seed)
    torch.manual_seed(seed)
    lib, handle = open_cublas()
    workspace = torch.empty(32 << 20, dtype=torch.uint8, device="cuda")
    lib.cublasSetWorkspace_v2(handle, ctypes.c_void_p(workspace.data_ptr()),
                              ctypes.c_size_t(32 << 20))
    lt = open_lt()
    seen, examples = collections.defaultdict(lambda: [0, 0]), []
    until = time.time() + seconds
    while time.time() < until:
        kind = random.choice(list(TYPES))
        m, n, k = (random.choice(SIZES) if random.random() < 0.7 else random.randint(2, 1200)
                   for _ in range(3))
        transposes = random.choice([(0, 0), (1, 0), (0, 1)])
        if random.random() < 0.1:
            k = random.randint(2000, 40000)
        if kind in ("bf16", "f16") and random.random() < 0.7:
            # the length that is no row stride
            odd = random.random() < 0.5
            m = m // 8 * 8 + 8
            n = n | 1 if odd and transposes != (0, 1) else n // 8 * 8 + 8
            k = k | 1 if odd and transposes == (0, 1) else k // 8 * 8 + 8
        counts = [c for c in COUNTS if c * (m * k + k * n + m * n) < 1e8 and c * m * n * k < 2e11]
        if len(counts) < 3:
            continue
        label, batched = class_of(kind, m, n, k, transposes)
        if lt and not batched and random.random() < 0.75:
            batch = LtBatch(lt, kind, m, n, k, transposes, counts[-1])
            label, batched = "Lt " + label, True
            if not batch.known:
                seen["no algorithm of " + label, True][0] += 1
                continue
        else:
            batch = Batch(kind, m, n, k, transposes, counts[-1])
        alone = batch.last(lib, handle, 1)
        differ = [c for c in counts[1:] if not torch.equal(alone, batch.last(lib, handle, c))]
        seen[label, batched][0] += 1
        if differ:
            seen[label, batched][1] += 1
            if batched:
                examples.append(
                    f"{label}: {m} x {n} x {k}, transposes {batch.transposes}, differs for {differ}"
                )
    for (label, batched), (shapes, differ) in sorted(seen.items()):
        print(f"{'batched' if batched else 'alone  '} {label}: {differ} of {shapes} shapes differ")
    print("\n".join(examples[:20]))
    return 1 if examples else 0


if __name__ == "__main__":
    sys.exit(main())
