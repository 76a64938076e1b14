"""Losses of a byte-level transformer on this repository's text over five seeds: rules with
apply=f32, with apply=tf32, and with f32 again from weights that differ by 1e-6, which shows the
noise of f32. From the top of the tree, on a GPU; about three minutes per rule for 300 steps. Seeds
may run in processes of their own: each prints its losses.
    PYTHONPATH=runtime/python python3 tests/gpu/precision_loss.py [STEPS [DEVICE [RULES [SEEDS
    [small]]]]]
RULES and SEEDS are separated by commas. small: four layers of width 256 and 128 bytes, about a
seventh of the work. The loss is multiplied by LOSS_SCALE: PSGD-Kron's factors start at 1 and need
hundreds of steps to fit gradients of 1e-4, during which weights hardly move."""
import glob
import sys
import time

import torch

import optc.torch

STEPS = int(sys.argv[1]) if len(sys.argv) > 1 else 400
DEV = sys.argv[2] if len(sys.argv) > 2 else "cuda"
SIZES = (256, 4, 4, 128, 32) if sys.argv[5:] == ["small"] else (384, 6, 6, 256, 32)
D, LAYERS, HEADS, LENGTH, BATCH = SIZES if DEV == "cuda" else (32, 2, 4, 32, 4)
torch.backends.cuda.matmul.allow_tf32 = False
FILES = ("gen/**/*.[ch]", "runtime/**/*.[ch]", "specs/*.*", "tests/**/*.c")


def read(path):
    with open(path, "rb") as f:
        return f.read()


text = b"".join(
    read(f) for f in sorted(f for pattern in FILES for f in glob.glob(pattern, recursive=True)))
data = torch.frombuffer(bytearray(text), dtype=torch.uint8).to(DEV)
cut = len(data) * 9 // 10
print(len(data), "bytes")


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv, self.out = torch.nn.Linear(D, 3 * D), torch.nn.Linear(D, D)
        self.up, self.down = torch.nn.Linear(D, 4 * D), torch.nn.Linear(4 * D, D)
        self.n1, self.n2 = torch.nn.LayerNorm(D), torch.nn.LayerNorm(D)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = (
            y.view(b, t, HEADS, -1).transpose(1, 2) for y in self.qkv(self.n1(x)).chunk(3, -1))
        a = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(a.transpose(1, 2).reshape(b, t, d))
        return x + self.down(torch.nn.functional.gelu(self.up(self.n2(x))))


class GPT(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.wte, self.wpe = torch.nn.Embedding(256, D), torch.nn.Embedding(LENGTH, D)
        self.h = torch.nn.ModuleList(Block() for _ in range(LAYERS))
        self.ln, self.head = torch.nn.LayerNorm(D), torch.nn.Linear(D, 256, bias=False)
        for e in (self.wte, self.wpe):
            torch.nn.init.normal_(e.weight, std=0.02)

    def forward(self, i):
        x = self.wte(i) + self.wpe(torch.arange(i.shape[1], device=i.device))
        for b in self.h:
            x = b(x)
        return self.head(self.ln(x))


def batch(g, lo, hi):
    at = torch.randint(lo, hi - LENGTH - 1, (BATCH,), generator=g).to(DEV)
    x = data[at[:, None] + torch.arange(LENGTH + 1, device=DEV)].long()
    return x[:, :-1], x[:, 1:]


def loss_of(net, g, lo, hi):
    x, y = batch(g, lo, hi)
    return torch.nn.functional.cross_entropy(net(x).flatten(0, 1), y.flatten())


LOSS_SCALE = {"psgd_kron": 1e3}


def run(make, seed, shake, scale=1):
    torch.manual_seed(seed)
    net = GPT().to(DEV)
    if shake:
        with torch.no_grad():
            for p in net.parameters():
                p.mul_(1 + 1e-6)
    opt = make(net.parameters())
    sched = torch.optim.lr_scheduler.LambdaLR(
        opt, lambda s: min(1, (s + 1) / 40) * max(0.05, 1 - s / STEPS))
    g = torch.Generator().manual_seed(1000 + seed)
    for _ in range(STEPS):
        opt.zero_grad(set_to_none=False)
        (scale * loss_of(net, g, 0, cut)).backward()
        opt.step()
        sched.step()
    with torch.no_grad():
        v = torch.Generator().manual_seed(7)
        return sum(loss_of(net, v, cut, len(data)).item() for _ in range(20)) / 20


makes = {
    "soap": lambda a: lambda p: optc.torch.SOAP(p, lr=3e-3, apply=a),
    "shampoo": lambda a: lambda p: optc.torch.Shampoo(p, lr=2e-3, interval=10, apply=a),
    "psgd": lambda a: lambda p: optc.torch.PSGD(p, lr=1e-3, apply=a),
    "psgd_kron": lambda a: lambda p: optc.torch.PSGDKron(p, lr=3e-3, apply=a),
}
RULES = sys.argv[3].split(",") if len(sys.argv) > 3 else makes
SEEDS = [int(k) for k in sys.argv[4].split(",")] if len(sys.argv) > 4 else range(5)
for rule in RULES:
    make = makes[rule]
    got = {"f32": [], "tf32": [], "f32 shaken": []}
    for seed in SEEDS:
        for kind in got:
            t = time.time()
            shake, scale = kind == "f32 shaken", LOSS_SCALE.get(rule, 1)
            got[kind].append(run(make(kind.split()[0]), seed, shake, scale))
            print(rule, kind, "seed", seed, "%.5f" % got[kind][-1], "%.1f s" % (time.time() - t),
                  flush=True)
    for kind, v in got.items():
        t = torch.tensor(v, dtype=torch.float64)
        d = t - torch.tensor(got["f32"], dtype=torch.float64)
        print(
            "%s %-10s mean %.5f, std over seeds %.5f, difference to f32 mean %+.5f, largest %.5f" %
            (rule, kind, t.mean(), t.std(), d.mean(), d.abs().max()), flush=True)
