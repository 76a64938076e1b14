"""The use of an optimizer in a training loop."""
import copy
import gc
import importlib
import pickle
import sys
import warnings
from unittest import mock

import numpy
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.optim import lr_scheduler as lrs

import optc
import optc.torch
from case import X, Y, Case, grads, lists, model, train, without_optc


class Loop(Case):
    def test_schedulers(self):
        made = [
            lambda o: lrs.OneCycleLR(o, 0.1, total_steps=20),
            lambda o: lrs.CosineAnnealingLR(o, 10), lambda o: lrs.LambdaLR(o, lambda t: 0.9 ** t),
            lambda o: lrs.StepLR(o, 3), lambda o: lrs.CyclicLR(o, 0.01, 0.1, step_size_up=3),
            lambda o: lrs.ExponentialLR(o, 0.8),
            lambda o: lrs.SequentialLR(o, [lrs.LinearLR(o), lrs.PolynomialLR(o, 9)], [4]),
            lambda o: lrs.CosineAnnealingWarmRestarts(o, 4), lambda o: lrs.MultiStepLR(o, [2, 5])
        ]
        for make in made:
            a, b = model(), model()
            oa, ob = torch.optim.AdamW(a.parameters(),
                                       lr=0.02), optc.torch.AdamW(b.parameters(), lr=0.02)
            self.close(train(a, oa, 12, make(oa)), train(b, ob, 12, make(ob)))
        opt = optc.torch.SGD(model().parameters(), lr=1.0)
        s = lrs.ReduceLROnPlateau(opt, patience=0)
        s.step(1.0), s.step(2.0)
        self.assertAlmostEqual(opt.param_groups[0]["lr"], 0.1)

    def test_every_key_is_live(self):
        a, b = lists(), lists()
        oa, ob = torch.optim.AdamW(a), optc.torch.AdamW(b)
        for t in range(6):
            for o in (oa, ob):
                o.param_groups[0].update(lr=0.1 / (t + 1), betas=(0.5 + t / 20, 0.9),
                                         eps=10.0 ** -t, weight_decay=t / 9)
            grads(a, t), grads(b, t)
            oa.step(), ob.step()
        for p, q in zip(a, b):
            torch.testing.assert_close(p, q, rtol=1e-5, atol=1e-6)
        # an option of the spec: another rule, states kept
        ob.param_groups[0]["amsgrad"] = True
        oa.param_groups[0]["amsgrad"] = True
        for s in oa.state.values():
            s["max_exp_avg_sq"] = torch.zeros_like(s["exp_avg_sq"])
        grads(a, 9), grads(b, 9)
        oa.step(), ob.step()
        for p, q in zip(a, b):
            torch.testing.assert_close(p, q, rtol=1e-5, atol=1e-6)
        ob.param_groups[0]["lr"] = -1.0
        with self.assertRaises(optc.RangeError):
            ob.step()

    def test_keys_that_change_in_place(self):
        """A list or an array in a group acts at the next step after it was written to."""
        a, b = lists(), lists()
        oa, ob = torch.optim.AdamW(a), optc.torch.AdamW(b)
        for o in (oa, ob):
            o.param_groups[0].update(lr=numpy.array(0.1), betas=[0.5, 0.9])
        for t in range(4):
            for o in (oa, ob):
                if t == 2:
                    o.param_groups[0]["lr"][...] = 0.01
                if t == 3:
                    o.param_groups[0]["betas"][0] = 0.1
            grads(a, t), grads(b, t)
            oa.step(), ob.step()
            for p, q in zip(a, b):
                torch.testing.assert_close(p, q, rtol=1e-5, atol=1e-6)

    def test_groups(self):
        a, b = model(), model()
        make = [
            lambda m: [{"params": list(m[0].parameters()), "lr": 0.1},
                       {"params": list(m[2].parameters())}]
        ] * 2
        oa, ob = torch.optim.SGD(make[0](a), lr=0.01,
                                 momentum=0.9), optc.torch.SGD(make[1](b), lr=0.01, momentum=0.9)
        self.close(train(a, oa, 3), train(b, ob, 3))
        extra = [torch.ones(3, requires_grad=True), torch.ones(3, requires_grad=True)]
        for o, p in zip((oa, ob), extra):
            p.grad = torch.ones(3)
            o.add_param_group({"params": p, "lr": 0.5, "momentum": 0})
        self.close(train(a, oa, 3, zero=False), train(b, ob, 3, zero=False))
        torch.testing.assert_close(*extra)
        with self.assertRaisesRegex(ValueError, "Invalid learning rate"):
            ob.add_param_group({"params": [torch.ones(1, requires_grad=True)], "lr": -1.0})

    def test_states_stay(self):
        """Groups that come one by one, and a parameter that leaves: the states of the others are
        where they were, with what was in them, and nowhere twice."""
        for spec in ("adamw", "adafactor", "adamw+clip(1)"):
            a, b = lists(), lists()
            extra = [torch.full((4, 6), 0.5, requires_grad=True) for _ in range(4)]
            oa, ob = optc.torch.Optimizer(a, spec), optc.torch.Optimizer(b, spec)
            lay = None
            for t in range(4):
                grads(a, t), grads(b, t)               # the others are there, and take no part
                oa.step(), ob.step()
                at = [v.data_ptr() for p in b for k, v in ob.state[p].items() if k != "step"]
                self.assertEqual(at, lay or at, spec)
                self.assertEqual(ob.state[b[0]]["step"].item(), t + 1)
                lay = at
                ob.add_param_group({"params": [extra[t]]})
            for p, q in zip(a, b):
                self.assertTrue(torch.equal(p, q), spec)
                for key, value in oa.state[p].items():
                    self.assertTrue(torch.equal(value, ob.state[q][key]), (spec, key))
            # what lies in several places is copied, and goes on
            c, oc = copy.deepcopy((b, ob))
            grads(b, 9), grads(c, 9)
            ob.step(), oc.step()
            for p, q in zip(b, c):
                self.assertTrue(torch.equal(p, q), spec)

    def test_frozen_and_late(self):
        """Each counts its own steps, as torch has it."""
        a, b = model(), model()
        oa, ob = torch.optim.Adam(a.parameters(), lr=0.05), optc.torch.Adam(b.parameters(), lr=0.05)
        for m in (a, b):
            m[0].requires_grad_(False)
        self.close(train(a, oa, 3), train(b, ob, 3))
        self.assertEqual(len(ob.state), 2)
        for m in (a, b):
            m[0].requires_grad_(True)
            m[2].bias.requires_grad_(False)
        self.close(train(a, oa, 3), train(b, ob, 3))
        for m in (a, b):
            m[2].bias.requires_grad_(True)
        self.close(train(a, oa, 3), train(b, ob, 3))
        for p, q in zip(a.parameters(), b.parameters()):
            self.assertEqual(oa.state[p]["step"], ob.state[q]["step"])

    def test_no_gradients(self):
        p = lists()
        opt = optc.torch.AdamW(p)
        opt.step()
        self.assertEqual(len(opt.state), 0)
        p[1].grad = torch.ones(5)
        opt.step()
        self.assertEqual([q in opt.state for q in p], [False, True])
        before = p[0].detach().clone()
        grads(p), opt.step()
        self.assertEqual([opt.state[q]["step"].item() for q in p], [1, 2])
        self.assertFalse(torch.equal(before, p[0]))

    def test_moved(self):
        """Parameters and gradients that lie elsewhere than a step before."""
        a, b = model(), model()
        oa, ob = torch.optim.AdamW(a.parameters(),
                                   lr=0.02), optc.torch.AdamW(b.parameters(), lr=0.02)
        for _ in range(3):
            self.close(train(a, oa, 2, zero=False), train(b, ob, 2, zero=False))
            for m in (a, b):
                for p in m.parameters():
                    p.data = p.data.clone()
                    p.grad.data = p.grad.data.clone()
        bound, p = ob._bounds[0], b[0].weight
        # each where nothing was, and a swap
        p.data, p.grad = p.grad.clone().copy_(p.data), torch.zeros_like(p)
        q, r = (torch.zeros(8) for _ in range(2))
        swapped = optc.torch.SGD([torch.nn.Parameter(q), torch.nn.Parameter(r)], lr=1.0)
        pair = swapped.param_groups[0]["params"]
        grads(pair), swapped.step()
        pair[0].data, pair[1].data, pair[0].grad.data = pair[1].data, pair[0].data, pair[
            1].grad.data
        swapped.step()
        self.assertTrue(all(x.data_ptr() in (q.data_ptr(), r.data_ptr()) for x in pair))
        ob.step()
        self.assertIs(ob._bounds[0], bound)            # the same binding all along
        before = ob.state[b[0].weight]["exp_avg"].clone()
        b.double()                                     # torch's own then fails
        grads(b.parameters())
        ob.param_groups[0]["betas"] = (1 - 1e-9, 0.999)
        ob.step()
        torch.testing.assert_close(ob.state[b[0].weight]["exp_avg"], before.double(), rtol=1e-5,
                                   atol=1e-6)

    def test_exchanged(self):
        p = lists()
        opt = optc.torch.SGD(p, lr=1.0)
        grads(p), opt.step()
        new = torch.zeros(4, 3, requires_grad=True)
        new.grad = torch.ones(4, 3)
        opt.param_groups[0]["params"][0] = new
        opt.step()
        self.assertEqual(new.sum().item(), -12)

    def test_dlpack(self):
        class Array:
            def __init__(self, x):
                self.x = x

            def __dlpack__(self):
                return self.x.__dlpack__()
        p, g = torch.ones(5), torch.ones(5)
        b = optc.Engine().compile("sgd").bind(
            [([{"param": Array(p[1:]), "grad": Array(g[1:]), "shape": (4,)}], {"lr": 0.5})])
        b.step()
        self.assertEqual(p.tolist(), [1, 0.5, 0.5, 0.5, 0.5])

    def test_many(self):
        """Steps in which nothing moved compare addresses in one call."""
        shapes = [(3,)] * 1200
        a, b = lists(shapes=shapes), lists(shapes=shapes)
        oa, ob = torch.optim.SGD(a, lr=0.1, foreach=True), optc.torch.SGD(b, lr=0.1)
        grads(a), grads(b)
        for t in range(5):
            if t == 3:
                self.assertEqual(ob._bounds[0].seen is not None,
                                 optc.torch._address_check.CALLS is not None)
                a[700].grad, b[700].grad = torch.ones(3), torch.ones(3)
                a[7].grad = b[7].grad = None
            oa.step(), ob.step()
        for p, q in zip(a, b):
            torch.testing.assert_close(p, q)

    def test_closure_and_hooks(self):
        b, seen = model(), []
        opt = optc.torch.AdamW(b.parameters())
        opt.register_step_pre_hook(lambda o, a, k: seen.append("before"))
        opt.register_step_post_hook(lambda o, a, k: seen.append("after"))

        def closure():
            opt.zero_grad()
            loss = ((b(X) - Y) ** 2).mean()
            loss.backward()
            seen.append("closure")
            return loss
        with torch.no_grad():
            loss = opt.step(closure)
        self.assertEqual(seen, ["before", "closure", "after"])
        self.assertGreater(opt.step(closure=closure).item(), 0)
        self.assertGreater(loss.item(), 0)

    def test_compiled(self):
        """torch.compile goes around a step, called inside of what it compiles too."""
        a, b = model(), model()
        oa, ob = torch.optim.AdamW(a.parameters(),
                                   lr=0.02), optc.torch.AdamW(b.parameters(), lr=0.02)

        @torch.compile(backend="eager")
        def once(m, opt):
            opt.zero_grad()
            loss = ((m(X) - Y) ** 2).mean()
            loss.backward()
            opt.step()
            return loss
        self.close(train(a, oa, 3), [once(b, ob).item() for _ in range(3)])
        self.assertEqual(ob.state[b[0].weight]["step"].item(), 3)
        entries = torch._C._dynamo.eval_frame._debug_get_cache_entry_list
        # nothing of the step is compiled
        self.assertEqual(entries(type(ob._bounds[0])._look.__code__), [])

    def test_strides(self):
        torch.default_generator.manual_seed(0)
        make = [
            torch.randn(4, 3, 5, 5).contiguous(memory_format=torch.channels_last).requires_grad_(),
            torch.randn(6, 4).t().detach().requires_grad_()
        ]
        a, b = [
            p.detach().clone(memory_format=torch.preserve_format).requires_grad_() for p in make
        ], make
        oa, ob = torch.optim.AdamW(a, lr=0.1), optc.torch.AdamW(b, lr=0.1)
        for t in range(4):
            for p, q in zip(a, b):
                torch.default_generator.manual_seed(t)
                g = torch.randn(p.shape)
                p.grad = g
                q.grad = g if t % 2 else torch.empty_like(q).copy_(g)
            oa.step(), ob.step()
        self.assertEqual(ob.copies, 4)
        for p, q in zip(a, b):
            torch.testing.assert_close(p, q)
            self.assertEqual(ob.state[q]["exp_avg"].stride(), q.stride())
            torch.testing.assert_close(oa.state[p]["exp_avg"], ob.state[q]["exp_avg"])
        # rows and columns: by a copy of the parameter
        w = torch.randn(6, 4)
        c, d = w.clone().requires_grad_(), w.t().contiguous().t().detach().requires_grad_()
        oc, od = optc.torch.Adafactor([c]), optc.torch.Adafactor([d])
        for _ in range(3):
            c.grad, d.grad = torch.ones(6, 4), torch.ones(6, 4)
            oc.step(), od.step()
        torch.testing.assert_close(c, d)
        self.assertEqual((oc.copies, od.copies), (0, 6))
        e = torch.zeros(8, requires_grad=True)
        f = e.detach()[::2].requires_grad_()           # with gaps
        f.grad = torch.ones(4)
        optc.torch.SGD([f], lr=1.0).step()
        self.assertEqual(e.tolist(), [-1, 0] * 4)

    def test_types(self):
        for dtype, bound in ((torch.float64, 1e-12), (torch.bfloat16, 0.02)):
            a, b = model(dtype=dtype), model(dtype=dtype)
            oa, ob = torch.optim.AdamW(a.parameters(),
                                       lr=0.01), optc.torch.AdamW(b.parameters(), lr=0.01)
            for t in range(3):
                grads(a.parameters(), t), grads(b.parameters(), t)
                oa.step(), ob.step()
            for p, q in zip(a.parameters(), b.parameters()):
                torch.testing.assert_close(p, q, rtol=bound, atol=bound)
        mixed = [
            torch.ones(3, requires_grad=True),
            torch.ones(3, dtype=torch.bfloat16, requires_grad=True)
        ]
        grads(mixed)
        opt = optc.torch.AdamW(mixed, types={"state": "bf16"})
        opt.step()
        self.assertEqual({s["exp_avg"].dtype for s in opt.state.values()}, {torch.bfloat16})

    def test_spec_warnings(self):
        """Warnings of `optc check` about a spec's text are issued once, when the optimizer is
        made."""
        text = ("return optimizer { name = 'x', hyper = { lr = 1, unused = 2 },\n"
                "  step = function() p = p - lr * g  return 2 * p end }")
        params = [
            torch.nn.Parameter(torch.ones(3, dtype=t)) for t in (torch.float32, torch.float64)
        ]
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            opt = optc.torch.Optimizer(params, spec=text)
            made = len(found)
            for p in params:
                p.grad = torch.ones_like(p)
            opt.step()
            optc.torch.matrix_power(torch.eye(3), -0.5)
            optc.torch.Optimizer(params, "adafactor")
        found = [w for w in found if "runs on the" not in str(w.message)]
        self.assertEqual((made, len(found)), (2, 2), [str(w.message) for w in found])
        self.assertRegex(str(found[0].message), "spec:2: the entry returns this value")
        self.assertEqual(str(found[1].message),
                         "optc: x: nothing reads the hyperparameter 'unused'")
        self.assertEqual(found[0].filename, __file__)

    def test_stochastic_rounding(self):
        """The seed is a key of groups and of checkpoints, and states are plain tensors of bf16. A
        resumed run is the run."""
        def run(steps, seed=0, load=None):
            p = torch.linspace(-1, 1, 999, dtype=torch.bfloat16).requires_grad_()
            opt = optc.torch.AdamW([p], types={"state": "bf16sr"}, seed=seed)
            if load:
                p.data.copy_(load[0]), opt.load_state_dict(load[1])
            for t in steps:
                grads([p], t), opt.step()
            return p.detach(), opt.state_dict()

        p, whole = run(range(6), 3)
        state = whole["state"][0]["exp_avg"]
        self.assertEqual((whole["param_groups"][0]["seed"], state.dtype), (3, torch.bfloat16))
        self.assertTrue(
            torch.equal(run(range(3, 6), load=run(range(3), 3))[1]["state"][0]["exp_avg"], state))
        self.assertFalse(torch.equal(run(range(6), 4)[1]["state"][0]["exp_avg"], state))

    def test_fp8(self):
        for dtype in (torch.float8_e4m3fn, torch.float8_e5m2):
            p = torch.linspace(-2, 2, 64).to(dtype).requires_grad_()
            was, p.grad = p.detach().float(), torch.full((64,), 0.25).to(dtype)
            optc.torch.SGD([p], lr=1.0).step()
            self.assertTrue(torch.equal(p.detach().float(), (was - 0.25).to(dtype).float()))
        q = torch.ones(64, requires_grad=True)
        grads([q])
        opt = optc.torch.AdamW([q], types={"state": "e4m3"})
        opt.step()
        self.assertEqual(opt.state[q]["exp_avg"].dtype, torch.float8_e4m3fn)

    def test_imported_among_fakes(self):
        """No tensor of the package's modules is fake after an import inside of a FakeTensorMode, as
        torch.export's."""
        with without_optc():
            with FakeTensorMode():
                again = importlib.import_module("optc.torch")
                again.AdamW, again.GradScaler
            p = torch.nn.Parameter(torch.ones(3))
            p.grad = torch.ones(3)
            opt = again.AdamW([p])
            opt.step(), opt.step()
            modules = {n: m for n, m in sys.modules.items() if n.split(".")[0] == "optc"}
        self.assertIsNot(again, optc.torch)
        self.assertEqual(opt.state[p]["step"].item(), 2)
        self.assertEqual([(n, k) for n, m in modules.items() for k, x in vars(m).items()
                          if type(x).__name__ == "FakeTensor"], [])

    def test_refused(self):
        with self.assertRaisesRegex(ValueError, "sparse"):
            optc.torch.AdamW([torch.eye(2).to_sparse().requires_grad_()])
        negated = torch.nn.Parameter(torch._neg_view(torch.ones(2)))
        with self.assertRaisesRegex(ValueError, r"negated views .*: w; pass resolve_neg\(\)"):
            optc.torch.AdamW([("w", negated)])
        with FakeTensorMode():
            fake = torch.nn.Parameter(torch.ones(2))
            fake.grad = torch.ones(2)
        with self.assertRaisesRegex(RuntimeError,
                                    r"fake has no memory \(its class is FakeTensor\)"):
            optc.torch.AdamW([("fake", fake)]).step()
        e = torch.nn.Embedding(5, 2, sparse=True)
        e(torch.tensor([1])).sum().backward()
        with self.assertRaisesRegex(RuntimeError, "sparse gradients.*weight"):
            optc.torch.AdamW(list(e.named_parameters())).step()

        with self.assertRaisesRegex(optc.RangeError, "lion: lr is -1, and must be at least 0"):
            optc.torch.Lion(lists(), lr=-1)
        with self.assertRaisesRegex(optc.RangeError, "clip.max_norm"):
            optc.torch.Optimizer(lists(), "adamw+clip(1)", clip_max_norm=-1)
        with self.assertRaisesRegex(ValueError, "perturb"):
            optc.torch.Optimizer(lists(), "adamw+sam", maximize=True)
        with self.assertRaisesRegex(ValueError, "have their own types"):
            optc.torch.AdamW(lists(), types={"param": "bf16"})
        opt = optc.torch.Lion(lists())
        for wrong in ({"params": lists(), "lr": -1.0},
                      {"params": [torch.ones(2, dtype=torch.cfloat).conj().requires_grad_()]}):
            with self.assertRaises(ValueError):
                opt.add_param_group(wrong)
        self.assertEqual(len(opt.param_groups), 1)

        class Odd(torch.Tensor):
            pass
        with self.assertRaisesRegex(TypeError, "Odd"):
            optc.torch.AdamW([torch.ones(2).as_subclass(Odd).requires_grad_()])

    def test_spec(self):
        text = """return optimizer {
  name = "mine", hyper = { lr = { 0.1, min = 0 } }, options = { twice = false },
  step = function()
    local k = 1
    if twice then k = 2 end
    p = p - k * lr * g
  end }"""
        p = torch.zeros(3, requires_grad=True)
        p.grad = torch.ones(3)
        opt = optc.torch.Optimizer([p], "mine", spec=text, twice=True)
        opt.step()
        torch.testing.assert_close(p.detach(), torch.full((3,), -0.2))
        with self.assertRaisesRegex(optc.SpecError,
                                    "(?s)mine:6: 'lrr' is not declared.*did you mean 'lr'"):
            optc.torch.Optimizer([p], "mine", spec=text.replace("lr * g", "lrr * g"))
        with self.assertRaisesRegex(optc.SpecError, "there is no optimizer 'nope'"):
            optc.torch.Optimizer([p], "nope")
        up = torch.zeros(3, requires_grad=True)
        up.grad = torch.ones(3)
        optc.torch.Optimizer([up], "mine", spec=text, maximize=True).step()
        torch.testing.assert_close(up.detach(), torch.full((3,), 0.1))

    def test_gradients_beyond_the_range_of_their_squares(self):
        for name in ("AdamW", "Adam", "NAdam", "RAdam", "RMSprop", "Adagrad", "Adamax", "Adadelta"):
            for far in (3e19, 1e20, 1e30):
                a, b = (torch.nn.Parameter(torch.tensor([1.0, 2.0, 3.0])) for _ in range(2))
                oa, ob = getattr(torch.optim, name)([a], foreach=True), getattr(optc.torch,
                                                                                name)([b])
                for k in range(5):
                    for p, o in ((a, oa), (b, ob)):
                        p.grad = torch.tensor([0.5, far if k in (0, 3) else 0.5, -0.1])
                        o.step()
                with self.subTest(name=name, far=far):
                    torch.testing.assert_close(b, a, rtol=1e-5, atol=0)
                    for key in ("exp_avg_sq", "square_avg", "sum", "exp_inf"):
                        if key in oa.state[a]:
                            torch.testing.assert_close(ob.state[b][key], oa.state[a][key],
                                                       rtol=1e-5, atol=0)

    def test_out_of_range(self):
        for name, size, expected in (("adafactor", 1.0, (0, 0)), ("adafactor", 1e25, (1, 1)),
                                     ("novograd", 1e25, (0, 0)),
                                     ("psgd", 1.0, (0, None)), ("psgd", 1e25, (1, None))):
            params = [torch.nn.Parameter(torch.ones(*shape)) for shape in ((4, 6), (5,))]
            opt = optc.torch.Optimizer(params, name)
            for p in params:
                p.grad = torch.full_like(p, size)
            opt.step()
            with self.subTest(name=name, size=size):
                for p, n in zip(params, expected):
                    if n is not None:
                        self.assertEqual(opt.value("out_of_range", p), n)
                self.assertEqual(opt.value("out_of_range"), sum(n or 0 for n in expected))

    def test_count_of_steps_is_read_for_periods_only(self):
        """Reading it waits for a GPU, and fails in a capture: only lists with `every` need it."""
        for wrapper, reads in ("sam", 0), ("looksam(0.05,2)", 3), ("looksam(0.05,1)", 0):
            p = torch.ones(2, requires_grad=True)
            opt = optc.torch.Optimizer([p], "sgd+" + wrapper, lr=0.05)

            def closure():
                opt.zero_grad()
                loss = (p ** 2).sum()
                loss.backward()
                return loss

            with mock.patch.object(optc.Binding, "get_t", autospec=True,
                                   side_effect=optc.Binding.get_t) as read:
                for _ in range(3):
                    opt.step(closure)
            self.assertEqual(read.call_count, reads, wrapper)

    def test_first_gradient_not_finite(self):
        """If the first gradient of a step is not finite, the step is the rule's own, and so are
        later ones."""
        for wrapper in "sam", "friendlysam", "gsam", "wsam", "looksam(0.05,2)":
            b, calls = model(), []
            opt = optc.torch.Optimizer(b.parameters(), "sgd+" + wrapper, lr=0.05)

            def closure():
                calls.append(0)
                opt.zero_grad()
                loss = ((b(X) - Y) ** 2).mean()
                loss.backward()
                if len(calls) == 1:
                    next(b.parameters()).grad.fill_(float("nan"))
                return loss
            a = model()
            ((a(X) - Y) ** 2).mean().backward()
            torch.optim.SGD(a.parameters(), lr=0.05).step()
            opt.step(closure)
            for p, q in zip(a.parameters(), b.parameters()):
                torch.testing.assert_close(p, q, msg=wrapper)
            for _ in range(3):
                opt.step(closure)
            self.assertTrue(all(p.isfinite().all() for p in b.parameters()), wrapper)

    def test_gradients_fail(self):
        """A closure that fails after `perturb` leaves the parameters where they were."""
        for wrapper in "sam", "friendlysam", "gsam", "wsam", "looksam":
            b, calls = model(), []
            opt = optc.torch.Optimizer(b.parameters(), "sgd+" + wrapper, lr=0.05)

            def closure():
                calls.append(0)
                if len(calls) == 2:
                    raise KeyError
                opt.zero_grad()
                loss = ((b(X) - Y) ** 2).mean()
                loss.backward()
                return loss
            before = [p.detach().clone() for p in b.parameters()]
            with self.assertRaises(KeyError):
                opt.step(closure)
            for p, q in zip(b.parameters(), before):
                self.assertTrue(torch.equal(p, q), wrapper)

    def test_one_gradient_under_sam(self):
        """A loop without closures that does not know of perturb: one warning, at the first step
        that needs it."""
        def closure(o, ps):
            def run():
                o.zero_grad()
                loss = sum((p * p).sum() for p in ps)
                loss.backward()
                return loss
            return run
        for rule, by_hand, by_closure, warned in (("adamw+sam", False, False,
                                                   1), ("adamw+sam", True, False,
                                                        0), ("adamw+sam", False, True, 0),
                                                  ("adamw", False, False, 0), ("adamw+looksam",
                                                                               False, False, 1)):
            ps = lists()
            opt = optc.torch.Optimizer(ps, rule, lr=0.01)
            with warnings.catch_warnings(record=True) as found:
                warnings.simplefilter("always")
                for t in range(7):
                    grads(ps, t)
                    if by_hand:
                        opt.perturb()
                        grads(ps, t + 20)
                    opt.step(closure(opt, ps)) if by_closure else opt.step()
            found = [w for w in found if "takes 2 gradients in a step" in str(w.message)]
            self.assertEqual(len(found), warned, rule)
            self.assertEqual([w.filename for w in found], [__file__] * warned)

    def test_no_warning_of_one_gradient(self):
        """A step without gradients, the first step of a distributed checkpoint, which runs nothing,
        and a copy made between perturb() and step() get no warning."""
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for rule in ("adamw+sam", "adamw+looksam"):
                ps = lists()
                opt = optc.torch.Optimizer(ps, rule, lr=0.01)
                opt.step()
                opt = optc.torch.Optimizer(ps, rule, lr=0.0)
                for p in ps:
                    p.grad = torch.zeros_like(p)
                opt.step()
                self.assertEqual([opt.state[p]["step"].item() for p in ps], [0, 0])
                opt = optc.torch.Optimizer(ps, rule, lr=0.01)
                grads(ps)
                opt.perturb()
                ps, opt = copy.deepcopy((ps, opt))
                grads(ps, 1), opt.step()
        with self.assertWarns(UserWarning):            # after a step without gradients
            opt = optc.torch.Optimizer(ps, "adamw+sam", lr=0.01)
            opt.zero_grad(), opt.step()
            grads(ps), opt.step()

    def test_static_grads(self):
        a, b = lists(), lists()
        oa, ob = torch.optim.AdamW(a), optc.torch.AdamW(b, static_grads=True)
        grads(a), grads(b)
        for t in range(3):
            for p, q in zip(a, b):
                p.grad.fill_(t), q.grad.fill_(t)
            oa.step(), ob.step()
        for p, q in zip(a, b):
            torch.testing.assert_close(p, q)

    def test_release_grads(self):
        a, b = model(), model()
        oa = torch.optim.AdamW(a.parameters(), lr=0.02)
        ob = optc.torch.AdamW(b.parameters(), lr=0.02, release_grads=True)
        s = lrs.StepLR(ob, 2, 0.5), lrs.StepLR(oa, 2, 0.5)
        self.close(train(a, oa, 6, s[1]), train(b, ob, 6, s[0]))
        self.assertTrue(all(p.grad is None for p in b.parameters()))
        c, oc = pickle.loads(pickle.dumps((b, ob)))
        self.close(train(b, ob, 3), train(c, oc, 3), 0)
        with self.assertRaisesRegex(ValueError, "all tensors together"):
            optc.torch.Optimizer(model().parameters(), "adamw+clip(1)", release_grads=True)

    def test_release_grads_of_late_parameters(self):
        """A parameter that was frozen, or that was appended to a group, has no hook: step() steps
        it the first time."""
        a, b = model(), model()
        oa, ob = (cls([m[0].weight, m[0].bias, m[2].weight], lr=0.02, **given)
                  for cls, m, given in ((torch.optim.AdamW, a, {}), (optc.torch.AdamW, b,
                                                                     {"release_grads": True})))
        for m, o in ((a, oa), (b, ob)):
            m[0].weight.requires_grad_(False)
            o.losses = train(m, o, 2)
        for m, o in ((a, oa), (b, ob)):
            m[0].weight.requires_grad_(True)
            o.param_groups[0]["params"].append(m[2].bias)
            m[2].bias.grad = None
            o.losses += train(m, o, 1)
            self.assertEqual([p.grad is None for p in m.parameters()], [m is b] * 4)
            o.losses += train(m, o, 3)
        self.close(oa.losses, ob.losses)

    def test_memory(self):
        """Nothing is left of an optimizer that nobody holds."""
        from optc.torch._engines import device_of
        buffers = device_of(torch.device("cpu")).buffers
        gc.collect()
        before, p = len(buffers), lists()
        opt = optc.torch.AdamW(p)
        grads(p), opt.step()
        self.assertGreater(len(buffers), before)
        del opt
        self.assertEqual(len(buffers), before)

    def test_version(self):
        p = torch.ones(2, requires_grad=True)
        opt = optc.torch.SGD([p], lr=0.1)
        loss = (p * p).sum()
        loss.backward(retain_graph=True)
        opt.step()
        with self.assertRaisesRegex(RuntimeError, "inplace"):
            loss.backward()

    def test_odd_shapes(self):
        a = lists(shapes=((0,), (), (1, 1), (3, 0), (2, 2)))
        opt = optc.torch.AdamW(a)
        grads(a), opt.step(), grads(a), opt.step()
        self.assertEqual(len(opt.state), 5)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            optc.torch.Muon(a).step()
        with self.assertRaisesRegex(ValueError, "empty parameter list"):
            optc.torch.AdamW([])
