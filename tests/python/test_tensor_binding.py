"""Checks of parameters and gradients before a step; a failed step changes nothing."""
import unittest
import unittest.mock

import torch

import optc
import optc.torch
from case import X, Y, Case, grads, lists, model


def copies(params):
    return [p.detach().clone() for p in params]


SCALED = """return optimizer { name = "scaled", inputs = { scale = 'group' },
                               step = function() p = p - scale * g end }"""


class Aliases(Case):
    def test_refused(self):
        """Parameters that share elements, whatever their strides, types and rules; torch would step
        both."""
        w = torch.randn(6, 4)
        pairs = [(w, w.t()), (w, w[::2]), (w, w[:, 1:3]), (w, w[2:]), (w[:, :2], w[:, 1:3]),
                 (w.t(), w[0]), (w[:3], w[2:]), (w, w.clone().set_(w)), (w[0], w.t()[:, 0]),
                 (w, w.view(torch.bfloat16)[:, ::3])]
        for rule in ("sgd", "adafactor", "muon"):
            for pair in pairs:
                a, b = (torch.nn.Parameter(x) for x in pair)
                was = w.clone()
                opt = optc.torch.Optimizer([("one", a), ("two", b)], rule)
                grads([a, b])
                with self.assertRaisesRegex(ValueError, "share memory"):
                    opt.step()
                self.assertTrue(torch.equal(w, was))

    def test_apart(self):
        """Pieces of one matrix that share no element are parameters as others are."""
        for cut in (lambda x: (x[:, :2], x[:, 2:]), (lambda x: (x[::2], x[1::2])),
                    (lambda x: (x[:3], x[3:])), (lambda x: (x[:, ::2].t(), x[:, 1::2]))):
            found = []
            for lib in (torch.optim, optc.torch):
                w = torch.arange(24.0).view(6, 4)
                ps = [torch.nn.Parameter(x) for x in cut(w)]
                opt = lib.AdamW(ps, lr=0.1)
                for t in range(2):
                    grads(ps, t), opt.step()
                found.append(w)
            torch.testing.assert_close(*found)

    def test_twice(self):
        """The same parameter twice: torch warns, and one list has it once."""
        p = torch.nn.Parameter(torch.ones(3))
        with self.assertWarnsRegex(UserWarning, "duplicate"):
            opt = optc.torch.SGD([p, p], lr=1.0)
        p.grad = torch.ones(3)
        opt.step()
        self.assertEqual(p.tolist(), [0, 0, 0])
        with self.assertRaisesRegex(ValueError, "more than one parameter group"):
            optc.torch.SGD([{"params": [p]}, {"params": [p]}])
        m = model()
        m.tied = m[0].weight
        self.assertEqual(len(optc.torch.AdamW(m).param_groups[0]["params"]), 4)

    def test_expanded(self):
        for p in (torch.zeros(1).expand(5), torch.zeros(3, 1).expand(3, 4), torch.zeros(6).unfold(
                0, 3, 1)):
            p = torch.nn.Parameter(p)
            p.grad = torch.ones(p.shape)
            opt = optc.torch.AdamW([("wide", p)])
            for _ in range(2):
                with self.assertRaisesRegex(ValueError, "elements of wide share memory"):
                    opt.step()
            self.assertFalse(p.any())
            self.assertEqual(len(opt.state), 0)


