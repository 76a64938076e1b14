"""Gradients of single samples, their norms and clipped sums, held against torch's own of one sample at a time."""
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
from case import Case


def squares(out, y):
    """The mean over samples of a sum of squares."""
    return ((out - y) ** 2).flatten(1).sum(1).mean()


def singles(model, x, loss):
    """{name: gradients}, a backward a sample: loss(model, samples) of one."""
    m, each = copy.deepcopy(model), []
    for i in range(len(x)):
        m.zero_grad()
        loss(m, slice(i, i + 1)).backward()
        each.append({n: torch.zeros_like(p) if p.grad is None else p.grad.clone() for n, p in m.named_parameters()
                     if p.requires_grad})
    return {n: torch.stack([e[n] for e in each]) for n in each[0]}


class Conv1D(nn.Module):
    """As transformers has it."""

    def __init__(self, nf, nx):
        super().__init__()
        self.nf, self.weight, self.bias = nf, nn.Parameter(torch.randn(nx, nf)), nn.Parameter(torch.randn(nf))

    def forward(self, x):
        return torch.addmm(self.bias, x.view(-1, x.size(-1)), self.weight).view(*x.shape[:-1], self.nf)


class Tied(nn.Module):
    """A language model whose head is its embedding, and whose middle is called twice."""

    def __init__(self, vocab=11, d=6, again=False):
        super().__init__()
        self.wte, self.mid, self.norm = nn.Embedding(vocab, d, padding_idx=3), nn.Linear(d, d), nn.LayerNorm(d)
        self.head, self.again = nn.Linear(d, vocab, bias=False), again
        self.head.weight = self.wte.weight

    def forward(self, idx):
        x = self.norm(self.mid(torch.tanh(self.mid(self.wte(idx)))))
        return self.head(x + self.wte(idx.flip(1)) if self.again else x)


class Token(nn.Module):
    def __init__(self):
        super().__init__()
        self.token = nn.Parameter(torch.randn(4))

    def forward(self, x):
        return x * self.token


