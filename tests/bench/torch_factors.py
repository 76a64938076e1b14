"""Shampoo and SOAP for torch_peer.py: written in plain torch, and SOAP from other packages.

Each class has step(). It takes parameters whose .grad does not move, and the options of the rule of
that name in specs/. The packages are installed ones or those in build/peers (tests/bench/peers.sh):
pure Python that needs only torch.
"""
import contextlib
import os
import signal
import sys

import torch

sys.path.append(
    os.environ.get("OPTC_PEERS") or
    os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "build", "peers"))


class Shampoo:
    """specs/shampoo.lua with its defaults: EMAs, fourth roots, as long as Adam's steps. Blocks and
    their products one after another, what is elementwise by foreach; roots by torch.linalg.eigh of
    one block after another, all at one step, as in facebookresearch/optimizers and
    pytorch_optimizer."""
    lr, beta1, beta2, eps, relative, graft_eps, decay = 1e-3, 0.9, 0.999, 1e-12, 1e-6, 1e-8, 0
    warm = 2                                     # steps until all that a period does has been done
    takes = {"interval", "side", "limit", "stagger"}

    def __init__(self, params, interval=50, side=1024, limit=8192, stagger=True):
        self.params, self.grads, self.period, self.t = params, [p.grad for p in params], interval, 0
        self.m = [torch.zeros_like(p) for p in params]
        self.v = [torch.zeros_like(p) for p in params]
        self.rest = [i for i, p in enumerate(params) if p.dim() != 2]
        self.d = [torch.zeros_like(params[i]) for i in self.rest]
        # (parameter, rows, columns, [L, X], [R, Y]); (parameter, axis, sum of squares)
        self.blocks, self.long = [], []
        new = {"device": params[0].device, "dtype": params[0].dtype}
        for i, p in enumerate(params):
            if p.dim() != 2:
                continue
            rows, cols = p.shape
            self.long += [
                (i, axis, torch.zeros(n, **new)) for axis, n in enumerate((rows, cols)) if n > limit
            ]
            for r in range(0, rows, side):
                for c in range(0, cols, side):
                    down, across = slice(r, min(r + side, rows)), slice(c, min(c + side, cols))
                    pair = [[torch.zeros(n, n, **new), None] if whole <= limit else None
                            for n, whole in ((down.stop - r, rows), (across.stop - c, cols))]
                    self.blocks.append((i, down, across, *pair))

    def root(self, a, seen):
        a = a / seen
        ridge = self.eps + self.relative * a.abs().sum(1).max()
        w, q = torch.linalg.eigh(a + ridge * torch.eye(len(a), device=a.device, dtype=a.dtype))
        return (q * w.clamp_min(self.eps) ** -0.25) @ q.T

    @torch.no_grad()
    def step(self):
        self.t += 1
        first, seen = 1 - self.beta1 ** self.t, 1 - self.beta2 ** self.t
        torch._foreach_lerp_(self.m, self.grads, 1 - self.beta1)
        torch._foreach_mul_(self.v, self.beta2)
        torch._foreach_addcmul_(self.v, self.grads, self.grads, value=1 - self.beta2)
        roots = self.t == 1 or self.t % self.period == 0
        u = torch._foreach_div(self.m, first)
        like = torch._foreach_div(self.v, seen)
        torch._foreach_sqrt_(like)
        torch._foreach_add_(like, self.graft_eps)
        like = torch._foreach_div(u, like)
        x = list(u)
        for i, axis, s in self.long:
            s.mul_(self.beta2).add_((self.grads[i] ** 2).sum(1 - axis), alpha=1 - self.beta2)
            x[i] = x[i] * (s / seen + self.eps).pow(-0.25).unsqueeze(1 - axis)
        out = [torch.empty_like(p) if p.dim() == 2 else None for p in self.params]
        for i, down, across, left, right in self.blocks:
            g, y = self.grads[i][down, across], x[i][down, across]
            for side, h in ((left, g), (right, g.T)):
                if side:
                    side[0].addmm_(h, h.T, beta=self.beta2, alpha=1 - self.beta2)
                    if roots:
                        side[1] = self.root(side[0], seen)
            y = left[1] @ y if left else y
            out[i][down, across] = y @ right[1] if right else y
        self.vectors(u, seen, out)
        size, own = torch._foreach_norm(like), torch._foreach_norm(out)
        torch._foreach_clamp_min_(own, 1e-30)
        torch._foreach_div_(size, own)
        torch._foreach_mul_(out, size)
        if self.decay:
            torch._foreach_add_(out, self.params, alpha=self.decay)
        torch._foreach_add_(self.params, out, alpha=-self.lr)

    def vectors(self, u, seen, out):
        if not self.rest:
            return
        grads = [self.grads[i] for i in self.rest]
        torch._foreach_mul_(self.d, self.beta2)
        torch._foreach_addcmul_(self.d, grads, grads, value=1 - self.beta2)
        root = torch._foreach_div(self.d, seen)
        torch._foreach_add_(root, self.eps)
        torch._foreach_sqrt_(root)
        for i, x in zip(self.rest, torch._foreach_div([u[i] for i in self.rest], root)):
            out[i] = x


