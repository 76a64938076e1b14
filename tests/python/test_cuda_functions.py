"""Functions on tensors on a GPU against torch.linalg in f64 on the CPU. Run by
tests/gpu/python.sh."""
import unittest

import torch

import optc
import optc.torch as ot
from test_functions import ULP, Functions, positive, power

CUDA = torch.cuda.is_available()


@unittest.skipUnless(CUDA, "no GPU")
class Powers(Functions):
    def test_types(self):
        for dtype in ULP:
            A = positive(3, 40, dtype=dtype)
            X = ot.matrix_power(A.cuda(), -0.25, ridge=1e-2, relative=1e-6)
            self.assertEqual((X.dtype, X.device.type), (dtype, "cuda"))
            lift = 1e-2 + 1e-6 * A.double().abs().sum(-1).amax(-1)[:, None]
            self.near(X.cpu(), power(A, -0.25, lift), 64)

    def test_sides(self):
        for n in (1, 2, 17, 64, 200, 600):
            A = positive(2, n)
            self.near(
                ot.matrix_power(A.cuda(), -0.25, ridge=1e-2).cpu(), power(A, -0.25, 1e-2), 128)
            self.near(ot.matrix_power(A.cuda(), 0.3).cpu(), power(A, 0.3), 512)

    def test_one_of_many(self):
        A = positive(4, 33)
        A[1, 0, 0], A[3] = float("nan"), -A[3]
        X = ot.matrix_power(A.cuda(), -0.25, ridge=1e-2)
        self.assertEqual(X.isnan().flatten(1).all(1).tolist(), [False, True, False, True])
        self.said(torch.linalg.LinAlgError, ["matrix 1, 3 of 4"], ot.matrix_power, A.cuda(), -0.25,
                  ridge=1e-2, check=True)

    def test_factors(self):
        A = positive(2, 70)
        w, V = ot.eigh(A.cuda())
        self.near(w.cpu(), torch.linalg.eigvalsh(A.double()), 64)
        self.near((V.double() @ torch.diag_embed(w.double()) @ V.double().mT).float().cpu(),
                  A.double(), 256)
        L = ot.cholesky(A.cuda())
        self.near(L.cpu(), torch.linalg.cholesky(A.double()), 64)
        B = torch.randn(2, 70, 9)
        want = torch.linalg.solve_triangular(L.cpu().double(), B.double(), upper=False)
        self.near(ot.solve_triangular(L, B.cuda()).cpu(), want, 64)
        self.near(
            ot.solve_positive(A.cuda(), B.cuda()).cpu(), torch.linalg.solve(A.double(), B.double()),
            128)
        for shape in ((2, 90, 40), (40, 90)):
            A = torch.randn(shape)
            Q, R = (x.cpu().double() for x in ot.qr(A.cuda()))
            self.near((Q @ R).float(), A.double(), 128)
            self.near((Q.mT @ Q).float(), torch.eye(40).double().expand(*shape[:-2], -1, -1), 64)
            U, _, V = torch.linalg.svd(A.double(), full_matrices=False)
            self.near(ot.polar(A.cuda()).cpu(), U @ V, 512)

    def test_streams(self):
        """What a stream makes is what it is given there, whatever another one is doing."""
        As = [positive(4, 96, seed=s) for s in range(6)]
        streams = [torch.cuda.Stream() for _ in range(2)]
        found = []
        for i, A in enumerate(As):
            with torch.cuda.stream(streams[i % 2]):
                x = A.to("cuda", non_blocking=True)
                found.append(ot.matrix_power(x, -0.25, ridge=1e-2))
        torch.cuda.synchronize()
        for A, X in zip(As, found):
            self.near(X.cpu(), power(A, -0.25, 1e-2), 64)

    def test_capture(self):
        A, B = positive(3, 48), positive(3, 48, seed=1)
        static = A.cuda()
        with self.assertRaises(RuntimeError) as e:
            with torch.cuda.graph(torch.cuda.CUDAGraph()):
                ot.matrix_power(static[:, :31, :31], -0.25, ridge=1e-2)
        self.assertIn("before capturing", str(e.exception))
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            ot.matrix_power(static, -0.25, ridge=1e-2)
        torch.cuda.current_stream().wait_stream(side)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            X = ot.matrix_power(static, -0.25, ridge=1e-2)
        for given in (A, B):
            static.copy_(given)
            graph.replay()
            self.near(X.cpu(), power(given, -0.25, 1e-2), 64)
        other = ot.matrix_power(B.cuda(), -0.25, ridge=0.5)     # has memory of its own
        self.near(other.cpu(), power(B, -0.25, 0.5), 64)
        ot.empty_cache()
        static.copy_(A)
        graph.replay()
        self.near(X.cpu(), power(A, -0.25, 1e-2), 64)


    def test_numbers_of_graphs(self):
        """Each graph has those it was captured with."""
        A, found, graphs = torch.eye(21, device="cuda"), {}, []
        for ridge in (3.0, 8.0):
            ot.matrix_power(A, -1.0, ridge=ridge)
            torch.cuda.synchronize()
            graphs.append(torch.cuda.CUDAGraph())
            with torch.cuda.graph(graphs[-1]):
                found[ridge] = ot.matrix_power(A, -1.0, ridge=ridge)
        for graph in graphs:
            graph.replay()
        torch.cuda.synchronize()
        for ridge, X in found.items():
            self.assertAlmostEqual(X[0, 0].item(), 1 / (1 + ridge), places=5)


