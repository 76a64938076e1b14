"""Unusual conditions around a step: torch's defaults, modes, threads and forks. Stand-ins replace
the streams and captures of a GPU."""
import threading
import unittest
import weakref
from unittest import mock

import torch

import optc.torch as ot
from case import grads, lists
from optc.torch import _tensor_binding, _function_args, _engines, _optimizer, _rule_inputs

CUDA = torch.device("cuda:0")


class Defaults(unittest.TestCase):
    def stepped(self, opt, p, n):
        for _ in range(n):
            p.grad = torch.ones(3, dtype=p.dtype, device="cpu")
            opt.step()
        return opt.state_dict()["state"][0]["step"]

    def test_types(self):
        """Steps are counted, and scales taken out, in f32: 16 bits of a default do not count beyond
        256."""
        self.addCleanup(torch.set_default_dtype, torch.get_default_dtype())
        for default in (torch.bfloat16, torch.float64):
            torch.set_default_dtype(default)
            p = torch.zeros(3, requires_grad=True)
            self.assertEqual(self.stepped(ot.SGD([p], lr=0.0, momentum=0.9), p, 258).item(), 258)
            p = torch.zeros(3, dtype=torch.float32, requires_grad=True)
            opt, scaler = ot.SGD([p], lr=1.0), ot.GradScaler("cpu", init_scale=4.0)
            scaler.scale(p.sum()).backward()
            scaler.step(opt)
            self.assertEqual(p.tolist(), [-1.0] * 3)

    def test_device(self):
        """What the host counts is on the host, whatever tensors are made on by default."""
        p, q = (torch.zeros(3, requires_grad=True) for _ in range(2))
        opt = ot.AdamW([p, q], lr=0.1)
        with torch.device("meta"):
            self.assertEqual(self.stepped(opt, p, 2).item(), 2)

    def test_autocast(self):
        A = torch.randn(30, 30)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            Q, R = ot.qr(A)
        torch.testing.assert_close(Q @ R, A, rtol=1e-5, atol=1e-5)


    def test_precision(self):
        """Products are in tf32 where torch's are, by whichever of its names that was set (asked for
        by the old name, what the new one set is an error)."""
        self.addCleanup(torch.set_float32_matmul_precision, torch.get_float32_matmul_precision())
        for said, so in (("high", True), ("medium", True), ("highest", False)):
            torch.set_float32_matmul_precision(said)
            with mock.patch.object(torch, "get_float32_matmul_precision", side_effect=RuntimeError):
                self.assertEqual(_function_args.tf32(CUDA, torch.float32), so)
                self.assertFalse(_function_args.tf32(CUDA, torch.float64))


class Negative(unittest.TestCase):
    """Tensors whose memory holds -x, as torch makes them of a conjugate's imaginary part."""

    def test_gradient(self):
        a, b = (torch.tensor(x, requires_grad=True) for x in (1.0, 2.0))
        (torch.complex(a, b).conj() * torch.tensor(3 + 4j)).real.backward()
        self.assertTrue(b.grad.is_neg())
        ot.SGD([b], lr=1.0).step()
        self.assertEqual(b.item(), 2.0 - 4.0)

    def test_operands(self):
        a, one = torch.randn(4, 1, dtype=torch.complex64).conj().imag, torch.ones(1, 2)
        self.assertTrue(torch.equal(ot.batched_matmul(a, one), a @ one))
        self.assertTrue(torch.equal(ot.kron(a[:1], one), a[:1].clone() * one))


class Written(unittest.TestCase):
    def test_out(self):
        """torch is told of what is written: a gradient that needs what was there is refused."""
        A, out, w = torch.eye(3), torch.ones(3, 3), torch.ones(3, 3, requires_grad=True)
        loss = (w * out).sum()
        ot.batched_matmul(A, A, out=out)
        with self.assertRaisesRegex(RuntimeError, "modified by an inplace operation"):
            loss.backward()

    def test_static(self):
        """A gradient that lies otherwise is copied at every step, static or not."""
        p, g = torch.zeros(4, 3, requires_grad=True), torch.ones(3, 4).t()
        p.grad = g
        opt = ot.SGD([p], lr=1.0, static_grads=True)
        opt.step(), g.fill_(5.0), opt.step()
        self.assertEqual(p[0, 0].item(), -6.0)


