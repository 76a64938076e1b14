"""The part of make_refs.py that runs a configuration: data, steps, groups and schedules, and the
table itself."""
import re

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode

SHAPES = [(), (1,), (7,), (33, 65), (3, 5, 7)]
STEPS, SAVED = 20, (2, 20)
LONG = 60
# scalar state of torch and timm follows this
torch.set_default_dtype(torch.float64)
torch.set_num_threads(1)
# Rules whose reference takes no groups (a transcription, a function, a class for one list of
# parameters): one for each.
SPLIT = {
    "adago", "adam_mini", "adalomo", "adamuon", "adashift", "aro", "aurora", "conda", "dion2",
    "dion3", "fismo", "lomo", "mano", "mousse", "muoneq", "muonh", "muonsq", "pmuon", "psgd",
    "psgd_kron", "scale", "sinkgd", "soap", "soap_muon", "sron", "yogi"
}


# --------------------------------------------------------------------------------------------------
# data

def splitmix(x):
    with np.errstate(over="ignore"):
        x = x + np.uint64(0x9E3779B97F4A7C15)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return x ^ (x >> np.uint64(31))


def value(k, s, shapes=SHAPES):
    """All of tensor k's numbers of stream s, in [-1, 1), exact in float32."""
    i = np.arange(int(np.prod(shapes[k])), dtype=np.uint64)
    bits = splitmix(np.uint64(k << 48 | s << 32) | i) >> np.uint64(40)
    return ((bits.astype(np.int64) - 8388608) / 8388608.0).reshape(shapes[k])


def first_weights(k, shapes=SHAPES):
    return 0.5 * value(k, 0, shapes)


def gradient(k, s, shapes=SHAPES):
    i = np.arange(int(np.prod(shapes[k]))).reshape(shapes[k])
    return value(k, s, shapes) * 2.0 ** -(i % 4)


def second_gradient(k, s, p, shapes=SHAPES):
    """SAM's: of the perturbed weights p."""
    return gradient(k, s + 100, shapes) + 0.25 * p


# --------------------------------------------------------------------------------------------------
# running

class WatchPrecision(TorchDispatchMode):
    """Notes whether any operation made a tensor of less than double precision."""
    seen = False

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for x in torch.utils._pytree.tree_leaves(out):
            if isinstance(
                    x, torch.Tensor) and x.dtype in (torch.float32, torch.float16, torch.bfloat16):
                self.seen = True
        return out


class Hypers(dict):
    __getattr__ = dict.__getitem__


def rate(s):
    """A schedule: warm-up over five steps, then a linear decay."""
    return min(s / 5, 1) * (1 - max(s - 5, 0) / 64)


def scheduled(h):
    """The hyperparameters that a schedule multiplies. A wrapper's `decay` is lr times weight decay.
    EMA-Nesterov's authors schedule its step size with lr."""
    return [
        k for k in h
        if re.search(r"(^|\.)lr$|^lr_1d$|^(galore|fira)\.decay$|\.lookahead_stepsize$", k)
    ]


def schedule(s, h, first, opts):
    """Sets the rates of step s: in h, which transcribed rules read, and in the groups of torch
    optimizers."""
    for k in scheduled(h) if RUN["schedule"] else ():
        h[k] = first[k] * rate(s)
    for opt in opts if RUN["schedule"] else ():
        for k, group in enumerate(
                g for g in getattr(opt, "param_groups", ()) if g["lr"] is not None):
            group.setdefault("first_lr", group["lr"])
            group["lr"] = 0.0 if k and s <= RUN["frozen"] else group["first_lr"] * rate(s)


class Two:
    """Two optimizers of one class in place of one with two groups. The second reads its own
    hyperparameters."""
    def __init__(self, make, params, n, h):
        self.first, self.h, self.second = dict(h), h, {**h, **RUN["group"][1]}
        self.own = Hypers(self.second)
        self.opts = [make(params[:n], h), make(params[n:], self.own)]
        self.param_groups = [g for opt in self.opts for g in getattr(opt, "param_groups", ())]

    def step(self):
        for k in scheduled(self.h):
            self.own[k] = self.second[k] * (self.h[k] / self.first[k])
        for opt in self.opts:
            opt.step()


