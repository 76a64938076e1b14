"""More edits for fuzz_contracts.py, of groups, states, files, hooks and schedulers; see
contract_edits.py."""
import copy
import io
import pickle
from collections import defaultdict

import torch
from torch.optim import lr_scheduler as lrs

from contract_edits import (Stop, draw, each, edit, entry, group, pick, saved_by, shapes, step,
                            tensors)


# ---- groups ----
@edit(2)
def lr_number(s, r):
    group(s, r)["lr"] = r.choice((0.0, 1e-3, 0.01, 0.1))


@edit()
def lr_tensor(s, r):
    group(s, r)["lr"] = torch.tensor(r.choice((1e-3, 0.01, 0.1)), dtype=torch.float64)


@edit()
def lr_tensor_in_place(s, r):
    lr = group(s, r)["lr"]
    if isinstance(lr, torch.Tensor):
        lr.fill_(r.choice((1e-3, 0.01, 0.1)))


@edit()
def weight_decay(s, r):
    g, value = group(s, r), r.choice((0, 0.01, 0.1))
    if "weight_decay" in g:
        g["weight_decay"] = value


@edit()
def betas(s, r):
    g, b = group(s, r), (r.choice((0.0, 0.5, 0.9)), r.choice((0.9, 0.99)))
    if "betas" in g:
        g["betas"] = b
    if "rho" in g:
        g["rho"] = b[1]
    if "alpha" in g:
        g["alpha"] = b[1]
    if g.get("momentum"):
        g["momentum"] = b[1]


@edit()
def eps(s, r):
    g, value = group(s, r), r.choice((1e-8, 1e-6, 1e-3))
    if isinstance(g.get("eps"), float):
        g["eps"] = value


@edit()
def maximize(s, r):
    g = group(s, r)
    g["maximize"] = not g["maximize"]


@edit()
def nesterov(s, r):
    g = group(s, r)
    if g.get("momentum") and "nesterov" in g and not g["dampening"]:
        g["nesterov"] = not g["nesterov"]


@edit()
def foreach(s, r):
    group(s, r)["foreach"] = r.choice((True, False, None))


@edit()
def foreign_key(s, r):
    group(s, r)["lr_scale"] = r.random()


def new_parameter(s, r):
    p = r.choice(each(s))
    return torch.nn.Parameter(draw(r, r.choice(((3,), (2, 3), (2, 2, 2))), p.dtype))


@edit()
def add_group(s, r):
    q = new_parameter(s, r)
    s.opt.add_param_group({"params": [q], "lr": 0.05} if r.random() < 0.5 else {"params": q})


@edit()
def add_group_again(s, r):
    s.opt.add_param_group({"params": [pick(s, r)]})


@edit()
def add_group_of_no_leaf(s, r):
    s.opt.add_param_group({"params": [pick(s, r) * 2]})


@edit(2)
def append_parameter(s, r):
    g = group(s, r)
    if "param_names" not in g:
        g["params"].append(new_parameter(s, r))


@edit()
def append_to_named_group(s, r):
    g, q = group(s, r), new_parameter(s, r)
    g["params"].append(q)
    if "param_names" in g and r.random() < 0.5:
        g["param_names"].append("q%d" % len(g["params"]))


@edit(2)
def replace_parameter(s, r):
    params = group(s, r)["params"]
    if params:
        i = r.randrange(len(params))
        old = params[i]
        params[i] = torch.nn.Parameter(old.detach().clone())
        if r.random() < 0.5:
            params[i].grad = draw(r, old.shape, old.dtype)


@edit()
def replace_and_move_state(s, r):
    params = group(s, r)["params"]
    if params:
        old, params[0] = params[0], torch.nn.Parameter(params[0].detach().clone())
        if old in s.opt.state:
            s.opt.state[params[0]] = s.opt.state.pop(old)


@edit()
def remove_parameter(s, r):
    g = group(s, r)
    if len(g["params"]) > 1:
        at = r.randrange(len(g["params"]))
        del g["params"][at]
        g.get("param_names") and g["param_names"].pop(at)


