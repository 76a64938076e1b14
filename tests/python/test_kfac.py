"""K-FAC's statistics against explicit sums over samples and rows."""
import copy

import torch
from torch import nn

import optc.torch
from case import Case
from singles import Conv1D, Tied


def grads_of_outputs(m, x, loss):
    """(what a layer was given, the gradient of what it gave) of one sample at a time."""
    out = m(x)
    return torch.autograd.grad(loss(out), out)[0]


def sums(rows_a, rows_g, bias, reduce=False):
    """A and G by loops: rows_a[i], rows_g[i] are (T, width) of sample i."""
    A, G, count = 0, 0, 0
    for a, g in zip(rows_a, rows_g):
        if reduce:
            a, g = a.mean(0, keepdim=True), g.sum(0, keepdim=True)
        for t in range(len(a)):
            v = torch.cat([a[t], torch.ones(1, dtype=a.dtype)]) if bias else a[t]
            A, G, count = A + torch.outer(v, v), G + torch.outer(g[t], g[t]), count + 1
    return A / count, G / len(rows_a)


class Factors(Case):
    def near(self, got, want, bound=1e-11):
        torch.testing.assert_close(got, want, rtol=bound, atol=bound)

    def linear(self, m, shape, **given):
        """Factors of a layer alone, from its own samples' gradients."""
        torch.default_generator.manual_seed(1)
        m = m.double()
        x = torch.randn(*shape, dtype=torch.float64)

        def loss(out):
            return out.sin().flatten(1).sum(1)

        rows_g = [
            grads_of_outputs(m, x[i:i + 1], lambda o: loss(o).sum()).flatten(0, -2)
            for i in range(len(x))
        ]
        rows_a = [x[i].reshape(-1, x.shape[-1]) for i in range(len(x))]
        A, G = sums(rows_a, rows_g, m.bias is not None, given.get("rows") == "reduce")
        with optc.torch.kfac_inputs(m, loss="mean", **given) as stats:
            loss(m(x)).mean().backward()
            name, = stats.layers
            a, g = stats.inputs(name)
            self.near(a.T @ a / len(a), A)
            self.near(g.T @ g / len(x), G)
            stats.update()
            for got, want in zip(stats.factors(name), (A, G)):
                self.near(got, want)
            return stats

    def test_linear(self):
        for rows in ("expand", "reduce"):
            for shape in ((5, 4), (5, 3, 4), (1, 2, 2, 4)):
                self.linear(nn.Linear(4, 3), shape, rows=rows)
                self.linear(nn.Linear(4, 3, bias=False), shape, rows=rows)
            self.linear(Conv1D(3, 4), (5, 2, 4), rows=rows)

    def test_convolution(self):
        """Places of an image are rows; of groups each has its factors."""
        torch.default_generator.manual_seed(1)
        m = nn.Conv2d(4, 6, 3, padding=1, stride=2, groups=2).double()
        x = torch.randn(3, 4, 5, 5, dtype=torch.float64)
        # samples, places, channels * 9
        rows_a = nn.functional.unfold(x, 3, padding=1, stride=2).mT
        rows_g = [
            grads_of_outputs(m, x[i:i + 1], lambda o: o.sin().sum()).flatten(2)[0].T
            for i in range(3)
        ]
        with optc.torch.kfac_inputs(m, loss="sum") as stats:
            m(x).sin().sum().backward()
            stats.update()
            A, G = stats.factors(next(iter(stats.layers)))
            for k in range(2):
                want = sums([a[:, 18 * k:18 * k + 18] for a in rows_a],
                            [g[:, 3 * k:3 * k + 3] for g in rows_g], True)
                self.near(A[k], want[0])
                self.near(G[k], want[1])

    def test_means(self):
        """Old factors count by min(1 - 1/k, decay); what is not finite is left out; micro-batches
        are one update."""
        torch.default_generator.manual_seed(1)
        m = nn.Linear(3, 2).double()
        x = torch.randn(4, 6, 3, dtype=torch.float64)
        with optc.torch.kfac_inputs(m, loss="mean", decay=0.6) as stats:
            name, seen, got = next(iter(stats.layers)), None, None
            for k in range(4):
                a = torch.cat([x[k], torch.ones(6, 1, dtype=torch.float64)], 1)
                g, keep = 2 * m(x[k]).detach(), min(1 - 1 / (k + 1), 0.6)
                seen, got = (new if old is None else keep * old + (1 - keep) * new
                             for old, new in ((seen, a.T @ a / 6), (got, g.T @ g / 6)))
                for part in x[k].split(3):
                    m(part).square().sum(1).mean().backward()
                stats.update()
                self.near(stats.factors(name)[0], seen)
                self.near(stats.factors(name)[1], got)
            (m(x[0]) * float("inf")).sum().backward()
            stats.update()
            self.near(stats.factors(name)[0], seen)
            m(x[:1, :0]).sum().backward()                  # no samples
            stats.update()
            self.near(stats.factors(name)[0], seen)
            self.assertEqual(stats.updates[name], 5)

    def test_one_call_in_two_backwards(self):
        """The gradients of one sample add: not their squares."""
        m = nn.Linear(3, 2).double()
        x = torch.randn(4, 3, dtype=torch.float64)
        found = []
        for once in (True, False):
            with optc.torch.kfac_inputs(m, loss="sum") as stats:
                out = m(x)
                parts = out.sin().sum(), out.cos().sum()
                sum(parts).backward() if once else [p.backward(retain_graph=True) for p in parts]
                found.append(stats.inputs("(the model)")[1])
        self.near(*found)

    def test_precondition(self):
        """(A (x) G + their ridges)^-1 of the whole gradient, by the Kronecker product itself."""
        torch.default_generator.manual_seed(1)
        for m, shape in ((nn.Linear(4,
                                    3), (7, 4)), (nn.Linear(4, 3, bias=False), (7, 2, 4)), (Conv1D(
                                        3, 4), (7, 4)), (nn.Conv1d(2, 3, 2), (7, 2, 4)), (nn.Conv1d(
                                            4, 6, 2, groups=2), (7, 4, 3))):
            m = m.double()
            net = nn.Sequential(
                m,
                nn.LayerNorm(m(torch.zeros(shape, dtype=torch.float64)).shape[-1]).double())
            with optc.torch.kfac_inputs(net, loss="mean") as stats:
                self.assertEqual(stats.rest, ["1.weight", "1.bias"])
                net(torch.randn(shape,
                                dtype=torch.float64)).sin().flatten(1).sum(1).mean().backward()
                before = [p.grad.clone() for p in net.parameters()]
                stats.update()
                A, G = (x if x.dim() == 3 else x[None] for x in stats.factors("0"))
                stats.precondition(damping=0.01)
            w = before[0].T if isinstance(m, Conv1D) else before[0]
            got = m.weight.grad.T if isinstance(m, Conv1D) else m.weight.grad
            groups = len(A)
            for k in range(groups):
                grad, new = (
                    y.reshape(groups, -1, A.shape[-1] - (m.bias is not None))[k] for y in (w, got))
                if m.bias is not None:
                    grad, new = (torch.cat([y, b.view(groups, -1, 1)[k]], 1)
                                 for y, b in ((grad, before[1]), (new, m.bias.grad)))
                pi = ((A[k].trace() / len(A[k])) / (G[k].trace() / len(G[k]))).sqrt()
                both = torch.kron(G[k] + 0.1 / pi * torch.eye(len(G[k])),
                                  A[k] + 0.1 * pi * torch.eye(len(A[k])))
                self.near(new.reshape(-1), torch.linalg.solve(both, grad.reshape(-1)), 1e-8)
            self.near(net[1].weight.grad, before[-2])

    def test_inverse(self):
        """By another inverse: the library's power."""
        torch.default_generator.manual_seed(1)
        m, found = nn.Conv1d(4, 6, 2, groups=2), []
        with optc.torch.kfac_inputs(m, loss="mean") as stats:
            m(torch.randn(7, 4, 3)).sin().flatten(1).sum(1).mean().backward()
            grads = [p.grad.clone() for p in m.parameters()]
            stats.update()
            for inverse in (None, lambda x: optc.torch.matrix_power(x, -1)):
                for p, g in zip(m.parameters(), grads):
                    p.grad.copy_(g)
                stats.precondition(0.1, inverse)
                found.append([p.grad.clone() for p in m.parameters()])
        for a, b in zip(*found):
            self.near(a, b, 1e-4)

    def test_refused(self):
        for m, given, said in ((Tied(), {}, "wte and head"), (nn.Linear(
                2, 2), {"rows": "all"}, "rows="), (nn.Linear(2, 2), {"decay": 1.0}, "decay"),
                               (nn.Linear(2, 2), {"loss": "max"}, "loss=")):
            with self.assertRaisesRegex(ValueError, said):
                optc.torch.kfac_inputs(m, **{"loss": "mean", **given})
        with optc.torch.kfac_inputs(Tied(), loss="mean", leave_out=["head", "wte"]) as stats:
            self.assertEqual(list(stats.layers), ["mid"])
        m = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3), nn.Linear(3, 1))
        with optc.torch.kfac_inputs(m, loss="mean") as stats:
            self.assertEqual(stats.rest, ["1.weight", "1.bias"])
            for call, kind, said in ((lambda: stats.factors("9"), KeyError, "no layer"),
                                     (lambda: stats.factors("0"), RuntimeError, "no factors yet"),
                                     (stats.update, RuntimeError, "nothing yet")):
                with self.assertRaisesRegex(kind, said):
                    call()
            m(torch.randn(4, 3)).mean().backward()
            stats.update()
            with self.assertRaisesRegex(ValueError, "damping"):
                stats.damped("0", 0.0)
            m[0].bias.requires_grad_(False)
            m(torch.randn(4, 3)).mean().backward()
            with self.assertRaisesRegex(RuntimeError, "frozen or unfrozen"):
                stats.update()

    def test_saved(self):
        m = nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 5))
        with optc.torch.kfac_inputs(m, loss="mean") as stats:
            m(torch.randn(4, 3)).square().mean().backward()
            stats.update()
            with optc.torch.kfac_inputs(m, loss="mean") as other:
                other.load_state_dict(copy.deepcopy(stats.state_dict()))
                self.near(other.factors("1")[1], stats.factors("1")[1])
                self.assertEqual(other.updates, {"0": 1, "1": 1})
                bad = stats.state_dict()
                bad["factors"]["0"] = bad["factors"]["1"]
                with self.assertRaisesRegex(ValueError, "'0' are of another size"):
                    other.load_state_dict(bad)

    def test_training(self):
        """Badly scaled inputs: SGD crawls, a step by the Fisher matrix (labels that the model
        draws) does not mind."""
        torch.default_generator.manual_seed(1)
        scales = torch.tensor([30.0, 10.0, 3.0, 1.0, 0.3, 0.1])
        x = torch.randn(64, 6) * scales
        y = x @ (torch.randn(6, 2) / scales[:, None])
        ends = []
        for curved in (False, True):
            torch.default_generator.manual_seed(2)
            m = nn.Linear(6, 2)
            opt = optc.torch.SGD(m.parameters(), lr=1.0 if curved else 5e-4)
            with optc.torch.kfac_inputs(m, loss="mean") as stats:
                for _ in range(20):
                    out = m(x)
                    drawn = out.detach() + 0.5 ** 0.5 * torch.randn_like(out)
                    (out - drawn).square().sum(1).mean().backward()
                    stats.update()
                    opt.zero_grad()
                    with stats.pause():
                        loss = (m(x) - y).square().sum(1).mean()
                        loss.backward()
                    if curved:
                        stats.precondition(damping=1e-4)
                    opt.step()
                ends.append(loss.item())
        self.assertLess(ends[1], ends[0] / 100)
