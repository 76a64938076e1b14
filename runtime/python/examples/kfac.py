"""K-FAC before SGD: gradients of convolutions and linear layers are multiplied by the inverses of
both factors. Compares it with plain SGD. The labels for the factors are drawn from the model (the
Fisher matrix)."""
import optc.torch
import torch
from bars import accuracy, data, fresh
from torch.nn import functional as F

x, y, _ = data(0, 2048)
for name, curved, lr in (("SGD", False, 0.05), ("K-FAC, then SGD", True, 0.02)):
    net, g = fresh(), torch.Generator().manual_seed(0)
    opt = optc.torch.SGD(net.parameters(), lr=lr, momentum=0.9)
    with optc.torch.kfac_inputs(net, loss="mean") as stats:
        for step in range(40):
            part = torch.randint(0, len(x), (64,), generator=g)
            if step % 4 == 0 and curved:
                logits = net(x[part])
                drawn = torch.multinomial(logits.detach().softmax(1), 1, generator=g).flatten()
                F.cross_entropy(logits, drawn).backward()
                stats.update()
            opt.zero_grad()
            with stats.pause():
                loss = F.cross_entropy(net(x[part]), y[part])
                loss.backward()
            if curved:
                stats.precondition(damping=0.1, inverse=lambda m: optc.torch.matrix_power(m, -1))
            opt.step()
    print(
        "%-16s loss %.3f, %.1f %% right after 40 steps" % (name, loss.item(), 100 * accuracy(net)))
print("left as they are: %s" % ", ".join(stats.rest))
