"""The part of make_refs.py for rules with roots, eigenvectors, triangles and orthonormal columns of
matrices.

Packages are run in float64: where one casts to float32 for a factor, the cast is left out. --clones
names a folder with these repositories beside those of matrix_refs.py:

    https://github.com/facebookresearch/optimizers    f606606
    https://github.com/nikhilvyas/SOAP                a1e5535
    https://github.com/yorkerlin/KL-Methods           a02e622
    https://github.com/kvfrans/splus                  d96bd16
    https://github.com/infinity-stars/ASGO            d3ef14b
    https://github.com/jiaweizzhao/GaLore             2cc66f8
    https://github.com/xichen-fy/Fira                 5c28b13
    https://github.com/tensorflow/tensorflow          0771f37,
                                                      contrib/opt/python/training/shampoo.py alone

A basis is only determined where the matrix it comes from has no eigenvalue twice, which of one
gradient's two Gram matrices the larger one has, 0: rules that rest on bases take square matrices,
and others with a basis of their smaller side alone."""
import contextlib
import math
import os
import sys
import types

import numpy as np
import torch

from matrix_refs import SHAPES, Stepper, adamw, load, run_matrix
from ref_runs import each_param

SQUARE = [(), (7,), (1, 1), (12, 12), (5, 5), (3, 1, 3), (6, 2, 3)]
ONE_SIDE = [(), (7,), (1, 24), (24, 1), (24, 10), (10, 24), (12, 12), (2, 3, 7)]


# --------------------------------------------------------------------------------------------------
# common

def power(a, r, ridge, relative):
    """ridge is added to all eigenvalues, and relative of the largest sum of magnitudes in a row."""
    w, v = np.linalg.eigh(a + (ridge + relative * np.abs(a).sum(1).max()) * np.eye(len(a)))
    return (v * w ** r) @ v.T


@contextlib.contextmanager
def no_casts():
    """x.float() and x.to(torch.float32) leave float64 as it is, and new tensors have it."""
    kept, kept_to = torch.Tensor.float, torch.Tensor.to
    torch.Tensor.float = lambda x: x
    torch.Tensor.to = lambda x, *a, **k: x
    try:
        yield
    finally:
        torch.Tensor.float, torch.Tensor.to = kept, kept_to


class Uncast:
    """An optimizer whose steps are made without casts."""
    def __init__(self, opt):
        self.opt, self.param_groups = opt, opt.param_groups

    def step(self):
        with no_casts():
            self.opt.step()


def philox(seed, t, tensor, stream, n):
    """Random123's philox4x32-10 with our counters: the element, the step, the tensor and the
    stream."""
    mask, x = np.uint64(0xFFFFFFFF), np.zeros((4, n), dtype=np.uint64)
    x[0], x[2], x[3] = np.arange(n), t, tensor ^ (stream << 24)
    key = [np.uint64(seed & 0xFFFFFFFF), np.uint64(seed >> 32)]
    for _ in range(10):
        p, q = x[0] * np.uint64(0xD2511F53), x[2] * np.uint64(0xCD9E8D57)
        x = np.stack([(q >> np.uint64(32)) ^ x[1] ^ key[0], q & mask,
                      (p >> np.uint64(32)) ^ x[3] ^ key[1], p & mask])
        key = [(key[0] + np.uint64(0x9E3779B9)) & mask, (key[1] + np.uint64(0xBB67AE85)) & mask]
    return x


def normal(seed, t, tensor, stream, n):
    """Box and Muller on 53 bits each, the first in the middle of its cell."""
    x = philox(seed, t, tensor, stream, n).astype(np.int64)
    u = ((x[0] >> 5) * 67108864.0 + (x[1] >> 6) + 0.5) * 2.0 ** -53
    v = ((x[2] >> 5) * 67108864.0 + (x[3] >> 6)) * 2.0 ** -53
    return np.sqrt(-2 * np.log(u)) * np.cos(2 * np.pi * v)


# --------------------------------------------------------------------------------------------------
# Shampoo


