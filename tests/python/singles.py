"""Shared by the tests of per-sample gradients: references by one backward per sample in f64, and
comparisons."""
import copy

import torch
from torch import nn

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
        each.append({
            n: torch.zeros_like(p) if p.grad is None else p.grad.clone()
            for n, p in m.named_parameters() if p.requires_grad
        })
    return {n: torch.stack([e[n] for e in each]) for n in each[0]}


class Conv1D(nn.Module):
    """As transformers has it."""

    def __init__(self, nf, nx):
        super().__init__()
        self.nf, self.weight, self.bias = nf, nn.Parameter(torch.randn(nx, nf)), nn.Parameter(
            torch.randn(nf))

    def forward(self, x):
        return torch.addmm(self.bias, x.view(-1, x.size(-1)),
                           self.weight).view(*x.shape[:-1], self.nf)


class Tied(nn.Module):
    """A language model whose head is its embedding, and whose middle is called twice."""

    def __init__(self, vocab=11, d=6, again=False):
        super().__init__()
        self.wte, self.mid, self.norm = nn.Embedding(vocab, d,
                                                     padding_idx=3), nn.Linear(d,
                                                                               d), nn.LayerNorm(d)
        self.head, self.again = nn.Linear(d, vocab, bias=False), again
        self.head.weight = self.wte.weight

    def forward(self, idx):
        x = self.norm(self.mid(torch.tanh(self.mid(self.wte(idx)))))
        return self.head(x + self.wte(idx.flip(1)) if self.again else x)


class Heads(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(3, 2), nn.Linear(3, 4)

    def forward(self, x):
        return self.a(x), self.b(x)


class Slices(nn.Module):
    """Changes a part of what it is given in place."""

    def forward(self, x):
        x[..., :2].mul_(3)
        return x.tanh_()


class Token(nn.Module):
    def __init__(self):
        super().__init__()
        self.token = nn.Parameter(torch.randn(4))

    def forward(self, x):
        return x * self.token


class Singles(Case):
    def near(self, got, want, bound=1e-12):
        self.assertEqual(got.shape, want.shape)
        scale = want.abs().max().item() if want.numel() else 0
        self.assertLessEqual((got - want).abs().max().item() if want.numel() else 0,
                             bound * max(1.0, scale))

    def held(self, samples, wanted, bound=1e-12):
        """grads, norms and clip against gradients of single samples."""
        grads = samples.grads()
        self.assertEqual(set(grads), set(wanted))
        for n, want in wanted.items():
            self.near(grads[n].to(want.dtype), want, bound)
            self.near(
                samples.norms(each=True)[n].to(want.dtype),
                want.flatten(1).norm(dim=1), bound)
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
        torch.default_generator.manual_seed(1)
        m = m.double()
        for p in m.parameters():
            nn.init.normal_(p)
        x = torch.randn(n, *shape, dtype=torch.float64)
        self.whole(m, x, torch.randn_like(m(x)))

    def simple(self, n=4):
        torch.default_generator.manual_seed(2)
        m = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 2)).double()
        x, y = torch.randn(n, 3, dtype=torch.float64), torch.randn(n, 2, dtype=torch.float64)
        return m, x, y, singles(m, x, lambda m, at: squares(m(x[at]), y[at]))
