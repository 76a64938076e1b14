"""Functions on tensors against torch.linalg in f64."""
import threading
import unittest

import torch

import optc
import optc.torch as ot

ULP = {torch.float64: 2.2e-16, torch.float32: 1.2e-7, torch.bfloat16: 7.9e-3, torch.float16: 9.8e-4}


def positive(*shape, dtype=torch.float32, seed=0):
    """Symmetric, eigenvalues of 0.5 and more."""
    torch.default_generator.manual_seed(seed)
    x = torch.randn(*shape, shape[-1], dtype=torch.float64)
    return (x @ x.mT / shape[-1] + 0.5 * torch.eye(shape[-1], dtype=torch.float64)).to(dtype)


def power(A, r, lift=0.0):
    w, V = torch.linalg.eigh(A.double())
    return V @ torch.diag_embed((w + lift) ** r) @ V.mT


class Functions(unittest.TestCase):
    def near(self, x, y, ulps=32):
        self.assertEqual(x.shape, y.shape)
        bound = ulps * ULP[x.dtype] * max(1.0, y.abs().max().item() if y.numel() else 0)
        self.assertLessEqual((x.double() - y).abs().max().item() if y.numel() else 0, bound)

    def said(self, kind, words, call, *args, **named):
        with self.assertRaises(kind) as e:
            call(*args, **named)
        for word in words:
            self.assertIn(word, str(e.exception))


