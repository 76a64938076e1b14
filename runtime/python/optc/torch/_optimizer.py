"""optc.torch.Optimizer: any spec as a torch.optim.Optimizer.

Parameters are bound at the first step: one binding for each device, type and set of options. When
tensors are bound again (after loading, copying, unfreezing or moving), the library's memory is
filled from `self.state`, and `self.state` then shows that memory.
"""
import pickle
from copy import copy
from functools import partial
from operator import is_

import torch
from torch.autograd import _profiler_enabled as _profiling
from torch.compiler import is_compiling as _compiling
from torch.optim.optimizer import Optimizer as _Base      # torch.optim's may be a program's patch
from torch.optim.optimizer import _global_optimizer_post_hooks as _everywhere_after
from torch.optim.optimizer import _global_optimizer_pre_hooks as _everywhere_before

from .._api import option_text, types_of
from .._lib import OutOfMemory
from . import _rules, _state
from ._begun_states import begin, dropped
from ._complex_params import PARTS, Complex, refuse_conjugated, refuse_shaped
from ._data_parallel import refuse_flat, zeros_group
from ._step_in_backward import step_late, watch
from ._address_check import same
from ._tensor_binding import TensorBinding, Changed, Member
from ._tensor_checks import (refuse, refuse_fake_mode, refuse_shared, refuse_type,
                             refuse_without_memory, tensor_name)
from ._key_suggestions import timms_wrappers
from ._group_keys import GroupKeys, is_constant, snapshot
from ._engines import TYPES, capturing, device_of
from ._rest_rate import Rates
from ._rule_entries import RuleEntries
from ._rule_inputs import RuleInputs
from ._scaling import CHECKING, read_where_it_lies, send
from ._collective import Collective, ranks_of
from ._sharded import Sharded, is_cut, is_sharded, local, refuse_placed
from ._state_views import signature
from ._param_roles import OfModule, Roles, names_of
from ._entry_runs import EntryRuns
from ._multi_binding import Shared, Stages, handles_of

# torch.compile's callback for frames that are called now; None: it is off.
_frame_hook = getattr(torch._C._dynamo.eval_frame, "get_eval_frame_callback", lambda: None)
# Attributes that copies and pickles contain besides torch's. The answers of the functions sort and
# split are kept beside them (_sorted).
KEPT = ("_rule", "_static", "_release", "_inputs", "_scalars", "_workspace", "_rates", "_climbed",
        "_evaluating")
# What pickles of versions without these names mean.
BEFORE = {"_static": False, "_release": False, "_inputs": {}, "_scalars": {}, "_workspace": 0}


