"""Per-sample gradients and K-FAC's statistics on a GPU: the CPU's values, autocast with a scaler, a
whole private step in a graph, memory. Run by tests/gpu/python.sh."""
import copy
import unittest

import torch
from torch import nn

import optc.torch
from singles import Tied, squares


def networks():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(4, 8, 3, padding=1, groups=2, padding_mode="reflect"),
                        nn.GroupNorm(2, 8), nn.ReLU(inplace=True), nn.Conv2d(8, 16, 3, stride=2),
                        nn.Flatten(), nn.Linear(144, 32), nn.LayerNorm(32), nn.Linear(32, 5))
    return net, copy.deepcopy(net).cuda()


@unittest.skipUnless(torch.cuda.is_available(), "no GPU")
class Cuda(unittest.TestCase):
    def near(self, a, b, bound=1e-4):
        torch.testing.assert_close(a.cpu().float(),
                                   b.cpu().float(), rtol=bound, atol=bound * b.abs().max().item())

    def both(self, a, b, x, y):
        found = []
        for net, x, y in ((a, x, y), (b, x.cuda(), y.cuda())):
            with optc.torch.per_sample(net, loss="mean") as samples:
                net.zero_grad()
                squares(net(x), y).backward()
                found.append((samples.grads(), samples.norms(each=True), samples.norms(),
                              samples.clip(1.0), [p.grad for p in net.parameters()]))
        for name in found[0][0]:
            self.near(found[1][0][name], found[0][0][name])
            self.near(found[1][1][name], found[0][1][name])
        self.assertEqual(found[1][2].device.type, "cuda")
        for k in (2, 3):
            self.near(found[1][k], found[0][k])
        for p, q in zip(found[1][4], found[0][4]):
            self.near(p, q)

    def test_samples(self):
        torch.backends.cudnn.allow_tf32 = False
        self.both(*networks(), torch.randn(6, 4, 8, 8), torch.randn(6, 5))
        for d, t in ((6, 9), (32, 3)):
            torch.manual_seed(0)
            m = Tied(vocab=64, d=d, again=True)
            self.both(m,
                      copy.deepcopy(m).cuda(), torch.randint(0, 64, (5, t)), torch.randn(5, t, 64))

    def test_autocast(self):
        """Under a scaler, in f16: what is said to be the scale is taken out, sums are f32's. All
        samples together are torch's own gradient of the same backward."""
        _, net = networks()
        x, y = torch.randn(6, 4, 8, 8, device="cuda"), torch.randn(6, 5, device="cuda")
        scaler = torch.amp.GradScaler("cuda", init_scale=256.0)
        with optc.torch.per_sample(net, loss="mean") as samples:
            with torch.autocast("cuda", torch.float16):
                loss = squares(net(x), y)
            scaler.scale(loss).backward()
            samples.scale = scaler.get_scale()
            for name, g in samples.grads().items():
                self.assertEqual(g.dtype, torch.float32)
                own = net.get_parameter(name).grad / 256
                self.assertLess(((g.mean(0) - own).norm() / own.norm()).item(), 1e-2, name)

    def test_graph(self):
        """Forward, backward, clip and step in one graph."""
        torch.manual_seed(0)
        nets = [Tied(vocab=64, d=16).cuda() for _ in range(2)]
        nets[1].load_state_dict(nets[0].state_dict())
        opts = [optc.torch.SGD(n.parameters(), lr=0.05, momentum=0.9) for n in nets]
        both = [optc.torch.per_sample(n, loss="mean") for n in nets]
        x, y = torch.randint(0, 64, (5, 4), device="cuda"), torch.randn(5, 4, 64, device="cuda")

        def once(k):
            opts[k].zero_grad(set_to_none=False)
            squares(nets[k](x), y).backward()
            both[k].clip(1.0, divide_by=5)
            opts[k].step()
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                once(1)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            once(1)
        for _ in range(5):
            graph.replay()
        for _ in range(8):
            once(0)
        for p, q in zip(*(n.parameters() for n in nets)):
            torch.testing.assert_close(p, q, rtol=1e-4, atol=1e-4)

    def test_memory(self):
        """Norms and the sum of an embedding and a head of 100 000 rows need no gradient of a
        sample."""
        m = nn.Sequential(nn.Embedding(100000, 64), nn.Linear(64, 100000, bias=False)).cuda()
        x = torch.randint(0, 100000, (16, 2), device="cuda")
        with optc.torch.per_sample(m, loss="mean") as samples:
            m(x).square().sum((1, 2)).mean().backward()
            torch.cuda.synchronize()
            torch.cuda.reset_peak_memory_stats()
            before = torch.cuda.memory_allocated()
            samples.clip(1.0)
            one = 100000 * 64 * 4
            # a gradient a sample: 32
            self.assertLess(torch.cuda.max_memory_allocated() - before, 8 * one)
        torch.cuda.synchronize()
        del samples
        self.assertLess(torch.cuda.memory_allocated(), before)

    def test_two_devices(self):
        """A model on the CPU and on the GPU: one norm for both."""
        torch.manual_seed(0)
        a, b = nn.Linear(6, 8), nn.Linear(8, 3)

        class Both(nn.Module):
            def __init__(self, device):
                super().__init__()
                self.a, self.b = copy.deepcopy(a), copy.deepcopy(b).to(device)

            def forward(self, x):
                return self.b(torch.tanh(self.a(x)).to(self.b.weight.device)).to(x.device)
        x, y, found = torch.randn(5, 6), torch.randn(5, 3), []
        for device in ("cpu", "cuda"):
            m = Both(device)
            with optc.torch.per_sample(m, loss="mean") as samples:
                squares(m(x), y).backward()
                found.append([samples.clip(0.5), *(p.grad for p in m.parameters())])
        for p, q in zip(*found):
            self.near(p, q)

    def test_compiled(self):
        """A model that is compiled after it was hooked: hooks run beside what is compiled."""
        _, net = networks()
        x, y, found = torch.randn(6, 4, 8, 8, device="cuda"), torch.randn(6, 5, device="cuda"), []
        with optc.torch.per_sample(net, loss="mean") as samples:
            for run in (net, torch.compile(net, backend="aot_eager")):
                net.zero_grad()
                squares(run(x), y).backward()
                found.append([samples.clip(1.0), *(p.grad.clone() for p in net.parameters())])
        for p, q in zip(*found):
            self.near(p, q)

    def test_kfac(self):
        torch.backends.cudnn.allow_tf32 = False
        a, b = networks()
        x, y, found = torch.randn(6, 4, 8, 8), torch.randn(6, 5), []
        for net, x, y in ((a, x, y), (b, x.cuda(), y.cuda())):
            with optc.torch.kfac_inputs(net, loss="mean") as stats:
                squares(net(x), y).backward()
                stats.update()
                found.append([f for name in stats.layers for f in stats.factors(name)])
                stats.precondition(damping=1.0)
                found[-1] += [p.grad for p in net.parameters()]
        for p, q in zip(*found):
            self.near(p, q, 1e-3)


if __name__ == "__main__":
    unittest.main()