def fb_shampoo(clones, graft, h, params, interval, momentum, start, total=False, side=1024,
               diagonal=False):
    sys.path.insert(0, os.path.join(clones, "optimizers"))
    import distributed_shampoo as ds
    from distributed_shampoo import shampoo_types
    beta2 = dict(beta2=h.beta2, epsilon=h.graft_eps)
    grafts = {
        "adam": lambda: ds.AdamPreconditionerConfig(**beta2),
        "rmsprop": lambda: ds.RMSpropPreconditionerConfig(**beta2),
        "adagrad": lambda: ds.AdaGradPreconditionerConfig(epsilon=h.graft_eps),
        "sgd": ds.SGDPreconditionerConfig, "none": lambda: None
    }
    roots = shampoo_types.RootInvShampooPreconditionerConfig(factor_matrix_dtype=torch.float64,
                                                             inv_factor_matrix_dtype=torch.float64)
    eps = h.eps or 1e-300                                         # it refuses 0
    diagonals = ds.AdamPreconditionerConfig(beta2=h.beta2, epsilon=eps)
    # of which it makes its learning rate
    kept, torch.float = torch.float, torch.float64
    opt = ds.DistributedShampoo(
        params, lr=h.lr, betas=(h.beta1, 1.0 if total else h.beta2), epsilon=eps,
        weight_decay=h.weight_decay, precondition_frequency=interval, max_preconditioner_dim=side,
        distributed_config=shampoo_types.SingleDeviceDistributedConfig(
            target_parameter_dimensionality=2),
        preconditioner_config=diagonals if diagonal else roots, grafting_config=grafts[graft](),
        iterate_averaging_config=shampoo_types.ClassicMomentumConfig(
            momentum=h.momentum) if momentum else None)
    torch.float = kept
    if start == 1:
        # roots at the first step too, which it would not be told
        for group in opt.param_groups:
            group["start_preconditioning_step"] = 1
    return opt


def shampoo(clones, graft="adam", interval=50, total=False, momentum=False, limit=8192, side=1024,
            package=False, slots=None, start=1):
    """Transcribed from the papers; package: matrices by facebookresearch/optimizers, which has no
    diagonals for vectors or sides, takes matrices of one row or column for vectors, and grafts each
    block by itself. slots: of the matrices, as optc_get_slot tells them."""
    def blocks(n):
        return [slice(k, min(k + side, n)) for k in range(0, n, side)]

    def make(params, h):
        def gather(old, x):
            return old + x if total else h.beta2 * old + (1 - h.beta2) * x

        turn = iter(slots or [0] * len(params))

        def update(p, g, kept):
            g, w = g.numpy(), p.numpy()
            t = kept["t"] = kept.get("t", 0) + 1
            if t == 1 and g.ndim > 1:
                kept["slot"] = next(turn)
            fair = 1 if total else 1 - h.beta2 ** t
            kept["m"] = h.beta1 * kept.get("m", 0) + (1 - h.beta1) * g
            u = kept["m"] / (1 - h.beta1 ** t)
            v = kept.get("v", 0)
            kept["v"] = v + g * g if graft == "adagrad" else h.beta2 * v + (1 - h.beta2) * g * g
            x = u.copy()
            if g.ndim < 2:
                kept["d"] = gather(kept.get("d", 0), g * g)
                x = u / np.sqrt(kept["d"] / fair + h.eps)
            else:
                for axis in (0, 1):
                    rows = x if axis == 0 else x.T
                    grad = g if axis == 0 else g.T
                    if grad.shape[0] > limit:
                        kept[axis] = gather(kept.get(axis, 0), (grad ** 2).sum(1))
                        rows *= ((kept[axis] / fair + h.eps) ** -0.25)[:, None]
                        continue
                    for i in blocks(grad.shape[0]):
                        for j in blocks(grad.shape[1]):
                            key = axis, i.start, j.start
                            kept[key] = gather(kept.get(key, 0), grad[i, j] @ grad[i, j].T)
                            if t == 1 or t % interval == kept["slot"]:
                                kept["root", key] = power(kept[key] / fair, -0.25, h.eps,
                                                          h.relative_eps)
                            rows[i, j] = kept["root", key] @ rows[i, j]
            if graft != "none":
                d = u if graft == "sgd" else u / (
                    np.sqrt(kept["v"] /
                            (1 - h.beta2 ** t) if graft == "adam" else kept["v"]) + h.graft_eps)
                x = x * np.linalg.norm(d) / np.linalg.norm(x) if t >= start else d
            x = x + h.weight_decay * w
            if momentum:
                x = kept["b"] = h.momentum * kept.get("b", 0) + x
            p.sub_(h.lr * torch.tensor(x))

        if not package:
            return Stepper(params, update)
        if isinstance(params[0], dict):                 # groups of matrices alone
            return fb_shampoo(clones, graft, h, params, interval, momentum, start)
        both = [
            Stepper([p for p in params if p.dim() < 2 or 1 in p.shape], update),
            fb_shampoo(clones, graft, h, [p for p in params if p.dim() > 1 and 1 not in p.shape],
                       interval, momentum, start, total, side)
        ]
        return types.SimpleNamespace(step=lambda: [x.step() for x in both],
                                     param_groups=both[1].param_groups)
    return make


