"""Runs the topics of Torchium's CUDA guide with optc and with torch. Prints the best time of a few
runs and the error against float64. Uses a GPU if there is one, otherwise the CPU.

    python guide.py [powers kron batched per_sample kfac bounded memory own mixed layout shampoo]
    default: all
"""
import sys
import time

import optc.torch
import torch
from small import fresh, loss_of

DEVICE, WHY = optc.torch.best_device(why=True)
GPU = DEVICE.type == "cuda"


# ---- how things are compared ----
def least(f, tries=3):
    """(milliseconds, result), the least of some tries after one that warms up."""
    found, best = f(), float("inf")
    for _ in range(tries):
        sync()
        t0 = time.perf_counter()
        found = f()
        sync()
        best = min(best, 1e3 * (time.perf_counter() - t0))
    return best, found


def sync():
    if GPU:
        torch.cuda.synchronize()


def off(x, exact):
    """Largest difference, of the largest value."""
    return ((x.double().cpu() - exact).abs().max() / exact.abs().max()).item()


def compare(what, ours, torchs, exact=None):
    (a, x), (b, y) = least(ours), least(torchs)
    exact = y.double().cpu() if exact is None else exact
    print("  %-44s optc %9.3f ms, off by %.1e   torch %9.3f ms, off by %.1e" % (
        what, a, off(x, exact), b, off(y, exact)))


def random(*shape, dtype=torch.float32):
    return torch.randn(shape, generator=torch.Generator().manual_seed(len(shape))).to(DEVICE, dtype)


def covariance(*shape):
    """Symmetric and positive, as Shampoo's and K-FAC's statistics are."""
    x = random(*shape, 2 * shape[-1])
    return x @ x.mT / x.shape[-1]


# ---- matrix operations ----
def torch_power(A, r, eps):
    w, V = torch.linalg.eigh(A)
    return V @ torch.diag_embed((w + eps) ** r) @ V.mT


def powers():
    """Shampoo's inverse fourth roots, one matrix and a batch."""
    for shape in ((100,), (256,), (24, 64)):
        G = covariance(*shape)
        compare("G ** -1/4 of %s" % "x".join(map(str, shape + shape[-1:])),
                lambda: optc.torch.matrix_power(G, -1 / 4, ridge=1e-8),
                lambda: torch_power(G, -1 / 4, 1e-8), torch_power(G.double().cpu(), -1 / 4, 1e-8))
    bad = covariance(3, 32)
    bad[1, 0, 0] = float("nan")
    print("  a NaN in matrix 1 of 3: NaN in",
          optc.torch.matrix_power(bad, -1 / 4).isnan().flatten(1).any(1).tolist())


def kron():
    """The Kronecker product, and what K-FAC does in its place: a solution with each factor."""
    A, G = covariance(50), covariance(100)
    compare("kron of 50x50 and 100x100", lambda: optc.torch.kron(A, G), lambda: torch.kron(A, G))
    grad = random(100, 50)
    exact = torch.linalg.solve(
        G.double().cpu(), torch.linalg.solve(A.double().cpu(),
                                             grad.double().cpu(), left=False))
    compare("(A kron G) ** -1 grad, never made", lambda: natural(A, G, grad),
            lambda: torch.linalg.solve(G, torch.linalg.solve(A, grad, left=False)), exact)


def natural(A, G, grad):
    left = optc.torch.solve_positive(G, grad)
    return optc.torch.solve_positive(A, left.mT).mT


def batched():
    """Many small products in one call."""
    A, B = random(64, 48, 32), random(64, 32, 40)
    compare("64 products of 48x32 by 32x40", lambda: optc.torch.batched_matmul(A, B),
            lambda: torch.bmm(A, B),
            A.double().cpu() @ B.double().cpu())
    compare("Gram matrices of them", lambda: optc.torch.gram(A), lambda: torch.bmm(A, A.mT),
            A.double().cpu() @ A.double().cpu().mT)