class Threads(unittest.TestCase):
    def test_release(self):
        """Backward has a thread for every device: two gradients that arrive at once bind once."""
        ps, inside, met = lists(), [], threading.Event()
        opt = ot.SGD(ps, lr=0.1, momentum=0.9, release_grads=True)
        bind = opt._bind

        def slowly():
            inside.append(threading.get_ident())
            met.set() if len(inside) > 1 else met.wait(0.2)
            bind()
        opt._bind = slowly
        both = [threading.Thread(target=lambda p=p: p.sum().backward()) for p in ps]
        for t in both:
            t.start()
        for t in both:
            t.join()
        self.assertEqual(len(inside), 1)
        self.assertEqual([opt.state[p]["step"].item() for p in ps], [1, 1])

    def test_memory(self):
        """One thread binds while another looks where states lie."""
        d = _engines.Device(torch.device("cpu"), 1)
        rule, p, held = d.engine.compile("sgd"), torch.zeros(64), []
        other = threading.Thread(target=lambda: held.append(rule.bind([([p], {})])))

        def meanwhile(x):
            found = sorted(x)
            if not held:
                other.start()
                other.join(0.2)
            return found
        first = rule.bind([([p], {})])
        with mock.patch.object(_engines, "sorted", meanwhile, create=True):
            at = min(d.buffers)
            self.assertEqual(d.holding(at).data_ptr(), at)
            other.join()
            for at in d.buffers:
                self.assertEqual(d.holding(at).data_ptr(), at)
        del first

    def test_one_engine(self):
        """Two threads that are the first get one engine: rules of one and memory of the other would
        not do."""
        both, found = threading.Barrier(2, timeout=0.5), []

        class Slow:
            def __init__(self, *_):
                try:
                    # the other is in here too, or waits for this one
                    both.wait()
                except threading.BrokenBarrierError:
                    pass
        with mock.patch.object(_engines, "Device", Slow), mock.patch.dict(_engines._open):
            threads = [
                threading.Thread(
                    target=lambda: found.append(_engines.device_of(torch.device("cpu"), 12345)))
                for _ in range(2)
            ]
            for t in threads:
                t.start()
            for t in threads:
                t.join()
        self.assertIs(*found)

    def test_fork(self):
        """Who has no parameter on a GPU does not ask torch about one: in a fork it must not be
        asked."""
        ps = lists()
        grads(ps)
        with mock.patch.object(torch.cuda, "is_available", return_value=True), \
                mock.patch.object(torch.cuda, "is_current_stream_capturing",
                                  side_effect=RuntimeError("CUDA error")):
            ot.AdamW(ps).step()


