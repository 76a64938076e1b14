"""One binding of a rule to torch's parameters: those of a device, a type, and a set of options."""
import math
from itertools import compress, repeat
from operator import attrgetter, is_, is_not

import torch

from .. import _lib
from .._api import Binding
from ._memory import capturing
from ._scaling import HIDDEN, OWN, Guard

T = torch.Tensor
_dtype = attrgetter("dtype")
FEW = 1000       # up to so many every address is looked at in every step; of more that stay, a part in turns
TURNS = 256
ON_HOST = {"dtype": torch.float32, "device": "cpu"}       # whatever torch's defaults are
ONE = torch.ones((), **ON_HOST)


class Changed(Exception):
    """What was bound no longer holds: bind anew."""


def row_major(x):
    return x.is_contiguous()


def same_layout(p, g):
    return p.stride() == g.stride() or (row_major(p) and row_major(g))


def dense(x):
    """Whether its elements lie without gaps, in some order of its dimensions."""
    expected = 1
    for stride, size in sorted(zip(x.stride(), x.shape)):
        if size > 1:
            if stride != expected:
                return False
            expected *= size
    return True


def fitting(p):
    """Memory as the parameter lies, or row-major where that has gaps."""
    if dense(p):
        return torch.empty_strided(p.shape, p.stride(), dtype=p.dtype, device=p.device)
    return torch.empty(p.shape, dtype=p.dtype, device=p.device)


def tensor_name(p, name):
    return name or "a parameter of shape %s" % (tuple(p.shape),)


def refuse(p, name):
    """What optc does not step, by name."""
    if type(p) not in (torch.Tensor, torch.nn.Parameter) and type(p).__torch_function__ is not \
            torch._C._disabled_torch_function_impl:
        raise TypeError("optc does not step tensors of %s yet: %s" % (type(p).__name__, tensor_name(p, name)))
    if p.is_complex():
        raise ValueError("optc does not step complex parameters: %s; give it torch.view_as_real of it"
                         % tensor_name(p, name))
    if p.layout != torch.strided:
        raise ValueError("optc does not step sparse parameters: %s" % tensor_name(p, name))


def refuse_grad(g, p, name):
    if g.layout != torch.strided:
        raise RuntimeError("optc does not step sparse gradients: that of %s" % tensor_name(p, name))
    if g.device != p.device or g.shape != p.shape:
        raise RuntimeError("the gradient of %s is not where and as large as it is" % tensor_name(p, name))


class Member:
    """A group's parameters in a binding: the group's number, them, their names and flags; the group's whole list, and
    what was in it."""

    def __init__(self, group, whole):
        self.group, self.params, self.names, self.flags, self.splits = group, [], [], [], []
        self.whole, self.was = whole, list(whole)

    def add(self, p, name, flag, split):
        self.params.append(p)
        self.names.append(name)
        self.flags.append(flag)
        self.splits.append(split)