class Array(np.ndarray):
    """What the authors' file asks of a variable of TensorFlow."""
    def get_shape(self):
        return self.shape

    def assign_add(self, x):
        self += x
        return self


def tensorflow_stub():
    """The functions of TensorFlow 1 that the authors' file calls, by NumPy: each runs at once."""
    new = lambda x: np.array(x, dtype=np.float64).view(Array)
    names = {
        "framework.ops": dict(colocate_with=lambda x: contextlib.nullcontext(),
                              convert_to_tensor=lambda x: x,
                              name_scope=lambda x: contextlib.nullcontext()), "ops.array_ops": dict(
                                  zeros=lambda shape: new(np.zeros(shape)),
                                  zeros_like=lambda x: new(np.zeros(x.shape)),
                                  transpose=lambda x, perm=None: np.transpose(x, perm)),
        "ops.control_flow_ops": dict(cond=lambda c, yes, no: yes() if c else no()),
        "ops.linalg_ops": dict(
            eye=lambda n: new(np.eye(int(n))), svd=lambda x, full_matrices:
            (lambda u, d, v: (d, u, v.T))(*np.linalg.svd(x, full_matrices))), "ops.math_ops": dict(
                to_float=float, to_int32=int, pow=np.power, mod=np.mod, maximum=np.maximum,
                matmul=np.matmul, reduce_sum=lambda x, axis: x.sum(axis=tuple(axis)),
                tensordot=lambda x, y, axes, name: np.tensordot(x, y, axes)), "ops.state_ops": dict(
                    assign_add=lambda v, x: v.assign_add(x),
                    assign_sub=lambda v, x: v.assign_add(-x)), "platform.tf_logging": {},
        "training.optimizer": {}
    }
    for name, functions in names.items():
        module = sys.modules["tensorflow.python." + name] = types.ModuleType(name)
        module.__dict__.update(functions)
        folder = sys.modules.setdefault("tensorflow.python." + name.split(".")[0],
                                        types.ModuleType(name))
        setattr(folder, name.split(".")[1], module)
    for name in ("tensorflow", "tensorflow.python"):
        sys.modules.setdefault(name, types.ModuleType(name))

    class Optimizer:
        def __init__(self, use_locking, name):
            self.slots = {}

        def get_slot(self, var, name):
            return self.slots[id(var), name]

        def _get_or_make_slot(self, var, value, name, unused):
            return self.slots.setdefault((id(var), name), value)

        def _zeros_slot(self, var, name, unused):
            return self._get_or_make_slot(var, new(np.zeros(var.shape)), name, unused)
    sys.modules["tensorflow.python.training.optimizer"].Optimizer = Optimizer
    return new


def own_shampoo(clones, limit):
    """The authors' first code: sums, and a diagonal for a side over max_matrix_size. No grafting,
    no blocks."""
    def make(params, h):
        kept = dict(sys.modules)
        new = tensorflow_stub()
        module = load(clones, "tensorflow/tensorflow/contrib/opt/python/training/shampoo.py")
        for name in set(sys.modules) - set(kept):
            del sys.modules[name]
        t, lr = [0.0], lambda k: h.lr / (1 - h.beta1 ** k)
        opt = module.ShampooOptimizer(max_matrix_size=limit, gbar_decay=h.beta1,
                                      gbar_weight=1 - h.beta1, learning_rate=lr, epsilon=h.eps)
        held = [new(p.detach().numpy()) for p in params]
        opt._create_slots(held)

        @torch.no_grad()
        def step():
            opt._global_step = t[0]
            t[0] += 1
            for p, x in zip(params, held):
                opt._apply_dense(p.grad.numpy(), x)
                p.copy_(torch.tensor(np.array(x)))
        return types.SimpleNamespace(step=step)
    return make


# --------------------------------------------------------------------------------------------------
# bases

def identities(self, matrices):
    return [torch.eye(len(m)) if len(m) else [] for m in matrices]


def own_soap(clones, interval, limit, identity=False, **more):
    """No limit: each matrix has one that its smaller side alone keeps. identity: the first basis,
    which of any matrix is determined."""
    def make(params, h):
        module = load(clones, "SOAP/soap.py")
        if identity:
            module.SOAP.get_orthogonal_matrix = identities
        groups = [dict(params=[p], max_precond_dim=limit or min(p.shape)) for p in params]
        return Uncast(
            module.SOAP(groups, lr=h.lr, betas=(h.beta1, h.beta2), shampoo_beta=h.beta3, eps=h.eps,
                        weight_decay=h.weight_decay, precondition_frequency=interval, **more))
    return make


