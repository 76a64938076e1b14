#!/usr/bin/env python3
"""PyTorch's optimizers, for `optc bench --against torch`, which alternates rounds with them.

    torch_peer.py DEVICE THREADS TYPE HOW
    DEVICE: cpu, cuda or cuda:N    TYPE: f32, f64, bf16, f16 HOW: alone or queued (steps on a GPU)

tests/bench/lines.py describes the protocol. Rules that are open at the same time step the same
parameters and gradients, as in optc; each rule has its own states. On the CPU torch's fused
implementation is used if there is one, otherwise foreach. On a GPU both are tried and the faster
one is used; `graph` also captures it in a CUDA graph. `close` frees everything, so that optc can
use the memory.

    OPTC_PEER_PRECISION: "highest" (default), "high" or "medium" for
    torch.set_float32_matmul_precision
"""
import gc
import math
import os
import re
import sys
import time
import warnings

from lines import options_of, places_of, reason, say, serve, shapes_of

# Large pages where the kernel hands them out on request, as optc asks for them.
os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")


try:
    import torch
except Exception as e:
    say(f"none {reason(e)}")
    sys.exit(0)
import torch_factors

TYPES = {"f32": torch.float32, "f64": torch.float64, "bf16": torch.bfloat16, "f16": torch.float16}
# rule: class, arguments beside the defaults, whether torch has a fused implementation
RULES = {
    "adamw": ("AdamW", {}, True),
    "adam": ("Adam", {}, True),
    "sgd": ("SGD", {"lr": 1e-2, "momentum": 0.9}, True),
    "adagrad": ("Adagrad", {}, True),
    "adadelta": ("Adadelta", {}, False),
    "adamax": ("Adamax", {}, False),
    "nadam": ("NAdam", {}, False),
    "radam": ("RAdam", {}, False),
    "rmsprop": ("RMSprop", {}, False),
    "adafactor": ("Adafactor", {}, False),
    "muon": ("Muon", {"lr": 0.02, "weight_decay": 0}, False),
}
# rules of matrices alone, which have one implementation; AdamW steps the rest
MATRICES = {"muon"}


def make_optimizers(rule, params, how, graph):
    name, args, _ = RULES[rule]
    if rule not in MATRICES:
        return [
            getattr(torch.optim, name)(params, **args, **{how: True},
                                       **({"capturable": True} if graph else {}))
        ]
    rest = [p for p in params if p.dim() != 2]
    return ([getattr(torch.optim, name)([p for p in params if p.dim() == 2], **args)]
            + ([torch.optim.AdamW(rest, fused=True, capturable=graph)] if rest else []))


class Cpu:
    least_seconds, least_steps = 0.004, 1        # of a sample, as tools/bench/bench_cpu.c has them

    def time(self, step, count):
        """Seconds a step, and those of them in which the caller waits."""
        start = time.perf_counter()
        for _ in range(count):
            step()
        seconds = (time.perf_counter() - start) / count
        return seconds, seconds

    many = time

    def tidy(self):
        gc.collect()


class Gpu:
    least_seconds, least_steps = 0.010, 5        # as tools/bench/bench_cuda.c
    # so much goes over the cache before a step that might find its numbers there; likewise
    cache = 1 << 29

    def __init__(self, device, alone):
        self.alone = alone
        self.scratch = None
        torch.cuda.set_device(device)
        torch.empty(1, device=device)
        self.begin, self.end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(
            enable_timing=True)

    def time(self, step, count):
        # one untimed: the other process may have run before
        step()
        torch.cuda.synchronize()
        if self.alone:
            each = sorted(self.one(step) for _ in range(5))
            return each[2]
        return self.many(step, count)

    def one(self, step):
        if self.scratch is not None:
            self.scratch.zero_()
            torch.cuda.synchronize()
        self.begin.record()
        start = time.perf_counter()
        step()
        host = time.perf_counter() - start
        self.end.record()
        torch.cuda.synchronize()
        return self.begin.elapsed_time(self.end) * 1e-3, host

    def many(self, step, count):
        torch.cuda.synchronize()
        self.begin.record()
        start = time.perf_counter()
        for _ in range(count):
            step()
        host = (time.perf_counter() - start) / count
        self.end.record()
        torch.cuda.synchronize()
        return self.begin.elapsed_time(self.end) * 1e-3 / count, host

    def tidy(self):
        gc.collect()
        torch.cuda.synchronize()
        torch.cuda.empty_cache()


