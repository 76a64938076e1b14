#!/usr/bin/env python3
"""PyTorch's optimizers on the CPU, stepped on demand, so that `optc bench --against torch` can alternate rounds with them.

    torch_cpu.py THREADS ELEMENTS TYPE

One line in, one line out (tools/bench_peer.c is the other side):
    open LABEL SHAPES RULE [WRAPPERS]    ok WHAT | none WHY         SHAPES such as 8192x8192,100*65536
    step LABEL [COUNT]                   milliseconds per step
At the start it says `ready torch VERSION` or `none WHY`. It ends with its input.

Every rule steps the same parameters and gradients, as optc does; states are each rule's own. Fused implementations are used where torch has
them for the CPU, foreach ones elsewhere.
"""
import os
import re
import sys
import time

# Large pages where the kernel hands them out on request, as optc asks for them.
os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")
try:
    import torch
except Exception as e:
    print("none", str(e).splitlines()[0] if str(e) else type(e).__name__, flush=True)
    sys.exit(0)

TYPES = {"f32": torch.float32, "f64": torch.float64, "bf16": torch.bfloat16, "f16": torch.float16}
# rule: class, arguments beside the defaults, whether torch fuses it on the CPU
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
}


class Bench:
    def __init__(self, threads, elements, dtype):
        torch.set_num_threads(threads)
        torch.manual_seed(0)
        self.p = torch.empty(elements, dtype=dtype).uniform_(-1, 1)
        self.g = torch.empty(elements, dtype=dtype).uniform_(-0.0625, 0.0625)
        self.steps = {}

    def params(self, shapes):
        at, out = 0, []
        for item in shapes.split(","):
            count, _, dims = item.rpartition("*")
            shape = [int(d) for d in dims.split("x")]
            n = 1
            for d in shape:
                n *= d
            for _ in range(int(count or 1)):
                p = torch.nn.Parameter(self.p[at:at + n].view(shape))
                p.grad = self.g[at:at + n].view(shape)
                out.append(p)
                at += (n + 15) // 16 * 16
        return out

    def open(self, label, shapes, rule, wrappers=""):
        clip = re.fullmatch(r"clip\((?:max_norm=)?([0-9.eE+-]+)\)", wrappers)
        if wrappers and not clip:
            return f"none torch has no {wrappers}"
        if rule not in RULES or not hasattr(torch.optim, RULES[rule][0]):
            return f"none torch has no {rule}"
        name, args, fused = RULES[rule]
        params = self.params(shapes)
        make = getattr(torch.optim, name)
        for how in (["fused"] if fused else []) + ["foreach"]:
            try:
                opt = make(params, **args, **{how: True})
                opt.step()
                break
            except (RuntimeError, TypeError, ValueError) as e:
                why = str(e).splitlines()[0]
        else:
            return f"none {why}"
        norm = float(clip.group(1)) if clip else None

        def step():
            if norm is not None:
                torch.nn.utils.clip_grad_norm_(params, norm, foreach=True)
            opt.step()

        step()
        self.steps[label] = step
        narrow = f" with its states in {self.p.dtype}" if self.p.element_size() < 4 else ""      # optc keeps them in f32 unless told
        return f"ok {'clip_grad_norm_ and ' if clip else ''}{how} {name}{narrow}"

    def step(self, label, count="1"):
        step, count = self.steps[label], int(count)
        start = time.perf_counter()
        for _ in range(count):
            step()
        return repr((time.perf_counter() - start) / count * 1e3)


def main():
    bench = Bench(int(sys.argv[1]), int(sys.argv[2]), TYPES[sys.argv[3]])
    print("ready torch", torch.__version__, flush=True)
    for line in sys.stdin:
        word, *rest = line.split()
        try:
            print({"open": bench.open, "step": bench.step}[word](*rest), flush=True)
        except Exception as e:
            print("none", f"{type(e).__name__}: {e}".splitlines()[0], flush=True)


if __name__ == "__main__":
    main()