def own_klshampoo(clones, interval):
    """Its squeeze takes away sides of one, for which it has nothing then: they stay."""
    def make(params, h):
        module = load(clones, "KL-Methods/optim/kl_opt.py")
        module.print = lambda *unused: None
        opt = module.KLOpt(params, lr=h.lr, betas=(h.beta1, h.beta2), eps=h.eps,
                           weight_decay=h.weight_decay, precondition_frequency=interval,
                           cast_dtype=torch.float64)
        squeeze = torch.squeeze

        def step():
            torch.squeeze = lambda x: (x if x.dim() == 2 and x.shape[0] == x.shape[1]
                                       else squeeze(x) if squeeze(x).dim() else x.view(-1))
            with no_casts():
                opt.step()
            torch.squeeze = squeeze
        return types.SimpleNamespace(step=step, param_groups=opt.param_groups)
    return make


def own_splus(clones, interval, limit):
    def make(params, h):
        module = load(clones, "splus/torch/splus.py")
        return module.SPlus(params, lr=h.lr, b1=h.beta1, b2=h.beta2, ema_rate=h.ema_rate,
                            inverse_every=interval, weight_decay=h.weight_decay, max_dim=limit,
                            nonstandard_constant=h.other_scale)
    return make


def own_asgo(clones):
    """Only step() is the authors': their root is by an iteration in float32, here by eigenvectors
    in float64. The rest of their imports is not there."""
    def make(params, h):
        for name in ("config", "einops", "optimizers", "optimizers.utils", "optimizers.utils.utils",
                     "optimizers.utils.matrix_decom"):
            sys.modules[name] = types.ModuleType(name)
        sys.modules["einops"].rearrange = None
        sys.modules["optimizers.utils.matrix_decom"].zeropower_via_newtonschulz5 = None
        sys.modules["optimizers.utils.matrix_decom"].root = lambda a, eps, N: torch.tensor(
            power(a.numpy(), -0.5, eps, h.relative_eps))
        module = load(clones, "ASGO/optimizers/asgo.py")
        return module.asgo(params, learning_rate=h.lr, momentum=h.momentum,
                           weight_decay=h.weight_decay, beta2=h.beta2, eps=h.eps, inv_method="root")
    return make


def own_psgd_kron(clones, balance, limit, seed):
    """Its norm estimate is replaced by the largest row sum, its draws by ours."""
    def make(params, h):
        module = load(clones, "psgd_torch/psgd.py")
        module.norm_lower_bound_spd = lambda a: torch.tensor(np.abs(a.numpy()).sum(1).max())

        def update(p, g, kept):
            t = kept["t"] = kept.get("t", 0) + 1
            kept["m"] = torch.lerp(kept.get("m", torch.zeros_like(g)), g,
                                   max(1 / t, 1 - h.momentum))
            ql, exprs = kept.setdefault(
                "q", module.init_kron(p, 1.0, max_size=limit, max_skew=float("inf"), dQ="EQ"))
            randn, rand = torch.randn_like, torch.rand
            torch.randn_like = lambda x: torch.tensor(
                normal(seed, t, p.number, 0, x.numel()).reshape(x.shape))
            torch.rand = lambda size: 1.0 - (t % balance == 0)
            module.update_precond_kron_whiten_eq(ql, exprs, g, lr=h.precond_lr, betaL=h.beta,
                                                 damping=h.damping)
            torch.randn_like, torch.rand = randn, rand
            u = module.precond_grad_kron(ql, exprs, kept["m"])
            u = u * min(1, h.clip_rms / math.sqrt(float((u * u).mean())))
            p.sub_(h.lr * (u + h.weight_decay * p))
        return Stepper(params, update)
    return make


def own_dion(clones, rank, seed):
    def make(params, h):
        import importlib
        compiled, torch.compile = torch.compile, lambda f=None, **unused: f if callable(
            f) else lambda f: f
        sys.path.insert(0, os.path.join(clones, "dion"))
        module = importlib.import_module("dion.dion_simple")
        torch.compile = compiled
        opt = module.Dion(params, lr=h.lr, mu=h.momentum, weight_decay=h.weight_decay, rank=rank,
                          epsilon=h.eps)
        for p in each_param(params):
            opt._init_opt_state_dion(p, opt.state[p])
            n = opt.state[p]["Q"].shape
            opt.state[p]["Q"] = torch.tensor(normal(seed, 1, p.number, 0, n[0] * n[1]).reshape(n))
        return Uncast(opt)
    return make


