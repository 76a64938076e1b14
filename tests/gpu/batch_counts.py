"""Does the result of a matrix depend on how many matrices cublasGemmBatchedEx multiplies in one call?

Run by hand on a GPU, with torch: python3 tests/gpu/batch_counts.py [SECONDS] [SEED]. Multiplies random shapes in
batches of 1 to 180 and compares the bits of a matrix with those of a call for it alone. Prints one line for each class
of products. optc computes the classes marked "batched" in one call for many matrices (alone_in_call in
runtime/core/matrix/gpu_products.c): a difference there breaks equal bits for any number of ranks, and the exit status
is 1.
"""
import collections
import ctypes
import random
import sys
import time

import torch

TYPES = {"f32": (torch.float32, 0, 68), "tf32": (torch.float32, 0, 77), "f64": (torch.float64, 1, 70),
         "bf16": (torch.bfloat16, 14, 68), "f16": (torch.float16, 2, 68)}      # cudaDataType, cublasComputeType_t
COUNTS = [1, 2, 3, 4, 6, 8, 12, 15, 16, 36, 48, 64, 180]
SIZES = [6, 8, 10, 16, 17, 18, 20, 24, 36, 48, 64, 77, 96, 100, 128, 130, 192, 200, 256, 300, 320, 330, 400, 512, 520,
         640, 768, 1024, 1600, 2048]


def open_cublas():
    for name in ("libcublas.so.13", "libcublas.so.12"):
        try:
            lib = ctypes.CDLL(name)
        except OSError:
            continue
        handle = ctypes.c_void_p()
        assert lib.cublasCreate_v2(ctypes.byref(handle)) == 0
        assert lib.cublasSetMathMode(handle, 16) == 0                          # as cublas_handle_take does
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
        rc = lib.cublasGemmBatchedEx(handle, ta, tb, m, n, k, ctypes.byref(one), a, self.data, k if ta else m, b,
                                     self.data, n if tb else k, ctypes.byref(zero), c, self.data, m, count,
                                     self.compute, -1)
        assert rc == 0, rc
        torch.cuda.synchronize()
        return self.c[-1].clone()


def class_of(kind, m, n, k):
    if kind == "tf32":
        return "tf32", False
    if kind in ("bf16", "f16"):
        even = all(x % 8 == 0 for x in (m, n, k))
        return kind + (", lengths are multiples of 16 bytes" if even else ", other lengths"), even
    return kind + (", more than 16 rows" if n > 16 else ", 16 rows or fewer"), n > 16   # n: rows in row-major


def main():
    seconds, seed = float(sys.argv[1]) if len(sys.argv) > 1 else 60, int(sys.argv[2]) if len(sys.argv) > 2 else 1
    random.seed(seed)
    torch.manual_seed(seed)
    lib, handle = open_cublas()
    workspace = torch.empty(32 << 20, dtype=torch.uint8, device="cuda")
    lib.cublasSetWorkspace_v2(handle, ctypes.c_void_p(workspace.data_ptr()), ctypes.c_size_t(32 << 20))
    seen, examples = collections.defaultdict(lambda: [0, 0]), []
    until = time.time() + seconds
    while time.time() < until:
        kind = random.choice(list(TYPES))
        m, n, k = (random.choice(SIZES) if random.random() < 0.7 else random.randint(2, 1200) for _ in range(3))
        if kind in ("bf16", "f16") and random.random() < 0.7:
            m, n, k = (x // 8 * 8 + 8 for x in (m, n, k))
        counts = [c for c in COUNTS if c * (m * k + k * n + m * n) < 1e8 and c * m * n * k < 2e11]
        if len(counts) < 3:
            continue
        batch = Batch(kind, m, n, k, random.choice([(0, 0), (1, 0), (0, 1)]), counts[-1])
        alone = batch.last(lib, handle, 1)
        differ = [c for c in counts[1:] if not torch.equal(alone, batch.last(lib, handle, c))]
        label, batched = class_of(kind, m, n, k)
        seen[label, batched][0] += 1
        if differ:
            seen[label, batched][1] += 1
            if batched:
                examples.append(f"{label}: {m} x {n} x {k}, transposes {batch.transposes}, differs for {differ}")
    for (label, batched), (shapes, differ) in sorted(seen.items()):
        print(f"{'batched' if batched else 'alone  '} {label}: {differ} of {shapes} shapes differ")
    print("\n".join(examples[:20]))
    return 1 if examples else 0


if __name__ == "__main__":
    sys.exit(main())
