"""Edits of a training loop for fuzz_contracts.py: steps, and what users do to parameters and
gradients. Those of groups, states and files are in contract_edits_groups.py. Each is a function of
a side and a random.Random; both sides get the same numbers."""
import torch

EDITS = {}


class Stop(Exception):
    """Raised by closures and hooks."""


def edit(weight=1):
    def add(function):
        EDITS[function.__name__] = (function, weight)
        return function
    return add


def draw(r, shape, dtype):
    made = torch.Generator().manual_seed(r.getrandbits(31))
    return torch.randn(shape, generator=made, dtype=torch.float64).to(dtype)


def each(s):
    """The parameters of the groups, each once."""
    return list({id(p): p for g in s.opt.param_groups for p in g["params"]}.values())


def pick(s, r):
    return r.choice(each(s))


def group(s, r):
    return r.choice(s.opt.param_groups)


def fresh(s, r, share=1.0):
    for p in each(s):
        if p.requires_grad:
            x = draw(r, p.shape, p.dtype)
            p.grad = x if r.random() < share else None


def entry(s, r):
    """A parameter with states, and its entry, read as a user does."""
    found = [p for p in each(s) if dict.get(s.opt.state, p)]
    p = r.choice(found) if found else pick(s, r)
    return p, s.opt.state[p]


def shapes(s):
    return [[(tuple(p.shape), p.dtype) for p in g["params"]] for g in s.opt.param_groups]


def saved_by(s):
    """state_dict(). States of parameters that are in no group are removed first: torch raises a
    KeyError for them."""
    known = set(map(id, each(s)))
    for p in [p for p in dict.keys(s.opt.state) if id(p) not in known]:
        del s.opt.state[p]
    return s.opt.state_dict()


def tensors(own):
    return sorted(k for k, v in own.items() if isinstance(v, torch.Tensor) and k != "step")


# ---- steps ----
@edit(6)
def step(s, r):
    fresh(s, r)
    s.opt.step()


@edit(3)
def step_some(s, r):
    fresh(s, r, 0.5)
    s.opt.step()


@edit(2)
def step_again(s, r):
    s.opt.step()


@edit()
def step_three_times(s, r):
    for _ in range(3):
        step(s, r)


@edit()
def step_zero_gradients(s, r):
    for p in each(s):
        p.grad = torch.zeros_like(p)
    s.opt.step()


@edit()
def step_in_no_grad(s, r):
    with torch.no_grad():
        step(s, r)


@edit()
def step_in_inference_mode(s, r):
    if all(tensors(dict.get(s.opt.state, p, {})) for p in each(s)):    # new ones cannot be edited
        fresh(s, r)
        with torch.inference_mode():
            s.opt.step()


@edit()
def step_in_autocast(s, r):
    with torch.autocast("cpu"):
        step(s, r)


@edit(2)
def step_with_closure(s, r):
    def closure():
        s.opt.zero_grad()
        fresh(s, r)
        return torch.tensor(0.5)
    assert s.opt.step(closure).item() == 0.5


@edit()
def closure_raises(s, r):
    def closure():
        fresh(s, r)
        raise Stop
    s.opt.step(closure)


@edit()
def closure_interrupted(s, r):
    def closure():
        raise KeyboardInterrupt
    s.opt.step(closure)


@edit()
def step_by_backward(s, r):
    s.opt.zero_grad()
    loss = sum(((p - draw(r, p.shape, p.dtype)) ** 2).sum() for p in each(s) if p.requires_grad)
    if isinstance(loss, torch.Tensor):
        loss.backward()
    s.opt.step()


@edit()
def accumulate_backward(s, r):
    for _ in range(2):
        loss = sum((p * draw(r, p.shape, p.dtype)).sum() for p in each(s) if p.requires_grad)
        if isinstance(loss, torch.Tensor):
            loss.backward()
    s.opt.step()


# ---- gradients ----
@edit()
def zero_grad(s, r):
    s.opt.zero_grad()


@edit()
def zero_grad_in_place(s, r):
    s.opt.zero_grad(set_to_none=False)


@edit()
def gradient_none(s, r):
    pick(s, r).grad = None


@edit()
def gradient_in_place(s, r):
    p = pick(s, r)
    p.grad is not None and p.grad.mul_(r.uniform(-2, 2))


@edit()
def gradient_data(s, r):
    p = pick(s, r)
    if p.grad is not None:
        p.grad.data = draw(r, p.shape, p.dtype)


@edit()
def gradient_strided(s, r):
    p = pick(s, r)
    p.grad = draw(r, (*p.shape, 2), p.dtype)[..., 0]
    s.opt.step()


