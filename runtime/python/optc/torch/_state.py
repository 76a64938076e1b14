"""opt.state and the memory of bindings that it shows: finds edited entries, checks files, and
copies both into bindings."""
import contextlib
import math
import sys
import warnings
from collections import defaultdict

import torch
from torch.utils import _pytree

from .. import _lib
from .._api import Binding
from . import _codes
from ._group_keys import number, split_wrappers, user_level
from ._scaling import SKIPPED
from ._engines import asked
from ._sharded import fill, is_sharded, local, refuse_placed_value
from ._state_views import ONE_REFERENCE
from ._tensor_checks import refuse_freed

MOST_STEPS = 1 << 52                                   # optc_set_t takes no more
STEPLESS = ("sgd", "muon")                             # torch's files of these rules have no 'step'
# Rules whose group state k is the number of the group's steps; files from before k lack it.
COUNTED = ("adagc", "adan", "adashift", "amos", "dadapt_adam", "gpa_adamw", "lamb", "prodigy",
           "shampoo", "stable_spam", "stableadamw", "yogi")


class States(defaultdict):
    """opt.state. used: the parameters whose entries were read or written from outside since the
    last step; all: every parameter. A tensor that was read can be edited at any time, so reading
    counts too. Copies and pickles are a plain defaultdict."""

    def __init__(self, *given):
        super().__init__(*given)
        self.used, self.all = set(), True

    def __reduce__(self):
        return defaultdict, (dict,), None, None, iter(self.items())


def plain(state):
    """A state for several optimizers: without notes of its use, so each of them compares all
    entries at every step."""
    return defaultdict(dict, state) if type(state) is States else state


def _noting(name, one):
    inner = getattr(defaultdict, name)

    def method(self, *given, **named):
        if one and given:
            self.used.add(given[0])
        else:
            self.all = True
        return inner(self, *given, **named)
    method.__name__ = name
    return method


# Because of this __iter__, dict(state) and {**state} call these methods too.
for _name in ("__getitem__", "__setitem__", "__delitem__", "get", "pop", "setdefault"):
    setattr(States, _name, _noting(_name, True))
for _name in ("__iter__", "items", "values", "popitem", "clear", "update", "copy", "__or__",
              "__ror__", "__ior__"):
    setattr(States, _name, _noting(_name, False))
_pytree.register_pytree_node(States, lambda s: (list(s.values()), list(s.keys())),
                             lambda values, keys: defaultdict(dict, zip(keys, values)))


def entry(opt, p):
    """opt.state[p] or None; does not count as a use."""
    return dict.get(opt.state, p)


def is_empty_step(opt):
    """Detects the first step of a distributed checkpoint, which only creates states: no states yet,
    rates of 0 and gradients of 0. Such a step creates the states and runs nothing. All ranks reach
    the same answer."""
    if any(entry(opt, p) for g in opt.param_groups for p in g["params"]):
        return False
    rates = [number(g[key]) for g in opt.param_groups for key, _ in opt._rule.keys if key == "lr"]
    if not rates or any(rates) or opt._capturing():
        return False
    found = any(
        bool(local(p.grad).any()) for g in opt.param_groups for p in g["params"]
        if p.grad is not None)
    comm = next((b.comm for b in opt._bounds if b.comm), None)
    return not (found if comm is None else comm.largest(float(found)).item())


# ---- edits ----
def reread(opt):
    """Copies edited states and steps into their bindings. True: states were removed, so tensors
    must be bound again."""
    state = opt.state
    if type(state) is States and not state.used and not state.all:
        return False
    # the local and the attribute
    if type(state) is not States and sys.getrefcount(state) <= ONE_REFERENCE + 1:
        opt.state = state = States(dict, state)
    places = opt._places
    if type(state) is States and not state.all:
        places = {p: places[p] for p in state.used if p in places}
    edited = _edited(opt, places)
    if edited is None:
        return True
    if edited:
        opt._refuse_capture()
        # a GPU's counts may be ahead of the last read
        opt._count_replays()
        take(opt, [(b, plan(opt, b, numbers)) for b, numbers in edited.items()])
    if type(state) is States:
        state.used, state.all = _retained(state, places), False
    return False


