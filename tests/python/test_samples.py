"""Per-sample gradients, their norms and clipped sums against torch with one sample at a time."""
import copy

import torch
from torch import nn

import optc.torch
from singles import Conv1D, Singles, Tied, singles, squares


class Samples(Singles):
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
        self.layer(
            nn.Conv3d(2, 3, (2, 3, 2), padding=1, padding_mode="replicate", dilation=(1, 1, 2)), 2,
            3, 4, 3)
        self.layer(nn.Conv3d(6, 8, 2), 6, 2, 2, 2)

    def test_lookups(self):
        torch.default_generator.manual_seed(1)
        for pad in (None, 2):
            for shape in ((6,), (6, 4), (6, 2, 3)):
                m = nn.Embedding(5, 3, padding_idx=pad).double()
                x = torch.randint(0, 5, shape)
                self.whole(m, x, torch.randn(*shape, 3, dtype=torch.float64))
        self.whole(m, x.int(), torch.randn(*shape, 3, dtype=torch.float64))

    def test_tied(self):
        """One weight in two layers, one layer called twice: by products of rows where they are few,
        directly else."""
        torch.default_generator.manual_seed(1)
        for d, t, again in ((6, 4, False), (6, 9, True), (24, 4, True), (24, 2, False)):
            m = Tied(vocab=31, d=d, again=again).double()
            x, y = torch.randint(0, 31, (5, t)), torch.randn(5, t, 31, dtype=torch.float64)
            self.whole(m, x, y)

        # of one weight a gradient a sample here, and sides there
        m, x = nn.Linear(8, 9), torch.randn(5, 12, 8, dtype=torch.float64)
        both = nn.ModuleList([m]).double()
        wanted = singles(both, x, lambda b, at: b[0](x[at]).sin().sum() + b[0]
                         (x[at, 0]).cos().sum())
        with optc.torch.per_sample(both, loss="sum") as samples:
            (m(x).sin().sum() + m(x[:, 0]).cos().sum()).backward()
            self.held(samples, wanted)

    def test_slices(self):
        """Temporaries below a bound: the same, some samples at a time."""
        from optc.torch import _sample_factors
        was, _sample_factors.BOUND = _sample_factors.BOUND, 300
        try:
            self.layer(nn.Linear(20, 30), 2, 20)
            self.layer(nn.Conv2d(2, 3, 3), 2, 6, 6)
            self.test_tied()
        finally:
            _sample_factors.BOUND = was

    def test_axis(self):
        torch.default_generator.manual_seed(1)
        m = nn.Sequential(nn.Linear(4, 9), nn.LayerNorm(9), nn.Linear(9, 2)).double()
        x = torch.randn(3, 5, 4, dtype=torch.float64)      # a sequence of 3 of 5 samples
        wanted = singles(m, x.transpose(0, 1), lambda m, at: m(x[:, at]).square().sum())
        for axis in (1, {"0": 1, "1": 1, "2": 1}):
            with optc.torch.per_sample(m, loss="sum", axis=axis) as samples:
                m(x).square().sum().backward()
                self.held(samples, wanted)
        for axis, said in (({"7": 1}, "not hooked: 7"), (-1, "from 0 on, not -1"), ("first",
                                                                                    "not 'first'")):
            with self.assertRaisesRegex(ValueError, said):
                optc.torch.per_sample(m, loss="sum", axis=axis)
        with optc.torch.per_sample(m, loss="sum",
                                   axis=2), self.assertRaisesRegex(RuntimeError, "'0'.*no axis of"):
            m(x)

    def test_types(self):
        """Autocast, and models of 16 bits: sums are kept in f32."""
        torch.default_generator.manual_seed(1)
        m = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 16),
                          nn.RMSNorm(16), nn.Linear(16, 4))
        x, y = torch.randn(6, 8), torch.randn(6, 4)
        with torch.no_grad():
            m[3].weight *= 0.01                            # an epsilon of 16 bits would show

        def loss(m, at):
            with torch.autocast("cpu", torch.bfloat16):
                return squares(m(x[at]), y[at])
        wanted = singles(m, x, loss)
        with optc.torch.per_sample(m,
                                   loss="mean") as samples, torch.autocast("cpu", torch.bfloat16):
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

    def test_odd_batches(self):
        m, x, y, _ = self.simple(1)
        self.whole(m, x, y)
        net = nn.Sequential(nn.Conv2d(2, 4, 3, padding=1, padding_mode="reflect"),
                            nn.GroupNorm(2, 4), nn.Flatten(), nn.Linear(64, 3), nn.LayerNorm(3))
        with optc.torch.per_sample(net, loss="mean") as samples:
            net(torch.randn(0, 2, 4, 4)).mean().backward()
            self.assertEqual(
                samples.clip(1.0, noise=1.0, generator=torch.Generator().manual_seed(1)).shape,
                (0,))
            self.assertTrue(all(p.grad.any() for p in net.parameters()))       # noise
        tied = Tied()
        with optc.torch.per_sample(tied, loss="sum") as samples:
            tied(torch.zeros(0, 4, dtype=torch.long)).sum().backward()
            self.assertEqual(samples.grad(tied.wte.weight).shape, (0, 11, 6))
            samples.clip(1.0)
            self.assertFalse(tied.wte.weight.grad.any())

    def test_noise(self):
        m, x, y, _ = self.simple()
        m = nn.Sequential(m, nn.ModuleDict({"unused": nn.Linear(40, 50).double()}))
        first, second = [], []
        with optc.torch.per_sample(m[0],
                                   loss="mean"), optc.torch.per_sample(m, loss="mean") as samples:
            for noise, out in ((0.0, first), (3.0, second)):
                m.zero_grad()
                squares(m[0](x), y).backward()
                samples.clip(0.5, noise=noise, generator=torch.Generator().manual_seed(1),
                             divide_by=4)
                out += [p.grad for p in m.parameters()]
            self.assertEqual([g is None for g in first], [False] * 4 + [True] * 2)
            self.assertLess(abs(second[4].std().item() / (3.0 * 0.5 / 4) - 1), 0.1)
            self.assertGreater((second[0] - first[0]).abs().min().item(), 0)
            squares(m[0](x), y).backward()
            for wrong in ((0.0, {}), (float("nan"), {}), (1.0, {"noise": -1.0}),
                          (1.0, {"divide_by": 0})):
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
        ours, theirs = optc.torch.AdamW(m.parameters(),
                                        lr=0.05), torch.optim.AdamW(n.parameters(), lr=0.05)
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