class Powers(Functions):
    def test_types_and_shapes(self):
        for dtype in ULP:
            A = positive(2, 3, 7, dtype=dtype)
            before = A.clone()
            X = ot.matrix_power(A, -0.25, ridge=1e-2)
            self.assertEqual(X.dtype, dtype)
            self.near(X, power(A, -0.25, 1e-2))
            self.assertTrue(torch.equal(A, before))
        for n in (1, 2):
            A = positive(n)
            self.near(ot.matrix_power(A, -0.25, ridge=1e-2), power(A, -0.25, 1e-2))

    def test_exponents(self):
        A = positive(2, 6, dtype=torch.float64)
        for r in (0.5, -0.3):                          # a whole compilation each: few of them
            self.near(ot.matrix_power(A, r), power(A, r), 64)
        A[1, 2, 0] = float("nan")
        X = ot.matrix_power(A, 0)
        self.assertTrue(torch.equal(X[0], torch.eye(6).double()) and bool(X[1].isnan().all()))
        A = positive(2, 6, dtype=torch.float64)
        self.near(ot.inverse_root(A, 4, ridge=1e-2), power(A, -0.25, 1e-2), 64)

    def test_lifts(self):
        A = positive(2, 5) - 0.6 * torch.eye(5)        # some are negative now
        self.assertTrue(bool((torch.linalg.eigvalsh(A) < 0).any()))
        rows = A.double().abs().sum(-1).amax(-1)[:, None]
        self.near(ot.matrix_power(A, -0.25, ridge=0.2, relative=0.1),
                  power(A, -0.25, 0.2 + 0.1 * rows), 64)
        w, V = torch.linalg.eigh(A.double())
        self.near(ot.matrix_power(A, 0.5, floor=0.3),
                  V @ torch.diag_embed(w.clamp(min=0.3) ** 0.5) @ V.mT, 64)
        self.near(ot.matrix_power(A, -0.25, ridge=0.4, relative=0.1),
                  power(A, -0.25, 0.4 + 0.1 * rows), 64)

    def test_strides_and_triangle(self):
        A = positive(3, 6)
        lower = A.tril() + 9.0 * torch.ones(6, 6).triu(1)      # what lies above is not read
        self.near(ot.matrix_power(lower, -0.25, ridge=1e-2), power(A, -0.25, 1e-2))
        wide = torch.zeros(6, 6, 5)
        wide[:, :, 1:4] = A.permute(1, 2, 0)
        self.near(ot.matrix_power(wide[:, :, 1:4].permute(2, 0, 1), -0.25, ridge=1e-2),
                  power(A, -0.25, 1e-2))
        self.near(ot.matrix_power(A[:1].expand(4, 6, 6), -0.25, ridge=1e-2),
                  power(A[:1].expand(4, 6, 6), -0.25, 1e-2))

    def test_fresh_and_out(self):
        A, B = positive(2, 4), positive(2, 4, seed=1)
        X = ot.matrix_power(A, -0.25, ridge=1e-2)
        kept = X.clone()
        Y = ot.matrix_power(B, -0.25, ridge=1e-2)
        self.assertTrue(torch.equal(X, kept))
        self.assertFalse(torch.equal(X, Y))
        out = torch.empty(4, 4, 2).permute(2, 0, 1)
        self.assertIs(ot.matrix_power(A, -0.25, ridge=1e-2, out=out), out)
        self.assertTrue(torch.equal(out, X))
        ot.matrix_power(A, -0.25, ridge=1e-2, out=A)           # over itself
        self.assertTrue(torch.equal(A, X))
        for bad in (torch.empty(2, 4, 5), torch.empty(2, 4, 4, dtype=torch.float64)):
            self.said(ValueError, ["out is"], ot.matrix_power, A, -0.25, ridge=1e-2, out=bad)

    def test_empty(self):
        for shape in ((0, 0), (0, 3, 3), (4, 0, 0)):
            self.assertEqual(ot.matrix_power(torch.empty(shape), -0.25).shape, shape)
            self.assertEqual(ot.eigh(torch.empty(shape))[0].shape, shape[:-1])
        Q, R = ot.qr(torch.empty(2, 3, 0))
        self.assertEqual((Q.shape, R.shape), ((2, 3, 0), (2, 0, 0)))
        self.assertEqual(
            ot.solve_triangular(torch.empty(2, 3, 3), torch.empty(2, 3, 0)).shape, (2, 3, 0))

    def test_one_of_many(self):
        """What is wrong with one matrix stays there, and is named when asked."""
        A = positive(4, 5)
        A[1, 0, 0], A[3] = float("nan"), -A[3]
        X = ot.matrix_power(A, -0.25, ridge=1e-2)
        self.assertEqual(X.isnan().flatten(1).all(1).tolist(), [False, True, False, True])
        self.near(X[::2], power(A[::2], -0.25, 1e-2))
        self.said(torch.linalg.LinAlgError, ["matrix 1, 3 of 4"], ot.matrix_power, A, -0.25,
                  ridge=1e-2, check=True)

    def test_not_symmetric(self):
        """check=True names matrices whose triangles differ by more than rounding, as C does by
        default; without it the lower triangle counts."""
        eye = torch.eye(5)
        for dtype in (torch.float32, torch.float64, torch.bfloat16):
            A = positive(4, 5, dtype=dtype)
            A[2, 0, 3] += 0.25
            A[3, 1, 0] = float("nan")                  # no question of symmetry
            for call in (lambda x, **k: ot.matrix_power(x, -0.5, **k),
                         lambda x, **k: ot.matrix_power(x, 0, **k),
                         lambda x, **k: ot.inverse_root(x, 4, **k), ot.eigh, ot.cholesky,
                         lambda x, **k: ot.solve_positive(x,
                                                          eye.to(dtype).expand(x.shape), **k)):
                self.said(torch.linalg.LinAlgError,
                          ["matrix 2 of 4", "A is not symmetric", "A.tril() + A.tril(-1).mT"], call,
                          A, check=True)
                call(A)
                call(A[:2], check=True)
                near = A[:2].clone()
                near[0, 0, 3] *= 1 + 2 * torch.finfo(dtype).eps        # rounding
                call(near, check=True)
                whole = A[:3].tril() + A[:3].tril(-1).mT
                call(whole, check=True)
        huge = torch.diag(torch.tensor([1e20, 1e-20]))
        # beside a diagonal of that size it is rounding
        huge[0, 1] = 1e-4
        ot.eigh(huge, check=True)
        ot.qr(A[:2].float(), check=True), ot.polar(A[:2].float(), check=True)

    def test_refused(self):
        A = positive(3)
        grad = A.clone().requires_grad_()
        self.said(RuntimeError, ["not differentiable", "A.detach()", "no_grad"], ot.matrix_power,
                  grad, -0.25)
        with torch.no_grad():
            self.near(ot.matrix_power(grad, -0.25, ridge=1e-2), power(A, -0.25, 1e-2))
        self.said(ValueError, ["square", "(3, 4)"], ot.matrix_power, torch.ones(3, 4), -0.25)
        self.said(ValueError, ["last two dimensions"], ot.matrix_power, torch.ones(3), -0.25)
        self.said(TypeError, ["torch.int64"], ot.matrix_power, torch.ones(3, 3, dtype=torch.int64),
                  -0.25)
        self.said(TypeError, ["complex64"], ot.matrix_power, A.to(torch.complex64), -0.25)
        self.said(TypeError, ["to_dense"], ot.matrix_power, A.to_sparse(), -0.25)
        self.said(TypeError, ["list"], ot.matrix_power, [[1.0]], -0.25)
        self.said(ValueError, ["meta"], ot.matrix_power, A.to("meta"), -0.25)
        self.said(ValueError, ["ridge=-1"], ot.matrix_power, A, -0.25, ridge=-1)
        self.said(ValueError, ["exponent=nan"], ot.matrix_power, A, float("nan"))
        self.said(ValueError, ["root=0"], ot.inverse_root, A, 0)
        self.said(RuntimeError, ["vmap"], torch.func.vmap(lambda x: ot.matrix_power(x, -0.25)),
                  positive(2, 3))
        self.said(ValueError, ["does not fit"], ot.solve_positive, A, torch.ones(4, 2))

    def test_modes(self):
        """Kept memory belongs to no mode that it was made in."""
        A = positive(9)
        with torch.inference_mode():
            ot.matrix_power(A, -0.25, ridge=1e-2)
        self.near(ot.matrix_power(A, -0.25, ridge=1e-2), power(A, -0.25, 1e-2))
        X = ot.matrix_power(A, -0.25, ridge=1e-2)
        X.requires_grad_().sum().backward()

    def test_threads(self):
        want = [power(positive(6, seed=s), -0.25, 1e-2) for s in range(4)]
        wrong = []

        def work(s):
            for _ in range(20):
                if (ot.matrix_power(positive_[s], -0.25, ridge=1e-2).double() -
                        want[s]).abs().max() > 1e-5:
                    wrong.append(s)
        positive_ = [positive(6, seed=s) for s in range(4)]
        threads = [threading.Thread(target=work, args=(s,)) for s in range(4)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertEqual(wrong, [])

    def test_kept(self):
        """Memory for the last few calls is kept, and freed when asked."""
        held = []
        for n in range(2, 40):
            ot.matrix_power(positive(2).expand(n, 2, 2), -0.25, ridge=1e-2)
            held.append(ot.memory_info("cpu")["functions"])
        self.assertLess(0, held[0])
        self.assertLess(held[-1], 2 * held[18])
        ot.empty_cache()
        self.assertEqual(ot.memory_info("cpu")["functions"], 0)


class Factors(Functions):
    def test_eigh(self):
        A = positive(2, 3, 6)
        w, V = ot.eigh(A)
        self.near(w, torch.linalg.eigvalsh(A.double()))
        self.near(V @ torch.diag_embed(w) @ V.mT, A.double(), 64)
        self.near(V.mT @ V, torch.eye(6).double().expand(2, 3, 6, 6))

    def test_cholesky_and_solutions(self):
        A = positive(2, 5)
        L = ot.cholesky(A)
        self.near(L, torch.linalg.cholesky(A.double()))
        B = torch.randn(2, 5, 3)
        self.near(ot.solve_triangular(L, B),
                  torch.linalg.solve_triangular(L.double(), B.double(), upper=False), 64)
        U, C = L.mT, B.mT
        self.near(ot.solve_triangular(U, C, upper=True, left=False),
                  torch.linalg.solve_triangular(U.double(), C.double(), upper=True, left=False), 64)
        self.near(ot.solve_positive(A, B), torch.linalg.solve(A.double(), B.double()), 64)
        self.said(torch.linalg.LinAlgError, ["matrix 0, 1 of 2"], ot.cholesky, -A, check=True)

    def test_qr(self):
        for shape in ((2, 6, 4), (4, 6), (3, 1), (1, 3)):
            A = torch.randn(shape, generator=torch.Generator().manual_seed(1))
            Q, R = ot.qr(A)
            self.near(Q @ R, A.double())
            self.near(Q.mT @ Q, torch.eye(Q.shape[-1]).double().expand(*Q.shape[:-2], -1, -1))
            self.assertTrue(bool((R.diagonal(dim1=-2, dim2=-1) >= 0).all()))
            self.assertTrue(torch.equal(R, R.triu()))

    def test_polar(self):
        for shape in ((2, 6, 4), (4, 7)):
            A = torch.randn(shape, generator=torch.Generator().manual_seed(2))
            U, _, V = torch.linalg.svd(A.double(), full_matrices=False)
            self.near(ot.polar(A), U @ V)
        self.said(ValueError, ["coefficients"], ot.polar, A, coefficients='x" }')
        self.said(TypeError, ["triples"], ot.polar, A, coefficients=[(1.0, 2.0)])
        jordan = ot.polar(A, steps=5, coefficients="jordan")
        self.assertTrue(
            torch.equal(ot.polar(A, steps=5, coefficients=[(3.4445, -4.775, 2.0315)]), jordan))


class Products(Functions):
    def test_batched(self):
        torch.default_generator.manual_seed(3)
        for dtype in ULP:
            A, B = torch.randn(2, 3, 5, 4).to(dtype), torch.randn(2, 3, 4, 6).to(dtype)
            single = torch.randn(4, 6).to(dtype)
            for a, b in ((A, B), (A, single), (A[0, 0], B), (A.mT.contiguous().mT, B),
                         (A[..., ::2], B[..., ::2, :]), (A[:1], B), (A[..., :1], B[..., :1, :]),
                         (A, B.mT.contiguous().mT), (A[..., :0], B[..., :0, :]), (A[:0], B[:0]),
                         (A[:, :, :0], B), (torch.randn(3, 2, 5, 4).to(dtype).transpose(0, 1), B)):
                C = ot.batched_matmul(a, b)
                self.assertEqual(C.dtype, dtype)
                self.near(C, a.double() @ b.double(), 16)

    def test_out(self):
        A, B = torch.randn(3, 4, 4), torch.randn(3, 4, 4)
        want = A.double() @ B.double()
        out = torch.empty(3, 4, 4)
        self.assertIs(ot.batched_matmul(A, B, out=out), out)
        self.near(out, want)
        turned = torch.empty(3, 4, 4).mT
        self.near(ot.batched_matmul(A, B, out=turned), want)
        ot.batched_matmul(A, B, out=A)                 # over an operand
        self.near(A, want)
        self.said(ValueError, ["out is"], ot.batched_matmul, A, B, out=torch.empty(3, 4, 5))

    def test_bounded(self):
        torch.default_generator.manual_seed(4)
        A, B, C = torch.randn(2, 200, 300), torch.randn(2, 300, 400), torch.randn(2, 400, 500)
        want = A.double() @ B.double() @ C.double()
        size = want.abs().max().item()
        found = [
            ot.bounded_matmul(A, B, C, workspace=w) for w in (200 * 400 * 4, 1 << 20, 64 << 20)
        ]
        for X in found:
            self.assertLessEqual((X.double() - want).abs().max().item(), 1e-5 * size)
            self.assertTrue(torch.equal(X, found[0]))          # the limit changes no bit
        self.near(ot.bounded_matmul(A, B, workspace=1), A.double() @ B.double(), 256)
        # the cheaper way round is the other one
        back = ot.bounded_matmul(C.mT, B.mT, A.mT)
        self.assertLessEqual((back.double() - want.mT).abs().max().item(), 1e-5 * size)
        H = ot.bounded_matmul(A.bfloat16(), B.bfloat16(), C.bfloat16())
        self.assertLessEqual((H.double() - want).abs().max().item(), 0.03 * size)
        self.said(optc.ArgumentError, ["bounded_matmul", "at least 320000"], ot.bounded_matmul, A,
                  B, C, workspace=1000)
        self.said(ValueError, ["copied", ".contiguous()"], ot.bounded_matmul, A[:, ::2, ::2],
                  B[:, ::2], workspace=100)
        self.said(ValueError, ["workspace=0"], ot.bounded_matmul, A, B, workspace=0)

    def test_gram(self):
        A = torch.randn(2, 5, 7)
        for x in (A, A.mT, A[0]):
            G = ot.gram(x)
            self.near(G, x.double() @ x.double().mT)
            self.assertTrue(torch.equal(G, G.mT))

    def test_kron(self):
        for dtype in ULP:
            A, B = torch.randn(2, 3).to(dtype), torch.randn(4, 5).to(dtype)
            self.assertTrue(torch.equal(ot.kron(A, B),
                                        torch.kron(A.double(), B.double()).to(dtype)))
        many = torch.randn(3, 2, 2)
        K = ot.kron(many, B.float())
        for i in range(3):
            self.assertTrue(torch.equal(K[i], torch.kron(many[i], B.float())))
        self.assertTrue(
            torch.equal(ot.kron(many.mT, many)[1], torch.kron(many[1].T.contiguous(), many[1])))
        self.assertEqual(ot.kron(torch.ones(0, 3), many).shape, (3, 0, 6))

    def test_again(self):
        """What was made ready for one product is another's, whatever lies elsewhere, in any
        thread."""
        def many(seed):
            g = torch.Generator().manual_seed(seed)
            for _ in range(50):
                A, B = torch.randn(2, 5, 6, generator=g), torch.randn(2, 7, 6, generator=g).mT
                whole = torch.randn(4, 5, 12, generator=g)
                for a, b in ((A, B), (whole[::2, :, :6], B), (whole[:2, :, ::2], B),
                             (A[:1, None], B), (A[0], B)):
                    off.append((ot.batched_matmul(a, b) - a @ b).abs().max().item())
        off, threads = [], [threading.Thread(target=many, args=(i,)) for i in range(3)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertEqual(len(off), 750)
        self.assertLess(max(off), 1e-5)

    def test_refused(self):
        A = torch.ones(2, 3, 4)
        self.said(ValueError, ["(2, 3, 4)", "does not fit"], ot.batched_matmul, A, A)
        self.said(ValueError, ["batches"], ot.batched_matmul, A, torch.ones(3, 4, 2))
        self.said(ValueError, ["torch.float64"], ot.batched_matmul, A,
                  torch.ones(4, 2, dtype=torch.float64))
        self.said(ValueError, ["last two"], ot.kron, A, torch.ones(3))
        for call in (ot.batched_matmul, ot.kron, ot.bounded_matmul):
            self.said(RuntimeError, ["not differentiable", "B.detach()"], call, A,
                      torch.ones(4, 2, requires_grad=True))


class Machine(unittest.TestCase):
    def test_memory(self):
        m = ot.memory_info("cpu")
        self.assertLess(0, m["free"])
        self.assertLessEqual(m["free"], m["total"])
        p = torch.zeros(1000, requires_grad=True)
        p.grad = torch.ones(1000)
        opt = ot.Optimizer([p], "adamw", lr=1e-3)
        opt.step()
        self.assertLessEqual(m["ours"] + 8000, ot.memory_info("cpu")["ours"])
        with self.assertRaises(ValueError):
            ot.memory_info("meta")

    def test_best(self):
        device, why = ot.best_device(why=True)
        self.assertEqual(ot.best_device(), device)
        self.assertIsInstance(device, torch.device)
        self.assertEqual(str(device), optc.best_device() if torch.cuda.is_available() else "cpu")
        self.assertTrue(why)


if __name__ == "__main__":
    unittest.main()
