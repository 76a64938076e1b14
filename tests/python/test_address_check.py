"""One call of the library compares the addresses and layouts of all tensors with those of the last
step."""
import contextlib
import copy
import os
import pickle
import sys
import unittest
import unittest.mock

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard

import optc.torch
import test_tensor_binding
from optc.torch import _address_check
from optc.torch._address_check import DIFFER, MOVED, STAY
from case import Case


class Sub(torch.Tensor):
    pass


def grad_data(of):
    """A change of the gradient's memory or layout that torch's checks of p.grad = g do not see."""
    return lambda p: setattr(p.grad, "data", of(p.grad.data))


def swap(p):
    """p becomes another tensor with the same memory, and with a gradient of its own."""
    q = p.detach().requires_grad_()
    q.grad = torch.ones_like(q)
    torch.utils.swap_tensors(p, q)


CHANGES = {
    "a new gradient": lambda p: setattr(p, "grad", torch.ones_like(p)),
    "no gradient": lambda p: setattr(p, "grad", None),
    "another address": grad_data(torch.clone),
    "other strides": grad_data(torch.t),
    "other strides in place": lambda p: p.grad.t_(),
    "another type": grad_data(lambda g: g.view(torch.int32)),
    "fewer elements": grad_data(lambda g: g[:2]),
    "fewer elements in place": lambda p: p.grad.resize_(2, 4),
    "more elements": grad_data(lambda g: g.as_strided((5, 4), (4, 1))),
    "a gradient of another class": lambda p: setattr(p, "grad", p.grad.as_subclass(Sub)),
    "a moved parameter": lambda p: setattr(p, "data", p.data.clone()),
    "a swapped parameter": swap,
    "a transposed parameter": lambda p: setattr(p, "data", p.data.t()),
    "a parameter of another shape": lambda p: setattr(p, "data", p.data.view(2, 8)),
    "a parameter with fewer elements": lambda p: setattr(p, "data", p.data[:2]),
}
RESULTS = dict.fromkeys([
    "a new gradient", "no gradient", "another address", "another local part of the gradient",
    "a swapped parameter"
], MOVED)  # the others: DIFFER


def result(name):
    """What the comparison returns after a change. torch's functions read the storage of a gradient
    of any class."""
    if name == "a gradient of another class":
        return STAY
    return RESULTS.get(name, DIFFER)


@contextlib.contextmanager
def path(way):
    """Compares tensors by torch's functions, with a torch that has them, or in Python."""
    calls = _address_check.CALLS if way == "torch" else None
    with unittest.mock.patch.object(_address_check, "CALLS", calls):
        yield


def other_spec(x):
    x._spec = DTensor.from_local(x._local_tensor, x.device_mesh, [Replicate()])._spec


CHANGES_OF_PIECES = {
    "a new gradient": lambda p: setattr(p, "grad",
                                        DTensor(torch.ones(4, 4), p._spec, requires_grad=False)),
    "another local part of the gradient": lambda p: setattr(p.grad, "_local_tensor",
                                                            p.grad._local_tensor.clone()),
    "other strides": lambda p: setattr(p.grad, "_local_tensor", p.grad._local_tensor.t()),
    "a local gradient of another class": lambda p: setattr(p.grad, "_local_tensor",
                                                           p.grad._local_tensor.as_subclass(Sub)),
    "another placement of the gradient": lambda p: other_spec(p.grad),
    "a gradient without a placement": lambda p: setattr(p.grad, "_spec", None),
    "another placement of the parameter": other_spec,
    "a moved parameter": lambda p: setattr(p, "_local_tensor", p._local_tensor.clone()),
    "another local part at the same address": lambda p: setattr(
        p, "_local_tensor", p._local_tensor.detach()), "a local part with other memory":
            lambda p: setattr(p._local_tensor, "data", p._local_tensor.data.clone()),
    "no gradient": lambda p: setattr(p, "grad", None),
}


