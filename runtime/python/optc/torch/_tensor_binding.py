"""One binding of a rule to torch's parameters of one device, type and set of options."""
import contextlib
from itertools import compress
from operator import attrgetter

import torch

from .. import _lib
from .._api import Binding
from ._address_check import DIFFER, STAY, AddressCheck, increment_versions, readable, same
from ._codes import SCALE
from ._engines import capturing
from ._scaling import HIDDEN, OWN, SKIPPED, Guard, Loss
from ._state_views import StateViews
from ._tensor_checks import (dense, extent, fitting, inside, refuse_freed, refuse_grad, row_major,
                             same_layout, same_values)

T = torch.Tensor
_dtype = attrgetter("dtype")
# steps in a row whose AddressCheck was of no use, such as with gradients of another class
TRIES = 4
# Steps until it is tried again; each failure doubles them, up to 2^MOST_WAIT times. Making one
# takes about as long as a comparison in Python, so tries add 3 % to the steps of gradients that
# never fit.
WAIT, MOST_WAIT = 32, 5
nothing = contextlib.nullcontext()
ON_HOST = {"dtype": torch.float32, "device": "cpu"}       # independent of torch's defaults


class Changed(Exception):
    """The binding does not match the tensors any more; they must be bound again."""


class Member:
    """A group's parameters in a binding: the group's number, the parameters, their names and parts
    (Part); the group's whole list, and a copy of its contents."""

    def __init__(self, group, whole):
        self.group, self.params, self.names, self.parts = group, [], [], []
        self.whole, self.was = whole, list(whole)

    def add(self, p, name, part):
        self.params.append(p)
        self.names.append(name)
        self.parts.append(part)