def in_groups(make, params, h, first=0):
    """make(params, h), of all parameters or of two groups of them, the second with its own rate.
    first: the tensor's number of params[0]."""
    if not RUN["group"]:
        return make(params, h)
    n = RUN["group"][0] - first
    if RUN["spec"] in SPLIT:
        return Two(make, params, n, h)
    return make([dict(params=params[:n]), dict(params=params[n:], **RUN["group"][1])], h)


def each_param(params):
    """The parameters of a list of parameters or of groups."""
    return [p for g in params for p in (g["params"] if isinstance(g, dict) else [g])]


def numbered(shapes, seen=None):
    """The first weights as parameters; each has its tensor's number."""
    params = [
        torch.nn.Parameter(torch.tensor(first_weights(k, shapes).reshape((seen or shapes)[k])))
        for k in range(len(shapes))
    ]
    for k, p in enumerate(params):
        p.number = k
    return params


def run_torch(make, before=None, after=None):
    """make(params, h) gives something with step(); before(params, h) may change gradients;
    after(params, h) gives a function called after each step that returns the tensors to save."""
    def run(h):
        shapes = RUN["shapes"]
        params = numbered(shapes)
        saved, first = [], dict(h)
        with WatchPrecision() as watch:
            for k, p in enumerate(params):
                p.grad = torch.tensor(gradient(k, 1, shapes))
            opt = in_groups(make, params, h)
            look = after(params, h) if after else lambda: params
            for s in range(1, RUN["steps"] + 1):
                for k, p in enumerate(params):
                    p.grad = torch.tensor(gradient(k, s, shapes)) + RUN["pull"] * p.detach()
                if before:
                    before(params, h)
                schedule(s, h, first, [opt])
                opt.step()
                now = look()
                if s in RUN["saved"]:
                    saved += [p.detach().clone().numpy() for p in now]
        return saved, "f32" if watch.seen else "f64"
    return run


def run_optax_sam(make):
    """make(h) gives the inner optax rule; sam.eps must be 0, optax has none."""
    def run(h):
        import jax
        jax.config.update("jax_enable_x64", True)
        import jax.numpy as jnp
        import optax
        opt = optax.contrib.sam(make(h),
                                optax.chain(optax.contrib.normalize(), optax.sgd(h["sam.rho"])),
                                sync_period=2)
        params = [jnp.asarray(first_weights(k)) for k in range(len(SHAPES))]
        state, saved, exact = opt.init(params), [], "f64"
        for s in range(1, STEPS + 1):
            for second in (False, True):
                g = [jnp.asarray(second_gradient(k, s, np.asarray(p)) if second else gradient(k, s))
                     for k, p in enumerate(params)]
                if re.search(r"\bb?f(32|16)\b", str(jax.make_jaxpr(opt.update)(g, state, params))):
                    exact = "f32"
                update, state = opt.update(g, state, params)
                params = optax.apply_updates(params, update)
            if s in SAVED:
                saved += [np.asarray(p) for p in params]
        return saved, exact
    return run


# --------------------------------------------------------------------------------------------------
# tables

VERSIONS = {
    "torch": "torch", "timm": "timm", "po": "pytorch_optimizer", "optax": "optax",
    "adabound": "adabound", "came_pytorch": "came-pytorch", "adabelief_pytorch": "adabelief-pytorch"
}
CONFIGS = {}
CLONES = [None]                                                     # the folder of --clones
RUN = {}                                                            # the configuration that runs


def config(name, spec, source, run, options="", wrap="", state="", shapes=SHAPES, native=True,
           schedule=False, steps=STEPS, entry="", look="", pull=0.0, tag="", group=None, frozen=0,
           **hyper):
    hyper = {k.replace("__", "."): v for k, v in hyper.items()}
    CONFIGS[name] = dict(spec=spec, source=source, run=run, options=options, wrap=wrap, state=state,
                         shapes=shapes, native=native, entry=entry, look=look, pull=pull,
                         schedule=schedule, steps=steps, tag=tag, group=group, frozen=frozen,
                         saved=SAVED if steps == STEPS else (steps,), hyper=Hypers(hyper))


def adamlike(cls, **more):
    return run_torch(lambda ps, h: cls(ps, lr=h.lr, betas=(h.beta1, h.beta2), eps=h.eps,
                                       weight_decay=h.weight_decay, **more))


def sgdlike(cls, **more):
    return run_torch(lambda ps, h: cls(ps, lr=h.lr, momentum=h.get("momentum", 0), dampening=h.get(
        "dampening", 0), weight_decay=h.weight_decay, **more))
