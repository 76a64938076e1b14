"""Steps parameters during backward and frees their gradients, so that only a few gradients exist at
a time."""
import threading
import weakref

from ._tensor_binding import Changed
from ._state import reread


def watch(optimizer):
    """Adds a hook to every parameter that has none yet. The hook holds the optimizer weakly."""
    own = weakref.ref(optimizer)
    # backward has a thread for each device
    one = optimizer.__dict__.setdefault("_one", threading.RLock())

    def arrived(p):
        opt = own()
        if opt is not None and is_watched(opt, p):
            with one:
                step_one(opt, p)
    for group in optimizer.param_groups:
        for p in group["params"]:
            if not is_watched(optimizer, p) and p.requires_grad:
                optimizer._watched[id(p)] = p.register_post_accumulate_grad_hook(arrived)


def is_watched(optimizer, p):
    """Whether a parameter has the hook. Another one may have had its id before."""
    hook = optimizer._watched.get(id(p))
    return hook is not None and hook.hooks_dict_ref() is p._post_accumulate_grad_hooks


def step_late(optimizer):
    """Adds the hooks of parameters that could have none before: they were frozen, or were appended
    to a group. Steps those that have a gradient by now."""
    late = [p for g in optimizer.param_groups for p in g["params"]
            if not is_watched(optimizer, p) and p.requires_grad]
    if late:
        watch(optimizer)
        with optimizer._one:
            for p in late:
                if p.grad is not None:
                    step_one(optimizer, p)


def step_one(opt, p):
    """Steps one parameter, which has its own binding here, unless it is in no group any more."""
    opt._refuse_in_evaluation("step")
    if opt._bounds is None or opt._shape != opt._layout() or reread(opt):
        opt._bind()
    b = _bound(opt, p)
    if b is None:
        return
    try:
        _give(opt, b)
    except Changed:
        opt._bind()
        b = _bound(opt, p)
        _give(opt, b)
    opt._refuse_in_evaluation("step")                  # edited states may have brought the mode
    try:
        b.run("step")
        opt._done(b, "step")
    except BaseException:
        opt._recover()
        raise
    finally:
        b.let_go()
    p.grad = None


def _give(opt, b):
    b.follow_stream()
    opt._push()
    b.find_grads()


def _bound(opt, p):
    if id(p) not in opt._of:                           # it was frozen
        opt._bind()
    return opt._of.get(id(p))