class Bound:
    """old: what is bound now, {id of a parameter: (binding, number)}: states that are as this rule has them go on where
    they lie, so that they are nowhere twice. names: what states are called outside. memory: the rule's Device."""

    def __init__(self, memory, rule, members, hypers, static, old=None, names=None):
        self.rule, self.members, self.static = rule, members, static
        self.owners = [p for m in members for p in m.params]       # the optimizer's
        self.params = self._locals()                   # and what is stepped, which is the same but of DTensors
        self.names = [n for m in members for n in m.names]
        self.asked = [x for m in members for x in zip(m.flags, m.splits)]
        self.device = self.params[0].device
        self.cuda, self.index = self.device.type == "cuda", self.device.index      # a step asks for them
        self.memory = memory
        self.copies = 0                                # of parameters and gradients that lie otherwise
        self.staged = {}                               # number: a row-major copy that is stepped in a parameter's place
        self.grad_copies = {}                          # number: memory for a gradient that lies otherwise
        self.recorded = []                             # of that what graphs write to
        self.single = [i for i, p in enumerate(self.params) if p.numel() == 1]     # autograd may hand these out as -x
        self.held = self.last_ids = self.ptrs = None
        self.dtype = None
        self.turn = 0
        self.views = [None] * len(self.params)
        self.steps = torch.zeros(len(self.params), **ON_HOST)     # t of each, as torch keeps it; opt.state has views
        self.took = None                               # who takes part: None all of them, or ones and zeros
        self.unseen = True                             # some have no states in the optimizer yet
        self.sent, self.kept = {}, {}                  # hyperparameters as they were sent, and tensors among them
        self.scaling = None
        self.stream, self.capturing = 0, False
        self.domains = rule.states()
        self.bases = {}                                # memory of bindings before this one that states still lie in
        self._old, self._outer = old or {}, names or {}
        with self.guard(), torch.no_grad():
            self._order_before()
            self._bind(hypers)
            self._order_after()
        self.where = list(map(T.data_ptr, self.params))
        self.alias = [p.detach() for p in self.params]     # a parameter that moves leaves its memory alive until seen
        self._old = {}

    # ---- binding ----
    def _locals(self):
        return self.owners

    def _piece(self, _number):
        """What the tensor is a piece of, for optc_bind."""
        return {}

    def _changed(self):
        """Whose versions a run moves on."""
        return self.params

    def guard(self):
        return torch.cuda.device(self.device) if self.cuda else _nothing

    def _order_before(self):
        if self.cuda:
            torch.cuda.current_stream(self.device).synchronize()

    def _order_after(self):
        if self.cuda:
            self.binding.sync()
            self.follow_stream()

    def _bind(self, hypers):
        """As they lie; where the rule does not take other strides, by copies."""
        odd = [i for i, p in enumerate(self.params) if not row_major(p)]
        try:
            if any(not dense(self.params[i]) for i in odd):
                raise _lib.ArgumentError("strides")
            self._attempt(hypers)
        except _lib.ArgumentError:
            if not odd:
                raise
            self.staged = {i: self.params[i].contiguous() for i in odd}
            self._order_before()                       # states may begin as copies of them
            self._attempt(hypers)

    def _attempt(self, hypers):
        groups, at = [], 0
        for m, hyper in zip(self.members, hypers):
            rows = []
            for name, flag, split in zip(m.names, m.flags, m.splits):
                lies = self.staged.get(at, self.params[at])
                strides = None if row_major(lies) else lies.stride()
                rows.append({"param": self._address(lies), "shape": tuple(lies.shape), "name": name, "strides": strides,
                             "grad_strides": strides, "flags": flag, "split": split, "states": self._taken_over(at), **self._piece(at)})
                at += 1
            groups.append((rows, hyper))
        self.binding = Binding(self.rule, groups)

    def _taken_over(self, at):
        """Addresses of states that go on where they lie; None: there are none, or they are others."""
        old, i = self._old.get(id(self.owners[at]), (None, 0))
        lies = self.params[at]
        if old is None or old.rule is not self.rule or at in self.staged or i in old.staged or \
                old.asked[i] != self.asked[at] or old.alias[i].shape != lies.shape or \
                old.alias[i].stride() != lies.stride() or not lies.numel():
            return None
        views = old.state_tensors(i, self._outer)
        lie = {n: old.binding.state(i, n)[0] for n, d in self.domains.items()
               if d != "group" and not n.startswith(HIDDEN) and old.binding.has_state(i, n)}
        self.views[at] = {k: views[k] for k in (self._outer.get(n, n) for n in lie)}
        for address in lie.values():
            base = old.base(address)
            self.bases[base.data_ptr()] = base
        return [lie.get(n) for n in self.domains]

    def base(self, address):
        """The memory that a state lies in: this binding's, or one's before it."""
        for start, memory in self.bases.items():
            if start <= address < start + memory.numel():
                return memory
        return self.memory.holding(address)

    def _address(self, x):
        """Of no elements torch gives no address, and a binding wants one."""
        return x.data_ptr() or self.memory.empty()

    # ---- gradients ----
    def find_grads(self):
        """Hands over the gradients that moved. The cost is that of reading p.grad, and of looking at addresses: of all,
        or, where there are many and all are the tensors they were, of some."""
        if self.static and self.ptrs is not None and not self.grad_copies:
            return
        if self.capturing:
            self.let_go()
            self.ptrs = None                           # handed over in any case: what is captured keeps what it is given
        if self.held is not None and not [p for p, g in self.held if p.grad is not g] and self._some():
            return
        grads = self._read()
        self._params_stay()
        self._look(grads)
        if len(grads) > FEW:
            self._hold(grads)

    def _read(self):
        return [p.grad for p in self.params]

    def _some(self):
        """A part of the addresses, another one each time."""
        self.turn = (self.turn + 1) % TURNS
        part = slice(self.turn, None, TURNS)
        for (p, g), at, grad_at in zip(self.held[part], self.where[part], self.ptrs[part]):
            if p.data_ptr() != at or (g is not None and g.data_ptr() != grad_at):
                return False
        return True

    def _hold(self, grads):
        """Gradients that were the same tensors twice are held on to, so that they need not be looked at."""
        ids = list(map(id, grads))
        same = ids == self.last_ids and not self.grad_copies
        self.held, self.last_ids = list(zip(self.params, grads)) if same else None, ids

    def let_go(self):
        """Before gradients are set to None."""
        self.held = self.last_ids = None

    def _params_stay(self):
        if not all(all(map(is_, m.whole, m.was)) for m in self.members):
            raise Changed
        where = list(map(T.data_ptr, self.params))
        if where != self.where:
            self._move(where)

    def _move(self, where):
        """Parameters lie elsewhere, as they lay: the binding goes there, and its states stay."""
        alike = all(a.device == p.device and a.dtype == p.dtype and a.shape == p.shape and a.stride() == p.stride()
                    for a, p in zip(self.alias, self.params))
        if not alike or self.staged:
            raise Changed
        self.held = self.ptrs = None                   # a gradient of before may have lain where a parameter is now
        try:
            self.binding.set_grads([0] * len(where))
            self.binding.set_params([self._address(p) for p in self.params])
        except _lib.Error:
            raise Changed from None
        self.where, self.alias = where, [p.detach() for p in self.params]

    def _look(self, grads):
        everyone = not any(map(is_, grads, repeat(None)))      # `in` would compare tensors
        there = grads if everyone else [g for g in grads if g is not None]
        try:
            ptrs = list(map(T.data_ptr, there))
            plain = all(map(T.is_contiguous, there)) and not self.staged and self.contiguous() and not any(
                grads[i] is not None and grads[i].is_neg() for i in self.single)
        except (RuntimeError, NotImplementedError):
            for g, p, name in zip(grads, self.params, self.names):
                if g is not None:
                    refuse_grad(g, p, name)
            raise
        if any(map(is_not, map(_dtype, there), repeat(self._grad_dtype(there)))):
            raise Changed
        if not plain or self.grad_copies:
            ptrs = self._copied(grads)
        elif not everyone:
            found = iter(ptrs)
            ptrs = [0 if g is None else next(found) for g in grads]
        if 0 in ptrs:
            ptrs = [self.memory.empty() if not a and g is not None else a for a, g in zip(ptrs, grads)]
        if ptrs != self.ptrs:
            self._set(ptrs, everyone)

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
        """Addresses of gradients, of copies where one lies otherwise than what is stepped."""
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
        self.binding.set_grads(ptrs)
        self.ptrs = ptrs
        self.took = None if everyone else torch.tensor([float(a != 0) for a in ptrs], **ON_HOST)

    # ---- running ----
    def run(self, entry):
        if self.staged:
            self._stage(True)
        if entry == "step":
            self.binding.step()
            self._count()
        else:
            self.binding.run(entry)
        if self.staged:
            self._stage(False)
        if not self.static:
            torch.autograd.graph.increment_version(self._changed())

    def _count(self):
        if self.cuda and (self.scaling or self.capturing):
            return                                     # the device alone knows; it is asked when states are saved
        if self.scaling:
            self.read_steps()
        else:
            self.steps.add_(ONE if self.took is None else self.took)       # a number would be made a tensor first

    def guarded(self, found, scale, scaled):
        """By what a scaler handed over for the next step, if anything."""
        if self.scaling is None and found is None and scale is None:
            return
        if self.scaling is None or (scaled and not self.scaling.scaled):
            self.scaling = Guard(self, scaled)
        self.scaling.take(self, found, scale)

    @torch.no_grad()
    def _stage(self, there):
        for i, copy in self.staged.items():
            copy.copy_(self.params[i]) if there else self.params[i].copy_(copy)
            self.copies += 1

    def follow_stream(self):
        """torch's current stream is the binding's, from here on."""
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
        """Memory that a step uses beside the binding's own."""
        guard = [self.scaling.memory] if self.scaling else []
        return (*self.bases.values(), *self.staged.values(), *self.grad_copies.values(), *guard)

    def settle(self):
        """Before the host reads or writes outside of a step: behind what the binding did, and in torch's current
        stream, where what was captured may have been replayed."""
        if self.cuda and torch._C._cuda_getCurrentRawStream(self.index) != self.stream:
            self.binding.sync()
            self.follow_stream()

    # ---- states ----
    def taken(self):
        """Numbers of the tensors that had a gradient in the last step."""
        return range(len(self.params)) if self.took is None else compress(range(len(self.params)), self.took.tolist())

    def state_tensors(self, i, names):
        """The live states of a tensor by their outer names."""
        if self.views[i] is None:
            p, views = self.params[i], {}
            lies = self.staged.get(i, p)
            for name, domain in self.domains.items():
                if domain == "group" or name.startswith(HIDDEN) or not self.binding.has_state(i, name):
                    continue
                flat = self.memory.tensor(*self.binding.state(i, name)) if p.numel() or domain == "tensor" else \
                    torch.empty(0, dtype=p.dtype, device=p.device)
                views[names.get(name, name)] = _shaped(flat, lies, domain)
            self.views[i] = views
        return self.views[i]

    def group_states(self, names):
        """(first tensor of the group, {name: live tensor}) of states that belong to groups."""
        at, found = 0, []
        kept = [n for n, d in self.domains.items() if d == "group" and not n.startswith(HIDDEN)]
        for k, m in enumerate(self.members):
            if kept:
                found.append((at, {names.get(n, n): self.memory.tensor(*self.binding.state(k, n)).view(())
                                   for n in kept if self.binding.has_state(k, n)}))
            at += len(m.params)
        return found

    def set_steps(self, counts):
        """Counts of all tensors, and of the binding: the most that one of them has."""
        if any(counts):
            most = max(counts)
            self.binding.set_t(-1, most)
            for i, n in enumerate(counts):
                if n != most:
                    self.binding.set_t(i, n)
        self.steps.copy_(torch.tensor([float(n) for n in counts], **ON_HOST))

    def read_steps(self):
        """What replays of a graph counted is known to the device alone, and so is what was left out."""
        every = range(len(self.params))
        counts = [float(self.binding.get_t(i)) for i in every]
        if OWN + "skipped" in self.domains:
            counts = [n - self.binding.read(i, OWN + "skipped", 1)[0] for i, n in zip(every, counts)]
        self.steps.copy_(torch.tensor(counts, **ON_HOST))

    def found(self):
        """Whether the last step's gradients were not finite, on the device."""
        return self.memory.tensor(*self.binding.state(0, OWN + "found")).float()


def _shaped(flat, p, domain):
    if domain == "tensor" and flat.numel() == 1:
        return flat.view(())
    if domain in ("row", "col") and p.dim() > 1:       # as torch's Adafactor has them: a mean keeps its dimension
        shape = list(p.shape)
        shape[-1 if domain == "row" else -2] = 1
        if flat.numel() == math.prod(shape):
            return flat.view(shape)
    if domain == "elem" and flat.numel() == p.numel():
        return flat.view(p.shape) if row_major(p) else flat.as_strided(p.shape, p.stride())
    return flat


class _Nothing:
    def __enter__(self):
        return self

    def __exit__(self, *_):
        return None


_nothing = _Nothing()
