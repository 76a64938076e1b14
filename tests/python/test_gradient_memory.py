"""Gradients of types, shapes and storages that cannot be stepped, and threads that replace
gradients during a step; in each of the ways in which tensors are compared with the last step."""
import ctypes
import gc
import threading
import unittest
import weakref

import torch

import optc
import optc.torch
from case import Case
from optc.torch._address_check import AddressCheck
from test_address_check import path

WAYS = ("torch", "Python")
TYPES = [
    getattr(torch, n)
    for n in ("int64", "uint8", "bool", "complex64", "float8_e4m3fnuz", "float8_e8m0fnu")
    if hasattr(torch, n)
]


def stepped(shape=(64,), steps=3, **given):
    """An optimizer of two parameters after some steps, and the second parameter"""
    ps = [torch.nn.Parameter(torch.zeros(shape)) for _ in range(2)]
    opt = optc.torch.SGD([("p%d" % i, p) for i, p in enumerate(ps)], lr=1.0, **given)
    for _ in range(steps):
        for p in ps:
            p.grad = torch.ones(shape)
        opt.step()
    return opt, ps[1]


def shrink(x):
    """Lets torch's record of a storage end one element earlier: malloc may give a resized storage
    the same address, but need not. The record has one word with the number of bytes."""
    storage = x.untyped_storage()
    words = [
        ctypes.c_size_t.from_address(storage._cdata + at)
        for at in range(16, 64, ctypes.sizeof(ctypes.c_size_t))
    ]
    sizes = [w for w in words if w.value == storage.nbytes()]
    sizes[0].value -= x.element_size()
    assert len(sizes) == 1 and storage.nbytes() == sizes[0].value


class Types(Case):
    def refused(self, opt, dtype, step):
        for _ in range(2):
            with self.assertRaisesRegex(ValueError,
                                        r"gradients of %s: that of p1; it takes float32" % dtype):
                step()

    def test_refused(self):
        """At the first step, and when a later gradient has another type."""
        for way in WAYS:
            with path(way):
                for dtype in TYPES:
                    for steps in (0, 3):
                        opt, p = stepped(steps=steps)
                        was = p.detach().clone()
                        p.grad_dtype = None
                        p.grad = torch.ones(64).to(dtype)
                        self.refused(opt, dtype, opt.step)
                        self.assertTrue(torch.equal(p, was))
                        p.grad = torch.ones(64, dtype=torch.bfloat16)
                        opt.step()
                        self.assertTrue(torch.equal(p, was - 1))

    def test_data(self):
        """The same gradient, whose data were replaced."""
        opt, p = stepped()
        p.grad.data = torch.ones(64, dtype=torch.int32)
        self.refused(opt, torch.int32, opt.step)

    def test_release(self):
        p = torch.nn.Parameter(torch.zeros(4))
        opt = optc.torch.SGD([("p1", p)], lr=1.0, release_grads=True)
        p.grad_dtype = torch.float8_e4m3fnuz
        with self.assertRaisesRegex(ValueError, "gradients of torch.float8_e4m3fnuz: that of p1"):
            (p * 2).sum().backward()
        self.assertIsNone(opt._bounds)
        self.assertEqual(p.tolist(), [0] * 4)

    def test_inputs(self):
        """Inputs and numbers of a binding, and a loss."""
        text = 'return optimizer { name = "x", inputs = { hess = "elem", loss = "group" },' \
               ' step = function() p = p - g * hess * loss end }'
        p = torch.nn.Parameter(torch.zeros(4))
        opt = optc.torch.Optimizer([p], "x", spec=text)
        opt.set_scalar("loss", 1.0)
        for given in (torch.ones(4, dtype=torch.int32), torch.ones(4, dtype=torch.complex64),
                      torch._neg_view(torch.ones(4))):
            p.grad = torch.ones(4)
            opt.set_input(p, "hess", given)
            with self.assertRaisesRegex((TypeError, optc.ArgumentError), "int32|complex64|negated"):
                opt.step()
        opt.set_input(p, "hess", torch.ones(4))
        with self.assertRaisesRegex(ValueError, "loss is complex"):
            opt.step(lambda: torch.ones((), dtype=torch.complex64))
        opt.step(lambda: torch.tensor(2))
        self.assertEqual(p.tolist(), [-2] * 4)