class OneWay:
    """Tests that compare tensors by `way`."""
    way = "torch"

    def setUp(self):
        super().setUp()
        there = contextlib.ExitStack()
        there.enter_context(path(self.way))
        self.addCleanup(there.close)


class AddressChecks(OneWay, Case):
    """One call of the library compares all tensors with those of the last step. Every change ends
    that."""
    def stepped(self, make, count=3):
        """An optimizer whose last steps moved nothing, its parameters, and its binding"""
        ps = [make() for _ in range(count)]
        opt = optc.torch.SGD(ps, lr=0.5)
        for _ in range(3):
            opt.step()
        return opt, ps, opt._bounds[0]

    def compared(self, b):
        """Asserts that one call compares the tensors of a binding, and that they stay where they
        are."""
        self.assertEqual(b.seen is not None, _address_check.CALLS is not None)
        if _address_check.CALLS:
            self.assertEqual(b.seen.compare(), STAY)
            b.seen.release()

    def each(self, changes, make):
        if not _address_check.CALLS:
            return                                     # this torch lacks a function
        for name, change in changes.items():
            with self.subTest(name):
                opt, ps, b = self.stepped(make)
                self.compared(b)
                change(ps[1])
                self.assertEqual(b.seen.compare(), result(name))

    def test_plain(self):
        def make():
            p = torch.ones(4, 4).requires_grad_()
            p.grad = torch.ones(8, 4)[:4]              # its storage has room for more elements
            return p
        self.each(CHANGES, make)
        opt, ps, b = self.stepped(make, 4)
        CHANGES["a moved parameter"](ps[0])
        CHANGES["a new gradient"](ps[1])
        with torch.no_grad():
            ps[2].grad += 1                            # the same address
        swap(ps[3])
        ps[3].grad *= 3
        opt.step()
        self.assertEqual([p.sum().item() for p in ps], [-16, -16, -24, -32])

    def test_transposed_in_place(self):
        """Of many gradients that are the same objects as before, one is transposed in place: its
        address stays."""
        ps = [torch.zeros(2, 2, requires_grad=True) for _ in range(1001)]
        for p in ps:
            p.grad = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
        opt = optc.torch.SGD(ps, lr=1.0)
        for _ in range(3):
            opt.step()
        ps[7].grad.t_()
        opt.step()
        self.assertEqual(ps[7].tolist(), [[-4, -9], [-11, -16]])
        self.assertEqual(ps[8].tolist(), [[-4, -8], [-12, -16]])

    def test_two_addresses(self):
        """Gradients alternate between two addresses."""
        for stay in (1, 2, 3):                         # steps
            p = torch.zeros(4, requires_grad=True)
            one, two = torch.ones(4), torch.full((4,), 10.0)
            opt, total = optc.torch.SGD([p], lr=1.0), 0
            for t in range(12):
                p.grad = (one, two)[t // stay % 2]
                opt.step()
                total -= (1, 10)[t // stay % 2]
                self.assertEqual(p.tolist(), [total] * 4)
            self.compared(opt._bounds[0])
            self.assertEqual(sys.getrefcount(one),
                             sys.getrefcount(two) + (p.grad is one) - (p.grad is two))

    def test_layout_of_parameters(self):
        """Another order of the elements at the same address: torch.optim gives the same values."""
        def changed(opt, p, change):
            p.grad = torch.ones(2, 2)
            for _ in range(3):
                opt.step()
            with torch.no_grad():
                change(p)
            p.grad = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
            opt.step()
            return p.tolist()
        for change in (lambda p: setattr(p, "data", p.data.t()), torch.Tensor.t_):
            p, q = (torch.arange(4.0).view(2, 2).requires_grad_() for _ in range(2))
            want = changed(torch.optim.SGD([q], lr=1.0, momentum=0.5), q, change)
            self.assertEqual(changed(optc.torch.SGD([p], lr=1.0, momentum=0.5), p, change), want)

    def test_type_of_parameters(self):
        def make():
            p = torch.ones(2, 2, dtype=torch.bfloat16).requires_grad_()
            p.grad = torch.ones(2, 2, dtype=torch.bfloat16)
            return p
        self.each({"another type": lambda p: setattr(p, "data", p.data.view(torch.float16))}, make)
        p = make()
        opt = optc.torch.SGD([p], lr=0.5)
        for _ in range(3):
            opt.step()
        p.data = p.data.view(torch.float16)            # the same bytes, read as another type
        p.data.fill_(1)
        p.grad = torch.ones(2, 2, dtype=torch.float16)
        opt.step()
        self.assertEqual(p.tolist(), [[0.5, 0.5], [0.5, 0.5]])

    def test_freed_gradient(self):
        """A gradient moves, and its storage is smaller than its elements."""
        p = torch.zeros(8, requires_grad=True)
        p.grad = torch.ones(8)
        opt = optc.torch.SGD([p], lr=1.0)
        for _ in range(3):
            opt.step()
        p.grad = torch.ones(16)[8:]
        p.grad.untyped_storage().resize_(48)
        with self.assertRaisesRegex(RuntimeError, "resized or freed"):
            opt.step()
        p.grad = torch.ones(8)
        opt.step()
        self.assertEqual(p.tolist(), [-4] * 8)

    def test_without_gradient(self):
        """A tensor without a gradient stays without one, until it has one."""
        ps = [torch.zeros(2, requires_grad=True) for _ in range(3)]
        ps[0].grad, ps[2].grad = torch.ones(2), torch.ones(2)
        opt = optc.torch.SGD(ps, lr=1.0)
        for _ in range(4):
            opt.step()
        self.compared(opt._bounds[0])
        ps[1].grad = torch.ones(2)
        opt.step()
        ps[0].grad = None
        opt.step()
        self.assertEqual([p.tolist() for p in ps], [[-5, -5], [-2, -2], [-6, -6]])

    def test_no_elements(self):
        """torch has no address for a tensor without elements, such as an empty piece."""
        ps = [torch.zeros(n, requires_grad=True) for n in (0, 3)]
        for p in ps:
            p.grad = torch.ones_like(p)
        opt = optc.torch.SGD(ps, lr=1.0)
        for _ in range(4):
            opt.step()
        self.compared(opt._bounds[0])
        self.assertEqual(ps[1].tolist(), [-4] * 3)

    def test_negated(self):
        """A gradient of one element can be -x of autograd: the same address, another value."""
        for n in (1, 4):
            def make():
                p = torch.ones(n).requires_grad_()
                p.grad = torch.ones(n)
                return p
            negate = {"negated": lambda p: setattr(p, "grad", torch._neg_view(p.grad))}
            self.each(negate, make)
            opt, ps, b = self.stepped(make, 1)
            negate["negated"](ps[0])
            opt.step()
            self.assertEqual(ps[0].tolist(), [0] * n)

    def test_negated_param(self):
        """A parameter whose memory has the negated values is refused, also at the same address."""
        opt, ps, b = self.stepped(lambda: torch.ones(2).requires_grad_(), 1)
        ps[0].grad = torch.ones(2)
        opt.step(), opt.step()
        was = ps[0].tolist()
        ps[0].data = torch._neg_view(ps[0].data)
        for _ in range(2):
            with self.assertRaisesRegex(ValueError, "negated views"):
                opt.step()
            self.assertEqual(ps[0].tolist(), [-x for x in was])
        ps[0].data = torch._neg_view(ps[0].data)
        opt.step()
        self.assertEqual(ps[0].tolist(), [x - 0.5 for x in was])

    def test_own_grad(self):
        """A class with an attribute `grad` of its own is read by that."""
        twos = torch.full((2,), 2.0)

        class Own(torch.nn.Parameter):
            grad = property(lambda self: twos)
        p = Own(torch.zeros(2))
        opt = optc.torch.SGD([p], lr=1.0)
        for _ in range(3):
            opt.step()
        self.assertEqual(p.tolist(), [-6, -6])
        self.assertIsNone(opt._bounds[0].seen)

    def test_other_class(self):
        """Gradients of another class are compared in Python, without a new comparison by the
        library at every step."""
        p = torch.zeros(2, requires_grad=True)
        p.grad = torch.ones(2).as_subclass(Sub)
        opt = optc.torch.SGD([p], lr=1.0)
        for _ in range(8):
            opt.step()
        self.assertEqual(p.tolist(), [-8, -8])
        if not _address_check.CALLS:
            self.assertIsNone(opt._bounds[0].seen)

    def test_tried_again(self):
        """After some steps the library compares again. As long as that fails, the steps in between
        double."""
        p = torch.zeros(2, requires_grad=True)
        p.grad = torch.ones(2)
        opt, tried = optc.torch.SGD([p], lr=1.0), []
        with unittest.mock.patch.object(_address_check.AddressCheck, "compare",
                                        lambda self: DIFFER):
            for t in range(1, 120):
                opt.step()
                tried += [t] if opt._bounds[0].seen is not None else []
        want = [1, 2, 3, 4, 4 + 32, 4 + 32 + 64] if _address_check.CALLS else []
        self.assertEqual(tried, want)
        for t in range(120, 240):
            opt.step()
        self.compared(opt._bounds[0])
        self.assertEqual(opt._bounds[0].differed, 0)
        self.assertEqual(p.tolist(), [-239, -239])

    def test_groups(self):
        """A parameter of a group is replaced by another one."""
        ps = [torch.zeros(2, requires_grad=True) for _ in range(3)]
        for p in ps:
            p.grad = torch.ones(2)
        opt = optc.torch.SGD(ps[:2], lr=1.0)
        for _ in range(3):
            opt.step()
        opt.param_groups[0]["params"][1] = ps[2]
        opt.step()
        self.assertEqual([p.tolist() for p in ps], [[-4, -4], [-3, -3], [-1, -1]])

    def test_sharded(self):
        from torch.testing._internal.distributed.fake_pg import FakeStore
        dist.init_process_group("fake", rank=0, world_size=1, store=FakeStore())
        self.addCleanup(dist.destroy_process_group)
        mesh = init_device_mesh("cpu", (1,))

        def make():
            p = DTensor.from_local(torch.ones(4, 4), mesh, [Shard(0)]).requires_grad_()
            p.grad = DTensor(torch.ones(4, 4), p._spec, requires_grad=False)
            return p
        self.each(CHANGES_OF_PIECES, make)
        opt, ps, b = self.stepped(make, 4)
        # memory before, which FSDP2's lazy_init may free, is not stepped
        CHANGES_OF_PIECES["a moved parameter"](ps[0])
        CHANGES_OF_PIECES["a local part with other memory"](ps[1])
        CHANGES_OF_PIECES["a new gradient"](ps[2])
        opt.step()
        self.assertEqual([p._local_tensor.sum().item() for p in ps], [-16] * 4)
        CHANGES_OF_PIECES["another placement of the gradient"](ps[1])
        with self.assertRaisesRegex(RuntimeError, "redistribute"):
            opt.step()
        # the parameter has that placement too: it is bound again
        other_spec(ps[1])
        opt.step()
        self.assertIsNot(opt._bounds[0], b)
        self.assertEqual([p._local_tensor.sum().item() for p in ps], [-24] * 4)


class AddressChecksInPython(AddressChecks):
    """The same as with torch before 2.10, or if torch's libraries lack a function."""
    way = "Python"


@unittest.skipUnless(os.environ.get("OPTC_ALL"), "OPTC_ALL=1: 0.8 CPU seconds")
class AddressesInPython(OneWay, test_tensor_binding.Addresses):
    """test_tensor_binding has these tests with torch's functions."""
    way = "Python"


class Wrapper(torch.Tensor):
    """A tensor without memory of its own."""
    @staticmethod
    def __new__(cls, x):
        return torch.Tensor._make_wrapper_subclass(cls, x.shape, dtype=x.dtype, device=x.device)

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        raise NotImplementedError("Wrapper")


def new_grad(of):
    def change(p):
        g, p.grad = p.grad, None
        p.grad = of(g)
    return change


def to_meta(p):
    q = torch.ones(4, 4, device="meta", requires_grad=True)
    q.grad = torch.ones(4, 4, device="meta")
    torch.utils.swap_tensors(p, q)


def to_module(p):
    """Module.to with torch.utils.swap_tensors."""
    torch.__future__.set_swap_module_params_on_conversion(True)
    try:
        module = torch.nn.Module()
        module.p = torch.nn.Parameter(p.detach())
        torch.utils.swap_tensors(module.p, p)
        module.to(torch.float64).to(torch.float32)
        torch.utils.swap_tensors(module.p, p)
    finally:
        torch.__future__.set_swap_module_params_on_conversion(False)
    p.grad = torch.full_like(p, 2.0)


UNUSUAL = {
    "a sparse gradient": new_grad(torch.Tensor.to_sparse),
    "a gradient without memory": new_grad(Wrapper), "a gradient of zeros without memory":
        new_grad(lambda g: torch._efficientzerotensor(g.shape)), "a negated gradient": new_grad(
            torch._neg_view), "an expanded gradient": grad_data(lambda g: g[:1, :1].expand(4, 4)),
    "a gradient whose elements overlap": grad_data(lambda g: g.as_strided((4, 4), (1, 1))),
    "a gradient with gaps": grad_data(lambda g: torch.ones(4, 8)[:, :4]),
    "a freed gradient": lambda p: p.grad.untyped_storage().resize_(0),
    "a new gradient that is freed": lambda p:
                                    (setattr(p, "grad",
                                             torch.ones(8, 4)[4:]), p.grad.untyped_storage().
                                     resize_(64)), "a parameter of another device": to_meta,
    "a swapped parameter and a new gradient": lambda p:
                                              (swap(p), setattr(p, "grad",
                                                                p.grad.clone() * 3)),
    "a module that was converted": to_module,
}


class Lifetimes(Case):
    """Tensors are freed, replaced and copied between steps."""
    def setUp(self):
        super().setUp()
        self.ps = [torch.zeros(4, requires_grad=True) for _ in range(3)]
        for p in self.ps:
            p.grad = torch.ones(4)
        self.opt = optc.torch.SGD(self.ps, lr=1.0)
        for _ in range(3):
            self.opt.step()

    def test_swapped_and_freed(self):
        """The tensor that a parameter was before a swap is freed, and its memory is used again."""
        for k in range(20):
            for p in self.ps[:2]:
                q = p.detach().requires_grad_()
                q.grad = torch.full((4,), 2.0)
                torch.utils.swap_tensors(p, q)
                del q
            other = [torch.full((4,), 99.0, requires_grad=True) for _ in range(8)]
            for p in other:
                p.grad = torch.full((4,), 99.0)
            self.opt.step()
            del other
        self.assertEqual([p.tolist() for p in self.ps], [[-43] * 4, [-43] * 4, [-23] * 4])

    def test_other_owners(self):
        """A swap is not refused: the binding holds no reference to the tensor in C++."""
        self.assertEqual([p._use_count() for p in self.ps], [1] * 3)

    def test_copies(self):
        """Copies of the optimizer step their own parameters, and the original keeps its
        comparison."""
        ps, opt = copy.deepcopy((self.ps, self.opt))
        for p in ps:
            p.grad = torch.full((4,), 5.0)
        opt.step()
        self.opt.step()
        loaded = pickle.loads(pickle.dumps(self.opt))
        for p in loaded.param_groups[0]["params"]:
            p.grad = torch.full((4,), 7.0)
        loaded.step()
        self.assertEqual(ps[0].tolist(), [-8] * 4)
        self.assertEqual(loaded.param_groups[0]["params"][0].tolist(), [-11] * 4)
        self.assertEqual(self.ps[0].tolist(), [-4] * 4)

    def test_backward_threads(self):
        """Gradients that autograd made on its own threads, and that have no Python object, are
        found."""
        for k in range(4):
            self.opt.zero_grad()
            sum((k + 1) * p.sum() for p in self.ps).backward()
            self.opt.step()
        self.assertEqual([p.tolist() for p in self.ps], [[-13] * 4] * 3)

    def test_versions(self):
        """Versions are counted as torch counts them; tensors of inference mode have none."""
        with torch.inference_mode():
            inference, other = torch.zeros(4), torch.zeros(4)
        # no inference tensor any more, but it has no counter either
        other.data = torch.zeros(4)
        self.assertFalse(other.is_inference())
        params = [*self.ps, torch.zeros(0), torch.ones(3, 3).t(), inference]
        before = [x._version for x in params[:-1]]
        for way, count in (("torch", 1), ("Python", 2)):
            with path(way):
                _address_check.increment_versions(params)
            self.assertEqual([x._version for x in params[:-1]], [n + count for n in before])
        if _address_check.CALLS:
            # torch's own function raises an error
            _address_check.increment_versions([other])
        saved = self.ps[0] * self.ps[1]
        self.opt.step()
        with self.assertRaisesRegex(RuntimeError, "modified by an inplace operation"):
            saved.sum().backward()


class Imports(Case):
    def test_inference_mode(self):
        """torch's functions are found wherever the module is imported first, and not without one of
        them."""
        names = _address_check._AOTI
        for mode in (torch.inference_mode, torch.no_grad):
            with mode():
                calls = _address_check._calls()
                self.assertEqual(calls is None, _address_check.CALLS is None)
                self.assertTrue(calls is None or _address_check._counts_versions(calls))
        with unittest.mock.patch.object(_address_check, "_AOTI",
                                        [*names[:-1], "aoti_torch_no_such_function"]):
            self.assertIsNone(_address_check._calls())

    def test_other_torch(self):
        """An older torch, and one that refuses to swap tensors, is read in Python."""
        with unittest.mock.patch.object(torch, "__version__",
                                        torch.torch_version.TorchVersion("2.9.1+cpu")):
            self.assertIsNone(_address_check._calls())
        with unittest.mock.patch.object(torch._C, "_swap_tensor_impl",
                                        side_effect=RuntimeError("no"), create=True):
            self.assertIsNone(_address_check._calls())


class SameDecisions(Case):
    """torch's functions and Python find the same changes."""
    def outcome(self, change, way):
        """The parameters after two steps with a change, or the error."""
        ps = [torch.ones(4, 4).requires_grad_() for _ in range(3)]
        for p in ps:
            p.grad = torch.arange(32.0).view(8, 4)[:4]
        opt = optc.torch.SGD(ps, lr=0.5, momentum=0.5)
        for _ in range(3):
            opt.step()
        if way == "torch" and _address_check.CALLS:
            self.assertEqual(opt._bounds[0].seen.compare(), STAY)
        try:
            change(ps[1])
        except RuntimeError as e:
            return "torch: %s" % e                     # this torch refuses the change
        try:
            opt.step()
            opt.step()
        except (RuntimeError, ValueError, TypeError, NotImplementedError) as e:
            return type(e), str(e).split("\n")[0]
        return [[p.tolist(), p._version] for p in ps]

    def test_changes(self):
        for name, change in {**CHANGES, **UNUSUAL}.items():
            found = {}
            for way in ("torch", "Python"):
                with path(way):
                    found[way] = self.outcome(change, way)
            with self.subTest(name):
                self.assertEqual(found["torch"], found["Python"])


if __name__ == "__main__":
    unittest.main()