@edit()
def gradient_transposed(s, r):
    p = pick(s, r)
    p.grad = draw(r, p.shape[::-1], p.dtype).permute(*range(p.dim())[::-1])
    s.opt.step()


@edit()
def gradient_expanded(s, r):
    p = pick(s, r)
    p.grad = draw(r, (1,) * p.dim(), p.dtype).expand(p.shape)
    s.opt.step()


@edit()
def gradients_of_one_buffer(s, r):
    params = each(s)
    for dtype in {p.dtype for p in params}:
        these = [p for p in params if p.dtype == dtype]
        flat = draw(r, (sum(p.numel() for p in these),), dtype)
        for p, x in zip(these, flat.split([p.numel() for p in these])):
            p.grad = x.view(p.shape)
    s.opt.step()


@edit()
def gradient_shared(s, r):
    p = pick(s, r)
    x = draw(r, p.shape, p.dtype)
    for q in each(s):
        if q.shape == p.shape and q.dtype == p.dtype:
            q.grad = x
    s.opt.step()


@edit()
def gradient_channels_last(s, r):
    for p in each(s):
        if p.dim() == 4:
            p.grad = draw(r, p.shape, p.dtype).contiguous(memory_format=torch.channels_last)
    s.opt.step()


@edit()
def gradient_of_wrong_shape(s, r):
    p = pick(s, r)
    p.grad = draw(r, (*p.shape, 3), p.dtype)


@edit()
def gradient_with_graph(s, r):
    p = pick(s, r)
    p.grad = draw(r, p.shape, p.dtype).requires_grad_() * 1
    s.opt.step()
    p.grad = None


@edit()
def clip_norm(s, r):
    torch.nn.utils.clip_grad_norm_(each(s), 0.5)
    s.opt.step()


@edit()
def clip_values(s, r):
    torch.nn.utils.clip_grad_value_(each(s), 0.5)
    s.opt.step()


# ---- parameters ----
@edit()
def data_swapped(s, r):
    p = pick(s, r)
    p.data = draw(r, p.shape, p.dtype)


@edit()
def data_in_place(s, r):
    pick(s, r).data.mul_(r.uniform(0.5, 1.5))


@edit()
def in_place_in_no_grad(s, r):
    with torch.no_grad():
        pick(s, r).add_(r.uniform(-1, 1))


@edit()
def data_transposed(s, r):
    p = pick(s, r)
    if p.dim() > 1:
        p.data = p.data.transpose(0, 1).contiguous().transpose(0, 1)


@edit()
def data_in_buffer(s, r):
    p, at = pick(s, r), r.randint(0, 3)
    flat = torch.zeros(p.numel() + at, dtype=p.dtype)
    flat[at:] = p.data.reshape(-1)
    p.data = flat[at:].view(p.shape)


@edit()
def data_channels_last(s, r):
    for p in each(s):
        if p.dim() == 4:
            p.data = p.data.contiguous(memory_format=torch.channels_last)


@edit()
def data_contiguous(s, r):
    for p in each(s):
        p.data = p.data.contiguous()


@edit()
def data_set(s, r):
    p = pick(s, r)
    p.data.set_(draw(r, p.shape, p.dtype))


@edit()
def vector_to_parameters(s, r):
    params = each(s)
    if len({p.dtype for p in params}) == 1:
        x = draw(r, (sum(p.numel() for p in params),), params[0].dtype)
        torch.nn.utils.vector_to_parameters(x, params)


@edit()
def swap_tensors(s, r):
    p, q = pick(s, r), pick(s, r)
    same = p.shape == q.shape and p.dtype == q.dtype and p.requires_grad == q.requires_grad
    if p is not q and same and p.is_leaf and q.is_leaf:
        p.grad = q.grad = None
        torch.utils.swap_tensors(p, q)


@edit()
def freeze(s, r):
    p = pick(s, r)
    p.grad = None
    p.requires_grad_(False)


@edit()
def freeze_with_gradient(s, r):
    pick(s, r).requires_grad_(False)


@edit(2)
def thaw(s, r):
    for p in each(s):
        p.requires_grad_(True)


@edit()
def convert(s, r):
    """Another type, as module.double() and a cast of the states."""
    dtype = torch.float64 if each(s)[0].dtype == torch.float32 else torch.float32
    for p in each(s):
        p.data, p.grad = p.data.to(dtype), None
        p.requires_grad_(True)
        for k in tensors(s.opt.state[p]) if p in s.opt.state else ():
            if s.opt.state[p][k].dim() or not p.dim():
                s.opt.state[p][k] = s.opt.state[p][k].to(dtype)
    step(s, r)
