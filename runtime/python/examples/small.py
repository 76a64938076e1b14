"""A transformer that is small enough for a CPU, and sequences for it to learn. The examples train
it."""
import torch

VOCAB, LENGTH = 24, 16


class Block(torch.nn.Module):
    def __init__(self, d, heads):
        super().__init__()
        self.heads, self.qkv, self.out = heads, torch.nn.Linear(d, 3 * d), torch.nn.Linear(d, d)
        self.up, self.down = torch.nn.Linear(d, 4 * d), torch.nn.Linear(4 * d, d)
        self.n1, self.n2 = torch.nn.LayerNorm(d), torch.nn.LayerNorm(d)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = (
            y.view(b, t, self.heads, -1).transpose(1, 2) for y in self.qkv(self.n1(x)).chunk(3, -1))
        a = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(a.transpose(1, 2).reshape(b, t, d))
        return x + self.down(torch.nn.functional.gelu(self.up(self.n2(x))))


class GPT(torch.nn.Module):
    def __init__(self, d=32, layers=2, heads=4):
        super().__init__()
        self.wte, self.wpe = torch.nn.Embedding(VOCAB, d), torch.nn.Embedding(LENGTH, d)
        self.h = torch.nn.ModuleList(Block(d, heads) for _ in range(layers))
        self.ln_f, self.lm_head = torch.nn.LayerNorm(d), torch.nn.Linear(d, VOCAB, bias=False)
        self.lm_head.weight = self.wte.weight          # tied
        for e in (self.wte, self.wpe):
            torch.nn.init.normal_(e.weight, std=0.1)

    def forward(self, idx):
        x = self.wte(idx) + self.wpe(torch.arange(idx.shape[1], device=idx.device))
        for block in self.h:
            x = block(x)
        return self.lm_head(self.ln_f(x))


def batch(step, device="cpu"):
    """Counting by ones, twos or threes, from anywhere: from the third token on the two before it
    say all."""
    g = torch.Generator().manual_seed(step)
    start, stride = torch.randint(0, VOCAB, (8, 1),
                                  generator=g), torch.randint(1, 4, (8, 1), generator=g)
    return ((start + stride * torch.arange(LENGTH + 1)) % VOCAB).to(device)


def loss_of(net, step, device="cpu"):
    x = batch(step, device)
    return torch.nn.functional.cross_entropy(net(x[:, :-1]).flatten(0, 1), x[:, 1:].flatten())


def fresh(device="cpu"):
    torch.manual_seed(0)
    return GPT().to(device)


def train(net, opt, steps, schedule=None, first=0, device="cpu"):
    """Losses of some steps."""
    losses = []
    for step in range(first, first + steps):
        opt.zero_grad()
        loss = loss_of(net, step, device)
        loss.backward()
        opt.step()
        if schedule:
            schedule.step()
        losses.append(loss.item())
    return losses