def captured(step):
    """The step as a CUDA graph, after a few uncaptured ones in a stream of their own, as torch's
    documentation has it."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()

    # what was captured works on the optimizer's own tensors: it must live on
    def replay(keep=step):
        graph.replay()

    return replay


class Peer:
    def __init__(self, device, threads, dtype, alone):
        self.gpu = device.startswith("cuda")
        self.device, self.dtype = device, dtype
        if not self.gpu:
            torch.set_num_threads(threads)
        self.clock = Gpu(device, alone) if self.gpu else Cpu()
        torch.manual_seed(0)
        self.p = self.g = None
        self.runs = {}                           # ID: a list of (step, count)

    def room(self, elements):
        if self.p is None or self.p.numel() < elements:
            self.p = self.g = None
            self.clock.tidy()
            self.p = torch.empty(elements, dtype=self.dtype, device=self.device).uniform_(-1, 1)
            self.g = torch.empty(elements, dtype=self.dtype,
                                 device=self.device).uniform_(-0.0625, 0.0625)
            if self.gpu:
                few = elements * self.p.element_size() * 8 < self.clock.cache
                self.clock.scratch = torch.empty(self.clock.cache, dtype=torch.uint8,
                                                 device=self.device) if few else None

    def params(self, shapes):
        out, shapes = [], shapes_of(shapes)
        for at, shape in zip(places_of(shapes), shapes):
            n = math.prod(shape)
            p = torch.nn.Parameter(self.p[at:at + n].view(shape))
            p.grad = self.g[at:at + n].view(shape)
            out.append(p)
        return out

    def build(self, shapes, rule, norm, how, graph):
        """A step of one implementation; made ready, and captured where that is asked."""
        params = self.params(shapes)
        optimizers = make_optimizers(rule, params, how, graph)

        def step():
            if norm is not None:
                torch.nn.utils.clip_grad_norm_(params, norm, foreach=True)
            for optimizer in optimizers:
                optimizer.step()

        if graph:
            step = captured(step)
        for _ in range(2):
            step()
        return step

    def timed(self, step):
        seconds = min(self.clock.time(step, 1)[0] for _ in range(3 if self.gpu else 1))
        return seconds, max(self.clock.least_steps,
                            min(100000, math.ceil(self.clock.least_seconds / max(seconds, 1e-8))))

    def eager(self, shapes, rule, norm):
        """The best implementation: (its name, step, count), or (None, why, 0)."""
        best, notes, why = None, [], "nothing"
        ways = ["plain"
                ] if rule in MATRICES else (["fused"] if RULES[rule][2] else []) + ["foreach"]
        for how in ways:
            step = None
            try:
                step = self.build(shapes, rule, norm, how, False)
                seconds, count = self.timed(step)
                notes.append((how, seconds))
                if best is None or seconds < best[3]:
                    best = (how, step, count, seconds)
            except Exception as e:
                why = reason(e)
            step = None
            self.clock.tidy()
            if best and not self.gpu:
                break
        if not best:
            return None, why, 0, ""
        others = "".join(
            f" ({how}: {seconds * 1e3:.3g} ms)" for how, seconds in notes if how != best[0])
        return best[0], best[1], best[2], others

    def open_factors(self, key, shapes, rule, options):
        """Rules with periods: the best way, by the mean of a whole one."""
        if not set(options) <= torch_factors.TAKES[rule]:
            known = ", ".join(sorted(torch_factors.TAKES[rule]))
            return f"none options of {rule} beside {known} have other names there"
        best, notes = None, []
        for way in torch_factors.ways(rule, self.gpu):
            optimizer = None
            try:
                with torch_factors.bounded(way):
                    optimizer = torch_factors.WAYS[rule][way](self.params(shapes), **options)
                    for _ in range(optimizer.warm):
                        optimizer.step()
                    seconds = self.clock.many(optimizer.step, optimizer.period)[0]
                notes.append(f"{way}: {seconds * 1e3:.4g} ms")
                if best is None or seconds < best[2]:
                    best = (way, optimizer.step, seconds)
            except Exception as e:
                notes.append(f"{way}: {reason(e)}")
            optimizer = None
            self.clock.tidy()
        if not best:
            return f"none {'; '.join(notes)}"
        self.runs[key] = [(best[1], 1)]
        precision = torch.get_float32_matmul_precision()
        return f"ok {best[0]} {rule}, f32 products in {precision} precision ({'; '.join(notes)})"

    def open(self, key, elements, shapes, graph, rule, wrappers=""):
        rule, options = options_of(rule)
        clip = re.fullmatch(r"clip\((?:max_norm=)?([0-9.eE+-]+)\)", wrappers)
        if wrappers and not clip:
            return f"none torch has no {wrappers}"
        if rule in torch_factors.WAYS and not wrappers:
            self.room(int(elements))
            return self.open_factors(key, shapes, rule, options)
        if options:
            return "none its options have other names"
        if rule not in RULES or not hasattr(torch.optim, RULES[rule][0]):
            return f"none torch has no {rule}"
        norm = float(clip.group(1)) if clip else None
        self.room(int(elements))
        how, step, count, others = self.eager(shapes, rule, norm)
        if how is None:
            self.close(key)
            return f"none {step}"
        runs = [(step, count)]
        what = f"{'clip_grad_norm_ and ' if clip else ''}{how} {RULES[rule][0]}"
        # optc keeps them in f32 unless told
        narrow = f" with its states in {self.dtype}" if self.p.element_size() < 4 else ""
        answer = f"ok {what}{narrow}{others}"
        if graph == "graph" and self.gpu:
            try:
                step = self.build(shapes, rule, norm, how, True)
                runs.append((step, self.timed(step)[1]))
                answer += f" | {what}{narrow} in a CUDA graph"
            except Exception as e:
                answer += f" (no CUDA graph: {reason(e)})"
        self.runs[key] = runs
        return answer

    def step(self, key, steps="0"):
        out = []
        for step, count in self.runs[key]:
            seconds, host = self.clock.many(step, int(steps)) if int(steps) else self.clock.time(
                step, count)
            out += [repr(seconds * 1e3), repr(host * 1e6)]
        return " ".join(out)

    def close(self, key):
        self.runs.pop(key, None)
        if not self.runs:
            self.p = self.g = None
        self.clock.tidy()
        return "ok"


def main():
    if len(sys.argv) != 5 or sys.argv[3] not in TYPES or sys.argv[4] not in ("alone", "queued"):
        sys.exit(__doc__)
    # of a capturable optimizer that is stepped without a graph, to warm it up
    warnings.filterwarnings("ignore")
    device = sys.argv[1]
    try:
        if device.startswith("cuda") and not torch.cuda.is_available():
            raise RuntimeError(f"torch {torch.__version__} finds no CUDA device")
        torch.set_float32_matmul_precision(os.environ.get("OPTC_PEER_PRECISION") or "highest")
        peer = Peer(device, int(sys.argv[2]), TYPES[sys.argv[3]], sys.argv[4] == "alone")
    except Exception as e:
        say(f"none {reason(e)}")
        return
    serve(peer, f"torch {torch.__version__}")


if __name__ == "__main__":
    main()