class OnGpu(unittest.TestCase):
    """A binding of the CPU's that takes itself for one of cuda:0."""

    def bound(self, **given):
        ps = lists()
        grads(ps)
        opt = ot.Optimizer(ps, "sgd+clip(1)", lr=0.1, **given)
        opt.step()
        b, = opt._bounds
        b.cuda, b.index, b.device = True, 0, CUDA
        b.binding = mock.Mock(wraps=b.binding)
        b.memory = mock.Mock(wraps=b.memory, used_in=mock.Mock())
        return opt, b

    def in_stream(self, stream, capturing=False):
        for patch in (mock.patch.object(torch._C, "_cuda_getCurrentRawStream", return_value=stream,
                                        create=True), mock.patch.object(
                                            torch.cuda, "current_stream"),
                      mock.patch.object(_tensor_binding, "capturing", return_value=capturing),
                      mock.patch.object(_optimizer, "capturing", return_value=capturing)):
            patch.start()
            self.addCleanup(patch.stop)

    def test_read_behind_replays(self):
        """Replays go into torch's current stream, and not into the one the step was captured in:
        counts and values are read there, behind what the binding did."""
        for read in (lambda o: o.state_dict(), lambda o: o.value("clip.grad_norm"),
                     lambda o: o.set_scalar("none", 1)):
            opt, b = self.bound()
            b.stream = 5                               # that of the capture
            opt._scalars = {}
            self.in_stream(7)
            with mock.patch.object(_rule_inputs, "send_scalar"):
                read(opt)
            names = [c[0] for c in b.binding.mock_calls]
            self.assertLess(names.index("sync"), names.index("set_stream"))
            self.assertEqual(b.stream, 7)
            self.assertEqual(len({"get_t", "value"} & set(names[:names.index("set_stream")])), 0)

    def test_copies_of_graphs(self):
        """What a graph writes to stays, though no gradient is copied there any more."""
        opt, b = self.bound()
        p, = (p for p in b.params if p.dim() == 2)
        self.in_stream(7, capturing=True)
        p.grad = torch.ones(p.shape[::-1]).t()
        b.follow_stream(), b.find_grads()
        at, = b.grad_copies.values()
        gone = weakref.ref(at.untyped_storage())
        self.in_stream(8)
        p.grad = torch.ones(p.shape)
        b.follow_stream(), b.find_grads()
        self.assertFalse(b.grad_copies)
        del at
        self.assertIsNotNone(gone())

    def test_used_in(self):
        """Everything that a step reads belongs to the stream it goes to: torch must not hand it out
        before that is done."""
        opt, b = self.bound()
        p, = (p for p in b.params if p.dim() == 2)
        p.grad = torch.ones(p.shape[::-1]).t()
        b.scaling = mock.Mock(memory=torch.zeros(2))
        b.find_grads()
        self.in_stream(9)
        b.follow_stream()
        more = b.memory.used_in.call_args.args[1]
        for x in (*b.grad_copies.values(), b.scaling.memory):
            self.assertTrue(any(x is y for y in more))

    def test_copies_before_states(self):
        """States that begin as copies of what is copied itself wait for that."""
        seen, p, attempt = [], torch.zeros(
            8, 6).t()[::2].requires_grad_(), _tensor_binding.TensorBinding._attempt
        p.grad = torch.ones_like(p)

        def bind(b, hypers):
            seen.append("bound")
            attempt(b, hypers)
        with mock.patch.object(_tensor_binding.TensorBinding, "_order_before",
                               lambda b: seen.append("in order" if b.staged else "")), \
                mock.patch.object(_tensor_binding.TensorBinding, "_attempt", bind):
            ot.Optimizer([p], "sgd+ema(0.9)", lr=0.1).step()
        self.assertEqual(seen[:3], ["", "in order", "bound"])

    def test_which_device(self):
        """Of a device that is not the current one, too."""
        now = [1]
        with mock.patch.object(torch.cuda, "current_device", side_effect=lambda: now[0]), \
                mock.patch.object(torch.cuda, "device") as guard, \
                mock.patch.object(torch.cuda, "is_current_stream_capturing",
                                  side_effect=lambda: now[0] == 0):
            guard.return_value.__enter__.side_effect = lambda *_: now.__setitem__(0, 0)
            guard.return_value.__exit__.side_effect = lambda *_: now.__setitem__(0, 1)
            self.assertTrue(_engines.capturing(CUDA))
            self.assertEqual(now, [1])

    def test_memory_is_not_filled(self):
        """torch fills what torch.empty gives where algorithms are to be deterministic, in a stream
        of its own."""
        self.addCleanup(torch.use_deterministic_algorithms,
                        torch.are_deterministic_algorithms_enabled())
        torch.use_deterministic_algorithms(True)
        with mock.patch.object(torch, "empty", wraps=torch.empty) as empty:
            ps = lists()
            grads(ps)
            ot.AdamW(ps).step()
        self.assertFalse([c for c in empty.call_args_list if c.args[0] != 0])


if __name__ == "__main__":
    unittest.main()