@unittest.skipUnless(CUDA, "no GPU")
class Products(Functions):
    def test_batched(self):
        torch.manual_seed(3)
        for dtype in ULP:
            A, B = torch.randn(3, 65, 40).to(dtype), torch.randn(3, 40, 33).to(dtype)
            single = torch.randn(40, 33).to(dtype)
            for a, b in ((A, B), (A, single), (A[0], B), (A.mT.contiguous().mT,
                                                          B), (A[..., ::2], B[..., ::2, :]),
                         (A[..., :1], B[..., :1, :]), (A[..., :0], B[..., :0, :]), (A[:0], B[:0])):
                C = ot.batched_matmul(_cuda(a), _cuda(b))
                self.assertEqual((C.dtype, C.device.type), (dtype, "cuda"))
                self.near(C.cpu(), a.double() @ b.double(), 16)

    def test_precision(self):
        """As torch's own products, by whichever name that was set; R of a QR is not rounded."""
        A = torch.randn(300, 300, device="cuda")
        want = A.double() @ A.double()
        names = torch.backends.cuda.matmul
        self.addCleanup(setattr, names, "fp32_precision", names.fp32_precision)
        for said, least, most in (("ieee", 0, 1e-5), ("tf32", 1e-5, 1e-2)):
            names.fp32_precision = said
            off = ((ot.batched_matmul(A, A).double() - want).abs().max() / want.abs().max()).item()
            self.assertTrue(least <= off <= most, (said, off))
            Q, R = ot.qr(A)
            self.assertLess((Q.double() @ R.double() - A.double()).abs().max().item(), 1e-4)

    def test_many(self):
        """More than one call of cuBLAS takes."""
        A, B = torch.randn(70000, 2, 3), torch.randn(70000, 3, 2)
        self.near(ot.batched_matmul(A.cuda(), B.cuda()).cpu(), A.double() @ B.double(), 16)

    def test_bounded(self):
        torch.manual_seed(4)
        A, B, C = torch.randn(2, 200, 300), torch.randn(2, 300, 400), torch.randn(2, 400, 500)
        want = A.double() @ B.double() @ C.double()
        size = want.abs().max().item()
        given = [x.cuda() for x in (A, B, C)]
        for limit in (140000, 1 << 20, 64 << 20):
            torch.cuda.synchronize()
            torch.cuda.reset_peak_memory_stats()
            before = torch.cuda.memory_allocated()
            X = ot.bounded_matmul(*given, workspace=limit)
            torch.cuda.synchronize()
            took = torch.cuda.max_memory_allocated() - before - X.numel() * 4
            self.assertLessEqual(took, limit + 512)            # the allocator rounds up
            self.assertLessEqual((X.cpu().double() - want).abs().max().item(), 1e-5 * size)
        self.said(optc.ArgumentError, ["at least"], ot.bounded_matmul, *given, workspace=1000)
        for dtype, off in ((torch.bfloat16, 0.03), (torch.float16, 0.004)):
            X = ot.bounded_matmul(*(x.to(dtype) for x in given))
            self.assertLessEqual((X.cpu().double() - want).abs().max().item(), off * size)

    def test_gram_and_kron(self):
        A = torch.randn(2, 50, 70)
        for x in (A, A.mT):
            self.near(ot.gram(x.cuda()).cpu(), x.double() @ x.double().mT, 64)
        for dtype in ULP:
            A, B = torch.randn(2, 13, 7).to(dtype), torch.randn(5, 9).to(dtype)
            K = ot.kron(A.cuda(), B.cuda()).cpu()
            for i in range(2):
                self.assertTrue(torch.equal(K[i], torch.kron(A[i].double(), B.double()).to(dtype)))

    def test_streams_and_capture(self):
        A, B = torch.randn(4, 64, 64), torch.randn(4, 64, 64)
        a, b = A.cuda(), B.cuda()
        ot.batched_matmul(a, b), ot.kron(a[0], b[0, :2])
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            found = [ot.batched_matmul(a, b) for _ in range(8)]
        torch.cuda.synchronize()
        for X in found:
            self.near(X.cpu(), A.double() @ B.double(), 64)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            X = ot.bounded_matmul(a, b, a)
            K = ot.kron(a[0], b[0, :2])
            Y = ot.bounded_matmul(b, b, b)             # in what the first one worked in
        other = torch.full((64 << 20,), 7, dtype=torch.uint8, device="cuda")
        a.copy_(B)
        graph.replay()
        self.assertTrue(bool((other == 7).all()))      # what a replay works in is nobody else's
        want = B.double() @ B.double() @ B.double()
        self.assertLessEqual((X.cpu().double() - want).abs().max().item(),
                             1e-5 * want.abs().max().item())
        self.assertLessEqual((Y.cpu().double() - want).abs().max().item(),
                             1e-5 * want.abs().max().item())
        self.near(K.cpu(), torch.kron(B[0].double(), B[0, :2].double()), 2)


def _cuda(x):
    """There with the strides it has here."""
    storage = torch.empty(x.untyped_storage().nbytes() // x.element_size(), dtype=x.dtype,
                          device="cuda")
    return storage.as_strided(x.shape, x.stride(), x.storage_offset()).copy_(x)


@unittest.skipUnless(CUDA, "no GPU")
class Machine(unittest.TestCase):
    def test_memory(self):
        before = ot.memory_info()
        x = torch.empty(64 << 20, dtype=torch.uint8, device="cuda")
        after = ot.memory_info("cuda")
        self.assertLessEqual(64 << 20, after["allocated"] - before["allocated"])
        self.assertLessEqual(after["free"], after["total"])
        ot.matrix_power(positive(50).cuda(), -0.25, ridge=1e-2)
        self.assertLess(0, ot.memory_info()["functions"])
        self.assertLess(0, ot.memory_info()["ours"])
        ot.empty_cache()
        self.assertEqual(ot.best_device().type, "cuda")
        del x


if __name__ == "__main__":
    unittest.main()