@edit()
def move_parameter(s, r):
    a, b = group(s, r), group(s, r)
    if a is not b and len(a["params"]) > 1 and "param_names" not in a and "param_names" not in b:
        b["params"].append(a["params"].pop())


@edit()
def reorder(s, r):
    g = group(s, r)
    if "param_names" not in g:
        g["params"].reverse()


@edit()
def new_list(s, r):
    g = group(s, r)
    g["params"] = list(g["params"])


@edit()
def new_groups(s, r):
    s.opt.param_groups = [dict(g) for g in s.opt.param_groups]


@edit()
def remove_group(s, r):
    if len(s.opt.param_groups) > 1:
        s.opt.param_groups.pop()


# ---- states ----
@edit()
def state_in_place(s, r):
    p, own = entry(s, r)
    for k in tensors(own):
        own[k].mul_(0.5)


@edit()
def state_held_and_edited(s, r):
    """A tensor that the program got at an earlier edit."""
    if s.held is not None:
        s.held.mul_(0.5)
    p, own = entry(s, r)
    names = tensors(own)
    s.held = own[r.choice(names)] if names else None


@edit()
def state_replaced(s, r):
    p, own = entry(s, r)
    for k in tensors(own):
        own[k] = own[k].abs() * 0.5 + 0.25


@edit()
def state_data(s, r):
    p, own = entry(s, r)
    for k in tensors(own):
        own[k].data = own[k].abs() + 0.25


@edit()
def state_strided(s, r):
    p, own = entry(s, r)
    for k in tensors(own):
        if own[k].dim() > 1:
            own[k] = own[k].transpose(0, 1).contiguous().clone().transpose(0, 1)


@edit()
def state_clear(s, r):
    s.opt.state.clear()


@edit()
def state_pop(s, r):
    s.opt.state.pop(pick(s, r), None)


@edit()
def state_new_dict(s, r):
    s.opt.state = defaultdict(dict)


@edit()
def state_same_in_new_dict(s, r):
    s.opt.state = defaultdict(dict, s.opt.state)


@edit()
def state_entry_copied(s, r):
    p, own = entry(s, r)
    s.opt.state[p] = dict(own)


@edit()
def state_deep_copied(s, r):
    p, own = entry(s, r)
    s.opt.state[p] = copy.deepcopy(own)


@edit()
def state_step(s, r):
    p, own = entry(s, r)
    if isinstance(own.get("step"), torch.Tensor):
        own["step"] += r.choice((1, 5))


@edit()
def state_step_new(s, r):
    p, own = entry(s, r)
    if "step" in own:
        own["step"] = torch.tensor(float(r.choice((1, 7))))


@edit()
def state_of_another(s, r):
    p, own = entry(s, r)
    for q in each(s):
        if q is not p and q.shape == p.shape and q.dtype == p.dtype and q in s.opt.state and own:
            s.opt.state[q] = copy.deepcopy(own)


# ---- files and copies ----
@edit()
def load_own(s, r):
    s.opt.load_state_dict(saved_by(s))


@edit()
def load_by_keyword(s, r):
    s.opt.load_state_dict(state_dict=copy.deepcopy(saved_by(s)))


@edit()
def load_from_file(s, r):
    f = io.BytesIO()
    torch.save(saved_by(s), f)
    f.seek(0)
    s.opt.load_state_dict(torch.load(f, weights_only=True))


@edit()
def load_into_new(s, r):
    saved = saved_by(s)
    s.opt = s.make([{"params": list(g["params"])} for g in s.opt.param_groups])
    s.schedule = s.held = None                         # in torch, the new one's states too
    s.opt.load_state_dict(saved)


@edit()
def keep_state_dict(s, r):
    s.saved = copy.deepcopy(saved_by(s)), shapes(s)


@edit()
def load_kept(s, r):
    if s.saved is not None and s.saved[1] == shapes(s):    # optc refuses states of another shape
        s.opt.load_state_dict(s.saved[0])