def _edited(opt, places):
    """{binding: numbers} of tensors whose entries were changed; None: one was removed."""
    found, counts = {}, {
        b: (b.steps.tolist(), b.counted.tolist()) for b in {b for b, _ in places.values()}
    }
    for p, (b, i) in places.items():
        own, (steps, counted) = entry(opt, p), counts[b]
        if removed(b, i, own):
            return None
        if own and (steps[i] != counted[i] or not b.shows(i, own)):
            found.setdefault(b, []).append(i)
    return found


def removed(b, i, own):
    return not own and b.marks[i] is not None


def _retained(state, places):
    """Parameters whose states have references elsewhere: they may be edited later without `state`
    noticing."""
    there = [(p, b, i) for p, (b, i) in places.items() if p in state]
    entries = [dict.get(state, p) for p, _, _ in there]
    held = [n > ONE_REFERENCE + 1 for n in map(sys.getrefcount, entries)]
    tensors = [(*b.views[i].values(), b.step_views[i]) if b.marks[i] else () for _, b, i in there]
    for k, each in enumerate(tensors):                 # held by `each`, the binding and the entry
        held[k] = held[k] or any(n > ONE_REFERENCE + 2 for n in map(sys.getrefcount, each))
    return {p for (p, _, _), more in zip(there, held) if more}


# ---- checks of states ----
def step_of(own, name, stepless):
    """The number of steps of an entry; refuses a value that is not one."""
    if "step" not in own:
        if not stepless:
            raise ValueError("the state of %s has no 'step'" % name)
        # 1 if torch's momentum buffer exists
        return int(any(v is not None for v in own.values()))
    return _count_of(own, "step", name)


def _count_of(own, key, name):
    try:
        count = number(own[key])
    except (TypeError, ValueError, RuntimeError, OverflowError):
        count = math.nan
    if not 0 <= count <= MOST_STEPS or count != int(count):
        raise ValueError(
            "'%s' of %s is %s: a whole number from 0 to 2^52 is wanted" % (key, name, own[key]))
    return int(count)


def clock_of(own, name, count):
    """The steps of the binding, from an entry of `count` steps."""
    return count + _noted(own, MISSED, name)


def _noted(own, key, name):
    return _count_of(own, key, name) if own.get(key) is not None else 0


def refuse_empty(value, key, name):
    """Refuses a state's new value without memory, such as a meta or fake tensor."""
    if value.layout == torch.strided:
        refuse_freed(local(value), "state '%s' of " % key, name)


def check_value(value, shape, key, name, view=None, coded=False, pairs=False):
    """A state's new value as a tensor; refuses another shape, but for dimensions of size 1, and
    what is no real number. coded: codes are taken too; pairs: complex numbers."""
    given = value if isinstance(value, torch.Tensor) else torch.as_tensor(
        value, dtype=torch.float64)
    if view is not None:
        refuse_placed_value(given, view, "state '%s' of %s" % (key, name))
    refuse_empty(given, key, name)
    if [n for n in given.shape if n != 1] != [n for n in shape if n != 1]:
        raise ValueError("state '%s' of %s has shape %s, and one of shape %s was given" % (
            key, name, tuple(shape), tuple(given.shape)))
    whole = view.dtype if view is not None else given.dtype    # of remainders (int16, int8)
    remainder = given.dtype == whole and given.dtype in (torch.int16, torch.int8)
    pairs = given.is_complex() and (pairs or view is not None and view.is_complex())
    codes = given.dtype == torch.uint8 and coded
    if not (given.is_floating_point() or pairs or remainder or codes):
        raise ValueError("state '%s' of %s was given as %s: a floating type is wanted" %
                         (key, name, given.dtype))
    return given


