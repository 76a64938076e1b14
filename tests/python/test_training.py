"""Whole trainings beside torch's optimizers."""
import unittest

import torch

import optc.torch


class Block(torch.nn.Module):
    def __init__(self, d, heads):
        super().__init__()
        self.heads, self.qkv, self.out = heads, torch.nn.Linear(d, 3 * d), torch.nn.Linear(d, d)
        self.up, self.down = torch.nn.Linear(d, 4 * d), torch.nn.Linear(4 * d, d)
        self.n1, self.n2 = torch.nn.LayerNorm(d), torch.nn.LayerNorm(d)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = (y.view(b, t, self.heads, -1).transpose(1, 2) for y in self.qkv(self.n1(x)).chunk(3, -1))
        a = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(a.transpose(1, 2).reshape(b, t, d))
        return x + self.down(torch.nn.functional.gelu(self.up(self.n2(x))))


class GPT(torch.nn.Module):
    def __init__(self, vocab=24, length=16, d=32, layers=2, heads=4):
        super().__init__()
        self.wte, self.wpe = torch.nn.Embedding(vocab, d), torch.nn.Embedding(length, d)
        self.h = torch.nn.ModuleList(Block(d, heads) for _ in range(layers))
        self.ln_f, self.lm_head = torch.nn.LayerNorm(d), torch.nn.Linear(d, vocab, bias=False)
        self.lm_head.weight = self.wte.weight          # tied

    def forward(self, idx):
        x = self.wte(idx) + self.wpe(torch.arange(idx.shape[1], device=idx.device))
        for block in self.h:
            x = block(x)
        return self.lm_head(self.ln_f(x))


def tokens(step, device="cpu"):
    """Sums that go on: every token follows from the two before it."""
    g = torch.Generator().manual_seed(step)
    x = torch.randint(0, 24, (8, 17), generator=g)
    for t in range(2, 17):
        x[:, t] = (x[:, t - 1] + x[:, t - 2]) % 24
    return x.to(device)


def train(make, steps=200, device="cpu"):
    torch.manual_seed(0)
    net = GPT().to(device)
    opt = make(net)
    schedule = torch.optim.lr_scheduler.OneCycleLR(opt, opt.param_groups[0]["lr"], total_steps=steps)
    losses = []
    for step in range(steps):
        x = tokens(step, device)
        opt.zero_grad()
        loss = torch.nn.functional.cross_entropy(net(x[:, :-1]).flatten(0, 1), x[:, 1:].flatten())
        loss.backward()
        opt.step()
        schedule.step()
        losses.append(loss.item())
    return losses


class Training(unittest.TestCase):
    def test_gpt(self):
        a = train(lambda n: torch.optim.AdamW(n.parameters(), lr=3e-3))
        b = train(lambda n: optc.torch.AdamW(n.parameters(), lr=3e-3))
        self.assertLess(a[-1], a[0] - 1)
        self.assertLess(max(abs(x - y) for x, y in zip(a, b)), 1e-3)

    def test_muon(self):
        a = train(lambda n: optc.torch.Muon(n, lr=0.02, adamw_lr=3e-3), steps=60)
        self.assertLess(a[-1], a[0] - 0.5)


class Cost(unittest.TestCase):
    """Of many tensors finding gradients costs what reading them does: a count of calls, not of seconds."""

    def test_calls(self):
        params = [torch.zeros(2, requires_grad=True) for _ in range(1500)]
        for p in params:
            p.grad = torch.ones(2)
        opt = optc.torch.SGD(params, lr=0.1)
        for _ in range(3):
            opt.step()
        seen = []
        bound = opt._bounds[0]
        look = bound._look
        bound._look = lambda grads: (seen.append(1), look(grads))
        for _ in range(5):
            opt.step()
        self.assertEqual(seen, [])
        params[3].grad = torch.ones(2)
        opt.step()
        self.assertEqual(seen, [1])
        static = optc.torch.SGD(params, lr=0.1, static_grads=True)
        static.step()
        bound = static._bounds[0]
        bound.params = None
        bound.find_grads()


if __name__ == "__main__":
    unittest.main()