class TensorBinding(StateViews):
    """old: the current bindings, {id of a parameter: (binding, number)}. States that this rule has
    in the same form keep their memory, so that no second copy exists. names: the public names of
    states. memory: the rule's Device."""

    def __init__(self, memory, rule, members, hypers, static, old=None, names=None):
        self.rule, self.members, self.static = rule, members, static
        self.owners = [p for m in members for p in m.params]       # the optimizer's parameters
        # the tensors that are stepped: local parts of DTensors
        self.params = self._locals()
        self.names = [n for m in members for n in m.names]
        self.asked = [x for m in members for x in m.parts]
        self.device = self.params[0].device
        # every step reads them
        self.cuda, self.index = self.device.type == "cuda", self.device.index
        self.memory = memory
        # copies of parameters and gradients with other layouts
        self.copies = 0
        # number: a row-major copy that is stepped instead of a parameter
        self.staged = {}
        # number: memory for a gradient with another layout
        self.grad_copies = {}
        self.recorded = []                             # those of grad_copies that graphs write to
        self.ptrs = None                               # addresses of gradients that the library has
        self.seen = None                               # an AddressCheck that has these addresses
        # gradients of this step: a list, or an AddressCheck
        self.held = None
        self.differed = 0                              # steps in a row for which it was of no use
        self.waited = 0                                # steps without one since then
        self.sizes = list(map(T.numel, self.params))
        self.dtype = None
        # inference tensors have no versions
        self.versioned = [p for p in self.params if not p.is_inference()]
        self.views = [None] * len(self.params)         # {name: live state} of each
        # {name: signature} of the entry in opt.state of each
        self.marks = [None] * len(self.params)
        self._codes = [None] * len(self.params)        # {name: optc_type} of states in block codes
        self._counts = torch.zeros(2, len(self.params), **ON_HOST)
        # not of the module: a FakeTensorMode may be on at its import
        self._one = torch.ones((), **ON_HOST)
        # t of each, in torch's form; opt.state has views of it, and `counted` is a copy that users
        # cannot edit
        self.steps, self.counted = self._counts.unbind()
        self.step_views = list(self.steps.unbind())
        # of each, `missed` as it was written to opt.state
        self.missed = [None] * len(self.params)
        self.skipped = [0] * len(self.params)          # of each, as last read from the library
        # participation: None: all tensors, or ones and zeros
        self.took = None
        self.unseen = True                             # some have no states in the optimizer yet
        # hyperparameters as passed to the library; tensors among them
        self.sent, self.kept = {}, {}
        self.scaling = self.loss = None
        # the entry that runs, until all that follows it is done
        self.running = None
        self.stream, self.capturing = 0, False
        self.periodic = rule.has_periods()
        # skipped steps change what it draws
        self.draws = SKIPPED in rule.states() and "seed" in rule.hypers()
        copies = rule.copies_of_params()
        self.domains = {**rule.states(), **dict.fromkeys(copies, "elem")}
        self.grouped = [
            n for n, d in self.domains.items() if d == "group" and not n.startswith(HIDDEN)
        ]
        sizes = [len(m.params) for m in members]
        # they show group states
        self.firsts = {sum(sizes[:k]): k for k in range(len(sizes))} if self.grouped else {}
        # memory of earlier bindings that still contains states
        self.bases = {}
        self._old, self._outer = old or {}, names or {}
        self.lower = {self._outer.get(n, n): n for n in rule.lower_triangles()}
        self.follows = {self._outer.get(n, n) for n in (*rule.follows_params(), *copies)}
        # of parameters when the states in `follows` were set
        self.versions = self._read_versions()
        for p, name in zip(self.params, self.names):
            refuse_freed(p, "", name)
        with self.guard(), torch.no_grad():
            self._order_before()
            self._bind(hypers)
            self._order_after()
        # states that keep their memory are those of tensors only
        for i in self.firsts:
            if self.views[i] is not None:
                self.views[i].update(self._group_views(i))
        self.where = list(map(T.data_ptr, self.params))
        self.shapes, self.strides, self.dtypes = (
            list(map(f, self.params)) for f in (T.size, T.stride, _dtype))
        self.lengths = [extent(p) // p.element_size() for p in self.params]
        # keep the memory of a moved parameter until that is noticed
        self.alias = self._aliases()
        for i, p in enumerate(self.owners):            # what continues may be stale already
            before, k = self._old.get(id(p), (None, 0))
            if self.follows and before is not None and before.follows:
                self.versions[i] = before.versions[k]
                self._written_elsewhere([(i, before.alias[k], self.versions)])
        self._old = {}

    # ---- binding ----
    # the ranks of a binding that runs on several together
    comm = None

    def _locals(self):
        return self.owners

    def _aliases(self):
        return [p.detach() for p in self.params]

    def _piece(self, _number):
        """global_shape and offset of a piece, for optc_bind."""
        return {}

    def _changed(self):
        """The tensors whose versions a run increments."""
        return self.versioned

    def guard(self):
        return torch.cuda.device(self.device) if self.cuda else nothing

    def _order_before(self):
        if self.cuda:
            torch.cuda.current_stream(self.device).synchronize()

    def _order_after(self):
        if self.cuda:
            self.binding.sync()
            self.follow_stream()

    def _bind(self, hypers):
        """Binds the tensors in place, or copies of tensors with gaps or with strides that the rule
        does not support."""
        odd = [i for i, p in enumerate(self.params) if not row_major(p)]
        try:
            self._stage_these(i for i in odd if not dense(self.params[i]))
            self._attempt(hypers)
        except _lib.ArgumentError as e:
            if len(self.staged) == len(odd) or "strides (" not in str(e):
                raise
            self._stage_these(odd)
            self._attempt(hypers)

    def _stage_these(self, numbers):
        self.staged = {i: self.params[i].contiguous() for i in numbers}
        if self.staged:
            # states may start as copies of the parameters
            self._order_before()

    def _attempt(self, hypers):
        groups, at = [], 0
        for m, hyper in zip(self.members, hypers):
            rows = []
            for name, part in zip(m.names, m.parts):
                lies = self.staged.get(at, self.params[at])
                strides = None if row_major(lies) else lies.stride()
                rows.append({
                    "param": self._address(lies), "shape": tuple(lies.shape), "name": name,
                    "strides": strides, "grad_strides": strides, "states": self._taken_over(at),
                    **part._asdict(), **self._piece(at)
                })
                at += 1
            groups.append((rows, hyper))
        self.binding = Binding(self.rule, groups, self.comm)

    def _taken_over(self, at):
        """Addresses of states that keep their memory; None: there are none, or they have another
        form."""
        old, i = self._old.get(id(self.owners[at]), (None, 0))
        lies = self.params[at]
        if old is None or old.rule is not self.rule or at in self.staged or i in old.staged or \
                old.asked[i] != self.asked[at] or old.alias[i].shape != lies.shape or \
                old.alias[i].stride() != lies.stride() or not lies.numel():
            return None
        lie = {n: old.binding.state(i, n)[0] for n, d in self.domains.items()
               if d != "group" and not n.startswith(HIDDEN) and old.binding.has_state(i, n)}
        for address in lie.values():
            base = old.base(address)
            self.bases[base.data_ptr()] = base
        views, own = old.renew(i), {self._outer.get(n, n) for n in lie}
        self.views[at] = {
            k: v for k, v in views.items()
            if k in own or (k.endswith(SCALE) and k[:-len(SCALE)] in own)
        }
        return [lie.get(n) for n in self.domains]

    def base(self, address):
        """The buffer that contains a state: this binding's, or an earlier one's."""
        for start, memory in self.bases.items():
            if start <= address < start + memory.numel():
                return memory
        return self.memory.holding(address)

    def _address(self, x):
        """The address of a tensor. torch has none for tensors without elements, but a binding needs
        one."""
        return x.data_ptr() or self.memory.empty()

    # ---- gradients ----
    def find_grads(self):
        """Passes changed gradients to the library. Every step compares addresses, sizes, types and
        strides of all parameters and gradients, and the sizes of their storages. The gradients are
        held until `let_go`: another thread may replace them while the library steps."""
        if self.static and self.ptrs is not None and not self.grad_copies:
            return
        if self.capturing:
            # always passed: a captured step keeps the addresses it gets
            self.ptrs = self.seen = None
        if not all(same(m.whole, m.was) for m in self.members):
            raise Changed
        if self.seen is not None and self._compare():
            return
        self.seen = None
        grads = self.held = self._read()
        self._params_stay()
        self._look(grads)

    def let_go(self):
        held, self.held = self.held, None
        if type(held) is AddressCheck:
            held.release()

    def _read(self):
        return [p.grad for p in self.params]

    def _specs(self):
        """By tensor: the _spec of a DTensor, or None."""
        return [None] * len(self.params)

    def _compare(self):
        """Compares all tensors with the last step in one call, and passes gradients that moved.
        False: other things changed, or a gradient must be refused."""
        seen, self.seen = self.seen, None              # none if set_grads fails
        self.held = seen
        found = seen.compare()
        if found == DIFFER:
            self.let_go()
            self.differed += 1
            return False
        if found != STAY:
            ptrs = seen.grads.tolist()
            self._set(ptrs, 0 not in ptrs)
            seen.take()
        self.seen, self.differed = seen, 0
        return True

    def _params_stay(self):
        if any(map(T.is_neg, self.params)):
            raise Changed                              # binding them again refuses them by name
        where = list(map(T.data_ptr, self.params))
        if where != self.where:
            self._move(where)
        if (list(map(T.size, self.params)) != self.shapes or
                list(map(T.stride, self.params)) != self.strides or
                list(map(_dtype, self.params)) != self.dtypes):
            # p.data = p.data.t(), or read as another type: no other address
            raise Changed
        if not inside(self.params, self.lengths, self.dtypes[0]):
            for p, name in zip(self.params, self.names):
                refuse_freed(p, "", name)

    def _move(self, where):
        """Rebinds parameters that moved to other addresses with the same layout; the states
        stay."""
        alike = all(a.device == p.device and a.dtype == p.dtype and a.shape == p.shape and
                    a.stride() == p.stride() for a, p in zip(self.alias, self.params))
        if not alike or self.staged:
            raise Changed
        moved = [i for i, (was, now) in enumerate(zip(self.where, where)) if was != now]
        for i in moved:
            refuse_freed(self.params[i], "", self.names[i])
        self._written_elsewhere((i, self.alias[i], self.versions) for i in moved)
        # a parameter may now be at the address of an old gradient
        self.ptrs = self.seen = None
        try:
            self.binding.set_grads([0] * len(where))
            self.binding.set_params([self._address(p) for p in self.params])
        except _lib.Error:
            raise Changed from None
        self.where, self.alias = where, self._aliases()

    def _look(self, grads):
        everyone, there = True, grads
        try:
            try:
                ptrs = list(map(T.data_ptr, there))
            except TypeError:                          # some are None
                everyone, there = False, [g for g in grads if g is not None]
                ptrs = list(map(T.data_ptr, there))
            plain = all(map(T.is_contiguous, there)) and not self.staged and self.contiguous() and \
                not any(map(T.is_neg, there))          # autograd may hand out one element as -x
            nowhere, shapes = 0 in ptrs, list(map(T.size, there))
        except (RuntimeError, NotImplementedError):
            self._refuse_grads(grads)
            raise
        if shapes != (self.shapes
                      if everyone else [n for n, g in zip(self.shapes, grads) if g is not None]):
            self._refuse_grads(grads)
        if set(map(_dtype, there)) - {self._grad_dtype(there)}:
            raise Changed
        if not plain or self.grad_copies:
            ptrs = self._copied(grads)
        else:
            if not inside(there, map(T.numel, there), self.dtype):
                self._refuse_grads(grads)
            if not everyone:
                found = iter(ptrs)
                ptrs = [0 if g is None else next(found) for g in grads]
        if nowhere:
            self._refuse_grads(grads)
            ptrs = [a if a or g is None else self.memory.empty() for a, g in zip(ptrs, grads)]
        if ptrs != self.ptrs:
            self._set(ptrs, everyone)
        if plain and not self.grad_copies and not self.capturing and self._tries():
            specs = self._specs()
            self.seen = AddressCheck(self, specs) if readable(self.owners, specs) else None

    def _tries(self):
        """Whether the next step is compared by an AddressCheck."""
        if self.differed < TRIES:
            return True
        self.waited += 1
        if self.waited < WAIT << min(self.differed - TRIES, MOST_WAIT):
            return False
        self.waited = 0
        return True

    def _refuse_grads(self, grads):
        for g, p, name in zip(grads, self.params, self.names):
            if g is not None:
                refuse_grad(g, p, name)

    def _grad_dtype(self, there):
        if self.dtype is None and there:
            self.dtype = there[0].dtype
        return self.dtype

    def contiguous(self):
        if self._contiguous is None:
            self._contiguous = all(map(T.is_contiguous, self.params))
        return self._contiguous
    _contiguous = None

    @torch.no_grad()
    def _copied(self, grads):
        """Addresses of gradients, or of copies if the layout differs from that of the stepped
        tensor."""
        ptrs = []
        for i, g in enumerate(grads):
            if g is None:
                ptrs.append(0)
                continue
            refuse_grad(g, self.params[i], self.names[i])
            lies = self.staged.get(i, self.params[i])
            if same_layout(lies, g) and not g.is_neg():
                self.grad_copies.pop(i, None)
            else:
                if i not in self.grad_copies:
                    like = lies if lies.dtype == g.dtype else lies.to(g.dtype)
                    self.grad_copies[i] = fitting(like)
                g = self.grad_copies[i].copy_(g)
                if self.capturing:
                    self.recorded.append(g)
                self.copies += 1
            ptrs.append(g.data_ptr())
        return ptrs

    def _set(self, ptrs, everyone):
        # until all is set: an interrupt may come at every line
        self.ptrs = None
        self.binding.set_grads(ptrs)
        self.took = None if everyone else torch.tensor([float(a != 0) for a in ptrs], **ON_HOST)
        self.ptrs = ptrs

    # ---- running ----
    def _written_elsewhere(self, moved):
        """Parameters at new addresses whose values are new too count as written; torch counts no
        version of p.data. A capture cannot compare values. moved: (number, the parameter at its old
        address, versions)"""
        for i, was, versions in moved if self.follows else ():
            if self.capturing or not same_values(was, self.params[i]):
                versions[i] = -1

    def _read_versions(self):
        return [None if p.is_inference() else p._version for p in self.owners
                ] if self.follows else []

    def params_changed(self, i):
        """Sets what is kept beside a parameter from the parameter."""
        if not self.follows:
            return
        if i in self.staged:
            with torch.no_grad():
                self.staged[i].copy_(self.params[i])
        self.binding.params_changed(i)
        self.versions[i] = self._read_versions()[i]

    def _follow_params(self):
        """Somebody else wrote to parameters since the last run."""
        for i, (was, now) in enumerate(zip(self.versions, self._read_versions())):
            if was != now:
                self.params_changed(i)

    # the rule compares parameters with their masters (edits=find)
    finds_edits = False

    def _finds_them_all(self):
        return self.finds_edits and len(self.follows) == 1

    def before_run(self):
        if self.follows and not self._finds_them_all():
            self._follow_params()
        if self.staged:
            self._stage(True)

    def share(self, entry):
        """Runs an entry that computes values for other bindings and changes nothing else."""
        self.before_run()
        self.binding.run(entry)

    def run(self, entry):
        self.before_run()
        self.running = entry
        try:
            self.binding.step() if entry == "step" else self.binding.run(entry)
        except _lib.Error:
            self.running = None                        # nothing has changed
            raise
        self.after_run(entry)

    def after_run(self, entry):
        if entry == "step":
            self._count()
        self._after_writes()

    def after_failure(self, entry):
        """The same after a call that ran several bindings and failed: this one may have run.
        Returns whether it stepped. The library's counts tell, except inside of a capture, which has
        failed then, and for other entries."""
        before = self.counted.tolist()
        if entry == "step" and not self.capturing:
            self.read_steps()
            # nothing was written: graphs that autograd retains stay valid
            if self.counted.tolist() == before:
                return False
        self._after_writes()                           # also right for a binding that did not run
        return self.counted.tolist() != before

    def recover(self):
        """Completes a run that an interrupt (Ctrl-C) ended between the library's call and what
        follows it. Returns whether the binding may have a step that opt.state does not show."""
        entry = self.running
        with contextlib.suppress(_lib.Error):          # a binding that can do no more work
            if entry == "step" and not self.capturing and not (self.cuda and self.scaling):
                self.read_steps()
        self._after_writes()                           # also right for a binding that did not run
        return entry == "step" and bool(self.counted.any())

    def _after_writes(self):
        if self.staged:
            self._stage(False)
        if not self.static:
            increment_versions(self._changed())
        if self.follows:
            self.versions = self._read_versions()

    def _count(self):
        if self.cuda and (self.scaling or self.capturing):
            # only the device knows the count; it is read when saving
            return
        if self.scaling:
            self.read_steps()
        else:
            # a tensor: torch would convert a number first
            more = self._one if self.took is None else self.took
            self._counts.add_(more)                    # steps and counted

    def guarded(self, found, scale, scaled):
        """Sets the guard and the scale of the next step from a scaler's values, if there are
        any."""
        if self.scaling is None and found is None and scale is None:
            return
        if self.scaling is None or (scaled and not self.scaling.scaled):
            self.scaling = Guard(self, scaled)
        self.scaling.take(self, found, scale)

    def take_loss(self, loss):
        self.loss = self.loss or Loss(self)
        self.loss.take(loss)

    @torch.no_grad()
    def _stage(self, there):
        for i, copy in self.staged.items():
            copy.copy_(self.params[i]) if there else self.params[i].copy_(copy)
            self.copies += 1

    def follow_stream(self):
        """Makes torch's current stream the binding's stream."""
        if not self.cuda:
            return
        stream = torch._C._cuda_getCurrentRawStream(self.index)
        self.capturing = capturing(self.device)
        if stream != self.stream:
            self.binding.set_stream(stream)
            self.stream = stream
            if not self.capturing:
                self.memory.used_in(torch.cuda.current_stream(self.device), self._beside())

    def _beside(self):
        """Memory that a step uses besides the binding's own."""
        own = [x.memory for x in (self.scaling, self.loss) if x and x.memory is not None]
        return (*self.bases.values(), *self.staged.values(), *self.grad_copies.values(), *own)

    def settle(self):
        """Call this before the host reads or writes outside of a step. It orders torch's current
        stream, in which a captured step may have been replayed, after the binding's work."""
        if self.cuda and torch._C._cuda_getCurrentRawStream(self.index) != self.stream:
            self.binding.sync()
            self.follow_stream()

    # ---- states ----
    def taken(self):
        """Numbers of the tensors that had a gradient in the last step."""
        return range(len(self.params)) if self.took is None else compress(
            range(len(self.params)), self.took.tolist())

    def set_steps(self, counts, clock=0):
        """Sets the step counts of all tensors, and that of the binding to the largest of them and
        `clock`."""
        # also of tensors without a step yet
        ts = [n + skipped for n, skipped in zip(counts, self.skipped_steps())]
        if any(ts) or clock or bool(self.counted.any()):
            most = max(*ts, clock)
            self.binding.set_t(-1, most)
            for i, n in enumerate(ts):
                if n != most:
                    self.binding.set_t(i, n)
        self.counted.copy_(torch.tensor([float(n) for n in counts], **ON_HOST))
        self.steps.copy_(self.counted)

    def clock(self):
        """The steps that `every` counts: those of the binding. 0: the rule has no `every`."""
        return self.binding.get_t(-1) if self.periodic else 0

    def skipped_steps(self):
        """By tensor: steps that a scaler skipped. The binding counts them, the optimizer does
        not."""
        every = range(len(self.params))
        self.skipped = [
            int(self.binding.read(i, SKIPPED, 1)[0]) if SKIPPED in self.domains else 0
            for i in every
        ]
        return self.skipped

    def set_skipped(self, counts):
        """{number: skipped steps} of a new binding."""
        for i, n in counts.items() if self.draws else ():
            self.binding.write(i, SKIPPED, [n])

    def read_steps(self):
        """Reads the step counts from the device: only it knows replayed and skipped steps."""
        counts = [float(self.binding.get_t(i) - n) for i, n in enumerate(self.skipped_steps())]
        counts = torch.tensor(counts, **ON_HOST)
        # the others were edited; the next step uses them
        kept = self.steps == self.counted
        counts = torch.stack((torch.where(kept, counts, self.steps), counts))
        # both at once: an interrupt may come at every line
        self._counts.copy_(counts)

    def found(self):
        """Whether the last step's gradients were not finite, on the device."""
        return self.memory.tensor(*self.binding.state(0, OWN + "found")).float()