def refuse_upper(rule, state, tensor, value, at=0):
    """Refuses values right of the diagonal in a state that the rule keeps a lower triangle. tensor:
    its shape, name, flags, split and tags; at: the index of the first value in the state."""
    wide = value.dtype == torch.float64
    flat = value.detach().to("cpu", torch.float64 if wide else torch.float32).contiguous()
    try:
        rule.check_state(state, tensor, flat.data_ptr(), _lib.F64 if wide else _lib.F32, at,
                         flat.numel())
    except _lib.ArgumentError as e:                    # without the name of the call
        raise ValueError(str(e).partition(": ")[2]) from None


def _check_triangles(b, rows):
    """Refuses such values of a binding's tensors, [(number, state, value)]. If ranks have parts of
    a value, all of them raise the error of one."""
    problem, parts = None, False
    for i, n, value in rows:
        parts, at = parts or is_sharded(value), 0
        if is_sharded(value):
            value, at = b.owned(i)[n].part_of(value)
        try:
            refuse_upper(b.rule, b.lower[n], {"shape": tuple(b.owners[i].shape), "name": b.names[i],
                                              **b.asked[i]._asdict()}, value, at)
        except ValueError as e:
            problem = problem or str(e)
    if parts:
        problem = next(filter(None, b.comm.gathered(problem)), None)
    if problem:
        raise ValueError(problem)


# steps of the binding in which a tensor had no gradient
MISSED = "missed"
# states that files of earlier versions lack; they start at 0
ADDED = ("ema.exchanged",)


def completed(opt, own, kept, count, p):
    """An entry with the state `mu` of asgd, which files of earlier versions lack: it follows from
    the steps and t0. kept: the rule's states. p: a parameter of its group, or the group."""
    if opt._rule.spec != "asgd" or not count or "mu" not in kept or own.get("mu") is not None or \
            any(own.get(k) is None for k in ("ax", "eta")):
        return own
    group = p if isinstance(p, dict) else next(
        g for g in opt.param_groups if any(q is p for q in g["params"]))
    return {
        **own, "mu": torch.tensor(1 / max(1.0, count - number(group["t0"])), dtype=torch.float64,
                                  device="cpu")
    }


def check_missing(opt, own, keys, name, loaded=True):
    """Refuses an entry that lacks some of the rule's states. keys: those it must have. States of
    wrappers that are new to a run start again, and so do states if everything loaded belongs to
    another rule."""
    missing = [k for k in keys if own.get(k) is None and k not in ADDED]
    if loaded and len(missing) == len(keys) and set(own) - {"step"}:
        return
    for w in split_wrappers(opt._rule.what["with_"], ","):
        prefix = w.split("(")[0].strip() + "."
        if not any(k.startswith(prefix) and own.get(k) is not None for k in keys):
            missing = [k for k in missing if not k.startswith(prefix)]
    if missing:
        raise ValueError("the state of %s has no '%s', which %s keeps (it has: %s)" % (
            name, "', '".join(missing), opt._rule.spec, ", ".join(own) or "nothing"))


def check_group_missing(opt, rule, entries, k):
    """Refuses a group of a file that lacks states of the group, such as counts of its steps: these
    would start again beside the states of tensors. entries: of its tensors."""
    names, entries = opt._rule.names, [own for own in entries if own]
    # a wrapper may be new to a run
    domains = {n: d for n, d in rule.states().items() if "." not in n}
    there = {n for n in domains if any(own.get(names.get(n, n)) is not None for own in entries)}
    missing = [n for n, d in domains.items()
               if d == "group" and n not in there and not is_count(opt, n)]
    if missing and there and any(step_of(own, "", True) for own in entries):
        raise ValueError(
            "the file has no '%s' of param_groups[%d], which %s keeps: it was saved "
            "by an older version or another rule" % ("', '".join(missing), k, opt._rule.spec))


