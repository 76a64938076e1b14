"""What hooks capture of a model, when, and for how long: batches, checkpointing, in-place
operations, copies, memory; and refusals."""
import ast
import copy
import gc
import inspect
import io
import os
import pickle
import threading
import warnings
import weakref

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import optc.torch
from singles import Heads, Singles, Slices, Tied, Token, singles, squares


class Hooks(Singles):
    def test_what_is_one_batch(self):
        """Two losses of one forward, in one backward or two; two forwards in one backward."""
        m, x, y, _ = self.simple()
        for way in range(3):
            two = singles(
                m, x, lambda m, at: squares(m(x[at]), y[at]) + squares(
                    m(x[at] if way < 2 else 2 * x[at]), 3 * y[at]))
            with optc.torch.per_sample(m, loss="mean") as samples:
                if way == 2:
                    (squares(m(x), y) + squares(m(2 * x), 3 * y)).backward()
                else:
                    out = m(x)
                    a, b = squares(out, y), squares(out, 3 * y)
                    (a.backward(retain_graph=True), b.backward()) if way else (a + b).backward()
                self.assertEqual(samples.count, 4)
                self.held(samples, two)
        heads = Heads().double()
        two = singles(heads, x, lambda m, at: sum(out.square().sum() for out in m(x[at])))
        with optc.torch.per_sample(heads, loss="sum") as samples:
            for out in heads(x):                           # nothing in common but the forward
                out.square().sum().backward()
            self.held(samples, two)
        with optc.torch.per_sample(m, loss="mean") as samples:
            loss = squares(m(x), y)
            loss.backward(retain_graph=True)
            first = samples.clip(1.0)
            loss.backward()
            self.near(samples.clip(1.0), first)

    def test_checkpointing(self):
        m, x, y, wanted = self.simple()
        x.requires_grad_()
        for reentrant in (False, True):
            with optc.torch.per_sample(m, loss="mean") as samples, warnings.catch_warnings():
                warnings.simplefilter("ignore")
                m.zero_grad()
                h = checkpoint(lambda v: m[1](m[0](v)), x, use_reentrant=reentrant)
                squares(checkpoint(m[2], h, use_reentrant=reentrant), y).backward()
                self.held(samples, wanted)

    def test_in_place(self):
        torch.default_generator.manual_seed(1)
        y = torch.randn(4, 2, 5, dtype=torch.float64)
        # with a bias the output of three axes is a view
        for bias in (True, False):
            m = nn.Sequential(nn.Linear(3, 5, bias=bias), nn.ReLU(inplace=True), nn.Linear(5, 5),
                              nn.SiLU(inplace=True))
            self.whole(m.double(), torch.randn(4, 2, 3, dtype=torch.float64), y)
        for bias in (True, False):
            m = nn.Sequential(nn.Linear(3, 4, bias=bias), Slices(), nn.Linear(4, 5, bias=bias),
                              Slices())
            self.whole(m.double(), torch.randn(4, 2, 3, dtype=torch.float64), y)
        m, x, y, _ = self.simple()
        with optc.torch.per_sample(m, loss="mean") as samples:
            squares(m(x), y).backward()
            # a loop that reuses its memory, too early
            x.add_(1)
            with self.assertRaisesRegex(RuntimeError, "what layer '0' was given has been changed"):
                samples.norms()
        m = nn.Linear(3, 3, bias=False).double()
        m.weight.requires_grad_(True)
        with optc.torch.per_sample(m, loss="mean"):
            h = x.clone()
            out = m(h)
            with self.assertRaises(RuntimeError):          # torch's own, or ours
                h.mul_(2)
                out.sum().backward()

    def test_frozen(self):
        m, x, y, wanted = self.simple()
        m[0].weight.requires_grad_(False)
        m[2].bias.requires_grad_(False)
        with optc.torch.per_sample(m.eval(), loss="mean") as samples:
            squares(m(x), y).backward()
            self.held(samples, {n: wanted[n] for n in ("0.bias", "2.weight")})
            with torch.no_grad():
                m(x)
            m(x)                                           # no backward: nothing stays
            self.assertEqual(samples.held_bytes, 0)
            with self.assertRaisesRegex(RuntimeError, "nothing yet"):
                samples.clip(1.0)
            m[0].weight.requires_grad_(True)               # unfrozen while hooked
            squares(m(x), y).backward()
            self.near(samples.grad("0.weight"), wanted["0.weight"])
            m[0].weight.requires_grad_(False)
            with self.assertRaisesRegex(RuntimeError, "'weight' of layer '0'.*frozen"):
                samples.norms()

    def test_unknown(self):
        for m, said in ((nn.LSTM(2, 2), "LSTM: weight_ih_l0"), (nn.ConvTranspose1d(
                2, 2, 1), "ConvTranspose1d"), (nn.MultiheadAttention(4, 2), "in_proj_weight"),
                        (nn.LazyLinear(3),
                         "call the model once"), (nn.utils.parametrizations.weight_norm(
                             nn.Linear(2, 2)), "0.parametrizations|parametrized"),
                        (nn.Embedding(3, 2, max_norm=1.0), "max_norm"), (nn.Embedding(
                            3, 2, sparse=True), "sparse"), (nn.Embedding(
                                3, 2, scale_grad_by_freq=True), "mixes samples"), (type(
                                    "Mine", (nn.Linear,),
                                    {"forward": lambda s, x: x})(2, 2), "forward of its own"),
                        (nn.BatchNorm1d(2), "'0' .BatchNorm1d.*GroupNorm"), (nn.BatchNorm2d(
                            2, affine=False), "'0'"), (nn.InstanceNorm1d(
                                2, affine=True,
                                track_running_stats=True), "InstanceNorm1d"), (nn.Linear(
                                    2, 2,
                                    dtype=torch.complex64), "'weight' of layer '0'.*complex64"),
                        (nn.DataParallel(nn.Linear(2, 2)), "DataParallel"), (torch.compile(
                            nn.Linear(2, 2), backend="eager"), "OptimizedModule")):
            with self.assertRaisesRegex(ValueError, said):
                optc.torch.per_sample(nn.Sequential(m), loss="mean")
            self.assertFalse(any(k._forward_hooks for k in m.modules()))
        with self.assertRaisesRegex(TypeError, "torch.nn.Module"):
            optc.torch.per_sample([1], loss="mean")

    def test_left_out(self):
        torch.default_generator.manual_seed(1)
        m = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2)).double()
        x = torch.randn(5, 3, dtype=torch.float64)
        with optc.torch.per_sample(m, loss="sum", leave_out=["1"]) as samples:
            m(x).square().sum().backward()
            before = m[1].weight.grad.clone()
            self.assertEqual(samples.clip(0.1).shape, (5,))
            self.assertEqual(
                set(dict(m.named_parameters())) - set(samples._named()), {"1.weight", "1.bias"})
            self.near(m[1].weight.grad, before)
        for bad, said in (("9", "no such module"), ("head",
                                                    "'head.weight', which is also 'wte.weight'")):
            with self.assertRaisesRegex(ValueError, said):
                optc.torch.per_sample(Tied(), loss="sum", leave_out=bad)
        # a parameter of a layer that is not known
        m[1] = Token().double()
        for given in ({"leave_out": ["1.token", "2.bias"]},
                      {"rules": {Token: lambda m, x, g: {"token": g * x}}}):
            with optc.torch.per_sample(m, loss="sum", **given) as samples:
                wanted = singles(m, x, lambda m, at: m(x[at]).square().sum())
                m.zero_grad(), m(x).square().sum().backward()
                self.held(samples,
                          {n: w for n, w in wanted.items() if n not in given.get("leave_out", ())})
        with optc.torch.per_sample(m, loss="sum", rules={Token: lambda m, x, g: {}}):
            with self.assertRaisesRegex(RuntimeError, "Token: 'token' must have shape .5, 4."):
                m(x).sum().backward()
        m[1] = nn.BatchNorm1d(4).double()
        m[1].eval().requires_grad_(False)                  # frozen in eval mode it mixes nothing
        with optc.torch.per_sample(m, loss="sum") as samples:
            m(x).square().sum().backward()
            samples.clip(1.0)
            m[1].train()
            with self.assertRaisesRegex(RuntimeError, "BatchNorm1d.*not any more"):
                m(x)

    def test_strays(self):
        """Parameters whose gradient comes otherwise, samples that do not match, samples that
        mix."""
        class Odd(nn.Module):
            def __init__(self, how):
                super().__init__()
                self.a, self.b, self.how = nn.Linear(3, 3), nn.Linear(3, 3), how

            def forward(self, x):
                if self.how == "functional":
                    return self.a(x) @ self.b.weight
                if self.how == "also functional":
                    return self.b(self.a(x)) @ self.b.weight
                if self.how == "positions":
                    return self.b(self.a(x) + self.a(torch.ones(1, 3)))
                y = self.a(x)
                # the gradient of a's bias is 0, but for round-off
                if self.how == "fine":
                    return torch.softmax(self.b(x) + y.sum(1, keepdim=True), 1)
                return self.b(y + (y.mean(0) if self.how == "mixes" else 0))
        x = torch.randn(4, 3)
        for how, said in (("functional", "'b.weight' has a gradient"),
                          ("positions", "'b' saw 4 samples.*'a' 1|saw")):
            m = Odd(how)
            with optc.torch.per_sample(m, loss="sum") as samples:
                m(x).square().sum().backward()
                with self.assertRaisesRegex(RuntimeError, said):
                    samples.clip(1.0)
        for how in ("also functional", "mixes", "fine"):
            m = Odd(how)
            with optc.torch.per_sample(m, loss="mean") as samples:
                losses = m(x).square().sum(1)
                if how == "fine":
                    samples.check(losses)
                    self.assertEqual(samples.count, 0)
                    self.assertIsNone(m.a.weight.grad)
                    losses.mean().backward(retain_graph=True)
                    held = samples.grads()
                    samples.check(losses)                  # what was captured before stays
                    for n, g in samples.grads().items():
                        self.near(g, held[n], 0)
                    continue
                with self.assertRaisesRegex(RuntimeError,
                                            "parameter '[ab]\\..*not what torch says"):
                    samples.check(losses)

    def test_released(self):
        """An optimizer that steps gradients as they come leaves nothing to be clipped."""
        m, x, y, _ = self.simple()
        opt = optc.torch.SGD(m.parameters(), lr=0.1, release_grads=True)
        with optc.torch.per_sample(m, loss="mean") as samples:
            squares(m(x), y).backward()
            with self.assertRaisesRegex(RuntimeError, "'0.weight' was released"):
                samples.clip(1.0)
        del opt

    def test_not_twice(self):
        m, x, y, wanted = self.simple()
        with optc.torch.per_sample(m, loss="mean") as samples:
            loss = squares(m(x), y)
            with self.assertRaisesRegex(RuntimeError, "not differentiable twice"):
                loss.backward(create_graph=True)
            with samples.pause():
                torch.autograd.grad(squares(m(x), y), list(m.parameters()), create_graph=True)
            squares(m(x), y).backward()
            self.assertFalse(samples.grad(m[0].weight).requires_grad)
            self.held(samples, wanted)

    def test_copies(self):
        """A copy of a hooked model, and a file of it, are not hooked."""
        m, x, y, _ = self.simple()
        samples = optc.torch.per_sample(m, loss="mean")
        squares(m(x), y).backward()
        held = samples.held_bytes
        self.assertGreater(held, 0)
        file = io.BytesIO()
        torch.save(m, file)
        file.seek(0)
        for other in (copy.deepcopy(m), pickle.loads(pickle.dumps(m)),
                      torch.load(file, weights_only=False)):
            squares(other(x), y).backward()
            self.assertEqual(samples.held_bytes, held)
            optc.torch.per_sample(other, loss="mean").remove()
        for make in (copy.deepcopy, pickle.dumps):
            with self.assertRaisesRegex(TypeError, "per_sample cannot"):
                make(samples)
        hooked = [k for k in m.modules() if k._forward_hooks]
        self.assertEqual(len(hooked), 3)
        given = weakref.ref(samples)
        del samples
        gc.collect()
        self.assertIsNone(given())
        self.assertFalse(any(k._forward_hooks or k._forward_pre_hooks for k in m.modules()))

    def test_memory(self):
        """Activations are freed with their graph, or when their gradients were used. Those of
        vectors are not kept."""
        m = nn.Sequential(nn.LayerNorm(64), nn.Linear(64, 64), nn.Linear(64, 2))
        with optc.torch.per_sample(m, loss="sum") as samples:
            x = torch.randn(4, 256, 64)
            given = weakref.ref(x.untyped_storage())
            out = m[1](x)
            del x
            self.assertIsNotNone(given())
            del out
            self.assertIsNone(given())
            x = torch.randn(4, 1, 64)
            given = weakref.ref(x.untyped_storage())
            loss = m[1:](x).sum()
            del x
            loss.backward()
            self.assertIsNotNone(given())
            samples.clip(1.0)
            self.assertIsNone(given())                     # the loss is still here
            with self.assertRaisesRegex(RuntimeError, "second time"):
                loss.backward()
            samples.clear()
            # more rows than the weight has: rows of gradients are held
            m(torch.randn(4, 256, 64)).sum().backward()
            self.assertLess(samples.held_bytes, 4 * 4 * (64 * 64 + 64 * 3 + 64 * 2 + 2) + 1)
            samples.clip(1.0)
            self.assertEqual(samples.held_bytes, 0)
            m(torch.randn(4, 1, 64)).sum().backward()
            self.assertLess(samples.held_bytes, 4 * 4 * 64 * 8)
        samples.remove()
        m(torch.randn(4, 1, 64)).sum().backward()
        self.assertEqual(samples.held_bytes, 0)
        with self.assertRaisesRegex(RuntimeError, "hooks are removed"):
            samples.norms()

    def test_threads(self):
        """Forwards and backwards side by side: each brings its own samples."""
        m, x, y, wanted = self.simple(8)
        with optc.torch.per_sample(m, loss="mean") as samples:
            def work(at):
                squares(m(x[at]), y[at]).backward()

            threads = [
                threading.Thread(target=work, args=(slice(i, i + 2),)) for i in range(0, 8, 2)
            ]
            [t.start() for t in threads]
            [t.join() for t in threads]
            norms = sum(w.flatten(1).square().sum(1) for w in wanted.values()).sqrt()
            self.near(samples.norms().sort().values, norms.sort().values)

    def test_called_otherwise(self):
        """A forward that fails, a copy of a layer (as DataParallel calls), torch.func, an argument
        by name."""
        m, x, y, wanted = self.simple()
        with optc.torch.per_sample(m, loss="mean") as samples:
            with self.assertRaises(RuntimeError):
                m(x[:, :2])
            self.assertEqual(samples._local.depth, 0)
            with self.assertRaisesRegex(RuntimeError, "'2' was called as a copy"):
                copy.copy(m[2])(torch.tanh(m[0](x)))
            params = {n: p.detach() for n, p in m.named_parameters()}
            with self.assertRaisesRegex(RuntimeError, "nor torch.func"):
                torch.func.grad(lambda p: torch.func.functional_call(m, p, (x,)).sum())(params)
            squares(m[2](input=torch.tanh(m[0](input=x))), y).backward()
            self.held(samples, wanted)
            squares(m(x), y).backward()
            # another layer in its place, which is not hooked
            m[2] = nn.Linear(5, 2).double()
            squares(m(x), y).backward()
            with self.assertRaisesRegex(RuntimeError,
                                        "not the model's|came through no hooked layer"):
                samples.clip(1.0)

    def test_stubs(self):
        """What editors are told is what there is."""
        for module, stub in ((optc.torch._samples, "_samples.pyi"), (optc.torch._kfac, "_kfac.pyi"),
                             (optc.torch._hooks, "_hooks.pyi")):
            with open(os.path.join(os.path.dirname(module.__file__), stub)) as file:
                body = ast.parse(file.read()).body
            for node in body:
                if isinstance(node, ast.FunctionDef):
                    self.same(node, getattr(module, node.name))
                elif isinstance(node, ast.ClassDef):
                    made = getattr(module, node.name)
                    told = {f.name: f for f in node.body if isinstance(f, ast.FunctionDef)}
                    for f in told.values():
                        if not isinstance(inspect.getattr_static(made, f.name), property):
                            self.same(f, getattr(made, f.name))
                    public = {n for n in vars(made) if not n.startswith("_")} - {"what"}
                    inherited = {n for base in made.__mro__[1:-1] for n in vars(base)}
                    self.assertEqual(public - inherited,
                                     {n for n in told if not n.startswith("__")})

    def same(self, node, function):
        a, real = node.args, inspect.signature(function).parameters.values()
        told = [
            x.arg
            for x in (*a.posonlyargs, *a.args, *([a.vararg] if a.vararg else []), *a.kwonlyargs)
        ]
        self.assertEqual(told, [x.name for x in real], node.name)
