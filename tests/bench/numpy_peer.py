#!/usr/bin/env python3
"""Rules with factors in NumPy, for `optc bench --device cpu --against numpy`, which alternates
rounds with them.

    numpy_peer.py cpu THREADS TYPE HOW        TYPE: f32 or f64

tests/bench/lines.py describes the protocol. NumPy's BLAS and LAPACK use THREADS threads. Factors
are computed in f64, like optc's.
    shampoo          specs/shampoo.lua with its defaults; blocks are staggered like there, equal
                     shapes in sequence
    factor           tests/bench/factor.lua
"""
import concurrent.futures
import ctypes
import glob
import os
import sys
import time

from lines import options_of, places_of, reason, say, serve, shapes_of

for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[name] = sys.argv[2] if len(sys.argv) > 2 else "1"
try:
    import numpy as np
except Exception as e:
    say(f"none {reason(e)}")
    sys.exit(0)

TYPES = {"f32": np.float32, "f64": np.float64}


def root(a, ridge=0.0):
    w, q = np.linalg.eigh(a.astype(np.float64) + ridge * np.eye(a.shape[-1]))
    return (q * np.maximum(w, 1e-300)[..., None, :] ** -0.25) @ np.swapaxes(q, -1, -2)


class Shampoo:
    lr, beta1, beta2, eps, relative, graft_eps = 1e-3, 0.9, 0.999, 1e-12, 1e-6, 1e-8

    def __init__(self, params, grads, interval=50, side=1024, limit=8192):
        self.params, self.grads, self.interval, self.t = params, grads, interval, 0
        self.m, self.v, self.d = ([np.zeros_like(p) for p in params] for _ in range(3))
        self.long, self.blocks = {}, [[] for _ in params]
        for i, p in enumerate(params):
            if p.ndim != 2:
                continue
            for axis, n in enumerate(p.shape):
                if n > limit:
                    self.long[i, axis] = np.zeros(n, p.dtype)
            for r in range(0, p.shape[0], side):
                for c in range(0, p.shape[1], side):
                    at = slice(r, min(r + side, p.shape[0])), slice(c, min(c + side, p.shape[1]))
                    sides = [
                        None if (i, axis) in self.long else [
                            np.zeros((s.stop - s.start,) * 2, p.dtype),
                            np.eye(s.stop - s.start, dtype=p.dtype)
                        ] for axis, s in enumerate(at)
                    ]
                    self.blocks[i].append([at, sides, 0])
        cost = sorted((b for blocks in self.blocks for b in blocks),
                      key=lambda b: -sum(len(s[0]) ** 3 for s in b[1] if s))
        for k, b in enumerate(cost):
            b[2] = k % interval

    def matrix(self, i, u, seen):
        g, x, out = self.grads[i], u, np.empty_like(u)
        for axis in range(2):
            if (i, axis) in self.long:
                s = self.long[i, axis]
                s += (1 - self.beta2) * ((g * g).sum(1 - axis) - s)
                x = x * np.expand_dims((s / seen + self.eps) ** -0.25, 1 - axis)
        for at, sides, slot in self.blocks[i]:
            h, y = g[at], x[at]
            for axis, s in enumerate(sides):
                if s is None:
                    continue
                h = np.ascontiguousarray(g[at] if axis == 0 else g[at].T)
                # h @ h.T is half a product there, too
                s[0] += (1 - self.beta2) * (h @ h.T - s[0])
                if self.t % self.interval == slot:
                    a = s[0] / seen
                    s[1][:] = root(a, self.eps + self.relative * np.abs(a).sum(1).max())
            y = y if sides[0] is None else sides[0][1] @ y
            out[at] = y if sides[1] is None else y @ sides[1][1]
        return out

    def step(self):
        self.t += 1
        first, seen = 1 - self.beta1 ** self.t, 1 - self.beta2 ** self.t
        for i, (p, g, m, v) in enumerate(zip(self.params, self.grads, self.m, self.v)):
            m += (1 - self.beta1) * (g - m)
            v += (1 - self.beta2) * (g * g - v)
            u = m / first
            if p.ndim == 2:
                x = self.matrix(i, u, seen)
            else:
                self.d[i] += (1 - self.beta2) * (g * g - self.d[i])
                x = u / np.sqrt(self.d[i] / seen + self.eps)
            like = u / (np.sqrt(v / seen) + self.graft_eps)
            p -= self.lr * (np.linalg.norm(like) / max(np.linalg.norm(x), 1e-30)) * x