# ---- into a binding ----
def _of_group(b, i):
    """The parameters of the group whose first tensor of a binding this is; those of the binding's
    device and type come first, in two lists: other types have bindings and states of the group of
    their own."""
    mine = b.owners[i].device, b.owners[i].dtype
    alike, others = [], []
    for p in b.members[b.firsts[i]].whole:
        (alike if (p.device, p.dtype) == mine else others).append(p)
    return alike, others


def is_count(opt, name):
    """Whether this is the number of the group's steps, which those of its tensors tell if it is
    missing."""
    return name == "k" and split_wrappers(opt._rule.spec)[0] in COUNTED


def _with_group_states(opt, b, i):
    """The entry of a tensor. That of a group's first one also has the group's states, which another
    parameter of the group had if the first one was frozen until now, or is new."""
    own, found = entry(opt, b.owners[i]), {}
    if i in b.firsts:
        alike, others = _of_group(b, i)
        entries = [e for p in alike + others if (e := entry(opt, p))]
        found = {
            n: next((e[n] for e in (own or {}, *entries) if e.get(n) is not None), None)
            for n in b.group_names()
        }
        if "k" in found and found["k"] is None and is_count(opt, "k"):
            steps = [clock_of(e, "", step_of(e, "", True)) for e in (own or {}, *entries)]
            found["k"] = torch.tensor(float(max(steps)), dtype=torch.float64, device="cpu")
    found = {n: v for n, v in found.items() if v is not None}
    return {**(own or {"step": 0}), **found} if found else own


def leave_group_states(opt, bounds):
    """Removes the states of groups from entries that do not show them any more. A group that is
    frozen as a whole keeps them."""
    for b, i in ((b, i) for b in bounds for i in b.firsts):
        for p in _of_group(b, i)[0]:
            at, k = opt._places.get(p, (None, 0))
            for n in set(b.group_names()).intersection(entry(opt, p) or
                                                       ()).difference(at.live(k) if at else ()):
                del entry(opt, p)[n]


def note_clock(opt, b):
    """Writes to the entries by how many steps the binding's count, which `every` follows, is ahead
    of the tensor's, and for rules that draw random numbers, which follow the binding's steps, how
    many of these were skipped. When tensors are bound again, also others, the counts are computed
    from their entries."""
    for i, n in enumerate(b.skipped if b.draws else ()):
        own = entry(opt, b.owners[i])
        if own and b.marks[i] is not None:
            # 0 too: a distributed checkpoint must have all keys of a run
            own[SKIPPED] = n
    clock, counts = b.clock(), b.counted.tolist()
    for i, p in enumerate(b.owners if clock else ()):
        own = entry(opt, p)
        if not own or b.marks[i] is None or own.get(MISSED) != b.missed[i]:
            continue                                   # an entry that was replaced
        b.missed[i] = clock - int(counts[i]) or None
        own.pop(MISSED, None) if b.missed[i] is None else own.update({MISSED: b.missed[i]})


def plan(opt, b, numbers, before=None):
    """[(number, steps, [(state, new value)])] of the tensors with an entry in opt.state. Refuses
    values that do not fit, and changes nothing. before: {id of a parameter: (binding, number)} of
    the bindings that are replaced: a state that the rule did not have there may be missing."""
    found, triangles = [], []
    for i in numbers:
        p, name = b.owners[i], b.names[i]
        own = _with_group_states(opt, b, i)
        if not own:
            continue
        views = {**b.live(i), **b.owned(i)}
        if not any(k in own for k in ("step", *views)):
            continue                                   # entries of other code
        count = step_of(own, name, opt._rule.spec in STEPLESS)
        own = completed(opt, own, views, count, p)
        old, k = (before or {}).get(id(p), (None, 0))
        keys = [n for n in views if n not in b.grouped and n not in b.follows
                and (old is None or n in old.live(k) or n in old.owned(k)) and n not in b.scales(i)]
        own = _codes.fitting(own, views, b.codes(i), name)
        begins = opt._rule.row == "sgd" and "momentum_buffer" in views and own.get(
            "momentum_buffer") is None
        # as torch starts a state that is None or missing
        if begins:
            count, own = 0, {**own, "momentum_buffer": torch.zeros(views["momentum_buffer"].shape)}
        elif count:
            check_missing(opt, own, keys, name, b.marks[i] is None)
            _warn_of_others(opt, own, keys, count, name)
        fills = [(n,
                  check_value(own[n], b.marks[i][n][0] if n in (b.marks[i] or ()) else view.shape,
                              n, name, view, view.dtype == torch.uint8))
                 for n, view in views.items() if own.get(n) is not None and b.edited(i, n, own[n])]
        triangles += [(i, n, value) for n, value in fills if n in b.lower and (
            old is None or n not in old.live(k) or old.edited(k, n, own[n]))]
        found.append((i, count, fills))
    _check_triangles(b, triangles)
    return found