# --------------------------------------------------------------------------------------------------
# projections

def signed(u):
    """Columns whose first largest entry is positive."""
    top = np.abs(u).argmax(0)
    return u * np.sign(u[top, range(u.shape[1])])


def projected(clones, repository, file, rank, interval, scale, settings, apart=False):
    """A rule of the authors, with singular vectors of our signs, matrices in groups of their own.
    Without `apart` the 1e-8 that Fira adds to norms is left out where it limits growth, since ours
    then limits steps scaled by lr."""
    def make(params, h):
        for name in ("transformers", "transformers.utils", "transformers.utils.versions",
                     "tensorly", "tensorly.decomposition"):
            sys.modules[name] = types.ModuleType(name)            # of which nothing here is used
        sys.modules["transformers.utils.versions"].require_version = lambda *unused: None
        sys.modules["tensorly"].tenalg = sys.modules["tensorly.decomposition"].tucker = None
        package = os.path.basename(os.path.dirname(file))
        sys.modules[package] = types.ModuleType(package)
        sys.modules[package].__path__ = [os.path.join(clones, repository, os.path.dirname(file))]
        name = package + "." + os.path.basename(file)[:-3]
        module = sys.modules[name] = types.ModuleType(name)
        module.__package__ = package
        with open(os.path.join(clones, repository, file)) as f:
            text = f.read()
        exec(
            text if apart else text.replace('state["scaling_grad"] + 1e-8',
                                            'state["scaling_grad"] + 1e-300'), module.__dict__)
        cls = next(v for k, v in vars(module).items() if k in ("AdamW", "RMSprop", "RMSProp"))
        whole = dict(params=[p for p in params if p.dim() < 2])
        low = dict(params=[p for p in params if p.dim() > 1], rank=rank, update_proj_gap=interval,
                   proj_type="std", **scale(h))
        opt = cls([low] + ([whole] if whole["params"] else []), no_deprecation_warning=True,
                  **settings(h))
        svd = torch.linalg.svd

        def singular(x, full_matrices):
            u, s, vh = np.linalg.svd(x.numpy(), full_matrices=False)
            return torch.tensor(signed(u)), torch.tensor(s), torch.tensor(
                np.ascontiguousarray(signed(vh.T).T))

        def step():
            torch.linalg.svd = singular
            with no_casts():
                opt.step()
            torch.linalg.svd = svd
        return types.SimpleNamespace(step=step, param_groups=opt.param_groups)
    return make


def fira_adamw(rank, interval):
    """Transcribed: the authors' limiter looks at directions before the corrections of their bias,
    ours at the steps."""
    def make(params, h):
        def adam(g, kept, t):
            kept["m"] = h.beta1 * kept.get("m", 0) + (1 - h.beta1) * g
            kept["v"] = h.beta2 * kept.get("v", 0) + (1 - h.beta2) * g * g
            return h.lr * kept["m"] / (1 - h.beta1 ** t) / (np.sqrt(kept["v"] /
                                                                    (1 - h.beta2 ** t)) + h.eps)

        def update(p, g, kept):
            g, t = g.numpy(), kept.get("t", 0) + 1
            kept["t"] = t
            if g.ndim < 2:
                p.sub_(torch.tensor(adam(g, kept, t)))
            else:
                flat = g.shape[0] < g.shape[1]
                x = g if flat else g.T
                if t % interval == 1:
                    kept["P"] = signed(np.linalg.svd(x, full_matrices=False)[0])[:, :rank]
                low = kept["P"].T @ x
                d = adam(low, kept, t)
                scale = np.linalg.norm(d, axis=0) / (np.linalg.norm(low, axis=0) + h["fira.eps"])
                rest = (x - kept["P"] @ low) * scale
                size = np.linalg.norm(rest)
                if kept.get("last", 0) > 0:
                    rest = rest / (max(size / kept["last"], h["fira.growth"]) / h["fira.growth"])
                kept["last"] = np.linalg.norm(rest)
                u = h["fira.scale"] * kept["P"] @ d + rest
                p.sub_(torch.tensor(np.ascontiguousarray(u if flat else u.T)))
            p.mul_(1 - h["fira.decay"])
        return Stepper(params, update)
    return make