def blas_threads():
    """What sets them in the OpenBLAS that NumPy brings along; None: it is another."""
    for path in glob.glob(
            os.path.join(os.path.dirname(np.__file__), "..", "numpy.libs", "*openblas*")):
        library = ctypes.CDLL(path)
        for name in ("scipy_openblas_set_num_threads64_", "openblas_set_num_threads64_",
                     "openblas_set_num_threads"):
            if hasattr(library, name):
                return getattr(library, name)
    return None


class Factor:
    """The faster of two ways: one call for all matrices, whose LAPACK has the threads, or a thread
    for some of them each."""
    def __init__(self, params, grads, what="power"):
        self.a = np.stack(
            [g.astype(np.float64) @ g.T.astype(np.float64) + np.eye(len(g)) for g in grads])
        self.do = {
            "power": root, "eigh": np.linalg.eigh, "qr": np.linalg.qr, "chol": np.linalg.cholesky
        }[what]
        self.threads, self.set_threads = int(sys.argv[2]), blas_threads()
        self.pool = concurrent.futures.ThreadPoolExecutor(self.threads)
        self.parts = np.array_split(self.a, self.threads)
        self.apart = False
        self.how = "LAPACK's threads"
        if self.set_threads and self.threads > 1:
            one = min(self.timed() for _ in range(3))
            self.set_threads(1)
            self.apart = True
            if min(self.timed() for _ in range(3)) < one:
                self.how = "a matrix a thread"
            else:
                self.set_threads(self.threads)
                self.apart = False

    def timed(self):
        start = time.perf_counter()
        self.step()
        return time.perf_counter() - start

    def step(self):
        self.x = list(self.pool.map(self.do, self.parts)) if self.apart else self.do(self.a)


RULES = {"shampoo": (Shampoo, {"interval", "side", "limit"}), "factor": (Factor, {"what"})}


class Peer:
    def __init__(self, dtype):
        self.dtype, self.runs, self.p, self.g = dtype, {}, None, None

    def open(self, key, elements, shapes, graph, rule, wrappers=""):
        path, options = options_of(rule)
        rule = os.path.basename(path).removesuffix(".lua")
        if rule not in RULES or wrappers:
            return f"none {rule} {wrappers} is not written in NumPy here"
        make, takes = RULES[rule]
        if not set(options) <= takes:
            beside = ', '.join(sorted(takes))
            return f"none options of {rule} beside {beside} have other names there"
        if self.p is None or len(self.p) < int(elements):
            source = np.random.default_rng(0)
            self.p, self.g = (
                source.uniform(-x, x, int(elements)).astype(self.dtype) for x in (1, 0.0625))
        shapes = shapes_of(shapes)
        views = [[a[at:at + int(np.prod(s))].reshape(s) for at, s in zip(places_of(shapes), shapes)]
                 for a in (self.p, self.g)]
        self.runs[key] = make(*views, **options)
        start = time.perf_counter()
        self.runs[key].step()
        self.count = max(1, min(100000, int(0.004 / max(time.perf_counter() - start, 1e-8))))
        how = getattr(self.runs[key], "how", "one block after another")
        return f"ok NumPy {rule}, {self.dtype.__name__}, factors in float64, {how}"

    def step(self, key, steps="0"):
        count = int(steps) or self.count
        start = time.perf_counter()
        for _ in range(count):
            self.runs[key].step()
        seconds = (time.perf_counter() - start) / count
        return f"{seconds * 1e3!r} {seconds * 1e6!r}"

    def close(self, key):
        self.runs.pop(key, None)
        return "ok"


def main():
    if len(sys.argv) != 5 or sys.argv[1] != "cpu" or sys.argv[3] not in TYPES:
        say("none it steps f32 and f64 on the CPU alone")
        return
    serve(Peer(TYPES[sys.argv[3]]), f"NumPy {np.__version__}")


if __name__ == "__main__":
    main()