def _warn_of_others(opt, own, keys, count, name):
    if keys and not any(own.get(k) is not None for k in keys) and not opt._warned_of_states:
        warnings.warn(
            "optc: the loaded states of %s (%s) are not those of %s (%s): states start "
            "again, at step %d; was the file saved by another rule?" % (name, ", ".join(
                k for k in own if k != "step"), opt._rule.spec, ", ".join(keys), count),
            stacklevel=2)
        opt._warned_of_states = True


def take(opt, plans):
    """Copies the values of plans, [(binding, plan)], into their bindings. opt.state then shows the
    bindings' memory, in the tensors that it had if they have the states' form (StateViews.keep).
    Steps are set first: if a binding refuses them, no binding has changed."""
    done, bound = [], set(opt._bounds or ())           # a new binding is dropped after a failure
    try:
        for b, found in plans:
            was, clock = b.counted.tolist(), b.clock() if b in bound else 0
            counts = _steps(was, found)
            with b.guard():
                b._order_before()
                if b not in bound:
                    b.set_skipped({
                        i: n for i, _, _ in found
                        if (n := _noted(entry(opt, b.owners[i]) or {}, SKIPPED, b.names[i]))
                    })
                b.set_steps(counts, _clock(opt, b, counts))
            done.append((b, was, clock, found))
    except Exception:
        for b, was, clock, found in done:
            with b.guard():
                b.set_steps([int(n) for n in was], clock)
                for i, count, _ in found:              # edits stay in opt.state
                    b.steps[i] = count
        raise
    plans, these = _apart(plans), {b for b, _ in plans}
    shown = _shown(opt, bound if bound & these else these)
    for b, found in plans:
        _fill(opt, b, found, shown)
        opt._evaluating |= opt._is_evaluating(dict(fills) for _, _, fills in found)


@torch.no_grad()
def _apart(plans):
    """The plans with copies of values that are live states themselves, as after a swap of two
    entries: the first one filled would overwrite the value of the second."""
    def place(x):
        x = local(x)
        return x.device, x.untyped_storage().data_ptr()
    filled = {place(view) for b, found in plans for i, _, fills in found for n, _ in fills
              if isinstance(view := {**b.renew(i), **b.owned(i)}[n], torch.Tensor)}
    return [(b, [(i, count, [(n, v.clone() if place(v) in filled else v) for n, v in fills])
                 for i, count, fills in found]) for b, found in plans]


def _steps(counted, found):
    counts = [int(n) for n in counted]
    for i, count, _ in found:
        counts[i] = count
    return counts


def _clock(opt, b, counts):
    if not b.periodic:
        return 0
    return max(
        clock_of(entry(opt, p) or {}, name, n) for p, name, n in zip(b.owners, b.names, counts))


def _shown(opt, bindings):
    """ids of the tensors that opt.state shows as live states of bindings."""
    return {id(v) for b in bindings for i, p in enumerate(b.owners)
            if b.views[i] and (own := entry(opt, p))
            for k, v in (("step", b.step_views[i]), *b.views[i].items()) if own.get(k) is v}