# ---- memory ----
def bounded():
    """A @ B @ C whose middle would be large, within some bytes."""
    n = 4096 if GPU else 768
    A, B, C = random(n, n // 2), random(n // 2, n), random(n, n)
    limit = n * n                                      # a quarter of what A @ B takes
    compare("%dx%d A @ B @ C within %.1f MB" % (n, n, limit / 1e6),
            lambda: optc.torch.bounded_matmul(A, B, C, workspace=limit), lambda: A @ B @ C,
            None if GPU else A.double() @ B.double() @ C.double())
    if GPU:
        for name, f in (("optc", lambda: optc.torch.bounded_matmul(A, B, C, workspace=limit)),
                        ("torch", lambda: A @ B @ C)):
            torch.cuda.reset_peak_memory_stats()
            before = torch.cuda.memory_allocated()
            f()
            more = torch.cuda.max_memory_allocated() - before
            print("  %s at most %.1f MB more than there was" % (name, more / 1e6))


def memory():
    m = optc.torch.memory_info(DEVICE)
    print("  " + ", ".join("%s %.2f GB" % (k, v / 1e9) for k, v in m.items()))
    print("  best device: %s (%s)" % (DEVICE, WHY))


# ---- per-sample gradients, K-FAC's statistics ----
def small_net():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(10, 64), torch.nn.Tanh(),
                               torch.nn.Linear(64, 4)).to(DEVICE)


def per_sample():
    """The gradient of every sample in one backward, compared with torch.func's vmap of grad."""
    net, plain, x, y = small_net(), small_net(), random(32, 10), random(32, 4)
    samples = optc.torch.per_sample(net, loss="sum")

    def ours():
        net.zero_grad()
        samples.clear()
        ((net(x) - y) ** 2).sum().backward()
        return samples.grad("0.weight")

    def loss(params, x, y):
        return ((torch.func.functional_call(plain, params, (x,)) - y) ** 2).sum()
    params = {n: p.detach() for n, p in plain.named_parameters()}
    single = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0, 0))
    compare("gradients of 32 samples", ours, lambda: single(params, x, y)["0.weight"])
    ours()
    norms = samples.clip(1.0)
    print("  norms of samples %.2f to %.2f, clipped to 1 and summed in p.grad" %
          (norms.min(), norms.max()))
    samples.remove()


def kfac():
    """K-FAC: factors by hooks, the gradient between their inverses, which are matrix_power's."""
    net, x, y = small_net(), random(64, 10), random(64, 4)
    with optc.torch.kfac_inputs(net, loss="mean") as stats:
        ((net(x) - y) ** 2).sum(1).mean().backward()
        stats.update()
        A, G = stats.damped("2", 1e-2)
        grad = torch.cat([net[2].weight.grad, net[2].bias.grad[:, None]], 1)
        exact = torch.linalg.solve(G.double(),
                                   torch.linalg.solve(A.double(), grad.double(), left=False)).cpu()
        keep = [p.grad.clone() for p in net.parameters()]

        def ours(inverse):
            for p, g in zip(net.parameters(), keep):
                p.grad.copy_(g)
            stats.precondition(1e-2, inverse)
            return torch.cat([net[2].weight.grad, net[2].bias.grad[:, None]], 1)

        compare("G^-1 grad A^-1 of two layers",
                lambda: ours(lambda x: optc.torch.matrix_power(x, -1)),
                lambda: ours(torch.linalg.inv), exact)


# ---- own kernels, mixed precision, layout ----
def own():
    """A kernel of one's own is a spec of a few lines, compiled for the device at hand: no C++, no
    CUDA, no build."""
    spec = """return optimizer { name = "powered", hyper = { lr = 0.1, q = 0.75 },
                step = function() p = p - lr * sign(g) * abs(g) ^ q end }"""
    p, g = random(1 << 20).requires_grad_(), random(1, 1 << 20)[0]
    p.grad, q = g, p.detach().clone()
    opt = optc.torch.Optimizer([p], spec=spec, lr=1e-3)

    def ours():
        opt.step()
        return p.detach()

    compare("sign(g) |g| ** 0.75 of a million", ours,
            lambda: q.sub_(g.sign() * g.abs() ** 0.75, alpha=1e-3))
    print("  it runs as:", opt.how()[0][:90])