class Storages(Case):
    def test_shrunk_at_the_same_address(self):
        """The storage of a parameter, and of a gradient; torch refuses or leaves the memory.
        Nothing is written."""
        for way in WAYS:
            for what in (lambda p: p, lambda p: p.grad):
                with self.subTest(way), path(way):
                    p = torch.nn.Parameter(torch.zeros(4099))
                    p.grad = torch.zeros(4099)
                    opt = optc.torch.SGD([("p1", p)], lr=1.0)
                    opt.step(), opt.step()
                    self.assertEqual(way == "Python", opt._bounds[0].seen is None)
                    shrink(what(p))
                    for _ in range(2):
                        with self.assertRaisesRegex(
                                RuntimeError, "storage of .*p1 has %d bytes" % (4 * 4099 - 4)):
                            opt.step()

    def test_shape(self):
        """A gradient with as many elements in another shape is refused, except where torch steps
        it."""
        for way in WAYS:
            with path(way):
                for shape, grad in (((4, 4), (16,)), ((4, 4), (2, 8)), ((4,), (1, 4)), ((4, 1),
                                                                                        (4,))):
                    opt, p = stepped(shape)
                    was = p.detach().clone()
                    p.grad.data = torch.ones(grad)
                    for _ in range(2):
                        with self.assertRaisesRegex(RuntimeError, r"the gradient of p1 has shape"):
                            opt.step()
                    self.assertTrue(torch.equal(p, was))
                    with self.assertRaises(RuntimeError):
                        torch.optim.SGD([p], lr=1.0).step()
                opt, p = stepped((1, 4))
                p.grad.data = torch.arange(4.0)
                q = torch.nn.Parameter(p.detach().clone())
                q.grad = torch.zeros(1, 4)
                q.grad.data = torch.arange(4.0)
                torch.optim.SGD([q], lr=1.0).step(), opt.step()
                self.assertTrue(torch.equal(p, q))
                p.data = p.data.view(2, 2)
                with self.assertRaisesRegex(RuntimeError, r"shape \(4,\).*shape \(2, 2\)"):
                    opt.step()


class Threads(Case):
    """Another thread replaces gradients while the library steps."""

    def replaced(self, way, steps):
        opt, p = stepped((1 << 16,), steps)
        seen, taken = [], []
        opt._ready() if not steps else None
        opt.zero_grad(set_to_none=False)
        binding = opt._bounds[0].binding

        def step():                                    # where the library has released the GIL
            at = p.grad.data_ptr()
            p.grad = None
            for _ in range(50):                        # memory that was freed is used again
                taken.append(torch.full((1 << 16,), float("nan")))
            seen.append(at in [x.data_ptr() for x in taken])
            return type(binding).step(binding)
        binding.step = step
        p.grad = torch.full((1 << 16,), 2.0)
        opt.step()
        del binding.step
        self.assertEqual(seen, [False], way)
        self.assertEqual(set(p.tolist()), {-steps - 2.0})
        return opt, p

    def test_replaced(self):
        wait = threading.Event()
        other = threading.Thread(target=wait.wait)
        other.start()
        try:
            for way in WAYS:
                for steps in (1, 3):
                    with path(way):
                        opt, p = self.replaced(way, steps)
                        for _ in range(4):             # nothing is held between steps
                            p.grad = g = torch.ones(1 << 16)
                            opt.step()
                            self.assertEqual(g._use_count(), 2)        # g, and p.grad
                        opt._bounds[0].binding.step = None
                        self.assertRaises(TypeError, opt.step)
                        self.assertEqual(g._use_count(), 2)
        finally:
            wait.set()
            other.join()

    def test_bound_again(self):
        """A step that binds all again after one of the bindings has found its gradients: it holds
        none later."""
        wait = threading.Event()
        other = threading.Thread(target=wait.wait)
        other.start()
        try:
            p, q = torch.nn.Parameter(torch.zeros(4)), torch.nn.Parameter(
                torch.zeros(2, 3, dtype=torch.float64))
            opt = optc.torch.SGD([p, q], lr=1.0)
            for shape in ((2, 3), (2, 3), (2, 3), (3, 2)):
                p.grad = g = torch.ones(4)
                q.data = q.data.view(shape)
                q.grad = torch.ones(shape, dtype=torch.float64)
                before = opt._bounds
                opt.step()
            self.assertIsNot(opt._bounds, before)
            del before
            self.assertEqual(g._use_count(), 2)        # g, and p.grad
        finally:
            wait.set()
            other.join()


class Compared(Case):
    def test_specs_live(self):
        """Ids of freed objects are used again: the specs of DTensors live as long as they are
        compared."""
        class Spec:
            pass
        opt, _ = stepped()
        specs = [Spec(), Spec()]
        check, dead = AddressCheck(opt._bounds[0], specs), [weakref.ref(s) for s in specs]
        del specs
        gc.collect()
        self.assertEqual([r() is None for r in dead], [False, False])
        del check


if __name__ == "__main__":
    unittest.main()