def _fill(opt, b, found, shown):
    with torch.no_grad(), b.guard():
        for i, _, fills in found:
            live = {**b.renew(i), **b.owned(i)}
            for n, value in fills:
                fill(live[n], value)
        b.put_owned()
        b._order_before()
        for i, _, _ in found:
            b.keep(i, entry(opt, b.owners[i]) or {}, shown)
            show(opt, b, i)


def show(opt, b, i):
    own = entry(opt, b.owners[i])
    if own is None:
        own = {}
        dict.__setitem__(opt.state, b.owners[i], own)
    shown = b.show(i)
    for k in shown:
        scale, code = k + _codes.SCALE, k + _codes.CODE
        if code in own and code not in shown:          # of a file whose codes were converted
            own.pop(scale, None)
            del own[code]
    own.update(shown)
    b.missed[i] = own.get(MISSED)
    for k in b.owned(i):
        own.pop(k, None)


@contextlib.contextmanager
def owned_shown(opt, stay=False):
    """A context in which opt.state has the states that one rank holds too, as DTensors. Collective.
    stay: they are removed after a failure only."""
    added = [(own, name, value) for b in opt._bounds or () if b.comm
             for i, name, value in b.spread() if (own := entry(opt, b.owners[i]))]
    for own, name, value in added:
        own[name] = value
    try:
        yield
    except BaseException:
        stay = False
        raise
    finally:
        for own, name, _ in () if stay else added:
            own.pop(name, None)


@contextlib.contextmanager
def strangers_hidden(opt):
    """A context in which opt.state lacks parameters that are in no group any more: a file has no
    number for them."""
    known = {id(p) for g in opt.param_groups for p in g["params"]}
    hidden = {p: dict.pop(opt.state, p) for p in list(dict.keys(opt.state))
              if isinstance(p, torch.Tensor) and id(p) not in known}
    try:
        yield
    finally:
        dict.update(opt.state, hidden)


def copied(opt):
    """opt.state for a copy or a pickle."""
    if not any(b.comm for b in opt._bounds or ()):
        return opt.state
    with owned_shown(opt):
        return defaultdict(dict, {p: dict(own) for p, own in dict.items(opt.state)})


def _shape_in_file(p, value):
    """An elementwise state's shape. Of a complex parameter, types without complex numbers are
    pairs of real ones."""
    pairs = p.is_complex() and torch.is_tensor(value) and not value.is_complex()
    return (*p.shape, 2) if pairs and value.dim() > p.dim() else p.shape


def _has_start(b):
    """Whether a rule keeps the point that a step starts from, as sam does: in `saved` where `up` is
    1."""
    return any(n.endswith(".up") and n[:-2] + "saved" in b.domains for n in b.domains)


@torch.no_grad()
def starting_points(opt):
    """[(binding, its counts, copies of its parameters)] of rules that do not keep them."""
    return [(b, b.counted.clone(), [p.clone() for p in b.params]) for b in opt._bounds
            if not _has_start(b)]


@torch.no_grad()
def restore(opt, starts):
    """Moves the parameters back that an entry between two gradients has moved, unless the step was
    made: those of `sam` and its kin to its state `saved`, others to the starting points."""
    for p, (b, i) in opt._places.items():
        views = b.live(i)
        for up in [n for n in views if n.endswith(".up") and n[:-2] + "saved" in views]:
            here, saved = b.params[i], views[up[:-2] + "saved"]
            here.copy_(torch.where(views[up] > 0, local(saved).to(here.dtype), here))
            views[up].zero_()
    for b, counts, copies in starts:
        if torch.equal(b.counted, counts):
            for p, was in zip(b.params, copies):
                p.copy_(was)