def configs(api, clones):
    ADAMW = dict(adamw__lr=0.02, adamw__beta1=0.8, adamw__beta2=0.95, adamw__eps=1e-3,
                 adamw__weight_decay=0.1)

    def config(name, spec, source, matrices, options="", rest=True, shapes=SHAPES, native=None,
               **hyper):
        api.config(name, spec, source,
                   run_matrix(api, matrices, adamw if rest else None, None, shapes), options,
                   shapes=shapes, native=not options if native is None else native, **hyper,
                   **(ADAMW if rest else {}))

    ROOTS = dict(lr=0.02, beta1=0.8, beta2=0.9, eps=1e-2, graft_eps=1e-3, weight_decay=0.1)
    SHAMPOO = dict(ROOTS, relative_eps=3e-3)
    facebook = ("facebookresearch/optimizers f606606; vectors and sides of one, "
                "arXiv:2002.09018 transcribed")
    papers = "arXiv:1802.09568, arXiv:2002.09018 and arXiv:2309.06497 transcribed"
    config("shampoo", "shampoo", papers + "; slots ours",
           shampoo(clones, slots=[5, 6, 0, 1, 2, 3, 4]), rest=False, **SHAMPOO)
    config("shampoo_often", "shampoo", papers + "; slots ours",
           shampoo(clones, interval=4, slots=[2, 2, 0, 1, 2, 3, 3]), rest=False,
           options="interval=4", **SHAMPOO)
    for graft in ("adam", "rmsprop", "adagrad", "sgd"):
        config(
            f"shampoo_{graft}", "shampoo", facebook,
            shampoo(clones, graft, 6, package=True, momentum=graft == "sgd"), rest=False,
            options=f"graft={graft},interval=6,stagger=false" + ",heavy_ball=true" *
            (graft == "sgd"), **ROOTS, relative_eps=0.0,
            **(dict(momentum=0.7) if graft == "sgd" else {}))
    config("shampoo_start", "shampoo", facebook, shampoo(clones, "adam", 6, package=True, start=6),
           rest=False, options="interval=6,start=6,stagger=false", **ROOTS, relative_eps=0.0)
    config("shampoo_sum", "shampoo", facebook, shampoo(clones, "none", 1, total=True,
                                                       package=True), rest=False,
           options="graft=none,interval=1,accumulate=sum,stagger=false", **ROOTS, relative_eps=0.0)
    config("shampoo_blocks", "shampoo", facebook, shampoo(clones, "none", 4, side=5,
                                                          package=True), rest=False,
           options="graft=none,interval=4,side=5,stagger=false", **ROOTS, relative_eps=0.0)
    low = dict(ROOTS, lr=0.014, beta1=0.6, beta2=0.7, graft_eps=2e-3, weight_decay=0.04,
               relative_eps=0.0)
    plain = "facebookresearch/optimizers f606606"
    config("shampoo_groups", "shampoo", plain, shampoo(clones, "adam", 6, package=True), rest=False,
           options="interval=6,stagger=false", shapes=[(9, 5), (5, 9), (6, 6)], schedule=True,
           steps=api.LONG, group=(2, dict(lr=0.007)), native=False, **low)
    config("shampoo_vectors", "shampoo", plain + "; diagonals alone",
           lambda params, h: fb_shampoo(clones, "rmsprop", h, params, 1, False, 1, diagonal=True),
           rest=False, options="graft=rmsprop", shapes=[(), (1,), (7,), (9,)], schedule=True,
           steps=api.LONG, group=(3, dict(lr=0.007)), native=False, **{**low, "eps": 0.0})
    config("shampoo_sides", "shampoo", papers, shampoo(clones, "adam", 4, side=5, limit=11),
           rest=False, options="interval=4,side=5,limit=11,stagger=false", **SHAMPOO)
    config("shampoo_diagonals", "shampoo", "tensorflow/tensorflow 0771f37 (contrib/opt), by NumPy",
           own_shampoo(clones, 11), rest=False, shapes=[(13,), (24, 10), (10, 24), (13, 12),
                                                        (9, 9)], native=False, schedule=True,
           steps=api.LONG, options="graft=none,interval=1,accumulate=sum,limit=11,stagger=false",
           lr=0.05, beta1=0.7, eps=0.02, relative_eps=0.0, weight_decay=0.0)
    config("asgo", "asgo", "infinity-stars/ASGO d3ef14b and torch.optim.AdamW; its root by "
                           "eigenvectors",
           own_asgo(clones), lr=0.05, momentum=0.8,
           beta2=0.9, eps=1e-2, relative_eps=1e-3, weight_decay=0.1)
    SPLUS = dict(lr=0.2, beta1=0.8, beta2=0.9, ema_rate=0.9, weight_decay=0.1, other_scale=0.05)
    for name, options, shapes, interval, limit in (("splus", "", SQUARE, 100, 10000),
                                                   ("splus_often", "interval=6", SQUARE, 6,
                                                    10000), ("splus_sides", "interval=6,limit=13",
                                                             ONE_SIDE, 6, 13)):
        config(name, "splus", "kvfrans/splus d96bd16", own_splus(clones, interval, limit),
               rest=False, options=options, shapes=shapes, **SPLUS)
    SOAP = dict(lr=0.02, beta1=0.8, beta2=0.9, beta3=0.85, eps=1e-3, weight_decay=0.1)
    for name, options, shapes, interval, limit in (("soap", "", SQUARE, 10, 10000),
                                                   ("soap_often", "interval=4", SQUARE, 4, 10000),
                                                   ("soap_each", "interval=1", SQUARE, 1,
                                                    10000), ("soap_sides", "interval=6,limit=13",
                                                             ONE_SIDE, 6, 13),
                                                   ("soap_smaller", "interval=6,sides=smaller", [
                                                       s for s in ONE_SIDE if s != (12, 12)
                                                   ], 6, None)):
        config(name, "soap", "nikhilvyas/SOAP a1e5535 in float64, and torch.optim.AdamW",
               own_soap(clones, interval, limit), options=options,
               shapes=shapes, **SOAP)
    config("soap_normalized", "soap", "nikhilvyas/SOAP a1e5535 in float64, and torch.optim.AdamW",
           own_soap(clones, 4, 10000, normalize_grads=True), native=False,
           options="interval=4,normalize_grads=true", shapes=SQUARE, **SOAP)
    config("soap_vectors", "soap", "nikhilvyas/SOAP a1e5535 in float64; its first basis the "
                                   "identity",
           own_soap(clones, 9, 9, True, precondition_1d=True), rest=False, schedule=True,
           steps=api.LONG, options="interval=9,limit=9,start=identity,precondition_1d=true",
           native=False, shapes=[(1,), (2,), (7,), (9,), (15,), (9, 9), (15, 9)], **SOAP)
    config("soap_pairs", "soap", "nikhilvyas/SOAP a1e5535 in float64",
           own_soap(clones, 4, 13, precondition_1d=True, normalize_grads=True), rest=False,
           options="interval=4,limit=13,precondition_1d=true,normalize_grads=true",
           native=False, shapes=[(2,), (15,), (5, 5)], **SOAP)
    config(
        "soap_identity", "soap",
        "nikhilvyas/SOAP a1e5535 in float64, and torch.optim.AdamW; its first basis the identity",
        own_soap(clones, 9, 10000, True), options="interval=9,start=identity", **SOAP)
    for name, options, interval in (("klshampoo", "", 10), ("klshampoo_often", "interval=4", 4),
                                    ("klshampoo_each", "interval=1", 1)):
        config(name, "klshampoo", "yorkerlin/KL-Methods a02e622 in float64, and torch.optim.AdamW",
               own_klshampoo(clones,
                             interval), options=options, shapes=[s for s in SQUARE if s != (1, 1)],
               lr=0.02, beta1=0.8, beta2=0.9, eps=1e-3, weight_decay=0.1)
    config("dion", "dion", "microsoft/dion 0a059a4 in float64, its first Q our draws, and "
           "torch.optim.AdamW", own_dion(clones, 4, 7), options="directions=4", lr=0.05,
           momentum=0.8, eps=1e-6, weight_decay=0.1, seed=7.0)
    few = [s for s in SHAPES if np.prod(s) <= 50] + [(10, 24)]
    config("dion_other", "dion", "microsoft/dion 0a059a4 in float64, its first Q our draws, and "
           "torch.optim.AdamW", own_dion(clones, 3,
                                         5), options="directions=3", shapes=few, schedule=True,
           steps=api.LONG, lr=0.02, momentum=0.6, eps=1e-6, weight_decay=0.02, seed=5.0)
    KRON = dict(lr=0.02, momentum=0.8, precond_lr=0.4, beta=0.8, damping=0.01, clip_rms=0.9,
                weight_decay=0.1, seed=7.0)
    for name, options, limit in (("psgd_kron", "balance=8", 2048), ("psgd_kron_sides",
                                                                    "balance=8,limit=11", 11)):
        config(name, "psgd_kron",
               "lixilinx/psgd_torch a8616f1 and torch.optim.AdamW; its norm the largest row sum, "
               "its draws ours",
               own_psgd_kron(clones, 8, limit, 7), options=options, **KRON)
    ADAM = dict(lr=0.05, beta1=0.8, beta2=0.9, eps=0.0, weight_decay=0.0)
    RMS = dict(lr=0.02, alpha=0.8, eps=1e-3, weight_decay=0.0)

    def wrapped(name, spec, source, matrices, wrap, **hyper):
        api.config(name, spec, source, run_matrix(api, matrices), wrap=wrap, shapes=SHAPES,
                   native=False, **hyper)

    as_adam = lambda h: dict(lr=h.lr, betas=(h.beta1, h.beta2), eps=h.eps, weight_decay=h[
        "galore.decay"] / h.lr)
    as_rms = lambda h: dict(lr=h.lr, beta=h.alpha, eps=h.eps)
    wrapped(
        "adamw_galore", "adamw", "jiaweizzhao/GaLore 2cc66f8; the signs of singular vectors "
        "ours",
        projected(clones, "GaLore", "galore_torch/adamw.py", 4, 6,
                  lambda h: dict(scale=h["galore.scale"]), as_adam), "galore(4,6)",
        galore__scale=0.5, galore__decay=0.005, **ADAM)
    wrapped(
        "adamw_galore_each", "adamw", "jiaweizzhao/GaLore 2cc66f8; the signs of singular "
        "vectors ours",
        projected(clones, "GaLore", "galore_torch/adamw.py", 4, 1,
                  lambda h: dict(scale=h["galore.scale"]), as_adam), "galore(4,1)",
        galore__scale=0.5, galore__decay=0.005, **ADAM)
    wrapped("rmsprop_galore", "rmsprop", "GaLore of xichen-fy/Fira 5c28b13; the signs of singular "
                                         "vectors ours",
            projected(clones, "Fira", "optimizer_torch/galore_rmsprop.py", 4, 6,
                      lambda h: dict(alpha=h["galore.scale"]), as_rms), "galore(4,6)",
            galore__scale=0.5, galore__decay=0.0, **RMS)
    wrapped(
        "rmsprop_fira", "rmsprop", "xichen-fy/Fira 5c28b13; the signs of singular vectors ours",
        projected(clones, "Fira", "optimizer_torch/fira_rmsprop.py", 4, 6,
                  lambda h: dict(alpha=1.0), as_rms), "fira(4,6,apart=false)", fira__scale=1.0,
        fira__growth=1.01, fira__eps=1e-8, fira__decay=0.0, **RMS)
    wrapped(
        "rmsprop_fira_each", "rmsprop",
        "xichen-fy/Fira 5c28b13; the signs of singular vectors ours",
        projected(clones, "Fira", "optimizer_torch/fira_rmsprop.py", 4, 1,
                  lambda h: dict(alpha=1.0), as_rms), "fira(4,1,apart=false)", fira__scale=1.0,
        fira__growth=1.01, fira__eps=1e-8, fira__decay=0.0, **RMS)
    wrapped("adamw_fira", "adamw", "arXiv:2410.01623 transcribed", fira_adamw(4, 6),
            "fira(4,6,apart=false)", fira__scale=0.5, fira__growth=1.01, fira__eps=1e-8,
            fira__decay=0.005, **{**ADAM, "eps": 1e-3})

    # the same with the rule's own rate and decay, under a schedule; RMSprop of Fira has no decay
    def apart(name, spec, source, repository, file, wrap, scale, settings, **hyper):
        api.config(
            name, spec, source + "; the signs of singular vectors ours",
            run_matrix(api, projected(clones, repository, file, 4, 6, scale, settings, apart=True)),
            wrap=wrap, shapes=SHAPES, native=False, schedule=True, steps=api.LONG, **hyper)

    decayed = lambda h: dict(lr=h.lr, betas=(h.beta1, h.beta2), eps=h.eps, weight_decay=h.
                             weight_decay)
    apart("adamw_galore_apart", "adamw", "jiaweizzhao/GaLore 2cc66f8", "GaLore",
          "galore_torch/adamw.py", "galore(4,6)", lambda h: dict(scale=h["galore.scale"]), decayed,
          galore__scale=0.5, **{**ADAM, "weight_decay": 0.1})
    apart("rmsprop_fira_apart", "rmsprop", "xichen-fy/Fira 5c28b13", "Fira",
          "optimizer_torch/fira_rmsprop.py", "fira(4,6)", lambda h: dict(alpha=h["fira.scale"]),
          as_rms, fira__scale=0.7, fira__growth=1.01, fira__eps=1e-8, **RMS)