@edit()
def load_without_states(s, r):
    saved = saved_by(s)
    s.opt.load_state_dict({**saved, "state": {}})


@edit()
def load_too_few_groups(s, r):
    saved = saved_by(s)
    s.opt.load_state_dict({**saved, "param_groups": saved["param_groups"][:-1]})


@edit()
def load_other_sizes(s, r):
    saved = copy.deepcopy(saved_by(s))
    saved["param_groups"][0]["params"].append(99)
    s.opt.load_state_dict(saved)


@edit()
def deep_copy(s, r):
    s.opt, s.held = copy.deepcopy(s.opt), None
    s.schedule = None


@edit()
def pickled(s, r):
    s.opt, s.held = pickle.loads(pickle.dumps(s.opt)), None
    s.schedule = None


@edit()
def shallow_copy(s, r):
    s.opt = copy.copy(s.opt)
    s.schedule = None


@edit()
def printed(s, r):
    repr(s.opt), len(s.opt.state), list(s.opt.state)


# ---- hooks ----
@edit()
def pre_hook(s, r):
    def scale(opt, args, kwargs):
        for g in opt.param_groups:
            for p in g["params"]:
                if p.grad is not None and not p.grad.requires_grad:
                    p.grad = p.grad * 0.5
    handle = s.opt.register_step_pre_hook(scale)
    step(s, r)
    handle.remove()


@edit()
def post_hook(s, r):
    seen = []
    handle = s.opt.register_step_post_hook(lambda opt, a, k: seen.append(opt.state))
    step(s, r)
    handle.remove()
    assert len(seen) == 1


@edit()
def post_hook_edits(s, r):
    def shrink(opt, args, kwargs):
        for p in each(s):
            p.data.mul_(0.5)
    handle = s.opt.register_step_post_hook(shrink)
    step(s, r)
    handle.remove()


@edit()
def hook_raises(s, r):
    def stop(opt, args, kwargs):
        raise Stop
    add = r.choice(("register_step_pre_hook", "register_step_post_hook"))
    handle = getattr(s.opt, add)(stop)
    try:
        step(s, r)
    finally:
        handle.remove()


@edit()
def hook_interrupted(s, r):
    def stop(opt, args, kwargs):
        raise KeyboardInterrupt
    add = r.choice(("register_step_pre_hook", "register_step_post_hook"))
    handle = getattr(s.opt, add)(stop)
    try:
        step(s, r)
    finally:
        handle.remove()


@edit()
def file_hooks(s, r):
    seen = []
    handles = [s.opt.register_state_dict_pre_hook(lambda o: seen.append("a")),
               s.opt.register_state_dict_post_hook(lambda o, d: seen.append("b")),
               s.opt.register_load_state_dict_pre_hook(lambda o, d: seen.append("c")),
               s.opt.register_load_state_dict_post_hook(lambda o: seen.append("d"))]
    try:
        s.opt.load_state_dict(saved_by(s))
    finally:
        for h in handles:
            h.remove()
    assert seen == ["a", "b", "c", "d"]


# ---- schedulers ----
@edit()
def schedule(s, r):
    for g in s.opt.param_groups:
        g.pop("initial_lr", None)
    s.schedule = r.choice((lambda o: lrs.StepLR(o, 2, 0.5), lambda o: lrs.ExponentialLR(o, 0.9),
                           lambda o: lrs.LambdaLR(o, lambda t: 1 / (1 + t)),
                           lambda o: lrs.LinearLR(o, 0.5, 1.0, 3),
                           lambda o: lrs.CosineAnnealingLR(o, 4)))(s.opt)


@edit(3)
def schedule_step(s, r):
    if s.schedule is not None and len(s.schedule.base_lrs) == len(s.opt.param_groups):
        step(s, r)
        s.schedule.step()


@edit()
def one_cycle(s, r):
    if "betas" in s.opt.defaults or s.opt.defaults.get("momentum"):
        cycle = lrs.OneCycleLR(s.opt, 0.1, total_steps=3)
        for _ in range(2):
            step(s, r)
            cycle.step()
        s.schedule = None