# ---- files ----
def check_file(opt, saved, groups):
    """The file's groups with the rule's keys. Refuses groups and states that do not fit, before
    loading. The states of a rule for matrices depend on the tensor: a missing one is refused at the
    first step."""
    if [len(g["params"]) for g in groups] != [len(g["params"]) for g in opt.param_groups]:
        return groups                                  # torch raises an error for this
    _warn_of_order(opt, groups)
    parts = opt._roles.parts(opt)
    known, groups = {}, [
        opt._rule.loaded(g, mine, k) for k, (g, mine) in enumerate(zip(groups, opt.param_groups))
    ]
    for k, (mine, given) in enumerate(zip(opt.param_groups, groups)):
        rule = opt._rule.rule({**mine, **given})
        kept, whole, lower, rule = known.get(repr(rule)) or known.setdefault(
            repr(rule), _kept(opt, rule))
        names = [r.name or "param_groups[%d][%d]" % (k, i)
                 for i, r in enumerate(opt._roles.rows[k])]
        for key, p, name, part in zip(given["params"], mine["params"], names, parts[k]):
            own = saved.get(key)
            if not own:
                continue
            own = saved[key] = _codes.translated(own, kept)
            given_as, name = name, "%s (number %s of the file)" % (name, key)
            count = step_of(own, name, opt._rule.spec in STEPLESS)
            clock_of(own, name, count), _noted(own, SKIPPED, name)
            own = saved[key] = completed(opt, own, kept, count, {**mine, **given})
            if count and whole and opt._rule.row != "sgd":
                check_missing(opt, own, kept, name)
            for n, domain in kept.items():
                if own.get(n) is not None and (domain == "elem" or whole):
                    check_value(own[n], _shape_in_file(p, own[n]) if domain == "elem" else (), n,
                                name, None, _codes.is_coded(own, n), p.is_complex())
            for n in lower:
                # parts: when they are bound
                if isinstance(own.get(n), torch.Tensor) and not is_sharded(own[n]):
                    refuse_empty(own[n], n, name)
                    tensor = {"shape": tuple(p.shape), "name": given_as, **part._asdict()}
                    refuse_upper(rule, lower[n], tensor, own[n])
        if not opt._rule.rest:                         # which may step all of a group
            check_group_missing(opt, rule, [saved.get(key) for key in given["params"]], k)
    return groups


def _warn_of_order(opt, groups):
    """A file that names the same parameters in another order is most likely assigned to the wrong
    ones. Files whose numbers are names have the order of these: torch.distributed.checkpoint makes
    them, and leaves param_names as they were saved."""
    def names(group):
        ids = group["params"]
        return ids if all(isinstance(i, str) for i in ids) else group.get("param_names") or ()
    mine, given = ([n for g in x for n in names(g)] for x in (opt.param_groups, groups))
    if set(mine) == set(given) and mine != given:
        there, here = next(pair for pair in zip(given, mine) if pair[0] != pair[1])
        warnings.warn(
            "optc: load_state_dict assigns states by position, as in torch, and the file "
            "has the parameters in another order: the states of '%s' become those of "
            "'%s'; make this optimizer with the file's order of parameters" % (there, here),
            stacklevel=user_level())


def _kept(opt, rule):
    """({state: domain} of a rule, whether every tensor has all of them, {lower triangle: its name
    in the rule}, the compiled rule)"""
    rule = asked(**opt._rule.compiled(*rule))
    names, domains = opt._rule.names, {n: d for n, d in rule.states().items() if d != "group"}
    whole = not opt._rule.rest and set(domains.values()) <= {"elem", "tensor"}
    if whole:
        each = [{"param": torch.zeros(shape, dtype=torch.float32, device="cpu")}
                for shape in (1, (2, 2))]
        b = Binding(rule, [(each, {})])
        of_vector, of_matrix = ({n for n in domains if b.has_state(i, n)} for i in range(2))
        # a spec's matrix part may have other states than its step
        whole = of_vector == of_matrix
        domains = {n: d for n, d in domains.items() if n in of_vector | of_matrix}
    return ({names.get(n, n): d for n, d in domains.items()}, whole,
            {names.get(n, n): n for n in rule.lower_triangles()}, rule)
