"""Per-sample clipping (DP-SGD): clipping bounds the influence of each sample, and noise hides which
samples were used. An accountant computes the privacy (epsilon, delta) from NOISE, BATCH / N and the
number of steps."""
import optc.torch
import torch
from bars import accuracy, data, fresh
from torch.nn import functional as F

N, BATCH, CLIP, NOISE = 2048, 64, 1.0, 0.6
x, y, _ = data(0, N)

# A new model: is every sample's gradient its own? Held against torch's, of single samples.
net = fresh()
opt = optc.torch.AdamW(net.parameters(), lr=3e-3)
samples = optc.torch.per_sample(net, loss="mean")
samples.check(F.cross_entropy(net(x[:8]), y[:8], reduction="none"))

# Batches are drawn sample by sample (Poisson), so the sum is divided by what is expected.
# Micro-batches of 32 bound the memory.
g = torch.Generator().manual_seed(0)
for step in range(120):
    opt.zero_grad()
    parts = (torch.rand(N, generator=g) < BATCH / N).nonzero().flatten().split(32)
    for part in parts:
        F.cross_entropy(net(x[part]), y[part]).backward()
        held = samples.held_bytes
        norms = samples.clip(CLIP, noise=NOISE, generator=g, divide_by=BATCH, more=part
                             is not parts[-1])
    opt.step()
    if step % 40 == 0:
        print("private, step %3d: median norm %.3f, %d KiB held" %
              (step, norms.median(), held // 1024))
print("private: %.1f %% right (noise %.1f, clip %.1f)" % (100 * accuracy(net), NOISE, CLIP))
samples.remove()