class Soap:
    """specs/soap.lua with its defaults, which are the authors': sides beyond `limit` have no basis;
    what is no matrix is AdamW's."""
    lr, beta1, beta2, beta3, eps, decay = 3e-3, 0.95, 0.95, 0.95, 1e-8, 0.01
    warm = 12
    takes = {"interval", "limit", "start", "stagger"}

    def __init__(self, params, interval=10, limit=4096, start="eigh", stagger=False):
        self.params, self.period, self.t, self.start = [p for p in params if p.dim() == 2
                                                        ], interval, 0, start
        rest = [p for p in params if p.dim() != 2]
        self.rest = torch.optim.AdamW(rest, foreach=True) if rest else None
        self.state = []
        for p in self.params:
            grams = [
                torch.zeros(n, n, device=p.device, dtype=p.dtype) if n <= limit else None
                for n in p.shape
            ]
            bases = [
                None if a is None else torch.eye(len(a), device=p.device, dtype=p.dtype)
                for a in grams
            ]
            self.state.append((torch.zeros_like(p), torch.zeros_like(p), grams, bases))

    def into(self, x, q):
        x = x if q[0] is None else q[0].T @ x
        return x if q[1] is None else x @ q[1]

    def back(self, x, q):
        x = x if q[0] is None else q[0] @ x
        return x if q[1] is None else x @ q[1].T

    def turn(self, m, v, grams, q):
        u = self.back(m, q)
        for axis, a in enumerate(grams):
            if a is None:
                continue
            b = a @ q[axis]
            order = torch.argsort((q[axis] * b).sum(0), descending=True)
            v.copy_(v.index_select(axis, order))
            found, r = torch.linalg.qr(b.index_select(1, order))
            q[axis] = found * torch.where(r.diagonal() < 0, -1.0, 1.0).to(r.dtype)
        m.copy_(self.into(u, q))

    @torch.no_grad()
    def step(self):
        self.t += 1
        k = self.t - 1
        if self.rest:
            self.rest.step()
        for p, (m, v, grams, q) in zip(self.params, self.state):
            g = p.grad
            if k:
                h = self.into(g, q)
                m.lerp_(h, 1 - self.beta1)
                v.mul_(self.beta2).addcmul_(h, h, value=1 - self.beta2)
                x = self.back(m / v.sqrt().add_(self.eps), q)
                p.add_(x, alpha=-self.lr * (1 - self.beta2 ** k) ** 0.5 / (1 - self.beta1 ** k))
                p.mul_(1 - self.lr * self.decay)
            for a, h in zip(grams, (g, g.T)):
                if a is not None:
                    a.addmm_(h, h.T, beta=self.beta3, alpha=1 - self.beta3)
            if not k and self.start == "eigh":
                q[:] = [None if a is None else torch.linalg.eigh(a)[1].flip(1) for a in grams]
            elif k and k % self.period == 0:
                self.turn(m, v, grams, q)


class Foreign:
    """Another's optimizer: its gradients are put back, since one of them takes them away."""
    warm = Soap.warm
    takes = Soap.takes

    def __init__(self, params, interval, optimizer):
        self.params, self.grads, self.period, self.optimizer = params, [p.grad for p in params
                                                                        ], interval, optimizer

    def step(self):
        for p, g in zip(self.params, self.grads):
            p.grad = g
        self.optimizer.step()


def pytorch_optimizer_soap(params, interval=10, limit=4096, start="eigh", stagger=False):
    from pytorch_optimizer.optimizer.soap import SOAP
    return Foreign(
        params, interval,
        SOAP(params, lr=Soap.lr, betas=(Soap.beta1, Soap.beta2), shampoo_beta=Soap.beta3,
             eps=Soap.eps, weight_decay=Soap.decay, precondition_frequency=interval,
             max_precondition_dim=limit))


def heavyball_soap(params, interval=10, limit=4096, start="eigh", stagger=False, compiled=False):
    import heavyball
    # the first is its default
    heavyball.utils.compile_mode = "max-autotune-no-cudagraphs" if compiled else None
    return Foreign(
        params, interval,
        heavyball.SOAP(params, lr=Soap.lr, betas=(Soap.beta1, Soap.beta2), shampoo_beta=Soap.beta3,
                       eps=Soap.eps, weight_decay=Soap.decay, precondition_frequency=interval,
                       max_precond_dim=limit, merge_dims=False))


def heavyball_compiled(params, **options):
    return heavyball_soap(params, **options, compiled=True)


# seconds that torch.compile may take for a peer; 0: none is tried
COMPILING = int(os.environ.get("OPTC_PEER_COMPILE") or 30)
# rule: its ways, by name; a way that takes long to get ready is last and bounded. Those of the
# packages come first: ours is timed where none is there
WAYS = {
    "shampoo": {"plain": Shampoo}, "soap": {
        "pytorch_optimizer": pytorch_optimizer_soap, "heavyball": heavyball_soap,
        **({"compiled heavyball": heavyball_compiled} if COMPILING > 0 else {}), "plain": Soap
    },
}
TAKES = {"shampoo": Shampoo.takes, "soap": Soap.takes}


def ways(rule, gpu):
    """Names, of what is to be tried: the plain one beside others only where they are not there."""
    from importlib.util import find_spec
    there = [w for w in WAYS[rule] if w != "plain" and find_spec(w.split()[-1])]
    return [w for w in there if gpu or not w.startswith("compiled")] or ["plain"]


class Late(BaseException):
    """A peer took too long to compile. Not an Exception: torch's autotuner catches those and goes
    on compiling."""


@contextlib.contextmanager
def bounded(way, seconds=COMPILING):
    """Raises TimeoutError when a compiled peer is not ready after `seconds`. The timer repeats,
    since code that catches everything may swallow the first signal."""
    def late(*_):
        raise Late

    if not way.startswith("compiled"):
        yield
        return
    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, seconds, min(seconds, 2))
    try:
        yield
    except Late:
        raise TimeoutError(f"{way} took more than {seconds} s to get ready") from None
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