class Optimizer(RuleInputs, RuleEntries, EntryRuns, _Base):
    """Steps torch's parameters by a rule of optc.

    params       as for torch.optim, also named parameters, or a module
    rule         a name of the library ("adamw", "adamw+clip(1)") or a path ("./mine.lua")
    with_        wrappers around it, the last one outermost: ["clip(1.0)", "ema(0.999)"]
    options      compile-time choices: {"amsgrad": True}
    types        storage types of states: {"state": "q8", "ema.avg": "bf16"} or
                 "state=q8,ema.avg=bf16"; parameters and gradients have their own. For bf16 models:
                 a step rounds 16-bit parameters to nearest, as torch does. "master" keeps what they
                 round away: "low16", "low8" (both bf16 only), "f32", "kahan"; "param" may only ask
                 for stochastic rounding ("bf16sr", "f16sr"). repr(opt) tells which of them is in
                 use; "lost": "count" counts updates that round away
    spec         the text of a spec, instead of a name
    wrappers     texts of your own wrappers by name, for with_
    products     precision of products of matrices: "f32", "bf16", …
    maximize     maximizes instead of minimizing
    static_grads gradients and parameters keep their addresses from the first step on, so that steps
    do not look for
                 new ones
    release_grads  each parameter is stepped as soon as backward has computed its gradient, which is
                   then freed. step()
                 only steps parameters that were frozen before, the first time. Not for rules with
                 values of all tensors together, such as clip
    sort         for rules with a part for matrices (Muon): a function of (name, parameter) that
                 returns how it is stepped: "matrix", "rest", "head", "embed", or None: by default;
                 see optc.torch.sorted_by
    split        {name: n} or a function of (name, parameter): the parameter is n matrices, stacked
                 by rows
    workspace    most bytes for temporaries of matrix products; 0: 1 GiB, on a large GPU more. A
                 matrix that needs more is refused
    process_group  the processes that have a copy of the model (DDP): they share the work on
                   matrices. Without it each
                 process steps all plain tensors. For DTensors the default is the root of their
                 meshes
    group        the processes whose parameters count for values of all tensors together, such as
                 clip's norm: the stages of a pipeline. All of them step together. Their DTensors
                 step on their own meshes, not on the root
    follow_lr    schedulers also move the rate of the rule for other parameters than matrices
                 (adamw.lr of Muon), and other rates that the authors multiply by lr (lr_1d of
                 MARS), which keep their ratios to lr. False: they leave them. Rates that are
                 tensors on a GPU are not moved
    All other arguments are hyperparameters or options of the spec. Hyperparameters are in
    `param_groups` and may change at every step. A wrapper's have its prefix: "clip.max_norm".
    """

    def __init__(self, params, rule=None, *, spec=None, with_=(), options=None, types=None,
                 wrappers=None, products=None, static_grads=False, release_grads=False, sort=None,
                 split=None, workspace=0, process_group=None, group=None, follow_lr=True, **given):
        if rule is None and spec is None:
            raise TypeError("no rule is given: name a rule of the library or a path, or pass a "
                            "spec's text (spec=)")
        own = types_of(types)
        if "grad" in own or not own.get("param", "bf16sr").endswith("sr"):
            raise ValueError("types: parameters and gradients have their own types; only "
                             "param=bf16sr and param=f16sr (stochastic rounding) are allowed here")
        if own.get("master") == "f32" and not static_grads:
            own.setdefault("edits", "find")            # p.data has no version that counts writes
        if not isinstance(workspace, int) or workspace < 0:
            raise ValueError(
                "workspace=%r: it must be a number of bytes, or 0 for the default" % (workspace,))
        self._workspace, self._process_group = workspace, process_group
        self._group = zeros_group() if group is None else group
        self._whole = {
            "rule": rule, "spec": spec, "with_": with_, "options": options, "types": types,
            "wrappers": wrappers, "products": products, "static_grads": static_grads,
            "release_grads": release_grads, "sort": sort, "split": split, "workspace": workspace,
            "follow_lr": follow_lr
        }
        with_ = timms_wrappers(with_, given, lambda: GroupKeys(
            rule, spec, (), options, None, wrappers, None).defaults({}))
        self._rule = GroupKeys(rule, spec, with_, options, own, wrappers, products)
        self._static, self._release = static_grads, release_grads
        self._inputs, self._scalars, self._watched = {}, {}, {}
        if isinstance(params, torch.nn.Module):
            params = OfModule(params.named_parameters(), params)
        self._roles = Roles(sort, split, params.module if isinstance(params, OfModule) else None)
        self._made, self._scaled, self._checking, self._loss = None, None, False, None
        self._unbound()
        defaults = self._rule.defaults(dict(given))
        if release_grads and self._rule.is_global:
            raise ValueError("%s has values of all tensors together: release_grads=True cannot be "
                             "used with it"
                             % self._rule.spec)
        super().__init__(params, defaults)
        for group in self.param_groups:
            self._check_group(group)
        refuse_flat(self)
        self._rule.warn_of_defaults(self.param_groups)
        self._rates = Rates(self, follow_lr)
        self._made = True
        self._roles.first(self)
        if release_grads:
            watch(self)
        begin(self)

    def _unbound(self):
        """Forgets all bindings; the next step binds."""
        self._bounds = self._shape = self._pushed = None
        self._values = []
        self._tensors, self._out, self._of, self._places = False, [], {}, {}
        self._idle = []                                # lists of groups that are not bound, copies

    def _check_group(self, group):
        if group.get("differentiable"):
            raise ValueError("differentiable=True: a step of optc is not differentiable")
        late = self._rule.row in ("adafactor", "muon")     # torch's refuse complex ones at a step
        for p, name in zip(group["params"], names_of(group)):
            # a frozen parameter may have any class until it has a gradient
            if p.requires_grad and not (late and p.is_complex()):
                self._refuse(p, name, group)

    def _refuse(self, p, name, group):
        """Refuses a parameter that optc does not step, by name."""
        refuse_placed(p, name) if is_sharded(p) else refuse(p, name)
        if p.is_complex():
            refuse_conjugated(p, name)
            refuse_shaped(p, name, self._rule, group)

    def add_param_group(self, param_group):
        if isinstance(param_group, dict):
            self._read_group(param_group)
        super().add_param_group(param_group)
        self._rule.complete(self.param_groups[-1])
        self._shape = None
        if self._made:                                 # the constructor checks its own groups
            try:
                self._check_group(self.param_groups[-1])
                self._roles.follow(self, anew=True)
            except BaseException:
                self.param_groups.pop()
                raise
            if self._release:
                watch(self)
            # a scheduler's change of the other groups may be pending
            self._rates.follow(self)

    def _read_group(self, group):
        """Puts a new group's values under the keys of groups, in place, and refuses wrong ones.
        torch's constructor checks those of torch's rules."""
        where, found = len(self.param_groups), dict(group)
        self._rule.refuse_in_group(found, where, self.__dict__.get("_whole", {}))
        self._rule.fold(found, self.defaults, twice=True)
        both = {**self.defaults, **found}
        if self._rule.row:
            known = [p.name for p in _rules.torch_parameters(self._rule.row)]
            if any(k in known for k in found):
                _rules.torch_defaults(self._rule.row, {k: both[k] for k in known})
        self._rule.check({**found, "initial_lr": both.get("initial_lr", both.get("lr", 0))}, where)
        self._rule.consider(both, where)
        self._rule.warn_of_unread(found, self.defaults, [both])
        for key in group.keys() - found.keys():
            del group[key]
        group.update(found)

    # ---- binding ----
    def _capturing(self):
        """Asks only for devices of parameters: a process without parameters on a GPU may be a fork,
        where torch's CUDA must not be used."""
        return any(map(capturing, {p.device for g in self.param_groups for p in g["params"]}))

    def _refuse_capture(self):
        if self._capturing():
            raise RuntimeError("optc binds its tensors at the first step (and when they or their "
                               "states move or change): take one step before capturing a graph")

    def _raw(self, k, group):
        return [snapshot(group[key]) for key, _ in self._rule.keys], self._rule.rule(group, k)

    def _layout(self):
        return [(id(g["params"]), len(g["params"]), g.get("sort")) for g in self.param_groups]

    def _bind(self):
        with dropped(self):
            self._bind_all()

    def _bind_all(self):
        """Binds the parameters that take gradients, grouped by device, types and options. The old
        bindings are replaced when all is done; after a failure they stay."""
        self._refuse_capture()
        self._count_replays()
        for k, group in enumerate(self.param_groups):
            self._rule.fold(group, self.defaults)
            self._rule.consider(group, k)
        parts = self._roles.parts(self)                # also of parameters that replaced others
        refuse_flat(self)
        wanted, out, seen, ranks = {}, [], set(), ranks_of(self, parts)
        modes = "to_eval" in self._rule.entries        # it changes frozen parameters too
        for k, group in enumerate(self.param_groups):
            spec, options, up = rule = self._rule.rule(group, k)
            for i, (p, role) in enumerate(zip(group["params"], self._roles.rows[k])):
                if id(p) in seen:
                    continue
                seen.add(id(p))
                if p.grad is None and not p.requires_grad and not (modes and _state.entry(self, p)):
                    out.append(p)
                    continue
                self._refuse(p, role.name, group)
                refuse_without_memory(p, role.name or "param_groups[%d][%d]" % (k, i))
                known = PARTS if p.is_complex() and not (ranks or is_sharded(p)) else TYPES
                refuse_type(p.dtype, known, "parameters", tensor_name(p, role.name))
                grad = p.dtype if p.grad is None else p.grad.dtype
                refuse_type(grad, known, "gradients", "that of " + tensor_name(p, role.name))
                own = id(p) if self._release else 0
                key = p.device, p.dtype, grad, ranks or is_sharded(p), spec, option_text(
                    options), up, own
                members = wanted.setdefault(key, ({}, rule))[0]
                if k not in members:
                    members[k] = Member(k, group["params"])
                members[k].add(p, role.name or "param_groups[%d][%d]" % (k, i), parts[k][i])
        shares = not self._release and (self._rule.is_global or self._scaled == CHECKING)
        stages = Stages(self._group, ranks, next(iter(wanted), (None,))[0], len(wanted)) \
            if shares and self._group is not None else None
        several = shares and len(stages.sources if stages else wanted)
        several = several if several > 1 else 0        # bindings that share values of all tensors
        rows = [(local(p), n) for members, _ in wanted.values() for m in members.values()
                for p, n in zip(m.params, m.names)]
        refuse_shared(*zip(*rows)) if rows else None
        old = {
            id(p): at for p, at in self._places.items()
            if not _state.removed(*at, _state.entry(self, p))
        }
        with _state.owned_shown(self, stay=True):
            bounds = [self._bound(key, *what, several, old) for key, what in wanted.items()]
            self._refuse_apart(bounds)
            _state.take(self,
                        [(b, _state.plan(self, b, range(len(b.owners)), old)) for b in bounds])
        shared = Shared(bounds, self._rule.spec, stages) if several else None
        # all that may fail comes before the old bindings are replaced
        self._give_inputs(bounds)
        self._bounds, self._shared, self._out, self._shape = bounds, shared, out, self._layout()
        bound = {m.group for b in bounds for m in b.members}
        self._idle = [(g["params"], list(g["params"])) for k, g in enumerate(self.param_groups)
                      if k not in bound]
        self._handles = None if self._release or shared and not shared.connected else handles_of(
            bounds)
        self._of = {id(b.owners[0]): b for b in bounds} if self._release else {}
        self._places = {p: (b, i) for b in bounds for i, p in enumerate(b.owners)}
        self._pushed = None
        _state.leave_group_states(self, bounds)

    def _bound(self, key, members, rule, bindings, old):
        device, dtype, grad, sharded = key[:4]
        kind = partial(Collective, sharded) if type(sharded) is tuple else Sharded if sharded \
            else Complex if dtype.is_complex else TensorBinding
        dtype, grad = PARTS.get(dtype, dtype), PARTS.get(grad, grad)
        what = self._rule.compiled(*rule, param=TYPES[dtype], grad=TYPES[grad],
                                   scaler=self._scaled, bindings=bindings)
        members = list(members.values())
        hypers = [self._rule.values(self.param_groups[m.group], dtype, m.group) for m in members]
        memory = device_of(device, self._workspace)
        try:
            b = kind(memory, memory.rule(**what), members, hypers, self._static, old,
                     self._rule.names)
        except OutOfMemory as e:
            if "optc_engine_options.workspace" not in str(e):
                raise
            told = str(e).replace("optc_engine_options.workspace",
                                  "workspace").replace("; set a larger one", "")
            raise OutOfMemory("%s: workspace= of this optimizer takes more" % told) from None
        b.dtype, b.finds_edits = grad, what["types"].get("edits") == "find"
        for hyper in hypers:
            self._rule.warn_of_types(b.rule, hyper)
        if self._scaled:                               # the rule reads a scale at every step
            b.guarded(None, torch.ones(()), True)
        return b

    def _refuse_apart(self, bounds):
        if self._release and any(d == "group" and not _state.is_count(self, n)
                                 for b in bounds for n, d in b.domains.items()):
            raise ValueError("%s has states of whole groups: release_grads=True cannot be used "
                             "with it"
                             % self._rule.spec)

    # ---- a step ----
    def step(self, closure=None):
        """Takes one step. A closure is called first, and its loss is returned. Rules that take
        several gradients, such as those with the wrapper `sam`, call it once for each:
        Rule.gradients lists the entries in between."""
        # traced, or in a frame between two graphs
        if _compiling() or _frame_hook() not in (None, False):
            return _uncompiled_step(self, closure)
        return self._step_with_hooks(closure)
    step.hooked = True         # torch's own wrappers around step cost more than a step

    def _step_with_hooks(self, closure):
        if (_profiling() or self._optimizer_step_pre_hooks or self._optimizer_step_post_hooks or
                _everywhere_before or _everywhere_after):
            return _hooked_step(self, closure)
        return self._step(closure)

    def _step(self, closure=None):
        loss = None
        self._refuse_in_evaluation("step")
        try:
            if closure is not None:
                loss = self._loss = self._called(closure)
                if len(self._rule.gradients) > 1:
                    self._step_by_gradients(closure)
                    return loss
            if self._release:
                step_late(self)
            else:
                self.run("step")
        finally:
            # it belongs to this step only, and keeps its graph alive
            self._loss = None
        return loss

    def params_changed(self, *params):
        """After parameters were written where torch counts no version (p.data, a graph, code in C):
        what is kept beside them (types={"master": …}) is set from them. Without arguments: beside
        all of them."""
        wanted = set(map(id, params))
        for b in self._bounds or ():
            b.settle()
            for i, p in enumerate(b.owners):
                if not params or id(p) in wanted:
                    b.params_changed(i)

    def _ready(self):
        refuse_fake_mode("step()")
        self._recover()
        if self._bounds is None or self._shape != self._layout() or (
                self._out and any(p.grad is not None for p in self._out)) or \
                not all(same(*x) for x in self._idle) or _state.reread(self):
            self._bind()
        try:
            self._give()
        except Changed:
            self._bind()
            self._give()

    def _give(self):
        for b in self._bounds:
            if b.cuda:
                b.follow_stream()
        self._push()
        for b in self._bounds:
            b.find_grads()

    def push(self):
        """Passes changed hyperparameters to the library, as every step does. Call it before replays
        of a captured step."""
        if self._bounds is not None:
            for b in self._bounds:             # replays may run in another stream than the capture
                b.follow_stream()
            try:
                self._push()
            except Changed:
                self._bind()
                self._push()

    def _push(self):
        """Passes the groups' hyperparameters. Raises Changed if options or maximize changed: they
        need another rule."""
        values = [g.get(k) for g in self.param_groups for k in self.defaults]
        values += map(len, self.param_groups)          # detects added keys, such as the alias beta1
        if self._pushed is not None and len(values) == len(self._values) and all(
                map(is_, values, self._values)):
            return                                     # no group was written to, the usual case
        self._values = []
        for g in self.param_groups:
            self._rule.fold(g, self.defaults)
        self._rates.follow(self)
        values = [g.get(k) for g in self.param_groups for k in self.defaults
                  ] + values[-len(self.param_groups):]
        raw = [self._raw(k, g) for k, g in enumerate(self.param_groups)]
        tensors = any(isinstance(v, torch.Tensor) for r in raw for x in r[0]
                      for v in (x if isinstance(x, (tuple, list)) else (x,)))
        kept = values if all(map(is_constant, values)) else []
        if self._pushed is not None and not tensors and not self._tensors and raw == self._pushed:
            self._values = kept
            return
        if self._pushed is not None and [r[1:] for r in raw] != [r[1:] for r in self._pushed]:
            self._pushed = None
            raise Changed
        found = [(b, k, self._rule.values(self.param_groups[m.group], b.owners[0].dtype, m.group,
                                          partial(read_where_it_lies, device=b.device)))
                 for b in self._bounds for k, m in enumerate(b.members)]
        # unknown until all are sent: an interrupt may come
        if self._pushed is not None:
            self._pushed = [(None, *r[1:]) for r in self._pushed]
        # all values were checked above: all are sent, or none
        for b, k, each in found:
            for name, value in each.items():
                send(b, k, name, value)
        self._tensors, self._pushed, self._values = tensors, raw, kept

    # ---- saving, loading, copying ----
    def _count_replays(self):
        self._recover()
        for b in self._bounds or ():
            if b.cuda and capturing(b.device):
                continue
            if b.cuda:
                b.settle()
                b.read_steps()
            _state.note_clock(self, b)

    def state_dict(self):
        """The state as plain dictionaries. Their tensors share memory with opt.state, except for
        states that one rank holds (matrix rules on several ranks): of these every rank gets some
        rows. All ranks call it together then."""
        if self._bounds is None and self.state and any(
                is_cut(p) for g in self.param_groups for p in g["params"]):
            # after loading: as the parameters are cut here
            self._bind()
        self._count_replays()
        # a scheduler may have changed lr since the last step
        self._rates.follow(self)
        with _state.owned_shown(self), _state.strangers_hidden(self):
            found = super().state_dict()
            found["state"] = {
                k: {n: v.detach() if type(v) is torch.Tensor else v for n, v in own.items()}
                   if isinstance(own, dict) else own for k, own in found["state"].items()
            }
        return found

    def load_state_dict(self, state_dict):
        """Loads a state_dict of optc or of torch's optimizer for the same rule. States keep the
        types of this optimizer. A file that does not fit is refused and changes nothing."""
        saved, ids = {}, []

        def take(_optimizer, given):
            saved.update(given["state"])
            groups = _state.check_file(self, saved, given["param_groups"])
            ids.extend(k for g in groups for k in g["params"])
            return {**given, "state": {}, "param_groups": groups}

        def put(optimizer):
            params = [p for g in optimizer.param_groups for p in g["params"]]
            optimizer._load(saved, dict(zip(ids, params)))
        before = self.register_load_state_dict_pre_hook(take)
        after = self.register_load_state_dict_post_hook(put, prepend=True)
        groups = [dict(g) for g in self.param_groups]
        try:
            super().load_state_dict(state_dict)
            # files of older versions or torch lack some keys
            for group, old in zip(self.param_groups, groups):
                for key, value in old.items():
                    group.setdefault(key, value)
            self._rates.note(self)
        finally:
            before.remove()
            after.remove()

    def _load(self, saved, params):
        """Copies the saved states, so that they share no memory with the file's tensors. Those that
        are this optimizer's own stay, also for a program that holds them."""
        live = {signature(v): v for b, i in self._places.values()
                for v in (b.step_views[i], *(b.views[i] or {}).values())}

        def taken(v):
            if not isinstance(v, torch.Tensor):
                return v
            mine = live.get(signature(v)) if v.layout == torch.strided else None
            return v.detach().clone() if mine is None else mine
        self.state = _state.States(dict)
        for key, values in saved.items():
            p = params.get(key)
            self.state[key if p is None else p] = values if p is None else {
                n: taken(v) for n, v in values.items()}
        self._evaluating = self._is_evaluating(saved.values())
        self._unbound()

    def __copy__(self):
        """As torch's: the copy shares states and groups. Each of the two finds in self.state what
        the other wrote."""
        self.state = _state.plain(self.state)
        new = type(self).__new__(type(self))
        new.__setstate__(self.__getstate__())
        return new

    def __getstate__(self):
        self._count_replays()
        return {
            **super().__getstate__(), "state": _state.copied(self),
            **{k: getattr(self, k) for k in KEPT}, "_sorted": self._roles.saved(self)
        }

    def __setstate__(self, state):
        state = dict(state)
        each = state.pop("_sorted", None)
        super().__setstate__(state)
        self._shape = None
        # called by load_state_dict, not for a copy or pickle
        if "defaults" not in state:
            return
        if "_rule" not in state:
            raise pickle.UnpicklingError("%s: the pickle names no rule; make the optimizer anew "
                                         "and load its state_dict()" % type(self).__name__)
        for name, value in BEFORE.items():             # of versions that did not have the name
            self.__dict__.setdefault(name, copy(value))
        self._unbound()
        self._made, self._watched, self._roles = True, {}, Roles()
        if each is not None:
            self._roles.restore(self, each)
        for group in self.param_groups if self._rule.row else ():
            _rules.fix_keys(self._rule.row, group)
        # pickles of older versions lack it
        self._rates = state.get("_rates") or Rates(self, True)
        self._rates.adopt(self)
        self._process_group = self._group = None
        self._scaled, self._checking, self._loss = None, False, None
        if self._release:
            watch(self)


# torch's wrapper: hooks, and the profiler's record.
_hooked_step = _Base.profile_hook_step(Optimizer._step)
_uncompiled_step = torch._disable_dynamo(Optimizer._step_with_hooks)