class Addresses(Case):
    def many(self, n):
        return [torch.zeros(3, requires_grad=True) for _ in range(n)]

    def test_moves_are_seen_at_once(self):
        """With any number of parameters, whichever one it is, also while all gradients stay the
        same objects."""
        for n in (3, 1200):
            ps = self.many(n)
            opt = optc.torch.SGD(ps, lr=1.0)
            for p in ps:
                p.grad = torch.ones(3)
            for _ in range(4):
                opt.step()
            for k in (n - 1, n // 2):
                old, was = ps[k].data, ps[k].tolist()
                ps[k].data = torch.full((3,), 10.0)
                opt.step()
                self.assertEqual(ps[k].tolist(), [9] * 3)
                self.assertEqual(old.tolist(), was)
                ps[k].grad.data = torch.full((3,), 2.0)
                opt.step()
                self.assertEqual(ps[k].tolist(), [7] * 3)
                ps[k].grad = torch.full((3,), 3.0)
                opt.step()
                self.assertEqual(ps[k].tolist(), [4] * 3)
                opt.step(), opt.step()

    def refused(self, change, says, n=2):
        ps = [torch.zeros(64, 64, requires_grad=True) for _ in range(n)]
        opt = optc.torch.AdamW([("p%d" % i, p) for i, p in enumerate(ps)])
        for p in ps:
            p.grad = torch.ones(64, 64)
        for _ in range(3):
            opt.step()
        was = copies(ps[:1])[0], opt.state[ps[0]]["step"].clone()
        change(ps[1])
        for _ in range(2):
            with self.assertRaisesRegex(RuntimeError, says):
                opt.step()
        self.assertTrue(torch.equal(was[0], ps[0]))
        self.assertEqual(was[1], opt.state[ps[0]]["step"])

    def test_freed(self):
        """Storages that were resized below their tensors."""
        self.refused(lambda p: p.untyped_storage().resize_(0),
                     "storage of p1 has 0 bytes.*4096 elements")
        self.refused(lambda p: p.untyped_storage().resize_(64), "storage of p1 has 64 bytes")
        self.refused(lambda p: p.grad.untyped_storage().resize_(0), "gradient of p1 has 0 bytes")
        self.refused(lambda p: p.grad.untyped_storage().resize_(64), "gradient of p1 has 64 bytes")

    def test_shrunk(self):
        """A gradient with fewer elements, or more, whether its address is another one or not."""
        for n in (2, 1001):
            self.refused(lambda p: p.grad.set_(torch.ones(3)), r"gradient of p1 has shape \(3,\)",
                         n)
            self.refused(lambda p: setattr(p.grad, "data", p.grad.data[:5]),
                         r"gradient of p1 has shape \(5, 64\)", n)
        self.refused(lambda p: p.grad.resize_(1), "gradient of p1")

    def test_before_the_first_step(self):
        p = torch.zeros(64, requires_grad=True)
        p.grad = torch.ones(64)
        opt = optc.torch.AdamW([p])
        p.untyped_storage().resize_(0)
        with self.assertRaisesRegex(RuntimeError, "resized or freed"):
            opt.step()
        p.untyped_storage().resize_(256)
        p.data.zero_()
        opt.step()
        self.assertTrue(p.all())


class Foreign(torch.Tensor):
    """As quantised weights are: a subclass with a __torch_function__ of its own."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return super().__torch_function__(func, types, args, kwargs or {})


class Frozen(Case):
    def test_any_class(self):
        """Frozen weights beside trained adapters, as QLoRA has them."""
        for make in (optc.torch.AdamW, optc.torch.Muon,
                     lambda ps: optc.torch.Optimizer(ps, "adamw+clip(1)")):
            base = torch.arange(6, dtype=torch.uint8).as_subclass(Foreign)
            packed = torch.nn.Parameter(base, requires_grad=False)
            odd = [
                torch.ones(2, dtype=torch.complex64),
                torch.eye(2).to_sparse(),
                torch.ones(2, dtype=torch.int8)
            ]
            lora = torch.nn.Parameter(torch.ones(4, 4))
            opt = make([("base", packed), *(("odd%d" % i, x) for i, x in enumerate(odd)),
                        ("lora", lora)])
            for t in range(2):
                grads([lora], t), opt.step(), opt.zero_grad()
            self.assertEqual(list(opt.state), [lora])
            self.assertEqual(len(opt.state_dict()["param_groups"][0]["params"]), 5)
            opt.load_state_dict(opt.state_dict())
            opt.add_param_group(
                {"params": [torch.ones(2).as_subclass(Foreign)], "param_names": ["late"]}
                if make is not optc.torch.AdamW else {"params": [("late", torch.ones(2))]})

    def test_thawed(self):
        w = torch.ones(2).as_subclass(Foreign)
        p = torch.nn.Parameter(torch.ones(2))
        opt = optc.torch.AdamW([("strange", w), ("plain", p)])
        grads([p]), opt.step()
        w.requires_grad_()
        w.grad = torch.ones(2).as_subclass(Foreign)
        was = p.detach().clone()
        with self.assertRaisesRegex(TypeError, "Foreign.*strange"):
            opt.step()
        self.assertTrue(torch.equal(was, p))
        self.assertEqual(opt.state[p]["step"].item(), 1)


POLYAK = """return optimizer { name = "polyak", inputs = { loss = "group" },
  hyper = { most = { 1, min = 0 } },
  step = function() p = p - min(most, loss / max(1e-12, global.sum(g * g))) * g end }"""


class Closures(Case):
    def test_loss(self):
        """step(closure) hands its loss to an input called loss."""
        for dtype in (torch.float32, torch.float64):
            p = torch.nn.Parameter(torch.tensor([3.0, 4.0], dtype=dtype))
            q = p.detach().clone()
            opt = optc.torch.Optimizer([p], spec=POLYAK)

            def closure(number=False):
                opt.zero_grad()
                loss = (p * p).sum()
                loss.backward()
                return loss.item() if number else loss
            for t in range(4):
                value = opt.step(closure if t % 2 else lambda: closure(True))
                g = 2 * q
                q = q - (q * q).sum() / (g * g).sum() * g
                torch.testing.assert_close(p.detach(), q)
                self.assertGreater(float(value), 0)
            with self.assertRaises(RuntimeError):
                opt.step(lambda: p * 1)
            torch.testing.assert_close(p.detach(), q)
            opt.set_scalar("loss", 0.0)
            opt.step()
            torch.testing.assert_close(p.detach(), q)

    def test_loss_of_sam(self):
        """The step takes the loss where its gradient was taken."""
        p = torch.nn.Parameter(torch.tensor([3.0, 4.0]))
        opt = optc.torch.Optimizer([p], spec=POLYAK, with_=["sam(0.5)"])
        seen = []

        def closure():
            opt.zero_grad()
            loss = (p * p).sum()
            loss.backward()
            seen.append((loss.detach(), p.grad.clone()))
            return loss
        first = opt.step(closure)
        self.assertEqual(first.item(), 25)
        loss, g = seen[1]
        torch.testing.assert_close(p.detach(), torch.tensor([3.0, 4.0]) - loss / (g * g).sum() * g)

    def test_raising(self):
        """Whichever call of the closure, or hook, raises: parameters, states and counts are what
        they were."""
        for rule in ("sgd+sam(0.5)", "adamw+sam(0.5)", "adamw"):
            for fails in (1, 2):
                m = model()
                ps = list(m.parameters())
                opt = optc.torch.Optimizer(ps, rule)
                calls = []

                def closure():
                    calls.append(1)
                    opt.zero_grad()
                    if len(calls) == fails:
                        raise KeyboardInterrupt
                    loss = ((m(X) - Y) ** 2).mean()
                    loss.backward()
                    return loss
                if "sam" not in rule and fails == 2:
                    opt.step(closure)
                was = copies(ps)
                steps = [s["step"].item() for s in opt.state.values()]
                with self.assertRaises(KeyboardInterrupt):
                    opt.step(closure)
                self.assertTrue(all(map(torch.equal, was, ps)), (rule, fails))
                self.assertEqual(steps, [s["step"].item() for s in opt.state.values()])
                # a value that is set now is where the next step begins
                ps[0].data.add_(1)
                n = model()
                other = optc.torch.Optimizer(n.parameters(), rule)
                n.load_state_dict(m.state_dict())
                if "sam" not in rule:
                    other.load_state_dict(opt.state_dict())
                opt.step(closure)

                def again():
                    other.zero_grad()
                    loss = ((n(X) - Y) ** 2).mean()
                    loss.backward()
                    return loss
                other.step(again)
                for p, q in zip(ps, n.parameters()):
                    torch.testing.assert_close(p, q)

    def test_sam_whose_step_is_refused(self):
        m = model()
        opt = optc.torch.Optimizer(m.parameters(), "sgd+sam(0.5)", lr=0.1)
        was, calls = copies(m.parameters()), []

        def closure():
            opt.zero_grad()
            loss = ((m(X) - Y) ** 2).mean()
            loss.backward()
            calls.append(1)
            if len(calls) == 2:
                opt.param_groups[0]["lr"] = -1.0
            return loss
        with self.assertRaises(optc.RangeError):
            opt.step(closure)
        self.assertTrue(all(map(torch.equal, was, m.parameters())))

    def test_group_that_is_refused(self):
        def sort(name, p):
            if name == "bad":
                raise ZeroDivisionError
            return None
        w = [torch.nn.Parameter(torch.ones(2, 2)) for _ in range(2)]
        opt = optc.torch.Muon([("good", w[0])], sort=sort)
        with self.assertRaises(ZeroDivisionError):
            opt.add_param_group({"params": [("bad", w[1])]})
        self.assertEqual(len(opt.param_groups), 1)
        grads(w), opt.step()

    def test_hooks(self):
        def fail(*_):
            raise ZeroDivisionError
        ps = lists()
        opt = optc.torch.AdamW(ps)
        grads(ps), opt.step()
        was = copies(ps)
        handle = opt.register_step_pre_hook(fail)
        with self.assertRaises(ZeroDivisionError):
            opt.step()
        handle.remove()
        self.assertTrue(all(map(torch.equal, was, ps)))
        self.assertEqual(opt.state[ps[0]]["step"].item(), 1)


class Refusals(Case):
    def test_input_is_not_kept(self):
        """What set_scalar or set_input refuse is not tried again by later calls and steps."""
        p = torch.nn.Parameter(torch.ones(3))
        opt = optc.torch.Optimizer([p], spec=SCALED)
        opt.set_scalar("scale", 2.0)
        p.grad = torch.ones(3)
        opt.step()
        with self.assertRaises(Exception):
            opt.set_scalar("scala", 1.0)
        with self.assertRaises(Exception):
            opt.set_input(p, "scala", torch.ones(3))
        opt.set_scalar("scale", 3.0)
        opt.step()
        torch.testing.assert_close(p.detach(), torch.full((3,), 1 - 2 - 3.0))

    def test_input_before_the_first_step(self):
        """A name that is refused when tensors are bound is refused at every step, and nothing
        moves."""
        p = torch.nn.Parameter(torch.ones(3))
        opt = optc.torch.Optimizer([p], spec=SCALED)
        opt.set_scalar("scala", 2.0)
        p.grad = torch.ones(3)
        for _ in range(2):
            with self.assertRaisesRegex(Exception, "scala"):
                opt.step()
        torch.testing.assert_close(p.detach(), torch.ones(3))

    def test_other_scalars_keep_the_loss(self):
        """Setting another scalar leaves the loss where the binding reads it."""
        p = torch.nn.Parameter(torch.ones(3))
        opt = optc.torch.Optimizer([p],
                                   spec=SCALED.replace("scale = 'group'",
                                                       "scale = 'group', loss = 'group'").replace(
                                                           "scale * g", "scale * loss * g"))
        opt.set_scalar("scale", 1.0)

        def closure():
            p.grad = torch.ones(3)
            return torch.tensor(2.0)
        opt.step(closure)
        opt.set_scalar("scale", 3.0)
        junk = [torch.full((), 7.0, dtype=torch.float64) for _ in range(50)]
        opt.step()
        torch.testing.assert_close(p.detach(), torch.full((3,), 1 - 2 - 6.0))
        self.assertEqual(len(junk), 50)

    def test_loss_of_a_failed_step(self):
        """A step that fails leaves no loss to later ones."""
        p = torch.nn.Parameter(torch.tensor([3.0, 4.0]))
        opt = optc.torch.Optimizer([p], spec=POLYAK)

        def closure():
            opt.zero_grad()
            loss = (p * p).sum()
            loss.backward()
            return loss
        opt.step(closure)
        with unittest.mock.patch.object(opt, "run",
                                        side_effect=RuntimeError), self.assertRaises(RuntimeError):
            opt.step(closure)
        self.assertIsNone(opt._loss)

    def test_parameters_that_shrink(self):
        """Pruned where they lie: the step follows, and writes nothing beyond."""
        whole = torch.ones(10)
        p = torch.nn.Parameter(whole)
        opt = optc.torch.SGD([p], lr=1.0)
        p.grad = torch.ones(10)
        opt.step()
        p.data = p.data[:5]
        p.grad = torch.ones(5)
        opt.step()
        torch.testing.assert_close(whole, torch.tensor([-1.0] * 5 + [0.0] * 5))


class Inference(Case):
    def test_inference_mode(self):
        """A first step inside, others outside: as a run outside of it. torch's own fails there."""
        found = []
        for inside in (False, True):
            ps = lists()
            opt = optc.torch.AdamW(ps)
            grads(ps)
            for t in range(4):
                with torch.inference_mode(inside and t < 2):
                    grads(ps, t), opt.step()
            found.append(copies(ps))
            self.assertEqual(opt.state[ps[0]]["step"].item(), 4)
            self.assertFalse(opt.state[ps[0]]["exp_avg"].is_inference())
        self.assertTrue(all(map(torch.equal, *found)))

    def test_parameters_made_inside(self):
        with torch.inference_mode():
            p = torch.nn.Parameter(torch.ones(3))
            p.grad = torch.ones(3)
            opt = optc.torch.SGD([p], lr=1.0)
            opt.step()
        opt.step()
        self.assertEqual(p.tolist(), [-1] * 3)


if __name__ == "__main__":
    unittest.main()