def mixed():
    """Autocast and a scaler, whose check and unscaling are part of the step."""
    # many CPUs have no arithmetic in bf16
    kind, steps = (torch.float16, 20) if GPU else (torch.bfloat16, 5)
    for name, make, scaler in (("optc", optc.torch.AdamW, optc.torch.GradScaler),
                               ("torch", torch.optim.AdamW, torch.amp.GradScaler)):
        net = fresh(DEVICE)
        opt, scale = make(net.parameters(), lr=3e-3), scaler(DEVICE.type, init_scale=2.0 ** 10)
        t0 = time.perf_counter()
        for step in range(steps):
            opt.zero_grad()
            with torch.autocast(DEVICE.type, kind):
                loss = loss_of(net, step, DEVICE)
            scale.scale(loss).backward()
            scale.step(opt)
            scale.update()
        print("  %-6s loss %.4f after %d steps, %.0f ms" % (name, loss.item(), steps, 1e3 *
                                                            (time.perf_counter() - t0)))


def layout():
    """Channels-last weights are stepped as they lie."""
    conv = torch.nn.Conv2d(16, 32, 3).to(DEVICE).to(memory_format=torch.channels_last)
    for p in conv.parameters():
        p.grad = torch.ones_like(p)
    opt = optc.torch.AdamW(conv.parameters(), lr=1e-3)
    opt.step()
    print("  copies that channels-last weights cost: %d" % opt.copies)


# ---- a whole optimizer ----
class PlainShampoo(torch.optim.Optimizer):
    """As one would write it with torch alone: L and R, and their inverse fourth roots every so many
    steps."""

    def __init__(self, params, lr=1.0, eps=1e-4, every=5):
        super().__init__(params, {"lr": lr, "eps": eps, "every": every})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                s = self.state[p]
                if not s:
                    s.update(t=0, L=group["eps"] * torch.eye(p.shape[0], device=p.device),
                             R=group["eps"] * torch.eye(p.shape[1], device=p.device))
                s["L"] += p.grad @ p.grad.mT
                s["R"] += p.grad.mT @ p.grad
                if s["t"] % group["every"] == 0:
                    s["X"], s["Y"] = self.root(s["L"]), self.root(s["R"])
                s["t"] += 1
                p.sub_(self.precondition(s["X"], p.grad, s["Y"]), alpha=group["lr"])

    def root(self, A):
        return torch_power(A, -1 / 4, 0.0)

    def precondition(self, X, G, Y):
        return X @ G @ Y


class OurShampoo(PlainShampoo):
    """The same with functions of optc in the two dear places."""

    def root(self, A):
        return optc.torch.matrix_power(A, -1 / 4)

    def precondition(self, X, G, Y):
        return optc.torch.bounded_matmul(X, G, Y)


def shampoo():
    """A regression by Shampoo: torch alone, functions of optc in it, and the library's own rule."""
    x, w = random(256, 48), random(48, 24)
    y = x @ w
    for name, make in (("torch", PlainShampoo), ("with functions of optc", OurShampoo),
                       ("optc.torch.Shampoo", lambda p: optc.torch.Shampoo(p, lr=0.1))):
        net = torch.nn.Linear(48, 24, bias=False).to(DEVICE)
        torch.nn.init.zeros_(net.weight)
        opt = make([net.weight])

        def step():
            opt.zero_grad()
            loss = ((net(x) - y) ** 2).mean()
            loss.backward()
            opt.step()
            return loss
        first, t0 = step().item(), time.perf_counter()
        for _ in range(60):
            loss = step()
        print("  %-24s loss %.3f -> %.3f in 60 steps, %.2f ms each" % (
            name, first, loss.item(), 1e3 * (time.perf_counter() - t0) / 60))


SECTIONS = (powers, kron, batched, per_sample, kfac, bounded, memory, own, mixed, layout, shampoo)

if __name__ == "__main__":
    asked = sys.argv[1:]
    unknown = set(asked) - {f.__name__ for f in SECTIONS}
    if unknown:
        sys.exit("there is no section %s: %s" %
                 (", ".join(sorted(unknown)), " ".join(f.__name__ for f in SECTIONS)))
    print("%s: %s" % (DEVICE, WHY))
    for section in SECTIONS:
        if not asked or section.__name__ in asked:
            print(section.__name__)
            section()
