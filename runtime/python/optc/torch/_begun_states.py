"""States that torch's constructor makes: Adagrad's. The first binding replaces unchanged ones that
the program does not hold."""
import contextlib
import sys

import torch

from ._group_keys import number
from ._sharded import is_sharded
from ._state_views import ONE_REFERENCE

WIDE = (torch.float32, torch.float64)


def begin(opt, params=None):
    """Adds the states to opt.state, for some parameters or for all. Those of narrow types are f32,
    as optc keeps them: the first value is exact."""
    for group in opt.param_groups if opt._rule.row == "adagrad" else ():
        value = number(group["initial_accumulator_value"])
        for p in group["params"]:
            if params is None or p in params:
                wide = p.dtype in WIDE or p.is_complex()
                opt.state[p] = {
                    "step": torch.tensor(0.0), "sum": torch.full_like(
                        p, complex(value, value) if p.is_complex() else value,
                        dtype=p.dtype if wide else torch.float32, requires_grad=False)
                }


def _is_begun(own, value):
    total = own.get("sum")
    there = type(total) is torch.Tensor and total.device.type != "meta"        # not a fake tensor
    return there and not number(own.get("step", 1)) and bool((total == value).all())


@contextlib.contextmanager
def dropped(opt):
    """A context in which opt.state lacks the states as `begin` made them: while a binding allocates
    its own, which start with the same values. They come back after a failure."""
    found = set()
    for group in opt.param_groups if opt._bounds is None and opt._rule.row == "adagrad" else ():
        value = group["initial_accumulator_value"]
        for p in group["params"]:
            own = dict.get(opt.state, p)
            held = own and "sum" in own and sys.getrefcount(own["sum"]) > ONE_REFERENCE
            if own and not held and p.requires_grad and not is_sharded(p) and _is_begun(own, value):
                del own["sum"]
                found.add(p)
    try:
        yield
    except BaseException:
        begin(opt, found)
        raise