class Samples(Case):
    def near(self, got, want, bound=1e-12):
        self.assertEqual(got.shape, want.shape)
        scale = want.abs().max().item() if want.numel() else 0
        self.assertLessEqual((got - want).abs().max().item() if want.numel() else 0, bound * max(1.0, scale))

    def held(self, samples, wanted, bound=1e-12):
        """grads, norms and clip against gradients of single samples."""
        grads = samples.grads()
        self.assertEqual(set(grads), set(wanted))
        for n, want in wanted.items():
            self.near(grads[n].to(want.dtype), want, bound)
            self.near(samples.norms(each=True)[n].to(want.dtype), want.flatten(1).norm(dim=1), bound)
        norms = sum(w.flatten(1).square().sum(1) for w in wanted.values()).sqrt()
        self.near(samples.norms().to(norms.dtype), norms, bound)
        at = norms.median().item() if len(norms) else 1.0
        self.near(samples.clip(at).to(norms.dtype), norms, bound)
        scale = (at / norms).clamp(max=1.0)
        for n, p in samples.model.named_parameters():
            if n in wanted:
                self.near(p.grad, torch.tensordot(scale, wanted[n], 1), bound)

    def whole(self, model, x, y, loss=squares, bound=1e-12, **given):
        wanted = singles(model, x, lambda m, at: loss(m(x[at]), y[at]))
        with optc.torch.per_sample(model, loss="mean", **given) as samples:
            model.zero_grad()
            loss(model(x), y).backward()
            self.held(samples, wanted, bound)

    def layer(self, m, *shape, n=5):
        torch.manual_seed(1)
        m = m.double()
        for p in m.parameters():
            nn.init.normal_(p)
        x = torch.randn(n, *shape, dtype=torch.float64)
        self.whole(m, x, torch.randn_like(m(x)))

    def test_layers(self):
        self.layer(nn.Linear(4, 3), 4)
        self.layer(nn.Linear(4, 3, bias=False), 7, 4)
        self.layer(nn.Linear(20, 30), 2, 2, 20)
        self.layer(nn.Linear(9, 1), 9)
        self.layer(Conv1D(12, 10), 2, 10)
        self.layer(Conv1D(3, 4), 9, 4)
        self.layer(nn.LayerNorm(4), 3, 4)
        self.layer(nn.LayerNorm((3, 4)), 2, 3, 4)
        self.layer(nn.LayerNorm(4, bias=False), 4)
        self.layer(nn.RMSNorm(4), 3, 4)
        self.layer(nn.RMSNorm(4, eps=0.1), 4)
        self.layer(nn.GroupNorm(2, 6), 6, 3, 2)
        self.layer(nn.GroupNorm(2, 6), 6)
        self.layer(nn.InstanceNorm1d(3, affine=True), 3, 5)
        self.layer(nn.Linear(4, 3), 4, n=1)

    def test_convolutions(self):
        self.layer(nn.Conv1d(4, 6, 3, padding=2, dilation=2, groups=2), 4, 7)
        self.layer(nn.Conv1d(8, 16, 3, stride=2, bias=False), 8, 5)
        self.layer(nn.Conv2d(3, 4, (3, 2), padding="same", padding_mode="reflect"), 3, 5, 6)
        self.layer(nn.Conv2d(8, 12, 3, padding=1, stride=2), 8, 4, 3)
        self.layer(nn.Conv2d(4, 4, 2, groups=4, padding="same"), 4, 3, 3)
        self.layer(nn.Conv2d(4, 8, 3, padding=(1, 2), padding_mode="circular", groups=2), 4, 4, 4)
        self.layer(nn.Conv3d(2, 3, (2, 3, 2), padding=1, padding_mode="replicate", dilation=(1, 1, 2)), 2, 3, 4, 3)
        self.layer(nn.Conv3d(6, 8, 2), 6, 2, 2, 2)

    def test_lookups(self):
        torch.manual_seed(1)
        for pad in (None, 2):
            for shape in ((6,), (6, 4), (6, 2, 3)):
                m = nn.Embedding(5, 3, padding_idx=pad).double()
                x = torch.randint(0, 5, shape)
                self.whole(m, x, torch.randn(*shape, 3, dtype=torch.float64))
        self.whole(m, x.int(), torch.randn(*shape, 3, dtype=torch.float64))

    def test_tied(self):
        """One weight in two layers, one layer called twice: by products of rows where they are few, directly else."""
        torch.manual_seed(1)
        for d, t, again in ((6, 4, False), (6, 9, True), (24, 4, True), (24, 2, False)):
            m = Tied(vocab=31, d=d, again=again).double()
            x, y = torch.randint(0, 31, (5, t)), torch.randn(5, t, 31, dtype=torch.float64)
            self.whole(m, x, y)

        # of one weight a gradient a sample here, and sides there
        m, x = nn.Linear(8, 9), torch.randn(5, 12, 8, dtype=torch.float64)
        both = nn.ModuleList([m]).double()
        wanted = singles(both, x, lambda b, at: b[0](x[at]).sin().sum() + b[0](x[at, 0]).cos().sum())
        with optc.torch.per_sample(both, loss="sum") as samples:
            (m(x).sin().sum() + m(x[:, 0]).cos().sum()).backward()
            self.held(samples, wanted)

    def test_slices(self):
        """Temporaries below a bound: the same, some samples at a time."""
        from optc.torch import _sides
        was, _sides.BOUND = _sides.BOUND, 300
        try:
            self.layer(nn.Linear(20, 30), 2, 20)
            self.layer(nn.Conv2d(2, 3, 3), 2, 6, 6)
            self.test_tied()
        finally:
            _sides.BOUND = was

    def test_axis(self):
        torch.manual_seed(1)
        m = nn.Sequential(nn.Linear(4, 9), nn.LayerNorm(9), nn.Linear(9, 2)).double()
        x = torch.randn(3, 5, 4, dtype=torch.float64)      # a sequence of 3 of 5 samples
        wanted = singles(m, x.transpose(0, 1), lambda m, at: m(x[:, at]).square().sum())
        for axis in (1, {"0": 1, "1": 1, "2": 1}):
            with optc.torch.per_sample(m, loss="sum", axis=axis) as samples:
                m(x).square().sum().backward()
                self.held(samples, wanted)
        with self.assertRaisesRegex(ValueError, "not hooked: 7"):
            optc.torch.per_sample(m, loss="sum", axis={"7": 1})
        with optc.torch.per_sample(m, loss="sum", axis=2), self.assertRaisesRegex(RuntimeError, "'0'.*no axis of"):
            m(x)

    def test_types(self):
        """Autocast, and models of 16 bits: sums are kept in f32."""
        torch.manual_seed(1)
        m = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 16), nn.RMSNorm(16),
                          nn.Linear(16, 4))
        x, y = torch.randn(6, 8), torch.randn(6, 4)
        with torch.no_grad():
            m[3].weight *= 0.01                            # an epsilon of 16 bits would show

        def loss(m, at):
            with torch.autocast("cpu", torch.bfloat16):
                return squares(m(x[at]), y[at])
        wanted = singles(m, x, loss)
        with optc.torch.per_sample(m, loss="mean") as samples, torch.autocast("cpu", torch.bfloat16):
            loss(m, slice(None)).backward()
            self.assertEqual(samples.grad("0.weight").dtype, torch.float32)
            self.held(samples, wanted, 2e-2)
        for dtype in (torch.bfloat16, torch.float16):
            h, a, b = copy.deepcopy(m).to(dtype), x.to(dtype), y.to(dtype)
            f = copy.deepcopy(h).float()
            wanted = singles(f, a, lambda m, at: squares(m(a[at].float()), b[at].float()))
            with optc.torch.per_sample(h, loss="mean") as samples:
                squares(h(a), b).backward()
                got = samples.grads()
                for n, w in wanted.items():
                    self.assertEqual(got[n].dtype, torch.float32)
                    self.near(got[n], w, 4e-2)
                samples.clip(1.0)
                self.assertEqual(h[0].weight.grad.dtype, dtype)

    def simple(self, n=4):
        torch.manual_seed(2)
        m = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 2)).double()
        x, y = torch.randn(n, 3, dtype=torch.float64), torch.randn(n, 2, dtype=torch.float64)
        return m, x, y, singles(m, x, lambda m, at: squares(m(x[at]), y[at]))

    def test_reductions(self):
        m, x, y, wanted = self.simple()
        with optc.torch.per_sample(m, loss="sum") as samples:
            (4 * squares(m(x), y)).backward()
            self.held(samples, wanted)
            samples.scale = 1024.0                         # as a GradScaler's
            (4096 * squares(m(x), y)).backward()
            self.held(samples, wanted)
        for bad in ("none", None, 1):
            with self.assertRaisesRegex(ValueError, "'mean' or the 'sum'"):
                optc.torch.per_sample(m, loss=bad)

    def test_accumulation(self):
        """Micro-batches are further samples; with more=True their sums are kept aside in turn."""
        m, x, y, wanted = self.simple(7)
        with optc.torch.per_sample(m, loss="mean") as samples:
            for at in (slice(0, 4), slice(4, 7)):
                squares(m(x[at]), y[at]).backward()
            self.assertEqual(samples.count, 7)
            self.held(samples, wanted)
            whole = [p.grad.clone() for p in m.parameters()]
            norms = sum(w.flatten(1).square().sum(1) for w in wanted.values()).sqrt()
            for at, more in ((slice(0, 4), True), (slice(4, 7), False)):
                squares(m(x[at]), y[at]).backward()
                samples.clip(norms.median().item(), more=more)
            for p, g in zip(m.parameters(), whole):
                self.near(p.grad, g)
            self.assertEqual(samples.held_bytes, 0)

    def test_what_is_one_batch(self):
        """Two losses of one forward, in one backward or two; two forwards in one backward."""
        m, x, y, _ = self.simple()
        for way in range(3):
            two = singles(m, x, lambda m, at: squares(m(x[at]), y[at]) + squares(m(x[at] if way < 2 else 2 * x[at]),
                                                                               3 * y[at]))
            with optc.torch.per_sample(m, loss="mean") as samples:
                if way == 2:
                    (squares(m(x), y) + squares(m(2 * x), 3 * y)).backward()
                else:
                    out = m(x)
                    a, b = squares(out, y), squares(out, 3 * y)
                    (a.backward(retain_graph=True), b.backward()) if way else (a + b).backward()
                self.assertEqual(samples.count, 4)
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
        torch.manual_seed(1)
        y = torch.randn(4, 2, 5, dtype=torch.float64)
        for bias in (True, False):                         # with a bias the output of three axes is a view
            m = nn.Sequential(nn.Linear(3, 5, bias=bias), nn.ReLU(inplace=True), nn.Linear(5, 5), nn.SiLU(inplace=True))
            self.whole(m.double(), torch.randn(4, 2, 3, dtype=torch.float64), y)
        m, x, y, _ = self.simple()
        with optc.torch.per_sample(m, loss="mean") as samples:
            squares(m(x), y).backward()
            x.add_(1)                                      # a loop that reuses its memory, too early
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

    def test_odd_batches(self):
        m, x, y, _ = self.simple(1)
        self.whole(m, x, y)
        net = nn.Sequential(nn.Conv2d(2, 4, 3, padding=1, padding_mode="reflect"), nn.GroupNorm(2, 4), nn.Flatten(),
                            nn.Linear(64, 3), nn.LayerNorm(3))
        with optc.torch.per_sample(net, loss="mean") as samples:
            net(torch.randn(0, 2, 4, 4)).mean().backward()
            self.assertEqual(samples.clip(1.0, noise=1.0, generator=torch.Generator().manual_seed(1)).shape, (0,))
            self.assertTrue(all(p.grad.any() for p in net.parameters()))       # noise
        tied = Tied()
        with optc.torch.per_sample(tied, loss="sum") as samples:
            tied(torch.zeros(0, 4, dtype=torch.long)).sum().backward()
            self.assertEqual(samples.grad(tied.wte.weight).shape, (0, 11, 6))
            samples.clip(1.0)
            self.assertFalse(tied.wte.weight.grad.any())

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
        for m, said in ((nn.LSTM(2, 2), "LSTM: weight_ih_l0"), (nn.ConvTranspose1d(2, 2, 1), "ConvTranspose1d"),
                        (nn.MultiheadAttention(4, 2), "in_proj_weight"), (nn.LazyLinear(3), "call the model once"),
                        (nn.utils.parametrizations.weight_norm(nn.Linear(2, 2)), "0.parametrizations|parametrized"),
                        (nn.Embedding(3, 2, max_norm=1.0), "max_norm"), (nn.Embedding(3, 2, sparse=True), "sparse"),
                        (nn.Embedding(3, 2, scale_grad_by_freq=True), "mixes samples"),
                        (type("Mine", (nn.Linear,), {"forward": lambda s, x: x})(2, 2), "forward of its own"),
                        (nn.BatchNorm1d(2), "'0' .BatchNorm1d.*GroupNorm"), (nn.BatchNorm2d(2, affine=False), "'0'"),
                        (nn.InstanceNorm1d(2, affine=True, track_running_stats=True), "InstanceNorm1d"),
                        (nn.Linear(2, 2, dtype=torch.complex64), "'weight' of layer '0'.*complex64"),
                        (nn.DataParallel(nn.Linear(2, 2)), "DataParallel"),
                        (torch.compile(nn.Linear(2, 2), backend="eager"), "OptimizedModule")):
            with self.assertRaisesRegex(ValueError, said):
                optc.torch.per_sample(nn.Sequential(m), loss="mean")
            self.assertFalse(any(k._forward_hooks for k in m.modules()))
        with self.assertRaisesRegex(TypeError, "torch.nn.Module"):
            optc.torch.per_sample([1], loss="mean")

    def test_left_out(self):
        torch.manual_seed(1)
        m = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2)).double()
        x = torch.randn(5, 3, dtype=torch.float64)
        with optc.torch.per_sample(m, loss="sum", leave_out=["1"]) as samples:
            m(x).square().sum().backward()
            before = m[1].weight.grad.clone()
            self.assertEqual(samples.clip(0.1).shape, (5,))
            self.assertEqual(set(dict(m.named_parameters())) - set(samples._named()), {"1.weight", "1.bias"})
            self.near(m[1].weight.grad, before)
        for bad, said in (("9", "no such module"), ("head", "'head.weight', which is also 'wte.weight'")):
            with self.assertRaisesRegex(ValueError, said):
                optc.torch.per_sample(Tied(), loss="sum", leave_out=bad)
        m[1] = Token().double()                            # a parameter of a layer that is not known
        for given in ({"leave_out": ["1.token", "2.bias"]}, {"rules": {Token: lambda m, x, g: {"token": g * x}}}):
            with optc.torch.per_sample(m, loss="sum", **given) as samples:
                wanted = singles(m, x, lambda m, at: m(x[at]).square().sum())
                m.zero_grad(), m(x).square().sum().backward()
                self.held(samples, {n: w for n, w in wanted.items() if n not in given.get("leave_out", ())})
        with optc.torch.per_sample(m, loss="sum", rules={Token: lambda m, x, g: {}}):
            with self.assertRaisesRegex(RuntimeError, "Token: 'token' is wanted as .5, 4."):
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
        """Parameters whose gradient comes otherwise, samples that do not match, samples that mix."""
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
                return self.b(y + (y.mean(0) if self.how == "mixes" else 0))
        x = torch.randn(4, 3)
        for how, said in (("functional", "'b.weight' has a gradient"), ("positions", "'b' saw 4 samples.*'a' 1|saw")):
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
                with self.assertRaisesRegex(RuntimeError, "parameter '[ab]\\..*not what torch says"):
                    samples.check(losses)

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
        for other in (copy.deepcopy(m), pickle.loads(pickle.dumps(m)), torch.load(file, weights_only=False)):
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
        """What a graph that is dropped had, and what is used up, is let go; of vectors no activation is kept."""
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
            m(torch.randn(4, 256, 64)).sum().backward()    # more rows than the weight has: rows of gradients are held
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

    def test_noise(self):
        m, x, y, _ = self.simple()
        m = nn.Sequential(m, nn.ModuleDict({"unused": nn.Linear(40, 50).double()}))
        first, second = [], []
        with optc.torch.per_sample(m[0], loss="mean"), optc.torch.per_sample(m, loss="mean") as samples:
            for noise, out in ((0.0, first), (3.0, second)):
                m.zero_grad()
                squares(m[0](x), y).backward()
                samples.clip(0.5, noise=noise, generator=torch.Generator().manual_seed(1), divide_by=4)
                out += [p.grad for p in m.parameters()]
            self.assertEqual([g is None for g in first], [False] * 4 + [True] * 2)
            self.assertLess(abs(second[4].std().item() / (3.0 * 0.5 / 4) - 1), 0.1)
            self.assertGreater((second[0] - first[0]).abs().min().item(), 0)
            squares(m[0](x), y).backward()
            for wrong in ((0.0, {}), (float("nan"), {}), (1.0, {"noise": -1.0}), (1.0, {"divide_by": 0})):
                with self.assertRaises(ValueError):
                    samples.clip(wrong[0], **wrong[1])
            x[1, 1] = float("inf")
            samples.clear(), m.zero_grad()
            squares(m[0](x), y).backward()
            norms = samples.clip(1.0)
            self.assertFalse(norms[1].isfinite())
            self.assertTrue(m[0][0].bias.grad.isnan().all())

    def test_training(self):
        """Into a step of ours: the sum of clipped gradients, by hand and by us, in one run."""
        m, x, y, _ = self.simple(8)
        n = copy.deepcopy(m)
        ours, theirs = optc.torch.AdamW(m.parameters(), lr=0.05), torch.optim.AdamW(n.parameters(), lr=0.05)
        with optc.torch.per_sample(m, loss="mean") as samples:
            for _ in range(4):
                wanted = singles(n, x, lambda m, at: squares(m(x[at]), y[at]))
                norms = sum(w.flatten(1).square().sum(1) for w in wanted.values()).sqrt()
                for name, p in n.named_parameters():
                    p.grad = torch.tensordot((1.5 / norms).clamp(max=1.0), wanted[name], 1) / 8
                theirs.step()
                ours.zero_grad()
                squares(m(x), y).backward()
                samples.clip(1.5, divide_by=8)
                ours.step()
        for p, q in zip(m.parameters(), n.parameters()):
            self.near(p, q, 1e-9)

    def test_threads(self):
        """Forwards and backwards side by side: each brings its own samples."""
        m, x, y, wanted = self.simple(8)
        with optc.torch.per_sample(m, loss="mean") as samples:
            def work(at):
                squares(m(x[at]), y[at]).backward()
            threads = [threading.Thread(target=work, args=(slice(i, i + 2),)) for i in range(0, 8, 2)]
            [t.start() for t in threads]
            [t.join() for t in threads]
            norms = sum(w.flatten(1).square().sum(1) for w in wanted.values()).sqrt()
            self.near(samples.norms().sort().values, norms.sort().values)

    def test_called_otherwise(self):
        """A forward that fails, a copy of a layer (as DataParallel calls), torch.func, an argument by name."""
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
            m[2] = nn.Linear(5, 2).double()                # another layer in its place, which is not hooked
            squares(m(x), y).backward()
            with self.assertRaisesRegex(RuntimeError, "not the model's|came through no hooked layer"):
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
                    self.assertEqual(public - inherited, {n for n in told if not n.startswith("__")})

    def same(self, node, function):
        a, real = node.args, inspect.signature(function).parameters.values()
        told = [x.arg for x in (*a.posonlyargs, *a.args, *([a.vararg] if a.vararg else []), *a.kwonlyargs)]
        self.assertEqual(told, [x.name for x in real], node.name)
